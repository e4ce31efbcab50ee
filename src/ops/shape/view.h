/* Views: other shapes over the same memory. */
#ifndef ARIL_OPS_VIEW_H
#define ARIL_OPS_VIEW_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_diagonal, aril__op_expand, aril__op_permute, aril__op_reshape,
    aril__op_select, aril__op_slice, aril__op_squeeze, aril__op_unsqueeze;

#define PERMUTE_ATTRS(A) A(permute, I64, 8, axes, 0, "perm")
ATTRS(permute, PERMUTE_ATTRS)
#define RESHAPE_ATTRS(A) A(reshape, I64, 1, ndim, 0, NULL) A(reshape, I64, 8, dim, 0, "shape")
ATTRS(reshape, RESHAPE_ATTRS)
#define EXPAND_ATTRS(A) A(expand, I64, 1, ndim, 0, NULL) A(expand, I64, 8, dim, 0, "shape")
ATTRS(expand, EXPAND_ATTRS)
/* One axis from start to stop by step, as in Python: already clamped if the size is known. */
#define SLICE_ATTRS(A)                   \
    A(slice, I64, 1, axis, 0, "axes")    \
    A(slice, I64, 1, start, 0, "starts") \
    A(slice, I64, 1, stop, 0, "ends") A(slice, I64, 1, step, 1, "steps")
ATTRS(slice, SLICE_ATTRS)

/* Axes as a mask: of the result for unsqueeze, of the input for squeeze. */
#define UNSQUEEZE_ATTRS(A) A(unsqueeze, I64, 1, mask, 0, NULL)
ATTRS(unsqueeze, UNSQUEEZE_ATTRS)

/* Merges axes start..end, both included, into one. */
#define FLATTEN_ATTRS(A) A(flatten, I64, 1, start, 0, NULL) A(flatten, I64, 1, end, 0, NULL)
ATTRS(flatten, FLATTEN_ATTRS)
#define SELECT_ATTRS(A) A(select, I64, 1, axis, 0, NULL) A(select, I64, 1, index, 0, NULL)
ATTRS(select, SELECT_ATTRS)
#define DIAGONAL_ATTRS(A) A(diagonal, I64, 1, offset, 0, NULL) A(diagonal, I64, 2, axis, 0, NULL)
ATTRS(diagonal, DIAGONAL_ATTRS)

/* Windows of `size` along an axis, `step` apart. */
#define UNFOLD_VIEW_ATTRS(A)              \
    A(unfold_view, I64, 1, axis, 0, NULL) \
    A(unfold_view, I64, 1, size, 1, NULL) A(unfold_view, I64, 1, step, 1, NULL)
ATTRS(unfold_view, UNFOLD_VIEW_ATTRS)
/* How far to roll each axis. */
#define ROLL_ATTRS(A) A(roll, I64, 8, shift, 0, NULL)
ATTRS(roll, ROLL_ATTRS)

/* Poison if x is NULL; x itself if it is poisoned; NULL if it is valid. */
aril_tensor *aril__refuse(const char *what, aril_tensor *x);

/* Strides that view x with the sizes of o (of as many elements) without a copy; false if there are
 * none. */
bool aril__view_strides(const aril_tensor *x, aril__meta *o);

/* Strides of x broadcast to the sizes in o. */
void aril__expand_strides(const aril_tensor *x, aril__meta *o);

#endif
