/* Matrix products. Three table ops, closed under differentiation: matmul, linear (a matmul with a
 * transposed weight and a bias) and outer_sum (which computes weight gradients). */
#include "ops/linalg/matmul.h"

#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/elementwise/activation.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/element.h"
#include "ops/table/flops.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"

#include <string.h>

ATTR_LIST(linear, LINEAR_ATTRS)

/* ---- geometry ---- */

static int64_t step_of(const aril_tensor *t, int axis_from_end)
{
    int d = t->ndim - axis_from_end;
    return d >= 0 && t->dim[d] != 1 ? t->stride[d] : 0;
}

static aril__product matmul_product(const aril_tensor *a, const aril_tensor *b,
                                    const aril_tensor *c)
{
    int n = c->ndim;
    aril__product p = { .m = c->dim[n - 2],
                        .n = c->dim[n - 1],
                        .k = a->dim[a->ndim - 1],
                        .a_row = a->stride[a->ndim - 2],
                        .a_col = a->stride[a->ndim - 1],
                        .b_row = b->stride[b->ndim - 2],
                        .b_col = b->stride[b->ndim - 1],
                        .c_row = c->stride[n - 2],
                        .c_col = c->stride[n - 1],
                        .ndim = n - 2 };
    for (int d = 0; d < n - 2; d++) {
        p.dim[d] = c->dim[d];
        p.a_step[d] = step_of(a, n - d);
        p.b_step[d] = step_of(b, n - d);
        p.c_step[d] = step_of(c, n - d);
    }
    return p;
}

static aril__product linear_product(const aril_tensor *x, const aril_tensor *w,
                                    const aril_tensor *y)
{
    int last = x->ndim - 1;
    aril__product p = { .m = last > 0 ? x->dim[last - 1] : 1,
                        .n = w->dim[0],
                        .k = w->dim[1],
                        .a_row = last > 0 ? x->stride[last - 1] : 0,
                        .a_col = x->stride[last],
                        .b_row = w->stride[1],
                        .b_col = w->stride[0],
                        .c_row = last > 0 ? y->stride[last - 1] : 0,
                        .c_col = y->stride[last],
                        .ndim = last > 0 ? last - 1 : 0 };
    for (int d = 0; d < p.ndim; d++) {
        p.dim[d] = x->dim[d];
        p.a_step[d] = x->dim[d] == 1 ? 0 : x->stride[d];
        p.c_step[d] = x->dim[d] == 1 ? 0 : y->stride[d];
    }
    return p;
}

static aril__product outer_sum_product(const aril_tensor *a, const aril_tensor *c)
{
    int64_t m = c->dim[0], n = c->dim[1];
    return (aril__product){ .m = m,
                            .n = n,
                            .k = aril__count(a->ndim - 1, a->dim),
                            .a_row = 1,
                            .a_col = m,
                            .b_row = n,
                            .b_col = 1,
                            .c_row = c->stride[0],
                            .c_col = c->stride[1] };
}

aril__product aril__product_of(const aril__run *r)
{
    const aril_tensor *a = r->in[0], *b = r->in[1], *c = r->out[0];
    aril__product p = r->op == &aril__op_matmul   ? matmul_product(a, b, c)
                      : r->op == &aril__op_linear ? linear_product(a, b, c)
                                                  : outer_sum_product(a, c);
    p.a = aril__ptr_or_null(a);
    p.b = aril__ptr_or_null(b);
    p.c = aril__ptr_or_null(c);
    aril__product_merge(&p);
    return p;
}

/* ---- the reference ---- */

/* The element of t that lies `at` elements after its first one in memory. */
static double number_at(const aril_tensor *t, int64_t at)
{
    double v;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&v, aril__base(t), t->offset + at, 1, 1);
    return v;
}

static uint64_t integer_at(const aril_tensor *t, int64_t at)
{
    int64_t v;
    aril__dtypes[t->dtype].load[ARIL__C_I64](&v, aril__base(t), t->offset + at, 1, 1);
    return (uint64_t)v;
}

