/* Rows of a generated kernel: where they are, their reductions, and keys of random numbers. */

/* The offset of a row of operand j. */
static __device__ __forceinline__ int64_t row_offset(const aril_cuda_fused_arguments &a, int j,
                                                     uint32_t row)
{
    int64_t at = 0;
#pragma unroll 1
    for (int d = 1; d < a.ndim - 1; d++) {
        uint32_t q = (__umulhi(row, a.dim[d][1]) + row) >> a.dim[d][2];
        at += (int64_t)(row - q * a.dim[d][0]) * a.stride[j][d];
        row = q;
    }
    return a.ndim > 1 ? at + (int64_t)row * a.stride[j][a.ndim - 1] : at;
}

/* W elements of a row: neighbours in memory, unless W is 1. */
template <typename S, int W>
static __device__ __forceinline__ vector<S, W> read_row(const S *row, uint32_t i, int32_t stride)
{
    if (W > 1) return *reinterpret_cast<const vector<S, W> *>(row + i);
    vector<S, W> v;
    v.at[0] = row[(int64_t)i * stride];
    return v;
}

template <typename S, int W>
static __device__ __forceinline__ void write_row(S *row, uint32_t i, int32_t stride,
                                                 const vector<S, W> &v)
{
    if (W > 1)
        *reinterpret_cast<vector<S, W> *>(row + i) = v;
    else
        row[(int64_t)i * stride] = v.at[0];
}

/* Over the threads that hold a row: a warp, or the whole block. */
template <int THREADS, typename C> static __device__ __forceinline__ C row_sum(C x)
{
    return THREADS == 32 ? aril_cuda_warp_reduce<aril_cuda_sum>(x) : aril_cuda_block_sum(x);
}
template <int THREADS, typename C> static __device__ __forceinline__ C row_max(C x)
{
    return THREADS == 32 ? aril_cuda_warp_reduce<aril_cuda_largest>(x)
                         : aril_cuda_block_reduce<aril_cuda_largest, C>(x, -(C)INFINITY);
}

/* Adds what the blocks have of one column, and divides by `count`: 32 columns for each block. */
template <typename S, typename C>
static __device__ __forceinline__ void finish_columns(const aril_cuda_fused_arguments &a, int k,
                                                      uint32_t columns, C count)
{
    __shared__ C part[32][33];
    const uint32_t lane = threadIdx.x & 31, group = threadIdx.x >> 5;
    const uint32_t column = blockIdx.x * 32 + lane;
    const C *from = static_cast<const C *>(a.partial[k]) + column;
    C sum = 0;
    if (blockIdx.x * 32 >= columns) return;
    if (column < columns)
        for (uint32_t i = group; i < a.parts; i += 32) sum += from[(uint64_t)i * columns];
    part[group][lane] = sum;
    __syncthreads();
    sum = aril_cuda_warp_reduce<aril_cuda_sum>(part[lane][group]);
    if (lane == 0) part[0][group] = sum; /* row 0 is read by its own warp alone, before */
    __syncthreads();
    if (group == 0 && column < columns)
        static_cast<S *>(a.base[k])[(int64_t)column * (columns > 1 ? a.stride[k][0] : 0)] =
            aril_cuda_from<S>(part[0][lane] / count);
    __syncthreads();
}

struct aril_cuda_key {
    uint64_t seed, call;
    const uint64_t *at;

    __device__ __forceinline__ aril_cuda_key read() const
    {
        return at ? aril_cuda_key{ at[0], at[1], nullptr } : *this;
    }
};
