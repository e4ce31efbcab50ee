#include "ops/vision/pool.h"

#include "ops/table/apply.h"
#include "ops/vision/pool_run.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_max_pool_grad, aril__op_max_pool_pick;

ATTR_LIST(pool, POOL_ATTRS)

/* ---- shapes ---- */

static aril_status check_rank(const aril__call *c, const aril_tensor *x)
{
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim >= 3 && x->ndim <= 5) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s: needs [N,C] and 1 to 3 spatial sizes, got %s",
                      c->op->name, aril__text(text, x));
}

/* The shape of windowed or adaptive pooling of x. */
static aril_status pooled_shape(const aril__call *c, const aril_tensor *x, bool adaptive,
                                int64_t *dim)
{
    const struct pool_attrs *a = c->attrs;
    char text[ARIL__SHAPE_TEXT];
    aril_status s = check_rank(c, x);
    if (s < 0) return s;
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t in = x->dim[2 + i];
        if (adaptive) {
            if (in == 0)
                return aril__fail(ARIL_ERR_SHAPE, "%s: no elements to pool in %s", c->op->name,
                                  aril__text(text, x));
            dim[2 + i] = a->size[i] < 0 ? in : a->size[i];
            continue;
        }
        aril__slide w = aril__pool_window(a, i, in);
        if (w.kernel < 1 || w.stride < 1 || w.dilation < 1)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: kernel %" PRId64 ", stride %" PRId64 " and dilation %" PRId64
                              " must be at least 1",
                              c->op->name, w.kernel, w.stride, w.dilation);
        if (w.begin < 0 || w.end < 0 || w.begin >= aril__slide_span(&w) ||
            w.end >= aril__slide_span(&w))
            return aril__fail(ARIL_ERR_ARG,
                              "%s: padding %" PRId64 " and %" PRId64
                              " must be less than the window of %" PRId64,
                              c->op->name, w.begin, w.end, aril__slide_span(&w));
        dim[2 + i] = aril__slide_count(&w, in);
        if (dim[2 + i] == 0 && !(a->same[0] && in == 0))
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: a window of %" PRId64 " is larger than the padded input %s",
                              c->op->name, aril__slide_span(&w), aril__text(text, x));
    }
    return ARIL_OK;
}

static void set_shape(aril__call *c, int k, aril_dtype dtype, int ndim, const int64_t *dim)
{
    c->out[k].dtype = dtype;
    c->out[k].ndim = ndim;
    memcpy(c->out[k].dim, dim, (size_t)ndim * sizeof *dim);
}

static aril_status pool_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    int64_t dim[ARIL_MAX_DIMS];
    bool adaptive = c->op == &aril__op_adaptive_avg_pool || c->op == &aril__op_adaptive_max_pool;
    aril_status s = pooled_shape(c, x, adaptive, dim);
    if (s < 0) return s;
    set_shape(c, 0, (aril_dtype)x->dtype, x->ndim, dim);
    set_shape(c, 1, ARIL_I64, x->ndim, dim);
    return ARIL_OK;
}

static bool fits(int n, const int64_t *want, const aril_tensor *t)
{
    bool same = t->ndim == n;
    for (int i = 0; i < n && same; i++) same = want[i] < 0 || t->dim[i] < 0 || want[i] == t->dim[i];
    return same;
}

static aril_status misfit(const aril__call *c, int n, const int64_t *want, const char *what,
                          const aril_tensor *got)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: %s of shape %s needed, got %s", c->op->name, what,
                      aril__shape_text(a, n, want), aril__text(b, got));
}

/* in: g, x; the result has the shape of x. */
static aril_status avg_grad_infer(aril__call *c)
{
    const aril_tensor *x = c->in[1];
    int64_t dim[ARIL_MAX_DIMS];
    aril_status s = pooled_shape(c, x, c->op == &aril__op_adaptive_avg_pool_grad, dim);
    if (s < 0) return s;
    if (!fits(x->ndim, dim, c->in[0])) return misfit(c, x->ndim, dim, "a gradient", c->in[0]);
    set_shape(c, 0, (aril_dtype)c->in[0]->dtype, x->ndim, x->dim);
    return ARIL_OK;
}

