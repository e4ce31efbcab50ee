/* EfficientNet (Tan, Le: Rethinking Model Scaling for Convolutional Neural Networks, 2019), whose
 * forms B0 to B7 are one network made wider and deeper, and EfficientNetV2 (Tan, Le: Smaller Models
 * and Faster Training, 2021). */
#include "aril/init.h"
#include "aril/math.h"
#include "models/build.h"
#include "models/models.h"

#include <math.h>
#include <string.h>

typedef struct stage {
    int factor, kernel, stride, out, blocks; /* factor: channels inside / channels of the input */
    bool fused; /* one convolution in place of the 1 x 1 and the depthwise one */
} stage;

typedef struct config {
    const stage *stages;
    int n, first;      /* channels of the first convolution */
    double wide, deep; /* factors of channels and blocks */
    double dropout;
    int64_t last; /* channels of the last convolution; 0: 4 x those before */
    aril_nn_batch_norm_opts norm;
} config;

static const double depth_drop = 0.2; /* of the last block; less in the blocks before */

/* Channels made wider: the multiple of 8 next to that, unless it is less than 0.9 of it. */
static int64_t widened(const config *c, int64_t channels)
{
    double want = (double)channels * c->wide;
    int64_t near = (int64_t)(want + 4) / 8 * 8;
    if (near < 8) near = 8;
    return (double)near < 0.9 * want ? near + 8 : near;
}

static aril_module *conv(const config *c, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                         int64_t groups, aril_module *(*activation)(void))
{
    return aril__conv_norm(in, out, kernel,
                           (aril__conv_norm_opts){ .stride = stride,
                                                   .groups = groups,
                                                   .norm = c->norm,
                                                   .activation = activation });
}

/* ---- blocks ---- */

typedef struct block {
    bool residual; /* the input is added */
} block;

static aril_tensor *block_forward(aril_module *self, aril_tensor *x)
{
    const block *b = aril_module_data(self);
    aril_module *body = aril_module_child(self, 0);
    if (!b->residual) return aril_forward(body, x);
    if (!aril_module_training(self)) return aril__run_add(body, x, x);
    aril_tensor *y = aril_forward(aril_module_child(self, 1), aril_forward(body, x));
    return aril_add(y, x);
}

static aril_module *block_of(const config *c, const stage *s, int64_t in, int64_t out,
                             int64_t stride, double drop)
{
    int64_t inside = in * s->factor;
    aril_module *body = aril_nn_sequential_of(0, NULL);
    if (s->fused && inside == in) {
        body = aril__append(body, conv(c, in, out, s->kernel, stride, 1, aril_nn_silu));
    } else if (s->fused) {
        body = aril__append(body, conv(c, in, inside, s->kernel, stride, 1, aril_nn_silu));
        body = aril__append(body, conv(c, inside, out, 1, 1, 1, NULL));
    } else {
        if (inside != in) body = aril__append(body, conv(c, in, inside, 1, 1, 1, aril_nn_silu));
        body = aril__append(body, conv(c, inside, inside, s->kernel, stride, inside, aril_nn_silu));
        body = aril__append(body, aril__squeeze_excite(inside, in / 4 > 1 ? in / 4 : 1,
                                                       aril_nn_silu, aril_nn_sigmoid));
        body = aril__append(body, conv(c, inside, out, 1, 1, 1, NULL));
    }
    aril_module *m =
        aril_module_new(s->fused ? "FusedMBConv" : "MBConv", sizeof(block), block_forward);
    if (m) ((block *)aril_module_data(m))->residual = stride == 1 && in == out;
    m = aril__with(m, "block", body);
    return aril__with(m, "stochastic_depth", aril__stochastic_depth(drop));
}

/* ---- networks ---- */

static void init_layer(aril_module *m, const char *path, void *ctx)
{
    (void)path, (void)ctx;
    if (strcmp(aril_module_type(m), "Linear") != 0) return;
    aril_tensor *w = aril_module_own(m, 0);
    double bound = 1 / sqrt((double)aril_size(w, 0));
    aril_init_uniform(w, -bound, bound);
    aril_init_zeros(aril_module_own(m, 1));
}

static int blocks_of(const config *c, const stage *s)
{
    return (int)ceil(s->blocks * c->deep);
}

