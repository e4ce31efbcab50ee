#include "backend/cpu/norm/local_response_norm.h"

#include "backend/cpu/norm/last.h"
#include "core/parallel.h"
#include "ops/norm/norm.h"
#include "core/vector/targets.h"
#include "core/vector/vecmath.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 4096,   /* elements processed at a time, */
    WIDE = 16384,   /* and if channels-first, where each channel is a separate piece */
    ROUND = 16,     /* elements of the longest vector */
    MIN_BLOCKS = 4, /* minimum blocks per thread */
};

/* Memory as [outer, channels, inner]; channels-last, inner is 1. */
typedef struct lrn_job {
    int64_t outer, channels, inner;
    int64_t size, before, after; /* the window, and how much of it may overlap the channels */
    double alpha, beta, k;
    aril_dtype type;
    bool staged; /* f16 and bf16, computed in f32 */
    bool last;
    const void *x, *g; /* g NULL: forward */
    void *y;
    int64_t some;                               /* positions, or pixels, per block */
    int64_t blocks, pieces;                     /* each piece has its own scratch memory */
    int64_t pad_size, block_size, scratch_size; /* elements */
    void *scratch;
} lrn_job;

typedef struct lrn_block {
    int64_t at;                  /* the first element */
    int64_t rows, row, row_step; /* in memory */
    int64_t lines, length, step; /* in scratch memory */
    int64_t width, pitch;        /* elements of a line without and with zero padding */
} lrn_block;

static int64_t rounded(int64_t n)
{
    return (n + ROUND - 1) / ROUND * ROUND;
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void shape_block(const lrn_job *j, int64_t some, lrn_block *b)
{
    b->rows = j->last ? some : j->channels;
    b->row = j->last ? j->channels : some;
    b->row_step = j->last ? j->channels : j->inner;
    b->lines = j->last ? some : 1;
    b->step = j->last ? 1 : some;
    b->length = j->channels * b->step;
    b->width = rounded(b->length);
    b->pitch = b->width + rounded((j->before + j->after) * b->step);
}

static lrn_block block_of(const lrn_job *j, int64_t i)
{
    int64_t along = j->last ? j->outer : j->inner, each = (along + j->some - 1) / j->some;
    int64_t sample = i / each, from = i % each * j->some;
    lrn_block b = { .at = j->last ? from * j->channels : sample * j->channels * j->inner + from };
    shape_block(j, min(j->some, along - from), &b);
    return b;
}

/* f64 has no vectorized pow. */
#define v_pow_f64        pow
#define v_pow_f64_avx2   pow
#define v_pow_f64_avx512 pow
#define TEMPLATE         "backend/cpu/norm/local_response_norm.inc"
#include "core/vector/each_target.inc"

/* Sizes of blocks and of scratch memory; returns the bytes of the latter for a piece. */
static size_t size_job(lrn_job *j, const aril__run *r, bool last)
{
    const struct local_response_norm_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    *j = (lrn_job){ .outer = x->dim[0],
                    .channels = x->dim[1],
                    .inner = 1,
                    .size = a->size[0],
                    .alpha = a->alpha[0],
                    .beta = a->beta[0],
                    .k = a->k[0],
                    .type = r->type,
                    .staged = r->type == ARIL_F16 || r->type == ARIL_BF16,
                    .last = last };
    for (int d = 2; d < x->ndim; d++) *(last ? &j->outer : &j->inner) *= x->dim[d];
    j->before = min(j->size / 2, j->channels - 1);
    j->after = min((j->size - 1) / 2, j->channels - 1);
    int64_t along = last ? j->outer : j->inner;
    j->some = (last ? BLOCK : WIDE) / j->channels;
    if (!last) j->some = rounded(j->some);
    j->some = min(j->some > 1 ? j->some : last ? 1 : ROUND, along);
    j->blocks = (last ? 1 : j->outer) * ((along + j->some - 1) / j->some);
    lrn_block b = { 0 };
    shape_block(j, j->some, &b);
    j->pad_size = b.lines * b.pitch;
    j->block_size = b.lines * b.width;
    j->scratch_size = j->pad_size + 4 * j->block_size + rounded(b.row);
    return (size_t)j->scratch_size * (r->type == ARIL_F64 ? sizeof(double) : sizeof(float));
}

static aril_status run_job(aril__run *r, bool last)
{
    lrn_job j;
    if (r->in[0]->numel == 0) return ARIL_OK;
    size_t each = size_job(&j, r, last);
    j.pieces = (int64_t)(r->workspace_bytes / each);
    j.x = aril__ptr(r->in[0]);
    j.g = r->n_in > 1 ? aril__ptr(r->in[1]) : NULL;
    j.y = aril__ptr(r->out[0]);
    j.scratch = r->workspace;
    aril__parallel_for(j.pieces, 1, ARIL__PICK(pieces, r->type == ARIL_F64), &j);
    return ARIL_OK;
}

static size_t scratch_for(const aril__run *r, bool last)
{
    lrn_job j;
    if (r->in[0]->numel == 0) return 0;
    size_t each = size_job(&j, r, last);
    return (size_t)aril__parallel_pieces(j.blocks, MIN_BLOCKS) * each;
}

size_t aril__cpu_local_response_norm_scratch(const aril__run *r)
{
    return scratch_for(r, false);
}

const char *aril__cpu_local_response_norm_last_prepare(const aril__run *r, aril__plan *plan)
{
    const char *why = aril__cpu_norm_last_prepare(r, plan);
    if (!why) plan->workspace = scratch_for(r, true);
    return why;
}

aril_status aril__cpu_local_response_norm(aril__run *r)
{
    return run_job(r, false);
}

aril_status aril__cpu_local_response_norm_last(aril__run *r)
{
    return run_job(r, true);
}
