/* Losses over classes: attributes, for the backends. */
#ifndef ARIL_OPS_LOSS_H
#define ARIL_OPS_LOSS_H

#include "aril/loss.h"
#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_nll_loss, aril__op_nll_loss_grad;

/* nll_loss, cross_entropy and their gradients. `reduction` is an aril_reduction. */
#define NLL_ATTRS(A)                          \
    A(nll, I64, 1, reduction, 0, "reduction") \
    A(nll, I64, 1, ignore_index, -100, "ignore_index") A(nll, F64, 1, label_smoothing, 0, NULL)
ATTRS(nll, NLL_ATTRS)

/* multi_margin_loss and its gradient. `sum_classes`: do not divide by the number of classes. */
#define MULTI_MARGIN_ATTRS(A)           \
    A(multi_margin, I64, 1, p, 1, NULL) \
    A(multi_margin, F64, 1, margin, 1, NULL) A(multi_margin, I64, 1, sum_classes, 0, NULL)
ATTRS(multi_margin, MULTI_MARGIN_ATTRS)

/* ctc_loss and its gradient. */
#define CTC_ATTRS(A) A(ctc, I64, 1, blank, 0, NULL) A(ctc, I64, 1, zero_infinity, 0, NULL)
ATTRS(ctc, CTC_ATTRS)

/* A number from an options struct: the default if it is 0, and 0 if it is ARIL_ZERO. */
double aril__option(double value, double initial);

/* Reduces per-element losses as the options ask: mean, sum, or none. NULL and poison pass
 * through. */
aril_tensor *aril__reduce_loss(const char *what, aril_tensor *each, aril_reduction reduction);

#endif
