#include "ops/reduce/reduce.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"
#include "ops/reduce/scan.h"
#include "ops/shape/view.h"

#include <math.h>
#include <string.h>

/* ---- axes and shapes ---- */

aril_status aril__reduce_attrs(const char *what, const aril_tensor *x, aril_axes axes,
                               struct reduce_attrs *out)
{
    memset(out, 0, sizeof *out);
    out->keep[0] = axes.keepdim;
    if (!x) return aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
    if (aril__is_poison(x)) return ARIL_OK; /* apply propagates the poison */
    if (axes.n < 0 || axes.n > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_ARG, "%s: %d axes", what, axes.n);
    if (axes.n == 0) out->mask[0] = (1 << x->ndim) - 1;
    for (int i = 0; i < axes.n; i++) {
        int a = aril__axis(what, axes.axis[i], x->ndim);
        if (a < 0) return ARIL_ERR_INDEX;
        if (out->mask[0] >> a & 1)
            return aril__fail(ARIL_ERR_ARG, "%s: axis %d appears twice", what, axes.axis[i]);
        if (x->ndim) out->mask[0] |= 1 << a;
    }
    return ARIL_OK;
}

void aril__reduce_shape(aril__call *c, int k)
{
    const struct reduce_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[k];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = a->mask[0] >> d & 1;
        if (!reduced || a->keep[0]) o->dim[o->ndim++] = reduced ? 1 : x->dim[d];
    }
}

aril_tensor *aril__unreduce(aril_tensor *g, const struct reduce_attrs *a)
{
    if (a->keep[0] || !a->mask[0]) return g;
    struct unsqueeze_attrs at = { { a->mask[0] } };
    return aril__op_with(&at, &aril__op_unsqueeze, g);
}

/* ---- references ---- */

int64_t aril__reduced_count(const aril_tensor *x, int64_t mask)
{
    int64_t n = 1;
    for (int d = 0; d < x->ndim; d++)
        if (mask >> d & 1) n *= x->dim[d];
    return n;
}

int64_t aril__reduced_at(const aril_tensor *x, int64_t mask, int64_t i, int64_t k)
{
    int64_t at = 0, step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        int64_t *rest = mask >> d & 1 ? &k : &i;
        at += *rest % x->dim[d] * step;
        step *= x->dim[d];
        *rest /= x->dim[d];
    }
    return at;
}

static int64_t mask_of(const aril__run *r)
{
    return ((const struct reduce_attrs *)r->attrs)->mask[0];
}

/* Sums of integers wrap around, as unsigned ones do. */
static void sum_over(aril_tensor *y, const aril_tensor *x, int64_t mask)
{
    int64_t n = aril__reduced_count(x, mask);
    bool real = aril__is_float((aril_dtype)x->dtype);
    for (int64_t i = 0; i < y->numel; i++) {
        double sum = 0;
        uint64_t integer = 0;
        for (int64_t k = 0; k < n && real; k++)
            sum += aril__get(x, aril__reduced_at(x, mask, i, k));
        for (int64_t k = 0; k < n && !real; k++)
            integer += (uint64_t)aril__get_i64(x, aril__reduced_at(x, mask, i, k));
        if (real)
            aril__put(y, i, sum);
        else
            aril__put_i64(y, i, (int64_t)integer);
    }
}

void aril__reduce_sum_to(aril_tensor *out, const aril_tensor *in)
{
    int lead = in->ndim - out->ndim;
    int64_t mask = 0;
    for (int d = 0; d < in->ndim; d++)
        if (d < lead || out->dim[d - lead] != in->dim[d]) mask |= 1 << d;
    sum_over(out, in, mask);
}

/* Whether element i of x beats element k as the largest or smallest; NaN beats all numbers. */
static bool better(const aril_tensor *x, int64_t i, int64_t k, bool larger)
{
    int order = aril__compare(x, i, x, k);
    if (isnan(aril__get(x, i)) || isnan(aril__get(x, k))) return order > 0;
    return larger ? order > 0 : order < 0;
}

/* The first of the largest or smallest elements: its value to `values`, its position among those of
 * the output to `indices`; either may be NULL. */
