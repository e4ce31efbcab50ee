/* Wrong calls of the public functions. Each must give the right code and a message that names the
 * op, and both shapes if there are two; leave everything else working; and leak nothing. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- the table's machinery ---- */

static int n_rows;

static void check_row(int line, const char *call, aril_status got, aril_status want,
                      const char *const *words)
{
    n_rows++;
    const char *message = aril_error();
    if (got != want || aril_error_code() != want)
        test_fail(__FILE__, line, "%s: %s, and %s expected (%s)", call, aril_status_name(got),
                  aril_status_name(want), message ? message : "no message");
    for (; *words && message; words++)
        if (!strstr(message, *words))
            test_fail(__FILE__, line, "%s: '%s' is missing in: %s", call, *words, message);
    aril_clear_error();
    /* Everything else still works. */
    ARIL_SCOPE;
    aril_tensor *one = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    if (aril_item(aril_sum(aril_add(one, one), ARIL_ALL)) != 4 || !aril_ok())
        test_fail(__FILE__, line, "%s: nothing works after it", call);
}

static aril_status poison_code(const aril_tensor *t)
{
    return t ? aril_tensor_status(t) : ARIL_ERR_INTERNAL;
}

#define ROW(code, got, text, ...)                                                                \
    do {                                                                                         \
        int64_t blocks_ = aril__live_blocks(), bytes_ = aril_memory(aril_cpu()).live;            \
        {                                                                                        \
            ARIL_SCOPE;                                                                          \
            aril_status got_ = (got);                                                            \
            check_row(__LINE__, text, got_, (code), (const char *const[]){ __VA_ARGS__, NULL }); \
        }                                                                                        \
        if (aril__live_blocks() != blocks_ || aril_memory(aril_cpu()).live != bytes_)            \
            test_fail(__FILE__, __LINE__, "%s: leaks %lld blocks", text,                         \
                      (long long)(aril__live_blocks() - blocks_));                               \
    } while (0)

/* WRONG(code, call of a tensor function, words of the message ...); BAD: for calls that return a
 * status. */
#define WRONG(code, call, ...) ROW(ARIL_##code, poison_code(call), #call, __VA_ARGS__)
#define BAD(code, call, ...)   ROW(ARIL_##code, (call), #call, __VA_ARGS__)

/* ---- arguments of the calls ---- */

static aril_tensor *f23, *f45, *f3, *f0, *i23, *i3, *b23, *d23, *big, *img, *ker, *leaf, *wide;

/* An index tensor with a wrong element at the end. */
static aril_tensor *indices(int64_t n, int64_t last)
{
    int64_t at[8] = { 0 };
    at[n - 1] = last;
    return aril_from(at, ARIL_SHAPE(n), ARIL_I64, aril_cpu());
}

static void begin(void)
{
    aril_device cpu = aril_cpu();
    f23 = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, cpu);
    f45 = aril_ones(ARIL_SHAPE(4, 5), ARIL_F32, cpu);
    f3 = aril_ones(ARIL_SHAPE(3), ARIL_F32, cpu);
    f0 = aril_ones(ARIL_SHAPE(), ARIL_F32, cpu);
    i23 = aril_ones(ARIL_SHAPE(2, 3), ARIL_I64, cpu);
    i3 = aril_ones(ARIL_SHAPE(3), ARIL_I64, cpu);
    b23 = aril_ones(ARIL_SHAPE(2, 3), ARIL_BOOL, cpu);
    d23 = aril_ones(ARIL_SHAPE(2, 3), ARIL_F64, cpu);
    big = aril_ones(ARIL_SHAPE(2, 3, 4), ARIL_F32, cpu);
    img = aril_ones(ARIL_SHAPE(1, 2, 5, 5), ARIL_F32, cpu);
    ker = aril_ones(ARIL_SHAPE(3, 2, 3, 3), ARIL_F32, cpu);
    wide = aril_expand(aril_ones(ARIL_SHAPE(1, 3), ARIL_F32, cpu), ARIL_SHAPE(2, 3));
    leaf = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, cpu);
    aril_set_requires_grad(leaf, true);
}

#define GIVEN   \
    ARIL_SCOPE; \
    begin()

/* ---- elementwise ---- */

TEST(elementwise)
{
    GIVEN;
    WRONG(ERR_SHAPE, aril_add(f23, f45), "add", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_sub(f23, f45), "sub", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_mul(f45, f3), "mul", "[4,5]", "[3]");
    WRONG(ERR_SHAPE, aril_div(big, f23), "div", "[2,3,4]", "[2,3]");
    WRONG(ERR_SHAPE, aril_pow(f23, f45), "pow", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_maximum(f23, f45), "maximum", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_eq(f23, f45), "eq", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_where(b23, f45, f23), "where", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_lerp(f23, f45, f0), "lerp", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_addcmul(f23, f45, f0, 1), "addcmul", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_add_(f3, f23), "add_", "[3]", "[2,3]");
    WRONG(ERR_SHAPE, aril_mul_(f23, big), "mul", "[2,3]", "[2,3,4]");
    WRONG(ERR_DTYPE, aril_add_(i23, f23), "add_", "f32", "i64");
    WRONG(ERR_DTYPE, aril_div_(i23, i23), "div_", "f32", "i64");
    WRONG(ERR_DTYPE, aril_neg(b23), "neg", "bool");
    WRONG(ERR_DTYPE, aril_sub(b23, b23), "sub", "bool");
    WRONG(ERR_DTYPE, aril_bitwise_and(f23, f23), "bitwise_and", "f32");
    WRONG(ERR_DTYPE, aril_shift_left(f23, i23), "shift_left", "f32");
    WRONG(ERR_DTYPE, aril_frac(i23), "frac", "i64");
    WRONG(ERR_DTYPE, aril_exp(aril_cast(f23, ARIL_F8E4M3FN)), "exp", "f8e4m3fn");
    WRONG(ERR_DTYPE, aril_add(aril_cast(i23, ARIL_I4), i23), "add", "i4");
    WRONG(ERR_STATE, aril_add_(wide, f23), "add_", "expand");
    WRONG(ERR_GRAD, aril_add_(leaf, f23), "add_", "leaf", "ARIL_NO_GRAD");
    WRONG(ERR_GRAD, aril_mul_scalar_(aril_slice(leaf, 0, 0, 1, 1), 2), "mul_", "leaf");
    WRONG(ERR_NUMBER, aril_floor_div(i23, aril_zeros_like(i23)), "floor_div", "zero");
    WRONG(ERR_NUMBER, aril_remainder_scalar(i23, 0), "remainder", "zero");
    WRONG(ERR_ARG, aril_add(NULL, f23), "add", "NULL");
    WRONG(ERR_ARG, aril_add(f23, NULL), "add", "NULL");
    WRONG(ERR_ARG, aril_add_(NULL, f23), "add", "NULL");
    WRONG(ERR_ARG, aril_tanh(NULL), "tanh", "NULL");
    WRONG(ERR_ARG, aril_relu_(NULL), "relu", "NULL");
    WRONG(ERR_ARG, aril_where(NULL, f23, f23), "where", "NULL");
    WRONG(ERR_ARG, aril_clamp(NULL, 0, 1), "clamp", "NULL");
    WRONG(ERR_ARG, aril_mul_scalar(NULL, 2), "mul", "NULL");
    WRONG(ERR_ARG, aril_leaky_relu(NULL, 0.1), "leaky_relu", "NULL");
}

