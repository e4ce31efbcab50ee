#include "ops/vision/pool.h"

#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_max_pool_grad, aril__op_max_pool_pick;

ATTR_LIST(pool, POOL_ATTRS)
ATTR_LIST(max_pool_grad, MAX_POOL_GRAD_ATTRS)

/* ---- windows ---- */

aril__slide aril__pool_window(const struct pool_attrs *a, int i, int64_t in)
{
    aril__slide w = { .kernel = a->kernel[i],
                      .stride = a->stride[i],
                      .begin = a->pad[2 * i],
                      .end = a->pad[2 * i + 1],
                      .dilation = a->dilation[i],
                      .ceil = a->ceil[0] };
    if (a->same[0]) aril__slide_same(&w, in, a->same[0]);
    return w;
}

bool aril__pool_is_adaptive(const aril__op *op)
{
    return op == &aril__op_adaptive_max_pool || op == &aril__op_adaptive_avg_pool ||
           op == &aril__op_adaptive_avg_pool_grad;
}

int aril__pool_indices(const aril__op *op)
{
    return op == &aril__op_max_pool || op == &aril__op_adaptive_max_pool ? 1 : -1;
}

aril__taps aril__pool_taps(const aril__slide *w, int64_t in, int64_t out, int64_t o)
{
    if (!w) {
        int64_t first = o * in / out, n = ((o + 1) * in + out - 1) / out - first;
        return (aril__taps){ first, n, 1, n };
    }
    int64_t start = o * w->stride - w->begin, d = w->dilation;
    int64_t skipped = start < 0 ? (d - 1 - start) / d : 0;
    int64_t reach =
        in > start ? (in - start + d - 1) / d : 0; /* taps before the end of the input */
    int64_t padded = (in + w->end - start + d - 1) / d;
    aril__taps t = { .first = start + skipped * d, .step = d };
    t.n = (reach < w->kernel ? reach : w->kernel) - skipped;
    if (t.n < 0) t.n = 0;
    t.counted = padded < w->kernel ? padded : w->kernel;
    return t;
}

/* ---- references ---- */

/* Of the windows over x that y has the results of: the one of element i of y. */
typedef struct window {
    int n; /* spatial dimensions */
    const int64_t *in;
    aril__taps along[3];
} window;

static window window_at(const aril__run *r, const aril_tensor *x, const aril_tensor *y, int64_t i)
{
    window w = { .n = x->ndim - 2, .in = x->dim + 2 };
    for (int d = w.n - 1; d >= 0; d--) {
        int64_t in = x->dim[2 + d], out = y->dim[2 + d];
        aril__slide s = aril__pool_window(r->attrs, d, in);
        w.along[d] = aril__pool_taps(aril__pool_is_adaptive(r->op) ? NULL : &s, in, out, i % out);
        i /= out;
    }
    return w;
}

static int64_t elements_of(const window *w)
{
    int64_t n = 1;
    for (int d = 0; d < w->n; d++) n *= w->along[d].n;
    return n;
}

/* The index in its image of the k-th element of a window. */
static int64_t element_of(const window *w, int64_t k)
{
    int64_t index = 0, size = 1;
    for (int d = w->n - 1; d >= 0; d--) {
        const aril__taps *t = &w->along[d];
        index += (t->first + k % t->n * t->step) * size;
        k /= t->n;
        size *= w->in[d];
    }
    return index;
}

/* What the sum over a window is divided by. */
static int64_t divisor_of(const struct pool_attrs *a, const window *w)
{
    int64_t counted = 1;
    for (int d = 0; d < w->n; d++) counted *= w->along[d].counted;
    return a->divisor[0] ? a->divisor[0] : a->include_pad[0] ? counted : elements_of(w);
}

/* Elements of an image. */
static int64_t area_of(const aril_tensor *x)
{
    return aril__count(x->ndim - 2, x->dim + 2);
}

static bool is_integer(const aril_tensor *x)
{
    return aril__is_int((aril_dtype)x->dtype);
}

