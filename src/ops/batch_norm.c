/* Batch normalisation: statistics of each channel over the batch and all positions. */
#include "ops/norm.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/apply.h"
#include "ops/like.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/sample.h"
#include "ops/targets.h"
#include "ops/view.h"

#include <math.h>

/* ---- shared by rules ---- */

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
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s is %s, expected %s as the input", c->op->name,
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

/* ---- kernels ---- */

enum { BLOCK = 128, GRAIN = 32 * 1024 };
enum { FORWARD, EVAL, BACKWARD };

typedef struct norm_job {
    int kind;
    int64_t outer, channels, inner;
    double eps, factor;
    const void *x, *g, *weight, *bias;
    void *y, *mean, *invstd, *running_mean, *running_var, *dweight, *dbias;
} norm_job;

#define TEMPLATE "ops/batch_norm.inc"
#include "ops/each_target.inc"

static void *optional_ptr(const aril_tensor *t)
{
    return t ? aril__ptr(t) : NULL;
}

static void run_blocks(norm_job *j, aril_dtype type)
{
    int64_t per = j->outer * j->inner;
    int64_t grain = GRAIN / (per > 0 ? per : 1);
    /* Whole cache lines of short runs to a chunk. */
    int64_t least = j->inner >= 16 ? 1 : 64;
    aril__parallel_for(j->channels, grain > least ? grain : least,
                       ARIL__PICK(range, type == ARIL_F64), j);
}

static void run_job(norm_job *j, const aril_tensor *x, aril_dtype type)
{
    j->outer = x->dim[0];
    j->channels = x->dim[1];
    j->inner = 1;
    for (int d = 2; d < x->ndim; d++) j->inner *= x->dim[d];
    run_blocks(j, type);
}

/* ---- batch_norm_grad ---- */

/* in: x, g, weight?, mean, invstd; out: dx, dweight, dbias */
static aril_status batch_norm_grad_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0], *g = c->in[1], *mean = c->in[3];
    bool fits = g->ndim == x->ndim;
    for (int d = 0; d < x->ndim && fits; d++) fits = aril__size_fits(g->dim[d], x->dim[d]);
    if (!fits) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "batch_norm_grad: gradient %s of an input %s",
                          aril__text(a, g), aril__text(b, x));
    }
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) c->out[0].dim[d] = x->dim[d];
    for (int i = 1; i < 3; i++) {
        c->out[i].dtype = (aril_dtype)mean->dtype;
        c->out[i].ndim = 1;
        c->out[i].dim[0] = mean->dim[0];
    }
    return ARIL_OK;
}

static norm_job batch_norm_grad_job(const aril__run *r)
{
    return (norm_job){ .kind = BACKWARD,
                       .x = aril__ptr(r->in[0]),
                       .g = aril__ptr(r->in[1]),
                       .weight = optional_ptr(r->in[2]),
                       .mean = aril__ptr(r->in[3]),
                       .invstd = aril__ptr(r->in[4]),
                       .y = aril__ptr(r->out[0]),
                       .dweight = aril__ptr(r->out[1]),
                       .dbias = aril__ptr(r->out[2]) };
}

static aril_status batch_norm_grad_ref(aril__run *r)
{
    norm_job j = batch_norm_grad_job(r);
    run_job(&j, r->in[0], r->type);
    return ARIL_OK;
}

