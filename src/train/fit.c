/* The training loop. */
#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/late.h"
#include "core/memory.h"
#include "core/thread.h"
#include "optim/optim.h"
#include "train/compiled.h"
#include "train/model.h"
#include "train/signals.h"
#include "train/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one batch ---- */

/* Stores the entries of a list in *first and others[]. */
static aril_status spread(const char *what, aril_list from, aril_tensor **first,
                          aril_tensor **others, int max)
{
    if (from.n < 1 || from.n > 1 + max || from.at == NULL || from.at[0] == NULL)
        return aril__fail(ARIL_ERR_ARG, "expected 1 to %d %s, got %d%s", 1 + max, what, from.n,
                          from.n > 0 ? ", the first of them NULL" : "");
    *first = from.at[0];
    for (int i = 1; i < from.n; i++) others[i - 1] = from.at[i];
    return ARIL_OK;
}

double aril_model_train_on_batch_n(aril_model *m, aril_list x, aril_list y, aril_tensor *weight)
{
    aril_batch b = { .weight = weight };
    if (aril__need_compiled(m, true) != ARIL_OK ||
        spread("inputs", x, &b.x, b.extra, ARIL_SAMPLE_EXTRA) != ARIL_OK)
        return NAN;
    if (y.n < 0 || y.n > ARIL_MODEL_OUTPUTS || (y.n > 0 && y.at == NULL)) {
        aril__fail(ARIL_ERR_ARG, "expected up to %d targets, got %d", ARIL_MODEL_OUTPUTS, y.n);
        return NAN;
    }
    for (int k = 0; k < y.n; k++) *(k == 0 ? &b.y : &b.extra_y[k - 1]) = y.at[k];
    ARIL_SCOPE;
    aril__model_ready(m);
    aril_module_train(m->net);
    b.n = aril_ndim(b.x) > 0 ? aril_size(b.x, 0) : 1;
    aril__step_plan plan = { .n_out = m->n_outputs, .update = true, .share = 1 };
    aril__results r = { 0 };
    aril_status status = aril__model_step(m, ARIL__TRAIN_STEP, &b, plan, &r);
    return status == ARIL_OK ? aril_item(r.loss) : NAN;
}

double aril_model_train_on_batch(aril_model *m, aril_tensor *x, aril_tensor *y, aril_tensor *weight)
{
    if (x == NULL || y == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "a batch needs samples and targets, got NULL");
        return NAN;
    }
    return aril_model_train_on_batch_n(m, (aril_list){ 1, &x }, (aril_list){ 1, &y }, weight);
}

/* ---- values for callbacks and the progress line ---- */

static int find_name(const aril_fit *f, const char *name)
{
    for (int i = 0; i < f->n_names; i++)
        if (strcmp(f->name[i], name) == 0) return i;
    return -1;
}

/* Stores the current loss and metrics in value[from ...]. */
static void read_values(aril_fit *f, int from)
{
    for (int i = 0; i < f->model->n_columns; i++)
        f->value[from + i] = aril__model_column(f->model, i);
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
    if (f->measured || i >= f->model->n_columns) return f->value[i];
    return aril__model_column(f->model, i);
}

void aril_fit_stop(aril_fit *f)
{
    if (f != NULL) f->stop = true;
}

void aril_model_stop(aril_model *m)
{
    if (m != NULL && m->running != NULL) m->running->stop = true;
}

/* ---- epoch ---- */

static aril__progress_at progress_at(const aril_fit *f)
{
    int own = f->model->n_columns;
    int n = f->val != NULL && f->measured ? f->n_names - 1 : own; /* without lr */
    if (n > own && isnan(f->value[own])) n = own;
    return (aril__progress_at){ f->batch, f->samples, n, f->name, f->value, NULL };
}

/* Whether to apply the gradients after the next batch, and the share of each batch in the update.
 * The last update of an epoch takes the remaining batches. */
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
    aril__step_plan plan = { .n_out = f->model->n_outputs, .class_weight = f->opts.class_weight };
    plan.update = update_now(f, &plan.share);
    aril__results r = { 0 };
    aril_status status = aril__model_step(f->model, ARIL__TRAIN_STEP, b, plan, &r);
    if (status == ARIL_OK) status = aril__model_count(f->model, b, &r);
    if (status != ARIL_OK) return status;
    f->batch++;
    f->step++;
    f->samples += b->n;
    if (f->opts.callbacks.n == 0) return ARIL_OK;
    aril_set(&f->last_loss, aril_detach(r.loss));
    return aril__callbacks_call(f, ARIL__BATCH_END);
}

