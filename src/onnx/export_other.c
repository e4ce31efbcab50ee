/* Rows of losses, signals, linear algebra, random numbers and optimizers. */
#include "onnx/export_rules.h"
#include "ops/linalg/cdist.h"
#include "ops/loss/loss.h"
#include "ops/random/dropout.h"
#include "ops/random/random.h"
#include "ops/shape/create.h"
#include "ops/signal/fft.h"
#include "ops/update/update.h"

#include <math.h>
#include <string.h>

/* ---- losses over classes ---- */

static const char *reduction_name(int64_t reduction)
{
    return reduction == ARIL_MEAN ? "mean" : reduction == ARIL_SUM ? "sum" : "none";
}

/* Readers expand the operators of losses into functions, which cannot reshape an empty input. */
static bool is_plain_loss(const export_call *c)
{
    bool empty = false;
    for (int d = 0; d < ndim_in(c, 0); d++) empty |= dims_in(c, 0)[d] == 0;
    return !empty && ((const struct nll_attrs *)c->attrs)->label_smoothing[0] == 0 &&
           ndim_in(c, 0) >= 2;
}

static aril_status class_loss(export_call *c)
{
    const struct nll_attrs *a = c->attrs;
    return set_out(c, 0,
                   put(c, c->rule->onnx,
                       VALUES(aril__export_in(c, 0), aril__export_in_as(c, 1, ARIL_I64),
                              has(c, 2) ? aril__export_in(c, 2) : NULL),
                       ATTRIBUTES(attr_text("reduction", reduction_name(a->reduction[0])),
                                  attr_int("ignore_index", a->ignore_index[0]))));
}

/* What a loss over classes is made of. */
typedef struct classes {
    int axis;
    aril_tensor *valid;   /* 1, or 0 for targets that are ignored */
    aril_tensor *target;  /* the class, 0 if it is ignored */
    aril_tensor *weight;  /* of the target's class, or of 1 */
    aril_tensor *weights; /* of all classes, along their axis; NULL: 1 */
} classes;

static classes classes_of(aril_tensor *x, aril_tensor *target, aril_tensor *weight,
                          const struct nll_attrs *a)
{
    aril_dtype dtype = (aril_dtype)x->dtype;
    classes s = { .axis = x->ndim == 1 ? 0 : 1 };
    aril_tensor *t = aril_cast(target, ARIL_I64), *valid = aril_ne_scalar(t, a->ignore_index[0]);
    s.valid = aril_cast(valid, dtype);
    s.target = aril_where(valid, t, aril_zeros_like(t));
    s.weight = s.valid;
    if (!weight) return s;
    aril_tensor *of =
        aril_reshape(aril_index_select(weight, aril_reshape(s.target, ARIL_SHAPE(-1)), 0),
                     ARIL_SHAPE(-1));
    aril_shape like = { .ndim = t->ndim };
    memcpy(like.dim, t->dim, sizeof like.dim);
    s.weight = aril_mul(s.valid, aril_reshape(aril_cast(of, dtype), like));
    s.weights = aril_cast(weight, dtype);
    for (int d = s.axis + 1; d < x->ndim; d++) s.weights = aril_unsqueeze(s.weights, -1);
    return s;
}

/* -log p of the target, and of all classes with label smoothing. */
static void nll_loss(aril__call *c, aril_tensor **out)
{
    const struct nll_attrs *a = c->attrs;
    bool softmax = strcmp(c->op->name, "cross_entropy") == 0;
    aril_tensor *x = c->in[0];
    classes s = classes_of(x, c->in[1], c->in[2], a);
    if (softmax) x = aril_log_softmax(x, s.axis);
    double e = a->label_smoothing[0];
    aril_tensor *own =
        aril_squeeze(aril_gather(x, aril_unsqueeze(s.target, s.axis), s.axis), ARIL_AXES(s.axis));
    aril_tensor *loss = aril_mul_scalar(aril_mul(own, s.weight), -(1 - e));
    if (e != 0) {
        aril_tensor *all = aril_sum(s.weights ? aril_mul(x, s.weights) : x, ARIL_AXES(s.axis));
        double share = e / (double)c->in[0]->dim[s.axis];
        loss = aril_sub(loss, aril_mul(aril_mul_scalar(all, share), s.valid));
    }
    if (a->reduction[0] == ARIL_NONE)
        out[0] = loss;
    else if (a->reduction[0] == ARIL_SUM)
        out[0] = aril_sum(loss, (aril_axes){ 0 });
    else
        out[0] = aril_div(aril_sum(loss, (aril_axes){ 0 }), aril_sum(s.weight, (aril_axes){ 0 }));
}

