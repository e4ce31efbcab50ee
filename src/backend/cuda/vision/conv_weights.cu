/* A matrix product w [K,columns] = y [K,positions] x [positions,columns], whose second factor is
 * gathered: a column is a channel of x and a place in the kernel, a position a sample and a place
 * in y. Blocks have tiles of w for a part of the positions; a second kernel adds the parts in their
 * order. libraries are slow for few channels, and where windows are apart. */
#include "backend/cuda/vision/conv_weights.cuh"

#include "backend/cuda/vision/conv_parts.cuh"

enum { DEPTH = 32, COLUMNS = 64, WARPS = 4, THREADS = WARPS * 32, GROUP = 4 };

struct sizes {
    int32_t k, columns;   /* of w */
    int32_t h, w, oh, ow; /* of x and y */
    int32_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int32_t kernel_h, kernel_w;
    int64_t x_image, y_image; /* elements of a sample */
    uint32_t positions, part; /* all, and of one block: a multiple of DEPTH */
    aril_cuda_divisor across, down;
};

/* Where a column reads, relative to where a window begins. */
struct tap {
    int32_t offset, row, column; /* row: far beyond the image if there is no such column */
};

/* ROWS rows of w per thread: its tile is 8 ROWS x COLUMNS, 4 columns per thread. */
template <int ROWS>
static __global__ void __launch_bounds__(THREADS)
    weights(const float *x, const float *y, float *parts, const __grid_constant__ sizes s)
{
    enum { HIGH = 8 * ROWS, PAD = 4 };
    __shared__ __align__(16) float left[DEPTH][HIGH + PAD], right[DEPTH][COLUMNS + PAD];
    __shared__ tap taps[COLUMNS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = threadIdx.x / 16 * ROWS, column = threadIdx.x % 16 * 4;
    int first_row = (int)blockIdx.y * HIGH, first_column = (int)blockIdx.x * COLUMNS;
    if (threadIdx.x < COLUMNS) {
        int at = first_column + (int)threadIdx.x, area = s.kernel_h * s.kernel_w;
        int channel = at / area, place = at % area;
        tap t = { 0, 1 << 30, 0 };
        if (at < s.columns) {
            t.row = place / s.kernel_w * s.dilation_h;
            t.column = place % s.kernel_w * s.dilation_w;
            t.offset = (channel * s.h + t.row) * s.w + t.column;
        }
        taps[threadIdx.x] = t;
    }
    __syncthreads();
    float sum[ROWS][4] = {};
    uint32_t begin = blockIdx.z * s.part;
    uint32_t end = s.positions - begin < s.part ? s.positions : begin + s.part;
    for (uint32_t p = begin; p < end; p += DEPTH) {
        /* The lanes of a warp gather for DEPTH positions, GROUP rows or columns at a time. */
        uint32_t o_w, o_h, sample = s.down.split(s.across.split(p + lane, &o_w), &o_h);
        bool there = p + lane < end;
        int top = (int)o_h * s.stride_h - s.pad_h, side = (int)o_w * s.stride_w - s.pad_w;
        const float *from_y = y + sample * s.y_image + (int)o_h * s.ow + (int)o_w;
        const float *from_x = x + sample * s.x_image + top * s.w + side;
        int64_t area = (int64_t)s.oh * s.ow;
#pragma unroll
        for (int g = warp; g < HIGH / GROUP; g += WARPS) {
            float4 v = {};
            float *at = &v.x;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                int k = first_row + g * GROUP + i;
                if (there && k < s.k) at[i] = from_y[k * area];
            }
            *reinterpret_cast<float4 *>(&left[lane][g * GROUP]) = v;
        }
#pragma unroll
        for (int g = warp; g < COLUMNS / GROUP; g += WARPS) {
            float4 v = {};
            float *at = &v.x;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                tap t = taps[g * GROUP + i];
                unsigned in_row = (unsigned)(top + t.row), in_column = (unsigned)(side + t.column);
                if (there && in_row < (unsigned)s.h && in_column < (unsigned)s.w)
                    at[i] = from_x[t.offset];
            }
            *reinterpret_cast<float4 *>(&right[lane][g * GROUP]) = v;
        }
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < DEPTH; d++) {
            float a[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; i += 2)
                *reinterpret_cast<float2 *>(&a[i]) =
                    *reinterpret_cast<const float2 *>(&left[d][row + i]);
            float4 b = *reinterpret_cast<const float4 *>(&right[d][column]);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                sum[i][0] += a[i] * b.x;
                sum[i][1] += a[i] * b.y;
                sum[i][2] += a[i] * b.z;
                sum[i][3] += a[i] * b.w;
            }
        }
        __syncthreads();
    }
    float *to = parts + (int64_t)blockIdx.z * s.k * s.columns;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int k = first_row + row + i, at = first_column + column + j;
            if (k < s.k && at < s.columns) to[(int64_t)k * s.columns + at] = sum[i][j];
        }
}

