/* Depthwise convolutions of 3 x 3, channels-last, and their gradients: kernels of our own. */
#ifndef ARIL_CUDA_CONV_DEPTHWISE_CUH
#define ARIL_CUDA_CONV_DEPTHWISE_CUH

#include "backend/cuda/vision/conv.cuh"

/* Whether these kernels take the convolution; `last`: its operands are channels-last. */
bool aril_cuda_conv_is_depthwise(const aril_cuda_conv &d, aril_dtype type, bool last);

/* Bytes of workspace. */
size_t aril_cuda_conv_depthwise_workspace(const aril_cuda_device *device, const aril_cuda_conv &d,
                                          aril_dtype type);

/* Addresses are multiples of 16 bytes. Neither bias nor activation. */
void aril_cuda_conv_depthwise_run(const aril_run *r, const aril_cuda_conv &d, aril_dtype type,
                                  void *workspace);

#endif
