/* Values and derivatives where formulas easily go wrong: at 0 and infinity, in f16, and second
 * derivatives in f64. Expected values are PyTorch's, or exact ones where PyTorch rounds. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *of(aril_dtype dtype, int n, const double *v, bool wants)
{
    aril_tensor *t = aril_cast(aril_from(v, ARIL_SHAPE(n), ARIL_F64, test_device()), dtype);
    t = aril_copy(t);
    if (wants) aril_set_requires_grad(t, true);
    return t;
}
#define OF(dtype, ...)                                                   \
    of(dtype, (int)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)), \
       (double[]){ __VA_ARGS__ }, true)

static double at(aril_tensor *t, int64_t i)
{
    ARIL_SCOPE;
    return aril_item(aril_select(aril_reshape(aril_cast(t, ARIL_F64), ARIL_SHAPE(-1)), 0, i));
}

static aril_tensor *derivative(aril_tensor *y, aril_tensor *x)
{
    aril_tensor *g;
    aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(x), &g,
                   (aril_grad_opts){ .create_graph = true, .allow_unused = true });
    return g;
}

#define CHECK_ALL(t, ...)                                                      \
    do {                                                                       \
        const double want_[] = { __VA_ARGS__ };                                \
        aril_tensor *got_ = (t);                                               \
        CHECK_MSG(aril_ok(), "%s", aril_error());                              \
        CHECK_INT(aril_numel(got_), sizeof want_ / sizeof *want_);             \
        for (int64_t i_ = 0; i_ < aril_numel(got_); i_++)                      \
            CHECK_NEAR(at(got_, i_), want_[i_], 1e-6 * (1 + fabs(want_[i_]))); \
    } while (0)

/* ---- second derivatives in f64 ---- */

TEST(second_derivatives_with_scalars_are_exact)
{
    ARIL_SCOPE;
    const double v = 1.7, p = 2.3, b = 0.7, c = 0.3;
    aril_tensor *x = OF(ARIL_F64, v);
    aril_tensor *g = derivative(aril_pow_scalar(x, p), x);
    CHECK_NEAR(at(g, 0), p * pow(v, p - 1), 1e-14);
    CHECK_NEAR(at(derivative(g, x), 0), p * (p - 1) * pow(v, p - 2), 1e-14);
    g = derivative(aril_atan2_scalar(x, b), x);
    CHECK_NEAR(at(g, 0), b / (v * v + b * b), 1e-15);
    CHECK_NEAR(at(derivative(g, x), 0), -2 * v * b / pow(v * v + b * b, 2), 1e-15);
    g = derivative(aril_xlogy_scalar(x, c), x);
    CHECK_NEAR(at(g, 0), log(c), 1e-15);
    g = derivative(aril_atan2_scalar(x, 3), x); /* an integer scalar */
    CHECK_NEAR(at(derivative(g, x), 0), -2 * v * 3 / pow(v * v + 9, 2), 1e-15);
    CHECK(aril_ok());
}

TEST(second_derivative_of_lp_pool_is_exact)
{
    ARIL_SCOPE;
    const double a = 0.6, b = 1.1, s = a * a * a + b * b * b;
    aril_tensor *x = OF(ARIL_F64, a, b);
    aril_tensor *y = aril_lp_pool1d(aril_reshape(x, ARIL_SHAPE(1, 1, 2)), 3,
                                    (aril_pool_opts){ .kernel = { 2 } });
    aril_tensor *g = derivative(y, x);
    CHECK_NEAR(at(g, 0), a * a * pow(s, -2.0 / 3), 1e-15);
    /* the sum of a row of the Hessian */
    double own = 2 * a * pow(s, -2.0 / 3) - 2 * pow(a, 4) * pow(s, -5.0 / 3);
    double cross = -2 * a * a * b * b * pow(s, -5.0 / 3);
    CHECK_NEAR(at(derivative(g, x), 0), own + cross, 1e-14);
    CHECK(aril_ok());
}

/* A gradient op computes in the dtype of its gradient, and so do the ops it consists of. */
TEST(second_derivatives_of_mixed_types_are_exact)
{
    ARIL_SCOPE;
    aril_tensor *a = OF(ARIL_F32, 0.7), *b = OF(ARIL_F64, 1.3);
    const double v = (double)0.7f;
    aril_tensor *g = derivative(aril_pow(a, b), b);
    CHECK_NEAR(at(g, 0), pow(v, 1.3) * log(v), 1e-15);
    CHECK_NEAR(at(derivative(g, b), 0), pow(v, 1.3) * log(v) * log(v), 1e-15);
    aril_tensor *integer = of(ARIL_I8, 1, (double[]){ 100 }, false); /* 100 * 100 overflows i8 */
    g = derivative(aril_atan2(integer, b), b);
    CHECK_NEAR(at(g, 0), -100 / (100.0 * 100 + 1.3 * 1.3), 1e-15);
    CHECK(aril_ok());
}

