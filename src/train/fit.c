/* The loop. */
#include "aril/autograd.h"
#include "aril/make.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread.h"
#include "formats/bytes.h"
#include "train/model.h"
#include "train/signals.h"
#include "train/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one update ---- */

typedef struct step {
    aril_model *m;
    const aril_batch *b;
    aril_tensor *class_weight;
    double share;                        /* of the gradient in an update: 1 / batches gathered */
    aril_tensor *loss, *weight, *output; /* results */
} step;

/* Forward, loss, backward: what one writes by hand. */
static aril_status gradients(step *s)
{
    s->output = aril__model_forward(s->m, s->b);
    aril_status status = s->output != NULL ? aril_tensor_status(s->output) : aril__latest_status();
    if (status != ARIL_OK) return status;
    s->loss = aril__model_loss(s->m, s->output, s->b, s->class_weight, &s->weight);
    status = s->loss != NULL ? aril_tensor_status(s->loss) : aril__latest_status();
    if (status != ARIL_OK) return status;
    aril_tensor *from = s->share != 1 ? aril_mul_scalar(s->loss, s->share) : s->loss;
    return aril_backward(aril_scale_loss(s->m->opt, from));
}

/* For optimizers that look several times (lbfgs): the results kept are those of the first time. */
static aril_tensor *closure(void *ctx)
{
    step *s = ctx, again = *s;
    again.loss = NULL;
    if (gradients(&again) != ARIL_OK) return again.loss;
    if (s->loss == NULL) {
        /* Kept: the optimizer calls in a scope of its own. */
        s->loss = aril_keep(again.loss);
        s->weight = again.weight != NULL ? aril_keep(again.weight) : NULL;
        s->output = aril_keep(again.output);
    }
    return again.loss;
}

static aril_status update(step *s, bool now)
{
    if (strcmp(aril_optim_name(s->m->opt), "lbfgs") == 0) {
        aril_tensor *loss = aril_step_closure(s->m->opt, closure, s);
        aril_status status = loss != NULL ? aril_tensor_status(loss) : aril__latest_status();
        if (s->loss == NULL) return status != ARIL_OK ? status : aril__latest_status();
        aril_adopt(s->loss);
        aril_adopt(s->output);
        if (s->weight != NULL) aril_adopt(s->weight);
        return status;
    }
    aril_status status = gradients(s);
    return status == ARIL_OK && now ? aril_step(s->m->opt) : status;
}

double aril_model_train_on_batch(aril_model *m, aril_tensor *x, aril_tensor *y, aril_tensor *weight)
{
    if (aril__need_compiled(m, true) != ARIL_OK) return NAN;
    if (x == NULL || y == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "a batch needs samples and targets, got NULL");
        return NAN;
    }
    ARIL_SCOPE;
    aril__model_ready(m);
    aril_module_train(m->net);
    aril_batch b = { .x = x, .y = y, .weight = weight, .n = aril_size(x, 0) };
    step s = { .m = m, .b = &b, .share = 1 };
    return update(&s, true) == ARIL_OK ? aril_item(s.loss) : NAN;
}

/* ---- what callbacks and the line ask ---- */

static int find_name(const aril_fit *f, const char *name)
{
    for (int i = 0; i < f->n_names; i++)
        if (strcmp(f->name[i], name) == 0) return i;
    return -1;
}

/* Puts what loss and metrics say into value[from ...]. */
static void read_values(aril_fit *f, int from)
{
    f->value[from] = aril__model_mean_loss(f->model);
    for (int i = 0; i < f->model->n_shown; i++)
        f->value[from + 1 + i] = aril_metric_value(f->model->metric[i]);
}

aril_model *aril_fit_model(const aril_fit *f)
{
    return f != NULL ? f->model : NULL;
}

int aril_fit_epoch(const aril_fit *f)
{
    return f != NULL ? f->epoch : 0;
}

