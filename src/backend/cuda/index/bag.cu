/* embedding_bag and its gradients: sums of rows of a weight by bags of indices. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/block.cuh"
#include "backend/cuda/index/index.cuh"
#include "ops/index/embedding_bag.h"

/* The bags of a call. Wrong offsets give empty bags, wrong indices are skipped. */
struct bags {
    int64_t n, entries, rows, width, padding;
    int64_t given;  /* offsets */
    int64_t length; /* entries of every bag, without offsets */
    bool mean, have_offsets;
    aril_cuda_indices index, offset;
    aril_cuda_report report;

    __device__ __forceinline__ int64_t start(int64_t b) const
    {
        return !have_offsets ? b * length : b < given ? offset[b] : entries;
    }
    /* The entries of bag b. */
    __device__ __forceinline__ void range(int64_t b, int64_t *first, int64_t *end) const
    {
        *first = start(b);
        *end = start(b + 1);
        if (*first < 0 || *end > entries || *end < *first) *end = *first = 0;
    }
    /* The row of entry k; -1 if it is padding or wrong. */
    __device__ __forceinline__ int64_t row(int64_t k) const
    {
        int64_t at = index[k];
        return at == padding || at < 0 || at >= rows ? -1 : at;
    }
};

/* weight: the tensor whose shape is [rows, width]; the offsets follow the indices. */
static bags bags_of(const aril_run *r, const aril_tensor *weight, int at)
{
    const bag_attrs *a = aril_cuda_attrs<bag_attrs>(r);
    const aril_tensor *index = aril_cuda_in(r, at), *offsets = aril_cuda_in(r, at + 1);
    bags b = {};
    b.entries = aril_cuda_host->numel(index);
    b.rows = aril_cuda_dim(weight, 0);
    b.width = aril_cuda_dim(weight, 1);
    b.padding = a->padding[0];
    b.mean = a->mean[0] != 0;
    b.have_offsets = offsets != nullptr;
    b.given = offsets ? aril_cuda_host->numel(offsets) : 0;
    b.length = offsets ? 0 : aril_cuda_dim(index, 1);
    b.n = offsets ? b.given - a->last[0] : aril_cuda_dim(index, 0);
    return b;
}

static void bind(const aril_run *r, bags *b, int at)
{
    b->index = aril_cuda_indices_of(r, at);
    if (b->have_offsets) b->offset = aril_cuda_indices_of(r, at + 1);
    b->report = aril_cuda_report_of(r);
}

/* ---- counting and checking ---- */

/* A warp per bag: reports what is wrong, and counts entries that are not padding. An end that no
 * offset gives is that of the indices: if it comes too early, the bag before reports the offset. */
static __global__ void count_bags(const __grid_constant__ bags b, double *count)
{
    int lane = threadIdx.x & 31;
    int64_t step = (int64_t)gridDim.x * blockDim.x / 32;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < b.n; i += step) {
        int64_t first = b.start(i), end = b.start(i + 1);
        if (lane == 0 && i == 0 && b.given && b.offset[0] != 0)
            aril_cuda_fail(b.report, ARIL_CUDA_BAD_FIRST_BAG, b.offset[0]);
        if (lane == 0 && i + 1 < b.given && (end < first || end > b.entries))
            aril_cuda_fail(b.report, ARIL_CUDA_BAD_BAG, end, b.entries, 0, first);
        b.range(i, &first, &end);
        int found = 0;
        for (int64_t k = first + lane; k < end; k += 32) found += b.index[k] != b.padding;
        found = aril_cuda_warp_reduce<aril_cuda_sum>(found);
        if (lane == 0) count[i] = found;
    }
}

static __global__ void check_rows(const __grid_constant__ bags b)
{
    ARIL_CUDA_LOOP(k, b.entries)
    {
        int64_t at = b.index[k];
        if (at < 0 || at >= b.rows) aril_cuda_fail(b.report, ARIL_CUDA_BAD_ROW, at, b.rows);
    }
}

