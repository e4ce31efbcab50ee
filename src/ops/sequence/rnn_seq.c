/* Recurrent sequences: the product of the inputs with W_ih, then the steps. The gradient can do
 * with the results alone: rows may keep more for it in the reserve, or recompute the gates. */
#include "ops/sequence/rnn_seq.h"

#include "ops/norm/norm.h"
#include "ops/table/apply.h"
#include "ops/table/flops.h"
#include "ops/table/sample.h"

ATTR_LIST(rnn_seq, RNN_SEQ_ATTRS)
ATTR_LIST(rnn_grad, RNN_GRAD_ATTRS)

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

/* An input that is present has the shape `want` (-1: any size) and the dtype of x. */
static aril_status check_input(const aril__call *c, int i, const char *name, int ndim,
                               const int64_t *want)
{
    const aril_tensor *t = c->in[i];
    if (!t) return ARIL_OK;
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

static aril_status check_lengths(const aril__call *c, int64_t batch)
{
    const aril_tensor *len = c->in[RNN_LEN];
    char text[ARIL__SHAPE_TEXT];
    if (len && (len->ndim != 1 || !aril__size_fits(len->dim[0], batch)))
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: lengths are %s, expected one for each of %lld sequences",
                          c->op->name, aril__text(text, len), (long long)batch);
    if (len && !aril__is_int((aril_dtype)len->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "%s: lengths are %s, expected integers", c->op->name,
                          aril__dtypes[len->dtype].name);
    return ARIL_OK;
}

/* x, states, lengths, and the weights, which begin with input `w`. */
static aril_status check_inputs(const aril__call *c, int w)
{
    const aril_tensor *x = c->in[RNN_X], *w_hh = c->in[w + 1];
    enum aril__rnn_kind kind = aril__rnn_kind_of(c->op);
    long long gates = aril__rnn_gates(kind);
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim != 3 || x->dim[0] == 0)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: expected inputs [T,N,I] of at least one step, got %s", c->op->name,
                          aril__text(text, x));
    if (w_hh->ndim != 2 ||
        !aril__size_fits(w_hh->dim[0], w_hh->dim[1] < 0 ? -1 : gates * w_hh->dim[1]))
        return aril__fail(ARIL_ERR_SHAPE, "%s: W_hh is %s, expected [%lldH,H]", c->op->name,
                          aril__text(text, w_hh), gates);
    if (kind != ARIL__LSTM && c->in[RNN_C0])
        return aril__fail(ARIL_ERR_ARG, "%s: only an LSTM has cell states", c->op->name);
    int64_t rows = w_hh->dim[0], h = w_hh->dim[1];
    const int64_t state[] = { 1, x->dim[1], h };
    aril_status s = check_input(c, w, "W_ih", 2, (int64_t[]){ rows, x->dim[2] });
    if (s == ARIL_OK) s = check_input(c, w + 1, "W_hh", 2, (int64_t[]){ rows, h });
    if (s == ARIL_OK) s = check_input(c, w + 2, "b_ih", 1, &rows);
    if (s == ARIL_OK) s = check_input(c, w + 3, "b_hh", 1, &rows);
    if (s == ARIL_OK) s = check_input(c, RNN_H0, "the initial state", 3, state);
    if (s == ARIL_OK) s = check_input(c, RNN_C0, "the initial cell state", 3, state);
    return s == ARIL_OK ? check_lengths(c, x->dim[1]) : s;
}

static void set_out(aril__call *c, int i, int ndim, int64_t d0, int64_t d1, int64_t d2)
{
    c->out[i] =
        (aril__meta){ .dtype = (aril_dtype)c->in[0]->dtype, .ndim = ndim, .dim = { d0, d1, d2 } };
}

static aril_status seq_infer(aril__call *c)
{
    const struct rnn_seq_attrs *at = c->attrs;
    aril_status s = check_inputs(c, RNN_W_IH);
    if (s < 0) return s;
    const aril_tensor *x = c->in[RNN_X];
    int64_t h = c->in[RNN_W_HH]->dim[1];
    set_out(c, RNN_Y, 3, x->dim[0], x->dim[1], h);
    set_out(c, RNN_HN, 3, 1, x->dim[1], h);
    set_out(c, RNN_RESERVE, 1, at->keep[0] ? -1 : 0, 0, 0);
    c->out[RNN_RESERVE].dtype = ARIL_U8;
    if (c->op->n_out > RNN_CN) set_out(c, RNN_CN, 3, 1, x->dim[1], h);
    return ARIL_OK;
}

