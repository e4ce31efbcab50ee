/* VGG (Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition,
 * 2014): configurations A to E of its table 1, with batch norm by choice. */
#include "models/build.h"
#include "models/models.h"

/* The channels of the five stages double from 64 to 512; each stage ends with max pooling. */
typedef struct config {
    int layers[5]; /* convolutions of each stage */
    int kernel;    /* of a stage's third convolution */
} config;

static const config A = { { 1, 1, 2, 2, 2 }, 3 }, B = { { 2, 2, 2, 2, 2 }, 3 },
                    C = { { 2, 2, 3, 3, 3 }, 1 }, D = { { 2, 2, 3, 3, 3 }, 3 },
                    E = { { 2, 2, 4, 4, 4 }, 3 };

static aril_module *features_of(const config *c, int64_t channels, bool norm)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    for (int stage = 0; stage < 5; stage++) {
        int64_t width = stage < 3 ? 64 << stage : 512;
        for (int i = 0; i < c->layers[stage]; i++, channels = width) {
            int64_t kernel = i == 2 ? c->kernel : 3;
            m = aril__append(m, aril__conv_bias(channels, width, kernel, 1, kernel / 2));
            if (norm) m = aril__append(m, aril_nn_batch_norm2d(width));
            m = aril__append(m, aril_nn_relu());
        }
        m = aril__append(m, aril__max_pool(2, 2, 0));
    }
    return m;
}

static aril_module *vgg(const config *c, aril_shape input, int64_t classes, bool norm)
{
    if (!aril__takes_image("vgg", input)) return NULL;
    aril_module *classifier =
        aril_nn_sequential(aril_nn_linear(512 * 7 * 7, 4096), aril_nn_relu(), aril_nn_dropout(0.5),
                           aril_nn_linear(4096, 4096), aril_nn_relu(), aril_nn_dropout(0.5),
                           aril_nn_linear(4096, classes));
    aril_module *m =
        aril__with(aril_nn_sequential_of(0, NULL), "features", features_of(c, input.dim[0], norm));
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(7));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__init_images(aril__with(m, "classifier", classifier), 0.01);
}

#define VGG(name, config)                                                \
    aril_module *aril__vgg##name(aril_shape input, int64_t classes)      \
    {                                                                    \
        return vgg(&config, input, classes, false);                      \
    }                                                                    \
    aril_module *aril__vgg##name##_bn(aril_shape input, int64_t classes) \
    {                                                                    \
        return vgg(&config, input, classes, true);                       \
    }

VGG(11, A)
VGG(13, B)
VGG(16c, C)
VGG(16, D)
VGG(19, E)
