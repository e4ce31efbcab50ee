/* Views: other shapes over the same memory. Writing to a view writes to what it was made of. */
#ifndef ARIL_VIEW_H
#define ARIL_VIEW_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* Another shape of as many elements; one size may be -1 and is inferred. aril_view never moves
 * elements and fails where it would have to; aril_reshape copies then. */
ARIL_API aril_tensor *aril_reshape(aril_tensor *x, aril_shape shape);
ARIL_API aril_tensor *aril_view(aril_tensor *x, aril_shape shape);

/* Axes in another order: all of them named; two exchanged; the two of a matrix exchanged. */
ARIL_API aril_tensor *aril_permute(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_transpose(aril_tensor *x, int axis0, int axis1);
ARIL_API aril_tensor *aril_t(aril_tensor *x);
/* Two axes exchanged: another name of aril_transpose. */
ARIL_API aril_tensor *aril_swapaxes(aril_tensor *x, int axis0, int axis1);
/* Axis from.axis[i] becomes axis to.axis[i]; the others keep their order. */
ARIL_API aril_tensor *aril_movedim(aril_tensor *x, aril_axes from, aril_axes to);

/* A new axis of size 1 at a place. */
ARIL_API aril_tensor *aril_unsqueeze(aril_tensor *x, int axis);

/* Without those of the named axes that have size 1; ARIL_ALL: without every axis of size 1. */
ARIL_API aril_tensor *aril_squeeze(aril_tensor *x, aril_axes axes);

/* Axes start to end, both included, as one: [2,3,4] with 1, -1 gives [2,12]. A scalar becomes [1].
 * Copies where the axes do not follow on in memory. */
ARIL_API aril_tensor *aril_flatten(aril_tensor *x, int start, int end);

/* Part of an axis, by Python's rules: x[start:stop:step]. Positions below 0 count from the end;
 * ARIL_END as stop means "to the end" in the step's direction. */
#define ARIL_END INT64_MAX
ARIL_API aril_tensor *aril_slice(aril_tensor *x, int axis, int64_t start, int64_t stop,
                                 int64_t step);

/* `length` places of an axis from `start` on. */
ARIL_API aril_tensor *aril_narrow(aril_tensor *x, int axis, int64_t start, int64_t length);

/* One place of an axis, which goes away: x[index] along the axis. */
ARIL_API aril_tensor *aril_select(aril_tensor *x, int axis, int64_t index);

/* The axes (ARIL_ALL: every one) in reverse order. A view. */
ARIL_API aril_tensor *aril_flip(aril_tensor *x, aril_axes axes);

/* The diagonal of two axes, which go away, as a new last axis; offset 1 is the one above it, -1 the
 * one below. */
ARIL_API aril_tensor *aril_diagonal(aril_tensor *x, int64_t offset, int axis0, int axis1);

/* Windows of `size` places along an axis, each `step` after the one before: a view in which the
 * axis counts windows and a new last axis holds their elements. [..,n,..] gives
 * [..,(n - size) / step + 1,..,size]. Where windows overlap their gradients add up, and the view
 * cannot be written to. */
ARIL_API aril_tensor *aril_unfold_view(aril_tensor *x, int axis, int64_t size, int64_t step);

/* Elements moved along axes by as many places; what leaves one end comes in at the other.
 * aril_roll(x, ARIL_SHAPE(1, -2), ARIL_AXES(0, 1)); one shift and ARIL_ALL move through the flat
 * tensor. A copy. */
ARIL_API aril_tensor *aril_roll(aril_tensor *x, aril_shape shifts, aril_axes axes);

/* Broadcast to a shape without copying; -1 keeps a size. Both are the same. */
ARIL_API aril_tensor *aril_expand(aril_tensor *x, aril_shape shape);
ARIL_API aril_tensor *aril_broadcast_to(aril_tensor *x, aril_shape shape);

/* ---- several views at once ----
 *
 * These fill an array of the caller's, which must have room for as many tensors as the matching
 * _count says (-1 when x or the arguments do not allow it). Each entry belongs to the innermost
 * scope like any other result. On failure nothing is written and the status is negative. */

/* Parts of `size` along an axis; the last may be smaller. ceil(n / size) of them, at least 1. */
ARIL_API aril_status aril_split(aril_tensor *x, int64_t size, int axis, aril_tensor **out);
ARIL_API int64_t aril_split_count(const aril_tensor *x, int64_t size, int axis);

/* n parts of the given sizes, which must add up to the axis. Fills n. */
ARIL_API aril_status aril_split_sizes(aril_tensor *x, const int64_t *sizes, int n, int axis,
                                      aril_tensor **out);

/* At most `chunks` parts of ceil(n / chunks) along an axis; the last may be smaller, and there may
 * be fewer. Fills aril_chunk_count entries. */
ARIL_API aril_status aril_chunk(aril_tensor *x, int64_t chunks, int axis, aril_tensor **out);
ARIL_API int64_t aril_chunk_count(const aril_tensor *x, int64_t chunks, int axis);

/* Every place of an axis, which goes away. Fills aril_size(x, axis) entries. */
ARIL_API aril_status aril_unbind(aril_tensor *x, int axis, aril_tensor **out);

ARIL_C_END

#endif
