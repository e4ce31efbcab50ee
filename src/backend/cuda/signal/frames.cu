/* Frames of signals, their overlapped sums, and axes cut or padded with zeros. */
#include "backend/cuda/signal/signal.cuh"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"

/* `count` frames of `size` elements, of a signal of `length`. */
struct framing {
    int64_t size, hop, pad, count, length;
    bool reflect;
};

static framing framing_of(const aril_run *r, const aril_tensor *frames, const aril_tensor *signal)
{
    const frames_attrs *a = aril_cuda_attrs<frames_attrs>(r);
    return { a->size[0],
             a->hop[0],
             a->pad[0],
             aril_cuda_dim(frames, -2),
             aril_cuda_dim(signal, -1),
             a->reflect[0] != 0 };
}

/* The position in the signal of element i of a frame; -1: outside. */
static __device__ int64_t position(const framing &f, int64_t frame, int64_t i)
{
    int64_t at = frame * f.hop - f.pad + i;
    if (f.reflect) {
        if (at < 0) at = -at;
        if (at >= f.length) at = 2 * (f.length - 1) - at;
    }
    return at >= 0 && at < f.length ? at : -1;
}

template <typename S>
static __global__ void cut(S *out, const S *in, int64_t n, const __grid_constant__ framing f)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t frame = i / f.size, row = frame / f.count;
        int64_t from = position(f, frame % f.count, i % f.size);
        out[i] = from < 0 ? S(0) : in[row * f.length + from];
    }
}

aril_status aril_cuda_frames_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *y = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(y);
    if (n == 0) return ARIL_OK;
    framing f = framing_of(r, y, x);
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, n, 256);
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(y)), S,
                          cut<S><<<blocks, 256, 0, stream>>>((S *)aril_cuda_data(y),
                                                             (const S *)aril_cuda_data(x), n, f));
    return aril_cuda_launched(r);
}

/* The sum of the elements of frames, x [count,size], that lie `at` positions from the start of the
 * signal before it is padded. */
template <typename S, typename C>
static __device__ C sum_at(const framing &f, const S *x, int64_t at)
{
    int64_t padded = at + f.pad; /* from the start of frame 0 */
    if (padded < 0) return 0;
    int64_t first = padded < f.size ? 0 : (padded - f.size) / f.hop + 1, last = padded / f.hop;
    if (last >= f.count) last = f.count - 1;
    C sum = 0;
    for (int64_t k = first; k <= last; k++)
        sum += aril_cuda_to<C>(x[k * f.size + padded - k * f.hop]);
    return sum;
}

template <typename S>
static __global__ void add(S *out, const S *in, int64_t n, const __grid_constant__ framing f)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t at = i % f.length, mirrored = 2 * (f.length - 1) - at;
        const S *x = in + i / f.length * f.count * f.size;
        C sum = sum_at<S, C>(f, x, at);
        if (f.reflect) { /* the other positions that stand for this one */
            if (at > 0) sum += sum_at<S, C>(f, x, -at);
            if (mirrored >= f.length)
                sum += sum_at<S, C>(f, x, mirrored) + sum_at<S, C>(f, x, -mirrored);
        }
        out[i] = aril_cuda_from<S>(sum);
    }
}

aril_status aril_cuda_overlap_add_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *y = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(y);
    if (n == 0) return ARIL_OK;
    framing f = framing_of(r, x, y);
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, n, 256);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->dtype(y), S,
                           add<S><<<blocks, 256, 0, stream>>>((S *)aril_cuda_data(y),
                                                              (const S *)aril_cuda_data(x), n, f));
    return aril_cuda_launched(r);
}

/* out [rows,to], in [rows,from]. */
template <typename S>
static __global__ void resize(S *out, const S *in, int64_t n, int64_t from, int64_t to)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t row = i / to, at = i % to;
        out[i] = at < from ? in[row * from + at] : S(0);
    }
}

aril_status aril_cuda_resize_axis_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *y = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(y), inner = 1;
    int axis = aril_cuda_host->ndim(x) - (int)aril_cuda_attrs<resize_axis_attrs>(r)->axis[0];
    if (n == 0) return ARIL_OK;
    for (int d = axis + 1; d < aril_cuda_host->ndim(x); d++) inner *= aril_cuda_dim(x, d);
    int64_t from = aril_cuda_dim(x, axis) * inner, to = aril_cuda_dim(y, axis) * inner;
    cudaStream_t stream = aril_cuda_stream(r);
    unsigned blocks = aril_cuda_blocks(r, n, 256);
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->dtype(y)), S,
                          resize<S><<<blocks, 256, 0, stream>>>(
                              (S *)aril_cuda_data(y), (const S *)aril_cuda_data(x), n, from, to));
    return aril_cuda_launched(r);
}
