/* Losses of regression, and of margins. Each gives one number, []. */
#include "models/caffe/layer.h"

#define FORWARD(name) \
    static void name(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)

/* The number of samples. */
static double samples(const aril_tensor *x)
{
    return x->ndim ? (double)x->dim[0] : 1;
}

static aril_status same_count(const caffe_layer *l, aril_tensor *const *in)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    for (int i = 1; i < l->n_bottoms && i < 2; i++)
        if (aril_numel(in[i]) != aril_numel(in[0]))
            return aril__fail(ARIL_ERR_SHAPE, "bottoms of shapes %s and %s", aril__text(a, in[0]),
                              aril__text(b, in[i]));
    return ARIL_OK;
}

/* ---- EuclideanLoss ---- */

/* The sum of (a - b)^2 / (2 N) */
FORWARD(euclidean)
{
    (void)m;
    if (same_count(l, in) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *b = aril_cast(in[1], aril_dtype_of(in[0]));
    aril_tensor *d = aril_sub(in[0], aril_reshape(b, aril_shape_of(in[0])));
    out[0] = aril_mul_scalar(aril_sum(aril_square(d), ARIL_ALL), 0.5 / samples(in[0]));
}

/* ---- HingeLoss ---- */

/* The sum over classes of max(0, 1 - s x), s 1 for the label's class and -1 for others, or of its
 * square, / N */
FORWARD(hinge)
{
    (void)m;
    aril_tensor *x = aril_ndim(in[0]) > 2 ? aril_flatten(in[0], 1, -1) : in[0]; /* [N,C] */
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (aril_ndim(x) != 2 || aril_numel(in[1]) != aril_size(x, 0)) {
        aril__fail(ARIL_ERR_SHAPE, "expected scores [N,C] and N labels, got %s and %s",
                   aril__text(a, in[0]), aril__text(b, in[1]));
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *label = aril__caffe_integers(aril_flatten(in[1], 0, -1));
    aril_tensor *own = aril_one_hot(label, aril_size(x, 1));
    aril_tensor *sign = aril_sub_scalar(aril_mul_scalar(aril_cast(own, aril_dtype_of(x)), 2), 1);
    aril_tensor *d = aril_relu(aril_rsub_scalar(aril_mul(sign, x), 1));
    if (strcmp(aril__message_value(l->param, "norm"), "L2") == 0) d = aril_square(d);
    out[0] = aril_mul_scalar(aril_sum(d, ARIL_ALL), 1 / samples(x));
}

/* ---- ContrastiveLoss ---- */

/* The distance of a and b, and its gradient as Caffe computes it: (a - b) / (distance + 1e-4). */
static aril_tensor *distance_of(aril_tensor *d, aril_tensor *squared)
{
    aril_tensor *exact = aril_sqrt(aril_detach(squared));
    aril_tensor *unit = aril_div(aril_detach(d), aril_unsqueeze(aril_add_scalar(exact, 1e-4), 1));
    return aril__caffe_straight(exact, aril_sum(aril_mul(d, unit), ARIL_AXES(1)));
}

/* Of pairs a, b [N,C] with y 1 for similar ones: the sum of y d^2 + (1 - y) max(margin - d, 0)^2,
 * in the legacy version max(margin - d^2, 0), / (2 N) */
FORWARD(contrastive)
{
    double margin = aril__message_number(l->param, "margin");
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    (void)m;
    aril_status s = same_count(l, in);
    if (s == ARIL_OK && (in[0]->ndim < 2 || aril_numel(in[2]) != in[0]->dim[0]))
        s = aril__fail(ARIL_ERR_SHAPE, "expected pairs [N,C] and N marks, got %s and %s",
                       aril__text(a, in[0]), aril__text(b, in[2]));
    if (s < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *d = aril_sub(in[0], aril_reshape(in[1], aril_shape_of(in[0]))); /* [N,C,...] */
    if (aril_ndim(d) > 2) d = aril_flatten(d, 1, -1);
    aril_tensor *squared = aril_sum(aril_square(d), ARIL_AXES(1)); /* [N] */
    aril_tensor *similar = aril_ne_scalar(aril_trunc(aril_flatten(in[2], 0, -1)), 0);
    bool legacy = aril__message_int(l->param, "legacy_version") != 0;
    aril_tensor *apart =
        aril_relu(aril_rsub_scalar(legacy ? squared : distance_of(d, squared), margin));
    if (!legacy) apart = aril_square(apart);
    aril_tensor *each = aril_where(similar, squared, apart);
    out[0] = aril_mul_scalar(aril_sum(each, ARIL_ALL), 0.5 / samples(in[0]));
}

#define LOSS(name, b) \
    CAFFE_ROW(name, caffe_layer), CAFFE_COUNTS(b, b, 1, 1), .flags = CAFFE_LOSS | CAFFE_AUTO_TOP

const caffe_row aril__caffe_loss_rows[] = {
    { LOSS("EuclideanLoss", 2), .forward = euclidean },
    { LOSS("HingeLoss", 2), .param = "hinge_loss_param", .forward = hinge },
    { LOSS("ContrastiveLoss", 3), .param = "contrastive_loss_param", .forward = contrastive },
    { .param = NULL },
};
