/* Draws of categories: frequencies, order, seeds and threads, and calls that are refused. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { DRAWS = 40000 };

static aril_tensor *weights(void)
{
    static const float w[2][4] = { { 1, 0, 2, 5 }, { 3, 3, 1, 1 } };
    return aril_from(w, ARIL_SHAPE(2, 4), ARIL_F32, test_device());
}

TEST(frequencies_follow_weights)
{
    ARIL_SCOPE;
    aril_seed(7);
    aril_tensor *y = aril_multinomial(weights(), DRAWS, true); /* [2,DRAWS] */
    static const double want[2][4] = { { 0.125, 0, 0.25, 0.625 }, { 0.375, 0.375, 0.125, 0.125 } };
    for (int row = 0; row < 2; row++)
        for (int k = 0; k < 4; k++) {
            aril_tensor *hit = aril_eq_scalar(aril_select(y, 0, row), k);
            double got = (double)aril_item_int(aril_sum(hit, ARIL_ALL)) / DRAWS;
            double sigma = sqrt(want[row][k] * (1 - want[row][k]) / DRAWS);
            CHECK_NEAR(got, want[row][k], 5 * sigma);
        }
    CHECK_INT(aril_dtype_of(y), ARIL_I64);
}

/* Without replacement the first draw follows the weights, the second those that are left. */
TEST(without_replacement_each_index_once)
{
    ARIL_SCOPE;
    aril_seed(8);
    static const double w[3] = { 1, 2, 5 };
    aril_tensor *rows =
        aril_expand(aril_from(w, ARIL_SHAPE(3), ARIL_F64, test_device()), ARIL_SHAPE(DRAWS, 3));
    aril_tensor *y = aril_multinomial(rows, 2, false); /* [DRAWS,2] */
    static int64_t got[DRAWS][2];
    CHECK(aril_read(y, got) == 0);
    double first[3] = { 0 }, pairs[3][3] = { { 0 } };
    for (int i = 0; i < DRAWS; i++) {
        CHECK(got[i][0] != got[i][1]);
        first[got[i][0]] += 1.0 / DRAWS;
        pairs[got[i][0]][got[i][1]] += 1.0 / DRAWS;
    }
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(first[i], w[i] / 8, 0.012);
        for (int j = 0; j < 3; j++)
            if (i != j) CHECK_NEAR(pairs[i][j], w[i] / 8 * w[j] / (8 - w[i]), 0.012);
    }
}

TEST(same_draws_for_a_seed_and_any_number_of_threads)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_rand(ARIL_SHAPE(500, 37), ARIL_F32, test_device());
    for (int replacement = 0; replacement < 2; replacement++) {
        aril_set_threads(1);
        aril_seed(3);
        aril_tensor *one = aril_multinomial(w, 9, replacement);
        aril_set_threads(4);
        aril_seed(3);
        CHECK(aril_equal(one, aril_multinomial(w, 9, replacement)));
        CHECK(!aril_equal(one, aril_multinomial(w, 9, replacement)));
        aril_generator *g = aril_generator_new(3);
        CHECK(aril_equal(one, aril_multinomial_from(g, w, 9, replacement)));
        aril_generator_free(g);
    }
    aril_set_threads(0);
}

static bool refused(aril_tensor *y, const char *part)
{
    bool ok = aril_tensor_error(y) && strstr(aril_tensor_error(y), part);
    if (!ok) test_fail(__FILE__, __LINE__, "expected '%s', got %s", part, aril_tensor_error(y));
    aril_clear_error();
    return ok;
}

static aril_tensor *two(float a, float b)
{
    return aril_from((float[]){ a, b }, ARIL_SHAPE(2), ARIL_F32, test_device());
}

TEST(wrong_weights_are_refused)
{
    ARIL_SCOPE;
    CHECK(refused(aril_multinomial(two(1, -1), 1, true), "not negative"));
    CHECK(refused(aril_multinomial(two(1, NAN), 1, true), "finite"));
    CHECK(refused(aril_multinomial(two(1, INFINITY), 1, false), "finite"));
    CHECK(refused(aril_multinomial(two(0, 0), 1, true), "positive weight"));
    CHECK(refused(aril_multinomial(two(1, 0), 2, false), "without replacement"));
    CHECK(refused(aril_multinomial(two(1, 1), 3, false), "cannot draw 3 of 2"));
    CHECK(refused(aril_multinomial(two(1, 1), 0, true), "at least 1"));
    CHECK(refused(aril_multinomial(aril_cast(two(1, 1), ARIL_I64), 1, true), "floating point"));
    CHECK(refused(aril_multinomial(aril_scalar(1.0), 1, true), "needs weights"));
    CHECK(refused(aril_multinomial(NULL, 1, true), "NULL"));
}

TEST(gumbel_softmax_samples_categories)
{
    ARIL_SCOPE;
    aril_seed(11);
    static const float p[3] = { 0.2f, 0.3f, 0.5f };
    aril_tensor *logits = aril_log(aril_from(p, ARIL_SHAPE(3), ARIL_F32, test_device()));
    aril_tensor *x = aril_parameter(aril_copy(aril_expand(logits, ARIL_SHAPE(DRAWS, 3))));
    aril_tensor *y = aril_gumbel_softmax(x, 1, (aril_gumbel_opts){ .hard = true });
    aril_tensor *mean = aril_mean(y, ARIL_AXES(0));
    for (int k = 0; k < 3; k++) CHECK_NEAR(aril_item(aril_select(mean, 0, k)), p[k], 0.013);
    /* The gradient is that of the soft sample. */
    aril_tensor *g[1], *up = aril_randn_like(y);
    aril_gradients(aril_sum(aril_mul(y, up), ARIL_ALL), ARIL_LIST(x), g, (aril_grad_opts){ 0 });
    CHECK(aril_item(aril_amax(aril_abs(g[0]), ARIL_ALL)) > 0);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sum(g[0], ARIL_AXES(1))), ARIL_ALL)), 0, 1e-5);
    aril_tensor *soft =
        aril_gumbel_softmax(aril_cast(x, ARIL_F16), 1, (aril_gumbel_opts){ .tau = 0.5 });
    CHECK(aril_item(aril_all(aril_isfinite(soft), ARIL_ALL)) == 1);
    CHECK(refused(aril_gumbel_softmax(x, 1, (aril_gumbel_opts){ .tau = -1 }), "positive tau"));
    CHECK(refused(aril_gumbel_softmax(x, 2, (aril_gumbel_opts){ 0 }), "out of range"));
    aril_release(x);
}
