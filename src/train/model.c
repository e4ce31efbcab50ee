/* Models: creation, compilation, and the processing of one batch. */
#include "train/model.h"

#include "aril/autocast.h"
#include "aril/dtype.h"
#include "aril/index.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "nn/module.h"
#include "train/compiled.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- creation ---- */

aril_model *aril_model_new(aril_module *net, aril_shape input)
{
    if (net == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "a model needs a module, got NULL");
        return NULL;
    }
    if (input.ndim > 0 && aril_module_build(net, input) != ARIL_OK) {
        aril_module_release(net);
        return NULL;
    }
    aril_model *m = aril__calloc(sizeof *m);
    if (m == NULL) {
        aril_module_release(net);
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a model");
        return NULL;
    }
    m->net = net;
    m->input = input;
    return m;
}

static void decompile(aril_model *m)
{
    aril__model_drop_programs(m); /* they refer to the rest */
    for (int i = 0; i < m->n_metrics; i++) aril_metric_free(m->metric[i]);
    free(m->metric);
    for (int i = 0; i < m->n_columns; i++) free(m->column[i]);
    free(m->column);
    free(m->monitor);
    aril__outputs_clear(m);
    aril_optim_free(m->opt);
    aril__states_clear(&m->meter);
    m->n_metrics = m->n_shown = m->n_columns = 0;
    m->metric = NULL;
    m->column = NULL;
    m->monitor = NULL;
    m->opt = NULL;
    m->compiled = false;
    m->autocast = 0;
    m->eager = false;
}

void aril_model_free(aril_model *m)
{
    if (m == NULL) return;
    if (m->running != NULL) {
        aril__fail(ARIL_ERR_STATE, "the model is being fitted: free it when the fit has ended");
        return;
    }
    decompile(m);
    aril__history_free(m->history);
    aril_module_release(m->net);
    free(m);
}

aril_module *aril_model_module(const aril_model *m)
{
    return m != NULL ? m->net : NULL;
}

aril_optim *aril_model_optim(const aril_model *m)
{
    return m != NULL ? m->opt : NULL;
}

/* ---- compilation ---- */

/* Checks that the model can have a metric with that label. */
static aril_status check_label(const aril_model *m, const char *label)
{
    bool taken = strcmp(label, "loss") == 0 || strcmp(label, "lr") == 0 ||
                 strcmp(label, "batch_loss") == 0 || strncmp(label, "val_", 4) == 0;
    for (int k = 0; k < m->n_outputs && !taken; k++) {
        const char *name = m->output[k].name;
        size_t n = name != NULL ? strlen(name) : 0;
        taken = name != NULL && strncmp(label, name, n) == 0 && strcmp(label + n, "_loss") == 0;
    }
    if (taken)
        return aril__fail(ARIL_ERR_ARG,
                          "a metric cannot be named '%s': that is a column of the history", label);
    for (int i = 0; i < m->n_metrics; i++)
        if (strcmp(aril_metric_label(m->metric[i]), label) == 0)
            return aril__fail(ARIL_ERR_ARG, "the metric '%s' is given twice", label);
    return ARIL_OK;
}

/* Adds a metric of output k and takes its ownership. */
static aril_status add_metric(aril_model *m, int k, aril_metric *metric)
{
    if (metric == NULL) return aril__latest_status();
    for (int i = 0; i < m->n_metrics; i++)
        if (m->metric[i] == metric) /* already owned by the model */
            return aril__fail(ARIL_ERR_ARG, "the metric '%s' is given twice",
                              aril_metric_label(metric));
    const char *prefix = m->output[k].name;
    aril_status status = prefix != NULL ? aril__metric_prefix(metric, prefix) : ARIL_OK;
    if (status == ARIL_OK && !aril__output_has_loss(&m->output[k]))
        status = aril__fail(ARIL_ERR_ARG,
                            "output \"%s\" has no loss and therefore no target for the metric '%s'",
                            prefix, aril_metric_label(metric));
    if (status == ARIL_OK) status = check_label(m, aril_metric_label(metric));
    aril_metric **all = status == ARIL_OK
                            ? aril__realloc(m->metric, (size_t)(m->n_metrics + 1) * sizeof *all)
                            : NULL;
    if (all == NULL) {
        aril_metric_free(metric);
        return status != ARIL_OK ? status
                                 : aril__fail(ARIL_ERR_MEMORY, "out of memory for a metric");
    }
    m->metric = all;
    metric->output = k;
    int at = m->n_metrics++;
    if (metric->row == NULL || !metric->row->no_column) { /* before those without one */
        for (; at > m->n_shown; at--) m->metric[at] = m->metric[at - 1];
        m->n_shown++;
    }
    m->metric[at] = metric;
    return ARIL_OK;
}

