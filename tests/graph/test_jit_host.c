/* Compiled functions and what they change besides tensors: averages, metrics, learning rates, kept
 * handles; and how many results they have. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_program *jit(aril_fn *fn, void *ctx)
{
    return aril_jit(fn, ctx, (aril_jit_opts){ .name = "test" });
}

static void check_error(aril_status got, aril_status want, const char *text)
{
    CHECK_INT(got, want);
    CHECK_MSG(strstr(aril_error(), text), "%s", aril_error());
    aril_clear_error();
}

static aril_tensor *ones(int64_t n)
{
    return aril_ones(ARIL_SHAPE(n), ARIL_F32, test_device());
}

/* Runs fn from a program, or as it is. */
static aril_status call(aril_program *p, aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor **out)
{
    if (p) return aril_program_run(p, ARIL_LIST(x), out);
    fn(ctx, &x, out);
    return aril_tensor_status(*out);
}

/* ---- results ---- */

enum { MANY = 70 };
static aril_tensor *weight[MANY];

static void many_gradients(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *y = in[0];
    for (int i = 0; i < MANY; i++) y = aril_mul(y, weight[i]);
    out[0] = aril_sum(y, ARIL_ALL);
    aril_gradients(out[0], (aril_list){ MANY, weight }, out + 1, (aril_grad_opts){ 0 });
}

TEST(a_function_may_have_many_results)
{
    ARIL_SCOPE;
    for (int i = 0; i < MANY; i++)
        weight[i] =
            aril_parameter(aril_full(ARIL_SHAPE(2), i == 3 ? 2 : 1, ARIL_F32, test_device()));
    aril_tensor *out[MANY + 1] = { NULL };
    aril_program *p = jit(many_gradients, NULL);
    CHECK_INT(aril_program_run(p, ARIL_LIST(ones(2)), out), ARIL_OK);
    CHECK_INT(aril_program_results(p), MANY + 1);
    CHECK(aril_item(out[0]) == 4);
    for (int i = 0; i < MANY; i++)
        CHECK(aril_item(aril_sum(out[1 + i], ARIL_ALL)) == (i == 3 ? 2 : 4));
    aril_program_free(p);
    for (int max = 1; max <= MANY; max += MANY - 1) {
        p = aril_jit(many_gradients, NULL, (aril_jit_opts){ .max_results = max });
        check_error(aril_program_run(p, ARIL_LIST(ones(2)), out), ARIL_ERR_ARG, ".max_results");
        aril_program_free(p);
    }
    for (int i = 0; i < MANY; i++) aril_release(weight[i]);
}

/* ---- averages ---- */

typedef struct averaged {
    aril_tensor *w;
    aril_average *mean;
} averaged;

static void average_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    averaged *a = ctx;
    {
        ARIL_NO_GRAD;
        aril_add_(a->w, in[0]);
    }
    aril_average_update(a->mean);
    out[0] = aril_copy(a->w);
}

/* The weight and its average after 4 steps, of which the first `eager` are not compiled. */
static void average(aril_average_opts opts, int eager, double *got)
{
    ARIL_SCOPE;
    averaged a = { .w = aril_parameter(aril_zeros(ARIL_SHAPE(1), ARIL_F32, test_device())) };
    a.mean = aril_average_new(ARIL_TENSORS(a.w), opts);
    aril_program *p = jit(average_step, &a);
    for (int i = 0; i < 4; i++) {
        aril_tensor *out;
        CHECK_INT(call(i < eager ? NULL : p, average_step, &a, ones(1), &out), ARIL_OK);
    }
    CHECK(aril_program_traces(p) == (eager < 4));
    const aril_named *state = aril_average_state(a.mean);
    CHECK(aril_item(state->at[0]) == 4);
    got[0] = aril_item(a.w);
    CHECK_INT(aril_average_swap(a.mean), ARIL_OK);
    got[1] = aril_item(a.w);
    aril_program_free(p);
    aril_average_free(a.mean);
    aril_release(a.w);
}

