/* randperm and multinomial: samples in the order of 64-bit draws. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/block.cuh"
#include "backend/cuda/index/index.cuh"
#include "backend/cuda/philox.cuh"
#include "backend/cuda/random/random.cuh"
#include "ops/shape/create.h"

/* ---- randperm ---- */

static __global__ void draw_keys(aril_cuda_key key, int64_t n, uint64_t *out)
{
    ARIL_CUDA_LOOP(i, n) out[i] = aril_cuda_u64(key, (uint64_t)i);
}

template <typename S> static __global__ void store_order(const uint32_t *order, int64_t n, S *out)
{
    ARIL_CUDA_LOOP(i, n) out[i] = aril_cuda_from<S>((int64_t)order[i]);
}

size_t aril_cuda_randperm_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    aril_cuda_sorting_of(&w, aril_cuda_host->numel(aril_cuda_out(r, 0)), 64);
    return w.used;
}

/* The numbers sorted by their draws, equal draws by number. */
aril_status aril_cuda_randperm_run(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(out);
    if (n == 0) return ARIL_OK;
    aril_cuda_carver w = aril_cuda_carver_of(r);
    aril_cuda_sorting s = aril_cuda_sorting_of(&w, n, 64);
    unsigned blocks = aril_cuda_blocks(r, n, 256);
    draw_keys<<<blocks, 256, 0, aril_cuda_stream(r)>>>(aril_cuda_key_of(r, 0), n, s.given);
    aril_status status = aril_cuda_sort(r, s);
    if (status < 0) return status;
    ARIL_CUDA_SWITCH(aril_cuda_host->dtype(out), S, {
        store_order<S>
            <<<blocks, 256, 0, aril_cuda_stream(r)>>>(s.order, n,
                                                      static_cast<S *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}

/* ---- multinomial ---- */

enum { THREADS = 256 };

struct sampling {
    aril_cuda_key key;
    int64_t rows, k, n;
    bool replacement;
    int dtype; /* of the weights */
    const void *weight;
    int64_t *out;
    aril_cuda_report report;

    __device__ __forceinline__ double weight_at(int64_t row, int64_t i) const
    {
        return dtype == ARIL_F64 ? static_cast<const double *>(weight)[row * k + i]
                                 : (double)static_cast<const float *>(weight)[row * k + i];
    }
};

/* Checks a row: true if samples can be drawn from it. All threads of the block take part. */
static __device__ bool row_is_valid(const sampling &s, int64_t row)
{
    double total = 0;
    int bad = 0, positive = 0; /* positive: up to n of a thread */
    for (int64_t i = threadIdx.x; i < s.k; i += blockDim.x) {
        double w = s.weight_at(row, i);
        bad |= !(w >= 0);
        if (w > 0 && positive < s.n && positive < INT32_MAX / THREADS) positive++;
        total += w;
    }
    total = aril_cuda_block_sum(total);
    bad = aril_cuda_block_reduce<aril_cuda_largest>(bad, 0);
    positive = aril_cuda_block_sum(positive);
    if (bad || !(total < (double)INFINITY)) {
        if (threadIdx.x == 0) aril_cuda_fail(s.report, ARIL_CUDA_BAD_WEIGHTS);
        return false;
    }
    if (positive == 0 || (!s.replacement && positive < s.n && positive < INT32_MAX / THREADS)) {
        if (threadIdx.x == 0)
            aril_cuda_fail(s.report, positive ? ARIL_CUDA_BAD_TOO_FEW : ARIL_CUDA_BAD_NO_WEIGHT,
                           s.n);
        return false;
    }
    return true;
}

static __device__ void clear_row(const sampling &s, int64_t row)
{
    for (int64_t d = threadIdx.x; d < s.n; d += blockDim.x) s.out[row * s.n + d] = 0;
}

/* sum[i] = the sum of the weights of a row up to i. */
static __device__ void sum_row(const sampling &s, int64_t row, double *sum)
{
    __shared__ double part[THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double carry = 0;
    for (int64_t first = 0; first < s.k; first += THREADS) {
        int64_t i = first + threadIdx.x;
        double x = i < s.k ? s.weight_at(row, i) : 0;
        for (int d = 1; d < 32; d *= 2) {
            double other = __shfl_up_sync(0xffffffffu, x, d);
            if (lane >= d) x += other;
        }
        if (lane == 31) part[warp] = x;
        __syncthreads();
        double before = carry;
        for (int w = 0; w < THREADS / 32; w++) {
            if (w < warp) before += part[w];
            carry += part[w];
        }
        if (i < s.k) sum[i] = before + x;
        __syncthreads();
    }
}

/* With replacement, a block per row: the first index whose sum is above a uniform number. Rounding
 * may name an index of weight 0 beside it, so the search goes on to the next one that has any. */
static __global__ void __launch_bounds__(THREADS)
    draw_again(const __grid_constant__ sampling s, double *sums)
{
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        double *sum = sums + row * s.k;
        if (!row_is_valid(s, row)) {
            clear_row(s, row);
            continue;
        }
        sum_row(s, row, sum);
        __syncthreads();
        double total = sum[s.k - 1];
        for (int64_t d = threadIdx.x; d < s.n; d += blockDim.x) {
            double target =
                aril_cuda_uniform_f64(aril_cuda_u64(s.key, (uint64_t)(row * s.n + d))) * total;
            int64_t low = 0, high = s.k - 1;
            while (low < high) {
                int64_t middle = low + (high - low) / 2;
                if (sum[middle] > target)
                    high = middle;
                else
                    low = middle + 1;
            }
            while (low < s.k - 1 && !(s.weight_at(row, low) > 0)) low++;
            while (low > 0 && !(s.weight_at(row, low) > 0)) low--;
            s.out[row * s.n + d] = low;
        }
        __syncthreads();
    }
}

/* Without: each index comes after a waiting time, exponential with its weight as the rate. Times
 * are not negative, so their bits sort as they do. */
static __global__ void draw_times(const __grid_constant__ sampling s, uint64_t *time)
{
    ARIL_CUDA_LOOP(i, s.rows * s.k)
    {
        double w = s.weight_at(0, i);
        double u = aril_cuda_uniform_f64(aril_cuda_u64(s.key, (uint64_t)i));
        double t = w > 0 ? fabs(-log1p(-u) / w) : (double)INFINITY;
        /* An infinite time of a positive weight still comes before those without any. */
        time[i] = w > 0 ? (uint64_t)__double_as_longlong(t) : UINT64_MAX;
    }
}

static __global__ void find_rows(const uint32_t *order, int64_t n, int64_t k, uint64_t *row)
{
    ARIL_CUDA_LOOP(i, n) row[i] = (uint64_t)(order[i] / k);
}

/* The first n of each row, sorted by row and time. */
static __global__ void __launch_bounds__(THREADS)
    take_first(const __grid_constant__ sampling s, const uint32_t *order)
{
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        bool valid = row_is_valid(s, row);
        for (int64_t d = threadIdx.x; d < s.n && valid; d += blockDim.x)
            s.out[row * s.n + d] = (int64_t)order[row * s.k + d] - row * s.k;
        if (!valid) clear_row(s, row);
    }
}

static sampling sampling_of(const aril_run *r)
{
    const aril_tensor *w = aril_cuda_in(r, 1);
    sampling s = {};
    s.k = aril_cuda_dim(w, -1);
    s.rows = aril_cuda_host->ndim(w) == 2 ? aril_cuda_dim(w, 0) : 1;
    s.n = *aril_cuda_host->attr_i64(r, "n");
    s.replacement = *aril_cuda_host->attr_i64(r, "replacement") != 0;
    s.dtype = aril_cuda_host->dtype(w);
    return s;
}

struct scratch {
    double *sums;
    aril_cuda_sorting by_time, by_row;
};

static scratch carve(aril_cuda_carver *w, const sampling &s)
{
    scratch at = {};
    int64_t n = s.rows * s.k;
    if (s.replacement) {
        at.sums = w->take<double>(n);
        return at;
    }
    at.by_time = aril_cuda_sorting_of(w, n, 64);
    if (s.rows > 1) at.by_row = aril_cuda_sorting_of(w, n, aril_cuda_bits((uint64_t)s.rows));
    return at;
}

size_t aril_cuda_multinomial_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    carve(&w, sampling_of(r));
    return w.used;
}

/* Sorts by time, then, keeping that order, by row. */
static aril_status draw_distinct(aril_run *r, const sampling &s, scratch at)
{
    int64_t n = s.rows * s.k;
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, n, 256);
    draw_times<<<blocks, 256, 0, stream>>>(s, at.by_time.given);
    aril_status status = aril_cuda_sort(r, at.by_time);
    const uint32_t *order = at.by_time.order;
    if (status == ARIL_OK && s.rows > 1) {
        at.by_row.number = at.by_time.order;
        find_rows<<<blocks, 256, 0, stream>>>(order, n, s.k, at.by_row.given);
        status = aril_cuda_sort_given(r, at.by_row);
        order = at.by_row.order;
    }
    if (status < 0) return status;
    take_first<<<aril_cuda_blocks(r, s.rows, 1), THREADS, 0, stream>>>(s, order);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_multinomial_run(aril_run *r)
{
    sampling s = sampling_of(r);
    if (s.rows == 0) return ARIL_OK;
    s.key = aril_cuda_key_of(r, 0);
    s.weight = aril_cuda_data(aril_cuda_in(r, 1));
    s.out = static_cast<int64_t *>(aril_cuda_data(aril_cuda_out(r, 0)));
    s.report = aril_cuda_report_of(r);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    scratch at = carve(&w, s);
    if (!s.replacement) return draw_distinct(r, s, at);
    draw_again<<<aril_cuda_blocks(r, s.rows, 1), THREADS, 0, aril_cuda_stream(r)>>>(s, at.sums);
    return aril_cuda_launched(r);
}
