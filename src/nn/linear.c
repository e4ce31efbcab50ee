/* Linear layers. */
#include "nn/module.h"

#include "aril/linalg.h"
#include "aril/math.h"

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

ARIL__FORWARD(linear_forward)
{
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
    .has_kernel = true,
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

/* ---- bilinear ---- */

typedef struct bilinear {
    int64_t in1, in2, out;
    bool no_bias;
} bilinear;

static void bilinear_reset(aril_module *self)
{
    const bilinear *b = aril_module_data(self);
    aril__fill_fan(aril__own_at(self, WEIGHT), b->in1);
    aril__fill_fan(aril__own_at(self, BIAS), b->in1);
}

static aril_status bilinear_parameters(aril_module *self)
{
    const bilinear *b = aril_module_data(self);
    aril_status s = aril__add_parameter(self, "weight", ARIL_SHAPE(b->out, b->in1, b->in2));
    if (s == ARIL_OK) s = aril__add_optional(self, "bias", ARIL_SHAPE(b->out), b->no_bias);
    if (s == ARIL_OK) bilinear_reset(self);
    return s;
}

static aril_status bilinear_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    bilinear *b = aril_module_data(self);
    bilinear asked = *b;
    if (n_in < 2 || !in[1]) return aril__fail(ARIL_ERR_ARG, "expected 2 inputs, got 1");
    aril_status s = b->in1 ? ARIL_OK : aril__input_size(in[0], -1, &b->in1);
    if (s == ARIL_OK && !b->in2) s = aril__input_size(in[1], -1, &b->in2);
    if (s == ARIL_OK) s = bilinear_parameters(self);
    if (s < 0) *b = asked;
    return s;
}

ARIL__FORWARD(bilinear_forward)
{
    if (n_in < 2 || !in[1]) {
        aril__fail(ARIL_ERR_ARG, "expected 2 inputs, got 1");
        out[0] = aril__poison();
        return;
    }
    aril_tensor *b = aril__own_at(self, BIAS);
    aril_tensor *y =
        aril_einsum("...i,oij,...j->...o", ARIL_LIST(in[0], aril__own_at(self, WEIGHT), in[1]));
    out[0] = b ? aril_add(y, b) : y;
}

static void bilinear_describe(const aril_module *self, char *text, size_t size)
{
    const bilinear *b = aril_module_data(self);
    snprintf(text, size, "in1_features=%lld, in2_features=%lld, out_features=%lld, bias=%s",
             (long long)b->in1, (long long)b->in2, (long long)b->out,
             b->no_bias ? "False" : "True");
}

aril_module *aril_nn_bilinear(int64_t in1, int64_t in2, int64_t out)
{
    return aril_nn_bilinear_with(in1, in2, out, (aril_nn_linear_opts){ 0 });
}

aril_module *aril_nn_bilinear_with(int64_t in1, int64_t in2, int64_t out, aril_nn_linear_opts opts)
{
    static const aril__layer layer = {
        .base = { .type = "Bilinear",
                  .size = sizeof(bilinear),
                  .forward = bilinear_forward,
                  .build = bilinear_build,
                  .reset = bilinear_reset,
                  .describe = bilinear_describe,
                  .inputs = 2 },
    };
    if (in1 < 0 || in2 < 0 || out < 1) {
        aril__fail(ARIL_ERR_ARG, "Bilinear: %lld and %lld inputs, %lld outputs", (long long)in1,
                   (long long)in2, (long long)out);
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (!m) return NULL;
    *(bilinear *)aril_module_data(m) = (bilinear){ in1, in2, out, opts.no_bias };
    if (!in1 || !in2) return m;
    aril_module_ready(m);
    return aril__layer_made(m, bilinear_parameters(m));
}
