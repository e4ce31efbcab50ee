/* Recurrent networks, attention and transformers as modules: what golden values do not cover. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

#define CPU test_device()

static aril_tensor *randn(aril_shape shape)
{
    return aril_randn(shape, ARIL_F32, CPU);
}

#define NEAR(got, want, tol)                                  \
    do {                                                      \
        char *why = test_difference((got), (want), 0, (tol)); \
        CHECK_MSG(!why, "%s: %s", #got, why);                 \
    } while (0)

#define REFUSED(call, code, text)                                                     \
    do {                                                                              \
        CHECK((call) == NULL);                                                        \
        CHECK_INT(aril_error_code(), code);                                           \
        CHECK_MSG(strstr(aril_error(), (text)), "%s: no '%s'", aril_error(), (text)); \
        aril_clear_error();                                                           \
    } while (0)

#define FAILS(t, code, text)                                                          \
    do {                                                                              \
        CHECK_INT(aril_tensor_status(t), code);                                       \
        CHECK_MSG(strstr(aril_error(), (text)), "%s: no '%s'", aril_error(), (text)); \
        aril_clear_error();                                                           \
    } while (0)

/* ---- recurrent networks ---- */

TEST(initialization_matches_pytorch)
{
    ARIL_SCOPE;
    aril_seed(0);
    aril_module *m = aril_nn_lstm_with(10, 25, (aril_nn_rnn_opts){ .layers = 2 });
    const aril_named *p = aril_parameters(m);
    CHECK_INT(p->n, 8);
    CHECK_INT(aril_parameter_count(m), 4 * 25 * (10 + 25 + 2) + 4 * 25 * (25 + 25 + 2));
    for (int i = 0; i < p->n; i++) {
        double max = aril_item(aril_amax(aril_abs(p->at[i]), ARIL_ALL));
        CHECK_MSG(max <= 0.2 && max > 0.19, "%s: %g", p->name[i], max);
    }
    CHECK_NEAR(aril_item(aril_std(p->at[1], ARIL_ALL, 1)), 0.2 / sqrt(3), 0.005);
    aril_tensor *before = aril_copy(p->at[0]);
    aril_module_reset(m);
    CHECK(test_difference(p->at[0], before, 0, 0));
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(sizes_are_inferred)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_gru_with(0, 4, (aril_nn_rnn_opts){ .batch_first = true });
    CHECK(!aril_module_built(m));
    CHECK(aril_module_build(m, ARIL_SHAPE(5, 3)) == ARIL_OK);
    CHECK_INT(aril_size(aril_module_tensor(m, "weight_ih_l0"), 1), 3);
    aril_tensor *y = aril_forward(m, randn(ARIL_SHAPE(2, 5, 3)));
    CHECK_INT(aril_size(y, 2), 4);
    aril_module_release(m);
    m = aril_nn_transformer_encoder(0, 2, 2, (aril_nn_transformer_opts){ .feedforward = 8 });
    CHECK(!aril_module_built(m));
    CHECK_INT(aril_size(aril_forward(m, randn(ARIL_SHAPE(3, 2, 6))), 2), 6);
    CHECK(aril_module_built(m));
    CHECK_INT(aril_size(aril_module_tensor(m, "layers.1.linear2.weight"), 0), 6);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* A module cast and put into evaluation mode before its sizes were known stays so afterwards. */
TEST(lazy_parameters_follow_mode_and_dtype)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_transformer_encoder_layer(0, 2);
    aril_module_eval(m);
    CHECK(aril_module_cast(m, ARIL_F64) == ARIL_OK);
    aril_tensor *x = aril_randn(ARIL_SHAPE(3, 2, 4), ARIL_F64, CPU), *y = aril_forward(m, x);
    CHECK_INT(aril_dtype_of(y), ARIL_F64);
    CHECK_INT(aril_dtype_of(aril_module_tensor(m, "self_attn.out_proj.weight")), ARIL_F64);
    CHECK(!aril_module_training(aril_module_at(m, "dropout1")));
    NEAR(aril_forward(m, x), y, 0);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(dropout_between_layers_only_in_training)
{
    ARIL_SCOPE;
    aril_seed(4);
    aril_nn_rnn_opts opts = { .layers = 2, .dropout = 0.5 };
    aril_module *m = aril_nn_lstm_with(3, 8, opts);
    aril_tensor *x = randn(ARIL_SHAPE(5, 2, 3));
    aril_tensor *a = aril_forward(m, x), *b = aril_forward(m, x);
    CHECK_MSG(test_difference(a, b, 0, 1e-6), "two runs in training are the same");
    aril_module_eval(m);
    NEAR(aril_forward(m, x), aril_forward(m, x), 0);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* Applying a cell step by step equals the network. */
TEST(cells_equal_steps_of_networks)
{
    ARIL_SCOPE;
    aril_seed(5);
    aril_module *net = aril_nn_lstm(3, 4), *cell = aril_nn_lstm_cell(3, 4);
    static const char *const names[] = { "weight_ih", "weight_hh", "bias_ih", "bias_hh" };
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_l0", names[i]);
        CHECK(aril_module_share(cell, names[i], aril_module_tensor(net, name)) == ARIL_OK);
    }
    aril_tensor *x = randn(ARIL_SHAPE(6, 2, 3)), *y = aril_forward(net, x);
    aril_tensor *state[2] = { NULL, NULL };
    for (int t = 0; t < 6; t++) {
        aril_tensor *in[] = { aril_select(x, 0, t), state[0], state[1] };
        CHECK(aril_forward_all(cell, (aril_list){ t ? 3 : 1, in }, 2, state) == ARIL_OK);
        NEAR(state[0], aril_select(y, 0, t), 1e-6);
    }
    aril_module_release(net);
    aril_module_release(cell);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(networks_report_invalid_inputs)
{
    ARIL_SCOPE;
    REFUSED(aril_nn_lstm(3, 0), ARIL_ERR_ARG, "LSTM: 3 inputs and 0 values of state");
    REFUSED(aril_nn_gru_cell(-1, 4), ARIL_ERR_ARG, "GRUCell: -1 inputs");
    REFUSED(aril_nn_rnn_with(3, 4, (aril_nn_rnn_opts){ .layers = -1 }), ARIL_ERR_ARG, "-1 layers");
    REFUSED(aril_nn_rnn_with(3, 4, (aril_nn_rnn_opts){ .dropout = 1.5 }), ARIL_ERR_ARG,
            "dropout 1.5, expected 0 to 1");
    REFUSED(aril_nn_lstm_with(3, 4, (aril_nn_rnn_opts){ .relu = true }), ARIL_ERR_ARG,
            "relu is only for RNN");
    aril_module *m = aril_nn_lstm(3, 4);
    FAILS(aril_forward(m, randn(ARIL_SHAPE(5, 2, 7))), ARIL_ERR_SHAPE, "LSTM: ");
    FAILS(aril_forward(m, randn(ARIL_SHAPE(5))), ARIL_ERR_SHAPE, "[T,N,I] or [T,I]");
    aril_tensor *x = randn(ARIL_SHAPE(5, 2, 3));
    FAILS(aril_forward_n(m, ARIL_LIST(x, randn(ARIL_SHAPE(2, 2, 4)))), ARIL_ERR_SHAPE,
          "expected 1 initial states");
    FAILS(aril_forward_n(m, ARIL_LIST(x, x, x, x, x)), ARIL_ERR_ARG, "at most 4 inputs");
    aril_module_release(m);
}

/* ---- attention ---- */

TEST(attention_initialization_matches_pytorch)
{
    ARIL_SCOPE;
    aril_seed(6);
    aril_module *m = aril_nn_multihead_attention(32, 4);
    double bound = sqrt(6.0 / (4 * 32));
    for (int pass = 0; pass < 2; pass++) {
        aril_tensor *w = aril_module_tensor(m, "in_proj_weight");
        double max = aril_item(aril_amax(aril_abs(w), ARIL_ALL));
        CHECK(max <= bound && max > 0.98 * bound);
        CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_module_tensor(m, "in_proj_bias")), ARIL_ALL)),
                   0, 0);
        CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_module_tensor(m, "out_proj.bias")), ARIL_ALL)),
                   0, 0);
        max = aril_item(aril_amax(aril_abs(aril_module_tensor(m, "out_proj.weight")), ARIL_ALL));
        CHECK(max <= 1 / sqrt(32) && max > 0.9 / sqrt(32));
        aril_module_reset(m);
    }
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* A query that sees no key has weights of 0, and the result is just the bias; with and without
 * returning weights. */
