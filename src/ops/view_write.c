#include "ops/view_write.h"

#include "aril/ops.h"
#include "ops/apply.h"
#include "ops/copy.h"
#include "ops/sample.h"
#include "ops/view.h"

#include <string.h>

ATTR_LIST(view_write, VIEW_WRITE_ATTRS)

struct view_write_attrs aril__view_write_attrs(const aril__op *view, const void *attrs)
{
    struct view_write_attrs a = { .view = { view->id } };
    ARIL_ASSERT(view->attr_size <= sizeof a.attrs);
    if (attrs) memcpy(a.attrs, attrs, view->attr_size);
    return a;
}

static aril_status view_write_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[0]->ndim;
    memcpy(o->dim, c->in[0]->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status view_write_ref(aril__run *r)
{
    const struct view_write_attrs *a = r->attrs;
    if (r->out[0] != r->in[0]) aril__copy_elements(r->out[0], r->in[0]);
    /* A second input of a view is one that gives its shape: the value has it. */
    aril_tensor *in[2] = { r->out[0], r->in[1] };
    aril__call view = { .op = aril__ops[a->view[0]], .attrs = a->attrs, .in = in };
    view.n_in = view.op->min_in;
    aril_status s = view.op->infer(&view);
    if (s < 0) return s;
    aril_tensor part = *r->out[0]; /* a header on the stack, over the same memory */
    part.ndim = (uint8_t)view.out[0].ndim;
    memcpy(part.dim, view.out[0].dim, sizeof part.dim);
    memcpy(part.stride, view.out[0].stride, sizeof part.stride);
    part.offset = view.out[0].offset;
    part.numel = aril__count(part.ndim, part.dim);
    if (!aril__same_dims(part.ndim, part.dim, r->in[1]->ndim, r->in[1]->dim)) {
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "view_write: the view has shape %s, the value %s",
                          aril__text(x, &part), aril__text(y, r->in[1]));
    }
    aril__copy_elements(&part, r->in[1]);
    return ARIL_OK;
}

/* x, or a copy of it where it lies in memory in a way that may have no such view. */
static aril_tensor *viewable(aril_tensor *x, const aril__op *view)
{
    bool moves = view == &aril__op_reshape || view == &aril__op_flatten ||
                 view == &aril__op_reshape_like;
    return moves ? aril_contiguous(x) : x;
}

VJP(view_write)
{
    const struct view_write_attrs *a = c->attrs;
    const aril__op *view = aril__ops[a->view[0]];
    if (!c->g[0]) return;
    GRAD(0, aril__view_write(c->g[0], aril_zeros_like(c->x[1]), view, a->attrs));
    if (!c->wants[1]) return;
    /* The gradient may lie in memory in a way that has no such view. */
    aril_tensor *in[2] = { aril_contiguous(c->g[0]), c->x[1] };
    GRAD(1, aril__apply1(view, view->min_in, in, view->attr_size ? a->attrs : NULL));
}

static const aril__sample view_write_samples[] = {
    { .in = { "[4,3]", "[2,3]" },
      .attrs =
          &(const struct view_write_attrs){ .view = { ARIL__OP_slice }, .attrs = { 0, 1, 3, 1 } } },
    { .in = { "[2,3]", "[3,2]" },
      .attrs =
          &(const struct view_write_attrs){ .view = { ARIL__OP_permute }, .attrs = { 1, 0 } } },
    SAMPLE_END
};
OP(view_write, .doc = "a tensor with the part that a view shows replaced", .min_in = 2, .max_in = 2,
   .n_out = 1, .flags = STRIDED | INPLACE | RAW | KEEPS_ORDER, .infer = view_write_infer,
   .ref = view_write_ref, .vjp = view_write_vjp, .saves = { LIKE(1), LIKE(1) },
   .samples = view_write_samples, WITH_ATTRS(view_write));

aril_tensor *aril__view_write(aril_tensor *base, aril_tensor *value, const aril__op *view,
                              const void *attrs)
{
    struct view_write_attrs a = aril__view_write_attrs(view, attrs);
    return aril__op_with(&a, &aril__op_view_write, viewable(base, view), value);
}