/* ---- creation ---- */

TEST(creation)
{
    GIVEN;
    aril_device cpu = aril_cpu();
    WRONG(ERR_SHAPE, aril_zeros(ARIL_SHAPE(2, -3), ARIL_F32, cpu), "-3");
    WRONG(ERR_SHAPE, aril_ones(ARIL_SHAPE(-1), ARIL_F32, cpu), "-1");
    WRONG(ERR_SHAPE, aril_empty(((aril_shape){ .ndim = 9 }), ARIL_F32, cpu), "9");
    WRONG(ERR_SHAPE, aril_empty(((aril_shape){ .ndim = -1 }), ARIL_F32, cpu), "-1");
    WRONG(ERR_SHAPE, aril_zeros(ARIL_SHAPE(1LL << 40, 1LL << 40), ARIL_F32, cpu), "[1099511627776");
    WRONG(ERR_MEMORY, aril_empty(ARIL_SHAPE(1LL << 46), ARIL_F64, cpu), "memory");
    WRONG(ERR_DTYPE, aril_zeros(ARIL_SHAPE(2), (aril_dtype)99, cpu), "99");
    WRONG(ERR_DTYPE, aril_zeros(ARIL_SHAPE(2), (aril_dtype)-1, cpu), "-1");
    WRONG(ERR_DEVICE, aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cuda(3)), "cuda");
    WRONG(ERR_DEVICE, aril_randn(ARIL_SHAPE(2), ARIL_F32, aril_cuda(-1)), "cuda");
    WRONG(ERR_DEVICE, aril_from(&n_rows, ARIL_SHAPE(1), ARIL_I32, aril_cuda(3)), "cuda");
    WRONG(ERR_DEVICE, aril_to(f23, aril_cuda(3)), "cuda");
    WRONG(ERR_DEVICE, aril_to(f23, ((aril_device){ 99, 0 })), "device");
    WRONG(ERR_DEVICE, aril_arange(0, 5, 1, ARIL_F32, aril_cuda(3)), "cuda");
    WRONG(ERR_ARG, aril_arange(0, 5, 0, ARIL_F32, cpu), "arange", "step");
    WRONG(ERR_ARG, aril_arange(5, 0, 1, ARIL_F32, cpu), "arange");
    WRONG(ERR_ARG, aril_arange(0, NAN, 1, ARIL_F32, cpu), "arange");
    WRONG(ERR_SHAPE, aril_linspace(0, 1, -2, ARIL_F32, cpu), "linspace", "-2");
    WRONG(ERR_SHAPE, aril_eye(-1, 3, ARIL_F32, cpu), "eye", "-1");
    WRONG(ERR_ARG, aril_randint(3, 3, ARIL_SHAPE(2), ARIL_I64, cpu), "randint", "3");
    WRONG(ERR_SHAPE, aril_randperm(-1, ARIL_I64, cpu), "randperm", "-1");
    WRONG(ERR_DTYPE, aril_randn(ARIL_SHAPE(2), ARIL_I64, cpu), "randn", "i64");
    WRONG(ERR_DTYPE, aril_rand(ARIL_SHAPE(2), ARIL_BOOL, cpu), "rand", "bool");
    WRONG(ERR_ARG, aril_from(NULL, ARIL_SHAPE(2), ARIL_F32, cpu), "from", "NULL");
    WRONG(ERR_ARG, aril_borrow(NULL, ARIL_SHAPE(2), ARIL_F32, NULL, NULL), "borrow", "NULL");
    WRONG(ERR_SHAPE, aril_borrow(&n_rows, ARIL_SHAPE(-1), ARIL_I32, NULL, NULL), "borrow", "-1");
    WRONG(ERR_ARG, aril_zeros_like(NULL), "NULL");
    WRONG(ERR_ARG, aril_copy(NULL), "copy", "NULL");
    WRONG(ERR_ARG, aril_cast(NULL, ARIL_F32), "cast", "NULL");
    WRONG(ERR_ARG, aril_to(NULL, cpu), "NULL");
    WRONG(ERR_ARG, aril_contiguous(NULL), "NULL");
    WRONG(ERR_DTYPE, aril_cast(f23, (aril_dtype)77), "cast", "77");
    WRONG(ERR_SHAPE, aril_copy_(f23, f45), "copy", "[2,3]", "[4,5]");
    WRONG(ERR_ARG, aril_copy_(f23, NULL), "copy", "NULL");
    WRONG(ERR_ARG, aril_copy_(NULL, f23), "copy", "NULL");
    WRONG(ERR_SHAPE, aril_tril(f3, 0), "tril", "[3]");
    WRONG(ERR_ARG, aril_fill_(NULL, 1), "NULL");
    WRONG(ERR_GRAD, aril_fill_(leaf, 1), "leaf");
    WRONG(ERR_GRAD, aril_normal_(leaf, 0, 1), "leaf");
    double buf[6];
    BAD(ERR_ARG, aril_read(NULL, buf), "NULL");
    BAD(ERR_ARG, aril_read(f23, NULL), "NULL");
    BAD(ERR_ARG, aril_write(f23, NULL), "NULL");
}

/* ---- views ---- */

