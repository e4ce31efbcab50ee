/* unique, bincount, histc, searchsorted. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/number.cuh"
#include "backend/cuda/reduce/keys.cuh"
#include "backend/cuda/reduce/rows.cuh"
#include "backend/cuda/reduce/scan.cuh"

/* Sizes of results that depend on values, and ranges of values: the host has to wait for them. */
static aril_status read_back(const aril_run *r, void *to, const void *from, size_t bytes)
{
    aril_status s = aril_cuda_launched(r);
    if (s < 0) return s;
    return aril_cuda_to_host(aril_cuda_device_of(r), aril_cuda_host->queue(r), to, from, bytes,
                             false);
}

/* ---- unique ---- */

/* Slice i of x: element e is at (e / inner * n + i) * inner + e % inner. */
struct slices {
    const void *x;
    int dtype;
    int64_t n, width, inner;

    __device__ __forceinline__ int64_t at(int64_t i, int64_t e) const
    {
        return (e / inner * n + i) * inner + e % inner;
    }
};

/* Lexicographic order of slices; NaN sorts after all numbers. Positions are sorted, not keys. */
template <typename C> struct slice_order {
    typedef int64_t E;
    slices s;

    __device__ __forceinline__ C get(int64_t i, int64_t e) const
    {
        return aril_cuda_load<C>(s.x, s.at(i, e), s.dtype);
    }
    __device__ E load(int64_t, int64_t k) const
    {
        return k;
    }
    static __device__ E pad()
    {
        return INT64_MAX;
    }
    static __device__ int64_t position(E e)
    {
        return e;
    }
    __device__ bool before(E a, E b) const
    {
        if (a == INT64_MAX || b == INT64_MAX) return a < b;
        for (int64_t e = 0; e < s.width; e++) {
            C x = get(a, e), y = get(b, e);
            if (x < y || (y != y && x == x)) return true;
            if (x != y && !(x != x && y != y)) return false;
        }
        return a < b;
    }
    /* NaN equals nothing, not even NaN. */
    __device__ bool same(E a, E b) const
    {
        for (int64_t e = 0; e < s.width; e++)
            if (get(a, e) != get(b, e)) return false;
        return true;
    }
};

/* Flags the first element of each group. */
template <typename Order>
static __global__ void mark(const __grid_constant__ Order order, const typename Order::E *sorted,
                            int64_t n, int64_t *group)
{
    ARIL_CUDA_LOOP(i, n) group[i] = i == 0 || !order.same(sorted[i - 1], sorted[i]);
}

/* group[i]: 1 + the group of the i-th element in sorted order. */
template <typename Order>
static __global__ void give_groups(const typename Order::E *sorted, int64_t n, const int64_t *group,
                                   int64_t *inverse, int64_t *first)
{
    ARIL_CUDA_LOOP(i, n)
    {
        inverse[Order::position(sorted[i])] = group[i] - 1;
        if (i == 0 || group[i - 1] != group[i]) first[group[i] - 1] = i;
    }
}

/* Copies the first slice of each group, and counts its members. */
template <typename Order, typename S>
static __global__ void give_slices(const typename Order::E *sorted, const int64_t *first, slices s,
                                   int64_t groups, S *y, int64_t *count)
{
    int64_t width = s.width > 0 ? s.width : 1, total = groups * width; /* a group may be empty */
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t g = i / width, e = i % width, from = Order::position(sorted[first[g]]);
        if (e == 0) count[g] = (g + 1 < groups ? first[g + 1] : s.n) - first[g];
        if (s.width > 0)
            y[(e / s.inner * groups + g) * s.inner + e % s.inner] =
                static_cast<const S *>(s.x)[s.at(from, e)];
    }
}

static slices slices_of(const aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0);
    int64_t axis = *h->attr_i64(r, "axis");
    slices s = { nullptr, (int)h->dtype(x), h->numel(x), 1, 1 };
    if (axis < 0) return s;
    s.n = h->dims(x)[axis];
    s.width = s.n ? h->numel(x) / s.n : 0;
    for (int d = (int)axis + 1; d < h->ndim(x); d++) s.inner *= h->dims(x)[d];
    if (s.inner == 0) s.inner = 1; /* slices are empty */
    return s;
}

