/* Quantized operators of com.microsoft. Elementwise ones and poolings compute on the numbers that
 * the integers stand for; products compute with integers. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

/* ---- from integers to numbers, and back ---- */

/* The numbers that integers of input i stand for; their scale and zero point follow it. */
static aril_tensor *numbers(onnx_call *c, int i)
{
    return aril__onnx_dequantized(in(c, i), in(c, i + 1), in(c, i + 2));
}

/* Gives output 0 in integers, of the scale of input i and the zero point behind it. */
static aril_status give_integers(onnx_call *c, aril_tensor *y, int i, const aril_tensor *x)
{
    aril_tensor *zero = in(c, i + 1);
    aril_dtype to = zero ? aril_dtype_of(zero) : aril_dtype_of(x);
    return give(c, 0, aril__onnx_quantized(y, in(c, i), zero, to));
}

/* ---- elementwise ---- */

/* a, its scale and zero point, b, its scale and zero point, those of the result */
static aril_status binary(onnx_call *c)
{
    return give_integers(c, c->node->rule->binary(numbers(c, 0), numbers(c, 3)), 6, in(c, 0));
}

static aril_status sigmoid(onnx_call *c)
{
    return give_integers(c, aril_sigmoid(numbers(c, 0)), 3, in(c, 0));
}

static aril_status leaky_relu(onnx_call *c)
{
    double alpha = aril__onnx_attr_float(c, "alpha", 0.01);
    return give_integers(c, aril_leaky_relu(numbers(c, 0), alpha), 3, in(c, 0));
}

static aril_status softmax(onnx_call *c)
{
    aril_tensor *x = numbers(c, 0);
    aril_shape shape = aril_shape_of(x);
    int64_t opset = aril__onnx_attr_int(c, "opset", 13);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -1), aril_ndim(x));
    if (axis < 0) return ARIL_ERR_ARG;
    if (opset >= 13) return give_integers(c, aril_softmax(x, axis), 3, in(c, 0));
    aril_tensor *rows = aril_flatten(x, axis, -1); /* over all dimensions from axis on */
    return give_integers(c, aril_reshape(aril_softmax(rows, -1), shape), 3, in(c, 0));
}

static aril_status where(onnx_call *c)
{
    aril_tensor *y = aril_where(aril_cast(in(c, 0), ARIL_BOOL), numbers(c, 1), numbers(c, 4));
    return give_integers(c, y, 7, in(c, 1));
}

/* The scale and zero point of the result, then three inputs for each part. */
static aril_status concat(onnx_call *c)
{
    int n = (c->n_in - 2) / 3;
    if (n < 1 || c->n_in != 2 + 3 * n)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "%d inputs, expected 2 and 3 for each part",
                               c->n_in);
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    for (int i = 0; i < n; i++) part[i] = numbers(c, 2 + 3 * i);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(part[0]));
    if (axis < 0) return ARIL_ERR_ARG;
    return give_integers(c, aril_cat((aril_list){ n, part }, axis), 0, in(c, 2));
}

/* ---- poolings and means ---- */

static aril_tensor *move_channels(aril_tensor *x, bool first)
{
    aril_axes order = { .n = aril_ndim(x) };
    int n = order.n;
    if (n < 3 || !x) return x;
    order.axis[1] = first ? n - 1 : 2;
    for (int i = 2; i < n; i++) order.axis[i] = first ? i - 1 : i + 1;
    if (!first) order.axis[n - 1] = 1;
    return aril_permute(x, order);
}

static aril_status pool(onnx_call *c, const char *name)
{
    bool last = aril__onnx_attr_int(c, "channels_last", 0) != 0;
    aril_tensor *x = numbers(c, 0), *y = NULL;
    onnx_value v = { .kind = ONNX_TENSOR, .known = c->host };
    v.tensor = last ? move_channels(x, true) : x;
    aril_status s = aril__onnx_apply(c, name, 11, 1, &v, &y);
    if (s != ARIL_OK) return s;
    return give_integers(c, last ? move_channels(y, false) : y, 3, in(c, 0));
}

static aril_status average_pool(onnx_call *c)
{
    return pool(c, "AveragePool");
}

static aril_status global_average_pool(onnx_call *c)
{
    return pool(c, "GlobalAveragePool");
}