TEST(averages_count_in_a_compiled_step)
{
    const aril_average_opts opts[] = { { 0 }, { .decay = 0.5 }, { .equal = true } };
    const double mean[] = { 1.005996001, 3.125, 2.5 };
    for (int k = 0; k < 3; k++) {
        double want[2], got[2];
        average(opts[k], 4, want);
        CHECK_NEAR(want[1], mean[k], 1e-6);
        for (int eager = 0; eager < 3; eager++) {
            average(opts[k], eager, got);
            CHECK(got[0] == want[0] && got[1] == want[1]);
        }
    }
}

/* ---- learning rates ---- */

typedef struct rates {
    aril_tensor *w;
    aril_optim *opt;
    enum { EPOCH, COUNT, SET, WAYS } how;
    bool before; /* the step */
} rates;

static aril_status change_rate(const rates *r)
{
    switch (r->how) {
    case EPOCH: return aril_optim_epoch(r->opt, NAN);
    case COUNT: return aril_schedule_step(r->opt);
    default: return aril_optim_set_lr(r->opt, 0.01);
    }
}

static void rate_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    rates *r = ctx;
    aril_backward(aril_sum(aril_mul(r->w, in[0]), ARIL_ALL));
    if (r->before) change_rate(r);
    aril_step(r->opt);
    if (!r->before) change_rate(r);
    out[0] = aril_copy(r->w);
}

static void start_rates(rates *r)
{
    r->w = aril_parameter(aril_zeros(ARIL_SHAPE(1), ARIL_F32, test_device()));
    r->opt = aril_sgd(ARIL_TENSORS(r->w), (aril_sgd_opts){ .lr = 1 });
    if (r->how != SET)
        aril_optim_schedule(r->opt,
                            aril_exponential_schedule((aril_schedule_opts){ .gamma = 0.5 }));
}

static void end_rates(rates *r)
{
    aril_optim_free(r->opt);
    aril_release(r->w);
}

TEST(rates_that_change_after_a_step_hold_from_the_next_one)
{
    for (int how = 0; how < WAYS; how++) {
        double w[2][4], lr[2][4];
        for (int compiled = 0; compiled < 2; compiled++) {
            ARIL_SCOPE;
            rates r = { .how = how };
            start_rates(&r);
            aril_program *p = jit(rate_step, &r);
            for (int i = 0; i < 4; i++) {
                aril_tensor *out;
                CHECK_INT(call(compiled ? p : NULL, rate_step, &r, ones(1), &out), ARIL_OK);
                w[compiled][i] = aril_item(out);
                lr[compiled][i] = aril_item(aril_optim_lr(r.opt));
            }
            CHECK_INT(aril_program_traces(p), compiled);
            aril_program_free(p);
            end_rates(&r);
        }
        CHECK(memcmp(w[0], w[1], sizeof w[0]) == 0 && memcmp(lr[0], lr[1], sizeof lr[0]) == 0);
        CHECK(w[0][0] == -1 && w[0][1] > -2);
    }
}

TEST(a_step_after_its_rate_has_changed_is_refused)
{
    for (int how = 0; how < WAYS; how++) {
        ARIL_SCOPE;
        rates r = { .how = how, .before = true };
        start_rates(&r);
        aril_program *p = jit(rate_step, &r);
        aril_tensor *out;
        for (int i = 0; i < 2; i++)
            check_error(aril_program_run(p, ARIL_LIST(ones(1)), &out), ARIL_ERR_STATE,
                        "changed the learning rate before");
        CHECK(aril_item(aril_optim_lr(r.opt)) == 1);
        aril_program_free(p);
        end_rates(&r);
    }
}

/* ---- metrics ---- */

static void measure(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_metric_update(ctx, in[0], in[1], NULL);
    out[0] = aril_neg(in[0]);
}

