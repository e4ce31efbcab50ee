/* The gradient of batch normalization. With h = the gradient before the activation and xhat =
 * (x - mean) * invstd:
 *     dbias = sum h,  dweight = sum h * xhat,
 *     dx = weight * invstd * (h - (dbias + xhat * dweight) / n)
 * in one pass for the sums and another for dx. */
#include "backend/cuda/norm/activate.cuh"
#include "backend/cuda/norm/channels.cuh"
#include "backend/cuda/norm/rows.cuh"

/* Where the derivative of the activation comes from: there is none, from y, or (relu, relu6) from
 * x. ANY: decided when the kernel runs, where speed matters less than the number of kernels. */
enum source { NONE, BY_Y, BY_X, ANY };

/* Operands that both passes read. */
struct operands {
    const void *x, *g, *y;
    int dtype, act;
    float most; /* where the activation becomes constant; NaN: nowhere */
    aril_cuda_param mean, invstd, weight, bias;
};

template <typename Unit, source From> struct reading {
    typename Unit::raw x, g, y;

    static __device__ __forceinline__ reading of(const operands &o, int64_t at)
    {
        reading v;
        v.x = Unit::load(o.x, at, o.dtype);
        v.g = Unit::load(o.g, at, o.dtype);
        if (From == BY_Y || (From == ANY && o.y)) v.y = Unit::load(o.y, at, o.dtype);
        return v;
    }
    /* The gradient before the activation of lane l; d = x - mean. */
    template <typename C>
    __device__ __forceinline__ C before(const operands &o, int l, C d, C scale, C shift) const
    {
        C h = Unit::get(g, l);
        if (From == NONE || (From == ANY && !o.act)) return h;
        if (From == BY_X || (From == ANY && !o.y)) {
            C z = d * scale + shift;
            return z > 0 && !(z >= o.most) ? h : C(0);
        }
        return aril_cuda_activate_grad(o.act, h, Unit::get(y, l));
    }
};

/* ---- sums ---- */

enum { RESIDENT = 2 };

template <typename C> struct two_sums {
    C dot, sum; /* of h * (x - mean) and h */
};

template <typename Unit, source From> struct summing_channels {
    typedef typename Unit::C C;
    typedef two_sums<C> acc;
    typedef reading<Unit, From> raw;
    enum { lanes = Unit::lanes, resident = RESIDENT };
    struct mine {
        C mean[lanes], scale[lanes], shift[lanes];
    };
    operands o;
    aril_cuda_result dweight, dbias;
    bool shared; /* the lanes of a unit belong to one channel */

    __device__ raw load(int64_t at, int64_t) const
    {
        return raw::of(o, at);
    }
    template <int K> __device__ void read(int64_t c, mine &m) const
    {
        C mean[K], invstd[K], weight[K], bias[K];
        Unit::params(o.mean, c, mean, 0);
        if (From >= BY_X) {
            Unit::params(o.invstd, c, invstd, 1);
            Unit::params(o.weight, c, weight, 1);
            Unit::params(o.bias, c, bias, 0);
        }
#pragma unroll
        for (int l = 0; l < lanes; l++) {
            int from = K == 1 ? 0 : l;
            m.mean[l] = mean[from];
            m.scale[l] = From >= BY_X ? invstd[from] * weight[from] : 0;
            m.shift[l] = From >= BY_X ? bias[from] : 0;
        }
    }
    __device__ mine begin(int64_t c) const
    {
        mine m;
        if (shared)
            read<1>(c, m);
        else
            read<lanes>(c, m);
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
                    C d = Unit::get(v[u].x, l) - m.mean[l];
                    C h = v[u].before(o, l, d, m.scale[l], m.shift[l]);
                    a[l].dot += h * d;
                    a[l].sum += h;
                }
            }
    }
    __device__ void finish(int64_t c, int64_t, int64_t, int64_t, acc a) const
    {
        dweight.put<C>(c, a.dot * o.invstd.at<C>(c, 1));
        dbias.put<C>(c, a.sum);
    }
};

/* ---- dx ---- */

template <typename C> struct channel_terms {
    C mean, scale, shift; /* scale: weight * invstd */
    C less, slope;        /* dx = scale * h - less - (x - mean) * slope */
};

