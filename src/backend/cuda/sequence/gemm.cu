/* Matrix products of recurrent layers: by cuBLASLt, or in tiles of 64 x 64, by threads of 4 x 4
 * elements. */
#include "backend/cuda/sequence/gemm.cuh"

#include "backend/cuda/launch.cuh"

enum { TILE = 64, DEPTH = 16 };

/* ---- our own ---- */

struct shape {
    int64_t m, n, k, a_row, a_col, b_row, b_col;
    bool add;
};

template <typename T>
static __global__ void __launch_bounds__(256)
    product(T *c, const T *a, const T *b, const __grid_constant__ shape p)
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

static aril_status run_plain(aril_run *r, const aril_cuda_seq_product *p, const void *a,
                             const void *b, void *c)
{
    int64_t tiles = ((p->m + TILE - 1) / TILE) * ((p->n + TILE - 1) / TILE), most = 1 << 30;
    if (tiles == 0) return ARIL_OK;
    unsigned blocks = (unsigned)(tiles < most ? tiles : most);
    shape s = { p->m, p->n, p->k, p->a_row, p->a_col, p->b_row, p->b_col, p->add };
    cudaStream_t stream = aril_cuda_stream(r);
    if (p->wide)
        product<double>
            <<<blocks, 256, 0, stream>>>((double *)c, (const double *)a, (const double *)b, s);
    else
        product<float>
            <<<blocks, 256, 0, stream>>>((float *)c, (const float *)a, (const float *)b, s);
    return aril_cuda_launched(r);
}

/* ---- cuBLASLt ---- */

enum { ALIGNED = 16 }; /* bytes: other addresses are left to our own kernel */

/* cuBLASLt's matrices are column-major: row-major c = a b is column-major c' = b' a'. */
static bool describe(aril_cuda_seq_product *p)
{
    const aril_cuda_blas *lt = p->lt;
    bool b_t = p->b_col != 1, a_t = p->a_col != 1;
    cublasOperation_t first = b_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = a_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t type = p->wide ? CUDA_R_64F : CUDA_R_32F;
    cublasComputeType_t compute = p->wide            ? CUBLAS_COMPUTE_64F
                                  : aril_cuda_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                     : CUBLAS_COMPUTE_32F;
    return lt->cublasLtMatmulDescInit_internal(&p->task, sizeof p->task, compute, type) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                              sizeof first) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                              sizeof second) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutInit_internal(
               &p->b, sizeof p->b, type, (uint64_t)(b_t ? p->k : p->n),
               (uint64_t)(b_t ? p->n : p->k), b_t ? p->b_col : p->b_row) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutInit_internal(
               &p->a, sizeof p->a, type, (uint64_t)(a_t ? p->m : p->k),
               (uint64_t)(a_t ? p->k : p->m), a_t ? p->a_col : p->a_row) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutInit_internal(&p->c, sizeof p->c, type, (uint64_t)p->n,
                                                 (uint64_t)p->m, p->n) == CUBLAS_STATUS_SUCCESS;
}

static bool choose(aril_cuda_seq_product *p)
{
    const size_t workspace = 32 << 20;
    cublasLtMatmulHeuristicResult_t best = {};
    if (!aril_cuda_blas_choose(p->lt, p->handle, { p->task, p->b, p->a, p->c }, ALIGNED, workspace,
                               &best))
        return false;
    p->algorithm = best.algo;
    p->workspace = best.workspaceSize;
    return true;
}

void aril_cuda_seq_prepare(const aril_run *r, aril_cuda_seq_product *p)
{
    const double small = 1 << 20;
    const int64_t shallow = 256;
    p->found = false;
    p->workspace = 0;
    if (p->m == 0 || p->n == 0 || p->k == 0) return;
    if (p->k <= shallow && (double)p->m * (double)p->n * (double)p->k < small) return;
    /* Matrices of one column, whose rows are not apart by their length. */
    if ((p->b_col == 1 && p->b_row < p->n) || (p->a_col == 1 && p->a_row < p->k)) return;
    p->lt = aril_cuda_blas_library(nullptr);
    p->handle = p->lt ? aril_cuda_blas_handle(aril_cuda_device_of(r)) : nullptr;
    p->found = p->handle && describe(p) && choose(p);
}

aril_status aril_cuda_seq_multiply(aril_run *r, const aril_cuda_seq_product *p, const void *a,
                                   const void *b, void *c, void *workspace)
{
    static const float alpha = 1, no = 0;
    static const double wide_alpha = 1, wide_no = 0;
    const void *one = p->wide ? (const void *)&wide_alpha : (const void *)&alpha;
    const void *zero = p->wide ? (const void *)&wide_no : (const void *)&no;
    if (!p->found || ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % ALIGNED)
        return run_plain(r, p, a, b, c);
    aril_cuda_seq_product q = *p; /* its descriptors are not const */
    cublasStatus_t s =
        q.lt->cublasLtMatmul(q.handle, &q.task, one, b, &q.b, a, &q.a, q.add ? one : zero, c, &q.c,
                             c, &q.c, &q.algorithm, workspace, q.workspace, aril_cuda_stream(r));
    if (s == CUBLAS_STATUS_SUCCESS) return aril_cuda_launched(r);
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: cublasLtMatmul failed with status %d",
                                aril_cuda_host->op(r), (int)s);
}
