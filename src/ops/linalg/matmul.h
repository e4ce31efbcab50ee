/* Matrix products: the geometry that the kernels use. */
#ifndef ARIL_OPS_MATMUL_H
#define ARIL_OPS_MATMUL_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_linear, aril__op_matmul, aril__op_outer_sum;

#define LINEAR_ATTRS(A) A(linear, I64, 1, activation, 0, NULL)
ATTRS(linear, LINEAR_ATTRS)

/* c[b,i,j] = sum over k of a[b,i,k] * b[b,k,j], for each batch index b. Strides are in elements, of
 * any sign; batch strides are 0 where an operand is broadcast. */
typedef struct aril__product {
    int64_t batch, m, n, k;
    const char *a, *b; /* the first elements */
    char *c;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    int ndim; /* batch dimensions */
    int64_t dim[ARIL_MAX_DIMS];
    int64_t a_step[ARIL_MAX_DIMS], b_step[ARIL_MAX_DIMS], c_step[ARIL_MAX_DIMS];
} aril__product;

/* The product of a run of matmul, linear (without its bias) or outer_sum (whose inputs must be
 * contiguous), with batch dimensions merged into m where strides allow it. */
aril__product aril__product_of(const aril__run *r);

/* Merges batch dimensions into m, innermost first, while b is broadcast and the rows of a and c
 * continue with the same stride: one large product instead of many small ones. */
static inline void aril__product_merge(aril__product *p)
{
    int last = p->ndim - 1;
    while (last >= 0) {
        bool one = p->dim[last] == 1;
        bool follows = p->b_step[last] == 0 && p->a_step[last] == p->m * p->a_row &&
                       p->c_step[last] == p->m * p->c_row;
        if (!one && p->m == 1 && p->b_step[last] == 0) { /* a single row: any stride works */
            p->a_row = p->a_step[last];
            p->c_row = p->c_step[last];
            follows = true;
        }
        if (!one && !follows) break;
        p->m *= p->dim[last--];
    }
    p->ndim = last + 1;
    p->batch = 1;
    for (int d = 0; d < p->ndim; d++) p->batch *= p->dim[d];
}

/* Offsets, in elements, of the operands of one batch index: at[0..2] for a, b, c. */
static inline void aril__product_at(const aril__product *p, int64_t index, int64_t at[3])
{
    at[0] = at[1] = at[2] = 0;
    for (int d = p->ndim - 1; d >= 0; d--) {
        int64_t i = index % p->dim[d];
        index /= p->dim[d];
        at[0] += i * p->a_step[d];
        at[1] += i * p->b_step[d];
        at[2] += i * p->c_step[d];
    }
}

#endif
