/* Depthwise convolutions, one channel of x and y per group, channels-last: vectorized over
 * channels. */
#ifndef ARIL_CPU_CONV_DEPTH_H
#define ARIL_CPU_CONV_DEPTH_H

#include "ops/vision/conv.h"

/* Runs conv, conv_dgrad, conv_wgrad or conv_transpose described by d, with d->c == d->k == 1, for
 * f32 or f64. x and y are channels-last without gaps, the weights contiguous. `scratch`: as many
 * bytes as aril__cpu_conv_depth_scratch says. */
void aril__cpu_conv_depth(const aril__op *op, aril_dtype type, const aril__conv *d, void *scratch);
size_t aril__cpu_conv_depth_scratch(const aril__op *op, aril_dtype type, const aril__conv *d);

#endif