TEST(views)
{
    GIVEN;
    aril_tensor *out[8];
    int64_t sizes[2] = { 1, 1 };
    WRONG(ERR_SHAPE, aril_reshape(f23, ARIL_SHAPE(4)), "reshape", "[2,3]", "[4]");
    WRONG(ERR_SHAPE, aril_reshape(f23, ARIL_SHAPE(-1, -1)), "reshape");
    WRONG(ERR_SHAPE, aril_reshape(f23, ARIL_SHAPE(-1, 4)), "reshape", "[2,3]");
    WRONG(ERR_SHAPE, aril_reshape(f23, ARIL_SHAPE(-2, 3)), "reshape", "-2");
    WRONG(ERR_SHAPE, aril_view(aril_t(f23), ARIL_SHAPE(6)), "view", "[3,2]");
    WRONG(ERR_SHAPE, aril_permute(f23, ARIL_AXES(0)), "permute", "1 axes");
    WRONG(ERR_ARG, aril_permute(f23, ARIL_AXES(0, 0)), "permute");
    WRONG(ERR_INDEX, aril_permute(f23, ARIL_AXES(0, 2)), "permute", "2");
    WRONG(ERR_INDEX, aril_transpose(f23, 0, 2), "transpose", "2");
    WRONG(ERR_SHAPE, aril_t(big), "t:", "[2,3,4]");
    WRONG(ERR_INDEX, aril_unsqueeze(f23, 4), "unsqueeze", "4");
    WRONG(ERR_INDEX, aril_squeeze(f23, ARIL_AXES(5)), "squeeze", "5");
    WRONG(ERR_INDEX, aril_slice(f23, 2, 0, 1, 1), "slice", "2");
    WRONG(ERR_ARG, aril_slice(f23, 0, 0, 1, 0), "slice", "step");
    WRONG(ERR_INDEX, aril_select(f23, 0, 2), "select", "2");
    WRONG(ERR_INDEX, aril_select(f23, 0, -3), "select", "-3");
    WRONG(ERR_INDEX, aril_narrow(f23, 1, 2, 2), "narrow");
    WRONG(ERR_SHAPE, aril_expand(f23, ARIL_SHAPE(4, 3)), "expand", "[2,3]", "[4,3]");
    WRONG(ERR_SHAPE, aril_expand(f23, ARIL_SHAPE(3)), "expand", "[2,3]", "[3]");
    WRONG(ERR_INDEX, aril_flatten(f23, 0, 3), "flatten", "3");
    WRONG(ERR_ARG, aril_diagonal(f23, 0, 1, 1), "diagonal");
    WRONG(ERR_INDEX, aril_flip(f23, ARIL_AXES(3)), "flip", "3");
    BAD(ERR_ARG, aril_split(f23, 0, 0, out), "split");
    BAD(ERR_SHAPE, aril_split_sizes(f23, sizes, 2, 1, out), "split", "3");
    BAD(ERR_INDEX, aril_unbind(f23, 2, out), "unbind", "2");
    BAD(ERR_ARG, aril_chunk(f23, 0, 0, out), "chunk");
    WRONG(ERR_ARG, aril_reshape(NULL, ARIL_SHAPE(2)), "reshape", "NULL");
    WRONG(ERR_ARG, aril_permute(NULL, ARIL_AXES(0)), "permute", "NULL");
    WRONG(ERR_ARG, aril_slice(NULL, 0, 0, 1, 1), "slice", "NULL");
    WRONG(ERR_ARG, aril_expand(NULL, ARIL_SHAPE(2)), "expand", "NULL");
    WRONG(ERR_ARG, aril_t(NULL), "NULL");
}

/* ---- reductions ---- */

TEST(reductions)
{
    GIVEN;
    aril_tensor *none = aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, aril_cpu());
    WRONG(ERR_INDEX, aril_sum(f23, ARIL_AXES(2)), "sum", "axis 2");
    WRONG(ERR_INDEX, aril_mean(f23, ARIL_AXES(-3)), "mean", "axis -3");
    WRONG(ERR_ARG, aril_sum(f23, ARIL_AXES(0, -2)), "sum", "twice");
    WRONG(ERR_ARG, aril_sum(f23, ((aril_axes){ .n = 20 })), "sum", "20");
    WRONG(ERR_DTYPE, aril_mean(i23, ARIL_ALL), "mean", "i64");
    WRONG(ERR_DTYPE, aril_logsumexp(i23, ARIL_AXES(0)), "logsumexp", "i64");
    WRONG(ERR_DTYPE, aril_softmax(i23, 0), "softmax", "i64");
    WRONG(ERR_INDEX, aril_softmax(f23, 2), "softmax", "2");
    WRONG(ERR_INDEX, aril_log_softmax(f23, -3), "log_softmax", "-3");
    WRONG(ERR_SHAPE, aril_amax(none, ARIL_AXES(0)), "amax", "[0,3]");
    WRONG(ERR_SHAPE, aril_max(none, ARIL_AXES(0), NULL), "max", "[0,3]");
    WRONG(ERR_SHAPE, aril_argmax(none, ARIL_AXES(0)), "argmax", "[0,3]");
    WRONG(ERR_ARG, aril_argmax(f23, ARIL_AXES(0, 1)), "argmax");
    WRONG(ERR_INDEX, aril_argmin(f23, ARIL_AXES(7)), "argmin", "7");
    WRONG(ERR_INDEX, aril_cumsum(f23, 2), "cumsum", "2");
    WRONG(ERR_INDEX, aril_var(f23, ARIL_AXES(4), 1), "var", "4");
    WRONG(ERR_DTYPE, aril_norm(i23, ARIL_ALL, 2), "norm", "i64");
    WRONG(ERR_ARG, aril_sum(NULL, ARIL_ALL), "sum", "NULL");
    WRONG(ERR_ARG, aril_amax(NULL, ARIL_ALL), "amax", "NULL");
    WRONG(ERR_ARG, aril_softmax(NULL, 0), "softmax", "NULL");
    WRONG(ERR_ARG, aril_any(NULL, ARIL_ALL), "any", "NULL");
    WRONG(ERR_ARG, aril_norm(NULL, ARIL_ALL, 2), "norm", "NULL");
}

/* ---- matrices ---- */

TEST(matrices)
{
    GIVEN;
    WRONG(ERR_SHAPE, aril_matmul(f23, f45), "matmul", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_matmul(f45, f3), "matmul", "[4,5]", "5 != 3");
    WRONG(ERR_SHAPE, aril_matmul(f0, f23), "matmul", "[]", "[2,3]");
    WRONG(ERR_SHAPE, aril_mm(f23, f23), "[2,3]");
    WRONG(ERR_SHAPE, aril_mm(big, f23), "mm", "[2,3,4]", "[2,3]");
    WRONG(ERR_SHAPE, aril_bmm(f23, f23), "bmm", "[2,3]");
    WRONG(ERR_SHAPE, aril_dot(f23, f23), "dot", "[2,3]");
    WRONG(ERR_SHAPE, aril_mv(f23, f23), "mv", "[2,3]");
    WRONG(ERR_SHAPE, aril_outer(f23, f3), "outer", "[2,3]", "[3]");
    WRONG(ERR_SHAPE, aril_linear(f23, f45, NULL), "linear", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_linear(f23, f23, f3), "linear", "[2,3]", "[3]");
    WRONG(ERR_SHAPE, aril_addmm(f3, f23, f45, 1, 1), "[2,3]", "[4,5]");
    WRONG(ERR_DTYPE, aril_matmul(f23, aril_t(d23)), "matmul", "f32", "f64");
    WRONG(ERR_ARG, aril_matmul(NULL, f23), "matmul", "NULL");
    WRONG(ERR_ARG, aril_linear(f23, NULL, NULL), "linear", "NULL");
    WRONG(ERR_ARG, aril_bmm(big, NULL), "bmm", "NULL");
}

