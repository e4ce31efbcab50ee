/* Scaled dot product attention. Its gradient starts from the log-sum-exp of each query, so that
 * kernels never hold the full matrix of scores. */
#include "ops/sequence/attention.h"

#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/flops.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/norm/norm.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ATTR_LIST(attention, ATTENTION_ATTRS)

enum {
    Q = ATTENTION_Q,
    K = ATTENTION_K,
    V = ATTENTION_V,
    MASK = ATTENTION_MASK,
    Y = ATTENTION_Y,
    LSE = ATTENTION_LSE,
    G = ATTENTION_G,
    G_LSE = ATTENTION_G_LSE,
    GRAD_INPUTS = ATTENTION_INPUTS
};

/* ---- references ---- */

/* Sizes of q [...,L,E], k [...,S,E] and v [...,S,Ev]. */
typedef struct sizes {
    int64_t batch, l, s, e, ev;
    double scale;
} sizes;

static sizes sizes_of(const aril__run *r)
{
    const aril_tensor *q = r->in[Q], *k = r->in[K], *v = r->in[V];
    double scale = ((const struct attention_attrs *)r->attrs)->scale[0];
    int n = q->ndim;
    int64_t e = q->dim[n - 1];
    return (sizes){ .batch = aril__count(n - 2, q->dim),
                    .l = q->dim[n - 2],
                    .s = k->dim[n - 2],
                    .e = e,
                    .ev = v->dim[n - 1],
                    .scale = scale != 0 ? scale
                             : e        ? 1 / sqrt((double)e)
                                        : 1 };
}

/* Row i of a times row j of b, both of n elements. */
static double dot(const aril_tensor *a, int64_t i, const aril_tensor *b, int64_t j, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += aril__get(a, i * n + d) * aril__get(b, j * n + d);
    return sum;
}

/* The element of the mask for element `at` of scores [...,L,S], to which it broadcasts. */
static int64_t mask_at(const aril__run *r, const sizes *z, int64_t at)
{
    const aril_tensor *mask = r->in[MASK], *q = r->in[Q];
    int64_t to = 0, step = 1;
    for (int d = 1; d <= mask->ndim; d++) {
        int64_t full = d == 1 ? z->s : q->dim[q->ndim - d], size = mask->dim[mask->ndim - d];
        to += (size == 1 ? 0 : at % full) * step;
        step *= size;
        at /= full;
    }
    return to;
}

/* The score of query i and key j of batch b: minus infinity if the key is hidden. */
static double score(const aril__run *r, const sizes *z, int64_t b, int64_t i, int64_t j)
{
    const aril_tensor *mask = r->in[MASK];
    int64_t at = mask ? mask_at(r, z, (b * z->l + i) * z->s + j) : 0;
    bool boolean = mask && mask->dtype == ARIL_BOOL;
    if (((const struct attention_attrs *)r->attrs)->causal[0] && j > i) return -INFINITY;
    if (boolean && aril__get(mask, at) == 0) return -INFINITY;
    double v = z->scale * dot(r->in[Q], b * z->l + i, r->in[K], b * z->s + j, z->e);
    return mask && !boolean ? v + aril__get(mask, at) : v;
}

static aril_status attention_ref(aril__run *r)
{
    sizes z = sizes_of(r);
    double *p = r->workspace;
    for (int64_t row = 0; row < z.batch * z.l; row++) {
        int64_t b = row / z.l;
        double top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < z.s; j++) {
            p[j] = score(r, &z, b, row % z.l, j);
            if (p[j] > top) top = p[j];
        }
        for (int64_t j = 0; j < z.s; j++) {
            p[j] = exp(p[j] - (top == -INFINITY ? 0 : top));
            sum += p[j];
        }
        for (int64_t d = 0; d < z.ev; d++) {
            double y = 0;
            for (int64_t j = 0; j < z.s; j++)
                y += p[j] * aril__get(r->in[V], (b * z.s + j) * z.ev + d);
            aril__put(r->out[0], row * z.ev + d, sum == 0 ? 0 : y / sum);
        }
        /* A query without visible keys gives 0; an infinite lse makes its weights 0 in backward
         * too. */
        aril__put(r->out[1], row, sum == 0 ? INFINITY : top + log(sum));
    }
    return ARIL_OK;
}

