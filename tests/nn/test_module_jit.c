/* Compiled modules: aril_forward from a trace. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static aril_module *net_new(void)
{
    aril_seed(4);
    return aril_nn_sequential(aril_nn_linear(5, 8), aril_nn_batch_norm1d(8), aril_nn_relu(),
                              aril_nn_dropout(0.5), aril_nn_linear(8, 3));
}

static aril_tensor *batch(int64_t n, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *x = aril_randn_from(g, ARIL_SHAPE(n, 5), ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return x;
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why && aril_ok(), "%s: %s", what, why ? why : aril_error());
}

/* How often forward functions of this module ran. */
static int calls;
static aril_tensor *counted(aril_module *self, aril_tensor *x)
{
    calls++;
    return aril_forward(aril_module_child(self, 0), x);
}

static aril_module *counted_new(aril_module *inner)
{
    aril_module *m = aril_module_new("Counted", 0, counted);
    aril_module_add(m, "inner", inner);
    return m;
}

TEST(modes_sizes_and_dtypes_have_traces_of_their_own)
{
    ARIL_SCOPE;
    aril_module *a = counted_new(net_new()), *b = net_new();
    CHECK_INT(aril_module_jit(a), ARIL_OK);
    ARIL_NO_GRAD;
    for (int i = 0; i < 24; i++) {
        aril_tensor *x = batch(4 + i / 2 % 2, (uint64_t)i);
        if (i / 4 % 2) {
            aril_module_eval(a), aril_module_eval(b);
        } else {
            aril_module_train(a), aril_module_train(b); /* statistics, and dropout */
        }
        aril_tensor *got, *want;
        aril_seed((uint64_t)i);
        if (i % 2) {
            ARIL_AUTOCAST(ARIL_BF16);
            got = aril_forward(a, x);
        } else {
            got = aril_forward(a, x);
        }
        aril_seed((uint64_t)i);
        if (i % 2) {
            ARIL_AUTOCAST(ARIL_BF16);
            want = aril_forward(b, x);
        } else {
            want = aril_forward(b, x);
        }
        check_equal(got, want, i / 4 % 2 ? "evaluation" : "training");
    }
    CHECK_INT(calls, 8); /* two modes, two sizes, with autocast and without */
    const aril_named *p = aril_state(a), *q = aril_state(b);
    for (int i = 0; i < p->n; i++) check_equal(p->at[i], q->at[i], p->name[i]);
    CHECK(!aril_module_eager_reason(a));
    aril_module_release(a);
    aril_module_release(b);
}

TEST(gradients_are_those_of_single_operations)
{
    ARIL_SCOPE;
    aril_module *a = counted_new(net_new()), *b = net_new();
    aril_module_jit(a);
    calls = 0;
    for (int i = 0; i < 3; i++) {
        aril_tensor *x = batch(6, (uint64_t)i);
        aril_seed((uint64_t)i);
        CHECK_INT(aril_backward(aril_mean(aril_square(aril_forward(a, x)), ARIL_ALL)), ARIL_OK);
        aril_seed((uint64_t)i);
        CHECK_INT(aril_backward(aril_mean(aril_square(aril_forward(b, x)), ARIL_ALL)), ARIL_OK);
        const aril_named *p = aril_parameters(a), *q = aril_parameters(b);
        for (int k = 0; k < p->n; k++)
            check_equal(aril_grad(p->at[k]), aril_grad(q->at[k]), "grad");
    }
    CHECK_INT(calls, 1);
    aril_module_freeze(a); /* nothing is recorded any more */
    for (int i = 0; i < 3; i++) aril_forward(a, batch(6, 1));
    CHECK_INT(calls, 2);
    aril_module_release(a);
    aril_module_release(b);
}

static void count_hook(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                       aril_tensor **out, void *ctx)
{
    (void)m, (void)n_in, (void)in, (void)n_out, (void)out;
    ++*(int *)ctx;
}

