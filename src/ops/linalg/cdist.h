/* Distances between the rows of two matrices. */
#ifndef ARIL_OPS_CDIST_H
#define ARIL_OPS_CDIST_H

#include "ops/table/op.h"

/* The order of the norm. */
#define CDIST_ATTRS(A) A(cdist, F64, 1, p, 2, NULL)
ATTRS(cdist, CDIST_ATTRS)

#endif
