/* Local response normalization: scales each element by the squares of adjacent channels. */
#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/norm/norm.h"
#include "ops/vision/pool.h"
#include "ops/table/sample.h"
#include "ops/vector/targets.h"
#include "ops/vector/vecmath.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- kernels ---- */

enum {
    BLOCK = 4096, /* elements processed at a time, */
    WIDE = 16384, /* and if channels-first, where each channel is a separate piece */
    ROUND = 16,   /* elements of the longest vector */
    LEAST = 4,    /* minimum blocks per thread */
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
    int64_t room, pitch;         /* elements of a line without and with zero padding */
} lrn_block;

static int64_t rounded(int64_t n)
{
    return (n + ROUND - 1) / ROUND * ROUND;
}

static int64_t least(int64_t a, int64_t b)
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
    b->room = rounded(b->length);
    b->pitch = b->room + rounded((j->before + j->after) * b->step);
}

static lrn_block block_of(const lrn_job *j, int64_t i)
{
    int64_t along = j->last ? j->outer : j->inner, each = (along + j->some - 1) / j->some;
    int64_t sample = i / each, from = i % each * j->some;
    lrn_block b = { .at = j->last ? from * j->channels : sample * j->channels * j->inner + from };
    shape_block(j, least(j->some, along - from), &b);
    return b;
}

/* f64 has no vectorized pow. */
#define v_pow_f64        pow
#define v_pow_f64_avx2   pow
#define v_pow_f64_avx512 pow
#define TEMPLATE         "ops/norm/local_response_norm.inc"
#include "ops/vector/each_target.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_local_response_norm;

static aril_status run_job(aril__run *r, bool last)
{
    const struct local_response_norm_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    lrn_job j = { .outer = x->dim[0],
                  .channels = x->dim[1],
                  .inner = 1,
                  .size = a->size[0],
                  .alpha = a->alpha[0],
                  .beta = a->beta[0],
                  .k = a->k[0],
                  .type = r->type,
                  .staged = r->type == ARIL_F16 || r->type == ARIL_BF16,
                  .last = last,
                  .x = aril__ptr(x),
                  .g = r->n_in > 1 ? aril__ptr(r->in[1]) : NULL,
                  .y = aril__ptr(r->out[0]) };
    if (x->numel == 0) return ARIL_OK;
    for (int d = 2; d < x->ndim; d++) *(last ? &j.outer : &j.inner) *= x->dim[d];
    j.before = least(j.size / 2, j.channels - 1);
    j.after = least((j.size - 1) / 2, j.channels - 1);
    int64_t along = last ? j.outer : j.inner;
    j.some = (last ? BLOCK : WIDE) / j.channels;
    if (!last) j.some = rounded(j.some);
    j.some = least(j.some > 1 ? j.some : last ? 1 : ROUND, along);
    j.blocks = (last ? 1 : j.outer) * ((along + j.some - 1) / j.some);
    j.pieces = aril__parallel_pieces(j.blocks, LEAST);
    lrn_block b = { 0 };
    shape_block(&j, j.some, &b);
    j.pad_size = b.lines * b.pitch;
    j.block_size = b.lines * b.room;
    j.scratch_size = j.pad_size + 4 * j.block_size + rounded(b.row);
    size_t each = r->type == ARIL_F64 ? sizeof(double) : sizeof(float);
    size_t bytes = (size_t)(j.pieces * j.scratch_size) * each;
    j.scratch = aril__device_alloc(r->device, bytes);
    if (!j.scratch) return ARIL_ERR_MEMORY;
    aril__parallel_for(j.pieces, 1, ARIL__PICK(pieces, r->type == ARIL_F64), &j);
    aril__device_free(r->device, j.scratch, bytes);
    return ARIL_OK;
}

static aril_status local_response_norm_ref(aril__run *r)
{
    return run_job(r, false);
}

aril_status aril__local_response_norm_last(aril__run *r)
{
    return aril__norm_last_run(r, run_job);
}

/* ---- decomposition into other ops ---- */

static bool is_empty(const aril_tensor *x)
{
    for (int d = 0; d < x->ndim; d++)
        if (x->dim[d] == 0) return true;
    return false;
}

/* The mean over adjacent channels is a pooling with a window along them. */
static aril_tensor *mean_near(aril_tensor *x, int64_t size, int64_t before, int64_t after)
{
    if (x->ndim < 3 || is_empty(x)) return x; /* poison, or an empty input */
    struct pool_attrs a = { .kernel = { size, 1, 1 },
                            .stride = { 1, 1, 1 },
                            .pad = { before, after },
                            .dilation = { 1, 1, 1 },
                            .include_pad = { 1 },
                            .divisor = { size } };
    aril_tensor *flat = x->ndim > 4 ? aril_flatten(x, 3, -1) : x;
    return aril__reshape_like(aril__op_with(&a, &aril__op_avg_pool, aril_unsqueeze(flat, 1)), x);
}

static aril_tensor *scale_of(aril_tensor *x, const struct local_response_norm_attrs *a)
{
    aril_tensor *mean = mean_near(aril_square(x), a->size[0], a->size[0] / 2, (a->size[0] - 1) / 2);
    return aril_add_scalar(aril_mul_scalar(mean, a->alpha[0]), a->k[0]);
}

static aril_tensor *computed(aril_tensor *x)
{
    return aril_cast(x, aril__stat_dtype(x));
}

static void local_response_norm_decompose(aril__call *c, aril_tensor **out)
{
    const struct local_response_norm_attrs *a = c->attrs;
    aril_tensor *x = computed(c->in[0]);
    aril_tensor *y = aril_div(x, aril_pow_scalar(scale_of(x, a), a->beta[0]));
    out[0] = aril_cast(y, (aril_dtype)c->in[0]->dtype);
}

