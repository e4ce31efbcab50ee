/* Group normalization: statistics of groups of channels of each sample. */
#include "backend/cuda/norm/channels.cuh"
#include "backend/cuda/norm/rows.cuh"
#include "backend/cuda/reduce/stats.cuh"

struct groups {
    aril_cuda_channels l;
    int64_t groups, each; /* of a sample; channels of a group */
};

static groups groups_of(const aril_run *r, const aril_tensor *x)
{
    groups s = { aril_cuda_channels_of(x), *aril_cuda_host->attr_i64(r, "groups"), 0 };
    if (s.groups == 0) s.groups = s.l.c;
    s.each = s.groups ? s.l.c / s.groups : 0;
    return s;
}

/* The elements of each group (`by_group`), or of each channel, of every sample. */
static aril_cuda_reduction reduction_of(const groups &s, bool by_group, uintptr_t bases, int dtype)
{
    const aril_cuda_channels &l = s.l;
    aril_cuda_dims kept = {}, red = {};
    int64_t c = l.last ? 1 : l.inner, p = l.last ? l.c : 1; /* strides of channels and positions */
    int64_t each = by_group ? s.each : 1;
    kept.ndim = red.ndim = 2;
    kept.dim[0] = l.batch;
    kept.stride[0][0] = l.c * l.inner;
    kept.dim[1] = by_group ? s.groups : l.c;
    kept.stride[0][1] = each * c;
    red.dim[l.last] = each;
    red.stride[0][l.last] = c;
    red.dim[!l.last] = l.inner;
    red.stride[0][!l.last] = p;
    aril_cuda_dims_merge(&kept, false);
    aril_cuda_dims_merge(&red, false);
    aril_cuda_reduction r = aril_cuda_reduction_from(&kept, &red);
    int size = aril_cuda_size(dtype);
    /* Lanes across results are neighbouring channels of one sample. */
    if (dtype != ARIL_F64 && (r.by_row || (l.last && l.c % (16 / size) == 0)))
        aril_cuda_reduction_vectors(&r, (void *)bases, size, 16 / size);
    aril_cuda_reduction_cut(&r);
    return r;
}

static size_t partial_bytes(const groups &s, bool by_group, int dtype, size_t acc)
{
    size_t narrow = aril_cuda_reduce_bytes(reduction_of(s, by_group, 1, dtype), acc);
    size_t wide = aril_cuda_reduce_bytes(reduction_of(s, by_group, 0, dtype), acc);
    return narrow > wide ? narrow : wide;
}

/* ---- all elements, with something per sample and channel ---- */

/* As aril_cuda_each_unit with channels last, where the sample matters, too. */
template <typename Op>
static __global__ void __launch_bounds__(256)
    each_of_sample(const __grid_constant__ Op op, int64_t units, int64_t c, int64_t inner)
{
    const int lanes = Op::unit::lanes;
    for (int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; u < units;
         u += (int64_t)gridDim.x * blockDim.x) {
        int64_t at = u * lanes, position = at / c, first = position / inner * c + at % c;
        typename Op::raw v = op.load(at);
        typename Op::coef k[lanes];
        op.coefs(first, k);
        op.store(at, v, k);
    }
}

/* coefs(i, k): from channel i % C of sample i / C. */
template <typename Op>
static void launch_each(const aril_run *r, const Op &op, const aril_cuda_channels &l)
{
    const int lanes = Op::unit::lanes;
    int64_t units = l.batch * l.c * l.inner / lanes;
    if (units == 0) return;
    if (l.last) {
        each_of_sample<Op>
            <<<aril_cuda_blocks(r, units, 256), 256, 0, aril_cuda_stream(r)>>>(op, units, l.c,
                                                                               l.inner);
        return;
    }
    aril_cuda_channels planes = { 1, l.batch * l.c, l.inner, false };
    aril_cuda_each_channel(r, op, planes);
}

/* ---- group_norm ---- */

template <typename Reader> struct measuring_groups : aril_cuda_measuring<Reader> {
    typedef typename Reader::C C;
    typedef aril_cuda_moments<C> acc;
    C *mean, *invstd;
    int64_t n;
    double eps;

    __device__ void finish(int64_t i, int64_t, int64_t, int64_t, acc a) const
    {
        mean[i] = a.mean;
        invstd[i] = 1 / sqrt(a.squares / (n ? (C)n : 1) + (C)eps);
    }
};

