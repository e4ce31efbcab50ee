/* Tensors [N,C,...] with something per channel, contiguous or channels-last: their reductions over
 * all but the channels, and kernels over all elements that keep what they need of a channel. */
#ifndef ARIL_CUDA_NORM_CHANNELS_CUH
#define ARIL_CUDA_NORM_CHANNELS_CUH

#include "backend/cuda/norm/param.cuh"
#include "backend/cuda/reduce/reduce.cuh"

/* `last`: the channels are adjacent in memory. */
struct aril_cuda_channels {
    int64_t batch, c, inner; /* inner: positions */
    bool last;
};

/* Whether t, [N,C,...], is stored as N, positions, C, and not also in row-major order. */
bool aril_cuda_is_channels_last(const aril_tensor *t);
/* For operands in the order that aril_cuda_channels_order asked for. */
aril_cuda_channels aril_cuda_channels_of(const aril_tensor *x);

/* In prepare: the order to ask for, that of x. */
static inline aril_order aril_cuda_channels_order(const aril_tensor *x)
{
    return aril_cuda_is_channels_last(x) ? ARIL_ORDER_CHANNELS_LAST : ARIL_ORDER_CONTIGUOUS;
}

/* The reduction of each channel, in units of `lanes` elements where possible; `bases` is the
 * bitwise or of the addresses of all operands, `resident` as for aril_cuda_reduction_cut. */
aril_cuda_reduction aril_cuda_channels_reduction(const aril_cuda_channels &l, uintptr_t bases,
                                                 int size, int lanes, int resident);

/* How many elements a unit has, given the addresses of all operands. */
int aril_cuda_channels_lanes(const aril_cuda_channels &l, uintptr_t bases, int dtype);

/* Bytes for partial results of `acc` bytes, wherever the operands will be. */
size_t aril_cuda_channels_workspace(const aril_tensor *x, size_t acc, int resident);

/* ---- units of elements ---- */

/* Reads and writes `lanes` elements of type S, or one of a dtype known when the kernel runs. */
template <typename C_, typename S, int N> struct aril_cuda_unit_typed {
    typedef C_ C;
    typedef aril_cuda_packed<S, N> raw;
    enum { lanes = N };
    static __device__ __forceinline__ raw load(const void *p, int64_t at, int)
    {
        return *reinterpret_cast<const raw *>(static_cast<const S *>(p) + at);
    }
    static __device__ __forceinline__ C get(const raw &v, int l)
    {
        return v.get(l);
    }
    static __device__ __forceinline__ void store(void *p, int64_t at, int, const C (&x)[N])
    {
        raw v;
        v.put(x);
        *reinterpret_cast<raw *>(static_cast<S *>(p) + at) = v;
    }
    /* Parameters from channel c: of the lanes (K = lanes), or of the channel they share (K = 1). */
    template <int K>
    static __device__ __forceinline__ void params(const aril_cuda_param &p, int64_t c, C (&w)[K],
                                                  C missing)
    {
        if constexpr (K == 1)
            w[0] = p.single<S>(c, missing);
        else
            p.vector<S>(c, w, missing);
    }
};
template <typename C_> struct aril_cuda_unit_dynamic {
    typedef C_ C;
    typedef aril_cuda_loaded<C> raw;
    enum { lanes = 1 };
    static __device__ __forceinline__ raw load(const void *p, int64_t at, int dtype)
    {
        return raw::of(p, at, dtype);
    }
    static __device__ __forceinline__ C get(const raw &v, int)
    {
        return v.value();
    }
    static __device__ __forceinline__ void store(void *p, int64_t at, int dtype, const C (&x)[1])
    {
        aril_cuda_store<C>(p, at, dtype, x[0]);
    }
    static __device__ __forceinline__ void params(const aril_cuda_param &p, int64_t c, C (&w)[1],
                                                  C missing)
    {
        w[0] = p.at<C>(c, missing);
    }
};

