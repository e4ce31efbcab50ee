/* Per-sample normalization: layer, RMS, group and instance norm. */
#include "ops/norm/norm.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"

#include <math.h>

/* ---- references ---- */

/* Statistics are over rows of n elements, consecutive in row-major order; element i has the weight
 * and bias i / inner % params. */
typedef struct layout {
    int64_t n, inner, params;
} layout;

static layout layout_of_axes(const aril_tensor *x, int64_t axes)
{
    int64_t n = aril__count((int)axes, x->dim + x->ndim - axes);
    return (layout){ .n = n, .inner = 1, .params = n };
}

static layout layout_of_groups(const aril_tensor *x, const struct group_norm_attrs *a)
{
    int64_t inner = aril__count(x->ndim - 2, x->dim + 2), groups = aril__groups_of(a, x);
    int64_t n = groups ? x->dim[1] / groups * inner : 0;
    return (layout){ .n = n, .inner = inner, .params = x->dim[1] };
}

/* y = (x - mean) * invstd * weight + bias; without a mean in RMS norm, where it is NULL. */
static void normalize(const aril_tensor *x, const aril_tensor *weight, const aril_tensor *bias,
                      double eps, layout l, aril_tensor *y, aril_tensor *mean, aril_tensor *invstd)
{
    double n = l.n ? (double)l.n : 1;
    for (int64_t row = 0; row < invstd->numel; row++) {
        int64_t begin = row * l.n, end = begin + l.n;
        double sum = 0, squares = 0;
        for (int64_t i = begin; i < end && mean; i++) sum += aril__get(x, i);
        double m = sum / n;
        for (int64_t i = begin; i < end; i++) {
            double d = aril__get(x, i) - m;
            squares += d * d;
        }
        double s = 1 / sqrt(squares / n + eps);
        for (int64_t i = begin; i < end; i++) {
            int64_t p = i / l.inner % l.params;
            double xhat = (aril__get(x, i) - m) * s;
            aril__put(y, i, xhat * aril__param_at(weight, p, 1) + aril__param_at(bias, p, 0));
        }
        if (mean) aril__put(mean, row, m);
        aril__put(invstd, row, s);
    }
}

/* What the gradient is computed from; mean NULL: RMS norm. */
typedef struct given {
    const aril_tensor *g, *x, *weight, *mean, *invstd;
    layout l;
} given;

static double xhat_at(const given *v, int64_t i)
{
    int64_t row = i / v->l.n;
    double mean = v->mean ? aril__get(v->mean, row) : 0;
    return (aril__get(v->x, i) - mean) * aril__get(v->invstd, row);
}

static double weighted_at(const given *v, int64_t i)
{
    return aril__get(v->g, i) * aril__param_at(v->weight, i / v->l.inner % v->l.params, 1);
}

/* With h = g * weight: dx = invstd * (h - mean(h) - xhat * mean(h * xhat)), without mean(h) in RMS
 * norm. */
static void normalize_grad(const given *v, aril_tensor *dx)
{
    double n = (double)v->l.n;
    for (int64_t row = 0; row < v->invstd->numel; row++) {
        int64_t begin = row * v->l.n, end = begin + v->l.n;
        double sum = 0, dot = 0, s = aril__get(v->invstd, row);
        for (int64_t i = begin; i < end; i++) {
            if (v->mean) sum += weighted_at(v, i);
            dot += weighted_at(v, i) * xhat_at(v, i);
        }
        for (int64_t i = begin; i < end; i++)
            aril__put(dx, i, s * (weighted_at(v, i) - sum / n - xhat_at(v, i) * dot / n));
    }
}

/* dweight = sum g * xhat and dbias = sum g, over all elements with that weight and bias. */
static void param_grads(const given *v, aril_tensor *dweight, aril_tensor *dbias)
{
    layout l = v->l;
    for (int64_t p = 0; p < l.params; p++) {
        double dot = 0, sum = 0;
        for (int64_t k = 0; k < v->x->numel / l.params; k++) {
            int64_t i = (k / l.inner * l.params + p) * l.inner + k % l.inner;
            dot += aril__get(v->g, i) * xhat_at(v, i);
            sum += aril__get(v->g, i);
        }
        aril__put(dweight, p, dot);
        if (dbias) aril__put(dbias, p, sum);
    }
}

/* ---- shapes ---- */

