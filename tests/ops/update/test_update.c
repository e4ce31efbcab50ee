/* Parameter updates beyond what the golden values show: accumulated gradients, wrong calls, bf16
 * parameters, and convergence. */
#include "support/device.h"
#include "support/test.h"

#include <aril/aril.h>

#include <string.h>

static aril_tensor *full(double value, aril_dtype dtype)
{
    return aril_full(ARIL_SHAPE(3, 4), value, dtype, test_device());
}

static double first(aril_tensor *t)
{
    return aril_item(aril_select(aril_flatten(t, 0, -1), 0, 0));
}

TEST(uses_accumulated_gradients)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_parameter(full(1, ARIL_F32)), *b = aril_parameter(full(2, ARIL_F32));
    aril_tensor *unused = aril_parameter(full(5, ARIL_F32)), *lr = aril_scalar(0.5);
    aril_tensor *step = aril_zeros(ARIL_SHAPE(), ARIL_I64, test_device());
    CHECK_INT(aril_backward(aril_sum(aril_mul(a, b), ARIL_ALL)), ARIL_OK);
    aril_list none = { 0 };
    CHECK_INT(aril_sgd_update(ARIL_LIST(a, unused, b), none, none, lr, step,
                              (aril_sgd_update_opts){ 0 }),
              ARIL_OK);
    CHECK_NEAR(first(a), 1 - 0.5 * 2, 1e-6);
    CHECK_NEAR(first(b), 2 - 0.5 * 1, 1e-6);
    CHECK_NEAR(first(unused), 5, 0);
    CHECK_INT(aril_item_int(step), 1);
    CHECK(aril_requires_grad(a) && aril_is_leaf(a)); /* not recorded */
    aril_release(a);
    aril_release(b);
    aril_release(unused);
    CHECK(aril_ok());
}

