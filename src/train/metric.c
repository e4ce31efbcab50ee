/* Metrics: names, states, and code shared by their classes. */
#include "train/metric.h"

#include "aril/index.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "core/thread.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static const char *const names[] = { "accuracy",
                                     "top1",
                                     "top5",
                                     "topk",
                                     "precision",
                                     "recall",
                                     "f1",
                                     "precision_macro",
                                     "precision_micro",
                                     "precision_weighted",
                                     "recall_macro",
                                     "recall_micro",
                                     "recall_weighted",
                                     "f1_macro",
                                     "f1_micro",
                                     "f1_weighted",
                                     "auc",
                                     "confusion",
                                     "mae",
                                     "mse",
                                     "rmse",
                                     "r2",
                                     NULL };

const char *const *aril_metric_names(void)
{
    return names;
}

static const aril_metric_class *const classes[] = {
    &aril__metric_accuracy, &aril__metric_topk,      &aril__metric_precision, &aril__metric_recall,
    &aril__metric_f1,       &aril__metric_confusion, &aril__metric_auc,       &aril__metric_mae,
    &aril__metric_mse,      &aril__metric_rmse,      &aril__metric_r2,
};

static aril_status no_such_metric(const char *name)
{
    int n = (int)(sizeof names / sizeof *names) - 1;
    const char *near = aril_nearest(name, names, n);
    char list[256] = "";
    for (int i = 0, at = 0; i < n; i++)
        if (strchr(names[i], '_') == NULL)
            at +=
                snprintf(list + at, sizeof list - (size_t)at, "%s%s", at > 0 ? ", " : "", names[i]);
    return near != NULL ? aril__fail(ARIL_ERR_ARG, "no metric '%s'; did you mean %s? There are %s",
                                     name, near, list)
                        : aril__fail(ARIL_ERR_ARG, "no metric '%s'; there are %s", name, list);
}

/* The class of a name such as "top5" or "precision_macro", and the options it contains. */
static const aril_metric_class *class_of(const char *name, aril_metric_opts *opts)
{
    static const char *const averages[] = { "", "_macro", "_micro", "_weighted" };
    if (strncmp(name, "top", 3) == 0 && isdigit((unsigned char)name[3]) && name[3] != '0') {
        char *end;
        long k = strtol(name + 3, &end, 10);
        if (*end != '\0' || k > 99) return NULL;
        opts->k = k;
        return &aril__metric_topk;
    }
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t length = strlen(classes[i]->name);
        if (strncmp(name, classes[i]->name, length) != 0) continue;
        if (name[length] == '\0') return classes[i];
        if (classes[i] != &aril__metric_precision && classes[i] != &aril__metric_recall &&
            classes[i] != &aril__metric_f1)
            continue;
        for (int a = ARIL_AVERAGE_MACRO; a <= ARIL_AVERAGE_WEIGHTED; a++)
            if (strcmp(name + length, averages[a]) == 0) {
                opts->average = (aril_metric_average)a;
                return classes[i];
            }
    }
    return NULL;
}

aril_metric *aril_metric_new(const char *name, aril_metric_opts opts)
{
    if (name != NULL && strcmp(name, "acc") == 0) name = "accuracy"; /* Keras accepts both */
    const aril_metric_class *type = name != NULL ? class_of(name, &opts) : NULL;
    if (type == NULL) {
        no_such_metric(name != NULL ? name : "(null)");
        return NULL;
    }
    if (opts.label == NULL) opts.label = name;
    return aril_metric_make(type, opts);
}

