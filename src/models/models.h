/* The families of networks that zoo.c lists: rows that end with one without a name. A family's
 * first network is one of the smallest. */
#ifndef ARIL_MODELS_MODELS_H
#define ARIL_MODELS_MODELS_H

#include "aril/zoo.h"

extern const aril_zoo_entry aril__zoo_lenet[];
extern const aril_zoo_entry aril__zoo_plain[];
extern const aril_zoo_entry aril__zoo_alexnet[];
extern const aril_zoo_entry aril__zoo_vgg[];
extern const aril_zoo_entry aril__zoo_nin[];
extern const aril_zoo_entry aril__zoo_googlenet[];
extern const aril_zoo_entry aril__zoo_inception[];
extern const aril_zoo_entry aril__zoo_resnet[];
extern const aril_zoo_entry aril__zoo_resnet_cifar[];
extern const aril_zoo_entry aril__zoo_densenet[];
extern const aril_zoo_entry aril__zoo_squeezenet[];
extern const aril_zoo_entry aril__zoo_mobilenet[];
extern const aril_zoo_entry aril__zoo_mobilenet_v3[];
extern const aril_zoo_entry aril__zoo_shufflenet[];
extern const aril_zoo_entry aril__zoo_efficientnet[];
extern const aril_zoo_entry aril__zoo_vit[];
extern const aril_zoo_entry aril__zoo_convnext[];
extern const aril_zoo_entry aril__zoo_unet[];
extern const aril_zoo_entry aril__zoo_char_rnn[];
extern const aril_zoo_entry aril__zoo_captioner[];
extern const aril_zoo_entry aril__zoo_gpt2[];
extern const aril_zoo_entry aril__zoo_bert[];

/* The names of ImageNet's classes. */
extern const char *const aril__classes_imagenet[1000];

/* What a character RNN and a captioner have in common: an embedding, an LSTM, scores. */
aril_module *aril__language_rnn(int64_t classes, int64_t embed, int64_t hidden, int layers);

#endif
