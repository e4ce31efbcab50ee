/* The summary table of a module, its numbers, and its side effects. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#define CPU test_device()

/* The table as text; the caller frees it. */
static char *table(aril_module *m, aril_shape x, aril_summary_opts opts)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    aril_status s = aril_summary_with(m, x, to, opts);
    fclose(to);
    if (s == ARIL_OK) return text;
    free(text);
    return NULL;
}

#define SHOWS(text, part) CHECK_MSG(strstr((text), (part)), "no '%s' in\n%s", (part), (text))
#define LACKS(text, part) CHECK_MSG(!strstr((text), (part)), "'%s' in\n%s", (part), (text))

static aril_module *small_net(void)
{
    return aril_nn_sequential(aril_nn_conv2d(0, 8, 3), aril_nn_relu(), aril_nn_max_pool2d(2),
                              aril_nn_flatten(), aril_nn_linear(0, 10));
}

static aril_tensor *twice(aril_module *self, aril_tensor *x)
{
    aril_module *a = aril_module_child(self, 0), *b = aril_module_child(self, 1);
    return aril_forward(b, aril_relu(aril_forward(a, x)));
}

static aril_module *nested(void)
{
    aril_module *block = aril_nn_sequential(aril_nn_linear(4, 5), aril_nn_tanh());
    return aril_nn_sequential(block, aril_nn_linear(5, 2));
}

TEST(complete_table)
{
    aril_module *m = small_net();
    char *text = table(m, ARIL_SHAPE(1, 10, 10), (aril_summary_opts){ .ascii = true });
    CHECK(text);
    CHECK_STR(text, "Model: \"Sequential\"\n"
                    "+===============+=================+=========+========+\n"
                    "| Layer (type)  | Output Shape    | Param # |  FLOPs |\n"
                    "+===============+=================+=========+========+\n"
                    "| 0 (Conv2d)    | (None, 8, 8, 8) |      80 | 9.22 K |\n"
                    "| 1 (ReLU)      | (None, 8, 8, 8) |       0 |    512 |\n"
                    "| 2 (MaxPool2d) | (None, 8, 4, 4) |       0 |    512 |\n"
                    "| 3 (Flatten)   | (None, 128)     |       0 |      0 |\n"
                    "| 4 (Linear)    | (None, 10)      |   1,290 | 2.56 K |\n"
                    "+---------------+-----------------+---------+--------+\n"
                    " Total params: 1,370 (5.35 KB)\n"
                    " Trainable params: 1,370 (5.35 KB)\n"
                    " Non-trainable params: 0 (0 B)\n"
                    " FLOPs of a forward pass, batch of 1: 12.8 K\n"
                    " Memory to train a batch of 32: 264 KB (activations 113 KB)\n");
    free(text);
    aril_module_release(m);
}

TEST(box_drawing_follows_the_locale)
{
    aril_module *m = small_net();
    setenv("LC_ALL", "en_GB.UTF-8", 1);
    char *text = table(m, ARIL_SHAPE(1, 10, 10), (aril_summary_opts){ 0 });
    SHOWS(text, "┏━━");
    SHOWS(text, "│ 0 (Conv2d) ");
    SHOWS(text, "└──");
    free(text);
    setenv("LC_ALL", "C", 1);
    text = table(m, ARIL_SHAPE(1, 10, 10), (aril_summary_opts){ 0 });
    LACKS(text, "━");
    SHOWS(text, "+==");
    free(text);
    unsetenv("LC_ALL");
    aril_module_release(m);
}

static aril_tensor *itself(aril_module *self, aril_tensor *x)
{
    (void)self;
    return x;
}

static void pass_on(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                    aril_tensor **out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = in[0];
}

/* What dropout creates in training counts, by what a class says and not by what it is called. */
TEST(outputs_that_exist_only_in_training)
{
    ARIL_SCOPE;
    static const aril_module_class noise = { .type = "Noise",
                                             .forward = pass_on,
                                             .only_in_training = true };
    aril_tensor *x = aril_zeros(ARIL_SHAPE(1, 8), ARIL_F32, test_device());
    aril_module *of[] = { aril_nn_dropout(0.5), aril_nn_alpha_dropout(0.5),
                          aril_module_make(&noise), aril_module_new("NoDropout", 0, itself) };
    static const double bytes[] = { 32, 32, 32, 0 };
    for (int i = 0; i < 4; i++) {
        aril_cost cost;
        CHECK_INT(aril_module_cost(of[i], ARIL_LIST(x), &cost), ARIL_OK);
        CHECK_NEAR(cost.activation_bytes, bytes[i], 0);
        aril_module_release(of[i]);
    }
}

