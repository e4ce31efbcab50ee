/* Metrics: the quality of predictions, accumulated over batches.
 *
 *     aril_metric *m = aril_metric_new("accuracy", (aril_metric_opts){ 0 });
 *     for (each batch) aril_metric_update(m, output, target, NULL);
 *     printf("%g\n", aril_metric_value(m));
 *     aril_metric_reset(m);                       before the next epoch
 *     aril_metric_free(m);
 *
 * A metric accumulates counts and sums, not the mean of per-batch values, so that its value is
 * exact over all samples, whatever the batch size. The counts are tensors on the device of the
 * predictions: an update does not synchronize, and a metric's state can be saved and loaded.
 *
 * Predictions are [N,C] or [N,C,d...] class scores (the largest wins), or [N] or [N,1] binary
 * scores. Targets are class indices ([N], [N,d...]; negative ones are ignored) or floats with the
 * shape of the scores: class probabilities (one-hot). */
#ifndef ARIL_METRICS_H
#define ARIL_METRICS_H

#include "aril/named.h"

ARIL_C_BEGIN

typedef struct aril_metric aril_metric;

/* How per-class values are averaged. */
typedef enum aril_metric_average {
    ARIL_AVERAGE_DEFAULT,  /* two classes: the value of class 1; more: macro */
    ARIL_AVERAGE_MACRO,    /* the mean over the classes that occur in targets or predictions */
    ARIL_AVERAGE_MICRO,    /* from the summed counts of all classes */
    ARIL_AVERAGE_WEIGHTED, /* the mean weighted by the number of samples of each class */
} aril_metric_average;

typedef struct aril_metric_opts {
    const char *label; /* its name in logs; NULL: the metric's name */
    double threshold;  /* binary scores above it are positive; default 0.5; ARIL_ZERO: 0 (logits) */
    bool multilabel;   /* [N,C] holds C binary labels, not one of C classes */
    aril_metric_average average; /* precision, recall, f1 */
    int64_t k;                   /* "topk"; default 5 */
    /* Custom metrics: early stopping, the best epoch and plateau schedules look for the smallest
     * value, otherwise for the largest. Metrics of aril_metric_new know it themselves. */
    bool smaller_is_better;
} aril_metric_opts;

/* A metric by name, such as "accuracy", "top5" (any k from 1 to 99; "topk" takes its k from .k),
 * "f1_macro" (f1 with an average) or "mae": aril_metric_help prints all of them, the page on
 * training shows them too. The caller frees it. NULL, with an error that lists the names, if there
 * is no such metric. */
ARIL_API aril_metric *aril_metric_new(const char *name, aril_metric_opts opts);

/* The names that aril_metric_new accepts, NULL-terminated. */
ARIL_API const char *const *aril_metric_names(void);

/* Prints a line for each metric: its names; the predictions that it fits (classes, binary scores,
 * several labels per sample, values); what it measures; whether smaller values are better. */
ARIL_API void aril_metric_help(FILE *to);

/* A custom metric, short form: fn returns a value for each sample, or one for the whole batch, and
 * the metric is their mean. It runs without gradients, in its own scope. */
typedef aril_tensor *aril_metric_fn(aril_tensor *output, aril_tensor *target, void *ctx);
ARIL_API aril_metric *aril_metric_of(const char *label, aril_metric_fn *fn, void *ctx);
/* The same with options; only .smaller_is_better is used. */
ARIL_API aril_metric *aril_metric_of_with(const char *label, aril_metric_fn *fn, void *ctx,
                                          aril_metric_opts opts);

/* A class of custom metrics. It must outlive its metrics. */
typedef struct aril_metric_class {
    const char *name;
    size_t size; /* bytes of instance data, zero-initialized: aril_metric_data */
    /* Adds a batch to the state; weight is NULL or [N]. Runs without gradients, in a scope. */
    aril_status (*update)(aril_metric *m, aril_tensor *output, aril_tensor *target,
                          aril_tensor *weight);
    double (*value)(aril_metric *m);       /* over all batches so far; NaN before the first */
    aril_tensor *(*table)(aril_metric *m); /* NULL: there is none */
    void (*destroy)(aril_metric *m);       /* NULL: nothing to do */
    bool smaller_is_better;                /* for all metrics of this class */
} aril_metric_class;
/* Creates a metric of a class, or NULL with an error; returns its instance data, `size` bytes. */
ARIL_API aril_metric *aril_metric_make(const aril_metric_class *type, aril_metric_opts opts);
ARIL_API void *aril_metric_data(aril_metric *m);

/* For metric classes: gets the state tensor `name`, NULL if it was never set; sets it and keeps a
 * reference. A reset clears all states. */
ARIL_API aril_tensor *aril_metric_get(aril_metric *m, const char *name);
ARIL_API aril_status aril_metric_set(aril_metric *m, const char *name, aril_tensor *value);
/* Adds `value` to the state, or sets the state to it if there is none. */
ARIL_API aril_status aril_metric_add(aril_metric *m, const char *name, aril_tensor *value);

/* Frees a metric; NULL is fine. */
ARIL_API void aril_metric_free(aril_metric *m);

/* The metric's name in logs and in the history. */
ARIL_API const char *aril_metric_label(const aril_metric *m);

/* True when smaller values are better: if its class says so or, for a custom metric, its options.
 */
ARIL_API bool aril_metric_smaller_is_better(const aril_metric *m);

/* True when the metric fits predictions of classes, or of values: a custom metric fits both. */
ARIL_API bool aril_metric_fits_classes(const aril_metric *m);
ARIL_API bool aril_metric_fits_values(const aril_metric *m);

/* True for metrics that are the usual measure of their task (accuracy, mae): training tools keep
 * the epoch where such a metric is best, otherwise the one with the smallest loss. */
ARIL_API bool aril_metric_selects_best(const aril_metric *m);

/* Adds a batch: predictions, targets, and NULL or a weight for each sample [N]. */
ARIL_API aril_status aril_metric_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                        aril_tensor *weight);

/* The value over all batches since creation or the last reset; NaN before the first batch. */
ARIL_API double aril_metric_value(aril_metric *m);

/* The confusion matrix behind precision, recall, f1 and confusion: [C,C], row: the target class,
 * column: the predicted class; f64. An error for other metrics, and before the first batch. */
ARIL_API aril_tensor *aril_metric_table(aril_metric *m);

/* Resets the metric to its initial state. */
ARIL_API void aril_metric_reset(aril_metric *m);

/* All state tensors with their names, valid until the metric changes; restores them from a copy. */
ARIL_API const aril_named *aril_metric_state(aril_metric *m);
ARIL_API aril_status aril_metric_load_state(aril_metric *m, const aril_named *state);

ARIL_C_END

#endif
