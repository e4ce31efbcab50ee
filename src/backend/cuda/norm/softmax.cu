/* softmax, log_softmax and their gradients along one axis. */
#include "backend/cuda/norm/exponents.cuh"
#include "backend/cuda/norm/row.cuh"
#include "backend/cuda/norm/rows.cuh"

/* Lines of n elements that are `step` apart in contiguous tensors. */
struct softmax_lines {
    int64_t count, n, step;

    __device__ __forceinline__ int64_t begin(int64_t line) const
    {
        return step == 1 ? line * n : line / step * step * n + line % step;
    }
};

static softmax_lines lines_of(const aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    int ndim = aril_cuda_host->ndim(x);
    int64_t axis = *aril_cuda_host->attr_i64(r, "axis"), numel = aril_cuda_host->numel(x);
    softmax_lines l = { numel, 1, 1 };
    if (ndim == 0 || numel == 0) return l;
    l.n = aril_cuda_host->dims(x)[axis];
    for (int d = (int)axis + 1; d < ndim; d++) l.step *= aril_cuda_host->dims(x)[d];
    l.count = numel / l.n;
    return l;
}

/* ---- rows in registers ---- */

/* The largest of the values that this thread holds. */
template <typename Row> static __device__ __forceinline__ float top_of(Row &v)
{
    float top = -INFINITY;
    v.each([&](float e, int, int) { top = aril_cuda_largest<float>::of(top, e); });
    return top;
}

/* Log: the logarithm. As an argument it would cost registers, of which a row needs all. */
template <bool Log, typename Row, typename S>
static __device__ __forceinline__ void softmax_values(Row &v, float top, S *to, int n)
{
    float sum = 0;
    top = aril_cuda_block_reduce<aril_cuda_largest, float>(top, -INFINITY);
    if (Log) {
        v.each([&](float &e, int, int) {
            e -= top;
            sum += expf(e);
        });
        float log_sum = logf(aril_cuda_block_sum(sum));
        v.store(to, n, [&](float e, int, int) { return e - log_sum; });
    } else {
        v.each([&](float &e, int, int) {
            e = expf(e - top);
            sum += e;
        });
        float scale = 1 / aril_cuda_block_sum(sum);
        v.store(to, n, [&](float e, int, int) { return e * scale; });
    }
}

template <typename S, int T, int Items, bool Log>
static __global__ void __launch_bounds__(aril_cuda_row_threads<T>())
    softmax_row(const S *x, S *y, int64_t rows, int n)
{
    int64_t row = aril_cuda_row_number<T>();
    if (row >= rows) return; /* the same for all that share a row */
    aril_cuda_row<S, T, Items> v;
    v.load(x + row * n, n, -INFINITY);
    softmax_values<Log>(v, top_of(v), y + row * n, n);
}

/* The same with one block on a multiprocessor, which handles many rows: the next is on its way to
 * shared memory while this one is computed and stored. */
template <typename S, int T, int Items, bool Log>
static __global__ void __launch_bounds__(T) softmax_rows(const S *x, S *y, int64_t rows, int n)
{
    typedef aril_cuda_row<S, T, Items> Row;
    extern __shared__ uint4 shared[];
    S *next = reinterpret_cast<S *>(shared);
    Row::fetch(x + blockIdx.x * (int64_t)n, n, next);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        Row v;
        __pipeline_wait_prior(0);
        v.load(next, n, -INFINITY);
        float top = top_of(v); /* the row is in registers */
        if (row + gridDim.x < rows) Row::fetch(x + (row + gridDim.x) * n, n, next);
        softmax_values<Log>(v, top, y + row * n, n);
    }
}

