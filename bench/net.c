#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 16, DEPTH = 8 };

typedef struct built {
    const bench_layer *spec;
    aril_tensor *w[WEIGHTS]; /* owned by the bench_maker; running statistics by the model */
    int n;
    aril_tensor *mean, *var;
    aril_activation activation; /* fused from the next layer */
    bool adds; /* batch norm: also adds the other branch of the residual that ends here */
    bool done; /* fused into the previous layer: skip */
} built;

struct bench_model {
    const bench_net *net;
    bool infer, still;
    double flops, backward;
    aril_module *module; /* the same network as a module, if requested */
    built at[];
};

/* ---- building ---- */

/* A 32-bit hash with full avalanche ("lowbias32"). */
static uint32_t hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

aril_tensor *bench_fill(bench_maker *m, aril_shape shape, double center, double scale)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_empty(shape, ARIL_F32, aril_cpu());
    float *to = aril_data_strided(t);
    int64_t n = aril_numel(t);
    uint32_t first = hash(++m->made);
    for (int64_t i = 0; to && i < n; i++) {
        float u = (float)(hash((uint32_t)i + first) >> 8) * 0x1p-23F - 1.0F;
        to[i] = (float)center + (float)scale * u;
    }
    /* Copy: while the program holds a pointer to a weight, Aril cannot cache a packed form of
     * it. */
    t = m->dtype == ARIL_F32 ? aril_copy(t) : aril_cast(t, m->dtype);
    return aril_escape(aril_to(t, m->device));
}

aril_tensor *bench_param(bench_maker *m, aril_shape shape, double center, double scale)
{
    ARIL_SCOPE;
    aril_tensor **wider = realloc(m->params, sizeof *wider * (size_t)(m->n_params + 1));
    if (!wider) return NULL;
    m->params = wider;
    aril_tensor *t = bench_fill(m, shape, center, scale);
    return m->params[m->n_params++] = m->infer ? aril_keep(t) : aril_parameter(t);
}

static void weight(bench_maker *m, built *b, aril_shape shape, double center, double scale)
{
    b->w[b->n++] = bench_param(m, shape, center, scale);
}

/* Counts a matrix product or convolution: its input has a gradient except in the net's first
 * layer. */
static void count(bench_model *model, double flops)
{
    model->backward += model->flops == 0 ? flops : 2 * flops;
    model->flops += flops;
}

static void make_conv(bench_maker *m, bench_model *model, built *b, aril_shape *s)
{
    int64_t out = (int64_t)b->spec->number[0], k = (int64_t)b->spec->number[1], c = s->dim[1];
    int64_t stride = b->spec->stride ? b->spec->stride : 1;
    weight(m, b, ARIL_SHAPE(out, c, k, k), 0, sqrt(6.0 / (double)(c * k * k)));
    if (!b->spec->nobias) weight(m, b, ARIL_SHAPE(out), 0, 0.1);
    s->dim[1] = out;
    for (int i = 2; i < 4; i++) s->dim[i] = (s->dim[i] + 2 * b->spec->pad - k) / stride + 1;
    count(model, 2.0 * (double)(s->dim[0] * s->dim[2] * s->dim[3] * out * c * k * k));
}

static void make_linear(bench_maker *m, bench_model *model, built *b, aril_shape *s)
{
    int64_t out = (int64_t)b->spec->number[0], in = s->dim[s->ndim - 1], rows = 1;
    weight(m, b, ARIL_SHAPE(out, in), 0, sqrt(6.0 / (double)in));
    if (!b->spec->nobias) weight(m, b, ARIL_SHAPE(out), 0, 0.1);
    for (int i = 0; i < s->ndim - 1; i++) rows *= s->dim[i];
    s->dim[s->ndim - 1] = out;
    count(model, 2.0 * (double)(rows * out * in));
}

static void make_bn(bench_maker *m, built *b, const aril_shape *s)
{
    aril_shape c = ARIL_SHAPE(s->dim[1]);
    weight(m, b, c, 1, 0.2);
    weight(m, b, c, 0, 0.1);
    b->mean = aril_keep(bench_fill(m, c, 0, 0.1));
    b->var = aril_keep(bench_fill(m, c, 1, 0.5));
}

