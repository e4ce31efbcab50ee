/* Batch normalization: statistics of each channel over the batch and all positions. */
#include "ops/norm/norm.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "ops/elementwise/activation.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"

#include <math.h>

/* ---- shared by shape inference ---- */

aril_status aril__norm_param(const aril__call *c, int i, const char *name, int64_t size)
{
    const aril_tensor *x = c->in[0], *p = i < c->n_in ? c->in[i] : NULL;
    char text[ARIL__SHAPE_TEXT], of[ARIL__SHAPE_TEXT];
    if (!p) return ARIL_OK;
    if (p->ndim != 1 || !aril__size_fits(p->dim[0], size))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: %s is %s, expected one value for each of the %lld "
                          "channels of %s",
                          c->op->name, name, aril__text(text, p), (long long)size,
                          aril__text(of, x));
    if (p->dtype != x->dtype && p->dtype != aril__stat_dtype(x))
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s is %s, expected %s like the input", c->op->name,
                          name, aril__dtypes[p->dtype].name, aril__dtypes[x->dtype].name);
    return ARIL_OK;
}

aril_tensor *aril__norm_channels(aril_tensor *v, int ndim)
{
    if (ndim <= 2) return v;
    struct unsqueeze_attrs a = { { ((1 << (ndim - 2)) - 1) << 1 } };
    return aril__op_with(&a, &aril__op_unsqueeze, v);
}

aril_tensor *aril__norm_sum_channels(aril_tensor *x)
{
    struct reduce_attrs a = { .mask = { ((1 << x->ndim) - 1) & ~2 } };
    return aril__op_with(&a, &aril__op_sum, x);
}

/* A residual must have x's shape and dtype. */
static aril_status check_like_x(const aril__call *c, int i, const char *name)
{
    const aril_tensor *x = c->in[0], *t = c->in[i];
    if (!t) return ARIL_OK;
    bool fits = t->ndim == x->ndim;
    for (int d = 0; d < x->ndim && fits; d++) fits = aril__size_fits(t->dim[d], x->dim[d]);
    if (!fits) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s has shape %s, but the input has %s", c->op->name,
                          name, aril__text(a, t), aril__text(b, x));
    }
    if (t->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s is %s, expected %s like the input", c->op->name,
                          name, aril__dtypes[t->dtype].name, aril__dtypes[x->dtype].name);
    return ARIL_OK;
}

/* ---- references ---- */

static int64_t each_channel(const aril_tensor *x)
{
    return x->dim[1] ? x->numel / x->dim[1] : 0;
}

/* The position in row-major order of the k-th element of channel c of x, [N,C,...]. */
static int64_t in_channel(const aril_tensor *x, int64_t c, int64_t k)
{
    int64_t inner = aril__count(x->ndim - 2, x->dim + 2);
    return (k / inner * x->dim[1] + c) * inner + k % inner;
}

/* y = act((x - mean) * invstd * weight + bias + residual) of channel c. in: x, weight?, bias? */
static void normalize_channel(const aril__run *r, int64_t c, double mean, double invstd,
                              const aril_tensor *residual, int64_t act)
{
    const aril_tensor *x = r->in[0];
    double scale = invstd * aril__param_at(r->in[1], c, 1), shift = aril__param_at(r->in[2], c, 0);
    for (int64_t k = 0; k < each_channel(x); k++) {
        int64_t i = in_channel(x, c, k);
        double y = (aril__get(x, i) - mean) * scale + shift + aril__param_at(residual, i, 0);
        aril__put(r->out[0], i, aril__activate(act, y));
    }
}

/* Moves a running value towards that of the batch. */
static void update_running(aril_tensor *running, int64_t c, double momentum, double value)
{
    if (running) aril__put(running, c, (1 - momentum) * aril__get(running, c) + momentum * value);
}

/* ---- batch_norm_grad ---- */

ATTR_LIST(batch_norm_grad, BATCH_NORM_GRAD_ATTRS)

