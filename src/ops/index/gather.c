#include "ops/index/gather.h"

#include "aril/ops.h"
#include "core/loops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/shape/copy.h"
#include "ops/shape/like.h"
#include "ops/index/indexing.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_gather, aril__op_scatter, aril__op_scatter_add, aril__op_scatter_mul;

enum { GRAIN = 16 * 1024, BLOCK = 2048 };

/* A 0-d tensor counts as having size 1. */
static int64_t size_along(const aril_tensor *t, int axis)
{
    return t->ndim ? t->dim[axis] : 1;
}

static int64_t stride_along(const aril_tensor *t, int axis)
{
    return t->ndim ? t->stride[axis] : 0;
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
    return aril__fail(ARIL_ERR_SHAPE, "%s: an index of shape %s does not fit in %s beside axis %d",
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

typedef struct gather_job {
    aril__loops nest; /* 0: out, 1: index, 2: x */
    int64_t base[3], along, size, bytes;
    const aril__mover *mover;
    char *out, *x;
    const int64_t *index;
    bool checked;        /* all indices have been checked */
    atomic_bool outside; /* an index is out of range */
} gather_job;

static void gather_range(void *ctx, int64_t begin, int64_t end)
{
    gather_job *j = ctx;
    const aril__loops *n = &j->nest;
    aril__loops_at p;
    int64_t step[3] = { 0, 0, 0 };
    for (int k = 0; k < 3 && n->ndim; k++) step[k] = n->stride[k][n->ndim - 1];
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        if (m > end - begin) m = end - begin;
        if (!j->checked) {
            m = m < BLOCK ? m : BLOCK; /* check and use them while they are in the cache */
            if (aril__outside(j->index + p.offset[1], m, -j->size, j->size)) {
                atomic_store_explicit(&j->outside, true, memory_order_relaxed);
                return;
            }
        }
        j->mover->gather(j->out + p.offset[0] * j->bytes, step[0], j->x + p.offset[2] * j->bytes,
                         step[2], j->along, j->index + p.offset[1], step[1], j->size, m);
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

static aril_status gather_ref(aril__run *r)
{
    const struct gather_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0], *index = r->in[1];
    aril_tensor *out = r->out[0];
    int axis = (int)a->axis[0];
    if (out->numel == 0) return ARIL_OK;
    gather_job j = { .nest = aril__loops_of(index->ndim, index->dim),
                     .base = { out->offset, 0, x->offset },
                     .along = stride_along(x, axis),
                     .size = size_along(x, axis),
                     .bytes = aril__dtypes[x->dtype].bits / 8,
                     .mover = aril__mover_of((aril_dtype)x->dtype),
                     .out = aril__base(out),
                     .x = aril__base(x),
                     .index = aril__ptr(index) };
    aril__loops_add(&j.nest, out);
    aril__loops_add(&j.nest, index);
    j.nest.n = 3;
    for (int d = 0; d < index->ndim; d++) j.nest.stride[2][d] = d == axis ? 0 : stride_along(x, d);
    aril__loops_merge(&j.nest, 0);
    int last = j.nest.ndim - 1;
    j.checked = last < 0 || j.nest.stride[1][last] != 1;
    aril_status s = ARIL_OK;
    if (j.checked) s = aril__check_indices(r->op->name, index, j.size, axis, true);
    if (s < 0) return s;
    aril__parallel_for(out->numel, GRAIN, gather_range, &j);
    if (atomic_load_explicit(&j.outside, memory_order_relaxed))
        s = aril__check_indices(r->op->name, index, j.size, axis, true); /* reports which one */
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
OP(gather, .doc = "elements picked along an axis, each by an index of its own",
   .onnx = "GatherElements", .min_in = 2, .max_in = 2, .n_out = 1, .flags = STRIDED | RAW,
   .index_in = IN(1), .types = DT_WHOLE_BYTES, .infer = gather_infer, .ref = gather_ref,
   .vjp = gather_vjp, .saves = { LIKE(0) | IN(1) }, .samples = gather_samples, WITH_ATTRS(gather));

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
        return aril__fail(ARIL_ERR_DTYPE, "%s: src is %s, the tensor put to %s", c->op->name,
                          aril__dtypes[src->dtype].name, aril__dtypes[x->dtype].name);
    bool fits = src->ndim == 0 || src->ndim == index->ndim;
    for (int d = 0; d < src->ndim && fits; d++)
        fits = src->dim[d] == index->dim[d] || src->dim[d] < 0 || index->dim[d] < 0;
    if (!fits) {
        char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: src has shape %s, the index %s", c->op->name,
                          aril__text(p, src), aril__text(q, index));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

typedef struct scatter_job {
    aril__loops lines; /* all dimensions but the axis; 0: out, 1: index, 2: src */
    int64_t base[3];
    int64_t along[3]; /* strides of the axis */
    int64_t size, n, bytes;
    const aril__mover *mover;
    const aril__combiner *combiner; /* NULL: overwrite */
    aril__combine how;
    char *out, *src;
    const int64_t *index;
} scatter_job;

/* m elements of one line, or one element from each of m lines. */
static void scatter_run(const scatter_job *j, const int64_t *at, int64_t so, int64_t si, int64_t ss,
                        int64_t m)
{
    void *out = j->out + at[0] * j->bytes;
    const void *src = j->src + at[2] * j->bytes;
    const int64_t *index = j->index + at[1];
    if (j->combiner)
        j->combiner->scatter(j->how, out, so, j->along[0], index, si, j->size, src, ss, m);
    else
        j->mover->scatter(out, so, j->along[0], index, si, j->size, src, ss, m);
}

static void scatter_range(void *ctx, int64_t begin, int64_t end)
{
    const scatter_job *j = ctx;
    const aril__loops *n = &j->lines;
    aril__loops_at p;
    int64_t step[3] = { 0, 0, 0 };
    for (int k = 0; k < 3 && n->ndim; k++) step[k] = n->stride[k][n->ndim - 1];
    aril__loops_seek(n, &p, begin, j->base);
    while (begin < end) {
        int64_t m = aril__loops_run(n, &p);
        if (m > end - begin) m = end - begin;
        int64_t at[3] = { p.offset[0], p.offset[1], p.offset[2] };
        if (step[0] != 1) { /* one line at a time */
            for (int64_t k = 0; k < m; k++) {
                scatter_run(j, at, 0, j->along[1], j->along[2], j->n);
                for (int i = 0; i < 3; i++) at[i] += step[i];
            }
        } else { /* adjacent lines together */
            for (int64_t k = 0; k < j->n; k++) {
                scatter_run(j, at, step[0], step[1], step[2], m);
                at[1] += j->along[1];
                at[2] += j->along[2];
            }
        }
        begin += m;
        aril__loops_move(n, &p, m);
    }
}

/* wrap: the size along the axis if some indices are negative, else 0. */
static void scatter_to(aril_tensor *out, const aril_tensor *index, const aril_tensor *src, int axis,
                       int64_t wrap, const aril__combiner *combiner, aril__combine how)
{
    scatter_job j = { .base = { out->offset, 0, src->offset },
                      .along = { stride_along(out, axis), stride_along(index, axis),
                                 stride_along(src, axis) },
                      .size = wrap,
                      .n = size_along(index, axis),
                      .bytes = aril__dtypes[out->dtype].bits / 8,
                      .mover = aril__mover_of((aril_dtype)out->dtype),
                      .combiner = combiner,
                      .how = how,
                      .out = aril__base(out),
                      .src = aril__base(src),
                      .index = aril__ptr(index) };
    int64_t lines = 1;
    if (index->numel == 0) return;
    j.lines.n = 3;
    for (int d = 0; d < index->ndim; d++) {
        if (d == axis) continue;
        int k = j.lines.ndim++;
        lines *= j.lines.dim[k] = index->dim[d];
        j.lines.stride[0][k] = out->stride[d];
        j.lines.stride[1][k] = index->stride[d];
        j.lines.stride[2][k] = stride_along(src, d);
    }
    aril__loops_merge(&j.lines, 0);
    /* Adjacent lines share cache lines. */
    bool beside = j.lines.ndim && j.lines.stride[0][j.lines.ndim - 1] == 1;
    int64_t few = beside ? 16 : 1, worth = GRAIN / 2 / j.n;
    if (worth < few) worth = few;
    int64_t grain = (lines - 1) / aril__parallel_pieces(lines, worth) + 1;
    aril__parallel_for(lines, grain > few ? grain : few, scatter_range, &j);
}

static aril_status scatter_with(aril__run *r, const aril__combiner *combiner, aril__combine how)
{
    const struct scatter_attrs *a = r->attrs;
    int axis = (int)a->axis[0];
    aril_tensor *out = r->out[0];
    const aril_tensor *index = r->in[1];
    int64_t wrap;
    aril_status s = aril__check_and_wrap(r->op->name, index, size_along(out, axis), axis, &wrap);
    if (s < 0) return s;
    if (out != r->in[0]) aril__copy_elements(out, r->in[0]);
    if (combiner && a->alone[0]) { /* start from the identity element */
        static const double reals[] = { 0, 1, -INFINITY, INFINITY };
        static const int64_t wholes[] = { 0, 1, INT64_MIN, INT64_MAX };
        static const uint64_t unsigneds[] = { 0, 1, 0, UINT64_MAX };
        uint64_t bits;
        if (aril__is_float((aril_dtype)out->dtype))
            aril__dtypes[out->dtype].store[ARIL__C_F64](&bits, 0, 1, &reals[how], 1);
        else if (out->dtype == ARIL_U64)
            bits = unsigneds[how];
        else
            memcpy(&bits, &wholes[how], sizeof bits);
        aril__storage one = { .data = &bits, .bytes = 8 };
        aril_tensor neutral = { .dtype = out->dtype, .numel = 1, .storage = &one };
        scatter_to(out, index, &neutral, axis, wrap, NULL, how);
    }
    scatter_to(out, index, r->in[2], axis, wrap, combiner, how);
    return ARIL_OK;
}

static aril_status scatter_ref(aril__run *r)
{
    return scatter_with(r, NULL, ARIL__ADD);
}

static aril_status scatter_add_ref(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__ADD);
}

static aril_status scatter_mul_ref(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__MUL);
}

static aril_status scatter_max_ref(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__MAX);
}

