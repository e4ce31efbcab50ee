/* Recurrent sequences. The input projections of all steps are computed beforehand; this runs the
 * steps. Backward only needs the results: it recomputes the gates with one product of all states
 * with W_hh. */
#include "ops/sequence/rnn_seq.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/flops.h"
#include "ops/norm/norm.h"
#include "ops/table/sample.h"
#include "ops/linalg/matmul.h"

#include <math.h>
#include <string.h>

ATTR_LIST(rnn_seq, RNN_SEQ_ATTRS)

enum { GRAIN = 8 * 1024 };

/* ---- kernels ---- */

typedef struct seq_step {
    enum aril__rnn_kind kind;
    bool relu;
    int64_t t, h, gates;
    const int64_t *len; /* NULL: all steps are valid */
    const void *xw, *a; /* of this step */
    void *y, *hs, *cs;
    void *kept; /* NULL: do not keep the gates */
} seq_step;

typedef struct seq_back {
    enum aril__rnn_kind kind;
    bool relu, reverse;
    int64_t steps, batch, h, gates, t;
    const int64_t *len;
    const void *y, *h0, *c0, *xw, *gy;
    void *before, *a, *cells; /* states before each step, gates, cells */
    void *dx, *dh, *dc;
} seq_back;

static bool is_active(const seq_step *s, int64_t n)
{
    return !s->len || s->t < s->len[n];
}

#define TEMPLATE "ops/sequence/rnn_seq.inc"
#include "ops/table/each_real.inc"

#define RUN(kernel, wide, rows, work, ctx) \
    aril__parallel_for((rows), GRAIN / (work) + 1, (wide) ? kernel##_f64 : kernel##_f32, (ctx))

static aril_status product(const aril__op *op, aril_tensor *out, aril_tensor *a, aril_tensor *b,
                           aril_tensor *c)
{
    aril_tensor *in[3] = { a, b, c };
    aril__run r = { .op = op,
                    .n_in = op->max_in,
                    .n_out = 1,
                    .in = in,
                    .out = &out,
                    .type = (aril_dtype)a->dtype,
                    .device = aril__cpu_device };
    return aril__dispatch(&r);
}

/* Step t of a contiguous [T,N,K]. */
static aril_tensor step_of(const aril_tensor *t, int64_t step)
{
    aril_tensor v = *t;
    v.ndim = 2;
    v.dim[0] = t->dim[1];
    v.dim[1] = t->dim[2];
    v.stride[0] = t->dim[2];
    v.stride[1] = 1;
    v.numel = v.dim[0] * v.dim[1];
    v.offset = t->offset + step * v.numel;
    return v;
}

static aril_status check_lengths(const aril__op *op, const aril_tensor *lengths, int64_t steps)
{
    const int64_t *len = lengths ? aril__ptr(lengths) : NULL;
    for (int64_t n = 0; len && n < lengths->dim[0]; n++)
        if (len[n] < 1 || len[n] > steps)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: length %lld of sequence %lld is not from 1 to %lld", op->name,
                              (long long)len[n], (long long)n, (long long)steps);
    return ARIL_OK;
}

