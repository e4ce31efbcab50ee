/* Dropout: its statistics, and that a mask depends only on the generator and the position. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N = 200000 };

static double mean_of(aril_tensor *t)
{
    return aril_item(aril_sum(aril_cast(t, ARIL_F64), ARIL_ALL)) / (double)aril_numel(t);
}

static bool same(aril_tensor *a, aril_tensor *b)
{
    return aril_item(aril_sum(aril_ne(a, b), ARIL_ALL)) == 0;
}

static aril_tensor *ones(int64_t n)
{
    return aril_ones(ARIL_SHAPE(n), ARIL_F32, test_device());
}

TEST(drops_a_fraction_p_and_scales_the_rest)
{
    const double all[] = { 0.05, 0.25, 0.5, 0.9 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        double p = all[i];
        aril_tensor *y = aril_dropout(ones(N), p, (aril_dropout_opts){ 0 });
        double zeros = mean_of(aril_eq_scalar(y, 0));
        CHECK_NEAR(zeros, p, 5 * sqrt(p * (1 - p) / N));
        float scale = (float)(1 / (1 - p));
        aril_tensor *expected = aril_mul_scalar(aril_ne_scalar(y, 0), (double)scale);
        CHECK(same(y, expected));
    }
    CHECK(aril_ok());
}

TEST(neighbours_are_independent)
{
    ARIL_SCOPE;
    aril_tensor *kept =
        aril_cast(aril_ne_scalar(aril_dropout(ones(N), 0.5, (aril_dropout_opts){ 0 }), 0),
                  ARIL_F32);
    for (int64_t lag = 1; lag < 6; lag++) {
        aril_tensor *a = aril_slice(kept, 0, lag, ARIL_END, 1);
        aril_tensor *b = aril_slice(kept, 0, 0, -lag, 1);
        CHECK_NEAR(mean_of(aril_mul(a, b)), 0.25, 5 * sqrt(0.1875 / N));
    }
}

TEST(p_of_zero_and_one)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(ones(100));
    aril_tensor *y = aril_dropout(x, 0, (aril_dropout_opts){ 0 });
    CHECK(same(x, y));
    y = aril_dropout(x, 1, (aril_dropout_opts){ 0 });
    CHECK_NEAR(aril_item(aril_sum(aril_abs(y), ARIL_ALL)), 0, 0);
    aril_backward(aril_sum(y, ARIL_ALL));
    CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_grad(x)), ARIL_ALL)), 0, 0);
    y = aril_alpha_dropout(x, 1, (aril_dropout_opts){ 0 });
    CHECK_NEAR(aril_item(aril_sum(aril_abs(y), ARIL_ALL)), 0, 0);
    y = aril_alpha_dropout(x, 0, (aril_dropout_opts){ 0 });
    CHECK(same(x, y));
    CHECK(aril_ok());
    aril_release(x);
}

TEST(p_out_of_range_is_an_error)
{
    const double all[] = { -0.1, 1.1, NAN };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        CHECK_INT(aril_tensor_status(aril_dropout(ones(3), all[i], (aril_dropout_opts){ 0 })),
                  ARIL_ERR_ARG);
        CHECK(strstr(aril_error(), "dropout: p must be from 0 to 1") != NULL);
        aril_clear_error();
    }
    ARIL_SCOPE;
    aril_tensor *integer = aril_ones(ARIL_SHAPE(3), ARIL_I64, test_device());
    CHECK_INT(aril_tensor_status(aril_dropout(integer, 0.5, (aril_dropout_opts){ 0 })),
              ARIL_ERR_DTYPE);
    CHECK_INT(aril_tensor_status(aril_dropout2d(ones(3), 0.5, (aril_dropout_opts){ 0 })),
              ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(aril_feature_dropout(ones(3), 0.5, (aril_dropout_opts){ 0 })),
              ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(aril_dropout(NULL, 0.5, (aril_dropout_opts){ 0 })), ARIL_ERR_ARG);
    aril_clear_error();
}

TEST(evaluation_mode_returns_the_input)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(10);
    aril_rng_state before = aril_generator_state(aril_default_generator());
    CHECK(aril_dropout(x, 0.5, (aril_dropout_opts){ .eval = true }) == x);
    CHECK(aril_alpha_dropout(x, 0.5, (aril_dropout_opts){ .eval = true }) == x);
    CHECK_INT(aril_generator_state(aril_default_generator()).calls, before.calls);
}

TEST(same_seed_gives_the_same_mask)
{
    ARIL_SCOPE;
    aril_seed(7);
    aril_tensor *a = aril_dropout(ones(1000), 0.5, (aril_dropout_opts){ 0 });
    aril_tensor *b = aril_dropout(ones(1000), 0.5, (aril_dropout_opts){ 0 });
    aril_seed(7);
    aril_tensor *c = aril_dropout(ones(1000), 0.5, (aril_dropout_opts){ 0 });
    CHECK(!same(a, b));
    CHECK(same(a, c));
    aril_generator *g = aril_generator_new(7);
    aril_tensor *d = aril_dropout_from(g, ones(1000), 0.5, (aril_dropout_opts){ 0 });
    CHECK_INT(aril_generator_state(g).calls, 1);
    CHECK(same(a, d));
    aril_tensor *longer = aril_dropout_from(g, ones(3000), 0.5, (aril_dropout_opts){ 0 });
    CHECK_INT(aril_generator_state(g).calls, 2);
    /* Element i does not depend on the number of elements. */
    CHECK(same(aril_slice(longer, 0, 0, 1000, 1), b));
    aril_generator_free(g);
}

