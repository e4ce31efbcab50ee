/* Rows of products, normalization, attention and recurrent layers. */
#include "onnx/export_rules.h"
#include "ops/linalg/integer.h"
#include "ops/linalg/matmul.h"
#include "ops/norm/norm.h"
#include "ops/norm/softmax.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/rnn_seq.h"
#include "ops/elementwise/activation.h"
#include "ops/shape/like.h"

#include <math.h>
#include <string.h>

/* ---- products ---- */

#define MATRIX_TYPES (DT_FLOAT | DT(ARIL_U32) | DT(ARIL_U64) | DT(ARIL_I32) | DT(ARIL_I64))

static aril_status matmul(export_call *c)
{
    aril_dtype type = dtype_out(c, 0), wide = aril__export_wide(type, MATRIX_TYPES);
    export_value *y =
        put(c, "MatMul", VALUES(aril__export_in_as(c, 0, wide), aril__export_in_as(c, 1, wide)),
            NO_ATTRS);
    return set_out(c, 0, aril__export_cast(c, y, wide, type));
}

/* x w' + b: Gemm for matrices. */
static aril_status linear(export_call *c)
{
    const struct linear_attrs *a = c->attrs;
    int64_t act = a ? a->activation[0] : 0;
    export_value *x = aril__export_in(c, 0), *w = aril__export_in(c, 1), *y;
    export_value *b = has(c, 2) ? aril__export_in(c, 2) : NULL;
    if (ndim_in(c, 0) == 2 && ndim_in(c, 1) == 2) {
        y = put(c, "Gemm", VALUES(x, w, b), ATTRIBUTES(attr_int("transB", 1)));
    } else {
        int swap[] = { 1, 0 };
        w = ndim_in(c, 1) == 2 ? aril__export_transpose(c, w, 2, swap) : w;
        y = put(c, "MatMul", VALUES(x, w), NO_ATTRS);
        if (b) y = put(c, "Add", VALUES(y, b), NO_ATTRS);
    }
    return set_out(c, 0, aril__export_activation(c, y, act));
}

/* The sum over all leading dimensions of the outer products of the last. */
static aril_status outer_sum(export_call *c)
{
    int64_t m[] = { -1, dims_in(c, 0)[ndim_in(c, 0) - 1] },
            n[] = { -1, dims_in(c, 1)[ndim_in(c, 1) - 1] };
    if (m[1] < 0 || n[1] < 0) return ARIL__EXPORT_DECLINED;
    export_value *a = aril__export_in(c, 0), *b = aril__export_in(c, 1);
    if (ndim_in(c, 0) != 2) a = aril__export_reshape(c, a, 2, m);
    if (ndim_in(c, 1) != 2) b = aril__export_reshape(c, b, 2, n);
    return set_out(c, 0, put(c, "Gemm", VALUES(a, b), ATTRIBUTES(attr_int("transA", 1))));
}

/* ---- products of integers ---- */

/* A bias only where the operator has one. */
bool aril__export_integer_takes(const export_call *c)
{
    bool scaled = has(c, ARIL__INTEGER_SCALE), bias = has(c, ARIL__INTEGER_BIAS);
    if (strcmp(c->op->name, "conv_integer") == 0) return scaled || !bias;
    return !bias && ndim_in(c, 0) >= 2;
}

static export_value *or_number(export_call *c, int i, double value, aril_dtype dtype)
{
    return has(c, i) ? aril__export_in(c, i) : aril__export_number(c, value, dtype);
}

