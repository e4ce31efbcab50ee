/* Operators of com.microsoft that optimized and exported models hold: activations, normalization,
 * products and convolutions with more than one step. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

/* ---- activations ---- */

static aril_tensor *biased(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    return given(c, 1) ? aril_add(x, in(c, 1)) : x;
}

/* Gelu and BiasGelu */
static aril_status gelu(onnx_call *c)
{
    return give(c, 0, aril_gelu(biased(c)));
}

static aril_status fast_gelu(onnx_call *c)
{
    return give(c, 0, aril_gelu_tanh(biased(c)));
}

static aril_status quick_gelu(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    double alpha = aril__onnx_attr_float(c, "alpha", 1.702);
    return give(c, 0, aril_mul(x, aril_sigmoid(aril_mul_scalar(x, alpha))));
}

/* The first half of the last dimension times gelu of the second. */
static aril_status bias_split_gelu(onnx_call *c)
{
    aril_tensor *x = biased(c);
    int64_t n = aril_size(x, -1);
    if (n % 2) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "%" PRId64 " features in two halves", n);
    return give(
        c, 0, aril_mul(aril_narrow(x, -1, 0, n / 2), aril_gelu(aril_narrow(x, -1, n / 2, n / 2))));
}

/* X + bias + skip */
static aril_status bias_add(onnx_call *c)
{
    aril_tensor *y = biased(c);
    return give(c, 0, given(c, 2) ? aril_add(y, in(c, 2)) : y);
}

typedef struct activation {
    const char *name;
    double a, b; /* its parameters; NAN: the default */
} activation;

static double or_default(double given_, double otherwise)
{
    return isnan(given_) ? otherwise : given_;
}

static aril_status activate(onnx_call *c, activation f, aril_tensor **y)
{
    const char *n = f.name;
    if (!*n) return ARIL_OK;
    if (strcmp(n, "Relu") == 0)
        *y = aril_relu(*y);
    else if (strcmp(n, "Tanh") == 0)
        *y = aril_tanh(*y);
    else if (strcmp(n, "Sigmoid") == 0)
        *y = aril_sigmoid(*y);
    else if (strcmp(n, "LeakyRelu") == 0)
        *y = aril_leaky_relu(*y, or_default(f.a, 0.01));
    else if (strcmp(n, "Clip") == 0)
        *y = aril_clamp(*y, or_default(f.a, -INFINITY), or_default(f.b, INFINITY));
    else if (strcmp(n, "HardSigmoid") == 0)
        *y = aril_clamp(aril_add_scalar(aril_mul_scalar(*y, or_default(f.a, 0.2)),
                                        or_default(f.b, 0.5)),
                        0.0, 1.0);
    else if (strcmp(n, "HardSwish") == 0)
        *y = aril_hardswish(*y);
    else if (strcmp(n, "Gelu") == 0)
        *y = aril_gelu(*y);
    else if (strcmp(n, "Elu") == 0)
        *y = aril_elu(*y, or_default(f.a, 1));
    else if (strcmp(n, "Softplus") == 0)
        *y = aril_softplus(*y, 1, 20);
    else if (strcmp(n, "Softsign") == 0)
        *y = aril_softsign(*y);
    else
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "the activation %s", n);
    return ARIL_OK;
}

/* ---- products ---- */

static aril_tensor *swap_last(aril_tensor *x)
{
    return aril_ndim(x) > 1 ? aril_transpose(x, -1, -2) : x;
}

/* [b0,b1...,M] as [b1...,b0,M]: the first dimension is one of the matrix. */
static aril_tensor *batch_inside(aril_tensor *x)
{
    aril_axes order = { .n = aril_ndim(x) };
    if (order.n < 3) return x;
    for (int i = 0; i + 2 < order.n; i++) order.axis[i] = i + 1;
    order.axis[order.n - 2] = 0;
    order.axis[order.n - 1] = order.n - 1;
    return aril_permute(x, order);
}

