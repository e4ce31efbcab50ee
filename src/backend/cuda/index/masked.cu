/* nonzero, masked_select, masked_scatter and its gradient, one_hot.
 *
 * The place of a selected element is how many come before it. A first pass counts in tiles, a
 * single block sums up the counts of all tiles, and a last pass moves elements. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/index/index.cuh"
#include "ops/index/masked.h"

enum { THREADS = 256, PER_THREAD = 8, TILE = THREADS * PER_THREAD, SUMS = 1024 };

/* ---- which elements are selected ---- */

/* Element i is selected if it is not 0 apart from its sign bit (floats), */
template <typename U> struct nonzero_test {
    const U *at;
    U mask;
    __device__ __forceinline__ bool operator()(int64_t i) const
    {
        return (at[i] & mask) != 0;
    }
};
/* or if the mask, broadcast, is true there. */
struct mask_test {
    const uint8_t *at;
    aril_cuda_spread spread;
    __device__ __forceinline__ bool operator()(int64_t i) const
    {
        return at[spread.offset(i)] != 0;
    }
};

/* ---- counting ---- */

/* Within a tile, thread t looks at elements t, t + THREADS ...: the bits of its answers, and for
 * each the number of selected elements of the tile before it. Returns the tile's count. */
template <typename Test>
static __device__ int look_at_tile(const Test &test, int64_t first, int64_t n, unsigned *selected,
                                   int *before)
{
    __shared__ int warps[PER_THREAD][THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads(); /* an earlier tile may still be reading */
    *selected = 0;
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        int64_t i = first + k * THREADS + threadIdx.x;
        bool yes = i < n && test(i);
        unsigned all = __ballot_sync(0xffffffffu, yes);
        *selected |= (unsigned)yes << k;
        before[k] = __popc(all & ((1u << lane) - 1));
        if (lane == 0) warps[k][warp] = __popc(all);
    }
    __syncthreads();
    int sum = 0;
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++)
        for (int w = 0; w < THREADS / 32; w++) {
            if (w == warp) before[k] += sum;
            sum += warps[k][w];
        }
    return sum;
}

template <typename Test>
static __global__ void __launch_bounds__(THREADS)
    count_tiles(const __grid_constant__ Test test, int64_t n, int64_t tiles, int64_t *count)
{
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        unsigned selected;
        int before[PER_THREAD];
        int sum = look_at_tile(test, tile * TILE, n, &selected, before);
        if (threadIdx.x == 0) count[tile] = sum;
    }
}

/* Replaces each count by the sum of those before it; count[n] becomes the sum of all. One block. */
static __global__ void __launch_bounds__(SUMS) sum_up(int64_t *count, int64_t n)
{
    __shared__ int64_t part[SUMS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int64_t carry = 0;
    for (int64_t first = 0; first < n; first += SUMS) {
        int64_t i = first + threadIdx.x, own = i < n ? count[i] : 0, sum = own;
        for (int d = 1; d < 32; d *= 2) {
            int64_t other = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += other;
        }
        if (lane == 31) part[warp] = sum;
        __syncthreads();
        int64_t before = 0, all = 0;
        for (int w = 0; w < SUMS / 32; w++) {
            if (w < warp) before += part[w];
            all += part[w];
        }
        if (i < n) count[i] = carry + before + sum - own;
        carry += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) count[n] = carry;
}

/* ---- moving ---- */

/* Calls act(i, selected, place) for each element. */
template <typename Test, typename Act>
static __global__ void __launch_bounds__(THREADS)
    act_on_tiles(const __grid_constant__ Test test, int64_t n, int64_t tiles,
                 const int64_t *__restrict__ count, const __grid_constant__ Act act)
{
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        unsigned selected;
        int before[PER_THREAD];
        look_at_tile(test, tile * TILE, n, &selected, before);
        int64_t base = count[tile];
#pragma unroll
        for (int k = 0; k < PER_THREAD; k++) {
            int64_t i = tile * TILE + k * THREADS + threadIdx.x;
            if (i < n) act(i, selected >> k & 1, base + before[k]);
        }
    }
}

/* The indices of element i. */
struct put_indices {
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
    int64_t *out;
    __device__ __forceinline__ void operator()(int64_t i, bool selected, int64_t place) const
    {
        if (!selected) return;
#pragma unroll 1
        for (int d = ndim - 1; d >= 0; d--) {
            int64_t q = i / dim[d];
            out[place * ndim + d] = i - q * dim[d];
            i = q;
        }
    }
};
/* x packed into out, which has room for `room` elements. */
template <typename U> struct pack {
    const U *x;
    U *out;
    int64_t room;
    __device__ __forceinline__ void operator()(int64_t i, bool selected, int64_t place) const
    {
        if (selected && place < room) out[place] = x[i];
    }
};
/* out = src, in order, where selected, else x. */
template <typename U> struct unpack {
    const U *x, *src;
    U *out;
    int64_t room;
    __device__ __forceinline__ void operator()(int64_t i, bool selected, int64_t place) const
    {
        out[i] = selected && place < room ? src[place] : x[i];
    }
};

