#include "core/move.h"

#include "core/cpu.h"
#include "core/parallel.h"
#include "core/stream.h"

#include <string.h>

enum {
    GRAIN = 64 * 1024, /* minimum bytes per parallel chunk */
    TILE = 64,         /* rows and columns of a transposed tile */
    NARROW = 4,        /* shorter sides are not tiled */
    ROW_STREAM = 256,  /* rows of fewer bytes are not streamed */
};

typedef struct job {
    aril__loops outer; /* all dimensions but the innermost two (rows), or the transposed two */
    const char *from;
    char *to;
    int64_t size;
    int64_t n[2], from_step[2], to_step[2]; /* of those two: [1] is the destination's innermost */
    int64_t tiles[2];
    bool stream;
} job;

/* ---- rows ---- */

#if ARIL__TARGETS
/* Non-temporal stores, except for partial vectors. */
ARIL__AVX2 static void stream_bytes(char *to, const char *from, int64_t bytes)
{
    int64_t head = (int64_t)(-(uintptr_t)to & 31);
    head = head < bytes ? head : bytes;
    memcpy(to, from, (size_t)head);
    int64_t i = head;
    for (; i + 128 <= bytes; i += 128) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 32));
        __m256i c = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 64));
        __m256i d = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 96));
        _mm256_stream_si256((__m256i *)(void *)(to + i), a);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 32), b);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 64), c);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 96), d);
    }
    memcpy(to + i, from + i, (size_t)(bytes - i));
}
#endif

static void move_bytes(const job *j, char *to, const char *from, int64_t bytes)
{
#if ARIL__TARGETS
    if (j->stream) {
        stream_bytes(to, from, bytes);
        return;
    }
#else
    (void)j;
#endif
    memcpy(to, from, (size_t)bytes);
}

/* Short rows of n contiguous elements: a loop avoids the call to memcpy. */
#define SHORT_ROWS(type)                                               \
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) \
        for (int64_t i = 0; i < n; i++)                                \
            ((type *)(void *)to)[i] = ((const type *)(const void *)from)[i];

#define STRIDED_ROWS(type)                                             \
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) \
        for (int64_t i = 0; i < n; i++)                                \
            ((type *)(void *)to)[i * st] = ((const type *)(const void *)from)[i * sf];

#define SPREAD_ROWS(type)                                                \
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) { \
        type v = *(const type *)(const void *)from;                      \
        for (int64_t i = 0; i < n; i++) ((type *)(void *)to)[i] = v;     \
    }

#define BY_SIZE(WHAT)               \
    switch (j->size) {              \
    case 1: WHAT(uint8_t) return;   \
    case 2: WHAT(uint16_t) return;  \
    case 4: WHAT(uint32_t) return;  \
    default: WHAT(uint64_t) return; \
    }

/* Rows in reverse. */
#define REVERSED_ROWS(type)                                              \
    for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row) { \
        type *restrict into = (type *)(void *)to;                        \
        const type *restrict last = (const type *)(const void *)from;    \
        for (int64_t i = 0; i < n; i++) into[i] = last[-i];              \
    }

#if ARIL__TARGETS
ARIL__AVX2 static void reverse_rows(const job *j, char *to, const char *from, int64_t rows)
#else
static void reverse_rows(const job *j, char *to, const char *from, int64_t rows)
#endif
{
    int64_t n = j->n[1], to_row = j->to_step[0] * j->size, from_row = j->from_step[0] * j->size;
    BY_SIZE(REVERSED_ROWS)
}

#if ARIL__TARGETS
/* Three planes of 4-byte elements become pixels: lane i of vector k of three is pixel (8 k + i) / 3
 * of plane (8 k + i) % 3. Returns the number of pixels moved. */
