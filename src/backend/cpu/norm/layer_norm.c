#include "backend/cpu/norm/layer_norm.h"

#include "core/parallel.h"
#include "core/stream.h"
#include "ops/norm/norm.h"
#include "core/vector/targets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 64,
    GRAIN = 32 * 1024,
    ROWS = 16,  /* rows whose weight gradients are summed in T */
    PARTS = 64, /* enough partial sums for the threads of a large machine */
};

typedef struct rows_job {
    int64_t rows, n, groups, per_group, inner;
    double eps;
    const void *x, *g, *weight, *bias;
    void *y, *mean, *invstd, *dweight, *dbias; /* mean NULL: RMS norm */
    double *part;      /* [chunks of rows][part_size]: dweight, dbias, and both again in T */
    int64_t part_size; /* in doubles */
    int64_t grain;
    bool stream; /* use streaming stores */
} rows_job;

#define TEMPLATE "backend/cpu/norm/layer_norm.inc"
#include "core/vector/each_target.inc"

static int64_t grain_of(int64_t work, int64_t min)
{
    int64_t grain = GRAIN / (work > 0 ? work : 1);
    return grain > min ? grain : min;
}

/* Accumulates the weight gradients while processing the rows, in one partial sum per chunk of rows.
 * Falls back to a second pass over the channels if there are few rows or memory is out. */
static void run_backward(rows_job *j, bool wide)
{
    int64_t channels = j->groups * j->per_group;
    int64_t min = (j->rows - 1) / PARTS + 1, samples = j->rows / (j->groups ? j->groups : 1);
    j->grain = grain_of(j->n, min);
    if (j->groups > 1) j->grain = (j->grain + j->groups - 1) / j->groups * j->groups;
    if (samples >= 8 && j->rows > 0 && j->grain * j->n < 4 * channels) j->grain = 4 * j->groups;
    int64_t parts = aril__parallel_chunks(j->rows, j->grain);
    j->part_size = (wide ? 4 : 3) * channels;
    if (samples >= 8 && channels > 0)
        j->part = aril__malloc((size_t)(parts * j->part_size) * sizeof *j->part);
    aril__parallel_for(j->rows, j->grain, ARIL__PICK(backward_rows, wide), j);
    if (j->part)
        aril__parallel_for(channels, grain_of(parts * 2, BLOCK), ARIL__PICK(join_parts, wide), j);
    else
        aril__parallel_for(channels, grain_of(samples * j->inner, j->inner >= 16 ? 1 : BLOCK),
                           ARIL__PICK(backward_channels, wide), j);
    free(j->part);
}

static void run_rows(rows_job *j, aril_dtype type)
{
    bool wide = type == ARIL_F64;
    j->stream = j->inner * j->per_group >= 256 &&
                aril__dtype_bytes(type, j->rows * j->n) >= ARIL__STREAM_STORES_FROM;
    if (j->g)
        run_backward(j, wide);
    else
        aril__parallel_for(j->rows, grain_of(j->n, 1), ARIL__PICK(forward_rows, wide), j);
}

/* Flattens the last `axes` dimensions to one row. */
static void rows_of_axes(rows_job *j, const aril_tensor *x, int64_t axes)
{
    j->rows = j->n = j->groups = j->inner = 1;
    for (int d = 0; d < x->ndim; d++) *(d < x->ndim - axes ? &j->rows : &j->n) *= x->dim[d];
    j->per_group = j->n;
}

static void rows_of_groups(rows_job *j, const aril_tensor *x, const struct group_norm_attrs *a)
{
    j->groups = aril__groups_of(a, x);
    j->per_group = j->groups ? x->dim[1] / j->groups : 0;
    j->rows = x->dim[0] * j->groups;
    j->inner = 1;
    for (int d = 2; d < x->ndim; d++) j->inner *= x->dim[d];
    j->n = j->per_group * j->inner;
}

