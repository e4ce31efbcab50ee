/* The gradient of attention by tensor cores. A block owns 64 keys, for dk and dv, or 64 queries, for
 * dq, and passes over the other side; weights are recomputed from the log-sum-exp of each query. So
 * nothing is added by several blocks, and sums have a fixed order. */
#include "backend/cuda/sequence/attention_mma.cuh"

#include <math.h>

enum { WARPS = 4, THREADS = WARPS * 32, OWN = WARPS * 16 };

/* delta = g y - g_lse of each query: a warp each. */
template <typename S>
static __global__ void differences(float *delta, const __grid_constant__ aril_cuda_heads_job job)
{
    const aril_cuda_attention &a = job.a;
    int lane = threadIdx.x % 32;
    for (int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32; row < a.batch * a.l;
         row += (int64_t)gridDim.x * 8) {
        aril_cuda_matrix gs = aril_cuda_matrix_of<S>(job, job.g, row / a.l, a.l, a.ev);
        aril_cuda_matrix ys = aril_cuda_matrix_of<S>(job, job.y, row / a.l, a.l, a.ev);
        const S *g = static_cast<const S *>(gs.at) + row % a.l * gs.stride;
        const S *y = static_cast<const S *>(ys.at) + row % a.l * ys.stride;
        float sum = 0;
        for (int d = lane; d < a.ev; d += 32)
            sum += aril_cuda_to<float>(g[d]) * aril_cuda_to<float>(y[d]);
        for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
        if (lane == 0) delta[row] = sum - (job.g_lse ? job.g_lse[row] : 0.0f);
    }
}

/* Writes a result's rows, [64,D] in the warps' sums, times `by`. */
template <typename S, int D>
static __device__ void write(const aril_cuda_heads_job &job, const aril_cuda_heads_out &to,
                             int64_t b, const float (&sum)[D / 8][4], int64_t first, int64_t rows,
                             int64_t columns, float by, bool pairs)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t row = first + g + half * 8;
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            if (n * 8 >= columns) continue;
            S *at = aril_cuda_out_row<S>(job, to, b, row) + n * 8 + 2 * t;
            float low = sum[n][2 * half] * by, high = sum[n][2 * half + 1] * by;
            if (pairs) {
                *reinterpret_cast<uint32_t *>(at) = aril_cuda_pack(S(), low, high);
            } else {
                at[0] = aril_cuda_from<S>(low);
                at[1] = aril_cuda_from<S>(high);
            }
        }
    }
}

/* Hides what queries do not see, without a mask. Rows of scores are keys (BY_KEY) or queries; those
 * of queries that do not exist have no weights anyway. */
template <int N, bool BY_KEY>
static __device__ __forceinline__ void hide(float (&s)[N / 8][4], const aril_cuda_attention &a,
                                            int64_t row, int64_t column)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int64_t limit = BY_KEY ? (a.causal ? row + half * 8 : 0)
                               : (a.causal && row + half * 8 < a.s ? row + half * 8 + 1 : a.s);
        int at = (int)(limit - column < 0 ? 0 : limit - column > N ? N : limit - column);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                if (BY_KEY ? n * 8 + c < at : n * 8 + c >= at) s[n][2 * half + c] = -INFINITY;
    }
}

/* sum += w b: w [16,N] as sums of an earlier product, b the tile [N,D]. */
template <typename S, int D, int N>
static __device__ __forceinline__ void add_product(float (&sum)[D / 8][4],
                                                   const float (&w)[N / 8][4], uint32_t tile)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[4], r[4];
#pragma unroll
        for (int c = 0; c < 4; c++)
            a[c] =
                aril_cuda_pack(S(), w[2 * k + c / 2][c % 2 * 2], w[2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            aril_cuda_read_b<D>(r, tile, k * 16, n);
            aril_cuda_mma(S(), sum[2 * n], a, r[0], r[1]);
            aril_cuda_mma(S(), sum[2 * n + 1], a, r[2], r[3]);
        }
    }
}

/* s = 16 rows of the tile `own` times all rows of `other`. */
template <typename S, int D, int N>
static __device__ __forceinline__ void dots(float (&s)[N / 8][4], uint32_t own, int row,
                                            uint32_t other)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[n][c] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], r[4];
        aril_cuda_read_a<D>(a, own, row, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            aril_cuda_read_b_transposed<D>(r, other, n * 16, k);
            aril_cuda_mma(S(), s[2 * n], a, r[0], r[1]);
            aril_cuda_mma(S(), s[2 * n + 1], a, r[2], r[3]);
        }
    }
}

