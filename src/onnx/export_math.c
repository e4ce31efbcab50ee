/* Rows of elementwise ops. Those without a row are written by their formulas. */
#include "onnx/export_rules.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/copy.h"

#include <math.h>
#include <string.h>

/* ---- dtypes ---- */

#define FLOATS  DT_FLOAT
#define WIDE    (DT_FLOAT | DT(ARIL_U32) | DT(ARIL_U64) | DT(ARIL_I32) | DT(ARIL_I64))
#define NUMBERS (DT_FLOAT | DT_INT)
#define SIGNED  (DT_FLOAT | DT(ARIL_I8) | DT(ARIL_I16) | DT(ARIL_I32) | DT(ARIL_I64))

aril_dtype aril__export_type(const export_call *c)
{
    const aril__formula *f = c->op->formula;
    aril_tensor like[8], *at[8];
    int n = 0;
    if (!f || f->rule != ARIL__EW_CMP) return dtype_out(c, 0);
    for (int i = 0; i < c->n_in && n < 8; i++) {
        if (!has(c, i)) continue;
        memset(&like[n], 0, sizeof like[n]);
        like[n].dtype = value_in(c, i)->dtype;
        like[n].ndim = value_in(c, i)->ndim;
        like[n].flags = value_in(c, i)->tensor_flags;
        at[n] = &like[n];
        n++;
    }
    return aril__result_type(n, at);
}

aril_dtype aril__export_wide(aril_dtype type, uint32_t types)
{
    if (!types || types & DT(type)) return type;
    if (aril__is_float(type)) return ARIL_F32;
    if (type == ARIL_U64 && types & DT(ARIL_U64)) return ARIL_U64;
    if (type != ARIL_U32 && type != ARIL_U64 && types & DT(ARIL_I32)) return ARIL_I32;
    return types & DT(ARIL_I64) ? ARIL_I64 : ARIL_F64;
}

aril_status aril__export_typed(export_call *c, const char *onnx, uint32_t types, export_attrs attrs)
{
    aril_dtype type = aril__export_type(c), wide = aril__export_wide(type, types);
    export_value *in[8];
    for (int i = 0; i < c->n_in && i < 8; i++) in[i] = aril__export_in_as(c, i, wide);
    export_value *y = put(c, onnx, (export_values){ c->n_in, in }, attrs);
    bool is_test = c->op->formula && c->op->formula->rule == ARIL__EW_CMP;
    return set_out(c, 0, is_test ? y : aril__export_cast(c, y, wide, dtype_out(c, 0)));
}

/* The attributes of one number that ONNX has too. */
static int plain_attrs(const export_call *c, export_attr *to)
{
    int n = 0;
    for (int i = 0; i < c->op->n_attrs && c->attrs; i++) {
        const aril__attr *a = &c->op->attrs[i];
        const char *at = (const char *)c->attrs + a->offset;
        if (!a->onnx || a->count != 1) continue;
        if (a->type == ARIL__F64)
            to[n++] = attr_float(a->onnx, *(const double *)(const void *)at);
        else
            to[n++] = attr_int(a->onnx, *(const int64_t *)(const void *)at);
    }
    return n;
}

aril_status aril__export_same(export_call *c)
{
    export_attr attr[8];
    export_attrs attrs = { plain_attrs(c, attr), attr };
    if (c->op->formula) return aril__export_typed(c, c->rule->onnx, c->rule->types, attrs);
    aril_dtype wide = aril__export_wide(dtype_in(c, 0), c->rule->types);
    export_value *in[8];
    for (int i = 0; i < c->n_in && i < 8; i++)
        in[i] = i == 0 ? aril__export_in_as(c, 0, wide) : aril__export_in(c, i);
    export_value *y = put(c, c->rule->onnx, (export_values){ c->n_in, in }, attrs);
    return set_out(c, 0,
                   wide == dtype_in(c, 0) ? y : aril__export_cast(c, y, wide, dtype_out(c, 0)));
}

