/* Multi-head attention. */
#include "aril/init.h"
#include "aril/nn_sequence.h"
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "core/error.h"
#include "nn/module.h"
#include "nn/sequence.h"

#include <math.h>

typedef struct attention {
    int64_t embed, heads;
    aril_nn_attention_opts opts;
    bool split; /* separate projection weights for queries, keys, values */
    aril_module *out_proj;
} attention;

enum { Q, K, V };

aril_module *aril__add_late(aril_module *m, const char *name, aril_module *child)
{
    if (!aril_module_add(m, name, child)) return NULL;
    if (m->training)
        aril_module_train(child);
    else
        aril_module_eval(child);
    bool moved = m->dtype == ARIL_F32 || aril_module_cast(child, m->dtype) == ARIL_OK;
    return moved && aril_module_to(child, m->device) == ARIL_OK ? child : NULL;
}

/* ---- parameters ---- */

/* Children are initialized first: Linear draws the bias of out_proj, here it is set to 0. */
static void reset_attention(aril_module *self)
{
    const attention *a = aril_module_data(self);
    for (int i = 0; i < self->n_own; i++) {
        aril_tensor *t = aril__own_at(self, i);
        if (t && aril_ndim(t) == 2)
            aril_init_xavier_uniform(t, 1);
        else
            aril__fill_number(t, 0);
    }
    if (a->out_proj && !a->opts.no_bias) aril__fill_number(aril__own_at(a->out_proj, 1), 0);
}

static aril_status add_attention(aril_module *self)
{
    attention *a = aril_module_data(self);
    int64_t e = a->embed;
    aril_status s = ARIL_OK;
    if (e % a->heads != 0)
        return aril__fail(ARIL_ERR_ARG, "MultiheadAttention: %lld heads do not divide %lld values",
                          (long long)a->heads, (long long)e);
    if (!a->opts.kdim) a->opts.kdim = e;
    if (!a->opts.vdim) a->opts.vdim = e;
    a->split = a->opts.kdim != e || a->opts.vdim != e;
    if (a->split) {
        s = aril__add_parameter(self, "q_proj_weight", ARIL_SHAPE(e, e));
        if (s == ARIL_OK)
            s = aril__add_parameter(self, "k_proj_weight", ARIL_SHAPE(e, a->opts.kdim));
        if (s == ARIL_OK)
            s = aril__add_parameter(self, "v_proj_weight", ARIL_SHAPE(e, a->opts.vdim));
    } else {
        s = aril__add_parameter(self, "in_proj_weight", ARIL_SHAPE(3 * e, e));
    }
    if (s == ARIL_OK)
        s = aril__add_optional(self, "in_proj_bias", ARIL_SHAPE(3 * e), a->opts.no_bias);
    if (s < 0) return s;
    a->out_proj = aril__add_late(
        self, "out_proj",
        aril_nn_linear_with(e, e, (aril_nn_linear_opts){ .no_bias = a->opts.no_bias }));
    if (!a->out_proj) return ARIL_ERR_MEMORY;
    reset_attention(self);
    self->ready = true;
    return ARIL_OK;
}

static aril_status build_attention(aril_module *self, int n_in, aril_tensor *const *in)
{
    attention *a = aril_module_data(self);
    if (a->out_proj) return ARIL_OK;
    aril_status s = a->embed ? ARIL_OK : aril__input_size(in[0], -1, &a->embed);
    (void)n_in;
    return s < 0 ? s : add_attention(self);
}

/* ---- masks ---- */

/* A mask in the two forms that can be applied to scores. */
typedef struct mask {
    aril_tensor *hidden; /* bool: true where a key is masked out */
    aril_tensor *added;  /* float: added to the scores */
} mask;

static void mask_with(mask *m, aril_tensor *t)
{
    aril_tensor **into = aril_dtype_of(t) == ARIL_BOOL ? &m->hidden : &m->added;
    if (!*into)
        *into = t;
    else
        *into = into == &m->hidden ? aril_logical_or(*into, t) : aril_add(*into, t);
}

