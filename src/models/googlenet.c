/* GoogLeNet (Szegedy et al.: Going Deeper with Convolutions, 2014), with batch norm, 3 x 3 in place
 * of 5 x 5 convolutions, and without the auxiliary classifiers, as in torchvision. */
#include "models/build.h"
#include "models/models.h"

static aril_module *basic_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                               int64_t padding)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv", aril__conv(in, out, kernel, stride, padding));
    m = aril__with(m, "bn",
                   aril_nn_batch_norm2d_with(out, (aril_nn_batch_norm_opts){ .eps = 0.001 }));
    return aril__with(m, "relu", aril_nn_relu());
}

/* Channels of an inception block: 1 x 1; before and after the 3 x 3; before and after the second
 * one, the paper's 5 x 5; after pooling. */
typedef struct widths {
    int64_t one, reduced, three, reduced2, five, pooled;
} widths;

static aril_module *inception(int64_t in, widths w)
{
    aril_module *m = aril_nn_concat_with(1, 0, NULL);
    m = aril__with(m, "branch1", basic_conv(in, w.one, 1, 1, 0));
    m = aril__with(m, "branch2",
                   aril_nn_sequential(basic_conv(in, w.reduced, 1, 1, 0),
                                      basic_conv(w.reduced, w.three, 3, 1, 1)));
    m = aril__with(m, "branch3",
                   aril_nn_sequential(basic_conv(in, w.reduced2, 1, 1, 0),
                                      basic_conv(w.reduced2, w.five, 3, 1, 1)));
    return aril__with(m, "branch4",
                      aril_nn_sequential(aril__max_pool_ceil(3, 1, 1),
                                         basic_conv(in, w.pooled, 1, 1, 0)));
}

aril_module *aril__googlenet(aril_shape input, int64_t classes)
{
    if (!aril__takes_image("googlenet", input)) return NULL;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv1", basic_conv(input.dim[0], 64, 7, 2, 3));
    m = aril__with(m, "maxpool1", aril__max_pool_ceil(3, 2, 0));
    m = aril__with(m, "conv2", basic_conv(64, 64, 1, 1, 0));
    m = aril__with(m, "conv3", basic_conv(64, 192, 3, 1, 1));
    m = aril__with(m, "maxpool2", aril__max_pool_ceil(3, 2, 0));
    m = aril__with(m, "inception3a", inception(192, (widths){ 64, 96, 128, 16, 32, 32 }));
    m = aril__with(m, "inception3b", inception(256, (widths){ 128, 128, 192, 32, 96, 64 }));
    m = aril__with(m, "maxpool3", aril__max_pool_ceil(3, 2, 0));
    m = aril__with(m, "inception4a", inception(480, (widths){ 192, 96, 208, 16, 48, 64 }));
    m = aril__with(m, "inception4b", inception(512, (widths){ 160, 112, 224, 24, 64, 64 }));
    m = aril__with(m, "inception4c", inception(512, (widths){ 128, 128, 256, 24, 64, 64 }));
    m = aril__with(m, "inception4d", inception(512, (widths){ 112, 144, 288, 32, 64, 64 }));
    m = aril__with(m, "inception4e", inception(528, (widths){ 256, 160, 320, 32, 128, 128 }));
    m = aril__with(m, "maxpool4", aril__max_pool_ceil(2, 2, 0));
    m = aril__with(m, "inception5a", inception(832, (widths){ 256, 160, 320, 32, 128, 128 }));
    m = aril__with(m, "inception5b", inception(832, (widths){ 384, 192, 384, 48, 128, 128 }));
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "dropout", aril_nn_dropout(0.2));
    return aril__init_images(aril__with(m, "fc", aril_nn_linear(1024, classes)), 0.01);
}
