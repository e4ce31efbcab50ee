/* Models compiled with .autocast: the module runs in bf16, everything around it in f32. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N = 120, D = 5, C = 3 };

/* Clusters of points, and their classes. */
static void clouds(aril_tensor **x, aril_tensor **y)
{
    aril_generator *g = aril_generator_new(5);
    aril_tensor *noise = aril_randn_from(g, ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_generator_free(g);
    int64_t truth[N];
    for (int i = 0; i < N; i++) truth[i] = i % C;
    *y = aril_from(truth, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    aril_tensor *centre = aril_cast(aril_one_hot(*y, D), ARIL_F32);
    *x = aril_add(aril_mul_scalar(centre, 3), aril_mul_scalar(noise, 0.7));
}

/* What the module's hook saw. */
static aril_dtype seen;

static void look(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                 void *ctx)
{
    (void)m, (void)n_in, (void)in, (void)n_out, (void)ctx;
    seen = aril_dtype_of(out[0]);
}

static aril_module *net_new(void)
{
    aril_seed(3);
    aril_module *net =
        aril_nn_sequential(aril_nn_linear(D, 16), aril_nn_relu(), aril_nn_linear(16, C));
    aril_module_hook_after(net, look, NULL);
    return net;
}

static aril_model *model_new(aril_dtype autocast)
{
    aril_model *m = aril_model_new(net_new(), ARIL_SHAPE(D));
    aril_optim *opt = aril_adam(NULL, (aril_adam_opts){ .lr = 0.02 });
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .metrics = "accuracy",
                                             .optimizer = opt,
                                             .autocast = autocast });
    return m;
}

static const aril_fit_opts quiet = {
    .batch_size = 24, .epochs = 6, .verbose = ARIL_SILENT, .no_shuffle = true
};

TEST(fit_evaluate_and_predict_run_under_autocast)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = model_new(ARIL_BF16);
    CHECK(aril_model_fit(m, x, y, quiet) != NULL);
    CHECK_INT(seen, ARIL_BF16);
    seen = ARIL_I8;
    double loss = aril_model_evaluate(m, x, y, (aril_eval_opts){ .verbose = ARIL_SILENT });
    CHECK_INT(seen, ARIL_BF16);
    CHECK(loss < 0.5);
    CHECK(aril_model_value(m, "accuracy") > 0.9);
    seen = ARIL_I8;
    aril_tensor *out = aril_model_predict(m, x, (aril_eval_opts){ 0 });
    CHECK_INT(seen, ARIL_BF16);
    CHECK_INT(aril_dtype_of(out), ARIL_F32);
    CHECK_NEAR(aril_item(aril_cross_entropy(out, test_there(y))), loss, 1e-5);
    const aril_named *p = aril_parameters(aril_model_module(m));
    for (int i = 0; i < p->n; i++) CHECK_INT(aril_dtype_of(p->at[i]), ARIL_F32);
    CHECK_INT(aril_autocast_dtype(test_device()), ARIL_F32);
    CHECK_STR(aril_error(), "");
    aril_model_free(m);
}

/* As a loop with the guard around the forward pass, and the loss in f32. */
TEST(fit_is_bitwise_the_same_as_a_manual_loop)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = model_new(ARIL_BF16);
    CHECK(aril_model_fit(m, x, y, quiet) != NULL);
    aril_module *net = net_new();
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 0.02 });
    aril_tensor *on_x = test_there(x), *on_y = test_there(y);
    for (int64_t i = 0; i < quiet.epochs * N; i += quiet.batch_size) {
        ARIL_SCOPE;
        int64_t from = i % N, to = from + quiet.batch_size;
        aril_tensor *out;
        {
            ARIL_AUTOCAST(ARIL_BF16);
            out = aril_forward(net, aril_slice(on_x, 0, from, to, 1));
        }
        aril_tensor *part = aril_slice(on_y, 0, from, to, 1);
        aril_backward(aril_cross_entropy(aril_cast(out, ARIL_F32), part));
        aril_step(opt);
    }
    const aril_named *p = aril_parameters(net), *q = aril_parameters(aril_model_module(m));
    for (int i = 0; i < p->n; i++)
        CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(p->at[i], q->at[i])), ARIL_ALL)), 0, 0);
    CHECK_STR(aril_error(), "");
    aril_optim_free(opt);
    aril_module_release(net);
    aril_model_free(m);
}

/* Without the option, the caller's region holds; with ARIL_F32 it does not. */
TEST(the_option_has_the_last_word)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    static const aril_dtype option[] = { 0, ARIL_F32, ARIL_F16 };
    static const aril_dtype want[] = { ARIL_BF16, ARIL_F32, ARIL_F16 };
    for (int i = 0; i < 3; i++) {
        aril_model *m = model_new(option[i]);
        ARIL_AUTOCAST(ARIL_BF16);
        aril_model_evaluate(m, x, y, (aril_eval_opts){ .verbose = ARIL_SILENT });
        CHECK_INT(seen, want[i]);
        aril_model_free(m);
    }
    CHECK_STR(aril_error(), "");
}

TEST(compile_refuses_other_dtypes)
{
    ARIL_SCOPE;
    aril_model *m = model_new(ARIL_I32);
    CHECK_INT(aril_error_code(), ARIL_ERR_DTYPE);
    CHECK_MSG(strstr(aril_error(), "autocast is to ARIL_BF16 or ARIL_F16"), "%s", aril_error());
    aril_clear_error();
    CHECK(isnan(aril_model_evaluate(m, aril_zeros(ARIL_SHAPE(2, D), ARIL_F32, aril_cpu()),
                                    aril_zeros(ARIL_SHAPE(2), ARIL_I64, aril_cpu()),
                                    (aril_eval_opts){ .verbose = ARIL_SILENT })));
    aril_clear_error();
    aril_model_free(m);
}
