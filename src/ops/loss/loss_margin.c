/* Margin losses over classes. Both ops output a loss per sample; the public functions reduce
 * them. */
#include "aril/loss.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/loss/loss.h"
#include "ops/table/sample.h"

/* Named ahead of their rows. */
extern const aril__op aril__op_multi_margin_loss_grad, aril__op_multilabel_margin_loss_grad;

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
        return aril__fail(ARIL_ERR_SHAPE, "%s: got scores %s and target %s, expected [N,C] and %s",
                          name, aril__text(a, x), aril__text(b, target), lists ? "[N,C]" : "[N]");
    if (weight && (weight->ndim != 1 || !may_be(weight->dim[0], x->dim[x->ndim - 1])))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: weight %s does not match scores %s: expected one value per class",
                          name, aril__text(b, weight), aril__text(a, x));
    if (weight && weight->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: scores are %s, but weights are %s", name,
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s does not match scores %s", c->op->name,
                          aril__text(a, g), aril__text(b, x));
    if (g->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: the gradient is %s, but the scores are %s",
                          c->op->name, aril__dtypes[g->dtype].name, aril__dtypes[x->dtype].name);
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

/* ---- references ---- */

aril_status aril__check_classes(const aril__run *r, const aril_tensor *target, int64_t low,
                                int64_t classes)
{
    const int64_t *y = aril__ptr(target);
    for (int64_t i = 0; i < target->numel; i++)
        if (y[i] < low || y[i] >= classes) return aril__class_error(r->op->name, y[i], classes);
    return ARIL_OK;
}

/* The loss is the sum of max(0, z)^p, z = margin - x[y] + x[c], over all c except y. Without g the
 * result is the loss of each sample, with g the gradient of each score. */
static aril_status margins_ref(aril__run *r, const aril_tensor *g, const aril_tensor *x,
                               const aril_tensor *target, const aril_tensor *weight)
{
    const struct multi_margin_attrs *a = r->attrs;
    int64_t n = x->dim[x->ndim - 1];
    if (aril__check_classes(r, target, 0, n) < 0) return ARIL_ERR_INDEX;
    for (int64_t i = 0; i < target->numel; i++) {
        int64_t y = aril__get_i64(target, i);
        double k = (weight ? aril__get(weight, y) : 1) / (a->sum_classes[0] ? 1 : (double)n);
        double loss = 0, sum = 0;
        if (g) k *= aril__get(g, i);
        for (int64_t c = 0; c < n; c++) {
            double z = a->margin[0] - aril__get(x, i * n + y) + aril__get(x, i * n + c);
            bool in = c != y && !(z <= 0); /* NaN propagates */
            double slope = !in ? 0 : a->p[0] == 1 ? k : 2 * k * z;
            if (in) loss += a->p[0] == 1 ? z : z * z;
            if (g) aril__put(r->out[0], i * n + c, slope);
            sum += slope;
        }
        if (g)
            aril__put(r->out[0], i * n + y, -sum);
        else
            aril__put(r->out[0], i, k * loss);
    }
    return ARIL_OK;
}

static aril_status multi_margin_ref(aril__run *r)
{
    return margins_ref(r, NULL, r->in[0], r->in[1], r->in[2]);
}

static aril_status multi_margin_grad_ref(aril__run *r)
{
    return margins_ref(r, r->in[0], r->in[1], r->in[2], r->in[3]);
}

/* Target i of a sample whose list starts at `first`; -1 from the end of the list on. */
static int64_t listed(const aril_tensor *target, int64_t first, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (aril__get_i64(target, first + k) < 0) return -1;
    return aril__get_i64(target, first + i);
}

static bool is_listed(const aril_tensor *target, int64_t first, int64_t n, int64_t c)
{
    for (int64_t i = 0; i < n; i++)
        if (listed(target, first, i) == c) return true;
    return false;
}

/* 1 - x[y] + x[c] of a sample whose scores start at `first`, for a target y and another class c; 0
 * if that is negative or c is a target too. */
static double pair(const aril_tensor *x, const aril_tensor *target, int64_t first, int64_t y,
                   int64_t c)
{
    double z = 1 - aril__get(x, first + y) + aril__get(x, first + c);
    return z <= 0 || is_listed(target, first, x->dim[x->ndim - 1], c) ? 0 : z;
}