TEST(mask_does_not_depend_on_threads_or_memory_format)
{
    ARIL_SCOPE;
    int threads = aril_threads();
    aril_tensor *flat = ones(301 * 401), *first = NULL;
    for (int t = 1; t <= 5; t += 2) {
        aril_set_threads(t);
        aril_seed(11);
        aril_tensor *y = aril_dropout(flat, 0.3, (aril_dropout_opts){ 0 });
        if (first) CHECK(same(first, y));
        first = y;
    }
    aril_set_threads(threads);
    /* A transposed input: the mask follows logical positions, not memory offsets. */
    aril_seed(11);
    aril_tensor *turned = aril_t(aril_reshape(flat, ARIL_SHAPE(401, 301))); /* [301,401] */
    aril_tensor *y = aril_dropout(turned, 0.3, (aril_dropout_opts){ 0 });
    CHECK(same(aril_reshape(first, ARIL_SHAPE(301, 401)), y));
    /* And other dtypes drop the same elements. */
    aril_seed(11);
    y = aril_dropout(aril_cast(flat, ARIL_F64), 0.3, (aril_dropout_opts){ 0 });
    CHECK(same(aril_eq_scalar(first, 0), aril_eq_scalar(y, 0)));
    aril_seed(11);
    y = aril_dropout(aril_cast(flat, ARIL_BF16), 0.3, (aril_dropout_opts){ 0 });
    CHECK(same(aril_eq_scalar(first, 0), aril_eq_scalar(y, 0)));
}

TEST(gradient_uses_the_same_mask)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(ones(5000));
    aril_tensor *y = aril_dropout(x, 0.4, (aril_dropout_opts){ 0 });
    aril_backward(aril_sum(y, ARIL_ALL));
    CHECK(same(aril_grad(x), y)); /* for an input of ones, both are the mask */
    aril_zero_grad(x);
    y = aril_alpha_dropout(x, 0.4, (aril_dropout_opts){ 0 });
    aril_backward(aril_sum(y, ARIL_ALL));
    aril_tensor *g = aril_grad(x);
    double low = INFINITY;
    for (int64_t i = 0; i < 100; i++) { /* dropped elements have the lowest value */
        double v = aril_item(aril_slice(y, 0, i, i + 1, 1));
        low = v < low ? v : low;
    }
    aril_tensor *is_low = aril_eq_scalar(y, low);
    double dropped = aril_item(aril_sum(is_low, ARIL_ALL));
    CHECK(dropped > 1800 && dropped < 2200);
    CHECK(same(is_low, aril_eq_scalar(g, 0)));
    CHECK(aril_ok());
    aril_release(x);
}

