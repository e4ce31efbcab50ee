/* Loops without updates: evaluate and predict. */
#include "aril/autocast.h"
#include "aril/index.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread.h"
#include "train/compiled.h"
#include "train/model.h"
#include "train/terminal.h"

#include <math.h>
#include <stdlib.h>

aril_loader *aril__model_loader(aril_model *m, aril__samples s, aril_loader_opts opts)
{
    aril_dataset *d = aril_dataset_tensor_lists(s.x, s.y, s.weight);
    /* When the model expects an image, u8 values are pixels. */
    if (d != NULL && aril_dtype_of(s.x.at[0]) == ARIL_U8 && m->input.ndim == 3)
        aril_dataset_set_images(d, true);
    aril__model_ready(m);
    opts.device = m->device;
    return aril_loader_new(d, opts);
}

/* Updates the progress line during an evaluation. */
static void draw(aril_model *m, aril__progress *p, aril_fit *fit, int64_t batch, int64_t total,
                 int64_t samples, bool values)
{
    char note[48];
    if (fit != NULL) { /* keep the epoch's line, with a note */
        snprintf(note, sizeof note, total > 0 ? "val %lld/%lld" : "val %lld", (long long)batch,
                 (long long)total);
        aril__progress_at at = {
            fit->batch, fit->samples, m->n_columns, fit->name, fit->value, note
        };
        aril__progress_draw(p, &at);
        return;
    }
    enum { MAX_COLUMNS = 32 };
    const char *name[MAX_COLUMNS];
    double value[MAX_COLUMNS];
    int n = 0;
    for (; values && n < m->n_columns && n < MAX_COLUMNS; n++) {
        name[n] = m->column[n];
        value[n] = aril__model_column(m, n);
    }
    aril__progress_at at = { batch, samples, n, name, value, NULL };
    if (batch < 0) { /* the end */
        at.batch = total;
        aril__progress_end(p, &at, aril__seconds() - p->started);
    } else
        aril__progress_draw(p, &at);
}

/* Called for each batch of one epoch, in evaluation mode, without gradients. */
typedef aril_status each_batch(aril_model *m, const aril_batch *b, aril__results *r, void *ctx);

static aril_status measure_batch(aril_model *m, const aril_batch *b, aril__results *r, void *ctx)
{
    (void)ctx;
    return aril__model_count(m, b, r);
}

/* The function that an epoch runs for each batch, and its totals. */
typedef struct epoch {
    aril__step_kind kind;
    each_batch *each;
    void *ctx;
    int n_out;
    int64_t batches, samples;
} epoch;

static aril_status run(aril_model *m, aril_loader *loader, epoch *e, aril__progress *p,
                       aril_fit *fit)
{
    aril__model_ready(m);
    bool training = aril_module_training(m->net);
    aril_module_eval(m->net);
    aril_status status = ARIL_OK;
    const aril__error *before = aril__self()->last_error;
    int64_t total = aril_loader_length(loader);
    /* A region around the loop that changes nothing else: weights are cast once, not per batch. */
    ARIL_AUTOCAST_ON(m->device, aril_autocast_dtype(m->device));
    for (aril_batch b; status == ARIL_OK && aril_loader_next(loader, &b);) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        aril__results r = { 0 };
        status = aril__model_step(m, e->kind, &b, (aril__step_plan){ .n_out = e->n_out }, &r);
        if (status == ARIL_OK) status = e->each(m, &b, &r, e->ctx);
        e->batches++;
        e->samples += b.n;
        if (p != NULL && aril__progress_due(p))
            draw(m, p, fit, e->batches, total, e->samples, e->each == measure_batch);
    }
    if (status == ARIL_OK && aril__self()->last_error != before) status = aril__latest_status();
    if (training) aril_module_train(m->net);
    return status;
}

aril_status aril__model_measure(aril_model *m, aril_loader *loader, aril__progress *progress,
                                aril_fit *fit)
{
    epoch e = { .kind = ARIL__MEASURE_STEP, .each = measure_batch, .n_out = m->n_outputs };
    aril__model_reset(m);
    aril_status status = run(m, loader, &e, progress, fit);
    if (status == ARIL_OK) status = aril_synchronize(m->device); /* errors that arrive late */
    if (status != ARIL_OK) return status;
    if (e.batches == 0) return aril__fail(ARIL_ERR_ARG, "there are no batches to evaluate");
    if (fit == NULL) draw(m, progress, NULL, -1, e.batches, e.samples, true);
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
    aril_status status = aril__model_save_metrics(m);
    if (status == ARIL_OK) status = aril__model_measure(m, loader, &p, NULL);
    aril__progress_break(&p);
    return status == ARIL_OK ? aril__model_mean_loss(m) : NAN;
}

static aril_loader *in_order(aril_model *m, aril__samples s, const aril_eval_opts *opts)
{
    if (s.x.n < 1 || s.x.at == NULL || s.x.at[0] == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "expected samples, got NULL");
        return NULL;
    }
    int64_t batch = opts->batch_size != 0 ? opts->batch_size : 256;
    return aril__model_loader(m, s, (aril_loader_opts){ .batch = batch, .workers = opts->workers });
}

double aril_model_evaluate_n(aril_model *m, aril_list x, aril_list y, aril_eval_opts opts)
{
    if (aril__need_compiled(m, false) != ARIL_OK) return NAN;
    aril_loader *loader = in_order(m, (aril__samples){ x, y, opts.sample_weight }, &opts);
    if (loader == NULL) return NAN;
    double loss = aril_model_evaluate_loader(m, loader, opts);
    aril_loader_free(loader);
    return loss;
}

double aril_model_evaluate(aril_model *m, aril_tensor *x, aril_tensor *y, aril_eval_opts opts)
{
    return aril_model_evaluate_n(m, (aril_list){ 1, &x }, (aril_list){ 1, &y }, opts);
}