static aril_status grad_infer(aril__call *c)
{
    const struct rnn_grad_attrs *at = c->attrs;
    aril_status s = check_inputs(c, GRAD_W_IH);
    if (s < 0) return s;
    const aril_tensor *x = c->in[GRAD_X];
    int64_t steps = x->dim[0], n = x->dim[1], in = x->dim[2];
    int64_t rows = c->in[GRAD_W_HH]->dim[0], h = c->in[GRAD_W_HH]->dim[1];
    const int64_t states[] = { steps, n, h }, last[] = { 1, n, h };
    if ((s = check_input(c, GRAD_Y, "y", 3, states)) < 0 ||
        (s = check_input(c, GRAD_GY, "the gradient of y", 3, states)) < 0 ||
        (s = check_input(c, GRAD_GH, "the gradient of h_n", 3, last)) < 0 ||
        (s = check_input(c, GRAD_GC, "the gradient of c_n", 3, last)) < 0)
        return s;
    if (at->no_dx[0])
        set_out(c, GRAD_DX, 1, 0, 0, 0);
    else
        set_out(c, GRAD_DX, 3, steps, n, in);
    set_out(c, GRAD_DH0, 3, 1, n, h);
    for (int i = GRAD_DW_IH; i <= GRAD_DB_HH; i++) {
        bool weight = i <= GRAD_DW_HH;
        if (at->no_dw[0])
            set_out(c, i, 1, 0, 0, 0);
        else
            set_out(c, i, weight ? 2 : 1, rows, i == GRAD_DW_IH ? in : h, 0);
    }
    if (c->op->n_out > GRAD_DC0) set_out(c, GRAD_DC0, 3, 1, n, h);
    return ARIL_OK;
}

/* ---- gradients ---- */

static void seq_vjp(aril__grad *c)
{
    const struct rnn_seq_attrs *at = c->attrs;
    bool lstm = c->n_out > RNN_CN;
    const aril__op *grad = lstm                         ? &aril__op_lstm_seq_grad
                           : c->op == &aril__op_gru_seq ? &aril__op_gru_seq_grad
                                                        : &aril__op_rnn_seq_grad;
    if (!c->g[RNN_Y] && !c->g[RNN_HN] && !(lstm && c->g[RNN_CN])) return;
    bool weights = false;
    for (int i = RNN_W_IH; i <= RNN_B_HH; i++) weights |= c->wants[i];
    struct rnn_grad_attrs a = { .reverse = { at->reverse[0] },
                                .relu = { at->relu[0] },
                                .no_dx = { !c->wants[RNN_X] },
                                .no_dw = { !weights } };
    aril_tensor *out[GRAD_RESULTS], *in[GRAD_INPUTS] = { [GRAD_X] = c->x[RNN_X],
                                                         [GRAD_H0] = c->x[RNN_H0],
                                                         [GRAD_C0] = c->x[RNN_C0],
                                                         [GRAD_LEN] = c->x[RNN_LEN],
                                                         [GRAD_Y] = c->y[RNN_Y],
                                                         [GRAD_RESERVE] = c->y[RNN_RESERVE],
                                                         [GRAD_GY] = c->g[RNN_Y],
                                                         [GRAD_GH] = c->g[RNN_HN],
                                                         [GRAD_GC] = lstm ? c->g[RNN_CN] : NULL,
                                                         [GRAD_W_IH] = c->x[RNN_W_IH],
                                                         [GRAD_W_HH] = c->x[RNN_W_HH],
                                                         [GRAD_B_IH] = c->x[RNN_B_IH],
                                                         [GRAD_B_HH] = c->x[RNN_B_HH] };
    aril__apply(grad, GRAD_INPUTS, in, &a, out);
    GRAD(RNN_X, out[GRAD_DX]);
    GRAD(RNN_H0, out[GRAD_DH0]);
    if (lstm) GRAD(RNN_C0, out[GRAD_DC0]);
    for (int i = 0; i < 4; i++) GRAD(RNN_W_IH + i, out[GRAD_DW_IH + i]);
}

/* ---- op table rows ---- */

static double flops_of(const aril_tensor *x, const aril_tensor *w_ih, const aril_tensor *w_hh,
                       double per_ih, double per_hh)
{
    if (x->ndim != 3) return 0;
    return (double)x->dim[0] * (double)x->dim[1] *
           (per_ih * aril__numel_of(w_ih) + per_hh * aril__numel_of(w_hh));
}

/* Each step multiplies the input by W_ih and the state by W_hh. */
static double seq_flops(const aril__run *r)
{
    return flops_of(r->in[RNN_X], r->in[RNN_W_IH], r->in[RNN_W_HH], 2, 2);
}

