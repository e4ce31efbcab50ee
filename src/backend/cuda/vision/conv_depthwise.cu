/* A thread has a vector of channels for good, and so their weights in registers, and loops over
 * tiles of TILE neighbouring results. Threads next to each other have neighbouring channels. The
 * gradient of the weights is summed by each thread over its tiles, then by blocks, then over
 * blocks, always in the same order. */
#include "backend/cuda/vision/conv_depthwise.cuh"

#include "backend/cuda/vision/conv_parts.cuh"

enum { R = 3, TAPS = R * R, TILE = 4, THREADS = 128 };

struct sizes {
    int32_t h, w, oh, ow; /* of x and y */
    int32_t pad_h, pad_w;
    int32_t vectors; /* of channels */
    uint32_t tiles;
    aril_cuda_divisor across, down; /* tiles in a row, rows in an image */
};

template <typename S> struct vector_of {
    enum { N = 16 / sizeof(S) };
    typedef aril_cuda_vector<S, N> type;
};

template <typename S>
static __device__ __forceinline__ void load_weights(const S *w, int group,
                                                    float to[TAPS][vector_of<S>::N])
{
    typedef typename vector_of<S>::type V;
    enum { N = vector_of<S>::N };
    const V *from = reinterpret_cast<const V *>(w) + group * TAPS;
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        V v = from[i];
#pragma unroll
        for (int j = 0; j < N; j++)
            to[(i * N + j) % TAPS][(i * N + j) / TAPS] = aril_cuda_to<float>(v.at[j]);
    }
}

/* ---- forward ---- */

/* y from x; with FLIP, x from y at stride 1: the same with the weights reversed. */
template <typename S, int STRIDE, bool FLIP>
static __global__ void __launch_bounds__(THREADS, 4)
    forward(const S *x, const S *w, S *y, const __grid_constant__ sizes s)
{
    typedef typename vector_of<S>::type V;
    enum { N = vector_of<S>::N, READ = (TILE - 1) * STRIDE + R };
    int group = blockIdx.y * blockDim.x + threadIdx.x;
    float weight[TAPS][N];
    load_weights(w, group, weight);
    const V *in = reinterpret_cast<const V *>(x) + group;
    V *out = reinterpret_cast<V *>(y) + group;
    for (uint32_t t = blockIdx.x * blockDim.y + threadIdx.y; t < s.tiles;
         t += gridDim.x * blockDim.y) {
        uint32_t tile, row;
        int64_t sample = s.down.split(s.across.split(t, &tile), &row);
        int first = (int)tile * TILE, left = first * STRIDE - s.pad_w;
        int top = (int)row * STRIDE - s.pad_h;
        float sum[TILE][N] = {};
#pragma unroll
        for (int a = 0; a < R; a++) {
            if (top + a < 0 || top + a >= s.h) continue;
            const V *line = in + (sample * s.h + top + a) * s.w * s.vectors;
#pragma unroll
            for (int j = 0; j < READ; j++) {
                V v = {};
                if (left + j >= 0 && left + j < s.w) v = line[(left + j) * s.vectors];
#pragma unroll
                for (int o = 0; o < TILE; o++) {
                    int b = j - o * STRIDE;
                    if (b < 0 || b >= R) continue;
                    int tap = FLIP ? TAPS - 1 - (a * R + b) : a * R + b;
#pragma unroll
                    for (int c = 0; c < N; c++)
                        sum[o][c] += aril_cuda_to<float>(v.at[c]) * weight[tap][c];
                }
            }
        }
        V *to = out + ((sample * s.oh + row) * s.ow + first) * s.vectors;
#pragma unroll
        for (int o = 0; o < TILE; o++) {
            V v;
#pragma unroll
            for (int c = 0; c < N; c++) v.at[c] = aril_cuda_from<S>(sum[o][c]);
            if (first + o < s.ow) to[o * s.vectors] = v;
        }
    }
}

/* ---- the gradient of the data at stride 2 ---- */

