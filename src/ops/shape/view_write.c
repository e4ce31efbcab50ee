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

/* A view that needs an order of its input in memory. */
static bool needs_order(int64_t op)
{
    return op == ARIL__OP_reshape || op == ARIL__OP_flatten || op == ARIL__OP_reshape_like;
}

/* x, or a contiguous copy if the path has a reshape, which may not be a view otherwise. */
static aril_tensor *viewable(aril_tensor *x, const struct view_write_attrs *a)
{
    const int64_t *p = a->path;
    for (int64_t i = 0; i < a->n[0]; i++, p = next_view(p))
        if (needs_order(p[0])) return aril_contiguous(x);
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

/* Makes *part the view at `p` of what it was, a header on the stack over the same memory. The
 * second input of a view op only gives a shape: that of the value. *viewable: whether the order in
 * memory allows it. */
static aril_status view_part(aril_tensor *part, const int64_t *p, aril_tensor *value,
                             bool *viewable)
{
    aril_tensor from = *part, dense = *part, *in[2] = { &from, value };
    aril__call view = { .op = view_at(p), .attrs = p + 1, .in = in, .n_in = view_at(p)->min_in };
    if (needs_order(p[0])) { /* its sizes do not depend on the order */
        aril__dense_strides(dense.ndim, dense.dim, dense.stride);
        in[0] = &dense;
    }
    aril_status s = view.op->infer(&view);
    if (s < 0) return s;
    *viewable = in[0] == &from || aril__view_strides(&from, &view.out[0]);
    part->ndim = (uint8_t)view.out[0].ndim;
    memcpy(part->dim, view.out[0].dim, sizeof part->dim);
    memcpy(part->stride, view.out[0].stride, sizeof part->stride);
    part->offset = view.out[0].offset;
    part->numel = aril__count(part->ndim, part->dim);
    return ARIL_OK;
}

/* Writes the value to its part of a tensor, if the order of that in memory allows the view. */
static aril_status write_part(const aril__run *r, const aril_tensor *to, bool *viewable)
{
    const struct view_write_attrs *a = r->attrs;
    aril_tensor part = *to;
    const int64_t *p = a->path;
    *viewable = true;
    for (int64_t i = 0; i < a->n[0]; i++, p = next_view(p)) {
        aril_status s = view_part(&part, p, r->in[1], viewable);
        if (s < 0 || !*viewable) return s;
    }
    if (!aril__same_dims(part.ndim, part.dim, r->in[1]->ndim, r->in[1]->dim)) {
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "view_write: the view has shape %s, the value %s",
                          aril__text(x, &part), aril__text(y, r->in[1]));
    }
    return aril__copy_across(&part, r->in[1]);
}

static aril_status view_write_ref(aril__run *r)
{
    aril_tensor *to = r->out[0];
    bool viewable;
    aril_status s = to == r->in[0] ? ARIL_OK : aril__copy_across(to, r->in[0]);
    if (s == ARIL_OK) s = write_part(r, to, &viewable);
    if (s < 0 || viewable) return s;
    aril__thread *th = aril__self(); /* in contiguous memory, where every reshape is a view */
    aril_tensor *dense =
        aril__tensor_new(th, (aril_dtype)to->dtype, to->ndim, to->dim, to->storage->device);
    if (!dense) return aril__latest_status();
    s = aril__copy_across(dense, to);
    if (s == ARIL_OK) s = write_part(r, dense, &viewable);
    if (s == ARIL_OK && !viewable)
        s = aril__fail(ARIL_ERR_SHAPE, "view_write: the part that is written is not a view");
    if (s == ARIL_OK) s = aril__copy_across(to, dense);
    aril__tensor_release(th, dense);
    return s;
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

/* The zeros are nobody else's, so all parts are written to one memory unless that is recorded. */
aril_tensor *aril__parts_written(int n, const aril__grad *calls)
{
    const aril__thread *th = aril__self();
    aril_tensor *whole = aril_zeros_like(calls[0].x[0]);
    bool in_place = th->mode.no_grad && !th->tracer && !(whole->flags & ARIL__SYMBOLIC);
    for (int i = 0; i < n; i++) {
        struct view_write_attrs a = aril__view_write_attrs(calls[i].op, calls[i].attrs);
        aril_tensor *base = viewable(whole, &a), *in[2] = { base, calls[i].g[0] };
        whole = in_place ? aril__apply_to(base, &aril__op_view_write, 2, in, &a)
                         : aril__op_with(&a, &aril__op_view_write, base, in[1]);
    }
    return whole;
}
