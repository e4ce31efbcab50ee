/* Conversions of contiguous runs give the bits of a load and a store by the dtypes' rows, for every
 * pair of dtypes, instruction set and length. */
#include "support/test.h"

#include "core/convert.h"
#include "core/cpu.h"

#include <math.h>
#include <string.h>

enum { MOST = 1500, GUARD = 16 };

/* Values where conversions differ: limits of integers, rounding, specials. */
static const double specials[] = { 0.0,
                                   -0.0,
                                   0.5,
                                   -0.5,
                                   1,
                                   -1,
                                   1.5,
                                   -1.5,
                                   127,
                                   128,
                                   -128,
                                   -129,
                                   255,
                                   256,
                                   32767,
                                   32768,
                                   -32769,
                                   65504,
                                   65519,
                                   65520,
                                   65536,
                                   0x1p24,
                                   0x1p24 + 1,
                                   -0x1p24 - 1,
                                   0x1p31 - 1,
                                   0x1p31,
                                   -0x1p31,
                                   -0x1p31 - 1,
                                   0x1p32,
                                   0x1p53,
                                   0x1p53 + 2,
                                   0x1p62,
                                   0x1p63,
                                   -0x1p63,
                                   0x1p64,
                                   1e300,
                                   -1e300,
                                   0x1p-24,
                                   0x1.8p-25,
                                   0x1p-126,
                                   0x1p-149,
                                   0x1p-150,
                                   0x1p-1074,
                                   0x1.0180000001p-127,
                                   0x1.8000000001p-134,
                                   0x1.0000000001p-25,
                                   0x1.001p0,
                                   0x1.0008p0,
                                   0x1.00080000001p0,
                                   0x1.01p0,
                                   0x1.010000001p0,
                                   0x1.ffep15,
                                   0x1.fffffep127,
                                   0x1.ffffffp127,
                                   INFINITY,
                                   -INFINITY,
                                   NAN };
enum { SPECIALS = sizeof specials / sizeof *specials };

static uint64_t state = 1;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 20 ^ state << 22;
}

/* Fills a run of a dtype: plain small numbers, any bits, or specials among them. */
static void fill(aril_dtype type, char *to, int64_t n, int kind)
{
    size_t size = aril__dtypes[type].bits / 8;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = draw();
        double small = (double)(int64_t)(bits % 400) - 200 + (bits & 1024 ? 0.25 : 0);
        double special = specials[bits % SPECIALS];
        if (kind == 0 || (kind == 2 && bits & 4096))
            aril__dtypes[type].store[ARIL__C_F64](to, i, 1, &small, 1);
        else if (kind == 2)
            aril__dtypes[type].store[ARIL__C_F64](to, i, 1, &special, 1);
        else
            memcpy(to + (size_t)i * size, &bits, size);
    }
}

static void expected(aril_dtype to, char *d, aril_dtype from, const char *s, int64_t n)
{
    uint64_t one;
    aril__ctype via = aril__dtypes[from].ctype;
    for (int64_t i = 0; i < n; i++) {
        aril__dtypes[from].load[via](&one, s, i, 1, 1);
        aril__dtypes[to].store[via](d, i, 1, &one, 1);
    }
}

static bool is_nan(aril_dtype t, const char *at)
{
    double x;
    aril__dtypes[t].load[ARIL__C_F64](&x, at, 0, 1, 1);
    return x != x;
}

static void check_pair(aril_dtype to, aril_dtype from, int64_t n, int kind)
{
    static _Alignas(64) char s[MOST * 8], d[MOST * 8 + GUARD], want[MOST * 8];
    size_t size = aril__dtypes[to].bits / 8;
    fill(from, s, n, kind);
    memset(d, 0x5a, sizeof d);
    if (!aril__convert(to, d, from, s, n)) return;
    expected(to, want, from, s, n);
    for (int64_t i = 0; i < n && !test_failed(); i++) {
        char *a = d + (size_t)i * size, *b = want + (size_t)i * size;
        if (memcmp(a, b, size) == 0) continue;
        CHECK_MSG(is_nan(to, a) && is_nan(to, b), "%s to %s, element %lld of %lld, kind %d",
                  aril__dtypes[from].name, aril__dtypes[to].name, (long long)i, (long long)n, kind);
    }
    for (size_t i = (size_t)n * size; i < (size_t)n * size + GUARD; i++) CHECK(d[i] == 0x5a);
}

TEST(runs_have_the_bits_of_single_elements)
{
    static const int64_t lengths[] = { 0, 1, 7, 33, 511, 512, 513, MOST };
    int level = aril__cpu();
    for (int l = 0; l <= level; l++) {
        if (aril__cpu_set(l) != l) continue;
        for (int from = 0; from <= ARIL_F64 && !test_failed(); from++)
            for (int to = 0; to <= ARIL_F64; to++)
                for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
                    check_pair((aril_dtype)to, (aril_dtype)from, lengths[k], (int)k % 3);
    }
    aril__cpu_set(level);
}

TEST(specials_convert_as_single_elements_do)
{
    for (int from = 0; from <= ARIL_F64 && !test_failed(); from++)
        for (int to = 0; to <= ARIL_F64; to++)
            for (int kind = 0; kind < 3; kind++)
                check_pair((aril_dtype)to, (aril_dtype)from, MOST, kind);
}

TEST(common_pairs_have_a_direct_conversion)
{
    static const aril_dtype all[] = { ARIL_BOOL, ARIL_U8,  ARIL_I8,  ARIL_I16,
                                      ARIL_I32,  ARIL_I64, ARIL_F32, ARIL_F64 };
    char s[8] = { 0 }, d[8];
    for (size_t i = 0; i < 8; i++)
        for (size_t k = 0; k < 8; k++) CHECK(aril__convert(all[i], d, all[k], s, 1));
}
