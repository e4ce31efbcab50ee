/* Misused models: callbacks that free, compile or evaluate their own model, objects passed twice,
 * results that match no sample. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N = 60, D = 4, C = 3 };

/* Points, and the index of the largest coordinate of each. */
static void points(aril_tensor **x, aril_tensor **y)
{
    aril_generator *g = aril_generator_new(5);
    *x = aril_randn_from(g, ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    *y = aril_argmax(aril_narrow(*x, 1, 0, C), ARIL_AXES(1));
    aril_generator_free(g);
}

static aril_optim *small_optim(void)
{
    return aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9 });
}

static aril_model *small_model(const char *metrics)
{
    aril_seed(3);
    aril_module *net = aril_nn_sequential(aril_nn_linear(D, 16), aril_nn_relu(),
                                          aril_nn_dropout(0.2), aril_nn_linear(16, C));
    aril_model *m = aril_model_new(net, ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .metrics = metrics,
                                             .optimizer = small_optim() });
    return m;
}

static void expect_message(const char *words)
{
    CHECK_MSG(!aril_ok() && strstr(aril_error(), words) != NULL, "'%s' does not say '%s'",
              aril_ok() ? "" : aril_error(), words);
    aril_clear_error();
}

static void refused(aril_model *m, aril_model_opts opts, const char *words)
{
    CHECK(aril_model_compile(m, opts) < 0);
    expect_message(words);
}

static void fit_refused(aril_model *m, aril_tensor *x, aril_tensor *y, aril_fit_opts opts,
                        const char *words)
{
    opts.verbose = ARIL_SILENT;
    CHECK(aril_model_fit(m, x, y, opts) == NULL);
    expect_message(words);
}

typedef struct meddling {
    aril_tensor *x, *y;
    int calls;
} meddling;

static aril_status evaluates(aril_fit *fit, void *ctx)
{
    meddling *m = ctx;
    double before = aril_fit_value(fit, "loss");
    double other = aril_model_evaluate(aril_fit_model(fit), m->x, m->y,
                                       (aril_eval_opts){ .verbose = ARIL_SILENT });
    m->calls++;
    bool seen = aril_model_value(aril_fit_model(fit), "loss") == other;
    return seen && other != before ? ARIL_OK : ARIL_ERR_STATE;
}

TEST(evaluation_in_a_callback_does_not_affect_the_epoch)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    aril_model *a = small_model("accuracy, f1"), *b = small_model("accuracy, f1");
    aril_fit_opts opts = { .epochs = 2, .batch_size = 12, .verbose = ARIL_SILENT };
    aril_seed(9);
    aril_history *h = aril_model_fit(a, x, y, opts);
    meddling m = { x, y, 0 };
    opts.callbacks = ARIL_CALLBACKS(aril_on_batch(evaluates, &m));
    aril_seed(9);
    aril_history *g = aril_model_fit(b, x, y, opts);
    CHECK_INT(m.calls, 10);
    static const char *const names[] = { "loss", "accuracy", "f1" };
    for (int i = 0; i < 6; i++)
        CHECK(aril_history_at(h, names[i % 3], i / 3) == aril_history_at(g, names[i % 3], i / 3));
    aril_tensor *p = aril_model_predict(a, x, (aril_eval_opts){ 0 });
    aril_tensor *q = aril_model_predict(b, x, (aril_eval_opts){ 0 });
    CHECK(memcmp(aril_data(p), aril_data(q), N * C * sizeof(float)) == 0);
    aril_model_free(a);
    aril_model_free(b);
}

static aril_status looks(aril_fit *fit, void *ctx)
{
    ++*(int *)ctx;
    (void)aril_fit_value(fit, "batch_loss");
    return ARIL_OK;
}

