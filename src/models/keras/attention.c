/* Attention, AdditiveAttention, MultiHeadAttention and GroupedQueryAttention. Inputs are query,
 * value, key, as in Keras. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "models/keras/keras.h"

#include <math.h>
#include <string.h>

/* The inputs of a call, -1: not given. */
typedef struct roles {
    int query, value, key, mask, query_mask, value_mask, key_mask;
} roles;

static int role(const keras_make *k, const char *name, int position)
{
    int at = k->n_in;
    if (position >= 0 && position < k->n_in) return position;
    for (int i = 0; i < k->node->n_in; i++) {
        const keras_argument *a = &k->node->in[i];
        if (!a->role || !a->ref.layer || strcmp(a->role, "mask") == 0) continue;
        if (strcmp(a->role, name) == 0) return at < k->n_all ? at : -1;
        at++;
    }
    return -1;
}

static roles read_roles(const keras_make *k)
{
    roles r = { .query = role(k, "query", 0),
                .value = role(k, "value", 1),
                .key = role(k, "key", 2),
                .mask = role(k, "attention_mask", -1),
                .query_mask = role(k, "query_mask", -1),
                .value_mask = role(k, "value_mask", -1),
                .key_mask = role(k, "key_mask", -1) };
    if (r.value < 0) r.value = r.query;
    return r;
}

static bool keyword(const keras_make *k, const char *key)
{
    return aril__json_bool(aril__json_get(k->keywords, key), false);
}

/* ---- masks ---- */

/* What is added to scores: 0 where a key is attended to, a large negative number elsewhere, so that
 * a query without keys attends to all of them alike, as in Keras. */
static aril_tensor *added(aril_tensor *keep, aril_dtype dtype)
{
    return aril_mul_scalar(aril_sub_scalar(aril_cast(keep, dtype), 1.0), 1e9);
}

static aril_tensor *both(aril_tensor *a, aril_tensor *b)
{
    return !a ? b : !b ? a : aril_logical_and(a, b);
}

/* 1, 2, 3 ... along axis 1: [N,L,1]. By a sum, as the length may be known to the run only. */
static aril_tensor *positions(aril_tensor *x)
{
    aril_tensor *zeros = aril_zeros_like(aril_narrow(x, 2, 0, 1));
    return aril_cumsum(aril_add_scalar(zeros, 1.0), 1);
}

/* bool [N,L,S]: query i attends to keys 0 .. i. */
static aril_tensor *causal_mask(aril_tensor *q, aril_tensor *k)
{
    return aril_ge(positions(q), aril_transpose(positions(k), 1, 2));
}

/* ---- attention without weights ---- */

typedef struct attention {
    keras_base base;
    roles at;
    int inputs;
    bool additive, concat, scaled, causal, scores;
    double dropout;
} attention;

static aril_tensor *scores_of(const attention *a, const aril_module *self, aril_tensor *q,
                              aril_tensor *k)
{
    aril_tensor *scale = aril__own_at(self, 0);
    if (!a->additive && !a->concat) {
        aril_tensor *s = aril_matmul(q, aril_transpose(k, 1, 2));
        return scale ? aril_mul(s, scale) : s;
    }
    aril_tensor *sum = aril_add(aril_unsqueeze(q, 2), aril_unsqueeze(k, 1)); /* [N,L,S,E] */
    if (a->additive) {
        sum = aril_tanh(sum);
        return aril_sum(scale ? aril_mul(sum, scale) : sum, ARIL_AXES(-1));
    }
    sum = aril_tanh(scale ? aril_mul(sum, scale) : sum);
    return aril_mul(aril_sum(sum, ARIL_AXES(-1)), aril__own_at(self, 1));
}

ARIL__FORWARD(attention_forward)
{
    const attention *a = aril_module_data(self);
    aril_tensor *q = in[a->at.query], *v = in[a->at.value], *k = a->at.key < 0 ? v : in[a->at.key];
    aril_tensor *query_mask = n_in > a->inputs ? in[a->inputs] : NULL,
                *value_mask = n_in > a->inputs + 1 ? in[a->inputs + 1] : NULL;
    aril_tensor *keep = value_mask ? aril_unsqueeze(value_mask, 1) : NULL;
    if (a->causal) keep = both(keep, causal_mask(q, k));
    bool drop = a->dropout > 0 && aril__is_training(self);
    aril_tensor *s = scores_of(a, self, q, k);
    if (keep) s = aril_add(s, added(keep, aril_dtype_of(s)));
    aril_tensor *weights = aril_softmax(s, -1);
    if (drop) weights = aril_dropout(weights, a->dropout, (aril_dropout_opts){ 0 });
    aril_tensor *y = aril_matmul(weights, v);
    if (query_mask) y = aril_mul(y, aril_cast(aril_unsqueeze(query_mask, 2), aril_dtype_of(y)));
    out[0] = y;
    if (a->scores && n_out > 1) out[1] = weights;
}

