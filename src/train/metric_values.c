/* Metrics of values: regression errors, the area under the ROC curve, and user-defined means. */
#include "aril/index.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "train/metric.h"

#include <math.h>
#include <stdlib.h>

/* ---- errors ---- */

/* Adds sum(w * value) to "sum" and sum(w) to "weight", over all elements. */
static aril_status add_mean(aril_metric *m, aril_tensor *value, aril_tensor *weight)
{
    aril_tensor *spread;
    aril_status status = aril__spread_weight(m->label, weight, value, &spread);
    if (status != ARIL_OK) return status;
    aril_tensor *sum = aril_sum(spread != NULL ? aril_mul(value, spread) : value, ARIL_ALL);
    aril_tensor *count =
        spread != NULL ? aril_sum(spread, ARIL_ALL) : aril__metric_count(value, ARIL_F64);
    status = aril_metric_add(m, "sum", aril_cast(sum, ARIL_F64));
    return status != ARIL_OK ? status : aril_metric_add(m, "weight", count);
}

double aril__metric_mean_value(aril_metric *m)
{
    return aril__metric_number(m, "sum") / aril__metric_number(m, "weight");
}

double aril__metric_root_mean_value(aril_metric *m)
{
    return sqrt(aril__metric_mean_value(m));
}

/* output - target in f64 and in the output's shape. */
static aril_status difference(aril_metric *m, aril_tensor *output, aril_tensor *target,
                              aril_tensor **diff)
{
    aril_status status = aril__same_shape(m->label, output, &target);
    if (status != ARIL_OK) return status;
    *diff = aril_sub(aril_cast(output, ARIL_F64), aril_cast(target, ARIL_F64));
    return aril_tensor_status(*diff);
}

aril_status aril__metric_absolute_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                         aril_tensor *weight)
{
    aril_tensor *diff;
    aril_status status = difference(m, output, target, &diff);
    return status != ARIL_OK ? status : add_mean(m, aril_abs(diff), weight);
}

aril_status aril__metric_square_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                       aril_tensor *weight)
{
    aril_tensor *diff;
    aril_status status = difference(m, output, target, &diff);
    return status != ARIL_OK ? status : add_mean(m, aril_square(diff), weight);
}

/* ---- r2: computed for each column of [N,D], then averaged ---- */

aril_status aril__metric_r2_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                   aril_tensor *weight)
{
    aril_tensor *diff, *spread;
    aril_status status = difference(m, output, target, &diff);
    if (status != ARIL_OK) return status;
    aril_shape columns = ARIL_SHAPE(aril_size(output, 0), -1);
    if (aril_numel(output) == 0) return ARIL_OK;
    diff = aril_reshape(diff, columns);
    aril_tensor *y = aril_reshape(aril_cast(target, ARIL_F64), columns);
    if ((status = aril_tensor_status(y)) != ARIL_OK) return status;
    if ((status = aril__spread_weight(m->label, weight, y, &spread)) != ARIL_OK) return status;
    if (spread == NULL) spread = aril_ones_like(y);
    aril_tensor *of[] = { aril_square(diff), y, aril_square(y), aril_ones_like(y) };
    const char *name[] = { "errors", "sum", "squares", "weight" };
    for (int i = 0; i < 4; i++) {
        status = aril_metric_add(m, name[i], aril_sum(aril_mul(of[i], spread), ARIL_AXES(0)));
        if (status != ARIL_OK) return status;
    }
    return ARIL_OK;
}

double aril__metric_r2_value(aril_metric *m)
{
    aril_tensor *sum = aril_metric_get(m, "sum"), *n = aril_metric_get(m, "weight");
    aril_tensor *squares = aril_metric_get(m, "squares"), *errors = aril_metric_get(m, "errors");
    aril_tensor *spread = aril_sub(squares, aril_div(aril_square(sum), n)); /* of the targets */
    return aril_item(aril_mean(aril_rsub_scalar(aril_div(errors, spread), 1), ARIL_ALL));
}

/* ---- the area under the ROC curve ----
 *
 * Exact, so every score is stored: the first "seen" columns of "scores" [3,capacity] hold scores,
 * targets and weights of the samples so far; the capacity doubles when full. */

static int64_t auc_seen(aril_metric *m)
{
    int64_t n = 0;
    return aril__states_ints(&m->states, "seen", 1, &n) ? n : 0;
}

/* The stored scores, NULL when there are none yet. Fails when there are fewer than "seen". */
static aril_status auc_scores(aril_metric *m, aril_tensor **kept)
{
    int64_t seen = auc_seen(m);
    *kept = aril__metric_state(m, "scores", ARIL_SHAPE(3, -1));
    if (*kept == NULL && aril_metric_get(m, "scores") != NULL) return ARIL_ERR_FORMAT;
    if (seen >= 0 && seen <= (*kept != NULL ? aril_size(*kept, 1) : 0)) return ARIL_OK;
    return aril__fail(ARIL_ERR_FORMAT, "the state of %s is inconsistent: it counts %lld scores",
                      m->label, (long long)seen);
}

