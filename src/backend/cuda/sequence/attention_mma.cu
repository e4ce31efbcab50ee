/* Attention by tensor cores. A warp owns 16 queries, or twice as many, and keeps their scores with a
 * tile of keys, their weights and their sums in registers; the next tile is fetched meanwhile. */
#include "backend/cuda/sequence/attention_mma.cuh"

#include <math.h>

enum { KEYS = 64 };

/* Hides what queries do not see, without a mask: of rows `row` and row + 8. */
static __device__ __forceinline__ void hide(float (&s)[KEYS / 8][4], const aril_cuda_attention &a,
                                            int64_t row, int64_t column)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t seen = a.causal && row + half * 8 < a.s ? row + half * 8 + 1 : a.s;
        int limit = (int)(seen - column < 0 ? 0 : seen - column > KEYS ? KEYS : seen - column);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                if (n * 8 + c >= limit) s[n][2 * half + c] = -INFINITY;
    }
}

/* D: columns of a tile; a block has WARPS warps of 16 MT queries. */
template <typename S, int D, int MT, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32)
    forward(const __grid_constant__ aril_cuda_heads_out y, float *lse, bool pairs,
            const __grid_constant__ aril_cuda_heads_job job)
{
    enum { QUERIES = WARPS * MT * 16, THREADS = WARPS * 32, KEY_BYTES = KEYS * D * 2 };
    extern __shared__ __align__(128) unsigned char memory[];
    const aril_cuda_attention &a = job.a;
    uint32_t q_tile = aril_cuda_shared_address(memory), k_tile = q_tile + QUERIES * D * 2;
    uint32_t v_tile = k_tile + 2 * KEY_BYTES;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int64_t tiles = (a.l + QUERIES - 1) / QUERIES, b = blockIdx.x / tiles;
    int64_t i0 = (tiles - 1 - blockIdx.x % tiles) * QUERIES; /* the longest first, if causal */
    int64_t seen = a.causal && i0 + QUERIES < a.s ? i0 + QUERIES : a.s;
    int64_t steps = (seen + KEYS - 1) / KEYS, mask = a.mask.at ? aril_cuda_mask_at(a.mask, b) : 0;
    aril_cuda_matrix qs = aril_cuda_matrix_of<S>(job, job.q, b, a.l, a.e);
    aril_cuda_matrix ks = aril_cuda_matrix_of<S>(job, job.k, b, a.s, a.e);
    aril_cuda_matrix vs = aril_cuda_matrix_of<S>(job, job.v, b, a.s, a.ev);
    float scale = (float)(a.scale * 1.4426950408889634);
    int64_t first = i0 + warp * (MT * 16);

    float sum[MT][D / 8][4] = {}, top[MT][2], total[MT][2] = {};
    uint32_t q[MT][D / 16][4];
#pragma unroll
    for (int m = 0; m < MT; m++) top[m][0] = top[m][1] = -INFINITY;
    aril_cuda_fetch<S, QUERIES, D, THREADS>(q_tile, qs, i0);
    aril_cuda_fetch<S, KEYS, D, THREADS>(k_tile, ks, 0);
    aril_cuda_fetch<S, KEYS, D, THREADS>(v_tile, vs, 0);
    aril_cuda_commit();
    for (int64_t step = 0; step < steps; step++) {
        int64_t j0 = step * KEYS;
        uint32_t k_now = k_tile + (uint32_t)(step & 1) * KEY_BYTES;
        uint32_t v_now = v_tile + (uint32_t)(step & 1) * KEY_BYTES;
        if (step + 1 < steps) {
            uint32_t other = (uint32_t)(~step & 1) * KEY_BYTES;
            aril_cuda_fetch<S, KEYS, D, THREADS>(k_tile + other, ks, j0 + KEYS);
            aril_cuda_fetch<S, KEYS, D, THREADS>(v_tile + other, vs, j0 + KEYS);
            aril_cuda_commit();
            aril_cuda_arrive<1>();
        } else {
            aril_cuda_arrive<0>();
        }
        __syncthreads();
        if (step == 0) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int k = 0; k < D / 16; k++)
                    aril_cuda_read_a<D>(q[m][k], q_tile, warp * (MT * 16) + m * 16, k);
        }
        float s[MT][KEYS / 8][4] = {};
