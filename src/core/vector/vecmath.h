/* Mathematical functions for kernels: inline and branch-free, so that loops that call them
 * vectorize at the width of their target. At most 2 units in the last place (ulp) from the exact
 * value, over the whole range, with NaN, infinities, zeros of either sign and denormals handled as
 * in the C library (tests/ops/elementwise/test_vecmath.c).
 *
 * In a template of core/vector/each_target.inc, T being float or double:
 *
 *     #include "core/vector/vecmath.h"                                        (before the template)
 *     for (int64_t i = 0; i < n; i++) y[i] = NAME(v_exp)(x[i]);       (in a TARGET function)
 *
 * and in any other function v_exp_f32(x), the baseline version. gcc vectorizes such a loop under
 * -O3 with -fno-trapping-math and -fno-math-errno, which the library is built with; restrict on the
 * pointers avoids a runtime check for overlap.
 *
 *     f32 and f64   v_exp v_exp_below v_expm1 v_exp2 v_log v_log1p v_sigmoid v_tanh v_rint
 *                   v_floor v_ceil v_trunc v_sin v_cos v_tan v_asin v_acos v_atan v_atan2(y, x)
 *                   v_log2 v_log10 v_sinh v_cosh v_asinh v_acosh v_atanh v_erf v_erfc
 *                   v_pow(x, y) v_hypot(x, y) v_lgamma v_trigamma v_erfinv
 *     f32           v_digamma v_gelu
 *
 * The f64 v_lgamma takes positive numbers alone.
 *
 * v_sin, v_cos and v_tan are accurate up to ARIL__VM_FAR, in f64 to ARIL__VM_FAR64. Larger
 * arguments, which are rare, must go to the C library, each for itself: the bits of an element must
 * not depend on its neighbours. */
#ifndef ARIL_CORE_VECMATH_H
#define ARIL_CORE_VECMATH_H

#include "core/vector/targets.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ARIL__VM_FAR   0x1p20f
#define ARIL__VM_FAR64 0x1p14

/* Adding this number to x leaves rint(x) in the lowest bits of the sum. */
#define VM_ROUND32      0x1.8p23f
#define VM_ROUND32_BITS 0x4b400000u
#define VM_ROUND64      0x1.8p52

static inline uint32_t vm_bits32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float vm_float32(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline uint64_t vm_bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline double vm_float64(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#define VM_TARGET
#define F32(x)  x##_f32
#define F64(x)  x##_f64
#define HAS_FMA ARIL__BASELINE_FMA
#if ARIL__BASELINE_FMA
#define FMA32(a, b, c) __builtin_fmaf(a, b, c)
#define FMA64(a, b, c) __builtin_fma(a, b, c)
#else
#define FMA32(a, b, c) ((a) * (b) + (c))
#define FMA64(a, b, c) ((a) * (b) + (c))
#endif
#if defined(__SSE4_1__) || defined(__aarch64__)
#define HAS_ROUND 1
#else
#define HAS_ROUND 0
#endif
#include "core/vector/vecmath.inc"
#undef FMA32
#undef FMA64
#undef HAS_FMA
#undef HAS_ROUND
#undef F32
#undef F64
#undef VM_TARGET

#if ARIL__TARGETS
#define HAS_FMA        1
#define HAS_ROUND      1
#define FMA32(a, b, c) __builtin_fmaf(a, b, c)
#define FMA64(a, b, c) __builtin_fma(a, b, c)
#define VM_TARGET      ARIL__AVX2
#define F32(x)         x##_f32_avx2
#define F64(x)         x##_f64_avx2
#include "core/vector/vecmath.inc"
#undef F32
#undef F64
#undef VM_TARGET
#define VM_TARGET ARIL__AVX512
#define F32(x)    x##_f32_avx512
#define F64(x)    x##_f64_avx512
#include "core/vector/vecmath.inc"
#undef F32
#undef F64
#undef VM_TARGET
#undef FMA32
#undef FMA64
#undef HAS_FMA
#undef HAS_ROUND
#endif

#endif
