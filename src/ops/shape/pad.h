/* Padding: how much before and after each axis. */
#ifndef ARIL_OPS_PAD_H
#define ARIL_OPS_PAD_H

#include "ops/table/op.h"

#define PAD_ATTRS(A)                \
    A(pad, I64, 8, before, 0, NULL) \
    A(pad, I64, 8, after, 0, NULL) A(pad, I64, 1, mode, 0, NULL) A(pad, F64, 1, value, 0, NULL)
ATTRS(pad, PAD_ATTRS)

/* Where position i of an axis of n elements comes from, which may be outside of it: in one of the
 * modes without a constant. */
int64_t aril__pad_source(int64_t i, int64_t n, int64_t mode);

#endif