/* Also on a device that reports them later, to whoever reads a value first. */
TEST(errors_that_a_callback_ignores_end_the_fit)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    aril_tensor *wrong = aril_add_scalar(y, C);
    aril_model *m = small_model(NULL);
    int calls = 0;
    fit_refused(m, x, wrong, (aril_fit_opts){ .batch_size = 12 }, "out of range");
    fit_refused(m, x, wrong,
                (aril_fit_opts){ .batch_size = 12,
                                 .callbacks = ARIL_CALLBACKS(aril_on_batch(looks, &calls)) },
                "out of range");
    CHECK(calls > 0 || test_on_cpu());
    fit_refused(m, x, y, (aril_fit_opts){ .batch_size = 12, .validation = { x, wrong } },
                "out of range");
    CHECK(isnan(aril_model_evaluate(m, x, wrong, (aril_eval_opts){ .verbose = ARIL_SILENT })));
    expect_message("out of range");
    CHECK(isnan(aril_model_train_on_batch(m, x, wrong, NULL)));
    expect_message("out of range");
    aril_model_free(m);
}

static aril_status frees(aril_fit *fit, void *ctx)
{
    (void)ctx;
    aril_model_free(aril_fit_model(fit));
    return aril_error_code();
}

static aril_status compiles(aril_fit *fit, void *ctx)
{
    (void)ctx;
    return aril_model_compile(aril_fit_model(fit),
                              (aril_model_opts){ .loss = "mse",
                                                 .metrics = "mae, mse, rmse, r2",
                                                 .optimizer = small_optim() });
}

TEST(model_cannot_be_changed_during_fit)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    aril_model *m = small_model("accuracy");
    fit_refused(m, x, y,
                (aril_fit_opts){ .verbose = ARIL_SILENT,
                                 .callbacks = ARIL_CALLBACKS(aril_on_batch(frees, NULL)) },
                "free it when the fit has ended");
    fit_refused(m, x, y,
                (aril_fit_opts){ .verbose = ARIL_SILENT,
                                 .callbacks = ARIL_CALLBACKS(aril_on_batch(compiles, NULL)) },
                "compile it when the fit has ended");
    CHECK(aril_model_fit(m, x, y, (aril_fit_opts){ .verbose = ARIL_SILENT }) != NULL);
    aril_model_free(m);
}

TEST(objects_given_twice_are_freed_once)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    aril_model *m = small_model("accuracy");
    aril_callback *cb = aril_stop_on_nan();
    fit_refused(m, x, y, (aril_fit_opts){ .callbacks = ARIL_CALLBACKS(cb, cb) }, "are the same");
    /* The current optimizer, with another loss. */
    aril_optim *opt = aril_model_optim(m);
    CHECK_INT(aril_model_compile(m, (aril_model_opts){ .loss = "multi_margin", .optimizer = opt }),
              ARIL_OK);
    CHECK(aril_model_optim(m) == opt &&
          aril_model_fit(m, x, y, (aril_fit_opts){ .verbose = ARIL_SILENT }) != NULL);
    aril_metric *mine = aril_metric_new("accuracy", (aril_metric_opts){ 0 });
    refused(m, (aril_model_opts){ .loss = "cross_entropy", .own_metrics = { mine, mine } },
            "given twice");
    mine = aril_metric_new("accuracy", (aril_metric_opts){ 0 });
    refused(m, (aril_model_opts){ .loss = "no_loss", .own_metrics = { mine, mine } },
            "unknown loss");
    aril_model_free(m);
}

TEST(one_prediction_per_sample)
{
    ARIL_SCOPE;
    aril_model *m = aril_model_new(aril_nn_linear(4, 2), ARIL_SHAPE(4));
    aril_tensor *x = aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    CHECK(aril_model_predict(m, x, (aril_eval_opts){ 0 }) == NULL);
    CHECK(!aril_ok() && strstr(aril_error(), "a batch of 4 samples") != NULL);
    aril_clear_error();
    aril_model_free(m);
}

TEST(validating_on_the_training_loader_is_rejected)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    aril_model *m = small_model(NULL);
    aril_loader *l = aril_loader_new(aril_dataset_tensors(x, y), (aril_loader_opts){ .batch = 8 });
    CHECK(aril_model_fit_loader(m, l, (aril_fit_opts){ .validation_loader = l }) == NULL);
    CHECK(!aril_ok() && strstr(aril_error(), "a separate one") != NULL);
    aril_clear_error();
    fit_refused(m, x, y, (aril_fit_opts){ .validation = { NULL, y } }, ".validation");
    aril_loader_free(l);
    aril_model_free(m);
}

