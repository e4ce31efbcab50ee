/* Samples of categories: indices drawn by weight, and the Gumbel softmax. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "core/parallel.h"
#include "ops/random/random.h"
#include "ops/shape/create.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- multinomial: key, weights ---- */

#define MULTINOMIAL_ATTRS(A) \
    A(multinomial, I64, 1, n, 1, "sample_size") A(multinomial, I64, 1, replacement, 0, NULL)
ATTRS(multinomial, MULTINOMIAL_ATTRS)
ATTR_LIST(multinomial, MULTINOMIAL_ATTRS)

static aril_status multinomial_infer(aril__call *c)
{
    const struct multinomial_attrs *a = c->attrs;
    const aril_tensor *w = c->in[1];
    aril__meta *o = &c->out[0];
    char text[ARIL__SHAPE_TEXT];
    aril_status s = aril__rng_check_key(c);
    if (s < 0) return s;
    if (!aril__is_float((aril_dtype)w->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "multinomial: needs weights in floating point, got %s",
                          aril__dtypes[w->dtype].name);
    if (w->ndim < 1 || w->ndim > 2 || w->dim[w->ndim - 1] == 0)
        return aril__fail(ARIL_ERR_SHAPE, "multinomial: needs weights [k] or [rows,k], got %s",
                          aril__text(text, w));
    int64_t n = a->n[0], k = w->dim[w->ndim - 1];
    if (n < 1)
        return aril__fail(ARIL_ERR_ARG, "multinomial: needs at least 1 draw, got %lld",
                          (long long)n);
    if (!a->replacement[0] && k >= 0 && n > k)
        return aril__fail(ARIL_ERR_ARG, "multinomial: cannot draw %lld of %lld without replacement",
                          (long long)n, (long long)k);
    c->type = (aril_dtype)w->dtype;
    o->dtype = ARIL_I64;
    o->ndim = w->ndim;
    o->dim[0] = w->dim[0];
    o->dim[w->ndim - 1] = n;
    return ARIL_OK;
}

enum { FINE, BAD_WEIGHT, NO_WEIGHT, TOO_FEW };

typedef struct job {
    aril__rng_key key;
    const void *weights;
    bool wide, replacement;
    int64_t k, n, grain, *out;
    char *scratch; /* row_bytes for each slot */
    atomic_int wrong;
} job;

/* An index and the position of its weight on the way, or its waiting time. */
typedef struct candidate {
    double at;
    int64_t index;
} candidate;

static double weight(const job *j, int64_t row, int64_t i)
{
    return j->wide ? ((const double *)j->weights)[row * j->k + i]
                   : (double)((const float *)j->weights)[row * j->k + i];
}

/* With replacement: the first index whose sum of weights up to it is above a uniform number. */
static int draw_again(const job *j, int64_t row, candidate *sums, double *uniform)
{
    double total = 0;
    int64_t m = 0; /* positive weights */
    for (int64_t i = 0; i < j->k; i++) {
        double w = weight(j, row, i);
        total += w;
        if (w > 0) sums[m++] = (candidate){ total, i };
    }
    if (m == 0) return NO_WEIGHT;
    aril__rng_uniform_f64(j->key, row * j->n, (row + 1) * j->n, uniform);
    for (int64_t d = 0; d < j->n; d++) {
        int64_t low = 0, high = m - 1;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (sums[middle].at > uniform[d] * total)
                high = middle;
            else
                low = middle + 1;
        }
        j->out[row * j->n + d] = sums[low].index;
    }
    return FINE;
}

static bool later(candidate a, candidate b)
{
    return a.at > b.at || (a.at == b.at && a.index > b.index);
}

