/* layer_norm, rms_norm and their gradients: rows of n elements, n parameters. */
#include "backend/cuda/norm/param.cuh"
#include "backend/cuda/norm/row.cuh"
#include "backend/cuda/norm/rows.cuh"
#include "backend/cuda/reduce/reduce.cuh"

#include <float.h>

/* ---- forward ---- */

/* `mean` NULL: RMS norm, without a mean and a bias. */
template <typename S, int T, int Items>
static __global__ void __launch_bounds__(aril_cuda_row_threads<T>())
    norm_row(const S *x, S *y, float *mean, float *invstd, aril_cuda_param weight,
             aril_cuda_param bias, int64_t rows, int n, float eps)
{
    typedef aril_cuda_row<S, T, Items> held;
    int64_t row = aril_cuda_row_number<T>();
    if (row >= rows) return; /* the same for all that share a row */
    held v;
    v.load(x + row * n, n, 0);
    float m = 0, squares = 0;
    if (mean) {
        v.each([&](float e, int, int) { m += e; });
        m = aril_cuda_block_sum(m) / (float)n;
    }
    v.each([&](float &e, int j, int) {
        if (held::at(j) < n) {
            e -= m;
            squares += e * e;
        }
    });
    float s = 1 / sqrtf(aril_cuda_block_sum(squares) / (float)n + eps);
    if (threadIdx.x == 0) {
        if (mean) mean[row] = m;
        invstd[row] = s;
    }
#pragma unroll
    for (int j = 0; j < held::chunks; j++) {
        int at = held::at(j);
        if (at >= n) continue;
        float w[held::wide], b[held::wide];
        typename held::vector out;
        weight.vector<S>(at, w, 1);
        bias.vector<S>(at, b, 0);
#pragma unroll
        for (int k = 0; k < held::wide; k++)
            out.at[k] = aril_cuda_from<S>(v.v[j][k] * s * w[k] + b[k]);
        *reinterpret_cast<typename held::vector *>(y + row * n + at) = out;
    }
}

/* Any dtype and length: a block for each row. */
template <typename C>
static __global__ void norm_line(const void *x, void *y, int dtype, C *mean, C *invstd,
                                 aril_cuda_param weight, aril_cuda_param bias, int64_t n, C eps)
{
    int64_t begin = blockIdx.x * n;
    C m = 0, squares = 0, count = n ? (C)n : 1;
    if (mean) {
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            m += aril_cuda_load<C>(x, begin + i, dtype);
        m = aril_cuda_block_sum(m) / count;
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        C d = aril_cuda_load<C>(x, begin + i, dtype) - m;
        squares += d * d;
    }
    C s = 1 / sqrt(aril_cuda_block_sum(squares) / count + eps);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        C e = (aril_cuda_load<C>(x, begin + i, dtype) - m) * s;
        aril_cuda_store<C>(y, begin + i, dtype, e * weight.at<C>(i, 1) + bias.at<C>(i, 0));
    }
    if (threadIdx.x == 0) {
        if (mean) mean[blockIdx.x] = m;
        invstd[blockIdx.x] = s;
    }
}

/* Rows and their length: statistics are over the last `axes` dimensions. */
struct shape {
    int64_t rows, n;
};
static shape shape_of(const aril_run *r, const aril_tensor *x, const aril_tensor *stat)
{
    int ndim = aril_cuda_host->ndim(x);
    int64_t axes = *aril_cuda_host->attr_i64(r, "axes");
    shape s = { aril_cuda_host->numel(stat), 1 };
    for (int d = ndim - (int)axes; d < ndim; d++) s.n *= aril_cuda_host->dims(x)[d];
    return s;
}

static unsigned threads_for(int64_t n)
{
    return n <= 64 ? 32 : n <= 512 ? 128 : n <= 4096 ? 256 : 1024;
}

