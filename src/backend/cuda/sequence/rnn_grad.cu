/* Gradients of recurrent sequences: the steps backwards, by one kernel if W_hh fits into shared
 * memory, and then products over all steps. */
#include "backend/cuda/sequence/rnn.cuh"

/* What the steps read and write. */
template <typename T> struct tensors {
    const T *y, *h0, *c0, *kept, *gy, *gh, *gc, *w_hh;
    T *dx, *back; /* gradients of the gates, [T,N,G*H]: at W_ih, and, if it differs, at W_hh */
    T *dh, *dc;   /* of the initial states */
};

/* The step before t of sequence n, -1 if t is its first. */
static __device__ __forceinline__ int64_t step_before(const aril_cuda_rnn &s, int64_t t,
                                                      int64_t length)
{
    if (s.reverse) return t >= length - 1 ? -1 : t + 1;
    return t - 1;
}

/* Step t of element i of sequence n. dh: of the state after it, without gy. */
template <typename T>
static __device__ __forceinline__ T back_unit(const aril_cuda_rnn &s, const tensors<T> &p,
                                              int64_t t, int64_t n, int64_t i, int64_t length, T dh,
                                              T &dc, T *back)
{
    int64_t state = s.batch * s.h, j = n * s.h + i, from = step_before(s, t, length);
    T dx[4] = {}, kept[5] = {}, before = 0, cell = 0, straight = dh;
    bool active = t < length;
#pragma unroll
    for (int q = 0; q < 4; q++) back[q] = 0;
    if (active) {
        if (s.kind != ARIL__RNN) {
            const T *at = p.kept + (t * s.batch + n) * s.slots * s.h + i;
#pragma unroll
            for (int q = 0; q < 5; q++)
                if (q < s.slots) kept[q] = at[q * s.h];
        }
        if (s.kind == ARIL__GRU) before = from >= 0 ? p.y[from * state + j] : p.h0 ? p.h0[j] : T(0);
        if (s.kind == ARIL__LSTM)
            cell = from >= 0 ? p.kept[((from * s.batch + n) * s.slots + 4) * s.h + i]
                   : p.c0    ? p.c0[j]
                             : T(0);
        if (p.gy) dh += p.gy[t * state + j];
        straight = aril_cuda_rnn_back(s, dh, dc, kept, before, cell, p.y[t * state + j], dx, back);
    }
    int64_t at = (t * s.batch + n) * s.gates * s.h + i;
#pragma unroll
    for (int q = 0; q < 4; q++)
        if (q < s.gates) {
            p.dx[at + q * s.h] = dx[q];
            if (p.back) p.back[at + q * s.h] = back[q];
        }
    return straight;
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
    T *w = reinterpret_cast<T *>(shared), *gates = w + (size_t)h * row; /* w: [G*H,H] */
    for (int j = threadIdx.x; j < h * row; j += blockDim.x) w[j] = p.w_hh[j];
    int i = threadIdx.x % h, of = threadIdx.x / h;
    int64_t n = (int64_t)blockIdx.x * side + of;
    bool mine = of < side && n < s.batch;
    int64_t length = mine ? aril_cuda_rnn_length(s, n) : 0;
    T dh = mine && p.gh ? p.gh[n * h + i] : T(0), dc = mine && p.gc ? p.gc[n * h + i] : T(0);
    if (mine && i == 0) aril_cuda_rnn_check(s, report, n);
    __syncthreads();
    for (int64_t k = 0; k < s.steps; k++) {
        int64_t t = s.reverse ? k : s.steps - 1 - k;
        T back[4];
        if (mine) {
            dh = back_unit(s, p, t, n, i, length, dh, dc, back);
#pragma unroll
            for (int q = 0; q < 4; q++)
                if (q < s.gates) gates[of * row + q * h + i] = back[q];
        }
        __syncthreads();
        if (mine && t < length) {
            const T *from = gates + of * row;
            T sum[4] = {}; /* four sums, so that additions do not wait for each other */
            int j = 0;
            for (; j + 4 <= row; j += 4)
#pragma unroll
                for (int q = 0; q < 4; q++) sum[q] += from[j + q] * w[(j + q) * h + i];
            for (; j < row; j++) sum[0] += from[j] * w[j * h + i];
            dh += (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
        __syncthreads();
    }
    if (!mine) return;
    p.dh[n * h + i] = dh;
    if (s.kind == ARIL__LSTM) p.dc[n * h + i] = dc;
}

static size_t shared_bytes(const aril_cuda_rnn &s)
{
    return (size_t)(s.gates * s.h * (s.h + aril_cuda_rnn_side(s))) * (size_t)aril_cuda_rnn_size(s);
}

static bool fits(const aril_run *r, const aril_cuda_rnn &s)
{
    return s.h <= 1024 && shared_bytes(s) <= aril_cuda_device_of(r)->shared_per_block;
}

/* ---- a kernel for each step ---- */

template <typename T>
static __global__ void step(const __grid_constant__ aril_cuda_rnn s,
                            const __grid_constant__ tensors<T> p, int64_t t, bool first,
                            const __grid_constant__ aril_cuda_report report)
{
    ARIL_CUDA_LOOP(j, s.batch * s.h)
    {
        int64_t n = j / s.h, i = j % s.h;
        T back[4], dc = 0, dh = first ? (p.gh ? p.gh[j] : T(0)) : p.dh[j];
        if (s.kind == ARIL__LSTM) dc = first ? (p.gc ? p.gc[j] : T(0)) : p.dc[j];
        if (first && i == 0) aril_cuda_rnn_check(s, report, n);
        p.dh[j] = back_unit(s, p, t, n, i, aril_cuda_rnn_length(s, n), dh, dc, back);
        if (s.kind == ARIL__LSTM) p.dc[j] = dc;
    }
}

/* ---- before and after the steps ---- */

/* The state before each step: [T,N,H]. */
template <typename T>
static __global__ void states_before(const __grid_constant__ aril_cuda_rnn s, const T *y,
                                     const T *h0, T *before)
{
    int64_t state = s.batch * s.h;
    ARIL_CUDA_LOOP(at, s.steps * state)
    {
        int64_t t = at / state, j = at % state;
        int64_t from = step_before(s, t, aril_cuda_rnn_length(s, j / s.h));
        before[at] = from >= 0 ? y[from * state + j] : h0 ? h0[j] : T(0);
    }
}

/* What the reserve would hold, from the products of inputs and states with the weights. */
template <typename T>
static __global__ void recompute(const __grid_constant__ aril_cuda_rnn s, const T *xw, const T *rec,
                                 const T *b_ih, const T *b_hh, const T *c0, T *to)
{
    ARIL_CUDA_LOOP(j, s.batch * s.h)
    {
        int64_t n = j / s.h, i = j % s.h, length = aril_cuda_rnn_length(s, n);
        T cell = c0 ? c0[j] : T(0);
        for (int64_t k = 0; k < length; k++) {
            int64_t t = s.reverse ? length - 1 - k : k;
            int64_t from = (t * s.batch + n) * s.gates * s.h + i;
            T x[4], a[4], kept[5];
#pragma unroll
            for (int q = 0; q < 4; q++)
                if (q < s.gates) {
                    x[q] = xw[from + q * s.h] + (b_ih ? b_ih[q * s.h + i] : T(0));
                    a[q] = rec[from + q * s.h] + (b_hh ? b_hh[q * s.h + i] : T(0));
                }
            aril_cuda_rnn_unit(s, x, a, T(0), cell, kept);
#pragma unroll
            for (int q = 0; q < 5; q++)
                if (q < s.slots) to[((t * s.batch + n) * s.slots + q) * s.h + i] = kept[q];
        }
    }
}

/* Sums of rows [rows,n] in pieces: piece p of column c in to[p n + c]. Blocks of 32 x 8 threads. */
template <typename T>
static __global__ void sum_rows(const T *from, T *to, int64_t rows, int64_t n, int64_t per_piece)
{
    __shared__ T part[8][33];
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    int64_t column = (int64_t)blockIdx.x * 32 + x, first = (int64_t)blockIdx.y * per_piece;
    int64_t end = first + per_piece < rows ? first + per_piece : rows;
    T sum = 0;
    for (int64_t i = first + y; i < end && column < n; i += 8) sum += from[i * n + column];
    part[y][x] = sum;
    __syncthreads();
    if (y > 0 || column >= n) return;
    for (int i = 1; i < 8; i++) sum += part[i][x];
    to[(int64_t)blockIdx.y * n + column] = sum;
}

/* ---- rows ---- */

enum { PIECES = 256, PER_PIECE = 64 };

static int64_t pieces_of(int64_t rows)
{
    int64_t pieces = (rows + PER_PIECE - 1) / PER_PIECE;
    return pieces > PIECES ? (int64_t)PIECES : pieces;
}

/* before: the states before each step; xw and rec, for recomputing, lie where dx and back will. */
struct space {
    size_t dx, back, before, sums, kept, rec, total;
};

static space space_of(const aril_cuda_rnn &s, bool anew)
{
    space at = {};
    int64_t state = s.batch * s.h, row = s.gates * s.h;
    at.dx = aril_cuda_rnn_take(s, &at.total, s.steps * state * s.gates);
    at.back =
        s.kind == ARIL__GRU ? aril_cuda_rnn_take(s, &at.total, s.steps * state * s.gates) : at.dx;
    at.before = aril_cuda_rnn_take(s, &at.total, s.steps * state);
    at.sums = aril_cuda_rnn_take(s, &at.total, pieces_of(s.steps * s.batch) * row);
    if (!anew) return at;
    at.kept = aril_cuda_rnn_take(s, &at.total, s.steps * state * s.slots);
    at.rec =
        s.kind == ARIL__GRU ? at.back : aril_cuda_rnn_take(s, &at.total, s.steps * state * s.gates);
    return at;
}

template <typename T>
static aril_status run_steps(aril_run *r, const aril_cuda_rnn &s, const tensors<T> &p)
{
    int64_t row = s.gates * s.h, state = s.batch * s.h;
    aril_cuda_report report = aril_cuda_report_of(r);
    const T *back = p.back ? p.back : p.dx;
    for (int64_t k = 0; k < s.steps; k++) {
        int64_t t = s.reverse ? k : s.steps - 1 - k;
        step<T><<<aril_cuda_blocks(r, state, 256), 256, 0, aril_cuda_stream(r)>>>(s, p, t, k == 0,
                                                                                  report);
        aril_status status = aril_cuda_launched(r);
        if (status == ARIL_OK)
            status = aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_BACK, back + t * s.batch * row, p.w_hh,
                                            p.dh);
        if (status < 0) return status;
    }
    return ARIL_OK;
}

/* The sum over all steps and sequences of gradients of gates: that of a bias. */
template <typename T>
static aril_status grad_bias(aril_run *r, const aril_cuda_rnn &s, const T *from, T *sums, T *to)
{
    int64_t rows = s.steps * s.batch, n = s.gates * s.h, pieces = pieces_of(rows);
    int64_t per_piece = (rows + pieces - 1) / pieces;
    unsigned across = (unsigned)((n + 31) / 32);
    cudaStream_t stream = aril_cuda_stream(r);
    T *first = pieces == 1 ? to : sums;
    sum_rows<T>
        <<<dim3(across, (unsigned)pieces), 256, 0, stream>>>(from, first, rows, n, per_piece);
    if (pieces > 1) sum_rows<T><<<across, 256, 0, stream>>>(sums, to, pieces, n, pieces);
    return aril_cuda_launched(r);
}

/* The results that are products over all steps. */
template <typename T>
static aril_status finish(aril_run *r, const aril_cuda_rnn &s, const tensors<T> &p, const T *before,
                          T *sums)
{
    const rnn_grad_attrs *at = aril_cuda_attrs<rnn_grad_attrs>(r);
    const T *back = p.back ? p.back : p.dx, *x = aril_cuda_rnn_in<T>(r, GRAD_X);
    aril_status status = ARIL_OK;
    if (!at->no_dx[0]) {
        status =
            aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_DX, p.dx, aril_cuda_rnn_in<T>(r, GRAD_W_IH),
                                   aril_cuda_data(aril_cuda_out(r, GRAD_DX)));
    }
    if (status < 0 || at->no_dw[0]) return status;
    status = aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_DW_IH, p.dx, x,
                                    aril_cuda_data(aril_cuda_out(r, GRAD_DW_IH)));
    if (status == ARIL_OK)
        status = aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_DW_HH, back, before,
                                        aril_cuda_data(aril_cuda_out(r, GRAD_DW_HH)));
    T *db_ih = (T *)aril_cuda_data(aril_cuda_out(r, GRAD_DB_IH));
    T *db_hh = (T *)aril_cuda_data(aril_cuda_out(r, GRAD_DB_HH));
    if (status == ARIL_OK) status = grad_bias<T>(r, s, p.dx, sums, db_ih);
    if (status < 0) return status;
    if (p.back) return grad_bias<T>(r, s, back, sums, db_hh);
    return aril_cuda_check(r,
                           cudaMemcpyAsync(db_hh, db_ih, (size_t)(s.gates * s.h) * sizeof(T),
                                           cudaMemcpyDeviceToDevice, aril_cuda_stream(r)),
                           "copy of the biases' gradient");
}

