/* Merge sort of many lines of the same length: tiles in shared memory, then runs of doubling length
 * in device memory, from one buffer to another. A source is a struct, passed by value, with
 *
 *     E                      what is sorted: a key and a position, or a position alone
 *     E load(line, k)        element k of a line
 *     E pad()                comes after all others
 *     bool before(a, b)      a strict order of all elements: equal keys by position, so that the
 *                            sort is stable, and the same in every run
 *
 * Of the sorted lines only the first `limit` elements are complete. */
#ifndef ARIL_CUDA_REDUCE_SORTED_CUH
#define ARIL_CUDA_REDUCE_SORTED_CUH

#include "backend/cuda/launch.cuh"

enum { ARIL_CUDA_SORT_TILE = 2048, ARIL_CUDA_SORT_EACH = 8 };

/* Bitonic sort of segments of a tile: whole lines, padded to a power of two, or a part of one. */
template <typename Source>
static __global__ void __launch_bounds__(ARIL_CUDA_SORT_TILE / 2)
    aril_cuda_sort_tiles(const __grid_constant__ Source source, int64_t lines, int64_t n,
                         int segment, typename Source::E *to)
{
    typedef typename Source::E E;
    const int tile = ARIL_CUDA_SORT_TILE, threads = tile / 2;
    __shared__ alignas(16) unsigned char memory[tile * sizeof(E)];
    E *e = reinterpret_cast<E *>(memory);
    const bool whole = n <= tile;
    const int64_t tiles = whole ? 1 : (n + tile - 1) / tile;
    int64_t line[2], k[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int slot = (int)threadIdx.x + h * threads;
        line[h] = whole ? (int64_t)blockIdx.x * (tile / segment) + slot / segment
                        : (int64_t)blockIdx.x / tiles;
        k[h] = whole ? slot % segment : (int64_t)blockIdx.x % tiles * tile + slot;
        e[slot] = line[h] < lines && k[h] < n ? source.load(line[h], k[h]) : source.pad();
    }
    for (int size = 2; size <= segment; size *= 2)
        for (int far = size / 2; far > 0; far /= 2) {
            __syncthreads();
            int low = 2 * (int)threadIdx.x - ((int)threadIdx.x & (far - 1));
            bool up = size == segment || !(low & size);
            E a = e[low], b = e[low + far];
            if (source.before(b, a) == up) {
                e[low] = b;
                e[low + far] = a;
            }
        }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (line[h] < lines && k[h] < n) to[line[h] * n + k[h]] = e[threadIdx.x + h * threads];
}

/* Merges pairs of runs; a thread gives a few elements of the result. */
template <typename Source>
static __global__ void __launch_bounds__(256)
    aril_cuda_sort_merge(const __grid_constant__ Source source, int64_t lines, int64_t n,
                         int64_t run, int64_t limit, const typename Source::E *from,
                         typename Source::E *to)
{
    typedef typename Source::E E;
    const int each = ARIL_CUDA_SORT_EACH;
    int64_t pairs = (n + 2 * run - 1) / (2 * run), most = 2 * run < limit ? 2 * run : limit;
    int64_t parts = (most + each - 1) / each, total = lines * pairs * parts;
    ARIL_CUDA_LOOP(i, total)
    {
        int64_t first = i / parts % pairs * 2 * run, part = i % parts * each;
        const E *a = from + i / (parts * pairs) * n + first, *b = a + run;
        int64_t left = n - first, na = left < run ? left : run;
        int64_t nb = left - na < run ? left - na : run;
        na = na < limit ? na : limit;
        nb = nb < limit ? nb : limit;
        int64_t all = na + nb < limit ? na + nb : limit;
        if (part >= all) continue;
        /* How many of the first `part` elements come from a. */
        int64_t low = part > nb ? part - nb : 0, high = part < na ? part : na;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (source.before(b[part - 1 - middle], a[middle]))
                high = middle;
            else
                low = middle + 1;
        }
        int64_t x = low, y = part - low;
        E *out = to + i / (parts * pairs) * n + first;
        for (int64_t k = part; k < part + each && k < all; k++) {
            bool take = y >= nb || (x < na && !source.before(b[y], a[x]));
            out[k] = take ? a[x] : b[y];
            x += take;
            y += !take;
        }
    }
}

/* Elements that the buffers of a sort have together. */
static inline int64_t aril_cuda_sort_elements(int64_t lines, int64_t n)
{
    return lines * n * (n > ARIL_CUDA_SORT_TILE ? 2 : 1);
}

/* Sorts; returns the buffer with the result, [lines][n]. */
template <typename Source>
static typename Source::E *aril_cuda_sort_lines(const aril_run *r, const Source &source,
                                                int64_t lines, int64_t n, int64_t limit,
                                                typename Source::E *buffer)
{
    typedef typename Source::E E;
    const int tile = ARIL_CUDA_SORT_TILE;
    cudaStream_t stream = aril_cuda_stream(r);
    E *from = buffer, *to = buffer + lines * n;
    if (lines == 0 || n == 0) return from;
    int segment = 2;
    while (segment < tile && segment < n) segment *= 2;
    int64_t blocks = n > tile ? lines * ((n + tile - 1) / tile)
                              : (lines + tile / segment - 1) / (tile / segment);
    aril_cuda_sort_tiles<Source>
        <<<(unsigned)blocks, tile / 2, 0, stream>>>(source, lines, n, segment, from);
    for (int64_t run = tile; run < n; run *= 2) {
        int64_t most = 2 * run < limit ? 2 * run : limit;
        int64_t threads = lines * ((n + 2 * run - 1) / (2 * run)) *
                          ((most + ARIL_CUDA_SORT_EACH - 1) / ARIL_CUDA_SORT_EACH);
        if (threads == 0) break;
        aril_cuda_sort_merge<Source>
            <<<aril_cuda_blocks(r, threads, 256), 256, 0, stream>>>(source, lines, n, run, limit,
                                                                    from, to);
        E *t = from;
        from = to;
        to = t;
    }
    return from;
}

#endif
