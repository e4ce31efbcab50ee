/* Interpolation and its gradient. Tensors may have any strides; if channels or rows are contiguous,
 * the loops over them are vectorized. */
#ifndef ARIL_CPU_RESAMPLE_H
#define ARIL_CPU_RESAMPLE_H

#include "ops/table/op.h"

aril_status aril__cpu_interpolate(aril__run *r);
aril_status aril__cpu_interpolate_grad(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_interpolate_scratch(const aril__run *r);
size_t aril__cpu_interpolate_grad_scratch(const aril__run *r);

#endif
