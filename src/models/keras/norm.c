/* Normalization, scaling and dropout. */
#include "aril/create.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <math.h>
#include <string.h>

static double real_of(const keras_make *k, const char *key, double otherwise)
{
    return aril__json_real(aril__json_get(k->config, key), otherwise);
}

/* False, with an error: it is not one. */
static bool read_eps(const keras_make *k, double otherwise, double *eps)
{
    *eps = real_of(k, "epsilon", otherwise);
    if (*eps >= 0 && isfinite(*eps)) return true;
    aril__keras_fail(k, ARIL_ERR_FORMAT, "epsilon must be finite and not negative, got %g", *eps);
    return false;
}

/* ---- batch normalization ---- */

typedef struct batch_norm {
    keras_base base;
    int axis; /* of the channels, in the value's order */
    double momentum, eps;
    bool frozen; /* not trainable: moving averages are used in training too */
} batch_norm;

enum { GAMMA, BETA, MEAN, VARIANCE };

static aril_tensor *batch_norm_fused(aril_module *self, aril_tensor *x, aril_activation activation)
{
    const batch_norm *b = aril_module_data(self);
    bool turn = b->axis != 1;
    if (turn) x = aril_movedim(x, ARIL_AXES(b->axis), ARIL_AXES(1));
    x = aril_batch_norm(x, aril__own_at(self, GAMMA), aril__own_at(self, BETA),
                        aril__own_at(self, MEAN), aril__own_at(self, VARIANCE),
                        (aril_batch_norm_opts){ .eval = b->frozen || !aril__is_training(self),
                                                .momentum = b->momentum,
                                                .eps = b->eps,
                                                .activation = activation });
    return turn ? aril_movedim(x, ARIL_AXES(1), ARIL_AXES(b->axis)) : x;
}

ARIL__FORWARD(batch_norm_forward)
{
    out[0] = batch_norm_fused(self, in[0], ARIL_NO_ACTIVATION);
}

/* An axis, or a list of one. */
static aril_status one_axis(const keras_make *k, int *out)
{
    const json *v = aril__json_get(k->config, "axis");
    if (aril__json_kind(v) == '[' && v->n == 1) v = v->first;
    return aril__keras_axis(k, aril__json_integer(v, v ? INT64_MIN : -1), out);
}

aril_module *aril__keras_batch_norm(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(batch_norm),
                                                 .type = "BatchNormalization",
                                                 .forward = batch_norm_forward },
                                       .fused = batch_norm_fused };
    batch_norm b = { .momentum = 1 - real_of(k, "momentum", 0.99), .frozen = !k->layer->trainable };
    if (!read_eps(k, 1e-3, &b.eps)) return NULL;
    if (b.momentum == 0) b.momentum = ARIL_ZERO;
    if (one_axis(k, &b.axis) < 0) return NULL;
    if (b.axis == 0) {
        aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "axis 0 is the batch");
        return NULL;
    }
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    b.base = *(keras_base *)aril_module_data(m);
    *(batch_norm *)aril_module_data(m) = b;
    static const char *const names[] = { "gamma", "beta", "moving_mean", "moving_variance" };
    int64_t channels = k->in[0].tensor->dim[b.axis];
    aril_status s = ARIL_OK;
    for (int i = 0; i < 4 && s == ARIL_OK; i++)
        s = aril__keras_own_shaped(k, m, names[i], ARIL_SHAPE(channels < 0 ? -1 : channels));
    return aril__keras_made(m, s);
}

/* ---- layer, RMS and unit normalization ---- */

typedef struct axes_norm {
    keras_base base;
    aril_axes axes; /* with keepdim */
    bool last;      /* they are the last ones: the size of `shape` */
    aril_shape shape, broadcast;
    double eps;
} axes_norm;

static aril_tensor *scaled(const axes_norm *a, aril_tensor *x, aril_tensor *gamma,
                           aril_tensor *beta)
{
    if (gamma) x = aril_mul(x, aril_reshape(gamma, a->broadcast));
    return beta ? aril_add(x, aril_reshape(beta, a->broadcast)) : x;
}

