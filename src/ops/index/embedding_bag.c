/* Sums, means and maxima of embeddings, without materializing the gathered rows. The sum is linear
 * in the weight, in the factor of each entry and, in the backward pass, in the gradient: three ops
 * that are each other's gradients. */
#include "ops/index/embedding_bag.h"

#include "aril/embedding.h"
#include "aril/index.h"
#include "aril/loss.h"
#include "aril/math.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <stdlib.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_embedding_bag, aril__op_embedding_bag_grad,
    aril__op_embedding_bag_scale_grad;

ATTR_LIST(bag, BAG_ATTRS)

/* ---- shapes ---- */

static bool may_be(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}

/* Checks indices [B,L], or [n] with offsets [B], and factors; outputs the number of bags. */
static aril_status check(const aril__call *c, const aril_tensor *weight, const aril_tensor *index,
                         const aril_tensor *offsets, const aril_tensor *scale, int64_t *bags)
{
    const struct bag_attrs *at = c->attrs;
    const char *name = c->op->name;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (weight->ndim != 2)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected a weight [rows,width], got %s", name,
                          aril__text(a, weight));
    if (!aril__is_int((aril_dtype)index->dtype) ||
        (offsets && !aril__is_int((aril_dtype)offsets->dtype)))
        return aril__fail(
            ARIL_ERR_DTYPE, "%s: indices and offsets must be integers, got %s", name,
            aril__dtypes[aril__is_int((aril_dtype)index->dtype) ? offsets->dtype : index->dtype]
                .name);
    if (offsets ? index->ndim != 1 || offsets->ndim != 1 : index->ndim != 2)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: got indices %s %s; expected [B,L] alone, or [n] with offsets [B]",
                          name, aril__text(a, index), offsets ? aril__text(b, offsets) : "alone");
    if (scale && scale->dtype != c->in[0]->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: weights are %s, but embeddings are %s", name,
                          aril__dtypes[scale->dtype].name, aril__dtypes[c->in[0]->dtype].name);
    bool fits = !scale || scale->ndim == index->ndim;
    for (int d = 0; scale && fits && d < index->ndim; d++)
        fits = may_be(scale->dim[d], index->dim[d]);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: weights %s do not match indices %s", name,
                          aril__text(b, scale), aril__text(a, index));
    *bags = offsets ? offsets->dim[0] : index->dim[0];
    if (offsets && at->last[0]) *bags = *bags < 0 ? -1 : *bags - 1;
    if (offsets && *bags < 0 && offsets->dim[0] >= 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: include_last_offset needs at least one offset",
                          name);
    return ARIL_OK;
}

static aril_status check_grad(const aril__call *c, const aril_tensor *weight, int64_t bags)
{
    const aril_tensor *g = c->in[0];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (g->ndim != 2 || !may_be(g->dim[0], bags) || !may_be(g->dim[1], weight->dim[1]))
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s does not match weight %s", c->op->name,
                          aril__text(a, g), aril__text(b, weight));
    return ARIL_OK;
}

static void set_shape(aril__call *c, int i, aril_dtype dtype, int ndim, const int64_t *dim)
{
    c->out[i].dtype = dtype;
    c->out[i].ndim = ndim;
    for (int d = 0; d < ndim; d++) c->out[i].dim[d] = dim[d];
}

/* weight, index, offsets, factors -> [B,D] */
static aril_status bag_infer(aril__call *c)
{
    int64_t bags = 0;
    aril_status s = check(c, c->in[0], c->in[1], c->in[2], c->in[3], &bags);
    if (s == ARIL_OK)
        set_shape(c, 0, (aril_dtype)c->in[0]->dtype, 2, (int64_t[]){ bags, c->in[0]->dim[1] });
    return s;
}

/* g, index, offsets, factors, shape of the weight -> the weight's shape */
static aril_status bag_grad_infer(aril__call *c)
{
    int64_t bags = 0;
    aril_status s = check(c, c->in[4], c->in[1], c->in[2], c->in[3], &bags);
    if (s == ARIL_OK) s = check_grad(c, c->in[4], bags);
    if (s == ARIL_OK) set_shape(c, 0, (aril_dtype)c->in[0]->dtype, 2, c->in[4]->dim);
    return s;
}

