/* ResNet (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015), with the stride
 * of a bottleneck in its 3 x 3 convolution; 200 layers as in Identity Mappings, 2016. */
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

/* ---- blocks ---- */

/* The children of a block: conv1, bn1, conv2, bn2 ..., and perhaps downsample, which brings the
 * input to the shape of the result. */
static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    int n = aril_module_children(self), pairs = n / 2;
    aril_tensor *shortcut = n % 2 ? aril_forward(aril_module_child(self, n - 1), x) : x, *y = x;
    for (int i = 0; i < pairs; i++) {
        aril_tensor *z = aril_forward(aril_module_child(self, 2 * i), y);
        if (y != x) aril_drop(y);
        y = aril__forward_relu(aril_module_child(self, 2 * i + 1), z,
                               i == pairs - 1 ? shortcut : NULL);
        aril_drop(z);
    }
    return y;
}

static aril_module *downsample(aril_module *block, int64_t in, int64_t out, int64_t stride)
{
    if (stride == 1 && in == out) return block;
    return aril__with(block, "downsample",
                      aril_nn_sequential(aril__conv(in, out, 1, stride, 0),
                                         aril_nn_batch_norm2d(out)));
}

static aril_module *basic_block(int64_t in, int64_t width, int64_t stride)
{
    aril_module *m = aril_module_new("BasicBlock", 0, block_forward);
    m = aril__with(m, "conv1", aril__conv(in, width, 3, stride, 1));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(width));
    m = aril__with(m, "conv2", aril__conv(width, width, 3, 1, 1));
    m = aril__with(m, "bn2", aril_nn_batch_norm2d(width));
    return downsample(m, in, width, stride);
}

static aril_module *bottleneck(int64_t in, int64_t width, int64_t stride)
{
    aril_module *m = aril_module_new("Bottleneck", 0, block_forward);
    m = aril__with(m, "conv1", aril__conv(in, width, 1, 1, 0));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(width));
    m = aril__with(m, "conv2", aril__conv(width, width, 3, stride, 1));
    m = aril__with(m, "bn2", aril_nn_batch_norm2d(width));
    m = aril__with(m, "conv3", aril__conv(width, 4 * width, 1, 1, 0));
    m = aril__with(m, "bn3", aril_nn_batch_norm2d(4 * width));
    return downsample(m, in, 4 * width, stride);
}

/* ---- networks ---- */

static aril_module *resnet(aril_shape input, int64_t classes, bool deep, const int blocks[4])
{
    if (!aril__takes_image("resnet", input)) return NULL;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv1", aril__conv(input.dim[0], 64, 7, 2, 3));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(64));
    m = aril__with(m, "relu", aril_nn_relu());
    m = aril__with(m, "maxpool", aril__max_pool(3, 2, 1));
    int64_t in = 64;
    for (int k = 0; k < 4; k++) {
        int64_t width = 64 << k;
        aril_module *layer = aril_nn_sequential_of(0, NULL);
        for (int i = 0; i < blocks[k]; i++) {
            int64_t stride = k > 0 && i == 0 ? 2 : 1;
            layer = aril__append(layer, (deep ? bottleneck : basic_block)(in, width, stride));
            in = deep ? 4 * width : width;
        }
        m = aril__with(m, (const char *[]){ "layer1", "layer2", "layer3", "layer4" }[k], layer);
    }
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__init_images(aril__with(m, "fc", aril_nn_linear(in, classes)), 0);
}

#define RESNET(layers, deep, ...)                                           \
    aril_module *aril__resnet##layers(aril_shape input, int64_t classes)    \
    {                                                                       \
        return resnet(input, classes, deep, (const int[4]){ __VA_ARGS__ }); \
    }

RESNET(18, false, 2, 2, 2, 2)
RESNET(34, false, 3, 4, 6, 3)
RESNET(50, true, 3, 4, 6, 3)
RESNET(101, true, 3, 4, 23, 3)
RESNET(152, true, 3, 8, 36, 3)
RESNET(200, true, 3, 24, 36, 3)
