/* Writes PNG images. Only zlib is used; without it, files are uncompressed. */
#ifndef ARIL_FORMATS_PNG_WRITE_H
#define ARIL_FORMATS_PNG_WRITE_H

#include "formats/bytes.h"

/* Encodes an image and appends it to *out: height rows of width pixels of `channels` bytes each (1
 * gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha), rows `stride` bytes apart. */
aril_status aril__png_encode(const char *what, const uint8_t *pixels, int64_t width, int64_t height,
                             int channels, int64_t stride, aril__bytes *out);

#endif
