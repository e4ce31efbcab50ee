/* The inside of a history: a table that grows by rows, and by columns when new names come. */
#ifndef ARIL_TRAIN_HISTORY_H
#define ARIL_TRAIN_HISTORY_H

#include "aril/history.h"
#include "train/states.h"

struct aril_history {
    int columns, rows, row_cap;
    char **name;    /* [columns + 1], ended by NULL */
    double **value; /* [columns][row_cap] */
    bool *smaller;  /* [columns]: smaller values are better */
    int *epoch;     /* [row_cap] */
    int signal;
    bool diverged;
};

aril_history *aril__history_new(void);
void aril__history_free(aril_history *h);

/* Adds columns, with NaN in the rows that are there; those it has stay. */
aril_status aril__history_add_column(aril_history *h, const char *name);

/* Says of a column whether smaller values are better; before, its name says it. */
void aril__history_direction(aril_history *h, const char *name, bool smaller);

/* Adds a row of n named values; the rest is NaN. */
aril_status aril__history_add_row(aril_history *h, int epoch, int n, const char *const *name,
                                  const double *value);

/* -1 where there is none; no error. */
int aril__history_find(const aril_history *h, const char *name);

/* Into a state and back, for checkpoints. */
aril_status aril__history_save(const aril_history *h, aril__states *to);
aril_status aril__history_load(aril_history *h, const aril__states *from);

#endif
