/* softmax and log_softmax, and their gradients, by oneDNN. */
#ifndef ARIL_BACKEND_ONEDNN_SOFTMAX_H
#define ARIL_BACKEND_ONEDNN_SOFTMAX_H

#include "ops/table/rows.h"

const char *aril__dnn_softmax_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_softmax(aril__run *r);
void aril__dnn_softmax_destroy(void *prepared);

#endif
