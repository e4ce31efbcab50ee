/* scatter and its relatives: elements go to positions along one axis.
 *
 * Only elements of one line along the axis can meet. With many lines, or short ones, one thread
 * handles a line, element after element. Otherwise elements are sorted by destination, and one
 * thread handles all that meet. Either way they are combined in the order of the CPU. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/index/index.cuh"
#include "ops/index/gather.h"

enum how { ADD, MUL, MAX, MIN, SET };

enum { SHORT_LINE = 64, MANY_LINES = 16 * 1024 };

struct scatter {
    how way;
    bool alone; /* the tensor's own elements do not take part */
    int axis;
    int64_t size, along;            /* of the axis in x: its size and stride */
    int64_t line, index_step, step; /* elements of a line; their stride in the index and in src */
    int64_t lines;
    aril_cuda_indices index;
    aril_cuda_report report;
};

/* ---- combining ---- */

template <typename T> static __device__ __forceinline__ T identity(how way)
{
    if (way == ADD) return T(0);
    if (way == MUL) return T(1);
    return T(0);
}
/* The smallest (largest) value, with which a maximum (minimum) starts. */
template <typename T> struct extreme;
template <> struct extreme<float> {
    static __device__ float of(bool low)
    {
        return low ? -INFINITY : INFINITY;
    }
};
template <> struct extreme<double> {
    static __device__ double of(bool low)
    {
        return low ? -(double)INFINITY : (double)INFINITY;
    }
};
template <> struct extreme<int64_t> {
    static __device__ int64_t of(bool low)
    {
        return low ? INT64_MIN : INT64_MAX;
    }
};
template <> struct extreme<uint64_t> {
    static __device__ uint64_t of(bool low)
    {
        return low ? 0 : UINT64_MAX;
    }
};
template <typename T> static __device__ __forceinline__ T start(how way)
{
    return way == MAX || way == MIN ? extreme<T>::of(way == MAX) : identity<T>(way);
}

static __device__ __forceinline__ float plus(float a, float b)
{
    return a + b;
}
static __device__ __forceinline__ double plus(double a, double b)
{
    return a + b;
}
static __device__ __forceinline__ uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b;
}
static __device__ __forceinline__ int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static __device__ __forceinline__ float times(float a, float b)
{
    return a * b;
}
static __device__ __forceinline__ double times(double a, double b)
{
    return a * b;
}
static __device__ __forceinline__ uint64_t times(uint64_t a, uint64_t b)
{
    return a * b;
}
static __device__ __forceinline__ int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* NaN is the largest and the smallest. */
template <typename T> static __device__ __forceinline__ T combine(how way, T a, T b)
{
    switch (way) {
    case ADD: return plus(a, b);
    case MUL: return times(a, b);
    case MAX: return b > a || b != b ? b : a;
    case MIN: return b < a || b != b ? b : a;
    default: return b;
    }
}

/* The element as the type that computes: raw elements are only set. */
template <typename T> struct combiner {
    static __device__ __forceinline__ T of(how way, T a, T b)
    {
        return combine<T>(way, a, b);
    }
    static __device__ __forceinline__ T first(how way)
    {
        return start<T>(way);
    }
};
#define RAW(T)                                              \
    template <> struct combiner<T> {                        \
        static __device__ __forceinline__ T of(how, T, T b) \
        {                                                   \
            return b;                                       \
        }                                                   \
        static __device__ __forceinline__ T first(how)      \
        {                                                   \
            return 0;                                       \
        }                                                   \
    };
RAW(uint8_t)
RAW(uint16_t)
RAW(uint32_t)
#undef RAW

/* ---- a thread per line ---- */

template <typename T>
static __global__ void by_line(const __grid_constant__ scatter s,
                               const __grid_constant__ aril_cuda_nest<3> nest, uint32_t lines, T *x,
                               const int64_t *index, const T *src)
{
    ARIL_CUDA_LOOP(i, lines)
    {
        int32_t at[3];
        nest.offsets(i, at);
        T *to = x + at[0];
        const T *from = src + at[2];
        for (int64_t k = 0; k < s.line && s.alone; k++) {
            int64_t w = index ? index[at[1] + k * s.index_step] : s.index.value;
            w = w < 0 ? w + s.size : w;
            if (w >= 0 && w < s.size) to[w * s.along] = combiner<T>::first(s.way);
        }
        for (int64_t k = 0; k < s.line; k++) {
            int64_t given = index ? index[at[1] + k * s.index_step] : s.index.value;
            int64_t w = aril_cuda_index(s.report, given, s.size, s.axis);
            if (w < 0) continue;
            T b = from[k * s.step];
            to[w * s.along] = s.way == SET ? b : combiner<T>::of(s.way, to[w * s.along], b);
        }
    }
}

