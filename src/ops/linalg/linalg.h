/* Linear algebra: shared declarations. */
#ifndef ARIL_OPS_LINALG_H
#define ARIL_OPS_LINALG_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_cholesky, aril__op_det, aril__op_eigh, aril__op_inverse,
    aril__op_pinv, aril__op_qr, aril__op_slogdet, aril__op_solve, aril__op_svd,
    aril__op_triangular_solve;

/* Identity matrices in the shape of x [...,m,n]. */
aril_tensor *aril__eye_like(aril_tensor *x);

/* Shape rules: fails if input i is not a matrix, or not a square one. */
aril_status aril__matrix_check(const aril__call *c, int i, bool square);

/* The side of square matrices: a known size, if there is one; the smaller side of any. -1:
 * unknown. */
int64_t aril__matrix_side(const aril_tensor *x);
int64_t aril__matrix_smaller(const aril_tensor *x);

/* Gradient rules: fails, as matrices of unknown sizes can't be cut; returns poison. */
aril_tensor *aril__sizes_unknown(const aril__op *op);

/* Describes output i: the batch dimensions of input 0, then n more. */
void aril__matrix_out(aril__call *c, int i, int n, const int64_t *dim);

#endif
