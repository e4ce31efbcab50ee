/* Convolutions in f32 with contiguous operands as products with a gathered factor: a kernel of our
 * own, for the result and, where windows are next to each other, the gradient of the data. */
#ifndef ARIL_CUDA_CONV_IMPLICIT_CUH
#define ARIL_CUDA_CONV_IMPLICIT_CUH

#include "backend/cuda/vision/conv.cuh"

bool aril_cuda_conv_is_implicit(const aril_cuda_conv &d, aril_dtype type, bool last);

/* Bytes of workspace. */
size_t aril_cuda_conv_implicit_workspace(const aril_cuda_device *device, const aril_cuda_conv &d);

/* Neither bias nor activation. */
void aril_cuda_conv_implicit_run(const aril_run *r, const aril_cuda_conv &d, void *workspace);

#endif
