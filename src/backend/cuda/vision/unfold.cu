/* unfold (im2col), fold and unfold_grad (col2im), on contiguous tensors. */
#include "backend/cuda/vision/unfold.cuh"

#include "backend/cuda/vision/image.cuh"

struct job {
    int in[2], out[2], kernel[2], stride[2], begin[2], dilation[2];
    int64_t area, positions; /* of the image, and of the windows over it */
    const void *from;
    void *to;
};

/* The windows over an image of that size. */
static job describe(const aril_run *r, const aril_tensor *image)
{
    const int64_t *kernel = aril_cuda_host->attr_i64(r, "kernel");
    const int64_t *stride = aril_cuda_host->attr_i64(r, "stride");
    const int64_t *pad = aril_cuda_host->attr_i64(r, "pad");
    const int64_t *dilation = aril_cuda_host->attr_i64(r, "dilation");
    job j = {};
    for (int i = 0; i < 2; i++) {
        int64_t in = aril_cuda_dim(image, 2 + i);
        int64_t span = in + pad[2 * i] + pad[2 * i + 1] - (kernel[i] - 1) * dilation[i] - 1;
        j.in[i] = (int)in;
        j.out[i] = span < 0 ? 0 : (int)(span / stride[i] + 1);
        j.kernel[i] = (int)kernel[i];
        j.stride[i] = (int)stride[i];
        j.begin[i] = (int)pad[2 * i];
        j.dilation[i] = (int)dilation[i];
    }
    j.area = (int64_t)j.in[0] * j.in[1];
    j.positions = (int64_t)j.out[0] * j.out[1];
    return j;
}

/* One element of the columns [N, C, kernel, kernel, out, out] per thread. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) lift(job j, int64_t total)
{
    ARIL_CUDA_LOOP(at, total)
    {
        int64_t row = at / j.positions;
        int position = (int)(at - row * j.positions), p = position / j.out[1];
        int q = position - p * j.out[1], taps = j.kernel[0] * j.kernel[1];
        int64_t plane = row / taps;
        int tap = (int)(row - plane * taps), a = tap / j.kernel[1], b = tap - a * j.kernel[1];
        int y = p * j.stride[0] - j.begin[0] + a * j.dilation[0];
        int x = q * j.stride[1] - j.begin[1] + b * j.dilation[1];
        bool inside = y >= 0 && y < j.in[0] && x >= 0 && x < j.in[1];
        static_cast<S *>(j.to)[at] =
            inside ? static_cast<const S *>(j.from)[plane * j.area + (int64_t)y * j.in[1] + x]
                   : S(0);
    }
}

/* The window along dimension i that has element p at tap q, or -1. */
static __device__ __forceinline__ int window_with(const job &j, int i, int p, int q)
{
    int from = p + j.begin[i] - q * j.dilation[i], at = from / j.stride[i];
    return from >= 0 && at * j.stride[i] == from && at < j.out[i] ? at : -1;
}

/* One element of the image per thread: the sum of its columns. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) lower(job j, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(at, total)
    {
        int64_t plane = at / j.area;
        int pixel = (int)(at - plane * j.area), y = pixel / j.in[1], x = pixel - y * j.in[1];
        const S *from =
            static_cast<const S *>(j.from) + plane * j.kernel[0] * j.kernel[1] * j.positions;
        C sum = 0;
        for (int a = 0; a < j.kernel[0]; a++) {
            int p = window_with(j, 0, y, a);
            if (p < 0) continue;
            for (int b = 0; b < j.kernel[1]; b++) {
                int q = window_with(j, 1, x, b);
                if (q < 0) continue;
                sum += aril_cuda_to<C>(
                    from[(a * j.kernel[1] + b) * j.positions + (int64_t)p * j.out[1] + q]);
            }
        }
        static_cast<S *>(j.to)[at] = aril_cuda_from<S>(sum);
    }
}

/* Sizes and positions along each dimension fit in 32 bits. */
const char *aril_cuda_unfold_prepare(const aril_run *r, aril_plan *)
{
    const aril_tensor *in = aril_cuda_in(r, 0);
    const aril_tensor *image = aril_cuda_host->ndim(in) == 4 ? in : aril_cuda_out(r, 0);
    const int64_t *kernel = aril_cuda_host->attr_i64(r, "kernel");
    const int64_t *stride = aril_cuda_host->attr_i64(r, "stride");
    const int64_t *pad = aril_cuda_host->attr_i64(r, "pad");
    const int64_t *dilation = aril_cuda_host->attr_i64(r, "dilation");
    int64_t padded = 1;
    for (int i = 0; i < 2; i++) {
        int64_t size = aril_cuda_dim(image, 2 + i) + pad[2 * i] + pad[2 * i + 1];
        if (kernel[i] > 1 << 15 || dilation[i] > 1 << 15 || stride[i] > 1 << 30 || size > 1 << 30)
            return "a window or an image of 2^30 elements";
        padded *= size + 1;
    }
    return padded < 1LL << 31 ? nullptr : "an image of 2^31 elements";
}

aril_status aril_cuda_unfold_run(aril_run *r)
{
    int64_t n = aril_cuda_host->numel(aril_cuda_out(r, 0));
    if (n == 0) return ARIL_OK;
    job j = describe(r, aril_cuda_in(r, 0));
    j.from = aril_cuda_data(aril_cuda_in(r, 0));
    j.to = aril_cuda_data(aril_cuda_out(r, 0));
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 16);
    cudaStream_t stream = aril_cuda_stream(r);
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(aril_cuda_host->type(r)), S,
                          (lift<S><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(j, n)));
    return aril_cuda_launched(r);
}

aril_status aril_cuda_fold_run(aril_run *r)
{
    int64_t n = aril_cuda_host->numel(aril_cuda_out(r, 0));
    if (n == 0) return ARIL_OK;
    job j = describe(r, aril_cuda_out(r, 0));
    j.from = aril_cuda_data(aril_cuda_in(r, 0));
    j.to = aril_cuda_data(aril_cuda_out(r, 0));
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 16);
    cudaStream_t stream = aril_cuda_stream(r);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->type(r), S,
                           (lower<S><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(j, n)));
    return aril_cuda_launched(r);
}
