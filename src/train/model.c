/* Models: making, compiling, and what happens to one batch. */
#include "train/model.h"

#include "aril/dtype.h"
#include "aril/index.h"
#include "aril/make.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/bytes.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

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
        aril__fail(ARIL_ERR_MEMORY, "no memory for a model");
        return NULL;
    }
    m->net = net;
    m->input = input;
    return m;
}

static void decompile(aril_model *m)
{
    for (int i = 0; i < m->n_metrics; i++) aril_metric_free(m->metric[i]);
    free(m->metric);
    aril_module_release(m->loss_module);
    aril_optim_free(m->opt);
    aril__states_clear(&m->meter);
    m->n_metrics = m->n_shown = 0;
    m->metric = NULL;
    m->loss = NULL;
    m->loss_module = NULL;
    m->loss_fn = NULL;
    m->opt = NULL;
    m->compiled = false;
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

/* ---- compiling ---- */

static aril_status add_metric(aril_model *m, aril_metric *metric)
{
    if (metric == NULL) return aril__latest_status();
    const char *label = aril_metric_label(metric);
    aril_status status = ARIL_OK;
    for (int i = 0; i < m->n_metrics; i++)
        if (m->metric[i] == metric) /* which the model owns already */
            return aril__fail(ARIL_ERR_ARG, "the metric '%s' is there twice", label);
    if (strcmp(label, "loss") == 0 || strcmp(label, "lr") == 0 || strncmp(label, "val_", 4) == 0)
        status = aril__fail(ARIL_ERR_ARG,
                            "a metric cannot be called '%s': the history has a column of that kind",
                            label);
    for (int i = 0; i < m->n_metrics && status == ARIL_OK; i++)
        if (strcmp(aril_metric_label(m->metric[i]), label) == 0)
            status = aril__fail(ARIL_ERR_ARG, "the metric '%s' is there twice", label);
    aril_metric **all = status == ARIL_OK
                            ? aril__realloc(m->metric, (size_t)(m->n_metrics + 1) * sizeof *all)
                            : NULL;
    if (all == NULL) {
        aril_metric_free(metric);
        return status != ARIL_OK ? status : aril__fail(ARIL_ERR_MEMORY, "no memory for a metric");
    }
    m->metric = all;
    int at = m->n_metrics++;
    if (metric->type != &aril__metric_confusion) { /* before the tables */
        for (; at > m->n_shown; at--) m->metric[at] = m->metric[at - 1];
        m->n_shown++;
    }
    m->metric[at] = metric;
    return ARIL_OK;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* What a loss says of its scores: whether they are logits, and whether each is an answer of its
 * own. */
static aril_metric_opts metric_opts(const aril__loss *loss)
{
    static const char *const logits[] = { "bce_with_logits", "soft_margin", "hinge",
                                          "hinge_embedding", "multilabel_soft_margin" };
    static const char *const labels[] = { "bce", "bce_with_logits", "multilabel_soft_margin" };
    aril_metric_opts opts = { 0 };
    if (loss == NULL) return opts;
    if (is_one_of(loss->name, logits, sizeof logits / sizeof *logits)) opts.threshold = ARIL_ZERO;
    opts.multilabel = is_one_of(loss->name, labels, sizeof labels / sizeof *labels);
    return opts;
}

/* "accuracy, top5" */
static aril_status add_metrics(aril_model *m, const char *list)
{
    for (const char *c = list; c != NULL && *c != '\0';) {
        size_t n = strcspn(c, ",");
        const char *start = c, *end = c + n;
        while (start < end && isspace((unsigned char)*start)) start++;
        while (end > start && isspace((unsigned char)end[-1])) end--;
        char name[64];
        if (end - start >= (ptrdiff_t)sizeof name || end == start)
            return aril__fail(ARIL_ERR_ARG, "'%s' is no list of metrics such as \"accuracy, top5\"",
                              list);
        snprintf(name, sizeof name, "%.*s", (int)(end - start), start);
        aril_status status = add_metric(m, aril_metric_new(name, metric_opts(m->loss)));
        if (status != ARIL_OK) return status;
        c += n + (c[n] == ',');
    }
    return ARIL_OK;
}

static aril_status set_loss(aril_model *m, const aril_model_opts *opts)
{
    int given = (opts->loss != NULL) + (m->loss_module != NULL) + (opts->loss_fn != NULL);
    if (given != 1)
        return aril__fail(ARIL_ERR_ARG,
                          "a model needs one loss: .loss, .loss_module or .loss_fn; %s given",
                          given == 0 ? "none was" : "several were");
    m->loss_fn = opts->loss_fn;
    m->loss_ctx = opts->loss_ctx;
    if (opts->loss == NULL) return ARIL_OK;
    m->loss = aril__loss_find(opts->loss);
    if (m->loss == NULL) return aril__latest_status();
    if (m->loss->inputs == 2) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "the loss %s takes %d tensors; a model has an output and a target",
                      opts->loss, m->loss->inputs);
}

static aril_status give_parameters(aril_model *m)
{
    if (m->opt == NULL || aril_optim_parameters(m->opt)->n > 0) return ARIL_OK;
    /* Sizes that only the first batch tells: then the parameters follow after it. */
    if (!aril_module_built(m->net)) return ARIL_OK;
    const aril_named *params = aril_parameters(m->net);
    return params != NULL ? aril_optim_set_parameters(m->opt, params) : aril__latest_status();
}

aril_status aril_model_compile(aril_model *m, aril_model_opts opts)
{
    aril_status status = ARIL_OK;
    if (m == NULL || m->running != NULL) {
        status = m == NULL
                     ? aril__fail(ARIL_ERR_ARG, "aril_model_compile takes a model, got NULL")
                     : aril__fail(ARIL_ERR_STATE,
                                  "the model is being fitted: compile it when the fit has ended");
        aril_module_release(opts.loss_module);
        if (m == NULL || opts.optimizer != m->opt) aril_optim_free(opts.optimizer);
    } else {
        /* One that is given again stays. */
        if (m->opt == opts.optimizer) m->opt = NULL;
        decompile(m);
        m->loss_module = opts.loss_module;
        m->opt = opts.optimizer;
        status = set_loss(m, &opts);
        if (status == ARIL_OK) status = add_metrics(m, opts.metrics);
    }
    for (size_t i = 0; i < sizeof opts.own_metrics / sizeof *opts.own_metrics; i++) {
        if (opts.own_metrics[i] == NULL) continue;
        if (status == ARIL_OK) {
            status = add_metric(m, opts.own_metrics[i]);
            continue;
        }
        bool again = false;
        for (size_t j = 0; j < i && !again; j++) again = opts.own_metrics[j] == opts.own_metrics[i];
        if (!again) aril_metric_free(opts.own_metrics[i]);
    }
    if (status == ARIL_OK) status = give_parameters(m);
    if (opts.schedule != NULL) {
        if (status == ARIL_OK && m->opt == NULL)
            status = aril__fail(ARIL_ERR_ARG, "a schedule needs an optimizer, got none");
        if (status == ARIL_OK)
            status = aril_optim_schedule(m->opt, opts.schedule);
        else
            aril_schedule_free(opts.schedule);
    }
    if (m == NULL || m->running != NULL) return status;
    if (status != ARIL_OK) decompile(m);
    m->compiled = status == ARIL_OK;
    return status;
}

aril_status aril__need_compiled(const aril_model *m, bool optimizer)
{
    if (m == NULL) return aril__fail(ARIL_ERR_ARG, "a model is expected, got NULL");
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
    const aril_named *params = m->built ? aril_parameters(m->net) : NULL;
    m->device =
        params != NULL && params->n > 0 ? aril_device_of(params->at[0]) : (aril_device){ 0 };
}

static int inputs_of(const aril_model *m, const aril_batch *b, aril_tensor **in)
{
    int n = 0;
    in[n++] = aril_to(b->x, m->device);
    for (int i = 0; i < ARIL_SAMPLE_EXTRA && b->extra[i] != NULL; i++)
        in[n++] = aril_to(b->extra[i], m->device);
    return n;
}

aril_tensor *aril__model_forward(aril_model *m, const aril_batch *b)
{
    aril_tensor *in[1 + ARIL_SAMPLE_EXTRA];
    int n = inputs_of(m, b, in);
    aril_tensor *y =
        n == 1 ? aril_forward(m->net, in[0]) : aril_forward_n(m->net, (aril_list){ n, in });
    if (!m->built && aril_tensor_status(y) == ARIL_OK) {
        aril__model_ready(m);
        if (give_parameters(m) != ARIL_OK) return NULL;
    }
    return y;
}

aril_status aril__model_build(aril_model *m, const aril_batch *b)
{
    aril_tensor *in[1 + ARIL_SAMPLE_EXTRA];
    aril_status status = aril_module_build_n(m->net, (aril_list){ inputs_of(m, b, in), in });
    if (status != ARIL_OK) return status;
    aril__model_ready(m);
    return give_parameters(m);
}

/* One value for each sample. */
static aril_tensor *losses(aril_model *m, aril_tensor *output, aril_tensor *target)
{
    aril_tensor *in[] = { output, target };
    if (m->loss != NULL) return aril__loss_per_sample(m->loss, in, &(aril_nn_loss_opts){ 0 });
    aril_tensor *l = m->loss_fn != NULL ? m->loss_fn(output, target, m->loss_ctx)
                                        : aril_forward_n(m->loss_module, (aril_list){ 2, in });
    int64_t n = aril_size(output, 0);
    if (l != NULL && aril_tensor_status(l) == ARIL_OK &&
        (aril_ndim(l) == 0 || aril_size(l, 0) != n)) {
        aril__fail(
            ARIL_ERR_SHAPE,
            "weights need a loss for each sample: the loss gave %lld values for %lld samples",
            (long long)aril_numel(l), (long long)n);
        return NULL;
    }
    if (l == NULL || aril_ndim(l) == 1) return l;
    return aril_mean(aril_reshape(l, ARIL_SHAPE(n, -1)), ARIL_AXES(1));
}

/* The class weights of the samples: [N]. */
static aril_tensor *weights_of_classes(aril_tensor *output, aril_tensor *target,
                                       aril_tensor *class_weight)
{
    aril_tensor *truth = target;
    int axis;
    if (aril_numel(target) == aril_size(output, 0) &&
        (aril_ndim(output) == 1 || aril_size(output, 1) == 1))
        truth = aril_cast(aril_gt_scalar(aril_reshape(target, ARIL_SHAPE(-1)), 0), ARIL_I64);
    else if (aril__truth_of("class weights", output, target, &truth, &axis) != ARIL_OK)
        return NULL;
    if (aril_ndim(truth) != 1) {
        aril__fail(ARIL_ERR_SHAPE,
                   "class weights are for one class a sample; targets have %d dimensions",
                   aril_ndim(truth));
        return NULL;
    }
    return aril_index_select(aril_to(class_weight, aril_device_of(output)), truth, 0);
}

/* Targets [N] of results [N,1], or the other way round, are the same in other words; a loss of
 * elements would broadcast them and compare each with all. */
static aril_tensor *shaped_as(const aril_model *m, aril_tensor *output, aril_tensor *target)
{
    aril_shape o = aril_shape_of(output), t = aril_shape_of(target);
    bool elements = m->loss != NULL
                        ? !m->loss->classes
                        : m->loss_module != NULL && aril_dtype_is_float(aril_dtype_of(target));
    if (!elements || o.ndim == t.ndim || aril_numel(output) != aril_numel(target)) return target;
    for (int i = 0; i < o.ndim && i < t.ndim; i++)
        if (o.dim[i] != t.dim[i]) return target;
    return aril_reshape(target, o);
}

aril_tensor *aril__model_loss(aril_model *m, aril_tensor *output, const aril_batch *b,
                              aril_tensor *class_weight, aril_tensor **weight)
{
    *weight = NULL;
    if (b->y == NULL) {
        aril__fail(ARIL_ERR_ARG,
                   "the batches have no targets: there is nothing to compare predictions with");
        return NULL;
    }
    aril_tensor *target = shaped_as(m, output, aril_to(b->y, aril_device_of(output)));
    if (b->weight == NULL && class_weight == NULL) {
        aril_tensor *in[] = { output, target };
        if (m->loss != NULL) return m->loss->run(in, &(aril_nn_loss_opts){ 0 });
        aril_tensor *l = m->loss_fn != NULL ? m->loss_fn(output, target, m->loss_ctx)
                                            : aril_forward_n(m->loss_module, (aril_list){ 2, in });
        if (l == NULL && m->loss_fn != NULL)
            aril__fail(ARIL_ERR_ARG, "the function of the loss gave NULL");
        return l == NULL || aril_numel(l) == 1 ? l : aril_mean(l, ARIL_ALL);
    }
    /* Classes of elements (pixels, words) are weighted by the loss itself, by the same formula. */
    if (b->weight == NULL && m->loss != NULL && m->loss->classes && aril_ndim(target) > 1 &&
        !aril_dtype_is_float(aril_dtype_of(target)))
        return m->loss->run((aril_tensor *[]){ output, target },
                            &(aril_nn_loss_opts){
                                .weight = aril_to(class_weight, aril_device_of(output)) });
    aril_tensor *each = losses(m, output, target), *w = NULL; /* [N] */
    if (each == NULL) return NULL;
    if (class_weight != NULL && (w = weights_of_classes(output, target, class_weight)) == NULL)
        return NULL;
    if (b->weight != NULL) {
        aril_tensor *own = aril_reshape(aril_to(b->weight, aril_device_of(output)), ARIL_SHAPE(-1));
        w = w != NULL ? aril_mul(w, own) : own;
    }
    w = aril_cast(w, aril_dtype_of(each));
    aril_tensor *sum = aril_sum(w, ARIL_ALL);
    *weight = aril_cast(aril_detach(sum), ARIL_F64);
    /* A batch in which nothing counts has a loss of 0, and changes nothing. */
    return aril_div(aril_sum(aril_mul(each, w), ARIL_ALL), aril_add(sum, aril_eq_scalar(sum, 0)));
}

/* The meter adds in f64: a sum of many batches in f32 would lose digits that the batches have. */
static aril_status meter_add(aril_model *m, const char *name, aril_tensor *value)
{
    aril_tensor *state = aril__states_get(&m->meter, name);
    if (state != NULL) return aril_tensor_status(aril_add_(state, value));
    return aril__states_set(&m->meter, name, aril_copy(aril_cast(value, ARIL_F64)));
}

aril_status aril__model_count(aril_model *m, aril_tensor *output, aril_tensor *target, int64_t n,
                              aril_tensor *loss, aril_tensor *weight)
{
    ARIL_NO_GRAD;
    aril_device device = aril_device_of(loss);
    aril_tensor *w = weight != NULL ? weight : aril_full(ARIL_SHAPE(), n, ARIL_F64, device);
    aril_tensor *scaled = aril_mul(aril_reshape(aril_detach(loss), ARIL_SHAPE()), w);
    aril_status status = meter_add(m, "sum", scaled);
    if (status == ARIL_OK) status = meter_add(m, "weight", w);
    target = aril_to(target, aril_device_of(output));
    for (int i = 0; i < m->n_metrics && status == ARIL_OK; i++)
        status = aril_metric_update(m->metric[i], output, target, NULL);
    return status;
}

void aril__model_reset(aril_model *m)
{
    aril__states_clear(&m->meter);
    for (int i = 0; i < m->n_metrics; i++) aril_metric_reset(m->metric[i]);
}

aril_status aril__model_set_aside(aril_model *m)
{
    aril_fit *f = m->running;
    if (f == NULL || f->aside != NULL) return ARIL_OK;
    f->aside = aril__calloc((size_t)(1 + m->n_metrics) * sizeof *f->aside);
    if (f->aside == NULL) return aril__fail(ARIL_ERR_MEMORY, "no memory for an evaluation");
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

double aril__model_mean_loss(const aril_model *m)
{
    aril_tensor *sum = aril__states_get(&m->meter, "sum"),
                *weight = aril__states_get(&m->meter, "weight");
    return sum != NULL && weight != NULL ? aril_item(sum) / aril_item(weight) : NAN;
}

/* ---- asking ---- */

static int find_metric(const aril_model *m, const char *name)
{
    for (int i = 0; i < m->n_metrics; i++)
        if (strcmp(aril_metric_label(m->metric[i]), name) == 0) return i;
    return -1;
}

static aril_status no_such_value(const aril_model *m, const char *name)
{
    char list[512] = "loss";
    for (int i = 0, at = 4; i < m->n_metrics && at < (int)sizeof list; i++)
        at +=
            snprintf(list + at, sizeof list - (size_t)at, ", %s", aril_metric_label(m->metric[i]));
    return aril__fail(ARIL_ERR_ARG, "the model measures no '%s'; it has %s", name, list);
}

double aril_model_value(const aril_model *m, const char *name)
{
    if (aril__need_compiled(m, false) != ARIL_OK) return NAN;
    if (name != NULL && strcmp(name, "loss") == 0) return aril__model_mean_loss(m);
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
