/* Programs that a device records and replays: on the test device, or on that of ARIL_TEST_DEVICE.
 */
#include "aril/aril.h"
#include "ops/table/rows.h"
#include "plugin/strict.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* The device, with recording switched on for all programs. */
static aril_device recorder(void)
{
    static bool started;
    setenv("ARIL_CUDA_GRAPHS", "1", 1);
    if (!test_on_cpu()) return test_device();
    if (!started && aril__plugin_add("strict", strict_open) < 0) abort();
    started = true;
    return aril_device_named("strict:0");
}

/* Of the test device: other devices do not count. */
static int64_t recorded(void)
{
    return strict_count().recorded;
}

static bool counts(void)
{
    char name[64];
    return strncmp(aril_device_name(recorder(), name, sizeof name), "strict", 6) == 0;
}

static aril_tensor *numbers(aril_shape shape, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, shape, ARIL_F32, recorder());
    aril_generator_free(g);
    return t;
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s: %s", what, why);
}

/* Runs a program and the function itself, and compares the first result. */
static void check_run(aril_program *p, aril_fn *fn, void *ctx, aril_list in, const char *what)
{
    aril_tensor *out[64] = { NULL }, *want[64] = { NULL };
    CHECK_INT(aril_program_run(p, in, out), ARIL_OK);
    fn(ctx, in.at, want);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    check_equal(out[0], want[0], what);
}

/* ---- inputs and results ---- */

static void product(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_tanh(aril_add(aril_matmul(in[0], in[1]), in[0]));
}

TEST(results_belong_to_the_caller)
{
    enum { RUNS = 10 };
    ARIL_SCOPE;
    aril_program *p = aril_jit(product, NULL, (aril_jit_opts){ .name = "product" });
    aril_tensor *got[RUNS], *want[RUNS], *w = numbers(ARIL_SHAPE(4, 4), 1);
    int64_t before = recorded();
    for (int i = 0; i < RUNS; i++) {
        aril_tensor *in[] = { numbers(ARIL_SHAPE(4, 4), (uint64_t)i), w };
        aril_program_run(p, (aril_list){ 2, in }, &got[i]);
        product(NULL, in, &want[i]);
    }
    for (int i = 0; i < RUNS; i++) check_equal(got[i], want[i], "a result of before");
    if (counts()) CHECK_INT(recorded() - before, 1);
    aril_program_free(p);
}

TEST(inputs_at_the_same_addresses_are_used_in_place)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(product, NULL, (aril_jit_opts){ .name = "product" });
    aril_tensor *x = numbers(ARIL_SHAPE(3, 3), 1), *w = numbers(ARIL_SHAPE(3, 3), 2);
    int64_t before = recorded();
    for (int i = 0; i < 12 && !test_failed(); i++) {
        check_run(p, product, NULL, ARIL_LIST(x, w), "in place");
        aril_add_scalar_(x, 0.25);
    }
    if (counts()) CHECK_INT(recorded() - before, 2);
    for (int i = 0; i < 3 && !test_failed(); i++)
        check_run(p, product, NULL, ARIL_LIST(numbers(ARIL_SHAPE(3, 3), 7), w), "elsewhere");
    if (counts()) CHECK_INT(recorded() - before, 2);
    aril_program_free(p);
}

static void count_up(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_add_(in[0], in[1]);
    out[0] = aril_mul(in[0], in[1]);
}

TEST(inputs_are_changed_where_they_are)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(count_up, NULL, (aril_jit_opts){ .name = "count_up" });
    aril_tensor *x = numbers(ARIL_SHAPE(5), 1), *y = numbers(ARIL_SHAPE(5), 2), *z = aril_copy(x);
    for (int i = 0; i < 10 && !test_failed(); i++) {
        aril_tensor *out, *want;
        CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), &out), ARIL_OK);
        count_up(NULL, (aril_tensor *[]){ z, y }, &want);
        check_equal(out, want, "the product");
        check_equal(x, z, "the input");
    }
    aril_program_free(p);
}

TEST(other_sizes_are_recorded_too)
{
    ARIL_SCOPE;
    const aril_shape sizes[] = { ARIL_SHAPE(-1, 4), ARIL_SHAPE(4, 4) };
    aril_program *p =
        aril_jit(product, NULL, (aril_jit_opts){ .name = "product", .sizes = sizes, .n_sizes = 2 });
    aril_tensor *w = numbers(ARIL_SHAPE(4, 4), 1);
    for (int i = 0; i < 42 && !test_failed(); i++) {
        ARIL_SCOPE;
        check_run(p, product, NULL, ARIL_LIST(numbers(ARIL_SHAPE(1 + i % 7, 4), (uint64_t)i), w),
                  "sizes");
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
}

/* ---- state ---- */

typedef struct training {
    aril_module *net;
    aril_optim *opt;
} training;

static training training_new(void)
{
    aril_seed(5);
    aril_module *m = aril_nn_sequential(aril_nn_linear(6, 8), aril_nn_tanh(), aril_nn_dropout(0.4),
                                        aril_nn_linear(8, 2));
    aril_module_to(m, recorder());
    return (training){ m, aril_adam(aril_parameters(m), (aril_adam_opts){ .lr = 0.01 }) };
}

static void training_free(training *t)
{
    aril_optim_free(t->opt);
    aril_module_release(t->net);
}

static void step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    training *t = ctx;
    out[0] = aril_mse_loss(aril_forward(t->net, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(t->opt);
}

/* One step of both, with the same random numbers. */
static void check_step(aril_program *p, training *compiled, training *eager, int i)
{
    ARIL_SCOPE;
    aril_tensor *in[] = { numbers(ARIL_SHAPE(7, 6), (uint64_t)i), numbers(ARIL_SHAPE(7, 2), 99) };
    aril_tensor *out, *want;
    aril_rng_state state = { 11, (uint64_t)i * 100 };
    aril_generator_set_state(aril_default_generator(), state);
    CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, &out), ARIL_OK);
    uint64_t drawn = aril_generator_state(aril_default_generator()).calls;
    aril_generator_set_state(aril_default_generator(), state);
    step(eager, in, &want);
    CHECK(drawn == aril_generator_state(aril_default_generator()).calls);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    check_equal(out, want, "loss");
    const aril_named *a = aril_parameters(compiled->net), *b = aril_parameters(eager->net);
    for (int k = 0; k < a->n && !test_failed(); k++) check_equal(a->at[k], b->at[k], a->name[k]);
}

