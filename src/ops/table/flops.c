#include "ops/table/flops.h"

#include "core/log.h"
#include "core/profile.h"
#include "ops/sequence/rnn_seq.h"
#include "ops/linalg/ops.h"
#include "ops/sequence/ops.h"
#include "ops/vision/ops.h"

#include <pthread.h>
#include <string.h>

static double numel(const aril_tensor *t)
{
    return t && t->numel > 0 ? (double)t->numel : 0;
}

static double last_dim(const aril_tensor *t)
{
    return t->ndim ? (double)t->dim[t->ndim - 1] : 1;
}

static double first_dim(const aril_tensor *t)
{
    return t->ndim && t->dim[0] > 0 ? (double)t->dim[0] : 1;
}

/* x [...,n,k] or [k], w [k,m] or [m,k]: every element of the result is a sum over k. */
static double product(const aril__run *r)
{
    return 2 * numel(r->out[0]) * last_dim(r->in[0]);
}

/* [...,n] and [...,m] to [n,m]: a sum over the leading indices. */
static double outer(const aril__run *r)
{
    return 2 * numel(r->in[0]) * last_dim(r->in[1]);
}

/* w is [O,C/groups,...]: each element of the larger side is multiplied by w.numel / O of its
 * elements. */
static double conv(const aril__run *r)
{
    return 2 * numel(r->out[0]) * numel(r->in[1]) / first_dim(r->in[1]);
}

/* in: gradient of the result [N,O,...], w [O,...], like x */
static double conv_dgrad(const aril__run *r)
{
    return 2 * numel(r->in[0]) * numel(r->in[1]) / first_dim(r->in[1]);
}

/* in: gradient of the result [N,O,...], x, like w; out: [O,...] */
static double conv_wgrad(const aril__run *r)
{
    return 2 * numel(r->in[0]) * numel(r->out[0]) / first_dim(r->out[0]);
}

/* w is [C,O/groups,...]: each element of x is multiplied by w.numel / C of its elements. */
static double conv_transpose(const aril__run *r)
{
    return 2 * numel(r->in[0]) * numel(r->in[1]) / first_dim(r->in[1]);
}

/* q [...,L,E], k [...,S,E], v [...,S,Ev]: q k^T and its product with v. */
static double attention(const aril__run *r)
{
    const aril_tensor *q = r->in[0], *k = r->in[1], *v = r->in[2];
    double keys = k->ndim > 1 ? (double)k->dim[k->ndim - 2] : 1, e = last_dim(q);
    return e > 0 ? 2 * numel(q) / e * keys * (e + last_dim(v)) : 0;
}

/* Five matrix products instead of two. */
static double attention_grad(const aril__run *r)
{
    return 2.5 * attention(r);
}

/* The state is multiplied by W_hh at every step. */
static double recurrent(const aril__run *r)
{
    const aril_tensor *xw = r->in[RNN_XW], *w = r->in[RNN_W];
    return xw->ndim == 3 ? 2 * (double)xw->dim[0] * (double)xw->dim[1] * numel(w) : 0;
}

/* Twice that: the gradient of the state, and that of W_hh. */
static double recurrent_grad(const aril__run *r)
{
    const aril_tensor *y = r->in[GRAD_Y], *w = r->in[GRAD_W];
    return y->ndim == 3 ? 4 * (double)y->dim[0] * (double)y->dim[1] * numel(w) : 0;
}

static const struct {
    const aril__op *op;
    double (*flops)(const aril__run *r);
} counted[] = {
    { &aril__op_matmul, product },
    { &aril__op_linear, product },
    { &aril__op_outer_sum, outer },
    { &aril__op_conv, conv },
    { &aril__op_conv_dgrad, conv_dgrad },
    { &aril__op_conv_wgrad, conv_wgrad },
    { &aril__op_conv_transpose, conv_transpose },
    { &aril__op_attention, attention },
    { &aril__op_attention_grad, attention_grad },
    { &aril__op_rnn_seq, recurrent },
    { &aril__op_lstm_seq, recurrent },
    { &aril__op_gru_seq, recurrent },
    { &aril__op_rnn_seq_grad, recurrent_grad },
    { &aril__op_lstm_seq_grad, recurrent_grad },
    { &aril__op_gru_seq_grad, recurrent_grad },
};

double aril__flops(const aril__run *r)
{
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (counted[i].op == r->op) return counted[i].flops(r);
    if (r->op->flags & RAW || !aril__is_float(r->type)) return 0;
    double most = numel(r->out[0]);
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i] && !(i < 31 && r->op->shape_only >> i & 1) && numel(r->in[i]) > most)
            most = numel(r->in[i]);
    return r->n_in ? most : 0;
}

static double bytes_of(const aril_tensor *t)
{
    if (!t || t->numel <= 0) return 0;
    int64_t places = 1;
    for (int d = 0; d < t->ndim; d++)
        if (t->stride[d] != 0) places *= t->dim[d];
    return (double)aril__dtype_bytes((aril_dtype)t->dtype, places);
}

double aril__bytes_moved(const aril__run *r)
{
    double bytes = 0;
    for (int i = 0; i < r->n_in; i++)
        if (!(i < 31 && r->op->shape_only >> i & 1)) bytes += bytes_of(r->in[i]);
    for (int i = 0; i < r->n_out; i++) bytes += bytes_of(r->out[i]);
    return bytes;
}

void aril__profile_note(const aril__run *r, const char *kernel)
{
    char text[160] = "", shape[ARIL__SHAPE_TEXT];
    size_t n = 0;
    bool shapes = aril__profile_wants_shapes();
    for (int i = 0; shapes && i < r->n_in && n < sizeof text - 1; i++) {
        const aril_tensor *t = r->in[i];
        int k = snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "",
                         t ? aril__text(shape, t) : "-");
        n += k > 0 ? (size_t)k : 0;
    }
    bool real = kernel != NULL; /* otherwise count the ops of its decomposition */
    aril__span_note(kernel, text, real ? aril__bytes_moved(r) : 0, real ? aril__flops(r) : 0);
}

/* ---- meters ---- */

static _Thread_local aril__meter *meter;
static pthread_mutex_t meters_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `meters` and the mask's
                                                                 * bit */
static int meters;                                              /* number of threads with a meter */

aril__meter *aril__meter_set(aril__meter *m)
{
    aril__meter *before = meter;
    pthread_mutex_lock(&meters_lock);
    meters += (m != NULL) - (before != NULL);
    if (meters)
        __atomic_fetch_or(&aril__log_mask, ARIL__LOG_METER, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&aril__log_mask, ~(unsigned)ARIL__LOG_METER, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&meters_lock);
    meter = m;
    return before;
}

void aril__meter_note(const aril__run *r)
{
    if (meter) meter->note(meter, r);
}
