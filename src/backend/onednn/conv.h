/* Convolutions and their gradients by oneDNN, channels-last. */
#ifndef ARIL_BACKEND_ONEDNN_CONV_H
#define ARIL_BACKEND_ONEDNN_CONV_H

#include "ops/table/rows.h"

/* For conv, conv_dgrad, conv_wgrad and conv_transpose. */
const char *aril__dnn_conv_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_conv(aril__run *r);
void aril__dnn_conv_destroy(void *prepared);

#endif
