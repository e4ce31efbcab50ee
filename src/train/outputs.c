/* The outputs of a model: their losses, and the values measured on them. */
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
#include "train/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- compilation ---- */

static bool is_given(const aril_output_opts *o)
{
    bool metric = o->metrics != NULL;
    for (size_t i = 0; i < sizeof o->own_metrics / sizeof *o->own_metrics; i++)
        metric = metric || o->own_metrics[i] != NULL;
    return o->name != NULL || o->loss != NULL || o->loss_module != NULL || o->loss_fn != NULL ||
           o->weight != 0 || metric;
}

static aril_status find_loss(aril__output *o, const char *name)
{
    if (name == NULL) return ARIL_OK;
    o->loss = aril__loss_find(name);
    if (o->loss == NULL) return aril__latest_status();
    if (o->loss->inputs == 2) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "the loss %s expects %d tensors; a model provides an output and a target",
                      name, o->loss->inputs);
}

/* A model with a single unnamed output. */
static aril_status set_only(aril_model *m, const aril_model_opts *opts)
{
    aril__output *o = &m->output[0];
    m->n_outputs = 1;
    *o = (aril__output){ .loss_module = opts->loss_module,
                         .loss_fn = opts->loss_fn,
                         .loss_ctx = opts->loss_ctx,
                         .weight = 1 };
    int given = (opts->loss != NULL) + (opts->loss_module != NULL) + (opts->loss_fn != NULL);
    if (given != 1)
        return aril__fail(ARIL_ERR_ARG,
                          "expected one of .loss, .loss_module and .loss_fn; %s given",
                          given == 0 ? "none was" : "several were");
    return find_loss(o, opts->loss);
}

/* Output names prefix columns: they must not collide with val_ or the model's own columns. */
static aril_status check_name(const aril_model *m, int k)
{
    const char *name = m->output[k].name;
    if (*name == '\0' || strpbrk(name, ", \t\n") != NULL || strncmp(name, "val_", 4) == 0 ||
        strcmp(name, "val") == 0 || strcmp(name, "batch") == 0)
        return aril__fail(ARIL_ERR_ARG,
                          "\"%s\" cannot name an output: a name must not contain spaces or commas, "
                          "be \"batch\" or start with \"val\"",
                          name);
    for (int i = 0; i < k; i++)
        if (strcmp(m->output[i].name, name) == 0)
            return aril__fail(ARIL_ERR_ARG, "outputs %d and %d are both named \"%s\"", i + 1, k + 1,
                              name);
    return ARIL_OK;
}