TEST(module_is_not_changed)
{
    ARIL_SCOPE;
    aril_module *m =
        aril_nn_sequential(aril_nn_linear(4, 6), aril_nn_batch_norm1d(6), aril_nn_dropout(0.5));
    aril_module_eval(aril_module_child(m, 2));
    aril_tensor *mean = aril_copy(aril_module_tensor(m, "1.running_mean"));
    int64_t seen = aril_item_int(aril_module_tensor(m, "1.num_batches_tracked"));
    free(table(m, ARIL_SHAPE(4), (aril_summary_opts){ 0 }));
    CHECK(aril_module_training(m) && aril_module_training(aril_module_child(m, 1)));
    CHECK(!aril_module_training(aril_module_child(m, 2)));
    CHECK_INT(aril_item_int(aril_module_tensor(m, "1.num_batches_tracked")), seen);
    aril_tensor *moved = aril_sub(aril_module_tensor(m, "1.running_mean"), mean);
    CHECK_NEAR(aril_item(aril_sum(aril_abs(moved), ARIL_ALL)), 0, 0);
    CHECK(!aril_has_grad(aril_module_tensor(m, "0.weight")));
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(frozen_parameters_and_buffers)
{
    aril_module *m =
        aril_nn_sequential(aril_nn_linear(4, 6), aril_nn_batch_norm1d(6), aril_nn_linear(6, 2));
    aril_module_freeze(aril_module_child(m, 0));
    char *text = table(m, ARIL_SHAPE(4), (aril_summary_opts){ .ascii = true });
    SHOWS(text, " Total params: 56 (224 B)\n");
    SHOWS(text, " Trainable params: 26 (104 B)\n");
    SHOWS(text, " Non-trainable params: 30 (120 B)\n");
    SHOWS(text, " Buffers: 13 (56 B)\n"); /* two of 6 in f32 and a counter in i64 */
    free(text);
    aril_module_release(m);
}

TEST(shared_weights_count_once)
{
    aril_module *m = aril_module_new("Twice", 0, twice), *linear = aril_nn_linear(8, 8);
    aril_module_add(m, "first", aril_module_keep(linear));
    aril_module_add(m, "again", linear);
    char *text = table(m, ARIL_SHAPE(8), (aril_summary_opts){ .ascii = true });
    SHOWS(text, "| first (Linear) | (None, 8)    |      72 |");
    SHOWS(text, "| again (Linear) | (None, 8)    |  shared |       |");
    SHOWS(text, " Total params: 72 (288 B)\n");
    SHOWS(text, "| (Twice)        | (None, 8)    |         |     8 |"); /* its own relu */
    SHOWS(text, " batch of 1: 264\n");                                  /* 2 * 2 * 64 + 8 */
    free(text);
    aril_module_release(m);
}

TEST(nested_modules_and_depth)
{
    aril_module *m = nested();
    char *text = table(m, ARIL_SHAPE(4), (aril_summary_opts){ .ascii = true });
    SHOWS(text, "| 0 (Sequential) | (None, 5)    |         |       |");
    SHOWS(text, "|   0 (Linear)   | (None, 5)    |      25 |    40 |");
    SHOWS(text, "| 1 (Linear)     | (None, 2)    |      12 |    20 |");
    free(text);
    text = table(m, ARIL_SHAPE(4), (aril_summary_opts){ .ascii = true, .depth = 1 });
    SHOWS(text, "| 0 (Sequential) | (None, 5)    |      25 |    45 |");
    LACKS(text, "  0 (Linear)");
    SHOWS(text, " Total params: 37 (148 B)\n");
    free(text);
    aril_module_release(m);
}

TEST(narrow_table)
{
    aril_module *m = aril_module_new("Wide", 0, twice);
    aril_module_add(m, "a_name_that_is_much_too_long_for_the_table", aril_nn_linear(8, 8));
    aril_module_add(m, "b", aril_nn_linear(8, 8));
    char *text = table(m, ARIL_SHAPE(8), (aril_summary_opts){ .ascii = true, .width = 60 });
    size_t line = strcspn(strchr(text, '\n') + 1, "\n");
    CHECK_INT(line, 60);
    SHOWS(text, "~ |");
    free(text);
    aril_module_release(m);
}

/* The reported memory is close to what a step uses; kernel workspace comes on top. Takes ownership
 * of m. */
static void check_memory(aril_module *m, aril_shape one)
{
    enum { BATCH = 32 };
    aril_cost cost;
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_zeros(one, ARIL_F32, CPU);
        CHECK(aril_module_cost(m, ARIL_LIST(x), &cost) == ARIL_OK);
    }
    int64_t numel = 1;
    for (int i = 0; i < one.ndim; i++) numel *= one.dim[i];
    CHECK_NEAR(cost.input_bytes, numel * 4, 0);
    {
        ARIL_SCOPE;
        int64_t without = aril_memory(CPU).live - (int64_t)cost.parameter_bytes;
        one.dim[0] = BATCH;
        aril_tensor *x = aril_randn(one, ARIL_F32, CPU);
        for (int step = 0; step < 2; step++) {
            ARIL_SCOPE;
            aril_memory_reset_peak(CPU);
            aril_backward(aril_mean(aril_forward(m, x), ARIL_ALL));
        }
        double took = (double)(aril_memory(CPU).peak - without);
        double said = aril_cost_training(&cost, BATCH);
        CHECK_MSG(said > 0.8 * took && said < 1.25 * took, "%s: %.2f MB told, %.2f MB taken",
                  aril_module_type(m), said / 1e6, took / 1e6);
    }
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(memory_matches_a_training_step)
{
    aril_seed(0);
    check_memory(aril_nn_sequential(aril_nn_conv2d(0, 32, 3), aril_nn_relu(),
                                    aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_max_pool2d(2),
                                    aril_nn_flatten(), aril_nn_linear(0, 128), aril_nn_relu(),
                                    aril_nn_linear(0, 10)),
                 ARIL_SHAPE(1, 3, 32, 32));
    check_memory(aril_nn_lstm_with(32, 64, (aril_nn_rnn_opts){ .layers = 2, .batch_first = true }),
                 ARIL_SHAPE(1, 40, 32));
    aril_nn_transformer_opts opts = { .batch_first = true, .feedforward = 256 };
    check_memory(aril_nn_transformer_encoder(64, 4, 3, opts), ARIL_SHAPE(1, 32, 64));
}

/* Known numbers: LeNet-5's multiplications, by hand. */
TEST(flops_by_hand)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_sequential(aril_nn_conv2d(1, 6, 5), aril_nn_conv2d(6, 16, 5),
                                        aril_nn_flatten(), aril_nn_linear(0, 120));
    aril_tensor *x = aril_zeros(ARIL_SHAPE(4, 1, 32, 32), ARIL_F32, CPU);
    aril_cost cost;
    CHECK(aril_module_cost(m, ARIL_LIST(x), &cost) == ARIL_OK);
    double conv1 = 2.0 * 6 * 28 * 28 * 25, conv2 = 2.0 * 16 * 24 * 24 * 6 * 25,
           linear = 2.0 * 120 * 16 * 24 * 24;
    CHECK_NEAR(cost.flop, conv1 + conv2 + linear, 0.5);
    aril_module_release(m);
}

