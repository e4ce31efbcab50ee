/* Convolutions with few channels of the result, for whole batches: samples are the lanes of vectors,
 * so that no lane idles whatever the channels are. */
#ifndef ARIL_CPU_CONV_LANES_H
#define ARIL_CPU_CONV_LANES_H

#include "ops/rows.h"

/* The rows of conv, conv_dgrad and conv_transpose. */
const char *aril__cpu_conv_lanes_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_conv_lanes(aril__run *r);

#endif
