/* The listings of the tour as C++: the same calls, with braces where C has compound literals. */
#include <aril/aril.h>

extern "C" {
#include "support/test.h"
}

static const int N = 16, D = 50, H = 10;

TEST(tensors_gradients_by_hand)
{
    ARIL_SCOPE;
    aril_device dev = aril_cpu();
    aril_seed(0);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *w1 = aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev);
    aril_tensor *w2 = aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev);
    double first = 0, last = 0;
    for (int t = 0; t < 50; t++) {
        ARIL_SCOPE;
        aril_tensor *h = aril_matmul(x, w1);
        aril_tensor *h_relu = aril_relu(h);
        aril_tensor *diff = aril_sub(aril_matmul(h_relu, w2), y);
        aril_tensor *loss = aril_mean(aril_sum(aril_square(diff), ARIL_AXES(1)), ARIL_ALL);
        aril_tensor *g_y = aril_mul_scalar(diff, 2.0 / N);
        aril_tensor *g_w2 = aril_matmul(aril_t(h_relu), g_y);
        aril_tensor *g_h =
            aril_where(aril_gt_scalar(h, 0), aril_matmul(g_y, aril_t(w2)), aril_scalar(0));
        aril_sub_(w1, aril_mul_scalar(aril_matmul(aril_t(x), g_h), 1e-3));
        aril_sub_(w2, aril_mul_scalar(g_w2, 1e-3));
        (t == 0 ? first : last) = aril_item(loss);
    }
    CHECK(aril_ok());
    CHECK(last < first / 2);
}

TEST(autograd)
{
    ARIL_SCOPE;
    aril_device dev = aril_cpu();
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *w = aril_parameter(aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev));
    aril_tensor *v = aril_parameter(aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev));
    aril_tensor *loss =
        aril_mean(aril_square(aril_sub(aril_matmul(aril_relu(aril_matmul(x, w)), v), x)), ARIL_ALL);
    aril_tensor *grads[2];
    aril_grad_opts keep{};
    keep.retain_graph = true;
    CHECK(aril_gradients(loss, ARIL_LIST(w, v), grads, keep) == ARIL_OK);
    aril_backward(loss);
    {
        ARIL_NO_GRAD;
        CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(aril_grad(w), grads[0])), ARIL_ALL)), 0,
                   1e-6);
        aril_sub_(w, aril_mul_scalar(aril_grad(w), 1e-3));
        aril_zero_grad(w);
    }
    /* state carried through a loop */
    aril_tensor *h = aril_keep(aril_zeros(ARIL_SHAPE(1, 4), ARIL_F32, dev));
    for (int t = 0; t < 10; t++) {
        ARIL_SCOPE;
        aril_set(&h, aril_tanh(aril_add_scalar(h, 1)));
    }
    CHECK_NEAR(aril_item(aril_sum(h, ARIL_AXES(0, 1))), 4 * 0.9620, 0.01);
    CHECK(aril_dtype_of(aril_mul_scalar(aril_ones(ARIL_SHAPE(2), ARIL_I64, dev), 2)) == ARIL_I64);
    CHECK(aril_dtype_of(aril_mul_scalar(aril_ones(ARIL_SHAPE(2), ARIL_I64, dev), 0.5)) == ARIL_F32);
    CHECK(aril_ok());
    aril_release(h);
    aril_release(w);
    aril_release(v);
}

static void my_relu_forward(aril_ctx *c)
{
    aril_ctx_save(c, 0, aril_ctx_in(c, 0));
    aril_ctx_out(c, 0, aril_clamp_min(aril_ctx_in(c, 0), 0));
}

static void my_relu_backward(aril_ctx *c)
{
    aril_tensor *positive = aril_gt_scalar(aril_ctx_saved(c, 0), 0);
    aril_ctx_grad_in(c, 0, aril_where(positive, aril_ctx_grad_out(c, 0), aril_scalar(0)));
}

TEST(custom_function)
{
    ARIL_SCOPE;
    aril_function my_relu{};
    my_relu.name = "my_relu";
    my_relu.inputs = my_relu.outputs = 1;
    my_relu.forward = my_relu_forward;
    my_relu.backward = my_relu_backward;
    aril_tensor *x = aril_parameter(aril_randn(ARIL_SHAPE(3, 4), ARIL_F32, aril_cpu()));
    aril_tensor *y = aril_call(&my_relu, ARIL_LIST(x));
    aril_backward(aril_sum(y, ARIL_ALL));
    aril_tensor *want = aril_cast(aril_gt_scalar(x, 0), ARIL_F32);
    CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(want, aril_grad(x))), ARIL_ALL)), 0, 0);
    CHECK(aril_ok());
    aril_release(x);
}

TEST(modules)
{
    ARIL_SCOPE;
    aril_seed(0);
    aril_module *net = aril_nn_sequential(aril_nn_linear(0, 8), aril_nn_relu(),
                                          aril_nn_concat(aril_nn_linear(0, 2), aril_nn_identity()));
    aril_module_build(net, ARIL_SHAPE(4));
    aril_sgd_opts opts{};
    opts.lr = 0.1;
    aril_optim *optim = aril_sgd(aril_parameters(net), opts);
    aril_tensor *x = aril_randn(ARIL_SHAPE(16, 4), ARIL_F32, aril_cpu());
    double first = 0, last = 0;
    for (int i = 0; i < 20; i++) {
        ARIL_SCOPE;
        aril_tensor *y = aril_forward(net, x); /* [16,10] */
        aril_tensor *loss = aril_mse_loss(y, aril_zeros_like(y));
        aril_backward(loss);
        aril_step(optim);
        last = aril_item(loss);
        if (i == 0) first = last;
    }
    CHECK_INT(aril_parameters(net)->n, 4);
    CHECK(last < first && aril_ok());
    aril_optim_free(optim);
    aril_module_release(net);
}

TEST(lists)
{
    ARIL_SCOPE;
    /* clang-format off */
    ARIL_NO_GRAD; ARIL_ENABLE_GRAD;
    /* clang-format on */
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()));
    aril_tensor *v = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu()));
    aril_sgd_opts opts{};
    opts.lr = 0.5;
    aril_optim *optim = aril_sgd(ARIL_TENSORS(w, v), opts);
    aril_backward(aril_add(aril_sum(w, ARIL_ALL), aril_sum(v, ARIL_ALL)));
    CHECK(aril_step(optim) == ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(w, ARIL_ALL)), 1, 0);
    CHECK_NEAR(aril_item(aril_sum(v, ARIL_ALL)), 1.5, 0);
    aril_transform *t = ARIL_TRANSFORMS(aril_transform_one_hot(3), aril_transform_one_hot(4));
    CHECK(t && aril_ok());
    aril_transform_free(t);
    aril_callback_list calls = ARIL_CALLBACKS(aril_stop_on_nan(), aril_stop_on_nan());
    CHECK_INT(calls.n, 2);
    CHECK(calls.at[0] && calls.at[1] && calls.at[0] != calls.at[1]);
    for (int i = 0; i < calls.n; i++) aril_callback_free(calls.at[i]);
    aril_number yes = ARIL_NUMBER(true), half = ARIL_NUMBER(0.5f);
    CHECK(!yes.is_float && yes.i == 1 && half.is_float && half.f == 0.5);
    CHECK(aril_ok());
    aril_optim_free(optim);
    aril_release(w);
    aril_release(v);
}
