/* Network in Network (Lin, Chen, Yan, 2013), for CIFAR-10: each convolution is followed by two of
 * 1 x 1, and the mean of each class's map is its score. */
#include "aril/init.h"
#include "models/build.h"
#include "models/models.h"

#include <string.h>

/* Appends a convolution and the 1 x 1 ones after it, each with ReLU. */
static aril_module *perceptron(aril_module *m, int64_t in, int64_t kernel, const int64_t out[3])
{
    for (int i = 0; i < 3; i++, kernel = 1) {
        m = aril__append(m, aril__conv_bias(in, out[i], kernel, 1, kernel / 2));
        m = aril__append(m, aril_nn_relu());
        in = out[i];
    }
    return m;
}

static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    if (strcmp(aril_module_type(m), "Conv2d") != 0) return;
    aril_init_normal(aril_module_own(m, 0), 0, 0.05);
    aril_init_zeros(aril_module_own(m, 1));
}

static aril_module *nin(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = perceptron(m, o->input.dim[0], 5, (int64_t[]){ 192, 160, 96 });
    m = aril__append(m, aril__max_pool_ceil(3, 2, 0));
    m = aril__append(m, aril__dropout(o, 0.5));
    m = perceptron(m, 96, 5, (int64_t[]){ 192, 192, 192 });
    m = aril__append(m, aril_nn_avg_pool2d_with(3, (aril_pool_opts){ .stride = { 2 },
                                                                     .ceil_mode = true }));
    m = aril__append(m, aril__dropout(o, 0.5));
    m = perceptron(m, 192, 3, (int64_t[]){ 192, 192, o->classes });
    m = aril__append(m, aril_nn_adaptive_avg_pool2d(1));
    return aril__init_layers(aril__append(m, aril_nn_flatten()), init_layer, NULL);
}

const aril_zoo_entry aril__zoo_nin[] = {
    { .name = "nin",
      .family = "nin",
      .paper = "Network In Network",
      .year = 2013,
      ARIL__CIFAR10,
      .make = nin,
      .about = "Network in Network, for CIFAR-10" },
    { 0 },
};
