/* Copies between tensors of any strides, of one dtype: elements are words of 1 to 16 bytes. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
#include "backend/cuda/shape/shape.cuh"

enum { THREADS = 256, UNROLL = 4, TILE_ROWS = 8, TRANSPOSES_FROM = 8 };

/* ---- word by word ---- */

/* F(W), with the type W of that size. */
#define FOR_WORD(size, F)       \
    switch (size) {             \
    case 1: F(uint8_t); break;  \
    case 2: F(uint16_t); break; \
    case 4: F(uint32_t); break; \
    case 8: F(uint2); break;    \
    default: F(uint4);          \
    }

/* Operand 0 is the destination, 1 the source. A thread moves UNROLL words, a block's width
 * apart. */
template <typename W>
static __global__ void __launch_bounds__(THREADS)
    copy_words(W *to, const W *from, uint32_t n, const __grid_constant__ aril_cuda_nest<2> nest)
{
    uint32_t first = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    int32_t at[UNROLL][2];
    W x[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        uint32_t i = first + k * THREADS;
        if (i < n) {
            nest.offsets(i, at[k]);
            x[k] = from[at[k][1]];
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (first + k * THREADS < n) to[at[k][0]] = x[k];
}

template <typename W>
static __global__ void __launch_bounds__(THREADS)
    fill_words(W *to, W x, uint32_t n, const __grid_constant__ aril_cuda_nest<1> nest)
{
    uint32_t first = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        uint32_t i = first + k * THREADS;
        int32_t at[1];
        if (i >= n) break;
        nest.offsets(i, at);
        to[at[0]] = x;
    }
}

/* Makes words of up to 16 bytes of elements that are neighbours in every operand: returns the size
 * of a word and adapts the loops, whose operands begin at `base`. */
static int widen(aril_cuda_loops *l, int size, char *const *base)
{
    int last = l->ndim - 1;
    for (int k = 0; k < l->n && l->ndim; k++)
        if (l->stride[k][last] != 1) return size;
    while (l->ndim && size < 16 && l->dim[last] % 2 == 0) {
        for (int k = 0; k < l->n; k++) {
            if ((uintptr_t)base[k] % (uintptr_t)(2 * size)) return size;
            for (int d = 0; d < last; d++)
                if (l->stride[k][d] % 2) return size;
        }
        size *= 2;
        l->dim[last] /= 2;
        for (int k = 0; k < l->n; k++)
            for (int d = 0; d < last; d++) l->stride[k][d] /= 2;
    }
    return size;
}

static unsigned word_blocks(int64_t n)
{
    return (unsigned)((n + THREADS * UNROLL - 1) / (THREADS * UNROLL));
}

static aril_status copy_piece(const aril_run *r, const aril_cuda_loops &l, char *const *base,
                              int size)
{
    int64_t n = aril_cuda_loops_numel(&l);
    aril_cuda_nest<2> nest = aril_cuda_nest_of<2>(l);
    char *to = base[0] + l.offset[0] * size, *from = base[1] + l.offset[1] * size;
    cudaStream_t stream = aril_cuda_stream(r);
#define LAUNCH(W) \
    copy_words<W> \
        <<<word_blocks(n), THREADS, 0, stream>>>((W *)to, (const W *)from, (uint32_t)n, nest)
    FOR_WORD(size, LAUNCH)
#undef LAUNCH
    return aril_cuda_launched(r);
}

/* ---- transposing through shared memory ---- */

/* The two dimensions that are transposed: x is contiguous in the destination, y in the source; the
 * others are a batch. Operand 0 is the destination. */
struct transposed {
    uint32_t columns, rows; /* sizes of x and y */
    int64_t to_step;        /* stride of y in the destination */
    int64_t from_step;      /* stride of x in the source */
    aril_cuda_divisor tiles_x, tiles_y;
    aril_cuda_nest<2> batch;
};

/* Reads a tile along y and writes it along x, each by whole rows of neighbours. */
template <typename W, int TILE>
static __global__ void __launch_bounds__(32 * TILE_ROWS)
    transpose(W *to, const W *from, const __grid_constant__ transposed t)
{
    __shared__ W tile[TILE][TILE + (sizeof(W) < 4 ? 4 / sizeof(W) : 1)];
    uint32_t tx, ty, b;
    b = t.tiles_y.split(t.tiles_x.split(blockIdx.x, &tx), &ty);
    int32_t at[2];
    t.batch.offsets(b, at);
    to += at[0];
    from += at[1];
    uint32_t x0 = tx * TILE, y0 = ty * TILE;
#pragma unroll
    for (int i = 0; i < TILE; i += TILE_ROWS)
#pragma unroll
        for (int j = 0; j < TILE; j += 32) {
            uint32_t x = x0 + i + threadIdx.y, y = y0 + j + threadIdx.x;
            if (x < t.columns && y < t.rows)
                tile[i + threadIdx.y][j + threadIdx.x] = from[x * t.from_step + y];
        }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i += TILE_ROWS)
#pragma unroll
        for (int j = 0; j < TILE; j += 32) {
            uint32_t y = y0 + i + threadIdx.y, x = x0 + j + threadIdx.x;
            if (x < t.columns && y < t.rows)
                to[y * t.to_step + x] = tile[j + threadIdx.x][i + threadIdx.y];
        }
}

