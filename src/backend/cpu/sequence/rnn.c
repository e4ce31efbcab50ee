/* Recurrent sequences. The inputs of all steps are multiplied by W_ih at once; W_hh is packed once
 * per sequence. Each step is one parallel loop over columns of the state, which computes the gates
 * right after their products. The weight gradients are products over all steps. */
#include "backend/cpu/sequence/rnn.h"

#include "backend/cpu/linalg/gemm.h"
#include "core/parallel.h"
#include "core/vector/vecmath.h"
#include "ops/sequence/rnn_seq.h"
#include "ops/table/rows.h"

#include <string.h>

enum { MIN_WORK = 128 * 1024 }; /* multiplications per step that make a second thread worthwhile */

/* The reserve holds, for each step and sequence, i, f, g, o and the cell of an LSTM, or r, z, n and
 * the state's part of n (W_hn h + b_hn) of a GRU: [T,N,slots,H]. */
enum { LSTM_SLOTS = 5, GRU_SLOTS = 4 };

/* ---- kernels ---- */

/* One step. Biases are b_ih + b_hh, but of a GRU's n: b_hn, and b_in as a fourth. */
typedef struct rnn_job {
    enum aril__rnn_kind kind;
    bool relu, wide;
    int64_t batch, h, gates, slots;
    int64_t t, piece;   /* the step; columns per piece */
    int64_t panel_size; /* of one gate, in elements */
    const int64_t *len;
    const void *xw, *bias, *panels, *before; /* before: the previous state */
    void *a;                                 /* the values that the reserve holds */
    void *y, *c, *next;                      /* next: the state, when sequence lengths differ */
} rnn_job;

