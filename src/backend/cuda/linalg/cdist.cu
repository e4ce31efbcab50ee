/* Distances between the rows of two matrices, and their gradient: contiguous f32 and f64. */
#include "backend/cuda/linalg/product.cuh"

#include "backend/cuda/attrs.cuh"
#include "ops/linalg/cdist.h"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"

#include <math.h>

enum { TILE = 16 };

template <typename T> struct job {
    const T *a, *b, *g, *y;
    T *to;
    int64_t batch, rows_a, rows_b, size, tiles_a, tiles_b;
    T p;
};

static __device__ __forceinline__ float power(float x, float p)
{
    return powf(x, p);
}
static __device__ __forceinline__ double power(double x, double p)
{
    return pow(x, p);
}
static __device__ __forceinline__ float root(float x)
{
    return sqrtf(x);
}
static __device__ __forceinline__ double root(double x)
{
    return sqrt(x);
}

/* `sum` with one more difference. */
template <typename T> static __device__ __forceinline__ T add(T sum, T difference, T p)
{
    T d = difference < T(0) ? -difference : difference;
    if (p == T(INFINITY)) return d > sum || d != d ? d : sum;
    if (p == T(2)) return sum + d * d;
    if (p == T(1)) return sum + d;
    if (p == T(0)) return sum + (d != d ? d : T(d != T(0)));
    return sum + power(d, p);
}

/* A tile of distances per block; its threads load tiles of the rows. */
template <typename T> static __global__ void __launch_bounds__(TILE *TILE) distances(job<T> j)
{
    __shared__ T a_tile[TILE][TILE + 1], b_tile[TILE][TILE + 1];
    int row = threadIdx.x / TILE, col = threadIdx.x % TILE;
    int64_t tiles = j.batch * j.tiles_a * j.tiles_b;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t matrix = t / j.tiles_b / j.tiles_a;
        int64_t i0 = t / j.tiles_b % j.tiles_a * TILE, r0 = t % j.tiles_b * TILE;
        const T *a = j.a + matrix * j.rows_a * j.size, *b = j.b + matrix * j.rows_b * j.size;
        T sum = 0;
        for (int64_t k = 0; k < j.size; k += TILE) {
            bool in = k + col < j.size;
            a_tile[row][col] = in && i0 + row < j.rows_a ? a[(i0 + row) * j.size + k + col] : T(0);
            b_tile[row][col] = in && r0 + row < j.rows_b ? b[(r0 + row) * j.size + k + col] : T(0);
            __syncthreads();
            for (int e = 0; e < TILE && k + e < j.size; e++)
                sum = add(sum, a_tile[row][e] - b_tile[col][e], j.p);
            __syncthreads();
        }
        if (i0 + row >= j.rows_a || r0 + col >= j.rows_b) continue;
        bool plain = j.p == T(0) || j.p == T(1) || j.p == T(INFINITY);
        T y = j.p == T(2) ? root(sum) : plain ? sum : power(sum, T(1) / j.p);
        j.to[(matrix * j.rows_a + i0 + row) * j.rows_b + r0 + col] = y;
    }
}

/* The derivative of a distance y by one difference d of elements. */
template <typename T> static __device__ __forceinline__ T slope(T p, T d, T y)
{
    T sign = T((d > T(0)) - (d < T(0))), size = d < T(0) ? -d : d;
    if (p == T(1)) return sign;
    if (p == T(INFINITY)) return size == y ? sign : T(0);
    if (p == T(0) || y == T(0) || d == T(0)) return 0;
    return p == T(2) ? d / y : sign * power(size / y, p - T(1));
}

/* One element of the gradient of a per thread. */
template <typename T>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) gradient(job<T> j, int64_t total)
{
    ARIL_CUDA_LOOP(at, total)
    {
        int64_t k = at % j.size, i = at / j.size, matrix = i / j.rows_a;
        const T *b = j.b + matrix * j.rows_b * j.size + k;
        T a = j.a[at], sum = 0;
        for (int64_t r = 0; r < j.rows_b; r++)
            sum += j.g[i * j.rows_b + r] * slope(j.p, a - b[r * j.size], j.y[i * j.rows_b + r]);
        j.to[at] = sum;
    }
}

/* The job of rows a and b, of which the result has the given sizes. */
template <typename T>
static job<T> describe(const aril_run *r, const aril_tensor *a, const aril_tensor *b)
{
    job<T> j = {};
    j.a = static_cast<const T *>(aril_cuda_data(a));
    j.b = static_cast<const T *>(aril_cuda_data(b));
    j.to = static_cast<T *>(aril_cuda_data(aril_cuda_out(r, 0)));
    j.rows_a = aril_cuda_dim(a, -2);
    j.rows_b = aril_cuda_dim(b, -2);
    j.size = aril_cuda_dim(a, -1);
    j.batch = 1;
    for (int d = 0; d < aril_cuda_host->ndim(a) - 2; d++) j.batch *= aril_cuda_dim(a, d);
    j.tiles_a = (j.rows_a + TILE - 1) / TILE;
    j.tiles_b = (j.rows_b + TILE - 1) / TILE;
    j.p = (T)aril_cuda_attrs<cdist_attrs>(r)->p[0];
    return j;
}

template <typename T> static aril_status run_as(aril_run *r)
{
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return ARIL_OK;
    job<T> j = describe<T>(r, aril_cuda_in(r, 0), aril_cuda_in(r, 1));
    unsigned blocks = aril_cuda_blocks(r, j.batch * j.tiles_a * j.tiles_b, 1, 16);
    distances<T><<<blocks, TILE * TILE, 0, aril_cuda_stream(r)>>>(j);
    return aril_cuda_launched(r);
}

template <typename T> static aril_status run_grad_as(aril_run *r)
{
    int64_t total = aril_cuda_host->numel(aril_cuda_out(r, 0));
    if (total == 0) return ARIL_OK;
    job<T> j = describe<T>(r, aril_cuda_in(r, 1), aril_cuda_in(r, 2));
    j.g = static_cast<const T *>(aril_cuda_data(aril_cuda_in(r, 0)));
    j.y = static_cast<const T *>(aril_cuda_data(aril_cuda_in(r, 3)));
    gradient<T><<<aril_cuda_blocks(r, total, ARIL_CUDA_THREADS), ARIL_CUDA_THREADS, 0,
                  aril_cuda_stream(r)>>>(j, total);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_cdist_run(aril_run *r)
{
    return aril_cuda_host->type(r) == ARIL_F64 ? run_as<double>(r) : run_as<float>(r);
}

aril_status aril_cuda_cdist_grad_run(aril_run *r)
{
    return aril_cuda_host->type(r) == ARIL_F64 ? run_grad_as<double>(r) : run_grad_as<float>(r);
}