/* BY_KEY: a block owns keys, and writes dk to `one` and dv to `two`; the other side are queries, N
 * at a time. Otherwise it owns queries, and writes dq to `one`. */
template <typename S, int D, int N, bool BY_KEY>
static __global__ void __launch_bounds__(THREADS)
    backward(const __grid_constant__ aril_cuda_heads_out one,
             const __grid_constant__ aril_cuda_heads_out two, bool pairs,
             const __grid_constant__ aril_cuda_heads_job job)
{
    enum { OWN_BYTES = OWN * D * 2, TILE_BYTES = N * D * 2 };
    extern __shared__ __align__(128) unsigned char memory[];
    const aril_cuda_attention &a = job.a;
    /* Tiles of k and v, or of q and g, and two of each of the others. */
    uint32_t own = aril_cuda_shared_address(memory), own_2 = own + OWN_BYTES;
    uint32_t tile = own_2 + OWN_BYTES, tile_2 = tile + 2 * TILE_BYTES;
    float *lse = reinterpret_cast<float *>(memory + 2 * OWN_BYTES + 4 * TILE_BYTES);
    float *delta = lse + 2 * N; /* of the queries of each tile, if BY_KEY */
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int64_t rows = BY_KEY ? a.s : a.l, others = BY_KEY ? a.l : a.s;
    int64_t tiles = (rows + OWN - 1) / OWN, b = blockIdx.x / tiles, at = blockIdx.x % tiles;
    int64_t r0 = (BY_KEY ? at : tiles - 1 - at) * OWN, begin = 0; /* the longest first */
    if (a.causal && BY_KEY) begin = r0 / N * N;
    if (a.causal && !BY_KEY && r0 + OWN < others) others = r0 + OWN;
    int64_t steps = begin < others ? (others - begin + N - 1) / N : 0;
    int64_t mask = a.mask.at ? aril_cuda_mask_at(a.mask, b) : 0;
    aril_cuda_matrix qs = aril_cuda_matrix_of<S>(job, job.q, b, a.l, a.e);
    aril_cuda_matrix gs = aril_cuda_matrix_of<S>(job, job.g, b, a.l, a.ev);
    aril_cuda_matrix ks = aril_cuda_matrix_of<S>(job, job.k, b, a.s, a.e);
    aril_cuda_matrix vs = aril_cuda_matrix_of<S>(job, job.v, b, a.s, a.ev);
    const float log2e = 1.4426950408889634f;
    float scale = (float)(a.scale * 1.4426950408889634);
    int64_t first = r0 + warp * 16;

    /* Statistics of queries: beyond the last, an infinite lse makes their weights 0. */
    auto statistics = [&](int64_t row, float *to_lse, float *to_delta) {
        *to_lse = row < a.l ? job.lse[b * a.l + row] * log2e : INFINITY;
        *to_delta = row < a.l ? job.delta[b * a.l + row] : 0.0f;
    };
    auto fetch = [&](int64_t step) {
        int64_t from = begin + step * N;
        uint32_t buffer = (uint32_t)(step & 1) * TILE_BYTES;
        aril_cuda_fetch<S, N, D, THREADS>(tile + buffer, BY_KEY ? qs : ks, from);
        aril_cuda_fetch<S, N, D, THREADS>(tile_2 + buffer, BY_KEY ? gs : vs, from);
        int slot = (int)(step & 1) * N + (int)threadIdx.x;
        if (BY_KEY && threadIdx.x < N) statistics(from + threadIdx.x, &lse[slot], &delta[slot]);
        aril_cuda_commit();
    };

    float sum[D / 8][4] = {}, sum_2[BY_KEY ? D / 8 : 1][4] = {};
    float own_lse[2] = {}, own_delta[2] = {};
    if (!BY_KEY)
        for (int half = 0; half < 2; half++)
            statistics(first + g + half * 8, &own_lse[half], &own_delta[half]);
    aril_cuda_fetch<S, OWN, D, THREADS>(own, BY_KEY ? ks : qs, r0);
    aril_cuda_fetch<S, OWN, D, THREADS>(own_2, BY_KEY ? vs : gs, r0);
    if (steps > 0) fetch(0);
    for (int64_t step = 0; step < steps; step++) {
        int64_t o0 = begin + step * N;
        uint32_t buffer = (uint32_t)(step & 1) * TILE_BYTES;
        int slot = (int)(step & 1) * N;
        if (step + 1 < steps) {
            fetch(step + 1);
            aril_cuda_arrive<1>();
        } else {
            aril_cuda_arrive<0>();
        }
        __syncthreads();
        float s[N / 8][4], dp[N / 8][4];
        dots<S, D, N>(s, own, warp * 16, tile + buffer);
        dots<S, D, N>(dp, own_2, warp * 16, tile_2 + buffer);
        bool whole = !a.mask.at && o0 + N <= (BY_KEY ? a.l : a.s) && r0 + OWN <= rows;
        if (a.causal) /* the last key is not after the first query */
            whole = whole && (BY_KEY ? r0 + OWN - 1 <= o0 : o0 + N - 1 <= first);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) s[n][c] *= scale;
        if (!whole && a.mask.at) {
#pragma unroll
            for (int n = 0; n < N / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    int64_t row = first + g + c / 2 * 8, column = o0 + n * 8 + 2 * t + c % 2;
                    s[n][c] = aril_cuda_score(a, mask, BY_KEY ? column : row, BY_KEY ? row : column,
                                              s[n][c]);
                }
        } else if (!whole) {
            hide<N, BY_KEY>(s, a, first + g, o0 + 2 * t);
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int column = n * 8 + 2 * t + c % 2;
                float p = aril_cuda_exp2(s[n][c] - (BY_KEY ? lse[slot + column] : own_lse[c / 2]));
                p = s[n][c] == -INFINITY ? 0.0f : p; /* whatever the log-sum-exp is */
                s[n][c] = p;
                dp[n][c] = p * (dp[n][c] - (BY_KEY ? delta[slot + column] : own_delta[c / 2]));
            }
        add_product<S, D, N>(sum, dp, tile + buffer);
        if constexpr (BY_KEY) add_product<S, D, N>(sum_2, s, tile_2 + buffer);
        __syncthreads(); /* before the tiles are overwritten */
    }
    aril_cuda_commit(); /* without steps, the first copies are still under way */
    aril_cuda_arrive<0>();
    write<S, D>(job, one, b, sum, first, rows, a.e, (float)a.scale, pairs);
    if constexpr (BY_KEY) write<S, D>(job, two, b, sum_2, first, rows, a.ev, 1.0f, pairs);
}

