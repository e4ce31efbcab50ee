/* Fused activations, for kernels: whole runs of elements at a time. */
#ifndef ARIL_BACKEND_ACTIVATION_H
#define ARIL_BACKEND_ACTIVATION_H

#include "ops/elementwise/activation.h"

/* Applies act to n contiguous elements in place, and converts gradients g of y = act(x) into those
 * of x in place. `type` is ARIL_F32 or ARIL_F64. Meant for runs that fit in a cache. */
void aril__activation_run(aril_dtype type, int64_t act, int64_t n, void *y);
void aril__activation_grad_run(aril_dtype type, int64_t act, int64_t n, void *g, const void *y);

#endif
