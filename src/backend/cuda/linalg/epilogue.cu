/* Bias, residual and activation in place. */
#include "backend/cuda/linalg/epilogue.cuh"
#include "backend/cuda/launch.cuh"

/* N elements at a time where inner % N == 0: they share a channel. */
template <typename S, int N> static __global__ void follow(aril_cuda_epilogue e, int64_t n)
{
    typedef typename aril_cuda_type<S>::compute C;
    typedef aril_cuda_vector<S, N> V;
    ARIL_CUDA_LOOP(i, n)
    {
        V v = {}, z = {};
        int64_t at = i * N;
        int64_t c = e.channels == 1 ? 0 : at / e.inner % e.channels;
        if (!e.clear) v = static_cast<const V *>(e.y)[i];
        if (e.z) z = static_cast<const V *>(e.z)[i];
        C bias = 0;
        if (e.bias) bias = aril_cuda_to<C>(static_cast<const S *>(e.bias)[c * e.bias_stride]);
#pragma unroll
        for (int j = 0; j < N; j++) {
            C x = e.clear ? C(0) : aril_cuda_to<C>(v.at[j]);
            x += bias;
            if (e.z) x += aril_cuda_to<C>(z.at[j]);
            v.at[j] = aril_cuda_from<S>(aril_cuda_activate(e.activation, x));
        }
        static_cast<V *>(e.y)[i] = v;
    }
}

/* The channel is innermost: a vector holds several channels. */
template <typename S, int N> static __global__ void follow_last(aril_cuda_epilogue e, int64_t n)
{
    typedef typename aril_cuda_type<S>::compute C;
    typedef aril_cuda_vector<S, N> V;
    ARIL_CUDA_LOOP(i, n)
    {
        V v = {}, z = {};
        int64_t c = i * N % e.channels;
        if (!e.clear) v = static_cast<const V *>(e.y)[i];
        if (e.z) z = static_cast<const V *>(e.z)[i];
#pragma unroll
        for (int j = 0; j < N; j++) {
            C x = e.clear ? C(0) : aril_cuda_to<C>(v.at[j]);
            if (e.bias)
                x += aril_cuda_to<C>(static_cast<const S *>(e.bias)[(c + j) * e.bias_stride]);
            if (e.z) x += aril_cuda_to<C>(z.at[j]);
            v.at[j] = aril_cuda_from<S>(aril_cuda_activate(e.activation, x));
        }
        static_cast<V *>(e.y)[i] = v;
    }
}

template <typename S> static void launch(const aril_run *r, const aril_cuda_epilogue *e, int64_t n)
{
    enum { N = 16 / sizeof(S) };
    cudaStream_t stream = aril_cuda_stream(r);
    bool aligned = ((uintptr_t)e->y | (uintptr_t)e->z) % (sizeof(S) * N) == 0;
    bool last = e->inner == 1 && e->bias;
    bool vectors = aligned && (last ? e->channels : e->bias ? e->inner : n) % N == 0;
    int64_t items = vectors ? n / N : n;
    unsigned blocks = aril_cuda_blocks(r, items, ARIL_CUDA_THREADS, 8);
    if (last && vectors)
        follow_last<S, N><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(*e, items);
    else if (last)
        follow_last<S, 1><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(*e, items);
    else if (vectors)
        follow<S, N><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(*e, items);
    else
        follow<S, 1><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(*e, items);
}

aril_status aril_cuda_epilogue_run(const aril_run *r, const aril_cuda_epilogue *e)
{
    int64_t n = e->outer * e->channels * e->inner;
    aril_cuda_epilogue simple = *e;
    if (n == 0 || (!e->clear && !e->bias && !e->z && !e->activation)) return ARIL_OK;
    if (!e->bias) { /* one channel: no index arithmetic */
        simple.channels = 1;
        simple.inner = n;
    }
    ARIL_CUDA_SWITCH_FLOAT(e->dtype, S, launch<S>(r, &simple, n));
    return aril_cuda_launched(r);
}
