/* The gradient of attention in tiles of queries and keys: f32 and f64, any sizes. Each block owns
 * rows of one result and passes over the other side, so that nothing is added by several blocks. */
#include "backend/cuda/sequence/attention.cuh"

#include "backend/cuda/block.cuh"
#include "backend/cuda/sequence/attention_tile.cuh"

#include <math.h>

/* delta = g y - g_lse of each query: a warp each. */
template <typename T>
static __global__ void differences(T *delta, const T *g, const T *y, const T *g_lse, int64_t rows,
                                   int64_t n)
{
    int lane = threadIdx.x % 32;
    for (int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32; row < rows;
         row += (int64_t)gridDim.x * 8) {
        T sum = 0;
        for (int64_t d = lane; g && d < n; d += 32) sum += g[row * n + d] * y[row * n + d];
        sum = aril_cuda_warp_reduce<aril_cuda_sum>(sum);
        if (lane == 0) delta[row] = sum - (g_lse ? g_lse[row] : T(0));
    }
}

enum part { DQ, DK, DV };

template <typename T> struct operands {
    const T *q, *k, *v, *lse, *g, *delta;
    T *to; /* the result of this launch */
};

/* Rows of the result are queries (dq) or keys (dk, dv); `other` counts the other side. */
template <typename T, int M>
static __global__ void __launch_bounds__(256)
    backward(part which, const __grid_constant__ operands<T> o,
             const __grid_constant__ aril_cuda_attention a)
{
    enum { B = 16 * M };
    __shared__ aril_cuda_tile<T, M> t;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    int64_t rows = which == DQ ? a.l : a.s, columns = which == DV ? a.ev : a.e;
    int64_t tiles = (rows + B - 1) / B, parts = (columns + B - 1) / B;
    const T *from = which == DQ ? o.k : which == DK ? o.q : o.g;
    for (int64_t task = blockIdx.x; task < a.batch * parts * tiles; task += gridDim.x) {
        int64_t r0 = task % tiles * B, c0 = task / tiles % parts * B, b = task / tiles / parts;
        int64_t others = which == DQ ? a.s : a.l, first = 0;
        int64_t mask = a.mask.at ? aril_cuda_mask_at(a.mask, b) : 0;
        if (a.causal && which == DQ && r0 + B < others) others = r0 + B;
        if (a.causal && which != DQ) first = r0; /* earlier queries do not see these keys */
        T sum[M][M];
        for (int i = 0; i < M; i++)
            for (int j = 0; j < M; j++) sum[i][j] = 0;
        for (int64_t o0 = first; o0 < others && from; o0 += B) {
            int64_t i0 = which == DQ ? r0 : o0, j0 = which == DQ ? o0 : r0;
            T s[M][M], dp[M][M];
            aril_cuda_tile_dots<T, M>(t, s, o.q + (b * a.l + i0) * a.e, a.l - i0,
                                      o.k + (b * a.s + j0) * a.e, a.s - j0, a.e);
            if (which != DV && o.g) {
                aril_cuda_tile_dots<T, M>(t, dp, o.g + (b * a.l + i0) * a.ev, a.l - i0,
                                          o.v + (b * a.s + j0) * a.ev, a.s - j0, a.ev);
            } else {
                for (int i = 0; i < M; i++)
                    for (int j = 0; j < M; j++) dp[i][j] = 0;
            }
#pragma unroll
            for (int i = 0; i < M; i++) {
                int64_t row = i0 + y * M + i;
                T lse = row < a.l ? o.lse[b * a.l + row] : T(0);
                T delta = row < a.l ? o.delta[b * a.l + row] : T(0);
#pragma unroll
                for (int j = 0; j < M; j++) {
                    int64_t key = j0 + x + 16 * j;
                    T v = s[i][j] * (T)a.scale;
                    if (row >= a.l || key >= a.s || (a.causal && key > row))
                        v = -(T)INFINITY;
                    else if (a.mask.at)
                        v = aril_cuda_masked(a.mask, mask + row * a.mask.row + key * a.mask.column,
                                             v);
                    T w = v == -(T)INFINITY ? T(0) : exp(v - lse);
                    if (which != DV) w = w * (dp[i][j] - delta) * (T)a.scale;
                    if (which == DQ)
                        t.w[y * M + i][x + 16 * j] = w;
                    else
                        t.w[x + 16 * j][y * M + i] = w;
                }
            }
            int64_t width = which == DV ? a.ev : a.e, count = which == DQ ? a.s : a.l;
            aril_cuda_tile_read<T, M>(t, from + (b * count + o0) * width, count - o0, c0, width);
            __syncthreads();
            aril_cuda_tile_add<T, M>(t, sum);
            __syncthreads();
        }
        for (int i = 0; i < M; i++)
            for (int j = 0; j < M; j++) {
                int64_t row = r0 + y * M + i, column = c0 + x + 16 * j;
                if (row < rows && column < columns)
                    o.to[(b * rows + row) * columns + column] = sum[i][j];
            }
    }
}

static bool wide(const aril_run *r)
{
    return aril_cuda_host->type(r) == ARIL_F64;
}

const char *aril_cuda_attention_grad_prepare(const aril_run *r, aril_plan *plan)
{
    const char *why = aril_cuda_attention_refuses(r);
    if (why) return why;
    aril_cuda_attention a = aril_cuda_attention_of(r);
    plan->workspace = (size_t)(a.batch * a.l) * (wide(r) ? 8 : 4); /* delta */
    return nullptr;
}

template <typename T> static const T *given(const aril_run *r, int i)
{
    const aril_tensor *t = aril_cuda_in(r, i);
    return t ? static_cast<const T *>(aril_cuda_data(t)) : nullptr;
}

template <typename T, int M> static void launch(aril_run *r, const aril_cuda_attention &a)
{
    enum { B = 16 * M };
    cudaStream_t stream = aril_cuda_stream(r);
    T *delta = static_cast<T *>(aril_cuda_host->workspace(r));
    operands<T> o = { given<T>(r, ATTENTION_Q),
                      given<T>(r, ATTENTION_K),
                      given<T>(r, ATTENTION_V),
                      given<T>(r, ATTENTION_LSE),
                      given<T>(r, ATTENTION_G),
                      delta,
                      nullptr };
    if (a.batch * a.l > 0)
        differences<T><<<aril_cuda_blocks(r, a.batch * a.l, 8), 256, 0, stream>>>(
            delta, o.g, given<T>(r, ATTENTION_Y), given<T>(r, ATTENTION_G_LSE), a.batch * a.l,
            a.ev);
    for (int i = 0; i < 3; i++) {
        int64_t rows = i == DQ ? a.l : a.s, columns = i == DV ? a.ev : a.e, most = 1 << 30;
        int64_t tasks = a.batch * ((rows + B - 1) / B) * ((columns + B - 1) / B);
        o.to = static_cast<T *>(aril_cuda_data(aril_cuda_out(r, i)));
        if (tasks > 0)
            backward<T, M>
                <<<(unsigned)(tasks < most ? tasks : most), 256, 0, stream>>>((part)i, o, a);
    }
}

aril_status aril_cuda_attention_grad_run(aril_run *r)
{
    aril_cuda_attention a = aril_cuda_attention_of(r);
    if (a.batch == 0) return ARIL_OK;
    if (wide(r))
        launch<double, 2>(r, a);
    else
        launch<float, 4>(r, a);
    return aril_cuda_launched(r);
}