/* Two buffers to sort by, groups, their first members, and what the count needs. */
size_t aril_cuda_unique_workspace(const aril_run *r)
{
    slices s = slices_of(r);
    return (size_t)s.n * (2 * 16 + 2 * 8) + aril_cuda_count_bytes(s.n);
}

static aril_status allocate(aril_run *r, const slices &s, int64_t groups)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0);
    int64_t axis = *h->attr_i64(r, "axis"), dim[ARIL_MAX_DIMS];
    aril_dtype dtype = h->dtype(x);
    int ndim = h->ndim(x);
    for (int d = 0; d < ndim; d++) dim[d] = d == axis ? groups : h->dims(x)[d];
    aril_status st =
        axis < 0 ? h->alloc_out(r, 0, dtype, 1, &groups) : h->alloc_out(r, 0, dtype, ndim, dim);
    if (st == ARIL_OK)
        st = axis < 0 ? h->alloc_out(r, 1, ARIL_I64, ndim, dim)
                      : h->alloc_out(r, 1, ARIL_I64, 1, &s.n);
    return st == ARIL_OK ? h->alloc_out(r, 2, ARIL_I64, 1, &groups) : st;
}

template <typename Order> static aril_status unique_by(aril_run *r, const slices &s, Order order)
{
    typedef typename Order::E E;
    E *buffer = (E *)aril_cuda_host->workspace(r);
    int64_t *group = (int64_t *)((char *)buffer + s.n * 32), *first = group + s.n, groups = 0;
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, s.n, 256);
    E *sorted = aril_cuda_sort_lines(r, order, 1, s.n, s.n, buffer);
    if (s.n > 0) {
        mark<Order><<<blocks, 256, 0, stream>>>(order, sorted, s.n, group);
        aril_cuda_count_up(stream, group, s.n, first + s.n);
        aril_status st = read_back(r, &groups, group + s.n - 1, sizeof groups);
        if (st < 0) return st;
    }
    aril_status st = allocate(r, s, groups);
    if (st < 0 || s.n == 0) return st;
    int64_t *inverse = (int64_t *)aril_cuda_data(aril_cuda_out(r, 1));
    int64_t *count = (int64_t *)aril_cuda_data(aril_cuda_out(r, 2));
    void *y = aril_cuda_data(aril_cuda_out(r, 0));
    give_groups<Order><<<blocks, 256, 0, stream>>>(sorted, s.n, group, inverse, first);
    blocks = aril_cuda_blocks(r, groups * (s.width > 0 ? s.width : 1), 256);
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(s.dtype), S,
                          give_slices<Order, S>
                          <<<blocks, 256, 0, stream>>>(sorted, first, s, groups, (S *)y, count));
    return aril_cuda_launched(r);
}

aril_status aril_cuda_unique_run(aril_run *r)
{
    slices s = slices_of(r);
    s.x = aril_cuda_data(aril_cuda_in(r, 0));
    if (s.width == 1) {
        aril_cuda_dims none = {};
        aril_cuda_key_lines line = { s.x, s.dtype, aril_cuda_axes_of(&none), 1, false };
        if (aril_cuda_keys_short(s.dtype, s.n))
            return unique_by(r, s, aril_cuda_short_keys{ line });
        return unique_by(r, s, aril_cuda_long_keys{ line });
    }
    if (aril_cuda_is_float(s.dtype)) return unique_by(r, s, slice_order<double>{ s });
    if (s.dtype == ARIL_U64) return unique_by(r, s, slice_order<uint64_t>{ s });
    return unique_by(r, s, slice_order<int64_t>{ s });
}

/* ---- counting into bins ---- */

enum { SHARED_BINS = 8192 };

/* counts[bin(i)]++ for all i < n; integers add up to the same in any order. A negative bin counts
 * nowhere. Blocks count in shared memory first, if the bins fit there. */
