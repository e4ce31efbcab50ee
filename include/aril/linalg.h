/* Linear algebra: products, equations, factors. Matrices are the last two dimensions; those before
 * them are a batch. */
#ifndef ARIL_LINALG_H
#define ARIL_LINALG_H

#include "aril/activation.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- products ---- */

/* The matrix product, as NumPy's @: [...,M,K] x [...,K,N] -> [...,M,N], leading dimensions
 * broadcast. A 1-d a is a row, a 1-d b a column, and that dimension is not in the result: [K] x [K]
 * gives a scalar. Both must have one dtype; integers wrap. */
ARIL_API aril_tensor *aril_matmul(aril_tensor *a, aril_tensor *b);

/* The same for exact numbers of dimensions: [K] x [K] -> [], [M,K] x [K] -> [M],
 * [M,K] x [K,N] -> [M,N], [B,M,K] x [B,K,N] -> [B,M,N]. */
ARIL_API aril_tensor *aril_dot(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_mv(aril_tensor *a, aril_tensor *x);
ARIL_API aril_tensor *aril_mm(aril_tensor *a, aril_tensor *b);
ARIL_API aril_tensor *aril_bmm(aril_tensor *a, aril_tensor *b);

/* All products of an element of a and one of b: [M] x [N] -> [M,N]. */
ARIL_API aril_tensor *aril_outer(aril_tensor *a, aril_tensor *b);

/* beta * c + alpha * (a @ b), c broadcast to the product's shape; with beta 0, c is not read. Those
 * of mm, bmm and mv. */
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
    aril_activation activation; /* of the result, made where the result is; 0: none */
} aril_linear_opts;

ARIL_API aril_tensor *aril_linear_with(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                       aril_linear_opts opts);

/* A product described by names of axes, as numpy.einsum: "ij,jk->ik". Each operand's axes are
 * letters; a letter that is not in the result is summed over; one that stands twice in an operand
 * takes its diagonal; "..." are all other axes, broadcast. Without "->" the result has the letters
 * that stand once, in alphabetical order. Any number of operands, taken from left to right. */
ARIL_API aril_tensor *aril_einsum(const char *expression, aril_list operands);

/* The product summed over pairs of axes, one of a and one of b; what is left of a comes first. */
ARIL_API aril_tensor *aril_tensordot(aril_tensor *a, aril_tensor *b, aril_axes a_axes,
                                     aril_axes b_axes);

/* Each element of a times all of b: sizes are multiplied. At most 4 dimensions. */
ARIL_API aril_tensor *aril_kron(aril_tensor *a, aril_tensor *b);

/* x times itself, n times; n below 0: of the inverse. [...,n,n] */
ARIL_API aril_tensor *aril_matrix_power(aril_tensor *x, int64_t n);

/* The sum of the diagonal. [m,n] -> [] */
ARIL_API aril_tensor *aril_trace(aril_tensor *x);

/* ---- equations and factors ----
 *
 * These need LAPACK (ARIL_ERR_UNSUPPORTED without it) and take f32 and f64. A singular matrix, or
 * one that has no such factors, is ARIL_ERR_NUMBER; the message names it. All are differentiable,
 * the factors where they are smooth: for svd and eigh, where the values differ. */

/* X of A X = B. a [...,n,n]; b [...,n,k], or vectors [...,n]. Batches broadcast. */
ARIL_API aril_tensor *aril_solve(aril_tensor *a, aril_tensor *b);

typedef struct aril_triangular_opts {
    bool upper;         /* the upper triangle is read, else the lower */
    bool transpose;     /* A' stands for A */
    bool unitriangular; /* the diagonal is taken to be ones */
    bool right;         /* X of X A = B */
} aril_triangular_opts;

/* X of A X = B for a triangular A; the other triangle is not read. */
ARIL_API aril_tensor *aril_triangular_solve(aril_tensor *a, aril_tensor *b,
                                            aril_triangular_opts opts);

/* X of A X = B where L is A's Cholesky factor. */
ARIL_API aril_tensor *aril_cholesky_solve(aril_tensor *b, aril_tensor *l, bool upper);

/* X with the least |A X - B|, and of those the least X; A must have full rank. a [...,m,n],
 * b [...,m,k] -> [...,n,k] */
ARIL_API aril_tensor *aril_lstsq(aril_tensor *a, aril_tensor *b);

/* The inverse, and the pseudo-inverse, where singular values up to rcond times the largest count as
 * 0 (rcond 0: max(m, n) times the rounding). [...,m,n] -> [...,n,m] */
ARIL_API aril_tensor *aril_inverse(aril_tensor *a);
ARIL_API aril_tensor *aril_pinv(aril_tensor *a, double rcond);

/* The determinant. [...,n,n] -> [...] Its gradient needs a matrix that is not singular. */
ARIL_API aril_tensor *aril_det(aril_tensor *a);

/* Its sign, and in *logabsdet the logarithm of its size: -inf for a singular matrix. */
ARIL_API aril_tensor *aril_slogdet(aril_tensor *a, aril_tensor **logabsdet);

/* L of A = L L', or U of A = U' U, for positive definite A, of which the symmetric part is
 * taken. */
ARIL_API aril_tensor *aril_cholesky(aril_tensor *a, bool upper);

/* Q, with orthonormal columns, and in *r the upper triangular R of A = Q R. [...,m,n] -> [...,m,k]
 * and [...,k,n], k = min(m, n). */
ARIL_API aril_tensor *aril_qr(aril_tensor *a, aril_tensor **r);

/* U, and in *s and *vh the singular values, largest first, and V' of A = U diag(S) V'.
 * [...,m,n] -> [...,m,k], [...,k] and [...,k,n]. */
ARIL_API aril_tensor *aril_svd(aril_tensor *a, aril_tensor **s, aril_tensor **vh);
ARIL_API aril_tensor *aril_svdvals(aril_tensor *a);

/* Eigenvalues, ascending, and in *vectors the eigenvectors as columns, of symmetric matrices, of
 * which the symmetric part is taken. [...,n,n] -> [...,n] and [...,n,n]. */
ARIL_API aril_tensor *aril_eigh(aril_tensor *a, aril_tensor **vectors);

ARIL_C_END

#endif
