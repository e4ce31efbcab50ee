/* MobileNetV2 (Sandler, Howard, Zhu, Zhmoginov, Chen: Inverted Residuals and Linear Bottlenecks,
 * 2018). */
#include "aril/math.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

static aril_module *conv_norm(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                              int64_t groups)
{
    return aril_nn_sequential(aril_nn_conv2d_with(in, out, kernel,
                                                  (aril_nn_conv_opts){ .stride = { stride },
                                                                       .padding = { kernel / 2 },
                                                                       .groups = groups,
                                                                       .no_bias = true }),
                              aril_nn_batch_norm2d(out), aril_nn_relu6());
}

/* ---- inverted residuals: wide inside, narrow between them ---- */

typedef struct inverted {
    bool residual; /* the input is added */
} inverted;

static aril_tensor *inverted_forward(aril_module *self, aril_tensor *x)
{
    const inverted *b = aril_module_data(self);
    aril_module *conv = aril_module_child(self, 0);
    if (!b->residual) return aril_forward(conv, x);
    if (conv->hooks) return aril_add(aril_forward(conv, x), x);
    int n = aril_module_children(conv);
    aril_tensor *y = x;
    for (int i = 0; i < n - 1; i++) {
        aril_tensor *before = y;
        y = aril_forward(aril_module_child(conv, i), y);
        if (before != x) aril_drop(before);
    }
    return aril__forward_add(aril_module_child(conv, n - 1), y, x);
}

static aril_module *inverted_residual(int64_t in, int64_t out, int64_t stride, int64_t factor)
{
    int64_t wide = in * factor;
    aril_module *conv = aril_nn_sequential_of(0, NULL);
    if (factor != 1) conv = aril__append(conv, conv_norm(in, wide, 1, 1, 1));
    conv = aril__append(conv, conv_norm(wide, wide, 3, stride, wide));
    conv = aril__append(conv, aril__conv(wide, out, 1, 1, 0));
    conv = aril__append(conv, aril_nn_batch_norm2d(out));
    aril_module *m = aril_module_new("InvertedResidual", sizeof(inverted), inverted_forward);
    if (m) ((inverted *)aril_module_data(m))->residual = stride == 1 && in == out;
    return aril__with(m, "conv", conv);
}

aril_module *aril__mobilenet_v2(aril_shape input, int64_t classes)
{
    if (!aril__takes_image("mobilenet_v2", input)) return NULL;
    static const struct stage {
        int factor, width, blocks, stride;
    } stages[] = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 },  { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
                   { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } };
    aril_module *f =
        aril__append(aril_nn_sequential_of(0, NULL), conv_norm(input.dim[0], 32, 3, 2, 1));
    int64_t in = 32;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        for (int i = 0; i < stages[s].blocks; i++, in = stages[s].width)
            f = aril__append(f, inverted_residual(in, stages[s].width, i ? 1 : stages[s].stride,
                                                  stages[s].factor));
    }
    f = aril__append(f, conv_norm(in, 1280, 1, 1, 1));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "classifier",
                   aril_nn_sequential(aril_nn_dropout(0.2), aril_nn_linear(1280, classes)));
    return aril__init_images(m, 0.01);
}
