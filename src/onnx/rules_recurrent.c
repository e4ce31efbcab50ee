/* RNN, GRU and LSTM, step by step: with any activations, peepholes, clipping and lengths. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <strings.h>

/* ---- activations ---- */

typedef struct activation {
    const char *name;
    double alpha, beta;
    bool has_alpha, has_beta;
} activation;

static double or_else(bool has, double given_, double otherwise)
{
    return has ? given_ : otherwise;
}

static aril_tensor *activate(const activation *f, aril_tensor *x)
{
    const char *n = f->name;
    if (strcasecmp(n, "Sigmoid") == 0) return aril_sigmoid(x);
    if (strcasecmp(n, "Tanh") == 0) return aril_tanh(x);
    if (strcasecmp(n, "Relu") == 0) return aril_relu(x);
    if (strcasecmp(n, "Affine") == 0)
        return aril_add_scalar(aril_mul_scalar(x, or_else(f->has_alpha, f->alpha, 1)),
                               or_else(f->has_beta, f->beta, 0));
    if (strcasecmp(n, "LeakyRelu") == 0)
        return aril_leaky_relu(x, or_else(f->has_alpha, f->alpha, 0.01));
    if (strcasecmp(n, "ThresholdedRelu") == 0)
        return aril_threshold(x, or_else(f->has_alpha, f->alpha, 1), 0);
    if (strcasecmp(n, "ScaledTanh") == 0)
        return aril_mul_scalar(aril_tanh(aril_mul_scalar(x, or_else(f->has_beta, f->beta, 1))),
                               or_else(f->has_alpha, f->alpha, 1));
    if (strcasecmp(n, "HardSigmoid") == 0)
        return aril_clamp(aril_add_scalar(aril_mul_scalar(x, or_else(f->has_alpha, f->alpha, 0.2)),
                                          or_else(f->has_beta, f->beta, 0.5)),
                          0.0, 1.0);
    if (strcasecmp(n, "Elu") == 0) return aril_elu(x, or_else(f->has_alpha, f->alpha, 1));
    if (strcasecmp(n, "Softsign") == 0) return aril_softsign(x);
    if (strcasecmp(n, "Softplus") == 0) return aril_softplus(x, 1, 20);
    return NULL;
}

/* ---- the layer ---- */

enum { MAX_ACTIVATIONS = 6 };

typedef struct layer {
    int gates;     /* 1, 3 or 4 */
    int functions; /* activations of a direction */
    int64_t steps, batch, hidden;
    aril_tensor *x;             /* [T,N,I] */
    aril_tensor *lengths;       /* [N] i64, or NULL */
    aril_tensor *w, *r, *b, *p; /* of all directions */
    activation f[MAX_ACTIVATIONS];
    double clip;
    bool input_forget, linear_before_reset;
} layer;

/* One direction: its weights, state and activations. */
typedef struct direction {
    const layer *l;
    const activation *f;
    aril_tensor *r, *rb, *p; /* recurrent weights [G*H,H], bias or NULL, peepholes or NULL */
    aril_tensor *h, *c;
} direction;

static aril_tensor *clipped(const layer *l, aril_tensor *x)
{
    return l->clip > 0 ? aril_clamp(x, -l->clip, l->clip) : x;
}

/* Gate i of [N,G*H]. */
static aril_tensor *gate(const layer *l, aril_tensor *x, int i)
{
    return aril_narrow(x, -1, i * l->hidden, l->hidden);
}

static aril_tensor *with_peephole(const direction *d, aril_tensor *x, int i, aril_tensor *c)
{
    return d->p ? aril_add(x, aril_mul(gate(d->l, d->p, i), c)) : x;
}

/* x: the input's share of the gates, [N,G*H], with its bias. */
static void rnn_step(direction *d, aril_tensor *x)
{
    d->h = activate(&d->f[0], clipped(d->l, aril_add(x, aril_linear(d->h, d->r, d->rb))));
}