#pragma unroll
        for (int k = 0; k < D / 16; k++)
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                uint32_t r[4];
                aril_cuda_read_b_transposed<D>(r, k_now, n * 16, k);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    aril_cuda_mma(S(), s[m][2 * n], q[m][k], r[0], r[1]);
                    aril_cuda_mma(S(), s[m][2 * n + 1], q[m][k], r[2], r[3]);
                }
            }
        bool whole = !a.mask.at && j0 + KEYS <= a.s && !(a.causal && j0 + KEYS - 1 > first);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float high[2] = { top[m][0], top[m][1] };
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) s[m][n][c] *= scale;
            if (!whole && a.mask.at) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        s[m][n][c] = aril_cuda_score(a, mask, first + m * 16 + g + c / 2 * 8,
                                                     j0 + n * 8 + 2 * t + c % 2, s[m][n][c]);
            } else if (!whole) {
                hide(s[m], a, first + m * 16 + g, j0 + 2 * t);
            }
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) /* fmaxf ignores NaN */
                    high[c / 2] = fmaxf(high[c / 2], s[m][n][c]);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float x = high[half];
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
                float by = x > top[m][half] ? aril_cuda_exp2(top[m][half] - x) : 1.0f;
                float base = x == -INFINITY ? 0.0f : x, part = 0; /* only masked scores, or NaN */
                top[m][half] = x;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        float p = aril_cuda_exp2(s[m][n][2 * half + c] - base);
                        s[m][n][2 * half + c] = p;
                        part += p;
                    }
                total[m][half] = total[m][half] * by + part;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    sum[m][n][2 * half] *= by;
                    sum[m][n][2 * half + 1] *= by;
                }
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            uint32_t w[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    w[m][c] = aril_cuda_pack(S(), s[m][2 * k + c / 2][c % 2 * 2],
                                             s[m][2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                uint32_t r[4];
                aril_cuda_read_b<D>(r, v_now, k * 16, n);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    aril_cuda_mma(S(), sum[m][2 * n], w[m], r[0], r[1]);
                    aril_cuda_mma(S(), sum[m][2 * n + 1], w[m], r[2], r[3]);
                }
            }
        }
        __syncthreads(); /* before the tile is overwritten */
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t row = first + m * 16 + g + half * 8;
            float x = total[m][half];
            x += __shfl_xor_sync(0xffffffffu, x, 1);
            x += __shfl_xor_sync(0xffffffffu, x, 2);
            if (row >= a.l) continue;
            /* A query without visible keys gives 0, and an infinite lse. */
            float by = x == 0.0f ? 0.0f : 1.0f / x;
            if (t == 0)
                lse[b * a.l + row] =
                    x == 0.0f ? INFINITY : (top[m][half] + log2f(x)) * 0.6931471805599453f;
            S *to = aril_cuda_out_row<S>(job, y, b, row);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                if (n * 8 >= a.ev) continue;
                float low = sum[m][n][2 * half] * by, high = sum[m][n][2 * half + 1] * by;
                if (pairs) {
                    *reinterpret_cast<uint32_t *>(to + n * 8 + 2 * t) =
                        aril_cuda_pack(S(), low, high);
                } else {
                    to[n * 8 + 2 * t] = aril_cuda_from<S>(low);
                    to[n * 8 + 2 * t + 1] = aril_cuda_from<S>(high);
                }
            }
        }
}

/* ---- operands ---- */

/* Strides of a tensor [...,rows,columns], as [outer,inner,rows,columns]; false if they do not
 * fit. */