/* Row h of x reads rows (h + pad - a) / 2 of y for those a of the right parity; ODD: the padding is
 * odd, so that even columns read the middle tap and odd ones the outer two. */
template <typename S, bool ODD>
static __global__ void __launch_bounds__(THREADS, 4)
    data(const S *y, const S *w, S *x, const __grid_constant__ sizes s)
{
    typedef typename vector_of<S>::type V;
    enum { N = vector_of<S>::N, READ = 3 };
    int group = blockIdx.y * blockDim.x + threadIdx.x;
    float weight[TAPS][N];
    load_weights(w, group, weight);
    const V *in = reinterpret_cast<const V *>(y) + group;
    V *out = reinterpret_cast<V *>(x) + group;
    for (uint32_t t = blockIdx.x * blockDim.y + threadIdx.y; t < s.tiles;
         t += gridDim.x * blockDim.y) {
        uint32_t tile, row;
        int64_t sample = s.down.split(s.across.split(t, &tile), &row);
        int first = (int)tile * TILE, left = first / 2 + s.pad_w / 2 - (ODD ? 0 : 1);
        float sum[TILE][N] = {};
#pragma unroll
        for (int a = 0; a < R; a++) {
            int twice = (int)row + s.pad_h - a;
            if (twice & 1 || twice < 0 || twice / 2 >= s.oh) continue;
            const V *line = in + (sample * s.oh + twice / 2) * s.ow * s.vectors;
#pragma unroll
            for (int j = 0; j < READ; j++) {
                V v = {};
                if (left + j >= 0 && left + j < s.ow) v = line[(left + j) * s.vectors];
#pragma unroll
                for (int o = 0; o < TILE; o++) {
                    /* Column first + o reads left + j through this tap. */
                    int b = o + (ODD ? 1 : 2) - 2 * j;
                    if (b < 0 || b >= R) continue;
#pragma unroll
                    for (int c = 0; c < N; c++)
                        sum[o][c] += aril_cuda_to<float>(v.at[c]) * weight[a * R + b][c];
                }
            }
        }
        V *to = out + ((sample * s.h + row) * s.w + first) * s.vectors;
#pragma unroll
        for (int o = 0; o < TILE; o++) {
            V v;
#pragma unroll
            for (int c = 0; c < N; c++) v.at[c] = aril_cuda_from<S>(sum[o][c]);
            if (first + o < s.w) to[o * s.vectors] = v;
        }
    }
}

/* ---- the gradient of the weights ---- */

/* parts [blocks, TAPS, channels] */
template <typename S, int STRIDE>
static __global__ void __launch_bounds__(THREADS, 3)
    weights(const S *x, const S *y, float *parts, const __grid_constant__ sizes s)
{
    typedef typename vector_of<S>::type V;
    enum { N = vector_of<S>::N, READ = (TILE - 1) * STRIDE + R };
    __shared__ float shared[THREADS * N];
    int group = blockIdx.y * blockDim.x + threadIdx.x;
    float sum[TAPS][N] = {};
    const V *in = reinterpret_cast<const V *>(x) + group;
    const V *grad = reinterpret_cast<const V *>(y) + group;
    for (uint32_t t = blockIdx.x * blockDim.y + threadIdx.y; t < s.tiles;
         t += gridDim.x * blockDim.y) {
        uint32_t tile, row;
        int64_t sample = s.down.split(s.across.split(t, &tile), &row);
        int first = (int)tile * TILE, left = first * STRIDE - s.pad_w;
        int top = (int)row * STRIDE - s.pad_h;
        const V *from = grad + ((sample * s.oh + row) * s.ow + first) * s.vectors;
        V g[TILE];
#pragma unroll
        for (int o = 0; o < TILE; o++) {
            g[o] = {};
            if (first + o < s.ow) g[o] = from[o * s.vectors];
        }
#pragma unroll
        for (int a = 0; a < R; a++) {
            if (top + a < 0 || top + a >= s.h) continue;
            const V *line = in + (sample * s.h + top + a) * s.w * s.vectors;
#pragma unroll
            for (int j = 0; j < READ; j++) {
                V v = {};
                if (left + j >= 0 && left + j < s.w) v = line[(left + j) * s.vectors];
#pragma unroll
                for (int o = 0; o < TILE; o++) {
                    int b = j - o * STRIDE;
                    if (b < 0 || b >= R) continue;
#pragma unroll
                    for (int c = 0; c < N; c++)
                        sum[a * R + b][c] +=
                            aril_cuda_to<float>(v.at[c]) * aril_cuda_to<float>(g[o].at[c]);
                }
            }
        }
    }
    /* One tap after the other: threads of one column of the block add up its rows. */
    int columns = blockDim.x * N, at = threadIdx.y * blockDim.x + threadIdx.x;
    int64_t channels = (int64_t)s.vectors * N;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        __syncthreads();
#pragma unroll
        for (int c = 0; c < N; c++)
            shared[threadIdx.y * columns + threadIdx.x * N + c] = sum[tap][c];
        __syncthreads();
        for (int i = at; i < columns; i += blockDim.x * blockDim.y) {
            float total = 0;
            for (int k = 0; k < (int)blockDim.y; k++) total += shared[k * columns + i];
            parts[((int64_t)blockIdx.x * TAPS + tap) * channels + blockIdx.y * columns + i] = total;
        }
    }
}