/* in: g, target, weight?, x */
static void nll_loss_grad(aril__call *c, aril_tensor **out)
{
    const struct nll_attrs *a = c->attrs;
    aril_tensor *x = c->in[3], *g = c->in[0];
    aril_dtype dtype = (aril_dtype)g->dtype;
    classes s = classes_of(aril_cast(x, dtype), c->in[1], c->in[2], a);
    double e = a->label_smoothing[0];
    int64_t n = x->dim[s.axis];
    if (a->reduction[0] == ARIL_MEAN) g = aril_div(g, aril_sum(s.weight, (aril_axes){ 0 }));
    aril_tensor *hit = aril_cast(aril_one_hot(s.target, n), dtype); /* [..., classes] */
    for (int d = x->ndim - 1; d > s.axis; d--) hit = aril_transpose(hit, d - 1, d);
    aril_tensor *k = aril_unsqueeze(aril_neg(aril_mul(g, s.valid)), s.axis);
    aril_tensor *own =
        aril_unsqueeze(aril_mul_scalar(aril_neg(aril_mul(g, s.weight)), 1 - e), s.axis);
    aril_tensor *y = aril_mul(hit, own);
    if (e != 0) {
        aril_tensor *all = aril_mul_scalar(k, e / (double)n);
        y = aril_add(y, s.weights ? aril_mul(all, s.weights) : all);
    }
    out[0] = y;
}

/* in: x [N,C], target [N], weight? */
static void multi_margin_loss(aril__call *c, aril_tensor **out)
{
    const struct multi_margin_attrs *a = c->attrs;
    aril_tensor *x = c->in[0];
    bool single = x->ndim == 1;
    aril_tensor *t = aril_cast(c->in[1], ARIL_I64);
    if (single) {
        x = aril_unsqueeze(x, 0);
        t = aril_reshape(t, ARIL_SHAPE(1));
    }
    aril_dtype dtype = (aril_dtype)x->dtype;
    aril_tensor *own = aril_gather(x, aril_unsqueeze(t, -1), 1);
    aril_tensor *apart = aril_clamp_min(aril_rsub_scalar(aril_sub(own, x), a->margin[0]), 0.0);
    if (a->p[0] == 2) apart = aril_square(apart);
    aril_tensor *others = aril_rsub_scalar(aril_cast(aril_one_hot(t, x->dim[1]), dtype), 1);
    aril_tensor *sum = aril_sum(aril_mul(apart, others), ARIL_AXES(1));
    if (c->in[2]) sum = aril_mul(sum, aril_index_select(c->in[2], t, 0));
    if (!a->sum_classes[0]) sum = aril_div_scalar(sum, (double)x->dim[1]);
    out[0] = single ? aril_reshape(sum, ARIL_SHAPE()) : sum;
}

/* ---- signals: linear maps of the last axes ---- */

enum { LARGEST_MATRIX = 1 << 24 };

/* The matrix of an op that maps the last `from` axes of its input linearly to the last `to` of its
 * result. */
