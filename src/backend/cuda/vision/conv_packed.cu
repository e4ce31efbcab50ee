#include "backend/cuda/vision/conv_packed.cuh"

#include "backend/cuda/device/library.h"

enum { VECTOR_BYTES = 16, MAX_CHANNELS = 4 };

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static int32_t quotient(int32_t x, int32_t by) /* rounded up */
{
    return (x + by - 1) / by;
}

/* ---- shapes ---- */

static aril_cuda_image image_of(int64_t n, int64_t c, int64_t h, int64_t w)
{
    aril_cuda_image m = {};
    int64_t dim[5] = { n, c, 1, h, w }, stride[5] = { h * w * c, 1, h * w * c, w * c, c };
    for (int i = 0; i < 5; i++) {
        m.dim[i] = dim[i];
        m.stride[i] = stride[i];
    }
    return m;
}

/* Channels of a packed pixel come in vectors of so many. */
static int32_t vector_of(aril_dtype type)
{
    return VECTOR_BYTES / (int32_t)aril_cuda_size(type);
}

static bool is_suitable(const aril_cuda_conv &d, aril_dtype type)
{
    bool fast = type == ARIL_F32 && aril_cuda_tf32();
    if (type != ARIL_F16 && type != ARIL_BF16 && !fast) return false;
    if (d.role == ARIL_CUDA_CONV_X || d.groups != 1 || d.x.dim[1] > MAX_CHANNELS) return false;
    if (d.x.dim[2] != 1 || d.w.dim[2] != 1 || d.y.dim[2] != 1 || d.begin[0]) return false;
    if (d.w.dim[3] < 2 || d.w.dim[4] < 2 || d.y.dim[1] % vector_of(type)) return false;
    for (int i = 1; i < 3; i++)
        if (d.dilation[i] != 1 || d.begin[i] < 0 || d.stride[i] > 4 || d.w.dim[2 + i] > 16)
            return false;
    const int64_t most = 1 << 24;
    return aril_cuda_area(d.x) < most && aril_cuda_area(d.y) < most;
}

bool aril_cuda_conv_pack(const aril_cuda_conv &d, aril_dtype type, bool contiguous, int which,
                         aril_cuda_conv_packing *p, aril_cuda_conv *inner)
{
    bool lines = which == 1;
    if (!is_suitable(d, type)) return false;
    if (!lines && d.stride[1] * d.stride[2] == 1) return false; /* nothing but padding */
    int32_t oh = (int32_t)d.y.dim[3], ow = (int32_t)d.y.dim[4];
    int32_t stride_h = (int32_t)d.stride[1], stride_w = (int32_t)d.stride[2];
    *p = {};
    p->c = (int32_t)d.x.dim[1];
    p->h = (int32_t)d.x.dim[3];
    p->w = (int32_t)d.x.dim[4];
    p->kernel_h = (int32_t)d.w.dim[3];
    p->kernel_w = (int32_t)d.w.dim[4];
    p->pad_h = (int32_t)d.begin[1];
    p->pad_w = (int32_t)d.begin[2];
    p->high = p->step_h = lines ? 1 : stride_h;
    p->wide = lines ? p->kernel_w : stride_w;
    p->step_w = stride_w;
    p->taps_h = quotient(p->kernel_h, p->high);
    p->taps_w = quotient(p->kernel_w, p->wide);
    p->packed_h = lines ? (oh - 1) * stride_h + p->kernel_h : oh + p->taps_h - 1;
    p->packed_w = ow + p->taps_w - 1;
    int32_t vector = vector_of(type);
    p->channels = quotient(p->high * p->wide * p->c, vector) * vector;
    p->element = (int32_t)aril_cuda_size(type);
    p->samples = d.x.dim[0];
    p->k = d.w.dim[0];
    int64_t image = (int64_t)p->h * p->w * p->c, area = (int64_t)p->h * p->w;
    int64_t first[4] = { image, area, p->w, 1 }, last[4] = { image, 1, (int64_t)p->w * p->c, p->c };
    for (int i = 0; i < 4; i++) p->stride[i] = contiguous ? first[i] : last[i];
    int64_t pixels = p->samples * p->packed_h * p->packed_w;
    if (pixels * p->channels / vector > ARIL_CUDA_MAX_POSITIONS) return false;
    p->x_bytes = rounded((size_t)(pixels * p->channels * aril_cuda_size(type)));
    p->w_bytes =
        rounded((size_t)(p->k * p->taps_h * p->taps_w * p->channels * aril_cuda_size(type)));
    *inner = d;
    inner->c = p->channels;
    inner->x = image_of(p->samples, p->channels, p->packed_h, p->packed_w);
    inner->w = image_of(p->k, p->channels, p->taps_h, p->taps_w);
    inner->begin[1] = inner->begin[2] = inner->end[1] = inner->end[2] = 0;
    inner->stride[1] = lines ? stride_h : 1;
    inner->stride[2] = 1;
    return true;
}

/* ---- kernels ---- */

/* Channel `at` of a packed pixel or weight: a, b and c. */
struct place {
    int a, b, c;
};

static __device__ __forceinline__ place place_of(const aril_cuda_conv_packing &p, int at)
{
    int rest = at / p.c;
    return { rest / p.wide, rest % p.wide, at % p.c };
}

