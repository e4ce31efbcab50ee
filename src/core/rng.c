#include "core/rng.h"
#include "core/memory.h"

#include <stdlib.h>

aril_generator *aril_generator_new(uint64_t seed)
{
    aril_generator *g = aril__malloc(sizeof *g);
    if (g) aril_generator_seed(g, seed);
    return g;
}

void aril_generator_free(aril_generator *g)
{
    free(g);
}

void aril_generator_seed(aril_generator *g, uint64_t seed)
{
    if (g) *g = (aril_generator){ .seed = seed, .calls = 0 };
}

aril_rng_state aril_generator_state(const aril_generator *g)
{
    return g ? (aril_rng_state){ g->seed, g->calls } : (aril_rng_state){ 0, 0 };
}

void aril_generator_set_state(aril_generator *g, aril_rng_state state)
{
    if (g) *g = (aril_generator){ .seed = state.seed, .calls = state.calls };
}

enum { BLOCKS = 16, BATCH = 4 * BLOCKS };

static void make_batch(aril__rng_key key, uint64_t block, uint32_t out[static BATCH])
{
    const uint32_t k[2] = { (uint32_t)key.seed, (uint32_t)(key.seed >> 32) };
    const uint32_t call[2] = { (uint32_t)key.call, (uint32_t)(key.call >> 32) };
    for (int i = 0; i < BLOCKS; i++, block++) {
        uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), call[0], call[1] };
        aril__philox(k, counter, out + 4 * i);
    }
}

/* A walk over a draw, a batch at a time. Batches begin at multiples of their size, so that pairs
 * and blocks stay whole: [from, to) of a batch is what belongs to the range asked for. */
struct walk {
    aril__rng_key key;
    int64_t at, end;
    int per_batch; /* elements in a batch */
    int from, to;
    uint32_t words[BATCH];
};

static struct walk walk_start(aril__rng_key key, int64_t begin, int64_t end, int per_batch)
{
    struct walk w;
    w.key = key;
    w.at = begin;
    w.end = end;
    w.per_batch = per_batch;
    return w;
}

static bool walk_next(struct walk *w)
{
    if (w->at >= w->end) return false;
    int64_t batch = w->at / w->per_batch;
    int64_t left = w->end - batch * w->per_batch;
    w->from = (int)(w->at % w->per_batch);
    w->to = left < w->per_batch ? (int)left : w->per_batch;
    w->at += w->to - w->from;
    make_batch(w->key, (uint64_t)batch * BLOCKS, w->words);
    return true;
}

static inline uint64_t word64(const struct walk *w, int i)
{
    return (uint64_t)w->words[2 * i + 1] << 32 | w->words[2 * i];
}

void aril__rng_u32(aril__rng_key key, int64_t begin, int64_t end, uint32_t *out)
{
    struct walk w = walk_start(key, begin, end, BATCH);
    while (walk_next(&w))
        for (int i = w.from; i < w.to; i++) *out++ = w.words[i];
}

void aril__rng_u64(aril__rng_key key, int64_t begin, int64_t end, uint64_t *out)
{
    struct walk w = walk_start(key, begin, end, BATCH / 2);
    while (walk_next(&w))
        for (int i = w.from; i < w.to; i++) *out++ = word64(&w, i);
}

void aril__rng_uniform_f32(aril__rng_key key, int64_t begin, int64_t end, float *out)
{
    struct walk w = walk_start(key, begin, end, BATCH);
    while (walk_next(&w))
        for (int i = w.from; i < w.to; i++) *out++ = aril__rng_to_f32(w.words[i]);
}

void aril__rng_uniform_f64(aril__rng_key key, int64_t begin, int64_t end, double *out)
{
    struct walk w = walk_start(key, begin, end, BATCH / 2);
    while (walk_next(&w))
        for (int i = w.from; i < w.to; i++) *out++ = aril__rng_to_f64(word64(&w, i));
}

void aril__rng_normal_f32(aril__rng_key key, int64_t begin, int64_t end, float *out)
{
    struct walk w = walk_start(key, begin, end, BATCH);
    while (walk_next(&w)) {
        float pairs[BATCH];
        for (int i = 0; i < BATCH / 2; i++)
            aril__rng_normals_f32(w.words[2 * i], w.words[2 * i + 1], pairs + 2 * i);
        for (int i = w.from; i < w.to; i++) *out++ = pairs[i];
    }
}

void aril__rng_normal_f64(aril__rng_key key, int64_t begin, int64_t end, double *out)
{
    struct walk w = walk_start(key, begin, end, BATCH / 2);
    while (walk_next(&w)) {
        double pairs[BATCH / 2];
        for (int i = 0; i < BATCH / 4; i++)
            aril__rng_normals_f64(word64(&w, 2 * i), word64(&w, 2 * i + 1), pairs + 2 * i);
        for (int i = w.from; i < w.to; i++) *out++ = pairs[i];
    }
}

void aril__rng_below(aril__rng_key key, int64_t begin, int64_t end, uint64_t n, int64_t *out)
{
    struct walk w = walk_start(key, begin, end, BATCH / 2);
    while (walk_next(&w))
        for (int i = w.from; i < w.to; i++) *out++ = (int64_t)aril__rng_scale(word64(&w, i), n);
}