TEST(numbers_of_the_host_change_without_a_new_recording)
{
    ARIL_SCOPE;
    training compiled = training_new(), eager = training_new();
    aril_program *p = aril_jit(step, &compiled, (aril_jit_opts){ .name = "step" });
    int64_t before = 0;
    for (int i = 0; i < 16 && !test_failed(); i++) {
        if (i == 10) before = recorded(); /* by now, inputs may be at the same addresses */
        aril_optim_set_lr(compiled.opt, 0.01 / (1 + i));
        aril_optim_set_lr(eager.opt, 0.01 / (1 + i));
        check_step(p, &compiled, &eager, i);
    }
    CHECK_INT(aril_program_traces(p), 1);
    if (counts()) CHECK_INT(recorded() - before, 0);
    aril_program_free(p);
    training_free(&compiled);
    training_free(&eager);
}

TEST(exchanged_parameters_are_recorded_anew)
{
    ARIL_SCOPE;
    training compiled = training_new(), eager = training_new();
    aril_program *p = aril_jit(step, &compiled, (aril_jit_opts){ .name = "step" });
    for (int i = 0; i < 12 && !test_failed(); i++) {
        if (i == 5) { /* there and back: other memory */
            aril_tensor *keep = numbers(ARIL_SHAPE(8, 6), 3);
            aril_module_to(compiled.net, aril_cpu());
            aril_keep(keep);
            aril_module_to(compiled.net, recorder());
            aril_release(keep);
        }
        check_step(p, &compiled, &eager, i);
    }
    aril_program_free(p);
    training_free(&compiled);
    training_free(&eager);
}

/* ---- what is not recorded ---- */

static void positive(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(aril_masked_select(in[0], aril_gt_scalar(in[0], 0)), in[1]);
}

TEST(sizes_that_depend_on_values_are_not_recorded)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(positive, NULL, (aril_jit_opts){ .name = "positive" });
    int64_t before = recorded();
    for (int i = 0; i < 6 && !test_failed(); i++)
        check_run(p, positive, NULL,
                  ARIL_LIST(numbers(ARIL_SHAPE(20), (uint64_t)i), numbers(ARIL_SHAPE(1), 2)),
                  "positive");
    if (counts()) CHECK_INT(recorded() - before, 0);
    aril_program_free(p);
}

TEST(recording_can_be_switched_off)
{
    ARIL_SCOPE;
    aril_tensor *w = numbers(ARIL_SHAPE(4, 4), 1);
    int64_t before = recorded();
    setenv("ARIL_CUDA_GRAPHS", "0", 1);
    aril_program *p = aril_jit(product, NULL, (aril_jit_opts){ .name = "product" });
    for (int i = 0; i < 6; i++) {
        aril_tensor *out;
        CHECK_INT(aril_program_run(p, ARIL_LIST(w, w), &out), ARIL_OK);
    }
    if (counts()) CHECK_INT(recorded() - before, 0);
    aril_program_free(p);
}

/* ---- errors ---- */

static void rows(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *e = aril_embedding(in[0], in[1], (aril_embedding_opts){ 0 });
    out[0] = aril_sum(aril_mul_scalar(e, 2), ARIL_ALL);
}

TEST(errors_of_replayed_work_name_the_op)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(rows, NULL, (aril_jit_opts){ .name = "rows" });
    aril_tensor *table = numbers(ARIL_SHAPE(5, 3), 1), *out;
    for (int i = 0; i < 6; i++) {
        aril_tensor *at = aril_full(ARIL_SHAPE(2), i == 4 ? 7 : i % 5, ARIL_I64, recorder());
        CHECK_INT(aril_program_run(p, ARIL_LIST(at, table), &out), ARIL_OK);
        aril_item(out);
        CHECK(aril_ok() == (i != 4));
        if (i != 4) continue;
        CHECK_MSG(strstr(aril_error(), "embedding"), "%s", aril_error());
        CHECK_INT(aril_error_code(), ARIL_ERR_INDEX);
        aril_clear_error();
    }
    aril_program_free(p);
}
