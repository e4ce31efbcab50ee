/* Kernels compiled for each instruction set: the baseline, AVX2 with FMA, and AVX-512, dispatched
 * by CPU features (core/cpu.h) at each call.
 *
 * A template's functions start with TARGET and are named NAME(x). A file with
 *
 *     #define TEMPLATE "ops/norm/layer_norm.inc"
 *     #include "core/vector/each_target.inc"
 *
 * instantiates it for float and double and each target, and calls ARIL__PICK(rows, wide)(...).
 * each_target.inc lists what the template can use besides T, NAME and M(fn). Helpers that must be
 * inlined into a template's loops are TARGET functions of the template too; functions without
 * TARGET may be inlined as well, but otherwise are compiled for the baseline.
 *
 * Multiply-adds are fused only where a template writes FMA(a, b, c); without it all targets do the
 * same operations in the same order and give the same bits. */
#ifndef ARIL_CORE_TARGETS_H
#define ARIL_CORE_TARGETS_H

#include "core/cpu.h"

#if ARIL__TARGETS
/* The function for double (wide) or float, for this CPU's level. */
#define ARIL__PICK(fn, wide)                                                      \
    (aril__cpu() == ARIL__CPU_AVX512 ? (wide) ? fn##_f64_avx512 : fn##_f32_avx512 \
     : aril__cpu() == ARIL__CPU_AVX2 ? (wide) ? fn##_f64_avx2 : fn##_f32_avx2     \
     : (wide)                        ? fn##_f64                                   \
                                     : fn##_f32)
#else
#define ARIL__PICK(fn, wide) ((wide) ? fn##_f64 : fn##_f32)
#endif

/* Whether the baseline target has a fused multiply-add. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define ARIL__BASELINE_FMA 1
#else
#define ARIL__BASELINE_FMA 0
#endif

#endif
