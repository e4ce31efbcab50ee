/* Random numbers in blocks, stored in the result's dtype. */
#include "backend/cpu/random/random.h"

#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/random/random.h"
#include "ops/shape/create.h"

#include <string.h>

enum { BLOCK = 512, GRAIN = 16 * 1024 };

typedef struct draw {
    aril__rng_key key;
    char *out;
    int64_t offset;
    uint8_t dtype;
    double a, b;    /* low and high, mean and standard deviation, or a probability */
    double largest; /* the largest value of the dtype below high */
    int64_t low;
    uint64_t range;
    const void *p; /* probabilities, contiguous, f32 or f64 */
} draw;

static draw draw_of(const aril__run *r)
{
    const struct create_attrs *a = r->attrs;
    draw d = { .key = aril__rng_key_of(r),
               .out = aril__base(r->out[0]),
               .offset = r->out[0]->offset,
               .dtype = r->out[0]->dtype };
    if (a) {
        d.a = a->value[0];
        d.b = a->value[1];
    }
    return d;
}

static void put(const draw *d, aril__ctype type, int64_t at, const void *block, int64_t m)
{
    aril__dtypes[d->dtype].store[type](d->out, d->offset + at, 1, block, m);
}

static void rand_range(void *ctx, int64_t begin, int64_t end)
{
    const draw *d = ctx;
    double block[BLOCK];
    float *f = (float *)(void *)block;
    float low = (float)d->a, width = (float)(d->b - d->a), largest = (float)d->largest;
    bool plain = d->a == 0 && d->b == 1;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t m = end - at < BLOCK ? end - at : BLOCK;
        if (d->dtype == ARIL_F64) {
            aril__rng_uniform_f64(d->key, at, at + m, block);
            for (int64_t i = 0; i < m && !plain; i++) {
                double v = d->a + (d->b - d->a) * block[i];
                block[i] = v > d->largest && d->b > d->a ? d->largest : v;
            }
            put(d, ARIL__C_F64, at, block, m);
            continue;
        }
        aril__rng_uniform_f32(d->key, at, at + m, f);
        for (int64_t i = 0; i < m && !plain; i++) f[i] = low + width * f[i];
        for (int64_t i = 0; i < m && d->b > d->a; i++) f[i] = f[i] > largest ? largest : f[i];
        put(d, ARIL__C_F32, at, f, m);
    }
}

aril_status aril__cpu_rand(aril__run *r)
{
    draw d = draw_of(r);
    d.largest = aril__rng_largest_below(d.dtype, d.b);
    aril__parallel_for(r->out[0]->numel, GRAIN, rand_range, &d);
    return ARIL_OK;
}

static void randn_range(void *ctx, int64_t begin, int64_t end)
{
    const draw *d = ctx;
    double block[BLOCK];
    float *f = (float *)(void *)block;
    float mean = (float)d->a, deviation = (float)d->b;
    bool plain = d->a == 0 && d->b == 1;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t m = end - at < BLOCK ? end - at : BLOCK;
        if (d->dtype == ARIL_F64) {
            aril__rng_normal_f64(d->key, at, at + m, block);
            for (int64_t i = 0; i < m && !plain; i++) block[i] = d->a + d->b * block[i];
            put(d, ARIL__C_F64, at, block, m);
            continue;
        }
        aril__rng_normal_f32(d->key, at, at + m, f);
        for (int64_t i = 0; i < m && !plain; i++) f[i] = mean + deviation * f[i];
        put(d, ARIL__C_F32, at, f, m);
    }
}

aril_status aril__cpu_randn(aril__run *r)
{
    draw d = draw_of(r);
    aril__parallel_for(r->out[0]->numel, GRAIN, randn_range, &d);
    return ARIL_OK;
}

static void randint_range(void *ctx, int64_t begin, int64_t end)
{
    const draw *d = ctx;
    int64_t block[BLOCK];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t m = end - at < BLOCK ? end - at : BLOCK;
        aril__rng_below(d->key, at, at + m, d->range, block);
        for (int64_t i = 0; i < m; i++) block[i] = (int64_t)((uint64_t)block[i] + (uint64_t)d->low);
        put(d, ARIL__C_I64, at, block, m);
    }
}