ARIL__AVX2 static int64_t mix_planes(float *to, const float *from, int64_t apart, int64_t pixels)
{
    const __m256i pixel0 = _mm256_setr_epi32(0, 0, 0, 1, 1, 1, 2, 2);
    const __m256i pixel1 = _mm256_setr_epi32(2, 3, 3, 3, 4, 4, 4, 5);
    const __m256i pixel2 = _mm256_setr_epi32(5, 5, 6, 6, 6, 7, 7, 7);
    int64_t i = 0;
#define MIX(pixel, second, third)                                                \
    _mm256_blend_ps(_mm256_blend_ps(_mm256_permutevar8x32_ps(a, pixel),          \
                                    _mm256_permutevar8x32_ps(b, pixel), second), \
                    _mm256_permutevar8x32_ps(c, pixel), third)
    for (; i + 8 <= pixels; i += 8, from += 8, to += 24) {
        __m256 a = _mm256_loadu_ps(from), b = _mm256_loadu_ps(from + apart),
               c = _mm256_loadu_ps(from + 2 * apart);
        _mm256_storeu_ps(to, MIX(pixel0, 0x92, 0x24));
        _mm256_storeu_ps(to + 8, MIX(pixel1, 0x24, 0x49));
        _mm256_storeu_ps(to + 16, MIX(pixel2, 0x49, 0x92));
    }
#undef MIX
    return i;
}
#endif

static void move_rows(const job *j, char *to, const char *from, int64_t rows)
{
    int64_t n = j->n[1], sf = j->from_step[1], st = j->to_step[1];
    int64_t to_row = j->to_step[0] * j->size, from_row = j->from_step[0] * j->size;
#if ARIL__TARGETS
    if (n == 3 && st == 1 && j->size == 4 && from_row == 4 && to_row == 12 &&
        aril__cpu() >= ARIL__CPU_AVX2) {
        int64_t done = mix_planes((float *)(void *)to, (const float *)(const void *)from, sf, rows);
        rows -= done;
        to += done * to_row;
        from += done * from_row;
    }
#endif
    if (sf == 1 && st == 1 && n * j->size > 64) {
        for (int64_t r = 0; r < rows; r++, to += to_row, from += from_row)
            move_bytes(j, to, from, n * j->size);
        return;
    }
    if (sf == 1 && st == 1) BY_SIZE(SHORT_ROWS)
    if (sf == 0 && st == 1) BY_SIZE(SPREAD_ROWS)
    if (sf == -1 && st == 1 && (!ARIL__TARGETS || aril__cpu() >= ARIL__CPU_AVX2)) {
        reverse_rows(j, to, from, rows);
        return;
    }
    BY_SIZE(STRIDED_ROWS)
}

/* Units are rows, numbered across the outer loops. */
static void rows_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const int64_t zero[2] = { 0, 0 };
    aril__loops_at p;
    aril__loops_seek(&j->outer, &p, begin / j->n[0], zero);
    int64_t row = begin % j->n[0];
    while (begin < end) {
        int64_t m = j->n[0] - row < end - begin ? j->n[0] - row : end - begin;
        move_rows(j, j->to + (p.offset[1] + row * j->to_step[0]) * j->size,
                  j->from + (p.offset[0] + row * j->from_step[0]) * j->size, m);
        begin += m;
        row = 0;
        if (begin < end) aril__loops_move(&j->outer, &p, 1);
    }
    if (j->stream) aril__stream_end();
}

/* One dimension, split anywhere. */
static void line_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    job part = *j;
    part.n[1] = end - begin;
    move_rows(&part, j->to + begin * j->to_step[1] * j->size,
              j->from + begin * j->from_step[1] * j->size, 1);
    if (j->stream) aril__stream_end();
}

/* ---- transposed tiles: to[a * ta + b] = from[a + b * fb] for a < m, b < n ---- */

#define TURN(type)                      \
    for (int64_t a = 0; a < m; a++)     \
        for (int64_t b = 0; b < n; b++) \
            ((type *)(void *)to)[a * ta + b] = ((const type *)(const void *)from)[a + b * fb];

static void turn(const job *j, char *to, int64_t ta, const char *from, int64_t fb, int64_t m,
                 int64_t n)
{
    BY_SIZE(TURN)
}