template <typename C> struct affine {
    C mean, scale, shift;
};

template <typename Unit> struct normalizing_groups {
    typedef Unit unit;
    enum { unroll = 2, resident = 2, waves = 16 };
    typedef typename Unit::C C;
    typedef affine<C> coef;
    typedef typename Unit::raw raw;
    const void *x;
    void *y;
    int dtype;
    const C *mean, *invstd;
    aril_cuda_param weight, bias;
    int64_t channels, each;

    template <int K> __device__ void coefs(int64_t i, coef (&k)[K]) const
    {
#pragma unroll
        for (int l = 0; l < K; l++) {
            int64_t c = (i + l) % channels, g = (i + l) / each;
            k[l] = { mean[g], invstd[g] * weight.at<C>(c, 1), bias.at<C>(c, 0) };
        }
    }
    __device__ raw load(int64_t at) const
    {
        return Unit::load(x, at, dtype);
    }
    template <int N> __device__ void store(int64_t at, const raw &v, const coef (&k)[N]) const
    {
        C out[Unit::lanes];
#pragma unroll
        for (int l = 0; l < Unit::lanes; l++) {
            const coef &a = k[N == 1 ? 0 : l];
            out[l] = (Unit::get(v, l) - a.mean) * a.scale + a.shift;
        }
        Unit::store(y, at, dtype, out);
    }
    __device__ void once() const
    {
    }
};

const char *aril_cuda_group_norm_prepare(const aril_run *r, aril_plan *plan)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    plan->in[0].order = plan->out[0].order = (uint8_t)aril_cuda_channels_order(x);
    plan->workspace = partial_bytes(groups_of(r, x), true, aril_cuda_host->dtype(x),
                                    sizeof(aril_cuda_moments<double>));
    return nullptr;
}

template <typename Reader>
static void launch_stats(aril_run *r, const aril_cuda_reduction &c, Reader x)
{
    typedef typename Reader::C C;
    measuring_groups<Reader> op = { x, (C *)aril_cuda_data(aril_cuda_out(r, 1)),
                                    (C *)aril_cuda_data(aril_cuda_out(r, 2)), c.each,
                                    *aril_cuda_host->attr_f64(r, "eps") };
    aril_cuda_reduce_launch(aril_cuda_stream(r), op, c, aril_cuda_host->workspace(r));
}

/* in: x, weight?, bias?; out: y, mean, 1 / sqrt(var + eps) */
aril_status aril_cuda_group_norm_run(aril_run *r)
{
    const aril_tensor *t = aril_cuda_in(r, 0);
    groups s = groups_of(r, t);
    int dtype = aril_cuda_host->dtype(t);
    const void *x = aril_cuda_data(t);
    void *y = aril_cuda_data(aril_cuda_out(r, 0));
    aril_cuda_reduction c = reduction_of(s, true, (uintptr_t)x, dtype);
    aril_cuda_with_reader(r, c, [&](auto reader) { launch_stats(r, c, reader); });
    int lanes = aril_cuda_channels_lanes(s.l, (uintptr_t)x | (uintptr_t)y, dtype);
    aril_cuda_with_unit(dtype, lanes, [&](auto unit) {
        typedef decltype(unit) Unit;
        typedef typename Unit::C C;
        normalizing_groups<Unit> op = { x,
                                        y,
                                        dtype,
                                        (const C *)aril_cuda_data(aril_cuda_out(r, 1)),
                                        (const C *)aril_cuda_data(aril_cuda_out(r, 2)),
                                        aril_cuda_param_of(r, 1),
                                        aril_cuda_param_of(r, 2),
                                        s.l.c,
                                        s.each };
        launch_each(r, op, s.l);
    });
    return aril_cuda_launched(r);
}

/* ---- group_norm_grad ---- */

template <typename C> struct two_sums {
    C dot, sum;
};

