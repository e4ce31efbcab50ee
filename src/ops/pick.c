#include "ops/pick.h"

#include "core/parallel.h"
#include "ops/sample.h"

#include <string.h>

enum { GRAIN = 16 * 1024 };

ATTR_LIST(pick, PICK_ATTRS)

/* All sizes but that of the axis must agree. */
static aril_status same_but_axis(const aril__call *c, const aril_tensor *x, const aril_tensor *y)
{
    int axis = (int)((const struct pick_attrs *)c->attrs)->axis[0];
    bool same = x->ndim == y->ndim;
    for (int d = 0; d < x->ndim && same; d++)
        same = d == axis || x->dim[d] == y->dim[d] || x->dim[d] < 0 || y->dim[d] < 0;
    if (same) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: %s and %s differ outside axis %d", c->op->name,
                      aril__text(a, x), aril__text(b, y), axis);
}

static void shape_from(aril__call *c, const aril_tensor *like)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = like->ndim;
    memcpy(o->dim, like->dim, (size_t)like->ndim * sizeof *like->dim);
}

static aril_status pick_infer(aril__call *c)
{
    shape_from(c, c->in[1]);
    return same_but_axis(c, c->in[0], c->in[1]);
}

static aril_status pick_grad_infer(aril__call *c)
{
    shape_from(c, c->in[2]);
    aril_status s = same_but_axis(c, c->in[0], c->in[2]);
    return s < 0 ? s : same_but_axis(c, c->in[1], c->in[2]);
}

typedef struct job {
    bool f64, adds;
    void *out;
    const void *in;
    const int64_t *index;
    int64_t n, k, inner; /* sizes of the long axis, of the index, and what lies behind it */
} job;

static aril_status make_job(const aril__run *r, const aril_tensor *longer, job *j)
{
    int axis = (int)((const struct pick_attrs *)r->attrs)->axis[0];
    const aril_tensor *index = r->in[1];
    j->f64 = r->type == ARIL_F64;
    j->out = aril__ptr(r->out[0]);
    j->in = aril__ptr(r->in[0]);
    j->index = aril__ptr(index);
    j->n = longer->ndim ? longer->dim[axis] : 1;
    j->k = index->ndim ? index->dim[axis] : 1;
    j->inner = index->ndim ? aril__count(index->ndim - axis - 1, index->dim + axis + 1) : 1;
    for (int64_t i = 0; i < index->numel; i++)
        if (j->index[i] < 0 || j->index[i] >= j->n)
            return aril__fail(ARIL_ERR_INDEX, "%s: index %lld for an axis of size %lld",
                              r->op->name, (long long)j->index[i], (long long)j->n);
    return ARIL_OK;
}

/* Groups [begin, end) of [k, inner] indices. */
static void pick_range(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    for (int64_t o = begin; o < end; o++) {
        for (int64_t e = 0; e < j->k * j->inner; e++) {
            int64_t near = o * j->k * j->inner + e;
            int64_t far = (o * j->n + j->index[near]) * j->inner + e % j->inner;
            if (j->adds && j->f64)
                ((double *)j->out)[far] += ((const double *)j->in)[near];
            else if (j->adds)
                ((float *)j->out)[far] += ((const float *)j->in)[near];
            else if (j->f64)
                ((double *)j->out)[near] = ((const double *)j->in)[far];
            else
                ((float *)j->out)[near] = ((const float *)j->in)[far];
        }
    }
}

static void run(const aril__run *r, job *j)
{
    int64_t group = j->k * j->inner;
    if (group > 0) aril__parallel_for(r->in[1]->numel / group, GRAIN / group, pick_range, j);
}

static aril_status pick_ref(aril__run *r)
{
    job j = { .adds = false };
    aril_status s = make_job(r, r->in[0], &j);
    if (s == ARIL_OK) run(r, &j);
    return s;
}

static aril_status pick_grad_ref(aril__run *r)
{
    job j = { .adds = true };
    aril_status s = make_job(r, r->out[0], &j);
    if (s < 0) return s;
    memset(j.out, 0, aril__dtype_bytes((aril_dtype)r->out[0]->dtype, r->out[0]->numel));
    run(r, &j);
    return ARIL_OK;
}

VJP(pick)
{
    int axis = (int)((const struct pick_attrs *)c->attrs)->axis[0];
    if (c->g[0]) GRAD(0, aril__pick_grad(c->g[0], axis, c->x[1], c->x[0]));
}

VJP(pick_grad)
{
    int axis = (int)((const struct pick_attrs *)c->attrs)->axis[0];
    if (c->g[0]) GRAD(0, aril__pick(c->g[0], axis, c->x[1]));
}

static const aril__sample pick_samples[] = {
    { .in = { "[2,5,3]", "i5[2,2,3]" }, .attrs = &(const struct pick_attrs){ { 1 } } },
    { .in = { "[2,4]", "i4[2,6]" },
      .attrs = &(const struct pick_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[]", "i1[]" }, .attrs = &(const struct pick_attrs){ { 0 } } },
    { .in = { "[3,2]", "i3[0,2]" }, .attrs = &(const struct pick_attrs){ { 0 } } },
    SAMPLE_END
};
OP(pick, .doc = "elements at positions along an axis", .min_in = 2, .max_in = 2, .n_out = 1,
   .index_in = IN(1), .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = pick_infer,
   .ref = pick_ref, .vjp = pick_vjp, .saves = { IN(1) | LIKE(0) }, .samples = pick_samples,
   WITH_ATTRS(pick));

static const aril__sample pick_grad_samples[] = {
    { .in = { "[2,2,3]", "i5[2,2,3]", "[2,5,3]" }, .attrs = &(const struct pick_attrs){ { 1 } } },
    { .in = { "[2,6]", "i4[2,6]", "[2,4]" },
      .attrs = &(const struct pick_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[]", "i1[]", "[]" }, .attrs = &(const struct pick_attrs){ { 0 } } },
    SAMPLE_END
};
OP(pick_grad, .doc = "elements added to zeros at positions along an axis", .min_in = 3, .max_in = 3,
   .n_out = 1, .index_in = IN(1), .shape_only = IN(2), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = pick_grad_infer, .ref = pick_grad_ref,
   .vjp = pick_grad_vjp, .saves = { IN(1) }, .samples = pick_grad_samples, WITH_ATTRS(pick));
