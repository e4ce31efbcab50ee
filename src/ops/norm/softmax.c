#include "ops/norm/softmax.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"
#include "ops/vector/stream.h"
#include "ops/vector/targets.h"
#include "ops/vector/vecmath.h"
#include "ops/norm/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels ---- */

enum {
    BATCH = 4096, /* elements of short lines processed together, and block size of long ones */
    LONE = 64,    /* shorter lines share one loop */
    COLS = 512,   /* maximum columns per block */
    SIDE = 8,     /* rows processed together if the axis is long */
    TALL = 512,   /* an axis up to this length stays in the cache while its columns are processed */
    CACHED = 64 * 1024, /* elements of a block of columns that should stay in the cache */
    GRAIN = 16 * 1024,
    NARROW = 64,   /* with fewer columns, several rows are processed at a time */
    TOGETHER = 16, /* rows whose exponentials are summed in T */
};

typedef struct job {
    const void *in[2];
    void *out;
    aril__load_fn *load;
    aril__store_fn *store;
    int64_t n, inner;
    int64_t blocks, width; /* blocks of columns for each outer index */
    bool is_log, is_grad, direct, stream;
} job;

/* Few columns along a long axis: rows are contiguous, and split among threads. */
typedef struct narrow {
    const job *j;
    int pass;
    int64_t at, size;           /* of all rows: the first element, and the number of elements */
    int64_t width, per, chunks; /* columns of several rows; elements per chunk */
    void *tops, *top, *by;      /* of chunks, of columns */
    double *sums;
} narrow;

static int64_t narrow_size(const narrow *w, int64_t chunk)
{
    int64_t left = w->size - chunk * w->per;
    return left < w->per ? left : w->per;
}

#define TEMPLATE "ops/norm/softmax.inc"
#include "ops/vector/each_target.inc"

/* Returns false when out of memory. */
static bool run_narrow(const job *j, int64_t outer, bool wide)
{
    narrow w = { .j = j, .size = j->n * j->inner };
    w.width = COLS / 2 / j->inner * j->inner;
    w.per = (GRAIN / w.width + 1) * w.width;
    w.chunks = aril__parallel_chunks(w.size, w.per);
    size_t each = wide ? sizeof(double) : sizeof(float);
    size_t parts = (size_t)(w.chunks * j->inner), columns = (size_t)w.width;
    w.sums = aril__malloc(parts * sizeof(double) + (parts + 2 * columns) * each);
    if (!w.sums) return false;
    w.tops = w.sums + parts;
    w.top = (char *)w.tops + parts * each;
    w.by = (char *)w.top + columns * each;
    for (int64_t o = 0; o < outer; o++, w.at += w.size)
        for (w.pass = 0; w.pass < 3; w.pass++) {
            aril__parallel_for(w.chunks, 1, ARIL__PICK(narrow_chunks, wide), &w);
            if (w.pass < 2) ARIL__PICK(narrow_join, wide)(&w);
        }
    free(w.sums);
    return true;
}

static aril_status run(aril__run *r, bool is_log, bool is_grad)
{
    const aril_tensor *x = r->in[0];
    int axis = (int)((const struct softmax_attrs *)r->attrs)->axis[0];
    if (x->numel == 0) return ARIL_OK;
    bool wide = r->type == ARIL_F64;
    aril__ctype via = wide ? ARIL__C_F64 : ARIL__C_F32;
    job j = { .in = { aril__ptr(x), is_grad ? aril__ptr(r->in[1]) : NULL },
              .out = aril__ptr(r->out[0]),
              .load = aril__dtypes[r->type].load[via],
              .store = aril__dtypes[r->type].store[via],
              .n = x->ndim ? x->dim[axis] : 1,
              .inner = x->ndim ? aril__count(x->ndim - axis - 1, x->dim + axis + 1) : 1,
              .is_log = is_log,
              .is_grad = is_grad,
              .direct = r->type == ARIL_F32 || r->type == ARIL_F64 };
    int64_t outer = x->numel / (j.n * j.inner);
    j.stream = j.direct && j.n >= 256 && aril__dtype_bytes(r->type, x->numel) >= ARIL__STREAM;
    if (j.inner == 1) {
        aril__parallel_for(outer, GRAIN / j.n,
                           is_grad ? ARIL__PICK(grad_lines, wide) : ARIL__PICK(lines, wide), &j);
        return ARIL_OK;
    }
    if (!is_grad && j.inner < NARROW && j.n * j.inner >= GRAIN && run_narrow(&j, outer, wide))
        return ARIL_OK;
    int64_t most = j.n > TALL ? COLS : CACHED / j.n < 64 ? 64 : CACHED / j.n;
    most = most < COLS ? most : COLS;
    j.blocks = aril__parallel_chunks(j.inner, most);
    j.width = ((j.inner - 1) / j.blocks / 16 + 1) * 16;
    j.blocks = aril__parallel_chunks(j.inner, j.width);
    int64_t each = j.n * (j.inner < j.width ? j.inner : j.width);
    aril__parallel_for(outer * j.blocks, GRAIN / each, ARIL__PICK(blocks, wide), &j);
    return ARIL_OK;
}

