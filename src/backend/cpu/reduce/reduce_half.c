#include "backend/cpu/reduce/reduce_native.h"

#include "core/stream.h" /* intrinsics */
#include "core/vector/targets.h"

#include <math.h>

#if ARIL__TARGETS
#define T       float
#define TARGET  ARIL__AVX2
#define VECTOR  32
#define NAME(x) x##_avx2
#include "backend/cpu/reduce/reduce_half.inc"
#undef TARGET
#undef VECTOR
#undef NAME
#define TARGET  ARIL__AVX512
#define VECTOR  64
#define NAME(x) x##_avx512
#include "backend/cpu/reduce/reduce_half.inc"

const aril__reduce_native *aril__reduce_half_of(aril__native_fold fold, aril_dtype t)
{
    if (fold != ARIL__NATIVE_SUM || aril__cpu() == ARIL__CPU_BASELINE) return NULL;
    return (aril__cpu() == ARIL__CPU_AVX512 ? half_sums_avx512 : half_sums_avx2) + (t == ARIL_BF16);
}
#else
const aril__reduce_native *aril__reduce_half_of(aril__native_fold fold, aril_dtype t)
{
    (void)fold, (void)t;
    return NULL;
}
#endif
