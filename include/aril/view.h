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

/* A new axis of size 1 at a place. */
ARIL_API aril_tensor *aril_unsqueeze(aril_tensor *x, int axis);

/* Part of an axis, by Python's rules: x[start:stop:step]. Positions below 0 count from the end;
 * ARIL_END as stop means "to the end" in the step's direction. */
#define ARIL_END INT64_MAX
ARIL_API aril_tensor *aril_slice(aril_tensor *x, int axis, int64_t start, int64_t stop,
                                 int64_t step);

/* Broadcast to a shape without copying; -1 keeps a size. */
ARIL_API aril_tensor *aril_expand(aril_tensor *x, aril_shape shape);

ARIL_C_END

#endif
