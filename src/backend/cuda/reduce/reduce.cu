/* Sums, products, extremes and counts over axes. */
#include "backend/cuda/reduce/rows.cuh"
#include "backend/cuda/reduce/reduce.cuh"

static aril_cuda_reduction cut(const aril_run *r, aril_cuda_reduction l, bool vectors)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    int dtype = aril_cuda_host->dtype(x), size = aril_cuda_size(dtype);
    if (vectors && (dtype == ARIL_F32 || dtype == ARIL_F16 || dtype == ARIL_BF16))
        aril_cuda_reduction_vectors(&l, aril_cuda_data(x), size, 16 / size);
    aril_cuda_reduction_cut(&l);
    return l;
}

aril_cuda_reduction aril_cuda_reduction_of_run(const aril_run *r, bool vectors, bool in_order)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    const aril_tensor *out1 = aril_cuda_host->n_out(r) > 1 ? aril_cuda_out(r, 1) : nullptr;
    int64_t mask = *aril_cuda_host->attr_i64(r, "mask");
    return cut(r, aril_cuda_reduction_of(x, mask, in_order, aril_cuda_out(r, 0), out1), vectors);
}

/* ---- sum, mean, prod ---- */

/* Divided by n for the mean; n = 1 otherwise. */
template <typename Reader> struct adding : aril_cuda_reading<Reader> {
    typedef typename Reader::C C;
    typedef C acc;
    typedef typename Reader::raw raw;
    enum { lanes = Reader::lanes };
    aril_cuda_result y;
    bool mean;
    int64_t n;

    __device__ C neutral() const
    {
        return 0;
    }
    __device__ C combine(C a, C b) const
    {
        return a + b;
    }
    __device__ void add(C (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t, int,
                        aril_cuda_nothing) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) {
#pragma unroll
                for (int l = 0; l < lanes; l++) a[l] += Reader::get(v[u], l);
            }
    }
    __device__ void finish(int64_t, int64_t, int64_t at, int64_t, C a) const
    {
        y.put<C>(at, mean ? a / (C)n : a);
    }
};

template <typename Reader> struct multiplying : aril_cuda_reading<Reader> {
    typedef typename Reader::C C;
    typedef C acc;
    typedef typename Reader::raw raw;
    enum { lanes = Reader::lanes };
    aril_cuda_result y;

    __device__ C neutral() const
    {
        return 1;
    }
    __device__ C combine(C a, C b) const
    {
        return a * b;
    }
    __device__ void add(C (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t, int,
                        aril_cuda_nothing) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) a[0] *= Reader::get(v[u], 0);
    }
    __device__ void finish(int64_t, int64_t, int64_t at, int64_t, C a) const
    {
        y.put<C>(at, a);
    }
};

static bool is_float(const aril_run *r)
{
    return aril_cuda_is_float(aril_cuda_host->dtype(aril_cuda_in(r, 0)));
}

/* Integers and bools, u64 included: sums and products that wrap around are the same bits. */
static aril_cuda_dynamic<uint64_t> integers(const aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    return { aril_cuda_data(x), (int)aril_cuda_host->dtype(x) };
}

static aril_status run_sum(const aril_run *r, const aril_cuda_reduction &l, bool mean)
{
    aril_cuda_result y = aril_cuda_result_of(r, 0);
    cudaStream_t stream = aril_cuda_stream(r);
    void *workspace = aril_cuda_host->workspace(r);
    if (l.results == 0) return ARIL_OK;
    auto launch = [&](auto reader) {
        adding<decltype(reader)> op = { reader, y, mean, l.each };
        aril_cuda_reduce_launch(stream, op, l, workspace);
    };
    if (is_float(r))
        aril_cuda_with_reader(r, l, launch);
    else
        launch(integers(r));
    return aril_cuda_launched(r);
}

aril_status aril_cuda_sum_run(aril_run *r)
{
    return run_sum(r, aril_cuda_reduction_of_run(r, true, false), false);
}

aril_status aril_cuda_mean_run(aril_run *r)
{
    return run_sum(r, aril_cuda_reduction_of_run(r, true, false), true);
}