/* in: x, g, weight?, mean, invstd, y?, bias?; out: dx, dweight, dbias, dresidual
 * An activation's derivative is computed from y or, for relu without y, recomputed from x. A bias
 * beside y says that there was no residual: rows may then recompute y's derivative, too.
 * dresidual is the gradient before the activation; empty unless the attributes request it. */
static aril_status batch_norm_grad_infer(aril__call *c)
{
    const struct batch_norm_grad_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *mean = c->in[3];
    aril_status s = check_like_x(c, 1, "a gradient");
    if (s == ARIL_OK) s = check_like_x(c, 5, "a result");
    if (s == ARIL_OK) s = aril__activation_check(c->op->name, a->activation[0]);
    if (s < 0) return s;
    if (a->activation[0] > ARIL_RELU && !c->in[5])
        return aril__fail(ARIL_ERR_ARG, "%s: the derivative of this activation needs the output",
                          c->op->name);
    for (int i = 0; i < 4; i++) {
        bool large = i == 0 || (i == 3 && a->residual[0]);
        c->out[i].dtype = (aril_dtype)(large || i == 3 ? x->dtype : mean->dtype);
        c->out[i].ndim = large ? x->ndim : 1;
        c->out[i].dim[0] = i == 3 ? 0 : mean->dim[0];
        for (int d = 0; d < x->ndim && large; d++) c->out[i].dim[d] = x->dim[d];
    }
    return ARIL_OK;
}

/* The gradient before the activation, whose derivative is computed from y, of element i. */
static double grad_before(const aril__run *r, int64_t c, int64_t i)
{
    int64_t act = ((const struct batch_norm_grad_attrs *)r->attrs)->activation[0];
    double g = aril__get(r->in[1], i);
    if (!act || r->in[5]) return act ? aril__activate_grad(act, g, aril__get(r->in[5], i)) : g;
    double xhat = (aril__get(r->in[0], i) - aril__get(r->in[3], c)) * aril__get(r->in[4], c);
    double y = xhat * aril__param_at(r->in[2], c, 1) + aril__param_at(r->in[6], c, 0);
    return aril__activate_grad(act, g, y);
}

/* With h = the gradient before the activation and xhat = (x - mean) * invstd:
 *     dbias = sum h,  dweight = sum h * xhat,
 *     dx = weight * invstd * (h - (dbias + xhat * dweight) / n) */
static aril_status batch_norm_grad_ref(aril__run *r)
{
    const struct batch_norm_grad_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    int64_t n = each_channel(x);
    for (int64_t c = 0; c < x->dim[1]; c++) {
        double mean = aril__get(r->in[3], c), invstd = aril__get(r->in[4], c);
        double dweight = 0, dbias = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = in_channel(x, c, k);
            double h = grad_before(r, c, i);
            dweight += h * (aril__get(x, i) - mean) * invstd;
            dbias += h;
            if (a->residual[0]) aril__put(r->out[3], i, h);
        }
        for (int64_t k = 0; k < n; k++) {
            int64_t i = in_channel(x, c, k);
            double h = grad_before(r, c, i), xhat = (aril__get(x, i) - mean) * invstd;
            double dx = invstd * (h - (dbias + xhat * dweight) / (double)n);
            aril__put(r->out[0], i, aril__param_at(r->in[2], c, 1) * dx);
        }
        aril__put(r->out[1], c, dweight);
        aril__put(r->out[2], c, dbias);
    }
    return ARIL_OK;
}

