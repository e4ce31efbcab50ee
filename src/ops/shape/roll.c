#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"

#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_roll;

ATTR_LIST(roll, ROLL_ATTRS)

static aril_status roll_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[0]->ndim;
    memcpy(o->dim, c->in[0]->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* Element i of the result comes from where the shifts put it. */
static int64_t rolled_from(const aril_tensor *x, const struct roll_attrs *a, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        int64_t n = x->dim[d], k = (i % n - a->shift[d] % n) % n;
        at += (k < 0 ? k + n : k) * step;
        step *= n;
        i /= n;
    }
    return at;
}

static aril_status roll_ref(aril__run *r)
{
    for (int64_t i = 0; i < r->out[0]->numel; i++)
        aril__put_same(r->out[0], i, r->in[0], rolled_from(r->in[0], r->attrs, i));
    return ARIL_OK;
}

VJP(roll)
{
    const struct roll_attrs *a = c->attrs;
    struct roll_attrs back;
    for (int d = 0; d < ARIL_MAX_DIMS; d++) back.shift[d] = -a->shift[d];
    if (c->g[0]) GRAD(0, aril__op_with(&back, &aril__op_roll, c->g[0]));
}

static const aril__sample roll_samples[] = {
    { .in = { "[3,4]" }, .attrs = &(const struct roll_attrs){ { 1, -6 } } },
    { .in = { "[2,5]" }, .attrs = &(const struct roll_attrs){ { 0, 2 } }, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2]" }, .attrs = &(const struct roll_attrs){ { 1, 2, 0 } } },
    { .in = { "[]" }, .attrs = &(const struct roll_attrs){ { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct roll_attrs){ { 1, 1 } } },
    SAMPLE_END
};
OP(roll, .doc = "shifts elements along axes, wrapping around", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED | RAW, .types = DT_COMPUTE, .infer = roll_infer, .ref = roll_ref,
   .vjp = roll_vjp, .samples = roll_samples, WITH_ATTRS(roll));

aril_tensor *aril_roll(aril_tensor *x, aril_shape shifts, aril_axes axes)
{
    aril_tensor *bad = aril__refuse("roll", x);
    struct roll_attrs a = { { 0 } };
    if (bad) return bad;
    if (axes.n == 0 && shifts.ndim == 1) {
        ARIL_SCOPE;
        a.shift[0] = shifts.dim[0];
        aril_tensor *flat = aril_flatten(x, 0, -1);
        return aril_escape(aril__reshape_like(aril__op_with(&a, &aril__op_roll, flat), x));
    }
    if (axes.n != shifts.ndim || axes.n < 0 || axes.n > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_ARG, "roll: got %d shifts for %d axes", shifts.ndim, axes.n);
        return aril__poison();
    }
    for (int i = 0; i < axes.n; i++) {
        int d = aril__axis("roll", axes.axis[i], x->ndim);
        if (d < 0) return aril__poison();
        a.shift[d] = (int64_t)((uint64_t)a.shift[d] + (uint64_t)shifts.dim[i]);
    }
    return aril__op_with(&a, &aril__op_roll, x);
}