/* Where a channel of a packed pixel is read, relative to the pixel's first element. */
struct source {
    int32_t offset;
    int16_t row, column; /* row: far beyond the image if there is no such channel */
};

/* A vector of channels of one packed pixel per item. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    pack_image(const __grid_constant__ aril_cuda_conv_packing p, aril_cuda_divisor vectors,
               aril_cuda_divisor across, aril_cuda_divisor down, const S *x, S *to, uint32_t n)
{
    const int size = VECTOR_BYTES / sizeof(S);
    typedef aril_cuda_vector<S, size> V;
    extern __shared__ source sources[];
    for (int i = threadIdx.x; i < p.channels; i += blockDim.x) {
        place at = place_of(p, i);
        bool there = at.a < p.high;
        sources[i] = { (int32_t)(at.c * p.stride[1] + at.a * p.stride[2] + at.b * p.stride[3]),
                       (int16_t)(there ? at.a : INT16_MAX), (int16_t)at.b };
    }
    __syncthreads();
    ARIL_CUDA_LOOP(i, n)
    {
        uint32_t first, column, row;
        int64_t sample = down.split(across.split(vectors.split(i, &first), &column), &row);
        int top = (int)row * p.step_h - p.pad_h, left = (int)column * p.step_w - p.pad_w;
        const S *image = x + sample * p.stride[0] + top * p.stride[2] + left * p.stride[3];
        V v;
#pragma unroll
        for (int j = 0; j < size; j++) {
            source at = sources[first * size + j];
            bool there = at.row < INT16_MAX && (unsigned)(top + at.row) < (unsigned)p.h &&
                         (unsigned)(left + at.column) < (unsigned)p.w;
            v.at[j] = there ? image[at.offset] : 0;
        }
        reinterpret_cast<V *>(to)[i] = v;
    }
}

/* Element i of the packed weights [k, taps_h, taps_w, channels]: its offset in the weights
 * [k, kernel_h, kernel_w, c], or -1. */
static __device__ __forceinline__ int64_t weight_of(const aril_cuda_conv_packing &p, uint32_t i)
{
    place at = place_of(p, (int)(i % p.channels));
    i /= p.channels;
    int column = (int)(i % p.taps_w) * p.wide + at.b;
    i /= p.taps_w;
    int row = (int)(i % p.taps_h) * p.high + at.a;
    int64_t k = i / p.taps_h;
    if (at.a >= p.high || row >= p.kernel_h || column >= p.kernel_w) return -1;
    return ((k * p.kernel_h + row) * p.kernel_w + column) * p.c + at.c;
}

/* `back`: from the packed weights. */
template <typename S>
static __global__ void pack_weights(const __grid_constant__ aril_cuda_conv_packing p, const S *from,
                                    S *to, uint32_t n, bool back)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t at = weight_of(p, i);
        if (!back)
            to[i] = at >= 0 ? from[at] : 0;
        else if (at >= 0)
            to[at] = from[i];
    }
}

/* ---- running ---- */

template <typename S>
static void launch_image(const aril_run *r, const aril_cuda_conv_packing *p, const void *x,
                         void *packed)
{
    int32_t vectors = p->channels * p->element / VECTOR_BYTES;
    uint32_t n = (uint32_t)(p->samples * p->packed_h * p->packed_w * vectors);
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 16);
    size_t shared = (size_t)p->channels * sizeof(source);
    pack_image<S><<<blocks, ARIL_CUDA_THREADS, shared, aril_cuda_stream(r)>>>(
        *p, aril_cuda_divisor_of(vectors), aril_cuda_divisor_of(p->packed_w),
        aril_cuda_divisor_of(p->packed_h), static_cast<const S *>(x), static_cast<S *>(packed), n);
}

void aril_cuda_conv_pack_image(const aril_run *r, const aril_cuda_conv_packing *p, const void *x,
                               void *packed)
{
    if (p->element == 4)
        launch_image<uint32_t>(r, p, x, packed);
    else
        launch_image<uint16_t>(r, p, x, packed);
}

template <typename S>
static void launch_weights(const aril_run *r, const aril_cuda_conv_packing *p, const void *from,
                           void *to, bool back)
{
    uint32_t n = (uint32_t)(p->k * p->taps_h * p->taps_w * p->channels);
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS);
    pack_weights<S>
        <<<blocks, ARIL_CUDA_THREADS, 0, aril_cuda_stream(r)>>>(*p, static_cast<const S *>(from),
                                                                static_cast<S *>(to), n, back);
}

static void move_weights(const aril_run *r, const aril_cuda_conv_packing *p, const void *from,
                         void *to, bool back)
{
    if (p->element == 4)
        launch_weights<uint32_t>(r, p, from, to, back);
    else
        launch_weights<uint16_t>(r, p, from, to, back);
}

void aril_cuda_conv_pack_weights(const aril_run *r, const aril_cuda_conv_packing *p, const void *w,
                                 void *packed)
{
    move_weights(r, p, w, packed, false);
}

void aril_cuda_conv_unpack_weights(const aril_run *r, const aril_cuda_conv_packing *p,
                                   const void *packed, void *w)
{
    move_weights(r, p, packed, w, true);
}