static aril_status set_one(aril_model *m, int k, const aril_output_opts *opts)
{
    aril__output *o = &m->output[k];
    char number[16];
    snprintf(number, sizeof number, "out%d", k + 1);
    o->loss_fn = opts->loss_fn;
    o->loss_ctx = opts->loss_ctx;
    o->weight = opts->weight == 0 ? 1 : opts->weight == ARIL_ZERO ? 0 : opts->weight;
    o->name = aril__strdup(opts->name != NULL ? opts->name : number);
    if (o->name == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for an output");
    aril_status status = check_name(m, k);
    if (status != ARIL_OK) return status;
    if (!isfinite(o->weight))
        return aril__fail(ARIL_ERR_ARG, "the weight of output \"%s\" is %g, expected a number",
                          o->name, o->weight);
    int given = (opts->loss != NULL) + (o->loss_module != NULL) + (opts->loss_fn != NULL);
    if (given > 1)
        return aril__fail(ARIL_ERR_ARG,
                          "output \"%s\" has several losses: give it .loss, .loss_module or "
                          ".loss_fn",
                          o->name);
    return find_loss(o, opts->loss);
}

/* Checks the number of outputs, when the module declares its results. */
static aril_status check_count(const aril_model *m)
{
    int gives = m->net->type->outputs != 0 ? m->net->type->outputs : 1, losses = 0;
    if (gives > 0 && m->n_outputs > gives)
        return aril__fail(ARIL_ERR_ARG, "the model is compiled for %d outputs, but %s has %d%s",
                          m->n_outputs, aril_module_type(m->net), gives,
                          gives == 1 ? " (aril_module_class.outputs)" : "");
    for (int k = 0; k < m->n_outputs; k++) losses += aril__output_has_loss(&m->output[k]);
    return losses > 0 ? ARIL_OK
                      : aril__fail(ARIL_ERR_ARG, "none of the model's outputs has a loss");
}

aril_status aril__outputs_set(aril_model *m, const aril_model_opts *opts)
{
    int n = 0;
    for (int k = 0; k < ARIL_MODEL_OUTPUTS; k++)
        if (is_given(&opts->outputs[k])) n = k + 1;
    if (n == 0) return set_only(m, opts);
    m->n_outputs = n;
    aril_status status = ARIL_OK;
    bool own = opts->loss != NULL || opts->loss_module != NULL || opts->loss_fn != NULL ||
               opts->metrics != NULL;
    for (size_t i = 0; i < sizeof opts->own_metrics / sizeof *opts->own_metrics; i++)
        own = own || opts->own_metrics[i] != NULL;
    if (own)
        status = aril__fail(ARIL_ERR_ARG, "with .outputs, losses and metrics belong to the "
                                          "outputs: leave .loss and .metrics unset");
    /* Take ownership before anything can fail, of each module once. */
    aril_module_release(opts->loss_module);
    for (int k = 0; k < n; k++) {
        aril_module *loss = opts->outputs[k].loss_module;
        bool again = loss != NULL && loss == opts->loss_module;
        for (int i = 0; i < k; i++)
            again = again || (loss != NULL && m->output[i].loss_module == loss);
        if (again && status == ARIL_OK)
            status = aril__fail(
                ARIL_ERR_ARG,
                "two outputs have the same .loss_module: use aril_module_keep for the second one");
        if (!again) m->output[k].loss_module = loss;
    }
    for (int k = 0; k < n && status == ARIL_OK; k++) status = set_one(m, k, &opts->outputs[k]);
    return status == ARIL_OK ? check_count(m) : status;
}

void aril__outputs_clear(aril_model *m)
{
    for (int k = 0; k < m->n_outputs; k++) {
        aril_module_release(m->output[k].loss_module);
        free(m->output[k].name);
        m->output[k] = (aril__output){ 0 };
    }
    m->n_outputs = 0;
}

aril_tensor *aril__batch_target(const aril_batch *b, int k)
{
    return k == 0 ? b->y : b->extra_y[k - 1];
}

/* ---- the loss of one output ---- */

static aril_tensor *call_loss(const aril__output *o, aril_tensor *output, aril_tensor *target)
{
    if (o->loss_fn == NULL) return aril_forward_n(o->loss_module, ARIL_LIST(output, target));
    aril_tensor *l = o->loss_fn(output, target, o->loss_ctx);
    if (l == NULL) aril__fail(ARIL_ERR_ARG, "the loss function returned NULL");
    return l;
}

/* One value per sample. */
static aril_tensor *losses(const aril__output *o, aril_tensor *output, aril_tensor *target)
{
    aril_tensor *in[] = { output, target };
    if (o->loss != NULL) return aril__loss_per_sample(o->loss, in, &(aril_nn_loss_opts){ 0 });
    aril_tensor *l = call_loss(o, output, target);
    int64_t n = aril_size(output, 0);
    if (l != NULL && aril_tensor_status(l) == ARIL_OK &&
        (aril_ndim(l) == 0 || aril_size(l, 0) != n)) {
        aril__fail(
            ARIL_ERR_SHAPE,
            "weights need a loss for each sample; the loss returned %lld values for %lld samples",
            (long long)aril_numel(l), (long long)n);
        return NULL;
    }
    if (l == NULL || aril_ndim(l) == 1) return l;
    return aril_mean(aril_reshape(l, ARIL_SHAPE(n, -1)), ARIL_AXES(1));
}

/* The class weight of each sample: [N]. */
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
                   "class weights need one class per sample; the targets have %d dimensions",
                   aril_ndim(truth));
        return NULL;
    }
    return aril_index_select(aril_to(class_weight, aril_device_of(output)), truth, 0);
}

/* Targets [N] for results [N,1], or vice versa, are equivalent; without the reshape an elementwise
 * loss would broadcast them and compare every pair. */
