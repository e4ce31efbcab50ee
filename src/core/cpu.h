/* CPU features: detected once, and limited by ARIL_CPU.
 *
 * Kernels are compiled for each level (core/vector/targets.h) and dispatched by level at each call.
 * ARIL_CPU=baseline, avx2, avx512 or neon in the environment selects a level no higher than the
 * machine's; any other value gives one warning and has no effect. */
#ifndef ARIL_CORE_CPU_H
#define ARIL_CORE_CPU_H

#include <stdbool.h>

/* Prefixes of functions compiled for a level (core/vector/targets.h). */
#if defined(__x86_64__) && defined(__GNUC__)
#define ARIL__TARGETS 1
#define ARIL__AVX2    __attribute__((target("avx2,fma,f16c")))
#if defined(__clang__) /* clang already uses full-width vectors */
#define ARIL__AVX512                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))) \
    __attribute__((min_vector_width(512)))
#else
#define ARIL__AVX512                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c," \
                          "prefer-vector-width=512")))
#endif
#else
#define ARIL__TARGETS 0
#endif

typedef enum aril__cpu_level {
    ARIL__CPU_BASELINE, /* x86-64 with SSE2; on aarch64 NEON is part of it */
    ARIL__CPU_AVX2,     /* with FMA and F16C */
    ARIL__CPU_AVX512,   /* F, BW, DQ and VL */
    ARIL__CPU_LEVELS
} aril__cpu_level;

/* Instruction set extensions; each is available only at the level it belongs to. */
enum {
    ARIL__CPU_BF16 = 1, /* AVX-512: vcvtneps2bf16, vdpbf16ps */
    ARIL__CPU_VNNI = 2, /* AVX-512: vpdpbusd */
    ARIL__CPU_FP16 = 4, /* AVX-512: arithmetic in f16 */
};

/* Negative until aril__cpu_read has run. */
extern int aril__cpu_now;
extern unsigned aril__cpu_features;

/* Detects the CPU and reads ARIL_CPU; returns the level. Optional, and thread-safe. */
int aril__cpu_read(void);

static inline int aril__cpu(void)
{
    int level = __atomic_load_n(&aril__cpu_now, __ATOMIC_RELAXED);
    return __builtin_expect(level >= 0, 1) ? level : aril__cpu_read();
}

/* True when all of `features` can be used. */
static inline bool aril__cpu_has(unsigned features)
{
    aril__cpu();
    return (__atomic_load_n(&aril__cpu_features, __ATOMIC_RELAXED) & features) == features;
}

/* "baseline", "avx2", "avx512" or "neon". */
const char *aril__cpu_name(int level);

/* For tests: switches to `level`, or to the machine's highest level if that is lower, and returns
 * the new level. No kernel may be running. */
int aril__cpu_set(int level);

#endif
