#include "core/rng.h"
#include "aril/rng.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/lifetime.h"
#include "core/memory.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

#if ARIL__TARGETS
#include <immintrin.h>
#endif

/* One that is not a thread's. */
struct with_life {
    aril_generator generator; /* first */
    aril__lifetime_slot life;
};

aril_generator *aril_generator_new(uint64_t seed)
{
    struct with_life *g = aril__calloc(sizeof *g);
    if (!g) return NULL;
    aril__rng_put(&g->generator, (aril_rng_state){ seed, 0 });
    return &g->generator;
}

aril__lifetime_slot *aril__generator_life(aril_generator *g)
{
    return &((struct with_life *)g)->life;
}

void aril_generator_free(aril_generator *g)
{
    if (g && g == aril_default_generator())
        aril__fail(ARIL_ERR_ARG,
                   "generator_free: the default generator belongs to its thread; only "
                   "what aril_generator_new returned is freed");
    else {
        if (g && aril__hook.generator_freed) aril__hook.generator_freed(g);
        if (g) aril__lifetime_end(aril__generator_life(g));
        free(g);
    }
}

void aril_generator_seed(aril_generator *g, uint64_t seed)
{
    if (!g) return;
    if (aril__hook.generator_set) aril__hook.generator_set(g, &seed);
    aril__rng_put(g, (aril_rng_state){ seed, 0 });
}

aril_rng_state aril_generator_state(const aril_generator *g)
{
    return g ? (aril_rng_state){ g->seed, g->calls } : (aril_rng_state){ 0, 0 };
}

void aril_generator_set_state(aril_generator *g, aril_rng_state state)
{
    if (!g) return;
    if (aril__hook.generator_set) aril__hook.generator_set(g, NULL);
    aril__rng_put(g, state);
}

/* Philox itself works on arrays of fixed sizes. Sanitizers would check each step of it, and most of
 * what sanitized programs do with large networks would be their initialization. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

enum { BLOCKS = 16, BATCH = 4 * BLOCKS };

/* Iterates over a draw, a batch at a time. Batches begin at multiples of their size, so that pairs
 * and blocks are never split: [from, to) is the part of a batch inside the requested range. */
struct walk {
    aril__rng_key key;
    int64_t at, end;
    int per_batch; /* elements in a batch */
    int from, to;
    uint32_t words[BATCH];
};

static inline struct walk walk_start(aril__rng_key key, int64_t begin, int64_t end, int per_batch)
{
    struct walk w;
    w.key = key;
    w.at = begin;
    w.end = end;
    w.per_batch = per_batch;
    return w;
}

static inline uint64_t word64(const struct walk *w, int i)
{
    return (uint64_t)w->words[2 * i + 1] << 32 | w->words[2 * i];
}

#define TARGET
#define NAME(x) x##_any
#include "core/rng_draw.inc"
#undef TARGET
#undef NAME
#if ARIL__TARGETS
#define TARGET       ARIL__AVX2
#define NAME(x)      x##_avx2
#define WORDS        8
#define VEC          __m256i
#define V(f)         _mm256_##f
#define ODD_OF(a, b) _mm256_blend_epi32(a, b, 0xaa)
#include "core/rng_draw.inc"
#undef TARGET
#undef NAME
#undef WORDS
#undef VEC
#undef V
#undef ODD_OF
#define TARGET       ARIL__AVX512
#define NAME(x)      x##_avx512
#define WORDS        16
#define VEC          __m512i
#define V(f)         _mm512_##f
#define ODD_OF(a, b) _mm512_mask_blend_epi32(0xaaaa, a, b)
#include "core/rng_draw.inc"
#undef TARGET
#undef NAME
#undef WORDS
#undef VEC
#undef V
#undef ODD_OF
#define PICK(fn)                                   \
    (aril__cpu() == ARIL__CPU_AVX512 ? fn##_avx512 \
     : aril__cpu() == ARIL__CPU_AVX2 ? fn##_avx2   \
                                     : fn##_any)
#else
#define PICK(fn) fn##_any
#endif

#define DRAW(name, X)                                                            \
    void aril__rng_##name(aril__rng_key key, int64_t begin, int64_t end, X *out) \
    {                                                                            \
        PICK(name)(key, begin, end, out);                                        \
    }
DRAW(u32, uint32_t)
DRAW(u64, uint64_t)
DRAW(uniform_f32, float)
DRAW(uniform_f64, double)
DRAW(normal_f32, float)
DRAW(normal_f64, double)

void aril__rng_below(aril__rng_key key, int64_t begin, int64_t end, uint64_t n, int64_t *out)
{
    uint64_t words[BATCH];
    for (; begin < end; begin += BATCH) {
        int64_t m = end - begin < BATCH ? end - begin : BATCH;
        aril__rng_u64(key, begin, begin + m, words);
        for (int64_t i = 0; i < m; i++) *out++ = (int64_t)aril__rng_scale(words[i], n);
    }
}
