#include "backend/cuda/reduce/scan.cuh"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/reduce/rows.cuh"

/* ---- lines ---- */

void aril_cuda_lines_cut(aril_cuda_lines *l)
{
    const int64_t CHUNK = 4096, MAX_CHUNKS = 512;
    int64_t n = l->along.count, lines = l->lines.count;
    bool adjacent = l->along.ndim && l->along.stride[0][0] == 1;
    l->alone = n <= 32 || (lines >= 4096 && !adjacent);
    l->threads = n <= 64 ? 32 : n <= 512 ? 128 : 256;
    l->chunk = n;
    l->chunks = 1;
    if (l->alone || lines >= 256 || n < 2 * CHUNK) return;
    int64_t chunk = (n + MAX_CHUNKS - 1) / MAX_CHUNKS;
    l->chunk = chunk < CHUNK ? CHUNK : (chunk + 255) / 256 * 256;
    l->chunks = (int)((n + l->chunk - 1) / l->chunk);
}

/* The lines of a run: x, result 0, and result 1 or input 1. */
static aril_cuda_lines lines_of(const aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0), *third = nullptr;
    if (h->n_out(r) > 1)
        third = aril_cuda_out(r, 1);
    else if (h->n_in(r) > 1)
        third = aril_cuda_in(r, 1);
    const aril_tensor *operand[] = { x, aril_cuda_out(r, 0), third };
    int64_t mask = *h->attr_i64(r, "mask");
    aril_cuda_dims lines = {}, along = {};
    for (int d = 0; d < h->ndim(x); d++) {
        aril_cuda_dims *to = mask >> d & 1 ? &along : &lines;
        to->dim[to->ndim] = h->dims(x)[d];
        for (int k = 0; k < 3; k++)
            to->stride[k][to->ndim] = operand[k] ? h->strides(operand[k])[d] : 0;
        to->ndim++;
    }
    aril_cuda_dims_merge(&lines, true);
    aril_cuda_dims_merge(&along, false);
    aril_cuda_lines l = {};
    l.lines = aril_cuda_axes_of(&lines);
    l.along = aril_cuda_axes_of(&along);
    l.reverse = *h->attr_i64(r, "reverse");
    aril_cuda_lines_cut(&l);
    return l;
}

size_t aril_cuda_scan_workspace(const aril_run *r)
{
    return aril_cuda_lines_bytes(lines_of(r));
}

template <typename Op> static aril_status run_scan(aril_run *r, const Op &op)
{
    aril_cuda_scan_launch(aril_cuda_stream(r), op, lines_of(r), aril_cuda_host->workspace(r));
    return aril_cuda_launched(r);
}

/* ---- operands ---- */

struct operand {
    void *base;
    int dtype;
};
static operand operand_of(const aril_tensor *t)
{
    if (!t) return { nullptr, 0 };
    return { aril_cuda_data(t), (int)aril_cuda_host->dtype(t) };
}

static bool is_float(const aril_run *r)
{
    return aril_cuda_is_float(aril_cuda_host->dtype(aril_cuda_in(r, 0)));
}

/* ---- cumsum, cumprod ---- */

template <typename C> struct accumulating {
    typedef C acc;
    operand x, y;
    bool product;

    __device__ C neutral() const
    {
        return product ? 1 : 0;
    }
    __device__ C load(const int64_t (&at)[3], int64_t) const
    {
        return aril_cuda_load<C>(x.base, at[0], x.dtype);
    }
    __device__ C combine(C a, C b) const
    {
        return product ? a * b : a + b;
    }
    __device__ void put(const int64_t (&at)[3], int64_t, C, C upto) const
    {
        aril_cuda_store<C>(y.base, at[1], y.dtype, upto);
    }
};

static aril_status accumulate(aril_run *r, bool product)
{
    operand x = operand_of(aril_cuda_in(r, 0)), y = operand_of(aril_cuda_out(r, 0));
    if (x.dtype == ARIL_F64) return run_scan(r, accumulating<double>{ x, y, product });
    if (is_float(r)) return run_scan(r, accumulating<float>{ x, y, product });
    return run_scan(r, accumulating<uint64_t>{ x, y, product }); /* wraps around */
}

aril_status aril_cuda_cumsum_run(aril_run *r)
{
    return accumulate(r, false);
}
aril_status aril_cuda_cumprod_run(aril_run *r)
{
    return accumulate(r, true);
}

/* The same over flags. */
static aril_cuda_lines one_line(int64_t n)
{
    aril_cuda_dims lines = {}, along = {};
    along.ndim = 1;
    along.dim[0] = n;
    for (int k = 0; k < 3; k++) along.stride[k][0] = 1;
    aril_cuda_dims_merge(&along, false);
    aril_cuda_lines l = {};
    l.lines = aril_cuda_axes_of(&lines);
    l.along = aril_cuda_axes_of(&along);
    aril_cuda_lines_cut(&l);
    return l;
}

