/* Recurrent sequences, one sequence and one step after another: the equations as they stand in
 * papers, in double. rnn_seq_grad.c has the same backward pass in public ops. */
#include "ops/sequence/rnn_seq.h"

#include "ops/table/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One sequence: its state, and values of one step. */
typedef struct sequence {
    enum aril__rnn_kind kind;
    const struct rnn_seq_attrs *at;
    const aril_tensor *w, *b;
    int64_t n, batch, h, gates, steps, length;
    double *state, *cell; /* [H] */
    double *a;            /* state times W_hh, plus bias: [G*H] */
} sequence;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Element i of gate q at step t of a tensor [T,N,G*H]. */
static int64_t at_gate(const sequence *s, int64_t gates, int64_t t, int64_t q, int64_t i)
{
    return ((t * s->batch + s->n) * gates + q) * s->h + i;
}

/* Element i at step t of a tensor [T,N,H]. */
static int64_t at_state(const sequence *s, int64_t t, int64_t i)
{
    return at_gate(s, 1, t, 0, i);
}

static void read_state(const sequence *s, const aril_tensor *from, double *to)
{
    for (int64_t i = 0; i < s->h; i++) to[i] = from ? aril__get(from, s->n * s->h + i) : 0;
}

static void write_state(const sequence *s, const double *from, aril_tensor *to)
{
    for (int64_t i = 0; i < s->h; i++) aril__put(to, s->n * s->h + i, from[i]);
}

static void project(const sequence *s, const double *state)
{
    for (int64_t j = 0; j < s->gates * s->h; j++) {
        s->a[j] = s->b ? aril__get(s->b, j) : 0;
        for (int64_t k = 0; k < s->h; k++) s->a[j] += aril__get(s->w, j * s->h + k) * state[k];
    }
}

static bool set_up(sequence *s, const aril_tensor *w, const aril_tensor *b,
                   const aril_tensor *states)
{
    s->w = w;
    s->b = b;
    s->batch = states->dim[0];
    s->h = w->dim[1];
    s->gates = s->kind == ARIL__LSTM ? 4 : s->kind == ARIL__GRU ? 3 : 1;
    s->state = aril__malloc((size_t)((2 + s->gates) * s->h + 1) * sizeof *s->state);
    if (!s->state) return false;
    s->cell = s->state + s->h;
    s->a = s->cell + s->h;
    return true;
}

static int64_t length_of(const aril_tensor *lengths, int64_t n, int64_t steps)
{
    return lengths ? aril__get_i64(lengths, n) : steps;
}

/* The values of one element of the state at one step. */
typedef struct unit {
    double gate[4]; /* i, f, g, o, or r, z, n */
    double cell;
} unit;

/* a: what the state contributes to each gate; x: what the input does; c: the cell before. */
static unit lstm_unit(const double *a, const double *x, double c)
{
    unit u = { .gate = { sigmoid(x[0] + a[0]), sigmoid(x[1] + a[1]), tanh(x[2] + a[2]),
                         sigmoid(x[3] + a[3]) } };
    u.cell = u.gate[1] * c + u.gate[0] * u.gate[2];
    return u;
}

static unit gru_unit(const double *a, const double *x)
{
    unit u = { .gate = { sigmoid(x[0] + a[0]), sigmoid(x[1] + a[1]) } };
    u.gate[2] = tanh(x[2] + u.gate[0] * a[2]);
    return u;
}

/* What the state and the input contribute to the gates of element i at step t. */
static void contributions(const sequence *s, const aril_tensor *xw, int64_t t, int64_t i, double *a,
                          double *x)
{
    for (int64_t q = 0; q < s->gates; q++) {
        a[q] = s->a[q * s->h + i];
        x[q] = aril__get(xw, at_gate(s, s->gates, t, q, i));
    }
}

/* ---- forward ---- */

/* kept: NULL, or values for the gradient: the gates, then the cell or the state's part of n. */
static void step(const sequence *s, aril__run *r, int64_t t, aril_tensor *kept)
{
    int64_t slots = s->kind == ARIL__LSTM ? LSTM_KEPT : GRU_KEPT;
    bool active = t < s->length;
    if (active) project(s, s->state);
    for (int64_t i = 0; i < s->h; i++) {
        double a[4] = { 0 }, x[4], h = s->state[i];
        unit u = { .cell = 0 };
        contributions(s, r->in[RNN_XW], t, i, a, x);
        if (active && s->kind == ARIL__LSTM) {
            u = lstm_unit(a, x, s->cell[i]);
            s->cell[i] = u.cell;
            h = u.gate[3] * tanh(u.cell);
        } else if (active && s->kind == ARIL__GRU) {
            u = gru_unit(a, x);
            h = (1 - u.gate[1]) * u.gate[2] + u.gate[1] * h;
        } else if (active) {
            double v = x[0] + a[0];
            h = s->at->relu[0] ? (v < 0 ? 0 : v) : tanh(v);
        }
        s->state[i] = h;
        aril__put(r->out[0], at_state(s, t, i), active ? h : 0);
        double last = !active ? 0 : s->kind == ARIL__LSTM ? u.cell : a[2];
        for (int64_t q = 0; q < slots && kept; q++)
            aril__put(kept, at_gate(s, slots, t, q, i), q == slots - 1 ? last : u.gate[q]);
    }
}