static void like(aril__meta *o, const aril_tensor *t, aril_dtype dtype)
{
    o->dtype = dtype;
    o->ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++) o->dim[d] = t->dim[d];
}

/* Statistics: the shape of x with the last `axes` sizes set to 1. */
static void like_stats(aril__meta *o, const aril_tensor *x, int64_t axes)
{
    like(o, x, aril__stat_dtype(x));
    for (int d = x->ndim - (int)axes; d < x->ndim; d++) o->dim[d] = 1;
}

/* Parameters: the last `axes` sizes of x. */
static void like_params(aril__meta *o, const aril_tensor *x, int64_t axes)
{
    o->dtype = aril__stat_dtype(x);
    o->ndim = (int)axes;
    for (int d = 0; d < axes; d++) o->dim[d] = x->dim[x->ndim - axes + d];
}

static aril_status check_axes(const aril__call *c, const aril_tensor *x, int64_t axes)
{
    char text[ARIL__SHAPE_TEXT];
    if (axes < 1 || axes > x->ndim)
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s does not have %lld dimensions to normalize over",
                          c->op->name, aril__text(text, x), (long long)axes);
    return ARIL_OK;
}

static aril_status check_param(const aril__call *c, int i, const char *name, int64_t axes)
{
    const aril_tensor *x = c->in[0], *p = i < c->n_in ? c->in[i] : NULL;
    if (!p) return ARIL_OK;
    bool fits = p->ndim == axes;
    for (int d = 0; d < axes && fits; d++)
        fits = aril__size_fits(p->dim[d], x->dim[x->ndim - axes + d]);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s is %s, expected the last %lld sizes of %s",
                          c->op->name, name, aril__text(a, p), (long long)axes, aril__text(b, x));
    if (p->dtype != x->dtype && p->dtype != aril__stat_dtype(x))
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s is %s, expected %s like the input", c->op->name,
                          name, aril__dtypes[p->dtype].name, aril__dtypes[x->dtype].name);
    return ARIL_OK;
}

/* x summed over all but its last `axes` dimensions. */
static aril_tensor *sum_lead(aril_tensor *x, int64_t axes)
{
    if (x->ndim < axes) return x; /* poison has no dimensions */
    struct reduce_attrs a = { .mask = { (1 << (x->ndim - axes)) - 1 } };
    return a.mask[0] ? aril__op_with(&a, &aril__op_sum, x) : x;
}

static aril_tensor *cast_like(aril_tensor *x, const aril_tensor *of)
{
    return aril_cast(x, (aril_dtype)of->dtype);
}

/* The gradient of x through the statistics, which broadcast to it:
 *     g_mean / n - g_invstd * invstd^3 * (x - mean) / n                          (mean NULL: 0) */
static aril_tensor *stats_vjp(aril_tensor *x, aril_tensor *mean, aril_tensor *s,
                              aril_tensor *g_mean, aril_tensor *g_s)
{
    aril_tensor *wide = cast_like(x, s), *sum = NULL;
    aril_tensor *count = aril__count_like(wide, s);
    if (g_mean) sum = aril__expand_like(aril_div(g_mean, count), x);
    if (g_s) {
        aril_tensor *k = aril_neg(aril_div(aril_mul(g_s, aril_mul(aril_square(s), s)), count));
        aril_tensor *part = aril_mul(mean ? aril_sub(wide, mean) : wide, k);
        sum = sum ? aril_add(sum, part) : part;
    }
    return cast_like(sum, x);
}

/* ---- layer_norm_grad ---- */

ATTR_LIST(layer_norm, LAYER_NORM_ATTRS)

/* in: g, x, weight?, mean, invstd; out: dx, dweight, dbias */
static aril_status layer_norm_grad_infer(aril__call *c)
{
    const struct layer_norm_attrs *a = c->attrs;
    const aril_tensor *x = c->in[1];
    aril_status s = check_axes(c, x, a->axes[0]);
    if (s < 0) return s;
    like(&c->out[0], x, (aril_dtype)x->dtype);
    like_params(&c->out[1], x, a->axes[0]);
    like_params(&c->out[2], x, a->axes[0]);
    return ARIL_OK;
}

static aril_status layer_norm_grad_ref(aril__run *r)
{
    int64_t axes = ((const struct layer_norm_attrs *)r->attrs)->axes[0];
    given v = { r->in[0], r->in[1], r->in[2], r->in[3], r->in[4], layout_of_axes(r->in[1], axes) };
    normalize_grad(&v, r->out[0]);
    param_grads(&v, r->out[1], r->out[2]);
    return ARIL_OK;
}

