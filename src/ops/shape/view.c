#include "ops/shape/view.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"
#include "ops/shape/view_write.h"

#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */

/* ---- permute ---- */

ATTR_LIST(permute, PERMUTE_ATTRS)

static aril_status permute_infer(aril__call *c)
{
    const struct permute_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    o->offset = x->offset;
    for (int d = 0; d < x->ndim; d++) {
        o->dim[d] = x->dim[a->axes[d]];
        o->stride[d] = x->stride[a->axes[d]];
    }
    return ARIL_OK;
}

VJP(permute)
{
    const struct permute_attrs *a = c->attrs;
    struct permute_attrs back = { { 0 } };
    if (!c->g[0]) return;
    for (int d = 0; d < c->g[0]->ndim; d++) back.axes[a->axes[d]] = d;
    GRAD(0, aril__op_with(&back, &aril__op_permute, c->g[0]));
}

static const aril__sample permute_samples[] = {
    { .in = { "[2,3,4]" }, .attrs = &(const struct permute_attrs){ { 2, 0, 1 } } },
    { .in = { "[2,3]" },
      .attrs = &(const struct permute_attrs){ { 0, 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[]" }, .attrs = &(const struct permute_attrs){ { 0 } } },
    SAMPLE_END
};
OP(permute, .doc = "axes in a given order", .onnx = "Transpose", .min_in = 1, .max_in = 1,
   .n_out = 1, .out = { VIEW(0) }, .infer = permute_infer, .vjp = permute_vjp,
   .samples = permute_samples, WITH_ATTRS(permute));

/* ---- reshape ---- */

ATTR_LIST(reshape, RESHAPE_ATTRS)

/* Resolves -1 among requested sizes of which some are unknown, or those of x. False if the numbers
 * of elements certainly differ. */
static aril__cold bool fits_unknown(const aril_tensor *x, int n, int64_t *dim, int open)
{
    aril__sizes *sizes = aril__self()->sizes;
    int64_t others[ARIL_MAX_DIMS];
    int m = 0;
    if (open < 0) return !aril__size_differs(sizes, x->ndim, x->dim, n, dim);
    for (int i = 0; i < n; i++)
        if (i != open) others[m++] = dim[i];
    return aril__size_quotient(sizes, x->ndim, x->dim, m, others, &dim[open]);
}

/* The requested sizes, with -1 resolved if the input's sizes are known. */
static aril_status reshape_dims(const aril_tensor *x, const struct reshape_attrs *a, int64_t *dim)
{
    int open = -1, n = (int)a->ndim[0];
    int64_t known = 1;
    bool unknown = x->numel < 0;
    char from[ARIL__SHAPE_TEXT], to[ARIL__SHAPE_TEXT];
    for (int i = 0; i < n; i++) {
        dim[i] = a->dim[i];
        if (dim[i] == -1) {
            if (open >= 0)
                return aril__fail(ARIL_ERR_SHAPE, "reshape: only one size of %s can be inferred",
                                  aril__shape_text(to, n, a->dim));
            open = i;
        } else if (dim[i] < 0) {
            unknown = true;
        } else {
            known *= dim[i];
        }
    }
    if (unknown && fits_unknown(x, n, dim, open)) return ARIL_OK;
    if (!unknown && open >= 0 && known > 0 && x->numel % known == 0) {
        dim[open] = x->numel / known;
        return ARIL_OK;
    }
    if (!unknown && open < 0 && known == x->numel) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "reshape: %s does not have as many elements as %s",
                      aril__text(from, x), aril__shape_text(to, n, a->dim));
}

/* aril__view_strides for unknown sizes. */
static aril__cold bool unknown_strides(const aril_tensor *x, aril__meta *o)
{
    aril_tensor from = *x;
    aril__meta to = *o;
    int64_t have = 1, want = 1;
    for (int d = 0; d < x->ndim; d++) {
        from.dim[d] = aril__extent(x->dim[d]);
        if (__builtin_mul_overflow(have, from.dim[d], &have)) return false;
    }
    for (int d = 0; d < o->ndim; d++) {
        to.dim[d] = aril__extent(o->dim[d]);
        if (__builtin_mul_overflow(want, to.dim[d], &want)) return false;
    }
    from.numel = have;
    if (have != want || !aril__view_strides(&from, &to)) return false;
    memcpy(o->stride, to.stride, sizeof o->stride);
    return true;
}

bool aril__view_strides(const aril_tensor *x, aril__meta *o)
{
    bool unknown = x->numel < 0;
    for (int d = 0; d < o->ndim; d++) unknown |= o->dim[d] < 0;
    if (aril__unlikely(unknown)) return unknown_strides(x, o);
    if (x->numel == 0) {
        aril__dense_strides(o->ndim, o->dim, o->stride);
        return true;
    }
    /* Match groups of dimensions with equal numbers of elements on both sides. */
    int i = x->ndim - 1, k = o->ndim - 1;
    while (k >= 0 || i >= 0) {
        int64_t have = 1, want = 1;
        while (i >= 0 && x->dim[i] == 1) i--;
        int64_t step = i >= 0 ? x->stride[i] : 1;
        if (i >= 0) {
            have = x->dim[i];
            for (; i > 0; i--) { /* merge dimensions that are contiguous in memory */
                if (x->dim[i - 1] != 1 && x->stride[i - 1] != step * have) break;
                have *= x->dim[i - 1];
            }
            i--;
        }
        for (; k >= 0 && want * o->dim[k] <= have; k--) {
            if (want == have && o->dim[k] != 1) break;
            o->stride[k] = step * want;
            want *= o->dim[k];
        }
        if (want != have) return false;
    }
    return true;
}

/* Whether only the run can tell if a view is possible; it counts as contiguous until then. */
static bool is_open(const aril_tensor *x, aril__meta *o)
{
    bool unknown = x->numel < 0;
    for (int d = 0; d < o->ndim; d++) unknown |= o->dim[d] < 0;
    if (unknown) aril__dense_strides(o->ndim, o->dim, o->stride);
    return unknown;
}

static aril__cold aril_status no_view(const aril_shape *from, const aril_shape *to)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "view: %s cannot be viewed as %s without a copy; use aril_reshape",
                      aril__shape_text(a, from->ndim, from->dim),
                      aril__shape_text(b, to->ndim, to->dim));
}