static aril_status check_indices(const aril__call *c, const aril_tensor *like,
                                 const aril_tensor *indices)
{
    if (!aril__is_int((aril_dtype)indices->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "%s: indices of type %s; integers are needed",
                          c->op->name, aril__dtypes[indices->dtype].name);
    if (!fits(like->ndim, like->dim, indices))
        return misfit(c, like->ndim, like->dim, "indices", indices);
    return ARIL_OK;
}

/* Checks that two tensors have the same batch size and channels. */
static aril_status check_planes(const aril__call *c, const aril_tensor *x, const aril_tensor *y)
{
    aril_status s = check_rank(c, x);
    if (s < 0) return s;
    int64_t dim[ARIL_MAX_DIMS] = { x->dim[0], x->dim[1], -1, -1, -1 };
    return fits(x->ndim, dim, y) ? ARIL_OK : misfit(c, x->ndim, dim, "a tensor", y);
}

/* in: g, indices, x. */
static aril_status max_pool_grad_infer(aril__call *c)
{
    aril_status s = check_planes(c, c->in[2], c->in[0]);
    if (s == ARIL_OK) s = check_indices(c, c->in[0], c->in[1]);
    if (s == ARIL_OK) set_shape(c, 0, (aril_dtype)c->in[0]->dtype, c->in[2]->ndim, c->in[2]->dim);
    return s;
}

/* in: x, indices. */
static aril_status max_pool_pick_infer(aril__call *c)
{
    aril_status s = check_planes(c, c->in[0], c->in[1]);
    if (s == ARIL_OK) s = check_indices(c, c->in[1], c->in[1]);
    if (s == ARIL_OK) set_shape(c, 0, (aril_dtype)c->in[0]->dtype, c->in[1]->ndim, c->in[1]->dim);
    return s;
}

/* in: x, indices. */
static aril_status max_unpool_infer(aril__call *c)
{
    const struct pool_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril_status s = check_rank(c, x);
    if (s == ARIL_OK) s = check_indices(c, x, c->in[1]);
    if (s < 0) return s;
    int64_t dim[ARIL_MAX_DIMS] = { x->dim[0], x->dim[1] };
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t in = x->dim[2 + i];
        dim[2 + i] =
            a->size[i] > 0 ? a->size[i]
            : in < 0       ? -1
                     : (in - 1) * a->stride[i] - a->pad[2 * i] - a->pad[2 * i + 1] + a->kernel[i];
        if (dim[2 + i] < 1 && in >= 0) {
            char text[ARIL__SHAPE_TEXT];
            return aril__fail(ARIL_ERR_SHAPE, "max_unpool: nothing would be left of %s",
                              aril__text(text, x));
        }
    }
    set_shape(c, 0, (aril_dtype)x->dtype, x->ndim, dim);
    return ARIL_OK;
}

/* ---- op table rows ---- */

enum { NUMBERS = DT_FLOAT | DT(ARIL_I64) };

#define POOL2                                                                     \
    &(const struct pool_attrs)                                                    \
    {                                                                             \
        { 2, 2, 2 }, { 2, 2, 2 }, { 0 }, { 1, 1, 1 }, { 0 }, { 0 }, { 1 }, { 0 }, \
        {                                                                         \
            0                                                                     \
        }                                                                         \
    }
#define OVERLAP                                                                                  \
    &(const struct pool_attrs)                                                                   \
    {                                                                                            \
        { 3, 2, 2 }, { 2, 1, 1 }, { 1, 1, 0, 1, 0, 0 }, { 1, 2, 1 }, { 1 }, { 0 }, { 0 }, { 0 }, \
        {                                                                                        \
            0                                                                                    \
        }                                                                                        \
    }
#define PADDED                                                                                   \
    &(const struct pool_attrs)                                                                   \
    {                                                                                            \
        { 3, 3, 3 }, { 2, 2, 2 }, { 1, 1, 1, 1, 1, 1 }, { 1, 1, 1 }, { 1 }, { 0 }, { 1 }, { 0 }, \
        {                                                                                        \
            0                                                                                    \
        }                                                                                        \
    }
#define DIVIDED                                                                                  \
    &(const struct pool_attrs)                                                                   \
    {                                                                                            \
        { 2, 3, 2 }, { 1, 2, 1 }, { 0, 0, 1, 1, 0, 0 }, { 1, 1, 1 }, { 0 }, { 0 }, { 1 }, { 5 }, \
        {                                                                                        \
            0                                                                                    \
        }                                                                                        \
    }
#define SAME_PADDED                                                                              \
    &(const struct pool_attrs)                                                                   \
    {                                                                                            \
        { 3, 2, 2 }, { 2, 2, 2 }, { 0 }, { 1, 1, 1 }, { 0 }, { ARIL__SAME_UPPER }, { 0 }, { 0 }, \
        {                                                                                        \
            0                                                                                    \
        }                                                                                        \
    }
