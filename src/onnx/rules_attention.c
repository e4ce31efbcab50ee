/* Attention and what belongs to it: rotary embeddings, linear attention, causal convolution. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

/* [N,T,heads*D] -> [N,heads,T,D] */
static aril_tensor *split_heads(aril_tensor *x, int64_t heads)
{
    int64_t n = aril_size(x, 0), t = aril_size(x, 1), d = aril__onnx_over(aril_size(x, 2), heads);
    return aril_permute(aril_reshape(x, ARIL_SHAPE(n, t, heads, d)), ARIL_AXES(0, 2, 1, 3));
}

/* The inverse. */
static aril_tensor *join_heads(aril_tensor *x)
{
    int64_t n = aril_size(x, 0), h = aril_size(x, 1), t = aril_size(x, 2), d = aril_size(x, 3);
    return aril_reshape(aril_permute(x, ARIL_AXES(0, 2, 1, 3)),
                        ARIL_SHAPE(n, t, aril__onnx_times(h, d)));
}

typedef struct attention {
    aril_tensor *q, *k, *v, *mask; /* [N,heads,T,D]; the mask bool or additive */
    aril_tensor *lengths;          /* [N], or NULL: the number of keys that are not padding */
    int64_t before;                /* keys of the cache */
    int64_t left, right;           /* size of the window; -1: unlimited */
    double scale, softcap;
    bool causal;
} attention;

/* Zero where a query may attend to a key, else -inf. */
static aril_tensor *bias_of(aril_tensor *allowed, const aril_tensor *like_)
{
    aril_tensor *zero = aril_zeros_like(aril_cast(allowed, aril_dtype_of(like_)));
    return aril_where(allowed, zero, aril_full_like(zero, -INFINITY));
}

/* x plus a size, or minus it. */
static aril_tensor *plus_size(onnx_call *c, aril_tensor *x, int64_t size, int sign)
{
    if (size >= 0) return aril_add_scalar(x, sign * size);
    aril_tensor *open = aril__onnx_size(aril__onnx_device(c), size);
    return sign < 0 ? aril_sub(x, open) : aril_add(x, open);
}

/* The scale of scores by default; 0 with an error. */
static double default_scale(const onnx_call *c, const aril_tensor *q)
{
    int64_t d = aril_size(q, 3);
    if (d < 0) aril__onnx_open_error(c);
    return d < 0 ? 0 : 1 / sqrt((double)d);
}

/* The sum of all masks, which broadcasts to [N,heads,T,S]; NULL: none. */
static aril_tensor *bias_for(onnx_call *c, const attention *a)
{
    int64_t t = aril_size(a->q, 2), s = aril_size(a->k, 2);
    aril_device dev = aril__onnx_device(c);
    aril_tensor *bias = NULL, *mask = a->mask;
    if (mask && aril_ndim(mask) && aril_size(mask, -1) < s) { /* the rest is masked */
        bool is_bool = aril_dtype_of(mask) == ARIL_BOOL;
        aril_pads pads = ARIL_PADS(0, s - aril_size(mask, -1));
        mask = aril_pad(mask, pads, (aril_pad_opts){ .value = is_bool ? 0 : -INFINITY });
    }
    if (mask) bias = aril_dtype_of(mask) == ARIL_BOOL ? bias_of(mask, a->q) : mask;
    aril_tensor *key = aril_arange(0, s, 1, ARIL_I64, dev); /* [S] */
    aril_tensor *query = aril_unsqueeze(aril_arange(0, t, 1, ARIL_I64, dev), 1);
    if (a->lengths && !a->before) /* [N,1,1,1]: keys before the queries */
        query =
            aril_add(query, aril_reshape(plus_size(c, a->lengths, t, -1), ARIL_SHAPE(-1, 1, 1, 1)));
    else
        query = plus_size(c, query, a->before, 1);
    aril_tensor *allowed = NULL;
    if (a->causal) allowed = aril_le(key, query);
    if (a->left >= 0) {
        aril_tensor *near = aril_le_scalar(aril_sub(query, key), a->left);
        allowed = allowed ? aril_logical_and(allowed, near) : near;
    }
    if (a->right >= 0) {
        aril_tensor *near = aril_le_scalar(aril_sub(key, query), a->right);
        allowed = allowed ? aril_logical_and(allowed, near) : near;
    }
    if (a->lengths) {
        aril_tensor *there = aril_lt(key, aril_reshape(a->lengths, ARIL_SHAPE(-1, 1, 1, 1)));
        allowed = allowed ? aril_logical_and(allowed, there) : there;
    }
    if (!allowed) return bias;
    aril_tensor *more = bias_of(allowed, a->q);
    return bias ? aril_add(bias, more) : more;
}

