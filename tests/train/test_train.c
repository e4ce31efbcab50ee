/* Models: a fit gives the same numbers as a hand-written loop, sample and class weights follow
 * their formulas, and callbacks, history and validation work as documented. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 210, D = 5, C = 3 };

/* Three clusters of points, and their classes. */
static void clouds(aril_tensor **x, aril_tensor **y)
{
    aril_generator *g = aril_generator_new(5);
    int64_t truth[N];
    float centre[N * D];
    for (int i = 0; i < N; i++) {
        truth[i] = (i * 7 + i / 11) % C;
        for (int k = 0; k < D; k++) centre[i * D + k] = k == truth[i] ? 2.0f : 0.0f;
    }
    *y = aril_from(truth, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    *x = aril_add(aril_from(centre, ARIL_SHAPE(N, D), ARIL_F32, aril_cpu()),
                  aril_mul_scalar(aril_randn_from(g, ARIL_SHAPE(N, D), ARIL_F32, aril_cpu()), 0.7));
    aril_generator_free(g);
}

static aril_module *small_net(void)
{
    aril_seed(3);
    return aril_nn_sequential(aril_nn_linear(0, 16), aril_nn_relu(), aril_nn_dropout(0.2),
                              aril_nn_linear(0, C));
}

static aril_optim *small_optim(const aril_named *params)
{
    return aril_sgd(params,
                    (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9, .nesterov = true, .decay = 1e-3 });
}

static aril_model *small_model(const char *metrics)
{
    aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .metrics = metrics,
                                             .optimizer = small_optim(NULL) });
    return m;
}

/* Whether all parameters and buffers have the same bits. */
static bool same_weights(aril_module *a, aril_module *b)
{
    const aril_named *p = aril_state(a), *q = aril_state(b);
    if (p == NULL || q == NULL || p->n != q->n) return false;
    for (int i = 0; i < p->n; i++) {
        ARIL_SCOPE;
        size_t size = (size_t)aril_numel(p->at[i]) * aril_dtype_size(aril_dtype_of(p->at[i]));
        if (strcmp(p->name[i], q->name[i]) != 0 ||
            memcmp(aril_data(p->at[i]), aril_data(q->at[i]), size) != 0)
            return false;
    }
    return true;
}

static const aril_fit_opts quiet = {
    .batch_size = 16, .epochs = 3, .verbose = ARIL_SILENT, .seed = 9
};

/* ---- the loop ---- */

