/* Operations that stand among the layers of a Functional model: x * 2 + y, keras.ops.mean(x). */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

typedef enum op_form { UNARY, BINARY, REDUCTION, RESHAPE, TRANSPOSE, EXPAND, SQUEEZE } op_form;

typedef struct op_row {
    keras_kind kind; /* "op:" and the name of Keras 3's class */
    op_form form;
    aril_tensor *(*one)(aril_tensor *x);
    aril_tensor *(*two)(aril_tensor *a, aril_tensor *b);
    aril_tensor *(*reduce)(aril_tensor *x, aril_axes axes);
} op_row;

#define KIND(name, want, gives)                                   \
    {                                                             \
        name, "", want, KERAS_MASK_STOP, 0, aril__keras_op, gives \
    }
#define OF_ANY(name)   KIND(name, KERAS_WANT_ANY, KERAS_GIVES_SAME)
#define OF_KERAS(name) KIND(name, KERAS_WANT_KERAS, KERAS_GIVES_KERAS)
#define ONE(name, fn)                       \
    {                                       \
        OF_ANY(name), UNARY, fn, NULL, NULL \
    }
#define TWO(name, fn)                          \
    {                                          \
        OF_KERAS(name), BINARY, NULL, fn, NULL \
    }
#define EACH(name, fn)                       \
    {                                        \
        OF_ANY(name), BINARY, NULL, fn, NULL \
    }
#define REDUCE(name, fn)                          \
    {                                             \
        OF_KERAS(name), REDUCTION, NULL, NULL, fn \
    }
#define OTHER(name, form)                      \
    {                                          \
        OF_KERAS(name), form, NULL, NULL, NULL \
    }

static aril_tensor *floor_divide(aril_tensor *a, aril_tensor *b)
{
    return aril_floor(aril_div(a, b));
}

static aril_tensor *variance(aril_tensor *x, aril_axes axes)
{
    return aril_var(x, axes, 0);
}

static aril_tensor *deviation(aril_tensor *x, aril_axes axes)
{
    return aril_std(x, axes, 0);
}

static const op_row rows[] = {
    EACH("op:Add", aril_add),
    EACH("op:Subtract", aril_sub),
    EACH("op:Multiply", aril_mul),
    EACH("op:TrueDivide", aril_div),
    EACH("op:Divide", aril_div),
    EACH("op:Power", aril_pow),
    EACH("op:Mod", aril_remainder),
    EACH("op:FloorDivide", floor_divide),
    EACH("op:Maximum", aril_maximum),
    EACH("op:Minimum", aril_minimum),
    EACH("op:Equal", aril_eq),
    EACH("op:NotEqual", aril_ne),
    EACH("op:Greater", aril_gt),
    EACH("op:GreaterEqual", aril_ge),
    EACH("op:Less", aril_lt),
    EACH("op:LessEqual", aril_le),
    EACH("op:LogicalAnd", aril_logical_and),
    EACH("op:LogicalOr", aril_logical_or),
    TWO("op:Matmul", aril_matmul),
    ONE("op:Absolute", aril_abs),
    ONE("op:Abs", aril_abs),
    ONE("op:Negative", aril_neg),
    ONE("op:Exp", aril_exp),
    ONE("op:Log", aril_log),
    ONE("op:Sqrt", aril_sqrt),
    ONE("op:Rsqrt", aril_rsqrt),
    ONE("op:Square", aril_square),
    ONE("op:Sin", aril_sin),
    ONE("op:Cos", aril_cos),
    ONE("op:Tanh", aril_tanh),
    ONE("op:Sigmoid", aril_sigmoid),
    ONE("op:Relu", aril_relu),
    ONE("op:Relu6", aril_relu6),
    ONE("op:Silu", aril_silu),
    ONE("op:Erf", aril_erf),
    ONE("op:LogicalNot", aril_logical_not),
    ONE("op:Floor", aril_floor),
    ONE("op:Ceil", aril_ceil),
    ONE("op:Round", aril_round),
    ONE("op:Sign", aril_sign),
    ONE("op:Log1p", aril_log1p),
    ONE("op:Expm1", aril_expm1),
    ONE("op:Reciprocal", aril_reciprocal),
    REDUCE("op:Mean", aril_mean),
    REDUCE("op:Sum", aril_sum),
    REDUCE("op:Max", aril_amax),
    REDUCE("op:Min", aril_amin),
    REDUCE("op:Prod", aril_prod),
    REDUCE("op:Var", variance),
    REDUCE("op:Std", deviation),
    REDUCE("op:Logsumexp", aril_logsumexp),
    REDUCE("op:Any", aril_any),
    REDUCE("op:All", aril_all),
    OTHER("op:Reshape", RESHAPE),
    OTHER("op:Transpose", TRANSPOSE),
    OTHER("op:ExpandDims", EXPAND),
    OTHER("op:Squeeze", SQUEEZE),
};

