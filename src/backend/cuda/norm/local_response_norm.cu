/* Local response normalization: with s = k + alpha * the mean square over `size` adjacent channels,
 * y = x / s^beta. Channels are `step` elements apart, in either memory order. */
#include "backend/cuda/norm/channels.cuh"
#include "backend/cuda/norm/rows.cuh"

template <typename C> struct window {
    int64_t numel, channels, step, size;
    C alpha, beta, k;
    int dtype;

    __device__ __forceinline__ int64_t channel(int64_t i) const
    {
        return i / step % channels;
    }
    __device__ __forceinline__ C scale(const void *x, int64_t i, int64_t c) const
    {
        int64_t from = c - size / 2, to = c + (size - 1) / 2;
        from = from < 0 ? 0 : from;
        to = to < channels ? to : channels - 1;
        C sum = 0;
        for (int64_t o = from; o <= to; o++) {
            C v = aril_cuda_load<C>(x, i + (o - c) * step, dtype);
            sum += v * v;
        }
        return k + alpha * sum / (C)size;
    }
};

template <typename C> static __global__ void forward(const void *x, void *y, window<C> w)
{
    ARIL_CUDA_LOOP(i, w.numel)
    {
        C v = aril_cuda_load<C>(x, i, w.dtype);
        aril_cuda_store<C>(y, i, w.dtype, v / pow(w.scale(x, i, w.channel(i)), w.beta));
    }
}

/* What each element adds to its neighbours: g x / s^(beta + 1). */
template <typename C>
static __global__ void shares(const void *x, const void *g, C *to, window<C> w)
{
    ARIL_CUDA_LOOP(i, w.numel)
    {
        C v = aril_cuda_load<C>(x, i, w.dtype), e = aril_cuda_load<C>(g, i, w.dtype);
        to[i] = e * v / pow(w.scale(x, i, w.channel(i)), w.beta + 1);
    }
}

/* dx = g / s^beta - 2 alpha beta / size * x * the sum of shares of the elements whose window
 * contains x */
template <typename C>
static __global__ void backward(const void *x, const void *g, const C *shared, void *dx,
                                window<C> w)
{
    C factor = 2 * w.alpha * w.beta / (C)w.size;
    ARIL_CUDA_LOOP(i, w.numel)
    {
        int64_t c = w.channel(i), from = c - (w.size - 1) / 2, to = c + w.size / 2;
        from = from < 0 ? 0 : from;
        to = to < w.channels ? to : w.channels - 1;
        C sum = 0;
        for (int64_t o = from; o <= to; o++) sum += shared[i + (o - c) * w.step];
        C v = aril_cuda_load<C>(x, i, w.dtype), e = aril_cuda_load<C>(g, i, w.dtype);
        aril_cuda_store<C>(dx, i, w.dtype, e / pow(w.scale(x, i, c), w.beta) - factor * v * sum);
    }
}

template <typename C> static window<C> window_of(const aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_cuda_channels l = aril_cuda_channels_of(x);
    return { h->numel(x),
             l.c,
             l.last ? 1 : l.inner,
             *h->attr_i64(r, "size"),
             (C)*h->attr_f64(r, "alpha"),
             (C)*h->attr_f64(r, "beta"),
             (C)*h->attr_f64(r, "k"),
             (int)h->dtype(x) };
}

const char *aril_cuda_local_response_norm_prepare(const aril_run *r, aril_plan *plan)
{
    aril_order order = aril_cuda_channels_order(aril_cuda_in(r, 0));
    plan->in[0].order = plan->out[0].order = (uint8_t)order;
    return nullptr;
}

const char *aril_cuda_local_response_norm_grad_prepare(const aril_run *r, aril_plan *plan)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_order order = aril_cuda_channels_order(x);
    plan->in[0].order = plan->in[1].order = plan->out[0].order = (uint8_t)order;
    plan->workspace = (size_t)aril_cuda_host->numel(x) *
                      (aril_cuda_host->dtype(x) == ARIL_F64 ? sizeof(double) : sizeof(float));
    return nullptr;
}

template <typename C> static void launch(aril_run *r)
{
    window<C> w = window_of<C>(r);
    forward<C><<<aril_cuda_blocks(r, w.numel, 256), 256, 0, aril_cuda_stream(r)>>>(
        aril_cuda_data(aril_cuda_in(r, 0)), aril_cuda_data(aril_cuda_out(r, 0)), w);
}

template <typename C> static void launch_grad(aril_run *r)
{
    window<C> w = window_of<C>(r);
    const void *x = aril_cuda_data(aril_cuda_in(r, 0)), *g = aril_cuda_data(aril_cuda_in(r, 1));
    C *shared = (C *)aril_cuda_host->workspace(r);
    unsigned blocks = aril_cuda_blocks(r, w.numel, 256);
    cudaStream_t stream = aril_cuda_stream(r);
    shares<C><<<blocks, 256, 0, stream>>>(x, g, shared, w);
    backward<C><<<blocks, 256, 0, stream>>>(x, g, shared, aril_cuda_data(aril_cuda_out(r, 0)), w);
}

aril_status aril_cuda_local_response_norm_run(aril_run *r)
{
    if (aril_cuda_host->numel(aril_cuda_in(r, 0)) == 0) return ARIL_OK;
    if (aril_cuda_host->type(r) == ARIL_F64)
        launch<double>(r);
    else
        launch<float>(r);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_local_response_norm_grad_run(aril_run *r)
{
    if (aril_cuda_host->numel(aril_cuda_in(r, 0)) == 0) return ARIL_OK;
    if (aril_cuda_host->type(r) == ARIL_F64)
        launch_grad<double>(r);
    else
        launch_grad<float>(r);
    return aril_cuda_launched(r);
}