/* Gates i o f c. */
static void lstm_step(direction *d, aril_tensor *x)
{
    const layer *l = d->l;
    aril_tensor *all = aril_add(x, aril_linear(d->h, d->r, d->rb)), *c = d->c;
    aril_tensor *i = activate(&d->f[0], clipped(l, with_peephole(d, gate(l, all, 0), 0, c)));
    aril_tensor *f = l->input_forget
                         ? aril_rsub_scalar(i, 1)
                         : activate(&d->f[0], clipped(l, with_peephole(d, gate(l, all, 2), 2, c)));
    aril_tensor *g = activate(&d->f[1], clipped(l, gate(l, all, 3)));
    d->c = aril_add(aril_mul(f, c), aril_mul(i, g));
    aril_tensor *o = activate(&d->f[0], clipped(l, with_peephole(d, gate(l, all, 1), 1, d->c)));
    d->h = aril_mul(o, activate(&d->f[2], d->c));
}

/* Gates z r h. */
static void gru_step(direction *d, aril_tensor *x)
{
    const layer *l = d->l;
    int64_t n = l->hidden;
    aril_tensor *both = aril_linear(d->h, aril_narrow(d->r, 0, 0, 2 * n),
                                    d->rb ? aril_narrow(d->rb, 0, 0, 2 * n) : NULL);
    both = activate(&d->f[0], clipped(l, aril_add(aril_narrow(x, -1, 0, 2 * n), both)));
    aril_tensor *z = gate(l, both, 0), *r = gate(l, both, 1);
    aril_tensor *w = aril_narrow(d->r, 0, 2 * n, n),
                *b = d->rb ? aril_narrow(d->rb, 0, 2 * n, n) : NULL;
    aril_tensor *part = l->linear_before_reset ? aril_mul(r, aril_linear(d->h, w, b))
                                               : aril_linear(aril_mul(r, d->h), w, b);
    aril_tensor *h = activate(&d->f[1], clipped(l, aril_add(gate(l, x, 2), part)));
    d->h = aril_add(aril_mul(aril_rsub_scalar(z, 1), h), aril_mul(z, d->h));
}

/* Each sequence in reverse, up to its length. */
static aril_tensor *reversed(onnx_call *c, const layer *l, aril_tensor *x)
{
    if (!l->lengths) return aril_flip(x, ARIL_AXES(0));
    aril_tensor *t = aril_unsqueeze(aril_arange(0, l->steps, 1, ARIL_I64, aril__onnx_device(c)), 1);
    aril_tensor *n = aril_unsqueeze(l->lengths, 0);
    aril_tensor *from =
        aril_where(aril_lt(t, n), aril_sub(aril_sub_scalar(n, 1), t), t); /* [T,N] */
    from = aril_contiguous(aril_expand(aril_unsqueeze(from, 2), aril_shape_of(x)));
    return aril_gather(x, from, 0);
}

static aril_tensor *chosen(aril_tensor *there, aril_tensor *now, aril_tensor *before)
{
    return there ? aril_where(there, now, before) : now;
}