size_t aril_cuda_count_bytes(int64_t n)
{
    return aril_cuda_lines_bytes(one_line(n));
}

void aril_cuda_count_up(cudaStream_t stream, int64_t *flags, int64_t n, void *workspace)
{
    operand x = { flags, ARIL_I64 };
    aril_cuda_scan_launch(stream, accumulating<uint64_t>{ x, x, false }, one_line(n), workspace);
}

/* ---- cummax, cummin ---- */

template <typename C> struct leader {
    C value;
    int64_t at; /* -1: none yet */
};

/* The last of equal elements wins, and NaN is never replaced by a number. */
template <typename C> struct leading {
    typedef leader<C> acc;
    operand x, y;
    int64_t *indices;
    bool larger;

    __device__ acc neutral() const
    {
        return { 0, -1 };
    }
    __device__ acc load(const int64_t (&at)[3], int64_t k) const
    {
        return { aril_cuda_load<C>(x.base, at[0], x.dtype), k };
    }
    __device__ acc combine(acc a, acc b) const
    {
        if (a.at < 0) return b;
        if (b.at < 0) return a;
        bool odd = a.value != a.value || b.value != b.value;
        if (odd) return b.value != b.value ? b : a;
        return (larger ? b.value >= a.value : b.value <= a.value) ? b : a;
    }
    __device__ void put(const int64_t (&at)[3], int64_t, acc, acc upto) const
    {
        aril_cuda_store<C>(y.base, at[1], y.dtype, upto.value);
        indices[at[2]] = upto.at;
    }
};

static aril_status run_best(aril_run *r, bool larger)
{
    operand x = operand_of(aril_cuda_in(r, 0)), y = operand_of(aril_cuda_out(r, 0));
    int64_t *indices = (int64_t *)aril_cuda_data(aril_cuda_out(r, 1));
    if (is_float(r)) return run_scan(r, leading<double>{ x, y, indices, larger }); /* exact */
    if (x.dtype == ARIL_U64) return run_scan(r, leading<uint64_t>{ x, y, indices, larger });
    return run_scan(r, leading<int64_t>{ x, y, indices, larger });
}

aril_status aril_cuda_cummax_run(aril_run *r)
{
    return run_best(r, true);
}
aril_status aril_cuda_cummin_run(aril_run *r)
{
    return run_best(r, false);
}

/* ---- logcumsumexp ---- */

template <typename C> struct log_accumulating {
    typedef C acc;
    operand x, y;

    __device__ C neutral() const
    {
        return -(C)INFINITY;
    }
    __device__ C load(const int64_t (&at)[3], int64_t) const
    {
        return aril_cuda_load<C>(x.base, at[0], x.dtype);
    }
    __device__ C combine(C a, C b) const
    {
        if (a != a || b != b) return (C)NAN;
        C high = a > b ? a : b, low = a > b ? b : a;
        if (high == low && isinf(high)) return high; /* not inf - inf */
        return high + log1p(exp(low - high));
    }
    __device__ void put(const int64_t (&at)[3], int64_t, C, C upto) const
    {
        aril_cuda_store<C>(y.base, at[1], y.dtype, upto);
    }
};

aril_status aril_cuda_logcumsumexp_run(aril_run *r)
{
    operand x = operand_of(aril_cuda_in(r, 0)), y = operand_of(aril_cuda_out(r, 0));
    if (x.dtype == ARIL_F64) return run_scan(r, log_accumulating<double>{ x, y });
    return run_scan(r, log_accumulating<float>{ x, y });
}

/* ---- linear_scan ---- */

/* z -> b + a * z. In f64, as products of factors go far beyond the results. */
struct recurrence {
    double a, b;
};

struct recurring {
    typedef recurrence acc;
    operand a, b, y; /* b.base NULL: 0 */
    double init;

    __device__ acc neutral() const
    {
        return { 1, 0 };
    }
    __device__ acc load(const int64_t (&at)[3], int64_t) const
    {
        return { aril_cuda_load<double>(a.base, at[0], a.dtype),
                 b.base ? aril_cuda_load<double>(b.base, at[2], b.dtype) : 0 };
    }
    __device__ acc combine(acc first, acc then) const
    {
        return { first.a * then.a, then.b + then.a * first.b };
    }
    __device__ void put(const int64_t (&at)[3], int64_t, acc before, acc) const
    {
        aril_cuda_store<double>(y.base, at[1], y.dtype, before.b + before.a * init);
    }
};

aril_status aril_cuda_linear_scan_run(aril_run *r)
{
    recurring op = { operand_of(aril_cuda_in(r, 0)), operand_of(aril_cuda_in(r, 1)),
                     operand_of(aril_cuda_out(r, 0)), *aril_cuda_host->attr_f64(r, "init") };
    return run_scan(r, op);
}
