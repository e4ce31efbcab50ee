/* Matrix products of plain memory, beneath matmul, linear and whatever else can be put that way. */
#ifndef ARIL_CPU_GEMM_H
#define ARIL_CPU_GEMM_H

#include "ops/op.h"

/* c = a b, or c += a b with `add`: a [m,k], b [k,n], c [m,n], of float or double. Strides are in
 * elements, any for a and b (0 and negative ones too); those of c must keep its elements apart. c
 * may not overlap a or b. */
typedef struct aril__gemm {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t a_row, a_col, b_row, b_col, c_row, c_col;
    bool add;
} aril__gemm;

typedef void aril__gemm_fn(const aril__gemm *g);

/* The fastest there is for f32 or f64, on all threads; serial within a parallel loop. The result
 * does not depend on the number of threads. */
void aril__cpu_gemm(aril_dtype type, const aril__gemm *g);

/* Aril's own, on the calling thread: packed panels, vector registers, the widest instructions that
 * the machine has. */
aril__gemm_fn aril__gemm_f32, aril__gemm_f64;

/* The rows of matmul, linear and outer_sum. */
aril_status aril__cpu_product_blas(aril__run *r);
aril_status aril__cpu_product(aril__run *r);

#endif