TEST(dropout_is_linear)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_mul_scalar(aril_ones(ARIL_SHAPE(40, 50), ARIL_F64, test_device()), 3);
    aril_seed(3);
    aril_tensor *u = aril_dropout(a, 0.5, (aril_dropout_opts){ 0 });
    a = aril_dropout(a, 0.5, (aril_dropout_opts){ 0 }); /* different values, some of them zero */
    aril_seed(3);
    aril_tensor *v = aril_dropout(a, 0.5, (aril_dropout_opts){ 0 });
    aril_seed(3);
    aril_tensor *b = aril_mul_scalar(aril_ones(ARIL_SHAPE(40, 50), ARIL_F64, test_device()), 3);
    aril_tensor *both =
        aril_dropout(aril_add(aril_mul_scalar(a, 2), b), 0.5, (aril_dropout_opts){ 0 });
    CHECK(same(both, aril_add(aril_mul_scalar(v, 2), u)));
    CHECK(aril_ok());
}

TEST(second_gradients)
{
    ARIL_SCOPE;
    /* d/dx sum(dropout(x)^3) = 3 m^3 x^2, and its sum differentiated: 6 m^3 x, m = 0 or 2. */
    aril_tensor *x = aril_parameter(aril_full(ARIL_SHAPE(64), 0.5, ARIL_F64, test_device()));
    aril_tensor *y = aril_dropout(x, 0.5, (aril_dropout_opts){ 0 });
    aril_tensor *g[1], *gg[1];
    aril_gradients(aril_sum(aril_mul(aril_square(y), y), ARIL_ALL), ARIL_LIST(x), g,
                   (aril_grad_opts){ .create_graph = true });
    aril_gradients(aril_sum(g[0], ARIL_ALL), ARIL_LIST(x), gg, (aril_grad_opts){ 0 });
    CHECK(same(gg[0], aril_mul_scalar(y, 24)));
    CHECK(aril_ok());
    aril_release(x);
}

TEST(dropout2d_drops_whole_channels)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(64, 50, 3, 5), ARIL_F32, test_device());
    aril_tensor *y = aril_dropout2d(x, 0.3, (aril_dropout_opts){ 0 });
    aril_tensor *sums = aril_sum(y, ARIL_AXES(2, 3)); /* [64,50]: 0 or 15 / 0.7 */
    double gone = mean_of(aril_eq_scalar(sums, 0));
    double full = mean_of(aril_gt_scalar(sums, 21));
    CHECK_NEAR(gone, 0.3, 0.05);
    CHECK_NEAR(gone + full, 1, 0);
    /* [C,L] and [N,C,L] */
    y = aril_dropout1d(aril_ones(ARIL_SHAPE(400, 4), ARIL_F32, test_device()), 0.5,
                       (aril_dropout_opts){ 0 });
    sums = aril_sum(y, ARIL_AXES(1));
    CHECK_NEAR(mean_of(aril_eq_scalar(sums, 0)), 0.5, 0.15);
    CHECK_NEAR(mean_of(aril_eq_scalar(sums, 0)) + mean_of(aril_eq_scalar(sums, 8)), 1, 0);
    y = aril_dropout3d(aril_ones(ARIL_SHAPE(20, 20, 2, 2, 2), ARIL_F32, test_device()), 0.5,
                       (aril_dropout_opts){ 0 });
    sums = aril_sum(y, ARIL_AXES(2, 3, 4));
    CHECK_NEAR(mean_of(aril_eq_scalar(sums, 0)) + mean_of(aril_eq_scalar(sums, 16)), 1, 0);
    CHECK(aril_ok());
}

TEST(alpha_dropout_keeps_mean_and_variance)
{
    ARIL_SCOPE;
    /* Values of mean 0 and variance 1: +1 and -1. */
    aril_tensor *sign = aril_slice(
        aril_reshape(
            aril_sub_scalar(
                aril_mul_scalar(aril_dropout(ones(2 * N), 0.5, (aril_dropout_opts){ 0 }), 1), 1),
            ARIL_SHAPE(-1)),
        0, 0, N, 1);
    aril_tensor *y = aril_alpha_dropout(sign, 0.3, (aril_dropout_opts){ 0 });
    double mean = mean_of(y), square = mean_of(aril_square(y));
    CHECK_NEAR(mean, 0, 0.02);
    CHECK_NEAR(square, 1, 0.03);
    y = aril_feature_alpha_dropout(aril_reshape(sign, ARIL_SHAPE(100, 200, -1)), 0.3,
                                   (aril_dropout_opts){ 0 });
    CHECK_NEAR(mean_of(aril_square(y)), 1, 0.05);
    CHECK(aril_ok());
}