/* Restores the heap, with the latest on top, below position i. */
static void sift(candidate *heap, int64_t n, int64_t i)
{
    candidate moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && later(heap[child + 1], heap[child])) child++;
        if (!later(heap[child], moved)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

/* Without: each index comes after a waiting time, exponential with its weight as the rate; those
 * that come first are the sample, in its order. */
static int draw_distinct(const job *j, int64_t row, candidate *heap, double *uniform)
{
    int64_t m = 0;
    aril__rng_uniform_f64(j->key, row * j->k, (row + 1) * j->k, uniform);
    for (int64_t i = 0; i < j->k; i++) {
        double w = weight(j, row, i);
        if (!(w > 0)) continue;
        candidate one = { -log1p(-uniform[i]) / w, i };
        if (m < j->n) {
            heap[m++] = one;
            for (int64_t p = m / 2 - 1; m == j->n && p >= 0; p--) sift(heap, m, p);
        } else if (later(heap[0], one)) {
            heap[0] = one;
            sift(heap, m, 0);
        }
    }
    if (m < j->n) return m ? TOO_FEW : NO_WEIGHT;
    for (int64_t left = m; left > 0; left--) {
        j->out[row * j->n + left - 1] = heap[0].index;
        heap[0] = heap[left - 1];
        sift(heap, left - 1, 0);
    }
    return FINE;
}

static int draw_row(const job *j, int64_t row, candidate *buffer, double *uniform)
{
    double total = 0;
    for (int64_t i = 0; i < j->k; i++) {
        double w = weight(j, row, i);
        if (!(w >= 0)) return BAD_WEIGHT;
        total += w;
    }
    if (!(total < INFINITY)) return BAD_WEIGHT;
    return j->replacement ? draw_again(j, row, buffer, uniform)
                          : draw_distinct(j, row, buffer, uniform);
}

/* Candidates and uniform numbers. */
static size_t row_bytes(const job *j)
{
    return (size_t)j->k * sizeof(candidate) +
           (size_t)(j->replacement ? j->n : j->k) * sizeof(double);
}

static void draw_rows(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    candidate *buffer = (candidate *)(void *)(j->scratch + (size_t)slot * row_bytes(j));
    double *uniform = (double *)(void *)(buffer + j->k);
    int wrong = FINE;
    for (int64_t row = begin; row < end && wrong == FINE; row++)
        wrong = draw_row(j, row, buffer, uniform);
    if (wrong) atomic_store_explicit(&j->wrong, wrong, memory_order_relaxed);
}

static int64_t size_rows(const aril__run *r, job *j)
{
    const struct multinomial_attrs *a = r->attrs;
    const aril_tensor *w = r->in[1];
    j->replacement = a->replacement[0] != 0;
    j->k = w->dim[w->ndim - 1];
    j->n = a->n[0];
    j->grain = 1 + 4096 / (j->k + j->n);
    return w->ndim == 2 ? w->dim[0] : 1;
}

static size_t multinomial_scratch(const aril__run *r)
{
    job j = { 0 };
    int64_t rows = size_rows(r, &j);
    return (size_t)aril__parallel_slots(rows, j.grain) * row_bytes(&j);
}

static aril_status multinomial_ref(aril__run *r)
{
    const aril_tensor *w = r->in[1];
    job j = { .key = aril__rng_key_of(r),
              .weights = aril__ptr(w),
              .wide = w->dtype == ARIL_F64,
              .out = aril__ptr(r->out[0]),
              .scratch = r->workspace };
    int64_t rows = size_rows(r, &j);
    int slots = (int)(r->workspace_bytes / row_bytes(&j));
    aril__parallel_for_slots(rows, j.grain, slots, draw_rows, &j);
    switch (atomic_load_explicit(&j.wrong, memory_order_relaxed)) {
    case BAD_WEIGHT:
        return aril__fail(ARIL_ERR_ARG, "multinomial: weights must be finite and not negative");
    case NO_WEIGHT:
        return aril__fail(ARIL_ERR_ARG, "multinomial: needs a positive weight in each row");
    case TOO_FEW:
        return aril__fail(ARIL_ERR_ARG,
                          "multinomial: fewer than %lld positive weights in a row to draw from "
                          "without replacement",
                          (long long)j.n);
    default: return ARIL_OK;
    }
}

static const aril__sample multinomial_samples[] = {
    { .in = { "key", "p[4,5]" }, .attrs = &(const struct multinomial_attrs){ { 7 }, { 1 } } },
    { .in = { "key", "p[4,5]" }, .attrs = &(const struct multinomial_attrs){ { 3 }, { 0 } } },
    { .in = { "key", "p[6]" }, .attrs = &(const struct multinomial_attrs){ { 6 }, { 0 } } },
    { .in = { "key", "p[1]" }, .attrs = &(const struct multinomial_attrs){ { 2 }, { 1 } } },
    { .in = { "key", "p[0,3]" }, .attrs = &(const struct multinomial_attrs){ { 2 }, { 1 } } },
    SAMPLE_END
};
OP(multinomial, .doc = "indices drawn with probabilities proportional to weights",
   .onnx = "Multinomial", .min_in = 2, .max_in = 2, .n_out = 1, .flags = NONDIFF | RANDOM,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = multinomial_infer, .ref = multinomial_ref,
   .workspace = multinomial_scratch, .samples = multinomial_samples, WITH_ATTRS(multinomial));

aril_tensor *aril_multinomial_from(aril_generator *g, aril_tensor *weights, int64_t n,
                                   bool replacement)
{
    if (!weights) return aril__null_tensor("multinomial");
    if (aril__is_poison(weights)) return aril__pass_on(weights);
    struct multinomial_attrs a = { { n }, { replacement } };
    return aril__op_with(&a, &aril__op_multinomial, aril__rng_draw(g), weights);
}

aril_tensor *aril_multinomial(aril_tensor *weights, int64_t n, bool replacement)
{
    return aril_multinomial_from(NULL, weights, n, replacement);
}

/* ---- Gumbel softmax ---- */

/* -log(-log(u)), in f32 at least: f16 would round some u to 1. */
static aril_tensor *gumbel_like(aril_generator *g, aril_tensor *x)
{
    ARIL_NO_GRAD;
    aril_tensor *like = x->dtype == ARIL_F64 ? x : aril_cast(x, ARIL_F32);
    struct create_attrs unit = { .value = { 0, 1 } };
    aril_tensor *u = aril__op_with(&unit, &aril__op_rand, aril__rng_draw(g), like);
    aril_tensor *time = aril_neg(aril_log(aril_clamp_min(u, 0x1p-64)));
    return aril_cast(aril_neg(aril_log(time)), (aril_dtype)x->dtype);
}

/* 1 at the largest element along the axis, else 0, less y: without a gradient. */
static aril_tensor *to_one_hot(aril_tensor *y, int axis)
{
    ARIL_NO_GRAD;
    aril_tensor *at = aril_argmax(y, ARIL_KEEPDIM(axis));
    aril_tensor *ones = aril_cast(aril_ones_like(at), (aril_dtype)y->dtype);
    return aril_sub(aril_scatter(aril_zeros_like(y), at, ones, axis), y);
}

aril_tensor *aril_gumbel_softmax_from(aril_generator *g, aril_tensor *x, int axis,
                                      aril_gumbel_opts opts)
{
    if (!x) return aril__null_tensor("gumbel_softmax");
    if (aril__is_poison(x)) return aril__pass_on(x);
    double tau = opts.tau == 0 ? 1 : opts.tau;
    int at = aril__axis("gumbel_softmax", axis, x->ndim);
    if (at < 0) return aril__poison();
    if (!aril__is_float((aril_dtype)x->dtype) || !(tau > 0)) {
        aril__fail(ARIL_ERR_ARG, "gumbel_softmax: needs floats and a positive tau, got %s and %g",
                   aril__dtypes[x->dtype].name, tau);
        return aril__poison();
    }
    ARIL_SCOPE;
    aril_tensor *noisy = aril_add(x, gumbel_like(g, x));
    aril_tensor *y = aril_softmax(aril_div_scalar(noisy, tau), at);
    return aril_escape(opts.hard ? aril_add(to_one_hot(y, at), y) : y);
}

aril_tensor *aril_gumbel_softmax(aril_tensor *x, int axis, aril_gumbel_opts opts)
{
    return aril_gumbel_softmax_from(NULL, x, axis, opts);
}
