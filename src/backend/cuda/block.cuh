/* Reductions within warps and blocks. The order of operations depends on the block's size alone, so
 * results are the same in every run. A combiner is a struct with
 *     static __device__ T of(T x, T y)
 * that is associative in exact arithmetic; aril_cuda_sum, _largest and _smallest are given here. T
 * may be any struct whose size is a multiple of 4 bytes. */
#ifndef ARIL_CUDA_BLOCK_CUH
#define ARIL_CUDA_BLOCK_CUH

#include <cuda_runtime.h>
#include <stdint.h>

template <typename T> struct aril_cuda_sum {
    static __device__ __forceinline__ T of(T x, T y)
    {
        return x + y;
    }
};
/* NaN wins. */
template <typename T> struct aril_cuda_largest {
    static __device__ __forceinline__ T of(T x, T y)
    {
        return x != x || x > y ? x : y;
    }
};
template <typename T> struct aril_cuda_smallest {
    static __device__ __forceinline__ T of(T x, T y)
    {
        return x != x || x < y ? x : y;
    }
};

/* The value of the lane whose number differs by `mask`; every lane of the warp takes part. */
template <typename T> static __device__ __forceinline__ T aril_cuda_swap(T x, int mask)
{
    static_assert(sizeof(T) % 4 == 0, "a multiple of 4 bytes");
    union whole {
        T value;
        uint32_t word[sizeof(T) / 4];
        __device__ whole()
        {
        }
    } u;
    u.value = x;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(T) / 4); i++)
        u.word[i] = __shfl_xor_sync(0xffffffffu, u.word[i], mask);
    return u.value;
}

/* Combines x over groups of `width` neighbouring lanes (a power of two, at most 32): every lane
 * gets the result. All lanes of the warp take part. */
template <template <typename> class Op, typename T>
static __device__ __forceinline__ T aril_cuda_warp_reduce(T x, int width = 32)
{
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
        if (mask < width) x = Op<T>::of(x, aril_cuda_swap(x, mask));
    return x;
}

/* Combines x over the block, a multiple of 32 threads, at most 1024: every thread gets the result.
 * `neutral` is the value that changes nothing. All threads of the block take part; it may be called
 * repeatedly. */
template <template <typename> class Op, typename T>
static __device__ __forceinline__ T aril_cuda_block_reduce(T x, T neutral)
{
    struct cell {
        alignas(8) unsigned char of[sizeof(T)];
    };
    __shared__ cell partial[32];
    T *part = reinterpret_cast<T *>(partial);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = aril_cuda_warp_reduce<Op>(x);
    if (warps == 1) return x;
    __syncthreads(); /* an earlier call may still be reading */
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return aril_cuda_warp_reduce<Op>(lane < warps ? part[lane] : neutral);
}

template <typename T> static __device__ __forceinline__ T aril_cuda_block_sum(T x)
{
    return aril_cuda_block_reduce<aril_cuda_sum, T>(x, T(0));
}

#endif
