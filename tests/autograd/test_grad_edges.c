/* Values and gradients at the edges of formulas: division by zero, empty tensors, intermediate
 * overflow. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *leaf(aril_tensor *t)
{
    aril_set_requires_grad(t, true);
    return t;
}

static aril_tensor *doubles(int n, const double *at)
{
    return leaf(aril_from(at, ARIL_SHAPE(n), ARIL_F64, test_device()));
}

/* PyTorch's convention: the angle is undefined there, and no gradient flows. */
TEST(atan2_has_zero_gradient_at_the_origin)
{
    ARIL_SCOPE;
    aril_tensor *a = doubles(3, (double[]){ 0, -0.0, 3 });
    aril_tensor *b = doubles(3, (double[]){ 0, 0, 4 }), *grads[2], *second[2];
    aril_tensor *y = aril_sum(aril_atan2(a, b), ARIL_ALL);
    CHECK_INT(aril_gradients(y, ARIL_LIST(a, b), grads, (aril_grad_opts){ .create_graph = true }),
              ARIL_OK);
    const double *da = aril_data(grads[0]), *db = aril_data(grads[1]);
    for (int i = 0; i < 2; i++) CHECK(da[i] == 0 && db[i] == 0);
    CHECK_NEAR(da[2], 4. / 25, 1e-15);
    CHECK_NEAR(db[2], -3. / 25, 1e-15);
    aril_tensor *s = aril_sum(aril_add(grads[0], grads[1]), ARIL_ALL);
    CHECK_INT(aril_gradients(s, ARIL_LIST(a, b), second, (aril_grad_opts){ 0 }), ARIL_OK);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2; i++) CHECK(((const double *)aril_data(second[k]))[i] == 0);
    /* Nor when both squares underflow to 0. */
    a = doubles(1, (double[]){ 1e-200 });
    y = aril_sum(aril_atan2(a, b = doubles(1, (double[]){ -0.0 })), ARIL_ALL);
    CHECK_INT(aril_gradients(y, ARIL_LIST(a, b), grads, (aril_grad_opts){ 0 }), ARIL_OK);
    CHECK(aril_item(grads[0]) == 0 && aril_item(grads[1]) == 0);
    aril_tensor *one = doubles(1, (double[]){ 0 });
    y = aril_sum(aril_atan2_scalar(one, 0), ARIL_ALL);
    CHECK_INT(aril_gradients(y, ARIL_LIST(one), grads, (aril_grad_opts){ 0 }), ARIL_OK);
    CHECK(aril_item(grads[0]) == 0);
}

/* a + value * b / c from left to right: b / c alone would overflow. */
TEST(addcdiv_multiplies_before_it_divides)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_full(ARIL_SHAPE(3), 1.5, ARIL_F32, test_device());
    aril_tensor *b = aril_full(ARIL_SHAPE(3), 3e38, ARIL_F32, test_device());
    aril_tensor *c = aril_full(ARIL_SHAPE(3), 0.5, ARIL_F32, test_device());
    CHECK(((const float *)aril_data(aril_addcdiv(a, b, c, 0)))[1] == 1.5f);
    CHECK(((const float *)aril_data(aril_addcdiv(a, b, c, 0.25)))[1] == 1.5e38f);
    CHECK(((const float *)aril_data(aril_addcdiv_(a, b, c, 0)))[2] == 1.5f);
}

static aril_tensor *mean_of(aril_tensor *x)
{
    return aril_mean(x, ARIL_ALL);
}

static aril_tensor *variance_of(aril_tensor *x)
{
    return aril_var(x, ARIL_ALL, 1);
}

static aril_tensor *loss_of(aril_tensor *x)
{
    return aril_mse_loss(x, aril_zeros_like(x));
}

/* The gradient of an empty input is empty for any incoming gradient, so its derivative is 0. */
TEST(empty_mean_has_a_second_derivative)
{
    aril_tensor *(*const functions[])(aril_tensor *) = { mean_of, variance_of, loss_of };
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_tensor *x = leaf(aril_zeros(ARIL_SHAPE(3, 0), ARIL_F32, test_device()));
        aril_tensor *up = leaf(aril_ones(ARIL_SHAPE(), ARIL_F32, test_device())), *g, *second;
        aril_tensor *y = functions[i](x);
        CHECK(isnan(aril_item(y)));
        CHECK_INT(aril_gradients_n(ARIL_LIST(y), ARIL_LIST(x), &g,
                                   (aril_grad_opts){ .create_graph = true,
                                                     .grad_outputs = ARIL_LIST(up) }),
                  ARIL_OK);
        CHECK_INT(aril_gradients(aril_sum(g, ARIL_ALL), ARIL_LIST(up), &second,
                                 (aril_grad_opts){ .allow_unused = true }),
                  ARIL_OK);
        CHECK(aril_item(second) == 0);
    }
}

TEST(empty_local_response_norm_has_a_gradient)
{
    ARIL_SCOPE;
    aril_tensor *x = leaf(aril_zeros(ARIL_SHAPE(2, 3, 0, 4), ARIL_F32, test_device())), *g;
    aril_tensor *y = aril_local_response_norm(x, 2, (aril_lrn_opts){ .alpha = 0.5 });
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(x), &g,
                             (aril_grad_opts){ .create_graph = true }),
              ARIL_OK);
    CHECK(aril_size(g, 2) == 0 && aril_ok());
}