static void batch_norm_grad_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *mean = c->in[3], *invstd = c->in[4];
    aril_dtype stat = (aril_dtype)mean->dtype, type = (aril_dtype)c->in[0]->dtype;
    int n = c->in[0]->ndim;
    aril_tensor *x = aril_cast(c->in[0], stat), *g = aril_cast(c->in[1], stat);
    aril_tensor *s = aril__norm_channels(invstd, n);
    aril_tensor *xhat = aril_mul(aril_sub(x, aril__norm_channels(mean, n)), s);
    aril_tensor *dweight = aril__norm_sum_channels(aril_mul(g, xhat));
    aril_tensor *dbias = aril__norm_sum_channels(g);
    aril_tensor *count = aril__count_like(x, mean);
    aril_tensor *a = aril__norm_channels(aril_div(dbias, count), n);
    aril_tensor *b = aril__norm_channels(aril_div(dweight, count), n);
    aril_tensor *scale =
        c->in[2] ? aril_mul(s, aril__norm_channels(aril_cast(c->in[2], stat), n)) : s;
    aril_tensor *dx = aril_mul(scale, aril_sub(aril_sub(g, a), aril_mul(xhat, b)));
    out[0] = aril_cast(dx, type);
    out[1] = dweight;
    out[2] = dbias;
}

static const aril__sample batch_norm_grad_samples[] = {
    { .in = { "[4,3]", "[4,3]", "+[3]", "[3]", "+[3]" }, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2,2]", "[2,3,2,2]", "-", "[3]", "+[3]" } },
    { .in = { "[0,3,2]", "[0,3,2]", "+[3]", "[3]", "+[3]" } },
    SAMPLE_END
};
OP(batch_norm_grad, .doc = "gradient of batch_norm: of x, weight and bias", .min_in = 5,
   .max_in = 5, .n_out = 3, .flags = KEEPS_ORDER, .optional = IN(2), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = batch_norm_grad_infer,
   .ref = batch_norm_grad_ref, .decompose = batch_norm_grad_decompose,
   .samples = batch_norm_grad_samples);

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

/* in: x, weight?, bias?, running_mean?, running_var?, batches?
 * out: y, mean, 1 / sqrt(var + eps), and what is written to */
static aril_status batch_norm_infer(aril__call *c)
{
    static const char *const name[] = { "", "weight", "bias", "running_mean", "running_var" };
    const aril_tensor *x = c->in[0], *batches = c->in[5];
    const struct batch_norm_attrs *a = c->attrs;
    aril_status s = check_input(c);
    for (int i = 1; i < 5 && s == ARIL_OK; i++) s = aril__norm_param(c, i, name[i], x->dim[1]);
    if (s < 0) return s;
    if (x->numel > 0 && x->numel == x->dim[1]) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "batch_norm: %s has one value a channel; training needs "
                          "more",
                          aril__text(text, x));
    }
    if (!(a->eps[0] > 0))
        return aril__fail(ARIL_ERR_ARG, "batch_norm: eps must be above 0 in training, is %g",
                          a->eps[0]);
    if (batches && (batches->dtype != ARIL_I64 || batches->ndim))
        return aril__fail(ARIL_ERR_ARG, "batch_norm: the number of batches must be an i64 scalar");
    if (a->cumulative[0] && !batches && (c->in[3] || c->in[4]))
        return aril__fail(ARIL_ERR_ARG,
                          "batch_norm: cumulative averages need the number of batches "
                          "so far");
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

static norm_job batch_norm_job(aril__run *r)
{
    const struct batch_norm_attrs *a = r->attrs;
    norm_job j = { .kind = FORWARD,
                   .eps = a->eps[0],
                   .factor = a->momentum[0],
                   .x = aril__ptr(r->in[0]),
                   .weight = optional_ptr(r->in[1]),
                   .bias = optional_ptr(r->in[2]),
                   .y = aril__ptr(r->out[0]),
                   .mean = aril__ptr(r->out[1]),
                   .invstd = aril__ptr(r->out[2]),
                   .running_mean = optional_ptr(r->out[3]),
                   .running_var = optional_ptr(r->out[4]) };
    int64_t *batches = optional_ptr(r->out[5]);
    if (batches) ++*batches;
    if (a->cumulative[0] && batches) j.factor = 1 / (double)*batches;
    return j;
}

static aril_status batch_norm_ref(aril__run *r)
{
    norm_job j = batch_norm_job(r);
    run_job(&j, r->in[0], r->type);
    return ARIL_OK;
}