static aril_status multilabel_margin_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0], *target = r->in[1];
    int64_t n = x->dim[x->ndim - 1];
    if (aril__check_classes(r, target, -1, n) < 0) return ARIL_ERR_INDEX;
    for (int64_t row = 0; row < r->out[0]->numel; row++) {
        double loss = 0;
        for (int64_t i = 0; i < n * n; i++) {
            int64_t y = listed(target, row * n, i / n);
            if (y >= 0) loss += pair(x, target, row * n, y, i % n);
        }
        aril__put(r->out[0], row, loss / (double)n);
    }
    return ARIL_OK;
}

/* Counts the pairs above 0 that a class is part of: as the target, downwards, or as the other. */
static aril_status multilabel_margin_grad_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0], *x = r->in[1], *target = r->in[2];
    int64_t n = x->dim[x->ndim - 1];
    if (aril__check_classes(r, target, -1, n) < 0) return ARIL_ERR_INDEX;
    for (int64_t k = 0; k < x->numel; k++) {
        int64_t first = k - k % n, own = k % n, count = 0;
        for (int64_t i = 0; i < n * n; i++) {
            int64_t y = listed(target, first, i / n), c = i % n;
            if (y >= 0 && (y == own || c == own) && pair(x, target, first, y, c) != 0)
                count += (c == own) - (y == own);
        }
        aril__put(r->out[0], k, aril__get(g, k / n) / (double)n * (double)count);
    }
    return ARIL_OK;
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
    aril__fail(ARIL_ERR_GRAD, "multi_margin_loss: class weights have no gradient; detach them");
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
   .n_out = 1, .cast = CAST_F32, .optional = IN(2), .index_in = IN(1), .types = DT_FLOAT,
   .flags = STRIDED, .infer = multi_margin_infer, .ref = multi_margin_ref,
   .vjp = multi_margin_loss_vjp, .saves = { IN(0) | IN(1) | IN(2) },
   .samples = multi_margin_samples, WITH_ATTRS(multi_margin));

static const aril__sample multi_margin_grad_samples[] = {
    { .in = { "[N]", "[N,4]", "i4[N]", "-" }, .attrs = &linear, .flags = SAMPLE_BATCH },
    { .in = { "[3]", "[3,4]", "i4[3]", "!+[4]" }, .attrs = &square },
    { .in = { "[]", "[4]", "i4[]", "!+[4]" }, .attrs = &course },
    SAMPLE_END
};
OP(multi_margin_loss_grad, .doc = "gradient of multi_margin_loss", .min_in = 4, .max_in = 4,
   .n_out = 1, .optional = IN(3), .index_in = IN(2), .types = DT_FLOAT, .flags = GRADIENT | STRIDED,
   .infer = multi_margin_grad_infer, .ref = multi_margin_grad_ref,
   .decompose = multi_margin_grad_decompose, .samples = multi_margin_grad_samples,
   WITH_ATTRS(multi_margin));

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
OP(multilabel_margin_loss, .doc = "multi-label hinge loss of each sample", .min_in = 2, .max_in = 2,
   .n_out = 1, .cast = CAST_F32, .index_in = IN(1), .types = DT_FLOAT, .flags = STRIDED,
   .infer = multilabel_margin_infer, .ref = multilabel_margin_ref,
   .vjp = multilabel_margin_loss_vjp, .saves = { IN(0) | IN(1) },
   .samples = multilabel_margin_samples);

static const aril__sample multilabel_margin_grad_samples[] = {
    { .in = { "[N]", "[N,4]", "i2[N,4]" }, .flags = SAMPLE_BATCH },
    { .in = { "[]", "[5]", "i3[5]" } },
    SAMPLE_END
};
OP(multilabel_margin_loss_grad, .doc = "gradient of multilabel_margin_loss", .min_in = 3,
   .max_in = 3, .n_out = 1, .index_in = IN(2), .types = DT_FLOAT, .flags = GRADIENT | STRIDED,
   .infer = multilabel_margin_grad_infer, .ref = multilabel_margin_grad_ref,
   .vjp = multilabel_margin_loss_grad_vjp, .saves = { LIKE(0) | IN(1) | IN(2), 0 },
   .samples = multilabel_margin_grad_samples);

/* ---- public ---- */

aril_tensor *aril_multi_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                         aril_multi_margin_opts o)
{
    ARIL_SCOPE;
    struct multi_margin_attrs a = { .p = { o.p ? o.p : 1 },
                                    .margin = { aril__option(o.margin, 1) },
                                    .sum_classes = { o.sum_classes } };
    if (a.p[0] != 1 && a.p[0] != 2) {
        aril__fail(ARIL_ERR_ARG, "multi_margin_loss: p must be 1 or 2, got %d", o.p);
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