/* The scale of the product is that of the second operand: the others are 1. */
aril_status aril__export_integer(export_call *c, const char *plain, const char *scaled,
                                 export_value *a, export_attrs attrs)
{
    export_value *b = aril__export_in(c, 1);
    export_value *a0 = or_number(c, ARIL__INTEGER_A_ZERO, 0, dtype_in(c, 0)),
                 *b0 = or_number(c, ARIL__INTEGER_B_ZERO, 0, dtype_in(c, 1));
    if (!has(c, ARIL__INTEGER_SCALE))
        return set_out(c, 0, put(c, plain, VALUES(a, b, a0, b0), attrs));
    export_value *one = aril__export_number(c, 1, ARIL_F32);
    export_value *scale = aril__export_in(c, ARIL__INTEGER_SCALE),
                 *zero = aril__export_in(c, ARIL__INTEGER_ZERO);
    if (has(c, ARIL__INTEGER_BIAS))
        return set_out(c, 0,
                       put(c, scaled,
                           VALUES(a, one, a0, b, scale, b0, one, zero,
                                  aril__export_in(c, ARIL__INTEGER_BIAS)),
                           attrs));
    return set_out(c, 0, put(c, scaled, VALUES(a, one, a0, b, scale, b0, one, zero), attrs));
}

static aril_status matmul_integer(export_call *c)
{
    return aril__export_integer(c, "MatMulInteger", "QLinearMatMul", aril__export_in(c, 0),
                                NO_ATTRS);
}

/* ---- softmax ---- */

static aril_status softmax(export_call *c)
{
    const struct softmax_attrs *a = c->attrs;
    static const int64_t one[] = { 1 };
    export_value *x = aril__export_in(c, 0);
    if (!ndim_in(c, 0)) x = aril__export_reshape(c, x, 1, one);
    export_value *y = put(c, c->rule->onnx, VALUES(x), ATTRIBUTES(attr_int("axis", a->axis[0])));
    return set_out(c, 0, ndim_in(c, 0) ? y : aril__export_reshape(c, y, 0, NULL));
}

/* ---- normalization ---- */

/* A parameter for each channel, or the same number for all. */
static export_value *parameter(export_call *c, int i, int n, const int64_t *dim, double otherwise,
                               aril_dtype dtype)
{
    if (has(c, i)) return aril__export_in_as(c, i, dtype);
    ARIL_SCOPE;
    aril_shape shape = { .ndim = n };
    for (int d = 0; d < n; d++) {
        if (dim[d] < 0) {
            aril__export_fail(c->model, "%s: the number of channels is not known", c->op->name);
            return NULL;
        }
        shape.dim[d] = dim[d];
    }
    return aril__export_constant(c->model, aril_full(shape, otherwise, dtype, aril_cpu()));
}

static aril_status batch_norm_eval(export_call *c)
{
    const struct batch_norm_eval_attrs *a = c->attrs;
    const int64_t *channels = dims_in(c, 0) + 1;
    aril_dtype dtype = dtype_in(c, 0);
    export_value *y = put(c, "BatchNormalization",
                          VALUES(aril__export_in(c, 0), parameter(c, 1, 1, channels, 1, dtype),
                                 parameter(c, 2, 1, channels, 0, dtype),
                                 aril__export_in_as(c, 3, dtype), aril__export_in_as(c, 4, dtype)),
                          ATTRIBUTES(attr_float("epsilon", a->eps[0])));
    if (has(c, 5)) y = put(c, "Add", VALUES(y, aril__export_in(c, 5)), NO_ATTRS);
    return set_out(c, 0, aril__export_activation(c, y, a->activation[0]));
}

static aril_tensor *normalized(aril_tensor *x, aril_tensor *mean, aril_tensor *s,
                               aril_tensor *weight, aril_tensor *bias, aril_dtype dtype)
{
    aril_tensor *y = aril_mul(mean ? aril_sub(x, mean) : x, s);
    if (weight) y = aril_mul(y, aril_cast(weight, (aril_dtype)y->dtype));
    if (bias) y = aril_add(y, aril_cast(bias, (aril_dtype)y->dtype));
    return aril_cast(y, dtype);
}

/* The running value moves towards that of the batch. */
static aril_tensor *moved(aril_tensor *running, aril_tensor *now, aril_tensor *share)
{
    aril_tensor *to = aril_cast(now, (aril_dtype)running->dtype);
    return aril_add(running,
                    aril_mul(aril_cast(share, (aril_dtype)running->dtype), aril_sub(to, running)));
}