TEST(invalid_call_changes_nothing)
{
    ARIL_SCOPE;
    aril_tensor *p = full(1, ARIL_F32), *q = full(1, ARIL_F32), *g = full(1, ARIL_F32);
    aril_tensor *wrong = aril_ones(ARIL_SHAPE(4, 3), ARIL_F32, test_device());
    aril_tensor *step = aril_zeros(ARIL_SHAPE(), ARIL_I64, test_device()), *lr = aril_scalar(0.1);
    aril_list none = { 0 };
    CHECK_INT(aril_sgd_update(ARIL_LIST(p, q), ARIL_LIST(g, wrong), none, lr, step,
                              (aril_sgd_update_opts){ 0 }),
              ARIL_ERR_SHAPE);
    CHECK(strstr(aril_error(), "sgd_update: parameter 1 has shape [3,4], but its gradient [4,3]"));
    aril_clear_error();
    CHECK_INT(aril_sgd_update(ARIL_LIST(p, q), ARIL_LIST(g), none, lr, step,
                              (aril_sgd_update_opts){ 0 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_sgd_update(ARIL_LIST(p), ARIL_LIST(g), none, lr, step,
                              (aril_sgd_update_opts){ .momentum = 0.9 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_sgd_update(ARIL_LIST(p), ARIL_LIST(full(1, ARIL_F64)), none, lr, step,
                              (aril_sgd_update_opts){ 0 }),
              ARIL_ERR_DTYPE);
    aril_clear_error();
    CHECK_INT(aril_sgd_update(ARIL_LIST(p), ARIL_LIST(g), none, NULL, step,
                              (aril_sgd_update_opts){ 0 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_sgd_update(ARIL_LIST(p), ARIL_LIST(g), ARIL_LIST(full(0, ARIL_F32)), lr, NULL,
                              (aril_sgd_update_opts){ .momentum = 0.9, .dampening = 0.1 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_adam_update(ARIL_LIST(p), ARIL_LIST(g), ARIL_LIST(full(0, ARIL_F32)),
                               ARIL_LIST(full(0, ARIL_F32)), none, lr, step,
                               (aril_adam_update_opts){ .beta1 = 1 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_adam_update(ARIL_LIST(p), ARIL_LIST(g), none, none, none, lr, step,
                               (aril_adam_update_opts){ 0 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_NEAR(first(p), 1, 0);
    CHECK_NEAR(first(q), 1, 0);
    CHECK_INT(aril_item_int(step), 0);
}

TEST(low_precision_with_state_in_f32)
{
    ARIL_SCOPE;
    aril_tensor *p = full(1, ARIL_BF16), *g = full(0.5, ARIL_BF16), *m = full(0, ARIL_F32);
    aril_tensor *v = full(0, ARIL_F32), *step = aril_zeros(ARIL_SHAPE(), ARIL_I64, test_device());
    aril_list none = { 0 };
    for (int i = 0; i < 3; i++)
        CHECK_INT(aril_adam_update(ARIL_LIST(p), ARIL_LIST(g), ARIL_LIST(m), ARIL_LIST(v), none,
                                   aril_scalar(0.25), step, (aril_adam_update_opts){ 0 }),
                  ARIL_OK);
    CHECK_INT(aril_dtype_of(p), ARIL_BF16);
    CHECK_NEAR(first(p), 0.25, 1e-2); /* each step moves by lr */
    CHECK_NEAR(first(m), 0.5 * (1 - 0.9 * 0.9 * 0.9), 1e-6);
    CHECK_NEAR(first(v), 0.25 * (1 - 0.999 * 0.999 * 0.999), 1e-7);
}

TEST(update_increments_versions)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(full(2, ARIL_F32)), *x = full(3, ARIL_F32);
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_sum(aril_mul(w, x), ARIL_ALL); /* the gradient of x needs the current w */
    aril_list none = { 0 };
    CHECK_INT(aril_sgd_update(ARIL_LIST(w), ARIL_LIST(full(1, ARIL_F32)), none, aril_scalar(0.1),
                              NULL, (aril_sgd_update_opts){ 0 }),
              ARIL_OK);
    CHECK_INT(aril_backward(y), ARIL_ERR_GRAD);
    aril_clear_error();
    aril_release(w);
}

TEST(updates_find_the_minimum)
{
    for (int kind = 0; kind < 3; kind++) {
        ARIL_SCOPE;
        aril_seed(3);
        aril_tensor *x = aril_randn(ARIL_SHAPE(64, 5), ARIL_F32, test_device());
        aril_tensor *want = aril_randn(ARIL_SHAPE(5, 1), ARIL_F32, test_device());
        aril_tensor *y = aril_matmul(x, want), *lr = aril_scalar(kind < 2 ? 0.1 : 0.05);
        aril_tensor *w = aril_parameter(aril_zeros(ARIL_SHAPE(5, 1), ARIL_F32, test_device()));
        aril_tensor *m = aril_zeros_like(w), *v = aril_zeros_like(w);
        aril_tensor *step = aril_zeros(ARIL_SHAPE(), ARIL_I64, test_device());
        aril_list none = { 0 };
        for (int i = 0; i < 400; i++) {
            ARIL_SCOPE;
            aril_backward(aril_mean(aril_square(aril_sub(aril_matmul(x, w), y)), ARIL_ALL));
            if (kind < 2)
                aril_sgd_update(ARIL_LIST(w), none, ARIL_LIST(m), lr, step,
                                (aril_sgd_update_opts){ .momentum = 0.5, .nesterov = kind == 1 });
            else
                aril_adam_update(ARIL_LIST(w), none, ARIL_LIST(m), ARIL_LIST(v), none, lr, step,
                                 (aril_adam_update_opts){ 0 });
            aril_zero_grad(w);
        }
        CHECK(aril_ok());
        CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(aril_detach(w), want)), ARIL_ALL)), 0,
                   1e-3);
        CHECK_INT(aril_item_int(step), 400);
        aril_release(w);
    }
}
