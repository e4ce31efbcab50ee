/* Attention: what its kernels work on, and its rows. */
#ifndef ARIL_CUDA_ATTENTION_CUH
#define ARIL_CUDA_ATTENTION_CUH

#include "backend/cuda/attrs.cuh"
#include "ops/sequence/attention.h"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"

/* A mask that broadcasts to [batch...,L,S]: a boolean one, or one that is added. */
struct aril_cuda_mask {
    const void *at; /* NULL: none */
    int dtype;
    int ndim; /* of the batch */
    int64_t dim[ARIL_MAX_DIMS], step[ARIL_MAX_DIMS], row, column;
};

/* The offset of the mask of batch b, in elements. */
static __device__ __forceinline__ int64_t aril_cuda_mask_at(const aril_cuda_mask &m, int64_t b)
{
    int64_t at = 0;
    for (int d = m.ndim - 1; d >= 0; d--) {
        at += b % m.dim[d] * m.step[d];
        b /= m.dim[d];
    }
    return at;
}

/* A score after the mask; `at` is the mask's element for it. */
template <typename T>
static __device__ __forceinline__ T aril_cuda_masked(const aril_cuda_mask &m, int64_t at, T score)
{
    if (m.dtype == ARIL_BOOL) return static_cast<const uint8_t *>(m.at)[at] ? score : -(T)INFINITY;
    if (m.dtype == ARIL_F64) return score + (T) static_cast<const double *>(m.at)[at];
    return score + (T) static_cast<const float *>(m.at)[at];
}

/* q [batch,l,e], k [batch,s,e], v [batch,s,ev]. */
struct aril_cuda_attention {
    int64_t batch, l, s, e, ev;
    double scale;
    bool causal;
    aril_cuda_mask mask;
};
aril_cuda_attention aril_cuda_attention_of(const aril_run *r);
/* Why no kernel of this folder can do it, or NULL. */
const char *aril_cuda_attention_refuses(const aril_run *r);

/* By tensor cores, for f16 and bf16: attention_mma.cu, attention_mma_grad.cu. */
const char *aril_cuda_attention_mma_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_attention_mma_run(aril_run *r);
const char *aril_cuda_attention_mma_grad_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_attention_mma_grad_run(aril_run *r);

/* By those of Hopper, without a mask: attention_wgmma.cu, attention_wgmma_grad.cu. */
const char *aril_cuda_attention_wgmma_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_attention_wgmma_run(aril_run *r);
const char *aril_cuda_attention_wgmma_grad_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_attention_wgmma_grad_run(aril_run *r);

/* For f32 and f64: attention.cu, attention_grad.cu. */
const char *aril_cuda_attention_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_attention_run(aril_run *r);
const char *aril_cuda_attention_grad_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_attention_grad_run(aril_run *r);

#endif