/* Whether element i of x is larger than element k. NaN is larger than all numbers. */
static bool is_larger(const aril_tensor *x, int64_t i, int64_t k)
{
    if (is_integer(x)) {
        int64_t a = aril__get_i64(x, i), b = aril__get_i64(x, k);
        return x->dtype == ARIL_U64 ? (uint64_t)a > (uint64_t)b : a > b;
    }
    double a = aril__get(x, i), b = aril__get(x, k);
    return a > b || (isnan(a) && !isnan(b));
}

/* Copies element k of x to element i of y; k = -1: 0. */
static void copy_element(aril_tensor *y, int64_t i, const aril_tensor *x, int64_t k)
{
    if (is_integer(x))
        aril__put_i64(y, i, k < 0 ? 0 : aril__get_i64(x, k));
    else
        aril__put(y, i, k < 0 ? 0 : aril__get(x, k));
}

/* The first of the largest elements of each window, and its index; of an empty window, the lowest
 * value and -1. */
static aril_status max_pool_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    aril_tensor *y = r->out[0], *indices = r->out[1];
    for (int64_t i = 0; i < y->numel; i++) {
        int64_t image = i / area_of(y) * area_of(x), best = -1;
        window w = window_at(r, x, y, i);
        for (int64_t k = 0; k < elements_of(&w); k++) {
            int64_t at = image + element_of(&w, k);
            if (best < 0 || is_larger(x, at, best)) best = at;
        }
        if (indices) aril__put_i64(indices, i, best < 0 ? -1 : best - image);
        if (best >= 0)
            copy_element(y, i, x, best);
        else if (is_integer(y))
            aril__put_i64(y, i, y->dtype == ARIL_U64 ? 0 : INT64_MIN);
        else
            aril__put(y, i, -INFINITY);
    }
    return ARIL_OK;
}

static aril_status check_index(const aril__run *r, int64_t index, int64_t area, bool may_be_none)
{
    if ((index >= 0 && index < area) || (index == -1 && may_be_none)) return ARIL_OK;
    return aril__fail(ARIL_ERR_INDEX,
                      "%s: index %" PRId64 " is out of range for %" PRId64 " elements", r->op->name,
                      index, area);
}

/* y[i] = x[index i]; 0 for -1 */
static aril_status max_pool_pick_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0], *indices = r->in[1];
    aril_tensor *y = r->out[0];
    aril_status s = ARIL_OK;
    for (int64_t i = 0; i < y->numel && s == ARIL_OK; i++) {
        int64_t image = i / area_of(y) * area_of(x), index = aril__get_i64(indices, i);
        s = check_index(r, index, area_of(x), true);
        if (s == ARIL_OK) copy_element(y, i, x, index < 0 ? -1 : image + index);
    }
    return s;
}

/* x[k] = the sum of all y whose index is k */
static aril_status max_pool_grad_ref(aril__run *r)
{
    const aril_tensor *y = r->in[0], *indices = r->in[1];
    aril_tensor *x = r->out[0];
    int64_t area = area_of(x), positions = area_of(y);
    for (int64_t i = 0; i < y->numel; i++)
        if (check_index(r, aril__get_i64(indices, i), area, true) < 0) return ARIL_ERR_INDEX;
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t first = k / area * positions;
        uint64_t integer = 0; /* integers wrap around */
        double sum = 0;
        for (int64_t i = first; i < first + positions; i++) {
            if (aril__get_i64(indices, i) != k % area) continue;
            if (is_integer(y))
                integer += (uint64_t)aril__get_i64(y, i);
            else
                sum += aril__get(y, i);
        }
        if (is_integer(y))
            aril__put_i64(x, k, (int64_t)integer);
        else
            aril__put(x, k, sum);
    }
    return ARIL_OK;
}

/* y[k] = the last x whose index is k, or 0 */
static aril_status max_unpool_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0], *indices = r->in[1];
    aril_tensor *y = r->out[0];
    int64_t area = area_of(y), positions = area_of(x);
    for (int64_t k = 0; k < y->numel; k++) copy_element(y, k, x, -1);
    for (int64_t i = 0; i < x->numel; i++) {
        int64_t index = aril__get_i64(indices, i);
        if (check_index(r, index, area, false) < 0) return ARIL_ERR_INDEX;
        copy_element(y, i / positions * area + index, x, i);
    }
    return ARIL_OK;
}