aril_metric *aril_metric_make(const aril_metric_class *type, aril_metric_opts opts)
{
    if (type == NULL || type->update == NULL || type->value == NULL) {
        aril__fail(ARIL_ERR_ARG, "a metric needs a class with the functions update and value");
        return NULL;
    }
    if (opts.k < 0) {
        aril__fail(ARIL_ERR_ARG, "top-k takes a k above 0, got %lld", (long long)opts.k);
        return NULL;
    }
    const char *label = opts.label != NULL   ? opts.label
                        : type->name != NULL ? type->name
                                             : "metric";
    if (*label == '\0' || strpbrk(label, ",\"\r\n") != NULL) {
        aril__fail(ARIL_ERR_ARG,
                   "\"%s\" cannot label a metric: a label names a column, and has no commas, "
                   "quotes and line breaks",
                   label);
        return NULL;
    }
    aril_metric *m = aril__calloc(sizeof *m);
    if (m != NULL) {
        m->label = aril__strdup(label);
        m->data = type->size > 0 ? aril__calloc(type->size) : NULL;
    }
    if (m == NULL || m->label == NULL || (type->size > 0 && m->data == NULL)) {
        if (m != NULL) {
            free(m->label);
            free(m->data);
        }
        free(m);
        aril__fail(ARIL_ERR_MEMORY, "no memory for the metric %s", label);
        return NULL;
    }
    m->type = type;
    m->opts = opts;
    m->opts.label = m->label;
    return m;
}

void aril_metric_free(aril_metric *m)
{
    if (m == NULL) return;
    if (m->type->destroy != NULL) m->type->destroy(m);
    aril__states_clear(&m->states);
    free(m->data);
    free(m->label);
    free(m);
}

void *aril_metric_data(aril_metric *m)
{
    return m != NULL ? m->data : NULL;
}

const char *aril_metric_label(const aril_metric *m)
{
    return m != NULL ? m->label : "";
}

aril_status aril__metric_prefix(aril_metric *m, const char *prefix)
{
    char *label = aril__malloc(strlen(prefix) + strlen(m->label) + 2);
    if (label == NULL) return aril__fail(ARIL_ERR_MEMORY, "no memory for the metric %s", m->label);
    sprintf(label, "%s_%s", prefix, m->label);
    free(m->label);
    m->opts.label = m->label = label;
    return ARIL_OK;
}

static aril_status missing(void)
{
    return aril__fail(ARIL_ERR_ARG, "a metric is expected, got NULL");
}

/* ---- states ---- */

aril_tensor *aril_metric_get(aril_metric *m, const char *name)
{
    return m != NULL ? aril__states_get(&m->states, name) : NULL;
}

aril_status aril_metric_set(aril_metric *m, const char *name, aril_tensor *value)
{
    return m != NULL ? aril__states_set(&m->states, name, value) : missing();
}

aril_status aril_metric_add(aril_metric *m, const char *name, aril_tensor *value)
{
    if (m == NULL) return missing();
    if (name == NULL || value == NULL)
        return aril__fail(ARIL_ERR_ARG,
                          "metric_add: %s adds to a state by name, got NULL for the %s", m->label,
                          name == NULL ? "name" : "tensor");
    aril_status status = aril_tensor_status(value);
    if (status != ARIL_OK) return status;
    ARIL_NO_GRAD;
    aril_tensor *state = aril__states_get(&m->states, name);
    if (state != NULL) return aril_tensor_status(aril_add_(state, value));
    ARIL_SCOPE;
    return aril__states_set(&m->states, name, aril_copy(value));
}

aril_tensor *aril__metric_state(aril_metric *m, const char *name, aril_shape shape)
{
    aril_tensor *t = aril__states_get(&m->states, name);
    if (t == NULL) return NULL;
    bool fits = aril_dtype_of(t) == ARIL_F64 && aril_ndim(t) == shape.ndim;
    for (int i = 0; fits && i < shape.ndim; i++)
        fits = shape.dim[i] < 0 || shape.dim[i] == aril_size(t, i);
    if (fits) return t;
    aril__fail(ARIL_ERR_FORMAT, "state '%s' of %s is none of this metric's", name, m->label);
    return NULL;
}

