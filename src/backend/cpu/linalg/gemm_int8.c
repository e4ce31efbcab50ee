#include "backend/cpu/linalg/gemm_int8.h"

#include "core/cpu.h"
#include "core/parallel.h"

#include <string.h>

#if ARIL__TARGETS
#include <immintrin.h>
#endif

enum {
    MR = ARIL__INT8_ROWS,
    NR = ARIL__INT8_COLUMNS,
    MIN_WORK = 1 << 18, /* multiplications per task */
};

aril__int8 aril__int8_of(int64_t k, int64_t n, bool a_signed, bool b_signed)
{
    bool bytes = aril__cpu() == ARIL__CPU_AVX512 && aril__cpu_has(ARIL__CPU_VNNI);
    return (aril__int8){ k, n, bytes, a_signed, b_signed };
}

/* Values that are multiplied at a time in a column. */
static int64_t group_of(const aril__int8 *g)
{
    return g->bytes ? 4 : 2;
}

static int64_t groups_of(const aril__int8 *g)
{
    return (g->k + group_of(g) - 1) / group_of(g);
}

/* Bytes of a panel: a group of each column takes 4. */
static size_t panel_bytes(const aril__int8 *g)
{
    return (size_t)groups_of(g) * NR * 4;
}

/* What is added to values of A and of B where they are staged. */
static int a_shift(const aril__int8 *g)
{
    return g->bytes && g->a_signed ? 128 : 0;
}

static int b_shift(const aril__int8 *g)
{
    return g->bytes && !g->b_signed ? -128 : 0;
}

/* ---- packing ---- */

size_t aril__int8_packed(const aril__int8 *g)
{
    int64_t columns = aril__int8_padded(g->n);
    return (size_t)columns * sizeof(int32_t) + (size_t)(columns / NR) * panel_bytes(g);
}

static int value_of(const void *at, int64_t i, bool is_signed)
{
    return is_signed ? ((const int8_t *)at)[i] : ((const uint8_t *)at)[i];
}

void aril__int8_pack(const aril__int8 *g, const void *b, int64_t row, int64_t col, void *to)
{
    int64_t columns = aril__int8_padded(g->n), step = group_of(g);
    int32_t *sum = to;
    char *panel = (char *)to + (size_t)columns * sizeof *sum;
    memset(to, 0, aril__int8_packed(g));
    for (int64_t n = 0; n < g->n; n++) {
        char *at = panel + (size_t)(n / NR) * panel_bytes(g) + n % NR * 4;
        for (int64_t k = 0; k < g->k; k++) {
            int v = value_of(b, k * row + n * col, g->b_signed) + b_shift(g);
            char *group = at + k / step * NR * 4;
            if (g->bytes)
                ((int8_t *)group)[k % step] = (int8_t)v;
            else
                ((int16_t *)(void *)group)[k % step] = (int16_t)v;
            sum[n] += v;
        }
    }
}

/* ---- staging ---- */

size_t aril__int8_row(const aril__int8 *g)
{
    return (size_t)groups_of(g) * 4;
}

void aril__int8_stage(const aril__int8 *g, void *row, int64_t at, const void *from, int64_t n,
                      int64_t step)
{
    uint8_t *bytes = (uint8_t *)row + at;
    int16_t *pairs = (int16_t *)row + at;
    const uint8_t *u = from;
    const int8_t *s = from;
    uint8_t flip = g->a_signed ? 0x80 : 0;
    if (g->bytes && step == 1 && !flip)
        memcpy(bytes, u, (size_t)n);
    else if (g->bytes)
        for (int64_t i = 0; i < n; i++) bytes[i] = u[i * step] ^ flip;
    else if (g->a_signed)
        for (int64_t i = 0; i < n; i++) pairs[i] = s[i * step];
    else
        for (int64_t i = 0; i < n; i++) pairs[i] = u[i * step];
}

void aril__int8_fill(const aril__int8 *g, void *row, int64_t at, int64_t v, int64_t n)
{
    int16_t *pairs = (int16_t *)row + at;
    if (g->bytes)
        memset((uint8_t *)row + at, (uint8_t)(v + a_shift(g)), (size_t)n);
    else
        for (int64_t i = 0; i < n; i++) pairs[i] = (int16_t)v;
}

void aril__int8_end(const aril__int8 *g, void *row)
{
    size_t size = g->bytes ? 1 : 2, used = (size_t)g->k * size;
    memset((char *)row + used, 0, aril__int8_row(g) - used);
}

/* ---- columns ---- */

size_t aril__int8_columns_bytes(int64_t n)
{
    return 3 * sizeof(int32_t) * (size_t)aril__int8_padded(n);
}