static void batch_norm(aril__call *c, aril_tensor **out)
{
    const struct batch_norm_attrs *a = c->attrs;
    aril_tensor *x = aril_cast(c->in[0], aril__stat_dtype(c->in[0]));
    aril_axes axes = { .keepdim = true };
    for (int d = 0; d < x->ndim; d++)
        if (d != 1) axes.axis[axes.n++] = d;
    bool empty = x->numel == 0; /* its sums are 0, and so are its means */
    aril_tensor *mean = empty ? aril_sum(x, axes) : aril_mean(x, axes), *apart = aril_sub(x, mean);
    aril_tensor *square = aril_square(apart);
    aril_tensor *var = empty ? aril_sum(square, axes) : aril_mean(square, axes);
    aril_tensor *s = aril_reciprocal(aril_sqrt(aril_add_scalar(var, a->eps[0])));
    aril_tensor *w = c->in[1] ? aril__norm_channels(c->in[1], x->ndim) : NULL;
    aril_tensor *b = c->in[2] ? aril__norm_channels(c->in[2], x->ndim) : NULL;
    aril_tensor *y = normalized(apart, NULL, s, w, b, (aril_dtype)x->dtype);
    y = aril_cast(y, (aril_dtype)c->in[0]->dtype);
    if (c->in[6]) y = aril_add(y, c->in[6]);
    out[0] = aril__activation(y, a->activation[0]);
    aril_shape flat = ARIL_SHAPE(x->dim[1]);
    out[1] = aril_reshape(mean, flat);
    out[2] = aril_reshape(s, flat);
    aril_tensor *share = aril_full(ARIL_SHAPE(), a->momentum[0], (aril_dtype)x->dtype, aril_cpu());
    if (c->in[5]) out[5] = aril_add_scalar(c->in[5], 1);
    if (c->in[5] && a->cumulative[0])
        share = aril_reciprocal(aril_cast(out[5], (aril_dtype)x->dtype));
    if (c->in[3]) out[3] = moved(c->in[3], out[1], share);
    if (c->in[4]) {
        aril_tensor *n = aril__count_like(x, mean);
        aril_tensor *unbiased =
            aril_div(aril_mul(aril_reshape(var, flat), n), aril_add_scalar(n, -1));
        out[4] = moved(c->in[4], unbiased, share);
    }
}

/* The last axes of x, with their number. */
static aril_axes last_axes(const aril_tensor *x, int64_t n)
{
    aril_axes axes = { .keepdim = true };
    for (int64_t d = x->ndim - n; d < x->ndim; d++) axes.axis[axes.n++] = (int)d;
    return axes;
}

static aril_tensor *shaped(aril_tensor *x, const aril__meta *o)
{
    aril_shape shape = { .ndim = o->ndim };
    memcpy(shape.dim, o->dim, sizeof shape.dim);
    return aril_reshape(x, shape);
}

static void layer_norm(aril__call *c, aril_tensor **out)
{
    const struct layer_norm_attrs *a = c->attrs;
    aril_tensor *x = aril_cast(c->in[0], aril__stat_dtype(c->in[0]));
    aril_axes axes = last_axes(x, a->axes[0]);
    aril_tensor *mean = aril_mean(x, axes), *apart = aril_sub(x, mean);
    aril_tensor *s =
        aril_reciprocal(aril_sqrt(aril_add_scalar(aril_mean(aril_square(apart), axes), a->eps[0])));
    out[0] = normalized(apart, NULL, s, c->in[1], c->in[2], (aril_dtype)c->in[0]->dtype);
    out[1] = shaped(mean, &c->out[1]);
    out[2] = shaped(s, &c->out[2]);
}