static aril_status run_direction(onnx_call *c, const layer *l, int k, bool reverse, aril_tensor *h0,
                                 aril_tensor *c0, aril_tensor **y, aril_tensor **h,
                                 aril_tensor **cell)
{
    aril_tensor *w = aril_select(l->w, 0, k), *bias = l->b ? aril_select(l->b, 0, k) : NULL;
    int64_t rows = l->gates * l->hidden;
    direction d = { .l = l,
                    .f = l->f + k * l->functions,
                    .r = aril_select(l->r, 0, k),
                    .rb = bias ? aril_narrow(bias, 0, rows, rows) : NULL,
                    .p = l->p ? aril_select(l->p, 0, k) : NULL,
                    .h = aril_select(h0, 0, k),
                    .c = c0 ? aril_select(c0, 0, k) : NULL };
    aril_tensor *xs = aril_linear(reverse ? reversed(c, l, l->x) : l->x, w,
                                  bias ? aril_narrow(bias, 0, 0, rows) : NULL);
    aril_tensor **out = aril__onnx_alloc(&c->run->arena, (size_t)l->steps + 1, sizeof *out);
    if (!out) return ARIL_ERR_MEMORY;
    for (int64_t t = 0; t < l->steps; t++) {
        aril_tensor *before = d.h, *c_before = d.c, *x = aril_select(xs, 0, t), *there = NULL;
        if (l->lengths) there = aril_unsqueeze(aril_gt_scalar(l->lengths, t), 1); /* [N,1] */
        if (l->gates == 1) rnn_step(&d, x);
        if (l->gates == 3) gru_step(&d, x);
        if (l->gates == 4) lstm_step(&d, x);
        out[t] = chosen(there, d.h, aril_zeros_like(d.h));
        d.h = chosen(there, d.h, before);
        if (d.c) d.c = chosen(there, d.c, c_before);
    }
    aril_tensor *all = l->steps ? aril_stack((aril_list){ (int)l->steps, out }, 0)
                                : aril_zeros(ARIL_SHAPE(0, l->batch, l->hidden),
                                             aril_dtype_of(l->x), aril__onnx_device(c));
    *y = reverse && l->steps ? reversed(c, l, all) : all;
    *h = d.h;
    *cell = d.c;
    return ARIL_OK;
}

/* Names and parameters of activations, in the order of directions. */
static aril_status read_activations(onnx_call *c, layer *l, int directions)
{
    static const char *const standard[] = { "Sigmoid", "Tanh", "Tanh" };
    const aril__message *names = aril__onnx_attribute(c, "activations");
    onnx_floats alpha = aril__onnx_attr_floats(c, "activation_alpha"),
                beta = aril__onnx_attr_floats(c, "activation_beta");
    int next_alpha = 0, next_beta = 0;
    for (int i = 0; i < l->functions * directions; i++) {
        activation *f = &l->f[i];
        f->name = l->gates == 1 ? "Tanh" : standard[i % l->functions];
        if (names && (size_t)i < aril__message_count(names, "strings")) {
            aril__slice s = aril__message_bytes_at(names, "strings", (size_t)i);
            char *copy = aril__onnx_alloc(&c->run->arena, s.n + 1, 1);
            if (!copy) return ARIL_ERR_MEMORY;
            f->name = memcpy(copy, s.at, s.n);
        }
        /* Only some activations take parameters: the lists have no entries for the others. */
        static const char *const one[] = { "Affine",     "LeakyRelu",   "ThresholdedRelu",
                                           "ScaledTanh", "HardSigmoid", "Elu" };
        static const char *const two[] = { "Affine", "ScaledTanh", "HardSigmoid" };
        for (int k = 0; k < 6 && !f->has_alpha; k++)
            if (strcasecmp(f->name, one[k]) == 0 && next_alpha < alpha.n) {
                f->alpha = alpha.at[next_alpha++];
                f->has_alpha = true;
            }
        for (int k = 0; k < 3 && !f->has_beta; k++)
            if (strcasecmp(f->name, two[k]) == 0 && next_beta < beta.n) {
                f->beta = beta.at[next_beta++];
                f->has_beta = true;
            }
        ARIL_SCOPE;
        if (!activate(f, aril_zeros(ARIL_SHAPE(1), ARIL_F32, aril_cpu())))
            return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "activation %s", f->name);
    }
    return ARIL_OK;
}

static aril_tensor *swap_first(aril_tensor *x)
{
    return x ? aril_transpose(x, 0, 1) : NULL;
}

/* ---- by one op, where PyTorch's layers compute the same ---- */