template <typename T>
static aril_status run_by_line(aril_run *r, const scatter &s, const aril_cuda_loops &lines, T *x,
                               const T *src)
{
    return aril_cuda_each_piece(&lines, [&](const aril_cuda_loops &piece) {
        uint32_t n = (uint32_t)aril_cuda_loops_numel(&piece);
        by_line<T><<<aril_cuda_blocks(r, n, 128), 128, 0, aril_cuda_stream(r)>>>(
            s, aril_cuda_nest_of<3>(piece), n, x + piece.offset[0],
            s.index.at ? s.index.at + piece.offset[1] : nullptr, src + piece.offset[2]);
        return aril_cuda_launched(r);
    });
}

/* ---- by destination ---- */

/* The key of an element is its destination; that of a wrong index is beyond all. */
static __global__ void find_destinations(const __grid_constant__ scatter s,
                                         const __grid_constant__ aril_cuda_spread beside, int64_t n,
                                         uint64_t beyond, uint64_t *key)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t w = aril_cuda_index(s.report, s.index[i], s.size, s.axis);
        key[i] = w < 0 ? beyond : (uint64_t)(beside.offset(i) + w * s.along);
    }
}

template <typename T>
static __global__ void by_destination(const __grid_constant__ scatter s, int64_t n, uint64_t beyond,
                                      const uint64_t *__restrict__ key,
                                      const uint32_t *__restrict__ order, T *__restrict__ x,
                                      const T *__restrict__ src, int64_t src_step)
{
    const int most = 8; /* values that are read together */
    ARIL_CUDA_LOOP(j, n)
    {
        uint64_t to = key[j];
        if (to == beyond) continue;
        if (s.way == SET) {
            if (j + 1 == n || key[j + 1] != to) x[to] = src[order[j] * src_step];
            continue;
        }
        if (!aril_cuda_is_first(key, j)) continue;
        T sum = s.alone ? combiner<T>::first(s.way) : x[to];
        for (int64_t t = j; t < n && key[t] == to; t += most) {
            T v[most];
            bool there[most];
#pragma unroll
            for (int u = 0; u < most; u++) {
                there[u] = t + u < n && key[t + u] == to;
                v[u] = there[u] ? src[order[t + u] * src_step] : T(0);
            }
#pragma unroll
            for (int u = 0; u < most; u++)
                if (there[u]) sum = combiner<T>::of(s.way, sum, v[u]);
        }
        x[to] = sum;
    }
}

/* ---- runs ---- */

static int64_t size_along(const aril_tensor *t, int axis)
{
    return aril_cuda_host->ndim(t) ? aril_cuda_host->dims(t)[axis] : 1;
}

static scatter scatter_of(const aril_run *r, how way)
{
    const scatter_attrs *a = aril_cuda_attrs<scatter_attrs>(r);
    const aril_tensor *x = aril_cuda_out(r, 0), *index = aril_cuda_in(r, 1);
    scatter s = {};
    s.way = way;
    s.axis = (int)a->axis[0];
    s.alone = a->alone[0] != 0 && way != SET;
    s.size = size_along(x, s.axis);
    s.along = aril_cuda_host->ndim(x) ? aril_cuda_host->strides(x)[s.axis] : 0;
    s.line = size_along(index, s.axis);
    s.lines = s.line ? aril_cuda_host->numel(index) / s.line : 0;
    return s;
}

static bool goes_by_line(const scatter &s)
{
    return s.line <= SHORT_LINE || s.lines >= MANY_LINES;
}

/* A number, and the sort. */
static aril_cuda_sorting carve(aril_cuda_carver *w, const aril_run *r, const scatter &s,
                               void **number)
{
    aril_cuda_sorting sorting = {};
    *number = w->take<uint64_t>(1);
    if (!goes_by_line(s))
        sorting = aril_cuda_sorting_of(w, s.line * s.lines,
                                       aril_cuda_bits(
                                           (uint64_t)aril_cuda_host->numel(aril_cuda_out(r, 0))));
    return sorting;
}

size_t aril_cuda_scatter_bytes(const aril_run *r)
{
    aril_cuda_carver w = {};
    void *number;
    carve(&w, r, scatter_of(r, SET), &number);
    return w.used;
}

