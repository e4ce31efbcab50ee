/* Models with several inputs and outputs: a fit gives the bits of a hand-written loop, each output
 * has its loss, weight, metrics and targets, and errors are reported. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N = 90, D = 6, C = 3, BATCH = 16, EPOCHS = 3 };

/* A trunk with two heads: class scores [N,C] and a value [N,1]; the third result is the trunk's
 * output. */
struct heads {
    aril_module *trunk, *side, *kind, *size;
};

static void heads_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                          aril_tensor **out)
{
    struct heads *m = aril_module_data(self);
    aril_tensor *h = aril_relu(aril_forward(m->trunk, in[0]));
    if (n_in > 1 && in[1] != NULL) h = aril_add(h, aril_forward(m->side, in[1]));
    out[0] = aril_forward(m->kind, h);
    if (n_out > 1) out[1] = aril_forward(m->size, h);
    if (n_out > 2) out[2] = h;
}

static aril_module *heads_new(bool two_inputs)
{
    static const aril_module_class type = { .type = "Heads",
                                            .size = sizeof(struct heads),
                                            .forward = heads_forward,
                                            .inputs = 2,
                                            .outputs = 3 };
    aril_seed(4);
    aril_module *self = aril_module_make(&type);
    struct heads *m = aril_module_data(self);
    m->trunk = aril_module_add(self, "trunk",
                               aril_nn_sequential(aril_nn_linear(0, 12), aril_nn_dropout(0.2),
                                                  aril_nn_batch_norm1d(0)));
    if (two_inputs) m->side = aril_module_add(self, "side", aril_nn_linear(0, 12));
    m->kind = aril_module_add(self, "kind", aril_nn_linear(0, C));
    m->size = aril_module_add(self, "size", aril_nn_linear(0, 1));
    return self;
}

typedef struct data {
    aril_tensor *x, *side, *kind, *size;
} data;