TEST(states_need_names)
{
    ARIL_SCOPE;
    aril_tensor *one = aril_ones(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    aril_metric *m = aril_metric_new("accuracy", (aril_metric_opts){ 0 });
    CHECK_INT(aril_metric_add(m, "n", one), ARIL_OK);
    CHECK_INT(aril_metric_add(m, NULL, one), ARIL_ERR_ARG);
    expect_message("name");
    CHECK_INT(aril_metric_set(m, NULL, one), ARIL_ERR_ARG);
    expect_message("name");
    CHECK_INT(aril_metric_add(m, NULL, NULL), ARIL_ERR_ARG);
    expect_message("NULL");
    CHECK(aril_metric_get(m, NULL) == NULL);
    const char *none = NULL;
    const aril_named nameless = { 1, &one, &none };
    CHECK_INT(aril_metric_load_state(m, &nameless), ARIL_ERR_ARG);
    expect_message("has no name");
    CHECK_INT(aril_metric_load_state(m, NULL), ARIL_ERR_ARG);
    expect_message("NULL");
    CHECK(aril_metric_get(m, "n") != NULL);
    CHECK_INT(aril_npz_write(temp_path("nameless.npz"), &nameless), ARIL_ERR_ARG);
    expect_message("has no name");
    aril_module *net = aril_nn_linear(1, 1);
    const aril_checkpoint_opts with = { .extra = &nameless },
                               by_number = { .extra = &(aril_named){ 1, &one, NULL } };
    CHECK_INT(aril_checkpoint_save_with(temp_path("named"), net, NULL, NULL, with), ARIL_ERR_ARG);
    expect_message("has no name");
    CHECK_INT(aril_checkpoint_save_with(temp_path("named"), net, NULL, NULL, by_number), ARIL_OK);
    CHECK_INT(aril_checkpoint_load_with(temp_path("named"), net, NULL, NULL, with), ARIL_ERR_ARG);
    expect_message("has no name");
    aril_module_release(net);
    aril_metric_free(m);
    aril_callback *cb = aril_stop_on_nan();
    CHECK_INT(aril_callback_set(cb, "n", one), ARIL_OK);
    CHECK_INT(aril_callback_set(cb, NULL, one), ARIL_ERR_ARG);
    expect_message("name");
    CHECK(aril_callback_get(cb, NULL) == NULL);
    aril_callback_free(cb);
    aril_clear_error();
}

TEST(buffers_of_invalid_dtype_or_shape)
{
    aril_tensor *buffer = NULL;
    CHECK(aril_batch_buffer(&buffer, (aril_dtype)-1, ARIL_SHAPE(2)) == NULL);
    expect_message("dtype");
    CHECK(aril_batch_buffer(&buffer, (aril_dtype)1000, ARIL_SHAPE(2)) == NULL);
    expect_message("dtype");
    CHECK(aril_batch_buffer(&buffer, ARIL_F32, (aril_shape){ .ndim = -1 }) == NULL);
    aril_clear_error();
    CHECK(aril_batch_buffer(&buffer, ARIL_F32, (aril_shape){ .ndim = 100 }) == NULL);
    aril_clear_error();
    CHECK(aril_batch_buffer(&buffer, ARIL_F32, ARIL_SHAPE(-3)) == NULL);
    aril_clear_error();
    CHECK(buffer == NULL);
}

/* ---- user functions that fail without an error message ---- */

static aril_tensor *gives_null(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)output, (void)target, (void)ctx;
    return NULL;
}

static aril_tensor *gives_nothing(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)target, (void)ctx;
    return aril_narrow(output, 0, 0, 0);
}

static aril_status update_fails(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                aril_tensor *weight)
{
    (void)m, (void)output, (void)target, (void)weight;
    return ARIL_ERR_IO;
}

