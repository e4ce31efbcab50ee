/* Softmax, losses of classification, Accuracy. */
#include "models/caffe/layer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define FORWARD(name) \
    static void name(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)

/* The same numbers as in Caffe's enum. */
typedef enum normalization { BY_FULL, BY_VALID, BY_BATCH, BY_NONE } normalization;

typedef struct class_loss {
    caffe_layer base;
    normalization by;
    bool ignores;
    int64_t ignored;
    aril_tensor *infogain; /* kept */
} class_loss;

/* ---- parameters of losses ---- */

static aril_status read_loss(aril_module *m, caffe_layer *l, normalization initial)
{
    class_loss *c = aril_module_data(m);
    const aril__message *p = aril__message_sub(l->message, "loss_param");
    int64_t by = aril__message_int(p, "normalization");
    c->ignores = aril__message_has(p, "ignore_label");
    c->ignored = aril__message_int(p, "ignore_label");
    if (by < BY_FULL || by > BY_NONE)
        return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED, "there is no normalization %lld",
                               (long long)by);
    if (aril__message_has(p, "normalization"))
        c->by = (normalization)by;
    else if (aril__message_has(p, "normalize"))
        c->by = aril__message_int(p, "normalize") ? BY_VALID : BY_BATCH;
    else
        c->by = initial;
    return ARIL_OK;
}

static aril_status softmax_loss_check(aril_module *m, caffe_layer *l)
{
    return read_loss(m, l, BY_VALID);
}

static aril_status sigmoid_loss_check(aril_module *m, caffe_layer *l)
{
    return read_loss(m, l, BY_BATCH);
}

/* The sum of losses, of which `valid` (a float for each, NULL: all 1) count, divided as the layer
 * says; by at least 1. */
static aril_tensor *normalized(const class_loss *c, aril_tensor *each, aril_tensor *valid,
                               int64_t batch)
{
    aril_tensor *sum = aril_sum(each, ARIL_ALL);
    double n = 1;
    if (c->by == BY_VALID && valid) {
        aril_tensor *count = aril_clamp_min(aril_sum(valid, ARIL_ALL), 1);
        return aril_div(sum, aril_cast(count, aril_dtype_of(sum)));
    }
    if (c->by == BY_FULL || c->by == BY_VALID)
        n = (double)aril_numel(each);
    else if (c->by == BY_BATCH)
        n = (double)batch;
    return n > 1 ? aril_mul_scalar(sum, 1 / n) : sum;
}

/* ---- labels ---- */

/* Of scores [...,C,...] with C along `axis` and a label for each position: x as [outer,C,inner],
 * labels as [outer,inner] i64. */
typedef struct labelled {
    aril_tensor *x, *label;
    int axis;
} labelled;

static aril_status label_of(aril_tensor *x, aril_tensor *label, int64_t axis, labelled *to)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    aril_status s = aril__caffe_axis("axis", x, axis, false, &to->axis);
    if (s < 0) return s;
    to->x = aril__caffe_around(x, to->axis);
    int64_t outer = aril_size(to->x, 0), inner = aril_size(to->x, 2);
    if (aril_numel(label) >= 0 && outer >= 0 && inner >= 0 && aril_numel(label) != outer * inner)
        return aril__fail(ARIL_ERR_SHAPE,
                          "the bottom %s needs %lld labels along axis %d, got %s: a label for each "
                          "position",
                          aril__text(a, x), (long long)(outer * inner), to->axis,
                          aril__text(b, label));
    to->label = aril_reshape(aril__caffe_integers(label), ARIL_SHAPE(outer, inner));
    return ARIL_OK;
}

/* 1 where the label is not the ignored one; NULL if none is. And labels without ignored ones. */
static aril_tensor *valid_of(const class_loss *c, labelled *v, aril_dtype dtype)
{
    if (!c->ignores) return NULL;
    aril_tensor *valid = aril_ne_scalar(v->label, c->ignored);
    v->label = aril_where(valid, v->label, aril_zeros_like(v->label));
    return aril_cast(valid, dtype);
}

/* ---- Softmax, SoftmaxWithLoss ---- */

static aril_status softmax_axis(const caffe_layer *l, const aril_tensor *x, int *axis)
{
    const aril__message *p = aril__message_sub(l->message, "softmax_param");
    return aril__caffe_axis("axis", x, aril__message_int(p, "axis"), false, axis);
}

FORWARD(softmax)
{
    int axis;
    (void)m;
    out[0] = softmax_axis(l, in[0], &axis) == ARIL_OK ? aril_softmax(in[0], axis) : aril__poison();
}

