/* Callbacks that monitor a value: early stopping, saving the best weights, stopping at NaN. */
#include "aril/weights.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "train/model.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a monitored value; its best is saved as state, for resuming ---- */

typedef struct watch {
    aril_monitor monitor;
    char *name;
} watch;

static bool watch_init(watch *w, aril_monitor monitor)
{
    w->monitor = monitor;
    if (monitor.largest && monitor.smallest) {
        aril__fail(ARIL_ERR_ARG, "a monitor has both .largest and .smallest; set at most one");
        return false;
    }
    if (isnan(monitor.min_delta)) {
        aril__fail(ARIL_ERR_ARG, "a monitor's .min_delta is NaN");
        return false;
    }
    if (monitor.name == NULL) return true;
    w->name = aril__strdup(monitor.name);
    if (w->name == NULL) aril__fail(ARIL_ERR_MEMORY, "out of memory for a callback");
    return w->name != NULL;
}

static const char *watched_name(const watch *w, const aril_fit *fit)
{
    return w->name != NULL ? w->name : fit->val != NULL ? "val_loss" : "loss";
}

static aril_status watch_check(const watch *w, const aril_fit *fit, const char *who)
{
    const char *name = watched_name(w, fit);
    for (int i = 0; i < fit->n_names; i++)
        if (strcmp(fit->name[i], name) == 0) return ARIL_OK;
    const char *near = aril_nearest(name, fit->name, fit->n_names);
    return aril__fail(ARIL_ERR_ARG, "%s monitors '%s', which this fit does not have%s%s%s", who,
                      name, near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                      near != NULL ? "?" : "");
}

/* Whether this epoch's value is the best so far; if so, stores it. */
static aril_status watch_look(aril_callback *cb, const watch *w, const aril_fit *fit, bool *better,
                              double *value)
{
    const char *name = watched_name(w, fit);
    double v = aril_fit_value(fit, name), best;
    *value = v;
    *better = false;
    /* Not measured in this epoch, or diverged: NaN weights may still have an accuracy, that of the
     * first class. */
    if (isnan(v) || fit->diverged || !isfinite(aril_fit_value(fit, "loss"))) return ARIL_OK;
    if (fit->validated && !isfinite(aril_fit_value(fit, "val_loss"))) return ARIL_OK;
    bool smaller = w->monitor.smallest || (!w->monitor.largest && aril__fit_falls(fit, name));
    bool first = !aril__states_reals(&cb->states, "best", 1, &best);
    double delta = fabs(w->monitor.min_delta);
    *better = first || (smaller ? v < best - delta : v > best + delta);
    return *better ? aril__states_set_reals(&cb->states, "best", 1, &v) : ARIL_OK;
}

/* ---- early stopping ---- */

typedef struct early {
    watch watch;
    aril_early_stop_opts opts;
} early;

static aril_status early_begin(aril_callback *cb, aril_fit *fit)
{
    const early *e = cb->data;
    return watch_check(&e->watch, fit, "early stop");
}

static aril_status early_epoch(aril_callback *cb, aril_fit *fit)
{
    const early *e = cb->data;
    bool better;
    double value;
    int64_t waited[2] = { 0, -1 }; /* epochs since the best one, and the best epoch */
    aril_status status = watch_look(cb, &e->watch, fit, &better, &value);
    if (status != ARIL_OK) return status;
    if (isnan(value) && fit->val != NULL && isnan(aril_fit_value(fit, "val_loss"))) return ARIL_OK;
    aril__states_ints(&cb->states, "waited", 2, waited);
    if (better) {
        waited[0] = 0;
        waited[1] = fit->epoch;
        if (e->opts.restore_best)
            status = aril__states_copy(&cb->states, "weights/", aril_state(fit->model->net));
    } else if (++waited[0] >= (e->opts.patience > 0 ? e->opts.patience : 1)) {
        aril_fit_stop(fit);
        if (e->opts.verbose)
            aril__progress_note(&fit->progress,
                                "stopped early: %s has not improved since epoch %lld",
                                watched_name(&e->watch, fit), (long long)waited[1] + 1);
    }
    return status != ARIL_OK ? status : aril__states_set_ints(&cb->states, "waited", 2, waited);
}

