/* The gradient of the weights in f32 with contiguous operands: a kernel of our own. */
#ifndef ARIL_CUDA_CONV_WEIGHTS_CUH
#define ARIL_CUDA_CONV_WEIGHTS_CUH

#include "backend/cuda/vision/conv.cuh"

bool aril_cuda_conv_is_weights(const aril_cuda_conv &d, aril_dtype type, bool last);

/* Bytes of workspace. */
size_t aril_cuda_conv_weights_workspace(const aril_cuda_device *device, const aril_cuda_conv &d);

void aril_cuda_conv_weights_run(const aril_run *r, const aril_cuda_conv &d, void *workspace);

#endif
