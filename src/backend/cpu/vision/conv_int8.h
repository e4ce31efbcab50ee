/* conv_integer, channels-last: windows become rows of a product of 8-bit integers; depthwise
 * convolutions are computed as they are. */
#ifndef ARIL_BACKEND_CPU_CONV_INT8_H
#define ARIL_BACKEND_CPU_CONV_INT8_H

#include "ops/table/rows.h"

const char *aril__cpu_conv_int8_prepare(const aril__run *r, aril_plan *plan);
aril_status aril__cpu_conv_int8(aril__run *r);

#endif
