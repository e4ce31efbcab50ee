/* Elementwise mathematics.
 *
 * Inputs broadcast as in NumPy and promote as in PyTorch; integer inputs to functions such as exp
 * become f32. Each result is a new tensor that belongs to the innermost scope. A trailing _ means
 * in-place: the function modifies its first argument and returns it; `_scalar` takes a C number as
 * the second operand. All are differentiable where the formula is, except comparisons, tests and
 * bit operations. */
#ifndef ARIL_MATH_H
#define ARIL_MATH_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* A scalar that adapts to the dtype and device of the other operand: i64 * aril_scalar(2) stays
 * i64, i64 * aril_scalar(0.5) is f32. [] */
ARIL_API aril_tensor *aril_scalar(aril_number value);

/* ---- two operands, with broadcasting ---- */

/* a + b */
ARIL_API aril_tensor *aril_add(aril_tensor *a, aril_tensor *b);
/* a - b */
ARIL_API aril_tensor *aril_sub(aril_tensor *a, aril_tensor *b);
/* a * b */
ARIL_API aril_tensor *aril_mul(aril_tensor *a, aril_tensor *b);
/* a / b, true division */
ARIL_API aril_tensor *aril_div(aril_tensor *a, aril_tensor *b);
/* a / b rounded down */
ARIL_API aril_tensor *aril_floor_div(aril_tensor *a, aril_tensor *b);
/* a - b * floor(a / b): the sign of b */
ARIL_API aril_tensor *aril_remainder(aril_tensor *a, aril_tensor *b);
/* a - b * trunc(a / b): the sign of a */
ARIL_API aril_tensor *aril_fmod(aril_tensor *a, aril_tensor *b);
/* a to the power b */
ARIL_API aril_tensor *aril_pow(aril_tensor *a, aril_tensor *b);
/* the larger; NaN if either is */
ARIL_API aril_tensor *aril_maximum(aril_tensor *a, aril_tensor *b);
/* the smaller; NaN if either is */
ARIL_API aril_tensor *aril_minimum(aril_tensor *a, aril_tensor *b);
/* angle of the point (b, a) */
ARIL_API aril_tensor *aril_atan2(aril_tensor *a, aril_tensor *b);
/* sqrt(a*a + b*b) without overflow */
ARIL_API aril_tensor *aril_hypot(aril_tensor *a, aril_tensor *b);
/* log(exp(a) + exp(b)) without overflow */
ARIL_API aril_tensor *aril_logaddexp(aril_tensor *a, aril_tensor *b);
/* a * log(b), 0 where a is 0 */
ARIL_API aril_tensor *aril_xlogy(aril_tensor *a, aril_tensor *b);
/* a where positive, else b * a */
ARIL_API aril_tensor *aril_prelu(aril_tensor *a, aril_tensor *b);
/* the larger; the other where one is NaN */
ARIL_API aril_tensor *aril_fmax(aril_tensor *a, aril_tensor *b);
/* the smaller; the other where one is NaN */
ARIL_API aril_tensor *aril_fmin(aril_tensor *a, aril_tensor *b);
/* |a| with the sign of b */
ARIL_API aril_tensor *aril_copysign(aril_tensor *a, aril_tensor *b);
/* Hurwitz zeta function, the sum of (b + k)^-a over k = 0, 1, ...; no gradient flows to a */
ARIL_API aril_tensor *aril_zeta(aril_tensor *a, aril_tensor *b);
/* a == b */
ARIL_API aril_tensor *aril_eq(aril_tensor *a, aril_tensor *b);
/* a != b */
ARIL_API aril_tensor *aril_ne(aril_tensor *a, aril_tensor *b);
/* a < b */
ARIL_API aril_tensor *aril_lt(aril_tensor *a, aril_tensor *b);
/* a <= b */
ARIL_API aril_tensor *aril_le(aril_tensor *a, aril_tensor *b);
/* a > b */
ARIL_API aril_tensor *aril_gt(aril_tensor *a, aril_tensor *b);
/* a >= b */
ARIL_API aril_tensor *aril_ge(aril_tensor *a, aril_tensor *b);
/* a and b are both not 0 */
ARIL_API aril_tensor *aril_logical_and(aril_tensor *a, aril_tensor *b);
/* a or b is not 0 */
ARIL_API aril_tensor *aril_logical_or(aril_tensor *a, aril_tensor *b);
/* just one of a and b is not 0 */
ARIL_API aril_tensor *aril_logical_xor(aril_tensor *a, aril_tensor *b);
/* bits set in both */
ARIL_API aril_tensor *aril_bitwise_and(aril_tensor *a, aril_tensor *b);
/* bits set in either */
ARIL_API aril_tensor *aril_bitwise_or(aril_tensor *a, aril_tensor *b);
/* bits set in one */
ARIL_API aril_tensor *aril_bitwise_xor(aril_tensor *a, aril_tensor *b);
/* a * 2^b */
ARIL_API aril_tensor *aril_shift_left(aril_tensor *a, aril_tensor *b);
/* a / 2^b rounded down */
ARIL_API aril_tensor *aril_shift_right(aril_tensor *a, aril_tensor *b);

