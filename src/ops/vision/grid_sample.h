/* Sampling at the points of a grid: attributes, and what a point reads. */
#ifndef ARIL_OPS_GRID_SAMPLE_H
#define ARIL_OPS_GRID_SAMPLE_H

#include "ops/table/op.h"

#define GRID_SAMPLE_ATTRS(A)                           \
    A(grid_sample, I64, 1, mode, 0, "mode")            \
    A(grid_sample, I64, 1, padding, 0, "padding_mode") \
    A(grid_sample, I64, 1, align_corners, 0, "align_corners")
ATTRS(grid_sample, GRID_SAMPLE_ATTRS)

/* How images of h x w are sampled. */
typedef struct aril__grid {
    int64_t h, w;
    int mode, padding;
    bool align;
} aril__grid;

static inline aril__grid aril__grid_of(const struct grid_sample_attrs *a, const aril_tensor *x)
{
    return (aril__grid){ .h = x->dim[2],
                         .w = x->dim[3],
                         .mode = (int)a->mode[0],
                         .padding = (int)a->padding[0],
                         .align = a->align_corners[0] };
}

/* What a sampling point reads: elements of an image, their weights, and the weights' derivatives by
 * the coordinates. */
typedef struct aril__grid_point {
    int n;
    int64_t at[16];
    double weight[16], dx[16], dy[16];
} aril__grid_point;

void aril__grid_look_up(const aril__grid *grid, double gx, double gy, aril__grid_point *p);

#endif
