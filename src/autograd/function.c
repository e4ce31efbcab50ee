/* Custom autograd functions and checkpoints: nodes whose gradient rule is C code outside the op
 * table. */
#include "autograd/backward.h"

#include "aril/create.h"
#include "aril/view.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"
#include "ops/table/symbolic.h"

#include <stdlib.h>
#include <string.h>

struct aril_ctx {
    const aril_function *f;
    int n_in, n_out;
    aril_tensor *const *in;
    aril_tensor *out[ARIL__MAX_OUT];
    aril_tensor *saved[ARIL_CTX_SAVED];
    aril__grad *grad; /* NULL outside backward */
    aril_tensor *zeros[ARIL__MAX_OUT];
    aril_status status;
};

/* Attributes of the node. slot_out[k] is 1 + the result that slot k holds, 0 when it holds none. */
struct call_attrs {
    const aril_function *f;
    uint8_t slot_out[ARIL_CTX_SAVED];
};

/* ---- the context passed to a function ---- */

static aril__cold aril_tensor *misuse(aril_ctx *c, const char *what, int i, int n)
{
    c->status =
        aril__fail(ARIL_ERR_ARG, "%s: %s %d is out of range, there are %d", c->f->name, what, i, n);
    return aril__poison();
}

static aril__cold aril_tensor *no_context(const char *what)
{
    aril__fail(ARIL_ERR_ARG, "%s: the context is NULL", what);
    return aril__poison();
}

aril_tensor *aril_ctx_in(aril_ctx *c, int i)
{
    if (!c) return no_context("ctx_in");
    if (c->grad)
        return misuse(c, "inputs are not kept for backward, call aril_ctx_save in forward: input",
                      i, c->n_in);
    return i < 0 || i >= c->n_in ? misuse(c, "input", i, c->n_in) : c->in[i];
}

void aril_ctx_out(aril_ctx *c, int i, aril_tensor *t)
{
    if (!c)
        no_context("ctx_out");
    else if (c->grad || i < 0 || i >= c->n_out)
        misuse(c, "result", i, c->grad ? 0 : c->n_out);
    else
        c->out[i] = t;
}

void aril_ctx_save(aril_ctx *c, int slot, aril_tensor *t)
{
    if (!c)
        no_context("ctx_save");
    else if (c->grad || slot < 0 || slot >= ARIL_CTX_SAVED)
        misuse(c, "saved value", slot, c->grad ? 0 : ARIL_CTX_SAVED);
    else
        c->saved[slot] = t;
}

aril_tensor *aril_ctx_saved(aril_ctx *c, int slot)
{
    if (!c) return no_context("ctx_saved");
    if (slot < 0 || slot >= ARIL_CTX_SAVED || !c->saved[slot])
        return misuse(c, "nothing was saved in this slot: slot", slot, ARIL_CTX_SAVED);
    return c->saved[slot];
}

aril_tensor *aril_ctx_grad_out(aril_ctx *c, int i)
{
    if (!c) return no_context("ctx_grad_out");
    if (!c->grad || i < 0 || i >= c->n_out)
        return misuse(c, "gradient of result", i, c->grad ? c->n_out : 0);
    if (c->grad->g[i]) return c->grad->g[i];
    if (!c->zeros[i]) c->zeros[i] = aril_zeros_like(c->grad->y[i]);
    return c->zeros[i];
}

void aril_ctx_grad_in(aril_ctx *c, int i, aril_tensor *g)
{
    if (!c) {
        no_context("ctx_grad_in");
        return;
    }
    if (!c->grad || i < 0 || i >= c->n_in) {
        misuse(c, "gradient of input", i, c->grad ? c->n_in : 0);
        return;
    }
    if (!c->grad->wants[i] || !g) return;
    const aril_tensor *like = c->grad->x[ARIL_CTX_SAVED + i];
    if (!aril__is_poison(g) && !aril__dims_fit(g->ndim, g->dim, like->ndim, like->dim)) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        c->status =
            aril__fail(ARIL_ERR_SHAPE,
                       "%s: the gradient of input %d has shape %s, but the input has shape %s",
                       c->f->name, i, aril__text(a, g), aril__text(b, like));
        return;
    }
    c->grad->dx[i] = aril_cast(g, (aril_dtype)like->dtype);
}

