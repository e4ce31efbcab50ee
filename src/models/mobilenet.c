/* MobileNet (Howard et al.: MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
 * Applications, 2017) and MobileNetV2 (Sandler, Howard, Zhu, Zhmoginov, Chen: Inverted Residuals
 * and Linear Bottlenecks, 2018). */
#include "aril/math.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

/* ---- v1: depthwise convolutions, each followed by one of 1 x 1 ---- */

static aril_module *relu_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                              int64_t groups)
{
    return aril__conv_norm(in, out, kernel,
                           (aril__conv_norm_opts){
                               .stride = stride, .groups = groups, .activation = aril_nn_relu });
}

static aril_module *mobilenet_v1(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    static const struct stage {
        int width, blocks;
    } stages[] = { { 64, 1 }, { 128, 2 }, { 256, 2 }, { 512, 6 }, { 1024, 2 } };
    aril_module *f =
        aril__append(aril_nn_sequential_of(0, NULL), relu_conv(o->input.dim[0], 32, 3, 2, 1));
    int64_t in = 32;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        for (int i = 0; i < stages[s].blocks; i++, in = stages[s].width) {
            f = aril__append(f, relu_conv(in, in, 3, s > 0 && i == 0 ? 2 : 1, in));
            f = aril__append(f, relu_conv(in, stages[s].width, 1, 1, 1));
        }
    }
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "fc", aril_nn_linear(in, o->classes));
    return aril__init_images(m, 0.01);
}

/* ---- v2: inverted residuals, wide inside, narrow between them ---- */

static aril_module *relu6_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                               int64_t groups)
{
    return aril__conv_norm(in, out, kernel,
                           (aril__conv_norm_opts){
                               .stride = stride, .groups = groups, .activation = aril_nn_relu6 });
}

typedef struct inverted {
    bool residual; /* the input is added */
} inverted;

static aril_tensor *inverted_forward(aril_module *self, aril_tensor *x)
{
    const inverted *b = aril_module_data(self);
    aril_module *conv = aril_module_child(self, 0);
    return b->residual ? aril__run_add(conv, x, x) : aril_forward(conv, x);
}

static aril_module *inverted_residual(int64_t in, int64_t out, int64_t stride, int64_t factor)
{
    int64_t wide = in * factor;
    aril_module *conv = aril_nn_sequential_of(0, NULL);
    if (factor != 1) conv = aril__append(conv, relu6_conv(in, wide, 1, 1, 1));
    conv = aril__append(conv, relu6_conv(wide, wide, 3, stride, wide));
    conv = aril__append(conv, aril__conv(wide, out, 1, 1, 0));
    conv = aril__append(conv, aril_nn_batch_norm2d(out));
    aril_module *m = aril_module_new("InvertedResidual", sizeof(inverted), inverted_forward);
    if (m) ((inverted *)aril_module_data(m))->residual = stride == 1 && in == out;
    return aril__with(m, "conv", conv);
}

static aril_module *mobilenet_v2(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    static const struct stage {
        int factor, width, blocks, stride;
    } stages[] = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 },  { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
                   { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } };
    aril_module *f =
        aril__append(aril_nn_sequential_of(0, NULL), relu6_conv(o->input.dim[0], 32, 3, 2, 1));
    int64_t in = 32;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        for (int i = 0; i < stages[s].blocks; i++, in = stages[s].width)
            f = aril__append(f, inverted_residual(in, stages[s].width, i ? 1 : stages[s].stride,
                                                  stages[s].factor));
    }
    f = aril__append(f, relu6_conv(in, 1280, 1, 1, 1));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "classifier",
                   aril_nn_sequential(aril__dropout(o, 0.2), aril_nn_linear(1280, o->classes)));
    return aril__init_images(m, 0.01);
}

const aril_zoo_entry aril__zoo_mobilenet[] = {
    { .name = "mobilenet_v2",
      .family = "mobilenet",
      .paper = "MobileNetV2: Inverted Residuals and Linear Bottlenecks",
      .year = 2018,
      ARIL__IMAGENET(224, .resize = 232, ARIL__IMAGENET_NORM),
      ARIL__TORCHVISION("mobilenet_v2", "7ebf99e0"),
      .make = mobilenet_v2,
      .about = "MobileNetV2: inverted residuals" },
    { .name = "mobilenet_v1",
      .family = "mobilenet",
      .paper = "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications",
      .year = 2017,
      ARIL__IMAGENET_224,
      .make = mobilenet_v1,
      .about = "MobileNet: depthwise separable convolutions" },
    { 0 },
};
