#include "ops/index/masked.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/index/indexing.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"
#include "ops/elementwise/elementwise.h"

#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_masked_scatter, aril__op_masked_scatter_grad;

/* ---- nonzero ---- */

static aril_status nonzero_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = ARIL_I64;
    o->ndim = 2;
    o->dim[0] = -1;
    o->dim[1] = c->in[0]->ndim;
    return ARIL_OK;
}

static aril_status nonzero_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    int64_t dim[2] = { 0, x->ndim }, at = 0;
    for (int64_t i = 0; i < x->numel; i++) dim[0] += aril__get(x, i) != 0;
    aril_status s = aril__run_alloc(r, 0, ARIL_I64, 2, dim);
    for (int64_t i = 0; i < x->numel && s == ARIL_OK; i++) {
        if (aril__get(x, i) == 0) continue;
        for (int64_t d = x->ndim - 1, rest = i; d >= 0; rest /= x->dim[d--])
            aril__put_i64(r->out[0], at * x->ndim + d, rest % x->dim[d]);
        at++;
    }
    return s;
}

static const aril__sample nonzero_samples[] = { { .in = { "b[3,4]" } },
                                                { .in = { "[5]" } },
                                                { .in = { "[]" } },
                                                { .in = { "[0,3]" } },
                                                SAMPLE_END };
OP(nonzero, .doc = "indices of the nonzero elements", .onnx = "NonZero", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED | NONDIFF | DYNAMIC | RAW, .types = DT_COMPUTE,
   .infer = nonzero_infer, .ref = nonzero_ref, .samples = nonzero_samples);

/* ---- masked_select, masked_scatter ---- */

/* The mask is boolean and broadcasts to x. */
static aril_status check_mask(const aril__call *c)
{
    const aril_tensor *x = c->in[0], *mask = c->in[1];
    if (mask->dtype != ARIL_BOOL)
        return aril__fail(ARIL_ERR_DTYPE, "%s: the mask must be bool, got %s", c->op->name,
                          aril__dtypes[mask->dtype].name);
    int n = x->ndim;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, x->dim, sizeof dim);
    bool fits = mask->ndim <= n && aril__broadcast(&n, dim, mask->ndim, mask->dim);
    for (int d = 0; d < n && fits; d++) fits = dim[d] == x->dim[d] || x->dim[d] < 0;
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: mask %s does not broadcast to %s", c->op->name,
                      aril__text(a, mask), aril__text(b, x));
}

/* Whether the mask, broadcast to x, is true at element i of x. */
static bool is_true(const aril_tensor *mask, const aril_tensor *x, int64_t i)
{
    return aril__get_i64(mask, aril__broadcast_at(mask, x->ndim, x->dim, i)) != 0;
}

static int64_t count_true(const aril_tensor *x, const aril_tensor *mask)
{
    int64_t count = 0;
    for (int64_t i = 0; i < x->numel; i++) count += is_true(mask, x, i);
    return count;
}

static aril_status masked_select_infer(aril__call *c)
{
    aril_status s = check_mask(c);
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[0].ndim = 1;
    c->out[0].dim[0] = -1;
    return s;
}

static aril_status masked_select_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0], *mask = r->in[1];
    int64_t n = count_true(x, mask), to = 0;
    aril_status s = aril__run_alloc(r, 0, (aril_dtype)x->dtype, 1, &n);
    for (int64_t i = 0; i < x->numel && s == ARIL_OK; i++)
        if (is_true(mask, x, i)) aril__put_same(r->out[0], to++, x, i);
    return s;
}

/* Zeros like `like` with g scattered to where the mask is true. */
static aril_tensor *spread_on_zeros(aril_tensor *like, aril_tensor *mask, aril_tensor *g)
{
    aril_tensor *zeros = aril_zeros_like(like);
    return aril__apply_to(zeros, &aril__op_masked_scatter, 3, (aril_tensor *[]){ zeros, mask, g },
                          NULL);
}

VJP(masked_select)
{
    if (c->g[0]) GRAD(0, spread_on_zeros(c->x[0], c->x[1], c->g[0]));
}

