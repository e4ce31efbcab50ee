/* Max and average pooling, and the gradient of average pooling, which gathers. */
#include "backend/cuda/vision/pool.cuh"

#include "backend/cuda/block.cuh"

/* ---- geometry ---- */

/* Sizes that kernels hold in 32 bits: larger ones say the same for images of 2^31 elements. */
static int fitting(int64_t size)
{
    return (int)(size < (1 << 30) ? size : 1 << 30);
}

static aril_cuda_pool_shape shape_of(const aril_run *r, const aril_cuda_image &x,
                                     const aril_cuda_image &y, int spatial, bool adaptive)
{
    const pool_attrs *a = aril_cuda_attrs<pool_attrs>(r);
    aril_cuda_pool_shape p = {};
    p.divisor = adaptive ? 0 : fitting(a->divisor[0]);
    p.include_pad = adaptive || a->include_pad[0];
    for (int i = 0; i < 3; i++) {
        int at = i - (3 - spatial);
        aril_cuda_window *w = &p.along[i];
        *w = { (int)x.dim[2 + i], (int)y.dim[2 + i], 1, 1, 0, 0, 1 };
        if (at < 0) continue;
        aril__slide s = {};
        s.kernel = a->kernel[at];
        s.stride = a->stride[at];
        s.begin = a->pad[2 * at];
        s.end = a->pad[2 * at + 1];
        s.dilation = a->dilation[at];
        if (a->same[0] && !adaptive) aril__slide_same(&s, x.dim[2 + i], a->same[0]);
        w->kernel = adaptive ? 0 : fitting(s.kernel);
        w->stride = fitting(s.stride);
        w->begin = (int)s.begin;
        w->end = (int)s.end;
        w->dilation = fitting(s.dilation);
    }
    return p;
}

/* The images of the attributes' windows span at most 2^30 elements. */
const char *aril_cuda_pool_prepare(const aril_run *r, aril_plan *)
{
    const int64_t *kernel = aril_cuda_host->attr_i64(r, "kernel");
    const int64_t *dilation = aril_cuda_host->attr_i64(r, "dilation");
    const int64_t *stride = aril_cuda_host->attr_i64(r, "stride");
    const char *why = aril_cuda_image_fits(aril_cuda_out(r, 0));
    for (int i = 0; i < 3 && !why; i++) {
        bool small = kernel[i] < 1 << 15 && dilation[i] < 1 << 15 && stride[i] < 1 << 30;
        if (!small) why = "a window of 2^15 elements or more";
    }
    return why ? why : aril_cuda_image_fits(aril_cuda_in(r, 0));
}

/* One part of an op from x to y or back, as its kernels take it. */
struct job {
    aril_cuda_pool_shape p;
    const void *from;
    void *to;
    int64_t *indices;
    int64_t from_stride[5], to_stride[5], index_stride[5];
    aril_cuda_walk walk; /* over the elements of the result */
    uint32_t n;
    int channels; /* that a thread takes, at once */
};

static __device__ __forceinline__ int64_t place(const int64_t stride[5], uint32_t n, uint32_t c,
                                                const uint32_t o[3])
{
    return n * stride[0] + c * stride[1] + o[0] * stride[2] + o[1] * stride[3] + o[2] * stride[4];
}

/* ---- max ---- */

template <typename C> static __device__ __forceinline__ bool is_larger(C a, C b)
{
    return a > b || (a != a && b == b); /* NaN is larger than all numbers */
}

template <typename C> static __device__ __forceinline__ C lowest();
template <> __device__ __forceinline__ float lowest<float>()
{
    return -INFINITY;
}
template <> __device__ __forceinline__ double lowest<double>()
{
    return -INFINITY;
}
template <> __device__ __forceinline__ int64_t lowest<int64_t>()
{
    return INT64_MIN;
}
template <> __device__ __forceinline__ uint64_t lowest<uint64_t>()
{
    return 0;
}

