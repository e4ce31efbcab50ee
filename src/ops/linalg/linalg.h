/* Linear algebra: shared declarations. */
#ifndef ARIL_OPS_LINALG_H
#define ARIL_OPS_LINALG_H

#include "ops/table/op.h"

/* Identity matrices in the shape of x [...,m,n]. */
aril_tensor *aril__eye_like(aril_tensor *x);

#endif
