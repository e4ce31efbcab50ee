/* Recurrent sequences: sizes, one step of one element of the state, and the rows. */
#ifndef ARIL_CUDA_RNN_CUH
#define ARIL_CUDA_RNN_CUH

#include "backend/cuda/attrs.cuh"
#include "ops/sequence/rnn_seq.h"

#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/formulas.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/sequence/gemm.cuh"

/* The format of the reserve: for each step and sequence i, f, g, o and the cell of an LSTM, or r,
 * z, n and the state's part of n (W_hn h + b_hn) of a GRU: [T,N,slots,H]. */
#define ARIL_CUDA_RNN "cuda_rnn"

struct aril_cuda_rnn {
    aril__rnn_kind kind;
    bool relu, reverse, wide;
    int64_t steps, batch, inputs, h;
    int64_t gates, slots; /* in units of H */
    const int64_t *len;   /* on the device; NULL: all have all steps */
};

static inline int64_t aril_cuda_rnn_size(const aril_cuda_rnn &s)
{
    return s.wide ? 8 : 4;
}

/* The sequences of a block in kernels that do all steps: as many as have threads. */
static inline int aril_cuda_rnn_side(const aril_cuda_rnn &s)
{
    int64_t side = s.h < 256 ? 256 / s.h : 1;
    return (int)(side < s.batch ? side : s.batch);
}

static inline size_t aril_cuda_rnn_reserve(const aril_cuda_rnn &s)
{
    if (s.kind == ARIL__RNN) return 0;
    return (size_t)(s.steps * s.batch * s.slots * s.h * aril_cuda_rnn_size(s));
}

/* w: the first input that is a weight. Addresses are not yet known in `prepare`. */
static inline aril_cuda_rnn aril_cuda_rnn_of(const aril_run *r, aril__rnn_kind kind, int w)
{
    const aril_tensor *x = aril_cuda_in(r, RNN_X);
    aril_cuda_rnn s = {};
    s.kind = kind;
    s.wide = aril_cuda_host->type(r) == ARIL_F64;
    s.steps = aril_cuda_dim(x, 0);
    s.batch = aril_cuda_dim(x, 1);
    s.inputs = aril_cuda_dim(x, 2);
    s.h = aril_cuda_dim(aril_cuda_in(r, w + 1), 1);
    s.gates = aril__rnn_gates(kind);
    s.slots = kind == ARIL__LSTM ? 5 : kind == ARIL__GRU ? 4 : 1;
    return s;
}

template <typename T> static inline T *aril_cuda_rnn_in(const aril_run *r, int i)
{
    const aril_tensor *t = aril_cuda_in(r, i);
    return t ? static_cast<T *>(aril_cuda_data(t)) : nullptr;
}

/* Takes n elements from a workspace of which *used bytes are taken; returns where they begin. */
static inline size_t aril_cuda_rnn_take(const aril_cuda_rnn &s, size_t *used, int64_t n)
{
    size_t at = *used;
    *used += ((size_t)(n * aril_cuda_rnn_size(s)) + 255) / 256 * 256;
    return at;
}

/* ---- products ---- */

enum aril_cuda_rnn_product {
    ARIL_CUDA_RNN_INPUTS, /* x W_ih^T of all steps */
    ARIL_CUDA_RNN_STEP,   /* the state times W_hh^T */
    ARIL_CUDA_RNN_STATES, /* the same of all steps */
    ARIL_CUDA_RNN_BACK,   /* gradients of the gates times W_hh, added */
    ARIL_CUDA_RNN_DX,
    ARIL_CUDA_RNN_DW_IH,
    ARIL_CUDA_RNN_DW_HH,
    ARIL_CUDA_RNN_PRODUCTS
};

/* A plan: what cuBLASLt prepared, and where its workspace begins in that of the row. */
struct aril_cuda_rnn_plan {
    aril_cuda_seq_product of[ARIL_CUDA_RNN_PRODUCTS];
    size_t workspace;
};

/* Makes a plan for the products whose bits are set in `which`; `used` bytes of workspace are the
 * row's own. Returns why not, or NULL. */
const char *aril_cuda_rnn_plan_new(const aril_run *r, const aril_cuda_rnn &s, uint32_t which,
                                   size_t used, aril_plan *plan);
void aril_cuda_rnn_plan_free(void *prepared);

static inline aril_status aril_cuda_rnn_multiply(aril_run *r, aril_cuda_rnn_product which,
                                                 const void *a, const void *b, void *c)
{
    const aril_cuda_rnn_plan *plan =
        static_cast<const aril_cuda_rnn_plan *>(aril_cuda_host->prepared(r));
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    return aril_cuda_seq_multiply(r, &plan->of[which], a, b, c, memory + plan->workspace);
}

/* ---- on the device ---- */

/* The steps of sequence n: from 1 to all of them, whatever the lengths say. */
static __device__ __forceinline__ int64_t aril_cuda_rnn_length(const aril_cuda_rnn &s, int64_t n)
{
    if (!s.len) return s.steps;
    int64_t length = s.len[n];
    return length < 1 ? 1 : length > s.steps ? s.steps : length;
}

