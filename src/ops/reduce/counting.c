#include "ops/reduce/counting.h"

#include "aril/sort.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/copy.h"
#include "ops/table/sample.h"
#include "ops/reduce/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct slices {
    const void *data; /* [n][width] */
    int64_t n, width;
} slices;

#define T         double
#define NAME(x)   x##_f64
#define IS_NAN(x) ((x) != (x))
#include "ops/reduce/counting.inc"

#define T         int64_t
#define NAME(x)   x##_i64
#define IS_NAN(x) false
#include "ops/reduce/counting.inc"

#define T         uint64_t
#define NAME(x)   x##_u64
#define IS_NAN(x) false
#include "ops/reduce/counting.inc"

static aril__ctype wide(uint8_t dtype)
{
    return aril__is_float((aril_dtype)dtype) ? ARIL__C_F64
           : dtype == ARIL_U64               ? ARIL__C_U64
                                             : ARIL__C_I64;
}

/* ---- unique ---- */

ATTR_LIST(unique, UNIQUE_ATTRS)

static aril_status unique_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    int axis = (int)((const struct unique_attrs *)c->attrs)->axis[0];
    aril__meta *o = c->out;
    o[0].dtype = (aril_dtype)x->dtype;
    o[1].dtype = o[2].dtype = ARIL_I64;
    if (axis < 0) {
        o[0].ndim = 1;
        o[1].ndim = x->ndim;
        memcpy(o[1].dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
        o[0].dim[0] = -1;
    } else {
        o[0].ndim = x->ndim;
        memcpy(o[0].dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
        o[0].dim[axis] = -1;
        o[1].ndim = 1;
        o[1].dim[0] = x->dim[axis];
    }
    o[2].ndim = 1;
    o[2].dim[0] = -1;
    return ARIL_OK;
}

/* Copies x to `data` as consecutive slices along the axis, converted to a wide type. */
static void gather_slices(const aril_tensor *x, int axis, slices *s, void *data)
{
    s->n = axis < 0 ? x->numel : x->dim[axis];
    s->width = axis < 0 ? 1 : s->n ? x->numel / s->n : 0;
    static const aril_dtype of[] = {
        [ARIL__C_F64] = ARIL_F64, [ARIL__C_I64] = ARIL_I64, [ARIL__C_U64] = ARIL_U64
    };
    aril__storage memory = { .data = data };
    aril_tensor to = *x; /* x's shape over that memory, the axis outermost */
    to.storage = &memory;
    to.dtype = (uint8_t)of[wide(x->dtype)];
    to.offset = 0;
    int64_t step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (d == axis) continue;
        to.stride[d] = step;
        step *= x->dim[d];
    }
    if (axis >= 0) to.stride[axis] = s->width;
    if (x->numel > 0) aril__copy_elements(&to, x);
    s->data = data;
}

/* The slices, their order and groups, and as much to sort by. */
static size_t unique_scratch(const aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int axis = (int)((const struct unique_attrs *)r->attrs)->axis[0];
    return (size_t)(x->numel + 3 * (axis < 0 ? x->numel : x->dim[axis])) * 8;
}

