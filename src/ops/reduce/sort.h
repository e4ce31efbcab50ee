/* Sorting, and ops based on it, along one axis. */
#ifndef ARIL_OPS_SORT_H
#define ARIL_OPS_SORT_H

#include "ops/table/op.h"

/* `down`: descending (sort, topk). `k`: how many (topk), or which one, from 0 (kthvalue). `keep`:
 * keep the axis with size 1 (kthvalue, median, mode). */
#define SORT_ATTRS(A)                \
    A(sort, I64, 1, axis, 0, "axis") \
    A(sort, I64, 1, down, 0, NULL)   \
    A(sort, I64, 1, k, 0, NULL) A(sort, I64, 1, keep, 0, NULL)
ATTRS(sort, SORT_ATTRS)

/* Fills order[0..n) with a stable sort of 0..n-1: before(ctx, order[i], order[i - 1]) never holds.
 * `spare`: memory for n more. */
void aril__sort_order(int64_t *order, int64_t n, bool (*before)(const void *ctx, int64_t, int64_t),
                      const void *ctx, int64_t *spare);

#endif