/* All steps; those of pointers are [T,N,...]. */
typedef struct rnn_back {
    enum aril__rnn_kind kind;
    bool relu, reverse, wide;
    int64_t steps, batch, h, gates, slots, biases;
    int64_t t, later, piece; /* the step, and the one processed before it; -1: none */
    const int64_t *len;
    const void *y, *h0, *c0, *kept, *gy, *panels;
    void *dx, *back; /* gradients of the gates: at W_ih, at W_hh */
    void *dh, *dc;
    void *db, *part; /* of the biases, in the order of rnn_job; part: of one step */
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

/* Initializes a state: a copy of the given one (contiguous, same dtype), or zeros. */
static void start_from(aril_tensor *to, const aril_tensor *from)
{
    size_t bytes = aril__dtype_bytes((aril_dtype)to->dtype, to->numel);
    if (from)
        memcpy(aril__ptr(to), aril__ptr(from), bytes);
    else
        memset(aril__ptr(to), 0, bytes);
}

/* ---- sizes ---- */

typedef struct shape {
    enum aril__rnn_kind kind;
    int64_t steps, batch, inputs, h;
    int64_t gates, slots, biases; /* in units of H */
    int64_t size;                 /* bytes per element that kernels compute in */
} shape;

/* w: the first input that is a weight. */
static shape shape_of(const aril__run *r, int w)
{
    const aril_tensor *x = r->in[RNN_X];
    shape s = { .kind = aril__rnn_kind_of(r->op),
                .steps = x->dim[0],
                .batch = x->dim[1],
                .inputs = x->dim[2],
                .h = r->in[w + 1]->dim[1],
                .size = r->type == ARIL_F64 ? 8 : 4 };
    s.gates = aril__rnn_gates(s.kind);
    s.slots = s.kind == ARIL__LSTM ? LSTM_SLOTS : s.kind == ARIL__GRU ? GRU_SLOTS : 1;
    s.biases = s.gates + (s.kind == ARIL__GRU);
    return s;
}

static int64_t reserve_bytes(const shape *s)
{
    return s->kind == ARIL__RNN ? 0 : s->steps * s->batch * s->slots * s->h * s->size;
}

/* Takes n elements from a workspace of which *used are taken; returns where they begin. */
static int64_t take(int64_t *used, int64_t n)
{
    int64_t at = *used;
    *used += (n + 15) / 16 * 16; /* whole cache lines */
    return at;
}

/* ---- forward ---- */

/* Positions in the workspace, in elements. */
typedef struct forward_space {
    int64_t panels, xw, bias, gates, states, zeros, total;
} forward_space;

static forward_space forward_space_of(const shape *s, bool keep)
{
    int64_t state = s->batch * s->h;
    forward_space at = { .total = 0 };
    at.panels = take(&at.total, s->gates * s->h * rounded(s->h));
    at.xw = take(&at.total, s->steps * state * s->gates);
    at.bias = take(&at.total, s->biases * s->h);
    at.gates = take(&at.total, keep && s->kind != ARIL__RNN ? 0 : state * s->slots);
    at.states = take(&at.total, 2 * state);
    at.zeros = take(&at.total, state);
    return at;
}

const char *aril__cpu_rnn_prepare(const aril__run *r, aril_plan *plan)
{
    const struct rnn_seq_attrs *at = r->attrs;
    shape s = shape_of(r, RNN_W_IH);
    plan->workspace = (size_t)(forward_space_of(&s, at->keep[0]).total * s.size);
    plan->reserve = at->keep[0] ? (size_t)reserve_bytes(&s) : 0;
    return NULL;
}

static void pack_w_hh(const shape *s, aril_dtype type, const aril_tensor *w, char *to)
{
    pack_job p = { .type = type,
                   .k = s->h,
                   .n = s->h,
                   .b_row = 1,
                   .b_col = s->h,
                   .b_next = s->h * s->h,
                   .to_next = s->h * rounded(s->h),
                   .b = aril__ptr(w),
                   .to = to };
    pack(&p, s->gates);
}

/* x W_ih^T for all steps. */
static void multiply_inputs(const shape *s, aril_dtype type, const aril__run *r, int w, void *xw)
{
    int64_t row = s->gates * s->h;
    aril__gemm g = { .m = s->steps * s->batch,
                     .n = row,
                     .k = s->inputs,
                     .a = aril__ptr(r->in[RNN_X]),
                     .b = aril__ptr(r->in[w]),
                     .c = xw,
                     .a_row = s->inputs,
                     .a_col = 1,
                     .b_row = 1,
                     .b_col = s->inputs,
                     .c_row = row,
                     .c_col = 1 };
    aril__cpu_gemm(type, &g);
}

#define SUM_BIASES(T)                                                             \
    do {                                                                          \
        const T *in = aril__ptr_or_null(b_ih), *hidden = aril__ptr_or_null(b_hh); \
        T *sum = to;                                                              \
        for (int64_t i = 0; i < n; i++) {                                         \
            bool apart = i >= joint; /* of a GRU's n */                           \
            T a = in ? in[i] : 0, b = hidden ? hidden[i] : 0;                     \
            sum[i] = apart ? b : a + b;                                           \
            if (apart) sum[i + s->h] = a;                                         \
        }                                                                         \
    } while (0)

/* The biases in the order of rnn_job; NULL if there are none. */
static const void *sum_biases(const shape *s, const aril_tensor *b_ih, const aril_tensor *b_hh,
                              void *to)
{
    int64_t n = s->gates * s->h, joint = s->kind == ARIL__GRU ? 2 * s->h : n;
    if (!b_ih && !b_hh) return NULL;
    if (s->size == 8)
        SUM_BIASES(double);
    else
        SUM_BIASES(float);
    return to;
}

static rnn_job job_of(const shape *s, aril_dtype type, const aril_tensor *lengths)
{
    return (rnn_job){ .kind = s->kind,
                      .wide = s->size == 8,
                      .batch = s->batch,
                      .h = s->h,
                      .gates = s->gates,
                      .slots = s->slots,
                      .piece = piece_of(type, s->batch, s->h, s->gates),
                      .panel_size = s->h * rounded(s->h),
                      .len = aril__ptr_or_null(lengths) };
}

static void run_step(rnn_job *j)
{
    aril__parallel_for((j->h + j->piece - 1) / j->piece, 1, forward_pieces, j);
}

aril_status aril__cpu_rnn(aril__run *r)
{
    const struct rnn_seq_attrs *at = r->attrs;
    shape s = shape_of(r, RNN_W_IH);
    aril_status status = aril__rnn_check_lengths(r->op, r->in[RNN_LEN], s.steps);
    if (status < 0 || s.batch == 0 || s.h == 0) return status;
    bool keep = at->keep[0] && s.kind != ARIL__RNN;
    forward_space space = forward_space_of(&s, at->keep[0]);
    char *memory = r->workspace, *xw = memory + space.xw * s.size;
    char *states = memory + space.states * s.size;
    char *gates = keep ? aril__ptr(r->out[RNN_RESERVE]) : memory + space.gates * s.size;
    int64_t state = s.batch * s.h * s.size; /* bytes */
    rnn_job j = job_of(&s, r->type, r->in[RNN_LEN]);
    j.relu = at->relu[0];
    j.panels = memory + space.panels * s.size;
    j.bias = sum_biases(&s, r->in[RNN_B_IH], r->in[RNN_B_HH], memory + space.bias * s.size);
    j.before = r->in[RNN_H0] ? aril__ptr(r->in[RNN_H0])
                             : memset(memory + space.zeros * s.size, 0, (size_t)state);
    pack_w_hh(&s, r->type, r->in[RNN_W_HH], memory + space.panels * s.size);
    multiply_inputs(&s, r->type, r, RNN_W_IH, xw);
    if (s.kind == ARIL__LSTM) {
        start_from(r->out[RNN_CN], r->in[RNN_C0]);
        j.c = aril__ptr(r->out[RNN_CN]);
    }
    for (int64_t k = 0; k < s.steps; k++) {
        j.t = at->reverse[0] ? s.steps - 1 - k : k;
        j.xw = xw + j.t * s.gates * state;
        j.a = gates + (keep ? j.t * s.slots * state : 0);
        j.y = (char *)aril__ptr(r->out[RNN_Y]) + j.t * state;
        j.next = j.len ? states + k % 2 * state : NULL;
        run_step(&j);
        j.before = j.len ? j.next : j.y;
    }
    memcpy(aril__ptr(r->out[RNN_HN]), j.before, (size_t)state);
    return ARIL_OK;
}

/* ---- backward ---- */

typedef struct backward_space {
    int64_t panels, dx, back, db, part, first, zeros; /* first: at W_hh, of each first step */
    int64_t reserve, bias, forward_panels, step;      /* only to recompute the gates */
    int64_t total;
} backward_space;

static backward_space backward_space_of(const shape *s, bool recompute)
{
    int64_t row = s->gates * s->h, state = s->batch * s->h;
    backward_space at = { .total = 0 };
    at.panels = take(&at.total, row * rounded(s->h));
    at.dx = take(&at.total, s->steps * s->batch * row);
    at.back = s->kind == ARIL__GRU ? take(&at.total, s->steps * s->batch * row) : at.dx;
    at.db = take(&at.total, s->biases * s->h);
    at.part = take(&at.total, s->biases * s->h);
    at.first = take(&at.total, s->batch * row);
    at.zeros = take(&at.total, state);
    if (!recompute) return at;
    at.reserve = take(&at.total, reserve_bytes(s) / s->size);
    at.bias = take(&at.total, s->biases * s->h);
    at.forward_panels = take(&at.total, s->gates * s->h * rounded(s->h));
    at.step = take(&at.total, 3 * state);
    return at;
}

const char *aril__cpu_rnn_grad_prepare(const aril__run *r, aril_plan *plan)
{
    shape s = shape_of(r, GRAD_W_IH);
    const aril_tensor *reserve = r->in[GRAD_RESERVE];
    if (s.kind != ARIL__RNN &&
        reserve->numel != aril__reserve_size(ARIL__CPU_RNN, (size_t)reserve_bytes(&s)))
        return "the reserve is of other sizes";
    plan->workspace = (size_t)(backward_space_of(&s, false).total * s.size);
    return NULL;
}

const char *aril__cpu_rnn_grad_anew_prepare(const aril__run *r, aril_plan *plan)
{
    shape s = shape_of(r, GRAD_W_IH);
    plan->workspace = (size_t)(backward_space_of(&s, true).total * s.size);
    return NULL;
}

/* The state before step t: [N,H]. */
static void gather_before(const rnn_back *b, int64_t t, char *to)
{
    int64_t line = b->h * (b->wide ? 8 : 4);
    for (int64_t n = 0; n < b->batch; n++) {
        int64_t last = b->len ? b->len[n] - 1 : b->steps - 1, from = b->reverse ? t + 1 : t - 1;
        bool first = b->reverse ? t >= last : t == 0;
        const char *at = first ? (const char *)b->h0 + n * line
                               : (const char *)b->y + (from * b->batch + n) * line;
        memcpy(to + n * line, at, (size_t)line);
    }
}

/* What the reserve would hold, from the given y. */
static void recompute(const rnn_back *b, const shape *s, const aril__run *r,
                      const backward_space *space)
{
    char *memory = r->workspace, *step = memory + space->step * s->size;
    char *xw = memory + space->dx * s->size; /* until the gradients need it */
    int64_t state = s->batch * s->h * s->size;
    rnn_job j = job_of(s, r->type, r->in[GRAD_LEN]);
    j.panels = memory + space->forward_panels * s->size;
    j.bias = sum_biases(s, r->in[GRAD_B_IH], r->in[GRAD_B_HH], memory + space->bias * s->size);
    j.before = step;
    j.y = step + state;
    j.c = step + 2 * state;
    if (b->c0) memcpy(j.c, b->c0, (size_t)state);
    pack_w_hh(s, r->type, r->in[GRAD_W_HH], memory + space->forward_panels * s->size);
    multiply_inputs(s, r->type, r, GRAD_W_IH, xw);
    for (int64_t k = 0; k < s->steps; k++) {
        j.t = b->reverse ? s->steps - 1 - k : k;
        gather_before(b, j.t, step);
        j.xw = xw + j.t * s->gates * state;
        j.a = memory + space->reserve * s->size + j.t * s->slots * state;
        run_step(&j);
    }
}

/* The gradient of W_hh: the gradients at its output times the state before each step. Those states
 * are y shifted by one step, and h0 (NULL: zeros) for the first step of a sequence. */
static void grad_w_hh(const rnn_back *j, aril_dtype type, const aril_tensor *h0, void *dw,
                      char *first)
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
    if (!h0) return;
    g.add = true;
    g.k = j->batch;
    g.a = j->reverse ? back + (j->steps - 1) * block * size : back;
    g.b = aril__ptr(h0);
    if (j->reverse && j->len) { /* each started at its own end */
        for (int64_t n = 0; n < j->batch; n++)
            memcpy(first + n * row * size, back + ((j->len[n] - 1) * block + n * row) * size,
                   (size_t)(row * size));
        g.a = first;
    }
    aril__cpu_gemm(type, &g);
}

