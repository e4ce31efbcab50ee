/* Attributes of ops on boolean masks and classes. */
#ifndef ARIL_OPS_MASKED_H
#define ARIL_OPS_MASKED_H

#include "ops/table/op.h"

#define ONE_HOT_ATTRS(A) A(one_hot, I64, 1, classes, 1, NULL)
ATTRS(one_hot, ONE_HOT_ATTRS)

#endif
