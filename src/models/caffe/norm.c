/* LRN, BatchNorm, MVN. */
#include "models/caffe/layer.h"

/* ---- LRN ---- */

typedef struct lrn {
    caffe_layer base;
    int64_t size;
    double alpha, beta, k;
    bool within;
} lrn;

static aril_status lrn_check(aril_module *m, caffe_layer *l)
{
    lrn *p = aril_module_data(m);
    p->size = aril__message_int(l->param, "local_size");
    p->alpha = aril__message_number(l->param, "alpha");
    p->beta = aril__message_number(l->param, "beta");
    p->k = aril__message_number(l->param, "k");
    p->within = strcmp(aril__message_value(l->param, "norm_region"), "WITHIN_CHANNEL") == 0;
    if (p->size < 1 || p->size % 2 == 0 || p->size > INT32_MAX)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "local_size %lld must be odd",
                               (long long)p->size);
    return ARIL_OK;
}

static double or_zero(double value)
{
    return value != 0 ? value : (double)ARIL_ZERO;
}

/* x / (1 + alpha * the mean square of a square window around each element)^beta */
static aril_tensor *within_channel(const lrn *p, aril_tensor *x)
{
    aril_pool_opts o = { .kernel = { p->size },
                         .stride = { 1 },
                         .padding = { p->size > 1 ? (p->size - 1) / 2 : ARIL_ZERO } };
    aril_tensor *mean = aril_avg_pool2d(aril_square(x), o);
    aril_tensor *s = aril_add_scalar(aril_mul_scalar(mean, p->alpha), 1);
    return aril_mul(x, aril_pow_scalar(s, -p->beta));
}

static void lrn_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const lrn *p = aril_module_data(m);
    char text[ARIL__SHAPE_TEXT];
    if (aril_ndim(in[0]) != 4) {
        aril__fail(ARIL_ERR_SHAPE, "expected [N,C,H,W], got %s", aril__text(text, in[0]));
        aril__caffe_failed(l, out);
        return;
    }
    aril_lrn_opts o = { or_zero(p->alpha), or_zero(p->beta), or_zero(p->k) };
    out[0] = p->within ? within_channel(p, in[0]) : aril_local_response_norm(in[0], p->size, o);
}

/* ---- BatchNorm ---- */

/* Blobs: sums of means and of variances over time, each step's weight less than the next by
 * `fraction`, and the sum of the weights, which they are divided by. */
typedef struct batch_norm {
    caffe_layer base;
    double fraction, eps;
    int use_global; /* -1: as the phase says */
} batch_norm;

static aril_status bn_check(aril_module *m, caffe_layer *l)
{
    batch_norm *p = aril_module_data(m);
    p->fraction = aril__message_number(l->param, "moving_average_fraction");
    p->eps = aril__message_number(l->param, "eps");
    p->use_global = aril__message_has(l->param, "use_global_stats")
                        ? aril__message_int(l->param, "use_global_stats") != 0
                        : -1;
    if (p->fraction < 0 || p->fraction > 1)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT,
                               "moving_average_fraction must be from 0 to 1, got %g", p->fraction);
    for (size_t i = 0; i < aril__message_count(l->message, "param"); i++) {
        const aril__message *spec = aril__message_sub_at(l->message, "param", i);
        if (aril__message_has(spec, "lr_mult") && aril__message_number(spec, "lr_mult") != 0)
            return aril__caffe_bad(
                l, ARIL_ERR_FORMAT,
                "the statistics of BatchNorm are not learned: lr_mult must be 0");
    }
    return ARIL_OK;
}

static aril_status bn_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    int64_t channels = 1;
    (void)l;
    aril_status s = in[0]->ndim > 1 ? aril__input_size(in[0], 1, &channels) : ARIL_OK;
    if (s == ARIL_OK) s = aril__caffe_add_blob(m, "mean", ARIL_SHAPE(channels), NULL, 0);
    if (s == ARIL_OK) s = aril__caffe_add_blob(m, "variance", ARIL_SHAPE(channels), NULL, 0);
    if (s == ARIL_OK) s = aril__caffe_add_blob(m, "scale_factor", ARIL_SHAPE(1), NULL, 0);
    return s;
}

static aril_tensor *with_statistics(aril_module *m, const batch_norm *p, aril_tensor *x)
{
    aril_tensor *sum = aril__caffe_blob(m, 2);
    aril_tensor *none = aril_eq_scalar(sum, 0);
    aril_tensor *factor = aril_where(none, aril_zeros_like(sum),
                                     aril_reciprocal(aril_where(none, aril_ones_like(sum), sum)));
    aril_tensor *mean = aril_mul(aril__caffe_blob(m, 0), factor);
    aril_tensor *variance = aril_mul(aril__caffe_blob(m, 1), factor);
    return aril_batch_norm(x, NULL, NULL, mean, variance,
                           (aril_batch_norm_opts){ .eval = true, .eps = or_zero(p->eps) });
}