double aril__metric_number(aril_metric *m, const char *name)
{
    aril_tensor *t = aril__states_get(&m->states, name);
    return t != NULL ? aril_item(t) : 0;
}

void aril_metric_reset(aril_metric *m)
{
    if (m == NULL) return;
    aril__states_clear(&m->states);
    /* The class's data stays, with what the constructor stored in it. */
}

const aril_named *aril_metric_state(aril_metric *m)
{
    return m != NULL ? aril__states_view(&m->states) : NULL;
}

aril_status aril_metric_load_state(aril_metric *m, const aril_named *state)
{
    if (m == NULL) return missing();
    if (state == NULL) return aril__fail(ARIL_ERR_ARG, "metric_load_state: the state is NULL");
    aril__states fresh = { 0 };
    aril_status status = aril__states_copy(&fresh, "", state);
    if (status != ARIL_OK) {
        aril__states_clear(&fresh);
        return status;
    }
    aril__states_clear(&m->states);
    m->states = fresh;
    return ARIL_OK;
}

/* ---- updates and values ---- */

aril_status aril_metric_update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                               aril_tensor *weight)
{
    if (m == NULL) return missing();
    if (output == NULL || target == NULL)
        return aril__fail(ARIL_ERR_ARG, "%s: %s is NULL", m->label,
                          output == NULL ? "the output" : "the target");
    aril_status status = aril_tensor_status(output);
    if (status == ARIL_OK) status = aril_tensor_status(target);
    if (status != ARIL_OK) return status;
    if (aril_ndim(output) == 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: the output has no batch dimension", m->label);
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    const aril__error *before = aril__self()->last_error;
    status = m->type->update(m, output, target, weight);
    /* A class that set an error keeps its own message. */
    return status >= 0 || aril__self()->last_error != before
               ? status
               : aril__fail(status, "the metric %s could not be updated: %s", m->label,
                            aril_status_text(status));
}

double aril_metric_value(aril_metric *m)
{
    if (m == NULL) {
        missing();
        return NAN;
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return m->states.n > 0 ? m->type->value(m) : NAN;
}

aril_tensor *aril_metric_table(aril_metric *m)
{
    if (m == NULL)
        missing();
    else if (m->type->table == NULL)
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s has no table; confusion has one", m->label);
    else if (m->states.n == 0)
        aril__fail(ARIL_ERR_STATE, "%s has seen no batch yet", m->label);
    else {
        ARIL_NO_GRAD;
        return m->type->table(m);
    }
    return NULL;
}

bool aril__smaller_by_name(const char *name)
{
    static const char *const words[] = { "loss", "error", "mae", "mse", "rmse" };
    const char *under = strrchr(name, '_'), *last = under != NULL ? under + 1 : name;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(last, words[i]) == 0) return true;
    return false;
}

static bool is_in_the_box(const aril_metric_class *type)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i] == type) return true;
    return false;
}

bool aril_metric_smaller_is_better(const aril_metric *m)
{
    if (m == NULL) return false;
    if (is_in_the_box(m->type)) return m->type->smaller_is_better;
    return m->type->smaller_is_better || m->opts.smaller_is_better ||
           aril__smaller_by_name(m->label);
}

/* ---- scores and targets ---- */

double aril__metric_threshold(const aril_metric *m)
{
    if (m->opts.threshold == 0) return 0.5;
    return m->opts.threshold == ARIL_ZERO ? 0 : m->opts.threshold;
}

bool aril__scores_are_yes_no(const aril_metric *m, aril_tensor *output)
{
    return m->opts.multilabel || aril_ndim(output) == 1 || aril_size(output, 1) == 1;
}

static bool is_float(const aril_tensor *t)
{
    aril_dtype d = aril_dtype_of(t);
    return d == ARIL_F32 || d == ARIL_F64 || d == ARIL_F16 || d == ARIL_BF16;
}

