/* Functions of each element, and Dropout. */
#include "models/caffe/layer.h"

#include <math.h>

/* Numbers that a function takes, read by `check`. */
typedef struct function {
    caffe_layer base;
    double a, b, c;
} function;

#define FORWARD(name) \
    static void name(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
#define FUNCTION(name, expression)               \
    FORWARD(name)                                \
    {                                            \
        const function *f = aril_module_data(m); \
        aril_tensor *x = in[0];                  \
        (void)l, (void)f;                        \
        out[0] = (expression);                   \
    }

/* ---- parameters ---- */

static aril_status relu_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    f->a = aril__message_number(l->param, "negative_slope");
    return ARIL_OK;
}

static aril_status elu_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    f->a = aril__message_number(l->param, "alpha");
    return ARIL_OK;
}

static aril_status power_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    f->a = aril__message_number(l->param, "power");
    f->b = aril__message_number(l->param, "scale");
    f->c = aril__message_number(l->param, "shift");
    return ARIL_OK;
}

/* a: the logarithm of the base. */
static aril_status exp_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    double base = aril__message_number(l->param, "base");
    if (base != -1 && !(base > 0))
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "base %g must be above 0, or -1 for e", base);
    f->a = base == -1 ? 1 : log(base);
    f->b = aril__message_number(l->param, "scale");
    f->c = aril__message_number(l->param, "shift");
    if (f->a == 0 && strcmp(l->row->layer.base.type, "Log") == 0)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "there is no logarithm of base 1");
    return ARIL_OK;
}

static aril_status threshold_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    f->a = aril__message_number(l->param, "threshold");
    return ARIL_OK;
}

static aril_status clip_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    if (!aril__message_has(l->message, "clip_param"))
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "clip_param { min: ... max: ... } is missing");
    f->a = aril__message_number(l->param, "min");
    f->b = aril__message_number(l->param, "max");
    return ARIL_OK;
}

static aril_status swish_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    f->a = aril__message_number(l->param, "beta");
    return ARIL_OK;
}

static aril_status dropout_check(aril_module *m, caffe_layer *l)
{
    function *f = aril_module_data(m);
    f->a = aril__message_number(l->param, "dropout_ratio");
    if (!(f->a >= 0 && f->a < 1))
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "dropout_ratio %g must be from 0 to below 1",
                               f->a);
    return ARIL_OK;
}

/* ---- formulas ---- */

static aril_tensor *linear(const function *f, aril_tensor *x)
{
    if (f->b != 1) x = aril_mul_scalar(x, f->b);
    return f->c != 0 ? aril_add_scalar(x, f->c) : x;
}

/* (shift + scale * x)^power */
static aril_tensor *power(const function *f, aril_tensor *x)
{
    double value = f->a == 0 ? 1 : pow(f->c, f->a);
    if (f->a == 0 || f->b == 0) return aril_full_like(x, value);
    aril_tensor *y = linear(f, x);
    return f->a == 1 ? y : f->a == 2 ? aril_square(y) : aril_pow_scalar(y, f->a);
}

static aril_tensor *logarithm(const function *f, aril_tensor *x)
{
    aril_tensor *y = aril_log(linear(f, x));
    return f->a == 1 ? y : aril_mul_scalar(y, 1 / f->a);
}

/* base^(shift + scale * x) */
static aril_tensor *exponential(const function *f, aril_tensor *x)
{
    function natural = { .b = f->b * f->a, .c = f->c * f->a };
    return aril_exp(linear(&natural, x));
}

static aril_tensor *swish(const function *f, aril_tensor *x)
{
    return f->a == 1 ? aril_silu(x) : aril_mul(x, aril_sigmoid(aril_mul_scalar(x, f->a)));
}

/* max(min, x limited to max). The gradient passes at the bounds too, where that of clamp is 0. */
static aril_tensor *clip(const function *f, aril_tensor *x)
{
    if (!aril_requires_grad(x)) return aril_clamp_min(aril_clamp_max(x, f->b), f->a);
    aril_tensor *y = aril_where(aril_gt_scalar(x, f->b), aril_full_like(x, f->b), x);
    return aril_where(aril_lt_scalar(y, f->a), aril_full_like(x, f->a), y);
}