static aril_cuda_reduction over(const aril_run *r, aril_cuda_dims *kept, aril_cuda_dims *reduced)
{
    aril_cuda_dims_merge(kept, true);
    aril_cuda_dims_merge(reduced, true);
    return cut(r, aril_cuda_reduction_from(kept, reduced), true);
}

aril_status aril_cuda_sum_over(const aril_run *r, aril_cuda_dims kept, aril_cuda_dims reduced)
{
    return run_sum(r, over(r, &kept, &reduced), false);
}

size_t aril_cuda_sum_over_bytes(const aril_run *r, aril_cuda_dims kept, aril_cuda_dims reduced)
{
    return aril_cuda_reduce_bytes(over(r, &kept, &reduced), sizeof(double));
}

aril_status aril_cuda_prod_run(aril_run *r)
{
    aril_cuda_reduction l = aril_cuda_reduction_of_run(r, false, false);
    aril_cuda_result y = aril_cuda_result_of(r, 0);
    cudaStream_t stream = aril_cuda_stream(r);
    if (l.results == 0) return ARIL_OK;
    auto launch = [&](auto reader) {
        multiplying<decltype(reader)> op = { reader, y };
        aril_cuda_reduce_launch(stream, op, l, aril_cuda_host->workspace(r));
    };
    const aril_tensor *x = aril_cuda_in(r, 0);
    int dtype = aril_cuda_host->dtype(x);
    if (!is_float(r))
        launch(integers(r));
    else if (dtype == ARIL_F64)
        launch(aril_cuda_dynamic<double>{ aril_cuda_data(x), dtype });
    else
        launch(aril_cuda_dynamic<float>{ aril_cuda_data(x), dtype });
    return aril_cuda_launched(r);
}

size_t aril_cuda_sum_workspace(const aril_run *r)
{
    return aril_cuda_reduce_workspace<true, false>(r);
}

size_t aril_cuda_prod_workspace(const aril_run *r)
{
    return aril_cuda_reduce_workspace<false, false>(r);
}

/* ---- amax, amin, max, min, argmax, argmin ---- */

template <typename C> struct best {
    C value;
    int64_t at; /* among the elements of the result; -1: none yet */
};

/* NaN beats all numbers; the first of equal elements wins. */
template <typename C_> struct choosing {
    typedef C_ C;
    typedef best<C> acc;
    typedef typename aril_cuda_dynamic<C>::raw raw;
    typedef aril_cuda_nothing mine;
    enum { lanes = 1 };
    aril_cuda_dynamic<C> x;
    aril_cuda_axes red;
    void *values; /* NULL: not wanted */
    int64_t *indices;
    int size;
    bool larger;

    __device__ bool beats(C a, C b) const
    {
        if (a != a || b != b) return a != a && b == b;
        return larger ? a > b : a < b;
    }
    __device__ raw load(int64_t at, int64_t) const
    {
        return x.load(at);
    }
    __device__ aril_cuda_nothing begin(int64_t) const
    {
        return {};
    }
    __device__ acc neutral() const
    {
        return { 0, -1 };
    }
    __device__ acc combine(acc a, acc b) const
    {
        if (b.at < 0) return a;
        if (a.at < 0 || beats(b.value, a.value)) return b;
        return !beats(a.value, b.value) && b.at < a.at ? b : a;
    }
    __device__ void add(acc (&a)[1], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t k,
                        int step, aril_cuda_nothing) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m && (a[0].at < 0 || beats(v[u].value(), a[0].value)))
                a[0] = { v[u].value(), k + u * step };
    }
    /* The element itself is copied, whatever its bits. */
    __device__ void finish(int64_t, int64_t from, int64_t at, int64_t at_index, acc a) const
    {
        if (a.at < 0) return; /* not reached: no axis is empty */
        from += red.offset(a.at);
        if (values)
            ARIL_CUDA_SWITCH_SIZE(
                size, S, static_cast<S *>(values)[at] = static_cast<const S *>(x.base)[from]);
        if (indices) indices[values ? at_index : at] = a.at;
    }
};