bool aril_ctx_wants(aril_ctx *c, int i)
{
    if (!c) no_context("ctx_wants");
    return c && c->grad && i >= 0 && i < c->n_in && c->grad->wants[i];
}

void *aril_ctx_data(aril_ctx *c)
{
    if (!c) no_context("ctx_data");
    return c ? c->f->data : NULL;
}

/* ---- backward ---- */

static void call_vjp(aril__grad *g)
{
    const struct call_attrs *a = g->attrs;
    aril_ctx c = { .f = a->f, .n_in = a->f->inputs, .n_out = a->f->outputs, .grad = g };
    for (int k = 0; k < ARIL_CTX_SAVED; k++)
        c.saved[k] = a->slot_out[k] ? g->y[a->slot_out[k] - 1] : g->x[k];
    a->f->backward(&c);
    for (int i = 0; i < c.n_in; i++)
        if (g->wants[i] && c.status < 0) g->dx[i] = aril__poison();
}

static const aril__op call_op = { .name = "call",
                                  .attr_size = sizeof(struct call_attrs),
                                  .vjp = call_vjp };

/* ---- forward ---- */

static aril_status save(aril__thread *th, aril__node *n, aril__saved_kind kind, int index,
                        aril_tensor *t)
{
    aril_status s = aril__save(th, &n->saved[n->n_saved], kind, index, t);
    if (s == ARIL_OK) n->n_saved++;
    return s;
}

static void join_edges(aril__thread *th, aril__node *n, int n_in, aril_tensor *const *in)
{
    uint64_t sequence = th->sequence;
    for (int i = 0; i < n_in; i++) {
        bool wants = in[i]->node && aril__is_float((aril_dtype)in[i]->dtype);
        n->edge[i].node = wants ? aril__node_keep(in[i]->node) : NULL;
        n->edge[i].out = wants ? in[i]->node_out : 0;
        if (wants && in[i]->node->sequence > sequence) sequence = in[i]->node->sequence;
    }
    th->sequence = n->sequence = sequence + 1;
}

static void bind_outputs(aril__thread *th, aril__node *n, int n_out, aril_tensor **out)
{
    for (int k = 0; k < n_out; k++)
        if (aril__is_float((aril_dtype)out[k]->dtype)) aril__bind(th, out[k], n, (uint32_t)k);
}

static aril_status attach(aril__thread *th, aril_ctx *c)
{
    aril__node *n = aril__node_new(th, &call_op, c->n_in, c->n_out,
                                   ARIL_CTX_SAVED + c->n_out + c->n_in, sizeof(struct call_attrs));
    if (!n) return ARIL_ERR_MEMORY;
    n->n_saved = 0;
    struct call_attrs *a = n->attrs;
    memset(a, 0, sizeof *a);
    a->f = c->f;
    join_edges(th, n, c->n_in, c->in);
    aril_status s = ARIL_OK;
    for (int k = 0; k < ARIL_CTX_SAVED && s == ARIL_OK; k++) {
        for (int o = 0; o < c->n_out && c->saved[k] && !a->slot_out[k]; o++)
            if (c->saved[k] == c->out[o]) a->slot_out[k] = (uint8_t)(1 + o);
        if (c->saved[k])
            s = save(th, n, a->slot_out[k] ? ARIL__SAVED_OUT : ARIL__SAVED_IN,
                     a->slot_out[k] ? a->slot_out[k] - 1 : k, c->saved[k]);
    }
    for (int o = 0; o < c->n_out && s == ARIL_OK; o++) {
        bool there = false;
        for (int k = 0; k < ARIL_CTX_SAVED; k++) there = there || a->slot_out[k] == 1 + o;
        if (!there) s = save(th, n, ARIL__SAVED_LIKE_OUT, o, c->out[o]);
    }
    for (int i = 0; i < c->n_in && s == ARIL_OK; i++) /* after the slots, to check gradients
                                                       * against */
        if (n->edge[i].node) s = save(th, n, ARIL__SAVED_LIKE, ARIL_CTX_SAVED + i, c->in[i]);
    if (s == ARIL_OK) bind_outputs(th, n, c->n_out, c->out);
    aril__node_release(th, n);
    return s;
}