aril_status aril__same_shape(const char *who, aril_tensor *output, aril_tensor **target)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (aril_numel(*target) != aril_numel(output))
        return aril__fail(ARIL_ERR_SHAPE, "%s: targets %s do not fit predictions %s", who,
                          aril__text(a, *target), aril__text(b, output));
    *target = aril_reshape(*target, aril_shape_of(output));
    return aril_tensor_status(*target);
}

/* Whether `target` has the sizes of `output` except for one axis. */
static bool fits_without(aril_tensor *output, aril_tensor *target, int axis)
{
    if (aril_ndim(target) != aril_ndim(output) - 1) return false;
    for (int i = 0, j = 0; i < aril_ndim(output); i++)
        if (i != axis && aril_size(output, i) != aril_size(target, j++)) return false;
    return true;
}

aril_status aril__truth_of(const char *who, aril_tensor *output, aril_tensor *target,
                           aril_tensor **truth, int *axis)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    int n = aril_ndim(output), last = n - 1;
    if (!is_float(target)) {
        if (aril_ndim(target) == n && aril_size(target, 1) == 1) /* [N,1]: a column of indices */
            target = aril_squeeze(target, ARIL_AXES(1));
        if (fits_without(output, target, 1))
            *axis = 1;
        else if (fits_without(output, target, last))
            *axis = last;
        else
            return aril__fail(
                ARIL_ERR_SHAPE,
                "%s: class indices %s do not fit scores %s: they have the sizes of the "
                "scores without the axis of classes",
                who, aril__text(a, target), aril__text(b, output));
        *truth = aril_cast(target, ARIL_I64);
        return aril_tensor_status(*truth);
    }
    bool same = aril_ndim(target) == n;
    for (int i = 0; same && i < n; i++) same = aril_size(target, i) == aril_size(output, i);
    if (!same)
        return aril__fail(
            ARIL_ERR_SHAPE,
            "%s: targets in floating point are a share for each class: expected %s, got "
            "%s. Class indices are integers",
            who, aril__text(a, output), aril__text(b, target));
    *axis = 1;
    *truth = aril_argmax(target, ARIL_AXES(1));
    return aril_tensor_status(*truth);
}

aril_status aril__answers_of(const aril_metric *m, aril_tensor *output, aril_tensor *target,
                             aril__answers *a)
{
    aril_status status;
    *a = (aril__answers){ 0 };
    if (aril__scores_are_yes_no(m, output)) {
        if ((status = aril__same_shape(m->label, output, &target)) != ARIL_OK) return status;
        a->predicted = aril_cast(aril_gt_scalar(output, aril__metric_threshold(m)), ARIL_I64);
        a->truth = aril_cast(aril_gt_scalar(target, 0), ARIL_I64);
        a->classes = 2;
        a->yes_no = true;
    } else {
        status = aril__truth_of(m->label, output, target, &a->truth, &a->axis);
        if (status != ARIL_OK) return status;
        a->predicted = aril_argmax(output, ARIL_AXES(a->axis));
        a->classes = aril_size(output, a->axis);
    }
    status = aril_tensor_status(a->predicted);
    return status != ARIL_OK ? status : aril_tensor_status(a->truth);
}

aril_status aril__spread_weight(const char *who, aril_tensor *weight, aril_tensor *like,
                                aril_tensor **spread)
{
    *spread = NULL;
    if (weight == NULL) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT];
    int64_t n = aril_size(like, 0);
    if (aril_numel(weight) != n)
        return aril__fail(ARIL_ERR_SHAPE, "%s: a batch of %lld samples has weights %s", who,
                          (long long)n, aril__text(a, weight));
    aril_shape s = aril_shape_of(like), thin = s;
    for (int i = 1; i < s.ndim; i++) thin.dim[i] = 1;
    *spread = aril_expand(aril_reshape(aril_cast(weight, ARIL_F64), thin), s);
    return aril_tensor_status(*spread);
}
