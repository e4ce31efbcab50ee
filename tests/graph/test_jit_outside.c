/* Compiled functions when something outside them changes or ends between runs: hooks of parameters,
 * modules that are released, runs that fail. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

static aril_program *jit(aril_fn *fn, void *ctx)
{
    return aril_jit(fn, ctx, (aril_jit_opts){ .name = "test" });
}

static double first_of(aril_tensor *t)
{
    ARIL_SCOPE;
    return aril_item(aril_select(aril_reshape(t, ARIL_SHAPE(-1)), 0, 0));
}

/* ---- hooks ---- */

static aril_tensor *times_ten(aril_tensor *g, void *ctx)
{
    ++*(int *)ctx;
    return aril_mul_scalar(g, 10);
}

static void backward_to_w(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_sum(aril_mul(ctx, in[0]), ARIL_ALL);
    aril_backward(out[0]);
}

static void gradient_of_w(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_sum(aril_mul(ctx, in[0]), ARIL_ALL);
    aril_gradients(out[0], ARIL_LIST((aril_tensor *)ctx), out + 1, (aril_grad_opts){ 0 });
}

static void forward_only(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(ctx, in[0]);
}

static void backward_to_input(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_sum(aril_mul_scalar(in[0], 3), ARIL_ALL);
    aril_backward(out[0]);
}

static void refuses_hook(aril_program *p, aril_tensor *x, const char *of)
{
    ARIL_SCOPE;
    aril_tensor *out[2];
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "aril_hook") && strstr(aril_error(), of), "%s", aril_error());
    aril_clear_error();
}

TEST(hooks_of_tensors_from_outside_are_an_error)
{
    ARIL_SCOPE;
    aril_fn *const fns[] = { backward_to_w, gradient_of_w };
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *out[2];
    for (int i = 0; i < 2; i++) {
        int calls = 0;
        aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()));
        aril_program *before = jit(fns[i], w), *after = jit(fns[i], w);
        CHECK_INT(aril_program_run(before, ARIL_LIST(x), out), ARIL_OK);
        aril_zero_grad(w);
        int id = aril_hook(w, times_ten, &calls);
        refuses_hook(before, x, "[3]");
        refuses_hook(after, x, "[3]");
        CHECK(!aril_has_grad(w));
        CHECK_INT(aril_remove_hook(w, id), ARIL_OK);
        for (int k = 0; k < 2; k++) {
            aril_zero_grad(w);
            CHECK_INT(aril_program_run(k ? after : before, ARIL_LIST(x), out), ARIL_OK);
            CHECK(first_of(i ? out[1] : aril_grad(w)) == 1);
        }
        CHECK_INT(aril_program_traces(before), 1);
        CHECK_INT(calls, 0);
        aril_program_free(before);
        aril_program_free(after);
        aril_release(w);
    }
}

TEST(hooks_of_inputs_are_an_error)
{
    ARIL_SCOPE;
    int calls = 0;
    aril_tensor *x = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device())), *out[1];
    aril_program *p = jit(backward_to_input, NULL);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    aril_hook(x, times_ten, &calls);
    refuses_hook(p, x, "an input");
    aril_program_free(p);
    aril_release(x);
}

TEST(hooks_that_nothing_would_call_are_no_error)
{
    ARIL_SCOPE;
    int calls = 0;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *out[1];
    aril_program *p = jit(forward_only, w);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    aril_hook(w, times_ten, &calls);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
    aril_release(w);
}

static int hook_calls;

static void hook_inside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *h = aril_mul(ctx, in[0]);
    aril_hook(h, times_ten, &hook_calls);
    out[0] = aril_sum(h, ARIL_ALL);
    aril_backward(out[0]);
}

static void hook_outside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_hook(ctx, times_ten, &hook_calls);
    out[0] = aril_mul(ctx, in[0]);
}

TEST(a_function_may_set_hooks_on_its_own_values_only)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *out[1];
    aril_program *p = jit(hook_inside, w), *q = jit(hook_outside, w);
    hook_calls = 0;
    for (int i = 0; i < 3; i++) {
        aril_zero_grad(w);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
        CHECK(first_of(aril_grad(w)) == 10);
    }
    CHECK_INT(hook_calls, 1); /* its operations are traced */
    CHECK_INT(aril_program_run(q, ARIL_LIST(x), out), ARIL_ERR_STATE);
    CHECK(strstr(aril_error(), "hook: in a trace"));
    aril_clear_error();
    aril_zero_grad(w);
    CHECK_INT(aril_backward(aril_sum(aril_mul(w, x), ARIL_ALL)), ARIL_OK);
    CHECK(first_of(aril_grad(w)) == 1); /* there is no hook */
    aril_program_free(p);
    aril_program_free(q);
    aril_release(w);
}

