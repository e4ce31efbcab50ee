/* Activations: as an option of a layer, as layers, and PReLU. */
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

typedef const keras_activation *act;

/* ---- functions ---- */

static aril_tensor *f_relu(act a, aril_tensor *x)
{
    (void)a;
    return aril_relu(x);
}

/* max_value b (0: none), negative slope a, threshold c: slope * (x - c) below c. */
static aril_tensor *f_relu_with(act a, aril_tensor *x)
{
    aril_tensor *y;
    if (a->c == 0)
        y = a->a == 0 ? aril_relu(x) : aril_leaky_relu(x, a->a);
    else if (a->a == 0)
        y = aril_threshold(x, a->c, 0);
    else
        y = aril_where(aril_ge_scalar(x, a->c), x, aril_mul_scalar(aril_sub_scalar(x, a->c), a->a));
    return a->b > 0 ? aril_clamp_max(y, a->b) : y;
}

static aril_tensor *f_leaky(act a, aril_tensor *x)
{
    return aril_leaky_relu(x, a->a);
}

static aril_tensor *f_relu6(act a, aril_tensor *x)
{
    (void)a;
    return aril_relu6(x);
}

static aril_tensor *f_elu(act a, aril_tensor *x)
{
    return aril_elu(x, a->a);
}

static aril_tensor *f_selu(act a, aril_tensor *x)
{
    (void)a;
    return aril_selu(x);
}

static aril_tensor *f_softplus(act a, aril_tensor *x)
{
    (void)a;
    return aril_softplus(x, 1, 20);
}

static aril_tensor *f_softsign(act a, aril_tensor *x)
{
    (void)a;
    return aril_softsign(x);
}

static aril_tensor *f_silu(act a, aril_tensor *x)
{
    (void)a;
    return aril_silu(x);
}

static aril_tensor *f_gelu(act a, aril_tensor *x)
{
    return a->a != 0 ? aril_gelu_tanh(x) : aril_gelu(x);
}

static aril_tensor *f_tanh(act a, aril_tensor *x)
{
    (void)a;
    return aril_tanh(x);
}

static aril_tensor *f_sigmoid(act a, aril_tensor *x)
{
    (void)a;
    return aril_sigmoid(x);
}

static aril_tensor *f_exponential(act a, aril_tensor *x)
{
    (void)a;
    return aril_exp(x);
}

/* Keras 2: 0.2 x + 0.5, Keras 3: x / 6 + 0.5, from 0 to 1. */
static aril_tensor *f_hard_sigmoid(act a, aril_tensor *x)
{
    if (!a->old) return aril_hardsigmoid(x);
    return aril_clamp(aril_add_scalar(aril_mul_scalar(x, 0.2), 0.5), 0.0, 1.0);
}

static aril_tensor *f_hard_silu(act a, aril_tensor *x)
{
    (void)a;
    return aril_hardswish(x);
}

static aril_tensor *f_mish(act a, aril_tensor *x)
{
    (void)a;
    return aril_mish(x);
}

static aril_tensor *f_log_sigmoid(act a, aril_tensor *x)
{
    (void)a;
    return aril_logsigmoid(x);
}

static aril_tensor *f_celu(act a, aril_tensor *x)
{
    return aril_celu(x, a->a);
}

static aril_tensor *f_tanh_shrink(act a, aril_tensor *x)
{
    (void)a;
    return aril_tanhshrink(x);
}

static aril_tensor *f_hard_tanh(act a, aril_tensor *x)
{
    (void)a;
    return aril_hardtanh(x, -1, 1);
}

static aril_tensor *f_soft_shrink(act a, aril_tensor *x)
{
    return aril_softshrink(x, a->a);
}

static aril_tensor *f_hard_shrink(act a, aril_tensor *x)
{
    return aril_hardshrink(x, a->a);
}

/* (x + sqrt(x^2 + b)) / 2 */
static aril_tensor *f_squareplus(act a, aril_tensor *x)
{
    aril_tensor *root = aril_sqrt(aril_add_scalar(aril_square(x), a->a));
    return aril_mul_scalar(aril_add(x, root), 0.5);
}