/* x [T,N,I] -> [T,N,H] */
static void make_recurrent(bench_maker *m, bench_model *model, built *b, aril_shape *s)
{
    bool lstm = b->spec->type == BENCH_LSTM;
    int64_t h = (int64_t)b->spec->number[0], in = s->dim[2], gates = lstm ? 4 : 1;
    int layers = lstm ? (int)b->spec->number[1] : 1;
    for (int i = 0; i < layers && b->n + 4 <= WEIGHTS; i++, in = h) {
        double scale = 1 / sqrt((double)h);
        weight(m, b, ARIL_SHAPE(gates * h, in), 0, scale);
        weight(m, b, ARIL_SHAPE(gates * h, h), 0, scale);
        weight(m, b, ARIL_SHAPE(gates * h), 0, scale);
        weight(m, b, ARIL_SHAPE(gates * h), 0, scale);
        double steps = 2.0 * (double)(s->dim[0] * s->dim[1] * gates * h);
        count(model, steps * (double)in);
        count(model, steps * (double)h);
    }
    s->dim[2] = h;
}

static void make_pool(const bench_layer *l, aril_shape *s)
{
    int64_t k = (int64_t)l->number[0], stride = l->stride ? l->stride : k;
    for (int i = 2; i < 4; i++) s->dim[i] = (s->dim[i] + 2 * l->pad - k) / stride + 1;
}

/* Fuses layers into preceding ones: activations into products and norms, and the sum at the end of
 * a residual into a batch norm. */
static void fuse(bench_model *m)
{
    for (int i = 0; i + 1 < m->net->n; i++) {
        built *b = &m->at[i], *next = b + 1;
        bench_layer_type t = b->spec->type;
        if (t != BENCH_CONV && t != BENCH_LINEAR && t != BENCH_BN) continue;
        if (t == BENCH_BN && next->spec->type == BENCH_END) {
            b->adds = next->done = true;
            if (i + 2 == m->net->n) continue;
            next++;
        }
        if (next->spec->type == BENCH_RELU) b->activation = ARIL_RELU;
        if (next->spec->type == BENCH_TANH) b->activation = ARIL_TANH;
        next->done = b->activation != ARIL_NO_ACTIVATION;
    }
}

/* Creates the layer as a module, whose sizes are inferred from the first input. */
static aril_module *module_of(const bench_layer *l, bool still)
{
    int64_t first = (int64_t)l->number[0];
    switch (l->type) {
    case BENCH_CONV:
        return aril_nn_conv2d_with(0, first, (int64_t)l->number[1],
                                   (aril_nn_conv_opts){ .stride = { l->stride },
                                                        .padding = { l->pad },
                                                        .no_bias = l->nobias });
    case BENCH_LINEAR:
        return aril_nn_linear_with(0, first, (aril_nn_linear_opts){ .no_bias = l->nobias });
    case BENCH_BN: return aril_nn_batch_norm2d(0);
    case BENCH_RELU: return aril_nn_relu();
    case BENCH_TANH: return aril_nn_tanh();
    case BENCH_DROPOUT: return aril_nn_dropout(still ? 0 : l->number[0]);
    case BENCH_FLATTEN: return aril_nn_flatten();
    case BENCH_AVGPOOL: return aril_nn_global_avg_pool();
    case BENCH_MAXPOOL:
        return aril_nn_max_pool2d_with(first, (aril_pool_opts){ .stride = { l->stride },
                                                                .padding = { l->pad } });
    default: return NULL; /* not a plain layer */
    }
}

/* Creates a module of all layers that shares the same tensors. */
static aril_module *make_module(const bench_model *model, aril_shape in, const bench_maker *m)
{
    static const char *const names[] = { "weight", "bias" };
    aril_module *all = aril_nn_sequential();
    for (int i = 0; i < model->net->n; i++)
        aril_nn_append(all, module_of(&model->net->layer[i], model->still));
    ARIL_SCOPE;
    aril_module_cast(all, m->dtype);
    aril_module_to(all, m->device);
    aril_module_build_n(all, ARIL_LIST(aril_zeros(in, m->dtype, m->device)));
    for (int i = 0; i < model->net->n; i++) {
        const built *b = &model->at[i];
        for (int k = 0; k < b->n; k++)
            aril_module_share(aril_module_child(all, i), names[k], b->w[k]);
        if (b->mean) aril_module_share(aril_module_child(all, i), "running_mean", b->mean);
        if (b->var) aril_module_share(aril_module_child(all, i), "running_var", b->var);
    }
    if (model->infer) aril_module_eval(all);
    return all;
}