/* ---- branches that are not taken ---- */

TEST(second_derivatives_far_from_the_kink_are_finite)
{
    ARIL_SCOPE;
    aril_tensor *x = OF(ARIL_F32, 100, 2, 0, -1);
    const double e = exp(-1), scale = 1.7580993408473768;
    CHECK_ALL(derivative(derivative(aril_elu(x, 1.5), x), x), 0, 0, 1.5, 1.5 * e);
    CHECK_ALL(derivative(derivative(aril_celu(x, 2), x), x), 0, 0, 0.5, 0.5 * exp(-0.5));
    CHECK_ALL(derivative(derivative(aril_selu(x), x), x), 0, 0, scale, scale * e);
    aril_tensor *far = OF(ARIL_F32, 100, 1000);
    CHECK_ALL(derivative(derivative(aril_mish(far), far), far), 0, 0);
    CHECK(aril_ok());
}

TEST(smooth_l1_with_beta_zero)
{
    ARIL_SCOPE;
    aril_tensor *x = OF(ARIL_F32, 1, 1, 2), *y = of(ARIL_F32, 3, (double[]){ 1, 2, 1 }, false);
    aril_smooth_l1_opts opts = { .beta = ARIL_ZERO, .reduction = ARIL_SUM };
    aril_tensor *g = derivative(aril_smooth_l1_loss_with(x, y, opts), x);
    CHECK_ALL(g, 0, -1, 1);
    CHECK_ALL(derivative(g, x), 0, 0, 0);
}

/* ---- at 0, infinity and NaN ---- */

TEST(derivatives_of_xlogy_at_zero)
{
    ARIL_SCOPE;
    aril_tensor *a = OF(ARIL_F32, 0, 0, 0, 2), *b = OF(ARIL_F32, 2, 0, -1, 3);
    CHECK_ALL(derivative(aril_xlogy(a, b), a), log(2), 0, 0, log(3));
    CHECK_ALL(derivative(aril_xlogy_scalar(a, 2), a), log(2), log(2), log(2), log(2));
    CHECK_ALL(derivative(aril_xlogy_scalar(a, 0), a), 0, 0, 0, -INFINITY);
    /* a / b alone would overflow */
    aril_tensor *small = OF(ARIL_F32, 2e-38), *ten = OF(ARIL_F32, 10), *db;
    aril_tensor *y = aril_mul_scalar(aril_xlogy(ten, small), 0.01);
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(small), &db, (aril_grad_opts){ 0 }),
              ARIL_OK);
    CHECK_NEAR(aril_item(db) / 5e36, 1, 1e-5);
    /* The derivative for the incoming gradient: 0 where the gradient is, and not 0 * log(0). */
    aril_tensor *up = OF(ARIL_F32, 1, 1, 1, 1), *g;
    aril_grad_opts opts = { .create_graph = true, .grad_outputs = ARIL_LIST(up) };
    CHECK_INT(aril_gradients_n(ARIL_LIST(aril_xlogy(a, b)), ARIL_LIST(a), &g, opts), ARIL_OK);
    CHECK_ALL(derivative(g, up), log(2), 0, 0, log(3));
    CHECK_INT(aril_gradients_n(ARIL_LIST(aril_xlogy_scalar(a, 0)), ARIL_LIST(a), &g, opts),
              ARIL_OK);
    CHECK_ALL(derivative(g, up), 0, 0, 0, -INFINITY);
}

TEST(derivatives_of_logaddexp_at_infinity)
{
    ARIL_SCOPE;
    aril_tensor *a = OF(ARIL_F32, INFINITY, -INFINITY, 1), *b = OF(ARIL_F32, 1, 1, 2);
    double s = 1 / (1 + exp(1));
    CHECK_ALL(derivative(aril_logaddexp(a, b), a), 1, 0, s);
    CHECK_ALL(derivative(aril_logaddexp(a, b), b), 0, 1, 1 - s);
}