/* Scalar bounds block the gradient at a bound; with tensor bounds, element and bound share it. */
TEST(gradient_at_a_bound)
{
    ARIL_SCOPE;
    aril_tensor *x = doubles(3, (double[]){ 0, 0.5, 1 }), *g;
    CHECK_INT(aril_gradients(aril_sum(aril_clamp(x, 0, 1), ARIL_ALL), ARIL_LIST(x), &g,
                             (aril_grad_opts){ 0 }),
              ARIL_OK);
    const double *d = aril_data(g);
    CHECK(d[0] == 0 && d[1] == 1 && d[2] == 0);
    aril_tensor *low = aril_zeros_like(x), *high = aril_ones_like(x);
    CHECK_INT(aril_gradients(aril_sum(aril_clamp_tensor(x, low, high), ARIL_ALL), ARIL_LIST(x), &g,
                             (aril_grad_opts){ 0 }),
              ARIL_OK);
    d = aril_data(g);
    CHECK(d[0] == 0.5 && d[1] == 1 && d[2] == 0.5);
}

/* Where the pieces meet, the gradient is that of the piece outside, as the value is. */
TEST(gradient_of_hardswish_where_its_pieces_meet)
{
    ARIL_SCOPE;
    aril_tensor *x = doubles(4, (double[]){ -3, 3, 0, NAN }), *g;
    CHECK_INT(aril_gradients(aril_sum(aril_hardswish(x), ARIL_ALL), ARIL_LIST(x), &g,
                             (aril_grad_opts){ 0 }),
              ARIL_OK);
    const double *d = aril_data(g);
    CHECK(d[0] == 0 && d[1] == 1 && d[2] == 0.5 && isnan(d[3]));
}

TEST(transposed_convolution_with_activation_propagates_nan)
{
    aril_dtype types[] = { ARIL_F32, ARIL_F64, ARIL_BF16, ARIL_F16 };
    for (int t = 0; t < 4; t++)
        for (int act = 0; act <= ARIL_TANH; act++) {
            ARIL_SCOPE;
            aril_tensor *x = aril_full(ARIL_SHAPE(1, 2, 4, 4), NAN, types[t], test_device());
            aril_tensor *w = aril_ones(ARIL_SHAPE(2, 8, 3, 3), types[t], test_device());
            aril_conv_opts opts = { .activation = (aril_activation)act };
            aril_tensor *lost =
                aril_logical_not(aril_isnan(aril_conv_transpose2d(x, w, NULL, opts)));
            CHECK_MSG(aril_item_int(aril_sum(lost, ARIL_ALL)) == 0, "type %d, activation %d", t,
                      act);
        }
}

/* Elements before an infinity keep their share of the sums before it; the infinity takes the whole
 * gradient of the sums from it on, as in the limit. */
/* All that the loss was computed from is overwritten. */
TEST(gradients_of_a_result_without_a_graph_are_zeros_if_allowed)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *g[2];
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_tanh(x), *used = aril_sum(aril_square(x), ARIL_ALL);
    aril_tensor *loss = aril_sum(aril_zero_(y), ARIL_ALL), *both[] = { loss, used };
    CHECK(aril_gradients(loss, ARIL_LIST(x), g, (aril_grad_opts){ 0 }) < 0);
    CHECK_MSG(strstr(aril_error(), "was not computed from"), "%s", aril_error());
    aril_clear_error();
    aril_grad_opts opts = { .allow_unused = true };
    CHECK_INT(aril_gradients(loss, ARIL_LIST(x, x), g, opts), ARIL_OK);
    for (int i = 0; i < 2; i++) CHECK(aril_equal(g[i], aril_zeros_like(aril_detach(x))));
    CHECK_INT(aril_gradients_n((aril_list){ 2, both }, ARIL_LIST(x), g, opts), ARIL_OK);
    CHECK(aril_equal(g[0], aril_full_like(aril_detach(x), 2)));
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(gradient_of_logcumsumexp_at_infinity)
{
    ARIL_SCOPE;
    aril_tensor *x = doubles(5, (double[]){ 1, 1, INFINITY, 2, -INFINITY }), *g, *second;
    aril_tensor *up = leaf(aril_ones(ARIL_SHAPE(5), ARIL_F64, test_device()));
    CHECK_INT(aril_gradients_n(ARIL_LIST(aril_logcumsumexp(x, 0)), ARIL_LIST(x), &g,
                               (aril_grad_opts){ .create_graph = true,
                                                 .grad_outputs = ARIL_LIST(up) }),
              ARIL_OK);
    const double want[5] = { 1.5, 0.5, 3, 0, 0 }, *d = aril_data(g);
    for (int i = 0; i < 5; i++) CHECK_NEAR(d[i], want[i], 1e-15);
    aril_tensor *s =
        aril_mul(g, aril_from((double[]){ 1, 0, 0, 0, 0 }, ARIL_SHAPE(5), ARIL_F64, test_device()));
    CHECK_INT(aril_gradients(aril_sum(s, ARIL_ALL), ARIL_LIST(x), &second, (aril_grad_opts){ 0 }),
              ARIL_OK);
    d = aril_data(second);
    CHECK_NEAR(d[0], 0.25, 1e-15);
    CHECK_NEAR(d[1], -0.25, 1e-15);
    for (int i = 2; i < 5; i++) CHECK(d[i] == 0);
}