static aril_status unique_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int axis = (int)((const struct unique_attrs *)r->attrs)->axis[0];
    aril__ctype type = wide(x->dtype);
    slices s;
    void *data = r->workspace;
    gather_slices(x, axis, &s, data);
    int64_t *order = (int64_t *)data + x->numel, *group = order + s.n;
    aril__sort_order(order, s.n,
                     type == ARIL__C_F64   ? slice_before_f64
                     : type == ARIL__C_U64 ? slice_before_u64
                                           : slice_before_i64,
                     &s, group + s.n);
    int64_t groups = 0; /* group[i]: the group of the i-th element in sorted order */
    for (int64_t i = 0; i < s.n; i++) {
        bool same = i > 0 && (type == ARIL__C_F64   ? slice_same_f64
                              : type == ARIL__C_U64 ? slice_same_u64
                                                    : slice_same_i64)(&s, order[i - 1], order[i]);
        groups += !same;
        group[i] = groups - 1;
    }
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, x->dim, sizeof dim);
    if (axis >= 0) dim[axis] = groups;
    aril_status st = axis < 0 ? aril__run_alloc(r, 0, (aril_dtype)x->dtype, 1, &groups)
                              : aril__run_alloc(r, 0, (aril_dtype)x->dtype, x->ndim, dim);
    if (st == ARIL_OK)
        st = axis < 0 ? aril__run_alloc(r, 1, ARIL_I64, x->ndim, x->dim)
                      : aril__run_alloc(r, 1, ARIL_I64, 1, &s.n);
    if (st == ARIL_OK) st = aril__run_alloc(r, 2, ARIL_I64, 1, &groups);
    if (st == ARIL_OK) {
        aril_tensor *y = r->out[0];
        int64_t *inverse = aril__ptr(r->out[1]), *count = aril__ptr(r->out[2]);
        int64_t inner = axis < 0 ? 1 : aril__count(x->ndim - axis - 1, x->dim + axis + 1);
        memset(count, 0, (size_t)groups * sizeof *count);
        for (int64_t i = 0; i < s.n; i++) {
            inverse[order[i]] = group[i];
            if (count[group[i]]++ > 0) continue;
            /* First of its group: the pieces of its slice are strided in the result. */
            for (int64_t k = 0; k < s.width && inner > 0; k += inner)
                aril__dtypes[y->dtype].store[type](
                    aril__base(y), y->offset + (k / inner * groups + group[i]) * inner, 1,
                    (const char *)data + (order[i] * s.width + k) * 8, inner);
        }
    }
    return st;
}

static const aril__sample unique_samples[] = {
    { .in = { "i4[9]" }, .attrs = &(const struct unique_attrs){ { -1 } } },
    { .in = { "[2,3]" }, .attrs = &(const struct unique_attrs){ { -1 } } },
    { .in = { "i2[6,2]" }, .attrs = &(const struct unique_attrs){ { 0 } } },
    { .in = { "i2[2,6,1]" }, .attrs = &(const struct unique_attrs){ { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct unique_attrs){ { -1 } } },
    { .in = { "[0]" }, .attrs = &(const struct unique_attrs){ { -1 } } },
    SAMPLE_END
};
OP(unique, .doc = "sorted unique elements, with inverse indices and counts", .onnx = "Unique",
   .min_in = 1, .max_in = 1, .n_out = 3, .flags = NONDIFF | DYNAMIC | STRIDED, .types = DT_COMPUTE,
   .infer = unique_infer, .ref = unique_ref, .workspace = unique_scratch, .samples = unique_samples,
   WITH_ATTRS(unique));

/* ---- bincount ---- */

ATTR_LIST(bincount, BINCOUNT_ATTRS)

static aril_status bincount_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0], *w = c->n_in > 1 ? c->in[1] : NULL;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (x->ndim != 1)
        return aril__fail(ARIL_ERR_SHAPE, "bincount: expected one dimension, got %s",
                          aril__text(a, x));
    if (w && (w->ndim != 1 || (w->dim[0] != x->dim[0] && w->dim[0] >= 0 && x->dim[0] >= 0)))
        return aril__fail(ARIL_ERR_SHAPE, "bincount: weights %s do not match elements %s",
                          aril__text(a, w), aril__text(b, x));
    c->out[0].dtype = !w ? ARIL_I64 : w->dtype == ARIL_F32 ? ARIL_F32 : ARIL_F64;
    c->out[0].ndim = 1;
    c->out[0].dim[0] = -1;
    return ARIL_OK;
}

