/* Margin losses over classes: forward and backward each take one pass over a sample's scores. Both
 * ops output a loss per sample; the public functions reduce them. */
#include "aril/loss.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/loss/loss.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <stdlib.h>

ATTR_LIST(multi_margin, MULTI_MARGIN_ATTRS)

/* ---- shapes ---- */

static bool may_be(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}

/* Scores x [N,C] or [C] with targets [N] or [], or (`lists`) of the shape of x; weight [C]. */
static aril_status check(const aril__call *c, const aril_tensor *x, const aril_tensor *target,
                         const aril_tensor *weight, bool lists)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    const char *name = c->op->name;
    if (!aril__is_int((aril_dtype)target->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "%s: class indices must be integers, got %s", name,
                          aril__dtypes[target->dtype].name);
    bool fits = (x->ndim == 1 || x->ndim == 2) && target->ndim == x->ndim - !lists;
    for (int d = 0; fits && d < target->ndim; d++) fits = may_be(target->dim[d], x->dim[d]);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: scores %s and target %s: [N,C] and %s expected",
                          name, aril__text(a, x), aril__text(b, target), lists ? "[N,C]" : "[N]");
    if (weight && (weight->ndim != 1 || !may_be(weight->dim[0], x->dim[x->ndim - 1])))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: weight %s for scores %s: one number a class expected", name,
                          aril__text(b, weight), aril__text(a, x));
    if (weight && weight->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: scores of %s and weights of %s", name,
                          aril__dtypes[x->dtype].name, aril__dtypes[weight->dtype].name);
    return ARIL_OK;
}

/* A loss per sample: [N] or []. */
static void shape_of_losses(aril__call *c, const aril_tensor *x, const aril_tensor *target)
{
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim - 1;
    if (x->ndim == 2) c->out[0].dim[0] = x->dim[0] >= 0 ? x->dim[0] : target->dim[0];
}

static aril_status grad_shape(aril__call *c, const aril_tensor *x)
{
    const aril_tensor *g = c->in[0];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (g->ndim != x->ndim - 1 || (g->ndim == 1 && !may_be(g->dim[0], x->dim[0])))
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s for scores %s", c->op->name,
                          aril__text(a, g), aril__text(b, x));
    if (g->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: gradient of %s for scores of %s", c->op->name,
                          aril__dtypes[g->dtype].name, aril__dtypes[x->dtype].name);
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) c->out[0].dim[d] = x->dim[d];
    return ARIL_OK;
}

static aril_status multi_margin_infer(aril__call *c)
{
    if (check(c, c->in[0], c->in[1], c->in[2], false) < 0) return ARIL_ERR_SHAPE;
    shape_of_losses(c, c->in[0], c->in[1]);
    return ARIL_OK;
}

static aril_status multi_margin_grad_infer(aril__call *c)
{
    aril_status s = check(c, c->in[1], c->in[2], c->in[3], false);
    return s < 0 ? s : grad_shape(c, c->in[1]);
}

static aril_status multilabel_margin_infer(aril__call *c)
{
    if (check(c, c->in[0], c->in[1], NULL, true) < 0) return ARIL_ERR_SHAPE;
    shape_of_losses(c, c->in[0], c->in[1]);
    return ARIL_OK;
}

static aril_status multilabel_margin_grad_infer(aril__call *c)
{
    aril_status s = check(c, c->in[1], c->in[2], NULL, true);
    return s < 0 ? s : grad_shape(c, c->in[1]);
}

/* ---- kernels ---- */

enum { GRAIN = 16 * 1024 };

typedef struct margin_job {
    const void *x, *w, *g;
    const int64_t *target;
    void *out;
    int64_t classes;
    double margin, divisor;
    int p;
    bool *marks; /* multilabel: which classes are targets, per sample */
} margin_job;

