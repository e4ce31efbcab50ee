/* Batch normalization: the statistics in one pass over x, the results in another, with the residual
 * and the activation fused. */
#include "backend/cuda/norm/activate.cuh"
#include "backend/cuda/norm/channels.cuh"
#include "backend/cuda/norm/rows.cuh"
#include "backend/cuda/reduce/stats.cuh"

static uintptr_t address(const aril_tensor *t)
{
    return t ? (uintptr_t)aril_cuda_data(t) : 0;
}

static const void *data_or_null(const aril_tensor *t)
{
    return t ? aril_cuda_data(t) : nullptr;
}

/* ---- results: y = act((x - mean) * scale + shift + residual) ---- */

struct normalizing {
    const void *x, *residual; /* residual NULL: none */
    void *y;
    int dtype, act;
    aril_cuda_param mean, spread, weight, bias;
    bool var;         /* `spread` is the variance; otherwise 1 / sqrt(var + eps) */
    double eps;       /* for variances */
    int64_t *batches; /* to count up; NULL: none */
    float low, high;  /* of activations that only limit; NaN: of another kind */
};

template <typename C> struct affine {
    C mean, scale, shift;
};

template <typename Unit, bool Residual> struct normalizing_channels {
    typedef Unit unit;
    enum { unroll = Residual ? 2 : 4, resident = 4, waves = 8 };
    typedef typename Unit::C C;
    typedef affine<C> coef;
    struct raw {
        typename Unit::raw x, residual;
    };
    normalizing o;

    template <int K> __device__ void coefs(int64_t c, coef (&k)[K]) const
    {
        C m[K], s[K], w[K], b[K];
        Unit::params(o.mean, c, m, 0);
        Unit::params(o.spread, c, s, 1);
        Unit::params(o.weight, c, w, 1);
        Unit::params(o.bias, c, b, 0);
#pragma unroll
        for (int l = 0; l < K; l++)
            k[l] = { m[l], (o.var ? 1 / sqrt(s[l] + (C)o.eps) : s[l]) * w[l], b[l] };
    }
    __device__ raw load(int64_t at) const
    {
        raw v;
        v.x = Unit::load(o.x, at, o.dtype);
        if (Residual) v.residual = Unit::load(o.residual, at, o.dtype);
        return v;
    }
    template <int K> __device__ void store(int64_t at, const raw &v, const coef (&k)[K]) const
    {
        const C low = o.low, high = o.high;
        C out[Unit::lanes];
#pragma unroll
        for (int l = 0; l < Unit::lanes; l++) {
            const coef &a = k[K == 1 ? 0 : l];
            C e = (Unit::get(v.x, l) - a.mean) * a.scale + a.shift;
            if (Residual) e += Unit::get(v.residual, l);
            out[l] = e < low ? low : e > high ? high : e;
        }
        if (low != low) {
#pragma unroll
            for (int l = 0; l < Unit::lanes; l++) out[l] = aril_cuda_activate(o.act, out[l]);
        }
        Unit::store(o.y, at, o.dtype, out);
    }
    __device__ void once() const
    {
        if (o.batches) ++*o.batches;
    }
};

static void launch_normalize(const aril_run *r, const aril_cuda_channels &l, int lanes,
                             normalizing o)
{
    bool limits = o.act == ARIL_NO_ACTIVATION || o.act == ARIL_RELU || o.act == ARIL_RELU6;
    o.low = !limits ? NAN : o.act ? 0 : -INFINITY;
    o.high = !limits ? NAN : o.act == ARIL_RELU6 ? 6 : INFINITY;
    aril_cuda_with_unit(o.dtype, lanes, [&](auto unit) {
        typedef decltype(unit) Unit;
        if (o.residual)
            aril_cuda_each_channel(r, normalizing_channels<Unit, true>{ o }, l);
        else
            aril_cuda_each_channel(r, normalizing_channels<Unit, false>{ o }, l);
    });
}

