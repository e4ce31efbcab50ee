/* Sums, means and maxima of embeddings, without materializing the gathered rows. The sum is linear
 * in the weight, in the factor of each entry and, in the backward pass, in the gradient: three ops
 * that are each other's gradients. */
#include "ops/index/embedding_bag.h"

#include "aril/embedding.h"
#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <stdlib.h>

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
        return aril__fail(ARIL_ERR_SHAPE, "%s: a weight [rows,width] expected, got %s", name,
                          aril__text(a, weight));
    if (!aril__is_int((aril_dtype)index->dtype) ||
        (offsets && !aril__is_int((aril_dtype)offsets->dtype)))
        return aril__fail(
            ARIL_ERR_DTYPE, "%s: indices and offsets must be integers, got %s", name,
            aril__dtypes[aril__is_int((aril_dtype)index->dtype) ? offsets->dtype : index->dtype]
                .name);
    if (offsets ? index->ndim != 1 || offsets->ndim != 1 : index->ndim != 2)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: indices %s %s: [B,L] alone, or [n] with offsets [B] expected", name,
                          aril__text(a, index), offsets ? aril__text(b, offsets) : "alone");
    if (scale && scale->dtype != c->in[0]->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: weights of %s for embeddings of %s", name,
                          aril__dtypes[scale->dtype].name, aril__dtypes[c->in[0]->dtype].name);
    bool fits = !scale || scale->ndim == index->ndim;
    for (int d = 0; scale && fits && d < index->ndim; d++)
        fits = may_be(scale->dim[d], index->dim[d]);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s: weights %s for indices %s", name,
                          aril__text(b, scale), aril__text(a, index));
    *bags = offsets ? offsets->dim[0] : index->dim[0];
    if (offsets && *bags >= 0) *bags -= at->last[0];
    if (offsets && *bags < 0 && offsets->dim[0] >= 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: no offsets, and the last one is to end the last bag",
                          name);
    return ARIL_OK;
}