aril_status aril__metric_auc_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                    aril_tensor *weight)
{
    aril_tensor *score, *truth;
    aril_status status;
    if (aril__scores_are_yes_no(m, output)) {
        if ((status = aril__same_shape(m->label, output, &target)) != ARIL_OK) return status;
        score = output;
        truth = aril_gt_scalar(target, 0);
    } else {
        int axis;
        status = aril__truth_of(m->label, output, target, &truth, &axis);
        if (status != ARIL_OK) return status;
        if (aril_size(output, axis) != 2)
            return aril__fail(ARIL_ERR_SHAPE, "%s expects scores of two classes, got %lld",
                              m->label, (long long)aril_size(output, axis));
        score = aril_sub(aril_select(output, axis, 1), aril_select(output, axis, 0));
    }
    aril_tensor *spread;
    if ((status = aril_tensor_status(score)) != ARIL_OK) return status;
    if ((status = aril__spread_weight(m->label, weight, score, &spread)) != ARIL_OK) return status;
    if (spread == NULL) spread = aril_ones(aril_shape_of(score), ARIL_F64, aril_device_of(score));

    aril_tensor *kept;
    if ((status = auc_scores(m, &kept)) != ARIL_OK) return status;
    int64_t seen = auc_seen(m), n = aril_numel(score), all = seen + n;
    int64_t capacity = kept != NULL ? aril_size(kept, 1) : 0;
    if (all > capacity) {
        capacity = all > 2 * capacity ? all + 1024 : 2 * capacity;
        aril_tensor *larger = aril_zeros(ARIL_SHAPE(3, capacity), ARIL_F64, aril_device_of(score));
        if (seen > 0) aril_copy_(aril_narrow(larger, 1, 0, seen), aril_narrow(kept, 1, 0, seen));
        if ((status = aril_metric_set(m, "scores", larger)) != ARIL_OK) return status;
        kept = larger;
    }
    aril_tensor *of[] = { score, truth, spread };
    for (int i = 0; i < 3; i++) {
        aril_tensor *slot = aril_narrow(aril_select(kept, 0, i), 0, seen, n);
        status = aril_tensor_status(aril_copy_(slot, aril_flatten(of[i], 0, -1)));
        if (status != ARIL_OK) return status;
    }
    return aril__states_set_ints(&m->states, "seen", 1, &all);
}

typedef struct ranked {
    double score, truth, weight;
} ranked;

static int by_score(const void *a, const void *b)
{
    double x = ((const ranked *)a)->score, y = ((const ranked *)b)->score;
    return (x > y) - (x < y);
}

/* The probability that a positive scores higher than a negative; ties count half. */
double aril__metric_auc_value(aril_metric *m)
{
    aril_tensor *kept;
    int64_t n = auc_seen(m);
    if (auc_scores(m, &kept) != ARIL_OK || n == 0) return NAN;
    int64_t capacity = aril_size(kept, 1);
    const double *v = aril_data(kept);
    ranked *r = aril__malloc((size_t)n * sizeof *r);
    if (v == NULL || r == NULL) {
        if (r == NULL) aril__fail(ARIL_ERR_MEMORY, "out of memory for %lld scores", (long long)n);
        free(r);
        return NAN;
    }
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        bool ignored = v[capacity + i] < 0;
        if (!ignored) r[used++] = (ranked){ v[i], v[capacity + i], v[2 * capacity + i] };
    }
    qsort(r, (size_t)used, sizeof *r, by_score);
    double yes = 0, no = 0, area = 0;
    for (int64_t i = 0; i < used;) {
        double tied_yes = 0, tied_no = 0;
        int64_t j = i;
        do {
            if (r[j].truth > 0)
                tied_yes += r[j].weight;
            else
                tied_no += r[j].weight;
            j++;
        } while (j < used && !(r[i].score < r[j].score));
        area += tied_yes * (no + tied_no / 2);
        yes += tied_yes;
        no += tied_no;
        i = j;
    }
    free(r);
    return yes > 0 && no > 0 ? area / (yes * no) : NAN;
}

/* ---- mean of a user-defined function ---- */

typedef struct own {
    aril_metric_fn *fn;
    void *ctx;
} own;

static aril_status own_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                              aril_tensor *weight)
{
    const own *o = aril_metric_data(m);
    aril_tensor *value = o->fn(output, target, o->ctx);
    if (value == NULL)
        return aril__fail(ARIL_ERR_ARG, "the function of the metric %s returned NULL", m->label);
    aril_status status = aril_tensor_status(value);
    if (status != ARIL_OK) return status;
    int64_t n = aril_size(output, 0);
    if (aril_ndim(value) > 0 && aril_size(value, 0) == n)
        return add_mean(m, aril_cast(value, ARIL_F64), weight);
    if (aril_numel(value) != 1)
        return aril__fail(ARIL_ERR_SHAPE,
                          "the function of the metric %s returned %lld values for %lld samples; "
                          "expected one value, or one for each sample",
                          m->label, (long long)aril_numel(value), (long long)n);
    aril_tensor *each =
        aril_expand(aril_reshape(aril_cast(value, ARIL_F64), ARIL_SHAPE(1)), ARIL_SHAPE(n));
    return add_mean(m, each, weight);
}

static const aril_metric_class own_class = {
    .name = "own",
    .size = sizeof(own),
    .update = own_update,
    .value = aril__metric_mean_value,
};

aril_metric *aril_metric_of_with(const char *label, aril_metric_fn *fn, void *ctx,
                                 aril_metric_opts opts)
{
    if (fn == NULL || label == NULL) {
        aril__fail(ARIL_ERR_ARG, "a custom metric needs a label and a function");
        return NULL;
    }
    opts.label = label;
    aril_metric *m = aril_metric_make(&own_class, opts);
    if (m != NULL) *(own *)m->data = (own){ fn, ctx };
    return m;
}

aril_metric *aril_metric_of(const char *label, aril_metric_fn *fn, void *ctx)
{
    return aril_metric_of_with(label, fn, ctx, (aril_metric_opts){ 0 });
}