/* Integers wrap around. */
static aril_status product_ref(aril__run *r)
{
    const aril_tensor *a = r->in[0], *b = r->in[1];
    const struct linear_attrs *at = r->op == &aril__op_linear ? r->attrs : NULL;
    const aril_tensor *bias = r->op == &aril__op_linear && r->n_in > 2 ? r->in[2] : NULL;
    aril__product p = aril__product_of(r);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t row = i / p.n, column = i % p.n, first[3];
        aril__product_at(&p, row / p.m, first);
        double sum = bias ? aril__get(bias, column) : 0;
        uint64_t integers = bias ? (uint64_t)aril__get_i64(bias, column) : 0;
        for (int64_t k = 0; k < p.k; k++) {
            int64_t from = first[0] + row % p.m * p.a_row + k * p.a_col;
            int64_t by = first[1] + k * p.b_row + column * p.b_col;
            if (aril__is_float(r->type))
                sum += number_at(a, from) * number_at(b, by);
            else
                integers += integer_at(a, from) * integer_at(b, by);
        }
        if (aril__is_float(r->type))
            aril__put(r->out[0], i, at ? aril__activate(at->activation[0], sum) : sum);
        else
            aril__put_i64(r->out[0], i, (int64_t)integers);
    }
    return ARIL_OK;
}

enum { TYPES = DT_FLOAT | DT_INT };

/* ---- shapes ---- */

static aril_status same_dtype(const aril__call *c, int i)
{
    if (c->in[i]->dtype == c->in[0]->dtype) return ARIL_OK;
    return aril__fail(ARIL_ERR_DTYPE,
                      "%s: dtypes %s and %s differ; cast one of them with aril_cast", c->op->name,
                      aril__dtypes[c->in[0]->dtype].name, aril__dtypes[c->in[i]->dtype].name);
}

static aril__cold aril_status inner_error(const char *what, const aril_tensor *x,
                                          const aril_tensor *y, int64_t a, int64_t b)
{
    char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: inner sizes differ: %s x %s (%lld != %lld)", what,
                      aril__text(ta, x), aril__text(tb, y), (long long)a, (long long)b);
}

static bool differ(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

/* ---- matmul ---- */

static aril_status matmul_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    aril__meta *o = &c->out[0];
    char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    if (a->ndim < 2 || b->ndim < 2)
        return aril__fail(ARIL_ERR_SHAPE, "matmul: expected matrices, got %s x %s",
                          aril__text(ta, a), aril__text(tb, b));
    int64_t ka = a->dim[a->ndim - 1], kb = b->dim[b->ndim - 2];
    if (differ(ka, kb)) return inner_error(c->op->name, c->in[0], c->in[1], ka, kb);
    o->ndim = a->ndim - 2;
    memcpy(o->dim, a->dim, (size_t)o->ndim * sizeof *o->dim);
    if (!aril__broadcast(&o->ndim, o->dim, b->ndim - 2, b->dim))
        return aril__fail(ARIL_ERR_SHAPE, "matmul: batch sizes do not broadcast: %s x %s",
                          aril__text(ta, a), aril__text(tb, b));
    o->dim[o->ndim++] = a->dim[a->ndim - 2];
    o->dim[o->ndim++] = b->dim[b->ndim - 1];
    o->dtype = (aril_dtype)a->dtype;
    return same_dtype(c, 1);
}

static aril_tensor *transposed(aril_tensor *x)
{
    return aril_transpose(x, -2, -1);
}

static aril_tensor *outer_sum(aril_tensor *a, aril_tensor *b)
{
    return aril__op(&aril__op_outer_sum, a, b);
}

/* g summed to the batch sizes of `like`, where they were broadcast. */
static aril_tensor *undo_batch(aril_tensor *g, aril_tensor *like)
{
    if (aril__same_dims(g->ndim, g->dim, like->ndim, like->dim)) return g;
    return aril__sum_to_like(g, like);
}