static void layer_norm_grad_decompose(aril__call *c, aril_tensor **out)
{
    int64_t axes = ((const struct layer_norm_attrs *)c->attrs)->axes[0];
    aril_tensor *mean = c->in[3], *s = c->in[4];
    aril_tensor *g = cast_like(c->in[0], s), *x = cast_like(c->in[1], s);
    aril_tensor *xhat = aril_mul(aril_sub(x, mean), s);
    aril_tensor *h = c->in[2] ? aril_mul(g, cast_like(c->in[2], s)) : g;
    aril_tensor *count = aril__count_like(x, s);
    aril_tensor *a = aril_div(aril__sum_to_like(h, s), count);
    aril_tensor *b = aril_div(aril__sum_to_like(aril_mul(h, xhat), s), count);
    out[0] = cast_like(aril_mul(s, aril_sub(aril_sub(h, a), aril_mul(xhat, b))), c->in[1]);
    out[1] = sum_lead(aril_mul(g, xhat), axes);
    out[2] = sum_lead(g, axes);
}

static const struct layer_norm_attrs layer_norm_default = { { 1 }, { 1e-5 } };
static const struct layer_norm_attrs layer_norm_two = { { 2 }, { 1e-5 } };
static const aril__sample layer_norm_grad_samples[] = {
    { .in = { "[2,3,4]", "[2,3,4]", "+[4]", "[2,3,1]", "+[2,3,1]" },
      .attrs = &layer_norm_default,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,3,4]", "-", "[2,1,1]", "+[2,1,1]" }, .attrs = &layer_norm_two },
    { .in = { "[0,4]", "[0,4]", "+[4]", "[0,1]", "+[0,1]" }, .attrs = &layer_norm_default },
    SAMPLE_END
};
OP(layer_norm_grad, .doc = "gradient of layer_norm with respect to x, weight and bias", .min_in = 5,
   .max_in = 5, .n_out = 3, .flags = GRADIENT | STRIDED, .optional = IN(2), .types = DT_FLOAT,
   .infer = layer_norm_grad_infer, .ref = layer_norm_grad_ref,
   .decompose = layer_norm_grad_decompose, .samples = layer_norm_grad_samples,
   WITH_ATTRS(layer_norm));

/* ---- layer_norm ---- */

/* in: x, weight?, bias?; out: y, mean, 1 / sqrt(var + eps) */
static aril_status layer_norm_infer(aril__call *c)
{
    const struct layer_norm_attrs *a = c->attrs;
    aril_status s = check_axes(c, c->in[0], a->axes[0]);
    if (s < 0 || (s = check_param(c, 1, "weight", a->axes[0])) < 0 ||
        (s = check_param(c, 2, "bias", a->axes[0])) < 0)
        return s;
    like(&c->out[0], c->in[0], (aril_dtype)c->in[0]->dtype);
    like_stats(&c->out[1], c->in[0], a->axes[0]);
    like_stats(&c->out[2], c->in[0], a->axes[0]);
    return ARIL_OK;
}

static aril_status layer_norm_ref(aril__run *r)
{
    const struct layer_norm_attrs *a = r->attrs;
    normalize(r->in[0], r->in[1], r->in[2], a->eps[0], layout_of_axes(r->in[0], a->axes[0]),
              r->out[0], r->out[1], r->out[2]);
    return ARIL_OK;
}

VJP(layer_norm)
{
    int64_t axes = ((const struct layer_norm_attrs *)c->attrs)->axes[0];
    aril_tensor *dx = NULL;
    if (c->g[0] && (c->wants[0] || c->wants[1])) {
        aril_tensor *out[3],
            *in[5] = { c->g[0], c->x[0], c->wants[0] ? c->x[1] : NULL, c->y[1], c->y[2] };
        aril__apply(&aril__op_layer_norm_grad, 5, in, c->attrs, out);
        dx = out[0];
        GRAD(1, cast_like(out[1], c->x[1]));
        GRAD(2, cast_like(out[2], c->x[2]));
    } else if (c->g[0] && c->wants[2]) {
        aril_tensor *g = aril_cast(c->g[0], aril__stat_dtype(c->g[0]));
        c->dx[2] = cast_like(sum_lead(g, axes), c->x[2]);
    }
    if (c->wants[0] && (c->g[1] || c->g[2])) {
        aril_tensor *more = stats_vjp(c->x[0], c->y[1], c->y[2], c->g[1], c->g[2]);
        dx = dx ? aril_add(dx, more) : more;
    }
    if (dx) GRAD(0, dx);
}

