/* Elementwise operators, casts, and the variadic ones. */
#include "core/dtype.h"
#include "onnx/rules.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- broadcasting ---- */

/* Before version 7, the second operand is broadcast only with the attribute `broadcast`, from
 * `axis` on. */
static aril_tensor *second(onnx_call *c)
{
    aril_tensor *a = in(c, 0), *b = in(c, 1);
    if (c->version >= 7 || !has_attr(c, "axis")) return b;
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(a));
    int after = aril_ndim(a) - axis - aril_ndim(b);
    if (axis < 0 || after < 0) return b;
    for (int i = 0; i < after; i++) b = aril_unsqueeze(b, -1);
    return b;
}

static aril_status unary(onnx_call *c)
{
    return give(c, 0, like(c->node->rule->unary(in(c, 0)), in(c, 0)));
}

/* Of tests: the result is bool. */
static aril_status predicate(onnx_call *c)
{
    return give(c, 0, aril_cast(c->node->rule->unary(in(c, 0)), ARIL_BOOL));
}

static aril_status binary(onnx_call *c)
{
    return give(c, 0, c->node->rule->binary(in(c, 0), second(c)));
}

static bool is_integer(const aril_tensor *t)
{
    return !aril_dtype_is_float(aril_dtype_of(t)) && aril_dtype_of(t) != ARIL_BOOL;
}

/* Integers are divided towards 0. */
static aril_tensor *divided(aril_tensor *a, aril_tensor *b)
{
    if (!is_integer(a)) return aril_div(a, b);
    return aril_floor_div(aril_sub(a, aril_fmod(a, b)), b);
}

static aril_status multiply(onnx_call *c)
{
    return aril__onnx_has_open_sizes(c) ? aril__onnx_size_product(c) : binary(c);
}

static aril_status divide(onnx_call *c)
{
    if (aril__onnx_has_open_sizes(c)) return aril__onnx_size_quotient(c);
    return give(c, 0, like(divided(in(c, 0), second(c)), in(c, 0)));
}

static aril_status mod(onnx_call *c)
{
    bool c_sign = aril__onnx_attr_int(c, "fmod", 0) != 0;
    return give(c, 0, c_sign ? aril_fmod(in(c, 0), in(c, 1)) : aril_remainder(in(c, 0), in(c, 1)));
}

static aril_status power(onnx_call *c)
{
    aril_tensor *a = in(c, 0), *b = second(c), *x = a;
    if (is_integer(a) && aril_dtype_is_float(aril_dtype_of(b))) x = aril_cast(a, ARIL_F64);
    return give(c, 0, like(aril_pow(x, b), a));
}

static aril_status equal(onnx_call *c)
{
    if (aril__onnx_has_open_sizes(c)) return aril__onnx_size_equal(c);
    return give(c, 0, aril_eq(in(c, 0), second(c)));
}

/* ---- any number of operands ---- */

static aril_tensor *mean_of(onnx_call *c, aril_tensor *sum)
{
    return c->n_in > 1 ? like(aril_div_scalar(sum, c->n_in), sum) : sum;
}

static aril_status variadic(onnx_call *c)
{
    aril_tensor *y = in(c, 0);
    for (int i = 1; i < c->n_in; i++) y = c->node->rule->binary(y, in(c, i));
    return give(c, 0, strcmp(c->node->rule->name, "Mean") == 0 ? mean_of(c, y) : y);
}

/* ---- bits ---- */

static aril_status bit_shift(onnx_call *c)
{
    bool left = attr_is(c, "direction", "LEFT", "LEFT");
    return give(c, 0,
                left ? aril_shift_left(in(c, 0), in(c, 1)) : aril_shift_right(in(c, 0), in(c, 1)));
}

/* ---- activations with attributes ---- */

static aril_status leaky_relu(onnx_call *c)
{
    return give(c, 0, aril_leaky_relu(in(c, 0), aril__onnx_attr_float(c, "alpha", 0.01)));
}

static aril_status elu(onnx_call *c)
{
    return give(c, 0, aril_elu(in(c, 0), aril__onnx_attr_float(c, "alpha", 1)));
}

static aril_status celu(onnx_call *c)
{
    return give(c, 0, aril_celu(in(c, 0), aril__onnx_attr_float(c, "alpha", 1)));
}

