/* Linear algebra beyond the table's samples: errors and their messages, large and odd sizes,
 * batches of unknown size, transforms against sums. */
#include "support/device.h"
#include "support/test.h"

#include "aril/aril.h"
#include "core/tensor.h"
#include "ops/table/apply.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static aril_tensor *filled(aril_shape shape, unsigned seed)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= shape.dim[i];
    double *v = malloc((size_t)(n ? n : 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (double)(seed >> 8) / (1 << 23) - 1;
    }
    aril_tensor *t = aril_from(v, shape, ARIL_F64, test_device());
    free(v);
    return t;
}

static double largest(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    return aril_item(aril_amax(aril_abs(aril_sub(a, b)), ARIL_ALL));
}

/* True when `t` failed with `code` and a message that contains `text`. */
static bool failed_with(aril_tensor *t, aril_status code, const char *text)
{
    bool good = aril_tensor_status(t) == code && strstr(aril_error(), text);
    if (!good) test_fail(__FILE__, __LINE__, "status %d: %s", aril_tensor_status(t), aril_error());
    aril_clear_error();
    return good;
}

static bool lapack(void)
{
    ARIL_SCOPE;
    bool there = aril_tensor_status(aril_det(filled(ARIL_SHAPE(2, 2), 1))) == ARIL_OK;
    aril_clear_error();
    return there;
}

TEST(singular_matrices_are_named)
{
    ARIL_SCOPE;
    if (!lapack()) SKIP("no LAPACK");
    aril_tensor *a =
        aril_copy(aril_expand(aril_eye(3, 3, ARIL_F64, test_device()), ARIL_SHAPE(4, 3, 3)));
    aril_tensor *b = aril_ones(ARIL_SHAPE(4, 3, 1), ARIL_F64, test_device());
    aril_copy_(aril_select(a, 0, 2), aril_zeros(ARIL_SHAPE(3, 3), ARIL_F64, test_device()));
    aril_copy_(aril_select(a, 0, 3), aril_zeros(ARIL_SHAPE(3, 3), ARIL_F64, test_device()));
    CHECK(failed_with(aril_inverse(a), ARIL_ERR_NUMBER,
                      "inverse: matrix 2 of the batch is singular"));
    CHECK(
        failed_with(aril_solve(a, b), ARIL_ERR_NUMBER, "solve: matrix 2 of the batch is singular"));
    CHECK(failed_with(aril_triangular_solve(a, b, (aril_triangular_opts){ 0 }), ARIL_ERR_NUMBER,
                      "matrix 2 of the batch is singular"));
    CHECK(
        failed_with(aril_cholesky(a, false), ARIL_ERR_NUMBER, "matrix 2 of the batch is not pos"));
    CHECK(
        failed_with(aril_inverse(aril_select(a, 0, 2)), ARIL_ERR_NUMBER, "the matrix is singular"));
    aril_tensor *nan = aril_full(ARIL_SHAPE(3, 3), NAN, ARIL_F64, test_device());
    CHECK(failed_with(aril_svd(nan, NULL, NULL), ARIL_ERR_NUMBER, "not finite"));
    CHECK(failed_with(aril_eig(nan, NULL), ARIL_ERR_NUMBER, "not finite"));
    CHECK(isnan(aril_item(aril_sum(aril_matrix_exp(nan), ARIL_ALL))));
}

