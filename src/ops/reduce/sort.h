/* Sorting and what rests on it, along one axis. */
#ifndef ARIL_OPS_SORT_H
#define ARIL_OPS_SORT_H

#include "ops/table/op.h"

/* `down`: from the largest to the smallest (sort, topk). `k`: how many (topk), which one, from 0
 * (kthvalue). `keep`: the axis stays with size 1 (kthvalue, median, mode). */
#define SORT_ATTRS(A)                \
    A(sort, I64, 1, axis, 0, "axis") \
    A(sort, I64, 1, down, 0, NULL)   \
    A(sort, I64, 1, k, 0, NULL) A(sort, I64, 1, keep, 0, NULL)
ATTRS(sort, SORT_ATTRS)

/* Fills order[0..n) with 0..n-1 so that before(ctx, order[i], order[i - 1]) never holds, equal ones
 * in their first order. False when memory is out. */
bool aril__sort_order(int64_t *order, int64_t n, bool (*before)(const void *ctx, int64_t, int64_t),
                      const void *ctx);

#endif
