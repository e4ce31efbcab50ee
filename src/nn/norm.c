/* Normalization layers. */
#include "nn/module.h"

#include "aril/conv.h"
#include "aril/create.h"
#include "aril/neural.h"
#include "aril/view.h"
#include "nn/window.h"

#include <string.h>

static const char *bool_text(bool b)
{
    return b ? "True" : "False";
}

/* ---- batch norm and instance norm ---- */

/* Indices of parameters and buffers; those that a layer omits are NULL. */
enum { WEIGHT, BIAS, MEAN, VAR, BATCHES };

typedef struct channels {
    int64_t channels;
    int spatial;
    double eps, momentum;
    bool cumulative, affine, bias, running;
} channels;

static void channels_reset(aril_module *self)
{
    for (int i = 0; i < self->n_own; i++)
        aril__fill_number(aril__own_at(self, i), i == WEIGHT || i == VAR);
}

static aril_status channels_parameters(aril_module *self)
{
    static const char *const running[] = { "running_mean", "running_var", "num_batches_tracked" };
    const channels *c = aril_module_data(self);
    aril_shape shape = ARIL_SHAPE(c->channels);
    aril_status s = aril__add_optional(self, "weight", shape, !c->affine);
    if (s == ARIL_OK) s = aril__add_optional(self, "bias", shape, !c->bias);
    for (int i = 0; i < 3 && s == ARIL_OK; i++) {
        ARIL_SCOPE;
        if (!c->running)
            s = aril__add_absent(self, running[i]);
        else if (i < 2)
            s = aril__add_buffer(self, running[i], shape, 0);
        else
            s = aril_tensor_status(aril_module_buffer(
                self, running[i], aril_zeros(ARIL_SHAPE(), ARIL_I64, self->device)));
    }
    /* PyTorch before 0.4.1 did not have the number of batches. */
    aril__own_tensor *batches = aril__find_own(self, running[2]);
    if (batches) batches->optional = true;
    if (s == ARIL_OK) channels_reset(self);
    return s;
}

/* Finds the channel axis: [N,C,...], or for instance norm also [C,...]. */
static aril_status channels_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    channels *c = aril_module_data(self);
    (void)n_in;
    aril_status s =
        aril__input_size(in[0], in[0]->ndim > c->spatial + 1 ? -1 - c->spatial : 1, &c->channels);
    if (s == ARIL_OK) s = channels_parameters(self);
    if (s < 0) c->channels = 0;
    return s;
}

