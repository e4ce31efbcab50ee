/* Attention in tiles of queries and keys, with a running maximum and sum: f32 and f64, any sizes.
 */
#include "backend/cuda/sequence/attention.cuh"

#include "backend/cuda/block.cuh"
#include "backend/cuda/sequence/attention_tile.cuh"

#include <math.h>

static void set_mask(aril_cuda_mask *m, const aril_tensor *mask, const aril_tensor *q)
{
    int n = aril_cuda_host->ndim(q), lead = n - (mask ? aril_cuda_host->ndim(mask) : 0);
    *m = {};
    m->ndim = n - 2;
    for (int d = 0; d < n - 2; d++) m->dim[d] = aril_cuda_dim(q, d);
    if (!mask) return;
    const int64_t *dim = aril_cuda_host->dims(mask), *stride = aril_cuda_host->strides(mask);
    m->at = aril_cuda_data(mask);
    m->dtype = aril_cuda_host->dtype(mask);
    for (int d = 0; d < n; d++) {
        int64_t step = d < lead || dim[d - lead] == 1 ? 0 : stride[d - lead];
        *(d < n - 2 ? &m->step[d] : d == n - 2 ? &m->row : &m->column) = step;
    }
}

aril_cuda_attention aril_cuda_attention_of(const aril_run *r)
{
    const attention_attrs *at = aril_cuda_attrs<attention_attrs>(r);
    const aril_tensor *q = aril_cuda_in(r, ATTENTION_Q), *k = aril_cuda_in(r, ATTENTION_K);
    aril_cuda_attention a = {};
    a.batch = 1;
    for (int d = 0; d < aril_cuda_host->ndim(q) - 2; d++) a.batch *= aril_cuda_dim(q, d);
    a.l = aril_cuda_dim(q, -2);
    a.s = aril_cuda_dim(k, -2);
    a.e = aril_cuda_dim(q, -1);
    a.ev = aril_cuda_dim(aril_cuda_in(r, ATTENTION_V), -1);
    a.causal = at->causal[0] != 0;
    a.scale = at->scale[0] != 0 ? at->scale[0] : a.e ? 1 / sqrt((double)a.e) : 1;
    set_mask(&a.mask, aril_cuda_in(r, ATTENTION_MASK), q);
    return a;
}

const char *aril_cuda_attention_refuses(const aril_run *r)
{
    aril_host_number value;
    return aril_cuda_host->number(r, ATTENTION_MASK, &value) ? "a mask that is a number" : nullptr;
}

const char *aril_cuda_attention_prepare(const aril_run *r, aril_plan *)
{
    return aril_cuda_attention_refuses(r);
}

/* One block computes B queries of one batch and B columns of the result. Tasks are (batch, columns,
 * queries), queries last. */