int aril_fit_epochs(const aril_fit *f)
{
    return f != NULL ? f->epochs : 0;
}

int64_t aril_fit_batch(const aril_fit *f)
{
    return f != NULL ? f->batch : 0;
}

int64_t aril_fit_batches(const aril_fit *f)
{
    return f != NULL ? f->batches : 0;
}

int64_t aril_fit_step(const aril_fit *f)
{
    return f != NULL ? f->step : 0;
}

bool aril_fit_resumed(const aril_fit *f)
{
    return f != NULL ? f->resumed : false;
}

const char *const *aril_fit_names(const aril_fit *f)
{
    return f != NULL ? f->name : NULL;
}

double aril_fit_value(const aril_fit *f, const char *name)
{
    if (f == NULL || name == NULL) return NAN;
    if (strcmp(name, "batch_loss") == 0)
        return f->last_loss != NULL ? aril_item(f->last_loss) : NAN;
    if (strcmp(name, "lr") == 0 && !f->measured) return aril_item(aril_optim_lr(f->model->opt));
    int i = find_name(f, name);
    if (i < 0) return NAN;
    if (f->measured || i > f->model->n_shown) return f->value[i];
    return i == 0 ? aril__model_mean_loss(f->model) : aril_metric_value(f->model->metric[i - 1]);
}

void aril_fit_stop(aril_fit *f)
{
    if (f != NULL) f->stop = true;
}

void aril_model_stop(aril_model *m)
{
    if (m != NULL && m->running != NULL) m->running->stop = true;
}

/* ---- an epoch ---- */

static aril__progress_at progress_at(const aril_fit *f)
{
    int n = f->val != NULL && f->measured ? f->n_names - 1 : 1 + f->model->n_shown; /* without lr */
    if (n > 1 + f->model->n_shown && isnan(f->value[1 + f->model->n_shown]))
        n = 1 + f->model->n_shown;
    return (aril__progress_at){ f->batch, f->samples, n, f->name, f->value, NULL };
}

/* After how many batches of this epoch the gradient of the next batch is applied, and its share in
 * the update. The last update of an epoch takes what is left. */
static bool update_now(const aril_fit *f, double *share)
{
    int64_t k = f->opts.accumulate > 1 ? f->opts.accumulate : 1;
    int64_t done = f->batch / k * k, in_group = k;
    if (f->batches > 0 && f->batches - done < k) in_group = f->batches - done;
    *share = 1.0 / (double)in_group;
    return f->batch + 1 - done >= in_group;
}

static aril_status one_batch(aril_fit *f, const aril_batch *b)
{
    ARIL_SCOPE;
    step s = { .m = f->model, .b = b, .class_weight = f->opts.class_weight };
    bool now = update_now(f, &s.share);
    aril_status status = update(&s, now);
    if (status == ARIL_OK)
        status = aril__model_count(f->model, s.output, b->y, b->n, s.loss, s.weight);
    if (status != ARIL_OK) return status;
    f->batch++;
    f->step++;
    f->samples += b->n;
    if (f->opts.callbacks == NULL) return ARIL_OK;
    aril_set(&f->last_loss, aril_detach(s.loss));
    return aril__callbacks_call(f, ARIL__BATCH_END);
}

/* Is a checkpoint due between batches? At the end of an epoch one is written anyway. */
static bool save_due(const aril_fit *f)
{
    const aril_fit_checkpoint *c = &f->opts.checkpoint;
    if (c->dir == NULL || f->batch == f->batches) return false;
    if (c->every_batches > 0 && f->batch % c->every_batches == 0) return true;
    return c->every_seconds > 0 && aril__seconds() - f->saved >= c->every_seconds;
}

static int signal_caught(const aril_fit *f)
{
    return f->opts.checkpoint.on_signal ? aril__signals_caught() : 0;
}