static aril_status reduce_mean(onnx_call *c)
{
    aril_tensor *x = numbers(c, 0);
    onnx_ints from = aril__onnx_attr_ints(c, "axes");
    aril_axes axes = { 0 };
    aril_status s = from.n > 0 ? aril__onnx_axes(c, from, aril_ndim(x), &axes) : ARIL_OK;
    if (s != ARIL_OK) return s;
    for (int i = 0; i < aril_ndim(x) && from.n <= 0; i++) axes.axis[axes.n++] = i;
    axes.keepdim = aril__onnx_attr_int(c, "keepdims", 1) != 0;
    return give_integers(c, aril_mean(x, axes), 3, in(c, 0));
}

/* ---- products ---- */

/* MatMulInteger of inputs a and b and their zero points, in f32. */
static aril_status product(onnx_call *c, onnx_value a, onnx_value b, int a_zero, int b_zero,
                           aril_tensor **y)
{
    onnx_value v[4] = { a, b };
    if (a_zero >= 0 && given(c, a_zero)) v[2] = c->in[a_zero];
    if (b_zero >= 0 && given(c, b_zero)) v[3] = c->in[b_zero];
    aril_status s = aril__onnx_apply(c, "MatMulInteger", 10, 4, v, y);
    if (s == ARIL_OK) *y = aril_cast(*y, ARIL_F32);
    return s;
}

/* a, b, the scales of a and b, their zero points, bias */
static aril_status matmul_integer_to_float(onnx_call *c)
{
    aril_tensor *y;
    aril_status s = product(c, c->in[0], c->in[1], 4, 5, &y);
    if (s != ARIL_OK) return s;
    y = aril_mul(y, aril_mul(in(c, 2), in(c, 3)));
    return give(c, 0, given(c, 6) ? aril_add(y, in(c, 6)) : y);
}

/* a in floats, b, its scale and zero point, bias: a is quantized by its range. */
static aril_status dynamic_quantize_matmul(onnx_call *c)
{
    aril_tensor *x[3], *y;
    aril__onnx_quantize_dynamic(c, in(c, 0), x);
    onnx_value v[4] = { { .kind = ONNX_TENSOR, .tensor = x[0], .known = c->host },
                        c->in[1],
                        { .kind = ONNX_TENSOR, .tensor = x[2], .known = c->host } };
    if (given(c, 3)) v[3] = c->in[3];
    aril_status s = aril__onnx_apply(c, "MatMulInteger", 10, 4, v, &y);
    if (s != ARIL_OK) return s;
    y = aril_mul(aril_cast(y, ARIL_F32), aril_mul(x[1], in(c, 2)));
    return give(c, 0, given(c, 4) ? aril_add(y, in(c, 4)) : y);
}

static onnx_value transposed(const onnx_value *v)
{
    onnx_value t = *v;
    t.tensor = aril_transpose(v->tensor, -1, -2);
    return t;
}

/* alpha * a b + c: a, b with their scales and zero points, c in i32 or missing, the scale and zero
 * point of the result, without which it is in floats. */
static aril_status qgemm(onnx_call *c)
{
    double alpha = aril__onnx_attr_float(c, "alpha", 1);
    if (!given(c, 0) || !given(c, 3) || c->in[0].kind != ONNX_TENSOR ||
        c->in[3].kind != ONNX_TENSOR)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "two matrices of integers are needed");
    onnx_value a = c->in[0], b = c->in[3];
    if (aril__onnx_attr_int(c, "transA", 0)) a = transposed(&a);
    if (aril__onnx_attr_int(c, "transB", 0)) b = transposed(&b);
    aril_tensor *y;
    aril_status s = product(c, a, b, 2, 5, &y);
    if (s != ARIL_OK) return s;
    if (given(c, 6)) y = aril_add(y, aril_cast(in(c, 6), ARIL_F32));
    aril_tensor *scale = aril_mul(in(c, 1), in(c, 4));
    y = aril_mul(y, alpha == 1 ? scale : aril_mul_scalar(scale, alpha));
    if (!given(c, 7)) return give(c, 0, y);
    return give_integers(c, y, 7, in(c, 0));
}

/* ---- weights of few bits ---- */

