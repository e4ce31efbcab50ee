/* The copies of pad.cuh. Both sides are read and written 16 bytes at a time: stores are aligned,
 * and what they need is put together from the two aligned vectors that it lies in. */
#include "backend/cuda/linalg/pad.cuh"

#include "backend/cuda/launch.cuh"

enum { THREADS = 256, VECTORS = 4 }; /* vectors of a thread */

struct copying {
    char *to;
    const char *from, *end;       /* end: of the source */
    int64_t to_step, from_step;   /* bytes from row to row */
    int64_t rows, columns, width; /* columns, width: in bytes */
    int64_t parts;                /* blocks along a row */
};

/* The 16 bytes that start `by` bytes into v, followed by w. */
static __device__ __forceinline__ uint4 shifted(uint4 v, uint4 w, unsigned by)
{
    if (by & 8) v = make_uint4(v.z, v.w, w.x, w.y), w = make_uint4(w.z, w.w, 0, 0);
    if (by & 4) v = make_uint4(v.y, v.z, v.w, w.x), w.x = w.y;
    if (by & 2)
        v = make_uint4(__funnelshift_r(v.x, v.y, 16), __funnelshift_r(v.y, v.z, 16),
                       __funnelshift_r(v.z, v.w, 16), __funnelshift_r(v.w, w.x, 16));
    return v;
}

/* The 16 bytes at p, of which `left` belong to the row: others are 0. */
template <typename U> static __device__ __forceinline__ uint4 gather(const char *p, int64_t left)
{
    union {
        U element[16 / sizeof(U)];
        uint4 all;
    } u = {};
#pragma unroll
    for (int k = 0; k < (int)(16 / sizeof(U)); k++)
        if ((int64_t)(k * sizeof(U)) < left) u.element[k] = reinterpret_cast<const U *>(p)[k];
    return u.all;
}

/* The vectors of this thread, from byte `at` of the row on; `end`: of the last vector. */
template <typename U>
static __device__ __forceinline__ void copy_vectors(const copying &c, char *to, const char *from,
                                                    int64_t at, int64_t end)
{
    const int64_t step = blockDim.x * 16, last = at + (VECTORS - 1) * step;
    unsigned by = (unsigned)((uintptr_t)(from + at) & 15);
    const char *first = from + at - by;
    if (last + 16 <= end && last + 16 <= c.columns && first >= c.from &&
        first + (VECTORS - 1) * step + 32 <= c.end) {
        uint4 v[VECTORS], w[VECTORS]; /* all are read before the first is used */
#pragma unroll
        for (int k = 0; k < VECTORS; k++) {
            const uint4 *p = reinterpret_cast<const uint4 *>(first + k * step);
            v[k] = __ldg(p);
            w[k] = __ldg(p + 1);
        }
#pragma unroll
        for (int k = 0; k < VECTORS; k++)
            *reinterpret_cast<uint4 *>(to + at + k * step) = shifted(v[k], w[k], by);
        return;
    }
    for (; at <= last && at + 16 <= end; at += step)
        *reinterpret_cast<uint4 *>(to + at) = gather<U>(from + at, c.columns - at);
}

/* blockDim.x threads share a row, of which a block copies a part. */
template <typename U> static __global__ void __launch_bounds__(THREADS) copy_rows(const copying c)
{
    int64_t part = blockIdx.x % c.parts;
    int64_t row = blockIdx.x / c.parts * blockDim.y + threadIdx.y;
    for (; row < c.rows; row += gridDim.x / c.parts * blockDim.y) {
        char *to = c.to + row * c.to_step;
        const char *from = c.from + row * c.from_step;
        int64_t head = (int64_t)((16 - ((uintptr_t)to & 15)) & 15);
        if (head > c.width) head = c.width;
        int64_t vectors = (c.width - head) / 16, first = part * VECTORS * blockDim.x + threadIdx.x;
        copy_vectors<U>(c, to, from, head + first * 16, head + vectors * 16);
        if (part > 0) continue;
        /* What is left before the first vector and behind the last: fewer than 16 elements. */
        int64_t at = (int64_t)threadIdx.x * sizeof(U);
        if (at >= head) at += vectors * 16;
        if (at < c.width)
            *reinterpret_cast<U *>(to + at) =
                at < c.columns ? *reinterpret_cast<const U *>(from + at) : U(0);
    }
}

template <typename U> static void launch(aril_run *r, copying c)
{
    int64_t vectors = (c.width + 15) / 16, most = (int64_t)1 << 30;
    unsigned x = 32;
    while (x < THREADS && x * VECTORS < vectors) x *= 2;
    unsigned y = THREADS / x;
    c.parts = (vectors + x * VECTORS - 1) / (x * VECTORS);
    int64_t lines = (c.rows + y - 1) / y;
    if (lines > most / c.parts) lines = most / c.parts;
    copy_rows<U><<<(unsigned)(lines * c.parts), dim3(x, y), 0, aril_cuda_stream(r)>>>(c);
}

void aril_cuda_copy_rows(aril_run *r, int size, aril_cuda_pitched to, aril_cuda_pitched from,
                         int64_t rows, int64_t columns, int64_t width)
{
    if (rows == 0 || width == 0) return;
    copying c = { to.at,          from.at,        from.at + ((rows - 1) * from.ld + columns) * size,
                  to.ld * size,   from.ld * size, rows,
                  columns * size, width * size,   0 };
    if (size == 2)
        launch<uint16_t>(r, c);
    else
        launch<uint32_t>(r, c);
}
