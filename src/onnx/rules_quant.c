/* Quantization. */
#include "onnx/rules.h"
#include "ops/linalg/integer.h"
#include "ops/vision/conv.h"

#include <inttypes.h>

/* ---- ranges ---- */

static bool range_of(aril_dtype dtype, double *low, double *high)
{
    int bits = aril_dtype_bits(dtype);
    switch (dtype) {
    case ARIL_U8:
    case ARIL_U16:
    case ARIL_U4:
    case ARIL_U2:
        *low = 0;
        *high = (double)((1 << bits) - 1);
        return true;
    case ARIL_I8:
    case ARIL_I16:
    case ARIL_I4:
    case ARIL_I2:
        *low = (double)-(1 << (bits - 1));
        *high = (double)((1 << (bits - 1)) - 1);
        return true;
    default: return false;
    }
}

/* A scale or zero point in the form that broadcasts to x: of the whole, of each index of an axis,
 * or of each block along the axis. */
static aril_tensor *spread(onnx_call *c, aril_tensor *v, const aril_tensor *x)
{
    int64_t block = aril__onnx_attr_int(c, "block_size", 0);
    if (!v || aril_numel(v) == 1) return v ? aril_reshape(v, ARIL_SHAPE()) : NULL;
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 1), aril_ndim(x));
    if (axis < 0) return v;
    if (block > 0)
        return aril_narrow(aril_repeat_interleave(v, block, axis), axis, 0, aril_size(x, axis));
    for (int i = axis + 1; i < aril_ndim(x) && aril_ndim(v) < aril_ndim(x); i++)
        v = aril_unsqueeze(v, -1);
    return v;
}

/* clamp(round(x) + zero) */
static aril_tensor *to_integers(aril_tensor *x, aril_tensor *zero, aril_dtype to)
{
    double low, high;
    range_of(to, &low, &high);
    aril_tensor *y = aril_round(x);
    if (zero) y = aril_add(y, aril_cast(zero, aril_dtype_of(y)));
    y = aril_clamp(y, low, high);
    return aril_dtype_bits(to) < 8 ? aril_cast(aril_cast(y, ARIL_I32), to) : aril_cast(y, to);
}

static aril_status quantize(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *scale = spread(c, in(c, 1), x), *zero = in(c, 2);
    aril_dtype to = ARIL_U8;
    double low, high;
    if (aril__onnx_attr_int(c, "output_dtype", 0))
        aril__onnx_dtype(aril__onnx_attr_int(c, "output_dtype", 0), &to);
    if (zero) to = aril_dtype_of(zero);
    bool small = !range_of(to, &low, &high);
    if (zero && small) zero = aril_cast(zero, ARIL_F32);
    if (zero && !small) zero = aril_cast(aril_cast(zero, ARIL_I32), ARIL_F32);
    zero = spread(c, zero, x);
    aril_tensor *f = aril_dtype_of(x) == ARIL_F64 ? x : aril_cast(x, ARIL_F32);
    f = aril_div(f, aril_cast(scale, aril_dtype_of(f)));
    if (aril_dtype_of(x) == ARIL_F16 || aril_dtype_of(x) == ARIL_BF16) /* divided in that type */
        f = aril_cast(aril_cast(f, aril_dtype_of(x)), ARIL_F32);
    if (!small) return give(c, 0, to_integers(f, zero, to));
    if (zero && to == ARIL_F4E2M1) f = aril_add(f, zero);
    bool saturate = aril__onnx_attr_int(c, "saturate", 1) != 0;
    return give(c, 0, aril__onnx_small_float(f, to, saturate, "up"));
}

static aril_tensor *less_zero(aril_tensor *x, aril_tensor *zero)
{
    aril_tensor *f = aril_cast(x, ARIL_F32);
    return zero ? aril_sub(f, aril_cast(zero, ARIL_F32)) : f;
}

static aril_status dequantize(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *scale = in(c, 1), *zero = in(c, 2);
    aril_dtype to = aril_dtype_of(scale);
    if (aril__onnx_attr_int(c, "output_dtype", 0))
        aril__onnx_dtype(aril__onnx_attr_int(c, "output_dtype", 0), &to);
    if (zero) zero = spread(c, aril_cast(zero, ARIL_F32), x);
    aril_tensor *y = aril_mul(less_zero(x, zero), spread(c, aril_cast(scale, ARIL_F32), x));
    return give(c, 0, aril_cast(y, to));
}

