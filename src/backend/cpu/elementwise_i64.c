/* Elementwise formulas in int64_t: all integers but u64. Sums, differences and products wrap. */
#include "backend/cpu/elementwise.h"

#pragma GCC diagnostic ignored "-Wtype-limits"

#define T        int64_t
#define NAME(op) op##_i64
#define TABLE    aril__ew_i64

#define k_abs(x) ((x) < 0 ? -(x) : (x))

static inline T floor_div(T x, T y, int *bad)
{
    if (y == 0) {
        *bad = ARIL__BAD_DIVISOR;
        return 0;
    }
    if (y == -1) return -x; /* the one quotient that can overflow, wrapped */
    T q = x / y;
    return q - (x % y != 0 && (x < 0) != (y < 0));
}
static inline T c_mod(T x, T y, int *bad)
{
    if (y == 0) {
        *bad = ARIL__BAD_DIVISOR;
        return 0;
    }
    return y == -1 ? 0 : x % y;
}
static inline T python_mod(T x, T y, int *bad)
{
    T m = c_mod(x, y, bad);
    return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}
static inline T k_shift_left(T x, T y)
{
    return y < 0 || y > 63 ? 0 : (T)((uint64_t)x << y);
}
static inline T k_shift_right(T x, T y)
{
    return y < 0 || y > 63 ? (x < 0 ? -1 : 0) : x >> y;
}
#include "backend/cpu/elementwise_whole.inc"
