/* LSTM, GRU, SimpleRNN, Bidirectional and TimeDistributed.
 *
 * With the usual activations and without a mask a layer is the op of src/ops/sequence; otherwise it
 * runs step by step. Gates are in Aril's order: i f g o, and r z n. */
#include "aril/create.h"
#include "aril/graph.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <string.h>

typedef enum cell { SIMPLE, LSTM, GRU } cell;

typedef struct recurrent {
    keras_base base;
    cell cell;
    int64_t units;
    int inputs; /* x and the first states; masks follow */
    keras_activation activation, gates;
    bool usual; /* the op computes it */
    bool sequences, state, backwards, reset_after, zero;
    double dropout;
} recurrent;

enum { KERNEL, RECURRENT, BIAS, RECURRENT_BIAS };

static int states_of(const recurrent *r)
{
    return r->cell == LSTM ? 2 : 1;
}

/* ---- step by step ---- */

static aril_tensor *gate(const recurrent *r, aril_tensor *x, int i)
{
    return aril_narrow(x, -1, i * r->units, r->units);
}

static aril_tensor *lstm_step(const recurrent *r, aril_tensor *all, aril_tensor *c,
                              aril_tensor **next)
{
    aril_tensor *i = aril__keras_activate(&r->gates, gate(r, all, 0));
    aril_tensor *f = aril__keras_activate(&r->gates, gate(r, all, 1));
    aril_tensor *g = aril__keras_activate(&r->activation, gate(r, all, 2));
    aril_tensor *o = aril__keras_activate(&r->gates, gate(r, all, 3));
    *next = aril_add(aril_mul(f, c), aril_mul(i, g));
    return aril_mul(o, aril__keras_activate(&r->activation, *next));
}

/* x: the input's share of the gates, with its bias. */
static aril_tensor *gru_step(const recurrent *r, const aril_module *m, aril_tensor *x,
                             aril_tensor *h)
{
    int64_t n = r->units;
    aril_tensor *w = aril__own_at(m, RECURRENT), *b = aril__own_at(m, RECURRENT_BIAS);
    aril_tensor *both =
        aril_linear(h, aril_narrow(w, 0, 0, 2 * n), b ? aril_narrow(b, 0, 0, 2 * n) : NULL);
    both = aril__keras_activate(&r->gates, aril_add(aril_narrow(x, -1, 0, 2 * n), both));
    aril_tensor *reset = gate(r, both, 0), *z = gate(r, both, 1);
    aril_tensor *w_n = aril_narrow(w, 0, 2 * n, n), *b_n = b ? aril_narrow(b, 0, 2 * n, n) : NULL;
    aril_tensor *part = r->reset_after ? aril_mul(reset, aril_linear(h, w_n, b_n))
                                       : aril_linear(aril_mul(reset, h), w_n, b_n);
    aril_tensor *new = aril__keras_activate(&r->activation, aril_add(gate(r, x, 2), part));
    return aril_add(aril_mul(aril_rsub_scalar(z, 1.0), new), aril_mul(z, h));
}

/* State: h, of an LSTM c, the latest result; then the input's share of the gates and the mask. */
static void step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const aril_module *m = ctx;
    const recurrent *r = aril_module_data(m);
    int n = states_of(r);
    aril_tensor *h = in[0], *x = in[n + 1], *keep = in[n + 2], *next[2] = { NULL, NULL };
    if (r->cell == GRU) {
        next[0] = gru_step(r, m, x, h);
    } else {
        aril_tensor *all = aril_add(x, aril_linear(h, aril__own_at(m, RECURRENT), NULL));
        next[0] = r->cell == LSTM ? lstm_step(r, all, in[1], &next[1])
                                  : aril__keras_activate(&r->activation, all);
    }
    for (int i = 0; i < n; i++) out[i] = aril_where(keep, next[i], in[i]);
    aril_tensor *masked = r->zero ? aril_zeros_like(in[n]) : in[n];
    out[n] = out[n + 1] = aril_where(keep, next[0], masked);
}

