/* Pooling kernels. Tensors may have any strides; if channels or rows are contiguous, the loops over
 * them are vectorized. */
#ifndef ARIL_OPS_POOL_RUN_H
#define ARIL_OPS_POOL_RUN_H

#include "ops/vision/pool.h"

/* The window of spatial dimension i over `in` elements. */
aril__slide aril__pool_window(const struct pool_attrs *a, int i, int64_t in);

aril_status aril__pool_max(aril__run *r);          /* x -> y, indices */
aril_status aril__pool_scatter(aril__run *r);      /* y, indices -> x: adds; max_unpool: writes */
aril_status aril__pool_pick(aril__run *r);         /* x, indices -> y */
aril_status aril__pool_average(aril__run *r);      /* x -> y */
aril_status aril__pool_average_back(aril__run *r); /* y -> x */

#endif