/* The mean of each window; 0 if it is empty. */
static aril_status avg_pool_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    aril_tensor *y = r->out[0];
    for (int64_t i = 0; i < y->numel; i++) {
        int64_t image = i / area_of(y) * area_of(x);
        window w = window_at(r, x, y, i);
        int64_t divisor = divisor_of(r->attrs, &w);
        double sum = 0;
        for (int64_t k = 0; k < elements_of(&w); k++)
            sum += aril__get(x, image + element_of(&w, k));
        aril__put(y, i, divisor ? sum / (double)divisor : 0);
    }
    return ARIL_OK;
}

/* Each window gives an equal share of its gradient to the elements that it contains. */
static aril_status avg_pool_grad_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0];
    aril_tensor *x = r->out[0];
    double *sums = r->workspace;
    for (int64_t i = 0; i < x->numel; i++) sums[i] = 0;
    for (int64_t i = 0; i < g->numel; i++) {
        int64_t image = i / area_of(g) * area_of(x);
        window w = window_at(r, x, g, i);
        double share = aril__get(g, i) / (double)divisor_of(r->attrs, &w);
        for (int64_t k = 0; k < elements_of(&w); k++) sums[image + element_of(&w, k)] += share;
    }
    for (int64_t i = 0; i < x->numel; i++) aril__put(x, i, sums[i]);
    return ARIL_OK;
}

/* A sum for each element of x. */
static size_t avg_pool_grad_scratch(const aril__run *r)
{
    return (size_t)r->out[0]->numel * sizeof(double);
}

/* ---- shapes ---- */

static aril_status check_rank(const aril__call *c, const aril_tensor *x)
{
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim >= 3 && x->ndim <= 5) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s: expected [N,C] and 1 to 3 spatial dimensions, got %s",
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
                return aril__fail(ARIL_ERR_SHAPE, "%s: cannot pool over an empty axis of %s",
                                  c->op->name, aril__text(text, x));
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
    bool adaptive = aril__pool_is_adaptive(c->op);
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
    return aril__fail(ARIL_ERR_SHAPE, "%s: expected %s of shape %s, got %s", c->op->name, what,
                      aril__shape_text(a, n, want), aril__text(b, got));
}

/* in: g, x; the result has the shape of x. */
static aril_status avg_grad_infer(aril__call *c)
{
    const aril_tensor *x = c->in[1];
    int64_t dim[ARIL_MAX_DIMS];
    aril_status s = pooled_shape(c, x, aril__pool_is_adaptive(c->op), dim);
    if (s < 0) return s;
    if (!fits(x->ndim, dim, c->in[0])) return misfit(c, x->ndim, dim, "a gradient", c->in[0]);
    set_shape(c, 0, (aril_dtype)c->in[0]->dtype, x->ndim, x->dim);
    return ARIL_OK;
}

static aril_status check_indices(const aril__call *c, const aril_tensor *like,
                                 const aril_tensor *indices)
{
    if (!aril__is_int((aril_dtype)indices->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "%s: indices must be integers, got %s", c->op->name,
                          aril__dtypes[indices->dtype].name);
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
            return aril__fail(ARIL_ERR_SHAPE, "max_unpool: the output for %s would be empty",
                              aril__text(text, x));
        }
    }
    set_shape(c, 0, (aril_dtype)x->dtype, x->ndim, dim);
    return ARIL_OK;
}

/* ---- op table rows ---- */

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

#define ANY_WINDOWS                                    \
    &(const struct max_pool_grad_attrs)                \
    {                                                  \
        .stride = { 1, 1, 1 }, .dilation = { 1, 1, 1 } \
    }

/* The windows of max_pool over x, for its gradient. The padding before an unknown number of
 * elements may not be known either. */
static struct max_pool_grad_attrs windows_of(const struct pool_attrs *a, const aril_tensor *x)
{
    struct max_pool_grad_attrs to = *ANY_WINDOWS;
    for (int i = 0; i < x->ndim - 2; i++) {
        aril__slide w = aril__pool_window(a, i, x->dim[2 + i]);
        to.kernel[i] = a->same[0] && x->dim[2 + i] < 0 ? 0 : w.kernel;
        to.stride[i] = w.stride;
        to.dilation[i] = w.dilation;
        to.begin[i] = w.begin;
    }
    return to;
}

