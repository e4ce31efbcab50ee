#include "backend/cpu/norm/group_norm_last.h"

#include "backend/cpu/norm/last.h"
#include "core/parallel.h"
#include "core/stream.h"
#include "core/vector/targets.h"
#include "ops/norm/norm.h"

#include <math.h>
#include <string.h>

enum {
    COLS = 512,        /* maximum columns of a tile */
    TILE = 2048,       /* elements of a tile: they stay in L1 */
    TOGETHER = 16,     /* rows that are summed in T */
    NARROW = 128,      /* fewer channels: several pixels are processed as one row */
    GRAIN = 32 * 1024, /* elements of a chunk */
    ALONE = 4 * GRAIN, /* smaller samples are not split */
    FAR = 64,          /* a pivot so many variances away costs too many digits */
};

/* One run: x and y are [samples, pixels, channels]. */
typedef struct last_job {
    int64_t samples, pixels, channels, groups;
    int64_t size; /* of a sample */
    double eps;
    const void *x;
    void *y, *mean, *invstd;
    aril__load_fn *load; /* between the dtype of x and y, and T */
    aril__store_fn *store;
    size_t bytes;                /* of an element of x */
    bool direct, stream;         /* x and y are of type T; streaming stores */
    int64_t width, per, chunks;  /* elements of a row, and of a chunk; chunks of a sample */
    int64_t now;                 /* the sample that is being split */
    const double *weight, *bias; /* [channels] */
    double *parts;   /* [samples][chunks][2][channels]: sums of x - pivot, and squares */
    void *constants; /* [samples][3][width] of T: y = (x - c0) * c1 + c2 */
} last_job;

#define TEMPLATE "backend/cpu/norm/group_norm_last.inc"
#include "core/vector/each_target.inc"

/* Sets sizes; returns the bytes of the workspace. */
static size_t size_job(last_job *j, const aril__run *r)
{
    const aril_tensor *x = r->in[0];
    j->samples = x->dim[0];
    j->channels = x->dim[1];
    j->pixels = aril__count(x->ndim - 2, x->dim + 2);
    j->groups = aril__groups_of(r->attrs, x);
    j->size = j->pixels * j->channels;
    int64_t together = j->channels < NARROW ? (NARROW - 1) / j->channels + 1 : 1;
    j->width = j->channels * (together < j->pixels ? together : j->pixels);
    j->per = (GRAIN / j->width + 4) / 4 * 4 * j->width;
    j->chunks = aril__parallel_chunks(j->size, j->per);
    size_t size = r->type == ARIL_F64 ? sizeof(double) : sizeof(float);
    return (size_t)(2 * j->channels * (1 + j->samples * j->chunks)) * sizeof(double) +
           (size_t)(3 * j->width * j->samples) * size;
}

const char *aril__cpu_group_norm_last_prepare(const aril__run *r, aril__plan *plan)
{
    last_job j;
    const char *why = aril__cpu_norm_last_prepare(r, plan);
    if (!why) plan->workspace = size_job(&j, r);
    return why;
}

static double *read_channels(const aril_tensor *t, double *to, int64_t n, double absent)
{
    if (t)
        aril__dtypes[t->dtype].load[ARIL__C_F64](to, aril__ptr(t), 0, 1, n);
    else
        for (int64_t i = 0; i < n; i++) to[i] = absent;
    return to;
}

aril_status aril__cpu_group_norm_last(aril__run *r)
{
    const struct group_norm_attrs *a = r->attrs;
    const aril__dtype_row *row = &aril__dtypes[r->type];
    bool wide = r->type == ARIL_F64;
    aril__ctype via = wide ? ARIL__C_F64 : ARIL__C_F32;
    last_job j = { .eps = a->eps[0],
                   .x = aril__ptr(r->in[0]),
                   .y = aril__ptr(r->out[0]),
                   .mean = aril__ptr(r->out[1]),
                   .invstd = aril__ptr(r->out[2]),
                   .load = row->load[via],
                   .store = row->store[via],
                   .bytes = row->bits / 8,
                   .direct = r->type == ARIL_F32 || wide };
    size_job(&j, r);
    j.stream = aril__dtype_bytes(r->type, r->in[0]->numel) >= ARIL__STREAM_COPIES_FROM;
    double *at = r->workspace;
    j.weight = read_channels(r->in[1], at, j.channels, 1);
    j.bias = read_channels(r->in[2], at += j.channels, j.channels, 0);
    j.parts = at += j.channels;
    j.constants = at + 2 * j.samples * j.chunks * j.channels;
    if (j.size <= ALONE) {
        aril__parallel_for(j.samples, GRAIN / j.size, ARIL__PICK(last_samples, wide), &j);
        return ARIL_OK;
    }
    for (j.now = 0; j.now < j.samples; j.now++) {
        aril__parallel_for(j.chunks, 1, ARIL__PICK(last_stats, wide), &j);
        aril__parallel_for(j.groups, j.groups, ARIL__PICK(last_join, wide), &j);
        aril__parallel_for(j.chunks, 1, ARIL__PICK(last_apply, wide), &j);
    }
    return ARIL_OK;
}