/* gamma * (x > 0 ? x : alpha * (exp(x) - 1)) */
static aril_status selu(onnx_call *c)
{
    double alpha =
        aril__onnx_attr_float(c, "alpha", c->version < 6 ? 1.6732 : 1.67326319217681884765625);
    double gamma =
        aril__onnx_attr_float(c, "gamma", c->version < 6 ? 1.0507 : 1.05070102214813232421875);
    return give(c, 0, aril_mul_scalar(aril_elu(in(c, 0), alpha), gamma));
}

static aril_status hard_sigmoid(onnx_call *c)
{
    double alpha = aril__onnx_attr_float(c, "alpha", 0.2),
           beta = aril__onnx_attr_float(c, "beta", 0.5);
    aril_tensor *y = aril_add_scalar(aril_mul_scalar(in(c, 0), alpha), beta);
    return give(c, 0, aril_clamp(y, 0.0, 1.0));
}

static aril_status thresholded_relu(onnx_call *c)
{
    aril_tensor *x = in(c, 0); /* NaN is not greater: 0 */
    aril_tensor *above = aril_gt_scalar(x, aril__onnx_attr_float(c, "alpha", 1));
    return give(c, 0, aril_where(above, x, aril_zeros_like(x)));
}

static aril_status softplus(onnx_call *c)
{
    return give(c, 0, aril_softplus(in(c, 0), 1, 20));
}

static aril_status gelu(onnx_call *c)
{
    bool tanh = attr_is(c, "approximate", "none", "tanh");
    return give(c, 0, tanh ? aril_gelu_tanh(in(c, 0)) : aril_gelu(in(c, 0)));
}

/* x * sigmoid(alpha * x) */
static aril_tensor *swish_of(aril_tensor *x, double alpha)
{
    return aril_mul(x, aril_sigmoid(alpha == 1 ? x : aril_mul_scalar(x, alpha)));
}

static aril_status swish(onnx_call *c)
{
    return give(c, 0, swish_of(in(c, 0), aril__onnx_attr_float(c, "alpha", 1)));
}

static aril_status swiglu(onnx_call *c)
{
    double alpha = aril__onnx_attr_float(c, "alpha", 1);
    return give(c, 0, aril_mul(swish_of(in(c, 0), alpha), in(c, 1)));
}

/* x < -lambd ? x + bias : x > lambd ? x - bias : 0 */
static aril_status shrink(onnx_call *c)
{
    double lambd = aril__onnx_attr_float(c, "lambd", 0.5),
           bias = aril__onnx_attr_float(c, "bias", 0);
    aril_tensor *x = in(c, 0), *zero = aril_zeros_like(x);
    aril_tensor *high =
        aril_where(aril_gt_scalar(x, lambd), like(aril_sub_scalar(x, bias), x), zero);
    aril_tensor *low = like(aril_add_scalar(x, bias), x);
    return give(c, 0, aril_where(aril_lt_scalar(x, -lambd), low, high));
}

/* The slope is broadcast from the left before version 7: one for each channel. */
static aril_status prelu(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *slope = in(c, 1);
    if (c->version < 7 && aril_ndim(slope) == 1 && aril_ndim(x) > 2 && aril_numel(slope) > 1)
        while (aril_ndim(slope) < aril_ndim(x) - 1) slope = aril_unsqueeze(slope, -1);
    return give(c, 0, like(aril_where(aril_lt_scalar(x, 0), aril_mul(x, slope), x), x));
}

static aril_status is_inf(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *y = aril_isinf(x);
    if (!aril__onnx_attr_int(c, "detect_negative", 1))
        y = aril_logical_and(y, aril_gt_scalar(x, 0));
    if (!aril__onnx_attr_int(c, "detect_positive", 1))
        y = aril_logical_and(y, aril_lt_scalar(x, 0));
    return give(c, 0, aril_cast(y, ARIL_BOOL));
}

/* ---- clip ---- */

static aril_status clip(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *low = in(c, 1), *high = in(c, 2);
    if (c->version < 11) { /* the defaults are numbers since version 6 */
        double most = c->version < 6 ? INFINITY : FLT_MAX;
        return give(c, 0,
                    aril_clamp(x, aril__onnx_attr_float(c, "min", -most),
                               aril__onnx_attr_float(c, "max", most)));
    }
    if (!low && !high) return give(c, 0, x);
    return give(c, 0, aril_clamp_tensor(x, low, high));
}

/* ---- where ---- */

static aril_status where(onnx_call *c)
{
    return give(c, 0, aril_where(in(c, 0), in(c, 1), in(c, 2)));
}

/* ---- casts ---- */

enum { STRING_TYPE = 8 };