#define TEMPLATE "ops/loss/loss_margin.inc"
#include "ops/table/each_real.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_multi_margin_loss, aril__op_multi_margin_loss_grad,
    aril__op_multilabel_margin_loss, aril__op_multilabel_margin_loss_grad;

static aril_status check_targets(const aril__run *r, const aril_tensor *target, int64_t low,
                                 int64_t classes)
{
    const int64_t *y = aril__ptr(target);
    for (int64_t i = 0; i < target->numel; i++)
        if (y[i] < low || y[i] >= classes)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: class %" PRId64 " is out of range for %" PRId64 " classes",
                              r->op->name, y[i], classes);
    return ARIL_OK;
}

static margin_job job_of(const aril__run *r, const aril_tensor *x, const aril_tensor *target)
{
    return (margin_job){ .x = aril__ptr(x),
                         .target = aril__ptr(target),
                         .out = aril__ptr(r->out[0]),
                         .classes = x->dim[x->ndim - 1] };
}

static int64_t samples_of(const aril_tensor *x)
{
    return x->ndim == 2 ? x->dim[0] : 1;
}

static int64_t grain_of(const margin_job *j)
{
    int64_t grain = GRAIN / (j->classes > 0 ? j->classes : 1);
    return grain > 1 ? grain : 1;
}

static aril_status run_multi_margin(aril__run *r, const aril_tensor *g, const aril_tensor *x,
                                    const aril_tensor *target, const aril_tensor *w)
{
    const struct multi_margin_attrs *a = r->attrs;
    margin_job j = job_of(r, x, target);
    if (check_targets(r, target, 0, j.classes) < 0) return ARIL_ERR_INDEX;
    j.w = w ? aril__ptr(w) : NULL;
    j.g = g ? aril__ptr(g) : NULL;
    j.p = (int)a->p[0];
    j.margin = a->margin[0];
    j.divisor = a->sum_classes[0] ? 1 : (double)j.classes;
    bool f32 = r->type == ARIL_F32;
    aril__parallel_for(samples_of(x), grain_of(&j),
                       g ? (f32 ? multi_margin_grad_f32 : multi_margin_grad_f64)
                         : (f32 ? multi_margin_f32 : multi_margin_f64),
                       &j);
    return ARIL_OK;
}

static aril_status multi_margin_ref(aril__run *r)
{
    return run_multi_margin(r, NULL, r->in[0], r->in[1], r->in[2]);
}

static aril_status multi_margin_grad_ref(aril__run *r)
{
    return run_multi_margin(r, r->in[0], r->in[1], r->in[2], r->in[3]);
}

static aril_status run_multilabel(aril__run *r, const aril_tensor *g, const aril_tensor *x,
                                  const aril_tensor *target)
{
    margin_job j = job_of(r, x, target);
    if (check_targets(r, target, -1, j.classes) < 0) return ARIL_ERR_INDEX;
    j.g = g ? aril__ptr(g) : NULL;
    j.divisor = (double)j.classes;
    j.marks = aril__malloc((size_t)x->numel * sizeof *j.marks + 1);
    if (!j.marks)
        return aril__fail(ARIL_ERR_MEMORY, "%s: no memory for marks of classes", r->op->name);
    aril__parallel_for(samples_of(x), grain_of(&j),
                       r->type == ARIL_F32 ? multilabel_margin_f32 : multilabel_margin_f64, &j);
    free(j.marks);
    return ARIL_OK;
}

static aril_status multilabel_margin_ref(aril__run *r)
{
    return run_multilabel(r, NULL, r->in[0], r->in[1]);
}

static aril_status multilabel_margin_grad_ref(aril__run *r)
{
    return run_multilabel(r, r->in[0], r->in[1], r->in[2]);
}

/* ---- multi_margin_loss ---- */

static aril_tensor *four(const aril__op *op, const void *attrs, aril_tensor *x0, aril_tensor *x1,
                         aril_tensor *x2, aril_tensor *x3)
{
    aril_tensor *in[4] = { x0, x1, x2, x3 };
    return aril__apply1(op, op->max_in, in, attrs);
}

