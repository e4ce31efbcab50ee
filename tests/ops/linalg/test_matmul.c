/* Matrix products: every row against plain loops, for odd sizes, strides and batches. */
#include "support/device.h"
#include "support/test.h"

#include "aril/aril.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "ops/linalg/matmul.h"
#include "ops/table/rows.h"
#include "support/agree.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* A tensor of small values that depend only on the position. */
static aril_tensor *filled(aril_shape shape, aril_dtype dtype, unsigned seed)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= shape.dim[i];
    double *v = malloc((size_t)(n ? n : 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (double)(int)(seed >> 24) / 64 - 2;
    }
    aril_tensor *t = aril_cast(aril_from(v, shape, ARIL_F64, test_device()), dtype);
    free(v);
    return t;
}

static double at(const aril_tensor *t, int64_t i, int64_t k)
{
    double v;
    aril_tensor *one = aril_slice(aril_slice((aril_tensor *)t, 0, i, i + 1, 1), 1, k, k + 1, 1);
    aril_read(aril_cast(aril_reshape(one, ARIL_SHAPE()), ARIL_F64), &v);
    return v;
}

/* The product of 2-d tensors by rows 0, 1, 2 ... of the op, compared with loops over elements. */
static void check_product(aril_tensor *a, aril_tensor *b, double tol)
{
    ARIL_SCOPE;
    int64_t m = aril_size(a, 0), n = aril_size(b, 1), k = aril_size(a, 1);
    double *fa = malloc((size_t)(m * k + 1) * sizeof *fa), *fb = malloc((size_t)(k * n + 1) * 8);
    double *fc = malloc((size_t)(m * n + 1) * sizeof *fc);
    aril_read(aril_cast(a, ARIL_F64), fa);
    aril_read(aril_cast(b, ARIL_F64), fb);
    for (int row = 0; row < 4; row++) {
        aril__force_row = row;
        aril_tensor *c = aril_matmul(a, b);
        aril__force_row = -1;
        if (aril_tensor_status(c) < 0 || aril_size(c, 0) != m || aril_size(c, 1) != n) {
            test_fail(__FILE__, __LINE__, "row %d: wrong result", row);
            break;
        }
        aril_read(aril_cast(c, ARIL_F64), fc);
        for (int64_t i = 0; i < m && !test_failed(); i++)
            for (int64_t j = 0; j < n; j++) {
                double want = 0;
                for (int64_t p = 0; p < k; p++) want += fa[i * k + p] * fb[p * n + j];
                if (fabs(fc[i * n + j] - want) > tol * (double)(k + 1)) {
                    test_fail(__FILE__, __LINE__, "row %d, [%d,%d]x[%d,%d] at %d,%d: %g, not %g",
                              row, (int)m, (int)k, (int)k, (int)n, (int)i, (int)j, fc[i * n + j],
                              want);
                    break;
                }
            }
    }
    free(fa);
    free(fb);
    free(fc);
}

