#include "backend/cpu/norm/batch_norm.h"

#include "backend/cpu/norm/last.h"
#include "core/parallel.h"
#include "core/stream.h"
#include "backend/activation.h"
#include "ops/norm/norm.h"
#include "core/vector/targets.h"

#include <math.h>
#include <string.h>

enum {
    TILE = 2048,           /* elements processed at a time */
    WIDE = 512,            /* maximum columns per unit of work */
    NARROW = 64,           /* rows with fewer columns are processed several at a time */
    MIN_UNIT = 16 * 1024,  /* minimum elements per unit, if there are that many */
    MAX_UNIT = 512 * 1024, /* and maximum: its sums are not in double */
    UNITS = 64,
};

enum { FORWARD, EVAL, BACKWARD };
enum { STATS, APPLY, SUMS, BACK };

/* One run. Large tensors share one dtype and are packed as [outer, channels, inner]; channels-last
 * means inner = 1. Per-channel tensors are contiguous, of any dtype; NULL if absent. */
typedef struct bn_job {
    void *scratch;   /* what scratch_for says */
    aril_dtype type; /* of the large tensors */
    int64_t outer, channels, inner;
    int64_t act;
    double eps;
    double factor;        /* weight of the batch statistics in the running values */
    const void *x;        /* [outer, channels, inner] */
    int64_t pitch;        /* eval: elements between pixels of x, if there are gaps; 0: none */
    const void *residual; /* same layout, or NULL */
    void *out;            /* y, or dx; y may be x */
    const void *g;        /* backward: the gradient of y */
    const void *y;        /* backward, with an activation: y, or NULL for relu: recomputed from x */
    void *dresidual;      /* backward: the gradient before the activation, or NULL */
    const aril_tensor *weight, *bias;
    aril_tensor *mean;   /* forward: result; eval and backward: input */
    aril_tensor *invstd; /* 1 / sqrt(var + eps), like the mean; eval: the variance */
    aril_tensor *running_mean, *running_var, *dweight, *dbias;
} bn_job;

/* The working state of a run. Arrays of double have one value per channel; those of T one per
 * column of a row. */
typedef struct work {
    const bn_job *j;
    int kind, pass;
    bool wide, staged;
    bool direct;    /* compute results directly in the output */
    bool streams;   /* ... or with streaming stores */
    bool by_x;      /* relu's derivative is recomputed from x */
    bool by_y;      /* the activation's derivative is computed from y */
    bool backwards; /* process units in reverse */
    int64_t count;  /* elements per channel */
    /* pixels x channels */
    int64_t rows, width;                /* a row may hold several pixels */
    int64_t rest;                       /* elements of the last row, if it is shorter */
    int64_t per, chunks, blocks, units; /* rows per chunk; chunks and blocks of columns */
    int64_t part_size;
    void *parts; /* [chunks][part_size] of T: partial results */
    double *column[2];
    /* constants and results per channel */
    double *weight, *bias, *mean, *invstd, *squares, *sum, *dot;
    void *m, *a, *b, *e, *f;
} work;

/* Some rows of some columns; `at` is the first element. */
typedef struct tile {
    int64_t at, rows, width, column;
} tile;

#define TEMPLATE "backend/cpu/norm/batch_norm.inc"
#include "core/vector/each_target.inc"

#define RUN(w, fn) ARIL__PICK(fn, (w)->wide)

/* ---- memory and parameters ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void *cut(char **at, size_t bytes)
{
    void *p = *at;
    *at += bytes;
    return p;
}

static void read_channels(const aril_tensor *t, double *to, int64_t n, double initial)
{
    if (t)
        aril__dtypes[t->dtype].load[ARIL__C_F64](to, aril__ptr(t), 0, 1, n);
    else
        for (int64_t i = 0; i < n; i++) to[i] = initial;
}

static void write_channels(aril_tensor *t, const double *from, int64_t n)
{
    if (t) aril__dtypes[t->dtype].store[ARIL__C_F64](aril__ptr(t), 0, 1, from, n);
}

/* Splits rows of channels into units, by size alone. */
static void cut_rows(work *w)
{
    const bn_job *j = w->j;
    int64_t total = j->outer * j->channels, some = 1;
    if (j->channels < NARROW && j->outer > 1 && !j->pitch)
        some = (NARROW + j->channels - 1) / j->channels;
    if (some > j->outer && j->outer > 0) some = j->outer;
    w->width = some * j->channels;
    w->rows = (j->outer + some - 1) / some;
    w->rest = total % w->width;
    w->blocks = (w->width + WIDE - 1) / WIDE;
    int64_t size = total / UNITS, columns = w->width < WIDE ? w->width : WIDE;
    size = size < MIN_UNIT ? MIN_UNIT : size > MAX_UNIT ? MAX_UNIT : size;
    w->per = (size / columns + 3) / 4 * 4;
    w->chunks = (w->rows + w->per - 1) / w->per;
    w->units = w->chunks * w->blocks;
    w->part_size = 3 * w->width;
}

