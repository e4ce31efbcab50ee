/* Interpolation and its gradient. Tensors may have any strides; if channels or rows are contiguous,
 * the loops over them are vectorized. */
#ifndef ARIL_CPU_RESAMPLE_H
#define ARIL_CPU_RESAMPLE_H

#include "ops/table/op.h"

aril_status aril__cpu_interpolate(aril__run *r);
aril_status aril__cpu_interpolate_grad(aril__run *r);

#endif