template <typename C> static void launch_best(aril_run *r, bool larger, bool values, int index)
{
    aril_cuda_reduction l = aril_cuda_reduction_of_run(r, false, true);
    const aril_tensor *x = aril_cuda_in(r, 0);
    int dtype = aril_cuda_host->dtype(x);
    choosing<C> op = { { aril_cuda_data(x), dtype },
                       l.red,
                       values ? aril_cuda_data(aril_cuda_out(r, 0)) : nullptr,
                       index < 0 ? nullptr : (int64_t *)aril_cuda_data(aril_cuda_out(r, index)),
                       aril_cuda_size(dtype),
                       larger };
    if (l.results)
        aril_cuda_reduce_launch(aril_cuda_stream(r), op, l, aril_cuda_host->workspace(r));
}

/* index: the result that gets positions, or -1. */
static aril_status run_best(aril_run *r, bool larger, bool values, int index)
{
    ARIL_CUDA_SWITCH_COMPUTE(aril_cuda_host->dtype(aril_cuda_in(r, 0)), C,
                             launch_best<C>(r, larger, values, index));
    return aril_cuda_launched(r);
}

size_t aril_cuda_best_workspace(const aril_run *r)
{
    return aril_cuda_reduce_workspace<false, true>(r);
}

aril_status aril_cuda_amax_run(aril_run *r)
{
    return run_best(r, true, true, -1);
}
aril_status aril_cuda_amin_run(aril_run *r)
{
    return run_best(r, false, true, -1);
}
aril_status aril_cuda_max_run(aril_run *r)
{
    return run_best(r, true, true, 1);
}
aril_status aril_cuda_min_run(aril_run *r)
{
    return run_best(r, false, true, 1);
}
aril_status aril_cuda_argmax_run(aril_run *r)
{
    return run_best(r, true, false, 0);
}
aril_status aril_cuda_argmin_run(aril_run *r)
{
    return run_best(r, false, false, 0);
}

/* ---- any, all, count_nonzero ---- */

enum wanted { ANY, ALL, COUNT };

struct counting {
    typedef int64_t acc;
    typedef bool raw; /* nonzero; NaN is */
    typedef aril_cuda_nothing mine;
    enum { lanes = 1 };
    const void *x;
    int dtype;
    aril_cuda_result y;
    int64_t n;
    wanted what;

    __device__ bool load(int64_t at, int64_t) const
    {
        bool set = false;
        ARIL_CUDA_SWITCH(dtype, S,
                         set = aril_cuda_type<S>::value(static_cast<const S *>(x)[at]) != 0);
        return set;
    }
    __device__ aril_cuda_nothing begin(int64_t) const
    {
        return {};
    }
    __device__ int64_t neutral() const
    {
        return 0;
    }
    __device__ int64_t combine(int64_t a, int64_t b) const
    {
        return a + b;
    }
    __device__ void add(int64_t (&a)[1], const bool (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t,
                        int, aril_cuda_nothing) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) a[0] += v[u];
    }
    __device__ void finish(int64_t, int64_t, int64_t at, int64_t, int64_t a) const
    {
        y.put<int64_t>(at, what == COUNT ? a : what == ANY ? a > 0 : a == n);
    }
};

static aril_status run_count(aril_run *r, wanted what)
{
    aril_cuda_reduction l = aril_cuda_reduction_of_run(r, false, false);
    const aril_tensor *x = aril_cuda_in(r, 0);
    if (l.results == 0) return ARIL_OK;
    counting op = { aril_cuda_data(x), (int)aril_cuda_host->dtype(x), aril_cuda_result_of(r, 0),
                    l.each, what };
    aril_cuda_reduce_launch(aril_cuda_stream(r), op, l, aril_cuda_host->workspace(r));
    return aril_cuda_launched(r);
}

aril_status aril_cuda_any_run(aril_run *r)
{
    return run_count(r, ANY);
}
aril_status aril_cuda_all_run(aril_run *r)
{
    return run_count(r, ALL);
}
aril_status aril_cuda_count_nonzero_run(aril_run *r)
{
    return run_count(r, COUNT);
}
