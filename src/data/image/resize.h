/* Image resizing: separable filters with antialiasing, as in PIL. */
#ifndef ARIL_DATA_RESIZE_H
#define ARIL_DATA_RESIZE_H

#include "aril/transform.h"

/* An image in memory: element (c, y, x) is at data[c * plane + y * row + x * pixel]. */
typedef struct aril__pixels_view {
    const void *data;
    bool f32; /* else u8 */
    int64_t channels, height, width;
    int64_t plane, row, pixel; /* strides in elements */
} aril__pixels_view;

/* A box within an image; its borders may be fractional. */
typedef struct aril__box {
    double x, y, width, height;
} aril__box;

/* Resizes the part of `from` in the box to height x width at `to`, planar and contiguous, with the
 * same dtype. Pixels outside the box (rounded outward) have no influence. u8 results are
 * bit-identical to those of Pillow 13: two passes, rounded in between. */
aril_status aril__resize(const aril__pixels_view *from, aril__box box, int64_t height,
                         int64_t width, aril_resize_opts opts, void *to);

#endif