/* ---- indexing ---- */

TEST(indexing)
{
    GIVEN;
    WRONG(ERR_INDEX, aril_index_select(f23, indices(2, 3), 1), "index_select", "3");
    WRONG(ERR_INDEX, aril_index_select(f23, indices(2, -4), 1), "index_select", "-4");
    WRONG(ERR_INDEX, aril_index_select(f23, i3, 2), "index_select", "axis 2");
    WRONG(ERR_DTYPE, aril_index_select(f23, f3, 0), "index_select", "f32");
    WRONG(ERR_INDEX, aril_gather(f23, aril_full_like(i23, 5), 1), "gather", "5");
    WRONG(ERR_SHAPE, aril_gather(f23, i3, 0), "gather", "[2,3]", "[3]");
    WRONG(ERR_DTYPE, aril_gather(f23, f23, 0), "gather", "f32");
    WRONG(ERR_INDEX, aril_scatter(f23, aril_full_like(i23, 9), f23, 0), "scatter", "9");
    WRONG(ERR_SHAPE, aril_scatter_add(f23, i3, f3, 0), "scatter_add", "[2,3]", "[3]");
    WRONG(ERR_INDEX, aril_embedding(indices(3, 4), f45, (aril_embedding_opts){ 0 }), "embedding",
          "4");
    WRONG(ERR_INDEX, aril_embedding(indices(3, -1), f45, (aril_embedding_opts){ 0 }), "embedding",
          "-1");
    WRONG(ERR_DTYPE, aril_embedding(f3, f45, (aril_embedding_opts){ 0 }), "embedding", "f32");
    WRONG(ERR_SHAPE, aril_cat(ARIL_LIST(f23, f45), 0), "cat", "[2,3]", "[4,5]");
    WRONG(ERR_INDEX, aril_cat(ARIL_LIST(f23, f23), 2), "cat", "2");
    WRONG(ERR_ARG, aril_cat(((aril_list){ 0, NULL }), 0), "cat");
    WRONG(ERR_ARG, aril_cat(ARIL_LIST(f23, NULL), 0), "cat", "NULL");
    WRONG(ERR_SHAPE, aril_stack(ARIL_LIST(f23, f45), 0), "stack", "[2,3]", "[4,5]");
    WRONG(ERR_INDEX, aril_index(f23, ARIL_INDEX(ARIL_AT(2))), "index", "2");
    WRONG(ERR_INDEX, aril_index(f23, ARIL_INDEX(ARIL_BY(indices(2, 7)))), "index", "7");
    WRONG(ERR_SHAPE, aril_masked_select(f23, aril_ones(ARIL_SHAPE(4), ARIL_BOOL, aril_cpu())),
          "masked", "[2,3]", "[4]");
    WRONG(ERR_ARG, aril_nonzero(NULL), "nonzero", "NULL");
    WRONG(ERR_ARG, aril_gather(f23, NULL, 0), "gather", "NULL");
    WRONG(ERR_ARG, aril_index(NULL, ARIL_INDEX(ARIL_AT(0))), "index", "NULL");
    WRONG(ERR_SHAPE, aril_repeat(f23, ARIL_SHAPE(2)), "repeat", "2 dimensions");
    WRONG(ERR_INDEX, aril_one_hot(indices(3, 5), 5), "one_hot", "5");
}

/* ---- layers ---- */

TEST(layers)
{
    GIVEN;
    aril_conv_opts none = { .groups = 0 };
    WRONG(ERR_SHAPE,
          aril_conv2d(img, aril_ones(ARIL_SHAPE(3, 4, 3, 3), ARIL_F32, aril_cpu()), NULL, none),
          "conv", "[1,2,5,5]", "[3,4,3,3]");
    WRONG(ERR_SHAPE, aril_conv2d(img, f23, NULL, none), "conv", "[1,2,5,5]", "[2,3]");
    WRONG(ERR_SHAPE, aril_conv2d(f23, ker, NULL, none), "conv", "[2,3]");
    WRONG(ERR_SHAPE, aril_conv2d(img, ker, f45, none), "conv", "[4,5]");
    WRONG(ERR_DTYPE, aril_conv2d(img, aril_cast(ker, ARIL_F64), NULL, none), "conv", "f32", "f64");
    WRONG(ERR_ARG, aril_conv2d(img, ker, NULL, ((aril_conv_opts){ .stride = { -1 } })), "conv",
          "-1");
    WRONG(ERR_SHAPE, aril_conv2d(img, ker, NULL, ((aril_conv_opts){ .groups = -2 })), "conv", "-2");
    WRONG(ERR_SHAPE, aril_conv2d(img, ker, NULL, ((aril_conv_opts){ .dilation = { 4 } })), "conv",
          "[1,2,5,5]", "[3,2,3,3]");
    WRONG(ERR_ARG, aril_conv2d(NULL, ker, NULL, none), "conv", "NULL");
    WRONG(ERR_ARG, aril_conv2d(img, NULL, NULL, none), "conv", "NULL");
    WRONG(ERR_ARG, aril_max_pool2d(img, ((aril_pool_opts){ .stride = { 1 } }), NULL), "max_pool");
    WRONG(ERR_SHAPE, aril_max_pool2d(f3, ((aril_pool_opts){ .kernel = { 2 } }), NULL), "max_pool",
          "[3]");
    WRONG(ERR_SHAPE, aril_avg_pool2d(img, ((aril_pool_opts){ .kernel = { 9 } })), "avg_pool",
          "[1,2,5,5]");
    WRONG(ERR_ARG, aril_avg_pool2d(NULL, ((aril_pool_opts){ .kernel = { 2 } })), "avg_pool",
          "NULL");
    WRONG(ERR_SHAPE, aril_batch_norm(f23, f23, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 }),
          "batch_norm", "[2,3]");
    WRONG(ERR_ARG,
          aril_batch_norm(f23, NULL, NULL, NULL, NULL, (aril_batch_norm_opts){ .eval = true }),
          "batch_norm");
    WRONG(ERR_SHAPE, aril_layer_norm(f23, NULL, NULL, ARIL_SHAPE(4), (aril_norm_opts){ 0 }),
          "layer_norm", "[2,3]", "4]");
    WRONG(ERR_SHAPE, aril_group_norm(img, NULL, NULL, 3, (aril_norm_opts){ 0 }), "group_norm", "3");
    WRONG(ERR_ARG, aril_group_norm(img, NULL, NULL, 0, (aril_norm_opts){ 0 }), "group_norm");
    WRONG(ERR_ARG, aril_layer_norm(NULL, NULL, NULL, ARIL_SHAPE(4), (aril_norm_opts){ 0 }),
          "layer_norm", "NULL");
    WRONG(ERR_ARG, aril_dropout(f23, 1.5, (aril_dropout_opts){ 0 }), "dropout", "1.5");
    WRONG(ERR_ARG, aril_dropout(f23, NAN, (aril_dropout_opts){ 0 }), "dropout");
    WRONG(ERR_ARG, aril_dropout(NULL, 0.5, (aril_dropout_opts){ 0 }), "dropout", "NULL");
    WRONG(ERR_DTYPE, aril_dropout(i23, 0.5, (aril_dropout_opts){ 0 }), "dropout", "i64");
}