#define ACTIVATION(name)                                                                \
    {                                                                                   \
        "op:" name, "", KERAS_WANT_AXIS, KERAS_MASK_STOP, 0, aril__keras_op_activation, \
            KERAS_GIVES_SAME                                                            \
    }

#define MADE(name, want, fn, gives)                         \
    {                                                       \
        "op:" name, "", want, KERAS_MASK_STOP, 0, fn, gives \
    }
#define MADE_ANY(name, fn)     MADE(name, KERAS_WANT_ANY, fn, KERAS_GIVES_SAME)
#define MADE_KERAS(name, fn)   MADE(name, KERAS_WANT_KERAS, fn, KERAS_GIVES_KERAS)
#define MADE_SPATIAL(name, fn) MADE(name, KERAS_WANT_SPATIAL, fn, KERAS_GIVES_SAME)

/* Operations with a module of their own. */
static const keras_kind others[] = {
    MADE_KERAS("GetItem", aril__keras_get_item),
    MADE_KERAS("Split", aril__keras_split),
    MADE_KERAS("Stack", aril__keras_stack),
    MADE_KERAS("Where", aril__keras_where),
    MADE_ANY("Clip", aril__keras_clip),
    MADE_ANY("Cast", aril__keras_cast),
    MADE_KERAS("Pad", aril__keras_pad),
    MADE_KERAS("Normalize", aril__keras_normalize),
    MADE_KERAS("Einsum", aril__keras_einsum),
    MADE_KERAS("Argmax", aril__keras_arg_max),
    MADE_KERAS("Argmin", aril__keras_arg_max),
    MADE_SPATIAL("AveragePool", aril__keras_avg_pool),
    MADE_SPATIAL("MaxPool", aril__keras_max_pool),
};

/* The other activations are UNARY. */
static const keras_kind activations[] = {
    ACTIVATION("LeakyRelu"),  ACTIVATION("Elu"),         ACTIVATION("Selu"),
    ACTIVATION("Celu"),       ACTIVATION("Softplus"),    ACTIVATION("Softsign"),
    ACTIVATION("Gelu"),       ACTIVATION("HardSigmoid"), ACTIVATION("HardSilu"),
    ACTIVATION("Mish"),       ACTIVATION("LogSigmoid"),  ACTIVATION("TanhShrink"),
    ACTIVATION("HardTanh"),   ACTIVATION("SoftShrink"),  ACTIVATION("HardShrink"),
    ACTIVATION("Squareplus"), ACTIVATION("SparsePlus"),  ACTIVATION("SparseSigmoid"),
    ACTIVATION("Softmax"),    ACTIVATION("LogSoftmax"),  ACTIVATION("Glu"),
    ACTIVATION("Threshold"),
};

const keras_kind *aril__keras_op_kind(const char *name)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0) return &activations[i];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0) return &others[i];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].kind.name, name) == 0) return &rows[i].kind;
    return NULL;
}