static const double *params(const export_call *c)
{
    return ((const struct ew_attrs *)c->attrs)->p;
}

/* ---- operators with other attributes or inputs ---- */

static aril_status with_alpha(export_call *c)
{
    return aril__export_typed(c, c->rule->onnx, c->rule->types,
                              ATTRIBUTES(attr_float("alpha", params(c)[0])));
}

static aril_status fmod_write(export_call *c)
{
    return aril__export_typed(c, "Mod", NUMBERS, ATTRIBUTES(attr_int("fmod", 1)));
}

/* Rounding leaves integers as they are. */
static bool is_integer(const export_call *c)
{
    return !aril__is_float(dtype_out(c, 0));
}

static aril_status identity(export_call *c)
{
    return set_out(c, 0,
                   put(c, "Identity", VALUES(aril__export_in_as(c, 0, dtype_out(c, 0))), NO_ATTRS));
}

static bool is_scalar(const export_call *c, int i)
{
    return ndim_in(c, i) == 0;
}

/* Bounds of Clip are scalars. */
static aril_status clamp(export_call *c)
{
    bool low = strcmp(c->op->name, "clamp_max") != 0, high = strcmp(c->op->name, "clamp_min") != 0;
    int last = low && high ? 2 : 1;
    aril_dtype type = dtype_out(c, 0), wide = aril__export_wide(type, NUMBERS);
    if (!is_scalar(c, 1) || !is_scalar(c, last)) return ARIL__EXPORT_DECLINED;
    export_value *y =
        put(c, "Clip",
            VALUES(aril__export_in_as(c, 0, wide), low ? aril__export_in_as(c, 1, wide) : NULL,
                   high ? aril__export_in_as(c, last, wide) : NULL),
            NO_ATTRS);
    return set_out(c, 0, aril__export_cast(c, y, wide, type));
}

static aril_status clip_to(export_call *c, double low, double high)
{
    aril_dtype type = dtype_out(c, 0);
    return set_out(c, 0,
                   put(c, "Clip",
                       VALUES(aril__export_in_as(c, 0, type),
                              isnan(low) ? NULL : aril__export_number(c, low, type),
                              isnan(high) ? NULL : aril__export_number(c, high, type)),
                       NO_ATTRS));
}

static aril_status relu6(export_call *c)
{
    return clip_to(c, 0, 6);
}

static aril_status hardtanh(export_call *c)
{
    return clip_to(c, params(c)[0], params(c)[1]);
}

/* One slope for each channel is broadcast to the input, not the other way round. */
static bool slope_fits(const export_call *c)
{
    const int64_t *x = dims_in(c, 0), *y = dims_out(c, 0);
    bool same = ndim_in(c, 0) == ndim_out(c, 0);
    for (int d = 0; d < ndim_out(c, 0) && same; d++) same = x[d] == y[d];
    return same;
}

static aril_status gelu(export_call *c)
{
    bool tanh = strcmp(c->op->name, "gelu_tanh") == 0;
    return aril__export_typed(c, "Gelu", FLOATS,
                              ATTRIBUTES(attr_text("approximate", tanh ? "tanh" : "none")));
}

static bool is_f32(const export_call *c)
{
    return dtype_out(c, 0) == ARIL_F32;
}

/* Attributes are f32: where f64 needs more, the formula is written. */
static bool is_not_f64(const export_call *c)
{
    return dtype_out(c, 0) != ARIL_F64;
}

static bool is_exact(const export_call *c)
{
    double p = params(c)[0];
    return is_not_f64(c) || (double)(float)p == p;
}

static bool is_plain_softplus(const export_call *c)
{
    return params(c)[0] == 1 && params(c)[1] >= 20;
}

static aril_status plain(export_call *c)
{
    return aril__export_typed(c, c->rule->onnx, c->rule->types, NO_ATTRS);
}