/* The gradients of W_ih, [G*H,I], and of x, [T,N,I]. */
static void grad_w_ih(const rnn_back *j, aril_dtype type, const aril_tensor *x, void *dw)
{
    int64_t row = j->gates * j->h, inputs = x->dim[2];
    aril__gemm g = { .m = row,
                     .n = inputs,
                     .k = j->steps * j->batch,
                     .a = j->dx,
                     .b = aril__ptr(x),
                     .c = dw,
                     .a_row = 1,
                     .a_col = row,
                     .b_row = inputs,
                     .b_col = 1,
                     .c_row = inputs,
                     .c_col = 1 };
    aril__cpu_gemm(type, &g);
}

static void grad_x(const rnn_back *j, aril_dtype type, const aril_tensor *w_ih, void *dx)
{
    int64_t row = j->gates * j->h, inputs = w_ih->dim[1];
    aril__gemm g = { .m = j->steps * j->batch,
                     .n = inputs,
                     .k = row,
                     .a = j->dx,
                     .b = aril__ptr(w_ih),
                     .c = dx,
                     .a_row = row,
                     .a_col = 1,
                     .b_row = inputs,
                     .b_col = 1,
                     .c_row = inputs,
                     .c_col = 1 };
    aril__cpu_gemm(type, &g);
}

