/* Convolution, Deconvolution, Im2col. */
#include "models/caffe/layer.h"

enum { MAX_SPATIAL = 3 };

/* Sizes of the window, for each spatial axis; n is 0 as long as one number stands for all. */
typedef struct window {
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], pad[MAX_SPATIAL], dilation[MAX_SPATIAL];
} window;

typedef struct conv {
    caffe_layer base;
    int spatial; /* axes, once the bottom is known */
    window w;
    int64_t outputs, groups;
    bool bias, transposed;
} conv;

/* ---- parameters ---- */

/* Reads a size for each axis from a repeated field, or from FIELD_h and FIELD_w. */
static aril_status read_sizes(const caffe_layer *l, int n, const char *field, const char *h,
                              const char *w, int64_t initial, int64_t low, int64_t *to)
{
    const aril__message *p = l->param;
    size_t given = aril__message_count(p, field);
    if (h && (aril__message_has(p, h) || aril__message_has(p, w))) {
        if (given || n != 2)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%s and %s are for images, and exclude %s",
                                   h, w, field);
        to[0] = aril__message_int(p, h);
        to[1] = aril__message_int(p, w);
    } else if (given > 1 && given != (size_t)n) {
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%zu values of %s for %d spatial axes", given,
                               field, n);
    } else {
        for (int i = 0; i < n; i++)
            to[i] = given ? aril__message_int_at(p, field, given > 1 ? (size_t)i : 0) : initial;
    }
    for (int i = 0; i < n; i++)
        if (to[i] < low || to[i] > INT32_MAX)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%s is %lld; expected %lld to 2147483647",
                                   field, (long long)to[i], (long long)low);
    return ARIL_OK;
}

static aril_status read_window(const caffe_layer *l, int n, window *w)
{
    aril_status s = read_sizes(l, n, "kernel_size", "kernel_h", "kernel_w", 0, 1, w->kernel);
    if (s == ARIL_OK) s = read_sizes(l, n, "stride", "stride_h", "stride_w", 1, 1, w->stride);
    if (s == ARIL_OK) s = read_sizes(l, n, "pad", "pad_h", "pad_w", 0, 0, w->pad);
    if (s == ARIL_OK) s = read_sizes(l, n, "dilation", NULL, NULL, 1, 1, w->dilation);
    return s;
}

/* The number of spatial axes as far as the parameters tell it; 2 is as good as any before. */
static int axes_given(const aril__message *p)
{
    static const char *const fields[] = { "kernel_size", "stride", "pad", "dilation" };
    size_t n = 0;
    for (int i = 0; i < 4; i++)
        if (aril__message_count(p, fields[i]) > n) n = aril__message_count(p, fields[i]);
    return n > MAX_SPATIAL ? MAX_SPATIAL + 1 : n > 1 ? (int)n : 2;
}

static aril_status conv_check(aril_module *m, caffe_layer *l)
{
    conv *c = aril_module_data(m);
    c->transposed = strcmp(l->row->layer.base.type, "Deconvolution") == 0;
    c->outputs = aril__message_int(l->param, "num_output");
    c->groups = aril__message_int(l->param, "group");
    c->bias = aril__message_int(l->param, "bias_term") != 0;
    if (c->outputs < 1 || c->outputs > INT32_MAX || c->groups < 1 || c->outputs % c->groups)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT,
                               "num_output %lld must be at least 1 and a multiple of group %lld",
                               (long long)c->outputs, (long long)c->groups);
    if (axes_given(l->param) > MAX_SPATIAL)
        return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED, "convolutions have 1 to %d spatial axes",
                               MAX_SPATIAL);
    aril_status s = aril__caffe_check_filler(l, aril__message_sub(l->param, "weight_filler"));
    if (s == ARIL_OK) s = aril__caffe_check_filler(l, aril__message_sub(l->param, "bias_filler"));
    return s == ARIL_OK ? read_window(l, axes_given(l->param), &c->w) : s;
}

static aril_status im2col_check(aril_module *m, caffe_layer *l)
{
    conv *c = aril_module_data(m);
    if (axes_given(l->param) > MAX_SPATIAL)
        return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED, "Im2col has 1 to %d spatial axes",
                               MAX_SPATIAL);
    return read_window(l, axes_given(l->param), &c->w);
}

