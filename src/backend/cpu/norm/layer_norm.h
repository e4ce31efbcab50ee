/* Per-sample normalization and its gradients: layer, RMS and group norm. One set of kernels over
 * rows serves all of them. */
#ifndef ARIL_CPU_LAYER_NORM_H
#define ARIL_CPU_LAYER_NORM_H

#include "ops/table/op.h"

aril_status aril__cpu_layer_norm(aril__run *r);
aril_status aril__cpu_layer_norm_grad(aril__run *r);
aril_status aril__cpu_rms_norm(aril__run *r);
aril_status aril__cpu_rms_norm_grad(aril__run *r);
aril_status aril__cpu_group_norm(aril__run *r);
aril_status aril__cpu_group_norm_grad(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_row_norm_scratch(const aril__run *r); /* the three forward kernels */
size_t aril__cpu_layer_norm_grad_scratch(const aril__run *r);
size_t aril__cpu_rms_norm_grad_scratch(const aril__run *r);
size_t aril__cpu_group_norm_grad_scratch(const aril__run *r);

#endif