static aril_module *make_channels(const aril__layer *layer, channels set)
{
    if (set.channels < 0) {
        aril__fail(ARIL_ERR_ARG, "%s: %lld channels", layer->base.type, (long long)set.channels);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    *(channels *)aril_module_data(m) = set;
    if (!set.channels) return m;
    aril_module_ready(m);
    return aril__layer_made(m, channels_parameters(m));
}

static void channels_describe(const aril_module *self, char *text, size_t size)
{
    const channels *c = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append(&t, "%lld, eps=%g, momentum=", (long long)c->channels,
                      c->eps != 0 ? c->eps : 1e-5);
    if (c->cumulative)
        aril__text_append(&t, "None");
    else
        aril__text_append(&t, "%g", c->momentum != 0 ? c->momentum : 0.1);
    aril__text_append(&t, ", affine=%s, bias=%s, track_running_stats=%s", bool_text(c->affine),
                      bool_text(c->bias), bool_text(c->running));
}

static aril__cold aril_tensor *wrong_rank(const aril_tensor *x, int low, int high)
{
    char text[ARIL__SHAPE_TEXT];
    if (low == high)
        aril__fail(ARIL_ERR_SHAPE, "the input has %d dimensions, %s; expected %d", x->ndim,
                   aril__text(text, x), low);
    else
        aril__fail(ARIL_ERR_SHAPE, "the input has %d dimensions, %s; expected %d or %d", x->ndim,
                   aril__text(text, x), low, high);
    return aril__poison();
}

static aril_tensor *batch_norm_joined(aril_module *self, aril_tensor *x, aril_tensor *residual,
                                      aril_activation activation)
{
    const channels *c = aril_module_data(self);
    int max = c->spatial + 2, min = c->spatial == 1 ? 2 : max;
    if (x->ndim < min || x->ndim > max) return wrong_rank(x, min, max);
    bool training = aril__is_training(self) || !c->running;
    return aril_batch_norm(x, aril__own_at(self, WEIGHT), aril__own_at(self, BIAS),
                           aril__own_at(self, MEAN), aril__own_at(self, VAR),
                           (aril_batch_norm_opts){ .eval = !training,
                                                   .momentum = c->momentum,
                                                   .eps = c->eps,
                                                   .cumulative = c->cumulative,
                                                   .batches = aril__own_at(self, BATCHES),
                                                   .residual = residual,
                                                   .activation = activation });
}

static aril_tensor *batch_norm_fused(aril_module *self, aril_tensor *x, aril_activation activation)
{
    return batch_norm_joined(self, x, NULL, activation);
}

ARIL__FORWARD(batch_norm_forward)
{
    out[0] = batch_norm_fused(self, in[0], ARIL_NO_ACTIVATION);
}

ARIL__FORWARD(instance_norm_forward)
{
    const channels *c = aril_module_data(self);
    int max = c->spatial + 2;
    aril_tensor *x = in[0];
    if (x->ndim < max - 1 || x->ndim > max) {
        out[0] = wrong_rank(x, max - 1, max);
        return;
    }
    bool training = aril__is_training(self) || !c->running, single = x->ndim < max;
    if (single) x = aril_unsqueeze(x, 0);
    x = aril_instance_norm(x, aril__own_at(self, WEIGHT), aril__own_at(self, BIAS),
                           aril__own_at(self, MEAN), aril__own_at(self, VAR),
                           (aril_instance_norm_opts){
                               .eval = !training, .momentum = c->momentum, .eps = c->eps });
    out[0] = single ? aril_squeeze(x, ARIL_AXES(0)) : x;
}

#define BATCH_NORM(n)                                                                        \
    aril_module *aril_nn_batch_norm##n##d(int64_t count)                                     \
    {                                                                                        \
        return aril_nn_batch_norm##n##d_with(count, (aril_nn_batch_norm_opts){ 0 });         \
    }                                                                                        \
    aril_module *aril_nn_batch_norm##n##d_with(int64_t count, aril_nn_batch_norm_opts opts)  \
    {                                                                                        \
        static const aril__layer layer = {                                                   \
            .base = { .type = "BatchNorm" #n "d",                                            \
                      .size = sizeof(channels),                                              \
                      .forward = batch_norm_forward,                                         \
                      .build = channels_build,                                               \
                      .reset = channels_reset,                                               \
                      .describe = channels_describe },                                       \
            .fused = batch_norm_fused,                                                       \
            .joined = batch_norm_joined,                                                     \
        };                                                                                   \
        return make_channels(&layer,                                                         \
                             (channels){ count, n, opts.eps, opts.momentum, opts.cumulative, \
                                         !opts.no_affine, !opts.no_affine && !opts.no_bias,  \
                                         !opts.no_running });                                \
    }

BATCH_NORM(1)
BATCH_NORM(2)
BATCH_NORM(3)

#define INSTANCE_NORM(n)                                                                          \
    aril_module *aril_nn_instance_norm##n##d(int64_t count)                                       \
    {                                                                                             \
        return aril_nn_instance_norm##n##d_with(count, (aril_nn_instance_norm_opts){ 0 });        \
    }                                                                                             \
    aril_module *aril_nn_instance_norm##n##d_with(int64_t count, aril_nn_instance_norm_opts opts) \
    {                                                                                             \
        static const aril__layer layer = {                                                        \
            .base = { .type = "InstanceNorm" #n "d",                                              \
                      .size = sizeof(channels),                                                   \
                      .forward = instance_norm_forward,                                           \
                      .build = channels_build,                                                    \
                      .reset = channels_reset,                                                    \
                      .describe = channels_describe },                                            \
        };                                                                                        \
        return make_channels(&layer,                                                              \
                             (channels){ count, n, opts.eps, opts.momentum, false, opts.affine,   \
                                         opts.affine && !opts.no_bias, opts.running });           \
    }

INSTANCE_NORM(1)
INSTANCE_NORM(2)
INSTANCE_NORM(3)

/* ---- layer norm and RMS norm ---- */

typedef struct last {
    aril_shape shape; /* empty: inferred from the first input */
    double eps;
    bool rms, affine, bias;
} last;

static void ones_and_zeros(aril_module *self)
{
    aril__fill_number(aril__own_at(self, WEIGHT), 1);
    if (self->n_own > BIAS) aril__fill_number(aril__own_at(self, BIAS), 0);
}

static aril_status last_parameters(aril_module *self)
{
    const last *l = aril_module_data(self);
    aril_status s = aril__add_optional(self, "weight", l->shape, !l->affine);
    if (s == ARIL_OK && !l->rms) s = aril__add_optional(self, "bias", l->shape, !l->bias);
    if (s == ARIL_OK) ones_and_zeros(self);
    return s;
}

static aril_status last_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    last *l = aril_module_data(self);
    aril_shape asked = l->shape;
    aril_status s = ARIL_OK;
    (void)n_in;
    for (int i = 0; i < l->shape.ndim && s == ARIL_OK; i++)
        if (!l->shape.dim[i]) s = aril__input_size(in[0], i - l->shape.ndim, &l->shape.dim[i]);
    if (s == ARIL_OK) s = last_parameters(self);
    if (s < 0) l->shape = asked;
    return s;
}

