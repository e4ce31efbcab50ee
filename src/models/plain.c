/* Small networks of linear layers and of plain convolutions. */
#include "models/build.h"
#include "models/models.h"

static aril_module *mlp(const aril_zoo_entry *e, const aril_zoo_opts *opts)
{
    (void)e;
    return aril_nn_sequential(aril_nn_flatten(), aril_nn_linear(0, 256), aril_nn_relu(),
                              aril__dropout(opts, 0.2), aril_nn_linear(256, 128), aril_nn_relu(),
                              aril__dropout(opts, 0.2), aril_nn_linear(128, opts->classes));
}

static aril_module *two_layer(const aril_zoo_entry *e, const aril_zoo_opts *opts)
{
    (void)e;
    return aril_nn_sequential(aril_nn_flatten(), aril_nn_linear(0, 100), aril_nn_relu(),
                              aril_nn_linear(100, opts->classes));
}

static aril_module *convnet(const aril_zoo_entry *e, const aril_zoo_opts *opts)
{
    (void)e;
    return aril_nn_sequential(aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_conv2d(32, 32, 3),
                              aril_nn_relu(), aril_nn_max_pool2d(2), aril__dropout(opts, 0.25),
                              aril_nn_conv2d(32, 64, 3), aril_nn_relu(), aril_nn_conv2d(64, 64, 3),
                              aril_nn_relu(), aril_nn_max_pool2d(2), aril__dropout(opts, 0.25),
                              aril_nn_flatten(), aril_nn_linear(0, 256), aril_nn_relu(),
                              aril__dropout(opts, 0.5), aril_nn_linear(256, opts->classes));
}

const aril_zoo_entry aril__zoo_plain[] = {
    { .name = "mlp",
      .family = "plain",
      ARIL__IMAGE(1, 28, 28),
      .classes = 10,
      .names = ARIL_CLASSES_DIGITS,
      .make = mlp,
      .about = "three linear layers, 256 and 128 wide between them, with ReLU and dropout" },
    { .name = "two_layer",
      .family = "plain",
      ARIL__VECTOR(1000),
      .classes = 1000,
      .make = two_layer,
      .about = "two linear layers, 100 wide between them, with ReLU" },
    { .name = "convnet",
      .family = "plain",
      ARIL__IMAGE(3, 100, 100),
      .classes = 10,
      .make = convnet,
      .about = "four convolutions in the manner of VGG, with dropout" },
    { 0 },
};
