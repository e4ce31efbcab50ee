/* Convolutions with kernels of one element, and their gradients, as matrix products by
 * cuBLASLt. */
#ifndef ARIL_CUDA_CONV_PRODUCT_CUH
#define ARIL_CUDA_CONV_PRODUCT_CUH

#include "backend/cuda/device/library.h"
#include "backend/cuda/vision/conv.cuh"

struct aril_cuda_conv_product {
    const aril_cuda_blas *lt;
    cublasLtHandle_t handle;
    aril_dtype type;
    bool last;              /* channels-last: one product. Else one per sample */
    bool strided;           /* windows are apart: elements of x between them are skipped */
    int64_t images;         /* of one call of cuBLASLt */
    bool biased, activated; /* by the product: the bias is added, and ReLU applied */
    bool added;             /* and z */
    cublasLtMatmulDescOpaque_t task;
    cublasLtMatrixLayoutOpaque_t first, second, result;
    cublasLtMatmulAlgo_t algorithm;
    size_t algorithm_bytes, packed_bytes, parts_bytes;
    size_t workspace; /* bytes of all */
};

enum { ARIL_CUDA_CONV_ALGORITHMS = 6 }; /* that are worth timing */

/* Whether the convolution is a product: groups, padding and kernels of more than one element are
 * not. */
bool aril_cuda_conv_is_product(const aril_cuda_conv &d);

/* The product by the heuristic's algorithm number `choice`; false if there is none. Channels-last
 * pixels are x_pitch and y_pitch elements apart. Addresses must be multiples of 16 bytes. It adds
 * z, and with channels last the bias, and applies ReLU where nothing has to be added before: p says
 * what is done. */
bool aril_cuda_conv_product_make(aril_cuda_device *device, const aril_cuda_conv &d, aril_dtype type,
                                 bool last, int64_t x_pitch, int64_t y_pitch, int choice,
                                 aril_cuda_conv_product *p);
/* NULL, or why it failed. */
const char *aril_cuda_conv_product_run(const aril_run *r, const aril_cuda_conv_product *p,
                                       const aril_cuda_conv &d, void *workspace);

#endif
