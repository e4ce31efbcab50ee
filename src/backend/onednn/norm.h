/* Normalization by oneDNN. */
#ifndef ARIL_BACKEND_ONEDNN_NORM_H
#define ARIL_BACKEND_ONEDNN_NORM_H

#include "ops/table/rows.h"

/* For layer_norm and layer_norm_grad. */
const char *aril__dnn_layer_norm_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_layer_norm(aril__run *r);
aril_status aril__dnn_layer_norm_grad(aril__run *r);
void aril__dnn_layer_norm_destroy(void *prepared);

/* For batch_norm, batch_norm_eval and batch_norm_grad. */
const char *aril__dnn_batch_norm_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_batch_norm(aril__run *r);
aril_status aril__dnn_batch_norm_grad(aril__run *r);
void aril__dnn_batch_norm_destroy(void *prepared);

/* For local_response_norm. */
const char *aril__dnn_local_response_norm_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_local_response_norm(aril__run *r);
void aril__dnn_local_response_norm_destroy(void *prepared);

#endif
