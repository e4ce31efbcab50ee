/* Metrics against scikit-learn (golden/metrics.h), in batches of any size; their states; custom
 * metrics. */
#include "aril/aril.h"
#include "aril/metrics.h"
#include "golden/metrics.h"
#include "support/device.h"
#include "support/test.h"
#include "train/metric.h"

#include <math.h>
#include <string.h>

/* The generator of golden/metrics.py. */
static uint32_t seed = 1;

static void numbers(float *out, int n)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(seed >> 8) / 8388608.0f - 1;
    }
}

enum { N = 500, C = 7, M = 400, L = 200, V = 300 };

static struct {
    bool made;
    float scores[N * C], weight[N];
    int64_t truth[N];
    float score[M], yes_weight[M];
    int64_t yes[M];
    float logits[L * 4], many[L * 4];
    float out[V * 3], y[V * 3], value_weight[V];
} data;

static void make_data(void)
{
    if (data.made) return;
    static float draw[N * C];
    seed = 1;
    numbers(data.scores, N * C);
    numbers(draw, N);
    for (int i = 0; i < N; i++) {
        data.truth[i] = (int64_t)floorf((draw[i] + 1) / 2 * 6);
        data.scores[i * C + data.truth[i]] += 0.6f;
        data.scores[i * C + 6] -= 3;
    }
    numbers(data.weight, N);
    for (int i = 0; i < N; i++) data.weight[i] += 1.5f;

    numbers(data.score, M);
    for (int i = 0; i < M; i++) data.score[i] = rintf(data.score[i] * 20) / 20;
    numbers(draw, M);
    for (int i = 0; i < M; i++) data.yes[i] = draw[i] + data.score[i] * 0.5f > 0;
    numbers(data.yes_weight, M);
    for (int i = 0; i < M; i++) data.yes_weight[i] += 1.5f;

    numbers(data.logits, L * 4);
    numbers(data.many, L * 4);
    for (int i = 0; i < L * 4; i++)
        data.many[i] = i % 4 != 3 && data.many[i] + data.logits[i] > 0.3f;

    numbers(data.out, V * 3);
    numbers(data.y, V * 3);
    for (int i = 0; i < V * 3; i++) data.y[i] = data.out[i] + 0.3f * data.y[i];
    numbers(data.value_weight, V);
    for (int i = 0; i < V; i++) data.value_weight[i] += 1.5f;
    data.made = true;
}

static aril_tensor *floats(const float *v, aril_shape shape)
{
    return aril_from(v, shape, ARIL_F32, test_device());
}

static aril_tensor *ints(const int64_t *v, int64_t n)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_I64, test_device());
}

/* The metric's value when x, y and w come in batches of `batch`. */
static double in_batches(const char *name, aril_metric_opts opts, aril_tensor *x, aril_tensor *y,
                         aril_tensor *w, int64_t batch)
{
    aril_metric *m = aril_metric_new(name, opts);
    if (m == NULL) return NAN;
    for (int64_t at = 0; at < aril_size(x, 0); at += batch) {
        ARIL_SCOPE;
        int64_t end = at + batch;
        aril_metric_update(m, aril_slice(x, 0, at, end, 1), aril_slice(y, 0, at, end, 1),
                           w != NULL ? aril_slice(w, 0, at, end, 1) : NULL);
    }
    double value = aril_metric_value(m);
    aril_metric_free(m);
    return value;
}

/* With batch sizes that divide the samples, that do not, and with all samples at once. */
static void compare(const char *name, aril_metric_opts opts, aril_tensor *x, aril_tensor *y,
                    aril_tensor *w, double want)
{
    const int64_t batch[] = { 1, 32, 50, 10000 };
    for (int i = 0; i < 4; i++) {
        double got = in_batches(name, opts, x, y, w, batch[i]);
        CHECK_MSG(aril_ok(), "%s: %s", name, aril_error());
        CHECK_MSG(fabs(got - want) <= 1e-9 * (1 + fabs(want)),
                  "%s in batches of %d: %.12g, not %.12g", name, (int)batch[i], got, want);
    }
}

