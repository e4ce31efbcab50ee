/* Sampling at the points of a grid. Coordinates and weights are computed in double, as by
 * ops/vision/grid_sample.c, so that points near a pixel's edge fall on the same side.
 *
 * The gradient for the images gathers: what each point gives to each pixel is sorted by pixel, and
 * each element of the result adds its own in that order. */
#include "backend/cuda/vision/grid_sample.cuh"

#include "aril/conv.h"
#include "backend/cuda/vision/image.cuh"

enum { CHUNK = 8 }; /* channels per thread: they share a point's weights */

/* How images of h x w are sampled, and the tensors. */
struct job {
    int h, w, mode, padding, taps; /* taps along each axis */
    bool align;
    aril_cuda_image x, y; /* y: the samples or their gradient, [N,C,oh,ow] */
    const void *grid;
    int64_t grid_stride[4];
    void *to; /* the gradient for the grid */
    int64_t to_stride[4];
    int64_t points; /* oh * ow */
};

/* What a point reads along one axis: pixels, -1 outside; their weights, and the derivatives of the
 * weights by the coordinate. */
struct axis {
    int at[4];
    double weight[4], slope[4];
};

/* ---- points ---- */

static __device__ double unnormalize(const job &j, double v, int n, double *slope)
{
    *slope = j.align ? (double)(n - 1) / 2 : (double)n / 2;
    return j.align ? (v + 1) / 2 * (double)(n - 1) : ((v + 1) * (double)n - 1) / 2;
}

/* Maps p into the image by the padding mode, and multiplies slope by the derivative. */
static __device__ double confine(const job &j, double p, int n, double *slope)
{
    double max = (double)(n - 1);
    if (j.padding == ARIL_GRID_ZEROS) return p;
    if (j.padding == ARIL_GRID_REFLECTION) {
        double low = j.align ? 0 : -0.5, span = j.align ? max : (double)n;
        if (span == 0) {
            *slope = 0;
            return 0;
        }
        double from = fabs(p - low), flips = floor(from / span);
        double extra = __dadd_rn(from, -__dmul_rn(flips, span));
        bool even = fmod(flips, 2.0) == 0;
        *slope *= (p < low ? -1 : 1) * (even ? 1 : -1);
        p = (even ? extra : span - extra) + low;
    }
    if (!(p > 0 && p < max)) *slope = 0;
    return p > 0 ? p < max ? p : max : 0;
}

static __device__ bool is_far(double p)
{
    return !(fabs(p) <= 1e9);
}

static __device__ void cubic_weights(double t, double *w, double *d)
{
    const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        double s = k - 1 - t, x = fabs(s), sign = s < 0 ? 1 : -1;
        bool inner = k == 1 || k == 2;
        w[k] = inner ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((x - 5) * x + 8) * x * a - 4 * a;
        d[k] = sign * (inner ? (3 * (a + 2) * x - 2 * (a + 3)) * x : ((3 * x - 10) * x + 8) * a);
    }
}

/* The taps at position p of an axis of n pixels. */
static __device__ void read_axis(const job &j, double p, int n, double slope, axis *a)
{
    double first = j.taps == 1 ? rint(p) : floor(p);
    a->weight[0] = 1;
    a->slope[0] = 0;
    if (j.taps == 2) {
        a->weight[1] = p - first;
        a->weight[0] = 1 - a->weight[1];
        a->slope[0] = -1;
        a->slope[1] = 1;
    } else if (j.taps == 4) {
        cubic_weights(p - first, a->weight, a->slope);
        first--;
    }
    for (int k = 0; k < j.taps; k++) {
        double e = first + k, unused = 1;
        if (j.taps == 4) e = rint(confine(j, e, n, &unused));
        a->at[k] = e >= 0 && e <= (double)(n - 1) ? (int)e : -1;
        a->slope[k] *= slope;
    }
}

/* False if the point reads nothing. */
static __device__ bool look_up(const job &j, double gx, double gy, axis *ax, axis *ay)
{
    double sx, sy, px = unnormalize(j, gx, j.w, &sx), py = unnormalize(j, gy, j.h, &sy);
    if (j.taps < 4) {
        px = confine(j, px, j.w, &sx);
        py = confine(j, py, j.h, &sy);
    }
    if (is_far(px) || is_far(py)) {
        if (j.taps < 4 || j.padding == ARIL_GRID_ZEROS) return false;
        px = is_far(px) ? -100 : px;
        py = is_far(py) ? -100 : py;
    }
    read_axis(j, px, j.w, sx, ax);
    read_axis(j, py, j.h, sy, ay);
    return true;
}