static aril_status fused_matmul(onnx_call *c)
{
    aril_tensor *a = in(c, 0), *b = in(c, 1);
    double alpha = aril__onnx_attr_float(c, "alpha", 1);
    if (aril__onnx_attr_int(c, "transBatchA", 0)) a = batch_inside(a);
    if (aril__onnx_attr_int(c, "transBatchB", 0)) b = batch_inside(b);
    if (aril__onnx_attr_int(c, "transA", 0)) a = swap_last(a);
    if (aril__onnx_attr_int(c, "transB", 0)) b = swap_last(b);
    aril_tensor *y = aril_matmul(a, b);
    return give(c, 0, alpha == 1 ? y : aril_mul_scalar(y, alpha));
}

static aril_status fused_gemm(onnx_call *c)
{
    aril_tensor *y = NULL;
    aril_status s = aril__onnx_apply(c, "Gemm", 13, c->n_in, c->in, &y);
    if (s != ARIL_OK) return s;
    activation f = { aril__onnx_attr_text(c, "activation", ""),
                     aril__onnx_attr_float(c, "activation_alpha", NAN),
                     aril__onnx_attr_float(c, "activation_beta", NAN) };
    s = activate(c, f, &y);
    return s == ARIL_OK ? give(c, 0, y) : s;
}

/* ---- convolution ---- */

static activation conv_activation(onnx_call *c)
{
    onnx_floats p = aril__onnx_attr_floats(c, "activation_params");
    return (activation){ aril__onnx_attr_text(c, "activation", ""), p.n > 0 ? p.at[0] : NAN,
                         p.n > 1 ? p.at[1] : NAN };
}

/* conv(X, W, B) + Z, then an activation */
static aril_status fused_conv(onnx_call *c)
{
    aril_tensor *y = NULL;
    aril_status s = aril__onnx_apply(c, "Conv", 11, c->n_in < 3 ? c->n_in : 3, c->in, &y);
    if (s != ARIL_OK) return s;
    if (given(c, 3)) y = aril_add(y, in(c, 3));
    s = activate(c, conv_activation(c), &y);
    return s == ARIL_OK ? give(c, 0, y) : s;
}

/* Channels last to channels first, and back. */
static aril_tensor *move_channels(aril_tensor *x, bool first)
{
    aril_axes order = { .n = aril_ndim(x) };
    int n = order.n;
    if (n < 3) return x;
    order.axis[1] = first ? n - 1 : 2;
    for (int i = 2; i < n; i++) order.axis[i] = first ? i - 1 : i + 1;
    if (!first) order.axis[n - 1] = 1;
    return aril_permute(x, order);
}

static aril_status nhwc_fused_conv(onnx_call *c)
{
    onnx_value v[3] = { { .kind = ONNX_TENSOR, .tensor = move_channels(in(c, 0), true) } };
    aril_tensor *y = NULL;
    int n = c->n_in < 3 ? c->n_in : 3;
    v[0].known = c->in[0].known;
    for (int i = 1; i < n; i++) v[i] = c->in[i];
    aril_status s = aril__onnx_apply(c, "Conv", 11, n, v, &y);
    if (s != ARIL_OK) return s;
    if (given(c, 3)) y = aril_add(y, move_channels(in(c, 3), true));
    s = activate(c, conv_activation(c), &y);
    return s == ARIL_OK ? give(c, 0, move_channels(y, false)) : s;
}

static aril_status nhwc_max_pool(onnx_call *c)
{
    onnx_value v = { .kind = ONNX_TENSOR, .tensor = move_channels(in(c, 0), true) };
    aril_tensor *y = NULL;
    v.known = c->in[0].known;
    aril_status s = aril__onnx_apply(c, "MaxPool", 12, 1, &v, &y);
    return s == ARIL_OK ? give(c, 0, move_channels(y, false)) : s;
}

/* ---- normalization ---- */

/* The sum that is normalized: with a skip connection and a bias. */
static aril_tensor *skip_sum(onnx_call *c, int bias)
{
    aril_tensor *x = aril_add(in(c, 0), in(c, 1));
    return given(c, bias) ? aril_add(x, in(c, bias)) : x;
}

