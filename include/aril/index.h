/* Indexing, gather and scatter, and concatenation. An index tensor may have any integer dtype;
 * negative indices count from the end unless noted, and an index out of range is an error
 * (ARIL_ERR_INDEX). With duplicate indices, values are applied in index order, whatever the number
 * of threads. */
#ifndef ARIL_INDEX_H
#define ARIL_INDEX_H

#include "aril/tensor.h"
#include "aril/view.h"

/* ---- x[...] ---- */

/* One item between the brackets. Created by the macros below. */
typedef enum aril_item_kind {
    ARIL_ITEM_AT,    /* a position: start */
    ARIL_ITEM_RANGE, /* start to stop by step */
    ARIL_ITEM_DOTS,
    ARIL_ITEM_NEW,
    ARIL_ITEM_BY
} aril_item_kind;
typedef struct aril_index_item {
    aril_item_kind kind;
    int64_t start, stop, step;
    aril_tensor *by;
} aril_index_item;
typedef struct aril_items {
    int n;
    const aril_index_item *at;
} aril_items;

static inline aril_index_item aril__item(aril_item_kind kind, int64_t start, int64_t stop,
                                         int64_t step, aril_tensor *by)
{
    aril_index_item i = { kind, start, stop, step, by };
    return i;
}

/* x[2, 1:5, ::3, :, ..., None, t] is aril_index(x, ARIL_INDEX(ARIL_AT(2), ARIL_RANGE(1, 5),
 * ARIL_STEP(0, ARIL_END, 3), ARIL_EVERY, ARIL_DOTS, ARIL_NEW, ARIL_BY(t))). Negative positions
 * count from the end; x[::-1] is ARIL_STEP(ARIL_END, ARIL_END, -1). */
#define ARIL_AT(i)                   aril__item(ARIL_ITEM_AT, (i), 0, 0, NULL)
#define ARIL_RANGE(start, stop)      aril__item(ARIL_ITEM_RANGE, (start), (stop), 1, NULL)
#define ARIL_STEP(start, stop, step) aril__item(ARIL_ITEM_RANGE, (start), (stop), (step), NULL)
#define ARIL_EVERY                   aril__item(ARIL_ITEM_RANGE, 0, ARIL_END, 1, NULL)
#define ARIL_DOTS                    aril__item(ARIL_ITEM_DOTS, 0, 0, 0, NULL)
#define ARIL_NEW                     aril__item(ARIL_ITEM_NEW, 0, 0, 0, NULL)
#define ARIL_BY(t)                   aril__item(ARIL_ITEM_BY, 0, 0, 0, (t))

/* Padding before and after the last axis, the second-to-last axis, and so on: ARIL_PADS(1, 1). */
typedef struct aril_pads {
    int n;
    int64_t at[2 * ARIL_MAX_DIMS];
} aril_pads;

#ifdef __cplusplus
template <int N> struct aril__items_of { /* lives to the end of the full expression */
    aril_index_item at[N];
    operator aril_items() const
    {
        aril_items l = { N, at };
        return l;
    }
};
template <class... I> inline aril__items_of<int(sizeof...(I))> aril__make_items(I... i)
{
    return { { i... } };
}
template <class... P> inline aril_pads aril__make_pads(P... p)
{
    const int64_t all[] = { 0, int64_t(p)... };
    aril_pads s = { int(sizeof...(p)), { 0 } };
    for (int i = 0; i < s.n && i < 2 * ARIL_MAX_DIMS; i++) s.at[i] = all[i + 1];
    return s;
}
#define ARIL_INDEX(...) aril__make_items(__VA_ARGS__)
#define ARIL_PADS(...)  aril__make_pads(__VA_ARGS__)
#else
static inline aril_pads aril__make_pads(int n, const int64_t *at)
{
    aril_pads p = { .n = n };
    for (int i = 0; i < n && i < 2 * ARIL_MAX_DIMS; i++) p.at[i] = at[i];
    return p;
}
/* The items between the brackets, for aril_index and aril_index_put: ARIL_INDEX(ARIL_AT(2)). */
#define ARIL_INDEX(...)                                                                         \
    ((aril_items){ (int)(sizeof((aril_index_item[]){ __VA_ARGS__ }) / sizeof(aril_index_item)), \
                   (aril_index_item[]){ __VA_ARGS__ } })
/* Padding for aril_pad: two numbers per axis, starting with the last axis. */
#define ARIL_PADS(...)                                                                  \
    aril__make_pads((int)(sizeof((int64_t[]){ 0, __VA_ARGS__ }) / sizeof(int64_t)) - 1, \
                    (int64_t[]){ 0, __VA_ARGS__ } + 1)
#endif

ARIL_C_BEGIN