VJP(matmul)
{
    aril_tensor *a = c->x[0], *b = c->x[1], *g = c->g[0];
    if (!g) return;
    if (c->wants[0]) {
        /* Only the shape of c->x[0] is available. */
        if (a->ndim == 2 && b->ndim > 2) /* sum over the batch within the product */
            c->dx[0] = outer_sum(transposed(g), transposed(b));
        else
            c->dx[0] = undo_batch(aril__op(&aril__op_matmul, g, transposed(b)), a);
    }
    if (c->wants[1]) {
        if (b->ndim == 2 && a->ndim > 2)
            c->dx[1] = outer_sum(a, g);
        else
            c->dx[1] = undo_batch(aril__op(&aril__op_matmul, transposed(a), g), b);
    }
}

static const aril__sample matmul_samples[] = {
    { .in = { "[3,4]", "[4,2]" }, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,4,5]" }, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[4,5]" } },
    { .in = { "[3,4]", "[2,4,2]" } },
    { .in = { "[2,1,3,4]", "[3,4,2]" } },
    { .in = { "[1,1]", "[1,1]" } },
    { .in = { "[0,4]", "[4,2]" } },
    { .in = { "[3,0]", "[0,2]" } },
    { .in = { "[0,2,3]", "[0,3,2]" } },
    SAMPLE_END
};
/* x [...,n,k] or [k], w [k,m] or [m,k]: every element of the result is a sum over k. */
static double product_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->out[0]) * aril__last_size(r->in[0]);
}

OP(matmul, .doc = "matrix product; leading dimensions broadcast", .onnx = "MatMul", .min_in = 2,
   .max_in = 2, .n_out = 1, .cast = CAST_LOW, .flags = STRIDED, .types = TYPES,
   .infer = matmul_infer, .ref = product_ref, .vjp = matmul_vjp,
   .saves = { IN(1) | LIKE(0), IN(0) | LIKE(1) }, .flops = product_flops,
   .samples = matmul_samples);

/* ---- outer_sum ---- */

static aril_status outer_sum_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    aril__meta *o = &c->out[0];
    bool fits = a->ndim == b->ndim && a->ndim >= 1;
    for (int d = 0; fits && d < a->ndim - 1; d++) fits = !differ(a->dim[d], b->dim[d]);
    if (!fits) {
        char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "outer_sum: leading sizes differ: %s and %s",
                          aril__text(ta, a), aril__text(tb, b));
    }
    o->dtype = (aril_dtype)a->dtype;
    o->ndim = 2;
    o->dim[0] = a->dim[a->ndim - 1];
    o->dim[1] = b->dim[b->ndim - 1];
    return same_dtype(c, 1);
}

VJP(outer_sum)
{
    if (!c->g[0]) return;
    GRAD(0, aril_matmul(c->x[1], transposed(c->g[0])));
    GRAD(1, aril_matmul(c->x[0], c->g[0]));
}

static const aril__sample outer_sum_samples[] = { { .in = { "[3,4]", "[3,2]" },
                                                    .flags = SAMPLE_BATCH },
                                                  { .in = { "[2,3,4]", "[2,3,2]" } },
                                                  { .in = { "[4]", "[3]" } },
                                                  { .in = { "[0,4]", "[0,3]" } },
                                                  SAMPLE_END };
/* [...,n] and [...,m] to [n,m]: a sum over the leading indices. */
static double outer_sum_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->in[0]) * aril__last_size(r->in[1]);
}

OP(outer_sum, .doc = "sum of the outer products of the last dimensions over all leading dimensions",
   .min_in = 2, .max_in = 2, .n_out = 1, .types = TYPES, .infer = outer_sum_infer,
   .ref = product_ref, .vjp = outer_sum_vjp, .saves = { IN(1), IN(0) }, .flops = outer_sum_flops,
   .samples = outer_sum_samples);

/* ---- linear ---- */

