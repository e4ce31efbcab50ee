/* DenseNet (Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks,
 * 2016), the form with bottlenecks and compression. */
#include "aril/index.h"
#include "aril/init.h"
#include "models/build.h"
#include "models/models.h"

#include <string.h>

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
        m = aril__with_number(m, "denselayer", i + 1, dense_layer(in + i * growth, growth));
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

/* Kaiming's normal distribution over the inputs. */
static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)ctx;
    if (strcmp(aril_module_type(m), "Conv2d") == 0)
        aril_init_kaiming_normal(aril_module_own(m, 0), (aril_kaiming_opts){ 0 });
    if (strcmp(path, "classifier") == 0) aril_init_zeros(aril_module_own(m, 1));
}

typedef struct config {
    int64_t width, growth; /* channels of the first convolution, and of each layer */
    int layers[4];         /* of each block; 0: there are only three */
    bool small;            /* for small images: 3 x 3, without pooling, before the blocks */
} config;

static aril_module *densenet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    int64_t width = c->width;
    aril_module *f = aril_nn_sequential_of(0, NULL);
    if (c->small) {
        f = aril__with(f, "conv0", aril__conv(o->input.dim[0], width, 3, 1, 1));
    } else {
        f = aril__with(f, "conv0", aril__conv(o->input.dim[0], width, 7, 2, 3));
        f = aril__with(f, "norm0", aril_nn_batch_norm2d(width));
        f = aril__with(f, "relu0", aril_nn_relu());
        f = aril__with(f, "pool0", aril__max_pool(3, 2, 1));
    }
    int blocks = c->layers[3] ? 4 : 3;
    for (int k = 0; k < blocks; k++) {
        f = aril__with_number(f, "denseblock", k + 1, dense_block(width, c->growth, c->layers[k]));
        width += c->layers[k] * c->growth;
        if (k == blocks - 1) break;
        f = aril__with_number(f, "transition", k + 1, transition(width));
        width /= 2;
    }
    f = aril__with_number(f, "norm", blocks + 1, aril_nn_batch_norm2d(width));
    f = aril__with_number(f, "relu", blocks + 1, aril_nn_relu());
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "classifier", aril_nn_linear(width, o->classes));
    return aril__init_layers(m, init_layer, NULL);
}

#define DENSENET(net, text, ...)                                                            \
    .name = net, .family = "densenet", .paper = "Densely Connected Convolutional Networks", \
    .year = 2016, .about = "DenseNet of " text, .make = densenet, .config = &(const config) \
    {                                                                                       \
        __VA_ARGS__                                                                         \
    }

const aril_zoo_entry aril__zoo_densenet[] = {
    { DENSENET("densenet121", "121 layers", .width = 64, .growth = 32, .layers = { 6, 12, 24, 16 }),
      ARIL__IMAGENET_224, ARIL__TORCHVISION("densenet121", "a639ec97") },
    { DENSENET("densenet161", "161 layers", .width = 96, .growth = 48, .layers = { 6, 12, 36, 24 }),
      ARIL__IMAGENET_224, ARIL__TORCHVISION("densenet161", "8d451a50") },
    { DENSENET("densenet169", "169 layers", .width = 64, .growth = 32, .layers = { 6, 12, 32, 32 }),
      ARIL__IMAGENET_224, ARIL__TORCHVISION("densenet169", "b2777c0a") },
    { DENSENET("densenet201", "201 layers", .width = 64, .growth = 32, .layers = { 6, 12, 48, 32 }),
      ARIL__IMAGENET_224, ARIL__TORCHVISION("densenet201", "c1103571") },
    { DENSENET("densenet-bc250", "250 layers that each add 24 channels, for CIFAR-10", .width = 48,
               .growth = 24, .layers = { 41, 41, 41 }, .small = true),
      ARIL__CIFAR10 },
    { 0 },
};
