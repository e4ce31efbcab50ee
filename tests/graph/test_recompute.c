/* .max_memory: a program recomputes values instead of keeping them, or says by how much it does not
 * fit. */
#include "aril/aril.h"
#include "core/memory.h"
#include "graph/executor.h"
#include "support/compare.h"
#include "support/test.h"

#include <string.h>

typedef struct net {
    aril_module *module;
    aril_optim *opt;
} net;

static aril_module *block(int64_t in, int64_t out)
{
    return aril_nn_sequential(aril_nn_conv2d_with(in, out, 3,
                                                  (aril_nn_conv_opts){ .padding = { 1, 1 } }),
                              aril_nn_batch_norm2d(out), aril_nn_relu(), aril_nn_dropout(0.1));
}

static net net_new(void)
{
    aril_seed(3);
    aril_module *m =
        aril_nn_sequential(block(3, 8), block(8, 8), block(8, 8), block(8, 8), block(8, 8),
                           block(8, 8), aril_nn_flatten(), aril_nn_linear(8 * 12 * 12, 5));
    return (net){ m, aril_sgd(aril_parameters(m), (aril_sgd_opts){ .lr = 0.01 }) };
}

static void net_free(net *n)
{
    aril_optim_free(n->opt);
    aril_module_release(n->module);
}

