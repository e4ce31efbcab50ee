#include "ops/reduce/scan.h"

#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_cumsum, aril__op_linear_scan;

/* ---- references ---- */

/* The lines of a scan: all elements of x that differ along the scanned axes alone. */
static int64_t line_length(const aril__run *r)
{
    return aril__reduced_count(r->in[0], ((const struct scan_attrs *)r->attrs)->mask[0]);
}

static int64_t line_count(const aril__run *r)
{
    int64_t n = line_length(r);
    return n ? r->in[0]->numel / n : 0;
}

/* The position in x of the k-th element of a line, from the end if the scan is reversed. */
static int64_t in_line(const aril__run *r, int64_t line, int64_t k)
{
    const struct scan_attrs *a = r->attrs;
    if (a->reverse[0]) k = line_length(r) - 1 - k;
    return aril__reduced_at(r->in[0], a->mask[0], line, k);
}

/* Sums or products so far. */
static void accumulate(aril__run *r, bool product)
{
    const aril_tensor *x = r->in[0];
    bool real = aril__is_float((aril_dtype)x->dtype);
    for (int64_t line = 0; line < line_count(r); line++) {
        double so_far = product;
        uint64_t integer = product;
        for (int64_t k = 0; k < line_length(r); k++) {
            int64_t at = in_line(r, line, k);
            if (real) {
                double v = aril__get(x, at);
                so_far = product ? so_far * v : so_far + v;
                aril__put(r->out[0], at, so_far);
            } else {
                uint64_t v = (uint64_t)aril__get_i64(x, at);
                integer = product ? integer * v : integer + v;
                aril__put_i64(r->out[0], at, (int64_t)integer);
            }
        }
    }
}

/* The last of equal elements wins, and NaN is never replaced by a number, as in PyTorch. */
static void best_so_far(aril__run *r, bool larger)
{
    const aril_tensor *x = r->in[0];
    for (int64_t line = 0; line < line_count(r); line++)
        for (int64_t k = 0, best = 0; k < line_length(r); k++) {
            int64_t at = in_line(r, line, k), old = in_line(r, line, best);
            int order = aril__compare(x, at, x, old);
            bool odd = isnan(aril__get(x, at)) || isnan(aril__get(x, old));
            if (larger || odd ? order >= 0 : order <= 0) best = k;
            aril__put_same(r->out[0], at, x, in_line(r, line, best));
            aril__put_i64(r->out[1], at, best);
        }
}

/* ---- linear_scan ---- */

ATTR_LIST(scan, SCAN_ATTRS)

static aril_status same_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    const aril_tensor *x = c->in[0];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

static aril_status linear_scan_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    bool fits = !b || (a->ndim == b->ndim && a->dtype == b->dtype);
    for (int d = 0; b && d < a->ndim && fits; d++)
        fits = a->dim[d] == b->dim[d] || a->dim[d] < 0 || b->dim[d] < 0;
    if (!fits) {
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "linear_scan: factors %s and terms %s must have the same shape",
                          aril__text(x, a), aril__text(y, b));
    }
    return same_infer(c);
}

static aril_status linear_scan_ref(aril__run *r)
{
    const struct scan_attrs *a = r->attrs;
    for (int64_t line = 0; line < line_count(r); line++) {
        double z = a->init[0];
        for (int64_t k = 0; k < line_length(r); k++) {
            int64_t at = in_line(r, line, k);
            aril__put(r->out[0], at, z);
            z = (r->in[1] ? aril__get(r->in[1], at) : 0) + aril__get(r->in[0], at) * z;
        }
    }
    return ARIL_OK;
}

static aril_tensor *linear_scan(aril_tensor *a, aril_tensor *b, int64_t mask, bool reverse,
                                double init)
{
    struct scan_attrs at = { { mask }, { reverse }, { init } };
    return aril__op_with(&at, &aril__op_linear_scan, a, b);
}

/* With t the scan of the gradient by the same factors in the other direction: the gradient of the
 * terms is t, that of the factors t * z. */
VJP(linear_scan)
{
    const struct scan_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_tensor *t = linear_scan(c->x[0], c->g[0], a->mask[0], !a->reverse[0], 0);
    GRAD(0, aril_mul(t, c->y[0]));
    if (c->n_in > 1) GRAD(1, t);
}