static aril_status hardsigmoid(export_call *c)
{
    return aril__export_typed(c, "HardSigmoid", FLOATS,
                              ATTRIBUTES(attr_float("alpha", 1.0 / 6), attr_float("beta", 0.5)));
}

static aril_status shrink(export_call *c)
{
    double by = params(c)[0];
    bool soft = strcmp(c->op->name, "softshrink") == 0;
    return aril__export_typed(c, "Shrink", FLOATS,
                              ATTRIBUTES(attr_float("lambd", by),
                                         attr_float("bias", soft ? by : 0)));
}

static bool is_thresholded(const export_call *c)
{
    return params(c)[1] == 0 && aril__is_float(dtype_out(c, 0)) && is_exact(c);
}

static aril_status not_equal(export_call *c)
{
    aril_dtype type = aril__export_type(c);
    export_value *same =
        put(c, "Equal", VALUES(aril__export_in_as(c, 0, type), aril__export_in_as(c, 1, type)),
            NO_ATTRS);
    return set_out(c, 0, put(c, "Not", VALUES(same), NO_ATTRS));
}

static bool is_real(const export_call *c)
{
    return aril__is_float(aril__export_type(c));
}

/* Nonzero elements are true. */
static aril_status logical(export_call *c)
{
    export_value *in[2];
    for (int i = 0; i < c->n_in; i++) in[i] = aril__export_in_as(c, i, ARIL_BOOL);
    return set_out(c, 0, put(c, c->rule->onnx, (export_values){ c->n_in, in }, NO_ATTRS));
}

static bool is_bool(const export_call *c)
{
    return dtype_out(c, 0) == ARIL_BOOL;
}

static aril_status where_write(export_call *c)
{
    aril_dtype type = dtype_out(c, 0);
    return set_out(c, 0,
                   put(c, "Where",
                       VALUES(aril__export_in_as(c, 0, ARIL_BOOL), aril__export_in_as(c, 1, type),
                              aril__export_in_as(c, 2, type)),
                       NO_ATTRS));
}

static aril_status cast_write(export_call *c)
{
    aril_dtype to = dtype_out(c, 0);
    if (to > ARIL_F64 && aril__is_float(to) && to != ARIL_BF16 && c->opset < 19)
        return aril__export_fail(c->model, "cast: %s is a type of operator set 19 and later",
                                 aril__dtypes[to].name);
    export_value *x = aril__export_in(c, 0);
    if (dtype_in(c, 0) == to) return set_out(c, 0, put(c, "Identity", VALUES(x), NO_ATTRS));
    return set_out(c, 0, aril__export_cast(c, x, dtype_in(c, 0), to));
}

static aril_status shift_unsigned(export_call *c)
{
    bool left = strcmp(c->op->name, "shift_left") == 0;
    return aril__export_typed(c, "BitShift", 0,
                              ATTRIBUTES(attr_text("direction", left ? "LEFT" : "RIGHT")));
}

static bool is_unsigned(const export_call *c)
{
    aril_dtype t = dtype_out(c, 0);
    return t == ARIL_U8 || t == ARIL_U16 || t == ARIL_U32 || t == ARIL_U64;
}

/* ---- in other ops ---- */

#define A c->in[0]
#define B c->in[1]

/* Elementwise inputs in the dtype that the op computes in. */
static aril_tensor *x_of(aril__call *c, int i)
{
    return c->in[i]->flags & ARIL__WEAK ? c->in[i] : aril_cast(c->in[i], c->type);
}

/* Integers of 64 bits, which no float holds: division towards 0, less 1 where signs differ and
 * something is left. */