TEST(fit_calls_hooks_of_parameters)
{
    double weight[2];
    for (int eager = 0; eager < 2; eager++) {
        ARIL_SCOPE;
        int calls = 0;
        aril_module *net = aril_nn_linear(3, 1);
        aril_module_build(net, ARIL_SHAPE(4, 3));
        aril_module_to(net, test_device());
        aril_tensor *w = aril_module_tensor(net, "weight");
        {
            ARIL_NO_GRAD;
            aril_fill_(w, 0.5);
            aril_zero_(aril_module_tensor(net, "bias"));
        }
        aril_model *m = aril_model_new(net, ARIL_SHAPE(3));
        aril_model_compile(m, (aril_model_opts){ .loss = "mse",
                                                 .optimizer =
                                                     aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.001 }),
                                                 .eager = eager });
        aril_tensor *x = aril_ones(ARIL_SHAPE(32, 3), ARIL_F32, test_device());
        aril_tensor *y = aril_zeros(ARIL_SHAPE(32, 1), ARIL_F32, test_device());
        aril_fit_opts once = { .epochs = 1, .batch_size = 4, .verbose = ARIL_SILENT };
        aril_model_fit(m, x, y, once);
        CHECK((aril_model_eager_reason(m) != NULL) == eager);
        int id = aril_hook(w, times_ten, &calls);
        aril_model_fit(m, x, y, once);
        CHECK_INT(calls, 8);
        CHECK(eager || strstr(aril_model_eager_reason(m), "'weight', a tensor [1,3]"));
        aril_remove_hook(w, id);
        aril_model_fit(m, x, y, once);
        CHECK((aril_model_eager_reason(m) != NULL) == eager);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        weight[eager] = first_of(w);
        aril_model_free(m);
    }
    CHECK_MSG(weight[0] == weight[1], "%.9g and %.9g", weight[0], weight[1]);
}

/* ---- objects that end ---- */

typedef struct reads {
    aril_module *net;
    aril_optim *opt;
    aril_metric *metric;
    aril_generator *generator;
} reads;

static void use_module(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_forward(((reads *)ctx)->net, in[0]);
}

static void use_generator(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *noise =
        aril_randn_from(((reads *)ctx)->generator, ARIL_SHAPE(2, 300), ARIL_F32, test_device());
    out[0] = aril_add(in[0], noise);
}

static void use_optimizer(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const reads *r = ctx;
    out[0] = aril_mean(aril_forward(r->net, in[0]), ARIL_ALL);
    aril_backward(out[0]);
    aril_step(r->opt);
}

static void fails_after_release(aril_fn *fn, reads *r, aril_tensor *x, void (*release)(reads *r),
                                const char *what)
{
    ARIL_SCOPE;
    aril_tensor *out[1];
    aril_program *p = jit(fn, r);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    release(r);
    for (int i = 0; i < 50; i++) CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), what) && strstr(aril_error(), "released"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
}

static void release_net(reads *r)
{
    aril_module_release(r->net);
}

static void release_opt(reads *r)
{
    aril_optim_free(r->opt);
}

static void release_generator(reads *r)
{
    aril_generator_free(r->generator);
}

static aril_module *linear(void)
{
    aril_module *net = aril_nn_linear(300, 2);
    aril_module_build(net, ARIL_SHAPE(2, 300));
    aril_module_to(net, test_device());
    return net;
}

TEST(a_function_that_uses_what_was_released_fails)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 300), ARIL_F32, test_device());
    reads r = { .net = linear(), .generator = aril_generator_new(1) };
    r.opt = aril_adam(aril_parameters(r.net), (aril_adam_opts){ 0 });
    fails_after_release(use_optimizer, &r, x, release_opt, "optimizer");
    fails_after_release(use_generator, &r, x, release_generator, "generator");
    fails_after_release(use_module, &r, x, release_net, "module Linear");
}

TEST(a_frozen_program_outlives_its_modules)
{
    ARIL_SCOPE;
    reads r = { .net = linear() };
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 300), ARIL_F32, test_device()), *out[1], *want;
    aril_program *p = aril_jit(use_module, &r, (aril_jit_opts){ .freeze = true });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    want = out[0];
    aril_module_release(r.net);
    for (int i = 0; i < 50; i++) {
        ARIL_SCOPE;
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
        char *why = test_difference_in_value(out[0], want, 0, 0);
        CHECK_MSG(!why, "%s", why);
    }
    aril_tensor *wider = aril_ones(ARIL_SHAPE(3, 300), ARIL_F32, test_device());
    CHECK_INT(aril_program_run(p, ARIL_LIST(wider), out), ARIL_ERR_STATE); /* needs a new trace */
    aril_clear_error();
    aril_program_free(p);
}

