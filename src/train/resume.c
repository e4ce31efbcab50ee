/* The state of a fit in a checkpoint:
 *     fit/at                   epoch, batches done in it, batches since the start, samples of the
 *                              epoch, whether it is over
 *     fit/names                the columns, to reject a fit that measures something else
 *     fit/loader               batches and samples per epoch, and the batch size
 *     fit/val_loader           position of the validation loader
 *     fit/meter/...            the running loss
 *     fit/metric/I/...         state of metric I
 *     fit/callback/I.NAME/...  state of callback I
 *     fit/history...           the epochs so far */
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "train/checkpoint.h"
#include "train/model.h"
#include "train/terminal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void callback_prefix(char *buf, size_t size, int i, const aril_callback *cb)
{
    snprintf(buf, size, "fit/callback/%d.%s/", i, cb->type->name);
}

/* The columns, separated by spaces: "loss accuracy val_loss". */
static char *names_text(const aril_fit *f)
{
    size_t size = 1;
    for (int i = 0; i < f->n_names; i++) size += strlen(f->name[i]) + 2;
    char *text = aril__malloc(size);
    if (text == NULL) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a checkpoint");
        return NULL;
    }
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < f->n_names; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", i > 0 ? ", " : "", f->name[i]);
    return text;
}

static void loader_facts(const aril_fit *f, int64_t v[3])
{
    v[0] = aril_loader_length(f->loader);
    v[1] = aril_loader_samples(f->loader);
    v[2] = aril_loader_batch_size(f->loader);
}

aril_status aril__fit_save(aril_fit *f)
{
    aril_model *m = f->model;
    aril__states state = { 0 }, history = { 0 };
    char prefix[160];
    int64_t facts[3];
    loader_facts(f, facts);
    aril_status status =
        aril__states_set_ints(&state, "fit/at", 5,
                              (int64_t[]){ f->epoch, f->batch, f->step, f->samples, f->over });
    if (status == ARIL_OK) status = aril__states_set_ints(&state, "fit/loader", 3, facts);
    if (status == ARIL_OK) {
        char *names = names_text(f);
        status = names != NULL ? aril__states_set_text(&state, "fit/names", names)
                               : aril__latest_status();
        free(names);
    }
    if (status == ARIL_OK && f->val != NULL) {
        aril_loader_position at = aril_loader_tell(f->val);
        status = aril__states_set_ints(&state, "fit/val_loader", 3,
                                       (int64_t[]){ (int64_t)at.seed, at.epoch, at.batch });
    }
    /* Between epochs there is nothing to save: loss and metrics hold the last validation. */
    bool inside = f->batch > 0;
    if (status == ARIL_OK && inside)
        status = aril__states_copy(&state, "fit/meter/", aril__states_view(&m->meter));
    for (int i = 0; i < m->n_metrics && inside && status == ARIL_OK; i++) {
        snprintf(prefix, sizeof prefix, "fit/metric/%d/", i);
        status = aril__states_copy(&state, prefix, aril_metric_state(m->metric[i]));
    }
    for (int i = 0; i < f->opts.callbacks.n && status == ARIL_OK; i++) {
        aril_callback *callback = f->opts.callbacks.at[i];
        callback_prefix(prefix, sizeof prefix, i, callback);
        status = aril__states_copy(&state, prefix, aril__states_view(&callback->states));
    }
    if (status == ARIL_OK) status = aril__history_save(f->history, &history);
    if (status == ARIL_OK) status = aril__states_copy(&state, "fit/", aril__states_view(&history));
    if (status == ARIL_OK)
        status = aril__checkpoint_write(f->opts.checkpoint.dir, m->net, m->opt, f->loader, &state,
                                        f->step);
    aril__states_clear(&history);
    aril__states_clear(&state);
    f->saved = aril__seconds();
    return status;
}

/* ---- loading ---- */

/* Checks that the checkpoint is from a fit like this one. */
static aril_status fits(const aril_fit *f, const aril__states *state, int64_t at[5])
{
    const char *dir = f->opts.checkpoint.dir;
    int64_t was[3], now[3];
    if (!aril__states_ints(state, "fit/at", 5, at) ||
        !aril__states_ints(state, "fit/loader", 3, was))
        return aril__fail(
            ARIL_ERR_STATE,
            "the checkpoint in '%s' was not written by a fit: load it with aril_checkpoint_load",
            dir);
    for (int i = 0; i < 4; i++)
        if (at[i] < 0 || (i == 0 && at[i] >= INT_MAX))
            return aril__fail(ARIL_ERR_FORMAT,
                              "the checkpoint in '%s' is at epoch %lld, batch %lld, step %lld, "
                              "sample %lld, which is not a valid position",
                              dir, (long long)at[0], (long long)at[1], (long long)at[2],
                              (long long)at[3]);
    loader_facts(f, now);
    if (memcmp(was, now, sizeof was) != 0)
        return aril__fail(ARIL_ERR_STATE,
                          "the checkpoint in '%s' has %lld samples in batches of %lld; this fit "
                          "has %lld in batches of %lld",
                          dir, (long long)was[1], (long long)was[2], (long long)now[1],
                          (long long)now[2]);
    char *names = aril__states_text(state, "fit/names"), *mine = names_text(f);
    aril_status status = ARIL_OK;
    if (names == NULL || mine == NULL || strcmp(names, mine) != 0)
        status =
            aril__fail(ARIL_ERR_STATE, "the checkpoint in '%s' has the metrics %s; this fit has %s",
                       dir, names != NULL ? names : "?", mine != NULL ? mine : "?");
    free(names);
    free(mine);
    return status;
}

