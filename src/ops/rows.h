/* Kernel rows: how a backend offers its kernels. A row takes part by being listed, fastest first;
 * no switch names it. */
#ifndef ARIL_OPS_ROWS_H
#define ARIL_OPS_ROWS_H

#include "ops/op.h"

/* What prepare decides for one set of shapes, orders and attributes. */
typedef struct aril__plan {
    void *prepared;   /* the row's own: algorithm, library object ... */
    size_t workspace; /* bytes the row wants at each run */
} aril__plan;

typedef struct aril__row {
    const char *op;   /* the op's name */
    const char *name; /* the row's, for the log */
    uint32_t dtypes;  /* DT(...) of the type the op computes in */
    bool strided;     /* takes any strides; otherwise it is given dense tensors */
    /* NULL: the row takes everything. Else returns NULL to accept, or why it declines. It must not
     * keep pointers to tensors; what it makes is shared by threads and cached. */
    const char *(*prepare)(const aril__run *r, aril__plan *plan);
    aril_status (*run)(aril__run *r);
    void (*destroy)(void *prepared); /* optional */
} aril__row;

/* Adds rows of a device kind, behind those it has. Rows must stay in memory. */
aril_status aril__rows_register(int kind, const aril__row *rows, int n);

/* For tests: runs with the k-th row of the op that takes the call (the reference counts last);
 * false when there are no more. -1 means the usual choice. */
extern _Thread_local int aril__force_row;

void aril__rows_shutdown(void);
void aril__plans_shutdown(void);

#define KERNEL(op_, dtypes_, prepare_, run_)                                                       \
    {.op = #op_, .name = #run_, .dtypes = (dtypes_), .prepare = (prepare_), .run = (run_)}

#endif