/* The number of bins: at least `minlength`, and enough for the largest integer. */
static aril_status bins_of(const aril__run *r, int64_t *bins)
{
    *bins = ((const struct bincount_attrs *)r->attrs)->minlength[0];
    for (int64_t i = 0; i < r->in[0]->numel; i++) {
        int64_t at = aril__get_i64(r->in[0], i);
        if (at < 0)
            return aril__fail(ARIL_ERR_ARG, "bincount: expected non-negative integers, got %lld",
                              (long long)at);
        if (at >= INT64_MAX / 8)
            return aril__fail(ARIL_ERR_MEMORY, "bincount: out of memory for %lld counts",
                              (long long)at);
        if (at >= *bins) *bins = at + 1;
    }
    return ARIL_OK;
}

void aril__bincount_narrow(aril_tensor *sums)
{
    char *at = aril__ptr(sums);
    for (int64_t i = 0; i < sums->numel; i++) {
        double sum;
        memcpy(&sum, at + (size_t)i * sizeof sum, sizeof sum);
        memcpy(at + (size_t)i * sizeof(float), &(float){ (float)sum }, sizeof(float));
    }
    sums->dtype = ARIL_F32;
}

static aril_status bincount_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0], *w = r->n_in > 1 ? r->in[1] : NULL;
    int64_t bins;
    aril_status s = bins_of(r, &bins);
    if (s == ARIL_OK) s = aril__run_alloc(r, 0, w ? ARIL_F64 : ARIL_I64, 1, &bins);
    if (s < 0) return s;
    double *sum = aril__ptr(r->out[0]);
    int64_t *count = aril__ptr(r->out[0]);
    memset(sum, 0, (size_t)bins * sizeof *sum);
    for (int64_t i = 0; i < x->numel; i++) {
        int64_t at = aril__get_i64(x, i);
        if (w)
            sum[at] += aril__get(w, i);
        else
            count[at]++;
    }
    if (w && w->dtype == ARIL_F32) aril__bincount_narrow(r->out[0]);
    return ARIL_OK;
}

static const aril__sample bincount_samples[] = {
    { .in = { "i5[8]" }, .attrs = &(const struct bincount_attrs){ { 0 } } },
    { .in = { "i5[8]", "[8]" }, .attrs = &(const struct bincount_attrs){ { 7 } } },
    { .in = { "i1[0]" }, .attrs = &(const struct bincount_attrs){ { 3 } } },
    SAMPLE_END
};
OP(bincount, .doc = "number of occurrences of each integer, or the sum of their weights",
   .min_in = 1, .max_in = 2, .n_out = 1, .flags = NONDIFF | DYNAMIC | STRIDED, .optional = IN(1),
   .index_in = IN(0), .types = DT_INT, .infer = bincount_infer, .ref = bincount_ref,
   .samples = bincount_samples, WITH_ATTRS(bincount));

/* ---- histc ---- */

ATTR_LIST(histc, HISTC_ATTRS)

static aril_status histc_infer(aril__call *c)
{
    const struct histc_attrs *a = c->attrs;
    if (a->bins[0] <= 0)
        return aril__fail(ARIL_ERR_ARG, "histc: the number of bins must be at least 1, got %lld",
                          (long long)a->bins[0]);
    if (!(a->range[0] <= a->range[1]) || !isfinite(a->range[1] - a->range[0]))
        return aril__fail(ARIL_ERR_ARG, "histc: invalid range from %g to %g", a->range[0],
                          a->range[1]);
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[0].ndim = 1;
    c->out[0].dim[0] = a->bins[0];
    return ARIL_OK;
}

/* The range that is split into bins: that of the elements if none is given. */
static aril_status range_of(const aril__run *r, double *low, double *high)
{
    const struct histc_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    *low = a->range[0];
    *high = a->range[1];
    if (*low == *high && x->numel > 0) {
        *low = INFINITY;
        *high = -INFINITY;
        for (int64_t i = 0; i < x->numel; i++) {
            double v = aril__get(x, i);
            if (v < *low || isnan(v)) *low = v;
            if (v > *high || isnan(v)) *high = v;
        }
    }
    if (*low == *high) {
        *low -= 1;
        *high += 1;
    }
    if (isfinite(*low) && isfinite(*high)) return ARIL_OK;
    return aril__fail(ARIL_ERR_NUMBER, "histc: the range of the elements, %g..%g, is not finite",
                      *low, *high);
}

