/* Matrix products by a plain kernel: integers, and floats without cuBLASLt. */
#include "backend/cuda/linalg/product.cuh"

#include "backend/cuda/launch.cuh"
#include "backend/cuda/linalg/epilogue.cuh"

/* ---- geometry: as ops/linalg/matmul.c ---- */

struct operand {
    int ndim;
    const int64_t *dim;
    int64_t stride[ARIL_MAX_DIMS];
};

static operand operand_of(const aril_tensor *t, bool contiguous)
{
    operand o = { aril_cuda_host->ndim(t), aril_cuda_host->dims(t), {} };
    int64_t step = 1;
    for (int d = o.ndim - 1; d >= 0; d--) {
        o.stride[d] = contiguous ? step : aril_cuda_host->strides(t)[d];
        step *= o.dim[d] > 0 ? o.dim[d] : 1;
    }
    return o;
}

static int64_t step_of(const operand &t, int axis_from_end)
{
    int d = t.ndim - axis_from_end;
    return d >= 0 && t.dim[d] != 1 ? t.stride[d] : 0;
}

static void matmul_product(const operand &a, const operand &b, const operand &c, aril__product *p)
{
    int n = c.ndim;
    p->m = c.dim[n - 2];
    p->n = c.dim[n - 1];
    p->k = a.dim[a.ndim - 1];
    p->a_row = a.stride[a.ndim - 2];
    p->a_col = a.stride[a.ndim - 1];
    p->b_row = b.stride[b.ndim - 2];
    p->b_col = b.stride[b.ndim - 1];
    p->c_row = c.stride[n - 2];
    p->c_col = c.stride[n - 1];
    p->ndim = n - 2;
    for (int d = 0; d < n - 2; d++) {
        p->dim[d] = c.dim[d];
        p->a_step[d] = step_of(a, n - d);
        p->b_step[d] = step_of(b, n - d);
        p->c_step[d] = step_of(c, n - d);
    }
}

static void linear_product(const operand &x, const operand &w, const operand &y, aril__product *p)
{
    int last = x.ndim - 1;
    p->m = last > 0 ? x.dim[last - 1] : 1;
    p->n = w.dim[0];
    p->k = w.dim[1];
    p->a_row = last > 0 ? x.stride[last - 1] : 0;
    p->a_col = x.stride[last];
    p->b_row = w.stride[1];
    p->b_col = w.stride[0];
    p->c_row = last > 0 ? y.stride[last - 1] : 0;
    p->c_col = y.stride[last];
    p->ndim = last > 0 ? last - 1 : 0;
    for (int d = 0; d < p->ndim; d++) {
        p->dim[d] = x.dim[d];
        p->a_step[d] = x.dim[d] == 1 ? 0 : x.stride[d];
        p->c_step[d] = x.dim[d] == 1 ? 0 : y.stride[d];
    }
}

/* One stride and size for all leading dimensions; false if there is none. */
static bool leading(const operand &t, int64_t *stride, int64_t *size)
{
    bool any = false, fits = true;
    int64_t next = 0;
    *stride = *size = 1;
    for (int d = t.ndim - 2; d >= 0; d--) {
        *size *= t.dim[d];
        if (t.dim[d] == 1) continue;
        if (!any) *stride = t.stride[d];
        fits = fits && (!any || t.stride[d] == next);
        next = t.stride[d] * t.dim[d];
        any = true;
    }
    return fits || *size == 0;
}

static bool outer_sum_product(const operand &a, const operand &b, const operand &c,
                              aril__product *p)
{
    p->m = c.dim[0];
    p->n = c.dim[1];
    p->a_row = a.stride[a.ndim - 1];
    p->b_col = b.stride[b.ndim - 1];
    p->c_row = c.stride[0];
    p->c_col = c.stride[1];
    return leading(a, &p->a_col, &p->k) && leading(b, &p->b_row, &p->k);
}

bool aril_cuda_product_of(const aril_run *r, aril_cuda_product_op op, const bool contiguous[3],
                          aril__product *p)
{
    operand a = operand_of(aril_cuda_in(r, 0), contiguous[0]);
    operand b = operand_of(aril_cuda_in(r, 1), contiguous[1]);
    operand c = operand_of(aril_cuda_out(r, 0), contiguous[2]);
    bool fits = true;
    *p = {};
    if (op == ARIL_CUDA_MATMUL)
        matmul_product(a, b, c, p);
    else if (op == ARIL_CUDA_LINEAR)
        linear_product(a, b, c, p);
    else
        fits = outer_sum_product(a, b, c, p);
    aril__product_merge(p);
    return fits;
}