/* ---- losses ---- */

TEST(losses)
{
    GIVEN;
    aril_reduction odd = (aril_reduction)9;
    WRONG(ERR_SHAPE, aril_mse_loss(f23, f45), "mse_loss", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_l1_loss(f23, f45), "l1_loss", "[2,3]", "[4,5]");
    WRONG(ERR_DTYPE, aril_mse_loss(i23, i23), "mse_loss", "i64");
    WRONG(ERR_ARG, aril_mse_loss_with(f23, f23, ((aril_loss_opts){ .reduction = odd })), "mse_loss",
          "9");
    WRONG(ERR_SHAPE, aril_mse_loss_with(f23, f23, ((aril_loss_opts){ .weight = f45 })), "mse_loss",
          "[2,3]", "[4,5]");
    WRONG(ERR_ARG, aril_mse_loss(NULL, f23), "mse_loss", "NULL");
    WRONG(ERR_ARG, aril_mse_loss(f23, NULL), "mse_loss", "NULL");
    WRONG(ERR_ARG, aril_huber_loss_with(f23, f23, ((aril_huber_opts){ .delta = -1 })), "huber_loss",
          "-1");
    WRONG(ERR_ARG, aril_smooth_l1_loss_with(f23, f23, ((aril_smooth_l1_opts){ .beta = -2 })),
          "smooth_l1_loss", "-2");
    WRONG(ERR_SHAPE, aril_bce_loss(f23, f3), "bce_loss", "[2,3]", "[3]");
    WRONG(ERR_SHAPE, aril_bce_with_logits(f23, f45), "bce_with_logits", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_cross_entropy(f23, i3), "cross_entropy", "[2,3]", "[3]");
    WRONG(ERR_SHAPE, aril_cross_entropy(f23, f45), "cross_entropy", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_cross_entropy(f0, aril_cast(f0, ARIL_I64)), "cross_entropy", "[]");
    WRONG(ERR_INDEX, aril_cross_entropy(f23, indices(2, 3)), "cross_entropy", "class 3",
          "3 classes");
    WRONG(ERR_INDEX, aril_cross_entropy(f23, indices(2, -1)), "cross_entropy", "class -1");
    WRONG(ERR_INDEX, aril_nll_loss(f23, indices(2, 7)), "nll_loss", "class 7", "3 classes");
    WRONG(ERR_DTYPE, aril_nll_loss(f23, aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu())), "nll_loss",
          "f32");
    WRONG(ERR_DTYPE, aril_cross_entropy(i23, indices(2, 0)), "cross_entropy", "i64");
    WRONG(ERR_SHAPE,
          aril_cross_entropy_with(f23, indices(2, 0), ((aril_cross_entropy_opts){ .weight = f45 })),
          "cross_entropy", "[2,3]", "[4,5]");
    WRONG(ERR_DTYPE,
          aril_cross_entropy_with(d23, indices(2, 0), ((aril_cross_entropy_opts){ .weight = f3 })),
          "cross_entropy", "f64", "f32");
    WRONG(ERR_ARG,
          aril_cross_entropy_with(f23, indices(2, 0),
                                  ((aril_cross_entropy_opts){ .label_smoothing = 1.5 })),
          "cross_entropy", "1.5");
    WRONG(ERR_ARG,
          aril_cross_entropy_with(f23, f23, ((aril_cross_entropy_opts){ .ignore_index = 1 })),
          "cross_entropy", "ignore_index");
    WRONG(ERR_ARG, aril_cross_entropy(f23, NULL), "cross_entropy", "NULL");
    WRONG(ERR_ARG, aril_cross_entropy(NULL, NULL), "cross_entropy", "NULL");
    WRONG(ERR_SHAPE, aril_kl_div(f23, f45), "kl_div", "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_gaussian_nll_loss(f23, f23, f45), "gaussian_nll_loss", "[2,3]", "[4,5]");
    WRONG(ERR_ARG, aril_gaussian_nll_loss(f23, f23, NULL), "gaussian_nll_loss", "NULL");
    WRONG(ERR_SHAPE, aril_multi_margin_loss(f23, i3), "multi_margin_loss", "[2,3]", "[3]");
    WRONG(ERR_INDEX, aril_multi_margin_loss(f23, indices(2, 3)), "multi_margin_loss", "class 3");
    WRONG(ERR_ARG,
          aril_multi_margin_loss_with(f23, indices(2, 0), ((aril_multi_margin_opts){ .p = 3 })),
          "multi_margin_loss", "3");
    WRONG(ERR_INDEX, aril_multilabel_margin_loss(f23, aril_full_like(i23, 3)),
          "multilabel_margin_loss", "class 3");
    WRONG(ERR_SHAPE, aril_multilabel_soft_margin_loss(f23, f45), "multilabel_soft_margin_loss",
          "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_margin_ranking_loss(f23, f45, f0), "margin_ranking_loss", "[2,3]",
          "[4,5]");
    WRONG(ERR_SHAPE, aril_cosine_embedding_loss(f23, f23, f23), "cosine_embedding_loss", "[2,3]");
    WRONG(ERR_SHAPE, aril_cosine_similarity(f23, f45, 1), "cosine_similarity", "[2,3]", "[4,5]");
    WRONG(ERR_INDEX, aril_cosine_similarity(f23, f23, 2), "cosine_similarity", "2");
    WRONG(ERR_SHAPE, aril_pairwise_distance(f23, f45), "[2,3]", "[4,5]");
    WRONG(ERR_SHAPE, aril_triplet_margin_loss(f23, f3, f23), "triplet_margin_loss", "[2,3]", "[3]");
    WRONG(ERR_ARG,
          aril_triplet_margin_loss_with(f23, f23, f23,
                                        ((aril_triplet_margin_opts){ .margin = -1 })),
          "triplet_margin_loss", "-1");
    WRONG(ERR_SHAPE, aril_ctc_loss(f3, i23, i3, i3), "ctc_loss", "[3]");
    WRONG(ERR_SHAPE, aril_ctc_loss(big, i23, i3, i3), "ctc_loss", "[2,3]", "[2,3,4]");
    WRONG(ERR_DTYPE, aril_ctc_loss(big, f23, i3, i3), "ctc_loss", "f32");
    WRONG(ERR_INDEX, aril_ctc_loss(big, i3, indices(3, 9), i3), "ctc_loss", "9");
    WRONG(ERR_INDEX, aril_ctc_loss(big, indices(3, 8), i3, i3), "ctc_loss", "label 8", "4 classes");
    WRONG(ERR_INDEX, aril_ctc_loss_with(big, i3, i3, i3, ((aril_ctc_opts){ .blank = 4 })),
          "ctc_loss", "blank 4");
    WRONG(ERR_ARG, aril_ctc_loss(big, NULL, i3, i3), "ctc_loss", "NULL");
    WRONG(ERR_ARG, aril_l2_penalty(((aril_list){ 0, NULL }), 1), "l2_penalty");
    WRONG(ERR_ARG, aril_l1_penalty(ARIL_LIST(f23, NULL), 1), "l1_penalty", "NULL");
}

