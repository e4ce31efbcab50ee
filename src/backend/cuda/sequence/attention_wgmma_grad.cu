/* The gradient of attention by Hopper's tensor cores, without a mask. A block owns keys, for dk and dv,
 * or queries, for dq, and passes over the other side: sums have a fixed order. */
#include "backend/cuda/sequence/attention_mma.cuh"
#include "backend/cuda/sequence/wgmma.cuh"

#include <math.h>

/* Of each query: its log-sum-exp in units of log 2, and delta = g y - g_lse. D / 8 lanes each. */
template <typename S, int D>
static __global__ void __launch_bounds__(256)
    statistics(float2 *to, const __grid_constant__ aril_cuda_heads_job job)
{
    enum { LANES = D / 8, ROWS = 256 / LANES };
    const aril_cuda_attention &a = job.a;
    int tiles = ((int)a.l + ROWS - 1) / ROWS, b = (int)blockIdx.x / tiles;
    int row = ((int)blockIdx.x - b * tiles) * ROWS + (int)threadIdx.x / LANES;
    int column = (int)threadIdx.x % LANES * 8;
    bool inside = row < a.l;
    float sum = 0;
    if (inside && column < a.ev) {
        aril_cuda_matrix gs = aril_cuda_matrix_of<S>(job, job.g, b, a.l, a.ev);
        aril_cuda_matrix ys = aril_cuda_matrix_of<S>(job, job.y, b, a.l, a.ev);
        const S *from_g = static_cast<const S *>(gs.at) + row * gs.stride + column;
        const S *from_y = static_cast<const S *>(ys.at) + row * ys.stride + column;
        uint4 g = *reinterpret_cast<const uint4 *>(from_g);
        uint4 y = *reinterpret_cast<const uint4 *>(from_y);
        const S *p = reinterpret_cast<const S *>(&g), *q = reinterpret_cast<const S *>(&y);
#pragma unroll
        for (int i = 0; i < 8; i++) sum += aril_cuda_to<float>(p[i]) * aril_cuda_to<float>(q[i]);
    }
#pragma unroll
    for (int lane = LANES / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    int64_t at = b * a.l + row;
    if (inside && threadIdx.x % LANES == 0)
        to[at] = make_float2(job.lse[at] * 1.4426950408889634f,
                             sum - (job.g_lse ? job.g_lse[at] : 0.0f));
}

/* Writes a warpgroup's sums [64,D], times `by`. */
template <typename S, int D>
static __device__ __forceinline__ void write(const aril_cuda_heads_job &job,
                                             const aril_cuda_heads_out &out, int64_t b,
                                             const float (&sum)[D / 2], int row, int64_t rows,
                                             int64_t columns, float by)
{
    int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (row + half * 8 >= rows) continue;
        S *to = aril_cuda_out_row<S>(job, out, b, row + half * 8);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (n * 8 < columns)
                *reinterpret_cast<uint32_t *>(to + n * 8 + 2 * t) =
                    aril_cuda_pack(S(), sum[n * 4 + 2 * half] * by, sum[n * 4 + 2 * half + 1] * by);
    }
}

