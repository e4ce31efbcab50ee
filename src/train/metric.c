/* Metrics: the table with its names, states, and code shared by the rows. */
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
#include "ops/table/apply.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table, and the names that it gives ---- */

enum {
    CLASSES = ARIL__METRIC_CLASSES,
    BINARY = ARIL__METRIC_BINARY,
    LABELS = ARIL__METRIC_LABELS,
    VALUES = ARIL__METRIC_VALUES,
};
enum {
    MACRO = 1 << ARIL_AVERAGE_MACRO,
    MICRO = 1 << ARIL_AVERAGE_MICRO,
    WEIGHTED = 1 << ARIL_AVERAGE_WEIGHTED,
};

static const aril__metric_row rows[] = {
#define METRIC(metric, update_, value_, ...) \
    { .base.name = #metric,                  \
      .base.update = aril__metric_##update_, \
      .base.value = aril__metric_##value_,   \
      __VA_ARGS__ },
#include "train/metrics.def"
};

static const char *const average_names[] = { [ARIL_AVERAGE_MACRO] = "macro",
                                             [ARIL_AVERAGE_MICRO] = "micro",
                                             [ARIL_AVERAGE_WEIGHTED] = "weighted" };

enum {
    ROWS = sizeof rows / sizeof *rows,
    COUNTS = sizeof rows->counts / sizeof *rows->counts,
    MAX_COUNT = 99, /* "top99" */
    /* of one row: its own name, those with numbers, those with averages */
    MAX_NAMES = ROWS * (1 + COUNTS + 3),
    NAME_SIZE = 40,
};

const aril__metric_row *aril__metric_rows(int *n)
{
    *n = ROWS;
    return rows;
}

/* Calls fn with every name of a row. plain: not one with an average. */
static void each_name(const aril__metric_row *row,
                      void (*fn)(void *ctx, const char *name, bool plain), void *ctx)
{
    char name[NAME_SIZE];
    int stem = (int)strlen(row->base.name) - 1; /* the number replaces the last letter */
    for (int i = 0; i < COUNTS && row->counts[i] > 0; i++) {
        snprintf(name, sizeof name, "%.*s%d", stem, row->base.name, row->counts[i]);
        fn(ctx, name, true);
    }
    fn(ctx, row->base.name, true);
    for (int a = ARIL_AVERAGE_MACRO; a <= ARIL_AVERAGE_WEIGHTED; a++)
        if (row->averages >> a & 1) {
            snprintf(name, sizeof name, "%s_%s", row->base.name, average_names[a]);
            fn(ctx, name, false);
        }
}

static char name_text[MAX_NAMES][NAME_SIZE];
static const char *names[MAX_NAMES + 1]; /* written once, by list_names */
static int n_names;
static char plain_names[512]; /* "accuracy, top1": without averages, for messages */

static void add_name(void *ctx, const char *name, bool plain)
{
    (void)ctx;
    names[n_names] = name_text[n_names];
    snprintf(name_text[n_names++], NAME_SIZE, "%s", name);
    size_t at = strlen(plain_names);
    if (plain)
        snprintf(plain_names + at, sizeof plain_names - at, "%s%s", at > 0 ? ", " : "", name);
}

static void list_names(void)
{
    for (int i = 0; i < ROWS; i++) each_name(&rows[i], add_name, NULL);
}

const char *const *aril_metric_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_names);
    return names;
}

static aril_status no_such_metric(const char *name)
{
    const char *const *all = aril_metric_names();
    const char *near = aril_nearest(name, all, n_names);
    return near != NULL
               ? aril__fail(ARIL_ERR_ARG, "no metric '%s'; did you mean %s? Known metrics: %s",
                            name, near, plain_names)
               : aril__fail(ARIL_ERR_ARG, "no metric '%s'; known metrics: %s", name, plain_names);
}

/* "top5" for the row of topk: sets *count. */
static bool is_counted(const aril__metric_row *row, const char *name, int64_t *count)
{
    size_t stem = strlen(row->base.name) - 1;
    if (row->counts[0] == 0 || strncmp(name, row->base.name, stem) != 0) return false;
    const char *digits = name + stem;
    if (!isdigit((unsigned char)*digits) || *digits == '0') return false;
    char *end;
    long n = strtol(digits, &end, 10);
    *count = n;
    return *end == '\0' && n <= MAX_COUNT;
}