static __device__ __forceinline__ void aril_cuda_rnn_check(const aril_cuda_rnn &s,
                                                           const aril_cuda_report &report,
                                                           int64_t n)
{
    if (s.len && (s.len[n] < 1 || s.len[n] > s.steps))
        aril_cuda_fail(report, ARIL_CUDA_BAD_SEQUENCE, s.len[n], s.steps, 0, n);
}

/* x, a: what the input and the state contribute to each gate; `before`: the state before. Returns
 * the state, updates the cell, and sets `kept`, what the gradient needs. */
template <typename T>
static __device__ __forceinline__ T aril_cuda_rnn_unit(const aril_cuda_rnn &s, const T *x,
                                                       const T *a, T before, T &cell, T *kept)
{
    if (s.kind == ARIL__LSTM) {
        kept[0] = k_sigmoid(x[0] + a[0]);
        kept[1] = k_sigmoid(x[1] + a[1]);
        kept[2] = k_tanh(x[2] + a[2]);
        kept[3] = k_sigmoid(x[3] + a[3]);
        cell = kept[4] = kept[1] * cell + kept[0] * kept[2];
        return kept[3] * k_tanh(cell);
    }
    if (s.kind == ARIL__GRU) {
        kept[0] = k_sigmoid(x[0] + a[0]);
        kept[1] = k_sigmoid(x[1] + a[1]);
        kept[2] = k_tanh(x[2] + kept[0] * a[2]);
        kept[3] = a[2];
        return (T(1) - kept[1]) * kept[2] + kept[1] * before;
    }
    T v = x[0] + a[0];
    return s.relu ? (v < T(0) ? T(0) : v) : k_tanh(v);
}

/* One step back. dh: the gradient of the state after it; `before`, cell: before it; y: after it.
 * Sets the gradients of the gates at W_ih, dx, and at W_hh, back; updates that of the cell. Returns
 * what reaches the state before it without W_hh. */
template <typename T>
static __device__ __forceinline__ T aril_cuda_rnn_back(const aril_cuda_rnn &s, T dh, T &dc,
                                                       const T *kept, T before, T cell, T y, T *dx,
                                                       T *back)
{
    T straight = 0;
    if (s.kind == ARIL__LSTM) {
        T in = kept[0], forget = kept[1], g = kept[2], out = kept[3], tc = k_tanh(kept[4]);
        T d = dc + dh * out * (T(1) - tc * tc);
        dx[0] = d * g * in * (T(1) - in);
        dx[1] = d * cell * forget * (T(1) - forget);
        dx[2] = d * in * (T(1) - g * g);
        dx[3] = dh * tc * out * (T(1) - out);
        dc = d * forget;
    } else if (s.kind == ARIL__GRU) {
        T reset = kept[0], z = kept[1], n = kept[2], dn = dh * (T(1) - z) * (T(1) - n * n);
        dx[0] = dn * kept[3] * reset * (T(1) - reset);
        dx[1] = dh * (before - n) * z * (T(1) - z);
        dx[2] = dn;
        straight = dh * z;
    } else {
        dx[0] = s.relu ? (y > T(0) ? dh : T(0)) : dh * (T(1) - y * y);
    }
#pragma unroll
    for (int q = 0; q < 4; q++) back[q] = dx[q];
    if (s.kind == ARIL__GRU) back[2] = dx[2] * kept[0];
    return straight;
}

/* Launches a kernel that does all steps: a block for each `side` sequences. */
template <typename Tensors>
static aril_status aril_cuda_rnn_all_steps(aril_run *r, const aril_cuda_rnn &s, const Tensors &p,
                                           void (*kernel)(aril_cuda_rnn, Tensors, int,
                                                          aril_cuda_report),
                                           size_t shared)
{
    int side = aril_cuda_rnn_side(s), threads = ((int)(side * s.h) + 31) / 32 * 32;
    unsigned blocks = (unsigned)((s.batch + side - 1) / side);
    aril_status status = aril_cuda_allow_shared(r, kernel, shared);
    if (status < 0) return status;
    kernel<<<blocks, threads, shared, aril_cuda_stream(r)>>>(s, p, side, aril_cuda_report_of(r));
    return aril_cuda_launched(r);
}

/* ---- rows: rnn.cu, rnn_grad.cu ---- */

const char *aril_cuda_rnn_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_lstm_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_gru_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_rnn_run(aril_run *r);
aril_status aril_cuda_lstm_run(aril_run *r);
aril_status aril_cuda_gru_run(aril_run *r);

const char *aril_cuda_rnn_grad_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_lstm_grad_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_lstm_anew_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_gru_grad_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_gru_anew_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_rnn_grad_run(aril_run *r);
aril_status aril_cuda_lstm_grad_run(aril_run *r);
aril_status aril_cuda_lstm_anew_run(aril_run *r);
aril_status aril_cuda_gru_grad_run(aril_run *r);
aril_status aril_cuda_gru_anew_run(aril_run *r);

#endif