template <typename T, int M>
static __global__ void __launch_bounds__(256)
    forward(T *out, T *lse, const T *qs, const T *ks, const T *vs,
            const __grid_constant__ aril_cuda_attention a)
{
    enum { B = 16 * M };
    __shared__ aril_cuda_tile<T, M> t;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    int64_t tiles = (a.l + B - 1) / B, parts = a.ev ? (a.ev + B - 1) / B : 1;
    for (int64_t task = blockIdx.x; task < a.batch * parts * tiles; task += gridDim.x) {
        int64_t i0 = task % tiles * B, c0 = task / tiles % parts * B, b = task / tiles / parts;
        int64_t keys = a.causal && i0 + B < a.s ? i0 + B : a.s;
        int64_t mask = a.mask.at ? aril_cuda_mask_at(a.mask, b) : 0;
        T max[M], total[M], sum[M][M];
        for (int i = 0; i < M; i++) {
            max[i] = -(T)INFINITY;
            total[i] = 0;
            for (int j = 0; j < M; j++) sum[i][j] = 0;
        }
        for (int64_t j0 = 0; j0 < keys; j0 += B) {
            T s[M][M];
            aril_cuda_tile_dots<T, M>(t, s, qs + (b * a.l + i0) * a.e, a.l - i0,
                                      ks + (b * a.s + j0) * a.e, a.s - j0, a.e);
#pragma unroll
            for (int i = 0; i < M; i++) {
                int64_t row = i0 + y * M + i;
                T top = max[i], part = 0;
#pragma unroll
                for (int j = 0; j < M; j++) {
                    int64_t key = j0 + x + 16 * j;
                    s[i][j] *= (T)a.scale;
                    if (row >= a.l || key >= a.s || (a.causal && key > row))
                        s[i][j] = -(T)INFINITY;
                    else if (a.mask.at)
                        s[i][j] =
                            aril_cuda_masked(a.mask, mask + row * a.mask.row + key * a.mask.column,
                                             s[i][j]);
                    top = s[i][j] > top ? s[i][j] : top; /* ignores NaN */
                }
#pragma unroll
                for (int lane = 8; lane > 0; lane /= 2) {
                    T other = aril_cuda_swap(top, lane);
                    top = other > top ? other : top;
                }
                T by = top > max[i] ? exp(max[i] - top) : T(1);
                T base = top == -(T)INFINITY ? T(0) : top; /* only masked scores, or NaN */
                max[i] = top;
#pragma unroll
                for (int j = 0; j < M; j++) {
                    T p = exp(s[i][j] - base);
                    t.w[y * M + i][x + 16 * j] = p;
                    part += p;
                    sum[i][j] *= by;
                }
                total[i] = total[i] * by + aril_cuda_warp_reduce<aril_cuda_sum>(part, 16);
            }
            aril_cuda_tile_read<T, M>(t, vs + (b * a.s + j0) * a.ev, a.s - j0, c0, a.ev);
            __syncthreads();
            aril_cuda_tile_add<T, M>(t, sum);
            __syncthreads();
        }
        for (int i = 0; i < M; i++) {
            int64_t row = i0 + y * M + i;
            if (row >= a.l) continue;
            /* A query without visible keys gives 0; an infinite lse makes its weights 0 in the
             * gradient too. */
            T by = total[i] == T(0) ? T(0) : T(1) / total[i];
            for (int j = 0; j < M; j++)
                if (c0 + x + 16 * j < a.ev)
                    out[(b * a.l + row) * a.ev + c0 + x + 16 * j] = sum[i][j] * by;
            if (x == 0 && c0 == 0)
                lse[b * a.l + row] = total[i] == T(0) ? (T)INFINITY : max[i] + log(total[i]);
        }
    }
}

template <typename T, int M> static void launch(aril_run *r, const aril_cuda_attention &a)
{
    enum { B = 16 * M };
    int64_t tasks = a.batch * (a.ev ? (a.ev + B - 1) / B : 1) * ((a.l + B - 1) / B), most = 1 << 30;
    forward<T, M><<<(unsigned)(tasks < most ? tasks : most), 256, 0, aril_cuda_stream(r)>>>(
        (T *)aril_cuda_data(aril_cuda_out(r, 0)), (T *)aril_cuda_data(aril_cuda_out(r, 1)),
        (const T *)aril_cuda_data(aril_cuda_in(r, ATTENTION_Q)),
        (const T *)aril_cuda_data(aril_cuda_in(r, ATTENTION_K)),
        (const T *)aril_cuda_data(aril_cuda_in(r, ATTENTION_V)), a);
}

aril_status aril_cuda_attention_run(aril_run *r)
{
    aril_cuda_attention a = aril_cuda_attention_of(r);
    if (a.batch == 0 || a.l == 0) return ARIL_OK;
    if (aril_cuda_host->type(r) == ARIL_F64)
        launch<double, 2>(r, a);
    else
        launch<float, 4>(r, a);
    return aril_cuda_launched(r);
}
