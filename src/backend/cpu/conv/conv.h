/* Convolution on the CPU: columns and matrix products; depthwise ones directly. */
#ifndef ARIL_CPU_CONV_H
#define ARIL_CPU_CONV_H

#include "ops/table/op.h"

/* conv, conv_dgrad, conv_wgrad and conv_transpose, in logical order or channels-last. */
aril_status aril__cpu_conv(aril__run *r);

#endif
