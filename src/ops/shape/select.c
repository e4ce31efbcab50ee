/* Views of part of a tensor. */
#include "ops/shape/view.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"
#include "ops/shape/view_write.h"

#include <stdlib.h>
#include <string.h>

/* Elements outside the view get a gradient of zero. */
static aril_tensor *into_zeros(aril__grad *c)
{
    return aril__parts_written(1, c);
}

/* ---- select ---- */

ATTR_LIST(select, SELECT_ATTRS)

static aril_status select_infer(aril__call *c)
{
    const struct select_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int axis = (int)a->axis[0];
    int64_t index = a->index[0], n = x->dim[axis];
    if (n >= 0 && (index < -n || index >= n)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_INDEX, "select: index %lld is out of range for axis %d of %s",
                          (long long)index, axis, aril__text(text, x));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d == axis) continue;
        o->dim[o->ndim] = x->dim[d];
        o->stride[o->ndim++] = x->stride[d];
    }
    o->offset = x->offset + (n < 0 ? 0 : (index < 0 ? index + n : index) * x->stride[axis]);
    return ARIL_OK;
}

VJP(select)
{
    if (c->g[0]) GRAD(0, into_zeros(c));
}

/* Different indices. All of an axis, such as those of aril_unbind, are stacked; others are written
 * into the same zeros. */
static aril_tensor *select_join(int n, const aril__grad *calls)
{
    const struct select_attrs *first = calls[0].attrs;
    int64_t axis = first->axis[0], size = calls[0].x[0]->dim[axis];
    enum { SPARSE = 1024 }; /* indices in vain for each that is used */
    if (size < n || size / n > SPARSE) return NULL;
    aril_tensor **part = aril__calloc((size_t)size * sizeof *part), *whole = NULL;
    int distinct = 0;
    for (int i = 0; i < n && part; i++) {
        const struct select_attrs *a = calls[i].attrs;
        int64_t at = a->index[0] < 0 ? a->index[0] + size : a->index[0];
        if (a->axis[0] != axis || part[at]) break;
        part[at] = calls[i].g[0];
        distinct++;
    }
    if (distinct == n)
        whole = size == n ? aril_stack((aril_list){ n, part }, (int)axis)
                          : aril__parts_written(n, calls);
    free(part);
    return whole;
}

