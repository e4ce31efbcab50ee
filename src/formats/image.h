/* Images in memory: interleaved pixels, [H,W,C], as in files. */
#ifndef ARIL_FORMATS_IMAGE_H
#define ARIL_FORMATS_IMAGE_H

#include "aril/formats.h"
#include "formats/bytes.h"
#include "formats/image_of.h"

/* A region of an image, in pixels of the full upright image, and the size it will be resized to (0:
 * any). */
typedef struct aril__region {
    int64_t x, y, width, height;
    int64_t to_width, to_height;
} aril__region;

/* What was decoded: the image scaled by scale_x and scale_y (at most 1), from pixel (x, y) on. */
typedef struct aril__decoded {
    double scale_x, scale_y;
    int64_t x, y;
} aril__decoded;

/* How to decode an image. */
typedef struct aril__image_want {
    aril_image_opts opts;
    const char *name; /* file name, for messages */
    /* Optional, called once the size of the upright image is known: true if only a region of it is
     * needed. The decoder may return more, and may downscale as long as the region stays at least
     * as large as the size it is resized to. */
    bool (*region)(void *ctx, int64_t width, int64_t height, aril__region *region);
    void *ctx;
    aril__decoded decoded; /* output: which part was decoded, and its scale */
} aril__image_want;

/* Decodes JPEG, PNG, BMP, PGM or PPM: u8 or u16 [H,W,C], owned by the scope; poison on failure. */
aril_tensor *aril__image_decode(const unsigned char *data, size_t size, aril__image_want *want);

/* The decoders for each format, and format detection. Their results may have other channels than
 * requested. */
bool aril__is_jpeg(const unsigned char *data, size_t size);
bool aril__is_png(const unsigned char *data, size_t size);
aril_tensor *aril__jpeg_decode(const unsigned char *data, size_t size, aril__image_want *want);
bool aril__is_bmp(const unsigned char *data, size_t size);
bool aril__is_pnm(const unsigned char *data, size_t size);
aril_tensor *aril__png_decode(const unsigned char *data, size_t size, aril__image_want *want);
aril_tensor *aril__bmp_decode(const unsigned char *data, size_t size, aril__image_want *want);
aril_tensor *aril__pnm_decode(const unsigned char *data, size_t size, aril__image_want *want);

/* Encodes an image of 1 or 3 channels and appends it to *out; quality is 1 to 100. */
aril_status aril__jpeg_encode(const aril__pixels *p, int quality, aril__bytes *out);

/* Checks that the decoded size is plausible for a file of `file` bytes, each of which expands to at
 * most `ratio` bytes; sets an error if not. */
bool aril__image_fits(const char *name, uint64_t width, uint64_t height, uint64_t pixel_bytes,
                      uint64_t file, uint64_t ratio);

#endif