static const int64_t sizes[][3] = { { 1, 1, 1 },      { 2, 3, 4 },     { 5, 7, 1 },
                                    { 1, 33, 65 },    { 17, 1, 9 },    { 13, 31, 17 },
                                    { 12, 32, 256 },  { 25, 65, 257 }, { 97, 33, 70 },
                                    { 130, 70, 300 }, { 3, 600, 20 },  { 390, 5, 40 },
                                    { 0, 4, 3 },      { 4, 0, 3 },     { 3, 4, 0 },
                                    { 200, 520, 40 }, { 150, 45, 90 }, { 129, 200, 330 },
                                    { 7, 9, 2500 },   { 130, 3, 17 },  { 1, 5, 2100 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(rows_agree_on_odd_sizes)
{
    for (int i = 0; i < SIZES; i++) {
        ARIL_SCOPE;
        int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        check_product(filled(ARIL_SHAPE(m, k), ARIL_F32, 1), filled(ARIL_SHAPE(k, n), ARIL_F32, 2),
                      2e-6);
        check_product(filled(ARIL_SHAPE(m, k), ARIL_F64, 1), filled(ARIL_SHAPE(k, n), ARIL_F64, 2),
                      1e-13);
    }
    CHECK(aril_ok());
}

TEST(rows_agree_on_transposed_and_strided)
{
    for (int i = 0; i < SIZES; i++) {
        ARIL_SCOPE;
        int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        aril_tensor *at_ = aril_t(filled(ARIL_SHAPE(k, m), ARIL_F32, 3));
        aril_tensor *bt = aril_t(filled(ARIL_SHAPE(n, k), ARIL_F32, 4));
        aril_tensor *a = filled(ARIL_SHAPE(m, k), ARIL_F32, 5),
                    *b = filled(ARIL_SHAPE(k, n), ARIL_F32, 6);
        check_product(at_, b, 2e-6);
        check_product(a, bt, 2e-6);
        check_product(at_, bt, 2e-6);
        /* every other element, reversed, a column repeated */
        aril_tensor *wide = filled(ARIL_SHAPE(2 * m, 3 * k), ARIL_F32, 7);
        check_product(aril_slice(aril_slice(wide, 0, 0, ARIL_END, 2), 1, 0, ARIL_END, 3), b, 2e-6);
        check_product(aril_slice(a, 1, -1, ARIL_END, -1), aril_slice(b, 0, -1, ARIL_END, -1), 2e-6);
        check_product(aril_expand(filled(ARIL_SHAPE(m, 1), ARIL_F32, 8), ARIL_SHAPE(m, k)), b,
                      2e-6);
    }
    CHECK(aril_ok());
}

/* The same with every instruction set that the machine has. */
TEST(rows_agree_at_every_level)
{
    static const int64_t of[][3] = { { 150, 45, 90 }, { 129, 200, 330 }, { 7, 9, 2500 },
                                     { 13, 31, 17 },  { 16, 16, 16 },    { 5, 37, 70 },
                                     { 70, 64, 64 } };
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            for (int wide = 0; wide < 2; wide++) {
                ARIL_SCOPE;
                int64_t m = of[i][0], n = of[i][1], k = of[i][2];
                aril_dtype type = wide ? ARIL_F64 : ARIL_F32;
                double tol = wide ? 1e-13 : 2e-6;
                aril_tensor *a = filled(ARIL_SHAPE(m, k), type, 1),
                            *b = filled(ARIL_SHAPE(k, n), type, 2);
                aril_tensor *at_ = aril_t(filled(ARIL_SHAPE(k, m), type, 3)),
                            *bt = aril_t(filled(ARIL_SHAPE(n, k), type, 4));
                check_product(a, b, tol);
                check_product(at_, b, tol);
                check_product(a, bt, tol);
                check_product(at_, bt, tol);
            }
    }
    aril__cpu_set(top);
    CHECK(aril_ok());
}

/* Products of one and two rows, with widths around those of vectors. */
TEST(rows_agree_on_few_rows)
{
    static const int64_t widths[] = { 1, 2, 4, 5, 8, 15, 16, 17, 20, 31, 32, 48, 50, 63, 64, 65 };
    enum { WIDTHS = sizeof widths / sizeof *widths };
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        for (int i = 0; i < 2 * WIDTHS * WIDTHS; i++) {
            ARIL_SCOPE;
            int64_t m = 1 + i % 2, n = widths[i / 2 % WIDTHS], k = widths[i / 2 / WIDTHS];
            aril_dtype type = (n + k) % 3 ? ARIL_F32 : ARIL_F64;
            double tol = type == ARIL_F64 ? 1e-13 : 2e-6;
            aril_tensor *a = filled(ARIL_SHAPE(m, k), type, 1);
            check_product(a, filled(ARIL_SHAPE(k, n), type, 2), tol);
            check_product(a, aril_t(filled(ARIL_SHAPE(n, k), type, 4)), tol);
            aril_tensor *wide = filled(ARIL_SHAPE(k, n + 3), type, 5);
            check_product(a, aril_narrow(wide, 1, 1, n), tol);
        }
    }
    aril__cpu_set(top);
    CHECK(aril_ok());
}