/* g, weight, index, offsets -> the shape of index */
static aril_status bag_scale_infer(aril__call *c)
{
    int64_t bags = 0;
    aril_status s = check(c, c->in[1], c->in[2], c->in[3], NULL, &bags);
    if (s == ARIL_OK) s = check_grad(c, c->in[1], bags);
    if (s == ARIL_OK && c->in[0]->dtype != c->in[1]->dtype)
        s = aril__fail(ARIL_ERR_DTYPE, "%s: the gradient is %s, but the weight is %s", c->op->name,
                       aril__dtypes[c->in[0]->dtype].name, aril__dtypes[c->in[1]->dtype].name);
    if (s == ARIL_OK) set_shape(c, 0, (aril_dtype)c->in[0]->dtype, c->in[2]->ndim, c->in[2]->dim);
    return s;
}

/* weight, index, offsets -> row indices [B,D], and whether the bag has any [B,1] */
static aril_status bag_argmax_infer(aril__call *c)
{
    int64_t bags = 0;
    aril_status s = check(c, c->in[0], c->in[1], c->in[2], NULL, &bags);
    if (s == ARIL_OK) {
        set_shape(c, 0, ARIL_I64, 2, (int64_t[]){ bags, c->in[0]->dim[1] });
        set_shape(c, 1, ARIL_BOOL, 2, (int64_t[]){ bags, 1 });
    }
    return s;
}

/* ---- bags ---- */

static aril_status check_bags(const aril__run *r, const aril_tensor *index, int64_t rows,
                              const aril__bags *b)
{
    int64_t n = index->numel;
    for (int64_t i = 0; i < b->n; i++)
        if (b->start[i + 1] < b->start[i] || b->start[i + 1] > n)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: offset %" PRId64 " is out of range: after %" PRId64
                              ", with %" PRId64 " indices",
                              r->op->name, b->start[i + 1], b->start[i], n);
    const int64_t *at = aril__ptr(index);
    for (int64_t k = 0; k < n; k++)
        if (at[k] < 0 || at[k] >= rows)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: index %" PRId64 " is out of range for %" PRId64 " rows",
                              r->op->name, at[k], rows);
    return ARIL_OK;
}

static int64_t number_of_bags(const struct bag_attrs *a, const aril_tensor *index,
                              const aril_tensor *offsets)
{
    return offsets ? offsets->numel - a->last[0] : index->dim[0];
}

/* In all four ops the offsets follow the indices, which come third in embedding_bag_scale_grad. */
size_t aril__bags_scratch(const aril__run *r)
{
    int at = r->op == &aril__op_embedding_bag_scale_grad ? 2 : 1;
    int64_t n = number_of_bags(r->attrs, r->in[at], r->in[at + 1]);
    return (size_t)(n + 1) * (sizeof(int64_t) + sizeof(double));
}

aril_status aril__bags_find(const aril__run *r, const aril_tensor *index,
                            const aril_tensor *offsets, int64_t rows, aril__bags *b)
{
    const struct bag_attrs *a = r->attrs;
    const int64_t *offset = offsets ? aril__ptr(offsets) : NULL, *at = aril__ptr(index);
    int64_t given = offsets ? offsets->numel : 0;
    b->n = number_of_bags(a, index, offsets);
    b->start = r->workspace;
    b->count = (double *)(void *)(b->start + b->n + 1);
    if (given && offset[0] != 0)
        return aril__fail(ARIL_ERR_INDEX, "%s: the first offset is %" PRId64 ", not 0", r->op->name,
                          offset[0]);
    for (int64_t i = 0; i <= b->n; i++)
        b->start[i] = !offsets ? i * index->dim[1] : i < given ? offset[i] : index->numel;
    aril_status s = check_bags(r, index, rows, b);
    for (int64_t i = 0; i < b->n && s == ARIL_OK; i++) {
        b->count[i] = 0;
        for (int64_t k = b->start[i]; k < b->start[i + 1]; k++)
            b->count[i] += at[k] != a->padding[0];
    }
    return s;
}