static aril_status text_of(onnx_call *c, aril_tensor *x)
{
    const void *at;
    bool wide = aril_dtype_of(x) == ARIL_U64, real = aril_dtype_is_float(aril_dtype_of(x));
    aril_status s = aril__onnx_host(c, x, real ? ARIL_F64 : wide ? ARIL_U64 : ARIL_I64, &at);
    if (s != ARIL_OK) return s;
    onnx_text *t = aril__onnx_alloc(&c->run->arena, 1, sizeof *t);
    int64_t n = aril_numel(x);
    if (!t || !(t->at = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *t->at)))
        return ARIL_ERR_MEMORY;
    t->shape = aril_shape_of(x);
    t->n = (size_t)n;
    for (int64_t i = 0; i < n; i++) {
        double v = real ? ((const double *)at)[i] : 0;
        char buf[64];
        int size;
        if (wide)
            size = snprintf(buf, sizeof buf, "%" PRIu64, ((const uint64_t *)at)[i]);
        else if (!real)
            size = snprintf(buf, sizeof buf, "%" PRId64, ((const int64_t *)at)[i]);
        else if (isnan(v) || isinf(v))
            size = snprintf(buf, sizeof buf, "%s", isnan(v) ? "NaN" : v > 0 ? "INF" : "-INF");
        else /* the shortest text that reads back as the same number */
            for (int digits = 1;; digits++) {
                size = snprintf(buf, sizeof buf, "%.*g", digits, v);
                if (digits == 17 || (aril_dtype_of(x) == ARIL_F64 ? strtod(buf, NULL) == v
                                                                  : strtof(buf, NULL) == (float)v))
                    break;
            }
        char *copy = aril__onnx_alloc(&c->run->arena, (size_t)size + 1, 1);
        if (!copy) return ARIL_ERR_MEMORY;
        memcpy(copy, buf, (size_t)size);
        t->at[i] = (aril__slice){ copy, (size_t)size };
    }
    return give_value(c, 0, (onnx_value){ .kind = ONNX_TEXT, .text = t });
}

/* An integer of 64 bits; false: no integer, or beyond the type. */
static bool integer_of(const char *text, bool wide, void *to)
{
    char *end;
    errno = 0;
    if (wide) {
        uint64_t v = strtoull(text, &end, 10);
        memcpy(to, &v, sizeof v);
    } else {
        int64_t v = strtoll(text, &end, 10);
        memcpy(to, &v, sizeof v);
    }
    return end != text && !*end && !errno;
}

/* Integers are read as such, as a double has 53 bits; others, such as "1e3", as floats. */
static aril_status number_of(onnx_call *c, const onnx_text *t, aril_dtype to)
{
    bool wide = to == ARIL_U64, integers = !aril_dtype_is_float(to) && to != ARIL_BOOL;
    double *at = aril__onnx_alloc(&c->run->arena, t->n, sizeof *at);
    uint64_t *exact = aril__onnx_alloc(&c->run->arena, t->n, sizeof *exact);
    if (!at || !exact) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < t->n; i++) {
        char buf[128], *end;
        snprintf(buf, sizeof buf, "%.*s", (int)t->at[i].n, (const char *)t->at[i].at);
        at[i] = strtod(buf, &end);
        if (end == buf || *end)
            return aril__onnx_fail(c, ARIL_ERR_NUMBER, "\"%s\" is not a number", buf);
        integers = integers && integer_of(buf, wide, &exact[i]);
    }
    const void *from = !t->n ? (const void *)"" : integers ? (const void *)exact : at;
    aril_dtype dtype = !integers ? ARIL_F64 : wide ? ARIL_U64 : ARIL_I64;
    return give(c, 0, aril_cast(aril_from(from, t->shape, dtype, aril_cpu()), to));
}

/* 2 to the exponent of a positive number, rounded in the given direction. */
static aril_tensor *power_of_two(aril_tensor *f, const char *round)
{
    aril_tensor *e = aril_log2(f);
    if (strcmp(round, "down") == 0)
        e = aril_floor(e);
    else if (strcmp(round, "nearest") == 0)
        e = aril_floor(aril_log2(aril_mul_scalar(f, 4.0 / 3)));
    else
        e = aril_ceil(e);
    f = aril_where(aril_isfinite(e), aril_exp2(e), f);
    return aril_where(aril_eq_scalar(f, 0), aril_full_like(f, 0x1p-127), f);
}