/* Rows of gates in PyTorch's order: i f g o of i o f g, and r z n of z r n. */
static aril_tensor *reordered(const layer *l, aril_tensor *x, int from)
{
    static const int order[2][4] = { { 0, 2, 3, 1 }, { 1, 0, 2 } };
    aril_tensor *part[4];
    if (l->gates == 1) return aril_narrow(x, 0, from, l->hidden);
    for (int i = 0; i < l->gates; i++)
        part[i] = aril_narrow(x, 0, from + order[l->gates == 3][i] * l->hidden, l->hidden);
    return aril_cat((aril_list){ l->gates, part }, 0);
}

static bool is_standard(onnx_call *c, const layer *l)
{
    return !l->lengths && !l->p && !l->input_forget && l->clip == 0 && l->steps != 0 &&
           !has_attr(c, "activations") && (l->gates != 3 || l->linear_before_reset);
}

/* w_ih, w_hh, b_ih, b_hh of each direction; of initializers, computed once. */
static void standard_weights(onnx_call *c, const layer *l, int directions, aril_tensor **to)
{
    bool known = c->in[1].known && c->in[2].known && (!l->b || c->in[3].known);
    int64_t rows = l->gates * l->hidden;
    aril__pause pause = { 0 };
    if (known) pause = aril__onnx_pause(c);
    for (int k = 0; k < directions; k++) {
        aril_tensor *b = l->b ? aril_select(l->b, 0, k) : NULL;
        to[4 * k] = reordered(l, aril_select(l->w, 0, k), 0);
        to[4 * k + 1] = reordered(l, aril_select(l->r, 0, k), 0);
        to[4 * k + 2] = b ? reordered(l, b, 0) : NULL;
        to[4 * k + 3] = b ? reordered(l, b, (int)rows) : NULL;
        for (int i = 0; i < 4 && known; i++)
            if (to[4 * k + i]) to[4 * k + i] = aril_contiguous(to[4 * k + i]);
    }
    if (known) aril__onnx_resume(c, pause);
}

/* The results as run_direction gives them: y [T,D,N,H], and last states [D,N,H]. */
static void run_standard(onnx_call *c, const layer *l, int directions, bool reverse,
                         aril_tensor *h0, aril_tensor *c0, aril_tensor **y, aril_tensor **h,
                         aril_tensor **cell)
{
    aril_tensor *w[8], *x = reverse ? aril_flip(l->x, ARIL_AXES(0)) : l->x;
    aril_list weights = { 4 * directions, w };
    aril_rnn_opts o = { .bidirectional = directions == 2, .eval = true };
    standard_weights(c, l, directions, w);
    *cell = NULL;
    *y = l->gates == 4   ? aril_lstm(x, h0, c0, weights, o, h, cell)
         : l->gates == 3 ? aril_gru(x, h0, weights, o, h)
                         : aril_rnn(x, h0, weights, o, h);
    if (reverse) *y = aril_flip(*y, ARIL_AXES(0));
    aril_shape to = ARIL_SHAPE(l->steps, l->batch, directions, l->hidden);
    *y = aril_permute(aril_reshape(*y, to), ARIL_AXES(0, 2, 1, 3));
}

static aril_status give_results(onnx_call *c, aril_tensor *y, aril_tensor *h, aril_tensor *cell,
                                bool batch_first)
{
    if (batch_first) {
        y = aril_permute(y, ARIL_AXES(2, 0, 1, 3));
        h = swap_first(h);
        cell = swap_first(cell);
    }
    aril_status s = give(c, 0, y);
    if (s == ARIL_OK) s = give(c, 1, h);
    return s == ARIL_OK && cell ? give(c, 2, cell) : s;
}

