/* SqueezeNet (Iandola et al., 2016): version 1.0 as published, and 1.1, which is 2.4 times
 * cheaper. */
#include "aril/index.h"
#include "aril/init.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

#include <string.h>

/* ---- Fire: a narrow 1 x 1 convolution, then 1 x 1 and 3 x 3 ones side by side ---- */

static aril_tensor *fire_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y = aril__forward_relu(aril_module_child(self, 0), x, NULL);
    return aril_cat(ARIL_LIST(aril__forward_relu(aril_module_child(self, 1), y, NULL),
                              aril__forward_relu(aril_module_child(self, 2), y, NULL)),
                    1);
}

static aril_module *fire(int64_t in, int64_t narrow, int64_t wide)
{
    aril_module *m = aril_module_new("Fire", 0, fire_forward);
    m = aril__with(m, "squeeze", aril__conv_bias(in, narrow, 1, 1, 0));
    m = aril__with(m, "expand1x1", aril__conv_bias(narrow, wide, 1, 1, 0));
    return aril__with(m, "expand3x3", aril__conv_bias(narrow, wide, 3, 1, 1));
}

static aril_module *pool(void)
{
    return aril__max_pool_ceil(3, 2, 0);
}

static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)ctx;
    if (strcmp(aril_module_type(m), "Conv2d") != 0) return;
    if (strcmp(path, "classifier.1") == 0)
        aril_init_normal(aril_module_own(m, 0), 0, 0.01);
    else
        aril_init_kaiming_uniform(aril_module_own(m, 0), (aril_kaiming_opts){ 0 });
    aril_init_zeros(aril_module_own(m, 1));
}

static aril_module *network(aril_module *features, const aril_zoo_opts *o)
{
    aril_module *classifier =
        aril_nn_sequential(aril__dropout(o, 0.5), aril__conv_bias(512, o->classes, 1, 1, 0),
                           aril_nn_relu(), aril_nn_adaptive_avg_pool2d(1));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", features);
    m = aril__with(m, "classifier", classifier);
    return aril__init_layers(aril__with(m, "flatten", aril_nn_flatten()), init_layer, NULL);
}

static aril_module *squeezenet1_0(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    return network(aril_nn_sequential(aril__conv_bias(o->input.dim[0], 96, 7, 2, 0), aril_nn_relu(),
                                      pool(), fire(96, 16, 64), fire(128, 16, 64),
                                      fire(128, 32, 128), pool(), fire(256, 32, 128),
                                      fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256),
                                      pool(), fire(512, 64, 256)),
                   o);
}

static aril_module *squeezenet1_1(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    return network(aril_nn_sequential(aril__conv_bias(o->input.dim[0], 64, 3, 2, 0), aril_nn_relu(),
                                      pool(), fire(64, 16, 64), fire(128, 16, 64), pool(),
                                      fire(128, 32, 128), fire(256, 32, 128), pool(),
                                      fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256),
                                      fire(512, 64, 256)),
                   o);
}

#define SQUEEZENET(net, function, text)                                                            \
    .name = net, .family = "squeezenet", .year = 2016,                                             \
    .paper = "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size", \
    ARIL__IMAGENET_224, .make = function, .about = text

const aril_zoo_entry aril__zoo_squeezenet[] = {
    { SQUEEZENET("squeezenet1_0", squeezenet1_0, "SqueezeNet as published"),
      ARIL__TORCHVISION("squeezenet1_0", "b66bff10") },
    { SQUEEZENET("squeezenet1_1", squeezenet1_1, "SqueezeNet 1.1, cheaper at the same accuracy"),
      ARIL__TORCHVISION("squeezenet1_1", "b8a52dc0") },
    { 0 },
};
