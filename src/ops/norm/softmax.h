/* Softmax and related ops along one axis. */
#ifndef ARIL_OPS_SOFTMAX_H
#define ARIL_OPS_SOFTMAX_H

#include "ops/table/op.h"

#define SOFTMAX_ATTRS(A) A(softmax, I64, 1, axis, 0, "axis")
ATTRS(softmax, SOFTMAX_ATTRS)

#endif
