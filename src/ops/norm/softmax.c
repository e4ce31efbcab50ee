#include "ops/norm/softmax.h"

#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/create.h"
#include "ops/norm/norm.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

/* ---- references ---- */

/* Calls fn for each line along the axis: elements at, at + step, at + 2 step ... n of them. */
static void each_line(aril__run *r, void (*fn)(aril__run *r, int64_t at, int64_t step, int64_t n))
{
    const aril_tensor *x = r->in[0];
    int64_t axis = ((const struct softmax_attrs *)r->attrs)->axis[0];
    int64_t n = x->ndim ? x->dim[axis] : 1;
    int64_t step = x->ndim ? aril__count(x->ndim - (int)axis - 1, x->dim + axis + 1) : 1;
    for (int64_t i = 0; i < x->numel; i++)
        if (i / step % n == 0) fn(r, i, step, n);
}

/* x less its maximum, so that no exponential overflows, and the logarithm of the sum of all. */
static double log_of_sum(const aril_tensor *x, int64_t at, int64_t step, int64_t n, double *top)
{
    double sum = 0;
    *top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double v = aril__get(x, at + i * step);
        if (v > *top || isnan(v)) *top = v;
        if (isnan(v)) break;
    }
    for (int64_t i = 0; i < n; i++) sum += exp(aril__get(x, at + i * step) - *top);
    return log(sum);
}

static void log_softmax_line(aril__run *r, int64_t at, int64_t step, int64_t n)
{
    double top, log_sum = log_of_sum(r->in[0], at, step, n, &top);
    for (int64_t i = at; i < at + n * step; i += step)
        aril__put(r->out[0], i, aril__get(r->in[0], i) - top - log_sum);
}

static void softmax_line(aril__run *r, int64_t at, int64_t step, int64_t n)
{
    double top, log_sum = log_of_sum(r->in[0], at, step, n, &top);
    for (int64_t i = at; i < at + n * step; i += step)
        aril__put(r->out[0], i, exp(aril__get(r->in[0], i) - top - log_sum));
}

/* y * (g - sum(g * y)) */
static void softmax_grad_line(aril__run *r, int64_t at, int64_t step, int64_t n)
{
    const aril_tensor *g = r->in[0], *y = r->in[1];
    double sum = 0;
    for (int64_t i = at; i < at + n * step; i += step) sum += aril__get(g, i) * aril__get(y, i);
    for (int64_t i = at; i < at + n * step; i += step)
        aril__put(r->out[0], i, aril__get(y, i) * (aril__get(g, i) - sum));
}

/* g - exp(y) * sum(g) */
static void log_softmax_grad_line(aril__run *r, int64_t at, int64_t step, int64_t n)
{
    const aril_tensor *g = r->in[0], *y = r->in[1];
    double sum = 0;
    for (int64_t i = at; i < at + n * step; i += step) sum += aril__get(g, i);
    for (int64_t i = at; i < at + n * step; i += step)
        aril__put(r->out[0], i, aril__get(g, i) - exp(aril__get(y, i)) * sum);
}

/* ---- ops ---- */

ATTR_LIST(softmax, SOFTMAX_ATTRS)

static aril_status softmax_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    const aril_tensor *x = c->in[0];
    int64_t axis = ((const struct softmax_attrs *)c->attrs)->axis[0];
    if (axis < 0 || (x->ndim && axis >= x->ndim))
        return aril__fail(ARIL_ERR_SHAPE, "%s: axis %lld of %d dimensions", c->op->name,
                          (long long)axis, x->ndim);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

static aril_status softmax_ref(aril__run *r)
{
    each_line(r, softmax_line);
    return ARIL_OK;
}

static aril_status log_softmax_ref(aril__run *r)
{
    each_line(r, log_softmax_line);
    return ARIL_OK;
}

static aril_status softmax_grad_ref(aril__run *r)
{
    each_line(r, softmax_grad_line);
    return ARIL_OK;
}

static aril_status log_softmax_grad_ref(aril__run *r)
{
    each_line(r, log_softmax_grad_line);
    return ARIL_OK;
}

VJP(softmax)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_softmax_grad, c->g[0], c->y[0]));
}

VJP(log_softmax)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_log_softmax_grad, c->g[0], c->y[0]));
}

static aril_tensor *sum_along(const void *attrs, aril_tensor *x)
{
    return aril_sum(x, ARIL_KEEPDIM((int)((const struct softmax_attrs *)attrs)->axis[0]));
}

