/* Convolutions: kernels of Keras are [spatial..., in, out]. */
#include "aril/conv.h"

#include "aril/index.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

typedef aril_tensor *conv_fn(aril_tensor *x, aril_tensor *w, aril_tensor *b, aril_conv_opts opts);

static conv_fn *const forward_fn[] = { aril_conv1d, aril_conv2d, aril_conv3d };
static conv_fn *const transposed_fn[] = { aril_conv_transpose1d, aril_conv_transpose2d,
                                          aril_conv_transpose3d };

typedef struct conv {
    keras_base base;
    conv_fn *fn;
    int64_t causal; /* elements before the first one */
    aril_conv_opts opts;
    aril_conv_opts point; /* of the pointwise part of a separable convolution */
    keras_activation activation;
} conv;

/* ---- options ---- */

typedef struct windows {
    int64_t kernel[3], stride[3], dilation[3];
    const char *padding;
} windows;

static aril_status read_windows(const keras_make *k, windows *w)
{
    int n = k->layer->kind->spatial;
    if (k->rank != n + 2)
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "its input has %d dimensions, expected %d",
                                k->rank, n + 2);
    aril_status s = aril__keras_sizes(k, "kernel_size", n, 1, 1, w->kernel);
    if (s == ARIL_OK) s = aril__keras_sizes(k, "strides", n, 1, 1, w->stride);
    if (s == ARIL_OK) s = aril__keras_sizes(k, "dilation_rate", n, 1, 1, w->dilation);
    w->padding = aril__json_text(aril__json_get(k->config, "padding"), "valid");
    return s;
}

static aril_status set_padding(const keras_make *k, const windows *w, conv *c)
{
    memcpy(c->opts.stride, w->stride, sizeof w->stride);
    memcpy(c->opts.dilation, w->dilation, sizeof w->dilation);
    c->opts.mode = ARIL_VALID;
    if (strcmp(w->padding, "same") == 0)
        c->opts.mode = ARIL_SAME;
    else if (strcmp(w->padding, "causal") == 0 && k->layer->kind->spatial == 1)
        c->causal = w->dilation[0] * (w->kernel[0] - 1);
    else if (strcmp(w->padding, "valid") != 0)
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "padding \"%s\" is unknown", w->padding);
    return ARIL_OK;
}

/* ---- running ---- */

static aril_tensor *padded(const conv *c, aril_tensor *x)
{
    return c->causal ? aril_pad(x, ARIL_PADS(c->causal, 0), (aril_pad_opts){ 0 }) : x;
}

static aril_tensor *run_fused(aril_module *self, aril_tensor *x, aril_activation activation)
{
    const conv *c = aril_module_data(self);
    aril_conv_opts opts = c->opts;
    opts.activation = activation;
    return c->fn(padded(c, x), aril__own_at(self, 0), aril__own_at(self, 1), opts);
}

ARIL__FORWARD(conv_forward)
{
    const conv *c = aril_module_data(self);
    out[0] = run_fused(self, in[0], c->activation.fused);
    if (!c->activation.fused) out[0] = aril__keras_activate(&c->activation, out[0]);
}

static const aril__layer plain_layer = {
    .base = { .size = sizeof(conv), .type = "Conv", .forward = conv_forward }, .fused = run_fused
};
static const aril__layer activated_layer = {
    .base = { .size = sizeof(conv), .type = "Conv", .forward = conv_forward }
};

static aril_tensor *run_separable(aril_module *self, aril_tensor *x, aril_activation activation)
{
    const conv *c = aril_module_data(self);
    aril_conv_opts point = c->point;
    point.activation = activation;
    x = c->fn(padded(c, x), aril__own_at(self, 0), NULL, c->opts);
    return c->fn(x, aril__own_at(self, 1), aril__own_at(self, 2), point);
}

ARIL__FORWARD(separable_forward)
{
    const conv *c = aril_module_data(self);
    out[0] = run_separable(self, in[0], c->activation.fused);
    if (!c->activation.fused) out[0] = aril__keras_activate(&c->activation, out[0]);
}

static const aril__layer separable_layer = {
    .base = { .size = sizeof(conv), .type = "SeparableConv", .forward = separable_forward }
};

/* ---- kernels ---- */