/* x [N,T,F], mask [N,T] or NULL, states [N,H] -> y [N,T,H] and the last states. */
static aril_tensor *run_steps(aril_module *self, aril_tensor *x, aril_tensor *mask,
                              aril_tensor **state)
{
    const recurrent *r = aril_module_data(self);
    int n = states_of(r);
    aril_tensor *share = aril_linear(x, aril__own_at(self, KERNEL), aril__own_at(self, BIAS));
    share = aril_transpose(share, 0, 1); /* [T,N,G*H] */
    aril_tensor *keep;
    if (mask)
        keep = aril_unsqueeze(aril_transpose(mask, 0, 1), 2); /* [T,N,1] */
    else
        keep = aril_eq(aril_narrow(share, 2, 0, 1), aril_narrow(share, 2, 0, 1));
    aril_tensor *first[3] = { state[0], state[1] }, *final[3], *y;
    first[n] = aril_zeros_like(state[0]);
    aril_tensor *xs[2] = { share, keep };
    aril_status s =
        aril_scan(step, self, (aril_list){ n + 1, first }, (aril_list){ 2, xs }, 1, final, &y);
    if (s < 0) return aril__poison();
    for (int i = 0; i < n; i++) state[i] = final[i];
    return aril_transpose(y, 0, 1);
}

/* ---- the op ---- */

static aril_tensor *run_op(aril_module *self, aril_tensor *x, aril_tensor **state)
{
    const recurrent *r = aril_module_data(self);
    aril_list weights = ARIL_LIST(aril__own_at(self, KERNEL), aril__own_at(self, RECURRENT),
                                  aril__own_at(self, BIAS), aril__own_at(self, RECURRENT_BIAS));
    aril_rnn_opts opts = { .batch_first = true, .relu = r->activation.fused == ARIL_RELU };
    aril_tensor *h = aril_unsqueeze(state[0], 0), *y, *hn = NULL, *cn = NULL;
    if (r->cell == LSTM)
        y = aril_lstm(x, h, aril_unsqueeze(state[1], 0), weights, opts, &hn, &cn);
    else if (r->cell == GRU)
        y = aril_gru(x, h, weights, opts, &hn);
    else
        y = aril_rnn(x, h, weights, opts, &hn);
    if (aril__is_poison(y)) return y;
    state[0] = aril_select(hn, 0, 0);
    if (cn) state[1] = aril_select(cn, 0, 0);
    return y;
}

/* ---- a layer ---- */

/* One mask for all steps, as in Keras. */
static aril_tensor *dropped(const recurrent *r, aril_tensor *x)
{
    aril_shape shape = aril_shape_of(x);
    shape.dim[1] = 1;
    aril_tensor *ones = aril_ones(shape, aril_dtype_of(x), aril_device_of(x));
    return aril_mul(x, aril_dropout(ones, r->dropout, (aril_dropout_opts){ 0 }));
}

ARIL__FORWARD(recurrent_forward)
{
    const recurrent *r = aril_module_data(self);
    int n = states_of(r);
    aril_tensor *x = in[0], *mask = n_in > r->inputs ? in[r->inputs] : NULL, *state[2];
    if (r->dropout > 0 && aril__is_training(self)) x = dropped(r, x);
    if (r->backwards) {
        x = aril_flip(x, ARIL_AXES(1));
        if (mask) mask = aril_flip(mask, ARIL_AXES(1));
    }
    aril_shape shape = ARIL_SHAPE(x->dim[0], r->units);
    for (int i = 0; i < n; i++)
        state[i] =
            i + 1 < r->inputs ? in[i + 1] : aril_zeros(shape, aril_dtype_of(x), aril_device_of(x));
    aril_tensor *y = r->usual && !mask ? run_op(self, x, state) : run_steps(self, x, mask, state);
    out[0] = r->sequences || aril__is_poison(y) ? y : aril_select(y, 1, -1);
    for (int i = 0; i < n && r->state && i + 1 < n_out; i++) out[i + 1] = state[i];
}

