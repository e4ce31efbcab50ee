/* Loops without updates: evaluate and predict. */
#include "aril/index.h"
#include "aril/make.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread.h"
#include "formats/bytes.h"
#include "train/model.h"
#include "train/terminal.h"

#include <math.h>
#include <stdlib.h>

aril_loader *aril__model_loader(aril_model *m, aril__samples s, aril_loader_opts opts)
{
    aril_dataset *d =
        aril_dataset_tensors_n((aril_list){ 3, (aril_tensor *[]){ s.x, s.y, s.weight } });
    /* Bytes where a model wants a picture are its pixels. */
    if (d != NULL && aril_dtype_of(s.x) == ARIL_U8 && m->input.ndim == 3)
        aril_dataset_set_pictures(d, true);
    return aril_loader_new(d, opts);
}

/* What the line shows while an evaluation runs. */
static void draw(aril_model *m, aril__progress *p, aril_fit *fit, int64_t batch, int64_t total,
                 int64_t samples, bool values)
{
    char note[48];
    if (fit != NULL) { /* the epoch's line stays, with a note */
        snprintf(note, sizeof note, total > 0 ? "val %lld/%lld" : "val %lld", (long long)batch,
                 (long long)total);
        aril__progress_at at = { fit->batch, fit->samples, 1 + m->n_shown,
                                 fit->name,  fit->value,   note };
        aril__progress_draw(p, &at);
        return;
    }
    enum { MOST = 32 };
    const char *name[MOST] = { "loss" };
    double value[MOST] = { values ? aril__model_mean_loss(m) : 0 };
    int n = values;
    for (int i = 0; values && i < m->n_shown && n < MOST; i++, n++) {
        name[n] = aril_metric_label(m->metric[i]);
        value[n] = aril_metric_value(m->metric[i]);
    }
    aril__progress_at at = { batch, samples, n, name, value, NULL };
    if (batch < 0) { /* the end */
        at.batch = total;
        aril__progress_end(p, &at, aril__seconds() - p->started);
    } else
        aril__progress_draw(p, &at);
}

static aril_status measure_batch(aril_model *m, const aril_batch *b, aril_tensor *output, void *ctx)
{
    (void)ctx;
    aril_tensor *weight, *loss = aril__model_loss(m, output, b, NULL, &weight);
    aril_status status = loss != NULL ? aril_tensor_status(loss) : aril__latest_status();
    return status != ARIL_OK ? status : aril__model_count(m, output, b->y, b->n, loss, weight);
}

/* Calls each(ctx, ...) for each batch of one epoch, in evaluation mode, without gradients. */
typedef aril_status each_batch(aril_model *m, const aril_batch *b, aril_tensor *output, void *ctx);

static aril_status run(aril_model *m, aril_loader *loader, each_batch *each, void *ctx,
                       aril__progress *p, aril_fit *fit, int64_t *batches, int64_t *samples)
{
    aril__model_ready(m);
    bool training = aril_module_training(m->net);
    aril_module_eval(m->net);
    aril_status status = ARIL_OK;
    const aril__error *before = aril__self()->last_error;
    int64_t total = aril_loader_length(loader);
    *batches = *samples = 0;
    for (aril_batch b; status == ARIL_OK && aril_loader_next(loader, &b);) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril_tensor *output = aril__model_forward(m, &b);
        status = output != NULL ? aril_tensor_status(output) : aril__latest_status();
        if (status == ARIL_OK) status = each(m, &b, output, ctx);
        ++*batches;
        *samples += b.n;
        if (p != NULL && aril__progress_due(p))
            draw(m, p, fit, *batches, total, *samples, each == measure_batch);
    }
    if (status == ARIL_OK && aril__self()->last_error != before) status = aril__latest_status();
    if (training) aril_module_train(m->net);
    return status;
}

aril_status aril__model_measure(aril_model *m, aril_loader *loader, aril__progress *progress,
                                aril_fit *fit)
{
    int64_t batches, samples;
    aril__model_reset(m);
    aril_status status = run(m, loader, measure_batch, NULL, progress, fit, &batches, &samples);
    if (status != ARIL_OK) return status;
    if (batches == 0) return aril__fail(ARIL_ERR_ARG, "there is not one batch to evaluate");
    if (fit == NULL) draw(m, progress, NULL, -1, batches, samples, true);
    return ARIL_OK;
}