static aril_status forward(aril__run *r, enum aril__rnn_kind kind)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    const struct rnn_seq_attrs *at = r->attrs;
    const aril_tensor *xw = r->in[RNN_XW];
    int64_t steps = xw->dim[0], batch = xw->dim[1];
    bool wide = r->type == ARIL_F64;
    aril_status s = check_lengths(r->op, r->in[RNN_LEN], steps);
    if (s < 0) return s;
    aril__rnn_start(r->out[1], r->in[RNN_H0]);
    if (kind == ARIL__LSTM) aril__rnn_start(r->out[2], r->in[RNN_C0]);
    aril_tensor *a = aril_empty(ARIL_SHAPE(batch, xw->dim[2]), r->type, aril_cpu());
    if (aril_tensor_status(a) < 0) return aril_tensor_status(a);
    seq_step step = { .kind = kind,
                      .relu = at->relu[0],
                      .h = r->in[RNN_H0]->dim[1],
                      .len = aril__ptr_or_null(r->in[RNN_LEN]),
                      .a = aril__ptr(a),
                      .hs = aril__ptr(r->out[1]),
                      .cs = kind == ARIL__LSTM ? aril__ptr(r->out[2]) : NULL };
    step.gates = step.h ? xw->dim[2] / step.h : 1;
    void *kept = NULL;
    int64_t kept_step = 0;
    if (kind != ARIL__RNN && at->keep[0]) {
        kept = aril__ptr(r->out[r->n_out - 1]);
        kept_step = batch * step.h * (kind == ARIL__LSTM ? LSTM_KEPT : GRU_KEPT) * (wide ? 8 : 4);
    }
    for (int64_t k = 0; k < steps && s == ARIL_OK; k++) {
        step.t = at->reverse[0] ? steps - 1 - k : k;
        aril_tensor x = step_of(xw, step.t), y = step_of(r->out[0], step.t);
        step.xw = aril__ptr(&x);
        step.y = aril__ptr(&y);
        if (kept) step.kept = (char *)kept + step.t * kept_step;
        s = product(&aril__op_linear, a, r->out[1], r->in[RNN_W], r->in[RNN_B]);
        if (s == ARIL_OK) RUN(forward_step, wide, batch, xw->dim[2] * 8 + 1, &step);
    }
    return s;
}

static aril_status backward(aril__run *r, enum aril__rnn_kind kind)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    const struct rnn_seq_attrs *at = r->attrs;
    aril_tensor *y = r->in[GRAD_Y], *w = r->in[GRAD_W], *dx = r->out[0];
    int64_t steps = y->dim[0], batch = y->dim[1], h = y->dim[2], wide_row = w->dim[0];
    bool wide = r->type == ARIL_F64, lstm = kind == ARIL__LSTM;
    aril_status s = check_lengths(r->op, r->in[GRAD_LEN], steps);
    if (s < 0) return s;
    aril_tensor *before = aril_empty(ARIL_SHAPE(steps, batch, h), r->type, aril_cpu());
    aril_tensor *part = aril_empty(ARIL_SHAPE(batch, h), r->type, aril_cpu());
    aril_tensor *a = NULL, *cells = NULL;
    if (kind != ARIL__RNN) a = aril_empty(ARIL_SHAPE(steps, batch, wide_row), r->type, aril_cpu());
    if (lstm) cells = aril_empty(ARIL_SHAPE(steps, batch, h), r->type, aril_cpu());
    if ((s = aril_tensor_status(before)) < 0 || (s = aril_tensor_status(part)) < 0 ||
        (a && (s = aril_tensor_status(a)) < 0) || (cells && (s = aril_tensor_status(cells)) < 0))
        return s;
    aril__rnn_start(r->out[1], r->in[GRAD_GH]);
    if (lstm) aril__rnn_start(r->out[4], r->in[GRAD_GC]);
    seq_back b = { .kind = kind,
                   .relu = at->relu[0],
                   .reverse = at->reverse[0],
                   .steps = steps,
                   .batch = batch,
                   .h = h,
                   .gates = h ? wide_row / h : 1,
                   .len = aril__ptr_or_null(r->in[GRAD_LEN]),
                   .y = aril__ptr(y),
                   .h0 = aril__ptr(r->in[GRAD_H0]),
                   .c0 = lstm ? aril__ptr(r->in[GRAD_C0]) : NULL,
                   .xw = a ? aril__ptr(r->in[GRAD_XW]) : NULL,
                   .gy = aril__ptr_or_null(r->in[GRAD_GY]),
                   .before = aril__ptr(before),
                   .a = aril__ptr_or_null(a),
                   .cells = aril__ptr_or_null(cells),
                   .dx = aril__ptr(dx),
                   .dh = aril__ptr(r->out[1]),
                   .dc = lstm ? aril__ptr(r->out[4]) : NULL };
    RUN(states_before, wide, batch, steps * h + 1, &b);
    if (a) {
        s = product(&aril__op_linear, a, before, w, r->in[GRAD_B]);
        if (s < 0) return s;
        RUN(activate, wide, batch, steps * wide_row * 8 + 1, &b);
    }
    aril_tensor *back = kind == ARIL__GRU ? a : dx; /* the gradient of the product with W_hh */
    for (int64_t k = 0; k < steps && s == ARIL_OK; k++) {
        b.t = b.reverse ? k : steps - 1 - k;
        RUN(backward_step, wide, batch, wide_row * 4 + 1, &b);
        aril_tensor d = step_of(back, b.t);
        s = product(&aril__op_matmul, part, &d, w, NULL);
        if (s == ARIL_OK) (wide ? add_into_f64 : add_into_f32)(b.dh, aril__ptr(part), batch * h);
    }
    if (s == ARIL_OK) s = product(&aril__op_outer_sum, r->out[2], back, before, NULL);
    if (s == ARIL_OK) {
        aril_tensor *sum = aril_sum(back, ARIL_AXES(0, 1));
        if ((s = aril_tensor_status(sum)) == ARIL_OK) aril__rnn_start(r->out[3], sum);
    }
    return s;
}

