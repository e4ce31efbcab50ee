/* Products of 8-bit integers against plain sums, on every level of processor. */
#include "core/cpu.h"
#include "ops/linalg/integer.h"
#include "ops/table/apply.h"
#include "ops/vision/conv.h"
#include "support/test.h"

#include "aril/aril.h"

#include <stdlib.h>

static uint32_t state = 1;

static int draw(int low, int high)
{
    state = state * 1664525U + 1013904223U;
    return low + (int)(state >> 8) % (high - low + 1);
}

/* Values of the dtype, often its largest and smallest. */
static aril_tensor *bytes(aril_shape shape, aril_dtype dtype)
{
    int low = dtype == ARIL_I8 ? -128 : 0, high = low + 255;
    aril_tensor *t = aril_empty(shape, dtype, aril_cpu());
    unsigned char *at = (unsigned char *)aril_data_strided(t);
    for (int64_t i = 0; i < aril_numel(t); i++) {
        int kind = draw(0, 3);
        at[i] = (unsigned char)(kind == 0 ? low : kind == 1 ? high : draw(low, high));
    }
    return t;
}

static aril_tensor *as_double(aril_tensor *t, aril_tensor *zero)
{
    t = aril_cast(t, ARIL_F64);
    return zero ? aril_sub(t, aril_cast(zero, ARIL_F64)) : t;
}

static const aril_dtype dtypes[] = { ARIL_U8, ARIL_I8 };

static void check_product(int64_t m, int64_t k, int64_t n, aril_dtype of_a, aril_dtype of_b)
{
    ARIL_SCOPE;
    aril_tensor *a = bytes(ARIL_SHAPE(m, k), of_a), *b = bytes(ARIL_SHAPE(k, n), of_b);
    aril_tensor *a0 = bytes(ARIL_SHAPE(), of_a), *b0 = bytes(ARIL_SHAPE(n), of_b);
    for (int zeros = 0; zeros < 4; zeros++) {
        aril_tensor *za = zeros & 1 ? a0 : NULL, *zb = zeros & 2 ? b0 : NULL;
        aril_tensor *y = aril__op(&aril__op_matmul_integer, a, b, za, zb);
        aril_tensor *want = aril_cast(aril_matmul(as_double(a, za), as_double(b, zb)), ARIL_I32);
        CHECK_MSG(aril_equal(y, want), "%d x %d x %d, zero points %d", (int)m, (int)k, (int)n,
                  zeros);
        aril_tensor *turned = aril_transpose(aril_contiguous(aril_transpose(b, 0, 1)), 0, 1);
        CHECK(aril_equal(aril__op(&aril__op_matmul_integer, a, turned, za, zb), want));
    }
}

static void on_each_level(void (*check)(aril_dtype a, aril_dtype b))
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++)
        for (int i = 0; i < 4; i++) {
            aril__cpu_set(level);
            check(dtypes[i / 2], dtypes[i % 2]);
        }
    aril__cpu_set(top);
}