static const aril__layer recurrent_layer = { .base = { .size = sizeof(recurrent),
                                                       .type = "RNN",
                                                       .forward = recurrent_forward,
                                                       .inputs = -1,
                                                       .outputs = 3 } };

/* ---- weights ---- */

/* [G*H,...]: Keras' z r h become r z n. */
static aril_tensor *gates_ordered(const recurrent *r, aril_tensor *t)
{
    if (r->cell != GRU) return t;
    int64_t n = r->units;
    return aril_cat(ARIL_LIST(aril_narrow(t, 0, n, n), aril_narrow(t, 0, 0, n),
                              aril_narrow(t, 0, 2 * n, n)),
                    0);
}

static aril_status own_weights(keras_make *k, aril_module *m, const recurrent *r)
{
    ARIL_SCOPE;
    int64_t size = r->units * (r->cell == SIMPLE ? 1
                               : r->cell == LSTM ? 4
                                                 : 3),
            features = k->in[0].tensor->dim[2];
    aril_tensor *kernel = aril__keras_variable(k, "kernel"),
                *recurrent_kernel = aril__keras_variable(k, "recurrent_kernel"), *bias = NULL,
                *second = NULL;
    if (!kernel || !recurrent_kernel) return aril__last_status();
    aril_status s =
        aril__keras_check(k, "kernel", kernel, ARIL_SHAPE(features < 0 ? -1 : features, size));
    if (s == ARIL_OK)
        s = aril__keras_check(k, "recurrent_kernel", recurrent_kernel, ARIL_SHAPE(r->units, size));
    if (s == ARIL_OK && aril__keras_has(k, "bias")) {
        bool two = r->cell == GRU && r->reset_after;
        bias = aril__keras_variable(k, "bias");
        if (!bias) return aril__last_status();
        s = aril__keras_check(k, "bias", bias, two ? ARIL_SHAPE(2, size) : ARIL_SHAPE(size));
        if (s == ARIL_OK && two) second = gates_ordered(r, aril_select(bias, 0, 1));
        if (s == ARIL_OK) bias = gates_ordered(r, two ? aril_select(bias, 0, 0) : bias);
    }
    if (s == ARIL_OK) s = aril__keras_own(k, m, "kernel", gates_ordered(r, aril_t(kernel)));
    if (s == ARIL_OK)
        s = aril__keras_own(k, m, "recurrent_kernel", gates_ordered(r, aril_t(recurrent_kernel)));
    if (s == ARIL_OK) s = aril__keras_own(k, m, "bias", bias);
    if (s < 0) return s;
    aril_tensor *kept =
        aril_module_parameter(m, "recurrent_bias", second ? aril_contiguous(second) : NULL);
    return second ? aril_tensor_status(kept) : ARIL_OK;
}

/* ---- options ---- */

static bool flag(const keras_make *k, const char *key, bool otherwise)
{
    return aril__json_bool(aril__json_get(k->config, key), otherwise);
}

static aril_status read_activation(const keras_make *k, const char *key, const char *otherwise,
                                   keras_activation *out)
{
    const json *v = aril__json_get(k->config, key);
    json usual = { .kind = '"', .text = (char *)(uintptr_t)otherwise };
    return aril__keras_activation(k, v ? v : &usual, out);
}

