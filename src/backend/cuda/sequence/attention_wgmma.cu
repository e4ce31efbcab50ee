/* Attention by Hopper's tensor cores, without a mask. A block has WGS warpgroups of 64 queries each; the
 * weights of one tile of keys are computed while the tensor cores work on the tile before it. */
#include "backend/cuda/sequence/attention_mma.cuh"
#include "backend/cuda/sequence/wgmma.cuh"

#include <math.h>

/* D: columns of a tile; STAGES tiles of keys and values are in shared memory. */
template <typename S, int D, int KEYS, int WGS, int STAGES, int BLOCKS>
static __global__ void __launch_bounds__(WGS * 128, BLOCKS)
    forward(aril_cuda_heads_out y, float *lse, const __grid_constant__ aril_cuda_heads_job job)
{
#ifdef ARIL_CUDA_WGMMA
    enum { QUERIES = WGS * 64, THREADS = WGS * 128, TILE = KEYS * D * 2 };
    extern __shared__ __align__(1024) unsigned char memory[];
    const aril_cuda_attention &a = job.a;
    uint32_t q_tile = aril_cuda_shared_address(memory), k_tile = q_tile + QUERIES * D * 2;
    uint32_t v_tile = k_tile + STAGES * TILE;
    int group = threadIdx.x / 128, lane = threadIdx.x % 32, t = lane % 4;
    int length = (int)a.l, keys = (int)a.s;
    int tiles = (length + QUERIES - 1) / QUERIES, b = blockIdx.x / tiles;
    int i0 = (tiles - 1 - (int)blockIdx.x % tiles) * QUERIES; /* the longest first, if causal */
    int first = i0 + group * 64;                              /* of this warpgroup */
    int row = first + (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    int seen = a.causal && i0 + QUERIES < keys ? i0 + QUERIES : keys;
    int mine = a.causal && first + 64 < keys ? first + 64 : keys;
    int steps = (seen + KEYS - 1) / KEYS, own_steps = (mine + KEYS - 1) / KEYS;
    float scale = (float)(a.scale * 1.4426950408889634);

    aril_cuda_copier<S, D, THREADS> q_from, k_from, v_from;
    q_from.init(aril_cuda_matrix_of<S>(job, job.q, b, a.l, a.e));
    k_from.init(aril_cuda_matrix_of<S>(job, job.k, b, a.s, a.e));
    v_from.init(aril_cuda_matrix_of<S>(job, job.v, b, a.s, a.ev));
    auto fetch = [&](int step) {
        if (step < steps) {
            k_from.template fetch<KEYS>(k_tile + step % STAGES * TILE, step * KEYS);
            v_from.template fetch<KEYS>(v_tile + step % STAGES * TILE, step * KEYS);
        }
        aril_cuda_commit();
    };

    float s[KEYS / 2], sum[D / 2] = {}, total[2] = {};
    float top[2] = { -INFINITY, -INFINITY }; /* in units of log 2 */
    uint32_t weights[KEYS / 4];

    /* Turns scores of a tile into weights; `by` is what earlier sums are multiplied by. */
    auto weigh = [&](int j0, float(&by)[2]) {
        int whole = a.causal && first + 1 < keys ? first + 1 : keys;
        if (j0 + KEYS > whole) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int limit = a.causal && row + half * 8 < keys ? row + half * 8 + 1 : keys;
                limit -= j0 + 2 * t;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        if (n * 8 + c >= limit) s[n * 4 + 2 * half + c] = -INFINITY;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float x = s[2 * half], part = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) /* fmaxf ignores NaN */
                x = fmaxf(x, fmaxf(s[n * 4 + 2 * half], s[n * 4 + 2 * half + 1]));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
            x = fmaxf(x * scale, top[half]);
            float base = x == -INFINITY ? 0.0f : x; /* only hidden scores, or NaN */
            by[half] = aril_cuda_exp2(top[half] - base);
            top[half] = x;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float p = aril_cuda_exp2(fmaf(s[n * 4 + 2 * half + c], scale, -base));
                    s[n * 4 + 2 * half + c] = p;
                    part += p;
                }
            total[half] = total[half] * by[half] + part;
        }
    };

    q_from.template fetch<QUERIES>(q_tile, i0);
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    aril_cuda_arrive<STAGES - 2>();
    aril_cuda_show_tiles();
    __syncthreads();
    float by[2];
    aril_cuda_group_begin();
    aril_cuda_dots<S, KEYS, D>(s, q_tile, QUERIES, group * 64, k_tile, KEYS);
    aril_cuda_group_end();
    aril_cuda_group_wait<0>();
    aril_cuda_settle(s);
    weigh(0, by);
    aril_cuda_round<S, KEYS>(weights, s);
    for (int step = 1; step < steps; step++) {
        aril_cuda_arrive<STAGES - 3>();
        aril_cuda_show_tiles();
        __syncthreads();
        fetch(step + STAGES - 2);
        if (step >= own_steps) continue; /* the other queries of the block see more keys */
        aril_cuda_group_begin();
        aril_cuda_dots<S, KEYS, D>(s, q_tile, QUERIES, group * 64, k_tile + step % STAGES * TILE,
                                   KEYS);
        aril_cuda_group_end();
        aril_cuda_add_rows<S, D, KEYS>(sum, weights, v_tile + (step - 1) % STAGES * TILE);
        aril_cuda_group_end();
        aril_cuda_group_wait<1>();
        aril_cuda_settle(s);
        weigh(step * KEYS, by);
        aril_cuda_group_wait<0>();
        aril_cuda_settle(sum);
        aril_cuda_settle(weights);
        if (__any_sync(0xffffffffu, by[0] != 1.0f || by[1] != 1.0f)) {
#pragma unroll
            for (int n = 0; n < D / 2; n++) sum[n] *= by[n / 2 % 2];
        }
        aril_cuda_round<S, KEYS>(weights, s);
    }
    aril_cuda_group_begin();
    aril_cuda_add_rows<S, D, KEYS>(sum, weights, v_tile + (own_steps - 1) % STAGES * TILE);
    aril_cuda_group_end();
    aril_cuda_group_wait<0>();
    aril_cuda_settle(sum);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float x = total[half];
        x += __shfl_xor_sync(0xffffffffu, x, 1);
        x += __shfl_xor_sync(0xffffffffu, x, 2);
        if (row + half * 8 >= length) continue;
        float by_total = x == 0.0f ? 0.0f : 1.0f / x;
        if (t == 0)
            lse[b * a.l + row + half * 8] =
                x == 0.0f ? INFINITY : (top[half] + log2f(x)) * 0.6931471805599453f;
        S *to = aril_cuda_out_row<S>(job, y, b, row + half * 8);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (n * 8 < a.ev)
                *reinterpret_cast<uint32_t *>(to + n * 8 + 2 * t) =
                    aril_cuda_pack(S(), sum[n * 4 + 2 * half] * by_total,
                                   sum[n * 4 + 2 * half + 1] * by_total);
    }
