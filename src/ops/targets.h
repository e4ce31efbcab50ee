/* Kernels compiled twice: for any machine, and for those with AVX2, chosen as they are called. Both
 * do the same operations in the same order, so they give the same bits.
 *
 * A template's functions begin with TARGET and end in NAME's suffix; a file includes it with
 * TARGET empty and suffixes _f32 and _f64, and, where ARIL__TARGETS, with TARGET ARIL__AVX2 and
 * suffixes _f32_avx2 and _f64_avx2. */
#ifndef ARIL_OPS_TARGETS_H
#define ARIL_OPS_TARGETS_H

#if defined(__x86_64__) && defined(__GNUC__)
#define ARIL__TARGETS 1
#define ARIL__AVX2    __attribute__((target("avx2")))
/* The function for double (wide) or float that suits this machine. */
#define ARIL__PICK(fn, wide)                                                 \
    (__builtin_cpu_supports("avx2") ? (wide) ? fn##_f64_avx2 : fn##_f32_avx2 \
     : (wide)                       ? fn##_f64                               \
                                    : fn##_f32)
#else
#define ARIL__TARGETS        0
#define ARIL__PICK(fn, wide) ((wide) ? fn##_f64 : fn##_f32)
#endif

#endif