/* The batches of an epoch from where the loader stands. */
static aril_status train_epoch(aril_fit *f)
{
    aril_status status = ARIL_OK;
    const aril__error *before = aril__self()->last_error;
    aril_batch b;
    f->ended = false;
    while (status == ARIL_OK && !f->stop && !signal_caught(f)) {
        f->ended = !aril_loader_next(f->loader, &b);
        if (f->ended) break;
        status = one_batch(f, &b);
        if (status != ARIL_OK) break;
        if (aril__progress_due(&f->progress)) {
            read_values(f, 0);
            aril__progress_at at = progress_at(f);
            aril__progress_draw(&f->progress, &at);
        }
        if (save_due(f) && !signal_caught(f)) status = aril__fit_save(f);
        before =
            aril__self()->last_error; /* what a callback met and passed over is not the loader's */
    }
    /* A loader that fails ends the epoch too. */
    return f->ended && aril__self()->last_error != before ? aril__latest_status() : status;
}

/* Gradients that wait for more batches than the epoch had: where its length was not known. */
static aril_status apply_rest(aril_fit *f)
{
    int64_t k = f->opts.accumulate;
    if (k <= 1 || f->batch % k == 0 || f->batch == f->batches) return ARIL_OK;
    return aril_step(f->model->opt);
}

static bool validates_now(const aril_fit *f)
{
    int every = f->opts.validation_every > 1 ? f->opts.validation_every : 1;
    return f->val != NULL && ((f->epoch + 1) % every == 0 || f->epoch + 1 == f->epochs || f->stop);
}

/* The end of an epoch: validation, history, schedule, callbacks, checkpoint. */
static aril_status close_epoch(aril_fit *f, double seconds)
{
    aril_model *m = f->model;
    int first_val = 1 + m->n_shown;
    aril_status status = apply_rest(f);
    if (status != ARIL_OK) return status;
    if (f->batch == 0) return aril__fail(ARIL_ERR_ARG, "there is not one batch to train on");
    read_values(f, 0);
    f->value[f->n_names - 1] = aril_item(aril_optim_lr(m->opt));
    if (validates_now(f)) {
        status = aril__model_measure(m, f->val, &f->progress, f);
        if (status != ARIL_OK) return status;
        read_values(f, first_val);
    }
    f->measured = true;
    double watched =
        f->val != NULL && !isnan(f->value[first_val]) ? f->value[first_val] : f->value[0];
    status = aril_optim_epoch(m->opt, watched);
    if (status == ARIL_OK)
        status = aril__history_add_row(f->history, f->epoch, f->n_names, f->name, f->value);
    if (status != ARIL_OK) return status;
    aril__progress_at at = progress_at(f);
    aril__progress_end(&f->progress, &at, seconds);
    return aril__callbacks_call(f, ARIL__EPOCH_END);
}

static void open_epoch(aril_fit *f)
{
    f->batch = f->samples = 0;
    aril__model_reset(f->model);
}

static aril_status run_epoch(aril_fit *f, bool goes_on)
{
    if (!goes_on) open_epoch(f);
    f->measured = false;
    for (int i = 1 + f->model->n_shown; i < f->n_names; i++) f->value[i] = NAN;
    aril_module_train(f->model->net);
    char title[32];
    snprintf(title, sizeof title, "Epoch %d/%d", f->epoch + 1, f->epochs);
    aril__progress_begin(&f->progress, title, f->batches > 0 ? f->batches : -1, f->batch,
                         f->samples);
    aril_status status = goes_on ? ARIL_OK : aril__callbacks_call(f, ARIL__EPOCH_BEGIN);
    if (status == ARIL_OK) status = train_epoch(f);
    double seconds = aril__seconds() - f->progress.started;
    if (status != ARIL_OK) return status;
    if (signal_caught(f) && !f->ended)
        return ARIL_OK; /* the checkpoint will stand inside the epoch */
    if (!f->ended) { /* stopped before the loader was asked for more: the next epoch begins afresh */
        aril_loader_position at = aril_loader_tell(f->loader);
        if (at.batch > 0)
            status =
                aril_loader_seek(f->loader, (aril_loader_position){ at.seed, at.epoch + 1, 0 });
    }
    if (status == ARIL_OK) status = close_epoch(f, seconds);
    if (status != ARIL_OK) return status;
    f->epoch++;
    f->over = f->stop;
    f->batch = f->samples = 0;
    return f->opts.checkpoint.dir != NULL ? aril__fit_save(f) : ARIL_OK;
}