/* Point `p` of image n. */
template <typename S>
static __device__ bool point_at(const job &j, int64_t n, int64_t p, axis *ax, axis *ay)
{
    const S *g = static_cast<const S *>(j.grid) + n * j.grid_stride[0] +
                 p / j.y.dim[4] * j.grid_stride[1] + p % j.y.dim[4] * j.grid_stride[2];
    return look_up(j, aril_cuda_to<double>(g[0]), aril_cuda_to<double>(g[j.grid_stride[3]]), ax,
                   ay);
}

static __device__ __forceinline__ int64_t offset_of(const aril_cuda_image &m, int64_t n, int64_t c,
                                                    int64_t p)
{
    return n * m.stride[0] + c * m.stride[1] + p / m.dim[4] * m.stride[3] +
           p % m.dim[4] * m.stride[4];
}

/* ---- sampling ---- */

/* A point and CHUNK channels per thread. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) sample(job j, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    int64_t channels = j.y.dim[1], chunks = (channels + CHUNK - 1) / CHUNK;
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t p = i % j.points, chunk = i / j.points % chunks, n = i / j.points / chunks;
        int64_t c0 = chunk * CHUNK, c1 = c0 + CHUNK < channels ? c0 + CHUNK : channels;
        axis ax, ay;
        bool any = point_at<S>(j, n, p, &ax, &ay);
        C sum[CHUNK];
#pragma unroll
        for (int c = 0; c < CHUNK; c++) sum[c] = 0;
        for (int b = 0; b < j.taps && any; b++)
            for (int a = 0; a < j.taps; a++) {
                if (ax.at[a] < 0 || ay.at[b] < 0) continue;
                C weight = (C)(ax.weight[a] * ay.weight[b]);
                const S *x = static_cast<const S *>(j.x.data) + n * j.x.stride[0] +
                             c0 * j.x.stride[1] + ay.at[b] * j.x.stride[3] +
                             ax.at[a] * j.x.stride[4];
#pragma unroll
                for (int c = 0; c < CHUNK; c++)
                    if (c0 + c < c1) sum[c] += weight * aril_cuda_to<C>(x[c * j.x.stride[1]]);
            }
#pragma unroll
        for (int c = 0; c < CHUNK; c++)
            if (c0 + c < c1)
                static_cast<S *>(j.y.data)[offset_of(j.y, n, c0 + c, p)] =
                    aril_cuda_from<S>(sum[c]);
    }
}

/* The derivatives of all channels by the coordinates of a point: one point per thread. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) grid_gradient(job j, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t n = i / j.points, p = i % j.points;
        axis ax, ay;
        bool any = point_at<S>(j, n, p, &ax, &ay);
        C along_x = 0, along_y = 0;
        for (int64_t c = 0; c < j.y.dim[1] && any; c++) {
            C g = aril_cuda_to<C>(static_cast<const S *>(j.y.data)[offset_of(j.y, n, c, p)]);
            const S *x = static_cast<const S *>(j.x.data) + n * j.x.stride[0] + c * j.x.stride[1];
            for (int b = 0; b < j.taps; b++)
                for (int a = 0; a < j.taps; a++) {
                    if (ax.at[a] < 0 || ay.at[b] < 0) continue;
                    C v = aril_cuda_to<C>(x[ay.at[b] * j.x.stride[3] + ax.at[a] * j.x.stride[4]]);
                    along_x += g * (C)(ax.slope[a] * ay.weight[b]) * v;
                    along_y += g * (C)(ax.weight[a] * ay.slope[b]) * v;
                }
        }
        S *to = static_cast<S *>(j.to) + n * j.to_stride[0] + p / j.y.dim[4] * j.to_stride[1] +
                p % j.y.dim[4] * j.to_stride[2];
        to[0] = aril_cuda_from<S>(along_x);
        to[j.to_stride[3]] = aril_cuda_from<S>(along_y);
    }
}

/* ---- the gradient for the images ---- */

/* What points give: entry (point * taps * taps + tap) goes to a pixel of all images, by weight. */
struct entries {
    int64_t n, pixels; /* numbers of entries, and of pixels of all images */
    int bits;          /* of a pixel's number, and of `pixels`, which means none */
    uint32_t *key, *id, *sorted_key, *sorted_id;
    uint32_t *first, *end; /* of each pixel: its entries in sorted order */
    void *weight;
    void *sorting;
    size_t sorting_bytes;
};