/* Softmax in which a row of -inf gives zeros. */
static aril_tensor *masked_softmax(aril_tensor *scores, aril_tensor *bias)
{
    aril_tensor *y = aril_softmax(scores, -1);
    if (!bias) return y;
    aril_tensor *none = aril_eq_scalar(aril_amax(bias, ARIL_KEEPDIM(-1)), -INFINITY);
    return aril_where(none, aril_zeros_like(y), y);
}

static aril_tensor *repeat_heads(aril_tensor *x, int64_t heads)
{
    int64_t own = aril_size(x, 1);
    return own && heads != own ? aril_repeat_interleave(x, heads / own, 1) : x;
}

/* Scores before the softmax that the node may also return: mode 0 raw, 1 capped, 2 with masks. */
static aril_status attend(onnx_call *c, const attention *a, aril_tensor **y, aril_tensor **shown)
{
    int64_t mode = aril__onnx_attr_int(c, "qk_matmul_output_mode", 0);
    aril_dtype dtype = aril_dtype_of(a->q), precise = dtype;
    if (has_attr(c, "softmax_precision"))
        aril__onnx_dtype(aril__onnx_attr_int(c, "softmax_precision", 1), &precise);
    aril_tensor *bias = bias_for(c, a);
    int64_t heads = aril_size(a->q, 1);
    aril_tensor *k = repeat_heads(a->k, heads), *v = repeat_heads(a->v, heads);
    double root = sqrt(a->scale);
    aril_tensor *scores =
        aril_matmul(aril_mul_scalar(a->q, root), aril_transpose(aril_mul_scalar(k, root), -1, -2));
    *shown = scores;
    if (a->softcap > 0)
        scores = aril_mul_scalar(aril_tanh(aril_div_scalar(scores, a->softcap)), a->softcap);
    if (mode == 1) *shown = scores;
    if (c->version < 24 && mode == 0) *shown = a->softcap > 0 ? scores : *shown;
    if (bias) scores = aril_add(scores, bias);
    if (mode == 2) *shown = scores;
    aril_tensor *p = aril_cast(masked_softmax(aril_cast(scores, precise), bias), dtype);
    if (mode == 3) *shown = p;
    *y = aril_matmul(p, v);
    *shown = aril_cast(*shown, dtype);
    return ARIL_OK;
}

static bool is_plain(const onnx_call *c, const attention *a)
{
    return !a->softcap && !wanted(c, 3) && !a->lengths && a->left < 0 && a->right < 0 &&
           !(a->causal && (a->mask || a->before)) && !has_attr(c, "softmax_precision") &&
           (!a->mask || aril_size(a->mask, -1) == aril_size(a->k, 2));
}

/* Whether only the run knows if the mask is for all keys. */
static bool mask_is_open(const attention *a)
{
    int64_t m = aril_size(a->mask, -1), s = aril_size(a->k, 2);
    return m != s && m != 1 && (m < 0 || s < 0);
}

