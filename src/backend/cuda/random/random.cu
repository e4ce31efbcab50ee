/* Random numbers, and dropout: element i of a draw depends on the key and i alone (core/rng.h), so
 * results are the CPU's. A thread handles what one Philox block yields: 4 numbers of 32 bits, or 2
 * of 64. This file is compiled without contraction into fused multiply-adds. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
#include "backend/cuda/philox.cuh"
#include "backend/cuda/random/random.cuh"
#include "ops/random/dropout.h"
#include "ops/shape/create.h"

#include <math.h>
#include <string.h>

/* What a draw does with its numbers. */
enum kind { UNIFORM, NORMAL, BELOW, BERNOULLI, BERNOULLI_EACH };

struct draw {
    kind what;
    aril_cuda_key key;
    int64_t n;
    double a, b;                  /* low and high, mean and standard deviation, or a probability */
    double largest;               /* the largest value of the dtype below high */
    bool plain, bounded, aligned; /* aligned: the result, to what is written at a time */
    int64_t low;
    uint64_t range;
    aril_cuda_report report;
};

/* Writes the elements first .. first + M - 1 that exist. */
template <typename S, typename T, int M>
static __device__ __forceinline__ void put(S *out, int64_t first, int64_t n, const T *x,
                                           bool aligned)
{
    if (aligned && first + M <= n) {
        aril_cuda_vector<S, M> v;
#pragma unroll
        for (int k = 0; k < M; k++) v.at[k] = aril_cuda_from<S>(x[k]);
        *reinterpret_cast<aril_cuda_vector<S, M> *>(out + first) = v;
        return;
    }
#pragma unroll
    for (int k = 0; k < M; k++)
        if (first + k < n) out[first + k] = aril_cuda_from<S>(x[k]);
}

/* 4 numbers in f32. `p`: a probability for each element. */
template <typename S>
static __device__ __forceinline__ void make_single(const draw &d, int64_t block, const S *p,
                                                   float *x)
{
    uint4 w = aril_cuda_philox(d.key, (uint64_t)block);
    uint32_t word[4] = { w.x, w.y, w.z, w.w };
    if (d.what == NORMAL) {
        float2 u = aril_cuda_normals_f32(w.x, w.y), v = aril_cuda_normals_f32(w.z, w.w);
        float z[4] = { u.x, u.y, v.x, v.y };
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] = d.plain ? z[k] : (float)d.a + (float)d.b * z[k];
        return;
    }
    float low = (float)d.a, width = (float)(d.b - d.a), largest = (float)d.largest;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float u = aril_cuda_uniform_f32(word[k]);
        if (d.what == UNIFORM) {
            x[k] = d.plain ? u : low + width * u;
            if (d.bounded && x[k] > largest) x[k] = largest;
        } else if (d.what == BERNOULLI) {
            x[k] = (double)u < d.a;
        } else if (4 * block + k < d.n) {
            double q = aril_cuda_to<double>(p[4 * block + k]);
            if (!(q >= 0 && q <= 1))
                aril_cuda_fail(d.report, ARIL_CUDA_BAD_PROBABILITY, __double_as_longlong(q));
            x[k] = (double)u < q;
        }
    }
}

/* 2 numbers in f64. */
static __device__ __forceinline__ void make_double(const draw &d, int64_t block, const double *p,
                                                   double *x)
{
    ulonglong2 w = aril_cuda_philox64(d.key, (uint64_t)block);
    uint64_t word[2] = { w.x, w.y };
    if (d.what == NORMAL) {
        double2 u = aril_cuda_normals_f64(w.x, w.y);
        x[0] = d.plain ? u.x : d.a + d.b * u.x;
        x[1] = d.plain ? u.y : d.a + d.b * u.y;
        return;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        double u = aril_cuda_uniform_f64(word[k]);
        if (d.what == UNIFORM) {
            x[k] = d.plain ? u : d.a + (d.b - d.a) * u;
            if (d.bounded && x[k] > d.largest) x[k] = d.largest;
        } else if (d.what == BERNOULLI) {
            x[k] = u < d.a;
        } else if (2 * block + k < d.n) {
            double q = p[2 * block + k];
            if (!(q >= 0 && q <= 1))
                aril_cuda_fail(d.report, ARIL_CUDA_BAD_PROBABILITY, __double_as_longlong(q));
            x[k] = u < q;
        }
    }
}

