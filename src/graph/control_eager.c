/* Control flow in eager mode: plain C. */
#include "graph/control.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/view.h"
#include "autograd/node.h"
#include "ops/table/op.h"

#include <stdlib.h>

aril_status aril__control_call(const char *what, aril_fn *fn, void *ctx, aril_tensor *const *in,
                               int n_out, aril_tensor **out)
{
    const aril__thread *th = aril__self();
    const aril__error *before = th->last_error;
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    fn(ctx, in, out);
    if (th->last_error != before && th->last_error) return th->last_error->code;
    for (int i = 0; i < n_out; i++) {
        if (!out[i])
            return aril__fail(ARIL_ERR_STATE, "%s: a function did not set result %d", what, i);
        if (out[i]->flags & ARIL__POISON) return aril_tensor_status(out[i]);
    }
    return ARIL_OK;
}

/* Whether a call since `mark` created the tensor and its memory, and only the scope has it. */
static bool is_new(const aril__thread *th, uint32_t mark, const aril_tensor *t)
{
    uint32_t i = th->n_owned;
    while (i > mark && th->owned[i - 1] != t) i--;
    if (i <= mark || atomic_load(&t->refs) != 1 || !t->storage || t->view) return false;
    if (atomic_load(&t->storage->refs) == 1) return true;
    const aril__op *op = t->node ? t->node->op : NULL; /* autograd has saved it */
    return op && !ARIL__IS_VIEW(op->out[t->node_out]) && !ARIL__IS_WRITE(op->out[t->node_out]);
}

/* Results are new values, as those of a graph: what existed before is copied. */
static aril_status renew(uint32_t mark, int n, aril_tensor **out)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        bool twice = false;
        for (int k = 0; k < i; k++) twice |= out[k]->storage == out[i]->storage;
        if (twice || !is_new(aril__self(), mark, out[i])) out[i] = aril_copy(out[i]);
        s = aril_tensor_status(out[i]);
    }
    return s;
}

aril_status aril__eager_cond(aril_tensor *pred, aril_fn *then_fn, aril_fn *else_fn, void *ctx,
                             aril_list in, int n_out, aril_tensor **out)
{
    bool yes = false;
    uint32_t mark = aril__self()->n_owned;
    aril_status s = aril__control_flag("cond", pred, &yes);
    if (s == ARIL_OK)
        s = aril__control_call("cond", yes ? then_fn : else_fn, ctx, in.at, n_out, out);
    return s == ARIL_OK ? renew(mark, n_out, out) : s;
}

/* The results of no trips: a trace of the body, which runs nothing, tells their shapes. */
static aril_status empty_results(const char *what, aril_fn *fn, void *ctx, aril_list in,
                                 int n_state, int n_ys, aril_tensor **ys)
{
    aril__meta meta[ARIL__MAX_OUT];
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status s = aril__control_shapes(what, fn, ctx, in, n_state, n_state + n_ys, meta);
    aril__error *why = aril__errors_end(&before);
    if (s < 0)
        aril__fail(s,
                   "%s: the sequences are empty, and a trace of the function does not tell the "
                   "shape of its results: %s",
                   what, why ? why->message : aril_status_text(s));
    aril__error_release(why);
    for (int i = 0; i < n_ys && s == ARIL_OK; i++) {
        const aril__meta *m = &meta[n_state + i];
        aril_shape shape = { .ndim = m->ndim + 1 };
        for (int d = 0; d < m->ndim && d + 1 < ARIL_MAX_DIMS; d++)
            shape.dim[d + 1] = m->dim[d] < 0 ? 0 : m->dim[d];
        ys[i] = aril_zeros(shape, m->dtype, aril_device_of(in.at[n_state]));
        s = aril_tensor_status(ys[i]);
    }
    return s;
}

/* aril_stack of the results of all trips, of which a node of autograd takes some at a time. */
static aril_tensor *stack_results(const char *what, size_t n, aril_tensor **y)
{
    enum { MOST = 32768 };
    if (n <= MOST) return aril_stack((aril_list){ (int)n, y }, 0);
    size_t n_parts = (n + MOST - 1) / MOST;
    if (n_parts > MOST) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: results of %zu steps, expected at most %d", what, n,
                   MOST * MOST);
        return aril__poison();
    }
    for (size_t i = 0; i < n_parts; i++) {
        size_t first = i * MOST;
        y[i] = aril_stack((aril_list){ (int)(n - first < MOST ? n - first : MOST), y + first }, 0);
    }
    return aril_cat((aril_list){ (int)n_parts, y }, 0);
}

aril_status aril__eager_scan(const char *what, aril_fn *fn, void *ctx, aril_list in, int n_state,
                             int n_ys, int64_t trips, aril_tensor **out)
{
    aril_tensor *arg[ARIL__CONTROL_ARGS], *step[ARIL__CONTROL_ARGS];
    uint32_t mark = aril__self()->n_owned;
    for (int i = 0; i < n_state; i++) out[i] = arg[i] = in.at[i];
    if (trips == 0) {
        aril_status s =
            n_ys ? empty_results(what, fn, ctx, in, n_state, n_ys, out + n_state) : ARIL_OK;
        return s == ARIL_OK ? renew(mark, n_state, out) : s;
    }
    size_t each = (size_t)trips;
    aril_tensor **ys = aril__malloc(((size_t)n_ys * each + 1) * sizeof *ys);
    if (!ys) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    aril_status s = ARIL_OK;
    for (int64_t k = 0; k < trips && s == ARIL_OK; k++) {
        for (int i = n_state; i < in.n; i++) arg[i] = aril_select(in.at[i], 0, k);
        s = aril__control_call(what, fn, ctx, arg, n_state + n_ys, step);
        if (s == ARIL_OK) s = aril__control_same(what, n_state, arg, step);
        for (int i = 0; i < n_state && s == ARIL_OK; i++) arg[i] = step[i];
        for (int i = 0; i < n_ys && s == ARIL_OK; i++)
            ys[(size_t)i * each + (size_t)k] = step[n_state + i];
    }
    for (int i = 0; i < n_state && s == ARIL_OK; i++) out[i] = arg[i];
    for (int i = 0; i < n_ys && s == ARIL_OK; i++) {
        out[n_state + i] = stack_results(what, each, ys + (size_t)i * each);
        s = aril_tensor_status(out[n_state + i]);
    }
    free(ys);
    return s == ARIL_OK ? renew(mark, n_state, out) : s;
}

aril_status aril__eager_while(aril_fn *const fn[2], void *ctx, aril_list in, int64_t max,
                              aril_tensor **out)
{
    aril_tensor *now[ARIL__CONTROL_ARGS], *next[ARIL__CONTROL_ARGS], *go[1];
    aril_status s = ARIL_OK;
    uint32_t mark = aril__self()->n_owned;
    for (int i = 0; i < in.n; i++) now[i] = in.at[i];
    for (int64_t k = 0; (max <= 0 || k < max) && s == ARIL_OK; k++) {
        bool yes = false;
        s = aril__control_call("while", fn[0], ctx, now, 1, go);
        if (s == ARIL_OK) s = aril__control_flag("while", go[0], &yes);
        if (s < 0 || !yes) break;
        s = aril__control_call("while", fn[1], ctx, now, in.n, next);
        if (s == ARIL_OK) s = aril__control_same("while", in.n, now, next);
        for (int i = 0; i < in.n && s == ARIL_OK; i++) now[i] = next[i];
    }
    for (int i = 0; i < in.n; i++) out[i] = now[i];
    return s == ARIL_OK ? renew(mark, in.n, out) : s;
}