/* Bytes [..., n] as n * 8 / bits numbers, the lowest bits first. */
static aril_tensor *unpacked(aril_tensor *x, int64_t bits)
{
    if (bits == 8 || aril_tensor_status(x) < 0) return x; /* poisoned */
    aril_tensor *part[4];
    int n = (int)(8 / bits);
    for (int i = 0; i < n; i++)
        part[i] = aril_bitwise_and_scalar(aril_shift_right_scalar(x, i * bits), (1 << bits) - 1);
    aril_shape shape = aril_shape_of(x);
    shape.dim[shape.ndim - 1] *= n;
    return aril_reshape(aril_stack((aril_list){ n, part }, -1), shape);
}

typedef struct blocks {
    int64_t k, n, bits, size, per_row; /* a row of K numbers has per_row blocks */
} blocks;

/* The weight [N,K] of B [N,blocks,bytes], scales [N*blocks], zero points or NULL. */
static aril_tensor *unpack_weight(const blocks *b, aril_tensor *w, aril_tensor *scale,
                                  aril_tensor *zero)
{
    aril_shape rows = ARIL_SHAPE(b->n, b->per_row, 1);
    aril_tensor *q = unpacked(aril_reshape(w, ARIL_SHAPE(b->n, b->per_row, -1)), b->bits);
    aril_tensor *f = aril_cast(q, ARIL_F32);
    if (!zero) {
        f = aril_sub_scalar(f, 1 << (b->bits - 1));
    } else {
        if (!aril_dtype_is_float(aril_dtype_of(zero))) {
            zero = unpacked(aril_reshape(zero, ARIL_SHAPE(b->n, -1)), b->bits);
            zero = aril_narrow(zero, 1, 0, b->per_row);
        }
        f = aril_sub(f, aril_reshape(aril_cast(zero, ARIL_F32), rows));
    }
    f = aril_mul(f, aril_reshape(aril_cast(scale, ARIL_F32), rows));
    return aril_narrow(aril_reshape(f, ARIL_SHAPE(b->n, -1)), 1, 0, b->k);
}

/* a times a weight of 2, 4 or 8 bits in blocks along its rows: a, B, scales, zero points, order,
 * bias. */
static aril_status matmul_nbits(onnx_call *c)
{
    blocks b = { .k = aril__onnx_attr_int(c, "K", 0),
                 .n = aril__onnx_attr_int(c, "N", 0),
                 .bits = aril__onnx_attr_int(c, "bits", 4),
                 .size = aril__onnx_attr_int(c, "block_size", 0) };
    if (b.k < 1 || b.n < 1 || b.size < 1 || (b.bits != 2 && b.bits != 4 && b.bits != 8))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "K, N, bits or block_size");
    if (given(c, 4))
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "an order of the columns (g_idx)");
    b.per_row = (b.k - 1) / b.size + 1;
    aril_tensor *w = in(c, 1), *scale = in(c, 2), *zero = in(c, 3), *a = in(c, 0);
    int64_t bits, blocks_of_all;
    if (__builtin_mul_overflow(b.n, b.per_row, &blocks_of_all) ||
        __builtin_mul_overflow(blocks_of_all, b.size, &bits) ||
        __builtin_mul_overflow(bits, b.bits, &bits) || aril_numel(w) != bits / 8 ||
        aril_numel(scale) != blocks_of_all)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the weight does not fit K, N and block_size");
    bool known = c->in[1].known && c->in[2].known && (!zero || c->in[3].known);
    aril__pause pause = { 0 };
    if (known) pause = aril__onnx_pause(c);
    aril_tensor *full = aril_cast(unpack_weight(&b, w, scale, zero), aril_dtype_of(a));
    full = aril_contiguous(full);
    if (known) aril__onnx_resume(c, pause);
    return give(c, 0, aril_linear(a, full, in(c, 5)));
}