static const aril__sample layer_norm_samples[] = {
    { .in = { "[4,5]", "+[5]", "[5]" }, .attrs = &layer_norm_default, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "-", "-" }, .attrs = &layer_norm_two },
    { .in = { "[2,3,4]", "+[3,4]", "-" },
      .attrs = &(const struct layer_norm_attrs){ { 2 }, { 0.1 } } },
    { .in = { "[3,4]", "-", "[3,4]" }, .attrs = &layer_norm_two },
    { .in = { "[0,3]", "+[3]", "[3]" }, .attrs = &layer_norm_default },
    SAMPLE_END
};
OP(layer_norm, .doc = "layer normalization over the last dimensions", .onnx = "LayerNormalization",
   .min_in = 3, .max_in = 3, .n_out = 3, .cast = CAST_F32_IN_F16, .flags = STRIDED,
   .optional = IN(1) | IN(2), .types = DT_FLOAT, .infer = layer_norm_infer, .ref = layer_norm_ref,
   .vjp = layer_norm_vjp,
   .saves = { IN(0) | IN(1) | OUT(1) | OUT(2), IN(0) | LIKE(1) | OUT(1) | OUT(2), LIKE(2) },
   .samples = layer_norm_samples, WITH_ATTRS(layer_norm));

/* ---- rms_norm_grad ---- */

ATTR_LIST(rms_norm, RMS_NORM_ATTRS)

/* in: g, x, weight?, invrms; out: dx, dweight */
static aril_status rms_norm_grad_infer(aril__call *c)
{
    const struct rms_norm_attrs *a = c->attrs;
    const aril_tensor *x = c->in[1];
    aril_status s = check_axes(c, x, a->axes[0]);
    if (s < 0) return s;
    like(&c->out[0], x, (aril_dtype)x->dtype);
    like_params(&c->out[1], x, a->axes[0]);
    return ARIL_OK;
}

static aril_status rms_norm_grad_ref(aril__run *r)
{
    int64_t axes = ((const struct rms_norm_attrs *)r->attrs)->axes[0];
    given v = { r->in[0], r->in[1], r->in[2], NULL, r->in[3], layout_of_axes(r->in[1], axes) };
    normalize_grad(&v, r->out[0]);
    param_grads(&v, r->out[1], NULL);
    return ARIL_OK;
}

static void rms_norm_grad_decompose(aril__call *c, aril_tensor **out)
{
    int64_t axes = ((const struct rms_norm_attrs *)c->attrs)->axes[0];
    aril_tensor *s = c->in[3];
    aril_tensor *g = cast_like(c->in[0], s), *x = cast_like(c->in[1], s);
    aril_tensor *xhat = aril_mul(x, s);
    aril_tensor *h = c->in[2] ? aril_mul(g, cast_like(c->in[2], s)) : g;
    aril_tensor *b = aril_div(aril__sum_to_like(aril_mul(h, xhat), s), aril__count_like(x, s));
    out[0] = cast_like(aril_mul(s, aril_sub(h, aril_mul(xhat, b))), c->in[1]);
    out[1] = sum_lead(aril_mul(g, xhat), axes);
}

static const struct rms_norm_attrs rms_norm_default = { { 1 }, { -1 } };
static const aril__sample rms_norm_grad_samples[] = {
    { .in = { "[2,3,4]", "[2,3,4]", "+[4]", "+[2,3,1]" },
      .attrs = &rms_norm_default,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,3,4]", "-", "+[2,1,1]" },
      .attrs = &(const struct rms_norm_attrs){ { 2 }, { -1 } } },
    SAMPLE_END
};
OP(rms_norm_grad, .doc = "gradient of rms_norm with respect to x and weight", .min_in = 4,
   .max_in = 4, .n_out = 2, .flags = GRADIENT | STRIDED, .optional = IN(2), .types = DT_FLOAT,
   .infer = rms_norm_grad_infer, .ref = rms_norm_grad_ref, .decompose = rms_norm_grad_decompose,
   .samples = rms_norm_grad_samples, WITH_ATTRS(rms_norm));

/* ---- rms_norm ---- */

