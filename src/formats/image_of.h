/* Converts image tensors to bytes for writing. */
#ifndef ARIL_FORMATS_IMAGE_OF_H
#define ARIL_FORMATS_IMAGE_OF_H

#include "aril/base.h"

/* A u8 image with interleaved channels: [height, width, channels]. Free `at` with free(). */
typedef struct aril__pixels {
    uint8_t *at;
    int64_t width, height;
    int channels;
} aril__pixels;

/* Converts the image in t: [H,W], [C,H,W] or a batch [N,C,H,W], which becomes a grid of `columns`
 * images per row (0: about square) with a white pixel between them. Floats are clamped to 0..1. */
aril_status aril__pixels_of(const char *what, aril_tensor *t, int columns, aril__pixels *out);

#endif