aril_module *aril__keras_attention(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(attention),
                                                 .type = "Attention",
                                                 .forward = attention_forward,
                                                 .inputs = -1 } };
    ARIL_SCOPE;
    attention a = { .at = read_roles(k), .inputs = k->n_all };
    a.additive = strcmp(k->layer->class, "AdditiveAttention") == 0;
    a.concat =
        strcmp(aril__json_text(aril__json_get(k->config, "score_mode"), "dot"), "concat") == 0;
    a.causal = keyword(k, "use_causal_mask") ||
               aril__json_bool(aril__json_get(k->config, "causal"), false);
    a.scores = keyword(k, "return_attention_scores");
    a.dropout = aril__json_real(aril__json_get(k->config, "dropout"), 0);
    if (k->rank != 3 || a.at.value == a.at.query || !(a.dropout >= 0 && a.dropout <= 1)) {
        aril__keras_fail(k, ARIL_ERR_FORMAT,
                         "expected a query and a value of 3 dimensions, and a dropout from 0 to 1");
        return NULL;
    }
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    a.base = *(keras_base *)aril_module_data(m);
    *(attention *)aril_module_data(m) = a;
    m->made.outputs = a.scores ? 2 : 1;
    aril_status s = aril__keras_own(k, m, "scale", NULL);
    if (s == ARIL_OK) s = aril__keras_own(k, m, "concat_score_weight", NULL);
    return aril__keras_made(m, s);
}

/* ---- several heads ---- */

typedef struct heads {
    keras_base base;
    roles at;
    int inputs;
    int64_t n, n_key, size, value_size; /* heads of queries and of keys */
    bool causal, scores;
    double dropout;
} heads;

enum { QUERY, QUERY_BIAS, KEY, KEY_BIAS, VALUE, VALUE_BIAS, OUTPUT, OUTPUT_BIAS };

/* [N,L,E] through a linear layer to [N,heads,L,size]. */
static aril_tensor *projected(const aril_module *self, int w, aril_tensor *x, int64_t n,
                              int64_t size)
{
    aril_tensor *y = aril_linear(x, aril__own_at(self, w), aril__own_at(self, w + 1));
    if (aril__is_poison(y)) return y;
    return aril_transpose(aril_reshape(y, ARIL_SHAPE(y->dim[0], -1, n, size)), 1, 2);
}

static aril_tensor *given(aril_tensor *const *in, int n_in, int by_role, int mask)
{
    return by_role >= 0 ? in[by_role] : mask >= 0 && mask < n_in ? in[mask] : NULL;
}

/* bool, broadcastable to [N,heads,L,S]; NULL: none. */
static aril_tensor *combined_mask(const heads *h, int n_in, aril_tensor *const *in)
{
    aril_tensor *query = given(in, n_in, h->at.query_mask, h->inputs + h->at.query),
                *value = given(in, n_in, h->at.value_mask, h->inputs + h->at.value),
                *key = h->at.key < 0 && h->at.key_mask < 0
                           ? NULL
                           : given(in, n_in, h->at.key_mask, h->inputs + h->at.key);
    aril_tensor *mask = query ? aril_unsqueeze(query, 2) : NULL; /* [N,L,1] */
    if (value) mask = both(mask, aril_unsqueeze(value, 1));
    if (key) mask = both(mask, aril_unsqueeze(key, 1));
    if (h->at.mask >= 0) mask = both(mask, aril_cast(in[h->at.mask], ARIL_BOOL));
    if (h->causal && (mask || h->scores))
        mask = both(mask, causal_mask(in[h->at.query], in[h->at.value]));
    if (!mask || mask->ndim != 3) return mask;
    return aril_unsqueeze(mask, 1); /* of all heads */
}

static aril_tensor *repeated(aril_tensor *x, int64_t times)
{
    return times == 1 ? x : aril_repeat_interleave(x, times, 1);
}

ARIL__FORWARD(heads_forward)
{
    const heads *h = aril_module_data(self);
    aril_tensor *v = in[h->at.value], *k = h->at.key < 0 ? v : in[h->at.key];
    aril_tensor *mask = combined_mask(h, n_in, in);
    aril_tensor *q = projected(self, QUERY, in[h->at.query], h->n, h->size);
    k = repeated(projected(self, KEY, k, h->n_key, h->size), h->n / h->n_key);
    v = repeated(projected(self, VALUE, v, h->n_key, h->value_size), h->n / h->n_key);
    double drop = aril__is_training(self) ? h->dropout : 0;
    aril_tensor *y, *add = mask ? added(mask, aril_dtype_of(q)) : NULL;
    if (h->scores) {
        q = aril_mul_scalar(q, 1 / sqrt((double)h->size));
        aril_tensor *s = aril_matmul(q, aril_transpose(k, 2, 3));
        aril_tensor *weights = aril_softmax(add ? aril_add(s, add) : s, -1);
        aril_tensor *kept = aril_dropout(weights, drop, (aril_dropout_opts){ .eval = drop == 0 });
        y = aril_matmul(kept, v);
        if (n_out > 1) out[1] = weights;
    } else {
        y = aril_scaled_dot_product_attention(
            q, k, v,
            (aril_attention_opts){ .mask = add, .causal = h->causal && !add, .dropout_p = drop });
    }
    y = aril_flatten(aril_transpose(y, 1, 2), 2, 3); /* [N,L,heads * size] */
    out[0] = aril_linear(y, aril__own_at(self, OUTPUT), aril__own_at(self, OUTPUT_BIAS));
}