static aril_status floor_div_wide(export_call *c)
{
    aril_dtype type = aril__export_type(c);
    if (type != ARIL_I64 && type != ARIL_U64) return ARIL__EXPORT_DECLINED;
    export_value *a = aril__export_in_as(c, 0, type), *b = aril__export_in_as(c, 1, type);
    export_value *q = put(c, "Div", VALUES(a, b), NO_ATTRS);
    if (type == ARIL_U64) return set_out(c, 0, q);
    export_value *zero = aril__export_number(c, 0, type);
    export_value *rest = put(c, "Sub", VALUES(a, put(c, "Mul", VALUES(q, b), NO_ATTRS)), NO_ATTRS);
    export_value *signs = put(c, "Xor",
                              VALUES(put(c, "Less", VALUES(rest, zero), NO_ATTRS),
                                     put(c, "Less", VALUES(b, zero), NO_ATTRS)),
                              NO_ATTRS);
    export_value *some =
        put(c, "Not", VALUES(put(c, "Equal", VALUES(rest, zero), NO_ATTRS)), NO_ATTRS);
    export_value *less = put(c, "And", VALUES(signs, some), NO_ATTRS);
    return set_out(c, 0,
                   put(c, "Sub", VALUES(q, aril__export_cast(c, less, ARIL_BOOL, type)), NO_ATTRS));
}

static aril_tensor *one_minus(aril_tensor *x)
{
    return aril_rsub_scalar(x, 1);
}

static void floor_div(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *b = x_of(c, 1);
    if (aril__is_float(c->type))
        out[0] = aril_floor(aril_div(a, b));
    else
        out[0] = aril_cast(aril_floor(aril_div(aril_cast(a, ARIL_F64), aril_cast(b, ARIL_F64))),
                           c->type);
}

static void remainder_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *b = x_of(c, 1);
    out[0] = aril_sub(a, aril_mul(b, aril_floor(aril_div(a, b))));
}

/* x with a sign: of y, which may be zero. */
static aril_tensor *negative(aril_tensor *y)
{
    aril_tensor *zero = aril_eq_scalar(y, 0);
    aril_tensor *below = aril_lt_scalar(aril_reciprocal(y), 0); /* 1 / -0 */
    return aril_logical_or(aril_lt_scalar(y, 0), aril_logical_and(zero, below));
}

static void copysign_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = aril_abs(x_of(c, 0)), *b = x_of(c, 1);
    out[0] = aril_where(negative(b), aril_neg(a), a);
}

static void signbit_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril__is_float((aril_dtype)A->dtype) ? negative(A) : aril_lt_scalar(A, 0);
}

static void trunc_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_mul(aril_sign(A), aril_floor(aril_abs(A)));
}

static void isnan_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_ne(A, A);
}

static void isinf_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_logical_and(aril_eq(A, A), aril_ne(A, A)); /* never, for integers */
}

static void isfinite_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_logical_not(aril_logical_or(aril_isnan(A), aril_isinf(A)));
}

static void hypot_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = aril_abs(x_of(c, 0)), *b = aril_abs(x_of(c, 1));
    aril_tensor *max = aril_maximum(a, b), *min = aril_minimum(a, b);
    aril_tensor *zero = aril_eq_scalar(max, 0);
    aril_tensor *ratio = aril_div(min, aril_where(zero, aril_ones_like(max), max));
    out[0] = aril_mul(max, aril_sqrt(aril_add_scalar(aril_square(ratio), 1)));
}

static void logaddexp_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *b = x_of(c, 1);
    aril_tensor *apart = aril_neg(aril_abs(aril_sub(a, b)));
    out[0] = aril_add(aril_maximum(a, b), aril_log1p(aril_exp(apart)));
}

/* Without cancellation near 0. */
static void expm1_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *t = aril_tanh(aril_mul_scalar(a, 0.5));
    aril_tensor *near = aril_div(aril_mul_scalar(t, 2), one_minus(t));
    out[0] = aril_where(aril_lt_scalar(aril_abs(a), 1), near, aril_add_scalar(aril_exp(a), -1));
}

static void log1p_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *u = aril_add_scalar(a, 1);
    aril_tensor *one = aril_eq_scalar(u, 1);
    aril_tensor *by = aril_where(one, aril_ones_like(u), aril_add_scalar(u, -1));
    aril_tensor *far = aril_div(aril_mul(aril_log(u), a), by);
    aril_tensor *large = aril_isinf(u);
    out[0] = aril_where(one, a, aril_where(large, aril_log(u), far));
}

