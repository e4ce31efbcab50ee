/* Linear algebra kernels using LAPACK: contiguous f32 or f64, each matrix of the batch on one
 * thread. Without LAPACK each fails with a message on what to install (ARIL_ERR_UNSUPPORTED). A
 * matrix without a solution is ARIL_ERR_NUMBER, and the message names its batch index. */
#ifndef ARIL_OPS_LAPACK_H
#define ARIL_OPS_LAPACK_H

#include "ops/table/op.h"

aril_status aril__lapack_inverse(aril__run *r);
aril_status aril__lapack_det(aril__run *r);
aril_status aril__lapack_slogdet(aril__run *r);
aril_status aril__lapack_solve(aril__run *r);
aril_status aril__lapack_triangular_solve(aril__run *r);
aril_status aril__lapack_cholesky(aril__run *r);
aril_status aril__lapack_qr(aril__run *r);
aril_status aril__lapack_svd(aril__run *r);
aril_status aril__lapack_eigh(aril__run *r);
aril_status aril__lapack_pinv(aril__run *r);
aril_status aril__lapack_lu(aril__run *r);
aril_status aril__lapack_eig(aril__run *r);

#define CHOLESKY_ATTRS(A) A(cholesky, I64, 1, upper, 0, NULL)
ATTRS(cholesky, CHOLESKY_ATTRS)

/* Which triangle is read, whether it is transposed, whether its diagonal is taken as ones. */
#define TRIANGULAR_SOLVE_ATTRS(A)               \
    A(triangular_solve, I64, 1, upper, 0, NULL) \
    A(triangular_solve, I64, 1, transpose, 0, NULL) A(triangular_solve, I64, 1, unit, 0, NULL)
ATTRS(triangular_solve, TRIANGULAR_SOLVE_ATTRS)

/* Singular values up to rcond times the largest count as 0; negative: max(m, n) times the machine
 * epsilon. */
#define PINV_ATTRS(A) A(pinv, F64, 1, rcond, -1, NULL)
ATTRS(pinv, PINV_ATTRS)

/* Bytes of memory that they need. */
size_t aril__lapack_inverse_scratch(const aril__run *r);
size_t aril__lapack_det_scratch(const aril__run *r);
size_t aril__lapack_slogdet_scratch(const aril__run *r);
size_t aril__lapack_solve_scratch(const aril__run *r);
size_t aril__lapack_triangular_solve_scratch(const aril__run *r);
size_t aril__lapack_cholesky_scratch(const aril__run *r);
size_t aril__lapack_qr_scratch(const aril__run *r);
size_t aril__lapack_svd_scratch(const aril__run *r);
size_t aril__lapack_eigh_scratch(const aril__run *r);
size_t aril__lapack_pinv_scratch(const aril__run *r);
size_t aril__lapack_lu_scratch(const aril__run *r);
size_t aril__lapack_eig_scratch(const aril__run *r);

#endif
