/* Matrix products in tiles of 64 x 64, by threads of 4 x 4 elements. */
#include "backend/cuda/sequence/gemm.cuh"

#include "backend/cuda/launch.cuh"

enum { TILE = 64, DEPTH = 16 };

template <typename T>
static __global__ void __launch_bounds__(256)
    product(T *c, const T *a, const T *b, const __grid_constant__ aril_cuda_seq_product p)
{
    __shared__ T as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    int64_t down = (p.m + TILE - 1) / TILE, across = (p.n + TILE - 1) / TILE;
    for (int64_t task = blockIdx.x; task < down * across; task += gridDim.x) {
        int64_t i0 = task / across * TILE, j0 = task % across * TILE;
        T sum[4][4] = {};
        for (int64_t d = 0; d < p.k; d += DEPTH) {
            for (int at = threadIdx.x; at < TILE * DEPTH; at += 256) {
                /* Neighbouring threads read neighbouring elements. */
                int row = p.a_col == 1 ? at / DEPTH : at % TILE;
                int deep = p.a_col == 1 ? at % DEPTH : at / TILE;
                as[deep][row] = i0 + row < p.m && d + deep < p.k
                                    ? a[(i0 + row) * p.a_row + (d + deep) * p.a_col]
                                    : T(0);
                row = p.b_row == 1 ? at / DEPTH : at % TILE;
                deep = p.b_row == 1 ? at % DEPTH : at / TILE;
                bs[deep][row] = j0 + row < p.n && d + deep < p.k
                                    ? b[(d + deep) * p.b_row + (j0 + row) * p.b_col]
                                    : T(0);
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                T u[4], v[4];
#pragma unroll
                for (int i = 0; i < 4; i++) u[i] = as[k][y * 4 + i];
#pragma unroll
                for (int j = 0; j < 4; j++) v[j] = bs[k][x + 16 * j];
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) sum[i][j] += u[i] * v[j];
            }
            __syncthreads();
        }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                int64_t row = i0 + y * 4 + i, column = j0 + x + 16 * j;
                if (row >= p.m || column >= p.n) continue;
                T *to = &c[row * p.n + column];
                *to = p.add ? *to + sum[i][j] : sum[i][j];
            }
    }
}

aril_status aril_cuda_seq_multiply(aril_run *r, const aril_cuda_seq_product *p, bool wide,
                                   const void *a, const void *b, void *c)
{
    int64_t tiles = ((p->m + TILE - 1) / TILE) * ((p->n + TILE - 1) / TILE), most = 1 << 30;
    if (tiles == 0) return ARIL_OK;
    unsigned blocks = (unsigned)(tiles < most ? tiles : most);
    cudaStream_t stream = aril_cuda_stream(r);
    if (wide)
        product<double>
            <<<blocks, 256, 0, stream>>>((double *)c, (const double *)a, (const double *)b, *p);
    else
        product<float>
            <<<blocks, 256, 0, stream>>>((float *)c, (const float *)a, (const float *)b, *p);
    return aril_cuda_launched(r);
}
