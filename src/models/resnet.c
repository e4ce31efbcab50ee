/* ResNet (He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015), with the stride
 * of a bottleneck in its 3 x 3 convolution ("v1.5"), or as published in its first 1 x 1 one ("v1");
 * 200 layers as in Identity Mappings, 2016. ResNeXt (Xie et al.: Aggregated Residual
 * Transformations for Deep Neural Networks, 2016), whose 3 x 3 convolutions have groups, and Wide
 * ResNet (Zagoruyko, Komodakis: Wide Residual Networks, 2016). */
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

typedef struct config {
    bool deep;      /* of bottlenecks */
    int blocks[4];  /* in each stage */
    bool first;     /* the stride of a bottleneck is in its first convolution */
    int64_t groups; /* of the 3 x 3 convolutions; 0: 1 */
    int64_t width;  /* channels of each group in the first stage; 0: 64 */
} config;

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

static aril_module *bottleneck(const config *c, int64_t in, int64_t width, int64_t stride)
{
    int64_t groups = c->groups ? c->groups : 1;
    int64_t inner = width * (c->width ? c->width : 64) / 64 * groups;
    aril_module *m = aril_module_new("Bottleneck", 0, block_forward);
    m = aril__with(m, "conv1", aril__conv(in, inner, 1, c->first ? stride : 1, 0));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(inner));
    m = aril__with(m, "conv2",
                   aril_nn_conv2d_with(inner, inner, 3,
                                       (aril_nn_conv_opts){ .stride = { c->first ? 1 : stride },
                                                            .padding = { 1 },
                                                            .groups = groups,
                                                            .no_bias = true }));
    m = aril__with(m, "bn2", aril_nn_batch_norm2d(inner));
    m = aril__with(m, "conv3", aril__conv(inner, 4 * width, 1, 1, 0));
    m = aril__with(m, "bn3", aril_nn_batch_norm2d(4 * width));
    return downsample(m, in, 4 * width, stride);
}

/* ---- networks ---- */

static aril_module *resnet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv1", aril__conv(o->input.dim[0], 64, 7, 2, 3));
    m = aril__with(m, "bn1", aril_nn_batch_norm2d(64));
    m = aril__with(m, "relu", aril_nn_relu());
    m = aril__with(m, "maxpool", aril__max_pool(3, 2, 1));
    int64_t in = 64;
    for (int k = 0; k < 4; k++) {
        int64_t width = 64 << k;
        aril_module *layer = aril_nn_sequential_of(0, NULL);
        for (int i = 0; i < c->blocks[k]; i++) {
            int64_t stride = k > 0 && i == 0 ? 2 : 1;
            layer = aril__append(layer, c->deep ? bottleneck(c, in, width, stride)
                                                : basic_block(in, width, stride));
            in = c->deep ? 4 * width : width;
        }
        m = aril__with_number(m, "layer", k + 1, layer);
    }
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__init_images(aril__with(m, "fc", aril_nn_linear(in, o->classes)), 0);
}

#define NETWORK(net, title, published, ...)                                             \
    .name = net, .family = "resnet", .paper = title, .year = published, .make = resnet, \
    .config = &(const config)                                                           \
    {                                                                                   \
        __VA_ARGS__                                                                     \
    }
#define RESNET(net, ...) \
    NETWORK(net, "Deep Residual Learning for Image Recognition", 2015, __VA_ARGS__)
#define V1(net, layers, ...)                                                                   \
    {                                                                                          \
        RESNET(net, .deep = true, .blocks = { __VA_ARGS__ }, .first = true),                   \
            ARIL__IMAGENET(224, .resize = 256, ARIL__CAFFE_NORM),                              \
            .about = "ResNet of " layers " layers as published: strides in 1 x 1 convolutions" \
    }

/* Photos for weights that were trained to see more of them. */
#define LARGER ARIL__IMAGENET(224, .resize = 232, ARIL__IMAGENET_NORM)

const aril_zoo_entry aril__zoo_resnet[] = {
    { RESNET("resnet18", .deep = false, .blocks = { 2, 2, 2, 2 }), ARIL__IMAGENET_224,
      ARIL__TORCHVISION("resnet18", "f37072fd"), .about = "ResNet of 18 layers" },
    { RESNET("resnet34", .deep = false, .blocks = { 3, 4, 6, 3 }), ARIL__IMAGENET_224,
      ARIL__TORCHVISION("resnet34", "b627a593"), .about = "ResNet of 34 layers" },
    { RESNET("resnet50", .deep = true, .blocks = { 3, 4, 6, 3 }), LARGER,
      ARIL__TORCHVISION("resnet50", "11ad3fa6"), .about = "ResNet of 50 layers" },
    { RESNET("resnet101", .deep = true, .blocks = { 3, 4, 23, 3 }), LARGER,
      ARIL__TORCHVISION("resnet101", "cd907fc2"), .about = "ResNet of 101 layers" },
    { RESNET("resnet152", .deep = true, .blocks = { 3, 8, 36, 3 }), LARGER,
      ARIL__TORCHVISION("resnet152", "f82ba261"), .about = "ResNet of 152 layers" },
    { NETWORK("resnet200", "Identity Mappings in Deep Residual Networks", 2016, .deep = true,
              .blocks = { 3, 24, 36, 3 }),
      ARIL__IMAGENET_224, .about = "ResNet of 200 layers" },
    V1("resnet50-v1", "50", 3, 4, 6, 3),
    V1("resnet101-v1", "101", 3, 4, 23, 3),
    V1("resnet152-v1", "152", 3, 8, 36, 3),
    V1("resnet200-v1", "200", 3, 24, 36, 3),
    { NETWORK("resnext50_32x4d", "Aggregated Residual Transformations for Deep Neural Networks",
              2016, .deep = true, .blocks = { 3, 4, 6, 3 }, .groups = 32, .width = 4),
      LARGER, ARIL__TORCHVISION("resnext50_32x4d", "1a0047aa"),
      .about = "ResNeXt of 50 layers: 32 groups of 4 channels" },
    { NETWORK("wide_resnet50_2", "Wide Residual Networks", 2016, .deep = true,
              .blocks = { 3, 4, 6, 3 }, .width = 128),
      LARGER, ARIL__TORCHVISION("wide_resnet50_2", "9ba9bcbe"),
      .about = "ResNet of 50 layers, 3 x 3 convolutions twice as wide" },
    { 0 },
};