ARIL__FORWARD(last_forward)
{
    const last *l = aril_module_data(self);
    aril_tensor *w = aril__own_at(self, WEIGHT);
    aril_norm_opts opts = { l->eps };
    out[0] = l->rms ? aril_rms_norm(in[0], w, l->shape, opts)
                    : aril_layer_norm(in[0], w, aril__own_at(self, BIAS), l->shape, opts);
}

static void last_describe(const aril_module *self, char *text, size_t size)
{
    const last *l = aril_module_data(self);
    aril__text_out t = { text, size };
    aril__text_append_sizes(&t, "", l->shape.ndim, l->shape.dim);
    if (l->eps != 0)
        aril__text_append(&t, ", eps=%g", l->eps);
    else
        aril__text_append(&t, ", eps=%s", l->rms ? "None" : "1e-05");
    aril__text_append(&t, ", elementwise_affine=%s", bool_text(l->affine));
    if (!l->rms) aril__text_append(&t, ", bias=%s", bool_text(l->bias));
}

static aril_module *make_last(const aril__layer *layer, last set)
{
    bool waits = false, wrong = set.shape.ndim < 1 || set.shape.ndim > ARIL_MAX_DIMS;
    for (int i = 0; i < set.shape.ndim && !wrong; i++) {
        waits |= set.shape.dim[i] == 0;
        wrong = set.shape.dim[i] < 0;
    }
    if (wrong) {
        aril__fail(ARIL_ERR_ARG, "%s: expected the sizes of the last 1 to %d dimensions",
                   layer->base.type, ARIL_MAX_DIMS);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    *(last *)aril_module_data(m) = set;
    if (waits) return m;
    aril_module_ready(m);
    return aril__layer_made(m, last_parameters(m));
}

#define LAST_NORM(name, shown, is_rms)                                             \
    aril_module *aril_nn_##name(int64_t size)                                      \
    {                                                                              \
        return aril_nn_##name##_with(ARIL_SHAPE(size), (aril_nn_norm_opts){ 0 });  \
    }                                                                              \
    aril_module *aril_nn_##name##_with(aril_shape shape, aril_nn_norm_opts opts)   \
    {                                                                              \
        static const aril__layer layer = {                                         \
            .base = { .type = shown,                                               \
                      .size = sizeof(last),                                        \
                      .forward = last_forward,                                     \
                      .build = last_build,                                         \
                      .reset = ones_and_zeros,                                     \
                      .describe = last_describe },                                 \
        };                                                                         \
        return make_last(&layer, (last){ shape, opts.eps, is_rms, !opts.no_affine, \
                                         !opts.no_affine && !opts.no_bias });      \
    }

LAST_NORM(layer_norm, "LayerNorm", false)
LAST_NORM(rms_norm, "RMSNorm", true)

/* ---- group norm ---- */

typedef struct group {
    int64_t groups, channels;
    double eps;
    bool affine, bias;
} group;

static aril_status group_parameters(aril_module *self)
{
    const group *g = aril_module_data(self);
    if (g->channels % g->groups)
        return aril__fail(ARIL_ERR_ARG,
                          "GroupNorm: %lld channels are not a multiple of %lld groups",
                          (long long)g->channels, (long long)g->groups);
    aril_shape shape = ARIL_SHAPE(g->channels);
    aril_status s = aril__add_optional(self, "weight", shape, !g->affine);
    if (s == ARIL_OK) s = aril__add_optional(self, "bias", shape, !g->bias);
    if (s == ARIL_OK) ones_and_zeros(self);
    return s;
}

static aril_status group_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    group *g = aril_module_data(self);
    (void)n_in;
    aril_status s = aril__input_size(in[0], 1, &g->channels);
    if (s == ARIL_OK) s = group_parameters(self);
    if (s < 0) g->channels = 0;
    return s;
}

