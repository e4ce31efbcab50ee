/* Operands as a kernel asks for them: the one place that decides the memory order of results,
 * converts inputs and copies staged results back. */
#ifndef ARIL_OPS_STAGE_H
#define ARIL_OPS_STAGE_H

#include "ops/table/rows.h"

/* A kernel, and what it asks for. */
typedef struct aril__kernel {
    const char *name;
    aril_status (*run)(aril__run *);
    size_t (*workspace)(const aril__run *); /* NULL: none, or the plan's */
    const aril__plan *plan;                 /* NULL: the row has none */
    uint32_t native;                        /* dtypes that it computes in */
    bool strided;                           /* takes operands of any order */
} aril__kernel;

/* Runs a kernel: allocates results that have no memory yet, in the order that its plan gives (else
 * the op's default), converts the other operands to the dtype and order it asks for, and copies
 * back. Temporaries belong to a separate scope. */
aril_status aril__run_staged(const aril__kernel *k, aril__run *r);

/* Gives memory to results that have none, in the order that their headers say. */
aril_status aril__run_allocate(aril__run *r);

/* Copies a result that was computed in other memory, strides or dtype to where it belongs, on the
 * same device. Needs no memory. */
aril_status aril__copy_back(aril_tensor *to, aril_tensor *from);

#endif
