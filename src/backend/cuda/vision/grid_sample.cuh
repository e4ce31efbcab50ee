/* Rows of grid_sample and its gradients. */
#ifndef ARIL_CUDA_GRID_SAMPLE_CUH
#define ARIL_CUDA_GRID_SAMPLE_CUH

#include "backend/cuda/host.cuh"

const char *aril_cuda_grid_sample_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_grid_sample_grad_x_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_grid_sample_run(aril_run *r);
aril_status aril_cuda_grid_sample_grad_x_run(aril_run *r);
aril_status aril_cuda_grid_sample_grad_grid_run(aril_run *r);

/* grid_sort.cu: sorts n pairs by the lowest `bits` of their keys; equal keys keep their order.
 * memory NULL: only tells the bytes it needs. */
cudaError_t aril_cuda_grid_sort(void *memory, size_t *bytes, const uint32_t *keys,
                                uint32_t *sorted_keys, const uint32_t *values,
                                uint32_t *sorted_values, int n, int bits, cudaStream_t stream);

#endif