TEST(fit_is_bitwise_the_same_as_a_manual_loop)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_module *net = small_net();
    aril_module_build(net, ARIL_SHAPE(D));
    aril_optim *opt = small_optim(aril_parameters(net));
    aril_loader *batches =
        aril_loader_new(aril_dataset_tensors(x, y),
                        (aril_loader_opts){ .batch = 16, .shuffle = true, .seed = 9 });
    for (int epoch = 0; epoch < 3; epoch++)
        for (aril_batch b; aril_loader_next(batches, &b);) {
            ARIL_SCOPE;
            aril_backward(aril_cross_entropy(aril_forward(net, test_there(b.x)), test_there(b.y)));
            aril_step(opt);
        }

    aril_model *m = small_model("accuracy, f1");
    aril_history *h = aril_model_fit(m, x, y, quiet);
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK(same_weights(net, aril_model_module(m)));

    /* and so does a fit on the loader, in one call or epoch by epoch, with validation and callbacks
     * in between */
    aril_model *by_loader = small_model("accuracy");
    aril_loader_seek(batches, (aril_loader_position){ 9, 0, 0 });
    CHECK(aril_model_fit_loader(by_loader, batches,
                                (aril_fit_opts){ .epochs = 3,
                                                 .verbose = ARIL_SILENT,
                                                 .validation = { x, y } }) != NULL);
    CHECK(same_weights(net, aril_model_module(by_loader)));
    aril_model *by_epoch = small_model(NULL);
    for (int epoch = 0; epoch < 3; epoch++) {
        aril_fit_opts opts = quiet;
        opts.initial_epoch = epoch;
        opts.epochs = epoch + 1;
        opts.callbacks = ARIL_CALLBACKS(aril_stop_on_nan());
        h = aril_model_fit(by_epoch, x, y, opts);
        CHECK_INT(aril_history_epochs(h), 1);
        CHECK_INT(aril_history_epoch(h, 0), epoch);
    }
    CHECK(same_weights(net, aril_model_module(by_epoch)));
    aril_model_free(m);
    aril_model_free(by_loader);
    aril_model_free(by_epoch);
    aril_loader_free(batches);
    aril_optim_free(opt);
    aril_module_release(net);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(gradient_accumulation)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_module *net = aril_nn_sequential(aril_nn_linear(D, C));
    aril_optim *opt = aril_sgd(aril_parameters(net), (aril_sgd_opts){ .lr = 0.1 });
    aril_model *m = aril_model_new(aril_nn_sequential(aril_nn_linear(D, C)), ARIL_SHAPE(D));
    aril_load_state(aril_model_module(m), aril_state(net), (aril_load_state_opts){ 0 });
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }) });
    aril_tensor *on_x = test_there(x), *on_y = test_there(y);
    /* 210 samples in batches of 32 are 7 batches: groups of 3, 3 and 1 */
    for (int64_t at = 0; at < N; at += 96) {
        for (int64_t from = at; from < at + 96 && from < N; from += 32) {
            ARIL_SCOPE;
            aril_tensor *loss =
                aril_cross_entropy(aril_forward(net, aril_slice(on_x, 0, from, from + 32, 1)),
                                   aril_slice(on_y, 0, from, from + 32, 1));
            aril_backward(at < 192 ? aril_mul_scalar(loss, 1.0 / 3) : loss);
        }
        aril_step(opt);
    }
    aril_history *h = aril_model_fit(m, x, y,
                                     (aril_fit_opts){ .batch_size = 32,
                                                      .accumulate = 3,
                                                      .no_shuffle = true,
                                                      .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK(same_weights(net, aril_model_module(m)));
    aril_model_free(m);
    aril_optim_free(opt);
    aril_module_release(net);
}

TEST(fit_learns_and_reports_metrics)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = small_model("accuracy, confusion, top2");
    aril_fit_opts opts = quiet;
    opts.epochs = 12;
    opts.validation_split = 0.2;
    aril_history *h = aril_model_fit(m, x, y, opts);
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK_INT(aril_history_epochs(h), 12);
    /* a confusion table has no column */
    const char *const names[] = { "loss",         "accuracy", "top2", "val_loss",
                                  "val_accuracy", "val_top2", "lr" };
    CHECK_INT(aril_history_columns(h), 7);
    for (int i = 0; i < 7; i++) CHECK_STR(aril_history_name(h, i), names[i]);
    CHECK(aril_history_at(h, "loss", -1) < 0.5 * aril_history_at(h, "loss", 0));
    CHECK_MSG(aril_history_at(h, "val_accuracy", -1) > 0.9, "%g",
              aril_history_at(h, "val_accuracy", -1));

    CHECK_NEAR(aril_model_value(m, "accuracy"), aril_history_at(h, "val_accuracy", -1), 0);
    /* the last validation equals evaluating its samples, which are the last 42 */
    aril_tensor *xv = aril_narrow(x, 0, 168, 42), *yv = aril_narrow(y, 0, 168, 42);
    double loss = aril_model_evaluate(m, xv, yv,
                                      (aril_eval_opts){ .verbose = ARIL_SILENT, .batch_size = 16 });
    CHECK_NEAR(loss, aril_history_at(h, "val_loss", -1), 0);
    CHECK_NEAR(aril_model_value(m, "accuracy"), aril_history_at(h, "val_accuracy", -1), 0);
    CHECK_NEAR(aril_model_value(m, "confusion"), aril_model_value(m, "accuracy"), 0);
    CHECK(aril_module_training(aril_model_module(m)));
    aril_tensor *table = aril_metric_table(aril_model_metric(m, "confusion"));
    CHECK_NEAR(aril_item(aril_sum(table, ARIL_ALL)), 42, 0);

    /* predictions equal the module's in evaluation mode, in order */
    aril_tensor *p = aril_model_predict(m, xv, (aril_eval_opts){ .batch_size = 10 });
    aril_module_eval(aril_model_module(m));
    aril_tensor *direct = aril_forward(aril_model_module(m), test_there(xv));
    CHECK_INT(aril_size(p, 0), 42);
    double scale = aril_item(aril_amax(aril_abs(direct), ARIL_ALL)); /* sums differ by batch size */
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(p, direct)), ARIL_ALL)) / scale, 0, 1e-6);
    CHECK_NEAR(loss, aril_item(aril_cross_entropy(direct, test_there(yv))), 1e-6);
    CHECK(!aril_requires_grad(p));
    aril_model_free(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(loss_is_the_mean_over_all_samples)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = small_model("accuracy");
    double want = 0;
    for (int64_t batch = 1; batch <= 256; batch *= 4) { /* 210 samples: the last batch is smaller */
        double loss =
            aril_model_evaluate(m, x, y,
                                (aril_eval_opts){ .verbose = ARIL_SILENT, .batch_size = batch });
        if (batch == 1) want = loss;
        CHECK_NEAR(loss, want, 1e-6);
    }
    aril_model_free(m);
}

/* ---- weights ---- */