/* Of each channel of each sample: the sums of g and of g * xhat. */
template <typename Unit> struct summing_samples {
    typedef typename Unit::C C;
    typedef two_sums<C> acc;
    enum { lanes = Unit::lanes };
    struct raw {
        typename Unit::raw x, g;
    };
    struct mine {
        C mean[lanes], invstd[lanes];
    };
    const void *x, *g;
    int dtype;
    aril_cuda_param mean, invstd;
    two_sums<C> *to; /* [N][C] */
    int64_t each;
    bool shared; /* the lanes of a unit belong to one channel */

    __device__ raw load(int64_t at, int64_t) const
    {
        return { Unit::load(x, at, dtype), Unit::load(g, at, dtype) };
    }
    __device__ mine begin(int64_t i) const
    {
        mine m;
#pragma unroll
        for (int l = 0; l < lanes; l++) {
            int64_t group = (shared ? i : i + l) / each;
            m.mean[l] = mean.at<C>(group, 0);
            m.invstd[l] = invstd.at<C>(group, 1);
        }
        return m;
    }
    __device__ acc neutral() const
    {
        return { 0, 0 };
    }
    __device__ acc combine(acc a, acc b) const
    {
        return { a.dot + b.dot, a.sum + b.sum };
    }
    __device__ void add(acc (&a)[lanes], const raw (&v)[ARIL_CUDA_REDUCE_UNROLL], int n, int64_t,
                        int, const mine &m) const
    {
#pragma unroll
        for (int u = 0; u < ARIL_CUDA_REDUCE_UNROLL; u++)
            if (u < n) {
#pragma unroll
                for (int l = 0; l < lanes; l++) {
                    C e = Unit::get(v[u].g, l);
                    a[l].dot += e * ((Unit::get(v[u].x, l) - m.mean[l]) * m.invstd[l]);
                    a[l].sum += e;
                }
            }
    }
    __device__ void finish(int64_t i, int64_t, int64_t, int64_t, acc a) const
    {
        to[i] = a;
    }
};

/* The means over each group of h and h * xhat, h = g * weight: a warp for each. */
template <typename C>
static __global__ void group_means(const two_sums<C> *from, two_sums<C> *to, aril_cuda_param weight,
                                   int64_t total, int64_t groups, int64_t each, C n)
{
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= total) return; /* the same for the warp */
    C dot = 0, sum = 0;
    for (int64_t k = threadIdx.x % 32; k < each; k += 32) {
        C w = weight.at<C>(i % groups * each + k, 1);
        dot += w * from[i * each + k].dot;
        sum += w * from[i * each + k].sum;
    }
    dot = aril_cuda_warp_reduce<aril_cuda_sum>(dot);
    sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
    if (threadIdx.x % 32 == 0) to[i] = { dot / n, sum / n };
}

/* dweight and dbias: over the batch. */
template <typename C>
static __global__ void channel_sums(const two_sums<C> *from, C *dweight, C *dbias, int64_t batch,
                                    int64_t c)
{
    ARIL_CUDA_LOOP(i, c)
    {
        C dot = 0, sum = 0;
        for (int64_t n = 0; n < batch; n++) {
            dot += from[n * c + i].dot;
            sum += from[n * c + i].sum;
        }
        dweight[i] = dot;
        dbias[i] = sum;
    }
}

template <typename C> struct group_terms {
    C mean, invstd, weight, dot, sum;
};

/* dx = invstd * (h - mean(h) - xhat * mean(h * xhat)) */
template <typename Unit> struct differing_groups {
    typedef Unit unit;
    enum { unroll = 2, resident = 2, waves = 16 };
    typedef typename Unit::C C;
    typedef group_terms<C> coef;
    struct raw {
        typename Unit::raw x, g;
    };
    const void *x, *g;
    void *dx;
    int dtype;
    aril_cuda_param mean, invstd;
    const two_sums<C> *means; /* [N][groups] */
    aril_cuda_param weight;
    int64_t channels, each;

    template <int K> __device__ void coefs(int64_t i, coef (&k)[K]) const
    {
#pragma unroll
        for (int l = 0; l < K; l++) {
            int64_t g = (i + l) / each, c = (i + l) % channels;
            k[l] = { mean.at<C>(g, 0), invstd.at<C>(g, 1), weight.at<C>(c, 1), means[g].dot,
                     means[g].sum };
        }
    }
    __device__ raw load(int64_t at) const
    {
        return { Unit::load(x, at, dtype), Unit::load(g, at, dtype) };
    }
    template <int N> __device__ void store(int64_t at, const raw &v, const coef (&k)[N]) const
    {
        C out[Unit::lanes];
#pragma unroll
        for (int l = 0; l < Unit::lanes; l++) {
            const coef &a = k[N == 1 ? 0 : l];
            C e = (Unit::get(v.x, l) - a.mean) * a.invstd, h = Unit::get(v.g, l) * a.weight;
            out[l] = a.invstd * (h - a.sum - e * a.dot);
        }
        Unit::store(dx, at, dtype, out);
    }
    __device__ void once() const
    {
    }
};