/* Loads the weights that aril__states_copy stored, if any. */
static aril_status restore_weights(aril_callback *cb, aril_fit *fit)
{
    aril__states best = { 0 };
    aril_status status = aril__states_part(&best, &cb->states, "weights/");
    if (status == ARIL_OK && best.n > 0)
        status =
            aril_load_state(fit->model->net, aril__states_view(&best), (aril_load_state_opts){ 0 });
    aril__states_clear(&best);
    return status;
}

static void early_destroy(aril_callback *cb)
{
    free(((early *)cb->data)->watch.name);
}

static const aril_callback_class early_class = {
    .name = "early_stop",
    .size = sizeof(early),
    .begin = early_begin,
    .epoch_end = early_epoch,
    .end = restore_weights,
    .destroy = early_destroy,
};

aril_callback *aril_early_stop(aril_early_stop_opts opts)
{
    aril_callback *cb = aril_callback_make(&early_class);
    if (cb == NULL) return NULL;
    early *e = cb->data;
    e->opts = opts;
    if (watch_init(&e->watch, opts.monitor)) return cb;
    aril_callback_free(cb);
    return NULL;
}

/* ---- saving weights ---- */

typedef struct saver {
    watch watch;
    char *path;               /* NULL: not saved to a file */
    int every;                /* 0: only the best */
    aril_keep_best_opts best; /* for the best: whose path and monitor are those above */
} saver;

/* The path with "{epoch}" replaced by the epoch number. */
static aril_status path_for(const saver *s, int epoch, char *path)
{
    static const char mark[] = "{epoch}";
    const char *at = strstr(s->path, mark);
    int n = at == NULL ? snprintf(path, PATH_MAX, "%s", s->path)
                       : snprintf(path, PATH_MAX, "%.*s%d%s", (int)(at - s->path), s->path,
                                  epoch + 1, at + sizeof mark - 1);
    return n < PATH_MAX ? ARIL_OK
                        : aril__fail(ARIL_ERR_ARG, "the path '%.80s...' is too long", s->path);
}

static aril_status save_weights(const saver *s, aril_fit *fit, int epoch)
{
    char path[PATH_MAX];
    aril_status status = path_for(s, epoch, path);
    if (status == ARIL_OK) status = aril__folder_create_for("saving weights", path);
    return status != ARIL_OK ? status : aril_save(fit->model->net, path);
}

/* Creates the folder before the first epoch, so that a failure wastes no training. */
static aril_status saver_begin(aril_callback *cb, aril_fit *fit)
{
    char path[PATH_MAX];
    aril_status status = path_for(cb->data, fit->epoch, path);
    return status == ARIL_OK ? aril__folder_create_for("saving weights", path) : status;
}

/* ---- the best weights ---- */

static void report_best(aril_callback *cb, const aril_fit *fit)
{
    const saver *s = cb->data;
    int64_t epoch = -1;
    double value = (double)NAN;
    if (s->best.best == NULL) return;
    aril__states_ints(&cb->states, "epoch", 1, &epoch);
    aril__states_reals(&cb->states, "best", 1, &value);
    *s->best.best = (aril_best_epoch){ .epoch = (int)epoch, .value = value };
    snprintf(s->best.best->name, sizeof s->best.best->name, "%s", watched_name(&s->watch, fit));
}

static aril_status best_begin(aril_callback *cb, aril_fit *fit)
{
    const saver *s = cb->data;
    aril_status status = watch_check(&s->watch, fit, "keeping the best weights");
    if (status != ARIL_OK) return status;
    report_best(cb, fit);
    return s->path != NULL ? saver_begin(cb, fit) : ARIL_OK;
}

static aril_status keep_weights(aril_callback *cb, aril_fit *fit)
{
    const saver *s = cb->data;
    int64_t epoch = fit->epoch;
    aril_status status = ARIL_OK;
    if (s->path != NULL) status = save_weights(s, fit, fit->epoch);
    if (status == ARIL_OK && s->best.save != NULL) status = s->best.save(fit, s->best.ctx);
    if (status == ARIL_OK && s->best.restore && s->path == NULL)
        status = aril__states_copy(&cb->states, "weights/", aril_state(fit->model->net));
    return status == ARIL_OK ? aril__states_set_ints(&cb->states, "epoch", 1, &epoch) : status;
}

static aril_status best_epoch(aril_callback *cb, aril_fit *fit)
{
    const saver *s = cb->data;
    bool better;
    double value;
    aril_status status = watch_look(cb, &s->watch, fit, &better, &value);
    if (status != ARIL_OK || !better) return status;
    status = keep_weights(cb, fit);
    if (status == ARIL_OK) report_best(cb, fit);
    return status;
}

