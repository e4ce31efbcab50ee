#include "ops/shape/view_write.h"

#include "aril/create.h"
#include "ops/table/apply.h"
#include "ops/shape/copy.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"
#include "ops/table/numbers.h"

#include <string.h>

ATTR_LIST(view_write, VIEW_WRITE_ATTRS)

/* ---- the path to the part ---- */

static const aril__op *view_at(const int64_t *p)
{
    return aril__op_numbered((int)p[0]);
}

static const int64_t *next_view(const int64_t *p)
{
    return p + 1 + view_at(p)->attr_size / sizeof *p;
}

aril_status aril__view_write_extend(struct view_write_attrs *a, const aril__op *view,
                                    const void *attrs)
{
    const int64_t *end = a->path;
    for (int64_t i = 0; i < a->n[0]; i++) end = next_view(end);
    size_t words = view->attr_size / sizeof *end, used = (size_t)(end - a->path);
    if (used + words + 1 > sizeof a->path / sizeof *end || (a->n[0] && view->min_in > 1))
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "a write through too many views of overlapping elements cannot be "
                          "differentiated; write to a copy");
    memmove(a->path + words + 1, a->path, used * sizeof *end);
    memset(a->path, 0, (words + 1) * sizeof *end);
    a->path[0] = aril__op_number(view);
    if (attrs) memcpy(a->path + 1, attrs, view->attr_size);
    a->n[0]++;
    return ARIL_OK;
}

struct view_write_attrs aril__view_write_attrs(const aril__op *view, const void *attrs)
{
    struct view_write_attrs a = { .n = { 0 } };
    ARIL_ASSERT(view->attr_size + sizeof *a.path <= sizeof a.path);
    aril__view_write_extend(&a, view, attrs);
    return a;
}

/* x, or a contiguous copy if the path has a reshape, which may not be a view otherwise. */
static aril_tensor *viewable(aril_tensor *x, const struct view_write_attrs *a)
{
    const int64_t *p = a->path;
    for (int64_t i = 0; i < a->n[0]; i++, p = next_view(p))
        if (p[0] == ARIL__OP_reshape || p[0] == ARIL__OP_flatten || p[0] == ARIL__OP_reshape_like)
            return aril_contiguous(x);
    return x;
}

/* ---- the op ---- */

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
    aril_status copied = r->out[0] == r->in[0] ? ARIL_OK : aril__copy_across(r->out[0], r->in[0]);
    if (copied < 0) return copied;
    aril_tensor part = *r->out[0]; /* a header on the stack, over the same memory */
    const int64_t *p = a->path;
    for (int64_t i = 0; i < a->n[0]; i++, p = next_view(p)) {
        /* The second input of a view op only gives a shape: that of the value. */
        aril_tensor from = part, *in[2] = { &from, r->in[1] };
        aril__call view = {
            .op = view_at(p), .attrs = p + 1, .in = in, .n_in = view_at(p)->min_in
        };
        aril_status s = view.op->infer(&view);
        if (s < 0) return s;
        part.ndim = (uint8_t)view.out[0].ndim;
        memcpy(part.dim, view.out[0].dim, sizeof part.dim);
        memcpy(part.stride, view.out[0].stride, sizeof part.stride);
        part.offset = view.out[0].offset;
        part.numel = aril__count(part.ndim, part.dim);
    }
    if (!aril__same_dims(part.ndim, part.dim, r->in[1]->ndim, r->in[1]->dim)) {
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "view_write: the view has shape %s, the value %s",
                          aril__text(x, &part), aril__text(y, r->in[1]));
    }
    return aril__copy_across(&part, r->in[1]);
}

VJP(view_write)
{
    const struct view_write_attrs *a = c->attrs;
    if (!c->g[0]) return;
    aril_tensor *g = viewable(c->g[0], a);
    GRAD(0, aril__op_with(a, &aril__op_view_write, g, aril_zeros_like(c->x[1])));
    const int64_t *p = a->path;
    for (int64_t i = 0; i < a->n[0] && c->wants[1]; i++, p = next_view(p)) {
        const aril__op *view = view_at(p);
        g = aril__apply1(view, view->min_in, (aril_tensor *[]){ g, c->x[1] },
                         view->attr_size ? p + 1 : NULL);
    }
    GRAD(1, g);
}

static const aril__sample view_write_samples[] = {
    { .in = { "[4,3]", "[2,3]" },
      .attrs = &(const struct view_write_attrs){ { 1 }, { ARIL__OP_slice, 0, 1, 3, 1 } } },
    { .in = { "[2,3]", "[3,2]" },
      .attrs = &(const struct view_write_attrs){ { 1 }, { ARIL__OP_permute, 1, 0 } } },
    { .in = { "[5]", "[3]" }, /* one of three overlapping windows */
      .attrs =
          &(const struct view_write_attrs){
              { 2 }, { ARIL__OP_unfold_view, 0, 3, 1, ARIL__OP_select, 0, 1 } } },
    SAMPLE_END
};
OP(view_write, .doc = "a tensor with the elements of a view replaced", .min_in = 2, .max_in = 2,
   .n_out = 1, .flags = STRIDED | INPLACE | RAW | KEEPS_ORDER | ANYWHERE, .infer = view_write_infer,
   .ref = view_write_ref, .vjp = view_write_vjp, .saves = { LIKE(1), LIKE(1) },
   .samples = view_write_samples, WITH_ATTRS(view_write));

aril_tensor *aril__view_write(aril_tensor *base, aril_tensor *value, const aril__op *view,
                              const void *attrs)
{
    struct view_write_attrs a = aril__view_write_attrs(view, attrs);
    return aril__op_with(&a, &aril__op_view_write, viewable(base, &a), value);
}
