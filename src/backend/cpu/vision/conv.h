/* Convolution on the CPU: im2col and matrix products; depthwise convolution directly. */
#ifndef ARIL_CPU_CONV_H
#define ARIL_CPU_CONV_H

#include "ops/table/rows.h"

/* The row of conv, conv_dgrad, conv_wgrad and conv_transpose. */
const char *aril__cpu_conv_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_conv(aril__run *r);

#endif