TEST(sample_and_class_weights)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    float each[N];
    const float by_class[C] = { 0.5f, 2, 0 };
    for (int i = 0; i < N; i++) each[i] = (float)(i % 4);
    aril_tensor *w = aril_from(each, ARIL_SHAPE(N), ARIL_F32, aril_cpu());
    aril_tensor *cw = aril_from(by_class, ARIL_SHAPE(C), ARIL_F32, aril_cpu());
    aril_module *net = small_net();
    aril_module_build(net, ARIL_SHAPE(D));
    aril_module_eval(net);
    aril_tensor *on_x = test_there(x), *on_y = test_there(y), *on_w = test_there(w);
    aril_tensor *scores = aril_forward(net, on_x);
    aril_tensor *losses =
        aril_cross_entropy_with(scores, on_y, (aril_cross_entropy_opts){ .reduction = ARIL_NONE });
    double weighted =
        aril_item(aril_sum(aril_mul(losses, on_w), ARIL_ALL)) / aril_item(aril_sum(w, ARIL_ALL));

    aril_model *m = small_model(NULL);
    double got =
        aril_model_evaluate(m, x, y,
                            (aril_eval_opts){ .verbose = ARIL_SILENT, .sample_weight = w });
    CHECK_NEAR(got, weighted, 1e-6);
    got = aril_model_evaluate(
        m, x, y, (aril_eval_opts){ .verbose = ARIL_SILENT, .sample_weight = w, .batch_size = 50 });
    CHECK_NEAR(got, weighted, 1e-6);
    aril_model_free(m);

    /* and in validation */
    m = small_model(NULL);
    aril_fit_opts opts = {
        .batch_size = 32, .verbose = ARIL_SILENT, .validation = { x, y }, .validation_weight = w
    };
    aril_history *weighted_history = aril_model_fit(m, x, y, opts);
    got = aril_model_evaluate(m, x, y,
                              (aril_eval_opts){ .verbose = ARIL_SILENT, .sample_weight = w });
    CHECK_NEAR(aril_history_at(weighted_history, "val_loss", 0), got, 1e-6);
    aril_model_free(m);

    /* class weights: one batch of all samples gives PyTorch's weighted mean */
    aril_module *plain = aril_nn_sequential(aril_nn_linear(D, C));
    aril_optim *opt = aril_sgd(aril_parameters(plain), (aril_sgd_opts){ .lr = 0.1 });
    m = aril_model_new(aril_nn_sequential(aril_nn_linear(D, C)), ARIL_SHAPE(D));
    aril_load_state(aril_model_module(m), aril_state(plain), (aril_load_state_opts){ 0 });
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }) });
    aril_tensor *loss =
        aril_cross_entropy_with(aril_forward(plain, on_x), on_y,
                                (aril_cross_entropy_opts){ .weight = test_there(cw) });
    double want = aril_item(loss);
    aril_backward(loss);
    aril_step(opt);
    aril_history *h = aril_model_fit(m, x, y,
                                     (aril_fit_opts){ .batch_size = N,
                                                      .verbose = ARIL_SILENT,
                                                      .no_shuffle = true,
                                                      .class_weight = cw });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK_NEAR(aril_history_at(h, "loss", 0), want, 1e-6);
    aril_tensor *a = aril_parameters(plain)->at[0],
                *b = aril_parameters(aril_model_module(m))->at[0];
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(a, b)), ARIL_ALL)), 0, 1e-7);

    /* weight 0 is the same as leaving a sample out */
    aril_module *net0 = aril_model_module(m);
    float keep[N];
    for (int i = 0; i < N; i++) keep[i] = i < 100;
    aril_load_state(net0, aril_state(plain), (aril_load_state_opts){ 0 });
    double loss0 =
        aril_model_train_on_batch(m, x, y, aril_from(keep, ARIL_SHAPE(N), ARIL_F32, aril_cpu()));
    CHECK_NEAR(loss0,
               aril_item(aril_cross_entropy(aril_forward(plain, aril_narrow(on_x, 0, 0, 100)),
                                            aril_narrow(on_y, 0, 0, 100))),
               1e-6);
    /* a batch with all weights 0 changes nothing */
    aril_load_state(net0, aril_state(plain), (aril_load_state_opts){ 0 });
    CHECK_NEAR(aril_model_train_on_batch(m, x, y, aril_zeros(ARIL_SHAPE(N), ARIL_F32, aril_cpu())),
               0, 0);
    CHECK(same_weights(net0, plain));
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_model_free(m);
    aril_optim_free(opt);
    aril_module_release(plain);
    aril_module_release(net);
}

TEST(class_weights_of_elements)
{
    ARIL_SCOPE;
    aril_seed(6);
    aril_tensor *x = aril_randn(ARIL_SHAPE(8, 2, 4, 4), ARIL_F32, aril_cpu()); /* [N,2,H,W] */
    aril_tensor *y = aril_randint(0, C, ARIL_SHAPE(8, 4, 4), ARIL_I64, aril_cpu());
    aril_tensor *cw = aril_from((float[]){ 1, 3, 0.5f }, ARIL_SHAPE(C), ARIL_F32, aril_cpu());
    aril_model *m = aril_model_new(aril_nn_conv2d(2, C, 1), ARIL_SHAPE(2, 4, 4));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .metrics = "accuracy",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }) });
    aril_tensor *scores = aril_forward(aril_model_module(m), test_there(x)), *on_y = test_there(y);
    double want =
        aril_item(aril_cross_entropy_with(scores, on_y,
                                          (aril_cross_entropy_opts){ .weight = test_there(cw) }));
    double hits = aril_item(
        aril_mean(aril_cast(aril_eq(aril_argmax(scores, ARIL_AXES(1)), on_y), ARIL_F64), ARIL_ALL));
    aril_history *h = aril_model_fit(
        m, x, y, (aril_fit_opts){ .batch_size = 8, .verbose = ARIL_SILENT, .class_weight = cw });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK_NEAR(aril_history_at(h, "loss", 0), want, 1e-6);
    CHECK_NEAR(aril_history_at(h, "accuracy", 0), hits, 1e-12);
    aril_model_free(m);
}

/* ---- other losses, optimizers and inputs ---- */

static aril_tensor *squared(aril_tensor *output, aril_tensor *target, void *ctx)
{
    ++*(int *)ctx;
    return aril_square(aril_sub(output, target));
}

