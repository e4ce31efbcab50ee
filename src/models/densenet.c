/* DenseNet (Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks,
 * 2016), the form with bottlenecks and compression. */
#include "aril/index.h"
#include "aril/init.h"
#include "models/build.h"
#include "models/models.h"

enum { BOTTLENECK = 4 }; /* the first convolution of a layer has so many times the growth */

static aril_module *dense_layer(int64_t in, int64_t growth)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "norm1", aril_nn_batch_norm2d(in));
    m = aril__with(m, "relu1", aril_nn_relu());
    m = aril__with(m, "conv1", aril__conv(in, BOTTLENECK * growth, 1, 1, 0));
    m = aril__with(m, "norm2", aril_nn_batch_norm2d(BOTTLENECK * growth));
    m = aril__with(m, "relu2", aril_nn_relu());
    return aril__with(m, "conv2", aril__conv(BOTTLENECK * growth, growth, 3, 1, 1));
}

/* Each layer's result is appended to the channels of its input. */
static aril_tensor *dense_block_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *all = x;
    for (int i = 0; i < aril_module_children(self); i++) {
        aril_tensor *y = aril_forward(aril_module_child(self, i), all), *before = all;
        all = aril_cat(ARIL_LIST(all, y), 1);
        aril_drop(y);
        if (before != x) aril_drop(before);
    }
    return all;
}

static aril_module *dense_block(int64_t in, int64_t growth, int layers)
{
    aril_module *m = aril_module_new("DenseBlock", 0, dense_block_forward);
    for (int i = 0; i < layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "denselayer%d", i + 1);
        m = aril__with(m, name, dense_layer(in + i * growth, growth));
    }
    return m;
}

static aril_module *transition(int64_t in)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "norm", aril_nn_batch_norm2d(in));
    m = aril__with(m, "relu", aril_nn_relu());
    m = aril__with(m, "conv", aril__conv(in, in / 2, 1, 1, 0));
    return aril__with(m, "pool", aril_nn_avg_pool2d(2));
}

static aril_module *densenet(aril_shape input, int64_t classes, int64_t width, int64_t growth,
                             const int layers[4])
{
    if (!aril__takes_image("densenet", input)) return NULL;
    aril_module *f = aril_nn_sequential_of(0, NULL);
    f = aril__with(f, "conv0", aril__conv(input.dim[0], width, 7, 2, 3));
    f = aril__with(f, "norm0", aril_nn_batch_norm2d(width));
    f = aril__with(f, "relu0", aril_nn_relu());
    f = aril__with(f, "pool0", aril__max_pool(3, 2, 1));
    for (int k = 0; k < 4; k++) {
        char name[32];
        snprintf(name, sizeof name, "denseblock%d", k + 1);
        f = aril__with(f, name, dense_block(width, growth, layers[k]));
        width += layers[k] * growth;
        if (k == 3) break;
        snprintf(name, sizeof name, "transition%d", k + 1);
        f = aril__with(f, name, transition(width));
        width /= 2;
    }
    f = aril__with(f, "norm5", aril_nn_batch_norm2d(width));
    f = aril__with(f, "relu5", aril_nn_relu());
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__init_images(aril__with(m, "classifier", aril_nn_linear(width, classes)), 0);
}

#define DENSENET(name, width, growth, ...)                                             \
    aril_module *aril__densenet##name(aril_shape input, int64_t classes)               \
    {                                                                                  \
        return densenet(input, classes, width, growth, (const int[4]){ __VA_ARGS__ }); \
    }

DENSENET(121, 64, 32, 6, 12, 24, 16)
DENSENET(161, 96, 48, 6, 12, 36, 24)
DENSENET(169, 64, 32, 6, 12, 32, 32)
DENSENET(201, 64, 32, 6, 12, 48, 32)