#if ARIL__TARGETS
/* Transposes 8x8 elements of 4 bytes in registers. */
ARIL__AVX2 static inline void turn_8x8(float *to, int64_t ta, const float *from, int64_t fb,
                                       bool stream)
{
    __m256 r0 = _mm256_loadu_ps(from), r1 = _mm256_loadu_ps(from + fb);
    __m256 r2 = _mm256_loadu_ps(from + 2 * fb), r3 = _mm256_loadu_ps(from + 3 * fb);
    __m256 r4 = _mm256_loadu_ps(from + 4 * fb), r5 = _mm256_loadu_ps(from + 5 * fb);
    __m256 r6 = _mm256_loadu_ps(from + 6 * fb), r7 = _mm256_loadu_ps(from + 7 * fb);
    __m256 a0 = _mm256_unpacklo_ps(r0, r1), a1 = _mm256_unpackhi_ps(r0, r1);
    __m256 a2 = _mm256_unpacklo_ps(r2, r3), a3 = _mm256_unpackhi_ps(r2, r3);
    __m256 a4 = _mm256_unpacklo_ps(r4, r5), a5 = _mm256_unpackhi_ps(r4, r5);
    __m256 a6 = _mm256_unpacklo_ps(r6, r7), a7 = _mm256_unpackhi_ps(r6, r7);
    r0 = _mm256_shuffle_ps(a0, a2, 0x44), r1 = _mm256_shuffle_ps(a0, a2, 0xee);
    r2 = _mm256_shuffle_ps(a1, a3, 0x44), r3 = _mm256_shuffle_ps(a1, a3, 0xee);
    r4 = _mm256_shuffle_ps(a4, a6, 0x44), r5 = _mm256_shuffle_ps(a4, a6, 0xee);
    r6 = _mm256_shuffle_ps(a5, a7, 0x44), r7 = _mm256_shuffle_ps(a5, a7, 0xee);
    a0 = _mm256_permute2f128_ps(r0, r4, 0x20), a1 = _mm256_permute2f128_ps(r1, r5, 0x20);
    a2 = _mm256_permute2f128_ps(r2, r6, 0x20), a3 = _mm256_permute2f128_ps(r3, r7, 0x20);
    a4 = _mm256_permute2f128_ps(r0, r4, 0x31), a5 = _mm256_permute2f128_ps(r1, r5, 0x31);
    a6 = _mm256_permute2f128_ps(r2, r6, 0x31), a7 = _mm256_permute2f128_ps(r3, r7, 0x31);
    if (stream) {
        _mm256_stream_ps(to, a0), _mm256_stream_ps(to + ta, a1);
        _mm256_stream_ps(to + 2 * ta, a2), _mm256_stream_ps(to + 3 * ta, a3);
        _mm256_stream_ps(to + 4 * ta, a4), _mm256_stream_ps(to + 5 * ta, a5);
        _mm256_stream_ps(to + 6 * ta, a6), _mm256_stream_ps(to + 7 * ta, a7);
        return;
    }
    _mm256_storeu_ps(to, a0), _mm256_storeu_ps(to + ta, a1);
    _mm256_storeu_ps(to + 2 * ta, a2), _mm256_storeu_ps(to + 3 * ta, a3);
    _mm256_storeu_ps(to + 4 * ta, a4), _mm256_storeu_ps(to + 5 * ta, a5);
    _mm256_storeu_ps(to + 6 * ta, a6), _mm256_storeu_ps(to + 7 * ta, a7);
}

/* Transposes 8x8 elements of 2 bytes in registers. */
ARIL__AVX2 static inline void turn_short(uint16_t *to, int64_t ta, const uint16_t *from, int64_t fb)
{
    __m128i r[8], a[8], b[8];
    for (int k = 0; k < 8; k++)
        r[k] = _mm_loadu_si128((const __m128i *)(const void *)(from + k * fb));
    for (int k = 0; k < 8; k += 2) { /* pairs, then fours of rows */
        a[k] = _mm_unpacklo_epi16(r[k], r[k + 1]);
        a[k + 1] = _mm_unpackhi_epi16(r[k], r[k + 1]);
    }
    for (int k = 0; k < 8; k += 4)
        for (int i = 0; i < 2; i++) {
            b[k + 2 * i] = _mm_unpacklo_epi32(a[k + i], a[k + i + 2]);
            b[k + 2 * i + 1] = _mm_unpackhi_epi32(a[k + i], a[k + i + 2]);
        }
    for (int k = 0; k < 4; k++) {
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * k * ta), _mm_unpacklo_epi64(b[k], b[k + 4]));
        _mm_storeu_si128((__m128i *)(void *)(to + (2 * k + 1) * ta),
                         _mm_unpackhi_epi64(b[k], b[k + 4]));
    }
}