/* Runs `f(unit)` with the unit of a dtype. */
template <typename F> static inline void aril_cuda_with_unit(int dtype, int lanes, F &&f)
{
    if (lanes > 1 && dtype == ARIL_F32)
        f(aril_cuda_unit_typed<float, float, 4>());
    else if (lanes > 1 && dtype == ARIL_BF16)
        f(aril_cuda_unit_typed<float, aril_cuda_bf16, 8>());
    else if (lanes > 1)
        f(aril_cuda_unit_typed<float, aril_cuda_f16, 8>());
    else if (dtype == ARIL_F64)
        f(aril_cuda_unit_dynamic<double>());
    else
        f(aril_cuda_unit_dynamic<float>());
}

/* ---- all elements ---- */

/* An op is a struct, passed by value, with
 *     unit                      as above
 *     coef                      what it needs of a channel: void coefs(c, coef (&k)[K])
 *     raw load(at)              reads what it needs at offset `at`
 *     void store(at, raw, const coef (&k)[K])       K: lanes, or 1 where they share a channel
 *     void once()               called by one thread
 *     unroll, resident, waves   units of a thread at a time, blocks of a multiprocessor at a time,
 *                               and of the grid: how many times that
 * Elements are visited from the last to the first: the end of what the pass before it read is still
 * in the cache. With channels last (`Last`), a thread keeps its channels, as the number of threads
 * is a multiple of `across`; otherwise `across` is the size of a plane. */
template <typename Op, bool Last, int Unroll>
static __global__ void __launch_bounds__(256, Op::resident)
    aril_cuda_each_unit(const __grid_constant__ Op op, int64_t units, int64_t across,
                        int64_t channels, aril_cuda_divisor by_across,
                        aril_cuda_divisor by_channels)
{
    const int lanes = Op::unit::lanes, kept = Last ? lanes : 1;
    int64_t u = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t by = (int64_t)gridDim.x * blockDim.x;
    typename Op::coef k[kept];
    if (u == 0) op.once();
    if (u >= units) return;
    if (Last) op.coefs((across - 1 - u % across) * lanes, k);
    for (; u < units; u += Unroll * by) {
        typename Op::raw v[Unroll];
#pragma unroll
        for (int i = 0; i < Unroll; i++)
            if (u + i * by < units) v[i] = op.load((units - 1 - u - i * by) * lanes);
#pragma unroll
        for (int i = 0; i < Unroll; i++) {
            int64_t at = units - 1 - u - i * by;
            if (at < 0) continue;
            if (!Last && units <= INT32_MAX) {
                uint32_t c;
                by_channels.split(by_across.divide((uint32_t)at), &c);
                op.coefs(c, k);
            } else if (!Last) {
                op.coefs(at / across % channels, k);
            }
            op.store(at * lanes, v[i], k);
        }
    }
}

static inline int64_t aril_cuda_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Launches over all elements; without any, nothing is launched, once() included. */
template <typename Op>
static void aril_cuda_each_channel(const aril_run *r, const Op &op, const aril_cuda_channels &l)
{
    const int lanes = Op::unit::lanes, unroll = Op::unroll;
    int64_t units = l.batch * l.c * l.inner / lanes;
    int64_t most = (int64_t)aril_cuda_sms(r) * Op::resident * Op::waves;
    cudaStream_t stream = aril_cuda_stream(r);
    aril_cuda_divisor one = aril_cuda_divisor_of(1);
    if (units == 0) return;
    if (l.last) {
        int64_t across = l.c / lanes, threads = across <= 256 ? across * (256 / across) : 256;
        int64_t even = across / aril_cuda_gcd(across, threads); /* blocks in a multiple of this */
        int64_t blocks = (units + threads * unroll - 1) / (threads * unroll);
        if (blocks > most) blocks = most;
        blocks = blocks > even ? blocks / even * even : even;
        aril_cuda_each_unit<Op, true, unroll>
            <<<(unsigned)blocks, (unsigned)threads, 0, stream>>>(op, units, across, l.c, one, one);
    } else {
        int64_t plane = l.inner / lanes;
        bool narrow = units <= INT32_MAX;
        int64_t blocks = (units + 256 * unroll - 1) / (256 * unroll);
        if (blocks > most) blocks = most;
        aril_cuda_each_unit<Op, false, unroll>
            <<<(unsigned)blocks, 256, 0, stream>>>(op, units, plane, l.c,
                                                   narrow ? aril_cuda_divisor_of(plane) : one,
                                                   narrow ? aril_cuda_divisor_of(l.c) : one);
    }
}

#endif