VJP(max_pool)
{
    struct max_pool_grad_attrs a = windows_of(c->attrs, c->x[0]);
    if (c->g[0]) GRAD(0, aril__op_with(&a, &aril__op_max_pool_grad, c->g[0], c->y[1], c->x[0]));
}

VJP(adaptive_max_pool)
{
    const aril__op *back = &aril__op_max_pool_grad;
    if (c->g[0]) GRAD(0, aril__op_with(ANY_WINDOWS, back, c->g[0], c->y[1], c->x[0]));
}

/* PyTorch pools volumes in f32 in autocast regions. */
static unsigned pool_cast(const aril__call *c)
{
    return c->in[0]->ndim == 5 ? CAST_F32 : CAST_NONE;
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
OP(max_pool, .doc = "max pooling, and the indices of the maxima", .onnx = "MaxPool", .min_in = 1,
   .max_in = 1, .n_out = 2, .cast = CAST_BY_CALL, .cast_of = pool_cast,
   .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT, .infer = pool_infer,
   .ref = max_pool_ref, .vjp = max_pool_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = max_pool_samples, WITH_ATTRS(pool));

static const aril__sample adaptive_max_pool_samples[] = {
    { .in = { "d[2,2,4,6]" }, .attrs = TO_SIZE(2, 4, 0), .flags = SAMPLE_BATCH },
    { .in = { "d[1,2,3,5]" }, .attrs = TO_SIZE(5, -1, 0), .flags = SAMPLE_BATCH },
    { .in = { "d[1,2,7]" }, .attrs = TO_SIZE(3, 0, 0) },
    { .in = { "d[1,2,3,4,2]" }, .attrs = TO_SIZE(1, 1, 1), .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(adaptive_max_pool, .doc = "max pooling to a given output size, and the indices of the maxima",
   .min_in = 1, .max_in = 1, .n_out = 2, .cast = CAST_BY_CALL, .cast_of = pool_cast,
   .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT, .infer = pool_infer,
   .ref = max_pool_ref, .vjp = adaptive_max_pool_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = adaptive_max_pool_samples, WITH_ATTRS(pool));

VJP(max_pool_grad)
{
    if (c->g[0]) GRAD(0, aril__op(&aril__op_max_pool_pick, c->g[0], c->x[1]));
}

/* Windows that all cover the whole image. */
#define WHOLE_WINDOWS                          \
    &(const struct max_pool_grad_attrs)        \
    {                                          \
        { 6, 7, 0 }, { 1, 1, 1 }, { 1, 1, 1 }, \
        {                                      \
            1, 2, 0                            \
        }                                      \
    }

static const aril__sample max_pool_grad_samples[] = {
    { .in = { "[2,2,2,3]", "i25[2,2,2,3]", "[2,2,5,5]" },
      .attrs = WHOLE_WINDOWS,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,2,2,3]", "i20[2,2,2,3]", "[2,2,4,5]" },
      .attrs = ANY_WINDOWS,
      .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3]", "i5[1,2,3]", "[1,2,5]" }, .attrs = ANY_WINDOWS },
    { .in = { "[1,2,1,2,1]", "i8[1,2,1,2,1]", "[1,2,2,2,2]" }, .attrs = ANY_WINDOWS },
    { .in = { "[0,2,3]", "i5[0,2,3]", "[0,2,5]" }, .attrs = ANY_WINDOWS },
    SAMPLE_END
};
OP(max_pool_grad, .doc = "gradient of max pooling: sums by index, in the shape of the third input",
   .min_in = 3, .max_in = 3, .n_out = 1, .shape_only = IN(2),
   .flags = GRADIENT | STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT,
   .infer = max_pool_grad_infer, .ref = max_pool_grad_ref, .vjp = max_pool_grad_vjp,
   .saves = { IN(1) }, .samples = max_pool_grad_samples, WITH_ATTRS(max_pool_grad));

VJP(max_pool_pick)
{
    const aril__op *back = &aril__op_max_pool_grad;
    if (c->g[0]) GRAD(0, aril__op_with(ANY_WINDOWS, back, c->g[0], c->x[1], c->x[0]));
}

static const aril__sample max_pool_pick_samples[] = { { .in = { "[2,2,4,5]", "i20[2,2,2,3]" },
                                                        .flags = SAMPLE_BATCH },
                                                      { .in = { "[1,2,5]", "i5[1,2,3]" } },
                                                      SAMPLE_END };
OP(max_pool_pick, .doc = "elements at the indices from max pooling", .min_in = 2, .max_in = 2,
   .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT,
   .infer = max_pool_pick_infer, .ref = max_pool_pick_ref, .vjp = max_pool_pick_vjp,
   .saves = { IN(1) | LIKE(0) }, .samples = max_pool_pick_samples);

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
OP(avg_pool, .doc = "average pooling", .onnx = "AveragePool", .min_in = 1, .max_in = 1, .n_out = 1,
   .cast = CAST_BY_CALL, .cast_of = pool_cast, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT,
   .infer = pool_infer, .ref = avg_pool_ref, .vjp = avg_pool_vjp, .saves = { LIKE(0) },
   .samples = avg_pool_samples, WITH_ATTRS(pool));

static const aril__sample avg_pool_grad_samples[] = {
    { .in = { "[2,2,2,3]", "[2,2,4,6]" }, .attrs = POOL2, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,4,3]", "[1,2,6,5]" }, .attrs = PADDED, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,3]", "[1,2,4,5]" }, .attrs = DIVIDED },
    SAMPLE_END
};
OP(avg_pool_grad, .doc = "gradient of avg_pool, in the shape of the second input", .min_in = 2,
   .max_in = 2, .n_out = 1, .shape_only = IN(1), .flags = GRADIENT | STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT, .infer = avg_grad_infer, .ref = avg_pool_grad_ref,
   .workspace = avg_pool_grad_scratch, .vjp = avg_pool_grad_vjp, .samples = avg_pool_grad_samples,
   WITH_ATTRS(pool));