aril_status aril__rnn_ref(enum aril__rnn_kind kind, aril__run *r)
{
    const aril_tensor *lengths = r->in[RNN_LEN];
    sequence s = { .kind = kind, .at = r->attrs, .steps = r->in[RNN_XW]->dim[0] };
    aril_tensor *kept = kind != ARIL__RNN && s.at->keep[0] ? r->out[r->n_out - 1] : NULL;
    aril_status status = aril__rnn_check_lengths(r->op, lengths, s.steps);
    if (status < 0) return status;
    if (!set_up(&s, r->in[RNN_W], r->in[RNN_B], r->in[RNN_H0]))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    for (s.n = 0; s.n < s.batch; s.n++) {
        s.length = length_of(lengths, s.n, s.steps);
        read_state(&s, r->in[RNN_H0], s.state);
        if (kind == ARIL__LSTM) read_state(&s, r->in[RNN_C0], s.cell);
        for (int64_t k = 0; k < s.steps; k++)
            step(&s, r, s.at->reverse[0] ? s.steps - 1 - k : k, kept);
        write_state(&s, s.state, r->out[1]);
        if (kind == ARIL__LSTM) write_state(&s, s.cell, r->out[2]);
    }
    free(s.state);
    return ARIL_OK;
}

/* ---- backward ---- */

/* Gradients: of the state and the cell [H], at the product with W_hh [G*H], of W_hh and b_hh. */
typedef struct gradients {
    double *dh, *dc, *back, *dw, *db;
    double *cells; /* before each step: [T,H] */
} gradients;

/* The state before step t: the result of the step before it, or the initial state. */
static void state_before(const sequence *s, const aril__run *r, int64_t t)
{
    bool reverse = s->at->reverse[0], first = t == (reverse ? s->length - 1 : 0);
    for (int64_t i = 0; i < s->h; i++)
        s->state[i] = first ? aril__get(r->in[GRAD_H0], s->n * s->h + i)
                            : aril__get(r->in[GRAD_Y], at_state(s, reverse ? t + 1 : t - 1, i));
}

/* The cells before each step of the sequence. */
static void run_cells(const sequence *s, const aril__run *r, double *cells)
{
    read_state(s, r->in[GRAD_C0], s->cell);
    for (int64_t k = 0; k < s->length; k++) {
        int64_t t = s->at->reverse[0] ? s->length - 1 - k : k;
        memcpy(cells + t * s->h, s->cell, (size_t)s->h * sizeof *cells);
        state_before(s, r, t);
        project(s, s->state);
        for (int64_t i = 0; i < s->h; i++) {
            double a[4], x[4];
            contributions(s, r->in[GRAD_XW], t, i, a, x);
            s->cell[i] = lstm_unit(a, x, s->cell[i]).cell;
        }
    }
}

/* d: the gradient of the state after the step; writes those of the gates, dx and back (which differ
 * in a GRU's n), and what reaches the state before the step without W_hh. */
static void lstm_back(const sequence *s, const aril__run *r, gradients *d, int64_t t, int64_t i,
                      double dx[4])
{
    double a[4], x[4], before = d->cells[t * s->h + i];
    contributions(s, r->in[GRAD_XW], t, i, a, x);
    unit u = lstm_unit(a, x, before);
    double in = u.gate[0], forget = u.gate[1], g = u.gate[2], out = u.gate[3], tc = tanh(u.cell);
    double dc = d->dc[i] + d->dh[i] * out * (1 - tc * tc);
    dx[0] = dc * g * in * (1 - in);
    dx[1] = dc * before * forget * (1 - forget);
    dx[2] = dc * in * (1 - g * g);
    dx[3] = d->dh[i] * tc * out * (1 - out);
    d->dc[i] = dc * forget;
    d->dh[i] = 0;
}