/* The weights of a query. */
static size_t attention_scratch(const aril__run *r)
{
    return (size_t)sizes_of(r).s * sizeof(double);
}

/* The weights p of a batch and the gradients ds = p * (g v - (g y - g_lse)) of its products q k,
 * both [L,S]. */
static void weights_and_slopes(const aril__run *r, const sizes *z, int64_t b, double *p, double *ds)
{
    const aril_tensor *g = r->in[G], *g_lse = r->in[G_LSE];
    for (int64_t i = 0; i < z->l; i++) {
        int64_t row = b * z->l + i;
        double delta = g ? dot(g, row, r->in[Y], row, z->ev) : 0;
        if (g_lse) delta -= aril__get(g_lse, row);
        for (int64_t j = 0; j < z->s; j++) {
            double v = score(r, z, b, i, j),
                   dp = g ? dot(g, row, r->in[V], b * z->s + j, z->ev) : 0;
            double w = v == -INFINITY ? 0 : exp(v - aril__get(r->in[LSE], row));
            p[i * z->s + j] = w;
            ds[i * z->s + j] = w * (dp - delta) * z->scale;
        }
    }
}

/* Rows of `to` are sums of rows of x, both of n elements, with weights a: to[i] is the sum over j
 * of a[i * a_row + j * a_col] x[j]. */
static void weighted_sums(aril_tensor *to, int64_t first, int64_t rows, const double *a,
                          int64_t a_row, int64_t a_col, const aril_tensor *x, int64_t from,
                          int64_t count, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < n; d++) {
            double sum = 0;
            for (int64_t j = 0; j < count && x; j++)
                sum += a[i * a_row + j * a_col] * aril__get(x, (from + j) * n + d);
            aril__put(to, (first + i) * n + d, sum);
        }
}

static aril_status attention_grad_ref(aril__run *r)
{
    sizes z = sizes_of(r);
    int64_t l = z.l, s = z.s;
    double *p = r->workspace, *ds = p + l * s;
    for (int64_t b = 0; b < z.batch; b++) {
        weights_and_slopes(r, &z, b, p, ds);
        weighted_sums(r->out[0], b * l, l, ds, s, 1, r->in[K], b * s, s, z.e);
        weighted_sums(r->out[1], b * s, s, ds, 1, s, r->in[Q], b * l, l, z.e);
        weighted_sums(r->out[2], b * s, s, p, 1, s, r->in[G], b * l, l, z.ev);
    }
    return ARIL_OK;
}

/* The weights of a batch, and their gradients. */
static size_t attention_grad_scratch(const aril__run *r)
{
    sizes z = sizes_of(r);
    return 2 * (size_t)(z.l * z.s) * sizeof(double);
}

/* ---- decomposition into public ops ---- */

/* [...,L,S], -inf where masked. */
static aril_tensor *all_scores(aril_tensor *q, aril_tensor *k, aril_tensor *mask,
                               const struct attention_attrs *a)
{
    aril_tensor *s = aril_matmul(q, aril_transpose(k, -2, -1));
    if (a->scale[0] != 0) {
        s = aril_mul_scalar(s, a->scale[0]);
    } else { /* elements per row of q: E */
        aril_tensor *row = aril_slice(q, -1, 0, 1, 1);
        s = aril_div(s, aril_sqrt(aril__count_like(q, row)));
    }
    if (mask && mask->dtype == ARIL_BOOL)
        s = aril_where(mask, s, aril_scalar(-INFINITY));
    else if (mask)
        s = aril_add(s, aril_cast(mask, (aril_dtype)s->dtype));
    if (a->causal[0]) s = aril_where(aril_tril(aril_ones_like(s), 0), s, aril_scalar(-INFINITY));
    return s;
}

