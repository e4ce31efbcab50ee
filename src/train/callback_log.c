/* Callbacks that write logs: CSV files and TensorBoard events. */
#include "aril/tensorboard.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "train/model.h"
#include "train/terminal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- CSV ---- */

typedef struct csv {
    char *path;
    FILE *file;
} csv;

static aril_status csv_failed(const csv *c)
{
    return aril__fail(ARIL_ERR_IO, "the log '%s' cannot be written: %s", c->path, strerror(errno));
}

/* Starts the file over with the rows of the history: none, or, for a resumed fit, the epochs before
 * its checkpoint (a killed fit may have logged an epoch that will run again). */
static aril_status csv_begin(aril_callback *cb, aril_fit *fit)
{
    csv *c = cb->data;
    aril_status status = aril__folder_create_for("csv_log", c->path);
    if (status == ARIL_OK) status = aril_history_csv(fit->history, c->path);
    if (status != ARIL_OK) return status;
    c->file = fopen(c->path, "ae");
    return c->file != NULL ? ARIL_OK : csv_failed(c);
}

static aril_status csv_epoch(aril_callback *cb, aril_fit *fit)
{
    csv *c = cb->data;
    char text[64];
    fprintf(c->file, "%d", fit->epoch + 1);
    for (int i = 0; i < fit->history->columns; i++) {
        double v = aril_fit_value(fit, fit->history->name[i]);
        text[0] = '\0';
        if (!isnan(v)) aril__number_text(text, sizeof text, 'g', 9, v);
        fprintf(c->file, ",%s", text);
    }
    fputc('\n', c->file);
    return fflush(c->file) == 0 && !ferror(c->file) ? ARIL_OK : csv_failed(c);
}

static void csv_destroy(aril_callback *cb)
{
    csv *c = cb->data;
    if (c->file != NULL) fclose(c->file);
    free(c->path);
}

static const aril_callback_class csv_class = {
    .name = "csv_log",
    .size = sizeof(csv),
    .begin = csv_begin,
    .epoch_end = csv_epoch,
    .destroy = csv_destroy,
};

/* Stores a copy of the path in *to, or frees the callback. */
static aril_callback *with_path(aril_callback *cb, char **to, const char *path)
{
    if (cb == NULL) return NULL;
    *to = path != NULL ? aril__strdup(path) : NULL;
    if (*to != NULL) return cb;
    if (path == NULL)
        aril__fail(ARIL_ERR_ARG, "aril_%s takes a path, got NULL", cb->type->name);
    else
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a callback");
    aril_callback_free(cb);
    return NULL;
}

aril_callback *aril_csv_log(const char *path)
{
    aril_callback *cb = aril_callback_make(&csv_class);
    return with_path(cb, cb != NULL ? &((csv *)cb->data)->path : NULL, path);
}

/* ---- TensorBoard ---- */

typedef struct board {
    char *dir;
    aril_tensorboard_opts opts;
    aril_tensorboard *train, *val;
} board;

static aril_status open_board(const board *b, const char *name, aril_tensorboard **writer)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", b->dir, name) >= PATH_MAX)
        return aril__fail(ARIL_ERR_ARG, "the path '%.80s...' is too long", b->dir);
    *writer = aril_tensorboard_new(path);
    return *writer != NULL ? ARIL_OK : aril__latest_status();
}

static aril_status board_begin(aril_callback *cb, aril_fit *fit)
{
    board *b = cb->data;
    aril_status status = open_board(b, "train", &b->train);
    if (status == ARIL_OK && fit->val != NULL) status = open_board(b, "val", &b->val);
    if (status != ARIL_OK || !b->opts.graph || fit->resumed) return status;
    return aril_tensorboard_module(b->train, fit->model->net, fit->model->input);
}

static aril_status board_batch(aril_callback *cb, aril_fit *fit)
{
    board *b = cb->data;
    if (b->opts.every_batches <= 0 || fit->step % b->opts.every_batches != 0) return ARIL_OK;
    aril_status status = aril_tensorboard_scalar(b->train, "batch_loss",
                                                 aril_fit_value(fit, "batch_loss"), fit->step);
    return status != ARIL_OK ? status
                             : aril_tensorboard_scalar(b->train, "batch_lr",
                                                       aril_fit_value(fit, "lr"), fit->step);
}

/* Under "parameters/", which TensorBoard shows as one group. */
static aril_status board_parameters(const board *b, aril_fit *fit, int64_t epoch)
{
    static const char group[] = "parameters/";
    const aril_named *params = aril_parameters(fit->model->net);
    aril_status status = params != NULL ? ARIL_OK : aril__latest_status();
    for (int i = 0; i < (params != NULL ? params->n : 0) && status == ARIL_OK; i++) {
        char *tag = aril__malloc(sizeof group + strlen(params->name[i]));
        if (tag == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a name");
        strcat(strcpy(tag, group), params->name[i]);
        status = aril_tensorboard_histogram(b->train, tag, params->at[i], epoch);
        free(tag);
    }
    return status;
}

static aril_status board_epoch(aril_callback *cb, aril_fit *fit)
{
    board *b = cb->data;
    aril_status status = ARIL_OK;
    int64_t epoch = fit->epoch + 1;
    for (int i = 0; i < fit->n_names && status == ARIL_OK; i++) {
        bool val = strncmp(fit->name[i], "val_", 4) == 0;
        if (isnan(fit->value[i])) continue;
        status = aril_tensorboard_scalar(val ? b->val : b->train, fit->name[i] + (val ? 4 : 0),
                                         fit->value[i], epoch);
    }
    if (status == ARIL_OK && b->opts.histograms_every > 0 && epoch % b->opts.histograms_every == 0)
        status = board_parameters(b, fit, epoch);
    if (status == ARIL_OK) status = aril_tensorboard_flush(b->train);
    return status == ARIL_OK && b->val != NULL ? aril_tensorboard_flush(b->val) : status;
}

static void board_destroy(aril_callback *cb)
{
    board *b = cb->data;
    if (b->train != NULL) aril_tensorboard_free(b->train);
    if (b->val != NULL) aril_tensorboard_free(b->val);
    free(b->dir);
}

static const aril_callback_class board_class = {
    .name = "tensorboard_log",
    .size = sizeof(board),
    .begin = board_begin,
    .batch_end = board_batch,
    .epoch_end = board_epoch,
    .destroy = board_destroy,
};

aril_callback *aril_tensorboard_log(const char *dir, aril_tensorboard_opts opts)
{
    aril_callback *cb = aril_callback_make(&board_class);
    if (cb != NULL) ((board *)cb->data)->opts = opts;
    return with_path(cb, cb != NULL ? &((board *)cb->data)->dir : NULL, dir);
}
