/* The networks that zoo.c lists. Each takes the shape of one input and the number of classes. */
#ifndef ARIL_MODELS_MODELS_H
#define ARIL_MODELS_MODELS_H

#include "aril/nn.h"

aril_module *aril__lenet5(aril_shape input, int64_t classes);
aril_module *aril__lenet5_1998(aril_shape input, int64_t classes);
aril_module *aril__mlp(aril_shape input, int64_t classes);
aril_module *aril__two_layer(aril_shape input, int64_t classes);
aril_module *aril__convnet(aril_shape input, int64_t classes);

#endif