const char *aril_cuda_attention_mma_grad_prepare(const aril_run *r, aril_plan *plan)
{
    const char *why = aril_cuda_heads_prepare(r, plan, true);
    if (why) return why;
    aril_cuda_attention a = aril_cuda_attention_of(r);
    plan->workspace = (size_t)(a.batch * a.l) * sizeof(float); /* delta */
    return nullptr;
}

template <typename S, int D, int N, bool BY_KEY>
static aril_status launch(aril_run *r, const aril_cuda_heads_job &job,
                          const aril_cuda_heads_out &one, const aril_cuda_heads_out &two)
{
    enum { BYTES = (2 * OWN + 4 * N) * D * 2 + 4 * N * (int)sizeof(float) };
    int64_t blocks = job.a.batch * (((BY_KEY ? job.a.s : job.a.l) + OWN - 1) / OWN);
    cudaStream_t stream = aril_cuda_stream(r);
    aril_status s = aril_cuda_allow_shared(r, backward<S, D, N, BY_KEY>, BYTES);
    if (s < 0) return s;
    backward<S, D, N, BY_KEY><<<(unsigned)blocks, THREADS, BYTES, stream>>>(
        one, two, ((uintptr_t)one.at | (uintptr_t)two.at) % 4 == 0, job);
    return aril_cuda_launched(r);
}

template <typename S> static aril_status run_as(aril_run *r, const aril_cuda_heads_job &job)
{
    aril_cuda_heads_out out[3];
    for (int i = 0; i < 3; i++) out[i] = aril_cuda_heads_out_of(r, i);
    bool narrow = job.a.e <= 64 && job.a.ev <= 64;
    differences<S><<<aril_cuda_blocks(r, job.a.batch * job.a.l, 8), 256, 0, aril_cuda_stream(r)>>>(
        static_cast<float *>(aril_cuda_host->workspace(r)), job);
    aril_status s = aril_cuda_launched(r);
    if (s == ARIL_OK)
        s = narrow ? launch<S, 64, 64, true>(r, job, out[1], out[2])
                   : launch<S, 128, 32, true>(r, job, out[1], out[2]);
    if (s == ARIL_OK)
        s = narrow ? launch<S, 64, 64, false>(r, job, out[0], {})
                   : launch<S, 128, 32, false>(r, job, out[0], {});
    return s;
}

aril_status aril_cuda_attention_mma_grad_run(aril_run *r)
{
    aril_cuda_heads_job job = aril_cuda_heads_of(r, true);
    if (aril_cuda_host->dtype(aril_cuda_in(r, ATTENTION_Q)) == ARIL_F16)
        return run_as<aril_cuda_f16>(r, job);
    return run_as<aril_cuda_bf16>(r, job);
}