aril__int8_columns aril__int8_columns_of(const aril__int8 *g, const aril__rescale *s, int64_t first,
                                         const void *packed, void *space)
{
    int64_t n = aril__int8_padded(g->n);
    const int32_t *sum = packed;
    aril__int8_columns c = { .base = space,
                             .a_zero = (int32_t)s->a_zero + a_shift(g),
                             .zero = (int32_t)s->zero,
                             .low = s->is_signed ? -128 : 0,
                             .high = s->is_signed ? 127 : 255 };
    int32_t *zero = c.base + n;
    float *scale = (float *)(void *)(zero + n);
    bool any = false;
    memset(space, 0, aril__int8_columns_bytes(g->n));
    for (int64_t i = 0; i < g->n; i++) {
        int64_t bias = aril__integer_of(s->bias, first + i);
        c.base[i] = (int32_t)(uint32_t)(uint64_t)(bias - (int64_t)c.a_zero * sum[i]);
        zero[i] = (int32_t)aril__integer_of(s->b_zero, first + i) + b_shift(g);
        any |= zero[i] != 0;
        if (s->rescales) scale[i] = aril__scale_of(s->scale, first + i);
    }
    c.b_zero = any ? zero : NULL;
    c.scale = s->rescales ? scale : NULL;
    return c;
}

/* ---- tiles: sums of some rows with the columns of a panel ---- */

typedef void tile_fn(int64_t groups, int rows, int columns, const char *a, size_t row,
                     const void *panel, int32_t (*sum)[NR]);

/* Any processor. */
static void tile_plain(int64_t groups, int rows, int columns, const char *a, size_t row,
                       const void *panel, int32_t (*sum)[NR])
{
    for (int i = 0; i < rows; i++) {
        const int16_t *at = (const int16_t *)(const void *)(a + (size_t)i * row);
        const int16_t *b = panel;
        uint32_t *to = (uint32_t *)(void *)sum[i];
        memset(to, 0, sizeof sum[i]);
        for (int64_t k = 0; k < groups; k++, b += 2 * NR)
            for (int n = 0; n < columns; n++) {
                int32_t v = at[2 * k] * b[2 * n] + at[2 * k + 1] * b[2 * n + 1];
                to[n] += (uint32_t)v;
            }
    }
}

#if ARIL__TARGETS
static inline int32_t group_at(const char *a, int64_t k)
{
    int32_t v;
    memcpy(&v, a + 4 * k, sizeof v);
    return v;
}

/* R rows by 16 columns of a panel, whose rows are 64 columns wide. */
#define TILE_PAIRS(R)                                                                    \
    ARIL__AVX2 static inline void pairs_##R(int64_t groups, const char *a, size_t row,   \
                                            const char *b, int32_t(*sum)[NR])            \
    {                                                                                    \
        __m256i acc[R][2];                                                               \
        for (int i = 0; i < (R); i++) acc[i][0] = acc[i][1] = _mm256_setzero_si256();    \
        for (int64_t k = 0; k < groups; k++) {                                           \
            const __m256i *at = (const __m256i *)(const void *)(b + (size_t)k * NR * 4); \
            __m256i b0 = _mm256_loadu_si256(at), b1 = _mm256_loadu_si256(at + 1);        \
            for (int i = 0; i < (R); i++) {                                              \
                __m256i v = _mm256_set1_epi32(group_at(a + (size_t)i * row, k));         \
                acc[i][0] = _mm256_add_epi32(acc[i][0], _mm256_madd_epi16(v, b0));       \
                acc[i][1] = _mm256_add_epi32(acc[i][1], _mm256_madd_epi16(v, b1));       \
            }                                                                            \
        }                                                                                \
        for (int i = 0; i < (R); i++)                                                    \
            for (int j = 0; j < 2; j++)                                                  \
                _mm256_storeu_si256((__m256i *)(void *)(sum[i] + 8 * j), acc[i][j]);     \
    }
TILE_PAIRS(1)
TILE_PAIRS(2)
TILE_PAIRS(3)
TILE_PAIRS(6)

ARIL__AVX2 static void tile_pairs(int64_t groups, int rows, int columns, const char *a, size_t row,
                                  const void *panel, int32_t (*sum)[NR])
{
    for (int n = 0; n < columns; n += 16) {
        const char *b = (const char *)panel + n * 4;
        int32_t(*to)[NR] = (int32_t(*)[NR])(void *)(&sum[0][n]);
        int i = 0;
        for (; rows - i >= 6; i += 6) pairs_6(groups, a + (size_t)i * row, row, b, to + i);
        for (; rows - i >= 3; i += 3) pairs_3(groups, a + (size_t)i * row, row, b, to + i);
        for (; rows - i >= 2; i += 2) pairs_2(groups, a + (size_t)i * row, row, b, to + i);
        for (; rows - i >= 1; i++) pairs_1(groups, a + (size_t)i * row, row, b, to + i);
    }
}

#if defined(__clang__)
#define VNNI                                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))) \
    __attribute__((min_vector_width(512)))
#else
#define VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))
#endif

