#include "backend/cpu/vision/grid_sample.h"

#include "aril/conv.h"
#include "core/parallel.h"
#include "core/vector/targets.h"
#include "ops/vision/grid_sample.h"

#include <math.h>
#include <string.h>

typedef struct job {
    aril__grid image;
    int64_t channels, points; /* points: those of the grid of one image */
    void *x, *y, *grid, *out;
} job;

enum { BATCH = 32 }; /* points looked up at a time by the general kernels */

#define TEMPLATE "backend/cpu/vision/grid_sample.inc"
#include "core/vector/each_target.inc"

enum {
    POINTS = 512, /* maximum points per block */
    SOME = 4,     /* channels processed together */
};

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#define TEMPLATE "backend/cpu/vision/grid_linear.inc"
#include "core/vector/each_target.inc"

static job describe(const aril__run *r, const aril_tensor *x, const aril_tensor *grid,
                    const aril_tensor *y)
{
    return (job){ .image = aril__grid_of(r->attrs, x),
                  .channels = x->dim[1],
                  .points = grid->dim[1] * grid->dim[2],
                  .x = aril__ptr(x),
                  .y = aril__ptr(y),
                  .grid = aril__ptr(grid),
                  .out = aril__ptr(r->out[0]) };
}

/* Bicubic sampling, and planes with more than INT32_MAX elements, use the general kernels. */
static bool is_linear(const job *j)
{
    return j->image.mode != ARIL_GRID_BICUBIC &&
           (double)j->image.h * (double)j->image.w + (double)j->image.w < INT32_MAX;
}

/* Sampling points per chunk: whole blocks, but enough chunks to keep threads busy. */
static int64_t grain_of(int64_t points)
{
    enum { CHUNKS = 8, FEW = 64 };
    int64_t grain = min(points / CHUNKS, POINTS);
    return grain > FEW ? grain : FEW;
}

/* The kernel of the job: the vectorized one where it applies. */
#define KERNEL_OF(name, j, wide) \
    (is_linear(j) ? ARIL__PICK(linear_##name, wide) : ARIL__PICK(name, wide))

aril_status aril__cpu_grid_sample(aril__run *r)
{
    job j = describe(r, r->in[0], r->in[1], r->out[0]);
    bool wide = r->type == ARIL_F64;
    int64_t n = r->in[1]->numel / 2;
    if (r->out[0]->numel) aril__parallel_for(n, grain_of(n), KERNEL_OF(sample, &j, wide), &j);
    return ARIL_OK;
}

aril_status aril__cpu_grid_sample_grad_x(aril__run *r)
{
    job j = describe(r, r->out[0], r->in[1], r->in[0]);
    bool wide = r->type == ARIL_F64;
    int64_t planes = r->out[0]->dim[0] * j.channels;
    if (r->out[0]->numel) /* points are computed again for each piece */
        aril__parallel_for(planes, (planes - 1) / aril__parallel_pieces(planes, 1) + 1,
                           KERNEL_OF(give, &j, wide), &j);
    return ARIL_OK;
}

aril_status aril__cpu_grid_sample_grad_grid(aril__run *r)
{
    job j = describe(r, r->in[1], r->in[2], r->in[0]);
    bool wide = r->type == ARIL_F64;
    int64_t n = r->in[2]->numel / 2;
    if (n) aril__parallel_for(n, grain_of(n), KERNEL_OF(steer, &j, wide), &j);
    return ARIL_OK;
}