static void best_over(const aril__run *r, bool larger, aril_tensor *values, aril_tensor *indices)
{
    const aril_tensor *x = r->in[0];
    int64_t mask = mask_of(r), n = aril__reduced_count(x, mask);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < n; k++)
            if (better(x, aril__reduced_at(x, mask, i, k), aril__reduced_at(x, mask, i, best),
                       larger))
                best = k;
        if (values) aril__put_same(values, i, x, aril__reduced_at(x, mask, i, best));
        if (indices) aril__put_i64(indices, i, best);
    }
}

/* How many elements of output i are not 0. */
static int64_t nonzeros_of(const aril_tensor *x, int64_t mask, int64_t i)
{
    int64_t n = aril__reduced_count(x, mask), count = 0;
    for (int64_t k = 0; k < n; k++) count += aril__get(x, aril__reduced_at(x, mask, i, k)) != 0;
    return count;
}

/* ---- sum, mean, prod ---- */

ATTR_LIST(reduce, REDUCE_ATTRS)

/* Sums and products of integers and bools are i64, as in PyTorch. */
static aril_status sum_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    if (!aril__is_float(c->out[0].dtype) && c->out[0].dtype != ARIL_U64) c->out[0].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status sum_ref(aril__run *r)
{
    sum_over(r->out[0], r->in[0], mask_of(r));
    return ARIL_OK;
}

VJP(sum)
{
    if (c->g[0]) GRAD(0, aril__expand_like(aril__unreduce(c->g[0], c->attrs), c->x[0]));
}

static const aril__sample sum_samples[] = {
    { .in = { "[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 7 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 5 }, .keep = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct reduce_attrs){ .mask = { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(sum, .doc = "sum over axes", .onnx = "ReduceSum", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_COMPUTE, .infer = sum_infer,
   .ref = sum_ref, .vjp = sum_vjp, .saves = { LIKE(0) }, .samples = sum_samples,
   WITH_ATTRS(reduce));

aril_status aril__reduce_infer_float(aril__call *c)
{
    if (!aril__is_float((aril_dtype)c->in[0]->dtype))
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: expected a floating-point dtype, got %s; cast it first", c->op->name,
                          aril__dtypes[c->in[0]->dtype].name);
    for (int i = 0; i < c->op->n_out; i++) aril__reduce_shape(c, i);
    return ARIL_OK;
}

static aril_status mean_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int64_t mask = mask_of(r), n = aril__reduced_count(x, mask);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += aril__get(x, aril__reduced_at(x, mask, i, k));
        aril__put(r->out[0], i, sum / (double)n);
    }
    return ARIL_OK;
}

aril_tensor *aril__div_count(aril_tensor *g, aril_tensor *x, aril_tensor *y, double less)
{
    if (x->numel == 0) return g; /* empty input: avoid 0 / 0 */
    aril_tensor *n = aril__count_like(x, y);
    if (less != 0) n = aril_clamp_min(aril_sub_scalar(n, less), 0);
    /* The count of a large tensor does not fit f16: divide in the count's own dtype. */
    aril_dtype dtype = (aril_dtype)g->dtype;
    return aril_cast(aril_div(aril_cast(g, (aril_dtype)n->dtype), n), dtype);
}

VJP(mean)
{
    if (!c->g[0]) return;
    aril_tensor *g = aril__div_count(c->g[0], c->x[0], c->g[0], 0);
    GRAD(0, aril__expand_like(aril__unreduce(g, c->attrs), c->x[0]));
}

