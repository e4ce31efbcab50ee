/* MobileNetV3 (Howard et al.: Searching for MobileNetV3, 2019). */
#include "models/build.h"
#include "models/models.h"

typedef struct block {
    int kernel, wide, out; /* channels inside, and of the result */
    bool squeeze;          /* with squeeze and excitation */
    bool hard;             /* hard swish in place of ReLU */
    int stride;
} block;

typedef struct config {
    const block *blocks;
    int n;
    int64_t last; /* inputs of the last layer */
} config;

static const aril_nn_batch_norm_opts norm = { .eps = 0.001, .momentum = 0.01 };

static aril_module *conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups,
                         aril_module *(*activation)(void))
{
    return aril__conv_norm(in, out, kernel,
                           (aril__conv_norm_opts){ .stride = stride,
                                                   .groups = groups,
                                                   .norm = norm,
                                                   .activation = activation });
}

/* The multiple of 8 next to n, unless that is less than 0.9 n. */
static int64_t near_multiple(int64_t n)
{
    int64_t near = (n + 4) / 8 * 8;
    if (near < 8) near = 8;
    return 10 * near < 9 * n ? near + 8 : near;
}

typedef struct inverted {
    bool residual; /* the input is added */
} inverted;

static aril_tensor *inverted_forward(aril_module *self, aril_tensor *x)
{
    const inverted *b = aril_module_data(self);
    aril_module *body = aril_module_child(self, 0);
    return b->residual ? aril__run_add(body, x, x) : aril_forward(body, x);
}

static aril_module *inverted_residual(int64_t in, const block *b)
{
    aril_module *(*activation)(void) = b->hard ? aril_nn_hardswish : aril_nn_relu;
    aril_module *body = aril_nn_sequential_of(0, NULL);
    if (b->wide != in) body = aril__append(body, conv(in, b->wide, 1, 1, 1, activation));
    body = aril__append(body, conv(b->wide, b->wide, b->kernel, b->stride, b->wide, activation));
    if (b->squeeze)
        body = aril__append(body, aril__squeeze_excite(b->wide, near_multiple(b->wide / 4),
                                                       aril_nn_relu, aril_nn_hardsigmoid));
    body = aril__append(body, conv(b->wide, b->out, 1, 1, 1, NULL));
    aril_module *m = aril_module_new("InvertedResidual", sizeof(inverted), inverted_forward);
    if (m) ((inverted *)aril_module_data(m))->residual = b->stride == 1 && in == b->out;
    return aril__with(m, "block", body);
}

static aril_module *mobilenet_v3(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    const config *c = e->config;
    int64_t in = 16;
    aril_module *f = aril__append(aril_nn_sequential_of(0, NULL),
                                  conv(o->input.dim[0], in, 3, 2, 1, aril_nn_hardswish));
    for (int i = 0; i < c->n; in = c->blocks[i++].out)
        f = aril__append(f, inverted_residual(in, &c->blocks[i]));
    f = aril__append(f, conv(in, 6 * in, 1, 1, 1, aril_nn_hardswish));
    aril_module *m = aril__with(aril_nn_sequential_of(0, NULL), "features", f);
    m = aril__with(m, "avgpool", aril_nn_adaptive_avg_pool2d(1));
    m = aril__with(m, "flatten", aril_nn_flatten());
    m = aril__with(m, "classifier",
                   aril_nn_sequential(aril_nn_linear(6 * in, c->last), aril_nn_hardswish(),
                                      aril__dropout(o, 0.2), aril_nn_linear(c->last, o->classes)));
    return aril__init_images(m, 0.01);
}

static const block small[] = {
    { 3, 16, 16, true, false, 2 }, { 3, 72, 24, false, false, 2 }, { 3, 88, 24, false, false, 1 },
    { 5, 96, 40, true, true, 2 },  { 5, 240, 40, true, true, 1 },  { 5, 240, 40, true, true, 1 },
    { 5, 120, 48, true, true, 1 }, { 5, 144, 48, true, true, 1 },  { 5, 288, 96, true, true, 2 },
    { 5, 576, 96, true, true, 1 }, { 5, 576, 96, true, true, 1 },
};

static const block large[] = {
    { 3, 16, 16, false, false, 1 }, { 3, 64, 24, false, false, 2 }, { 3, 72, 24, false, false, 1 },
    { 5, 72, 40, true, false, 2 },  { 5, 120, 40, true, false, 1 }, { 5, 120, 40, true, false, 1 },
    { 3, 240, 80, false, true, 2 }, { 3, 200, 80, false, true, 1 }, { 3, 184, 80, false, true, 1 },
    { 3, 184, 80, false, true, 1 }, { 3, 480, 112, true, true, 1 }, { 3, 672, 112, true, true, 1 },
    { 5, 672, 160, true, true, 2 }, { 5, 960, 160, true, true, 1 }, { 5, 960, 160, true, true, 1 },
};

#define MOBILENET_V3(net, text, blocks, last)                                                  \
    .name = net, .family = "mobilenet_v3", .paper = "Searching for MobileNetV3", .year = 2019, \
    .make = mobilenet_v3, .about = "MobileNetV3, the " text " form", .config = &(const config) \
    {                                                                                          \
        blocks, sizeof blocks / sizeof *blocks, last                                           \
    }

const aril_zoo_entry aril__zoo_mobilenet_v3[] = {
    { MOBILENET_V3("mobilenet_v3_small", "small", small, 1024), ARIL__IMAGENET_224,
      ARIL__TORCHVISION("mobilenet_v3_small", "047dcff4") },
    { MOBILENET_V3("mobilenet_v3_large", "large", large, 1280),
      ARIL__IMAGENET(224, .resize = 232, ARIL__IMAGENET_NORM),
      ARIL__TORCHVISION("mobilenet_v3_large", "5c1a4163") },
    { 0 },
};
