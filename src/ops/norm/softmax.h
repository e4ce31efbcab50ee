/* Softmax and related ops along one axis. */
#ifndef ARIL_OPS_SOFTMAX_H
#define ARIL_OPS_SOFTMAX_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_log_softmax, aril__op_log_softmax_grad, aril__op_softmax,
    aril__op_softmax_grad;

#define SOFTMAX_ATTRS(A) A(softmax, I64, 1, axis, 0, "axis")
ATTRS(softmax, SOFTMAX_ATTRS)

#endif