/* The class weights are constants, as in PyTorch. */
static aril_tensor *no_weight_gradient(void)
{
    aril__fail(ARIL_ERR_GRAD,
               "multi_margin_loss: there is no gradient for the class weights; detach them");
    return aril__poison();
}

VJP(multi_margin_loss)
{
    GRAD(2, no_weight_gradient());
    if (c->g[0])
        GRAD(0,
             four(&aril__op_multi_margin_loss_grad, c->attrs, c->g[0], c->x[0], c->x[1], c->x[2]));
}

/* Slopes s of every class, including the target's; their sum is subtracted from the target. */
static void multi_margin_grad_decompose(aril__call *c, aril_tensor **out)
{
    ARIL_SCOPE;
    const struct multi_margin_attrs *a = c->attrs;
    struct nll_attrs each = { .reduction = { ARIL_NONE }, .ignore_index = { INT64_MIN } };
    aril_tensor *g = c->in[0], *x = c->in[1], *y = c->in[2], *w = c->in[3];
    aril_tensor *hit = aril_neg(four(&aril__op_nll_loss, &each, x, y, NULL, NULL)); /* x[y] */
    aril_tensor *z = aril_add_scalar(aril_sub(x, aril_unsqueeze(hit, -1)), a->margin[0]);
    aril_tensor *s = a->p[0] == 1 ? aril_cast(aril_gt_scalar(z, 0), (aril_dtype)x->dtype)
                                  : aril_mul_scalar(aril_clamp_min(z, 0), 2);
    if (w) g = aril_mul(g, aril_index_select(w, y, 0));
    if (!a->sum_classes[0]) g = aril_div(g, aril__count_like(x, hit));
    s = aril_mul(s, aril_unsqueeze(g, -1));
    aril_tensor *taken =
        four(&aril__op_nll_loss_grad, &each, aril_sum(s, ARIL_AXES(-1)), y, NULL, x);
    out[0] = aril_escape(aril_add(s, taken));
}

static const struct multi_margin_attrs linear = { .p = { 1 }, .margin = { 1 } };
static const struct multi_margin_attrs square = { .p = { 2 }, .margin = { 0.7 } };
static const struct multi_margin_attrs course = { .p = { 1 },
                                                  .margin = { 1 },
                                                  .sum_classes = { 1 } };
static const aril__sample multi_margin_samples[] = {
    { .in = { "[N,4]", "i4[N]", "-" }, .attrs = &linear, .flags = SAMPLE_BATCH },
    { .in = { "[3,4]", "i4[3]", "!+[4]" }, .attrs = &square },
    { .in = { "[N,4]", "i4[N]", "!+[4]" }, .attrs = &course, .flags = SAMPLE_BATCH },
    { .in = { "[4]", "i4[]", "-" }, .attrs = &square },
    { .in = { "[0,4]", "i4[0]", "-" }, .attrs = &linear },
    SAMPLE_END
};
OP(multi_margin_loss, .doc = "multi-class hinge loss of each sample", .min_in = 3, .max_in = 3,
   .n_out = 1, .optional = IN(2), .index_in = IN(1), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = multi_margin_infer, .ref = multi_margin_ref,
   .vjp = multi_margin_loss_vjp, .saves = { IN(0) | IN(1) | IN(2) },
   .samples = multi_margin_samples, WITH_ATTRS(multi_margin));

static const aril__sample multi_margin_grad_samples[] = {
    { .in = { "[N]", "[N,4]", "i4[N]", "-" }, .attrs = &linear, .flags = SAMPLE_BATCH },
    { .in = { "[3]", "[3,4]", "i4[3]", "!+[4]" }, .attrs = &square },
    { .in = { "[]", "[4]", "i4[]", "!+[4]" }, .attrs = &course },
    SAMPLE_END
};
OP(multi_margin_loss_grad, .doc = "gradient of multi_margin_loss", .min_in = 4, .max_in = 4,
   .n_out = 1, .optional = IN(3), .index_in = IN(2), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = multi_margin_grad_infer,
   .ref = multi_margin_grad_ref, .decompose = multi_margin_grad_decompose,
   .samples = multi_margin_grad_samples, WITH_ATTRS(multi_margin));