static aril_status best_end(aril_callback *cb, aril_fit *fit)
{
    const saver *s = cb->data;
    int64_t epoch;
    char path[PATH_MAX];
    if (!s->best.restore || !aril__states_ints(&cb->states, "epoch", 1, &epoch)) return ARIL_OK;
    if (s->path == NULL) return restore_weights(cb, fit);
    aril_status status = path_for(s, (int)epoch, path);
    return status == ARIL_OK
               ? aril_load_weights(fit->model->net, path, (aril_load_weights_opts){ 0 })
               : status;
}

static aril_status last_epoch(aril_callback *cb, aril_fit *fit)
{
    const saver *s = cb->data;
    return (fit->epoch + 1) % s->every == 0 ? save_weights(s, fit, fit->epoch) : ARIL_OK;
}

static aril_status last_end(aril_callback *cb, aril_fit *fit)
{
    return fit->epoch > 0 ? save_weights(cb->data, fit, fit->epoch - 1) : ARIL_OK;
}

static void saver_destroy(aril_callback *cb)
{
    saver *s = cb->data;
    free(s->watch.name);
    free(s->path);
}

static const aril_callback_class best_class = {
    .name = "keep_best",
    .size = sizeof(saver),
    .begin = best_begin,
    .epoch_end = best_epoch,
    .end = best_end,
    .destroy = saver_destroy,
};
static const aril_callback_class last_class = {
    .name = "save_last",
    .size = sizeof(saver),
    .begin = saver_begin,
    .epoch_end = last_epoch,
    .end = last_end,
    .destroy = saver_destroy,
};

static aril_callback *new_saver(const aril_callback_class *type, const char *path,
                                aril_monitor monitor, int every)
{
    aril_callback *cb = aril_callback_make(type);
    if (cb == NULL) return NULL;
    saver *s = cb->data;
    s->every = every;
    s->path = path != NULL ? aril__strdup(path) : NULL;
    if (s->path == NULL && path != NULL)
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a callback");
    if ((s->path != NULL || path == NULL) && watch_init(&s->watch, monitor)) return cb;
    aril_callback_free(cb);
    return NULL;
}

aril_callback *aril_keep_best(aril_keep_best_opts opts)
{
    aril_callback *cb = new_saver(&best_class, opts.path, opts.monitor, 0);
    if (cb != NULL) ((saver *)cb->data)->best = opts;
    return cb;
}

static bool has_path(const char *who, const char *path)
{
    if (path == NULL) aril__fail(ARIL_ERR_ARG, "aril_%s takes a path, got NULL", who);
    return path != NULL;
}

aril_callback *aril_save_best(const char *path, aril_monitor monitor)
{
    if (!has_path("save_best", path)) return NULL;
    return aril_keep_best((aril_keep_best_opts){ .path = path, .monitor = monitor });
}

aril_callback *aril_save_last(const char *path, int every)
{
    if (!has_path("save_last", path)) return NULL;
    return new_saver(&last_class, path, (aril_monitor){ 0 }, every > 1 ? every : 1);
}

/* ---- stopping at NaN ---- */

static const char *no_number(double v)
{
    return isnan(v) ? "NaN" : "infinite";
}

static aril_status nan_batch(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    double loss = aril_fit_value(fit, "batch_loss");
    if (isfinite(loss)) return ARIL_OK;
    aril__progress_note(&fit->progress, "stopped: the loss is %s at batch %lld of epoch %d",
                        no_number(loss), (long long)fit->batch, fit->epoch + 1);
    fit->diverged = true;
    aril_fit_stop(fit);
    return ARIL_OK;
}

/* The last update of an epoch can also break the weights: only validation detects that. */
static aril_status nan_epoch(aril_callback *cb, aril_fit *fit)
{
    (void)cb;
    double loss = aril_fit_value(fit, "val_loss");
    if (fit->diverged || !fit->validated || isfinite(loss)) return ARIL_OK;
    aril__progress_note(&fit->progress, "stopped: val_loss is %s after epoch %d", no_number(loss),
                        fit->epoch + 1);
    fit->diverged = true;
    aril_fit_stop(fit);
    return ARIL_OK;
}

static const aril_callback_class nan_class = { .name = "stop_on_nan",
                                               .batch_end = nan_batch,
                                               .epoch_end = nan_epoch };

aril_callback *aril_stop_on_nan(void)
{
    return aril_callback_make(&nan_class);
}