ARIL__FORWARD(group_forward)
{
    const group *g = aril_module_data(self);
    out[0] = aril_group_norm(in[0], aril__own_at(self, WEIGHT), aril__own_at(self, BIAS), g->groups,
                             (aril_norm_opts){ g->eps });
}

static void group_describe(const aril_module *self, char *text, size_t size)
{
    const group *g = aril_module_data(self);
    snprintf(text, size, "%lld, %lld, eps=%g, affine=%s, bias=%s", (long long)g->groups,
             (long long)g->channels, g->eps != 0 ? g->eps : 1e-5, bool_text(g->affine),
             bool_text(g->bias));
}

aril_module *aril_nn_group_norm(int64_t groups, int64_t count)
{
    return aril_nn_group_norm_with(groups, count, (aril_nn_norm_opts){ 0 });
}

aril_module *aril_nn_group_norm_with(int64_t groups, int64_t count, aril_nn_norm_opts opts)
{
    static const aril__layer layer = {
        .base = { .type = "GroupNorm",
                  .size = sizeof(group),
                  .forward = group_forward,
                  .build = group_build,
                  .reset = ones_and_zeros,
                  .describe = group_describe },
    };
    if (groups < 1 || count < 0) {
        aril__fail(ARIL_ERR_ARG, "GroupNorm: %lld groups, %lld channels", (long long)groups,
                   (long long)count);
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (!m) return NULL;
    *(group *)aril_module_data(m) =
        (group){ groups, count, opts.eps, !opts.no_affine, !opts.no_affine && !opts.no_bias };
    if (!count) return m;
    aril_module_ready(m);
    return aril__layer_made(m, group_parameters(m));
}

/* ---- local response norm: across channels ---- */

typedef struct response {
    int64_t size;
    aril_lrn_opts opts;
} response;

ARIL__FORWARD(response_forward)
{
    const response *r = aril_module_data(self);
    out[0] = aril_local_response_norm(in[0], r->size, r->opts);
}

static void response_describe(const aril_module *self, char *text, size_t size)
{
    const response *r = aril_module_data(self);
    const aril_lrn_opts *o = &r->opts;
    snprintf(text, size, "%lld, alpha=%g, beta=%g, k=%g", (long long)r->size,
             o->alpha != 0 ? o->alpha : 1e-4, o->beta != 0 ? o->beta : 0.75,
             o->k == ARIL_ZERO ? 0
             : o->k != 0       ? o->k
                               : 1.0);
}

aril_module *aril_nn_local_response_norm(int64_t size)
{
    return aril_nn_local_response_norm_with(size, (aril_lrn_opts){ 0 });
}

aril_module *aril_nn_local_response_norm_with(int64_t size, aril_lrn_opts opts)
{
    static const aril__layer layer = {
        .base = { .type = "LocalResponseNorm",
                  .size = sizeof(response),
                  .forward = response_forward,
                  .describe = response_describe },
    };
    if (size < 1) {
        aril__fail(ARIL_ERR_ARG, "LocalResponseNorm: expected a positive size, got %lld",
                   (long long)size);
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (m) *(response *)aril_module_data(m) = (response){ size, opts };
    return m;
}
