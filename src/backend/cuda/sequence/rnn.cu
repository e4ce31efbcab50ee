/* Recurrent sequences. The inputs of all steps are multiplied by W_ih at once. Then, if W_hh fits
 * into shared memory, one kernel runs all steps of a few sequences. Otherwise each step is one
 * kernel for few sequences, or one product and one kernel for its gates. */
#include "backend/cuda/sequence/rnn.cuh"

#include <cuda_pipeline_primitives.h>
#include <new>

/* What the steps read and write. */
template <typename T> struct tensors {
    const T *xw; /* x W_ih^T: [T,N,G*H] */
    const T *b_ih, *b_hh, *h0, *c0, *w_hh;
    T *y, *hn, *cn, *kept; /* kept: the reserve, or NULL */
};

/* What the biases and the input contribute to the gates of element i of sequence n at step t. */
template <typename T>
static __device__ __forceinline__ void read_inputs(const aril_cuda_rnn &s, const tensors<T> &p,
                                                   int64_t t, int64_t n, int64_t i, T *x)
{
#pragma unroll
    for (int q = 0; q < 4; q++)
        if (q < s.gates) {
            x[q] = p.xw[((t * s.batch + n) * s.gates + q) * s.h + i];
            if (p.b_ih) x[q] += p.b_ih[q * s.h + i];
        }
}

template <typename T>
static __device__ __forceinline__ void keep(const aril_cuda_rnn &s, const tensors<T> &p, int64_t t,
                                            int64_t n, int64_t i, const T *kept)
{
    if (!p.kept || s.kind == ARIL__RNN) return;
#pragma unroll
    for (int q = 0; q < 5; q++)
        if (q < s.slots) p.kept[((t * s.batch + n) * s.slots + q) * s.h + i] = kept[q];
}

/* ---- all steps by one kernel ---- */

/* A block runs `side` sequences; thread j element j % H of sequence j / H. */
template <typename T>
static __global__ void all_steps(const __grid_constant__ aril_cuda_rnn s,
                                 const __grid_constant__ tensors<T> p, int side,
                                 const __grid_constant__ aril_cuda_report report)
{
    extern __shared__ __align__(16) unsigned char shared[];
    int h = (int)s.h, row = (int)(s.gates * s.h);
    T *w = reinterpret_cast<T *>(shared), *state = w + (size_t)h * row; /* w: [H,G*H] */
    for (int j = threadIdx.x; j < h * row; j += blockDim.x) w[j % h * row + j / h] = p.w_hh[j];
    int i = threadIdx.x % h, of = threadIdx.x / h;
    int64_t n = (int64_t)blockIdx.x * side + of;
    bool mine = of < side && n < s.batch;
    int64_t length = mine ? aril_cuda_rnn_length(s, n) : 0;
    T before = mine && p.h0 ? p.h0[n * h + i] : T(0), cell = 0, bias[4] = {}, x[4] = {};
    if (mine && i == 0) aril_cuda_rnn_check(s, report, n);
    if (mine && p.c0 && s.kind == ARIL__LSTM) cell = p.c0[n * h + i];
    for (int q = 0; q < 4; q++)
        if (mine && p.b_hh && q < s.gates) bias[q] = p.b_hh[q * h + i];
    if (mine) {
        state[of * h + i] = before;
        read_inputs(s, p, s.reverse ? s.steps - 1 : 0, n, i, x);
    }
    __syncthreads();
    for (int64_t k = 0; k < s.steps; k++) {
        int64_t t = s.reverse ? s.steps - 1 - k : k;
        T now = before;
        if (mine) {
            T a[4], next[4] = {}, kept[5];
            bool active = t < length;
            if (k + 1 < s.steps) read_inputs(s, p, s.reverse ? t - 1 : t + 1, n, i, next);
#pragma unroll
            for (int q = 0; q < 4; q++) a[q] = bias[q];
            if (active) {
                const T *from = state + of * h;
                if (s.gates == 1) {
#pragma unroll 4
                    for (int j = 0; j < h; j++) a[0] += w[j * row + i] * from[j];
                } else {
                    for (int j = 0; j < h; j++)
#pragma unroll
                        for (int q = 0; q < 4; q++)
                            if (q < s.gates) a[q] += w[j * row + q * h + i] * from[j];
                }
                now = aril_cuda_rnn_unit(s, x, a, before, cell, kept);
                keep(s, p, t, n, i, kept);
            }
            p.y[(t * s.batch + n) * h + i] = active ? now : T(0);
#pragma unroll
            for (int q = 0; q < 4; q++) x[q] = next[q];
        }
        __syncthreads();
        if (mine) state[of * h + i] = before = now;
        __syncthreads();
    }
    if (!mine) return;
    p.hn[n * h + i] = before;
    if (s.kind == ARIL__LSTM) p.cn[n * h + i] = cell;
}

