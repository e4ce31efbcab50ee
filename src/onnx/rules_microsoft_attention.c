/* Attention of com.microsoft, as transformers have it after optimization or export. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

/* ---- heads ---- */

/* [N,T,heads*D] -> [N,heads,T,D] */
static aril_tensor *split_heads(aril_tensor *x, int64_t heads)
{
    int64_t d = aril__onnx_over(aril_size(x, 2), heads);
    aril_shape to = ARIL_SHAPE(aril_size(x, 0), aril_size(x, 1), heads, d);
    return aril_permute(aril_reshape(x, to), ARIL_AXES(0, 2, 1, 3));
}

/* The inverse. */
static aril_tensor *join_heads(aril_tensor *x)
{
    aril_shape to = ARIL_SHAPE(aril_size(x, 0), aril_size(x, 2),
                               aril__onnx_times(aril_size(x, 1), aril_size(x, 3)));
    return aril_reshape(aril_permute(x, ARIL_AXES(0, 2, 1, 3)), to);
}

/* Part i of [N,T,heads,parts,D] as [N,heads,T,D]. */
static aril_tensor *packed_part(aril_tensor *x, int64_t i)
{
    return aril_permute(aril_select(x, 3, i), ARIL_AXES(0, 2, 1, 3));
}

static aril_status check_heads(onnx_call *c, int64_t heads, int64_t features)
{
    if (features < 0) return aril__onnx_open_error(c);
    if (heads >= 1 && features % heads == 0) return ARIL_OK;
    return aril__onnx_fail(c, ARIL_ERR_ARG, "%" PRId64 " heads do not divide %" PRId64 " features",
                           heads, features);
}

/* ---- masks ---- */

/* 0 where `allowed`, else `value`, in the dtype of x. */
static aril_tensor *bias_where(aril_tensor *allowed, double value, const aril_tensor *x)
{
    aril_tensor *zero = aril_zeros_like(aril_cast(allowed, aril_dtype_of(x)));
    return aril_where(allowed, zero, aril_full_like(zero, value));
}

static aril_tensor *plus(aril_tensor *a, aril_tensor *b)
{
    return a && b ? aril_add(a, b) : a ? a : b;
}

static aril_tensor *range(onnx_call *c, int64_t n)
{
    return aril_arange(0, n, 1, ARIL_I64, aril__onnx_device(c));
}

/* The mask of keys: for each sample a length, a length and a first key, or numbers that are 0 where
 * a key is masked, of [N,S], [N,T,S] or [N,1,M,M]. t queries after s - t keys. */
static aril_status key_mask(onnx_call *c, aril_tensor *mask, int64_t n, int64_t t, int64_t s,
                            aril_tensor **allowed)
{
    aril_tensor *keys = range(c, s);
    mask = aril_cast(mask, ARIL_I64);
    int64_t count = aril_size(mask, 0);
    int dims = aril_ndim(mask);
    *allowed = NULL;
    if (dims == 1 && count != n && (count < 0 || n < 0)) return aril__onnx_open_error(c);
    if (dims == 1 && (count == n || count == 2 * n)) {
        aril_tensor *end = aril_reshape(aril_narrow(mask, 0, 0, n), ARIL_SHAPE(n, 1, 1, 1));
        *allowed = aril_lt(keys, end);
        if (count == n) return ARIL_OK;
        aril_tensor *from = aril_reshape(aril_narrow(mask, 0, n, n), ARIL_SHAPE(n, 1, 1, 1));
        *allowed = aril_logical_and(*allowed, aril_ge(keys, from));
        return ARIL_OK;
    }
    if (dims == 1)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "a mask of %" PRId64 " numbers for %" PRId64 " samples", count, n);
    aril_tensor *there = aril_gt_scalar(mask, 0);
    if (dims == 2) *allowed = aril_unsqueeze(aril_unsqueeze(there, 1), 1);
    if (dims == 3) *allowed = aril_unsqueeze(there, 1);
    if (dims == 4) {
        if (s < 0 || t < 0) return aril__onnx_open_error(c);
        if (aril_size(there, 2) < s || aril_size(there, 3) < s)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the mask is smaller than %" PRId64, s);
        *allowed = aril_narrow(aril_narrow(there, 2, s - t, t), 3, 0, s);
    }
    return *allowed ? ARIL_OK : aril__onnx_fail(c, ARIL_ERR_SHAPE, "a mask of %d dimensions", dims);
}

/* ---- attention ---- */

