/* Recurrent sequences. Weights are packed once per sequence; each step is one parallel loop over
 * columns of the state, which computes the gates right after their products. The weight gradients
 * are one product over all steps. */
#include "backend/cpu/sequence/rnn.h"

#include "backend/cpu/linalg/gemm.h"
#include "core/parallel.h"
#include "ops/sequence/rnn_seq.h"
#include "core/vector/vecmath.h"

#include <string.h>

enum { MIN_WORK = 128 * 1024 }; /* multiplications per step that make a second thread worthwhile */

/* ---- kernels ---- */

typedef struct rnn_job {
    enum aril__rnn_kind kind;
    bool relu, keep, wide;
    int64_t batch, h, gates, slots; /* slots: saved or temporary values, in units of H */
    int64_t t, piece;               /* the step; columns per piece */
    int64_t panel_size;             /* of one gate, in elements */
    const int64_t *len;
    const void *xw, *bias, *panels, *before; /* before: the previous state */
    void *y, *c, *kept, *next;               /* next: the state, when sequence lengths differ */
} rnn_job;

typedef struct rnn_back {
    enum aril__rnn_kind kind;
    bool relu, reverse, wide;
    int64_t steps, batch, h, gates, slots;
    int64_t t, later, piece; /* the step, and the one processed before it; -1: none */
    const int64_t *len;
    const void *y, *h0, *c0, *kept, *gy, *panels;
    void *dx, *back, *dh, *dc, *db, *part; /* back: gradient at W_hh; part: db of a step */
} rnn_back;

#define TEMPLATE "backend/cpu/sequence/rnn.inc"
#include "core/vector/each_target.inc"

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void forward_pieces(void *ctx, int64_t begin, int64_t end)
{
    const rnn_job *j = ctx;
    for (int64_t i = begin; i < end; i++)
        ARIL__PICK(forward, j->wide)(j, i * j->piece, min(j->h, (i + 1) * j->piece));
}

static void backward_pieces(void *ctx, int64_t begin, int64_t end)
{
    const rnn_back *j = ctx;
    for (int64_t i = begin; i < end; i++)
        ARIL__PICK(backward, j->wide)(j, i * j->piece, min(j->h, (i + 1) * j->piece));
}

/* Columns per thread, in whole panels. No bit of a result depends on it. */
static int64_t piece_of(aril_dtype type, int64_t batch, int64_t h, int64_t gates)
{
    int64_t panel = aril__gemm_panel(type), threads = 1;
    if (batch * h * gates * h >= 2 * MIN_WORK && !aril__parallel_is_serial())
        threads = aril_threads();
    int64_t panels = (h + panel - 1) / panel;
    return (panels + threads - 1) / threads * panel;
}

typedef struct pack_job {
    aril_dtype type;
    int64_t k, n, panel, count, b_row, b_col, b_next, to_next; /* count: panels per matrix */
    const char *b;
    char *to;
} pack_job;

static void pack_pieces(void *ctx, int64_t begin, int64_t end)
{
    const pack_job *p = ctx;
    int64_t size = p->type == ARIL_F32 ? 4 : 8;
    for (int64_t i = begin; i < end; i++) {
        int64_t matrix = i / p->count, j = i % p->count * p->panel;
        aril__gemm_pack(p->type, p->k, min(p->panel, p->n - j),
                        p->b + (matrix * p->b_next + j * p->b_col) * size, p->b_row, p->b_col,
                        p->to + (matrix * p->to_next + j * p->k) * size);
    }
}

static void pack(pack_job *p, int64_t matrices)
{
    p->panel = aril__gemm_panel(p->type);
    p->count = (p->n + p->panel - 1) / p->panel;
    int64_t work = p->k * p->panel;
    aril__parallel_for(matrices * p->count, 1 + MIN_WORK / (work + 1), pack_pieces, p);
}

static int64_t rounded(int64_t n)
{
    return (n + ARIL__GEMM_MAX_PANEL - 1) / ARIL__GEMM_MAX_PANEL * ARIL__GEMM_MAX_PANEL;
}

