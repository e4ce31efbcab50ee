/* The kernel that all reductions share. An op is a struct, passed by value, with
 *
 *     acc                       a partial result: plain data, a multiple of 4 bytes
 *     raw, lanes                what one read gets: `lanes` elements
 *     mine                      what a thread keeps for its results, from begin()
 *     raw load(at, k)           reads the unit at offset `at` of x, the k-th of its result
 *     mine begin(i)             i: the result (the first one of the unit, across results)
 *     acc neutral()
 *     void add(acc (&a)[lanes], const raw (&v)[UNROLL], n, k, step, mine)
 *                               adds v[0..n), which are the units k, k + step ...
 *     acc combine(a, b)
 *     void finish(i, x, out0, out1, acc)      stores result i; offsets of its operands
 *     resident                  optional: blocks of a multiprocessor, which limits registers
 *
 * Partial results combine in trees whose shape depends on sizes alone. */
#ifndef ARIL_CUDA_REDUCE_PASS_CUH
#define ARIL_CUDA_REDUCE_PASS_CUH

#include "backend/cuda/block.cuh"
#include "backend/cuda/dtype.cuh"
#include "backend/cuda/reduce/layout.cuh"

/* Reads elements of one type, several at once. */
template <typename C_, typename S, int N> struct aril_cuda_typed {
    typedef C_ C;
    typedef aril_cuda_packed<S, N> raw;
    enum { lanes = N };
    const S *base;

    __device__ __forceinline__ raw load(int64_t at) const
    {
        return *reinterpret_cast<const raw *>(base + at);
    }
    static __device__ __forceinline__ C get(const raw &v, int l)
    {
        return v.get(l);
    }
};

/* What a thread keeps in passes that need nothing of their own. */
struct aril_cuda_nothing {
};

/* Reads elements of a dtype known when the kernel runs. */
template <typename C_> struct aril_cuda_dynamic {
    typedef C_ C;
    typedef aril_cuda_loaded<C> raw;
    enum { lanes = 1 };
    const void *base;
    int dtype;

    __device__ __forceinline__ raw load(int64_t at) const
    {
        return raw::of(base, at, dtype);
    }
    static __device__ __forceinline__ C get(const raw &v, int)
    {
        return v.value();
    }
};

/* What passes over the elements of one reader share. */
template <typename Reader> struct aril_cuda_reading {
    typedef typename Reader::raw raw;
    typedef aril_cuda_nothing mine;
    enum { lanes = Reader::lanes };
    Reader x;

    __device__ raw load(int64_t at, int64_t) const
    {
        return x.load(at);
    }
    __device__ mine begin(int64_t) const
    {
        return {};
    }
};

/* The results of a thread group, combined along x or along y of the block; valid in the threads
 * with x or y 0. */
template <typename Op>
static __device__ __forceinline__ typename Op::acc aril_cuda_reduce_row(const Op &op,
                                                                        typename Op::acc a,
                                                                        int width)
{
    typedef typename Op::acc acc;
    __shared__ alignas(8) unsigned char memory[ARIL_CUDA_REDUCE_THREADS / 32 * sizeof(acc)];
    acc *part = reinterpret_cast<acc *>(memory);
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
        acc other = aril_cuda_swap(a, mask);
        if (mask < width) a = (threadIdx.x & mask) ? op.combine(other, a) : op.combine(a, other);
    }
    if (width <= 32) return a;
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = a;
    __syncthreads();
    for (int w = 1; w < ARIL_CUDA_REDUCE_THREADS / 32 && threadIdx.x == 0; w++)
        a = op.combine(a, part[w]);
    return a;
}

/* `height` rows of `width` threads; this thread is in row y. */
template <typename Op>
static __device__ __forceinline__ void aril_cuda_reduce_column(const Op &op,
                                                               typename Op::acc (&a)[Op::lanes],
                                                               int width, int height, int y)
{
    typedef typename Op::acc acc;
    const int threads = ARIL_CUDA_REDUCE_THREADS;
    __shared__ alignas(8) unsigned char memory[Op::lanes * threads * sizeof(acc)];
    acc *part = reinterpret_cast<acc *>(memory);
    for (int left = height; left > 1; left = (left + 1) / 2) {
        int half = (left + 1) / 2;
        if (y >= half && y < left) {
#pragma unroll
            for (int l = 0; l < Op::lanes; l++) part[l * threads + threadIdx.x] = a[l];
        }
        __syncthreads();
        if (y + half < left) { /* what the next round writes is below what is read here */
#pragma unroll
            for (int l = 0; l < Op::lanes; l++)
                a[l] = op.combine(a[l], part[l * threads + threadIdx.x + half * width]);
        }
    }
}

template <typename Op> static constexpr int aril_cuda_reduce_resident()
{
    if constexpr (requires { Op::resident; })
        return Op::resident;
    else
        return 1;
}

/* Partial results [split][result], or, with one split, the results. The splits take turns with
 * `unroll` steps of a block, so that all of them read the same part of memory at a time. */