static data samples(void)
{
    aril_generator *g = aril_generator_new(11);
    data d;
    d.x = aril_randn_from(g, ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    d.side = aril_randn_from(g, ARIL_SHAPE(N, 2), ARIL_F32, aril_cpu());
    d.kind = aril_argmax(aril_narrow(d.x, 1, 0, C), ARIL_AXES(1));
    d.size = aril_sum(d.x, ARIL_KEEPDIM(1));
    aril_generator_free(g);
    return d;
}

static aril_optim *optim(const aril_named *params)
{
    return aril_sgd(params, (aril_sgd_opts){ .lr = 0.05, .momentum = 0.9 });
}

/* A loss of 1 * cross entropy + 0.3 * squared error. */
static aril_model_opts two_outputs(aril_optim *opt)
{
    return (aril_model_opts){
        .outputs = { { .name = "kind", .loss = "cross_entropy", .metrics = "accuracy" },
                     { .name = "size", .loss = "mse", .weight = 0.3, .metrics = "mae, r2" } },
        .optimizer = opt
    };
}

static aril_model *heads_model(bool two_inputs)
{
    aril_model *m =
        aril_model_new(heads_new(two_inputs), two_inputs ? ARIL_SHAPE() : ARIL_SHAPE(D));
    if (aril_model_compile(m, two_outputs(optim(NULL))) == ARIL_OK) return m;
    test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_model_free(m);
    return NULL;
}

static bool same_weights(aril_module *a, aril_module *b)
{
    const aril_named *p = aril_state(a), *q = aril_state(b);
    if (p == NULL || q == NULL || p->n != q->n) return false;
    for (int i = 0; i < p->n; i++) {
        ARIL_SCOPE;
        size_t size = (size_t)aril_numel(p->at[i]) * aril_dtype_size(aril_dtype_of(p->at[i]));
        if (memcmp(aril_data(p->at[i]), aril_data(q->at[i]), size) != 0) return false;
    }
    return true;
}

/* ---- the loop ---- */

typedef struct sums {
    double loss, kind, size;
} sums;

/* One epoch of a hand-written loop; accumulates the losses of the samples. */
static sums epoch_by_hand(aril_module *net, aril_optim *opt, aril_loader *l)
{
    sums s = { 0 };
    int64_t n = 0;
    for (aril_batch b; aril_loader_next(l, &b); n += b.n) {
        ARIL_SCOPE;
        aril_tensor *out[2];
        aril_forward_all(net, ARIL_LIST(test_there(b.x)), 2, out);
        aril_tensor *kind = aril_cross_entropy(out[0], test_there(b.y));
        aril_tensor *size = aril_mse_loss(out[1], test_there(b.extra_y[0]));
        aril_tensor *loss = aril_add(kind, aril_mul_scalar(size, 0.3));
        aril_backward(loss);
        aril_step(opt);
        s.loss += (double)b.n * aril_item(loss);
        s.kind += (double)b.n * aril_item(kind);
        s.size += (double)b.n * aril_item(size);
    }
    return (sums){ s.loss / (double)n, s.kind / (double)n, s.size / (double)n };
}

TEST(fit_is_bitwise_the_same_as_a_manual_loop)
{
    ARIL_SCOPE;
    data d = samples();
    aril_module *net = heads_new(false);
    CHECK_INT(aril_module_build(net, ARIL_SHAPE(D)), ARIL_OK);
    aril_optim *opt = optim(aril_parameters(net));
    aril_loader *l =
        aril_loader_new(aril_dataset_tensor_lists(ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size), NULL),
                        (aril_loader_opts){ .batch = BATCH, .shuffle = true, .seed = 2 });
    aril_seed(8);
    sums by_hand[EPOCHS];
    for (int i = 0; i < EPOCHS; i++) by_hand[i] = epoch_by_hand(net, opt, l);

    aril_model *m = heads_model(false);
    CHECK(m != NULL);
    aril_seed(8);
    aril_history *h = aril_model_fit_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size),
                                       (aril_fit_opts){ .batch_size = BATCH,
                                                        .epochs = EPOCHS,
                                                        .seed = 2,
                                                        .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK(same_weights(net, aril_model_module(m)));
    for (int i = 0; i < EPOCHS; i++) {
        CHECK_NEAR(aril_history_at(h, "loss", i), by_hand[i].loss, 0);
        CHECK_NEAR(aril_history_at(h, "kind_loss", i), by_hand[i].kind, 0);
        CHECK_NEAR(aril_history_at(h, "size_loss", i), by_hand[i].size, 0);
    }
    /* And one more batch, with both. */
    aril_tensor *x = aril_narrow(d.x, 0, 0, 9), *kind = aril_narrow(d.kind, 0, 0, 9),
                *size = aril_narrow(d.size, 0, 0, 9), *out[2];
    aril_seed(5);
    aril_forward_all(net, ARIL_LIST(test_there(x)), 2, out);
    aril_tensor *loss = aril_add(aril_cross_entropy(out[0], test_there(kind)),
                                 aril_mul_scalar(aril_mse_loss(out[1], test_there(size)), 0.3));
    aril_backward(loss);
    aril_step(opt);
    aril_seed(5);
    CHECK_NEAR(aril_model_train_on_batch_n(m, ARIL_LIST(x), ARIL_LIST(kind, size), NULL),
               aril_item(loss), 0);
    CHECK(same_weights(net, aril_model_module(m)));
    aril_loader_free(l);
    aril_optim_free(opt);
    aril_module_release(net);
    aril_model_free(m);
}

/* ---- metrics ---- */