static bool strides_of(const aril_tensor *t, aril_cuda_heads *h)
{
    int n = aril_cuda_host->ndim(t);
    const int64_t *stride = aril_cuda_host->strides(t), *dim = aril_cuda_host->dims(t);
    if (n < 2 || stride[n - 1] != 1) return false;
    h->row = stride[n - 2];
    h->inner = n > 2 ? stride[n - 3] : 0;
    h->outer = n > 3 ? stride[n - 4] : 0;
    for (int d = n - 4; d > 0; d--) /* more dimensions must follow each other */
        if (stride[d - 1] != stride[d] * dim[d]) return false;
    return h->row % 8 == 0 && h->inner % 8 == 0 && h->outer % 8 == 0;
}

/* The same of a contiguous one. */
static void contiguous_strides(const aril_tensor *t, aril_cuda_heads *h)
{
    int n = aril_cuda_host->ndim(t);
    h->row = aril_cuda_dim(t, n - 1);
    h->inner = h->row * aril_cuda_dim(t, n - 2);
    h->outer = n > 2 ? h->inner * aril_cuda_dim(t, n - 3) : 0;
}

/* Whether heads are inside rows: the result of a projection, split into heads. */
static bool heads_are_inner(const aril_tensor *t)
{
    int n = aril_cuda_host->ndim(t);
    const int64_t *stride = aril_cuda_host->strides(t), *dim = aril_cuda_host->dims(t);
    return n > 2 && dim[n - 3] > 1 && dim[n - 2] > 1 && stride[n - 3] < stride[n - 2];
}

static const int strided_inputs[] = { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_Y,
                                      ATTENTION_G };

const char *aril_cuda_heads_prepare(const aril_run *r, aril_plan *plan, bool gradient)
{
    const char *why = aril_cuda_attention_refuses(r);
    if (why) return why;
    aril_dtype type = aril_cuda_host->dtype(aril_cuda_in(r, ATTENTION_Q));
    aril_cuda_attention a = aril_cuda_attention_of(r);
    int inputs = gradient ? ATTENTION_INPUTS : ATTENTION_MASK + 1;
    if (aril_cuda_device_of(r)->major < 8) return "no tensor cores for it";
    if (type != ARIL_F16 && type != ARIL_BF16) return "neither f16 nor bf16";
    if (a.e % 8 || a.ev % 8 || a.e > 128 || a.ev > 128 || a.e == 0 || a.ev == 0)
        return "a head size that is no multiple of 8, or above 128";
    if (a.batch == 0 || a.l == 0 || a.s == 0) return "nothing to attend to";
    if (gradient && !aril_cuda_in(r, ATTENTION_G)) return "no gradient of the result";
    if (a.batch * ((a.l > a.s ? a.l : a.s) / 64 + 1) > INT32_MAX) return "too many tiles";
    for (int i = 0; i < inputs; i++) {
        const aril_tensor *t = aril_cuda_in(r, i);
        if (!t) continue;
        bool statistic = i == ATTENTION_LSE || i == ATTENTION_G_LSE, head = true;
        if (i == ATTENTION_MASK) {
            if (aril_cuda_host->dtype(t) != ARIL_BOOL) plan->in[i].dtype = 1 + ARIL_F32;
        } else {
            plan->in[i].dtype = (uint8_t)(1 + (statistic ? ARIL_F32 : type));
        }
        for (int j : strided_inputs) head = head && j != i;
        aril_cuda_heads h;
        if (statistic || (!head && !strides_of(t, &h))) plan->in[i].order = ARIL_ORDER_CONTIGUOUS;
    }
    for (int i = 0; i < aril_cuda_host->n_out(r); i++) plan->out[i].order = ARIL_ORDER_CONTIGUOUS;
    for (int i = 0; i < (gradient ? 3 : 1); i++) /* y as q; dq, dk and dv as q, k and v */
        if (heads_are_inner(aril_cuda_in(r, i))) plan->out[i].order = ARIL_ORDER_HEADS_INNER;
    return nullptr;
}