/* Initializes a sequence's state: a copy of the given one (contiguous, same dtype), or zeros. */
static void start_from(aril_tensor *to, const aril_tensor *from)
{
    size_t bytes = aril__dtype_bytes((aril_dtype)to->dtype, to->numel);
    if (from)
        memcpy(aril__ptr(to), aril__ptr(from), bytes);
    else
        memset(aril__ptr(to), 0, bytes);
}

static enum aril__rnn_kind kind_of(const aril__op *op)
{
    return op == &aril__op_lstm_seq || op == &aril__op_lstm_seq_grad ? ARIL__LSTM
           : op == &aril__op_gru_seq || op == &aril__op_gru_seq_grad ? ARIL__GRU
                                                                     : ARIL__RNN;
}

/* ---- forward ---- */

aril_status aril__cpu_rnn(aril__run *r)
{
    const struct rnn_seq_attrs *at = r->attrs;
    const aril_tensor *xw = r->in[RNN_XW], *w = r->in[RNN_W];
    int64_t steps = xw->dim[0], batch = xw->dim[1], h = w->dim[1];
    int64_t size = r->type == ARIL_F64 ? 8 : 4;
    aril_status s = aril__rnn_check_lengths(r->op, r->in[RNN_LEN], steps);
    if (s < 0 || batch == 0 || h == 0) return s;
    rnn_job j = { .kind = kind_of(r->op),
                  .relu = at->relu[0],
                  .wide = size == 8,
                  .batch = batch,
                  .h = h,
                  .gates = w->dim[0] / h,
                  .len = aril__ptr_or_null(r->in[RNN_LEN]),
                  .xw = aril__ptr(xw),
                  .bias = aril__ptr_or_null(r->in[RNN_B]),
                  .y = aril__ptr(r->out[0]),
                  .panel_size = h * rounded(h) };
    j.slots = j.kind == ARIL__LSTM ? LSTM_KEPT : j.kind == ARIL__GRU ? GRU_KEPT : 1;
    j.keep = j.kind != ARIL__RNN && at->keep[0];
    j.piece = piece_of(r->type, batch, h, j.gates);
    if (j.kind == ARIL__LSTM) {
        start_from(r->out[2], r->in[RNN_C0]);
        j.c = aril__ptr(r->out[2]);
    }
    int64_t state = batch * h, gates = j.keep ? 0 : state * j.slots;
    size_t bytes = (size_t)((j.gates * j.panel_size + gates + 2 * state) * size);
    char *memory = aril__device_alloc(r->device, bytes), *states;
    if (!memory) return ARIL_ERR_MEMORY;
    pack_job p = { .type = r->type,
                   .k = h,
                   .n = h,
                   .b_row = 1,
                   .b_col = h,
                   .b_next = h * h,
                   .to_next = j.panel_size,
                   .b = aril__ptr(w),
                   .to = memory };
    pack(&p, j.gates);
    j.panels = memory;
    j.kept = memory + j.gates * j.panel_size * size;
    states = (char *)j.kept + gates * size;
    if (j.keep) j.kept = aril__ptr(r->out[r->n_out - 1]);
    j.before = aril__ptr(r->in[RNN_H0]);
    for (int64_t k = 0; k < steps; k++) {
        j.t = at->reverse[0] ? steps - 1 - k : k;
        j.next = j.len ? states + k % 2 * state * size : NULL;
        aril__parallel_for((h + j.piece - 1) / j.piece, 1, forward_pieces, &j);
        j.before = j.len ? j.next : (char *)j.y + j.t * state * size;
    }
    memcpy(aril__ptr(r->out[1]), j.before, (size_t)(state * size));
    aril__device_free(r->device, memory, bytes);
    return s;
}

/* ---- backward ---- */

/* The gradient of W_hh: the gradients at its output times the state before each step. Those states
 * are y shifted by one step, and h0 for the first step of a sequence. */
