#include "ops/reduce/sort.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/sort.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

/* ---- references ---- */

void aril__sort_order(int64_t *order, int64_t n, bool (*before)(const void *ctx, int64_t, int64_t),
                      const void *ctx, int64_t *spare)
{
    int64_t *from = order, *to = spare;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t left = 0; left < n; left += 2 * width) {
            int64_t a = left, middle = left + width < n ? left + width : n;
            int64_t b = middle, end = left + 2 * width < n ? left + 2 * width : n;
            for (int64_t k = left; k < end; k++)
                to[k] = a < middle && (b == end || !before(ctx, from[b], from[a])) ? from[a++]
                                                                                   : from[b++];
        }
        int64_t *t = from;
        from = to;
        to = t;
    }
    if (from != order) memcpy(order, from, (size_t)n * sizeof *order);
}

/* One line along the axis. */
typedef struct sorted_line {
    const aril_tensor *x;
    int64_t mask, number, n;
    bool down;
} sorted_line;

/* The position in x of element k of the line. */
static int64_t in_line(const sorted_line *l, int64_t k)
{
    return aril__reduced_at(l->x, l->mask, l->number, k);
}

/* NaN is larger than all numbers. */
static bool comes_before(const void *ctx, int64_t a, int64_t b)
{
    const sorted_line *l = ctx;
    int order = aril__compare(l->x, in_line(l, a), l->x, in_line(l, b));
    return l->down ? order > 0 : order < 0;
}

static bool is_nan(const sorted_line *l, int64_t k)
{
    return isnan(aril__get(l->x, in_line(l, k)));
}

/* Sorts each line: `give` gets its positions in order, and stores the results. */
static aril_status each_line(aril__run *r,
                             void (*give)(aril__run *r, const sorted_line *l, const int64_t *order))
{
    const struct sort_attrs *a = r->attrs;
    sorted_line l = { .x = r->in[0],
                      .mask = r->in[0]->ndim ? 1 << a->axis[0] : 0,
                      .down = a->down[0] };
    l.n = aril__reduced_count(l.x, l.mask);
    int64_t *order = r->workspace;
    for (; l.number * l.n < l.x->numel; l.number++) {
        aril__sort_order(order, l.n, comes_before, &l, order + l.n);
        give(r, &l, order);
    }
    return ARIL_OK;
}

/* The order of a line, and as much to sort by. */
static size_t line_scratch(const aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int64_t n = x->ndim ? x->dim[((const struct sort_attrs *)r->attrs)->axis[0]] : 1;
    return 2 * (size_t)n * sizeof(int64_t);
}

static void give_all(aril__run *r, const sorted_line *l, const int64_t *order)
{
    int64_t n = aril__reduced_count(r->out[0], l->mask); /* only the first k in topk */
    for (int64_t k = 0; k < n; k++) {
        int64_t to = aril__reduced_at(r->out[0], l->mask, l->number, k);
        aril__put_same(r->out[0], to, l->x, in_line(l, order[k]));
        aril__put_i64(r->out[1], to, order[k]);
    }
}

static void give_one(aril__run *r, const sorted_line *l, int64_t k)
{
    aril__put_same(r->out[0], l->number, l->x, in_line(l, k));
    aril__put_i64(r->out[1], l->number, k);
}

static void give_kth(aril__run *r, const sorted_line *l, const int64_t *order)
{
    give_one(r, l, order[((const struct sort_attrs *)r->attrs)->k[0]]);
}

/* How many elements are no NaN: those come first. */
static int64_t numbers_in(const sorted_line *l)
{
    int64_t n = 0;
    for (int64_t k = 0; k < l->n; k++) n += !is_nan(l, k);
    return n;
}

static void give_nanmedian(aril__run *r, const sorted_line *l, const int64_t *order)
{
    int64_t n = numbers_in(l);
    give_one(r, l, order[n ? (n - 1) / 2 : 0]);
}

static void give_median(aril__run *r, const sorted_line *l, const int64_t *order)
{
    int64_t n = numbers_in(l);
    give_one(r, l, order[n < l->n ? n : (n - 1) / 2]);
}