/* ---- references ---- */

/* What an entry of a bag contributes to. */
typedef struct entry {
    int64_t bag, k, row; /* entry k of the indices is in this bag, and names this row */
    double factor;       /* its weight, and 1 / count in a mean */
} entry;

typedef void entry_fn(aril__run *r, entry e);

/* Calls fn for each entry that is not padding, in order. */
static aril_status each_entry(aril__run *r, const aril_tensor *index, const aril_tensor *offsets,
                              const aril_tensor *scale, int64_t rows, entry_fn *fn)
{
    const struct bag_attrs *a = r->attrs;
    aril__bags bags;
    aril_status s = aril__bags_find(r, index, offsets, rows, &bags);
    for (int64_t b = 0; b < bags.n && s == ARIL_OK; b++)
        for (int64_t k = bags.start[b]; k < bags.start[b + 1]; k++) {
            entry e = { b, k, aril__get_i64(index, k), scale ? aril__get(scale, k) : 1 };
            if (a->mean[0]) e.factor /= bags.count[b];
            if (e.row != a->padding[0]) fn(r, e);
        }
    return s;
}

static void clear(aril_tensor *t)
{
    for (int64_t i = 0; i < t->numel; i++) aril__put(t, i, 0);
}

/* y[bag] += factor * weight[row] */
static void add_to_bag(aril__run *r, entry e)
{
    aril_tensor *y = r->out[0];
    for (int64_t d = 0, n = y->dim[1]; d < n; d++)
        aril__put(y, e.bag * n + d,
                  aril__get(y, e.bag * n + d) + e.factor * aril__get(r->in[0], e.row * n + d));
}

static aril_status bag_ref(aril__run *r)
{
    clear(r->out[0]);
    return each_entry(r, r->in[1], r->in[2], r->in[3], r->in[0]->dim[0], add_to_bag);
}

/* dweight[row] += factor * g[bag] */
static void add_to_row(aril__run *r, entry e)
{
    aril_tensor *dw = r->out[0];
    for (int64_t d = 0, n = dw->dim[1]; d < n; d++)
        aril__put(dw, e.row * n + d,
                  aril__get(dw, e.row * n + d) + e.factor * aril__get(r->in[0], e.bag * n + d));
}

static aril_status bag_grad_ref(aril__run *r)
{
    clear(r->out[0]);
    return each_entry(r, r->in[1], r->in[2], r->in[3], r->in[4]->dim[0], add_to_row);
}

/* dscale[k] = factor * (g[bag] . weight[row]) */
static void put_dot(aril__run *r, entry e)
{
    const aril_tensor *g = r->in[0], *weight = r->in[1];
    double sum = 0;
    for (int64_t d = 0, n = weight->dim[1]; d < n; d++)
        sum += aril__get(g, e.bag * n + d) * aril__get(weight, e.row * n + d);
    aril__put(r->out[0], e.k, e.factor * sum);
}

static aril_status bag_scale_ref(aril__run *r)
{
    clear(r->out[0]); /* of padding, and of entries outside every bag */
    return each_entry(r, r->in[2], r->in[3], NULL, r->in[1]->dim[0], put_dot);
}

/* The first of the largest rows, or the first NaN, in each column. */
static void keep_largest(aril__run *r, entry e)
{
    aril_tensor *best = r->out[0], *present = r->out[1];
    bool first = aril__get_i64(present, e.bag) == 0;
    for (int64_t d = 0, n = best->dim[1]; d < n; d++) {
        int64_t old = aril__get_i64(best, e.bag * n + d);
        if (first || aril__compare(r->in[0], e.row * n + d, r->in[0], old * n + d) > 0)
            aril__put_i64(best, e.bag * n + d, e.row);
    }
    aril__put_i64(present, e.bag, 1);
}

static aril_status bag_argmax_ref(aril__run *r)
{
    clear(r->out[0]);
    clear(r->out[1]);
    return each_entry(r, r->in[1], r->in[2], NULL, r->in[0]->dim[0], keep_largest);
}

/* ---- op table rows ---- */