static aril_shape last_size(const aril_tensor *x)
{
    return ARIL_SHAPE(aril_size(x, -1));
}

static aril_status skip_layer_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-12);
    aril_tensor *x = skip_sum(c, 4), *mean;
    aril_status s =
        give(c, 0, aril_layer_norm(x, in(c, 2), in(c, 3), last_size(x), (aril_norm_opts){ eps }));
    if (s == ARIL_OK) s = give(c, 3, x);
    if (s != ARIL_OK || (!wanted(c, 1) && !wanted(c, 2))) return s;
    aril_tensor *var = aril_var_mean(aril_cast(x, ARIL_F32), ARIL_KEEPDIM(-1), 0, &mean);
    s = give(c, 1, mean);
    return s == ARIL_OK ? give(c, 2, aril_rsqrt(aril_add_scalar(var, eps))) : s;
}

/* The inverse root of the mean square, in f32. */
static aril_tensor *inverse_rms(aril_tensor *x, double eps)
{
    aril_tensor *f = aril_dtype_of(x) == ARIL_F64 ? x : aril_cast(x, ARIL_F32);
    return aril_rsqrt(aril_add_scalar(aril_mean(aril_square(f), ARIL_KEEPDIM(-1)), eps));
}

static aril_status skip_simplified_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-12);
    aril_tensor *x = skip_sum(c, 3);
    aril_status s = give(c, 0, aril_rms_norm(x, in(c, 2), last_size(x), (aril_norm_opts){ eps }));
    if (s == ARIL_OK) s = give(c, 3, x);
    return s == ARIL_OK && wanted(c, 2) ? give(c, 2, inverse_rms(x, eps)) : s;
}

/* Also in the default domain, where optimized models have it. */
static aril_status simplified_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    aril_tensor *x = in(c, 0);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -1), aril_ndim(x));
    if (axis < 0) return ARIL_ERR_ARG;
    aril_shape last = { 0 };
    for (int i = axis; i < aril_ndim(x); i++) last.dim[last.ndim++] = aril_size(x, i);
    aril_status s = give(c, 0, aril_rms_norm(x, in(c, 1), last, (aril_norm_opts){ eps }));
    if (s != ARIL_OK || !wanted(c, 1)) return s;
    if (last.ndim != 1)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "the scale factors of several axes");
    return give(c, 1, inverse_rms(x, eps));
}

/* One row of a table for each index. */
static aril_tensor *rows_of(aril_tensor *table, aril_tensor *at)
{
    return aril_embedding(at, table, (aril_embedding_opts){ 0 });
}

/* Inputs: words, segments, three tables, gamma, beta, mask, positions. */
static aril_status embed_layer_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-12);
    aril_tensor *words = in(c, 0), *positions = in(c, 3);
    if (aril_ndim(words) != 2)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "input_ids needs 2 dimensions");
    aril_tensor *sum = rows_of(in(c, 2), words); /* [N,T,H] */
    sum = aril_add(sum, given(c, 8) ? rows_of(positions, in(c, 8))
                                    : aril_narrow(positions, 0, 0, aril_size(words, 1)));
    if (given(c, 1) && given(c, 4)) sum = aril_add(sum, rows_of(in(c, 4), in(c, 1)));
    aril_status s =
        give(c, 0,
             aril_layer_norm(sum, in(c, 5), in(c, 6), last_size(sum), (aril_norm_opts){ eps }));
    if (s == ARIL_OK && wanted(c, 1)) { /* the number of words that are not padding */
        aril_tensor *n = given(c, 7) ? aril_sum(aril_cast(in(c, 7), ARIL_I32), ARIL_AXES(1))
                                     : aril_zeros(ARIL_SHAPE(aril_size(words, 0)), ARIL_I32,
                                                  aril__onnx_device(c));
        s = give(c, 1, aril_cast(n, ARIL_I32));
    }
    return s == ARIL_OK ? give(c, 2, sum) : s;
}