template <typename Op, bool Row>
static __global__ void __launch_bounds__(ARIL_CUDA_REDUCE_THREADS, aril_cuda_reduce_resident<Op>())
    aril_cuda_reduce_pass(const __grid_constant__ Op op,
                          const __grid_constant__ aril_cuda_reduction r, typename Op::acc *partial)
{
    typedef typename Op::acc acc;
    const int lanes = Op::lanes, unroll = ARIL_CUDA_REDUCE_UNROLL;
    const int width = r.width, height = ARIL_CUDA_REDUCE_THREADS / width;
    const int y = threadIdx.x / width, x = threadIdx.x - y * width;
    const int64_t i = Row ? (int64_t)blockIdx.x * height + y : (int64_t)blockIdx.x * width + x;
    const bool mine = i < r.kept.count && y < height;
    const int step = Row ? width : height;
    acc a[lanes];
    int64_t at[ARIL_CUDA_AXES_OPERANDS] = {};
#pragma unroll
    for (int l = 0; l < lanes; l++) a[l] = op.neutral();
    if (mine) {
        r.kept.offsets(i, at);
        typename Op::mine own = op.begin(Row ? i : i * lanes);
        typename Op::raw v[unroll];
        int64_t k = (int64_t)blockIdx.y * (unroll * step) + (Row ? x : y);
        for (; k + (unroll - 1) * step < r.red.count; k += (int64_t)r.splits * (unroll * step)) {
#pragma unroll
            for (int u = 0; u < unroll; u++)
                v[u] = op.load(at[0] + r.red.offset(k + u * step), k + u * step);
            op.add(a, v, unroll, k, step, own);
        }
        for (; k < r.red.count; k += step) {
            v[0] = op.load(at[0] + r.red.offset(k), k);
            op.add(a, v, 1, k, step, own);
        }
    }
    if (Row) {
#pragma unroll
        for (int l = 1; l < lanes; l++) a[0] = op.combine(a[0], a[l]);
        a[0] = aril_cuda_reduce_row(op, a[0], width);
        if (x != 0 || !mine) return;
        if (partial)
            partial[blockIdx.y * r.results + i] = a[0];
        else
            op.finish(i, at[0], at[1], at[2], a[0]);
    } else {
        aril_cuda_reduce_column(op, a, width, height, y);
        if (y != 0 || !mine) return;
#pragma unroll
        for (int l = 0; l < lanes; l++) {
            if (partial)
                partial[blockIdx.y * r.results + i * lanes + l] = a[l];
            else
                op.finish(i * lanes + l, at[0] + l * r.lane[0], at[1] + l * r.lane[1],
                          at[2] + l * r.lane[2], a[l]);
        }
    }
}

enum { ARIL_CUDA_FINISH_WIDTH = 8 }; /* results of a block that combines partial results */

template <typename Op>
static __global__ void __launch_bounds__(ARIL_CUDA_REDUCE_THREADS)
    aril_cuda_reduce_finish(const __grid_constant__ Op op,
                            const __grid_constant__ aril_cuda_reduction r,
                            const typename Op::acc *partial)
{
    typedef typename Op::acc acc;
    const int width = ARIL_CUDA_FINISH_WIDTH, threads = ARIL_CUDA_REDUCE_THREADS;
    const int x = threadIdx.x % width, y = threadIdx.x / width;
    const int64_t i = (int64_t)blockIdx.x * width + x;
    __shared__ alignas(8) unsigned char memory[threads / 32 * width * sizeof(acc)];
    acc *part = reinterpret_cast<acc *>(memory), a = op.neutral();
    if (i < r.results) {
#pragma unroll 4
        for (int s = y; s < r.splits; s += threads / width)
            a = op.combine(a, partial[s * r.results + i]);
    }
#pragma unroll
    for (int mask = width; mask < 32; mask *= 2) {
        acc other = aril_cuda_swap(a, mask);
        a = (threadIdx.x & mask) ? op.combine(other, a) : op.combine(a, other);
    }
    if (threadIdx.x % 32 < width) part[threadIdx.x / 32 * width + x] = a;
    __syncthreads();
    if (threadIdx.x >= width || i >= r.results) return;
    for (int w = 1; w < threads / 32; w++) a = op.combine(a, part[w * width + x]);
    int across = r.by_row ? 1 : Op::lanes, lane = (int)(i % across);
    int64_t at[ARIL_CUDA_AXES_OPERANDS];
    r.kept.offsets(i / across, at);
    op.finish(i, at[0] + lane * r.lane[0], at[1] + lane * r.lane[1], at[2] + lane * r.lane[2], a);
}

/* Bytes for the partial results of a reduction that was cut. */
static inline size_t aril_cuda_reduce_bytes(const aril_cuda_reduction &r, size_t acc)
{
    return r.splits > 1 ? (size_t)r.results * (size_t)r.splits * acc : 0;
}

/* Launches the reduction: one pass or two. `workspace`: aril_cuda_reduce_bytes. */
template <typename Op>
static void aril_cuda_reduce_launch(cudaStream_t stream, const Op &op, const aril_cuda_reduction &r,
                                    void *workspace)
{
    const int threads = ARIL_CUDA_REDUCE_THREADS, each = ARIL_CUDA_FINISH_WIDTH;
    typename Op::acc *partial = r.splits > 1 ? (typename Op::acc *)workspace : nullptr;
    int64_t per_block = r.by_row ? threads / r.width : r.width;
    dim3 grid((unsigned)((r.kept.count + per_block - 1) / per_block), (unsigned)r.splits);
    if (r.kept.count == 0) return;
    if (r.by_row)
        aril_cuda_reduce_pass<Op, true><<<grid, threads, 0, stream>>>(op, r, partial);
    else
        aril_cuda_reduce_pass<Op, false><<<grid, threads, 0, stream>>>(op, r, partial);
    if (partial)
        aril_cuda_reduce_finish<Op>
            <<<(unsigned)((r.results + each - 1) / each), threads, 0, stream>>>(op, r, partial);
}

#endif
