/* Pooling, padding, cropping and resizing of images. */
#include "aril/conv.h"
#include "aril/create.h"
#include "aril/index.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "aril/math.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

/* Dimensions of an image; operations have them of any number from 1 to 3. */
static int spatial_of(const keras_make *k)
{
    int n = k->layer->kind->spatial, own = k->rank - 2;
    return n ? n : own < 1 ? 1 : own > 3 ? 3 : own;
}

static aril_status check_rank(const keras_make *k)
{
    int n = spatial_of(k);
    if (k->rank == n + 2) return ARIL_OK;
    return aril__keras_fail(k, ARIL_ERR_FORMAT, "its input has %d dimensions, expected %d", k->rank,
                            n + 2);
}

/* ---- pooling ---- */

typedef struct pool {
    keras_base base;
    int spatial;
    bool average;
    aril_pool_opts opts;
} pool;

ARIL__FORWARD(pool_forward)
{
    const pool *p = aril_module_data(self);
    aril_tensor *x = in[0];
    if (p->average)
        out[0] = p->spatial == 1   ? aril_avg_pool1d(x, p->opts)
                 : p->spatial == 2 ? aril_avg_pool2d(x, p->opts)
                                   : aril_avg_pool3d(x, p->opts);
    else
        out[0] = p->spatial == 1   ? aril_max_pool1d(x, p->opts, NULL)
                 : p->spatial == 2 ? aril_max_pool2d(x, p->opts, NULL)
                                   : aril_max_pool3d(x, p->opts, NULL);
}

static aril_module *make_pool(keras_make *k, bool average)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(pool), .type = "Pooling", .forward = pool_forward }
    };
    int n = spatial_of(k);
    pool p = { .spatial = n, .average = average };
    aril_status s = check_rank(k);
    if (s == ARIL_OK) s = aril__keras_sizes(k, "pool_size", n, 2, 1, p.opts.kernel);
    memcpy(p.opts.stride, p.opts.kernel, sizeof p.opts.stride);
    const json *strides = aril__json_get(k->config, "strides");
    if (s == ARIL_OK && strides && strides->kind != 'n')
        s = aril__keras_sizes(k, "strides", n, 2, 1, p.opts.stride);
    const char *padding = aril__json_text(aril__json_get(k->config, "padding"), "valid");
    if (s == ARIL_OK && strcmp(padding, "same") != 0 && strcmp(padding, "valid") != 0)
        s = aril__keras_fail(k, ARIL_ERR_FORMAT, "padding \"%s\" is unknown", padding);
    p.opts.mode = strcmp(padding, "same") == 0 ? ARIL_SAME : ARIL_VALID;
    p.opts.count_exclude_pad = true;
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (!m) return NULL;
    p.base = *(keras_base *)aril_module_data(m);
    *(pool *)aril_module_data(m) = p;
    return m;
}

aril_module *aril__keras_max_pool(keras_make *k)
{
    return make_pool(k, false);
}

aril_module *aril__keras_avg_pool(keras_make *k)
{
    return make_pool(k, true);
}

/* ---- global pooling ---- */

typedef struct global {
    keras_base base;
    bool average;
    bool first; /* the channels are axis 1; else the last one */
    aril_axes axes;
} global;

/* With a mask [N,T], the mean of [N,T,C] is over the steps that it keeps. */
static aril_tensor *masked_mean(const global *g, aril_tensor *x, aril_tensor *mask)
{
    aril_tensor *keep = aril_cast(aril_unsqueeze(mask, g->first ? 1 : 2), aril_dtype_of(x));
    return aril_div(aril_sum(aril_mul(x, keep), g->axes), aril_sum(keep, g->axes));
}

ARIL__FORWARD(global_forward)
{
    const global *g = aril_module_data(self);
    if (n_in > 1 && in[1] && g->average)
        out[0] = masked_mean(g, in[0], in[1]);
    else
        out[0] = g->average ? aril_mean(in[0], g->axes) : aril_amax(in[0], g->axes);
}

