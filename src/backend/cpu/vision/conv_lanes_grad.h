/* The weight gradient of a convolution, for batches that fill vectors: samples are the lanes. */
#ifndef ARIL_CPU_CONV_LANES_GRAD_H
#define ARIL_CPU_CONV_LANES_GRAD_H

#include "ops/table/rows.h"

const char *aril__cpu_conv_lanes_grad_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_conv_lanes_grad(aril__run *r);

#endif