/* Writes the results that are products over all steps. */
static void finish(const rnn_back *j, aril__run *r, char *first)
{
    const struct rnn_grad_attrs *at = r->attrs;
    size_t size = j->wide ? 8 : 4, h = (size_t)j->h * size, row = (size_t)j->gates * h;
    if (!at->no_dx[0]) grad_x(j, r->type, r->in[GRAD_W_IH], aril__ptr(r->out[GRAD_DX]));
    if (at->no_dw[0]) return;
    grad_w_ih(j, r->type, r->in[GRAD_X], aril__ptr(r->out[GRAD_DW_IH]));
    grad_w_hh(j, r->type, r->in[GRAD_H0], aril__ptr(r->out[GRAD_DW_HH]), first);
    char *db_ih = aril__ptr(r->out[GRAD_DB_IH]);
    memcpy(db_ih, j->db, row);
    memcpy(aril__ptr(r->out[GRAD_DB_HH]), j->db, row);
    if (j->kind == ARIL__GRU) memcpy(db_ih + 2 * h, (const char *)j->db + 3 * h, h);
}

/* Sets all results to what empty states give: zeros, or what the gradients of the last states
 * pass on. */
static void start_results(aril__run *r)
{
    for (int i = 0; i < r->n_out; i++)
        start_from(r->out[i], i == GRAD_DH0   ? r->in[GRAD_GH]
                              : i == GRAD_DC0 ? r->in[GRAD_GC]
                                              : NULL);
}