static void by_matrix(aril__call *c, aril_tensor **out)
{
    bool complex_in = strcmp(c->op->name, "fft_c2c") == 0 || strcmp(c->op->name, "fft_c2r") == 0;
    bool frames_in = strcmp(c->op->name, "overlap_add") == 0;
    const aril_tensor *x = c->in[0];
    const aril__meta *o = &c->out[0];
    int from = complex_in || frames_in ? 2 : 1, to = o->ndim - (x->ndim - from);
    int64_t n = 1, m = 1;
    aril_shape lines = { .ndim = 1 + from }, whole = { .ndim = o->ndim };
    for (int d = 0; d < from; d++) n *= lines.dim[1 + d] = x->dim[x->ndim - from + d];
    for (int d = 0; d < to; d++) m *= o->dim[o->ndim - to + d];
    memcpy(whole.dim, o->dim, sizeof whole.dim);
    lines.dim[0] = n;
    if (n < 0 || m < 0 || n > LARGEST_MATRIX / (m ? m : 1)) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: has no form in ONNX for %s sizes", c->op->name,
                   n < 0 || m < 0 ? "unknown" : "such large");
        out[0] = aril__poison();
        return;
    }
    aril__pause p = aril__trace_pause();
    aril_tensor *in[2] = { aril_reshape(aril_eye(n, n, ARIL_F64, aril_cpu()), lines), NULL };
    aril_shape like = { 0 };
    if (strcmp(c->op->name, "frames_like") == 0)
        like = ARIL_SHAPE(n, o->dim[o->ndim - 2], o->dim[o->ndim - 1]);
    else if (c->n_in > 1 && c->in[1])
        like = ARIL_SHAPE(c->in[1]->dim[c->in[1]->ndim - 1]);
    if (c->n_in > 1 && c->in[1]) in[1] = aril_zeros(like, ARIL_F64, aril_cpu());
    aril_tensor *y = aril__apply1(c->op, c->n_in, in, c->attrs);
    aril_tensor *matrix = aril_cast(aril_reshape(y, ARIL_SHAPE(n, m)), (aril_dtype)x->dtype);
    aril__trace_resume(p);
    aril_tensor *flat = c->in[0];
    if (from == 2) flat = aril_flatten(flat, -2, -1);
    out[0] = aril_reshape(aril_matmul(flat, matrix), whole);
}

/* Cut, or padded with zeros. */
static void resize_axis(aril__call *c, aril_tensor **out)
{
    const struct resize_axis_attrs *a = c->attrs;
    aril_tensor *x = c->in[0];
    int axis = x->ndim - (int)a->axis[0];
    int64_t n = c->out[0].dim[axis], size = x->dim[axis];
    if (n < 0 || size < 0) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "resize_axis: has no form in ONNX for unknown sizes");
        out[0] = aril__poison();
        return;
    }
    aril_shape more = { .ndim = x->ndim };
    memcpy(more.dim, x->dim, sizeof more.dim);
    more.dim[axis] = n - size;
    out[0] = n <= size
                 ? aril_slice(x, axis, 0, n, 1)
                 : aril_cat(ARIL_LIST(x, aril_zeros(more, (aril_dtype)x->dtype, aril_cpu())), axis);
}

/* ---- linear algebra ---- */

static aril_status det(export_call *c)
{
    return set_out(c, 0, put(c, "Det", VALUES(aril__export_in(c, 0)), NO_ATTRS));
}

static void slogdet(aril__call *c, aril_tensor **out)
{
    aril_tensor *d = aril_det(c->in[0]);
    out[0] = aril_sign(d);
    out[1] = aril_log(aril_abs(d));
}

static void cdist(aril__call *c, aril_tensor **out)
{
    const struct cdist_attrs *a = c->attrs;
    aril_tensor *apart = aril_sub(aril_unsqueeze(c->in[0], -2), aril_unsqueeze(c->in[1], -3));
    out[0] = aril_norm(apart, ARIL_AXES(-1), a->p[0]);
}

/* ---- random numbers: others in each program ---- */

static aril_status random_write(export_call *c)
{
    const struct create_attrs *a = c->attrs;
    bool normal = strcmp(c->op->name, "randn") == 0;
    aril_dtype dtype = dtype_out(c, 0);
    if (!aril__export_known(ndim_out(c, 0), dims_out(c, 0)) || !aril__is_float(dtype) ||
        dtype == ARIL_BF16)
        return ARIL__EXPORT_DECLINED;
    return set_out(c, 0,
                   put(c, c->rule->onnx, (export_values){ 0 },
                       ATTRIBUTES(attr_ints("shape", ndim_out(c, 0), dims_out(c, 0)),
                                  attr_int("dtype", aril__onnx_dtype_number(dtype)),
                                  attr_float(normal ? "mean" : "low", a->value[0]),
                                  attr_float(normal ? "scale" : "high", a->value[1]))));
}