/* dk and dv of WGS x 64 keys; passes over tiles of QUERIES. */
template <typename S, int D, int QUERIES, int WGS, int STAGES, int BLOCKS>
static __global__ void __launch_bounds__(WGS * 128, BLOCKS)
    backward_keys(aril_cuda_heads_out dk, aril_cuda_heads_out dv, const float2 *stats,
                  const __grid_constant__ aril_cuda_heads_job job)
{
#ifdef ARIL_CUDA_WGMMA
    enum { OWN = WGS * 64, THREADS = WGS * 128, TILE = QUERIES * D * 2 };
    extern __shared__ __align__(1024) unsigned char memory[];
    const aril_cuda_attention &a = job.a;
    uint32_t k_tile = aril_cuda_shared_address(memory), v_tile = k_tile + OWN * D * 2;
    uint32_t q_tile = v_tile + OWN * D * 2, g_tile = q_tile + STAGES * TILE;
    uint32_t s_tile = g_tile + STAGES * TILE; /* statistics */
    const float2 *of_queries =
        reinterpret_cast<const float2 *>(memory + 2 * OWN * D * 2 + 2 * STAGES * TILE);
    int group = threadIdx.x / 128, lane = threadIdx.x % 32, t = lane % 4;
    int length = (int)a.l, keys = (int)a.s, tiles = (keys + OWN - 1) / OWN;
    int b = blockIdx.x / tiles, r0 = (int)blockIdx.x % tiles * OWN;
    int first = r0 + group * 64;
    int row = first + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    int begin = a.causal ? r0 / QUERIES : 0; /* earlier queries do not see these keys */
    int own_begin = a.causal ? first / QUERIES : 0;
    int end = (length + QUERIES - 1) / QUERIES;
    float scale = (float)(a.scale * 1.4426950408889634);

    aril_cuda_copier<S, D, THREADS> from, q_from, g_from;
    q_from.init(aril_cuda_matrix_of<S>(job, job.q, b, a.l, a.e));
    g_from.init(aril_cuda_matrix_of<S>(job, job.g, b, a.l, a.ev));
    auto fetch = [&](int step) {
        int slot = step % STAGES, q0 = step * QUERIES;
        if (step < end) {
            q_from.template fetch<QUERIES>(q_tile + slot * TILE, q0);
            g_from.template fetch<QUERIES>(g_tile + slot * TILE, q0);
            if (threadIdx.x < QUERIES) {
                bool there = q0 + (int)threadIdx.x < length;
                asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                                 s_tile + (slot * QUERIES + (int)threadIdx.x) * 8),
                             "l"(stats + (there ? b * a.l + q0 + threadIdx.x : 0)),
                             "r"(there ? 8 : 0)
                             : "memory");
            }
        }
        aril_cuda_commit();
    };

    float s[QUERIES / 2], dp[QUERIES / 2], sum_k[D / 2] = {}, sum_v[D / 2] = {};
    uint32_t weights[QUERIES / 4] = {}, slopes[QUERIES / 4] = {};
    from.init(aril_cuda_matrix_of<S>(job, job.k, b, a.s, a.e));
    from.template fetch<OWN>(k_tile, r0);
    from.init(aril_cuda_matrix_of<S>(job, job.v, b, a.s, a.ev));
    from.template fetch<OWN>(v_tile, r0);
    for (int i = 0; i < STAGES - 2; i++) fetch(begin + i);
    for (int step = begin; step < end; step++) {
        aril_cuda_arrive<STAGES - 3>();
        aril_cuda_show_tiles();
        __syncthreads(); /* products with the tile before the last one have ended, too */
        fetch(step + STAGES - 2);
        if (step < own_begin) continue;
        int slot = step % STAGES, q0 = step * QUERIES;
        aril_cuda_group_begin();
        aril_cuda_dots<S, QUERIES, D>(s, k_tile, OWN, group * 64, q_tile + slot * TILE, QUERIES);
        aril_cuda_group_end();
        aril_cuda_dots<S, QUERIES, D>(dp, v_tile, OWN, group * 64, g_tile + slot * TILE, QUERIES);
        aril_cuda_group_end();
        aril_cuda_group_wait<1>();
        aril_cuda_settle(s);
        aril_cuda_settle(weights);
        aril_cuda_settle(slopes);
        if (a.causal && first + 63 > q0) {
#pragma unroll
            for (int i = 0; i < QUERIES / 2; i++)
                if (q0 + i / 4 * 8 + 2 * t + i % 2 < row + i / 2 % 2 * 8) s[i] = -INFINITY;
        }
        const float4 *of = reinterpret_cast<const float4 *>(of_queries + slot * QUERIES) + t;
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++) {
            float4 x = of[4 * n];
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[4 * n + c] = aril_cuda_exp2(fmaf(s[4 * n + c], scale, -(c % 2 ? x.z : x.x)));
        }
        aril_cuda_round<S, QUERIES>(weights, s);
        aril_cuda_group_begin();
        aril_cuda_add_rows<S, D, QUERIES>(sum_v, weights, g_tile + slot * TILE);
        aril_cuda_group_end();
        aril_cuda_group_wait<1>();
        aril_cuda_settle(dp);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++) {
            float4 x = of[4 * n];
#pragma unroll
            for (int c = 0; c < 4; c++) s[4 * n + c] *= dp[4 * n + c] - (c % 2 ? x.w : x.y);
        }
        aril_cuda_round<S, QUERIES>(slopes, s);
        aril_cuda_group_begin();
        aril_cuda_add_rows<S, D, QUERIES>(sum_k, slopes, q_tile + slot * TILE);
        aril_cuda_group_end();
    }
    aril_cuda_arrive<0>();
    aril_cuda_group_wait<0>();
    aril_cuda_settle(sum_k);
    aril_cuda_settle(sum_v);
    write<S, D>(job, dk, b, sum_k, row, a.s, a.e, (float)a.scale);
    write<S, D>(job, dv, b, sum_v, row, a.s, a.ev, 1.0f);
#endif
}

