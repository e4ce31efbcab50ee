/* Whether smaller or larger is better: early stopping, the best epoch and plateaus follow the
 * metric's own direction. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { N = 24, EPOCHS = 6 };

/* Values that fall until the third epoch and then rise, one for each evaluation. */
static aril_tensor *valley(aril_tensor *output, aril_tensor *target, void *ctx)
{
    static const double value[] = { 5, 3, 1, 2, 4, 6 };
    int *calls = ctx;
    (void)target;
    /* Each epoch evaluates twice: in training, and in validation. */
    double v = value[(*calls)++ / 2 % EPOCHS];
    return aril_full(ARIL_SHAPE(aril_size(output, 0)), v, ARIL_F32, aril_cpu());
}

static aril_model *model_with(aril_metric *metric, aril_schedule *schedule, const char *monitor)
{
    aril_seed(1);
    aril_model *m = aril_model_new(aril_nn_linear(2, 1), ARIL_SHAPE(2));
    aril_status s = aril_model_compile(
        m, (aril_model_opts){ .loss = "mse",
                              .own_metrics = { metric },
                              .schedule = schedule,
                              .schedule_monitor = monitor,
                              .optimizer = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.01 }) });
    if (s == ARIL_OK) return m;
    aril_model_free(m);
    return NULL;
}

static aril_history *fit(aril_model *m, aril_callback_list callbacks)
{
    aril_generator *g = aril_generator_new(3);
    aril_tensor *x = aril_randn_from(g, ARIL_SHAPE(N, 2), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_sum(x, ARIL_KEEPDIM(1));
    aril_generator_free(g);
    return aril_model_fit(m, x, y,
                          (aril_fit_opts){ .batch_size = N,
                                           .epochs = EPOCHS,
                                           .validation = { x, y },
                                           .verbose = ARIL_SILENT,
                                           .callbacks = callbacks });
}

static aril_metric *made(const char *label, bool smaller, int *calls)
{
    *calls = 0;
    return aril_metric_of_with(label, valley, calls,
                               (aril_metric_opts){ .smaller_is_better = smaller });
}

TEST(metrics_declare_which_direction_is_better)
{
    static const struct {
        const char *name;
        bool smaller;
    } known[] = { { "accuracy", false }, { "f1", false },   { "auc", false },
                  { "r2", false },       { "mae", true },   { "mse", true },
                  { "rmse", true },      { "top5", false }, { "confusion", false } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        /* Independent of the label. */
        aril_metric *m = aril_metric_new(known[i].name, (aril_metric_opts){ .label = "height" });
        CHECK_INT(aril_metric_smaller_is_better(m), known[i].smaller);
        aril_metric_free(m);
    }
    static const struct {
        const char *label;
        bool says, smaller;
    } own[] = { { "distance", true, true }, /* whatever it is called */
                { "distance", false, false },
                { "accuracy", true, true },
                { "angle_error", false, false } };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        int calls;
        aril_metric *m = made(own[i].label, own[i].says, &calls);
        CHECK_MSG(aril_metric_smaller_is_better(m) == own[i].smaller, "%s", own[i].label);
        aril_metric_free(m);
    }
    CHECK(!aril_metric_smaller_is_better(NULL));
}

TEST(early_stop_and_the_best_epoch_follow_the_metric)
{
    ARIL_SCOPE;
    for (int smaller = 0; smaller < 2; smaller++) {
        int calls;
        aril_model *m = model_with(made("distance", smaller, &calls), NULL, NULL);
        aril_monitor watch = { .name = "val_distance" };
        aril_history *h =
            fit(m, ARIL_CALLBACKS(aril_save_best(temp_path("best-{epoch}.safetensors"), watch),
                                  aril_early_stop(
                                      (aril_early_stop_opts){ .monitor = watch, .patience = 1 })));
        CHECK_MSG(h != NULL, "%s", aril_error());
        /* 5 3 1 2: if smaller is better, the fourth is the first without improvement, else the
         * second. */
        CHECK_INT(aril_history_epochs(h), smaller ? 4 : 2);
        CHECK_INT(aril_history_best(h, "val_distance"), smaller ? 2 : 0);
        CHECK_INT(aril_history_best(h, "distance"), smaller ? 2 : 0);
        FILE *third = fopen(temp_path("best-3.safetensors"), "rb");
        CHECK((third != NULL) == smaller);
        if (third != NULL) fclose(third);
        aril_model_free(m);
    }
    aril_early_stop_opts both = { .monitor = { .largest = true, .smallest = true } };
    CHECK(aril_early_stop(both) == NULL);
    CHECK(strstr(aril_error(), ".smallest") != NULL);
    aril_clear_error();
}

/* The first epoch with a reduced learning rate, for a plateau schedule with patience 0. */
static double last_rate(bool smaller, const char *monitor, aril_history **h)
{
    int calls;
    aril_schedule *s = aril_plateau_schedule(
        (aril_schedule_opts){ .factor = 0.5, .patience = ARIL_ZERO, .cooldown = 100 });
    aril_model *m = model_with(made("distance", smaller, &calls), s, monitor);
    *h = fit(m, (aril_callback_list){ 0 });
    double lr = NAN;
    for (int i = 1; *h != NULL && i < aril_history_epochs(*h) && isnan(lr); i++)
        if (aril_history_at(*h, "lr", i) < 0.01) lr = i;
    aril_model_free(m);
    return lr;
}

