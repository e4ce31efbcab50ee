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
        aril_model_compile(
            m, (aril_model_opts){ .loss = "mse",
                                  .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.001 }),
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