/* How rows are cut, and the sizes in bytes of the parts of the scratch memory. */
typedef struct sizes {
    size_t doubles, columns, constants, parts;
} sizes;

static sizes size_work(work *w, const bn_job *j, int kind)
{
    *w = (work){ .j = j, .kind = kind, .wide = j->type == ARIL_F64 };
    size_t size = w->wide ? sizeof(double) : sizeof(float);
    bool rows = j->inner == 1;
    if (rows) cut_rows(w);
    int64_t c = j->channels, width = w->width > c ? w->width : c;
    return (sizes){ .doubles = rounded((size_t)c * sizeof(double)),
                    .columns = rounded((size_t)width * sizeof(double)),
                    .constants = rounded((size_t)width * size),
                    .parts = rows && kind != EVAL ? (size_t)(w->chunks * w->part_size) * size : 0 };
}

static void begin(work *w, const bn_job *j, int kind)
{
    sizes n = size_work(w, j, kind);
    const aril__dtype_row *row = &aril__dtypes[j->type];
    size_t large = (size_t)(j->outer * j->channels * j->inner) * (row->bits / 8);
    w->staged = j->type == ARIL_F16 || j->type == ARIL_BF16;
    w->count = j->outer * j->inner;
    w->streams = large >= ARIL__STREAM_COPIES_FROM && j->out != j->x;
    w->direct = !w->staged && !w->streams && j->out != j->x;
    if (kind == BACKWARD) {
        w->by_y = j->y != NULL;
        w->by_x = j->act == ARIL_RELU && !j->y;
    }
    int64_t c = j->channels;
    char *at = j->scratch;
    double **of[] = { &w->weight, &w->bias, &w->mean, &w->invstd, &w->squares, &w->sum, &w->dot };
    for (int i = 0; i < 7; i++) *of[i] = cut(&at, n.doubles);
    for (int i = 0; i < 2; i++) w->column[i] = cut(&at, n.columns);
    void **constants[] = { &w->m, &w->a, &w->b, &w->e, &w->f };
    for (int i = 0; i < 5; i++) *constants[i] = cut(&at, n.constants);
    if (n.parts) w->parts = at;
    read_channels(j->weight, w->weight, c, 1);
    read_channels(j->bias, w->bias, c, 0);
    if (kind == FORWARD) {
        read_channels(NULL, w->mean, c, 0);
        read_channels(NULL, w->squares, c, 0);
    } else {
        read_channels(j->mean, w->mean, c, 0);
        read_channels(j->invstd, w->invstd, c, 1);
    }
}

/* ---- passes ---- */

static void walk_rows(work *w, int pass, bool backwards)
{
    w->pass = pass;
    w->backwards = backwards;
    aril__parallel_for(w->units, 1, RUN(w, rows_range), w);
}

/* Sums the columns that belong to one channel: the j-th of each pixel in a row. */
static void join_columns(const work *w, aril__range_fn *fn)
{
    enum { TOGETHER = 128 };
    aril__parallel_for(w->width, w->chunks > 8 ? TOGETHER : w->width, fn, (void *)(uintptr_t)w);
}

static void fold_stats(const work *w)
{
    int64_t c = w->j->channels;
    const double *mean = w->column[0], *squares = w->column[1];
    if (w->width == c) {
        memcpy(w->mean, mean, (size_t)c * sizeof *mean);
        memcpy(w->squares, squares, (size_t)c * sizeof *mean);
        return;
    }
    for (int64_t i = 0; i < w->width; i++)
        w->mean[i % c] += mean[i] * (double)(w->rows - (w->rest && i >= w->rest));
    for (int64_t i = 0; i < c; i++) w->mean[i] /= (double)w->count;
    for (int64_t i = 0; i < w->width; i++) {
        double n = (double)(w->rows - (w->rest && i >= w->rest)), d = mean[i] - w->mean[i % c];
        w->squares[i % c] += squares[i] + n * d * d;
    }
}

static void fold_sums(const work *w)
{
    int64_t c = w->j->channels;
    for (int64_t i = 0; i < c; i++) w->sum[i] = w->dot[i] = 0;
    for (int64_t i = 0; i < w->width; i++) {
        w->sum[i % c] += w->column[0][i];
        w->dot[i % c] += w->column[1][i];
    }
}