/* ---- runs that fail ---- */

typedef struct training {
    aril_module *net;
    aril_optim *opt;
} training;

static void train_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const training *t = ctx;
    out[0] = aril_mean(aril_square(aril_sub(aril_forward(t->net, in[0]), in[1])), ARIL_ALL);
    aril_backward(out[0]);
    aril_step(t->opt);
    aril_optim_zero_grad(t->opt);
}

TEST(a_run_without_memory_changes_nothing)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_module *layer[] = { aril_nn_linear(20, 30), aril_nn_dropout(0.3), aril_nn_linear(30, 20) };
    training t = { .net = aril_nn_sequential_of(3, layer) };
    aril_module_build(t.net, ARIL_SHAPE(20, 20));
    aril_module_to(t.net, test_device());
    t.opt = aril_adam(aril_parameters(t.net), (aril_adam_opts){ .lr = 0.01 });
    aril_tensor *x = aril_ones(ARIL_SHAPE(20, 20), ARIL_F32, test_device()), *out[1];
    aril_tensor *w = aril_module_tensor(t.net, "2.weight"), *both[] = { x, x };
    aril_program *p = jit(train_step, &t);
    train_step(&t, both, out);
    for (int i = 0; i < 2; i++)
        CHECK_INT(aril_program_run(p, (aril_list){ 2, both }, out), ARIL_OK);
    bool failed = true;
    for (int n = 1; n < 100 && failed; n++) {
        aril_tensor *before = aril_copy(aril_detach(w));
        double steps = aril_item(aril_optim_steps(t.opt));
        uint64_t calls = aril_generator_state(aril_default_generator()).calls;
        aril_fail_allocation(n);
        failed = aril_program_run(p, (aril_list){ 2, both }, out) < 0;
        aril_fail_allocation(0);
        if (!failed) break;
        aril_clear_error();
        char *why = test_difference_in_value(aril_detach(w), before, 0, 0);
        CHECK_MSG(!why, "allocation %d: %s", n, why);
        CHECK(aril_item(aril_optim_steps(t.opt)) == steps);
        CHECK(aril_generator_state(aril_default_generator()).calls == calls);
        CHECK(!aril_has_grad(w));
    }
    CHECK(!failed);
    aril_program_free(p);
    aril_optim_free(t.opt);
    aril_module_release(t.net);
}

static void chain_without_memory(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    int *good = ctx;
    aril_fail_allocation(200);
    out[0] = in[0];
    for (int i = 0; i < 2000; i++) {
        ARIL_SCOPE;
        out[0] = aril_escape(aril_tanh(out[0]));
        *good += aril_tensor_status(out[0]) == ARIL_OK;
    }
    aril_fail_allocation(0);
    out[0] = aril_tanh(in[0]);
    *good += aril_tensor_status(out[0]) == ARIL_OK;
}

TEST(a_trace_without_memory_goes_on_with_nothing)
{
    ARIL_SCOPE;
    int good = 0;
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *out[1];
    aril_program *p = jit(chain_without_memory, &good);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_ERR_MEMORY);
    CHECK_MSG(good < 2000, "%d", good); /* nor does the last call, for which there is memory */
    aril_clear_error();
    aril_program_free(p);
}

/* ---- scopes ---- */

static aril_tensor *temporary(aril_tensor *x)
{
    ARIL_SCOPE;
    return aril_exp(x); /* which ends here */
}

static void use_temporary(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *t = temporary(in[0]);
    out[0] = ctx ? aril_add_scalar(t, 1) : t;
}

TEST(a_temporary_ends_with_its_scope_in_a_trace)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *out[1];
    for (int i = 0; i < 2; i++) {
        aril_program *p = jit(use_temporary, i ? x : NULL);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_ERR_STATE);
        CHECK_MSG(strstr(aril_error(), "after its scope ended"), "%s", aril_error());
        aril_clear_error();
        aril_program_free(p);
    }
}

/* ---- options ---- */

TEST(options_that_make_no_sense_are_errors)
{
    ARIL_SCOPE;
    const aril_shape one = ARIL_SHAPE(-1);
    const aril_jit_opts wrong[] = { { .max_results = -1 }, { .max_traces = -2 } };
    for (int i = 0; i < 2; i++) {
        CHECK(!aril_jit(forward_only, NULL, wrong[i]));
        CHECK_MSG(strstr(aril_error(), i ? "max_traces is -2" : "max_results is -1"), "%s",
                  aril_error());
        aril_clear_error();
    }
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device()), *out[1];
    aril_program *p = aril_jit(forward_only, x, (aril_jit_opts){ .sizes = &one, .n_sizes = 1 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, x), out), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "got 2 inputs, expected 1"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
}