bench_model *bench_model_new(bench_maker *m, const bench_net *net, aril_shape *shape)
{
    bench_model *model = calloc(1, sizeof *model + sizeof *model->at * (size_t)net->n);
    if (!model) return NULL;
    model->net = net;
    model->infer = m->infer;
    model->still = m->still;
    aril_shape before[DEPTH + 1], s = *shape;
    int depth = 0;
    for (int i = 0; i < net->n; i++) {
        built *b = &model->at[i];
        b->spec = &net->layer[i];
        switch (b->spec->type) {
        case BENCH_CONV: make_conv(m, model, b, &s); break;
        case BENCH_LINEAR: make_linear(m, model, b, &s); break;
        case BENCH_BN: make_bn(m, b, &s); break;
        case BENCH_MAXPOOL: make_pool(b->spec, &s); break;
        case BENCH_AVGPOOL: s.dim[2] = s.dim[3] = 1; break;
        case BENCH_FLATTEN:
            while (s.ndim > 2) {
                s.ndim--;
                s.dim[s.ndim - 1] *= s.dim[s.ndim];
            }
            break;
        case BENCH_RNN:
        case BENCH_RNN_LOOP:
        case BENCH_LSTM: make_recurrent(m, model, b, &s); break;
        case BENCH_RESIDUAL: before[depth++] = s; break;
        case BENCH_SHORTCUT: s = before[depth - 1]; break;
        case BENCH_END: depth--; break;
        case BENCH_RELU:
        case BENCH_TANH:
        case BENCH_DROPOUT: break;
        }
    }
    if (m->modules) model->module = make_module(model, *shape, m);
    *shape = s;
    fuse(model);
    return model;
}

/* ---- networks of the zoo ---- */

/* Values that keep a network's results in range, chosen by name and shape; the peers choose the
 * same. Those that are not trained and count something stay as they are. */
static void fill_state(bench_maker *m, aril_tensor *t, const char *name)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    double center = 0, scale = 0.1;
    const char *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    if (strcmp(last, "num_batches_tracked") == 0) return;
    if (aril_ndim(t) > 1) {
        scale = sqrt(6.0 / ((double)aril_numel(t) / (double)aril_size(t, 0)));
    } else if (strcmp(last, "running_var") == 0) {
        center = 1;
        scale = 0.5;
    } else if (strcmp(last, "weight") == 0) {
        center = 1;
        scale = 0.2;
    }
    aril_copy_(t, bench_fill(m, aril_shape_of(t), center, scale));
}

bench_model *bench_model_zoo(bench_maker *m, const char *name, aril_tensor *x)
{
    aril_shape sample = { .ndim = aril_ndim(x) - 1 };
    for (int i = 0; i < sample.ndim; i++) sample.dim[i] = aril_size(x, i + 1);
    aril_module *net =
        aril_zoo_make(name, (aril_zoo_opts){ .input = sample, .no_dropout = m->still });
    bench_model *model = net ? calloc(1, sizeof *model) : NULL;
    const aril_named *state = net ? aril_state(net) : NULL;
    const aril_named *params = net ? aril_parameters(net) : NULL;
    aril_tensor **wider =
        params ? realloc(m->params, sizeof *wider * (size_t)(m->n_params + params->n)) : NULL;
    if (wider) m->params = wider;
    if (!model || !state || !wider) {
        free(model);
        aril_module_release(net);
        return NULL;
    }
    model->module = net;
    model->infer = m->infer;
    aril_module_cast(net, m->dtype);
    aril_module_to(net, m->device);
    for (int i = 0; i < state->n; i++) fill_state(m, state->at[i], state->name[i]);
    for (int i = 0; i < params->n; i++) m->params[m->n_params++] = aril_keep(params->at[i]);
    if (m->infer) aril_module_eval(net);
    ARIL_SCOPE;
    aril_cost cost = { 0 };
    aril_module_cost(net, ARIL_LIST(aril_slice(x, 0, 0, 1, 1)), &cost);
    model->flops = cost.flop * (double)aril_size(x, 0);
    model->backward = 2 * model->flops;
    return model;
}

void bench_model_free(bench_model *m)
{
    for (int i = 0; m && m->net && i < m->net->n; i++) {
        aril_release(m->at[i].mean);
        aril_release(m->at[i].var);
    }
    if (m) aril_module_release(m->module);
    free(m);
}

double bench_model_flops(const bench_model *m)
{
    return m->flops;
}

double bench_model_backward_flops(const bench_model *m)
{
    return m->backward;
}

/* ---- running ---- */

static aril_tensor *conv(const built *b, aril_tensor *x)
{
    const bench_layer *l = b->spec;
    aril_conv_opts opts = { .stride = { l->stride },
                            .padding = { l->pad, l->pad },
                            .activation = b->activation };
    return aril_conv2d(x, b->w[0], b->w[1], opts);
}

