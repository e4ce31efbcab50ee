/* Ops that create tensors. */
#ifndef ARIL_OPS_CREATE_H
#define ARIL_OPS_CREATE_H

#include "ops/table/op.h"

/* Shape, dtype and device of the new tensor, and the op's parameters: floats, or (if whole[1] is
 * not 0) the integers whole[0] and whole[2]. */
#define CREATE_ATTRS(A)                \
    A(create, I64, 1, ndim, 0, NULL)   \
    A(create, I64, 8, dim, 0, NULL)    \
    A(create, I64, 1, dtype, 0, NULL)  \
    A(create, I64, 2, device, 0, NULL) \
    A(create, F64, 3, value, 0, NULL) A(create, I64, 3, integer, 0, NULL)
ATTRS(create, CREATE_ATTRS)

/* The shape rule for those attributes, and a function that fills them. */
aril_status aril__create_infer(aril__call *c);
aril_status aril__create_attrs(const char *what, aril_shape shape, aril_dtype dtype,
                               aril_device device, struct create_attrs *out);

#define FULL_LIKE_ATTRS(A)                \
    A(full_like, I64, 1, dtype, -1, NULL) \
    A(full_like, F64, 1, value, 0, NULL) A(full_like, I64, 2, integer, 0, NULL)
ATTRS(full_like, FULL_LIKE_ATTRS)

/* The diagonal of tril and triu: 0 is the main one, those above it are positive. */
#define TRIANGLE_ATTRS(A) A(triangle, I64, 1, diagonal, 0, NULL)
ATTRS(triangle, TRIANGLE_ATTRS)

#endif
