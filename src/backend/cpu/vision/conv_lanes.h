/* Convolutions with few output channels, for batches that fill vectors: samples are the lanes, so
 * no lane idles whatever the number of channels. */
#ifndef ARIL_CPU_CONV_LANES_H
#define ARIL_CPU_CONV_LANES_H

#include "aril/view.h"
#include "ops/table/rows.h"

/* The rows of conv, conv_dgrad and conv_transpose. */
const char *aril__cpu_conv_lanes_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_conv_lanes(aril__run *r);

/* Whether those rows accept a call, whose result should then be samples-last. */
bool aril__cpu_conv_lanes_order(const aril__call *c);

/* The axes that permute [N,C,spatial...] to spatial, C, N, or back. */
aril_axes aril__cpu_lanes_axes(int ndim, bool back);

#endif