static aril_status layer_norm_write(export_call *c)
{
    const struct layer_norm_attrs *a = c->attrs;
    int n = (int)a->axes[0];
    if (aril__export_wanted(c, 1) || aril__export_wanted(c, 2)) return ARIL__EXPORT_DECLINED;
    const int64_t *last = dims_in(c, 0) + ndim_in(c, 0) - n;
    if (!has(c, 1) && !aril__export_known(n, last)) return ARIL__EXPORT_DECLINED;
    aril_dtype dtype = dtype_in(c, 0);
    if (dtype == ARIL_F64) return ARIL__EXPORT_DECLINED; /* epsilon and statistics are f32 */
    return set_out(c, 0,
                   put(c, "LayerNormalization",
                       VALUES(aril__export_in(c, 0), parameter(c, 1, n, last, 1, dtype),
                              has(c, 2) ? aril__export_in_as(c, 2, dtype) : NULL),
                       ATTRIBUTES(attr_int("axis", -n), attr_float("epsilon", a->eps[0]))));
}

static void rms_norm(aril__call *c, aril_tensor **out)
{
    const struct rms_norm_attrs *a = c->attrs;
    aril_tensor *x = aril_cast(c->in[0], aril__stat_dtype(c->in[0]));
    double eps = aril__rms_norm_eps(a, (aril_dtype)c->in[0]->dtype);
    aril_tensor *mean = aril_mean(aril_square(x), last_axes(x, a->axes[0]));
    aril_tensor *s = aril_reciprocal(aril_sqrt(aril_add_scalar(mean, eps)));
    out[0] = normalized(x, NULL, s, c->in[1], NULL, (aril_dtype)c->in[0]->dtype);
    out[1] = shaped(s, &c->out[1]);
}

static aril_status rms_norm_write(export_call *c)
{
    const struct rms_norm_attrs *a = c->attrs;
    int n = (int)a->axes[0];
    const int64_t *last = dims_in(c, 0) + ndim_in(c, 0) - n;
    if (aril__export_wanted(c, 1) || (!has(c, 1) && !aril__export_known(n, last)))
        return ARIL__EXPORT_DECLINED;
    aril_dtype dtype = dtype_in(c, 0);
    return set_out(c, 0,
                   put(c, "RMSNormalization",
                       VALUES(aril__export_in(c, 0), parameter(c, 1, n, last, 1, dtype)),
                       ATTRIBUTES(attr_int("axis", -n),
                                  attr_float("epsilon", aril__rms_norm_eps(a, dtype)))));
}

/* Groups of channels are lines: [N, groups, rest]. */
static void group_norm(aril__call *c, aril_tensor **out)
{
    const struct group_norm_attrs *a = c->attrs;
    aril_tensor *x = aril_cast(c->in[0], aril__stat_dtype(c->in[0]));
    int64_t groups = aril__groups_of(a, c->in[0]);
    aril_shape whole = { .ndim = x->ndim };
    memcpy(whole.dim, x->dim, sizeof whole.dim);
    int64_t each = x->dim[1] / groups;
    for (int d = 2; d < x->ndim; d++) each = each < 0 || x->dim[d] < 0 ? -1 : each * x->dim[d];
    aril_tensor *lines = aril_reshape(x, ARIL_SHAPE(x->dim[0], groups, each));
    aril_tensor *mean = aril_mean(lines, ARIL_KEEPDIM(2)), *apart = aril_sub(lines, mean);
    aril_tensor *s = aril_reciprocal(
        aril_sqrt(aril_add_scalar(aril_mean(aril_square(apart), ARIL_KEEPDIM(2)), a->eps[0])));
    aril_tensor *y = aril_reshape(aril_mul(apart, s), whole);
    aril_tensor *w = c->in[1] ? aril__norm_channels(c->in[1], x->ndim) : NULL;
    aril_tensor *b = c->in[2] ? aril__norm_channels(c->in[2], x->ndim) : NULL;
    if (w) y = aril_mul(y, aril_cast(w, (aril_dtype)y->dtype));
    if (b) y = aril_add(y, aril_cast(b, (aril_dtype)y->dtype));
    out[0] = aril_cast(y, (aril_dtype)c->in[0]->dtype);
    out[1] = shaped(mean, &c->out[1]);
    out[2] = shaped(s, &c->out[2]);
}