static void batch_norm_grad_decompose(aril__call *c, aril_tensor **out)
{
    const struct batch_norm_grad_attrs *at = c->attrs;
    aril_tensor *mean = c->in[3], *invstd = c->in[4], *weight = c->in[2], *bias = c->in[6];
    aril_dtype stat = (aril_dtype)mean->dtype, type = (aril_dtype)c->in[0]->dtype;
    int n = c->in[0]->ndim;
    aril_tensor *x = aril_cast(c->in[0], stat), *g = aril_cast(c->in[1], stat);
    aril_tensor *s = aril__norm_channels(invstd, n);
    aril_tensor *xhat = aril_mul(aril_sub(x, aril__norm_channels(mean, n)), s);
    aril_tensor *w = weight ? aril__norm_channels(aril_cast(weight, stat), n) : NULL;
    if (at->activation[0]) {
        aril_tensor *y = c->in[5] ? aril_cast(c->in[5], stat) : NULL;
        if (!y) y = w ? aril_mul(xhat, w) : xhat;
        if (!c->in[5] && bias) y = aril_add(y, aril__norm_channels(aril_cast(bias, stat), n));
        g = aril__activation_grad(g, y, at->activation[0]);
    }
    aril_tensor *dweight = aril__norm_sum_channels(aril_mul(g, xhat));
    aril_tensor *dbias = aril__norm_sum_channels(g);
    aril_tensor *count = aril__count_like(x, mean);
    aril_tensor *a = aril__norm_channels(aril_div(dbias, count), n);
    aril_tensor *b = aril__norm_channels(aril_div(dweight, count), n);
    aril_tensor *scale = w ? aril_mul(s, w) : s;
    aril_tensor *dx = aril_mul(scale, aril_sub(aril_sub(g, a), aril_mul(xhat, b)));
    out[0] = aril_cast(dx, type);
    out[1] = dweight;
    out[2] = dbias;
    out[3] = at->residual[0] ? aril_cast(g, type)
                             : aril_zeros(ARIL_SHAPE(0), type, aril_device_of(c->in[0]));
}

#define GRAD_OF(act, residual)            \
    &(const struct batch_norm_grad_attrs) \
    {                                     \
        { act },                          \
        {                                 \
            residual                      \
        }                                 \
    }
static const aril__sample batch_norm_grad_samples[] = {
    { .in = { "[4,3]", "[4,3]", "+[3]", "[3]", "+[3]", "-", "-" },
      .attrs = GRAD_OF(0, 0),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2,2]", "[2,3,2,2]", "-", "[3]", "+[3]", "-", "-" }, .attrs = GRAD_OF(0, 0) },
    { .in = { "[2,3,2,2]", "[2,3,2,2]", "+[3]", "[3]", "+[3]", "k[2,3,2,2]", "-" },
      .attrs = GRAD_OF(ARIL_RELU, 1) },
    { .in = { "k[2,3,2,2]", "[2,3,2,2]", "+[3]", "![3]", "!+[3]", "-", "![3]" },
      .attrs = GRAD_OF(ARIL_RELU, 0) },
    { .in = { "[3,70]", "[3,70]", "+[70]", "[70]", "+[70]", "u[3,70]", "-" },
      .attrs = GRAD_OF(ARIL_TANH, 1),
      .flags = SAMPLE_BATCH | SAMPLE_NO_SECOND },
    { .in = { "[2,2,5]", "[2,2,5]", "-", "[2]", "+[2]", "p[2,2,5]", "-" },
      .attrs = GRAD_OF(ARIL_SIGMOID, 0) },
    { .in = { "[0,3,2]", "[0,3,2]", "+[3]", "[3]", "+[3]", "-", "-" }, .attrs = GRAD_OF(0, 0) },
    SAMPLE_END
};
OP(batch_norm_grad, .doc = "gradient of batch_norm with respect to x, weight, bias and residual",
   .min_in = 7, .max_in = 7, .n_out = 4, .flags = GRADIENT | STRIDED | KEEPS_ORDER,
   .optional = IN(2) | IN(5) | IN(6), .types = DT_FLOAT, .infer = batch_norm_grad_infer,
   .ref = batch_norm_grad_ref, .decompose = batch_norm_grad_decompose,
   .samples = batch_norm_grad_samples, WITH_ATTRS(batch_norm_grad));

/* ---- batch_norm ---- */

ATTR_LIST(batch_norm, BATCH_NORM_ATTRS)

static aril_status check_input(const aril__call *c)
{
    const aril_tensor *x = c->in[0];
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 2)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected [N,C,...], got %s", c->op->name,
                          aril__text(text, x));
    return ARIL_OK;
}

static void like_input(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) c->out[0].dim[d] = x->dim[d];
}

/* in: x, weight?, bias?, running_mean?, running_var?, batches?, residual?
 * out: y, mean, 1 / sqrt(var + eps), and the updated running values */
