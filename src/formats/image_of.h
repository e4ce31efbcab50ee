/* Images in tensors as bytes for writing. */
#ifndef ARIL_FORMATS_IMAGE_OF_H
#define ARIL_FORMATS_IMAGE_OF_H

#include "aril/base.h"

/* A image of bytes, channels side by side: [height, width, channels]. Free `at` with free(). */
typedef struct aril__pixels {
    uint8_t *at;
    int64_t width, height;
    int channels;
} aril__pixels;

/* The image in t: [H,W], [C,H,W] or a batch [N,C,H,W], which becomes a sheet of `columns`
 * images a row (0: about as many as rows) with a white pixel between them. Floats are held
 * between 0 and 1. */
aril_status aril__pixels_of(const char *what, aril_tensor *t, int columns, aril__pixels *out);

#endif