aril_tensor *aril__onnx_small_float(aril_tensor *x, aril_dtype to, bool saturate, const char *round)
{
    static const double largest[] = {
        [ARIL_F8E4M3FN] = 448,     [ARIL_F8E4M3FNUZ] = 240, [ARIL_F8E5M2] = 57344,
        [ARIL_F8E5M2FNUZ] = 57344, [ARIL_F8E8M0] = 0x1p127, [ARIL_F4E2M1] = 6
    };
    aril_tensor *f = aril_dtype_of(x) == ARIL_F64 ? x : aril_cast(x, ARIL_F32);
    if (to == ARIL_F8E8M0) f = power_of_two(f, round);
    aril_tensor *nan = aril_isnan(f);
    if (saturate || to == ARIL_F4E2M1)
        f = aril_where(nan, f, aril_clamp(f, -largest[to], largest[to]));
    else if (to == ARIL_F8E4M3FN) /* there are no infinities: what rounds beyond 448 is NaN */
        f = aril_where(aril_gt_scalar(aril_abs(f), 464), aril_full_like(f, NAN), f);
    if (to == ARIL_F4E2M1) f = aril_where(nan, aril_full_like(f, -0.0), f); /* it has no NaN */
    return aril_cast(f, to);
}

static aril_status cast_to(onnx_call *c, int64_t type)
{
    aril_dtype to = ARIL_F32;
    if (type == STRING_TYPE) {
        if (c->in[0].kind == ONNX_TEXT) return give_value(c, 0, c->in[0]);
        return text_of(c, in(c, 0));
    }
    if (!aril__onnx_dtype(type, &to))
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "type %s", aril__onnx_dtype_name(type));
    if (c->in[0].kind == ONNX_TEXT) return number_of(c, c->in[0].text, to);
    aril_tensor *x = in(c, 0);
    if (aril_dtype_of(x) == to) return give(c, 0, x);
    if (to >= ARIL_F8E4M3FN && to <= ARIL_F4E2M1) {
        bool saturate = aril__onnx_attr_int(c, "saturate", 1) != 0;
        return give(c, 0,
                    aril__onnx_small_float(x, to, saturate,
                                           aril__onnx_attr_text(c, "round_mode", "up")));
    }
    return give(c, 0, aril_cast(x, to));
}

static aril_status cast(onnx_call *c)
{
    const aril__message *to = aril__onnx_attribute(c, "to");
    if (!to) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "the attribute `to` is missing");
    if (c->version >= 6) return cast_to(c, aril__message_int(to, "i"));
    const char *name = aril__onnx_attr_text(c, "to", ""); /* "FLOAT" */
    for (int i = 1; i < 17; i++)
        if (strcasecmp(aril__onnx_dtype_name(i), name) == 0) return cast_to(c, i);
    return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "type %s", name);
}

static aril_status cast_like(onnx_call *c)
{
    if (!given(c, 0) || !given(c, 1))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "two inputs are needed");
    if (c->in[1].kind == ONNX_TEXT) return cast_to(c, STRING_TYPE);
    return cast_to(c, aril__onnx_dtype_number(aril_dtype_of(in(c, 1))));
}

/* The same bits as another type of the same width. */
static aril_status bit_cast(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    aril_dtype to = ARIL_F32, from = aril_dtype_of(x);
    if (!aril__onnx_dtype(aril__onnx_attr_int(c, "to", 0), &to) ||
        aril_dtype_bits(to) != aril_dtype_bits(from))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "the types must have the same number of bits");
    if (is_symbolic(x)) return ARIL__ONNX_DYNAMIC;
    size_t bytes = aril__dtype_bytes(from, aril_numel(x));
    void *buf = aril__onnx_alloc(&c->run->arena, bytes, 1);
    if (!buf) return ARIL_ERR_MEMORY;
    aril_status s = aril_read(x, buf);
    if (s < 0) return s;
    return give(c, 0,
                aril_to(aril_from(buf, aril_shape_of(x), to, aril_cpu()), aril__onnx_device(c)));
}

static aril_status identity(onnx_call *c)
{
    return c->n_in ? give_value(c, 0, c->in[0]) : ARIL_ERR_ARG;
}

#define UNARY(name, from, fn)                 \
    {                                         \
        "", name, from, 0, unary, fn, NULL, 0 \
    }
#define PREDICATE(name, from, fn)                 \
    {                                             \
        "", name, from, 0, predicate, fn, NULL, 0 \
    }