typedef struct pieces {
    aril_tensor *p, *ds; /* attention weights and the gradient of scores, [...,L,S] */
} pieces;

/* P = exp(scores - lse), dS = P * (g v^T - sum(g y) + g_lse) */
static pieces make_pieces(aril_tensor *g, aril_tensor *q, aril_tensor *k, aril_tensor *v,
                          aril_tensor *mask, aril_tensor *y, aril_tensor *lse, aril_tensor *g_lse,
                          const struct attention_attrs *a)
{
    aril_tensor *d = NULL;
    pieces r;
    r.p = aril_exp(aril_sub(all_scores(q, k, mask, a), aril_unsqueeze(lse, -1)));
    if (g)
        d = aril_sub(aril_matmul(g, aril_transpose(v, -2, -1)),
                     aril_sum(aril_mul(g, y), ARIL_KEEPDIM(-1)));
    if (g_lse) d = d ? aril_add(d, aril_unsqueeze(g_lse, -1)) : aril_unsqueeze(g_lse, -1);
    r.ds = aril_mul(r.p, d);
    return r;
}

static aril_tensor *wide(aril_tensor *t, const aril_tensor *lse)
{
    return t ? aril_cast(t, (aril_dtype)lse->dtype) : NULL;
}

/* ---- attention_grad ---- */

/* in: q, k, v, mask?, y, lse, g?, g_lse?; out: dq, dk, dv */
static aril_status attention_grad_infer(aril__call *c)
{
    for (int i = 0; i < 3; i++) {
        const aril_tensor *t = c->in[i];
        if (t->ndim < 2) return aril__fail(ARIL_ERR_SHAPE, "attention_grad: expected matrices");
        c->out[i].dtype = (aril_dtype)t->dtype;
        c->out[i].ndim = t->ndim;
        memcpy(c->out[i].dim, t->dim, (size_t)t->ndim * sizeof *t->dim);
    }
    if (!c->in[G] && !c->in[G_LSE])
        return aril__fail(ARIL_ERR_ARG, "attention_grad: neither output has a gradient");
    return ARIL_OK;
}

static void attention_grad_decompose(aril__call *c, aril_tensor **out)
{
    ARIL_SCOPE;
    const struct attention_attrs *a = c->attrs;
    aril_tensor *lse = c->in[LSE], *q = wide(c->in[Q], lse), *k = wide(c->in[K], lse);
    aril_tensor *v = wide(c->in[V], lse), *g = wide(c->in[G], lse);
    pieces r = make_pieces(g, q, k, v, c->in[MASK], wide(c->in[Y], lse), lse, c->in[G_LSE], a);
    aril_tensor *ds = r.ds;
    if (a->scale[0] != 0)
        ds = aril_mul_scalar(ds, a->scale[0]);
    else
        ds = aril_div(ds, aril_sqrt(aril__count_like(q, aril_slice(q, -1, 0, 1, 1))));
    out[0] = aril_matmul(ds, k);
    out[1] = aril_matmul(aril_transpose(ds, -2, -1), q);
    out[2] = g ? aril_matmul(aril_transpose(r.p, -2, -1), g) : aril_zeros_like(v);
    for (int i = 0; i < 3; i++)
        out[i] = aril_escape(aril_cast(out[i], (aril_dtype)c->in[i]->dtype));
}

static const struct attention_attrs attention_plain = { { 0 }, { 0 } },
                                    attention_causal = { { 0 }, { 1 } },
                                    attention_scaled = { { 0.3 }, { 0 } };