/* Long sums over k don't drift: for values around 1, the error stays far below one part in 10^5. */
TEST(a_long_sum_is_accurate)
{
    enum { K = 200 * 1000 };
    for (int row = 0; row < 4; row++) {
        ARIL_SCOPE;
        aril_tensor *a =
            aril_add_scalar(aril_mul_scalar(filled(ARIL_SHAPE(20, K), ARIL_F32, 1), .1), 1);
        aril_tensor *b =
            aril_add_scalar(aril_mul_scalar(filled(ARIL_SHAPE(K, 3), ARIL_F32, 2), .1), 1);
        aril__force_row = row;
        aril_tensor *c = aril_matmul(a, b);
        aril__force_row = -1;
        aril_tensor *want = aril_matmul(aril_cast(a, ARIL_F64), aril_cast(b, ARIL_F64));
        aril_tensor *e = aril_div(aril_abs(aril_sub(aril_cast(c, ARIL_F64), want)), want);
        CHECK(aril_item(aril_amax(e, ARIL_ALL)) < 1e-5);
    }
    CHECK(aril_ok());
}

TEST(low_precision_and_integers)
{
    ARIL_SCOPE;
    check_product(filled(ARIL_SHAPE(9, 20), ARIL_F16, 1), filled(ARIL_SHAPE(20, 11), ARIL_F16, 2),
                  4e-3);
    check_product(filled(ARIL_SHAPE(9, 20), ARIL_BF16, 1), filled(ARIL_SHAPE(20, 11), ARIL_BF16, 2),
                  4e-2);
    check_product(filled(ARIL_SHAPE(9, 20), ARIL_I32, 1), filled(ARIL_SHAPE(20, 11), ARIL_I32, 2),
                  0);
    check_product(filled(ARIL_SHAPE(9, 20), ARIL_I64, 1), filled(ARIL_SHAPE(20, 11), ARIL_I64, 2),
                  0);
    CHECK(aril_ok());
}

/* Broadcast batches, against products of single matrices. */
TEST(batches_broadcast)
{
    for (int row = 0; row < 4; row++) {
        ARIL_SCOPE;
        aril_tensor *a = filled(ARIL_SHAPE(2, 1, 3, 4), ARIL_F64, 1);
        aril_tensor *b = filled(ARIL_SHAPE(5, 4, 6), ARIL_F64, 2);
        aril_tensor *wa = aril_transpose(filled(ARIL_SHAPE(2, 3, 1, 4), ARIL_F64, 3), 1, 2);
        aril__force_row = row;
        aril_tensor *c = aril_matmul(a, b), *d = aril_matmul(wa, b);
        aril__force_row = -1;
        CHECK_INT(aril_ndim(c), 4);
        CHECK_INT(aril_size(c, 0), 2);
        CHECK_INT(aril_size(c, 1), 5);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 5; j++) {
                aril_tensor *ai = aril_reshape(aril_slice(a, 0, i, i + 1, 1), ARIL_SHAPE(3, 4));
                aril_tensor *wi = aril_reshape(aril_slice(wa, 0, i, i + 1, 1), ARIL_SHAPE(3, 4));
                aril_tensor *bj = aril_reshape(aril_slice(b, 0, j, j + 1, 1), ARIL_SHAPE(4, 6));
                aril_tensor *ci = aril_slice(aril_slice(c, 0, i, i + 1, 1), 1, j, j + 1, 1);
                aril_tensor *di = aril_slice(aril_slice(d, 0, i, i + 1, 1), 1, j, j + 1, 1);
                aril_tensor *e = aril_sub(aril_reshape(ci, ARIL_SHAPE(3, 6)), aril_matmul(ai, bj));
                aril_tensor *f = aril_sub(aril_reshape(di, ARIL_SHAPE(3, 6)), aril_matmul(wi, bj));
                CHECK_NEAR(aril_item(aril_sum(aril_abs(e), ARIL_ALL)), 0, 1e-12);
                CHECK_NEAR(aril_item(aril_sum(aril_abs(f), ARIL_ALL)), 0, 1e-12);
            }
    }
    CHECK(aril_ok());
}

