/* Elementwise formulas in uint64_t: u64 alone. Sums, differences and products wrap. */
#include "backend/cpu/elementwise.h"

#pragma GCC diagnostic ignored "-Wtype-limits"

#define T        uint64_t
#define NAME(op) op##_u64
#define TABLE    aril__ew_u64

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
#include "backend/cpu/elementwise_whole.inc"