template <typename S, int T, int Items>
static __global__ void __launch_bounds__(aril_cuda_row_threads<T>())
    softmax_grad_row(const S *g, const S *y, S *dx, int64_t rows, int n, bool logarithm)
{
    int64_t row = aril_cuda_row_number<T>();
    if (row >= rows) return;
    aril_cuda_row<S, T, Items> a, b;
    a.load(g + row * n, n, 0);
    b.load(y + row * n, n, 0);
    float sum = 0;
    if (logarithm)
        a.each([&](float e, int, int) { sum += e; });
    else
        a.each([&](float e, int j, int k) { sum += e * b.v[j][k]; });
    sum = aril_cuda_block_sum(sum);
    if (logarithm)
        a.store(dx + row * n, n, [&](float e, int j, int k) { return e - expf(b.v[j][k]) * sum; });
    else
        a.store(dx + row * n, n, [&](float e, int j, int k) { return b.v[j][k] * (e - sum); });
}

/* ---- long rows of any length and alignment ---- */

/* A block for each row, which is kept in shared memory (`Keep`) or read twice. */
template <typename C, typename S, bool Keep>
static __global__ void __launch_bounds__(ARIL_CUDA_WIDE_THREADS)
    softmax_wide(const S *x, S *y, int64_t n, bool logarithm)
{
    typedef typename aril_cuda_wide_row<S>::vector vector;
    extern __shared__ uint4 shared[];
    const S *row = x + blockIdx.x * n;
    S *to = y + blockIdx.x * n;
    const aril_cuda_wide_row<S> wide(row, n);
    vector *kept = reinterpret_cast<vector *>(shared);
    const vector *again = Keep ? kept : reinterpret_cast<const vector *>(row + wide.head);
    aril_cuda_exponents<C> e = aril_cuda_scan_wide<C, S, Keep>(wide, row, kept);
    if (isinf(e.top)) e.sum = NAN; /* the difference of infinities */
    C log_sum = log(e.sum), scale = 1 / e.sum;
    auto share = [&](C v) {
        return logarithm ? v - e.top - log_sum : aril_cuda_exp_for<S>(v - e.top) * scale;
    };
    if (wide.edge() >= 0)
        to[wide.edge()] = aril_cuda_from<S>(share(aril_cuda_to<C>(row[wide.edge()])));
    wide.each(again, [&](int i, vector v) {
#pragma unroll
        for (int k = 0; k < wide.wide; k++)
            v.at[k] = aril_cuda_from<S>(share(aril_cuda_to<C>(v.at[k])));
        reinterpret_cast<vector *>(to + wide.head)[i] = v;
    });
}

/* The same for g and y; Keep: y in shared memory. */
template <typename C, typename S, bool Keep>
static __global__ void __launch_bounds__(ARIL_CUDA_WIDE_THREADS)
    softmax_grad_wide(const S *g, const S *y, S *dx, int64_t n, bool logarithm)
{
    typedef typename aril_cuda_wide_row<S>::vector vector;
    extern __shared__ uint4 shared[];
    const S *g_row = g + blockIdx.x * n, *y_row = y + blockIdx.x * n;
    S *to = dx + blockIdx.x * n;
    const aril_cuda_wide_row<S> wide(y_row, n);
    vector *kept = reinterpret_cast<vector *>(shared);
    const vector *g_from = reinterpret_cast<const vector *>(g_row + wide.head);
    const vector *y_from = reinterpret_cast<const vector *>(y_row + wide.head);
    C sum = 0;
    int edge = wide.edge();
    if (edge >= 0)
        sum = aril_cuda_to<C>(g_row[edge]) * (logarithm ? C(1) : aril_cuda_to<C>(y_row[edge]));
    wide.each(y_from, [&](int i, const vector &v) {
        vector u = g_from[i];
        if (Keep) kept[i] = v;
#pragma unroll
        for (int k = 0; k < wide.wide; k++)
            sum += aril_cuda_to<C>(u.at[k]) * (logarithm ? C(1) : aril_cuda_to<C>(v.at[k]));
    });
    sum = aril_cuda_block_sum(sum);
    auto slope = [&](C e, C v) {
        return logarithm ? e - aril_cuda_exp_for<S>(v) * sum : v * (e - sum);
    };
    if (edge >= 0)
        to[edge] =
            aril_cuda_from<S>(slope(aril_cuda_to<C>(g_row[edge]), aril_cuda_to<C>(y_row[edge])));
    wide.each(g_from, [&](int i, vector u) {
        const vector v = Keep ? kept[i] : y_from[i];
#pragma unroll
        for (int k = 0; k < wide.wide; k++)
            u.at[k] = aril_cuda_from<S>(slope(aril_cuda_to<C>(u.at[k]), aril_cuda_to<C>(v.at[k])));
        reinterpret_cast<vector *>(to + wide.head)[i] = u;
    });
}