static aril_status histc_ref(aril__run *r)
{
    int64_t bins = ((const struct histc_attrs *)r->attrs)->bins[0];
    double low = 0, high = 0, *count = r->workspace;
    aril_status s = range_of(r, &low, &high);
    memset(count, 0, (size_t)bins * sizeof *count);
    for (int64_t i = 0; i < r->in[0]->numel && s == ARIL_OK; i++) {
        double v = aril__get(r->in[0], i);
        if (!(v >= low && v <= high)) continue;
        int64_t bin = (int64_t)((v - low) / (high - low) * (double)bins);
        count[bin < bins ? bin : bins - 1]++;
    }
    for (int64_t k = 0; k < bins && s == ARIL_OK; k++) aril__put(r->out[0], k, count[k]);
    return s;
}

static size_t histc_scratch(const aril__run *r)
{
    return (size_t)((const struct histc_attrs *)r->attrs)->bins[0] * sizeof(double);
}

static const aril__sample histc_samples[] = {
    { .in = { "[20]" },
      .attrs = &(const struct histc_attrs){ { 5 }, { -2, 2 } },
      .flags = SAMPLE_NO_LOW },
    { .in = { "[4,5]" },
      .attrs = &(const struct histc_attrs){ { 3 }, { 0, 0 } },
      .flags = SAMPLE_NO_LOW },
    { .in = { "[0]" }, .attrs = &(const struct histc_attrs){ { 3 }, { 0, 0 } } },
    SAMPLE_END
};
OP(histc, .doc = "histogram with bins of equal width", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = NONDIFF, .types = DT_FLOAT, .infer = histc_infer, .ref = histc_ref,
   .workspace = histc_scratch, .samples = histc_samples, WITH_ATTRS(histc));

/* ---- searchsorted ---- */

ATTR_LIST(search, SEARCH_ATTRS)

static aril_status searchsorted_infer(aril__call *c)
{
    const aril_tensor *line = c->in[0], *v = c->in[1];
    bool fits = line->ndim == 1 || (line->ndim == v->ndim && line->ndim > 0);
    for (int d = 0; d + 1 < line->ndim && fits; d++)
        fits = line->dim[d] == v->dim[d] || line->dim[d] < 0 || v->dim[d] < 0;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE,
                          "searchsorted: the sorted sequence %s must have one dimension, or the "
                          "leading dimensions of the values %s",
                          aril__text(a, line), aril__text(b, v));
    if (line->dtype != v->dtype && !(v->flags & ARIL__WEAK))
        return aril__fail(ARIL_ERR_DTYPE,
                          "searchsorted: the sorted sequence is %s, but the values are %s",
                          aril__dtypes[line->dtype].name, aril__dtypes[v->dtype].name);
    c->out[0].dtype = ARIL_I64;
    c->out[0].ndim = v->ndim;
    memcpy(c->out[0].dim, v->dim, (size_t)v->ndim * sizeof *v->dim);
    return ARIL_OK;
}

/* Whether a value goes behind element `at` of the order; NaN goes behind everything. */
static bool goes_behind(const aril_tensor *line, int64_t at, const aril_tensor *v, int64_t i,
                        bool right)
{
    if (isnan(aril__get(line, at)) || isnan(aril__get(v, i))) return true;
    int order = aril__compare(line, at, v, i);
    return right ? order <= 0 : order < 0;
}

static aril_status searchsorted_ref(aril__run *r)
{
    const aril_tensor *line = r->in[0], *v = r->in[1];
    bool right = ((const struct search_attrs *)r->attrs)->right[0];
    int64_t n = line->dim[line->ndim - 1], m = v->ndim ? v->dim[v->ndim - 1] : 1;
    for (int64_t i = 0; i < v->numel; i++) {
        int64_t first = line->ndim == 1 ? 0 : i / m * n, low = 0, high = n;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (goes_behind(line, first + middle, v, i, right))
                low = middle + 1;
            else
                high = middle;
        }
        aril__put_i64(r->out[0], i, low);
    }
    return ARIL_OK;
}