/* Combines the masks for scores [N,H,L,S]; false after an error. */
static bool combine_masks(const attention *a, bool alone, int n_in, aril_tensor *const *in,
                          const int64_t size[4], mask *m)
{
    aril_tensor *keys = n_in > 3 ? in[3] : NULL, *pairs = n_in > 4 ? in[4] : NULL;
    int64_t n = size[0], h = size[1], l = size[2], s = size[3];
    char text[ARIL__SHAPE_TEXT];
    if (keys) {
        bool fits = alone ? aril_ndim(keys) == 1
                          : aril_ndim(keys) == 2 && aril__size_fits(aril_size(keys, 0), n);
        if (!fits || !aril__size_fits(aril_size(keys, -1), s)) {
            char want[ARIL__SHAPE_TEXT];
            aril__fail(ARIL_ERR_SHAPE, "expected a key mask [%s%s, one for each key, got %s",
                       alone ? "" : "N,", aril__shape_text(want, 1, &s) + 1,
                       aril__text(text, keys));
            return false;
        }
        mask_with(m, aril_reshape(keys, ARIL_SHAPE(n, 1, 1, s)));
    }
    if (pairs) {
        int64_t of = aril_ndim(pairs) == 3 ? aril_size(pairs, 0) : 1;
        bool fits = aril_ndim(pairs) == 2 ||
                    (aril_ndim(pairs) == 3 && (n < 0 || aril__size_fits(of, n * h)));
        if (!fits || !aril__size_fits(aril_size(pairs, -2), l) ||
            !aril__size_fits(aril_size(pairs, -1), s)) {
            char two[ARIL__SHAPE_TEXT], three[ARIL__SHAPE_TEXT];
            aril__fail(ARIL_ERR_SHAPE, "expected an attention mask %s or %s, got %s",
                       aril__shape_text(two, 2, (int64_t[]){ l, s }),
                       aril__shape_text(three, 3, (int64_t[]){ n < 0 ? -1 : n * h, l, s }),
                       aril__text(text, pairs));
            return false;
        }
        if (aril_ndim(pairs) == 3) pairs = aril_reshape(pairs, ARIL_SHAPE(n, h, l, s));
        mask_with(m, pairs);
    }
    if (a->opts.causal && (m->hidden || m->added)) {
        aril_tensor *ones = aril_ones(ARIL_SHAPE(l, s), ARIL_BOOL, aril_device_of(in[0]));
        mask_with(m, aril_triu(ones, 1));
    }
    return true;
}

/* ---- forward ---- */

/* Applies the weight and bias that produce the queries, keys or values. */
static aril_tensor *project(const aril_module *self, const attention *a, aril_tensor *x, int which)
{
    int64_t e = a->embed;
    aril_tensor *w =
        a->split ? aril__own_at(self, which) : aril_narrow(aril__own_at(self, 0), 0, which * e, e);
    aril_tensor *b = aril__own_at(self, a->split ? 3 : 1);
    return aril_linear(x, w, b ? aril_narrow(b, 0, which * e, e) : NULL);
}

/* Reshapes [L,N,E] (or [N,L,E]) to [N,H,L,E/H]. */
static aril_tensor *heads_of(const attention *a, aril_tensor *x)
{
    x = aril_reshape(x,
                     ARIL_SHAPE(aril_size(x, 0), aril_size(x, 1), a->heads, a->embed / a->heads));
    return a->opts.batch_first ? aril_permute(x, ARIL_AXES(0, 2, 1, 3))
                               : aril_permute(x, ARIL_AXES(1, 2, 0, 3));
}

/* Queries, keys and values [N,H,L,E/H]; a single matrix product when all come from one input. */
static void project_all(const aril_module *self, const attention *a, aril_tensor *const *x,
                        aril_tensor **out)
{
    if (!a->split && x[Q] == x[K] && x[K] == x[V]) {
        aril_tensor *all = aril_linear(x[Q], aril__own_at(self, 0), aril__own_at(self, 1));
        for (int i = Q; i <= V; i++)
            out[i] = heads_of(a, aril_narrow(all, -1, i * a->embed, a->embed));
        return;
    }
    for (int i = Q; i <= V; i++) out[i] = heads_of(a, project(self, a, x[i], i));
}

/* softmax(q k^T / sqrt(E) + mask): [N,H,L,S]. A row whose keys are all masked is 0. */
static aril_tensor *weights_of(const attention *a, aril_tensor *q, aril_tensor *k, mask m)
{
    double scale = 1 / sqrt((double)(a->embed / a->heads));
    aril_tensor *scores = aril_matmul(aril_mul_scalar(q, scale), aril_transpose(k, -1, -2));
    if (a->opts.causal && !m.hidden) {
        aril_tensor *ones =
            aril_ones(ARIL_SHAPE(aril_size(q, 2), aril_size(k, 2)), ARIL_BOOL, aril_device_of(q));
        m.hidden = aril_triu(ones, 1);
    }
    if (m.added) scores = aril_add(scores, m.added);
    if (m.hidden) scores = aril_masked_fill_scalar(scores, m.hidden, -INFINITY);
    if (!m.added && !m.hidden) return aril_softmax(scores, -1);
    aril_tensor *blind = aril_eq_scalar(aril_amax(scores, ARIL_KEEPDIM(-1)), -INFINITY);
    scores = aril_masked_fill_scalar(scores, blind, 0.0);
    return aril_masked_fill_scalar(aril_softmax(scores, -1), blind, 0.0);
}

