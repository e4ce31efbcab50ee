#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
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

typedef struct roll_job {
    const char *in;
    char *out;
    size_t size;
    int ndim;
    int64_t dim[ARIL_MAX_DIMS], shift[ARIL_MAX_DIMS]; /* 0 <= shift < dim */
} roll_job;

static void roll_range(void *ctx, int64_t begin, int64_t end)
{
    const roll_job *j = ctx;
    int last = j->ndim - 1;
    int64_t n = j->dim[last];
    size_t row = (size_t)n * j->size, head = (size_t)j->shift[last] * j->size;
    for (int64_t r = begin; r < end; r++) {
        int64_t rest = r, from = 0, step = 1;
        for (int d = last - 1; d >= 0; d--) {
            int64_t i = rest % j->dim[d] - j->shift[d];
            rest /= j->dim[d];
            from += (i < 0 ? i + j->dim[d] : i) * step;
            step *= j->dim[d];
        }
        const char *in = j->in + (size_t)from * row;
        char *out = j->out + (size_t)r * row;
        memcpy(out + head, in, row - head);
        memcpy(out, in + (row - head), head);
    }
}

static aril_status roll_ref(aril__run *r)
{
    const struct roll_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    roll_job j = { .in = aril__ptr(x),
                   .out = aril__ptr(r->out[0]),
                   .size = aril__dtype_bytes((aril_dtype)x->dtype, 1),
                   .ndim = x->ndim ? x->ndim : 1,
                   .dim = { 1 } };
    if (x->numel == 0) return ARIL_OK;
    for (int d = 0; d < x->ndim; d++) {
        j.dim[d] = x->dim[d];
        j.shift[d] = a->shift[d] % x->dim[d];
        if (j.shift[d] < 0) j.shift[d] += x->dim[d];
    }
    int64_t n = j.dim[j.ndim - 1];
    aril__parallel_for(x->numel / n, 16384 / n + 1, roll_range, &j);
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
OP(roll, .doc = "moved along axes, what leaves one end comes in at the other", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = RAW, .types = DT_COMPUTE, .infer = roll_infer, .ref = roll_ref,
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
        aril__fail(ARIL_ERR_ARG, "roll: %d shifts for %d axes", shifts.ndim, axes.n);
        return aril__poison();
    }
    for (int i = 0; i < axes.n; i++) {
        int d = aril__axis("roll", axes.axis[i], x->ndim);
        if (d < 0) return aril__poison();
        a.shift[d] = (int64_t)((uint64_t)a.shift[d] + (uint64_t)shifts.dim[i]);
    }
    return aril__op_with(&a, &aril__op_roll, x);
}