TEST(class_metrics_agree_with_scikit_learn)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.scores, ARIL_SHAPE(N, C)), *y = ints(data.truth, N);
    aril_tensor *w = floats(data.weight, ARIL_SHAPE(N));
    const struct {
        const char *name;
        double want, weighted; /* 0: not compared */
    } cases[] = {
        { "accuracy", GOLDEN_ACCURACY, GOLDEN_ACCURACY_WEIGHTED },
        { "confusion", GOLDEN_ACCURACY, GOLDEN_ACCURACY_WEIGHTED },
        { "top1", GOLDEN_ACCURACY, GOLDEN_ACCURACY_WEIGHTED },
        { "top3", GOLDEN_TOP3, 0 },
        { "precision", GOLDEN_PRECISION_MACRO, GOLDEN_PRECISION_SAMPLES },
        { "recall", GOLDEN_RECALL_MACRO, GOLDEN_RECALL_SAMPLES },
        { "f1", GOLDEN_F1_MACRO, GOLDEN_F1_SAMPLES },
        { "precision_micro", GOLDEN_PRECISION_MICRO, 0 },
        { "recall_micro", GOLDEN_RECALL_MICRO, 0 },
        { "f1_micro", GOLDEN_F1_MICRO, 0 },
        { "precision_weighted", GOLDEN_PRECISION_WEIGHTED, 0 },
        { "recall_weighted", GOLDEN_RECALL_WEIGHTED, 0 },
        { "f1_weighted", GOLDEN_F1_WEIGHTED, 0 },
        { "top99", 1, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_failed(); i++) {
        compare(cases[i].name, (aril_metric_opts){ 0 }, x, y, NULL, cases[i].want);
        if (cases[i].weighted != 0)
            compare(cases[i].name, (aril_metric_opts){ 0 }, x, y, w, cases[i].weighted);
    }
}

TEST(targets_may_be_probabilities_or_columns)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.scores, ARIL_SHAPE(N, C)), *y = ints(data.truth, N);
    compare("accuracy", (aril_metric_opts){ 0 }, x, aril_cast(aril_one_hot(y, C), ARIL_F32), NULL,
            GOLDEN_ACCURACY);
    compare("accuracy", (aril_metric_opts){ 0 }, x, aril_reshape(y, ARIL_SHAPE(N, 1)), NULL,
            GOLDEN_ACCURACY);
    compare("accuracy", (aril_metric_opts){ 0 }, x, aril_cast(y, ARIL_I32), NULL, GOLDEN_ACCURACY);
    /* [N,C,d] and [N,d,C] with [N,d] */
    aril_tensor *wide = aril_reshape(x, ARIL_SHAPE(N / 2, 2, C)),
                *pairs = aril_reshape(y, ARIL_SHAPE(N / 2, 2));
    compare("accuracy", (aril_metric_opts){ 0 }, wide, pairs, NULL, GOLDEN_ACCURACY);
    compare("f1", (aril_metric_opts){ 0 }, aril_transpose(wide, 1, 2), pairs, NULL,
            GOLDEN_F1_MACRO);
    compare("top3", (aril_metric_opts){ 0 }, aril_transpose(wide, 1, 2), pairs, NULL, GOLDEN_TOP3);
}

TEST(negative_targets_are_ignored)
{
    ARIL_SCOPE;
    make_data();
    static float scores[2 * N * C];
    static int64_t truth[2 * N];
    for (int i = 0; i < 2 * N; i++) {
        memcpy(scores + i * C, data.scores + i / 2 * C, C * sizeof(float));
        truth[i] = i % 2 ? data.truth[i / 2] : -100;
    }
    aril_tensor *x = floats(scores, ARIL_SHAPE(2 * N, C)), *y = ints(truth, 2 * N);
    compare("accuracy", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_ACCURACY);
    compare("top3", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_TOP3);
    compare("f1", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_F1_MACRO);
}

TEST(accuracy_has_two_names)
{
    aril_metric *m = aril_metric_new("acc", (aril_metric_opts){ 0 });
    CHECK(m);
    CHECK_STR(aril_metric_label(m), "accuracy");
    aril_metric_free(m);
}