/* Keras 2's names of the same, in a TFOpLambda. */
static const char *const old_names[][2] = {
    { "math.add", "Add" },
    { "__operators__.add", "Add" },
    { "math.subtract", "Subtract" },
    { "math.multiply", "Multiply" },
    { "math.truediv", "TrueDivide" },
    { "math.divide", "Divide" },
    { "math.pow", "Power" },
    { "math.maximum", "Maximum" },
    { "math.minimum", "Minimum" },
    { "math.abs", "Abs" },
    { "math.negative", "Negative" },
    { "math.exp", "Exp" },
    { "math.log", "Log" },
    { "math.sqrt", "Sqrt" },
    { "math.rsqrt", "Rsqrt" },
    { "math.square", "Square" },
    { "math.tanh", "Tanh" },
    { "math.sigmoid", "Sigmoid" },
    { "nn.relu", "Relu" },
    { "nn.relu6", "Relu6" },
    { "nn.silu", "Silu" },
    { "nn.swish", "Silu" },
    { "nn.gelu", "Gelu" },
    { "nn.leaky_relu", "LeakyRelu" },
    { "nn.elu", "Elu" },
    { "nn.selu", "Selu" },
    { "nn.softmax", "Softmax" },
    { "nn.log_softmax", "LogSoftmax" },
    { "nn.softsign", "Softsign" },
    { "math.softplus", "Softplus" },
};

const char *aril__keras_op_name(const json *layer, char *text, size_t size)
{
    const char *class = aril__json_text(aril__json_get(layer, "class_name"), ""),
               *module = aril__json_text(aril__json_get(layer, "module"), "");
    if (strcmp(class, "TFOpLambda") == 0) {
        const json *config = aril__json_get(layer, "config");
        const char *fn = aril__json_text(aril__json_get(config, "function"), "");
        for (size_t i = 0; i < sizeof old_names / sizeof *old_names; i++) {
            if (strcmp(fn, old_names[i][0]) != 0) continue;
            snprintf(text, size, "op:%s", old_names[i][1]);
            return text;
        }
        return class;
    }
    /* In .h5 files the module is missing; layers have a dtype, most operations do not. */
    const json *config = aril__json_get(layer, "config");
    bool op = strncmp(module, "keras.src.ops", 13) == 0 || strncmp(module, "keras.ops", 9) == 0 ||
              (!*module && (!aril__json_get(config, "dtype") || !aril__keras_kind(class)) &&
               !aril__json_get(config, "trainable") && !aril__json_get(config, "target_shape"));
    snprintf(text, size, "op:%s", class);
    return op && aril__keras_op_kind(text) ? text : class;
}

/* ---- running ---- */

typedef struct op {
    keras_base base;
    const op_row *row;
    bool has_number, number_first; /* BINARY: the other operand is a number */
    double number;
    aril_axes axes;
    aril_shape shape;
} op;

static aril_tensor *run_binary(const op *o, int n_in, aril_tensor *const *in)
{
    aril_tensor *a = in[0];
    if (o->has_number) {
        aril_tensor *number = aril_scalar(o->number);
        return o->number_first ? o->row->two(number, a) : o->row->two(a, number);
    }
    if (n_in > 1) return o->row->two(a, in[1]);
    aril__fail(ARIL_ERR_ARG, "expected 2 inputs");
    return aril__poison();
}

ARIL__FORWARD(op_forward)
{
    const op *o = aril_module_data(self);
    aril_tensor *x = in[0];
    aril_shape shape = o->shape;
    switch (o->row->form) {
    case UNARY: out[0] = o->row->one(x); break;
    case BINARY: out[0] = run_binary(o, n_in, in); break;
    case REDUCTION: out[0] = o->row->reduce(x, o->axes); break;
    case TRANSPOSE: out[0] = aril_permute(x, o->axes); break;
    case EXPAND: out[0] = aril_unsqueeze(x, o->axes.axis[0]); break;
    case SQUEEZE: out[0] = aril_squeeze(x, o->axes); break;
    case RESHAPE:
        if (shape.ndim && shape.dim[0] == -1) shape.dim[0] = x->dim[0];
        out[0] = aril_reshape(x, shape);
        break;
    }
}

/* ---- making ---- */

/* An argument by keyword, by position, or of the operation itself. */
static const json *argument(const keras_make *k, const char *key, int position)
{
    const json *v = aril__json_get(k->keywords, key);
    if (!v) v = aril__json_get(k->config, key);
    for (int i = 0, at = 0; i < k->node->n_in && !v; i++) {
        const keras_argument *a = &k->node->in[i];
        if (!a->role && at++ == position && !a->ref.layer) v = a->constant;
    }
    return v;
}

