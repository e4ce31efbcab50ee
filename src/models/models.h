/* The networks that zoo.c lists. Each takes the shape of one input and the number of classes. */
#ifndef ARIL_MODELS_MODELS_H
#define ARIL_MODELS_MODELS_H

#include "aril/nn.h"

aril_module *aril__lenet5(aril_shape input, int64_t classes);
aril_module *aril__lenet5_1998(aril_shape input, int64_t classes);
aril_module *aril__mlp(aril_shape input, int64_t classes);
aril_module *aril__two_layer(aril_shape input, int64_t classes);
aril_module *aril__convnet(aril_shape input, int64_t classes);
aril_module *aril__alexnet(aril_shape input, int64_t classes);
aril_module *aril__vgg11(aril_shape input, int64_t classes);
aril_module *aril__vgg11_bn(aril_shape input, int64_t classes);
aril_module *aril__vgg13(aril_shape input, int64_t classes);
aril_module *aril__vgg13_bn(aril_shape input, int64_t classes);
aril_module *aril__vgg16c(aril_shape input, int64_t classes);
aril_module *aril__vgg16c_bn(aril_shape input, int64_t classes);
aril_module *aril__vgg16(aril_shape input, int64_t classes);
aril_module *aril__vgg16_bn(aril_shape input, int64_t classes);
aril_module *aril__vgg19(aril_shape input, int64_t classes);
aril_module *aril__vgg19_bn(aril_shape input, int64_t classes);
aril_module *aril__googlenet(aril_shape input, int64_t classes);
aril_module *aril__resnet18(aril_shape input, int64_t classes);
aril_module *aril__resnet34(aril_shape input, int64_t classes);
aril_module *aril__resnet50(aril_shape input, int64_t classes);
aril_module *aril__resnet101(aril_shape input, int64_t classes);
aril_module *aril__resnet152(aril_shape input, int64_t classes);
aril_module *aril__resnet200(aril_shape input, int64_t classes);
aril_module *aril__densenet121(aril_shape input, int64_t classes);
aril_module *aril__densenet161(aril_shape input, int64_t classes);
aril_module *aril__densenet169(aril_shape input, int64_t classes);
aril_module *aril__densenet201(aril_shape input, int64_t classes);
aril_module *aril__squeezenet1_0(aril_shape input, int64_t classes);
aril_module *aril__squeezenet1_1(aril_shape input, int64_t classes);
aril_module *aril__mobilenet_v2(aril_shape input, int64_t classes);
aril_module *aril__char_rnn(aril_shape input, int64_t classes);
aril_module *aril__captioner(aril_shape input, int64_t classes);
aril_module *aril__gpt2(aril_shape input, int64_t classes);
aril_module *aril__gpt2_medium(aril_shape input, int64_t classes);
aril_module *aril__gpt2_large(aril_shape input, int64_t classes);
aril_module *aril__gpt2_xl(aril_shape input, int64_t classes);

/* What a character RNN and a captioner have in common: an embedding, an LSTM, scores. */
aril_module *aril__language_rnn(int64_t classes, int64_t embed, int64_t hidden, int layers);

#endif