static aril_status bernoulli(export_call *c)
{
    return set_out(c, 0,
                   put(c, "Bernoulli", VALUES(aril__export_in(c, 1)),
                       ATTRIBUTES(attr_int("dtype", aril__onnx_dtype_number(dtype_out(c, 0))))));
}

/* Without dropped elements, x * scale + kept. */
static bool drops_nothing(const export_call *c)
{
    return ((const struct dropout_attrs *)c->attrs)->p[0] == 0;
}

static aril_status dropout(export_call *c)
{
    const struct dropout_attrs *a = c->attrs;
    aril_dtype dtype = dtype_out(c, 0);
    export_value *y = aril__export_in(c, 1);
    if (a->scale[0] != 1)
        y = put(c, "Mul", VALUES(y, aril__export_number(c, a->scale[0], dtype)), NO_ATTRS);
    if (a->kept[0] != 0)
        y = put(c, "Add", VALUES(y, aril__export_number(c, a->kept[0], dtype)), NO_ATTRS);
    return set_out(c, 0, put(c, "Identity", VALUES(y), NO_ATTRS));
}

/* ---- optimizers ----
 *
 * Steps in public ops, after the rows of optimizers.def. */

typedef struct step {
    const struct update_attrs *a;
    aril_tensor *lr, *t; /* 0-d, in the dtype that steps are computed in */
    aril_tensor *x, *g;
    aril_tensor *slot[ARIL__RULE_SLOTS];
} step;

/* m + (g - m) * share */
static aril_tensor *towards(aril_tensor *m, aril_tensor *g, double share)
{
    return aril_add(m, aril_mul_scalar(aril_sub(g, m), share));
}

/* v * old + (1 - old) * g^2 */
static aril_tensor *mean_square(aril_tensor *v, aril_tensor *g, double old)
{
    return aril_add(aril_mul_scalar(v, old), aril_mul_scalar(aril_square(g), 1 - old));
}

/* 1 - beta^t */
static aril_tensor *unbias(const step *s, double beta)
{
    aril_tensor *b = aril_full(ARIL_SHAPE(), beta, ARIL_F64, aril_cpu());
    return aril_rsub_scalar(aril_pow(b, s->t), 1);
}

static aril_tensor *with(const aril_tensor *x, aril_tensor *number)
{
    return aril_cast(number, (aril_dtype)x->dtype);
}

static aril_tensor *less(aril_tensor *x, aril_tensor *rate, aril_tensor *d)
{
    return aril_sub(x, aril_mul(with(x, rate), d));
}

static aril_tensor *slowed(const step *s) /* lr / (1 + decay * (t - 1)) */
{
    if (s->a->decay[0] == 0) return s->lr;
    aril_tensor *past = aril_mul_scalar(aril_add_scalar(s->t, -1), s->a->decay[0]);
    return aril_div(s->lr, aril_add_scalar(past, 1));
}

static void sgd_step(step *s)
{
    aril_tensor *d = s->g, *m = s->slot[0];
    if (m) {
        aril_tensor *first = aril_le_scalar(s->t, 1);
        aril_tensor *share =
            aril_where(first, aril_ones_like(s->t), aril_full_like(s->t, 1 - s->a->dampening[0]));
        if (s->a->dampening[0] == 0) share = NULL;
        aril_tensor *g = share ? aril_mul(with(s->g, share), s->g) : s->g;
        s->slot[0] = m = aril_add(aril_mul_scalar(m, s->a->momentum[0]), g);
        d = s->a->nesterov[0] ? aril_add(s->g, aril_mul_scalar(m, s->a->momentum[0])) : m;
    }
    s->x = less(s->x, slowed(s), d);
}

static void adam_step(step *s)
{
    const struct update_attrs *a = s->a;
    aril_tensor *m = towards(s->slot[0], s->g, 1 - a->beta1[0]);
    aril_tensor *v = mean_square(s->slot[1], s->g, a->beta2[0]), *spread = v;
    s->slot[0] = m;
    s->slot[1] = v;
    if (s->slot[2]) spread = s->slot[2] = aril_maximum(v, s->slot[2]);
    aril_tensor *scale = aril_reciprocal(aril_sqrt(unbias(s, a->beta2[0])));
    aril_tensor *under = aril_add_scalar(aril_mul(aril_sqrt(spread), with(v, scale)), a->eps[0]);
    s->x = less(s->x, aril_div(s->lr, unbias(s, a->beta1[0])), aril_div(m, under));
}

