/* What a fit measured: a row for each epoch, a column for each of "loss", the metrics, "val_loss",
 * "val_..." and "lr". */
#ifndef ARIL_HISTORY_H
#define ARIL_HISTORY_H

#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_history aril_history;

/* Rows and columns, and the name of a column; NULL beyond the last. */
ARIL_API int aril_history_epochs(const aril_history *h);
ARIL_API int aril_history_columns(const aril_history *h);
ARIL_API const char *aril_history_name(const aril_history *h, int column);

/* The number of the epoch in a row, from 0: later than the row where a fit began later. */
ARIL_API int aril_history_epoch(const aril_history *h, int row);

/* One value; a row below 0 counts from the end. NaN where it was not measured, and, with an error,
 * where there is no such row or column. */
ARIL_API double aril_history_at(const aril_history *h, const char *name, int row);

/* The row in which a column is at its best: at its smallest for losses and for metrics that say so
 * (aril_metric_smaller_is_better), else at its largest. -1 of nothing. */
ARIL_API int aril_history_best(const aril_history *h, const char *name);

/* A column: [epochs], f64, in the caller's scope. */
ARIL_API aril_tensor *aril_history_tensor(const aril_history *h, const char *name);

/* The signal that ended the fit early (.on_signal), 0: none. */
ARIL_API int aril_history_signal(const aril_history *h);

/* Did aril_stop_on_nan end the fit? The weights are then worth nothing: those of the last good epoch
 * are what aril_save_best and the checkpoint hold. */
ARIL_API bool aril_history_diverged(const aril_history *h);

/* A file with a line of names and a line for each epoch, "epoch" first; what was not measured is
 * empty. */
ARIL_API aril_status aril_history_csv(const aril_history *h, const char *path);

/* The curves as a image: .svg or .png by the path's ending. Columns and their val_ counterparts
 * share a panel. */
ARIL_API aril_status aril_history_draw(const aril_history *h, const char *path);

/* The curves drawn with characters: UTF-8 or ASCII by the locale. */
typedef struct aril_plot_opts {
    const char *name; /* the column, drawn with its val_ counterpart; NULL: "loss" */
    int width;        /* columns; 0: the terminal's, or 72 */
    int height;       /* lines of the curve; 0: 12 */
    bool ascii;       /* no other characters */
} aril_plot_opts;
ARIL_API aril_status aril_history_plot(const aril_history *h, FILE *to, aril_plot_opts opts);

ARIL_C_END

#endif
