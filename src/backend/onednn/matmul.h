/* Matrix products by oneDNN. */
#ifndef ARIL_BACKEND_ONEDNN_MATMUL_H
#define ARIL_BACKEND_ONEDNN_MATMUL_H

#include "ops/table/rows.h"

/* For matmul, linear and outer_sum. */
const char *aril__dnn_matmul_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_matmul(aril__run *r);
void aril__dnn_matmul_destroy(void *prepared);

#endif
