/* GoogLeNet (Szegedy et al.: Going Deeper with Convolutions, 2014): with batch norm and 3 x 3 in
 * place of 5 x 5 convolutions, as in torchvision, and as published. */
#include "models/build.h"
#include "models/inception.h"
#include "models/models.h"

/* Channels of an inception block: 1 x 1; before and after the 3 x 3; before and after the 5 x 5;
 * after pooling. */
typedef struct widths {
    int64_t one, reduced, three, reduced2, five, pooled;
} widths;

typedef struct config {
    /* A convolution with what follows it; padded to keep the size of images. */
    aril_module *(*conv)(int64_t in, int64_t out, int64_t kernel, int64_t stride);
    int64_t five;  /* the larger window of an inception block */
    bool response; /* local response normalization */
    bool aux_pool; /* auxiliary classifiers pool windows of 5 x 5, instead of to 4 x 4 */
    double dropout;
} config;

static aril_module *conv_with_norm(int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    return aril__inception_conv(in, out,
                                (aril_nn_conv_opts){ .kernel = { kernel, kernel },
                                                     .stride = { stride },
                                                     .padding = { kernel / 2 } });
}

static aril_module *conv_with_bias(int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv", aril__conv_bias(in, out, kernel, stride, kernel / 2));
    return aril__with(m, "relu", aril_nn_relu());
}

static aril_module *inception(const config *c, int64_t in, widths w)
{
    aril_module *m = aril_nn_concat_with(1, 0, NULL);
    m = aril__with(m, "branch1", c->conv(in, w.one, 1, 1));
    m = aril__with(m, "branch2",
                   aril_nn_sequential(c->conv(in, w.reduced, 1, 1),
                                      c->conv(w.reduced, w.three, 3, 1)));
    m = aril__with(m, "branch3",
                   aril_nn_sequential(c->conv(in, w.reduced2, 1, 1),
                                      c->conv(w.reduced2, w.five, c->five, 1)));
    return aril__with(m, "branch4",
                      aril_nn_sequential(aril__max_pool_ceil(3, 1, 1),
                                         c->conv(in, w.pooled, 1, 1)));
}

static aril_module *auxiliary(const config *c, const aril_zoo_opts *o, int64_t in)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "pool",
                   c->aux_pool ? aril_nn_avg_pool2d_with(5, (aril_pool_opts){ .stride = { 3 } })
                               : aril_nn_adaptive_avg_pool2d(4));
    m = aril__with(m, "conv", c->conv(in, 128, 1, 1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "fc1", aril_nn_linear(2048, 1024));
    m = aril__with(m, "relu", aril_nn_relu());
    m = aril__with(m, "dropout", aril__dropout(o, 0.7));
    return aril__with(m, "fc2", aril_nn_linear(1024, o->classes));
}

static aril_module *stem(aril_module *m, const config *c, int64_t channels)
{
    m = aril__with(m, "conv1", c->conv(channels, 64, 7, 2));
    m = aril__with(m, "maxpool1", aril__max_pool_ceil(3, 2, 0));
    if (c->response) m = aril__with(m, "norm1", aril_nn_local_response_norm(5));
    m = aril__with(m, "conv2", c->conv(64, 64, 1, 1));
    m = aril__with(m, "conv3", c->conv(64, 192, 3, 1));
    if (c->response) m = aril__with(m, "norm2", aril_nn_local_response_norm(5));
    return aril__with(m, "maxpool2", aril__max_pool_ceil(3, 2, 0));
}

static aril_module *googlenet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    aril_module *m = o->aux ? aril__with_auxiliary(2) : aril_nn_sequential_of(0, NULL);
    m = stem(m, c, o->input.dim[0]);
    m = aril__with(m, "inception3a", inception(c, 192, (widths){ 64, 96, 128, 16, 32, 32 }));
    m = aril__with(m, "inception3b", inception(c, 256, (widths){ 128, 128, 192, 32, 96, 64 }));
    m = aril__with(m, "maxpool3", aril__max_pool_ceil(3, 2, 0));
    m = aril__with(m, "inception4a", inception(c, 480, (widths){ 192, 96, 208, 16, 48, 64 }));
    m = aril__auxiliary_after(m, 0);
    m = aril__with(m, "inception4b", inception(c, 512, (widths){ 160, 112, 224, 24, 64, 64 }));
    m = aril__with(m, "inception4c", inception(c, 512, (widths){ 128, 128, 256, 24, 64, 64 }));
    m = aril__with(m, "inception4d", inception(c, 512, (widths){ 112, 144, 288, 32, 64, 64 }));
    m = aril__auxiliary_after(m, 1);
    m = aril__with(m, "inception4e", inception(c, 528, (widths){ 256, 160, 320, 32, 128, 128 }));
    m = aril__with(m, "maxpool4", aril__max_pool_ceil(c->response ? 3 : 2, 2, 0));
    m = aril__with(m, "inception5a", inception(c, 832, (widths){ 256, 160, 320, 32, 128, 128 }));
    m = aril__with(m, "inception5b", inception(c, 832, (widths){ 384, 192, 384, 48, 128, 128 }));
    if (o->aux) {
        m = aril__with_head(m, "aux1", 0, auxiliary(c, o, 512));
        m = aril__with_head(m, "aux2", 1, auxiliary(c, o, 528));
    }
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "dropout", aril__dropout(o, c->dropout));
    return aril__init_truncated(aril__with(m, "fc", aril_nn_linear(1024, o->classes)), 0.01,
                                c->response);
}

const aril_zoo_entry aril__zoo_googlenet[] = {
    { .name = "googlenet",
      .family = "googlenet",
      .paper = "Going Deeper with Convolutions",
      .year = 2014,
      /* torchvision turns ImageNet's mean and deviation to these in the network. */
      ARIL__IMAGENET(224, .resize = 256, ARIL__HALF_NORM),
      ARIL__TORCHVISION("googlenet", "1378be20"),
      .make = googlenet,
      .config = &(const config){ .conv = conv_with_norm, .five = 3, .dropout = 0.2 },
      .about = "GoogLeNet (Inception v1) with batch norm" },
    { .name = "googlenet-2014",
      .family = "googlenet",
      .paper = "Going Deeper with Convolutions",
      .year = 2014,
      ARIL__IMAGENET(224, .resize = 256, ARIL__CAFFE_NORM),
      .make = googlenet,
      .config = &(const config){ .conv = conv_with_bias,
                                 .five = 5,
                                 .response = true,
                                 .aux_pool = true,
                                 .dropout = 0.4 },
      .about = "GoogLeNet as published: local response normalization, 5 x 5 convolutions" },
    { 0 },
};