static aril_status read_axes(const keras_make *k, const char *key, op *o)
{
    const json *v = argument(k, key, 1);
    bool list = aril__json_kind(v) == '[';
    if (aril__json_kind(v) == 'n') v = NULL;
    int n = list ? v->n : v ? 1 : 0, rank = k->rank + (o->row->form == EXPAND);
    if (n > rank) return aril__keras_fail(k, ARIL_ERR_FORMAT, "%s has too many elements", key);
    for (int i = 0; i < n; i++) {
        int64_t axis = aril__json_integer(list ? aril__json_at(v, i) : v, INT64_MIN);
        if (axis < -rank || axis >= rank)
            return aril__keras_fail(k, ARIL_ERR_FORMAT, "%s does not exist in %d dimensions", key,
                                    rank);
        o->axes.axis[o->axes.n++] = (int)axis;
    }
    o->axes.keepdim = aril__json_bool(argument(k, "keepdims", 2), false);
    return ARIL_OK;
}

static aril_status read_shape(const keras_make *k, op *o)
{
    const json *v = argument(k, "newshape", 1);
    if (!v) v = argument(k, "shape", 1);
    bool good = aril__json_kind(v) == '[' && v->n >= 1 && v->n <= ARIL_MAX_DIMS;
    for (int i = 0; good && i < v->n; i++) {
        const json *e = aril__json_at(v, i);
        o->shape.dim[i] = e->kind == 'n' ? -1 : aril__json_integer(e, INT64_MIN);
        good = o->shape.dim[i] >= -1 && o->shape.dim[i] <= 1 << 30;
    }
    o->shape.ndim = good ? v->n : 0;
    return good ? ARIL_OK : aril__keras_fail(k, ARIL_ERR_FORMAT, "its shape is not integers");
}

static aril_status read_operands(const keras_make *k, op *o)
{
    int tensors = 0;
    for (int i = 0; i < k->node->n_in; i++) {
        const keras_argument *a = &k->node->in[i];
        if (a->ref.layer) tensors++;
        if (a->ref.layer || o->has_number || aril__json_kind(a->constant) != '0') continue;
        o->has_number = true;
        o->number_first = tensors == 0;
        o->number = a->constant->number;
    }
    static const char *const other[] = { "y", "x2" };
    for (int i = 0; i < 2 && tensors < 2 && !o->has_number; i++) {
        const json *v = aril__json_get(k->keywords, other[i]);
        o->has_number = aril__json_kind(v) == '0';
        if (o->has_number) o->number = v->number;
    }
    if (tensors + o->has_number == 2) return ARIL_OK;
    return aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                            "its operands are supported only if they are values of the network and "
                            "at most one number");
}

aril_module *aril__keras_op(keras_make *k)
{
    static const aril__layer layer = {
        .base = { .size = sizeof(op), .type = "Operation", .forward = op_forward, .inputs = -1 }
    };
    op o = { .row = (const op_row *)k->layer->kind };
    aril_status s = ARIL_OK;
    switch (o.row->form) {
    case UNARY: break;
    case BINARY: s = read_operands(k, &o); break;
    case RESHAPE: s = read_shape(k, &o); break;
    case TRANSPOSE: s = read_axes(k, "axes", &o); break;
    default: s = read_axes(k, "axis", &o); break;
    }
    for (int i = k->rank - 1; i >= 0 && s == ARIL_OK && o.row->form == TRANSPOSE && !o.axes.n; i--)
        o.shape.dim[o.shape.ndim++] = i; /* all reversed */
    for (int i = 0; i < o.shape.ndim && o.row->form == TRANSPOSE; i++)
        o.axes.axis[o.axes.n++] = (int)o.shape.dim[i];
    aril_module *m = s == ARIL_OK ? aril__keras_module(k, &layer) : NULL;
    if (!m) return NULL;
    o.base = *(keras_base *)aril_module_data(m);
    *(op *)aril_module_data(m) = o;
    return m;
}
