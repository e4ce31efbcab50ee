/* Products of recurrent layers: c = a b, or c += a b, with c contiguous [m,n] and a, b any strided
 * matrices. */
#ifndef ARIL_CUDA_SEQUENCE_GEMM_CUH
#define ARIL_CUDA_SEQUENCE_GEMM_CUH

#include "backend/cuda/host.cuh"

struct aril_cuda_seq_product {
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col;
    bool add;
};

/* For f32, or f64 if `wide`. */
aril_status aril_cuda_seq_multiply(aril_run *r, const aril_cuda_seq_product *p, bool wide,
                                   const void *a, const void *b, void *c);

#endif
