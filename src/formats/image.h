/* Images in memory: pixels interleaved, [H,W,C], as files have them. */
#ifndef ARIL_FORMATS_IMAGE_H
#define ARIL_FORMATS_IMAGE_H

#include "aril/formats.h"
#include "formats/bytes.h"
#include "formats/image_of.h"

/* A part of a image, in pixels of the upright whole, and the size to which it is going to be
 * resized (0: any). */
typedef struct aril__region {
    int64_t x, y, width, height;
    int64_t to_width, to_height;
} aril__region;

/* What was decoded: the image made smaller by scale_x and scale_y (at most 1), its pixels from
 * (x, y) on. */
typedef struct aril__decoded {
    double scale_x, scale_y;
    int64_t x, y;
} aril__decoded;

/* What is wanted of a image that is read. */
typedef struct aril__image_want {
    aril_image_opts opts;
    const char *name; /* of the file, for messages */
    /* Asked, where it is there, when the size of the upright image is known: true when no more
     * than a region of it is wanted. More may be given, and no more than makes the region smaller
     * than the size it is resized to. */
    bool (*region)(void *ctx, int64_t width, int64_t height, aril__region *region);
    void *ctx;
    aril__decoded decoded; /* set: which part, and how much smaller */
} aril__image_want;

/* Decodes JPEG or PNG: u8 or u16 [H,W,C], owned by the scope; poison on failure. */
aril_tensor *aril__image_decode(const unsigned char *data, size_t size, aril__image_want *want);

/* The decoders behind it, and whether the bytes are of their kind. What they give may have other
 * channels than those that are wanted. */
bool aril__is_jpeg(const unsigned char *data, size_t size);
bool aril__is_png(const unsigned char *data, size_t size);
aril_tensor *aril__jpeg_decode(const unsigned char *data, size_t size, aril__image_want *want);
aril_tensor *aril__png_decode(const unsigned char *data, size_t size, aril__image_want *want);

/* Adds the file of a image of 1 or 3 channels to *out; quality is 1 to 100. */
aril_status aril__jpeg_encode(const aril__pixels *p, int quality, aril__bytes *out);

/* The size of a image and its bytes are plausible for a file of that size, each byte of which
 * stands for at most `ratio` of them; else an error. */
bool aril__image_fits(const char *name, uint64_t width, uint64_t height, uint64_t pixel_bytes,
                      uint64_t file, uint64_t ratio);

#endif
