/* Pooling by oneDNN, contiguous or channels-last. */
#ifndef ARIL_BACKEND_ONEDNN_POOL_H
#define ARIL_BACKEND_ONEDNN_POOL_H

#include "ops/table/rows.h"

/* For avg_pool, adaptive_avg_pool and their gradients, and for max_pool. The gradient of max_pool
 * scatters by index, independent of windows: oneDNN has no such primitive. */
const char *aril__dnn_pool_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_pool(aril__run *r);
void aril__dnn_pool_destroy(void *prepared);

#endif