TEST(columns_values_and_predictions_of_all_outputs)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *m = heads_model(false);
    CHECK(m != NULL);
    FILE *f = fopen(temp_path("progress.txt"), "w+");
    aril_history *h = aril_model_fit_n(
        m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size),
        (aril_fit_opts){ .epochs = 30,
                         .validation_n = { ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size) },
                         .verbose = 2,
                         .output = f,
                         .callbacks = ARIL_CALLBACKS(
                             aril_save_best(temp_path("best.safetensors"),
                                            (aril_monitor){ .name = "val_size_loss" })) });
    CHECK_MSG(h != NULL, "%s", aril_error());
    static const char *const names[] = { "loss",
                                         "kind_loss",
                                         "size_loss",
                                         "kind_accuracy",
                                         "size_mae",
                                         "size_r2",
                                         "val_loss",
                                         "val_kind_loss",
                                         "val_size_loss",
                                         "val_kind_accuracy",
                                         "val_size_mae",
                                         "val_size_r2",
                                         "lr" };
    CHECK_INT(aril_history_columns(h), 13);
    for (int i = 0; i < 13; i++) CHECK_STR(aril_history_name(h, i), names[i]);
    static char text[8192];
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const char *shown = strstr(text, "  loss ");
    CHECK_MSG(shown != NULL && strstr(shown, "  kind_loss ") != NULL &&
                  strstr(shown, "  size_loss ") != NULL && strstr(shown, "  size_mae ") != NULL &&
                  strstr(shown, "  val_kind_accuracy ") != NULL,
              "%s", text);
    CHECK(aril_history_at(h, "kind_accuracy", -1) > 0.8);
    CHECK(aril_history_best(h, "size_mae") > 10 && aril_history_best(h, "val_size_r2") > 10);

    double loss = aril_model_evaluate_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size),
                                        (aril_eval_opts){ .verbose = ARIL_SILENT });
    CHECK_NEAR(loss, aril_history_at(h, "val_loss", -1), 1e-6);
    CHECK_NEAR(aril_model_value(m, "kind_loss") + 0.3 * aril_model_value(m, "size_loss"), loss,
               1e-6);
    aril_tensor *out[3];
    CHECK_INT(aril_model_predict_all(m, ARIL_LIST(d.x), 3, out,
                                     (aril_eval_opts){ .batch_size = 20 }),
              ARIL_OK);
    CHECK_INT(aril_size(out[0], 0), N);
    CHECK_INT(aril_size(out[0], 1), C);
    CHECK_INT(aril_size(out[1], 1), 1);
    CHECK_INT(aril_size(out[2], 1), 12);
    CHECK_NEAR(aril_item(aril_cross_entropy(out[0], test_there(d.kind))),
               aril_model_value(m, "kind_loss"), 1e-6);
    CHECK_NEAR(aril_item(aril_mean(aril_abs(aril_sub(out[1], test_there(d.size))), ARIL_ALL)),
               aril_model_value(m, "size_mae"), 1e-5);
    aril_tensor *first = aril_model_predict(m, d.x, (aril_eval_opts){ .batch_size = 20 });
    CHECK(memcmp(aril_data(first), aril_data(out[0]), N * C * sizeof(float)) == 0);
    CHECK(aril_model_metric(m, "kind_accuracy") != NULL);
    CHECK(isnan(aril_model_value(m, "accuracy")));
    CHECK_MSG(strstr(aril_error(), "loss, kind_loss, size_loss, kind_accuracy") != NULL, "%s",
              aril_error());
    aril_clear_error();
    aril_model_free(m);
}

static aril_tensor *absolute(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)ctx;
    return aril_abs(aril_sub(output, target));
}

static aril_tensor *far_off(aril_tensor *output, aril_tensor *target, void *ctx)
{
    return aril_squeeze(absolute(output, target, ctx), ARIL_AXES(1));
}

