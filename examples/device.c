/* LeNet-5 on a device that is chosen when the program starts: device [cpu | cuda:0 | ...].
 *
 * The images are drawn here, a bright square at one of ten places in noise, so that the program
 * needs no files. */
#include <aril/aril.h>

#include <stdlib.h>

enum { IMAGES = 2048, TESTS = 256, BATCH = 64, CLASSES = 10, SIDE = 28 };

/* Images [n,1,28,28] of the classes `y`, [n]. */
static aril_tensor *draw(aril_tensor *y)
{
    int64_t n = aril_numel(y);
    aril_tensor *x = aril_randn(ARIL_SHAPE(n, 1, SIDE, SIDE), ARIL_F32, aril_cpu());
    for (int64_t i = 0; i < n; i++) {
        ARIL_SCOPE;
        int64_t class = aril_item_int(aril_select(y, 0, i));
        int64_t row = 2 + class / 5 * 13, column = 1 + class % 5 * 5;
        aril_tensor *image = aril_select(aril_select(x, 0, i), 0, 0); /* [28,28], views of x */
        image = aril_slice(aril_slice(image, 0, row, row + 6, 1), 1, column, column + 6, 1);
        aril_add_scalar_(image, 1.5);
    }
    return x;
}

/* The share of images whose class has the highest score. */
static double accuracy(aril_module *net, aril_tensor *x, aril_tensor *y, aril_device device)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_module_eval(net);
    aril_tensor *found = aril_argmax(aril_forward(net, aril_to(x, device)), ARIL_AXES(1));
    aril_module_train(net);
    return aril_item(aril_mean(aril_cast(aril_eq(found, aril_to(y, device)), ARIL_F32), ARIL_ALL));
}

int main(int argc, char **argv)
{
    int epochs = getenv("ARIL_EXAMPLE_QUICK") ? 1 : 4;
    bool gpu = argc < 2 && aril_device_available(aril_cuda(0));
    aril_device device = argc < 2 ? (gpu ? aril_cuda(0) : aril_cpu()) : aril_device_named(argv[1]);
    if (aril_synchronize(device) < 0) return aril_report(stderr); /* says what is missing */
    char name[32];
    printf("on %s\n", aril_device_name(device, name, sizeof name));

    aril_seed(1);
    aril_tensor *y = aril_randint(0, CLASSES, ARIL_SHAPE(IMAGES), ARIL_I64, aril_cpu());
    aril_tensor *y_test = aril_randint(0, CLASSES, ARIL_SHAPE(TESTS), ARIL_I64, aril_cpu());
    aril_tensor *x = draw(y), *x_test = draw(y_test);

    aril_module *net = aril_zoo_make("lenet5", (aril_zoo_opts){ .classes = CLASSES });
    aril_module_to(net, device); /* parameters stay the same objects */
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 2e-3 });
    /* Batches are copied to the device while it computes. */
    aril_loader *batches =
        aril_loader_new(aril_dataset_tensors(x, y),
                        (aril_loader_opts){ .batch = BATCH, .shuffle = true, .device = device });
    for (int epoch = 0; epoch < epochs && aril_ok(); epoch++) {
        ARIL_SCOPE;
        aril_tensor *sum = aril_zeros(ARIL_SHAPE(), ARIL_F32, device);
        for (aril_batch b; aril_loader_next(batches, &b);) {
            ARIL_SCOPE;
            aril_tensor *loss = aril_cross_entropy(aril_forward(net, b.x), b.y);
            aril_backward(loss);
            aril_step(opt);
            aril_add_(sum, aril_detach(loss)); /* stays on the device: nothing waits for it */
        }
        printf("epoch %d  loss %.4f\n", epoch + 1, aril_item(sum) * BATCH / IMAGES);
    }
    double right = accuracy(net, x_test, y_test, device);
    printf("accuracy %.3f\n", right);
    aril_loader_free(batches);
    aril_optim_free(opt);
    aril_module_release(net);
    return aril_report(stderr) || right < 0.9;
}