/* Rows of a table of few bits in blocks along its last axis: data, indices, scales, zero points. */
static aril_status gather_blocks(onnx_call *c)
{
    aril_tensor *data = in(c, 0), *scale = in(c, 2), *zero = in(c, 3);
    int64_t size = aril__onnx_attr_int(c, "block_size", 128),
            bits = aril__onnx_attr_int(c, "bits", 4);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "gather_axis", 0), aril_ndim(data));
    int along = aril__onnx_axis(c, aril__onnx_attr_int(c, "quantize_axis", 1), aril_ndim(data));
    if (axis < 0 || along < 0) return ARIL_ERR_ARG;
    if (axis != 0 || along != aril_ndim(data) - 1 || aril_ndim(data) != 2)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "rows of a table [N,K] only");
    if (size < 1 || (bits != 2 && bits != 4 && bits != 8))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "bits %" PRId64 " or block_size %" PRId64, bits,
                               size);
    aril_tensor *at = in(c, 1);
    aril_tensor *f = aril_embedding(at, data, (aril_embedding_opts){ 0 });
    bool bytes = aril_dtype_of(data) == ARIL_U8;
    if (bytes) f = unpacked(f, bits);
    f = aril_cast(f, ARIL_F32);
    aril_tensor *s = aril_embedding(at, scale, (aril_embedding_opts){ 0 });
    int64_t k = aril_size(f, -1);
    aril_tensor *by = aril_narrow(aril_repeat_interleave(s, size, -1), -1, 0, k);
    if (zero) {
        aril_tensor *z = aril_embedding(at, zero, (aril_embedding_opts){ 0 });
        if (bytes) z = aril_narrow(unpacked(z, bits), -1, 0, aril_size(s, -1));
        z = aril_cast(z, ARIL_F32);
        f = aril_sub(f, aril_narrow(aril_repeat_interleave(z, size, -1), -1, 0, k));
    } else if (bytes) {
        f = aril_sub_scalar(f, 1 << (bits - 1));
    }
    return give(c, 0, aril_cast(aril_mul(f, aril_cast(by, ARIL_F32)), aril_dtype_of(scale)));
}

/* ---- embeddings ---- */

static aril_tensor *rows_of(onnx_call *c, int table, int ids, int scale, int zero)
{
    aril_tensor *rows = aril_embedding(in(c, ids), in(c, table), (aril_embedding_opts){ 0 });
    return aril__onnx_dequantized(rows, in(c, scale), in(c, zero));
}

/* Words, segments, three tables, gamma, beta, mask; then the scales and zero points of the five. */
static aril_status embed_layer_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-12);
    aril_tensor *words = in(c, 0), *positions = in(c, 3);
    if (aril_ndim(words) != 2)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "input_ids needs 2 dimensions");
    aril_tensor *sum = rows_of(c, 2, 0, 8, 13);
    positions = aril_narrow(positions, 0, 0, aril_size(words, 1));
    sum = aril_add(sum, aril__onnx_dequantized(positions, in(c, 9), in(c, 14)));
    if (given(c, 1) && given(c, 4)) sum = aril_add(sum, rows_of(c, 4, 1, 10, 15));
    aril_tensor *gamma = aril__onnx_dequantized(in(c, 5), in(c, 11), in(c, 16)),
                *beta = aril__onnx_dequantized(in(c, 6), in(c, 12), in(c, 17));
    aril_status s = give(c, 0,
                         aril_layer_norm(sum, gamma, beta, ARIL_SHAPE(aril_size(sum, -1)),
                                         (aril_norm_opts){ eps }));
    if (s != ARIL_OK || !wanted(c, 1)) return s;
    aril_tensor *n =
        given(c, 7) ? aril_sum(aril_cast(in(c, 7), ARIL_I32), ARIL_AXES(1))
                    : aril_zeros(ARIL_SHAPE(aril_size(words, 0)), ARIL_I32, aril__onnx_device(c));
    return give(c, 1, aril_cast(n, ARIL_I32));
}

#define MS(name_, fn)                                   \
    {                                                   \
        "com.microsoft", name_, 1, 1, fn, NULL, NULL, 0 \
    }
#define MS2(name_, binary_)                                    \
    {                                                          \
        "com.microsoft", name_, 1, 1, binary, NULL, binary_, 0 \
    }

const onnx_rule aril__onnx_microsoft_quant_rules[] = {
    MS2("QLinearAdd", aril_add),
    MS2("QLinearMul", aril_mul),
    MS("QLinearSigmoid", sigmoid),
    MS("QLinearLeakyRelu", leaky_relu),
    MS("QLinearSoftmax", softmax),
    MS("QLinearWhere", where),
    MS("QLinearConcat", concat),
    MS("QLinearAveragePool", average_pool),
    MS("QLinearGlobalAveragePool", global_average_pool),
    MS("QLinearReduceMean", reduce_mean),
    MS("MatMulIntegerToFloat", matmul_integer_to_float),
    MS("DynamicQuantizeMatMul", dynamic_quantize_matmul),
    MS("QGemm", qgemm),
    MS("MatMulNBits", matmul_nbits),
    MS("GatherBlockQuantized", gather_blocks),
    MS("QEmbedLayerNormalization", embed_layer_norm),
    { 0 },
};