/* in: x, weight?; out: y, 1 / sqrt(mean(x^2) + eps) */
static aril_status rms_norm_infer(aril__call *c)
{
    const struct rms_norm_attrs *a = c->attrs;
    aril_status s = check_axes(c, c->in[0], a->axes[0]);
    if (s < 0 || (s = check_param(c, 1, "weight", a->axes[0])) < 0) return s;
    like(&c->out[0], c->in[0], (aril_dtype)c->in[0]->dtype);
    like_stats(&c->out[1], c->in[0], a->axes[0]);
    return ARIL_OK;
}

static aril_status rms_norm_ref(aril__run *r)
{
    const struct rms_norm_attrs *a = r->attrs;
    normalize(r->in[0], r->in[1], NULL, aril__rms_norm_eps(a, r->type),
              layout_of_axes(r->in[0], a->axes[0]), r->out[0], NULL, r->out[1]);
    return ARIL_OK;
}

VJP(rms_norm)
{
    aril_tensor *dx = NULL;
    if (c->g[0]) {
        aril_tensor *out[2], *in[4] = { c->g[0], c->x[0], c->wants[0] ? c->x[1] : NULL, c->y[1] };
        aril__apply(&aril__op_rms_norm_grad, 4, in, c->attrs, out);
        dx = out[0];
        GRAD(1, cast_like(out[1], c->x[1]));
    }
    if (c->wants[0] && c->g[1]) {
        aril_tensor *more = stats_vjp(c->x[0], NULL, c->y[1], NULL, c->g[1]);
        dx = dx ? aril_add(dx, more) : more;
    }
    if (dx) GRAD(0, dx);
}

static const aril__sample rms_norm_samples[] = {
    { .in = { "[4,5]", "+[5]" }, .attrs = &rms_norm_default, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "-" }, .attrs = &(const struct rms_norm_attrs){ { 2 }, { 0.1 } } },
    { .in = { "[0,3]", "+[3]" }, .attrs = &rms_norm_default },
    SAMPLE_END
};
OP(rms_norm, .doc = "division by the root mean square over the last dimensions",
   .onnx = "RMSNormalization", .min_in = 2, .max_in = 2, .n_out = 2, .flags = STRIDED,
   .optional = IN(1), .types = DT_FLOAT, .infer = rms_norm_infer, .ref = rms_norm_ref,
   .vjp = rms_norm_vjp, .saves = { IN(0) | IN(1) | OUT(1), IN(0) | LIKE(1) | OUT(1) },
   .samples = rms_norm_samples, WITH_ATTRS(rms_norm));

/* ---- group_norm_grad ---- */

ATTR_LIST(group_norm, GROUP_NORM_ATTRS)

static void like_channels(aril__meta *o, const aril_tensor *x)
{
    o->dtype = aril__stat_dtype(x);
    o->ndim = 1;
    o->dim[0] = x->dim[1];
}

/* in: x, g, weight?, mean, invstd; out: dx, dweight, dbias */
static aril_status group_norm_grad_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    if (x->ndim < 2)
        return aril__fail(ARIL_ERR_SHAPE, "group_norm_grad: the input has no channels");
    like(&c->out[0], x, (aril_dtype)x->dtype);
    like_channels(&c->out[1], x);
    like_channels(&c->out[2], x);
    return ARIL_OK;
}

static aril_status group_norm_grad_ref(aril__run *r)
{
    layout l = layout_of_groups(r->in[0], r->attrs);
    given v = { r->in[1], r->in[0], r->in[2], r->in[3], r->in[4], l };
    normalize_grad(&v, r->out[0]);
    param_grads(&v, r->out[1], r->out[2]);
    return ARIL_OK;
}

/* Expands [N,G] to the channels of x and its positions: [N,C,1,...]. */
static aril_tensor *spread(aril_tensor *t, aril_tensor *x, const struct group_norm_attrs *a)
{
    if (a->groups[0]) {
        if (x->dim[1] < 0) {
            aril__fail(ARIL_ERR_UNSUPPORTED,
                       "group_norm: the number of channels must be known for second derivatives");
            return aril__poison();
        }
        int64_t each = x->dim[1] / a->groups[0];
        t = aril_expand(aril_unsqueeze(t, 2), ARIL_SHAPE(-1, -1, each));
        t = aril_reshape(t, ARIL_SHAPE(-1, x->dim[1]));
    }
    struct unsqueeze_attrs last = { { ((1 << (x->ndim - 2)) - 1) << 2 } };
    return x->ndim > 2 ? aril__op_with(&last, &aril__op_unsqueeze, t) : t;
}