template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    list_entries(job j, entries e, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    int all = j.taps * j.taps;
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t n = i / j.points, p = i % j.points;
        axis ax, ay;
        bool any = point_at<S>(j, n, p, &ax, &ay);
        for (int k = 0; k < all; k++) {
            int a = k % j.taps, b = k / j.taps;
            bool inside = any && ax.at[a] >= 0 && ay.at[b] >= 0;
            int64_t at = i * all + k;
            e.id[at] = (uint32_t)at;
            e.key[at] =
                inside ? (uint32_t)((n * j.h + ay.at[b]) * j.w + ax.at[a]) : (uint32_t)e.pixels;
            static_cast<C *>(e.weight)[at] = inside ? (C)(ax.weight[a] * ay.weight[b]) : C(0);
        }
    }
}

static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) find_bounds(entries e)
{
    ARIL_CUDA_LOOP(i, e.n)
    {
        uint32_t key = e.sorted_key[i];
        if (key == (uint32_t)e.pixels) continue;
        if (i == 0 || e.sorted_key[i - 1] != key) e.first[key] = (uint32_t)i;
        if (i == e.n - 1 || e.sorted_key[i + 1] != key) e.end[key] = (uint32_t)i + 1;
    }
}

/* One element of the images per thread. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    add_entries(job j, entries e, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    int64_t area = (int64_t)j.h * j.w;
    uint32_t per_image = (uint32_t)(j.points * j.taps * j.taps), taps = (uint32_t)(j.taps * j.taps);
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t pixel = i % area, c = i / area % j.x.dim[1], n = i / area / j.x.dim[1];
        C sum = 0;
        for (uint32_t at = e.first[n * area + pixel]; at < e.end[n * area + pixel]; at++) {
            uint32_t id = e.sorted_id[at], p = (id - (uint32_t)n * per_image) / taps;
            sum += static_cast<const C *>(e.weight)[id] *
                   aril_cuda_to<C>(static_cast<const S *>(j.y.data)[offset_of(j.y, n, c, p)]);
        }
        static_cast<S *>(j.x.data)[offset_of(j.x, n, c, pixel)] = aril_cuda_from<S>(sum);
    }
}

/* ---- preparing ---- */

/* The geometry, without addresses: x and y as images, and the grid. */
static job describe(const aril_run *r, const aril_tensor *x, const aril_tensor *y,
                    const aril_tensor *grid)
{
    job j = {};
    j.x = aril_cuda_image_of(x);
    j.y = aril_cuda_image_of(y);
    j.h = (int)j.x.dim[3];
    j.w = (int)j.x.dim[4];
    j.mode = (int)*aril_cuda_host->attr_i64(r, "mode");
    j.padding = (int)*aril_cuda_host->attr_i64(r, "padding");
    j.align = *aril_cuda_host->attr_i64(r, "align_corners") != 0;
    j.taps = j.mode == ARIL_GRID_BICUBIC ? 4 : j.mode == ARIL_GRID_NEAREST ? 1 : 2;
    j.points = j.y.dim[3] * j.y.dim[4];
    for (int d = 0; d < 4; d++) j.grid_stride[d] = aril_cuda_host->strides(grid)[d];
    return j;
}

const char *aril_cuda_grid_sample_prepare(const aril_run *r, aril_plan *)
{
    int x = aril_cuda_host->n_in(r) > 2 ? 1 : 0; /* the gradient for the grid has g first */
    return aril_cuda_image_fits(aril_cuda_in(r, x));
}

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Lays the entries out in memory; returns the bytes. */
static size_t lay_out(const job &j, entries *e, bool wide, char *memory)
{
    e->n = j.y.dim[0] * j.points * j.taps * j.taps;
    e->pixels = j.x.dim[0] * j.h * j.w;
    for (e->bits = 1; e->pixels >> e->bits; e->bits++) {
    }
    size_t at = 0, list = rounded((size_t)e->n * 4), pixels = rounded((size_t)e->pixels * 4);
    e->first = reinterpret_cast<uint32_t *>(memory + at);
    e->end = reinterpret_cast<uint32_t *>(memory + (at += pixels));
    e->key = reinterpret_cast<uint32_t *>(memory + (at += pixels));
    e->id = reinterpret_cast<uint32_t *>(memory + (at += list));
    e->sorted_key = reinterpret_cast<uint32_t *>(memory + (at += list));
    e->sorted_id = reinterpret_cast<uint32_t *>(memory + (at += list));
    e->weight = memory + (at += list);
    e->sorting = memory + (at += rounded((size_t)e->n * (wide ? 8 : 4)));
    return at;
}

