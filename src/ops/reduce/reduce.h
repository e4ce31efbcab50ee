/* Reductions: axes as a mask, and what their references share. */
#ifndef ARIL_OPS_REDUCE_H
#define ARIL_OPS_REDUCE_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_amax, aril__op_mean, aril__op_sum;

#define REDUCE_ATTRS(A) A(reduce, I64, 1, mask, 0, NULL) A(reduce, I64, 1, keep, 0, "keepdims")
ATTRS(reduce, REDUCE_ATTRS)

/* Fills the attributes from the caller's axes: bit d of the mask is set for each axis d; no axes
 * means all. Fails on out-of-range or duplicate axes. */
aril_status aril__reduce_attrs(const char *what, const aril_tensor *x, aril_axes axes,
                               struct reduce_attrs *out);

/* The shape of out[k] of the call when in[0] is reduced. */
void aril__reduce_shape(aril__call *c, int k);

/* g, the gradient of a reduction, with the reduced axes restored with size 1. */
aril_tensor *aril__unreduce(aril_tensor *g, const struct reduce_attrs *a);

/* Shape inference for floating-point-only ops; all outputs have the reduced shape. */
aril_status aril__reduce_infer_float(aril__call *c);

/* Applies a reduction over the caller's axes. */
aril_tensor *aril__reduce(const aril__op *op, aril_tensor *x, aril_axes axes);

/* g / (n - less), where n is the number of elements of x per element of y; in g's dtype. */
aril_tensor *aril__div_count(aril_tensor *g, aril_tensor *x, aril_tensor *y, double less);

/* Scatters g into zeros of the shape of `like` at `index` along the axis: the gradient of a
 * selection. */
aril_tensor *aril__put_back(aril_tensor *g, int axis, aril_tensor *index, aril_tensor *like);

/* For references: how many elements of x each output has, and the position in x, in row-major
 * order, of the k-th element of output i. */
int64_t aril__reduced_count(const aril_tensor *x, int64_t mask);
int64_t aril__reduced_at(const aril_tensor *x, int64_t mask, int64_t i, int64_t k);

/* out = the sum of `in` over all dimensions that have size 1 in out or are missing there: the
 * reference of ops that undo a broadcast. */
void aril__reduce_sum_to(aril_tensor *out, const aril_tensor *in);

#endif