double aril_model_evaluate_loader(aril_model *m, aril_loader *loader, aril_eval_opts opts)
{
    if (aril__need_compiled(m, false) != ARIL_OK) return NAN;
    if (loader == NULL) {
        if (aril_ok())
            aril__fail(ARIL_ERR_ARG, "aril_model_evaluate_loader takes a loader, got NULL");
        return NAN;
    }
    aril__progress p;
    aril__progress_start(&p, opts.output, opts.verbose, m->input.ndim == 3);
    aril__progress_begin(&p, "Evaluate", aril_loader_length(loader), 0, 0);
    aril_status status = aril__model_set_aside(m);
    if (status == ARIL_OK) status = aril__model_measure(m, loader, &p, NULL);
    aril__progress_break(&p);
    return status == ARIL_OK ? aril__model_mean_loss(m) : NAN;
}

static aril_loader *in_order(aril_model *m, aril__samples s, const aril_eval_opts *opts)
{
    if (s.x == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "samples are expected, got NULL");
        return NULL;
    }
    int64_t batch = opts->batch_size != 0 ? opts->batch_size : 256;
    return aril__model_loader(m, s, (aril_loader_opts){ .batch = batch, .workers = opts->workers });
}

double aril_model_evaluate(aril_model *m, aril_tensor *x, aril_tensor *y, aril_eval_opts opts)
{
    if (aril__need_compiled(m, false) != ARIL_OK) return NAN;
    aril_loader *loader = in_order(m, (aril__samples){ x, y, opts.sample_weight }, &opts);
    if (loader == NULL) return NAN;
    double loss = aril_model_evaluate_loader(m, loader, opts);
    aril_loader_free(loader);
    return loss;
}

/* ---- predict ---- */

typedef struct pile {
    int n, cap;
    aril_tensor **at; /* kept */
} pile;

static aril_status pile_up(aril_model *m, const aril_batch *b, aril_tensor *output, void *ctx)
{
    (void)m;
    pile *p = ctx;
    if (aril_ndim(output) == 0 || aril_size(output, 0) != b->n)
        return aril__fail(ARIL_ERR_SHAPE, "predict: a batch of %lld samples gave a result of %s",
                          (long long)b->n,
                          aril_ndim(output) == 0 ? "no dimensions" : "another number of rows");
    if (p->n == p->cap) {
        int cap = p->cap > 0 ? 2 * p->cap : 64;
        aril_tensor **at = aril__realloc(p->at, (size_t)cap * sizeof *at);
        if (at == NULL) return aril__fail(ARIL_ERR_MEMORY, "no memory for predictions");
        p->at = at;
        p->cap = cap;
    }
    /* A module that hands its input on would give the loader's memory, which the next batch
     * overwrites. */
    p->at[p->n++] = aril_keep(aril_shares_memory(output, b->x) ? aril_copy(output) : output);
    return ARIL_OK;
}

aril_tensor *aril_model_predict_loader(aril_model *m, aril_loader *loader, aril_eval_opts opts)
{
    if (m == NULL || loader == NULL) {
        if (aril_ok())
            aril__fail(ARIL_ERR_ARG,
                       "aril_model_predict takes a model and samples, got NULL for %s",
                       m == NULL ? "the model" : "the samples");
        return NULL;
    }
    pile all = { 0 };
    int64_t batches, samples;
    aril__progress p;
    aril__progress_start(&p, opts.output, opts.verbose == 0 ? ARIL_SILENT : opts.verbose,
                         m->input.ndim == 3);
    aril__progress_begin(&p, "Predict", aril_loader_length(loader), 0, 0);
    aril_status status = run(m, loader, pile_up, &all, &p, NULL, &batches, &samples);
    if (status == ARIL_OK) {
        aril__progress_at at = { .batch = batches, .samples = samples };
        aril__progress_end(&p, &at, aril__seconds() - p.started);
    }
    aril__progress_break(&p);
    aril_tensor *y = NULL;
    if (status == ARIL_OK && all.n == 0)
        aril__fail(ARIL_ERR_ARG, "there is not one batch to predict");
    if (status == ARIL_OK && all.n > 0) {
        ARIL_NO_GRAD;
        y = aril_cat((aril_list){ all.n, all.at }, 0);
    }
    for (int i = 0; i < all.n; i++) aril_release(all.at[i]);
    free(all.at);
    return y;
}

aril_tensor *aril_model_predict(aril_model *m, aril_tensor *x, aril_eval_opts opts)
{
    if (m == NULL) return aril_model_predict_loader(NULL, NULL, opts);
    aril_loader *loader = in_order(m, (aril__samples){ x, NULL, NULL }, &opts);
    if (loader == NULL) return NULL;
    aril_tensor *y = aril_model_predict_loader(m, loader, opts);
    aril_loader_free(loader);
    return y;
}
