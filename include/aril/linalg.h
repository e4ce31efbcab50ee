/* Linear algebra: products, linear systems, factorizations. Matrices are the last two dimensions;
 * those before them are batch dimensions. */
#ifndef ARIL_LINALG_H
#define ARIL_LINALG_H

#include "aril/activation.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- products ---- */

/* The matrix product, as NumPy's @: [...,M,K] x [...,K,N] -> [...,M,N], leading dimensions
 * broadcast. A 1-d a is a row, a 1-d b a column, and that dimension is not in the result: [K] x [K]
 * gives a scalar. Both must have the same dtype; integers wrap. */
ARIL_API aril_tensor *aril_matmul(aril_tensor *a, aril_tensor *b);

/* The same for exact numbers of dimensions: [K] x [K] -> [], [M,K] x [K] -> [M],
 * [M,K] x [K,N] -> [M,N], [B,M,K] x [B,K,N] -> [B,M,N]. */
ARIL_API aril_tensor *aril_dot(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_mv(aril_tensor *a, aril_tensor *x);
ARIL_API aril_tensor *aril_mm(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_bmm(aril_tensor *a, aril_tensor *b);

/* The outer product: [M] x [N] -> [M,N]. */
ARIL_API aril_tensor *aril_outer(aril_tensor *a, aril_tensor *b);

/* beta * c + alpha * (a @ b), c broadcast to the product's shape; with beta 0, c is not read. For
 * mm, bmm and mv. */
ARIL_API aril_tensor *aril_addmm(aril_tensor *c, aril_tensor *a, aril_tensor *b, double beta,
                                 double alpha);
ARIL_API aril_tensor *aril_baddbmm(aril_tensor *c, aril_tensor *a, aril_tensor *b, double beta,
                                   double alpha);
ARIL_API aril_tensor *aril_addmv(aril_tensor *c, aril_tensor *a, aril_tensor *x, double beta,
                                 double alpha);

/* x times the transposed weight, plus bias: x [...,in], w [out,in], b [out] or NULL ->
 * [...,out]. */
ARIL_API aril_tensor *aril_linear(aril_tensor *x, aril_tensor *w, aril_tensor *b);

typedef struct aril_linear_opts {
    aril_activation activation; /* fused into the result; 0: none */
} aril_linear_opts;

ARIL_API aril_tensor *aril_linear_with(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                       aril_linear_opts opts);

/* Einstein summation, as numpy.einsum: "ij,jk->ik". Each operand's axes are letters; a letter that
 * is not in the result is summed over; a letter repeated in an operand takes its diagonal; "..." is
 * all other axes, broadcast. Without "->" the result has the letters that occur once, in
 * alphabetical order. Any number of operands, contracted from left to right. */
ARIL_API aril_tensor *aril_einsum(const char *expression, aril_list operands);

/* Contracts pairs of axes, one of a and one of b; the remaining axes of a come first in the
 * result. */
ARIL_API aril_tensor *aril_tensordot(aril_tensor *a, aril_tensor *b, aril_axes a_axes,
                                     aril_axes b_axes);

/* The Kronecker product: each element of a times all of b, so sizes multiply. At most 4
 * dimensions. */
ARIL_API aril_tensor *aril_kron(aril_tensor *a, aril_tensor *b);

/* The n-th matrix power; for negative n, of the inverse. [...,n,n] */
ARIL_API aril_tensor *aril_matrix_power(aril_tensor *x, int64_t n);

/* The exponential I + X + X^2 / 2! + ... [...,n,n] */
ARIL_API aril_tensor *aril_matrix_exp(aril_tensor *x);

/* The sum of the diagonal. [m,n] -> [] */
ARIL_API aril_tensor *aril_trace(aril_tensor *x);

/* The inner product: sums of products over the last axes, which have the same size: [...,K] x
 * [---,K] -> [...,---]. A 0-d operand multiplies. */
ARIL_API aril_tensor *aril_inner(aril_tensor *a, aril_tensor *b);

/* The cross product of vectors of 3 elements along the axis; a and b broadcast. */
ARIL_API aril_tensor *aril_cross(aril_tensor *a, aril_tensor *b, int axis);

/* Distances between the rows of a [...,P,M] and those of b [...,R,M], of floats: the p-norm of each
 * difference (p = 2: Euclidean; 0 counts differences; INFINITY: the largest), [...,P,R]. Leading
 * dimensions broadcast. The gradient is 0 where it is undefined. */
ARIL_API aril_tensor *aril_cdist(aril_tensor *a, aril_tensor *b, double p);

typedef struct aril_cov_opts {
    double correction; /* subtracted from the number of observations; default 1, 0 by ARIL_ZERO */
    aril_tensor *fweights; /* [n] integers, or NULL: how often each observation occurs */
    aril_tensor *aweights; /* [n], or NULL: the weight of each observation */
} aril_cov_opts;

/* The covariance matrix of the rows of x [variables, n], whose columns are observations:
 * [variables, variables]. x [n] is one variable and gives []. Integers become f32. */
ARIL_API aril_tensor *aril_cov(aril_tensor *x, aril_cov_opts opts);
/* Pearson correlation coefficients of the rows of x: the same shape, held between -1 and 1. */
ARIL_API aril_tensor *aril_corrcoef(aril_tensor *x);

/* ---- linear systems and factorizations ----
 *
 * These need LAPACK (ARIL_ERR_UNSUPPORTED without it) and take f32 and f64. A singular matrix, or
 * one without such a factorization, is ARIL_ERR_NUMBER; the message names it. All are
 * differentiable; svd and eigh only where the singular values or eigenvalues are distinct. */

/* Solves A X = B for X. a [...,n,n]; b [...,n,k], or vectors [...,n]. Batch dimensions
 * broadcast. */
ARIL_API aril_tensor *aril_solve(aril_tensor *a, aril_tensor *b);

typedef struct aril_triangular_opts {
    bool upper;         /* read the upper triangle, else the lower */
    bool transpose;     /* use A' in place of A */
    bool unitriangular; /* assume a diagonal of ones */
    bool right;         /* solve X A = B */
} aril_triangular_opts;

/* Solves A X = B for X with a triangular A; the other triangle is not read. */
ARIL_API aril_tensor *aril_triangular_solve(aril_tensor *a, aril_tensor *b,
                                            aril_triangular_opts opts);

/* Solves A X = B for X, where L is A's Cholesky factor. */
ARIL_API aril_tensor *aril_cholesky_solve(aril_tensor *b, aril_tensor *l, bool upper);

/* Least squares: the X of minimum norm that minimizes |A X - B|; A must have full rank. a
 * [...,m,n], b [...,m,k] -> [...,n,k] */
ARIL_API aril_tensor *aril_lstsq(aril_tensor *a, aril_tensor *b);

/* The inverse, and the pseudo-inverse, which treats singular values up to rcond times the largest
 * as 0 (rcond 0: max(m, n) times the dtype's epsilon). [...,m,n] -> [...,n,m] */
ARIL_API aril_tensor *aril_inverse(aril_tensor *a);
ARIL_API aril_tensor *aril_pinv(aril_tensor *a, double rcond);

/* The determinant. [...,n,n] -> [...] The gradient requires a nonsingular matrix. */
ARIL_API aril_tensor *aril_det(aril_tensor *a);

/* The sign of the determinant, and in *logabsdet the logarithm of its absolute value: -inf for a
 * singular matrix. */
ARIL_API aril_tensor *aril_slogdet(aril_tensor *a, aril_tensor **logabsdet);

/* Cholesky factorization: L of A = L L', or U of A = U' U, of the symmetric part of a positive
 * definite A. */
ARIL_API aril_tensor *aril_cholesky(aril_tensor *a, bool upper);

/* QR factorization A = Q R: returns Q, with orthonormal columns, and in *r the upper triangular R.
 * [...,m,n] -> [...,m,k] and [...,k,n], k = min(m, n). */
ARIL_API aril_tensor *aril_qr(aril_tensor *a, aril_tensor **r);

/* Singular value decomposition A = U diag(S) V': returns U, in *s the singular values, largest
 * first, and in *vh V'. [...,m,n] -> [...,m,k], [...,k] and [...,k,n]. */
ARIL_API aril_tensor *aril_svd(aril_tensor *a, aril_tensor **s, aril_tensor **vh);
ARIL_API aril_tensor *aril_svdvals(aril_tensor *a);

/* The eigenvalues, ascending, and in *vectors the eigenvectors as columns, of the symmetric part of
 * each matrix. [...,n,n] -> [...,n] and [...,n,n]. */
ARIL_API aril_tensor *aril_eigh(aril_tensor *a, aril_tensor **vectors);

/* The eigenvalues, in no particular order, and in *vectors the eigenvectors of length 1 as columns,
 * of general matrices. They are complex: the last dimension, of size 2, holds real and imaginary
 * parts (aril/fft.h). [...,n,n] -> [...,n,2] and [...,n,n,2]. A loss must not depend on the phase
 * of the vectors: here the largest component of each is real and positive. */
ARIL_API aril_tensor *aril_eig(aril_tensor *a, aril_tensor **vectors);
ARIL_API aril_tensor *aril_eigvals(aril_tensor *a);

/* LU factorization with pivoted rows A = P L U: returns the permutation matrix P, and in *l and *u
 * the lower (with ones on its diagonal) and the upper triangular factor.
 * [...,m,n] -> [...,m,m], [...,m,k] and [...,k,n], k = min(m, n). */
ARIL_API aril_tensor *aril_lu(aril_tensor *a, aril_tensor **l, aril_tensor **u);

typedef struct aril_rank_opts {
    double atol;    /* absolute tolerance; default 0 */
    double rtol;    /* relative to the largest singular value; default max(m, n) times the dtype's
                       epsilon, or 0 if atol is given */
    bool symmetric; /* the matrices are symmetric: faster, by eigenvalues */
} aril_rank_opts;

/* The rank: the number of singular values above max(atol, rtol * largest), as i64.
 * [...,m,n] -> [...] */
ARIL_API aril_tensor *aril_matrix_rank(aril_tensor *a, aril_rank_opts opts);

ARIL_C_END

#endif
