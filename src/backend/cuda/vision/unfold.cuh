/* Rows of unfold, fold and unfold_grad. */
#ifndef ARIL_CUDA_UNFOLD_CUH
#define ARIL_CUDA_UNFOLD_CUH

#include "backend/cuda/host.cuh"

const char *aril_cuda_unfold_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_unfold_run(aril_run *r);
aril_status aril_cuda_fold_run(aril_run *r); /* also unfold_grad */

#endif