static aril_status group_norm_write(export_call *c)
{
    const struct group_norm_attrs *a = c->attrs;
    const int64_t *channels = dims_in(c, 0) + 1;
    if (aril__export_wanted(c, 1) || aril__export_wanted(c, 2) || *channels < 0)
        return ARIL__EXPORT_DECLINED;
    aril_dtype dtype = dtype_in(c, 0);
    return set_out(c, 0,
                   put(c, "GroupNormalization",
                       VALUES(aril__export_in(c, 0), parameter(c, 1, 1, channels, 1, dtype),
                              parameter(c, 2, 1, channels, 0, dtype)),
                       ATTRIBUTES(attr_int("num_groups", a->groups[0] ? a->groups[0] : *channels),
                                  attr_float("epsilon", a->eps[0]))));
}

static bool is_odd(const export_call *c)
{
    return ((const struct local_response_norm_attrs *)c->attrs)->size[0] % 2 == 1;
}

/* ---- attention ---- */

static void attention(aril__call *c, aril_tensor **out)
{
    const struct attention_attrs *a = c->attrs;
    aril_tensor *q = c->in[ATTENTION_Q], *k = c->in[ATTENTION_K], *v = c->in[ATTENTION_V];
    aril_tensor *mask = c->in[ATTENTION_MASK];
    int n = q->ndim;
    double scale = a->scale[0] != 0 ? a->scale[0] : 1 / sqrt((double)q->dim[n - 1]);
    aril_tensor *scores = aril_matmul(aril_mul_scalar(q, scale), aril_transpose(k, -2, -1));
    aril_tensor *none = aril_full(ARIL_SHAPE(), -INFINITY, (aril_dtype)scores->dtype, aril_cpu());
    if (a->causal[0]) {
        int64_t rows = q->dim[n - 2], columns = k->dim[n - 2];
        if (rows < 0 || columns < 0) {
            aril__fail(
                ARIL_ERR_UNSUPPORTED,
                "attention: a causal mask of unknown length has no form in ONNX; export with "
                "a known length");
            out[0] = out[1] = aril__poison();
            return;
        }
        aril__pause p = aril__trace_pause();
        aril_tensor *seen =
            aril_cast(aril_tril(aril_ones(ARIL_SHAPE(rows, columns), ARIL_U8, aril_cpu()), 0),
                      ARIL_BOOL);
        aril__trace_resume(p);
        scores = aril_where(seen, scores, none);
    }
    if (mask && mask->dtype == ARIL_BOOL)
        scores = aril_where(mask, scores, none);
    else if (mask)
        scores = aril_add(scores, aril_cast(mask, (aril_dtype)scores->dtype));
    aril_tensor *weights = aril_softmax(scores, -1);
    if (mask && k->dim[n - 2] != 0) { /* a query that sees no key: its weights are 0, not NaN */
        aril_tensor *top = aril_amax(scores, ARIL_KEEPDIM(n - 1));
        aril_tensor *zero = aril_zeros(ARIL_SHAPE(), (aril_dtype)scores->dtype, aril_cpu());
        weights = aril_where(aril_eq_scalar(top, -INFINITY), zero, weights);
    }
    out[0] = aril_matmul(weights, v);
    out[1] = aril_cast(aril_logsumexp(scores, ARIL_AXES(n - 1)), c->out[1].dtype);
}

/* ---- recurrent layers ---- */

/* Gates in ONNX's order: blocks of H rows. */
static export_value *reordered(export_call *c, export_value *w, int64_t hidden, int n,
                               const int *order)
{
    export_value *part[4];
    if (n == 1) return w;
    for (int k = 0; k < n; k++)
        part[k] = aril__export_slice(c, w, 0, order[k] * hidden, (order[k] + 1) * hidden, 1);
    return put(c, "Concat", (export_values){ n, part }, ATTRIBUTES(attr_int("axis", 0)));
}