/* ---- any line ---- */

/* A block handles a line, or (`Alone`) each thread one: neighbouring lines are adjacent. */
template <typename C, bool Alone>
static __global__ void softmax_line(const void *x, void *y, int dtype, softmax_lines l,
                                    bool logarithm)
{
    typedef aril_cuda_exponents<C> E;
    int64_t line = Alone ? (int64_t)blockIdx.x * blockDim.x + threadIdx.x : blockIdx.x;
    if (line >= l.count) return;
    int64_t begin = l.begin(line), first = Alone ? 0 : threadIdx.x, by = Alone ? 1 : blockDim.x;
    E all = { -(C)INFINITY, 0 };
    for (int64_t i = first; i < l.n; i += by)
        all = aril_cuda_merging<E>::of(all, { aril_cuda_load<C>(x, begin + i * l.step, dtype), 1 });
    if (!Alone) all = aril_cuda_block_reduce<aril_cuda_merging, E>(all, { -(C)INFINITY, 0 });
    if (isinf(all.top)) all.sum = NAN; /* the difference of infinities */
    C log_sum = log(all.sum), scale = 1 / all.sum;
    for (int64_t i = first; i < l.n; i += by) {
        C e = aril_cuda_load<C>(x, begin + i * l.step, dtype) - all.top;
        aril_cuda_store<C>(y, begin + i * l.step, dtype, logarithm ? e - log_sum : exp(e) * scale);
    }
}

template <typename C, bool Alone>
static __global__ void softmax_grad_line(const void *g, const void *y, void *dx, int dtype,
                                         softmax_lines l, bool logarithm)
{
    int64_t line = Alone ? (int64_t)blockIdx.x * blockDim.x + threadIdx.x : blockIdx.x;
    if (line >= l.count) return;
    int64_t begin = l.begin(line), first = Alone ? 0 : threadIdx.x, by = Alone ? 1 : blockDim.x;
    C sum = 0;
    for (int64_t i = first; i < l.n; i += by) {
        C e = aril_cuda_load<C>(g, begin + i * l.step, dtype);
        sum += logarithm ? e : e * aril_cuda_load<C>(y, begin + i * l.step, dtype);
    }
    if (!Alone) sum = aril_cuda_block_sum(sum);
    for (int64_t i = first; i < l.n; i += by) {
        C e = aril_cuda_load<C>(g, begin + i * l.step, dtype);
        C v = aril_cuda_load<C>(y, begin + i * l.step, dtype);
        aril_cuda_store<C>(dx, begin + i * l.step, dtype,
                           logarithm ? e - exp(v) * sum : v * (e - sum));
    }
}

/* ---- runs ---- */

/* Threads for a line of n elements. */
static unsigned threads_for(int64_t n)
{
    return n <= 64 ? 32 : n <= 512 ? 128 : n <= 4096 ? 256 : 1024;
}

static bool is_alone(const softmax_lines &l)
{
    return l.step >= 32 || (l.n <= 4 && l.count > 4096);
}

/* Long rows whose vectors are at the same addresses in all operands. */
static bool is_wide(const softmax_lines &l, const void *a, const void *b, const void *c)
{
    return l.step == 1 && aril_cuda_wide_fits(l.n, a, b) && aril_cuda_wide_fits(l.n, a, c);
}

