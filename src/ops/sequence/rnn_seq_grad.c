/* The gradients of recurrent sequences, step by step in public ops, so that they can be
 * differentiated again. They mirror the references, with the results y as given. */
#include "ops/sequence/rnn_seq.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/linalg/matmul.h"

#include <stdlib.h>

typedef struct steps {
    enum aril__rnn_kind kind;
    aril__call *c;
    bool reverse, relu;
    int64_t n, h;
    aril_tensor *y, *w, *lengths;
    aril_tensor *xw, *h0, *c0; /* x W_ih^T + b_ih, and the initial states [N,H] */
    aril_tensor **before, **a, **cell, **dx, **back; /* per step */
} steps;

/* Part k of the gates of one step. */
static aril_tensor *gate(const steps *s, aril_tensor *t, int k)
{
    return aril_slice(t, 1, k * s->h, (k + 1) * s->h, 1);
}

static aril_tensor *one_minus(aril_tensor *t)
{
    return aril_rsub_scalar(t, 1);
}

/* d * v * (1 - v) and d * (1 - v^2) */
static aril_tensor *sigmoid_back(aril_tensor *d, aril_tensor *v)
{
    return aril_mul(d, aril_mul(v, one_minus(v)));
}

static aril_tensor *tanh_back(aril_tensor *d, aril_tensor *v)
{
    return aril_mul(d, one_minus(aril_square(v)));
}

/* `then` where sequences are still active at step t, else `otherwise` (NULL: 0). */
static aril_tensor *while_active(const steps *s, int64_t t, aril_tensor *then,
                                 aril_tensor *otherwise)
{
    if (!s->lengths) return then;
    aril_tensor *active = aril_unsqueeze(aril_gt_scalar(s->lengths, t), 1);
    return aril_where(active, then, otherwise ? otherwise : aril_scalar(0));
}

static aril_tensor *state_before(const steps *s, int64_t t)
{
    if (!s->reverse) return t == 0 ? s->h0 : aril_select(s->y, 0, t - 1);
    if (t == s->n - 1) return s->h0;
    return while_active(s, t + 1, aril_select(s->y, 0, t + 1), s->h0);
}

/* A state [1,N,H] as [N,H]; zeros if it is absent. */
static aril_tensor *state_or_zeros(const steps *s, aril_tensor *state)
{
    return state ? aril_select(state, 0, 0) : aril_zeros_like(aril_select(s->y, 0, 0));
}

/* Gates of all steps in a[], cells in cell[]. */
static void forward(steps *s)
{
    aril_tensor *c = s->c0;
    for (int64_t k = 0; k < s->n; k++) {
        int64_t t = s->reverse ? s->n - 1 - k : k;
        s->before[t] = state_before(s, t);
        if (s->kind == ARIL__RNN) continue;
        s->a[t] = aril_linear(s->before[t], s->w, s->c->in[GRAD_B_HH]);
        if (!c) continue;
        s->a[t] = aril_add(s->a[t], aril_select(s->xw, 0, t));
        aril_tensor *in = aril_sigmoid(gate(s, s->a[t], 0));
        aril_tensor *forget = aril_sigmoid(gate(s, s->a[t], 1));
        aril_tensor *g = aril_tanh(gate(s, s->a[t], 2));
        aril_tensor *next = aril_add(aril_mul(forget, c), aril_mul(in, g));
        s->cell[2 * t] = c;
        s->cell[2 * t + 1] = next;
        c = while_active(s, t, next, c);
    }
}

static void backward_lstm(steps *s, int64_t t, aril_tensor *d, aril_tensor **dc)
{
    aril_tensor *in = aril_sigmoid(gate(s, s->a[t], 0)), *f = aril_sigmoid(gate(s, s->a[t], 1));
    aril_tensor *g = aril_tanh(gate(s, s->a[t], 2)), *out = aril_sigmoid(gate(s, s->a[t], 3));
    aril_tensor *tc = aril_tanh(s->cell[2 * t + 1]);
    aril_tensor *d_c = aril_add(*dc, tanh_back(aril_mul(d, out), tc));
    aril_tensor *part[4] = { sigmoid_back(aril_mul(d_c, g), in),
                             sigmoid_back(aril_mul(d_c, s->cell[2 * t]), f),
                             tanh_back(aril_mul(d_c, in), g), sigmoid_back(aril_mul(d, tc), out) };
    s->dx[t] = s->back[t] = while_active(s, t, aril_cat((aril_list){ 4, part }, 1), NULL);
    *dc = while_active(s, t, aril_mul(d_c, f), *dc);
}

