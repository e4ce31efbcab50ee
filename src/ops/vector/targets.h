/* Kernels compiled for each instruction set: for any machine, for AVX2 with FMA, and for AVX-512,
 * chosen by the processor (core/cpu.h) as they are called.
 *
 * A template's functions begin with TARGET and have names NAME(x). A file that says
 *
 *     #define TEMPLATE "ops/norm/layer_norm.inc"
 *     #include "ops/vector/each_target.inc"
 *
 * gets it for float and double and each target, and calls ARIL__PICK(rows, wide)(...). What the
 * template sees besides T, NAME and M(fn) stands in each_target.inc. Helpers of a template that
 * must be inlined into its loops are TARGET functions of the template too; what has no TARGET is
 * also inlined, but is compiled for any machine where it isn't.
 *
 * Products and sums are only fused where a template says FMA(a, b, c); without it all targets do
 * the same operations in the same order and give the same bits. */
#ifndef ARIL_OPS_TARGETS_H
#define ARIL_OPS_TARGETS_H

#include "core/cpu.h"

#if ARIL__TARGETS
/* The function for double (wide) or float that suits this machine. */
#define ARIL__PICK(fn, wide)                                                      \
    (aril__cpu() == ARIL__CPU_AVX512 ? (wide) ? fn##_f64_avx512 : fn##_f32_avx512 \
     : aril__cpu() == ARIL__CPU_AVX2 ? (wide) ? fn##_f64_avx2 : fn##_f32_avx2     \
     : (wide)                        ? fn##_f64                                   \
                                     : fn##_f32)
#else
#define ARIL__PICK(fn, wide) ((wide) ? fn##_f64 : fn##_f32)
#endif

/* Whether the target for any machine multiplies and adds in one instruction. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define ARIL__BASELINE_FMA 1
#else
#define ARIL__BASELINE_FMA 0
#endif

#endif
