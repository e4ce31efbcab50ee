/* Ops that take a shape from another tensor instead of from numbers, so that gradient rules do not
 * hardcode sizes. Only the shape of their second input is read. */
#ifndef ARIL_OPS_LIKE_H
#define ARIL_OPS_LIKE_H

#include "ops/table/apply.h"

/* Ops that other files name. */
extern const aril__op aril__op_count_like, aril__op_expand_like, aril__op_sum_to_like;

/* x with the shape of `like`, which has as many elements: a view, or a view of a copy if the
 * strides of x require it. */
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
 * f64 x, else f32. Only the shapes of both inputs are read. */
static inline aril_tensor *aril__count_like(aril_tensor *x, aril_tensor *like)
{
    return aril__op(&aril__op_count_like, x, like);
}

/* Fails if an element is outside [low, high] or NaN. Checks values only where that needs no
 * synchronization: on a CPU tensor that is not being traced. */
aril_status aril__check_range(const char *what, const char *name, aril_tensor *t, double low,
                              double high);

#endif