typedef struct heads {
    aril_tensor *q, *k, *v; /* [N,heads,T,D], [N,heads,S,D] */
    aril_tensor *mask;      /* NULL, or as key_mask takes it */
    aril_tensor *bias;      /* NULL, or added to the scores */
    bool causal;
    int64_t before; /* keys of the past: by a causal mask, query i sees keys up to before + i, and
                       the last one all of them, as in onnxruntime */
} heads;

static aril_status attend(onnx_call *c, const heads *h, aril_tensor **y)
{
    int64_t n = aril_size(h->q, 0), t = aril_size(h->q, 2), s = aril_size(h->k, 2);
    double filter = aril__onnx_attr_float(c, "mask_filter_value", -10000);
    double scale = aril__onnx_attr_float(c, "scale", 0);
    aril_tensor *bias = h->bias, *allowed;
    if (h->mask) {
        aril_status status = key_mask(c, h->mask, n, t, s, &allowed);
        if (status != ARIL_OK) return status;
        bias = plus(bias, bias_where(allowed, filter, h->q));
    }
    if (scale == 0 && aril_size(h->q, 3) < 0) return aril__onnx_open_error(c);
    aril_attention_opts o = { .scale = scale != 0 ? scale : 1 / sqrt((double)aril_size(h->q, 3)) };
    if (h->causal && t == s && !h->before && !bias) {
        o.causal = true;
    } else if (h->causal && t != 1) {
        aril_device dev = aril__onnx_device(c);
        aril_tensor *query = range(c, t), *at = query;
        aril_tensor *last = aril_add_scalar(aril__onnx_size(dev, t), -1);
        if (h->before) at = aril_add(at, aril__onnx_size(dev, h->before));
        at = aril_where(aril_lt(query, last), at, aril__onnx_size(dev, s));
        at = aril_unsqueeze(at, 1);
        bias = plus(bias, bias_where(aril_le(range(c, s), at), -INFINITY, h->q));
    }
    o.mask = bias;
    *y = aril_scaled_dot_product_attention(h->q, h->k, h->v, o);
    return ARIL_OK;
}

/* Past keys (part 0) or values (1) before the new ones. */
static aril_tensor *after_past(aril_tensor *past, int64_t part, aril_tensor *x)
{
    return past ? aril_cat(ARIL_LIST(aril_select(past, 0, part), x), 2) : x;
}

/* The sizes of queries, keys and values in a product with one matrix. */
static aril_status qkv_sizes(onnx_call *c, int64_t all, int64_t *to)
{
    onnx_ints sizes = aril__onnx_attr_ints(c, "qkv_hidden_sizes");
    if (all < 0) return aril__onnx_open_error(c);
    for (int i = 0; i < 3; i++) to[i] = sizes.n == 3 ? sizes.at[i] : all / 3;
    if (to[0] > 0 && to[0] == to[1] && to[2] > 0 && to[0] + to[1] + to[2] == all) return ARIL_OK;
    return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                           "weights of %" PRId64 " columns for queries, keys and values", all);
}

/* Queries, keys and values in one tensor [N,T,sum]; then the past, and what is added to scores. */
static aril_status attend_to_self(onnx_call *c, aril_tensor *qkv, aril_tensor *mask,
                                  aril_tensor *past, aril_tensor *bias)
{
    int64_t number = aril__onnx_attr_int(c, "num_heads", 0), size[3];
    aril_status s = qkv_sizes(c, aril_size(qkv, 2), size);
    if (s == ARIL_OK) s = check_heads(c, number, size[0]);
    if (s == ARIL_OK) s = check_heads(c, number, size[2]);
    if (s != ARIL_OK) return s;
    if (aril__onnx_attr_int(c, "do_rotary", 0))
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "rotary embeddings inside attention");
    aril_tensor *k = split_heads(aril_narrow(qkv, 2, size[0], size[1]), number), *y;
    aril_tensor *v = split_heads(aril_narrow(qkv, 2, size[0] + size[1], size[2]), number);
    heads h = { .q = split_heads(aril_narrow(qkv, 2, 0, size[0]), number),
                .k = after_past(past, 0, k),
                .v = after_past(past, 1, v),
                .mask = mask,
                .bias = bias,
                .causal = aril__onnx_attr_int(c, "unidirectional", 0) != 0,
                .before = past ? aril_size(past, 3) : 0 };
    s = attend(c, &h, &y);
    if (s == ARIL_OK) s = give(c, 0, join_heads(y));
    return s == ARIL_OK && wanted(c, 1) ? give(c, 1, aril_stack(ARIL_LIST(h.k, h.v), 0)) : s;
}