/* ---- rows ---- */

aril_status aril__cpu_layer_norm(aril__run *r)
{
    const struct layer_norm_attrs *a = r->attrs;
    rows_job j = { .eps = a->eps[0],
                   .x = aril__ptr(r->in[0]),
                   .weight = aril__ptr_or_null(r->in[1]),
                   .bias = aril__ptr_or_null(r->in[2]),
                   .y = aril__ptr(r->out[0]),
                   .mean = aril__ptr(r->out[1]),
                   .invstd = aril__ptr(r->out[2]) };
    rows_of_axes(&j, r->in[0], a->axes[0]);
    run_rows(&j, r->type);
    return ARIL_OK;
}

aril_status aril__cpu_layer_norm_grad(aril__run *r)
{
    rows_job j = { .g = aril__ptr(r->in[0]),
                   .x = aril__ptr(r->in[1]),
                   .weight = aril__ptr_or_null(r->in[2]),
                   .mean = aril__ptr(r->in[3]),
                   .invstd = aril__ptr(r->in[4]),
                   .y = aril__ptr(r->out[0]),
                   .dweight = aril__ptr(r->out[1]),
                   .dbias = aril__ptr(r->out[2]) };
    rows_of_axes(&j, r->in[1], ((const struct layer_norm_attrs *)r->attrs)->axes[0]);
    run_rows(&j, r->type);
    return ARIL_OK;
}

aril_status aril__cpu_rms_norm(aril__run *r)
{
    const struct rms_norm_attrs *a = r->attrs;
    rows_job j = { .eps = aril__rms_norm_eps(a, r->type),
                   .x = aril__ptr(r->in[0]),
                   .weight = aril__ptr_or_null(r->in[1]),
                   .y = aril__ptr(r->out[0]),
                   .invstd = aril__ptr(r->out[1]) };
    rows_of_axes(&j, r->in[0], a->axes[0]);
    run_rows(&j, r->type);
    return ARIL_OK;
}

aril_status aril__cpu_rms_norm_grad(aril__run *r)
{
    rows_job j = { .g = aril__ptr(r->in[0]),
                   .x = aril__ptr(r->in[1]),
                   .weight = aril__ptr_or_null(r->in[2]),
                   .invstd = aril__ptr(r->in[3]),
                   .y = aril__ptr(r->out[0]),
                   .dweight = aril__ptr(r->out[1]) };
    rows_of_axes(&j, r->in[1], ((const struct rms_norm_attrs *)r->attrs)->axes[0]);
    run_rows(&j, r->type);
    return ARIL_OK;
}

aril_status aril__cpu_group_norm(aril__run *r)
{
    const struct group_norm_attrs *a = r->attrs;
    rows_job j = { .eps = a->eps[0],
                   .x = aril__ptr(r->in[0]),
                   .weight = aril__ptr_or_null(r->in[1]),
                   .bias = aril__ptr_or_null(r->in[2]),
                   .y = aril__ptr(r->out[0]),
                   .mean = aril__ptr(r->out[1]),
                   .invstd = aril__ptr(r->out[2]) };
    rows_of_groups(&j, r->in[0], a);
    if (j.groups) run_rows(&j, r->type);
    return ARIL_OK;
}

aril_status aril__cpu_group_norm_grad(aril__run *r)
{
    rows_job j = { .x = aril__ptr(r->in[0]),
                   .g = aril__ptr(r->in[1]),
                   .weight = aril__ptr_or_null(r->in[2]),
                   .mean = aril__ptr(r->in[3]),
                   .invstd = aril__ptr(r->in[4]),
                   .y = aril__ptr(r->out[0]),
                   .dweight = aril__ptr(r->out[1]),
                   .dbias = aril__ptr(r->out[2]) };
    rows_of_groups(&j, r->in[0], r->attrs);
    if (j.groups) run_rows(&j, r->type);
    return ARIL_OK;
}