/* Fills `kept` from the given y. */
template <typename T>
static aril_status run_recompute(aril_run *r, const aril_cuda_rnn &s, const T *before, T *xw,
                                 T *rec, T *kept)
{
    aril_status status =
        aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_INPUTS, aril_cuda_rnn_in<T>(r, GRAD_X),
                               aril_cuda_rnn_in<T>(r, GRAD_W_IH), xw);
    if (status == ARIL_OK)
        status = aril_cuda_rnn_multiply(r, ARIL_CUDA_RNN_STATES, before,
                                        aril_cuda_rnn_in<T>(r, GRAD_W_HH), rec);
    if (status < 0) return status;
    recompute<T><<<aril_cuda_blocks(r, s.batch * s.h, 256), 256, 0, aril_cuda_stream(r)>>>(
        s, xw, rec, aril_cuda_rnn_in<T>(r, GRAD_B_IH), aril_cuda_rnn_in<T>(r, GRAD_B_HH),
        aril_cuda_rnn_in<T>(r, GRAD_C0), kept);
    return aril_cuda_launched(r);
}

template <typename T> static aril_status run_as(aril_run *r, const aril_cuda_rnn &s, bool anew)
{
    space at = space_of(s, anew);
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    T *before = (T *)(memory + at.before), *dx = (T *)(memory + at.dx);
    T *back = (T *)(memory + at.back);
    tensors<T> p = { aril_cuda_rnn_in<T>(r, GRAD_Y),
                     aril_cuda_rnn_in<T>(r, GRAD_H0),
                     aril_cuda_rnn_in<T>(r, GRAD_C0),
                     anew                  ? (T *)(memory + at.kept)
                     : s.kind != ARIL__RNN ? aril_cuda_rnn_in<T>(r, GRAD_RESERVE)
                                           : nullptr,
                     aril_cuda_rnn_in<T>(r, GRAD_GY),
                     aril_cuda_rnn_in<T>(r, GRAD_GH),
                     aril_cuda_rnn_in<T>(r, GRAD_GC),
                     aril_cuda_rnn_in<T>(r, GRAD_W_HH),
                     dx,
                     s.kind == ARIL__GRU ? back : nullptr,
                     (T *)aril_cuda_data(aril_cuda_out(r, GRAD_DH0)),
                     s.kind == ARIL__LSTM ? (T *)aril_cuda_data(aril_cuda_out(r, GRAD_DC0))
                                          : nullptr };
    states_before<T>
        <<<aril_cuda_blocks(r, s.steps * s.batch * s.h, 256), 256, 0, aril_cuda_stream(r)>>>(
            s, p.y, p.h0, before);
    aril_status status = aril_cuda_launched(r);
    if (status == ARIL_OK && anew)
        status =
            run_recompute<T>(r, s, before, dx, (T *)(memory + at.rec), (T *)(memory + at.kept));
    if (status < 0) return status;
    status = fits(r, s) ? aril_cuda_rnn_all_steps(r, s, p, all_steps<T>, shared_bytes(s))
                        : run_steps<T>(r, s, p);
    return status < 0 ? status : finish<T>(r, s, p, before, (T *)(memory + at.sums));
}