TEST(vectors)
{
    ARIL_SCOPE;
    aril_tensor *v = filled(ARIL_SHAPE(4), ARIL_F64, 1), *m = filled(ARIL_SHAPE(3, 4), ARIL_F64, 2);
    aril_tensor *b = filled(ARIL_SHAPE(2, 4, 5), ARIL_F64, 3);
    CHECK_INT(aril_ndim(aril_matmul(v, v)), 0);
    CHECK_NEAR(aril_item(aril_dot(v, v)), aril_item(aril_sum(aril_square(v), ARIL_ALL)), 1e-12);
    CHECK_INT(aril_size(aril_matmul(m, v), 0), 3);
    CHECK_INT(aril_ndim(aril_matmul(v, b)), 2);
    CHECK_INT(aril_size(aril_matmul(v, b), 1), 5);
    CHECK_INT(aril_size(aril_matmul(aril_transpose(b, 1, 2), v), 1), 5);
    aril_tensor *o = aril_outer(v, filled(ARIL_SHAPE(3), ARIL_F64, 4));
    CHECK_INT(aril_size(o, 0), 4);
    CHECK_INT(aril_size(o, 1), 3);
    CHECK_NEAR(at(o, 1, 0),
               at(aril_unsqueeze(v, 1), 1, 0) * at(o, 0, 0) / at(aril_unsqueeze(v, 1), 0, 0), 1e-9);
    CHECK(aril_ok());
}

/* The same bits on any number of threads, with each row. */
TEST(results_do_not_depend_on_threads)
{
    static const int64_t of[][3] = {
        { 700, 300, 200 }, { 64, 2000, 100 }, { 1, 3000, 700 }, { 3000, 1, 700 }
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int row = 0; row < 4; row++) {
            ARIL_SCOPE;
            aril_tensor *a = filled(ARIL_SHAPE(of[i][0], of[i][2]), ARIL_F32, 1);
            aril_tensor *b = filled(ARIL_SHAPE(of[i][2], of[i][1]), ARIL_F32, 2);
            aril__force_row = row;
            aril_set_threads(1);
            aril_tensor *one = aril_matmul(a, b);
            aril_set_threads(3);
            aril_tensor *three = aril_matmul(a, b);
            aril_set_threads(0);
            aril__force_row = -1;
            CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(one, three)), ARIL_ALL)), 0, 0);
        }
}

TEST(linear_is_matmul_and_bias)
{
    for (int row = 0; row < 4; row++) {
        ARIL_SCOPE;
        aril_tensor *x = filled(ARIL_SHAPE(2, 3, 7), ARIL_F32, 1);
        aril_tensor *w = filled(ARIL_SHAPE(5, 7), ARIL_F32, 2),
                    *b = filled(ARIL_SHAPE(5), ARIL_F32, 3);
        aril__force_row = row;
        aril_tensor *y = aril_linear(x, w, b), *z = aril_linear(x, w, NULL);
        aril_tensor *v = aril_linear(aril_transpose(x, 0, 1), w, b);
        aril__force_row = -1;
        aril_tensor *want = aril_matmul(x, aril_t(w));
        CHECK_INT(aril_size(y, 2), 5);
        CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(z, want)), ARIL_ALL)), 0, 1e-4);
        want = aril_add(want, b);
        CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(y, want)), ARIL_ALL)), 0, 1e-4);
        v = aril_sub(aril_transpose(v, 0, 1), want);
        CHECK_NEAR(aril_item(aril_sum(aril_abs(v), ARIL_ALL)), 0, 1e-4);
    }
    CHECK(aril_ok());
}

