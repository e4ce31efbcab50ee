/* The results and cost of each module of a tree, measured in one run. */
#ifndef ARIL_NN_COST_H
#define ARIL_NN_COST_H

#include "aril/summary.h"

typedef struct aril__cost_row {
    aril_module *module;
    const char *name;   /* in its parent; for the root: its type */
    int depth;          /* 0 for the root */
    int first;          /* row of the same module where it was first seen; -1: this one */
    bool ran;           /* the run reached it */
    aril_shape out;     /* of its first result */
    int64_t parameters; /* its own, not counted before */
    double flop;        /* of its own ops, over all calls */
    double dropped;     /* bytes of results created in training, passed through in evaluation */
} aril__cost_row;

/* Rows in registration order, parents before children. */
typedef struct aril__costs {
    aril__cost_row *row;
    int n;
    int64_t batch; /* samples in the run */
    bool guessed;  /* in a sketch, kernels were left out that decide what they save for backward */
    aril_cost total;
} aril__costs;

/* Runs m on `in` and fills c, which the caller frees with aril__costs_free, also on failure. */
aril_status aril__costs_measure(aril_module *m, aril_list in, aril__costs *c);
/* The same from shapes alone, for a built module that was created in a sketch. */
aril_status aril__costs_sketch(aril_module *m, aril_shape input, aril_dtype dtype, aril__costs *c);
void aril__costs_free(aril__costs *c);

/* The summary of such a module, as aril_summary_with prints it. Nothing is printed, and *guessed is
 * set, if its memory can only be told by running it. */
aril_status aril__summary_sketch(aril_module *m, aril_shape input, FILE *to, aril_summary_opts opts,
                                 bool *guessed);

#endif
