#include "data/image/resize.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/vector/targets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if ARIL__TARGETS
#include <immintrin.h>
#endif

/* BITS: u8 weights are fixed-point multiples of 2^-22, as in PIL. LANES: rows processed at once. */
enum { BITS = 22, LANES = 16 };

/* The input pixels and weights of each output along one axis. */
struct taps {
    int64_t n, max; /* outputs; maximum pixels per output */
    int64_t *first; /* first pixel of each output */
    int64_t *count;
    float *real;    /* weights, `most` per output: f32 ... */
    int32_t *fixed; /* ... or fixed-point */
};

#define TEMPLATE "data/image/resize.inc"
#include "data/targets.inc"

/* ---- weights ---- */

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic with a = -1/2. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* Weights for n outputs over the range `begin` to begin + length; only pixels low to high - 1
 * exist. */
static bool taps_new(struct taps *k, double begin, double length, int64_t low, int64_t high,
                     int64_t n, aril_resize_opts opts, bool fixed)
{
    double scale = length / (double)n, wide = scale < 1 || opts.no_antialias ? 1 : scale;
    double support = (opts.filter == ARIL_FILTER_BICUBIC ? 2 : 1) * wide;
    k->n = n;
    k->max = (int64_t)ceil(support) * 2 + 1;
    size_t weights = (size_t)n * (size_t)k->max;
    char *buffer = aril__malloc((size_t)n * 2 * sizeof(int64_t) + weights * 4 +
                                (size_t)k->max * sizeof(double));
    if (!buffer) return false;
    k->first = (int64_t *)(void *)buffer;
    k->count = k->first + n;
    double *w = (double *)(void *)(k->count + n);
    k->real = (float *)(void *)(w + k->max);
    k->fixed = (int32_t *)(void *)k->real;
    for (int64_t i = 0; i < n; i++) {
        double centre = begin + ((double)i + 0.5) * scale, sum = 0;
        int64_t first, end;
        if (opts.filter == ARIL_FILTER_NEAREST) {
            first = (int64_t)centre;
            if (first < low) first = low;
            if (first > high - 1) first = high - 1;
            end = first + 1;
        } else {
            first = centre - support + 0.5 < (double)low ? low : (int64_t)(centre - support + 0.5);
            end = (int64_t)(centre + support + 0.5);
            if (end > high) end = high;
        }
        for (int64_t j = first; j < end; j++) {
            double at = ((double)j - centre + 0.5) / wide;
            double v = opts.filter == ARIL_FILTER_NEAREST   ? 1
                       : opts.filter == ARIL_FILTER_BICUBIC ? bicubic(at)
                                                            : bilinear(at);
            w[j - first] = v;
            sum += v;
        }
        k->first[i] = first;
        k->count[i] = end - first;
        for (int64_t j = 0; j < end - first; j++) {
            double v = sum != 0 ? w[j] / sum : w[j];
            if (fixed)
                k->fixed[i * k->max + j] = (int32_t)(v * (1 << BITS) + (v < 0 ? -0.5 : 0.5));
            else
                k->real[i * k->max + j] = (float)v;
        }
    }
    return true;
}

/* ---- blocks of rows ---- */

/* Transposes LANES rows of `columns` elements, `step` apart, to [columns][LANES]; missing rows
 * (from `rows` on) repeat the last. */
static void turn_u8(const uint8_t *from, int64_t step, int64_t rows, int64_t columns, uint8_t *to)
{
    int64_t x = 0;
    if (rows == LANES)
        for (; x + 16 <= columns; x += 16) PICK(transpose)(from + x, step, to + x * LANES, LANES);
    for (; x < columns; x++)
        for (int64_t i = 0; i < LANES; i++)
            to[x * LANES + i] = from[(i < rows ? i : rows - 1) * step + x];
}

static void turn_f32(const float *from, int64_t step, int64_t rows, int64_t columns, float *to)
{
    for (int64_t x = 0; x < columns; x++)
        for (int64_t i = 0; i < LANES; i++)
            to[x * LANES + i] = from[(i < rows ? i : rows - 1) * step + x];
}

/* Transposes back: [n][LANES] to `rows` contiguous rows of n. */
static void turn_back_u8(const uint8_t *from, int64_t rows, int64_t n, uint8_t *to)
{
    int64_t x = 0;
    if (rows == LANES)
        for (; x + 16 <= n; x += 16) PICK(transpose)(from + x * LANES, LANES, to + x, n);
    for (; x < n; x++)
        for (int64_t i = 0; i < rows; i++) to[i * n + x] = from[x * LANES + i];
}

static void turn_back_f32(const float *from, int64_t rows, int64_t n, float *to)
{
    for (int64_t x = 0; x < n; x++)
        for (int64_t i = 0; i < rows; i++) to[i * n + x] = from[x * LANES + i];
}

/* ---- both passes ---- */

struct job {
    bool f32;
    struct taps x, y;
    int64_t columns, pixel; /* those used, and the distance between them */
    char *turned, *narrow;  /* [columns][LANES], [width][LANES] */
};

/* The horizontal pass: `channels` channels, interleaved if more than one, of rows that are `step`
 * elements apart, to [channels][rows][width]. */
