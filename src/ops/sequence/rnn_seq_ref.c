/* Recurrent sequences, one sequence and one step after another: the equations as they stand in
 * papers, in double. rnn_seq_grad.c has the same backward pass in public ops. */
#include "ops/sequence/rnn_seq.h"

#include "ops/norm/norm.h"
#include "ops/table/element.h"

#include <math.h>
#include <string.h>

/* One sequence: its state, and values of one step. */
typedef struct sequence {
    enum aril__rnn_kind kind;
    bool relu, reverse;
    const aril_tensor *x, *w_ih, *w_hh, *b_ih, *b_hh;
    int64_t n, batch, h, inputs, gates, steps, length;
    double *state, *cell; /* [H] */
    double *a;            /* state times W_hh, plus bias: [G*H] */
    double *xw;           /* input times W_ih, plus bias: [G*H] */
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

/* Element k of the input of step t. */
static double input_at(const sequence *s, int64_t t, int64_t k)
{
    return aril__get(s->x, (t * s->batch + s->n) * s->inputs + k);
}

/* What the input of step t and the given state contribute to the gates. */
static void project(const sequence *s, int64_t t, const double *state)
{
    for (int64_t j = 0; j < s->gates * s->h; j++) {
        s->a[j] = aril__param_at(s->b_hh, j, 0);
        s->xw[j] = aril__param_at(s->b_ih, j, 0);
        for (int64_t k = 0; k < s->h; k++) s->a[j] += aril__get(s->w_hh, j * s->h + k) * state[k];
        for (int64_t k = 0; k < s->inputs; k++)
            s->xw[j] += aril__get(s->w_ih, j * s->inputs + k) * input_at(s, t, k);
    }
}

/* Describes the sequences of a run; w: the first of the four inputs that are weights. Returns the
 * number of values in the workspace, which may be missing still. */
static int64_t set_up(sequence *s, const aril__run *r, int w)
{
    s->kind = aril__rnn_kind_of(r->op);
    s->x = r->in[RNN_X];
    s->w_ih = r->in[w];
    s->w_hh = r->in[w + 1];
    s->b_ih = r->in[w + 2];
    s->b_hh = r->in[w + 3];
    s->steps = s->x->dim[0];
    s->batch = s->x->dim[1];
    s->inputs = s->x->dim[2];
    s->h = s->w_hh->dim[1];
    s->gates = aril__rnn_gates(s->kind);
    int64_t values = (2 + 2 * s->gates) * s->h;
    s->state = r->workspace;
    if (!s->state) return values;
    s->cell = s->state + s->h;
    s->a = s->cell + s->h;
    s->xw = s->a + s->gates * s->h;
    return values;
}

size_t aril__rnn_ref_scratch(const aril__run *r)
{
    sequence s = { 0 };
    aril__run sizes = *r;
    sizes.workspace = NULL;
    return (size_t)(set_up(&s, &sizes, RNN_W_IH) + 1) * sizeof *s.state;
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

/* The same for element i of the state alone, by gate. */
static void contributions(const sequence *s, int64_t i, double *a, double *x)
{
    for (int64_t q = 0; q < s->gates; q++) {
        a[q] = s->a[q * s->h + i];
        x[q] = s->xw[q * s->h + i];
    }
}

/* ---- forward ---- */

/* The next state, element i; updates the cell. */
static double next_state(const sequence *s, int64_t i)
{
    double a[4], x[4];
    contributions(s, i, a, x);
    if (s->kind == ARIL__LSTM) {
        unit u = lstm_unit(a, x, s->cell[i]);
        s->cell[i] = u.cell;
        return u.gate[3] * tanh(u.cell);
    }
    if (s->kind == ARIL__GRU) {
        unit u = gru_unit(a, x);
        return (1 - u.gate[1]) * u.gate[2] + u.gate[1] * s->state[i];
    }
    double v = x[0] + a[0];
    return s->relu ? (v < 0 ? 0 : v) : tanh(v);
}

static void step(const sequence *s, aril__run *r, int64_t t)
{
    bool active = t < s->length;
    if (active) project(s, t, s->state);
    for (int64_t i = 0; i < s->h; i++) {
        if (active) s->state[i] = next_state(s, i);
        aril__put(r->out[RNN_Y], at_state(s, t, i), active ? s->state[i] : 0);
    }
}

/* Keeps nothing for the gradient. */
aril_status aril__rnn_ref(aril__run *r)
{
    const struct rnn_seq_attrs *at = r->attrs;
    const aril_tensor *lengths = r->in[RNN_LEN];
    sequence s = { .relu = at->relu[0], .reverse = at->reverse[0] };
    aril_status status = aril__rnn_check_lengths(r->op, lengths, r->in[RNN_X]->dim[0]);
    if (status < 0) return status;
    set_up(&s, r, RNN_W_IH);
    for (s.n = 0; s.n < s.batch; s.n++) {
        s.length = length_of(lengths, s.n, s.steps);
        read_state(&s, r->in[RNN_H0], s.state);
        if (s.kind == ARIL__LSTM) read_state(&s, r->in[RNN_C0], s.cell);
        for (int64_t k = 0; k < s.steps; k++) step(&s, r, s.reverse ? s.steps - 1 - k : k);
        write_state(&s, s.state, r->out[RNN_HN]);
        if (s.kind == ARIL__LSTM) write_state(&s, s.cell, r->out[RNN_CN]);
    }
    return ARIL_OK;
}

/* ---- backward ---- */

/* Gradients of the state and the cell [H], of the gates at the product with W_ih and at that with
 * W_hh [G*H] (which differ in a GRU's n), and of weights and biases. */
typedef struct gradients {
    double *dh, *dc, *gate, *back, *dw_ih, *dw_hh, *db_ih, *db_hh;
    double *cells; /* before each step: [T,H] */
} gradients;

/* The state before step t: the result of the step before it, or the initial state. */
static void state_before(const sequence *s, const aril__run *r, int64_t t)
{
    if (t == (s->reverse ? s->length - 1 : 0)) {
        read_state(s, r->in[GRAD_H0], s->state);
        return;
    }
    for (int64_t i = 0; i < s->h; i++)
        s->state[i] = aril__get(r->in[GRAD_Y], at_state(s, s->reverse ? t + 1 : t - 1, i));
}

/* The cells before each step of the sequence. */
static void run_cells(const sequence *s, const aril__run *r, double *cells)
{
    read_state(s, r->in[GRAD_C0], s->cell);
    for (int64_t k = 0; k < s->length; k++) {
        int64_t t = s->reverse ? s->length - 1 - k : k;
        memcpy(cells + t * s->h, s->cell, (size_t)s->h * sizeof *cells);
        state_before(s, r, t);
        project(s, t, s->state);
        for (int64_t i = 0; i < s->h; i++) {
            double a[4], x[4];
            contributions(s, i, a, x);
            s->cell[i] = lstm_unit(a, x, s->cell[i]).cell;
        }
    }
}

/* d->dh: the gradient of the state after the step, replaced by what reaches the state before it
 * without W_hh. dx: the gradients of element i's gates at the product with W_ih. */
static void lstm_back(const sequence *s, gradients *d, int64_t t, int64_t i, double dx[4])
{
    double a[4], x[4], before = d->cells[t * s->h + i];
    contributions(s, i, a, x);
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

static void gru_back(const sequence *s, gradients *d, int64_t i, double dx[4])
{
    double a[4], x[4];
    contributions(s, i, a, x);
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
    dx[0] = s->relu ? (y > 0 ? d->dh[i] : 0) : d->dh[i] * (1 - y * y);
    d->dh[i] = 0;
}

/* The gradients of x at step t, of weights and biases, and through W_hh of the state before. */
static void products_back(const sequence *s, aril__run *r, gradients *d, int64_t t)
{
    const struct rnn_grad_attrs *at = r->attrs;
    for (int64_t j = 0; j < s->gates * s->h; j++) {
        d->db_ih[j] += d->gate[j];
        d->db_hh[j] += d->back[j];
        for (int64_t k = 0; k < s->h; k++) {
            d->dh[k] += d->back[j] * aril__get(s->w_hh, j * s->h + k);
            d->dw_hh[j * s->h + k] += d->back[j] * s->state[k];
        }
        for (int64_t k = 0; k < s->inputs; k++)
            d->dw_ih[j * s->inputs + k] += d->gate[j] * input_at(s, t, k);
    }
    for (int64_t k = 0; k < s->inputs && !at->no_dx[0]; k++) {
        double sum = 0;
        for (int64_t j = 0; j < s->gates * s->h; j++)
            sum += d->gate[j] * aril__get(s->w_ih, j * s->inputs + k);
        aril__put(r->out[GRAD_DX], (t * s->batch + s->n) * s->inputs + k, sum);
    }
}

/* One step back: gradients of the gates, then through the products. */
static void step_back(const sequence *s, aril__run *r, gradients *d, int64_t t)
{
    const aril_tensor *gy = r->in[GRAD_GY];
    state_before(s, r, t);
    if (s->kind != ARIL__RNN) project(s, t, s->state);
    for (int64_t i = 0; i < s->h; i++) {
        double dx[4];
        if (gy) d->dh[i] += aril__get(gy, at_state(s, t, i));
        if (s->kind == ARIL__LSTM)
            lstm_back(s, d, t, i, dx);
        else if (s->kind == ARIL__GRU)
            gru_back(s, d, i, dx);
        else
            rnn_back(s, r, d, t, i, dx);
        for (int64_t q = 0; q < s->gates; q++) {
            d->gate[q * s->h + i] = dx[q];
            if (s->kind != ARIL__GRU || q < 2) d->back[q * s->h + i] = dx[q];
        }
    }
    products_back(s, r, d, t);
}

static void sequence_back(const sequence *s, aril__run *r, gradients *d)
{
    const struct rnn_grad_attrs *at = r->attrs;
    read_state(s, r->in[GRAD_GH], d->dh);
    if (s->kind == ARIL__LSTM) {
        read_state(s, r->in[GRAD_GC], d->dc);
        run_cells(s, r, d->cells);
    }
    for (int64_t t = s->length; t < s->steps && !at->no_dx[0]; t++) /* after its end */
        for (int64_t k = 0; k < s->inputs; k++)
            aril__put(r->out[GRAD_DX], (t * s->batch + s->n) * s->inputs + k, 0);
    for (int64_t k = 0; k < s->length; k++) step_back(s, r, d, s->reverse ? k : s->length - 1 - k);
    write_state(s, d->dh, r->out[GRAD_DH0]);
    if (s->kind == ARIL__LSTM) write_state(s, d->dc, r->out[GRAD_DC0]);
}

static int64_t gradient_values(const sequence *s)
{
    return (2 + s->steps) * s->h + s->gates * s->h * (4 + s->inputs + s->h);
}

size_t aril__rnn_grad_ref_scratch(const aril__run *r)
{
    sequence s = { 0 };
    aril__run sizes = *r;
    sizes.workspace = NULL;
    int64_t values = set_up(&s, &sizes, GRAD_W_IH);
    return (size_t)(values + gradient_values(&s) + 1) * sizeof *s.state;
}

static void set_up_gradients(gradients *d, const sequence *s, double *space)
{
    int64_t h = s->h, row = s->gates * h;
    d->dh = space;
    memset(space, 0, (size_t)gradient_values(s) * sizeof *space);
    d->dc = d->dh + h;
    d->cells = d->dc + h;
    d->gate = d->cells + s->steps * h;
    d->back = d->gate + row;
    d->db_ih = d->back + row;
    d->db_hh = d->db_ih + row;
    d->dw_ih = d->db_hh + row;
    d->dw_hh = d->dw_ih + row * s->inputs;
}

static void put_all(aril_tensor *to, const double *from)
{
    for (int64_t i = 0; i < to->numel; i++) aril__put(to, i, from[i]);
}

aril_status aril__rnn_grad_ref(aril__run *r)
{
    const struct rnn_grad_attrs *at = r->attrs;
    const aril_tensor *lengths = r->in[GRAD_LEN];
    sequence s = { .relu = at->relu[0], .reverse = at->reverse[0] };
    gradients d = { .dh = NULL };
    aril_status status = aril__rnn_check_lengths(r->op, lengths, r->in[GRAD_X]->dim[0]);
    if (status < 0) return status;
    int64_t values = set_up(&s, r, GRAD_W_IH);
    set_up_gradients(&d, &s, s.state + values);
    for (s.n = 0; s.n < s.batch; s.n++) {
        s.length = length_of(lengths, s.n, s.steps);
        sequence_back(&s, r, &d);
    }
    put_all(r->out[GRAD_DW_IH], d.dw_ih); /* empty results if they are not needed */
    put_all(r->out[GRAD_DW_HH], d.dw_hh);
    put_all(r->out[GRAD_DB_IH], d.db_ih);
    put_all(r->out[GRAD_DB_HH], d.db_hh);
    return ARIL_OK;
}