/* The first of the largest elements of each window, and its index; -1 for an empty window. */
template <typename S> static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) max_pool(job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, o[3];
        j.walk.split(i, &n, &c, o);
        aril_cuda_taps t0 = aril_cuda_taps_of(j.p.along[0], (int)o[0]);
        aril_cuda_taps t1 = aril_cuda_taps_of(j.p.along[1], (int)o[1]);
        aril_cuda_taps t2 = aril_cuda_taps_of(j.p.along[2], (int)o[2]);
        const S *x = static_cast<const S *>(j.from) + n * j.from_stride[0] + c * j.from_stride[1];
        C best = lowest<C>();
        int index = -1;
        for (int a = 0, p0 = t0.first; a < t0.n; a++, p0 += t0.step)
            for (int b = 0, p1 = t1.first; b < t1.n; b++, p1 += t1.step) {
                const S *row = x + p0 * j.from_stride[2] + p1 * j.from_stride[3];
                int base = (p0 * j.p.along[1].in + p1) * j.p.along[2].in;
                for (int e = 0, p2 = t2.first; e < t2.n; e++, p2 += t2.step) {
                    C v = aril_cuda_to<C>(row[p2 * j.from_stride[4]]);
                    if (index >= 0 && !is_larger(v, best)) continue;
                    best = v;
                    index = base + p2;
                }
            }
        static_cast<S *>(j.to)[place(j.to_stride, n, c, o)] = aril_cuda_from<S>(best);
        j.indices[place(j.index_stride, n, c, o)] = index;
    }
}

template <typename S, int V>
static __device__ __forceinline__ void take_larger(const aril_cuda_vector<S, V> &v, int at,
                                                   typename aril_cuda_type<S>::compute (&best)[V],
                                                   int (&index)[V])
{
#pragma unroll
    for (int l = 0; l < V; l++) {
        auto value = aril_cuda_to<typename aril_cuda_type<S>::compute>(v.at[l]);
        bool take = index[l] < 0 || is_larger(value, best[l]);
        best[l] = take ? value : best[l];
        index[l] = take ? at : index[l];
    }
}

enum { ABREAST = 3 }; /* elements of a window that are read before they are compared */

/* The same for V adjacent channels. */
template <typename S, int V>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    max_pool_channels(const __grid_constant__ job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    typedef aril_cuda_vector<S, V> group;
    typedef aril_cuda_vector<int64_t, 2> pair;
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, o[3];
        j.walk.split(i, &n, &c, o);
        c *= V;
        aril_cuda_taps t0 = aril_cuda_taps_of(j.p.along[0], (int)o[0]);
        aril_cuda_taps t1 = aril_cuda_taps_of(j.p.along[1], (int)o[1]);
        aril_cuda_taps t2 = aril_cuda_taps_of(j.p.along[2], (int)o[2]);
        const S *x = static_cast<const S *>(j.from) + n * j.from_stride[0] + c;
        C best[V];
        int index[V];
#pragma unroll
        for (int l = 0; l < V; l++) best[l] = lowest<C>(), index[l] = -1;
        for (int a = 0, p0 = t0.first; a < t0.n; a++, p0 += t0.step)
            for (int b = 0, p1 = t1.first; b < t1.n; b++, p1 += t1.step) {
                const S *row = x + p0 * j.from_stride[2] + p1 * j.from_stride[3];
                int base = (p0 * j.p.along[1].in + p1) * j.p.along[2].in;
                for (int e = 0; e < t2.n; e += ABREAST) {
                    group v[ABREAST];
#pragma unroll
                    for (int u = 0; u < ABREAST; u++)
                        if (e + u < t2.n)
                            v[u] = *reinterpret_cast<const group *>(
                                row + (t2.first + (e + u) * t2.step) * j.from_stride[4]);
#pragma unroll
                    for (int u = 0; u < ABREAST; u++)
                        if (e + u < t2.n)
                            take_larger<S, V>(v[u], base + t2.first + (e + u) * t2.step, best,
                                              index);
                }
            }
        group y;
#pragma unroll
        for (int l = 0; l < V; l++) y.at[l] = aril_cuda_from<S>(best[l]);
        *reinterpret_cast<group *>(static_cast<S *>(j.to) + place(j.to_stride, n, c, o)) = y;
        int64_t *indices = j.indices + place(j.index_stride, n, c, o);
#pragma unroll
        for (int l = 0; l < V; l += 2)
            *reinterpret_cast<pair *>(indices + l) = { index[l], index[l + 1] };
    }
}

