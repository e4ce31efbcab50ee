/* Recurrent layers: cells, and multi-layer, bidirectional networks over sequences. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/sequence/rnn_seq.h"

#include <string.h>

/* NULL if all tensors are present and valid; else what to return. */
static aril_tensor *unsound(const char *what, int n, aril_tensor *const *t)
{
    for (int i = 0; i < n; i++) {
        if (!t[i]) return aril__null_tensor(what);
        if (aril__is_poison(t[i])) return aril__pass_on(t[i]);
    }
    return NULL;
}

/* ---- cells ---- */

static aril_status batches_equal(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *h = &q->shape[1];
    if (aril__size_fits(x->dim[0], h->dim[0])) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: input %s and state %s must have the same batch size",
                      q->what, aril__shape_text(a, x->ndim, x->dim),
                      aril__shape_text(b, h->ndim, h->dim));
}

static aril_status states_equal(const aril__requirement *q)
{
    const aril_shape *c = &q->shape[0], *h = &q->shape[1];
    if (aril__shapes_fit(c, h)) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "%s: cell state %s and hidden state %s must have the same shape", q->what,
                      aril__shape_text(a, c->ndim, c->dim), aril__shape_text(b, h->ndim, h->dim));
}

static aril_tensor *check_cell(const char *what, int64_t gates, aril_tensor *x, aril_tensor *h,
                               aril_tensor *w_ih, aril_tensor *w_hh)
{
    aril_tensor *bad = unsound(what, 4, (aril_tensor *[]){ x, h, w_ih, w_hh });
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (bad) return bad;
    if (w_ih->ndim != 2 || w_hh->ndim != 2 || w_ih->dim[0] != w_hh->dim[0] ||
        w_hh->dim[0] != gates * w_hh->dim[1]) {
        aril__fail(ARIL_ERR_SHAPE, "%s: weights %s and %s, expected [%lldH,I] and [%lldH,H]", what,
                   aril__text(a, w_ih), aril__text(b, w_hh), (long long)gates, (long long)gates);
        return aril__poison();
    }
    if (x->ndim < 1 || x->ndim > 2 || h->ndim != x->ndim) {
        aril__fail(ARIL_ERR_SHAPE,
                   "%s: expected an input [N,I] or [I] and a state [N,H] or [H], got "
                   "%s and %s",
                   what, aril__text(a, x), aril__text(b, h));
        return aril__poison();
    }
    if (x->ndim == 2 && aril__require_of(what, batches_equal, x, h) < 0) return aril__poison();
    return NULL;
}

/* NULL if the cells c have the shape of the states h; else what to return. */
static aril_tensor *check_cells(const char *what, aril_tensor *c, aril_tensor *h)
{
    aril_tensor *bad = unsound(what, 1, &c);
    if (bad) return bad;
    return aril__require_of(what, states_equal, c, h) < 0 ? aril__poison() : NULL;
}

/* Chunk k of the last dimension. */
static aril_tensor *gate(aril_tensor *t, int64_t h, int k)
{
    return aril_slice(t, -1, k * h, (k + 1) * h, 1);
}

aril_tensor *aril_rnn_cell(aril_tensor *x, aril_tensor *h, aril_tensor *w_ih, aril_tensor *w_hh,
                           aril_tensor *b_ih, aril_tensor *b_hh, aril_rnn_cell_opts opts)
{
    aril_tensor *bad = check_cell("rnn_cell", 1, x, h, w_ih, w_hh);
    if (bad) return bad;
    ARIL_SCOPE;
    aril_tensor *sum = aril_add(aril_linear(x, w_ih, b_ih), aril_linear(h, w_hh, b_hh));
    return aril_escape(opts.relu ? aril_relu(sum) : aril_tanh(sum));
}

aril_tensor *aril_lstm_cell(aril_tensor *x, aril_tensor *h, aril_tensor *c, aril_tensor *w_ih,
                            aril_tensor *w_hh, aril_tensor *b_ih, aril_tensor *b_hh,
                            aril_tensor **c_next)
{
    aril_tensor *bad = check_cell("lstm_cell", 4, x, h, w_ih, w_hh);
    if (!bad) bad = check_cells("lstm_cell", c, h);
    if (bad) {
        if (c_next) *c_next = aril__poison_like(bad);
        return bad;
    }
    ARIL_SCOPE;
    aril_tensor *a = aril_add(aril_linear(x, w_ih, b_ih), aril_linear(h, w_hh, b_hh));
    int64_t n = w_hh->dim[1];
    aril_tensor *in = aril_sigmoid(gate(a, n, 0)), *forget = aril_sigmoid(gate(a, n, 1));
    aril_tensor *g = aril_tanh(gate(a, n, 2)), *out = aril_sigmoid(gate(a, n, 3));
    aril_tensor *next = aril_add(aril_mul(forget, c), aril_mul(in, g));
    aril_tensor *both[2] = { aril_mul(out, aril_tanh(next)), next };
    aril__fail_together(2, both);
    if (c_next) *c_next = aril_escape(both[1]);
    return aril_escape(both[0]);
}