static aril_status read_options(const keras_make *k, recurrent *r)
{
    const char *class = k->layer->class;
    r->cell = strcmp(class, "LSTM") == 0 ? LSTM : strcmp(class, "GRU") == 0 ? GRU : SIMPLE;
    r->inputs = k->n_all;
    r->sequences = flag(k, "return_sequences", false);
    r->state = flag(k, "return_state", false);
    r->backwards = flag(k, "go_backwards", false);
    r->reset_after = flag(k, "reset_after", k->loader->version >= 2);
    r->zero = flag(k, "zero_output_for_mask", false);
    r->dropout = aril__json_real(aril__json_get(k->config, "dropout"), 0);
    if (k->rank != 3)
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "its input has %d dimensions, expected 3",
                                k->rank);
    if (r->inputs != 1 && r->inputs != 1 + states_of(r))
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "it has %d first states, expected %d",
                                r->inputs - 1, states_of(r));
    if (flag(k, "stateful", false))
        return aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "stateful layers are not supported");
    if (flag(k, "time_major", false))
        return aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "time_major is not supported");
    if (!(r->dropout >= 0 && r->dropout <= 1))
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "dropout must be a number from 0 to 1");
    aril_status s = aril__keras_integer(k, "units", 1, 1, &r->units);
    if (s == ARIL_OK) s = read_activation(k, "activation", "tanh", &r->activation);
    if (s == ARIL_OK) s = read_activation(k, "recurrent_activation", "sigmoid", &r->gates);
    bool tanh = r->activation.fused == ARIL_TANH, sigmoid = r->gates.fused == ARIL_SIGMOID;
    r->usual = r->cell == SIMPLE ? tanh || r->activation.fused == ARIL_RELU
                                 : tanh && sigmoid && (r->cell == LSTM || r->reset_after);
    return s;
}

aril_module *aril__keras_recurrent(keras_make *k)
{
    recurrent r = { 0 };
    if (read_options(k, &r) < 0) return NULL;
    aril_module *m = aril__keras_module(k, &recurrent_layer);
    if (!m) return NULL;
    r.base = *(keras_base *)aril_module_data(m);
    *(recurrent *)aril_module_data(m) = r;
    m->made.outputs = r.state ? 1 + states_of(&r) : 1;
    return aril__keras_made(m, own_weights(k, m, &r));
}

/* ---- both directions ---- */

typedef enum merge { CONCAT, SUM, AVE, MUL, NONE } merge;

typedef struct both {
    keras_base base;
    aril_module *direction[2]; /* children */
    merge merge;
    int states, inputs; /* of one direction; of both, without masks */
    bool sequences;
} both;

static aril_tensor *merged(const both *b, aril_tensor *f, aril_tensor *r)
{
    switch (b->merge) {
    case SUM: return aril_add(f, r);
    case AVE: return aril_mul_scalar(aril_add(f, r), 0.5);
    case MUL: return aril_mul(f, r);
    default: return aril_cat(ARIL_LIST(f, r), -1);
    }
}

ARIL__FORWARD(both_forward)
{
    const both *b = aril_module_data(self);
    aril_tensor *y[2][3];
    int states = (b->inputs - 1) / 2;
    for (int d = 0; d < 2; d++) {
        aril_tensor *x[4] = { in[0] };
        int n = 1;
        for (int i = 0; i < states; i++) x[n++] = in[1 + d * states + i];
        if (n_in > b->inputs) x[n++] = in[b->inputs];
        if (aril_forward_all(b->direction[d], (aril_list){ n, x }, 1 + b->states, y[d]) < 0) {
            aril__poison_all(n_out, out);
            return;
        }
    }
    aril_tensor *back = b->sequences ? aril_flip(y[1][0], ARIL_AXES(1)) : y[1][0];
    int at = 0;
    out[at++] = b->merge == NONE ? y[0][0] : merged(b, y[0][0], back);
    if (b->merge == NONE && at < n_out) out[at++] = back;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < b->states && at < n_out; i++) out[at++] = y[d][1 + i];
}

/* The recurrent layer of one direction. */
static aril_module *make_direction(keras_make *k, int d, int n_all)
{
    keras_make inner = *k;
    inner.layer = k->layer->inner[d];
    inner.config = inner.layer->config;
    inner.n_in = 1;
    inner.n_all = n_all;
    if (!inner.layer->kind || inner.layer->kind->make != aril__keras_recurrent) {
        aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                         "it holds a %s; LSTM, GRU and SimpleRNN are "
                         "supported",
                         inner.layer->class);
        return NULL;
    }
    aril_module *m = aril__keras_recurrent(&inner);
    if (!m) return NULL;
    recurrent *r = aril_module_data(m);
    r->zero = r->sequences;
    if (!inner.layer->trainable) aril_module_freeze(m);
    return m;
}