/* ---- statistics ---- */

template <typename Reader> struct measuring_channels : aril_cuda_measuring<Reader> {
    typedef typename Reader::C C;
    typedef aril_cuda_moments<C> acc;
    C *mean, *invstd;
    aril_cuda_result running_mean, running_var;
    const int64_t *batches; /* NULL: `momentum` */
    double n, momentum, eps;

    /* Running variances are unbiased. An empty batch leaves running values as they are. */
    __device__ void finish(int64_t c, int64_t, int64_t, int64_t, acc a) const
    {
        C count = n > 0 ? (C)n : 1;
        mean[c] = a.mean;
        invstd[c] = 1 / sqrt(a.squares / count + (C)eps);
        if (!(n > 0)) return;
        C m = batches ? (C)(1 / (double)(*batches + 1)) : (C)momentum;
        move(running_mean, c, m, a.mean);
        move(running_var, c, m, a.squares / (count - 1));
    }
    static __device__ void move(const aril_cuda_result &to, int64_t c, C m, C value)
    {
        if (!to.base) return;
        C old = aril_cuda_load<C>(to.base, c, to.dtype);
        aril_cuda_store<C>(to.base, c, to.dtype, (1 - m) * old + m * value);
    }
};

static __global__ void count_up(int64_t *batches)
{
    ++*batches;
}

/* ---- batch_norm ---- */

enum { RESIDENT = aril_cuda_measuring<aril_cuda_dynamic<float>>::resident };

const char *aril_cuda_batch_norm_prepare(const aril_run *r, aril_plan *plan)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_order order = aril_cuda_channels_order(x);
    plan->in[0].order = plan->in[6].order = plan->out[0].order = (uint8_t)order;
    plan->workspace = aril_cuda_channels_workspace(x, sizeof(aril_cuda_moments<double>), RESIDENT);
    return nullptr;
}

/* Counts a number of batches that is in host memory, and tells it. */
static bool host_batches(const aril_run *r, double *momentum)
{
    aril_host_number number;
    if (!aril_cuda_in(r, 5) || !aril_cuda_host->number(r, 5, &number)) return false;
    *(int64_t *)aril_cuda_data(aril_cuda_out(r, 5)) = number.i64 + 1;
    if (*aril_cuda_host->attr_i64(r, "cumulative")) *momentum = 1 / (double)(number.i64 + 1);
    return true;
}

template <typename Reader>
static void launch_stats(aril_run *r, const aril_cuda_reduction &c, Reader x, double momentum,
                         const int64_t *batches)
{
    typedef typename Reader::C C;
    measuring_channels<Reader> op = {
        x,
        (C *)aril_cuda_data(aril_cuda_out(r, 1)),
        (C *)aril_cuda_data(aril_cuda_out(r, 2)),
        aril_cuda_result_of(r, 3),
        aril_cuda_result_of(r, 4),
        *aril_cuda_host->attr_i64(r, "cumulative") ? batches : nullptr,
        (double)c.each,
        momentum,
        *aril_cuda_host->attr_f64(r, "eps"),
    };
    aril_cuda_reduce_launch(aril_cuda_stream(r), op, c, aril_cuda_host->workspace(r));
}

/* in: x, weight?, bias?, running_mean?, running_var?, batches?, residual?
 * out: y, mean, 1 / sqrt(var + eps), and the updated running values */
