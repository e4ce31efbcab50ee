/* sum_to_like and repeat_grad: sums along dimensions that were broadcast.
 *
 * If neighbouring results are neighbours in x, a block handles 32 of them, and its rows of threads
 * go over the elements of each; otherwise a block handles one result. Where that gives few blocks,
 * the elements are split into slabs, whose sums a second kernel adds up in order. All this depends
 * on sizes alone. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/block.cuh"
#include "backend/cuda/shape/rearrange.cuh"
#include "ops/shape/concat.h"

enum { WIDE = 32, HIGH = 16, THREADS = 256, BLOCKS = 1024, SLAB = 512, UNROLL = 4 };

/* Offsets of one operand, in 32 bits where they suffice. */
struct offsets {
    bool wide;
    aril_cuda_nest<1> nest;
    aril_cuda_spread spread;

    __device__ __forceinline__ int64_t at(int64_t i) const
    {
        if (wide) return spread.offset(i);
        int32_t to[1];
        nest.offsets((uint32_t)i, to);
        return to[0];
    }
};

static offsets offsets_of(const aril_cuda_loops &l, int operand)
{
    offsets o = {};
    aril_cuda_loops one = l;
    for (int d = 0; d < l.ndim; d++) one.stride[0][d] = l.stride[operand][d];
    one.n = 1;
    if (aril_cuda_loops_numel(&one) == 0) return o; /* never asked */
    o.wide = aril_cuda_loops_too_large(&one) >= 0;
    if (!o.wide) o.nest = aril_cuda_nest_of<1>(one);
    o.spread.ndim = l.ndim;
    for (int d = 0; d < l.ndim; d++) {
        o.spread.dim[d] = l.dim[d];
        o.spread.stride[d] = l.stride[operand][d];
    }
    return o;
}

struct summing {
    int64_t results, each; /* elements of a result */
    int64_t slabs, slab;   /* elements of a slab */
    offsets kept, reduced, to;
    int dtype;
    const void *x;
    void *out;     /* results, or */
    void *partial; /* sums of slabs [slabs, results] in C, if there is more than one */
};

/* ---- elements ---- */

/* Loads elements of type S, or (void) of a dtype known at run time. */
template <typename C, typename S> struct loader {
    static __device__ __forceinline__ C of(const summing &s, int64_t i)
    {
        return aril_cuda_to<C>(static_cast<const S *>(s.x)[i]);
    }
};
template <typename C> struct loader<C, void> {
    static __device__ __forceinline__ C of(const summing &s, int64_t i)
    {
        return aril_cuda_load<C>(s.x, i, s.dtype);
    }
};

template <typename C>
static __device__ __forceinline__ void put(const summing &s, int64_t i, int64_t slab, C sum)
{
    if (s.partial)
        static_cast<C *>(s.partial)[slab * s.results + i] = sum;
    else
        aril_cuda_store<C>(s.out, s.to.at(i), s.dtype, sum);
}

