/* Conversions of contiguous runs from one dtype to another, without a step between. */
#ifndef ARIL_CORE_CONVERT_H
#define ARIL_CORE_CONVERT_H

#include "core/dtype.h"

/* Truncates toward zero; NaN gives 0, and what does not fit the nearest integer that does. */
static inline int64_t aril__f64_to_i64(double x)
{
    if (x != x) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    if (x < -0x1p63) return INT64_MIN;
    return (int64_t)x;
}

/* Converts n elements as load and store of the dtypes' rows do (core/dtype.h), with the same bits;
 * false if there is nothing faster than those. The memory must not overlap. */
bool aril__convert(aril_dtype to, void *dst, aril_dtype from, const void *src, int64_t n);

#endif