TEST(custom_losses)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(40, 3), ARIL_F32, aril_cpu()),
                *y = aril_mul_scalar(aril_narrow(x, 1, 0, 1), 3);
    int calls = 0;
    double last[3];
    for (int form = 0; form < 3; form++) {
        aril_seed(1);
        aril_model *m = aril_model_new(aril_nn_linear(3, 1), ARIL_SHAPE(3));
        aril_optim *opt = aril_adam(NULL, (aril_adam_opts){ .lr = 0.05 });
        aril_model_opts opts[] = {
            { .loss = "mse", .optimizer = opt },
            { .loss_fn = squared, .loss_ctx = &calls, .optimizer = opt },
            { .loss_module = form == 2 ? aril_nn_loss("mse") : NULL, .optimizer = opt },
        };
        CHECK_INT(aril_model_compile(m, opts[form]), ARIL_OK);
        aril_history *h =
            aril_model_fit(m, x, y,
                           (aril_fit_opts){ .epochs = 5, .batch_size = 8, .verbose = ARIL_SILENT });
        CHECK_MSG(h != NULL, "%s", aril_error());
        last[form] = aril_history_at(h, "loss", -1);
        CHECK(last[form] < aril_history_at(h, "loss", 0));
        aril_model_free(m);
    }
    CHECK_INT(calls, 25);
    CHECK_NEAR(last[1], last[0], 1e-9);
    CHECK_NEAR(last[2], last[0], 0);
}

TEST(targets_with_and_without_a_last_dimension)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(40, 3), ARIL_F32, aril_cpu()),
                *y = aril_mul_scalar(aril_narrow(x, 1, 0, 1), 3), /* [40,1] */
                    *flat = aril_reshape(y, ARIL_SHAPE(40)), *ones = aril_ones_like(flat);
    for (int form = 0; form < 3; form++) {
        aril_model *m = aril_model_new(aril_nn_linear(3, 1), ARIL_SHAPE(3));
        CHECK_INT(aril_model_compile(m, form == 2
                                            ? (aril_model_opts){ .loss_module = aril_nn_loss("l1") }
                                            : (aril_model_opts){ .loss = "l1" }),
                  ARIL_OK);
        aril_eval_opts opts = { .verbose = ARIL_SILENT, .sample_weight = form == 1 ? ones : NULL };
        double want = aril_model_evaluate(m, x, y, opts);
        CHECK_NEAR(aril_model_evaluate(m, x, flat, opts), want, 0);
        CHECK(aril_ok());
        aril_model_free(m);
    }
}

static aril_tensor *sigmoid(aril_module *self, aril_tensor *x)
{
    (void)self;
    return aril_sigmoid(x);
}

TEST(binary_classification_by_logits_and_probabilities)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_tensor *yes = aril_cast(aril_eq_scalar(y, 1), ARIL_F32);
    for (int shares = 0; shares < 2; shares++) {
        aril_seed(2);
        aril_module *net =
            shares
                ? aril_nn_sequential(aril_nn_linear(D, 1), aril_module_new("Sigmoid", 0, sigmoid),
                                     aril_nn_flatten_with(0, -1))
                : aril_nn_sequential(aril_nn_linear(D, 1), aril_nn_flatten_with(0, -1));
        aril_model *m = aril_model_new(net, ARIL_SHAPE(D));
        aril_model_compile(m, (aril_model_opts){
                                  .loss = shares ? "bce" : "bce_with_logits",
                                  .metrics = "accuracy, precision, recall, f1, auc",
                                  .optimizer = aril_adam(NULL, (aril_adam_opts){ .lr = 0.05 }) });
        aril_history *h =
            aril_model_fit(m, x, yes,
                           (aril_fit_opts){ .epochs = 15, .verbose = ARIL_SILENT, .seed = 1 });
        CHECK_MSG(h != NULL, "%s", aril_error());
        CHECK_MSG(aril_history_at(h, "accuracy", -1) > 0.93, "accuracy %g",
                  aril_history_at(h, "accuracy", -1));
        CHECK_MSG(aril_history_at(h, "auc", -1) > 0.97, "auc %g", aril_history_at(h, "auc", -1));
        double p = aril_history_at(h, "precision", -1), r = aril_history_at(h, "recall", -1);
        CHECK_NEAR(aril_history_at(h, "f1", -1), 2 * p * r / (p + r), 1e-12);
        aril_model_free(m);
    }
}