static void adagrad_step(step *s)
{
    s->slot[0] = aril_add(s->slot[0], aril_square(s->g));
    s->x =
        less(s->x, slowed(s), aril_div(s->g, aril_add_scalar(aril_sqrt(s->slot[0]), s->a->eps[0])));
}

static void adadelta_step(step *s)
{
    double eps = s->a->eps[0], old = s->a->alpha[0];
    aril_tensor *v = s->slot[0] = mean_square(s->slot[0], s->g, old);
    aril_tensor *d =
        aril_div(aril_sqrt(aril_add_scalar(s->slot[1], eps)), aril_sqrt(aril_add_scalar(v, eps)));
    d = aril_mul(d, s->g);
    s->slot[1] = mean_square(s->slot[1], d, old);
    s->x = less(s->x, s->lr, d);
}

static void adamax_step(step *s)
{
    aril_tensor *size = aril_add_scalar(aril_abs(s->g), s->a->eps[0]);
    s->slot[0] = towards(s->slot[0], s->g, 1 - s->a->beta1[0]);
    s->slot[1] = aril_maximum(size, aril_mul_scalar(s->slot[1], s->a->beta2[0]));
    s->x = less(s->x, aril_div(s->lr, unbias(s, s->a->beta1[0])), aril_div(s->slot[0], s->slot[1]));
}

static void lion_step(step *s)
{
    double b1 = s->a->beta1[0], b2 = s->a->beta2[0];
    aril_tensor *m = s->slot[0];
    aril_tensor *d = aril_add(aril_mul_scalar(m, b1), aril_mul_scalar(s->g, 1 - b1));
    s->slot[0] = aril_add(aril_mul_scalar(m, b2), aril_mul_scalar(s->g, 1 - b2));
    s->x = less(s->x, s->lr, aril_sign(d));
}

static void rmsprop_step(step *s)
{
    const struct update_attrs *a = s->a;
    aril_tensor *v = s->slot[0] = mean_square(s->slot[0], s->g, a->alpha[0]), *spread = v;
    if (s->slot[1]) {
        s->slot[1] = towards(s->slot[1], s->g, 1 - a->alpha[0]);
        spread = aril_sub(v, aril_square(s->slot[1]));
    }
    aril_tensor *d = aril_div(s->g, aril_add_scalar(aril_sqrt(spread), a->eps[0]));
    if (s->slot[2]) d = s->slot[2] = aril_add(aril_mul_scalar(s->slot[2], a->momentum[0]), d);
    s->x = less(s->x, s->lr, d);
}

static void average_step(step *s)
{
    s->x = aril_add(s->x, aril_mul(with(s->x, s->lr), aril_sub(s->g, s->x)));
}

static const struct {
    aril__rule rule;
    void (*step)(step *s);
} steps[] = {
    { ARIL__RULE_sgd, sgd_step },         { ARIL__RULE_adam, adam_step },
    { ARIL__RULE_adagrad, adagrad_step }, { ARIL__RULE_adadelta, adadelta_step },
    { ARIL__RULE_adamax, adamax_step },   { ARIL__RULE_lion, lion_step },
    { ARIL__RULE_rmsprop, rmsprop_step }, { ARIL__RULE_average, average_step },
};

/* The gradient as rules take it, and the parameter after decoupled weight decay. */
static void prepare(step *s, aril_tensor *factor)
{
    const struct update_attrs *a = s->a;
    if (factor) s->g = aril_mul(s->g, with(s->g, factor));
    if (a->maximize[0]) s->g = aril_neg(s->g);
    if (a->clip_value[0] > 0) s->g = aril_clamp(s->g, -a->clip_value[0], a->clip_value[0]);
    double decay = a->weight_decay[0];
    if (decay == 0) return;
    if (a->decoupled[0])
        s->x = aril_mul(s->x, with(s->x, aril_rsub_scalar(aril_mul_scalar(s->lr, decay), 1)));
    else
        s->g = aril_add(s->g, aril_mul_scalar(s->x, decay));
}

