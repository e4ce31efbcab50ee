/* Reductions: over ARIL_AXES(...), over all axes (ARIL_ALL), or with the axes kept with size 1
 * (ARIL_KEEPDIM(...)). Results do not depend on the number of threads. */
#ifndef ARIL_REDUCE_H
#define ARIL_REDUCE_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- sums ---- */

/* The sum; of integers and bools as i64. Of nothing: 0. */
ARIL_API aril_tensor *aril_sum(aril_tensor *x, aril_axes axes);

/* sum(x) / n, of floating point. Of nothing: NaN. */
ARIL_API aril_tensor *aril_mean(aril_tensor *x, aril_axes axes);

/* The product; of integers and bools as i64. Of nothing: 1. The gradient is right where elements
 * are 0, too. */
ARIL_API aril_tensor *aril_prod(aril_tensor *x, aril_axes axes);

/* The sum, and the mean, of what is not NaN. */
ARIL_API aril_tensor *aril_nansum(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_nanmean(aril_tensor *x, aril_axes axes);

/* log(sum(exp(x))) without overflow, of floating point. Of nothing: -inf. */
ARIL_API aril_tensor *aril_logsumexp(aril_tensor *x, aril_axes axes);

/* sum((x - mean(x))^2) / (n - correction), of floating point, and its square root; the usual
 * correction is 1. The gradient of a deviation of 0 is 0. aril_var_mean gives the mean too (NULL
 * where it is not wanted). */
ARIL_API aril_tensor *aril_var(aril_tensor *x, aril_axes axes, double correction);
ARIL_API aril_tensor *aril_std(aril_tensor *x, aril_axes axes, double correction);
ARIL_API aril_tensor *aril_var_mean(aril_tensor *x, aril_axes axes, double correction,
                                    aril_tensor **mean);

/* sum(|x|^p)^(1/p), of floating point. Order 0 counts what is not 0; INFINITY and -INFINITY give
 * the largest and the smallest |x|. The gradient is 0 where it has none. */
ARIL_API aril_tensor *aril_norm(aril_tensor *x, aril_axes axes, double p);

/* ---- the largest and the smallest ---- */

/* The largest, or smallest, over axes. NaN if an element is. Equal elements share the gradient. An
 * axis without elements is an error. */
ARIL_API aril_tensor *aril_amax(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_amin(aril_tensor *x, aril_axes axes);

/* The same along one axis, with the position of the first such element in *indices (i64; NULL
 * where it is not wanted), which takes the whole gradient. With ARIL_ALL: aril_amax, and the
 * position in the flattened tensor. */
ARIL_API aril_tensor *aril_max(aril_tensor *x, aril_axes axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_min(aril_tensor *x, aril_axes axis, aril_tensor **indices);

/* The position of the first largest, or smallest, element along one axis, or in the flattened
 * tensor (ARIL_ALL), as i64. The first NaN, if there is one. */
ARIL_API aril_tensor *aril_argmax(aril_tensor *x, aril_axes axis);
ARIL_API aril_tensor *aril_argmin(aril_tensor *x, aril_axes axis);

/* ---- tests ---- */

/* Whether any, or all, elements are not 0: bool (u8 of u8). Of nothing: false, and true. */
ARIL_API aril_tensor *aril_any(aril_tensor *x, aril_axes axes);
ARIL_API aril_tensor *aril_all(aril_tensor *x, aril_axes axes);

/* How many elements are not 0, as i64. */
ARIL_API aril_tensor *aril_count_nonzero(aril_tensor *x, aril_axes axes);

/* ---- along one axis, shape kept ---- */

/* exp(x) / sum(exp(x)) along the axis, of floating point; its logarithm; softmax(-x). */
ARIL_API aril_tensor *aril_softmax(aril_tensor *x, int axis);
ARIL_API aril_tensor *aril_log_softmax(aril_tensor *x, int axis);
ARIL_API aril_tensor *aril_softmin(aril_tensor *x, int axis);

/* ---- scans: result k of the axis comes from elements 0..k, shape kept ---- */

/* Sums, and products; of integers and bools as i64. */
ARIL_API aril_tensor *aril_cumsum(aril_tensor *x, int axis);
ARIL_API aril_tensor *aril_cumprod(aril_tensor *x, int axis);

/* The largest, or smallest, so far, with the position of the last such element in *indices (i64;
 * NULL where it is not wanted). NaN stays from where it first stands. */
ARIL_API aril_tensor *aril_cummax(aril_tensor *x, int axis, aril_tensor **indices);
ARIL_API aril_tensor *aril_cummin(aril_tensor *x, int axis, aril_tensor **indices);

/* log(cumsum(exp(x))) without overflow, of floating point. */
ARIL_API aril_tensor *aril_logcumsumexp(aril_tensor *x, int axis);

/* Differences of neighbours along the axis, x[k + 1] - x[k], taken n times. */
ARIL_API aril_tensor *aril_diff(aril_tensor *x, int n, int axis);

ARIL_C_END

#endif
