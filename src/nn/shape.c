/* Layers that change only the shape: reshaping, resampling, padding. */
#include "nn/module.h"

#include "aril/conv.h"
#include "aril/index.h"
#include "aril/view.h"
#include "nn/window.h"

#include <string.h>

typedef struct flatten {
    int start, end;
} flatten;

ARIL__FORWARD(flatten_forward)
{
    const flatten *f = aril_module_data(self);
    out[0] = aril_flatten(in[0], f->start, f->end);
}

static void flatten_describe(const aril_module *self, char *text, size_t size)
{
    const flatten *f = aril_module_data(self);
    snprintf(text, size, "start_dim=%d, end_dim=%d", f->start, f->end);
}

static const aril__layer flatten_layer = {
    .base = { .type = "Flatten",
              .size = sizeof(flatten),
              .forward = flatten_forward,
              .describe = flatten_describe },
};

aril_module *aril_nn_flatten(void)
{
    return aril_nn_flatten_with(1, -1);
}

aril_module *aril_nn_flatten_with(int start, int end)
{
    aril_module *m = aril__layer_make(&flatten_layer);
    if (m) *(flatten *)aril_module_data(m) = (flatten){ start, end };
    return m;
}

/* ---- reshaping ---- */

typedef struct sizes {
    int axis;
    aril_shape shape;
} sizes;

ARIL__FORWARD(unflatten_forward)
{
    const sizes *u = aril_module_data(self);
    const aril_tensor *x = in[0];
    int at = aril__axis("unflatten", u->axis, x->ndim);
    aril_shape to = { .ndim = x->ndim - 1 + u->shape.ndim };
    if (at < 0 || x->ndim == 0 || to.ndim > ARIL_MAX_DIMS) {
        if (at >= 0)
            aril__fail(ARIL_ERR_SHAPE, "unflatten: the result would have %d dimensions", to.ndim);
        out[0] = aril__poison();
        return;
    }
    int n = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (i != at)
            to.dim[n++] = x->dim[i];
        else
            for (int k = 0; k < u->shape.ndim; k++) to.dim[n++] = u->shape.dim[k];
    }
    out[0] = aril_reshape(in[0], to);
}

static void unflatten_describe(const aril_module *self, char *text, size_t size)
{
    const sizes *u = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append(&t, "dim=%d", u->axis);
    aril__text_append_sizes(&t, ", unflattened_size=", u->shape.ndim, u->shape.dim);
}

static aril_module *make_sizes(const aril__layer *layer, int axis, aril_shape shape)
{
    if (shape.ndim < 1 || shape.ndim > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_ARG, "%s: %d sizes", layer->base.type, shape.ndim);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (m) *(sizes *)aril_module_data(m) = (sizes){ axis, shape };
    return m;
}

aril_module *aril_nn_unflatten(int axis, aril_shape shape)
{
    static const aril__layer layer = { .base = { .type = "Unflatten",
                                                 .size = sizeof(sizes),
                                                 .forward = unflatten_forward,
                                                 .describe = unflatten_describe } };
    return make_sizes(&layer, axis, shape);
}

ARIL__FORWARD(reshape_forward)
{
    const sizes *r = aril_module_data(self);
    aril_shape to = { .ndim = r->shape.ndim + 1, .dim = { in[0]->ndim ? in[0]->dim[0] : 1 } };
    memcpy(to.dim + 1, r->shape.dim, (size_t)r->shape.ndim * sizeof *to.dim);
    out[0] = aril_reshape(in[0], to);
}

static void reshape_describe(const aril_module *self, char *text, size_t size)
{
    const sizes *r = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append_sizes(&t, "", r->shape.ndim, r->shape.dim);
}

aril_module *aril_nn_reshape(aril_shape shape)
{
    static const aril__layer layer = { .base = { .type = "Reshape",
                                                 .size = sizeof(sizes),
                                                 .forward = reshape_forward,
                                                 .describe = reshape_describe } };
    if (shape.ndim >= ARIL_MAX_DIMS) shape.ndim = 0; /* too many with the batch: rejected below */
    return make_sizes(&layer, 0, shape);
}

/* ---- resampling images ---- */

ARIL__FORWARD(upsample_forward)
{
    out[0] = aril_interpolate(in[0], *(const aril_interpolate_opts *)aril_module_data(self));
}

static void upsample_describe(const aril_module *self, char *text, size_t size)
{
    static const char *const modes[] = { "nearest", "nearest-exact", "linear", "cubic", "area" };
    const aril_interpolate_opts *o = aril_module_data(self);
    aril__text_out t = { text, size };
    if (o->scale[0] != 0)
        aril__text_append(&t, "scale_factor=%.12g", o->scale[0]);
    else
        aril__text_append_sizes(&t, "size=", o->size[2] ? 3 : o->size[1] ? 2 : 1, o->size);
    aril__text_append(&t, ", mode='%s'", modes[o->mode]);
}

aril_module *aril_nn_upsample(double scale)
{
    return aril_nn_upsample_with((aril_interpolate_opts){ .scale = { scale } });
}

