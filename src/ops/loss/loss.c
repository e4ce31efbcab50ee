/* Losses that consist of an elementwise formula (elementwise.def) and a reduction. */
#include "aril/loss.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/like.h"
#include "ops/loss/loss.h"
#include "ops/norm/norm.h"

#include <inttypes.h>
#include <string.h>

/* Rows of elementwise.def. */
extern const aril__op aril__op_bce_loss, aril__op_bce_with_logits, aril__op_bce_with_logits_pos,
    aril__op_gaussian_nll_loss, aril__op_hinge_embedding_loss, aril__op_hinge_loss,
    aril__op_huber_loss, aril__op_kl_div, aril__op_kl_div_log, aril__op_l1_loss,
    aril__op_margin_ranking_loss, aril__op_mse_loss, aril__op_poisson_nll_loss,
    aril__op_poisson_nll_rate, aril__op_smooth_l1_loss, aril__op_soft_margin_loss;

/* ---- options ---- */

double aril__option(double value, double initial)
{
    return value == 0 ? initial : value == (double)ARIL_ZERO ? 0 : value;
}

aril_tensor *aril__reduce_loss(const char *what, aril_tensor *each, aril_reduction reduction)
{
    switch (reduction) {
    case ARIL_MEAN: return aril_mean(each, ARIL_ALL);
    case ARIL_SUM: return aril_sum(each, ARIL_ALL);
    case ARIL_NONE: return each;
    default:
        aril__fail(ARIL_ERR_ARG, "%s: reduction %d is not ARIL_MEAN, ARIL_SUM or ARIL_NONE", what,
                   (int)reduction);
        return aril__poison();
    }
}

aril__cold aril_status aril__class_error(const char *op, int64_t y, int64_t classes)
{
    return aril__fail(ARIL_ERR_INDEX,
                      "%s: class %" PRId64 " is out of range for %" PRId64 " classes", op, y,
                      classes);
}

static aril_tensor *refused(aril_status s)
{
    (void)s;
    return aril__poison();
}

static bool usable(const aril_tensor *t)
{
    return t && !aril__is_poison(t);
}

/* Losses composed of several ops round once, at the end: narrow inputs are widened to f32. */
static aril_tensor *widened(aril_tensor *t)
{
    return usable(t) && aril__is_float((aril_dtype)t->dtype) ? aril_cast(t, aril__stat_dtype(t))
                                                             : t;
}

static aril_dtype widest(aril_tensor *a, aril_tensor *b)
{
    return aril__result_type(2, (aril_tensor *[]){ a, b });
}

/* Casts the result to the inputs' dtype if that is floating point. */
static aril_tensor *narrowed(aril_tensor *t, aril_dtype type)
{
    return usable(t) && aril__is_float(type) ? aril_cast(t, type) : t;
}

/* Two shapes of a requirement as text. */
typedef struct shape_texts {
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
} shape_texts;

static shape_texts texts_of(const aril__requirement *q)
{
    shape_texts t;
    aril__shape_text(t.a, q->shape[0].ndim, q->shape[0].dim);
    aril__shape_text(t.b, q->shape[1].ndim, q->shape[1].dim);
    return t;
}

static aril_status weights_fit(const aril__requirement *q)
{
    if (aril__broadcasts_to(&q->shape[1], &q->shape[0])) return ARIL_OK;
    shape_texts t = texts_of(q);
    return aril__fail(ARIL_ERR_SHAPE, "%s: weights %s do not broadcast to the losses %s", q->what,
                      t.b, t.a);
}

/* Applies weights, which must broadcast to the losses without enlarging their shape. */
static aril_tensor *weighted(const char *what, aril_tensor *each, aril_tensor *weight)
{
    if (!weight) return each;
    if (usable(each) && usable(weight) && aril__require_of(what, weights_fit, each, weight) < 0)
        return aril__poison();
    return aril_mul(each, weight);
}