template <typename S>
static __global__ void draw_single(const __grid_constant__ draw d, S *out, const S *p)
{
    int64_t blocks = (d.n + 3) / 4;
    ARIL_CUDA_LOOP(i, blocks)
    {
        float x[4];
        make_single<S>(d, i, p, x);
        put<S, float, 4>(out, 4 * i, d.n, x, d.aligned);
    }
}

static __global__ void draw_double(const __grid_constant__ draw d, double *out, const double *p)
{
    int64_t blocks = (d.n + 1) / 2;
    ARIL_CUDA_LOOP(i, blocks)
    {
        double x[2];
        make_double(d, i, p, x);
        put<double, double, 2>(out, 2 * i, d.n, x, d.aligned);
    }
}

/* Integers from 64-bit draws, and bits of any dtype. */
template <typename S> static __global__ void draw_below(const __grid_constant__ draw d, S *out)
{
    int64_t blocks = (d.n + 1) / 2;
    ARIL_CUDA_LOOP(i, blocks)
    {
        ulonglong2 w = aril_cuda_philox64(d.key, (uint64_t)i);
        int64_t x[2] = { (int64_t)(aril_cuda_below(w.x, d.range) + (uint64_t)d.low),
                         (int64_t)(aril_cuda_below(w.y, d.range) + (uint64_t)d.low) };
        put<S, int64_t, 2>(out, 2 * i, d.n, x, d.aligned);
    }
}

/* ---- from a run to a draw ---- */

template <typename S> static double largest_half_below(double high)
{
    S x = aril_cuda_from<S>(high);
    uint16_t h;
    if (aril_cuda_to<double>(x) < high) return aril_cuda_to<double>(x);
    memcpy(&h, &x, sizeof h); /* sign-magnitude: one step towards minus infinity */
    h = h == 0 ? 0x8001u : h & 0x8000u ? (uint16_t)(h + 1) : (uint16_t)(h - 1);
    memcpy(static_cast<void *>(&x), &h, sizeof x);
    return aril_cuda_to<double>(x);
}

/* As aril__rng_largest_below: the largest value of a dtype below `high`. */
static double largest_below(aril_dtype dtype, double high)
{
    if (dtype == ARIL_F64) return nextafter(high, -INFINITY);
    float f = (float)high;
    if (dtype == ARIL_F32) return f < high ? f : nextafterf(f, -INFINITY);
    return dtype == ARIL_F16 ? largest_half_below<aril_cuda_f16>(high)
                             : largest_half_below<aril_cuda_bf16>(high);
}

static draw draw_of(const aril_run *r, kind what)
{
    const create_attrs *a = what == BERNOULLI_EACH ? nullptr : aril_cuda_attrs<create_attrs>(r);
    draw d = {};
    d.what = what;
    d.key = aril_cuda_key_of(r, 0);
    d.n = aril_cuda_host->numel(aril_cuda_out(r, 0));
    d.report = aril_cuda_report_of(r);
    d.aligned = (uintptr_t)aril_cuda_data(aril_cuda_out(r, 0)) % 32 == 0;
    if (!a) return d;
    d.a = a->value[0];
    d.b = a->value[1];
    d.plain = d.a == 0 && d.b == 1;
    d.low = a->integer[0];
    d.range = (uint64_t)a->integer[2] - (uint64_t)a->integer[0];
    return d;
}

