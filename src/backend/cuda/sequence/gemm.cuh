/* Products of recurrent layers: c = a b, or c += a b, with c contiguous [m,n], and rows or columns
 * of a and b contiguous. */
#ifndef ARIL_CUDA_SEQUENCE_GEMM_CUH
#define ARIL_CUDA_SEQUENCE_GEMM_CUH

#include "backend/cuda/device/library.h"
#include "backend/cuda/host.cuh"

struct aril_cuda_seq_product {
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col;
    bool add, wide; /* wide: f64, else f32 */

    /* cuBLASLt's part, set by aril_cuda_seq_prepare; without an algorithm a kernel of our own
     * runs. */
    bool found;
    const aril_cuda_blas *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t task;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace; /* bytes that the algorithm needs */
};

/* Looks for an algorithm, for products that are worth it. */
void aril_cuda_seq_prepare(const aril_run *r, aril_cuda_seq_product *p);

/* workspace: of at least p->workspace bytes. */
aril_status aril_cuda_seq_multiply(aril_run *r, const aril_cuda_seq_product *p, const void *a,
                                   const void *b, void *c, void *workspace);

#endif