TEST(query_with_all_keys_masked)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_multihead_attention(4, 2);
    aril_tensor *x = randn(ARIL_SHAPE(3, 1, 4)), *out[2];
    aril_tensor *keys = aril_ones(ARIL_SHAPE(1, 3), ARIL_BOOL, CPU);
    aril_set_requires_grad(x, true);
    CHECK(aril_forward_all(m, ARIL_LIST(x, NULL, NULL, keys), 2, out) == ARIL_OK);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(out[1]), ARIL_ALL)), 0, 0);
    NEAR(out[0], aril_forward_n(m, ARIL_LIST(x, NULL, NULL, keys)), 1e-6);
    aril_backward(aril_sum(out[0], ARIL_ALL));
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_grad(x)), ARIL_ALL)), 0, 0);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(attention_dropout_only_in_training)
{
    ARIL_SCOPE;
    aril_seed(7);
    aril_nn_attention_opts opts = { .dropout = 0.5 };
    aril_module *m = aril_nn_multihead_attention_with(4, 2, opts);
    aril_tensor *x = randn(ARIL_SHAPE(6, 2, 4)), *out[2];
    aril_tensor *a = aril_forward(m, x);
    CHECK_MSG(test_difference(a, aril_forward(m, x), 0, 1e-6), "two runs in training are the same");
    aril_module_eval(m);
    CHECK(aril_forward_all(m, ARIL_LIST(x), 2, out) == ARIL_OK);
    NEAR(aril_forward(m, x), out[0], 1e-6);
    NEAR(aril_sum(out[1], ARIL_AXES(2)), aril_ones(ARIL_SHAPE(2, 6), ARIL_F32, CPU), 1e-6);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(attention_reports_invalid_inputs)
{
    ARIL_SCOPE;
    REFUSED(aril_nn_multihead_attention(6, 4), ARIL_ERR_ARG, "4 heads do not divide 6 values");
    REFUSED(aril_nn_multihead_attention(6, 0), ARIL_ERR_ARG, "0 heads");
    aril_module *m = aril_nn_multihead_attention(6, 2);
    aril_tensor *x = randn(ARIL_SHAPE(4, 2, 6)), *k = randn(ARIL_SHAPE(5, 2, 6));
    FAILS(aril_forward(m, randn(ARIL_SHAPE(4, 2, 5))), ARIL_ERR_SHAPE, "expected queries [L,N,6]");
    FAILS(aril_forward_n(m, ARIL_LIST(x, randn(ARIL_SHAPE(5, 3, 6)))), ARIL_ERR_SHAPE,
          "batch sizes");
    FAILS(aril_forward_n(m, ARIL_LIST(x, k, x)), ARIL_ERR_SHAPE, "differ in number");
    FAILS(aril_forward_n(m, ARIL_LIST(x, NULL, NULL, aril_ones(ARIL_SHAPE(4, 2), ARIL_BOOL, CPU))),
          ARIL_ERR_SHAPE, "expected a key mask [N,4]");
    FAILS(aril_forward_n(m, ARIL_LIST(x, NULL, NULL, NULL,
                                      aril_ones(ARIL_SHAPE(4, 5), ARIL_BOOL, CPU))),
          ARIL_ERR_SHAPE, "expected an attention mask [4,4] or [4,4,4]");
    aril_module_release(m);
}

/* ---- transformers ---- */

TEST(transformers_have_pytorch_child_names)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_transformer_decoder_layer(8, 2);
    static const char *const names[] = { "self_attn", "multihead_attn", "linear1", "dropout",
                                         "linear2",   "norm1",          "norm2",   "norm3",
                                         "dropout1",  "dropout2",       "dropout3" };
    CHECK_INT(aril_module_children(m), 11);
    for (int i = 0; i < 11; i++) CHECK_STR(aril_module_child_name(m, i), names[i]);
    CHECK_INT(aril_size(aril_module_tensor(m, "linear1.weight"), 0), 2048);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(transformer_dropout)
{
    ARIL_SCOPE;
    aril_seed(8);
    aril_module *m = aril_nn_transformer_encoder_layer(8, 2); /* default dropout 0.1 */
    aril_tensor *x = randn(ARIL_SHAPE(6, 2, 8)), *a = aril_forward(m, x);
    CHECK_MSG(test_difference(a, aril_forward(m, x), 0, 1e-6), "two runs in training are the same");
    aril_module_eval(m);
    NEAR(aril_forward(m, x), aril_forward(m, x), 0);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* Masked positions cannot affect the others. */
TEST(causal_encoder_ignores_later_positions)
{
    ARIL_SCOPE;
    aril_nn_transformer_opts opts = { .causal = true, .batch_first = true, .feedforward = 16 };
    aril_module *m = aril_nn_transformer_encoder(8, 2, 3, opts);
    aril_module_eval(m);
    ARIL_NO_GRAD;
    aril_tensor *x = randn(ARIL_SHAPE(1, 6, 8)), *a = aril_forward(m, x), *changed = aril_copy(x);
    aril_fill_(aril_slice(changed, 1, 4, 6, 1), 3);
    aril_tensor *b = aril_forward(m, changed);
    NEAR(aril_slice(a, 1, 0, 4, 1), aril_slice(b, 1, 0, 4, 1), 1e-6);
    CHECK(test_difference(a, b, 0, 1e-3));
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(transformers_report_invalid_inputs)
{
    ARIL_SCOPE;
    REFUSED(aril_nn_transformer_encoder_layer(6, 4), ARIL_ERR_ARG,
            "4 heads do not divide 6 values");
    REFUSED(aril_nn_transformer_encoder(6, 2, 0, (aril_nn_transformer_opts){ 0 }), ARIL_ERR_ARG,
            "0 layers");
    REFUSED(aril_nn_transformer_decoder_layer_with(6, 2,
                                                   (aril_nn_transformer_opts){ .dropout = 2 }),
            ARIL_ERR_ARG, "dropout 2, expected 0 to 1");
    aril_nn_transformer_opts defaults = { 0 };
    REFUSED(aril_nn_transformer(0, 2, 1, 1, defaults), ARIL_ERR_ARG, "0 values");
    REFUSED(aril_nn_transformer(4, 2, 1, 0, defaults), ARIL_ERR_ARG,
            "TransformerDecoder: 0 layers");
    aril_module *m = aril_nn_transformer(4, 2, 1, 1, defaults);
    FAILS(aril_forward(m, randn(ARIL_SHAPE(3, 2, 4))), ARIL_ERR_ARG, "the target, is missing");
    aril_module_release(m);
    m = aril_nn_transformer_decoder_layer(4, 2);
    FAILS(aril_forward(m, randn(ARIL_SHAPE(3, 2, 4))), ARIL_ERR_ARG, "the encoder's output");
    aril_module_release(m);
    m = aril_nn_transformer_encoder(0, 4, 1, (aril_nn_transformer_opts){ 0 });
    FAILS(aril_forward(m, randn(ARIL_SHAPE(3, 2, 6))), ARIL_ERR_ARG,
          "4 heads do not divide 6 values");
    aril_module_release(m);
}

/* ---- no leaks ---- */

/* Each allocation of a first forward fails in turn: an error, and no leak (the sanitizer
 * checks). */
TEST(out_of_memory)
{
    aril_nn_transformer_opts small = { .feedforward = 4 };
    for (int k = 0; k < 5; k++) {
        for (int64_t n = 1;; n++) {
            ARIL_SCOPE;
            aril_tensor *x = aril_zeros(ARIL_SHAPE(3, 2, 4), ARIL_F32, CPU);
            aril_fail_allocation(n);
            aril_module *m = k == 0   ? aril_nn_lstm_with(0, 4, (aril_nn_rnn_opts){ .layers = 2 })
                             : k == 1 ? aril_nn_multihead_attention(0, 2)
                             : k == 2 ? aril_nn_transformer_decoder(0, 2, 1, small)
                             : k == 3 ? aril_nn_transformer(4, 2, 1, 1, small)
                                      : aril_nn_loss("mse");
            aril_tensor *y = m ? aril_forward_n(m, ARIL_LIST(x, k >= 2 ? x : NULL)) : NULL;
            aril_status s = y ? aril_tensor_status(y) : ARIL_ERR_MEMORY;
            bool failed = aril_allocation_failed();
            aril_fail_allocation(0);
            aril_module_release(m);
            CHECK_MSG(failed || s == ARIL_OK, "%s", aril_error());
            if (!failed) break;
            aril_clear_error();
        }
    }
    CHECK(aril_ok());
}
