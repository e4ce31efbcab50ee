/* What the families of networks share: putting modules together, and initialization. */
#ifndef ARIL_MODELS_BUILD_H
#define ARIL_MODELS_BUILD_H

#include "aril/nn.h"

/* Fails unless an input is an image, [C,H,W]. */
bool aril__takes_image(const char *network, aril_shape input);

/* Adds a child and returns m; on failure releases m and returns NULL. Takes ownership of both, so
 * that calls can be chained, and only the last result has to be checked. */
aril_module *aril__with(aril_module *m, const char *name, aril_module *child);

/* The same under the next number, as in a Sequential. */
aril_module *aril__append(aril_module *m, aril_module *child);

/* A convolution without bias, for a batch norm to follow. */
aril_module *aril__conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding);

/* A convolution with bias. */
aril_module *aril__conv_bias(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                             int64_t padding);

aril_module *aril__max_pool(int64_t kernel, int64_t stride, int64_t padding);

/* Max pooling that also covers the rest of an image. */
aril_module *aril__max_pool_ceil(int64_t kernel, int64_t stride, int64_t padding);

/* Initializes convolutions by Kaiming's normal distribution over the outputs, as most networks for
 * images do, and linear layers by a normal distribution of the given standard deviation and a zero
 * bias; 0 leaves those as they are. Returns m, or NULL after releasing it. */
aril_module *aril__init_images(aril_module *m, double linear_std);

#endif