/* Reads a kernel and checks its sizes: [kernel..., a, b], -1: any. */
static aril_tensor *read_kernel(keras_make *k, const char *name, const int64_t *kernel, int64_t a,
                                int64_t b)
{
    int n = k->layer->kind->spatial;
    aril_shape shape = { .ndim = n + 2 };
    memcpy(shape.dim, kernel, (size_t)n * sizeof *kernel);
    shape.dim[n] = a;
    shape.dim[n + 1] = b;
    aril_tensor *t = aril__keras_variable(k, name);
    return t && aril__keras_check(k, name, t, shape) == ARIL_OK ? t : NULL;
}

/* [kernel..., a, b] to [b, a, kernel...], or to [a, b, kernel...]. */
static aril_tensor *turned(aril_tensor *t, bool swap)
{
    int n = t->ndim - 2;
    aril_axes axes = { .n = n + 2, .axis = { swap ? n + 1 : n, swap ? n : n + 1 } };
    for (int i = 0; i < n; i++) axes.axis[2 + i] = i;
    return aril_permute(t, axes);
}

/* [kernel..., in, multiplier] to [in * multiplier, 1, kernel...]. */
static aril_tensor *depthwise_kernel(aril_tensor *t)
{
    aril_tensor *y = turned(t, false);
    aril_shape shape = aril_shape_of(y);
    shape.dim[0] *= shape.dim[1];
    shape.dim[1] = 1;
    return aril_reshape(y, shape);
}

static aril_status check_channels(const keras_make *k, int64_t channels)
{
    int64_t have = k->in[0].tensor->dim[1];
    if (have < 0 || have == channels) return ARIL_OK;
    return aril__keras_fail(k, ARIL_ERR_FORMAT,
                            "its kernel is for %lld channels, its input has %lld",
                            (long long)channels, (long long)have);
}

/* ---- making ---- */

static aril_module *make_conv(keras_make *k, conv c, const aril__layer *layer)
{
    if (aril__keras_activation(k, aril__json_get(k->config, "activation"), &c.activation) < 0)
        return NULL;
    if (layer == &plain_layer && c.activation.fn) layer = &activated_layer;
    aril_module *m = aril__keras_module(k, layer);
    if (!m) return NULL;
    c.base = *(keras_base *)aril_module_data(m);
    *(conv *)aril_module_data(m) = c;
    return m;
}

aril_module *aril__keras_conv(keras_make *k)
{
    ARIL_SCOPE;
    windows w;
    conv c = { .fn = forward_fn[k->layer->kind->spatial - 1] };
    int64_t filters;
    aril_status s = read_windows(k, &w);
    if (s == ARIL_OK) s = set_padding(k, &w, &c);
    if (s == ARIL_OK) s = aril__keras_integer(k, "groups", 1, 1, &c.opts.groups);
    if (s == ARIL_OK) s = aril__keras_integer(k, "filters", 1, 1, &filters);
    aril_tensor *kernel = s == ARIL_OK ? read_kernel(k, "kernel", w.kernel, -1, filters) : NULL;
    if (!kernel ||
        check_channels(k, kernel->dim[k->layer->kind->spatial] * c.opts.groups) != ARIL_OK)
        return NULL;
    aril_module *m = make_conv(k, c, &plain_layer);
    if (!m) return NULL;
    s = aril__keras_own(k, m, "kernel", turned(kernel, true));
    if (s == ARIL_OK) s = aril__keras_own_shaped(k, m, "bias", ARIL_SHAPE(filters));
    return aril__keras_made(m, s);
}

aril_module *aril__keras_depthwise(keras_make *k)
{
    ARIL_SCOPE;
    windows w;
    conv c = { .fn = forward_fn[k->layer->kind->spatial - 1] };
    int n = k->layer->kind->spatial;
    int64_t multiplier;
    aril_status s = read_windows(k, &w);
    if (s == ARIL_OK) s = set_padding(k, &w, &c);
    if (s == ARIL_OK) s = aril__keras_integer(k, "depth_multiplier", 1, 1, &multiplier);
    /* Keras 2 calls it depthwise_kernel, which the order of variables makes irrelevant. */
    aril_tensor *kernel = s == ARIL_OK ? read_kernel(k, "kernel", w.kernel, -1, multiplier) : NULL;
    if (!kernel || check_channels(k, kernel->dim[n]) != ARIL_OK) return NULL;
    c.opts.groups = kernel->dim[n];
    aril_module *m = make_conv(k, c, &plain_layer);
    if (!m) return NULL;
    s = aril__keras_own(k, m, "kernel", depthwise_kernel(kernel));
    if (s == ARIL_OK)
        s = aril__keras_own_shaped(k, m, "bias", ARIL_SHAPE(c.opts.groups * multiplier));
    return aril__keras_made(m, s);
}