/* The lines: operands x, index and src. */
static aril_cuda_loops lines_of(const aril_run *r, scatter *s)
{
    const aril_tensor *x = aril_cuda_out(r, 0), *index = aril_cuda_in(r, 1);
    const aril_tensor *src = aril_cuda_in(r, 2);
    int ndim = aril_cuda_host->ndim(index);
    bool scalar = aril_cuda_host->ndim(x) == 0, one = aril_cuda_host->ndim(src) == 0;
    aril_cuda_loops l = {};
    int64_t step = 1;
    l.n = 3;
    for (int d = ndim - 1; d >= 0; d--) {
        int64_t dim = aril_cuda_host->dims(index)[d];
        if (d == s->axis) {
            s->index_step = step;
            s->step = one ? 0 : step;
        } else {
            l.dim[d > s->axis ? d - 1 : d] = dim;
            l.stride[0][d > s->axis ? d - 1 : d] = scalar ? 0 : aril_cuda_host->strides(x)[d];
            l.stride[1][d > s->axis ? d - 1 : d] = step;
            l.stride[2][d > s->axis ? d - 1 : d] = one ? 0 : step;
            l.ndim++;
        }
        step *= dim;
    }
    aril_cuda_loops_merge(&l, 1);
    return l;
}

template <typename T> static aril_status run_as(aril_run *r, scatter s, const void *values)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    const aril_tensor *index = aril_cuda_in(r, 1);
    T *x = static_cast<T *>(aril_cuda_data(out));
    const T *src = static_cast<const T *>(values);
    aril_cuda_loops lines = lines_of(r, &s);
    if (goes_by_line(s)) return run_by_line<T>(r, s, lines, x, src);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    void *number;
    aril_cuda_sorting sorting = carve(&w, r, s, &number);
    uint64_t beyond = (uint64_t)aril_cuda_host->numel(out);
    aril_cuda_spread beside = {};
    beside.ndim = aril_cuda_host->ndim(index);
    for (int d = 0; d < beside.ndim; d++) {
        bool moves = d != s.axis && aril_cuda_host->ndim(out) > 0;
        beside.dim[d] = aril_cuda_host->dims(index)[d];
        beside.stride[d] = moves ? aril_cuda_host->strides(out)[d] : 0;
    }
    unsigned blocks = aril_cuda_blocks(r, sorting.n, 256, 16);
    find_destinations<<<blocks, 256, 0, aril_cuda_stream(r)>>>(s, beside, sorting.n, beyond,
                                                               sorting.given);
    aril_status status = aril_cuda_sort(r, sorting);
    if (status < 0) return status;
    int64_t step = aril_cuda_host->ndim(aril_cuda_in(r, 2)) ? 1 : 0;
    by_destination<T><<<blocks, 256, 0, aril_cuda_stream(r)>>>(s, sorting.n, beyond, sorting.key,
                                                               sorting.order, x, src, step);
    return aril_cuda_launched(r);
}

static aril_status run(aril_run *r, how way)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    scatter s = scatter_of(r, way);
    const void *values;
    void *number;
    aril_status status = aril_cuda_copy_whole(r, out, 0);
    if (status < 0 || s.line * s.lines == 0) return status;
    s.index = aril_cuda_indices_of(r, 1);
    s.report = aril_cuda_report_of(r);
    aril_cuda_carver w = aril_cuda_carver_of(r);
    carve(&w, r, s, &number);
    status = aril_cuda_values(r, 2, number, &values);
    if (status < 0) return status;
    if (way == SET) {
        ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(out)), U,
                              return run_as<U>(r, s, values));
        return ARIL_OK;
    }
    switch (aril_cuda_host->dtype(out)) {
    case ARIL_F32: return run_as<float>(r, s, values);
    case ARIL_F64: return run_as<double>(r, s, values);
    case ARIL_U64: return run_as<uint64_t>(r, s, values);
    default: return run_as<int64_t>(r, s, values);
    }
}

aril_status aril_cuda_scatter_run(aril_run *r)
{
    return run(r, SET);
}

aril_status aril_cuda_scatter_add_run(aril_run *r)
{
    return run(r, ADD);
}

aril_status aril_cuda_scatter_mul_run(aril_run *r)
{
    return run(r, MUL);
}

aril_status aril_cuda_scatter_max_run(aril_run *r)
{
    return run(r, MAX);
}

aril_status aril_cuda_scatter_min_run(aril_run *r)
{
    return run(r, MIN);
}