/* Without sequences or states, all results that are not empty are zeros. */
static aril_status clear(aril_run *r)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < aril_cuda_host->n_out(r) && status == ARIL_OK; i++) {
        aril_tensor *t = aril_cuda_out(r, i);
        size_t bytes =
            (size_t)aril_cuda_host->numel(t) * (aril_cuda_host->dtype(t) == ARIL_F64 ? 8 : 4);
        if (bytes)
            status = aril_cuda_check(
                r, cudaMemsetAsync(aril_cuda_data(t), 0, bytes, aril_cuda_stream(r)), "memset");
    }
    return status;
}

static aril_status run(aril_run *r, aril__rnn_kind kind, bool anew)
{
    const rnn_grad_attrs *at = aril_cuda_attrs<rnn_grad_attrs>(r);
    aril_cuda_rnn s = aril_cuda_rnn_of(r, kind, GRAD_W_IH);
    if (s.batch == 0 || s.h == 0) return clear(r);
    s.relu = at->relu[0] != 0;
    s.reverse = at->reverse[0] != 0;
    s.len = aril_cuda_rnn_in<int64_t>(r, GRAD_LEN);
    return s.wide ? run_as<double>(r, s, anew) : run_as<float>(r, s, anew);
}

/* A reserve has its size rounded up to this, and a small number of its format in the rest. */
enum { RESERVE_UNIT = 64 };

