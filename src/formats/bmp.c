/* Reads BMP files: uncompressed, with palettes of 1, 4 or 8 bits, or 24 or 32 bits per pixel. */
#include "formats/image.h"

#include "aril/create.h"
#include "aril/device.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_HEADER = 14, CORE_HEADER = 12, INFO_HEADER = 40, V3_HEADER = 56, COLORS = 256 };

/* What the headers say. */
typedef struct bitmap {
    const char *name;
    int64_t width, height;
    bool top_down, gray, alpha;
    int bits, channels;
    uint64_t stride, pixels; /* bytes of a row in the file, and where the first begins */
    unsigned char color[COLORS][3];
} bitmap;

bool aril__is_bmp(const unsigned char *data, size_t size)
{
    if (size < FILE_HEADER + 4 || memcmp(data, "BM", 2) != 0) return false;
    uint32_t header = aril__le32(data + FILE_HEADER);
    return header == CORE_HEADER || (header >= INFO_HEADER && header <= 124);
}

static bool malformed(const bitmap *b, const char *what)
{
    aril__fail(ARIL_ERR_FORMAT, "%s is not a valid BMP file: %s", b->name, what);
    return false;
}

static bool unsupported(const bitmap *b, const char *what)
{
    aril__fail(ARIL_ERR_UNSUPPORTED,
               "%s is a BMP file %s; uncompressed ones with a palette, of 24 "
               "or of 32 bits are read",
               b->name, what);
    return false;
}

/* Colors are B, G, R and, unless the header is the oldest one, a byte without meaning. */
static bool read_palette(bitmap *b, const unsigned char *data, size_t size, uint64_t at,
                         uint32_t used, bool core)
{
    uint64_t most = UINT64_C(1) << b->bits, n = used ? used : most, each = core ? 3 : 4;
    if (n > most) return malformed(b, "its palette has more colors than pixels can name");
    if (at > size || n * each > size - at) return malformed(b, "it ends within its palette");
    b->gray = true;
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char *c = data + at + i * each;
        for (int k = 0; k < 3; k++) b->color[i][k] = c[2 - k];
        b->gray &= c[0] == c[1] && c[1] == c[2];
    }
    return true;
}

/* The masks of 32 bits per pixel: those of B, G, R, and perhaps A, from the lowest byte on. */
static bool read_masks(bitmap *b, const unsigned char *data, size_t size, uint32_t header)
{
    const unsigned char *m = data + FILE_HEADER + INFO_HEADER;
    if (size < FILE_HEADER + INFO_HEADER + 12) return malformed(b, "it ends within its masks");
    if (aril__le32(m) != 0xff0000 || aril__le32(m + 4) != 0xff00 || aril__le32(m + 8) != 0xff)
        return unsupported(b, "with colors in another order than B, G, R");
    b->alpha =
        header >= V3_HEADER && size >= FILE_HEADER + V3_HEADER && aril__le32(m + 12) == 0xff000000;
    return true;
}

static bool read_headers(bitmap *b, const unsigned char *data, size_t size)
{
    const unsigned char *p = data + FILE_HEADER;
    uint32_t header = aril__le32(p), compression = 0, used = 0;
    bool core = header == CORE_HEADER;
    if (header > size - FILE_HEADER) return malformed(b, "it ends within its header");
    b->pixels = aril__le32(data + 10);
    if (core) {
        b->width = aril__le16(p + 4);
        b->height = aril__le16(p + 6);
        b->bits = aril__le16(p + 10);
    } else {
        b->width = (int32_t)aril__le32(p + 4);
        b->height = (int32_t)aril__le32(p + 8);
        b->bits = aril__le16(p + 14);
        compression = aril__le32(p + 16);
        used = aril__le32(p + 32);
    }
    b->top_down = b->height < 0;
    if (b->top_down) b->height = -b->height;
    if (b->width < 0) return malformed(b, "its width is negative");
    bool palette = b->bits == 1 || b->bits == 4 || b->bits == 8;
    if (!palette && b->bits != 24 && b->bits != 32) {
        char what[48];
        snprintf(what, sizeof what, "of %d bits per pixel", b->bits);
        return unsupported(b, what);
    }
    bool masks = compression == 3 && b->bits == 32;
    if (compression != 0 && !masks) return unsupported(b, "with compressed pixels");
    if (masks && !read_masks(b, data, size, header)) return false;
    return !palette || read_palette(b, data, size, (uint64_t)FILE_HEADER + header, used, core);
}

/* ---- pixels ---- */

static void put_row(const bitmap *b, const unsigned char *from, unsigned char *to)
{
    int c = b->channels, bytes = b->bits / 8;
    for (int64_t x = 0; x < b->width; x++, to += c) {
        if (b->bits >= 24) {
            const unsigned char *p = from + x * bytes;
            for (int k = 0; k < 3; k++) to[k] = p[2 - k];
            if (c == 4) to[3] = p[3];
            continue;
        }
        int per = 8 / b->bits, shift = 8 - b->bits * (1 + (int)(x % per));
        const unsigned char *color = b->color[from[x / per] >> shift & ((1 << b->bits) - 1)];
        for (int k = 0; k < c; k++) to[k] = color[k];
    }
}

aril_tensor *aril__bmp_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    bitmap b = { .name = want->name };
    if (!read_headers(&b, data, size)) return aril__poison();
    b.channels = b.gray ? 1 : b.alpha ? 4 : 3;
    /* A byte has up to 8 pixels. */
    if (!aril__image_fits(b.name, (uint64_t)b.width, (uint64_t)b.height, (uint64_t)b.channels, size,
                          8 * 3))
        return aril__poison();
    b.stride = ((uint64_t)b.width * (uint64_t)b.bits + 31) / 32 * 4;
    if (b.pixels > size || b.stride * (uint64_t)b.height > size - b.pixels) {
        malformed(&b, "it ends before the image does");
        return aril__poison();
    }
    aril_tensor *t = aril_empty(ARIL_SHAPE(b.height, b.width, b.channels), ARIL_U8, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK) return t;
    unsigned char *to = aril__ptr(t); /* [H,W,C] */
    for (int64_t y = 0; y < b.height; y++) {
        uint64_t row = (uint64_t)(b.top_down ? y : b.height - 1 - y);
        put_row(&b, data + b.pixels + row * b.stride, to + y * b.width * b.channels);
    }
    return t;
}