/* Probabilities are at least FLT_MIN, so that a loss is at most 87.3365. */
FORWARD(softmax_loss)
{
    const class_loss *c = aril_module_data(m);
    labelled v;
    int axis;
    aril_status s = softmax_axis(l, in[0], &axis);
    if (s == ARIL_OK) s = label_of(in[0], in[1], axis, &v);
    if (s < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *valid = valid_of(c, &v, aril_dtype_of(in[0]));
    aril_cross_entropy_opts o = { .reduction = ARIL_NONE, .ignore_index = INT64_MIN };
    aril_tensor *each = aril_cross_entropy_with(v.x, v.label, o); /* [outer,inner] */
    each = aril__caffe_straight(aril_clamp_max(aril_detach(each), -log(FLT_MIN)), each);
    if (valid) each = aril_mul(each, valid);
    out[0] = normalized(c, each, valid, aril_size(v.x, 0));
    if (l->n_tops > 1) out[1] = aril_softmax(in[0], axis);
}

/* ---- MultinomialLogisticLoss, InfogainLoss ---- */

static const double log_threshold = 1e-20;

/* log(max(p, 1e-20)) with the gradient of the logarithm of that number. */
static aril_tensor *safe_log(aril_tensor *p)
{
    return aril_log(aril__caffe_straight(aril_clamp_min(aril_detach(p), log_threshold), p));
}

/* A label for each sample, among all of its scores. */
FORWARD(multinomial)
{
    (void)m;
    labelled v;
    if (label_of(aril_flatten(in[0], 1, -1), in[1], 1, &v) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *p = aril_gather(v.x, aril_unsqueeze(v.label, 1), 1);
    double n = in[0]->dim[0] > 1 ? (double)in[0]->dim[0] : 1;
    out[0] = aril_mul_scalar(aril_sum(safe_log(p), ARIL_ALL), -1 / n);
}

static aril_status infogain_check(aril_module *m, caffe_layer *l)
{
    class_loss *c = aril_module_data(m);
    const char *source = aril__message_text(l->param, "source");
    aril_status s = read_loss(m, l, BY_VALID);
    if (s < 0 || l->n_bottoms > 2) return s;
    if (!*source)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT,
                               "the matrix is missing: a third bottom, or a file in source");
    ARIL_SCOPE;
    char *path = aril__caffe_path(l, source), where[512];
    aril__thread *th = aril__self();
    aril__caffe_where(m, where, sizeof where);
    where[strlen(where) - 2] = '\0'; /* a frame puts the colon */
    aril__frame frame = { .up = th->frame, .text = where };
    th->frame = &frame; /* errors of the file name the layer */
    aril_tensor *t = path ? aril_caffe_blob_load(path) : aril__poison();
    th->frame = frame.up;
    free(path);
    s = aril_tensor_status(t);
    if (s == ARIL_OK) c->infogain = aril_keep(t);
    return s;
}

static void infogain_destroy(aril_module *m)
{
    aril_release(((class_loss *)aril_module_data(m))->infogain);
}

/* -sum over classes k of H[label,k] * log(max(p_k, 1e-20)), p the softmax of the scores. */
FORWARD(infogain)
{
    const class_loss *c = aril_module_data(m);
    aril_tensor *h = l->n_bottoms > 2 ? in[2] : c->infogain;
    labelled v;
    char text[ARIL__SHAPE_TEXT];
    aril_status s = label_of(in[0], in[1], aril__message_int(l->param, "axis"), &v);
    int64_t classes = s == ARIL_OK ? aril_size(v.x, 1) : 0;
    if (s == ARIL_OK && aril_numel(h) != classes * classes)
        s = aril__fail(ARIL_ERR_SHAPE, "the matrix must be [%lld,%lld], got %s", (long long)classes,
                       (long long)classes, aril__text(text, h));
    if (s < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    h = aril_to(aril_cast(h, aril_dtype_of(in[0])), aril_device_of(in[0]));
    h = aril_reshape(h, ARIL_SHAPE(classes, classes));
    aril_tensor *valid = valid_of(c, &v, aril_dtype_of(in[0]));
    aril_tensor *logs = aril_log_softmax(v.x, 1);
    logs = aril__caffe_straight(aril_clamp_min(aril_detach(logs), log(log_threshold)), logs);
    aril_tensor *rows = aril_index_select(h, v.label, 0); /* [outer,inner,C] */
    aril_tensor *each = aril_neg(
        aril_sum(aril_mul(aril_movedim(rows, ARIL_AXES(2), ARIL_AXES(1)), logs), ARIL_AXES(1)));
    if (valid) each = aril_mul(each, valid);
    out[0] = normalized(c, each, valid, aril_size(v.x, 0));
    if (l->n_tops > 1) out[1] = aril_softmax(in[0], v.axis);
}

/* ---- SigmoidCrossEntropyLoss ---- */

FORWARD(sigmoid_loss)
{
    const class_loss *c = aril_module_data(m);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (aril_numel(in[0]) != aril_numel(in[1])) {
        aril__fail(ARIL_ERR_SHAPE, "bottoms of shapes %s and %s", aril__text(a, in[0]),
                   aril__text(b, in[1]));
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *target =
        aril_reshape(aril_cast(in[1], aril_dtype_of(in[0])), aril_shape_of(in[0]));
    aril_tensor *valid = NULL;
    if (c->ignores) {
        aril_tensor *used = aril_ne_scalar(aril_trunc(target), (double)c->ignored);
        target = aril_where(used, target, aril_zeros_like(target));
        valid = aril_cast(used, aril_dtype_of(in[0]));
    }
    aril_tensor *each =
        aril_bce_with_logits_with(in[0], target,
                                  (aril_bce_with_logits_opts){ .reduction = ARIL_NONE });
    if (valid) each = aril_mul(each, valid);
    out[0] = normalized(c, each, valid, aril_ndim(in[0]) ? aril_size(in[0], 0) : 1);
    if (l->n_tops > 1) out[1] = aril_sigmoid(in[0]);
}

/* ---- Accuracy ---- */

static aril_status accuracy_check(aril_module *m, caffe_layer *l)
{
    class_loss *c = aril_module_data(m);
    c->ignores = aril__message_has(l->param, "ignore_label");
    c->ignored = aril__message_int(l->param, "ignore_label");
    if (aril__message_int(l->param, "top_k") < 1)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "top_k must be at least 1");
    return ARIL_OK;
}

/* For each class the mean over its positions; 0 for a class without any. [C] */
static aril_tensor *by_class(const labelled *v, aril_tensor *good, aril_tensor *valid)
{
    aril_dtype dtype = aril_dtype_of(good);
    int64_t classes = aril_size(v->x, 1);
    aril_tensor *is = aril_cast(aril_one_hot(v->label, classes), dtype); /* [outer,inner,C] */
    if (valid) is = aril_mul(is, aril_unsqueeze(valid, 2));
    aril_tensor *n = aril_sum(is, ARIL_AXES(0, 1));
    aril_tensor *sum = aril_sum(aril_mul(is, aril_unsqueeze(good, 2)), ARIL_AXES(0, 1));
    return aril_div(sum, aril_clamp_min(n, 1));
}

/* A position counts if fewer than top_k of the other classes have at least the score of its
 * label. */
FORWARD(accuracy)
{
    class_loss *c = aril_module_data(m);
    labelled v;
    int64_t k = aril__message_int(l->param, "top_k");
    aril_status s = label_of(aril_detach(in[0]), in[1], aril__message_int(l->param, "axis"), &v);
    if (s == ARIL_OK && k > aril_size(v.x, 1))
        s = aril__fail(ARIL_ERR_ARG, "top_k %lld of %lld classes", (long long)k,
                       (long long)aril_size(v.x, 1));
    if (s < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_dtype dtype = aril_dtype_of(v.x);
    aril_tensor *valid = valid_of(c, &v, dtype);
    aril_tensor *own = aril_gather(v.x, aril_unsqueeze(v.label, 1), 1); /* [outer,1,inner] */
    aril_tensor *better = aril_sum(aril_cast(aril_ge(v.x, own), ARIL_I64), ARIL_AXES(1));
    aril_tensor *good = aril_cast(aril_le_scalar(better, k), dtype); /* the label's too */
    if (valid) good = aril_mul(good, valid);
    aril_tensor *sum = aril_sum(good, ARIL_ALL);
    out[0] = valid
                 ? aril_div(sum, aril_clamp_min(aril_sum(valid, ARIL_ALL), 1))
                 : aril_mul_scalar(sum, 1 / (double)(aril_numel(good) > 1 ? aril_numel(good) : 1));
    if (l->n_tops > 1) out[1] = by_class(&v, good, valid);
}

#define LOSS(name, b0, b1, t) \
    CAFFE_ROW(name, class_loss), CAFFE_COUNTS(b0, b1, 1, t), .flags = CAFFE_LOSS | CAFFE_AUTO_TOP

const caffe_row aril__caffe_class_rows[] = {
    { CAFFE_ROW("Softmax", caffe_layer), CAFFE_COUNTS(1, 1, 1, 1), .param = "softmax_param",
      .forward = softmax },
    { LOSS("SoftmaxWithLoss", 2, 2, 2), .param = "softmax_param", .check = softmax_loss_check,
      .forward = softmax_loss },
    { LOSS("MultinomialLogisticLoss", 2, 2, 1), .forward = multinomial },
    { LOSS("InfogainLoss", 2, 3, 2), .param = "infogain_loss_param",
      .layer.base.destroy = infogain_destroy, .check = infogain_check, .forward = infogain },
    { LOSS("SigmoidCrossEntropyLoss", 2, 2, 2), .check = sigmoid_loss_check,
      .forward = sigmoid_loss },
    { CAFFE_ROW("Accuracy", class_loss), CAFFE_COUNTS(2, 2, 1, 2), .param = "accuracy_param",
      .check = accuracy_check, .forward = accuracy },
    { .param = NULL },
};
