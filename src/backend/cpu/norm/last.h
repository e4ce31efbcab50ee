/* Normalization of channels-last tensors without a copy. */
#ifndef ARIL_CPU_NORM_LAST_H
#define ARIL_CPU_NORM_LAST_H

#include "ops/table/rows.h"

/* x is the first input, and tensors with as many dimensions have its shape. Inputs of another
 * memory order (such as a gradient that came from a reshape) are converted to it; `run` is called
 * with last = true. */
const char *aril__cpu_norm_last_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_norm_last(aril__run *r, aril_status (*run)(aril__run *r, bool last));

#endif