static const aril__sample mean_samples[] = {
    { .in = { "[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 7 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 5 }, .keep = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct reduce_attrs){ .mask = { 0 } } },
    { .in = { "[3,0]" }, .attrs = &(const struct reduce_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(mean, .doc = "mean over axes", .onnx = "ReduceMean", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = aril__reduce_infer_float, .ref = mean_ref,
   .vjp = mean_vjp, .saves = { LIKE(0) }, .samples = mean_samples, WITH_ATTRS(reduce));

static aril_status prod_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    aril_tensor *y = r->out[0];
    int64_t mask = mask_of(r), n = aril__reduced_count(x, mask);
    bool real = aril__is_float((aril_dtype)x->dtype);
    for (int64_t i = 0; i < y->numel; i++) {
        double product = 1;
        uint64_t integer = 1;
        for (int64_t k = 0; k < n && real; k++)
            product *= aril__get(x, aril__reduced_at(x, mask, i, k));
        for (int64_t k = 0; k < n && !real; k++)
            integer *= (uint64_t)aril__get_i64(x, aril__reduced_at(x, mask, i, k));
        if (real)
            aril__put(y, i, product);
        else
            aril__put_i64(y, i, (int64_t)integer);
    }
    return ARIL_OK;
}

/* g times the product of all other elements, without a division: x may contain zeros. */
VJP(prod)
{
    const struct reduce_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_tensor *before = aril__prod_before(c->x[0], a->mask[0], false);
    aril_tensor *behind = aril__prod_before(c->x[0], a->mask[0], true);
    GRAD(0, aril_mul(aril__unreduce(c->g[0], a), aril_mul(before, behind)));
}

static const aril__sample prod_samples[] = {
    { .in = { "[2,2,2]" }, .attrs = &(const struct reduce_attrs){ .mask = { 7 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2]" }, .attrs = &(const struct reduce_attrs){ .mask = { 5 }, .keep = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct reduce_attrs){ .mask = { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(prod, .doc = "product over axes", .onnx = "ReduceProd", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_F32, .flags = STRIDED, .types = DT_COMPUTE, .infer = sum_infer, .ref = prod_ref,
   .vjp = prod_vjp, .saves = { IN(0) }, .samples = prod_samples, WITH_ATTRS(reduce));

/* ---- amax, amin ---- */

/* An empty input has no maximum: the reduced axes must not be empty. */
static aril_status not_empty(aril__call *c)
{
    const struct reduce_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    for (int d = 0; d < x->ndim; d++) {
        char text[ARIL__SHAPE_TEXT];
        if (a->mask[0] >> d & 1 && x->dim[d] == 0)
            return aril__fail(ARIL_ERR_SHAPE, "%s: axis %d of %s is empty; an empty axis has no %s",
                              c->op->name, d, aril__text(text, x), c->op->name);
    }
    return ARIL_OK;
}

static aril_status amax_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    return not_empty(c);
}

static aril_status amax_ref(aril__run *r)
{
    best_over(r, true, r->out[0], NULL);
    return ARIL_OK;
}

static aril_status amin_ref(aril__run *r)
{
    best_over(r, false, r->out[0], NULL);
    return ARIL_OK;
}

/* Equal elements share the gradient. */
VJP(amax)
{
    if (!c->g[0]) return;
    const struct reduce_attrs *a = c->attrs;
    struct reduce_attrs keep = { { a->mask[0] }, { 1 } };
    aril_tensor *y = aril__unreduce(c->y[0], a), *g = aril__unreduce(c->g[0], a);
    aril_tensor *hit = aril_cast(aril_eq(c->x[0], y), (aril_dtype)g->dtype);
    aril_tensor *hits = aril__op_with(&keep, &aril__op_sum, hit);
    GRAD(0, aril_mul(hit, aril_div(g, hits)));
}

static const aril__sample amax_samples[] = {
    { .in = { "d[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 7 } } },
    { .in = { "d[2,3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 5 }, .keep = { 1 } } },
    { .in = { "d[]" }, .attrs = &(const struct reduce_attrs){ .mask = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 2 } } },
    SAMPLE_END
};
OP(amax, .doc = "maximum over axes", .onnx = "ReduceMax", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = amax_infer, .ref = amax_ref, .vjp = amax_vjp,
   .saves = { IN(0) | OUT(0) }, .samples = amax_samples, WITH_ATTRS(reduce));
OP(amin, .doc = "minimum over axes", .onnx = "ReduceMin", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = amax_infer, .ref = amin_ref, .vjp = amax_vjp,
   .saves = { IN(0) | OUT(0) }, .samples = amax_samples, WITH_ATTRS(reduce));

/* ---- max, min: with indices along one axis ---- */

aril_tensor *aril__put_back(aril_tensor *g, int axis, aril_tensor *index, aril_tensor *like)
{
    return aril_scatter_add_(aril_zeros_like(like), index, g, axis);
}

static aril_status max_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    aril__reduce_shape(c, 1);
    c->out[1].dtype = ARIL_I64;
    return not_empty(c);
}

static aril_status max_ref(aril__run *r)
{
    best_over(r, true, r->out[0], r->out[1]);
    return ARIL_OK;
}

static aril_status min_ref(aril__run *r)
{
    best_over(r, false, r->out[0], r->out[1]);
    return ARIL_OK;
}

VJP(max)
{
    if (!c->g[0]) return;
    const struct reduce_attrs *a = c->attrs;
    int axis = a->mask[0] ? __builtin_ctzll((unsigned long long)a->mask[0]) : 0;
    GRAD(0, aril__put_back(aril__unreduce(c->g[0], a), axis, aril__unreduce(c->y[1], a), c->x[0]));
}

static const aril__sample max_samples[] = {
    { .in = { "d[3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 2 }, .keep = { 1 } } },
    { .in = { "d[]" }, .attrs = &(const struct reduce_attrs){ .mask = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 2 } } },
    SAMPLE_END
};
OP(max, .doc = "maximum along an axis, and its index", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = max_infer, .ref = max_ref, .vjp = max_vjp,
   .saves = { LIKE(0) | OUT(1) }, .samples = max_samples, WITH_ATTRS(reduce));
OP(min, .doc = "minimum along an axis, and its index", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = max_infer, .ref = min_ref, .vjp = max_vjp,
   .saves = { LIKE(0) | OUT(1) }, .samples = max_samples, WITH_ATTRS(reduce));

/* ---- argmax, argmin ---- */

static aril_status argmax_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    c->out[0].dtype = ARIL_I64;
    return not_empty(c);
}

static aril_status argmax_ref(aril__run *r)
{
    best_over(r, true, NULL, r->out[0]);
    return ARIL_OK;
}

static aril_status argmin_ref(aril__run *r)
{
    best_over(r, false, NULL, r->out[0]);
    return ARIL_OK;
}

OP(argmax, .doc = "index of the maximum along an axis", .onnx = "ArgMax", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED | NONDIFF, .types = DT_COMPUTE, .infer = argmax_infer,
   .ref = argmax_ref, .samples = max_samples, WITH_ATTRS(reduce));
OP(argmin, .doc = "index of the minimum along an axis", .onnx = "ArgMin", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED | NONDIFF, .types = DT_COMPUTE, .infer = argmax_infer,
   .ref = argmin_ref, .samples = max_samples, WITH_ATTRS(reduce));

/* ---- any, all, count_nonzero ---- */

/* bool, but u8 for u8 input, as in PyTorch. */
static aril_status any_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    if (c->out[0].dtype != ARIL_U8) c->out[0].dtype = ARIL_BOOL;
    return ARIL_OK;
}

static aril_status any_ref(aril__run *r)
{
    for (int64_t i = 0; i < r->out[0]->numel; i++)
        aril__put_i64(r->out[0], i, nonzeros_of(r->in[0], mask_of(r), i) > 0);
    return ARIL_OK;
}

static aril_status all_ref(aril__run *r)
{
    int64_t n = aril__reduced_count(r->in[0], mask_of(r));
    for (int64_t i = 0; i < r->out[0]->numel; i++)
        aril__put_i64(r->out[0], i, nonzeros_of(r->in[0], mask_of(r), i) == n);
    return ARIL_OK;
}

static aril_status count_nonzero_infer(aril__call *c)
{
    aril__reduce_shape(c, 0);
    c->out[0].dtype = ARIL_I64;
    return ARIL_OK;
}

static aril_status count_nonzero_ref(aril__run *r)
{
    for (int64_t i = 0; i < r->out[0]->numel; i++)
        aril__put_i64(r->out[0], i, nonzeros_of(r->in[0], mask_of(r), i));
    return ARIL_OK;
}

static const aril__sample any_samples[] = {
    { .in = { "b[2,3,4]" }, .attrs = &(const struct reduce_attrs){ .mask = { 7 } } },
    { .in = { "b[2,3,4]" },
      .attrs = &(const struct reduce_attrs){ .mask = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 1 }, .keep = { 1 } } },
    { .in = { "b[0,3]" }, .attrs = &(const struct reduce_attrs){ .mask = { 1 } } },
    SAMPLE_END
};
OP(any, .doc = "whether any element is nonzero", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED | NONDIFF, .types = DT_COMPUTE, .infer = any_infer, .ref = any_ref,
   .samples = any_samples, WITH_ATTRS(reduce));
OP(all, .doc = "whether all elements are nonzero", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED | NONDIFF, .types = DT_COMPUTE, .infer = any_infer, .ref = all_ref,
   .samples = any_samples, WITH_ATTRS(reduce));
OP(count_nonzero, .doc = "number of nonzero elements", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED | NONDIFF, .types = DT_COMPUTE, .infer = count_nonzero_infer,
   .ref = count_nonzero_ref, .samples = any_samples, WITH_ATTRS(reduce));

/* ---- public ---- */

aril_tensor *aril__reduce(const aril__op *op, aril_tensor *x, aril_axes axes)
{
    struct reduce_attrs a;
    if (aril__reduce_attrs(op->name, x, axes, &a) < 0) return aril__poison();
    return aril__op_with(&a, op, x);
}

aril_tensor *aril_sum(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_sum, x, axes);
}

aril_tensor *aril_mean(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_mean, x, axes);
}

aril_tensor *aril_prod(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_prod, x, axes);
}

aril_tensor *aril_amax(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_amax, x, axes);
}

aril_tensor *aril_amin(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_amin, x, axes);
}