/* Positions, ranges, dots and new axes give a view. An index tensor indexes one axis, a bool mask
 * as many axes as it has dimensions (by its true positions, as nonzero). Index tensors are
 * broadcast together; their dimensions replace the first indexed axis, or come first when other
 * items separate them, and the result is a copy. A position removes its axis first, as in PyTorch:
 * it does not count as an index tensor. */
ARIL_API aril_tensor *aril_index(aril_tensor *x, aril_items items);

/* x with `value`, broadcast and cast, written where aril_index would read, or added with
 * `accumulate`. With duplicate indices the last value wins. */
ARIL_API aril_tensor *aril_index_put(aril_tensor *x, aril_items items, aril_tensor *value,
                                     bool accumulate);
ARIL_API aril_tensor *aril_index_put_(aril_tensor *x, aril_items items, aril_tensor *value,
                                      bool accumulate);

/* ---- along one axis ---- */

/* Selects the positions in `index` along one axis; the dimensions of index, any number of them,
 * replace the axis. x [..., n, ...], index [k] -> [..., k, ...] */
ARIL_API aril_tensor *aril_index_select(aril_tensor *x, aril_tensor *index, int axis);

/* The elements of the flattened x at the indices: the shape of index. */
ARIL_API aril_tensor *aril_take(aril_tensor *x, aril_tensor *index);

/* x with the slices of src added at the positions in `index`, the inverse of index_select:
 * y[index[i]] += src[i] for axis 0. */
ARIL_API aril_tensor *aril_index_add(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                     int axis);
ARIL_API aril_tensor *aril_index_add_(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                      int axis);

/* x with the slices of src written at the positions in `index`: y[index[i]] = src[i] for axis 0.
 * The same dtype. */
ARIL_API aril_tensor *aril_index_copy(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                      int axis);
ARIL_API aril_tensor *aril_index_copy_(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis);

/* x with one value, [] or a number, at the positions in `index` of the axis. Keeps the dtype of
 * x. */
ARIL_API aril_tensor *aril_index_fill(aril_tensor *x, aril_tensor *index, aril_tensor *value,
                                      int axis);
ARIL_API aril_tensor *aril_index_fill_(aril_tensor *x, aril_tensor *index, aril_tensor *value,
                                       int axis);
ARIL_API aril_tensor *aril_index_fill_scalar(aril_tensor *x, aril_tensor *index, aril_number value,
                                             int axis);
ARIL_API aril_tensor *aril_index_fill_scalar_(aril_tensor *x, aril_tensor *index, aril_number value,
                                              int axis);

/* y[i][j] = x[index[i][j]][j] for axis 0. index has as many dimensions as x, and no size larger
 * than x's except along the axis. Result: the shape of index. */
ARIL_API aril_tensor *aril_gather(aril_tensor *x, aril_tensor *index, int axis);

/* gather, with x and index broadcast against each other except along the axis: for the results of
 * argmax and argsort. */
ARIL_API aril_tensor *aril_take_along_axis(aril_tensor *x, aril_tensor *index, int axis);

/* The rows weight[index]: weight [n, d], index of any shape -> [..., d]. Indices may not be
 * negative. Row padding_idx gets no gradient: 0 means none, ARIL_ZERO row 0, and -1 the last
 * row. */
typedef struct aril_embedding_opts {
    int64_t padding_idx;
} aril_embedding_opts;
ARIL_API aril_tensor *aril_embedding(aril_tensor *index, aril_tensor *weight,
                                     aril_embedding_opts opts);

/* x with src written where gather would read: y[index[i][j]][j] = src[i][j] for axis 0. src is at
 * least as large as index along every axis, or a scalar. */
ARIL_API aril_tensor *aril_scatter(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis);
ARIL_API aril_tensor *aril_scatter_(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis);

/* Scatter with a reduction, which combines src with the values of x: sum, product, maximum,
 * minimum. */
ARIL_API aril_tensor *aril_scatter_add(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis);
ARIL_API aril_tensor *aril_scatter_add_(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                        int axis);
typedef struct aril_scatter_opts {
    bool exclude_self; /* exclude the values of x at the written indices from the reduction */
} aril_scatter_opts;
ARIL_API aril_tensor *aril_scatter_mul(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis, aril_scatter_opts opts);
ARIL_API aril_tensor *aril_scatter_max(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis, aril_scatter_opts opts);
ARIL_API aril_tensor *aril_scatter_min(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis, aril_scatter_opts opts);

/* scatter, with index broadcast to x except along the axis, and src broadcast to index. */
ARIL_API aril_tensor *aril_put_along_axis(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                          int axis);

/* One-hot encoding: 1 at the index of each element, 0 elsewhere, i64: [...] -> [..., classes].
 * classes -1: the largest index + 1. */
ARIL_API aril_tensor *aril_one_hot(aril_tensor *index, int64_t classes);

/* ---- boolean masks ---- */

/* The indices of nonzero elements of x, in row-major order: [k, ndim], i64. */
ARIL_API aril_tensor *aril_nonzero(aril_tensor *x);

