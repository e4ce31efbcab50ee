/* ShuffleNet v2 (Ma, Zhang, Zheng, Sun: Practical Guidelines for Efficient CNN Architecture Design,
 * 2018). */
#include "aril/index.h"
#include "aril/neural.h"
#include "models/build.h"
#include "models/models.h"

/* ---- blocks: one half of the channels is computed anew, then both are mixed ---- */

typedef struct unit {
    bool halves; /* the input is split; otherwise both branches read all of it, at stride 2 */
} unit;

static aril_tensor *unit_forward(aril_module *self, aril_tensor *x)
{
    const unit *u = aril_module_data(self);
    aril_tensor *half[2] = { x, x };
    if (u->halves && aril_chunk(x, 2, 1, half) < 0) return half[0];
    aril_tensor *left = u->halves ? half[0] : aril_forward(aril_module_child(self, 0), x);
    aril_tensor *right = aril_forward(aril_module_child(self, 1), half[1]);
    return aril_channel_shuffle(aril_cat(ARIL_LIST(left, right), 1), 2);
}

static aril_module *depthwise(int64_t channels, int64_t stride)
{
    return aril_nn_conv2d_with(channels, channels, 3,
                               (aril_nn_conv_opts){ .stride = { stride },
                                                    .padding = { 1 },
                                                    .groups = channels,
                                                    .no_bias = true });
}

static aril_module *shuffle_unit(int64_t in, int64_t out, int64_t stride)
{
    int64_t half = out / 2, read = stride > 1 ? in : half;
    aril_module *left = aril_nn_sequential_of(0, NULL);
    if (stride > 1) {
        aril_module_release(left);
        left = aril_nn_sequential(depthwise(in, stride), aril_nn_batch_norm2d(in),
                                  aril__conv(in, half, 1, 1, 0), aril_nn_batch_norm2d(half),
                                  aril_nn_relu());
    }
    aril_module *right =
        aril_nn_sequential(aril__conv(read, half, 1, 1, 0), aril_nn_batch_norm2d(half),
                           aril_nn_relu(), depthwise(half, stride), aril_nn_batch_norm2d(half),
                           aril__conv(half, half, 1, 1, 0), aril_nn_batch_norm2d(half),
                           aril_nn_relu());
    aril_module *m = aril_module_new("InvertedResidual", sizeof(unit), unit_forward);
    if (m) ((unit *)aril_module_data(m))->halves = stride == 1;
    return aril__with(aril__with(m, "branch1", left), "branch2", right);
}

/* ---- networks ---- */

static aril_module *conv_norm_relu(int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    return aril__conv_norm(in, out, kernel,
                           (aril__conv_norm_opts){ .stride = stride, .activation = aril_nn_relu });
}

static aril_module *shufflenet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    static const int units[3] = { 4, 8, 4 };
    const int64_t *width = e->config; /* of the three stages, and of the last convolution */
    int64_t in = 24;
    aril_module *m = aril_nn_sequential_of(0, NULL);
    m = aril__with(m, "conv1", conv_norm_relu(o->input.dim[0], in, 3, 2));
    m = aril__with(m, "maxpool", aril__max_pool(3, 2, 1));
    for (int k = 0; k < 3; k++) {
        aril_module *stage = aril_nn_sequential_of(0, NULL);
        for (int i = 0; i < units[k]; i++, in = width[k])
            stage = aril__append(stage, shuffle_unit(in, width[k], i ? 1 : 2));
        m = aril__with_number(m, "stage", k + 2, stage);
    }
    m = aril__with(m, "conv5", conv_norm_relu(in, width[3], 1, 1));
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    return aril__with(m, "fc", aril_nn_linear(width[3], o->classes));
}

#define SHUFFLENET(net, wide, ...)                                                        \
    .name = net, .family = "shufflenet", .year = 2018, .make = shufflenet,                \
    .paper = "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design", \
    .about = "ShuffleNet v2, " wide " times as wide", .config = (const int64_t[])         \
    {                                                                                     \
        __VA_ARGS__                                                                       \
    }

const aril_zoo_entry aril__zoo_shufflenet[] = {
    { SHUFFLENET("shufflenet_v2_x0_5", "0.5", 48, 96, 192, 1024), ARIL__IMAGENET_224,
      ARIL__TORCHVISION("shufflenetv2_x0.5", "f707e7126e") },
    { SHUFFLENET("shufflenet_v2_x1_0", "1", 116, 232, 464, 1024), ARIL__IMAGENET_224,
      ARIL__TORCHVISION("shufflenetv2_x1", "5666bf0f80") },
    { SHUFFLENET("shufflenet_v2_x1_5", "1.5", 176, 352, 704, 1024),
      ARIL__IMAGENET(224, .resize = 232, ARIL__IMAGENET_NORM),
      ARIL__TORCHVISION("shufflenetv2_x1_5", "3c479a10") },
    { SHUFFLENET("shufflenet_v2_x2_0", "2", 244, 488, 976, 2048),
      ARIL__IMAGENET(224, .resize = 232, ARIL__IMAGENET_NORM),
      ARIL__TORCHVISION("shufflenetv2_x2_0", "8be3c8ee") },
    { 0 },
};
