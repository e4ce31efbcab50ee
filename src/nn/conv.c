/* Convolutions in one to three dimensions, and transposed convolutions. */
#include "nn/module.h"

#include "aril/conv.h"
#include "aril/index.h"
#include "nn/window.h"

#include <string.h>

typedef aril_tensor *conv_fn(aril_tensor *x, aril_tensor *w, aril_tensor *b, aril_conv_opts opts);

typedef struct conv {
    conv_fn *fn;
    int spatial;
    bool transposed, no_bias;
    int64_t in, out;
    int64_t kernel[3];
    aril_pad_mode padding_mode;
    aril_pads pads; /* for padding modes other than zeros */
    aril_conv_opts opts;
    int64_t padding[3]; /* as given by the user */
    aril_padding mode;
} conv;

enum { WEIGHT, BIAS };

static void conv_reset(aril_module *self)
{
    const conv *c = aril_module_data(self);
    const aril_tensor *w = aril__own_at(self, WEIGHT);
    int64_t fan = w->dim[1]; /* for a transposed one, PyTorch's fan counts outputs */
    for (int i = 0; i < c->spatial; i++) fan *= c->kernel[i];
    aril__fill_fan(aril__own_at(self, WEIGHT), fan);
    aril__fill_fan(aril__own_at(self, BIAS), fan);
}

static aril_status conv_parameters(aril_module *self)
{
    const conv *c = aril_module_data(self);
    int64_t groups = c->opts.groups;
    if (c->in % groups || c->out % groups)
        return aril__fail(ARIL_ERR_ARG,
                          "%s: %lld groups do not divide %lld inputs and %lld outputs",
                          self->type->type, (long long)groups, (long long)c->in, (long long)c->out);
    aril_shape shape = { .ndim = c->spatial + 2 };
    shape.dim[0] = c->transposed ? c->in : c->out;
    shape.dim[1] = (c->transposed ? c->out : c->in) / groups;
    memcpy(shape.dim + 2, c->kernel, (size_t)c->spatial * sizeof *c->kernel);
    aril_status s = aril__add_parameter(self, "weight", shape);
    if (s == ARIL_OK) s = aril__add_optional(self, "bias", ARIL_SHAPE(c->out), c->no_bias);
    if (s == ARIL_OK) conv_reset(self);
    return s;
}

static aril_status conv_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    conv *c = aril_module_data(self);
    (void)n_in;
    aril_status s = aril__input_size(in[0], -1 - c->spatial, &c->in);
    if (s == ARIL_OK) s = conv_parameters(self);
    if (s < 0) c->in = 0;
    return s;
}

static aril_tensor *conv_fused(aril_module *self, aril_tensor *x, aril_activation activation)
{
    const conv *c = aril_module_data(self);
    aril_conv_opts opts = c->opts;
    opts.activation = activation;
    aril__window_as_given(opts.padding);
    aril__window_as_given(opts.output_padding);
    if (c->pads.n) x = aril_pad(x, c->pads, (aril_pad_opts){ .mode = c->padding_mode });
    return c->fn(x, aril__own_at(self, WEIGHT), aril__own_at(self, BIAS), opts);
}

ARIL__FORWARD(conv_forward)
{
    out[0] = conv_fused(self, in[0], ARIL_NO_ACTIVATION);
}

static void conv_describe(const aril_module *self, char *text, size_t size)
{
    static const char *const modes[] = { "zeros", "reflect", "replicate", "circular" };
    const conv *c = aril_module_data(self);
    aril__text_out t = { text, size };
    int n = c->spatial;
    aril__text_append(&t, "%lld, %lld, kernel_size=", (long long)c->in, (long long)c->out);
    aril__text_append_sizes(&t, "", n, c->kernel);
    aril__text_append_sizes(&t, ", stride=", n, c->opts.stride);
    if (c->mode != ARIL_NUMBERS)
        aril__text_append(&t, ", padding=%s", c->mode == ARIL_VALID ? "valid" : "same");
    else if (c->padding[0] || c->padding[1] || c->padding[2])
        aril__text_append_sizes(&t, ", padding=", n, c->padding);
    if (!aril__all_are(n, c->opts.dilation, 1))
        aril__text_append_sizes(&t, ", dilation=", n, c->opts.dilation);
    if (!aril__all_are(n, c->opts.output_padding, 0))
        aril__text_append_sizes(&t, ", output_padding=", n, c->opts.output_padding);
    if (c->opts.groups != 1) aril__text_append(&t, ", groups=%lld", (long long)c->opts.groups);
    if (c->no_bias) aril__text_append(&t, ", bias=False");
    if (c->padding_mode) aril__text_append(&t, ", padding_mode=%s", modes[c->padding_mode]);
}

