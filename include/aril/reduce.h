/* Reductions: over ARIL_AXES(...), over all axes (ARIL_ALL), or keeping the reduced axes with size
 * 1 (ARIL_KEEPDIM(...)). Results do not depend on the number of threads. */
#ifndef ARIL_REDUCE_H
#define ARIL_REDUCE_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- sums ---- */

/* The sum; i64 for integers and bools. 0 for empty input. */
ARIL_API aril_tensor *aril_sum(aril_tensor *x, aril_axes axes);

/* The mean, sum(x) / n, of floats. NaN for empty input. */
ARIL_API aril_tensor *aril_mean(aril_tensor *x, aril_axes axes);

/* The product; i64 for integers and bools. 1 for empty input. The gradient is correct even where
 * elements are 0. */
ARIL_API aril_tensor *aril_prod(aril_tensor *x, aril_axes axes);

/* The sum, and the mean, ignoring NaN. */
ARIL_API aril_tensor *aril_nansum(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_nanmean(aril_tensor *x, aril_axes axes);

/* log(sum(exp(x))) without overflow, of floats. -inf for empty input. */
ARIL_API aril_tensor *aril_logsumexp(aril_tensor *x, aril_axes axes);

/* The variance, sum((x - mean(x))^2) / (n - correction), of floats, and the standard deviation, its
 * square root; the usual correction is 1. The gradient of a standard deviation of 0 is 0.
 * aril_var_mean also returns the mean (may be NULL). */
ARIL_API aril_tensor *aril_var(aril_tensor *x, aril_axes axes, double correction);
ARIL_API aril_tensor *aril_std(aril_tensor *x, aril_axes axes, double correction);
ARIL_API aril_tensor *aril_var_mean(aril_tensor *x, aril_axes axes, double correction,
                                    aril_tensor **mean);
/* The standard deviation, and in *mean (may be NULL) the mean. */
ARIL_API aril_tensor *aril_std_mean(aril_tensor *x, aril_axes axes, double correction,
                                    aril_tensor **mean);

/* The p-norm, sum(|x|^p)^(1/p), of floats. p = 0 counts nonzero elements; INFINITY and -INFINITY
 * give the largest and the smallest |x|. The gradient is 0 where it is undefined. */
ARIL_API aril_tensor *aril_norm(aril_tensor *x, aril_axes axes, double p);

/* ---- maximum and minimum ---- */

/* The maximum, or minimum, over axes. NaN if any element is NaN. Equal elements share the gradient.
 * Empty input has no maximum: it is an error. */
ARIL_API aril_tensor *aril_amax(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_amin(aril_tensor *x, aril_axes axes);
/* Both: returns the minimum, and in *max (may be NULL) the maximum. */
ARIL_API aril_tensor *aril_aminmax(aril_tensor *x, aril_axes axes, aril_tensor **max);

/* The same along one axis, with the index of the first such element in *indices (i64; may be NULL);
 * that element gets the whole gradient. With ARIL_ALL: aril_amax, and the index in the flattened
 * tensor. */
ARIL_API aril_tensor *aril_max(aril_tensor *x, aril_axes axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_min(aril_tensor *x, aril_axes axis, aril_tensor **indices);

/* The index of the first maximum, or minimum, along one axis, or in the flattened tensor
 * (ARIL_ALL), as i64. If there is a NaN, the index of the first one. */
ARIL_API aril_tensor *aril_argmax(aril_tensor *x, aril_axes axis);
ARIL_API aril_tensor *aril_argmin(aril_tensor *x, aril_axes axis);

/* ---- tests ---- */

/* Whether any, or all, elements are nonzero: bool (u8 for u8 input). For empty input: false, and
 * true. */
ARIL_API aril_tensor *aril_any(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_all(aril_tensor *x, aril_axes axes);

/* The number of nonzero elements, as i64. */
ARIL_API aril_tensor *aril_count_nonzero(aril_tensor *x, aril_axes axes);

/* ---- along one axis, shape kept ---- */

/* Softmax, exp(x) / sum(exp(x)) along the axis, of floats; its logarithm; softmax(-x). */
ARIL_API aril_tensor *aril_softmax(aril_tensor *x, int axis);
ARIL_API aril_tensor *aril_log_softmax(aril_tensor *x, int axis);
ARIL_API aril_tensor *aril_softmin(aril_tensor *x, int axis);

/* x divided by its p-norm over the axes, or by eps where that is larger, of floats. PyTorch's
 * defaults are p = 2, axis 1 and eps = 1e-12. */
ARIL_API aril_tensor *aril_normalize(aril_tensor *x, double p, aril_axes axes, double eps);

/* The gated linear unit: the first half of the axis times the sigmoid of the second, of floats. */
ARIL_API aril_tensor *aril_glu(aril_tensor *x, int axis);

/* ---- cumulative operations: result k depends on elements 0..k, shape kept ---- */

/* Cumulative sums and products; i64 for integers and bools. */
ARIL_API aril_tensor *aril_cumsum(aril_tensor *x, int axis);
ARIL_API aril_tensor *aril_cumprod(aril_tensor *x, int axis);

/* Cumulative maximum, or minimum, with the index of the last such element in *indices (i64; may be
 * NULL). NaN propagates from its first occurrence on. */
ARIL_API aril_tensor *aril_cummax(aril_tensor *x, int axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_cummin(aril_tensor *x, int axis, aril_tensor **indices);

/* log(cumsum(exp(x))) without overflow, of floats. */
ARIL_API aril_tensor *aril_logcumsumexp(aril_tensor *x, int axis);

/* The n-th differences along the axis: x[k + 1] - x[k], applied n times. */
ARIL_API aril_tensor *aril_diff(aril_tensor *x, int n, int axis);

ARIL_C_END

#endif