static aril_tensor *shaped_as(const aril__output *o, aril_tensor *output, aril_tensor *target)
{
    aril_shape a = aril_shape_of(output), t = aril_shape_of(target);
    bool elements = o->loss != NULL
                        ? !(o->loss->is & ARIL__LOSS_CLASSES)
                        : o->loss_module != NULL && aril_dtype_is_float(aril_dtype_of(target));
    if (!elements || a.ndim == t.ndim || aril_numel(output) != aril_numel(target)) return target;
    for (int i = 0; i < a.ndim && i < t.ndim; i++)
        if (a.dim[i] != t.dim[i]) return target;
    return aril_reshape(target, a);
}

/* The loss of output k, []; *weight gets the weight of the batch, see aril__results. NULL or poison
 * on failure. */
static aril_tensor *loss_of(const aril__output *o, aril_tensor *output, aril_tensor *target,
                            aril_tensor *sample_weight, aril_tensor *class_weight,
                            aril_tensor **weight)
{
    target = shaped_as(o, output, aril_to(target, aril_device_of(output)));
    if (sample_weight == NULL && class_weight == NULL) {
        aril_tensor *in[] = { output, target };
        if (o->loss != NULL) return o->loss->run(in, &(aril_nn_loss_opts){ 0 });
        aril_tensor *l = call_loss(o, output, target);
        if (l != NULL && aril_tensor_status(l) == ARIL_OK && aril_numel(l) == 0) {
            aril__fail(ARIL_ERR_SHAPE, "the loss returned no value for a batch of %lld samples",
                       (long long)aril_size(output, 0));
            return NULL;
        }
        return l == NULL || aril_numel(l) == 1 ? l : aril_mean(l, ARIL_ALL);
    }
    /* For classes per element (pixels, words) the loss applies the weights, by the same formula. */
    if (sample_weight == NULL && o->loss != NULL && o->loss->is & ARIL__LOSS_CLASSES &&
        aril_ndim(target) > 1 && !aril_dtype_is_float(aril_dtype_of(target)))
        return o->loss->run((aril_tensor *[]){ output, target },
                            &(aril_nn_loss_opts){
                                .weight = aril_to(class_weight, aril_device_of(output)) });
    aril_tensor *each = losses(o, output, target), *w = NULL; /* [N] */
    if (each == NULL) return NULL;
    if (class_weight != NULL && (w = weights_of_classes(output, target, class_weight)) == NULL)
        return NULL;
    if (sample_weight != NULL && aril_numel(sample_weight) != aril_size(output, 0)) {
        aril__fail(ARIL_ERR_SHAPE,
                   "expected weights [N], one for each sample; got %lld for %lld samples",
                   (long long)aril_numel(sample_weight), (long long)aril_size(output, 0));
        return NULL;
    }
    if (sample_weight != NULL) {
        aril_tensor *own =
            aril_reshape(aril_to(sample_weight, aril_device_of(output)), ARIL_SHAPE(-1));
        w = w != NULL ? aril_mul(w, own) : own;
    }
    w = aril_cast(w, aril_dtype_of(each));
    aril_tensor *sum = aril_sum(w, ARIL_ALL);
    *weight = aril_cast(aril_detach(sum), ARIL_F64);
    /* A batch whose weights are all 0 has a loss of 0, and changes nothing. */
    return aril_div(aril_sum(aril_mul(each, w), ARIL_ALL), aril_add(sum, aril_eq_scalar(sum, 0)));
}

/* ---- one batch ---- */

static aril_status no_target(const aril__output *o)
{
    if (o->name == NULL)
        return aril__fail(ARIL_ERR_ARG, "the batches have no targets to compare predictions with");
    return aril__fail(ARIL_ERR_ARG,
                      "the batches have no targets for the output \"%s\": y and extra_y must have "
                      "one for each output",
                      o->name);
}

