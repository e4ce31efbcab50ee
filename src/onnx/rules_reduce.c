/* Reductions, softmax, cumulative operators, products of matrices. */
#include "onnx/rules.h"

#include <math.h>

/* ---- reductions ---- */

/* The axes of a reduction; `none`: there are none, and the input is returned as it is. */
static aril_status reduced_axes(onnx_call *c, int n, aril_axes *axes, bool *none)
{
    onnx_ints from;
    aril_status s = aril__onnx_ints_of(c, "axes", 1, &from);
    if (s == ARIL_OK) s = aril__onnx_axes(c, from, n, axes);
    if (s != ARIL_OK) return s;
    axes->keepdim = aril__onnx_attr_int(c, "keepdims", 1) != 0;
    *none = axes->n == 0 && aril__onnx_attr_int(c, "noop_with_empty_axes", 0) != 0;
    if (!axes->n)
        for (int i = 0; i < n; i++) axes->axis[axes->n++] = i;
    return ARIL_OK;
}

enum reduction { SUM, MEAN, PRODUCT, MAXIMUM, MINIMUM, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP };

/* The value for no elements: infinities, or the limits of integers. */
static aril_tensor *empty_extreme(aril_tensor *x, aril_axes axes, bool max)
{
    aril_tensor *shape = aril_sum(aril_cast(x, ARIL_F32), axes);
    double inf = max ? -INFINITY : INFINITY;
    aril_dtype dtype = aril_dtype_of(x);
    if (dtype == ARIL_BOOL) return aril_cast(aril_full_like(shape, max ? 0 : 1), ARIL_BOOL);
    if (aril_dtype_is_float(dtype)) return aril_cast(aril_full_like(shape, inf), dtype);
    int bits = aril_dtype_bits(dtype);
    bool is_signed = dtype >= ARIL_I8;
    int64_t low = is_signed ? INT64_MIN >> (64 - bits) : 0, high = is_signed ? ~low
                                                                   : bits == 64
                                                                       ? -1
                                                                       : (INT64_C(1) << bits) - 1;
    return aril_cast(aril_full_like(aril_cast(shape, ARIL_I64), max ? low : high), dtype);
}

static aril_tensor *extreme(aril_tensor *x, aril_axes axes, bool max)
{
    if (!aril_numel(x)) return empty_extreme(x, axes, max);
    if (aril_dtype_of(x) != ARIL_BOOL) return max ? aril_amax(x, axes) : aril_amin(x, axes);
    aril_tensor *u = aril_cast(x, ARIL_U8);
    return max ? aril_amax(u, axes) : aril_amin(u, axes);
}

static aril_tensor *reduce_as(aril_tensor *x, aril_axes axes, enum reduction how)
{
    switch (how) {
    case SUM: return aril_sum(x, axes);
    case MEAN:
        return aril_mean(aril_dtype_is_float(aril_dtype_of(x)) ? x : aril_cast(x, ARIL_F64), axes);
    case PRODUCT: return aril_prod(x, axes);
    case MAXIMUM: return extreme(x, axes, true);
    case MINIMUM: return extreme(x, axes, false);
    case L1: return aril_sum(aril_abs(x), axes);
    case L2:
        return aril_sqrt(
            aril_cast(aril_sum(aril_square(x), axes),
                      aril_dtype_is_float(aril_dtype_of(x)) ? aril_dtype_of(x) : ARIL_F64));
    case SUM_SQUARE: return aril_sum(aril_square(x), axes);
    case LOG_SUM: return aril_log(aril_sum(x, axes));
    default:
        return aril_logsumexp(aril_dtype_is_float(aril_dtype_of(x)) ? x : aril_cast(x, ARIL_F64),
                              axes);
    }
}

static aril_status reduce(onnx_call *c, enum reduction how)
{
    aril_tensor *x = in(c, 0);
    aril_axes axes;
    bool none;
    aril_status s = reduced_axes(c, aril_ndim(x), &axes, &none);
    if (s != ARIL_OK) return s;
    if (none || !axes.n) { /* of each element by itself */
        aril_tensor *row = aril_unsqueeze(x, -1);
        axes = ARIL_AXES(-1);
        return give(c, 0,
                    like(none && (how == SUM || how == MEAN || how == PRODUCT || how == MAXIMUM ||
                                  how == MINIMUM)
                             ? x
                             : reduce_as(row, axes, how),
                         x));
    }
    return give(c, 0, like(reduce_as(x, axes, how), x));
}

