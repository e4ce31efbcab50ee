/* Products of tiles for plain attention kernels. A block of 256 threads, 16 x 16, computes a tile
 * of B x B = 16 M x 16 M elements: thread (y, x) those of rows y M + i and columns x + 16 j. */
#ifndef ARIL_CUDA_ATTENTION_TILE_CUH
#define ARIL_CUDA_ATTENTION_TILE_CUH

#include <stdint.h>

enum { ARIL_CUDA_TILE_DEPTH = 16 };

template <typename T, int M> struct aril_cuda_tile {
    enum { B = 16 * M, DEPTH = ARIL_CUDA_TILE_DEPTH };
    T a[B][DEPTH + 1], b[B][DEPTH + 1]; /* pieces of the factors */
    T w[B][B + 1];                      /* weights of the second product */
    T x[B][B];                          /* its other factor */
};

/* sum[i][j] = rows of a times rows of b, both of n elements; rows at or beyond the ends count as
 * zeros. Ends with a barrier. */
template <typename T, int M>
static __device__ void aril_cuda_tile_dots(aril_cuda_tile<T, M> &t, T (&sum)[M][M], const T *a,
                                           int64_t a_rows, const T *b, int64_t b_rows, int64_t n)
{
    enum { B = 16 * M, DEPTH = ARIL_CUDA_TILE_DEPTH };
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) sum[i][j] = 0;
    for (int64_t d = 0; d < n; d += DEPTH) {
        for (int i = threadIdx.x; i < B * DEPTH; i += 256) {
            int row = i / DEPTH, at = i % DEPTH;
            bool inside = d + at < n;
            t.a[row][at] = inside && row < a_rows ? a[row * n + d + at] : T(0);
            t.b[row][at] = inside && row < b_rows ? b[row * n + d + at] : T(0);
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < DEPTH; k++) {
            T p[M], q[M];
#pragma unroll
            for (int i = 0; i < M; i++) p[i] = t.a[y * M + i][k];
#pragma unroll
            for (int j = 0; j < M; j++) q[j] = t.b[x + 16 * j][k];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < M; j++) sum[i][j] += p[i] * q[j];
        }
        __syncthreads();
    }
}

/* Reads columns [from, from + B) of rows of n elements; those beyond the ends are zeros. */
template <typename T, int M>
static __device__ void aril_cuda_tile_read(aril_cuda_tile<T, M> &t, const T *rows, int64_t count,
                                           int64_t from, int64_t n)
{
    enum { B = 16 * M };
    for (int i = threadIdx.x; i < B * B; i += 256) {
        int row = i / B, column = i % B;
        t.x[row][column] = row < count && from + column < n ? rows[row * n + from + column] : T(0);
    }
}

/* sum += w x, with w and x as they are in shared memory. */
template <typename T, int M>
static __device__ void aril_cuda_tile_add(const aril_cuda_tile<T, M> &t, T (&sum)[M][M])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll 4
    for (int k = 0; k < 16 * M; k++) {
        T p[M], q[M];
#pragma unroll
        for (int i = 0; i < M; i++) p[i] = t.w[y * M + i][k];
#pragma unroll
        for (int j = 0; j < M; j++) q[j] = t.x[k][x + 16 * j];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < M; j++) sum[i][j] += p[i] * q[j];
    }
}

#endif