/* ---- a fit ---- */

static aril_status name_columns(aril_fit *f)
{
    aril_model *m = f->model;
    int n = 2 + m->n_shown + (f->val != NULL ? 1 + m->n_shown : 0);
    f->name = aril__calloc((size_t)(n + 1) * sizeof *f->name);
    f->value = aril__calloc((size_t)n * sizeof *f->value);
    if (f->name == NULL || f->value == NULL)
        return aril__fail(ARIL_ERR_MEMORY, "no memory for a fit");
    int at = 0;
    for (int val = 0; val <= (f->val != NULL); val++)
        for (int i = -1; i < m->n_shown; i++) {
            const char *label = i < 0 ? "loss" : aril_metric_label(m->metric[i]);
            char *name = aril__malloc(strlen(label) + 5);
            if (name == NULL) return aril__fail(ARIL_ERR_MEMORY, "no memory for a fit");
            sprintf(name, "%s%s", val ? "val_" : "", label);
            f->name[at++] = name;
        }
    f->name[at] = aril__strdup("lr");
    if (f->name[at++] == NULL) return aril__fail(ARIL_ERR_MEMORY, "no memory for a fit");
    f->n_names = n;
    for (int i = 0; i < n; i++) f->value[i] = NAN;
    aril_status status = ARIL_OK;
    for (int i = 0; i < n && status == ARIL_OK; i++)
        status = aril__history_add_column(f->history, f->name[i]);
    return status;
}

static aril_status check_opts(const aril_fit_opts *o)
{
    if (o->epochs < 0 || o->initial_epoch < 0 || o->accumulate < 0 || o->batch_size < 0)
        return aril__fail(ARIL_ERR_ARG, "fit: %s is below 0",
                          o->epochs < 0          ? ".epochs"
                          : o->initial_epoch < 0 ? ".initial_epoch"
                          : o->accumulate < 0    ? ".accumulate"
                                                 : ".batch_size");
    if (o->class_weight != NULL && aril_ndim(o->class_weight) != 1)
        return aril__fail(ARIL_ERR_SHAPE, "fit: .class_weight is [C], got %d dimensions",
                          aril_ndim(o->class_weight));
    if (!(o->validation_split >= 0 && o->validation_split < 1))
        return aril__fail(ARIL_ERR_ARG, "fit: .validation_split is a share from 0 to 1, got %g",
                          o->validation_split);
    if (o->validation.x == NULL && o->validation.y != NULL && o->validation_loader == NULL)
        return aril__fail(ARIL_ERR_ARG, "fit: .validation has targets, and NULL for its samples");
    if (o->validation_every < 0)
        return aril__fail(ARIL_ERR_ARG, "fit: .validation_every is below 0");
    for (int i = 0; o->callbacks != NULL && o->callbacks[i] != NULL; i++)
        for (int j = 0; j < i; j++)
            if (o->callbacks[i] == o->callbacks[j])
                return aril__fail(ARIL_ERR_ARG, "fit: callbacks %d and %d are one and the same", j,
                                  i);
    if (o->checkpoint.resume && o->checkpoint.dir == NULL)
        return aril__fail(ARIL_ERR_ARG, "fit: .checkpoint.resume needs .checkpoint.dir");
    return ARIL_OK;
}

