/* Differentiating bodies: their functions are called again. */
#include "graph/control_gradient.h"

#include "aril/create.h"
#include "aril/dtype.h"
#include "autograd/backward.h"
#include "autograd/node.h"
#include "ops/shape/copy.h"

#include <stdlib.h>

enum { MAX_ARGS = ARIL__CONTROL_ARGS };

/* Tensors from outside while a function is differentiated. The way back ends at them, since the
 * graph around goes on from there: each stands for a copy of itself, whose node no other walk
 * uses. */
typedef struct borrowed {
    aril_tensor *tensor;
    aril__node *node; /* its own: a reference */
    uint32_t node_out;
} borrowed;

static aril_status borrow(aril_tensor *t, borrowed *b)
{
    ARIL_SCOPE;
    aril__thread *th = aril__self();
    aril_tensor *copy = aril__op(&aril__op_copy, t);
    if (aril_tensor_status(copy) < 0) return aril_tensor_status(copy);
    *b = (borrowed){ t, t->node ? aril__node_keep(t->node) : NULL, t->node_out };
    aril__bind(th, t, copy->node, copy->node_out);
    return ARIL_OK;
}

static void give_back(borrowed *b)
{
    aril__thread *th = aril__self();
    if (!b->tensor) return;
    aril__bind(th, b->tensor, b->node, b->node_out);
    if (b->node) aril__node_release(th, b->node);
}

/* What aril__body_differentiate needs for each target: arguments, captured tensors and stops. */
typedef struct targets {
    int n, n_wanted; /* those before the stops */
    aril_tensor **of, **got;
    aril__target *at;
    borrowed *borrowed;
} targets;

static aril_status list_targets(const aril__body_gradient *q, aril_tensor *const *arg,
                                aril_tensor **x, targets *t)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < q->n_args; i++) {
        x[i] = arg[i];
        if (!q->wants[i]) continue;
        /* A node of its own, where the way back ends; connected if this gradient is differentiated
         * itself. */
        x[i] = t->of[t->n++] =
            arg[i]->node ? aril__op(&aril__op_copy, arg[i]) : aril_detach(arg[i]);
        if (!arg[i]->node) aril_set_requires_grad(x[i], true);
        if (s == ARIL_OK) s = aril_tensor_status(x[i]);
    }
    t->n_wanted = t->n + q->n_captured;
    for (int i = 0; i < q->n_captured + q->n_stops && s == ARIL_OK; i++) {
        aril_tensor *of = i < q->n_captured ? q->captured[i] : q->stops[i - q->n_captured];
        s = borrow(of, &t->borrowed[t->n]);
        t->of[t->n++] = of;
    }
    for (int i = 0; i < t->n && s == ARIL_OK; i++)
        t->at[i] = (aril__target){ t->of[i]->node, t->of[i]->node_out };
    return s;
}

static aril_status walk(const aril__body_gradient *q, aril_fn *fn, aril_tensor *const *arg,
                        aril_tensor *const *given, targets *t)
{
    aril_tensor *x[MAX_ARGS], *y[ARIL__MAX_OUT], *root[ARIL__MAX_OUT], *start[ARIL__MAX_OUT];
    int n_roots = 0, g = 0;
    aril__thread *th = aril__self();
    aril_status s = list_targets(q, arg, x, t);
    aril_generator now = th->generator; /* the numbers of the function itself */
    aril__rng_put(&th->generator, q->rng[fn == q->fn[1]]);
    if (s == ARIL_OK) s = aril__control_call("gradient", fn, q->ctx, x, q->n_out, y);
    th->generator = now;
    for (int i = 0; i < q->n_out && s == ARIL_OK; i++) {
        if (!q->has[i]) continue;
        if (aril_requires_grad(y[i])) {
            root[n_roots] = y[i];
            start[n_roots++] = aril_cast(given[g], aril_dtype_of(y[i]));
        }
        g++;
    }
    if (s == ARIL_OK && n_roots)
        s = aril__backward_to(n_roots, root, start, t->n, t->at, t->got, true,
                              (aril_grad_opts){ .create_graph = true });
    return s;
}

aril_status aril__body_differentiate(const aril__body_gradient *q, aril_fn *fn,
                                     aril_tensor *const *arg, aril_tensor *const *given,
                                     aril_tensor **out)
{
    size_t n = (size_t)(q->n_args + q->n_captured + q->n_stops) + 1;
    targets t = { .of = aril__calloc(n * sizeof *t.of),
                  .got = aril__calloc(n * sizeof *t.got),
                  .at = aril__calloc(n * sizeof *t.at),
                  .borrowed = aril__calloc(n * sizeof *t.borrowed) };
    aril_status s = ARIL_ERR_MEMORY;
    ARIL_ENABLE_GRAD;
    if (t.of && t.got && t.at && t.borrowed)
        s = walk(q, fn, arg, given, &t);
    else
        aril__fail(s, "gradient: out of memory");
    for (int i = 0; i < t.n; i++) {
        give_back(&t.borrowed[i]);
        if (t.got[i]) t.got[i] = aril__give(aril__self(), t.got[i]);
        if (s == ARIL_OK && i < t.n_wanted) out[i] = t.got[i] ? t.got[i] : aril_zeros_like(t.of[i]);
    }
    free(t.of);
    free(t.got);
    free(t.at);
    free(t.borrowed);
    return s;
}

aril__body_gradient *aril__body_gradient_new(aril__tracing *t, const struct control_attrs *a,
                                             int n_out, aril_tensor *const *captured,
                                             const bool *wants_captured, int n)
{
    aril__body_gradient *q = aril__calloc(sizeof *q + 2 * (size_t)n * sizeof(aril_tensor *));
    if (!aril__tracing_own(t, q)) {
        aril__fail(ARIL_ERR_MEMORY, "gradient: out of memory");
        return NULL;
    }
    q->fn[0] = (aril_fn *)(intptr_t)a->fn[0];
    q->fn[1] = (aril_fn *)(intptr_t)a->fn[1];
    q->ctx = (void *)(intptr_t)a->ctx[0];
    q->n_args = (int)a->n_args[0];
    q->n_out = n_out;
    q->draws = a->draws[0];
    for (int i = 0; i < 2; i++)
        q->rng[i] = (aril_rng_state){ (uint64_t)a->seed[0], (uint64_t)a->calls[i] };
    q->captured = (aril_tensor **)(q + 1);
    q->stops = q->captured + n;
    for (int i = 0; i < n; i++) {
        if (wants_captured[i])
            q->captured[q->n_captured++] = captured[i];
        else if (captured[i]->node)
            q->stops[q->n_stops++] = captured[i];
    }
    return q;
}
