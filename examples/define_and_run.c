/* The two-layer network as a graph that is defined first and run later, as in TensorFlow 1. */
#include <aril/aril.h>

#include <stdlib.h>

enum { N = 64, D = 1000, H = 100 };

int main(void)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 5 : 50;
    aril_device dev = aril_cpu();
    aril_seed(0);
    aril_graph *g = aril_graph_new("two_layer");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, D), ARIL_F32);
    aril_tensor *y = aril_placeholder(g, "y", ARIL_SHAPE(-1, D), ARIL_F32);
    aril_tensor *w1 = aril_variable(g, "w1", aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev));
    aril_tensor *w2 = aril_variable(g, "w2", aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev));

    aril_tensor *diff = aril_sub(aril_matmul(aril_relu(aril_matmul(x, w1)), w2), y); /* [N,D] */
    aril_tensor *loss = aril_mean(aril_sum(aril_square(diff), ARIL_AXES(1)), ARIL_ALL);
    aril_tensor *grad[2];
    aril_gradients(loss, ARIL_LIST(w1, w2), grad, (aril_grad_opts){ 0 });
    aril_tensor *up1 = aril_assign_sub(w1, aril_mul_scalar(grad[0], 1e-6));
    aril_tensor *up2 = aril_assign_sub(w2, aril_mul_scalar(grad[1], 1e-6));

    /* Nothing has been computed yet: a session does that. */
    aril_session *s = aril_session_new(g, dev);
    aril_tensor *xs = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *ys = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    for (int t = 0; s && t < steps; t++) {
        ARIL_SCOPE;
        aril_tensor *out[3];
        aril_session_run(s, ARIL_FEEDS({ x, xs }, { y, ys }), ARIL_LIST(loss, up1, up2), out);
        if (t % (steps / 5) == steps / 5 - 1) printf("%d %g\n", t, aril_item(out[0]));
    }
    aril_session_free(s);
    aril_graph_free(g);
    return aril_report(stderr);
}