/* ---- shape inference ---- */

static aril_status check_input(const aril__call *c, int i, const char *name, int ndim, int64_t d0,
                               int64_t d1)
{
    const aril_tensor *t = c->in[i];
    if (!t) return ARIL_OK;
    int64_t want[2] = { d0, d1 };
    bool fits = t->ndim == ndim;
    for (int d = 0; fits && d < ndim; d++) fits = aril__size_fits(t->dim[d], want[d]);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s is %s, expected %s", c->op->name, name,
                          aril__text(a, t), aril__shape_text(b, ndim, want));
    if (t->dtype != c->in[0]->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s is %s, expected %s as the input", c->op->name,
                          name, aril__dtypes[t->dtype].name, aril__dtypes[c->in[0]->dtype].name);
    return ARIL_OK;
}

static void set_out(aril__call *c, int i, int ndim, int64_t d0, int64_t d1, int64_t d2)
{
    aril__meta *o = &c->out[i];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = ndim;
    o->dim[0] = d0;
    o->dim[1] = d1;
    o->dim[2] = d2;
}

static aril_status infer(aril__call *c, enum aril__rnn_kind kind)
{
    const aril_tensor *xw = c->in[RNN_XW], *w = c->in[RNN_W], *len = c->in[RNN_LEN];
    int64_t gates = kind == ARIL__LSTM ? 4 : kind == ARIL__GRU ? 3 : 1;
    char text[ARIL__SHAPE_TEXT];
    if (xw->ndim != 3 || xw->dim[0] == 0)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: expected inputs [T,N,%lldH] of at least one step, got %s",
                          c->op->name, (long long)gates, aril__text(text, xw));
    if (w->ndim != 2 || (w->dim[0] >= 0 && w->dim[1] >= 0 && w->dim[0] != gates * w->dim[1]))
        return aril__fail(ARIL_ERR_SHAPE, "%s: the weight is %s, expected [%lldH,H]", c->op->name,
                          aril__text(text, w), (long long)gates);
    if (!aril__size_fits(xw->dim[2], w->dim[0]))
        return aril__fail(ARIL_ERR_SHAPE, "%s: inputs of %lld gates, the weight has %lld",
                          c->op->name, (long long)xw->dim[2], (long long)w->dim[0]);
    int64_t batch = xw->dim[1], h = w->dim[1];
    aril_status s = check_input(c, RNN_H0, "the first state", 2, batch, h);
    if (s < 0 || (s = check_input(c, RNN_W, "the weight", 2, w->dim[0], h)) < 0 ||
        (s = check_input(c, RNN_B, "the bias", 1, w->dim[0], 0)) < 0 ||
        (kind == ARIL__LSTM && (s = check_input(c, RNN_C0, "the first cell", 2, batch, h)) < 0))
        return s;
    if (len && (len->ndim != 1 || !aril__size_fits(len->dim[0], batch)))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: lengths are %s, expected one for each of %lld sequences",
                          c->op->name, aril__text(text, len), (long long)batch);
    if (len && !aril__is_int((aril_dtype)len->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "%s: lengths are %s, expected integers", c->op->name,
                          aril__dtypes[len->dtype].name);
    set_out(c, 0, 3, xw->dim[0], batch, h);
    set_out(c, 1, 2, batch, h, 0);
    if (kind == ARIL__LSTM) set_out(c, 2, 2, batch, h, 0);
    if (kind != ARIL__RNN) {
        int64_t slots = kind == ARIL__LSTM ? LSTM_KEPT : GRU_KEPT;
        bool keep = ((const struct rnn_seq_attrs *)c->attrs)->keep[0];
        if (keep)
            set_out(c, c->op->n_out - 1, 3, xw->dim[0], batch, h < 0 ? -1 : slots * h);
        else
            set_out(c, c->op->n_out - 1, 1, 0, 0, 0);
    }
    return ARIL_OK;
}