static rnn_back back_of(const shape *s, aril__run *r, const backward_space *space)
{
    const struct rnn_grad_attrs *at = r->attrs;
    char *memory = r->workspace;
    size_t state = (size_t)(s->batch * s->h * s->size),
           biases = (size_t)(s->biases * s->h * s->size);
    const void *zeros = memset(memory + space->zeros * s->size, 0, state);
    rnn_back j = { .kind = s->kind,
                   .relu = at->relu[0],
                   .reverse = at->reverse[0],
                   .wide = s->size == 8,
                   .steps = s->steps,
                   .batch = s->batch,
                   .h = s->h,
                   .gates = s->gates,
                   .slots = s->slots,
                   .biases = s->biases,
                   .piece = piece_of(r->type, s->batch, s->h, s->gates),
                   .len = aril__ptr_or_null(r->in[GRAD_LEN]),
                   .y = aril__ptr(r->in[GRAD_Y]),
                   .h0 = r->in[GRAD_H0] ? aril__ptr(r->in[GRAD_H0]) : zeros,
                   .gy = aril__ptr_or_null(r->in[GRAD_GY]),
                   .panels = memory + space->panels * s->size,
                   .dx = memory + space->dx * s->size,
                   .back = memory + space->back * s->size,
                   .dh = aril__ptr(r->out[GRAD_DH0]),
                   .db = memset(memory + space->db * s->size, 0, biases),
                   .part = memory + space->part * s->size };
    if (s->kind == ARIL__LSTM) {
        j.c0 = r->in[GRAD_C0] ? aril__ptr(r->in[GRAD_C0]) : zeros;
        j.dc = aril__ptr(r->out[GRAD_DC0]);
    }
    return j;
}

/* All steps, last to first, and then from the first through W_hh to the initial state. */
static void steps_back(rnn_back *j, aril_dtype type, const aril_tensor *w_hh, char *panels)
{
    pack_job p = { .type = type,
                   .k = j->gates * j->h,
                   .n = j->h,
                   .b_row = j->h,
                   .b_col = 1,
                   .b = aril__ptr(w_hh),
                   .to = panels };
    pack(&p, 1);
    j->later = -1;
    for (int64_t k = 0; k <= j->steps; k++) {
        j->t = k == j->steps ? -1 : j->reverse ? k : j->steps - 1 - k;
        aril__parallel_for((j->h + j->piece - 1) / j->piece, 1, backward_pieces, j);
        j->later = j->t;
    }
}

static aril_status run_grad(aril__run *r, bool anew)
{
    shape s = shape_of(r, GRAD_W_IH);
    aril_status status = aril__rnn_check_lengths(r->op, r->in[GRAD_LEN], s.steps);
    if (status < 0) return status;
    if (s.batch == 0 || s.h == 0) {
        start_results(r);
        return ARIL_OK;
    }
    start_from(r->out[GRAD_DH0], r->in[GRAD_GH]);
    if (s.kind == ARIL__LSTM) start_from(r->out[GRAD_DC0], r->in[GRAD_GC]);
    backward_space space = backward_space_of(&s, anew);
    char *memory = r->workspace;
    rnn_back j = back_of(&s, r, &space);
    if (anew) {
        recompute(&j, &s, r, &space);
        j.kept = memory + space.reserve * s.size;
    } else if (s.kind != ARIL__RNN) {
        j.kept = aril__ptr(r->in[GRAD_RESERVE]);
    }
    steps_back(&j, r->type, r->in[GRAD_W_HH], memory + space.panels * s.size);
    finish(&j, r, memory + space.first * s.size);
    return ARIL_OK;
}

aril_status aril__cpu_rnn_grad(aril__run *r)
{
    return run_grad(r, false);
}

aril_status aril__cpu_rnn_grad_anew(aril__run *r)
{
    return run_grad(r, true);
}