static aril_module *make_global(keras_make *k, bool average)
{
    static const aril__layer layer = { .base = { .size = sizeof(global),
                                                 .type = "GlobalPooling",
                                                 .forward = global_forward,
                                                 .inputs = -1 } };
    int n = k->layer->kind->spatial;
    aril_module *m = check_rank(k) == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (!m) return NULL;
    global *g = aril_module_data(m);
    g->average = average;
    g->first = k->order == KERAS_FIRST || aril__keras_channels_first(k->config);
    g->axes.keepdim = aril__json_bool(aril__json_get(k->config, "keepdims"), false);
    for (int i = 0; i < n; i++) g->axes.axis[g->axes.n++] = i + (g->first ? 2 : 1);
    return m;
}

aril_module *aril__keras_global_avg_pool(keras_make *k)
{
    return make_global(k, true);
}

aril_module *aril__keras_global_max_pool(keras_make *k)
{
    return make_global(k, false);
}

/* ---- adaptive pooling ---- */

typedef struct adaptive {
    keras_base base;
    bool average;
    aril_shape size;
} adaptive;

ARIL__FORWARD(adaptive_forward)
{
    const adaptive *a = aril_module_data(self);
    aril_tensor *x = in[0];
    int n = a->size.ndim;
    if (a->average)
        out[0] = n == 1   ? aril_adaptive_avg_pool1d(x, a->size)
                 : n == 2 ? aril_adaptive_avg_pool2d(x, a->size)
                          : aril_adaptive_avg_pool3d(x, a->size);
    else
        out[0] = n == 1   ? aril_adaptive_max_pool1d(x, a->size, NULL)
                 : n == 2 ? aril_adaptive_max_pool2d(x, a->size, NULL)
                          : aril_adaptive_max_pool3d(x, a->size, NULL);
}

static aril_module *make_adaptive(keras_make *k, bool average)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(adaptive), .type = "AdaptivePooling", .forward = adaptive_forward }
    };
    adaptive a = { .average = average, .size.ndim = k->layer->kind->spatial };
    aril_status s = check_rank(k);
    if (s == ARIL_OK) s = aril__keras_sizes(k, "output_size", a.size.ndim, 1, 1, a.size.dim);
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (!m) return NULL;
    a.base = *(keras_base *)aril_module_data(m);
    *(adaptive *)aril_module_data(m) = a;
    return m;
}

aril_module *aril__keras_adaptive_avg_pool(keras_make *k)
{
    return make_adaptive(k, true);
}

aril_module *aril__keras_adaptive_max_pool(keras_make *k)
{
    return make_adaptive(k, false);
}

/* ---- padding and cropping ---- */

typedef struct pads {
    keras_base base;
    aril_pads pads; /* negative: cropped */
} pads;

ARIL__FORWARD(pads_forward)
{
    out[0] = aril_pad(in[0], ((const pads *)aril_module_data(self))->pads, (aril_pad_opts){ 0 });
}

/* n; (h, w); ((top, bottom), (left, right)); of one dimension also (before, after). */
static aril_status read_pads(const keras_make *k, const char *key, int sign, aril_pads *out)
{
    int n = k->layer->kind->spatial;
    const json *v = aril__json_get(k->config, key);
    out->n = 2 * n;
    bool good = true;
    for (int i = 0; i < n; i++) {
        const json *e =
            aril__json_kind(v) == '[' ? (n == 1 && v->n == 2 ? v : aril__json_at(v, i)) : v;
        for (int side = 0; side < 2; side++) {
            const json *x = aril__json_kind(e) == '[' ? aril__json_at(e, side) : e;
            int64_t size = v ? aril__json_integer(x, -1) : 1;
            good &= size >= 0 && size <= 1 << 30;
            out->at[2 * (n - 1 - i) + side] = sign * size;
        }
    }
    return good ? ARIL_OK
                : aril__keras_fail(k, ARIL_ERR_FORMAT, "%s must be non-negative integers", key);
}

static aril_module *make_pads(keras_make *k, const char *key, int sign)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(pads), .type = "Padding", .forward = pads_forward }
    };
    aril_pads p = { 0 };
    aril_status s = check_rank(k);
    if (s == ARIL_OK) s = read_pads(k, key, sign, &p);
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (m) ((pads *)aril_module_data(m))->pads = p;
    return m;
}