static size_t shared_bytes(const aril_cuda_rnn &s)
{
    return (size_t)(s.h * (s.gates * s.h + aril_cuda_rnn_side(s))) * (size_t)aril_cuda_rnn_size(s);
}

static bool fits(const aril_run *r, const aril_cuda_rnn &s)
{
    return s.h <= 1024 && shared_bytes(s) <= aril_cuda_device_of(r)->shared_per_block;
}

/* ---- a kernel for each step ---- */

/* One step, t. rec: the state before it times W_hh^T, or NULL for zeros. */
template <typename T> struct one_step {
    int64_t t;
    bool first, last;
    const T *rec, *before;
    T *next; /* the state after it, if lengths differ */
};

/* Element i of sequence n. All that is read of memory is read before the first use, as every use
 * would wait; a: what W_hh contributes to its gates. */
template <typename T> struct element {
    T x[4], b_ih[4], b_hh[4], before, cell;
    bool active;

    __device__ __forceinline__ element(const aril_cuda_rnn &s, const tensors<T> &p,
                                       const one_step<T> &at, int64_t n, int64_t i)
    {
        int64_t j = n * s.h + i;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int64_t to = q * s.h + i;
            x[q] = q < s.gates ? p.xw[(at.t * s.batch + n) * s.gates * s.h + to] : T(0);
            b_ih[q] = q < s.gates && p.b_ih ? p.b_ih[to] : T(0);
            b_hh[q] = q < s.gates && p.b_hh ? p.b_hh[to] : T(0);
        }
        before = at.before ? at.before[j] : T(0);
        const T *cells = s.kind != ARIL__LSTM ? nullptr : at.first ? p.c0 : p.cn;
        cell = cells ? cells[j] : T(0);
        active = at.t < aril_cuda_rnn_length(s, n);
    }
    __device__ __forceinline__ void run(const aril_cuda_rnn &s, const tensors<T> &p,
                                        const one_step<T> &at, int64_t n, int64_t i, T (&a)[4])
    {
        int64_t j = n * s.h + i;
        T now = before, kept[5];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            x[q] += b_ih[q];
            a[q] += b_hh[q];
        }
        if (active) {
            now = aril_cuda_rnn_unit(s, x, a, before, cell, kept);
            keep(s, p, at.t, n, i, kept);
        }
        p.y[at.t * s.batch * s.h + j] = active ? now : T(0);
        if (at.next) at.next[j] = now;
        if (at.last) p.hn[j] = now;
        if (s.kind == ARIL__LSTM) p.cn[j] = cell;
    }
};

/* Threads along the state, blocks along y for sequences. */
template <typename T>
static __global__ void step(const __grid_constant__ aril_cuda_rnn s,
                            const __grid_constant__ tensors<T> p,
                            const __grid_constant__ one_step<T> at,
                            const __grid_constant__ aril_cuda_report report)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t n = blockIdx.y; i < s.h && n < s.batch; n += gridDim.y) {
        T a[4];
#pragma unroll
        for (int q = 0; q < 4; q++)
            a[q] = at.rec && q < s.gates ? at.rec[(n * s.gates + q) * s.h + i] : T(0);
        element<T> e(s, p, at, n, i);
        if (at.first && i == 0) aril_cuda_rnn_check(s, report, n);
        e.run(s, p, at, n, i, a);
    }
}

/* ---- the product and the gates of a step by one kernel ---- */

/* A block computes UNITS elements of the state of up to ROWS sequences. The depth of the product is
 * shared by its warps, each with buffers of its own: rows of states, then rows of W_hh. */
enum { ROWS = 64, UNITS = 4, WARPS = 8, DEPTH = 16, STAGES = 4, PITCH = DEPTH + 4 };

template <int G> static constexpr size_t fused_bytes()
{
    return sizeof(float) * WARPS * STAGES * (ROWS + UNITS * G) * PITCH;
}