TEST(network_with_several_inputs)
{
    ARIL_SCOPE;
    aril_module *m =
        aril_nn_transformer_decoder_layer_with(8, 2,
                                               (aril_nn_transformer_opts){ .feedforward = 16 });
    aril_tensor *x = aril_zeros(ARIL_SHAPE(3, 1, 8), ARIL_F32, CPU);
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    CHECK(aril_summary_n(m, ARIL_LIST(x, x), to, (aril_summary_opts){ .ascii = true }) == ARIL_OK);
    fclose(to);
    SHOWS(text, "| self_attn (MultiheadAttention)");
    SHOWS(text, "|   out_proj (Linear)");
    SHOWS(text, "| norm3 (LayerNorm)");
    free(text);
    aril_module_release(m);
    m = aril_nn_lstm(6, 4);
    text = table(m, ARIL_SHAPE(2, 6), (aril_summary_opts){ .ascii = true });
    SHOWS(text, "| (LSTM) ");
    free(text);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(indices_as_input)
{
    aril_module *m =
        aril_nn_sequential(aril_nn_embedding(50, 8), aril_nn_flatten(), aril_nn_linear(0, 2));
    char *text = table(m, ARIL_SHAPE(5), (aril_summary_opts){ .ascii = true, .dtype = ARIL_I64 });
    CHECK_MSG(text, "%s", aril_error());
    SHOWS(text, "| 0 (Embedding) | (None, 5, 8) |     400 |");
    free(text);
    aril_module_release(m);
}

TEST(errors)
{
    aril_module *m = aril_nn_sequential(aril_nn_linear(4, 2));
    CHECK_INT(aril_summary(m, ARIL_SHAPE(5), stdout), ARIL_ERR_SHAPE);
    CHECK_MSG(strstr(aril_error(), "0 (Linear)"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_summary(m, ARIL_SHAPE(4), NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_summary(NULL, ARIL_SHAPE(4), stdout), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_summary_with(m, ARIL_SHAPE(4), stdout, (aril_summary_opts){ .width = -1 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        CHECK_INT(aril_summary(m, ARIL_SHAPE(4), full), ARIL_ERR_IO);
        aril_clear_error();
        fclose(full);
    }
    CHECK(aril_module_training(m));
    aril_module_release(m);
}

/* Each allocation fails in turn: an error, the module unchanged, no hook left. */
TEST(out_of_memory)
{
    aril_module *m = nested();
    for (int64_t n = 1;; n++) {
        FILE *to = fopen("/dev/null", "w");
        aril_fail_allocation(n);
        aril_status s = aril_summary(m, ARIL_SHAPE(4), to);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        fclose(to);
        CHECK(aril_module_training(aril_module_child(m, 1)));
        CHECK_MSG(failed || s == ARIL_OK, "%s", aril_error());
        if (!failed) break;
        CHECK_INT(s, ARIL_ERR_MEMORY);
        aril_clear_error();
    }
    aril_module_release(m);
}