static aril_status attention_op(onnx_call *c)
{
    attention a = {
        .q = in(c, 0), .k = in(c, 1), .v = in(c, 2), .mask = in(c, 3), .lengths = in(c, 6)
    };
    aril_tensor *past_k = in(c, 4), *past_v = in(c, 5), *y, *shown;
    bool packed = aril_ndim(a.q) == 3;
    if (packed) {
        int64_t q_heads = aril__onnx_attr_int(c, "q_num_heads", 0),
                heads = aril__onnx_attr_int(c, "kv_num_heads", 0);
        if (q_heads < 1 || heads < 1)
            return aril__onnx_fail(c, ARIL_ERR_ARG,
                                   "q_num_heads and kv_num_heads are needed for 3 dimensions");
        a.q = split_heads(a.q, q_heads);
        a.k = split_heads(a.k, heads);
        a.v = split_heads(a.v, heads);
    }
    if (aril_ndim(a.q) != 4 || aril_ndim(a.k) != 4 || aril_ndim(a.v) != 4)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "queries, keys and values need 3 or 4 dimensions");
    int64_t heads = aril_size(a.q, 1), own = aril_size(a.k, 1);
    if (own < 0 || heads < 0) return aril__onnx_open_error(c);
    if (own < 1 || heads % own)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "%" PRId64 " heads of queries for %" PRId64 " of keys", heads, own);
    if (past_k) {
        a.before = aril_size(past_k, 2);
        a.k = aril_cat(ARIL_LIST(past_k, a.k), 2);
    }
    if (past_v) a.v = aril_cat(ARIL_LIST(past_v, a.v), 2);
    a.scale = has_attr(c, "scale") ? aril__onnx_attr_float(c, "scale", 0) : default_scale(c, a.q);
    if (!aril_ok()) return aril__latest_status();
    if (a.mask && aril_ndim(a.mask) && mask_is_open(&a)) return aril__onnx_open_error(c);
    a.softcap = aril__onnx_attr_float(c, "softcap", 0);
    a.causal = aril__onnx_attr_int(c, "is_causal", 0) != 0;
    a.left = aril__onnx_attr_int(c, "left_window_size", -1);
    a.right = aril__onnx_attr_int(c, "right_window_size", -1);
    if (a.lengths) a.lengths = aril_cast(a.lengths, ARIL_I64);
    if (is_plain(c, &a)) {
        aril_attention_opts o = {
            .mask = a.mask, .causal = a.causal, .scale = a.scale, .enable_gqa = own != heads
        };
        y = aril_scaled_dot_product_attention(a.q, a.k, a.v, o);
    } else {
        aril_status s = attend(c, &a, &y, &shown);
        if (s == ARIL_OK) s = give(c, 3, shown);
        if (s < 0) return s;
    }
    aril_status s = give(c, 0, packed ? join_heads(y) : y);
    if (s == ARIL_OK) s = give(c, 1, a.k);
    return s == ARIL_OK ? give(c, 2, a.v) : s;
}

/* ---- with graphs that change scores and probabilities ---- */

static aril_status modify(onnx_call *c, const char *name, aril_tensor **x)
{
    if (!has_attr(c, name)) return ARIL_OK;
    const onnx_body *body = aril__onnx_attr_body(c, name);
    onnx_value in = { .kind = ONNX_TENSOR, .tensor = *x }, out;
    if (!body) return ARIL_ERR_FORMAT;
    if (body->n_in != 1 || body->n_out != 1)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s takes and returns one tensor", name);
    aril_status s = aril__onnx_run_body(c->run, body, 1, &in, &out);
    if (s == ARIL_OK && out.kind != ONNX_TENSOR)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s returns no tensor", name);
    if (s == ARIL_OK) *x = out.tensor;
    return s;
}

static aril_status flex_attention(onnx_call *c)
{
    aril_tensor *q = in(c, 0), *k = in(c, 1), *v = in(c, 2);
    aril_dtype dtype = aril_dtype_of(q), precise = dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    if (aril_ndim(q) != 4 || aril_ndim(k) != 4)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected 4 dimensions");
    if (has_attr(c, "softmax_precision"))
        aril__onnx_dtype(aril__onnx_attr_int(c, "softmax_precision", 1), &precise);
    double scale =
        has_attr(c, "scale") ? aril__onnx_attr_float(c, "scale", 0) : default_scale(c, q);
    if (!aril_ok()) return aril__latest_status();
    k = repeat_heads(k, aril_size(q, 1));
    v = repeat_heads(v, aril_size(q, 1));
    aril_tensor *x =
        aril_matmul(aril_cast(q, precise), aril_transpose(aril_cast(k, precise), -1, -2));
    x = aril_mul_scalar(x, scale);
    aril_status s = modify(c, "score_mod", &x);
    if (s != ARIL_OK) return s;
    x = aril_softmax(x, -1);
    s = modify(c, "prob_mod", &x);
    return s != ARIL_OK ? s : give(c, 0, aril_cast(aril_matmul(x, aril_cast(v, precise)), dtype));
}