/* Padding other than zeros is applied before the convolution. */
static aril_status set_pads(conv *c, const char *type)
{
    if (c->padding_mode == ARIL_PAD_CONSTANT || c->opts.mode == ARIL_VALID) return ARIL_OK;
    if (c->transposed) return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: expected zero padding", type);
    c->pads.n = 2 * c->spatial;
    for (int i = 0; i < c->spatial; i++) {
        int last = 2 * (c->spatial - 1 - i); /* pads start at the last axis */
        int64_t before = c->opts.padding[i], after = before;
        if (c->opts.mode != ARIL_NUMBERS) {
            int64_t all = c->opts.dilation[i] * (c->kernel[i] - 1);
            if (c->opts.stride[i] != 1)
                return aril__fail(ARIL_ERR_ARG, "%s: same padding needs a stride of 1", type);
            before = c->opts.mode == ARIL_SAME ? all / 2 : all - all / 2;
            after = all - before;
        }
        c->pads.at[last] = before;
        c->pads.at[last + 1] = after;
    }
    memset(c->opts.padding, 0, sizeof c->opts.padding);
    return ARIL_OK;
}

static aril_module *make(const aril__layer *layer, conv_fn *fn, int spatial, bool transposed,
                         int64_t in, int64_t out, int64_t kernel, aril_nn_conv_opts opts)
{
    const char *type = layer->base.type;
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    conv *c = aril_module_data(m);
    *c = (conv){ .fn = fn,
                 .spatial = spatial,
                 .transposed = transposed,
                 .no_bias = opts.no_bias,
                 .in = in,
                 .out = out,
                 .padding_mode = opts.padding_mode };
    c->opts.groups = opts.groups ? opts.groups : 1;
    c->opts.mode = c->mode = opts.mode;
    aril_status s = aril__window_kernel(type, spatial, kernel, opts.kernel, c->kernel);
    if (s == ARIL_OK) s = aril__window(type, "stride", spatial, opts.stride, 1, 1, c->opts.stride);
    if (s == ARIL_OK)
        s = aril__window(type, "dilation", spatial, opts.dilation, 1, 1, c->opts.dilation);
    if (s == ARIL_OK)
        s = aril__window(type, "padding", spatial, opts.padding, 0, 0, c->opts.padding);
    if (s == ARIL_OK)
        s = aril__window(type, "output_padding", spatial, opts.output_padding, 0, 0,
                         c->opts.output_padding);
    if (s == ARIL_OK && (in < 0 || out < 1 || c->opts.groups < 1 || (int)opts.padding_mode < 0 ||
                         opts.padding_mode > ARIL_PAD_CIRCULAR))
        s = aril__fail(ARIL_ERR_ARG, "%s: %lld inputs, %lld outputs, %lld groups, padding mode %d",
                       type, (long long)in, (long long)out, (long long)c->opts.groups,
                       (int)opts.padding_mode);
    memcpy(c->padding, c->opts.padding, sizeof c->padding);
    if (s == ARIL_OK) s = set_pads(c, type);
    if (c->pads.n) c->opts.mode = ARIL_NUMBERS;
    if (s == ARIL_OK && in) {
        aril_module_ready(m);
        s = conv_parameters(m);
    }
    return aril__layer_made(m, s);
}

#define CONV(name, shown, n, transpose)                                               \
    static const aril__layer name##_layer = {                                         \
        .base = { .type = shown,                                                      \
                  .size = sizeof(conv),                                               \
                  .forward = conv_forward,                                            \
                  .build = conv_build,                                                \
                  .reset = conv_reset,                                                \
                  .describe = conv_describe },                                        \
        .fused = conv_fused,                                                          \
        .has_kernel = true,                                                           \
    };                                                                                \
    aril_module *aril_nn_##name(int64_t in, int64_t out, int64_t kernel)              \
    {                                                                                 \
        return make(&name##_layer, aril_##name, n, transpose, in, out, kernel,        \
                    (aril_nn_conv_opts){ 0 });                                        \
    }                                                                                 \
    aril_module *aril_nn_##name##_with(int64_t in, int64_t out, int64_t kernel,       \
                                       aril_nn_conv_opts opts)                        \
    {                                                                                 \
        return make(&name##_layer, aril_##name, n, transpose, in, out, kernel, opts); \
    }

CONV(conv1d, "Conv1d", 1, false)
CONV(conv2d, "Conv2d", 2, false)
CONV(conv3d, "Conv3d", 3, false)
CONV(conv_transpose1d, "ConvTranspose1d", 1, true)
CONV(conv_transpose2d, "ConvTranspose2d", 2, true)
CONV(conv_transpose3d, "ConvTranspose3d", 3, true)