static void exp2_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0);
    out[0] = aril_pow(aril_full(ARIL_SHAPE(), 2, c->type, aril_cpu()), a);
}

static void log2_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_mul_scalar(aril_log(x_of(c, 0)), 1.44269504088896340736);
}

static void log10_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_mul_scalar(aril_log(x_of(c, 0)), 0.43429448190325182765);
}

static void erfc_of(aril__call *c, aril_tensor **out)
{
    out[0] = one_minus(aril_erf(x_of(c, 0)));
}

static void gelu_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *e = aril_erf(aril_mul_scalar(a, 0.70710678118654752440));
    out[0] = aril_mul(aril_mul_scalar(a, 0.5), aril_add_scalar(e, 1));
}

static void atan2_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = x_of(c, 0), *b = x_of(c, 1), *zero = aril_eq_scalar(b, 0);
    aril_tensor *at = aril_atan(aril_div(a, aril_where(zero, aril_ones_like(b), b)));
    aril_tensor *half = aril_mul_scalar(aril_sign(a), 1.57079632679489661923);
    aril_tensor *turn = aril_where(negative(a), aril_full_like(at, -3.14159265358979323846),
                                   aril_full_like(at, 3.14159265358979323846));
    aril_tensor *y = aril_where(aril_lt_scalar(b, 0), aril_add(at, turn), at);
    out[0] = aril_where(zero, half, y);
}

static void shift_left(aril__call *c, aril_tensor **out)
{
    aril_tensor *two = aril_full(ARIL_SHAPE(), 2, c->type, aril_cpu());
    out[0] = aril_mul(x_of(c, 0), aril_pow(two, x_of(c, 1)));
}

static void shift_right(aril__call *c, aril_tensor **out)
{
    aril_tensor *two = aril_full(ARIL_SHAPE(), 2, c->type, aril_cpu());
    out[0] = aril_floor_div(x_of(c, 0), aril_pow(two, x_of(c, 1)));
}

/* sum of c[k] * x^k */
static aril_tensor *polynomial(aril_tensor *x, int n, const double *coefficient)
{
    aril_tensor *y = aril_full_like(x, coefficient[n - 1]);
    for (int k = n - 2; k >= 0; k--) y = aril_add_scalar(aril_mul(y, x), coefficient[k]);
    return y;
}

/* Lanczos' series, for x > 0.5; reflected below. */
static void lgamma_of(aril__call *c, aril_tensor **out)
{
    static const double g[] = { 676.5203681218851,     -1259.1392167224028,  771.32342877765313,
                                -176.61502916214059,   12.507343278686905,   -0.13857109526572012,
                                9.9843695780195716e-6, 1.5056327351493116e-7 };
    aril_tensor *x = aril_cast(x_of(c, 0), ARIL_F64), *low = aril_lt_scalar(x, 0.5);
    aril_tensor *z = aril_add_scalar(aril_where(low, one_minus(x), x), -1);
    aril_tensor *sum = aril_full_like(z, 0.99999999999980993);
    for (int k = 0; k < 8; k++)
        sum = aril_add(sum, aril_mul_scalar(aril_reciprocal(aril_add_scalar(z, k + 1)), g[k]));
    aril_tensor *t = aril_add_scalar(z, 7.5);
    aril_tensor *y = aril_add(aril_sub(aril_mul(aril_add_scalar(z, 0.5), aril_log(t)), t),
                              aril_add_scalar(aril_log(sum), 0.91893853320467274178));
    aril_tensor *sine = aril_abs(aril_sin(aril_mul_scalar(x, 3.14159265358979323846)));
    aril_tensor *other = aril_sub(aril_rsub_scalar(aril_log(sine), 1.14472988584940017414), y);
    out[0] = aril_cast(aril_where(low, other, y), c->type);
}