/* 0 below -1, x above 1, (x + 1)^2 / 4 between */
static aril_tensor *f_sparse_plus(act a, aril_tensor *x)
{
    (void)a;
    aril_tensor *inside = aril_clamp(x, -1.0, 1.0);
    aril_tensor *curve = aril_mul_scalar(aril_square(aril_add_scalar(inside, 1.0)), 0.25);
    return aril_add(curve, aril_relu(aril_sub_scalar(x, 1.0)));
}

static aril_tensor *f_sparse_sigmoid(act a, aril_tensor *x)
{
    (void)a;
    return aril_mul_scalar(aril_add_scalar(aril_clamp(x, -1.0, 1.0), 1.0), 0.5);
}

static aril_tensor *f_softmax(act a, aril_tensor *x)
{
    if (a->axes.n == 0) return aril_softmax(x, a->axis);
    aril_tensor *y = aril_exp(aril_sub(x, aril_amax(x, a->axes)));
    return aril_div(y, aril_sum(y, a->axes));
}

static aril_tensor *f_log_softmax(act a, aril_tensor *x)
{
    return aril_log_softmax(x, a->axis);
}

/* x above a, else b */
static aril_tensor *f_threshold(act a, aril_tensor *x)
{
    return aril_threshold(x, a->a, a->b);
}

static aril_tensor *f_glu(act a, aril_tensor *x)
{
    return aril_glu(x, a->axis);
}

static const struct function {
    const char *name;
    aril_tensor *(*fn)(act a, aril_tensor *x);
    double a;
    aril_activation fused;
} functions[] = {
    { "relu", f_relu, 0, ARIL_RELU },
    { "relu6", f_relu6, 0, ARIL_RELU6 },
    { "leaky_relu", f_leaky, 0.2, ARIL_NO_ACTIVATION },
    { "elu", f_elu, 1, ARIL_NO_ACTIVATION },
    { "selu", f_selu, 0, ARIL_NO_ACTIVATION },
    { "celu", f_celu, 1, ARIL_NO_ACTIVATION },
    { "softplus", f_softplus, 0, ARIL_NO_ACTIVATION },
    { "softsign", f_softsign, 0, ARIL_NO_ACTIVATION },
    { "silu", f_silu, 0, ARIL_NO_ACTIVATION },
    { "swish", f_silu, 0, ARIL_NO_ACTIVATION },
    { "gelu", f_gelu, 0, ARIL_NO_ACTIVATION },
    { "tanh", f_tanh, 0, ARIL_TANH },
    { "sigmoid", f_sigmoid, 0, ARIL_SIGMOID },
    { "exponential", f_exponential, 0, ARIL_NO_ACTIVATION },
    { "exp", f_exponential, 0, ARIL_NO_ACTIVATION },
    { "hard_sigmoid", f_hard_sigmoid, 0, ARIL_NO_ACTIVATION },
    { "hard_silu", f_hard_silu, 0, ARIL_NO_ACTIVATION },
    { "hard_swish", f_hard_silu, 0, ARIL_NO_ACTIVATION },
    { "mish", f_mish, 0, ARIL_NO_ACTIVATION },
    { "log_sigmoid", f_log_sigmoid, 0, ARIL_NO_ACTIVATION },
    { "tanh_shrink", f_tanh_shrink, 0, ARIL_NO_ACTIVATION },
    { "hard_tanh", f_hard_tanh, 0, ARIL_NO_ACTIVATION },
    { "soft_shrink", f_soft_shrink, 0.5, ARIL_NO_ACTIVATION },
    { "hard_shrink", f_hard_shrink, 0.5, ARIL_NO_ACTIVATION },
    { "squareplus", f_squareplus, 4, ARIL_NO_ACTIVATION },
    { "sparse_plus", f_sparse_plus, 0, ARIL_NO_ACTIVATION },
    { "sparse_sigmoid", f_sparse_sigmoid, 0, ARIL_NO_ACTIVATION },
    { "softmax", f_softmax, 0, ARIL_NO_ACTIVATION },
    { "log_softmax", f_log_softmax, 0, ARIL_NO_ACTIVATION },
    { "glu", f_glu, 0, ARIL_NO_ACTIVATION },
};

/* ---- as an option ---- */