static aril_status reshape_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    const struct reshape_attrs *a = c->attrs;
    aril_status s = reshape_dims(c->in[0], a, o->dim);
    if (s < 0) return s;
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = (int)a->ndim[0];
    o->offset = c->in[0]->offset;
    if (!aril__view_strides(c->in[0], o)) {
        if (is_open(c->in[0], o)) return ARIL_OK;
        aril_shape from = aril__shape(c->in[0]), to = { .ndim = o->ndim };
        memcpy(to.dim, o->dim, sizeof to.dim);
        return no_view(&from, &to);
    }
    return ARIL_OK;
}

VJP(reshape)
{
    if (c->g[0]) GRAD(0, aril__reshape_like(c->g[0], c->x[0]));
}

static const aril__sample reshape_samples[] = {
    { .in = { "[2,6]" }, .attrs = &(const struct reshape_attrs){ { 3 }, { 3, -1, 2 } } },
    { .in = { "[4,3]" },
      .attrs = &(const struct reshape_attrs){ { 2 }, { -1, 3 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[1]" }, .attrs = &(const struct reshape_attrs){ { 0 }, { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct reshape_attrs){ { 2 }, { 3, 0 } } },
    SAMPLE_END
};
OP(reshape, .doc = "the same elements in another shape", .onnx = "Reshape", .min_in = 1,
   .max_in = 1, .n_out = 1, .out = { VIEW(0) }, .infer = reshape_infer, .vjp = reshape_vjp,
   .saves = { LIKE(0) }, .samples = reshape_samples, WITH_ATTRS(reshape));

/* ---- slice ---- */

ATTR_LIST(slice, SLICE_ATTRS)

static aril_status slice_infer(aril__call *c)
{
    const struct slice_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int axis = (int)a->axis[0];
    int64_t n = x->dim[axis], start = a->start[0], stop = a->stop[0], step = a->step[0];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    memcpy(o->stride, x->stride, (size_t)x->ndim * sizeof *x->stride);
    o->offset = x->offset;
    if (n < 0) { /* unknown size: a full slice keeps it, the size of a part is unknown too */
        bool full = step == 1 && start == 0 && stop == INT64_MAX;
        o->dim[axis] = full ? n : -1;
        return ARIL_OK;
    }
    /* Python's rules: negative positions count from the end, then all are clamped. */
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if (start < 0) start += n;
    if (stop < 0 && stop != INT64_MIN) stop += n;
    start = start < low ? low : start > high ? high : start;
    stop = stop < low ? low : stop > high ? high : stop;
    int64_t span = step > 0 ? stop - start : start - stop, count = 0;
    if (span > 0)
        count = 1 + (int64_t)((uint64_t)(span - 1) / (step > 0 ? (uint64_t)step : -(uint64_t)step));
    o->dim[axis] = count;
    if (count > 1) o->stride[axis] *= step; /* a step beyond the axis may be arbitrarily large */
    if (count > 0) o->offset += start * x->stride[axis];
    return ARIL_OK;
}

VJP(slice)
{
    if (c->g[0]) GRAD(0, aril__parts_written(1, c));
}

typedef struct part {
    int64_t start;
    aril_tensor *grad;
} part;

static int by_start(const void *a, const void *b)
{
    int64_t x = ((const part *)a)->start, y = ((const part *)b)->start;
    return (x > y) - (x < y);
}

/* The parts in the order of their axis; false if they share elements or are in steps. */
static bool sort_parts(int n, const aril__grad *calls, part *parts)
{
    const struct slice_attrs *first = calls[0].attrs;
    int axis = (int)first->axis[0];
    int64_t size = calls[0].x[0]->dim[axis], end = 0;
    for (int i = 0; i < n; i++) {
        const struct slice_attrs *a = calls[i].attrs;
        int64_t start = a->start[0] < 0 ? a->start[0] + size : a->start[0];
        if (a->axis[0] != axis || a->step[0] != 1 || start < 0) return false;
        parts[i] = (part){ start, calls[i].g[0] };
    }
    qsort(parts, (size_t)n, sizeof *parts, by_start);
    for (int i = 0; i < n; i++) {
        if (parts[i].start < end || parts[i].grad->dim[axis] <= 0) return false;
        end = parts[i].start + parts[i].grad->dim[axis];
    }
    return true;
}

/* Parts that share no elements. Those that cover the axis, such as those of aril_split, are
 * concatenated: no zeros are written, and nothing is added. Others are written into the same
 * zeros. */
static aril_tensor *slice_join(int n, const aril__grad *calls)
{
    const struct slice_attrs *first = calls[0].attrs;
    int axis = (int)first->axis[0];
    int64_t size = calls[0].x[0]->dim[axis], covered = 0;
    if (size < 0) return NULL;
    part *parts = aril__malloc((size_t)n * (sizeof *parts + sizeof(aril_tensor *)));
    if (!parts) return NULL;
    aril_tensor **grads = (aril_tensor **)(void *)(parts + n), *whole = NULL;
    if (sort_parts(n, calls, parts)) {
        for (int i = 0; i < n; i++) {
            grads[i] = parts[i].grad;
            covered += grads[i]->dim[axis];
        }
        whole = covered == size ? aril_cat((aril_list){ n, grads }, axis)
                                : aril__parts_written(n, calls);
    }
    free(parts);
    return whole;
}

static const aril__sample slice_samples[] = {
    { .in = { "[5,3]" }, .attrs = &(const struct slice_attrs){ { 0 }, { 1 }, { 4 }, { 1 } } },
    { .in = { "[5,3]" },
      .attrs = &(const struct slice_attrs){ { 0 }, { -1 }, { INT64_MIN }, { -2 } } },
    { .in = { "[2,6]" },
      .attrs = &(const struct slice_attrs){ { 1 }, { 1 }, { INT64_MAX }, { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3]" }, .attrs = &(const struct slice_attrs){ { 1 }, { 3 }, { 3 }, { 1 } } },
    SAMPLE_END
};
OP(slice, .doc = "part of an axis: start:stop:step", .onnx = "Slice", .min_in = 1, .max_in = 1,
   .n_out = 1, .out = { VIEW(0) }, .infer = slice_infer, .vjp = slice_vjp, .join = slice_join,
   .saves = { LIKE(0) }, .samples = slice_samples, WITH_ATTRS(slice));

/* ---- expand ---- */

ATTR_LIST(expand, EXPAND_ATTRS)

void aril__expand_strides(const aril_tensor *x, aril__meta *o)
{
    int lead = o->ndim - x->ndim;
    o->offset = x->offset;
    for (int d = 0; d < o->ndim; d++)
        o->stride[d] = d >= lead && x->dim[d - lead] == o->dim[d] ? x->stride[d - lead] : 0;
}

static aril_status expand_infer(aril__call *c)
{
    const struct expand_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int lead = (int)a->ndim[0] - x->ndim;
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = (int)a->ndim[0];
    bool fits = lead >= 0;
    for (int d = 0; d < o->ndim && fits; d++) {
        int64_t have = d < lead ? 1 : x->dim[d - lead], want = a->dim[d];
        o->dim[d] = want == -1 && d >= lead ? have : want;
        fits = (want != -1 || d >= lead) && (have == 1 || aril__size_fits(have, o->dim[d]));
    }
    if (!fits) {
        char from[ARIL__SHAPE_TEXT], to[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "expand: %s does not broadcast to %s",
                          aril__text(from, x), aril__shape_text(to, (int)a->ndim[0], a->dim));
    }
    aril__expand_strides(x, o);
    return ARIL_OK;
}

VJP(expand)
{
    if (c->g[0]) GRAD(0, aril__sum_to_like(c->g[0], c->x[0]));
}

static const aril__sample expand_samples[] = {
    { .in = { "[3,1]" }, .attrs = &(const struct expand_attrs){ { 3 }, { 2, -1, 4 } } },
    { .in = { "[2,1]" },
      .attrs = &(const struct expand_attrs){ { 2 }, { -1, 3 } },
      .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(expand, .doc = "broadcasts axes of size 1, without copying", .onnx = "Expand", .min_in = 1,
   .max_in = 1, .n_out = 1, .out = { VIEW(0) }, .infer = expand_infer, .vjp = expand_vjp,
   .saves = { LIKE(0) }, .samples = expand_samples, WITH_ATTRS(expand));

/* ---- squeeze and unsqueeze ---- */

ATTR_LIST(unsqueeze, UNSQUEEZE_ATTRS)

static aril_status unsqueeze_infer(aril__call *c)
{
    int64_t mask = ((const struct unsqueeze_attrs *)c->attrs)->mask[0];
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)x->dtype;
    o->offset = x->offset;
    o->ndim = x->ndim + __builtin_popcountll((unsigned long long)mask);
    if (o->ndim > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "unsqueeze: more than %d dimensions", ARIL_MAX_DIMS);
    for (int d = 0, k = 0; d < o->ndim; d++) {
        bool fresh = mask >> d & 1;
        o->dim[d] = fresh ? 1 : x->dim[k];
        o->stride[d] = fresh ? 1 : x->stride[k++];
    }
    return ARIL_OK;
}

static aril_status squeeze_infer(aril__call *c)
{
    int64_t mask = ((const struct unsqueeze_attrs *)c->attrs)->mask[0];
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)x->dtype;
    o->offset = x->offset;
    o->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (mask >> d & 1 && x->dim[d] != 1 && x->dim[d] >= 0) {
            char text[ARIL__SHAPE_TEXT];
            return aril__fail(ARIL_ERR_SHAPE, "squeeze: axis %d of %s does not have size 1", d,
                              aril__text(text, x));
        }
        if (mask >> d & 1) continue;
        o->dim[o->ndim] = x->dim[d];
        o->stride[o->ndim++] = x->stride[d];
    }
    return ARIL_OK;
}

VJP(unsqueeze)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_squeeze, c->g[0]));
}

VJP(squeeze)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_unsqueeze, c->g[0]));
}