aril_module *aril__keras_zero_padding(keras_make *k)
{
    return make_pads(k, "padding", 1);
}

aril_module *aril__keras_cropping(keras_make *k)
{
    return make_pads(k, "cropping", -1);
}

/* ---- cropping to a size ---- */

typedef struct center_crop {
    keras_base base;
    bool first; /* the channels are axis 1; else the last one */
    int64_t size[2];
} center_crop;

ARIL__FORWARD(center_crop_forward)
{
    const center_crop *c = aril_module_data(self);
    out[0] = in[0];
    for (int i = 0; i < 2; i++) {
        int axis = i + (c->first ? 2 : 1);
        int64_t rest = in[0]->dim[axis] - c->size[i];
        out[0] = aril_narrow(out[0], axis, rest / 2, c->size[i]);
    }
}

/* Keras resizes images that are smaller, as Resizing with crop_to_aspect_ratio does. */
aril_module *aril__keras_center_crop(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(center_crop),
                                                 .type = "CenterCrop",
                                                 .forward = center_crop_forward } };
    center_crop c = { .first = k->order == KERAS_FIRST || aril__keras_channels_first(k->config) };
    aril_status s = check_rank(k);
    if (s == ARIL_OK) s = aril__keras_integer(k, "height", 0, 1, &c.size[0]);
    if (s == ARIL_OK) s = aril__keras_integer(k, "width", 0, 1, &c.size[1]);
    for (int i = 0; i < 2 && s == ARIL_OK; i++)
        if (k->in[0].tensor->dim[i + (c.first ? 2 : 1)] < c.size[i])
            s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                                 "it is supported only for images of a known size that is no "
                                 "smaller than its own");
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (!m) return NULL;
    c.base = *(keras_base *)aril_module_data(m);
    *(center_crop *)aril_module_data(m) = c;
    return m;
}

/* ---- resizing ---- */

typedef struct resize {
    keras_base base;
    aril_interpolate_opts opts;
} resize;

ARIL__FORWARD(resize_forward)
{
    out[0] = aril_interpolate(in[0], ((const resize *)aril_module_data(self))->opts);
}

static aril_module *make_resize(keras_make *k, aril_interpolate_opts opts, const char *mode)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(resize), .type = "Resizing", .forward = resize_forward }
    };
    if (strcmp(mode, "bilinear") == 0) {
        opts.mode = ARIL_LINEAR;
    } else if (strcmp(mode, "nearest") == 0) {
        opts.mode = ARIL_NEAREST_EXACT;
    } else {
        aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                         "interpolation \"%s\" is not supported; nearest and bilinear are", mode);
        return NULL;
    }
    aril_module *m = aril__keras_module(k, &layer);
    if (m) ((resize *)aril_module_data(m))->opts = opts;
    return m;
}

aril_module *aril__keras_up_sampling(keras_make *k)
{
    int n = k->layer->kind->spatial;
    int64_t size[3];
    aril_interpolate_opts opts = { 0 };
    aril_status s = check_rank(k);
    if (s == ARIL_OK) s = aril__keras_sizes(k, "size", n, 2, 1, size);
    if (s < 0) return NULL;
    for (int i = 0; i < n; i++) opts.scale[i] = (double)size[i];
    return make_resize(k, opts,
                       aril__json_text(aril__json_get(k->config, "interpolation"), "nearest"));
}

aril_module *aril__keras_resizing(keras_make *k)
{
    aril_interpolate_opts opts = { 0 };
    aril_status s = check_rank(k);
    if (s == ARIL_OK) s = aril__keras_integer(k, "height", 0, 1, &opts.size[0]);
    if (s == ARIL_OK) s = aril__keras_integer(k, "width", 0, 1, &opts.size[1]);
    static const char *const refused[] = { "crop_to_aspect_ratio", "pad_to_aspect_ratio",
                                           "antialias" };
    for (int i = 0; i < 3 && s == ARIL_OK; i++)
        if (aril__json_bool(aril__json_get(k->config, refused[i]), false))
            s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "%s is not supported", refused[i]);
    if (s < 0) return NULL;
    return make_resize(k, opts,
                       aril__json_text(aril__json_get(k->config, "interpolation"), "bilinear"));
}