/* mean: the number of that result, or -1. */
static aril_status run_norm(aril_run *r, int mean_out, int invstd_out, double eps)
{
    const aril_tensor *t = aril_cuda_in(r, 0);
    shape l = shape_of(r, t, aril_cuda_out(r, invstd_out));
    int dtype = aril_cuda_host->dtype(t);
    if (l.rows == 0) return ARIL_OK;
    const void *x = aril_cuda_data(t);
    void *y = aril_cuda_data(aril_cuda_out(r, 0));
    void *mean = mean_out < 0 ? nullptr : aril_cuda_data(aril_cuda_out(r, mean_out));
    void *invstd = aril_cuda_data(aril_cuda_out(r, invstd_out));
    aril_cuda_param weight = aril_cuda_param_of(r, 1), bias = aril_cuda_param_of(r, 2);
    cudaStream_t stream = aril_cuda_stream(r);
    if (l.n > 0 && aril_cuda_row_fits(dtype, l.n, ARIL_CUDA_ROW_MAX, x, y) &&
        ((uintptr_t)weight.base | (uintptr_t)bias.base) % 16 == 0)
        ARIL_CUDA_SWITCH_SINGLE(
            dtype, S,
            ARIL_CUDA_ROW_SHAPE(
                l.n, 32,
                norm_row<S, T, ITEMS>
                <<<aril_cuda_row_grid<T>(l.rows), aril_cuda_row_block<T>(), 0, stream>>>(
                    (const S *)x, (S *)y, (float *)mean, (float *)invstd, weight, bias, l.rows,
                    (int)l.n, (float)eps)));
    else if (dtype == ARIL_F64)
        norm_line<double><<<(unsigned)l.rows, threads_for(l.n), 0, stream>>>(
            x, y, dtype, (double *)mean, (double *)invstd, weight, bias, l.n, eps);
    else
        norm_line<float><<<(unsigned)l.rows, threads_for(l.n), 0, stream>>>(
            x, y, dtype, (float *)mean, (float *)invstd, weight, bias, l.n, (float)eps);
    return aril_cuda_launched(r);
}

/* in: x, weight?, bias?; out: y, mean, 1 / sqrt(var + eps) */
aril_status aril_cuda_layer_norm_run(aril_run *r)
{
    return run_norm(r, 1, 2, *aril_cuda_host->attr_f64(r, "eps"));
}

/* in: x, weight?; out: y, 1 / sqrt(mean(x^2) + eps) */
aril_status aril_cuda_rms_norm_run(aril_run *r)
{
    double eps = *aril_cuda_host->attr_f64(r, "eps");
    bool wide = aril_cuda_host->type(r) == ARIL_F64;
    return run_norm(r, -1, 1, eps >= 0 ? eps : wide ? DBL_EPSILON : (double)FLT_EPSILON);
}

/* ---- gradient of x ---- */

/* With h = g * weight: dx = invstd * (h - mean(h) - xhat * mean(h * xhat)), without mean(h) in RMS
 * norm. */
template <typename S, int T, int Items>
static __global__ void __launch_bounds__(aril_cuda_row_threads<T>())
    norm_grad_row(const S *g, const S *x, S *dx, aril_cuda_param mean, aril_cuda_param invstd,
                  aril_cuda_param weight, int64_t rows, int n)
{
    typedef aril_cuda_row<S, T, Items> held;
    int64_t row = aril_cuda_row_number<T>();
    if (row >= rows) return;
    held h, v;
    h.load(g + row * n, n, 0);
    v.load(x + row * n, n, 0);
    float m = mean.single<S>(row, 0), s = invstd.single<S>(row, 1), sum = 0, dot = 0;
#pragma unroll
    for (int j = 0; j < held::chunks; j++) {
        if (held::at(j) >= n) continue;
        float w[held::wide];
        weight.vector<S>(held::at(j), w, 1);
#pragma unroll
        for (int k = 0; k < held::wide; k++) {
            h.v[j][k] *= w[k];
            v.v[j][k] = (v.v[j][k] - m) * s;
            sum += h.v[j][k];
            dot += h.v[j][k] * v.v[j][k];
        }
    }
    sum = mean.base ? aril_cuda_block_sum(sum) / (float)n : 0;
    dot = aril_cuda_block_sum(dot) / (float)n;
    h.store(dx + row * n, n,
            [&](float e, int j, int k) { return s * (e - sum - v.v[j][k] * dot); });
}