aril_tensor *aril_any(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_any, x, axes);
}

aril_tensor *aril_all(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_all, x, axes);
}

aril_tensor *aril_count_nonzero(aril_tensor *x, aril_axes axes)
{
    return aril__reduce(&aril__op_count_nonzero, x, axes);
}

/* Indices along one axis, or into the flattened tensor. */
static aril_tensor *position(const aril__op *op, aril_tensor *x, aril_axes axes)
{
    struct reduce_attrs a;
    if (aril__reduce_attrs(op->name, x, axes, &a) < 0) return aril__poison();
    if (axes.n > 1) {
        aril__fail(ARIL_ERR_ARG,
                   "%s: got %d axes, expected one, or ARIL_ALL for the flattened tensor", op->name,
                   axes.n);
        return aril__poison();
    }
    if (axes.n == 1 || x->ndim <= 1 || aril__is_poison(x)) return aril__op_with(&a, op, x);
    struct reduce_attrs flat = { { 1 }, { 0 } };
    aril_tensor *y = aril__op_with(&flat, op, aril_reshape(x, ARIL_SHAPE(-1)));
    struct unsqueeze_attrs ones = { { a.mask[0] } };
    return axes.keepdim ? aril__op_with(&ones, &aril__op_unsqueeze, y) : y;
}

