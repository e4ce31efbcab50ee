/* Padding: how much before and after each axis. */
#ifndef ARIL_OPS_PAD_H
#define ARIL_OPS_PAD_H

#include "ops/table/op.h"
#include "ops/table/rows.h"

#define PAD_ATTRS(A)                \
    A(pad, I64, 8, before, 0, NULL) \
    A(pad, I64, 8, after, 0, NULL) A(pad, I64, 1, mode, 0, NULL) A(pad, F64, 1, value, 0, NULL)
ATTRS(pad, PAD_ATTRS)

/* CPU rows for channels-last tensors. */
const char *aril__pad_last_prepare(const aril__run *r, aril__plan *plan);
aril_status aril__pad_last(aril__run *r);

#endif
