/* Recurrent sequences in inference. oneDNN wants weights transposed, its own order of gates, and
 * one bias for both products:
 *
 *     Aril, as PyTorch    LSTM: i, f, g, o     GRU: r, z, n
 *     oneDNN              LSTM: i, f, c, o     GRU: z, r, n, with a fourth bias: that of n's state
 */
#include "backend/onednn/rnn.h"

#include "backend/onednn/onednn.h"
#include "ops/sequence/rnn_seq.h"

#include <stdlib.h>
#include <string.h>

typedef struct rnn_plan {
    enum aril__rnn_kind kind;
    bool reverse;
    int64_t steps, batch, inputs, h, gates;
    aril__dnn forward;
    aril__dnn gate_ih, gate_hh; /* one gate of a weight, transposed into oneDNN's */
} rnn_plan;

static int64_t biases(const rnn_plan *p)
{
    return p->gates + (p->kind == ARIL__GRU);
}

/* Aril's index of oneDNN's gate g. */
static int64_t gate_of(const rnn_plan *p, int64_t g)
{
    return p->kind == ARIL__GRU && g < 2 ? 1 - g : g;
}

/* A weight [G*H,columns] in oneDNN's order: [1,1,columns,G,H]. */
static dnnl_memory_desc_t weight(const rnn_plan *p, int64_t columns)
{
    return aril__dnn_dense(dnnl_f32, 5, (int64_t[]){ 1, 1, columns, p->gates, p->h });
}

/* Copies [H,columns] to a gate of it. */
static const char *make_gate(const rnn_plan *p, int64_t columns, aril__dnn *to)
{
    int64_t dim[] = { columns, p->h }, gh = p->gates * p->h;
    dnnl_memory_desc_t from = aril__dnn_strided(dnnl_f32, 2, dim, (int64_t[]){ 1, columns });
    dnnl_memory_desc_t into = aril__dnn_strided(dnnl_f32, 2, dim, (int64_t[]){ gh, 1 });
    const char *why = from && into ? aril__dnn_make_reorder(to, from, into) : "out of memory";
    if (into) dnnl_memory_desc_destroy(into);
    if (from) dnnl_memory_desc_destroy(from);
    return why;
}

static const char *make_forward(rnn_plan *p)
{
    int64_t t = p->steps, n = p->batch, h = p->h;
    dnnl_memory_desc_t x = aril__dnn_dense(dnnl_f32, 3, (int64_t[]){ t, n, p->inputs });
    dnnl_memory_desc_t y = aril__dnn_dense(dnnl_f32, 3, (int64_t[]){ t, n, h });
    dnnl_memory_desc_t state = aril__dnn_dense(dnnl_f32, 4, (int64_t[]){ 1, 1, n, h });
    dnnl_memory_desc_t wl = weight(p, p->inputs), wi = weight(p, h);
    dnnl_memory_desc_t b = aril__dnn_dense(dnnl_f32, 4, (int64_t[]){ 1, 1, biases(p), h });
    dnnl_primitive_attr_t attr = aril__dnn_attr(0);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_rnn_direction_t way =
        p->reverse ? dnnl_unidirectional_right2left : dnnl_unidirectional_left2right;
    dnnl_status_t st = dnnl_out_of_memory;
    dnnl_engine_t engine = aril__dnn_engine();
    int threads = aril__dnn_enter();
    if (!x || !y || !state || !wl || !wi || !b || !attr)
        st = dnnl_out_of_memory;
    else if (p->kind == ARIL__LSTM)
        st = dnnl_lstm_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference, way, x,
                                                     state, state, wl, wi, NULL, NULL, b, y, state,
                                                     state, 0, attr);
    else if (p->kind == ARIL__GRU)
        st = dnnl_lbr_gru_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference, way, x,
                                                        state, wl, wi, b, y, state, 0, attr);
    else
        st = dnnl_vanilla_rnn_forward_primitive_desc_create(&pd, engine, dnnl_forward_inference,
                                                            dnnl_eltwise_tanh, way, x, state, wl,
                                                            wi, b, y, state, 0, 0, 0, attr);
    aril__dnn_leave(threads);
    const char *why =
        aril__dnn_make_any(&p->forward, st, pd, p->kind == ARIL__LSTM ? 9 : 7,
                           (int[]){ DNNL_ARG_SRC_LAYER, DNNL_ARG_SRC_ITER, DNNL_ARG_WEIGHTS_LAYER,
                                    DNNL_ARG_WEIGHTS_ITER, DNNL_ARG_BIAS, DNNL_ARG_DST_LAYER,
                                    DNNL_ARG_DST_ITER, DNNL_ARG_SRC_ITER_C, DNNL_ARG_DST_ITER_C });
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (b) dnnl_memory_desc_destroy(b);
    if (wi) dnnl_memory_desc_destroy(wi);
    if (wl) dnnl_memory_desc_destroy(wl);
    if (state) dnnl_memory_desc_destroy(state);
    if (y) dnnl_memory_desc_destroy(y);
    if (x) dnnl_memory_desc_destroy(x);
    return why;
}