FUNCTION(relu, f->a == 0 ? aril_relu(x) : aril_leaky_relu(x, f->a))
FUNCTION(elu, aril_elu(x, f->a))
FUNCTION(sigmoid, aril_sigmoid(x))
FUNCTION(tanh_forward, aril_tanh(x))
FUNCTION(absval, aril_abs(x))
FUNCTION(bnll, aril_softplus(x, 1, 50))
FUNCTION(power_forward, power(f, x))
FUNCTION(exp_forward, exponential(f, x))
FUNCTION(log_forward, logarithm(f, x))
FUNCTION(threshold, aril_cast(aril_gt_scalar(x, f->a), aril_dtype_of(x)))
FUNCTION(clip_forward, clip(f, x))
FUNCTION(swish_forward, swish(f, x))

FORWARD(dropout)
{
    const function *f = aril_module_data(m);
    bool drops = f->a > 0 && aril__caffe_trains(m, l);
    out[0] = drops ? aril_dropout(in[0], f->a, (aril_dropout_opts){ 0 }) : in[0];
}

/* ---- PReLU ---- */

static aril_status prelu_check(aril_module *m, caffe_layer *l)
{
    (void)m;
    return aril__message_has(l->param, "filler")
               ? aril__caffe_check_filler(l, aril__message_sub(l->param, "filler"))
               : ARIL_OK;
}

static aril_status prelu_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    int64_t channels = 1;
    bool shared = aril__message_int(l->param, "channel_shared") != 0;
    aril_status s = shared ? ARIL_OK : aril__input_size(in[0], 1, &channels);
    const aril__message *filler =
        aril__message_has(l->param, "filler") ? aril__message_sub(l->param, "filler") : NULL;
    return s == ARIL_OK
               ? aril__caffe_add_blob(m, "weight", shared ? ARIL_SHAPE() : ARIL_SHAPE(channels),
                                      filler, 0.25)
               : s;
}

FORWARD(prelu)
{
    (void)l;
    aril_tensor *w = aril__caffe_blob(m, 0);
    if (aril_ndim(w) == 1) {
        aril_shape shape = { .ndim = aril_ndim(in[0]) - 1 };
        for (int i = 0; i < shape.ndim; i++) shape.dim[i] = i ? 1 : aril_size(w, 0);
        w = aril_reshape(w, shape);
    }
    out[0] = aril_prelu(in[0], w);
}

/* ---- what other layers can apply ---- */

static aril_activation as_relu(const caffe_layer *l)
{
    return aril__message_number(l->param, "negative_slope") == 0 ? ARIL_RELU : ARIL_NO_ACTIVATION;
}

static aril_activation as_sigmoid(const caffe_layer *l)
{
    (void)l;
    return ARIL_SIGMOID;
}

static aril_activation as_tanh(const caffe_layer *l)
{
    (void)l;
    return ARIL_TANH;
}

#define ROW(name) CAFFE_ROW(name, function), CAFFE_COUNTS(1, 1, 1, 1)

const caffe_row aril__caffe_activation_rows[] = {
    { ROW("ReLU"), .param = "relu_param", .check = relu_check, .forward = relu,
      .activation = as_relu },
    { ROW("PReLU"), .param = "prelu_param", .blob = { { "weight", .axes = 1 } },
      .check = prelu_check, .build = prelu_build, .forward = prelu },
    { ROW("ELU"), .param = "elu_param", .check = elu_check, .forward = elu },
    { ROW("Sigmoid"), .param = "sigmoid_param", .forward = sigmoid, .activation = as_sigmoid },
    { ROW("TanH"), .param = "tanh_param", .forward = tanh_forward, .activation = as_tanh },
    { ROW("AbsVal"), .forward = absval },
    { ROW("BNLL"), .forward = bnll },
    { ROW("Power"), .param = "power_param", .check = power_check, .forward = power_forward },
    { ROW("Exp"), .param = "exp_param", .check = exp_check, .forward = exp_forward },
    { ROW("Log"), .param = "log_param", .check = exp_check, .forward = log_forward },
    { ROW("Threshold"), .param = "threshold_param", .check = threshold_check,
      .forward = threshold },
    { ROW("Clip"), .param = "clip_param", .check = clip_check, .forward = clip_forward },
    { ROW("Swish"), .param = "swish_param", .check = swish_check, .forward = swish_forward },
    { ROW("Dropout"), .param = "dropout_param", .check = dropout_check, .forward = dropout },
    { .param = NULL },
};