static void repeat(const work *w, int n)
{
    void *constants[] = { w->m, w->a, w->b, w->e, w->f };
    for (int i = n == 3 ? 0 : 3; i < n; i++) RUN(w, repeat)(w, constants[i]);
}

static int64_t channel_grain(const work *w)
{
    return w->count >= MIN_UNIT ? 1 : MIN_UNIT / (w->count > 0 ? w->count : 1);
}

/* Updates the running values, which use the unbiased variance. */
static void update_running(const work *w)
{
    const bn_job *j = w->j;
    double *to = w->sum, n = (double)w->count, k = j->factor;
    if (w->count && j->running_mean) {
        read_channels(j->running_mean, to, j->channels, 0);
        for (int64_t c = 0; c < j->channels; c++) to[c] = (1 - k) * to[c] + k * w->mean[c];
        write_channels(j->running_mean, to, j->channels);
    }
    if (w->count && j->running_var) {
        read_channels(j->running_var, to, j->channels, 0);
        for (int64_t c = 0; c < j->channels; c++)
            to[c] = (1 - k) * to[c] + k * (w->squares[c] / (n - 1));
        write_channels(j->running_var, to, j->channels);
    }
}

/* Normalizes with the statistics of x, which are results. */
static aril_status bn_forward(const bn_job *j)
{
    work w;
    if (j->channels == 0) return ARIL_OK;
    begin(&w, j, FORWARD);
    if (j->inner != 1) {
        aril__parallel_for(j->channels, channel_grain(&w), RUN(&w, channels_range), &w);
    } else {
        if (w.count) {
            walk_rows(&w, STATS, true);
            join_columns(&w, RUN(&w, join_stats));
            fold_stats(&w);
        }
        RUN(&w, settle)(&w, 0, j->channels);
        repeat(&w, 3);
        walk_rows(&w, APPLY, false);
    }
    update_running(&w);
    write_channels(j->mean, w.mean, j->channels);
    write_channels(j->invstd, w.invstd, j->channels);
    return ARIL_OK;
}

/* Normalizes with given statistics. */
static aril_status bn_eval(const bn_job *j)
{
    work w;
    if (j->channels == 0) return ARIL_OK;
    begin(&w, j, EVAL);
    RUN(&w, settle)(&w, 0, j->channels);
    if (j->inner != 1) {
        w.units = j->outer * j->channels;
        w.backwards = true;
        aril__parallel_for(w.units, j->inner >= MIN_UNIT ? 1 : MIN_UNIT / (j->inner + 1) + 1,
                           RUN(&w, runs_range), &w);
    } else {
        repeat(&w, 3);
        walk_rows(&w, APPLY, true);
    }
    return ARIL_OK;
}

/* The gradient of bn_forward. */
static aril_status bn_backward(const bn_job *j)
{
    work w;
    if (j->channels == 0) return ARIL_OK;
    begin(&w, j, BACKWARD);
    RUN(&w, settle)(&w, 0, j->channels);
    if (j->inner != 1) {
        aril__parallel_for(j->channels, channel_grain(&w), RUN(&w, channels_range), &w);
    } else {
        repeat(&w, 3);
        walk_rows(&w, SUMS, true);
        join_columns(&w, RUN(&w, join_sums));
        fold_sums(&w);
        RUN(&w, settle_back)(&w, 0, j->channels);
        repeat(&w, 5);
        walk_rows(&w, BACK, false);
    }
    write_channels(j->dweight, w.dot, j->channels);
    write_channels(j->dbias, w.sum, j->channels);
    return ARIL_OK;
}

/* ---- rows ---- */

/* The elements from pixel to pixel of a slice of the channels of a channels-last tensor; 0: it is
 * none. */
static int64_t pitch_of(const aril_tensor *x)
{
    if (x->ndim < 3 || x->dim[1] < 2 || x->stride[1] != 1) return 0;
    int64_t pitch = 0, pixels = 1;
    for (int i = 1; i < x->ndim; i++) {
        int d = i < x->ndim - 1 ? x->ndim - i : 0;
        if (x->dim[d] == 1) continue;
        if (!pitch) pitch = x->stride[d];
        if (x->stride[d] != pitch * pixels) return 0;
        pixels *= x->dim[d];
    }
    return pitch > x->dim[1] ? pitch : 0;
}

/* A tensor's memory as [outer, channels, inner]; `last` if it is channels-last. */
static bn_job shape_of(const aril__run *r, bool last)
{
    const aril_tensor *x = r->in[0];
    bn_job j = { .type = r->type, .outer = x->dim[0], .channels = x->dim[1], .inner = 1 };
    for (int d = 2; d < x->ndim; d++)
        if (last)
            j.outer *= x->dim[d];
        else
            j.inner *= x->dim[d];
    if (last && !aril_is_channels_last(x)) j.pitch = pitch_of(x);
    return j;
}

