/* Copies by oneDNN: other orders of dimensions, and bf16 made f32. */
#ifndef ARIL_BACKEND_ONEDNN_REORDER_H
#define ARIL_BACKEND_ONEDNN_REORDER_H

#include "ops/table/rows.h"

/* For copy and cast, of f32 and bf16: f16 loses the marks of signalling NaN on its way. */
const char *aril__dnn_reorder_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_reorder(aril__run *r);
void aril__dnn_reorder_destroy(void *prepared);

#endif
