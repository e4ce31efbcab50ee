/* Ops that take a shape from another tensor instead of from numbers, so that gradient rules bake
 * no size. Their second input is read for its shape alone. */
#ifndef ARIL_OPS_LIKE_H
#define ARIL_OPS_LIKE_H

#include "ops/table/apply.h"
#include "ops/shape/ops.h"

/* x with the shape of `like`, of as many elements: a view, of a copy where x lies otherwise. */
aril_tensor *aril__reshape_like(aril_tensor *x, aril_tensor *like);

/* x broadcast to the shape of `like`: a view. */
static inline aril_tensor *aril__expand_like(aril_tensor *x, aril_tensor *like)
{
    if (x && like && aril__same_dims(x->ndim, x->dim, like->ndim, like->dim)) return x;
    return aril__op(&aril__op_expand_like, x, like);
}

/* x summed over the axes along which `like` was broadcast to it. */
static inline aril_tensor *aril__sum_to_like(aril_tensor *x, aril_tensor *like)
{
    return aril__op(&aril__op_sum_to_like, x, like);
}

/* How many elements of x there are for each of `like`, as a scalar: a mean's divisor. f64 for an
 * f64 x, else f32. Both inputs are read for their shapes alone. */
static inline aril_tensor *aril__count_like(aril_tensor *x, aril_tensor *like)
{
    return aril__op(&aril__op_count_like, x, like);
}

/* An error where an element is not from `low` to `high`, or is NaN. Values are looked at where they
 * can be without waiting: of a tensor on the CPU that is not being traced. */
aril_status aril__check_range(const char *what, const char *name, aril_tensor *t, double low,
                              double high);

#endif