/* Moved to x + 8 by the recurrence, where the asymptotic series is exact; reflected below 0. */
static void digamma_of(aril__call *c, aril_tensor **out)
{
    static const double s[] = { 0,         -1.0 / 12,  1.0 / 120,    -1.0 / 252,
                                1.0 / 240, -1.0 / 132, 691.0 / 32760 };
    aril_tensor *x = aril_cast(x_of(c, 0), ARIL_F64), *low = aril_lt_scalar(x, 0);
    aril_tensor *z = aril_where(low, one_minus(x), x), *sum = aril_zeros_like(z);
    for (int k = 0; k < 8; k++) sum = aril_add(sum, aril_reciprocal(aril_add_scalar(z, k)));
    aril_tensor *w = aril_add_scalar(z, 8), *r = aril_reciprocal(w);
    aril_tensor *y = aril_sub(aril_add(aril_sub(aril_log(w), aril_mul_scalar(r, 0.5)),
                                       polynomial(aril_square(r), 7, s)),
                              sum);
    aril_tensor *turn = aril_mul_scalar(x, 3.14159265358979323846);
    aril_tensor *other = aril_sub(y, aril_mul_scalar(aril_div(aril_cos(turn), aril_sin(turn)),
                                                     3.14159265358979323846));
    out[0] = aril_cast(aril_where(low, other, y), c->type);
}

/* Euler and Maclaurin: ten terms, the integral, and corrections. */
static aril_tensor *zeta_sum(aril_tensor *s, aril_tensor *q)
{
    static const double b[] = { 1.0 / 12,       -1.0 / 720,     1.0 / 30240,
                                -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0 };
    aril_tensor *sum = aril_zeros_like(aril_add(s, q)), *n = aril_neg(s);
    for (int k = 0; k < 10; k++) sum = aril_add(sum, aril_pow(aril_add_scalar(q, k), n));
    aril_tensor *w = aril_add_scalar(q, 10), *power = aril_pow(w, n);
    aril_tensor *less = aril_add_scalar(s, -1);
    sum = aril_add(sum, aril_div(aril_mul(power, w), less));
    sum = aril_add(sum, aril_mul_scalar(power, 0.5));
    aril_tensor *term = aril_div(aril_mul(s, power), w);
    for (int k = 0; k < 6; k++) {
        sum = aril_add(sum, aril_mul_scalar(term, b[k]));
        aril_tensor *rise = aril_mul(aril_add_scalar(s, 2 * k + 1), aril_add_scalar(s, 2 * k + 2));
        term = aril_div(aril_mul(term, rise), aril_square(w));
    }
    return sum;
}

static void zeta_of(aril__call *c, aril_tensor **out)
{
    out[0] = aril_cast(zeta_sum(aril_cast(A, ARIL_F64), aril_cast(B, ARIL_F64)), c->type);
}

static void trigamma_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *x = aril_cast(A, ARIL_F64);
    out[0] = aril_cast(zeta_sum(aril_full_like(x, 2), x), c->type);
}

/* A first guess from logarithms, and three steps of Newton's method. */
static void erfinv_of(aril__call *c, aril_tensor **out)
{
    aril_tensor *x = aril_cast(A, ARIL_F64),
                *a = aril_full(ARIL_SHAPE(), 0.147, ARIL_F64, aril_cpu());
    aril_tensor *l = aril_log(one_minus(aril_square(x)));
    aril_tensor *t = aril_add_scalar(aril_mul_scalar(l, 0.5), 2 / (3.14159265358979323846 * 0.147));
    aril_tensor *y =
        aril_mul(aril_sign(x),
                 aril_sqrt(aril_sub(aril_sqrt(aril_sub(aril_square(t), aril_div(l, a))), t)));
    for (int k = 0; k < 3; k++) {
        aril_tensor *slope =
            aril_mul_scalar(aril_exp(aril_neg(aril_square(y))), 1.12837916709551257390);
        y = aril_sub(y, aril_div(aril_sub(aril_erf(y), x), slope));
    }
    out[0] = aril_cast(y, c->type);
}