TEST(hooks_are_called_each_time)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_module *a = net_new();
    int seen = 0;
    aril_module_jit(a);
    aril_module_eval(a);
    aril_tensor *x = batch(4, 1), *before = aril_forward(a, x);
    int id = aril_module_hook_after(aril_module_child(a, 0), count_hook, &seen);
    for (int i = 0; i < 3; i++) check_equal(aril_forward(a, x), before, "with a hook");
    CHECK_INT(seen, 3);
    aril_module_unhook(aril_module_child(a, 0), id);
    check_equal(aril_forward(a, x), before, "without");
    CHECK_INT(seen, 3);
    aril_module_release(a);
}

TEST(weights_that_are_replaced_are_noticed)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_module *a = net_new(), *b = net_new();
    aril_module_jit(a);
    aril_module_eval(a), aril_module_eval(b);
    aril_tensor *x = batch(4, 1);
    check_equal(aril_forward(a, x), aril_forward(b, x), "as made");
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(3, 8), 0.25, ARIL_F32, aril_cpu()));
    CHECK_INT(aril_module_share(a, "4.weight", w), ARIL_OK);
    CHECK_INT(aril_module_share(b, "4.weight", w), ARIL_OK);
    check_equal(aril_forward(a, x), aril_forward(b, x), "shared");
    aril_module_cast(a, ARIL_F64), aril_module_cast(b, ARIL_F64);
    x = aril_cast(x, ARIL_F64);
    check_equal(aril_forward(a, x), aril_forward(b, x), "in f64");
    aril_release(w);
    aril_module_release(a);
    aril_module_release(b);
}

/* Two results, and an input that may be missing. */
static void pair_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                         aril_tensor **out)
{
    (void)self;
    calls++;
    out[0] = n_in > 1 && in[1] ? aril_add(in[0], in[1]) : aril_neg(in[0]);
    if (n_out > 1) out[1] = aril_mul(out[0], in[0]);
}

TEST(inputs_may_be_missing_and_results_several)
{
    ARIL_SCOPE;
    static const aril_module_class type = {
        .type = "Pair", .forward = pair_forward, .inputs = 2, .outputs = 2
    };
    aril_module *m = aril_module_make(&type);
    aril_module_jit(m);
    calls = 0;
    for (int i = 0; i < 3; i++) {
        aril_tensor *x = batch(3, (uint64_t)i), *y = batch(3, 9), *out[2];
        CHECK_INT(aril_forward_all(m, ARIL_LIST(x, y), 2, out), ARIL_OK);
        check_equal(out[1], aril_mul(aril_add(x, y), x), "both");
        check_equal(aril_forward(m, x), aril_neg(x), "one");
        check_equal(aril_forward_n(m, ARIL_LIST(x, NULL)), aril_neg(x), "NULL");
    }
    CHECK_INT(calls, 3);
    aril_module_release(m);
}

TEST(errors_are_those_of_the_module)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_module *m = net_new();
    aril_module_jit(m);
    CHECK(aril_tensor_status(aril_forward(m, aril_ones(ARIL_SHAPE(2, 4), ARIL_F32, aril_cpu()))) <
          0);
    CHECK_MSG(strstr(aril_error(), "linear") || strstr(aril_error(), "Linear"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_forward(m, batch(2, 1))), ARIL_OK);
    CHECK(!aril_module_eager_reason(m));
    aril_module_release(m);
    CHECK_INT(aril_module_jit(NULL), ARIL_ERR_ARG);
    aril_clear_error();
}

static void *run_many(void *arg)
{
    for (int i = 0; i < 40; i++) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_tensor *x = batch(2 + i % 2, 3);
        if (!isfinite(aril_item(aril_sum(aril_forward(arg, x), ARIL_ALL)))) return arg;
    }
    return aril_ok() ? NULL : arg;
}

TEST(threads_run_a_compiled_module_at_once)
{
    aril_module *m = net_new();
    aril_module_eval(m);
    aril_module_jit(m);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, run_many, m);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        CHECK(!failed);
    }
    aril_module_release(m);
}