static aril_status grad_infer(aril__call *c)
{
    const aril_tensor *y = c->in[GRAD_Y], *w = c->in[GRAD_W];
    if (y->ndim != 3 || w->ndim != 2)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected [T,N,H] and [GH,H]", c->op->name);
    set_out(c, 0, 3, y->dim[0], y->dim[1], w->dim[0]);
    set_out(c, 1, 2, y->dim[1], y->dim[2], 0);
    set_out(c, 2, 2, w->dim[0], w->dim[1], 0);
    set_out(c, 3, 1, w->dim[0], 0, 0);
    if (c->op->n_out > 4) set_out(c, 4, 2, y->dim[1], y->dim[2], 0);
    return ARIL_OK;
}

/* ---- gradients ---- */

static void vjp(aril__grad *c, const aril__op *grad)
{
    const struct rnn_seq_attrs *at = c->attrs;
    bool gates = grad != &aril__op_rnn_seq_grad, any = false;
    for (int i = 0; i < c->n_out - gates; i++) any |= c->g[i] != NULL;
    if (!any) return;
    aril_tensor *out[5], *in[GRAD_INPUTS] = {
        [GRAD_Y] = c->y[0],         [GRAD_H0] = c->x[RNN_H0], [GRAD_W] = c->x[RNN_W],
        [GRAD_LEN] = c->x[RNN_LEN], [GRAD_GY] = c->g[0],      [GRAD_GH] = c->g[1],
        [GRAD_XW] = c->x[RNN_XW],   [GRAD_B] = c->x[RNN_B]
    };
    if (gates && at->keep[0]) in[GRAD_KEPT] = c->y[c->n_out - 1];
    if (grad->n_out > 4) {
        in[GRAD_C0] = c->x[RNN_C0];
        in[GRAD_GC] = c->g[2];
    }
    aril__apply(grad, grad->max_in, in, c->attrs, out);
    GRAD(RNN_XW, out[0]);
    GRAD(RNN_H0, out[1]);
    GRAD(RNN_W, out[2]);
    GRAD(RNN_B, out[3]);
    if (grad->n_out > 4) GRAD(RNN_C0, out[4]);
}

/* ---- op table rows ---- */