static const aril__sample searchsorted_samples[] = {
    { .in = { "[5]", "[2,3]" }, .attrs = &(const struct search_attrs){ { 0 } } },
    { .in = { "[2,5]", "[2,3]" }, .attrs = &(const struct search_attrs){ { 1 } } },
    { .in = { "[5]", "[]" }, .attrs = &(const struct search_attrs){ { 1 } } },
    { .in = { "[0]", "[2]" }, .attrs = &(const struct search_attrs){ { 0 } } },
    SAMPLE_END
};
OP(searchsorted, .doc = "insertion indices that keep a sequence sorted", .min_in = 2, .max_in = 2,
   .n_out = 1, .flags = NONDIFF, .types = DT_COMPUTE, .infer = searchsorted_infer,
   .ref = searchsorted_ref, .samples = searchsorted_samples, WITH_ATTRS(search));

/* ---- public ---- */

static aril_tensor *unique(aril_tensor *x, int64_t axis, aril_tensor **inverse,
                           aril_tensor **counts)
{
    struct unique_attrs a = { { axis } };
    aril_tensor *out[ARIL__MAX_OUT];
    aril__apply(&aril__op_unique, 1, &x, &a, out);
    if (inverse) *inverse = out[1];
    if (counts) *counts = out[2];
    return out[0];
}

aril_tensor *aril_unique(aril_tensor *x, aril_tensor **inverse, aril_tensor **counts)
{
    return unique(x, -1, inverse, counts);
}

aril_tensor *aril_unique_axis(aril_tensor *x, int axis, aril_tensor **inverse, aril_tensor **counts)
{
    aril_tensor *bad = NULL;
    if (!x) {
        bad = aril__null_tensor("unique_axis");
    } else if (aril__is_poison(x)) {
        bad = aril__pass_on(x);
    } else if (x->ndim == 0) {
        aril__fail(ARIL_ERR_SHAPE, "unique_axis: a 0-d tensor has no axis");
        bad = aril__poison();
    } else if ((axis = aril__axis("unique_axis", axis, x->ndim)) < 0) {
        bad = aril__poison();
    }
    if (!bad) return unique(x, axis, inverse, counts);
    if (inverse) *inverse = aril__poison_like(bad);
    if (counts) *counts = aril__poison_like(bad);
    return bad;
}

aril_tensor *aril_bincount(aril_tensor *x, aril_tensor *weights, int64_t minlength)
{
    struct bincount_attrs a = { { minlength } };
    if (minlength < 0) {
        aril__fail(ARIL_ERR_ARG, "bincount: minlength must not be negative, got %lld",
                   (long long)minlength);
        return aril__poison();
    }
    return aril__op_with(&a, &aril__op_bincount, x, weights);
}

aril_tensor *aril_histc(aril_tensor *x, int64_t bins, double low, double high)
{
    struct histc_attrs a = { { bins }, { low, high } };
    return aril__op_with(&a, &aril__op_histc, x);
}

aril_tensor *aril_searchsorted(aril_tensor *sorted, aril_tensor *values, aril_search_opts opts)
{
    struct search_attrs a = { { opts.right } };
    return aril__op_with(&a, &aril__op_searchsorted, sorted, values);
}

aril_tensor *aril_bucketize(aril_tensor *x, aril_tensor *boundaries, aril_search_opts opts)
{
    struct search_attrs a = { { opts.right } };
    if (boundaries && !aril__is_poison(boundaries) && boundaries->ndim != 1) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "bucketize: expected boundaries with one dimension, got %s",
                   aril__text(text, boundaries));
        return aril__poison();
    }
    return aril__op_with(&a, &aril__op_searchsorted, boundaries, x);
}