/* x summed over the members of each group: [N,G]. */
static aril_tensor *gather_groups(aril_tensor *x, const struct group_norm_attrs *a)
{
    struct reduce_attrs r = { .mask = { ((1 << x->ndim) - 1) & ~3 } };
    int64_t channels = x->dim[1];
    if (r.mask[0]) x = aril__op_with(&r, &aril__op_sum, x);
    if (!a->groups[0]) return x;
    x = aril_reshape(x, ARIL_SHAPE(-1, a->groups[0], channels / a->groups[0]));
    return aril_sum(x, ARIL_AXES(2));
}

static void group_norm_grad_decompose(aril__call *c, aril_tensor **out)
{
    const struct group_norm_attrs *a = c->attrs;
    aril_tensor *s = c->in[4];
    aril_tensor *x = cast_like(c->in[0], s), *g = cast_like(c->in[1], s);
    aril_tensor *wide = spread(s, x, a);
    aril_tensor *xhat = aril_mul(aril_sub(x, spread(c->in[3], x, a)), wide);
    aril_tensor *h =
        c->in[2] ? aril_mul(g, aril__norm_channels(cast_like(c->in[2], s), x->ndim)) : g;
    aril_tensor *count = aril__count_like(x, s);
    aril_tensor *p = spread(aril_div(gather_groups(h, a), count), x, a);
    aril_tensor *q = spread(aril_div(gather_groups(aril_mul(h, xhat), a), count), x, a);
    out[0] = cast_like(aril_mul(wide, aril_sub(aril_sub(h, p), aril_mul(xhat, q))), c->in[0]);
    out[1] = aril__norm_sum_channels(aril_mul(g, xhat));
    out[2] = aril__norm_sum_channels(g);
}

static const struct group_norm_attrs group_norm_two = { { 2 }, { 1e-5 } };
static const struct group_norm_attrs group_norm_each = { { 0 }, { 1e-5 } };
static const aril__sample group_norm_grad_samples[] = {
    { .in = { "[2,4,3]", "[2,4,3]", "+[4]", "[2,2]", "+[2,2]" },
      .attrs = &group_norm_two,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2,2]", "[2,3,2,2]", "-", "[2,3]", "+[2,3]" }, .attrs = &group_norm_each },
    SAMPLE_END
};
OP(group_norm_grad, .doc = "gradient of group_norm with respect to x, weight and bias", .min_in = 5,
   .max_in = 5, .n_out = 3, .flags = GRADIENT | STRIDED | KEEPS_ORDER, .optional = IN(2),
   .types = DT_FLOAT, .infer = group_norm_grad_infer, .ref = group_norm_grad_ref,
   .decompose = group_norm_grad_decompose, .samples = group_norm_grad_samples,
   WITH_ATTRS(group_norm));

/* ---- group_norm ---- */

/* in: x, weight?, bias?; out: y, mean, 1 / sqrt(var + eps) */
static aril_status group_norm_infer(aril__call *c)
{
    const struct group_norm_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 2)
        return aril__fail(ARIL_ERR_SHAPE, "group_norm: expected [N,C,...], got %s",
                          aril__text(text, x));
    if (a->groups[0] < 0 || (a->groups[0] && x->dim[1] >= 0 && x->dim[1] % a->groups[0]))
        return aril__fail(ARIL_ERR_SHAPE,
                          "group_norm: the channels of %s cannot be divided into %lld groups",
                          aril__text(text, x), (long long)a->groups[0]);
    aril_status s = aril__norm_param(c, 1, "weight", x->dim[1]);
    if (s < 0 || (s = aril__norm_param(c, 2, "bias", x->dim[1])) < 0) return s;
    like(&c->out[0], x, (aril_dtype)x->dtype);
    for (int i = 1; i < 3; i++) {
        c->out[i].dtype = aril__stat_dtype(x);
        c->out[i].ndim = 2;
        c->out[i].dim[0] = x->dim[0];
        c->out[i].dim[1] = aril__groups_of(a, x);
    }
    return ARIL_OK;
}