/* ---- multilabel_margin_loss ---- */

VJP(multilabel_margin_loss)
{
    if (c->g[0])
        GRAD(0, aril__op(&aril__op_multilabel_margin_loss_grad, c->g[0], c->x[0], c->x[1]));
}

/* Piecewise linear: linear in g, with zero derivative in x. */
VJP(multilabel_margin_loss_grad)
{
    if (c->g[0] && c->wants[0]) {
        aril_tensor *slope = aril__op(&aril__op_multilabel_margin_loss_grad,
                                      aril_ones_like(c->x[0]), c->x[1], c->x[2]);
        c->dx[0] = aril_sum(aril_mul(c->g[0], slope), ARIL_AXES(-1));
    }
}

static const aril__sample multilabel_margin_samples[] = { { .in = { "[N,4]", "i2[N,4]" },
                                                            .flags = SAMPLE_BATCH },
                                                          { .in = { "[5]", "i3[5]" } },
                                                          { .in = { "[0,3]", "i3[0,3]" } },
                                                          SAMPLE_END };
OP(multilabel_margin_loss,
   .doc = "hinge loss of each sample over pairs of target and other classes", .min_in = 2,
   .max_in = 2, .n_out = 1, .index_in = IN(1), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = multilabel_margin_infer,
   .ref = multilabel_margin_ref, .vjp = multilabel_margin_loss_vjp, .saves = { IN(0) | IN(1) },
   .samples = multilabel_margin_samples);

static const aril__sample multilabel_margin_grad_samples[] = {
    { .in = { "[N]", "[N,4]", "i2[N,4]" }, .flags = SAMPLE_BATCH },
    { .in = { "[]", "[5]", "i3[5]" } },
    SAMPLE_END
};
OP(multilabel_margin_loss_grad, .doc = "gradient of multilabel_margin_loss", .min_in = 3,
   .max_in = 3, .n_out = 1, .index_in = IN(2), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = multilabel_margin_grad_infer,
   .ref = multilabel_margin_grad_ref, .vjp = multilabel_margin_loss_grad_vjp,
   .saves = { LIKE(0) | IN(1) | IN(2), 0 }, .samples = multilabel_margin_grad_samples);

/* ---- public ---- */

aril_tensor *aril_multi_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                         aril_multi_margin_opts o)
{
    ARIL_SCOPE;
    struct multi_margin_attrs a = { .p = { o.p ? o.p : 1 },
                                    .margin = { aril__option(o.margin, 1) },
                                    .sum_classes = { o.sum_classes } };
    if (a.p[0] != 1 && a.p[0] != 2) {
        aril__fail(ARIL_ERR_ARG, "multi_margin_loss: p is %d; it can be 1 or 2", o.p);
        return aril_escape(aril__poison());
    }
    aril_tensor *each = aril__op_with(&a, &aril__op_multi_margin_loss, x, target, o.weight);
    return aril_escape(aril__reduce_loss("multi_margin_loss", each, o.reduction));
}

aril_tensor *aril_multi_margin_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_multi_margin_loss_with(x, target,
                                       (aril_multi_margin_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_multilabel_margin_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts o)
{
    ARIL_SCOPE;
    aril_tensor *each = aril__op(&aril__op_multilabel_margin_loss, x, target);
    if (o.weight) each = aril_mul(each, o.weight);
    return aril_escape(aril__reduce_loss("multilabel_margin_loss", each, o.reduction));
}

aril_tensor *aril_multilabel_margin_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_multilabel_margin_loss_with(x, target, (aril_loss_opts){ .reduction = ARIL_MEAN });
}