#define REDUCTION(name, how)              \
    static aril_status name(onnx_call *c) \
    {                                     \
        return reduce(c, how);            \
    }
REDUCTION(reduce_sum, SUM)
REDUCTION(reduce_mean, MEAN)
REDUCTION(reduce_prod, PRODUCT)
REDUCTION(reduce_max, MAXIMUM)
REDUCTION(reduce_min, MINIMUM)
REDUCTION(reduce_l1, L1)
REDUCTION(reduce_l2, L2)
REDUCTION(reduce_sum_square, SUM_SQUARE)
REDUCTION(reduce_log_sum, LOG_SUM)
REDUCTION(reduce_log_sum_exp, LOG_SUM_EXP)

/* ---- the index of an extreme ---- */

static aril_status arg_extreme(onnx_call *c, bool max)
{
    aril_tensor *x = in(c, 0);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
    if (axis < 0) return ARIL_ERR_ARG;
    aril_axes axes = ARIL_AXES(axis);
    axes.keepdim = aril__onnx_attr_int(c, "keepdims", 1) != 0;
    bool last = aril__onnx_attr_int(c, "select_last_index", 0) != 0;
    if (last) x = aril_flip(x, ARIL_AXES(axis));
    aril_tensor *y = max ? aril_argmax(x, axes) : aril_argmin(x, axes);
    int64_t n = aril_size(x, axis);
    if (last && n < 0)
        y = aril_sub(aril_add_scalar(aril__onnx_size(aril__onnx_device(c), n), -1), y);
    else if (last)
        y = aril_rsub_scalar(y, n - 1);
    return give(c, 0, y);
}

static aril_status arg_max(onnx_call *c)
{
    return arg_extreme(c, true);
}

static aril_status arg_min(onnx_call *c)
{
    return arg_extreme(c, false);
}

/* ---- softmax ---- */

static aril_tensor *hardmax_of(aril_tensor *x, int axis)
{
    aril_axes axes = ARIL_KEEPDIM(axis);
    if (!aril_size(x, axis)) return x; /* no elements */
    aril_tensor *at = aril_argmax(x, axes);
    return aril_scatter(aril_zeros_like(x), at, aril_ones_like(like(at, x)), axis);
}

/* Before version 13, over all axes from `axis` on. */
static aril_status along_axis(onnx_call *c, aril_tensor *(*fn)(aril_tensor *x, int axis))
{
    aril_tensor *x = in(c, 0);
    int axis =
        aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", c->version < 13 ? 1 : -1), aril_ndim(x));
    if (axis < 0) return ARIL_ERR_ARG;
    if (c->version >= 13 || axis == aril_ndim(x) - 1) return give(c, 0, fn(x, axis));
    aril_tensor *flat = aril_flatten(x, axis, -1); /* the sizes before may be left open */
    return give(c, 0, aril_reshape(fn(flat, axis), aril_shape_of(x)));
}

static aril_status softmax(onnx_call *c)
{
    return along_axis(c, aril_softmax);
}

static aril_status log_softmax(onnx_call *c)
{
    return along_axis(c, aril_log_softmax);
}

static aril_status hardmax(onnx_call *c)
{
    return along_axis(c, hardmax_of);
}

/* ---- cumulative ---- */

static aril_status cumulate(onnx_call *c, aril_tensor *(*fn)(aril_tensor *x, int axis), int initial)
{
    aril_tensor *x = in(c, 0);
    int64_t at;
    aril_status s = aril__onnx_int_in(c, 1, 0, &at);
    int axis = s == ARIL_OK ? aril__onnx_axis(c, at, aril_ndim(x)) : -1;
    if (axis < 0) return s != ARIL_OK ? s : ARIL_ERR_ARG;
    bool reverse = aril__onnx_attr_int(c, "reverse", 0) != 0;
    int64_t n = aril_size(x, axis);
    aril_tensor *y = reverse ? aril_flip(x, ARIL_AXES(axis)) : x;
    if (aril__onnx_attr_int(c, "exclusive", 0) && n) {
        aril_tensor *first = aril_full_like(aril_narrow(y, axis, 0, 1), initial);
        y = aril_cat(ARIL_LIST(first, aril_slice(y, axis, 0, -1, 1)), axis);
    }
    y = fn(y, axis);
    return give(c, 0, like(reverse ? aril_flip(y, ARIL_AXES(axis)) : y, x));
}