static aril_status group_norm_ref(aril__run *r)
{
    const struct group_norm_attrs *a = r->attrs;
    normalize(r->in[0], r->in[1], r->in[2], a->eps[0], layout_of_groups(r->in[0], a), r->out[0],
              r->out[1], r->out[2]);
    return ARIL_OK;
}

VJP(group_norm)
{
    const struct group_norm_attrs *a = c->attrs;
    aril_tensor *dx = NULL, *x = c->x[0];
    if (c->g[0] && (c->wants[0] || c->wants[1])) {
        aril_tensor *out[3],
            *in[5] = { x, c->g[0], c->wants[0] ? c->x[1] : NULL, c->y[1], c->y[2] };
        aril__apply(&aril__op_group_norm_grad, 5, in, c->attrs, out);
        dx = out[0];
        GRAD(1, cast_like(out[1], c->x[1]));
        GRAD(2, cast_like(out[2], c->x[2]));
    } else if (c->g[0] && c->wants[2]) {
        aril_tensor *g = aril_cast(c->g[0], aril__stat_dtype(c->g[0]));
        c->dx[2] = cast_like(aril__norm_sum_channels(g), c->x[2]);
    }
    if (c->wants[0] && (c->g[1] || c->g[2])) {
        aril_tensor *s = c->y[2], *wide = cast_like(x, s), *count = aril__count_like(wide, s);
        aril_tensor *more = NULL;
        if (c->g[1]) more = aril__expand_like(spread(aril_div(c->g[1], count), x, a), x);
        if (c->g[2]) {
            aril_tensor *cube = aril_mul(aril_square(s), s);
            aril_tensor *k = aril_neg(aril_div(aril_mul(c->g[2], cube), count));
            aril_tensor *part = aril_mul(aril_sub(wide, spread(c->y[1], x, a)), spread(k, x, a));
            more = more ? aril_add(more, part) : part;
        }
        more = cast_like(more, x);
        dx = dx ? aril_add(dx, more) : more;
    }
    if (dx) GRAD(0, dx);
}

static const aril__sample group_norm_samples[] = {
    { .in = { "[3,4]", "+[4]", "[4]" }, .attrs = &group_norm_two, .flags = SAMPLE_BATCH },
    { .in = { "[2,4,3]", "-", "-" }, .attrs = &(const struct group_norm_attrs){ { 1 }, { 0.1 } } },
    { .in = { "[2,3,2,2]", "+[3]", "[3]" }, .attrs = &group_norm_each },
    { .in = { "[0,4,2]", "+[4]", "-" }, .attrs = &group_norm_two },
    SAMPLE_END
};
OP(group_norm, .doc = "group normalization: over groups of channels of each sample",
   .onnx = "GroupNormalization", .min_in = 3, .max_in = 3, .n_out = 3, .cast = CAST_F32_IN_F16,
   .flags = STRIDED | KEEPS_ORDER, .optional = IN(1) | IN(2), .types = DT_FLOAT,
   .infer = group_norm_infer, .ref = group_norm_ref, .vjp = group_norm_vjp,
   .saves = { IN(0) | IN(1) | OUT(1) | OUT(2), IN(0) | LIKE(1) | OUT(1) | OUT(2), LIKE(2) },
   .samples = group_norm_samples, WITH_ATTRS(group_norm));

/* ---- public ---- */

/* Checks that the last sizes of x equal `shape`. */
/* shape: of the input, and its last sizes as the caller gave them. */
static aril_status ends_with(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *shape = &q->shape[1];
    bool fits = shape->ndim >= 1 && shape->ndim <= x->ndim;
    for (int d = 0; fits && d < shape->ndim; d++)
        fits = aril__size_fits(shape->dim[d], x->dim[x->ndim - shape->ndim + d]);
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: expected an input of shape [...,%s, got %s", q->what,
                      aril__shape_text(a, shape->ndim, shape->dim) + 1,
                      aril__shape_text(b, x->ndim, x->dim));
}

static aril_status check_shape(const char *what, aril_tensor *x, aril_shape shape)
{
    aril__requirement q;
    memset(&q, 0, sizeof q);
    q.check = ends_with;
    q.n_shapes = 2;
    snprintf(q.what, sizeof q.what, "%s", what);
    q.shape[0] = aril__shape(x);
    q.shape[1].ndim = shape.ndim;
    for (int d = 0; d < shape.ndim && d < ARIL_MAX_DIMS; d++) q.shape[1].dim[d] = shape.dim[d];
    return aril__require_now(&q, 1, &x);
}

