/* Copies by oneDNN: permuted dimensions, and bf16 to f32. */
#ifndef ARIL_BACKEND_ONEDNN_REORDER_H
#define ARIL_BACKEND_ONEDNN_REORDER_H

#include "ops/table/rows.h"

/* For copy and cast of f32 and bf16: converting f16 would quiet signaling NaNs. */
const char *aril__dnn_reorder_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_reorder(aril__run *r);
void aril__dnn_reorder_destroy(void *prepared);

#endif
