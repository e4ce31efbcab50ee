/* Formulas of f16 and bf16 that only change bits. */
#include "backend/cpu/elementwise/elementwise.h"

#include "ops/elementwise/numbers.h"

#ifdef __clang__ /* it has no such pragma */
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* A signaling NaN becomes quiet, as by a conversion to f32 and back. `infinity` is its code, and
 * `quiet` the bit of a quiet NaN. */
#define KERNEL(TARGET, op, level, value, infinity, quiet)                                      \
    TARGET static void op##level(int64_t n, void *out, const void *const *in, const double *p, \
                                 int *bad)                                                     \
    {                                                                                          \
        const uint16_t *X = in[0];                                                             \
        uint16_t *Y = out;                                                                     \
        (void)p, (void)bad;                                                                    \
        INDEPENDENT for (int64_t i = 0; i < n; i++)                                            \
        {                                                                                      \
            uint16_t x = X[i];                                                                 \
            Y[i] = (uint16_t)((value) | ((x & 0x7fff) > (infinity) ? (quiet) : 0));            \
        }                                                                                      \
    }

#define KERNELS(TARGET, type, level, infinity, quiet)                  \
    KERNEL(TARGET, neg_##type, level, x ^ 0x8000, infinity, quiet)     \
    KERNEL(TARGET, abs_##type, level, x & 0x7fff, infinity, quiet)     \
    aril__ew_fn *const aril__ew_##type##level[ARIL__FORMULA_COUNT] = { \
        [ARIL__FORMULA_neg] = neg_##type##level,                       \
        [ARIL__FORMULA_abs] = abs_##type##level,                       \
    };

#define BOTH(TARGET, level)                    \
    KERNELS(TARGET, f16, level, 0x7c00, 0x200) \
    KERNELS(TARGET, bf16, level, 0x7f80, 0x40)

BOTH(, )
#if ARIL__TARGETS
BOTH(ARIL__AVX2, _avx2)
BOTH(ARIL__AVX512, _avx512)
#endif