TEST(invalid_arguments_are_explained)
{
    ARIL_SCOPE;
    aril_tensor *a = filled(ARIL_SHAPE(3, 4), 1), *s = filled(ARIL_SHAPE(3, 3), 2);
    CHECK(failed_with(aril_inverse(a), ARIL_ERR_SHAPE, "square matrices, got [3,4]"));
    CHECK(failed_with(aril_det(filled(ARIL_SHAPE(3), 1)), ARIL_ERR_SHAPE, "needs a matrix"));
    CHECK(failed_with(aril_solve(s, filled(ARIL_SHAPE(4, 1), 1)), ARIL_ERR_SHAPE, "do not match"));
    CHECK(failed_with(aril_inverse(aril_cast(s, ARIL_I32)), ARIL_ERR_DTYPE, "i32"));
    CHECK(failed_with(aril_trace(filled(ARIL_SHAPE(3), 1)), ARIL_ERR_SHAPE, "trace"));
    CHECK(failed_with(aril_svd(NULL, NULL, NULL), ARIL_ERR_ARG, "svd"));
    CHECK(failed_with(aril_fft(s, (aril_fft_opts){ 0 }), ARIL_ERR_SHAPE,
                      "complex numbers [...,n,2]"));
    CHECK(failed_with(aril_rfft(s, (aril_fft_opts){ .n = -1 }), ARIL_ERR_ARG, "length"));
    CHECK(failed_with(aril_stft(s, 16, (aril_stft_opts){ 0 }), ARIL_ERR_SHAPE, "too short"));
    CHECK(failed_with(aril_stft(s, 2, (aril_stft_opts){ .hop = 1, .window = a }), ARIL_ERR_SHAPE,
                      "window [2]"));
    CHECK(failed_with(aril_eig(a, NULL), ARIL_ERR_SHAPE, "square matrices, got [3,4]"));
    CHECK(failed_with(aril_matrix_exp(a), ARIL_ERR_SHAPE, "square matrices, got [3,4]"));
    CHECK(failed_with(aril_matrix_rank(s, (aril_rank_opts){ .atol = -1 }), ARIL_ERR_ARG, "atol"));
    aril_fftn_opts twice = { .axes = ARIL_AXES(0, -2) }, short_of = { .n = { -3 } };
    CHECK(failed_with(aril_rfftn(s, twice), ARIL_ERR_ARG, "axis 0 appears twice"));
    CHECK(
        failed_with(aril_rfftn(s, short_of), ARIL_ERR_ARG, "length must not be negative, got -3"));
    CHECK(failed_with(aril_fftn(s, (aril_fftn_opts){ 0 }), ARIL_ERR_SHAPE, "complex numbers"));
    CHECK(
        failed_with(aril_rfft2(filled(ARIL_SHAPE(3), 1), ARIL_FFT_ORTHO), ARIL_ERR_INDEX, "axis"));
    CHECK(failed_with(aril_fftshift(s, ARIL_AXES(2)), ARIL_ERR_INDEX, "fftshift"));
    CHECK(failed_with(aril_hann_window(-1, false), ARIL_ERR_SHAPE, "hann_window"));
    CHECK(failed_with(aril_kaiser_window(4, false, NAN), ARIL_ERR_ARG, "beta"));
    aril_tensor *w = aril_zeros(ARIL_SHAPE(4), ARIL_F64, test_device());
    CHECK(
        failed_with(aril_istft(filled(ARIL_SHAPE(3, 5, 2), 1), 4, (aril_stft_opts){ .window = w }),
                    ARIL_ERR_NUMBER, "sum to zero"));
}