/* The axis of softmax is the last one of Keras' order. */
static keras_activation from_function(const keras_make *k, const struct function *f)
{
    return (keras_activation){ .fn = f->fn,
                               .a = f->a,
                               .axis = k->order == KERAS_FIRST ? 1 : -1,
                               .old = k->loader->version < 3,
                               .fused = f->fused };
}

/* The axis of a layer Softmax, the last by default, or a list of them. */
static aril_status read_softmax_axes(const keras_make *k, const json *axis, keras_activation *out)
{
    bool list = aril__json_kind(axis) == '[';
    if (!list || axis->n == 1) {
        if (list) axis = axis->first;
        return aril__keras_axis(k, aril__json_integer(axis, axis ? INT64_MIN : -1), &out->axis);
    }
    if (axis->n == 0 || axis->n > k->rank)
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "it has %d axes for %d dimensions", axis->n,
                                k->rank);
    out->axes = (aril_axes){ .n = axis->n, .keepdim = true };
    for (int i = 0; i < axis->n; i++) {
        int64_t at = aril__json_integer(aril__json_at(axis, i), INT64_MIN);
        aril_status s = aril__keras_axis(k, at, &out->axes.axis[i]);
        if (s != ARIL_OK) return s;
        for (int j = 0; j < i; j++)
            if (out->axes.axis[j] == out->axes.axis[i])
                return aril__keras_fail(k, ARIL_ERR_FORMAT, "it has axis %lld twice",
                                        (long long)at);
    }
    return ARIL_OK;
}

/* The layers ReLU, LeakyReLU, ELU, Softmax: by class and configuration. False: none of them. */
static bool from_layer(const keras_make *k, const char *class, const json *config,
                       keras_activation *out)
{
    const json *slope = aril__json_get(config, "negative_slope");
    if (!slope) slope = aril__json_get(config, "alpha");
    *out = (keras_activation){ .axis = -1 };
    if (strcmp(class, "ReLU") == 0) {
        out->fn = f_relu_with;
        out->a = aril__json_real(slope, 0);
        out->b = aril__json_real(aril__json_get(config, "max_value"), 0);
        out->c = aril__json_real(aril__json_get(config, "threshold"), 0);
        if (out->a == 0 && out->c == 0 && (out->b == 0 || out->b == 6))
            out->fused = out->b == 0 ? ARIL_RELU : ARIL_RELU6;
    } else if (strcmp(class, "ThresholdedReLU") == 0) {
        out->fn = f_relu_with;
        out->c = aril__json_real(aril__json_get(config, "theta"), 1);
    } else if (strcmp(class, "LeakyReLU") == 0) {
        out->fn = f_leaky;
        out->a = aril__json_real(slope, 0.3);
    } else if (strcmp(class, "ELU") == 0) {
        out->fn = f_elu;
        out->a = aril__json_real(aril__json_get(config, "alpha"), 1);
    } else if (strcmp(class, "Softmax") == 0) {
        out->fn = f_softmax;
        return read_softmax_axes(k, aril__json_get(config, "axis"), out) == ARIL_OK;
    }
    return out->fn != NULL;
}

aril_status aril__keras_activation(const keras_make *k, const json *config, keras_activation *out)
{
    *out = (keras_activation){ 0 };
    const char *name = aril__json_text(config, NULL),
               *class = aril__json_text(aril__json_get(config, "class_name"), NULL);
    const json *inner = aril__json_get(config, "config");
    if (class && from_layer(k, class, inner, out)) return ARIL_OK;
    if (class && aril__json_kind(inner) == '"') name = inner->text; /* a function */
    if (!config || config->kind == 'n') return ARIL_OK;
    if (name && strcmp(name, "linear") == 0) return ARIL_OK;
    for (size_t i = 0; name && i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) {
            *out = from_function(k, &functions[i]);
            return ARIL_OK;
        }
    return aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "its activation \"%s\" is not supported",
                            name    ? name
                            : class ? class
                                    : "?");
}

aril_tensor *aril__keras_activate(const keras_activation *a, aril_tensor *x)
{
    return a->fn ? a->fn(a, x) : x;
}

/* ---- layers ---- */

typedef struct activation_layer {
    keras_base base;
    keras_activation activation;
} activation_layer;

ARIL__FORWARD(activation_forward)
{
    const activation_layer *a = aril_module_data(self);
    out[0] = aril__keras_activate(&a->activation, in[0]);
}

