#include "ops/reduce/stats.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

ATTR_LIST(reduce, REDUCE_ATTRS)

/* ==== logsumexp ==== */

/* Relative to the largest element, so that no exponential overflows. */
static double logsumexp_of(const aril_tensor *x, int64_t mask, int64_t i)
{
    int64_t n = aril__reduced_count(x, mask);
    double top = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n && !isnan(top); k++) {
        double v = aril__get(x, aril__reduced_at(x, mask, i, k));
        if (v > top || isnan(v)) top = v;
    }
    if (isinf(top) || isnan(top)) return top;
    for (int64_t k = 0; k < n; k++) sum += exp(aril__get(x, aril__reduced_at(x, mask, i, k)) - top);
    return top + log(sum);
}

static aril_status logsumexp_ref(aril__run *r)
{
    const struct reduce_attrs *a = r->attrs;
    for (int64_t i = 0; i < r->out[0]->numel; i++)
        aril__put(r->out[0], i, logsumexp_of(r->in[0], a->mask[0], i));
    return ARIL_OK;
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
   .max_in = 1, .n_out = 1, .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_COMPUTE,
   .infer = aril__reduce_infer_float, .ref = logsumexp_ref, .vjp = logsumexp_vjp,
   .saves = { IN(0) | OUT(0) }, .samples = logsumexp_samples, WITH_ATTRS(reduce));

/* ==== var, std, var_mean, std_mean ==== */

ATTR_LIST(stats, STATS_ATTRS)

/* The sum of squared differences from the mean, over n less the correction. */
static double variance_of(const aril_tensor *x, const struct stats_attrs *a, int64_t i,
                          double *mean)
{
    int64_t mask = a->mask[0], n = aril__reduced_count(x, mask);
    double sum = 0, squares = 0, left = (double)n - a->p[0];
    for (int64_t k = 0; k < n; k++) sum += aril__get(x, aril__reduced_at(x, mask, i, k));
    *mean = sum / (double)n;
    for (int64_t k = 0; k < n; k++) {
        double d = aril__get(x, aril__reduced_at(x, mask, i, k)) - *mean;
        squares += d * d;
    }
    return squares / (left > 0 ? left : 0);
}

static aril_status var_ref(aril__run *r)
{
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        double mean;
        aril__put(r->out[0], i, variance_of(r->in[0], r->attrs, i, &mean));
        if (r->n_out > 1) aril__put(r->out[1], i, mean);
    }
    return ARIL_OK;
}

static aril_status std_ref(aril__run *r)
{
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        double mean;
        aril__put(r->out[0], i, sqrt(variance_of(r->in[0], r->attrs, i, &mean)));
        if (r->n_out > 1) aril__put(r->out[1], i, mean);
    }
    return ARIL_OK;
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
static aril_tensor *std_gradient(aril__grad *c)
{
    aril_tensor *flat = aril_eq_scalar(c->y[0], 0);
    aril_tensor *y = aril_where(flat, aril_scalar(1), c->y[0]);
    aril_tensor *g = aril_div(c->g[0], aril_mul_scalar(y, 2));
    g = aril_where(flat, aril_scalar(0), g);
    return var_gradient(g, c->x[0], c->attrs);
}

VJP(std)
{
    if (c->g[0]) GRAD(0, std_gradient(c));
}

/* dx plus the gradient of the mean, the second result. */
static aril_tensor *add_mean_gradient(aril__grad *c, aril_tensor *dx)
{
    struct reduce_attrs own = axes_of(c->attrs);
    if (!c->g[1]) return dx;
    aril_tensor *g = aril__unreduce(aril__div_count(c->g[1], c->x[0], c->g[1], 0), &own);
    return dx ? aril_add(dx, g) : aril__expand_like(g, c->x[0]);
}

VJP(var_mean)
{
    aril_tensor *dx = c->g[0] ? var_gradient(c->g[0], c->x[0], c->attrs) : NULL;
    GRAD(0, add_mean_gradient(c, dx));
}

VJP(std_mean)
{
    GRAD(0, add_mean_gradient(c, c->g[0] ? std_gradient(c) : NULL));
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
OP(std_mean, .doc = "standard deviation and mean over axes", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = aril__reduce_infer_float, .ref = std_ref,
   .vjp = std_mean_vjp, .saves = { IN(0) | OUT(0) }, .samples = var_samples, WITH_ATTRS(stats));

/* ==== norm ==== */

static aril_status norm_infer(aril__call *c)
{
    const struct stats_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    for (int d = 0; d < x->ndim && (isinf(a->p[0]) || a->p[0] < 0); d++) {
        char text[ARIL__SHAPE_TEXT];
        if (a->mask[0] >> d & 1 && x->dim[d] == 0)
            return aril__fail(ARIL_ERR_SHAPE,
                              "norm: axis %d of %s is empty; an empty axis has no norm of order %g",
                              d, aril__text(text, x), a->p[0]);
    }
    return aril__reduce_infer_float(c);
}

/* Orders 0, inf and -inf are the limits: the number of nonzeros, the largest, the smallest. */
static double norm_of(const aril_tensor *x, int64_t mask, double p, int64_t i)
{
    int64_t n = aril__reduced_count(x, mask);
    double s = p == -INFINITY ? INFINITY : 0;
    for (int64_t k = 0; k < n; k++) {
        double v = fabs(aril__get(x, aril__reduced_at(x, mask, i, k)));
        if (isinf(p))
            s = isnan(s) ? s : isnan(v) || (p > 0 ? v > s : v < s) ? v : s;
        else
            s += p == 0 ? v != 0 : pow(v, p);
    }
    return p == 0 || isinf(p) ? s : pow(s, 1 / p);
}

static aril_status norm_ref(aril__run *r)
{
    const struct stats_attrs *a = r->attrs;
    for (int64_t i = 0; i < r->out[0]->numel; i++)
        aril__put(r->out[0], i, norm_of(r->in[0], a->mask[0], a->p[0], i));
    return ARIL_OK;
}

/* sign(x) (|x| / y)^(p-1) g, and 0 where x or y is 0. The quotient comes first: it is at most 1 for
 * p >= 1, where g / y may overflow. */
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
    g = aril_where(flat, zero, g);
    if (p == 2) {
        GRAD(0, aril_mul(g, aril_div(x, y)));
        return;
    }
    aril_tensor *ratio = aril_where(aril_eq_scalar(x, 0), one, aril_div(aril_abs(x), y));
    GRAD(0, aril_mul(g, aril_mul(aril_sign(x), aril_pow_scalar(ratio, p - 1))));
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
OP(norm, .doc = "p-norm over axes: (sum of |x|^p)^(1/p)", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_COMPUTE, .infer = norm_infer,
   .ref = norm_ref, .vjp = norm_vjp, .saves = { IN(0) | OUT(0) }, .samples = norm_samples,
   WITH_ATTRS(stats));

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

aril_tensor *aril_std_mean(aril_tensor *x, aril_axes axes, double correction, aril_tensor **mean)
{
    aril_tensor *out[ARIL__MAX_OUT];
    with_number(&aril__op_std_mean, x, axes, correction, out);
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