aril_status aril__cpu_randint(aril__run *r)
{
    const struct create_attrs *a = r->attrs;
    draw d = draw_of(r);
    d.low = a->integer[0];
    d.range = (uint64_t)a->integer[2] - (uint64_t)a->integer[0];
    aril__parallel_for(r->out[0]->numel, GRAIN, randint_range, &d);
    return ARIL_OK;
}

/* ---- randperm ---- */

/* Sorts by 64-bit draw, ties by index: reproducible on any device. A ticket is a draw whose lowest
 * bits give way to its index. Tickets are dealt to buckets by their leading bits, once or twice,
 * until a bucket has so few that each can be compared to all others. */
typedef struct lottery {
    aril__rng_key key;
    uint64_t index_bits; /* of a ticket: all ones */
    uint64_t *ticket, *spare;
    int64_t *start;  /* of each bucket, and the end of the last */
    int64_t *inner;  /* the same within a bucket */
    int bits, below; /* leading bits that choose a bucket, and bits that choose a part of it */
} lottery;

enum { IN_BUCKET = 6, MAX_BUCKETS = 11, MAX_INNER = 16, /* binary logarithms */ MOST = 256 };

#define TARGET
#define NAME(x) x##_any
#include "backend/cpu/random/rank.inc"
#undef TARGET
#undef NAME
#if ARIL__TARGETS
#define TARGET  ARIL__AVX2
#define NAME(x) x##_avx2
#include "backend/cpu/random/rank.inc"
#undef TARGET
#undef NAME
#define TARGET  ARIL__AVX512
#define NAME(x) x##_avx512
#include "backend/cpu/random/rank.inc"
#undef TARGET
#undef NAME
#define PICK(fn)                                   \
    (aril__cpu() == ARIL__CPU_AVX512 ? fn##_avx512 \
     : aril__cpu() == ARIL__CPU_AVX2 ? fn##_avx2   \
                                     : fn##_any)
#else
#define PICK(fn) fn##_any
#endif

static int bits_of(int64_t n)
{
    int bits = 1;
    while (bits < 62 && (int64_t)1 << bits < n) bits++;
    return bits;
}

static int bucket_bits(int64_t n)
{
    int bits = bits_of(n) - IN_BUCKET;
    return bits < 0 ? 0 : bits > MAX_BUCKETS ? MAX_BUCKETS : bits;
}

static int inner_bits(int64_t n)
{
    int bits = bits_of(n) - IN_BUCKET - bucket_bits(n);
    return bits < 0 ? 0 : bits > MAX_INNER ? MAX_INNER : bits;
}

size_t aril__cpu_randperm_scratch(const aril__run *r)
{
    int64_t n = r->out[0]->numel;
    return 2 * (size_t)n * sizeof(uint64_t) +
           (((size_t)1 << bucket_bits(n)) + ((size_t)1 << inner_bits(n))) * sizeof(int64_t);
}

/* Moves tickets [begin, end) to `to`, in the order of `bits` bits below the first `skip`; leaves
 * the ends of the parts in `start`. */
static void deal(const uint64_t *from, int64_t begin, int64_t end, int skip, int bits,
                 int64_t *start, uint64_t *to)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    const int shift = 64 - skip - bits;
    memset(start, 0, ((size_t)1 << bits) * sizeof *start);
    for (int64_t i = begin; i < end; i++) start[from[i] >> shift & mask]++;
    for (int64_t k = 0, at = begin; k <= (int64_t)mask; k++) {
        int64_t count = start[k];
        start[k] = at;
        at += count;
    }
    for (int64_t i = begin; i < end; i++) to[start[from[i] >> shift & mask]++] = from[i];
}

static uint64_t draw_of_ticket(const lottery *l, uint64_t ticket)
{
    int64_t i = (int64_t)(ticket & l->index_bits);
    uint64_t drawn;
    aril__rng_u64(l->key, i, i + 1, &drawn);
    return drawn;
}

/* Sorts tickets by insertion, where draws are alike. */
static void sort_by_draw(const lottery *l, uint64_t *t, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t one = t[i], drawn = draw_of_ticket(l, one);
        int64_t k = i;
        for (; k > 0; k--) {
            uint64_t other = t[k - 1];
            if ((other | l->index_bits) == (one | l->index_bits)) { /* only in their last bits */
                uint64_t before = draw_of_ticket(l, other);
                if (before < drawn || (before == drawn && other < one)) break;
            } else if (other < one) {
                break;
            }
            t[k] = other;
        }
        t[k] = one;
    }
}