void aril__onnx_quantize_dynamic(onnx_call *c, aril_tensor *x, aril_tensor **to)
{
    aril_tensor *low = aril_minimum(aril_amin(x, ARIL_ALL),
                                    aril_zeros(ARIL_SHAPE(), ARIL_F32, aril__onnx_device(c)));
    aril_tensor *high = aril_maximum(aril_amax(x, ARIL_ALL),
                                     aril_zeros(ARIL_SHAPE(), ARIL_F32, aril__onnx_device(c)));
    aril_tensor *scale = aril_div_scalar(aril_sub(high, low), 255.0);
    aril_tensor *zero = aril_round(aril_clamp(aril_neg(aril_div(low, scale)), 0.0, 255.0));
    to[0] = to_integers(aril_div(x, scale), zero, ARIL_U8);
    to[1] = scale;
    to[2] = aril_cast(zero, ARIL_U8);
}

static aril_status dynamic_quantize(onnx_call *c)
{
    aril_tensor *to[3];
    aril__onnx_quantize_dynamic(c, in(c, 0), to);
    aril_status s = give(c, 0, to[0]);
    if (s == ARIL_OK) s = give(c, 1, to[1]);
    return s == ARIL_OK ? give(c, 2, to[2]) : s;
}

/* ---- products of integers ---- */

/* Integers less their zero point; exact in f64. */
static aril_tensor *exact(aril_tensor *x, aril_tensor *zero)
{
    aril_tensor *f = aril_cast(x, ARIL_F64);
    return zero ? aril_sub(f, aril_cast(zero, ARIL_F64)) : f;
}

/* A zero point or scale for each row of a matrix. */
static aril_tensor *per_row(aril_tensor *v)
{
    return v && aril_ndim(v) == 1 && aril_numel(v) > 1 ? aril_unsqueeze(v, 1) : v;
}

static bool is_byte(const aril_tensor *t)
{
    return aril_dtype_of(t) == ARIL_U8 || aril_dtype_of(t) == ARIL_I8;
}

/* NULL, or one number, or one for each column: what the op takes. */
static bool is_flat(const aril_tensor *t, int64_t columns)
{
    return !t || aril_numel(t) == 1 || (aril_ndim(t) == 1 && aril_size(t, 0) == columns);
}

static aril_tensor *flat(aril_tensor *t)
{
    return t && aril_numel(t) == 1 ? aril_reshape(t, ARIL_SHAPE()) : t;
}

/* Zero points of columns; NULL if they are known to be 0, as those of symmetric weights are. */
static aril_tensor *column_zeros(onnx_call *c, int i)
{
    aril_tensor *zero = in(c, i);
    const void *at;
    if (!zero || !c->in[i].known || aril_numel(zero) < 1) return zero;
    if (aril__onnx_host(c, zero, ARIL_I64, &at) != ARIL_OK) return zero;
    for (int64_t k = 0; k < aril_numel(zero); k++)
        if (((const int64_t *)at)[k]) return zero;
    return NULL;
}

static bool all_are_known(const onnx_call *c, const int *at, int n)
{
    bool known = true;
    for (int i = 0; i < n; i++) known &= !given(c, at[i]) || c->in[at[i]].known;
    return known;
}

/* a * b / y of three inputs: what sums of products are multiplied by. */
static aril_tensor *combined_scale(onnx_call *c, int a, int b, int y)
{
    bool known = all_are_known(c, (int[]){ a, b, y }, 3);
    aril__pause pause = { 0 };
    if (known) pause = aril__onnx_pause(c);
    aril_tensor *scale = aril_mul(flat(in(c, a)), flat(in(c, b)));
    scale = aril_contiguous(aril_cast(aril_div(scale, flat(in(c, y))), ARIL_F32));
    if (known) aril__onnx_resume(c, pause);
    return scale;
}

static aril_status matmul_integer(onnx_call *c)
{
    aril_tensor *a = in(c, 0), *b = in(c, 1), *a0 = in(c, 2), *b0 = column_zeros(c, 3);
    if (is_byte(a) && is_byte(b) && aril_ndim(b) == 2 && is_flat(a0, 1) &&
        is_flat(b0, aril_size(b, 1)))
        return give(c, 0, aril__op(&aril__op_matmul_integer, a, b, flat(a0), flat(b0)));
    a = aril_cast(exact(a, per_row(a0)), ARIL_I32);
    return give(c, 0, aril_matmul(a, aril_cast(exact(b, b0), ARIL_I32)));
}