static aril_status recurrent(export_call *c)
{
    static const int64_t first[] = { 0 }, direction[] = { 1 };
    static const int lstm[] = { 0, 3, 1, 2 }, gru[] = { 1, 0, 2 }, plain[] = { 0 };
    const struct rnn_seq_attrs *a = c->attrs;
    enum aril__rnn_kind kind = aril__rnn_kind_of(c->op);
    const int *order = kind == ARIL__LSTM ? lstm : kind == ARIL__GRU ? gru : plain;
    int gates = (int)aril__rnn_gates(kind);
    int64_t hidden = dims_in(c, RNN_W_HH)[1], rows = gates * hidden;
    aril_dtype dtype = dtype_in(c, RNN_X);
    if (hidden < 0 || !known_in(c, RNN_W_IH)) return ARIL__EXPORT_DECLINED;
    export_value *w[2], *b[2], *bias = NULL;
    for (int k = 0; k < 2; k++) {
        w[k] = reordered(c, aril__export_in(c, RNN_W_IH + k), hidden, gates, order);
        w[k] = aril__export_unsqueeze(c, w[k], 1, first);
        b[k] = reordered(c, parameter(c, RNN_B_IH + k, 1, &rows, 0, dtype), hidden, gates, order);
    }
    if (has(c, RNN_B_IH) || has(c, RNN_B_HH))
        bias = aril__export_unsqueeze(
            c, put(c, "Concat", VALUES(b[0], b[1]), ATTRIBUTES(attr_int("axis", 0))), 1, first);
    export_attr attr[4] = { attr_int("hidden_size", hidden),
                            attr_text("direction", a->reverse[0] ? "reverse" : "forward") };
    int n = 2;
    if (kind == ARIL__GRU) attr[n++] = attr_int("linear_before_reset", 1);
    bool relu = kind == ARIL__RNN && a->relu[0];
    if (relu)
        attr[n++] = (export_attr){ .name = "activations", .kind = EXPORT_TEXTS, .text = "Relu" };
    export_value *y[3];
    aril__export_node(c->graph,
                      kind == ARIL__LSTM  ? "LSTM"
                      : kind == ARIL__GRU ? "GRU"
                                          : "RNN",
                      VALUES(aril__export_in(c, RNN_X), w[0], w[1], bias,
                             has(c, RNN_LEN) ? aril__export_in_as(c, RNN_LEN, ARIL_I32) : NULL,
                             has(c, RNN_H0) ? aril__export_in(c, RNN_H0) : NULL,
                             has(c, RNN_C0) ? aril__export_in(c, RNN_C0) : NULL),
                      (export_attrs){ n, attr }, kind == ARIL__LSTM ? 3 : 2, y);
    c->out[RNN_Y] = aril__export_squeeze(c, y[0], 1, direction);
    c->out[RNN_HN] = y[1];
    if (kind == ARIL__LSTM) c->out[RNN_CN] = y[2];
    return c->model->status;
}

/* ---- rows ---- */

const export_rule aril__export_nn_rules[] = {
    WRITE("matmul", 13, "MatMul", matmul),
    WRITE("linear", 13, "Gemm", linear),
    WRITE("outer_sum", 13, "Gemm", outer_sum),
    { .op = "matmul_integer",
      .from = 13,
      .onnx = "MatMulInteger",
      .write = matmul_integer,
      .takes = aril__export_integer_takes },
    WRITE("softmax", 13, "Softmax", softmax),
    WRITE("log_softmax", 13, "LogSoftmax", softmax),
    WRITE("batch_norm_eval", 13, "BatchNormalization", batch_norm_eval),
    LOWER("batch_norm", batch_norm),
    WRITE("layer_norm", 17, "LayerNormalization", layer_norm_write),
    LOWER("layer_norm", layer_norm),
    WRITE("rms_norm", 23, "RMSNormalization", rms_norm_write),
    LOWER("rms_norm", rms_norm),
    WRITE("group_norm", 21, "GroupNormalization", group_norm_write),
    LOWER("group_norm", group_norm),
    { .op = "local_response_norm",
      .from = 13,
      .onnx = "LRN",
      .write = aril__export_same,
      .takes = is_odd },
    LOWER("attention", attention),
    WRITE("rnn_seq", 13, "RNN", recurrent),
    WRITE("lstm_seq", 13, "LSTM", recurrent),
    WRITE("gru_seq", 13, "GRU", recurrent),
    { .op = NULL },
};