/* Begins to copy columns k .. k + DEPTH - 1 of the block's rows into a buffer of this warp. */
template <int G>
static __device__ __forceinline__ void fetch(const aril_cuda_rnn &s, const float *state,
                                             const float *w, float *to, int k)
{
    const int h = (int)s.h, lane = threadIdx.x % 32, n0 = (int)blockIdx.y * ROWS;
    const int i0 = (int)blockIdx.x * UNITS, pieces = DEPTH / 4;
    for (int c = lane; c < (ROWS + UNITS * G) * pieces; c += 32) {
        int row = c / pieces, at = k + c % pieces * 4, unit = (row - ROWS) % UNITS;
        bool of_state = row < ROWS;
        bool inside = at < h && (of_state ? n0 + row < s.batch : i0 + unit < h);
        const float *from = of_state ? state : w;
        if (inside)
            from +=
                (of_state ? (int64_t)(n0 + row) : (int64_t)((row - ROWS) / UNITS) * h + i0 + unit) *
                    h +
                at;
        __pipeline_memcpy_async(to + row * PITCH + c % pieces * 4, from, 16, inside ? 0 : 16);
    }
}

/* Adds the product of a buffer to the sums of rows lane / UNITS + 8 r and gates of unit lane %
 * UNITS. */
template <int G>
static __device__ __forceinline__ void multiply(const float *from, float (&sum)[8][G])
{
    const int lane = threadIdx.x % 32, first = lane / UNITS, unit = lane % UNITS;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 4) {
        float4 w[G];
#pragma unroll
        for (int q = 0; q < G; q++)
            w[q] = *reinterpret_cast<const float4 *>(from + (ROWS + q * UNITS + unit) * PITCH + k);
#pragma unroll
        for (int r = 0; r < 8; r++) {
            float4 v = *reinterpret_cast<const float4 *>(from + (first + 8 * r) * PITCH + k);
#pragma unroll
            for (int q = 0; q < G; q++) {
                sum[r][q] = fmaf(v.x, w[q].x, sum[r][q]);
                sum[r][q] = fmaf(v.y, w[q].y, sum[r][q]);
                sum[r][q] = fmaf(v.z, w[q].z, sum[r][q]);
                sum[r][q] = fmaf(v.w, w[q].w, sum[r][q]);
            }
        }
    }
}

template <int G>
static __global__ void __launch_bounds__(32 * WARPS)
    fused_step(const __grid_constant__ aril_cuda_rnn s, const __grid_constant__ tensors<float> p,
               const __grid_constant__ one_step<float> at,
               const __grid_constant__ aril_cuda_report report)
{
    extern __shared__ float4 buffers[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, h = (int)s.h;
    float *buffer = reinterpret_cast<float *>(buffers) + warp * STAGES * (ROWS + UNITS * G) * PITCH;
    const int stage = (ROWS + UNITS * G) * PITCH;
    /* The columns of this warp. */
    int each = (h + WARPS * DEPTH - 1) / (WARPS * DEPTH) * DEPTH, begin = warp * each;
    int end = begin + each < h ? begin + each : h;
    int steps = begin < end ? (end - begin + DEPTH - 1) / DEPTH : 0;
    for (int j = 0; j < STAGES; j++) {
        if (j < steps) fetch<G>(s, at.before, p.w_hh, buffer + j * stage, begin + j * DEPTH);
        __pipeline_commit();
    }
    /* The element that this thread finishes. */
    int64_t n = (int64_t)blockIdx.y * ROWS + threadIdx.x / UNITS;
    int64_t i = (int64_t)blockIdx.x * UNITS + threadIdx.x % UNITS;
    bool mine = n < s.batch && i < s.h;
    element<float> e(s, p, at, mine ? n : 0, mine ? i : 0);
    if (mine && at.first && i == 0) aril_cuda_rnn_check(s, report, n);
    float sum[8][G] = {};
    for (int j = 0; j < steps; j++) {
        __pipeline_wait_prior(STAGES - 1);
        __syncwarp();
        multiply<G>(buffer + j % STAGES * stage, sum);
        __syncwarp();
        if (j + STAGES < steps)
            fetch<G>(s, at.before, p.w_hh, buffer + j % STAGES * stage,
                     begin + (j + STAGES) * DEPTH);
        __pipeline_commit();
    }
    __syncthreads();
    float *part = reinterpret_cast<float *>(buffers); /* [WARPS][ROWS][UNITS][G] */
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int q = 0; q < G; q++)
            part[((warp * ROWS + lane / UNITS + 8 * r) * UNITS + lane % UNITS) * G + q] = sum[r][q];
    __syncthreads();
    float a[4] = {};
    for (int w = 0; w < WARPS; w++)
#pragma unroll
        for (int q = 0; q < G; q++) a[q] += part[(w * 32 * WARPS + threadIdx.x) * G + q];
    if (mine) e.run(s, p, at, n, i, a);
}

