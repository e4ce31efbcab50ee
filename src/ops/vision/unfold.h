/* Windows of images as columns: attributes. */
#ifndef ARIL_OPS_UNFOLD_H
#define ARIL_OPS_UNFOLD_H

#include "ops/table/op.h"

/* Numbers for height and width; padding in pairs: before and after. `size`: of the image that fold
 * returns. */
#define UNFOLD_ATTRS(A)                     \
    A(unfold, I64, 2, kernel, 1, NULL)      \
    A(unfold, I64, 2, stride, 1, "strides") \
    A(unfold, I64, 4, pad, 0, "pads")       \
    A(unfold, I64, 2, dilation, 1, "dilations") A(unfold, I64, 2, size, 0, NULL)
ATTRS(unfold, UNFOLD_ATTRS)

#endif
