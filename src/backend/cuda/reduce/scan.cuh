/* Scans along lines. An op is a struct, passed by value, with
 *
 *     acc                             plain data, a multiple of 4 bytes
 *     acc neutral()
 *     acc load(at, k)                 element k of a line; `at`: offsets of its operands
 *     acc combine(a, b)               a is the earlier one
 *     void put(at, k, before, upto)   stores what belongs to element k: the combination of all
 *                                     elements before it, and with it
 *
 * Long lines are cut into chunks: the totals of all, what comes before each, then the results. */
#ifndef ARIL_CUDA_REDUCE_SCAN_CUH
#define ARIL_CUDA_REDUCE_SCAN_CUH

#include "backend/cuda/reduce/layout.cuh"

/* Lines, and the elements of each in the order of the scan. */
struct aril_cuda_lines {
    aril_cuda_axes lines, along; /* operands: x, out 0, and out 1 or a second input */
    int64_t chunk;
    int chunks, threads;
    bool reverse, alone; /* alone: a thread for each line */

    __device__ __forceinline__ void offsets(const int64_t (&base)[3], int64_t k,
                                            int64_t (&at)[3]) const
    {
        along.offsets(reverse ? along.count - 1 - k : k, at);
#pragma unroll
        for (int i = 0; i < 3; i++) at[i] += base[i];
    }
};

/* Decides how the lines are cut. */
void aril_cuda_lines_cut(aril_cuda_lines *l);
/* Bytes for accumulators of up to 16 bytes. */
static inline size_t aril_cuda_lines_bytes(const aril_cuda_lines &l)
{
    return l.chunks > 1 ? (size_t)l.lines.count * (size_t)l.chunks * 16 : 0;
}

/* The value of the lane `by` lower; lanes below it keep theirs. */
template <typename T> static __device__ __forceinline__ T aril_cuda_lift(T x, int by)
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
        u.word[i] = __shfl_up_sync(0xffffffffu, u.word[i], by);
    return u.value;
}

/* x combined with those of all lower threads of the block, of at most 256: returns that of the
 * lower ones alone, *total is that of the block. */
template <typename Op>
static __device__ __forceinline__ typename Op::acc aril_cuda_block_scan(const Op &op,
                                                                        typename Op::acc x,
                                                                        typename Op::acc *total)
{
    typedef typename Op::acc acc;
    __shared__ alignas(8) unsigned char memory[8 * sizeof(acc)];
    acc *part = reinterpret_cast<acc *>(memory);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        acc low = aril_cuda_lift(x, by);
        if (lane >= by) x = op.combine(low, x);
    }
    acc before = aril_cuda_lift(x, 1);
    if (lane == 0) before = op.neutral();
    __syncthreads(); /* an earlier call may still be reading */
    if (lane == 31) part[warp] = x;
    __syncthreads();
    acc low = op.neutral(), all = op.neutral();
    for (int w = 0; w < warps; w++) {
        if (w == warp) low = all;
        all = op.combine(all, part[w]);
    }
    *total = all;
    return op.combine(low, before);
}

template <typename Op>
static __global__ void aril_cuda_scan_alone(const __grid_constant__ Op op,
                                            const __grid_constant__ aril_cuda_lines l)
{
    int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= l.lines.count) return;
    int64_t base[3], at[3];
    l.lines.offsets(line, base);
    typename Op::acc before = op.neutral();
    for (int64_t k = 0; k < l.along.count; k++) {
        l.offsets(base, k, at);
        typename Op::acc upto = op.combine(before, op.load(at, k));
        op.put(at, k, before, upto);
        before = upto;
    }
}

/* A block for each chunk. carry: what comes before it (NULL: nothing); totals: gets the total of
 * each chunk, and no result is stored. */
template <typename Op>
static __global__ void __launch_bounds__(256)
    aril_cuda_scan_chunks(const __grid_constant__ Op op, const __grid_constant__ aril_cuda_lines l,
                          const typename Op::acc *carry, typename Op::acc *totals)
{
    typedef typename Op::acc acc;
    int64_t line = blockIdx.x / (unsigned)l.chunks,
            from = blockIdx.x % (unsigned)l.chunks * l.chunk;
    int64_t to = from + l.chunk < l.along.count ? from + l.chunk : l.along.count;
    int64_t base[3], at[3];
    l.lines.offsets(line, base);
    acc so_far = carry ? carry[blockIdx.x] : op.neutral();
    for (int64_t k = from; k < to; k += blockDim.x) { /* the same rounds for the block */
        int64_t own = k + threadIdx.x;
        acc x = op.neutral(), total;
        if (own < to) {
            l.offsets(base, own, at);
            x = op.load(at, own);
        }
        acc before = op.combine(so_far, aril_cuda_block_scan(op, x, &total));
        if (!totals && own < to) op.put(at, own, before, op.combine(before, x));
        so_far = op.combine(so_far, total);
    }
    if (totals && threadIdx.x == 0) totals[blockIdx.x] = so_far;
}

/* Replaces the totals of each line's chunks by what comes before them. */
template <typename Op>
static __global__ void aril_cuda_scan_carries(const __grid_constant__ Op op,
                                              typename Op::acc *totals, int64_t lines, int chunks)
{
    int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= lines) return;
    typename Op::acc before = op.neutral();
    for (int c = 0; c < chunks; c++) {
        typename Op::acc x = totals[line * chunks + c];
        totals[line * chunks + c] = before;
        before = op.combine(before, x);
    }
}

template <typename Op>
static void aril_cuda_scan_launch(cudaStream_t stream, const Op &op, const aril_cuda_lines &l,
                                  void *workspace)
{
    typedef typename Op::acc acc;
    static_assert(sizeof(acc) <= 16, "aril_cuda_lines_bytes");
    int64_t lines = l.lines.count;
    if (lines == 0 || l.along.count == 0) return;
    if (l.alone) {
        aril_cuda_scan_alone<Op><<<(unsigned)((lines + 127) / 128), 128, 0, stream>>>(op, l);
        return;
    }
    unsigned blocks = (unsigned)(lines * l.chunks);
    acc *totals = l.chunks > 1 ? (acc *)workspace : nullptr;
    if (totals) {
        aril_cuda_scan_chunks<Op><<<blocks, l.threads, 0, stream>>>(op, l, nullptr, totals);
        aril_cuda_scan_carries<Op>
            <<<(unsigned)((lines + 31) / 32), 32, 0, stream>>>(op, totals, lines, l.chunks);
    }
    aril_cuda_scan_chunks<Op><<<blocks, l.threads, 0, stream>>>(op, l, totals, nullptr);
}

/* The running count of n flags (0 or 1), in place. workspace: aril_cuda_count_bytes(n). */
size_t aril_cuda_count_bytes(int64_t n);
void aril_cuda_count_up(cudaStream_t stream, int64_t *flags, int64_t n, void *workspace);

#endif