TEST(lbfgs_and_schedules)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(40, 3), ARIL_F32, aril_cpu()),
                *y = aril_mul_scalar(aril_narrow(x, 1, 0, 1), 3);
    aril_model *m = aril_model_new(aril_nn_linear(3, 1), ARIL_SHAPE(3));
    aril_model_compile(m, (aril_model_opts){ .loss = "mse",
                                             .metrics = "mae",
                                             .optimizer =
                                                 aril_lbfgs(NULL, (aril_lbfgs_opts){ .lr = 1 }) });
    aril_history *h =
        aril_model_fit(m, x, y,
                       (aril_fit_opts){ .epochs = 3, .batch_size = 40, .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK_MSG(aril_history_at(h, "loss", -1) < 1e-6, "%g", aril_history_at(h, "loss", -1));
    aril_model_compile(m,
                       (aril_model_opts){ .loss = "mse",
                                          .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }),
                                          .schedule = aril_step_schedule(
                                              (aril_schedule_opts){ .every = 2, .gamma = 0.5 }) });
    h = aril_model_fit(m, x, y, (aril_fit_opts){ .epochs = 5, .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    const double rate[] = { 0.1, 0.1, 0.05, 0.05, 0.025 };
    for (int i = 0; i < 5; i++) CHECK_NEAR(aril_history_at(h, "lr", i), rate[i], 1e-12);
    aril_model_free(m);
}

/* A module with two inputs, and one whose sizes come from the first batch. */
struct pair {
    aril_module *a, *b;
};

static aril_tensor *pair_forward(aril_module *self, aril_list in)
{
    struct pair *p = aril_module_data(self);
    return aril_add(aril_forward(p->a, in.at[0]), aril_forward(p->b, in.at[1]));
}

TEST(several_inputs_of_inferred_sizes)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_module *net = aril_module_new_n("Pair", sizeof(struct pair), pair_forward);
    struct pair *p = aril_module_data(net);
    p->a = aril_module_add(net, "a", aril_nn_linear(0, C));
    p->b = aril_module_add(net, "b", aril_nn_linear(0, C));
    aril_model *m = aril_model_new(net, ARIL_SHAPE());
    CHECK_INT(aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                                       .metrics = "accuracy",
                                                       .optimizer = aril_adam(
                                                           NULL, (aril_adam_opts){ .lr = 0.05 }) }),
              ARIL_OK);
    aril_dataset *d = aril_dataset_tensors_n(
        ARIL_LIST(aril_narrow(x, 1, 0, 2), y, NULL, aril_narrow(x, 1, 2, 3)));
    aril_loader *batches = aril_loader_new(d, (aril_loader_opts){ .batch = 30, .shuffle = true });
    aril_history *h =
        aril_model_fit_loader(m, batches, (aril_fit_opts){ .epochs = 10, .verbose = ARIL_SILENT });
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK_MSG(aril_history_at(h, "accuracy", -1) > 0.9, "%g", aril_history_at(h, "accuracy", -1));
    CHECK(aril_model_evaluate_loader(m, batches, (aril_eval_opts){ .verbose = ARIL_SILENT }) < 0.5);
    CHECK_INT(aril_size(aril_model_predict_loader(m, batches, (aril_eval_opts){ 0 }), 0), N);
    aril_loader_free(batches);
    aril_model_free(m);
}

TEST(bytes_are_pixels)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randint(0, 256, ARIL_SHAPE(20, 1, 4, 4), ARIL_U8, aril_cpu());
    aril_model *m = aril_model_new(aril_nn_sequential(aril_nn_flatten(), aril_nn_linear(0, 2)),
                                   ARIL_SHAPE(1, 4, 4));
    aril_tensor *p = aril_model_predict(m, x, (aril_eval_opts){ 0 });
    aril_module_eval(aril_model_module(m));
    aril_tensor *direct = aril_forward(aril_model_module(m),
                                       aril_div_scalar(aril_cast(test_there(x), ARIL_F32), 255));
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(p, direct)), ARIL_ALL)), 0, 1e-6);
    aril_model_free(m);
}

/* ---- callbacks ---- */

static char said[256];

static aril_status say(const char *what)
{
    strncat(said, what, sizeof said - strlen(said) - 1);
    return ARIL_OK;
}
static aril_status log_begin(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    (void)fit;
    return say("(");
}
static aril_status log_epoch_begin(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    return say(isnan(aril_fit_value(fit, "loss")) ? "[" : "?");
}
static aril_status log_batch(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    bool known = isfinite(aril_fit_value(fit, "loss")) &&
                 isfinite(aril_fit_value(fit, "batch_loss")) &&
                 isnan(aril_fit_value(fit, "val_loss")) && aril_fit_value(fit, "lr") == 0.5;
    return say(known && aril_fit_batches(fit) == 3 ? "." : "?");
}
static aril_status log_epoch_end(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    return say(isfinite(aril_fit_value(fit, "val_loss")) && aril_fit_batch(fit) == 3 ? "]" : "?");
}
static aril_status log_end(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    (void)fit;
    return say(")");
}
static void log_destroy(aril_callback *cb)
{
    (void)cb;
    say("!");
}
static const aril_callback_class sayer = { .name = "sayer",
                                           .begin = log_begin,
                                           .epoch_begin = log_epoch_begin,
                                           .batch_end = log_batch,
                                           .epoch_end = log_epoch_end,
                                           .end = log_end,
                                           .destroy = log_destroy };

static aril_status stop_in_third(aril_fit *fit, void *ctx)
{
    if (aril_fit_step(fit) == *(int64_t *)ctx) aril_fit_stop(fit);
    return ARIL_OK;
}

static aril_status refuse(aril_fit *fit, void *ctx)
{
    (void)fit;
    (void)ctx;
    return ARIL_ERR_STATE;
}

TEST(callbacks_are_called_in_order)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .metrics = "accuracy",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.5 }) });
    aril_fit_opts opts = {
        .batch_size = 70, .epochs = 2, .verbose = ARIL_SILENT, .validation = { x, y }
    };
    opts.callbacks = ARIL_CALLBACKS(aril_callback_make(&sayer));
    said[0] = '\0';
    CHECK(aril_model_fit(m, x, y, opts) != NULL);
    CHECK_STR(said, "([...][...])!");

    int64_t at = 4; /* in the middle of the second epoch, which then ends */
    opts.callbacks = ARIL_CALLBACKS(aril_on_batch(stop_in_third, &at));
    opts.epochs = 5;
    aril_history *h = aril_model_fit(m, x, y, opts);
    CHECK_INT(aril_history_epochs(h), 2);

    said[0] = '\0';
    opts.callbacks = ARIL_CALLBACKS(aril_on_epoch(refuse, NULL), aril_callback_make(&sayer));
    CHECK(aril_model_fit(m, x, y, opts) == NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "on_epoch") != NULL, "%s", aril_error());
    CHECK_STR(said, "([...!"); /* freed, but its end callback is not called */
    aril_clear_error();
    aril_model_free(m);
}