static aril_status linear_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0], *w = c->in[1], *b = c->n_in > 2 ? c->in[2] : NULL;
    aril__meta *o = &c->out[0];
    char tx[ARIL__SHAPE_TEXT], tw[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    if (x->ndim < 1 || w->ndim != 2)
        return aril__fail(ARIL_ERR_SHAPE,
                          "linear: expected an input [...,in] and a weight [out,in], got %s and %s",
                          aril__text(tx, x), aril__text(tw, w));
    if (differ(x->dim[x->ndim - 1], w->dim[1]))
        return aril__fail(
            ARIL_ERR_SHAPE,
            "linear: the last size of the input %s is %lld, but the weight %s expects %lld",
            aril__text(tx, x), (long long)x->dim[x->ndim - 1], aril__text(tw, w),
            (long long)w->dim[1]);
    if (b && (b->ndim != 1 || differ(b->dim[0], w->dim[0])))
        return aril__fail(ARIL_ERR_SHAPE, "linear: the weight %s expects a bias [%lld], got %s",
                          aril__text(tw, w), (long long)w->dim[0], aril__text(tb, b));
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    o->dim[x->ndim - 1] = w->dim[0];
    int64_t act = ((const struct linear_attrs *)c->attrs)->activation[0];
    aril_status s = aril__activation_check("linear", act);
    if (s == ARIL_OK && act && !aril__is_float(o->dtype))
        s = aril__fail(ARIL_ERR_DTYPE, "linear: activations need a floating-point dtype, got %s",
                       aril__dtypes[o->dtype].name);
    if (s == ARIL_OK) s = same_dtype(c, 1);
    return s == ARIL_OK && b ? same_dtype(c, 2) : s;
}

/* The gradient of a weight, in the weight's memory order: optimizers walk both together, and a
 * layer that stores its weight as [in,out] gets no transposed gradient. */
static aril_tensor *weight_grad(aril_tensor *g, aril_tensor *x, const aril_tensor *w)
{
    bool is_transposed = w->stride[0] == 1 && w->stride[1] > 1;
    return is_transposed ? transposed(outer_sum(x, g)) : outer_sum(g, x);
}

VJP(linear)
{
    const struct linear_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_tensor *g = aril__activation_grad(c->g[0], c->y[0], a->activation[0]);
    GRAD(0, aril_matmul(g, c->x[1]));
    GRAD(1, weight_grad(g, c->x[0], c->x[1]));
    if (c->n_in > 2) GRAD(2, aril__sum_to_like(g, c->x[2]));
}

static const struct linear_attrs linear_plain = { { 0 } }, linear_relu = { { ARIL_RELU } },
                                 linear_sigmoid = { { ARIL_SIGMOID } },
                                 linear_tanh = { { ARIL_TANH } };

static const aril__sample linear_samples[] = {
    { .in = { "[3,4]", "[2,4]", "[2]" }, .attrs = &linear_plain, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[5,4]", "-" }, .attrs = &linear_plain },
    { .in = { "[4]", "[2,4]", "[2]" }, .attrs = &linear_plain },
    { .in = { "[0,4]", "[2,4]", "[2]" }, .attrs = &linear_plain },
    { .in = { "[2,0]", "[3,0]", "[3]" }, .attrs = &linear_plain },
    { .in = { "[3,4]", "[2,4]", "[2]" }, .attrs = &linear_relu },
    { .in = { "[3,4]", "[5,4]", "-" }, .attrs = &linear_sigmoid },
    { .in = { "[2,3,4]", "[1,4]", "[1]" }, .attrs = &linear_tanh },
    SAMPLE_END
};
OP(linear, .doc = "x times the transposed weight, plus bias, with an optional activation",
   .onnx = "Gemm", .min_in = 2, .max_in = 3, .n_out = 1, .cast = CAST_LOW, .flags = STRIDED,
   .optional = IN(2), .types = TYPES, .infer = linear_infer, .ref = product_ref, .vjp = linear_vjp,
   .saves = { IN(1), IN(0) | LIKE(1), LIKE(2) }, .flops = product_flops, .samples = linear_samples,
   WITH_ATTRS(linear), WITH_ACTIVATION(linear));

/* ---- public ---- */

/* Returns poison if one is NULL or poisoned; NULL: continue. */
static aril_tensor *refuse(const char *what, aril_tensor *a, aril_tensor *b)
{
    if (!a || !b) return aril__null_tensor(what);
    return aril__is_poison(a) ? aril__pass_on(a) : aril__is_poison(b) ? aril__pass_on(b) : NULL;
}

static aril_tensor *squeezed(aril_tensor *x, int axis_from_end)
{
    if (aril__is_poison(x)) return aril__pass_on(x);
    struct unsqueeze_attrs a = { { 1 << (x->ndim - axis_from_end) } };
    return aril__op_with(&a, &aril__op_squeeze, x);
}

aril_tensor *aril_matmul(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse("matmul", a, b);
    if (bad) return bad;
    if (a->ndim >= 2 && b->ndim >= 2) return aril__op(&aril__op_matmul, a, b);
    if (a->ndim == 0 || b->ndim == 0) {
        char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "matmul: needs at least one dimension, got %s x %s",
                   aril__text(ta, a), aril__text(tb, b));
        return aril__poison();
    }
    bool row = a->ndim == 1, column = b->ndim == 1;
    int64_t ka = a->dim[a->ndim - 1], kb = b->dim[column ? 0 : b->ndim - 2];
    if (differ(ka, kb)) { /* checked here so that the message shows the original shapes */
        inner_error("matmul", a, b, ka, kb);
        return aril__poison();
    }
    ARIL_SCOPE;
    aril_tensor *y = aril__op(&aril__op_matmul, row ? aril_unsqueeze(a, 0) : a,
                              column ? aril_unsqueeze(b, 1) : b);
    if (column) y = squeezed(y, 1);
    if (row) y = squeezed(y, column ? 1 : 2);
    return aril_escape(y);
}