/* The last element of the longest run of equal ones, the first such run. NaN equals nothing. */
static void give_mode(aril__run *r, const sorted_line *l, const int64_t *order)
{
    int64_t best = 0, max = 0, run = 0;
    for (int64_t k = 0; k < l->n; k++) {
        bool same = k > 0 && !is_nan(l, order[k]) && !comes_before(l, order[k - 1], order[k]);
        run = same ? run + 1 : 1;
        if (run <= max) continue;
        max = run;
        best = k;
    }
    give_one(r, l, order[best]);
}

/* ---- shape inference ---- */

ATTR_LIST(sort, SORT_ATTRS)

static void both_outputs(aril__call *c, int ndim, const int64_t *dim)
{
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[1].dtype = ARIL_I64;
    for (int k = 0; k < 2; k++) {
        c->out[k].ndim = ndim;
        memcpy(c->out[k].dim, dim, (size_t)ndim * sizeof *dim);
    }
}

static aril_status check_axis(const aril__call *c)
{
    int64_t axis = ((const struct sort_attrs *)c->attrs)->axis[0];
    int ndim = c->in[0]->ndim;
    if (axis >= 0 && axis < (ndim ? ndim : 1)) return ARIL_OK;
    return aril__fail(ARIL_ERR_INDEX, "%s: axis %lld is out of range for %d dimensions",
                      c->op->name, (long long)axis, ndim);
}

static aril_status sort_infer(aril__call *c)
{
    if (check_axis(c) < 0) return ARIL_ERR_INDEX;
    both_outputs(c, c->in[0]->ndim, c->in[0]->dim);
    return ARIL_OK;
}

static aril_status topk_infer(aril__call *c)
{
    const struct sort_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    if (check_axis(c) < 0) return ARIL_ERR_INDEX;
    int64_t n = x->ndim ? x->dim[a->axis[0]] : 1;
    if (a->k[0] < (x->ndim ? 0 : 1) || (n >= 0 && a->k[0] > n)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_ARG, "topk: k is %lld, but axis %d of %s has %lld elements",
                          (long long)a->k[0], (int)a->axis[0], aril__text(text, x), (long long)n);
    }
    both_outputs(c, x->ndim, x->dim);
    for (int i = 0; i < 2 && x->ndim; i++) c->out[i].dim[a->axis[0]] = a->k[0];
    return ARIL_OK;
}

/* Ops that select one element of each line. */
static aril_status one_infer(aril__call *c)
{
    const struct sort_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    if (check_axis(c) < 0) return ARIL_ERR_INDEX;
    int64_t dim[ARIL_MAX_DIMS], n = x->ndim ? x->dim[a->axis[0]] : 1;
    int ndim = 0;
    char text[ARIL__SHAPE_TEXT];
    if (n == 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: axis %d of %s is empty", c->op->name,
                          (int)a->axis[0], aril__text(text, x));
    if (a->k[0] < 0 || (n > 0 && a->k[0] >= n))
        return aril__fail(ARIL_ERR_ARG, "%s: k is %lld, but axis %d of %s has %lld elements",
                          c->op->name, (long long)a->k[0] + 1, (int)a->axis[0], aril__text(text, x),
                          (long long)n);
    for (int d = 0; d < x->ndim; d++)
        if (d != a->axis[0])
            dim[ndim++] = x->dim[d];
        else if (a->keep[0])
            dim[ndim++] = 1;
    both_outputs(c, ndim, dim);
    return ARIL_OK;
}

static aril_status sort_ref(aril__run *r)
{
    return each_line(r, give_all);
}

static aril_status topk_ref(aril__run *r)
{
    return each_line(r, give_all);
}

static aril_status kthvalue_ref(aril__run *r)
{
    return each_line(r, give_kth);
}

static aril_status median_ref(aril__run *r)
{
    return each_line(r, give_median);
}

static aril_status nanmedian_ref(aril__run *r)
{
    return each_line(r, give_nanmedian);
}

static aril_status mode_ref(aril__run *r)
{
    return each_line(r, give_mode);
}

VJP(sort)
{
    int axis = (int)((const struct sort_attrs *)c->attrs)->axis[0];
    if (c->g[0]) GRAD(0, aril__put_back(c->g[0], axis, c->y[1], c->x[0]));
}

VJP(one)
{
    const struct sort_attrs *a = c->attrs;
    if (!c->g[0]) return;
    struct reduce_attrs axis = { { c->x[0]->ndim ? 1 << a->axis[0] : 0 }, { a->keep[0] } };
    GRAD(0, aril__put_back(aril__unreduce(c->g[0], &axis), (int)a->axis[0],
                           aril__unreduce(c->y[1], &axis), c->x[0]));
}