static __global__ void check_room(const int64_t *total, int64_t room, aril_cuda_report report)
{
    if (*total > room) aril_cuda_fail(report, ARIL_CUDA_BAD_MASK, *total, room);
}

/* ---- runs ---- */

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

size_t aril_cuda_masked_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    w.take<int64_t>(tiles_of(aril_cuda_host->numel(aril_cuda_in(r, 0))) + 1);
    w.take<uint64_t>(2);
    return w.used;
}

static unsigned blocks_for(const aril_run *r, int64_t tiles)
{
    return aril_cuda_blocks(r, tiles, 1);
}

/* Counts; count[tiles_of(n)] becomes the number of selected elements. */
template <typename Test>
static aril_status count(aril_run *r, const Test &test, int64_t n, int64_t *count)
{
    int64_t tiles = tiles_of(n);
    count_tiles<Test>
        <<<blocks_for(r, tiles), THREADS, 0, aril_cuda_stream(r)>>>(test, n, tiles, count);
    sum_up<<<1, SUMS, 0, aril_cuda_stream(r)>>>(count, tiles);
    return aril_cuda_launched(r);
}

template <typename Test, typename Act>
static aril_status act(aril_run *r, const Test &test, int64_t n, const int64_t *count,
                       const Act &act)
{
    int64_t tiles = tiles_of(n);
    act_on_tiles<Test, Act>
        <<<blocks_for(r, tiles), THREADS, 0, aril_cuda_stream(r)>>>(test, n, tiles, count, act);
    return aril_cuda_launched(r);
}

/* The number of selected elements, which is the size of the result: the host has to wait for it. */
static aril_status read_total(aril_run *r, const int64_t *at, int64_t *total)
{
    aril_status s = aril_cuda_check(
        r, cudaMemcpyAsync(total, at, sizeof *total, cudaMemcpyDeviceToHost, aril_cuda_stream(r)),
        "cudaMemcpyAsync");
    if (s < 0) return s;
    return aril_cuda_check(r, cudaStreamSynchronize(aril_cuda_stream(r)), "waiting");
}

template <typename U> static aril_status nonzero_as(aril_run *r, U mask)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    int64_t n = aril_cuda_host->numel(x), dim[2] = { 0, aril_cuda_host->ndim(x) };
    nonzero_test<U> test = { static_cast<const U *>(aril_cuda_data(x)), mask };
    aril_cuda_carver w = aril_cuda_carver_of(r);
    int64_t *counts = w.take<int64_t>(tiles_of(n) + 1);
    aril_status s = n ? count(r, test, n, counts) : ARIL_OK;
    if (s == ARIL_OK && n) s = read_total(r, counts + tiles_of(n), &dim[0]);
    if (s == ARIL_OK) s = aril_cuda_host->alloc_out(r, 0, ARIL_I64, 2, dim);
    if (s < 0 || dim[0] == 0 || dim[1] == 0) return s;
    put_indices to = {};
    to.ndim = (int)dim[1];
    for (int d = 0; d < to.ndim; d++) to.dim[d] = aril_cuda_host->dims(x)[d];
    to.out = static_cast<int64_t *>(aril_cuda_data(aril_cuda_out(r, 0)));
    return act(r, test, n, counts, to);
}

/* Floats without their sign bit: -0 is 0. */
aril_status aril_cuda_nonzero_run(aril_run *r)
{
    aril_dtype dtype = aril_cuda_host->dtype(aril_cuda_in(r, 0));
    bool sign = aril_cuda_is_float(dtype);
    switch (aril_cuda_size(dtype)) {
    case 1: return nonzero_as<uint8_t>(r, 0xff);
    case 2: return nonzero_as<uint16_t>(r, sign ? 0x7fff : 0xffff);
    case 4: return nonzero_as<uint32_t>(r, sign ? 0x7fffffffu : 0xffffffffu);
    default: return nonzero_as<uint64_t>(r, sign ? INT64_MAX : UINT64_MAX);
    }
}

/* The mask, broadcast to x. A number is written to `spare`. */
static aril_status test_of(aril_run *r, const aril_tensor *x, void *spare, mask_test *test)
{
    const aril_tensor *mask = aril_cuda_in(r, 1);
    const void *at;
    aril_status s = aril_cuda_values(r, 1, spare, &at);
    test->at = static_cast<const uint8_t *>(at);
    test->spread = aril_cuda_spread_of(mask, aril_cuda_host->ndim(x), aril_cuda_host->dims(x));
    return s;
}

