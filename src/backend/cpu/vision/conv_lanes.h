/* Convolutions with few output channels, for batches that fill vectors: samples are the lanes, so
 * no lane idles whatever the number of channels. */
#ifndef ARIL_CPU_CONV_LANES_H
#define ARIL_CPU_CONV_LANES_H

#include "ops/table/rows.h"

/* The rows of conv, conv_dgrad and conv_transpose. */
const char *aril__cpu_conv_lanes_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_conv_lanes(aril__run *r);

#endif