aril_tensor *aril_argmax(aril_tensor *x, aril_axes axes)
{
    return position(&aril__op_argmax, x, axes);
}

aril_tensor *aril_argmin(aril_tensor *x, aril_axes axes)
{
    return position(&aril__op_argmin, x, axes);
}

/* The maximum or minimum along one axis, or over all elements. */
static aril_tensor *best(const aril__op *op, const aril__op *of_all, const aril__op *where,
                         aril_tensor *x, aril_axes axes, aril_tensor **indices)
{
    struct reduce_attrs a;
    aril_tensor *out[ARIL__MAX_OUT];
    if (axes.n > 1) {
        aril__fail(ARIL_ERR_ARG,
                   "%s: got %d axes, expected one or ARIL_ALL; use aril_%s for several", op->name,
                   axes.n, of_all->name);
        aril__poison_all(2, out);
    } else if (axes.n == 0) {
        out[0] = aril__reduce(of_all, x, axes);
        out[1] = indices ? position(where, x, axes) : NULL;
        aril__fail_together(2, out);
    } else if (aril__reduce_attrs(op->name, x, axes, &a) < 0) {
        aril__poison_all(2, out);
    } else {
        aril__apply(op, 1, &x, &a, out);
    }
    if (indices) *indices = out[1];
    return out[0];
}

aril_tensor *aril_max(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return best(&aril__op_max, &aril__op_amax, &aril__op_argmax, x, axis, indices);
}

aril_tensor *aril_min(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return best(&aril__op_min, &aril__op_amin, &aril__op_argmin, x, axis, indices);
}

aril_tensor *aril_aminmax(aril_tensor *x, aril_axes axes, aril_tensor **max)
{
    aril_tensor *out[2] = { aril_amin(x, axes), max ? aril_amax(x, axes) : NULL };
    aril__fail_together(2, out);
    if (max) *max = out[1];
    return out[0];
}