static const aril__layer layer_of_activation = { .base = { .size = sizeof(activation_layer),
                                                           .type = "Activation",
                                                           .forward = activation_forward,
                                                           .inputs = -1 } };

aril_module *aril__keras_activation_layer(keras_make *k)
{
    keras_activation a;
    aril_status s = ARIL_OK;
    if (strcmp(k->layer->class, "Activation") == 0)
        s = aril__keras_activation(k, aril__json_get(k->config, "activation"), &a);
    else if (!from_layer(k, k->layer->class, k->config, &a))
        s = aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "its options are not supported");
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer_of_activation) : NULL;
    if (m) ((activation_layer *)aril_module_data(m))->activation = a;
    return m;
}

/* ---- operations: keras.activations.elu(x), keras.ops.softmax(x, axis=1) ---- */

/* "leaky_relu" of "LeakyRelu". */
static void snake_case(const char *class, char *to, size_t size)
{
    size_t n = 0;
    for (const char *c = class; *c && n + 2 < size; c++) {
        bool upper = *c >= 'A' && *c <= 'Z';
        if (upper && n) to[n++] = '_';
        to[n++] = (char)(upper ? *c - 'A' + 'a' : *c);
    }
    to[n] = '\0';
}

static const json *option(const keras_make *k, const char *key)
{
    const json *v = aril__json_get(k->keywords, key);
    return v ? v : aril__json_get(k->config, key);
}

/* The number of an activation by its name in Keras. */
static const char *const numbers[] = { "negative_slope", "alpha", "threshold", "b" };

static aril_status read_options(const keras_make *k, const char *name, keras_activation *a)
{
    if (strcmp(name, "gelu") == 0) {
        /* tf.nn.gelu of Keras 2 is exact unless it says otherwise, as is Keras' activation. */
        a->a = aril__json_bool(option(k, "approximate"), false);
        return ARIL_OK;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        a->a = aril__json_real(option(k, numbers[i]), a->a);
    a->b = aril__json_real(option(k, "default_value"), 0);
    const json *axis = option(k, "axis");
    bool has_axis = a->fn == f_softmax || a->fn == f_log_softmax || a->fn == f_glu;
    if (!has_axis || !axis || axis->kind == 'n') return ARIL_OK;
    if (a->fn == f_softmax) return read_softmax_axes(k, axis, a);
    return aril__keras_axis(k, aril__json_integer(axis, INT64_MIN), &a->axis);
}

aril_module *aril__keras_op_activation(keras_make *k)
{
    char name[64];
    keras_activation a = { .fn = f_threshold };
    snake_case(k->layer->kind->name + strlen("op:"), name, sizeof name);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) a = from_function(k, &functions[i]);
    if (read_options(k, name, &a) < 0) return NULL;
    aril_module *m = aril__keras_module(k, &layer_of_activation);
    if (m) ((activation_layer *)aril_module_data(m))->activation = a;
    return m;
}

aril_activation aril__keras_fused(const aril_module *m)
{
    if (m->layer != &layer_of_activation) return ARIL_NO_ACTIVATION;
    return ((const activation_layer *)aril_module_data(m))->activation.fused;
}

/* ---- PReLU: x where positive, else alpha * x ---- */

typedef struct prelu {
    keras_base base;
} prelu;

ARIL__FORWARD(prelu_forward)
{
    aril_tensor *alpha = aril__own_at(self, 0);
    out[0] = aril_add(aril_relu(in[0]), aril_mul(alpha, aril_clamp_max(in[0], 0)));
}

aril_module *aril__keras_prelu(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(prelu), .type = "PReLU", .forward = prelu_forward }
    };
    aril_tensor *alpha = aril__keras_variable(k, "alpha");
    if (!alpha) return NULL;
    if (alpha->ndim != k->rank - 1) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "its alpha has %d dimensions, its input %d",
                         alpha->ndim, k->rank);
        return NULL;
    }
    if (k->order == KERAS_FIRST && alpha->ndim > 1)
        alpha = aril_movedim(alpha, ARIL_AXES(-1), ARIL_AXES(0));
    aril_module *m = aril__keras_module(k, &layer);
    return m ? aril__keras_made(m, aril__keras_own(k, m, "alpha", alpha)) : NULL;
}