static void along_x(const struct job *j, const char *from, int64_t step, int64_t rows,
                    int64_t channels, char *to)
{
    int64_t columns = (j->columns - 1) * j->pixel + channels, width = j->x.n;
    size_t size = j->f32 ? sizeof(float) : 1;
    for (int64_t r = 0; r < rows; r += LANES) {
        int64_t some = rows - r < LANES ? rows - r : LANES;
        const char *at = from + (size_t)(r * step) * size;
        if (j->f32)
            turn_f32((const float *)(const void *)at, step, some, columns,
                     (float *)(void *)j->turned);
        else
            turn_u8((const uint8_t *)at, step, some, columns, (uint8_t *)j->turned);
        for (int64_t k = 0; k < channels; k++) {
            char *out = to + (size_t)((k * rows + r) * width) * size;
            char *turned = j->turned + (size_t)k * LANES * size;
            if (j->f32) {
                PICK(along_x_f32)
                ((const float *)(void *)turned, &j->x, j->pixel, (float *)(void *)j->narrow);
                turn_back_f32((const float *)(void *)j->narrow, some, width, (float *)(void *)out);
            } else {
                PICK(along_x_u8)
                ((const uint8_t *)turned, &j->x, j->pixel, (uint8_t *)j->narrow);
                turn_back_u8((const uint8_t *)j->narrow, some, width, (uint8_t *)out);
            }
        }
    }
}

/* The vertical pass: rows of n elements, `step` apart, to [height][n]. */
static void along_y(const struct job *j, const char *from, int64_t step, int64_t n, char *to)
{
    size_t size = j->f32 ? sizeof(float) : 1;
    for (int64_t y = 0; y < j->y.n; y++, to += (size_t)n * size) {
        const char *at = from + (size_t)(j->y.first[y] * step) * size;
        if (j->f32) PICK(along_y_f32)
        ((const float *)(const void *)at, step, j->y.real + y * j->y.max, j->y.count[y], n,
         (float *)(void *)to);
        else PICK(along_y_u8)((const uint8_t *)at, step, j->y.fixed + y * j->y.max, j->y.count[y],
                              n, (uint8_t *)to);
    }
}

/* Pillow's order of the passes: the vertical one first where the image loses more than twice as
 * many rows as columns. */
static bool is_vertical_first(int64_t rows, int64_t columns, int64_t height, int64_t width)
{
    return height < rows && 2 * (columns - width) < rows - height;
}

aril_status aril__resize(const aril__pixels_view *from, aril__box box, int64_t height,
                         int64_t width, aril_resize_opts opts, void *to)
{
    if (height < 1 || width < 1) return ARIL_OK;
    struct job j = { .f32 = from->f32, .pixel = from->pixel };
    int64_t right = (int64_t)ceil(box.x + box.width), bottom = (int64_t)ceil(box.y + box.height);
    int64_t left = box.x < 0 ? 0 : (int64_t)box.x, top = box.y < 0 ? 0 : (int64_t)box.y;
    if (right > from->width) right = from->width;
    if (bottom > from->height) bottom = from->height;
    int64_t rows = bottom - top, columns = right - left;
    if (columns < 1 || rows < 1)
        return aril__fail(ARIL_ERR_SHAPE, "resize: the part of the image has no pixels");
    j.columns = columns;
    size_t size = from->f32 ? sizeof(float) : 1;
    /* Interleaved channels are transposed together, planes one by one. */
    bool together = from->plane < from->pixel,
         y_first = is_vertical_first(rows, columns, height, width);
    int64_t channels = from->channels, at_once = together ? channels : 1;
    int64_t line = (columns - 1) * from->pixel + at_once; /* of a row */
    size_t turned = (size_t)(columns * (together ? from->pixel : 1) + channels) * LANES * size;
    size_t narrow = (size_t)width * LANES * size;
    size_t between = (size_t)(y_first ? height * line : rows * width * at_once) * size;
    char *buffer = aril__malloc(turned + narrow + between + 128);
    bool ok = buffer &&
              taps_new(&j.x, box.x - (double)left, box.width, 0, columns, width, opts, !from->f32);
    bool ok_y =
        ok && taps_new(&j.y, box.y - (double)top, box.height, 0, rows, height, opts, !from->f32);
    if (ok_y) {
        j.turned = buffer + (64 - (uintptr_t)buffer % 64);
        j.narrow = j.turned + (turned + 63) / 64 * 64;
        char *middle = j.narrow + narrow;
        for (int64_t c = 0; c < channels; c += at_once) {
            const char *at =
                (const char *)from->data +
                (size_t)(c * from->plane + top * from->row + left * from->pixel) * size;
            char *out = (char *)to + (size_t)(c * height * width) * size;
            if (y_first) {
                along_y(&j, at, from->row, line, middle);
                along_x(&j, middle, line, height, at_once, out);
                continue;
            }
            along_x(&j, at, from->row, rows, at_once, middle);
            for (int64_t k = 0; k < at_once; k++)
                along_y(&j, middle + (size_t)(k * rows * width) * size, width, width,
                        out + (size_t)(k * height * width) * size);
        }
        free(j.y.first);
    }
    if (ok) free(j.x.first);
    free(buffer);
    return ok_y ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "resize: out of memory");
}
