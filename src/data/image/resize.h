/* Resizing of images: separable filters over the pixels that fall into one, as PIL does it. */
#ifndef ARIL_DATA_RESIZE_H
#define ARIL_DATA_RESIZE_H

#include "aril/transform.h"

/* A image in memory: element (c, y, x) at data[c * plane + y * row + x * pixel]. */
typedef struct aril__pixels_view {
    const void *data;
    bool f32; /* else u8 */
    int64_t channels, height, width;
    int64_t plane, row, pixel; /* steps in elements */
} aril__pixels_view;

/* A part of a image; borders need not lie between pixels. */
typedef struct aril__box {
    double x, y, width, height;
} aril__box;

/* Resizes the part of `from` in the box to height x width at `to`, planar and dense, of the same
 * type. No pixel outside the box (rounded outward) has an influence. In u8 the bits are PIL's:
 * columns first, rounded between. */
aril_status aril__resize(const aril__pixels_view *from, aril__box box, int64_t height,
                         int64_t width, aril_resize_opts opts, void *to);

#endif
