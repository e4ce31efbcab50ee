/* Interpolation. Every mode is linear and separable: a first kernel writes the taps of each
 * dimension (pixels and weights of each output element) to the workspace, a second one sums. The
 * gradient gathers: the outputs that read a pixel are adjacent, since taps move forward. */
#include "backend/cuda/vision/resample.cuh"

#include "aril/conv.h"
#include "backend/cuda/attrs.cuh"
#include "ops/vision/resample.h"

#include "backend/cuda/vision/image.cuh"

#include <math.h>

/* ---- taps: as ops/vision/resample.c ---- */

/* One dimension: `width` taps for each output element. */
struct axis {
    int in, out, width, mode;
    bool align, smooth, wide;
    double ratio; /* input elements per output element */
    int *pixel;   /* [out][width], in the workspace */
    double *weight;
    int *range; /* [in][2]: the first and last output that may read a pixel */
};

static __device__ double cubic(double t, double a)
{
    t = fabs(t);
    if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((t - 5) * t + 8) * t * a - 4 * a : 0;
}

static __device__ double triangle(double t)
{
    t = fabs(t);
    return t < 1 ? 1 - t : 0;
}

static __device__ int clip(int64_t i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : (int)i;
}

static __device__ void plain_taps(const axis &a, int o, int *pixel, double *weight)
{
    bool exact = a.mode == ARIL_NEAREST_EXACT;
    if (a.mode == ARIL_NEAREST || exact) {
        /* In the precision of the elements, so that ties round the same way everywhere. */
        double near = a.wide ? a.ratio * ((double)o + (exact ? 0.5 : 0))
                             : (double)((float)a.ratio * ((float)o + (exact ? 0.5f : 0)));
        pixel[0] = clip((int64_t)floor(near), a.in);
        weight[0] = 1;
        return;
    }
    double position = a.align ? __dmul_rn(a.ratio, (double)o)
                              : __dadd_rn(__dmul_rn(a.ratio, (double)o + 0.5), -0.5);
    if (a.mode == ARIL_LINEAR) {
        if (position < 0) position = 0;
        int first = clip((int64_t)position, a.in);
        double part = position - (double)first;
        pixel[0] = first;
        weight[0] = 1 - part;
        pixel[1] = clip((int64_t)first + 1, a.in);
        weight[1] = part;
        return;
    }
    double first = floor(position), part = position - first;
    for (int k = 0; k < 4; k++) {
        pixel[k] = clip((int64_t)first + k - 1, a.in);
        weight[k] = cubic(part + 1 - k, -0.75);
    }
}

/* Antialiasing: a kernel stretched to the spacing of the output elements. Unused taps repeat the
 * last pixel with weight 0. */
static __device__ void smooth_taps(const axis &a, int o, int *pixel, double *weight)
{
    double half = a.mode == ARIL_LINEAR ? 1 : 2, stretch = a.ratio >= 1 ? a.ratio : 1;
    double center = __dmul_rn(a.ratio, (double)o + 0.5), support = half * stretch, sum = 0;
    int64_t first = (int64_t)(__dadd_rn(center, -support) + 0.5);
    int64_t end = (int64_t)(__dadd_rn(center, support) + 0.5);
    if (first < 0) first = 0;
    if (end > a.in) end = a.in;
    for (int k = 0; k < a.width; k++) {
        bool used = first + k < end;
        double d = ((double)(first + k) - center + 0.5) / stretch;
        weight[k] = !used ? 0 : a.mode == ARIL_LINEAR ? triangle(d) : cubic(d, -0.5);
        pixel[k] = clip(used ? first + k : end - 1, a.in);
        sum += weight[k];
    }
    for (int k = 0; k < a.width; k++) weight[k] = sum != 0 ? weight[k] / sum : 0;
}

static __global__ void write_taps(axis a0, axis a1, axis a2)
{
    const axis &a = blockIdx.y == 0 ? a0 : blockIdx.y == 1 ? a1 : a2;
    ARIL_CUDA_LOOP(o, a.out)
    {
        int *pixel = a.pixel + (int64_t)o * a.width;
        double *weight = a.weight + (int64_t)o * a.width;
        if (a.smooth)
            smooth_taps(a, o, pixel, weight);
        else
            plain_taps(a, o, pixel, weight);
    }
}

/* The outputs that may read pixel i: the first whose last tap reaches it, the last whose first tap
 * is not after it. */
static __global__ void write_ranges(axis a0, axis a1, axis a2)
{
    const axis &a = blockIdx.y == 0 ? a0 : blockIdx.y == 1 ? a1 : a2;
    ARIL_CUDA_LOOP(i, a.in)
    {
        int low = 0, high = a.out;
        while (low < high) {
            int at = low + (high - low) / 2;
            if (a.pixel[(int64_t)at * a.width + a.width - 1] >= i)
                high = at;
            else
                low = at + 1;
        }
        a.range[2 * (int64_t)i] = low;
        high = a.out;
        while (low < high) {
            int at = low + (high - low) / 2;
            if (a.pixel[(int64_t)at * a.width] > i)
                high = at;
            else
                low = at + 1;
        }
        a.range[2 * (int64_t)i + 1] = low - 1;
    }
}

