/* Sums of gradients of weights over parts of a batch, in a fixed order. */
#ifndef ARIL_CUDA_CONV_PARTS_CUH
#define ARIL_CUDA_CONV_PARTS_CUH

#include "backend/cuda/launch.cuh"

enum { ARIL_CUDA_PARTS_ACROSS = 32, ARIL_CUDA_PARTS_DOWN = 8 };

/* The sum over j of part[j * n + i], in the threads with threadIdx.y = 0 of a block of
 * ARIL_CUDA_PARTS_ACROSS x ARIL_CUDA_PARTS_DOWN: threads of a column add every DOWN-th part, and
 * the first one their sums. All threads of the block take part. */
template <typename T>
static __device__ __forceinline__ T aril_cuda_parts_sum(const T *part, int64_t parts, int64_t n,
                                                        int64_t i)
{
    __shared__ T sums[ARIL_CUDA_PARTS_DOWN][ARIL_CUDA_PARTS_ACROSS];
    T sum = 0;
    if (i < n)
        for (int64_t j = threadIdx.y; j < parts; j += ARIL_CUDA_PARTS_DOWN) sum += part[j * n + i];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0)
#pragma unroll
        for (int j = 1; j < ARIL_CUDA_PARTS_DOWN; j++) sum += sums[j][threadIdx.x];
    return sum;
}

/* to[i] = the sum, plus itself if `add`. */
template <typename T>
static __global__ void __launch_bounds__(ARIL_CUDA_PARTS_ACROSS *ARIL_CUDA_PARTS_DOWN)
    aril_cuda_parts_add(const T *part, T *to, int64_t parts, int64_t n, bool add)
{
    int64_t i = (int64_t)blockIdx.x * ARIL_CUDA_PARTS_ACROSS + threadIdx.x;
    T sum = aril_cuda_parts_sum(part, parts, n, i);
    if (threadIdx.y == 0 && i < n) to[i] = add ? to[i] + sum : sum;
}

template <typename T>
static inline void aril_cuda_parts_run(const aril_run *r, const void *part, void *to, int64_t parts,
                                       int64_t n, bool add)
{
    dim3 block(ARIL_CUDA_PARTS_ACROSS, ARIL_CUDA_PARTS_DOWN);
    unsigned blocks = (unsigned)((n + ARIL_CUDA_PARTS_ACROSS - 1) / ARIL_CUDA_PARTS_ACROSS);
    aril_cuda_parts_add<<<blocks, block, 0, aril_cuda_stream(r)>>>(static_cast<const T *>(part),
                                                                   static_cast<T *>(to), parts, n,
                                                                   add);
}

#endif