template <typename S> static aril_status run_single(aril_run *r, const draw &d, const void *p)
{
    S *out = static_cast<S *>(aril_cuda_data(aril_cuda_out(r, 0)));
    draw_single<S><<<aril_cuda_blocks(r, d.n, 1024), 256, 0, aril_cuda_stream(r)>>>(
        d, out, static_cast<const S *>(p));
    return aril_cuda_launched(r);
}

static aril_status run_double(aril_run *r, const draw &d, const void *p)
{
    double *out = static_cast<double *>(aril_cuda_data(aril_cuda_out(r, 0)));
    draw_double<<<aril_cuda_blocks(r, d.n, 512), 256, 0, aril_cuda_stream(r)>>>(
        d, out, static_cast<const double *>(p));
    return aril_cuda_launched(r);
}

static aril_status run_float(aril_run *r, const draw &d, const void *p)
{
    aril_dtype dtype = aril_cuda_host->dtype(aril_cuda_out(r, 0));
    if (d.n == 0) return ARIL_OK;
    if (dtype == ARIL_F64) return run_double(r, d, p);
    ARIL_CUDA_SWITCH_SINGLE(dtype, S, return run_single<S>(r, d, p));
    return ARIL_OK;
}

aril_status aril_cuda_rand_run(aril_run *r)
{
    draw d = draw_of(r, UNIFORM);
    d.largest = largest_below(aril_cuda_host->dtype(aril_cuda_out(r, 0)), d.b);
    d.bounded = d.b > d.a;
    return run_float(r, d, nullptr);
}

aril_status aril_cuda_randn_run(aril_run *r)
{
    return run_float(r, draw_of(r, NORMAL), nullptr);
}

aril_status aril_cuda_randint_run(aril_run *r)
{
    draw d = draw_of(r, BELOW);
    aril_tensor *out = aril_cuda_out(r, 0);
    if (d.n == 0) return ARIL_OK;
    ARIL_CUDA_SWITCH(aril_cuda_host->dtype(out), S, {
        draw_below<S><<<aril_cuda_blocks(r, d.n, 512), 256, 0, aril_cuda_stream(r)>>>(
            d, static_cast<S *>(aril_cuda_data(out)));
    });
    return aril_cuda_launched(r);
}

aril_status aril_cuda_bernoulli_fill_run(aril_run *r)
{
    draw d = draw_of(r, BERNOULLI);
    aril_dtype dtype = aril_cuda_host->dtype(aril_cuda_out(r, 0));
    if (d.n == 0) return ARIL_OK;
    if (dtype == ARIL_F64) return run_double(r, d, nullptr);
    ARIL_CUDA_SWITCH(dtype, S, return run_single<S>(r, d, nullptr));
    return ARIL_OK;
}

aril_status aril_cuda_bernoulli_run(aril_run *r)
{
    return run_float(r, draw_of(r, BERNOULLI_EACH), aril_cuda_data(aril_cuda_in(r, 1)));
}

/* ---- dropout ---- */

template <typename C> struct dropout {
    aril_cuda_key key;
    int64_t inner; /* elements that share one draw */
    float p;       /* rounded up to a possible draw */
    C scale, kept, dropped;

    __device__ __forceinline__ C of(C x, uint32_t word) const
    {
        return aril_cuda_uniform_f32(word) >= p ? x * scale + kept : dropped;
    }
};