/* ---- average ---- */

/* Of V adjacent channels. */
template <typename S, int V>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) avg_pool(const __grid_constant__ job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    typedef aril_cuda_vector<S, V> group;
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, o[3];
        aril_cuda_taps t[3];
        j.walk.split(i, &n, &c, o);
        c *= V;
        for (int d = 0; d < 3; d++) t[d] = aril_cuda_taps_of(j.p.along[d], (int)o[d]);
        const S *x = static_cast<const S *>(j.from) + n * j.from_stride[0] + c * j.from_stride[1];
        C divisor = (C)aril_cuda_pool_divisor(j.p, t);
        C sum[V] = {};
        for (int a = 0; a < t[0].n; a++)
            for (int b = 0; b < t[1].n; b++) {
                const S *row = x + (t[0].first + a * t[0].step) * j.from_stride[2] +
                               (t[1].first + b * t[1].step) * j.from_stride[3] +
                               t[2].first * j.from_stride[4];
#pragma unroll 4
                for (int e = 0; e < t[2].n; e++) {
                    group v =
                        *reinterpret_cast<const group *>(row + e * t[2].step * j.from_stride[4]);
#pragma unroll
                    for (int l = 0; l < V; l++) sum[l] += aril_cuda_to<C>(v.at[l]);
                }
            }
        group y;
#pragma unroll
        for (int l = 0; l < V; l++)
            y.at[l] = aril_cuda_from<S>(divisor != 0 ? sum[l] / divisor : C(0));
        *reinterpret_cast<group *>(static_cast<S *>(j.to) + place(j.to_stride, n, c, o)) = y;
    }
}

/* The same with a warp for each window: large windows, of few results. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) avg_pool_warp(job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    uint32_t warps = gridDim.x * (blockDim.x / 32), lane = threadIdx.x % 32;
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < j.n; i += warps) {
        uint32_t n, c, o[3];
        aril_cuda_taps t[3];
        j.walk.split(i, &n, &c, o);
        for (int d = 0; d < 3; d++) t[d] = aril_cuda_taps_of(j.p.along[d], (int)o[d]);
        const S *x = static_cast<const S *>(j.from) + n * j.from_stride[0] + c * j.from_stride[1];
        int64_t divisor = aril_cuda_pool_divisor(j.p, t);
        int per = t[1].n * t[2].n, all = t[0].n * per;
        C sum = 0;
        for (int k = (int)lane; k < all; k += 32) {
            int a = k / per, rest = k - a * per, b = rest / t[2].n, e = rest - b * t[2].n;
            sum += aril_cuda_to<C>(x[(t[0].first + a * t[0].step) * j.from_stride[2] +
                                     (t[1].first + b * t[1].step) * j.from_stride[3] +
                                     (t[2].first + e * t[2].step) * j.from_stride[4]]);
        }
        sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
        if (lane == 0)
            static_cast<S *>(j.to)[place(j.to_stride, n, c, o)] =
                aril_cuda_from<S>(divisor ? sum / (C)divisor : C(0));
    }
}

/* The windows [*from, *to] that may contain element i of the input along one dimension. */
static __device__ __forceinline__ void windows_with(const aril_cuda_window &w, int i, int *from,
                                                    int *to)
{
    if (aril_cuda_window_is_single(w)) {
        *from = *to = 0;
        return;
    }
    if (w.kernel == 0) {
        *from = aril_cuda_pool_scale(i, w.out, 0, w.in);
        *to = w.out ? aril_cuda_pool_scale(i, w.out, w.out - 1, w.in) : -1;
        return;
    }
    int span = (w.kernel - 1) * w.dilation, first = i + w.begin - span;
    *from = first <= 0 ? 0 : (first + w.stride - 1) / w.stride;
    *to = (i + w.begin) / w.stride;
    if (*to >= w.out) *to = w.out - 1;
}

/* Whether window o contains element i. */
static __device__ __forceinline__ bool contains(const aril_cuda_window &w, int o, int i)
{
    return w.dilation == 1 || w.kernel == 0 || (i + w.begin - o * w.stride) % w.dilation == 0;
}