static const aril__sample masked_select_samples[] = {
    { .in = { "[3,4]", "b[3,4]" } },   { .in = { "[3,4]", "b[4]" } },
    { .in = { "[2,3,2]", "b[3,1]" } }, { .in = { "[]", "b[]" } },
    { .in = { "[0,3]", "b[3]" } },     SAMPLE_END
};
OP(masked_select, .doc = "1-d tensor of the elements where a mask is true", .min_in = 2,
   .max_in = 2, .n_out = 1, .flags = STRIDED | RAW | DYNAMIC, .types = DT_WHOLE_BYTES,
   .infer = masked_select_infer, .ref = masked_select_ref, .vjp = masked_select_vjp,
   .saves = { LIKE(0) | IN(1) }, .samples = masked_select_samples);

static aril_status masked_scatter_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0], *src = c->in[2];
    aril__meta *o = &c->out[0];
    aril_status s = check_mask(c);
    if (s == ARIL_OK && src->dtype != x->dtype)
        s = aril__fail(ARIL_ERR_DTYPE, "masked_scatter: src is %s, but the tensor is %s",
                       aril__dtypes[src->dtype].name, aril__dtypes[x->dtype].name);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return s;
}

static aril_status masked_scatter_ref(aril__run *r)
{
    aril_tensor *out = r->out[0];
    const aril_tensor *mask = r->in[1], *src = r->in[2];
    int64_t need = count_true(out, mask), from = 0;
    if (need > src->numel)
        return aril__fail(ARIL_ERR_SHAPE,
                          "masked_scatter: the mask selects %lld elements, but src has only %lld",
                          (long long)need, (long long)src->numel);
    for (int64_t i = 0; i < out->numel; i++)
        if (is_true(mask, out, i))
            aril__put_same(out, i, src, from++);
        else
            aril__put_same(out, i, r->in[0], i);
    return ARIL_OK;
}

VJP(masked_scatter)
{
    if (!c->g[0]) return;
    GRAD(0, aril_where(c->x[1], aril_scalar(0), c->g[0]));
    GRAD(2, aril__op(&aril__op_masked_scatter_grad, c->g[0], c->x[1], c->x[2]));
}

static const aril__sample masked_scatter_samples[] = {
    { .in = { "[3,4]", "b[3,4]", "[12]" } },  { .in = { "[3,4]", "b[4]", "[3,5]" } },
    { .in = { "[2,3]", "b[2,1]", "[2,3]" } }, { .in = { "[]", "b[]", "[1]" } },
    { .in = { "[0,3]", "b[3]", "[0]" } },     SAMPLE_END
};
OP(masked_scatter,
   .doc = "replaces elements where a mask is true by those of another tensor, in order",
   .min_in = 3, .max_in = 3, .n_out = 1, .flags = STRIDED | INPLACE | RAW | KEEPS_ORDER,
   .types = DT_WHOLE_BYTES, .infer = masked_scatter_infer, .ref = masked_scatter_ref,
   .vjp = masked_scatter_vjp, .saves = { IN(1), 0, IN(1) | LIKE(2) },
   .samples = masked_scatter_samples);

/* The gradient of src: g where the mask is true, padded with zeros to the size of src. */
static aril_status masked_scatter_grad_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[2]->ndim;
    memcpy(o->dim, c->in[2]->dim, (size_t)o->ndim * sizeof *o->dim);
    return check_mask(c);
}

static aril_status masked_scatter_grad_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0], *mask = r->in[1];
    aril_tensor *out = r->out[0];
    int64_t n = count_true(g, mask), to = 0;
    if (n > out->numel)
        return aril__fail(
            ARIL_ERR_SHAPE,
            "masked_scatter_grad: the mask selects %lld elements, but src has only %lld",
            (long long)n, (long long)out->numel);
    for (int64_t i = 0; i < out->numel; i++) aril__put(out, i, 0);
    for (int64_t i = 0; i < g->numel; i++)
        if (is_true(mask, g, i)) aril__put_same(out, to++, g, i);
    return ARIL_OK;
}

VJP(masked_scatter_grad)
{
    if (c->g[0]) GRAD(0, spread_on_zeros(c->x[0], c->x[1], c->g[0]));
}

static const aril__sample masked_scatter_grad_samples[] = { { .in = { "[3,4]", "b[3,4]", "[12]" } },
                                                            { .in = { "[3,4]", "b[4]", "[3,5]" } },
                                                            SAMPLE_END };
OP(masked_scatter_grad, .doc = "gradient of masked_scatter with respect to the source", .min_in = 3,
   .max_in = 3, .n_out = 1, .flags = GRADIENT | STRIDED | RAW, .shape_only = IN(2),
   .types = DT_WHOLE_BYTES, .infer = masked_scatter_grad_infer, .ref = masked_scatter_grad_ref,
   .vjp = masked_scatter_grad_vjp, .saves = { LIKE(0) | IN(1) },
   .samples = masked_scatter_grad_samples);

