#include "aril/zoo.h"

#include "core/error.h"
#include "models/models.h"

#include <string.h>

/* What an entry reads: an image, photos of ImageNet, a vector, a sequence of tokens. */
#define IMAGE(c, h, w) .input = { 3, { c, h, w } }
#define IMAGENET(net)  .name = #net, IMAGE(3, 224, 224), .classes = 1000, .make = aril__##net
#define VECTOR(n)      .input = { 1, { n } }
#define TOKENS(n)      VECTOR(n), .dtype = ARIL_I64

static const aril_zoo_entry entries[] = {
    { .name = "lenet5",
      IMAGE(1, 28, 28),
      .classes = 10,
      .make = aril__lenet5,
      .about = "LeNet-5 with ReLU and max pooling" },
    { .name = "lenet5-1998",
      IMAGE(1, 28, 28),
      .classes = 10,
      .make = aril__lenet5_1998,
      .about = "LeNet-5 as published: tanh, trained average pooling, maps of partial connections" },
    { .name = "mlp",
      IMAGE(1, 28, 28),
      .classes = 10,
      .make = aril__mlp,
      .about = "three linear layers, 256 and 128 wide between them, with ReLU and dropout" },
    { .name = "two_layer",
      VECTOR(1000),
      .classes = 1000,
      .make = aril__two_layer,
      .about = "two linear layers, 100 wide between them, with ReLU" },
    { .name = "convnet",
      IMAGE(3, 100, 100),
      .classes = 10,
      .make = aril__convnet,
      .about = "four convolutions in the manner of VGG, with dropout" },
    { IMAGENET(alexnet), .about = "AlexNet, the form for one GPU" },
    { IMAGENET(vgg11), .about = "VGG, configuration A" },
    { IMAGENET(vgg11_bn), .about = "VGG, configuration A, with batch norm" },
    { IMAGENET(vgg13), .about = "VGG, configuration B" },
    { IMAGENET(vgg13_bn), .about = "VGG, configuration B, with batch norm" },
    { IMAGENET(vgg16c), .about = "VGG, configuration C" },
    { IMAGENET(vgg16c_bn), .about = "VGG, configuration C, with batch norm" },
    { IMAGENET(vgg16), .about = "VGG, configuration D" },
    { IMAGENET(vgg16_bn), .about = "VGG, configuration D, with batch norm" },
    { IMAGENET(vgg19), .about = "VGG, configuration E" },
    { IMAGENET(vgg19_bn), .about = "VGG, configuration E, with batch norm" },
    { IMAGENET(googlenet), .about = "GoogLeNet (Inception v1) with batch norm" },
    { IMAGENET(resnet18), .about = "ResNet of 18 layers" },
    { IMAGENET(resnet34), .about = "ResNet of 34 layers" },
    { IMAGENET(resnet50), .about = "ResNet of 50 layers" },
    { IMAGENET(resnet101), .about = "ResNet of 101 layers" },
    { IMAGENET(resnet152), .about = "ResNet of 152 layers" },
    { IMAGENET(resnet200), .about = "ResNet of 200 layers" },
    { IMAGENET(densenet121), .about = "DenseNet of 121 layers" },
    { IMAGENET(densenet161), .about = "DenseNet of 161 layers" },
    { IMAGENET(densenet169), .about = "DenseNet of 169 layers" },
    { IMAGENET(densenet201), .about = "DenseNet of 201 layers" },
    { IMAGENET(squeezenet1_0), .about = "SqueezeNet as published" },
    { IMAGENET(squeezenet1_1), .about = "SqueezeNet 1.1, cheaper at the same accuracy" },
    { IMAGENET(mobilenet_v2), .about = "MobileNetV2: inverted residuals" },
    { .name = "char_rnn",
      TOKENS(96),
      .classes = 256,
      .make = aril__char_rnn,
      .about = "two layers of LSTM that predict the next character" },
    { .name = "captioner",
      IMAGE(3, 64, 64),
      .classes = 64,
      .make = aril__captioner,
      .about = "a convolutional network and an LSTM that describe an image in words" },
    { .name = "gpt2",
      TOKENS(1024),
      .classes = 50257,
      .make = aril__gpt2,
      .about = "GPT-2 of 124 million parameters" },
    { .name = "gpt2-medium",
      TOKENS(1024),
      .classes = 50257,
      .make = aril__gpt2_medium,
      .about = "GPT-2 of 355 million parameters" },
    { .name = "gpt2-large",
      TOKENS(1024),
      .classes = 50257,
      .make = aril__gpt2_large,
      .about = "GPT-2 of 774 million parameters" },
    { .name = "gpt2-xl",
      TOKENS(1024),
      .classes = 50257,
      .make = aril__gpt2_xl,
      .about = "GPT-2 of 1558 million parameters" },
};
enum { ENTRIES = sizeof entries / sizeof *entries };

int aril_zoo_count(void)
{
    return ENTRIES;
}

const aril_zoo_entry *aril_zoo_at(int i)
{
    return i >= 0 && i < ENTRIES ? &entries[i] : NULL;
}

const aril_zoo_entry *aril_zoo_find(const char *name)
{
    const char *names[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        names[i] = entries[i].name;
        if (name && strcmp(name, names[i]) == 0) return &entries[i];
    }
    const char *near = aril_nearest(name, names, ENTRIES);
    aril__fail(ARIL_ERR_ARG, near ? "no model '%s'; did you mean %s?" : "no model '%s'",
               name ? name : "", near);
    return NULL;
}

aril_module *aril_zoo_make(const char *name, aril_zoo_opts opts)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    if (!e) return NULL;
    aril_shape input = opts.input.ndim ? opts.input : e->input;
    int64_t classes = opts.classes ? opts.classes : e->classes;
    if (classes < 1) {
        aril__fail(ARIL_ERR_ARG, "%s: expected at least 1 class, got %lld", name,
                   (long long)classes);
        return NULL;
    }
    aril_module *m = e->make(input, classes);
    if (m && aril_module_build(m, input) < 0) {
        aril_module_release(m);
        return NULL;
    }
    return m;
}