static double falling(int epoch, double lr, void *ctx)
{
    (void)ctx;
    return epoch == 0 ? lr : lr / 10;
}

TEST(learning_rate_by_a_function)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = small_model(NULL);
    aril_fit_opts opts = quiet;
    opts.callbacks = ARIL_CALLBACKS(aril_lr_callback(falling, NULL));
    aril_history *h = aril_model_fit(m, x, y, opts);
    CHECK_MSG(h != NULL, "%s", aril_error());
    for (int i = 0; i < 3; i++) CHECK_NEAR(aril_history_at(h, "lr", i), 0.1 * pow(0.1, i), 1e-9);
    aril_model_free(m);
}

/* A metric that falls for two epochs and then rises; the number of calls gives the epoch. */
static aril_tensor *valley(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)output;
    (void)target;
    static const double value[] = { 5, 3, 1, 2, 2, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1 };
    int *asked = ctx;
    return aril_full(ARIL_SHAPE(), value[(*asked)++ / 2], ARIL_F64,
                     aril_cpu()); /* training, then validation */
}

TEST(early_stop_restores_the_best_weights)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_monitor watch = { .name = "val_valley", .smallest = true };
    for (int patience = 0; patience < 4; patience++) {
        int asked = 0;
        aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
        aril_model_compile(m, (aril_model_opts){
                                  .loss = "cross_entropy",
                                  .own_metrics = { aril_metric_of("valley", valley, &asked) },
                                  .optimizer = small_optim(NULL) });
        aril_fit_opts opts = {
            .batch_size = N, .epochs = 9, .verbose = ARIL_SILENT, .validation = { x, y }
        };
        opts.callbacks =
            ARIL_CALLBACKS(aril_early_stop((aril_early_stop_opts){
                               .monitor = watch, .patience = patience, .restore_best = true }),
                           aril_save_best(temp_path("best.safetensors"), watch),
                           aril_save_last(temp_path("last-{epoch}.safetensors"), 100));
        aril_history *h = aril_model_fit(m, x, y, opts);
        CHECK_MSG(h != NULL, "%s", aril_error());
        const int epochs[] = { 4, 4, 5, 9 };
        CHECK_INT(aril_history_epochs(h), epochs[patience]);
        CHECK_INT(aril_history_best(h, "val_loss") >= 0, 1);
        /* the model is restored to the best epoch, which is also in the file */
        aril_module *best = small_net();
        aril_module_build(best, ARIL_SHAPE(D));
        aril_safetensors *f = aril_safetensors_open(temp_path("best.safetensors"));
        CHECK_MSG(f != NULL, "%s", aril_error());
        CHECK_INT(aril_load_state(best, aril_safetensors_all(f), (aril_load_state_opts){ 0 }),
                  ARIL_OK);
        aril_safetensors_close(f);
        CHECK(same_weights(best, aril_model_module(m)));
        aril_module_release(best);
        char last[64];
        snprintf(last, sizeof last, "last-%d.safetensors", epochs[patience]);
        f = aril_safetensors_open(temp_path(last));
        CHECK_MSG(f != NULL, "%s", aril_error());
        aril_safetensors_close(f);
        aril_model_free(m);
    }
    /* a small change counts only beyond min_delta */
    int asked = 0;
    aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){
                              .loss = "cross_entropy",
                              .own_metrics = { aril_metric_of("valley", valley, &asked) },
                              .optimizer = small_optim(NULL) });
    watch.min_delta = 2.5;
    aril_history *h = aril_model_fit(
        m, x, y,
        (aril_fit_opts){ .batch_size = N,
                         .epochs = 9,
                         .verbose = ARIL_SILENT,
                         .validation = { x, y },
                         .callbacks = ARIL_CALLBACKS(aril_early_stop(
                             (aril_early_stop_opts){ .monitor = watch, .patience = 1 })) });
    CHECK_INT(aril_history_epochs(h), 2); /* 5, 3: not better by more than 2.5 */
    /* a metric that is not computed cannot be monitored */
    CHECK(aril_model_fit(m, x, y,
                         (aril_fit_opts){ .verbose = ARIL_SILENT,
                                          .callbacks =
                                              ARIL_CALLBACKS(aril_early_stop((aril_early_stop_opts){
                                                  .monitor = { .name = "vally" } })) }) == NULL);
    CHECK_MSG(strstr(aril_error(), "did you mean valley") != NULL, "%s", aril_error());
    aril_clear_error();
    aril_model_free(m);
}

TEST(fit_stops_at_nan)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 1e30 }) });
    aril_fit_opts opts = { .epochs = 50,
                           .verbose = ARIL_SILENT,
                           .callbacks = ARIL_CALLBACKS(aril_stop_on_nan()) };
    aril_history *h = aril_model_fit(m, x, y, opts);
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK_INT(aril_history_epochs(h), 1);
    CHECK(!isfinite(aril_history_at(h, "loss", 0)));
    CHECK(aril_history_diverged(h));
    aril_model_free(m);
}

/* Makes the learning rate huge before the third epoch. */
static double rate_that_explodes(int epoch, double lr, void *ctx)
{
    (void)ctx;
    return epoch < 2 ? lr : 1e30;
}