/* ---- blobs ---- */

static aril_status spatial_axes(const caffe_layer *l, const aril_tensor *x, int *channel, int *n)
{
    char text[ARIL__SHAPE_TEXT];
    aril_status s =
        aril__caffe_axis("axis", x, aril__message_int(l->param, "axis"), false, channel);
    if (s < 0) return s;
    *n = x->ndim - *channel - 1;
    if (*n < 1 || *n > MAX_SPATIAL)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "expected 1 to %d axes after the channels, axis %d, of %s", MAX_SPATIAL,
                          *channel, aril__text(text, x));
    return ARIL_OK;
}

static aril_status im2col_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    conv *c = aril_module_data(m);
    int axis;
    aril_status s = spatial_axes(l, in[0], &axis, &c->spatial);
    return s == ARIL_OK ? read_window(l, c->spatial, &c->w) : s;
}

static aril_status conv_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    conv *c = aril_module_data(m);
    int axis;
    aril_status s = spatial_axes(l, in[0], &axis, &c->spatial);
    if (s == ARIL_OK) s = read_window(l, c->spatial, &c->w);
    if (s < 0) return s;
    int64_t channels = in[0]->dim[axis];
    if (channels < 1 || channels % c->groups)
        return aril__fail(ARIL_ERR_SHAPE, "%lld channels are not a multiple of group %lld",
                          (long long)channels, (long long)c->groups);
    aril_shape shape = { .ndim = 2 + c->spatial };
    shape.dim[0] = c->transposed ? channels : c->outputs;
    shape.dim[1] = (c->transposed ? c->outputs : channels) / c->groups;
    for (int i = 0; i < c->spatial; i++) shape.dim[2 + i] = c->w.kernel[i];
    s = aril__caffe_add_blob(m, "weight", shape, aril__message_sub(l->param, "weight_filler"), 0);
    if (s == ARIL_OK && c->bias)
        s = aril__caffe_add_blob(m, "bias", ARIL_SHAPE(c->outputs),
                                 aril__message_sub(l->param, "bias_filler"), 0);
    return s;
}

/* ---- forward ---- */

typedef aril_tensor *conv_fn(aril_tensor *, aril_tensor *, aril_tensor *, aril_conv_opts);

/* The batch axes before the channels as one. */
static aril_tensor *batched(aril_tensor *x, int axis)
{
    return axis == 1 ? x : axis == 0 ? aril_unsqueeze(x, 0) : aril_flatten(x, 0, axis - 1);
}

static aril_tensor *unbatched(aril_tensor *y, const aril_tensor *x, int axis)
{
    if (axis == 1) return y;
    if (axis == 0) return aril_squeeze(y, ARIL_AXES(0));
    aril_shape lead = { .ndim = axis };
    memcpy(lead.dim, x->dim, (size_t)axis * sizeof *lead.dim);
    return aril_unflatten(y, 0, lead);
}

/* The axis of the channels of a bottom, which must have the spatial axes that the layer has. */
static aril_status bottom_axes(const conv *c, const aril_tensor *x, int *axis)
{
    int n;
    aril_status s = spatial_axes(&c->base, x, axis, &n);
    if (s < 0 || n == c->spatial) return s;
    return aril__fail(ARIL_ERR_SHAPE, "the layer was made for %d spatial axes, the bottom has %d",
                      c->spatial, n);
}

static aril_tensor *convolve(aril_module *m, aril_tensor *x, aril_activation activation)
{
    static conv_fn *const fns[2][MAX_SPATIAL] = {
        { aril_conv1d, aril_conv2d, aril_conv3d },
        { aril_conv_transpose1d, aril_conv_transpose2d, aril_conv_transpose3d },
    };
    const conv *c = aril_module_data(m);
    int axis, n = c->spatial;
    if (bottom_axes(c, x, &axis) < 0) return aril__poison();
    aril_conv_opts o = { .groups = c->groups, .activation = activation };
    for (int i = 0; i < n; i++) {
        o.stride[i] = c->w.stride[i];
        o.padding[i] = c->w.pad[i] ? c->w.pad[i] : ARIL_ZERO;
        o.dilation[i] = c->w.dilation[i];
    }
    aril_tensor *w = aril__caffe_blob(m, 0), *b = aril__caffe_blob(m, 1);
    return unbatched(fns[c->transposed][n - 1](batched(x, axis), w, b, o), x, axis);
}

