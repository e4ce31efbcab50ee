/* Networks traced once with several unknown sizes (batch and length; batch, height and width):
 * forward and backward replay at other sizes, and match eager mode. The recorder also checks that
 * sizes that were recorded as the same unknown are equal in every run. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/recorder.h"
#include "support/test.h"

#include <string.h>

enum { E = 8, MAX_IN = 6, MAX_VALUES = 64, RUNS = 4 };

/* A size of an input: known, or one of the unknowns. */
enum { N = -2, L = -3, S = -4 }; /* batch, length, length of the memory */

typedef struct case_ {
    const char *name;
    aril_module *module;
    int n_out; /* results that enter the loss */
    aril_shape in[MAX_IN];
    int64_t extra; /* added to lengths in runs */
} case_;

static const int64_t sizes[RUNS][3] = { { 2, 5, 3 }, { 3, 7, 4 }, { 1, 4, 6 }, { 4, 1, 2 } };

static aril_shape sized(aril_shape s, const int64_t *of)
{
    for (int d = 0; d < s.ndim; d++)
        if (s.dim[d] < 0) s.dim[d] = of[N - s.dim[d]];
    return s;
}

/* The mean square of the results, and gradients of all parameters: values[0] is the loss. */
static int run(const case_ *c, aril_list in, aril_tensor **values)
{
    aril_tensor *out[2];
    const aril_named *p = aril_parameters(c->module);
    values[0] = aril_scalar(0.0);
    if (aril_forward_all(c->module, in, c->n_out, out) < 0) return -1;
    for (int i = 0; i < c->n_out; i++)
        values[0] = aril_add(values[0], aril_mean(aril_square(out[i]), ARIL_ALL));
    if (aril_backward(values[0]) < 0) return -1;
    for (int i = 0; i < p->n; i++) values[1 + i] = aril_grad(p->at[i]);
    return 1 + p->n;
}

static int count_inputs(const case_ *c)
{
    int n = 0;
    while (n < MAX_IN && c->in[n].ndim) n++;
    return n;
}

static void replay(const case_ *c, recorder *r, const int64_t *of, int n, aril_tensor **symbols)
{
    ARIL_SCOPE;
    aril_tensor *in[MAX_IN], *want[MAX_VALUES], *got[MAX_VALUES];
    int n_in = count_inputs(c);
    for (int i = 0; i < n_in; i++) {
        const int64_t real[3] = { of[0], of[1] + c->extra, of[2] + c->extra };
        in[i] = aril_randn(sized(c->in[i], real), ARIL_F32, aril_cpu());
    }
    CHECK_MSG(recorder_values(r, (aril_list){ n_in, in }, (aril_list){ n, symbols }, got) ==
                  ARIL_OK,
              "%s: %s", c->name, aril_error());
    CHECK_MSG(run(c, (aril_list){ n_in, in }, want) == n, "%s: %s", c->name, aril_error());
    for (int i = 0; i < n; i++) {
        char *why = test_difference_in_value(got[i], want[i], 1e-4, 1e-5);
        CHECK_MSG(!why, "%s, %s, batch %d, length %d: %s", c->name,
                  i ? aril_parameters(c->module)->name[i - 1] : "loss", (int)of[0], (int)of[1],
                  why);
    }
    aril_module_zero_grad(c->module);
}

/* Traces a network and replays it; releases it. */
static void check(case_ c)
{
    ARIL_SCOPE;
    recorder *r = recorder_new();
    int64_t of[3] = { recorder_size(r, "N"), recorder_size(r, "L"), recorder_size(r, "S") };
    aril_tensor *in[MAX_IN], *symbols[MAX_VALUES];
    int n_in = count_inputs(&c);
    for (int i = 0; i < n_in; i++) in[i] = recorder_input(r, sized(c.in[i], of), ARIL_F32);
    recorder_begin(r);
    int n = run(&c, (aril_list){ n_in, in }, symbols);
    recorder_end(r);
    CHECK_MSG(n > 0 && aril_ok(), "%s: %s", c.name, aril_error());
    for (int i = 0; i < n; i++) aril_keep(symbols[i]);
    aril_module_zero_grad(c.module);
    for (int k = 0; k < RUNS && !test_failed(); k++) replay(&c, r, sizes[k], n, symbols);
    for (int i = 0; i < n; i++) aril_release(symbols[i]);
    aril_module_release(c.module);
    recorder_free(r);
}

