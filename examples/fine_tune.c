/* Fine-tune an imported network: its body stays as it is, a new head is trained, and the whole is
 * exported again.
 *
 *     fine_tune [MODEL.onnx VALUE]      VALUE: the name of the value before the old head */
#include <aril/aril.h>

#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 3, BATCH = 32 };

/* Without a model from elsewhere: a small network, exported. */
static void write_model(const char *path)
{
    ARIL_SCOPE;
    static const char *const inputs[] = { "image" };
    aril_module *net =
        aril_nn_sequential(aril_nn_conv2d(1, 8, 3), aril_nn_relu(), aril_nn_adaptive_avg_pool2d(3),
                           aril_nn_flatten(), aril_nn_linear(72, 10));
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1, 1, 8, 8), ARIL_F32, aril_cpu());
    aril_module_export(net, ARIL_LIST(x), path,
                       (aril_export_opts){ .batch = true, .inputs = inputs });
    aril_module_release(net);
}

/* Images in which one of three parts is bright: x [N,1,8,8], class [N]. */
static void draw_batch(aril_tensor **x, aril_tensor **y)
{
    *y = aril_randint(0, CLASSES, ARIL_SHAPE(BATCH), ARIL_I64, aril_cpu());
    *x = aril_mul_scalar(aril_randn(ARIL_SHAPE(BATCH, 1, 8, 8), ARIL_F32, aril_cpu()), 0.3);
    int64_t class[BATCH];
    aril_read(*y, class);
    for (int i = 0; i < BATCH; i++) {
        aril_tensor *part = aril_narrow(aril_select(*x, 0, i), 1, 3 * class[i], 2);
        aril_copy_(part, aril_add_scalar(part, 1));
    }
}

int main(int argc, char **argv)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 20 : 300;
    const char *path = argc > 2 ? argv[1] : "body.onnx", *value = argc > 2 ? argv[2] : NULL;
    aril_seed(1);
    if (!value) write_model(path);
    /* The value before the old head, in the names that exported models have. */
    aril_module *body =
        aril_module_load(path, (aril_load_opts){ .output = value ? value : "/3/Reshape_output_0" });
    if (!body) return aril_report(stderr);
    aril_module_freeze(body);
    aril_module *net = aril_nn_sequential(body, aril_nn_linear(0, CLASSES));
    aril_tensor *x, *y;
    draw_batch(&x, &y);
    aril_forward(net, x); /* the head learns its size */
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 0.01 });
    double first = 0, last = 0;
    for (int i = 0; i < steps; i++) {
        ARIL_SCOPE;
        draw_batch(&x, &y);
        aril_tensor *loss = aril_cross_entropy(aril_forward(net, x), y);
        last = aril_item(loss);
        if (i == 0) first = last;
        aril_backward(loss);
        aril_step(opt);
    }
    printf("%lld of %lld parameters trained: loss %.3f, then %.3f\n",
           (long long)aril_trainable_count(net), (long long)aril_parameter_count(net), first, last);
    draw_batch(&x, &y);
    aril_module_export(net, ARIL_LIST(x), "tuned.onnx", (aril_export_opts){ .batch = true });
    if (aril_ok()) printf("wrote tuned.onnx\n");
    aril_optim_free(opt);
    aril_module_release(net);
    return aril_report(stderr);
}
