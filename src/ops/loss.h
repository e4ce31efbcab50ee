/* Losses over classes: their attributes, for the backends. */
#ifndef ARIL_OPS_LOSS_H
#define ARIL_OPS_LOSS_H

#include "ops/op.h"

/* nll_loss, cross_entropy and their gradients. `reduction` is an aril_reduction. */
#define NLL_ATTRS(A)                          \
    A(nll, I64, 1, reduction, 0, "reduction") \
    A(nll, I64, 1, ignore_index, -100, "ignore_index") A(nll, F64, 1, label_smoothing, 0, NULL)
ATTRS(nll, NLL_ATTRS)

/* A number of an options struct: its default where it is 0, 0 where it is ARIL_ZERO. */
double aril__option(double value, double initial);

/* Losses of each element as options ask: their mean, their sum, or as they are. NULL and poison
 * pass through. */
aril_tensor *aril__reduce_loss(const char *what, aril_tensor *each, int reduction);

#endif