/* What a loss implies for its scores: whether they are logits, and whether each is a binary
 * prediction. */
static aril_metric_opts metric_opts(const aril__loss *loss)
{
    unsigned is = loss != NULL ? loss->is : 0;
    return (aril_metric_opts){ .threshold = is & ARIL__LOSS_LOGITS ? ARIL_ZERO : 0,
                               .multilabel = is & ARIL__LOSS_LABELS };
}

/* "accuracy, top5" */
static aril_status add_metrics(aril_model *m, int k, const char *list)
{
    for (const char *c = list; c != NULL && *c != '\0';) {
        size_t n = strcspn(c, ",");
        const char *start = c, *end = c + n;
        while (start < end && isspace((unsigned char)*start)) start++;
        while (end > start && isspace((unsigned char)end[-1])) end--;
        char name[64];
        if (end - start >= (ptrdiff_t)sizeof name || end == start)
            return aril__fail(ARIL_ERR_ARG,
                              "'%s' is not a list of metrics, such as \"accuracy, top5\"", list);
        snprintf(name, sizeof name, "%.*s", (int)(end - start), start);
        aril_status status =
            add_metric(m, k, aril_metric_new(name, metric_opts(m->output[k].loss)));
        if (status != ARIL_OK) return status;
        c += n + (c[n] == ',');
    }
    return ARIL_OK;
}

static aril_status give_parameters(aril_model *m)
{
    if (m->opt == NULL || aril_optim_parameters(m->opt)->n > 0) return ARIL_OK;
    /* Sizes known only from the first batch: parameters are added after it. */
    if (!aril_module_built(m->net)) return ARIL_OK;
    const aril_named *params = aril_parameters(m->net);
    return params != NULL ? aril_optim_set_parameters(m->opt, params) : aril__latest_status();
}

/* Metrics passed as objects, with the outputs they belong to. */
enum { OWN_MAX = 8 + 4 * ARIL_MODEL_OUTPUTS };
typedef struct own_metrics {
    int n;
    aril_metric *at[OWN_MAX];
    int output[OWN_MAX];
} own_metrics;

static void gather_own(const aril_model_opts *opts, own_metrics *own)
{
    own->n = 0;
    for (size_t i = 0; i < sizeof opts->own_metrics / sizeof *opts->own_metrics; i++) {
        own->output[own->n] = 0;
        if (opts->own_metrics[i] != NULL) own->at[own->n++] = opts->own_metrics[i];
    }
    for (int k = 0; k < ARIL_MODEL_OUTPUTS; k++) {
        const aril_output_opts *o = &opts->outputs[k];
        for (size_t i = 0; i < sizeof o->own_metrics / sizeof *o->own_metrics; i++) {
            own->output[own->n] = k;
            if (o->own_metrics[i] != NULL) own->at[own->n++] = o->own_metrics[i];
        }
    }
}

/* Adds them, or frees the rest after a failure, each once. */
static aril_status add_own(aril_model *m, const own_metrics *own, aril_status status)
{
    for (int i = 0; i < own->n; i++) {
        if (status == ARIL_OK) {
            status = add_metric(m, own->output[i], own->at[i]);
            continue;
        }
        bool again = false;
        for (int j = 0; j < i && !again; j++) again = own->at[j] == own->at[i];
        if (!again) aril_metric_free(own->at[i]);
    }
    return status;
}