/* "f1_macro" for the row of f1: sets *average. */
static bool is_averaged(const aril__metric_row *row, const char *name, aril_metric_average *average)
{
    size_t length = strlen(row->base.name);
    if (strncmp(name, row->base.name, length) != 0 || name[length] != '_') return false;
    for (int a = ARIL_AVERAGE_MACRO; a <= ARIL_AVERAGE_WEIGHTED; a++)
        if (row->averages >> a & 1 && strcmp(name + length + 1, average_names[a]) == 0) {
            *average = (aril_metric_average)a;
            return true;
        }
    return false;
}

/* The row of a name, and the options that the name contains. */
static const aril__metric_row *row_of(const char *name, aril_metric_opts *opts)
{
    for (int i = 0; i < ROWS; i++) {
        const aril__metric_row *row = &rows[i];
        if (strcmp(name, row->base.name) == 0 ||
            (row->also != NULL && strcmp(name, row->also) == 0) ||
            is_averaged(row, name, &opts->average) || is_counted(row, name, &opts->k))
            return row;
    }
    return NULL;
}

aril_metric *aril_metric_new(const char *name, aril_metric_opts opts)
{
    const aril__metric_row *row = name != NULL ? row_of(name, &opts) : NULL;
    if (row == NULL) {
        no_such_metric(name != NULL ? name : "(null)");
        return NULL;
    }
    bool also = row->also != NULL && strcmp(name, row->also) == 0;
    if (opts.label == NULL) opts.label = also ? row->base.name : name;
    aril_metric *m = aril_metric_make(&row->base, opts);
    if (m != NULL) m->row = row;
    return m;
}

/* "precision[_macro|_micro|_weighted]", "top1 ... top99, topk", "accuracy, acc" */
static void row_title(const aril__metric_row *row, char *text, size_t size)
{
    const char *name = row->base.name;
    int stem = (int)strlen(name) - 1, at = 0;
    if (row->counts[0] > 0)
        at = snprintf(text, size, "%.*s1 ... %.*s%d, ", stem, name, stem, name, MAX_COUNT);
    at += snprintf(text + at, size - (size_t)at, "%s", name);
    if (row->also != NULL) at += snprintf(text + at, size - (size_t)at, ", %s", row->also);
    const char *before = "[_";
    for (int a = ARIL_AVERAGE_MACRO; a <= ARIL_AVERAGE_WEIGHTED; a++)
        if (row->averages >> a & 1) {
            at += snprintf(text + at, size - (size_t)at, "%s%s", before, average_names[a]);
            before = "|_";
        }
    if (row->averages != 0) snprintf(text + at, size - (size_t)at, "]");
}

static void row_tasks(const aril__metric_row *row, char *text, size_t size)
{
    static const char *const tasks[] = { "classes", "binary", "labels", "values" };
    size_t at = 0;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks && at < size; i++)
        if (row->fits >> i & 1)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at > 0 ? ", " : "", tasks[i]);
}

void aril_metric_help(FILE *to)
{
    if (to == NULL) {
        aril__fail(ARIL_ERR_ARG, "metric_help: the file is NULL");
        return;
    }
    for (int i = 0; i < ROWS; i++) {
        char title[96], tasks[64];
        row_title(&rows[i], title, sizeof title);
        row_tasks(&rows[i], tasks, sizeof tasks);
        fprintf(to, "  %-36s %-24s %s%s\n", title, tasks, rows[i].doc,
                rows[i].base.smaller_is_better ? "; smaller is better" : "");
    }
}

