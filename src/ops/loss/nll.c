/* nll_loss and cross_entropy with class indices as targets.
 *
 * With e = label_smoothing, K classes, weights w and L = logsumexp(x) (0 in nll_loss):
 *     loss = (1 - e) * w[y] * (L - x[y]) + e / K * sum over c of w[c] * (L - x[c])
 * and the mean divides by the sum of w[y]. Whatever else the gradient needs is recomputed from x,
 * which is cheaper than saving it. */
#include "aril/loss.h"

#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <math.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_cross_entropy_grad;

ATTR_LIST(nll, NLL_ATTRS)

/* ---- shapes ---- */

static bool may_be(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}

/* x [N,C,d...] (or [C]), target [N,d...] (or []), weight [C]. */
static aril_status check(const aril__call *c, const aril_tensor *x, const aril_tensor *target,
                         const aril_tensor *weight)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    const char *name = c->op->name;
    if (x->ndim < 1)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected scores [N,C,...] or [C], got %s", name,
                          aril__text(a, x));
    if (!aril__is_int((aril_dtype)target->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "%s: class indices must be integers, got %s", name,
                          aril__dtypes[target->dtype].name);
    bool fits = target->ndim == x->ndim - 1;
    for (int d = 0; fits && d < target->ndim; d++)
        fits = may_be(target->dim[d], x->dim[d ? d + 1 : 0]);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: scores %s and target %s do not match: the target has the shape of "
                          "the scores without the class axis",
                          name, aril__text(a, x), aril__text(b, target));
    int64_t classes = x->dim[x->ndim > 1];
    if (weight && (weight->ndim != 1 || !may_be(weight->dim[0], classes)))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: weight %s does not match scores %s: expected one value per class",
                          name, aril__text(b, weight), aril__text(a, x));
    if (weight && weight->dtype != c->in[0]->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: scores are %s, but weights are %s", name,
                          aril__dtypes[c->in[0]->dtype].name, aril__dtypes[weight->dtype].name);
    return ARIL_OK;
}

static aril_status nll_infer(aril__call *c)
{
    const struct nll_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *t = c->in[1];
    if (check(c, x, t, c->in[2]) < 0) return ARIL_ERR_SHAPE;
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = a->reduction[0] == ARIL_NONE ? t->ndim : 0;
    for (int d = 0; d < o->ndim; d++)
        o->dim[d] = t->dim[d] >= 0 ? t->dim[d] : x->dim[d ? d + 1 : 0];
    return ARIL_OK;
}

/* Gradients: in[0] is the gradient of the loss, the result is the gradient of `x`. */
static aril_status grad_infer(aril__call *c, const aril_tensor *x, const aril_tensor *target,
                              const aril_tensor *weight)
{
    const struct nll_attrs *a = c->attrs;
    const aril_tensor *g = c->in[0];
    if (check(c, x, target, weight) < 0) return ARIL_ERR_SHAPE;
    bool fits = g->ndim == (a->reduction[0] == ARIL_NONE ? target->ndim : 0);
    for (int d = 0; fits && d < g->ndim; d++) fits = may_be(g->dim[d], target->dim[d]);
    char s[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s does not match target %s", c->op->name,
                          aril__text(s, g), aril__text(b, target));
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)g->dtype;
    o->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) o->dim[d] = x->dim[d];
    return ARIL_OK;
}

static aril_status nll_grad_infer(aril__call *c)
{
    return grad_infer(c, c->in[3], c->in[1], c->in[2]);
}

static aril_status cross_entropy_grad_infer(aril__call *c)
{
    if (c->in[0]->dtype != c->in[1]->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: the gradient is %s, but the scores are %s",
                          c->op->name, aril__dtypes[c->in[0]->dtype].name,
                          aril__dtypes[c->in[1]->dtype].name);
    return grad_infer(c, c->in[1], c->in[2], c->in[3]);
}

/* ---- references ---- */

/* Rows of scores: class c of row i is element row_at(i) + c * inner of x. */
typedef struct rows {
    const aril_tensor *x, *target, *weight;
    int64_t classes, inner, ignore;
    double divisor; /* of the mean; else 1 */
    bool each;      /* no reduction */
} rows;

