/* AlexNet (Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural
 * Networks, 2012), as published and in the form for one GPU (Krizhevsky: One weird trick, 2014);
 * ZFNet (Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, 2013), which looks
 * at images with smaller and denser windows. */
#include "aril/init.h"
#include "models/build.h"
#include "models/models.h"

#include <string.h>

static aril_module *network(aril_module *features, int64_t size, aril_module *classifier)
{
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", features);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(size));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__with(m, "classifier", classifier);
}

static aril_module *alexnet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *features = aril_nn_sequential(
        aril__conv_bias(o->input.dim[0], 64, 11, 4, 2), aril_nn_relu(), aril__max_pool(3, 2, 0),
        aril__conv_bias(64, 192, 5, 1, 2), aril_nn_relu(), aril__max_pool(3, 2, 0),
        aril__conv_bias(192, 384, 3, 1, 1), aril_nn_relu(), aril__conv_bias(384, 256, 3, 1, 1),
        aril_nn_relu(), aril__conv_bias(256, 256, 3, 1, 1), aril_nn_relu(),
        aril__max_pool(3, 2, 0));
    return network(features, 6,
                   aril_nn_sequential(aril__dropout(o, 0.5), aril_nn_linear(256 * 6 * 6, 4096),
                                      aril_nn_relu(), aril__dropout(o, 0.5),
                                      aril_nn_linear(4096, 4096), aril_nn_relu(),
                                      aril_nn_linear(4096, o->classes)));
}

/* ---- as published: two groups, response normalization, and fully connected layers with dropout
 * after them ---- */

static aril_module *grouped(int64_t in, int64_t out, int64_t kernel)
{
    return aril_nn_conv2d_with(in, out, kernel,
                               (aril_nn_conv_opts){ .padding = { kernel / 2 }, .groups = 2 });
}

static aril_module *classifier(const aril_zoo_opts *o)
{
    return aril_nn_sequential(aril_nn_linear(256 * 6 * 6, 4096), aril_nn_relu(),
                              aril__dropout(o, 0.5), aril_nn_linear(4096, 4096), aril_nn_relu(),
                              aril__dropout(o, 0.5), aril_nn_linear(4096, o->classes));
}

/* Weights of standard deviation 0.01, and biases of 1 in the layers that the paper names, so that
 * ReLU begins with positive inputs; 0 in the others. */
static void init_layer(aril_module *m, const char *path, void *ctx)
{
    static const char *const ones[] = { "features.4", "features.10", "features.12", "classifier.0",
                                        "classifier.3" };
    const char *type = aril_module_type(m);
    if (strcmp(type, "Conv2d") != 0 && strcmp(type, "Linear") != 0) return;
    bool one = false;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) one |= strcmp(ones[i], path) == 0;
    const bool *with_ones = ctx;
    aril_init_normal(aril_module_own(m, 0), 0, 0.01);
    aril_init_constant(aril_module_own(m, 1), one && *with_ones ? 1 : 0);
}

static aril_module *alexnet_2012(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *features =
        aril_nn_sequential(aril__conv_bias(o->input.dim[0], 96, 11, 4, 0), aril_nn_relu(),
                           aril__alexnet_norm(), aril__max_pool(3, 2, 0), grouped(96, 256, 5),
                           aril_nn_relu(), aril__alexnet_norm(), aril__max_pool(3, 2, 0),
                           aril__conv_bias(256, 384, 3, 1, 1), aril_nn_relu(), grouped(384, 384, 3),
                           aril_nn_relu(), grouped(384, 256, 3), aril_nn_relu(),
                           aril__max_pool(3, 2, 0));
    return aril__init_layers(network(features, 6, classifier(o)), init_layer, &(bool){ true });
}

static aril_module *zfnet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *features = aril_nn_sequential(
        aril__conv_bias(o->input.dim[0], 96, 7, 2, 1), aril_nn_relu(), aril__max_pool(3, 2, 1),
        aril__alexnet_norm(), aril__conv_bias(96, 256, 5, 2, 0), aril_nn_relu(),
        aril__max_pool(3, 2, 1), aril__alexnet_norm(), aril__conv_bias(256, 384, 3, 1, 1),
        aril_nn_relu(), aril__conv_bias(384, 384, 3, 1, 1), aril_nn_relu(),
        aril__conv_bias(384, 256, 3, 1, 1), aril_nn_relu(), aril__max_pool(3, 2, 0));
    return aril__init_layers(network(features, 6, classifier(o)), init_layer, &(bool){ false });
}

const aril_zoo_entry aril__zoo_alexnet[] = {
    { .name = "alexnet",
      .family = "alexnet",
      .paper = "One weird trick for parallelizing convolutional neural networks",
      .year = 2014,
      ARIL__IMAGENET_224,
      ARIL__TORCHVISION("alexnet-owt", "7be5be79"),
      .make = alexnet,
      .about = "AlexNet, the form for one GPU" },
    { .name = "alexnet-2012",
      .family = "alexnet",
      .paper = "ImageNet Classification with Deep Convolutional Neural Networks",
      .year = 2012,
      ARIL__IMAGENET(227, .resize = 256, ARIL__CAFFE_NORM),
      .make = alexnet_2012,
      .about = "AlexNet as published: two groups and local response normalization" },
    { .name = "zfnet",
      .family = "alexnet",
      .paper = "Visualizing and Understanding Convolutional Networks",
      .year = 2013,
      ARIL__IMAGENET(224, .resize = 256, ARIL__CAFFE_NORM),
      .make = zfnet,
      .about = "ZFNet: AlexNet with smaller windows and strides in the first layers" },
    { 0 },
};