/* Transposes a tile in blocks of 8x8. */
ARIL__AVX2 static void turn_2_bytes(const job *j, char *to_, int64_t ta, const char *from_,
                                    int64_t fb, int64_t m, int64_t n)
{
    uint16_t *to = (uint16_t *)(void *)to_;
    const uint16_t *from = (const uint16_t *)(const void *)from_;
    int64_t m8 = m / 8 * 8, n8 = n / 8 * 8;
    for (int64_t a = 0; a < m8; a += 8)
        for (int64_t b = 0; b < n8; b += 8) turn_short(to + a * ta + b, ta, from + a + b * fb, fb);
    if (m8 < m) turn(j, (char *)(to + m8 * ta), ta, (const char *)(from + m8), fb, m - m8, n8);
    if (n8 < n) turn(j, (char *)(to + n8), ta, (const char *)(from + n8 * fb), fb, m, n - n8);
}

/* Transposes 4x4 elements of 8 bytes in registers. */
ARIL__AVX2 static inline void turn_4x4(double *to, int64_t ta, const double *from, int64_t fb,
                                       bool stream)
{
    __m256d r0 = _mm256_loadu_pd(from), r1 = _mm256_loadu_pd(from + fb);
    __m256d r2 = _mm256_loadu_pd(from + 2 * fb), r3 = _mm256_loadu_pd(from + 3 * fb);
    __m256d a0 = _mm256_unpacklo_pd(r0, r1), a1 = _mm256_unpackhi_pd(r0, r1);
    __m256d a2 = _mm256_unpacklo_pd(r2, r3), a3 = _mm256_unpackhi_pd(r2, r3);
    r0 = _mm256_permute2f128_pd(a0, a2, 0x20), r1 = _mm256_permute2f128_pd(a1, a3, 0x20);
    r2 = _mm256_permute2f128_pd(a0, a2, 0x31), r3 = _mm256_permute2f128_pd(a1, a3, 0x31);
    if (stream) {
        _mm256_stream_pd(to, r0), _mm256_stream_pd(to + ta, r1);
        _mm256_stream_pd(to + 2 * ta, r2), _mm256_stream_pd(to + 3 * ta, r3);
        return;
    }
    _mm256_storeu_pd(to, r0), _mm256_storeu_pd(to + ta, r1);
    _mm256_storeu_pd(to + 2 * ta, r2), _mm256_storeu_pd(to + 3 * ta, r3);
}

/* Transposes a tile in blocks of 4x4. */
ARIL__AVX2 static void turn_8_bytes(const job *j, char *to_, int64_t ta, const char *from_,
                                    int64_t fb, int64_t m, int64_t n)
{
    double *to = (double *)(void *)to_;
    const double *from = (const double *)(const void *)from_;
    bool stream = j->stream && ta % 4 == 0 && aril__stream_fits(to);
    int64_t m4 = m / 4 * 4, n4 = n / 4 * 4;
    for (int64_t a = 0; a < m4; a += 4)
        for (int64_t b = 0; b < n4; b += 4)
            turn_4x4(to + a * ta + b, ta, from + a + b * fb, fb, stream);
    if (m4 < m) turn(j, (char *)(to + m4 * ta), ta, (const char *)(from + m4), fb, m - m4, n4);
    if (n4 < n) turn(j, (char *)(to + n4), ta, (const char *)(from + n4 * fb), fb, m, n - n4);
}

/* Transposes a tile in blocks of 8x8. */
ARIL__AVX2 static void turn_4_bytes(const job *j, char *to_, int64_t ta, const char *from_,
                                    int64_t fb, int64_t m, int64_t n)
{
    float *to = (float *)(void *)to_;
    const float *from = (const float *)(const void *)from_;
    bool stream = j->stream && ta % 8 == 0 && aril__stream_fits(to);
    int64_t m8 = m / 8 * 8, n8 = n / 8 * 8;
    for (int64_t a = 0; a < m8; a += 8)
        for (int64_t b = 0; b < n8; b += 8)
            turn_8x8(to + a * ta + b, ta, from + a + b * fb, fb, stream);
    if (m8 < m) turn(j, (char *)(to + m8 * ta), ta, (const char *)(from + m8), fb, m - m8, n8);
    if (n8 < n) turn(j, (char *)(to + n8), ta, (const char *)(from + n8 * fb), fb, m, n - n8);
}
#endif