static bool any_wants(int n, aril_tensor *const *in)
{
    for (int i = 0; i < n; i++)
        if (aril_requires_grad(in[i])) return true;
    return false;
}

static aril_status check_inputs(const char *what, int n, aril_tensor *const *in)
{
    for (int i = 0; i < n; i++) {
        if (!in[i]) return aril__fail(ARIL_ERR_ARG, "%s: input %d is NULL", what, i);
        if (in[i]->flags & ARIL__POISON) return aril__refuse_poison(what, i, in[i]);
    }
    return ARIL_OK;
}

static aril_status poison_all(aril_status s, int n, aril_tensor **out)
{
    aril__poison_all(n, out);
    return s;
}

/* A result that is an input, or that is returned twice, gets a new header to carry its node. In a
 * trace, a tensor from outside is not part of the gradient graph, but a view of it can be. */
static aril_status own_header(aril_ctx *c, int k)
{
    ARIL_NO_GRAD;
    const aril_tensor *of = c->out[k];
    bool outside = aril__self()->tracer && !(of->flags & (ARIL__SYMBOLIC | ARIL__NUMBER));
    bool shared = outside || of->node;
    for (int i = 0; i < c->n_in; i++) shared = shared || c->out[k] == c->in[i];
    for (int o = 0; o < k; o++) shared = shared || c->out[k] == c->out[o];
    if (shared)
        c->out[k] = outside ? aril_view(c->out[k], aril__shape(of)) : aril_detach(c->out[k]);
    return aril_tensor_status(c->out[k]);
}

aril_status aril_call_n(const aril_function *f, aril_list inputs, aril_tensor **out)
{
    aril__thread *th = aril__self();
    if (!out) return aril__fail(ARIL_ERR_ARG, "call: the array for the results is NULL");
    if (!f || !f->forward || f->outputs < 1 || f->outputs > ARIL__MAX_OUT)
        return poison_all(aril__fail(ARIL_ERR_ARG,
                                     "call: expected a function with forward and 1 to %d results",
                                     ARIL__MAX_OUT),
                          1, out);
    const char *name = f->name ? f->name : "call";
    if (inputs.n != f->inputs)
        return poison_all(aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d", name, inputs.n,
                                     f->inputs),
                          f->outputs, out);
    aril_status s = check_inputs(name, inputs.n, inputs.at);
    if (s < 0) return poison_all(s, f->outputs, out);
    bool wants = !th->mode.no_grad && f->backward && any_wants(inputs.n, inputs.at);
    aril_ctx c = { .f = f, .n_in = inputs.n, .n_out = f->outputs, .in = inputs.at };
    {
        ARIL_SCOPE;
        {
            ARIL_NO_GRAD;
            f->forward(&c);
        }
        s = c.status;
        for (int k = 0; k < c.n_out && s == ARIL_OK; k++) {
            if (!c.out[k])
                s = aril__fail(ARIL_ERR_STATE, "%s: forward did not set result %d", name, k);
            else if (aril_tensor_status(c.out[k]) < 0)
                s = aril_tensor_status(c.out[k]);
            else
                s = own_header(&c, k);
        }
        if (s == ARIL_OK && wants) s = attach(th, &c);
        for (int k = 0; k < c.n_out && s == ARIL_OK; k++) out[k] = aril_escape(c.out[k]);
    }
    return s < 0 ? poison_all(s, f->outputs, out) : ARIL_OK;
}

aril_tensor *aril_call(const aril_function *f, aril_list inputs)
{
    aril_tensor *out[ARIL__MAX_OUT];
    aril_call_n(f, inputs, out);
    return out[0];
}

/* ---- checkpoints ---- */

