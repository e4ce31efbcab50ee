/* Gather and scatter along one axis. */
#ifndef ARIL_OPS_GATHER_H
#define ARIL_OPS_GATHER_H

#include "ops/table/op.h"

#define GATHER_ATTRS(A) A(gather, I64, 1, axis, 0, "axis")
ATTRS(gather, GATHER_ATTRS)
#define SCATTER_ATTRS(A) A(scatter, I64, 1, axis, 0, "axis") A(scatter, I64, 1, alone, 0, NULL)
ATTRS(scatter, SCATTER_ATTRS)

#endif
