/* Rows in registers: T threads along x hold a row of up to T * Items elements, read and written 16
 * bytes at a time. Blocks of one warp along x hold several rows along y. */
#ifndef ARIL_CUDA_NORM_ROW_CUH
#define ARIL_CUDA_NORM_ROW_CUH

#include "backend/cuda/block.cuh"
#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"

#include <cuda_pipeline.h>

enum { ARIL_CUDA_ROWS_PER_BLOCK = 4 }; /* of one warp each */

template <typename S, int T, int Items> struct aril_cuda_row {
    enum { wide = 16 / sizeof(S), chunks = Items / wide };
    typedef aril_cuda_vector<S, wide> vector;
    float v[chunks][wide];

    /* The position of chunk j of this thread. */
    static __device__ __forceinline__ int at(int j)
    {
        return (j * T + (int)threadIdx.x) * wide;
    }

    /* `missing` stands for elements beyond the end. */
    __device__ __forceinline__ void load(const S *row, int n, float missing)
    {
#pragma unroll
        for (int j = 0; j < chunks; j++) {
            if (at(j) < n) {
                vector x = *reinterpret_cast<const vector *>(row + at(j));
#pragma unroll
                for (int k = 0; k < wide; k++) v[j][k] = aril_cuda_to<float>(x.at[k]);
            } else {
#pragma unroll
                for (int k = 0; k < wide; k++) v[j][k] = missing;
            }
        }
    }
    /* Begins to copy what this thread loads of a row to shared memory, for `load` to read after
     * __pipeline_wait_prior(0): threads don't wait for each other. */
    static __device__ __forceinline__ void fetch(const S *row, int n, S *to)
    {
#pragma unroll
        for (int j = 0; j < chunks; j++)
            if (at(j) < n) __pipeline_memcpy_async(to + at(j), row + at(j), 16);
        __pipeline_commit();
    }
    /* Stores f(value, j, k) of each element. */
    template <typename F> __device__ __forceinline__ void store(S *row, int n, F &&f) const
    {
#pragma unroll
        for (int j = 0; j < chunks; j++)
            if (at(j) < n) {
                vector y;
#pragma unroll
                for (int k = 0; k < wide; k++) y.at[k] = aril_cuda_from<S>(f(v[j][k], j, k));
                *reinterpret_cast<vector *>(row + at(j)) = y;
            }
    }
    /* Calls f(value, j, k) for each element, those beyond the end included. */
    template <typename F> __device__ __forceinline__ void each(F &&f)
    {
#pragma unroll
        for (int j = 0; j < chunks; j++) {
#pragma unroll
            for (int k = 0; k < wide; k++) f(v[j][k], j, k);
        }
    }
};

/* The row of this thread's warp or block. */
template <int T> static __device__ __forceinline__ int64_t aril_cuda_row_number()
{
    return T == 32 ? (int64_t)blockIdx.x * ARIL_CUDA_ROWS_PER_BLOCK + threadIdx.y : blockIdx.x;
}

template <int T> static inline dim3 aril_cuda_row_block()
{
    return T == 32 ? dim3(32, ARIL_CUDA_ROWS_PER_BLOCK) : dim3(T);
}
template <int T> static inline dim3 aril_cuda_row_grid(int64_t rows)
{
    int64_t each = T == 32 ? ARIL_CUDA_ROWS_PER_BLOCK : 1;
    return dim3((unsigned)((rows + each - 1) / each));
}
template <int T> static constexpr int aril_cuda_row_threads()
{
    return T == 32 ? 32 * ARIL_CUDA_ROWS_PER_BLOCK : T;
}

/* The longest row in registers: one input, or two. */
enum { ARIL_CUDA_ROW_MAX = 1024 * 32, ARIL_CUDA_ROW_MAX_OF_TWO = 1024 * 16 };
enum { ARIL_CUDA_ROW_OF_256 = 256 * 32 }; /* the longest of 256 threads; longer ones have 1024 */

/* Runs a statement with T and ITEMS for rows of n elements; LAST: the items of the longest. */
#define ARIL_CUDA_ROW_SHAPE(n, LAST, ...)         \
    do {                                          \
        if ((n) <= 256) {                         \
            constexpr int T = 32, ITEMS = 8;      \
            __VA_ARGS__;                          \
        } else if ((n) <= 1024) {                 \
            constexpr int T = 32, ITEMS = 32;     \
            __VA_ARGS__;                          \
        } else if ((n) <= ARIL_CUDA_ROW_OF_256) { \
            constexpr int T = 256, ITEMS = 32;    \
            __VA_ARGS__;                          \
        } else {                                  \
            constexpr int T = 1024, ITEMS = LAST; \
            __VA_ARGS__;                          \
        }                                         \
    } while (0)

/* Whether rows of n elements, of a dtype of f16, bf16 or f32, are read 16 bytes at a time. */
static inline bool aril_cuda_row_fits(int dtype, int64_t n, int64_t most, const void *a,
                                      const void *b = nullptr, const void *c = nullptr)
{
    int size = aril_cuda_size(dtype);
    return dtype != ARIL_F64 && n <= most && n % (16 / size) == 0 &&
           ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
}

#endif