static aril_status cum_sum(onnx_call *c)
{
    return cumulate(c, aril_cumsum, 0);
}

static aril_status cum_prod(onnx_call *c)
{
    return cumulate(c, aril_cumprod, 1);
}

/* ---- products ---- */

static aril_status matmul(onnx_call *c)
{
    return give(c, 0, aril_matmul(in(c, 0), in(c, 1)));
}

/* alpha * a b + beta * c */
static aril_status gemm(onnx_call *c)
{
    aril_tensor *a = in(c, 0), *b = in(c, 1), *bias = in(c, 2);
    double alpha = aril__onnx_attr_float(c, "alpha", 1), beta = aril__onnx_attr_float(c, "beta", 1);
    if (aril__onnx_attr_int(c, "transA", 0)) a = aril_t(a);
    bool transposed = aril__onnx_attr_int(c, "transB", 0) != 0;
    if (transposed && alpha == 1 && beta == 1 && (!bias || aril_ndim(bias) == 1) &&
        aril_dtype_is_float(aril_dtype_of(a)) && (!bias || aril_size(bias, 0) == aril_size(b, 0)))
        return give(c, 0, aril_linear(a, b, bias));
    aril_tensor *y = aril_matmul(a, transposed ? aril_t(b) : b);
    if (alpha != 1) y = like(aril_mul_scalar(y, alpha), y);
    if (bias && beta != 0)
        y = aril_add(y, beta == 1 ? bias : like(aril_mul_scalar(bias, beta), bias));
    return give(c, 0, y);
}

static aril_status einsum(onnx_call *c)
{
    aril_tensor **x = aril__onnx_alloc(&c->run->arena, (size_t)c->n_in, sizeof *x);
    if (!x) return ARIL_ERR_MEMORY;
    for (int i = 0; i < c->n_in; i++)
        if (!(x[i] = in(c, i))) return aril__onnx_fail(c, ARIL_ERR_ARG, "input %d is missing", i);
    const char *from = aril__onnx_attr_text(c, "equation", "");
    char *text = aril__onnx_alloc(&c->run->arena, strlen(from) + 1, 1);
    if (!text) return ARIL_ERR_MEMORY;
    for (char *to = text; *from; from++)
        if (*from != ' ') *to++ = *from;
    return give(c, 0, aril_cast(aril_einsum(text, (aril_list){ c->n_in, x }), aril_dtype_of(x[0])));
}

static aril_status det(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    bool small = aril_dtype_of(x) == ARIL_F16 || aril_dtype_of(x) == ARIL_BF16;
    return give(c, 0, like(aril_det(small ? aril_cast(x, ARIL_F32) : x), x));
}

const onnx_rule aril__onnx_reduce_rules[] = {
    RULE("ReduceSum", 1, reduce_sum),
    RULE("ReduceMean", 1, reduce_mean),
    RULE("ReduceProd", 1, reduce_prod),
    RULE("ReduceMax", 1, reduce_max),
    RULE("ReduceMin", 1, reduce_min),
    RULE("ReduceL1", 1, reduce_l1),
    RULE("ReduceL2", 1, reduce_l2),
    RULE("ReduceSumSquare", 1, reduce_sum_square),
    RULE("ReduceLogSum", 1, reduce_log_sum),
    RULE("ReduceLogSumExp", 1, reduce_log_sum_exp),
    RULE("ArgMax", 1, arg_max),
    RULE("ArgMin", 1, arg_min),
    RULE("Softmax", 1, softmax),
    RULE("LogSoftmax", 1, log_softmax),
    RULE("Hardmax", 1, hardmax),
    RULE("CumSum", 11, cum_sum),
    RULE("CumProd", 26, cum_prod),
    RULE("MatMul", 1, matmul),
    RULE("Gemm", 1, gemm),
    RULE("Einsum", 12, einsum),
    RULE("Det", 11, det),
    { 0 },
};