/* ---- ops ---- */

ATTR_LIST(softmax, SOFTMAX_ATTRS)

static aril_status softmax_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    const aril_tensor *x = c->in[0];
    int64_t axis = ((const struct softmax_attrs *)c->attrs)->axis[0];
    if (axis < 0 || (x->ndim && axis >= x->ndim))
        return aril__fail(ARIL_ERR_SHAPE, "%s: axis %lld of %d dimensions", c->op->name,
                          (long long)axis, x->ndim);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

static aril_status softmax_ref(aril__run *r)
{
    return run(r, false, false);
}

static aril_status log_softmax_ref(aril__run *r)
{
    return run(r, true, false);
}

static aril_status softmax_grad_ref(aril__run *r)
{
    return run(r, false, true);
}

static aril_status log_softmax_grad_ref(aril__run *r)
{
    return run(r, true, true);
}

VJP(softmax)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_softmax_grad, c->g[0], c->y[0]));
}

VJP(log_softmax)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_log_softmax_grad, c->g[0], c->y[0]));
}

static aril_tensor *sum_along(const void *attrs, aril_tensor *x)
{
    return aril_sum(x, ARIL_KEEPDIM((int)((const struct softmax_attrs *)attrs)->axis[0]));
}

/* y * (g - sum(g * y)) */
static void softmax_grad_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *g = c->in[0], *y = c->in[1];
    out[0] = aril_mul(y, aril_sub(g, sum_along(c->attrs, aril_mul(g, y))));
}

/* g - exp(y) * sum(g) */
static void log_softmax_grad_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *g = c->in[0], *y = c->in[1];
    out[0] = aril_sub(g, aril_mul(aril_exp(y), sum_along(c->attrs, g)));
}

static const aril__sample softmax_samples[] = {
    { .in = { "[2,5]" }, .attrs = &(const struct softmax_attrs){ { 1 } }, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct softmax_attrs){ { 0 } } },
    { .in = { "[2,3,4]" }, .attrs = &(const struct softmax_attrs){ { 1 } }, .flags = SAMPLE_BATCH },
    { .in = { "[]" }, .attrs = &(const struct softmax_attrs){ { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct softmax_attrs){ { 1 } } },
    SAMPLE_END
};
OP(softmax, .doc = "exp(x) / sum(exp(x)) along an axis", .onnx = "Softmax", .min_in = 1,
   .max_in = 1, .n_out = 1, .types = DT_FLOAT, .infer = softmax_infer, .ref = softmax_ref,
   .vjp = softmax_vjp, .saves = { OUT(0) }, .samples = softmax_samples, WITH_ATTRS(softmax));
OP(log_softmax, .doc = "x - log(sum(exp(x))) along an axis", .onnx = "LogSoftmax", .min_in = 1,
   .max_in = 1, .n_out = 1, .types = DT_FLOAT, .infer = softmax_infer, .ref = log_softmax_ref,
   .vjp = log_softmax_vjp, .saves = { OUT(0) }, .samples = softmax_samples, WITH_ATTRS(softmax));

static const aril__sample softmax_grad_samples[] = {
    { .in = { "[2,5]", "p[2,5]" },
      .attrs = &(const struct softmax_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "p[2,3,4]" }, .attrs = &(const struct softmax_attrs){ { 1 } } },
    { .in = { "[]", "p[]" }, .attrs = &(const struct softmax_attrs){ { 0 } } },
    SAMPLE_END
};
OP(softmax_grad, .doc = "gradient of softmax", .min_in = 2, .max_in = 2, .n_out = 1,
   .types = DT_FLOAT, .infer = softmax_infer, .ref = softmax_grad_ref,
   .decompose = softmax_grad_decompose, .samples = softmax_grad_samples, WITH_ATTRS(softmax));
OP(log_softmax_grad, .doc = "gradient of log_softmax", .min_in = 2, .max_in = 2, .n_out = 1,
   .types = DT_FLOAT, .infer = softmax_infer, .ref = log_softmax_grad_ref,
   .decompose = log_softmax_grad_decompose, .samples = softmax_grad_samples, WITH_ATTRS(softmax));

/* ---- public ---- */

static aril_tensor *along(const aril__op *op, aril_tensor *x, int axis)
{
    struct softmax_attrs a = { { 0 } };
    if (!x) return aril__null_tensor(op->name);
    if (!aril__is_poison(x)) {
        a.axis[0] = aril__axis(op->name, axis, x->ndim);
        if (a.axis[0] < 0) return aril__poison();
    }
    return aril__op_with(&a, op, x);
}

aril_tensor *aril_softmax(aril_tensor *x, int axis)
{
    return along(&aril__op_softmax, x, axis);
}

aril_tensor *aril_log_softmax(aril_tensor *x, int axis)
{
    return along(&aril__op_log_softmax, x, axis);
}

aril_tensor *aril_softmin(aril_tensor *x, int axis)
{
    return along(&aril__op_softmax, aril_neg(x), axis);
}