static aril_status run(aril_fit *f)
{
    aril_status status = name_columns(f);
    bool goes_on = false;
    if (status == ARIL_OK && f->opts.checkpoint.resume &&
        aril_checkpoint_exists(f->opts.checkpoint.dir)) {
        status = aril__fit_resume(f);
        goes_on = f->batch > 0;
    }
    if (status == ARIL_OK) status = aril__callbacks_call(f, ARIL__BEGIN);
    f->saved = aril__seconds();
    while (status == ARIL_OK && f->epoch < f->epochs && !f->over && !f->stop && !signal_caught(f)) {
        status = run_epoch(f, goes_on);
        goes_on = false;
    }
    aril__progress_break(&f->progress);
    if (status != ARIL_OK) return status;
    if (signal_caught(f)) {
        f->history->signal = signal_caught(f);
        return f->batch > 0 && f->opts.checkpoint.dir != NULL ? aril__fit_save(f) : ARIL_OK;
    }
    return aril__callbacks_call(f, ARIL__END);
}

static void free_callbacks(const aril_fit_opts *opts)
{
    for (int i = 0; opts->callbacks != NULL && opts->callbacks[i] != NULL; i++) {
        bool again = false;
        for (int j = i + 1; opts->callbacks[j] != NULL && !again; j++)
            again = opts->callbacks[j] == opts->callbacks[i];
        if (!again) aril_callback_free(opts->callbacks[i]);
    }
}

/* Trains with two loaders, of which the second may be NULL, and frees the callbacks. */
static aril_history *fit(aril_model *m, aril_loader *loader, aril_loader *val,
                         const aril_fit_opts *opts)
{
    aril_fit f = { .model = m, .loader = loader, .val = val, .opts = *opts };
    f.epochs = opts->epochs > 0 ? opts->epochs : 1;
    f.epoch = opts->initial_epoch;
    int64_t length = aril_loader_length(loader);
    f.batches = length > 0 ? length : 0;
    aril_status status = ARIL_OK;
    if (m->running != NULL)
        status = aril__fail(ARIL_ERR_STATE, "the model is being fitted already");
    else {
        f.history = aril__history_new();
        status = f.history != NULL ? ARIL_OK : aril__latest_status();
        aril__progress_start(&f.progress, opts->output, opts->verbose, m->input.ndim == 3);
        bool signals = status == ARIL_OK && opts->checkpoint.on_signal;
        if (signals) status = aril__signals_begin();
        signals = signals && status == ARIL_OK;
        if (status == ARIL_OK) {
            m->running = &f;
            aril__model_ready(m);
            status = run(&f);
            m->running = NULL;
        }
        if (signals) aril__signals_end();
    }
    for (int i = 0; f.name != NULL && f.name[i] != NULL; i++) free((void *)(uintptr_t)f.name[i]);
    free(f.name);
    free(f.value);
    aril_release(f.last_loss);
    free_callbacks(opts);
    if (status != ARIL_OK) {
        aril__history_free(f.history);
        return NULL;
    }
    aril__history_free(m->history);
    return m->history = f.history;
}

static aril_history *refuse(const aril_fit_opts *opts)
{
    free_callbacks(opts);
    return NULL;
}

aril_history *aril_model_fit_loader(aril_model *m, aril_loader *loader, aril_fit_opts opts)
{
    if (aril__need_compiled(m, true) != ARIL_OK || check_opts(&opts) != ARIL_OK)
        return refuse(&opts);
    if (loader == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "aril_model_fit_loader takes a loader, got NULL");
        return refuse(&opts);
    }
    if (opts.validation_loader == loader) {
        aril__fail(ARIL_ERR_ARG, "fit: .validation_loader is the loader that is trained on; "
                                 "validation needs one of its own");
        return refuse(&opts);
    }
    if (opts.validation_split > 0 || opts.sample_weight != NULL) {
        aril__fail(ARIL_ERR_ARG,
                   "%s is for tensors; a loader's dataset can be split (aril_dataset_split), and "
                   "its samples have weights",
                   opts.validation_split > 0 ? ".validation_split" : ".sample_weight");
        return refuse(&opts);
    }
    if (opts.validation_loader != NULL || opts.validation.x == NULL)
        return fit(m, loader, opts.validation_loader, &opts);
    aril_loader *val = aril__model_loader(
        m, (aril__samples){ opts.validation.x, opts.validation.y, opts.validation_weight },
        (aril_loader_opts){ .batch = aril_loader_batch_size(loader) });
    if (val == NULL) return refuse(&opts);
    aril_history *h = fit(m, loader, val, &opts);
    aril_loader_free(val);
    return h;
}