/* w [channels, TAPS] from parts [blocks, TAPS, channels]. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_PARTS_ACROSS *ARIL_CUDA_PARTS_DOWN)
    add_blocks(const float *parts, S *w, int blocks, int channels)
{
    int i = blockIdx.x * ARIL_CUDA_PARTS_ACROSS + threadIdx.x, n = TAPS * channels;
    float sum = aril_cuda_parts_sum(parts, blocks, n, i);
    if (threadIdx.y == 0 && i < n) w[i % channels * TAPS + i / channels] = aril_cuda_from<S>(sum);
}

/* ---- rows ---- */

bool aril_cuda_conv_is_depthwise(const aril_cuda_conv &d, aril_dtype type, bool last)
{
    int64_t channels = d.x.dim[1];
    if (!last || type == ARIL_F64 || d.groups != channels || d.w.dim[0] != channels) return false;
    if (channels % (16 / aril_cuda_size(type)) || channels > 1 << 20) return false;
    if (d.w.dim[2] != 1 || d.w.dim[3] != R || d.w.dim[4] != R || d.x.dim[2] != 1) return false;
    if (d.y.dim[2] != 1 || d.begin[0] || d.stride[1] != d.stride[2]) return false;
    for (int i = 1; i < 3; i++)
        if (d.dilation[i] != 1 || d.begin[i] < 0 || d.begin[i] >= R) return false;
    int64_t area =
        aril_cuda_area(d.x) > aril_cuda_area(d.y) ? aril_cuda_area(d.x) : aril_cuda_area(d.y);
    return (d.stride[1] == 1 || d.stride[1] == 2) && d.x.dim[0] * area <= ARIL_CUDA_MAX_POSITIONS &&
           area * channels <= ARIL_CUDA_MAX_POSITIONS;
}

/* How a kernel is launched: blocks of `wide` vectors of channels by `high` tiles. */
struct shape {
    dim3 grid, block;
};

static shape shape_of(const aril_cuda_device *device, int vectors, uint32_t tiles, int loads)
{
    int wide = vectors;
    for (int k = 1; wide > 32; k++)
        if (vectors % k == 0) wide = vectors / k;
    int high = THREADS / wide;
    uint32_t pieces = (uint32_t)(vectors / wide), want = (tiles + high - 1) / high;
    uint32_t most = (uint32_t)(device->sms * loads) / pieces;
    if (most < 1) most = 1;
    return { dim3(want < most ? want : most, pieces), dim3((unsigned)wide, (unsigned)high) };
}