#endif
}

/* ---- rows ---- */

const char *aril_cuda_wgmma_refuses(const aril_run *r)
{
    aril_cuda_attention a = aril_cuda_attention_of(r);
    if (aril_cuda_device_of(r)->major != 9) return "not a GPU of compute capability 9.0";
    if (aril_cuda_in(r, ATTENTION_MASK)) return "a mask";
    if (!(a.scale > 0)) return "a scale that is not above 0";
    if (a.l > INT32_MAX / 2 || a.s > INT32_MAX / 2) return "2^30 queries or keys";
    return nullptr;
}

bool aril_cuda_wgmma_reads(const aril_cuda_heads_job &job, bool gradient)
{
    return job.q.aligned && job.k.aligned && job.v.aligned &&
           (!gradient || (job.y.aligned && job.g.aligned));
}

const char *aril_cuda_attention_wgmma_prepare(const aril_run *r, aril_plan *plan)
{
    const char *why = aril_cuda_heads_prepare(r, plan, false);
    return why ? why : aril_cuda_wgmma_refuses(r);
}

template <typename S, int D, int KEYS, int WGS, int STAGES, int BLOCKS>
static aril_status launch(aril_run *r, const aril_cuda_heads_job &job, const aril_cuda_heads_out &y)
{
    enum { QUERIES = WGS * 64, BYTES = (QUERIES + 2 * STAGES * KEYS) * D * 2 };
    static_assert(STAGES * KEYS >= QUERIES, "a warpgroup's last tile is not overwritten");
    auto kernel = forward<S, D, KEYS, WGS, STAGES, BLOCKS>;
    int64_t blocks = job.a.batch * ((job.a.l + QUERIES - 1) / QUERIES);
    cudaStream_t stream = aril_cuda_stream(r);
    aril_status s = aril_cuda_allow_shared(r, kernel, BYTES);
    if (s < 0) return s;
    kernel<<<(unsigned)blocks, WGS * 128, BYTES, stream>>>(
        y, (float *)aril_cuda_data(aril_cuda_out(r, 1)), job);
    return aril_cuda_launched(r);
}

template <typename S>
static aril_status run_as(aril_run *r, const aril_cuda_heads_job &job, const aril_cuda_heads_out &y)
{
    if (job.a.e <= 64 && job.a.ev <= 64) return launch<S, 64, 64, 2, 4, 2>(r, job, y);
    return launch<S, 128, 128, 2, 3, 1>(r, job, y);
}

aril_status aril_cuda_attention_wgmma_run(aril_run *r)
{
    aril_cuda_heads_job job = aril_cuda_heads_of(r, false);
    aril_cuda_heads_out y = aril_cuda_heads_out_of(r, 0);
    if (!aril_cuda_wgmma_reads(job, false) || (uintptr_t)y.at % 4)
        return aril_cuda_attention_mma_run(r);
    if (aril_cuda_host->dtype(aril_cuda_in(r, ATTENTION_Q)) == ARIL_F16)
        return run_as<aril_cuda_f16>(r, job, y);
    return run_as<aril_cuda_bf16>(r, job, y);
}