template <typename U> static aril_status select_as(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    int64_t n = aril_cuda_host->numel(x), total = 0;
    aril_cuda_carver w = aril_cuda_carver_of(r);
    int64_t *counts = w.take<int64_t>(tiles_of(n) + 1);
    uint64_t *spare = w.take<uint64_t>(2); /* of the mask and of x */
    const void *values = nullptr;
    mask_test test;
    aril_status s = n ? test_of(r, x, spare, &test) : ARIL_OK;
    if (s == ARIL_OK && n) s = aril_cuda_values(r, 0, spare + 1, &values);
    if (s == ARIL_OK && n) s = count(r, test, n, counts);
    if (s == ARIL_OK && n) s = read_total(r, counts + tiles_of(n), &total);
    if (s == ARIL_OK) s = aril_cuda_host->alloc_out(r, 0, aril_cuda_host->dtype(x), 1, &total);
    if (s < 0 || total == 0) return s;
    pack<U> to = { static_cast<const U *>(values),
                   static_cast<U *>(aril_cuda_data(aril_cuda_out(r, 0))), total };
    return act(r, test, n, counts, to);
}

aril_status aril_cuda_masked_select_run(aril_run *r)
{
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(aril_cuda_in(r, 0))), U,
                          return select_as<U>(r));
    return ARIL_OK;
}

/* Counts, and reports a mask that selects more than src has. */
static aril_status count_and_check(aril_run *r, const mask_test &test, int64_t n, int64_t *counts,
                                   int64_t room)
{
    aril_status s = count(r, test, n, counts);
    if (s < 0) return s;
    check_room<<<1, 1, 0, aril_cuda_stream(r)>>>(counts + tiles_of(n), room,
                                                 aril_cuda_report_of(r));
    return aril_cuda_launched(r);
}

template <typename U> static aril_status scatter_as(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *src = aril_cuda_in(r, 2);
    int64_t n = aril_cuda_host->numel(out), room = aril_cuda_host->numel(src);
    if (n == 0) return ARIL_OK;
    aril_cuda_carver w = aril_cuda_carver_of(r);
    int64_t *counts = w.take<int64_t>(tiles_of(n) + 1);
    uint64_t *spare = w.take<uint64_t>(2); /* of the mask and of src */
    mask_test test;
    const void *values = nullptr;
    aril_status s = test_of(r, out, spare, &test);
    if (s == ARIL_OK) s = aril_cuda_values(r, 2, spare + 1, &values);
    if (s == ARIL_OK) s = count_and_check(r, test, n, counts, room);
    if (s < 0) return s;
    const void *x;
    s = aril_cuda_values(r, 0, aril_cuda_data(out), &x);
    if (s < 0) return s;
    unpack<U> to = { static_cast<const U *>(x), static_cast<const U *>(values),
                     static_cast<U *>(aril_cuda_data(out)), room };
    return act(r, test, n, counts, to);
}

aril_status aril_cuda_masked_scatter_run(aril_run *r)
{
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(aril_cuda_out(r, 0))), U,
                          return scatter_as<U>(r));
    return ARIL_OK;
}

template <typename U> static aril_status scatter_grad_as(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *g = aril_cuda_in(r, 0);
    int64_t n = aril_cuda_host->numel(g), room = aril_cuda_host->numel(out);
    aril_status s = aril_cuda_clear(r, aril_cuda_data(out), (size_t)room * sizeof(U));
    if (s < 0 || n == 0) return s;
    aril_cuda_carver w = aril_cuda_carver_of(r);
    int64_t *counts = w.take<int64_t>(tiles_of(n) + 1);
    uint64_t *spare = w.take<uint64_t>(2); /* of the mask and of g */
    const void *values = nullptr;
    mask_test test;
    s = test_of(r, g, spare, &test);
    if (s == ARIL_OK) s = aril_cuda_values(r, 0, spare + 1, &values);
    if (s == ARIL_OK) s = count_and_check(r, test, n, counts, room);
    if (s < 0) return s;
    pack<U> to = { static_cast<const U *>(values), static_cast<U *>(aril_cuda_data(out)), room };
    return act(r, test, n, counts, to);
}

aril_status aril_cuda_masked_scatter_grad_run(aril_run *r)
{
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(aril_cuda_out(r, 0))), U,
                          return scatter_grad_as<U>(r));
    return ARIL_OK;
}

/* ---- one_hot ---- */

static __global__ void one_hot(aril_cuda_indices index, int64_t n, int64_t classes, int64_t *out,
                               aril_cuda_report report)
{
    bool small = ((n * classes | classes) >> 32) == 0;
    ARIL_CUDA_LOOP(i, n * classes)
    {
        int64_t row = small ? (int64_t)((uint32_t)i / (uint32_t)classes) : i / classes;
        int64_t column = i - row * classes, at = index[row];
        if (column == 0 && (at < 0 || at >= classes))
            aril_cuda_fail(report, ARIL_CUDA_BAD_ONE_HOT, at, classes);
        out[i] = at == column;
    }
}

aril_status aril_cuda_one_hot_run(aril_run *r)
{
    int64_t classes = aril_cuda_attrs<one_hot_attrs>(r)->classes[0];
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(out);
    if (n == 0) return ARIL_OK;
    one_hot<<<aril_cuda_blocks(r, n, 1024), 256, 0, aril_cuda_stream(r)>>>(
        aril_cuda_indices_of(r, 0), n / classes, classes,
        static_cast<int64_t *>(aril_cuda_data(out)), aril_cuda_report_of(r));
    return aril_cuda_launched(r);
}
