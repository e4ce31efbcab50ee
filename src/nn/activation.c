/* Activation layers: one definition per kind, one row per activation. */
#include "nn/module.h"

#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "nn/window.h"

/* ---- elementwise, without options ---- */

#define PLAIN(name, shown, text, fuses)                                                        \
    ARIL__FORWARD(name##_forward)                                                              \
    {                                                                                          \
        out[0] = aril_##name(in[0]);                                                           \
    }                                                                                          \
    static void name##_describe(const aril_module *self, char *to, size_t size)                \
    {                                                                                          \
        (void)self;                                                                            \
        snprintf(to, size, "%s", text);                                                        \
    }                                                                                          \
    aril_module *aril_nn_##name(void)                                                          \
    {                                                                                          \
        static const aril__layer layer = {                                                     \
            .base = { .type = shown, .forward = name##_forward, .describe = name##_describe }, \
            .activation = fuses,                                                               \
        };                                                                                     \
        return aril__layer_make(&layer);                                                       \
    }

PLAIN(relu, "ReLU", "", ARIL_RELU)
PLAIN(relu6, "ReLU6", "", ARIL_RELU6)
PLAIN(sigmoid, "Sigmoid", "", ARIL_SIGMOID)
PLAIN(tanh, "Tanh", "", ARIL_TANH)
PLAIN(logsigmoid, "LogSigmoid", "", ARIL_NO_ACTIVATION)
PLAIN(selu, "SELU", "", ARIL_NO_ACTIVATION)
PLAIN(gelu, "GELU", "approximate='none'", ARIL_NO_ACTIVATION)
PLAIN(gelu_tanh, "GELU", "approximate='tanh'", ARIL_NO_ACTIVATION)
PLAIN(silu, "SiLU", "", ARIL_NO_ACTIVATION)
PLAIN(mish, "Mish", "", ARIL_NO_ACTIVATION)
PLAIN(softsign, "Softsign", "", ARIL_NO_ACTIVATION)
PLAIN(hardsigmoid, "Hardsigmoid", "", ARIL_NO_ACTIVATION)
PLAIN(hardswish, "Hardswish", "", ARIL_NO_ACTIVATION)
PLAIN(tanhshrink, "Tanhshrink", "", ARIL_NO_ACTIVATION)

/* ---- with one or two scalar options ---- */

typedef struct numbers {
    double at[2];
} numbers;

static aril_module *make(const aril__layer *layer, double first, double second)
{
    aril_module *m = aril__layer_make(layer);
    if (m) *(numbers *)aril_module_data(m) = (numbers){ { first, second } };
    return m;
}

#define LAYER(name, shown, fuses)                \
    {                                            \
        .base = { .type = shown,                 \
                  .size = sizeof(numbers),       \
                  .forward = name##_forward,     \
                  .describe = name##_describe }, \
        .activation = fuses                      \
    }

#define DESCRIBED(name, ...)                                                    \
    static void name##_describe(const aril_module *self, char *to, size_t size) \
    {                                                                           \
        const numbers *n = aril_module_data(self);                              \
        snprintf(to, size, __VA_ARGS__);                                        \
    }

#define ONE(name, shown, text, standard)                                               \
    ARIL__FORWARD(name##_forward)                                                      \
    {                                                                                  \
        out[0] = aril_##name(in[0], ((const numbers *)aril_module_data(self))->at[0]); \
    }                                                                                  \
    DESCRIBED(name, text, n->at[0])                                                    \
    aril_module *aril_nn_##name##_with(double first)                                   \
    {                                                                                  \
        static const aril__layer layer = LAYER(name, shown, ARIL_NO_ACTIVATION);       \
        return make(&layer, first, 0);                                                 \
    }                                                                                  \
    aril_module *aril_nn_##name(void)                                                  \
    {                                                                                  \
        return aril_nn_##name##_with(standard);                                        \
    }

ONE(elu, "ELU", "alpha=%.12g", 1.0)
ONE(celu, "CELU", "alpha=%.12g", 1.0)
ONE(softshrink, "Softshrink", "%.12g", 0.5)
ONE(hardshrink, "Hardshrink", "%.12g", 0.5)

#define TWO(name, shown, text)                           \
    ARIL__FORWARD(name##_forward)                        \
    {                                                    \
        const numbers *n = aril_module_data(self);       \
        out[0] = aril_##name(in[0], n->at[0], n->at[1]); \
    }                                                    \
    DESCRIBED(name, text, n->at[0], n->at[1])            \
    static const aril__layer name##_layer = LAYER(name, shown, ARIL_NO_ACTIVATION);

TWO(softplus, "Softplus", "beta=%.12g, threshold=%.12g")
TWO(hardtanh, "Hardtanh", "min_val=%.12g, max_val=%.12g")
TWO(threshold, "Threshold", "threshold=%.12g, value=%.12g")

aril_module *aril_nn_softplus(void)
{
    return make(&softplus_layer, 1, 20);
}

aril_module *aril_nn_softplus_with(double beta, double threshold)
{
    return make(&softplus_layer, beta, threshold);
}

aril_module *aril_nn_hardtanh(void)
{
    return make(&hardtanh_layer, -1, 1);
}

aril_module *aril_nn_hardtanh_with(double low, double high)
{
    return make(&hardtanh_layer, low, high);
}

aril_module *aril_nn_threshold(double threshold, double value)
{
    return make(&threshold_layer, threshold, value);
}

/* Only the slope that other ops support can be fused into them. */
ARIL__FORWARD(leaky_relu_forward)
{
    out[0] = aril_leaky_relu(in[0], ((const numbers *)aril_module_data(self))->at[0]);
}

DESCRIBED(leaky_relu, "negative_slope=%.12g", n->at[0])

aril_module *aril_nn_leaky_relu(void)
{
    static const aril__layer layer = LAYER(leaky_relu, "LeakyReLU", ARIL_LEAKY_RELU);
    return make(&layer, 0.01, 0);
}

aril_module *aril_nn_leaky_relu_with(double slope)
{
    static const aril__layer layer = LAYER(leaky_relu, "LeakyReLU", ARIL_NO_ACTIVATION);
    return make(&layer, slope, 0);
}

ARIL__FORWARD(rrelu_forward)
{
    const numbers *n = aril_module_data(self);
    if (!aril__is_training(self)) {
        out[0] = aril_leaky_relu(in[0], (n->at[0] + n->at[1]) / 2);
        return;
    }
    aril_tensor *slope;
    {
        ARIL_NO_GRAD;
        slope = aril_uniform_(aril_empty_like(in[0]), n->at[0], n->at[1]);
    }
    out[0] = aril_prelu(in[0], slope);
}

DESCRIBED(rrelu, "lower=%.12g, upper=%.12g", n->at[0], n->at[1])

aril_module *aril_nn_rrelu(void)
{
    return aril_nn_rrelu_with(1.0 / 8, 1.0 / 3);
}

aril_module *aril_nn_rrelu_with(double lower, double upper)
{
    static const aril__layer layer = LAYER(rrelu, "RReLU", ARIL_NO_ACTIVATION);
    return make(&layer, lower, upper);
}

/* ---- learned slope ---- */

typedef struct prelu {
    int64_t n;
    double first;
} prelu;

static void prelu_reset(aril_module *self)
{
    const prelu *p = aril_module_data(self);
    aril__fill_number(aril__own_at(self, 0), p->first);
}

ARIL__FORWARD(prelu_forward)
{
    const prelu *p = aril_module_data(self);
    aril_tensor *w = aril__own_at(self, 0);
    int nd = in[0]->ndim;
    if (p->n > 1 && nd > 2) { /* [C] -> [C,1,...] */
        aril_shape shape = { .ndim = nd - 1, .dim = { p->n } };
        for (int i = 1; i < nd - 1; i++) shape.dim[i] = 1;
        w = aril_reshape(w, shape);
    }
    out[0] = aril_prelu(in[0], w);
}

static void prelu_describe(const aril_module *self, char *text, size_t size)
{
    snprintf(text, size, "num_parameters=%lld",
             (long long)((const prelu *)aril_module_data(self))->n);
}

aril_module *aril_nn_prelu(void)
{
    return aril_nn_prelu_with(1, 0.25);
}

aril_module *aril_nn_prelu_with(int64_t n, double first)
{
    static const aril__layer layer = {
        .base = { .type = "PReLU",
                  .size = sizeof(prelu),
                  .forward = prelu_forward,
                  .reset = prelu_reset,
                  .describe = prelu_describe },
    };
    if (n < 1) {
        aril__fail(ARIL_ERR_ARG, "PReLU: %lld slopes", (long long)n);
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (!m) return NULL;
    *(prelu *)aril_module_data(m) = (prelu){ n, first };
    aril_status s = aril__add_parameter(m, "weight", ARIL_SHAPE(n));
    if (s == ARIL_OK) prelu_reset(m);
    return aril__layer_made(m, s);
}

/* ---- along an axis ---- */

typedef struct along {
    int axis;
} along;

static void along_describe(const aril_module *self, char *text, size_t size)
{
    snprintf(text, size, "dim=%d", ((const along *)aril_module_data(self))->axis);
}

#define ALONG(name, shown, call)                                \
    ARIL__FORWARD(name##_forward)                               \
    {                                                           \
        const along *a = aril_module_data(self);                \
        out[0] = call(in[0], a->axis);                          \
    }                                                           \
    aril_module *aril_nn_##name(int axis)                       \
    {                                                           \
        static const aril__layer layer = {                      \
            .base = { .type = shown,                            \
                      .size = sizeof(along),                    \
                      .forward = name##_forward,                \
                      .describe = along_describe },             \
        };                                                      \
        aril_module *m = aril__layer_make(&layer);              \
        if (m) *(along *)aril_module_data(m) = (along){ axis }; \
        return m;                                               \
    }

static aril_tensor *glu(aril_tensor *x, int axis)
{
    int at = aril__axis("glu", axis, x->ndim);
    if (at < 0) return aril__poison();
    if (x->ndim == 0 || x->dim[at] % 2) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "glu: axis %d of %s has an odd size; expected an even one", axis,
                   aril__text(text, x));
        return aril__poison();
    }
    int64_t half = x->dim[at] / 2;
    return aril_mul(aril_narrow(x, at, 0, half), aril_sigmoid(aril_narrow(x, at, half, half)));
}

ALONG(softmax, "Softmax", aril_softmax)
ALONG(log_softmax, "LogSoftmax", aril_log_softmax)
ALONG(softmin, "Softmin", aril_softmin)
ALONG(glu, "GLU", glu)

ARIL__FORWARD(softmax2d_forward)
{
    out[0] = aril_softmax(in[0], -3); /* channel axis of [N,C,H,W] or [C,H,W] */
}

aril_module *aril_nn_softmax2d(void)
{
    static const aril__layer layer = { .base = { .type = "Softmax2d",
                                                 .forward = softmax2d_forward } };
    return aril__layer_make(&layer);
}
