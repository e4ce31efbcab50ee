/* Compiled functions: what a program leaves behind equals what the function does. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static aril_tensor *numbers(int64_t rows, int64_t columns, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, ARIL_SHAPE(rows, columns), ARIL_F32, test_device());
    aril_generator_free(g);
    return t;
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s: %s", what, why);
}

/* ---- a function of its inputs ---- */

static int calls;

static void two_ops(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    calls++;
    out[0] = aril_relu(aril_add(in[0], in[1]));
    out[1] = aril_sum(out[0], ARIL_AXES(1));
}

TEST(a_function_is_traced_once_per_signature)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(two_ops, NULL, (aril_jit_opts){ .name = "two_ops" });
    calls = 0;
    for (int i = 0; i < 6; i++) {
        aril_tensor *x = numbers(3 + i / 3, 4, (uint64_t)i), *y = numbers(1, 4, 9), *out[2],
                    *want[2];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), out), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        int traced = calls;
        two_ops(NULL, (aril_tensor *[]){ x, y }, want);
        calls = traced;
        check_equal(out[0], want[0], "relu");
        check_equal(out[1], want[1], "sum");
    }
    CHECK_INT(calls, 2); /* two batch sizes */
    CHECK_INT(aril_program_traces(p), 2);
    CHECK_INT(aril_program_results(p), 2);
    aril_program_free(p);
}

TEST(sizes_that_may_differ_need_no_new_trace)
{
    ARIL_SCOPE;
    const aril_shape sizes[] = { ARIL_SHAPE(-1, 4), ARIL_SHAPE(1, 4) };
    aril_program *p = aril_jit(two_ops, NULL, (aril_jit_opts){ .sizes = sizes, .n_sizes = 2 });
    calls = 0;
    for (int64_t n = 1; n < 6; n++) {
        aril_tensor *x = numbers(n, 4, 1), *y = numbers(1, 4, 9), *out[2];
        CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), out), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        check_equal(out[0], aril_relu(aril_add(x, y)), "relu");
    }
    CHECK_INT(calls, 1);
    aril_program_free(p);
}

/* ---- a training step ---- */

typedef struct net {
    aril_module *module;
    aril_optim *opt;
} net;

static net net_new(double dropout)
{
    aril_seed(5);
    aril_module *m =
        aril_nn_sequential(aril_nn_linear(6, 16), aril_nn_batch_norm1d(16), aril_nn_relu(),
                           aril_nn_dropout(dropout), aril_nn_linear(16, 3));
    return (net){ m, aril_adam(aril_parameters(m), (aril_adam_opts){ .lr = 0.01 }) };
}

static void net_free(net *n)
{
    aril_optim_free(n->opt);
    aril_module_release(n->module);
}

static void train(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    aril_tensor *loss = aril_cross_entropy(aril_forward(n->module, in[0]), in[1]);
    aril_backward(loss);
    aril_step(n->opt);
    out[0] = loss;
}

static void check_same_weights(const net *a, const net *b)
{
    const aril_named *p = aril_parameters(a->module), *q = aril_parameters(b->module);
    for (int i = 0; i < p->n; i++) check_equal(p->at[i], q->at[i], p->name[i]);
    p = aril_buffers(a->module);
    q = aril_buffers(b->module);
    for (int i = 0; i < p->n; i++) check_equal(p->at[i], q->at[i], p->name[i]);
}

static aril_schedule *cosine(int steps)
{
    return aril_cosine_schedule((aril_schedule_opts){ .per_batch = true, .total = steps });
}

static void compare_training(int steps, bool scheduled)
{
    ARIL_SCOPE;
    net eager = net_new(0.3), jit = net_new(0.3);
    if (scheduled) {
        aril_optim_schedule(eager.opt, cosine(steps));
        aril_optim_schedule(jit.opt, cosine(steps));
    }
    const aril_shape sizes[] = { ARIL_SHAPE(-2, 6), ARIL_SHAPE(-2) };
    aril_program *p =
        aril_jit(train, &jit, (aril_jit_opts){ .name = "train", .sizes = sizes, .n_sizes = 2 });
    aril_generator *data = aril_generator_new(3);
    aril_rng_state of_eager = { 77, 0 }, of_jit = { 77, 0 };
    for (int i = 0; i < steps && !test_failed(); i++) {
        ARIL_SCOPE;
        int64_t batch = 8 + 4 * (i % 3);
        aril_tensor *x = aril_randn_from(data, ARIL_SHAPE(batch, 6), ARIL_F32, test_device());
        aril_tensor *y = aril_randint_from(data, 0, 3, ARIL_SHAPE(batch), ARIL_I64, test_device());
        aril_tensor *out[1], *want[1];
        aril_generator_set_state(aril_default_generator(), of_jit);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), out), ARIL_OK);
        of_jit = aril_generator_state(aril_default_generator());
        aril_generator_set_state(aril_default_generator(), of_eager);
        train(&eager, (aril_tensor *[]){ x, y }, want);
        of_eager = aril_generator_state(aril_default_generator());
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(of_eager.calls == of_jit.calls);
        check_equal(out[0], want[0], "loss");
        check_same_weights(&eager, &jit);
        for (int k = 0; k < aril_parameters(jit.module)->n; k++)
            CHECK(!aril_has_grad(aril_parameters(jit.module)->at[k]));
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_generator_free(data);
    aril_program_free(p);
    net_free(&eager);
    net_free(&jit);
}

TEST(a_training_step_gives_the_bits_of_eager_mode)
{
    compare_training(12, false);
}

TEST(a_schedule_moves_a_compiled_step)
{
    compare_training(100, true);
}

/* ---- many inputs of one node ---- */

enum { MANY = 70000 };

static void repeat_many(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor **list = ctx;
    for (int i = 0; i < MANY; i++) list[i] = in[i % 2];
    out[0] = aril_cat((aril_list){ MANY, list }, 0);
}

TEST(a_node_with_more_inputs_than_16_bits_count)
{
    ARIL_SCOPE;
    aril_tensor **list = malloc(MANY * sizeof(aril_tensor *)), *y;
    aril_tensor *in[] = { aril_ones(ARIL_SHAPE(1), ARIL_F32, test_device()),
                          aril_zeros(ARIL_SHAPE(1), ARIL_F32, test_device()) };
    CHECK(list != NULL);
    aril_program *p = aril_jit(repeat_many, list, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, &y), ARIL_OK);
    CHECK_INT(aril_size(y, 0), MANY);
    CHECK_INT((int64_t)aril_item(aril_sum(y, ARIL_ALL)), MANY / 2);
    aril_program_free(p);
    free(list);
}