static aril_status batch_norm_infer(aril__call *c)
{
    static const char *const name[] = { "", "weight", "bias", "running_mean", "running_var" };
    const aril_tensor *x = c->in[0], *batches = c->in[5];
    const struct batch_norm_attrs *a = c->attrs;
    aril_status s = check_input(c);
    for (int i = 1; i < 5 && s == ARIL_OK; i++) s = aril__norm_param(c, i, name[i], x->dim[1]);
    if (s == ARIL_OK) s = check_like_x(c, 6, "a residual");
    if (s == ARIL_OK) s = aril__activation_check(c->op->name, a->activation[0]);
    if (s < 0) return s;
    if (x->numel > 0 && x->numel == x->dim[1]) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "batch_norm: training needs more than one value per channel, got %s",
                          aril__text(text, x));
    }
    if (!(a->eps[0] > 0))
        return aril__fail(ARIL_ERR_ARG, "batch_norm: eps must be above 0 in training, got %g",
                          a->eps[0]);
    if (batches && (batches->dtype != ARIL_I64 || batches->ndim))
        return aril__fail(ARIL_ERR_ARG, "batch_norm: num_batches must be an i64 scalar");
    if (a->cumulative[0] && !batches && (c->in[3] || c->in[4]))
        return aril__fail(ARIL_ERR_ARG, "batch_norm: cumulative averages need num_batches");
    like_input(c);
    for (int i = 1; i < 3; i++) {
        c->out[i].dtype = aril__stat_dtype(x);
        c->out[i].ndim = 1;
        c->out[i].dim[0] = x->dim[1];
    }
    for (int i = 3; i < 6; i++)
        if (c->in[i]) {
            c->out[i].dtype = (aril_dtype)c->in[i]->dtype;
            c->out[i].ndim = c->in[i]->ndim;
            c->out[i].dim[0] = c->in[i]->dim[0];
        }
    return ARIL_OK;
}

/* Running variances are unbiased. An empty batch leaves running values as they are. */
static aril_status batch_norm_ref(aril__run *r)
{
    const struct batch_norm_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    aril_tensor *batches = r->out[5];
    int64_t n = each_channel(x);
    double count = n ? (double)n : 1, momentum = a->momentum[0];
    if (batches) aril__put_i64(batches, 0, aril__get_i64(batches, 0) + 1);
    if (batches && a->cumulative[0]) momentum = 1 / (double)aril__get_i64(batches, 0);
    for (int64_t c = 0; c < x->dim[1]; c++) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < n; k++) sum += aril__get(x, in_channel(x, c, k));
        double mean = sum / count;
        for (int64_t k = 0; k < n; k++) {
            double d = aril__get(x, in_channel(x, c, k)) - mean;
            squares += d * d;
        }
        double invstd = 1 / sqrt(squares / count + a->eps[0]);
        normalize_channel(r, c, mean, invstd, r->in[6], a->activation[0]);
        aril__put(r->out[1], c, mean);
        aril__put(r->out[2], c, invstd);
        if (n) update_running(r->out[3], c, momentum, mean);
        if (n) update_running(r->out[4], c, momentum, squares / (count - 1));
    }
    return ARIL_OK;
}