static const aril__sample select_samples[] = {
    { .in = { "[3,4]" }, .attrs = &(const struct select_attrs){ { 0 }, { -1 } } },
    { .in = { "[3,4,2]" },
      .attrs = &(const struct select_attrs){ { 1 }, { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3]" }, .attrs = &(const struct select_attrs){ { 0 }, { 0 } } },
    { .in = { "[0,2]" }, .attrs = &(const struct select_attrs){ { 1 }, { 1 } } },
    SAMPLE_END
};
OP(select, .doc = "one index of an axis; the axis is removed", .min_in = 1, .max_in = 1, .n_out = 1,
   .out = { VIEW(0) }, .infer = select_infer, .vjp = select_vjp, .join = select_join,
   .saves = { LIKE(0) }, .samples = select_samples, WITH_ATTRS(select));

/* ---- diagonal ---- */

ATTR_LIST(diagonal, DIAGONAL_ATTRS)

static aril_status diagonal_infer(aril__call *c)
{
    const struct diagonal_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int p = (int)a->axis[0], q = (int)a->axis[1];
    int64_t rows = x->dim[p], columns = x->dim[q], offset = a->offset[0], n = -1;
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = 0;
    o->offset = x->offset;
    for (int d = 0; d < x->ndim; d++) {
        if (d == p || d == q) continue;
        o->dim[o->ndim] = x->dim[d];
        o->stride[o->ndim++] = x->stride[d];
    }
    if (rows >= 0 && columns >= 0) {
        bool none = offset <= -rows || offset >= columns;
        int64_t from_row = offset < 0 && !none ? -offset : 0;
        int64_t from_column = offset > 0 && !none ? offset : 0;
        int64_t down = rows - from_row, right = columns - from_column;
        n = none ? 0 : down < right ? down : right;
        if (!none) o->offset += from_row * x->stride[p] + from_column * x->stride[q];
    }
    o->dim[o->ndim] = n;
    o->stride[o->ndim++] = x->stride[p] + x->stride[q];
    return ARIL_OK;
}

VJP(diagonal)
{
    if (c->g[0]) GRAD(0, into_zeros(c));
}

static const aril__sample diagonal_samples[] = {
    { .in = { "[3,4]" }, .attrs = &(const struct diagonal_attrs){ { 0 }, { 0, 1 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct diagonal_attrs){ { 1 }, { 1, 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3,2,3]" }, .attrs = &(const struct diagonal_attrs){ { -1 }, { 2, 0 } } },
    { .in = { "[2,3]" }, .attrs = &(const struct diagonal_attrs){ { 5 }, { 0, 1 } } },
    SAMPLE_END
};
OP(diagonal, .doc = "the diagonal of two axes, as a new last axis", .min_in = 1, .max_in = 1,
   .n_out = 1, .out = { VIEW(0) }, .infer = diagonal_infer, .vjp = diagonal_vjp,
   .saves = { LIKE(0) }, .samples = diagonal_samples, WITH_ATTRS(diagonal));

/* ---- public ---- */

/* The axis of a tensor that has one, or -1 with an error. */
static int axis_of(const char *what, const aril_tensor *x, int axis)
{
    if (x->ndim > 0) return aril__axis(what, axis, x->ndim);
    aril__fail(ARIL_ERR_SHAPE, "%s: a 0-d tensor has no axis", what);
    return -1;
}

aril_tensor *aril_select(aril_tensor *x, int axis, int64_t index)
{
    aril_tensor *bad = aril__refuse("select", x);
    if (bad) return bad;
    int at = axis_of("select", x, axis);
    if (at < 0) return aril__poison();
    struct select_attrs a = { { at }, { index } };
    return aril__op_with(&a, &aril__op_select, x);
}

aril_tensor *aril_diagonal(aril_tensor *x, int64_t offset, int axis0, int axis1)
{
    aril_tensor *bad = aril__refuse("diagonal", x);
    if (bad) return bad;
    if (x->ndim < 2) {
        aril__fail(ARIL_ERR_SHAPE, "diagonal: expected at least 2 dimensions, got %d", x->ndim);
        return aril__poison();
    }
    int p = aril__axis("diagonal", axis0, x->ndim), q = aril__axis("diagonal", axis1, x->ndim);
    if (p < 0 || q < 0) return aril__poison();
    if (p == q) {
        aril__fail(ARIL_ERR_ARG, "diagonal: axis %d appears twice", axis0);
        return aril__poison();
    }
    struct diagonal_attrs a = { { offset }, { p, q } };
    return aril__op_with(&a, &aril__op_diagonal, x);
}

/* number: the axis, start, length. */
static aril_status is_within(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0];
    int64_t at = q->number[0], start = q->number[1], length = q->number[2], n = x->dim[at];
    if (aril__size_is_named(length) && start == 0) return ARIL_OK; /* an unknown size */
    if (n < 0 && length >= 0 && !(start < 0 && length > -start)) return ARIL_OK;
    int64_t from = start < 0 ? start + n : start;
    if (length >= 0 && n >= 0 && from >= 0 && from <= n && length <= n - from) return ARIL_OK;
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_INDEX,
                      "%s: length %lld from start %lld is out of range for axis %d of %s", q->what,
                      (long long)length, (long long)start, (int)at,
                      aril__shape_text(text, x->ndim, x->dim));
}

static aril_tensor *narrow(const char *what, aril_tensor *x, int at, int64_t start, int64_t length)
{
    int64_t n = x->dim[at], numbers[3] = { at, start, length };
    if (aril__size_is_named(length) && !(x->flags & ARIL__SYMBOLIC)) { /* it is not traced */
        aril__fail(ARIL_ERR_STATE,
                   "%s: the length is a size that only a run knows, but the tensor is none that it "
                   "computes; use aril_expand or aril_arange with that size",
                   what);
        return aril__poison();
    }
    if (aril__require(what, is_within, 1, &x, 3, numbers) < 0) return aril__poison();
    if (start < 0 && n >= 0) start += n;
    bool to_end = start < 0 && start + length == 0; /* of an unknown size */
    return aril_slice(x, at, start, to_end ? ARIL_END : start + length, 1);
}

aril_tensor *aril_narrow(aril_tensor *x, int axis, int64_t start, int64_t length)
{
    aril_tensor *bad = aril__refuse("narrow", x);
    if (bad) return bad;
    int at = axis_of("narrow", x, axis);
    return at < 0 ? aril__poison() : narrow("narrow", x, at, start, length);
}

aril_tensor *aril_flip(aril_tensor *x, aril_axes axes)
{
    aril_tensor *bad = aril__refuse("flip", x);
    unsigned seen = 0;
    if (bad) return bad;
    if (axes.n < 0 || axes.n > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_ARG, "flip: invalid number of axes %d", axes.n);
        return aril__poison();
    }
    for (int i = 0; i < axes.n; i++) {
        int d = aril__axis("flip", axes.axis[i], x->ndim);
        if (d < 0) return aril__poison();
        if (seen >> d & 1) {
            aril__fail(ARIL_ERR_ARG, "flip: axis %d appears twice", axes.axis[i]);
            return aril__poison();
        }
        seen |= 1u << d;
    }
    ARIL_SCOPE;
    aril_tensor *y = x;
    for (int d = 0; d < x->ndim; d++)
        if (axes.n == 0 || seen >> d & 1) y = aril_slice(y, d, -1, ARIL_END, -1);
    return aril_escape(y);
}

/* ---- splitting ---- */

/* The axis, if its size is known; or -1 with an error. */
static int known_axis(const char *what, const aril_tensor *x, int axis)
{
    if (!x) {
        aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
        return -1;
    }
    if (x->flags & ARIL__POISON) {
        aril__refuse_poison(what, -1, x);
        return -1;
    }
    int at = axis_of(what, x, axis);
    if (at >= 0 && x->dim[at] < 0) {
        aril__fail(ARIL_ERR_SHAPE, "%s: the size of axis %d is unknown", what, at);
        return -1;
    }
    return at;
}

static aril_status last_status(void)
{
    const aril__error *e = aril__self()->last_error;
    return e ? e->code : ARIL_ERR_ARG;
}

/* The number of parts of `size` in an axis of n. */
static int64_t parts(int64_t n, int64_t size)
{
    return n == 0 ? 1 : (n - 1) / size + 1;
}

/* The status of views that were all created, or that are all poison now. */
static aril_status all_created(int64_t n, aril_tensor **out)
{
    aril__fail_together(n, out);
    return n > 0 ? aril_tensor_status(out[0]) : ARIL_OK;
}

static aril_status split(const char *what, aril_tensor *x, int64_t size, int at, aril_tensor **out)
{
    int64_t n = x->dim[at], count = parts(n, size);
    for (int64_t i = 0; i < count; i++) {
        int64_t left = n - i * size;
        out[i] = narrow(what, x, at, i * size, left < size ? left : size);
    }
    return all_created(count, out);
}

int64_t aril_split_count(const aril_tensor *x, int64_t size, int axis)
{
    int at = known_axis("split", x, axis);
    if (at < 0) return -1;
    if (size < 0 || (size == 0 && x->dim[at] != 0)) {
        aril__fail(ARIL_ERR_ARG, "split: invalid part size %lld", (long long)size);
        return -1;
    }
    return parts(x->dim[at], size);
}

aril_status aril_split(aril_tensor *x, int64_t size, int axis, aril_tensor **out)
{
    if (aril_split_count(x, size, axis) < 0) return last_status();
    if (!out) return aril__fail(ARIL_ERR_ARG, "split: the output array is NULL");
    return split("split", x, size, aril__axis("split", axis, x->ndim), out);
}

aril_status aril_split_sizes(aril_tensor *x, const int64_t *sizes, int n, int axis,
                             aril_tensor **out)
{
    int at = known_axis("split_sizes", x, axis);
    if (at < 0) return last_status();
    if (n < 0 || (n > 0 && (!sizes || !out)))
        return aril__fail(ARIL_ERR_ARG,
                          "split_sizes: %d sizes, or the sizes or output array is NULL", n);
    int64_t sum = 0, start = 0;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > x->dim[at] - sum) {
            sum = -1;
            break;
        }
        sum += sizes[i];
    }
    if (sum != x->dim[at]) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "split_sizes: the sizes do not add up to axis %d of %s",
                          at, aril__text(text, x));
    }
    for (int i = 0; i < n; i++) {
        out[i] = narrow("split_sizes", x, at, start, sizes[i]);
        start += sizes[i];
    }
    return all_created(n, out);
}