#define KIND(name, kind)                                                \
    static aril_status name##_infer(aril__call *c)                      \
    {                                                                   \
        return infer(c, kind);                                          \
    }                                                                   \
    static aril_status name##_ref(aril__run *r)                         \
    {                                                                   \
        return forward(r, kind);                                        \
    }                                                                   \
    static aril_status name##_grad_ref(aril__run *r)                    \
    {                                                                   \
        return backward(r, kind);                                       \
    }                                                                   \
    static void name##_grad_decompose(aril__call *c, aril_tensor **out) \
    {                                                                   \
        aril__rnn_grad_decompose(kind, c, out);                         \
    }                                                                   \
    VJP(name)                                                           \
    {                                                                   \
        vjp(c, &aril__op_##name##_grad);                                \
    }
KIND(rnn_seq, ARIL__RNN)
KIND(lstm_seq, ARIL__LSTM)
KIND(gru_seq, ARIL__GRU)

#define SAVES_RNN  (IN(RNN_H0) | IN(RNN_W) | IN(RNN_LEN) | OUT(0))
#define SAVES_GATE (SAVES_RNN | IN(RNN_XW) | IN(RNN_B))
#define SAVES_GRU  (SAVES_GATE | OUT(2))
#define SAVES_LSTM (SAVES_GATE | IN(RNN_C0) | OUT(3))
#define FLOATS     .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), WITH_ATTRS(rnn_seq)

static const struct rnn_seq_attrs onward = { { 0 }, { 0 }, { 0 } },
                                  backwards = { { 1 }, { 0 }, { 0 } },
                                  relu = { { 0 }, { 1 }, { 0 } }, keep = { { 0 }, { 0 }, { 1 } };

static const aril__sample rnn_seq_samples[] = {
    { .in = { "[3,2,4]", "[2,4]", "u[4,4]", "[4]", "-" }, .attrs = &onward },
    { .in = { "[3,2,2]", "[2,2]", "u[2,2]", "-", "-" }, .attrs = &backwards },
    { .in = { "[2,2,2]", "[2,2]", "u[2,2]", "[2]", "-" }, .attrs = &relu },
    { .in = { "[2,0,2]", "[0,2]", "u[2,2]", "[2]", "-" }, .attrs = &onward },
    SAMPLE_END
};
/* The state is multiplied by W_hh at every step. */
static double seq_flops(const aril__run *r)
{
    const aril_tensor *xw = r->in[RNN_XW], *w = r->in[RNN_W];
    return xw->ndim == 3 ? 2 * (double)xw->dim[0] * (double)xw->dim[1] * aril__numel_of(w) : 0;
}

/* Twice that: the gradient of the state, and that of W_hh. */
static double seq_grad_flops(const aril__run *r)
{
    const aril_tensor *y = r->in[GRAD_Y], *w = r->in[GRAD_W];
    return y->ndim == 3 ? 4 * (double)y->dim[0] * (double)y->dim[1] * aril__numel_of(w) : 0;
}

OP(rnn_seq, .doc = "steps of a plain recurrent layer", .min_in = 5, .max_in = 5, .n_out = 2,
   .optional = IN(RNN_B) | IN(RNN_LEN), .index_in = IN(RNN_LEN), .infer = rnn_seq_infer,
   .ref = rnn_seq_ref, .vjp = rnn_seq_vjp, .saves = { SAVES_RNN, SAVES_RNN, SAVES_RNN, SAVES_RNN },
   .flops = seq_flops, .samples = rnn_seq_samples, FLOATS);

static const aril__sample lstm_seq_samples[] = {
    { .in = { "[3,2,8]", "[2,2]", "u[8,2]", "[8]", "-", "[2,2]" }, .attrs = &onward },
    { .in = { "[2,2,4]", "[2,1]", "u[4,1]", "-", "-", "[2,1]" }, .attrs = &backwards },
    { .in = { "[2,0,4]", "[0,1]", "u[4,1]", "[4]", "-", "[0,1]" }, .attrs = &onward },
    { .in = { "[3,2,8]", "[2,2]", "u[8,2]", "[8]", "-", "[2,2]" },
      .attrs = &keep,
      .flags = SAMPLE_FIRST },
    SAMPLE_END
};
OP(lstm_seq, .doc = "steps of an LSTM layer", .min_in = 6, .max_in = 6, .n_out = 4,
   .optional = IN(RNN_B) | IN(RNN_LEN), .index_in = IN(RNN_LEN), .infer = lstm_seq_infer,
   .ref = lstm_seq_ref, .vjp = lstm_seq_vjp,
   .saves = { SAVES_LSTM, SAVES_LSTM, SAVES_LSTM, SAVES_LSTM }, .flops = seq_flops,
   .samples = lstm_seq_samples, FLOATS);

static const aril__sample gru_seq_samples[] = {
    { .in = { "[3,2,6]", "[2,2]", "u[6,2]", "[6]", "-" }, .attrs = &onward },
    { .in = { "[2,2,3]", "[2,1]", "u[3,1]", "-", "-" }, .attrs = &backwards },
    { .in = { "[2,0,3]", "[0,1]", "u[3,1]", "[3]", "-" }, .attrs = &onward },
    { .in = { "[3,2,6]", "[2,2]", "u[6,2]", "[6]", "-" }, .attrs = &keep, .flags = SAMPLE_FIRST },
    SAMPLE_END
};
OP(gru_seq, .doc = "steps of a GRU layer", .min_in = 5, .max_in = 5, .n_out = 3,
   .optional = IN(RNN_B) | IN(RNN_LEN), .index_in = IN(RNN_LEN), .infer = gru_seq_infer,
   .ref = gru_seq_ref, .vjp = gru_seq_vjp, .saves = { SAVES_GRU, SAVES_GRU, SAVES_GRU, SAVES_GRU },
   .flops = seq_flops, .samples = gru_seq_samples, FLOATS);

#define GRAD_OPTIONAL \
    (IN(GRAD_LEN) | IN(GRAD_GY) | IN(GRAD_GH) | IN(GRAD_B) | IN(GRAD_GC) | IN(GRAD_KEPT))

static const aril__sample rnn_seq_grad_samples[] = {
    { .in = { "u[3,2,2]", "[2,2]", "u[2,2]", "-", "[3,2,2]", "[2,2]" }, .attrs = &onward },
    { .in = { "u[3,2,2]", "[2,2]", "u[2,2]", "-", "[3,2,2]", "-" }, .attrs = &backwards },
    SAMPLE_END
};
OP(rnn_seq_grad, .doc = "gradient of rnn_seq", .min_in = 6, .max_in = 6, .n_out = 4,
   .optional = GRAD_OPTIONAL, .index_in = IN(GRAD_LEN), .infer = grad_infer,
   .ref = rnn_seq_grad_ref, .decompose = rnn_seq_grad_decompose, .flops = seq_grad_flops,
   .samples = rnn_seq_grad_samples, FLOATS);

static const aril__sample lstm_seq_grad_samples[] = {
    { .in = { "u[3,2,2]", "[2,2]", "u[8,2]", "-", "[3,2,2]", "[2,2]", "[3,2,8]", "[8]", "-",
              "[2,2]", "[2,2]" },
      .attrs = &onward },
    { .in = { "u[2,2,1]", "[2,1]", "u[4,1]", "-", "[2,2,1]", "-", "[2,2,4]", "-", "-", "[2,1]",
              "-" },
      .attrs = &backwards },
    SAMPLE_END
};
OP(lstm_seq_grad, .doc = "gradient of lstm_seq", .min_in = 11, .max_in = 11, .n_out = 5,
   .optional = GRAD_OPTIONAL, .index_in = IN(GRAD_LEN), .infer = grad_infer,
   .ref = lstm_seq_grad_ref, .decompose = lstm_seq_grad_decompose, .flops = seq_grad_flops,
   .samples = lstm_seq_grad_samples, FLOATS);

static const aril__sample gru_seq_grad_samples[] = {
    { .in = { "u[3,2,2]", "[2,2]", "u[6,2]", "-", "[3,2,2]", "[2,2]", "[3,2,6]", "[6]", "-" },
      .attrs = &onward },
    { .in = { "u[2,2,1]", "[2,1]", "u[3,1]", "-", "-", "[2,1]", "[2,2,3]", "-", "-" },
      .attrs = &backwards },
    SAMPLE_END
};
OP(gru_seq_grad, .doc = "gradient of gru_seq", .min_in = 9, .max_in = 9, .n_out = 4,
   .optional = GRAD_OPTIONAL, .index_in = IN(GRAD_LEN), .infer = grad_infer,
   .ref = gru_seq_grad_ref, .decompose = gru_seq_grad_decompose, .flops = seq_grad_flops,
   .samples = gru_seq_grad_samples, FLOATS);