#define TO_SIZE(...)            \
    &(const struct pool_attrs)  \
    {                           \
        .size = { __VA_ARGS__ } \
    }

VJP(max_pool)
{
    if (c->g[0]) GRAD(0, aril__op(&aril__op_max_pool_grad, c->g[0], c->y[1], c->x[0]));
}

static const aril__sample max_pool_samples[] = {
    { .in = { "d[2,2,4,6]" }, .attrs = POOL2, .flags = SAMPLE_BATCH },
    { .in = { "d[2,2,5,6]" }, .attrs = OVERLAP, .flags = SAMPLE_BATCH },
    { .in = { "d[1,2,6,5]" }, .attrs = PADDED },
    { .in = { "d[1,2,6,5]" }, .attrs = SAME_PADDED, .flags = SAMPLE_BATCH },
    { .in = { "d[2,3,7]" }, .attrs = OVERLAP, .flags = SAMPLE_BATCH },
    { .in = { "d[1,2,4,3,4]" }, .attrs = PADDED, .flags = SAMPLE_BATCH },
    { .in = { "d[0,2,4,4]" }, .attrs = POOL2 },
    SAMPLE_END
};
OP(max_pool, .doc = "the largest element of each window, and where it stood", .onnx = "MaxPool",
   .min_in = 1, .max_in = 1, .n_out = 2, .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT | DT_INT, .native = NUMBERS, .infer = pool_infer, .ref = aril__pool_max,
   .vjp = max_pool_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = max_pool_samples,
   WITH_ATTRS(pool));

static const aril__sample adaptive_max_pool_samples[] = {
    { .in = { "d[2,2,4,6]" }, .attrs = TO_SIZE(2, 4, 0), .flags = SAMPLE_BATCH },
    { .in = { "d[1,2,3,5]" }, .attrs = TO_SIZE(5, -1, 0), .flags = SAMPLE_BATCH },
    { .in = { "d[1,2,7]" }, .attrs = TO_SIZE(3, 0, 0) },
    { .in = { "d[1,2,3,4,2]" }, .attrs = TO_SIZE(1, 1, 1), .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(adaptive_max_pool, .doc = "max pooling to a given number of results", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT, .native = NUMBERS,
   .infer = pool_infer, .ref = aril__pool_max, .vjp = max_pool_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = adaptive_max_pool_samples, WITH_ATTRS(pool));

VJP(max_pool_grad)
{
    if (c->g[0]) GRAD(0, aril__op(&aril__op_max_pool_pick, c->g[0], c->x[1]));
}

static const aril__sample max_pool_grad_samples[] = {
    { .in = { "[2,2,2,3]", "i20[2,2,2,3]", "[2,2,4,5]" }, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3]", "i5[1,2,3]", "[1,2,5]" } },
    { .in = { "[1,2,1,2,1]", "i8[1,2,1,2,1]", "[1,2,2,2,2]" } },
    { .in = { "[0,2,3]", "i5[0,2,3]", "[0,2,5]" } },
    SAMPLE_END
};
OP(max_pool_grad,
   .doc = "elements added up where their indices say, in the shape of another tensor", .min_in = 3,
   .max_in = 3, .n_out = 1, .shape_only = IN(2), .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT | DT_INT, .native = NUMBERS, .infer = max_pool_grad_infer,
   .ref = aril__pool_scatter, .vjp = max_pool_grad_vjp, .saves = { IN(1) },
   .samples = max_pool_grad_samples);

VJP(max_pool_pick)
{
    if (c->g[0]) GRAD(0, aril__op(&aril__op_max_pool_grad, c->g[0], c->x[1], c->x[0]));
}

static const aril__sample max_pool_pick_samples[] = { { .in = { "[2,2,4,5]", "i20[2,2,2,3]" },
                                                        .flags = SAMPLE_BATCH },
                                                      { .in = { "[1,2,5]", "i5[1,2,3]" } },
                                                      SAMPLE_END };
OP(max_pool_pick, .doc = "the elements that the indices of max pooling name", .min_in = 2,
   .max_in = 2, .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT,
   .native = NUMBERS, .infer = max_pool_pick_infer, .ref = aril__pool_pick,
   .vjp = max_pool_pick_vjp, .saves = { IN(1) | LIKE(0) }, .samples = max_pool_pick_samples);

VJP(avg_pool)
{
    const aril__op *back =
        c->op == &aril__op_avg_pool ? &aril__op_avg_pool_grad : &aril__op_adaptive_avg_pool_grad;
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, back, c->g[0], c->x[0]));
}

