#include "ops/index/index.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/index/indexing.h"
#include "ops/norm/norm.h"
#include "ops/table/sample.h"

#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_embedding, aril__op_embedding_grad;

enum { MAX_IN = ARIL_MAX_DIMS + 2 }; /* inputs: x, a value, an index tensor for each axis */

#define INDICES(from)       (((1u << (MAX_IN + 1)) - 1) & ~((1u << (from)) - 1))
#define SAVED_INDICES(from) (0xffu & ~((1u << (from)) - 1)) /* bit 7 stands for all later inputs */
#define NATIVE              (DT(ARIL_F32) | DT(ARIL_F64) | DT(ARIL_I64) | DT(ARIL_U64))

/* ---- index ---- */

ATTR_LIST(index, INDEX_ATTRS)

static void picked_shape(aril__call *c, const aril__indexing *p)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = p->ndim;
    memcpy(o->dim, p->dim, (size_t)p->ndim * sizeof *o->dim);
}

/* Checks the index tensors against the axes of x that they index. */
static aril_status check_picked(const aril__run *r, const aril_tensor *x, const aril__indexing *p,
                                aril_tensor *const *index)
{
    aril_status s = ARIL_OK;
    for (int axis = 0; axis < x->ndim && s == ARIL_OK; axis++)
        if (p->mask >> axis & 1)
            s = aril__check_indices(r->op->name, *index++, x->dim[axis], axis, true);
    return s;
}

static aril_status read_picked(aril__run *r, int64_t mask)
{
    const aril_tensor *x = r->in[0];
    aril__indexing p;
    aril_status s = aril__indexing_shape(r->op->name, x, mask, r->n_in - 1, r->in + 1, &p);
    if (s == ARIL_OK) s = check_picked(r, x, &p, r->in + 1);
    for (int64_t i = 0; i < r->out[0]->numel && s == ARIL_OK; i++)
        aril__put_same(r->out[0], i, x, aril__indexed_at(x, &p, r->in + 1, i));
    return s;
}

static aril_status index_infer(aril__call *c)
{
    const struct index_attrs *a = c->attrs;
    aril__indexing p;
    aril_status s = aril__indexing_shape("index", c->in[0], a->mask[0], c->n_in - 1, c->in + 1, &p);
    if (s == ARIL_OK) picked_shape(c, &p);
    return s;
}

static aril_status index_ref(aril__run *r)
{
    return read_picked(r, ((const struct index_attrs *)r->attrs)->mask[0]);
}

/* Zeros of the shape of `like` with g added at the indices, in one new tensor. */
static aril_tensor *put_add_to_zeros(aril_tensor *like, aril_tensor *g, int64_t mask, int n,
                                     aril_tensor *const *index)
{
    struct index_attrs a = { { mask } };
    aril_tensor *zeros = aril_zeros_like(like), *in[MAX_IN] = { zeros, g };
    memcpy(in + 2, index, (size_t)n * sizeof *in);
    return aril__apply_to(zeros, &aril__op_index_put_add, n + 2, in, &a);
}

VJP(index)
{
    const struct index_attrs *a = c->attrs;
    if (c->g[0]) GRAD(0, put_add_to_zeros(c->x[0], c->g[0], a->mask[0], c->n_in - 1, c->x + 1));
}