/* Rows by vectors of 16 columns; both are constants where it is called. */
VNNI __attribute__((always_inline)) static inline void bytes(int rows, int vectors, int64_t groups,
                                                             const char *a, size_t row,
                                                             const char *b, int32_t (*sum)[NR])
{
    __m512i acc[MR][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) acc[i][j] = _mm512_setzero_si512();
    for (int64_t k = 0; k < groups; k++) {
        __m512i v[4];
        for (int j = 0; j < vectors; j++)
            v[j] = _mm512_loadu_si512(b + (size_t)k * NR * 4 + 64 * (size_t)j);
        for (int i = 0; i < rows; i++) {
            __m512i x = _mm512_set1_epi32(group_at(a + (size_t)i * row, k));
            for (int j = 0; j < vectors; j++) acc[i][j] = _mm512_dpbusd_epi32(acc[i][j], x, v[j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) _mm512_storeu_si512(sum[i] + 16 * j, acc[i][j]);
}

#define TILES(J)                                                                                  \
    VNNI static void tile_##J(int64_t groups, int rows, const char *a, size_t row, const char *b, \
                              int32_t(*sum)[NR])                                                  \
    {                                                                                             \
        switch (rows) {                                                                           \
        case 1: bytes(1, J, groups, a, row, b, sum); break;                                       \
        case 2: bytes(2, J, groups, a, row, b, sum); break;                                       \
        case 3: bytes(3, J, groups, a, row, b, sum); break;                                       \
        case 4: bytes(4, J, groups, a, row, b, sum); break;                                       \
        case 5: bytes(5, J, groups, a, row, b, sum); break;                                       \
        default: bytes(6, J, groups, a, row, b, sum); break;                                      \
        }                                                                                         \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)

static void tile_bytes(int64_t groups, int rows, int columns, const char *a, size_t row,
                       const void *panel, int32_t (*sum)[NR])
{
    if (columns > 48)
        tile_4(groups, rows, a, row, panel, sum);
    else if (columns > 32)
        tile_3(groups, rows, a, row, panel, sum);
    else if (columns > 16)
        tile_2(groups, rows, a, row, panel, sum);
    else
        tile_1(groups, rows, a, row, panel, sum);
}
#endif

static tile_fn *tile_of(const aril__int8 *g)
{
#if ARIL__TARGETS
    if (g->bytes) return tile_bytes;
    if (aril__cpu() >= ARIL__CPU_AVX2) return tile_pairs;
#else
    (void)g;
#endif
    return tile_plain;
}

/* ---- results ---- */

#define TARGET
#define NAME(x) x##_plain
#include "backend/cpu/linalg/gemm_int8.inc"
#undef TARGET
#undef NAME
#if ARIL__TARGETS
#define TARGET  ARIL__AVX2
#define NAME(x) x##_avx2
#include "backend/cpu/linalg/gemm_int8.inc"
#undef TARGET
#undef NAME
#define TARGET  ARIL__AVX512
#define NAME(x) x##_avx512
#include "backend/cpu/linalg/gemm_int8.inc"
#undef TARGET
#undef NAME
#endif

typedef void finish_fn(const aril__int8_columns *c, int64_t k, const void *a, bool bytes,
                       int32_t *sum, int64_t first, int n, void *y, int64_t at);

static finish_fn *finish_of(void)
{
#if ARIL__TARGETS
    if (aril__cpu() == ARIL__CPU_AVX512) return finish_avx512;
    if (aril__cpu() == ARIL__CPU_AVX2) return finish_avx2;
#endif
    return finish_plain;
}

void aril__int8_rows(const aril__int8 *g, const aril__int8_columns *c, const void *packed,
                     const void *a, int64_t rows, int64_t begin, int64_t end, void *y, int64_t step)
{
    int32_t sum[MR][NR];
    tile_fn *tile = tile_of(g);
    finish_fn *finish = finish_of();
    size_t row = aril__int8_row(g);
    const char *panels = (const char *)packed + (size_t)aril__int8_padded(g->n) * sizeof(int32_t);
    for (int64_t n = begin; n < end; n += NR) {
        int columns = (int)(end - n < NR ? end - n : NR);
        const char *panel = panels + (size_t)(n / NR) * panel_bytes(g);
        for (int64_t i = 0; i < rows; i += MR) {
            int count = (int)(rows - i < MR ? rows - i : MR);
            const char *from = (const char *)a + (size_t)i * row;
            tile(groups_of(g), count, columns, from, row, panel, sum);
            for (int r = 0; r < count; r++)
                finish(c, g->k, from + (size_t)r * row, g->bytes, sum[r], n, columns, y,
                       (i + r) * step + n);
        }
    }
}

int64_t aril__int8_cuts(const aril__int8 *g, int64_t rows, int64_t blocks)
{
    double work = (double)rows * (double)g->n * (double)g->k / MIN_WORK;
    int64_t most = work < 1 ? 1 : work > 1 << 20 ? 1 << 20 : (int64_t)work;
    int64_t pieces = aril__parallel_pieces(most, 1), panels = aril__int8_padded(g->n) / NR;
    if (pieces < 2 || blocks < 1 || blocks >= 8 * pieces) return 1;
    return pieces < panels ? pieces : panels < 1 ? 1 : panels;
}

void aril__int8_cut(const aril__int8 *g, int64_t cut, int64_t cuts, int64_t *begin, int64_t *end)
{
    int64_t panels = aril__int8_padded(g->n) / NR;
    *begin = panels * cut / cuts * NR;
    *end = panels * (cut + 1) / cuts * NR;
    if (*end > g->n) *end = g->n;
}