static double no_value(aril_metric *m)
{
    (void)m;
    return 0;
}

static void own_loss_refused(aril_loss_fn *fn, aril_tensor *weight, const char *words)
{
    aril_tensor *x, *y;
    points(&x, &y);
    aril_model *m = small_model(NULL);
    CHECK_INT(aril_model_compile(m, (aril_model_opts){ .loss_fn = fn, .optimizer = small_optim() }),
              ARIL_OK);
    fit_refused(m, x, y, (aril_fit_opts){ .sample_weight = weight }, words);
    aril_model_free(m);
}

TEST(losses_and_metrics_that_return_null_are_reported)
{
    ARIL_SCOPE;
    aril_tensor *x, *y, *ones = aril_ones(ARIL_SHAPE(N), ARIL_F32, aril_cpu());
    points(&x, &y);
    own_loss_refused(gives_null, NULL, "returned NULL");
    own_loss_refused(gives_null, ones, "returned NULL");
    own_loss_refused(gives_nothing, NULL, "returned no value");
    own_loss_refused(gives_nothing, ones, "a loss for each sample");
    aril_model *m = small_model(NULL);
    fit_refused(m, x, y,
                (aril_fit_opts){ .sample_weight =
                                     aril_ones(ARIL_SHAPE(N, 2), ARIL_F32, aril_cpu()) },
                "one for each sample");
    static const aril_metric_class bad = { .name = "bad",
                                           .update = update_fails,
                                           .value = no_value };
    CHECK_INT(aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                                       .own_metrics = { aril_metric_make(
                                                           &bad, (aril_metric_opts){ 0 }) },
                                                       .optimizer = small_optim() }),
              ARIL_OK);
    fit_refused(m, x, y, (aril_fit_opts){ 0 }, "the metric bad could not be updated");
    aril_model_free(m);
    static const char *const labels[] = { "", "a,b", "a\nb", "\"a\"" };
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        CHECK(aril_metric_of(labels[i], gives_null, NULL) == NULL);
        expect_message("cannot label a metric");
    }
    aril_named none = { 4, NULL, NULL };
    aril_metric *metric = aril_metric_new("confusion", (aril_metric_opts){ 0 });
    CHECK(aril_metric_load_state(metric, &none) < 0);
    expect_message("NULL");
    /* A class far out of range does not allocate a table of that size. */
    CHECK_INT(aril_metric_update(metric, aril_ones(ARIL_SHAPE(3, 3), ARIL_F32, aril_cpu()),
                                 aril_full(ARIL_SHAPE(3), 1e15, ARIL_I64, aril_cpu()), NULL),
              ARIL_ERR_INDEX);
    expect_message("class 1000000000000000 is out of range");
    aril_metric_free(metric);
}

static int64_t nine(aril_dataset *self)
{
    (void)self;
    return 9;
}

static aril_status sets_nothing(aril_dataset *self, int64_t i, aril_sample *s)
{
    (void)self, (void)i, (void)s;
    return ARIL_OK;
}

static int one_more(aril_dataset *self, aril_sample *s)
{
    (void)self;
    s->x = aril_ones(ARIL_SHAPE(D), ARIL_F32, aril_cpu());
    s->y = aril_zeros(ARIL_SHAPE(), ARIL_I64, aril_cpu());
    return s->index < 4;
}

static aril_status no_second_epoch(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    (void)self, (void)seed;
    return epoch > 0 ? ARIL_ERR_IO : ARIL_OK;
}

static int64_t all_of(void *ctx, int64_t size)
{
    (void)ctx;
    return size;
}

static aril_status no_order(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                            int64_t *order)
{
    (void)ctx, (void)size, (void)seed, (void)epoch, (void)n, (void)order;
    return ARIL_ERR_STATE;
}

static void loader_refused(aril_loader *l, const char *words)
{
    aril_model *m = small_model(NULL);
    CHECK(l != NULL &&
          aril_model_fit_loader(m, l, (aril_fit_opts){ .epochs = 2, .verbose = ARIL_SILENT }) ==
              NULL);
    expect_message(words);
    aril_loader_free(l);
    aril_model_free(m);
}