/* Each element of x sums the shares of the windows that contain it; V adjacent channels. */
template <typename S, int V>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    avg_pool_grad(const __grid_constant__ job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    typedef aril_cuda_vector<S, V> group;
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, p[3];
        int from[3], to[3];
        j.walk.split(i, &n, &c, p);
        c *= V;
        for (int d = 0; d < 3; d++) windows_with(j.p.along[d], (int)p[d], &from[d], &to[d]);
        const S *g = static_cast<const S *>(j.from) + n * j.from_stride[0] + c * j.from_stride[1];
        C sum[V] = {};
        aril_cuda_taps t[3];
        for (int a = from[0]; a <= to[0]; a++) {
            if (!contains(j.p.along[0], a, (int)p[0])) continue;
            t[0] = aril_cuda_taps_of(j.p.along[0], a);
            for (int b = from[1]; b <= to[1]; b++) {
                if (!contains(j.p.along[1], b, (int)p[1])) continue;
                t[1] = aril_cuda_taps_of(j.p.along[1], b);
                for (int e = from[2]; e <= to[2]; e++) {
                    if (!contains(j.p.along[2], e, (int)p[2])) continue;
                    group v = *reinterpret_cast<const group *>(
                        g + a * j.from_stride[2] + b * j.from_stride[3] + e * j.from_stride[4]);
                    t[2] = aril_cuda_taps_of(j.p.along[2], e);
                    C share = 1 / (C)aril_cuda_pool_divisor(j.p, t);
#pragma unroll
                    for (int l = 0; l < V; l++) sum[l] += aril_cuda_to<C>(v.at[l]) * share;
                }
            }
        }
        group x;
#pragma unroll
        for (int l = 0; l < V; l++) x.at[l] = aril_cuda_from<S>(sum[l]);
        *reinterpret_cast<group *>(static_cast<S *>(j.to) + place(j.to_stride, n, c, p)) = x;
    }
}

/* ---- runs ---- */

enum kind { MAX, AVG, AVG_GRAD };

/* Whether a warp should share each window. */
static bool by_warps(const job &j, kind k, int64_t elements)
{
    return k == AVG && elements >= 128 && !j.walk.inner && j.n < 1 << 22;
}

static int64_t window_elements(const aril_cuda_pool_shape &p)
{
    int64_t n = 1;
    for (int d = 0; d < 3; d++) {
        const aril_cuda_window &w = p.along[d];
        n *= w.kernel ? w.kernel : (w.in + w.out - 1) / w.out;
    }
    return n;
}

template <typename S> static void launch(aril_run *r, const job &j, kind k)
{
    enum { V = 16 / sizeof(S) };
    const int threads = ARIL_CUDA_THREADS;
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, j.n, threads, 16);
    if (k == AVG && j.channels > 1)
        avg_pool<S, V><<<blocks, threads, 0, stream>>>(j);
    else if (by_warps(j, k, window_elements(j.p)))
        avg_pool_warp<S><<<aril_cuda_blocks(r, j.n, threads / 32, 16), threads, 0, stream>>>(j);
    else if (k == AVG)
        avg_pool<S, 1><<<blocks, threads, 0, stream>>>(j);
    else if (j.channels > 1)
        avg_pool_grad<S, V><<<blocks, threads, 0, stream>>>(j);
    else
        avg_pool_grad<S, 1><<<blocks, threads, 0, stream>>>(j);
}

template <typename S> static void launch_max(aril_run *r, const job &j)
{
    max_pool<S><<<aril_cuda_blocks(r, j.n, ARIL_CUDA_THREADS, 16), ARIL_CUDA_THREADS, 0,
                  aril_cuda_stream(r)>>>(j);
}

template <typename S> static void launch_max_channels(aril_run *r, const job &j)
{
    enum { V = 16 / sizeof(S) };
    unsigned blocks = aril_cuda_blocks(r, j.n, ARIL_CUDA_THREADS, 16);
    max_pool_channels<S, V><<<blocks, ARIL_CUDA_THREADS, 0, aril_cuda_stream(r)>>>(j);
}