static const aril__sample linear_scan_samples[] = {
    { .in = { "[2,5]", "[2,5]" },
      .attrs = &(const struct scan_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,3,4]" },
      .attrs = &(const struct scan_attrs){ .mask = { 5 }, .reverse = { 1 }, .init = { 0.5 } } },
    { .in = { "[3,4]", "-" }, .attrs = &(const struct scan_attrs){ .mask = { 1 }, .init = { 1 } } },
    { .in = { "[]", "[]" }, .attrs = &(const struct scan_attrs){ .init = { 2 } } },
    { .in = { "[0,3]", "[0,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 } } },
    SAMPLE_END
};
OP(linear_scan, .doc = "linear recurrence z[k+1] = b[k] + a[k] * z[k] along axes", .min_in = 2,
   .max_in = 2, .n_out = 1, .flags = STRIDED, .optional = IN(1), .types = DT_FLOAT,
   .infer = linear_scan_infer, .ref = linear_scan_ref, .vjp = linear_scan_vjp,
   .saves = { IN(0) | OUT(0), IN(0) }, .samples = linear_scan_samples, WITH_ATTRS(scan));

aril_tensor *aril__prod_before(aril_tensor *x, int64_t mask, bool reverse)
{
    return linear_scan(x, NULL, mask, reverse, 1);
}

/* ---- cumsum, cumprod ---- */

/* i64 for integers and bools. */
static aril_status cumsum_infer(aril__call *c)
{
    same_infer(c);
    if (!aril__is_float(c->out[0].dtype) && c->out[0].dtype != ARIL_U64) c->out[0].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status cumsum_ref(aril__run *r)
{
    accumulate(r, false);
    return ARIL_OK;
}

static aril_status cumprod_ref(aril__run *r)
{
    accumulate(r, true);
    return ARIL_OK;
}

VJP(cumsum)
{
    struct scan_attrs a = *(const struct scan_attrs *)c->attrs;
    a.reverse[0] = !a.reverse[0];
    if (c->g[0]) GRAD(0, aril__op_with(&a, &aril__op_cumsum, c->g[0]));
}

/* With L the product of all preceding elements, y = x * L, and L is a linear scan. */
VJP(cumprod)
{
    const struct scan_attrs *a = c->attrs;
    aril_tensor *x = c->x[0], *g = c->g[0];
    if (!g) return;
    aril_tensor *before = aril__prod_before(x, a->mask[0], a->reverse[0]);
    aril_tensor *behind = linear_scan(x, aril_mul(g, x), a->mask[0], !a->reverse[0], 0);
    GRAD(0, aril_mul(before, aril_add(g, behind)));
}

static const aril__sample scan_samples[] = {
    { .in = { "[2,5]" },
      .attrs = &(const struct scan_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 }, .reverse = { 1 } } },
    { .in = { "[3,20]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    { .in = { "[6,7]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 }, .reverse = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct scan_attrs){ .mask = { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(cumsum, .doc = "cumulative sum along an axis", .onnx = "CumSum", .min_in = 1, .max_in = 1,
   .n_out = 1, .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_COMPUTE,
   .infer = cumsum_infer, .ref = cumsum_ref, .vjp = cumsum_vjp, .samples = scan_samples,
   WITH_ATTRS(scan));
OP(cumprod, .doc = "cumulative product along an axis", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_COMPUTE, .infer = cumsum_infer,
   .ref = cumprod_ref, .vjp = cumprod_vjp, .saves = { IN(0) }, .samples = scan_samples,
   WITH_ATTRS(scan));

/* ---- cummax, cummin ---- */

static aril_status cummax_infer(aril__call *c)
{
    same_infer(c);
    c->out[1] = c->out[0];
    c->out[1].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status cummax_ref(aril__run *r)
{
    best_so_far(r, true);
    return ARIL_OK;
}

static aril_status cummin_ref(aril__run *r)
{
    best_so_far(r, false);
    return ARIL_OK;
}

VJP(cummax)
{
    const struct scan_attrs *a = c->attrs;
    int axis = a->mask[0] ? __builtin_ctzll((unsigned long long)a->mask[0]) : 0;
    if (c->g[0]) GRAD(0, aril__put_back(c->g[0], axis, c->y[1], c->x[0]));
}

static const aril__sample cummax_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct scan_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    { .in = { "d[6,5]" }, .attrs = &(const struct scan_attrs){ .mask = { 2 } } },
    { .in = { "d[]" }, .attrs = &(const struct scan_attrs){ .mask = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct scan_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(cummax, .doc = "cumulative maximum along an axis, and its index", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = cummax_infer, .ref = cummax_ref,
   .vjp = cummax_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = cummax_samples, WITH_ATTRS(scan));
OP(cummin, .doc = "cumulative minimum along an axis, and its index", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = cummax_infer, .ref = cummin_ref,
   .vjp = cummax_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = cummax_samples, WITH_ATTRS(scan));

/* ---- logcumsumexp ---- */

static aril_status logcumsumexp_ref(aril__run *r)
{
    for (int64_t line = 0; line < line_count(r); line++) {
        double sum = -INFINITY;
        for (int64_t k = 0; k < line_length(r); k++) {
            int64_t at = in_line(r, line, k);
            double x = aril__get(r->in[0], at), high = fmax(x, sum), low = fmin(x, sum);
            if (isnan(x) || isnan(sum))
                sum = NAN;
            else if (high != low || isfinite(high)) /* not inf - inf */
                sum = high + log1p(exp(low - high));
            aril__put(r->out[0], at, sum);
        }
    }
    return ARIL_OK;
}

/* dx[k] = sum of g[i] exp(x[k] - y[i]) for i >= k. With q = 1 - exp(x - y) = exp(y[k-1] - y[k])
 * that is exp(x - y) * (g + v), v[k] = q[k+1] * (g[k+1] + v[k+1]): no exponent is ever above 0. */
VJP(logcumsumexp)
{
    const struct scan_attrs *a = c->attrs;
    aril_tensor *x = c->x[0], *g = c->g[0];
    if (!g) return;
    aril_tensor *low = aril_eq_scalar(x, -INFINITY); /* contributes nothing; y may be -inf */
    aril_tensor *high = /* only +inf from here on: x - y is 0, not inf - inf */
        aril_logical_and(aril_eq_scalar(x, INFINITY), aril_eq(x, c->y[0]));
    aril_tensor *y = aril_where(aril_logical_or(low, high), aril_scalar(0.0), c->y[0]);
    aril_tensor *d = aril_sub(aril_where(high, aril_scalar(0.0), x), y),
                *q = aril_neg(aril_expm1(d));
    aril_tensor *v = linear_scan(q, aril_mul(q, g), a->mask[0], !a->reverse[0], 0);
    GRAD(0, aril_mul(aril_exp(d), aril_add(g, v)));
}

OP(logcumsumexp, .doc = "log of the cumulative sum of exp(x) along an axis", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED, .types = DT_FLOAT, .infer = same_infer,
   .ref = logcumsumexp_ref, .vjp = logcumsumexp_vjp, .saves = { IN(0) | OUT(0) },
   .samples = scan_samples, WITH_ATTRS(scan));

/* ---- public ---- */

static aril_tensor *along(const aril__op *op, aril_tensor *x, int axis, aril_tensor **second)
{
    struct scan_attrs a = { { 0 }, { 0 }, { 0 } };
    aril_tensor *out[ARIL__MAX_OUT];
    if (x && !aril__is_poison(x)) {
        int d = aril__axis(op->name, axis, x->ndim);
        if (d < 0) {
            if (second) *second = aril__poison();
            return aril__poison();
        }
        a.mask[0] = x->ndim ? 1 << d : 0;
    }
    aril__apply(op, 1, &x, &a, out);
    if (second) *second = out[1];
    return out[0];
}

aril_tensor *aril_cumsum(aril_tensor *x, int axis)
{
    return along(&aril__op_cumsum, x, axis, NULL);
}

aril_tensor *aril_cumprod(aril_tensor *x, int axis)
{
    return along(&aril__op_cumprod, x, axis, NULL);
}

aril_tensor *aril_cummax(aril_tensor *x, int axis, aril_tensor **indices)
{
    return along(&aril__op_cummax, x, axis, indices);
}

aril_tensor *aril_cummin(aril_tensor *x, int axis, aril_tensor **indices)
{
    return along(&aril__op_cummin, x, axis, indices);
}

aril_tensor *aril_logcumsumexp(aril_tensor *x, int axis)
{
    return along(&aril__op_logcumsumexp, x, axis, NULL);
}

aril_tensor *aril_diff(aril_tensor *x, int n, int axis)
{
    if (!x) return aril__null_tensor("diff");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (n < 0 || x->ndim == 0) {
        aril__fail(ARIL_ERR_ARG,
                   "diff: expected order >= 0 and at least 1 dimension, got %d and %d", n, x->ndim);
        return aril__poison();
    }
    axis = aril__axis("diff", axis, x->ndim);
    if (axis < 0) return aril__poison();
    ARIL_SCOPE;
    aril_tensor *before = NULL;
    while (n-- > 0 && !(x->flags & ARIL__POISON) && x->dim[axis] != 0) { /* empty stays empty */
        ARIL_SCOPE;
        aril_tensor *a = aril_slice(x, axis, 1, ARIL_END, 1), *b = aril_slice(x, axis, 0, -1, 1);
        x = aril_escape(x->dtype == ARIL_BOOL ? aril_logical_xor(a, b) : aril_sub(a, b));
        aril_drop(before);
        before = x;
    }
    return aril_escape(x);
}