TEST(custom_losses_default_names_and_no_loss)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *m = aril_model_new(heads_new(false), ARIL_SHAPE(D));
    /* Without names; the second only has metrics; the third is not compared at all. */
    CHECK_MSG(aril_model_compile(
                  m,
                  (aril_model_opts){
                      .outputs = { { .loss_module = aril_nn_loss("cross_entropy") },
                                   { .loss_fn = absolute,
                                     .weight = ARIL_ZERO,
                                     .own_metrics = { aril_metric_of("off", far_off, NULL) } },
                                   { .name = "features" } },
                      .optimizer = optim(NULL) }) == ARIL_OK,
              "%s", aril_error());
    aril_tensor *before = aril_copy(aril_module_tensor(aril_model_module(m), "size.weight"));
    aril_history *h = aril_model_fit_n(
        m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size),
        (aril_fit_opts){ .epochs = 2, .validation_split = 0.2, .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    static const char *const names[] = { "loss", "out1_loss", "out2_loss", "out2_off", "val_loss" };
    for (int i = 0; i < 5; i++) CHECK_STR(aril_history_name(h, i), names[i]);
    for (int i = 0; i < 2; i++)
        CHECK_NEAR(aril_history_at(h, "loss", i), aril_history_at(h, "out1_loss", i), 0);
    CHECK_NEAR(aril_history_at(h, "out2_loss", 1), aril_history_at(h, "out2_off", 1), 1e-5);
    /* An output with weight 0 trains nothing. */
    aril_tensor *after = aril_module_tensor(aril_model_module(m), "size.weight");
    CHECK(memcmp(aril_data(before), aril_data(after), 12 * sizeof(float)) == 0);
    aril_model_free(m);
}

TEST(sample_weights_apply_to_every_output)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *m = heads_model(false);
    CHECK(m != NULL);
    aril_tensor *w =
        aril_cast(aril_lt_scalar(aril_arange(0, N, 1, ARIL_F32, aril_cpu()), 30), ARIL_F32);
    aril_eval_opts quiet = { .verbose = ARIL_SILENT }, weighted = quiet;
    weighted.sample_weight = w;
    double part = aril_model_evaluate_n(
        m, ARIL_LIST(aril_narrow(d.x, 0, 0, 30)),
        ARIL_LIST(aril_narrow(d.kind, 0, 0, 30), aril_narrow(d.size, 0, 0, 30)), quiet);
    double kind = aril_model_value(m, "kind_loss"), size = aril_model_value(m, "size_loss");
    CHECK_NEAR(aril_model_evaluate_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size), weighted), part,
               1e-5);
    CHECK_NEAR(aril_model_value(m, "kind_loss"), kind, 1e-5);
    CHECK_NEAR(aril_model_value(m, "size_loss"), size, 1e-5);
    aril_model_free(m);
}

/* ---- several inputs, loaders, checkpoints ---- */

static aril_loader *pairs(const data *d)
{
    return aril_loader_new(aril_dataset_tensor_lists(ARIL_LIST(d->x, d->side),
                                                     ARIL_LIST(d->kind, d->size), NULL),
                           (aril_loader_opts){ .batch = BATCH, .shuffle = true, .workers = 2 });
}

TEST(several_inputs_and_outputs_by_lists_and_loaders)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *a = heads_model(true), *b = heads_model(true);
    CHECK(a != NULL);
    aril_fit_opts opts = { .batch_size = BATCH, .epochs = EPOCHS, .verbose = ARIL_SILENT };
    aril_seed(8);
    CHECK_MSG(aril_model_fit_n(a, ARIL_LIST(d.x, d.side), ARIL_LIST(d.kind, d.size), opts) != NULL,
              "%s", aril_error());
    aril_loader *l = pairs(&d);
    aril_seed(8);
    CHECK_MSG(aril_model_fit_loader(b, l, opts) != NULL, "%s", aril_error());
    CHECK(same_weights(aril_model_module(a), aril_model_module(b)));
    aril_tensor *out[2];
    CHECK_INT(aril_model_predict_all_loader(b, l, 2, out, (aril_eval_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_size(out[1], 0), N);
    CHECK(aril_model_evaluate_loader(b, l, (aril_eval_opts){ .verbose = ARIL_SILENT }) > 0);
    aril_loader_free(l);
    aril_model_free(a);
    aril_model_free(b);
}

static aril_status stop_at(aril_fit *fit, void *ctx)
{
    return aril_fit_step(fit) == *(int *)ctx ? ARIL_ERR_STATE : ARIL_OK;
}

TEST(fit_resumes_in_the_middle_of_an_epoch)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *a = heads_model(true), *b = heads_model(true), *c = heads_model(true);
    CHECK(a != NULL);
    aril_fit_opts opts = { .batch_size = BATCH, .epochs = EPOCHS, .verbose = ARIL_SILENT };
    aril_list x = ARIL_LIST(d.x, d.side), y = ARIL_LIST(d.kind, d.size);
    aril_seed(8);
    aril_history *full = aril_model_fit_n(a, x, y, opts);
    int at = 9; /* in the second epoch of six batches */
    opts.checkpoint = (aril_fit_checkpoint){ .dir = temp_path("run"), .every_batches = 4 };
    opts.callbacks = ARIL_CALLBACKS(aril_on_batch(stop_at, &at));
    aril_seed(8);
    CHECK(aril_model_fit_n(b, x, y, opts) == NULL);
    aril_clear_error();
    at = -1;
    opts.checkpoint.resume = true;
    opts.callbacks = ARIL_CALLBACKS(aril_on_batch(stop_at, &at));
    aril_history *h = aril_model_fit_n(c, x, y, opts);
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK(same_weights(aril_model_module(a), aril_model_module(c)));
    for (int i = 0; i < aril_history_columns(full); i++)
        for (int row = 0; row < EPOCHS; row++)
            CHECK_NEAR(aril_history_at(h, aril_history_name(full, i), row),
                       aril_history_at(full, aril_history_name(full, i), row), 0);
    aril_model_free(a);
    aril_model_free(b);
    aril_model_free(c);
}

