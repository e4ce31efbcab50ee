/* Convolutions with few channels of the result, for whole batches: samples are the lanes of vectors,
 * so that no lane idles whatever the channels are. */
#ifndef ARIL_CPU_CONV_LANES_H
#define ARIL_CPU_CONV_LANES_H

#include "aril/view.h"
#include "ops/table/rows.h"

/* The rows of conv, conv_dgrad and conv_transpose. */
const char *aril__cpu_conv_lanes_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__cpu_conv_lanes(aril__run *r);

/* Whether those rows take a call of theirs, whose result is then to lie samples-last. */
bool aril__cpu_conv_lanes_order(const aril__call *c);

/* The axes of [N,C,spatial...] in the order spatial, C, N, or those that turn that back. */
aril_axes aril__cpu_lanes_axes(int ndim, bool back);

#endif
