/* Products of 8-bit integers: matmul_integer and conv_integer (ops/vision/conv_integer.c), with the
 * same inputs:
 *
 *     a, b             u8 or i8, each of its own dtype
 *     a_zero           one number of a's dtype, or NULL for 0
 *     b_zero           one number of b's dtype or one for each column (filter), or NULL
 *     bias             i32 for each column, or NULL
 *     scale, zero      f32, one number or one for each column, and one number, u8 or i8; or NULL
 *
 *     sum = (a - a_zero) (b - b_zero) + bias               i32: the result without scale and zero
 *     y = clamp(round(sum * scale) + zero)                 of zero's dtype
 */
#ifndef ARIL_OPS_INTEGER_H
#define ARIL_OPS_INTEGER_H

#include "ops/table/op.h"

extern const aril__op aril__op_matmul_integer, aril__op_conv_integer;

enum {
    ARIL__INTEGER_A_ZERO = 2,
    ARIL__INTEGER_B_ZERO,
    ARIL__INTEGER_BIAS,
    ARIL__INTEGER_SCALE,
    ARIL__INTEGER_ZERO,
    ARIL__INTEGER_INPUTS,
    ARIL__INTEGER_OPTIONAL = IN(2) | IN(3) | IN(4) | IN(5) | IN(6)
};

/* Input i, or NULL. */
static inline aril_tensor *aril__integer_in(int n_in, aril_tensor *const *in, int i)
{
    return i < n_in ? in[i] : NULL;
}

/* Checks all inputs against the number of columns (negative: unknown), and sets the result's dtype
 * and the call's. */
aril_status aril__integer_check(aril__call *c, int64_t columns);

/* What a run does with its sums. */
typedef struct aril__rescale {
    bool rescales, is_signed; /* the result is u8 or i8 */
    int64_t a_zero, zero;
    const aril_tensor *b_zero, *bias, *scale;
} aril__rescale;

aril__rescale aril__rescale_of(const aril__run *r);

/* Element i of a tensor with one number, or one for each column. */
int64_t aril__integer_of(const aril_tensor *t, int64_t i);
float aril__scale_of(const aril_tensor *t, int64_t i);

/* round(sum * scale) + zero, in low .. high: halves to even, as processors round. The range is
 * applied before rounding, where 1.5 * 2^23 rounds to integers by being added. */
static inline int32_t aril__rescaled(int32_t sum, float scale, int32_t zero, int32_t low,
                                     int32_t high)
{
    float f = (float)sum * scale, least = (float)(low - zero), most = (float)(high - zero);
    f = f > least ? f : least; /* NaN too */
    f = f < most ? f : most;
    f = (f + 12582912.0F) - 12582912.0F;
    return (int32_t)f + zero;
}

/* Writes the result for a sum without its bias, element i, in the column. */
void aril__integer_put(const aril__rescale *s, aril_tensor *y, int64_t i, int64_t column,
                       int64_t sum);

/* The same in ops: a sum in f64 or i32 with the columns along an axis, to the result. */
aril_tensor *aril__integer_finish(const aril__call *c, aril_tensor *sum, int axis);
/* A zero point for each column along an axis of a tensor with so many dimensions, as f64. */
aril_tensor *aril__integer_spread(aril_tensor *v, int axis, int ndim);

#endif