/* dq of WGS x 64 queries; passes over tiles of KEYS. */
template <typename S, int D, int KEYS, int WGS, int STAGES, int BLOCKS>
static __global__ void __launch_bounds__(WGS * 128, BLOCKS)
    backward_queries(aril_cuda_heads_out dq, const float2 *stats,
                     const __grid_constant__ aril_cuda_heads_job job)
{
#ifdef ARIL_CUDA_WGMMA
    enum { OWN = WGS * 64, THREADS = WGS * 128, TILE = KEYS * D * 2 };
    extern __shared__ __align__(1024) unsigned char memory[];
    const aril_cuda_attention &a = job.a;
    uint32_t q_tile = aril_cuda_shared_address(memory), g_tile = q_tile + OWN * D * 2;
    uint32_t k_tile = g_tile + OWN * D * 2, v_tile = k_tile + STAGES * TILE;
    int group = threadIdx.x / 128, lane = threadIdx.x % 32, t = lane % 4;
    int length = (int)a.l, keys = (int)a.s, tiles = (length + OWN - 1) / OWN;
    int b = blockIdx.x / tiles, r0 = (tiles - 1 - (int)blockIdx.x % tiles) * OWN;
    int first = r0 + group * 64;
    int row = first + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    int seen = a.causal && r0 + OWN < keys ? r0 + OWN : keys;
    int mine = a.causal && first + 64 < keys ? first + 64 : keys;
    int steps = (seen + KEYS - 1) / KEYS, own_steps = (mine + KEYS - 1) / KEYS;
    float scale = (float)(a.scale * 1.4426950408889634);

    aril_cuda_copier<S, D, THREADS> from, k_from, v_from;
    k_from.init(aril_cuda_matrix_of<S>(job, job.k, b, a.s, a.e));
    v_from.init(aril_cuda_matrix_of<S>(job, job.v, b, a.s, a.ev));
    auto fetch = [&](int step) {
        if (step < steps) {
            k_from.template fetch<KEYS>(k_tile + step % STAGES * TILE, step * KEYS);
            v_from.template fetch<KEYS>(v_tile + step % STAGES * TILE, step * KEYS);
        }
        aril_cuda_commit();
    };

    float s[KEYS / 2], dp[KEYS / 2], sum[D / 2] = {};
    float2 of[2];
    uint32_t slopes[KEYS / 4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++)
        of[half] = row + half * 8 < length ? stats[b * a.l + row + half * 8] : make_float2(0, 0);
    from.init(aril_cuda_matrix_of<S>(job, job.q, b, a.l, a.e));
    from.template fetch<OWN>(q_tile, r0);
    from.init(aril_cuda_matrix_of<S>(job, job.g, b, a.l, a.ev));
    from.template fetch<OWN>(g_tile, r0);
    for (int i = 0; i < STAGES - 2; i++) fetch(i);
    for (int step = 0; step < steps; step++) {
        aril_cuda_arrive<STAGES - 3>();
        aril_cuda_show_tiles();
        __syncthreads(); /* products with the tile before the last one have ended, too */
        fetch(step + STAGES - 2);
        if (step >= own_steps) continue;
        int slot = step % STAGES, j0 = step * KEYS;
        aril_cuda_group_begin();
        aril_cuda_dots<S, KEYS, D>(s, q_tile, OWN, group * 64, k_tile + slot * TILE, KEYS);
        aril_cuda_group_end();
        aril_cuda_dots<S, KEYS, D>(dp, g_tile, OWN, group * 64, v_tile + slot * TILE, KEYS);
        aril_cuda_group_end();
        aril_cuda_group_wait<1>();
        aril_cuda_settle(s);
        aril_cuda_settle(slopes);
        int whole = a.causal && first + 1 < keys ? first + 1 : keys;
        if (j0 + KEYS > whole) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int limit = a.causal && row + half * 8 < keys ? row + half * 8 + 1 : keys;
                limit -= j0 + 2 * t;
#pragma unroll
                for (int i = 0; i < KEYS / 4; i++)
                    if (i / 2 * 8 + i % 2 >= limit) s[i / 2 * 4 + 2 * half + i % 2] = -INFINITY;
            }
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            s[i] = aril_cuda_exp2(fmaf(s[i], scale, -of[i / 2 % 2].x));
        aril_cuda_group_wait<0>();
        aril_cuda_settle(dp);
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) s[i] *= dp[i] - of[i / 2 % 2].y;
        aril_cuda_round<S, KEYS>(slopes, s);
        aril_cuda_group_begin();
        aril_cuda_add_rows<S, D, KEYS>(sum, slopes, k_tile + slot * TILE);
        aril_cuda_group_end();
    }
    aril_cuda_arrive<0>();
    aril_cuda_group_wait<0>();
    aril_cuda_settle(sum);
    write<S, D>(job, dq, b, sum, row, a.l, a.e, (float)a.scale);
