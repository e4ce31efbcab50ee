/* Interpolation: attributes, and the weights of input elements. Every mode is linear and separable:
 * along a dimension each output element is a weighted sum of a few input elements. */
#ifndef ARIL_OPS_RESAMPLE_H
#define ARIL_OPS_RESAMPLE_H

#include "ops/table/op.h"

/* size: of the result; 0: derived from `scale`. A nonzero `scale` also determines the sampling
 * positions. */
#define INTERPOLATE_ATTRS(A)                          \
    A(interpolate, I64, 1, mode, 0, "mode")           \
    A(interpolate, I64, 1, align_corners, 0, NULL)    \
    A(interpolate, I64, 1, antialias, 0, "antialias") \
    A(interpolate, I64, 3, size, 0, NULL) A(interpolate, F64, 3, scale, 0, NULL)
ATTRS(interpolate, INTERPOLATE_ATTRS)

/* One of the input elements of an output element along a dimension. */
typedef struct aril__tap {
    int64_t at;    /* its offset in memory */
    int64_t pixel; /* its index */
    double weight;
} aril__tap;

/* All weights, padded to three spatial dimensions: missing ones come first, with size 1. */
typedef struct aril__taps_table {
    int64_t in[3], out[3];
    int width[3];       /* taps per output element; unused ones have weight 0 */
    aril__tap *taps[3]; /* [out][width] */
} aril__taps_table;

/* For a run that resizes x to y, or the gradient of that. `memory` holds the taps: as many bytes as
 * aril__resample_scratch says. */
void aril__resample_taps(const aril__run *r, const aril_tensor *x, const aril_tensor *y,
                         aril__taps_table *t, void *memory);
void aril__resample_widths(const aril__run *r, const aril_tensor *x, const aril_tensor *y,
                           int width[3]); /* only the number of taps */
size_t aril__resample_scratch(const aril__run *r, const aril_tensor *x, const aril_tensor *y);

#endif