/* ---- embedding bags, sorting, transforms, decompositions ---- */

TEST(embedding_bags_sorting_and_transforms)
{
    GIVEN;
    aril_embedding_bag_opts sum = { .mode = ARIL_SUM }, odd = { .mode = ARIL_NONE };
    WRONG(ERR_INDEX, aril_embedding_bag(aril_full_like(i23, 4), f45, NULL, sum), "embedding_bag",
          "index 4", "4 rows");
    WRONG(ERR_INDEX, aril_embedding_bag(aril_full_like(i23, -1), f45, NULL, sum), "embedding_bag",
          "-1");
    WRONG(ERR_SHAPE, aril_embedding_bag(i3, f45, NULL, sum), "embedding_bag", "[3]");
    WRONG(ERR_SHAPE, aril_embedding_bag(i23, f45, i3, sum), "embedding_bag", "[2,3]", "[3]");
    WRONG(ERR_SHAPE, aril_embedding_bag(i23, f3, NULL, sum), "embedding_bag", "[3]");
    WRONG(ERR_DTYPE, aril_embedding_bag(f23, f45, NULL, sum), "embedding_bag", "f32");
    WRONG(ERR_INDEX, aril_embedding_bag(i3, f45, i3, sum), "embedding_bag", "first offset");
    WRONG(ERR_INDEX, aril_embedding_bag(i3, f45, indices(2, 7), sum), "embedding_bag", "7");
    WRONG(ERR_ARG, aril_embedding_bag(i23, f45, NULL, odd), "embedding_bag", "mode");
    WRONG(ERR_ARG,
          aril_embedding_bag(i23, f45, NULL,
                             ((aril_embedding_bag_opts){ .per_sample_weights = f23 })),
          "embedding_bag", "per_sample_weights");
    WRONG(ERR_SHAPE,
          aril_embedding_bag(i23, f45, NULL,
                             ((aril_embedding_bag_opts){ .mode = ARIL_SUM,
                                                         .per_sample_weights = f45 })),
          "embedding_bag", "[4,5]", "[2,3]");
    WRONG(ERR_INDEX,
          aril_embedding_bag(i23, f45, NULL, ((aril_embedding_bag_opts){ .padding_idx = 9 })),
          "embedding_bag", "9");
    WRONG(ERR_ARG, aril_embedding_bag(NULL, f45, NULL, sum), "embedding_bag", "NULL");
    WRONG(ERR_INDEX, aril_sort(f23, 2, (aril_sort_opts){ 0 }, NULL), "sort", "2");
    WRONG(ERR_ARG, aril_sort(NULL, 0, (aril_sort_opts){ 0 }, NULL), "sort", "NULL");
    WRONG(ERR_ARG, aril_topk(f23, 4, 1, (aril_topk_opts){ 0 }, NULL), "topk", "4");
    WRONG(ERR_INDEX, aril_topk(f23, 1, 5, (aril_topk_opts){ 0 }, NULL), "topk", "5");
    WRONG(ERR_ARG, aril_kthvalue(f23, 9, ARIL_AXES(1), NULL), "kthvalue", "9");
    WRONG(ERR_ARG, aril_unique(NULL, NULL, NULL), "unique", "NULL");
    WRONG(ERR_SHAPE, aril_searchsorted(f23, f45, (aril_search_opts){ 0 }), "searchsorted", "[2,3]",
          "[4,5]");
    WRONG(ERR_DTYPE, aril_bincount(f3, NULL, 0), "bincount", "f32");
    WRONG(ERR_ARG, aril_histc(f3, 0, 0, 1), "histc");
    WRONG(ERR_SHAPE, aril_inverse(f23), "inverse", "[2,3]");
    WRONG(ERR_SHAPE, aril_det(f23), "det", "[2,3]");
    WRONG(ERR_SHAPE, aril_cholesky(f23, false), "cholesky", "[2,3]");
    WRONG(ERR_SHAPE, aril_solve(f23, f45), "solve", "[2,3]");
    WRONG(ERR_ARG, aril_inverse(NULL), "inverse", "NULL");
    WRONG(ERR_SHAPE, aril_trace(f3), "trace", "[3]");
    WRONG(ERR_ARG, aril_einsum("ij,jk->ik", ARIL_LIST(f23)), "einsum");
    WRONG(ERR_SHAPE, aril_einsum("ij,jk->ik", ARIL_LIST(f23, f45)), "einsum", "3 and 4");
    WRONG(ERR_ARG, aril_einsum(NULL, ARIL_LIST(f23)), "einsum");
    WRONG(ERR_ARG, aril_fft(NULL, (aril_fft_opts){ 0 }), "fft", "NULL");
    WRONG(ERR_ARG, aril_rfft(NULL, (aril_fft_opts){ 0 }), "rfft", "NULL");
    WRONG(ERR_DTYPE, aril_rfft(i23, (aril_fft_opts){ 0 }), "fft", "i64");
}