static aril_status qlinear_matmul(onnx_call *c)
{
    aril_tensor *a = in(c, 0), *b = in(c, 3), *a0 = in(c, 2), *b0 = column_zeros(c, 5),
                *y0 = in(c, 7);
    int64_t n = aril_size(b, -1);
    if (is_byte(a) && is_byte(b) && is_byte(y0) && aril_ndim(b) == 2 && is_flat(a0, 1) &&
        is_flat(b0, n) && is_flat(in(c, 1), 1) && is_flat(in(c, 4), n) && is_flat(in(c, 6), 1) &&
        is_flat(y0, 1)) {
        aril_tensor *scale = combined_scale(c, 1, 4, 6);
        return give(c, 0,
                    aril__op(&aril__op_matmul_integer, a, b, flat(a0), flat(b0), NULL, scale,
                             flat(y0)));
    }
    a = aril_cast(exact(a, per_row(a0)), ARIL_I32);
    b = aril_cast(exact(b, b0), ARIL_I32);
    aril_tensor *scale =
        aril_mul(aril_cast(per_row(in(c, 1)), ARIL_F64), aril_cast(in(c, 4), ARIL_F64));
    scale = aril_div(scale, aril_cast(in(c, 6), ARIL_F64));
    aril_tensor *y = aril_mul(aril_cast(aril_matmul(a, b), ARIL_F64), scale);
    return give(c, 0, to_integers(y, y0, aril_dtype_of(y0)));
}

/* The attributes of Conv, with what the op takes besides x and w in `rest`. */
static aril_status convolve(onnx_call *c, aril_tensor *x, aril_tensor *w, aril_tensor *const *rest)
{
    struct conv_attrs a;
    aril_status s = aril__onnx_conv_attrs(c, aril_ndim(x) - 2, w, &a);
    if (s != ARIL_OK) return s;
    bool open = aril_size(w, 0) < 0;
    for (int i = 0; i < 5; i++) open |= rest[i] && aril_numel(rest[i]) < 0;
    if (open) return aril__onnx_open_error(c);
    if (!is_byte(x) || !is_byte(w) || !is_flat(rest[0], 1) || !is_flat(rest[1], aril_size(w, 0)))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE,
                               "inputs must be int8 or uint8, of one zero point");
    return give(c, 0,
                aril__op_with(&a, &aril__op_conv_integer, x, w, flat(rest[0]), flat(rest[1]),
                              rest[2], rest[3], flat(rest[4])));
}

static aril_status conv_integer(onnx_call *c)
{
    aril_tensor *rest[5] = { in(c, 2), column_zeros(c, 3) };
    return convolve(c, in(c, 0), in(c, 1), rest);
}

static aril_status qlinear_conv(onnx_call *c)
{
    aril_tensor *rest[5] = { in(c, 2), column_zeros(c, 5), in(c, 8), combined_scale(c, 1, 4, 6),
                             in(c, 7) };
    return convolve(c, in(c, 0), in(c, 3), rest);
}

/* ---- for other files ---- */

aril_tensor *aril__onnx_dequantized(aril_tensor *x, aril_tensor *scale, aril_tensor *zero)
{
    return aril_mul(less_zero(x, flat(zero)), flat(aril_cast(scale, ARIL_F32)));
}

aril_tensor *aril__onnx_quantized(aril_tensor *x, aril_tensor *scale, aril_tensor *zero,
                                  aril_dtype to)
{
    return to_integers(aril_div(x, flat(scale)), flat(zero), to);
}

const onnx_rule aril__onnx_quant_rules[] = {
    RULE("QuantizeLinear", 10, quantize),
    RULE("DequantizeLinear", 10, dequantize),
    RULE("DynamicQuantizeLinear", 11, dynamic_quantize),
    RULE("MatMulInteger", 10, matmul_integer),
    RULE("QLinearMatMul", 10, qlinear_matmul),
    RULE("ConvInteger", 10, conv_integer),
    RULE("QLinearConv", 10, qlinear_conv),
    /* With the same meaning, and more dtypes. */
    { "com.microsoft", "QuantizeLinear", 1, 1, quantize, NULL, NULL, 0 },
    { "com.microsoft", "DequantizeLinear", 1, 1, dequantize, NULL, NULL, 0 },
    { 0 },
};