/* Waits for the device. Fails if work queued since the fit began has failed, also if only a
 * callback was told so and went on: the weights are not what they should be. */
static aril_status finish_work(const aril_fit *f)
{
    aril_status status = aril_synchronize(f->model->device);
    bool late = aril__late_errors() != f->late;
    return status == ARIL_OK && late ? aril__latest_status() : status;
}

static aril_status save(aril_fit *f)
{
    aril_status status = finish_work(f);
    return status == ARIL_OK ? aril__fit_save(f) : status;
}

/* Whether a checkpoint is due between batches. The end of an epoch always writes one. */
static bool save_due(const aril_fit *f)
{
    const aril_fit_checkpoint *c = &f->opts.checkpoint;
    if (c->dir == NULL || f->batch == f->batches || f->diverged) return false;
    if (c->every_batches > 0 && f->batch % c->every_batches == 0) return true;
    return c->every_seconds > 0 && aril__seconds() - f->saved >= c->every_seconds;
}

static int signal_caught(const aril_fit *f)
{
    return f->opts.checkpoint.on_signal ? aril__signals_caught() : 0;
}

/* Trains on the batches of an epoch, from the loader's current position. */
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
        if (save_due(f) && !signal_caught(f)) status = save(f);
        before = aril__self()->last_error; /* errors that a callback ignored are not the loader's */
    }
    /* A failing loader also ends the epoch. */
    return f->ended && aril__self()->last_error != before ? aril__latest_status() : status;
}

/* Applies gradients that wait for more batches than the epoch had, when its length was unknown. */
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

/* The value that plateaus monitor: the one configured, otherwise the loss, of validation if it was
 * measured. */
static double watched(const aril_fit *f)
{
    int val = f->model->n_columns;
    if (f->model->monitor != NULL) return aril_fit_value(f, f->model->monitor);
    return f->val != NULL && !isnan(f->value[val]) ? f->value[val] : f->value[0];
}