TEST(confusion_matrix_counts_targets_and_predictions)
{
    ARIL_SCOPE;
    make_data();
    const double want[C * C] = GOLDEN_TABLE;
    aril_metric *m = aril_metric_new("confusion", (aril_metric_opts){ 0 });
    CHECK(aril_metric_table(m) == NULL && aril_error_code() == ARIL_ERR_STATE);
    aril_clear_error();
    CHECK(isnan(aril_metric_value(m)));
    aril_metric_update(m, floats(data.scores, ARIL_SHAPE(N, C)), ints(data.truth, N), NULL);
    double got[C * C];
    CHECK_INT(aril_read(aril_metric_table(m), got), ARIL_OK);
    for (int i = 0; i < C * C; i++) CHECK_NEAR(got[i], want[i], 0);
    aril_metric_free(m);
}

TEST(binary_metrics_agree_with_scikit_learn)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.score, ARIL_SHAPE(M, 1)), *y = ints(data.yes, M);
    aril_tensor *w = floats(data.yes_weight, ARIL_SHAPE(M)), *real = aril_cast(y, ARIL_F32);
    aril_metric_opts logits = { .threshold = ARIL_ZERO };
    compare("auc", logits, x, y, NULL, GOLDEN_AUC);
    compare("auc", logits, x, y, w, GOLDEN_AUC_WEIGHTED);
    compare("auc", logits, aril_reshape(x, ARIL_SHAPE(M)), real, NULL, GOLDEN_AUC);
    /* two columns of scores: the second minus the first */
    compare("auc", logits,
            aril_cat(ARIL_LIST(aril_mul_scalar(x, -0.5), aril_mul_scalar(x, 0.5)), 1), y, NULL,
            GOLDEN_AUC);
    compare("accuracy", logits, x, y, NULL, GOLDEN_YES_ACCURACY);
    compare("precision", logits, x, y, NULL, GOLDEN_YES_PRECISION);
    compare("recall", logits, x, real, NULL, GOLDEN_YES_RECALL);
    compare("f1", logits, x, aril_sub_scalar(aril_mul_scalar(real, 2), 1), NULL, GOLDEN_YES_F1);
    /* probabilities have a threshold of 0.5 */
    aril_tensor *share = aril_add_scalar(aril_mul_scalar(x, 0.25), 0.5);
    compare("accuracy", (aril_metric_opts){ 0 }, share, y, NULL, GOLDEN_YES_ACCURACY);
}

TEST(multilabel_metrics_agree_with_scikit_learn)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.logits, ARIL_SHAPE(L, 4)),
                *y = floats(data.many, ARIL_SHAPE(L, 4));
    aril_metric_opts labels = { .threshold = ARIL_ZERO, .multilabel = true };
    compare("f1", labels, x, y, NULL, GOLDEN_LABELS_F1_MACRO);
    compare("f1_micro", labels, x, y, NULL, GOLDEN_LABELS_F1_MICRO);
    compare("f1_weighted", labels, x, y, NULL, GOLDEN_LABELS_F1_WEIGHTED);
    compare("accuracy", labels, x, y, NULL, GOLDEN_LABELS_ACCURACY);
}

TEST(regression_metrics_agree_with_scikit_learn)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.out, ARIL_SHAPE(V, 3)), *y = floats(data.y, ARIL_SHAPE(V, 3));
    aril_tensor *w = floats(data.value_weight, ARIL_SHAPE(V));
    compare("mae", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_MAE);
    compare("mae", (aril_metric_opts){ 0 }, x, y, w, GOLDEN_MAE_WEIGHTED);
    compare("mse", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_MSE);
    compare("rmse", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_RMSE);
    compare("r2", (aril_metric_opts){ 0 }, x, y, NULL, GOLDEN_R2);
    compare("r2", (aril_metric_opts){ 0 }, x, y, w, GOLDEN_R2_WEIGHTED);
    /* [N,1] and [N] are compared element by element, not broadcast to [N,N] */
    aril_tensor *one = aril_narrow(x, 1, 0, 1), *flat = aril_select(y, 1, 0);
    double column =
        in_batches("mse", (aril_metric_opts){ 0 }, one, aril_narrow(y, 1, 0, 1), NULL, 32);
    compare("mse", (aril_metric_opts){ 0 }, one, flat, NULL, column);
}