static aril_status prepare(aril_run *r, const bags &b, double *count)
{
    cudaStream_t stream = aril_cuda_stream(r);
    if (b.n) count_bags<<<aril_cuda_blocks(r, b.n, 8), 256, 0, stream>>>(b, count);
    if (b.entries) check_rows<<<aril_cuda_blocks(r, b.entries, 256), 256, 0, stream>>>(b);
    return aril_cuda_launched(r);
}

/* The factor of entry k: its own weight, and 1 / count in a mean. */
template <typename S>
static __device__ __forceinline__ double factor(const bags &b, const S *scale, const double *count,
                                                int64_t bag, int64_t k)
{
    double f = scale ? aril_cuda_to<double>(scale[k]) : 1;
    return b.mean ? f / count[bag] : f;
}

/* Blocks of rows: a thread per column, several bags where columns are few. */
static dim3 block_for(int64_t width)
{
    unsigned wide = 32;
    while (wide < 256 && (int64_t)wide < width) wide *= 2;
    return dim3(wide, 256 / wide);
}
static dim3 grid_for(const aril_run *r, int64_t n, int64_t width, dim3 block)
{
    int64_t across = (width + block.x - 1) / block.x;
    return dim3(aril_cuda_blocks(r, n, block.y, 16), (unsigned)(across < 256 ? across : 256));
}
#define COLUMNS(d, width)                                                         \
    for (int64_t d = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; d < (width); \
         d += (int64_t)gridDim.y * blockDim.x)
#define ROWS(i, n)                                                            \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < (n); \
         i += (int64_t)gridDim.x * blockDim.y)

/* ---- sums ---- */

/* y[bag] = sum of factor * weight[row], in double as on the CPU */
template <typename S>
static __global__ void sum_bags(const __grid_constant__ bags b, const double *__restrict__ count,
                                const S *__restrict__ weight, const S *__restrict__ scale,
                                S *__restrict__ y)
{
    typedef typename aril_cuda_type<S>::compute C;
    ROWS(i, b.n)
    {
        int64_t first, end;
        b.range(i, &first, &end);
        COLUMNS(d, b.width)
        {
            double sum = 0;
            for (int64_t k = first; k < end; k++) {
                int64_t row = b.row(k);
                if (row < 0) continue;
                sum +=
                    factor(b, scale, count, i, k) * aril_cuda_to<double>(weight[row * b.width + d]);
            }
            y[i * b.width + d] = aril_cuda_from<S>((C)sum);
        }
    }
}

size_t aril_cuda_bag_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    w.take<double>(bags_of(r, aril_cuda_in(r, 0), 1).n);
    return w.used;
}