TEST(optimizers_with_closures)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *m = aril_model_new(heads_new(false), ARIL_SHAPE(D));
    CHECK_INT(aril_model_compile(m, two_outputs(aril_lbfgs(NULL, (aril_lbfgs_opts){ 0 }))),
              ARIL_OK);
    aril_history *h =
        aril_model_fit_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size),
                         (aril_fit_opts){ .batch_size = N, .epochs = 3, .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK(aril_history_at(h, "loss", 2) < aril_history_at(h, "loss", 0));
    CHECK_NEAR(aril_history_at(h, "kind_loss", 2) + 0.3 * aril_history_at(h, "size_loss", 2),
               aril_history_at(h, "loss", 2), 1e-6);
    aril_model_free(m);
}

/* A checkpoint stores columns of any name. */
TEST(long_names_can_be_resumed)
{
    ARIL_SCOPE;
    data d = samples();
    char label[300];
    memset(label, 'm', sizeof label - 1);
    label[sizeof label - 1] = '\0';
    for (int resume = 0; resume < 2; resume++) {
        aril_model *m = aril_model_new(heads_new(false), ARIL_SHAPE(D));
        CHECK_INT(
            aril_model_compile(
                m,
                (aril_model_opts){
                    .outputs = { { .name = "kind",
                                   .loss = "cross_entropy",
                                   .own_metrics = { aril_metric_new(
                                       "accuracy", (aril_metric_opts){ .label = label }) } } },
                    .optimizer = optim(NULL) }),
            ARIL_OK);
        aril_history *h = aril_model_fit(m, d.x, d.kind,
                                         (aril_fit_opts){ .epochs = 1 + resume,
                                                          .verbose = ARIL_SILENT,
                                                          .checkpoint = { .dir = temp_path("run"),
                                                                          .resume = resume } });
        CHECK_MSG(h != NULL, "%s", aril_error());
        CHECK_INT(aril_history_columns(h), 4);
        CHECK_INT(aril_history_epochs(h), 1 + resume);
        char column[400];
        snprintf(column, sizeof column, "kind_%s", label);
        CHECK(isfinite(aril_history_at(h, column, 0)));
        aril_model_free(m);
    }
}

