/* Each layer of Caffe that has a gradient: compared with finite differences, by bottoms and by the
 * layer's parameters; and compiled against eager. */
#include "aril/aril.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 16 };

/* A layer, and the shapes of its bottoms. Bottoms in `fixed` (a bit for each) are not
 * differentiated: labels, or marks of sequences, 0 and 1 in turn. */
typedef struct layer_case {
    const char *text;
    aril_shape shape[4];
    unsigned fixed;
    bool positive;     /* bottoms are above 0.5 */
    bool keeps_states; /* marks are 0, so that no run depends on the one before */
} layer_case;

#define SHAPE(...)                                                   \
    {                                                                \
        (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
        {                                                            \
            __VA_ARGS__                                              \
        }                                                            \
    }

static const layer_case cases[] = {
    { "type: 'Convolution' convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 "
      "group: 2 "
      "weight_filler { type: 'gaussian' } bias_filler { value: 0.5 } }",
      .shape = { SHAPE(2, 4, 5, 4) } },
    { "type: 'Deconvolution' convolution_param { num_output: 2 kernel_size: 3 stride: 2 pad: 1 "
      "weight_filler { type: 'gaussian' } }",
      .shape = { SHAPE(2, 2, 3, 2) } },
    { "type: 'Im2col' convolution_param { kernel_size: 2 stride: 2 pad: 1 }",
      .shape = { SHAPE(1, 2, 4, 3) } },
    { "type: 'Im2col' convolution_param { kernel_size: 2 pad: 1 }",
      .shape = { SHAPE(1, 2, 2, 3, 2) } },
    { "type: 'MVN' mvn_param { across_channels: true }", .shape = { SHAPE(2, 5) } },
    { "type: 'Pooling' pooling_param { kernel_size: 3 stride: 2 }",
      .shape = { SHAPE(2, 2, 6, 5) } },
    { "type: 'Pooling' pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }",
      .shape = { SHAPE(1, 2, 6, 5) } },
    { "type: 'Pooling' pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }",
      .shape = { SHAPE(1, 2, 5, 4) }, .positive = true },
    { "type: 'SPP' spp_param { pyramid_height: 2 }", .shape = { SHAPE(2, 2, 5, 4) } },
    { "type: 'InnerProduct' inner_product_param { num_output: 3 weight_filler { type: 'gaussian' } "
      "}",
      .shape = { SHAPE(2, 2, 3) } },
    { "type: 'InnerProduct' inner_product_param { num_output: 3 transpose: true weight_filler { "
      "type: "
      "'gaussian' } }",
      .shape = { SHAPE(2, 5) } },
    { "type: 'Embed' embed_param { num_output: 3 input_dim: 4 weight_filler { type: 'gaussian' } }",
      .shape = { SHAPE(2, 3) }, .fixed = 1 },
    { "type: 'Scale' scale_param { bias_term: true filler { type: 'gaussian' } }",
      .shape = { SHAPE(2, 3, 2) } },
    { "type: 'Scale' scale_param { axis: 0 }", .shape = { SHAPE(2, 3), SHAPE(2) } },
    { "type: 'Bias'", .shape = { SHAPE(2, 3, 2) } },
    { "type: 'LRN' lrn_param { local_size: 3 alpha: 0.5 }", .shape = { SHAPE(2, 5, 2, 2) } },
    { "type: 'LRN' lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }",
      .shape = { SHAPE(1, 2, 4, 3) } },
    { "type: 'BatchNorm'", .shape = { SHAPE(3, 2, 2, 2) } },
    { "type: 'BatchNorm' batch_norm_param { use_global_stats: false }",
      .shape = { SHAPE(3, 2, 2, 2) } },
    { "type: 'MVN'", .shape = { SHAPE(2, 2, 2, 3) } },
    { "type: 'ReLU'", .shape = { SHAPE(2, 3) } },
    { "type: 'ReLU' relu_param { negative_slope: 0.5 }", .shape = { SHAPE(2, 3) } },
    { "type: 'PReLU'", .shape = { SHAPE(2, 3, 2) } },
    { "type: 'ELU'", .shape = { SHAPE(2, 3) } },
    { "type: 'Sigmoid'", .shape = { SHAPE(2, 3) } },
    { "type: 'TanH'", .shape = { SHAPE(2, 3) } },
    { "type: 'AbsVal'", .shape = { SHAPE(2, 3) } },
    { "type: 'BNLL'", .shape = { SHAPE(2, 3) } },
    { "type: 'Power' power_param { power: 3 scale: 0.5 shift: 1 }", .shape = { SHAPE(2, 3) } },
    { "type: 'Exp' exp_param { base: 2 shift: 1 }", .shape = { SHAPE(2, 3) } },
    { "type: 'Log' log_param { shift: 1 }", .shape = { SHAPE(2, 3) }, .positive = true },
    { "type: 'Clip' clip_param { min: -0.5 max: 0.5 }", .shape = { SHAPE(2, 3) } },
    { "type: 'Swish' swish_param { beta: 2 }", .shape = { SHAPE(2, 3) } },
    { "type: 'Dropout'", .shape = { SHAPE(2, 3) } },
    { "type: 'Eltwise' eltwise_param { coeff: 1 coeff: -2 }",
      .shape = { SHAPE(2, 3), SHAPE(2, 3) } },
    { "type: 'Eltwise' eltwise_param { operation: PROD }",
      .shape = { SHAPE(2, 3), SHAPE(2, 3), SHAPE(2, 3) } },
    { "type: 'Eltwise' eltwise_param { operation: MAX }",
      .shape = { SHAPE(2, 3), SHAPE(2, 3), SHAPE(2, 3) } },
    { "type: 'Concat'", .shape = { SHAPE(2, 3), SHAPE(2, 2) } },
    { "type: 'Slice'", .shape = { SHAPE(2, 3) } },
    { "type: 'Split'", .shape = { SHAPE(2, 3) } },
    { "type: 'Flatten'", .shape = { SHAPE(2, 3, 2) } },
    { "type: 'Reshape' reshape_param { shape { dim: 0 dim: -1 } }", .shape = { SHAPE(2, 3, 2) } },
    { "type: 'Permute' permute_param { order: 1 order: 0 }", .shape = { SHAPE(2, 3, 2) } },
    { "type: 'Crop' crop_param { axis: 1 offset: 1 }",
      .shape = { SHAPE(2, 3, 3), SHAPE(2, 2, 2) } },
    { "type: 'Tile' tile_param { tiles: 2 }", .shape = { SHAPE(2, 3) } },
    { "type: 'Reduction' reduction_param { operation: SUMSQ axis: 1 }",
      .shape = { SHAPE(2, 3, 2) } },
    { "type: 'Reduction' reduction_param { operation: ASUM coeff: 2 }", .shape = { SHAPE(2, 3) } },
    { "type: 'BatchReindex'", .shape = { SHAPE(3, 2), SHAPE(4) }, .fixed = 2 },
    { "type: 'Filter'", .shape = { SHAPE(4, 2), SHAPE(4) }, .fixed = 2 },
    { "type: 'Softmax'", .shape = { SHAPE(2, 3, 2) } },
    { "type: 'SoftmaxWithLoss'", .shape = { SHAPE(3, 4), SHAPE(3) }, .fixed = 2 },
    { "type: 'SoftmaxWithLoss' loss_param { ignore_label: 1 normalization: FULL }",
      .shape = { SHAPE(2, 3, 2), SHAPE(2, 2) }, .fixed = 2 },
    { "type: 'EuclideanLoss'", .shape = { SHAPE(2, 3), SHAPE(2, 3) } },
    { "type: 'HingeLoss' hinge_loss_param { norm: L2 }", .shape = { SHAPE(3, 4), SHAPE(3) },
      .fixed = 2 },
    { "type: 'HingeLoss'", .shape = { SHAPE(3, 4), SHAPE(3) }, .fixed = 2 },
    { "type: 'ContrastiveLoss' contrastive_loss_param { margin: 5 }",
      .shape = { SHAPE(4, 3), SHAPE(4, 3), SHAPE(4) }, .fixed = 4 },
    { "type: 'ContrastiveLoss' contrastive_loss_param { margin: 5 legacy_version: true }",
      .shape = { SHAPE(4, 3), SHAPE(4, 3), SHAPE(4) }, .fixed = 4 },
    { "type: 'InfogainLoss'", .shape = { SHAPE(3, 2), SHAPE(3), SHAPE(2, 2) }, .fixed = 6 },
    { "type: 'MultinomialLogisticLoss'", .shape = { SHAPE(3, 4), SHAPE(3) }, .fixed = 2,
      .positive = true },
    { "type: 'SigmoidCrossEntropyLoss'", .shape = { SHAPE(2, 3), SHAPE(2, 3) }, .fixed = 2 },
    { "type: 'LSTM' top: 'h' top: 'c' recurrent_param { num_output: 2 expose_hidden: true "
      "weight_filler { type: 'gaussian' } }",
      .shape = { SHAPE(3, 2, 3), SHAPE(3, 2), SHAPE(1, 2, 2), SHAPE(1, 2, 2) }, .fixed = 2 },
    { "type: 'LSTM' recurrent_param { num_output: 2 weight_filler { type: 'gaussian' } }",
      .shape = { SHAPE(1, 2, 3), SHAPE(1, 2), SHAPE(2, 2) }, .fixed = 2, .keeps_states = true },
    { "type: 'RNN' top: 'h' recurrent_param { num_output: 2 expose_hidden: true weight_filler { "
      "type: "
      "'gaussian' } }",
      .shape = { SHAPE(3, 2, 3), SHAPE(3, 2), SHAPE(2, 2), SHAPE(1, 2, 2) }, .fixed = 2 },
    { "type: 'Parameter' parameter_param { shape { dim: 2 dim: 3 } }", .shape = { { 0 } } },
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct subject {
    const layer_case *c;
    aril_module *net;
    int bottoms;
    aril_tensor *fixed[4];
} subject;

static aril_module *make(const layer_case *c, int bottoms)
{
    char text[2048];
    size_t n = 0;
    for (int i = 0; i < bottoms; i++) {
        n +=
            (size_t)snprintf(text + n, sizeof text - n,
                             "layer { name: 'in%d' type: 'Input' top: 'b%d' input_param { shape { ",
                             i, i);
        for (int d = 0; d < c->shape[i].ndim; d++)
            n += (size_t)snprintf(text + n, sizeof text - n, "dim: %d ", (int)c->shape[i].dim[d]);
        n += (size_t)snprintf(text + n, sizeof text - n, "} } }\n");
    }
    n += (size_t)snprintf(text + n, sizeof text - n, "layer { name: 'l' top: 'y' ");
    for (int i = 0; i < bottoms; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "bottom: 'b%d' ", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s }", c->text);
    aril_module *m = aril_caffe_net_parse(text, n, c->text, (aril_caffe_opts){ 0 });
    if (m) aril_module_cast(m, ARIL_F64);
    return m;
}

static aril_tensor *run(subject *s, aril_tensor *const *x)
{
    aril_tensor *in[4];
    for (int i = 0, k = 0; i < s->bottoms; i++) in[i] = s->fixed[i] ? s->fixed[i] : x[k++];
    return aril_forward_n(s->net, (aril_list){ s->bottoms, in });
}

/* The inputs after the bottoms take the places of the parameters. */
static void differentiated(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = run(ctx, in);
}

static int prepare(subject *s, aril_tensor **x)
{
    int n = 0;
    for (int i = 0; i < s->bottoms; i++) {
        aril_shape shape = s->c->shape[i];
        if (s->c->fixed & 1u << i) {
            aril_tensor *turns = aril_arange(0, 64, 1, ARIL_I64, aril_cpu());
            int64_t count = 1;
            for (int d = 0; d < shape.ndim; d++) count *= shape.dim[d];
            turns = aril_remainder_scalar(aril_narrow(turns, 0, 1, count), 2);
            if (s->c->keeps_states) turns = aril_zeros_like(turns);
            s->fixed[i] = aril_reshape(aril_cast(turns, ARIL_F64), shape);
        } else {
            aril_tensor *t = s->c->positive
                                 ? aril_add_scalar(aril_rand(shape, ARIL_F64, aril_cpu()), 0.5)
                                 : aril_randn(shape, ARIL_F64, aril_cpu());
            aril_set_requires_grad(t, true);
            x[n++] = t;
        }
    }
    const aril_named *p = aril_parameters(s->net);
    for (int i = 0; p && i < p->n && n < MOST; i++) x[n++] = p->at[i];
    return n;
}

static void check(const layer_case *c)
{
    ARIL_SCOPE;
    subject s = { .c = c };
    aril_tensor *x[MOST];
    while (s.bottoms < 4 && c->shape[s.bottoms].ndim) s.bottoms++;
    s.net = make(c, s.bottoms);
    CHECK_MSG(s.net, "%s: %s", c->text, aril_error());
    int n = prepare(&s, x);
    CHECK_MSG(n > 0, "%s: nothing to differentiate", c->text);
    aril_status status = aril_gradcheck(differentiated, &s, (aril_list){ n, x },
                                        (aril_gradcheck_opts){ .atol = 2e-5, .rtol = 1e-3 });
    CHECK_MSG(status == ARIL_OK, "%s: %s", c->text, aril_error());
    if (s.bottoms && !strstr(c->text, "Filter")) {
        ARIL_NO_GRAD;
        aril_tensor *eager = run(&s, x);
        CHECK_INT(aril_module_jit(s.net), ARIL_OK);
        aril_tensor *compiled = run(&s, x);
        CHECK_MSG(aril_ok() && aril_allclose(eager, compiled,
                                             (aril_close_opts){ .rtol = 1e-9, .atol = 1e-12 }),
                  "%s: compiled differs from eager %s", c->text, aril_ok() ? "" : aril_error());
        const char *why = aril_module_eager_reason(s.net);
        CHECK_MSG(!why, "%s: %s", c->text, why);
    }
    aril_module_release(s.net);
}

TEST(gradients_agree_with_finite_differences)
{
    aril_seed(2);
    for (int i = 0; i < CASES; i++) {
        aril_clear_error();
        check(&cases[i]);
        aril_clear_error();
    }
}