aril_tensor *aril_layer_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                             aril_shape shape, aril_norm_opts opts)
{
    if (!x) return aril__null_tensor("layer_norm");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (check_shape("layer_norm", x, shape) < 0) return aril__poison();
    struct layer_norm_attrs a = { { shape.ndim }, { aril__or_default(opts.eps, 1e-5) } };
    return aril__op_with(&a, &aril__op_layer_norm, x, weight, bias);
}

aril_tensor *aril_rms_norm(aril_tensor *x, aril_tensor *weight, aril_shape shape,
                           aril_norm_opts opts)
{
    if (!x) return aril__null_tensor("rms_norm");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (check_shape("rms_norm", x, shape) < 0) return aril__poison();
    struct rms_norm_attrs a = { { shape.ndim }, { aril__or_default(opts.eps, -1) } };
    return aril__op_with(&a, &aril__op_rms_norm, x, weight);
}

aril_tensor *aril_group_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias, int64_t groups,
                             aril_norm_opts opts)
{
    if (groups <= 0) {
        aril__fail(ARIL_ERR_ARG, "group_norm: the number of groups must be at least 1, got %lld",
                   (long long)groups);
        return aril__poison();
    }
    struct group_norm_attrs a = { { groups }, { aril__or_default(opts.eps, 1e-5) } };
    return aril__op_with(&a, &aril__op_group_norm, x, weight, bias);
}

static aril_status is_by_channel(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *running = &q->shape[1];
    if (running->ndim == 1 && x->ndim > 1 && aril__size_fits(running->dim[0], x->dim[1]))
        return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "instance_norm: %s is %s, expected one value for each channel of %s", q->what,
                      aril__shape_text(a, running->ndim, running->dim),
                      aril__shape_text(b, x->ndim, x->dim));
}

static aril_status check_running(aril_tensor *x, aril_tensor *running, const char *name)
{
    if (!running || running->flags & ARIL__POISON) return ARIL_OK;
    return aril__require_of(name, is_by_channel, x, running);
}

static aril_status has_positions(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0];
    if (x->ndim >= 3 && aril__count(x->ndim - 2, x->dim + 2) != 1) return ARIL_OK;
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "instance_norm: expected more than one value per channel and sample, got %s",
                      aril__shape_text(text, x->ndim, x->dim));
}

/* running = (1 - momentum) * running + momentum * mean over the batch of `value` [N,C] */
static void update_running(aril_tensor *running, aril_tensor *value, double momentum)
{
    if (!running) return;
    aril_tensor *mean = aril_div(aril_sum(value, ARIL_AXES(0)), aril__count_like(value, running));
    aril_copy_(running, aril_add(aril_mul_scalar(running, 1 - momentum),
                                 aril_mul_scalar(cast_like(mean, running), momentum)));
}

aril_tensor *aril_instance_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                                aril_tensor *running_mean, aril_tensor *running_var,
                                aril_instance_norm_opts opts)
{
    double eps = aril__or_default(opts.eps, 1e-5);
    if (!x) return aril__null_tensor("instance_norm");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (opts.eval)
        return aril_batch_norm(x, weight, bias, running_mean, running_var,
                               (aril_batch_norm_opts){ .eval = true, .eps = opts.eps });
    if (aril__require_of("instance_norm", has_positions, x) < 0) return aril__poison();
    if (check_running(x, running_mean, "running_mean") < 0 ||
        check_running(x, running_var, "running_var") < 0)
        return aril__poison();
    ARIL_SCOPE;
    struct group_norm_attrs a = { { 0 }, { eps } };
    aril_tensor *out[3], *in[3] = { x, weight, bias };
    aril__apply(&aril__op_group_norm, 3, in, &a, out);
    if ((running_mean || running_var) && x->numel != 0 && aril_tensor_status(out[0]) == ARIL_OK) {
        ARIL_NO_GRAD;
        double momentum = aril__or_default(opts.momentum, 0.1);
        aril_tensor *n = aril__count_like(aril_cast(x, aril__stat_dtype(x)), out[1]);
        aril_tensor *var = aril_sub_scalar(aril_reciprocal(aril_square(out[2])), eps);
        var = aril_mul(var, aril_div(n, aril_sub_scalar(n, 1)));
        update_running(running_mean, out[1], momentum);
        update_running(running_var, var, momentum);
    }
    return aril_escape(out[0]);
}
