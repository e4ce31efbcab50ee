/* The k_ functions of elementwise formulas (ops/elementwise/elementwise.def) for the four compute
 * types. Other kernels use them too, so that an activation is the same number everywhere.
 *
 * Functions of integers that may fail take a last argument `bad`, which gets a reason: formulas
 * call them through the macros at the end of this file, with a variable of that name in scope. The
 * result is then x: an element that is changed in place keeps its value. */
#ifndef ARIL_CUDA_FORMULAS_CUH
#define ARIL_CUDA_FORMULAS_CUH

#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/special.cuh"

#define ARIL_CUDA_K      static __device__ __forceinline__
#define ARIL_CUDA_K_CALL static __device__ __noinline__ /* large: compiled once for each file */

enum { ARIL_CUDA_FINE = -1 }; /* no reason: `bad` is this or an aril_cuda_bad */

/* ---- functions of the C library ---- */

#define ARIL_CUDA_K1(name, f32, f64)      \
    ARIL_CUDA_K float k_##name(float x)   \
    {                                     \
        return f32;                       \
    }                                     \
    ARIL_CUDA_K double k_##name(double x) \
    {                                     \
        return f64;                       \
    }
#define ARIL_CUDA_K1_F64_CALL(name, f32, f64)  \
    ARIL_CUDA_K float k_##name(float x)        \
    {                                          \
        return f32;                            \
    }                                          \
    ARIL_CUDA_K_CALL double k_##name(double x) \
    {                                          \
        return f64;                            \
    }
#define ARIL_CUDA_K1_CALL(name, f32, f64)      \
    ARIL_CUDA_K_CALL float k_##name(float x)   \
    {                                          \
        return f32;                            \
    }                                          \
    ARIL_CUDA_K_CALL double k_##name(double x) \
    {                                          \
        return f64;                            \
    }
#define ARIL_CUDA_K2(name, f32, f64)                \
    ARIL_CUDA_K float k_##name(float x, float y)    \
    {                                               \
        return f32;                                 \
    }                                               \
    ARIL_CUDA_K double k_##name(double x, double y) \
    {                                               \
        return f64;                                 \
    }
#define ARIL_CUDA_K2_CALL(name, f32, f64)                \
    ARIL_CUDA_K_CALL float k_##name(float x, float y)    \
    {                                                    \
        return f32;                                      \
    }                                                    \
    ARIL_CUDA_K_CALL double k_##name(double x, double y) \
    {                                                    \
        return f64;                                      \
    }

ARIL_CUDA_K1_F64_CALL(exp, expf(x), exp(x))
ARIL_CUDA_K1_F64_CALL(expm1, expm1f(x), expm1(x))
ARIL_CUDA_K1_F64_CALL(exp2, exp2f(x), exp2(x))
ARIL_CUDA_K1_F64_CALL(log, logf(x), log(x))
ARIL_CUDA_K1_F64_CALL(log1p, log1pf(x), log1p(x))
ARIL_CUDA_K1_F64_CALL(log2, log2f(x), log2(x))
ARIL_CUDA_K1_F64_CALL(log10, log10f(x), log10(x))
ARIL_CUDA_K1_CALL(sin, sinf(x), sin(x))
ARIL_CUDA_K1_CALL(cos, cosf(x), cos(x))
ARIL_CUDA_K1_CALL(tan, tanf(x), tan(x))
ARIL_CUDA_K1_CALL(asin, asinf(x), asin(x))
ARIL_CUDA_K1_CALL(acos, acosf(x), acos(x))
ARIL_CUDA_K1_CALL(atan, atanf(x), atan(x))
ARIL_CUDA_K1_CALL(sinh, sinhf(x), sinh(x))
ARIL_CUDA_K1_CALL(cosh, coshf(x), cosh(x))
ARIL_CUDA_K1_F64_CALL(tanh, tanhf(x), tanh(x))
ARIL_CUDA_K1_CALL(asinh, asinhf(x), asinh(x))
ARIL_CUDA_K1_CALL(acosh, acoshf(x), acosh(x))
ARIL_CUDA_K1_CALL(atanh, atanhf(x), atanh(x))
ARIL_CUDA_K1_F64_CALL(erf, erff(x), erf(x))
ARIL_CUDA_K1_CALL(erfc, erfcf(x), erfc(x))
ARIL_CUDA_K1_CALL(erfinv, erfinvf(x), erfinv(x))
ARIL_CUDA_K1(sqrt, sqrtf(x), sqrt(x))
ARIL_CUDA_K1(floor, floorf(x), floor(x))
ARIL_CUDA_K1(ceil, ceilf(x), ceil(x))
ARIL_CUDA_K1(round, rintf(x), rint(x))
ARIL_CUDA_K1(trunc, truncf(x), trunc(x))
ARIL_CUDA_K1(abs, fabsf(x), fabs(x))
ARIL_CUDA_K2_CALL(atan2, atan2f(x, y), atan2(x, y))
ARIL_CUDA_K2_CALL(hypot, hypotf(x, y), hypot(x, y))
ARIL_CUDA_K2(copysign, copysignf(x, y), copysign(x, y))