/* ---- sums ---- */

struct job {
    axis along[3];
    const void *from;
    void *to;
    int64_t from_stride[5], to_stride[5];
    aril_cuda_walk walk;
    uint32_t n;
};

static __device__ __forceinline__ int64_t place(const int64_t stride[5], uint32_t n, uint32_t c,
                                                const uint32_t o[3])
{
    return n * stride[0] + c * stride[1] + o[0] * stride[2] + o[1] * stride[3] + o[2] * stride[4];
}

template <typename S> static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) interpolate(job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    const axis &d0 = j.along[0], &d1 = j.along[1], &d2 = j.along[2];
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, o[3];
        j.walk.split(i, &n, &c, o);
        const S *x = static_cast<const S *>(j.from) + n * j.from_stride[0] + c * j.from_stride[1];
        C sum = 0;
        for (int a = 0; a < d0.width; a++) {
            int64_t at0 = (int64_t)o[0] * d0.width + a;
            for (int b = 0; b < d1.width; b++) {
                int64_t at1 = (int64_t)o[1] * d1.width + b;
                C outer = (C)(d0.weight[at0] * d1.weight[at1]);
                const S *row =
                    x + d0.pixel[at0] * j.from_stride[2] + d1.pixel[at1] * j.from_stride[3];
                for (int e = 0; e < d2.width && outer != C(0); e++) {
                    int64_t at2 = (int64_t)o[2] * d2.width + e;
                    C weight = outer * (C)d2.weight[at2];
                    if (weight != C(0))
                        sum += weight * aril_cuda_to<C>(row[d2.pixel[at2] * j.from_stride[4]]);
                }
            }
        }
        static_cast<S *>(j.to)[place(j.to_stride, n, c, o)] = aril_cuda_from<S>(sum);
    }
}

/* The weight by which output o reads pixel p; an edge pixel may be several of its taps. */
static __device__ __forceinline__ double weight_of(const axis &a, int o, int p)
{
    double sum = 0;
    for (int k = 0; k < a.width; k++)
        if (a.pixel[(int64_t)o * a.width + k] == p) sum += a.weight[(int64_t)o * a.width + k];
    return sum;
}

template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) interpolate_grad(job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    const axis &d0 = j.along[0], &d1 = j.along[1], &d2 = j.along[2];
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, p[3];
        j.walk.split(i, &n, &c, p);
        const S *g = static_cast<const S *>(j.from) + n * j.from_stride[0] + c * j.from_stride[1];
        C sum = 0;
        for (int a = d0.range[2 * p[0]]; a <= d0.range[2 * p[0] + 1]; a++) {
            double w0 = weight_of(d0, a, (int)p[0]);
            for (int b = d1.range[2 * p[1]]; b <= d1.range[2 * p[1] + 1] && w0 != 0; b++) {
                C outer = (C)(w0 * weight_of(d1, b, (int)p[1]));
                const S *row = g + a * j.from_stride[2] + b * j.from_stride[3];
                for (int e = d2.range[2 * p[2]]; e <= d2.range[2 * p[2] + 1] && outer != C(0);
                     e++) {
                    C weight = outer * (C)weight_of(d2, e, (int)p[2]);
                    if (weight != C(0)) sum += weight * aril_cuda_to<C>(row[e * j.from_stride[4]]);
                }
            }
        }
        static_cast<S *>(j.to)[place(j.to_stride, n, c, p)] = aril_cuda_from<S>(sum);
    }
}

/* ---- preparing ---- */

static double ratio_of(const interpolate_attrs *a, int i, int64_t in, int64_t out, bool wide)
{
    if (a->align_corners[0] && a->mode[0] >= ARIL_LINEAR)
        return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    if (a->scale[i] > 0) return wide ? 1 / a->scale[i] : (double)(float)(1 / a->scale[i]);
    return wide ? (double)in / (double)out : (double)((float)in / (float)out);
}

/* Spatial dimension i - (3 - spatial) of x and y, without its tables. */
static axis axis_of(const aril_run *r, const aril_cuda_image &x, const aril_cuda_image &y,
                    int spatial, int i)
{
    const interpolate_attrs *a = aril_cuda_attrs<interpolate_attrs>(r);
    int at = i - (3 - spatial);
    axis d = {};
    d.in = (int)x.dim[2 + i];
    d.out = (int)y.dim[2 + i];
    d.width = 1;
    d.mode = ARIL_NEAREST;
    d.ratio = 1;
    d.wide = aril_cuda_host->type(r) == ARIL_F64;
    if (at < 0) return d;
    d.mode = (int)a->mode[0];
    d.align = a->align_corners[0];
    d.ratio = ratio_of(a, at, d.in, d.out, d.wide);
    d.width = d.mode < ARIL_LINEAR ? 1 : d.mode == ARIL_LINEAR ? 2 : 4;
    d.smooth = a->antialias[0] && d.mode >= ARIL_LINEAR;
    if (d.smooth) d.width = 2 * (int)ceil((d.ratio > 1 ? d.ratio : 1) * d.width / 2) + 1;
    return d;
}