/* The mean and 1 / sqrt(var + eps) are results too: second derivatives flow through them. */
VJP(batch_norm)
{
    const struct batch_norm_attrs *at = c->attrs;
    aril_tensor *g = c->g[0], *dx = NULL, *x = c->x[0];
    int64_t act = at->activation[0];
    if (g && (c->wants[0] || c->wants[1])) {
        /* Without a residual, relu's derivative is recomputed from x, and y is not read again. */
        bool by_x = act == ARIL_RELU && !c->x[6], by_either = act == ARIL_RELU6 && !c->x[6];
        struct batch_norm_grad_attrs a = { { act }, { act && c->wants[6] } };
        aril_tensor *out[4], *in[7] = { x,
                                        g,
                                        c->wants[0] || by_x || by_either ? c->x[1] : NULL,
                                        c->y[1],
                                        c->y[2],
                                        act && !by_x ? c->y[0] : NULL,
                                        by_x || by_either ? c->x[2] : NULL };
        aril__apply(&aril__op_batch_norm_grad, 7, in, &a, out);
        dx = out[0];
        GRAD(1, aril_cast(out[1], (aril_dtype)c->x[1]->dtype));
        GRAD(2, aril_cast(out[2], (aril_dtype)c->x[2]->dtype));
        GRAD(6, act ? out[3] : g);
    } else if (g && (c->wants[2] || c->wants[6])) {
        aril_tensor *before = aril__activation_grad(g, c->y[0], act);
        aril_dtype stat = aril__stat_dtype(g);
        GRAD(6, before);
        if (c->wants[2])
            c->dx[2] = aril_cast(aril__norm_sum_channels(aril_cast(before, stat)),
                                 (aril_dtype)c->x[2]->dtype);
    }
    if (c->wants[0] && (c->g[1] || c->g[2])) {
        aril_tensor *mean = c->y[1], *s = c->y[2], *more = NULL;
        aril_tensor *wide = aril_cast(x, (aril_dtype)mean->dtype);
        aril_tensor *count = aril__count_like(wide, mean);
        if (c->g[1])
            more = aril__expand_like(aril__norm_channels(aril_div(c->g[1], count), x->ndim), x);
        if (c->g[2]) {
            aril_tensor *cube = aril_mul(aril_square(s), s);
            aril_tensor *k = aril_neg(aril_div(aril_mul(c->g[2], cube), count));
            aril_tensor *part = aril_mul(aril_sub(wide, aril__norm_channels(mean, x->ndim)),
                                         aril__norm_channels(k, x->ndim));
            more = more ? aril_add(more, part) : part;
        }
        more = aril_cast(more, (aril_dtype)x->dtype);
        dx = dx ? aril_add(dx, more) : more;
    }
    if (dx) GRAD(0, dx);
}

#define USUAL(act)                   \
    &(const struct batch_norm_attrs) \
    {                                \
        { 0.1 }, { 1e-5 }, { 0 },    \
        {                            \
            act                      \
        }                            \
    }
static const aril__sample batch_norm_samples[] = {
    { .in = { "[4,3]", "+[3]", "[3]", "-", "-", "-", "-" },
      .attrs = USUAL(0),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "-", "-", "-", "-", "-", "-" }, .attrs = USUAL(0) },
    { .in = { "[2,2,3,2]", "+[2]", "[2]", "[2]", "+[2]", "-", "-" },
      .attrs = USUAL(0),
      .flags = SAMPLE_NO_GRAD },
    { .in = { "[2,2,2,2,3]", "-", "[2]", "-", "-", "-", "-" },
      .attrs = &(const struct batch_norm_attrs){ { 0.3 }, { 0.1 }, { 0 }, { 0 } } },
    { .in = { "[2,3,4,2]", "+[3]", "[3]", "-", "-", "-", "-" }, .attrs = USUAL(ARIL_RELU) },
    { .in = { "[3,2,3,2]", "+[2]", "[2]", "-", "-", "-", "[3,2,3,2]" }, .attrs = USUAL(ARIL_RELU) },
    { .in = { "[4,3]", "+[3]", "[3]", "-", "-", "-", "[4,3]" },
      .attrs = USUAL(ARIL_TANH),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,2,5]", "+[2]", "-", "-", "-", "-", "[2,2,5]" }, .attrs = USUAL(0) },
    { .in = { "[2,3,3]", "-", "[3]", "-", "-", "-", "-" }, .attrs = USUAL(ARIL_SIGMOID) },
    { .in = { "[3,70]", "+[70]", "[70]", "-", "-", "-", "[3,70]" },
      .attrs = USUAL(ARIL_LEAKY_RELU),
      .flags = SAMPLE_NO_SECOND },
    { .in = { "[0,2,3]", "+[2]", "[2]", "-", "-", "-", "-" }, .attrs = USUAL(0) },
    SAMPLE_END
};
OP(batch_norm, .doc = "batch normalization in training, with an optional residual and activation",
   .min_in = 7, .max_in = 7, .n_out = 6,
   .out = { FRESH, FRESH, FRESH, WRITES(3), WRITES(4), WRITES(5) },
   .flags = STRIDED | KEEPS_ORDER | INPLACE,
   .optional = IN(1) | IN(2) | IN(3) | IN(4) | IN(5) | IN(6), .types = DT_FLOAT,
   .infer = batch_norm_infer, .ref = batch_norm_ref, .vjp = batch_norm_vjp,
   .saves = { IN(0) | IN(1) | IN(2) | LIKE(6) | OUT(1) | OUT(2),
              IN(0) | IN(1) | IN(2) | LIKE(6) | OUT(1) | OUT(2), LIKE(2), 0 },
   .samples = batch_norm_samples, WITH_ATTRS(batch_norm), WITH_ACTIVATION(batch_norm));