/* ---- op table rows ---- */

static const aril__sample sort_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .down = { 1 } } },
    { .in = { "d[40]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    SAMPLE_END
};
OP(sort, .doc = "sorts along an axis; values and indices", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = sort_infer, .ref = sort_ref,
   .workspace = line_scratch, .vjp = sort_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = sort_samples, WITH_ATTRS(sort));

static const aril__sample topk_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 }, .down = { 1 }, .k = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 3 } } },
    { .in = { "d[30,2]" },
      .attrs = &(const struct sort_attrs){ .axis = { 0 }, .down = { 1 }, .k = { 3 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 1 } } },
    { .in = { "d[3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 0 } } },
    SAMPLE_END
};
OP(topk, .doc = "the k largest or smallest elements along an axis; values and indices",
   .onnx = "TopK", .min_in = 1, .max_in = 1, .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE,
   .infer = topk_infer, .ref = topk_ref, .workspace = line_scratch, .vjp = sort_vjp,
   .saves = { OUT(1) | LIKE(0) }, .samples = topk_samples, WITH_ATTRS(sort));

static const aril__sample one_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .keep = { 1 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 1 } } },
    SAMPLE_END
};
static const aril__sample kthvalue_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 }, .k = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" },
      .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 3 }, .keep = { 1 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    SAMPLE_END
};
OP(kthvalue, .doc = "k-th smallest element along an axis, and its index", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer, .ref = kthvalue_ref,
   .workspace = line_scratch, .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = kthvalue_samples, WITH_ATTRS(sort));
OP(median, .doc = "median along an axis (the lower of two), and its index", .min_in = 1,
   .max_in = 1, .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer,
   .ref = median_ref, .workspace = line_scratch, .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = one_samples, WITH_ATTRS(sort));
OP(nanmedian, .doc = "median along an axis, ignoring NaN (the lower of two), and its index",
   .min_in = 1, .max_in = 1, .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer,
   .ref = nanmedian_ref, .workspace = line_scratch, .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) },
   .samples = one_samples, WITH_ATTRS(sort));
OP(mode, .doc = "most frequent value along an axis, and its index", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer, .ref = mode_ref,
   .workspace = line_scratch, .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = one_samples,
   WITH_ATTRS(sort));

/* ---- public ---- */

static aril_tensor *along(const aril__op *op, aril_tensor *x, int axis, struct sort_attrs a,
                          aril_tensor **indices)
{
    aril_tensor *out[ARIL__MAX_OUT];
    bool fits = true;
    if (x && !aril__is_poison(x)) {
        a.axis[0] = aril__axis(op->name, axis, x->ndim);
        fits = a.axis[0] >= 0;
    }
    if (fits)
        aril__apply(op, 1, &x, &a, out);
    else
        aril__poison_all(2, out);
    if (indices) *indices = out[1];
    return out[0];
}

aril_tensor *aril_sort(aril_tensor *x, int axis, aril_sort_opts opts, aril_tensor **indices)
{
    return along(&aril__op_sort, x, axis, (struct sort_attrs){ .down = { opts.descending } },
                 indices);
}

aril_tensor *aril_argsort(aril_tensor *x, int axis, aril_sort_opts opts)
{
    aril_tensor *indices;
    aril_drop(aril_sort(x, axis, opts, &indices));
    return indices;
}

aril_tensor *aril_topk(aril_tensor *x, int64_t k, int axis, aril_topk_opts opts,
                       aril_tensor **indices)
{
    struct sort_attrs a = { .down = { !opts.smallest }, .k = { k } };
    if (k == 0 && x && x->ndim == 0) a.k[0] = 1; /* a 0-d result has one element, as in PyTorch */
    return along(&aril__op_topk, x, axis, a, indices);
}

