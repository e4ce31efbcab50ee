/* Internals of metrics: shared by their classes. */
#ifndef ARIL_TRAIN_METRIC_H
#define ARIL_TRAIN_METRIC_H

#include "aril/metrics.h"
#include "core/lifetime.h"
#include "train/states.h"

/* A metric with a name: a row of metrics.def, where the fields are explained. */
typedef struct aril__metric_row {
    aril_metric_class base;
    const char *doc, *also;
    unsigned fits;     /* mask of aril__metric_task */
    unsigned averages; /* 1 << ARIL_AVERAGE_MACRO ... */
    uint8_t counts[2];
    bool grows; /* its state does: a traced function cannot update it */
    bool no_column;
    bool selects_best; /* aril_metric_selects_best */
} aril__metric_row;

typedef enum aril__metric_task {
    ARIL__METRIC_CLASSES = 1,
    ARIL__METRIC_BINARY = 2,
    ARIL__METRIC_LABELS = 4,
    ARIL__METRIC_VALUES = 8,
} aril__metric_task;

/* The rows; *n: how many. */
const aril__metric_row *aril__metric_rows(int *n);

struct aril_metric {
    aril__lifetime_slot life; /* for programs that read it */
    const aril_metric_class *type;
    const aril__metric_row *row; /* NULL: a custom metric */
    aril_metric_opts opts;
    char *label;
    void *data;
    int output; /* index of the model output it measures */
    aril__states states;
};

/* Predictions and targets ready to compare: class indices, or 0 and 1; of the same shape. */
typedef struct aril__answers {
    aril_tensor *predicted, *truth; /* i64 */
    int64_t classes;
    bool yes_no; /* binary: each element is a prediction of its own, classes is 2 */
    int axis;    /* class axis of the scores; unused when yes_no */
} aril__answers;

/* Computes them from scores and targets, in the innermost scope. */
aril_status aril__answers_of(const aril_metric *m, aril_tensor *output, aril_tensor *target,
                             aril__answers *a);

/* Class indices of the targets, [N,d...], for scores [N,C,d...]; and the class axis of the
 * scores. */
aril_status aril__truth_of(const char *who, aril_tensor *output, aril_tensor *target,
                           aril_tensor **truth, int *axis);

/* True for binary scores: [N], or [N,1,...]. */
bool aril__scores_are_yes_no(const aril_metric *m, aril_tensor *output);

/* Expands sample weights [N] to the shape [N,...] of `like`, in f64; NULL stays NULL. */
aril_status aril__spread_weight(const char *who, aril_tensor *weight, aril_tensor *like,
                                aril_tensor **spread);

/* The number of elements, [], on the device of `of`. */
aril_tensor *aril__metric_count(aril_tensor *of, aril_dtype dtype);

/* Reshapes the target to the shape of the output, if both have as many elements. */
aril_status aril__same_shape(const char *who, aril_tensor *output, aril_tensor **target);

/* Prepends "prefix_" to the label. */
aril_status aril__metric_prefix(aril_metric *m, const char *prefix);

double aril__metric_threshold(const aril_metric *m);

/* The only element of a state, 0 if it is missing. */
double aril__metric_number(aril_metric *m, const char *name);

/* A state in f64 with that shape (-1: any size). NULL if it is missing; NULL with an error if it
 * differs, since a loaded state may contain anything. */
aril_tensor *aril__metric_state(aril_metric *m, const char *name, aril_shape shape);

/* aril_metric_class.table of metrics whose state "table" is a confusion matrix. */
aril_tensor *aril__metric_confusion_table(aril_metric *m);

#define METRIC(name, update, value, ...)                                                        \
    aril_status aril__metric_##update(aril_metric *m, aril_tensor *output, aril_tensor *target, \
                                      aril_tensor *weight);                                     \
    double aril__metric_##value(aril_metric *m);
#include "train/metrics.def"

#endif