aril_status aril_cuda_bag_run(aril_run *r)
{
    const aril_tensor *weight = aril_cuda_in(r, 0), *scale = aril_cuda_in(r, 3);
    aril_tensor *out = aril_cuda_out(r, 0);
    bags b = bags_of(r, weight, 1);
    bind(r, &b, 1);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    double *count = w.take<double>(b.n);
    aril_status s = prepare(r, b, count);
    if (s < 0 || aril_cuda_host->numel(out) == 0) return s;
    dim3 block = block_for(b.width), grid = grid_for(r, b.n, b.width, block);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(out), S, {
        sum_bags<S><<<grid, block, 0, aril_cuda_stream(r)>>>(
            b, count, static_cast<const S *>(aril_cuda_data(weight)),
            static_cast<const S *>(scale ? aril_cuda_data(scale) : nullptr),
            static_cast<S *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}

/* ---- the bag of each entry ---- */

/* The bag that contains entry k; -1: none. */
static __device__ int64_t bag_with(const bags &b, int64_t k)
{
    if (!b.have_offsets) return k / b.length;
    int64_t low = 0, high = b.n; /* the first bag that starts after k */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (b.start(middle) > k)
            high = middle;
        else
            low = middle + 1;
    }
    int64_t first, end;
    if (low == 0) return -1;
    b.range(low - 1, &first, &end);
    return k >= first && k < end ? low - 1 : -1;
}

/* The bag of every entry; as keys, its row, or `rows` if it takes no part. */
static __global__ void find_bags(const __grid_constant__ bags b, int64_t *bag, uint64_t *key)
{
    ARIL_CUDA_LOOP(k, b.entries)
    {
        int64_t at = bag_with(b, k), row = b.row(k);
        if (bag) bag[k] = at;
        if (key) key[k] = (uint64_t)(at < 0 || row < 0 ? b.rows : row);
    }
}

/* ---- the gradient of the weight ---- */

/* dweight[row] = sum of factor * g[bag] over its entries, in order. */
template <typename S>
static __global__ void spread_bags(const __grid_constant__ bags b, const double *__restrict__ count,
                                   const uint64_t *__restrict__ key,
                                   const uint32_t *__restrict__ order,
                                   const int64_t *__restrict__ bag, const S *__restrict__ g,
                                   const S *__restrict__ scale, S *__restrict__ out)
{
    typedef typename aril_cuda_type<S>::compute C;
    ROWS(j, b.entries)
    {
        uint64_t row = key[j];
        if (row == (uint64_t)b.rows || !aril_cuda_is_first(key, j)) continue;
        COLUMNS(d, b.width)
        {
            C sum = 0;
            for (int64_t t = j; t < b.entries && key[t] == row; t++) {
                int64_t k = order[t], at = bag[k];
                C f = (C)factor(b, scale, count, at, k);
                sum += f * aril_cuda_to<C>(g[at * b.width + d]);
            }
            out[row * b.width + d] = aril_cuda_from<S>(sum);
        }
    }
}

struct grad_scratch {
    double *count;
    int64_t *bag;
    aril_cuda_sorting sorting;
};

static grad_scratch grad_carve(aril_cuda_carver *w, const bags &b)
{
    grad_scratch s;
    s.count = w->take<double>(b.n);
    s.bag = w->take<int64_t>(b.entries);
    s.sorting = aril_cuda_sorting_of(w, b.entries, aril_cuda_bits((uint64_t)b.rows));
    return s;
}

size_t aril_cuda_bag_grad_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    grad_carve(&w, bags_of(r, aril_cuda_in(r, 4), 1));
    return w.used;
}

