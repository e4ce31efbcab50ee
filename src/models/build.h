/* What the families of networks share: rows of the zoo, composition, initialization. */
#ifndef ARIL_MODELS_BUILD_H
#define ARIL_MODELS_BUILD_H

#include "aril/nn.h"
#include "aril/zoo.h"

/* ---- rows: what an entry of the zoo reads ---- */

#define ARIL__IMAGE(c, h, w) .input = { 3, { c, h, w } }
#define ARIL__VECTOR(n)      .input = { 1, { n } }
#define ARIL__TOKENS(n)      ARIL__VECTOR(n), .dtype = ARIL_I64

/* Mean and standard deviation of ImageNet's and of CIFAR-10's pixels; pixels from -1 to 1. */
#define ARIL__IMAGENET_NORM .mean = { 0.485, 0.456, 0.406 }, .std = { 0.229, 0.224, 0.225 }
#define ARIL__HALF_NORM     .mean = { 0.5, 0.5, 0.5 }, .std = { 0.5, 0.5, 0.5 }
/* Caffe's: blue, green, red, from 0 to 255, minus their means. */
#define ARIL__CAFFE_NORM    .bgr = true, .scale = 255, .mean = { 104, 117, 123 }, .std = { 1, 1, 1 }

/* A network for photos of size x size pixels with ImageNet's classes; then fields of
 * aril_preprocess. */
#define ARIL__IMAGENET(size, ...)                                                \
    ARIL__IMAGE(3, size, size), .classes = 1000, .names = ARIL_CLASSES_IMAGENET, \
                                .preprocess = { __VA_ARGS__ }
/* The same as most of torchvision's networks: 256 pixels, of which the middle 224 are used. */
#define ARIL__IMAGENET_224 ARIL__IMAGENET(224, .resize = 256, ARIL__IMAGENET_NORM)

/* A network for CIFAR-10. */
#define ARIL__CIFAR10                                                     \
    ARIL__IMAGE(3, 32, 32), .classes = 10, .names = ARIL_CLASSES_CIFAR10, \
                            .preprocess = { ARIL__IMAGENET_NORM }

/* Weights published by torchvision: name and hash make the file name. */
#define ARIL__TORCHVISION(file, hash)                                                \
    .weights = { .url = "https://download.pytorch.org/models/" file "-" hash ".pth", \
                 .sha256 = hash }

/* ---- modules ---- */

/* Fails unless an input is an image, [C,H,W]. */
bool aril__takes_image(const char *network, aril_shape input);

/* Adds a child and returns m; on failure releases m and returns NULL. Takes ownership of both, so
 * that calls can be chained, and only the last result has to be checked. */
aril_module *aril__with(aril_module *m, const char *name, aril_module *child);

/* The same under the next number, as in a Sequential. */
aril_module *aril__append(aril_module *m, aril_module *child);

/* The same under a name that ends in a number: "denselayer1". */
aril_module *aril__with_number(aril_module *m, const char *name, int number, aril_module *child);

/* A convolution without bias, for a batch norm to follow. */
aril_module *aril__conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding);

/* A convolution with bias. */
aril_module *aril__conv_bias(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                             int64_t padding);

/* A convolution that keeps the size of images, up to its stride, then batch norm and an activation
 * (NULL: none): children "0", "1", "2". */
typedef struct aril__conv_norm_opts {
    int64_t stride, groups; /* default 1 */
    aril_nn_batch_norm_opts norm;
    aril_module *(*activation)(void);
} aril__conv_norm_opts;
aril_module *aril__conv_norm(int64_t in, int64_t out, int64_t kernel, aril__conv_norm_opts opts);

/* Squeeze and excitation: x times the gate of what two 1 x 1 convolutions make of the mean of each
 * channel. Children fc1, activation, fc2, scale_activation. */
aril_module *aril__squeeze_excite(int64_t channels, int64_t squeezed,
                                  aril_module *(*activation)(void), aril_module *(*gate)(void));

/* Stochastic depth: in training, each sample becomes 0 with probability p, and the others are
 * scaled by 1 / (1 - p). */
aril_module *aril__stochastic_depth(double p);

/* Dropout, unless the options exclude it. */
aril_module *aril__dropout(const aril_zoo_opts *opts, double p);

aril_module *aril__max_pool(int64_t kernel, int64_t stride, int64_t padding);

/* Max pooling that also covers the rest of an image. */
aril_module *aril__max_pool_ceil(int64_t kernel, int64_t stride, int64_t padding);

/* Local response normalization as published with AlexNet: k 2, 5 channels, alpha 1e-4 for the sum
 * of squares, beta 0.75. */
aril_module *aril__alexnet_norm(void);

/* ---- running ---- */

/* Runs children first..last of m one after the other, releasing the values between. */
aril_tensor *aril__run_children(aril_module *m, int first, int last, aril_tensor *x);

/* m(x) + residual, where m is a Sequential, or one of Sequentials, that ends with a batch norm: in
 * one pass where that is possible. */
aril_tensor *aril__run_add(aril_module *m, aril_tensor *x, aril_tensor *residual);

/* ---- initialization ---- */

/* Initializes convolutions by Kaiming's normal distribution over the outputs, as most networks for
 * images do, and linear layers by a normal distribution of the given standard deviation and a zero
 * bias; 0 leaves those as they are. Returns m, or NULL after releasing it. */
aril_module *aril__init_images(aril_module *m, double linear_std);

/* Initializes convolutions and linear layers by a normal distribution that is cut at -2 and 2, with
 * zero biases if `zero_bias`. */
aril_module *aril__init_truncated(aril_module *m, double std, bool zero_bias);

/* Calls fn for each parameter, unless only the shapes of a network are wanted. Returns m, or NULL
 * after releasing it. */
typedef void aril__init_fn(aril_module *layer, const char *path, void *ctx);
aril_module *aril__init_layers(aril_module *m, aril__init_fn *fn, void *ctx);

/* A new parameter `name` of m, whose values `init` sets (NULL: they are zeros). */
aril_module *aril__with_parameter(aril_module *m, const char *name, aril_shape shape,
                                  void (*init)(aril_tensor *t, double value), double value);
void aril__set_normal(aril_tensor *t, double std);
void aril__set_constant(aril_tensor *t, double value);

#endif