static int64_t row_at(const rows *w, int64_t i)
{
    return i / w->inner * w->inner * w->classes + i % w->inner;
}

static double weight_of(const rows *w, int64_t c)
{
    return w->weight ? aril__get(w->weight, c) : 1;
}

/* Fails if a target is out of range. */
static aril_status rows_of(const aril__run *r, const aril_tensor *x, const aril_tensor *target,
                           const aril_tensor *weight, rows *w)
{
    const struct nll_attrs *a = r->attrs;
    int axis = x->ndim > 1;
    *w = (rows){ .x = x,
                 .target = target,
                 .weight = weight,
                 .classes = x->dim[axis],
                 .inner = aril__count(x->ndim - axis - 1, x->dim + axis + 1),
                 .ignore = a->ignore_index[0],
                 .each = a->reduction[0] == ARIL_NONE };
    for (int64_t i = 0; i < target->numel; i++) {
        int64_t y = aril__get_i64(target, i);
        if (y == w->ignore) continue;
        if (y < 0 || y >= w->classes) return aril__class_error(r->op->name, y, w->classes);
        w->divisor += weight_of(w, y);
    }
    if (a->reduction[0] != ARIL_MEAN) w->divisor = 1;
    return ARIL_OK;
}

/* The logarithm of the sum of exponentials of row i. */
static double log_sum_exp(const rows *w, int64_t i)
{
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < w->classes && !isnan(top); c++) {
        double v = aril__get(w->x, row_at(w, i) + c * w->inner);
        if (v > top || isnan(v)) top = v;
    }
    for (int64_t c = 0; c < w->classes; c++)
        sum += exp(aril__get(w->x, row_at(w, i) + c * w->inner) - top);
    return top + log(sum);
}

static aril_status losses_ref(aril__run *r, bool softmax)
{
    double e = ((const struct nll_attrs *)r->attrs)->label_smoothing[0], total = 0;
    rows w;
    if (rows_of(r, r->in[0], r->in[1], r->in[2], &w) < 0) return ARIL_ERR_INDEX;
    for (int64_t i = 0; i < w.target->numel; i++) {
        int64_t y = aril__get_i64(w.target, i), at = row_at(&w, i);
        double loss = 0;
        if (y != w.ignore) {
            double lse = softmax ? log_sum_exp(&w, i) : 0;
            loss = (1 - e) * weight_of(&w, y) * (lse - aril__get(w.x, at + y * w.inner));
            for (int64_t c = 0; c < w.classes && e != 0; c++)
                loss += e / (double)w.classes * weight_of(&w, c) *
                        (lse - aril__get(w.x, at + c * w.inner));
        }
        if (w.each) aril__put(r->out[0], i, loss);
        total += loss;
    }
    if (!w.each)
        aril__put(r->out[0], 0, total / w.divisor); /* NaN if there is nothing to average */
    return ARIL_OK;
}

/* Each class gets minus its share of the loss; with softmax, also p of all shares. */
static aril_status gradients_ref(aril__run *r, const aril_tensor *x, const aril_tensor *target,
                                 const aril_tensor *weight, bool softmax)
{
    double e = ((const struct nll_attrs *)r->attrs)->label_smoothing[0], all = 0;
    rows w;
    if (rows_of(r, x, target, weight, &w) < 0) return ARIL_ERR_INDEX;
    for (int64_t c = 0; c < w.classes; c++) all += e / (double)w.classes * weight_of(&w, c);
    for (int64_t i = 0; i < target->numel; i++) {
        int64_t y = aril__get_i64(target, i), at = row_at(&w, i);
        bool ignored = y == w.ignore;
        double k = aril__get(r->in[0], w.each ? i : 0) / w.divisor;
        double hit = ignored ? 0 : (1 - e) * weight_of(&w, y);
        double lse = softmax && !ignored ? log_sum_exp(&w, i) : 0;
        for (int64_t c = 0; c < w.classes; c++) {
            double d = -k * (e / (double)w.classes * weight_of(&w, c) + (c == y ? hit : 0));
            if (softmax && !ignored)
                d += k * (hit + all) * exp(aril__get(x, at + c * w.inner) - lse);
            aril__put(r->out[0], at + c * w.inner, ignored ? 0 : d);
        }
    }
    return ARIL_OK;
}

