/* Matrix products: the geometry of matmul, linear and outer_sum, and their rows. */
#ifndef ARIL_CUDA_PRODUCT_CUH
#define ARIL_CUDA_PRODUCT_CUH

#include "backend/cuda/attrs.cuh"
#include "ops/linalg/matmul.h"

#include "backend/cuda/host.cuh"

enum aril_cuda_product_op { ARIL_CUDA_MATMUL, ARIL_CUDA_LINEAR, ARIL_CUDA_OUTER_SUM };

/* The product of a run, with batch dimensions merged into m where strides allow it; without
 * addresses. Operand i (a, b, c) counts as contiguous if contiguous[i]. False if the leading
 * dimensions of outer_sum cannot be walked with one stride. */
bool aril_cuda_product_of(const aril_run *r, aril_cuda_product_op op, const bool contiguous[3],
                          aril__product *p);

/* The activation of linear. */
int aril_cuda_product_activation(const aril_run *r, aril_cuda_product_op op);
/* The bias of linear, or NULL. */
const aril_tensor *aril_cuda_product_bias(const aril_run *r, aril_cuda_product_op op);

/* Plain kernels: product.cu. */
aril_status aril_cuda_matmul_run(aril_run *r);
aril_status aril_cuda_linear_run(aril_run *r);
aril_status aril_cuda_outer_sum_run(aril_run *r);

/* cuBLASLt: blas.cu. */
const char *aril_cuda_blas_matmul_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_blas_linear_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_blas_outer_sum_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_blas_run(aril_run *r);
void aril_cuda_blas_destroy(void *prepared);

/* Distances: cdist.cu. */
aril_status aril_cuda_cdist_run(aril_run *r);
aril_status aril_cuda_cdist_grad_run(aril_run *r);

#endif
