/* Random numbers in blocks, stored in the result's dtype. */
#include "backend/cpu/random/random.h"

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

/* Sorts by 64-bit draw, ties by index: reproducible on any device. A ticket is a draw whose lowest
 * bits give way to its index. */
typedef struct lottery {
    int64_t n;
    uint64_t index_bits; /* of a ticket: all ones */
    uint64_t *drawn;     /* by index */
    uint64_t *ticket, *spare;
    int64_t *start; /* of each bucket, and the end of the last */
    int64_t *inner; /* the same within a bucket */
    int bits;       /* leading bits that choose a bucket */
} lottery;

enum { IN_BUCKET = 8, MAX_BUCKETS = 11, MAX_INNER = 16 }; /* binary logarithms */

static int bits_of(int64_t n)
{
    int bits = 1;
    while (bits < 62 && (int64_t)1 << bits < n) bits++;
    return bits;
}

/* Buckets of a few hundred tickets stay in L1 while they are sorted; up to two thousand tickets
 * are one bucket. */
static int bucket_bits(int64_t n)
{
    int bits = bits_of(n) - IN_BUCKET;
    return bits <= 3 ? 0 : bits > MAX_BUCKETS ? MAX_BUCKETS : bits;
}

static int inner_bits(int64_t n)
{
    int bits = bits_of(n) - bucket_bits(n) + 1;
    return bits < 1 ? 1 : bits > MAX_INNER ? MAX_INNER : bits;
}

size_t aril__cpu_randperm_scratch(const aril__run *r)
{
    int64_t n = r->out[0]->numel;
    return 3 * (size_t)n * sizeof(uint64_t) +
           (((size_t)1 << bucket_bits(n)) + ((size_t)1 << inner_bits(n)) + 2) * sizeof(int64_t);
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

/* Sorts the nearly sorted tickets [begin, end). */
static void finish_bucket(const lottery *l, uint64_t *t, int64_t begin, int64_t end)
{
    bool alike = false; /* only their last bits may differ */
    for (int64_t i = begin + 1; i < end; i++) {
        uint64_t one = t[i];
        int64_t k = i;
        for (; k > begin && t[k - 1] > one; k--) t[k] = t[k - 1];
        t[k] = one;
    }
    for (int64_t i = begin + 1; i < end; i++) alike |= (t[i] ^ t[i - 1]) <= l->index_bits;
    for (int64_t i = begin + 1; i < end && alike; i++) {
        uint64_t one = t[i], drawn = l->drawn[one & l->index_bits];
        int64_t k = i;
        for (; k > begin && l->drawn[t[k - 1] & l->index_bits] > drawn; k--) t[k] = t[k - 1];
        t[k] = one;
    }
}

aril_status aril__cpu_randperm(aril__run *r)
{
    int64_t n = r->out[0]->numel;
    draw d = draw_of(r);
    if (n == 0) return ARIL_OK;
    lottery l = { .n = n,
                  .index_bits = ((uint64_t)1 << bits_of(n)) - 1,
                  .drawn = r->workspace,
                  .bits = bucket_bits(n) };
    l.ticket = l.drawn + n;
    l.spare = l.ticket + n;
    l.start = (int64_t *)(void *)(l.spare + n);
    l.inner = l.start + ((int64_t)1 << l.bits) + 1;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;
        aril__rng_u64(d.key, at, at + m, l.drawn + at);
        for (int64_t i = at; i < at + m; i++)
            l.ticket[i] = (l.drawn[i] & ~l.index_bits) | (uint64_t)i;
    }
    l.start[0] = n;
    if (l.bits) {
        deal(l.ticket, 0, n, 0, l.bits, l.start, l.spare);
        uint64_t *dealt = l.spare;
        l.spare = l.ticket;
        l.ticket = dealt;
    }
    for (int64_t k = 0, begin = 0; k < (int64_t)1 << l.bits; begin = l.start[k++]) {
        deal(l.ticket, begin, l.start[k], l.bits, inner_bits(n), l.inner, l.spare);
        finish_bucket(&l, l.spare, begin, l.start[k]);
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t block[BLOCK], m = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = 0; i < m; i++) block[i] = (int64_t)(l.spare[at + i] & l.index_bits);
        put(&d, ARIL__C_I64, at, block, m);
    }
    return ARIL_OK;
}

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
