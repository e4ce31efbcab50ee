/* Recurrent networks over sequences, and their single-step cells. */
#include "aril/nn_sequence.h"
#include "aril/create.h"
#include "aril/neural.h"
#include "core/error.h"
#include "core/memory.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

enum { PER_LAYER = 4, MAX_LAYERS = 64 };

typedef enum kind { RNN, LSTM, GRU } kind;

static const int gates_of[] = { [RNN] = 1, [LSTM] = 4, [GRU] = 3 };

/* ---- shared by networks and cells ---- */

static aril_status check_sizes(const char *what, int64_t in, int64_t hidden)
{
    if (in >= 0 && hidden > 0) return ARIL_OK;
    return aril__fail(
        ARIL_ERR_ARG,
        "%s: %lld inputs and %lld values of state; expected 0 (inferred) or more, and 1 "
        "or more",
        what, (long long)in, (long long)hidden);
}

/* The initialization of all parameters depends only on the hidden size. */
static void reset_all(aril_module *self, int64_t hidden)
{
    for (int i = 0; i < self->n_own; i++) aril__fill_fan(aril__own_at(self, i), hidden);
}

/* Creates w_ih, w_hh, b_ih, b_hh; `suffix` ends their names. */
static aril_status add_step(aril_module *self, const char *suffix, int64_t rows, int64_t in,
                            int64_t hidden, bool no_bias)
{
    static const char *const stems[PER_LAYER] = { "weight_ih", "weight_hh", "bias_ih", "bias_hh" };
    aril_status s = ARIL_OK;
    for (int i = 0; i < PER_LAYER && s == ARIL_OK; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s%s", stems[i], suffix);
        if (i >= 2)
            s = aril__add_optional(self, name, ARIL_SHAPE(rows), no_bias);
        else
            s = aril__add_parameter(self, name, ARIL_SHAPE(rows, i ? hidden : in));
    }
    return s;
}

/* ---- networks ---- */

typedef struct network {
    kind kind;
    int64_t in, hidden;
    aril_nn_rnn_opts opts;
} network;

static aril_status add_network(aril_module *self)
{
    const network *n = aril_module_data(self);
    int64_t rows = gates_of[n->kind] * n->hidden, in = n->in;
    int directions = n->opts.bidirectional ? 2 : 1;
    aril_status s = ARIL_OK;
    for (int layer = 0; layer < n->opts.layers; layer++, in = directions * n->hidden)
        for (int d = 0; d < directions && s == ARIL_OK; d++) {
            char suffix[24];
            snprintf(suffix, sizeof suffix, "_l%d%s", layer, d ? "_reverse" : "");
            s = add_step(self, suffix, rows, in, n->hidden, n->opts.no_bias);
        }
    if (s < 0) return s;
    reset_all(self, n->hidden);
    self->ready = true;
    return ARIL_OK;
}

static aril_status build_network(aril_module *self, int n_in, aril_tensor *const *in)
{
    network *n = aril_module_data(self);
    (void)n_in;
    aril_status s = aril__input_size(in[0], -1, &n->in);
    return s < 0 ? s : add_network(self);
}

static void reset_network(aril_module *self)
{
    reset_all(self, ((const network *)aril_module_data(self))->hidden);
}

static void run_network(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out)
{
    const network *n = aril_module_data(self);
    aril_tensor *w[2 * PER_LAYER * MAX_LAYERS], *states[2] = { NULL, NULL };
    int lengths = n->kind == LSTM ? 3 : 2;
    for (int i = 0; i < self->n_own; i++) w[i] = aril__own_at(self, i);
    aril_rnn_opts opts = { .layers = n->opts.layers,
                           .bidirectional = n->opts.bidirectional,
                           .batch_first = n->opts.batch_first,
                           .relu = n->opts.relu,
                           .dropout = n->opts.dropout,
                           .eval = !aril__is_training(self),
                           .lengths = n_in > lengths ? in[lengths] : NULL };
    aril_tensor *h0 = n_in > 1 ? in[1] : NULL, **hn = n_out > 1 ? &states[0] : NULL;
    aril_list weights = { self->n_own, w };
    if (n->kind == LSTM)
        out[0] = aril_lstm(in[0], h0, n_in > 2 ? in[2] : NULL, weights, opts, hn,
                           n_out > 2 ? &states[1] : NULL);
    else if (n->kind == GRU)
        out[0] = aril_gru(in[0], h0, weights, opts, hn);
    else
        out[0] = aril_rnn(in[0], h0, weights, opts, hn);
    for (int i = 1; i < n_out && i <= 2; i++) out[i] = states[i - 1];
}