ARIL__FORWARD(layer_norm_forward)
{
    const axes_norm *a = aril_module_data(self);
    aril_tensor *gamma = aril__own_at(self, 0), *beta = aril__own_at(self, 1), *x = in[0];
    if (a->last) {
        out[0] = aril_layer_norm(x, gamma, beta, a->shape, (aril_norm_opts){ a->eps });
        return;
    }
    aril_tensor *mean = aril_mean(x, a->axes), *centered = aril_sub(x, mean);
    aril_tensor *variance = aril_mean(aril_square(centered), a->axes);
    aril_tensor *scale = aril_rsqrt(aril_add_scalar(variance, a->eps));
    out[0] = scaled(a, aril_mul(centered, scale), gamma, beta);
}

ARIL__FORWARD(rms_norm_forward)
{
    const axes_norm *a = aril_module_data(self);
    aril_tensor *x = in[0];
    if (a->last) {
        out[0] = aril_rms_norm(x, aril__own_at(self, 0), a->shape, (aril_norm_opts){ a->eps });
        return;
    }
    aril_tensor *mean = aril_mean(aril_square(x), a->axes);
    x = aril_mul(x, aril_rsqrt(aril_add_scalar(mean, a->eps)));
    out[0] = scaled(a, x, aril__own_at(self, 0), NULL);
}

/* x / max(|x|, 1e-6), as Keras: x * rsqrt(max(sum of squares, 1e-12)) */
ARIL__FORWARD(unit_norm_forward)
{
    const axes_norm *a = aril_module_data(self);
    aril_tensor *sum = aril_sum(aril_square(in[0]), a->axes);
    out[0] = aril_mul(in[0], aril_rsqrt(aril_clamp_min(sum, 1e-12)));
}

/* Reads the axes: one, or a list. */
static aril_status read_axes(const keras_make *k, axes_norm *a)
{
    const json *v = aril__json_get(k->config, "axis");
    bool list = aril__json_kind(v) == '[', has[ARIL_MAX_DIMS] = { false };
    int n = list ? v->n : 1;
    for (int i = 0; i < n; i++) {
        int axis;
        const json *e = list ? aril__json_at(v, i) : v;
        aril_status s = aril__keras_axis(k, aril__json_integer(e, v ? INT64_MIN : -1), &axis);
        if (s < 0) return s;
        has[axis] = true;
    }
    a->axes.keepdim = true;
    a->broadcast.ndim = k->rank;
    for (int i = 0; i < k->rank; i++) {
        a->broadcast.dim[i] = has[i] ? k->in[0].tensor->dim[i] : 1;
        if (!has[i]) continue;
        if (a->broadcast.dim[i] < 0) a->broadcast.dim[i] = -1;
        a->shape.dim[a->shape.ndim++] = a->broadcast.dim[i];
        a->axes.axis[a->axes.n++] = i;
    }
    a->last = a->axes.n > 0 && a->axes.axis[0] == k->rank - a->axes.n;
    if (a->axes.n == 0) return aril__keras_fail(k, ARIL_ERR_FORMAT, "it has no axes");
    return ARIL_OK;
}

static aril_module *make_axes_norm(keras_make *k, const aril__layer *layer, const char *scale)
{
    axes_norm a = { 0 };
    if (!read_eps(k, strcmp(scale, "scale") == 0 ? 1e-6 : 1e-3, &a.eps) || read_axes(k, &a) < 0)
        return NULL;
    aril_module *m = aril__keras_module(k, layer);
    if (!m) return NULL;
    a.base = *(keras_base *)aril_module_data(m);
    *(axes_norm *)aril_module_data(m) = a;
    aril_status s = *scale ? aril__keras_own_shaped(k, m, scale, a.shape) : ARIL_OK;
    if (s == ARIL_OK && strcmp(scale, "gamma") == 0)
        s = aril__keras_own_shaped(k, m, "beta", a.shape);
    return aril__keras_made(m, s);
}

aril_module *aril__keras_layer_norm(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(axes_norm),
                                                 .type = "LayerNormalization",
                                                 .forward = layer_norm_forward } };
    if (aril__json_bool(aril__json_get(k->config, "rms_scaling"), false)) {
        aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "rms_scaling is not supported");
        return NULL;
    }
    return make_axes_norm(k, &layer, "gamma");
}