/* ---- gradients ---- */

static void double_it(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul_scalar(in[0], 2);
}

static void set_nothing(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx, (void)in, (void)out;
}

static aril_status backward_twice(void)
{
    aril_tensor *y = aril_sum(aril_square(leaf), ARIL_ALL);
    aril_status first = aril_backward(y);
    aril_zero_grad(leaf);
    return first < 0 ? first : aril_backward(y);
}

static aril_status backward_of_changed(void)
{
    aril_tensor *h = aril_exp(leaf), *y = aril_sum(h, ARIL_ALL);
    aril_mul_scalar_(h, 2);
    return aril_backward(y);
}

static aril_status ctc_second(void)
{
    aril_tensor *x = aril_randn(ARIL_SHAPE(3, 1, 4), ARIL_F32, aril_cpu()), *g;
    aril_set_requires_grad(x, true);
    aril_tensor *one = indices(1, 1), *three = indices(1, 3);
    aril_tensor *loss = aril_ctc_loss(aril_log_softmax(x, 2), one, three, one);
    aril_status s =
        aril_gradients(loss, ARIL_LIST(x), &g, (aril_grad_opts){ .create_graph = true });
    return s < 0 ? s : aril_backward(aril_sum(aril_square(g), ARIL_ALL));
}

static aril_status weight_gradient(void)
{
    aril_tensor *w = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
    aril_set_requires_grad(w, true);
    aril_cross_entropy_opts opts = { .weight = w };
    return aril_backward(aril_cross_entropy_with(f23, indices(2, 1), opts));
}

/* The caller releases a parameter, even a poisoned one. */
static aril_status parameter_of(aril_tensor *t)
{
    aril_tensor *p = aril_parameter(t);
    aril_status s = aril_tensor_status(p);
    aril_release(p);
    return s;
}

TEST(gradients)
{
    GIVEN;
    aril_tensor *g[2];
    aril_grad_opts plain = { .retain_graph = false };
    BAD(ERR_SHAPE, aril_backward(aril_square(leaf)), "backward", "[2,3]");
    BAD(ERR_GRAD, aril_backward(aril_sum(f23, ARIL_ALL)), "backward");
    BAD(ERR_ARG, aril_backward(NULL), "backward", "NULL");
    BAD(ERR_SHAPE, aril_backward_with(aril_square(leaf), f3, plain), "backward", "[2,3]", "[3]");
    BAD(ERR_GRAD, backward_twice(), "backward", "retain_graph");
    BAD(ERR_GRAD, backward_of_changed(), "exp", "[2,3]", "in place");
    BAD(ERR_GRAD, ctc_second(), "ctc_loss", "second");
    BAD(ERR_GRAD, weight_gradient(), "cross_entropy", "weights");
    BAD(ERR_GRAD, aril_gradients(aril_sum(leaf, ARIL_ALL), ARIL_LIST(f23), g, plain), "gradients");
    BAD(ERR_ARG, aril_gradients(NULL, ARIL_LIST(leaf), g, plain), "gradients", "NULL");
    BAD(ERR_ARG, aril_gradients(aril_sum(leaf, ARIL_ALL), ARIL_LIST(NULL), g, plain), "gradients",
        "NULL");
    BAD(ERR_DTYPE, aril_set_requires_grad(i23, true), "i64");
    BAD(ERR_ARG, aril_set_requires_grad(NULL, true), "NULL");
    BAD(ERR_GRAD, aril_set_requires_grad(aril_square(leaf), false), "requires_grad");
    BAD(ERR_SHAPE, aril_set_grad(leaf, f45), "grad", "[2,3]", "[4,5]");
    WRONG(ERR_GRAD, aril_grad(f23), "grad");
    WRONG(ERR_ARG, aril_grad(NULL), "grad", "NULL");
    WRONG(ERR_ARG, aril_detach(NULL), "detach", "NULL");
    BAD(ERR_DTYPE, parameter_of(i23), "requires_grad", "i64");
    BAD(ERR_ARG, parameter_of(NULL), "parameter", "NULL");
    WRONG(ERR_ARG, aril_jacobian(NULL, NULL, f23), "jacobian", "NULL");
    WRONG(ERR_ARG, aril_jacobian(double_it, NULL, NULL), "jacobian", "NULL");
    WRONG(ERR_STATE, aril_jacobian(set_nothing, NULL, f23), "jacobian");
    WRONG(ERR_SHAPE, aril_hessian(double_it, NULL, f23), "hessian", "[2,3]");
    WRONG(ERR_ARG, aril_vjp(double_it, NULL, f23, NULL, NULL), "vjp", "NULL");
    WRONG(ERR_ARG, aril_call(NULL, ARIL_LIST(f23)), "call");
    BAD(ERR_DTYPE, aril_gradcheck(double_it, NULL, ARIL_LIST(leaf), (aril_gradcheck_opts){ 0 }),
        "gradcheck", "f64");
}

/* ---- small functions ---- */

