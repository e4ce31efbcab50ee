/* A view by strides, for programs: how one of several tensors over the same memory sees what is
 * written to another. */
#ifndef ARIL_OPS_AS_STRIDED_H
#define ARIL_OPS_AS_STRIDED_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_as_strided;

/* The input is contiguous; the offset counts from its first element. */
#define AS_STRIDED_ATTRS(A)              \
    A(as_strided, I64, 1, ndim, 0, NULL) \
    A(as_strided, I64, 8, dim, 0, NULL)  \
    A(as_strided, I64, 8, stride, 0, NULL) A(as_strided, I64, 1, offset, 0, NULL)
ATTRS(as_strided, AS_STRIDED_ATTRS)

#endif