/* A kernel [E,heads,size], or [heads,size,E], as the weight of a linear layer [out,in]; and its
 * bias. */
static aril_status own_projection(keras_make *k, aril_module *m, const char *part, const char *own,
                                  int64_t n, int64_t size)
{
    char name[64], as[64];
    bool last = strcmp(own, "output") == 0;
    snprintf(name, sizeof name, "%s/kernel", part);
    snprintf(as, sizeof as, "%s_kernel", own);
    aril_tensor *t = aril__keras_variable(k, name);
    if (!t) return aril__last_status();
    aril_status s =
        aril__keras_check(k, name, t, last ? ARIL_SHAPE(n, size, -1) : ARIL_SHAPE(-1, n, size));
    if (s < 0) return s;
    t = aril_t(last ? aril_flatten(t, 0, 1) : aril_flatten(t, 1, 2));
    aril_tensor *kept = aril_module_parameter(m, as, aril_contiguous(t));
    if (aril_tensor_status(kept) < 0) return aril_tensor_status(kept);
    snprintf(name, sizeof name, "%s/bias", part);
    snprintf(as, sizeof as, "%s_bias", own);
    aril_tensor *bias = aril__keras_has(k, name) ? aril__keras_variable(k, name) : NULL;
    if (aril__keras_has(k, name) && !bias) return aril__last_status();
    if (bias && aril_numel(bias) != t->dim[0])
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "its %s has %lld elements, expected %lld", as,
                                (long long)aril_numel(bias), (long long)t->dim[0]);
    kept = aril_module_parameter(m, as, bias ? aril_flatten(bias, 0, -1) : NULL);
    return bias ? aril_tensor_status(kept) : ARIL_OK;
}

static aril_status read_heads(const keras_make *k, heads *h)
{
    bool grouped = strcmp(k->layer->class, "MultiHeadAttention") != 0;
    const json *axes = aril__json_get(k->config, "attention_axes");
    aril_status s = aril__keras_integer(k, grouped ? "num_query_heads" : "num_heads", 1, 1, &h->n);
    h->n_key = h->n;
    if (s == ARIL_OK && grouped) s = aril__keras_integer(k, "num_key_value_heads", 1, 1, &h->n_key);
    if (s == ARIL_OK) s = aril__keras_integer(k, grouped ? "head_dim" : "key_dim", 1, 1, &h->size);
    h->value_size = h->size;
    if (s == ARIL_OK && !grouped)
        s = aril__keras_integer(k, "value_dim", h->size, 1, &h->value_size);
    h->causal = keyword(k, "use_causal_mask");
    h->scores = keyword(k, "return_attention_scores");
    h->dropout = aril__json_real(aril__json_get(k->config, "dropout"), 0);
    if (s < 0) return s;
    if (aril__json_kind(axes) == '[' && !(axes->n == 1 && aril__json_integer(axes->first, 0) == 1))
        return aril__keras_fail(k, ARIL_ERR_UNSUPPORTED, "attention_axes are not supported");
    if (aril__json_bool(aril__json_get(k->config, "use_gate"), false) ||
        aril__json_kind(aril__json_get(k->config, "sliding_window")) == '0')
        return aril__keras_fail(k, ARIL_ERR_UNSUPPORTED,
                                "use_gate and sliding_window are not supported");
    if (k->rank != 3 || h->n % h->n_key || !(h->dropout >= 0 && h->dropout <= 1))
        return aril__keras_fail(k, ARIL_ERR_FORMAT,
                                "expected inputs of 3 dimensions, heads that are a multiple of "
                                "those of the keys, and a dropout from 0 to 1");
    return ARIL_OK;
}

aril_module *aril__keras_multi_head(keras_make *k)
{
    static const aril__layer layer = { .base = { .size = sizeof(heads),
                                                 .type = "MultiHeadAttention",
                                                 .forward = heads_forward,
                                                 .inputs = -1 } };
    ARIL_SCOPE;
    heads h = { .at = read_roles(k), .inputs = k->n_all };
    if (read_heads(k, &h) < 0) return NULL;
    aril_module *m = aril__keras_module(k, &layer);
    if (!m) return NULL;
    h.base = *(keras_base *)aril_module_data(m);
    *(heads *)aril_module_data(m) = h;
    m->made.outputs = h.scores ? 2 : 1;
    aril_status s = own_projection(k, m, "query_dense", "query", h.n, h.size);
    if (s == ARIL_OK) s = own_projection(k, m, "key_dense", "key", h.n_key, h.size);
    if (s == ARIL_OK) s = own_projection(k, m, "value_dense", "value", h.n_key, h.value_size);
    if (s == ARIL_OK) s = own_projection(k, m, "output_dense", "output", h.n, h.value_size);
    return aril__keras_made(m, s);
}