static const aril__sample unsqueeze_samples[] = {
    { .in = { "[2,3]" }, .attrs = &(const struct unsqueeze_attrs){ { 2 } }, .flags = SAMPLE_BATCH },
    { .in = { "[]" }, .attrs = &(const struct unsqueeze_attrs){ { 3 } } },
    SAMPLE_END
};
OP(unsqueeze, .doc = "inserts axes of size 1", .onnx = "Unsqueeze", .min_in = 1, .max_in = 1,
   .n_out = 1, .out = { VIEW(0) }, .infer = unsqueeze_infer, .vjp = unsqueeze_vjp,
   .samples = unsqueeze_samples, WITH_ATTRS(unsqueeze));

static const aril__sample squeeze_samples[] = {
    { .in = { "[2,1,3]" },
      .attrs = &(const struct unsqueeze_attrs){ { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[1]" }, .attrs = &(const struct unsqueeze_attrs){ { 1 } } },
    SAMPLE_END
};
OP(squeeze, .doc = "removes axes of size 1", .onnx = "Squeeze", .min_in = 1, .max_in = 1,
   .n_out = 1, .out = { VIEW(0) }, .infer = squeeze_infer, .vjp = squeeze_vjp,
   .samples = squeeze_samples, WITH_ATTRS(unsqueeze));

/* ---- flatten ---- */

ATTR_LIST(flatten, FLATTEN_ATTRS)

static int64_t merged_size(const aril_tensor *x, int start, int end)
{
    if (x->ndim == 0) return 1;
    if (x->numel >= 0) return aril__count(end - start + 1, x->dim + start);
    return aril__size_product(aril__self()->sizes, end - start + 1, x->dim + start);
}

static void merged_shape(aril__call *c, int start, int end)
{
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    o->ndim = 0;
    for (int d = 0; d < start; d++) o->dim[o->ndim++] = x->dim[d];
    o->dim[o->ndim++] = merged_size(x, start, end);
    for (int d = end + 1; d < x->ndim; d++) o->dim[o->ndim++] = x->dim[d];
}

static aril_status flatten_infer(aril__call *c)
{
    const struct flatten_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int start = (int)a->start[0], end = (int)a->end[0], last = x->ndim ? x->ndim - 1 : 0;
    if (start < 0 || start > end || end > last)
        return aril__fail(ARIL_ERR_INDEX,
                          "flatten: axes %d to %d are out of range for %d dimensions", start, end,
                          x->ndim);
    o->dtype = (aril_dtype)x->dtype;
    o->offset = x->offset;
    merged_shape(c, start, end);
    if (!aril__view_strides(x, o)) {
        char text[ARIL__SHAPE_TEXT];
        if (is_open(x, o)) return ARIL_OK;
        return aril__fail(ARIL_ERR_SHAPE, "flatten: axes %d to %d of %s are not contiguous", start,
                          end, aril__text(text, x));
    }
    return ARIL_OK;
}

static const aril__sample flatten_samples[] = {
    { .in = { "[2,3,4]" },
      .attrs = &(const struct flatten_attrs){ { 1 }, { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct flatten_attrs){ { 0 }, { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct flatten_attrs){ { 0 }, { 0 } } },
    { .in = { "[2,0,3]" }, .attrs = &(const struct flatten_attrs){ { 0 }, { 2 } } },
    SAMPLE_END
};
OP(flatten, .doc = "merges adjacent axes into one", .min_in = 1, .max_in = 1, .n_out = 1,
   .out = { VIEW(0) }, .infer = flatten_infer, .vjp = reshape_vjp, .saves = { LIKE(0) },
   .samples = flatten_samples, WITH_ATTRS(flatten));

/* ---- public ---- */

aril_tensor *aril__refuse(const char *what, aril_tensor *x)
{
    if (!x) return aril__null_tensor(what);
    return aril__is_poison(x) ? aril__pass_on(x) : NULL;
}

aril_tensor *aril_permute(aril_tensor *x, aril_axes axes)
{
    aril_tensor *bad = aril__refuse("permute", x);
    struct permute_attrs a = { { 0 } };
    unsigned seen = 0;
    if (bad) return bad;
    if (axes.n != x->ndim) {
        aril__fail(ARIL_ERR_SHAPE, "permute: got %d axes for %d dimensions", axes.n, x->ndim);
        return aril__poison();
    }
    for (int i = 0; i < axes.n; i++) {
        int d = aril__axis("permute", axes.axis[i], x->ndim);
        if (d < 0) return aril__poison();
        if (seen >> d & 1) {
            aril__fail(ARIL_ERR_ARG, "permute: axis %d appears twice", axes.axis[i]);
            return aril__poison();
        }
        seen |= 1u << d;
        a.axes[i] = d;
    }
    return aril__op_with(&a, &aril__op_permute, x);
}

aril_tensor *aril_transpose(aril_tensor *x, int axis0, int axis1)
{
    aril_tensor *bad = aril__refuse("transpose", x);
    if (bad) return bad;
    int p = aril__axis("transpose", axis0, x->ndim), q = aril__axis("transpose", axis1, x->ndim);
    if (p < 0 || q < 0) return aril__poison();
    struct permute_attrs a = { { 0, 1, 2, 3, 4, 5, 6, 7 } };
    a.axes[p] = q;
    a.axes[q] = p;
    return aril__op_with(&a, &aril__op_permute, x);
}

aril_tensor *aril_t(aril_tensor *x)
{
    aril_tensor *bad = aril__refuse("t", x);
    if (bad) return bad;
    if (x->ndim > 2) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "t: %s has more than 2 dimensions; use aril_transpose",
                   aril__text(text, x));
        return aril__poison();
    }
    return x->ndim < 2 ? x : aril_transpose(x, 0, 1);
}

static aril_tensor *view_as(aril_tensor *x, aril_shape shape, bool may_copy)
{
    struct reshape_attrs a = { { shape.ndim }, { 0 } };
    aril__meta o = { .ndim = shape.ndim };
    memcpy(a.dim, shape.dim, sizeof a.dim);
    if (reshape_dims(x, &a, o.dim) < 0) return aril__poison();
    if (may_copy && !aril__view_strides(x, &o) && !is_open(x, &o)) x = aril_contiguous(x);
    return aril__op_with(&a, &aril__op_reshape, x);
}

/* shape: of the tensor and of the view. number: the axes of the tensor from the outermost in memory
 * to the innermost, in three bits each, and the axis of the view that is inferred, -1: none. */
static aril_status is_viewable(const aril__requirement *q)
{
    aril_tensor x = { .ndim = (uint8_t)q->shape[0].ndim, .numel = 1 };
    aril__meta o = { .ndim = q->shape[1].ndim };
    int64_t step = 1;
    for (int i = x.ndim - 1; i >= 0; i--) {
        int64_t d = q->number[0] >> 3 * i & 7;
        if (q->shape[0].dim[d] < 0) return ARIL_OK;
        x.dim[d] = q->shape[0].dim[d];
        x.stride[d] = step;
        x.numel *= x.dim[d];
        step *= aril__extent(x.dim[d]);
    }
    struct reshape_attrs a = { .ndim = { o.ndim } };
    for (int d = 0; d < o.ndim; d++) {
        a.dim[d] = d == q->number[1] ? -1 : q->shape[1].dim[d];
        if (a.dim[d] < 0 && d != q->number[1]) return ARIL_OK;
    }
    aril_status s = reshape_dims(&x, &a, o.dim);
    if (s < 0 || aril__view_strides(&x, &o)) return s;
    aril_shape to = { .ndim = o.ndim };
    memcpy(to.dim, o.dim, sizeof to.dim);
    return no_view(&q->shape[0], &to);
}

/* Of a tensor of unknown sizes, only a run knows whether a view is possible without a copy. */
static aril_status require_view(aril_tensor *x, const aril_shape *to)
{
    int order[ARIL_MAX_DIMS];
    int64_t step = 1;
    aril__requirement q;
    if (x->numel >= 0) return ARIL_OK;
    for (int d = 0; d < x->ndim; d++) { /* insertion by strides */
        int at = d;
        for (; at > 0 && x->stride[order[at - 1]] < x->stride[d]; at--) order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = x->ndim - 1; i >= 0; i--) { /* what has gaps is judged by the run alone */
        if (x->dim[order[i]] != 1 && x->stride[order[i]] != step) return ARIL_OK;
        step *= aril__extent(x->dim[order[i]]);
    }
    memset(&q, 0, sizeof q);
    q.check = is_viewable;
    q.n_shapes = q.n_numbers = 2;
    q.shape[0] = aril__shape(x);
    q.shape[1].ndim = to->ndim;
    for (int i = 0; i < x->ndim; i++) q.number[0] |= (int64_t)order[i] << 3 * i;
    q.number[1] = -1;
    for (int d = 0; d < to->ndim; d++) {
        if (to->dim[d] == -1) q.number[1] = d;
        q.shape[1].dim[d] = to->dim[d] == -1 ? 0 : to->dim[d];
    }
    return aril__require_now(&q, 1, &x);
}

aril_tensor *aril_reshape(aril_tensor *x, aril_shape shape)
{
    aril_tensor *bad = aril__refuse("reshape", x);
    if (bad || aril__check_shape("reshape", shape, true) < 0) return bad ? bad : aril__poison();
    return view_as(x, shape, true);
}

aril_tensor *aril_view(aril_tensor *x, aril_shape shape)
{
    aril_tensor *bad = aril__refuse("view", x);
    if (bad || aril__check_shape("view", shape, true) < 0) return bad ? bad : aril__poison();
    return require_view(x, &shape) < 0 ? aril__poison() : view_as(x, shape, false);
}

aril_tensor *aril_unsqueeze(aril_tensor *x, int axis)
{
    aril_tensor *bad = aril__refuse("unsqueeze", x);
    if (bad) return bad;
    int at = aril__axis("unsqueeze", axis, x->ndim + 1);
    if (at < 0) return aril__poison();
    struct unsqueeze_attrs a = { { 1 << at } };
    return aril__op_with(&a, &aril__op_unsqueeze, x);
}

aril_tensor *aril_slice(aril_tensor *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    aril_tensor *bad = aril__refuse("slice", x);
    if (bad) return bad;
    if (x->ndim == 0) {
        aril__fail(ARIL_ERR_SHAPE, "slice: a 0-d tensor has no axis to slice");
        return aril__poison();
    }
    int at = aril__axis("slice", axis, x->ndim);
    if (at < 0) return aril__poison();
    if (step == 0) {
        aril__fail(ARIL_ERR_ARG, "slice: the step must not be 0");
        return aril__poison();
    }
    if (step < 0 && stop == ARIL_END) stop = INT64_MIN;
    struct slice_attrs a = { { at }, { start }, { stop }, { step } };
    return aril__op_with(&a, &aril__op_slice, x);
}

aril_tensor *aril_expand(aril_tensor *x, aril_shape shape)
{
    aril_tensor *bad = aril__refuse("expand", x);
    if (bad || aril__check_shape("expand", shape, true) < 0) return bad ? bad : aril__poison();
    struct expand_attrs a = { { shape.ndim }, { 0 } };
    memcpy(a.dim, shape.dim, sizeof a.dim);
    return aril__op_with(&a, &aril__op_expand, x);
}

aril_tensor *aril_broadcast_to(aril_tensor *x, aril_shape shape)
{
    return aril_expand(x, shape);
}

/* Whether an axis is removed. Of an unknown size, if it was 1 when it was traced; if that is not
 * known either, an axis that was `asked` for is. */
static bool is_squeezed(const aril_tensor *x, int axis, bool asked)
{
    int64_t n = x->dim[axis] < 0 ? aril__traced_size(x, axis) : x->dim[axis];
    return n < 0 ? asked : n == 1;
}

/* number: the axes that are removed, and those that the caller named (0: all axes of size 1). */
static aril_status stays_squeezed(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0];
    for (int d = 0; d < x->ndim; d++) {
        bool one = x->dim[d] == 1, removed = q->number[0] >> d & 1;
        bool named = q->number[1] == 0 || q->number[1] >> d & 1;
        if (x->dim[d] < 0 || !named || one == removed) continue;
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "squeeze: axis %d of %s %s size 1, unlike when the graph was built, so "
                          "that the result has another number of dimensions; build a graph for "
                          "this size, or use aril_reshape",
                          d, aril__shape_text(text, x->ndim, x->dim),
                          one ? "has" : "does not have");
    }
    return ARIL_OK;
}

aril_tensor *aril_squeeze(aril_tensor *x, aril_axes axes)
{
    aril_tensor *bad = aril__refuse("squeeze", x);
    if (bad) return bad;
    struct unsqueeze_attrs a = { { 0 } };
    unsigned seen = 0;
    if (axes.n < 0 || axes.n > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_ARG, "squeeze: invalid number of axes %d", axes.n);
        return aril__poison();
    }
    for (int i = 0; i < axes.n; i++) {
        int d = aril__axis("squeeze", axes.axis[i], x->ndim);
        if (d < 0) return aril__poison();
        if (seen >> d & 1) {
            aril__fail(ARIL_ERR_ARG, "squeeze: axis %d appears twice", axes.axis[i]);
            return aril__poison();
        }
        seen |= 1u << d;
        if (x->ndim && is_squeezed(x, d, true)) a.mask[0] |= 1 << d;
    }
    for (int d = 0; d < x->ndim && axes.n == 0; d++)
        if (is_squeezed(x, d, false)) a.mask[0] |= 1 << d;
    aril_tensor *of[1] = { x };
    if (x->numel < 0 &&
        aril__require("squeeze", stays_squeezed, 1, of, 2, (int64_t[]){ a.mask[0], seen }) < 0)
        return aril__poison();
    return aril__op_with(&a, &aril__op_squeeze, x);
}