TEST(a_summary_shows_all_outputs)
{
    ARIL_SCOPE;
    aril_module *net = heads_new(false);
    aril_cost cost;
    CHECK_INT(aril_module_cost(net, ARIL_LIST(aril_ones(ARIL_SHAPE(1, D), ARIL_F32, test_device())),
                               &cost),
              ARIL_OK);
    CHECK_INT(cost.parameters, 12 * D + 12 + 2 * 12 + C * 12 + C + 12 + 1);
    CHECK_MSG(cost.flop >= 2.0 * (12 * D + C * 12 + 12), "%g", cost.flop);
    FILE *f = fopen(temp_path("summary.txt"), "w+");
    CHECK_INT(aril_summary(net, ARIL_SHAPE(D), f), ARIL_OK);
    static char text[8192];
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const char *row = strstr(text, "size (Linear)");
    CHECK_MSG(row != NULL && strstr(row, "(None, 1)") != NULL, "%s", text);
    aril_module_release(net);
}

/* ---- errors ---- */

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

TEST(invalid_outputs)
{
    ARIL_SCOPE;
    aril_model *m = aril_model_new(heads_new(false), ARIL_SHAPE(D));
    aril_output_opts mse = { .loss = "mse" };
    refused(m, (aril_model_opts){ .loss = "mse", .outputs = { mse } },
            "leave .loss and .metrics unset");
    refused(m, (aril_model_opts){ .metrics = "mae", .outputs = { mse } },
            "leave .loss and .metrics unset");
    refused(m, (aril_model_opts){ .outputs = { mse, mse, mse, mse } }, "has 3");
    refused(m, (aril_model_opts){ .outputs = { { .name = "a" }, { .name = "b" } } },
            "none of the model's outputs has a loss");
    refused(m,
            (aril_model_opts){
                .outputs = { { .name = "a", .loss = "mse" }, { .name = "a", .loss = "mse" } } },
            "both named");
    static const char *const bad[] = { "", "val_a", "val", "batch", "a b", "a,b" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(m, (aril_model_opts){ .outputs = { { .name = bad[i], .loss = "mse" } } },
                "cannot name an output");
    refused(m, (aril_model_opts){ .outputs = { { .loss = "mse", .weight = NAN } } }, "weight");
    refused(m, (aril_model_opts){ .outputs = { { .loss = "no_such" } } }, "unknown loss");
    refused(m,
            (aril_model_opts){
                .outputs = { { .loss = "mse", .loss_module = aril_nn_loss("mse") } } },
            "several losses");
    refused(m, (aril_model_opts){ .outputs = { { .loss = "mse", .metrics = "no_such" } } },
            "no metric");
    refused(m, (aril_model_opts){ .outputs = { mse, { .name = "b", .metrics = "mae" } } },
            "no target for the metric");
    refused(m,
            (aril_model_opts){
                .outputs = { { .loss = "mse",
                               .own_metrics = { aril_metric_of("loss", absolute, NULL) } } } },
            "cannot be named 'out1_loss'");
    aril_module *same = aril_nn_loss("mse");
    refused(m, (aril_model_opts){ .outputs = { { .loss_module = same }, { .loss_module = same } } },
            "aril_module_keep");
    aril_metric *twice = aril_metric_of("near", absolute, NULL);
    refused(m,
            (aril_model_opts){ .outputs = { { .loss = "mse", .own_metrics = { twice, twice } } } },
            "given twice");
    CHECK(aril_model_compile(NULL, (aril_model_opts){
                                       .outputs = { { .loss_module = aril_nn_loss("mse"),
                                                      .own_metrics = { aril_metric_of(
                                                          "near", absolute, NULL) } } } }) < 0);
    expect_message("got NULL");
    aril_model_free(m);
    /* A module with one result. */
    m = aril_model_new(aril_nn_linear(2, 2), ARIL_SHAPE(2));
    refused(m, (aril_model_opts){ .outputs = { mse, mse } }, "has 1");
    aril_model_free(m);
}

static aril_tensor *two_results(aril_module *self, aril_tensor *x)
{
    (void)self;
    return x;
}

TEST(mismatched_targets)
{
    ARIL_SCOPE;
    data d = samples();
    aril_model *m = heads_model(false);
    CHECK(m != NULL);
    aril_fit_opts quiet = { .verbose = ARIL_SILENT };
    CHECK(aril_model_fit(m, d.x, d.kind, quiet) == NULL);
    expect_message("no targets for the output \"size\"");
    CHECK(aril_model_fit_n(m, ARIL_LIST(d.x), ARIL_LIST(NULL, d.size), quiet) == NULL);
    expect_message("no targets for the output \"kind\"");
    CHECK(aril_model_fit_n(m, ARIL_LIST(d.x), (aril_list){ 0 }, quiet) == NULL);
    expect_message("NULL for y");
    CHECK(aril_model_fit_n(m, (aril_list){ -1, NULL }, ARIL_LIST(d.kind, d.size), quiet) == NULL);
    expect_message("NULL for x");
    CHECK(aril_model_fit_n(m, (aril_list){ 99, &d.x }, ARIL_LIST(d.kind, d.size), quiet) == NULL);
    expect_message("too many inputs");
    CHECK(aril_model_fit_n(m, ARIL_LIST(d.x), (aril_list){ 99, &d.kind }, quiet) == NULL);
    expect_message("too many targets");
    CHECK(aril_model_fit_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, aril_narrow(d.size, 0, 0, 5)),
                           quiet) == NULL);
    expect_message("extra_y[0]");
    CHECK(isnan(aril_model_train_on_batch(m, d.x, d.kind, NULL)));
    expect_message("no targets for the output \"size\"");
    CHECK(isnan(aril_model_train_on_batch_n(m, (aril_list){ 0 }, ARIL_LIST(d.kind), NULL)));
    expect_message("inputs");
    CHECK(isnan(aril_model_train_on_batch_n(m, ARIL_LIST(d.x), (aril_list){ -2, NULL }, NULL)));
    expect_message("targets");
    CHECK(isnan(aril_model_evaluate_n(m, ARIL_LIST(d.x), (aril_list){ 0 },
                                      (aril_eval_opts){ .verbose = ARIL_SILENT })));
    expect_message("no targets");
    quiet.class_weight = aril_ones(ARIL_SHAPE(C), ARIL_F32, aril_cpu());
    CHECK(aril_model_fit_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size), quiet) == NULL);
    expect_message(".class_weight");
    quiet.class_weight = NULL;
    quiet.validation_n = (aril_samples_n){ ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size) };
    quiet.validation = (aril_samples){ d.x, d.kind };
    CHECK(aril_model_fit_n(m, ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size), quiet) == NULL);
    expect_message("got both");
    aril_tensor *out[3];
    CHECK(aril_model_predict_all(m, ARIL_LIST(d.x), 0, out, (aril_eval_opts){ 0 }) < 0);
    expect_message("expected 1 to");
    CHECK(aril_model_predict_all(m, ARIL_LIST(d.x), 2, NULL, (aril_eval_opts){ 0 }) < 0);
    expect_message("expected 1 to");
    CHECK(aril_model_predict_all(m, (aril_list){ 0 }, 2, out, (aril_eval_opts){ 0 }) < 0);
    expect_message("NULL");
    CHECK(aril_model_predict_all(NULL, ARIL_LIST(d.x), 2, out, (aril_eval_opts){ 0 }) < 0);
    expect_message("NULL");
    aril_model_free(m);
    /* A module that claims to have more results than it sets. */
    m = aril_model_new(aril_module_new("One", 0, two_results), ARIL_SHAPE(D));
    CHECK(aril_model_predict_all(m, ARIL_LIST(d.x), 2, out, (aril_eval_opts){ 0 }) < 0);
    expect_message("no output 2");
    aril_model_free(m);
}

TEST(mixup_rejects_further_targets)
{
    ARIL_SCOPE;
    data d = samples();
    aril_loader *l = aril_loader_new(
        aril_dataset_tensor_lists(ARIL_LIST(d.x), ARIL_LIST(d.kind, d.size), NULL),
        (aril_loader_opts){ .batch = 8, .batch_transform = aril_transform_mixup(0.2, 3) });
    CHECK_MSG(l != NULL, "%s", aril_error());
    aril_batch b;
    CHECK(!aril_loader_next(l, &b));
    expect_message("further targets");
    aril_loader_free(l);
}