#endif
}

/* ---- rows ---- */

const char *aril_cuda_attention_wgmma_grad_prepare(const aril_run *r, aril_plan *plan)
{
    const char *why = aril_cuda_heads_prepare(r, plan, true);
    if (!why) why = aril_cuda_wgmma_refuses(r);
    if (why) return why;
    aril_cuda_attention a = aril_cuda_attention_of(r);
    plan->workspace = (size_t)(a.batch * a.l) * sizeof(float2);
    return nullptr;
}

/* One run: its results, and the statistics of queries. */
struct gradient {
    aril_cuda_heads_job job;
    aril_cuda_heads_out out[3];
    float2 *stats;
};

template <typename S, int D, int QUERIES, int WGS, int STAGES, int BLOCKS>
static aril_status launch_keys(aril_run *r, const gradient &g)
{
    enum {
        OWN = WGS * 64,
        BYTES = (2 * OWN + 2 * STAGES * QUERIES) * D * 2 + STAGES * QUERIES * 8
    };
    auto kernel = backward_keys<S, D, QUERIES, WGS, STAGES, BLOCKS>;
    int64_t blocks = g.job.a.batch * ((g.job.a.s + OWN - 1) / OWN);
    cudaStream_t stream = aril_cuda_stream(r);
    aril_status s = aril_cuda_allow_shared(r, kernel, BYTES);
    if (s < 0) return s;
    kernel<<<(unsigned)blocks, WGS * 128, BYTES, stream>>>(g.out[1], g.out[2], g.stats, g.job);
    return aril_cuda_launched(r);
}

template <typename S, int D, int KEYS, int WGS, int STAGES, int BLOCKS>
static aril_status launch_queries(aril_run *r, const gradient &g)
{
    enum { OWN = WGS * 64, BYTES = (2 * OWN + 2 * STAGES * KEYS) * D * 2 };
    static_assert(STAGES * KEYS >= OWN, "a warpgroup's last tile is not overwritten");
    auto kernel = backward_queries<S, D, KEYS, WGS, STAGES, BLOCKS>;
    int64_t blocks = g.job.a.batch * ((g.job.a.l + OWN - 1) / OWN);
    cudaStream_t stream = aril_cuda_stream(r);
    aril_status s = aril_cuda_allow_shared(r, kernel, BYTES);
    if (s < 0) return s;
    kernel<<<(unsigned)blocks, WGS * 128, BYTES, stream>>>(g.out[0], g.stats, g.job);
    return aril_cuda_launched(r);
}

template <typename S, int D> static aril_status launch_statistics(aril_run *r, const gradient &g)
{
    int64_t rows = 256 / (D / 8), blocks = g.job.a.batch * ((g.job.a.l + rows - 1) / rows);
    statistics<S, D><<<(unsigned)blocks, 256, 0, aril_cuda_stream(r)>>>(g.stats, g.job);
    return aril_cuda_launched(r);
}

template <typename S> static aril_status run_as(aril_run *r, const gradient &g)
{
    bool narrow = g.job.a.e <= 64 && g.job.a.ev <= 64;
    aril_status s = narrow ? launch_statistics<S, 64>(r, g) : launch_statistics<S, 128>(r, g);
    if (s == ARIL_OK)
        s = narrow ? launch_keys<S, 64, 64, 1, 3, 2>(r, g) : launch_keys<S, 128, 32, 2, 4, 1>(r, g);
    if (s == ARIL_OK)
        s = narrow ? launch_queries<S, 64, 64, 2, 3, 1>(r, g)
                   : launch_queries<S, 128, 64, 2, 3, 1>(r, g);
    return s;
}

aril_status aril_cuda_attention_wgmma_grad_run(aril_run *r)
{
    gradient g = {};
    uintptr_t addresses = 0;
    g.job = aril_cuda_heads_of(r, true);
    g.stats = static_cast<float2 *>(aril_cuda_host->workspace(r));
    for (int i = 0; i < 3; i++) {
        g.out[i] = aril_cuda_heads_out_of(r, i);
        addresses |= (uintptr_t)g.out[i].at;
    }
    if (!aril_cuda_wgmma_reads(g.job, true) || addresses % 4)
        return aril_cuda_attention_mma_grad_run(r);
    if (aril_cuda_host->dtype(aril_cuda_in(r, ATTENTION_Q)) == ARIL_F16)
        return run_as<aril_cuda_f16>(r, g);
    return run_as<aril_cuda_bf16>(r, g);
}