/* Rows begin .. end - 1 of all tensors. */
static aril__samples rows(aril__samples s, int64_t begin, int64_t end)
{
    return (aril__samples){ s.x != NULL ? aril_narrow(s.x, 0, begin, end - begin) : NULL,
                            s.y != NULL ? aril_narrow(s.y, 0, begin, end - begin) : NULL,
                            s.weight != NULL ? aril_narrow(s.weight, 0, begin, end - begin)
                                             : NULL };
}

aril_history *aril_model_fit(aril_model *m, aril_tensor *x, aril_tensor *y, aril_fit_opts opts)
{
    if (aril__need_compiled(m, true) != ARIL_OK || check_opts(&opts) != ARIL_OK)
        return refuse(&opts);
    if (x == NULL || y == NULL || aril_tensor_status(x) != ARIL_OK ||
        aril_tensor_status(y) != ARIL_OK || aril_ndim(x) == 0) {
        if (aril_ok())
            aril__fail(ARIL_ERR_ARG, "fit takes samples x [N,...] and targets y [N,...], got %s",
                       x == NULL   ? "NULL for x"
                       : y == NULL ? "NULL for y"
                                   : "an x without dimensions");
        return refuse(&opts);
    }
    ARIL_SCOPE;
    aril__samples all = { x, y, opts.sample_weight }, train = all;
    aril__samples held = { opts.validation.x, opts.validation.y, opts.validation_weight };
    int64_t n = aril_size(x, 0), batch = opts.batch_size > 0 ? opts.batch_size : 32;
    if (opts.validation_split > 0) {
        int64_t cut = n - (int64_t)((double)n * opts.validation_split + 0.5);
        if (held.x != NULL || opts.validation_loader != NULL || cut <= 0 || cut >= n) {
            aril__fail(
                ARIL_ERR_ARG,
                cut <= 0 || cut >= n
                    ? "fit: .validation_split leaves no sample on one side"
                    : "fit: .validation_split and a validation set are given; one is enough");
            return refuse(&opts);
        }
        held = rows(all, cut, n);
        train = rows(all, 0, cut);
    }
    aril_loader *loader = aril__model_loader(m, train,
                                             (aril_loader_opts){ .batch = batch,
                                                                 .shuffle = !opts.no_shuffle,
                                                                 .seed = opts.seed,
                                                                 .workers = opts.workers });
    /* Epoch k has the same order whether it is reached in one fit or in several. */
    if (loader != NULL && opts.initial_epoch > 0)
        aril_loader_seek(loader, (aril_loader_position){ opts.seed, opts.initial_epoch, 0 });
    aril_loader *own =
        loader != NULL && held.x != NULL && opts.validation_loader == NULL
            ? aril__model_loader(m, held,
                                 (aril_loader_opts){ .batch = batch, .workers = opts.workers })
            : NULL;
    aril_history *h = NULL;
    if (loader == NULL || (own == NULL && held.x != NULL && opts.validation_loader == NULL))
        refuse(&opts);
    else
        h = fit(m, loader, own != NULL ? own : opts.validation_loader, &opts);
    aril_loader_free(own);
    aril_loader_free(loader);
    return h;
}