static aril_module *efficientnet(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    int64_t in = widened(c, c->first);
    int all = 0, done = 0;
    for (int i = 0; i < c->n; i++) all += blocks_of(c, &c->stages[i]);
    aril_module *f = aril__append(aril_nn_sequential_of(0, NULL),
                                  conv(c, o->input.dim[0], in, 3, 2, 1, aril_nn_silu));
    for (int i = 0; i < c->n; i++) {
        const stage *s = &c->stages[i];
        int64_t out = widened(c, s->out);
        aril_module *blocks = aril_nn_sequential_of(0, NULL);
        for (int k = 0; k < blocks_of(c, s); k++, done++, in = out) {
            double drop = o->no_dropout ? 0 : depth_drop * done / all;
            blocks = aril__append(blocks, block_of(c, s, in, out, k ? 1 : s->stride, drop));
        }
        f = aril__append(f, blocks);
    }
    int64_t last = c->last ? c->last : 4 * in;
    f = aril__append(f, conv(c, in, last, 1, 1, 1, aril_nn_silu));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "classifier",
                   aril_nn_sequential(aril__dropout(o, c->dropout),
                                      aril_nn_linear(last, o->classes)));
    return aril__init_layers(aril__init_images(m, 0), init_layer, NULL);
}

static const stage b[] = {
    { 1, 3, 1, 16, 1, false },  { 6, 3, 2, 24, 2, false },  { 6, 5, 2, 40, 2, false },
    { 6, 3, 2, 80, 3, false },  { 6, 5, 1, 112, 3, false }, { 6, 5, 2, 192, 4, false },
    { 6, 3, 1, 320, 1, false },
};

static const stage v2_s[] = {
    { 1, 3, 1, 24, 2, true },   { 4, 3, 2, 48, 4, true },   { 4, 3, 2, 64, 4, true },
    { 4, 3, 2, 128, 6, false }, { 6, 3, 1, 160, 9, false }, { 6, 3, 2, 256, 15, false },
};

#define EFFICIENTNET(form, source, hash, wide, deep, drop, ...)                          \
    .name = "efficientnet_b" form, .family = "efficientnet", .year = 2019,               \
    .paper = "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", \
    .about = "EfficientNet-B" form, .make = efficientnet,                                \
    ARIL__TORCHVISION("efficientnet_b" form source, hash), .config = &(const config)     \
    {                                                                                    \
        b, 7, 32, wide, deep, drop, 0,                                                   \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define PHOTOS(size, larger, how) \
    ARIL__IMAGENET(size, .resize = larger, .filter = ARIL_FILTER_##how, ARIL__IMAGENET_NORM)

const aril_zoo_entry aril__zoo_efficientnet[] = {
    { EFFICIENTNET("0", "_rwightman", "7f5810bc", 1, 1, 0.2, .eps = 0), PHOTOS(224, 256, BICUBIC) },
    { EFFICIENTNET("1", "", "c27df63c", 1, 1.1, 0.2, .eps = 0), PHOTOS(240, 255, BILINEAR) },
    { EFFICIENTNET("2", "_rwightman", "c35c1473", 1.1, 1.2, 0.3, .eps = 0),
      PHOTOS(288, 288, BICUBIC) },
    { EFFICIENTNET("3", "_rwightman", "b3899882", 1.2, 1.4, 0.3, .eps = 0),
      PHOTOS(300, 320, BICUBIC) },
    { EFFICIENTNET("4", "_rwightman", "23ab8bcd", 1.4, 1.8, 0.4, .eps = 0),
      PHOTOS(380, 384, BICUBIC) },
    { EFFICIENTNET("5", "_lukemelas", "1a07897c", 1.6, 2.2, 0.4, .eps = 0.001, .momentum = 0.01),
      PHOTOS(456, 456, BICUBIC) },
    { EFFICIENTNET("6", "_lukemelas", "24a108a5", 1.8, 2.6, 0.5, .eps = 0.001, .momentum = 0.01),
      PHOTOS(528, 528, BICUBIC) },
    { EFFICIENTNET("7", "_lukemelas", "c5b4e57e", 2, 3.1, 0.5, .eps = 0.001, .momentum = 0.01),
      PHOTOS(600, 600, BICUBIC) },
    { .name = "efficientnet_v2_s",
      .family = "efficientnet",
      .paper = "EfficientNetV2: Smaller Models and Faster Training",
      .year = 2021,
      .about = "EfficientNetV2, the small form",
      .make = efficientnet,
      .config = &(const config){ v2_s, 6, 24, 1, 1, 0.2, 1280, { .eps = 0.001 } },
      PHOTOS(384, 384, BILINEAR),
      ARIL__TORCHVISION("efficientnet_v2_s", "dd5fe13b") },
    { 0 },
};