void aril__dnn_rnn_destroy(void *prepared)
{
    rnn_plan *p = prepared;
    aril__dnn_destroy(&p->forward);
    aril__dnn_destroy(&p->gate_ih);
    aril__dnn_destroy(&p->gate_hh);
    free(p);
}

/* Positions in the workspace, in floats: the state that is absent, the biases, the weights; the
 * scratchpad follows. */
typedef struct space {
    size_t zeros, bias, w_ih, w_hh, total;
} space;

/* Rounds a number of floats up to whole cache lines. */
static size_t part(int64_t n)
{
    return (size_t)((n + 15) / 16 * 16);
}

static space space_of(const rnn_plan *p)
{
    space s = { .zeros = 0 };
    s.bias = s.zeros + part(p->batch * p->h);
    s.w_ih = s.bias + part(biases(p) * p->h);
    s.w_hh = s.w_ih + part(p->gates * p->h * p->inputs);
    s.total = s.w_hh + part(p->gates * p->h * p->h);
    return s;
}

const char *aril__dnn_rnn_prepare(const aril__run *r, aril__plan *plan)
{
    const struct rnn_seq_attrs *a = r->attrs;
    const aril_tensor *x = r->in[RNN_X], *w = r->in[RNN_W_HH];
    if (x->numel == 0 || w->numel == 0) return "an empty tensor";
    if (r->in[RNN_LEN]) return "sequences of different lengths";
    if (a->relu[0]) return "relu: oneDNN turns NaN into 0";
    if (a->keep[0]) return "the gradient needs the gates of each step";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    rnn_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->kind = aril__rnn_kind_of(r->op);
    p->reverse = a->reverse[0];
    p->steps = x->dim[0];
    p->batch = x->dim[1];
    p->inputs = x->dim[2];
    p->h = w->dim[1];
    p->gates = aril__rnn_gates(p->kind);
    const char *why = make_forward(p);
    if (!why) why = make_gate(p, p->inputs, &p->gate_ih);
    if (!why) why = make_gate(p, p->h, &p->gate_hh);
    if (why) {
        aril__dnn_rnn_destroy(p);
        return why;
    }
    plan->prepared = p;
    plan->workspace = sizeof(float) * space_of(p).total + (p->forward.scratch + 63) / 64 * 64;
    return NULL;
}

static void sum_biases(const rnn_plan *p, const aril_tensor *b_ih, const aril_tensor *b_hh,
                       float *to)
{
    const float *in = aril__ptr_or_null(b_ih), *hidden = aril__ptr_or_null(b_hh);
    for (int64_t g = 0; g < p->gates; g++)
        for (int64_t o = 0; o < p->h; o++) {
            int64_t from = gate_of(p, g) * p->h + o, at = g * p->h + o;
            float a = in ? in[from] : 0, b = hidden ? hidden[from] : 0;
            bool apart = p->kind == ARIL__GRU && g == 2;
            to[at] = apart ? a : a + b;
            if (apart) to[at + p->h] = b;
        }
}

/* A weight of `columns` columns in oneDNN's order. */
static dnnl_status_t reorder(const rnn_plan *p, aril__dnn *gate, const aril_tensor *w,
                             int64_t columns, float *to)
{
    float *from = aril__ptr(w);
    dnnl_status_t st = dnnl_success;
    for (int64_t g = 0; g < p->gates && st == dnnl_success; g++) {
        void *data[] = { from + gate_of(p, g) * p->h * columns, to + g * p->h };
        st = aril__dnn_run(gate, data, NULL);
    }
    return st;
}

aril_status aril__dnn_rnn(aril__run *r)
{
    rnn_plan *p = r->prepared;
    float *memory = r->workspace;
    space at = space_of(p);
    float *zeros = memory + at.zeros, *bias = memory + at.bias;
    float *w_ih = memory + at.w_ih, *w_hh = memory + at.w_hh;
    void *data[9] = { aril__ptr(r->in[RNN_X]),
                      r->in[RNN_H0] ? aril__ptr(r->in[RNN_H0]) : zeros,
                      w_ih,
                      w_hh,
                      bias,
                      aril__ptr(r->out[RNN_Y]),
                      aril__ptr(r->out[RNN_HN]) };
    if (p->kind == ARIL__LSTM) {
        data[7] = r->in[RNN_C0] ? aril__ptr(r->in[RNN_C0]) : zeros;
        data[8] = aril__ptr(r->out[RNN_CN]);
    }
    memset(zeros, 0, (size_t)(p->batch * p->h) * sizeof *zeros);
    sum_biases(p, r->in[RNN_B_IH], r->in[RNN_B_HH], bias);
    dnnl_status_t st = reorder(p, &p->gate_ih, r->in[RNN_W_IH], p->inputs, w_ih);
    if (st == dnnl_success) st = reorder(p, &p->gate_hh, r->in[RNN_W_HH], p->h, w_hh);
    if (st == dnnl_success) st = aril__dnn_run(&p->forward, data, memory + at.total);
    return aril__dnn_status(r->op->name, st);
}