static aril_status add_column(aril_model *m, const char *name, const char *end)
{
    char *text = aril__malloc(strlen(name) + strlen(end) + 1);
    if (text == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a model");
    m->column[m->n_columns++] = strcat(strcpy(text, name), end);
    return ARIL_OK;
}

static aril_status name_columns(aril_model *m)
{
    m->column = aril__calloc((size_t)(1 + m->n_outputs + m->n_shown) * sizeof *m->column);
    if (m->column == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a model");
    aril_status status = add_column(m, "loss", "");
    for (int k = 0; k < m->n_outputs && status == ARIL_OK; k++)
        if (m->output[k].name != NULL && aril__output_has_loss(&m->output[k]))
            status = add_column(m, m->output[k].name, "_loss");
    for (int i = 0; i < m->n_shown && status == ARIL_OK; i++)
        status = add_column(m, aril_metric_label(m->metric[i]), "");
    return status;
}

static aril_status set_schedule(aril_model *m, const aril_model_opts *opts, aril_status status)
{
    if (status == ARIL_OK && opts->schedule_monitor != NULL) {
        m->monitor = aril__strdup(opts->schedule_monitor);
        if (m->monitor == NULL) status = aril__fail(ARIL_ERR_MEMORY, "out of memory for a model");
    }
    if (opts->schedule == NULL) return status;
    if (status == ARIL_OK && m->opt == NULL)
        status = aril__fail(ARIL_ERR_ARG, "a schedule needs an optimizer, got none");
    if (status == ARIL_OK) return aril_optim_schedule(m->opt, opts->schedule);
    aril_schedule_free(opts->schedule);
    return status;
}

/* Frees everything passed to a model that cannot accept it. */
static void refuse(const aril_model *m, const aril_model_opts *opts, const own_metrics *own)
{
    add_own(NULL, own, ARIL_ERR_STATE);
    for (int k = -1; k < ARIL_MODEL_OUTPUTS; k++) {
        aril_module *loss = k < 0 ? opts->loss_module : opts->outputs[k].loss_module;
        bool again = k >= 0 && loss == opts->loss_module;
        for (int i = 0; i < k && !again; i++) again = opts->outputs[i].loss_module == loss;
        if (!again) aril_module_release(loss);
    }
    if (m == NULL || opts->optimizer != m->opt) aril_optim_free(opts->optimizer);
    aril_schedule_free(opts->schedule);
}

static aril_status set_autocast(aril_model *m, aril_dtype dtype)
{
    bool known = dtype == 0 || dtype == ARIL_BF16 || dtype == ARIL_F16 || dtype == ARIL_F32;
    m->autocast = dtype;
    if (known) return ARIL_OK;
    return aril__fail(ARIL_ERR_DTYPE,
                      "compile: autocast is to ARIL_BF16 or ARIL_F16, or 0 for none, got %s",
                      aril_dtype_name(dtype));
}

aril_status aril_model_compile(aril_model *m, aril_model_opts opts)
{
    own_metrics own;
    gather_own(&opts, &own);
    if (m == NULL || m->running != NULL) {
        refuse(m, &opts, &own);
        return m == NULL
                   ? aril__fail(ARIL_ERR_ARG, "aril_model_compile takes a model, got NULL")
                   : aril__fail(ARIL_ERR_STATE,
                                "the model is being fitted: compile it when the fit has ended");
    }
    /* An optimizer that is passed again is kept. */
    if (m->opt == opts.optimizer) m->opt = NULL;
    decompile(m);
    m->opt = opts.optimizer;
    m->eager = opts.eager;
    aril_status status = set_autocast(m, opts.autocast);
    if (status == ARIL_OK) status = aril__outputs_set(m, &opts);
    if (status == ARIL_OK) status = add_metrics(m, 0, opts.metrics);
    for (int k = 0; k < m->n_outputs && status == ARIL_OK; k++)
        status = add_metrics(m, k, opts.outputs[k].metrics);
    status = add_own(m, &own, status);
    if (status == ARIL_OK) status = name_columns(m);
    if (status == ARIL_OK) status = give_parameters(m);
    status = set_schedule(m, &opts, status);
    if (status != ARIL_OK) decompile(m);
    m->compiled = status == ARIL_OK;
    return status;
}

aril_status aril__need_compiled(const aril_model *m, bool optimizer)
{
    if (m == NULL) return aril__fail(ARIL_ERR_ARG, "expected a model, got NULL");
    if (!m->compiled)
        return aril__fail(ARIL_ERR_STATE,
                          "the model has no loss yet: call aril_model_compile first");
    if (optimizer && m->opt == NULL)
        return aril__fail(
            ARIL_ERR_STATE,
            "the model was compiled without an optimizer: it can be evaluated, not trained");
    return ARIL_OK;
}

/* ---- one batch ---- */

void aril__model_ready(aril_model *m)
{
    m->built = aril_module_built(m->net);
    m->device = aril__module_device(m->net);
}

static int inputs_of(const aril_model *m, const aril_batch *b, aril_tensor **in)
{
    int n = 0;
    in[n++] = aril_to(b->x, m->device);
    for (int i = 0; i < ARIL_SAMPLE_EXTRA && b->extra[i] != NULL; i++)
        in[n++] = aril_to(b->extra[i], m->device);
    return n;
}

static aril_status missing_result(const aril_model *m, int k, int n_out)
{
    return aril__fail(ARIL_ERR_ARG, "%s returned no output %d; expected %d outputs",
                      aril_module_type(m->net), k + 1, n_out);
}

static aril_status run_net(aril_model *m, int n, aril_tensor **in, int n_out, aril__results *r)
{
    if (n_out > 1) return aril_forward_all(m->net, (aril_list){ n, in }, n_out, r->output);
    r->output[0] =
        n == 1 ? aril_forward(m->net, in[0]) : aril_forward_n(m->net, (aril_list){ n, in });
    return aril_tensor_status(r->output[0]);
}

/* The same under autocast, with f32 outputs: losses and metrics have no fewer digits than usual. */
static aril_status run_net_cast(aril_model *m, int n, aril_tensor **in, int n_out, aril__results *r)
{
    ARIL_AUTOCAST_ON(m->device, m->autocast);
    aril_status status = run_net(m, n, in, n_out, r);
    for (int k = 0; k < n_out && status == ARIL_OK; k++) {
        aril_tensor *y = r->output[k];
        if (y == NULL || (aril_dtype_of(y) != ARIL_BF16 && aril_dtype_of(y) != ARIL_F16)) continue;
        r->output[k] = aril_cast(y, ARIL_F32);
        status = aril_tensor_status(r->output[k]);
    }
    return status;
}

aril_status aril__model_forward(aril_model *m, const aril_batch *b, int n_out, aril__results *r)
{
    aril_tensor *in[1 + ARIL_SAMPLE_EXTRA];
    if (b->x == NULL)
        return aril__fail(ARIL_ERR_ARG,
                          "the batches have no samples: their dataset does not set x");
    int n = inputs_of(m, b, in);
    aril_status status =
        m->autocast ? run_net_cast(m, n, in, n_out, r) : run_net(m, n, in, n_out, r);
    if (status != ARIL_OK) return status;
    for (int k = 0; k < n_out; k++)
        if (r->output[k] == NULL) return missing_result(m, k, n_out);
    if (m->built) return ARIL_OK;
    aril__model_ready(m);
    return give_parameters(m);
}

aril_status aril__model_build(aril_model *m, const aril_batch *b)
{
    aril_tensor *in[1 + ARIL_SAMPLE_EXTRA];
    aril_status status = aril_module_build_n(m->net, (aril_list){ inputs_of(m, b, in), in });
    if (status != ARIL_OK) return status;
    aril__model_ready(m);
    return give_parameters(m);
}

void aril__model_reset(aril_model *m)
{
    aril__states_clear(&m->meter);
    for (int i = 0; i < m->n_metrics; i++) aril_metric_reset(m->metric[i]);
}

aril_status aril__model_save_metrics(aril_model *m)
{
    aril_fit *f = m->running;
    if (f == NULL || f->aside != NULL) return ARIL_OK;
    f->aside = aril__calloc((size_t)(1 + m->n_metrics) * sizeof *f->aside);
    if (f->aside == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for an evaluation");
    aril__states_swap(&m->meter, &f->aside[0]);
    for (int i = 0; i < m->n_metrics; i++)
        aril__states_swap(&m->metric[i]->states, &f->aside[1 + i]);
    return ARIL_OK;
}

void aril__model_put_back(aril_model *m)
{
    aril_fit *f = m->running;
    if (f == NULL || f->aside == NULL) return;
    aril__model_reset(m);
    aril__states_swap(&m->meter, &f->aside[0]);
    for (int i = 0; i < m->n_metrics; i++)
        aril__states_swap(&m->metric[i]->states, &f->aside[1 + i]);
    free(f->aside);
    f->aside = NULL;
}

/* ---- queries ---- */

static int find_metric(const aril_model *m, const char *name)
{
    for (int i = 0; i < m->n_metrics; i++)
        if (strcmp(aril_metric_label(m->metric[i]), name) == 0) return i;
    return -1;
}

static aril_status no_such_value(const aril_model *m, const char *name)
{
    char list[512] = "";
    int tables = m->n_metrics - m->n_shown;
    for (int i = 0, at = 0; i < m->n_columns + tables && at < (int)sizeof list; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", i > 0 ? ", " : "",
                       i < m->n_columns
                           ? m->column[i]
                           : aril_metric_label(m->metric[m->n_shown + i - m->n_columns]));
    return aril__fail(ARIL_ERR_ARG, "the model has no value '%s'; it has %s", name, list);
}

double aril_model_value(const aril_model *m, const char *name)
{
    if (aril__need_compiled(m, false) != ARIL_OK) return NAN;
    for (int i = 0; name != NULL && i < m->n_columns; i++)
        if (strcmp(m->column[i], name) == 0) return aril__model_column(m, i);
    int i = name != NULL ? find_metric(m, name) : -1;
    if (i >= 0) return aril_metric_value(m->metric[i]);
    no_such_value(m, name != NULL ? name : "(null)");
    return NAN;
}

aril_metric *aril_model_metric(const aril_model *m, const char *name)
{
    if (aril__need_compiled(m, false) != ARIL_OK) return NULL;
    int i = name != NULL ? find_metric(m, name) : -1;
    if (i >= 0) return m->metric[i];
    no_such_value(m, name != NULL ? name : "(null)");
    return NULL;
}
