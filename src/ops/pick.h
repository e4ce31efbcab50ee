/* Elements at positions along an axis, and back: the gradients of ops that select. */
#ifndef ARIL_OPS_PICK_H
#define ARIL_OPS_PICK_H

#include "ops/apply.h"

#define PICK_ATTRS(A) A(pick, I64, 1, axis, 0, "axis")
ATTRS(pick, PICK_ATTRS)

/* x at `index` along the axis, in the shape of the index. */
static inline aril_tensor *aril__pick(aril_tensor *x, int axis, aril_tensor *index)
{
    struct pick_attrs a = { { axis } };
    return aril__op_with(&a, &aril__op_pick, x, index);
}

/* g added to zeros of the shape of `like` at `index` along the axis. */
static inline aril_tensor *aril__pick_grad(aril_tensor *g, int axis, aril_tensor *index,
                                           aril_tensor *like)
{
    struct pick_attrs a = { { axis } };
    return aril__op_with(&a, &aril__op_pick_grad, g, index, like);
}

#endif