/* The product of operands that must have exactly the given numbers of dimensions. */
static aril_tensor *exact(const char *what, aril_tensor *a, int a_ndim, aril_tensor *b, int b_ndim)
{
    aril_tensor *bad = refuse(what, a, b);
    if (bad) return bad;
    if (a->ndim == a_ndim && b->ndim == b_ndim) return aril_matmul(a, b);
    char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    aril__fail(ARIL_ERR_SHAPE, "%s: needs %d-d x %d-d, got %s x %s", what, a_ndim, b_ndim,
               aril__text(ta, a), aril__text(tb, b));
    return aril__poison();
}

aril_tensor *aril_dot(aril_tensor *a, aril_tensor *b)
{
    AUTOCAST_AS(CAST_NONE, &a, &b); /* as in PyTorch: not among the products that are cast */
    return exact("dot", a, 1, b, 1);
}

aril_tensor *aril_mv(aril_tensor *a, aril_tensor *x)
{
    AUTOCAST_AS(CAST_NONE, &a, &x);
    return exact("mv", a, 2, x, 1);
}

aril_tensor *aril_mm(aril_tensor *a, aril_tensor *b)
{
    return exact("mm", a, 2, b, 2);
}

static aril_status same_batch(const aril__requirement *q)
{
    const aril_shape *a = &q->shape[0], *b = &q->shape[1];
    char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    if (!differ(a->dim[0], b->dim[0])) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "bmm: batch sizes differ: %s x %s",
                      aril__shape_text(ta, a->ndim, a->dim), aril__shape_text(tb, b->ndim, b->dim));
}

aril_tensor *aril_bmm(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse("bmm", a, b);
    if (bad) return bad;
    if (a->ndim == 3 && b->ndim == 3 && aril__require_of("bmm", same_batch, a, b) < 0)
        return aril__poison();
    return exact("bmm", a, 3, b, 3);
}

aril_tensor *aril_outer(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse("outer", a, b);
    if (bad) return bad;
    if (a->ndim != 1 || b->ndim != 1) {
        char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "outer: needs 1-d x 1-d, got %s x %s", aril__text(ta, a),
                   aril__text(tb, b));
        return aril__poison();
    }
    ARIL_SCOPE;
    return aril_escape(aril_mul(aril_unsqueeze(a, 1), b));
}

/* Widens an operand of a scaled product to f32 if it is narrower, so that the result is rounded
 * once. */
static aril_tensor *factor(aril_tensor *t)
{
    bool narrow =
        t && !(t->flags & ARIL__POISON) && (t->dtype == ARIL_F16 || t->dtype == ARIL_BF16);
    return narrow ? aril_cast(t, ARIL_F32) : t;
}

