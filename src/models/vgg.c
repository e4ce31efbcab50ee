/* VGG (Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition,
 * 2014): configurations A to E of its table 1, with batch norm by choice. */
#include "models/build.h"
#include "models/models.h"

/* The channels of the five stages double from 64 to 512; each stage ends with max pooling. */
typedef struct config {
    int layers[5]; /* convolutions of each stage */
    int kernel;    /* of a stage's third convolution */
    bool norm;     /* batch norm */
    bool response; /* local response normalization after the first convolution */
} config;

static aril_module *features_of(const config *c, int64_t channels)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    for (int stage = 0; stage < 5; stage++) {
        int64_t width = stage < 3 ? 64 << stage : 512;
        for (int i = 0; i < c->layers[stage]; i++, channels = width) {
            int64_t kernel = i == 2 ? c->kernel : 3;
            m = aril__append(m, aril__conv_bias(channels, width, kernel, 1, kernel / 2));
            if (c->norm) m = aril__append(m, aril_nn_batch_norm2d(width));
            m = aril__append(m, aril_nn_relu());
            if (c->response && stage == 0 && i == 0) m = aril__append(m, aril__alexnet_norm());
        }
        m = aril__append(m, aril__max_pool(2, 2, 0));
    }
    return m;
}

static aril_module *vgg(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *classifier =
        aril_nn_sequential(aril_nn_linear(512 * 7 * 7, 4096), aril_nn_relu(), aril__dropout(o, 0.5),
                           aril_nn_linear(4096, 4096), aril_nn_relu(), aril__dropout(o, 0.5),
                           aril_nn_linear(4096, o->classes));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features",
                                features_of(e->config, o->input.dim[0]));
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(7));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__init_images(aril__with(m, "classifier", classifier), 0.01);
}

#define VGG(net, text, ...)                                                                      \
    .name = net, .family = "vgg",                                                                \
    .paper = "Very Deep Convolutional Networks for Large-Scale Image Recognition", .year = 2014, \
    ARIL__IMAGENET_224, .make = vgg, .about = "VGG, configuration " text,                        \
    .config = &(const config)                                                                    \
    {                                                                                            \
        __VA_ARGS__                                                                              \
    }

const aril_zoo_entry aril__zoo_vgg[] = {
    { VGG("vgg11", "A", .layers = { 1, 1, 2, 2, 2 }, .kernel = 3),
      ARIL__TORCHVISION("vgg11", "8a719046") },
    { VGG("vgg11_bn", "A, with batch norm", .layers = { 1, 1, 2, 2, 2 }, .kernel = 3, .norm = true),
      ARIL__TORCHVISION("vgg11_bn", "6002323d") },
    { VGG("vgg11_lrn", "A-LRN: A with local response normalization", .layers = { 1, 1, 2, 2, 2 },
          .kernel = 3, .response = true) },
    { VGG("vgg13", "B", .layers = { 2, 2, 2, 2, 2 }, .kernel = 3),
      ARIL__TORCHVISION("vgg13", "19584684") },
    { VGG("vgg13_bn", "B, with batch norm", .layers = { 2, 2, 2, 2, 2 }, .kernel = 3, .norm = true),
      ARIL__TORCHVISION("vgg13_bn", "abd245e5") },
    { VGG("vgg16c", "C", .layers = { 2, 2, 3, 3, 3 }, .kernel = 1) },
    { VGG("vgg16c_bn", "C, with batch norm", .layers = { 2, 2, 3, 3, 3 }, .kernel = 1,
          .norm = true) },
    { VGG("vgg16", "D", .layers = { 2, 2, 3, 3, 3 }, .kernel = 3),
      ARIL__TORCHVISION("vgg16", "397923af") },
    { VGG("vgg16_bn", "D, with batch norm", .layers = { 2, 2, 3, 3, 3 }, .kernel = 3, .norm = true),
      ARIL__TORCHVISION("vgg16_bn", "6c64b313") },
    { VGG("vgg19", "E", .layers = { 2, 2, 4, 4, 4 }, .kernel = 3),
      ARIL__TORCHVISION("vgg19", "dcbb9e9d") },
    { VGG("vgg19_bn", "E, with batch norm", .layers = { 2, 2, 4, 4, 4 }, .kernel = 3, .norm = true),
      ARIL__TORCHVISION("vgg19_bn", "c79401a0") },
    { 0 },
};
