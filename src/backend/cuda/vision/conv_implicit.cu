/* y [positions,K] = x [positions,C kernel] w [C kernel,K], where x is gathered: a position is a
 * sample and a place in y. Blocks have tiles of 128 positions by 64 or 128 channels, threads 8 x 8
 * of them. Small results are cut along the sums too, so that all multiprocessors have work; a
 * second kernel adds the parts in their order. The gradient of the data is the convolution of y
 * with the weights transposed and reversed. */
#include "backend/cuda/vision/conv_implicit.cuh"

#include "backend/cuda/vision/conv_parts.cuh"

enum { DEPTH = 8, TALL = 128, PAD = 4 };

struct sizes {
    int32_t c, h, w, k, oh, ow; /* of the image that is read, and the result */
    int32_t stride_h, stride_w, pad_h, pad_w;
    int32_t kernel_h, kernel_w;
    int32_t sum, part; /* terms of a sum, and of one block: a multiple of DEPTH */
    uint32_t positions;
    aril_cuda_divisor across, down;  /* of positions: columns, rows */
    aril_cuda_divisor place, column; /* of terms: places in the kernel, columns of it */
};

template <int WIDE>
static __global__ void __launch_bounds__(2 * WIDE, 256 / WIDE)
    convolve(const float *x, const float *w, float *y, const __grid_constant__ sizes s)
{
    enum { THREADS = 2 * WIDE, ROWS = DEPTH * TALL / THREADS };
    __shared__ __align__(16) float a[2][DEPTH][TALL], b[2][DEPTH][WIDE + PAD];
    /* Loading: one position, ROWS terms; one channel, 4 terms. */
    int position = threadIdx.x % TALL, row = threadIdx.x / TALL * ROWS;
    int channel = threadIdx.x / 2, term = threadIdx.x % 2 * 4;
    uint32_t o_w, o_h, at = blockIdx.x * TALL + position;
    uint32_t sample = s.down.split(s.across.split(at < s.positions ? at : 0, &o_w), &o_h);
    bool there = at < s.positions;
    int top = (int)o_h * s.stride_h - s.pad_h, left = (int)o_w * s.stride_w - s.pad_w;
    const float *image = x + (int64_t)sample * s.c * s.h * s.w + top * s.w + left;
    int k = (int)blockIdx.y * WIDE + channel;
    const float *weights = w + (int64_t)k * s.sum;
    int begin = (int)blockIdx.z * s.part;
    int end = s.sum - begin < s.part ? s.sum : begin + s.part;
    float from_x[ROWS], from_w[4];
    auto load = [&](int first) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            uint32_t t = (uint32_t)(first + row + i), rest, q;
            int c = (int)s.place.split(t, &rest), p = (int)s.column.split(rest, &q);
            bool inside = there && (int)t < end && (unsigned)(top + p) < (unsigned)s.h &&
                          (unsigned)(left + (int)q) < (unsigned)s.w;
            from_x[i] = inside ? image[(c * s.h + p) * s.w + (int)q] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            from_w[i] = k < s.k && first + term + i < end ? weights[first + term + i] : 0.0f;
    };
    auto store = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) a[buffer][row + i][position] = from_x[i];
