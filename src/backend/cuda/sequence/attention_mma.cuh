/* Operands of attention for tensor cores: tensors with strides, of at most two batch dimensions. */
#ifndef ARIL_CUDA_ATTENTION_MMA_CUH
#define ARIL_CUDA_ATTENTION_MMA_CUH

#include "backend/cuda/sequence/attention.cuh"
#include "backend/cuda/sequence/mma.cuh"

/* [outer,inner,rows,columns], columns contiguous. */
struct aril_cuda_heads {
    const void *at;
    int64_t outer, inner, row; /* strides in elements */
    bool aligned;
};

/* The same of a result. */
struct aril_cuda_heads_out {
    void *at;
    int64_t outer, inner, row;
};

struct aril_cuda_heads_job {
    aril_cuda_attention a;
    int64_t inner; /* size of the inner batch dimension */
    aril_cuda_heads q, k, v, y, g;
    const float *lse, *g_lse, *delta;
};

/* The offset of batch b, of which there are less than 2^31. */
template <typename T>
static __device__ __forceinline__ int64_t aril_cuda_head_at(const aril_cuda_heads_job &j,
                                                            const T &h, int64_t b)
{
    int n = (int)j.inner, outer = (int)b / n, inner = (int)b - outer * n;
    return outer * h.outer + inner * h.inner;
}

/* Rows of batch b of a tensor. */
template <typename S>
static __device__ __forceinline__ aril_cuda_matrix aril_cuda_matrix_of(const aril_cuda_heads_job &j,
                                                                       const aril_cuda_heads &h,
                                                                       int64_t b, int64_t rows,
                                                                       int64_t columns)
{
    const S *at = static_cast<const S *>(h.at) + aril_cuda_head_at(j, h, b);
    return { at, h.row, rows, (int)columns, h.aligned };
}

/* A row of batch b of a result. */
template <typename S>
static __device__ __forceinline__ S *aril_cuda_out_row(const aril_cuda_heads_job &j,
                                                       const aril_cuda_heads_out &h, int64_t b,
                                                       int64_t row)
{
    return static_cast<S *>(h.at) + aril_cuda_head_at(j, h, b) + row * h.row;
}

/* A score after the mask, in units of log 2: hidden keys and those outside give minus infinity. */
static __device__ __forceinline__ float aril_cuda_score(const aril_cuda_attention &a, int64_t mask,
                                                        int64_t row, int64_t key, float scaled)
{
    const float log2e = 1.4426950408889634f;
    if (row >= a.l || key >= a.s || (a.causal && key > row)) return -INFINITY;
    if (!a.mask.at) return scaled;
    int64_t at = mask + row * a.mask.row + key * a.mask.column;
    if (a.mask.dtype == ARIL_BOOL)
        return static_cast<const uint8_t *>(a.mask.at)[at] ? scaled : -INFINITY;
    return scaled + static_cast<const float *>(a.mask.at)[at] * log2e;
}

/* Whether the tensor cores can do it; asks for contiguous tensors where strides do not fit, and for
 * results in the order of the inputs. */
const char *aril_cuda_heads_prepare(const aril_run *r, aril_plan *plan, bool gradient);
aril_cuda_heads_job aril_cuda_heads_of(const aril_run *r, bool gradient);
aril_cuda_heads_out aril_cuda_heads_out_of(const aril_run *r, int i);

/* Why Hopper's kernels cannot do what heads_prepare accepts, or NULL; and whether they can read and
 * write at these addresses. */
const char *aril_cuda_wgmma_refuses(const aril_run *r);
bool aril_cuda_wgmma_reads(const aril_cuda_heads_job &job, bool gradient);

#endif