static void describe_network(const aril_module *self, char *text, size_t size)
{
    const network *n = aril_module_data(self);
    const aril_nn_rnn_opts *o = &n->opts;
    char layers[32] = "", dropout[40] = "";
    if (o->layers > 1) snprintf(layers, sizeof layers, ", num_layers=%d", o->layers);
    if (o->dropout != 0) snprintf(dropout, sizeof dropout, ", dropout=%g", o->dropout);
    snprintf(text, size, "%lld, %lld%s%s%s%s%s%s", (long long)n->in, (long long)n->hidden, layers,
             o->relu && n->kind == RNN ? ", nonlinearity=relu" : "",
             o->no_bias ? ", bias=False" : "", o->batch_first ? ", batch_first=True" : "", dropout,
             o->bidirectional ? ", bidirectional=True" : "");
}

#define NETWORK(name, n_in, n_out)        \
    {                                     \
        .base = {                         \
            .type = name,                 \
            .size = sizeof(network),      \
            .forward = run_network,       \
            .build = build_network,       \
            .reset = reset_network,       \
            .describe = describe_network, \
            .inputs = n_in,               \
            .outputs = n_out              \
        }                                 \
    }

static const aril__layer networks[] = {
    [RNN] = NETWORK("RNN", 3, 2),
    [LSTM] = NETWORK("LSTM", 4, 3),
    [GRU] = NETWORK("GRU", 3, 2),
};

static aril_module *network_new(kind which, int64_t in, int64_t hidden, aril_nn_rnn_opts opts)
{
    const char *what = networks[which].base.type;
    if (check_sizes(what, in, hidden) < 0) return NULL;
    if (opts.layers == 0) opts.layers = 1;
    if (opts.layers < 1 || opts.layers > MAX_LAYERS) {
        aril__fail(ARIL_ERR_ARG, "%s: %d layers, expected 1 to %d", what, opts.layers, MAX_LAYERS);
        return NULL;
    }
    if (!(opts.dropout >= 0 && opts.dropout <= 1)) {
        aril__fail(ARIL_ERR_ARG, "%s: dropout %g, expected 0 to 1", what, opts.dropout);
        return NULL;
    }
    if (opts.relu && which != RNN) {
        aril__fail(ARIL_ERR_ARG, "%s: relu is only for RNN", what);
        return NULL;
    }
    aril_module *m = aril__layer_make(&networks[which]);
    if (!m) return NULL;
    *(network *)aril_module_data(m) =
        (network){ .kind = which, .in = in, .hidden = hidden, .opts = opts };
    return in ? aril__layer_made(m, add_network(m)) : m;
}

aril_module *aril_nn_rnn(int64_t in, int64_t hidden)
{
    return network_new(RNN, in, hidden, (aril_nn_rnn_opts){ 0 });
}

aril_module *aril_nn_lstm(int64_t in, int64_t hidden)
{
    return network_new(LSTM, in, hidden, (aril_nn_rnn_opts){ 0 });
}

aril_module *aril_nn_gru(int64_t in, int64_t hidden)
{
    return network_new(GRU, in, hidden, (aril_nn_rnn_opts){ 0 });
}

aril_module *aril_nn_rnn_with(int64_t in, int64_t hidden, aril_nn_rnn_opts opts)
{
    return network_new(RNN, in, hidden, opts);
}

aril_module *aril_nn_lstm_with(int64_t in, int64_t hidden, aril_nn_rnn_opts opts)
{
    return network_new(LSTM, in, hidden, opts);
}

aril_module *aril_nn_gru_with(int64_t in, int64_t hidden, aril_nn_rnn_opts opts)
{
    return network_new(GRU, in, hidden, opts);
}

/* ---- cells ---- */

typedef struct cell {
    kind kind;
    int64_t in, hidden;
    aril_nn_cell_opts opts;
} cell;

static aril_status add_cell(aril_module *self)
{
    const cell *c = aril_module_data(self);
    aril_status s =
        add_step(self, "", gates_of[c->kind] * c->hidden, c->in, c->hidden, c->opts.no_bias);
    if (s < 0) return s;
    reset_all(self, c->hidden);
    self->ready = true;
    return ARIL_OK;
}

