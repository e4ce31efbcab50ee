/* Elementwise formulas in double. */
#include "backend/cpu/elementwise.h"

#include <math.h>

#define T double
#define REAL_TYPE 1
#define NAME(op) op##_f64
#define TABLE aril__ew_f64

#define k_exp exp
#define k_expm1 expm1
#define k_exp2 exp2
#define k_log log
#define k_log1p log1p
#define k_log2 log2
#define k_log10 log10
#define k_sqrt sqrt
#define k_sin sin
#define k_cos cos
#define k_tan tan
#define k_asin asin
#define k_acos acos
#define k_atan atan
#define k_sinh sinh
#define k_cosh cosh
#define k_tanh tanh
#define k_asinh asinh
#define k_acosh acosh
#define k_atanh atanh
#define k_erf erf
#define k_erfc erfc
#define k_floor floor
#define k_ceil ceil
#define k_round rint
#define k_trunc trunc
#define k_abs fabs
#define k_fmod fmod
#define k_pow pow
#define k_atan2 atan2
#define k_hypot hypot
#define k_isnan(x) ((x) != (x))
#define k_isinf(x) (fabs(x) > 1.7976931348623157e+308)
#define k_isfinite(x) (fabs(x) <= 1.7976931348623157e+308)

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