TEST(plateau_monitors_the_given_column)
{
    ARIL_SCOPE;
    aril_history *h;
    /* 5 3 1 2 4 6: if smaller is better, the fourth epoch is the first without improvement, else
     * the second; the learning rate changes in the epoch after it. */
    CHECK_INT(last_rate(true, "val_distance", &h), 4);
    CHECK_INT(last_rate(false, "val_distance", &h), 2);
    CHECK(isnan(last_rate(false, NULL, &h)) && aril_ok()); /* the loss always falls */
    CHECK(isnan(last_rate(false, "distanc", &h)) && h == NULL);
    CHECK_MSG(strstr(aril_error(), "did you mean distance") != NULL, "%s", aril_error());
    aril_clear_error();
    /* A schedule for rising values rejects a loss. */
    int calls;
    aril_schedule *s = aril_plateau_schedule((aril_schedule_opts){ .rising = true });
    aril_model *m = model_with(made("distance", false, &calls), s, NULL);
    CHECK(fit(m, (aril_callback_list){ 0 }) == NULL);
    CHECK_MSG(strstr(aril_error(), ".rising") != NULL, "%s", aril_error());
    aril_clear_error();
    aril_model_free(m);
}

static aril_status count_saves(aril_fit *fit, void *ctx)
{
    (void)fit;
    ++*(int *)ctx;
    return ARIL_OK;
}

static double weight_of(aril_model *m)
{
    ARIL_SCOPE;
    return aril_item(aril_sum(aril_parameters(aril_model_module(m))->at[0], ARIL_ALL));
}

/* From a file and from memory: at the end the model has the weights of the third epoch. */
TEST(best_weights_are_restored)
{
    ARIL_SCOPE;
    double weight[3];
    char path[512];
    snprintf(path, sizeof path, "%s", temp_path("kept-{epoch}.safetensors"));
    for (int kind = 0; kind < 3; kind++) {
        int calls, saves = 0;
        aril_model *m = model_with(made("distance", true, &calls), NULL, NULL);
        aril_best_epoch best = { .epoch = 7 };
        aril_keep_best_opts keep = { .monitor = { .name = "val_distance" },
                                     .path = kind == 1 ? path : NULL,
                                     .save = count_saves,
                                     .ctx = &saves,
                                     .restore = kind < 2,
                                     .best = &best };
        CHECK_MSG(fit(m, ARIL_CALLBACKS(aril_keep_best(keep))), "%s", aril_error());
        CHECK_INT(saves, 3); /* 5 3 1 */
        CHECK_INT(best.epoch, 2);
        CHECK_NEAR(best.value, 1, 0);
        CHECK_STR(best.name, "val_distance");
        weight[kind] = weight_of(m);
        aril_model_free(m);
    }
    CHECK(weight[0] == weight[1] && weight[0] != weight[2]);
    CHECK_INT(access(temp_path("kept-3.safetensors"), R_OK), 0);
    CHECK(access(temp_path("kept-4.safetensors"), R_OK) != 0);
}

/* A loss that is NaN from the fourth epoch on. */
static aril_tensor *breaks(aril_tensor *output, aril_tensor *target, void *ctx)
{
    int *calls = ctx;
    aril_tensor *loss = aril_square(aril_sub(output, target));
    return (*calls)++ / 2 < 3 ? loss : aril_mul_scalar(loss, NAN);
}

/* A network of NaN may still have a metric, and a good one. */
static aril_tensor *rises(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)target;
    return aril_full(ARIL_SHAPE(aril_size(output, 0)), (double)++*(int *)ctx, ARIL_F32, aril_cpu());
}

TEST(epoch_with_nan_loss_is_never_the_best)
{
    ARIL_SCOPE;
    int losses = 0, metrics = 0;
    aril_model *m = aril_model_new(aril_nn_linear(2, 1), ARIL_SHAPE(2));
    aril_metric *score = aril_metric_of("score", rises, &metrics);
    CHECK_INT(aril_model_compile(m, (aril_model_opts){ .loss_fn = breaks,
                                                       .loss_ctx = &losses,
                                                       .own_metrics = { score },
                                                       .optimizer = aril_sgd(
                                                           NULL, (aril_sgd_opts){ .lr = 0.01 }) }),
              ARIL_OK);
    aril_best_epoch best;
    CHECK_MSG(fit(m, ARIL_CALLBACKS(aril_keep_best((aril_keep_best_opts){
                         .monitor = { .name = "val_score" }, .restore = true, .best = &best }))),
              "%s", aril_error());
    CHECK_INT(best.epoch, 2);
    CHECK(isfinite(weight_of(m)));
    aril_model_free(m);
}

TEST(missing_folders_are_created)
{
    char best[512], last[512], log[512];
    snprintf(best, sizeof best, "%s", temp_path("run/weights-best.safetensors"));
    snprintf(last, sizeof last, "%s", temp_path("each/{epoch}/last.safetensors"));
    snprintf(log, sizeof log, "%s", temp_path("logs/run1/log.csv"));
    int calls;
    aril_model *m = model_with(made("spread", true, &calls), NULL, NULL);
    aril_history *h = fit(m, ARIL_CALLBACKS(aril_save_best(best, (aril_monitor){ 0 }),
                                            aril_save_last(last, 3), aril_csv_log(log)));
    CHECK_MSG(h, "%s", aril_error());
    CHECK_INT(access(best, R_OK), 0);
    CHECK_INT(access(log, R_OK), 0);
    CHECK_INT(access(temp_path("each/3/last.safetensors"), R_OK), 0);
    CHECK_INT(access(temp_path("each/6/last.safetensors"), R_OK), 0);
    /* A file in place of the folder is detected before the first epoch. */
    char below[600];
    snprintf(below, sizeof below, "%s/best.safetensors", log);
    CHECK(!fit(m, ARIL_CALLBACKS(aril_save_best(below, (aril_monitor){ 0 }))));
    CHECK_INT(aril_error_code(), ARIL_ERR_IO);
    aril_clear_error();
    aril_model_free(m);
}
