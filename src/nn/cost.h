/* What each module of a tree gives and costs, seen on one run. */
#ifndef ARIL_NN_COST_H
#define ARIL_NN_COST_H

#include "aril/summary.h"

typedef struct aril__cost_row {
    aril_module *module;
    const char *name;   /* in its parent; of the root: its type */
    int depth;          /* of the root: 0 */
    int first;          /* the row of the same module, met before; -1: this is the first */
    bool ran;           /* the run came through it */
    aril_shape out;     /* of its first result */
    int64_t parameters; /* of its own, not counted before */
    double flop;        /* of its own ops, all calls */
    double dropped; /* bytes of results that it makes in training, and passes on in evaluation */
} aril__cost_row;

/* Rows in the order of registration, parents before children. */
typedef struct aril__costs {
    aril__cost_row *row;
    int n;
    int64_t batch; /* samples of the run */
    aril_cost total;
} aril__costs;

/* Runs m on `in` and fills c, which is freed by aril__costs_free, also on failure. */
aril_status aril__costs_measure(aril_module *m, aril_list in, aril__costs *c);
void aril__costs_free(aril__costs *c);

#endif
