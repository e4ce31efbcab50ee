/* Convolutions: the geometry shared by cuDNN's rows and the direct kernels. */
#ifndef ARIL_CUDA_CONV_CUH
#define ARIL_CUDA_CONV_CUH

#include "backend/cuda/attrs.cuh"
#include "ops/vision/conv.h"

#include "backend/cuda/vision/image.cuh"

enum aril_cuda_conv_role { ARIL_CUDA_CONV_Y, ARIL_CUDA_CONV_X, ARIL_CUDA_CONV_W }; /* the result */

/* x [N,C,in...], w [K,C/groups,kernel...], y [N,K,out...], whichever of them is the result. */
struct aril_cuda_conv {
    aril_cuda_conv_role role;
    int64_t groups, c, k; /* channels of x and y per group */
    aril_cuda_image x, w, y;
    int64_t stride[3], begin[3], end[3], dilation[3];
    const void *bias; /* in run only */
    int64_t bias_stride;
    bool has_bias;
    aril_cuda_image z; /* what conv_add adds to y, and conv_dgrad_add to x */
    bool has_z;
    int activation;
    int spatial; /* dimensions of the op */
};

/* Describes a run of conv, its gradients and conv_transpose, with or without addition, without
 * addresses. */
aril_cuda_conv aril_cuda_conv_of(const aril_run *r, aril_cuda_conv_role role, bool transposed);
void aril_cuda_conv_addresses(const aril_run *r, aril_cuda_conv *d);

/* Rows. */
const char *aril_cuda_conv_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_conv_run(aril_run *r);
aril_status aril_cuda_conv_dgrad_run(aril_run *r);
aril_status aril_cuda_conv_wgrad_run(aril_run *r);
aril_status aril_cuda_conv_transpose_run(aril_run *r);

#endif
