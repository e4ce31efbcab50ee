/* Picking elements by index, putting them back, and joining tensors. An index tensor may be of any
 * integer dtype; negative indices count from the end unless said otherwise, and an index out of
 * range is an error (ARIL_ERR_INDEX). Where several values meet in one place they are taken in the
 * order of the indices, whatever the number of threads. */
#ifndef ARIL_INDEX_H
#define ARIL_INDEX_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- along one axis ---- */

/* x with the positions in `index` of one axis; the dimensions of index, of which there may be any
 * number, take the axis's place. x [..., n, ...], index [k] -> [..., k, ...] */
ARIL_API aril_tensor *aril_index_select(aril_tensor *x, aril_tensor *index, int axis);

/* y[i][j] = x[index[i][j]][j] for axis 0. index has as many dimensions as x, and no size larger than
 * x's but along the axis. Result: the shape of index. */
ARIL_API aril_tensor *aril_gather(aril_tensor *x, aril_tensor *index, int axis);

/* The rows weight[index]: weight [n, d], index of any shape -> [..., d]. Indices may not be
 * negative. The gradient leaves the row padding_idx as it is: 0 here means none, ARIL_ZERO row 0,
 * and -1 the last. */
typedef struct aril_embedding_opts {
    int64_t padding_idx;
} aril_embedding_opts;
ARIL_API aril_tensor *aril_embedding(aril_tensor *index, aril_tensor *weight,
                                     aril_embedding_opts opts);

/* x with src put where gather would read: y[index[i][j]][j] = src[i][j] for axis 0. src has at least
 * the sizes of index, or no dimensions. */
ARIL_API aril_tensor *aril_scatter(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis);
ARIL_API aril_tensor *aril_scatter_(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis);

/* The same with src combined with what is there: sum, product, maximum, minimum. */
ARIL_API aril_tensor *aril_scatter_add(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis);
ARIL_API aril_tensor *aril_scatter_add_(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                        int axis);
typedef struct aril_scatter_opts {
    bool exclude_self; /* what x holds at an index that is put to does not count */
} aril_scatter_opts;
ARIL_API aril_tensor *aril_scatter_mul(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis, aril_scatter_opts opts);
ARIL_API aril_tensor *aril_scatter_max(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis, aril_scatter_opts opts);
ARIL_API aril_tensor *aril_scatter_min(aril_tensor *x, aril_tensor *index, aril_tensor *src,
                                       int axis, aril_scatter_opts opts);

/* ---- by truth values ---- */

/* Where x is not 0, in logical order: [k, ndim], i64. */
ARIL_API aril_tensor *aril_nonzero(aril_tensor *x);

/* ---- joining ---- */

/* Tensors one after the other along an axis; other sizes are the same. They meet in one dtype. */
ARIL_API aril_tensor *aril_cat(aril_list tensors, int axis);

/* Tensors of one shape along a new axis. */
ARIL_API aril_tensor *aril_stack(aril_list tensors, int axis);

ARIL_C_END

#endif
