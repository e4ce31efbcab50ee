/* Linear algebra: matrix products. Matrices are the last two dimensions; those before them are a
 * batch. */
#ifndef ARIL_LINALG_H
#define ARIL_LINALG_H

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

ARIL_C_END

#endif