aril_module *aril__keras_rms_norm(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(axes_norm),
                                                 .type = "RMSNormalization",
                                                 .forward = rms_norm_forward } };
    return make_axes_norm(k, &layer, "scale");
}

aril_module *aril__keras_unit_norm(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(axes_norm),
                                                 .type = "UnitNormalization",
                                                 .forward = unit_norm_forward } };
    return make_axes_norm(k, &layer, "");
}

/* ---- group normalization ---- */

typedef struct group_norm {
    keras_base base;
    int axis;
    int64_t groups;
    double eps;
} group_norm;

ARIL__FORWARD(group_norm_forward)
{
    const group_norm *g = aril_module_data(self);
    bool turn = g->axis != 1;
    aril_tensor *x = turn ? aril_movedim(in[0], ARIL_AXES(g->axis), ARIL_AXES(1)) : in[0];
    x = aril_group_norm(x, aril__own_at(self, 0), aril__own_at(self, 1), g->groups,
                        (aril_norm_opts){ g->eps });
    out[0] = turn ? aril_movedim(x, ARIL_AXES(1), ARIL_AXES(g->axis)) : x;
}

aril_module *aril__keras_group_norm(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(group_norm),
                                                 .type = "GroupNormalization",
                                                 .forward = group_norm_forward } };
    group_norm g = { 0 };
    if (!read_eps(k, 1e-3, &g.eps)) return NULL;
    aril_status s = one_axis(k, &g.axis);
    if (s == ARIL_OK) s = aril__keras_integer(k, "groups", 32, -1, &g.groups);
    if (s < 0) return NULL;
    int64_t channels = k->in[0].tensor->dim[g.axis];
    if (g.groups == -1) g.groups = channels;
    if (g.axis == 0 || channels < 1 || g.groups < 1 || channels % g.groups) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "%lld groups do not divide %lld channels",
                         (long long)g.groups, (long long)channels);
        return NULL;
    }
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    g.base = *(keras_base *)aril_module_data(m);
    *(group_norm *)aril_module_data(m) = g;
    s = aril__keras_own_shaped(k, m, "gamma", ARIL_SHAPE(channels));
    if (s == ARIL_OK) s = aril__keras_own_shaped(k, m, "beta", ARIL_SHAPE(channels));
    return aril__keras_made(m, s);
}

/* ---- fixed scales ---- */

/* x * own[0] + own[1] */
ARIL__FORWARD(affine_forward)
{
    aril_tensor *x = in[0], *scale = aril__own_at(self, 0), *offset = aril__own_at(self, 1);
    x = aril_mul(x, scale);
    out[0] = offset ? aril_add(x, offset) : x;
}

static const aril__layer affine_layer = {
    .base = { .size = sizeof(keras_base), .type = "Affine", .forward = affine_forward }
};

/* Numbers of the configuration, one or one for each channel, as a tensor [C] or []. NULL: they are
 * no numbers. */
static aril_tensor *numbers(const json *v)
{
    enum { MOST = 1 << 16 };
    while (aril__json_kind(v) == '[' && v->n == 1 && aril__json_kind(v->first) == '[') v = v->first;
    if (aril__json_kind(v) == '0') return aril_full(ARIL_SHAPE(1), v->number, ARIL_F32, aril_cpu());
    if (aril__json_kind(v) != '[' || v->n < 1 || v->n > MOST) return NULL;
    aril_tensor *t = aril_zeros(ARIL_SHAPE(v->n), ARIL_F32, aril_cpu());
    float *at = aril_tensor_status(t) == ARIL_OK ? aril__ptr(t) : NULL;
    for (const json *e = v->first; e && at; e = e->next) {
        if (e->kind != '0') return NULL;
        *at++ = (float)e->number;
    }
    return at ? t : NULL;
}