/* The mean and 1 / sqrt(var + eps) are results too: second gradients flow through them. */
VJP(batch_norm)
{
    aril_tensor *g = c->g[0], *dx = NULL, *x = c->x[0];
    if (g && (c->wants[0] || c->wants[1])) {
        aril_tensor *out[3], *in[5] = { x, g, c->wants[0] ? c->x[1] : NULL, c->y[1], c->y[2] };
        aril__apply(&aril__op_batch_norm_grad, 5, in, NULL, out);
        dx = out[0];
        GRAD(1, aril_cast(out[1], (aril_dtype)c->x[1]->dtype));
        GRAD(2, aril_cast(out[2], (aril_dtype)c->x[2]->dtype));
    } else if (g && c->wants[2]) {
        aril_dtype stat = aril__stat_dtype(g);
        c->dx[2] =
            aril_cast(aril__norm_sum_channels(aril_cast(g, stat)), (aril_dtype)c->x[2]->dtype);
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

static const struct batch_norm_attrs batch_norm_usual = { { 0.1 }, { 1e-5 }, { 0 } };
static const aril__sample batch_norm_samples[] = {
    { .in = { "[4,3]", "+[3]", "[3]", "-", "-", "-" },
      .attrs = &batch_norm_usual,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "-", "-", "-", "-", "-" }, .attrs = &batch_norm_usual },
    { .in = { "[2,2,3,2]", "+[2]", "[2]", "[2]", "+[2]", "-" },
      .attrs = &batch_norm_usual,
      .flags = SAMPLE_NO_GRAD },
    { .in = { "[2,2,2,2,3]", "-", "[2]", "-", "-", "-" },
      .attrs = &(const struct batch_norm_attrs){ { 0.3 }, { 0.1 }, { 0 } } },
    { .in = { "[0,2,3]", "+[2]", "[2]", "-", "-", "-" }, .attrs = &batch_norm_usual },
    SAMPLE_END
};
OP(batch_norm,
   .doc = "batch normalisation by the batch's own statistics, which update running ones",
   .min_in = 6, .max_in = 6, .n_out = 6,
   .out = { FRESH, FRESH, FRESH, WRITES(3), WRITES(4), WRITES(5) }, .flags = KEEPS_ORDER,
   .optional = IN(1) | IN(2) | IN(3) | IN(4) | IN(5), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = batch_norm_infer, .ref = batch_norm_ref,
   .vjp = batch_norm_vjp,
   .saves = { IN(0) | IN(1) | OUT(1) | OUT(2), IN(0) | LIKE(1) | OUT(1) | OUT(2), LIKE(2), 0 },
   .samples = batch_norm_samples, WITH_ATTRS(batch_norm));

/* ---- batch_norm_eval ---- */

ATTR_LIST(batch_norm_eval, BATCH_NORM_EVAL_ATTRS)

/* in: x, weight?, bias?, mean, var */
static aril_status batch_norm_eval_infer(aril__call *c)
{
    static const char *const name[] = { "", "weight", "bias", "the mean", "the variance" };
    aril_status s = check_input(c);
    for (int i = 1; i < 5 && s == ARIL_OK; i++)
        s = aril__norm_param(c, i, name[i], c->in[0]->dim[1]);
    like_input(c);
    return s;
}

static norm_job batch_norm_eval_job(const aril__run *r)
{
    return (norm_job){ .kind = EVAL,
                       .eps = ((const struct batch_norm_eval_attrs *)r->attrs)->eps[0],
                       .x = aril__ptr(r->in[0]),
                       .weight = optional_ptr(r->in[1]),
                       .bias = optional_ptr(r->in[2]),
                       .mean = aril__ptr(r->in[3]),
                       .invstd = aril__ptr(r->in[4]),
                       .y = aril__ptr(r->out[0]) };
}

static aril_status batch_norm_eval_ref(aril__run *r)
{
    norm_job j = batch_norm_eval_job(r);
    run_job(&j, r->in[0], r->type);
    return ARIL_OK;
}

VJP(batch_norm_eval)
{
    const struct batch_norm_eval_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_dtype stat = aril__stat_dtype(c->g[0]), type = (aril_dtype)c->g[0]->dtype;
    int n = c->g[0]->ndim;
    aril_tensor *g = aril_cast(c->g[0], stat);
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

static const struct batch_norm_eval_attrs batch_norm_eval_usual = { { 1e-5 } };
static const aril__sample batch_norm_eval_samples[] = {
    { .in = { "[4,3]", "+[3]", "[3]", "[3]", "+[3]" },
      .attrs = &batch_norm_eval_usual,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2,2]", "-", "-", "[3]", "+[3]" }, .attrs = &batch_norm_eval_usual },
    { .in = { "[2,3,2]", "+[3]", "-", "[3]", "+[3]" },
      .attrs = &(const struct batch_norm_eval_attrs){ { 0.1 } } },
    { .in = { "[0,3,2]", "+[3]", "[3]", "[3]", "+[3]" }, .attrs = &batch_norm_eval_usual },
    SAMPLE_END
};
OP(batch_norm_eval, .doc = "batch normalisation by given means and variances",
   .onnx = "BatchNormalization", .min_in = 5, .max_in = 5, .n_out = 1, .flags = KEEPS_ORDER,
   .optional = IN(1) | IN(2), .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = batch_norm_eval_infer, .ref = batch_norm_eval_ref, .vjp = batch_norm_eval_vjp,
   .saves = { IN(1) | IN(4), IN(0) | LIKE(1) | IN(3) | IN(4), LIKE(2),
              IN(0) | IN(1) | IN(3) | IN(4) },
   .samples = batch_norm_eval_samples, WITH_ATTRS(batch_norm_eval));

/* ---- channels-last: the same, with all positions as rows ---- */

static bool lies_last(const aril_tensor *t)
{
    int64_t step = 1;
    for (int k = 0; k < t->ndim; k++) { /* innermost first: channels, positions, samples */
        int d = k == 0 ? 1 : k == t->ndim - 1 ? 0 : t->ndim - k;
        if (t->dim[d] != 1 && t->stride[d] != step) return false;
        step *= t->dim[d];
    }
    return true;
}

const char *aril__batch_norm_last_prepare(const aril__run *r, aril__plan *plan)
{
    (void)plan;
    const aril_tensor *x = r->in[0];
    if (x->ndim < 3 || aril__is_dense(x) || x->numel == 0) return "not channels-last";
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : r->out[i - r->n_in];
        if (t && !(t->ndim == x->ndim ? lies_last(t) : aril__is_dense(t)))
            return "not channels-last";
        if (t && t->dtype != r->type && t->dtype != ARIL_I64) return "mixed element types";
    }
    return NULL;
}

aril_status aril__batch_norm_last(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    norm_job j = r->op == &aril__op_batch_norm        ? batch_norm_job(r)
                 : r->op == &aril__op_batch_norm_eval ? batch_norm_eval_job(r)
                                                      : batch_norm_grad_job(r);
    j.channels = x->dim[1];
    j.outer = x->numel / x->dim[1];
    j.inner = 1;
    run_blocks(&j, r->type);
    return ARIL_OK;
}

/* ---- public ---- */

aril_tensor *aril_batch_norm(aril_tensor *x, aril_tensor *weight, aril_tensor *bias,
                             aril_tensor *running_mean, aril_tensor *running_var,
                             aril_batch_norm_opts opts)
{
    double eps = aril__or_default(opts.eps, 1e-5);
    if (opts.eval) {
        struct batch_norm_eval_attrs a = { { eps } };
        return aril__op_with(&a, &aril__op_batch_norm_eval, x, weight, bias, running_mean,
                             running_var);
    }
    struct batch_norm_attrs a = { { aril__or_default(opts.momentum, 0.1) },
                                  { eps },
                                  { opts.cumulative } };
    return aril__op_with(&a, &aril__op_batch_norm, x, weight, bias, running_mean, running_var,
                         opts.batches);
}