VJP(avg_pool_grad)
{
    const aril__op *forth =
        c->op == &aril__op_avg_pool_grad ? &aril__op_avg_pool : &aril__op_adaptive_avg_pool;
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, forth, c->g[0]));
}

static const aril__sample avg_pool_samples[] = {
    { .in = { "[2,2,4,6]" }, .attrs = POOL2, .flags = SAMPLE_BATCH },
    { .in = { "[2,2,5,6]" }, .attrs = OVERLAP, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,6,5]" }, .attrs = PADDED },
    { .in = { "[1,2,4,5]" }, .attrs = DIVIDED, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,6,5]" }, .attrs = SAME_PADDED, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,7]" }, .attrs = OVERLAP, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,4,3,4]" }, .attrs = PADDED },
    { .in = { "[0,2,4,4]" }, .attrs = POOL2 },
    SAMPLE_END
};
OP(avg_pool, .doc = "the mean of each window", .onnx = "AveragePool", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT, .infer = pool_infer,
   .ref = aril__pool_average, .vjp = avg_pool_vjp, .saves = { LIKE(0) },
   .samples = avg_pool_samples, WITH_ATTRS(pool));

static const aril__sample avg_pool_grad_samples[] = {
    { .in = { "[2,2,2,3]", "[2,2,4,6]" }, .attrs = POOL2, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,4,3]", "[1,2,6,5]" }, .attrs = PADDED, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,3]", "[1,2,4,5]" }, .attrs = DIVIDED },
    SAMPLE_END
};
OP(avg_pool_grad, .doc = "the gradient of avg_pool, in the shape of the second input", .min_in = 2,
   .max_in = 2, .n_out = 1, .shape_only = IN(1), .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT, .infer = avg_grad_infer, .ref = aril__pool_average_back,
   .vjp = avg_pool_grad_vjp, .samples = avg_pool_grad_samples, WITH_ATTRS(pool));

static const aril__sample adaptive_avg_pool_samples[] = {
    { .in = { "[2,2,4,6]" }, .attrs = TO_SIZE(2, 4, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,5]" }, .attrs = TO_SIZE(5, -1, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,7]" }, .attrs = TO_SIZE(3, 0, 0) },
    { .in = { "[1,2,3,4,2]" }, .attrs = TO_SIZE(1, 1, 1), .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(adaptive_avg_pool, .doc = "average pooling to a given number of results", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT,
   .infer = pool_infer, .ref = aril__pool_average, .vjp = avg_pool_vjp, .saves = { LIKE(0) },
   .samples = adaptive_avg_pool_samples, WITH_ATTRS(pool));

static const aril__sample adaptive_avg_pool_grad_samples[] = {
    { .in = { "[2,2,2,4]", "[2,2,4,6]" }, .attrs = TO_SIZE(2, 4, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3]", "[1,2,7]" }, .attrs = TO_SIZE(3, 0, 0) },
    SAMPLE_END
};
OP(adaptive_avg_pool_grad, .doc = "the gradient of adaptive_avg_pool, like the second input",
   .min_in = 2, .max_in = 2, .n_out = 1, .shape_only = IN(1), .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT, .infer = avg_grad_infer, .ref = aril__pool_average_back,
   .vjp = avg_pool_grad_vjp, .samples = adaptive_avg_pool_grad_samples, WITH_ATTRS(pool));

VJP(max_unpool)
{
    if (c->g[0]) GRAD(0, aril__op(&aril__op_max_pool_pick, c->g[0], c->x[1]));
}

/* With duplicate indices the last write wins, but the gradient goes to all: no gradient check. */
static const aril__sample max_unpool_samples[] = {
    { .in = { "[2,2,1,1]", "i4[2,2,1,1]" }, .attrs = POOL2, .flags = SAMPLE_BATCH },
    { .in = { "[2,2,1]", "i7[2,2,1]" }, .attrs = TO_SIZE(7, 0, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,2,2]", "i16[1,2,2,2]" }, .attrs = POOL2, .flags = SAMPLE_NO_GRAD },
    { .in = { "[1,2,1,1,1]", "i8[1,2,1,1,1]" }, .attrs = POOL2 },
    SAMPLE_END
};
OP(max_unpool, .doc = "elements put back where max pooling found them", .onnx = "MaxUnpool",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT | DT_INT, .native = NUMBERS, .infer = max_unpool_infer,
   .ref = aril__pool_scatter, .vjp = max_unpool_vjp, .saves = { IN(1) },
   .samples = max_unpool_samples, WITH_ATTRS(pool));