/* As much again for the gradient of each factor. */
static double seq_grad_flops(const aril__run *r)
{
    const struct rnn_grad_attrs *at = r->attrs;
    return flops_of(r->in[GRAD_X], r->in[GRAD_W_IH], r->in[GRAD_W_HH],
                    2 * !at->no_dx[0] + 2 * !at->no_dw[0], 2 + 2 * !at->no_dw[0]);
}

/* All that a recomputation needs: the inputs, and what the kernels gave. */
#define SAVED (0xffu | OUT(RNN_Y) | OUT(RNN_RESERVE))
#define SEQ(results)                                                                               \
    .min_in = RNN_INPUTS, .max_in = RNN_INPUTS, .n_out = (results), .cast = CAST_LOW,              \
    .optional = IN(RNN_H0) | IN(RNN_C0) | IN(RNN_LEN) | IN(RNN_B_IH) | IN(RNN_B_HH),               \
    .index_in = IN(RNN_LEN), .reserve_out = 1 + RNN_RESERVE, .flags = STRIDED, .infer = seq_infer, \
    .ref = aril__rnn_ref, .workspace = aril__rnn_ref_scratch, .vjp = seq_vjp,                      \
    .saves = { SAVED, SAVED, SAVED, SAVED }, .flops = seq_flops, .types = DT_FLOAT,                \
    WITH_ATTRS(rnn_seq)
#define SEQ_GRAD(results)                                                                    \
    .min_in = GRAD_INPUTS, .max_in = GRAD_INPUTS, .n_out = (results),                        \
    .optional = IN(GRAD_H0) | IN(GRAD_C0) | IN(GRAD_LEN) | IN(GRAD_RESERVE) | IN(GRAD_GY) |  \
                IN(GRAD_GH) | IN(GRAD_GC) | IN(GRAD_B_IH) | IN(GRAD_B_HH),                   \
    .index_in = IN(GRAD_LEN), .reserve_in = 1 + GRAD_RESERVE, .flags = GRADIENT | STRIDED,   \
    .infer = grad_infer, .ref = aril__rnn_grad_ref, .workspace = aril__rnn_grad_ref_scratch, \
    .decompose = aril__rnn_grad_decompose, .flops = seq_grad_flops, .types = DT_FLOAT,       \
    WITH_ATTRS(rnn_grad)

static const struct rnn_seq_attrs onward = { .reverse = { 0 } }, backwards = { .reverse = { 1 } },
                                  relu = { .relu = { 1 } }, keep = { .keep = { 1 } };
static const struct rnn_grad_attrs back = { .reverse = { 0 } },
                                   back_reversed = { .reverse = { 1 } },
                                   back_relu = { .relu = { 1 } }, back_no_dx = { .no_dx = { 1 } },
                                   back_no_dw = { .no_dw = { 1 } };

