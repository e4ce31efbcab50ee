/* Convolution on the CPU: im2col and matrix products; depthwise convolution directly. */
#ifndef ARIL_CPU_CONV_H
#define ARIL_CPU_CONV_H

#include "ops/table/op.h"

/* conv, conv_dgrad, conv_wgrad and conv_transpose, contiguous or channels-last. */
aril_status aril__cpu_conv(aril__run *r);

#endif