template <typename Bin>
static __global__ void __launch_bounds__(256)
    count_bins(Bin bin, int64_t n, int64_t bins, unsigned long long *counts)
{
    extern __shared__ uint32_t own[];
    const bool shared = bins <= SHARED_BINS;
    for (int64_t i = threadIdx.x; shared && i < bins; i += blockDim.x) own[i] = 0;
    __syncthreads();
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t b = bin(i);
        if (b < 0) continue;
        if (shared)
            atomicAdd(&own[b], 1u);
        else
            atomicAdd(&counts[b], 1ull);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; shared && i < bins; i += blockDim.x)
        if (own[i]) atomicAdd(&counts[i], (unsigned long long)own[i]);
}

template <typename Bin>
static void launch_count(const aril_run *r, Bin bin, int64_t n, int64_t bins,
                         unsigned long long *counts)
{
    cudaStream_t stream = aril_cuda_stream(r);
    size_t shared = bins <= SHARED_BINS ? (size_t)bins * sizeof(uint32_t) : 0;
    cudaMemsetAsync(counts, 0, (size_t)bins * sizeof *counts, stream);
    if (n == 0) return;
    count_bins<Bin><<<aril_cuda_blocks(r, n, 1024, 1), 256, shared, stream>>>(bin, n, bins, counts);
}

/* ---- bincount ---- */

struct bounds {
    long long low, high;
};

static __global__ void no_bounds(bounds *b)
{
    *b = { LLONG_MAX, LLONG_MIN };
}

static __global__ void find_bounds(const int64_t *x, int64_t n, bounds *b)
{
    int64_t low = INT64_MAX, high = INT64_MIN;
    ARIL_CUDA_LOOP(i, n)
    {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    low = aril_cuda_warp_reduce<aril_cuda_smallest>(low);
    high = aril_cuda_warp_reduce<aril_cuda_largest>(high);
    if (threadIdx.x % 32) return;
    atomicMin(&b->low, (long long)low);
    atomicMax(&b->high, (long long)high);
}

struct own_value {
    const int64_t *x;
    __device__ int64_t operator()(int64_t i) const
    {
        return x[i];
    }
};

/* Elements by their integer: then those of a bin are adjacent, in their order. */
struct by_value {
    typedef aril_cuda_long_key E;
    const int64_t *x;
    __device__ E load(int64_t, int64_t k) const
    {
        return { (uint64_t)x[k], (uint64_t)k };
    }
    static __device__ E pad()
    {
        return aril_cuda_long_keys::pad();
    }
    static __device__ bool before(const E &a, const E &b)
    {
        return aril_cuda_long_keys::before(a, b);
    }
};

/* A warp adds up the weights of a bin, in f64. */
static __global__ void sum_bins(const aril_cuda_long_key *sorted, int64_t n, int64_t bins,
                                const void *weights, int dtype, void *out, int out_dtype)
{
    int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t b = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; b < bins;
         b += warps) {
        int64_t from = aril_cuda_lower_bound<aril_cuda_long_keys>(sorted, n, (uint64_t)b);
        int64_t to = aril_cuda_lower_bound<aril_cuda_long_keys>(sorted, n, (uint64_t)b + 1);
        double sum = 0;
        for (int64_t i = from + threadIdx.x % 32; i < to; i += 32)
            sum += aril_cuda_load<double>(weights, (int64_t)sorted[i].position, dtype);
        sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
        if (threadIdx.x % 32 == 0) aril_cuda_store<double>(out, b, out_dtype, sum);
    }
}

static const aril_tensor *weights_of(const aril_run *r)
{
    return aril_cuda_host->n_in(r) > 1 ? aril_cuda_in(r, 1) : nullptr;
}

size_t aril_cuda_bincount_workspace(const aril_run *r)
{
    int64_t n = aril_cuda_host->numel(aril_cuda_in(r, 0));
    return sizeof(bounds) + (weights_of(r) ? (size_t)aril_cuda_sort_elements(1, n) * 16 : 0);
}