/* dx = g / s^beta - 2 alpha beta x * mean of g x / s^(beta + 1) over elements whose window has x */
static void local_response_norm_grad_decompose(aril__call *c, aril_tensor **out)
{
    const struct local_response_norm_attrs *a = c->attrs;
    aril_tensor *x = computed(c->in[0]), *g = computed(c->in[1]), *s = scale_of(x, a);
    aril_tensor *d = aril_pow_scalar(s, a->beta[0]);
    aril_tensor *shares = aril_div(aril_mul(g, x), aril_mul(d, s));
    shares = mean_near(shares, a->size[0], (a->size[0] - 1) / 2, a->size[0] / 2);
    aril_tensor *near = aril_mul_scalar(aril_mul(x, shares), 2 * a->alpha[0] * a->beta[0]);
    out[0] = aril_cast(aril_sub(aril_div(g, d), near), (aril_dtype)c->in[0]->dtype);
}

/* ---- op table rows ---- */

ATTR_LIST(local_response_norm, LOCAL_RESPONSE_NORM_ATTRS)

/* in: x, and g of the gradient */
static aril_status local_response_norm_infer(aril__call *c)
{
    const struct local_response_norm_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *g = c->n_in > 1 ? c->in[1] : NULL;
    char text[ARIL__SHAPE_TEXT], other[ARIL__SHAPE_TEXT];
    if (x->ndim < 3)
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs [N,C,...] of at least 3 dimensions, got %s",
                          c->op->name, aril__text(text, x));
    if (a->size[0] < 1 || a->size[0] > INT16_MAX)
        return aril__fail(ARIL_ERR_ARG, "%s: size %" PRId64 " must be at least 1 and at most %d",
                          c->op->name, a->size[0], INT16_MAX);
    bool fits = !g || (g->ndim == x->ndim && g->dtype == x->dtype);
    for (int d = 0; g && d < x->ndim && fits; d++) fits = aril__size_fits(g->dim[d], x->dim[d]);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: a gradient %s for an input %s", c->op->name,
                          aril__text(text, g), aril__text(other, x));
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) c->out[0].dim[d] = x->dim[d];
    return ARIL_OK;
}

#define LRN(size, alpha, beta, k)             \
    &(const struct local_response_norm_attrs) \
    {                                         \
        { size }, { alpha }, { beta },        \
        {                                     \
            k                                 \
        }                                     \
    }
static const aril__sample local_response_norm_grad_samples[] = {
    { .in = { "[2,5,3]", "[2,5,3]" }, .attrs = LRN(3, 0.5, 0.75, 1), .flags = SAMPLE_BATCH },
    { .in = { "[2,6,2,3]", "[2,6,2,3]" }, .attrs = LRN(4, 0.3, 0.6, 1.5) },
    { .in = { "[1,18,1,2]", "[1,18,1,2]" }, .attrs = LRN(5, 1, 0.5, 1) },
    { .in = { "[0,3,2]", "[0,3,2]" }, .attrs = LRN(3, 0.5, 0.75, 1) },
    SAMPLE_END
};
OP(local_response_norm_grad, .doc = "gradient of local_response_norm, for x and what flows to it",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = KEEPS_ORDER, .types = DT_FLOAT,
   .infer = local_response_norm_infer, .ref = local_response_norm_ref,
   .decompose = local_response_norm_grad_decompose, .samples = local_response_norm_grad_samples,
   WITH_ATTRS(local_response_norm));

VJP(local_response_norm)
{
    if (c->g[0])
        GRAD(0, aril__op_with(c->attrs, &aril__op_local_response_norm_grad, c->x[0], c->g[0]));
}

static const aril__sample local_response_norm_samples[] = {
    { .in = { "[2,5,3]" }, .attrs = LRN(3, 0.5, 0.75, 1), .flags = SAMPLE_BATCH },
    { .in = { "[2,6,2,3]" }, .attrs = LRN(4, 0.3, 0.6, 1.5) },
    { .in = { "[1,19,2,2]" }, .attrs = LRN(5, 1, 0.5, 1) },
    { .in = { "[2,3,2,1,2]" }, .attrs = LRN(9, 1, 1, 2) },
    { .in = { "[2,32,3,3]" }, .attrs = LRN(5, 0.5, 0.75, 2) },
    { .in = { "[1,2,40]" }, .attrs = LRN(1, 1, 0.75, 1) },
    { .in = { "[2,0,3]" }, .attrs = LRN(3, 0.5, 0.75, 1) },
    { .in = { "[2,3,0]" }, .attrs = LRN(3, 0.5, 0.75, 1) },
    { .in = { "[2,3,2,0,2]" }, .attrs = LRN(2, 0.5, 0.75, 1) },
    SAMPLE_END
};
OP(local_response_norm, .doc = "x by a power of the mean of the squares of neighbouring channels",
   .onnx = "LRN", .min_in = 1, .max_in = 1, .n_out = 1, .flags = KEEPS_ORDER, .types = DT_FLOAT,
   .infer = local_response_norm_infer, .ref = local_response_norm_ref,
   .vjp = local_response_norm_vjp, .decompose = local_response_norm_decompose, .saves = { IN(0) },
   .samples = local_response_norm_samples, WITH_ATTRS(local_response_norm));

/* ---- public ---- */

aril_tensor *aril_local_response_norm(aril_tensor *x, int64_t size, aril_lrn_opts opts)
{
    struct local_response_norm_attrs a = { { size },
                                           { aril__or_default(opts.alpha, 1e-4) },
                                           { aril__or_default(opts.beta, 0.75) },
                                           { aril__or_default(opts.k, 1) } };
    return aril__op_with(&a, &aril__op_local_response_norm, x);
}