template <typename C>
static __global__ void norm_grad_line(const void *g, const void *x, void *dx, int dtype,
                                      aril_cuda_param mean, aril_cuda_param invstd,
                                      aril_cuda_param weight, int64_t n)
{
    int64_t begin = blockIdx.x * n;
    C m = mean.at<C>(blockIdx.x, 0), s = invstd.at<C>(blockIdx.x, 1), sum = 0, dot = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        C h = aril_cuda_load<C>(g, begin + i, dtype) * weight.at<C>(i, 1);
        sum += h;
        dot += h * (aril_cuda_load<C>(x, begin + i, dtype) - m) * s;
    }
    sum = mean.base ? aril_cuda_block_sum(sum) / (C)n : 0;
    dot = aril_cuda_block_sum(dot) / (C)n;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        C h = aril_cuda_load<C>(g, begin + i, dtype) * weight.at<C>(i, 1);
        C e = (aril_cuda_load<C>(x, begin + i, dtype) - m) * s;
        aril_cuda_store<C>(dx, begin + i, dtype, s * (h - sum - e * dot));
    }
}

/* ---- gradients of the parameters: sums over rows ---- */

template <typename C> struct two_sums {
    C dot, sum;
};

/* A statistic of a row, as the reader of its elements reads. */
template <typename S, int N>
static __device__ __forceinline__ float stat_of(const aril_cuda_typed<float, S, N> &,
                                                const aril_cuda_param &p, int64_t row,
                                                float missing)
{
    return p.single<S>(row, missing);
}
template <typename C>
static __device__ __forceinline__ C stat_of(const aril_cuda_dynamic<C> &, const aril_cuda_param &p,
                                            int64_t row, C missing)
{
    return p.at<C>(row, missing);
}

/* Columns are adjacent: lanes are neighbouring parameters. */
template <typename Reader> struct summing_columns {
    typedef typename Reader::C C;
    typedef two_sums<C> acc;
    struct raw {
        typename Reader::raw g, x;
        C mean, invstd;
    };
    struct mine {
    };
    enum { lanes = Reader::lanes };
    Reader g, x;
    aril_cuda_param mean, invstd; /* no mean in RMS norm */
    aril_cuda_result dweight, dbias;

    __device__ raw load(int64_t at, int64_t row) const
    {
        return { g.load(at), x.load(at), stat_of(x, mean, row, C(0)),
                 stat_of(x, invstd, row, C(1)) };
    }
    __device__ mine begin(int64_t) const
    {
        return {};
    }
    __device__ acc neutral() const
    {
        return { 0, 0 };
    }
    __device__ acc combine(acc a, acc b) const
    {
        return { a.dot + b.dot, a.sum + b.sum };
    }
    __device__ void add(acc (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t,
                        int, mine) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) {
#pragma unroll
                for (int l = 0; l < lanes; l++) {
                    C e = Reader::get(v[u].g, l);
                    a[l].sum += e;
                    a[l].dot += e * ((Reader::get(v[u].x, l) - v[u].mean) * v[u].invstd);
                }
            }
    }
    __device__ void finish(int64_t i, int64_t, int64_t, int64_t, acc a) const
    {
        dweight.put<C>(i, a.dot);
        dbias.put<C>(i, a.sum);
    }
};

static aril_cuda_reduction columns_of(shape l, int dtype, const void *g, const void *x)
{
    aril_cuda_dims kept = {}, red = {};
    int size = aril_cuda_size(dtype);
    kept.ndim = red.ndim = 1;
    kept.dim[0] = l.n;
    kept.stride[0][0] = 1;
    red.dim[0] = l.rows;
    red.stride[0][0] = l.n;
    aril_cuda_reduction c = aril_cuda_reduction_from(&kept, &red);
    if (dtype != ARIL_F64 && !c.by_row && (uintptr_t)g % 16 == 0)
        aril_cuda_reduction_vectors(&c, x, size, 16 / size);
    aril_cuda_reduction_cut(&c);
    return c;
}

/* in: g, x, weight?, mean (`mean_in` -1: none), invstd; out: dx, dweight, dbias? */
static aril_cuda_reduction columns_of_run(const aril_run *r, int invstd_in)
{
    const aril_tensor *g = aril_cuda_in(r, 0), *x = aril_cuda_in(r, 1);
    return columns_of(shape_of(r, x, aril_cuda_in(r, invstd_in)), aril_cuda_host->dtype(x),
                      aril_cuda_data(g), aril_cuda_data(x));
}