TEST(small_functions)
{
    GIVEN;
    aril_dtype dtype = ARIL_F32;
    BAD(ERR_DTYPE, aril_dtype_from_name("f33", &dtype), "f33");
    CHECK_INT(dtype, ARIL_F32);
    BAD(ERR_ARG, aril_dtype_from_name(NULL, &dtype), "NULL");
    BAD(ERR_DEVICE, aril_synchronize(aril_cuda(3)), "cuda");
    BAD(ERR_DEVICE, (aril_device_named("abacus:0"), aril_error_code()), "abacus");
    const char *const wrong[] = {
        "cuda:", "cuda: 0", "cuda:+1", "cuda:01", "cuda:-0", "cuda:65536"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        BAD(ERR_DEVICE, (aril_device_named(wrong[i]), aril_error_code()), wrong[i]);
    BAD(ERR_DEVICE, (aril_cuda(65536), aril_error_code()), "cuda:65536");
    BAD(ERR_SHAPE, (isnan(aril_item(f23)) ? aril_error_code() : 0), "item", "[2,3]");
    BAD(ERR_ARG, (isnan(aril_item(NULL)) ? aril_error_code() : 0), "item", "NULL");
    BAD(ERR_SHAPE, (aril_item_int(i23) == 0 ? aril_error_code() : 0), "item", "[2,3]");
    BAD(ERR_ARG, (aril_data(NULL) == NULL ? aril_error_code() : 0), "NULL");
    CHECK_INT(aril_dtype_of(NULL), ARIL_F32);
    CHECK_INT(aril_size(f23, 5), -1);
    aril_clear_error();
    CHECK_STR(aril_dtype_name((aril_dtype)99), "?");
    CHECK_STR(aril_status_name(77), "?");
    CHECK_STR(aril_status_name(ARIL_ERR_SHAPE), "ERR_SHAPE");
    CHECK(!aril_device_available(aril_cuda(99)));
    CHECK_MSG(n_rows >= 150, "%d wrong calls", n_rows);
    printf("      %d wrong calls\n", n_rows);
}

/* ---- poison ---- */

TEST(poison_is_propagated)
{
    GIVEN;
    aril_tensor *p = aril_add(f23, f45);
    CHECK_INT(aril_tensor_status(p), ARIL_ERR_SHAPE);
    const char *first = aril_tensor_error(p);
    CHECK(first && strstr(first, "[2,3]"));
    aril_tensor *after[] = { aril_relu(p),
                             aril_add(p, f23),
                             aril_add(f23, p),
                             aril_sum(p, ARIL_ALL),
                             aril_reshape(p, ARIL_SHAPE(6)),
                             aril_matmul(p, f23),
                             aril_t(p),
                             aril_cross_entropy(p, i3),
                             aril_mse_loss(f23, p),
                             aril_softmax(p, 5),
                             aril_cat(ARIL_LIST(f23, p), 0),
                             aril_cast(p, ARIL_I64),
                             aril_copy(p),
                             aril_where(b23, p, f23),
                             aril_conv2d(p, ker, NULL, (aril_conv_opts){ 0 }),
                             aril_mul_scalar(p, 2),
                             aril_detach(p),
                             aril_zeros_like(p),
                             aril_slice(p, 7, 0, 1, 1),
                             aril_ctc_loss(p, p, p, p),
                             aril_pairwise_distance(p, f23),
                             aril_multi_margin_loss(p, i3),
                             aril_gaussian_nll_loss(f23, f23, p),
                             aril_kl_div(p, p),
                             aril_l2_penalty(ARIL_LIST(p), 1),
                             aril_cosine_similarity(p, f23, 3) };
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        CHECK_MSG(aril_tensor_status(after[i]) == ARIL_ERR_SHAPE, "op %zu: %s", i,
                  aril_status_name(aril_tensor_status(after[i])));
        CHECK_STR(aril_tensor_error(after[i]), first);
    }
    CHECK(isnan(aril_item(p)));
    CHECK_INT(aril_item_int(p), 0);
    CHECK(aril_data(p) == NULL);
    CHECK_INT(aril_dtype_of(p), ARIL_F32);
    CHECK_INT(aril_ndim(p), 0);
    CHECK_INT(aril_backward(p), ARIL_ERR_SHAPE);
    float buf[6];
    CHECK_INT(aril_read(p, buf), ARIL_ERR_SHAPE);

    /* A destination stays unchanged. */
    aril_tensor *r = aril_add_(f23, p);
    CHECK_INT(aril_tensor_status(r), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(f23), ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(f23, ARIL_ALL)), 6, 0);
    aril_copy_(f23, p);
    CHECK_NEAR(aril_item(aril_sum(f23, ARIL_ALL)), 6, 0);
    CHECK(aril_add_(p, f23) == p);
    aril_clear_error();
    CHECK_INT(aril_tensor_status(p), ARIL_ERR_SHAPE); /* stays poisoned */
}

TEST(first_error_is_kept)
{
    GIVEN;
    CHECK(aril_ok() && !*aril_error());
    CHECK_INT(aril_error_code(), ARIL_OK);
    aril_add(f23, f45);
    CHECK(!aril_ok());
    char first[512];
    snprintf(first, sizeof first, "%s", aril_error());
    aril_sum(f23, ARIL_AXES(7));
    aril_tensor *second = aril_tanh(NULL);
    CHECK_STR(aril_error(), first);
    CHECK_INT(aril_error_code(), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(second), ARIL_ERR_ARG);
    CHECK(strstr(aril_tensor_error(second), "tanh"));
    CHECK(strstr(first, "test_errors.c:")); /* the source location of the wrong call */

    char text[1024] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    CHECK(f);
    CHECK_INT(aril_report(f), 1);
    fclose(f);
    CHECK(strstr(text, first));
    aril_clear_error();
    CHECK(aril_ok() && !*aril_error());
    CHECK_INT(aril_report(stderr), 0);
    aril_tanh(NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
    aril_clear_error();
    aril_clear_error();
    CHECK(aril_ok());
}

typedef struct heard {
    int n;
    aril_status code;
    char message[512];
} heard;

static void hear(aril_status code, const char *message, void *ctx)
{
    heard *h = ctx;
    h->n++;
    h->code = code;
    snprintf(h->message, sizeof h->message, "%s", message);
}

TEST(handler_is_called_for_every_new_error)
{
    GIVEN;
    heard h = { 0 };
    aril_set_error_handler(hear, &h);
    aril_tensor *p = aril_add(f23, f45);
    CHECK_INT(h.n, 1);
    CHECK_INT(h.code, ARIL_ERR_SHAPE);
    CHECK_STR(h.message, aril_error());
    aril_relu(p); /* propagated, not a new error */
    CHECK_INT(h.n, 1);
    aril_tanh(NULL);
    CHECK_INT(h.n, 2);
    CHECK_INT(h.code, ARIL_ERR_ARG);
    aril_set_error_handler(NULL, NULL);
    aril_tanh(NULL);
    CHECK_INT(h.n, 2);
    aril_clear_error();
}

typedef struct errand {
    aril_tensor *poison;
    bool clean_before, same_message, own;
    aril_status code;
} errand;

static void *use_poison(void *arg)
{
    ARIL_SCOPE;
    errand *e = arg;
    e->clean_before = aril_ok();
    aril_tensor *r = aril_relu(e->poison);
    e->code = aril_error_code();
    e->same_message = strcmp(aril_error(), aril_tensor_error(e->poison)) == 0 &&
                      strcmp(aril_tensor_error(r), aril_error()) == 0;
    aril_clear_error();
    aril_tanh(NULL);
    e->own = aril_error_code() == ARIL_ERR_ARG;
    aril_clear_error();
    return NULL;
}

TEST(another_thread_adopts_the_error_of_poison)
{
    GIVEN;
    errand e = { .poison = aril_keep(aril_add(f23, f45)) };
    aril_clear_error();
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, use_poison, &e), 0);
    pthread_join(t, NULL);
    CHECK(e.clean_before && e.same_message && e.own);
    CHECK_INT(e.code, ARIL_ERR_SHAPE);
    CHECK(aril_ok()); /* errors are per thread */
    aril_release(e.poison);
}