/* True when the input shapes match each other; otherwise reports which do not. */
static bool check_inputs(const attention *a, aril_tensor *const *x)
{
    static const char *const names[] = { "queries", "keys", "values" };
    const int64_t last[] = { a->embed, a->opts.kdim, a->opts.vdim };
    char text[ARIL__SHAPE_TEXT], other[ARIL__SHAPE_TEXT];
    for (int i = Q; i <= V; i++) {
        int n = aril_ndim(x[i]);
        if ((n == 2 || n == 3) && n == aril_ndim(x[Q]) &&
            aril__size_fits(aril_size(x[i], -1), last[i]))
            continue;
        aril__fail(ARIL_ERR_SHAPE, "expected %s [%s%lld], got %s", names[i],
                   aril_ndim(x[Q]) == 2  ? "L,"
                   : a->opts.batch_first ? "N,L,"
                                         : "L,N,",
                   (long long)last[i], aril__text(text, x[i]));
        return false;
    }
    int batch = a->opts.batch_first ? 0 : 1;
    if (aril_ndim(x[Q]) == 3 && !aril__size_fits(aril_size(x[Q], batch), aril_size(x[K], batch))) {
        aril__fail(ARIL_ERR_SHAPE, "queries %s and keys %s have different batch sizes",
                   aril__text(text, x[Q]), aril__text(other, x[K]));
        return false;
    }
    for (int d = 0; d < aril_ndim(x[K]) - 1; d++) {
        if (aril__size_fits(aril_size(x[K], d), aril_size(x[V], d))) continue;
        aril__fail(ARIL_ERR_SHAPE, "values %s and keys %s differ in number", aril__text(text, x[V]),
                   aril__text(other, x[K]));
        return false;
    }
    return true;
}

static void run_attention(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                          aril_tensor **out)
{
    const attention *a = aril_module_data(self);
    aril_tensor *x[3] = { in[0], in[0], NULL }, *part[3];
    if (n_in > 1 && in[1]) x[K] = in[1];
    x[V] = n_in > 2 && in[2] ? in[2] : x[K];
    if (!check_inputs(a, x)) {
        out[0] = aril__poison();
        return;
    }
    bool alone = aril_ndim(x[Q]) == 2; /* unbatched */
    if (alone) {
        int axis = a->opts.batch_first ? 0 : 1;
        aril_tensor *q = aril_unsqueeze(x[Q], axis);
        aril_tensor *k = x[K] == x[Q] ? q : aril_unsqueeze(x[K], axis);
        x[V] = x[V] == x[K] ? k : aril_unsqueeze(x[V], axis);
        x[Q] = q;
        x[K] = k;
    }
    project_all(self, a, x, part);
    const int64_t size[4] = { aril_size(part[Q], 0), a->heads, aril_size(part[Q], 2),
                              aril_size(part[K], 2) };
    mask m = { NULL, NULL };
    if (!combine_masks(a, alone, n_in, in, size, &m)) {
        out[0] = aril__poison();
        return;
    }
    double dropout = aril__is_training(self) ? a->opts.dropout : 0;
    aril_tensor *y;
    if (n_out > 1) {
        aril_tensor *w = weights_of(a, part[Q], part[K], m); /* [N,H,L,S] */
        if (dropout != 0) w = aril_dropout(w, dropout, (aril_dropout_opts){ 0 });
        y = aril_matmul(w, part[V]);
        out[1] = a->opts.per_head ? w : aril_mean(w, ARIL_AXES(1));
        if (alone) out[1] = aril_select(out[1], 0, 0);
    } else {
        aril_attention_opts opts = { .causal = a->opts.causal && !m.hidden && !m.added,
                                     .dropout_p = dropout,
                                     .mask = m.added };
        if (m.hidden)
            opts.mask = m.added ? aril_where(m.hidden, aril_scalar(-INFINITY), m.added)
                                : aril_logical_not(m.hidden);
        y = aril_scaled_dot_product_attention(part[Q], part[K], part[V], opts); /* [N,H,L,E/H] */
    }
    y = a->opts.batch_first ? aril_permute(y, ARIL_AXES(0, 2, 1, 3))
                            : aril_permute(y, ARIL_AXES(2, 0, 1, 3));
    y = aril_reshape(y, ARIL_SHAPE(aril_size(y, 0), aril_size(y, 1), a->embed));
    y = aril_forward(a->out_proj, y);
    out[0] = alone ? aril_select(y, a->opts.batch_first ? 0 : 1, 0) : y;
}

static const aril__layer layer = { .base = { .type = "MultiheadAttention",
                                             .size = sizeof(attention),
                                             .forward = run_attention,
                                             .build = build_attention,
                                             .reset = reset_attention,
                                             .inputs = 5,
                                             .outputs = 2 } };

aril_module *aril_nn_multihead_attention_with(int64_t embed, int heads, aril_nn_attention_opts opts)
{
    if (embed < 0 || heads < 1 || opts.kdim < 0 || opts.vdim < 0 ||
        !(opts.dropout >= 0 && opts.dropout <= 1)) {
        aril__fail(ARIL_ERR_ARG,
                   "MultiheadAttention: %lld values, %d heads, kdim %lld, vdim %lld, dropout %g; "
                   "expected sizes of 0 (inferred) or more, 1 head or more, dropout from 0 to 1",
                   (long long)embed, heads, (long long)opts.kdim, (long long)opts.vdim,
                   opts.dropout);
        return NULL;
    }
    aril_module *m = aril__layer_make(&layer);
    if (!m) return NULL;
    *(attention *)aril_module_data(m) = (attention){ .embed = embed, .heads = heads, .opts = opts };
    return embed ? aril__layer_made(m, add_attention(m)) : m;
}

aril_module *aril_nn_multihead_attention(int64_t embed, int heads)
{
    return aril_nn_multihead_attention_with(embed, heads, (aril_nn_attention_opts){ 0 });
}