/* The number of bins: at least `minlength`, and enough for the largest integer. */
static aril_status bins_of(const aril_run *r, const int64_t *x, int64_t n, int64_t *bins)
{
    const aril_host *h = aril_cuda_host;
    bounds *on_device = (bounds *)h->workspace(r), b = {};
    *bins = *h->attr_i64(r, "minlength");
    if (n == 0) return ARIL_OK;
    no_bounds<<<1, 1, 0, aril_cuda_stream(r)>>>(on_device);
    find_bounds<<<aril_cuda_blocks(r, n, 1024, 1), 256, 0, aril_cuda_stream(r)>>>(x, n, on_device);
    aril_status s = read_back(r, &b, on_device, sizeof b);
    if (s < 0) return s;
    if (b.low < 0)
        return h->fail(ARIL_ERR_ARG, "bincount: expected non-negative integers, got %lld", b.low);
    if (b.high >= INT64_MAX / 8)
        return h->fail(ARIL_ERR_MEMORY, "bincount: out of memory for %lld counts", b.high);
    if (b.high >= *bins) *bins = b.high + 1;
    return ARIL_OK;
}

aril_status aril_cuda_bincount_run(aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *w = weights_of(r);
    const int64_t *x = (const int64_t *)aril_cuda_data(aril_cuda_in(r, 0));
    int64_t n = h->numel(aril_cuda_in(r, 0)), bins = 0;
    aril_status s = bins_of(r, x, n, &bins);
    aril_dtype dtype = !w ? ARIL_I64 : h->dtype(w) == ARIL_F32 ? ARIL_F32 : ARIL_F64;
    if (s == ARIL_OK) s = h->alloc_out(r, 0, dtype, 1, &bins);
    if (s < 0 || bins == 0) return s;
    void *out = aril_cuda_data(aril_cuda_out(r, 0));
    if (!w) {
        launch_count(r, own_value{ x }, n, bins, (unsigned long long *)out);
        return aril_cuda_launched(r);
    }
    aril_cuda_long_key *buffer = (aril_cuda_long_key *)((bounds *)h->workspace(r) + 1);
    aril_cuda_long_key *sorted = aril_cuda_sort_lines(r, by_value{ x }, 1, n, n, buffer);
    sum_bins<<<aril_cuda_blocks(r, bins, 8), 256, 0, aril_cuda_stream(r)>>>(
        sorted, n, bins, aril_cuda_data(w), h->dtype(w), out, dtype);
    return aril_cuda_launched(r);
}

/* ---- histc ---- */

/* The range of the elements as ordered keys, and whether any is NaN. */
struct key_range {
    unsigned long long low, high, nan;
};

static __global__ void no_range(key_range *k)
{
    *k = { ~0ull, 0, 0 };
}

static __global__ void find_range(const void *x, int dtype, int64_t n, key_range *k)
{
    uint64_t low = ~0ull, high = 0, nan = 0;
    ARIL_CUDA_LOOP(i, n)
    {
        uint64_t key = aril_cuda_key64(x, i, dtype);
        nan |= key == ARIL_CUDA_NAN_KEY64;
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    low = aril_cuda_warp_reduce<aril_cuda_smallest>(low);
    high = aril_cuda_warp_reduce<aril_cuda_largest>(high);
    nan = aril_cuda_warp_reduce<aril_cuda_largest>(nan);
    if (threadIdx.x % 32) return;
    atomicMin(&k->low, (unsigned long long)low);
    atomicMax(&k->high, (unsigned long long)high);
    if (nan) atomicMax(&k->nan, 1ull);
}

static double of_key(unsigned long long key)
{
    uint64_t bits = key >> 63 ? key & 0x7fffffffffffffffull : ~key;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The range that is split into bins: that of the elements if none is given. */
static aril_status range_of(const aril_run *r, double *low, double *high)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0);
    const double *range = h->attr_f64(r, "range");
    int64_t n = h->numel(x);
    *low = range[0];
    *high = range[1];
    if (*low == *high && n > 0) {
        key_range *on_device = (key_range *)h->workspace(r), k = {};
        no_range<<<1, 1, 0, aril_cuda_stream(r)>>>(on_device);
        find_range<<<aril_cuda_blocks(r, n, 1024, 1), 256, 0, aril_cuda_stream(r)>>>(
            aril_cuda_data(x), h->dtype(x), n, on_device);
        aril_status s = read_back(r, &k, on_device, sizeof k);
        if (s < 0) return s;
        *low = k.nan ? NAN : of_key(k.low);
        *high = k.nan ? NAN : of_key(k.high);
    }
    if (*low == *high) {
        *low -= 1;
        *high += 1;
    }
    if (isfinite(*low) && isfinite(*high)) return ARIL_OK;
    return h->fail(ARIL_ERR_NUMBER, "histc: the range of the elements, %g..%g, is not finite", *low,
                   *high);
}