/* ---- rows ---- */

bool aril_cuda_conv_is_weights(const aril_cuda_conv &d, aril_dtype type, bool last)
{
    if (d.role != ARIL_CUDA_CONV_W || type != ARIL_F32 || last || d.groups != 1) return false;
    if (d.x.dim[2] != 1 || d.w.dim[2] != 1 || d.y.dim[2] != 1 || d.begin[0]) return false;
    int64_t columns = d.w.dim[1] * aril_cuda_area(d.w), plane = d.x.dim[1] * aril_cuda_area(d.x);
    const int64_t most = 1 << 28;
    for (int i = 1; i < 3; i++)
        if (d.begin[i] < 0 || d.begin[i] > 1 << 20 || d.stride[i] > 1 << 20 ||
            d.dilation[i] > 1 << 20)
            return false;
    return d.y.dim[0] * aril_cuda_area(d.y) < most && plane < most && d.w.dim[0] < 1 << 20 &&
           d.w.dim[0] * columns < most;
}

struct shape {
    bool few; /* rows of w */
    dim3 grid;
    uint32_t part;
};

/* Enough blocks to fill the device a few times, in parts of a few steps at least. */
static shape shape_of(const aril_cuda_device *device, const aril_cuda_conv &d)
{
    enum { RESIDENT = 5, LOADS = 2, LEAST = 4 };
    shape s;
    uint32_t positions = (uint32_t)(d.y.dim[0] * aril_cuda_area(d.y));
    int64_t columns = d.w.dim[1] * aril_cuda_area(d.w), k = d.w.dim[0];
    s.few = k <= 32;
    uint32_t across = (uint32_t)((columns + COLUMNS - 1) / COLUMNS);
    uint32_t high = s.few ? 16 : 64, down = (uint32_t)((k + high - 1) / high);
    uint32_t want = (uint32_t)device->sms * RESIDENT * LOADS / (across * down);
    uint32_t steps = (positions + DEPTH - 1) / DEPTH, most = (steps + LEAST - 1) / LEAST;
    uint32_t parts = want < 1 ? 1 : want < most ? want : most;
    s.part = (steps + parts - 1) / parts * DEPTH;
    parts = (positions + s.part - 1) / s.part;
    s.grid = dim3(across, down, parts);
    return s;
}

size_t aril_cuda_conv_weights_workspace(const aril_cuda_device *device, const aril_cuda_conv &d)
{
    shape p = shape_of(device, d);
    size_t bytes = (size_t)(d.w.dim[0] * d.w.dim[1] * aril_cuda_area(d.w)) * sizeof(float);
    return p.grid.z > 1 ? p.grid.z * bytes : 0;
}

static sizes sizes_of(const aril_cuda_conv &d, uint32_t part)
{
    sizes s;
    s.k = (int32_t)d.w.dim[0];
    s.columns = (int32_t)(d.w.dim[1] * aril_cuda_area(d.w));
    s.h = (int32_t)d.x.dim[3];
    s.w = (int32_t)d.x.dim[4];
    s.oh = (int32_t)d.y.dim[3];
    s.ow = (int32_t)d.y.dim[4];
    s.stride_h = (int32_t)d.stride[1];
    s.stride_w = (int32_t)d.stride[2];
    s.pad_h = (int32_t)d.begin[1];
    s.pad_w = (int32_t)d.begin[2];
    s.dilation_h = (int32_t)d.dilation[1];
    s.dilation_w = (int32_t)d.dilation[2];
    s.kernel_h = (int32_t)d.w.dim[3];
    s.kernel_w = (int32_t)d.w.dim[4];
    s.x_image = d.x.dim[1] * aril_cuda_area(d.x);
    s.y_image = d.y.dim[1] * aril_cuda_area(d.y);
    s.positions = (uint32_t)(d.y.dim[0] * aril_cuda_area(d.y));
    s.part = part;
    s.across = aril_cuda_divisor_of(d.y.dim[4]);
    s.down = aril_cuda_divisor_of(d.y.dim[3]);
    return s;
}

void aril_cuda_conv_weights_run(const aril_run *r, const aril_cuda_conv &d, void *workspace)
{
    shape p = shape_of(aril_cuda_device_of(r), d);
    sizes s = sizes_of(d, p.part);
    const float *x = static_cast<const float *>(d.x.data),
                *y = static_cast<const float *>(d.y.data);
    bool several = p.grid.z > 1;
    float *to = static_cast<float *>(several ? workspace : d.w.data);
    cudaStream_t stream = aril_cuda_stream(r);
    if (p.few)
        weights<2><<<p.grid, THREADS, 0, stream>>>(x, y, to, s);
    else
        weights<8><<<p.grid, THREADS, 0, stream>>>(x, y, to, s);
    if (several)
        aril_cuda_parts_run<float>(r, to, d.w.data, p.grid.z, (int64_t)s.k * s.columns, false);
}
