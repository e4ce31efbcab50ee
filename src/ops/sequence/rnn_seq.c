/* Recurrent sequences. The input projections of all steps are computed beforehand; these ops run
 * the steps. Backward only needs the results: kernels may keep the gates, or recompute them from
 * the states. */
#include "ops/sequence/rnn_seq.h"

#include "ops/table/apply.h"
#include "ops/table/flops.h"
#include "ops/norm/norm.h"
#include "ops/table/sample.h"
#include "ops/linalg/matmul.h"

ATTR_LIST(rnn_seq, RNN_SEQ_ATTRS)

aril_status aril__rnn_check_lengths(const aril__op *op, const aril_tensor *lengths, int64_t steps)
{
    const int64_t *len = lengths ? aril__ptr(lengths) : NULL;
    for (int64_t n = 0; len && n < lengths->dim[0]; n++)
        if (len[n] < 1 || len[n] > steps)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: length %lld of sequence %lld is not between 1 and %lld",
                              op->name, (long long)len[n], (long long)n, (long long)steps);
    return ARIL_OK;
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
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s is %s, expected %s like the input", c->op->name,
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: the input has %lld gate values, the weight %lld",
                          c->op->name, (long long)xw->dim[2], (long long)w->dim[0]);
    int64_t batch = xw->dim[1], h = w->dim[1];
    aril_status s = check_input(c, RNN_H0, "the initial state", 2, batch, h);
    if (s < 0 || (s = check_input(c, RNN_W, "the weight", 2, w->dim[0], h)) < 0 ||
        (s = check_input(c, RNN_B, "the bias", 1, w->dim[0], 0)) < 0 ||
        (kind == ARIL__LSTM &&
         (s = check_input(c, RNN_C0, "the initial cell state", 2, batch, h)) < 0))
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
        return aril__rnn_ref(kind, r);                                  \
    }                                                                   \
    static aril_status name##_grad_ref(aril__run *r)                    \
    {                                                                   \
        return aril__rnn_grad_ref(kind, r);                             \
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
#define FLOATS     .types = DT_FLOAT, WITH_ATTRS(rnn_seq)

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

OP(rnn_seq, .doc = "recurrent layer (Elman RNN) over a sequence", .min_in = 5, .max_in = 5,
   .n_out = 2, .cast = CAST_LOW, .optional = IN(RNN_B) | IN(RNN_LEN), .index_in = IN(RNN_LEN),
   .flags = STRIDED, .infer = rnn_seq_infer, .ref = rnn_seq_ref, .vjp = rnn_seq_vjp,
   .saves = { SAVES_RNN, SAVES_RNN, SAVES_RNN, SAVES_RNN }, .flops = seq_flops,
   .samples = rnn_seq_samples, FLOATS);

static const aril__sample lstm_seq_samples[] = {
    { .in = { "[3,2,8]", "[2,2]", "u[8,2]", "[8]", "-", "[2,2]" }, .attrs = &onward },
    { .in = { "[2,2,4]", "[2,1]", "u[4,1]", "-", "-", "[2,1]" }, .attrs = &backwards },
    { .in = { "[2,0,4]", "[0,1]", "u[4,1]", "[4]", "-", "[0,1]" }, .attrs = &onward },
    { .in = { "[3,2,8]", "[2,2]", "u[8,2]", "[8]", "-", "[2,2]" },
      .attrs = &keep,
      .flags = SAMPLE_FIRST },
    SAMPLE_END
};
OP(lstm_seq, .doc = "LSTM layer over a sequence", .min_in = 6, .max_in = 6, .n_out = 4,
   .cast = CAST_LOW, .optional = IN(RNN_B) | IN(RNN_LEN), .index_in = IN(RNN_LEN), .flags = STRIDED,
   .infer = lstm_seq_infer, .ref = lstm_seq_ref, .vjp = lstm_seq_vjp,
   .saves = { SAVES_LSTM, SAVES_LSTM, SAVES_LSTM, SAVES_LSTM }, .flops = seq_flops,
   .samples = lstm_seq_samples, FLOATS);

static const aril__sample gru_seq_samples[] = {
    { .in = { "[3,2,6]", "[2,2]", "u[6,2]", "[6]", "-" }, .attrs = &onward },
    { .in = { "[2,2,3]", "[2,1]", "u[3,1]", "-", "-" }, .attrs = &backwards },
    { .in = { "[2,0,3]", "[0,1]", "u[3,1]", "[3]", "-" }, .attrs = &onward },
    { .in = { "[3,2,6]", "[2,2]", "u[6,2]", "[6]", "-" }, .attrs = &keep, .flags = SAMPLE_FIRST },
    SAMPLE_END
};
OP(gru_seq, .doc = "GRU layer over a sequence", .min_in = 5, .max_in = 5, .n_out = 3,
   .cast = CAST_LOW, .optional = IN(RNN_B) | IN(RNN_LEN), .index_in = IN(RNN_LEN), .flags = STRIDED,
   .infer = gru_seq_infer, .ref = gru_seq_ref, .vjp = gru_seq_vjp,
   .saves = { SAVES_GRU, SAVES_GRU, SAVES_GRU, SAVES_GRU }, .flops = seq_flops,
   .samples = gru_seq_samples, FLOATS);

#define GRAD_OPTIONAL \
    (IN(GRAD_LEN) | IN(GRAD_GY) | IN(GRAD_GH) | IN(GRAD_B) | IN(GRAD_GC) | IN(GRAD_KEPT))

static const aril__sample rnn_seq_grad_samples[] = {
    { .in = { "u[3,2,2]", "[2,2]", "u[2,2]", "-", "[3,2,2]", "[2,2]" }, .attrs = &onward },
    { .in = { "u[3,2,2]", "[2,2]", "u[2,2]", "-", "[3,2,2]", "-" }, .attrs = &backwards },
    SAMPLE_END
};
OP(rnn_seq_grad, .doc = "gradient of rnn_seq", .min_in = 6, .max_in = 6, .n_out = 4,
   .optional = GRAD_OPTIONAL, .index_in = IN(GRAD_LEN), .flags = GRADIENT | STRIDED,
   .infer = grad_infer, .ref = rnn_seq_grad_ref, .decompose = rnn_seq_grad_decompose,
   .flops = seq_grad_flops, .samples = rnn_seq_grad_samples, FLOATS);

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
   .optional = GRAD_OPTIONAL, .index_in = IN(GRAD_LEN), .flags = GRADIENT | STRIDED,
   .infer = grad_infer, .ref = lstm_seq_grad_ref, .decompose = lstm_seq_grad_decompose,
   .flops = seq_grad_flops, .samples = lstm_seq_grad_samples, FLOATS);

static const aril__sample gru_seq_grad_samples[] = {
    { .in = { "u[3,2,2]", "[2,2]", "u[6,2]", "-", "[3,2,2]", "[2,2]", "[3,2,6]", "[6]", "-" },
      .attrs = &onward },
    { .in = { "u[2,2,1]", "[2,1]", "u[3,1]", "-", "-", "[2,1]", "[2,2,3]", "-", "-" },
      .attrs = &backwards },
    SAMPLE_END
};
OP(gru_seq_grad, .doc = "gradient of gru_seq", .min_in = 9, .max_in = 9, .n_out = 4,
   .optional = GRAD_OPTIONAL, .index_in = IN(GRAD_LEN), .flags = GRADIENT | STRIDED,
   .infer = grad_infer, .ref = gru_seq_grad_ref, .decompose = gru_seq_grad_decompose,
   .flops = seq_grad_flops, .samples = gru_seq_grad_samples, FLOATS);