/* Near a zero the terms of these cancel: f32 computes in double. */
ARIL_CUDA_K1_CALL(lgamma, (float)aril_cuda_lgamma(x), aril_cuda_lgamma(x))
ARIL_CUDA_K1_CALL(digamma, (float)aril_cuda_digamma(x), aril_cuda_digamma(x))
ARIL_CUDA_K1_CALL(trigamma, (float)aril_cuda_trigamma(x), aril_cuda_trigamma(x))
ARIL_CUDA_K2_CALL(zeta, (float)aril_cuda_zeta(x, y), aril_cuda_zeta(x, y))

ARIL_CUDA_K float k_fma(float x, float y, float z)
{
    return __fmaf_rn(x, y, z);
}
ARIL_CUDA_K double k_fma(double x, double y, double z)
{
    return __fma_rn(x, y, z);
}

/* ---- for all types ---- */

ARIL_CUDA_K int64_t k_abs(int64_t x)
{
    return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
}
ARIL_CUDA_K uint64_t k_abs(uint64_t x)
{
    return x;
}
#define ARIL_CUDA_K_INTEGER(name)             \
    ARIL_CUDA_K int64_t k_##name(int64_t x)   \
    {                                         \
        return x;                             \
    }                                         \
    ARIL_CUDA_K uint64_t k_##name(uint64_t x) \
    {                                         \
        return x;                             \
    }
ARIL_CUDA_K_INTEGER(floor)
ARIL_CUDA_K_INTEGER(ceil)
ARIL_CUDA_K_INTEGER(round)
ARIL_CUDA_K_INTEGER(trunc)

template <typename T> ARIL_CUDA_K bool k_isnan(T x)
{
    return x != x;
}
ARIL_CUDA_K bool k_isinf(float x)
{
    return fabsf(x) > FLT_MAX;
}
ARIL_CUDA_K bool k_isinf(double x)
{
    return fabs(x) > DBL_MAX;
}
ARIL_CUDA_K bool k_isinf(int64_t)
{
    return false;
}
ARIL_CUDA_K bool k_isinf(uint64_t)
{
    return false;
}
ARIL_CUDA_K bool k_isfinite(float x)
{
    return fabsf(x) <= FLT_MAX;
}
ARIL_CUDA_K bool k_isfinite(double x)
{
    return fabs(x) <= DBL_MAX;
}
ARIL_CUDA_K bool k_isfinite(int64_t)
{
    return true;
}
ARIL_CUDA_K bool k_isfinite(uint64_t)
{
    return true;
}
ARIL_CUDA_K bool k_signbit(float x)
{
    return __float_as_int(x) < 0;
}
ARIL_CUDA_K bool k_signbit(double x)
{
    return __double_as_longlong(x) < 0;
}
ARIL_CUDA_K bool k_signbit(int64_t x)
{
    return x < 0;
}
ARIL_CUDA_K bool k_signbit(uint64_t)
{
    return false;
}

template <typename T> ARIL_CUDA_K T k_square(T x)
{
    return x * x;
}
/* 0 for NaN, as in PyTorch. */
template <typename T> ARIL_CUDA_K T k_sign(T x)
{
    return (T)((x > T(0)) - (x < T(0)));
}
template <typename T> ARIL_CUDA_K T k_maximum(T x, T y)
{
    return x != x || x > y ? x : y;
}
template <typename T> ARIL_CUDA_K T k_minimum(T x, T y)
{
    return x != x || x < y ? x : y;
}

/* ---- activations ---- */

template <typename T> ARIL_CUDA_K T k_sigmoid(T x)
{
    T e = k_exp(-k_abs(x)), y = e / (T(1) + e);
    return x < T(0) ? y : T(1) / (T(1) + e);
}
template <typename T> ARIL_CUDA_K T k_gelu(T x)
{
    return T(0.5) * x * (T(1) + k_erf(x * T(0.70710678118654752440)));
}
template <typename T> ARIL_CUDA_K T k_logaddexp(T x, T y)
{
    T high = k_maximum(x, y), low = x == high ? y : x;
    return k_isinf(high) ? high : high + k_log1p(k_exp(low - high));
}

