/* Aril's sequence ops get the inputs of all steps already multiplied by W_ih. oneDNN multiplies its
 * input by a weight itself: here that weight is a permutation to oneDNN's gate order.
 *
 *     Aril, as PyTorch    LSTM: i, f, g, o     GRU: r, z, n
 *     oneDNN              LSTM: i, f, c, o     GRU: z, r, n, with a fourth bias: that of n's state
 */
#include "backend/onednn/rnn.h"

#include "backend/onednn/cut.h"
#include "core/parallel.h"
#include "ops/sequence/rnn_seq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct rnn_plan {
    enum aril__rnn_kind kind;
    bool reverse;
    int64_t steps, batch, h, gates;
    aril__dnn forward;
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

static const char *make_forward(rnn_plan *p)
{
    int64_t t = p->steps, n = p->batch, h = p->h, g = p->gates;
    dnnl_memory_desc_t x = aril__dnn_dense(dnnl_f32, 3, (int64_t[]){ t, n, g * h });
    dnnl_memory_desc_t y = aril__dnn_dense(dnnl_f32, 3, (int64_t[]){ t, n, h });
    dnnl_memory_desc_t state = aril__dnn_dense(dnnl_f32, 4, (int64_t[]){ 1, 1, n, h });
    dnnl_memory_desc_t wl = aril__dnn_dense(dnnl_f32, 5, (int64_t[]){ 1, 1, g * h, g, h });
    dnnl_memory_desc_t wi = aril__dnn_dense(dnnl_f32, 5, (int64_t[]){ 1, 1, h, g, h });
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
    free(p);
}

/* Rounds a number of floats up to whole cache lines. */
static size_t part(int64_t n)
{
    return (size_t)((n + 15) / 16 * 16);
}

const char *aril__dnn_rnn_prepare(const aril__run *r, aril__plan *plan)
{
    const struct rnn_seq_attrs *a = r->attrs;
    const aril_tensor *x = r->in[RNN_XW], *w = r->in[RNN_W];
    if (x->numel == 0) return "an empty tensor";
    if (r->in[RNN_LEN]) return "sequences of different lengths";
    if (a->relu[0]) return "relu: oneDNN turns NaN into 0";
    if (a->keep[0]) return "the gates of each step are needed";
    if (!aril__dnn_engine()) return "oneDNN failed to initialize";
    rnn_plan *p = aril__calloc(sizeof *p);
    if (!p) return "out of memory";
    p->kind = r->op == &aril__op_lstm_seq  ? ARIL__LSTM
              : r->op == &aril__op_gru_seq ? ARIL__GRU
                                           : ARIL__RNN;
    p->reverse = a->reverse[0];
    p->steps = x->dim[0];
    p->batch = x->dim[1];
    p->h = w->dim[1];
    p->gates = w->dim[0] / p->h;
    const char *why = make_forward(p);
    if (why) {
        aril__dnn_rnn_destroy(p);
        return why;
    }
    int64_t gh = p->gates * p->h;
    plan->prepared = p;
    plan->workspace = sizeof(float) * (part(gh * gh) + part(p->h * gh) + part(biases(p) * p->h)) +
                      (p->forward.scratch + 63) / 64 * 64;
    return NULL;
}

/* Looks for infinities: the permutation would multiply them by 0 and spread NaN to all gates. */
typedef struct scan {
    const float *x;
    atomic_bool odd;
} scan;

static void look(void *ctx, int64_t begin, int64_t end)
{
    scan *s = ctx;
    bool odd = false;
    for (int64_t i = begin; i < end; i++) odd |= !isfinite(s->x[i]);
    if (odd) atomic_store_explicit(&s->odd, true, memory_order_relaxed);
}

aril_status aril__dnn_rnn(aril__run *r)
{
    rnn_plan *p = r->prepared;
    const aril_tensor *x = r->in[RNN_XW];
    int64_t h = p->h, gh = p->gates * h;
    scan s = { .x = aril__ptr(x) };
    aril__parallel_for(x->numel, 32 * 1024, look, &s);
    if (atomic_load(&s.odd)) return aril__dnn_leave_it(r);

    float *wl = r->workspace, *wi = wl + part(gh * gh), *b = wi + part(h * gh);
    float *scratch = b + part(biases(p) * h);
    const float *w = aril__ptr(r->in[RNN_W]);
    const float *given = r->in[RNN_B] ? aril__ptr(r->in[RNN_B]) : NULL;
    memset(wl, 0, (size_t)(gh * gh) * sizeof *wl);
    memset(b, 0, (size_t)(biases(p) * h) * sizeof *b);
    for (int64_t g = 0; g < p->gates; g++)
        for (int64_t o = 0; o < h; o++) {
            int64_t from = gate_of(p, g) * h + o;
            wl[from * gh + g * h + o] = 1;
            for (int64_t i = 0; i < h; i++) wi[i * gh + g * h + o] = w[from * h + i];
            int64_t to = p->kind == ARIL__GRU && g == 2 ? 3 : g;
            if (given) b[to * h + o] = given[from];
        }
    void *data[9] = { aril__ptr(x),         aril__ptr(r->in[RNN_H0]), wl, wi, b,
                      aril__ptr(r->out[0]), aril__ptr(r->out[1]) };
    if (p->kind == ARIL__LSTM) {
        data[7] = aril__ptr(r->in[RNN_C0]);
        data[8] = aril__ptr(r->out[2]);
    }
    return aril__dnn_status(r->op->name, aril__dnn_run(&p->forward, data, scratch));
}