static void set_heads(const aril_run *r, int i, aril_cuda_heads *h)
{
    const aril_tensor *t = aril_cuda_in(r, i);
    if (!strides_of(t, h)) contiguous_strides(t, h);
    h->at = aril_cuda_data(t);
    h->aligned = (uintptr_t)h->at % 16 == 0;
}

aril_cuda_heads_job aril_cuda_heads_of(const aril_run *r, bool gradient)
{
    const aril_tensor *q = aril_cuda_in(r, ATTENTION_Q);
    aril_cuda_heads_job job = {};
    job.a = aril_cuda_attention_of(r);
    job.inner = aril_cuda_host->ndim(q) > 2 ? aril_cuda_dim(q, -3) : 1;
    set_heads(r, ATTENTION_Q, &job.q);
    set_heads(r, ATTENTION_K, &job.k);
    set_heads(r, ATTENTION_V, &job.v);
    if (!gradient) return job;
    set_heads(r, ATTENTION_Y, &job.y);
    set_heads(r, ATTENTION_G, &job.g);
    const aril_tensor *g_lse = aril_cuda_in(r, ATTENTION_G_LSE);
    job.lse = static_cast<const float *>(aril_cuda_data(aril_cuda_in(r, ATTENTION_LSE)));
    job.g_lse = g_lse ? static_cast<const float *>(aril_cuda_data(g_lse)) : nullptr;
    job.delta = static_cast<const float *>(aril_cuda_host->workspace(r));
    return job;
}

aril_cuda_heads_out aril_cuda_heads_out_of(const aril_run *r, int i)
{
    const aril_tensor *t = aril_cuda_out(r, i);
    const int64_t *stride = aril_cuda_host->strides(t);
    int n = aril_cuda_host->ndim(t);
    return { aril_cuda_data(t), n > 3 ? stride[n - 4] : 0, n > 2 ? stride[n - 3] : 0,
             stride[n - 2] };
}

/* ---- rows ---- */

const char *aril_cuda_attention_mma_prepare(const aril_run *r, aril_plan *plan)
{
    return aril_cuda_heads_prepare(r, plan, false);
}

template <typename S, int D, int MT, int WARPS>
static aril_status launch(aril_run *r, const aril_cuda_heads_job &job)
{
    enum { QUERIES = WARPS * MT * 16, BYTES = (QUERIES + 4 * KEYS) * D * 2 };
    aril_cuda_heads_out y = aril_cuda_heads_out_of(r, 0);
    int64_t blocks = job.a.batch * ((job.a.l + QUERIES - 1) / QUERIES);
    cudaStream_t stream = aril_cuda_stream(r);
    aril_status s = aril_cuda_allow_shared(r, forward<S, D, MT, WARPS>, BYTES);
    if (s < 0) return s;
    forward<S, D, MT, WARPS><<<(unsigned)blocks, WARPS * 32, BYTES, stream>>>(
        y, (float *)aril_cuda_data(aril_cuda_out(r, 1)), (uintptr_t)y.at % 4 == 0, job);
    return aril_cuda_launched(r);
}

template <typename S> static aril_status run_as(aril_run *r, const aril_cuda_heads_job &job)
{
    if (job.a.e <= 64 && job.a.ev <= 64) return launch<S, 64, 2, 4>(r, job);
    return launch<S, 128, 1, 8>(r, job);
}

aril_status aril_cuda_attention_mma_run(aril_run *r)
{
    aril_cuda_heads_job job = aril_cuda_heads_of(r, false);
    if (aril_cuda_host->dtype(aril_cuda_in(r, ATTENTION_Q)) == ARIL_F16)
        return run_as<aril_cuda_f16>(r, job);
    return run_as<aril_cuda_bf16>(r, job);
}
