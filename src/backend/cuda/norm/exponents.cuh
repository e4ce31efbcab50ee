/* Sums of exponentials relative to the largest exponent, and rows of any length and alignment that a
 * block reads 16 bytes at a time. */
#ifndef ARIL_CUDA_NORM_EXPONENTS_CUH
#define ARIL_CUDA_NORM_EXPONENTS_CUH

#include "backend/cuda/block.cuh"
#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"

/* The largest exponent, and the sum of exp(x - top). */
template <typename C> struct aril_cuda_exponents {
    C top, sum;
};
/* Relative to the larger top. As in references, infinities give NaN in the end. */
template <typename E> struct aril_cuda_merging {
    static __device__ __forceinline__ E of(E a, E b)
    {
        if (a.top != a.top || b.top == a.top) return { a.top, a.sum + b.sum };
        if (b.top != b.top) return b;
        return a.top > b.top ? E{ a.top, a.sum + b.sum * exp(b.top - a.top) }
                             : E{ b.top, b.sum + a.sum * exp(a.top - b.top) };
    }
};

/* exp(x) for elements of type S: that of the hardware is exact enough for 16 bits. */
template <typename S> static __device__ __forceinline__ float aril_cuda_exp_for(float x)
{
    return sizeof(S) == 2 ? __expf(x) : expf(x);
}
template <typename S> static __device__ __forceinline__ double aril_cuda_exp_for(double x)
{
    return exp(x);
}

/* The largest of 16 bytes of elements; NaN loses. */
template <typename C, typename S, int N>
static __device__ __forceinline__ C aril_cuda_top_of(const aril_cuda_vector<S, N> &x)
{
    C top = aril_cuda_to<C>(x.at[0]);
#pragma unroll
    for (int k = 1; k < N; k++) top = fmax(top, aril_cuda_to<C>(x.at[k]));
    return top;
}
/* By pairs. */
template <typename Pair, typename S>
static __device__ __forceinline__ Pair aril_cuda_top_pair(const aril_cuda_vector<S, 8> &x)
{
    const Pair *p = reinterpret_cast<const Pair *>(x.at);
    return __hmax2(__hmax2(p[0], p[1]), __hmax2(p[2], p[3]));
}
template <>
__device__ __forceinline__ float aril_cuda_top_of<float>(
    const aril_cuda_vector<aril_cuda_bf16, 8> &x)
{
    __nv_bfloat162 top = aril_cuda_top_pair<__nv_bfloat162>(x);
    return fmaxf(__low2float(top), __high2float(top));
}
template <>
__device__ __forceinline__ float aril_cuda_top_of<float>(
    const aril_cuda_vector<aril_cuda_f16, 8> &x)
{
    __half2 top = aril_cuda_top_pair<__half2>(x);
    return fmaxf(__low2float(top), __high2float(top));
}

/* How the threads of a block share a row of n elements: vectors of 16 bytes at aligned addresses, and
 * single elements before and behind them, fewer than 16. */
template <typename S> struct aril_cuda_wide_row {
    enum { wide = 16 / sizeof(S), unroll = 4 };
    typedef aril_cuda_vector<S, wide> vector;
    int n, head, vectors;

    __device__ __forceinline__ aril_cuda_wide_row(const S *row, int64_t length)
    {
        n = (int)length;
        head = (int)((16 - (uintptr_t)row % 16) % 16 / sizeof(S));
        if (head > n) head = n;
        vectors = (n - head) / wide;
    }
    /* The element outside of vectors that this thread has, or -1. */
    __device__ __forceinline__ int edge() const
    {
        int at = (int)threadIdx.x;
        if (at >= head) at += vectors * wide;
        return at < n ? at : -1;
    }
    /* The position of vector i. */
    __device__ __forceinline__ int at(int i) const
    {
        return head + i * wide;
    }
    /* Calls f(i, vector) for the vectors of this thread; several are read before the first call. */
    template <typename F> __device__ __forceinline__ void each(const vector *from, F &&f) const
    {
        for (int i = (int)threadIdx.x; i < vectors; i += unroll * (int)blockDim.x) {
            vector x[unroll];
#pragma unroll
            for (int u = 0; u < unroll; u++)
                if (i + u * (int)blockDim.x < vectors) x[u] = from[i + u * (int)blockDim.x];
#pragma unroll
            for (int u = 0; u < unroll; u++)
                if (i + u * (int)blockDim.x < vectors) f(i + u * (int)blockDim.x, x[u]);
        }
    }
};

enum { ARIL_CUDA_WIDE_THREADS = 512 };

/* The exponents of a row, in all threads of the block. Keep: its vectors are also put into `kept`,
 * in shared memory, where each thread finds its own again. */
template <typename C, typename S, bool Keep>
static __device__ __forceinline__ aril_cuda_exponents<C> aril_cuda_scan_wide(
    const aril_cuda_wide_row<S> &w, const S *row, typename aril_cuda_wide_row<S>::vector *kept)
{
    typedef aril_cuda_wide_row<S> layout;
    typedef aril_cuda_exponents<C> E;
    E e = { -(C)INFINITY, 0 };
    if (w.edge() >= 0) {
        C x = aril_cuda_to<C>(row[w.edge()]);
        e = { x, x != x ? x : C(1) };
    }
    w.each(reinterpret_cast<const typename layout::vector *>(row + w.head),
           [&](int i, const typename layout::vector &x) {
               if (Keep) kept[i] = x;
               C top = fmax(e.top, aril_cuda_top_of<C>(x)); /* NaN goes into the sum alone */
               C base = top == -(C)INFINITY ? C(0) : top;
               if (top > e.top) e.sum *= aril_cuda_exp_for<S>(e.top - base);
               e.top = top;
               C sum[2] = {}; /* short chains of additions */
#pragma unroll
               for (int k = 0; k < layout::wide; k++)
                   sum[k % 2] += aril_cuda_exp_for<S>(aril_cuda_to<C>(x.at[k]) - base);
               e.sum += sum[0] + sum[1];
           });
    return aril_cuda_block_reduce<aril_cuda_merging, E>(e, { -(C)INFINITY, 0 });
}

/* Whether a block should handle a row of n elements so; b: written at the same positions as a. */
static inline bool aril_cuda_wide_fits(int64_t n, const void *a, const void *b)
{
    return n >= 1024 && n <= INT32_MAX / 2 && ((uintptr_t)a ^ (uintptr_t)b) % 16 == 0;
}
static inline unsigned aril_cuda_wide_threads(int64_t n)
{
    return n <= 4096 ? 128 : n <= 16384 ? 256 : ARIL_CUDA_WIDE_THREADS;
}
/* Bytes of shared memory that keep a row of n elements; 0 if the device has too little. */
static inline size_t aril_cuda_wide_bytes(const aril_run *r, int64_t n, int size)
{
    size_t bytes = (size_t)n * (size_t)size / 16 * 16;
    return bytes + 2048 <= aril_cuda_device_of(r)->shared_per_block ? bytes : 0;
}

#endif
