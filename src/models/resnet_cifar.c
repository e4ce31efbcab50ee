/* ResNet for CIFAR-10 (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015,
 * section 4.2): 6n + 2 layers, and shortcuts without parameters (option A). */
#include "aril/index.h"
#include "aril/init.h"
#include "aril/view.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

#include <string.h>

/* ---- blocks ---- */

typedef struct block {
    int64_t pad; /* channels of zeros before and after those of the shortcut; 0: x itself */
} block;

/* Option A: every second pixel, and zeros for the channels that are new. */
static aril_tensor *shortcut_of(const block *b, aril_tensor *x)
{
    if (!b->pad) return x;
    aril_tensor *half = aril_slice(aril_slice(x, 2, 0, ARIL_END, 2), 3, 0, ARIL_END, 2);
    return aril_pad(half, ARIL_PADS(0, 0, 0, 0, b->pad, b->pad), (aril_pad_opts){ 0 });
}

static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x);
    y = aril__forward_relu(aril_module_child(self, 1), y, NULL);
    y = aril_forward(aril_module_child(self, 2), y);
    return aril__forward_relu(aril_module_child(self, 3), y,
                              shortcut_of(aril_module_data(self), x));
}

static aril_module *basic_block(int64_t in, int64_t out)
{
    aril_module *m = aril_module_new("BasicBlock", sizeof(block), block_forward);
    if (m) ((block *)aril_module_data(m))->pad = (out - in) / 2;
    m = aril__with(m, "conv1", aril__conv(in, out, 3, in == out ? 1 : 2, 1));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(out));
    m = aril__with(m, "conv2", aril__conv(out, out, 3, 1, 1));
    return aril__with(m, "bn2", aril_nn_batch_norm2d(out));
}

/* ---- networks ---- */

/* Kaiming's normal distribution over the inputs, also in the linear layer. */
static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    const char *type = aril_module_type(m);
    if (strcmp(type, "Conv2d") == 0 || strcmp(type, "Linear") == 0)
        aril_init_kaiming_normal(aril_module_own(m, 0), (aril_kaiming_opts){ 0 });
}

static aril_module *resnet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    int blocks = *(const int *)e->config;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv1", aril__conv(o->input.dim[0], 16, 3, 1, 1));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(16));
    m = aril__with(m, "relu", aril_nn_relu());
    int64_t in = 16;
    for (int k = 0; k < 3; k++) {
        aril_module *layer = aril_nn_sequential_of(0, NULL);
        for (int i = 0; i < blocks; i++, in = 16 << k)
            layer = aril__append(layer, basic_block(in, 16 << k));
        m = aril__with_number(m, "layer", k + 1, layer);
    }
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "linear", aril_nn_linear(64, o->classes));
    return aril__init_layers(m, init_layer, NULL);
}

#define RESNET(layers, blocks, hash)                                                          \
    {                                                                                         \
        .name = "resnet" layers, .family = "resnet-cifar",                                    \
        .paper = "Deep Residual Learning for Image Recognition", .year = 2015, ARIL__CIFAR10, \
        .weights = { .url = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/" \
                            "pretrained_models/resnet" layers "-" hash ".th",                 \
                     .sha256 = hash },                                                        \
        .make = resnet, .config = &(const int){ blocks },                                     \
        .about = "ResNet of " layers " layers, for CIFAR-10"                                  \
    }

const aril_zoo_entry aril__zoo_resnet_cifar[] = {
    RESNET("20", 3, "12fca82f"), RESNET("32", 5, "d509ac18"),   RESNET("44", 7, "014dd654"),
    RESNET("56", 9, "4bfd9763"), RESNET("110", 18, "1d1ed7c2"), { 0 },
};
