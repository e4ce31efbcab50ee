/* Normalization of channels-last tensors without a copy. */
#ifndef ARIL_CPU_NORM_LAST_H
#define ARIL_CPU_NORM_LAST_H

#include "ops/table/rows.h"

/* x is the first input, and tensors with as many dimensions have its shape: all of them are
 * asked for channels-last. */
const char *aril__cpu_norm_last_prepare(const aril__run *r, aril__plan *plan);

#endif
