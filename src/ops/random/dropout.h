/* Dropout: attributes. */
#ifndef ARIL_OPS_DROPOUT_H
#define ARIL_OPS_DROPOUT_H

#include "ops/table/op.h"

/* Named by other files. */
extern const aril__op aril__op_dropout;

/* With probability p an element becomes `dropped`, otherwise x * scale + kept. Elements with the
 * same first `lead` indices are dropped together; lead -1: each independently. */
#define DROPOUT_ATTRS(A)               \
    A(dropout, F64, 1, p, 0.5, NULL)   \
    A(dropout, I64, 1, lead, -1, NULL) \
    A(dropout, F64, 1, scale, 1, NULL) \
    A(dropout, F64, 1, kept, 0, NULL) A(dropout, F64, 1, dropped, 0, NULL)
ATTRS(dropout, DROPOUT_ATTRS)

#endif