aril_tensor *aril_flatten(aril_tensor *x, int start, int end)
{
    aril_tensor *bad = aril__refuse("flatten", x);
    if (bad) return bad;
    int from = aril__axis("flatten", start, x->ndim), to = aril__axis("flatten", end, x->ndim);
    if (from < 0 || to < 0) return aril__poison();
    if (from > to) {
        aril__fail(ARIL_ERR_ARG, "flatten: axis %d comes after axis %d", start, end);
        return aril__poison();
    }
    struct flatten_attrs a = { { from }, { to } };
    aril__call c = { .op = &aril__op_flatten, .attrs = &a, .n_in = 1, .in = &x };
    merged_shape(&c, from, to);
    if (!aril__view_strides(x, &c.out[0])) x = aril_contiguous(x);
    return aril__op_with(&a, &aril__op_flatten, x);
}

aril_tensor *aril_swapaxes(aril_tensor *x, int axis0, int axis1)
{
    return aril_transpose(x, axis0, axis1);
}

aril_tensor *aril_movedim(aril_tensor *x, aril_axes from, aril_axes to)
{
    aril_tensor *bad = aril__refuse("movedim", x);
    if (bad) return bad;
    if (from.n != to.n) {
        aril__fail(ARIL_ERR_ARG, "movedim: got %d source axes and %d destinations", from.n, to.n);
        return aril__poison();
    }
    int source[ARIL_MAX_DIMS], moved[ARIL_MAX_DIMS] = { 0 };
    for (int d = 0; d < ARIL_MAX_DIMS; d++) source[d] = -1;
    for (int i = 0; i < from.n; i++) {
        int s = aril__axis("movedim", from.axis[i], x->ndim);
        int d = aril__axis("movedim", to.axis[i], x->ndim);
        if (s < 0 || d < 0) return aril__poison();
        if (moved[s] || source[d] >= 0) {
            aril__fail(ARIL_ERR_ARG, "movedim: an axis appears twice");
            return aril__poison();
        }
        moved[s] = 1;
        source[d] = s;
    }
    struct permute_attrs a = { { 0 } };
    for (int d = 0, next = 0; d < x->ndim; d++) {
        if (source[d] < 0) {
            while (moved[next]) next++;
            source[d] = next++;
        }
        a.axes[d] = source[d];
    }
    return aril__op_with(&a, &aril__op_permute, x);
}