/* GroupNorm, and SkipGroupNorm with X + skip + bias; channels last unless `channels_last` is 0. */
static aril_status group_norm_of(onnx_call *c, aril_tensor *x)
{
    int64_t groups = aril__onnx_attr_int(c, "groups", 32);
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    bool last = aril__onnx_attr_int(c, "channels_last", 1) != 0;
    aril_tensor *f = last ? move_channels(x, true) : x;
    if (aril_size(f, 1) < 0) return aril__onnx_open_error(c);
    if (groups < 1 || aril_size(f, 1) % groups)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "%" PRId64 " groups do not divide the channels",
                               groups);
    aril_dtype dtype = aril_dtype_of(in(c, 1));
    aril_tensor *y =
        aril_group_norm(aril_cast(f, dtype), in(c, 1), in(c, 2), groups, (aril_norm_opts){ eps });
    if (aril__onnx_attr_int(c, "activation", 0)) y = aril_silu(y);
    y = like(y, x);
    return give(c, 0, last ? move_channels(y, false) : y);
}

static aril_status group_norm(onnx_call *c)
{
    return group_norm_of(c, in(c, 0));
}

static aril_status skip_group_norm(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *skip = in(c, 3);
    bool last = aril__onnx_attr_int(c, "channels_last", 1) != 0;
    if (aril_ndim(skip) == 2) /* [N,C] */
        for (int i = 0; i < 2; i++) skip = aril_unsqueeze(skip, last ? 1 : -1);
    x = aril_add(x, skip);
    if (given(c, 4)) {
        aril_tensor *bias = in(c, 4);
        x = aril_add(x, last ? bias : aril_unsqueeze(aril_unsqueeze(bias, -1), -1));
    }
    aril_status s = group_norm_of(c, x);
    return s == ARIL_OK ? give(c, 1, x) : s;
}

/* ---- others ---- */

/* Ones on and below (above) a diagonal. */
static aril_status trilu(onnx_call *c)
{
    aril_tensor *y = NULL;
    aril_status s = aril__onnx_apply(c, "Trilu", 14, c->n_in, c->in, &y);
    return s == ARIL_OK ? give(c, 0, y) : s;
}

static aril_status inverse(onnx_call *c)
{
    return give(c, 0, aril_inverse(in(c, 0)));
}

static aril_status expand_dims(onnx_call *c)
{
    int64_t axis;
    aril_status s = aril__onnx_int_in(c, 1, 0, &axis);
    if (s != ARIL_OK) return s;
    int at = aril__onnx_axis(c, axis, aril_ndim(in(c, 0)) + 1);
    return at < 0 ? ARIL_ERR_ARG : give(c, 0, aril_unsqueeze(in(c, 0), at));
}

#define MS(name_, fn)                                   \
    {                                                   \
        "com.microsoft", name_, 1, 1, fn, NULL, NULL, 0 \
    }

const onnx_rule aril__onnx_microsoft_rules[] = {
    MS("Gelu", gelu),
    MS("BiasGelu", gelu),
    MS("FastGelu", fast_gelu),
    MS("QuickGelu", quick_gelu),
    MS("BiasSplitGelu", bias_split_gelu),
    MS("BiasAdd", bias_add),
    MS("FusedMatMul", fused_matmul),
    MS("TransposeMatMul", fused_matmul),
    MS("FusedGemm", fused_gemm),
    MS("FusedConv", fused_conv),
    MS("NhwcFusedConv", nhwc_fused_conv),
    MS("NhwcMaxPool", nhwc_max_pool),
    MS("SkipLayerNormalization", skip_layer_norm),
    MS("SkipSimplifiedLayerNormalization", skip_simplified_norm),
    MS("EmbedLayerNormalization", embed_layer_norm),
    MS("GroupNorm", group_norm),
    MS("SkipGroupNorm", skip_group_norm),
    MS("Trilu", trilu),
    MS("Inverse", inverse),
    MS("ExpandDims", expand_dims),
    RULE("SimplifiedLayerNormalization", 1, simplified_norm),
    { 0 },
};
