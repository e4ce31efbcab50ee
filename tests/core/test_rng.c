/* Philox and its distributions: known answers, chunks, statistics. */
#include "support/test.h"

#include "core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 100000 };

TEST(philox_known_answers)
{
    static const struct {
        uint32_t key[2], counter[4], out[4];
    } known[] = {
        { { 0, 0 }, { 0, 0, 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0xa4093822, 0x299f31d0 },
          { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        aril__philox(known[i].key, known[i].counter, out);
        CHECK(memcmp(out, known[i].out, sizeof out) == 0);
    }
}

/* The layout must not change: other devices and saved states depend on it. */
TEST(elements_map_to_block_and_word)
{
    const aril__rng_key key = { 0x0123456789abcdefu, 0xfedcba9876543210u };
    const uint32_t k[2] = { 0x89abcdefu, 0x01234567u };
    const int64_t starts[] = { 0, 3, 1000001, ((int64_t)1 << 34) - 5, ((int64_t)1 << 40) + 1 };
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        uint32_t a[200];
        uint64_t b[200];
        aril__rng_u32(key, starts[s], starts[s] + 200, a);
        aril__rng_u64(key, starts[s], starts[s] + 200, b);
        for (int j = 0; j < 200; j++) {
            uint64_t i = (uint64_t)(starts[s] + j);
            uint32_t c[4] = { (uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0x76543210u,
                              0xfedcba98u };
            uint32_t out[4];
            aril__philox(k, c, out);
            CHECK_INT(a[j], out[i % 4]);
            c[0] = (uint32_t)(i / 2);
            c[1] = (uint32_t)(i / 2 >> 32);
            aril__philox(k, c, out);
            CHECK(b[j] == ((uint64_t)out[2 * (i % 2) + 1] << 32 | out[2 * (i % 2)]));
        }
    }
}

/* Draws 0 .. n in pieces of odd sizes and compares with one draw; F is a filler, T its type. */
#define CHECK_CHUNKS(F, T)                                                                 \
    do {                                                                                   \
        static T full[5000], pieces[5000];                                                 \
        const aril__rng_key key = { 7, 3 };                                                \
        F(key, 0, 5000, full);                                                             \
        for (int64_t at = 0, step = 1; at < 5000; at += step, step = step * 5 % 313 + 1) { \
            if (step > 5000 - at) step = 5000 - at;                                        \
            F(key, at, at + step, pieces + at);                                            \
        }                                                                                  \
        CHECK(memcmp(full, pieces, sizeof full) == 0);                                     \
        F(key, 17, 17, pieces); /* an empty range writes nothing */                        \
        F(key, 5000, 4000, pieces);                                                        \
        CHECK(memcmp(full, pieces, sizeof full) == 0);                                     \
    } while (0)

static void below_1000(aril__rng_key key, int64_t begin, int64_t end, int64_t *out)
{
    aril__rng_below(key, begin, end, 1000, out);
}

TEST(chunks_do_not_matter)
{
    CHECK_CHUNKS(aril__rng_u32, uint32_t);
    CHECK_CHUNKS(aril__rng_u64, uint64_t);
    CHECK_CHUNKS(aril__rng_uniform_f32, float);
    CHECK_CHUNKS(aril__rng_uniform_f64, double);
    CHECK_CHUNKS(aril__rng_normal_f32, float);
    CHECK_CHUNKS(aril__rng_normal_f64, double);
    CHECK_CHUNKS(below_1000, int64_t);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double uniform_cdf(double x)
{
    return x;
}

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}

static void check_moments(const double *x, double mean, double variance, double kurtosis)
{
    double sum = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0;
    for (int i = 0; i < N; i++) sum += x[i];
    for (int i = 0; i < N; i++) {
        double d = x[i] - sum / N;
        m2 += d * d;
        m3 += d * d * d;
        m4 += d * d * d * d;
        lag += d * (x[(i + 1) % N] - sum / N);
    }
    double v = m2 / N, sigma = sqrt(variance);
    CHECK_NEAR(sum / N, mean, 4 * sigma / sqrt(N));
    CHECK_NEAR(v / variance, 1, 4 * sqrt((kurtosis - 1) / N));
    CHECK_NEAR(m3 / N / (v * sigma), 0, 4 * sqrt(15.0 / N));
    CHECK_NEAR(m4 / N / (v * v), kurtosis, 4 * sqrt(96.0 / N));
    CHECK_NEAR(lag / m2, 0, 4 / sqrt(N)); /* adjacent values are independent */
}

/* Kolmogorov-Smirnov: sqrt(N) times the largest distance from the distribution stays below 1.95 in
 * 999 of 1000 cases. The seeds are fixed, so the test is not flaky. */
static void check_distribution(double *x, double (*cdf)(double))
{
    qsort(x, N, sizeof *x, compare_doubles);
    double worst = 0;
    for (int i = 0; i < N; i++) {
        double c = cdf(x[i]);
        worst = fmax(worst, fmax(c - (double)i / N, (double)(i + 1) / N - c));
    }
    CHECK_NEAR(worst * sqrt(N), 0, 1.95);
}

TEST(uniforms_are_uniform)
{
    static float f[N];
    static double x[N];
    for (uint64_t call = 0; call < 4; call++) {
        aril__rng_uniform_f32((aril__rng_key){ 1, call }, 0, N, f);
        for (int i = 0; i < N; i++) {
            CHECK(f[i] >= 0 && f[i] < 1);
            x[i] = (double)f[i];
        }
        check_moments(x, 0.5, 1.0 / 12, 1.8);
        check_distribution(x, uniform_cdf);
        aril__rng_uniform_f64((aril__rng_key){ 1, call }, 0, N, x);
        for (int i = 0; i < N; i++) CHECK(x[i] >= 0 && x[i] < 1);
        check_moments(x, 0.5, 1.0 / 12, 1.8);
        check_distribution(x, uniform_cdf);
    }
    CHECK(aril__rng_to_f32(UINT32_MAX) < 1);
    CHECK(aril__rng_to_f64(UINT64_MAX) < 1);
}

TEST(normals_are_normal)
{
    static float f[N];
    static double x[N];
    for (uint64_t call = 0; call < 4; call++) {
        aril__rng_normal_f32((aril__rng_key){ 2, call }, 0, N, f);
        for (int i = 0; i < N; i++) x[i] = (double)f[i];
        check_moments(x, 0, 1, 3);
        check_distribution(x, normal_cdf);
        aril__rng_normal_f64((aril__rng_key){ 2, call }, 0, N, x);
        check_moments(x, 0, 1, 3);
        check_distribution(x, normal_cdf);
    }
}

/* Against the C library: the series in rng.h match the functions they approximate. */
TEST(normals_follow_the_formula)
{
    const double pi = 3.14159265358979323846;
    const aril__rng_key key = { 11, 0 };
    static uint32_t u32[N];
    static uint64_t u64[N];
    static float f[N];
    static double d[N];
    aril__rng_u32(key, 0, N, u32);
    aril__rng_u64(key, 0, N, u64);
    aril__rng_normal_f32(key, 0, N, f);
    aril__rng_normal_f64(key, 0, N, d);
    u32[0] = 0;
    u64[0] = 0;
    for (int i = 0; i < N; i += 2) {
        float pair[2];
        aril__rng_normals_f32(u32[i], u32[i + 1], pair);
        double u = (double)(((float)(u32[i] >> 1) + 0.5f) * 0x1p-31f);
        double r = sqrt(-2 * log(u)), t = (double)u32[i + 1] * 0x1p-32 * 2 * pi;
        CHECK_NEAR(pair[0], r * cos(t), 1e-6);
        CHECK_NEAR(pair[1], r * sin(t), 1e-6);
        if (i > 0) CHECK(pair[0] == f[i] && pair[1] == f[i + 1]);

        double two[2];
        aril__rng_normals_f64(u64[i], u64[i + 1], two);
        r = sqrt(-2 * log(((double)(u64[i] >> 11) + 0.5) * 0x1p-53));
        t = (double)u64[i + 1] * 0x1p-64 * 2 * pi;
        CHECK_NEAR(two[0], r * cos(t), 1e-14);
        CHECK_NEAR(two[1], r * sin(t), 1e-14);
        if (i > 0) CHECK(two[0] == d[i] && two[1] == d[i + 1]);
    }
}

/* The same bits from every compiler and C library. */
TEST(normals_keep_their_bits)
{
    float f[1000];
    double d[1000];
    uint32_t w32, h32 = 0;
    uint64_t w64, h64 = 0;
    aril__rng_normal_f32((aril__rng_key){ 42, 1 }, 0, 1000, f);
    aril__rng_normal_f64((aril__rng_key){ 42, 1 }, 0, 1000, d);
    for (int i = 0; i < 1000; i++) {
        memcpy(&w32, &f[i], sizeof w32);
        memcpy(&w64, &d[i], sizeof w64);
        h32 = (h32 ^ w32) * 0x01000193u;
        h64 = (h64 ^ w64) * 0x100000001b3u;
    }
    CHECK(h32 == 0x92e5026du);
    CHECK(h64 == 0x1effea54d1a2ad15u);
}

TEST(normals_at_the_extremes)
{
    const uint32_t ends[] = { 0,          1,          2,          0x1fffffff, 0x20000000,
                              0x3fffffff, 0x40000000, 0x60000000, 0x7fffffff, 0x80000000,
                              0xbfffffff, 0xc0000000, 0xe0000000, 0xfffffffe, 0xffffffff };
    const size_t n = sizeof ends / sizeof ends[0];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            float f[2];
            aril__rng_normals_f32(ends[i], ends[j], f);
            CHECK(isfinite(f[0]) && isfinite(f[1]));
            CHECK(fabsf(f[0]) < 6.7f && fabsf(f[1]) < 6.7f);
            double d[2];
            uint64_t low = ends[i] & 1 ? UINT32_MAX : 0;
            aril__rng_normals_f64((uint64_t)ends[i] << 32 | low, (uint64_t)ends[j] << 32 | low, d);
            CHECK(isfinite(d[0]) && isfinite(d[1]));
            CHECK(fabs(d[0]) < 8.7 && fabs(d[1]) < 8.7);
        }
}

TEST(below_is_in_range_and_uniform)
{
    static int64_t x[N];
    int count[10] = { 0 };
    aril__rng_below((aril__rng_key){ 5, 0 }, 0, N, 10, x);
    for (int i = 0; i < N; i++) {
        CHECK(x[i] >= 0 && x[i] < 10);
        count[x[i]]++;
    }
    double chi2 = 0;
    for (int i = 0; i < 10; i++) {
        double d = count[i] - N / 10.0;
        chi2 += d * d / (N / 10.0);
    }
    CHECK(chi2 < 27.9); /* 9 degrees of freedom: 999 of 1000 cases */

    aril__rng_below((aril__rng_key){ 5, 0 }, 0, 100, 1, x);
    for (int i = 0; i < 100; i++) CHECK_INT(x[i], 0);
    aril__rng_below((aril__rng_key){ 5, 0 }, 0, 100, 0, x);
    for (int i = 0; i < 100; i++) CHECK_INT(x[i], 0);
    aril__rng_below((aril__rng_key){ 5, 0 }, 0, 100, (uint64_t)1 << 63, x);
    for (int i = 0; i < 100; i++) CHECK(x[i] >= 0);
}

TEST(calls_and_seeds_differ)
{
    enum { KEYS = 6 };
    const aril__rng_key keys[KEYS] = {
        { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 }, { (uint64_t)1 << 32, 0 }, { 0, (uint64_t)1 << 32 }
    };
    static double x[KEYS][N];
    for (int k = 0; k < KEYS; k++) aril__rng_normal_f64(keys[k], 0, N, x[k]);
    for (int a = 0; a < KEYS; a++)
        for (int b = 0; b < a; b++) {
            double dot = 0;
            for (int i = 0; i < N; i++) dot += x[a][i] * x[b][i];
            CHECK_NEAR(dot / N, 0, 4 / sqrt(N));
        }
}

TEST(generator_counts_calls)
{
    aril_generator *g = aril_generator_new(42);
    CHECK(g);
    aril__rng_key key = aril__rng_next(g);
    CHECK(key.seed == 42 && key.call == 0);
    key = aril__rng_next(g);
    CHECK(key.seed == 42 && key.call == 1);
    aril_rng_state state = aril_generator_state(g);
    CHECK(state.seed == 42 && state.calls == 2);
    aril_generator_seed(g, 7);
    key = aril__rng_next(g);
    CHECK(key.seed == 7 && key.call == 0);
    aril_generator_set_state(g, state);
    key = aril__rng_next(g);
    CHECK(key.seed == 42 && key.call == 2);
    aril_generator_free(g);

    aril_generator_free(NULL);
    aril_generator_seed(NULL, 1);
    aril_generator_set_state(NULL, state);
    state = aril_generator_state(NULL);
    CHECK(state.seed == 0 && state.calls == 0);
}
