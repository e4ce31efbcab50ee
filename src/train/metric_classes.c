/* Classification metrics: accuracy, top-k, and those computed from the confusion matrix. */
#include "aril/index.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/sort.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread.h"
#include "train/metric.h"

#include <math.h>
#include <stdlib.h>

/* ---- accuracy ---- */

/* Adds to "right" and "seen": hit is true for correct predictions; targets below 0 are ignored. */
static aril_status count_hits(aril_metric *m, aril_tensor *hit, aril_tensor *truth, bool yes_no,
                              aril_tensor *weight)
{
    aril_tensor *spread, *seen, *right;
    aril_status status = aril__spread_weight(m->label, weight, hit, &spread);
    if (status != ARIL_OK) return status;
    if (spread != NULL) {
        aril_tensor *counts = aril_mul(aril_ge_scalar(truth, 0), spread);
        seen = aril_sum(counts, ARIL_ALL);
        right = aril_sum(aril_mul(hit, spread), ARIL_ALL);
    } else {
        right = aril_sum(hit, ARIL_ALL);
        seen = yes_no ? aril__metric_count(hit, ARIL_I64)
                      : aril_sum(aril_ge_scalar(truth, 0), ARIL_ALL);
    }
    status = aril_metric_add(m, "right", aril_cast(right, ARIL_F64));
    return status != ARIL_OK ? status : aril_metric_add(m, "seen", aril_cast(seen, ARIL_F64));
}

double aril__metric_hits_value(aril_metric *m)
{
    return aril__metric_number(m, "right") / aril__metric_number(m, "seen");
}

aril_status aril__metric_accuracy_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                         aril_tensor *weight)
{
    aril__answers a;
    aril_status status = aril__answers_of(m, output, target, &a);
    if (status != ARIL_OK) return status;
    return count_hits(m, aril_eq(a.predicted, a.truth), a.truth, a.yes_no, weight);
}

aril_status aril__metric_topk_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                     aril_tensor *weight)
{
    if (aril__scores_are_yes_no(m, output))
        return aril__fail(ARIL_ERR_SHAPE, "%s expects scores of several classes", m->label);
    aril_tensor *truth, *best = NULL;
    int axis;
    aril_status status = aril__truth_of(m->label, output, target, &truth, &axis);
    if (status != ARIL_OK) return status;
    int64_t k = m->opts.k > 0 ? m->opts.k : 5, n = aril_size(output, axis);
    if (k > n) k = n;
    aril_topk(output, k, axis, (aril_topk_opts){ .unsorted = true }, &best);
    aril_tensor *hit = aril_any(aril_eq(best, aril_unsqueeze(truth, axis)), ARIL_AXES(axis));
    if ((status = aril_tensor_status(hit)) != ARIL_OK) return status;
    return count_hits(m, hit, truth, false, weight);
}

/* ---- confusion matrix ---- */

/* Adds the cells to "table" [C,C] without reading a value, below a row for ignored targets. An
 * invalid target is an index out of range. */
static aril_status add_cells(aril_metric *m, int64_t c, aril_tensor *cell, aril_tensor *spread)
{
    aril_tensor *by =
        spread != NULL ? aril_flatten(spread, 0, -1) : aril_cast(aril_ones_like(cell), ARIL_F64);
    aril_tensor *none = aril_zeros(ARIL_SHAPE((c + 1) * c), ARIL_F64, aril_device_of(cell));
    aril_tensor *counts = aril_index_add(none, cell, by, 0);
    aril_tensor *table = aril_narrow(aril_reshape(counts, ARIL_SHAPE(c + 1, c)), 0, 1, c);
    return aril_metric_add(m, "table", table);
}

/* Adds to "table" [C,C]. Two extra rows collect ignored targets (below 0; the first row) and
 * invalid ones (the last row), so that sizes do not depend on values. */
aril_status aril__metric_table_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                      aril_tensor *weight)
{
    aril__answers a;
    aril_status status = aril__answers_of(m, output, target, &a);
    if (status != ARIL_OK) return status;
    int64_t c = a.classes;
    if (c < 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: the number of classes is unknown until the run",
                          m->label);
    aril_tensor *had = aril_metric_get(m, "table"), *spread;
    if (had != NULL && aril_size(had, 0) != c)
        return aril__fail(ARIL_ERR_SHAPE, "%s: a batch has %lld classes, earlier ones had %lld",
                          m->label, (long long)c, (long long)aril_size(had, 0));
    status = aril__spread_weight(m->label, weight, a.predicted, &spread);
    if (status != ARIL_OK) return status;
    aril_tensor *row = aril_add_scalar(aril_minimum_scalar(aril_maximum_scalar(a.truth, -1), c), 1);
    aril_tensor *cell = aril_add(aril_mul_scalar(row, c), a.predicted);
    if (aril__self()->tracer != NULL) return add_cells(m, c, aril_flatten(cell, 0, -1), spread);
    aril_tensor *counts =
        aril_bincount(aril_flatten(cell, 0, -1),
                      spread != NULL ? aril_flatten(spread, 0, -1) : NULL, (c + 2) * c);
    if ((status = aril_tensor_status(counts)) != ARIL_OK) return status;
    if (aril_item(aril_sum(aril_narrow(counts, 0, (c + 1) * c, c), ARIL_ALL)) != 0)
        return aril__fail(ARIL_ERR_INDEX,
                          "%s: target class %lld is out of range for scores of %lld classes",
                          m->label, (long long)aril_item_int(aril_amax(a.truth, ARIL_ALL)),
                          (long long)c);
    aril_tensor *table = aril_narrow(aril_reshape(counts, ARIL_SHAPE(c + 2, c)), 0, 1, c);
    return aril_metric_add(m, "table", aril_cast(table, ARIL_F64));
}

