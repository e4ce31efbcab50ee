/* Reductions: over ARIL_AXES(...), over all axes (ARIL_ALL), or with the axes kept with size 1
 * (ARIL_KEEPDIM(...)). */
#ifndef ARIL_REDUCE_H
#define ARIL_REDUCE_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* The sum; of integers and bools as i64. */
ARIL_API aril_tensor *aril_sum(aril_tensor *x, aril_axes axes);

ARIL_C_END

#endif
