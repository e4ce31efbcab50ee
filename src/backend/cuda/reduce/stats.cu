/* logsumexp, variances and norms. */
#include "backend/cuda/reduce/rows.cuh"
#include "backend/cuda/reduce/reduce.cuh"
#include "backend/cuda/reduce/stats.cuh"

/* ---- logsumexp ---- */

/* The largest element so far, and the sum of exponentials relative to it. NaN stays in `top`. */
template <typename C> struct exponents {
    C top, sum;
};

template <typename Reader> struct log_summing : aril_cuda_reading<Reader> {
    typedef typename Reader::C C;
    typedef exponents<C> acc;
    typedef typename Reader::raw raw;
    enum { lanes = Reader::lanes };
    aril_cuda_result y;

    __device__ acc neutral() const
    {
        return { -(C)INFINITY, 0 };
    }
    /* Equal tops may both be infinite: their difference is 0, not NaN. */
    __device__ acc combine(acc a, acc b) const
    {
        if (a.top != a.top || b.top == a.top) return { a.top, a.sum + b.sum };
        if (b.top != b.top) return b;
        return a.top > b.top ? acc{ a.top, a.sum + b.sum * exp(b.top - a.top) }
                             : acc{ b.top, b.sum + a.sum * exp(a.top - b.top) };
    }
    __device__ void add(acc (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t,
                        int, aril_cuda_nothing) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) {
#pragma unroll
                for (int l = 0; l < lanes; l++) {
                    C t = Reader::get(v[u], l);
                    a[l] = combine(a[l], acc{ t, 1 });
                }
            }
    }
    __device__ void finish(int64_t, int64_t, int64_t at, int64_t, acc a) const
    {
        y.put<C>(at, isinf(a.top) || isnan(a.top) ? a.top : a.top + log(a.sum));
    }
};

aril_status aril_cuda_logsumexp_run(aril_run *r)
{
    aril_cuda_reduction l = aril_cuda_reduction_of_run(r, false, false);
    if (l.results == 0) return ARIL_OK;
    aril_cuda_with_dynamic(r, [&](auto reader) {
        log_summing<decltype(reader)> op = { reader, aril_cuda_result_of(r, 0) };
        aril_cuda_reduce_launch(aril_cuda_stream(r), op, l, aril_cuda_host->workspace(r));
    });
    return aril_cuda_launched(r);
}

/* ---- var, std, var_mean, std_mean ---- */

template <typename Reader> struct varying : aril_cuda_measuring<Reader> {
    typedef typename Reader::C C;
    typedef aril_cuda_moments<C> acc;
    aril_cuda_result y, mean;
    int64_t n;
    double less; /* the correction */
    bool root;

    __device__ void finish(int64_t, int64_t, int64_t at, int64_t at_mean, acc a) const
    {
        double left = (double)n - less;
        C v = a.squares / (C)(left > 0 ? left : 0);
        y.put<C>(at, root ? sqrt(v) : v);
        mean.put<C>(at_mean, n ? a.mean : (C)NAN);
    }
};

static aril_status run_var(aril_run *r, bool root)
{
    aril_cuda_reduction l = aril_cuda_reduction_of_run(r, true, false);
    double less = *aril_cuda_host->attr_f64(r, "p");
    if (l.results == 0) return ARIL_OK;
    aril_cuda_with_reader(r, l, [&](auto reader) {
        varying<decltype(reader)> op = {
            reader, aril_cuda_result_of(r, 0), aril_cuda_result_of(r, 1), l.each, less, root
        };
        aril_cuda_reduce_launch(aril_cuda_stream(r), op, l, aril_cuda_host->workspace(r));
    });
    return aril_cuda_launched(r);
}

aril_status aril_cuda_var_run(aril_run *r)
{
    return run_var(r, false);
}
aril_status aril_cuda_std_run(aril_run *r)
{
    return run_var(r, true);
}

/* ---- norm ---- */

enum order { ZERO, ONE, TWO, OTHER, HIGHEST, LOWEST };

/* One copy for all kernels. */
static __device__ __noinline__ double power(double v, double p)
{
    return pow(v, p);
}

/* Powers of f32 are summed in f64, where they do not overflow. */
template <typename Reader> struct norming : aril_cuda_reading<Reader> {
    typedef double acc;
    typedef typename Reader::raw raw;
    enum { lanes = Reader::lanes };
    aril_cuda_result y;
    double p;
    order how;

    __device__ double neutral() const
    {
        return how == LOWEST ? INFINITY : 0;
    }
    __device__ double combine(double a, double b) const
    {
        if (how < HIGHEST) return a + b;
        if (a != a || b != b) return NAN;
        return (how == HIGHEST ? b > a : b < a) ? b : a;
    }
    __device__ double one(double v) const
    {
        v = fabs(v);
        if (how == TWO) return v * v;
        if (how == ZERO) return v != 0;
        return how == OTHER ? power(v, p) : v;
    }
    __device__ void add(double (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int m, int64_t,
                        int, aril_cuda_nothing) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < m) {
#pragma unroll
                for (int l = 0; l < lanes; l++)
                    a[l] = combine(a[l], one((double)Reader::get(v[u], l)));
            }
    }
    __device__ void finish(int64_t, int64_t, int64_t at, int64_t, double a) const
    {
        y.put<double>(at, how == TWO ? sqrt(a) : how == OTHER ? power(a, 1 / p) : a);
    }
};

aril_status aril_cuda_norm_run(aril_run *r)
{
    aril_cuda_reduction l = aril_cuda_reduction_of_run(r, true, false);
    double p = *aril_cuda_host->attr_f64(r, "p");
    order how = isinf(p) ? (p > 0 ? HIGHEST : LOWEST)
                : p == 0 ? ZERO
                : p == 1 ? ONE
                : p == 2 ? TWO
                         : OTHER;
    if (l.results == 0) return ARIL_OK;
    aril_cuda_with_reader(r, l, [&](auto reader) {
        norming<decltype(reader)> op = { reader, aril_cuda_result_of(r, 0), p, how };
        aril_cuda_reduce_launch(aril_cuda_stream(r), op, l, aril_cuda_host->workspace(r));
    });
    return aril_cuda_launched(r);
}
