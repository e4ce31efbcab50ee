/* Images of a training: curves, confusion matrices, sheets of images. A path that ends in .svg
 * gives a drawing, one in .png a image. Nothing but Aril is needed for either. */
#ifndef ARIL_DRAW_H
#define ARIL_DRAW_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* A line of a chart: n values at x = 1, 2, ... (or at x[i]); those that are not finite leave a
 * gap. */
typedef struct aril_series {
    const char *name;
    const char *panel; /* lines of the same panel share axes; NULL: the name without "val_" */
    int n;
    const double *x; /* NULL: 1, 2, ... */
    const double *y;
} aril_series;

typedef struct aril_draw_opts {
    const char *title;    /* NULL: none */
    const char *x_name;   /* NULL: "epoch" */
    double width, height; /* of a panel; 0: 460 and 300 */
} aril_draw_opts;

/* A chart of the series, a panel beside the other. */
ARIL_API aril_status aril_draw_curves(const char *path, const aril_series *series, int n,
                                      aril_draw_opts opts);

/* counts [C,C]: how often a sample of class i (row) was taken for class j. names: C texts, or
 * NULL. */
ARIL_API aril_status aril_draw_confusion(const char *path, aril_tensor *counts,
                                         const char *const *names, aril_draw_opts opts);

/* One image of a sheet: what is written below it, and whether that is in the colour of a
 * mistake. */
typedef struct aril_caption {
    const char *text;
    bool wrong;
} aril_caption;

/* images [N,C,H,W] (u8, or floats from 0 to 1), `columns` a row (0: chosen), with captions or
 * without (NULL). */
ARIL_API aril_status aril_draw_sheet(const char *path, aril_tensor *images,
                                     const aril_caption *captions, int columns,
                                     aril_draw_opts opts);

ARIL_C_END

#endif
