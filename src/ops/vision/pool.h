/* Pooling over one to three spatial dimensions.
 *
 *     max_pool(x)                 -> y, indices     adaptive_max_pool(x) -> y, indices
 *     max_pool_grad(g, i, x)      like x: each g added where its index says
 *     max_pool_pick(x, i)         like i: the element at each index; the two are each other's
 *                                 gradients
 *     avg_pool(x)                 avg_pool_grad(g, x), like x: each other's gradients
 *     adaptive_avg_pool(x)        adaptive_avg_pool_grad(g, x): the same
 *     max_unpool(x, i)            elements put where their index says
 *
 * Indices count through the spatial dimensions of one image; -1 marks a window that lay wholly in
 * the padding. */
#ifndef ARIL_OPS_POOL_H
#define ARIL_OPS_POOL_H

#include "ops/vision/slide.h"

/* Numbers for each spatial dimension; padding in pairs: before and after. `size` is that of the
 * result, of adaptive pooling (-1: as many as elements) and of max_unpool (0: from the rest). */
#define POOL_ATTRS(A)                                    \
    A(pool, I64, 3, kernel, 1, "kernel_shape")           \
    A(pool, I64, 3, stride, 1, "strides")                \
    A(pool, I64, 6, pad, 0, "pads")                      \
    A(pool, I64, 3, dilation, 1, "dilations")            \
    A(pool, I64, 1, ceil, 0, "ceil_mode")                \
    A(pool, I64, 1, same, 0, "auto_pad")                 \
    A(pool, I64, 1, include_pad, 1, "count_include_pad") \
    A(pool, I64, 1, divisor, 0, NULL) A(pool, I64, 3, size, 0, NULL)
ATTRS(pool, POOL_ATTRS)

#endif