#define BINARY(name, from, fn)                 \
    {                                          \
        "", name, from, 0, binary, NULL, fn, 0 \
    }
#define VARIADIC(name, from, fn)                 \
    {                                            \
        "", name, from, 0, variadic, NULL, fn, 0 \
    }

const onnx_rule aril__onnx_math_rules[] = {
    UNARY("Abs", 1, aril_abs),
    UNARY("Acos", 7, aril_acos),
    UNARY("Acosh", 9, aril_acosh),
    UNARY("Asin", 7, aril_asin),
    UNARY("Asinh", 9, aril_asinh),
    UNARY("Atan", 7, aril_atan),
    UNARY("Atanh", 9, aril_atanh),
    UNARY("Ceil", 1, aril_ceil),
    UNARY("Cos", 7, aril_cos),
    UNARY("Cosh", 9, aril_cosh),
    UNARY("Erf", 9, aril_erf),
    UNARY("Exp", 1, aril_exp),
    UNARY("Floor", 1, aril_floor),
    UNARY("HardSwish", 14, aril_hardswish),
    UNARY("Log", 1, aril_log),
    UNARY("Mish", 18, aril_mish),
    UNARY("Neg", 1, aril_neg),
    UNARY("Not", 1, aril_logical_not),
    UNARY("Reciprocal", 1, aril_reciprocal),
    UNARY("Relu", 1, aril_relu),
    UNARY("Round", 11, aril_round),
    UNARY("Sigmoid", 1, aril_sigmoid),
    UNARY("Sign", 9, aril_sign),
    UNARY("Sin", 7, aril_sin),
    UNARY("Sinh", 9, aril_sinh),
    UNARY("Softsign", 1, aril_softsign),
    UNARY("Sqrt", 1, aril_sqrt),
    UNARY("Tan", 7, aril_tan),
    UNARY("Tanh", 1, aril_tanh),
    UNARY("BitwiseNot", 18, aril_bitwise_not),
    PREDICATE("IsNaN", 9, aril_isnan),
    RULE("IsInf", 10, is_inf),
    BINARY("Add", 1, aril_add),
    BINARY("Sub", 1, aril_sub),
    { "", "Mul", 1, 0, multiply, NULL, aril_mul, ONNX_OPEN_ALL },
    RULE_FLAGS("Div", 1, divide, ONNX_OPEN_ALL),
    RULE("Mod", 10, mod),
    RULE("Pow", 1, power),
    RULE_FLAGS("Equal", 1, equal, ONNX_OPEN_ALL | ONNX_TELLS | ONNX_MOVES),
    BINARY("Less", 1, aril_lt),
    BINARY("LessOrEqual", 12, aril_le),
    BINARY("Greater", 1, aril_gt),
    BINARY("GreaterOrEqual", 12, aril_ge),
    BINARY("And", 1, aril_logical_and),
    BINARY("Or", 1, aril_logical_or),
    BINARY("Xor", 1, aril_logical_xor),
    BINARY("BitwiseAnd", 18, aril_bitwise_and),
    BINARY("BitwiseOr", 18, aril_bitwise_or),
    BINARY("BitwiseXor", 18, aril_bitwise_xor),
    RULE("BitShift", 11, bit_shift),
    VARIADIC("Max", 1, aril_maximum),
    VARIADIC("Min", 1, aril_minimum),
    VARIADIC("Sum", 1, aril_add),
    VARIADIC("Mean", 1, aril_add),
    RULE("LeakyRelu", 1, leaky_relu),
    RULE("Elu", 1, elu),
    RULE("Celu", 12, celu),
    RULE("Selu", 1, selu),
    RULE("HardSigmoid", 1, hard_sigmoid),
    RULE("ThresholdedRelu", 10, thresholded_relu),
    RULE("Softplus", 1, softplus),
    RULE("Gelu", 20, gelu),
    RULE("Swish", 24, swish),
    RULE("SwiGLU", 28, swiglu),
    RULE("Shrink", 9, shrink),
    RULE("PRelu", 1, prelu),
    RULE("Clip", 1, clip),
    RULE_FLAGS("Where", 9, where, ONNX_MOVES | ONNX_OPEN_0 << 1 | ONNX_OPEN_0 << 2),
    RULE_FLAGS("Cast", 1, cast, ONNX_OPEN_0),
    RULE("CastLike", 15, cast_like),
    RULE("BitCast", 26, bit_cast),
    RULE_FLAGS("Identity", 1, identity, ONNX_OPEN_0),
    { 0 },
};