static aril_tensor *recurrent(const built *b, aril_tensor *x)
{
    aril_list weights = { b->n, b->w };
    if (b->spec->type == BENCH_RNN) return aril_rnn(x, NULL, weights, (aril_rnn_opts){ 0 }, NULL);
    aril_rnn_opts opts = { .layers = b->n / 4 };
    return aril_lstm(x, NULL, NULL, weights, opts, NULL, NULL);
}

/* What aril_rnn computes, as users write it who need something else in the loop. */
static aril_tensor *rnn_loop(const built *b, aril_tensor *x)
{
    enum { STEPS = 1024 };
    aril_tensor *h[STEPS];
    int64_t n = aril_size(x, 0);
    if (n > STEPS) return NULL;
    aril_tensor *in = aril_linear(x, b->w[0], aril_add(b->w[2], b->w[3]));
    for (int64_t t = 0; t < n; t++) {
        aril_tensor *step = aril_select(in, 0, t);
        if (t) step = aril_add(step, aril_linear(h[t - 1], b->w[1], NULL));
        h[t] = aril_tanh(step);
    }
    return aril_stack((aril_list){ (int)n, h }, 0);
}

/* In inference the convolution's output is not needed again: normalize it in place. */
static aril_tensor *batch_norm(const bench_model *m, const built *b, aril_tensor *x,
                               aril_tensor *residual)
{
    bool owned = m->infer && b > m->at && b[-1].spec->type == BENCH_CONV;
    aril_batch_norm_opts opts = { .eval = m->infer,
                                  .residual = b->adds ? residual : NULL,
                                  .activation = b->activation };
    return (owned ? aril_batch_norm_ : aril_batch_norm)(x, b->w[0], b->w[1], b->mean, b->var, opts);
}

/* Applies a layer to x; `residual` is the other branch if one is open. */
static aril_tensor *apply(const bench_model *m, const built *b, aril_tensor *x,
                          aril_tensor *residual)
{
    ARIL_SCOPE;
    const bench_layer *l = b->spec;
    aril_tensor *y = x;
    switch (l->type) {
    case BENCH_CONV: y = conv(b, x); break;
    case BENCH_LINEAR:
        y = aril_linear_with(x, b->w[0], b->w[1],
                             (aril_linear_opts){ .activation = b->activation });
        break;
    case BENCH_BN: y = batch_norm(m, b, x, residual); break;
    case BENCH_RELU: y = aril_relu(x); break;
    case BENCH_TANH: y = aril_tanh(x); break;
    case BENCH_DROPOUT:
        y = aril_dropout(x, l->number[0], (aril_dropout_opts){ .eval = m->infer || m->still });
        break;
    case BENCH_FLATTEN: y = aril_flatten(x, 1, -1); break;
    case BENCH_AVGPOOL: y = aril_global_avg_pool(x); break;
    case BENCH_MAXPOOL:
        y = aril_max_pool2d(x,
                            (aril_pool_opts){ .kernel = { (int64_t)l->number[0] },
                                              .stride = { l->stride },
                                              .padding = { l->pad, l->pad } },
                            NULL);
        break;
    case BENCH_RNN:
    case BENCH_LSTM: y = recurrent(b, x); break;
    case BENCH_RNN_LOOP: y = rnn_loop(b, x); break;
    case BENCH_RESIDUAL:
    case BENCH_SHORTCUT:
    case BENCH_END: break;
    }
    return aril_escape(y);
}

/* Each value is dropped as soon as the next exists, unless a residual still needs it. */
aril_tensor *bench_model_forward(bench_model *m, aril_tensor *x)
{
    if (m->module) return aril_forward(m->module, x);
    ARIL_SCOPE;
    aril_tensor *input[DEPTH + 1], *branch[DEPTH + 1], *y = x;
    int depth = 0;
    for (int i = 0; i < m->net->n; i++) {
        aril_tensor *before = y, *other = NULL;
        if (depth) other = branch[depth - 1] ? branch[depth - 1] : input[depth - 1];
        switch (m->net->layer[i].type) {
        case BENCH_RESIDUAL:
            input[depth] = y;
            branch[depth++] = NULL;
            break;
        case BENCH_SHORTCUT:
            branch[depth - 1] = y;
            y = input[depth - 1];
            break;
        case BENCH_END:
            depth--;
            if (!m->at[i].done) y = aril_add(other, before);
            if (y != before && before != input[depth]) aril_drop(before);
            if (branch[depth]) aril_drop(branch[depth]);
            if (depth == 0 || input[depth] != input[depth - 1]) aril_drop(input[depth]);
            break;
        default:
            if (!m->at[i].done) y = apply(m, &m->at[i], before, other);
            if (y != before && (depth == 0 || before != input[depth - 1])) aril_drop(before);
        }
    }
    return aril_escape(y);
}
