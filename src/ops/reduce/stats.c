#include "ops/reduce/stats.h"

#include "aril/ops.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_loop.h"
#include "ops/table/sample.h"
#include "ops/vector/targets.h"
#include "ops/vector/vecmath.h"

#include <math.h>
#include <string.h>

ATTR_LIST(reduce, REDUCE_ATTRS)

/* ==== states ==== */

/* ---- logsumexp: the running maximum in plane 0, the sum of exp(x - maximum) in plane 1 ---- */

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

/* Adds `s` times exp(v) to (top, sum). */
static void lse_take(double *top, double *sum, double v, double s)
{
    if (v == -INFINITY || isnan(*top)) return;
    if (v <= *top) {
        *sum += v == *top ? s : s * exp(v - *top);
    } else { /* a new maximum, or NaN */
        *sum = (*sum == 0 ? 0 : *sum * exp(*top - v)) + s;
        *top = v;
    }
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

/* ---- var, std, var_mean: count, mean and sum of squared differences in planes 0, 1, 2 ---- */

static void var_start(const aril__reduce_params *p, void *state, int64_t plane, int64_t m,
                      int64_t at)
{
    (void)p, (void)at;
    for (int k = 0; k < 3; k++) memset((double *)state + k * plane, 0, (size_t)m * sizeof(double));
}

/* Merges a group of n elements with its own mean and sum of squares into the state. */
static void var_join(double *s, int64_t plane, double n, double mean, double squares)
{
    double total = s[0] + n, d = mean - s[plane];
    if (n == 0) return;
    s[plane] += d * (n / total);
    s[2 * plane] += squares + d * d * (s[0] * n / total);
    s[0] = total;
}

static void var_merge(const aril__reduce_params *p, void *state, int64_t plane, const void *later,
                      int64_t later_plane, int64_t m)
{
    (void)p;
    const double *x = later;
    for (int64_t i = 0; i < m; i++)
        var_join((double *)state + i, plane, x[i], x[later_plane + i], x[2 * later_plane + i]);
}

static void var_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    double *s = state, n = (double)p->count - p->p;
    for (int64_t i = 0; i < m; i++) {
        s[i] = s[2 * plane + i] / (n > 0 ? n : 0);
        if (p->count == 0) s[plane + i] = NAN;
    }
}

static void std_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    double *s = state;
    var_finish(p, state, plane, m);
    for (int64_t i = 0; i < m; i++) s[i] = sqrt(s[i]);
}

/* ---- norm ---- */

static void norm_start(const aril__reduce_params *p, void *state, int64_t plane, int64_t m,
                       int64_t at)
{
    (void)plane, (void)at;
    for (int64_t i = 0; i < m; i++) ((double *)state)[i] = p->p == -INFINITY ? INFINITY : 0;
}

static double norm_more(double p, double s, double x)
{
    if (p == INFINITY) return x > s || x != x ? x : s;
    if (p == -INFINITY) return x < s || x != x ? x : s;
    return s + x;
}

static void norm_merge(const aril__reduce_params *p, void *state, int64_t plane, const void *later,
                       int64_t later_plane, int64_t m)
{
    (void)plane, (void)later_plane;
    double *s = state;
    for (int64_t i = 0; i < m; i++) s[i] = norm_more(p->p, s[i], ((const double *)later)[i]);
}

static void norm_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)plane;
    double *s = state;
    if (p->p == 0 || p->p == 1 || isinf(p->p)) return;
    for (int64_t i = 0; i < m; i++) s[i] = p->p == 2 ? sqrt(s[i]) : pow(s[i], 1 / p->p);
}

/* ==== accumulation of elements, by type and target ==== */

enum {
    STRETCH = 2048, /* elements that share one center, */
    ROWS = 256,     /* and rows of them */
    SIDE = 8,       /* rows whose exponentials share one maximum */
};

#define TEMPLATE "ops/reduce/stats_real.inc"
#include "ops/vector/each_target.inc"
#define WIDE(r) ((r)->in[0]->dtype == ARIL_F64)

/* ==== logsumexp ==== */

static aril_status logsumexp_ref(aril__run *r)
{
    const struct reduce_attrs *a = r->attrs;
    return aril__reduce_run(ARIL__PICK(&lse, WIDE(r)), (aril__reduce_params){ 0 }, r->in[0],
                            (unsigned)a->mask[0], 1, r->out);
}

/* g * exp(x - y); where y is -inf, so is all of x: use x - 0 instead of x - y. */
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

/* ==== var, std, var_mean ==== */

ATTR_LIST(stats, STATS_ATTRS)

static aril_status var_ref(aril__run *r)
{
    const struct stats_attrs *a = r->attrs;
    return aril__reduce_run(ARIL__PICK(&variance, WIDE(r)), (aril__reduce_params){ .p = a->p[0] },
                            r->in[0], (unsigned)a->mask[0], r->n_out, r->out);
}