struct bin_of_range {
    const void *x;
    int dtype;
    int64_t bins;
    double low, high;

    __device__ int64_t operator()(int64_t i) const
    {
        double v = aril_cuda_load<double>(x, i, dtype);
        if (!(v >= low && v <= high)) return -1;
        int64_t bin = (int64_t)((v - low) / (high - low) * (double)bins);
        return bin < bins ? bin : bins - 1;
    }
};

static __global__ void give_counts(const unsigned long long *counts, int64_t bins, void *out,
                                   int dtype)
{
    ARIL_CUDA_LOOP(i, bins) aril_cuda_store<double>(out, i, dtype, (double)counts[i]);
}

size_t aril_cuda_histc_workspace(const aril_run *r)
{
    size_t bins = (size_t)*aril_cuda_host->attr_i64(r, "bins") * sizeof(uint64_t);
    return bins > sizeof(key_range) ? bins : sizeof(key_range);
}

aril_status aril_cuda_histc_run(aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t bins = *h->attr_i64(r, "bins");
    double low = 0, high = 0;
    aril_status s = range_of(r, &low, &high);
    if (s < 0) return s;
    unsigned long long *counts = (unsigned long long *)h->workspace(r);
    bin_of_range bin = { aril_cuda_data(x), (int)h->dtype(x), bins, low, high };
    launch_count(r, bin, h->numel(x), bins, counts);
    give_counts<<<aril_cuda_blocks(r, bins, 256), 256, 0, aril_cuda_stream(r)>>>(
        counts, bins, aril_cuda_data(out), h->dtype(out));
    return aril_cuda_launched(r);
}

/* ---- searchsorted ---- */

/* The line of value i begins at i / m * n; with one line for all, m is 0. */
template <typename C>
static __global__ void search(const void *line, int dtype, const void *values, int value_dtype,
                              aril_cuda_scalar<C> number, int64_t *out, int64_t count, int64_t n,
                              int64_t m, bool right)
{
    ARIL_CUDA_LOOP(i, count)
    {
        C v = values ? aril_cuda_load<C>(values, i, value_dtype) : number.value;
        int64_t first = m ? i / m * n : 0, low = 0, high = n;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            C e = aril_cuda_load<C>(line, first + middle, dtype);
            /* NaN goes behind everything. */
            bool behind = e != e || v != v || (right ? e <= v : e < v);
            low = behind ? middle + 1 : low;
            high = behind ? high : middle;
        }
        out[i] = low;
    }
}

template <typename C> static void launch_search(aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *line = aril_cuda_in(r, 0), *v = aril_cuda_in(r, 1);
    aril_cuda_scalar<C> number = {};
    bool on_host = aril_cuda_number<C>(r, 1, &number.value);
    int64_t count = h->numel(v), n = aril_cuda_dim(line, -1);
    int64_t m = h->ndim(line) == 1 ? 0 : aril_cuda_dim(v, -1);
    search<C><<<aril_cuda_blocks(r, count, 256), 256, 0, aril_cuda_stream(r)>>>(
        aril_cuda_data(line), h->dtype(line), on_host ? nullptr : aril_cuda_data(v), h->dtype(v),
        number, (int64_t *)aril_cuda_data(aril_cuda_out(r, 0)), count, n, m,
        *h->attr_i64(r, "right"));
}

aril_status aril_cuda_searchsorted_run(aril_run *r)
{
    int dtype = aril_cuda_host->dtype(aril_cuda_in(r, 0));
    if (aril_cuda_host->numel(aril_cuda_in(r, 1)) == 0) return ARIL_OK;
    if (aril_cuda_is_float(dtype))
        launch_search<double>(r);
    else if (dtype == ARIL_U64)
        launch_search<uint64_t>(r);
    else
        launch_search<int64_t>(r);
    return aril_cuda_launched(r);
}