aril_status aril_cuda_bag_grad_run(aril_run *r)
{
    const aril_tensor *g = aril_cuda_in(r, 0), *scale = aril_cuda_in(r, 3);
    aril_tensor *out = aril_cuda_out(r, 0);
    bags b = bags_of(r, aril_cuda_in(r, 4), 1);
    bind(r, &b, 1);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    grad_scratch at = grad_carve(&w, b);
    size_t bytes =
        (size_t)aril_cuda_host->numel(out) * (size_t)aril_cuda_size(aril_cuda_host->dtype(out));
    aril_status s = aril_cuda_clear(r, aril_cuda_data(out), bytes);
    if (s == ARIL_OK) s = prepare(r, b, at.count);
    if (s < 0 || b.entries == 0 || bytes == 0) return s;
    find_bags<<<aril_cuda_blocks(r, b.entries, 256), 256, 0, aril_cuda_stream(r)>>>(
        b, at.bag, at.sorting.given);
    s = aril_cuda_sort(r, at.sorting);
    if (s < 0) return s;
    dim3 block = block_for(b.width), grid = grid_for(r, b.entries, b.width, block);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(out), S, {
        spread_bags<S><<<grid, block, 0, aril_cuda_stream(r)>>>(
            b, at.count, at.sorting.key, at.sorting.order, at.bag,
            static_cast<const S *>(aril_cuda_data(g)),
            static_cast<const S *>(scale ? aril_cuda_data(scale) : nullptr),
            static_cast<S *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}

/* ---- the gradient of the factors ---- */

/* A warp per entry: dscale[k] = g[bag] . weight[row] (/ count); 0 where it takes no part. */
template <typename S>
static __global__ void dot_bags(const __grid_constant__ bags b, const double *__restrict__ count,
                                const int64_t *__restrict__ bag, const S *__restrict__ g,
                                const S *__restrict__ weight, S *__restrict__ out)
{
    typedef typename aril_cuda_type<S>::compute C;
    int lane = threadIdx.x & 31;
    int64_t step = (int64_t)gridDim.x * blockDim.x / 32;
    for (int64_t k = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; k < b.entries;
         k += step) {
        int64_t at = bag[k], row = b.row(k);
        double sum = 0;
        if (at >= 0 && row >= 0)
            for (int64_t d = lane; d < b.width; d += 32)
                sum += aril_cuda_to<double>(g[at * b.width + d]) *
                       aril_cuda_to<double>(weight[row * b.width + d]);
        sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
        bool part = at >= 0 && row >= 0;
        if (lane == 0)
            out[k] = aril_cuda_from<S>((C)(part ? factor<S>(b, nullptr, count, at, k) * sum : 0.0));
    }
}

size_t aril_cuda_bag_scale_grad_bytes(const aril_run *r)
{
    bags b = bags_of(r, aril_cuda_in(r, 1), 2);
    aril_cuda_carver w = {};
    w.take<double>(b.n);
    w.take<int64_t>(b.entries);
    return w.used;
}

aril_status aril_cuda_bag_scale_grad_run(aril_run *r)
{
    const aril_tensor *g = aril_cuda_in(r, 0), *weight = aril_cuda_in(r, 1);
    aril_tensor *out = aril_cuda_out(r, 0);
    bags b = bags_of(r, weight, 2);
    bind(r, &b, 2);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    double *count = w.take<double>(b.n);
    int64_t *bag = w.take<int64_t>(b.entries);
    aril_status s = prepare(r, b, count);
    if (s < 0 || b.entries == 0) return s;
    find_bags<<<aril_cuda_blocks(r, b.entries, 256), 256, 0, aril_cuda_stream(r)>>>(b, bag,
                                                                                    nullptr);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(out), S, {
        dot_bags<S><<<aril_cuda_blocks(r, b.entries, 8), 256, 0, aril_cuda_stream(r)>>>(
            b, count, bag, static_cast<const S *>(aril_cuda_data(g)),
            static_cast<const S *>(aril_cuda_data(weight)), static_cast<S *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}

/* ---- the largest ---- */

/* In each column of a bag the first of the largest rows, or the first NaN. */
template <typename S>
static __global__ void largest_of_bags(const __grid_constant__ bags b, const S *__restrict__ weight,
                                       int64_t *__restrict__ out, uint8_t *__restrict__ present)
{
    typedef typename aril_cuda_type<S>::compute C;
    ROWS(i, b.n)
    {
        int64_t first, end;
        b.range(i, &first, &end);
        if (blockIdx.y == 0 && threadIdx.x == 0) {
            bool any = false;
            for (int64_t k = first; k < end && !any; k++) any = b.row(k) >= 0;
            present[i] = any;
        }
        COLUMNS(d, b.width)
        {
            int64_t best = -1;
            C most = 0;
            for (int64_t k = first; k < end; k++) {
                int64_t row = b.row(k);
                if (row < 0) continue;
                C x = aril_cuda_to<C>(weight[row * b.width + d]);
                if (best >= 0 && !(x > most || (x != x && most == most))) continue;
                best = row;
                most = x;
            }
            out[i * b.width + d] = best < 0 ? 0 : best;
        }
    }
}

aril_status aril_cuda_bag_argmax_run(aril_run *r)
{
    const aril_tensor *weight = aril_cuda_in(r, 0);
    int64_t *out = static_cast<int64_t *>(aril_cuda_data(aril_cuda_out(r, 0)));
    uint8_t *present = static_cast<uint8_t *>(aril_cuda_data(aril_cuda_out(r, 1)));
    bags b = bags_of(r, weight, 1);
    bind(r, &b, 1);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    aril_status s = prepare(r, b, w.take<double>(b.n));
    if (s < 0 || b.n == 0) return s;
    dim3 block = block_for(b.width), grid = grid_for(r, b.n, b.width ? b.width : 1, block);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(weight), S, {
        largest_of_bags<S><<<grid, block, 0, aril_cuda_stream(r)>>>(
            b, static_cast<const S *>(aril_cuda_data(weight)), out, present);
    });
    return aril_cuda_launched(r);
}
