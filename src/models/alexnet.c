/* AlexNet (Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural
 * Networks, 2012), in the form for one GPU (Krizhevsky: One weird trick, 2014). */
#include "models/build.h"
#include "models/models.h"

aril_module *aril__alexnet(aril_shape input, int64_t classes)
{
    if (!aril__takes_image("alexnet", input)) return NULL;
    aril_module *features = aril_nn_sequential(
        aril__conv_bias(input.dim[0], 64, 11, 4, 2), aril_nn_relu(), aril__max_pool(3, 2, 0),
        aril__conv_bias(64, 192, 5, 1, 2), aril_nn_relu(), aril__max_pool(3, 2, 0),
        aril__conv_bias(192, 384, 3, 1, 1), aril_nn_relu(), aril__conv_bias(384, 256, 3, 1, 1),
        aril_nn_relu(), aril__conv_bias(256, 256, 3, 1, 1), aril_nn_relu(),
        aril__max_pool(3, 2, 0));
    aril_module *classifier =
        aril_nn_sequential(aril_nn_dropout(0.5), aril_nn_linear(256 * 6 * 6, 4096), aril_nn_relu(),
                           aril_nn_dropout(0.5), aril_nn_linear(4096, 4096), aril_nn_relu(),
                           aril_nn_linear(4096, classes));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", features);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(6));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__with(m, "classifier", classifier);
}