static void products(aril_dtype a, aril_dtype b)
{
    static const int64_t sizes[][3] = { { 1, 1, 1 },   { 1, 64, 64 },   { 6, 4, 16 },
                                        { 7, 5, 17 },  { 13, 130, 65 }, { 49, 33, 129 },
                                        { 50, 3, 200 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_product(sizes[i][0], sizes[i][1], sizes[i][2], a, b);
}

TEST(products_are_exact)
{
    on_each_level(products);
}

/* round(sum * scale) + zero in range, halves to even: what the reference computes. */
static void rescaled(aril_dtype of_a, aril_dtype of_b)
{
    ARIL_SCOPE;
    enum { M = 9, K = 21, N = 70 };
    float scale[N];
    int32_t bias[N];
    for (int i = 0; i < N; i++) {
        scale[i] = (float)draw(1, 100) * 1e-4F;
        bias[i] = draw(-9999, 9999);
    }
    aril_tensor *a = bytes(ARIL_SHAPE(M, K), of_a), *b = bytes(ARIL_SHAPE(K, N), of_b);
    aril_tensor *zero = bytes(ARIL_SHAPE(), of_a);
    aril_tensor *y = aril__op(&aril__op_matmul_integer, a, b, NULL, NULL,
                              aril_from(bias, ARIL_SHAPE(N), ARIL_I32, aril_cpu()),
                              aril_from(scale, ARIL_SHAPE(N), ARIL_F32, aril_cpu()), zero);
    aril_tensor *sum = aril__op(&aril__op_matmul_integer, a, b);
    CHECK_INT(aril_dtype_of(y), of_a);
    const int32_t *s = aril_data(sum);
    const unsigned char *got = aril_data(y), *z = aril_data(zero);
    int low = of_a == ARIL_I8 ? -128 : 0, offset = of_a == ARIL_I8 ? (int8_t)*z : *z;
    for (int i = 0; i < M * N; i++) {
        double v = rint((double)((float)(s[i] + bias[i % N]) * scale[i % N])) + offset;
        int want = v < low ? low : v > low + 255 ? low + 255 : (int)v;
        CHECK_INT(of_a == ARIL_I8 ? (int8_t)got[i] : got[i], want);
    }
}

TEST(results_are_rescaled)
{
    on_each_level(rescaled);
}

/* Groups, depthwise and plain, with padding of the zero point's value. */
static void convolutions(aril_dtype of_x, aril_dtype of_w)
{
    static const struct {
        int64_t channels, filters, groups, size, kernel;
    } kinds[] = { { 3, 5, 1, 9, 3 },    { 8, 70, 1, 7, 1 },    { 6, 4, 2, 8, 3 },
                  { 40, 40, 40, 9, 3 }, { 16, 16, 16, 12, 9 }, { 4, 8, 4, 6, 2 } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ARIL_SCOPE;
        int64_t c = kinds[i].channels, k = kinds[i].kernel, g = kinds[i].groups, s = kinds[i].size;
        aril_tensor *x = bytes(ARIL_SHAPE(2, c, s, s), of_x),
                    *w = bytes(ARIL_SHAPE(kinds[i].filters, c / g, k, k), of_w);
        aril_tensor *x0 = bytes(ARIL_SHAPE(), of_x),
                    *w0 = bytes(ARIL_SHAPE(kinds[i].filters), of_w);
        struct conv_attrs a = {
            .stride = { 2, 1, 1 }, .pad = { 1, 1, 0, 1 }, .dilation = { 1, 1, 1 }, .groups = { g }
        };
        aril_tensor *y = aril__op_with(&a, &aril__op_conv_integer, x, w, x0, w0);
        aril_tensor *wide = aril_reshape(w0, ARIL_SHAPE(-1, 1, 1, 1));
        aril_tensor *want = aril__op_with(&a, &aril__op_conv, as_double(x, x0), as_double(w, wide));
        CHECK_MSG(aril_equal(y, aril_cast(aril_round(want), ARIL_I32)), "convolution %d", (int)i);
        aril_tensor *again = aril__op_with(&a, &aril__op_conv_integer, x, w, x0, w0);
        CHECK(aril_equal(y, again)); /* with the packed weights */
    }
}

TEST(convolutions_are_exact)
{
    on_each_level(convolutions);
}

TEST(wrong_inputs)
{
    ARIL_SCOPE;
    aril_tensor *a = bytes(ARIL_SHAPE(2, 3), ARIL_U8), *b = bytes(ARIL_SHAPE(3, 4), ARIL_I8);
    aril_tensor *f = aril_ones(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    aril_tensor *bad[] = {
        aril__op(&aril__op_matmul_integer, a, a),
        aril__op(&aril__op_matmul_integer, f, b),
        aril__op(&aril__op_matmul_integer, a, aril_cast(b, ARIL_F32)),
        aril__op(&aril__op_matmul_integer, a, b, bytes(ARIL_SHAPE(), ARIL_I8)),
        aril__op(&aril__op_matmul_integer, a, b, NULL, bytes(ARIL_SHAPE(3), ARIL_I8)),
        aril__op(&aril__op_matmul_integer, a, b, NULL, NULL, NULL, f),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(aril_tensor_status(bad[i]) < 0, "input %d", (int)i);
    aril_clear_error();
}