TEST(diverged_epoch_does_not_replace_saved_weights)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    for (int64_t batch = 8; batch <= 1 << 20; batch <<= 17) { /* detected in a batch, in val_loss */
        aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
        aril_model_compile(m, (aril_model_opts){
                                  .loss = "cross_entropy",
                                  .metrics = "accuracy",
                                  .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 1e-9 }) });
        aril_monitor accuracy = { .name = "val_accuracy", .smallest = true }; /* any is better */
        aril_history *h = aril_model_fit(
            m, x, y,
            (aril_fit_opts){
                .epochs = 50,
                .batch_size = batch,
                .validation = { x, y },
                .verbose = ARIL_SILENT,
                .checkpoint = { .dir = temp_path("diverged") },
                .callbacks = ARIL_CALLBACKS(
                    aril_stop_on_nan(), aril_lr_callback(rate_that_explodes, NULL),
                    aril_save_best(temp_path("best-{epoch}.safetensors"), accuracy)) });
        CHECK_MSG(h != NULL, "%s", aril_error());
        CHECK_INT(aril_history_epochs(h), 3);
        CHECK(aril_history_diverged(h));
        CHECK(access(temp_path("best-1.safetensors"), F_OK) == 0);
        CHECK(access(temp_path("best-3.safetensors"), F_OK) != 0);
        char weights[4200];
        CHECK_INT(aril_checkpoint_weights(temp_path("diverged"), weights, sizeof weights), ARIL_OK);
        CHECK_INT(aril_load_weights(aril_model_module(m), weights, (aril_load_weights_opts){ 0 }),
                  ARIL_OK);
        CHECK(isfinite(aril_model_evaluate(m, x, y, (aril_eval_opts){ .verbose = ARIL_SILENT })));
        aril_model_free(m);
    }
}

static char *contents(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) fclose(f);
    return text;
}

/* Whether the folder's event file has a value with that tag. */
static bool logs_tag(const char *folder, const char *tag)
{
    bool found = false;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = fopen(path, "rb");
        static char bytes[1 << 20];
        size_t n = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0;
        for (size_t i = 0; i + strlen(tag) <= n && !found; i++)
            found = memcmp(bytes + i, tag, strlen(tag)) == 0;
        if (f != NULL) fclose(f);
    }
    if (dir != NULL) closedir(dir);
    return found;
}

TEST(history_as_logs_and_images)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = small_model("accuracy");
    aril_fit_opts opts = quiet;
    opts.epochs = 4;
    opts.validation = (aril_samples){ x, y };
    opts.validation_every = 2;
    opts.callbacks = ARIL_CALLBACKS(
        aril_csv_log(temp_path("log.csv")),
        aril_tensorboard_log(temp_path("board"), (aril_tensorboard_opts){ .every_batches = 5,
                                                                          .histograms_every = 2,
                                                                          .graph = true }));
    aril_history *h = aril_model_fit(m, x, y, opts);
    CHECK_MSG(h != NULL, "%s", aril_error());
    CHECK(logs_tag(temp_path("board/train"), "parameters/0.weight"));
    CHECK_INT(aril_history_csv(h, temp_path("history.csv")), ARIL_OK);
    static char log[4096];
    strcpy(log, contents(temp_path("log.csv")));
    CHECK_STR(contents(temp_path("history.csv")), log);
    CHECK_MSG(strncmp(log, "epoch,loss,accuracy,val_loss,val_accuracy,lr\n1,", 47) == 0, "%s", log);
    CHECK(strstr(log, ",,,0.1\n") != NULL); /* epoch 1 was not validated */
    CHECK(isnan(aril_history_at(h, "val_loss", 0)) && isfinite(aril_history_at(h, "val_loss", 1)));
    double column[4];
    CHECK_INT(aril_read(aril_history_tensor(h, "loss"), column), ARIL_OK);
    for (int i = 0; i < 4; i++) CHECK_NEAR(column[i], aril_history_at(h, "loss", i), 0);
    CHECK_INT(aril_history_draw(h, temp_path("curves.svg")), ARIL_OK);
    CHECK_INT(aril_history_draw(h, temp_path("curves.png")), ARIL_OK);
    CHECK(strstr(contents(temp_path("curves.svg")), "<svg") != NULL);
    FILE *f = fopen(temp_path("plot.txt"), "w+");
    CHECK_INT(aril_history_plot(h, f, (aril_plot_opts){ .width = 50, .height = 6, .ascii = true }),
              ARIL_OK);
    fclose(f);
    const char *plot = contents(temp_path("plot.txt"));
    CHECK_MSG(strstr(plot, "** loss   oo val_loss") != NULL && strchr(plot, '*') != NULL, "%s",
              plot);
    int lines = 0;
    for (const char *c = plot; *c != '\0'; lines++) {
        size_t n = strcspn(c, "\n");
        CHECK_MSG(n <= 50, "%.*s", (int)n, c);
        c += n + 1;
    }
    CHECK_INT(lines, 9);
    CHECK(isnan(aril_history_at(h, "los", 0)));
    CHECK(strstr(aril_error(), "did you mean loss") != NULL);
    aril_clear_error();
    CHECK(isnan(aril_history_at(h, "loss", 4)) && aril_error_code() == ARIL_ERR_INDEX);
    aril_clear_error();
    aril_model_free(m);
}