TEST(logsumexp_propagates_nan)
{
    ARIL_SCOPE;
    enum { N = 3000 };
    static float v[N];
    for (int turned = 0; turned < 2; turned++) {
        for (int other = 1; other < N; other += 977) {
            memset(v, 0, sizeof v);
            v[turned ? other : 0] = INFINITY;
            v[turned ? 0 : other] = NAN;
            aril_tensor *x = aril_from(v, ARIL_SHAPE(N), ARIL_F32, test_device());
            CHECK(isnan(aril_item(aril_logsumexp(x, ARIL_ALL))));
            aril_tensor *down = aril_reshape(x, ARIL_SHAPE(N, 1));
            aril_tensor *two = aril_cat(ARIL_LIST(down, down), 1);
            CHECK(isnan(at(aril_logsumexp(two, ARIL_AXES(0)), 1)));
        }
    }
    CHECK_NEAR(aril_item(aril_logsumexp(OF(ARIL_F32, INFINITY, 1), ARIL_ALL)), INFINITY, 0);
}

TEST(clamp_passes_gradients_at_infinity)
{
    ARIL_SCOPE;
    aril_tensor *x = OF(ARIL_F32, INFINITY, -INFINITY, 1, 2, 0, NAN);
    CHECK_ALL(derivative(aril_clamp_min(x, 1.0), x), 1, 0, 0, 1, 0, 0);
    CHECK_ALL(derivative(aril_clamp_max(x, 1.0), x), 0, 1, 0, 0, 1, 0);
    CHECK_ALL(derivative(aril_clamp(x, 0.0, 1.5), x), 0, 0, 1, 0, 0, 0);
    CHECK_ALL(aril_clamp_min(x, 1.0), INFINITY, 1, 1, 2, 1, NAN);
    CHECK_ALL(aril_clamp_max(x, 1.0), 1, -INFINITY, 1, 1, 0, NAN);
    CHECK_ALL(aril_clamp(x, 2.0, 1.0), 1, 1, 1, 1, 1, NAN);
}

TEST(bitwise_not_of_booleans)
{
    ARIL_SCOPE;
    aril_tensor *y = aril_bitwise_not(of(ARIL_BOOL, 2, (double[]){ 1, 0 }, false));
    CHECK_INT(aril_dtype_of(y), ARIL_BOOL);
    CHECK_ALL(y, 0, 1);
    CHECK_ALL(aril_bitwise_not(of(ARIL_U8, 2, (double[]){ 1, 0 }, false)), 254, 255);
}

/* ---- f16 ---- */

/* A number is rounded to the tensor's dtype before it is compared. */
TEST(numbers_compared_with_f16_and_bf16)
{
    static const aril_dtype types[] = { ARIL_BF16, ARIL_F16, ARIL_F32, ARIL_F64 };
    for (int t = 0; t < 4; t++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_full(ARIL_SHAPE(1), 0.1, types[t], test_device());
        CHECK_NEAR(at(aril_eq_scalar(x, 0.1), 0), 1, 0);
        CHECK_NEAR(at(aril_ne_scalar(x, 0.1), 0), 0, 0);
        CHECK_NEAR(at(aril_lt_scalar(x, 0.1), 0), 0, 0);
        CHECK_NEAR(at(aril_gt_scalar(x, 0.1), 0), 0, 0);
        CHECK_NEAR(at(aril_le_scalar(x, 0.1), 0), 1, 0);
        CHECK_NEAR(at(aril_ge_scalar(x, 0.1), 0), 1, 0);
        CHECK_NEAR(at(aril_eq(aril_scalar(0.1), x), 0), 1, 0);
        CHECK_NEAR(at(aril_eq_scalar(x, 0.11), 0), 0, 0);
        CHECK_NEAR(at(aril_lt_scalar(x, INFINITY), 0), 1, 0);
        CHECK_NEAR(at(aril_ne_scalar(x, NAN), 0), 1, 0);
        aril_tensor *many = aril_full(ARIL_SHAPE(1), 256, types[t], test_device());
        CHECK_NEAR(at(aril_eq_scalar(many, 257), 0), types[t] == ARIL_BF16, 0);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(cosine_similarity_in_f16)
{
    ARIL_SCOPE;
    enum { N = 64 };
    double v[N], u[N];
    for (int i = 0; i < N; i++) {
        v[i] = 200 * sin(i + 1);
        u[i] = 0.004 * cos(3 * i);
    }
    aril_tensor *g[2][2];
    for (int wide = 0; wide < 2; wide++) {
        aril_tensor *a = of(ARIL_F16, N, v, false), *b = of(ARIL_F16, N, u, false);
        if (wide) a = aril_cast(a, ARIL_F64), b = aril_cast(b, ARIL_F64);
        aril_set_requires_grad(a, true);
        aril_set_requires_grad(b, true);
        aril_tensor *y = aril_cosine_similarity(a, b, 0);
        CHECK_INT(aril_dtype_of(y), wide ? ARIL_F64 : ARIL_F16);
        g[wide][0] = derivative(y, a);
        g[wide][1] = derivative(y, b);
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N; i++) { /* half an ulp, or the smallest f16 */
            double want = at(g[1][k], i);
            CHECK_NEAR(at(g[0][k], i), want, fabs(want) / 2000 + 6e-8);
        }
    CHECK(aril_ok());
}

TEST(addmm_in_f16_rounds_once)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_full(ARIL_SHAPE(2, 64), 40, ARIL_F16, test_device());
    aril_tensor *c = aril_full(ARIL_SHAPE(2, 2), 1, ARIL_F16, test_device());
    aril_tensor *b = aril_transpose(a, 0, 1), *v = aril_select(a, 0, 0);
    /* the product, 102400, overflows f16 */
    CHECK_ALL(aril_addmm(c, a, b, 2, 0.01), 1026, 1026, 1026, 1026);
    CHECK_INT(aril_dtype_of(aril_addmm(c, a, b, 2, 0.01)), ARIL_F16);
    CHECK_ALL(aril_addmv(aril_select(c, 0, 0), a, v, 0, 0.01), 1024, 1024);
    aril_tensor *y =
        aril_baddbmm(aril_unsqueeze(c, 0), aril_unsqueeze(a, 0), aril_unsqueeze(b, 0), 2, 0.01);
    CHECK_ALL(y, 1026, 1026, 1026, 1026);
}

TEST(attention_that_broadcasts_does_not_overflow_in_f16)
{
    ARIL_SCOPE;
    aril_tensor *q = aril_full(ARIL_SHAPE(1, 2, 64), 40, ARIL_F16, test_device());
    aril_tensor *k = aril_full(ARIL_SHAPE(2, 1, 64), 40, ARIL_F16, test_device());
    aril_tensor *v = aril_full(ARIL_SHAPE(2, 1, 1), 3, ARIL_F16, test_device());
    aril_tensor *y = aril_scaled_dot_product_attention(q, k, v, (aril_attention_opts){ 0 });
    CHECK_INT(aril_dtype_of(y), ARIL_F16);
    CHECK_ALL(y, 3, 3, 3, 3);
}

TEST(lp_pool_in_f16_does_not_overflow)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_full(ARIL_SHAPE(1, 1, 4), 300, ARIL_F16, test_device());
    CHECK_ALL(aril_lp_pool1d(x, 2, (aril_pool_opts){ .kernel = { 4 } }), 600);
}