/* Returns the direct gradient of the previous state, without the part through W_hh. */
static aril_tensor *backward_gru(steps *s, int64_t t, aril_tensor *d)
{
    aril_tensor *x = aril_select(s->xw, 0, t), *p = gate(s, s->a[t], 2);
    aril_tensor *r = aril_sigmoid(aril_add(gate(s, x, 0), gate(s, s->a[t], 0)));
    aril_tensor *z = aril_sigmoid(aril_add(gate(s, x, 1), gate(s, s->a[t], 1)));
    aril_tensor *m = aril_tanh(aril_add(gate(s, x, 2), aril_mul(r, p)));
    aril_tensor *d_m = tanh_back(aril_mul(d, one_minus(z)), m);
    aril_tensor *part[3] = { sigmoid_back(aril_mul(d_m, p), r),
                             sigmoid_back(aril_mul(d, aril_sub(s->before[t], m)), z), d_m };
    s->dx[t] = while_active(s, t, aril_cat((aril_list){ 3, part }, 1), NULL);
    part[2] = aril_mul(d_m, r);
    s->back[t] = while_active(s, t, aril_cat((aril_list){ 3, part }, 1), NULL);
    return aril_mul(d, z);
}

static aril_tensor *none(const steps *s)
{
    return aril_zeros(ARIL_SHAPE(0), aril_dtype_of(s->y), aril_device_of(s->y));
}

static void backward(steps *s, aril_tensor **out)
{
    aril__call *c = s->c;
    const struct rnn_grad_attrs *at = c->attrs;
    aril_tensor *dh = state_or_zeros(s, c->in[GRAD_GH]);
    aril_tensor *dc = s->c0 ? state_or_zeros(s, c->in[GRAD_GC]) : NULL;
    for (int64_t k = 0; k < s->n; k++) {
        int64_t t = s->reverse ? k : s->n - 1 - k;
        aril_tensor *d = c->in[GRAD_GY] ? aril_add(dh, aril_select(c->in[GRAD_GY], 0, t)) : dh;
        aril_tensor *straight = NULL;
        if (s->kind == ARIL__LSTM) {
            backward_lstm(s, t, d, &dc);
        } else if (s->kind == ARIL__GRU) {
            straight = backward_gru(s, t, d);
        } else {
            aril_tensor *y = aril_select(s->y, 0, t);
            d = s->relu ? aril_where(aril_gt_scalar(y, 0), d, aril_scalar(0)) : tanh_back(d, y);
            s->dx[t] = s->back[t] = while_active(s, t, d, NULL);
        }
        aril_tensor *next = aril_matmul(s->back[t], s->w);
        dh = while_active(s, t, straight ? aril_add(next, straight) : next, dh);
    }
    aril_tensor *back = aril_stack((aril_list){ (int)s->n, s->back }, 0);
    aril_tensor *before = aril_stack((aril_list){ (int)s->n, s->before }, 0);
    aril_tensor *gates =
        s->kind == ARIL__GRU ? aril_stack((aril_list){ (int)s->n, s->dx }, 0) : back;
    out[GRAD_DX] = at->no_dx[0] ? none(s) : aril_matmul(gates, c->in[GRAD_W_IH]);
    out[GRAD_DH0] = aril_unsqueeze(dh, 0);
    if (dc) out[GRAD_DC0] = aril_unsqueeze(dc, 0);
    for (int i = GRAD_DW_IH; i <= GRAD_DB_HH && at->no_dw[0]; i++) out[i] = none(s);
    if (at->no_dw[0]) return;
    out[GRAD_DW_IH] = aril__op(&aril__op_outer_sum, gates, c->in[GRAD_X]);
    out[GRAD_DW_HH] = aril__op(&aril__op_outer_sum, back, before);
    out[GRAD_DB_IH] = aril_sum(gates, ARIL_AXES(0, 1));
    out[GRAD_DB_HH] = aril_sum(back, ARIL_AXES(0, 1));
}

void aril__rnn_grad_decompose(aril__call *c, aril_tensor **out)
{
    const struct rnn_grad_attrs *at = c->attrs;
    steps s = { .kind = aril__rnn_kind_of(c->op),
                .c = c,
                .reverse = at->reverse[0],
                .relu = at->relu[0],
                .n = c->in[GRAD_Y]->dim[0],
                .h = c->in[GRAD_W_HH]->dim[1],
                .y = c->in[GRAD_Y],
                .w = c->in[GRAD_W_HH],
                .lengths = c->in[GRAD_LEN] };
    int n_out = c->op->n_out;
    aril_tensor **all = NULL;
    if (s.n < 0 || s.h < 0)
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: second derivatives need a known number of steps",
                   c->op->name);
    else if (!(all = aril__malloc((size_t)(6 * s.n + 1) * sizeof *all)))
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", c->op->name);
    if (!all) {
        aril__poison_all(n_out, out);
        return;
    }
    s.before = all;
    s.a = all + s.n;
    s.dx = all + 2 * s.n;
    s.back = all + 3 * s.n;
    s.cell = all + 4 * s.n;
    {
        ARIL_SCOPE;
        s.h0 = state_or_zeros(&s, c->in[GRAD_H0]);
        if (s.kind == ARIL__LSTM) s.c0 = state_or_zeros(&s, c->in[GRAD_C0]);
        if (s.kind != ARIL__RNN)
            s.xw = aril_linear(c->in[GRAD_X], c->in[GRAD_W_IH], c->in[GRAD_B_IH]);
        forward(&s);
        backward(&s, out);
        for (int i = 0; i < n_out; i++) aril_escape(out[i]);
    }
    free(all);
}
