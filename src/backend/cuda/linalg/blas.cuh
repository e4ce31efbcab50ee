/* Products by cuBLASLt, for the files of its rows. */
#ifndef ARIL_CUDA_BLAS_CUH
#define ARIL_CUDA_BLAS_CUH

#include "backend/cuda/linalg/product.cuh"

#include "backend/cuda/device/library.h"

enum { ARIL_CUDA_GEMM_VARIANTS = 3 };

/* What one alignment of addresses allows. */
struct aril_cuda_gemm_variant {
    int made;         /* atomic: the rest is valid */
    bool found, bias; /* bias: the algorithm adds it */
    cublasLtMatmulAlgo_t algorithm;
};

/* A product and its algorithms. */
struct aril_cuda_gemm {
    const aril_cuda_blas *lt;
    cublasLtHandle_t handle;
    aril__product p; /* its batch dimensions without that of `count` */
    aril_dtype type;
    bool has_bias;
    int64_t count, a_step, b_step, c_step; /* the batch of one call */
    cublasLtMatmulDescOpaque_t task, task_with_bias;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    size_t workspace;
    pthread_mutex_t lock; /* guards making variants */
    aril_cuda_gemm_variant at[ARIL_CUDA_GEMM_VARIANTS];
};

/* Addresses of one call. */
struct aril_cuda_gemm_call {
    const char *a, *b, *bias;
    char *c;
};

/* A row-major matrix [rows, columns] in memory as a column-major one. */
struct aril_cuda_stored {
    bool fits, transposed; /* transposed: as [rows, columns] itself */
    int64_t ld;
};
aril_cuda_stored aril_cuda_stored_as(int64_t rows, int64_t columns, int64_t row, int64_t column);

/* Describes g->p and finds the algorithm for aligned addresses, which needs g->workspace bytes.
 * NULL, or why it cannot be. */
const char *aril_cuda_gemm_begin(aril_cuda_gemm *g);
void aril_cuda_gemm_end(aril_cuda_gemm *g);
/* The variant for addresses and steps whose bits are or-ed together. */
const aril_cuda_gemm_variant *aril_cuda_gemm_for(aril_cuda_gemm *g, uintptr_t addresses);
aril_status aril_cuda_gemm_run(aril_run *r, aril_cuda_gemm *g, const aril_cuda_gemm_variant *v,
                               const aril_cuda_gemm_call &at);

/* ---- products whose rows are not aligned: padded.cu ---- */

struct aril_cuda_padded;

/* For the product of g, whose batch is in g->p alone; NULL where it is as fast without. Needs
 * *workspace bytes. */
aril_cuda_padded *aril_cuda_padded_new(const aril_cuda_gemm *g, size_t *workspace);
void aril_cuda_padded_free(aril_cuda_padded *d);
/* *done: whether it ran, and added the bias if there is one. */
aril_status aril_cuda_padded_run(aril_run *r, aril_cuda_padded *d, const aril_cuda_gemm_call &at,
                                 bool *done);

#endif