static const aril__sample attention_grad_samples[] = {
    { .in = { "[2,3,4]", "[2,5,4]", "[2,5,2]", "-", "[2,3,2]", "+[2,3]", "[2,3,2]", "[2,3]" },
      .attrs = &attention_plain,
      .flags = SAMPLE_BATCH },
    { .in = { "[3,4]", "[3,4]", "[3,4]", "-", "[3,4]", "+[3]", "[3,4]", "-" },
      .attrs = &attention_causal },
    { .in = { "[3,2]", "[4,2]", "[4,2]", "[3,4]", "[3,2]", "+[3]", "[3,2]", "-" },
      .attrs = &attention_scaled },
    SAMPLE_END
};
/* q [...,L,E], k [...,S,E], v [...,S,Ev]: q k^T and its product with v. */
static double attention_flops(const aril__run *r)
{
    const aril_tensor *q = r->in[0], *k = r->in[1], *v = r->in[2];
    double keys = k->ndim > 1 ? (double)k->dim[k->ndim - 2] : 1, e = aril__last_size(q);
    return e > 0 ? 2 * aril__numel_of(q) / e * keys * (e + aril__last_size(v)) : 0;
}

/* Five matrix products instead of two. */
static double attention_grad_flops(const aril__run *r)
{
    return 2.5 * attention_flops(r);
}

OP(attention_grad, .doc = "gradient of attention with respect to q, k and v", .min_in = GRAD_INPUTS,
   .max_in = GRAD_INPUTS, .n_out = 3, .optional = IN(MASK) | IN(G) | IN(G_LSE), .types = DT_FLOAT,
   .flags = GRADIENT | STRIDED, .flops = attention_grad_flops, .infer = attention_grad_infer,
   .ref = attention_grad_ref, .workspace = attention_grad_scratch,
   .decompose = attention_grad_decompose, .samples = attention_grad_samples, WITH_ATTRS(attention));

/* ---- attention ---- */

static aril_status check_mask(const aril__call *c)
{
    const aril_tensor *q = c->in[Q], *k = c->in[K], *mask = c->in[MASK];
    int n = q->ndim;
    if (!mask) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    int64_t full[ARIL_MAX_DIMS];
    memcpy(full, q->dim, sizeof full);
    full[n - 1] = k->dim[n - 2];
    bool fits = mask->ndim <= n;
    for (int d = 0; fits && d < mask->ndim; d++)
        fits = mask->dim[d] == 1 || aril__size_fits(mask->dim[d], full[n - mask->ndim + d]);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "attention: mask %s does not broadcast to %s",
                          aril__text(a, mask), aril__shape_text(b, n, full));
    if (mask->dtype != ARIL_BOOL && mask->dtype != q->dtype && mask->dtype != aril__stat_dtype(q))
        return aril__fail(ARIL_ERR_DTYPE, "attention: the mask has dtype %s, expected bool or %s",
                          aril__dtypes[mask->dtype].name, aril__dtypes[q->dtype].name);
    return ARIL_OK;
}

/* in: q [...,L,E], k [...,S,E], v [...,S,Ev], mask?; out: y [...,L,Ev], lse [...,L] */
static aril_status attention_infer(aril__call *c)
{
    const aril_tensor *q = c->in[Q], *k = c->in[K], *v = c->in[V];
    int n = q->ndim;
    bool fits = n >= 2 && k->ndim == n && v->ndim == n;
    for (int d = 0; fits && d < n - 2; d++)
        fits = aril__size_fits(q->dim[d], k->dim[d]) && aril__size_fits(q->dim[d], v->dim[d]);
    fits = fits && aril__size_fits(q->dim[n - 1], k->dim[n - 1]) &&
           aril__size_fits(k->dim[n - 2], v->dim[n - 2]);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT], d[ARIL__SHAPE_TEXT];
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE,
                          "attention: expected [...,L,E], [...,S,E] and [...,S,Ev], "
                          "got %s, %s and %s",
                          aril__text(a, q), aril__text(b, k), aril__text(d, v));
    if (k->dtype != q->dtype || v->dtype != q->dtype)
        return aril__fail(ARIL_ERR_DTYPE,
                          "attention: q, k and v must have the same dtype, got %s, %s and %s",
                          aril__dtypes[q->dtype].name, aril__dtypes[k->dtype].name,
                          aril__dtypes[v->dtype].name);
    aril_status s = check_mask(c);
    c->out[0].dtype = (aril_dtype)q->dtype;
    c->out[1].dtype = aril__stat_dtype(q);
    c->out[0].ndim = n;
    c->out[1].ndim = n - 1;
    memcpy(c->out[0].dim, q->dim, sizeof c->out[0].dim);
    memcpy(c->out[1].dim, q->dim, sizeof c->out[1].dim);
    c->out[0].dim[n - 1] = v->dim[n - 1];
    return s;
}

