/* A custom function with its own gradient, inside the same network. */
#include <aril/aril.h>

#include <stdlib.h>

enum { N = 64, D = 1000, H = 100 };

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

static const aril_function my_relu = { .name = "my_relu",
                                       .inputs = 1,
                                       .outputs = 1,
                                       .forward = my_relu_forward,
                                       .backward = my_relu_backward };

int main(void)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 5 : 500;
    aril_device dev = aril_cpu();
    aril_seed(0);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *w1 = aril_parameter(aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev));
    aril_tensor *w2 = aril_parameter(aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev));
    for (int t = 0; t < steps; t++) {
        ARIL_SCOPE;
        aril_tensor *h = aril_call(&my_relu, ARIL_LIST(aril_matmul(x, w1)));
        aril_tensor *diff = aril_sub(aril_matmul(h, w2), y), *grads[2];
        aril_tensor *loss = aril_mean(aril_sum(aril_square(diff), ARIL_AXES(1)), ARIL_ALL);
        /* Like TensorFlow's GradientTape: returns gradients without touching those of the
         * parameters. */
        aril_gradients(loss, ARIL_LIST(w1, w2), grads, (aril_grad_opts){ 0 });
        ARIL_NO_GRAD;
        aril_sub_(w1, aril_mul_scalar(grads[0], 1e-6));
        aril_sub_(w2, aril_mul_scalar(grads[1], 1e-6));
        if (t % (steps / 5) == steps / 5 - 1) printf("%d %g\n", t, aril_item(loss));
    }
    aril_release(w1);
    aril_release(w2);
    return aril_report(stderr);
}