/* Normalizes by the batch, and adds its mean and (unbiased) variance to the statistics. */
static aril_tensor *with_batch(aril_module *m, const batch_norm *p, aril_tensor *x)
{
    aril_tensor *sums[3];
    for (int i = 0; i < 3; i++) sums[i] = aril__caffe_blob(m, i);
    aril_tensor *mean = aril_zeros_like(sums[0]), *variance = aril_zeros_like(sums[1]);
    int64_t each = 1;
    for (int i = 0; i < x->ndim; i++)
        if (i != 1 && (each = each * x->dim[i]) != 1) break;
    aril_batch_norm_opts o = { .momentum = 1, .eps = or_zero(p->eps) };
    /* Of a single element there is no unbiased variance; Caffe takes the biased one, 0. */
    aril_tensor *y = each == 1 ? aril_sub(x, x) : aril_batch_norm(x, NULL, NULL, mean, variance, o);
    ARIL_NO_GRAD;
    if (each == 1) mean = aril_reshape(x, ARIL_SHAPE(aril_size(sums[0], 0)));
    aril_tensor *with[3] = { mean, variance, NULL };
    for (int i = 0; i < 3; i++) {
        aril_mul_scalar_(sums[i], p->fraction);
        if (with[i])
            aril_add_(sums[i], aril_detach(with[i]));
        else
            aril_add_scalar_(sums[i], 1);
    }
    return y;
}

static void bn_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const batch_norm *p = aril_module_data(m);
    bool global = p->use_global < 0 ? !aril__caffe_trains(m, l) : p->use_global > 0;
    aril_tensor *x = aril_ndim(in[0]) == 1 ? aril_unsqueeze(in[0], 1) : in[0];
    aril_tensor *y = global || aril__is_building() ? with_statistics(m, p, x) : with_batch(m, p, x);
    out[0] = aril_ndim(in[0]) == 1 ? aril_squeeze(y, ARIL_AXES(1)) : y;
}

/* ---- MVN ---- */

typedef struct mvn {
    caffe_layer base;
    bool variance, across;
    double eps;
} mvn;

static aril_status mvn_check(aril_module *m, caffe_layer *l)
{
    mvn *p = aril_module_data(m);
    p->variance = aril__message_int(l->param, "normalize_variance") != 0;
    p->across = aril__message_int(l->param, "across_channels") != 0;
    p->eps = aril__message_number(l->param, "eps");
    return ARIL_OK;
}

/* x is divided by `divisor`, whose gradient is that of Caffe: y * mean(y * dy) / divisor, as if eps
 * were a part of the deviation. */
static aril_tensor *divided(aril_tensor *x, aril_tensor *divisor, aril_axes axes)
{
    if (!aril_requires_grad(x)) return aril_div(x, divisor);
    divisor = aril_detach(divisor);
    aril_tensor *y = aril_detach(aril_div(x, divisor));
    return aril_div(x, aril__caffe_straight(divisor, aril_mean(aril_mul(x, y), axes)));
}

/* (x - mean) / (standard deviation + eps), of each channel, or of all channels of a sample. Missing
 * axes have the size 1, as in Caffe. */
static void mvn_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const mvn *p = aril_module_data(m);
    aril_tensor *x = in[0], *mean;
    int first = p->across ? 1 : 2;
    (void)l;
    while (aril_ndim(x) <= first) x = aril_unsqueeze(x, aril_ndim(x));
    aril_axes axes = { .n = aril_ndim(x) - first, .keepdim = true };
    for (int i = 0; i < axes.n; i++) axes.axis[i] = first + i;
    aril_tensor *deviation = p->variance ? aril_std_mean(x, axes, 0, &mean) : NULL;
    if (!p->variance) mean = aril_mean(x, axes);
    aril_tensor *y = aril_sub(x, mean);
    if (deviation) y = divided(y, aril_add_scalar(deviation, p->eps), axes);
    while (aril_ndim(y) > aril_ndim(in[0])) y = aril_squeeze(y, ARIL_AXES(aril_ndim(y) - 1));
    out[0] = y;
}

const caffe_row aril__caffe_norm_rows[] = {
    { CAFFE_ROW("LRN", lrn), CAFFE_COUNTS(1, 1, 1, 1), .param = "lrn_param", .check = lrn_check,
      .forward = lrn_forward },
    { CAFFE_ROW("BatchNorm", batch_norm), CAFFE_COUNTS(1, 1, 1, 1), .param = "batch_norm_param",
      .blob = { { "mean", .axes = 1 }, { "variance", .axes = 1 }, { "scale_factor", .axes = 1 } },
      .flags = CAFFE_STATISTICS, .check = bn_check, .build = bn_build, .forward = bn_forward },
    { CAFFE_ROW("MVN", mvn), CAFFE_COUNTS(1, 1, 1, 1), .param = "mvn_param", .check = mvn_check,
      .forward = mvn_forward },
    { .param = NULL },
};