static aril_status check_grad(const aril__call *c, const aril_tensor *weight, int64_t bags)
{
    const aril_tensor *g = c->in[0];
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (g->ndim != 2 || !may_be(g->dim[0], bags) || !may_be(g->dim[1], weight->dim[1]))
        return aril__fail(ARIL_ERR_SHAPE, "%s: gradient %s for a weight %s", c->op->name,
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
        s = aril__fail(ARIL_ERR_DTYPE, "%s: gradient of %s for a weight of %s", c->op->name,
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

/* ---- kernels ---- */

enum { BLOCK = 64, GRAIN = 16 * 1024 };

typedef struct bag_job {
    const void *weight, *scale, *g;
    const int64_t *index;
    int64_t *start; /* start of each bag, and the end of the last one */
    double *count;  /* non-padding entries of each bag */
    void *out, *present;
    int64_t bags, rows, width, padding;
    bool mean;
} bag_job;

#define TEMPLATE "ops/index/embedding_bag.inc"
#include "ops/table/each_real.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_embedding_bag, aril__op_embedding_bag_grad,
    aril__op_embedding_bag_scale_grad;

static aril_status find_bags(const aril__run *r, const aril_tensor *index,
                             const aril_tensor *offsets, bag_job *j)
{
    const struct bag_attrs *at = r->attrs;
    const int64_t *offset = offsets ? aril__ptr(offsets) : NULL;
    int64_t n = index->numel, given = offsets ? offsets->numel : 0;
    for (int64_t b = 0; b <= j->bags; b++)
        j->start[b] = !offsets ? b * index->dim[1] : b < given ? offset[b] : n;
    if (offsets && given && offset[0] != 0)
        return aril__fail(ARIL_ERR_INDEX, "%s: the first offset is %" PRId64 ", not 0", r->op->name,
                          offset[0]);
    for (int64_t b = 0; b < j->bags; b++) {
        if (j->start[b + 1] < j->start[b] || j->start[b + 1] > n)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: offset %" PRId64 " is out of range: after %" PRId64
                              ", with %" PRId64 " indices",
                              r->op->name, j->start[b + 1], j->start[b], n);
        j->count[b] = 0;
        for (int64_t k = j->start[b]; k < j->start[b + 1]; k++)
            j->count[b] += j->index[k] != at->padding[0];
    }
    for (int64_t k = 0; k < n; k++)
        if (j->index[k] < 0 || j->index[k] >= j->rows)
            return aril__fail(ARIL_ERR_INDEX,
                              "%s: index %" PRId64 " is out of range for %" PRId64 " rows",
                              r->op->name, j->index[k], j->rows);
    return ARIL_OK;
}

typedef enum bag_kernel { SUMS, SPREAD, DOTS, ARGMAX } bag_kernel;

static aril_status run_bag(aril__run *r, bag_kernel kind, const aril_tensor *g,
                           const aril_tensor *weight, const aril_tensor *index,
                           const aril_tensor *offsets, const aril_tensor *scale)
{
    static aril__range_fn *const kernel[][2] = { { bag_sums_f32, bag_sums_f64 },
                                                 { bag_spread_f32, bag_spread_f64 },
                                                 { bag_dots_f32, bag_dots_f64 },
                                                 { bag_argmax_f32, bag_argmax_f64 } };
    const struct bag_attrs *at = r->attrs;
    bag_job j = { .weight = kind == SPREAD ? NULL : aril__ptr(weight),
                  .scale = scale ? aril__ptr(scale) : NULL,
                  .g = g ? aril__ptr(g) : NULL,
                  .index = aril__ptr(index),
                  .out = aril__ptr(r->out[0]),
                  .present = kind == ARGMAX ? aril__ptr(r->out[1]) : NULL,
                  .bags = offsets ? offsets->numel - at->last[0] : index->dim[0],
                  .rows = weight->dim[0],
                  .width = weight->dim[1],
                  .padding = at->padding[0],
                  .mean = at->mean[0] };
    size_t bags = (size_t)j.bags;
    j.start = aril__malloc((bags + 1) * sizeof *j.start);
    j.count = aril__malloc((bags + 1) * sizeof *j.count);
    aril_status s = j.start && j.count ? find_bags(r, index, offsets, &j)
                                       : aril__fail(ARIL_ERR_MEMORY, "%s: no memory for %zu bags",
                                                    r->op->name, bags);
    if (s == ARIL_OK) {
        if (kind == DOTS) /* entries outside every bag */
            for (int64_t i = 0; i < index->numel; i++)
                aril__dtypes[r->type].store[ARIL__C_F64](j.out, i, 1, &(double){ 0 }, 1);
        /* Split by columns where bags write to the same rows, else by bags. */
        int64_t n = kind == SPREAD ? j.width : j.bags;
        int64_t each = kind == SPREAD ? index->numel + j.rows
                                      : j.width * (index->numel / (j.bags ? j.bags : 1) + 1);
        int64_t grain = GRAIN / (each > 0 ? each : 1);
        aril__parallel_for(n, grain > 1 ? grain : 1, kernel[kind][r->type == ARIL_F64], &j);
    }
    free(j.start);
    free(j.count);
    return s;
}

static aril_status bag_ref(aril__run *r)
{
    return run_bag(r, SUMS, NULL, r->in[0], r->in[1], r->in[2], r->in[3]);
}

static aril_status bag_grad_ref(aril__run *r)
{
    return run_bag(r, SPREAD, r->in[0], r->in[4], r->in[1], r->in[2], r->in[3]);
}

static aril_status bag_scale_ref(aril__run *r)
{
    return run_bag(r, DOTS, r->in[0], r->in[1], r->in[2], r->in[3], NULL);
}

static aril_status bag_argmax_ref(aril__run *r)
{
    return run_bag(r, ARGMAX, NULL, r->in[0], r->in[1], r->in[2], NULL);
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
OP(embedding_bag, .doc = "sums or means of rows of a weight picked by index", .min_in = 4,
   .max_in = 4, .n_out = 1, .optional = IN(2) | IN(3), .index_in = IN(1) | IN(2), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = bag_infer, .ref = bag_ref,
   .vjp = embedding_bag_vjp,
   .saves = { LIKE(0) | IN(1) | IN(2) | IN(3), 0, 0, IN(0) | IN(1) | IN(2) },
   .samples = bag_samples, WITH_ATTRS(bag));

static const aril__sample bag_grad_samples[] = {
    { .in = { "[N,3]", "i5[N,4]", "-", "-", "[5,3]" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "[3,3]", "i5[3,4]", "-", "[3,4]", "[5,3]" }, .attrs = &mean },
    { .in = { "[2,3]", "i5[6]", "i1[2]", "[6]", "[5,3]" }, .attrs = &sum },
    SAMPLE_END
};
OP(embedding_bag_grad, .doc = "gradient of embedding_bag: rows added by index", .min_in = 5,
   .max_in = 5, .n_out = 1, .optional = IN(2) | IN(3), .shape_only = IN(4),
   .index_in = IN(1) | IN(2), .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = bag_grad_infer, .ref = bag_grad_ref, .vjp = embedding_bag_grad_vjp,
   .saves = { IN(1) | IN(2) | IN(3), 0, 0, IN(0) | IN(1) | IN(2) }, .samples = bag_grad_samples,
   WITH_ATTRS(bag));

static const aril__sample bag_scale_samples[] = {
    { .in = { "[N,3]", "[5,3]", "i5[N,4]", "-" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "[2,3]", "[5,3]", "i5[6]", "i1[2]" }, .attrs = &mean },
    SAMPLE_END
};
OP(embedding_bag_scale_grad, .doc = "gradient of embedding_bag for the weight of each entry",
   .min_in = 4, .max_in = 4, .n_out = 1, .optional = IN(3), .index_in = IN(2) | IN(3),
   .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = bag_scale_infer,
   .ref = bag_scale_ref, .vjp = embedding_bag_scale_grad_vjp,
   .saves = { IN(1) | IN(2) | IN(3), LIKE(1) | IN(0) | IN(2) | IN(3), 0, 0 },
   .samples = bag_scale_samples, WITH_ATTRS(bag));

static const aril__sample bag_argmax_samples[] = {
    { .in = { "d[5,3]", "i5[N,4]", "-" }, .attrs = &sum, .flags = SAMPLE_BATCH },
    { .in = { "d[5,3]", "i5[6]", "i1[2]" }, .attrs = &mean },
    SAMPLE_END
};
OP(embedding_bag_argmax, .doc = "which row of a bag is the largest, in each column", .min_in = 3,
   .max_in = 3, .n_out = 2, .flags = NONDIFF, .optional = IN(2), .index_in = IN(1) | IN(2),
   .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = bag_argmax_infer,
   .ref = bag_argmax_ref, .samples = bag_argmax_samples, WITH_ATTRS(bag));

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
            aril__fail(ARIL_ERR_ARG, "embedding_bag: per_sample_weights go with ARIL_SUM alone")));
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