aril_tensor *aril_gru_cell(aril_tensor *x, aril_tensor *h, aril_tensor *w_ih, aril_tensor *w_hh,
                           aril_tensor *b_ih, aril_tensor *b_hh)
{
    aril_tensor *bad = check_cell("gru_cell", 3, x, h, w_ih, w_hh);
    if (bad) return bad;
    ARIL_SCOPE;
    int64_t n = w_hh->dim[1];
    aril_tensor *a = aril_linear(x, w_ih, b_ih), *b = aril_linear(h, w_hh, b_hh);
    aril_tensor *r = aril_sigmoid(aril_add(gate(a, n, 0), gate(b, n, 0)));
    aril_tensor *z = aril_sigmoid(aril_add(gate(a, n, 1), gate(b, n, 1)));
    aril_tensor *m = aril_tanh(aril_add(gate(a, n, 2), aril_mul(r, gate(b, n, 2))));
    return aril_escape(aril_add(m, aril_mul(z, aril_sub(h, m))));
}

/* ---- networks ---- */

enum { PER_LAYER = 4, MAX_LAYERS = 64 };

typedef struct network {
    const char *what;
    enum aril__rnn_kind kind;
    int layers, directions;
    aril_list weights;
    aril_rnn_opts opts;
} network;

static aril_tensor *check_network(network *n, aril_tensor *x, aril_tensor *h0, aril_tensor *c0)
{
    char text[ARIL__SHAPE_TEXT];
    aril_tensor *bad = unsound(n->what, 1, &x);
    if (!bad && h0) bad = unsound(n->what, 1, &h0);
    if (!bad && c0) bad = unsound(n->what, 1, &c0);
    if (bad) return bad;
    n->layers = n->opts.layers ? n->opts.layers : 1;
    n->directions = n->opts.bidirectional ? 2 : 1;
    int want = PER_LAYER * n->layers * n->directions;
    if (n->layers < 1 || n->layers > MAX_LAYERS) {
        aril__fail(ARIL_ERR_ARG, "%s: unsupported number of layers %d", n->what, n->layers);
    } else if (n->weights.n != want) {
        aril__fail(
            ARIL_ERR_ARG,
            "%s: got %d weights, expected w_ih, w_hh, b_ih, b_hh of %d layers in %d directions: %d",
            n->what, n->weights.n, n->layers, n->directions, want);
    } else if (x->ndim != 2 && x->ndim != 3) {
        aril__fail(ARIL_ERR_SHAPE, "%s: expected an input [T,N,I] or [T,I], got %s", n->what,
                   aril__text(text, x));
    } else if ((h0 && h0->ndim != x->ndim) || (c0 && c0->ndim != x->ndim)) {
        aril__fail(ARIL_ERR_SHAPE, "%s: expected initial states of %d dimensions, got %s", n->what,
                   x->ndim, aril__text(text, h0 && h0->ndim != x->ndim ? h0 : c0));
    } else if ((h0 && h0->dim[0] >= 0 && h0->dim[0] != n->layers * n->directions) ||
               (c0 && c0->dim[0] >= 0 && c0->dim[0] != n->layers * n->directions)) {
        aril__fail(ARIL_ERR_SHAPE,
                   "%s: expected %d initial states, one for each layer and direction, got %s",
                   n->what, n->layers * n->directions, aril__text(text, h0 ? h0 : c0));
    } else {
        for (int i = 0; i < want; i++)
            if (i % PER_LAYER < 2 && (bad = unsound(n->what, 1, &n->weights.at[i]))) return bad;
        return NULL;
    }
    return aril__poison();
}

/* Whether a gradient may be needed for one of the inputs: then the gates are kept for it. */
static bool is_recorded(int n, aril_tensor *const *in)
{
    const aril__thread *th = aril__self();
    if (th->tracer) return true;
    for (int i = 0; i < n; i++)
        if (in[i] && (in[i]->node || in[i]->flags & ARIL__SYMBOLIC)) return !th->mode.no_grad;
    return false;
}

/* State `index` of all layers and directions, [1,N,H]; NULL if none are given. */
static aril_tensor *state_of(const network *n, aril_tensor *states, int index)
{
    if (!states || n->layers * n->directions == 1) return states;
    return aril_slice(states, 0, index, index + 1, 1);
}