static aril_status std_ref(aril__run *r)
{
    const struct stats_attrs *a = r->attrs;
    return aril__reduce_run(ARIL__PICK(&deviation, WIDE(r)), (aril__reduce_params){ .p = a->p[0] },
                            r->in[0], (unsigned)a->mask[0], 1, r->out);
}

static struct reduce_attrs axes_of(const struct stats_attrs *a)
{
    return (struct reduce_attrs){ { a->mask[0] }, { a->keep[0] } };
}

/* 2 g (x - mean) / (n - correction) */
static aril_tensor *var_gradient(aril_tensor *g, aril_tensor *x, const struct stats_attrs *a)
{
    struct reduce_attrs own = axes_of(a), keep = { { a->mask[0] }, { 1 } };
    aril_tensor *centred = aril_sub(x, aril__op_with(&keep, &aril__op_mean, x));
    aril_tensor *each = aril__div_count(aril_mul_scalar(g, 2), x, g, a->p[0]);
    return aril_mul(aril__unreduce(each, &own), centred);
}

VJP(var)
{
    if (c->g[0]) GRAD(0, var_gradient(c->g[0], c->x[0], c->attrs));
}

/* The gradient is 0 where the standard deviation is 0. */
VJP(std)
{
    if (!c->g[0]) return;
    aril_tensor *flat = aril_eq_scalar(c->y[0], 0);
    aril_tensor *y = aril_where(flat, aril_scalar(1), c->y[0]);
    aril_tensor *g = aril_div(c->g[0], aril_mul_scalar(y, 2));
    g = aril_where(flat, aril_scalar(0), g);
    GRAD(0, var_gradient(g, c->x[0], c->attrs));
}

VJP(var_mean)
{
    struct reduce_attrs own = axes_of(c->attrs);
    aril_tensor *dx = NULL;
    if (c->g[0]) dx = var_gradient(c->g[0], c->x[0], c->attrs);
    if (c->g[1]) {
        aril_tensor *g = aril__unreduce(aril__div_count(c->g[1], c->x[0], c->g[1], 0), &own);
        dx = dx ? aril_add(dx, g) : aril__expand_like(g, c->x[0]);
    }
    GRAD(0, dx);
}