static aril_status nll_loss_ref(aril__run *r)
{
    return losses_ref(r, false);
}

static aril_status cross_entropy_ref(aril__run *r)
{
    return losses_ref(r, true);
}

static aril_status nll_loss_grad_ref(aril__run *r)
{
    return gradients_ref(r, r->in[3], r->in[1], r->in[2], false);
}

static aril_status cross_entropy_grad_ref(aril__run *r)
{
    return gradients_ref(r, r->in[1], r->in[2], r->in[3], true);
}

/* ---- nll_loss ---- */

/* The class weights are constants, as in PyTorch. */
static aril_tensor *no_weight_gradient(const char *what)
{
    aril__fail(ARIL_ERR_GRAD, "%s: class weights have no gradient; detach them", what);
    return aril__poison();
}

static aril_tensor *with_attrs(const aril__op *op, const struct nll_attrs *a, aril_tensor *x0,
                               aril_tensor *x1, aril_tensor *x2, aril_tensor *x3)
{
    aril_tensor *in[4] = { x0, x1, x2, x3 };
    return aril__apply1(op, op->max_in, in, a);
}

VJP(nll_loss)
{
    GRAD(2, no_weight_gradient("nll_loss"));
    if (c->g[0])
        GRAD(0, with_attrs(&aril__op_nll_loss_grad, c->attrs, c->g[0], c->x[1], c->x[2], c->x[0]));
}

/* Linear in g, so its gradient is the same sum over classes as the loss. */
VJP(nll_loss_grad)
{
    GRAD(2, no_weight_gradient("nll_loss"));
    if (c->g[0]) GRAD(0, with_attrs(&aril__op_nll_loss, c->attrs, c->g[0], c->x[1], c->x[2], NULL));
}

static const struct nll_attrs plain = { .ignore_index = { -100 } };
static const struct nll_attrs summed = { .reduction = { ARIL_SUM }, .ignore_index = { -100 } };
static const struct nll_attrs each = { .reduction = { ARIL_NONE }, .ignore_index = { 1 } };
static const struct nll_attrs smooth = { .ignore_index = { 2 }, .label_smoothing = { 0.1 } };
static const struct nll_attrs smooth_each = { .reduction = { ARIL_NONE },
                                              .ignore_index = { -100 },
                                              .label_smoothing = { 0.2 } };

static const aril__sample loss_samples[] = {
    { .in = { "[N,3]", "i3[N]", "-" }, .attrs = &plain, .flags = SAMPLE_BATCH },
    { .in = { "[4,3]", "i3[4]", "!+[3]" }, .attrs = &plain },
    { .in = { "[4,3]", "i3[4]", "!+[3]" }, .attrs = &summed },
    { .in = { "[N,3]", "i3[N]", "-" }, .attrs = &each, .flags = SAMPLE_BATCH },
    { .in = { "[N,3,2,2]", "i3[N,2,2]", "!+[3]" }, .attrs = &smooth_each, .flags = SAMPLE_BATCH },
    { .in = { "[6,4,2]", "i4[6,2]", "!+[4]" }, .attrs = &smooth },
    { .in = { "[3]", "i3[]", "-" }, .attrs = &plain },
    { .in = { "[0,3]", "i3[0]", "-" }, .attrs = &summed },
    SAMPLE_END
};

OP(nll_loss, .doc = "negative log-likelihood loss for class indices",
   .onnx = "NegativeLogLikelihoodLoss", .min_in = 3, .max_in = 3, .n_out = 1, .cast = CAST_F32,
   .optional = IN(2), .index_in = IN(1), .types = DT_FLOAT, .flags = STRIDED, .infer = nll_infer,
   .ref = nll_loss_ref, .vjp = nll_loss_vjp, .saves = { LIKE(0) | IN(1) | IN(2) },
   .samples = loss_samples, WITH_ATTRS(nll));