aril_module *aril__keras_bidirectional(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(both),
                                                 .type = "Bidirectional",
                                                 .forward = both_forward,
                                                 .inputs = -1,
                                                 .outputs = 6 } };
    static const char *const modes[] = { "concat", "sum", "ave", "mul" };
    const json *mode = aril__json_get(k->config, "merge_mode");
    both b = { .merge = mode && mode->kind == 'n' ? NONE : CONCAT, .inputs = k->n_all };
    for (int i = 0; i < 4; i++)
        if (strcmp(aril__json_text(mode, ""), modes[i]) == 0) b.merge = (merge)i;
    if (k->n_all % 2 == 0) {
        aril__keras_fail(k, ARIL_ERR_FORMAT,
                         "it has %d first states, expected the same number "
                         "for both directions",
                         k->n_all - 1);
        return NULL;
    }
    for (int d = 0; d < 2; d++) {
        b.direction[d] = make_direction(k, d, 1 + (k->n_all - 1) / 2);
        if (!b.direction[d]) break;
    }
    aril_module *m = b.direction[0] && b.direction[1] ? aril__keras_module(k, &layer) : NULL;
    if (!m) {
        aril_module_release(b.direction[0]);
        aril_module_release(b.direction[1]);
        return NULL;
    }
    recurrent *f = aril_module_data(b.direction[0]), *r = aril_module_data(b.direction[1]);
    r->backwards = !f->backwards;
    b.sequences = f->sequences;
    b.states = f->state ? states_of(f) : 0;
    bool same = f->sequences == r->sequences && f->state == r->state && f->cell == r->cell;
    b.base = *(keras_base *)aril_module_data(m);
    *(both *)aril_module_data(m) = b;
    m->made.outputs = (b.merge == NONE ? 2 : 1) + 2 * b.states;
    aril_module *first = aril_module_add(m, "forward_layer", b.direction[0]),
                *second = aril_module_add(m, "backward_layer", b.direction[1]);
    if (first && second && same) return m;
    if (first && second)
        aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "its two layers return different results");
    aril_module_release(m);
    return NULL;
}

/* ---- a layer for each step ---- */

typedef struct each {
    keras_base base;
    aril_module *inner; /* a network of one layer, with values in Keras' order */
} each;

/* [N,T,...] as [N*T,...], and back */
ARIL__FORWARD(each_forward)
{
    const each *e = aril_module_data(self);
    aril_tensor *x = in[0];
    aril_tensor *y = aril_forward(e->inner, aril_flatten(x, 0, 1));
    if (aril__is_poison(y)) {
        out[0] = y;
        return;
    }
    out[0] = aril_unflatten(y, 0, ARIL_SHAPE(x->dim[0], -1));
}

aril_module *aril__keras_time_distributed(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(each),
                                                 .type = "TimeDistributed",
                                                 .forward = each_forward,
                                                 .inputs = -1 } };
    if (k->rank < 3 || k->n_all != 1) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "its input has %d dimensions, expected at least 3",
                         k->rank);
        return NULL;
    }
    keras_value in = { .tensor = aril_flatten(k->in[0].tensor, 0, 1), .mask = -1 };
    if (aril_tensor_status(in.tensor) < 0) return NULL;
    aril_module *inner = aril__keras_plan_layer(k->loader, k->layer->inner[0], in),
                *m = inner ? aril__keras_module(k, &layer) : NULL;
    if (!m) {
        aril_module_release(inner);
        return NULL;
    }
    ((each *)aril_module_data(m))->inner = inner;
    if (aril_module_add(m, "layer", inner)) return m;
    aril_module_release(m);
    return NULL;
}

/* The kernel in a file is normalized already: evaluation is that of the layer. */
aril_module *aril__keras_spectral(keras_make *k)
{
    keras_value in = { .tensor = k->in[0].tensor, .mask = -1 };
    if (k->n_all != 1) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "it has %d inputs, expected 1", k->n_all);
        return NULL;
    }
    aril_module *m = aril__keras_plan_layer(k->loader, k->layer->inner[0], in);
    return m ? aril__keras_made(m, aril__keras_own(k, m, "vector_u", NULL)) : NULL;
}