/* ---- one_hot ---- */

ATTR_LIST(one_hot, ONE_HOT_ATTRS)

static aril_status one_hot_infer(aril__call *c)
{
    int64_t classes = ((const struct one_hot_attrs *)c->attrs)->classes[0];
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    aril_status s = aril__check_index_dtype("one_hot", x);
    if (s < 0) return s;
    if (classes < 1 || x->ndim == ARIL_MAX_DIMS)
        return aril__fail(classes < 1 ? ARIL_ERR_ARG : ARIL_ERR_SHAPE,
                          "one_hot: %lld classes, %d dimensions", (long long)classes, x->ndim);
    o->dtype = ARIL_I64;
    o->ndim = x->ndim + 1;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *o->dim);
    o->dim[x->ndim] = classes;
    return ARIL_OK;
}

static aril_status one_hot_ref(aril__run *r)
{
    int64_t classes = ((const struct one_hot_attrs *)r->attrs)->classes[0];
    const aril_tensor *x = r->in[0];
    const int64_t *at = aril__ptr(x);
    int64_t *out = aril__ptr(r->out[0]);
    for (int64_t i = 0; i < x->numel; i++)
        if (at[i] < 0 || at[i] >= classes)
            return aril__fail(ARIL_ERR_INDEX,
                              "one_hot: index %lld is out of range for %lld classes",
                              (long long)at[i], (long long)classes);
    memset(out, 0, (size_t)r->out[0]->numel * sizeof *out);
    for (int64_t i = 0; i < x->numel; i++) out[i * classes + at[i]] = 1;
    return ARIL_OK;
}

static const aril__sample one_hot_samples[] = {
    { .in = { "i4[2,3]" }, .attrs = &(const struct one_hot_attrs){ { 4 } }, .flags = SAMPLE_BATCH },
    { .in = { "i4[]" }, .attrs = &(const struct one_hot_attrs){ { 5 } } },
    { .in = { "i4[0]" }, .attrs = &(const struct one_hot_attrs){ { 4 } } },
    SAMPLE_END
};
OP(one_hot, .doc = "one-hot encoding: 1 at the index of each element, 0 elsewhere",
   .onnx = "OneHot", .min_in = 1, .max_in = 1, .n_out = 1, .flags = NONDIFF | RAW,
   .index_in = IN(0), .infer = one_hot_infer, .ref = one_hot_ref, .samples = one_hot_samples,
   WITH_ATTRS(one_hot));

/* ---- public ---- */

aril_tensor *aril_nonzero(aril_tensor *x)
{
    return aril__op(&aril__op_nonzero, x);
}

aril_status aril_nonzero_list(aril_tensor *x, aril_tensor **out)
{
    aril_tensor *where = aril_nonzero(x);
    aril_status s = aril_tensor_status(where);
    if (!x || !out) return s;
    for (int d = 0; d < x->ndim; d++)
        out[d] = s < 0 ? aril__poison_like(where) : aril_select(where, 1, d);
    aril__fail_together(x->ndim, out);
    return x->ndim > 0 ? aril_tensor_status(out[0]) : s;
}

/* Broadcasts x and the mask to one shape. */
static aril_tensor *broadcast_to_mask(const char *what, aril_tensor *x, aril_tensor *mask)
{
    aril_shape to = aril__shape(x);
    if (!aril__broadcast(&to.ndim, to.dim, mask->ndim, mask->dim)) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "%s: %s and a mask of shape %s do not broadcast together", what,
                   aril__text(a, x), aril__text(b, mask));
        return aril__poison();
    }
    if (aril__same_dims(to.ndim, to.dim, x->ndim, x->dim)) return x;
    if (aril__same_dims(to.ndim, to.dim, mask->ndim, mask->dim)) return aril__expand_like(x, mask);
    while (x->ndim < to.ndim && !(x->flags & ARIL__POISON)) x = aril_unsqueeze(x, 0);
    for (int d = 0; d < mask->ndim && !(x->flags & ARIL__POISON); d++) {
        int at = to.ndim - mask->ndim + d;
        x = aril__expand_axis(x, at, aril__broadcast_size(x->dim[at], mask->dim[d], x));
    }
    return x;
}

