/* Training history: a row for each epoch, a column for each of "loss", the metrics, "val_loss",
 * "val_..." and "lr". */
#ifndef ARIL_HISTORY_H
#define ARIL_HISTORY_H

#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_history aril_history;

/* The number of rows and columns, and the name of a column; NULL beyond the last. */
ARIL_API int aril_history_epochs(const aril_history *h);
ARIL_API int aril_history_columns(const aril_history *h);
ARIL_API const char *aril_history_name(const aril_history *h, int column);

/* The epoch of a row, from 0: greater than the row index if the fit started at a later epoch. */
ARIL_API int aril_history_epoch(const aril_history *h, int row);

/* One value; negative rows count from the end. NaN if it was not measured, and NaN with an error if
 * there is no such row or column. */
ARIL_API double aril_history_at(const aril_history *h, const char *name, int row);

/* The row with the best value of a column: the smallest for losses and for metrics where smaller is
 * better (aril_metric_smaller_is_better), else the largest. -1 if there is none. */
ARIL_API int aril_history_best(const aril_history *h, const char *name);

/* A column: [epochs], f64, in the caller's scope. */
ARIL_API aril_tensor *aril_history_tensor(const aril_history *h, const char *name);

/* The signal that ended the fit early (.on_signal); 0: none. */
ARIL_API int aril_history_signal(const aril_history *h);

/* True if aril_stop_on_nan ended the fit. The weights are then unusable; aril_save_best and the
 * checkpoint hold those of the last good epoch. */
ARIL_API bool aril_history_diverged(const aril_history *h);

/* Writes a CSV file with a header and a line for each epoch, "epoch" first; values that were not
 * measured are empty. */
ARIL_API aril_status aril_history_csv(const aril_history *h, const char *path);

/* Draws the curves as an image: .svg or .png, by file extension. Columns and their val_
 * counterparts share a panel. */
ARIL_API aril_status aril_history_draw(const aril_history *h, const char *path);

/* Plots the curves as text: UTF-8 or ASCII, by locale. */
typedef struct aril_plot_opts {
    const char *name; /* the column, drawn with its val_ counterpart; NULL: "loss" */
    int width;        /* columns; 0: the terminal's, or 72 */
    int height;       /* lines of the curve; default 12 */
    bool ascii;       /* ASCII characters only */
} aril_plot_opts;
ARIL_API aril_status aril_history_plot(const aril_history *h, FILE *to, aril_plot_opts opts);

ARIL_C_END

#endif
