/* The same network with autograd. */
#include <aril/aril.h>

#include <stdlib.h>

enum { N = 64, D = 1000, H = 100 };

int main(void)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 5 : 500;
    aril_device dev = aril_cpu();
    aril_seed(0);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    /* Parameters are retained, and require a gradient. */
    aril_tensor *w1 = aril_parameter(aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev));
    aril_tensor *w2 = aril_parameter(aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev));
    for (int t = 0; t < steps; t++) {
        ARIL_SCOPE;
        aril_tensor *y_pred = aril_matmul(aril_relu(aril_matmul(x, w1)), w2);
        aril_tensor *loss =
            aril_mean(aril_sum(aril_square(aril_sub(y_pred, y)), ARIL_AXES(1)), ARIL_ALL);
        aril_backward(loss);
        {
            ARIL_NO_GRAD; /* until the end of the block */
            aril_sub_(w1, aril_mul_scalar(aril_grad(w1), 1e-6));
            aril_sub_(w2, aril_mul_scalar(aril_grad(w2), 1e-6));
            aril_zero_grad(w1);
            aril_zero_grad(w2);
        }
        if (t % (steps / 5) == steps / 5 - 1) printf("%d %g\n", t, aril_item(loss));
    }
    aril_release(w1);
    aril_release(w2);
    return aril_report(stderr);
}