/* Whether rows are long and many enough for softmax_rows. */
static bool are_many(const aril_run *r, const softmax_lines &l)
{
    return l.n > ARIL_CUDA_ROW_OF_256 && l.count >= 4 * aril_cuda_sms(r);
}

template <typename S, bool Log>
static aril_status launch_rows(aril_run *r, const softmax_lines &l, const void *x, void *y)
{
    enum { T = 1024, ITEMS = ARIL_CUDA_ROW_MAX / T };
    size_t bytes = (size_t)l.n * sizeof(S);
    aril_status s = aril_cuda_allow_shared(r, softmax_rows<S, T, ITEMS, Log>, bytes);
    if (s < 0) return s;
    softmax_rows<S, T, ITEMS, Log>
        <<<(unsigned)aril_cuda_sms(r), T, bytes, aril_cuda_stream(r)>>>((const S *)x, (S *)y,
                                                                        l.count, (int)l.n);
    return ARIL_OK;
}

/* Rows that fit in registers. */
template <typename S, bool Log>
static aril_status launch_row(aril_run *r, const softmax_lines &l, const void *x, void *y)
{
    if (are_many(r, l) && aril_cuda_wide_bytes(r, l.n, sizeof(S)))
        return launch_rows<S, Log>(r, l, x, y);
    ARIL_CUDA_ROW_SHAPE(
        l.n, 32,
        softmax_row<S, T, ITEMS, Log>
        <<<aril_cuda_row_grid<T>(l.count), aril_cuda_row_block<T>(), 0, aril_cuda_stream(r)>>>(
            (const S *)x, (S *)y, l.count, (int)l.n));
    return ARIL_OK;
}

template <typename S>
static aril_status launch_wide(aril_run *r, const softmax_lines &l, const void *x, void *y,
                               bool logarithm)
{
    typedef typename aril_cuda_type<S>::compute C;
    size_t bytes = aril_cuda_wide_bytes(r, l.n, sizeof(S));
    auto kernel = bytes ? softmax_wide<C, S, true> : softmax_wide<C, S, false>;
    aril_status s = aril_cuda_allow_shared(r, kernel, bytes);
    if (s < 0) return s;
    kernel<<<(unsigned)l.count, aril_cuda_wide_threads(l.n), bytes, aril_cuda_stream(r)>>>(
        (const S *)x, (S *)y, l.n, logarithm);
    return ARIL_OK;
}

template <typename S>
static aril_status launch_wide_grad(aril_run *r, const softmax_lines &l, const void *g,
                                    const void *y, void *dx, bool logarithm)
{
    typedef typename aril_cuda_type<S>::compute C;
    size_t bytes = aril_cuda_wide_bytes(r, l.n, sizeof(S));
    auto kernel = bytes ? softmax_grad_wide<C, S, true> : softmax_grad_wide<C, S, false>;
    aril_status s = aril_cuda_allow_shared(r, kernel, bytes);
    if (s < 0) return s;
    kernel<<<(unsigned)l.count, aril_cuda_wide_threads(l.n), bytes, aril_cuda_stream(r)>>>(
        (const S *)g, (const S *)y, (S *)dx, l.n, logarithm);
    return ARIL_OK;
}

