/* Small networks of linear layers and of plain convolutions. */
#include "models/models.h"

aril_module *aril__mlp(aril_shape input, int64_t classes)
{
    (void)input;
    return aril_nn_sequential(aril_nn_flatten(), aril_nn_linear(0, 256), aril_nn_relu(),
                              aril_nn_dropout(0.2), aril_nn_linear(256, 128), aril_nn_relu(),
                              aril_nn_dropout(0.2), aril_nn_linear(128, classes));
}

aril_module *aril__two_layer(aril_shape input, int64_t classes)
{
    (void)input;
    return aril_nn_sequential(aril_nn_flatten(), aril_nn_linear(0, 100), aril_nn_relu(),
                              aril_nn_linear(100, classes));
}

aril_module *aril__convnet(aril_shape input, int64_t classes)
{
    (void)input;
    return aril_nn_sequential(aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_conv2d(32, 32, 3),
                              aril_nn_relu(), aril_nn_max_pool2d(2), aril_nn_dropout(0.25),
                              aril_nn_conv2d(32, 64, 3), aril_nn_relu(), aril_nn_conv2d(64, 64, 3),
                              aril_nn_relu(), aril_nn_max_pool2d(2), aril_nn_dropout(0.25),
                              aril_nn_flatten(), aril_nn_linear(0, 256), aril_nn_relu(),
                              aril_nn_dropout(0.5), aril_nn_linear(256, classes));
}