static aril_status recurrent(onnx_call *c, int gates)
{
    bool batch_first = aril__onnx_attr_int(c, "layout", 0) != 0, lstm = gates == 4;
    const char *way = aril__onnx_attr_text(c, "direction", "forward");
    int directions = strcmp(way, "bidirectional") == 0 ? 2 : 1;
    layer l = { .gates = gates,
                .functions = gates == 4   ? 3
                             : gates == 3 ? 2
                                          : 1,
                .x = in(c, 0),
                .w = in(c, 1),
                .r = in(c, 2),
                .b = in(c, 3),
                .lengths = in(c, 4),
                .p = lstm ? in(c, 7) : NULL,
                .clip = aril__onnx_attr_float(c, "clip", 0),
                .input_forget = aril__onnx_attr_int(c, "input_forget", 0) != 0,
                .linear_before_reset = aril__onnx_attr_int(c, "linear_before_reset", 0) != 0 };
    bool fits = aril_ndim(l.x) == 3 && aril_ndim(l.w) == 3 && aril_ndim(l.r) == 3;
    aril_status s = fits ? aril__onnx_known_sizes(c, l.w, 0) : ARIL_OK;
    if (s == ARIL_OK && fits) s = aril__onnx_known_sizes(c, l.r, 0);
    if (s < 0) return s;
    if (!fits || aril_size(l.w, 0) != directions)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "input and weights must have 3 dimensions, for %d directions",
                               directions);
    int64_t hidden = aril__onnx_attr_int(c, "hidden_size", aril_size(l.r, 2)),
            layout = aril__onnx_attr_int(c, "layout", 0);
    if (aril_size(l.r, 2) >= 0 && hidden != aril_size(l.r, 2))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "hidden_size is %" PRId64 ", the weights are for %" PRId64, hidden,
                               aril_size(l.r, 2));
    if (layout != 0 && layout != 1)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "layout %" PRId64 ", expected 0 or 1", layout);
    if (batch_first) l.x = swap_first(l.x);
    l.steps = aril_size(l.x, 0);
    l.batch = aril_size(l.x, 1);
    l.hidden = aril_size(l.r, 2);
    if (l.lengths) l.lengths = aril_cast(l.lengths, ARIL_I64);
    s = read_activations(c, &l, directions);
    if (s < 0) return s;
    aril_tensor *h0 = in(c, 5), *c0 = lstm ? in(c, 6) : NULL, *y[2], *h[2], *cell[2];
    if (batch_first) h0 = swap_first(h0), c0 = swap_first(c0);
    aril_tensor *zeros = aril_zeros(ARIL_SHAPE(directions, l.batch, l.hidden), aril_dtype_of(l.x),
                                    aril__onnx_device(c));
    if (!h0) h0 = zeros;
    if (lstm && !c0) c0 = zeros;
    if (is_standard(c, &l)) {
        run_standard(c, &l, directions, strcmp(way, "reverse") == 0, h0, c0, &y[0], &h[0],
                     &cell[0]);
        return give_results(c, y[0], h[0], cell[0], batch_first);
    }
    if (l.steps < 0) return aril__onnx_open_error(c); /* they are unrolled */
    for (int k = 0; k < directions && s == ARIL_OK; k++)
        s = run_direction(c, &l, k, k == 1 || strcmp(way, "reverse") == 0, h0, c0, &y[k], &h[k],
                          &cell[k]);
    if (s < 0) return s;
    return give_results(c, aril_stack((aril_list){ directions, y }, 1),
                        aril_stack((aril_list){ directions, h }, 0),
                        lstm ? aril_stack((aril_list){ directions, cell }, 0) : NULL, batch_first);
}

static aril_status rnn(onnx_call *c)
{
    return recurrent(c, 1);
}

static aril_status gru(onnx_call *c)
{
    return recurrent(c, 3);
}

static aril_status lstm(onnx_call *c)
{
    return recurrent(c, 4);
}

const onnx_rule aril__onnx_recurrent_rules[] = {
    RULE("RNN", 1, rnn),
    RULE("GRU", 1, gru),
    RULE("LSTM", 1, lstm),
    { 0 },
};
