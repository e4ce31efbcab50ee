#include "backend/cpu/norm/layer_norm.h"

#include "core/parallel.h"
#include "core/stream.h"
#include "ops/norm/norm.h"
#include "core/vector/targets.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 64,
    GRAIN = 32 * 1024,
    STAGE = 4096, /* elements of f16 and bf16 that are converted at a time */
    ROWS = 16,    /* rows whose weight gradients are summed in T */
    PARTS = 64,   /* enough partial sums for the threads of a large machine */
};

typedef struct rows_job {
    int64_t rows, n, groups, per_group, inner;
    double eps;
    const void *x, *g, *weight, *bias;
    void *y, *mean, *invstd, *dweight, *dbias; /* mean NULL: RMS norm */
    double *part;      /* [chunks of rows][part_size]: dweight, dbias, and both again in T */
    int64_t part_size; /* in doubles */
    int64_t grain;
    bool stream;         /* use streaming stores */
    aril__load_fn *load; /* of x and y, if they are f16 or bf16 */
    aril__store_fn *store;
} rows_job;

#define TEMPLATE "backend/cpu/norm/layer_norm.inc"
#include "core/vector/each_target.inc"

static int64_t grain_of(int64_t work, int64_t min)
{
    int64_t grain = GRAIN / (work > 0 ? work : 1);
    return grain > min ? grain : min;
}

/* The weight gradients are accumulated while processing the rows, in one partial sum per chunk of
 * rows or, if there are few rows, in a second pass over the channels. Chooses the chunks, and
 * returns the bytes of the partial sums: 0 for a second pass. */
static size_t cut_backward(rows_job *j, bool wide)
{
    int64_t channels = j->groups * j->per_group;
    int64_t min = (j->rows - 1) / PARTS + 1, samples = j->rows / (j->groups ? j->groups : 1);
    j->grain = grain_of(j->n, min);
    if (j->groups > 1) j->grain = (j->grain + j->groups - 1) / j->groups * j->groups;
    if (samples >= 8 && j->rows > 0 && j->grain * j->n < 4 * channels) j->grain = 4 * j->groups;
    j->part_size = (wide ? 4 : 3) * channels;
    if (samples < 8 || channels == 0) return 0;
    return (size_t)(aril__parallel_chunks(j->rows, j->grain) * j->part_size) * sizeof *j->part;
}

static void run_backward(rows_job *j, bool wide)
{
    int64_t channels = j->groups * j->per_group, samples = j->rows / (j->groups ? j->groups : 1);
    if (!cut_backward(j, wide)) j->part = NULL;
    int64_t parts = aril__parallel_chunks(j->rows, j->grain);
    aril__parallel_for(j->rows, j->grain, ARIL__PICK(backward_rows, wide), j);
    if (j->part)
        aril__parallel_for(channels, grain_of(parts * 2, BLOCK), ARIL__PICK(join_parts, wide), j);
    else
        aril__parallel_for(channels, grain_of(samples * j->inner, j->inner >= 16 ? 1 : BLOCK),
                           ARIL__PICK(backward_channels, wide), j);
}

static bool is_half(aril_dtype type)
{
    return type == ARIL_F16 || type == ARIL_BF16;
}