/* A negative factor: a gradient overflowed, and nothing changes. */
static aril_tensor *unless_skipped(aril_tensor *now, aril_tensor *before, aril_tensor *factor)
{
    return factor ? aril_where(aril_lt_scalar(factor, 0), before, now) : now;
}

static void update(aril__call *c, aril_tensor **out)
{
    const struct update_attrs *a = c->attrs;
    int n = aril__items(c->op, c->n_in), k = 0;
    void (*fn)(step *) = NULL;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if ((int64_t)steps[i].rule == a->rule[0]) fn = steps[i].step;
    if (!fn || c->in[ARIL__UPDATE_MOMENTUM] || c->in[ARIL__UPDATE_NORMS]) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "update: a step of %s%s has no form in ONNX",
                   aril__rules[a->rule[0]].name,
                   c->in[ARIL__UPDATE_MOMENTUM] ? " with scheduled momentum" : "");
        out[0] = aril__poison();
        return;
    }
    aril_tensor *factor = c->in[ARIL__UPDATE_FACTOR], *t = c->in[ARIL__UPDATE_STEP];
    t = t ? aril_add_scalar(aril_cast(t, ARIL_F64), -(double)a->missed[0])
          : aril_full(ARIL_SHAPE(), 2, ARIL_F64, aril_cpu());
    for (int i = 0; i < n; i++) {
        aril_tensor *const *item = c->in + c->op->fixed + i * ARIL__ITEM;
        aril_tensor *master = item[ARIL__ITEM_MASTER], *p = item[ARIL__ITEM_P];
        step s = { .a = a, .lr = aril_cast(c->in[ARIL__UPDATE_LR], ARIL_F64), .t = t };
        s.x = master ? master : p;
        s.g = aril_cast(item[ARIL__ITEM_GRAD], (aril_dtype)s.x->dtype);
        for (int q = 0; q < ARIL__RULE_SLOTS; q++) s.slot[q] = item[ARIL__ITEM_SLOT + q];
        prepare(&s, factor);
        fn(&s);
        out[k++] = unless_skipped(aril_cast(s.x, (aril_dtype)p->dtype), p, factor);
        for (int q = 0; q < ARIL__RULE_SLOTS; q++)
            if (item[ARIL__ITEM_SLOT + q])
                out[k++] = unless_skipped(s.slot[q], item[ARIL__ITEM_SLOT + q], factor);
        if (master) out[k++] = unless_skipped(s.x, master, factor);
    }
}

/* ---- rows ---- */

#define TAKES(op_, from_, onnx_, fn, test)                                  \
    {                                                                       \
        .op = op_, .from = from_, .onnx = onnx_, .write = fn, .takes = test \
    }

const export_rule aril__export_other_rules[] = {
    TAKES("nll_loss", 13, "NegativeLogLikelihoodLoss", class_loss, is_plain_loss),
    TAKES("cross_entropy", 13, "SoftmaxCrossEntropyLoss", class_loss, is_plain_loss),
    LOWER("nll_loss", nll_loss),
    LOWER("cross_entropy", nll_loss),
    LOWER("nll_loss_grad", nll_loss_grad),
    LOWER("multi_margin_loss", multi_margin_loss),
    LOWER("fft_c2c", by_matrix),
    LOWER("fft_r2c", by_matrix),
    LOWER("fft_c2r", by_matrix),
    LOWER("frames", by_matrix),
    LOWER("frames_like", by_matrix),
    LOWER("overlap_add", by_matrix),
    LOWER("resize_axis", resize_axis),
    WRITE("det", 13, "Det", det),
    LOWER("slogdet", slogdet),
    LOWER("cdist", cdist),
    WRITE("rand", 13, "RandomUniform", random_write),
    WRITE("randn", 13, "RandomNormal", random_write),
    WRITE("bernoulli", 15, "Bernoulli", bernoulli),
    TAKES("dropout", 13, "Identity", dropout, drops_nothing),
    LOWER("update", update),
    { .op = NULL },
};