int64_t aril_chunk_count(const aril_tensor *x, int64_t chunks, int axis)
{
    int at = known_axis("chunk", x, axis);
    if (at < 0) return -1;
    if (chunks < 1) {
        aril__fail(ARIL_ERR_ARG, "chunk: the number of chunks must be at least 1, got %lld",
                   (long long)chunks);
        return -1;
    }
    /* An empty axis gives the requested number of empty parts, as in PyTorch. */
    int64_t n = x->dim[at];
    return n == 0 ? chunks : parts(n, parts(n, chunks));
}

aril_status aril_chunk(aril_tensor *x, int64_t chunks, int axis, aril_tensor **out)
{
    int64_t count = aril_chunk_count(x, chunks, axis);
    if (count < 0) return last_status();
    if (!out) return aril__fail(ARIL_ERR_ARG, "chunk: the output array is NULL");
    int at = aril__axis("chunk", axis, x->ndim);
    if (x->dim[at] > 0) return split("chunk", x, parts(x->dim[at], chunks), at, out);
    for (int64_t i = 0; i < count; i++) out[i] = narrow("chunk", x, at, 0, 0);
    return all_created(count, out);
}

aril_status aril_tensor_split(aril_tensor *x, int64_t n, int axis, aril_tensor **out)
{
    int at = known_axis("tensor_split", x, axis);
    if (at < 0) return last_status();
    if (n < 1 || !out)
        return aril__fail(ARIL_ERR_ARG, "tensor_split: %lld parts, or no array", (long long)n);
    int64_t size = x->dim[at] / n, larger = x->dim[at] % n;
    for (int64_t i = 0, start = 0; i < n; i++) {
        int64_t length = size + (i < larger);
        out[i] = narrow("tensor_split", x, at, start, length);
        start += length;
    }
    return all_created(n, out);
}

aril_status aril_tensor_split_at(aril_tensor *x, const int64_t *positions, int n, int axis,
                                 aril_tensor **out)
{
    int at = known_axis("tensor_split_at", x, axis);
    if (at < 0) return last_status();
    if (n < 0 || (n > 0 && !positions) || !out)
        return aril__fail(ARIL_ERR_ARG, "tensor_split_at: %d positions, or no array", n);
    for (int i = 0; i <= n; i++) {
        int64_t start = i ? positions[i - 1] : 0, stop = i < n ? positions[i] : ARIL_END;
        out[i] = aril_slice(x, at, start, stop, 1);
    }
    return all_created(n + 1, out);
}

aril_status aril_unbind(aril_tensor *x, int axis, aril_tensor **out)
{
    int at = known_axis("unbind", x, axis);
    if (at < 0) return last_status();
    if (!out && x->dim[at] > 0) return aril__fail(ARIL_ERR_ARG, "unbind: the output array is NULL");
    for (int64_t i = 0; i < x->dim[at]; i++) out[i] = aril_select(x, at, i);
    return all_created(x->dim[at], out);
}