static const aril_nn_transformer_opts plain = { .feedforward = 16, .dropout = ARIL_ZERO };

TEST(attention_replays_with_other_batches_and_lengths)
{
    const aril_nn_attention_opts first = { .batch_first = true };
    aril_seed(1);
    check((case_){ .name = "self-attention",
                   .module = aril_nn_multihead_attention(E, 2),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(L, N, E) } });
    check((case_){ .name = "batch first, with weights",
                   .module = aril_nn_multihead_attention_with(E, 2, first),
                   .n_out = 2,
                   .in = { ARIL_SHAPE(N, L, E) } });
    check((case_){ .name = "cross-attention",
                   .module = aril_nn_multihead_attention_with(E, 2, first),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(N, L, E), ARIL_SHAPE(N, S, E) } });
    check((case_){ .name = "causal, with weights",
                   .module = aril_nn_multihead_attention_with(
                       E, 2, (aril_nn_attention_opts){ .batch_first = true, .causal = true }),
                   .n_out = 2,
                   .in = { ARIL_SHAPE(N, L, E) } });
    check((case_){ .name = "one sequence",
                   .module = aril_nn_multihead_attention(E, 2),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(L, E) } });
}

TEST(transformers_replay_with_other_batches_and_lengths)
{
    aril_nn_transformer_opts first = plain, causal = plain, norm = plain;
    first.batch_first = true;
    causal.causal = true;
    norm.norm_first = norm.final_norm = true;
    aril_seed(2);
    check((case_){ .name = "encoder layer",
                   .module = aril_nn_transformer_encoder_layer_with(E, 2, first),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(N, L, E) } });
    check((case_){ .name = "decoder layer",
                   .module = aril_nn_transformer_decoder_layer_with(E, 2, causal),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(L, N, E), ARIL_SHAPE(S, N, E) } });
    check((case_){ .name = "encoder",
                   .module = aril_nn_transformer_encoder(E, 2, 2, norm),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(L, N, E) } });
    check((case_){ .name = "transformer",
                   .module = aril_nn_transformer(E, 2, 1, 1, causal),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(S, N, E), ARIL_SHAPE(L, N, E) } });
}

TEST(recurrent_networks_replay_with_other_batches_and_lengths)
{
    const aril_nn_rnn_opts deep = { .layers = 2, .bidirectional = true, .batch_first = true };
    aril_seed(3);
    check((case_){
        .name = "rnn", .module = aril_nn_rnn(E, 5), .n_out = 1, .in = { ARIL_SHAPE(L, N, E) } });
    check((case_){
        .name = "gru", .module = aril_nn_gru(E, 5), .n_out = 2, .in = { ARIL_SHAPE(L, N, E) } });
    check((case_){
        .name = "lstm", .module = aril_nn_lstm(E, 5), .n_out = 2, .in = { ARIL_SHAPE(L, N, E) } });
    check((case_){ .name = "lstm, deep",
                   .module = aril_nn_lstm_with(E, 3, deep),
                   .n_out = 1,
                   .in = { ARIL_SHAPE(N, L, E) } });
}

/* ---- convolutions ---- */

static aril_module *block(int in, int out, int stride)
{
    aril_nn_conv_opts three = { .stride = { stride }, .padding = { 1 }, .no_bias = true };
    return aril_nn_sequential(aril_nn_conv2d_with(in, out, 3, three), aril_nn_batch_norm2d(out),
                              aril_nn_relu());
}

TEST(convolution_networks_replay_with_other_batches_and_sizes)
{
    aril_seed(4);
    aril_nn_conv_opts half = { .stride = { 2 }, .no_bias = true };
    aril_module *down = aril_nn_residual_with(block(4, 6, 2), aril_nn_conv2d_with(4, 6, 1, half));
    aril_module *net =
        aril_nn_sequential(block(2, 4, 1), aril_nn_max_pool2d(2), aril_nn_residual(block(4, 4, 1)),
                           down, aril_nn_adaptive_avg_pool2d(2), aril_nn_flatten(),
                           aril_nn_linear(24, 3));
    check((case_){ .name = "convolution",
                   .module = net,
                   .n_out = 1,
                   .in = { ARIL_SHAPE(N, 2, L, S) },
                   .extra = 8 });
}