template <typename Unit, source From> struct differing_channels {
    typedef Unit unit;
    enum { unroll = 2, resident = 3, waves = 1 };
    typedef typename Unit::C C;
    typedef channel_terms<C> coef;
    typedef reading<Unit, From> raw;
    operands o;
    void *dx, *dresidual; /* dresidual NULL: not wanted */
    aril_cuda_param dweight, dbias;
    C per; /* 1 / n */

    template <int K> __device__ void coefs(int64_t c, coef (&k)[K]) const
    {
        C mean[K], invstd[K], weight[K], bias[K], dot[K], sum[K];
        Unit::params(o.mean, c, mean, 0);
        Unit::params(o.invstd, c, invstd, 1);
        Unit::params(o.weight, c, weight, 1);
        Unit::params(o.bias, c, bias, 0);
        Unit::params(dweight, c, dot, 0);
        Unit::params(dbias, c, sum, 0);
#pragma unroll
        for (int l = 0; l < K; l++) {
            C s = invstd[l], scale = s * weight[l];
            k[l] = { mean[l], scale, bias[l], scale * sum[l] * per, scale * s * dot[l] * per };
        }
    }
    __device__ raw load(int64_t at) const
    {
        return raw::of(o, at);
    }
    template <int K> __device__ void store(int64_t at, const raw &v, const coef (&k)[K]) const
    {
        C out[Unit::lanes], h[Unit::lanes];
#pragma unroll
        for (int l = 0; l < Unit::lanes; l++) {
            const coef &a = k[K == 1 ? 0 : l];
            C d = Unit::get(v.x, l) - a.mean;
            h[l] = v.before(o, l, d, a.scale, a.shift);
            out[l] = a.scale * h[l] - a.less - d * a.slope;
        }
        Unit::store(dx, at, o.dtype, out);
        if (dresidual) Unit::store(dresidual, at, o.dtype, h);
    }
    __device__ void once() const
    {
    }
};

/* ---- the run ---- */

const char *aril_cuda_batch_norm_grad_prepare(const aril_run *r, aril_plan *plan)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_order order = aril_cuda_channels_order(x);
    plan->in[0].order = plan->in[1].order = plan->in[5].order = (uint8_t)order;
    plan->out[0].order = (uint8_t)order;
    if (*aril_cuda_host->attr_i64(r, "residual")) plan->out[3].order = (uint8_t)order;
    plan->workspace = aril_cuda_channels_workspace(x, sizeof(two_sums<double>), RESIDENT);
    return nullptr;
}

template <typename Unit, source From>
static void launch(aril_run *r, const operands &o, const aril_cuda_channels &l,
                   const aril_cuda_reduction &c)
{
    typedef typename Unit::C C;
    aril_cuda_result dweight = aril_cuda_result_of(r, 1), dbias = aril_cuda_result_of(r, 2);
    bool residual = *aril_cuda_host->attr_i64(r, "residual");
    summing_channels<Unit, From> sums = { o, dweight, dbias, c.by_row };
    differing_channels<Unit, From> each = { o,
                                            aril_cuda_data(aril_cuda_out(r, 0)),
                                            residual ? aril_cuda_data(aril_cuda_out(r, 3))
                                                     : nullptr,
                                            { dweight.base, dweight.dtype },
                                            { dbias.base, dbias.dtype },
                                            1 / (C)c.each };
    aril_cuda_reduce_launch(aril_cuda_stream(r), sums, c, aril_cuda_host->workspace(r));
    aril_cuda_each_channel(r, each, l);
}

/* in: x, g, weight?, mean, invstd, y?, bias?; out: dx, dweight, dbias, dresidual */
aril_status aril_cuda_batch_norm_grad_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0), *g = aril_cuda_in(r, 1), *y = aril_cuda_in(r, 5);
    int dtype = aril_cuda_host->dtype(x), size = aril_cuda_size(dtype);
    operands o = { aril_cuda_data(x),
                   aril_cuda_data(g),
                   y ? aril_cuda_data(y) : nullptr,
                   dtype,
                   (int)*aril_cuda_host->attr_i64(r, "activation"),
                   NAN,
                   aril_cuda_param_of(r, 3),
                   aril_cuda_param_of(r, 4),
                   aril_cuda_param_of(r, 2),
                   aril_cuda_param_of(r, 6) };
    if (o.act == ARIL_RELU6 && o.bias.base) { /* there was no residual: y need not be read */
        o.y = nullptr;
        o.most = 6;
    }
    aril_cuda_channels l = aril_cuda_channels_of(x);
    uintptr_t bases = 0;
    for (int i = 0; i < 7; i++)
        if (aril_cuda_in(r, i)) bases |= (uintptr_t)aril_cuda_data(aril_cuda_in(r, i));
    for (int i = 0; i < (*aril_cuda_host->attr_i64(r, "residual") ? 4 : 3); i++)
        bases |= (uintptr_t)aril_cuda_data(aril_cuda_out(r, i));
    aril_cuda_reduction c =
        aril_cuda_channels_reduction(l, bases, size, dtype == ARIL_F64 ? 1 : 16 / size, RESIDENT);
    aril_cuda_with_unit(dtype, c.lanes, [&](auto unit) {
        typedef decltype(unit) Unit;
        if constexpr (Unit::lanes == 1)
            launch<Unit, ANY>(r, o, l, c);
        else if (!o.act)
            launch<Unit, NONE>(r, o, l, c);
        else if (o.y)
            launch<Unit, BY_Y>(r, o, l, c);
        else
            launch<Unit, BY_X>(r, o, l, c);
    });
    return aril_cuda_launched(r);
}