/* ---- predict ---- */

/* The results of all batches, in order. */
typedef struct pile {
    int n_out;
    int n, cap;
    aril_tensor **at; /* holds references */
} pile;

static aril_status put_on(pile *p, const aril_batch *b, aril_tensor *output)
{
    if (aril_ndim(output) == 0 || aril_size(output, 0) != b->n)
        return aril__fail(ARIL_ERR_SHAPE,
                          "predict: a batch of %lld samples returned a result with %s",
                          (long long)b->n,
                          aril_ndim(output) == 0 ? "no dimensions" : "another number of rows");
    if (p->n == p->cap) {
        int cap = p->cap > 0 ? 2 * p->cap : 64;
        aril_tensor **at = aril__realloc(p->at, (size_t)cap * sizeof *at);
        if (at == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for predictions");
        p->at = at;
        p->cap = cap;
    }
    /* A module that returns its input would return the loader's memory, which the next batch
     * overwrites. */
    bool shared = aril_shares_memory(output, b->x);
    for (int i = 0; i < ARIL_SAMPLE_EXTRA && b->extra[i] != NULL && !shared; i++)
        shared = aril_shares_memory(output, b->extra[i]);
    p->at[p->n++] = aril_keep(shared ? aril_copy(output) : output);
    return ARIL_OK;
}

static aril_status pile_up(aril_model *m, const aril_batch *b, aril__results *r, void *ctx)
{
    (void)m;
    pile *p = ctx;
    aril_status status = ARIL_OK;
    for (int k = 0; k < p->n_out && status == ARIL_OK; k++) status = put_on(p, b, r->output[k]);
    return status;
}

/* Result k of all batches, concatenated. */
static aril_tensor *joined(const pile *p, int k)
{
    int n = p->n / p->n_out;
    aril_tensor **part = aril__malloc((size_t)n * sizeof *part);
    if (part == NULL) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for predictions");
        return NULL;
    }
    for (int i = 0; i < n; i++) part[i] = p->at[i * p->n_out + k];
    ARIL_NO_GRAD;
    aril_tensor *all = aril_cat((aril_list){ n, part }, 0);
    free(part);
    return all;
}

static aril_status run_predict(aril_model *m, aril_loader *loader, pile *all,
                               const aril_eval_opts *opts)
{
    epoch e = { .kind = ARIL__PREDICT_STEP, .each = pile_up, .ctx = all, .n_out = all->n_out };
    aril__progress p;
    aril__progress_start(&p, opts->output, opts->verbose == 0 ? ARIL_SILENT : opts->verbose,
                         m->input.ndim == 3);
    aril__progress_begin(&p, "Predict", aril_loader_length(loader), 0, 0);
    aril_status status = run(m, loader, &e, &p, NULL);
    if (status == ARIL_OK) {
        aril__progress_at at = { .batch = e.batches, .samples = e.samples };
        aril__progress_end(&p, &at, aril__seconds() - p.started);
    }
    aril__progress_break(&p);
    if (status == ARIL_OK && all->n == 0)
        status = aril__fail(ARIL_ERR_ARG, "there are no batches to predict");
    return status;
}

aril_status aril_model_predict_all_loader(aril_model *m, aril_loader *loader, int n_out,
                                          aril_tensor **out, aril_eval_opts opts)
{
    if (n_out < 1 || n_out > ARIL_MODEL_OUTPUTS || out == NULL)
        return aril__fail(ARIL_ERR_ARG,
                          "predict: expected 1 to %d results and an array for them, got %d%s",
                          ARIL_MODEL_OUTPUTS, n_out, out == NULL ? " and NULL" : "");
    for (int k = 0; k < n_out; k++) out[k] = NULL;
    if (m == NULL || loader == NULL)
        return aril_ok()
                   ? aril__fail(ARIL_ERR_ARG,
                                "aril_model_predict takes a model and samples, got NULL for %s",
                                m == NULL ? "the model" : "the samples")
                   : aril__latest_status();
    pile all = { .n_out = n_out };
    aril_status status = run_predict(m, loader, &all, &opts);
    for (int k = 0; k < n_out && status == ARIL_OK; k++) {
        out[k] = joined(&all, k);
        status = out[k] != NULL ? aril_tensor_status(out[k]) : aril__latest_status();
    }
    for (int k = 0; k < n_out && status < 0; k++) out[k] = NULL; /* all or nothing */
    for (int i = 0; i < all.n; i++) aril_release(all.at[i]);
    free(all.at);
    return status;
}

aril_status aril_model_predict_all(aril_model *m, aril_list x, int n_out, aril_tensor **out,
                                   aril_eval_opts opts)
{
    if (m == NULL) return aril_model_predict_all_loader(NULL, NULL, n_out, out, opts);
    aril_loader *loader = in_order(m, (aril__samples){ .x = x }, &opts);
    if (loader == NULL) {
        for (int k = 0; out != NULL && k < n_out && k < ARIL_MODEL_OUTPUTS; k++) out[k] = NULL;
        return aril__latest_status();
    }
    aril_status status = aril_model_predict_all_loader(m, loader, n_out, out, opts);
    aril_loader_free(loader);
    return status;
}

aril_tensor *aril_model_predict_loader(aril_model *m, aril_loader *loader, aril_eval_opts opts)
{
    aril_tensor *y = NULL;
    aril_model_predict_all_loader(m, loader, 1, &y, opts);
    return y;
}

aril_tensor *aril_model_predict(aril_model *m, aril_tensor *x, aril_eval_opts opts)
{
    aril_tensor *y = NULL;
    aril_model_predict_all(m, (aril_list){ 1, &x }, 1, &y, opts);
    return y;
}