/* ---- batch_norm_eval ---- */

ATTR_LIST(batch_norm_eval, BATCH_NORM_EVAL_ATTRS)

/* in: x, weight?, bias?, mean, var, residual? */
static aril_status batch_norm_eval_infer(aril__call *c)
{
    static const char *const name[] = { "", "weight", "bias", "the mean", "the variance" };
    aril_status s = check_input(c);
    for (int i = 1; i < 5 && s == ARIL_OK; i++)
        s = aril__norm_param(c, i, name[i], c->in[0]->dim[1]);
    if (s == ARIL_OK) s = check_like_x(c, 5, "a residual");
    if (s == ARIL_OK)
        s = aril__activation_check(c->op->name,
                                   ((const struct batch_norm_eval_attrs *)c->attrs)->activation[0]);
    like_input(c);
    return s;
}

static aril_status batch_norm_eval_ref(aril__run *r)
{
    const struct batch_norm_eval_attrs *a = r->attrs;
    for (int64_t c = 0; c < r->in[0]->dim[1]; c++) {
        double invstd = 1 / sqrt(aril__get(r->in[4], c) + a->eps[0]);
        normalize_channel(r, c, aril__get(r->in[3], c), invstd, r->in[5], a->activation[0]);
    }
    return ARIL_OK;
}

VJP(batch_norm_eval)
{
    const struct batch_norm_eval_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_dtype stat = aril__stat_dtype(c->g[0]), type = (aril_dtype)c->g[0]->dtype;
    int n = c->g[0]->ndim;
    aril_tensor *before = aril__activation_grad(c->g[0], c->y[0], a->activation[0]);
    GRAD(5, before);
    aril_tensor *g = aril_cast(before, stat);
    aril_tensor *s = NULL, *scale = NULL, *dot = NULL;
    if (c->wants[2]) c->dx[2] = aril_cast(aril__norm_sum_channels(g), (aril_dtype)c->x[2]->dtype);
    if (!(c->wants[0] || c->wants[1] || c->wants[3] || c->wants[4])) return;
    s = aril_rsqrt(aril_add_scalar(aril_cast(c->x[4], stat), a->eps[0]));
    if (c->wants[0] || c->wants[3] || c->wants[4])
        scale = c->x[1] ? aril_mul(s, aril_cast(c->x[1], stat)) : s;
    if (c->wants[0]) c->dx[0] = aril_cast(aril_mul(g, aril__norm_channels(scale, n)), type);
    if (c->wants[3])
        c->dx[3] = aril_cast(aril_neg(aril_mul(aril__norm_sum_channels(g), scale)),
                             (aril_dtype)c->x[3]->dtype);
    if (c->wants[1] || c->wants[4]) {
        aril_tensor *x = aril_cast(c->x[0], stat);
        aril_tensor *mean = aril__norm_channels(aril_cast(c->x[3], stat), n);
        dot = aril__norm_sum_channels(aril_mul(g, aril_sub(x, mean)));
        GRAD(1, aril_cast(aril_mul(dot, s), (aril_dtype)c->x[1]->dtype));
    }
    if (c->wants[4])
        c->dx[4] = aril_cast(aril_mul_scalar(aril_mul(aril_mul(dot, scale), aril_square(s)), -0.5),
                             (aril_dtype)c->x[4]->dtype);
}