static aril_tensor *conv_fused(aril_module *m, aril_tensor *x, aril_activation activation)
{
    return convolve(m, x, activation);
}

/* Each bottom is convolved with the same weights. */
static void conv_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    for (int i = 0; i < l->n_tops && i < l->n_bottoms; i++)
        out[i] = convolve(m, in[i], ARIL_NO_ACTIVATION);
}

/* Options for windows over the spatial axes a and b; -1: an axis of size 1. */
static aril_pool_opts window_of(const conv *c, int a, int b)
{
    aril_pool_opts o = { 0 };
    for (int i = 0; i < 2; i++) {
        int at = i ? b : a;
        o.kernel[i] = at < 0 ? 1 : c->w.kernel[at];
        o.stride[i] = at < 0 ? 1 : c->w.stride[at];
        o.dilation[i] = at < 0 ? 1 : c->w.dilation[at];
        o.padding[i] = at < 0 || !c->w.pad[at] ? ARIL_ZERO : c->w.pad[at];
    }
    return o;
}

/* Windows over the last two of three spatial axes, then over the first: [N,C,D,H,W] -> [N, C *
 * kernel, positions], with the kernel's axes in their order. */
static aril_tensor *volume_columns(const conv *c, aril_tensor *x)
{
    int64_t depth = aril_size(x, 2), channels = aril_size(x, 1);
    aril_tensor *planes = aril_flatten(aril_transpose(x, 1, 2), 0, 1); /* [N * D, C, H, W] */
    planes = aril_unfold(planes, window_of(c, 1, 2));
    planes = aril_unflatten(planes, 0, ARIL_SHAPE(-1, depth)); /* [N, D, C * area, positions] */
    aril_tensor *y = aril_unfold(aril_transpose(planes, 1, 2), window_of(c, 0, -1));
    y = aril_unflatten(y, 1, ARIL_SHAPE(channels, -1, c->w.kernel[0]));
    return aril_flatten(aril_transpose(y, 2, 3), 1, 3);
}

static void im2col_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in,
                           aril_tensor **out)
{
    const conv *c = aril_module_data(m);
    int axis;
    if (bottom_axes(c, in[0], &axis) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_shape size = { .ndim = c->spatial };
    for (int i = 0; i < c->spatial; i++) {
        int64_t extent = c->w.dilation[i] * (c->w.kernel[i] - 1) + 1;
        size.dim[i] = (in[0]->dim[axis + 1 + i] + 2 * c->w.pad[i] - extent) / c->w.stride[i] + 1;
    }
    aril_tensor *x = batched(in[0], axis); /* [N,C,spatial...] */
    if (c->spatial == 1) x = aril_unsqueeze(x, 2);
    aril_tensor *columns = c->spatial == 3
                               ? volume_columns(c, x)
                               : aril_unfold(x, window_of(c, c->spatial - 2, c->spatial - 1));
    out[0] = unbatched(aril_unflatten(columns, 2, size), in[0], axis);
}

const caffe_row aril__caffe_conv_rows[] = {
    { CAFFE_ROW("Convolution", conv), CAFFE_COUNTS(1, CAFFE_ANY, 1, CAFFE_ANY),
      .param = "convolution_param", CAFFE_WEIGHT_AND_BIAS(0), .layer.fused = conv_fused,
      .check = conv_check, .build = conv_build, .forward = conv_forward },
    { CAFFE_ROW("Deconvolution", conv), CAFFE_COUNTS(1, CAFFE_ANY, 1, CAFFE_ANY),
      .param = "convolution_param", CAFFE_WEIGHT_AND_BIAS(0), .layer.fused = conv_fused,
      .check = conv_check, .build = conv_build, .forward = conv_forward },
    { CAFFE_ROW("Im2col", conv), CAFFE_COUNTS(1, 1, 1, 1), .param = "convolution_param",
      .check = im2col_check, .build = im2col_build, .forward = im2col_forward },
    { .param = NULL },
};
