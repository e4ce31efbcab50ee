#include "ops/stats.h"

#include "aril/ops.h"
#include "ops/apply.h"
#include "ops/like.h"
#include "ops/reduce.h"
#include "ops/reduce_loop.h"
#include "ops/sample.h"

#include <math.h>
#include <string.h>

ATTR_LIST(reduce, REDUCE_ATTRS)

/* ---- logsumexp: the largest so far in plane 0, the sum of exp(x - largest) in plane 1 ---- */

static void lse_start(const aril__reduce_params *p, void *state, int64_t plane, int64_t m,
                      int64_t at)
{
    (void)p, (void)at;
    double *top = state, *sum = top + plane;
    for (int64_t i = 0; i < m; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
    }
}

/* (top, sum) takes `s` times exp(v). */
static void lse_take(double *top, double *sum, double v, double s)
{
    if (v == -INFINITY) return;
    if (v <= *top) {
        *sum += v == *top ? s : s * exp(v - *top);
    } else { /* a new largest, or NaN */
        *sum = (*sum == 0 ? 0 : *sum * exp(*top - v)) + s;
        *top = v;
    }
}

static void lse_across(const aril__reduce_params *p, void *state, int64_t plane, const void *from,
                       int64_t m, int64_t at)
{
    (void)p, (void)at;
    double *top = state, *sum = top + plane;
    for (int64_t i = 0; i < m; i++) lse_take(&top[i], &sum[i], ((const double *)from)[i], 1);
}

static void lse_along(const aril__reduce_params *p, void *state, int64_t plane, const void *from,
                      int64_t n, int64_t at)
{
    (void)p, (void)at;
    const double *x = from;
    double *top = state, most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = x[i] > most || x[i] != x[i] ? x[i] : most;
    if (isinf(most)) {
        for (int64_t i = 0; i < n; i++) sum += x[i] == most;
    } else {
        for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    }
    lse_take(top, top + plane, most, sum);
}

static void lse_merge(const aril__reduce_params *p, void *state, int64_t plane, const void *later,
                      int64_t later_plane, int64_t m)
{
    (void)p;
    double *top = state;
    const double *x = later;
    for (int64_t i = 0; i < m; i++) lse_take(&top[i], &top[plane + i], x[i], x[later_plane + i]);
}

static void lse_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)p;
    double *top = state;
    for (int64_t i = 0; i < m; i++) top[i] = isinf(top[i]) ? top[i] : top[i] + log(top[plane + i]);
}

static const aril__reducer lse = { 2,          ARIL__C_F64, { ARIL__C_F64 }, lse_start,
                                   lse_across, lse_along,   lse_merge,       lse_finish };

static aril_status logsumexp_ref(aril__run *r)
{
    const struct reduce_attrs *a = r->attrs;
    return aril__reduce_run(&lse, (aril__reduce_params){ 0 }, r->in[0], (unsigned)a->mask[0], 1,
                            r->out);
}

/* g * exp(x - y); where y is -inf all of x is, and x - 0 stands for x - y. */
VJP(logsumexp)
{
    if (!c->g[0]) return;
    aril_tensor *y = aril__unreduce(c->y[0], c->attrs), *g = aril__unreduce(c->g[0], c->attrs);
    y = aril_where(aril_eq_scalar(y, -INFINITY), aril_scalar(0.0), y);
    GRAD(0, aril_mul(g, aril_exp(aril_sub(c->x[0], y))));
}

static const aril__sample logsumexp_samples[] = {
    { .in = { "[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 7 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 5 }, .keep = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct reduce_attrs){ .mask = { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 2 } } },
    SAMPLE_END
};
OP(logsumexp, .doc = "log(sum(exp(x))) over axes", .onnx = "ReduceLogSumExp", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED, .types = DT_COMPUTE,
   .infer = aril__reduce_infer_float, .ref = logsumexp_ref, .vjp = logsumexp_vjp,
   .saves = { IN(0) | OUT(0) }, .samples = logsumexp_samples, WITH_ATTRS(reduce));

aril_tensor *aril_logsumexp(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_logsumexp, x, axes);
}
