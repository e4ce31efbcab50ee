/* Quantization. */
#include "onnx/rules.h"

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
    return aril_cast(aril_cast(y, ARIL_I32), to);
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

/* u8 with the scale that covers the range of x and 0. */
static aril_status dynamic_quantize(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    aril_tensor *low = aril_minimum(aril_amin(x, ARIL_ALL),
                                    aril_zeros(ARIL_SHAPE(), ARIL_F32, aril__onnx_device(c)));
    aril_tensor *high = aril_maximum(aril_amax(x, ARIL_ALL),
                                     aril_zeros(ARIL_SHAPE(), ARIL_F32, aril__onnx_device(c)));
    aril_tensor *scale = aril_div_scalar(aril_sub(high, low), 255.0);
    aril_tensor *zero = aril_round(aril_clamp(aril_neg(aril_div(low, scale)), 0.0, 255.0));
    aril_status s = give(c, 0, to_integers(aril_div(x, scale), zero, ARIL_U8));
    if (s == ARIL_OK) s = give(c, 1, scale);
    return s == ARIL_OK ? give(c, 2, aril_cast(zero, ARIL_U8)) : s;
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

static aril_status matmul_integer(onnx_call *c)
{
    aril_tensor *a = aril_cast(exact(in(c, 0), per_row(in(c, 2))), ARIL_I32);
    aril_tensor *b = aril_cast(exact(in(c, 1), in(c, 3)), ARIL_I32);
    return give(c, 0, aril_matmul(a, b));
}

static aril_status qlinear_matmul(onnx_call *c)
{
    aril_tensor *a = aril_cast(exact(in(c, 0), per_row(in(c, 2))), ARIL_I32);
    aril_tensor *b = aril_cast(exact(in(c, 3), in(c, 5)), ARIL_I32);
    aril_tensor *scale =
        aril_mul(aril_cast(per_row(in(c, 1)), ARIL_F64), aril_cast(in(c, 4), ARIL_F64));
    scale = aril_div(scale, aril_cast(in(c, 6), ARIL_F64));
    aril_tensor *y = aril_mul(aril_cast(aril_matmul(a, b), ARIL_F64), scale);
    return give(c, 0, to_integers(y, in(c, 7), aril_dtype_of(in(c, 7))));
}

/* Convolution of integers, by the rule of Conv on f64. */
static aril_status conv_exact(onnx_call *c, aril_tensor *x, aril_tensor *w, aril_tensor **y)
{
    onnx_value v[2] = { { .kind = ONNX_TENSOR, .known = c->host, .tensor = x },
                        { .kind = ONNX_TENSOR, .known = c->host, .tensor = w } };
    onnx_value out = { 0 };
    onnx_node node = *c->node;
    onnx_slot slot = 1;
    int from, to;
    node.out = &slot;
    node.n_out = 1;
    onnx_call conv = *c;
    conv.node = &node;
    conv.n_in = 2;
    conv.n_out = 1;
    conv.in = v;
    conv.out = &out;
    aril_status s = aril__onnx_rule("", "Conv", 11, &from, &to)->convert(&conv);
    *y = out.tensor;
    return s;
}

static aril_tensor *per_filter(aril_tensor *v, const aril_tensor *w, bool of_output)
{
    if (!v || aril_ndim(v) != 1 || aril_numel(v) == 1)
        return v ? aril_reshape(v, ARIL_SHAPE()) : NULL;
    for (int i = of_output ? 2 : 1; i < aril_ndim(w); i++) v = aril_unsqueeze(v, -1);
    return v;
}

static aril_status conv_integer(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *w = in(c, 1), *y = NULL;
    aril_tensor *xs = exact(x, in(c, 2) ? aril_reshape(in(c, 2), ARIL_SHAPE()) : NULL);
    aril_status s = conv_exact(c, xs, exact(w, per_filter(in(c, 3), w, false)), &y);
    return s != ARIL_OK ? s : give(c, 0, aril_cast(y, ARIL_I32));
}

static aril_status qlinear_conv(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *w = in(c, 3), *bias = in(c, 8), *y = NULL;
    aril_tensor *zero = aril_reshape(in(c, 2), ARIL_SHAPE());
    aril_status s = conv_exact(c, exact(x, zero), exact(w, per_filter(in(c, 5), w, false)), &y);
    if (s != ARIL_OK) return s;
    if (bias) y = aril_add(y, per_filter(aril_cast(bias, ARIL_F64), w, true));
    aril_tensor *scale = aril_mul(aril_cast(aril_reshape(in(c, 1), ARIL_SHAPE()), ARIL_F64),
                                  per_filter(aril_cast(in(c, 4), ARIL_F64), w, true));
    scale = aril_div(scale, aril_cast(aril_reshape(in(c, 6), ARIL_SHAPE()), ARIL_F64));
    aril_tensor *to = in(c, 7);
    return give(c, 0,
                to_integers(aril_mul(y, scale), aril_reshape(to, ARIL_SHAPE()), aril_dtype_of(to)));
}

const onnx_rule aril__onnx_quant_rules[] = {
    RULE("QuantizeLinear", 10, quantize),
    RULE("DequantizeLinear", 10, dequantize),
    RULE("DynamicQuantizeLinear", 11, dynamic_quantize),
    RULE("MatMulInteger", 10, matmul_integer),
    RULE("QLinearMatMul", 10, qlinear_matmul),
    RULE("ConvInteger", 10, conv_integer),
    RULE("QLinearConv", 10, qlinear_conv),
    { 0 },
};
