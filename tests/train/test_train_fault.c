/* Out of memory in a fit: allocations fail in turn. Nothing may crash or leak, and the next fit
 * gives the numbers of an undisturbed one. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 12, D = 3, C = 2 };

static aril_tensor *spread(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)target;
    (void)ctx;
    return aril_std(output, ARIL_AXES(1), 1);
}

/* The whole life of a model, with everything that a fit supports; NaN when it failed. */
static double story_of_one(const char *dir, bool resume)
{
    ARIL_SCOPE;
    aril_seed(4);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randint(0, C, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    aril_module *net = aril_nn_sequential(aril_nn_linear(0, 4), aril_nn_relu(),
                                          aril_nn_dropout(0.1), aril_nn_linear(0, C));
    aril_model *m = net != NULL ? aril_model_new(net, ARIL_SHAPE(D)) : NULL;
    aril_optim *opt = m != NULL ? aril_adam(NULL, (aril_adam_opts){ .lr = 0.05 }) : NULL;
    aril_metric *own = opt != NULL ? aril_metric_of("spread", spread, NULL) : NULL;
    aril_history *h = NULL;
    double value = NAN;
    if (own == NULL)
        aril_optim_free(opt);
    else if (aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                                      .metrics = "accuracy, f1, auc",
                                                      .own_metrics = { own },
                                                      .optimizer = opt }) == ARIL_OK) {
        aril_callback *early =
            aril_early_stop((aril_early_stop_opts){ .patience = 9, .restore_best = true });
        h = aril_model_fit(
            m, x, y,
            (aril_fit_opts){ .batch_size = 5,
                             .epochs = 2,
                             .validation_split = 0.25,
                             .verbose = ARIL_SILENT,
                             .callbacks = ARIL_CALLBACKS(early, aril_csv_log(temp_path("log.csv"))),
                             .checkpoint = { .dir = dir, .resume = resume } });
    }
    if (h != NULL) {
        aril_tensor *p = aril_model_predict(m, x, (aril_eval_opts){ .batch_size = 7 });
        if (p != NULL && aril_tensor_status(p) == ARIL_OK)
            value = aril_history_at(h, "val_loss", -1) + aril_history_at(h, "f1", 0) +
                    aril_item(aril_sum(p, ARIL_ALL));
    }
    aril_model_free(m);
    return value;
}

/* Two results from one input. */
static void twice_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                          aril_tensor **out)
{
    (void)n_in;
    out[0] = aril_forward(aril_module_child(self, 0), in[0]);
    if (n_out > 1) out[1] = aril_forward(aril_module_child(self, 1), in[0]);
}

static aril_module *twice_new(void)
{
    static const aril_module_class type = { .type = "Twice",
                                            .forward = twice_forward,
                                            .outputs = 2 };
    aril_module *m = aril_module_make(&type);
    if (m == NULL) return NULL;
    if (aril_module_add(m, "a", aril_nn_linear(0, C)) != NULL &&
        aril_module_add(m, "b", aril_nn_linear(0, 1)) != NULL)
        return m;
    aril_module_release(m);
    return NULL;
}

/* The same for a model with two outputs. */
static double story_of_outputs(const char *dir, bool resume)
{
    ARIL_SCOPE;
    aril_seed(4);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randint(0, C, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    aril_tensor *z = aril_randn(ARIL_SHAPE(N, 1), ARIL_F32, aril_cpu()), *out[2];
    aril_module *net = twice_new(), *loss = net != NULL ? aril_nn_loss("mse") : NULL;
    aril_model *m = net != NULL ? aril_model_new(net, ARIL_SHAPE(D)) : NULL;
    double value = NAN;
    aril_history *h = NULL;
    if (m != NULL && loss != NULL) {
        aril_status status = aril_model_compile(
            m, (aril_model_opts){
                   .outputs = { { .name = "a", .loss = "cross_entropy", .metrics = "accuracy" },
                                { .name = "b",
                                  .loss_module = loss,
                                  .weight = 0.5,
                                  .own_metrics = { aril_metric_of("spread", spread, NULL) } } },
                   .optimizer = aril_adam(NULL, (aril_adam_opts){ .lr = 0.05 }) });
        if (status == ARIL_OK && aril_model_optim(m) != NULL)
            h = aril_model_fit_n(m, ARIL_LIST(x), ARIL_LIST(y, z),
                                 (aril_fit_opts){ .batch_size = 5,
                                                  .epochs = 2,
                                                  .validation_split = 0.25,
                                                  .verbose = ARIL_SILENT,
                                                  .checkpoint = { .dir = dir, .resume = resume } });
    } else {
        aril_module_release(loss);
    }
    if (h != NULL && aril_model_predict_all(m, ARIL_LIST(x), 2, out,
                                            (aril_eval_opts){ .batch_size = 7 }) == ARIL_OK)
        value = aril_history_at(h, "val_loss", -1) + aril_history_at(h, "b_loss", 0) +
                aril_item(aril_sum(out[1], ARIL_ALL));
    aril_model_free(m);
    return value;
}

/* Makes allocation 1, 2, ... of a story fail, with growing steps unless ARIL_TEST_EXHAUSTIVE is
 * set. */
static void fail_in_turn(double (*story)(const char *dir, bool resume), bool checkpoint,
                         bool resume)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temp_path("run"));
    const char *dir = checkpoint ? folder : NULL;
    if (resume) CHECK(isfinite(story(dir, false)));
    double want = story(dir, resume);
    want = story(dir, resume); /* caches are warm now */
    CHECK_MSG(aril_ok() && isfinite(want), "%s", aril_error());
    int failures = 0, reported = 0;
    bool every = getenv("ARIL_TEST_EXHAUSTIVE") != NULL;
    for (int64_t n = 1; n < 1000000; n += every ? 1 : 1 + n / 50, failures++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        double got = story(dir, resume);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (!failed) break;
        if (!aril_ok())
            reported++;
        else
            CHECK_MSG(got == want, "allocation %lld failed without a word", (long long)n);
        aril_clear_error();
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %lld: %lld blocks leaked",
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_MSG(aril_memory(aril_cpu()).live == bytes, "allocation %lld: %lld bytes leaked",
                  (long long)n, (long long)(aril_memory(aril_cpu()).live - bytes));
        got = story(dir, resume);
        CHECK_MSG(aril_ok(), "after allocation %lld: %s", (long long)n, aril_error());
        CHECK_MSG(got == want, "other numbers after allocation %lld", (long long)n);
    }
    printf("      %d allocations, %d of them reported\n", failures, reported);
    CHECK(failures > 80 && reported > failures / 2);
}

TEST(allocations_of_a_fit_fail_in_turn)
{
    fail_in_turn(story_of_one, false, false);
}

TEST(allocations_of_a_checkpoint_fail_in_turn)
{
    fail_in_turn(story_of_one, true, false);
}

TEST(allocations_of_a_resumed_fit_fail_in_turn)
{
    fail_in_turn(story_of_one, true, true);
}

TEST(allocations_of_a_fit_of_several_outputs_fail_in_turn)
{
    fail_in_turn(story_of_outputs, false, false);
    fail_in_turn(story_of_outputs, true, true);
}