static aril_status build_cell(aril_module *self, int n_in, aril_tensor *const *in)
{
    cell *c = aril_module_data(self);
    (void)n_in;
    aril_status s = aril__input_size(in[0], -1, &c->in);
    return s < 0 ? s : add_cell(self);
}

static void reset_cell(aril_module *self)
{
    reset_all(self, ((const cell *)aril_module_data(self))->hidden);
}

/* The default initial state: zeros [N,H] or [H] for x [N,I] or [I]. */
static aril_tensor *first_state(const cell *c, aril_tensor *x)
{
    aril_shape shape = aril_shape_of(x);
    if (shape.ndim > 0) shape.dim[shape.ndim - 1] = c->hidden;
    return aril_zeros(shape, aril_dtype_of(x), aril_device_of(x));
}

static void run_cell(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                     aril_tensor **out)
{
    const cell *c = aril_module_data(self);
    aril_tensor *w[PER_LAYER], *zeros = NULL, *next = NULL;
    aril_tensor *h = n_in > 1 ? in[1] : NULL, *cells = n_in > 2 ? in[2] : NULL;
    for (int i = 0; i < PER_LAYER; i++) w[i] = aril__own_at(self, i);
    if (!h || (c->kind == LSTM && !cells)) zeros = first_state(c, in[0]);
    if (!h) h = zeros;
    if (c->kind == LSTM)
        out[0] = aril_lstm_cell(in[0], h, cells ? cells : zeros, w[0], w[1], w[2], w[3], &next);
    else if (c->kind == GRU)
        out[0] = aril_gru_cell(in[0], h, w[0], w[1], w[2], w[3]);
    else
        out[0] = aril_rnn_cell(in[0], h, w[0], w[1], w[2], w[3],
                               (aril_rnn_cell_opts){ .relu = c->opts.relu });
    if (n_out > 1) out[1] = next;
}

static void describe_cell(const aril_module *self, char *text, size_t size)
{
    const cell *c = aril_module_data(self);
    snprintf(text, size, "%lld, %lld%s%s", (long long)c->in, (long long)c->hidden,
             c->opts.no_bias ? ", bias=False" : "", c->opts.relu ? ", nonlinearity=relu" : "");
}

#define CELL(name, n_in, n_out)        \
    {                                  \
        .base = {                      \
            .type = name,              \
            .size = sizeof(cell),      \
            .forward = run_cell,       \
            .build = build_cell,       \
            .reset = reset_cell,       \
            .describe = describe_cell, \
            .inputs = n_in,            \
            .outputs = n_out           \
        }                              \
    }

static const aril__layer cells[] = {
    [RNN] = CELL("RNNCell", 2, 1),
    [LSTM] = CELL("LSTMCell", 3, 2),
    [GRU] = CELL("GRUCell", 2, 1),
};

static aril_module *cell_new(kind which, int64_t in, int64_t hidden, aril_nn_cell_opts opts)
{
    const char *what = cells[which].base.type;
    if (check_sizes(what, in, hidden) < 0) return NULL;
    if (opts.relu && which != RNN) {
        aril__fail(ARIL_ERR_ARG, "%s: relu is only for RNNCell", what);
        return NULL;
    }
    aril_module *m = aril__layer_make(&cells[which]);
    if (!m) return NULL;
    *(cell *)aril_module_data(m) =
        (cell){ .kind = which, .in = in, .hidden = hidden, .opts = opts };
    return in ? aril__layer_made(m, add_cell(m)) : m;
}

aril_module *aril_nn_rnn_cell(int64_t in, int64_t hidden)
{
    return cell_new(RNN, in, hidden, (aril_nn_cell_opts){ 0 });
}

aril_module *aril_nn_lstm_cell(int64_t in, int64_t hidden)
{
    return cell_new(LSTM, in, hidden, (aril_nn_cell_opts){ 0 });
}

aril_module *aril_nn_gru_cell(int64_t in, int64_t hidden)
{
    return cell_new(GRU, in, hidden, (aril_nn_cell_opts){ 0 });
}

aril_module *aril_nn_rnn_cell_with(int64_t in, int64_t hidden, aril_nn_cell_opts opts)
{
    return cell_new(RNN, in, hidden, opts);
}

aril_module *aril_nn_lstm_cell_with(int64_t in, int64_t hidden, aril_nn_cell_opts opts)
{
    return cell_new(LSTM, in, hidden, opts);
}

aril_module *aril_nn_gru_cell_with(int64_t in, int64_t hidden, aril_nn_cell_opts opts)
{
    return cell_new(GRU, in, hidden, opts);
}