#define GIVEN(act)                        \
    &(const struct batch_norm_eval_attrs) \
    {                                     \
        { 1e-5 },                         \
        {                                 \
            act                           \
        }                                 \
    }
static const aril__sample batch_norm_eval_samples[] = {
    { .in = { "[4,3]", "+[3]", "[3]", "[3]", "+[3]", "-" },
      .attrs = GIVEN(0),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2,2]", "-", "-", "[3]", "+[3]", "-" }, .attrs = GIVEN(0) },
    { .in = { "[2,3,2]", "+[3]", "-", "[3]", "+[3]", "-" },
      .attrs = &(const struct batch_norm_eval_attrs){ { 0.1 }, { 0 } } },
    { .in = { "[2,3,4,2]", "+[3]", "[3]", "[3]", "+[3]", "[2,3,4,2]" }, .attrs = GIVEN(ARIL_RELU) },
    { .in = { "[2,3,4]", "+[3]", "[3]", "[3]", "+[3]", "-" }, .attrs = GIVEN(ARIL_RELU6) },
    { .in = { "[3,70]", "+[70]", "[70]", "[70]", "+[70]", "[3,70]" },
      .attrs = GIVEN(ARIL_SIGMOID),
      .flags = SAMPLE_BATCH | SAMPLE_NO_SECOND },
    { .in = { "[0,3,2]", "+[3]", "[3]", "[3]", "+[3]", "-" }, .attrs = GIVEN(0) },
    SAMPLE_END
};
OP(batch_norm_eval,
   .doc = "batch normalization with given statistics, optional residual and activation",
   .onnx = "BatchNormalization", .min_in = 6, .max_in = 6, .n_out = 1,
   .flags = STRIDED | KEEPS_ORDER | INPLACE, .optional = IN(1) | IN(2) | IN(5), .types = DT_FLOAT,
   .infer = batch_norm_eval_infer, .ref = batch_norm_eval_ref, .vjp = batch_norm_eval_vjp,
   .saves = { IN(1) | IN(4), IN(0) | LIKE(1) | IN(3) | IN(4), LIKE(2),
              IN(0) | IN(1) | IN(3) | IN(4) },
   .samples = batch_norm_eval_samples, WITH_ATTRS(batch_norm_eval),
   WITH_ACTIVATION(batch_norm_eval));

/* ---- public ---- */

static aril_tensor *batch_norm_to(aril_tensor *dest, aril_tensor *x, aril_tensor *weight,
                                  aril_tensor *bias, aril_tensor *running_mean,
                                  aril_tensor *running_var, const aril_batch_norm_opts *o)
{
    double eps = aril__or_default(o->eps, 1e-5);
    struct batch_norm_eval_attrs eval = { { eps }, { o->activation } };
    struct batch_norm_attrs train = {
        { aril__or_default(o->momentum, 0.1) }, { eps }, { o->cumulative }, { o->activation }
    };
    aril_tensor *given[] = { x, weight, bias, running_mean, running_var, o->residual };
    aril_tensor *own[] = { x, weight, bias, running_mean, running_var, o->batches, o->residual };
    const aril__op *op = o->eval ? &aril__op_batch_norm_eval : &aril__op_batch_norm;
    const void *attrs = o->eval ? (const void *)&eval : &train;
    aril_tensor *const *in = o->eval ? given : own;
    int n = o->eval ? 6 : 7;
    return dest ? aril__apply_to(dest, op, n, in, attrs) : aril__apply1(op, n, in, attrs);
}

aril_tensor *aril_batch_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                             aril_tensor *running_mean, aril_tensor *running_var,
                             aril_batch_norm_opts opts)
{
    return batch_norm_to(NULL, x, weight, bias, running_mean, running_var, &opts);
}

aril_tensor *aril_batch_norm_(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                              aril_tensor *running_mean, aril_tensor *running_var,
                              aril_batch_norm_opts opts)
{
    if (!x) return aril__null_tensor("batch_norm_");
    return batch_norm_to(x, x, weight, bias, running_mean, running_var, &opts);
}
