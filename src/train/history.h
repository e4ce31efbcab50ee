/* Internals of a history: a table that grows by rows, and by columns when new names appear. */
#ifndef ARIL_TRAIN_HISTORY_H
#define ARIL_TRAIN_HISTORY_H

#include "aril/history.h"
#include "train/states.h"

struct aril_history {
    int columns, rows, row_cap;
    char **name;    /* [columns + 1], NULL-terminated */
    double **value; /* [columns][row_cap] */
    bool *smaller;  /* [columns]: smaller values are better */
    int *epoch;     /* [row_cap] */
    int signal;
    bool diverged;
};

aril_history *aril__history_new(void);
void aril__history_free(aril_history *h);

/* Adds a column, with NaN in existing rows; no-op for one that exists. */
aril_status aril__history_add_column(aril_history *h, const char *name);

/* Sets whether smaller values of a column are better; larger ones are by default. */
void aril__history_direction(aril_history *h, const char *name, bool smaller);

/* Adds a row of n named values; the rest is NaN. */
aril_status aril__history_add_row(aril_history *h, int epoch, int n, const char *const *name,
                                  const double *value);

/* -1 when missing (not an error). */
int aril__history_find(const aril_history *h, const char *name);

/* Saves to and loads from a state, for checkpoints. */
aril_status aril__history_save(const aril_history *h, aril__states *to);
aril_status aril__history_load(aril_history *h, const aril__states *from);

#endif