static aril_status is_kept(aril_fit *fit, void *ctx)
{
    return aril_fit_step(fit) == 1 || aril_checkpoint_exists(ctx) ? ARIL_OK : ARIL_ERR_STATE;
}

TEST(checkpoints_by_time)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    char dir[512];
    snprintf(dir, sizeof dir, "%s", temp_path("run"));
    aril_model *m = small_model("accuracy");
    aril_fit_opts opts = quiet;
    opts.checkpoint = (aril_fit_checkpoint){ .dir = dir, .every_seconds = 1e-9 };
    opts.callbacks = ARIL_CALLBACKS(aril_on_batch(is_kept, dir));
    CHECK_MSG(aril_model_fit(m, x, y, opts) != NULL, "%s", aril_error());
    aril_model_free(m);
}

/* ---- errors ---- */

static void refused(aril_model *m, aril_model_opts opts, const char *words)
{
    CHECK(aril_model_compile(m, opts) < 0);
    CHECK_MSG(strstr(aril_error(), words) != NULL, "'%s' does not say '%s'", aril_error(), words);
    aril_clear_error();
}

static void fit_refused(aril_model *m, aril_tensor *x, aril_tensor *y, aril_fit_opts opts,
                        const char *words)
{
    opts.verbose = ARIL_SILENT;
    if (opts.callbacks.n == 0)
        opts.callbacks = ARIL_CALLBACKS(aril_stop_on_nan()); /* still freed */
    CHECK(aril_model_fit(m, x, y, opts) == NULL);
    CHECK_MSG(strstr(aril_error(), words) != NULL, "'%s' does not say '%s'", aril_error(), words);
    aril_clear_error();
}

TEST(mistakes_are_reported)
{
    ARIL_SCOPE;
    aril_tensor *x, *y;
    clouds(&x, &y);
    aril_model *m = aril_model_new(small_net(), ARIL_SHAPE(D));
    fit_refused(m, x, y, (aril_fit_opts){ 0 }, "aril_model_compile first");
    refused(m, (aril_model_opts){ .optimizer = small_optim(NULL) }, "expected one of .loss");
    refused(m,
            (aril_model_opts){
                .loss = "mse", .loss_module = aril_nn_loss("mse"), .optimizer = small_optim(NULL) },
            "several were");
    refused(m, (aril_model_opts){ .loss = "cross_entrpy", .optimizer = small_optim(NULL) },
            "cross_entropy");
    refused(m, (aril_model_opts){ .loss = "triplet_margin" }, "expects 3 tensors");
    refused(m, (aril_model_opts){ .loss = "mse", .metrics = "accuracy, acuracy" },
            "did you mean accuracy");
    refused(m, (aril_model_opts){ .loss = "mse", .metrics = "accuracy,accuracy" }, "twice");
    refused(m, (aril_model_opts){ .loss = "mse", .metrics = "accuracy,," },
            "not a list of metrics");
    refused(m,
            (aril_model_opts){ .loss = "mse",
                               .schedule =
                                   aril_cosine_schedule((aril_schedule_opts){ .total = 3 }) },
            "needs an optimizer");
    refused(m,
            (aril_model_opts){ .own_metrics = { aril_metric_new("mae", (aril_metric_opts){ 0 }) } },
            "expected one of .loss");
    CHECK_INT(aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy" }), ARIL_OK);
    fit_refused(m, x, y, (aril_fit_opts){ 0 }, "without an optimizer");
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .optimizer = small_optim(NULL) });
    fit_refused(m, NULL, y, (aril_fit_opts){ 0 }, "NULL for x");
    fit_refused(m, x, NULL, (aril_fit_opts){ 0 }, "NULL for y");
    fit_refused(m, x, y, (aril_fit_opts){ .epochs = -1 }, ".epochs");
    fit_refused(m, x, y, (aril_fit_opts){ .validation_split = 1.5 }, ".validation_split");
    fit_refused(m, x, y, (aril_fit_opts){ .validation_split = 0.5, .validation = { x, y } },
                "one is enough");
    fit_refused(m, x, y, (aril_fit_opts){ .class_weight = x }, ".class_weight");
    fit_refused(m, x, aril_narrow(y, 0, 0, 10), (aril_fit_opts){ 0 }, "10");
    fit_refused(m, x, aril_add_scalar(y, 5), (aril_fit_opts){ 0 }, "");
    fit_refused(m, x, y, (aril_fit_opts){ .checkpoint = { .resume = true } }, ".checkpoint.dir");
    fit_refused(m, aril_narrow(x, 1, 0, 3), y, (aril_fit_opts){ 0 }, "");
    CHECK(isnan(aril_model_value(m, "acc")) && strstr(aril_error(), "it has loss") != NULL);
    aril_clear_error();
    CHECK(isnan(aril_model_evaluate(m, NULL, y, (aril_eval_opts){ 0 })));
    aril_clear_error();
    CHECK(aril_model_predict(m, NULL, (aril_eval_opts){ 0 }) == NULL);
    aril_clear_error();
    aril_model_free(m);
    CHECK(aril_model_new(NULL, ARIL_SHAPE(3)) == NULL);
    aril_clear_error();
    CHECK(aril_model_new(aril_nn_conv2d(0, 2, 9), ARIL_SHAPE(1, 3, 3)) == NULL);
    aril_clear_error();
    aril_model_free(NULL);
}
