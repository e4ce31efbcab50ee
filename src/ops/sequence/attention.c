/* Scaled dot product attention. The full score matrix is never in memory: kernels go tile by tile
 * and keep the log-sum-exp of each query. */
#include "ops/sequence/attention.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/flops.h"
#include "ops/shape/like.h"
#include "ops/norm/norm.h"
#include "ops/table/sample.h"
#include "ops/vector/targets.h"

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

/* ---- kernels ---- */

enum { QUERIES = 16, KEYS = 32, DEPTH = 64, GRAIN = 64 * 1024 };

typedef struct attention_job {
    aril__attention a;
    int64_t query_tiles, key_tiles;
} attention_job;

#define TEMPLATE "ops/sequence/attention.inc"
#include "ops/vector/each_target.inc"

static void set_mask(aril__attention *j, const aril_tensor *mask)
{
    if (!mask) return;
    if (mask->dtype == ARIL_BOOL)
        j->allowed = aril__ptr(mask);
    else
        j->added = aril__ptr(mask);
    int lead = j->batch_ndim + 2 - mask->ndim;
    for (int d = 0; d < j->batch_ndim + 2; d++) {
        int64_t step = d < lead || mask->dim[d - lead] == 1 ? 0 : mask->stride[d - lead];
        *(d < j->batch_ndim    ? &j->mask_step[d]
          : d == j->batch_ndim ? &j->mask_row
                               : &j->mask_col) = step;
    }
}

aril__attention aril__attention_of(const aril__run *r)
{
    const struct attention_attrs *a = r->attrs;
    const aril_tensor *q = r->in[Q], *k = r->in[K], *v = r->in[V];
    int n = q->ndim;
    aril__attention j = { .batch = 1,
                          .l = q->dim[n - 2],
                          .s = k->dim[n - 2],
                          .e = q->dim[n - 1],
                          .ev = v->dim[n - 1],
                          .causal = a->causal[0],
                          .scale = a->scale[0],
                          .q = aril__ptr(q),
                          .k = aril__ptr(k),
                          .v = aril__ptr(v),
                          .batch_ndim = n - 2 };
    for (int d = 0; d < n - 2; d++) {
        j.batch_dim[d] = q->dim[d];
        j.batch *= q->dim[d];
    }
    if (j.scale == 0) j.scale = j.e ? 1 / sqrt((double)j.e) : 1;
    set_mask(&j, r->in[MASK]);
    if (r->op == &aril__op_attention_grad) {
        j.y = aril__ptr(r->in[Y]);
        j.lse = aril__ptr(r->in[LSE]);
        j.g = r->in[G] ? aril__ptr(r->in[G]) : NULL;
        j.g_lse = r->in[G_LSE] ? aril__ptr(r->in[G_LSE]) : NULL;
        for (int i = 0; i < 3; i++)
            *(i == 0 ? &j.dq : i == 1 ? &j.dk : &j.dv) = aril__ptr(r->out[i]);
    } else {
        j.y = aril__ptr(r->out[0]);
        j.lse = aril__ptr(r->out[1]);
    }
    return j;
}

static attention_job job_of(const aril__run *r)
{
    attention_job j = { .a = aril__attention_of(r) };
    j.query_tiles = (j.a.l + QUERIES - 1) / QUERIES;
    j.key_tiles = (j.a.s + KEYS - 1) / KEYS;
    return j;
}

static void run_tiles(attention_job *j, int64_t tiles, int64_t work, aril__range_fn *fn)
{
    int64_t grain = GRAIN / (work > 0 ? work : 1);
    aril__parallel_for(tiles, grain > 1 ? grain : 1, fn, j);
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
        return aril__fail(ARIL_ERR_ARG, "attention_grad: no gradient to start from");
    return ARIL_OK;
}

static aril_status attention_grad_ref(aril__run *r)
{
    attention_job j = job_of(r);
    const aril__attention *a = &j.a;
    bool f64 = r->type == ARIL_F64;
    j.a.delta = aril__malloc((size_t)(a->batch * a->l + 1) * (f64 ? 8 : 4));
    if (!a->delta) return aril__fail(ARIL_ERR_MEMORY, "attention_grad: no memory");
    run_tiles(&j, a->batch * a->l, a->ev, ARIL__PICK(deltas, f64));
    run_tiles(&j, a->batch * j.query_tiles, a->s * (a->e + a->ev) * QUERIES,
              ARIL__PICK(backward_queries, f64));
    run_tiles(&j, a->batch * j.key_tiles, a->l * (a->e + a->ev) * KEYS,
              ARIL__PICK(backward_keys, f64));
    free(j.a.delta);
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

OP(attention_grad, .doc = "gradient of attention: of q, k and v", .min_in = GRAD_INPUTS,
   .max_in = GRAD_INPUTS, .n_out = 3, .optional = IN(MASK) | IN(G) | IN(G_LSE), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = attention_grad_infer, .ref = attention_grad_ref,
   .decompose = attention_grad_decompose, .flops = attention_grad_flops,
   .samples = attention_grad_samples, WITH_ATTRS(attention));

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
        return aril__fail(ARIL_ERR_SHAPE, "attention: a mask %s does not broadcast to %s",
                          aril__text(a, mask), aril__shape_text(b, n, full));
    if (mask->dtype != ARIL_BOOL && mask->dtype != q->dtype && mask->dtype != aril__stat_dtype(q))
        return aril__fail(ARIL_ERR_DTYPE, "attention: a mask of type %s, expected bool or %s",
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
        return aril__fail(ARIL_ERR_DTYPE, "attention: queries of %s, keys of %s, values of %s",
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

static aril_status attention_ref(aril__run *r)
{
    attention_job j = job_of(r);
    run_tiles(&j, j.a.batch * j.query_tiles, j.a.s * (j.a.e + j.a.ev) * QUERIES,
              ARIL__PICK(forward, r->type == ARIL_F64));
    return ARIL_OK;
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
OP(attention, .doc = "softmax(q k^T scale + mask) v, and the logarithm of its sums",
   .onnx = "Attention", .min_in = 4, .max_in = 4, .n_out = 2, .optional = IN(MASK),
   .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = attention_infer,
   .ref = attention_ref, .vjp = attention_vjp,
   .saves = { SAVES_ALL, SAVES_ALL, SAVES_ALL, SAVES_ALL }, .flops = attention_flops,
   .samples = attention_samples, WITH_ATTRS(attention));

/* ---- public ---- */

/* With the full score matrix: for dropout, or for batches that broadcast. */
static aril_tensor *by_scores(aril_tensor *q, aril_tensor *k, aril_tensor *v, aril_tensor *mask,
                              const struct attention_attrs *a, double dropout)
{
    ARIL_SCOPE;
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
                   "scaled_dot_product_attention: the heads of q %s are no multiple of those of %s",
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
        aril__fail(ARIL_ERR_ARG, "scaled_dot_product_attention: a mask and .causal; make the mask "
                                 "causal instead");
        return aril__poison();
    }
    if (!(opts.dropout_p >= 0 && opts.dropout_p <= 1)) {
        aril__fail(ARIL_ERR_ARG,
                   "scaled_dot_product_attention: dropout_p must be from 0 to 1, is %g",
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