/* The parts of the state, read before anything is changed. */
typedef struct parts {
    aril__states meter, *metric, *callback;
    int n_metrics, n_callbacks;
    aril_history *history;
} parts;

static void parts_free(parts *p)
{
    aril__states_clear(&p->meter);
    for (int i = 0; i < p->n_metrics; i++) aril__states_clear(&p->metric[i]);
    for (int i = 0; i < p->n_callbacks; i++) aril__states_clear(&p->callback[i]);
    free(p->metric);
    free(p->callback);
    aril__history_free(p->history);
}

static aril_status parts_read(aril_fit *f, const aril__states *state, parts *p)
{
    char prefix[160];
    p->n_callbacks = f->opts.callbacks.n;
    p->n_metrics = f->model->n_metrics;
    p->metric = aril__calloc((size_t)(p->n_metrics + 1) * sizeof *p->metric);
    p->callback = aril__calloc((size_t)(p->n_callbacks + 1) * sizeof *p->callback);
    p->history = aril__history_new();
    if (p->metric == NULL || p->callback == NULL || p->history == NULL) {
        if (p->metric == NULL) p->n_metrics = 0;
        if (p->callback == NULL) p->n_callbacks = 0;
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for a checkpoint");
    }
    aril__states history = { 0 };
    aril_status status = aril__states_part(&history, state, "fit/");
    if (status == ARIL_OK) status = aril__history_load(p->history, &history);
    aril__states_clear(&history);
    aril__states meter = { 0 };
    if (status == ARIL_OK) status = aril__states_part(&meter, state, "fit/meter/");
    if (status == ARIL_OK) status = aril__states_copy(&p->meter, "", aril__states_view(&meter));
    aril__states_clear(&meter);
    for (int i = 0; i < p->n_metrics && status == ARIL_OK; i++) {
        snprintf(prefix, sizeof prefix, "fit/metric/%d/", i);
        status = aril__states_part(&p->metric[i], state, prefix);
    }
    for (int i = 0; i < p->n_callbacks && status == ARIL_OK; i++) {
        callback_prefix(prefix, sizeof prefix, i, f->opts.callbacks.at[i]);
        status = aril__states_part(&p->callback[i], state, prefix);
    }
    return status;
}

/* Parameters whose sizes depend on the first batch must be built before they can be loaded. */
static aril_status build(aril_fit *f)
{
    if (aril_module_built(f->model->net)) return ARIL_OK;
    ARIL_SCOPE;
    aril_loader_position start = aril_loader_tell(f->loader);
    aril_batch b;
    if (!aril_loader_next(f->loader, &b))
        return aril_ok() ? aril__fail(ARIL_ERR_ARG, "there are no batches to train on")
                         : aril__latest_status();
    aril_status status = aril__model_build(f->model, &b);
    return status == ARIL_OK ? aril_loader_seek(f->loader, start) : status;
}

aril_status aril__fit_resume(aril_fit *f)
{
    aril__checkpoint c;
    parts p = { 0 };
    int64_t at[5], val[3];
    const char *dir = f->opts.checkpoint.dir;
    aril_status status = aril__checkpoint_open(dir, &c);
    if (status != ARIL_OK) return status;
    status = fits(f, &c.state, at);
    if (status == ARIL_OK) status = parts_read(f, &c.state, &p);
    if (status == ARIL_OK) status = build(f);
    if (status == ARIL_OK)
        status = aril__checkpoint_apply(dir, &c, f->model->net, f->model->opt, f->loader);
    if (status == ARIL_OK && f->val != NULL &&
        aril__states_ints(&c.state, "fit/val_loader", 3, val))
        status =
            aril_loader_seek(f->val, (aril_loader_position){ (uint64_t)val[0], val[1], val[2] });
    for (int i = 0; i < p.n_metrics && status == ARIL_OK; i++)
        status = aril_metric_load_state(f->model->metric[i], aril__states_view(&p.metric[i]));
    if (status == ARIL_OK) {
        aril__states_swap(&f->model->meter, &p.meter);
        for (int i = 0; i < p.n_callbacks; i++)
            aril__states_swap(&f->opts.callbacks.at[i]->states, &p.callback[i]);
        aril__history_free(f->history);
        f->history = p.history;
        p.history = NULL;
        f->epoch = (int)at[0];
        f->batch = at[1];
        f->step = at[2];
        f->samples = at[3];
        f->over = at[4] != 0;
        f->resumed = true;
    }
    parts_free(&p);
    aril__checkpoint_close(&c);
    return status;
}