aril_status aril_cuda_batch_norm_run(aril_run *r)
{
    const aril_tensor *t = aril_cuda_in(r, 0), *residual = aril_cuda_in(r, 6);
    aril_tensor *y = aril_cuda_out(r, 0);
    aril_cuda_channels l = aril_cuda_channels_of(t);
    int dtype = aril_cuda_host->dtype(t), size = aril_cuda_size(dtype);
    uintptr_t bases = address(t) | address(y) | address(residual) | address(aril_cuda_in(r, 1)) |
                      address(aril_cuda_in(r, 2));
    double momentum = *aril_cuda_host->attr_f64(r, "momentum");
    bool on_host = host_batches(r, &momentum);
    int64_t *batches =
        on_host || !aril_cuda_out(r, 5) ? nullptr : (int64_t *)aril_cuda_data(aril_cuda_out(r, 5));
    aril_cuda_reduction c =
        aril_cuda_channels_reduction(l, bases, size, dtype == ARIL_F64 ? 1 : 16 / size, RESIDENT);
    const void *x = aril_cuda_data(t);
    if (c.lanes > 1 && dtype == ARIL_F32)
        launch_stats(r, c, aril_cuda_typed<float, float, 4>{ (const float *)x }, momentum, batches);
    else if (c.lanes > 1 && dtype == ARIL_BF16)
        launch_stats(r, c, aril_cuda_typed<float, aril_cuda_bf16, 8>{ (const aril_cuda_bf16 *)x },
                     momentum, batches);
    else if (c.lanes > 1)
        launch_stats(r, c, aril_cuda_typed<float, aril_cuda_f16, 8>{ (const aril_cuda_f16 *)x },
                     momentum, batches);
    else if (dtype == ARIL_F64)
        launch_stats(r, c, aril_cuda_dynamic<double>{ x, dtype }, momentum, batches);
    else
        launch_stats(r, c, aril_cuda_dynamic<float>{ x, dtype }, momentum, batches);
    if (batches && aril_cuda_host->numel(t) == 0)
        count_up<<<1, 1, 0, aril_cuda_stream(r)>>>(batches);
    const aril_tensor *mean = aril_cuda_out(r, 1);
    int stat = aril_cuda_host->dtype(mean), act = (int)*aril_cuda_host->attr_i64(r, "activation");
    normalizing o = { x,
                      data_or_null(residual),
                      aril_cuda_data(y),
                      dtype,
                      act,
                      { aril_cuda_data(mean), stat },
                      { aril_cuda_data(aril_cuda_out(r, 2)), stat },
                      aril_cuda_param_of(r, 1),
                      aril_cuda_param_of(r, 2),
                      false,
                      0,
                      batches };
    launch_normalize(r, l, c.lanes, o);
    return aril_cuda_launched(r);
}

/* ---- batch_norm_eval ---- */

const char *aril_cuda_batch_norm_eval_prepare(const aril_run *r, aril_plan *plan)
{
    aril_order order = aril_cuda_channels_order(aril_cuda_in(r, 0));
    plan->in[0].order = plan->in[5].order = plan->out[0].order = (uint8_t)order;
    return nullptr;
}

/* in: x, weight?, bias?, mean, var, residual? */
aril_status aril_cuda_batch_norm_eval_run(aril_run *r)
{
    const aril_tensor *t = aril_cuda_in(r, 0), *residual = aril_cuda_in(r, 5);
    aril_tensor *y = aril_cuda_out(r, 0);
    aril_cuda_channels l = aril_cuda_channels_of(t);
    int dtype = aril_cuda_host->dtype(t), act = (int)*aril_cuda_host->attr_i64(r, "activation");
    uintptr_t bases = address(t) | address(y) | address(residual);
    for (int i = 1; i <= 4; i++) bases |= address(aril_cuda_in(r, i));
    normalizing o = { aril_cuda_data(t),
                      data_or_null(residual),
                      aril_cuda_data(y),
                      dtype,
                      act,
                      aril_cuda_param_of(r, 3),
                      aril_cuda_param_of(r, 4),
                      aril_cuda_param_of(r, 1),
                      aril_cuda_param_of(r, 2),
                      true,
                      *aril_cuda_host->attr_f64(r, "eps"),
                      nullptr };
    launch_normalize(r, l, aril_cuda_channels_lanes(l, bases, dtype), o);
    return aril_cuda_launched(r);
}