/* Applies a loss's formula, its weights and its reduction. x2 and the weights may be NULL. */
static aril_tensor *loss_of(const aril__op *op, aril_tensor *x0, aril_tensor *x1, aril_tensor *x2,
                            double p0, aril_tensor *weight, aril_reduction reduction)
{
    ARIL_SCOPE;
    struct ew_attrs attrs = { .p = { p0 } };
    aril_tensor *each = aril__apply1(op, x2 ? 3 : 2, (aril_tensor *[]){ x0, x1, x2 }, &attrs);
    each = weighted(op->name, each, weight);
    return aril_escape(aril__reduce_loss(op->name, each, reduction));
}

static aril_status shapes_equal(const aril__requirement *q)
{
    if (aril__shapes_fit(&q->shape[0], &q->shape[1])) return ARIL_OK;
    shape_texts t = texts_of(q);
    return aril__fail(ARIL_ERR_SHAPE, "%s: input %s and target %s must have the same shape",
                      q->what, t.a, t.b);
}

/* For losses that do not broadcast: checks that the shapes match. */
static aril_status same_shape(const char *what, aril_tensor *x, aril_tensor *target)
{
    if (!usable(x) || !usable(target)) return ARIL_OK; /* apply reports the error */
    return aril__require_of(what, shapes_equal, x, target);
}

/* ---- regression ---- */

aril_tensor *aril_mse_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts o)
{
    return loss_of(&aril__op_mse_loss, x, target, NULL, 0, o.weight, o.reduction);
}