static void reset_and_measure(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_metric_reset(ctx);
    measure(ctx, in, out);
}

/* Scores and targets that fit a metric. */
static void batch_for(const aril_metric *m, bool binary, aril_tensor **in)
{
    aril_device dev = test_device();
    bool classes = aril_metric_fits_classes(m);
    in[0] = aril_rand(classes && !binary ? ARIL_SHAPE(6, 3) : ARIL_SHAPE(6), ARIL_F32, dev);
    in[1] = classes ? aril_randint(0, binary ? 2 : 3, ARIL_SHAPE(6), ARIL_I64, dev)
                    : aril_rand(ARIL_SHAPE(6), ARIL_F32, dev);
}

/* The metric after 3 batches, a reset, and 3 more, of which the first `eager` are not compiled. */
static void measured(const char *name, bool binary, int eager, double *value)
{
    ARIL_SCOPE;
    aril_metric *m = aril_metric_new(name, (aril_metric_opts){ 0 });
    aril_program *p = jit(measure, m);
    aril_seed(1);
    for (int i = 0; i < 6; i++) {
        aril_tensor *in[2], *out;
        if (i == 3) aril_metric_reset(m);
        batch_for(m, binary, in);
        if (i < eager)
            measure(m, in, &out);
        else
            CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, &out), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s: %s", name, aril_error());
    }
    *value = aril_metric_value(m);
    aril_program_free(p);
    aril_metric_free(m);
}

TEST(metrics_are_updated_in_a_compiled_function)
{
    const char *const *names = aril_metric_names();
    for (int i = 0; names[i]; i++) {
        bool grows = strcmp(names[i], "auc") == 0, binary = false;
        if (grows) continue;
        double want = NAN, got = NAN;
        measured(names[i], binary, 6, &want);
        CHECK(!isnan(want));
        for (int eager = 0; eager < 3; eager += 2) {
            measured(names[i], binary, eager, &got);
            CHECK_NEAR(got, want, 1e-12);
        }
    }
}

TEST(metrics_that_a_program_cannot_update_are_refused)
{
    ARIL_SCOPE;
    aril_tensor *in[2], *out;
    aril_metric *auc = aril_metric_new("auc", (aril_metric_opts){ 0 });
    aril_program *p = jit(measure, auc);
    batch_for(auc, true, in);
    check_error(aril_program_run(p, (aril_list){ 2, in }, &out), ARIL_ERR_UNSUPPORTED,
                "its state grows");
    CHECK(isnan(aril_metric_value(auc)));
    aril_program_free(p);
    aril_metric_free(auc);

    aril_metric *mae = aril_metric_new("mae", (aril_metric_opts){ 0 });
    p = jit(reset_and_measure, mae);
    batch_for(mae, false, in);
    check_error(aril_program_run(p, (aril_list){ 2, in }, &out), ARIL_ERR_STATE, "metric_reset");
    aril_program_free(p);

    aril_graph *g = aril_graph_new("g");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(6), ARIL_F32);
    check_error(aril_metric_update(mae, x, in[1], NULL), ARIL_ERR_STATE, "while it is defined");
    aril_graph_free(g);
    aril_metric_free(mae);
}

TEST(a_wrong_class_fails_the_run_of_a_confusion_matrix)
{
    if (!test_on_cpu()) SKIP("a GPU notes a wrong index, and reports it later");
    ARIL_SCOPE;
    aril_metric *m = aril_metric_new("f1", (aril_metric_opts){ 0 });
    aril_program *p = jit(measure, m);
    aril_tensor *in[2], *out;
    batch_for(m, false, in);
    CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, &out), ARIL_OK);
    double before = aril_metric_value(m);
    in[1] = aril_add_scalar(in[1], 3);
    CHECK(aril_program_run(p, (aril_list){ 2, in }, &out) < 0);
    aril_clear_error();
    CHECK(aril_metric_value(m) == before);
    in[1] = aril_full_like(in[1], -1); /* ignored */
    CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, &out), ARIL_OK);
    CHECK(aril_metric_value(m) == before);
    aril_program_free(p);
    aril_metric_free(m);
}