/* In f32 or f64, as the kernels compute: the differences below cancel most of 8 bits. */
static aril_tensor *computed(aril_tensor *x)
{
    return aril_cast(x, aril__stat_dtype(x));
}

/* y * (g - sum(g * y)) */
static void softmax_grad_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *g = computed(c->in[0]), *y = computed(c->in[1]);
    aril_tensor *dx = aril_mul(y, aril_sub(g, sum_along(c->attrs, aril_mul(g, y))));
    out[0] = aril_cast(dx, (aril_dtype)c->in[0]->dtype);
}

/* g - exp(y) * sum(g) */
static void log_softmax_grad_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *g = computed(c->in[0]), *y = computed(c->in[1]);
    aril_tensor *dx = aril_sub(g, aril_mul(aril_exp(y), sum_along(c->attrs, g)));
    out[0] = aril_cast(dx, (aril_dtype)c->in[0]->dtype);
}

static const aril__sample softmax_samples[] = {
    { .in = { "[2,5]" }, .attrs = &(const struct softmax_attrs){ { 1 } }, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" }, .attrs = &(const struct softmax_attrs){ { 0 } } },
    { .in = { "[2,3,4]" }, .attrs = &(const struct softmax_attrs){ { 1 } }, .flags = SAMPLE_BATCH },
    { .in = { "[]" }, .attrs = &(const struct softmax_attrs){ { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct softmax_attrs){ { 1 } } },
    SAMPLE_END
};
OP(softmax, .doc = "exp(x) / sum(exp(x)) along an axis", .onnx = "Softmax", .min_in = 1,
   .max_in = 1, .n_out = 1, .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_FLOAT,
   .infer = softmax_infer, .ref = softmax_ref, .vjp = softmax_vjp, .saves = { OUT(0) },
   .samples = softmax_samples, WITH_ATTRS(softmax));
OP(log_softmax, .doc = "x - log(sum(exp(x))) along an axis", .onnx = "LogSoftmax", .min_in = 1,
   .max_in = 1, .n_out = 1, .cast = CAST_F32_IN_F16, .flags = STRIDED, .types = DT_FLOAT,
   .infer = softmax_infer, .ref = log_softmax_ref, .vjp = log_softmax_vjp, .saves = { OUT(0) },
   .samples = softmax_samples, WITH_ATTRS(softmax));

static const aril__sample softmax_grad_samples[] = {
    { .in = { "[2,5]", "p[2,5]" },
      .attrs = &(const struct softmax_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "p[2,3,4]" }, .attrs = &(const struct softmax_attrs){ { 1 } } },
    { .in = { "[]", "p[]" }, .attrs = &(const struct softmax_attrs){ { 0 } } },
    SAMPLE_END
};
OP(softmax_grad, .doc = "gradient of softmax", .min_in = 2, .max_in = 2, .n_out = 1,
   .flags = GRADIENT | STRIDED, .types = DT_FLOAT, .infer = softmax_infer, .ref = softmax_grad_ref,
   .decompose = softmax_grad_decompose, .samples = softmax_grad_samples, WITH_ATTRS(softmax));
OP(log_softmax_grad, .doc = "gradient of log_softmax", .min_in = 2, .max_in = 2, .n_out = 1,
   .flags = GRADIENT | STRIDED, .types = DT_FLOAT, .infer = softmax_infer,
   .ref = log_softmax_grad_ref, .decompose = log_softmax_grad_decompose,
   .samples = softmax_grad_samples, WITH_ATTRS(softmax));

/* ---- public ---- */

static aril_tensor *along(const aril__op *op, aril_tensor *x, int axis)
{
    struct softmax_attrs a = { { 0 } };
    if (!x) return aril__null_tensor(op->name);
    if (!aril__is_poison(x)) {
        a.axis[0] = aril__axis(op->name, axis, x->ndim);
        if (a.axis[0] < 0) return aril__poison();
    }
    return aril__op_with(&a, op, x);
}

aril_tensor *aril_softmax(aril_tensor *x, int axis)
{
    return along(&aril__op_softmax, x, axis);
}

aril_tensor *aril_log_softmax(aril_tensor *x, int axis)
{
    return along(&aril__op_log_softmax, x, axis);
}

aril_tensor *aril_softmin(aril_tensor *x, int axis)
{
    return along(&aril__op_softmax, aril_neg(x), axis);
}