/* ---- division and powers ---- */

ARIL_CUDA_K_CALL float aril_cuda_fmod_f32(float x, float y)
{
    return fmodf(x, y);
}
ARIL_CUDA_K_CALL double aril_cuda_fmod_f64(double x, double y)
{
    return fmod(x, y);
}
ARIL_CUDA_K float aril_cuda_fmod(float x, float y, int &)
{
    return aril_cuda_fmod_f32(x, y);
}
ARIL_CUDA_K double aril_cuda_fmod(double x, double y, int &)
{
    return aril_cuda_fmod_f64(x, y);
}
ARIL_CUDA_K int64_t aril_cuda_fmod(int64_t x, int64_t y, int &bad)
{
    if (y == 0) bad = ARIL_CUDA_BAD_DIVISION;
    return y == 0 ? x : y == -1 ? 0 : x % y;
}
ARIL_CUDA_K uint64_t aril_cuda_fmod(uint64_t x, uint64_t y, int &bad)
{
    if (y == 0) bad = ARIL_CUDA_BAD_DIVISION;
    return y == 0 ? x : x % y;
}

/* Python's rule: the remainder has the divisor's sign. */
template <typename T> ARIL_CUDA_K T aril_cuda_remainder(T x, T y, int &bad)
{
    T m = aril_cuda_fmod(x, y, bad);
    return m != T(0) && (m < T(0)) != (y < T(0)) ? m + y : m;
}

/* Floor division as in Python: exact when x / y is nearly an integer. */
template <typename T> ARIL_CUDA_K T aril_cuda_floor_div(T x, T y, int &bad)
{
    T m = aril_cuda_fmod(x, y, bad);
    T plain = x / y, q = (x - m) / y;
    q = m != T(0) && (y < T(0)) != (m < T(0)) ? q - T(1) : q;
    T rounded = k_floor(q);
    rounded = q - rounded > T(0.5) ? rounded + T(1) : rounded;
    rounded = q == T(0) ? T(0) * plain : rounded;
    return y == T(0) ? plain : rounded;
}
ARIL_CUDA_K int64_t aril_cuda_floor_div(int64_t x, int64_t y, int &bad)
{
    if (y == 0) bad = ARIL_CUDA_BAD_DIVISION;
    if (y == 0) return x;
    if (y == -1) return (int64_t)(0 - (uint64_t)x); /* the only quotient that can overflow */
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
ARIL_CUDA_K uint64_t aril_cuda_floor_div(uint64_t x, uint64_t y, int &bad)
{
    if (y == 0) bad = ARIL_CUDA_BAD_DIVISION;
    return y == 0 ? x : x / y;
}

ARIL_CUDA_K2_CALL(power, powf(x, y), pow(x, y))
ARIL_CUDA_K float aril_cuda_pow(float x, float y, int &)
{
    return k_power(x, y);
}
ARIL_CUDA_K double aril_cuda_pow(double x, double y, int &)
{
    return k_power(x, y);
}
template <typename T> ARIL_CUDA_K T aril_cuda_pow(T x, T y, int &bad)
{
    if (y < T(0)) {
        bad = ARIL_CUDA_BAD_POWER;
        return x;
    }
    uint64_t result = 1, base = (uint64_t)x;
    for (uint64_t n = (uint64_t)y; n; n >>= 1) {
        if (n & 1) result *= base;
        base *= base;
    }
    return (T)result;
}

ARIL_CUDA_K int64_t k_shift_left(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y);
}
ARIL_CUDA_K uint64_t k_shift_left(uint64_t x, uint64_t y)
{
    return y > 63 ? 0 : x << y;
}
ARIL_CUDA_K int64_t k_shift_right(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? (x < 0 ? -1 : 0) : x >> y;
}
ARIL_CUDA_K uint64_t k_shift_right(uint64_t x, uint64_t y)
{
    return y > 63 ? 0 : x >> y;
}

#define k_fmod(x, y)      aril_cuda_fmod(x, y, bad)
#define k_remainder(x, y) aril_cuda_remainder(x, y, bad)
#define k_floor_div(x, y) aril_cuda_floor_div(x, y, bad)
#define k_pow(x, y)       aril_cuda_pow(x, y, bad)

#endif
