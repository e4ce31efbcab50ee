/* Losses over classes: attributes and checks, for the backends. */
#ifndef ARIL_OPS_LOSS_H
#define ARIL_OPS_LOSS_H

#include "aril/loss.h"
#include "ops/table/op.h"

#include <math.h>

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

/* For kernels. The error for a class index out of range. */
aril_status aril__class_error(const char *op, int64_t y, int64_t classes);

/* Checks that all targets (contiguous i64) are within low .. classes - 1. */
aril_status aril__check_classes(const aril__run *r, const aril_tensor *target, int64_t low,
                                int64_t classes);

/* Checks the lengths and labels of ctc_loss. in: log-probabilities, targets, input lengths, target
 * lengths. start [N]: where the labels of each sample begin. */
aril_status aril__ctc_starts(const aril__run *r, aril_tensor *const *in, int64_t *start);

/* log(exp(a) + exp(b) + exp(c)) */
static inline double aril__ctc_log_sum(double a, double b, double c)
{
    double max = a > b ? a : b, low = a > b ? b : a, third = c > max ? max : c;
    max = c > max ? c : max;
    if (max == -INFINITY) return -INFINITY;
    double sum = 1; /* the exponential of the largest, less itself */
    if (low > -INFINITY) sum += exp(low - max);
    if (third > -INFINITY) sum += exp(third - max);
    return max + log(sum);
}

/* A number from an options struct: the default if it is 0, and 0 if it is ARIL_ZERO. */
double aril__option(double value, double initial);

/* Reduces per-element losses as the options ask: mean, sum, or none. NULL and poison pass
 * through. */
aril_tensor *aril__reduce_loss(const char *what, aril_tensor *each, aril_reduction reduction);

#endif
