/* Nested loops over strided operands of one shape: dimensions in a common order, merged where
 * possible, so that the innermost runs are as long as possible. */
#ifndef ARIL_CORE_LOOPS_H
#define ARIL_CORE_LOOPS_H

#include "core/tensor.h"

enum { ARIL__NEST_OPERANDS = 6 };

typedef struct aril__loops {
    int ndim, n;
    int64_t dim[ARIL_MAX_DIMS];
    int64_t stride[ARIL__NEST_OPERANDS][ARIL_MAX_DIMS];
} aril__loops;

/* The strides of `t` broadcast to the given sizes: 0 where it has size 1 or no such dimension, and
 * everywhere for NULL. */
static inline void aril__broadcast_strides(int ndim, const int64_t *dim, const aril_tensor *t,
                                           int64_t *stride)
{
    int lead = t ? ndim - t->ndim : 0;
    for (int d = 0; d < ndim; d++) {
        bool there = t && d >= lead && t->dim[d - lead] == dim[d] && dim[d] > 1;
        stride[d] = there ? t->stride[d - lead] : 0;
    }
}

/* Nested loops of the given sizes, without operands. */
static inline aril__loops aril__loops_of(int ndim, const int64_t *dim)
{
    aril__loops n = { .ndim = ndim };
    for (int i = 0; i < ndim; i++) n.dim[i] = dim[i];
    return n;
}

/* Adds an operand: `t` broadcast to the loops' sizes, or an absent one (NULL: all strides 0). */
static inline void aril__loops_add(aril__loops *n, const aril_tensor *t)
{
    aril__broadcast_strides(n->ndim, n->dim, t, n->stride[n->n++]);
}

/* Drops dimensions of size 1, sorts the rest by the strides of operand `by`, largest first, and
 * merges adjacent dimensions. */
void aril__loops_merge(aril__loops *n, int by);
/* The same for any number of operands; returns how many dimensions are left. */
int aril__strides_merge(int ndim, int64_t *dim, int n, int64_t (*stride)[ARIL_MAX_DIMS], int by);

/* Exchanges two dimensions. */
void aril__loops_swap(aril__loops *n, int d, int e);

/* True when operand k is contiguous in loop order. */
static inline bool aril__loops_linear(const aril__loops *n, int k)
{
    int64_t step = 1;
    for (int d = n->ndim - 1; d >= 0; d--) {
        if (n->stride[k][d] != step) return false;
        step *= n->dim[d];
    }
    return true;
}

/* True when operand k is a single element, repeated. */
static inline bool aril__loops_constant(const aril__loops *n, int k)
{
    for (int d = 0; d < n->ndim; d++)
        if (n->stride[k][d] != 0) return false;
    return true;
}

/* A position in nested loops: the index, and the offset of each operand. */
typedef struct aril__loops_at {
    int64_t index[ARIL_MAX_DIMS];
    int64_t offset[ARIL__NEST_OPERANDS];
} aril__loops_at;

/* Goes to linear position `at`; offsets count from those given in `base` (per operand). */
void aril__loops_seek(const aril__loops *n, aril__loops_at *p, int64_t at, const int64_t *base);

/* Elements left in the innermost run, at least 1. */
static inline int64_t aril__loops_run(const aril__loops *n, const aril__loops_at *p)
{
    return n->ndim ? n->dim[n->ndim - 1] - p->index[n->ndim - 1] : 1;
}

/* The stride of operand k in the innermost run; 0 without dimensions. */
static inline int64_t aril__loops_step(const aril__loops *n, int k)
{
    return n->ndim ? n->stride[k][n->ndim - 1] : 0;
}

/* Advances by m elements of the innermost run, m at most aril__loops_run. */
static inline void aril__loops_move(const aril__loops *n, aril__loops_at *p, int64_t m)
{
    int d = n->ndim - 1;
    if (d < 0) return;
    p->index[d] += m;
    for (int k = 0; k < n->n; k++) p->offset[k] += m * n->stride[k][d];
    for (; d > 0 && p->index[d] == n->dim[d]; d--) {
        p->index[d] = 0;
        p->index[d - 1]++;
        for (int k = 0; k < n->n; k++)
            p->offset[k] += n->stride[k][d - 1] - n->dim[d] * n->stride[k][d];
    }
}

#endif
