/* Gather and scatter by index tensors. */
#ifndef ARIL_OPS_INDEX_H
#define ARIL_OPS_INDEX_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_index, aril__op_index_put, aril__op_index_put_add;

/* Bit d: axis d of x has an index tensor; the index tensors come in axis order. */
#define INDEX_ATTRS(A) A(index, I64, 1, mask, 0, NULL)
ATTRS(index, INDEX_ATTRS)
#define INDEX_SELECT_ATTRS(A) A(index_select, I64, 1, axis, 0, "axis")
ATTRS(index_select, INDEX_SELECT_ATTRS)
#define EMBEDDING_ATTRS(A) A(embedding, I64, 1, padding, -1, NULL)
ATTRS(embedding, EMBEDDING_ATTRS)

#endif