static void run_rows(rows_job *j, aril_dtype type)
{
    bool wide = type == ARIL_F64;
    j->stream = j->inner * j->per_group >= 256 &&
                aril__dtype_bytes(type, j->rows * j->n) >= ARIL__STREAM_STORES_FROM;
    j->load = aril__dtypes[type].load[ARIL__C_F32];
    j->store = aril__dtypes[type].store[ARIL__C_F32];
    if (j->g)
        run_backward(j, wide);
    else if (is_half(type))
        aril__parallel_for(j->rows, grain_of(j->n, 1), ARIL__PICK(half_rows, wide), j);
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

/* The elements of parameter i, 1 or 2: as f32, in the workspace, beside an input of f16 or bf16. */
static const void *parameter(const aril__run *r, int i)
{
    const aril_tensor *t = r->in[i];
    if (!t || !is_half(r->type)) return aril__ptr_or_null(t);
    if (t->dtype == ARIL_F32) return aril__ptr(t);
    float *to = (float *)r->workspace + (i == 2 && r->in[1] ? r->in[1]->numel : 0);
    aril__dtypes[t->dtype].load[ARIL__C_F32](to, aril__ptr(t), 0, 1, t->numel);
    return to;
}

/* Inputs x, weight, bias; outputs y, mean, invstd. RMS norm has neither bias nor mean: it is not
 * centered. */
static rows_job forward_of(const aril__run *r, bool centered, double eps)
{
    return (rows_job){ .eps = eps,
                       .x = aril__ptr(r->in[0]),
                       .weight = parameter(r, 1),
                       .bias = centered ? parameter(r, 2) : NULL,
                       .y = aril__ptr(r->out[0]),
                       .mean = centered ? aril__ptr(r->out[1]) : NULL,
                       .invstd = aril__ptr(r->out[centered ? 2 : 1]) };
}

/* Inputs g and x, in the op's order, then weight, mean, invstd; outputs dx, dweight, dbias. */
static rows_job backward_of(const aril__run *r, bool centered, const aril_tensor *g,
                            const aril_tensor *x)
{
    return (rows_job){ .g = aril__ptr(g),
                       .x = aril__ptr(x),
                       .weight = aril__ptr_or_null(r->in[2]),
                       .mean = centered ? aril__ptr(r->in[3]) : NULL,
                       .invstd = aril__ptr(r->in[centered ? 4 : 3]),
                       .y = aril__ptr(r->out[0]),
                       .dweight = aril__ptr(r->out[1]),
                       .dbias = centered ? aril__ptr(r->out[2]) : NULL,
                       .part = r->workspace };
}

/* Each row is the last `axes` dimensions of x. */
static aril_status run_axes(const aril__run *r, rows_job j, const aril_tensor *x, int64_t axes)
{
    rows_of_axes(&j, x, axes);
    run_rows(&j, r->type);
    return ARIL_OK;
}

/* Each row is a group of channels of a sample. */
static aril_status run_groups(const aril__run *r, rows_job j)
{
    rows_of_groups(&j, r->in[0], r->attrs);
    if (j.groups) run_rows(&j, r->type);
    return ARIL_OK;
}

aril_status aril__cpu_layer_norm(aril__run *r)
{
    const struct layer_norm_attrs *a = r->attrs;
    return run_axes(r, forward_of(r, true, a->eps[0]), r->in[0], a->axes[0]);
}

aril_status aril__cpu_layer_norm_grad(aril__run *r)
{
    const struct layer_norm_attrs *a = r->attrs;
    return run_axes(r, backward_of(r, true, r->in[0], r->in[1]), r->in[1], a->axes[0]);
}

aril_status aril__cpu_rms_norm(aril__run *r)
{
    const struct rms_norm_attrs *a = r->attrs;
    double eps = aril__rms_norm_eps(a, r->type);
    return run_axes(r, forward_of(r, false, eps), r->in[0], a->axes[0]);
}

aril_status aril__cpu_rms_norm_grad(aril__run *r)
{
    const struct rms_norm_attrs *a = r->attrs;
    return run_axes(r, backward_of(r, false, r->in[0], r->in[1]), r->in[1], a->axes[0]);
}

aril_status aril__cpu_group_norm(aril__run *r)
{
    const struct group_norm_attrs *a = r->attrs;
    return run_groups(r, forward_of(r, true, a->eps[0]));
}

aril_status aril__cpu_group_norm_grad(aril__run *r)
{
    return run_groups(r, backward_of(r, true, r->in[1], r->in[0]));
}

/* ---- memory ---- */

size_t aril__cpu_row_norm_scratch(const aril__run *r)
{
    size_t elements = 0;
    for (int i = 1; i < r->n_in && is_half(r->type); i++)
        if (r->in[i]) elements += (size_t)r->in[i]->numel;
    return elements * sizeof(float);
}

size_t aril__cpu_layer_norm_grad_scratch(const aril__run *r)
{
    rows_job j = { 0 };
    rows_of_axes(&j, r->in[1], ((const struct layer_norm_attrs *)r->attrs)->axes[0]);
    return cut_backward(&j, r->type == ARIL_F64);
}

size_t aril__cpu_rms_norm_grad_scratch(const aril__run *r)
{
    rows_job j = { 0 };
    rows_of_axes(&j, r->in[1], ((const struct rms_norm_attrs *)r->attrs)->axes[0]);
    return cut_backward(&j, r->type == ARIL_F64);
}

size_t aril__cpu_group_norm_grad_scratch(const aril__run *r)
{
    rows_job j = { 0 };
    rows_of_groups(&j, r->in[0], r->attrs);
    return j.groups ? cut_backward(&j, r->type == ARIL_F64) : 0;
}