/* The same in place. */
ARIL_API aril_tensor *aril_add_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_sub_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_mul_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_div_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_floor_div_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_remainder_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_fmod_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_pow_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_maximum_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_minimum_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_atan2_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_hypot_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_logaddexp_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_xlogy_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_prelu_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_fmax_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_fmin_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_copysign_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_zeta_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_bitwise_and_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_bitwise_or_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_bitwise_xor_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_shift_left_(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_shift_right_(aril_tensor *a, aril_tensor *b);

/* The same with a C number: a OP value. */
ARIL_API aril_tensor *aril_add_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_sub_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_mul_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_div_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_floor_div_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_remainder_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_fmod_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_pow_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_maximum_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_minimum_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_atan2_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_hypot_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_logaddexp_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_xlogy_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_prelu_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_fmax_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_fmin_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_copysign_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_zeta_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_eq_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_ne_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_lt_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_le_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_gt_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_ge_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_logical_and_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_logical_or_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_logical_xor_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_bitwise_and_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_bitwise_or_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_bitwise_xor_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_shift_left_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_shift_right_scalar(aril_tensor *a, aril_number value);

/* The same with a C number, in place. */
ARIL_API aril_tensor *aril_add_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_sub_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_mul_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_div_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_floor_div_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_remainder_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_fmod_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_pow_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_maximum_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_minimum_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_atan2_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_hypot_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_logaddexp_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_xlogy_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_prelu_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_fmax_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_fmin_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_copysign_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_zeta_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_bitwise_and_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_bitwise_or_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_bitwise_xor_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_shift_left_scalar_(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_shift_right_scalar_(aril_tensor *a, aril_number value);

/* value - a and value / a. */
ARIL_API aril_tensor *aril_rsub_scalar(aril_tensor *a, aril_number value);
ARIL_API aril_tensor *aril_rdiv_scalar(aril_tensor *a, aril_number value);

/* ---- equality within a tolerance ---- */

typedef struct aril_close_opts {
    double rtol;    /* relative to |b|; default 1e-5, 0 by ARIL_ZERO */
    double atol;    /* absolute; default 1e-8, 0 by ARIL_ZERO */
    bool equal_nan; /* NaN is close to NaN */
} aril_close_opts;

/* Whether a is close to b: |a - b| <= atol + rtol * |b|, or equal, as infinities may be. bool */
ARIL_API aril_tensor *aril_isclose(aril_tensor *a, aril_tensor *b, aril_close_opts opts);
/* True when all elements are close; a and b broadcast. False, with an error, on failure. */
ARIL_API bool aril_allclose(aril_tensor *a, aril_tensor *b, aril_close_opts opts);
/* True when a and b have the same shape and equal elements; NaN equals nothing. False, with an
 * error, on failure. */
ARIL_API bool aril_equal(aril_tensor *a, aril_tensor *b);

/* ---- three operands ---- */

/* Elements of a where cond is true (not 0), else of b; all three broadcast. */
ARIL_API aril_tensor *aril_where(aril_tensor *cond, aril_tensor *a, aril_tensor *b);
/* a + weight * (b - a) */
ARIL_API aril_tensor *aril_lerp(aril_tensor *a, aril_tensor *b, aril_tensor *weight);
/* a clamped to low..high; from below; from above. NaN stays NaN, and a NaN bound is ignored; if low
 * > high the result is high. At a bound itself no gradient flows. */
ARIL_API aril_tensor *aril_clamp(aril_tensor *a, aril_number low, aril_number high);
ARIL_API aril_tensor *aril_clamp_min(aril_tensor *a, aril_number low);
ARIL_API aril_tensor *aril_clamp_max(aril_tensor *a, aril_number high);
/* a clamped by tensors, with broadcasting; a NULL bound is ignored. At a bound itself half of the
 * gradient flows to a, half to the bound. */
ARIL_API aril_tensor *aril_clamp_tensor(aril_tensor *a, aril_tensor *low, aril_tensor *high);
/* a + value * b * c, and a + value * b / c. */
ARIL_API aril_tensor *aril_addcmul(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value);
ARIL_API aril_tensor *aril_addcdiv(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value);
ARIL_API aril_tensor *aril_lerp_(aril_tensor *a, aril_tensor *b, aril_tensor *weight);
ARIL_API aril_tensor *aril_clamp_(aril_tensor *a, aril_number low, aril_number high);
ARIL_API aril_tensor *aril_clamp_min_(aril_tensor *a, aril_number low);
ARIL_API aril_tensor *aril_clamp_max_(aril_tensor *a, aril_number high);
ARIL_API aril_tensor *aril_addcmul_(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value);
ARIL_API aril_tensor *aril_addcdiv_(aril_tensor *a, aril_tensor *b, aril_tensor *c, double value);

/* ---- one operand ---- */

/* -a */
ARIL_API aril_tensor *aril_neg(aril_tensor *a);
/* absolute value */
ARIL_API aril_tensor *aril_abs(aril_tensor *a);
/* -1, 0 or 1 */
ARIL_API aril_tensor *aril_sign(aril_tensor *a);
/* a * a */
ARIL_API aril_tensor *aril_square(aril_tensor *a);
/* 1 / a */
ARIL_API aril_tensor *aril_reciprocal(aril_tensor *a);
/* square root */
ARIL_API aril_tensor *aril_sqrt(aril_tensor *a);
/* 1 / sqrt(a) */
ARIL_API aril_tensor *aril_rsqrt(aril_tensor *a);
/* e to the power a */
ARIL_API aril_tensor *aril_exp(aril_tensor *a);
/* exp(a) - 1, exact near 0 */
ARIL_API aril_tensor *aril_expm1(aril_tensor *a);
/* 2 to the power a */
ARIL_API aril_tensor *aril_exp2(aril_tensor *a);
/* natural logarithm */
ARIL_API aril_tensor *aril_log(aril_tensor *a);
/* log(1 + a), exact near 0 */
ARIL_API aril_tensor *aril_log1p(aril_tensor *a);
/* logarithm to base 2 */
ARIL_API aril_tensor *aril_log2(aril_tensor *a);
/* logarithm to base 10 */
ARIL_API aril_tensor *aril_log10(aril_tensor *a);
/* sine */
ARIL_API aril_tensor *aril_sin(aril_tensor *a);
/* cosine */
ARIL_API aril_tensor *aril_cos(aril_tensor *a);
/* tangent */
ARIL_API aril_tensor *aril_tan(aril_tensor *a);
/* arc sine */
ARIL_API aril_tensor *aril_asin(aril_tensor *a);
/* arc cosine */
ARIL_API aril_tensor *aril_acos(aril_tensor *a);
/* arc tangent */
ARIL_API aril_tensor *aril_atan(aril_tensor *a);
/* hyperbolic sine */
ARIL_API aril_tensor *aril_sinh(aril_tensor *a);
/* hyperbolic cosine */
ARIL_API aril_tensor *aril_cosh(aril_tensor *a);
/* hyperbolic tangent */
ARIL_API aril_tensor *aril_tanh(aril_tensor *a);
/* inverse hyperbolic sine */
ARIL_API aril_tensor *aril_asinh(aril_tensor *a);
/* inverse hyperbolic cosine */
ARIL_API aril_tensor *aril_acosh(aril_tensor *a);
/* inverse hyperbolic tangent */
ARIL_API aril_tensor *aril_atanh(aril_tensor *a);
/* error function */
ARIL_API aril_tensor *aril_erf(aril_tensor *a);
/* 1 - erf(a) */
ARIL_API aril_tensor *aril_erfc(aril_tensor *a);
/* inverse of the error function: infinite at -1 and 1, NaN outside */
ARIL_API aril_tensor *aril_erfinv(aril_tensor *a);
/* logarithm of the absolute value of the gamma function */
ARIL_API aril_tensor *aril_lgamma(aril_tensor *a);
/* first and second derivative of lgamma */
ARIL_API aril_tensor *aril_digamma(aril_tensor *a);
ARIL_API aril_tensor *aril_trigamma(aril_tensor *a);
/* n-th derivative of digamma, n >= 0 */
ARIL_API aril_tensor *aril_polygamma(int n, aril_tensor *a);
/* rounded down */
ARIL_API aril_tensor *aril_floor(aril_tensor *a);
/* rounded up */
ARIL_API aril_tensor *aril_ceil(aril_tensor *a);
/* rounded to the nearest, halves to even */
ARIL_API aril_tensor *aril_round(aril_tensor *a);
/* rounded towards 0 */
ARIL_API aril_tensor *aril_trunc(aril_tensor *a);
/* a - trunc(a) */
ARIL_API aril_tensor *aril_frac(aril_tensor *a);
/* 1 / (1 + exp(-a)) */
ARIL_API aril_tensor *aril_sigmoid(aril_tensor *a);
/* log(a / (1 - a)) */
ARIL_API aril_tensor *aril_logit(aril_tensor *a);
/* log(sigmoid(a)) */
ARIL_API aril_tensor *aril_logsigmoid(aril_tensor *a);
/* max(a, 0); NaN stays NaN */
ARIL_API aril_tensor *aril_relu(aril_tensor *a);
/* a held between 0 and 6 */
ARIL_API aril_tensor *aril_relu6(aril_tensor *a);
/* scaled elu that keeps mean 0 and variance 1 */
ARIL_API aril_tensor *aril_selu(aril_tensor *a);
/* a times the normal distribution function of a */
ARIL_API aril_tensor *aril_gelu(aril_tensor *a);
/* gelu by the tanh formula */
ARIL_API aril_tensor *aril_gelu_tanh(aril_tensor *a);
/* a * sigmoid(a) */
ARIL_API aril_tensor *aril_silu(aril_tensor *a);
/* a * tanh(softplus(a)) */
ARIL_API aril_tensor *aril_mish(aril_tensor *a);
/* a / (1 + |a|) */
ARIL_API aril_tensor *aril_softsign(aril_tensor *a);
/* a / 6 + 1 / 2 held between 0 and 1 */
ARIL_API aril_tensor *aril_hardsigmoid(aril_tensor *a);
/* a * hardsigmoid(a) */
ARIL_API aril_tensor *aril_hardswish(aril_tensor *a);
/* is not a number */
ARIL_API aril_tensor *aril_isnan(aril_tensor *a);
/* is infinite */
ARIL_API aril_tensor *aril_isinf(aril_tensor *a);
/* is neither infinite nor NaN */
ARIL_API aril_tensor *aril_isfinite(aril_tensor *a);
/* the sign bit is set: negative, -0 or -NaN */
ARIL_API aril_tensor *aril_signbit(aril_tensor *a);
/* a is 0 */
ARIL_API aril_tensor *aril_logical_not(aril_tensor *a);
/* bits turned over; of bool: logical_not */
ARIL_API aril_tensor *aril_bitwise_not(aril_tensor *a);

/* a where positive, else alpha * a. PyTorch's default is 0.01. */
ARIL_API aril_tensor *aril_leaky_relu(aril_tensor *a, double alpha);
/* a where positive, else alpha * (exp(a) - 1). */
ARIL_API aril_tensor *aril_elu(aril_tensor *a, double alpha);
/* a where positive, else alpha * (exp(a / alpha) - 1). */
ARIL_API aril_tensor *aril_celu(aril_tensor *a, double alpha);
/* log(1 + exp(beta * a)) / beta, and a itself where beta * a is above the threshold. PyTorch's
 * defaults are 1 and 20. */
ARIL_API aril_tensor *aril_softplus(aril_tensor *a, double beta, double threshold);
/* a clamped to low..high; no gradient flows outside. */
ARIL_API aril_tensor *aril_hardtanh(aril_tensor *a, double low, double high);
/* Shrinks a towards 0 by lambd; a, or 0 where |a| <= lambd. */
ARIL_API aril_tensor *aril_softshrink(aril_tensor *a, double lambd);
ARIL_API aril_tensor *aril_hardshrink(aril_tensor *a, double lambd);
/* a where above the threshold, else value. */
ARIL_API aril_tensor *aril_threshold(aril_tensor *a, double threshold, double value);
/* NaN and infinities replaced by the given numbers. */
ARIL_API aril_tensor *aril_nan_to_num(aril_tensor *a, double nan, double posinf, double neginf);
/* a - tanh(a) */
ARIL_API aril_tensor *aril_tanhshrink(aril_tensor *a);
/* log(a / (1 - a)) with a first clamped to eps..1 - eps. */
ARIL_API aril_tensor *aril_logit_eps(aril_tensor *a, double eps);

/* The same in place. */
ARIL_API aril_tensor *aril_neg_(aril_tensor *a);
ARIL_API aril_tensor *aril_abs_(aril_tensor *a);
ARIL_API aril_tensor *aril_sign_(aril_tensor *a);
ARIL_API aril_tensor *aril_square_(aril_tensor *a);
ARIL_API aril_tensor *aril_reciprocal_(aril_tensor *a);
ARIL_API aril_tensor *aril_sqrt_(aril_tensor *a);
ARIL_API aril_tensor *aril_rsqrt_(aril_tensor *a);
ARIL_API aril_tensor *aril_exp_(aril_tensor *a);
ARIL_API aril_tensor *aril_expm1_(aril_tensor *a);
ARIL_API aril_tensor *aril_exp2_(aril_tensor *a);
ARIL_API aril_tensor *aril_log_(aril_tensor *a);
ARIL_API aril_tensor *aril_log1p_(aril_tensor *a);
ARIL_API aril_tensor *aril_log2_(aril_tensor *a);
ARIL_API aril_tensor *aril_log10_(aril_tensor *a);
ARIL_API aril_tensor *aril_sin_(aril_tensor *a);
ARIL_API aril_tensor *aril_cos_(aril_tensor *a);
ARIL_API aril_tensor *aril_tan_(aril_tensor *a);
ARIL_API aril_tensor *aril_asin_(aril_tensor *a);
ARIL_API aril_tensor *aril_acos_(aril_tensor *a);
ARIL_API aril_tensor *aril_atan_(aril_tensor *a);
ARIL_API aril_tensor *aril_sinh_(aril_tensor *a);
ARIL_API aril_tensor *aril_cosh_(aril_tensor *a);
ARIL_API aril_tensor *aril_tanh_(aril_tensor *a);
ARIL_API aril_tensor *aril_asinh_(aril_tensor *a);
ARIL_API aril_tensor *aril_acosh_(aril_tensor *a);
ARIL_API aril_tensor *aril_atanh_(aril_tensor *a);
ARIL_API aril_tensor *aril_erf_(aril_tensor *a);
ARIL_API aril_tensor *aril_erfc_(aril_tensor *a);
ARIL_API aril_tensor *aril_erfinv_(aril_tensor *a);
ARIL_API aril_tensor *aril_lgamma_(aril_tensor *a);
ARIL_API aril_tensor *aril_digamma_(aril_tensor *a);
ARIL_API aril_tensor *aril_trigamma_(aril_tensor *a);
ARIL_API aril_tensor *aril_floor_(aril_tensor *a);
ARIL_API aril_tensor *aril_ceil_(aril_tensor *a);
ARIL_API aril_tensor *aril_round_(aril_tensor *a);
ARIL_API aril_tensor *aril_trunc_(aril_tensor *a);
ARIL_API aril_tensor *aril_frac_(aril_tensor *a);
ARIL_API aril_tensor *aril_sigmoid_(aril_tensor *a);
ARIL_API aril_tensor *aril_logit_(aril_tensor *a);
ARIL_API aril_tensor *aril_logsigmoid_(aril_tensor *a);
ARIL_API aril_tensor *aril_relu_(aril_tensor *a);
ARIL_API aril_tensor *aril_relu6_(aril_tensor *a);
ARIL_API aril_tensor *aril_selu_(aril_tensor *a);
ARIL_API aril_tensor *aril_gelu_(aril_tensor *a);
ARIL_API aril_tensor *aril_gelu_tanh_(aril_tensor *a);
ARIL_API aril_tensor *aril_silu_(aril_tensor *a);
ARIL_API aril_tensor *aril_mish_(aril_tensor *a);
ARIL_API aril_tensor *aril_softsign_(aril_tensor *a);
ARIL_API aril_tensor *aril_hardsigmoid_(aril_tensor *a);
ARIL_API aril_tensor *aril_hardswish_(aril_tensor *a);
ARIL_API aril_tensor *aril_leaky_relu_(aril_tensor *a, double alpha);
ARIL_API aril_tensor *aril_elu_(aril_tensor *a, double alpha);
ARIL_API aril_tensor *aril_celu_(aril_tensor *a, double alpha);
ARIL_API aril_tensor *aril_hardtanh_(aril_tensor *a, double low, double high);

ARIL_C_END

#ifndef __cplusplus /* C++ converts numbers implicitly */
#define aril_scalar(v)                 aril_scalar(ARIL_NUMBER(v))
#define aril_clamp(a, low, high)       aril_clamp((a), ARIL_NUMBER(low), ARIL_NUMBER(high))
#define aril_clamp_(a, low, high)      aril_clamp_((a), ARIL_NUMBER(low), ARIL_NUMBER(high))
#define aril_clamp_min(a, low)         aril_clamp_min((a), ARIL_NUMBER(low))
#define aril_clamp_min_(a, low)        aril_clamp_min_((a), ARIL_NUMBER(low))
#define aril_clamp_max(a, high)        aril_clamp_max((a), ARIL_NUMBER(high))
#define aril_clamp_max_(a, high)       aril_clamp_max_((a), ARIL_NUMBER(high))
#define aril_add_scalar(a, v)          aril_add_scalar((a), ARIL_NUMBER(v))
#define aril_sub_scalar(a, v)          aril_sub_scalar((a), ARIL_NUMBER(v))
#define aril_mul_scalar(a, v)          aril_mul_scalar((a), ARIL_NUMBER(v))
#define aril_div_scalar(a, v)          aril_div_scalar((a), ARIL_NUMBER(v))
#define aril_floor_div_scalar(a, v)    aril_floor_div_scalar((a), ARIL_NUMBER(v))
#define aril_remainder_scalar(a, v)    aril_remainder_scalar((a), ARIL_NUMBER(v))
#define aril_fmod_scalar(a, v)         aril_fmod_scalar((a), ARIL_NUMBER(v))
#define aril_pow_scalar(a, v)          aril_pow_scalar((a), ARIL_NUMBER(v))
#define aril_maximum_scalar(a, v)      aril_maximum_scalar((a), ARIL_NUMBER(v))
#define aril_minimum_scalar(a, v)      aril_minimum_scalar((a), ARIL_NUMBER(v))
#define aril_atan2_scalar(a, v)        aril_atan2_scalar((a), ARIL_NUMBER(v))
#define aril_hypot_scalar(a, v)        aril_hypot_scalar((a), ARIL_NUMBER(v))
#define aril_logaddexp_scalar(a, v)    aril_logaddexp_scalar((a), ARIL_NUMBER(v))
#define aril_xlogy_scalar(a, v)        aril_xlogy_scalar((a), ARIL_NUMBER(v))
#define aril_prelu_scalar(a, v)        aril_prelu_scalar((a), ARIL_NUMBER(v))
#define aril_fmax_scalar(a, v)         aril_fmax_scalar((a), ARIL_NUMBER(v))
#define aril_fmin_scalar(a, v)         aril_fmin_scalar((a), ARIL_NUMBER(v))
#define aril_copysign_scalar(a, v)     aril_copysign_scalar((a), ARIL_NUMBER(v))
#define aril_zeta_scalar(a, v)         aril_zeta_scalar((a), ARIL_NUMBER(v))
#define aril_eq_scalar(a, v)           aril_eq_scalar((a), ARIL_NUMBER(v))
#define aril_ne_scalar(a, v)           aril_ne_scalar((a), ARIL_NUMBER(v))
#define aril_lt_scalar(a, v)           aril_lt_scalar((a), ARIL_NUMBER(v))
#define aril_le_scalar(a, v)           aril_le_scalar((a), ARIL_NUMBER(v))
#define aril_gt_scalar(a, v)           aril_gt_scalar((a), ARIL_NUMBER(v))
#define aril_ge_scalar(a, v)           aril_ge_scalar((a), ARIL_NUMBER(v))
#define aril_logical_and_scalar(a, v)  aril_logical_and_scalar((a), ARIL_NUMBER(v))
#define aril_logical_or_scalar(a, v)   aril_logical_or_scalar((a), ARIL_NUMBER(v))
#define aril_logical_xor_scalar(a, v)  aril_logical_xor_scalar((a), ARIL_NUMBER(v))
#define aril_bitwise_and_scalar(a, v)  aril_bitwise_and_scalar((a), ARIL_NUMBER(v))
#define aril_bitwise_or_scalar(a, v)   aril_bitwise_or_scalar((a), ARIL_NUMBER(v))
#define aril_bitwise_xor_scalar(a, v)  aril_bitwise_xor_scalar((a), ARIL_NUMBER(v))
#define aril_shift_left_scalar(a, v)   aril_shift_left_scalar((a), ARIL_NUMBER(v))
#define aril_shift_right_scalar(a, v)  aril_shift_right_scalar((a), ARIL_NUMBER(v))
#define aril_add_scalar_(a, v)         aril_add_scalar_((a), ARIL_NUMBER(v))
#define aril_sub_scalar_(a, v)         aril_sub_scalar_((a), ARIL_NUMBER(v))
#define aril_mul_scalar_(a, v)         aril_mul_scalar_((a), ARIL_NUMBER(v))
#define aril_div_scalar_(a, v)         aril_div_scalar_((a), ARIL_NUMBER(v))
#define aril_floor_div_scalar_(a, v)   aril_floor_div_scalar_((a), ARIL_NUMBER(v))
#define aril_remainder_scalar_(a, v)   aril_remainder_scalar_((a), ARIL_NUMBER(v))
#define aril_fmod_scalar_(a, v)        aril_fmod_scalar_((a), ARIL_NUMBER(v))
#define aril_pow_scalar_(a, v)         aril_pow_scalar_((a), ARIL_NUMBER(v))
#define aril_maximum_scalar_(a, v)     aril_maximum_scalar_((a), ARIL_NUMBER(v))
#define aril_minimum_scalar_(a, v)     aril_minimum_scalar_((a), ARIL_NUMBER(v))
#define aril_atan2_scalar_(a, v)       aril_atan2_scalar_((a), ARIL_NUMBER(v))
#define aril_hypot_scalar_(a, v)       aril_hypot_scalar_((a), ARIL_NUMBER(v))
#define aril_logaddexp_scalar_(a, v)   aril_logaddexp_scalar_((a), ARIL_NUMBER(v))
#define aril_xlogy_scalar_(a, v)       aril_xlogy_scalar_((a), ARIL_NUMBER(v))
#define aril_prelu_scalar_(a, v)       aril_prelu_scalar_((a), ARIL_NUMBER(v))
#define aril_fmax_scalar_(a, v)        aril_fmax_scalar_((a), ARIL_NUMBER(v))
#define aril_fmin_scalar_(a, v)        aril_fmin_scalar_((a), ARIL_NUMBER(v))
#define aril_copysign_scalar_(a, v)    aril_copysign_scalar_((a), ARIL_NUMBER(v))
#define aril_zeta_scalar_(a, v)        aril_zeta_scalar_((a), ARIL_NUMBER(v))
#define aril_bitwise_and_scalar_(a, v) aril_bitwise_and_scalar_((a), ARIL_NUMBER(v))
#define aril_bitwise_or_scalar_(a, v)  aril_bitwise_or_scalar_((a), ARIL_NUMBER(v))
#define aril_bitwise_xor_scalar_(a, v) aril_bitwise_xor_scalar_((a), ARIL_NUMBER(v))
#define aril_shift_left_scalar_(a, v)  aril_shift_left_scalar_((a), ARIL_NUMBER(v))
#define aril_shift_right_scalar_(a, v) aril_shift_right_scalar_((a), ARIL_NUMBER(v))
#define aril_rsub_scalar(a, v)         aril_rsub_scalar((a), ARIL_NUMBER(v))
#define aril_rdiv_scalar(a, v)         aril_rdiv_scalar((a), ARIL_NUMBER(v))
#endif

#endif