/* One layer in one direction over x [T,N,I]: y, and the last states. */
static aril_tensor *run_layer(const network *n, aril_tensor *x, int index, aril_tensor *h0,
                              aril_tensor *c0, aril_tensor **hn, aril_tensor **cn)
{
    static const aril__op *const ops[] = { [ARIL__RNN] = &aril__op_rnn_seq,
                                           [ARIL__LSTM] = &aril__op_lstm_seq,
                                           [ARIL__GRU] = &aril__op_gru_seq };
    aril_tensor *const *w = n->weights.at + PER_LAYER * index;
    aril_tensor *out[RNN_RESULTS], *in[RNN_INPUTS] = { [RNN_X] = x,
                                                       [RNN_H0] = state_of(n, h0, index),
                                                       [RNN_C0] = state_of(n, c0, index),
                                                       [RNN_LEN] = n->opts.lengths,
                                                       [RNN_W_IH] = w[0],
                                                       [RNN_W_HH] = w[1],
                                                       [RNN_B_IH] = w[2],
                                                       [RNN_B_HH] = w[3] };
    struct rnn_seq_attrs a = { .reverse = { n->directions == 2 && index % 2 },
                               .relu = { n->opts.relu },
                               .keep = { is_recorded(RNN_INPUTS, in) } };
    aril__apply(ops[n->kind], RNN_INPUTS, in, &a, out);
    *hn = out[RNN_HN];
    *cn = n->kind == ARIL__LSTM ? out[RNN_CN] : out[RNN_HN];
    return out[RNN_Y];
}

/* The states of all layers and directions as one tensor, [S,N,H], or [S,H] for an unbatched
 * sequence. */
static aril_tensor *all_states(int n, aril_tensor **states, bool alone)
{
    aril_tensor *t = n == 1 ? states[0] : aril_cat((aril_list){ n, states }, 0);
    return alone ? aril_select(t, 1, 0) : t;
}

static aril_tensor *run_network(network *n, aril_tensor *x, aril_tensor *h0, aril_tensor *c0,
                                aril_tensor **hn, aril_tensor **cn)
{
    aril_tensor *bad = check_network(n, x, h0, c0);
    if (bad) {
        if (hn) *hn = aril__poison_like(bad);
        if (cn) *cn = aril__poison_like(bad);
        return bad;
    }
    ARIL_SCOPE;
    bool alone = x->ndim == 2; /* an unbatched sequence */
    if (alone) {
        x = aril_unsqueeze(x, 1);
        h0 = h0 ? aril_unsqueeze(h0, 1) : NULL;
        c0 = c0 ? aril_unsqueeze(c0, 1) : NULL;
    } else if (n->opts.batch_first) {
        x = aril_transpose(x, 0, 1);
    }
    aril_tensor *h[2 * MAX_LAYERS], *c[2 * MAX_LAYERS];
    for (int layer = 0; layer < n->layers; layer++) {
        aril_tensor *y[2];
        for (int d = 0; d < n->directions; d++) {
            int i = layer * n->directions + d;
            y[d] = run_layer(n, x, i, h0, c0, &h[i], &c[i]);
        }
        x = n->directions == 2 ? aril_cat((aril_list){ 2, y }, 2) : y[0];
        if (layer + 1 < n->layers && n->opts.dropout != 0)
            x = aril_dropout(x, n->opts.dropout, (aril_dropout_opts){ .eval = n->opts.eval });
    }
    int states = n->layers * n->directions;
    aril_tensor *out[3] = { alone                 ? aril_select(x, 1, 0)
                            : n->opts.batch_first ? aril_transpose(x, 0, 1)
                                                  : x,
                            hn ? all_states(states, h, alone) : NULL,
                            cn ? all_states(states, c, alone) : NULL };
    aril__fail_together(3, out);
    if (hn) *hn = aril_escape(out[1]);
    if (cn) *cn = aril_escape(out[2]);
    return aril_escape(out[0]);
}

aril_tensor *aril_rnn(aril_tensor *x, aril_tensor *h0, aril_list weights, aril_rnn_opts opts,
                      aril_tensor **hn)
{
    network n = { .what = "rnn", .kind = ARIL__RNN, .weights = weights, .opts = opts };
    return run_network(&n, x, h0, NULL, hn, NULL);
}

aril_tensor *aril_lstm(aril_tensor *x, aril_tensor *h0, aril_tensor *c0, aril_list weights,
                       aril_rnn_opts opts, aril_tensor **hn, aril_tensor **cn)
{
    network n = { .what = "lstm", .kind = ARIL__LSTM, .weights = weights, .opts = opts };
    return run_network(&n, x, h0, c0, hn, cn);
}

aril_tensor *aril_gru(aril_tensor *x, aril_tensor *h0, aril_list weights, aril_rnn_opts opts,
                      aril_tensor **hn)
{
    network n = { .what = "gru", .kind = ARIL__GRU, .weights = weights, .opts = opts };
    return run_network(&n, x, h0, NULL, hn, NULL);
}