VJP(attention)
{
    if (!c->g[0] && !c->g[1]) return;
    aril_tensor *in[GRAD_INPUTS] = {
        [Q] = c->x[Q], [K] = c->x[K],   [V] = c->x[V], [MASK] = c->x[MASK],
        [Y] = c->y[0], [LSE] = c->y[1], [G] = c->g[0], [G_LSE] = c->g[1]
    };
    if (c->wants[Q] || c->wants[K] || c->wants[V]) {
        aril_tensor *out[3];
        aril__apply(&aril__op_attention_grad, GRAD_INPUTS, in, c->attrs, out);
        for (int i = 0; i < 3; i++) GRAD(i, out[i]);
    }
    if (c->wants[MASK]) {
        aril_tensor *lse = c->y[1];
        pieces r =
            make_pieces(wide(c->g[0], lse), wide(in[Q], lse), wide(in[K], lse), wide(in[V], lse),
                        in[MASK], wide(in[Y], lse), lse, c->g[1], c->attrs);
        c->dx[MASK] = aril_cast(aril__sum_to_like(r.ds, in[MASK]), (aril_dtype)in[MASK]->dtype);
    }
}

#define SAVES_ALL (IN(Q) | IN(K) | IN(V) | IN(MASK) | OUT(0) | OUT(1))
static const aril__sample attention_samples[] = {
    { .in = { "[2,3,4]", "[2,5,4]", "[2,5,2]", "-" },
      .attrs = &attention_plain,
      .flags = SAMPLE_BATCH },
    { .in = { "[4,3]", "[4,3]", "[4,2]", "-" }, .attrs = &attention_causal },
    { .in = { "[2,2,3,2]", "[2,2,4,2]", "[2,2,4,3]", "[2,1,3,4]" }, .attrs = &attention_scaled },
    { .in = { "[3,2]", "[4,2]", "[4,2]", "[4]" }, .attrs = &attention_plain },
    { .in = { "[2,3,2]", "[2,4,2]", "[2,4,2]", "b[3,4]" }, .attrs = &attention_plain },
    { .in = { "[0,3,2]", "[0,4,2]", "[0,4,2]", "-" }, .attrs = &attention_plain },
    SAMPLE_END
};
OP(attention, .doc = "softmax(q k^T scale + mask) v, and the logsumexp of each row",
   .onnx = "Attention", .min_in = 4, .max_in = 4, .n_out = 2, .cast = CAST_LOW,
   .optional = IN(MASK), .types = DT_FLOAT, .flags = STRIDED, .flops = attention_flops,
   .infer = attention_infer, .ref = attention_ref, .workspace = attention_scratch,
   .vjp = attention_vjp, .saves = { SAVES_ALL, SAVES_ALL, SAVES_ALL, SAVES_ALL },
   .samples = attention_samples, WITH_ATTRS(attention));

/* ---- public ---- */

