/* Caffe's fillers: how blobs are initialized. */
#include "models/caffe/layer.h"

#include <math.h>

typedef struct fill_kind {
    const char *type;
    aril_status (*fill)(aril_tensor *t, const aril__message *f);
} fill_kind;

static aril_status constant(aril_tensor *t, const aril__message *f)
{
    return aril_tensor_status(aril_fill_(t, aril__message_number(f, "value")));
}

static aril_status uniform(aril_tensor *t, const aril__message *f)
{
    return aril_tensor_status(
        aril_uniform_(t, aril__message_number(f, "min"), aril__message_number(f, "max")));
}

/* With `sparse`, that many of the weights of each output are not zero, on average. */
static aril_status gaussian(aril_tensor *t, const aril__message *f)
{
    int64_t sparse = aril__message_int(f, "sparse");
    aril_status s = aril_tensor_status(
        aril_normal_(t, aril__message_number(f, "mean"), aril__message_number(f, "std")));
    if (s == ARIL_OK && sparse >= 0 && aril_ndim(t) > 0) {
        int64_t outputs = aril_size(t, 0);
        double p = outputs > 0 ? (double)sparse / (double)outputs : 1;
        s = aril_tensor_status(aril_mul_(t, aril_bernoulli_like(t, p < 1 ? p : 1)));
    }
    return s;
}

/* The weights of each output are positive and add up to 1. */
static aril_status positive_unitball(aril_tensor *t, const aril__message *f)
{
    (void)f;
    aril_status s = aril_tensor_status(aril_uniform_(t, 0, 1));
    if (s < 0) return s;
    if (aril_ndim(t) < 2) return aril_tensor_status(aril_fill_(t, 1));
    aril_axes axes = { .n = aril_ndim(t) - 1, .keepdim = true };
    for (int i = 0; i < axes.n; i++) axes.axis[i] = i + 1;
    return aril_tensor_status(aril_div_(t, aril_sum(t, axes)));
}

/* The fan that a variance is divided by. Caffe counts it from the shape alone. */
static double fan_of(const aril_tensor *t, const aril__message *f)
{
    double n = (double)aril_numel(t);
    double in = aril_ndim(t) > 0 ? n / (double)aril_size(t, 0) : n;
    double out = aril_ndim(t) > 1 ? n / (double)aril_size(t, 1) : n;
    const char *norm = aril__message_value(f, "variance_norm");
    double fan = strcmp(norm, "AVERAGE") == 0   ? (in + out) / 2
                 : strcmp(norm, "FAN_OUT") == 0 ? out
                                                : in;
    return fan > 0 ? fan : 1;
}

static aril_status xavier(aril_tensor *t, const aril__message *f)
{
    double scale = sqrt(3 / fan_of(t, f));
    return aril_tensor_status(aril_uniform_(t, -scale, scale));
}

static aril_status msra(aril_tensor *t, const aril__message *f)
{
    return aril_tensor_status(aril_normal_(t, 0, sqrt(2 / fan_of(t, f))));
}

/* Interpolation kernels for upsampling by a Deconvolution. */
static double bilinear_element(const int64_t *at, int ndim, void *ctx)
{
    double width = (double)*(const int64_t *)ctx, f = ceil(width / 2), c = (width - 1) / (2 * f);
    double x = (double)at[ndim - 1], y = (double)at[ndim - 2];
    return (1 - fabs(x / f - c)) * (1 - fabs(y / f - c));
}

static aril_status bilinear(aril_tensor *t, const aril__message *f)
{
    (void)f;
    int64_t width = aril_size(t, -1);
    if (aril_ndim(t) != 4 || aril_size(t, 2) != width)
        return aril__fail(ARIL_ERR_SHAPE, "the bilinear filler is for weights with square kernels");
    return aril_tensor_status(aril_init_from(t, bilinear_element, &width));
}

static const fill_kind kinds[] = {
    { "constant", constant }, { "uniform", uniform },
    { "gaussian", gaussian }, { "positive_unitball", positive_unitball },
    { "xavier", xavier },     { "msra", msra },
    { "bilinear", bilinear },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const fill_kind *kind_of(const aril__message *filler)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].type, aril__message_text(filler, "type")) == 0) return &kinds[i];
    return NULL;
}

aril_status aril__caffe_check_filler(const caffe_layer *l, const aril__message *filler)
{
    const fill_kind *kind = kind_of(filler);
    double std = aril__message_number(filler, "std"), min = aril__message_number(filler, "min"),
           max = aril__message_number(filler, "max");
    if (kind && kind->fill == gaussian && std < 0)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "std %g of a gaussian filler is negative", std);
    if (kind && kind->fill == uniform && min > max)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "min %g of a uniform filler is above max %g",
                               min, max);
    if (kind) return ARIL_OK;
    return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED,
                           "there is no filler '%s'; use constant, uniform, gaussian, "
                           "positive_unitball, xavier, msra or bilinear",
                           aril__message_text(filler, "type"));
}

aril_status aril__caffe_fill(aril_tensor *t, const aril__message *filler)
{
    const fill_kind *kind = kind_of(filler);
    if (!t) return ARIL_OK;
    if (!kind)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "there is no filler '%s'",
                          aril__message_text(filler, "type"));
    if (aril_numel(t) == 0) return ARIL_OK;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return kind->fill(t, filler);
}
