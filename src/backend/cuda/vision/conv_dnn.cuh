/* Rows of convolutions through cuDNN's graph API. */
#ifndef ARIL_CUDA_CONV_DNN_CUH
#define ARIL_CUDA_CONV_DNN_CUH

#include "backend/cuda/host.cuh"

const char *aril_cuda_dnn_conv_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_dnn_conv_dgrad_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_dnn_conv_wgrad_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_dnn_conv_transpose_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_dnn_conv_run(aril_run *r);
void aril_cuda_dnn_conv_destroy(void *prepared);

#endif
