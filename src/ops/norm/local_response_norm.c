/* Local response normalization: scales each element by the squares of adjacent channels. */
#include "aril/conv.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/norm/norm.h"
#include "ops/vision/pool.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <math.h>

/* ---- references ---- */

/* The channels o of a window around channel c are from <= o - c <= to; the others of an element are
 * `step` apart in row-major order. */
typedef struct window {
    int64_t c, from, to, step;
} window;

/* Of element i of x, [N,C,...]. */
static window window_at(const aril_tensor *x, int64_t i, int64_t before, int64_t after)
{
    window w = { .step = aril__count(x->ndim - 2, x->dim + 2) };
    w.c = i / w.step % x->dim[1];
    w.from = before < w.c ? -before : -w.c;
    w.to = after < x->dim[1] - 1 - w.c ? after : x->dim[1] - 1 - w.c;
    return w;
}

/* s = k + alpha * the mean square over the window of element i; size counts channels outside. */
static double scale_at(const aril__run *r, int64_t i)
{
    const struct local_response_norm_attrs *a = r->attrs;
    int64_t size = a->size[0];
    window w = window_at(r->in[0], i, size / 2, (size - 1) / 2);
    double sum = 0;
    for (int64_t o = w.from; o <= w.to; o++) {
        double x = aril__get(r->in[0], i + o * w.step);
        sum += x * x;
    }
    return a->k[0] + a->alpha[0] * sum / (double)size;
}

/* y = x / s^beta */
static aril_status local_response_norm_ref(aril__run *r)
{
    double beta = ((const struct local_response_norm_attrs *)r->attrs)->beta[0];
    for (int64_t i = 0; i < r->in[0]->numel; i++)
        aril__put(r->out[0], i, aril__get(r->in[0], i) / pow(scale_at(r, i), beta));
    return ARIL_OK;
}

/* dx = g / s^beta - 2 alpha beta / size * x * the sum of g x / s^(beta + 1) over the elements whose
 * window contains x */
static aril_status local_response_norm_grad_ref(aril__run *r)
{
    const struct local_response_norm_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0], *g = r->in[1];
    int64_t size = a->size[0];
    double beta = a->beta[0], factor = 2 * a->alpha[0] * beta / (double)size;
    for (int64_t i = 0; i < x->numel; i++) {
        window w = window_at(x, i, (size - 1) / 2, size / 2);
        double sum = 0;
        for (int64_t o = w.from; o <= w.to; o++) {
            int64_t at = i + o * w.step;
            sum += aril__get(g, at) * aril__get(x, at) / pow(scale_at(r, at), beta + 1);
        }
        double dx = aril__get(g, i) / pow(scale_at(r, i), beta) - factor * aril__get(x, i) * sum;
        aril__put(r->out[0], i, dx);
    }
    return ARIL_OK;
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s does not match input %s", c->op->name,
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
OP(local_response_norm_grad, .doc = "gradient of local_response_norm with respect to x",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = GRADIENT | STRIDED | KEEPS_ORDER,
   .types = DT_FLOAT, .infer = local_response_norm_infer, .ref = local_response_norm_grad_ref,
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
OP(local_response_norm, .doc = "local response normalization over neighboring channels",
   .onnx = "LRN", .min_in = 1, .max_in = 1, .n_out = 1, .flags = STRIDED | KEEPS_ORDER,
   .types = DT_FLOAT, .infer = local_response_norm_infer, .ref = local_response_norm_ref,
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