/* Check before widening, which would make f16 match f32. NULL and poison are left to the
 * product. */
static bool dtypes_differ(const char *what, const aril_tensor *a, const aril_tensor *b)
{
    if (!a || !b || ((a->flags | b->flags) & ARIL__POISON) || a->dtype == b->dtype) return false;
    aril__fail(ARIL_ERR_DTYPE, "%s: dtypes %s and %s differ; cast one of them with aril_cast", what,
               aril__dtypes[a->dtype].name, aril__dtypes[b->dtype].name);
    return true;
}

static aril_status summand_fits(const aril__requirement *q)
{
    const aril_shape *c = &q->shape[0], *product = &q->shape[1];
    char tc[ARIL__SHAPE_TEXT], tp[ARIL__SHAPE_TEXT];
    if (aril__broadcasts_to(c, product)) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s: %s does not broadcast to the shape of the product, %s",
                      q->what, aril__shape_text(tc, c->ndim, c->dim),
                      aril__shape_text(tp, product->ndim, product->dim));
}

/* beta * c + alpha * product; beta 0 ignores c, even NaN. */
static aril_tensor *scaled_sum(const char *what, aril_tensor *c, const aril_tensor *a,
                               aril_tensor *product, double beta, double alpha)
{
    if (!c) return aril__null_tensor(what);
    if (aril__is_poison(c) || aril__is_poison(product))
        return aril__pass_on(aril__is_poison(c) ? c : product);
    aril_dtype type = (aril_dtype)c->dtype;
    if (type != a->dtype) {
        aril__fail(ARIL_ERR_DTYPE, "%s: the dtypes of the summand, %s, and the product, %s, differ",
                   what, aril__dtypes[type].name, aril__dtypes[a->dtype].name);
        return aril__poison();
    }
    c = factor(c);
    if (aril__require_of(what, summand_fits, c, product) < 0) return aril__poison();
    bool integral = !aril__is_float((aril_dtype)c->dtype);
    aril_number na = integral ? aril__integer((int64_t)alpha) : aril__real(alpha);
    aril_number nb = integral ? aril__integer((int64_t)beta) : aril__real(beta);
    if (alpha != 1) product = aril_mul_scalar(product, na);
    if (beta != 0) product = aril_add(beta == 1 ? c : aril_mul_scalar(c, nb), product);
    return aril_cast(product, type);
}

aril_tensor *aril_addmm(aril_tensor *c, aril_tensor *a, aril_tensor *b, double beta, double alpha)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_LOW, &c, &a, &b);
    if (dtypes_differ("addmm", a, b)) return aril_escape(aril__poison());
    return aril_escape(scaled_sum("addmm", c, a, aril_mm(factor(a), factor(b)), beta, alpha));
}

aril_tensor *aril_baddbmm(aril_tensor *c, aril_tensor *a, aril_tensor *b, double beta, double alpha)
{
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_LOW, &c, &a, &b);
    if (dtypes_differ("baddbmm", a, b)) return aril_escape(aril__poison());
    return aril_escape(scaled_sum("baddbmm", c, a, aril_bmm(factor(a), factor(b)), beta, alpha));
}

aril_tensor *aril_addmv(aril_tensor *c, aril_tensor *a, aril_tensor *x, double beta, double alpha)
{
    if (dtypes_differ("addmv", a, x)) return aril__poison();
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_NONE, &c, &a, &x);
    return aril_escape(scaled_sum("addmv", c, a, aril_mv(factor(a), factor(x)), beta, alpha));
}

aril_tensor *aril_linear(aril_tensor *x, aril_tensor *w, aril_tensor *b)
{
    return aril_linear_with(x, w, b, (aril_linear_opts){ 0 });
}

aril_tensor *aril_linear_with(aril_tensor *x, aril_tensor *w, aril_tensor *b, aril_linear_opts opts)
{
    struct linear_attrs a = { { opts.activation } };
    return aril__op_with(&a, &aril__op_linear, x, w, b);
}