/* Lays the tables out in memory: weights first, as they are the widest. Returns their bytes. */
static size_t lay_out(axis along[3], char *memory, bool ranges)
{
    size_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        along[i].weight = reinterpret_cast<double *>(memory + bytes);
        bytes += (size_t)along[i].out * (size_t)along[i].width * sizeof(double);
    }
    for (int i = 0; i < 3; i++) {
        along[i].pixel = reinterpret_cast<int *>(memory + bytes);
        bytes += (size_t)along[i].out * (size_t)along[i].width * sizeof(int);
        along[i].range = reinterpret_cast<int *>(memory + bytes);
        if (ranges) bytes += 2 * (size_t)along[i].in * sizeof(int);
    }
    return bytes;
}

static const char *prepare(const aril_run *r, aril_plan *plan, bool grad)
{
    const aril_tensor *from = aril_cuda_in(r, 0), *to = aril_cuda_out(r, 0);
    aril_cuda_image x = aril_cuda_image_of(grad ? to : from);
    aril_cuda_image y = aril_cuda_image_of(grad ? from : to);
    const char *why = aril_cuda_image_fits(from);
    if (!why) why = aril_cuda_image_fits(to);
    if (why) return why;
    axis along[3];
    for (int i = 0; i < 3; i++) along[i] = axis_of(r, x, y, aril_cuda_host->ndim(from) - 2, i);
    plan->workspace = lay_out(along, nullptr, grad);
    return nullptr;
}

const char *aril_cuda_interpolate_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, false);
}

const char *aril_cuda_interpolate_grad_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, true);
}

/* ---- running ---- */

static void launch_tables(aril_run *r, const job &j, bool ranges)
{
    int most = 1;
    for (const axis &a : j.along) {
        most = a.out > most ? a.out : most;
        if (ranges) most = a.in > most ? a.in : most;
    }
    dim3 grid(aril_cuda_blocks(r, most, ARIL_CUDA_THREADS), 3);
    cudaStream_t s = aril_cuda_stream(r);
    write_taps<<<grid, ARIL_CUDA_THREADS, 0, s>>>(j.along[0], j.along[1], j.along[2]);
    if (ranges) write_ranges<<<grid, ARIL_CUDA_THREADS, 0, s>>>(j.along[0], j.along[1], j.along[2]);
}

static aril_status run_as(aril_run *r, bool grad)
{
    aril_cuda_image from = aril_cuda_image_at(aril_cuda_in(r, 0));
    aril_cuda_image to = aril_cuda_image_at(aril_cuda_out(r, 0));
    aril_dtype type = aril_cuda_host->type(r);
    int spatial = aril_cuda_host->ndim(aril_cuda_in(r, 0)) - 2, bytes = aril_cuda_size(type);
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return ARIL_OK;
    job j = {};
    for (int i = 0; i < 3; i++)
        j.along[i] = axis_of(r, grad ? to : from, grad ? from : to, spatial, i);
    lay_out(j.along, static_cast<char *>(aril_cuda_host->workspace(r)), grad);
    launch_tables(r, j, grad);
    for (int d = 0; d < 5; d++) {
        j.from_stride[d] = from.stride[d];
        j.to_stride[d] = to.stride[d];
    }
    return aril_cuda_each_part(
        to.dim[0], to.dim[1], aril_cuda_area(to), ARIL_CUDA_MAX_POSITIONS,
        [&](const aril_cuda_part &p) {
            cudaStream_t s = aril_cuda_stream(r);
            j.from = aril_cuda_part_of(from, p, bytes);
            j.to = aril_cuda_part_of(to, p, bytes);
            j.walk = aril_cuda_walk_of(to, p.c);
            j.n = (uint32_t)(p.n * p.c * aril_cuda_area(to));
            unsigned blocks = aril_cuda_blocks(r, j.n, ARIL_CUDA_THREADS, 16);
            if (grad)
                ARIL_CUDA_SWITCH_FLOAT(
                    type, S, (interpolate_grad<S><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j)));
            else
                ARIL_CUDA_SWITCH_FLOAT(type, S,
                                       (interpolate<S><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j)));
            return aril_cuda_launched(r);
        });
}

aril_status aril_cuda_interpolate_run(aril_run *r)
{
    return run_as(r, false);
}

aril_status aril_cuda_interpolate_grad_run(aril_run *r)
{
    return run_as(r, true);
}