static aril_tensor *sums(const void *attrs, aril_tensor *weight, aril_tensor *index,
                         aril_tensor *offsets, aril_tensor *scale)
{
    return aril__op_with(attrs, &aril__op_embedding_bag, weight, index, offsets, scale);
}

static aril_tensor *spread(const void *attrs, aril_tensor *g, aril_tensor *index,
                           aril_tensor *offsets, aril_tensor *scale, aril_tensor *like)
{
    return aril__op_with(attrs, &aril__op_embedding_bag_grad, g, index, offsets, scale, like);
}

static aril_tensor *dots(const void *attrs, aril_tensor *g, aril_tensor *weight, aril_tensor *index,
                         aril_tensor *offsets)
{
    return aril__op_with(attrs, &aril__op_embedding_bag_scale_grad, g, weight, index, offsets);
}

VJP(embedding_bag)
{
    if (!c->g[0]) return;
    GRAD(0, spread(c->attrs, c->g[0], c->x[1], c->x[2], c->x[3], c->x[0]));
    GRAD(3, dots(c->attrs, c->g[0], c->x[0], c->x[1], c->x[2]));
}

VJP(embedding_bag_grad)
{
    if (!c->g[0]) return;
    GRAD(0, sums(c->attrs, c->g[0], c->x[1], c->x[2], c->x[3]));
    GRAD(3, dots(c->attrs, c->x[0], c->g[0], c->x[1], c->x[2]));
}

VJP(embedding_bag_scale_grad)
{
    if (!c->g[0]) return;
    GRAD(0, sums(c->attrs, c->x[1], c->x[2], c->x[3], c->g[0]));
    GRAD(1, spread(c->attrs, c->x[0], c->x[2], c->x[3], c->g[0], c->x[1]));
}

static const struct bag_attrs sum = { .padding = { -1 } };
static const struct bag_attrs mean = { .mean = { 1 }, .padding = { 2 } };
static const struct bag_attrs last = { .padding = { -1 }, .last = { 1 } };
/* Random offsets must be sorted: use all 0, so that the last bag has every entry. */
static const aril__sample bag_samples[] = {
    { .in = { "[5,3]", "i5[N,4]", "-", "-" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "[5,3]", "i5[N,4]", "-", "[N,4]" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "[5,3]", "i5[3,4]", "-", "-" }, .attrs = &mean },
    { .in = { "[5,3]", "i5[6]", "i1[2]", "[6]" }, .attrs = &mean },
    { .in = { "[5,3]", "i5[6]", "i1[3]", "-" }, .attrs = &last },
    { .in = { "[5,3]", "i5[0]", "i1[2]", "-" }, .attrs = &sum },
    SAMPLE_END
};
OP(embedding_bag, .doc = "sum or mean of the rows of a weight in each bag of indices", .min_in = 4,
   .max_in = 4, .n_out = 1, .optional = IN(2) | IN(3), .index_in = IN(1) | IN(2), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = bag_infer, .ref = bag_ref,
   .workspace = aril__bags_scratch, .vjp = embedding_bag_vjp,
   .saves = { LIKE(0) | IN(1) | IN(2) | IN(3), 0, 0, IN(0) | IN(1) | IN(2) },
   .samples = bag_samples, WITH_ATTRS(bag));

static const aril__sample bag_grad_samples[] = {
    { .in = { "[N,3]", "i5[N,4]", "-", "-", "[5,3]" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "[3,3]", "i5[3,4]", "-", "[3,4]", "[5,3]" }, .attrs = &mean },
    { .in = { "[2,3]", "i5[6]", "i1[2]", "[6]", "[5,3]" }, .attrs = &sum },
    SAMPLE_END
};
OP(embedding_bag_grad, .doc = "gradient of embedding_bag: sums of rows by index", .min_in = 5,
   .max_in = 5, .n_out = 1, .optional = IN(2) | IN(3), .shape_only = IN(4),
   .index_in = IN(1) | IN(2), .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .flags = GRADIENT, .infer = bag_grad_infer, .ref = bag_grad_ref, .workspace = aril__bags_scratch,
   .vjp = embedding_bag_grad_vjp, .saves = { IN(1) | IN(2) | IN(3), 0, 0, IN(0) | IN(1) | IN(2) },
   .samples = bag_grad_samples, WITH_ATTRS(bag));