static aril_status attention(onnx_call *c)
{
    if (given(c, 6) || aril__onnx_attr_int(c, "past_present_share_buffer", 0))
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "a buffer that past and present share");
    aril_tensor *qkv = aril_matmul(in(c, 0), in(c, 1));
    if (given(c, 2)) qkv = aril_add(qkv, in(c, 2));
    return attend_to_self(c, qkv, in(c, 3), in(c, 4), in(c, 5));
}

/* The same with integers: input, weight, bias, their scales, mask, their zero points, past. */
static aril_status quantized_attention(onnx_call *c)
{
    aril_tensor *scale = aril_mul(in(c, 3), in(c, 4)), *sum;
    onnx_value v[4] = { c->in[0], c->in[1], { 0 }, { 0 } };
    if (given(c, 6)) v[2] = c->in[6];
    if (given(c, 7)) v[3] = c->in[7];
    aril_status s = aril__onnx_apply(c, "MatMulInteger", 10, 4, v, &sum);
    if (s != ARIL_OK) return s;
    aril_tensor *qkv = aril_mul(aril_cast(sum, ARIL_F32), aril_cast(scale, ARIL_F32));
    if (given(c, 2)) qkv = aril_add(qkv, in(c, 2));
    return attend_to_self(c, qkv, in(c, 5), in(c, 8), NULL);
}

/* A bias of queries, keys or values, added before heads are split. */
static aril_tensor *with_bias(onnx_call *c, aril_tensor *x, int64_t from)
{
    return given(c, 3) ? aril_add(x, aril_narrow(in(c, 3), 0, from, aril_size(x, -1))) : x;
}

/* Queries, keys and values of MultiHeadAttention in heads: apart, or packed. */
static aril_status read_heads(onnx_call *c, int64_t number, heads *h)
{
    aril_tensor *q = in(c, 0), *k = in(c, 1), *v = in(c, 2);
    if (aril_ndim(q) == 5 && !k) {
        if (given(c, 3)) return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "a bias of packed inputs");
        h->q = packed_part(q, 0);
        h->k = packed_part(q, 1);
        h->v = packed_part(q, 2);
        return ARIL_OK;
    }
    if (aril_ndim(q) != 3 || !k)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "queries need 3 dimensions, and keys");
    int64_t features = aril_size(q, 2);
    aril_status s = check_heads(c, number, features);
    if (s != ARIL_OK) return s;
    h->q = split_heads(with_bias(c, q, 0), number);
    if (aril_ndim(k) == 5) {
        h->k = packed_part(k, 0);
        h->v = packed_part(k, 1);
        return ARIL_OK;
    }
    if (!v) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "values are missing");
    /* Those of another sequence come with their heads. */
    h->k = aril_ndim(k) == 4 ? k : split_heads(with_bias(c, k, features), number);
    if (aril_ndim(v) == 3 && (s = check_heads(c, number, aril_size(v, 2))) != ARIL_OK) return s;
    h->v = aril_ndim(v) == 4 ? v : split_heads(with_bias(c, v, 2 * features), number);
    return ARIL_OK;
}

static aril_status multi_head_attention(onnx_call *c)
{
    aril_tensor *y;
    heads h = { .mask = in(c, 4),
                .bias = in(c, 5),
                .causal = aril__onnx_attr_int(c, "unidirectional", 0) != 0,
                .before = given(c, 6) ? aril_size(in(c, 6), 2) : 0 };
    if (given(c, 8) || given(c, 9))
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "a buffer that past and present share");
    aril_status s = read_heads(c, aril__onnx_attr_int(c, "num_heads", 0), &h);
    if (s != ARIL_OK) return s;
    if (given(c, 6)) h.k = aril_cat(ARIL_LIST(in(c, 6), h.k), 2);
    if (given(c, 7)) h.v = aril_cat(ARIL_LIST(in(c, 7), h.v), 2);
    s = attend(c, &h, &y);
    if (s == ARIL_OK) s = give(c, 0, join_heads(y));
    if (s == ARIL_OK) s = give(c, 1, h.k);
    return s == ARIL_OK ? give(c, 2, h.v) : s;
}

/* ---- rotary embeddings ---- */