#pragma unroll
        for (int i = 0; i < 4; i++) b[buffer][term + i][channel] = from_w[i];
    };
    /* Computing: positions and channels in two groups of 4 each. */
    int across = threadIdx.x % 16 * 4, up = threadIdx.x / 16 * 4;
    float sum[8][8] = {}; /* channels, positions */
    int buffer = 0;
    load(begin);
    store(0);
    __syncthreads();
    for (int first = begin; first < end; first += DEPTH) {
        bool more = first + DEPTH < end;
        if (more) load(first + DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            float u[8], v[8];
            *reinterpret_cast<float4 *>(u) =
                *reinterpret_cast<const float4 *>(&a[buffer][d][across]);
            *reinterpret_cast<float4 *>(u + 4) =
                *reinterpret_cast<const float4 *>(&a[buffer][d][TALL / 2 + across]);
            *reinterpret_cast<float4 *>(v) = *reinterpret_cast<const float4 *>(&b[buffer][d][up]);
            *reinterpret_cast<float4 *>(v + 4) =
                *reinterpret_cast<const float4 *>(&b[buffer][d][WIDE / 2 + up]);
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += v[i] * u[j];
        }
        if (more) {
            store(buffer ^ 1);
            __syncthreads();
            buffer ^= 1;
        }
    }
    int64_t area = (int64_t)s.oh * s.ow;
    float *to = y + blockIdx.z * (int64_t)s.positions * s.k;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        uint32_t p = blockIdx.x * TALL + (j < 4 ? 0 : TALL / 2) + across + j % 4;
        if (p >= s.positions) continue;
        uint32_t of_row, of_image = s.across.split(p, &of_row), line;
        int64_t n = s.down.split(of_image, &line);
        float *out = to + n * s.k * area + (int64_t)line * s.ow + of_row;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int channel_out = (int)blockIdx.y * WIDE + (i < 4 ? 0 : WIDE / 2) + up + i % 4;
            if (channel_out < s.k) out[channel_out * area] = sum[i][j];
        }
    }
}

/* [K,C,places] to [C,K,places], places in reverse. */
static __global__ void turn_weights(const float *from, float *to, int64_t n, int64_t k, int64_t c,
                                    int64_t places)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t p = i % places, of_k = i / places % k, of_c = i / places / k;
        to[i] = from[(of_k * c + of_c) * places + places - 1 - p];
    }
}

/* ---- rows ---- */

bool aril_cuda_conv_is_implicit(const aril_cuda_conv &d, aril_dtype type, bool last)
{
    if (d.role == ARIL_CUDA_CONV_W || type != ARIL_F32 || last || d.groups != 1) return false;
    if (d.x.dim[2] != 1 || d.w.dim[2] != 1 || d.y.dim[2] != 1 || d.begin[0]) return false;
    bool near = d.stride[1] * d.stride[2] == 1;
    if (d.role == ARIL_CUDA_CONV_X && !near) return false;
    for (int i = 1; i < 3; i++)
        if (d.dilation[i] != 1 || d.begin[i] < 0 || d.begin[i] >= d.w.dim[2 + i] ||
            d.stride[i] > 1 << 10)
            return false;
    const int64_t most = 1 << 28;
    int64_t x = d.x.dim[0] * aril_cuda_area(d.x), y = d.y.dim[0] * aril_cuda_area(d.y);
    return x < most && y < most && d.x.dim[1] * aril_cuda_area(d.x) < most &&
           d.y.dim[1] * aril_cuda_area(d.y) < most && d.w.dim[0] < 1 << 20 &&
           d.w.dim[1] < 1 << 20 && d.w.dim[0] * d.w.dim[1] * aril_cuda_area(d.w) < most;
}

static sizes sizes_of(const aril_cuda_conv &d)
{
    bool forward = d.role == ARIL_CUDA_CONV_Y;
    const aril_cuda_image &in = forward ? d.x : d.y, &out = forward ? d.y : d.x;
    sizes s;
    s.c = (int32_t)in.dim[1];
    s.h = (int32_t)in.dim[3];
    s.w = (int32_t)in.dim[4];
    s.k = (int32_t)out.dim[1];
    s.oh = (int32_t)out.dim[3];
    s.ow = (int32_t)out.dim[4];
    s.kernel_h = (int32_t)d.w.dim[3];
    s.kernel_w = (int32_t)d.w.dim[4];
    s.stride_h = (int32_t)d.stride[1];
    s.stride_w = (int32_t)d.stride[2];
    s.pad_h = (int32_t)(forward ? d.begin[1] : s.kernel_h - 1 - d.begin[1]);
    s.pad_w = (int32_t)(forward ? d.begin[2] : s.kernel_w - 1 - d.begin[2]);
    s.sum = s.c * s.kernel_h * s.kernel_w;
    s.part = s.sum;
    s.positions = (uint32_t)(out.dim[0] * aril_cuda_area(out));
    s.across = aril_cuda_divisor_of(s.ow);
    s.down = aril_cuda_divisor_of(s.oh);
    s.place = aril_cuda_divisor_of(s.kernel_h * s.kernel_w);
    s.column = aril_cuda_divisor_of(s.kernel_w);
    return s;
}