aril_metric *aril_metric_make(const aril_metric_class *type, aril_metric_opts opts)
{
    if (type == NULL || type->update == NULL || type->value == NULL) {
        aril__fail(ARIL_ERR_ARG, "a metric needs a class with the functions update and value");
        return NULL;
    }
    if (opts.k < 0) {
        aril__fail(ARIL_ERR_ARG, "top-k expects a positive k, got %lld", (long long)opts.k);
        return NULL;
    }
    const char *label = opts.label != NULL   ? opts.label
                        : type->name != NULL ? type->name
                                             : "metric";
    if (*label == '\0' || strpbrk(label, ",\"\r\n") != NULL) {
        aril__fail(
            ARIL_ERR_ARG,
            "\"%s\" cannot label a metric: a label must not contain commas, quotes or line breaks",
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
        aril__fail(ARIL_ERR_MEMORY, "out of memory for the metric %s", label);
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
    aril__lifetime_end(&m->life);
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
    if (label == NULL)
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for the metric %s", m->label);
    sprintf(label, "%s_%s", prefix, m->label);
    free(m->label);
    m->opts.label = m->label = label;
    return ARIL_OK;
}

static aril_status missing(void)
{
    return aril__fail(ARIL_ERR_ARG, "expected a metric, got NULL");
}

/* ---- states ---- */

aril_tensor *aril_metric_get(aril_metric *m, const char *name)
{
    return m != NULL ? aril__states_get(&m->states, name) : NULL;
}

/* In a trace, a state that exists is written to in each run; a program cannot exchange it. */
static aril_status set_traced(aril_metric *m, const char *name, aril_tensor *value)
{
    aril_tensor *state = aril__states_get(&m->states, name);
    aril_status status = aril_tensor_status(value);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (status != ARIL_OK) return status;
    if (state == NULL)
        return aril__fail(ARIL_ERR_STATE,
                          "%s: a traced update cannot create the state '%s'; update the metric "
                          "once before the function is traced",
                          m->label, name);
    if (state->dtype != value->dtype ||
        !aril__same_dims(state->ndim, state->dim, value->ndim, value->dim))
        return aril__fail(ARIL_ERR_STATE,
                          "%s: a traced update cannot change the state '%s' from %s %s to %s %s; "
                          "update the metric outside the traced function",
                          m->label, name, aril__dtypes[state->dtype].name, aril__text(a, state),
                          aril__dtypes[value->dtype].name, aril__text(b, value));
    return aril_tensor_status(aril_copy_(state, value));
}

aril_status aril_metric_set(aril_metric *m, const char *name, aril_tensor *value)
{
    if (m == NULL) return missing();
    if (aril__self()->tracer != NULL && name != NULL && value != NULL)
        return set_traced(m, name, value);
    return aril__states_set(&m->states, name, value);
}

/* The state that a traced update adds to: made here, as zeros, if there is none, and moved to the
 * device of the value, both of which a program does not repeat. NULL with an error. */
static aril_tensor *state_to_add(aril_metric *m, const char *name, const aril_tensor *value)
{
    char text[ARIL__SHAPE_TEXT];
    aril_tensor *state = aril__states_get(&m->states, name);
    if (state == NULL && value->numel < 0) {
        aril__fail(ARIL_ERR_SHAPE, "%s: the state '%s' has the shape %s, whose sizes are unknown",
                   m->label, name, aril__text(text, value));
        return NULL;
    }
    aril_device device = aril_device_of(value);
    aril__pause pause = aril__trace_pause();
    aril_tensor *here = state != NULL
                            ? aril_to(state, device)
                            : aril_zeros(aril_shape_of(value), aril_dtype_of(value), device);
    aril_status status = here == state ? ARIL_OK : aril__states_set(&m->states, name, here);
    aril__trace_resume(pause);
    return status == ARIL_OK ? here : NULL;
}

static aril_status add_traced(aril_metric *m, const char *name, aril_tensor *value)
{
    ARIL_SCOPE;
    aril_tensor *state = state_to_add(m, name, value);
    if (state == NULL) return aril__latest_status();
    aril__trace_name(state, name);
    return aril_tensor_status(aril_add_(state, value));
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
    if (aril__self()->tracer != NULL) return add_traced(m, name, value);
    aril_tensor *state = aril__states_get(&m->states, name);
    if (state != NULL) return aril__states_accumulate(&m->states, name, value);
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
    aril__fail(ARIL_ERR_FORMAT, "'%s' is not a state of %s", name, m->label);
    return NULL;
}

double aril__metric_number(aril_metric *m, const char *name)
{
    aril_tensor *t = aril__states_get(&m->states, name);
    return t != NULL ? aril_item(t) : 0;
}

/* An error in a trace. */
static aril_status outside_only(const aril_metric *m, const char *what)
{
    if (aril__self()->tracer == NULL) return ARIL_OK;
    return aril__fail(ARIL_ERR_STATE,
                      "%s: %s cannot be part of a traced function, which runs would not repeat; "
                      "call it outside",
                      m->label, what);
}

void aril_metric_reset(aril_metric *m)
{
    if (m == NULL || outside_only(m, "metric_reset") < 0) return;
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
    if (outside_only(m, "metric_load_state") < 0) return ARIL_ERR_STATE;
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

/* What a traced update depends on. A class that counts on the host, in its data, fails. */
static aril_status watch_data(aril_metric *m)
{
    if (m->row != NULL && m->row->grows)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: its state grows with each batch, so that a traced function cannot "
                          "update it; return the output, and update the metric outside",
                          m->label);
    return m->data != NULL ? aril__trace_depend(m->data, m->type->size) : ARIL_OK;
}

/* The states, which exist now. A reset or a loaded state replaces them: a new trace. */
static aril_status watch_states(aril_metric *m)
{
    aril__states *s = &m->states; /* the list comes before its elements */
    aril_status status = aril__trace_depend(&s->at, sizeof s->at);
    if (status == ARIL_OK) status = aril__trace_depend(&s->n, sizeof s->n);
    if (status == ARIL_OK && s->n > 0)
        status = aril__trace_depend(s->at, (size_t)s->n * sizeof *s->at);
    return status;
}

static aril_status update(aril_metric *m, aril_tensor *output, aril_tensor *target,
                          aril_tensor *weight)
{
    bool traced = aril__self()->tracer != NULL;
    aril_status status = traced ? aril__trace_reads(&m->life, "metric") : ARIL_OK;
    if (status >= 0 && traced) status = watch_data(m);
    if (status >= 0) status = m->type->update(m, output, target, weight);
    return status >= 0 && traced ? watch_states(m) : status;
}

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
    if (aril__self()->tracer == NULL && (output->flags | target->flags) & ARIL__SYMBOLIC)
        return aril__fail(ARIL_ERR_STATE,
                          "%s: a graph does not change tensors while it is defined; fetch the "
                          "output, and update the metric with its value",
                          m->label);
    if (aril_ndim(output) == 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: the output has no batch dimension", m->label);
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    const aril__error *before = aril__self()->last_error;
    status = update(m, output, target, weight);
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
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s has no table; use the metric confusion", m->label);
    else if (m->states.n == 0)
        aril__fail(ARIL_ERR_STATE, "%s has not been updated yet", m->label);
    else {
        ARIL_NO_GRAD;
        return m->type->table(m);
    }
    return NULL;
}

bool aril_metric_smaller_is_better(const aril_metric *m)
{
    if (m == NULL) return false;
    return m->type->smaller_is_better || (m->row == NULL && m->opts.smaller_is_better);
}

bool aril_metric_fits_classes(const aril_metric *m)
{
    return m != NULL && (m->row == NULL || m->row->fits & (CLASSES | BINARY | LABELS));
}

bool aril_metric_fits_values(const aril_metric *m)
{
    return m != NULL && (m->row == NULL || m->row->fits & VALUES);
}

bool aril_metric_selects_best(const aril_metric *m)
{
    return m != NULL && m->row != NULL && m->row->selects_best;
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: targets %s do not match predictions %s", who,
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
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: class indices %s do not match scores %s: expected the shape of "
                              "the scores without the class axis",
                              who, aril__text(a, target), aril__text(b, output));
        *truth = aril_cast(target, ARIL_I64);
        return aril_tensor_status(*truth);
    }
    bool same = aril_ndim(target) == n;
    for (int i = 0; same && i < n; i++) same = aril_size(target, i) == aril_size(output, i);
    if (!same)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: float targets are class probabilities: expected %s, got %s; for "
                          "class indices use integers",
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected weights for %lld samples, got %s", who,
                          (long long)n, aril__text(a, weight));
    aril_shape s = aril_shape_of(like), thin = s;
    for (int i = 1; i < s.ndim; i++) thin.dim[i] = 1;
    *spread = aril_expand(aril_reshape(aril_cast(weight, ARIL_F64), thin), s);
    return aril_tensor_status(*spread);
}

aril_tensor *aril__metric_count(aril_tensor *of, aril_dtype dtype)
{
    int64_t n = aril_numel(of);
    if (n < 0) return aril_sum(aril_cast(aril_ones_like(of), dtype), ARIL_ALL);
    return aril_full(ARIL_SHAPE(), n, dtype, aril_device_of(of));
}
