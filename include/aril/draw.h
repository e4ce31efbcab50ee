/* Plots of a training run: curves, confusion matrices, image grids. The extension of the path
 * selects SVG (.svg) or PNG (.png). No other library is needed for either. */
#ifndef ARIL_DRAW_H
#define ARIL_DRAW_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* A line of a chart: n values at x = 1, 2, ... (or at x[i]); non-finite values leave a gap. */
typedef struct aril_series {
    const char *name;
    const char *panel; /* lines in the same panel share axes; NULL: the name without "val_" */
    int n;
    const double *x; /* NULL: 1, 2, ... */
    const double *y;
} aril_series;

typedef struct aril_draw_opts {
    const char *title;    /* NULL: none */
    const char *x_name;   /* NULL: "epoch" */
    double width, height; /* of a panel; default 460 and 300 */
} aril_draw_opts;

/* Draws the series as a chart, panels side by side. */
ARIL_API aril_status aril_draw_curves(const char *path, const aril_series *series, int n,
                                      aril_draw_opts opts);

/* Draws a confusion matrix. counts [C,C]: how often a sample of class i (row) was predicted as
 * class j. names: C class names, or NULL. */
ARIL_API aril_status aril_draw_confusion(const char *path, aril_tensor *counts,
                                         const char *const *names, aril_draw_opts opts);

/* The caption below an image of a grid, and whether to show it in the error color. */
typedef struct aril_caption {
    const char *text;
    bool wrong;
} aril_caption;

/* Draws a grid of images [N,C,H,W] (u8, or floats from 0 to 1) with `columns` images per row (0:
 * automatic). captions may be NULL. */
ARIL_API aril_status aril_draw_sheet(const char *path, aril_tensor *images,
                                     const aril_caption *captions, int columns,
                                     aril_draw_opts opts);

ARIL_C_END

#endif