static void train(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    out[0] = aril_cross_entropy(aril_forward(n->module, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(n->opt);
}

static aril_tensor *images(int64_t n)
{
    aril_generator *g = aril_generator_new(7);
    aril_tensor *t = aril_randn_from(g, ARIL_SHAPE(n, 3, 12, 12), ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return t;
}

static aril_tensor *labels(int64_t n)
{
    return aril_zeros(ARIL_SHAPE(n), ARIL_I64, aril_cpu());
}

static int64_t peak_without_limit(aril_list in)
{
    net n = net_new();
    aril_tensor *out[1];
    aril_program *p = aril_jit(train, &n, (aril_jit_opts){ 0 });
    aril_program_run(p, in, out);
    int64_t peak = aril_program_memory(p, aril_cpu()).peak;
    aril_program_free(p);
    net_free(&n);
    return peak;
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s: %s", what, why);
}

/* Losses and weights are those of eager mode, to the bit. */
static void check_training(aril_list in, int64_t max_memory)
{
    net eager = net_new(), jit = net_new();
    aril_program *p = aril_jit(train, &jit, (aril_jit_opts){ .max_memory = max_memory });
    aril_rng_state mine = { 5, 0 }, theirs = { 5, 0 };
    int64_t before = aril_memory(aril_cpu()).live;
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_tensor *got[1], *want[1];
        aril_generator_set_state(aril_default_generator(), mine);
        aril_memory_reset_peak(aril_cpu());
        CHECK_INT(aril_program_run(p, in, got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        int64_t peak = aril_memory(aril_cpu()).peak - before;
        CHECK_MSG(peak <= max_memory, "%lld bytes", (long long)peak);
        mine = aril_generator_state(aril_default_generator());
        aril_generator_set_state(aril_default_generator(), theirs);
        train(&eager, in.at, want);
        theirs = aril_generator_state(aril_default_generator());
        check_equal(got[0], want[0], "loss");
    }
    const aril_named *a = aril_parameters(jit.module), *b = aril_parameters(eager.module);
    for (int i = 0; i < a->n; i++) check_equal(a->at[i], b->at[i], a->name[i]);
    a = aril_buffers(jit.module);
    b = aril_buffers(eager.module);
    for (int i = 0; i < a->n; i++) check_equal(a->at[i], b->at[i], a->name[i]);
    aril_program_free(p);
    net_free(&eager);
    net_free(&jit);
}

TEST(a_limit_of_memory_is_kept_by_recomputing)
{
    ARIL_SCOPE;
    aril_tensor *in[] = { images(32), labels(32) };
    int64_t peak = peak_without_limit((aril_list){ 2, in });
    aril__plan_poisons = true;
    for (int percent = 90; percent >= 60; percent -= 10)
        check_training((aril_list){ 2, in }, peak * percent / 100);
    aril__plan_poisons = false;
}

TEST(what_does_not_fit_is_said_before_the_run)
{
    ARIL_SCOPE;
    net n = net_new(), same = net_new();
    aril_tensor *in[] = { images(32), labels(32) }, *out[1];
    aril_program *p = aril_jit(train, &n, (aril_jit_opts){ .name = "train", .max_memory = 100000 });
    CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, out), ARIL_ERR_MEMORY);
    CHECK_MSG(strstr(aril_error(), "train: a run allocates") &&
                  strstr(aril_error(), "more than .max_memory"),
              "%s", aril_error());
    aril_clear_error();
    const aril_named *a = aril_parameters(n.module), *b = aril_parameters(same.module);
    for (int i = 0; i < a->n; i++) check_equal(a->at[i], b->at[i], a->name[i]);
    aril_program_free(p);
    CHECK(!aril_jit(train, &n, (aril_jit_opts){ .max_memory = -1 }));
    aril_clear_error();
    net_free(&n);
    net_free(&same);
}

/* A wide layer: gradients take more memory than all else, until each is used up at once. */
static void train_wide(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    out[0] = aril_mean(aril_square(aril_forward(n->module, in[0])), ARIL_ALL);
    aril_backward(out[0]);
    aril_step(n->opt);
}

static net wide_net(void)
{
    aril_seed(4);
    aril_module *m =
        aril_nn_sequential(aril_nn_linear(64, 512), aril_nn_tanh(), aril_nn_linear(512, 512),
                           aril_nn_tanh(), aril_nn_linear(512, 512), aril_nn_tanh(),
                           aril_nn_linear(512, 512));
    return (net){ m, aril_adam(aril_parameters(m), (aril_adam_opts){ .lr = 0.01 }) };
}

TEST(updates_follow_their_gradients)
{
    ARIL_SCOPE;
    net eager = wide_net(), jit = wide_net();
    aril_tensor *x = aril_ones(ARIL_SHAPE(4, 64), ARIL_F32, aril_cpu()), *got[1], *want[1];
    const int64_t layer = 512 * 512 * 4; /* bytes of a gradient */
    aril_program *p = aril_jit(train_wide, &jit, (aril_jit_opts){ .max_memory = 2 * layer });
    for (int i = 0; i < 4; i++) {
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        train_wide(&eager, &x, want);
        check_equal(got[0], want[0], "loss");
    }
    CHECK(aril_program_memory(p, aril_cpu()).peak <= 2 * layer);
    const aril_named *a = aril_parameters(jit.module), *b = aril_parameters(eager.module);
    for (int i = 0; i < a->n; i++) check_equal(a->at[i], b->at[i], a->name[i]);
    aril_program_free(p);
    net_free(&eager);
    net_free(&jit);
}

/* A larger size than that of the trace. */
TEST(a_size_that_does_not_fit_is_an_error)
{
    ARIL_SCOPE;
    net n = net_new();
    const aril_shape sizes[] = { ARIL_SHAPE(-2, 3, 12, 12), ARIL_SHAPE(-2) };
    aril_tensor *small[] = { images(16), labels(16) }, *large[] = { images(64), labels(64) };
    aril_tensor *out[1];
    int64_t peak = peak_without_limit((aril_list){ 2, small });
    aril_jit_opts opts = { .sizes = sizes, .n_sizes = 2, .max_memory = peak };
    aril_program *p = aril_jit(train, &n, opts);
    CHECK_INT(aril_program_run(p, (aril_list){ 2, small }, out), ARIL_OK);
    CHECK_INT(aril_program_run(p, (aril_list){ 2, large }, out), ARIL_ERR_MEMORY);
    aril_clear_error();
    CHECK_INT(aril_program_run(p, (aril_list){ 2, small }, out), ARIL_OK);
    aril_program_free(p);
    net_free(&n);
}

/* ---- what is computed again needs values of control flow ---- */

static void doubled(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul_scalar(in[0], 2);
}

static void squared(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_square(in[0]);
}

/* The gradient g, a view with the shape of a branch's result, is computed before most memory is in
 * use, and used after it. */
static void use_late(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *x = in[0], *z, *g; /* [64,64] */
    aril_cond(aril_gt_scalar(aril_sum(x, ARIL_ALL), 0), doubled, squared, NULL, ARIL_LIST(x), 1,
              &z);
    aril_tensor *row = aril_reshape(z, ARIL_SHAPE(-1));
    aril_tensor *loss = aril_sum(aril_mul(row, aril_tanh(in[1])), ARIL_ALL);
    aril_gradients(loss, ARIL_LIST(z), &g, (aril_grad_opts){ 0 });
    aril_tensor *wide = aril_tanh(aril_matmul(in[2], in[3])); /* [64,2048] */
    out[0] = aril_sum(aril_mul(wide, aril_exp(wide)), ARIL_AXES(0));
    out[1] = aril_matmul(g, g);
}

TEST(what_has_the_shape_of_control_flow_is_computed_again)
{
    ARIL_SCOPE;
    aril_seed(5);
    aril_tensor *in[] = { aril_randn(ARIL_SHAPE(64, 64), ARIL_F32, aril_cpu()),
                          aril_randn(ARIL_SHAPE(4096), ARIL_F32, aril_cpu()),
                          aril_randn(ARIL_SHAPE(64, 64), ARIL_F32, aril_cpu()),
                          aril_randn(ARIL_SHAPE(64, 2048), ARIL_F32, aril_cpu()) };
    aril_tensor *want[2], *got[2];
    aril_set_requires_grad(in[0], true);
    aril_program *p = aril_jit(use_late, NULL, (aril_jit_opts){ 0 });
    aril_program_run(p, (aril_list){ 4, in }, want);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    int64_t peak = aril_program_memory(p, aril_cpu()).peak;
    aril_program_free(p);
    p = aril_jit(use_late, NULL, (aril_jit_opts){ .max_memory = peak - 64 * 64 * 4 });
    aril_status s = aril_program_run(p, (aril_list){ 4, in }, got);
    if (s == ARIL_ERR_MEMORY && ARIL__PLAIN_BLOCKS) {
        aril_clear_error();
        aril_program_free(p);
        SKIP("the plan of this build has nothing to compute again");
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < 2; i++) check_equal(got[i], want[i], "result");
    aril_program_free(p);
}