aril_status aril__model_loss(aril_model *m, const aril_batch *b, aril_tensor *class_weight,
                             aril__results *r)
{
    r->loss = r->weight = NULL;
    for (int k = 0; k < m->n_outputs; k++) {
        const aril__output *o = &m->output[k];
        r->each[k] = NULL;
        if (!aril__output_has_loss(o)) continue;
        aril_tensor *target = aril__batch_target(b, k);
        if (target == NULL) return no_target(o);
        aril_tensor *loss = loss_of(o, r->output[k], target, b->weight, class_weight, &r->weight);
        aril_status status = loss != NULL ? aril_tensor_status(loss) : aril__latest_status();
        if (status != ARIL_OK) return status;
        if (o->name != NULL) r->each[k] = loss;
        if (o->weight == 0) continue; /* measured, but not trained */
        if (o->weight != 1) loss = aril_mul_scalar(loss, o->weight);
        r->loss = r->loss != NULL ? aril_add(r->loss, loss) : loss;
    }
    if (r->loss == NULL)
        return aril__fail(ARIL_ERR_ARG, "the losses of all outputs have the weight 0");
    return aril_tensor_status(r->loss);
}

/* Accumulates in f64: summing many batches in f32 would lose precision. */
static aril_status meter_add(aril_model *m, const char *name, aril_tensor *value)
{
    aril_tensor *state = aril__states_get(&m->meter, name);
    if (state != NULL) return aril__states_accumulate(&m->meter, name, value);
    return aril__states_set(&m->meter, name, aril_copy(aril_cast(value, ARIL_F64)));
}

static void sum_name(char *text, size_t size, int k)
{
    snprintf(text, size, "sum.%d", k);
}

static aril_tensor *scaled(aril_tensor *loss, aril_tensor *weight)
{
    return aril_mul(aril_reshape(aril_detach(loss), ARIL_SHAPE()), weight);
}

static aril_status count_losses(aril_model *m, const aril__results *r, aril_tensor *weight)
{
    aril_status status = meter_add(m, "sum", scaled(r->loss, weight));
    if (status == ARIL_OK) status = meter_add(m, "weight", weight);
    for (int k = 0; k < m->n_outputs && status == ARIL_OK; k++) {
        char name[16];
        sum_name(name, sizeof name, k);
        if (r->each[k] != NULL)
            status =
                meter_add(m, name, scaled(r->each[k], aril_to(weight, aril_device_of(r->each[k]))));
    }
    return status;
}

aril_status aril__model_count(aril_model *m, const aril_batch *b, const aril__results *r)
{
    ARIL_NO_GRAD;
    aril_tensor *w = r->weight != NULL
                         ? r->weight
                         : aril_full(ARIL_SHAPE(), (double)b->n, ARIL_F64, aril_device_of(r->loss));
    aril_status status = count_losses(m, r, w);
    for (int i = 0; i < m->n_metrics && status == ARIL_OK; i++) {
        int k = m->metric[i]->output;
        aril_tensor *target = aril__batch_target(b, k);
        status = target != NULL
                     ? aril_metric_update(m->metric[i], r->output[k],
                                          aril_to(target, aril_device_of(r->output[k])), NULL)
                     : no_target(&m->output[k]);
    }
    return status;
}

/* ---- columns ---- */

static double mean_of(const aril_model *m, const char *name)
{
    aril_tensor *sum = aril__states_get(&m->meter, name),
                *weight = aril__states_get(&m->meter, "weight");
    return sum != NULL && weight != NULL ? aril_item(sum) / aril_item(weight) : NAN;
}

double aril__model_mean_loss(const aril_model *m)
{
    return mean_of(m, "sum");
}

/* The output whose loss is in column i >= 1; or -1, and *metric is the metric of the column. */
static int output_of_column(const aril_model *m, int i, int *metric)
{
    for (int k = 0, at = 1; k < m->n_outputs; k++) {
        if (m->output[k].name == NULL || !aril__output_has_loss(&m->output[k])) continue;
        if (at++ == i) return k;
    }
    *metric = i - (m->n_columns - m->n_shown);
    return -1;
}

double aril__model_column(const aril_model *m, int i)
{
    int metric, k = i > 0 ? output_of_column(m, i, &metric) : -1;
    if (i == 0) return aril__model_mean_loss(m);
    if (k < 0) return aril_metric_value(m->metric[metric]);
    char name[16];
    sum_name(name, sizeof name, k);
    return mean_of(m, name);
}

bool aril__model_column_falls(const aril_model *m, int i)
{
    int metric;
    if (i == 0 || output_of_column(m, i, &metric) >= 0) return true;
    return aril_metric_smaller_is_better(m->metric[metric]);
}