struct checkpoint_attrs {
    aril_fn *fn;
    void *ctx;
    int n_in, n_out;
    aril_generator generator; /* its state before forward, to reproduce dropout masks */
    uint16_t autocast;        /* of the forward pass */
    uint32_t keys;            /* of a defined graph before forward */
};

_Thread_local uint32_t aril__recomputation, aril__redrawn;

/* The number of random keys of the defined graph that an input is part of, before those that are
 * drawn now. */
static uint32_t count_keys(aril_list inputs)
{
    if (aril__redrawn) return aril__redrawn - 1;
    for (int i = 0; i < inputs.n; i++) {
        const aril_tensor *x = inputs.at[i];
        const aril__symbol *symbol = x->flags & ARIL__SYMBOLIC ? x->u.symbol : NULL;
        if (symbol && symbol->owner->tracer) return symbol->owner->tracer->keys;
    }
    return 0;
}

static void run_again(const struct checkpoint_attrs *a, aril_tensor *const *in, aril_tensor **out)
{
    static _Thread_local uint32_t last;
    aril__thread *th = aril__self();
    aril_generator now = th->generator;
    uint32_t outer = aril__recomputation, redrawn = aril__redrawn;
    aril__recomputation = ++last;
    aril__redrawn = 1 + a->keys;
    th->generator = a->generator;
    {
        ARIL_ENABLE_GRAD; /* restores the mode */
        th->mode.autocast = a->autocast;
        th->mode.region |= a->autocast != 0;
        a->fn(a->ctx, in, out);
    }
    th->generator = now;
    aril__recomputation = outer;
    aril__redrawn = redrawn;
}

static void checkpoint_vjp(aril__grad *c)
{
    const struct checkpoint_attrs *a = c->attrs;
    aril_tensor *out[ARIL__MAX_OUT] = { 0 }, *roots[ARIL__MAX_OUT], *starts[ARIL__MAX_OUT];
    aril_tensor *leaf[ARIL_CTX_SAVED], *wanted[ARIL_CTX_SAVED], *grads[ARIL_CTX_SAVED];
    int which[ARIL_CTX_SAVED], n_wanted = 0, n_roots = 0;
    bool again = !aril__self()->mode.no_grad; /* create_graph: the gradient will be
                                               * differentiated */
    bool leaves = !aril__backward_has_targets();
    for (int i = 0; i < a->n_in; i++) {
        leaf[i] = again ? c->x[i] : aril_detach(c->x[i]);
        if (again && leaves && c->wants[i]) /* a separate node, where the walk ends */
            leaf[i] = aril__op(&aril__op_copy, c->x[i]);
        if (!c->wants[i]) continue;
        if (!again) aril_set_requires_grad(leaf[i], true);
        which[n_wanted] = i;
        wanted[n_wanted++] = leaf[i];
    }
    run_again(a, leaf, out);
    for (int k = 0; k < a->n_out; k++) {
        if (!out[k] || aril_tensor_status(out[k]) < 0) goto failed;
        if (c->g[k] && out[k]->node) {
            roots[n_roots] = out[k];
            starts[n_roots++] = c->g[k];
        }
    }
    if (n_roots == 0) return;
    aril_grad_opts opts = { .create_graph = again, .allow_unused = true };
    if (again && leaves) {
        aril__target target[ARIL_CTX_SAVED];
        for (int i = 0; i < n_wanted; i++) {
            target[i] = (aril__target){ wanted[i]->node, wanted[i]->node_out };
            grads[i] = NULL;
        }
        aril_status s = ARIL_OK;
        for (int i = 0; i < n_wanted && s == ARIL_OK; i++) s = aril_tensor_status(wanted[i]);
        if (s == ARIL_OK)
            s = aril__backward_to(n_roots, roots, starts, n_wanted, target, grads, true, opts);
        for (int i = 0; i < n_wanted; i++)
            c->dx[which[i]] = grads[i] ? aril__give(aril__self(), grads[i]) : NULL;
        if (s < 0) goto failed;
    } else if (again || !leaves) {
        opts.grad_outputs = (aril_list){ n_roots, starts };
        if (aril_gradients_n((aril_list){ n_roots, roots }, (aril_list){ n_wanted, wanted }, grads,
                             opts) < 0)
            goto failed;
        for (int i = 0; i < n_wanted; i++) c->dx[which[i]] = grads[i];
    } else { /* parameters that the function captures get gradients too */
        if (aril__backward(n_roots, roots, starts, 0, NULL, NULL, opts) < 0) goto failed;
        for (int i = 0; i < n_wanted; i++)
            c->dx[which[i]] = aril_has_grad(wanted[i]) ? aril_grad(wanted[i]) : NULL;
    }
    return;
failed:
    for (int i = 0; i < a->n_in; i++)
        if (c->wants[i]) c->dx[i] = aril__poison();
}