aril_module *aril_nn_upsample_with(aril_interpolate_opts opts)
{
    static const aril__layer layer = { .base = { .type = "Upsample",
                                                 .size = sizeof(aril_interpolate_opts),
                                                 .forward = upsample_forward,
                                                 .describe = upsample_describe } };
    if ((int)opts.mode < ARIL_NEAREST || opts.mode > ARIL_AREA) {
        aril__fail(ARIL_ERR_ARG, "Upsample: %d is not a mode", (int)opts.mode);
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (m) *(aril_interpolate_opts *)aril_module_data(m) = opts;
    return m;
}

typedef struct factor {
    int64_t n;
} factor;

#define SHUFFLE(name, shown, text)                                                               \
    ARIL__FORWARD(name##_forward)                                                                \
    {                                                                                            \
        out[0] = aril_##name(in[0], ((const factor *)aril_module_data(self))->n);                \
    }                                                                                            \
    static void name##_describe(const aril_module *self, char *to, size_t size)                  \
    {                                                                                            \
        snprintf(to, size, text "%lld", (long long)((const factor *)aril_module_data(self))->n); \
    }                                                                                            \
    aril_module *aril_nn_##name(int64_t n)                                                       \
    {                                                                                            \
        static const aril__layer layer = { .base = { .type = shown,                              \
                                                     .size = sizeof(factor),                     \
                                                     .forward = name##_forward,                  \
                                                     .describe = name##_describe } };            \
        aril_module *m = aril__layer_make(&layer);                                               \
        if (m) ((factor *)aril_module_data(m))->n = n;                                           \
        return m;                                                                                \
    }

SHUFFLE(pixel_shuffle, "PixelShuffle", "upscale_factor=")
SHUFFLE(pixel_unshuffle, "PixelUnshuffle", "downscale_factor=")
SHUFFLE(channel_shuffle, "ChannelShuffle", "groups=")

/* ---- padding ---- */

typedef struct pad {
    aril_pads pads;
    aril_pad_opts opts;
    bool constant;
} pad;

ARIL__FORWARD(pad_forward)
{
    const pad *p = aril_module_data(self);
    out[0] = aril_pad(in[0], p->pads, p->opts);
}

static void pad_describe(const aril_module *self, char *text, size_t size)
{
    const pad *p = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append_sizes(&t, p->constant ? "padding=" : "", p->pads.n, p->pads.at);
    if (p->constant) aril__text_append(&t, ", value=%.12g", p->opts.value);
}

static aril_module *make_pad(const aril__layer *layer, int spatial, aril_pads pads,
                             aril_pad_opts opts, bool constant)
{
    if (pads.n != 1 && pads.n != 2 * spatial) {
        aril__fail(ARIL_ERR_ARG, "%s: got %d numbers, expected one for each side or one for all",
                   layer->base.type, pads.n);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    for (int i = pads.n; i < 2 * spatial; i++) pads.at[i] = pads.at[0];
    pads.n = 2 * spatial;
    *(pad *)aril_module_data(m) = (pad){ pads, opts, constant };
    return m;
}

#define PAD_LAYER(shown)                                                 \
    static const aril__layer layer = { .base = { .type = shown,          \
                                                 .size = sizeof(pad),    \
                                                 .forward = pad_forward, \
                                                 .describe = pad_describe } }
#define PAD(name, shown, n, mode)                                            \
    aril_module *aril_nn_##name##_pad##n##d(aril_pads pads)                  \
    {                                                                        \
        PAD_LAYER(shown "Pad" #n "d");                                       \
        return make_pad(&layer, n, pads, (aril_pad_opts){ mode, 0 }, false); \
    }
#define CONSTANT_PAD(n)                                                                      \
    aril_module *aril_nn_constant_pad##n##d(aril_pads pads, double value)                    \
    {                                                                                        \
        PAD_LAYER("ConstantPad" #n "d");                                                     \
        return make_pad(&layer, n, pads, (aril_pad_opts){ ARIL_PAD_CONSTANT, value }, true); \
    }

PAD(zero, "Zero", 1, ARIL_PAD_CONSTANT)
PAD(zero, "Zero", 2, ARIL_PAD_CONSTANT)
PAD(zero, "Zero", 3, ARIL_PAD_CONSTANT)
CONSTANT_PAD(1)
CONSTANT_PAD(2)
CONSTANT_PAD(3)
PAD(reflection, "Reflection", 1, ARIL_PAD_REFLECT)
PAD(reflection, "Reflection", 2, ARIL_PAD_REFLECT)
PAD(reflection, "Reflection", 3, ARIL_PAD_REFLECT)
PAD(replication, "Replication", 1, ARIL_PAD_REPLICATE)
PAD(replication, "Replication", 2, ARIL_PAD_REPLICATE)
PAD(replication, "Replication", 3, ARIL_PAD_REPLICATE)
PAD(circular, "Circular", 1, ARIL_PAD_CIRCULAR)
PAD(circular, "Circular", 2, ARIL_PAD_CIRCULAR)
PAD(circular, "Circular", 3, ARIL_PAD_CIRCULAR)