/* An activation fused into linear against a separate one, with gradients. */
TEST(linear_with_an_activation)
{
    static const aril_activation acts[] = { ARIL_NO_ACTIVATION, ARIL_RELU,    ARIL_RELU6,
                                            ARIL_LEAKY_RELU,    ARIL_SIGMOID, ARIL_TANH };
    static const int64_t of[][3] = {
        { 3, 5, 4 }, { 40, 300, 70 }, { 300, 9, 33 }, { 2, 200, 500 }
    };
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++)
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            for (int row = 0; row < 4; row++) {
                ARIL_SCOPE;
                aril_tensor *in[3] = { filled(ARIL_SHAPE(of[i][0], of[i][2]), ARIL_F64, 1),
                                       filled(ARIL_SHAPE(of[i][1], of[i][2]), ARIL_F64, 2),
                                       filled(ARIL_SHAPE(of[i][1]), ARIL_F64, 3) };
                aril_tensor *a[3], *b[3];
                for (int j = 0; j < 3; j++) {
                    a[j] = aril_parameter(in[j]);
                    b[j] = aril_parameter(in[j]);
                }
                aril__force_row = row;
                aril_tensor *y =
                    aril_linear_with(a[0], a[1], a[2], (aril_linear_opts){ .activation = acts[k] });
                aril__force_row = -1;
                aril_tensor *z = aril_linear(b[0], b[1], b[2]);
                z = acts[k] == ARIL_RELU         ? aril_relu(z)
                    : acts[k] == ARIL_RELU6      ? aril_relu6(z)
                    : acts[k] == ARIL_LEAKY_RELU ? aril_leaky_relu(z, 0.01)
                    : acts[k] == ARIL_SIGMOID    ? aril_sigmoid(z)
                    : acts[k] == ARIL_TANH       ? aril_tanh(z)
                                                 : z;
                CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(y, z)), ARIL_ALL)), 0, 1e-10);
                aril_backward(aril_sum(aril_square(y), ARIL_ALL));
                aril_backward(aril_sum(aril_square(z), ARIL_ALL));
                for (int j = 0; j < 3; j++) {
                    aril_tensor *e = aril_sub(aril_grad(a[j]), aril_grad(b[j]));
                    aril_tensor *max = aril_amax(aril_abs(aril_grad(b[j])), ARIL_ALL);
                    CHECK(aril_item(aril_amax(aril_abs(e), ARIL_ALL)) <=
                          1e-10 * (1 + aril_item(max)));
                    aril_release(a[j]);
                    aril_release(b[j]);
                }
            }
    CHECK(aril_ok());
}

TEST(gradients_of_products)
{
    ARIL_SCOPE;
    aril_tensor *x = filled(ARIL_SHAPE(2, 3, 4), ARIL_F64, 1);
    aril_tensor *w = aril_parameter(filled(ARIL_SHAPE(4, 5), ARIL_F64, 2));
    aril_tensor *v = aril_parameter(filled(ARIL_SHAPE(6, 5), ARIL_F64, 3));
    aril_tensor *b = aril_parameter(filled(ARIL_SHAPE(6), ARIL_F64, 4));
    aril_tensor *y = aril_linear(aril_matmul(x, w), v, b); /* [2,3,6] */
    CHECK_INT(aril_backward(aril_sum(y, ARIL_ALL)), 0);
    /* d/dw of the sum: sums of x along its rows, times sums of v along its columns. */
    aril_tensor *want = aril_outer(aril_sum(x, ARIL_AXES(0, 1)), aril_sum(v, ARIL_AXES(0)));
    aril_tensor *e = aril_sum(aril_abs(aril_sub(aril_grad(w), want)), ARIL_ALL);
    CHECK_NEAR(aril_item(e), 0, 1e-10);
    CHECK_NEAR(aril_item(aril_sum(aril_grad(b), ARIL_ALL)), 36, 1e-12);
    CHECK_INT(aril_ndim(aril_grad(v)), 2);
    CHECK(aril_ok());
    aril_release(w);
    aril_release(v);
    aril_release(b);
}

TEST(invalid_arguments_are_explained)
{
    ARIL_SCOPE;
    aril_tensor *a = filled(ARIL_SHAPE(3, 4), ARIL_F32, 1),
                *b = filled(ARIL_SHAPE(5, 2), ARIL_F32, 2);
    CHECK_INT(aril_tensor_status(aril_matmul(a, b)), ARIL_ERR_SHAPE);
    CHECK(!aril_ok());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_matmul(a, aril_cast(aril_t(a), ARIL_F64))), ARIL_ERR_DTYPE);
    CHECK_INT(aril_tensor_status(aril_matmul(a, NULL)), ARIL_ERR_ARG);
    CHECK_INT(aril_tensor_status(aril_bmm(a, b)), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(aril_linear(a, b, NULL)), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(aril_linear_with(
                  a, a, NULL, (aril_linear_opts){ .activation = (aril_activation)77 })),
              ARIL_ERR_ARG);
    aril_tensor *integer = aril_cast(a, ARIL_I32);
    CHECK_INT(aril_tensor_status(aril_linear_with(integer, integer, NULL,
                                                  (aril_linear_opts){ .activation = ARIL_RELU })),
              ARIL_ERR_DTYPE);
    aril_clear_error();
}

