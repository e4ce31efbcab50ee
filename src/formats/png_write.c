#include "formats/png_write.h"

#include "core/error.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#ifdef ARIL_HAVE_ZLIB
#include <zlib.h>
#endif

static void chunk(aril__bytes *out, const char *type, const void *data, size_t n)
{
    unsigned char number[4];
    aril__put_be32(number, (uint32_t)n);
    aril__bytes_add(out, number, 4);
    size_t from = out->n;
    aril__bytes_add(out, type, 4);
    if (n) aril__bytes_add(out, data, n);
    if (out->failed) return;
    aril__put_be32(number, aril__crc32(0, out->at + from, n + 4));
    aril__bytes_add(out, number, 4);
}

/* ---- rows ---- */

enum { FILTERS = 5 }; /* none, sub, up, average, Paeth */

static int nearest_of(int a, int b, int c)
{
    int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

/* Applies a PNG filter to one row; above may be NULL. Returns the sum of the residuals'
 * magnitudes. */
static uint64_t filter_row(int filter, const uint8_t *row, const uint8_t *above, size_t n,
                           size_t pixel, uint8_t *to)
{
    uint64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        int left = i >= pixel ? row[i - pixel] : 0, up = above ? above[i] : 0;
        int corner = above && i >= pixel ? above[i - pixel] : 0;
        int predicted = filter == 0   ? 0
                        : filter == 1 ? left
                        : filter == 2 ? up
                        : filter == 3 ? (left + up) / 2
                                      : nearest_of(left, up, corner);
        to[i] = (uint8_t)(row[i] - predicted);
        size += to[i] < 128 ? to[i] : 256u - to[i];
    }
    return size;
}

/* ---- compression ---- */

#ifdef ARIL_HAVE_ZLIB

static bool deflate_all(const uint8_t *data, size_t n, aril__bytes *out)
{
    uLongf size = compressBound((uLong)n);
    unsigned char *to = aril__malloc(size);
    bool ok =
        to && compress2(to, &size, data, (uLong)n, 6) == Z_OK && aril__bytes_add(out, to, size);
    free(to);
    return ok;
}

#else

/* Without zlib: a zlib stream of stored (uncompressed) blocks. */
static bool deflate_all(const uint8_t *data, size_t n, aril__bytes *out)
{
    static const unsigned char head[] = { 0x78, 0x01 };
    enum { BLOCK = 65535, PRIME = 65521 };
    uint32_t a = 1, b = 0;
    aril__bytes_add(out, head, sizeof head);
    for (size_t at = 0; at < n || at == 0; at += BLOCK) {
        uint16_t size = (uint16_t)(n - at < BLOCK ? n - at : BLOCK);
        unsigned char block[5] = { n - at <= BLOCK };
        aril__put_le16(block + 1, size);
        aril__put_le16(block + 3, (uint16_t)~size);
        aril__bytes_add(out, block, sizeof block);
        aril__bytes_add(out, data + at, size);
    }
    for (size_t i = 0; i < n; i++) {
        a = (a + data[i]) % PRIME;
        b = (b + a) % PRIME;
    }
    unsigned char sum[4];
    aril__put_be32(sum, b << 16 | a);
    aril__bytes_add(out, sum, sizeof sum);
    return !out->failed;
}

#endif

aril_status aril__png_encode(const char *what, const uint8_t *pixels, int64_t width, int64_t height,
                             int channels, int64_t stride, aril__bytes *out)
{
    static const unsigned char signature[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    static const unsigned char color_type[] = { 0, 0, 4, 2, 6 };
    enum { LARGEST = 1 << 24 };
    if (width < 1 || height < 1 || width > LARGEST || height > LARGEST || channels < 1 ||
        channels > 4)
        return aril__fail(ARIL_ERR_ARG,
                          "%s: an image of %" PRId64 " x %" PRId64
                          " pixels of %d channels cannot be"
                          " written as PNG",
                          what, width, height, channels);
    size_t row = (size_t)width * (size_t)channels, n = (row + 1) * (size_t)height;
    uint8_t *lines = aril__malloc(n + row);
    aril__bytes packed = { 0 };
    aril_status s = ARIL_OK;
    if (lines) {
        uint8_t *trial = lines + n;
        for (int64_t y = 0; y < height; y++) {
            const uint8_t *from = pixels + y * stride, *above = y ? from - stride : NULL;
            uint8_t *to = lines + (size_t)y * (row + 1);
            uint64_t min = UINT64_MAX;
            for (int f = 0; f < FILTERS; f++) {
                uint64_t size = filter_row(f, from, above, row, (size_t)channels, trial);
                if (size >= min) continue;
                min = size;
                to[0] = (uint8_t)f;
                memcpy(to + 1, trial, row);
            }
        }
        unsigned char head[13] = { 0 };
        aril__put_be32(head, (uint32_t)width);
        aril__put_be32(head + 4, (uint32_t)height);
        head[8] = 8;
        head[9] = color_type[channels];
        aril__bytes_add(out, signature, sizeof signature);
        chunk(out, "IHDR", head, sizeof head);
        if (deflate_all(lines, n, &packed)) chunk(out, "IDAT", packed.at, packed.n);
        chunk(out, "IEND", NULL, 0);
    }
    if (!lines || packed.failed || out->failed || !packed.n)
        s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for an image", what);
    aril__bytes_free(&packed);
    free(lines);
    return s;
}
