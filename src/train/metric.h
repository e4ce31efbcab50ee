/* Inside of metrics: what their classes share. */
#ifndef ARIL_TRAIN_METRIC_H
#define ARIL_TRAIN_METRIC_H

#include "aril/metrics.h"
#include "train/states.h"

struct aril_metric {
    const aril_metric_class *type;
    aril_metric_opts opts;
    char *label;
    void *data;
    int output; /* of the model's: the one it looks at */
    aril__states states;
};

/* Answers and truth as they are compared: class numbers, or 0 and 1; of one shape. */
typedef struct aril__answers {
    aril_tensor *predicted, *truth; /* i64 */
    int64_t classes;
    bool yes_no; /* every element is an answer of its own: classes is 2 */
    int axis;    /* of the classes in the scores; without meaning when yes_no */
} aril__answers;

/* Makes them of scores and targets, in the innermost scope. */
aril_status aril__answers_of(const aril_metric *m, aril_tensor *output, aril_tensor *target,
                             aril__answers *a);

/* The numbers of classes that targets name, [N,d...], for scores [N,C,d...]; and the scores' class
 * axis. */
aril_status aril__truth_of(const char *who, aril_tensor *output, aril_tensor *target,
                           aril_tensor **truth, int *axis);

/* True for scores of yes and no: [N], or [N,1,...]. */
bool aril__scores_are_yes_no(const aril_metric *m, aril_tensor *output);

/* The weights [N] of samples for elements of the shape [N,...] of `like`, in f64; NULL stays
 * NULL. */
aril_status aril__spread_weight(const char *who, aril_tensor *weight, aril_tensor *like,
                                aril_tensor **spread);

/* The target in the shape of the output, where both have as many elements. */
aril_status aril__same_shape(const char *who, aril_tensor *output, aril_tensor **target);

/* Puts "prefix_" before the label. */
aril_status aril__metric_prefix(aril_metric *m, const char *prefix);

double aril__metric_threshold(const aril_metric *m);

/* The only element of a state, 0 where it is not there. */
double aril__metric_number(aril_metric *m, const char *name);

/* A state in f64 of that shape (-1: of any size). NULL where it is not there, and, with an error,
 * where it is another: what was loaded may hold anything. */
aril_tensor *aril__metric_state(aril_metric *m, const char *name, aril_shape shape);

/* Does the last word of a name say that smaller values are better? */
bool aril__smaller_by_name(const char *name);

extern const aril_metric_class aril__metric_accuracy, aril__metric_topk, aril__metric_precision,
    aril__metric_recall, aril__metric_f1, aril__metric_confusion, aril__metric_auc,
    aril__metric_mae, aril__metric_mse, aril__metric_rmse, aril__metric_r2;

#endif
