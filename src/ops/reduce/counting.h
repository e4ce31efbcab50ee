/* Ops that count values and look them up. */
#ifndef ARIL_OPS_COUNTING_H
#define ARIL_OPS_COUNTING_H

#include "ops/table/op.h"

/* The axis whose slices count as elements; -1: all elements, flattened. */
#define UNIQUE_ATTRS(A) A(unique, I64, 1, axis, -1, "axis")
ATTRS(unique, UNIQUE_ATTRS)

#define BINCOUNT_ATTRS(A) A(bincount, I64, 1, minlength, 0, NULL)
ATTRS(bincount, BINCOUNT_ATTRS)
/* Turns bincount's sums, accumulated in a result allocated as f64, into the f32 that it returns. */
void aril__bincount_narrow(aril_tensor *sums);

#define HISTC_ATTRS(A) A(histc, I64, 1, bins, 100, NULL) A(histc, F64, 2, range, 0, NULL)
ATTRS(histc, HISTC_ATTRS)

#define SEARCH_ATTRS(A) A(search, I64, 1, right, 0, NULL)
ATTRS(search, SEARCH_ATTRS)

#endif