static const aril__sample bag_scale_samples[] = {
    { .in = { "[N,3]", "[5,3]", "i5[N,4]", "-" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "[2,3]", "[5,3]", "i5[6]", "i1[2]" }, .attrs = &mean },
    SAMPLE_END
};
OP(embedding_bag_scale_grad,
   .doc = "gradient of embedding_bag with respect to the weight of each entry", .min_in = 4,
   .max_in = 4, .n_out = 1, .optional = IN(3), .index_in = IN(2) | IN(3), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .flags = GRADIENT, .infer = bag_scale_infer,
   .ref = bag_scale_ref, .workspace = aril__bags_scratch, .vjp = embedding_bag_scale_grad_vjp,
   .saves = { IN(1) | IN(2) | IN(3), LIKE(1) | IN(0) | IN(2) | IN(3), 0, 0 },
   .samples = bag_scale_samples, WITH_ATTRS(bag));

static const aril__sample bag_argmax_samples[] = {
    { .in = { "d[5,3]", "i5[N,4]", "-" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "d[5,3]", "i5[6]", "i1[2]" }, .attrs = &mean },
    SAMPLE_END
};
OP(embedding_bag_argmax, .doc = "index of the largest row of a bag, for each column", .min_in = 3,
   .max_in = 3, .n_out = 2, .flags = NONDIFF, .optional = IN(2), .index_in = IN(1) | IN(2),
   .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = bag_argmax_infer,
   .ref = bag_argmax_ref, .workspace = aril__bags_scratch, .samples = bag_argmax_samples,
   WITH_ATTRS(bag));

/* ---- public ---- */

static aril_tensor *wrong(aril_status s)
{
    (void)s;
    return aril__poison();
}

aril_tensor *aril_embedding_bag(aril_tensor *index, aril_tensor *weight, aril_tensor *offsets,
                                aril_embedding_bag_opts o)
{
    ARIL_SCOPE;
    struct bag_attrs a = { .mean = { o.mode == ARIL_MEAN }, .last = { o.include_last_offset } };
    if (!index || !weight) return aril_escape(aril__null_tensor("embedding_bag"));
    if (aril__is_poison(weight)) return aril_escape(aril__pass_on(weight));
    if (o.mode != ARIL_MEAN && o.mode != ARIL_SUM && o.mode != ARIL_MAX)
        return aril_escape(wrong(aril__fail(
            ARIL_ERR_ARG, "embedding_bag: mode %d is not ARIL_MEAN, ARIL_SUM or ARIL_MAX",
            (int)o.mode)));
    if (o.per_sample_weights && o.mode != ARIL_SUM)
        return aril_escape(wrong(
            aril__fail(ARIL_ERR_ARG, "embedding_bag: per_sample_weights need mode ARIL_SUM")));
    if (o.include_last_offset && !offsets)
        return aril_escape(
            wrong(aril__fail(ARIL_ERR_ARG, "embedding_bag: include_last_offset needs offsets")));
    int64_t rows = weight->ndim ? weight->dim[0] : 0, pad = o.padding_idx;
    a.padding[0] = pad == 0 ? -1 : pad == ARIL_ZERO ? 0 : pad < 0 && rows >= 0 ? pad + rows : pad;
    if (pad && (a.padding[0] < 0 || (rows >= 0 && a.padding[0] >= rows)))
        return aril_escape(wrong(aril__fail(ARIL_ERR_INDEX,
                                            "embedding_bag: padding_idx %" PRId64
                                            " is out of range for %" PRId64 " rows",
                                            pad, rows)));
    if (o.mode != ARIL_MAX)
        return aril_escape(sums(&a, weight, index, offsets, o.per_sample_weights));
    aril_tensor *best[2];
    aril_tensor *in[3] = { weight, index, offsets };
    if (aril__apply(&aril__op_embedding_bag_argmax, 3, in, &a, best) < 0)
        return aril_escape(best[0]);
    return aril_escape(aril_where(best[1], aril_gather(weight, best[0], 0), aril_scalar(0.0)));
}