#undef A
#undef B

/* ---- rows ---- */

#define TAKES(op_, from_, onnx_, types_, fn, test)                                           \
    {                                                                                        \
        .op = op_, .from = from_, .onnx = onnx_, .types = types_, .write = fn, .takes = test \
    }

const export_rule aril__export_math_rules[] = {
    SAME("add", 14, "Add", NUMBERS),
    SAME("add", 13, "Add", WIDE),
    SAME("sub", 14, "Sub", NUMBERS),
    SAME("sub", 13, "Sub", WIDE),
    SAME("mul", 14, "Mul", NUMBERS),
    SAME("mul", 13, "Mul", WIDE),
    SAME("div", 13, "Div", FLOATS),
    WRITE("floor_div", 13, "Div", floor_div_wide),
    LOWER("floor_div", floor_div),
    { .op = "remainder", .from = 13, .lower = remainder_of, .takes = is_real },
    SAME("remainder", 13, "Mod", NUMBERS),
    WRITE("fmod", 13, "Mod", fmod_write),
    SAME("pow", 13, "Pow", DT_FLOAT | DT(ARIL_I32) | DT(ARIL_I64)),
    SAME("maximum", 13, "Max", NUMBERS),
    SAME("minimum", 13, "Min", NUMBERS),
    LOWER("atan2", atan2_of),
    LOWER("hypot", hypot_of),
    LOWER("logaddexp", logaddexp_of),
    WRITE("clamp", 13, "Clip", clamp),
    WRITE("clamp_min", 13, "Clip", clamp),
    WRITE("clamp_max", 13, "Clip", clamp),
    SAME("neg", 13, "Neg", SIGNED),
    SAME("abs", 13, "Abs", NUMBERS),
    SAME("sign", 13, "Sign", NUMBERS),
    SAME("reciprocal", 13, "Reciprocal", FLOATS),
    SAME("sqrt", 13, "Sqrt", FLOATS),
    SAME("exp", 13, "Exp", FLOATS),
    LOWER("expm1", expm1_of),
    LOWER("exp2", exp2_of),
    SAME("log", 13, "Log", FLOATS),
    LOWER("log1p", log1p_of),
    LOWER("log2", log2_of),
    LOWER("log10", log10_of),
    SAME("sin", 13, "Sin", FLOATS),
    SAME("cos", 13, "Cos", FLOATS),
    SAME("tan", 13, "Tan", FLOATS),
    SAME("asin", 13, "Asin", FLOATS),
    SAME("acos", 13, "Acos", FLOATS),
    SAME("atan", 13, "Atan", FLOATS),
    SAME("sinh", 13, "Sinh", FLOATS),
    SAME("cosh", 13, "Cosh", FLOATS),
    SAME("tanh", 13, "Tanh", FLOATS),
    SAME("asinh", 13, "Asinh", FLOATS),
    SAME("acosh", 13, "Acosh", FLOATS),
    SAME("atanh", 13, "Atanh", FLOATS),
    SAME("erf", 13, "Erf", FLOATS),
    LOWER("erfc", erfc_of),
    LOWER("lgamma", lgamma_of),
    LOWER("digamma", digamma_of),
    LOWER("trigamma", trigamma_of),
    LOWER("zeta", zeta_of),
    LOWER("erfinv", erfinv_of),
    TAKES("floor", 13, "Identity", 0, identity, is_integer),
    TAKES("ceil", 13, "Identity", 0, identity, is_integer),
    TAKES("round", 13, "Identity", 0, identity, is_integer),
    TAKES("trunc", 13, "Identity", 0, identity, is_integer),
    SAME("floor", 13, "Floor", FLOATS),
    SAME("ceil", 13, "Ceil", FLOATS),
    SAME("round", 13, "Round", FLOATS),
    LOWER("trunc", trunc_of),
    LOWER("copysign", copysign_of),
    LOWER("signbit", signbit_of),
    SAME("sigmoid", 13, "Sigmoid", FLOATS),
    SAME("relu", 14, "Relu", SIGNED),
    SAME("relu", 13, "Relu", FLOATS),
    WRITE("relu6", 13, "Clip", relu6),
    TAKES("leaky_relu", 13, "LeakyRelu", FLOATS, with_alpha, is_exact),
    TAKES("prelu", 13, "PRelu", FLOATS, plain, slope_fits),
    TAKES("elu", 13, "Elu", FLOATS, with_alpha, is_exact),
    TAKES("selu", 13, "Selu", FLOATS, plain, is_not_f64),
    TAKES("celu", 13, "Celu", FLOATS, with_alpha, is_f32),
    WRITE("gelu", 20, "Gelu", gelu),
    LOWER("gelu", gelu_of),
    WRITE("gelu_tanh", 20, "Gelu", gelu),
    WRITE_TYPES("mish", 18, "Mish", FLOATS, plain),
    TAKES("softplus", 13, "Softplus", FLOATS, plain, is_plain_softplus),
    WRITE_TYPES("softsign", 13, "Softsign", FLOATS, plain),
    WRITE("hardtanh", 13, "Clip", hardtanh),
    TAKES("hardsigmoid", 13, "HardSigmoid", 0, hardsigmoid, is_not_f64),
    WRITE_TYPES("hardswish", 14, "HardSwish", FLOATS, plain),
    TAKES("softshrink", 13, "Shrink", 0, shrink, is_exact),
    TAKES("hardshrink", 13, "Shrink", 0, shrink, is_exact),
    TAKES("threshold", 13, "ThresholdedRelu", FLOATS, with_alpha, is_thresholded),
    TAKES("isnan", 13, "IsNaN", FLOATS, plain, is_real),
    LOWER("isnan", isnan_of),
    TAKES("isinf", 20, "IsInf", FLOATS, plain, is_real),
    TAKES("isinf", 13, "IsInf", DT(ARIL_F32) | DT(ARIL_F64), plain, is_real),
    LOWER("isinf", isinf_of),
    LOWER("isfinite", isfinite_of),
    SAME("eq", 13, "Equal", 0),
    WRITE("ne", 13, "Equal", not_equal),
    SAME("lt", 13, "Less", NUMBERS),
    SAME("le", 13, "LessOrEqual", NUMBERS),
    SAME("gt", 13, "Greater", NUMBERS),
    SAME("ge", 13, "GreaterOrEqual", NUMBERS),
    WRITE("logical_and", 13, "And", logical),
    WRITE("logical_or", 13, "Or", logical),
    WRITE("logical_xor", 13, "Xor", logical),
    WRITE("logical_not", 13, "Not", logical),
    TAKES("bitwise_and", 13, "And", 0, logical, is_bool),
    TAKES("bitwise_or", 13, "Or", 0, logical, is_bool),
    TAKES("bitwise_xor", 13, "Xor", 0, logical, is_bool),
    TAKES("bitwise_not", 13, "Not", 0, logical, is_bool),
    SAME("bitwise_and", 18, "BitwiseAnd", 0),
    SAME("bitwise_or", 18, "BitwiseOr", 0),
    SAME("bitwise_xor", 18, "BitwiseXor", 0),
    SAME("bitwise_not", 18, "BitwiseNot", 0),
    TAKES("shift_left", 13, "BitShift", 0, shift_unsigned, is_unsigned),
    TAKES("shift_right", 13, "BitShift", 0, shift_unsigned, is_unsigned),
    LOWER("shift_left", shift_left),
    LOWER("shift_right", shift_right),
    WRITE("where", 13, "Where", where_write),
    WRITE("cast", 13, "Cast", cast_write),
    { .op = NULL },
};
