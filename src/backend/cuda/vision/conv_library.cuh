/* Rows of convolutions through cuDNN and cuBLASLt. */
#ifndef ARIL_CUDA_CONV_LIBRARY_CUH
#define ARIL_CUDA_CONV_LIBRARY_CUH

#include "backend/cuda/host.cuh"

const char *aril_cuda_conv_library_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_conv_dgrad_library_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_conv_wgrad_library_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_conv_transpose_library_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_conv_library_run(aril_run *r);
void aril_cuda_conv_library_destroy(void *prepared);

#endif