static const aril__sample nll_loss_grad_samples[] = {
    { .in = { "[]", "i3[N]", "-", "[N,3]" }, .attrs = &plain, .flags = SAMPLE_BATCH },
    { .in = { "[]", "i3[4]", "!+[3]", "[4,3]" }, .attrs = &smooth },
    { .in = { "[N,2]", "i3[N,2]", "!+[3]", "[N,3,2]" },
      .attrs = &smooth_each,
      .flags = SAMPLE_BATCH },
    { .in = { "[]", "i3[0]", "-", "[0,3]" }, .attrs = &summed },
    SAMPLE_END
};
OP(nll_loss_grad, .doc = "gradient of nll_loss", .min_in = 4, .max_in = 4, .n_out = 1,
   .optional = IN(2), .index_in = IN(1), .shape_only = IN(3), .types = DT_FLOAT,
   .flags = GRADIENT | STRIDED, .infer = nll_grad_infer, .ref = nll_loss_grad_ref,
   .vjp = nll_loss_grad_vjp, .saves = { IN(1) | IN(2) }, .samples = nll_loss_grad_samples,
   WITH_ATTRS(nll));

/* ---- cross_entropy ---- */

VJP(cross_entropy)
{
    GRAD(2, no_weight_gradient("cross_entropy"));
    if (c->g[0])
        GRAD(0, with_attrs(&aril__op_cross_entropy_grad, c->attrs, c->g[0], c->x[0], c->x[1],
                           c->x[2]));
}

/* nll_loss's gradient d, backpropagated through log_softmax: d - softmax(x) * sum(d). */
static void cross_entropy_grad_decompose(aril__call *c, aril_tensor **out)
{
    ARIL_SCOPE;
    aril_tensor *x = c->in[1];
    int axis = x->ndim > 1;
    aril_tensor *d = with_attrs(&aril__op_nll_loss_grad, c->attrs, c->in[0], c->in[2], c->in[3], x);
    aril_tensor *share = aril_mul(aril_softmax(x, axis), aril_sum(d, ARIL_KEEPDIM(axis)));
    out[0] = aril_escape(aril_sub(d, share));
}

OP(cross_entropy, .doc = "cross-entropy of logits and class indices",
   .onnx = "SoftmaxCrossEntropyLoss", .min_in = 3, .max_in = 3, .n_out = 1, .cast = CAST_F32,
   .optional = IN(2), .index_in = IN(1), .types = DT_FLOAT, .flags = STRIDED, .infer = nll_infer,
   .ref = cross_entropy_ref, .vjp = cross_entropy_vjp, .saves = { IN(0) | IN(1) | IN(2) },
   .samples = loss_samples, WITH_ATTRS(nll));

static const aril__sample cross_entropy_grad_samples[] = {
    { .in = { "[]", "[N,3]", "i3[N]", "-" }, .attrs = &plain, .flags = SAMPLE_BATCH },
    { .in = { "[]", "[4,3]", "i3[4]", "!+[3]" }, .attrs = &smooth },
    { .in = { "[N,2]", "[N,3,2]", "i3[N,2]", "!+[3]" },
      .attrs = &smooth_each,
      .flags = SAMPLE_BATCH },
    { .in = { "[]", "[0,3]", "i3[0]", "-" }, .attrs = &summed },
    SAMPLE_END
};
OP(cross_entropy_grad, .doc = "gradient of cross_entropy", .min_in = 4, .max_in = 4, .n_out = 1,
   .optional = IN(3), .index_in = IN(2), .types = DT_FLOAT, .flags = GRADIENT | STRIDED,
   .infer = cross_entropy_grad_infer, .ref = cross_entropy_grad_ref,
   .decompose = cross_entropy_grad_decompose, .samples = cross_entropy_grad_samples,
   WITH_ATTRS(nll));

/* ---- public ---- */

static aril_status class_attrs(const char *what, aril_reduction reduction, int64_t ignore_index,
                               double smoothing, struct nll_attrs *a)
{
    if (reduction != ARIL_MEAN && reduction != ARIL_SUM && reduction != ARIL_NONE)
        return aril__fail(ARIL_ERR_ARG, "%s: reduction %d is not ARIL_MEAN, ARIL_SUM or ARIL_NONE",
                          what, (int)reduction);
    if (!(smoothing >= 0 && smoothing <= 1))
        return aril__fail(ARIL_ERR_ARG, "%s: label_smoothing must be from 0 to 1, got %g", what,
                          smoothing);
    a->reduction[0] = reduction;
    a->ignore_index[0] = ignore_index == 0 ? -100 : ignore_index == ARIL_ZERO ? 0 : ignore_index;
    a->label_smoothing[0] = smoothing;
    return ARIL_OK;
}

