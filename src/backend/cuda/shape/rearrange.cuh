/* Ops that rearrange elements: what their files share. */
#ifndef ARIL_CUDA_REARRANGE_CUH
#define ARIL_CUDA_REARRANGE_CUH

#include "backend/cuda/index/index.cuh"

typedef struct aril__meta aril__meta; /* named by ops/shape/view.h */

/* to = from, elements of so many bytes: operand 0 of the loops is `to`, operand 1 `from`. */
aril_status aril_cuda_place(const aril_run *r, aril_cuda_loops loops, void *to, const void *from,
                            int64_t bytes);

aril_status aril_cuda_cat_run(aril_run *r);
aril_status aril_cuda_pad_like_run(aril_run *r);
aril_status aril_cuda_repeat_run(aril_run *r);

const char *aril_cuda_pad_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_pad_run(aril_run *r);
aril_status aril_cuda_pad_grad_run(aril_run *r);
aril_status aril_cuda_roll_run(aril_run *r);
aril_status aril_cuda_tril_run(aril_run *r);
aril_status aril_cuda_triu_run(aril_run *r);
aril_status aril_cuda_unfold_view_grad_run(aril_run *r);

aril_status aril_cuda_sum_to_like_run(aril_run *r);
size_t aril_cuda_sum_to_like_bytes(const aril_run *r);
aril_status aril_cuda_repeat_grad_run(aril_run *r);
size_t aril_cuda_repeat_grad_bytes(const aril_run *r);

#endif