/* Turns x [N,heads,T,D] by angles of positions `at`, [N,T] or [T]; caches [M,D/2]. */
static aril_tensor *turn(aril_tensor *x, aril_tensor *cosine, aril_tensor *sine, aril_tensor *at,
                         bool interleaved)
{
    int64_t size = aril_size(x, 3), part = 2 * aril_size(cosine, 1);
    int axis = aril_ndim(at) - 1; /* [N,1,T,part/2] or [1,T,part/2] */
    cosine = aril_unsqueeze(aril_embedding(at, cosine, (aril_embedding_opts){ 0 }), axis);
    sine = aril_unsqueeze(aril_embedding(at, sine, (aril_embedding_opts){ 0 }), axis);
    if (part > size) part = size;
    aril_tensor *turned = aril_narrow(x, 3, 0, part), *a, *b;
    a = interleaved ? aril_slice(turned, 3, 0, ARIL_END, 2) : aril_narrow(turned, 3, 0, part / 2);
    b = interleaved ? aril_slice(turned, 3, 1, ARIL_END, 2)
                    : aril_narrow(turned, 3, part / 2, part / 2);
    aril_tensor *real = aril_sub(aril_mul(cosine, a), aril_mul(sine, b));
    aril_tensor *other = aril_add(aril_mul(sine, a), aril_mul(cosine, b));
    aril_tensor *y =
        interleaved ? aril_reshape(aril_stack(ARIL_LIST(real, other), -1), aril_shape_of(turned))
                    : aril_cat(ARIL_LIST(real, other), 3);
    return part < size ? aril_cat(ARIL_LIST(y, aril_narrow(x, 3, part, size - part)), 3) : y;
}

/* Inputs: x, positions, cosines, sines. */
static aril_status rotary(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *at = aril_cast(in(c, 1), ARIL_I64), *cosine = in(c, 2);
    bool packed = aril_ndim(x) == 3;
    int64_t number = aril__onnx_attr_int(c, "num_heads", 0),
            part = aril__onnx_attr_int(c, "rotary_embedding_dim", 0);
    double scale = aril__onnx_attr_float(c, "scale", 1);
    if (aril_size(cosine, 1) < 0 || (aril_ndim(x) > 2 && aril_size(x, packed ? 2 : 3) < 0))
        return aril__onnx_open_error(c);
    if (packed) {
        int64_t each = part && number ? aril_size(x, 2) / number : 2 * aril_size(cosine, 1);
        if (each < 1 || aril_size(x, 2) % each)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "heads of %" PRId64 " features", each);
        x = split_heads(x, aril_size(x, 2) / each);
    }
    if (aril_ndim(x) != 4) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected 3 or 4 dimensions");
    if (aril_ndim(at) == 1) at = aril_add(at, range(c, aril_size(x, 2))); /* the first position */
    aril_tensor *y = turn(x, cosine, in(c, 3), at, aril__onnx_attr_int(c, "interleaved", 0) != 0);
    if (scale != 1) y = aril_mul_scalar(y, scale);
    return give(c, 0, packed ? join_heads(y) : y);
}

/* ---- groups of queries ---- */

/* The cache [N,heads,P,D] with new keys or values written behind the first `before` [N,1] of each
 * sample; `total` entries. */
static aril_tensor *written(onnx_call *c, aril_tensor *cache, aril_tensor *x, aril_tensor *before,
                            int64_t total)
{
    int64_t old = cache ? aril_size(cache, 2) : 0, more = aril_size(x, 2);
    if (!cache) return x;
    aril_tensor *at = aril_unsqueeze(range(c, total), 0); /* [1,total] */
    aril_tensor *since = aril_sub(at, before);            /* [N,total] */
    aril_tensor *from = aril_where(aril_lt_scalar(since, 0), at, aril_add_scalar(since, old));
    from = aril_clamp(from, 0, old + more - 1);
    from = aril_unsqueeze(aril_unsqueeze(from, 1), 3);
    aril_tensor *all = aril_cat(ARIL_LIST(cache, x), 2);
    aril_shape to = aril_shape_of(all);
    to.dim[2] = total;
    return aril_gather(all, aril_contiguous(aril_expand(from, to)), 2);
}

/* Where a query may look: keys up to its own, in the window, and not beyond the sample. */
static aril_tensor *group_bias(onnx_call *c, aril_tensor *at, int64_t s, const aril_tensor *q)
{
    int64_t window = aril__onnx_attr_int(c, "local_window_size", -1);
    aril_tensor *keys = range(c, s),
                *own = aril_unsqueeze(aril_unsqueeze(at, 1), 3); /* [N,1,T,1] */
    aril_tensor *allowed = aril_le(keys, own);
    if (window > 0)
        allowed = aril_logical_and(allowed, aril_gt(keys, aril_sub_scalar(own, window)));
    return bias_where(allowed, -INFINITY, q);
}

/* Inputs: query, key, value, past key, past value, lengths - 1, total length, cosines, sines,
 * positions, bias. */