/* Contiguous, a draw for each element: 4 at a time. */
template <typename S, typename C>
static __global__ void drop_each(const __grid_constant__ dropout<C> d, int64_t n, const S *x, S *y)
{
    int64_t blocks = (n + 3) / 4;
    ARIL_CUDA_LOOP(i, blocks)
    {
        uint4 w = aril_cuda_philox(d.key, (uint64_t)i);
        uint32_t word[4] = { w.x, w.y, w.z, w.w };
        bool whole = 4 * i + 4 <= n;
        C v[4];
        if (whole) {
            aril_cuda_vector<S, 4> from =
                *reinterpret_cast<const aril_cuda_vector<S, 4> *>(x + 4 * i);
#pragma unroll
            for (int k = 0; k < 4; k++) v[k] = aril_cuda_to<C>(from.at[k]);
        } else {
            for (int k = 0; k < 4; k++) v[k] = 4 * i + k < n ? aril_cuda_to<C>(x[4 * i + k]) : C(0);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = d.of(v[k], word[k]);
        put<S, C, 4>(y, 4 * i, n, v, true);
    }
}

/* Any strides: operands y, x, and the element's number in logical order. */
template <typename S, typename C>
static __global__ void drop_any(const __grid_constant__ dropout<C> d,
                                const __grid_constant__ aril_cuda_nest<3> nest, uint32_t n,
                                int64_t first, const S *x, S *y)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int32_t at[3];
        nest.offsets(i, at);
        uint64_t draw = (uint64_t)((first + at[2]) / d.inner);
        y[at[0]] = aril_cuda_from<S>(d.of(aril_cuda_to<C>(x[at[1]]), aril_cuda_u32(d.key, draw)));
    }
}

static bool aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

template <typename S> static aril_status drop_as(aril_run *r, const dropout_attrs *a)
{
    typedef typename aril_cuda_type<S>::compute C;
    const aril_tensor *x = aril_cuda_in(r, 1);
    aril_tensor *y = aril_cuda_out(r, 0);
    S *to = static_cast<S *>(aril_cuda_data(y));
    const S *from = static_cast<const S *>(aril_cuda_data(x));
    dropout<C> d = { aril_cuda_key_of(r, 0),
                     1,
                     (float)(ceil(a->p[0] * 0x1p24) * 0x1p-24),
                     (C)a->scale[0],
                     (C)a->kept[0],
                     (C)a->dropped[0] };
    for (int k = aril_cuda_host->ndim(x) - 1; a->lead[0] >= 0 && k >= a->lead[0]; k--)
        d.inner *= aril_cuda_host->dims(x)[k];
    aril_cuda_loops l = aril_cuda_loops_of(y);
    aril_cuda_loops_add(&l, y);
    aril_cuda_loops_add(&l, x);
    int64_t step = 1;
    for (int k = l.ndim - 1; k >= 0; k--) {
        l.stride[2][k] = step;
        step *= l.dim[k];
    }
    l.n = 3;
    aril_cuda_loops_merge(&l, 0);
    bool flat = l.ndim == 0 ||
                (l.ndim == 1 && l.stride[0][0] == 1 && l.stride[1][0] == 1 && l.stride[2][0] == 1);
    if (flat && d.inner == 1 && aligned(from, 4 * sizeof(S)) && aligned(to, 4 * sizeof(S))) {
        int64_t n = aril_cuda_host->numel(y);
        drop_each<S, C>
            <<<aril_cuda_blocks(r, n, 1024, 8), 256, 0, aril_cuda_stream(r)>>>(d, n, from, to);
        return aril_cuda_launched(r);
    }
    return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) {
        uint32_t n = (uint32_t)aril_cuda_loops_numel(&piece);
        drop_any<S, C><<<aril_cuda_blocks(r, n, 256, 8), 256, 0, aril_cuda_stream(r)>>>(
            d, aril_cuda_nest_of<3>(piece), n, piece.offset[2], from + piece.offset[1],
            to + piece.offset[0]);
        return aril_cuda_launched(r);
    });
}

aril_status aril_cuda_dropout_run(aril_run *r)
{
    const dropout_attrs *a = aril_cuda_attrs<dropout_attrs>(r);
    aril_tensor *y = aril_cuda_out(r, 0);
    if (aril_cuda_host->numel(y) == 0) return ARIL_OK;
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(y), S, return drop_as<S>(r, a));
    return ARIL_OK;
}