TEST(invalid_einsum_expressions)
{
    ARIL_SCOPE;
    aril_tensor *a = filled(ARIL_SHAPE(2, 3), 1), *b = filled(ARIL_SHAPE(3, 4), 2);
    static const struct {
        const char *expression;
        aril_status code;
        const char *text;
    } bad[] = {
        { "ij,jk->im", ARIL_ERR_ARG, "'m'" },
        { "ij,jk->ii", ARIL_ERR_ARG, "twice" },
        { "ij,jk,kl->il", ARIL_ERR_ARG, "operands" },
        { "ij->ij", ARIL_ERR_ARG, "operands" },
        { "ij,j1->i", ARIL_ERR_ARG, "'1'" },
        { "ij,jk-ik", ARIL_ERR_ARG, "'-'" },
        { "ij,jk->ik->", ARIL_ERR_ARG, "'-'" },
        { "i,jk->k", ARIL_ERR_SHAPE, "has 1 labels" },
        { "ijk,jk->k", ARIL_ERR_SHAPE, "has 3 labels" },
        { "ij,ik->jk", ARIL_ERR_SHAPE, "2 and 3" },
        { "i..j,jk->k", ARIL_ERR_ARG, "'.'" },
        { "......,jk->k", ARIL_ERR_ARG, "'.'" },
        { "ii,jk->k", ARIL_ERR_SHAPE, "2 and 3" },
        { "", ARIL_ERR_SHAPE, "has 0 labels" },
        { "ij,jk->i k,", ARIL_ERR_ARG, "','" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!failed_with(aril_einsum(bad[i].expression, ARIL_LIST(a, b)), bad[i].code, bad[i].text))
            test_fail(__FILE__, __LINE__, "of \"%s\"", bad[i].expression);
    CHECK(failed_with(aril_einsum(NULL, ARIL_LIST(a)), ARIL_ERR_ARG, "expression"));
    CHECK(failed_with(aril_einsum("ij,jk", ARIL_LIST(a, NULL)), ARIL_ERR_ARG, "einsum"));
}

/* Larger than LAPACK's blocks, and a batch for several threads. */
TEST(factors_reproduce_the_matrix)
{
    if (!lapack()) SKIP("no LAPACK");
    static const int64_t sizes[][2] = { { 1, 1 },   { 70, 70 }, { 90, 40 },
                                        { 40, 90 }, { 5, 1 },   { 1, 5 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ARIL_SCOPE;
        aril_tensor *a = filled(ARIL_SHAPE(3, sizes[i][0], sizes[i][1]), 7), *r, *s, *v;
        aril_tensor *q = aril_qr(a, &r), *u = aril_svd(a, &s, &v);
        CHECK_NEAR(largest(aril_matmul(q, r), a), 0, 1e-12);
        CHECK_NEAR(largest(aril_matmul(aril_mul(u, aril_unsqueeze(s, -2)), v), a), 0, 1e-12);
        aril_tensor *lower, *upper, *rows = aril_lu(a, &lower, &upper);
        CHECK_NEAR(largest(aril_matmul(rows, aril_matmul(lower, upper)), a), 0, 1e-12);
        aril_tensor *p = aril_pinv(a, 0);
        CHECK_NEAR(largest(aril_matmul(a, aril_matmul(p, a)), a), 0, 1e-10);
        aril_tensor *square = aril_matmul(a, aril_transpose(a, 1, 2)); /* semidefinite, or nearly */
        aril_tensor *eye = aril_eye(sizes[i][0], sizes[i][0], ARIL_F64, test_device());
        square = aril_add(square, eye);
        aril_tensor *l = aril_cholesky(square, false), *e = aril_eigh(square, &v);
        CHECK_NEAR(largest(aril_matmul(l, aril_transpose(l, 1, 2)), square), 0, 1e-11);
        aril_tensor *back =
            aril_matmul(aril_mul(v, aril_unsqueeze(e, -2)), aril_transpose(v, 1, 2));
        CHECK_NEAR(largest(back, square), 0, 1e-11);
        CHECK_NEAR(largest(aril_matmul(aril_inverse(square), square),
                           aril_expand(eye, aril_shape_of(square))),
                   0, 1e-9);
        CHECK(aril_ok());
    }
}

/* A V = V diag(L), in complex numbers; 70 is larger than LAPACK's blocks. */
TEST(eigenvectors_are_scaled_by_the_matrix)
{
    if (!lapack()) SKIP("no LAPACK");
    for (int64_t n = 1; n <= 70; n += 23) {
        ARIL_SCOPE;
        aril_tensor *a = filled(ARIL_SHAPE(2, n, n), 3), *v, *e = aril_eig(a, &v);
        aril_tensor *vr = aril_select(v, -1, 0), *vi = aril_select(v, -1, 1);
        aril_tensor *er = aril_unsqueeze(aril_select(e, -1, 0), -2);
        aril_tensor *ei = aril_unsqueeze(aril_select(e, -1, 1), -2);
        aril_tensor *re = aril_sub(aril_mul(vr, er), aril_mul(vi, ei));
        aril_tensor *im = aril_add(aril_mul(vr, ei), aril_mul(vi, er));
        CHECK_NEAR(largest(aril_matmul(a, vr), re), 0, 1e-12);
        CHECK_NEAR(largest(aril_matmul(a, vi), im), 0, 1e-12);
        aril_tensor *length = aril_sum(aril_square(v), ARIL_AXES(1, 3));
        CHECK_NEAR(largest(length, aril_ones_like(length)), 0, 1e-12);
    }
}

/* exp(A) exp(-A) = I, and exp(A + I) = e exp(A), for matrices of very different norms in a batch.
 */
TEST(exponentials_of_matrices)
{
    ARIL_SCOPE;
    static const double norms[] = { 1e-9, 0.3, 1, 20 };
    aril_tensor *sizes = aril_from(norms, ARIL_SHAPE(4, 1, 1), ARIL_F64, test_device());
    aril_tensor *a = aril_mul(filled(ARIL_SHAPE(4, 5, 5), 5), sizes);
    aril_tensor *eye = aril_eye(5, 5, ARIL_F64, test_device()), *y = aril_matrix_exp(a);
    aril_tensor *one = aril_matmul(aril_slice(y, 0, 0, 3, 1),
                                   aril_slice(aril_matrix_exp(aril_neg(a)), 0, 0, 3, 1));
    CHECK_NEAR(largest(one, aril_expand(eye, aril_shape_of(one))), 0, 1e-12);
    aril_tensor *more = aril_div(aril_matrix_exp(aril_add(a, eye)), y);
    CHECK_NEAR(largest(more, aril_full_like(more, exp(1))), 0, 1e-8);
}

/* Every length up to 100 and some above, against the defining sum; and back. */
TEST(transforms_of_every_length)
{
    for (int64_t n = 1; n <= 130; n++) {
        ARIL_SCOPE;
        int64_t m = n <= 100 ? n : n * 31 + 7;
        aril_tensor *x = filled(ARIL_SHAPE(m, 2), (unsigned)n);
        aril_tensor *y = aril_fft(x, (aril_fft_opts){ 0 });
        CHECK_NEAR(largest(aril_ifft(y, (aril_fft_opts){ 0 }), x), 0, 1e-12);
        aril_tensor *real = aril_contiguous(aril_select(x, 1, 0));
        aril_tensor *half = aril_rfft(real, (aril_fft_opts){ 0 });
        CHECK_NEAR(largest(aril_irfft(half, (aril_fft_opts){ .n = m }), real), 0, 1e-12);
        const double *in = aril_data(x), *out = aril_data(y);
        for (int64_t k = 0; k < m; k += m <= 100 ? 1 : m / 3) {
            double re = 0, im = 0;
            for (int64_t t = 0; t < m; t++) {
                double angle = -2 * acos(-1) * (double)(k * t % m) / (double)m;
                re += in[2 * t] * cos(angle) - in[2 * t + 1] * sin(angle);
                im += in[2 * t] * sin(angle) + in[2 * t + 1] * cos(angle);
            }
            CHECK_NEAR(out[2 * k], re, 1e-10);
            CHECK_NEAR(out[2 * k + 1], im, 1e-10);
        }
    }
    CHECK(aril_ok());
}

/* ---- unknown sizes ---- */

static aril_status symbolic_apply(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                                  aril_tensor **out)
{
    (void)self;
    (void)dest;
    for (int i = 0; i < c->op->n_out; i++) {
        out[i] = aril__symbolic_out(aril__self(), c, i, NULL);
        if (!out[i]) return ARIL_ERR_MEMORY;
    }
    return ARIL_OK;
}

static aril_tensor *unknown(aril_shape shape)
{
    aril__thread *th = aril__self();
    return aril__give(th, aril__symbolic_new(th, ARIL_F32, shape.ndim, shape.dim, NULL));
}

static bool shape_is(aril_tensor *t, aril_shape want)
{
    aril_shape got = aril_shape_of(t);
    bool same = aril_tensor_status(t) == ARIL_OK && got.ndim == want.ndim;
    for (int d = 0; same && d < got.ndim; d++)
        same = want.dim[d] < 0 ? aril__size_is_named(got.dim[d]) : got.dim[d] == want.dim[d];
    return same;
}

static void with_unknown_batch(void)
{
    aril_tensor *x = unknown(ARIL_SHAPE(-1, 3, 4)), *y = unknown(ARIL_SHAPE(-1, 4, 5));
    aril_tensor *w = unknown(ARIL_SHAPE(6, 4)), *b = unknown(ARIL_SHAPE(6)), *s, *v;
    CHECK(shape_is(aril_matmul(x, y), ARIL_SHAPE(-1, 3, 5)));
    CHECK(shape_is(aril_linear(x, w, b), ARIL_SHAPE(-1, 3, 6)));
    CHECK(shape_is(aril_matmul(x, unknown(ARIL_SHAPE(4))), ARIL_SHAPE(-1, 3)));
    CHECK(shape_is(aril_einsum("bij,bjk->bik", ARIL_LIST(x, y)), ARIL_SHAPE(-1, 3, 5)));
    CHECK(shape_is(aril_einsum("bij,bjk->kb", ARIL_LIST(x, y)), ARIL_SHAPE(5, -1)));
    CHECK(shape_is(aril_einsum("bij,kj->bik", ARIL_LIST(x, w)), ARIL_SHAPE(-1, 3, 6)));
    CHECK(shape_is(aril_einsum("...ij,kj->...ik", ARIL_LIST(x, w)), ARIL_SHAPE(-1, 3, 6)));
    CHECK(shape_is(aril_einsum("bij->bj", ARIL_LIST(x)), ARIL_SHAPE(-1, 4)));
    aril_tensor *heads = unknown(ARIL_SHAPE(-1, 5, 2, 4)), *keys = unknown(ARIL_SHAPE(-1, 7, 2, 4));
    CHECK(
        shape_is(aril_einsum("bqhd,bkhd->bhqk", ARIL_LIST(heads, keys)), ARIL_SHAPE(-1, 2, 5, 7)));
    CHECK(shape_is(aril_svd(x, &s, &v), ARIL_SHAPE(-1, 3, 3)));
    CHECK(shape_is(s, ARIL_SHAPE(-1, 3)));
    CHECK(shape_is(v, ARIL_SHAPE(-1, 3, 4)));
    CHECK(shape_is(aril_rfft(x, (aril_fft_opts){ 0 }), ARIL_SHAPE(-1, 3, 3, 2)));
    CHECK(shape_is(aril_stft(unknown(ARIL_SHAPE(-1, 20)), 8, (aril_stft_opts){ .hop = 4 }),
                   ARIL_SHAPE(-1, 5, 6, 2)));
    CHECK(shape_is(aril_stft(unknown(ARIL_SHAPE(2, -1)), 8, (aril_stft_opts){ .hop = 4 }),
                   ARIL_SHAPE(2, 5, -1, 2)));
}

/* Rows of a batch are transformed together; each must equal its own transform. */
TEST(batched_transforms_equal_transforms_of_rows)
{
    static const int64_t lengths[] = { 4, 10, 25, 60, 400, 1024 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        ARIL_SCOPE;
        aril_seed(i);
        aril_tensor *x = aril_randn(ARIL_SHAPE(19, lengths[i], 2), ARIL_F64, test_device());
        aril_tensor *real = aril_contiguous(aril_select(x, 2, 0));
        aril_tensor *y = aril_fft(x, (aril_fft_opts){ 0 });
        aril_tensor *half = aril_rfft(real, (aril_fft_opts){ 0 });
        aril_tensor *back = aril_irfft(half, (aril_fft_opts){ .n = lengths[i] });
        for (int64_t row = 0; row < 19; row += 6) {
            aril_tensor *one = aril_fft(aril_select(x, 0, row), (aril_fft_opts){ 0 });
            aril_tensor *part = aril_rfft(aril_select(real, 0, row), (aril_fft_opts){ 0 });
            CHECK_NEAR(largest(aril_select(y, 0, row), one), 0, 1e-12);
            CHECK_NEAR(largest(aril_select(half, 0, row), part), 0, 1e-12);
        }
        CHECK_NEAR(largest(back, real), 0, 1e-12);
    }
}

TEST(unknown_sizes_are_propagated)
{
    ARIL_SCOPE;
    aril__tracer tracer = { .apply = symbolic_apply };
    aril__trace(&tracer);
    with_unknown_batch();
    aril__trace(NULL);
    aril__sizes_free(&tracer.sizes);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* ---- out of memory ---- */

static aril_status everything(void)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_full(ARIL_SHAPE(2, 12, 12), 0.5, ARIL_F64, test_device()), *s, *v, *g[1];
    aril_tensor *low = aril_cast(a, ARIL_F16);
    aril_set_requires_grad(a, true);
    aril_tensor *p = aril_add(aril_matmul(a, aril_transpose(a, 1, 2)),
                              aril_eye(12, 12, ARIL_F64, test_device()));
    aril_tensor *y[] = {
        aril_einsum("bij,bkj,bii->bk", ARIL_LIST(a, a, p)),
        aril_linear(a, aril_select(p, 0, 0), NULL),
        aril_solve(p, a),
        aril_cholesky(p, false),
        aril_svd(a, &s, &v),
        aril_eigh(p, NULL),
        aril_pinv(p, 0),
        aril_rfft(a, (aril_fft_opts){ .n = 37 }),
        aril_istft(aril_stft(aril_flatten(a, 1, 2), 8, (aril_stft_opts){ .hop = 2 }), 8,
                   (aril_stft_opts){ .hop = 2 }),
        aril_matmul(low, low),
    };
    for (size_t i = 0; i < sizeof y / sizeof *y; i++)
        if (aril_tensor_status(y[i]) < 0) return aril_tensor_status(y[i]);
    aril_tensor *sum = aril_add(aril_sum(y[0], ARIL_ALL), aril_sum(y[8], ARIL_ALL));
    sum = aril_add(sum, aril_add(aril_sum(y[2], ARIL_ALL), aril_sum(y[3], ARIL_ALL)));
    return aril_gradients(sum, ARIL_LIST(a), g, (aril_grad_opts){ 0 });
}

TEST(every_allocation_fails_in_turn)
{
    if (!lapack()) SKIP("no LAPACK");
    CHECK_INT(everything(), ARIL_OK);
    int64_t before = aril__live_blocks();
    int failures = 0;
    for (int64_t n = 1; n < 5000; n++) {
        aril_fail_allocation(n);
        aril_status s = everything();
        bool happened = aril_allocation_failed();
        aril_fail_allocation(0);
        failures += s < 0;
        CHECK_MSG(s == ARIL_OK || aril_error_code() == ARIL_ERR_MEMORY, "allocation %d: %s", (int)n,
                  aril_error());
        aril_clear_error();
        if (!happened) break;
    }
    CHECK(failures > 20);
    CHECK_INT(aril__live_blocks(), before);
}
