/* Elementwise formulas in float. */
#include "backend/cpu/elementwise.h"

#include <math.h>

#define T float
#define REAL_TYPE 1
#define NAME(op) op##_f32
#define TABLE aril__ew_f32

#define k_exp expf
#define k_expm1 expm1f
#define k_exp2 exp2f
#define k_log logf
#define k_log1p log1pf
#define k_log2 log2f
#define k_log10 log10f
#define k_sqrt sqrtf
#define k_sin sinf
#define k_cos cosf
#define k_tan tanf
#define k_asin asinf
#define k_acos acosf
#define k_atan atanf
#define k_sinh sinhf
#define k_cosh coshf
#define k_tanh tanhf
#define k_asinh asinhf
#define k_acosh acoshf
#define k_atanh atanhf
#define k_erf erff
#define k_erfc erfcf
#define k_floor floorf
#define k_ceil ceilf
#define k_round rintf
#define k_trunc truncf
#define k_abs fabsf
#define k_fmod fmodf
#define k_pow powf
#define k_atan2 atan2f
#define k_hypot hypotf
#define k_isnan(x) ((x) != (x))
#define k_isinf(x) (fabsf(x) > 3.402823466e+38f)
#define k_isfinite(x) (fabsf(x) <= 3.402823466e+38f)

static inline T k_square(T x)
{
    return x * x;
}
static inline T k_sign(T x)
{
    return (T)((x > 0) - (x < 0)); /* 0 for NaN, as in PyTorch */
}
static inline T k_sigmoid(T x)
{
    T e = k_exp(-k_abs(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : x < 0 ? e / (1 + e) : x;
}
static inline T k_maximum(T x, T y)
{
    return x != x || x > y ? x : y;
}
static inline T k_minimum(T x, T y)
{
    return x != x || x < y ? x : y;
}
static inline T k_logaddexp(T x, T y)
{
    T high = k_maximum(x, y), low = x == high ? y : x;
    return k_isinf(high) ? high : high + k_log1p(k_exp(low - high));
}
/* Python's rule: the remainder has the divisor's sign. */
static inline T k_remainder(T x, T y)
{
    T m = k_fmod(x, y);
    return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}
/* As Python divides: exact where x / y is nearly whole. */
static inline T k_floor_div(T x, T y)
{
    if (y == 0)
        return x / y;
    T m = k_fmod(x, y), q = (x - m) / y;
    if (m != 0 && (y < 0) != (m < 0))
        q -= 1;
    if (q == 0)
        return (T)0 * (x / y);
    T whole = k_floor(q);
    return q - whole > (T)0.5 ? whole + 1 : whole;
}

#include "backend/cpu/elementwise_kernels.inc"
