/* LeNet-5 (LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition,
 * 1998). */
#include "aril/conv.h"
#include "aril/create.h"
#include "aril/math.h"
#include "core/error.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

#include <math.h>

/* ---- modern variant ---- */

static aril_module *lenet5(const aril_zoo_entry *e, const aril_zoo_opts *opts)
{
    (void)e;
    /* The paper pads its 28 x 28 images to 32 x 32. */
    const aril_shape *input = &opts->input;
    int64_t frame = input->ndim == 3 && input->dim[1] < 32 ? 2 : 0;
    return aril_nn_sequential(
        aril_nn_conv2d_with(0, 6, 5, (aril_nn_conv_opts){ .padding = { frame } }), /* [6,28,28] */
        aril_nn_relu(), aril_nn_max_pool2d(2),                                     /* [6,14,14] */
        aril_nn_conv2d(0, 16, 5), aril_nn_relu(), aril_nn_max_pool2d(2),           /* [16,5,5] */
        aril_nn_flatten(), aril_nn_linear(0, 120), aril_nn_relu(), aril_nn_linear(0, 84),
        aril_nn_relu(), aril_nn_linear(0, opts->classes));
}

/* ---- as published ---- */

/* The paper's activation: 1.7159 tanh(2/3 a), which maps 1 to 1. */
static aril_tensor *squash(aril_tensor *a)
{
    return aril_mul_scalar(aril_tanh(aril_mul_scalar(a, 2.0 / 3.0)), 1.7159);
}

static aril_tensor *squash_forward(aril_module *self, aril_tensor *x)
{
    (void)self;
    return squash(x);
}

/* S2 and S4: the sum over 2 x 2 pixels, times a trained factor, plus a trained bias, per feature
 * map. */
typedef struct subsample {
    aril_tensor *weight, *bias;
} subsample;

static void subsample_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                              aril_tensor **out)
{
    (void)n_in, (void)n_out;
    const subsample *s = aril_module_data(self);
    aril_tensor *sum = aril_avg_pool2d(in[0], (aril_pool_opts){ .kernel = { 2 }, .divisor = 1 });
    out[0] = squash(aril_add(aril_mul(sum, s->weight), s->bias));
}

static aril_status subsample_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    (void)n_in;
    subsample *s = aril_module_data(self);
    aril_shape maps = ARIL_SHAPE(aril_size(in[0], 1), 1, 1);
    aril_tensor *w = aril_full(maps, 0.25, ARIL_F32, aril_device_of(in[0]));
    s->weight = aril_module_parameter(self, "weight", w);
    s->bias =
        aril_module_parameter(self, "bias", aril_zeros(maps, ARIL_F32, aril_device_of(in[0])));
    bool owned = aril_module_tensor(self, "weight") == s->weight &&
                 aril_module_tensor(self, "bias") == s->bias;
    return owned ? ARIL_OK : aril__last_status();
}

static const aril_module_class subsample_class = { .type = "Subsample",
                                                   .size = sizeof(subsample),
                                                   .forward = subsample_forward,
                                                   .build = subsample_build };

/* C3: which of the six maps each of the sixteen reads (table 1 of the paper). */
static const unsigned char connected[16] = { 0x07, 0x0e, 0x1c, 0x38, 0x31, 0x23, 0x0f, 0x1e,
                                             0x3c, 0x39, 0x33, 0x27, 0x1b, 0x36, 0x2d, 0x3f };

typedef struct partial_conv {
    aril_tensor *weight, *bias, *mask;
} partial_conv;

static void partial_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out)
{
    (void)n_in, (void)n_out;
    const partial_conv *c = aril_module_data(self);
    out[0] = aril_conv2d(in[0], aril_mul(c->weight, c->mask), c->bias, (aril_conv_opts){ 0 });
}

static aril_module *partial_new(void)
{
    static const aril_module_class type = { .type = "PartialConv2d",
                                            .size = sizeof(partial_conv),
                                            .forward = partial_forward };
    ARIL_SCOPE;
    aril_module *m = aril_module_make(&type);
    partial_conv *c = aril_module_data(m);
    if (!c) return NULL;
    float mask[16][6];
    float bound[16];
    for (int k = 0; k < 16; k++) {
        int inputs = 0;
        for (int i = 0; i < 6; i++) {
            mask[k][i] = (float)(connected[k] >> i & 1);
            inputs += connected[k] >> i & 1;
        }
        bound[k] = 1 / sqrtf(25 * (float)inputs);
    }
    aril_device device = aril__module_device(m);
    aril_tensor *on = aril_from(mask, ARIL_SHAPE(16, 6, 1, 1), ARIL_F32, device);
    aril_tensor *range = aril_from(bound, ARIL_SHAPE(16, 1, 1, 1), ARIL_F32, device);
    aril_tensor *w = aril_uniform_(aril_empty(ARIL_SHAPE(16, 6, 5, 5), ARIL_F32, device), -1, 1);
    c->weight = aril_module_parameter(m, "weight", aril_mul(aril_mul(w, range), on));
    c->bias = aril_module_parameter(m, "bias", aril_zeros(ARIL_SHAPE(16), ARIL_F32, device));
    c->mask = aril_module_scratch(m, "mask", on);
    if (aril_module_tensor(m, "weight") == c->weight && aril_module_tensor(m, "bias") == c->bias &&
        aril_module_tensor(m, "mask") == c->mask)
        return m;
    aril_module_release(m); /* what it does not own ends with the scope */
    return NULL;
}

static aril_module *lenet5_1998(const aril_zoo_entry *e, const aril_zoo_opts *opts)
{
    (void)e;
    const aril_shape *input = &opts->input;
    if (input->ndim != 3 || input->dim[0] != 1) {
        aril__fail(ARIL_ERR_SHAPE, "lenet5-1998 expects images of one channel, [1,H,W]");
        return NULL;
    }
    int64_t frame = input->dim[1] < 32 ? 2 : 0;
    return aril_nn_sequential(
        aril_nn_conv2d_with(1, 6, 5, (aril_nn_conv_opts){ .padding = { frame } }), /* C1 */
        aril_module_new("Squash", 0, squash_forward),
        aril_module_make(&subsample_class), /* S2 [6,14,14] */
        partial_new(),                      /* C3 [16,10,10] */
        aril_module_new("Squash", 0, squash_forward),
        aril_module_make(&subsample_class), /* S4 [16,5,5] */
        aril_nn_conv2d(16, 120, 5),         /* C5 [120,1,1] */
        aril_module_new("Squash", 0, squash_forward), aril_nn_flatten(),
        aril_nn_linear(0, 84), /* F6 */
        aril_module_new("Squash", 0, squash_forward), aril_nn_linear(84, opts->classes));
}

/* ---- rows ---- */

#define LENET(net, f, text)                                                               \
    {                                                                                     \
        .name = net, .family = "lenet",                                                   \
        .paper = "Gradient-Based Learning Applied to Document Recognition", .year = 1998, \
        ARIL__IMAGE(1, 28, 28), .classes = 10, .names = ARIL_CLASSES_DIGITS, .make = f,   \
        .about = text                                                                     \
    }

const aril_zoo_entry aril__zoo_lenet[] = {
    LENET("lenet5", lenet5, "LeNet-5 with ReLU and max pooling"),
    LENET("lenet5-1998", lenet5_1998,
          "LeNet-5 as published: tanh, trained average pooling, maps of partial connections"),
    { 0 },
};
