#include "ops/shape/like.h"

#include "aril/create.h"
#include "aril/reduce.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"

#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_reshape_like;

static aril_status shape_error(const aril__call *c, const char *what)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: %s %s %s", c->op->name, aril__text(a, c->in[0]), what,
                      aril__text(b, c->in[1]));
}

static void shape_of_second(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[1]->ndim;
    memcpy(o->dim, c->in[1]->dim, (size_t)o->ndim * sizeof *o->dim);
}

/* ---- reshape_like: a view ---- */

static aril_status reshape_like_infer(aril__call *c)
{
    int64_t have = c->in[0]->numel, want = c->in[1]->numel;
    bool known = have >= 0 && want >= 0;
    shape_of_second(c);
    c->out[0].offset = c->in[0]->offset;
    if (known ? have != want
              : aril__size_differs(aril__self()->sizes, c->in[0]->ndim, c->in[0]->dim,
                                   c->in[1]->ndim, c->in[1]->dim))
        return shape_error(c, "does not have as many elements as");
    aril__meta *o = &c->out[0];
    if (aril__view_strides(c->in[0], o)) return ARIL_OK;
    if (known) return shape_error(c, "cannot be viewed, without a copy, as");
    aril__dense_strides(o->ndim, o->dim, o->stride); /* the run tells */
    return ARIL_OK;
}

aril_tensor *aril__reshape_like(aril_tensor *x, aril_tensor *like)
{
    if (x && like && !((x->flags | like->flags) & ARIL__POISON) && like->numel == x->numel) {
        aril__meta o = { .ndim = like->ndim };
        memcpy(o.dim, like->dim, sizeof o.dim);
        if (!aril__view_strides(x, &o)) x = aril_contiguous(x);
    }
    return aril__op(&aril__op_reshape_like, x, like);
}

VJP(reshape_like)
{
    if (c->g[0]) GRAD(0, aril__reshape_like(c->g[0], c->x[0]));
}

static const aril__sample reshape_like_samples[] = { { .in = { "[2,6]", "[3,4]" } }, SAMPLE_END };
OP(reshape_like, .doc = "x reshaped to the shape of another tensor", .min_in = 2, .max_in = 2,
   .n_out = 1, .out = { VIEW(0) }, .shape_only = IN(1), .infer = reshape_like_infer,
   .vjp = reshape_like_vjp, .saves = { LIKE(0) }, .samples = reshape_like_samples);

/* ---- expand_like: a view ---- */

static aril_status expand_like_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    int n = c->in[1]->ndim;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, c->in[1]->dim, sizeof dim);
    if (x->ndim > n || !aril__broadcast(&n, dim, x->ndim, x->dim) ||
        !aril__dims_fit(n, dim, n, c->in[1]->dim))
        return shape_error(c, "does not broadcast to");
    shape_of_second(c);
    aril__expand_strides(x, &c->out[0]);
    return ARIL_OK;
}

VJP(expand_like)
{
    if (c->g[0]) GRAD(0, aril__sum_to_like(c->g[0], c->x[0]));
}

static const aril__sample expand_like_samples[] = { { .in = { "[3,1]", "[2,3,4]" } },
                                                    { .in = { "[]", "[2,3]" } },
                                                    SAMPLE_END };
OP(expand_like, .doc = "x broadcast to the shape of another tensor", .min_in = 2, .max_in = 2,
   .n_out = 1, .out = { VIEW(0) }, .shape_only = IN(1), .infer = expand_like_infer,
   .vjp = expand_like_vjp, .saves = { LIKE(0) }, .samples = expand_like_samples);

/* ---- sum_to_like ---- */

static aril_status sum_to_like_infer(aril__call *c)
{
    aril_shape x = aril__shape(c->in[0]), to = aril__shape(c->in[1]);
    if (!aril__broadcasts_to(&to, &x)) return shape_error(c, "was not broadcast from");
    shape_of_second(c);
    return ARIL_OK;
}

static aril_status sum_to_like_ref(aril__run *r)
{
    aril__reduce_sum_to(r->out[0], r->in[0]);
    return ARIL_OK;
}

VJP(sum_to_like)
{
    if (c->g[0]) GRAD(0, aril__expand_like(c->g[0], c->x[0]));
}

static const aril__sample sum_to_like_samples[] = { { .in = { "[2,3,4]", "[3,1]" } },
                                                    { .in = { "[2,3]", "[]" } },
                                                    { .in = { "[2,3]", "[2,3]" } },
                                                    { .in = { "[0,3]", "[1,3]" } },
                                                    SAMPLE_END };
OP(sum_to_like, .doc = "x summed to the shape of another tensor, undoing a broadcast", .min_in = 2,
   .max_in = 2, .n_out = 1, .flags = STRIDED, .shape_only = IN(1), .infer = sum_to_like_infer,
   .ref = sum_to_like_ref, .vjp = sum_to_like_vjp, .saves = { LIKE(0) },
   .samples = sum_to_like_samples);

/* ---- count_like ---- */

static aril_status count_like_infer(aril__call *c)
{
    c->out[0].dtype = c->in[0]->dtype == ARIL_F64 ? ARIL_F64 : ARIL_F32; /* the maximum of f16 is
                                                                          * 65504 */
    c->out[0].ndim = 0;
    if (!c->device) c->device = aril__cpu_device;
    return ARIL_OK;
}

static aril_status count_like_ref(aril__run *r)
{
    int64_t n = r->in[1]->numel;
    double count = n ? (double)(r->in[0]->numel / n) : 0;
    aril__dtypes[r->out[0]->dtype].store[ARIL__C_F64](aril__base(r->out[0]), r->out[0]->offset, 1,
                                                      &count, 1);
    return ARIL_OK;
}

static const aril__sample count_like_samples[] = { { .in = { "[2,3,4]", "[2,1,1]" } }, SAMPLE_END };
OP(count_like, .doc = "number of elements of x that are summed into each element of another tensor",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = STRIDED | NONDIFF | RAW,
   .shape_only = IN(0) | IN(1), .infer = count_like_infer, .ref = count_like_ref,
   .samples = count_like_samples);

/* ---- values ---- */

aril_status aril__check_range(const char *what, const char *name, aril_tensor *t, double low,
                              double high)
{
    if (!t || t->flags & ARIL__POISON || !t->storage || t->numel == 0) return ARIL_OK;
    if (t->storage->device != aril__cpu_device || aril__self()->tracer) return ARIL_OK;
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_tensor *smallest = aril_amin(t, ARIL_ALL), *largest = aril_amax(t, ARIL_ALL);
    aril_status s = aril_tensor_status(smallest);
    if (s == ARIL_OK) s = aril_tensor_status(largest);
    if (s < 0) return s;
    double min = aril_item(smallest), max = aril_item(largest);
    if (min >= low && max <= high) return ARIL_OK;
    return aril__fail(ARIL_ERR_NUMBER, "%s: %s must be from %g to %g, got %g", what, name, low,
                      high, min >= low ? max : min);
}