/* [C], or [1] for all channels, so that it broadcasts over the axis. */
static aril_tensor *along(const keras_make *k, aril_tensor *t, int axis)
{
    if (aril_numel(t) == 1) return aril_reshape(t, (aril_shape){ 0 });
    aril_shape shape = { .ndim = k->rank - axis };
    for (int i = 0; i < shape.ndim; i++) shape.dim[i] = 1;
    shape.dim[0] = aril_numel(t);
    return aril_reshape(t, shape);
}

/* A module with a scale and an offset (NULL: none) as buffers. */
static aril_module *make_affine(keras_make *k, aril_tensor *scale, aril_tensor *offset)
{
    aril_module *m = aril__keras_module(k, &affine_layer);
    if (!m) return NULL;
    aril_tensor *a = aril_module_buffer(m, "factor", aril_contiguous(scale));
    aril_tensor *b = offset ? aril_module_buffer(m, "offset", aril_contiguous(offset)) : NULL;
    aril_status s = aril_tensor_status(a);
    if (s == ARIL_OK && offset) s = aril_tensor_status(b);
    return aril__keras_made(m, s);
}

aril_module *aril__keras_rescaling(keras_make *k)
{
    ARIL_SCOPE;
    const json *given = aril__json_get(k->config, "offset");
    aril_tensor *scale = numbers(aril__json_get(k->config, "scale")),
                *offset = given ? numbers(given) : NULL;
    if (!scale || (given && !offset)) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "its scale or offset is not numbers");
        return NULL;
    }
    int axis = aril__keras_turn_axis(k->rank - 1, k->rank, k->order);
    return make_affine(k, along(k, scale, axis), offset ? along(k, offset, axis) : NULL);
}

/* (x - mean) / max(sqrt(variance), 1e-7); inverted: x * that + mean */
aril_module *aril__keras_normalization(keras_make *k)
{
    ARIL_SCOPE;
    int axis = 0;
    bool invert = aril__json_bool(aril__json_get(k->config, "invert"), false);
    const json *given = aril__json_get(k->config, "axis");
    bool one = given && given->kind != 'n' && !(given->kind == '[' && given->n == 0);
    if (one && one_axis(k, &axis) < 0) return NULL;
    bool stored = aril__keras_has(k, "mean");
    aril_tensor *mean = stored ? aril__keras_variable(k, "mean")
                               : numbers(aril__json_get(k->config, "mean")),
                *variance = stored ? aril__keras_variable(k, "variance")
                                   : numbers(aril__json_get(k->config, "variance"));
    if (!mean || !variance) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "its mean or variance is not numbers");
        return NULL;
    }
    if (aril_numel(mean) > 1 && axis == 0) {
        aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "several axes are not supported");
        return NULL;
    }
    mean = along(k, aril_flatten(mean, 0, -1), axis);
    aril_tensor *std =
        aril_clamp_min(aril_sqrt(along(k, aril_flatten(variance, 0, -1), axis)), 1e-7);
    if (invert) return make_affine(k, std, mean);
    return make_affine(k, aril_reciprocal(std), aril_neg(aril_div(mean, std)));
}

ARIL__FORWARD(layer_scale_forward)
{
    out[0] = aril_mul(in[0], aril__own_at(self, 0));
}

aril_module *aril__keras_layer_scale(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(keras_base), .type = "LayerScale", .forward = layer_scale_forward }
    };
    ARIL_SCOPE;
    aril_tensor *gamma = aril__keras_variable(k, "gamma");
    if (!gamma) return NULL;
    if (k->order == KERAS_FIRST) gamma = along(k, gamma, 1);
    aril_module *m = aril__keras_module(k, &layer);
    return m ? aril__keras_made(m, aril__keras_own(k, m, "gamma", gamma)) : NULL;
}

/* ---- dropout and noise: in training only ---- */

typedef struct noise {
    keras_base base;
    double p;
    uint32_t same; /* axes along which one mask is used */
} noise;