template <typename Reader>
static void launch_params(aril_run *r, const aril_cuda_reduction &c, Reader g, Reader x,
                          aril_cuda_param mean, aril_cuda_param invstd)
{
    summing_columns<Reader> op = {
        g, x, mean, invstd, aril_cuda_result_of(r, 1), aril_cuda_result_of(r, 2)
    };
    aril_cuda_reduce_launch(aril_cuda_stream(r), op, c, aril_cuda_host->workspace(r));
}

template <typename S, int N> static aril_cuda_typed<float, S, N> typed(const void *p)
{
    return { (const S *)p };
}

static aril_status run_grad(aril_run *r, int mean_in, int invstd_in)
{
    const aril_tensor *t = aril_cuda_in(r, 1);
    shape l = shape_of(r, t, aril_cuda_in(r, invstd_in));
    aril_cuda_reduction c = columns_of_run(r, invstd_in);
    int dtype = aril_cuda_host->dtype(t);
    const void *g = aril_cuda_data(aril_cuda_in(r, 0)), *x = aril_cuda_data(t);
    aril_cuda_param none = { nullptr, 0 };
    aril_cuda_param mean = mean_in < 0 ? none : aril_cuda_param_of(r, mean_in);
    aril_cuda_param invstd = aril_cuda_param_of(r, invstd_in);
    void *dx = aril_cuda_data(aril_cuda_out(r, 0));
    aril_cuda_param weight = aril_cuda_param_of(r, 2);
    cudaStream_t stream = aril_cuda_stream(r);
    if (l.n == 0) return ARIL_OK;
    if (l.rows > 0) {
        if (aril_cuda_row_fits(dtype, l.n, ARIL_CUDA_ROW_MAX_OF_TWO, g, x, dx) &&
            (uintptr_t)weight.base % 16 == 0)
            ARIL_CUDA_SWITCH_SINGLE(
                dtype, S,
                ARIL_CUDA_ROW_SHAPE(
                    l.n, 16,
                    norm_grad_row<S, T, ITEMS>
                    <<<aril_cuda_row_grid<T>(l.rows), aril_cuda_row_block<T>(), 0, stream>>>(
                        (const S *)g, (const S *)x, (S *)dx, mean, invstd, weight, l.rows,
                        (int)l.n)));
        else if (dtype == ARIL_F64)
            norm_grad_line<double>
                <<<(unsigned)l.rows, threads_for(l.n), 0, stream>>>(g, x, dx, dtype, mean, invstd,
                                                                    weight, l.n);
        else
            norm_grad_line<float>
                <<<(unsigned)l.rows, threads_for(l.n), 0, stream>>>(g, x, dx, dtype, mean, invstd,
                                                                    weight, l.n);
    }
    if (c.lanes > 1 && dtype == ARIL_F32)
        launch_params(r, c, typed<float, 4>(g), typed<float, 4>(x), mean, invstd);
    else if (c.lanes > 1 && dtype == ARIL_BF16)
        launch_params(r, c, typed<aril_cuda_bf16, 8>(g), typed<aril_cuda_bf16, 8>(x), mean, invstd);
    else if (c.lanes > 1)
        launch_params(r, c, typed<aril_cuda_f16, 8>(g), typed<aril_cuda_f16, 8>(x), mean, invstd);
    else if (dtype == ARIL_F64)
        launch_params(r, c, aril_cuda_dynamic<double>{ g, dtype },
                      aril_cuda_dynamic<double>{ x, dtype }, mean, invstd);
    else
        launch_params(r, c, aril_cuda_dynamic<float>{ g, dtype },
                      aril_cuda_dynamic<float>{ x, dtype }, mean, invstd);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_layer_norm_grad_run(aril_run *r)
{
    return run_grad(r, 3, 4);
}
aril_status aril_cuda_rms_norm_grad_run(aril_run *r)
{
    return run_grad(r, -1, 3);
}
size_t aril_cuda_layer_norm_grad_workspace(const aril_run *r)
{
    return aril_cuda_reduce_bytes(columns_of_run(r, 4), sizeof(two_sums<double>));
}
size_t aril_cuda_rms_norm_grad_workspace(const aril_run *r)
{
    return aril_cuda_reduce_bytes(columns_of_run(r, 3), sizeof(two_sums<double>));
}