static aril_status run_softmax(aril_run *r, bool logarithm)
{
    softmax_lines l = lines_of(r);
    const aril_tensor *t = aril_cuda_in(r, 0);
    int dtype = aril_cuda_host->dtype(t);
    if (aril_cuda_host->numel(t) == 0) return ARIL_OK;
    const void *x = aril_cuda_data(t);
    void *y = aril_cuda_data(aril_cuda_out(r, 0));
    cudaStream_t stream = aril_cuda_stream(r);
    if (l.step == 1 && aril_cuda_row_fits(dtype, l.n, ARIL_CUDA_ROW_MAX, x, y)) {
        aril_status s = ARIL_OK;
        ARIL_CUDA_SWITCH_SINGLE(dtype, S,
                                s = logarithm ? launch_row<S, true>(r, l, x, y)
                                              : launch_row<S, false>(r, l, x, y));
        if (s < 0) return s;
    } else if (is_wide(l, x, y, x)) {
        aril_status s = ARIL_OK;
        ARIL_CUDA_SWITCH_FLOAT(dtype, S, s = launch_wide<S>(r, l, x, y, logarithm));
        if (s < 0) return s;
    } else if (is_alone(l)) {
        unsigned blocks = (unsigned)((l.count + 127) / 128);
        if (dtype == ARIL_F64)
            softmax_line<double, true><<<blocks, 128, 0, stream>>>(x, y, dtype, l, logarithm);
        else
            softmax_line<float, true><<<blocks, 128, 0, stream>>>(x, y, dtype, l, logarithm);
    } else {
        unsigned threads = threads_for(l.n);
        if (dtype == ARIL_F64)
            softmax_line<double, false>
                <<<(unsigned)l.count, threads, 0, stream>>>(x, y, dtype, l, logarithm);
        else
            softmax_line<float, false>
                <<<(unsigned)l.count, threads, 0, stream>>>(x, y, dtype, l, logarithm);
    }
    return aril_cuda_launched(r);
}

static aril_status run_grad(aril_run *r, bool logarithm)
{
    softmax_lines l = lines_of(r);
    const aril_tensor *t = aril_cuda_in(r, 0);
    int dtype = aril_cuda_host->dtype(t);
    if (aril_cuda_host->numel(t) == 0) return ARIL_OK;
    const void *g = aril_cuda_data(t), *y = aril_cuda_data(aril_cuda_in(r, 1));
    void *dx = aril_cuda_data(aril_cuda_out(r, 0));
    cudaStream_t stream = aril_cuda_stream(r);
    if (l.step == 1 && aril_cuda_row_fits(dtype, l.n, ARIL_CUDA_ROW_MAX_OF_TWO, g, y, dx)) {
        ARIL_CUDA_SWITCH_SINGLE(
            dtype, S,
            ARIL_CUDA_ROW_SHAPE(
                l.n, 16,
                softmax_grad_row<S, T, ITEMS>
                <<<aril_cuda_row_grid<T>(l.count), aril_cuda_row_block<T>(), 0, stream>>>(
                    (const S *)g, (const S *)y, (S *)dx, l.count, (int)l.n, logarithm)));
    } else if (is_wide(l, y, g, dx)) {
        aril_status s = ARIL_OK;
        ARIL_CUDA_SWITCH_FLOAT(dtype, S, s = launch_wide_grad<S>(r, l, g, y, dx, logarithm));
        if (s < 0) return s;
    } else if (is_alone(l)) {
        unsigned blocks = (unsigned)((l.count + 127) / 128);
        if (dtype == ARIL_F64)
            softmax_grad_line<double, true>
                <<<blocks, 128, 0, stream>>>(g, y, dx, dtype, l, logarithm);
        else
            softmax_grad_line<float, true>
                <<<blocks, 128, 0, stream>>>(g, y, dx, dtype, l, logarithm);
    } else {
        unsigned threads = threads_for(l.n);
        if (dtype == ARIL_F64)
            softmax_grad_line<double, false>
                <<<(unsigned)l.count, threads, 0, stream>>>(g, y, dx, dtype, l, logarithm);
        else
            softmax_grad_line<float, false>
                <<<(unsigned)l.count, threads, 0, stream>>>(g, y, dx, dtype, l, logarithm);
    }
    return aril_cuda_launched(r);
}

aril_status aril_cuda_softmax_run(aril_run *r)
{
    return run_softmax(r, false);
}
aril_status aril_cuda_log_softmax_run(aril_run *r)
{
    return run_softmax(r, true);
}
aril_status aril_cuda_softmax_grad_run(aril_run *r)
{
    return run_grad(r, false);
}
aril_status aril_cuda_log_softmax_grad_run(aril_run *r)
{
    return run_grad(r, true);
}
