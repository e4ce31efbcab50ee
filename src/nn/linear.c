/* Linear layers. */
#include "nn/module.h"

#include "aril/ops.h"

typedef struct linear {
    int64_t in, out;
    bool no_bias;
} linear;

enum { WEIGHT, BIAS };

static void linear_reset(aril_module *self)
{
    const linear *l = aril_module_data(self);
    aril__fill_fan(aril__own_at(self, WEIGHT), l->in);
    aril__fill_fan(aril__own_at(self, BIAS), l->in);
}

static aril_status linear_parameters(aril_module *self)
{
    const linear *l = aril_module_data(self);
    aril_status s = aril__add_parameter(self, "weight", ARIL_SHAPE(l->out, l->in));
    if (s == ARIL_OK) s = aril__add_optional(self, "bias", ARIL_SHAPE(l->out), l->no_bias);
    if (s == ARIL_OK) linear_reset(self);
    return s;
}

static aril_status linear_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    linear *l = aril_module_data(self);
    (void)n_in;
    aril_status s = aril__input_size(in[0], -1, &l->in);
    if (s == ARIL_OK) s = linear_parameters(self);
    if (s < 0) l->in = 0;
    return s;
}

static aril_tensor *linear_fused(aril_module *self, aril_tensor *x, aril_activation activation)
{
    return aril_linear_with(x, aril__own_at(self, WEIGHT), aril__own_at(self, BIAS),
                            (aril_linear_opts){ activation });
}

static void linear_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                           aril_tensor **out)
{
    (void)n_in;
    (void)n_out;
    out[0] = aril_linear(in[0], aril__own_at(self, WEIGHT), aril__own_at(self, BIAS));
}

static void linear_describe(const aril_module *self, char *text, size_t size)
{
    const linear *l = aril_module_data(self);
    snprintf(text, size, "in_features=%lld, out_features=%lld, bias=%s", (long long)l->in,
             (long long)l->out, l->no_bias ? "False" : "True");
}

static const aril__layer linear_layer = {
    .base = { .type = "Linear",
              .size = sizeof(linear),
              .forward = linear_forward,
              .build = linear_build,
              .reset = linear_reset,
              .describe = linear_describe },
    .fused = linear_fused,
};

aril_module *aril_nn_linear(int64_t in, int64_t out)
{
    return aril_nn_linear_with(in, out, (aril_nn_linear_opts){ 0 });
}

aril_module *aril_nn_linear_with(int64_t in, int64_t out, aril_nn_linear_opts opts)
{
    if (in < 0 || out < 1) {
        aril__fail(ARIL_ERR_ARG, "Linear: %lld inputs and %lld outputs", (long long)in,
                   (long long)out);
        return NULL;
    }
    aril_module *m = aril__layer_make(&linear_layer);
    if (!m) return NULL;
    *(linear *)aril_module_data(m) = (linear){ in, out, opts.no_bias };
    if (!in) return m;
    aril_module_ready(m);
    return aril__layer_made(m, linear_parameters(m));
}