static const void *fused_kernel(const aril_cuda_rnn &s, size_t *bytes)
{
    *bytes = s.gates == 4 ? fused_bytes<4>() : s.gates == 3 ? fused_bytes<3>() : fused_bytes<1>();
    return reinterpret_cast<const void *>(s.gates == 4   ? fused_step<4>
                                          : s.gates == 3 ? fused_step<3>
                                                         : fused_step<1>);
}

/* Whether steps are done so: beyond few sequences a library multiplies faster. */
static bool fuses(const aril_run *r, const aril_cuda_rnn &s)
{
    size_t bytes;
    fused_kernel(s, &bytes);
    return !s.wide && s.batch <= ROWS && s.h % 4 == 0 && s.h <= INT32_MAX / 4 &&
           bytes <= aril_cuda_device_of(r)->shared_per_block;
}

static bool is_aligned(const void *a, const void *b, const void *c)
{
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
}

/* ---- plans ---- */

static aril_cuda_seq_product product_of(const aril_cuda_rnn &s, int which)
{
    int64_t all = s.steps * s.batch, row = s.gates * s.h, in = s.inputs, h = s.h;
    switch (which) {
    case ARIL_CUDA_RNN_INPUTS: return { all, row, in, in, 1, 1, in, false, s.wide };
    case ARIL_CUDA_RNN_STEP: return { s.batch, row, h, h, 1, 1, h, false, s.wide };
    case ARIL_CUDA_RNN_STATES: return { all, row, h, h, 1, 1, h, false, s.wide };
    case ARIL_CUDA_RNN_BACK: return { s.batch, h, row, row, 1, h, 1, true, s.wide };
    case ARIL_CUDA_RNN_DX: return { all, in, row, row, 1, in, 1, false, s.wide };
    case ARIL_CUDA_RNN_DW_IH: return { row, in, all, 1, row, in, 1, false, s.wide };
    default: return { row, h, all, 1, row, h, 1, false, s.wide };
    }
}

const char *aril_cuda_rnn_plan_new(const aril_run *r, const aril_cuda_rnn &s, uint32_t which,
                                   size_t used, aril_plan *plan)
{
    aril_cuda_rnn_plan *p = new (std::nothrow) aril_cuda_rnn_plan();
    size_t most = 0;
    if (!p) return "out of memory";
    aril_cuda_use(aril_cuda_device_of(r));
    for (int i = 0; i < ARIL_CUDA_RNN_PRODUCTS; i++) {
        p->of[i] = product_of(s, i);
        if (which >> i & 1) aril_cuda_seq_prepare(r, &p->of[i]);
        if (p->of[i].workspace > most) most = p->of[i].workspace;
    }
    p->workspace = (used + 255) / 256 * 256;
    plan->workspace = p->workspace + most;
    plan->prepared = p;
    return nullptr;
}

void aril_cuda_rnn_plan_free(void *prepared)
{
    delete static_cast<aril_cuda_rnn_plan *>(prepared);
}

/* ---- rows ---- */

struct space {
    size_t xw, rec, states, total;
};

static space space_of(const aril_cuda_rnn &s)
{
    space at = {};
    int64_t state = s.batch * s.h;
    at.xw = aril_cuda_rnn_take(s, &at.total, s.steps * state * s.gates);
    at.rec = aril_cuda_rnn_take(s, &at.total, state * s.gates);
    at.states = aril_cuda_rnn_take(s, &at.total, 2 * state);
    return at;
}

/* One step, whose product is done before or, fused, within its kernel. */
template <typename T>
static aril_status run_step(aril_run *r, const aril_cuda_rnn &s, tensors<T> p, one_step<T> at,
                            T *rec, bool fused)
{
    aril_cuda_report report = aril_cuda_report_of(r);
    if (at.before && fused) {
        size_t bytes;
        const void *kernel = fused_kernel(s, &bytes);
        void *args[] = { const_cast<aril_cuda_rnn *>(&s), &p, &at, &report };
        dim3 grid((unsigned)((s.h + UNITS - 1) / UNITS), (unsigned)((s.batch + ROWS - 1) / ROWS));
        cudaLaunchKernel(kernel, grid, dim3(32 * WARPS), args, bytes, aril_cuda_stream(r));
        return aril_cuda_launched(r);
    }
    if (at.before) {
        at.rec = rec;
        aril_status status = aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_STEP, at.before, p.w_hh, rec);
        if (status < 0) return status;
    }
    dim3 grid((unsigned)((s.h + 127) / 128), (unsigned)(s.batch < 65535 ? s.batch : 65535));
    step<T><<<grid, 128, 0, aril_cuda_stream(r)>>>(s, p, at, report);
    return aril_cuda_launched(r);
}