/* Units are tiles, numbered across the outer loops; tiles that share cache lines of the source,
 * where they are adjacent, are consecutive. */
static void tiles_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const int64_t zero[2] = { 0, 0 };
    int64_t each = j->tiles[0] * j->tiles[1];
    aril__loops_at p;
    aril__loops_seek(&j->outer, &p, begin / each, zero);
    for (; begin < end; begin++) {
        int64_t a = begin % j->tiles[0] * TILE, b = begin % each / j->tiles[0] * TILE;
        int64_t m = j->n[0] - a < TILE ? j->n[0] - a : TILE;
        int64_t n = j->n[1] - b < TILE ? j->n[1] - b : TILE;
        char *to = j->to + (p.offset[1] + a * j->to_step[0] + b) * j->size;
        const char *from = j->from + (p.offset[0] + a + b * j->from_step[1]) * j->size;
#if ARIL__TARGETS
        if (j->size == 4 && aril__cpu() >= ARIL__CPU_AVX2)
            turn_4_bytes(j, to, j->to_step[0], from, j->from_step[1], m, n);
        else if (j->size == 8 && aril__cpu() >= ARIL__CPU_AVX2)
            turn_8_bytes(j, to, j->to_step[0], from, j->from_step[1], m, n);
        else if (j->size == 2 && aril__cpu() >= ARIL__CPU_AVX2)
            turn_2_bytes(j, to, j->to_step[0], from, j->from_step[1], m, n);
        else
#endif
            turn(j, to, j->to_step[0], from, j->from_step[1], m, n);
        if (begin % each == each - 1 && begin + 1 < end) aril__loops_move(&j->outer, &p, 1);
    }
    if (j->stream) aril__stream_end();
}

/* ---- choosing a method ---- */

/* Moves dimension d from the outer loops to inner dimension k. */
static void take(job *j, int d, int k)
{
    aril__loops *o = &j->outer;
    j->n[k] = o->dim[d];
    j->from_step[k] = o->stride[0][d];
    j->to_step[k] = o->stride[1][d];
    o->ndim--;
    for (; d < o->ndim; d++) {
        o->dim[d] = o->dim[d + 1];
        for (int i = 0; i < 2; i++) o->stride[i][d] = o->stride[i][d + 1];
    }
}

void aril__move(const aril__loops *loops, const char *from, char *to, int64_t size)
{
    job j = { .outer = *loops, .from = from, .to = to, .size = size };
    int last = loops->ndim - 1, turned = -1;
    int64_t count = 1;
    for (int d = 0; d <= last; d++) {
        count *= loops->dim[d];
        if (d < last && loops->stride[0][d] == 1 && loops->dim[d] >= NARROW) turned = d;
    }
    if (last < 0) {
        memcpy(to, from, (size_t)size);
        return;
    }
    j.stream = count * size >= ARIL__STREAM_STORES_FROM && loops->dim[last] * size >= ROW_STREAM &&
               loops->stride[1][last] == 1 && ARIL__TARGETS && aril__cpu() >= ARIL__CPU_AVX2;
    int64_t grain = GRAIN / size;
    if (loops->stride[1][last] == 1 && loops->stride[0][last] != 1 && loops->stride[0][last] != 0 &&
        loops->dim[last] >= NARROW && turned >= 0) {
        take(&j, last, 1);
        take(&j, turned, 0);
        for (int k = 0; k < 2; k++) j.tiles[k] = aril__parallel_chunks(j.n[k], TILE);
        int64_t units = count / (j.n[0] * j.n[1]) * j.tiles[0] * j.tiles[1];
        aril__parallel_for(units, grain / (count / units + 1) + 1, tiles_range, &j);
        return;
    }
    take(&j, last, 1);
    if (last == 0) {
        aril__parallel_for(count, grain, line_range, &j);
        return;
    }
    take(&j, last - 1, 0);
    aril__parallel_for(count / j.n[1], grain / j.n[1] + 1, rows_range, &j);
}