/* One element of each line along an axis, or of the flattened tensor. */
static aril_tensor *one_of(const aril__op *op, aril_tensor *x, aril_axes axes, int64_t k,
                           aril_tensor **indices)
{
    struct reduce_attrs r; /* checks the axes */
    aril_tensor *out[2];
    if (aril__reduce_attrs(op->name, x, axes, &r) < 0) {
        aril__poison_all(2, out);
    } else if (axes.n > 1) {
        aril__fail(ARIL_ERR_ARG,
                   "%s: got %d axes, expected one, or ARIL_ALL for the flattened tensor", op->name,
                   axes.n);
        aril__poison_all(2, out);
    } else if (axes.n == 1 || x->ndim == 0) {
        struct sort_attrs a = { .k = { k }, .keep = { axes.keepdim && x->ndim } };
        out[0] = along(op, x, axes.n ? axes.axis[0] : 0, a, &out[1]);
    } else {
        out[0] = along(op, aril_reshape(x, ARIL_SHAPE(-1)), 0, (struct sort_attrs){ .k = { k } },
                       &out[1]);
        struct reduce_attrs ones = { { r.mask[0] }, { 0 } };
        if (axes.keepdim) {
            out[0] = aril__unreduce(out[0], &ones);
            out[1] = aril__unreduce(out[1], &ones);
            aril__fail_together(2, out);
        }
    }
    if (indices) *indices = out[1];
    return out[0];
}

aril_tensor *aril_kthvalue(aril_tensor *x, int64_t k, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_kthvalue, x, axis, k - 1, indices);
}

aril_tensor *aril_median(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_median, x, axis, 0, indices);
}

aril_tensor *aril_nanmedian(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_nanmedian, x, axis, 0, indices);
}

aril_tensor *aril_mode(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_mode, x, axis, 0, indices);
}

/* ---- quantile: interpolates between neighbors of the sorted axis ---- */

/* The elements of rank [k], or [..., k, ...] where it differs between lines. */
static aril_tensor *at_rank(aril_tensor *sorted, aril_tensor *rank, int axis)
{
    aril_tensor *index = aril_cast(rank, ARIL_I64);
    return rank->ndim > 1 ? aril_gather(sorted, index, axis)
                          : aril_index_select(sorted, index, axis);
}

/* [k] as [k, 1, ...], to go along an axis of x. */
static aril_tensor *to_axis(aril_tensor *t, const aril_tensor *x, int axis)
{
    for (int d = axis + 1; d < x->ndim; d++) t = aril_unsqueeze(t, -1);
    return t;
}

/* sorted [..., n, ...], rank [k] or [..., k, ...] -> [..., k, ...] */
static aril_tensor *between(aril_tensor *sorted, aril_tensor *rank, int axis,
                            aril_quantile_mode how)
{
    aril_tensor *low = aril_floor(rank), *high = aril_ceil(rank);
    if (how == ARIL_QUANTILE_NEAREST) return at_rank(sorted, aril_round(rank), axis);
    if (how == ARIL_QUANTILE_LOWER || how == ARIL_QUANTILE_HIGHER)
        return at_rank(sorted, how == ARIL_QUANTILE_LOWER ? low : high, axis);
    aril_tensor *w = how == ARIL_QUANTILE_MIDPOINT ? aril_full_like(low, 0.5) : aril_sub(rank, low);
    w = aril_cast(w, (aril_dtype)sorted->dtype);
    if (rank->ndim == 1) w = to_axis(w, sorted, axis);
    return aril_lerp(at_rank(sorted, low, axis), at_rank(sorted, high, axis), w);
}

/* The position of each q among the elements 0 to `last` of a line. The values of a device are not
 * read here: there, a q outside 0 to 1 becomes a position that the kernel finds out of range. */
static aril_tensor *rank_of(aril_tensor *q, aril_tensor *last, aril_tensor *size)
{
    aril_tensor *rank = aril_mul(q, last);
    if (!q->storage || q->storage->device == aril__cpu_device || aril__self()->tracer) return rank;
    aril_tensor *valid = aril_logical_and(aril_ge_scalar(q, 0), aril_le_scalar(q, 1));
    return aril_where(valid, rank, aril_cast(size, (aril_dtype)rank->dtype));
}

/* sorted [..., n, ...], q [k] -> [..., k, ...]; NaN where a line holds one, which is its last. */
static aril_tensor *quantile_of_all(aril_tensor *sorted, aril_tensor *q, int axis,
                                    aril_quantile_mode how)
{
    aril_tensor *first = aril_slice(sorted, axis, 0, 1, 1);
    aril_tensor *last = aril_slice(sorted, axis, -1, ARIL_END, 1);
    aril_tensor *n = aril__count_like(sorted, first);
    aril_tensor *y = between(sorted, rank_of(q, aril_sub_scalar(n, 1), n), axis, how);
    return aril_where(aril_isnan(last), aril_scalar(NAN), y);
}