/* ---- rotary embeddings ---- */

static aril_status rotary(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *cosine = in(c, 1), *sine = in(c, 2), *at = in(c, 3);
    bool interleaved = aril__onnx_attr_int(c, "interleaved", 0) != 0, packed = aril_ndim(x) == 3;
    int64_t heads = aril__onnx_attr_int(c, "num_heads", 0),
            part = aril__onnx_attr_int(c, "rotary_embedding_dim", 0);
    if (packed && heads < 1)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "num_heads is needed for 3 dimensions");
    if (packed) x = split_heads(x, heads); /* [N,heads,T,D] */
    if (aril_ndim(x) != 4) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected 3 or 4 dimensions");
    int64_t size = aril_size(x, 3);
    if (size < 0) return aril__onnx_open_error(c);
    if (part <= 0 || part > size) part = size;
    if (at) {
        cosine = aril_index_select(cosine, at, 0);
        sine = aril_index_select(sine, at, 0);
    }
    cosine = aril_unsqueeze(cosine, 1); /* [N,1,T,part/2] */
    sine = aril_unsqueeze(sine, 1);
    aril_tensor *turned = aril_narrow(x, 3, 0, part), *rest = aril_narrow(x, 3, part, size - part),
                *a, *b;
    if (interleaved) {
        a = aril_slice(turned, 3, 0, ARIL_END, 2);
        b = aril_slice(turned, 3, 1, ARIL_END, 2);
    } else {
        a = aril_narrow(turned, 3, 0, part / 2);
        b = aril_narrow(turned, 3, part / 2, part / 2);
    }
    aril_tensor *real = aril_sub(aril_mul(cosine, a), aril_mul(sine, b));
    aril_tensor *imaginary = aril_add(aril_mul(sine, a), aril_mul(cosine, b));
    aril_tensor *y = interleaved ? aril_reshape(aril_stack(ARIL_LIST(real, imaginary), -1),
                                                aril_shape_of(turned))
                                 : aril_cat(ARIL_LIST(real, imaginary), 3);
    y = aril_cat(ARIL_LIST(y, rest), 3);
    return give(c, 0, packed ? join_heads(y) : y);
}

/* ---- linear attention ---- */

/* One trip: state [N,H,K,V], key [N,H,K,1], value [N,H,1,V]. */
static aril_tensor *next_state(aril_tensor *state, aril_tensor *k, aril_tensor *v,
                               aril_tensor *decay, aril_tensor *beta)
{
    if (decay) state = aril_mul(state, aril_exp(decay));
    if (!beta) return aril_add(state, aril_mul(k, v));
    aril_tensor *known = aril_sum(aril_mul(state, k), ARIL_KEEPDIM(2)); /* [N,H,1,V] */
    return aril_add(state, aril_mul(aril_mul(k, beta), aril_sub(v, known)));
}