/* Sorts tickets [begin, end), which agree in the first `skip` bits, into indices. */
static void sort_bucket(const lottery *l, uint64_t *t, int64_t begin, int64_t end, int skip,
                        uint64_t *out)
{
    if (PICK(rank_tickets)(t + begin, end - begin, skip, l->index_bits, out + begin)) return;
    sort_by_draw(l, t + begin, end - begin);
    for (int64_t i = begin; i < end; i++) out[i] = t[i] & l->index_bits;
}

aril_status aril__cpu_randperm(aril__run *r)
{
    int64_t n = r->out[0]->numel;
    draw d = draw_of(r);
    if (n == 0) return ARIL_OK;
    lottery l = { .key = d.key,
                  .index_bits = ((uint64_t)1 << bits_of(n)) - 1,
                  .ticket = r->workspace,
                  .bits = bucket_bits(n),
                  .below = inner_bits(n) };
    l.spare = l.ticket + n;
    l.start = (int64_t *)(void *)(l.spare + n);
    l.inner = l.start + ((int64_t)1 << l.bits);
    aril__rng_u64(d.key, 0, n, l.spare);
    for (int64_t i = 0; i < n; i++) l.spare[i] = (l.spare[i] & ~l.index_bits) | (uint64_t)i;
    if (l.bits)
        deal(l.spare, 0, n, 0, l.bits, l.start, l.ticket);
    else
        memcpy(l.ticket, l.spare, (size_t)n * sizeof *l.ticket);
    l.start[0] = l.bits ? l.start[0] : n;
    bool direct = d.dtype == ARIL_I64;
    uint64_t *sorted = direct ? aril__ptr(r->out[0]) : l.below ? l.ticket : l.spare;
    for (int64_t k = 0, begin = 0; k < (int64_t)1 << l.bits; begin = l.start[k++]) {
        if (!l.below) {
            sort_bucket(&l, l.ticket, begin, l.start[k], l.bits, sorted);
            continue;
        }
        deal(l.ticket, begin, l.start[k], l.bits, l.below, l.inner, l.spare);
        for (int64_t i = 0, from = begin; i < (int64_t)1 << l.below; from = l.inner[i++])
            sort_bucket(&l, l.spare, from, l.inner[i], l.bits + l.below, sorted);
    }
    for (int64_t at = 0; at < n && !direct; at += BLOCK)
        put(&d, ARIL__C_I64, at, sorted + at, n - at < BLOCK ? n - at : BLOCK);
    return ARIL_OK;
}

/* ---- bernoulli ---- */

/* 1 where a uniform number is below p. */
static void bernoulli_range(void *ctx, int64_t begin, int64_t end)
{
    const draw *d = ctx;
    double block[BLOCK];
    float *f = (float *)(void *)block;
    bool wide = d->dtype == ARIL_F64;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t m = end - at < BLOCK ? end - at : BLOCK;
        if (wide)
            aril__rng_uniform_f64(d->key, at, at + m, block);
        else
            aril__rng_uniform_f32(d->key, at, at + m, f);
        for (int64_t i = 0; i < m; i++) {
            double p = !d->p  ? d->a
                       : wide ? ((const double *)d->p)[at + i]
                              : (double)((const float *)d->p)[at + i];
            if (wide)
                block[i] = block[i] < p;
            else
                f[i] = (double)f[i] < p;
        }
        put(d, wide ? ARIL__C_F64 : ARIL__C_F32, at, block, m);
    }
}

aril_status aril__cpu_bernoulli_fill(aril__run *r)
{
    draw d = draw_of(r);
    aril__parallel_for(r->out[0]->numel, GRAIN, bernoulli_range, &d);
    return ARIL_OK;
}

aril_status aril__cpu_bernoulli(aril__run *r)
{
    draw d = draw_of(r);
    d.p = aril__ptr(r->in[1]);
    for (int64_t i = 0; i < r->in[1]->numel; i++) {
        double p = d.dtype == ARIL_F64 ? ((const double *)d.p)[i] : (double)((const float *)d.p)[i];
        if (!(p >= 0 && p <= 1)) return aril__probability_error(p);
    }
    aril__parallel_for(r->out[0]->numel, GRAIN, bernoulli_range, &d);
    return ARIL_OK;
}