struct shape {
    bool narrow; /* tiles of 64 channels */
    dim3 grid;
};

/* Cuts sums into the number of parts that takes the fewest steps on the fullest multiprocessor. */
static shape shape_of(const aril_cuda_device *device, sizes *s)
{
    enum { MOST = 16, LEAST = 128, BESIDES = 24 }; /* parts; terms of one; steps to store one */
    shape p;
    p.narrow = s->k <= 64;
    int64_t wide = p.narrow ? 64 : 128, tall = (s->positions + TALL - 1) / TALL;
    int64_t tiles = tall * ((s->k + wide - 1) / wide), best = INT64_MAX, parts = 1;
    for (int64_t n = 1; n <= MOST && (n == 1 || s->sum / n >= LEAST); n++) {
        int64_t steps = (s->sum + n * DEPTH - 1) / (n * DEPTH);
        int64_t cost = (tiles * n + device->sms - 1) / device->sms * (steps + BESIDES);
        if (cost >= best) continue;
        best = cost;
        parts = n;
    }
    s->part = (int32_t)((s->sum + parts * DEPTH - 1) / (parts * DEPTH) * DEPTH);
    parts = (s->sum + s->part - 1) / s->part;
    p.grid = dim3((unsigned)tall, (unsigned)((s->k + wide - 1) / wide), (unsigned)parts);
    return p;
}

static size_t weight_bytes(const aril_cuda_conv &d)
{
    if (d.role == ARIL_CUDA_CONV_Y) return 0;
    size_t bytes = (size_t)(d.w.dim[0] * d.w.dim[1] * aril_cuda_area(d.w)) * sizeof(float);
    return (bytes + 255) / 256 * 256;
}

size_t aril_cuda_conv_implicit_workspace(const aril_cuda_device *device, const aril_cuda_conv &d)
{
    sizes s = sizes_of(d);
    shape p = shape_of(device, &s);
    size_t result = (size_t)s.positions * (size_t)s.k * sizeof(float);
    return weight_bytes(d) + (p.grid.z > 1 ? p.grid.z * result : 0);
}

void aril_cuda_conv_implicit_run(const aril_run *r, const aril_cuda_conv &d, void *workspace)
{
    bool forward = d.role == ARIL_CUDA_CONV_Y;
    sizes s = sizes_of(d);
    shape p = shape_of(aril_cuda_device_of(r), &s);
    cudaStream_t stream = aril_cuda_stream(r);
    const float *w = static_cast<const float *>(d.w.data);
    const float *in = static_cast<const float *>(forward ? d.x.data : d.y.data);
    float *out = static_cast<float *>(forward ? d.y.data : d.x.data), *to = out;
    if (!forward) {
        int64_t places = aril_cuda_area(d.w), n = d.w.dim[0] * d.w.dim[1] * places;
        float *turned = static_cast<float *>(workspace);
        turn_weights<<<aril_cuda_blocks(r, n, ARIL_CUDA_THREADS), ARIL_CUDA_THREADS, 0, stream>>>(
            w, turned, n, d.w.dim[0], d.w.dim[1], places);
        w = turned;
    }
    if (p.grid.z > 1)
        to = reinterpret_cast<float *>(static_cast<char *>(workspace) + weight_bytes(d));
    if (p.narrow)
        convolve<64><<<p.grid, 128, 0, stream>>>(in, w, to, s);
    else
        convolve<128><<<p.grid, 256, 0, stream>>>(in, w, to, s);
    if (p.grid.z > 1)
        aril_cuda_parts_run<float>(r, to, out, p.grid.z, (int64_t)s.positions * s.k, false);
}