static void gru_back(const sequence *s, const aril__run *r, gradients *d, int64_t t, int64_t i,
                     double dx[4])
{
    double a[4], x[4];
    contributions(s, r->in[GRAD_XW], t, i, a, x);
    unit u = gru_unit(a, x);
    double reset = u.gate[0], z = u.gate[1], n = u.gate[2], dn = d->dh[i] * (1 - z) * (1 - n * n);
    dx[0] = dn * a[2] * reset * (1 - reset);
    dx[1] = d->dh[i] * (s->state[i] - n) * z * (1 - z);
    dx[2] = dn;
    d->dh[i] *= z;
    d->back[2 * s->h + i] = dn * reset;
}

static void rnn_back(const sequence *s, const aril__run *r, gradients *d, int64_t t, int64_t i,
                     double dx[4])
{
    double y = aril__get(r->in[GRAD_Y], at_state(s, t, i));
    dx[0] = s->at->relu[0] ? (y > 0 ? d->dh[i] : 0) : d->dh[i] * (1 - y * y);
    d->dh[i] = 0;
}

/* One step back: gradients of the gates, then through W_hh to the state before. */
static void step_back(const sequence *s, aril__run *r, gradients *d, int64_t t)
{
    const aril_tensor *gy = r->in[GRAD_GY];
    state_before(s, r, t);
    if (s->kind != ARIL__RNN) project(s, s->state);
    for (int64_t i = 0; i < s->h; i++) {
        double dx[4];
        if (gy) d->dh[i] += aril__get(gy, at_state(s, t, i));
        (s->kind == ARIL__LSTM  ? lstm_back
         : s->kind == ARIL__GRU ? gru_back
                                : rnn_back)(s, r, d, t, i, dx);
        for (int64_t q = 0; q < s->gates; q++) {
            aril__put(r->out[0], at_gate(s, s->gates, t, q, i), dx[q]);
            if (s->kind != ARIL__GRU || q < 2) d->back[q * s->h + i] = dx[q];
        }
    }
    for (int64_t j = 0; j < s->gates * s->h; j++) {
        d->db[j] += d->back[j];
        for (int64_t k = 0; k < s->h; k++) {
            d->dh[k] += d->back[j] * aril__get(s->w, j * s->h + k);
            d->dw[j * s->h + k] += d->back[j] * s->state[k];
        }
    }
}

static void sequence_back(const sequence *s, aril__run *r, gradients *d)
{
    read_state(s, r->in[GRAD_GH], d->dh);
    if (s->kind == ARIL__LSTM) {
        read_state(s, r->in[GRAD_GC], d->dc);
        run_cells(s, r, d->cells);
    }
    for (int64_t t = s->length; t < s->steps; t++) /* after its end */
        for (int64_t i = 0; i < s->gates * s->h; i++)
            aril__put(r->out[0], at_gate(s, s->gates, t, 0, i), 0);
    for (int64_t k = 0; k < s->length; k++)
        step_back(s, r, d, s->at->reverse[0] ? k : s->length - 1 - k);
    write_state(s, d->dh, r->out[1]);
    if (s->kind == ARIL__LSTM) write_state(s, d->dc, r->out[4]);
}

static bool set_up_gradients(gradients *d, int64_t h, int64_t row, int64_t steps)
{
    d->dh = aril__calloc((size_t)((2 + steps) * h + 2 * row + row * h + 1) * sizeof *d->dh);
    if (!d->dh) return false;
    d->dc = d->dh + h;
    d->cells = d->dc + h;
    d->back = d->cells + steps * h;
    d->db = d->back + row;
    d->dw = d->db + row;
    return true;
}

aril_status aril__rnn_grad_ref(enum aril__rnn_kind kind, aril__run *r)
{
    const aril_tensor *lengths = r->in[GRAD_LEN], *w = r->in[GRAD_W];
    sequence s = { .kind = kind, .at = r->attrs, .steps = r->in[GRAD_Y]->dim[0] };
    gradients d = { .dh = NULL };
    int64_t h = w->dim[1], row = w->dim[0];
    aril_status status = aril__rnn_check_lengths(r->op, lengths, s.steps);
    if (status < 0) return status;
    if (!set_up(&s, w, kind == ARIL__RNN ? NULL : r->in[GRAD_B], r->in[GRAD_H0]) ||
        !set_up_gradients(&d, h, row, s.steps))
        status = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    for (s.n = 0; s.n < s.batch && status == ARIL_OK; s.n++) {
        s.length = length_of(lengths, s.n, s.steps);
        sequence_back(&s, r, &d);
    }
    for (int64_t i = 0; i < row * h && status == ARIL_OK; i++) aril__put(r->out[2], i, d.dw[i]);
    for (int64_t i = 0; i < row && status == ARIL_OK; i++) aril__put(r->out[3], i, d.db[i]);
    free(s.state);
    free(d.dh);
    return status;
}