/* ---- kept handles ---- */

static aril_tensor *carried;

static void carry(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    for (int i = 0; i < 3; i++) aril_set(&carried, aril_add(carried, in[0]));
    out[0] = aril_mul_scalar(carried, 1);
}

TEST(a_kept_tensor_is_not_replaced_by_a_traced_one)
{
    ARIL_SCOPE;
    carried = aril_keep(aril_full(ARIL_SHAPE(2), 5, ARIL_F32, test_device()));
    aril_program *p = jit(carry, NULL);
    aril_tensor *out;
    for (int i = 0; i < 2; i++) {
        check_error(aril_program_run(p, ARIL_LIST(ones(2)), &out), ARIL_ERR_STATE, "aril_copy_");
        CHECK(aril_item(aril_sum(carried, ARIL_ALL)) == 10);
    }
    aril_program_free(p);
    CHECK(aril_item(aril_sum(aril_neg(carried), ARIL_ALL)) == -10);
    aril_release(carried);
}

static void carry_inside(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *h = aril_keep(ctx);
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_set(&h, aril_reshape(aril_add(h, in[0]), ARIL_SHAPE(2)));
    }
    out[0] = aril_neg(h);
    aril_release(h);
}

TEST(a_handle_inside_the_function_carries_traced_tensors)
{
    ARIL_SCOPE;
    aril_tensor *start = ones(2), *out;
    aril_program *p = jit(carry_inside, start);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(aril_program_run(p, ARIL_LIST(ones(2)), &out), ARIL_OK);
        CHECK(aril_item(aril_sum(out, ARIL_ALL)) == -8);
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
}

/* ---- branches ---- */

static void backward_in_branch(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_sum(aril_mul(in[0], ctx), ARIL_ALL);
    aril_backward(out[0]);
}

static void branch_with_backward(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *positive = aril_gt_scalar(aril_sum(in[0], ARIL_ALL), 0);
    aril_cond(positive, backward_in_branch, backward_in_branch, ctx, ARIL_LIST(in[0]), 1, out);
}

TEST(backward_in_a_branch_is_refused_and_leaves_no_gradient)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(ones(2)), *out;
    aril_program *p = jit(branch_with_backward, w);
    check_error(aril_program_run(p, ARIL_LIST(ones(2)), &out), ARIL_ERR_STATE, "aril_gradients");
    CHECK(!aril_has_grad(w));
    CHECK_INT(aril_backward(aril_sum(w, ARIL_ALL)), ARIL_OK);
    CHECK(aril_item(aril_sum(aril_grad(w), ARIL_ALL)) == 2);
    aril_program_free(p);
    aril_release(w);
}

/* ---- graphs that are defined ---- */

TEST(training_inside_a_defined_graph_is_refused)
{
    ARIL_SCOPE;
    aril_module *net = aril_nn_sequential(aril_nn_linear(4, 3), aril_nn_batch_norm1d(3));
    aril_module_to(net, test_device());
    aril_graph *g = aril_graph_new("net");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, 4), ARIL_F32);
    check_error(aril_tensor_status(aril_forward(net, x)), ARIL_ERR_STATE, "aril_module_eval");
    aril_module_eval(net);
    aril_tensor *loss = aril_mean(aril_forward(net, x), ARIL_ALL);
    CHECK_INT(aril_tensor_status(loss), ARIL_OK);
    check_error(aril_backward(loss), ARIL_ERR_STATE, "aril_gradients");
    const aril_named *w = aril_parameters(net);
    for (int i = 0; i < w->n; i++) CHECK(!aril_has_grad(w->at[i]));
    aril_graph_free(g);
    aril_module_release(net);
}