static aril_status linear_attention(onnx_call *c)
{
    aril_tensor *q = in(c, 0), *k = in(c, 1), *v = in(c, 2), *past = in(c, 3), *decay = in(c, 4),
                *beta = in(c, 5);
    int64_t q_heads = aril__onnx_attr_int(c, "q_num_heads", 0),
            heads = aril__onnx_attr_int(c, "kv_num_heads", 0);
    const char *rule = aril__onnx_attr_text(c, "update_rule", "gated_delta");
    if (q_heads < 1 || heads < 1 || q_heads % heads || aril_ndim(q) != 3)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the numbers of heads do not fit");
    bool gated = strncmp(rule, "gated", 5) == 0, delta = strstr(rule, "delta") != NULL;
    if ((gated && !decay) || (delta && !beta))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "%s needs more inputs", rule);
    aril_dtype dtype = aril_dtype_of(q), f = dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32;
    int64_t n = aril_size(q, 0), steps = aril_size(q, 1);
    aril_tensor *qs = split_heads(aril_cast(q, f), q_heads),
                *ks = split_heads(aril_cast(k, f), heads),
                *vs = split_heads(aril_cast(v, f), heads);
    int64_t dk = aril_size(ks, 3), dv = aril_size(vs, 3);
    double scale = aril__onnx_attr_float(c, "scale", 0);
    if (dk < 0 || steps < 0) return aril__onnx_open_error(c);
    if (scale == 0) scale = 1 / sqrt((double)dk);
    aril_tensor *state = past ? aril_cast(past, f)
                              : aril_zeros(ARIL_SHAPE(n, heads, dk, dv), f, aril__onnx_device(c));
    aril_tensor *ds = gated ? split_heads(aril_cast(decay, f), heads) : NULL; /* [N,H,T,K or 1] */
    aril_tensor *bs =
        delta ? aril_permute(aril_cast(beta, f), ARIL_AXES(0, 2, 1)) : NULL; /* [N,H or 1,T] */
    aril_tensor **y = aril__onnx_alloc(&c->run->arena, (size_t)steps + 1, sizeof *y);
    if (!y) return ARIL_ERR_MEMORY;
    for (int64_t t = 0; t < steps; t++) {
        aril_tensor *kt = aril_unsqueeze(aril_select(ks, 2, t), 3),
                    *vt = aril_unsqueeze(aril_select(vs, 2, t), 2);
        aril_tensor *dt = ds ? aril_unsqueeze(aril_select(ds, 2, t), 3) : NULL;
        aril_tensor *bt = bs ? aril_unsqueeze(aril_unsqueeze(aril_select(bs, 2, t), 2), 3) : NULL;
        state = next_state(state, kt, vt, dt, bt);
        aril_tensor *qt = aril_unsqueeze(aril_select(qs, 2, t), 2); /* [N,Hq,1,K] */
        y[t] = aril_mul_scalar(aril_matmul(qt, repeat_heads(state, q_heads)), scale);
    }
    if (!steps) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "no tokens");
    aril_tensor *all = aril_cat((aril_list){ (int)steps, y }, 2); /* [N,Hq,T,V] */
    aril_status s = give(c, 0, aril_cast(join_heads(all), dtype));
    return s < 0 ? s : give(c, 1, aril_cast(state, past ? aril_dtype_of(past) : dtype));
}

/* A depthwise convolution that looks back, with the last inputs as its state. */
static aril_status causal_conv(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *w = in(c, 1), *b = in(c, 2), *past = in(c, 3);
    if (aril_ndim(x) != 3 || aril_ndim(w) != 3)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected 3 dimensions");
    int64_t k = aril_size(w, 2), ch = aril_size(x, 1);
    if (k < 0 || ch < 0) return aril__onnx_open_error(c);
    if (!past)
        past = aril_zeros(ARIL_SHAPE(aril_size(x, 0), ch, k - 1), aril_dtype_of(x),
                          aril__onnx_device(c));
    aril_tensor *all = aril_cat(ARIL_LIST(past, x), 2);
    aril_tensor *y = aril_conv1d(all, w, b, (aril_conv_opts){ .groups = ch });
    if (!attr_is(c, "activation", "none", "none")) y = aril_silu(y);
    aril_status s = give(c, 0, y);
    if (s < 0) return s;
    if (aril_size(all, 2) < 0 && k > 1) return give(c, 1, aril_slice(all, 2, 1 - k, INT64_MAX, 1));
    return give(c, 1, aril_narrow(all, 2, aril_size(all, 2) - (k - 1), k - 1));
}

const onnx_rule aril__onnx_attention_rules[] = {
    RULE("Attention", 23, attention_op),
    RULE("RotaryEmbedding", 23, rotary),
    RULE("LinearAttention", 27, linear_attention),
    RULE("CausalConvWithState", 27, causal_conv),
    { "ai.onnx.preview", "FlexAttention", 1, 1, flex_attention, NULL, NULL, ONNX_BODIES },
    { 0 },
};
