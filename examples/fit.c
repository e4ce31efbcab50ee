/* A convolutional network trained in one call, as in Keras: images in which the position of a
 * bright square is the class. */
#include <aril/aril.h>

#include <stdlib.h>

enum { CLASSES = 10 };

/* Noise, with a square in each image [3,size,size] whose position is its class. */
static void images(int64_t n, int64_t size, aril_tensor **x, aril_tensor **y)
{
    *x = aril_mul_scalar(aril_rand(ARIL_SHAPE(n, 3, size, size), ARIL_F32, aril_cpu()), 0.5);
    *y = aril_randint(0, CLASSES, ARIL_SHAPE(n), ARIL_I64, aril_cpu());
    const int64_t *truth = aril_data(*y);
    for (int64_t i = 0; i < n; i++) {
        ARIL_SCOPE;
        int64_t edge = size / 4, row = truth[i] / 4 * edge, column = truth[i] % 4 * edge;
        aril_tensor *image = aril_select(*x, 0, i);
        aril_fill_(aril_narrow(aril_narrow(image, 1, row, edge), 2, column, edge), 1);
    }
}

int main(void)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    int64_t size = quick ? 24 : 100, n = quick ? 96 : 320;
    aril_seed(0);
    aril_tensor *x, *y, *x_val, *y_val;
    images(n, size, &x, &y);
    images(n / 4, size, &x_val, &y_val);

    aril_module *net =
        aril_nn_sequential(aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_conv2d(0, 32, 3),
                           aril_nn_relu(), /* 0: inferred */
                           aril_nn_max_pool2d(2), aril_nn_dropout(0.25), aril_nn_flatten(),
                           aril_nn_linear(0, 256), aril_nn_relu(), aril_nn_dropout(0.5),
                           aril_nn_linear(0, CLASSES));
    aril_model *model = aril_model_new(net, ARIL_SHAPE(3, size, size));
    aril_model_compile(model, (aril_model_opts){ .loss = "cross_entropy",
                                                 .metrics = "accuracy, confusion",
                                                 .optimizer = aril_sgd(
                                                     NULL, (aril_sgd_opts){ .lr = 0.01,
                                                                            .decay = 1e-6,
                                                                            .momentum = 0.9,
                                                                            .nesterov = true }) });
    aril_history *h = aril_model_fit(
        model, x, y,
        (aril_fit_opts){ .batch_size = 32,
                         .epochs = quick ? 2 : 3,
                         .validation = { x_val, y_val },
                         .callbacks = ARIL_CALLBACKS(aril_early_stop((aril_early_stop_opts){
                             .patience = 3, .restore_best = true, .verbose = true })) });
    if (h != NULL) {
        aril_history_plot(h, stdout, (aril_plot_opts){ .name = "accuracy" });
        double loss = aril_model_evaluate(model, x_val, y_val, (aril_eval_opts){ 0 });
        aril_tensor *scores =
            aril_model_predict(model, x_val, (aril_eval_opts){ 0 }); /* [n/4,10] */
        printf("loss %.4f; the first image is of class %lld\n", loss,
               (long long)aril_item_int(aril_argmax(aril_select(scores, 0, 0), ARIL_ALL)));
    }
    aril_model_free(model);
    return aril_report(stderr);
}