/* The sum of elements k, k + step ... below `end` of the result whose first is at `base`. */
template <typename C, typename S>
static __device__ __forceinline__ C sum_some(const summing &s, int64_t base, int64_t k, int64_t end,
                                             int64_t step)
{
    C sum[UNROLL] = {};
    for (; k + (UNROLL - 1) * step < end; k += UNROLL * step) {
        C v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            v[u] = loader<C, S>::of(s, base + s.reduced.at(k + u * step));
#pragma unroll
        for (int u = 0; u < UNROLL; u++) sum[u] += v[u];
    }
    for (; k < end; k += step) sum[0] += loader<C, S>::of(s, base + s.reduced.at(k));
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ---- kernels ---- */

template <typename C, typename S>
static __global__ void __launch_bounds__(WIDE *HIGH) by_columns(const __grid_constant__ summing s)
{
    __shared__ C part[HIGH][WIDE];
    int64_t begin = (int64_t)blockIdx.y * s.slab;
    int64_t end = begin + s.slab < s.each ? begin + s.slab : s.each;
    for (int64_t first = (int64_t)blockIdx.x * WIDE; first < s.results;
         first += (int64_t)gridDim.x * WIDE) {
        int64_t i = first + threadIdx.x;
        part[threadIdx.y][threadIdx.x] =
            i < s.results ? sum_some<C, S>(s, s.kept.at(i), begin + threadIdx.y, end, HIGH) : C(0);
        __syncthreads();
        for (int half = HIGH / 2; half > 0; half /= 2) {
            if (threadIdx.y < half)
                part[threadIdx.y][threadIdx.x] += part[threadIdx.y + half][threadIdx.x];
            __syncthreads();
        }
        if (threadIdx.y == 0 && i < s.results) put<C>(s, i, blockIdx.y, part[0][threadIdx.x]);
        __syncthreads();
    }
}

/* A block, or a warp if results have few elements, for each result. */
template <typename C, typename S>
static __global__ void __launch_bounds__(THREADS) by_rows(const __grid_constant__ summing s)
{
    int64_t begin = (int64_t)blockIdx.y * s.slab;
    int64_t end = begin + s.slab < s.each ? begin + s.slab : s.each;
    if (s.each <= SLAB) {
        int lane = threadIdx.x & 31;
        int64_t step = (int64_t)gridDim.x * (THREADS / 32);
        for (int64_t i = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < s.results;
             i += step) {
            C sum = sum_some<C, S>(s, s.kept.at(i), begin + lane, end, 32);
            sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
            if (lane == 0) put<C>(s, i, blockIdx.y, sum);
        }
        return;
    }
    for (int64_t i = blockIdx.x; i < s.results; i += gridDim.x) {
        C sum = sum_some<C, S>(s, s.kept.at(i), begin + threadIdx.x, end, THREADS);
        sum = aril_cuda_block_sum(sum);
        if (threadIdx.x == 0) put<C>(s, i, blockIdx.y, sum);
    }
}

template <typename C> static __global__ void add_slabs(const __grid_constant__ summing s)
{
    const C *from = static_cast<const C *>(s.partial);
    ARIL_CUDA_LOOP(i, s.results)
    {
        C sum = 0;
        for (int64_t k = 0; k < s.slabs; k++) sum += from[k * s.results + i];
        aril_cuda_store<C>(s.out, s.to.at(i), s.dtype, sum);
    }
}

/* ---- launching ---- */

/* Whether neighbouring results are neighbours in x, or rather elements of one result. */
static bool goes_by_columns(const aril_cuda_loops &kept, const aril_cuda_loops &reduced)
{
    if (kept.ndim == 0) return false;
    int64_t across = kept.stride[1][kept.ndim - 1];
    int64_t along = reduced.ndim ? reduced.stride[0][reduced.ndim - 1] : 0;
    return (across < 0 ? -across : across) < (along < 0 ? -along : along);
}

static void split(summing *s, bool columns)
{
    int64_t per = columns ? WIDE : s->each <= SLAB ? THREADS / 32 : 1;
    int64_t blocks = (s->results + per - 1) / per, most = (s->each + SLAB - 1) / SLAB;
    int64_t want = blocks ? (BLOCKS + blocks - 1) / blocks : 1;
    s->slabs = want < most ? want : most;
    if (s->slabs < 1) s->slabs = 1;
    s->slab = (s->each + s->slabs - 1) / s->slabs;
}

static void merge(aril_cuda_loops *kept, aril_cuda_loops *reduced)
{
    aril_cuda_loops_merge(kept, 0);
    aril_cuda_loops_merge(reduced, 0);
}

static summing summing_of(const aril_cuda_loops &kept, const aril_cuda_loops &reduced)
{
    summing s = {};
    s.results = aril_cuda_loops_numel(&kept);
    s.each = aril_cuda_loops_numel(&reduced);
    split(&s, goes_by_columns(kept, reduced));
    return s;
}

size_t aril_cuda_sum_over_bytes(const aril_cuda_loops &kept_, const aril_cuda_loops &reduced_)
{
    aril_cuda_loops kept = kept_, reduced = reduced_;
    merge(&kept, &reduced);
    summing s = summing_of(kept, reduced);
    return s.slabs > 1 ? (size_t)(s.slabs * s.results) * sizeof(double) : 0;
}

template <typename C, typename S>
static aril_status sum_as(const aril_run *r, const summing &s, bool columns)
{
    cudaStream_t stream = aril_cuda_stream(r);
    if (columns) {
        int64_t blocks = (s.results + WIDE - 1) / WIDE;
        dim3 grid((unsigned)(blocks < 65536 ? blocks : 65536), (unsigned)s.slabs);
        by_columns<C, S><<<grid, dim3(WIDE, HIGH), 0, stream>>>(s);
    } else {
        int64_t per = s.each <= SLAB ? THREADS / 32 : 1, blocks = (s.results + per - 1) / per;
        dim3 grid((unsigned)(blocks < 65536 ? blocks : 65536), (unsigned)s.slabs);
        by_rows<C, S><<<grid, THREADS, 0, stream>>>(s);
    }
    if (s.partial) add_slabs<C><<<aril_cuda_blocks(r, s.results, 256), 256, 0, stream>>>(s);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_sum_over(const aril_run *r, aril_cuda_loops kept, aril_cuda_loops reduced,
                               aril_tensor *out, const aril_tensor *x)
{
    merge(&kept, &reduced);
    bool columns = goes_by_columns(kept, reduced);
    summing s = summing_of(kept, reduced);
    if (s.results == 0) return ARIL_OK;
    s.kept = offsets_of(kept, 1);
    s.to = offsets_of(kept, 0);
    s.reduced = offsets_of(reduced, 0);
    s.dtype = aril_cuda_host->dtype(x);
    s.x = aril_cuda_data(x);
    s.out = aril_cuda_data(out);
    s.partial = s.slabs > 1 ? aril_cuda_host->workspace(r) : nullptr;
    switch (s.dtype) {
    case ARIL_F16: return sum_as<float, aril_cuda_f16>(r, s, columns);
    case ARIL_BF16: return sum_as<float, aril_cuda_bf16>(r, s, columns);
    case ARIL_F32: return sum_as<float, float>(r, s, columns);
    case ARIL_F64: return sum_as<double, double>(r, s, columns);
    default: return sum_as<uint64_t, void>(r, s, columns); /* as signed ones wrap around */
    }
}

/* ---- sum_to_like ---- */

/* Splits the dimensions of x into those that the result has too, and those that are summed. */
static void split_dims(const aril_run *r, aril_cuda_loops *kept, aril_cuda_loops *reduced)
{
    const aril_tensor *x = aril_cuda_in(r, 0), *out = aril_cuda_out(r, 0);
    int ndim = aril_cuda_host->ndim(x), lead = ndim - aril_cuda_host->ndim(out);
    *kept = *reduced = {};
    kept->n = 2;
    reduced->n = 1;
    for (int d = 0; d < ndim; d++) {
        int64_t dim = aril_cuda_dim(x, d), stride = aril_cuda_host->strides(x)[d];
        if (d < lead || aril_cuda_dim(out, d - lead) != dim) {
            reduced->dim[reduced->ndim] = dim;
            reduced->stride[0][reduced->ndim++] = stride;
        } else {
            kept->dim[kept->ndim] = dim;
            kept->stride[0][kept->ndim] = aril_cuda_host->strides(out)[d - lead];
            kept->stride[1][kept->ndim++] = stride;
        }
    }
}

size_t aril_cuda_sum_to_like_bytes(const aril_run *r)
{
    aril_cuda_loops kept, reduced;
    split_dims(r, &kept, &reduced);
    return aril_cuda_sum_over_bytes(kept, reduced);
}

aril_status aril_cuda_sum_to_like_run(aril_run *r)
{
    aril_cuda_loops kept, reduced;
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_host_number n;
    if (aril_cuda_host->number(r, 0, &n)) return aril_cuda_copy_whole(r, out, 0);
    split_dims(r, &kept, &reduced);
    if (aril_cuda_loops_numel(&reduced) == 1) /* nothing is summed */
        return aril_cuda_place(r, kept, aril_cuda_data(out), aril_cuda_data(x),
                               aril_cuda_size(aril_cuda_host->dtype(out)));
    return aril_cuda_sum_over(r, kept, reduced, out, x);
}

/* ---- repeat_grad ---- */

/* g as [outer, times, n, inner], or with `each` as [outer, n, times, inner]. */
static void split_repeats(const aril_run *r, aril_cuda_loops *kept, aril_cuda_loops *reduced)
{
    const repeat_attrs *a = aril_cuda_attrs<repeat_attrs>(r);
    const aril_tensor *out = aril_cuda_out(r, 0);
    int axis = (int)a->axis[0], along = a->each[0] ? 2 : 1;
    int64_t dim[4] = { 1, 1, 1, 1 }, from = 1, to = 1;
    for (int d = 0; d < aril_cuda_host->ndim(out); d++)
        if (d != axis) dim[d < axis ? 0 : 3] *= aril_cuda_dim(out, d);
    dim[along] = a->times[0];
    dim[3 - along] = aril_cuda_dim(out, axis);
    *kept = *reduced = {};
    kept->n = 2;
    kept->ndim = 3;
    reduced->n = reduced->ndim = 1;
    for (int d = 3, k = 2; d >= 0; d--) {
        if (d == along) {
            reduced->dim[0] = dim[d];
            reduced->stride[0][0] = from;
        } else {
            kept->dim[k] = dim[d];
            kept->stride[0][k] = to;
            kept->stride[1][k--] = from;
            to *= dim[d];
        }
        from *= dim[d];
    }
}

size_t aril_cuda_repeat_grad_bytes(const aril_run *r)
{
    aril_cuda_loops kept, reduced;
    split_repeats(r, &kept, &reduced);
    return aril_cuda_sum_over_bytes(kept, reduced);
}

aril_status aril_cuda_repeat_grad_run(aril_run *r)
{
    aril_cuda_loops kept, reduced;
    split_repeats(r, &kept, &reduced);
    return aril_cuda_sum_over(r, kept, reduced, aril_cuda_out(r, 0), aril_cuda_in(r, 0));
}