/* The same as an index tensor [k] for each dimension, in out[0] .. out[ndim - 1]. */
ARIL_API aril_status aril_nonzero_list(aril_tensor *x, aril_tensor **out);

/* The elements of x where the mask (bool; both broadcast) is true: [k]. */
ARIL_API aril_tensor *aril_masked_select(aril_tensor *x, aril_tensor *mask);

/* x with the elements of src, in row-major order, written where the mask is true. src has at least
 * as many elements as the mask has true values. */
ARIL_API aril_tensor *aril_masked_scatter(aril_tensor *x, aril_tensor *mask, aril_tensor *src);
ARIL_API aril_tensor *aril_masked_scatter_(aril_tensor *x, aril_tensor *mask, aril_tensor *src);

/* x with one value, [] or a number, where the mask is true. Keeps the dtype of x. */
ARIL_API aril_tensor *aril_masked_fill(aril_tensor *x, aril_tensor *mask, aril_tensor *value);
ARIL_API aril_tensor *aril_masked_fill_(aril_tensor *x, aril_tensor *mask, aril_tensor *value);
ARIL_API aril_tensor *aril_masked_fill_scalar(aril_tensor *x, aril_tensor *mask, aril_number value);
ARIL_API aril_tensor *aril_masked_fill_scalar_(aril_tensor *x, aril_tensor *mask,
                                               aril_number value);

/* ---- concatenation, repetition and padding ---- */

/* Concatenates tensors along an axis; all other sizes must be equal. Dtypes are promoted. */
ARIL_API aril_tensor *aril_cat(aril_list tensors, int axis);

/* Stacks tensors of the same shape along a new axis. */
ARIL_API aril_tensor *aril_stack(aril_list tensors, int axis);

/* hstack: cat along axis 1 (0 for 1-d tensors). vstack: cat along axis 0, with 1-d tensors as
 * rows. */
ARIL_API aril_tensor *aril_hstack(aril_list tensors);
ARIL_API aril_tensor *aril_vstack(aril_list tensors);

/* Repeats x the given number of times along each axis; more numbers than dimensions add leading
 * axes. aril_tile also accepts fewer, for the last axes. */
ARIL_API aril_tensor *aril_repeat(aril_tensor *x, aril_shape times);
ARIL_API aril_tensor *aril_tile(aril_tensor *x, aril_shape times);

/* Repeats each element `times` times along the axis: 1, 2 -> 1, 1, 2, 2. */
ARIL_API aril_tensor *aril_repeat_interleave(aril_tensor *x, int64_t times, int axis);

/* The same with a number of times for each position of the axis: times [n], integers >= 0, or [1].
 * The size depends on the data. */
ARIL_API aril_tensor *aril_repeat_interleave_by(aril_tensor *x, aril_tensor *times, int axis);

/* Puts matrices, vectors as rows and numbers along the diagonal of one matrix; 0 elsewhere. Dtypes
 * are promoted. */
ARIL_API aril_tensor *aril_block_diag(aril_list tensors);

/* All combinations of an element of each of n vectors [s0], [s1] ..., the last varying fastest:
 * [s0 * s1 * ..., n], or a copy of the vector for n = 1. The same dtype. */
ARIL_API aril_tensor *aril_cartesian_prod(aril_list tensors);

/* Coordinate grids of n vectors [s0], [s1] ...: n tensors of shape [s0, s1, ...] in out; the i-th
 * varies along axis i. With `xy` the first two axes are swapped. The results are views. */
ARIL_API aril_status aril_meshgrid(aril_list tensors, bool xy, aril_tensor **out);

/* Pads x with a constant, by reflection (without repeating the edge), by replicating the edge, or
 * circularly. Negative padding crops (constant only). */
typedef enum aril_pad_mode {
    ARIL_PAD_CONSTANT,
    ARIL_PAD_REFLECT,
    ARIL_PAD_REPLICATE,
    ARIL_PAD_CIRCULAR
} aril_pad_mode;
typedef struct aril_pad_opts {
    aril_pad_mode mode;
    double value; /* of ARIL_PAD_CONSTANT */
} aril_pad_opts;
ARIL_API aril_tensor *aril_pad(aril_tensor *x, aril_pads pads, aril_pad_opts opts);

ARIL_C_END

#ifndef __cplusplus
#define aril_index_fill_scalar(x, index, v, axis) \
    aril_index_fill_scalar((x), (index), ARIL_NUMBER(v), (axis))
#define aril_index_fill_scalar_(x, index, v, axis) \
    aril_index_fill_scalar_((x), (index), ARIL_NUMBER(v), (axis))
#define aril_masked_fill_scalar(x, mask, v)  aril_masked_fill_scalar((x), (mask), ARIL_NUMBER(v))
#define aril_masked_fill_scalar_(x, mask, v) aril_masked_fill_scalar_((x), (mask), ARIL_NUMBER(v))
#endif

#endif
