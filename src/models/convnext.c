/* ConvNeXt (Liu, Mao, Wu, Feichtenhofer, Darrell, Xie: A ConvNet for the 2020s, 2022). */
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/view.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

typedef struct config {
    int64_t width[4];
    int blocks[4];
    double drop; /* stochastic depth of the last block; less in the blocks before */
} config;

static aril_tensor *channels_last(aril_tensor *x)
{
    return aril_permute(x, ARIL_AXES(0, 2, 3, 1));
}

static aril_tensor *channels_first(aril_tensor *x)
{
    return aril_permute(x, ARIL_AXES(0, 3, 1, 2));
}

/* ---- layers ---- */

/* Layer normalization over the channels of each pixel. */
static aril_tensor *pixel_norm_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y =
        aril_layer_norm(channels_last(x), aril_module_own(self, 0), aril_module_own(self, 1),
                        ARIL_SHAPE(aril_size(x, 1)), (aril_norm_opts){ .eps = 1e-6 });
    return channels_first(y);
}

static aril_module *pixel_norm(int64_t width)
{
    aril_module *m = aril_module_new("LayerNorm2d", 0, pixel_norm_forward);
    m = aril__with_parameter(m, "weight", ARIL_SHAPE(width), NULL, 1);
    return aril__with_parameter(m, "bias", ARIL_SHAPE(width), NULL, 0);
}

static aril_tensor *to_last_forward(aril_module *self, aril_tensor *x)
{
    (void)self;
    return channels_last(x);
}

static aril_tensor *to_first_forward(aril_module *self, aril_tensor *x)
{
    (void)self;
    return channels_first(x);
}

/* ---- blocks ---- */

static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x);
    y = aril_mul(aril_module_own(self, 0), y);
    return aril_add(aril_forward(aril_module_child(self, 1), y), x);
}

static aril_module *block(int64_t width, double drop)
{
    aril_module *depthwise =
        aril_nn_conv2d_with(width, width, 7,
                            (aril_nn_conv_opts){ .padding = { 3 }, .groups = width });
    aril_module *body = aril_nn_sequential(
        depthwise, aril_module_new("Permute", 0, to_last_forward),
        aril_nn_layer_norm_with(ARIL_SHAPE(width), (aril_nn_norm_opts){ .eps = 1e-6 }),
        aril_nn_linear(width, 4 * width), aril_nn_gelu(), aril_nn_linear(4 * width, width),
        aril_module_new("Permute", 0, to_first_forward));
    aril_module *m = aril_module_new("CNBlock", 0, block_forward);
    m = aril__with_parameter(m, "layer_scale", ARIL_SHAPE(width, 1, 1), NULL, 1e-6);
    m = aril__with(m, "block", body);
    return aril__with(m, "stochastic_depth", aril__stochastic_depth(drop));
}

/* ---- networks ---- */

static aril_module *convnext(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    int all = 0, done = 0;
    for (int k = 0; k < 4; k++) all += c->blocks[k];
    aril_module *f =
        aril__append(aril_nn_sequential_of(0, NULL),
                     aril_nn_sequential(aril__conv_bias(o->input.dim[0], c->width[0], 4, 4, 0),
                                        pixel_norm(c->width[0])));
    for (int k = 0; k < 4; k++) {
        aril_module *stage = aril_nn_sequential_of(0, NULL);
        for (int i = 0; i < c->blocks[k]; i++, done++)
            stage = aril__append(stage, block(c->width[k],
                                              o->no_dropout ? 0 : c->drop * done / (all - 1)));
        f = aril__append(f, stage);
        if (k == 3) break;
        f = aril__append(f, aril_nn_sequential(pixel_norm(c->width[k]),
                                               aril__conv_bias(c->width[k], c->width[k + 1], 2, 2,
                                                               0)));
    }
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "classifier",
                   aril_nn_sequential(pixel_norm(c->width[3]), aril_nn_flatten(),
                                      aril_nn_linear(c->width[3], o->classes)));
    return aril__init_truncated(m, 0.02, true);
}

const aril_zoo_entry aril__zoo_convnext[] = {
    { .name = "convnext_tiny",
      .family = "convnext",
      .paper = "A ConvNet for the 2020s",
      .year = 2022,
      ARIL__IMAGENET(224, .resize = 236, ARIL__IMAGENET_NORM),
      ARIL__TORCHVISION("convnext_tiny", "983f1562"),
      .make = convnext,
      .config = &(const config){ { 96, 192, 384, 768 }, { 3, 3, 9, 3 }, 0.1 },
      .about = "ConvNeXt, the tiny form" },
    { 0 },
};
