/* Convolutions with one channel of x and of y in each group, channels-last: vectors of channels. */
#ifndef ARIL_CPU_CONV_DEPTH_H
#define ARIL_CPU_CONV_DEPTH_H

#include "ops/vision/conv.h"

/* Runs conv, conv_dgrad, conv_wgrad or conv_transpose described by d, with d->c == d->k == 1, for
 * f32 or f64. x and y lie channels-last without gaps, the weights dense. Returns false, without an
 * error, when memory is out. */
bool aril__cpu_conv_depth(const aril__op *op, aril_dtype type, const aril__conv *d);

#endif