aril_tensor *aril__metric_confusion_table(aril_metric *m)
{
    aril_tensor *table = aril_metric_get(m, "table");
    if (table != NULL) return aril_copy(table);
    aril__fail(ARIL_ERR_UNSUPPORTED, "%s has no table in multi-label mode", m->label);
    return NULL;
}

double aril__metric_table_value(aril_metric *m)
{
    aril_tensor *table = aril_metric_get(m, "table");
    return aril_item(aril_sum(aril_diagonal(table, 0, 0, 1), ARIL_ALL)) /
           aril_item(aril_sum(table, ARIL_ALL));
}

/* ---- precision, recall, f1 ---- */

/* Multi-label: for each of the C labels the true positives, predicted positives, actual
 * positives. */
static aril_status labels_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                 aril_tensor *weight)
{
    if (aril_ndim(output) != 2)
        return aril__fail(ARIL_ERR_SHAPE, "%s in multi-label mode expects [N,C], got %d dimensions",
                          m->label, aril_ndim(output));
    aril__answers a;
    aril_tensor *spread;
    aril_status status = aril__answers_of(m, output, target, &a);
    if (status == ARIL_OK) status = aril__spread_weight(m->label, weight, a.predicted, &spread);
    if (status != ARIL_OK) return status;
    aril_tensor *yes = aril_cast(a.predicted, ARIL_F64), *truth = aril_cast(a.truth, ARIL_F64);
    aril_tensor *right = aril_mul(yes, truth);
    aril_tensor *of[] = { right, yes, truth };
    const char *name[] = { "right", "answers", "truths" };
    for (int i = 0; i < 3; i++) {
        if (spread != NULL) of[i] = aril_mul(of[i], spread);
        status = aril_metric_add(m, name[i], aril_sum(of[i], ARIL_AXES(0)));
        if (status != ARIL_OK) return status;
    }
    return ARIL_OK;
}

aril_status aril__metric_scores_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                       aril_tensor *weight)
{
    bool labels = m->opts.multilabel && aril_ndim(output) > 1 && aril_size(output, 1) > 1;
    return labels ? labels_update(m, output, target, weight)
                  : aril__metric_table_update(m, output, target, weight);
}

/* For each class: correct predictions, predictions, samples. */
typedef struct counts {
    int64_t n;
    double *right, *answers, *truths; /* in one allocation */
    bool labels;
} counts;

static bool read_counts(aril_metric *m, counts *c)
{
    aril_tensor *table = aril_metric_get(m, "table"), *right = aril_metric_get(m, "right");
    aril_tensor *any = table != NULL ? table : right;
    if (any == NULL) return false;
    int64_t n = aril_ndim(any) > 0 ? aril_size(any, 0) : 0;
    if (table != NULL) table = aril__metric_state(m, "table", ARIL_SHAPE(n, n));
    right = aril__metric_state(m, "right", ARIL_SHAPE(n));
    aril_tensor *answers = aril__metric_state(m, "answers", ARIL_SHAPE(n));
    aril_tensor *truths = aril__metric_state(m, "truths", ARIL_SHAPE(n));
    if (table == NULL && (right == NULL || answers == NULL || truths == NULL)) return false;
    *c = (counts){ .n = n, .labels = table == NULL };
    c->right = aril__calloc((size_t)(3 * c->n + 1) * sizeof(double));
    if (c->right == NULL) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for the counts of %lld classes",
                   (long long)c->n);
        return false;
    }
    c->answers = c->right + c->n;
    c->truths = c->answers + c->n;
    if (c->labels)
        return aril_read(right, c->right) == ARIL_OK && aril_read(answers, c->answers) == ARIL_OK &&
               aril_read(truths, c->truths) == ARIL_OK;
    const double *cell = aril_data(table);
    if (cell == NULL) return false;
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t j = 0; j < c->n; j++) {
            double v = cell[i * c->n + j];
            c->truths[i] += v;
            c->answers[j] += v;
            if (i == j) c->right[i] += v;
        }
    return true;
}

typedef enum { PRECISION, RECALL, F1 } score;

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double score_of(score what, double right, double answers, double truths)
{
    switch (what) {
    case PRECISION: return ratio(right, answers);
    case RECALL: return ratio(right, truths);
    case F1: break;
    }
    return ratio(2 * right, answers + truths);
}

static double averaged(aril_metric *m, score what)
{
    counts c = { 0 };
    double value = NAN;
    if (read_counts(m, &c)) {
        aril_metric_average average = m->opts.average;
        if (average == ARIL_AVERAGE_DEFAULT && c.n == 2 && !c.labels)
            value = score_of(what, c.right[1], c.answers[1], c.truths[1]);
        else if (average == ARIL_AVERAGE_MICRO) {
            double right = 0, answers = 0, truths = 0;
            for (int64_t i = 0; i < c.n; i++) {
                right += c.right[i];
                answers += c.answers[i];
                truths += c.truths[i];
            }
            value = score_of(what, right, answers, truths);
        } else {
            double sum = 0, weights = 0;
            for (int64_t i = 0; i < c.n; i++) {
                double w = average == ARIL_AVERAGE_WEIGHTED             ? c.truths[i]
                           : c.labels || c.truths[i] + c.answers[i] > 0 ? 1
                                                                        : 0;
                sum += w * score_of(what, c.right[i], c.answers[i], c.truths[i]);
                weights += w;
            }
            value = ratio(sum, weights);
        }
    }
    free(c.right);
    return value;
}

double aril__metric_precision_value(aril_metric *m)
{
    return averaged(m, PRECISION);
}

double aril__metric_recall_value(aril_metric *m)
{
    return averaged(m, RECALL);
}

double aril__metric_f1_value(aril_metric *m)
{
    return averaged(m, F1);
}