aril_tensor *aril_mse_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_mse_loss_with(x, target, (aril_loss_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_l1_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts o)
{
    return loss_of(&aril__op_l1_loss, x, target, NULL, 0, o.weight, o.reduction);
}

aril_tensor *aril_l1_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_l1_loss_with(x, target, (aril_loss_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_smooth_l1_loss_with(aril_tensor *x, aril_tensor *target, aril_smooth_l1_opts o)
{
    double beta = aril__option(o.beta, 1);
    if (!(beta >= 0))
        return refused(
            aril__fail(ARIL_ERR_ARG, "smooth_l1_loss: beta must not be negative, got %g", beta));
    /* Without the quadratic part there is no 1 / beta, not even in the branch not taken. */
    const aril__op *op = beta > 0 ? &aril__op_smooth_l1_loss : &aril__op_l1_loss;
    return loss_of(op, x, target, NULL, beta, o.weight, o.reduction);
}

aril_tensor *aril_smooth_l1_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_smooth_l1_loss_with(x, target, (aril_smooth_l1_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_huber_loss_with(aril_tensor *x, aril_tensor *target, aril_huber_opts o)
{
    double delta = aril__option(o.delta, 1);
    if (!(delta > 0))
        return refused(
            aril__fail(ARIL_ERR_ARG, "huber_loss: delta must be above 0, got %g", delta));
    return loss_of(&aril__op_huber_loss, x, target, NULL, delta, o.weight, o.reduction);
}

aril_tensor *aril_huber_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_huber_loss_with(x, target, (aril_huber_opts){ .reduction = ARIL_MEAN });
}

/* Stirling's approximation of log(t!), where t > 1. */
static aril_tensor *stirling(aril_tensor *t)
{
    aril_tensor *safe = aril_clamp_min(t, 1); /* avoids log(0) in the branch not taken */
    aril_tensor *s = aril_sub(aril_xlogy(safe, safe), safe);
    s = aril_add(s, aril_mul_scalar(aril_log(aril_mul_scalar(safe, 6.283185307179586)), 0.5));
    return aril_where(aril_gt_scalar(t, 1), s, aril_scalar(0.0));
}

aril_tensor *aril_poisson_nll_loss_with(aril_tensor *x, aril_tensor *target,
                                        aril_poisson_nll_opts o)
{
    ARIL_SCOPE;
    const aril__op *op = o.rate ? &aril__op_poisson_nll_rate : &aril__op_poisson_nll_loss;
    double eps = aril__option(o.eps, 1e-8);
    aril_tensor *each = loss_of(op, x, target, NULL, eps, NULL, ARIL_NONE);
    if (o.full) each = aril_add(each, stirling(target));
    return aril_escape(aril__reduce_loss("poisson_nll_loss", each, o.reduction));
}

aril_tensor *aril_poisson_nll_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_poisson_nll_loss_with(x, target, (aril_poisson_nll_opts){ .reduction = ARIL_MEAN });
}

/* The variance has the shape of the input, or a last size of 1. */
static aril_status variance_fits(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *var = &q->shape[1];
    bool fits = x->ndim == var->ndim;
    for (int d = 0; fits && d < x->ndim; d++)
        fits = aril__size_fits(var->dim[d], x->dim[d]) || (d == x->ndim - 1 && var->dim[d] == 1);
    if (fits) return ARIL_OK;
    shape_texts t = texts_of(q);
    return aril__fail(ARIL_ERR_SHAPE,
                      "%s: input %s and variance %s do not match: the variance has the input's "
                      "shape, a last size of 1, or no last axis",
                      q->what, t.a, t.b);
}

aril_tensor *aril_gaussian_nll_loss_with(aril_tensor *x, aril_tensor *target, aril_tensor *var,
                                         aril_gaussian_nll_opts o)
{
    ARIL_SCOPE;
    double eps = aril__option(o.eps, 1e-6);
    if (!(eps > 0))
        return aril_escape(refused(
            aril__fail(ARIL_ERR_ARG, "gaussian_nll_loss: eps must be above 0, got %g", eps)));
    if (usable(x) && usable(var) && var->ndim == x->ndim - 1) var = aril_unsqueeze(var, -1);
    if (!var) return aril_escape(aril__null_tensor("gaussian_nll_loss"));
    if (usable(x) && usable(var) &&
        aril__require_of("gaussian_nll_loss", variance_fits, x, var) < 0)
        return aril_escape(aril__poison());
    aril_tensor *each = loss_of(&aril__op_gaussian_nll_loss, x, target, var, eps, NULL, ARIL_NONE);
    if (o.full) each = aril_add_scalar(each, 0.9189385332046727); /* log(2 * pi) / 2 */
    return aril_escape(aril__reduce_loss("gaussian_nll_loss", each, o.reduction));
}

aril_tensor *aril_gaussian_nll_loss(aril_tensor *x, aril_tensor *target, aril_tensor *var)
{
    return aril_gaussian_nll_loss_with(x, target, var,
                                       (aril_gaussian_nll_opts){ .reduction = ARIL_MEAN });
}

/* ---- binary classification ---- */

aril_tensor *aril_bce_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts o)
{
    if (same_shape("bce_loss", x, target) < 0 ||
        aril__check_range("bce_loss", "the input", x, 0, 1) < 0 ||
        aril__check_range("bce_loss", "the target", target, 0, 1) < 0)
        return aril__poison();
    return loss_of(&aril__op_bce_loss, x, target, NULL, 0, o.weight, o.reduction);
}

aril_tensor *aril_bce_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_bce_loss_with(x, target, (aril_loss_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_bce_with_logits_with(aril_tensor *x, aril_tensor *target,
                                       aril_bce_with_logits_opts o)
{
    if (same_shape("bce_with_logits", x, target) < 0) return aril__poison();
    const aril__op *op = o.pos_weight ? &aril__op_bce_with_logits_pos : &aril__op_bce_with_logits;
    return loss_of(op, x, target, o.pos_weight, 0, o.weight, o.reduction);
}

aril_tensor *aril_bce_with_logits(aril_tensor *x, aril_tensor *target)
{
    return aril_bce_with_logits_with(x, target,
                                     (aril_bce_with_logits_opts){ .reduction = ARIL_MEAN });
}

/* ---- distributions ---- */

aril_tensor *aril_kl_div_with(aril_tensor *x, aril_tensor *target, aril_kl_div_opts o)
{
    ARIL_SCOPE;
    const aril__op *op = o.log_target ? &aril__op_kl_div_log : &aril__op_kl_div;
    if (o.reduction != ARIL_BATCHMEAN)
        return aril_escape(loss_of(op, x, target, NULL, 0, NULL, o.reduction));
    aril_tensor *each = loss_of(op, x, target, NULL, 0, NULL, ARIL_NONE);
    if (!usable(each)) return aril_escape(each);
    /* The mean over the first axis of the sums over the others, without using any size. */
    aril_axes rest = { .n = each->ndim > 1 ? each->ndim - 1 : 0 };
    for (int i = 0; i < rest.n; i++) rest.axis[i] = i + 1;
    return aril_escape(aril_mean(rest.n ? aril_sum(each, rest) : each, ARIL_ALL));
}

aril_tensor *aril_kl_div(aril_tensor *x, aril_tensor *target)
{
    return aril_kl_div_with(x, target, (aril_kl_div_opts){ .reduction = ARIL_MEAN });
}

/* ---- margins ---- */

aril_tensor *aril_soft_margin_loss_with(aril_tensor *x, aril_tensor *target, aril_loss_opts o)
{
    return loss_of(&aril__op_soft_margin_loss, x, target, NULL, 0, o.weight, o.reduction);
}

aril_tensor *aril_soft_margin_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_soft_margin_loss_with(x, target, (aril_loss_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_multilabel_soft_margin_loss_with(aril_tensor *x, aril_tensor *target,
                                                   aril_loss_opts o)
{
    ARIL_SCOPE;
    const char *name = "multilabel_soft_margin_loss";
    if (same_shape(name, x, target) < 0) return aril_escape(aril__poison());
    if (usable(x) && x->ndim < 1)
        return aril_escape(
            refused(aril__fail(ARIL_ERR_SHAPE, "%s: expected scores [N,C] or [C], got []", name)));
    aril_tensor *each = loss_of(&aril__op_bce_with_logits, x, target, NULL, 0, NULL, ARIL_NONE);
    each = aril_mean(weighted(name, each, o.weight), ARIL_AXES(-1));
    return aril_escape(aril__reduce_loss(name, each, o.reduction));
}

aril_tensor *aril_multilabel_soft_margin_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_multilabel_soft_margin_loss_with(x, target,
                                                 (aril_loss_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_hinge_loss_with(aril_tensor *x, aril_tensor *target, aril_margin_opts o)
{
    return loss_of(&aril__op_hinge_loss, x, target, NULL, aril__option(o.margin, 1), NULL,
                   o.reduction);
}

aril_tensor *aril_hinge_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_hinge_loss_with(x, target, (aril_margin_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_hinge_embedding_loss_with(aril_tensor *x, aril_tensor *target, aril_margin_opts o)
{
    return loss_of(&aril__op_hinge_embedding_loss, x, target, NULL, aril__option(o.margin, 1), NULL,
                   o.reduction);
}

aril_tensor *aril_hinge_embedding_loss(aril_tensor *x, aril_tensor *target)
{
    return aril_hinge_embedding_loss_with(x, target, (aril_margin_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_margin_ranking_loss_with(aril_tensor *a, aril_tensor *b, aril_tensor *target,
                                           aril_margin_opts o)
{
    if (!target) return aril__null_tensor("margin_ranking_loss");
    return loss_of(&aril__op_margin_ranking_loss, a, b, target, aril__option(o.margin, 0), NULL,
                   o.reduction);
}

aril_tensor *aril_margin_ranking_loss(aril_tensor *a, aril_tensor *b, aril_tensor *target)
{
    return aril_margin_ranking_loss_with(a, b, target,
                                         (aril_margin_opts){ .reduction = ARIL_MEAN });
}

aril_tensor *aril_cosine_embedding_loss_with(aril_tensor *a, aril_tensor *b, aril_tensor *target,
                                             aril_margin_opts o)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &a, &b, &target);
    const char *name = "cosine_embedding_loss";
    if (!a || !b || !target) return aril_escape(aril__null_tensor(name));
    if (usable(a) && usable(b) && usable(target)) {
        char s[3][ARIL__SHAPE_TEXT];
        if (a->ndim != b->ndim || a->ndim != target->ndim + 1 || a->ndim > 2)
            return aril_escape(refused(aril__fail(ARIL_ERR_SHAPE,
                                                  "%s: got inputs %s and %s, target %s; expected "
                                                  "[N,D], [N,D] and [N], or [D], [D] and []",
                                                  name, aril__text(s[0], a), aril__text(s[1], b),
                                                  aril__text(s[2], target))));
    }
    const double eps = 1e-12;
    aril_dtype type = widest(a, b);
    a = widened(a);
    b = widened(b);
    aril_tensor *dot = aril_sum(aril_mul(a, b), ARIL_AXES(-1));
    aril_tensor *aa = aril_add_scalar(aril_sum(aril_square(a), ARIL_AXES(-1)), eps);
    aril_tensor *bb = aril_add_scalar(aril_sum(aril_square(b), ARIL_AXES(-1)), eps);
    aril_tensor *cosine = aril_div(dot, aril_sqrt(aril_mul(aa, bb)));
    aril_tensor *apart = aril_clamp_min(aril_sub_scalar(cosine, aril__option(o.margin, 0)), 0);
    aril_tensor *zero = aril_scalar(0.0), *near = aril_rsub_scalar(cosine, 1);
    aril_tensor *each = aril_add(aril_where(aril_eq_scalar(target, 1), near, zero),
                                 aril_where(aril_eq_scalar(target, -1), apart, zero));
    return aril_escape(narrowed(aril__reduce_loss(name, each, o.reduction), type));
}

aril_tensor *aril_cosine_embedding_loss(aril_tensor *a, aril_tensor *b, aril_tensor *target)
{
    return aril_cosine_embedding_loss_with(a, b, target,
                                           (aril_margin_opts){ .reduction = ARIL_MEAN });
}

/* ---- distances ---- */

static aril_status shapes_broadcast(const aril__requirement *q)
{
    aril_shape to = q->shape[0];
    if (aril__broadcast(&to.ndim, to.dim, q->shape[1].ndim, q->shape[1].dim)) return ARIL_OK;
    shape_texts t = texts_of(q);
    return aril__fail(ARIL_ERR_SHAPE, "%s: shapes %s and %s do not broadcast", q->what, t.a, t.b);
}

aril_tensor *aril_cosine_similarity_with(aril_tensor *a, aril_tensor *b, int axis,
                                         aril_cosine_opts o)
{
    ARIL_SCOPE;
    double eps = aril__option(o.eps, 1e-8);
    if (!a || !b) return aril_escape(aril__null_tensor("cosine_similarity"));
    /* Give both the rank of their broadcast shape, so that `axis` means the same in each. */
    if (usable(a) && usable(b)) {
        int n = a->ndim > b->ndim ? a->ndim : b->ndim;
        if (aril__require_of("cosine_similarity", shapes_broadcast, a, b) < 0)
            return aril_escape(aril__poison());
        axis = aril__axis("cosine_similarity", axis, n);
        if (axis < 0) return aril_escape(aril__poison());
        axis -= n > 0 ? n : 1; /* from the end */
        aril_tensor *of[2] = { a, b };
        for (int i = 0; i < 2; i++)
            while (usable(of[i]) && of[i]->ndim < n) of[i] = aril_unsqueeze(of[i], 0);
        a = of[0];
        b = of[1];
        /* If one has size 1 along the axis, expand it to the other's size. */
        if (n > 0 && usable(a) && usable(b)) {
            int at = n + axis;
            int64_t size = aril__broadcast_size(a->dim[at], b->dim[at], a);
            a = aril__expand_axis(a, at, size);
            b = aril__expand_axis(b, at, size);
        }
    }
    aril_dtype type = widest(a, b);
    a = widened(a);
    b = widened(b);
    aril_axes along = ARIL_KEEPDIM(axis);
    aril_tensor *na = aril_clamp_min(aril_norm(a, along, 2), eps);
    aril_tensor *nb = aril_clamp_min(aril_norm(b, along, 2), eps);
    aril_tensor *both = aril_mul(aril_div(a, na), aril_div(b, nb));
    return aril_escape(narrowed(aril_sum(both, ARIL_AXES(axis)), type));
}

aril_tensor *aril_cosine_similarity(aril_tensor *a, aril_tensor *b, int axis)
{
    return aril_cosine_similarity_with(a, b, axis, (aril_cosine_opts){ 0 });
}

aril_tensor *aril_pairwise_distance_with(aril_tensor *a, aril_tensor *b, aril_distance_opts o)
{
    ARIL_SCOPE;
    aril_axes along = { .n = 1, .keepdim = o.keepdim, .axis = { -1 } };
    aril_dtype type = widest(a, b);
    aril_tensor *d = aril_add_scalar(aril_sub(widened(a), widened(b)), aril__option(o.eps, 1e-6));
    return aril_escape(narrowed(aril_norm(d, along, aril__option(o.p, 2)), type));
}

aril_tensor *aril_pairwise_distance(aril_tensor *a, aril_tensor *b)
{
    return aril_pairwise_distance_with(a, b, (aril_distance_opts){ 0 });
}

aril_tensor *aril_triplet_margin_loss_with(aril_tensor *anchor, aril_tensor *positive,
                                           aril_tensor *negative, aril_triplet_margin_opts o)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &anchor, &positive, &negative);
    aril_distance_opts d = { .p = o.p, .eps = o.eps };
    double margin = aril__option(o.margin, 1);
    if (!(margin > 0))
        return aril_escape(refused(aril__fail(
            ARIL_ERR_ARG, "triplet_margin_loss: margin must be above 0, got %g", margin)));
    if (usable(anchor) && usable(positive) && usable(negative) &&
        (anchor->ndim != positive->ndim || anchor->ndim != negative->ndim)) {
        char s[3][ARIL__SHAPE_TEXT];
        return aril_escape(refused(aril__fail(ARIL_ERR_SHAPE,
                                              "triplet_margin_loss: anchor %s, positive %s and "
                                              "negative %s must have the same number of dimensions",
                                              aril__text(s[0], anchor), aril__text(s[1], positive),
                                              aril__text(s[2], negative))));
    }
    aril_tensor *near = aril_pairwise_distance_with(anchor, positive, d);
    aril_tensor *far = aril_pairwise_distance_with(anchor, negative, d);
    if (o.swap) far = aril_minimum(far, aril_pairwise_distance_with(positive, negative, d));
    aril_tensor *each = aril_clamp_min(aril_add_scalar(aril_sub(near, far), margin), 0);
    return aril_escape(aril__reduce_loss("triplet_margin_loss", each, o.reduction));
}

aril_tensor *aril_triplet_margin_loss(aril_tensor *anchor, aril_tensor *positive,
                                      aril_tensor *negative)
{
    return aril_triplet_margin_loss_with(anchor, positive, negative,
                                         (aril_triplet_margin_opts){ .reduction = ARIL_MEAN });
}

/* ---- penalties ---- */

static aril_tensor *penalty(const char *what, aril_list w, double strength,
                            aril_tensor *(*size)(aril_tensor *))
{
    ARIL_SCOPE;
    aril_tensor *total = NULL;
    if (w.n < 1 || !w.at)
        return aril_escape(refused(aril__fail(ARIL_ERR_ARG, "%s: the list is empty", what)));
    for (int i = 0; i < w.n; i++) {
        if (!w.at[i]) return aril_escape(aril__null_tensor(what));
        aril_tensor *one = aril_sum(size(w.at[i]), ARIL_ALL);
        total = total ? aril_add(total, one) : one;
    }
    return aril_escape(aril_mul_scalar(total, strength));
}

aril_tensor *aril_l1_penalty(aril_list parameters, double strength)
{
    return penalty("l1_penalty", parameters, strength, aril_abs);
}

aril_tensor *aril_l2_penalty(aril_list parameters, double strength)
{
    return penalty("l2_penalty", parameters, strength, aril_square);
}
