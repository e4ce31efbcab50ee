/* Networks of Keras: .keras, .h5 and .weights.h5 files as modules.
 *
 *     aril_module *net = aril_keras_load("resnet50.keras", (aril_keras_opts){ 0 });
 *     aril_module_eval(net);
 *     aril_tensor *scores = aril_forward(net, images); // [N,3,224,224]
 *
 * The network is built from the configuration in the file: Sequential and Functional models, also
 * nested, with shared layers, several inputs and several outputs, of Keras 2 and Keras 3. The
 * result is an ordinary module: it trains, compiles and exports like any other. docs/keras.md lists
 * the layers. A layer that is not supported, such as Lambda, is an error that names all of them. */
#ifndef ARIL_KERAS_H
#define ARIL_KERAS_H

#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_keras_opts {
    /* Images go in and come out as in Keras, [N,H,W,C]. Default: inputs and outputs of 4 or 5
     * dimensions are [N,C,H,W] and [N,C,D,H,W]. Others are as in Keras either way: [N,T,F] is a
     * sequence. */
    bool channels_last;
    /* A file of the weights: .weights.h5, or .h5. Then `path` may be a JSON file, written by
     * model.to_json(). NULL: those in the file itself. */
    const char *weights;
    aril_device device; /* where to put parameters and buffers; default: the CPU */
} aril_keras_opts;

/* Reads a network. Children are named after Keras' layers, parameters after their variables:
 * "conv1.kernel", "bn1.gamma", "bn1.moving_mean" (a buffer). Their memory order is Aril's: kernels
 * of convolutions are [out,in,H,W], of dense layers [out,in], those after a Flatten of images with
 * inputs in the order [C,H,W]. Parameters of layers that are not trainable require no gradient, and
 * such batch normalization uses its moving averages in training too. The caller owns the module, in
 * training mode like any new one. NULL, with an error, on failure. */
ARIL_API aril_module *aril_keras_load(const char *path, aril_keras_opts opts);

/* The number of inputs of a network that aril_keras_load returned, and the shape of the i-th as the
 * network takes it, with the batch; -1: any size. Without an i-th input: 0, no dimensions. */
ARIL_API int aril_keras_inputs(const aril_module *m);
ARIL_API aril_shape aril_keras_input_shape(const aril_module *m, int i);

ARIL_C_END

#endif
