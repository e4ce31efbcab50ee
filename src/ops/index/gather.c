#include "ops/index/gather.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/index/indexing.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_gather, aril__op_scatter, aril__op_scatter_add, aril__op_scatter_mul;

/* A 0-d tensor counts as having size 1. */
static int64_t size_along(const aril_tensor *t, int axis)
{
    return t->ndim ? t->dim[axis] : 1;
}

/* index must have as many dimensions as x, and no larger size except along the axis. */
static aril_status check_shapes(const aril__call *c, int axis)
{
    const aril_tensor *x = c->in[0], *index = c->in[1];
    aril_status s = aril__check_index_dtype(c->op->name, index);
    if (s < 0) return s;
    bool fits = (x->ndim > 1 ? x->ndim : 1) == (index->ndim > 1 ? index->ndim : 1) && axis >= 0 &&
                axis < (x->ndim > 1 ? x->ndim : 1);
    for (int d = 0; d < index->ndim && fits; d++) {
        int64_t have = size_along(x, d);
        fits = d == axis || have < 0 || index->dim[d] <= have;
    }
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: index %s is larger than %s in an axis other than %d",
                      c->op->name, aril__text(a, index), aril__text(b, x), axis);
}

/* ---- gather ---- */

ATTR_LIST(gather, GATHER_ATTRS)

