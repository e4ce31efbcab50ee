/* Views: tensors of other shapes that share memory. Writing to a view writes to the original
 * tensor. */
#ifndef ARIL_VIEW_H
#define ARIL_VIEW_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* Changes the shape, keeping the number of elements; one size may be -1 and is inferred. aril_view
 * never copies and fails if it would have to; aril_reshape copies in that case. */
ARIL_API aril_tensor *aril_reshape(aril_tensor *x, aril_shape shape);
ARIL_API aril_tensor *aril_view(aril_tensor *x, aril_shape shape);

/* Reorders axes: a permutation of all axes; two axes swapped; a matrix transposed. */
ARIL_API aril_tensor *aril_permute(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_transpose(aril_tensor *x, int axis0, int axis1);
ARIL_API aril_tensor *aril_t(aril_tensor *x);
/* Swaps two axes: an alias of aril_transpose. */
ARIL_API aril_tensor *aril_swapaxes(aril_tensor *x, int axis0, int axis1);
/* Moves axis from.axis[i] to position to.axis[i]; the others keep their order. */
ARIL_API aril_tensor *aril_movedim(aril_tensor *x, aril_axes from, aril_axes to);

/* Inserts a new axis of size 1 at a position. */
ARIL_API aril_tensor *aril_unsqueeze(aril_tensor *x, int axis);

/* Removes those of the given axes that have size 1; ARIL_ALL: every axis of size 1. */
ARIL_API aril_tensor *aril_squeeze(aril_tensor *x, aril_axes axes);

/* Flattens axes start to end, both included, into one: [2,3,4] with 1, -1 gives [2,12]. A scalar
 * becomes [1]. Copies if the axes are not contiguous in memory. */
ARIL_API aril_tensor *aril_flatten(aril_tensor *x, int start, int end);

/* Splits an axis into several of the given sizes, one of which may be -1: [2,12] with axis 1 and
 * sizes 3, -1 gives [2,3,4]. */
ARIL_API aril_tensor *aril_unflatten(aril_tensor *x, int axis, aril_shape sizes);

/* A slice of an axis, as in Python: x[start:stop:step]. Negative positions count from the end;
 * ARIL_END as stop means "to the end" in the step's direction. */
#define ARIL_END INT64_MAX
ARIL_API aril_tensor *aril_slice(aril_tensor *x, int axis, int64_t start, int64_t stop,
                                 int64_t step);

/* `length` elements of an axis, starting at `start`. */
ARIL_API aril_tensor *aril_narrow(aril_tensor *x, int axis, int64_t start, int64_t length);

/* Selects one index of an axis, which is removed: x[index] along the axis. */
ARIL_API aril_tensor *aril_select(aril_tensor *x, int axis, int64_t index);

/* Reverses the order of elements along the axes (ARIL_ALL: every one). A view. */
ARIL_API aril_tensor *aril_flip(aril_tensor *x, aril_axes axes);

/* Rotates by k times 90 degrees in the plane of two axes, from the first towards the second. A
 * view. */
ARIL_API aril_tensor *aril_rot90(aril_tensor *x, int k, int axis0, int axis1);

/* The diagonal of two axes, which are removed, as a new last axis; offset 1 is the one above the
 * main diagonal, -1 the one below. */
ARIL_API aril_tensor *aril_diagonal(aril_tensor *x, int64_t offset, int axis0, int axis1);

/* Sliding windows of `size` elements along an axis, `step` apart: a view in which the axis indexes
 * windows and a new last axis holds their elements. [..,n,..] gives [..,(n - size) / step +
 * 1,..,size]. If windows overlap, their gradients add up, and the view is read-only. */
ARIL_API aril_tensor *aril_unfold_view(aril_tensor *x, int axis, int64_t size, int64_t step);

/* Shifts elements along axes; elements that leave one end re-enter at the other. aril_roll(x,
 * ARIL_SHAPE(1, -2), ARIL_AXES(0, 1)); one shift and ARIL_ALL roll the flattened tensor. A copy. */
ARIL_API aril_tensor *aril_roll(aril_tensor *x, aril_shape shifts, aril_axes axes);

/* Broadcasts to a shape without copying; -1 keeps a size. The two are equivalent. */
ARIL_API aril_tensor *aril_expand(aril_tensor *x, aril_shape shape);
ARIL_API aril_tensor *aril_broadcast_to(aril_tensor *x, aril_shape shape);

/* ---- several views at once ----
 *
 * These fill the caller's array, which must have room for the number of tensors that the matching
 * _count function returns (-1 if x or the arguments are invalid). Each entry belongs to the
 * innermost scope like any other result. After invalid arguments nothing is written, and when
 * memory runs out all entries are poisoned; the status is negative. */

/* Splits an axis into parts of `size`; the last may be smaller. Fills ceil(n / size) entries, at
 * least 1. */
ARIL_API aril_status aril_split(aril_tensor *x, int64_t size, int axis, aril_tensor **out);
ARIL_API int64_t aril_split_count(const aril_tensor *x, int64_t size, int axis);

/* Splits an axis into n parts of the given sizes, which must add up to its size. Fills n
 * entries. */
ARIL_API aril_status aril_split_sizes(aril_tensor *x, const int64_t *sizes, int n, int axis,
                                      aril_tensor **out);

/* Splits an axis into at most `chunks` parts of size ceil(n / chunks); the last may be smaller, and
 * there may be fewer. Fills aril_chunk_count entries. */
ARIL_API aril_status aril_chunk(aril_tensor *x, int64_t chunks, int axis, aril_tensor **out);
ARIL_API int64_t aril_chunk_count(const aril_tensor *x, int64_t chunks, int axis);

/* Splits an axis into exactly `parts` parts, the first of which are larger by 1 where the size is
 * no multiple. Fills `parts` entries. */
ARIL_API aril_status aril_tensor_split(aril_tensor *x, int64_t parts, int axis, aril_tensor **out);
/* Splits an axis before each of n positions, as in Python: x[:at[0]], x[at[0]:at[1]], ... Fills
 * n + 1 entries. */
ARIL_API aril_status aril_tensor_split_at(aril_tensor *x, const int64_t *at, int n, int axis,
                                          aril_tensor **out);

/* Unbinds an axis into its slices, removing the axis. Fills aril_size(x, axis) entries. */
ARIL_API aril_status aril_unbind(aril_tensor *x, int axis, aril_tensor **out);

ARIL_C_END

#endif