static const aril__sample index_samples[] = {
    { .in = { "[4,3]", "i4[5]" }, .attrs = &(const struct index_attrs){ { 1 } } },
    { .in = { "[4,3]", "i4[2,1]", "i3[3]" }, .attrs = &(const struct index_attrs){ { 3 } } },
    { .in = { "[4,3,2]", "i4[3]", "i2[2,3]" }, .attrs = &(const struct index_attrs){ { 5 } } },
    { .in = { "[2,4,3]", "i4[5]", "i3[5]" },
      .attrs = &(const struct index_attrs){ { 6 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[4,3]", "i3[]" }, .attrs = &(const struct index_attrs){ { 2 } } },
    { .in = { "[4,3]", "i3[0]" }, .attrs = &(const struct index_attrs){ { 2 } } },
    { .in = { "[0,3]", "i3[2]" }, .attrs = &(const struct index_attrs){ { 2 } } },
    SAMPLE_END
};
OP(index, .doc = "elements selected by index tensors, which broadcast together", .min_in = 1,
   .max_in = MAX_IN - 1, .n_out = 1, .flags = STRIDED | RAW, .index_in = INDICES(1),
   .types = DT_WHOLE_BYTES, .infer = index_infer, .ref = index_ref, .vjp = index_vjp,
   .saves = { LIKE(0) | SAVED_INDICES(1) }, .samples = index_samples, WITH_ATTRS(index));

/* ---- index_select ---- */

ATTR_LIST(index_select, INDEX_SELECT_ATTRS)

static aril_status index_select_infer(aril__call *c)
{
    const struct index_select_attrs *a = c->attrs;
    aril__indexing p;
    aril_status s =
        aril__indexing_shape("index_select", c->in[0], 1 << a->axis[0], 1, c->in + 1, &p);
    if (s == ARIL_OK) picked_shape(c, &p);
    return s;
}

static aril_status index_select_ref(aril__run *r)
{
    return read_picked(r, 1 << ((const struct index_select_attrs *)r->attrs)->axis[0]);
}

VJP(index_select)
{
    const struct index_select_attrs *a = c->attrs;
    if (c->g[0]) GRAD(0, put_add_to_zeros(c->x[0], c->g[0], 1 << a->axis[0], 1, c->x + 1));
}

static const aril__sample index_select_samples[] = {
    { .in = { "[4,3]", "i4[5]" }, .attrs = &(const struct index_select_attrs){ { 0 } } },
    { .in = { "[3,4,2]", "i4[5]" },
      .attrs = &(const struct index_select_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,4]", "i4[2,3]" }, .attrs = &(const struct index_select_attrs){ { 1 } } },
    { .in = { "[4,3]", "i4[]" }, .attrs = &(const struct index_select_attrs){ { 0 } } },
    { .in = { "[4,3]", "i4[0]" }, .attrs = &(const struct index_select_attrs){ { 0 } } },
    SAMPLE_END
};
OP(index_select, .doc = "entries of an axis selected by an index tensor", .onnx = "Gather",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = STRIDED | RAW, .index_in = IN(1),
   .types = DT_WHOLE_BYTES, .infer = index_select_infer, .ref = index_select_ref,
   .vjp = index_select_vjp, .saves = { LIKE(0) | IN(1) }, .samples = index_select_samples,
   WITH_ATTRS(index_select));

/* ---- index_put: x, value, indices ---- */

static aril_status index_put_infer(aril__call *c)
{
    const struct index_attrs *a = c->attrs;
    const char *op = c->op->name;
    const aril_tensor *x = c->in[0], *value = c->in[1];
    aril__meta *o = &c->out[0];
    aril__indexing p;
    aril_status s = aril__indexing_shape(op, x, a->mask[0], c->n_in - 2, c->in + 2, &p);
    if (s < 0) return s;
    if (value->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: the values are %s, but the tensor is %s", op,
                          aril__dtypes[value->dtype].name, aril__dtypes[x->dtype].name);
    int n = p.ndim;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, p.dim, sizeof dim);
    bool fits = value->ndim <= n && aril__broadcast(&n, dim, value->ndim, value->dim);
    for (int d = 0; d < n && fits; d++) fits = dim[d] == p.dim[d] || p.dim[d] < 0;
    if (!fits) {
        char v[ARIL__SHAPE_TEXT], to[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: values of shape %s do not broadcast to the indexed shape %s", op,
                          aril__text(v, value), aril__shape_text(to, p.ndim, p.dim));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status write_picked(aril__run *r, aril__combine how)
{
    const struct index_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    const aril_tensor *value = r->in[1];
    aril__indexing p;
    aril_status s = aril__indexing_shape(r->op->name, out, a->mask[0], r->n_in - 2, r->in + 2, &p);
    if (s == ARIL_OK) s = check_picked(r, out, &p, r->in + 2);
    if (s < 0) return s;
    for (int64_t i = 0; i < out->numel && out != r->in[0]; i++) aril__put_same(out, i, r->in[0], i);
    for (int64_t i = 0; i < aril__count(p.ndim, p.dim); i++)
        aril__combine_at(how, out, aril__indexed_at(out, &p, r->in + 2, i), value,
                         aril__broadcast_at(value, p.ndim, p.dim, i));
    return ARIL_OK;
}

static aril_status index_put_ref(aril__run *r)
{
    return write_picked(r, ARIL__SET);
}

static aril_status index_put_add_ref(aril__run *r)
{
    return write_picked(r, ARIL__ADD);
}

/* The gradient of the values, which may have been broadcast. */
static aril_tensor *picked_to_like(aril__grad *c)
{
    aril_tensor *in[MAX_IN] = { c->g[0] };
    memcpy(in + 1, c->x + 2, (size_t)(c->n_in - 2) * sizeof *in);
    return aril__sum_to_like(aril__apply1(&aril__op_index, c->n_in - 1, in, c->attrs), c->x[1]);
}

VJP(index_put)
{
    if (!c->g[0]) return;
    if (c->wants[0]) {
        aril_tensor *in[MAX_IN] = { c->g[0], aril__number_like(c->g[0], ARIL_NUMBER(0)) };
        memcpy(in + 2, c->x + 2, (size_t)(c->n_in - 2) * sizeof *in);
        c->dx[0] = aril__apply1(&aril__op_index_put, c->n_in, in, c->attrs);
    }
    GRAD(1, picked_to_like(c));
}

VJP(index_put_add)
{
    if (!c->g[0]) return;
    GRAD(0, c->g[0]);
    GRAD(1, picked_to_like(c));
}

/* Gradients are only checked where no index repeats. */
static const aril__sample index_put_samples[] = {
    { .in = { "[4,3]", "[1,3]", "i4[1]" }, .attrs = &(const struct index_attrs){ { 1 } } },
    { .in = { "[4,3,2]", "[1,3]", "i4[1]", "i2[1]" },
      .attrs = &(const struct index_attrs){ { 5 } },
      .flags = SAMPLE_NO_GRAD },
    { .in = { "[2,4]", "[2]", "i4[]" },
      .attrs = &(const struct index_attrs){ { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[4,3]", "[]", "i4[]", "i3[]" }, .attrs = &(const struct index_attrs){ { 3 } } },
    { .in = { "[4,3]", "[0,3]", "i4[0]" }, .attrs = &(const struct index_attrs){ { 1 } } },
    SAMPLE_END
};
OP(index_put, .doc = "writes values at the positions in index tensors", .min_in = 2,
   .max_in = MAX_IN, .n_out = 1, .flags = STRIDED | INPLACE | RAW | KEEPS_ORDER,
   .index_in = INDICES(2), .types = DT_WHOLE_BYTES, .infer = index_put_infer, .ref = index_put_ref,
   .vjp = index_put_vjp, .saves = { SAVED_INDICES(2), LIKE(1) | SAVED_INDICES(2) },
   .samples = index_put_samples, WITH_ATTRS(index));

static const aril__sample index_put_add_samples[] = {
    { .in = { "[4,3]", "[6,3]", "i4[6]" }, .attrs = &(const struct index_attrs){ { 1 } } },
    { .in = { "[4,3,2]", "[2,3,1]", "i4[3]", "i2[2,3]" },
      .attrs = &(const struct index_attrs){ { 5 } } },
    { .in = { "[3,4]", "[3,2,2]", "i4[2,2]" },
      .attrs = &(const struct index_attrs){ { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[4,3]", "[]", "i4[5]", "i3[5]" }, .attrs = &(const struct index_attrs){ { 3 } } },
    { .in = { "[4,3]", "[0,3]", "i4[0]" }, .attrs = &(const struct index_attrs){ { 1 } } },
    SAMPLE_END
};
OP(index_put_add, .doc = "adds values at the positions in index tensors", .min_in = 2,
   .max_in = MAX_IN, .n_out = 1, .flags = STRIDED | INPLACE | KEEPS_ORDER, .index_in = INDICES(2),
   .types = DT_COMPUTE, .native = NATIVE, .infer = index_put_infer, .ref = index_put_add_ref,
   .vjp = index_put_add_vjp, .saves = { 0, LIKE(1) | SAVED_INDICES(2) },
   .samples = index_put_add_samples, WITH_ATTRS(index));

/* ---- embedding: weight, index ---- */

ATTR_LIST(embedding, EMBEDDING_ATTRS)

static aril_status embedding_infer(aril__call *c)
{
    aril__indexing p;
    char text[ARIL__SHAPE_TEXT];
    if (c->in[0]->ndim != 2)
        return aril__fail(ARIL_ERR_SHAPE, "embedding: expected a weight [rows, size], got %s",
                          aril__text(text, c->in[0]));
    aril_status s = aril__indexing_shape("embedding", c->in[0], 1, 1, c->in + 1, &p);
    if (s == ARIL_OK) picked_shape(c, &p);
    return s;
}

static aril_status embedding_ref(aril__run *r)
{
    aril_status s = aril__check_indices("embedding", r->in[1], r->in[0]->dim[0], 0, false);
    return s < 0 ? s : read_picked(r, 1);
}

VJP(embedding)
{
    if (c->g[0])
        GRAD(0, aril__op_with(c->attrs, &aril__op_embedding_grad, c->g[0], c->x[1], c->x[0]));
}

static const aril__sample embedding_samples[] = {
    { .in = { "[5,3]", "i5[2,4]" }, .attrs = &(const struct embedding_attrs){ { -1 } } },
    { .in = { "[5,3]", "i5[6]" }, .attrs = &(const struct embedding_attrs){ { -1 } } },
    { .in = { "[5,3]", "i5[]" }, .attrs = &(const struct embedding_attrs){ { -1 } } },
    { .in = { "[5,3]", "i5[0]" }, .attrs = &(const struct embedding_attrs){ { -1 } } },
    { .in = { "[5,3]", "i5[6]" },
      .attrs = &(const struct embedding_attrs){ { 2 } },
      .flags = SAMPLE_NO_GRAD },
    SAMPLE_END
};
OP(embedding, .doc = "rows of a weight selected by index", .min_in = 2, .max_in = 2, .n_out = 1,
   .flags = STRIDED | RAW, .index_in = IN(1), .types = DT_WHOLE_BYTES, .infer = embedding_infer,
   .ref = embedding_ref, .vjp = embedding_vjp, .saves = { LIKE(0) | IN(1) },
   .samples = embedding_samples, WITH_ATTRS(embedding));

/* embedding_grad: g, index, the weight's shape */
static aril_status embedding_grad_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    aril__indexing p;
    aril_status s = aril__indexing_shape("embedding_grad", c->in[2], 1, 1, c->in + 1, &p);
    if (s < 0) return s;
    bool fits = c->in[0]->ndim == p.ndim;
    for (int d = 0; d < p.ndim && fits; d++)
        fits = c->in[0]->dim[d] == p.dim[d] || c->in[0]->dim[d] < 0 || p.dim[d] < 0;
    if (!fits) {
        char g[ARIL__SHAPE_TEXT], want[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "embedding_grad: the gradient has shape %s, expected %s",
                          aril__text(g, c->in[0]), aril__shape_text(want, p.ndim, p.dim));
    }
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[2]->ndim;
    memcpy(o->dim, c->in[2]->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status embedding_grad_ref(aril__run *r)
{
    int64_t padding = ((const struct embedding_attrs *)r->attrs)->padding[0];
    const aril_tensor *g = r->in[0], *index = r->in[1];
    aril_tensor *out = r->out[0]; /* [rows, size] */
    int64_t size = out->dim[1];
    aril_status s = aril__check_indices("embedding_grad", index, out->dim[0], 0, false);
    for (int64_t i = 0; i < out->numel && s == ARIL_OK; i++) aril__put(out, i, 0);
    for (int64_t i = 0; i < g->numel && s == ARIL_OK; i++) {
        int64_t row = aril__get_i64(index, i / size);
        if (padding < 0 || row != padding)
            aril__combine_at(ARIL__ADD, out, row * size + i % size, g, i);
    }
    return s;
}

VJP(embedding_grad)
{
    int64_t padding = ((const struct embedding_attrs *)c->attrs)->padding[0];
    if (!c->g[0] || !c->wants[0]) return;
    aril_tensor *rows = aril__op_with(c->attrs, &aril__op_embedding, c->g[0], c->x[1]);
    if (padding >= 0) {
        aril_tensor *is_padding = aril_eq_scalar(c->x[1], padding);
        for (int d = 1; d < c->g[0]->ndim; d++) is_padding = aril_unsqueeze(is_padding, -1);
        rows = aril_where(is_padding, aril_scalar(0), rows);
    }
    c->dx[0] = rows;
}

static const aril__sample embedding_grad_samples[] = {
    { .in = { "[2,4,3]", "i5[2,4]", "[5,3]" }, .attrs = &(const struct embedding_attrs){ { -1 } } },
    { .in = { "[6,3]", "i5[6]", "[5,3]" }, .attrs = &(const struct embedding_attrs){ { 2 } } },
    { .in = { "[0,3]", "i5[0]", "[5,3]" }, .attrs = &(const struct embedding_attrs){ { -1 } } },
    SAMPLE_END
};
OP(embedding_grad, .doc = "gradient of embedding: sums of rows by index", .min_in = 3, .max_in = 3,
   .n_out = 1, .flags = GRADIENT | STRIDED, .index_in = IN(1), .shape_only = IN(2),
   .types = DT_FLOAT, .native = NATIVE, .infer = embedding_grad_infer, .ref = embedding_grad_ref,
   .vjp = embedding_grad_vjp, .saves = { IN(1) }, .samples = embedding_grad_samples,
   WITH_ATTRS(embedding));

/* ---- public ---- */

aril_tensor *aril_index_select(aril_tensor *x, aril_tensor *index, int axis)
{
    if (!x || !index) return aril__null_tensor("index_select");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (x->ndim == 0) {
        aril__fail(ARIL_ERR_SHAPE, "index_select: a 0-d tensor has no axis to select from");
        return aril__poison();
    }
    int at = aril__axis("index_select", axis, x->ndim);
    struct index_select_attrs a = { { at } };
    return at < 0 ? aril__poison() : aril__op_with(&a, &aril__op_index_select, x, index);
}

aril_tensor *aril_embedding(aril_tensor *index, aril_tensor *weight, aril_embedding_opts opts)
{
    if (!weight || !index) return aril__null_tensor("embedding");
    if (aril__is_poison(weight)) return aril__pass_on(weight);
    struct embedding_attrs a = { { opts.padding_idx ? opts.padding_idx : -1 } };
    if (opts.padding_idx == ARIL_ZERO) {
        a.padding[0] = 0;
    } else if (opts.padding_idx && weight->ndim && weight->dim[0] >= 0) {
        if (opts.padding_idx < 0) a.padding[0] = opts.padding_idx + weight->dim[0];
        if (a.padding[0] < 0 || a.padding[0] >= weight->dim[0]) {
            aril__fail(ARIL_ERR_INDEX, "embedding: padding_idx %lld is out of range for %lld rows",
                       (long long)opts.padding_idx, (long long)weight->dim[0]);
            return aril__poison();
        }
    }
    return aril__op_with(&a, &aril__op_embedding, weight, index);
}

/* Whether src has the shape of x with one axis replaced by the dimensions of the index. shape: x,
 * index and src; number: the axis. */
static aril_status is_source(const aril__requirement *q)
{
    const aril_shape *x = &q->shape[0], *index = &q->shape[1], *src = &q->shape[2];
    int axis = (int)q->number[0];
    bool fits = src->ndim == x->ndim - 1 + index->ndim;
    for (int d = 0; fits && d < src->ndim; d++) {
        int k = d - axis; /* dimension of the index */
        int64_t want = k < 0             ? x->dim[d]
                       : k < index->ndim ? index->dim[k]
                                         : x->dim[d - index->ndim + 1];
        fits = aril__size_fits(src->dim[d], want);
    }
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT], c[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: src %s does not match %s with index %s along axis %d",
                      q->what, aril__shape_text(a, src->ndim, src->dim),
                      aril__shape_text(b, x->ndim, x->dim),
                      aril__shape_text(c, index->ndim, index->dim), axis);
}

/* Writes or adds (op) slices to the positions `index` of an axis of x. */
static aril_tensor *put_slices(const char *what, const aril__op *op, aril_tensor *x,
                               aril_tensor *index, aril_tensor *src, int axis, bool in_place)
{
    if (!x || !index || !src) return aril__null_tensor(what);
    aril_tensor *in[3] = { x, src, index };
    for (int i = 0; i < 3; i++)
        if (aril__is_poison(in[i])) return aril__pass_on(in[i]);
    int at = x->ndim ? aril__axis(what, axis, x->ndim) : -1;
    if (x->ndim == 0) aril__fail(ARIL_ERR_SHAPE, "%s: a 0-d tensor has no axis", what);
    aril_tensor *of[3] = { x, index, src };
    if (at < 0 || aril__require(what, is_source, 3, of, 1, (int64_t[]){ at }) < 0)
        return aril__poison();
    struct index_attrs a = { { 1 << at } };
    return in_place ? aril__apply_to(x, op, 3, in, &a) : aril__apply1(op, 3, in, &a);
}

aril_tensor *aril_index_add(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return put_slices("index_add", &aril__op_index_put_add, x, index, src, axis, false);
}

aril_tensor *aril_index_add_(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return put_slices("index_add", &aril__op_index_put_add, x, index, src, axis, true);
}

aril_tensor *aril_index_copy(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_WIDEST, &x, &src);
    return aril_escape(put_slices("index_copy", &aril__op_index_put, x, index, src, axis, false));
}

aril_tensor *aril_index_copy_(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return put_slices("index_copy", &aril__op_index_put, x, index, src, axis, true);
}

/* True at the positions `index` of an axis of x; broadcasts to x. */
static aril_tensor *mask_of(aril_tensor *x, aril_tensor *index, int axis)
{
    struct index_attrs first = { { 1 } };
    int64_t n = x->ndim ? x->dim[axis] : 1;
    aril_tensor *mask = aril_zeros(ARIL_SHAPE(n), ARIL_BOOL, aril_device_of(x));
    aril_tensor *in[3] = { mask, aril__number_like(mask, ARIL_NUMBER(1)), index };
    mask = aril__apply_to(mask, &aril__op_index_put, 3, in, &first);
    for (int d = axis + 1; d < x->ndim; d++) mask = aril_unsqueeze(mask, -1);
    return x->ndim ? mask : aril_select(mask, 0, 0);
}

/* By a mask: the value's gradient counts a position once, however often the index names it. */
static aril_tensor *index_fill(aril_tensor *x, aril_tensor *index, aril_tensor *value, int axis,
                               bool in_place)
{
    if (!x || !index || !value) return aril__null_tensor("index_fill");
    if (aril__is_poison(x)) return aril__pass_on(x);
    int at = aril__axis("index_fill", axis, x->ndim);
    if (at < 0) return aril__poison();
    ARIL_SCOPE;
    aril_tensor *mask = mask_of(x, index, at);
    return aril_escape(in_place ? aril_masked_fill_(x, mask, value)
                                : aril_masked_fill(x, mask, value));
}

aril_tensor *aril_index_fill(aril_tensor *x, aril_tensor *index, aril_tensor *value, int axis)
{
    return index_fill(x, index, value, axis, false);
}

aril_tensor *aril_index_fill_(aril_tensor *x, aril_tensor *index, aril_tensor *value, int axis)
{
    return index_fill(x, index, value, axis, true);
}

aril_tensor *(aril_index_fill_scalar)(aril_tensor *x, aril_tensor *index, aril_number value,
                                      int axis)
{
    return index_fill(x, index, aril_scalar(value), axis, false);
}

aril_tensor *(aril_index_fill_scalar_)(aril_tensor *x, aril_tensor *index, aril_number value,
                                       int axis)
{
    return index_fill(x, index, aril_scalar(value), axis, true);
}

aril_tensor *aril_take(aril_tensor *x, aril_tensor *index)
{
    if (!x) return aril__null_tensor("take");
    ARIL_SCOPE;
    return aril_escape(aril_index_select(aril_reshape(x, ARIL_SHAPE(-1)), index, 0));
}