TEST(datasets_that_fail_silently_are_reported)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    static const aril_dataset_class once = { .type = "Once",
                                             .next = one_more,
                                             .restart = no_second_epoch };
    loader_refused(aril_loader_new(aril_dataset_new("Nothing", 0, nine, sets_nothing),
                                   (aril_loader_opts){ .batch = 3 }),
                   "no samples");
    for (int workers = 0; workers < 3; workers += 2)
        loader_refused(aril_loader_new(aril_dataset_make(&once),
                                       (aril_loader_opts){ .batch = 2, .workers = workers }),
                       "Once could not start epoch 1");
    aril_sampler *sampler = aril_sampler_new((aril_sampler_class){ all_of, no_order, NULL }, NULL);
    loader_refused(aril_loader_new(aril_dataset_tensors(x, y),
                                   (aril_loader_opts){ .batch = 8, .sampler = sampler }),
                   "the sampler could not start epoch 0");
    aril_batch b;
    CHECK(!aril_loader_next(NULL, &b));
    expect_message("the loader is NULL");
    aril_transform_help(NULL);
    expect_message("NULL");
}

static void any_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out)
{
    (void)self, (void)n_in, (void)n_out;
    out[0] = in[0];
}

static aril_status build_fails(aril_module *self, int n_in, aril_tensor *const *in)
{
    (void)self, (void)n_in, (void)in;
    return ARIL_ERR_IO;
}

TEST(modules_called_with_invalid_lists)
{
    ARIL_SCOPE;
    static const aril_module_class late = { .type = "Late",
                                            .forward = any_forward,
                                            .build = build_fails };
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()), *out[2];
    aril_module *m = aril_module_make(&late);
    CHECK(aril_tensor_status(aril_forward(m, x)) == ARIL_ERR_IO);
    expect_message("build failed");
    aril_module_release(m);
    m = aril_nn_linear(3, 2);
    aril_list none = { 3, NULL };
    CHECK(aril_tensor_status(aril_forward_n(m, none)) < 0);
    expect_message("NULL");
    CHECK(aril_forward_all(m, none, 2, out) < 0);
    expect_message("NULL");
    CHECK(aril_summary_n(m, none, stdout, (aril_summary_opts){ 0 }) < 0);
    expect_message("the input is NULL");
    CHECK(aril_module_cost(m, ARIL_LIST(x), NULL) < 0);
    expect_message("pointer is NULL");
    aril_named nothing = { 3, NULL, NULL };
    CHECK(aril_load_state(m, &nothing, (aril_load_state_opts){ .partial = true }) < 0);
    expect_message("the state is NULL");
    CHECK(aril_nn_transformer_encoder(4, 2, INT32_MAX, (aril_nn_transformer_opts){ 0 }) == NULL);
    expect_message("expected 1 to 10000");
    aril_module_release(m);
}

TEST(failed_callback_is_rejected)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    points(&x, &y);
    aril_model *m = small_model(NULL);
    /* First, in the middle and last: the others are freed anyway. */
    for (int at = 0; at < 3; at++) {
        aril_callback *c[3] = { aril_stop_on_nan(), aril_stop_on_nan(), aril_stop_on_nan() };
        aril_callback_free(c[at]);
        c[at] = NULL;
        char words[40];
        snprintf(words, sizeof words, "callback %d is NULL", at);
        fit_refused(m, x, y, (aril_fit_opts){ .callbacks = ARIL_CALLBACKS(c[0], c[1], c[2]) },
                    words);
    }
    aril_callback_list many = { .n = ARIL_MAX_CALLBACKS + 1 };
    fit_refused(m, x, y, (aril_fit_opts){ .callbacks = many }, "25 callbacks");
    CHECK(aril_model_fit(m, x, y, (aril_fit_opts){ .verbose = ARIL_SILENT }) != NULL);
    aril_model_free(m);
}