static aril_status gather_infer(aril__call *c)
{
    const struct gather_attrs *a = c->attrs;
    aril__meta *o = &c->out[0];
    aril_status s = check_shapes(c, (int)a->axis[0]);
    if (s < 0) return s;
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[1]->ndim;
    memcpy(o->dim, c->in[1]->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* The position in x, in row-major order, that element i of the index points to. */
static int64_t position_of(const aril_tensor *x, const aril_tensor *index, int axis, int64_t i)
{
    int64_t to = aril__wrap(aril__get_i64(index, i), size_along(x, axis)), at = 0, step = 1;
    if (x->ndim == 0 || index->ndim == 0) return to;
    for (int d = x->ndim - 1; d >= 0; d--) {
        at += (d == axis ? to : i % index->dim[d]) * step;
        step *= x->dim[d];
        i /= index->dim[d];
    }
    return at;
}

static aril_status gather_ref(aril__run *r)
{
    int axis = (int)((const struct gather_attrs *)r->attrs)->axis[0];
    const aril_tensor *x = r->in[0], *index = r->in[1];
    aril_status s = aril__check_indices("gather", index, size_along(x, axis), axis, true);
    for (int64_t i = 0; i < index->numel && s == ARIL_OK; i++)
        aril__put_same(r->out[0], i, x, position_of(x, index, axis, i));
    return s;
}

static aril_tensor *gather(aril_tensor *x, aril_tensor *index, int64_t axis)
{
    struct gather_attrs a = { { axis } };
    return aril__op_with(&a, &aril__op_gather, x, index);
}

VJP(gather)
{
    const struct gather_attrs *a = c->attrs;
    struct scatter_attrs to = { { a->axis[0] }, { 0 } };
    if (!c->g[0] || !c->wants[0]) return;
    aril_tensor *zeros = aril_zeros_like(c->x[0]);
    c->dx[0] = aril__apply_to(zeros, &aril__op_scatter_add, 3,
                              (aril_tensor *[]){ zeros, c->x[1], c->g[0] }, &to);
}

static const aril__sample gather_samples[] = {
    { .in = { "[4,3]", "i4[5,3]" }, .attrs = &(const struct gather_attrs){ { 0 } } },
    { .in = { "[4,3]", "i3[2,5]" }, .attrs = &(const struct gather_attrs){ { 1 } } },
    { .in = { "[2,3,4]", "i3[2,2,3]" }, .attrs = &(const struct gather_attrs){ { 1 } } },
    { .in = { "[3,4]", "i4[3,2]" },
      .attrs = &(const struct gather_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[4,3]", "i4[0,3]" }, .attrs = &(const struct gather_attrs){ { 0 } } },
    { .in = { "[]", "i1[]" }, .attrs = &(const struct gather_attrs){ { 0 } } },
    SAMPLE_END
};
OP(gather, .doc = "elements along an axis, selected by an index tensor", .onnx = "GatherElements",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = STRIDED | RAW, .index_in = IN(1),
   .types = DT_WHOLE_BYTES, .infer = gather_infer, .ref = gather_ref, .vjp = gather_vjp,
   .saves = { LIKE(0) | IN(1) }, .samples = gather_samples, WITH_ATTRS(gather));

/* ---- scatter ---- */

ATTR_LIST(scatter, SCATTER_ATTRS)

static aril_status scatter_infer(aril__call *c)
{
    const struct scatter_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *index = c->in[1], *src = c->in[2];
    aril__meta *o = &c->out[0];
    aril_status s = check_shapes(c, (int)a->axis[0]);
    if (s < 0) return s;
    if (src->dtype != x->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s: src is %s, but the tensor is %s", c->op->name,
                          aril__dtypes[src->dtype].name, aril__dtypes[x->dtype].name);
    bool fits = src->ndim == 0 || src->ndim == index->ndim;
    for (int d = 0; d < src->ndim && fits; d++)
        fits = src->dim[d] == index->dim[d] || src->dim[d] < 0 || index->dim[d] < 0;
    if (!fits) {
        char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: src has shape %s, but the index has %s", c->op->name,
                          aril__text(p, src), aril__text(q, index));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* The value with which a combination starts if the tensor itself does not take part. */
static void put_identity(aril__combine how, aril_tensor *x, int64_t i)
{
    bool is_unsigned = x->dtype == ARIL_U64;
    if (how == ARIL__ADD || how == ARIL__MUL)
        aril__put(x, i, how == ARIL__MUL);
    else if (aril__is_float((aril_dtype)x->dtype))
        aril__put(x, i, how == ARIL__MAX ? -INFINITY : INFINITY);
    else if (how == ARIL__MAX)
        aril__put_i64(x, i, is_unsigned ? 0 : INT64_MIN);
    else
        aril__put_i64(x, i, is_unsigned ? -1 : INT64_MAX); /* -1 wraps around to the largest */
}

static aril_status scatter_with(aril__run *r, aril__combine how)
{
    const struct scatter_attrs *a = r->attrs;
    int axis = (int)a->axis[0];
    const aril_tensor *index = r->in[1], *src = r->in[2];
    aril_tensor *out = r->out[0];
    aril_status s = aril__check_indices(r->op->name, index, size_along(out, axis), axis, true);
    if (s < 0) return s;
    for (int64_t i = 0; i < out->numel && out != r->in[0]; i++) aril__put_same(out, i, r->in[0], i);
    for (int64_t i = 0; i < index->numel && a->alone[0]; i++)
        put_identity(how, out, position_of(out, index, axis, i));
    for (int64_t i = 0; i < index->numel; i++)
        aril__combine_at(how, out, position_of(out, index, axis, i), src, src->ndim ? i : 0);
    return ARIL_OK;
}

static aril_status scatter_ref(aril__run *r)
{
    return scatter_with(r, ARIL__SET);
}

static aril_status scatter_add_ref(aril__run *r)
{
    return scatter_with(r, ARIL__ADD);
}

static aril_status scatter_mul_ref(aril__run *r)
{
    return scatter_with(r, ARIL__MUL);
}

static aril_status scatter_max_ref(aril__run *r)
{
    return scatter_with(r, ARIL__MAX);
}

static aril_status scatter_min_ref(aril__run *r)
{
    return scatter_with(r, ARIL__MIN);
}

/* x with a number scattered to the indices. */
static aril_tensor *scatter_number(aril_tensor *x, aril_tensor *index, double v, int64_t axis)
{
    struct scatter_attrs a = { { axis }, { 0 } };
    return aril__op_with(&a, &aril__op_scatter, x, index, aril__number_like(x, ARIL_NUMBER(v)));
}

/* The gradient of src, which may have been broadcast from one element. */
static aril_tensor *gather_to_src(aril_tensor *g, aril_tensor *index, aril_tensor *src,
                                  int64_t axis)
{
    g = gather(g, index, axis);
    return src->ndim == g->ndim ? g : aril__sum_to_like(g, src);
}

VJP(scatter)
{
    const struct scatter_attrs *a = c->attrs;
    if (!c->g[0]) return;
    GRAD(0, scatter_number(c->g[0], c->x[1], 0, a->axis[0]));
    GRAD(2, gather_to_src(c->g[0], c->x[1], c->x[2], a->axis[0]));
}

VJP(scatter_add)
{
    const struct scatter_attrs *a = c->attrs;
    if (!c->g[0]) return;
    GRAD(0, a->alone[0] ? scatter_number(c->g[0], c->x[1], 0, a->axis[0]) : c->g[0]);
    GRAD(2, gather_to_src(c->g[0], c->x[1], c->x[2], a->axis[0]));
}

/* The gradient of a factor is the product of the others. If the factor is the only 0, recompute the
 * product with 1 in its place. */
VJP(scatter_mul)
{
    const struct scatter_attrs *a = c->attrs;
    int64_t axis = a->axis[0];
    aril_tensor *g = c->g[0], *x = c->x[0], *index = c->x[1], *src = c->x[2];
    if (!g) return;
    if (c->wants[0]) {
        aril_tensor *safe = aril_where(aril_eq_scalar(x, 0), aril_scalar(1), x);
        aril_tensor *rest = aril__op_with(a, &aril__op_scatter_mul, safe, index, src);
        aril_tensor *dx = aril_mul(g, aril_div(rest, safe));
        c->dx[0] = a->alone[0] ? scatter_number(dx, index, 0, axis) : dx;
    }
    if (c->wants[2]) {
        aril_tensor *zero = aril_eq_scalar(src, 0);
        struct scatter_attrs plain = { { axis }, { 0 } };
        aril_tensor *zeros = aril__op_with(&plain, &aril__op_scatter_add, aril_zeros_like(x), index,
                                           aril_cast(zero, (aril_dtype)src->dtype));
        aril_tensor *lone = aril_logical_and(zero, aril_eq_scalar(gather(zeros, index, axis), 1));
        aril_tensor *others = aril_where(lone, aril_scalar(1), src);
        aril_tensor *rest = aril__op_with(a, &aril__op_scatter_mul, x, index, others);
        aril_tensor *safe = aril_where(zero, aril_scalar(1), src);
        aril_tensor *left = aril_where(lone, gather(aril_mul(g, rest), index, axis),
                                       aril_div(gather(aril_mul(g, c->y[0]), index, axis), safe));
        c->dx[2] = src->ndim == left->ndim ? left : aril__sum_to_like(left, src);
    }
}

/* Maximum and minimum: the gradient is split evenly among the elements that attain it. */
static void extreme_vjp(aril__grad *c)
{
    const struct scatter_attrs *a = c->attrs;
    int64_t axis = a->axis[0];
    aril_tensor *g = c->g[0], *index = c->x[1], *src = c->x[2];
    if (!g) return;
    aril_dtype type = (aril_dtype)g->dtype;
    struct scatter_attrs plain = { { axis }, { 0 } };
    aril_tensor *self_is = aril_cast(aril_eq(c->x[0], c->y[0]), type);
    if (a->alone[0]) self_is = scatter_number(self_is, index, 0, axis);
    aril_tensor *src_is = aril_cast(aril_eq(src, gather(c->y[0], index, axis)), type);
    aril_tensor *count = aril__op_with(&plain, &aril__op_scatter_add, self_is, index, src_is);
    aril_tensor *share = aril_div(g, aril_clamp_min(count, 1));
    GRAD(0, aril_mul(self_is, share));
    if (c->wants[2]) {
        aril_tensor *dx = aril_mul(src_is, gather(share, index, axis));
        c->dx[2] = src->ndim == dx->ndim ? dx : aril__sum_to_like(dx, src);
    }
}

/* Gradients are only checked where no index repeats. */
static const aril__sample scatter_samples[] = {
    { .in = { "[4,3]", "i4[1,3]", "[1,3]" },
      .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    { .in = { "[3,4]", "i4[2,1]", "[2,1]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 0 } } },
    { .in = { "[3,4]", "i4[3,1]", "[3,1]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "i3[2,1,4]", "[]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 0 } } },
    { .in = { "[4,3]", "i4[0,3]", "[0,3]" },
      .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    { .in = { "[]", "i1[]", "[]" }, .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    SAMPLE_END
};
OP(scatter, .doc = "writes elements along an axis at the positions in an index tensor",
   .onnx = "ScatterElements", .min_in = 3, .max_in = 3, .n_out = 1,
   .flags = STRIDED | INPLACE | RAW | KEEPS_ORDER, .index_in = IN(1), .types = DT_WHOLE_BYTES,
   .infer = scatter_infer, .ref = scatter_ref, .vjp = scatter_vjp,
   .saves = { IN(1), 0, IN(1) | LIKE(2) }, .samples = scatter_samples, WITH_ATTRS(scatter));

static const aril__sample scatter_add_samples[] = {
    { .in = { "[4,3]", "i4[6,3]", "[6,3]" },
      .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    { .in = { "[3,4]", "i4[2,5]", "[2,5]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 1 } } },
    { .in = { "[3,4]", "i4[3,5]", "[3,5]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "i3[2,5,4]", "[]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 0 } } },
    { .in = { "[4,3]", "i4[0,3]", "[0,3]" },
      .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    { .in = { "[]", "i1[2]", "[2]" }, .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    SAMPLE_END
};
static const aril__sample scatter_mul_samples[] = {
    { .in = { "z[4,3]", "i4[5,3]", "z[5,3]" },
      .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    { .in = { "z[3,4]", "i4[3,5]", "z[3,5]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "z[3]", "i3[0]", "z[0]" }, .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    SAMPLE_END
};
static const aril__sample extreme_samples[] = {
    { .in = { "d[4,3]", "i4[5,3]", "[5,3]" },
      .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    { .in = { "[3,4]", "i4[3,5]", "d[3,5]" },
      .attrs = &(const struct scatter_attrs){ { 1 }, { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3]", "i3[0]", "[0]" }, .attrs = &(const struct scatter_attrs){ { 0 }, { 0 } } },
    SAMPLE_END
};

#define EXTREME_SAVES (IN(0) | IN(1) | IN(2) | OUT(0))
#define NATIVE        (DT(ARIL_F32) | DT(ARIL_F64) | DT(ARIL_I64) | DT(ARIL_U64))
#define SCATTER_ROW                                                                 \
    .min_in = 3, .max_in = 3, .n_out = 1, .flags = STRIDED | INPLACE | KEEPS_ORDER, \
    .index_in = IN(1), .types = DT_COMPUTE, .native = NATIVE, .infer = scatter_infer
OP(scatter_add, .doc = "adds elements along an axis at the positions in an index tensor",
   SCATTER_ROW, .ref = scatter_add_ref, .vjp = scatter_add_vjp,
   .saves = { IN(1), 0, IN(1) | LIKE(2) }, .samples = scatter_add_samples, WITH_ATTRS(scatter));
OP(scatter_mul, .doc = "multiplies elements along an axis at the positions in an index tensor",
   SCATTER_ROW, .ref = scatter_mul_ref, .vjp = scatter_mul_vjp,
   .saves = { IN(0) | IN(1) | IN(2), 0, IN(0) | IN(1) | IN(2) | OUT(0) },
   .samples = scatter_mul_samples, WITH_ATTRS(scatter));
OP(scatter_max, .doc = "maximum along an axis at the positions in an index tensor", SCATTER_ROW,
   .ref = scatter_max_ref, .vjp = extreme_vjp, .saves = { EXTREME_SAVES, 0, EXTREME_SAVES },
   .samples = extreme_samples, WITH_ATTRS(scatter));
OP(scatter_min, .doc = "minimum along an axis at the positions in an index tensor", SCATTER_ROW,
   .ref = scatter_min_ref, .vjp = extreme_vjp, .saves = { EXTREME_SAVES, 0, EXTREME_SAVES },
   .samples = extreme_samples, WITH_ATTRS(scatter));

/* ---- public ---- */

aril_tensor *aril_gather(aril_tensor *x, aril_tensor *index, int axis)
{
    if (!x || !index) return aril__null_tensor("gather");
    if (aril__is_poison(x)) return aril__pass_on(x);
    int at = aril__axis("gather", axis, x->ndim);
    return at < 0 ? aril__poison() : gather(x, index, at);
}

/* src cut to the size of the index, and in x's dtype if it is a plain number. */
static aril_tensor *fitted(aril_tensor *src, const aril_tensor *index, aril_tensor *x)
{
    src = aril__settle(src, x);
    if (src->ndim != index->ndim) return src;
    for (int d = 0; d < src->ndim; d++)
        if (index->dim[d] >= 0 && src->dim[d] > index->dim[d])
            src = aril_slice(src, d, 0, index->dim[d], 1);
    return src;
}

static aril_tensor *scatter(const aril__op *op, aril_tensor *x, aril_tensor *index,
                            aril_tensor *src, int axis, bool alone, bool in_place)
{
    if (!x || !index || !src) return aril__null_tensor(op->name);
    aril_tensor *in[3] = { x, index, src };
    for (int i = 0; i < 3; i++)
        if (aril__is_poison(in[i])) return aril__pass_on(in[i]);
    int at = aril__axis(op->name, axis, x->ndim);
    if (at < 0) return aril__poison();
    struct scatter_attrs a = { { at }, { alone } };
    in[2] = fitted(src, index, x);
    return in_place ? aril__apply_to(x, op, 3, in, &a) : aril__apply1(op, 3, in, &a);
}

aril_tensor *aril_scatter(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return scatter(&aril__op_scatter, x, index, src, axis, false, false);
}

aril_tensor *aril_scatter_(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return scatter(&aril__op_scatter, x, index, src, axis, false, true);
}

aril_tensor *aril_scatter_add(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return scatter(&aril__op_scatter_add, x, index, src, axis, false, false);
}

aril_tensor *aril_scatter_add_(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    return scatter(&aril__op_scatter_add, x, index, src, axis, false, true);
}

aril_tensor *aril_scatter_mul(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis,
                              aril_scatter_opts opts)
{
    return scatter(&aril__op_scatter_mul, x, index, src, axis, opts.exclude_self, false);
}

aril_tensor *aril_scatter_max(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis,
                              aril_scatter_opts opts)
{
    return scatter(&aril__op_scatter_max, x, index, src, axis, opts.exclude_self, false);
}

aril_tensor *aril_scatter_min(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis,
                              aril_scatter_opts opts)
{
    return scatter(&aril__op_scatter_min, x, index, src, axis, opts.exclude_self, false);
}

/* index broadcast to the sizes of x, except along the axis. */
static aril_tensor *broadcast_beside(aril_tensor *index, const aril_tensor *x, int axis)
{
    for (int d = 0; index->ndim == x->ndim && d < x->ndim; d++)
        if (d != axis)
            index =
                aril__expand_axis(index, d, aril__broadcast_size(index->dim[d], x->dim[d], index));
    return index;
}

/* gather and scatter themselves allow an index that is smaller beside the axis. */
static aril_status broadcasts_beside(const aril__requirement *q)
{
    const aril_shape *index = &q->shape[0], *x = &q->shape[1];
    int axis = (int)q->number[0];
    for (int d = 0; d < x->ndim && index->ndim == x->ndim; d++) {
        int64_t a = index->dim[d], b = x->dim[d];
        if (d == axis || a == b || a == 1 || b == 1 || a < 0 || b < 0) continue;
        char from[ARIL__SHAPE_TEXT], to[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: the index %s does not broadcast with %s except along axis %d",
                          q->what, aril__shape_text(from, index->ndim, index->dim),
                          aril__shape_text(to, x->ndim, x->dim), axis);
    }
    return ARIL_OK;
}

static aril_status check_beside(const char *what, aril_tensor *index, aril_tensor *x, int axis)
{
    return aril__require(what, broadcasts_beside, 2, (aril_tensor *[]){ index, x }, 1,
                         (int64_t[]){ axis });
}

aril_tensor *aril_take_along_axis(aril_tensor *x, aril_tensor *index, int axis)
{
    if (!x || !index) return aril__null_tensor("take_along_axis");
    if (aril__is_poison(x) || aril__is_poison(index))
        return aril__pass_on(x->flags & ARIL__POISON ? x : index);
    int at = aril__axis("take_along_axis", axis, x->ndim);
    if (at < 0 || check_beside("take_along_axis", index, x, at) < 0) return aril__poison();
    ARIL_SCOPE;
    aril_tensor *wide = broadcast_beside(index, x, at);
    return aril_escape(gather(broadcast_beside(x, wide, at), wide, at));
}

aril_tensor *aril_put_along_axis(aril_tensor *x, aril_tensor *index, aril_tensor *src, int axis)
{
    if (!x || !index || !src) return aril__null_tensor("put_along_axis");
    aril_tensor *in[3] = { x, index, src };
    for (int i = 0; i < 3; i++)
        if (aril__is_poison(in[i])) return aril__pass_on(in[i]);
    int at = aril__axis("put_along_axis", axis, x->ndim);
    if (at < 0 || check_beside("put_along_axis", index, x, at) < 0) return aril__poison();
    ARIL_SCOPE;
    aril_tensor *wide = broadcast_beside(index, x, at);
    if (src->ndim) src = aril__expand_like(src, wide);
    return aril_escape(aril_scatter(x, wide, src, at));
}