/* With the full score matrix: for dropout, or for batches that broadcast. */
static aril_tensor *by_scores(aril_tensor *q, aril_tensor *k, aril_tensor *v, aril_tensor *mask,
                              const struct attention_attrs *a, double dropout)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_LOW, &q, &k, &v, &mask);
    aril_dtype type = (aril_dtype)q->dtype;
    if (aril__is_float(type) && k->dtype == type && v->dtype == type) {
        /* Round once, and keep scores from overflowing f16. */
        aril_dtype wide_type = aril__stat_dtype(q);
        q = aril_cast(q, wide_type);
        k = aril_cast(k, wide_type);
        v = aril_cast(v, wide_type);
    }
    aril_tensor *s = all_scores(q, k, mask, a), *p;
    if (mask) { /* rows with no visible key are 0 */
        aril_tensor *blind = aril_eq_scalar(aril_amax(s, ARIL_KEEPDIM(-1)), -INFINITY);
        p = aril_softmax(aril_where(blind, aril_scalar(0.0), s), -1);
        p = aril_where(blind, aril_scalar(0.0), p);
    } else {
        p = aril_softmax(s, -1);
    }
    if (dropout != 0) p = aril_dropout(p, dropout, (aril_dropout_opts){ 0 });
    return aril_escape(aril_cast(aril_matmul(p, v), type));
}

static bool same_batch(const aril_tensor *q, const aril_tensor *k)
{
    return q->ndim == k->ndim && q->ndim >= 2 &&
           aril__same_dims(q->ndim - 2, q->dim, k->ndim - 2, k->dim);
}

/* k or v, [...,G,S,E], with each head repeated for its group of q's H heads: [...,H,S,E]. */
static aril_tensor *repeat_heads(aril_tensor *t, const aril_tensor *q)
{
    int n = t->ndim;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    int64_t have = n < 3 ? 0 : t->dim[n - 3], want = q->ndim < 3 ? 0 : q->dim[q->ndim - 3];
    if (have <= 0 || want <= 0 || want % have || n == ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_SHAPE,
                   "scaled_dot_product_attention: the number of heads of q %s must be a multiple "
                   "of that of %s",
                   aril__text(a, q), aril__text(b, t));
        return aril__poison();
    }
    if (have == want) return t;
    aril_shape wide = { .ndim = n + 1 }, flat = aril__shape(t);
    for (int d = 0; d <= n; d++) wide.dim[d] = d == n - 2 ? want / have : -1;
    flat.dim[n - 3] = want;
    return aril_reshape(aril_expand(aril_unsqueeze(t, n - 2), wide), flat);
}

aril_tensor *aril_scaled_dot_product_attention(aril_tensor *q, aril_tensor *k, aril_tensor *v,
                                               aril_attention_opts opts)
{
    aril_tensor *all[3] = { q, k, v }, *mask = opts.mask;
    for (int i = 0; i < 3; i++) {
        if (!all[i]) return aril__null_tensor("scaled_dot_product_attention");
        if (aril__is_poison(all[i])) return aril__pass_on(all[i]);
    }
    if (mask && aril__is_poison(mask)) return aril__pass_on(mask);
    if (mask && opts.causal) {
        aril__fail(ARIL_ERR_ARG, "scaled_dot_product_attention: .mask and .causal exclude each "
                                 "other; make the mask causal");
        return aril__poison();
    }
    if (!(opts.dropout_p >= 0 && opts.dropout_p <= 1)) {
        aril__fail(ARIL_ERR_ARG,
                   "scaled_dot_product_attention: dropout_p must be from 0 to 1, got %g",
                   opts.dropout_p);
        return aril__poison();
    }
    if (opts.enable_gqa) {
        k = repeat_heads(k, q);
        v = repeat_heads(v, q);
        if (aril__is_poison(k) || aril__is_poison(v)) return aril__poison();
    }
    struct attention_attrs a = { { opts.scale }, { opts.causal } };
    if (opts.scale == ARIL_ZERO) {
        q = aril_mul_scalar(q, 0.0);
        a.scale[0] = 1;
    }
    bool broadcasts = !same_batch(q, k) || !same_batch(q, v);
    if (mask && mask->ndim > q->ndim) broadcasts = true;
    if (q->ndim >= 2 && k->ndim >= 2 && v->ndim >= 2 && (broadcasts || opts.dropout_p != 0))
        return by_scores(q, k, v, mask, &a, opts.dropout_p);
    return aril__op_with(&a, &aril__op_attention, q, k, v, mask);
}