/* The end of an epoch: validation, history, schedule, callbacks, checkpoint. */
static aril_status close_epoch(aril_fit *f, double seconds)
{
    aril_model *m = f->model;
    int first_val = m->n_columns;
    aril_status status = apply_rest(f);
    if (status != ARIL_OK) return status;
    if (f->batch == 0) return aril__fail(ARIL_ERR_ARG, "there are no batches to train on");
    status = finish_work(f);
    if (status != ARIL_OK) return status;
    read_values(f, 0);
    f->value[f->n_names - 1] = aril_item(aril_optim_lr(m->opt));
    f->validated = validates_now(f);
    if (f->validated) {
        status = aril__model_measure(m, f->val, &f->progress, f);
        if (status != ARIL_OK) return status;
        read_values(f, first_val);
    }
    f->measured = true;
    status = aril_optim_epoch(m->opt, watched(f));
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
    for (int i = f->model->n_columns; i < f->n_names; i++) f->value[i] = NAN;
    aril_module_train(f->model->net);
    char title[32];
    snprintf(title, sizeof title, "Epoch %d/%d", f->epoch + 1, f->epochs);
    aril__progress_begin(&f->progress, title, f->batches > 0 ? f->batches : -1, f->batch,
                         f->samples);
    aril_status status = goes_on ? ARIL_OK : aril__callbacks_call(f, ARIL__EPOCH_BEGIN);
    if (status == ARIL_OK) status = train_epoch(f);
    double seconds = aril__seconds() - f->progress.started;
    if (status != ARIL_OK) return status;
    if (signal_caught(f) && !f->ended) return ARIL_OK; /* the checkpoint will be inside the epoch */
    if (!f->ended) { /* stopped before asking the loader for more: start the next epoch afresh */
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
    /* After divergence keep the last good checkpoint, to continue from. */
    return f->opts.checkpoint.dir != NULL && !f->diverged ? save(f) : ARIL_OK;
}

/* ---- fit ---- */

static aril_status name_columns(aril_fit *f)
{
    aril_model *m = f->model;
    int n = 1 + m->n_columns * (f->val != NULL ? 2 : 1);
    f->name = aril__calloc((size_t)(n + 1) * sizeof *f->name);
    f->value = aril__calloc((size_t)n * sizeof *f->value);
    if (f->name == NULL || f->value == NULL)
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for a fit");
    int at = 0;
    for (int val = 0; val <= (f->val != NULL); val++)
        for (int i = 0; i < m->n_columns; i++) {
            char *name = aril__malloc(strlen(m->column[i]) + 5);
            if (name == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a fit");
            sprintf(name, "%s%s", val ? "val_" : "", m->column[i]);
            f->name[at++] = name;
        }
    f->name[at] = aril__strdup("lr");
    if (f->name[at++] == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a fit");
    f->n_names = n;
    for (int i = 0; i < n; i++) f->value[i] = NAN;
    aril_status status = ARIL_OK;
    for (int i = 0; i < n && status == ARIL_OK; i++)
        status = aril__history_add_column(f->history, f->name[i]);
    return status;
}

static aril_status check_callbacks(const aril_callback_list *l)
{
    if (l->n < 0 || l->n > ARIL_MAX_CALLBACKS)
        return aril__fail(ARIL_ERR_ARG, "fit: got %d callbacks, expected 0 to %d", l->n,
                          ARIL_MAX_CALLBACKS);
    for (int i = 0; i < l->n; i++) {
        if (l->at[i] == NULL)
            return aril__fail(ARIL_ERR_ARG,
                              "fit: callback %d is NULL: it could not be created, or is missing",
                              i);
        for (int j = 0; j < i; j++)
            if (l->at[i] == l->at[j])
                return aril__fail(ARIL_ERR_ARG, "fit: callbacks %d and %d are the same", j, i);
    }
    return ARIL_OK;
}

bool aril__fit_falls(const aril_fit *f, const char *name)
{
    int i = find_name(f, name);
    return i >= 0 && i + 1 < f->n_names &&
           aril__model_column_falls(f->model, i % f->model->n_columns);
}

/* Tells the history and plateaus in which direction values improve. */
static aril_status set_directions(aril_fit *f)
{
    const char *name = f->model->monitor;
    for (int i = 0; i < f->n_names; i++)
        aril__history_direction(f->history, f->name[i], aril__fit_falls(f, f->name[i]));
    if (name == NULL) name = f->val != NULL ? "val_loss" : "loss";
    if (find_name(f, name) < 0) {
        const char *near = aril_nearest(name, f->name, f->n_names);
        return aril__fail(ARIL_ERR_ARG,
                          "the schedule monitors '%s', which this fit does not have%s%s%s", name,
                          near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                          near != NULL ? "?" : "");
    }
    return aril__schedules_watch(f->model->opt, name, !aril__fit_falls(f, name));
}

static aril_status check_opts(const aril_model *m, const aril_fit_opts *o)
{
    if (o->class_weight != NULL && m->output[0].name != NULL)
        return aril__fail(ARIL_ERR_ARG,
                          "fit: .class_weight is for models with one output; set .loss_module of "
                          "an output to a weighted loss (aril_nn_loss_with)");
    if (o->validation_n.x.n != 0 && o->validation.x != NULL)
        return aril__fail(ARIL_ERR_ARG, "fit: expected .validation or .validation_n, got both");
    if (o->validation_n.x.n < 0 || o->validation_n.y.n < 0 ||
        (o->validation_n.x.n == 0 && o->validation_n.y.n > 0))
        return aril__fail(ARIL_ERR_ARG, "fit: .validation_n has %d inputs and %d targets",
                          o->validation_n.x.n, o->validation_n.y.n);
    if (o->epochs < 0 || o->initial_epoch < 0 || o->accumulate < 0 || o->batch_size < 0)
        return aril__fail(ARIL_ERR_ARG, "fit: %s is negative",
                          o->epochs < 0          ? ".epochs"
                          : o->initial_epoch < 0 ? ".initial_epoch"
                          : o->accumulate < 0    ? ".accumulate"
                                                 : ".batch_size");
    if (o->class_weight != NULL && aril_ndim(o->class_weight) != 1)
        return aril__fail(ARIL_ERR_SHAPE, "fit: expected .class_weight [C], got %d dimensions",
                          aril_ndim(o->class_weight));
    if (!(o->validation_split >= 0 && o->validation_split < 1))
        return aril__fail(ARIL_ERR_ARG, "fit: expected .validation_split from 0 to 1, got %g",
                          o->validation_split);
    if (o->validation.x == NULL && o->validation.y != NULL && o->validation_loader == NULL)
        return aril__fail(ARIL_ERR_ARG, "fit: .validation has targets but no samples");
    if (o->validation_every < 0)
        return aril__fail(ARIL_ERR_ARG, "fit: .validation_every is negative");
    if (check_callbacks(&o->callbacks) < 0) return ARIL_ERR_ARG;
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
    if (status == ARIL_OK) status = set_directions(f);
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
        return f->batch > 0 && f->opts.checkpoint.dir != NULL ? save(f) : ARIL_OK;
    }
    return aril__callbacks_call(f, ARIL__END);
}

static void free_callbacks(const aril_fit_opts *opts)
{
    aril_callback *const *all = opts->callbacks.at;
    int n = opts->callbacks.n < ARIL_MAX_CALLBACKS ? opts->callbacks.n : ARIL_MAX_CALLBACKS;
    for (int i = 0; i < n; i++) {
        bool again = false;
        for (int j = i + 1; j < n && !again; j++) again = all[j] == all[i];
        if (!again) aril_callback_free(all[i]);
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
            aril__model_try_again(m);
            f.late = aril__late_errors();
            status = run(&f);
            m->running = NULL;
        }
        if (signals) aril__signals_end();
        if (f.history != NULL) f.history->diverged = f.diverged;
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

/* The validation samples; without inputs when there are none. Lists of one tensor point into the
 * options. */
static aril__samples held_out(aril_fit_opts *opts)
{
    if (opts->validation_n.x.n > 0)
        return (aril__samples){ opts->validation_n.x, opts->validation_n.y,
                                opts->validation_weight };
    if (opts->validation.x == NULL) return (aril__samples){ 0 };
    return (aril__samples){ { 1, &opts->validation.x },
                            { 1, &opts->validation.y },
                            opts->validation_weight };
}

aril_history *aril_model_fit_loader(aril_model *m, aril_loader *loader, aril_fit_opts opts)
{
    if (aril__need_compiled(m, true) != ARIL_OK || check_opts(m, &opts) != ARIL_OK)
        return refuse(&opts);
    if (loader == NULL) {
        if (aril_ok()) aril__fail(ARIL_ERR_ARG, "aril_model_fit_loader takes a loader, got NULL");
        return refuse(&opts);
    }
    if (opts.validation_loader == loader) {
        aril__fail(ARIL_ERR_ARG,
                   "fit: .validation_loader is also the training loader; expected a separate one");
        return refuse(&opts);
    }
    if (opts.validation_split > 0 || opts.sample_weight != NULL) {
        aril__fail(ARIL_ERR_ARG,
                   "%s is for tensors; for a loader, split its dataset (aril_dataset_split) or set "
                   "the weights of its samples",
                   opts.validation_split > 0 ? ".validation_split" : ".sample_weight");
        return refuse(&opts);
    }
    aril__samples held = held_out(&opts);
    if (opts.validation_loader != NULL || held.x.n == 0)
        return fit(m, loader, opts.validation_loader, &opts);
    aril_loader *val =
        aril__model_loader(m, held, (aril_loader_opts){ .batch = aril_loader_batch_size(loader) });
    if (val == NULL) return refuse(&opts);
    aril_history *h = fit(m, loader, val, &opts);
    aril_loader_free(val);
    return h;
}

/* Storage for slices of samples. */
typedef struct part {
    aril_tensor *x[1 + ARIL_SAMPLE_EXTRA], *y[ARIL_MODEL_OUTPUTS];
} part;

static aril_tensor *rows_of(aril_tensor *t, int64_t begin, int64_t end)
{
    return t != NULL ? aril_narrow(t, 0, begin, end - begin) : NULL;
}

/* Rows [begin, end) of all tensors. */
static aril__samples rows(aril__samples s, int64_t begin, int64_t end, part *parts)
{
    for (int i = 0; i < s.x.n; i++) parts->x[i] = rows_of(s.x.at[i], begin, end);
    for (int i = 0; i < s.y.n; i++) parts->y[i] = rows_of(s.y.at[i], begin, end);
    return (
        aril__samples){ { s.x.n, parts->x }, { s.y.n, parts->y }, rows_of(s.weight, begin, end) };
}

/* Checks that a fit supports these inputs [N,...] and targets. */
static bool check_samples(aril_list x, aril_list y)
{
    bool right = x.n > 0 && x.n <= 1 + ARIL_SAMPLE_EXTRA && x.at != NULL && y.n > 0 &&
                 y.n <= ARIL_MODEL_OUTPUTS && y.at != NULL;
    for (int i = 0; right && i < x.n; i++)
        right = x.at[i] != NULL && aril_tensor_status(x.at[i]) == ARIL_OK && aril_ndim(x.at[i]) > 0;
    for (int i = 0; right && i < y.n; i++)
        right = y.at[i] == NULL ? y.n > 1 : aril_tensor_status(y.at[i]) == ARIL_OK;
    if (!right && aril_ok())
        aril__fail(ARIL_ERR_ARG, "fit expects samples x [N,...] and targets y [N,...], got %s",
                   x.n < 1 || x.at == NULL || x.at[0] == NULL   ? "NULL for x"
                   : y.n < 1 || y.at == NULL || y.at[0] == NULL ? "NULL for y"
                   : x.n > 1 + ARIL_SAMPLE_EXTRA                ? "too many inputs"
                   : y.n > ARIL_MODEL_OUTPUTS                   ? "too many targets"
                                                                : "an x without dimensions");
    return right;
}

aril_history *aril_model_fit_n(aril_model *m, aril_list x, aril_list y, aril_fit_opts opts)
{
    if (aril__need_compiled(m, true) != ARIL_OK || check_opts(m, &opts) != ARIL_OK ||
        !check_samples(x, y))
        return refuse(&opts);
    ARIL_SCOPE;
    part parts[2];
    aril__samples all = { x, y, opts.sample_weight }, train = all, held = held_out(&opts);
    int64_t n = aril_size(x.at[0], 0), batch = opts.batch_size > 0 ? opts.batch_size : 32;
    if (opts.validation_split > 0) {
        int64_t cut = n - (int64_t)((double)n * opts.validation_split + 0.5);
        if (held.x.n > 0 || opts.validation_loader != NULL || cut <= 0 || cut >= n) {
            aril__fail(
                ARIL_ERR_ARG,
                cut <= 0 || cut >= n
                    ? "fit: .validation_split leaves no samples for training or for validation"
                    : "fit: .validation_split and a validation set are given; one is enough");
            return refuse(&opts);
        }
        held = rows(all, cut, n, &parts[0]);
        train = rows(all, 0, cut, &parts[1]);
    }
    aril_loader *loader = aril__model_loader(m, train,
                                             (aril_loader_opts){ .batch = batch,
                                                                 .shuffle = !opts.no_shuffle,
                                                                 .seed = opts.seed,
                                                                 .workers = opts.workers });
    /* Epoch k has the same order whether one fit reaches it or several. */
    if (loader != NULL && opts.initial_epoch > 0)
        aril_loader_seek(loader, (aril_loader_position){ opts.seed, opts.initial_epoch, 0 });
    bool holds = held.x.n > 0 && opts.validation_loader == NULL;
    aril_loader *own =
        loader != NULL && holds
            ? aril__model_loader(m, held,
                                 (aril_loader_opts){ .batch = batch, .workers = opts.workers })
            : NULL;
    aril_history *h = NULL;
    if (loader == NULL || (own == NULL && holds))
        refuse(&opts);
    else
        h = fit(m, loader, own != NULL ? own : opts.validation_loader, &opts);
    aril_loader_free(own);
    aril_loader_free(loader);
    return h;
}

aril_history *aril_model_fit(aril_model *m, aril_tensor *x, aril_tensor *y, aril_fit_opts opts)
{
    return aril_model_fit_n(m, (aril_list){ 1, &x }, (aril_list){ 1, &y }, opts);
}