static aril_status group_query_attention(onnx_call *c)
{
    int64_t number = aril__onnx_attr_int(c, "num_heads", 0),
            own = aril__onnx_attr_int(c, "kv_num_heads", 0), total;
    double scale = aril__onnx_attr_float(c, "scale", 0),
           cap = aril__onnx_attr_float(c, "softcap", 0);
    aril_tensor *q = in(c, 0), *k = in(c, 1), *v = in(c, 2);
    aril_status s = aril__onnx_int_in(c, 6, 0, &total);
    if (s != ARIL_OK) return s;
    if (own < 1 || number < 1 || number % own || aril_ndim(q) != 3 || !given(c, 5))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the numbers of heads, or the inputs, do not fit");
    if (given(c, 11) || aril__onnx_attr_int(c, "smooth_softmax", 0))
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "smooth softmax");
    if (!k) { /* packed */
        if ((s = check_heads(c, number + 2 * own, aril_size(q, 2))) != ARIL_OK) return s;
        int64_t d = aril_size(q, 2) / (number + 2 * own);
        k = aril_narrow(q, 2, number * d, own * d);
        v = aril_narrow(q, 2, (number + own) * d, own * d);
        q = aril_narrow(q, 2, 0, number * d);
    }
    if (!v) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "values are missing");
    if ((s = check_heads(c, number, aril_size(q, 2))) != ARIL_OK ||
        (s = check_heads(c, own, aril_size(k, 2))) != ARIL_OK ||
        (s = check_heads(c, own, aril_size(v, 2))) != ARIL_OK)
        return s;
    int64_t t = aril_size(q, 1), n = aril_size(q, 0);
    if (t < 0 || (given(c, 3) && aril_size(in(c, 3), 2) < 0)) return aril__onnx_open_error(c);
    q = split_heads(q, number);
    k = split_heads(k, own);
    v = split_heads(v, own);
    aril_tensor *before = aril_reshape(aril_cast(in(c, 5), ARIL_I64), ARIL_SHAPE(n, 1));
    before = total == t ? aril_zeros_like(before) : aril_sub_scalar(before, t - 1);
    aril_tensor *at = aril_add(before, range(c, t)); /* [N,T] */
    if (aril__onnx_attr_int(c, "do_rotary", 0)) {
        bool interleaved = aril__onnx_attr_int(c, "rotary_interleaved", 0) != 0;
        aril_tensor *turns = given(c, 9) ? aril_cast(in(c, 9), ARIL_I64) : at;
        q = turn(q, in(c, 7), in(c, 8), turns, interleaved);
        k = turn(k, in(c, 7), in(c, 8), turns, interleaved);
    }
    aril_tensor *past_k = in(c, 3), *past_v = in(c, 4), *y;
    int64_t old = past_k ? aril_size(past_k, 2) : 0, kept = old > total ? old : total;
    k = written(c, past_k, k, before, kept);
    v = written(c, past_v, v, before, kept);
    aril_tensor *keys = kept > total ? aril_narrow(k, 2, 0, total) : k,
                *values = kept > total ? aril_narrow(v, 2, 0, total) : v;
    aril_tensor *bias = group_bias(c, at, aril_size(keys, 2), q);
    if (given(c, 10)) bias = aril_add(bias, in(c, 10));
    if (scale == 0) scale = 1 / sqrt((double)aril_size(q, 3));
    if (cap > 0) {
        aril_tensor *every = aril_repeat_interleave(keys, number / own, 1);
        aril_tensor *scores = aril_mul_scalar(aril_matmul(q, aril_transpose(every, -1, -2)), scale);
        scores = aril_mul_scalar(aril_tanh(aril_div_scalar(scores, cap)), cap);
        y = aril_matmul(aril_softmax(aril_add(scores, bias), -1),
                        aril_repeat_interleave(values, number / own, 1));
    } else {
        aril_attention_opts o = { .mask = bias, .scale = scale, .enable_gqa = own != number };
        y = aril_scaled_dot_product_attention(q, keys, values, o);
    }
    s = give(c, 0, join_heads(y));
    if (s == ARIL_OK) s = give(c, 1, k);
    return s == ARIL_OK ? give(c, 2, v) : s;
}

#define MS(name_, fn)                                   \
    {                                                   \
        "com.microsoft", name_, 1, 1, fn, NULL, NULL, 0 \
    }

const onnx_rule aril__onnx_microsoft_attention_rules[] = {
    MS("Attention", attention),
    MS("QAttention", quantized_attention),
    MS("MultiHeadAttention", multi_head_attention),
    MS("GroupQueryAttention", group_query_attention),
    MS("RotaryEmbedding", rotary),
    { 0 },
};