/* The same among the numbers of each line, which come before its NaNs. */
static aril_tensor *quantile_of_numbers(aril_tensor *sorted, aril_tensor *q, int axis,
                                        aril_quantile_mode how)
{
    aril_tensor *numbers = aril_logical_not(aril_isnan(sorted));
    aril_tensor *n = aril_cast(aril_sum(numbers, ARIL_KEEPDIM(axis)), (aril_dtype)sorted->dtype);
    aril_tensor *last = aril_clamp_min(aril_sub_scalar(n, 1), 0); /* [..., 1, ...] */
    aril_tensor *size = aril__count_like(sorted, aril_slice(sorted, axis, 0, 1, 1));
    return between(sorted, rank_of(to_axis(q, sorted, axis), last, size), axis, how);
}

static aril_status check_quantile(const char *what, aril_tensor *x, aril_tensor *q, aril_axes axis,
                                  aril_quantile_mode how)
{
    if (x->dtype != ARIL_F32 && x->dtype != ARIL_F64)
        return aril__fail(ARIL_ERR_DTYPE, "%s: needs f32 or f64, got %s", what,
                          aril__dtypes[x->dtype].name);
    if (q->ndim > 1 || axis.n > 1 || x->numel == 0 || how > ARIL_QUANTILE_NEAREST) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_ARG,
                          "%s: takes one axis or ARIL_ALL (got %d) of a tensor that is "
                          "not empty (got %s), and q of 0 or 1 dimensions (got %d)",
                          what, axis.n, aril__text(text, x), q->ndim);
    }
    return aril__check_range(what, "q", q, 0, 1);
}

static aril_tensor *quantile(const char *what, aril_tensor *x, aril_tensor *q, aril_axes axis,
                             aril_quantile_mode how, bool ignore_nan)
{
    struct reduce_attrs r;
    if (!q) return aril__null_tensor(what);
    if (aril__is_poison(q)) return aril__pass_on(q);
    if (aril__reduce_attrs(what, x, axis, &r) < 0) return aril__poison();
    if (aril__is_poison(x)) return aril__pass_on(x);
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &x, &q);
    if (check_quantile(what, x, q, axis, how) < 0) return aril_escape(aril__poison());
    bool flat = axis.n == 0 || x->ndim == 0;
    int at = flat ? 0 : aril__axis(what, axis.axis[0], x->ndim);
    aril_tensor *line = flat ? aril_reshape(x, ARIL_SHAPE(-1)) : x;
    aril_tensor *sorted = aril_sort(line, at, (aril_sort_opts){ 0 }, NULL);
    bool number = q->flags & ARIL__WEAK && x->storage; /* of the host */
    /* A position in f32 has few digits left for the weight, the part after the point. Modes that
     * pick an element round the position as PyTorch does. */
    q = aril_cast(q, how == ARIL_QUANTILE_LINEAR ? ARIL_F64 : (aril_dtype)x->dtype);
    if (number) q = aril_to(q, x->storage->device->id);
    aril_tensor *list = q->ndim ? q : aril_unsqueeze(q, 0);
    aril_tensor *y = ignore_nan ? quantile_of_numbers(sorted, list, at, how)
                                : quantile_of_all(sorted, list, at, how);
    /* Move the axis of q to the front; remove it if q is a scalar. */
    y = aril_movedim(y, ARIL_AXES(at), ARIL_AXES(0));
    if (axis.keepdim && flat)
        for (int d = 0; d < x->ndim; d++) y = aril_unsqueeze(y, -1);
    else if (axis.keepdim)
        y = aril_unsqueeze(y, at + 1);
    return aril_escape(q->ndim ? y : aril_select(y, 0, 0));
}

aril_tensor *aril_quantile(aril_tensor *x, aril_tensor *q, aril_axes axis, aril_quantile_mode how)
{
    return quantile("quantile", x, q, axis, how, false);
}

aril_tensor *aril_nanquantile(aril_tensor *x, aril_tensor *q, aril_axes axis,
                              aril_quantile_mode how)
{
    return quantile("nanquantile", x, q, axis, how, true);
}