static const char *prepare(const aril_run *r, aril_plan *plan, aril__rnn_kind kind, bool anew)
{
    aril_cuda_rnn s = aril_cuda_rnn_of(r, kind, GRAD_W_IH);
    size_t bytes = aril_cuda_rnn_reserve(s);
    const aril_tensor *reserve = aril_cuda_in(r, GRAD_RESERVE);
    if (kind != ARIL__RNN && !anew &&
        (!reserve || (size_t)aril_cuda_host->numel(reserve) / RESERVE_UNIT !=
                         (bytes + RESERVE_UNIT - 1) / RESERVE_UNIT))
        return "the reserve is of other sizes";
    uint32_t which = 0;
    if (s.batch > 0 && s.h > 0) {
        which = 1u << ARIL_CUDA_RNN_DX | 1u << ARIL_CUDA_RNN_DW_IH | 1u << ARIL_CUDA_RNN_DW_HH;
        if (anew) which |= 1u << ARIL_CUDA_RNN_INPUTS | 1u << ARIL_CUDA_RNN_STATES;
        if (!fits(r, s)) which |= 1u << ARIL_CUDA_RNN_BACK;
    }
    return aril_cuda_rnn_plan_new(r, s, which, space_of(s, anew).total, plan);
}

#define ROW(name, kind, anew)                                                  \
    const char *aril_cuda_##name##_prepare(const aril_run *r, aril_plan *plan) \
    {                                                                          \
        return prepare(r, plan, kind, anew);                                   \
    }                                                                          \
    aril_status aril_cuda_##name##_run(aril_run *r)                            \
    {                                                                          \
        return run(r, kind, anew);                                             \
    }
ROW(rnn_grad, ARIL__RNN, false)
ROW(lstm_grad, ARIL__LSTM, false)
ROW(lstm_anew, ARIL__LSTM, true)
ROW(gru_grad, ARIL__GRU, false)
ROW(gru_anew, ARIL__GRU, true)