TEST(states_save_and_load)
{
    ARIL_SCOPE;
    make_data();
    const char *const names[] = { "accuracy", "top3", "f1", "confusion", "auc", "rmse", "r2" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool values = i >= 5, rank = i == 4;
        aril_tensor *x = values ? floats(data.out, ARIL_SHAPE(V, 3))
                         : rank ? floats(data.score, ARIL_SHAPE(M))
                                : floats(data.scores, ARIL_SHAPE(N, C));
        aril_tensor *y = values ? floats(data.y, ARIL_SHAPE(V, 3))
                         : rank ? ints(data.yes, M)
                                : ints(data.truth, N);
        aril_metric *all = aril_metric_new(names[i], (aril_metric_opts){ 0 });
        aril_metric *first = aril_metric_new(names[i], (aril_metric_opts){ 0 });
        aril_metric *second = aril_metric_new(names[i], (aril_metric_opts){ 0 });
        for (int part = 0; part < 2; part++) {
            aril_tensor *xs = aril_slice(x, 0, part * 100, 100 + part * 10000, 1);
            aril_tensor *ys = aril_slice(y, 0, part * 100, 100 + part * 10000, 1);
            aril_metric_update(all, xs, ys, NULL);
            aril_metric_update(part == 0 ? first : second, xs, ys, NULL);
            if (part == 0)
                CHECK_INT(aril_metric_load_state(second, aril_metric_state(first)), ARIL_OK);
        }
        CHECK_MSG(aril_metric_value(all) == aril_metric_value(second), "%s: %.17g and %.17g",
                  names[i], aril_metric_value(all), aril_metric_value(second));
        CHECK(aril_metric_value(first) != aril_metric_value(all)); /* the copy is independent */
        aril_metric_reset(all);
        CHECK(isnan(aril_metric_value(all)));
        CHECK_INT(aril_metric_state(all)->n, 0);
        aril_metric_free(all);
        aril_metric_free(first);
        aril_metric_free(second);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* A checkpoint's state may differ in size from the metric's. */
TEST(states_of_other_shapes_are_rejected)
{
    ARIL_SCOPE;
    const int64_t seen[] = { 100000, -5, 7 };
    const struct {
        const char *metric, *name[3];
        aril_tensor *at[3];
    } bad[] = {
        { "auc",
          { "scores", "seen" },
          { aril_zeros(ARIL_SHAPE(3, 6), ARIL_F64, test_device()),
            aril_from(&seen[0], ARIL_SHAPE(1), ARIL_I64, test_device()) } },
        { "auc",
          { "scores", "seen" },
          { aril_zeros(ARIL_SHAPE(3, 6), ARIL_F64, test_device()),
            aril_from(&seen[1], ARIL_SHAPE(1), ARIL_I64, test_device()) } },
        { "auc",
          { "scores", "seen" },
          { aril_zeros(ARIL_SHAPE(1, 7), ARIL_F64, test_device()),
            aril_from(&seen[2], ARIL_SHAPE(1), ARIL_I64, test_device()) } },
        { "auc",
          { "scores", "seen" },
          { aril_zeros(ARIL_SHAPE(3, 7), ARIL_F32, test_device()),
            aril_from(&seen[2], ARIL_SHAPE(1), ARIL_I64, test_device()) } },
        { "f1", { "table" }, { aril_zeros(ARIL_SHAPE(300), ARIL_F64, test_device()) } },
        { "f1", { "table" }, { aril_zeros(ARIL_SHAPE(30, 30), ARIL_U8, test_device()) } },
        { "f1", { "table" }, { aril_scalar(1) } },
        { "recall",
          { "right", "answers", "truths" },
          { aril_zeros(ARIL_SHAPE(2), ARIL_F64, test_device()),
            aril_zeros(ARIL_SHAPE(20000), ARIL_F64, test_device()),
            aril_zeros(ARIL_SHAPE(2), ARIL_F64, test_device()) } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        aril_metric *m = aril_metric_new(bad[i].metric, (aril_metric_opts){ 0 });
        int n = bad[i].name[2] ? 3 : bad[i].name[1] ? 2 : 1;
        aril_tensor *at[3] = { bad[i].at[0], bad[i].at[1], bad[i].at[2] };
        CHECK_INT(aril_metric_load_state(m, &(aril_named){ n, at, bad[i].name }), ARIL_OK);
        CHECK_MSG(isnan(aril_metric_value(m)), "%s of state %zu", bad[i].metric, i);
        CHECK_MSG(aril_error_code() == ARIL_ERR_FORMAT, "state %zu: %s", i, aril_error());
        aril_clear_error();
        aril_metric_free(m);
    }
}

static aril_tensor *off_by_one(aril_tensor *output, aril_tensor *target, void *ctx)
{
    aril_tensor *near = aril_abs(aril_sub(aril_argmax(output, ARIL_AXES(1)), target));
    return *(int *)ctx ? aril_mean(aril_cast(near, ARIL_F32), ARIL_ALL) : near;
}

TEST(custom_metrics)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.scores, ARIL_SHAPE(N, C)), *y = ints(data.truth, N);
    double value[2];
    for (int form = 0; form < 2; form++) { /* one value per sample, or one per batch */
        aril_metric *m = aril_metric_of("distance", off_by_one, &form);
        CHECK_STR(aril_metric_label(m), "distance");
        for (int64_t at = 0; at < N; at += 125)
            CHECK_INT(aril_metric_update(m, aril_narrow(x, 0, at, 125), aril_narrow(y, 0, at, 125),
                                         NULL),
                      ARIL_OK);
        value[form] = aril_metric_value(m);
        aril_metric_free(m);
    }
    double all = aril_item(aril_mean(aril_cast(off_by_one(x, y, &(int){ 0 }), ARIL_F64), ARIL_ALL));
    CHECK_NEAR(value[0], all, 1e-12);
    CHECK_NEAR(value[1], all, 1e-6);
}

TEST(mistakes_are_reported)
{
    ARIL_SCOPE;
    make_data();
    aril_tensor *x = floats(data.scores, ARIL_SHAPE(N, C)), *y = ints(data.truth, N);
    CHECK(aril_metric_new("acuracy", (aril_metric_opts){ 0 }) == NULL);
    CHECK_MSG(strstr(aril_error(), "did you mean accuracy") != NULL, "%s", aril_error());
    aril_clear_error();
    const char *const wrong[] = { "top0",       "top100", "top5x",  "mae_macro",
                                  "precision_", "",       "f1_mean" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_MSG(aril_metric_new(wrong[i], (aril_metric_opts){ 0 }) == NULL, "'%s' is no metric",
                  wrong[i]);
        CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
        aril_clear_error();
    }
    for (const char *const *name = aril_metric_names(); *name != NULL; name++) {
        aril_metric *m = aril_metric_new(*name, (aril_metric_opts){ 0 });
        CHECK_MSG(m != NULL, "%s: %s", *name, aril_error());
        CHECK(aril_metric_update(m, x, NULL, NULL) < 0);
        aril_clear_error();
        CHECK_MSG(aril_metric_update(m, x, aril_narrow(y, 0, 0, N - 1), NULL) < 0,
                  "%s took too few targets", *name);
        CHECK_MSG(strstr(aril_error(), *name) != NULL, "'%s' does not name %s", aril_error(),
                  *name);
        aril_clear_error();
        CHECK(isnan(aril_metric_value(m)));
        aril_metric_free(m);
    }
    aril_metric *m = aril_metric_new("confusion", (aril_metric_opts){ 0 });
    CHECK_INT(aril_metric_update(m, aril_narrow(x, 1, 0, 3), y, NULL), ARIL_ERR_INDEX);
    CHECK_MSG(strstr(aril_error(), "class 5 is out of range for scores of 3") != NULL, "%s",
              aril_error());
    aril_clear_error();
    aril_metric_free(m);
    m = aril_metric_new("auc", (aril_metric_opts){ 0 });
    CHECK(aril_metric_update(m, x, y, NULL) < 0);
    CHECK(strstr(aril_error(), "two classes") != NULL);
    aril_clear_error();
    CHECK(aril_metric_table(m) == NULL);
    aril_clear_error();
    aril_metric_free(m);
    aril_metric_free(NULL);
}

/* ---- the table ---- */

TEST(every_row_is_complete)
{
    int n;
    const aril__metric_row *row = aril__metric_rows(&n);
    for (int i = 0; i < n; i++) {
        const char *name = row[i].base.name;
        CHECK_MSG(row[i].base.update != NULL && row[i].base.value != NULL, "%s", name);
        CHECK_MSG(row[i].fits != 0, "%s does not say what it fits", name);
        CHECK_MSG(row[i].doc != NULL && *row[i].doc != '\0' && strlen(row[i].doc) < 80 &&
                      strchr(row[i].doc, '\n') == NULL,
                  "%s: its line of documentation", name);
        for (int k = 0; k < i; k++)
            CHECK_MSG(strcmp(row[k].base.name, name) != 0 &&
                          (row[k].also == NULL || strcmp(row[k].also, name) != 0),
                      "two metrics are called %s", name);
    }
}

static bool is_listed(const char *name)
{
    for (const char *const *at = aril_metric_names(); *at != NULL; at++)
        if (strcmp(*at, name) == 0) return true;
    return false;
}

/* The names that a row gives: in the list, in the help, in the error, and as metrics. */
TEST(metrics_say_what_they_fit)
{
    static const struct {
        const char *name;
        bool classes, values, selects;
    } of[] = { { "acc", true, false, true },  { "top5", true, false, false },
               { "auc", true, false, false }, { "f1_macro", true, false, false },
               { "mae", false, true, true },  { "rmse", false, true, false },
               { "r2", false, true, false } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        aril_metric *m = aril_metric_new(of[i].name, (aril_metric_opts){ 0 });
        CHECK_MSG(aril_metric_fits_classes(m) == of[i].classes &&
                      aril_metric_fits_values(m) == of[i].values &&
                      aril_metric_selects_best(m) == of[i].selects,
                  "%s", of[i].name);
        aril_metric_free(m);
    }
    CHECK(!aril_metric_fits_classes(NULL) && !aril_metric_fits_values(NULL) &&
          !aril_metric_selects_best(NULL));
}

TEST(every_row_is_found_by_its_names)
{
    char help[8192] = "";
    FILE *f = fmemopen(help, sizeof help, "w");
    aril_metric_help(f);
    fclose(f);
    CHECK(aril_metric_new("no such metric", (aril_metric_opts){ 0 }) == NULL);
    char message[1024];
    snprintf(message, sizeof message, "%s", aril_error());
    aril_clear_error();
    int n;
    const aril__metric_row *row = aril__metric_rows(&n);
    for (int i = 0; i < n; i++) {
        const char *name = row[i].base.name, *label = name;
        CHECK_MSG(is_listed(name), "%s is not listed", name);
        CHECK_MSG(strstr(help, name) != NULL && strstr(help, row[i].doc) != NULL,
                  "the help lacks %s", name);
        CHECK_MSG(strstr(message, name) != NULL, "\"%s\" lacks %s", message, name);
        aril_metric *m = aril_metric_new(name, (aril_metric_opts){ .label = "height" });
        CHECK_MSG(m != NULL && m->row == &row[i], "%s finds another row", name);
        CHECK_INT(aril_metric_smaller_is_better(m), row[i].base.smaller_is_better);
        aril_metric_free(m);
        m = row[i].also != NULL ? aril_metric_new(row[i].also, (aril_metric_opts){ 0 }) : NULL;
        CHECK(row[i].also == NULL || (m != NULL && m->row == &row[i]));
        if (m != NULL) CHECK_STR(aril_metric_label(m), label);
        aril_metric_free(m);
        char averaged[64];
        snprintf(averaged, sizeof averaged, "%s_micro", name);
        m = aril_metric_new(averaged, (aril_metric_opts){ 0 });
        CHECK_INT(m != NULL, row[i].averages >> ARIL_AVERAGE_MICRO & 1);
        CHECK_INT(is_listed(averaged), m != NULL);
        aril_metric_free(m);
        aril_clear_error();
    }
    CHECK(is_listed("top1") && is_listed("top5"));
    aril_metric_help(NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
    aril_clear_error();
}