aril_module *aril__keras_separable(keras_make *k)
{
    ARIL_SCOPE;
    windows w;
    conv c = { .fn = forward_fn[k->layer->kind->spatial - 1] };
    int n = k->layer->kind->spatial;
    static const int64_t one[3] = { 1, 1, 1 };
    int64_t multiplier, filters;
    aril_status s = read_windows(k, &w);
    if (s == ARIL_OK) s = set_padding(k, &w, &c);
    if (s == ARIL_OK) s = aril__keras_integer(k, "depth_multiplier", 1, 1, &multiplier);
    if (s == ARIL_OK) s = aril__keras_integer(k, "filters", 1, 1, &filters);
    aril_tensor *depth =
        s == ARIL_OK ? read_kernel(k, "depthwise_kernel", w.kernel, -1, multiplier) : NULL;
    if (!depth || check_channels(k, depth->dim[n]) != ARIL_OK) return NULL;
    aril_tensor *point =
        read_kernel(k, "pointwise_kernel", one, depth->dim[n] * multiplier, filters);
    if (!point) return NULL;
    c.opts.groups = depth->dim[n];
    c.point = (aril_conv_opts){ .mode = ARIL_VALID };
    aril_module *m = make_conv(k, c, &separable_layer);
    if (!m) return NULL;
    s = aril__keras_own(k, m, "depthwise_kernel", depthwise_kernel(depth));
    if (s == ARIL_OK) s = aril__keras_own(k, m, "pointwise_kernel", turned(point, true));
    if (s == ARIL_OK) s = aril__keras_own_shaped(k, m, "bias", ARIL_SHAPE(filters));
    return aril__keras_made(m, s);
}

/* The part of the full result that is cut off, or added at the end, does not depend on its size.
 * As TensorFlow does it: out = in * stride for "same", else in * stride + max(kernel - stride, 0);
 * with output_padding (in - 1) * stride + kernel - 2 * padding + output_padding. */
static aril_status transposed_padding(const keras_make *k, const windows *w, conv *c)
{
    int n = k->layer->kind->spatial;
    int64_t extra[3];
    bool same = strcmp(w->padding, "same") == 0;
    const json *given = aril__json_get(k->config, "output_padding");
    bool has = given && given->kind != 'n';
    aril_status s = aril__keras_sizes(k, "output_padding", n, 0, 0, extra);
    for (int i = 0; i < n && s == ARIL_OK; i++) {
        int64_t size = w->dilation[i] * (w->kernel[i] - 1) + 1, stride = w->stride[i];
        int64_t over = has    ? 2 * (same ? size / 2 : 0) - extra[i]
                       : same ? size - stride
                              : size - stride - (size > stride ? size - stride : 0);
        int64_t before = over > 0 ? over / 2 : 0, after = over > 0 ? over - before : 0;
        c->opts.padding[i] = before ? before : ARIL_ZERO;
        c->opts.padding_end[i] = after ? after : ARIL_ZERO;
        c->opts.output_padding[i] = over < 0 ? -over : ARIL_ZERO;
    }
    memcpy(c->opts.stride, w->stride, sizeof w->stride);
    memcpy(c->opts.dilation, w->dilation, sizeof w->dilation);
    return s;
}

aril_module *aril__keras_conv_transpose(keras_make *k)
{
    ARIL_SCOPE;
    windows w;
    conv c = { .fn = transposed_fn[k->layer->kind->spatial - 1] };
    int64_t filters;
    aril_status s = read_windows(k, &w);
    if (s == ARIL_OK) s = transposed_padding(k, &w, &c);
    if (s == ARIL_OK) s = aril__keras_integer(k, "filters", 1, 1, &filters);
    aril_tensor *kernel = s == ARIL_OK ? read_kernel(k, "kernel", w.kernel, filters, -1) : NULL;
    if (!kernel || check_channels(k, kernel->dim[k->layer->kind->spatial + 1]) != ARIL_OK)
        return NULL;
    aril_module *m = make_conv(k, c, &plain_layer);
    if (!m) return NULL;
    s = aril__keras_own(k, m, "kernel", turned(kernel, true));
    if (s == ARIL_OK) s = aril__keras_own_shaped(k, m, "bias", ARIL_SHAPE(filters));
    return aril__keras_made(m, s);
}