ARIL__FORWARD(dropout_forward)
{
    const noise *d = aril_module_data(self);
    aril_tensor *x = in[0];
    if (!aril__is_training(self) || d->p == 0) {
        out[0] = x;
        return;
    }
    if (!d->same) {
        out[0] = aril_dropout(x, d->p, (aril_dropout_opts){ 0 });
        return;
    }
    aril_shape shape = aril_shape_of(x);
    for (int i = 0; i < shape.ndim; i++)
        if (d->same >> i & 1) shape.dim[i] = 1;
    aril_tensor *ones = aril_ones(shape, aril_dtype_of(x), aril_device_of(x));
    out[0] = aril_mul(x, aril_dropout(ones, d->p, (aril_dropout_opts){ 0 }));
}

ARIL__FORWARD(spatial_dropout_forward)
{
    const noise *d = aril_module_data(self);
    bool off = !aril__is_training(self) || d->p == 0;
    out[0] = off ? in[0] : aril_feature_dropout(in[0], d->p, (aril_dropout_opts){ 0 });
}

ARIL__FORWARD(alpha_dropout_forward)
{
    const noise *d = aril_module_data(self);
    bool off = !aril__is_training(self) || d->p == 0;
    out[0] = off ? in[0] : aril_alpha_dropout(in[0], d->p, (aril_dropout_opts){ 0 });
}

static aril_tensor *normal_like(aril_tensor *x)
{
    return aril_randn(aril_shape_of(x), aril_dtype_of(x), aril_device_of(x));
}

/* x * (1 + sqrt(p / (1 - p)) * normal) */
ARIL__FORWARD(gaussian_dropout_forward)
{
    const noise *d = aril_module_data(self);
    out[0] = in[0];
    if (!aril__is_training(self) || d->p == 0) return;
    double std = sqrt(d->p / (1 - d->p));
    out[0] = aril_mul(in[0], aril_add_scalar(aril_mul_scalar(normal_like(in[0]), std), 1.0));
}

ARIL__FORWARD(gaussian_noise_forward)
{
    const noise *d = aril_module_data(self);
    out[0] = in[0];
    if (!aril__is_training(self) || d->p == 0) return;
    out[0] = aril_add(in[0], aril_mul_scalar(normal_like(in[0]), d->p));
}

static aril_module *make_noise(keras_make *k, const aril__layer *layer, const char *key,
                               double most)
{
    double p = real_of(k, key, 0.5);
    if (!(p >= 0 && p <= most)) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "%s must be a number from 0 to %g", key, most);
        return NULL;
    }
    aril_module *m = aril__keras_module(k, layer);
    if (m) ((noise *)aril_module_data(m))->p = p;
    return m;
}

#define NOISE(name, fn, shown, key, most)                                          \
    aril_module *aril__keras_##name(keras_make *k)                                 \
    {                                                                              \
        static const aril__layer layer = { .base = { .size = sizeof(noise),        \
                                                     .type = shown,                \
                                                     .forward = fn,                \
                                                     .only_in_training = true } }; \
        return make_noise(k, &layer, key, most);                                   \
    }

NOISE(spatial_dropout, spatial_dropout_forward, "SpatialDropout", "rate", 1)
NOISE(alpha_dropout, alpha_dropout_forward, "AlphaDropout", "rate", 1)
NOISE(gaussian_dropout, gaussian_dropout_forward, "GaussianDropout", "rate", 0.999999)
NOISE(gaussian_noise, gaussian_noise_forward, "GaussianNoise", "stddev", 1e30)

aril_module *aril__keras_dropout(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(noise),
                                                 .type = "Dropout",
                                                 .forward = dropout_forward,
                                                 .only_in_training = true } };
    aril_module *m = make_noise(k, &layer, "rate", 1);
    if (!m) return NULL;
    const json *shape = aril__json_get(k->config, "noise_shape");
    noise *d = aril_module_data(m);
    if (aril__json_kind(shape) == '[' && shape->n == k->rank)
        for (int i = 0; i < k->rank; i++)
            if (aril__json_integer(aril__json_at(shape, i), -1) == 1)
                d->same |= 1u << aril__keras_turn_axis(i, k->rank, k->order);
    return m;
}

ARIL__FORWARD(identity_forward)
{
    out[0] = in[0];
}

aril_module *aril__keras_identity(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(keras_base), .type = "Identity", .forward = identity_forward }
    };
    return aril__keras_module(k, &layer);
}