static const aril__sample adaptive_avg_pool_samples[] = {
    { .in = { "[2,2,4,6]" }, .attrs = TO_SIZE(2, 4, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,5]" }, .attrs = TO_SIZE(5, -1, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,7]" }, .attrs = TO_SIZE(3, 0, 0) },
    { .in = { "[1,2,3,4,2]" }, .attrs = TO_SIZE(1, 1, 1), .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(adaptive_avg_pool, .doc = "average pooling to a given output size", .min_in = 1, .max_in = 1,
   .n_out = 1, .cast = CAST_BY_CALL, .cast_of = pool_cast, .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT, .infer = pool_infer, .ref = avg_pool_ref, .vjp = avg_pool_vjp,
   .saves = { LIKE(0) }, .samples = adaptive_avg_pool_samples, WITH_ATTRS(pool));

static const aril__sample adaptive_avg_pool_grad_samples[] = {
    { .in = { "[2,2,2,4]", "[2,2,4,6]" }, .attrs = TO_SIZE(2, 4, 0), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3]", "[1,2,7]" }, .attrs = TO_SIZE(3, 0, 0) },
    SAMPLE_END
};
OP(adaptive_avg_pool_grad, .doc = "gradient of adaptive_avg_pool, in the shape of the second input",
   .min_in = 2, .max_in = 2, .n_out = 1, .shape_only = IN(1),
   .flags = GRADIENT | STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT, .infer = avg_grad_infer,
   .ref = avg_pool_grad_ref, .workspace = avg_pool_grad_scratch, .vjp = avg_pool_grad_vjp,
   .samples = adaptive_avg_pool_grad_samples, WITH_ATTRS(pool));

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
OP(max_unpool, .doc = "inverse of max pooling: elements at their indices, 0 elsewhere",
   .onnx = "MaxUnpool", .min_in = 2, .max_in = 2, .n_out = 1, .cast = CAST_F32,
   .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT | DT_INT, .infer = max_unpool_infer,
   .ref = max_unpool_ref, .vjp = max_unpool_vjp, .saves = { IN(1) }, .samples = max_unpool_samples,
   WITH_ATTRS(pool));
