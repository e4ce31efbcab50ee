/* Tensors, with hand-written gradients: a two-layer ReLU network on random data with L2 loss. */
#include <aril/aril.h>

#include <stdlib.h>

enum { N = 64, D = 1000, H = 100 };

int main(void)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 5 : 500;
    aril_device dev = aril_cpu(); /* or aril_cuda(0): nothing else changes */
    aril_seed(0);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *w1 = aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev);
    aril_tensor *w2 = aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev);
    for (int t = 0; t < steps; t++) {
        ARIL_SCOPE; /* frees the tensors created below at the end of the block */
        aril_tensor *h = aril_matmul(x, w1); /* [N,H] */
        aril_tensor *h_relu = aril_relu(h);
        aril_tensor *diff = aril_sub(aril_matmul(h_relu, w2), y); /* [N,D] */
        aril_tensor *loss = aril_mean(aril_sum(aril_square(diff), ARIL_AXES(1)), ARIL_ALL);
        aril_tensor *g_y = aril_mul_scalar(diff, 2.0 / N);
        aril_tensor *g_w2 = aril_matmul(aril_t(h_relu), g_y);
        aril_tensor *g_h =
            aril_where(aril_gt_scalar(h, 0), aril_matmul(g_y, aril_t(w2)), aril_scalar(0));
        aril_sub_(w1, aril_mul_scalar(aril_matmul(aril_t(x), g_h), 1e-6));
        aril_sub_(w2, aril_mul_scalar(g_w2, 1e-6));
        if (t % (steps / 5) == steps / 5 - 1) printf("%d %g\n", t, aril_item(loss));
    }
    return aril_report(stderr); /* the first error, if any, with its source location */
}