/* The dimension that is contiguous in the source, if it is another than the destination's and both
 * are long enough for tiles; -1 otherwise. */
static int other_fast_dim(const aril_cuda_loops &l)
{
    int last = l.ndim - 1;
    if (last < 1 || l.stride[0][last] != 1 || l.stride[1][last] == 1 || l.stride[1][last] == 0 ||
        l.dim[last] < TRANSPOSES_FROM)
        return -1;
    for (int d = 0; d < last; d++)
        if (l.stride[1][d] == 1 && l.dim[d] >= TRANSPOSES_FROM) return d;
    return -1;
}

static aril_status transpose_piece(const aril_run *r, const aril_cuda_loops &l, char *const *base,
                                   int size, int y)
{
    int last = l.ndim - 1, tile = size < 4 ? 64 : 32;
    aril_cuda_loops rest = l;
    rest.ndim = 0;
    for (int d = 0; d < last; d++) {
        if (d == y) continue;
        rest.dim[rest.ndim] = l.dim[d];
        for (int k = 0; k < 2; k++) rest.stride[k][rest.ndim] = l.stride[k][d];
        rest.ndim++;
    }
    int64_t tiles_x = (l.dim[last] + tile - 1) / tile, tiles_y = (l.dim[y] + tile - 1) / tile;
    transposed t = { (uint32_t)l.dim[last],
                     (uint32_t)l.dim[y],
                     l.stride[0][y],
                     l.stride[1][last],
                     aril_cuda_divisor_of(tiles_x),
                     aril_cuda_divisor_of(tiles_y),
                     aril_cuda_nest_of<2>(rest) };
    char *to = base[0] + l.offset[0] * size, *from = base[1] + l.offset[1] * size;
    unsigned blocks = (unsigned)(tiles_x * tiles_y * aril_cuda_loops_numel(&rest));
    dim3 threads(32, TILE_ROWS);
    cudaStream_t stream = aril_cuda_stream(r);
#define LAUNCH(W, TILE) \
    transpose<W, TILE><<<blocks, threads, 0, stream>>>((W *)to, (const W *)from, t)
    switch (size) {
    case 1: LAUNCH(uint8_t, 64); break;
    case 2: LAUNCH(uint16_t, 64); break;
    case 4: LAUNCH(uint32_t, 32); break;
    default: LAUNCH(uint2, 32);
    }
#undef LAUNCH
    return aril_cuda_launched(r);
}

/* ---- tensors ---- */

aril_status aril_cuda_copy_strided(const aril_run *r, aril_tensor *to, const aril_tensor *from)
{
    int size = aril_cuda_size(aril_cuda_host->dtype(to));
    char *base[2] = { (char *)aril_cuda_data(to), (char *)aril_cuda_data(from) };
    aril_cuda_loops l = aril_cuda_loops_of(to);
    aril_cuda_loops_add(&l, to);
    aril_cuda_loops_add(&l, from);
    if (aril_cuda_loops_numel(&l) == 0) return ARIL_OK;
    aril_cuda_loops_merge(&l, 0);
    if (aril_cuda_loops_linear(&l, 0) && aril_cuda_loops_linear(&l, 1))
        return aril_cuda_check(r,
                               cudaMemcpyAsync(base[0], base[1],
                                               (size_t)(aril_cuda_loops_numel(&l) * size),
                                               cudaMemcpyDeviceToDevice, aril_cuda_stream(r)),
                               "cudaMemcpyAsync");
    size = widen(&l, size, base);
    return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) {
        int y = other_fast_dim(piece);
        return y < 0 ? copy_piece(r, piece, base, size) : transpose_piece(r, piece, base, size, y);
    });
}

static aril_status fill_piece(const aril_run *r, const aril_cuda_loops &l, char *to, int size,
                              const void *word)
{
    int64_t n = aril_cuda_loops_numel(&l);
    aril_cuda_nest<1> nest = aril_cuda_nest_of<1>(l);
    cudaStream_t stream = aril_cuda_stream(r);
    to += l.offset[0] * size;
#define LAUNCH(W) \
    fill_words<W> \
        <<<word_blocks(n), THREADS, 0, stream>>>((W *)to, *(const W *)word, (uint32_t)n, nest)
    FOR_WORD(size, LAUNCH)
#undef LAUNCH
    return aril_cuda_launched(r);
}

aril_status aril_cuda_fill(const aril_run *r, aril_tensor *to, const void *element)
{
    int size = aril_cuda_size(aril_cuda_host->dtype(to));
    alignas(16) char word[16];
    char *base[1] = { (char *)aril_cuda_data(to) };
    bool same = true; /* all bytes */
    for (int i = 0; i < 16; i++) word[i] = ((const char *)element)[i % size];
    for (int i = 1; i < size; i++) same = same && word[i] == word[0];
    aril_cuda_loops l = aril_cuda_loops_of(to);
    aril_cuda_loops_add(&l, to);
    int64_t n = aril_cuda_loops_numel(&l);
    if (n == 0) return ARIL_OK;
    aril_cuda_loops_merge(&l, 0);
    if (same && aril_cuda_loops_linear(&l, 0))
        return aril_cuda_check(
            r, cudaMemsetAsync(base[0], word[0], (size_t)(n * size), aril_cuda_stream(r)),
            "cudaMemsetAsync");
    size = widen(&l, size, base);
    return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) {
        return fill_piece(r, piece, base[0], size, word);
    });
}
