/* Elementwise formulas in uint64_t: u64 alone. Sums, differences and products wrap. */
#include "backend/cpu/elementwise.h"

#pragma GCC diagnostic ignored "-Wtype-limits"

#define T uint64_t
#define REAL_TYPE 0
#define NAME(op) op##_u64
#define TABLE aril__ew_u64

#define k_isnan(x) ((x) != (x))
#define k_isinf(x) ((x) != (x))
#define k_isfinite(x) ((x) == (x))
#define k_floor(x) (x)
#define k_ceil(x) (x)
#define k_round(x) (x)
#define k_trunc(x) (x)

#define k_abs(x) (x)

static inline T floor_div(T x, T y, int *bad)
{
    if (y == 0) {
        *bad = ARIL__BAD_DIVISOR;
        return 0;
    }
    return x / y;
}
static inline T c_mod(T x, T y, int *bad)
{
    if (y == 0) {
        *bad = ARIL__BAD_DIVISOR;
        return 0;
    }
    return x % y;
}
#define python_mod c_mod
static inline T k_shift_left(T x, T y)
{
    return y > 63 ? 0 : x << y;
}
static inline T k_shift_right(T x, T y)
{
    return y > 63 ? 0 : x >> y;
}
static inline T k_sign(T x)
{
    return (T)((x > 0) - (x < 0));
}
static inline T k_maximum(T x, T y)
{
    return x > y ? x : y;
}
static inline T k_minimum(T x, T y)
{
    return x < y ? x : y;
}
static inline T power(T x, T y, int *bad)
{
    if (y < 0) {
        *bad = ARIL__BAD_POWER;
        return 0;
    }
    T result = 1;
    for (; y; y >>= 1) {
        if (y & 1)
            result *= x;
        x *= x;
    }
    return result;
}
#define k_floor_div(x, y) floor_div(x, y, bad)
#define k_remainder(x, y) python_mod(x, y, bad)
#define k_fmod(x, y) c_mod(x, y, bad)
#define k_pow(x, y) power(x, y, bad)

#include "backend/cpu/elementwise_kernels.inc"