static const aril__op checkpoint_op = { .name = "checkpoint",
                                        .attr_size = sizeof(struct checkpoint_attrs),
                                        .vjp = checkpoint_vjp };

aril_status aril_checkpoint(aril_fn *fn, void *ctx, aril_list inputs, int n_out, aril_tensor **out)
{
    aril__thread *th = aril__self();
    if (!out) return aril__fail(ARIL_ERR_ARG, "checkpoint: the array for the results is NULL");
    if (!fn || n_out < 1 || n_out > ARIL__MAX_OUT || inputs.n < 0 || inputs.n > ARIL_CTX_SAVED)
        return poison_all(
            aril__fail(ARIL_ERR_ARG,
                       "checkpoint: expected a function, 1 to %d results and at most %d inputs",
                       ARIL__MAX_OUT, ARIL_CTX_SAVED),
            n_out > 0 && n_out <= ARIL__MAX_OUT ? n_out : 1, out);
    aril_status s = check_inputs("checkpoint", inputs.n, inputs.at);
    if (s < 0) return poison_all(s, n_out, out);
    if (th->mode.no_grad || !any_wants(inputs.n, inputs.at)) {
        for (int k = 0; k < n_out; k++) out[k] = NULL;
        fn(ctx, inputs.at, out);
        for (int k = 0; k < n_out && s == ARIL_OK; k++)
            s = out[k] ? aril_tensor_status(out[k])
                       : aril__fail(ARIL_ERR_STATE,
                                    "checkpoint: the function did not set result %d", k);
        return s < 0 ? poison_all(s, n_out, out) : ARIL_OK;
    }
    struct checkpoint_attrs a = { .fn = fn,
                                  .ctx = ctx,
                                  .n_in = inputs.n,
                                  .n_out = n_out,
                                  .generator = th->generator,
                                  .autocast = th->mode.autocast,
                                  .keys = count_keys(inputs) };
    aril_ctx c = { .f = &(aril_function){ .name = "checkpoint" },
                   .n_in = inputs.n,
                   .n_out = n_out,
                   .in = inputs.at };
    ARIL_SCOPE;
    {
        ARIL_NO_GRAD;
        fn(ctx, inputs.at, c.out);
    }
    for (int k = 0; k < n_out && s == ARIL_OK; k++)
        s = !c.out[k]
                ? aril__fail(ARIL_ERR_STATE, "checkpoint: the function did not set result %d", k)
            : aril_tensor_status(c.out[k]) < 0 ? aril_tensor_status(c.out[k])
                                               : own_header(&c, k);
    aril__node *n =
        s < 0 ? NULL : aril__node_new(th, &checkpoint_op, inputs.n, n_out, inputs.n, sizeof a);
    if (n) {
        n->n_saved = 0;
        memcpy(n->attrs, &a, sizeof a);
        join_edges(th, n, inputs.n, inputs.at);
        for (int i = 0; i < inputs.n && s == ARIL_OK; i++)
            s = save(th, n, ARIL__SAVED_IN, i, inputs.at[i]);
        if (s == ARIL_OK) bind_outputs(th, n, n_out, c.out);
        aril__node_release(th, n);
    } else if (s == ARIL_OK) {
        s = ARIL_ERR_MEMORY;
    }
    for (int k = 0; k < n_out; k++) out[k] = aril_escape(s < 0 ? aril__poison() : c.out[k]);
    return s;
}