static sizes sizes_of(const aril_cuda_conv &d, aril_dtype type, const aril_cuda_image &over)
{
    sizes s;
    int64_t across = (over.dim[4] + TILE - 1) / TILE;
    s.h = (int32_t)d.x.dim[3];
    s.w = (int32_t)d.x.dim[4];
    s.oh = (int32_t)d.y.dim[3];
    s.ow = (int32_t)d.y.dim[4];
    s.pad_h = (int32_t)d.begin[1];
    s.pad_w = (int32_t)d.begin[2];
    s.vectors = (int32_t)(d.x.dim[1] * aril_cuda_size(type) / 16);
    s.tiles = (uint32_t)(over.dim[0] * over.dim[3] * across);
    s.across = aril_cuda_divisor_of(across);
    s.down = aril_cuda_divisor_of(over.dim[3]);
    return s;
}

enum { LOADS = 16, LOADS_OF_WEIGHTS = 3 }; /* blocks per multiprocessor */

size_t aril_cuda_conv_depthwise_workspace(const aril_cuda_device *device, const aril_cuda_conv &d,
                                          aril_dtype type)
{
    if (d.role != ARIL_CUDA_CONV_W) return 0;
    sizes s = sizes_of(d, type, d.y);
    shape p = shape_of(device, s.vectors, s.tiles, LOADS_OF_WEIGHTS);
    return p.grid.x * (size_t)d.x.dim[1] * TAPS * sizeof(float);
}

template <typename S>
static void launch(const aril_run *r, const aril_cuda_conv &d, void *workspace)
{
    cudaStream_t stream = aril_cuda_stream(r);
    aril_dtype type = aril_cuda_type<S>::dtype;
    const aril_cuda_device *device = aril_cuda_device_of(r);
    sizes s = sizes_of(d, type, d.role == ARIL_CUDA_CONV_X ? d.x : d.y);
    bool near = d.stride[1] == 1;
    shape p =
        shape_of(device, s.vectors, s.tiles, d.role == ARIL_CUDA_CONV_W ? LOADS_OF_WEIGHTS : LOADS);
    const S *x = static_cast<const S *>(d.x.data), *y = static_cast<const S *>(d.y.data);
    const S *w = static_cast<const S *>(d.w.data);
    if (d.role == ARIL_CUDA_CONV_Y) {
        auto kernel = near ? forward<S, 1, false> : forward<S, 2, false>;
        kernel<<<p.grid, p.block, 0, stream>>>(x, w, static_cast<S *>(d.y.data), s);
    } else if (d.role == ARIL_CUDA_CONV_X && near) {
        sizes t = s; /* y is read and x written */
        t.h = s.oh;
        t.w = s.ow;
        t.oh = s.h;
        t.ow = s.w;
        t.pad_h = R - 1 - s.pad_h;
        t.pad_w = R - 1 - s.pad_w;
        forward<S, 1, true><<<p.grid, p.block, 0, stream>>>(y, w, static_cast<S *>(d.x.data), t);
    } else if (d.role == ARIL_CUDA_CONV_X) {
        auto kernel = s.pad_w & 1 ? data<S, true> : data<S, false>;
        kernel<<<p.grid, p.block, 0, stream>>>(y, w, static_cast<S *>(d.x.data), s);
    } else {
        auto kernel = near ? weights<S, 1> : weights<S, 2>;
        float *parts = static_cast<float *>(workspace);
        int channels = (int)d.x.dim[1];
        kernel<<<p.grid, p.block, 0, stream>>>(x, y, parts, s);
        add_blocks<S><<<(TAPS * channels + ARIL_CUDA_PARTS_ACROSS - 1) / ARIL_CUDA_PARTS_ACROSS,
                        dim3(ARIL_CUDA_PARTS_ACROSS, ARIL_CUDA_PARTS_DOWN), 0, stream>>>(
            parts, static_cast<S *>(d.w.data), (int)p.grid.x, channels);
    }
}

void aril_cuda_conv_depthwise_run(const aril_run *r, const aril_cuda_conv &d, aril_dtype type,
                                  void *workspace)
{
    ARIL_CUDA_SWITCH_SINGLE(type, S, launch<S>(r, d, workspace));
}