/* x, h0, c0, lengths, W_ih, W_hh, b_ih, b_hh */
static const aril__sample rnn_seq_samples[] = {
    { .in = { "[3,2,5]", "[1,2,4]", "-", "-", "u[4,5]", "u[4,4]", "[4]", "[4]" },
      .attrs = &onward },
    { .in = { "[3,2,3]", "-", "-", "-", "u[2,3]", "u[2,2]", "-", "-" }, .attrs = &backwards },
    { .in = { "[2,2,1]", "[1,2,2]", "-", "-", "u[2,1]", "u[2,2]", "[2]", "-" }, .attrs = &relu },
    { .in = { "[2,0,3]", "[1,0,2]", "-", "-", "u[2,3]", "u[2,2]", "-", "[2]" }, .attrs = &onward },
    { .in = { "[3,N,2]", "[1,N,2]", "-", "-", "u[2,2]", "u[2,2]", "[2]", "[2]" },
      .attrs = &keep,
      .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(rnn_seq, .doc = "recurrent layer (Elman RNN) over a sequence", .samples = rnn_seq_samples,
   SEQ(RNN_CN));

static const aril__sample lstm_seq_samples[] = {
    { .in = { "[3,2,3]", "[1,2,2]", "[1,2,2]", "-", "u[8,3]", "u[8,2]", "[8]", "[8]" },
      .attrs = &onward },
    { .in = { "[2,2,2]", "-", "-", "-", "u[4,2]", "u[4,1]", "-", "-" }, .attrs = &backwards },
    { .in = { "[2,0,2]", "[1,0,1]", "[1,0,1]", "-", "u[4,2]", "u[4,1]", "[4]", "-" },
      .attrs = &onward },
    { .in = { "[3,N,2]", "[1,N,2]", "[1,N,2]", "-", "u[8,2]", "u[8,2]", "[8]", "[8]" },
      .attrs = &keep,
      .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(lstm_seq, .doc = "LSTM layer over a sequence", .samples = lstm_seq_samples, SEQ(RNN_RESULTS));

static const aril__sample gru_seq_samples[] = {
    { .in = { "[3,2,3]", "[1,2,2]", "-", "-", "u[6,3]", "u[6,2]", "[6]", "[6]" },
      .attrs = &onward },
    { .in = { "[2,2,2]", "-", "-", "-", "u[3,2]", "u[3,1]", "-", "-" }, .attrs = &backwards },
    { .in = { "[2,0,2]", "[1,0,1]", "-", "-", "u[3,2]", "u[3,1]", "-", "[3]" }, .attrs = &onward },
    { .in = { "[3,N,2]", "[1,N,2]", "-", "-", "u[6,2]", "u[6,2]", "[6]", "[6]" },
      .attrs = &keep,
      .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(gru_seq, .doc = "GRU layer over a sequence", .samples = gru_seq_samples, SEQ(RNN_CN));

/* x, h0, c0, lengths, y, reserve, gradients of y, h_n, c_n, W_ih, W_hh, b_ih, b_hh */
static const aril__sample rnn_seq_grad_samples[] = {
    { .in = { "[3,2,3]", "[1,2,2]", "-", "-", "u[3,2,2]", "-", "[3,2,2]", "[1,2,2]", "-", "u[2,3]",
              "u[2,2]", "[2]", "[2]" },
      .attrs = &back },
    { .in = { "[3,2,1]", "-", "-", "-", "u[3,2,2]", "-", "[3,2,2]", "-", "-", "u[2,1]", "u[2,2]",
              "-", "-" },
      .attrs = &back_reversed },
    { .in = { "[3,2,1]", "[1,2,2]", "-", "-", "z[3,2,2]", "-", "-", "[1,2,2]", "-", "u[2,1]",
              "u[2,2]", "-", "[2]" },
      .attrs = &back_relu },
    { .in = { "[3,2,1]", "[1,2,2]", "-", "-", "u[3,2,2]", "-", "[3,2,2]", "[1,2,2]", "-", "u[2,1]",
              "u[2,2]", "[2]", "-" },
      .attrs = &back_no_dx },
    { .in = { "[3,2,1]", "[1,2,2]", "-", "-", "u[3,2,2]", "-", "[3,2,2]", "[1,2,2]", "-", "u[2,1]",
              "u[2,2]", "[2]", "-" },
      .attrs = &back_no_dw },
    SAMPLE_END
};
OP(rnn_seq_grad, .doc = "gradient of rnn_seq", .samples = rnn_seq_grad_samples, SEQ_GRAD(GRAD_DC0));

static const aril__sample lstm_seq_grad_samples[] = {
    { .in = { "[3,2,3]", "[1,2,2]", "[1,2,2]", "-", "u[3,2,2]", "-", "[3,2,2]", "[1,2,2]",
              "[1,2,2]", "u[8,3]", "u[8,2]", "[8]", "[8]" },
      .attrs = &back },
    { .in = { "[2,2,2]", "-", "-", "-", "u[2,2,1]", "-", "[2,2,1]", "-", "-", "u[4,2]", "u[4,1]",
              "-", "-" },
      .attrs = &back_reversed },
    { .in = { "[2,2,2]", "-", "[1,2,1]", "-", "u[2,2,1]", "-", "-", "-", "[1,2,1]", "u[4,2]",
              "u[4,1]", "[4]", "-" },
      .attrs = &back_no_dx },
    SAMPLE_END
};
OP(lstm_seq_grad, .doc = "gradient of lstm_seq", .samples = lstm_seq_grad_samples,
   SEQ_GRAD(GRAD_RESULTS));

static const aril__sample gru_seq_grad_samples[] = {
    { .in = { "[3,2,3]", "[1,2,2]", "-", "-", "u[3,2,2]", "-", "[3,2,2]", "[1,2,2]", "-", "u[6,3]",
              "u[6,2]", "[6]", "[6]" },
      .attrs = &back },
    { .in = { "[2,2,2]", "-", "-", "-", "u[2,2,1]", "-", "-", "[1,2,1]", "-", "u[3,2]", "u[3,1]",
              "-", "-" },
      .attrs = &back_reversed },
    { .in = { "[2,2,2]", "[1,2,1]", "-", "-", "u[2,2,1]", "-", "[2,2,1]", "-", "-", "u[3,2]",
              "u[3,1]", "-", "[3]" },
      .attrs = &back_no_dw },
    SAMPLE_END
};
OP(gru_seq_grad, .doc = "gradient of gru_seq", .samples = gru_seq_grad_samples, SEQ_GRAD(GRAD_DC0));