/* ---- types and shapes ---- */

TEST(einsum_of_integers)
{
    ARIL_SCOPE;
    aril_tensor *a =
        aril_reshape(of(ARIL_I32, 4, (double[]){ 1, 2, 3, 4 }, false), ARIL_SHAPE(2, 2));
    aril_tensor *y = aril_einsum("ij,jk->ik", ARIL_LIST(a, a));
    CHECK_INT(aril_dtype_of(y), ARIL_I32);
    CHECK_ALL(y, 7, 10, 15, 22);
    y = aril_einsum("ij,kl->", ARIL_LIST(a, a)); /* each is summed before the product */
    CHECK_INT(aril_dtype_of(y), ARIL_I32);
    CHECK_ALL(y, 100);
    y = aril_einsum("ij,ij->i", ARIL_LIST(a, a));
    CHECK_INT(aril_dtype_of(y), ARIL_I32);
    CHECK_ALL(y, 5, 25);
    y = aril_einsum("ij->j", ARIL_LIST(a)); /* a sum alone is aril_sum */
    CHECK_INT(aril_dtype_of(y), ARIL_I64);
    CHECK_ALL(y, 4, 6);
}

TEST(topk_of_a_scalar)
{
    ARIL_SCOPE;
    for (int k = 0; k < 2; k++) {
        aril_tensor *where, *y = aril_topk(aril_full((aril_shape){ 0 }, 5, ARIL_F32, test_device()),
                                           k, 0, (aril_topk_opts){ 0 }, &where);
        CHECK_ALL(y, 5);
        CHECK_ALL(where, 0);
    }
}

TEST(diagonals_out_of_range_are_empty)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 4), ARIL_F32, test_device());
    const int64_t offsets[] = { INT64_MIN, INT64_MIN + 1, -3, 4, INT64_MAX };
    for (int i = 0; i < 5; i++) CHECK_INT(aril_numel(aril_diagonal(x, offsets[i], 0, 1)), 0);
    CHECK_INT(aril_numel(aril_diagonal(x, -2, 0, 1)), 1);
    CHECK_INT(aril_numel(aril_diagonal(x, 3, 0, 1)), 1);
    CHECK(aril_ok());
}
