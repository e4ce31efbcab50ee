/* Rows of interpolate and its gradient. */
#ifndef ARIL_CUDA_RESAMPLE_CUH
#define ARIL_CUDA_RESAMPLE_CUH

#include "backend/cuda/host.cuh"

const char *aril_cuda_interpolate_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_interpolate_grad_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_interpolate_run(aril_run *r);
aril_status aril_cuda_interpolate_grad_run(aril_run *r);

#endif