template <typename T>
static aril_status run_steps(aril_run *r, const aril_cuda_rnn &s, const tensors<T> &p, T *rec,
                             T *states)
{
    int64_t state = s.batch * s.h;
    aril_status status = ARIL_OK;
    const T *before = p.h0;
    bool fused = fuses(r, s) && is_aligned(p.w_hh, p.h0, p.y) && is_aligned(states, rec, rec);
    size_t bytes;
    const void *kernel = fused_kernel(s, &bytes);
    if (fused)
        status = aril_cuda_check(
            r,
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
            "shared memory");
    for (int64_t k = 0; k < s.steps && status == ARIL_OK; k++) {
        one_step<T> at = {
            s.reverse ? s.steps - 1 - k : k, k == 0, k == s.steps - 1, nullptr, before, nullptr
        };
        if (s.len) at.next = states + k % 2 * state;
        status = run_step<T>(r, s, p, at, rec, fused);
        before = s.len ? at.next : p.y + at.t * state;
    }
    return status;
}

template <typename T> static aril_status run_as(aril_run *r, const aril_cuda_rnn &s)
{
    space at = space_of(s);
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    T *xw = reinterpret_cast<T *>(memory + at.xw);
    const aril_tensor *reserve = aril_cuda_out(r, RNN_RESERVE);
    bool kept = s.kind != ARIL__RNN && aril_cuda_attrs<rnn_seq_attrs>(r)->keep[0];
    tensors<T> p = { xw,
                     aril_cuda_rnn_in<T>(r, RNN_B_IH),
                     aril_cuda_rnn_in<T>(r, RNN_B_HH),
                     aril_cuda_rnn_in<T>(r, RNN_H0),
                     aril_cuda_rnn_in<T>(r, RNN_C0),
                     aril_cuda_rnn_in<T>(r, RNN_W_HH),
                     (T *)aril_cuda_data(aril_cuda_out(r, RNN_Y)),
                     (T *)aril_cuda_data(aril_cuda_out(r, RNN_HN)),
                     s.kind == ARIL__LSTM ? (T *)aril_cuda_data(aril_cuda_out(r, RNN_CN)) : nullptr,
                     kept ? (T *)aril_cuda_data(reserve) : nullptr };
    aril_status status =
        aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_INPUTS, aril_cuda_rnn_in<T>(r, RNN_X),
                               aril_cuda_rnn_in<T>(r, RNN_W_IH), xw);
    if (status < 0) return status;
    if (fits(r, s)) return aril_cuda_rnn_all_steps(r, s, p, all_steps<T>, shared_bytes(s));
    return run_steps<T>(r, s, p, reinterpret_cast<T *>(memory + at.rec),
                        reinterpret_cast<T *>(memory + at.states));
}

static aril_status run(aril_run *r, aril__rnn_kind kind)
{
    const rnn_seq_attrs *at = aril_cuda_attrs<rnn_seq_attrs>(r);
    aril_cuda_rnn s = aril_cuda_rnn_of(r, kind, RNN_W_IH);
    if (s.batch == 0 || s.h == 0) return ARIL_OK;
    s.relu = at->relu[0] != 0;
    s.reverse = at->reverse[0] != 0;
    s.len = aril_cuda_rnn_in<int64_t>(r, RNN_LEN);
    return s.wide ? run_as<double>(r, s) : run_as<float>(r, s);
}

static const char *prepare(const aril_run *r, aril_plan *plan, aril__rnn_kind kind)
{
    aril_cuda_rnn s = aril_cuda_rnn_of(r, kind, RNN_W_IH);
    uint32_t which = 1u << ARIL_CUDA_RNN_INPUTS;
    if (s.batch > 0 && s.h > 0 && !fits(r, s)) which |= 1u << ARIL_CUDA_RNN_STEP;
    plan->reserve = aril_cuda_attrs<rnn_seq_attrs>(r)->keep[0] ? aril_cuda_rnn_reserve(s) : 0;
    return aril_cuda_rnn_plan_new(r, s, which, space_of(s).total, plan);
}

#define ROW(name, kind)                                                        \
    const char *aril_cuda_##name##_prepare(const aril_run *r, aril_plan *plan) \
    {                                                                          \
        return prepare(r, plan, kind);                                         \
    }                                                                          \
    aril_status aril_cuda_##name##_run(aril_run *r)                            \
    {                                                                          \
        return run(r, kind);                                                   \
    }
ROW(rnn, ARIL__RNN)
ROW(lstm, ARIL__LSTM)
ROW(gru, ARIL__GRU)