const char *aril_cuda_grid_sample_grad_x_prepare(const aril_run *r, aril_plan *plan)
{
    entries e = {};
    job j = describe(r, aril_cuda_out(r, 0), aril_cuda_in(r, 0), aril_cuda_in(r, 1));
    size_t bytes = lay_out(j, &e, aril_cuda_host->type(r) == ARIL_F64, nullptr), sorting = 0;
    if (e.n >= INT32_MAX || e.pixels >= INT32_MAX) return "2^31 points or pixels";
    aril_cuda_use(aril_cuda_device_of(r));
    if (e.n && aril_cuda_grid_sort(nullptr, &sorting, nullptr, nullptr, nullptr, nullptr, (int)e.n,
                                   e.bits, nullptr) != cudaSuccess)
        return "the sort cannot be prepared";
    plan->workspace = bytes + sorting;
    return nullptr;
}

/* ---- running ---- */

static unsigned blocks_of(const aril_run *r, int64_t n)
{
    return aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 16);
}

aril_status aril_cuda_grid_sample_run(aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0), *grid = aril_cuda_in(r, 1);
    aril_tensor *y = aril_cuda_out(r, 0);
    job j = describe(r, x, y, grid);
    int64_t total = j.y.dim[0] * ((j.y.dim[1] + CHUNK - 1) / CHUNK) * j.points;
    if (total == 0) return ARIL_OK;
    cudaStream_t s = aril_cuda_stream(r);
    j.x.data = aril_cuda_data(x);
    j.y.data = aril_cuda_data(y);
    j.grid = aril_cuda_data(grid);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->type(r), S,
                           (sample<S><<<blocks_of(r, total), ARIL_CUDA_THREADS, 0, s>>>(j, total)));
    return aril_cuda_launched(r);
}

aril_status aril_cuda_grid_sample_grad_grid_run(aril_run *r)
{
    const aril_tensor *g = aril_cuda_in(r, 0), *x = aril_cuda_in(r, 1), *grid = aril_cuda_in(r, 2);
    aril_tensor *out = aril_cuda_out(r, 0);
    job j = describe(r, x, g, grid);
    int64_t total = j.y.dim[0] * j.points;
    if (total == 0) return ARIL_OK;
    cudaStream_t s = aril_cuda_stream(r);
    j.x.data = aril_cuda_data(x);
    j.y.data = aril_cuda_data(g);
    j.grid = aril_cuda_data(grid);
    j.to = aril_cuda_data(out);
    for (int d = 0; d < 4; d++) j.to_stride[d] = aril_cuda_host->strides(out)[d];
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->type(r), S,
                           (grid_gradient<S>
                            <<<blocks_of(r, total), ARIL_CUDA_THREADS, 0, s>>>(j, total)));
    return aril_cuda_launched(r);
}

/* The entries of all points, sorted by pixel, and the bounds of each pixel. */
static aril_status sort_entries(aril_run *r, const job &j, entries *e)
{
    cudaStream_t s = aril_cuda_stream(r);
    int64_t total = j.y.dim[0] * j.points;
    size_t bounds = 2 * rounded((size_t)e->pixels * 4);
    aril_status status =
        aril_cuda_check(r, cudaMemsetAsync(e->first, 0, bounds, s), "cudaMemsetAsync");
    if (status < 0 || e->n == 0) return status;
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->type(r), S,
                           (list_entries<S>
                            <<<blocks_of(r, total), ARIL_CUDA_THREADS, 0, s>>>(j, *e, total)));
    cudaError_t code = aril_cuda_grid_sort(nullptr, &e->sorting_bytes, nullptr, nullptr, nullptr,
                                           nullptr, (int)e->n, e->bits, s);
    if (code == cudaSuccess)
        code = aril_cuda_grid_sort(e->sorting, &e->sorting_bytes, e->key, e->sorted_key, e->id,
                                   e->sorted_id, (int)e->n, e->bits, s);
    status = aril_cuda_check(r, code, "sorting");
    if (status < 0) return status;
    find_bounds<<<blocks_of(r, e->n), ARIL_CUDA_THREADS, 0, s>>>(*e);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_grid_sample_grad_x_run(aril_run *r)
{
    const aril_tensor *g = aril_cuda_in(r, 0), *grid = aril_cuda_in(r, 1);
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t total = aril_cuda_host->numel(out);
    if (total == 0) return ARIL_OK;
    entries e = {};
    job j = describe(r, out, g, grid);
    j.x.data = aril_cuda_data(out);
    j.y.data = aril_cuda_data(g);
    j.grid = aril_cuda_data(grid);
    lay_out(j, &e, aril_cuda_host->type(r) == ARIL_F64,
            static_cast<char *>(aril_cuda_host->workspace(r)));
    aril_status status = sort_entries(r, j, &e);
    if (status < 0) return status;
    cudaStream_t s = aril_cuda_stream(r);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->type(r), S,
                           (add_entries<S>
                            <<<blocks_of(r, total), ARIL_CUDA_THREADS, 0, s>>>(j, e, total)));
    return aril_cuda_launched(r);
}