static aril_status scatter_min_ref(aril__run *r)
{
    return scatter_with(r, aril__combiner_of(r->type), ARIL__MIN);
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
OP(scatter, .doc = "a tensor with elements put along an axis, each at an index of its own",
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
OP(scatter_add, .doc = "a tensor with elements added along an axis, each at an index of its own",
   SCATTER_ROW, .ref = scatter_add_ref, .vjp = scatter_add_vjp,
   .saves = { IN(1), 0, IN(1) | LIKE(2) }, .samples = scatter_add_samples, WITH_ATTRS(scatter));
OP(scatter_mul, .doc = "a tensor with elements multiplied in along an axis, by index", SCATTER_ROW,
   .ref = scatter_mul_ref, .vjp = scatter_mul_vjp,
   .saves = { IN(0) | IN(1) | IN(2), 0, IN(0) | IN(1) | IN(2) | OUT(0) },
   .samples = scatter_mul_samples, WITH_ATTRS(scatter));
OP(scatter_max, .doc = "a tensor with the larger elements put along an axis, by index", SCATTER_ROW,
   .ref = scatter_max_ref, .vjp = extreme_vjp, .saves = { EXTREME_SAVES, 0, EXTREME_SAVES },
   .samples = extreme_samples, WITH_ATTRS(scatter));
OP(scatter_min, .doc = "a tensor with the smaller elements put along an axis, by index",
   SCATTER_ROW, .ref = scatter_min_ref, .vjp = extreme_vjp,
   .saves = { EXTREME_SAVES, 0, EXTREME_SAVES }, .samples = extreme_samples, WITH_ATTRS(scatter));

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
    aril_shape to = aril__shape(index);
    bool same = index->ndim == x->ndim;
    for (int d = 0; d < index->ndim && index->ndim == x->ndim; d++) {
        if (d == axis || index->dim[d] != 1 || x->dim[d] == 1) continue;
        to.dim[d] = x->dim[d];
        same = false;
    }
    return same || index->ndim != x->ndim ? index : aril_expand(index, to);
}

aril_tensor *aril_take_along_axis(aril_tensor *x, aril_tensor *index, int axis)
{
    if (!x || !index) return aril__null_tensor("take_along_axis");
    if (aril__is_poison(x) || aril__is_poison(index))
        return aril__pass_on(x->flags & ARIL__POISON ? x : index);
    int at = aril__axis("take_along_axis", axis, x->ndim);
    if (at < 0) return aril__poison();
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
    if (at < 0) return aril__poison();
    ARIL_SCOPE;
    aril_tensor *wide = broadcast_beside(index, x, at);
    if (src->ndim) src = aril__expand_like(src, wide);
    return aril_escape(aril_scatter(x, wide, src, at));
}