aril_tensor *aril_nll_loss_with(aril_tensor *x, aril_tensor *target, aril_nll_loss_opts o)
{
    struct nll_attrs a;
    if (class_attrs("nll_loss", o.reduction, o.ignore_index, 0, &a) < 0) return aril__poison();
    return aril__op_with(&a, &aril__op_nll_loss, x, target, o.weight);
}

aril_tensor *aril_nll_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_nll_loss_with(x, target, (aril_nll_loss_opts){ .reduction = ARIL_MEAN });
}

static aril_status is_soft_target(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *target = &q->shape[1];
    if (x->ndim >= 1 && aril__shapes_fit(x, target)) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(
        ARIL_ERR_SHAPE,
        "%s: scores %s and class probabilities %s differ in shape (class indices must be integers)",
        q->what, aril__shape_text(a, x->ndim, x->dim),
        aril__shape_text(b, target->ndim, target->dim));
}

static aril_status weighs_classes(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *w = &q->shape[1];
    if (w->ndim == 1 && aril__size_fits(w->dim[0], x->dim[x->ndim > 1])) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "%s: weight %s does not match scores %s: expected one value per class",
                      q->what, aril__shape_text(b, w->ndim, w->dim),
                      aril__shape_text(a, x->ndim, x->dim));
}

/* Targets are probabilities: -sum over c of w[c] * t[c] * log_softmax(x)[c], per sample. */
static aril_tensor *soft_cross_entropy(aril_tensor *x, aril_tensor *target,
                                       aril_cross_entropy_opts o)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &x, &target, &o.weight);
    int axis = x->ndim > 1;
    if (aril__require_of("cross_entropy", is_soft_target, x, target) < 0)
        return aril_escape(aril__poison());
    if (o.ignore_index)
        return aril__fail(ARIL_ERR_ARG,
                          "cross_entropy: ignore_index needs class indices as target, "
                          "not probabilities"),
               aril_escape(aril__poison());
    aril_tensor *lp = aril_log_softmax(x, axis), *w = o.weight; /* [N,C,d...] */
    if (w && !aril__is_poison(w)) {
        if (aril__require_of("cross_entropy", weighs_classes, x, w) < 0)
            return aril_escape(aril__poison());
        for (int d = axis + 1; d < x->ndim; d++) w = aril_unsqueeze(w, -1);
    }
    if (o.label_smoothing != 0) {
        aril_tensor *classes = aril__count_like(x, aril_slice(x, axis, 0, 1, 1));
        target = aril_add(aril_mul_scalar(target, 1 - o.label_smoothing),
                          aril_div(aril_scalar(o.label_smoothing), classes));
    }
    /* Probabilities first: in f16 a large weight times lp may overflow where the product of all
     * three does not. */
    aril_tensor *terms = aril_mul(lp, target);
    if (w) terms = aril_mul(terms, w);
    aril_tensor *loss = aril_neg(aril_sum(terms, ARIL_AXES(axis))); /* [N,d...] */
    return aril_escape(aril__reduce_loss("cross_entropy", loss, o.reduction));
}

aril_tensor *aril_cross_entropy_with(aril_tensor *x, aril_tensor *target, aril_cross_entropy_opts o)
{
    struct nll_attrs a;
    if (class_attrs("cross_entropy", o.reduction, o.ignore_index, o.label_smoothing, &a) < 0)
        return aril__poison();
    if (x && target && !(aril__is_poison(x) || aril__is_poison(target)) &&
        aril__is_float((aril_dtype)target->dtype))
        return soft_cross_entropy(x, target, o);
    return aril__op_with(&a, &aril__op_cross_entropy, x, target, o.weight);
}

aril_tensor *aril_cross_entropy(aril_tensor *x, aril_tensor *target)
{
    return aril_cross_entropy_with(x, target, (aril_cross_entropy_opts){ .reduction = ARIL_MEAN });
}