int aril_cuda_product_activation(const aril_run *r, aril_cuda_product_op op)
{
    return op == ARIL_CUDA_LINEAR ? (int)aril_cuda_attrs<linear_attrs>(r)->activation[0] : 0;
}

const aril_tensor *aril_cuda_product_bias(const aril_run *r, aril_cuda_product_op op)
{
    return op == ARIL_CUDA_LINEAR && aril_cuda_host->n_in(r) > 2 ? aril_cuda_in(r, 2) : nullptr;
}

/* ---- the kernel ---- */

enum { TILE = 16, SHORT = 512 };

struct job {
    aril__product p;
    const void *bias;
    int64_t bias_stride, tiles_m, tiles_n;
    int dtype, activation;
};

/* A tile of c per block; its threads load tiles of a and b. Integers wrap around. */
template <typename C> static __global__ void __launch_bounds__(TILE *TILE) product(job j)
{
    __shared__ C a_tile[TILE][TILE + 1], b_tile[TILE][TILE + 1];
    const aril__product &p = j.p;
    int row = threadIdx.x / TILE, col = threadIdx.x % TILE;
    int64_t tiles = p.batch * j.tiles_m * j.tiles_n;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t i = t / j.tiles_n % j.tiles_m * TILE + row, at[3] = { 0, 0, 0 };
        int64_t column = t % j.tiles_n * TILE + col, rest = t / j.tiles_n / j.tiles_m;
        for (int d = p.ndim - 1; d >= 0; d--) {
            int64_t index = rest % p.dim[d];
            rest /= p.dim[d];
            at[0] += index * p.a_step[d];
            at[1] += index * p.b_step[d];
            at[2] += index * p.c_step[d];
        }
        C sum = 0, total = 0;
        for (int64_t k = 0; k < p.k; k += TILE) {
            if (k % SHORT == 0) { /* short sums first: the error of a long one grows */
                total += sum;
                sum = 0;
            }
            a_tile[row][col] =
                i < p.m && k + col < p.k
                    ? aril_cuda_load<C>(p.a, at[0] + i * p.a_row + (k + col) * p.a_col, j.dtype)
                    : C(0);
            b_tile[row][col] =
                column < p.n && k + row < p.k
                    ? aril_cuda_load<C>(p.b, at[1] + (k + row) * p.b_row + column * p.b_col,
                                        j.dtype)
                    : C(0);
            __syncthreads();
#pragma unroll
            for (int e = 0; e < TILE; e++) sum += a_tile[row][e] * b_tile[e][col];
            __syncthreads();
        }
        sum += total;
        if (i >= p.m || column >= p.n) continue; /* no barrier follows for this tile */
        if (j.bias) sum += aril_cuda_load<C>(j.bias, column * j.bias_stride, j.dtype);
        aril_cuda_store<C>(p.c, at[2] + i * p.c_row + column * p.c_col, j.dtype,
                           aril_cuda_activate(j.activation, sum));
    }
}

static aril_status run_as(aril_run *r, aril_cuda_product_op op)
{
    const bool as_is[3] = { false, false, false };
    const aril_tensor *bias = aril_cuda_product_bias(r, op);
    job j = {};
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return ARIL_OK;
    aril_cuda_product_of(r, op, as_is, &j.p);
    j.p.a = static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 0)));
    j.p.b = static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 1)));
    j.p.c = static_cast<char *>(aril_cuda_data(aril_cuda_out(r, 0)));
    j.bias = bias ? aril_cuda_data(bias) : nullptr;
    j.bias_stride = bias ? aril_cuda_host->strides(bias)[0] : 0;
    j.tiles_m = (j.p.m + TILE - 1) / TILE;
    j.tiles_n = (j.p.n + TILE - 1) / TILE;
    j.dtype = aril_cuda_host->type(r);
    j.activation = aril_cuda_product_activation(r, op);
    unsigned blocks = aril_cuda_blocks(r, j.p.batch * j.tiles_m * j.tiles_n, 1, 16);
    cudaStream_t s = aril_cuda_stream(r);
    if (j.dtype == ARIL_F64)
        product<double><<<blocks, TILE * TILE, 0, s>>>(j);
    else if (aril_cuda_is_float(j.dtype))
        product<float><<<blocks, TILE * TILE, 0, s>>>(j);
    else
        product<int64_t><<<blocks, TILE * TILE, 0, s>>>(j);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_matmul_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_MATMUL);
}

aril_status aril_cuda_linear_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_LINEAR);
}

aril_status aril_cuda_outer_sum_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_OUTER_SUM);
}