/* The fastest of several runs, in seconds. */
static double fastest(aril_tensor *a, aril_tensor *b, bool dot)
{
    double best = INFINITY;
    for (int i = 0; i < 12; i++) {
        ARIL_SCOPE;
        double start = aril__seconds();
        if (dot)
            aril_dot(a, b);
        else
            aril_sum(aril_mul(a, b), ARIL_ALL);
        double t = aril__seconds() - start;
        best = t < best ? t : best;
    }
    return best;
}

/* A product of two vectors reads each once; a serial chain of additions would take ten times as
 * long as the two passes that it is compared with. */
TEST(dot_is_not_slower_than_sum_of_mul)
{
    ARIL_SCOPE;
    const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_BF16, ARIL_F16 };
    aril_set_threads(1); /* a multithreaded sum is no baseline for a single-threaded loop */
    for (int d = 0; d < 4; d++) {
        aril_tensor *a = filled(ARIL_SHAPE(1 << 18), dtypes[d], 1);
        aril_tensor *b = filled(ARIL_SHAPE(1 << 18), dtypes[d], 2);
        double dot = fastest(a, b, true), passes = fastest(a, b, false);
        CHECK_MSG(dot < 4 * passes, "%s: dot takes %.0f us, sum(mul) %.0f",
                  aril_dtype_name(dtypes[d]), 1e6 * dot, 1e6 * passes);
    }
    aril_set_threads(0);
    aril_tensor *a = filled(ARIL_SHAPE(1001), ARIL_F32, 3),
                *b = filled(ARIL_SHAPE(1001), ARIL_F32, 4);
    double want = aril_item(aril_sum(aril_mul(aril_cast(a, ARIL_F64), b), ARIL_ALL));
    CHECK_NEAR(aril_item(aril_dot(a, b)), want, 1e-3);
    aril_tensor *strided = aril_slice(filled(ARIL_SHAPE(2002), ARIL_F32, 3), 0, 0, ARIL_END, 2);
    want = aril_item(aril_sum(aril_mul(aril_cast(strided, ARIL_F64), b), ARIL_ALL));
    CHECK_NEAR(aril_item(aril_dot(strided, b)), want, 1e-3);
}

/* ---- integers ---- */

/* Numbers of any size: products wrap around. */
static aril_tensor *integers(aril_shape shape, aril_dtype dtype)
{
    return aril_cast(
        aril_randint(-((int64_t)1 << 62), (int64_t)1 << 62, shape, ARIL_I64, test_device()), dtype);
}

static void compare_integers(const char *name, int n_in, aril_tensor *const *in)
{
    static const struct linear_attrs plain = { { 0 } };
    test_rows_equal(aril__op_find(name), n_in, in, &plain);
}

TEST(integer_products_equal_the_reference)
{
    static const aril_dtype types[] = { ARIL_I64, ARIL_U64, ARIL_I32, ARIL_U8, ARIL_I8 };
    static const int64_t widths[] = { 1, 63, 64, 65, 130 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
            ARIL_SCOPE;
            int64_t n = widths[k];
            aril_tensor *a = integers(ARIL_SHAPE(2, 5, n), types[i]);
            aril_tensor *b = integers(ARIL_SHAPE(n, n + 1), types[i]);
            aril_tensor *w = integers(ARIL_SHAPE(n + 1, n), types[i]);
            aril_tensor *bias = integers(ARIL_SHAPE(n + 1), types[i]);
            compare_integers("matmul", 2, (aril_tensor *[]){ a, b });
            compare_integers("matmul", 2, (aril_tensor *[]){ a, aril_transpose(w, 0, 1) });
            compare_integers("linear", 3, (aril_tensor *[]){ a, w, bias });
            compare_integers("outer_sum", 2, (aril_tensor *[]){ a, aril_copy(a) });
        }
}