static const aril__sample var_samples[] = {
    { .in = { "[2,3,4]" }, .attrs = &(const struct stats_attrs){ .mask = { 7 }, .p = { 1 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct stats_attrs){ .mask = { 5 }, .keep = { 1 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { 1 } } },
    SAMPLE_END
};
OP(var, .doc = "variance over axes", .min_in = 1, .max_in = 1, .n_out = 1, .flags = STRIDED,
   .types = DT_COMPUTE, .infer = aril__reduce_infer_float, .ref = var_ref, .vjp = var_vjp,
   .saves = { IN(0) }, .samples = var_samples, WITH_ATTRS(stats));
OP(std, .doc = "standard deviation over axes", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = aril__reduce_infer_float, .ref = std_ref,
   .vjp = std_vjp, .saves = { IN(0) | OUT(0) }, .samples = var_samples, WITH_ATTRS(stats));
OP(var_mean, .doc = "variance and mean over axes", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = aril__reduce_infer_float, .ref = var_ref,
   .vjp = var_mean_vjp, .saves = { IN(0) }, .samples = var_samples, WITH_ATTRS(stats));

/* ==== norm ==== */

static aril_status norm_infer(aril__call *c)
{
    const struct stats_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    for (int d = 0; d < x->ndim && (isinf(a->p[0]) || a->p[0] < 0); d++) {
        char text[ARIL__SHAPE_TEXT];
        if (a->mask[0] >> d & 1 && x->dim[d] == 0)
            return aril__fail(ARIL_ERR_SHAPE,
                              "norm: axis %d of %s has no elements, and nothing has no norm of "
                              "order %g",
                              d, aril__text(text, x), a->p[0]);
    }
    return aril__reduce_infer_float(c);
}

static aril_status norm_ref(aril__run *r)
{
    const struct stats_attrs *a = r->attrs;
    return aril__reduce_run(ARIL__PICK(&norm, WIDE(r)), (aril__reduce_params){ .p = a->p[0] },
                            r->in[0], (unsigned)a->mask[0], 1, r->out);
}

/* sign(x) |x|^(p-1) y^(1-p) g, and 0 where x or y is 0. */
VJP(norm)
{
    const struct stats_attrs *a = c->attrs;
    double p = a->p[0];
    if (!c->g[0]) return;
    struct reduce_attrs own = axes_of(a), keep = { { a->mask[0] }, { 1 } };
    aril_tensor *x = c->x[0], *zero = aril_scalar(0), *one = aril_scalar(1);
    aril_tensor *g = aril__unreduce(c->g[0], &own), *y = aril__unreduce(c->y[0], &own);
    if (p == 0) {
        GRAD(0, aril_zeros_like(x));
        return;
    }
    if (p == 1) {
        GRAD(0, aril_mul(aril_sign(x), g));
        return;
    }
    if (isinf(p)) { /* equal elements share the gradient */
        aril_tensor *hit = aril_cast(aril_eq(aril_abs(x), y), (aril_dtype)g->dtype);
        aril_tensor *hits = aril__op_with(&keep, &aril__op_sum, hit);
        GRAD(0, aril_mul(aril_mul(aril_sign(x), hit), aril_div(g, hits)));
        return;
    }
    aril_tensor *flat = aril_eq_scalar(y, 0);
    y = aril_where(flat, one, y);
    if (p == 2) {
        GRAD(0, aril_mul(x, aril_where(flat, zero, aril_div(g, y))));
        return;
    }
    aril_tensor *size = aril_where(aril_eq_scalar(x, 0), one, aril_abs(x));
    aril_tensor *slope = aril_mul(aril_sign(x), aril_pow_scalar(size, p - 1));
    aril_tensor *scale = aril_mul(g, aril_pow_scalar(y, 1 - p));
    GRAD(0, aril_mul(slope, aril_where(flat, zero, scale)));
}

static const aril__sample norm_samples[] = {
    { .in = { "z[2,3,4]" }, .attrs = &(const struct stats_attrs){ .mask = { 7 }, .p = { 2 } } },
    { .in = { "z[2,3,4]" },
      .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "z[2,3]" },
      .attrs = &(const struct stats_attrs){ .mask = { 1 }, .keep = { 1 }, .p = { 1 } } },
    { .in = { "z[2,3]" }, .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { 3 } } },
    { .in = { "z[2,3]" }, .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { 0.5 } } },
    { .in = { "z[2,3]" },
      .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { 0 } },
      .flags = SAMPLE_NO_GRAD },
    { .in = { "1[2,3]" },
      .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { INFINITY } } },
    { .in = { "1[2,3]" },
      .attrs = &(const struct stats_attrs){ .mask = { 2 }, .p = { -INFINITY } } },
    { .in = { "[0,3]" }, .attrs = &(const struct stats_attrs){ .mask = { 1 }, .p = { 2 } } },
    SAMPLE_END
};
OP(norm, .doc = "(sum of |x|^p) to the power 1/p over axes", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = norm_infer, .ref = norm_ref, .vjp = norm_vjp,
   .saves = { IN(0) | OUT(0) }, .samples = norm_samples, WITH_ATTRS(stats));

/* ---- public ---- */

aril_tensor *aril_logsumexp(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_logsumexp, x, axes);
}

/* Returns the first result; out[] receives all of them. */
static aril_tensor *with_number(const aril__op *op, aril_tensor *x, aril_axes axes, double p,
                                aril_tensor **out)
{
    struct reduce_attrs r;
    if (aril__reduce_attrs(op->name, x, axes, &r) < 0) {
        aril__poison_all(2, out);
        return out[0];
    }
    struct stats_attrs a = { { r.mask[0] }, { r.keep[0] }, { p } };
    aril__apply(op, 1, &x, &a, out);
    return out[0];
}

aril_tensor *aril_var(aril_tensor *x, aril_axes axes, double correction)
{
    aril_tensor *out[ARIL__MAX_OUT];
    return with_number(&aril__op_var, x, axes, correction, out);
}

aril_tensor *aril_std(aril_tensor *x, aril_axes axes, double correction)
{
    aril_tensor *out[ARIL__MAX_OUT];
    return with_number(&aril__op_std, x, axes, correction, out);
}

aril_tensor *aril_var_mean(aril_tensor *x, aril_axes axes, double correction, aril_tensor **mean)
{
    aril_tensor *out[ARIL__MAX_OUT];
    with_number(&aril__op_var_mean, x, axes, correction, out);
    if (mean) *mean = out[1];
    return out[0];
}

aril_tensor *aril_norm(aril_tensor *x, aril_axes axes, double p)
{
    aril_tensor *out[ARIL__MAX_OUT];
    return with_number(&aril__op_norm, x, axes, p, out);
}

aril_tensor *aril_nansum(aril_tensor *x, aril_axes axes)
{
    return aril_sum(aril_where(aril_isnan(x), aril_scalar(0), x), axes);
}

aril_tensor *aril_nanmean(aril_tensor *x, aril_axes axes)
{
    ARIL_SCOPE;
    aril_tensor *sum = aril_nansum(x, axes);
    aril_tensor *n = aril_sum(aril_logical_not(aril_isnan(x)), axes);
    return aril_escape(aril_div(sum, n));
}
