/* Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", 2011).
 *
 * Philox turns a key and a counter into four 32-bit words. Here the key is the seed, the counter
 * (block, call): 64 bits each, low word first. Element i of a draw of 32-bit numbers is word i % 4
 * of block i / 4; of 64-bit numbers it is words 2 * (i % 2) (low) and 2 * (i % 2) + 1 (high) of
 * block i / 2. Everything else derives from these two. Element i never depends on where a draw
 * begins or ends, so chunks of any size give the same numbers.
 *
 * The static functions are the definition that other backends repeat: integer operations and the
 * IEEE operations + - * / sqrt, in the order written, with no contraction into fused
 * multiply-adds. */
#ifndef ARIL_CORE_RNG_H
#define ARIL_CORE_RNG_H

#include "aril/rng.h"

#include <math.h>
#include <string.h>

struct aril_generator {
    uint64_t seed, calls;
};

/* Puts a generator into a state, of which no tracer is told. */
static inline void aril__rng_put(aril_generator *g, aril_rng_state state)
{
    *g = (struct aril_generator){ state.seed, state.calls };
}

/* The key of one random op. */
typedef struct aril__rng_key {
    uint64_t seed, call;
} aril__rng_key;

/* The key of the next random op: call exactly once per op. */
static inline aril__rng_key aril__rng_next(aril_generator *g)
{
    aril__rng_key key = { g->seed, g->calls++ };
    return key;
}

#define ARIL__PHILOX_MUL0   0xd2511f53u
#define ARIL__PHILOX_MUL1   0xcd9e8d57u
#define ARIL__PHILOX_KEY0   0x9e3779b9u /* golden ratio */
#define ARIL__PHILOX_KEY1   0xbb67ae85u /* sqrt(3) - 1 */
#define ARIL__PHILOX_ROUNDS 10

static inline void aril__philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int r = 0; r < ARIL__PHILOX_ROUNDS; r++) {
        uint64_t a = (uint64_t)ARIL__PHILOX_MUL0 * c0;
        uint64_t b = (uint64_t)ARIL__PHILOX_MUL1 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += ARIL__PHILOX_KEY0;
        k1 += ARIL__PHILOX_KEY1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* 24 bits, in [0, 1). */
static inline float aril__rng_to_f32(uint32_t x)
{
    return (float)(int32_t)(x >> 8) * 0x1p-24f;
}

/* 53 bits, in [0, 1). */
static inline double aril__rng_to_f64(uint64_t x)
{
    return (double)(int64_t)(x >> 11) * 0x1p-53;
}

/* floor(x * n / 2^64), in [0, n): the bias is below n / 2^64. */
static inline uint64_t aril__rng_scale(uint64_t x, uint64_t n)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)x * n) >> 64);
}

/* Box and Muller: two normals from two draws.
 *
 *     out = sqrt(-2 ln u) * (cos t, sin t)    u in (0, 1] from a,  t = b / 2^32 (2^64) turns
 *
 * We evaluate our own polynomials instead of the C library's functions, whose last bit differs
 * between versions and devices:
 *   u = 2^e m, m in [sqrt(1/2), sqrt(2)): ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172;
 *   t = q quarter turns and at most 1/8 turn, split exactly in integers, then Taylor sums. */
