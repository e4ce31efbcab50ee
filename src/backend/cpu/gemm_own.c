/* Aril's own matrix product, for where there is no BLAS and for strides that BLAS can't express.
 * Compiled with fused multiplication and addition: see CMakeLists.txt. */
#include "backend/cpu/gemm.h"
#include "core/cpu.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    KC = 256,
    MC = 96,
    NC = 512,
    PLAIN = 1000, /* multiplications below which packing does not pay */
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define TARGET
#define BYTES   16
#define MR      6
#define T       float
#define NAME(x) x##_f32
#include "backend/cpu/gemm_own.inc"
#define T       double
#define NAME(x) x##_f64
#include "backend/cpu/gemm_own.inc"
#undef TARGET
#undef BYTES
#undef MR

#if defined(__x86_64__)
#define TARGET  __attribute__((target("avx2,fma")))
#define BYTES   32
#define MR      6
#define T       float
#define NAME(x) x##_f32_avx2
#include "backend/cpu/gemm_own.inc"
#define T       double
#define NAME(x) x##_f64_avx2
#include "backend/cpu/gemm_own.inc"
#undef TARGET
#undef BYTES
#undef MR

#define TARGET  __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#define BYTES   64
#define MR      12
#define T       float
#define NAME(x) x##_f32_avx512
#include "backend/cpu/gemm_own.inc"
#define T       double
#define NAME(x) x##_f64_avx512
#include "backend/cpu/gemm_own.inc"
#undef TARGET
#undef BYTES
#undef MR

void aril__gemm_f32(const aril__gemm *g)
{
    if (aril__cpu() == ARIL__CPU_AVX512)
        gemm_f32_avx512(g);
    else if (aril__cpu() == ARIL__CPU_AVX2)
        gemm_f32_avx2(g);
    else
        gemm_f32(g);
}

void aril__gemm_f64(const aril__gemm *g)
{
    if (aril__cpu() == ARIL__CPU_AVX512)
        gemm_f64_avx512(g);
    else if (aril__cpu() == ARIL__CPU_AVX2)
        gemm_f64_avx2(g);
    else
        gemm_f64(g);
}
#else
void aril__gemm_f32(const aril__gemm *g)
{
    gemm_f32(g);
}

void aril__gemm_f64(const aril__gemm *g)
{
    gemm_f64(g);
}
#endif