aril_tensor *aril_masked_select(aril_tensor *x, aril_tensor *mask)
{
    if (!x || !mask) return aril__null_tensor("masked_select");
    if (aril__is_poison(x) || aril__is_poison(mask))
        return aril__pass_on(x->flags & ARIL__POISON ? x : mask);
    return aril__op(&aril__op_masked_select, broadcast_to_mask("masked_select", x, mask), mask);
}

aril_tensor *aril_masked_scatter(aril_tensor *x, aril_tensor *mask, aril_tensor *src)
{
    if (!x || !mask) return aril__null_tensor("masked_scatter");
    if (aril__is_poison(x) || aril__is_poison(mask))
        return aril__pass_on(x->flags & ARIL__POISON ? x : mask);
    return aril__op(&aril__op_masked_scatter, broadcast_to_mask("masked_scatter", x, mask), mask,
                    src);
}

aril_tensor *aril_masked_scatter_(aril_tensor *x, aril_tensor *mask, aril_tensor *src)
{
    return aril__apply_to(x, &aril__op_masked_scatter, 3, (aril_tensor *[]){ x, mask, src }, NULL);
}

/* Checks the arguments of a fill; NULL if they are valid. */
static aril_tensor *refuse_fill(aril_tensor *x, aril_tensor *mask, aril_tensor *value)
{
    if (!x || !mask || !value) return aril__null_tensor("masked_fill");
    aril_tensor *in[3] = { x, mask, value };
    for (int i = 0; i < 3; i++)
        if (aril__is_poison(in[i])) return aril__pass_on(in[i]);
    if (mask->dtype == ARIL_BOOL && value->ndim == 0) return NULL;
    if (value->ndim)
        aril__fail(ARIL_ERR_SHAPE, "masked_fill: the value must be a scalar, got %d dimensions",
                   value->ndim);
    else
        aril__fail(ARIL_ERR_DTYPE, "masked_fill: the mask must be bool, got %s",
                   aril__dtypes[mask->dtype].name);
    return aril__poison();
}

aril_tensor *aril_masked_fill(aril_tensor *x, aril_tensor *mask, aril_tensor *value)
{
    aril_tensor *bad = refuse_fill(x, mask, value);
    if (bad) return bad;
    aril_dtype type = (aril_dtype)x->dtype;
    if (!(value->flags & ARIL__WEAK)) value = aril_cast(value, type);
    return aril_cast(aril_where(mask, value, x), type);
}

aril_tensor *aril_masked_fill_(aril_tensor *x, aril_tensor *mask, aril_tensor *value)
{
    aril_tensor *bad = refuse_fill(x, mask, value);
    if (bad) return bad;
    value = aril_cast(aril__settle(value, x), (aril_dtype)x->dtype);
    return aril__apply_to(x, &aril__op_where, 3, (aril_tensor *[]){ mask, value, x }, NULL);
}

aril_tensor *(aril_masked_fill_scalar)(aril_tensor *x, aril_tensor *mask, aril_number value)
{
    return aril_masked_fill(x, mask, aril_scalar(value));
}

aril_tensor *(aril_masked_fill_scalar_)(aril_tensor *x, aril_tensor *mask, aril_number value)
{
    return aril_masked_fill_(x, mask, aril_scalar(value));
}

aril_tensor *aril_one_hot(aril_tensor *index, int64_t classes)
{
    struct one_hot_attrs a = { { classes } };
    if (!index) return aril__null_tensor("one_hot");
    if (aril__is_poison(index)) return aril__pass_on(index);
    if (classes == -1 && !index->storage) {
        aril__fail(ARIL_ERR_STATE,
                   "one_hot: with -1 classes the size of the result depends on the values of the "
                   "index, which are unknown until the graph runs; give the number of classes");
        return aril__poison();
    }
    if (classes == -1 && aril__is_int((aril_dtype)index->dtype)) {
        ARIL_SCOPE;
        ARIL_INFERENCE;
        if (index->numel == 0) {
            aril__fail(ARIL_ERR_ARG,
                       "one_hot: cannot infer the number of classes from an empty tensor");
            return aril_escape(aril__poison());
        }
        a.classes[0] = aril_item_int(aril_amax(index, ARIL_ALL)) + 1;
        if (a.classes[0] < 1) a.classes[0] = 1; /* a negative index: the op reports it */
    }
    return aril__op_with(&a, &aril__op_one_hot, index);
}
