/* Pooling. Tensors may have any strides; if channels or rows are contiguous, the loops over them
 * are vectorized. */
#ifndef ARIL_CPU_POOL_H
#define ARIL_CPU_POOL_H

#include "ops/table/rows.h"

/* Windows of both kinds, sliding and adaptive. */
aril_status aril__cpu_max_pool(aril__run *r);      /* x -> y, indices */
aril_status aril__cpu_max_pool_grad(aril__run *r); /* y, indices -> x: adds; max_unpool: writes */
aril_status aril__cpu_max_pool_pick(aril__run *r); /* x, indices -> y */
aril_status aril__cpu_avg_pool(aril__run *r);      /* x -> y */
aril_status aril__cpu_avg_pool_grad(aril__run *r); /* y -> x */

/* The plan of rows that read indices, and of those that scatter by them. */
const char *aril__cpu_pool_scatter_prepare(const aril__run *r, aril__plan *plan);
const char *aril__cpu_pool_index_prepare(const aril__run *r, aril__plan *plan);

/* Bytes of memory that max and average pooling need, and the gradient of the latter. */
size_t aril__cpu_pool_scratch(const aril__run *r);
size_t aril__cpu_avg_pool_grad_scratch(const aril__run *r);

#endif
