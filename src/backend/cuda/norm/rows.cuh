/* The runs of this folder's rows. */
#ifndef ARIL_CUDA_NORM_ROWS_CUH
#define ARIL_CUDA_NORM_ROWS_CUH

#include "backend/cuda/host.cuh"

#define ARIL_CUDA_RUN(op) aril_status aril_cuda_##op##_run(aril_run *r);

/* softmax.cu */
ARIL_CUDA_RUN(softmax)
ARIL_CUDA_RUN(log_softmax)
ARIL_CUDA_RUN(softmax_grad)
ARIL_CUDA_RUN(log_softmax_grad)

/* batch_norm.cu, batch_norm_grad.cu */
ARIL_CUDA_RUN(batch_norm)
ARIL_CUDA_RUN(batch_norm_grad)
ARIL_CUDA_RUN(batch_norm_eval)
const char *aril_cuda_batch_norm_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_batch_norm_grad_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_batch_norm_eval_prepare(const aril_run *r, aril_plan *plan);

/* layer_norm.cu */
ARIL_CUDA_RUN(layer_norm)
ARIL_CUDA_RUN(layer_norm_grad)
ARIL_CUDA_RUN(rms_norm)
ARIL_CUDA_RUN(rms_norm_grad)
size_t aril_cuda_layer_norm_grad_workspace(const aril_run *r);
size_t aril_cuda_rms_norm_grad_workspace(const aril_run *r);

/* group_norm.cu */
ARIL_CUDA_RUN(group_norm)
ARIL_CUDA_RUN(group_norm_grad)
const char *aril_cuda_group_norm_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_group_norm_grad_prepare(const aril_run *r, aril_plan *plan);

/* local_response_norm.cu */
ARIL_CUDA_RUN(local_response_norm)
ARIL_CUDA_RUN(local_response_norm_grad)
const char *aril_cuda_local_response_norm_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_local_response_norm_grad_prepare(const aril_run *r, aril_plan *plan);

#undef ARIL_CUDA_RUN

#endif