static bn_job job_of(const aril__run *r, bool last)
{
    bn_job j = shape_of(r, last);
    j.x = aril__ptr(r->in[0]);
    j.out = aril__ptr(r->out[0]);
    j.scratch = r->workspace;
    return j;
}

static size_t scratch_for(const aril__run *r, bool last)
{
    bn_job j = shape_of(r, last);
    if (j.channels == 0) return 0;
    work w;
    sizes n = size_work(&w, &j,
                        r->op == &aril__op_batch_norm        ? FORWARD
                        : r->op == &aril__op_batch_norm_eval ? EVAL
                                                             : BACKWARD);
    return 7 * n.doubles + 2 * n.columns + 5 * n.constants + n.parts;
}

size_t aril__cpu_batch_norm_scratch(const aril__run *r)
{
    return scratch_for(r, false);
}

const char *aril__cpu_batch_norm_last_prepare(const aril__run *r, aril__plan *plan)
{
    const char *why = aril__cpu_norm_last_prepare(r, plan);
    if (!why) plan->workspace = scratch_for(r, true);
    return why;
}

/* In f32 and f64, x may be a slice of the channels of another tensor. */
const char *aril__cpu_batch_norm_eval_last_prepare(const aril__run *r, aril__plan *plan)
{
    const aril_tensor *x = r->in[0];
    bool part = r->type == ARIL_F32 || r->type == ARIL_F64;
    if (!part || x->numel == 0 || x->dtype != r->type || r->in[5] || !pitch_of(x))
        return aril__cpu_batch_norm_last_prepare(r, plan);
    for (int i = 1; i < r->n_in; i++) {
        if (!r->in[i]) continue;
        if (!aril__is_dense(r->in[i])) return "channels that are not contiguous";
        plan->in[i].order = ARIL_ORDER_CONTIGUOUS;
    }
    plan->out[0].order = ARIL_ORDER_CHANNELS_LAST;
    plan->workspace = scratch_for(r, true);
    return NULL;
}

static aril_status forward_run(aril__run *r, bool last)
{
    const struct batch_norm_attrs *a = r->attrs;
    bn_job j = job_of(r, last);
    j.act = a->activation[0];
    j.eps = a->eps[0];
    j.factor = a->momentum[0];
    j.weight = r->in[1];
    j.bias = r->in[2];
    j.residual = aril__ptr_or_null(r->in[6]);
    j.mean = r->out[1];
    j.invstd = r->out[2];
    j.running_mean = r->out[3];
    j.running_var = r->out[4];
    int64_t *batches = r->out[5] ? aril__ptr(r->out[5]) : NULL;
    if (batches) ++*batches;
    if (a->cumulative[0] && batches) j.factor = 1 / (double)*batches;
    return bn_forward(&j);
}

static aril_status eval_run(aril__run *r, bool last)
{
    const struct batch_norm_eval_attrs *a = r->attrs;
    bn_job j = job_of(r, last);
    j.act = a->activation[0];
    j.eps = a->eps[0];
    j.weight = r->in[1];
    j.bias = r->in[2];
    j.mean = r->in[3];
    j.invstd = r->in[4];
    j.residual = aril__ptr_or_null(r->in[5]);
    return bn_eval(&j);
}

static aril_status grad_run(aril__run *r, bool last)
{
    const struct batch_norm_grad_attrs *a = r->attrs;
    bn_job j = job_of(r, last);
    j.act = a->activation[0];
    j.g = aril__ptr(r->in[1]);
    j.weight = r->in[2];
    j.mean = r->in[3];
    j.invstd = r->in[4];
    j.y = j.act ? aril__ptr_or_null(r->in[5]) : NULL;
    j.bias = r->in[6];
    j.dweight = r->out[1];
    j.dbias = r->out[2];
    j.dresidual = a->residual[0] ? aril__ptr(r->out[3]) : NULL;
    return bn_backward(&j);
}

aril_status aril__cpu_batch_norm(aril__run *r)
{
    return forward_run(r, false);
}

aril_status aril__cpu_batch_norm_eval(aril__run *r)
{
    return eval_run(r, false);
}

aril_status aril__cpu_batch_norm_grad(aril__run *r)
{
    return grad_run(r, false);
}

aril_status aril__cpu_batch_norm_last(aril__run *r)
{
    return forward_run(r, true);
}

aril_status aril__cpu_batch_norm_eval_last(aril__run *r)
{
    return eval_run(r, true);
}

aril_status aril__cpu_batch_norm_grad_last(aril__run *r)
{
    return grad_run(r, true);
}