static void weight_grad(const rnn_back *j, aril_dtype type, void *dw, char *first)
{
    int64_t size = j->wide ? 8 : 4, row = j->gates * j->h, block = j->batch * row;
    int64_t state = j->batch * j->h;
    const char *back = j->back, *y = j->y;
    aril__gemm g = { .m = row,
                     .n = j->h,
                     .k = (j->steps - 1) * j->batch,
                     .a = j->reverse ? back : back + block * size,
                     .b = j->reverse ? y + state * size : y,
                     .c = dw,
                     .a_row = 1,
                     .a_col = row,
                     .b_row = j->h,
                     .b_col = 1,
                     .c_row = j->h,
                     .c_col = 1 };
    aril__cpu_gemm(type, &g);
    g.add = true;
    g.k = j->batch;
    g.a = j->reverse ? back + (j->steps - 1) * block * size : back;
    g.b = j->h0;
    if (j->reverse && j->len) { /* each started at its own end */
        for (int64_t n = 0; n < j->batch; n++)
            memcpy(first + n * row * size, back + ((j->len[n] - 1) * block + n * row) * size,
                   (size_t)(row * size));
        g.a = first;
    }
    aril__cpu_gemm(type, &g);
}

aril_status aril__cpu_rnn_grad(aril__run *r)
{
    const struct rnn_seq_attrs *at = r->attrs;
    aril_tensor *y = r->in[GRAD_Y], *w = r->in[GRAD_W];
    int64_t steps = y->dim[0], batch = y->dim[1], h = y->dim[2], row = w->dim[0];
    int64_t size = r->type == ARIL_F64 ? 8 : 4;
    enum aril__rnn_kind kind = kind_of(r->op);
    bool lstm = kind == ARIL__LSTM, gru = kind == ARIL__GRU;
    aril_status s = aril__rnn_check_lengths(r->op, r->in[GRAD_LEN], steps);
    if (s < 0) return s;
    start_from(r->out[1], r->in[GRAD_GH]);
    start_from(r->out[3], NULL);
    if (lstm) start_from(r->out[4], r->in[GRAD_GC]);
    if (batch == 0 || h == 0) {
        start_from(r->out[2], NULL);
        return s;
    }
    rnn_back j = { .kind = kind,
                   .relu = at->relu[0],
                   .reverse = at->reverse[0],
                   .wide = size == 8,
                   .steps = steps,
                   .batch = batch,
                   .h = h,
                   .gates = row / h,
                   .slots = lstm ? LSTM_KEPT : GRU_KEPT,
                   .len = aril__ptr_or_null(r->in[GRAD_LEN]),
                   .y = aril__ptr(y),
                   .h0 = aril__ptr(r->in[GRAD_H0]),
                   .c0 = lstm ? aril__ptr(r->in[GRAD_C0]) : NULL,
                   .kept = lstm || gru ? aril__ptr(r->in[GRAD_KEPT]) : NULL,
                   .gy = aril__ptr_or_null(r->in[GRAD_GY]),
                   .dx = aril__ptr(r->out[0]),
                   .dh = aril__ptr(r->out[1]),
                   .dc = lstm ? aril__ptr(r->out[4]) : NULL,
                   .db = aril__ptr(r->out[3]) };
    j.piece = piece_of(r->type, batch, h, j.gates);
    int64_t panels = row * rounded(h), back = gru ? steps * batch * row : 0;
    int64_t first = j.reverse && j.len ? batch * row : 0;
    size_t bytes = (size_t)((panels + row + back + first) * size);
    char *memory = aril__device_alloc(r->device, bytes);
    if (!memory) return ARIL_ERR_MEMORY;
    pack_job p = {
        .type = r->type, .k = row, .n = h, .b_row = h, .b_col = 1, .b = aril__ptr(w), .to = memory
    };
    pack(&p, 1);
    j.panels = memory;
    j.part = memory + panels * size;
    j.back = gru ? (char *)j.part + row * size : j.dx;
    j.later = -1;
    for (int64_t k = 0; k <= steps; k++) {
        j.t = k == steps ? -1 : j.reverse ? k : steps - 1 - k;
        aril__parallel_for((h + j.piece - 1) / j.piece, 1, backward_pieces, &j);
        j.later = j.t;
    }
    weight_grad(&j, r->type, aril__ptr(r->out[2]), (char *)j.part + (row + back) * size);
    aril__device_free(r->device, memory, bytes);
    return ARIL_OK;
}

const char *aril__cpu_rnn_grad_prepare(const aril__run *r, aril_plan *plan)
{
    (void)plan;
    if (r->op == &aril__op_rnn_seq_grad || r->in[GRAD_KEPT]) return NULL;
    return "the gates were not saved";
}
