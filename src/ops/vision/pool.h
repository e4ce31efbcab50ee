/* Pooling over one to three spatial dimensions.
 *
 *     max_pool(x)                 -> y, indices     adaptive_max_pool(x) -> y, indices
 *     max_pool_grad(g, i, x)      like x: scatter-adds each g to its index
 *     max_pool_pick(x, i)         like i: gathers the element at each index; the two are each
 *                                 other's gradients
 *     avg_pool(x)                 avg_pool_grad(g, x), like x: each other's gradients
 *     adaptive_avg_pool(x)        adaptive_avg_pool_grad(g, x): the same
 *     max_unpool(x, i)            scatters the elements to their indices
 *
 * Indices are flat within the spatial dimensions of one image; -1 marks a window entirely in the
 * padding. */
#ifndef ARIL_OPS_POOL_H
#define ARIL_OPS_POOL_H

#include "ops/vision/slide.h"

/* Ops that other files name. */
extern const aril__op aril__op_adaptive_avg_pool, aril__op_adaptive_avg_pool_grad,
    aril__op_adaptive_max_pool, aril__op_avg_pool, aril__op_avg_pool_grad, aril__op_max_pool,
    aril__op_max_unpool;

/* One number per spatial dimension; padding in pairs: before and after. `size` is the output size
 * of adaptive pooling (-1: the input size) and of max_unpool (0: derived from the other
 * attributes). */
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

/* The windows that the indices of max_pool_grad come from, which lets an element look for its
 * gradient in the windows around it alone; kernel 0: not known. `begin` is the padding before. */
#define MAX_POOL_GRAD_ATTRS(A)                  \
    A(max_pool_grad, I64, 3, kernel, 0, NULL)   \
    A(max_pool_grad, I64, 3, stride, 1, NULL)   \
    A(max_pool_grad, I64, 3, dilation, 1, NULL) \
    A(max_pool_grad, I64, 3, begin, 0, NULL)
ATTRS(max_pool_grad, MAX_POOL_GRAD_ATTRS)

/* The window of spatial dimension i over `in` elements. */
aril__slide aril__pool_window(const struct pool_attrs *a, int i, int64_t in);

bool aril__pool_is_adaptive(const aril__op *op);

/* The result of an op that is the indices of maxima, which only gradients need: kernels of the CPU
 * leave it out where out[] has NULL for it. -1: none. */
int aril__pool_indices(const aril__op *op);

/* The elements of one window along one dimension: first, first + step, ... */
typedef struct aril__taps {
    int64_t first, n, step;
    int64_t counted; /* including those in the padding */
} aril__taps;

/* Of the o-th of `out` windows over `in` elements; w NULL: adaptive. */
aril__taps aril__pool_taps(const aril__slide *w, int64_t in, int64_t out, int64_t o);

#endif
