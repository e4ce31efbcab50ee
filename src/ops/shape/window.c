/* Sliding windows along an axis, as a view, and its adjoint, the sum over windows. */
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"

#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_unfold_view, aril__op_unfold_view_grad;

ATTR_LIST(unfold_view, UNFOLD_VIEW_ATTRS)

static aril_status unfold_view_infer(aril__call *c)
{
    const struct unfold_view_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int axis = (int)a->axis[0];
    int64_t n = x->ndim ? x->dim[axis] : 1, step = x->ndim ? x->stride[axis] : 1;
    if (n >= 0 && a->size[0] > n) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "unfold_view: a window of %lld is larger than axis %d of %s",
                          (long long)a->size[0], axis, aril__text(text, x));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->offset = x->offset;
    o->ndim = x->ndim + 1;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    memcpy(o->stride, x->stride, (size_t)x->ndim * sizeof *x->stride);
    if (x->ndim == 0) { /* a scalar has one window, itself */
        o->dim[0] = a->size[0];
        o->stride[0] = 1;
        return ARIL_OK;
    }
    if (o->ndim > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "unfold_view: more than %d dimensions", ARIL_MAX_DIMS);
    o->dim[axis] = n < 0 ? -1 : (n - a->size[0]) / a->step[0] + 1;
    o->stride[axis] = step * a->step[0];
    o->dim[x->ndim] = a->size[0];
    o->stride[x->ndim] = step;
    return ARIL_OK;
}

VJP(unfold_view)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_unfold_view_grad, c->g[0], c->x[0]));
}

static const aril__sample unfold_view_samples[] = {
    { .in = { "[7]" }, .attrs = &(const struct unfold_view_attrs){ { 0 }, { 3 }, { 2 } } },
    { .in = { "[2,6,3]" },
      .attrs = &(const struct unfold_view_attrs){ { 1 }, { 3 }, { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,7]" }, .attrs = &(const struct unfold_view_attrs){ { 1 }, { 2 }, { 3 } } },
    { .in = { "[]" }, .attrs = &(const struct unfold_view_attrs){ { 0 }, { 1 }, { 1 } } },
    { .in = { "[0,4]" }, .attrs = &(const struct unfold_view_attrs){ { 1 }, { 2 }, { 1 } } },
    SAMPLE_END
};
OP(unfold_view, .doc = "sliding windows along an axis, as a new last axis", .min_in = 1,
   .max_in = 1, .n_out = 1, .out = { VIEW(0) }, .infer = unfold_view_infer, .vjp = unfold_view_vjp,
   .saves = { LIKE(0) }, .samples = unfold_view_samples, WITH_ATTRS(unfold_view));

/* ---- the sum over windows ---- */

static aril_status unfold_view_grad_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[1]->ndim;
    memcpy(o->dim, c->in[1]->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* g [outer, windows, inner, size] -> [outer, n, inner]: each element is the sum over the windows
 * that contain it. */
static aril_status unfold_view_grad_ref(aril__run *r)
{
    const struct unfold_view_attrs *a = r->attrs;
    const aril_tensor *g = r->in[0];
    aril_tensor *out = r->out[0];
    int axis = (int)a->axis[0];
    int64_t size = a->size[0], n = out->ndim ? out->dim[axis] : 1;
    int64_t windows = out->ndim ? g->dim[axis] : 1;
    int64_t inner = out->ndim ? aril__count(out->ndim - axis - 1, out->dim + axis + 1) : 1;
    for (int64_t i = 0; i < out->numel; i++) {
        int64_t outer = i / inner / n, position = i / inner % n;
        double sum = 0;
        for (int64_t w = 0; w < windows; w++) {
            int64_t k = position - w * a->step[0]; /* within the window */
            int64_t at = ((outer * windows + w) * inner + i % inner) * size + k;
            if (k >= 0 && k < size) sum += aril__get(g, at);
        }
        aril__put(out, i, sum);
    }
    return ARIL_OK;
}

VJP(unfold_view_grad)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_unfold_view, c->g[0]));
}

static const aril__sample unfold_view_grad_samples[] = {
    { .in = { "[3,3]", "[7]" }, .attrs = &(const struct unfold_view_attrs){ { 0 }, { 3 }, { 2 } } },
    { .in = { "[2,4,3,3]", "[2,6,3]" },
      .attrs = &(const struct unfold_view_attrs){ { 1 }, { 3 }, { 1 } } },
    { .in = { "[2,2,2]", "[2,7]" },
      .attrs = &(const struct unfold_view_attrs){ { 1 }, { 2 }, { 3 } } },
    SAMPLE_END
};
OP(unfold_view_grad, .doc = "gradient of unfold_view: adds up overlapping windows", .min_in = 2,
   .max_in = 2, .n_out = 1, .flags = GRADIENT | STRIDED, .shape_only = IN(1), .types = DT_FLOAT,
   .infer = unfold_view_grad_infer, .ref = unfold_view_grad_ref, .vjp = unfold_view_grad_vjp,
   .samples = unfold_view_grad_samples, WITH_ATTRS(unfold_view));

aril_tensor *aril_unfold_view(aril_tensor *x, int axis, int64_t size, int64_t step)
{
    aril_tensor *bad = aril__refuse("unfold_view", x);
    if (bad) return bad;
    int at = aril__axis("unfold_view", axis, x->ndim);
    if (at < 0) return aril__poison();
    if (size < 0 || step < 1) {
        aril__fail(
            ARIL_ERR_ARG,
            "unfold_view: the size must not be negative and the step at least 1, got %lld and %lld",
            (long long)size, (long long)step);
        return aril__poison();
    }
    struct unfold_view_attrs a = { { at }, { size }, { step } };
    return aril__op_with(&a, &aril__op_unfold_view, x);
}