static inline void aril__rng_normals_f32(uint32_t a, uint32_t b, float out[2])
{
    float u = ((float)(int32_t)(a >> 1) + 0.5f) * 0x1p-31f;
    uint32_t bits;
    memcpy(&bits, &u, sizeof bits);
    int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23; /* 0x3f3504f3: sqrt(1/2) */
    bits -= (uint32_t)e << 23;
    float m;
    memcpy(&m, &bits, sizeof m);
    float s = (m - 1.0f) / (m + 1.0f);
    float z = s * s;
    float p = 1.0f / 11;
    p = p * z + 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    float ln = (float)e * 0x1.62e43p-1f + (2 * s + 2 * s * (z * p));
    float r = sqrtf(-2 * ln);

    uint32_t q = (b + 0x20000000u) >> 30;
    float x = (float)(int32_t)(b << 2) * 0x1.921fb6p-32f; /* pi / 2 * 2^-32 */
    float w = x * x;
    float sn = 1.0f / 362880;
    sn = sn * w - 1.0f / 5040;
    sn = sn * w + 1.0f / 120;
    sn = sn * w - 1.0f / 6;
    sn = x + x * (w * sn);
    float cs = -1.0f / 3628800;
    cs = cs * w + 1.0f / 40320;
    cs = cs * w - 1.0f / 720;
    cs = cs * w + 1.0f / 24;
    cs = cs * w - 1.0f / 2;
    cs = 1 + w * cs;

    /* Rotation by q quarter turns: (c, s), (-s, c), (-c, -s), (s, -c). */
    float c = q & 1 ? sn : cs;
    float d = q & 1 ? cs : sn;
    out[0] = r * ((q + 1) & 2 ? -c : c);
    out[1] = r * (q & 2 ? -d : d);
}

static inline void aril__rng_normals_f64(uint64_t a, uint64_t b, double out[2])
{
    double u = ((double)(int64_t)(a >> 11) + 0.5) * 0x1p-53;
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    int64_t e = (int64_t)(bits - 0x3fe6a09e667f3bcdu) >> 52; /* sqrt(1/2) */
    bits -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1);
    double z = s * s;
    double p = 1.0 / 23;
    p = p * z + 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    double ln = (double)e * 0x1.62e42fefa39efp-1 + (2 * s + 2 * s * (z * p));
    double r = sqrt(-2 * ln);

    uint64_t q = (b + 0x2000000000000000u) >> 62;
    double x = (double)(int64_t)(b << 2) * 0x1.921fb54442d18p-64; /* pi / 2 * 2^-64 */
    double w = x * x;
    double sn = 1.0 / 355687428096000;
    sn = sn * w - 1.0 / 1307674368000;
    sn = sn * w + 1.0 / 6227020800;
    sn = sn * w - 1.0 / 39916800;
    sn = sn * w + 1.0 / 362880;
    sn = sn * w - 1.0 / 5040;
    sn = sn * w + 1.0 / 120;
    sn = sn * w - 1.0 / 6;
    sn = x + x * (w * sn);
    double cs = 1.0 / 20922789888000;
    cs = cs * w - 1.0 / 87178291200;
    cs = cs * w + 1.0 / 479001600;
    cs = cs * w - 1.0 / 3628800;
    cs = cs * w + 1.0 / 40320;
    cs = cs * w - 1.0 / 720;
    cs = cs * w + 1.0 / 24;
    cs = cs * w - 1.0 / 2;
    cs = 1 + w * cs;

    double c = q & 1 ? sn : cs;
    double d = q & 1 ? cs : sn;
    out[0] = r * ((q + 1) & 2 ? -c : c);
    out[1] = r * (q & 2 ? -d : d);
}

/* Each writes elements begin .. end - 1 of the draw to out[0 ..]; 0 <= begin <= end. */

void aril__rng_u32(aril__rng_key key, int64_t begin, int64_t end, uint32_t *out);
void aril__rng_u64(aril__rng_key key, int64_t begin, int64_t end, uint64_t *out);

/* Uniform in [0, 1): multiples of 2^-24 from 32-bit draws, of 2^-53 from 64-bit ones. */
void aril__rng_uniform_f32(aril__rng_key key, int64_t begin, int64_t end, float *out);
void aril__rng_uniform_f64(aril__rng_key key, int64_t begin, int64_t end, double *out);

/* Normal, mean 0 and variance 1: elements 2j and 2j + 1 are the cosine and sine of draws 2j and 2j
 * + 1, 32 or 64 bits each. At most 6.7 (f32) and 8.7 (f64) in magnitude. */
void aril__rng_normal_f32(aril__rng_key key, int64_t begin, int64_t end, float *out);
void aril__rng_normal_f64(aril__rng_key key, int64_t begin, int64_t end, double *out);

/* Uniform integers in [0, n) from 64-bit draws, n <= 2^63; n = 0 gives 0. */
void aril__rng_below(aril__rng_key key, int64_t begin, int64_t end, uint64_t n, int64_t *out);

#endif