const char *aril_cuda_group_norm_grad_prepare(const aril_run *r, aril_plan *plan)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    groups s = groups_of(r, x);
    size_t each = sizeof(two_sums<double>);
    plan->in[0].order = plan->in[1].order = plan->out[0].order =
        (uint8_t)aril_cuda_channels_order(x);
    plan->workspace = (size_t)(s.l.batch * (s.l.c + s.groups)) * each +
                      partial_bytes(s, false, aril_cuda_host->dtype(x), each);
    return nullptr;
}

template <typename Unit>
static void launch_grad(aril_run *r, const groups &s, const aril_cuda_reduction &c)
{
    typedef typename Unit::C C;
    const aril_tensor *t = aril_cuda_in(r, 0);
    const void *x = aril_cuda_data(t), *g = aril_cuda_data(aril_cuda_in(r, 1));
    aril_cuda_param mean = aril_cuda_param_of(r, 3), invstd = aril_cuda_param_of(r, 4);
    int dtype = aril_cuda_host->dtype(t);
    aril_cuda_param weight = aril_cuda_param_of(r, 2);
    int64_t samples = s.l.batch * s.l.c, total = s.l.batch * s.groups;
    two_sums<C> *sums = (two_sums<C> *)aril_cuda_host->workspace(r), *means = sums + samples;
    cudaStream_t stream = aril_cuda_stream(r);
    summing_samples<Unit> op = { x, g, dtype, mean, invstd, sums, s.each, c.by_row };
    aril_cuda_reduce_launch(stream, op, c, means + total);
    if (total > 0)
        group_means<C><<<(unsigned)((total + 7) / 8), 256, 0, stream>>>(sums, means, weight, total,
                                                                        s.groups, s.each,
                                                                        (C)(s.each * s.l.inner));
    channel_sums<C><<<aril_cuda_blocks(r, s.l.c, 64), 64, 0, stream>>>(
        sums, (C *)aril_cuda_data(aril_cuda_out(r, 1)), (C *)aril_cuda_data(aril_cuda_out(r, 2)),
        s.l.batch, s.l.c);
    differing_groups<Unit> each = {
        x, g, aril_cuda_data(aril_cuda_out(r, 0)), dtype, mean, invstd, means, weight, s.l.c, s.each
    };
    launch_each(r, each, s.l);
}

/* in: x, g, weight?, mean, invstd; out: dx, dweight, dbias */
aril_status aril_cuda_group_norm_grad_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    groups s = groups_of(r, x);
    int dtype = aril_cuda_host->dtype(x);
    uintptr_t bases = (uintptr_t)aril_cuda_data(x) | (uintptr_t)aril_cuda_data(aril_cuda_in(r, 1)) |
                      (uintptr_t)aril_cuda_data(aril_cuda_out(r, 0));
    if (s.l.c == 0) return ARIL_OK;
    /* Both kernels read the same units. */
    int lanes = aril_cuda_channels_lanes(s.l, bases, dtype);
    aril_cuda_reduction c = reduction_of(s, false, lanes > 1 ? bases : 1, dtype);
    if (c.lanes != lanes) c = reduction_of(s, false, 1, dtype);
    aril_cuda_with_unit(dtype, c.lanes, [&](auto unit) { launch_grad<decltype(unit)>(r, s, c); });
    return aril_cuda_launched(r);
}
