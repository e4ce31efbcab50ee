/* Resampling by oneDNN: nearest neighbor and linear interpolation. */
#ifndef ARIL_BACKEND_ONEDNN_RESAMPLE_H
#define ARIL_BACKEND_ONEDNN_RESAMPLE_H

#include "ops/table/rows.h"

/* For interpolate and interpolate_grad. */
const char *aril__dnn_resample_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__dnn_resample(aril__run *r);
void aril__dnn_resample_destroy(void *prepared);

#endif
