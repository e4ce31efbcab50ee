/* Metrics: how good predictions are, over as many batches as come.
 *
 *     aril_metric *m = aril_metric_new("accuracy", (aril_metric_opts){ 0 });
 *     for (each batch) aril_metric_update(m, output, target, NULL);
 *     printf("%g\n", aril_metric_value(m));
 *     aril_metric_reset(m);                       the next epoch starts
 *     aril_metric_free(m);
 *
 * A metric keeps counts and sums, not the mean of the batches' values, so that its value is that of
 * all samples seen at once however they were cut into batches. The counts are tensors on the device
 * of the predictions: an update waits for nothing, and what a metric knows can be saved and loaded.
 *
 * Predictions come as [N,C] or [N,C,d...] scores of classes (of which the largest wins), or as [N]
 * or [N,1] scores of yes against no. Targets are class indices ([N], [N,d...]; one below 0 is
 * passed over) or, in floating point and in the shape of the scores, a share for each class
 * (one-hot). */
#ifndef ARIL_METRICS_H
#define ARIL_METRICS_H

#include "aril/named.h"

ARIL_C_BEGIN

typedef struct aril_metric aril_metric;

/* How the values of several classes become one. */
typedef enum aril_metric_average {
    ARIL_AVERAGE_DEFAULT,  /* two classes: that of class 1; more: macro */
    ARIL_AVERAGE_MACRO,    /* the mean over the classes that occur in targets or predictions */
    ARIL_AVERAGE_MICRO,    /* of the counts of all classes together */
    ARIL_AVERAGE_WEIGHTED, /* the mean weighted by the classes' numbers of samples */
} aril_metric_average;

typedef struct aril_metric_opts {
    const char *label; /* what it is called in logs; NULL: its name */
    double threshold;  /* scores of yes and no above it mean yes; 0: 0.5; ARIL_ZERO: 0 (logits) */
    bool multilabel;   /* [N,C] holds C answers of yes or no, not one of C classes */
    aril_metric_average average; /* precision, recall, f1 */
    int64_t k;                   /* "topk"; 0: 5 */
    /* Of a metric of your own: early stop, the best epoch and plateaus look for the smallest value.
     * Metrics of aril_metric_new know it by themselves. */
    bool smaller_is_better;
} aril_metric_opts;

/* A metric by name:
 *     accuracy        the share of right answers; "acc" is the same
 *     top1 ... top99  the share of samples whose class is among the k highest scores; "topk" takes
 *                     its k from .k
 *     precision       of the answers that name a class, those that are right
 *     recall          of the samples of a class, those that are found
 *     f1              2 * precision * recall / (precision + recall)
 *     precision_macro, recall_micro, f1_weighted ...   the same with an average
 *     auc             the area under the ROC curve, exact: keeps every score. Two classes
 *     confusion       the share of right answers; aril_metric_table gives the counts. Models show
 *                     no column of it
 *     mae, mse, rmse  mean absolute error, mean squared error and its root
 *     r2              1 - squared error / variance of the targets
 * The caller frees it. NULL, with an error that lists the names, where there is no such metric. */
ARIL_API aril_metric *aril_metric_new(const char *name, aril_metric_opts opts);

/* The names that aril_metric_new knows, ended by NULL. */
ARIL_API const char *const *aril_metric_names(void);

/* A metric of your own, the short form: fn gives a value for each sample, or one for the whole
 * batch, and the metric is their mean. It runs without gradients, in a scope of its own. */
typedef aril_tensor *aril_metric_fn(aril_tensor *output, aril_tensor *target, void *ctx);
ARIL_API aril_metric *aril_metric_of(const char *label, aril_metric_fn *fn, void *ctx);
/* The same with options, of which .smaller_is_better counts. */
ARIL_API aril_metric *aril_metric_of_with(const char *label, aril_metric_fn *fn, void *ctx,
                                          aril_metric_opts opts);

/* A metric of your own, in full. It must outlive its metrics. */
typedef struct aril_metric_class {
    const char *name;
    size_t size; /* bytes of data of its own, zeros at the start: aril_metric_data */
    /* Adds a batch to the state; weight is NULL or [N]. Runs without gradients, in a scope. */
    aril_status (*update)(aril_metric *m, aril_tensor *output, aril_tensor *target,
                          aril_tensor *weight);
    double (*value)(aril_metric *m);       /* of what was seen; NaN of nothing */
    aril_tensor *(*table)(aril_metric *m); /* NULL: there is none */
    void (*destroy)(aril_metric *m);       /* NULL: nothing to do */
    bool smaller_is_better;                /* of all metrics of this class */
} aril_metric_class;
/* A metric of a class, or NULL with an error; and its own data, `size` bytes. */
ARIL_API aril_metric *aril_metric_make(const aril_metric_class *type, aril_metric_opts opts);
ARIL_API void *aril_metric_data(aril_metric *m);

/* For classes: the state called `name`, NULL before its first use; and its new value, kept. All
 * states go when the metric is reset. */
ARIL_API aril_tensor *aril_metric_get(aril_metric *m, const char *name);
ARIL_API aril_status aril_metric_set(aril_metric *m, const char *name, aril_tensor *value);
/* Adds `value` to the state, or makes it the state where there is none. */
ARIL_API aril_status aril_metric_add(aril_metric *m, const char *name, aril_tensor *value);

/* Frees a metric; NULL is fine. */
ARIL_API void aril_metric_free(aril_metric *m);

/* What the metric is called in logs and in the history. */
ARIL_API const char *aril_metric_label(const aril_metric *m);

/* True when its smallest value is its best: where its class or its options say so, or, of a metric
 * of your own, where the last word of its label does: loss, error, mae, mse, rmse. */
ARIL_API bool aril_metric_smaller_is_better(const aril_metric *m);

/* Adds a batch: what was predicted, what is right, and NULL or a weight for each sample [N]. */
ARIL_API aril_status aril_metric_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                                        aril_tensor *weight);

/* The value for everything since the start or the last reset; NaN before the first batch. */
ARIL_API double aril_metric_value(aril_metric *m);

/* The counts behind precision, recall, f1 and confusion: [C,C], row: the class, column: the answer;
 * f64. An error for other metrics, and before the first batch. */
ARIL_API aril_tensor *aril_metric_table(aril_metric *m);

/* Forgets everything. */
ARIL_API void aril_metric_reset(aril_metric *m);

/* All states with their names, valid until the metric changes; and back. Copies are made. */
ARIL_API const aril_named *aril_metric_state(aril_metric *m);
ARIL_API aril_status aril_metric_load_state(aril_metric *m, const aril_named *state);

ARIL_C_END

#endif