/* Adjacent channels that one thread takes, by one instruction; 1 where that is not possible. */
static int channels_at_once(const aril_cuda_image &from, const aril_cuda_image &to,
                            const aril_cuda_image *indices, aril_dtype type)
{
    int bytes = aril_cuda_size(type), V = 16 / bytes;
    bool inner =
        aril_cuda_channels_inner(to) || (aril_cuda_area(to) == 1 && aril_cuda_channels_inner(from));
    bool fits = to.dim[1] * aril_cuda_area(to) <= ARIL_CUDA_MOST; /* or parts would cut groups */
    return aril_cuda_is_float(type) && fits && inner && aril_cuda_in_vectors(from, 1, V, bytes) &&
                   aril_cuda_in_vectors(to, 1, V, bytes) &&
                   (!indices || aril_cuda_in_vectors(*indices, 1, 2, 8))
               ? V
               : 1;
}

static void launch_any(aril_run *r, const job &j, kind k)
{
    aril_dtype type = aril_cuda_host->dtype(aril_cuda_out(r, 0));
    if (k == MAX && j.channels > 1)
        ARIL_CUDA_SWITCH_FLOAT(type, S, launch_max_channels<S>(r, j));
    else if (k == MAX && type == ARIL_I64)
        launch_max<int64_t>(r, j);
    else if (k == MAX && type == ARIL_U64)
        launch_max<uint64_t>(r, j);
    else if (k == MAX)
        ARIL_CUDA_SWITCH_FLOAT(type, S, launch_max<S>(r, j));
    else
        ARIL_CUDA_SWITCH_FLOAT(type, S, launch<S>(r, j, k));
}

static aril_status run_as(aril_run *r, kind k, bool adaptive)
{
    aril_cuda_image from = aril_cuda_image_at(aril_cuda_in(r, 0));
    aril_cuda_image to = aril_cuda_image_at(aril_cuda_out(r, 0)), indices = to;
    int spatial = aril_cuda_host->ndim(aril_cuda_in(r, 0)) - 2;
    aril_dtype type = aril_cuda_host->dtype(aril_cuda_out(r, 0));
    int bytes = aril_cuda_size(type);
    if (k == MAX) indices = aril_cuda_image_at(aril_cuda_out(r, 1));
    if (aril_cuda_area(to) == 0) return ARIL_OK;
    job j = {};
    j.channels = channels_at_once(from, to, k == MAX ? &indices : nullptr, type);
    j.p = shape_of(r, k == AVG_GRAD ? to : from, k == AVG_GRAD ? from : to, spatial, adaptive);
    for (int d = 0; d < 5; d++) {
        j.from_stride[d] = from.stride[d];
        j.to_stride[d] = to.stride[d];
        j.index_stride[d] = indices.stride[d];
    }
    return aril_cuda_each_part(to.dim[0], to.dim[1], aril_cuda_area(to), ARIL_CUDA_MOST,
                               [&](const aril_cuda_part &p) {
                                   j.from = aril_cuda_part_of(from, p, bytes);
                                   j.to = aril_cuda_part_of(to, p, bytes);
                                   j.indices =
                                       static_cast<int64_t *>(aril_cuda_part_of(indices, p, 8));
                                   j.walk = aril_cuda_walk_of(to, p.c / j.channels);
                                   j.n = (uint32_t)(p.n * (p.c / j.channels) * aril_cuda_area(to));
                                   launch_any(r, j, k);
                                   return aril_cuda_launched(r);
                               });
}

aril_status aril_cuda_max_pool_run(aril_run *r)
{
    return run_as(r, MAX, false);
}

aril_status aril_cuda_adaptive_max_pool_run(aril_run *r)
{
    return run_as(r, MAX, true);
}

aril_status aril_cuda_avg_pool_run(aril_run *r)
{
    return run_as(r, AVG, false);
}

aril_status aril_cuda_adaptive_avg_pool_run(aril_run *r)
{
    return run_as(r, AVG, true);
}

aril_status aril_cuda_avg_pool_grad_run(aril_run *r)
{
    return run_as(r, AVG_GRAD, false);
}

aril_status aril_cuda_adaptive_avg_pool_grad_run(aril_run *r)
{
    return run_as(r, AVG_GRAD, true);
}
