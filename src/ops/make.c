#include "ops/make.h"

#include "aril/ops.h"
#include "ops/apply.h"
#include "ops/copy.h"
#include "ops/sample.h"

#include <string.h>

ATTR_LIST(make, MAKE_ATTRS)

aril_status aril__make_attrs(const char *what, aril_shape shape, aril_dtype dtype,
                             aril_device device, struct make_attrs *out)
{
    memset(out, 0, sizeof *out);
    if ((int)dtype < 0 || (int)dtype >= ARIL__DTYPE_COUNT)
        return aril__fail(ARIL_ERR_DTYPE, "%s: there is no dtype %d", what, (int)dtype);
    aril_status s = aril__check_shape(what, shape, false);
    if (s < 0)
        return s;
    out->ndim[0] = shape.ndim;
    memcpy(out->dim, shape.dim, (size_t)shape.ndim * sizeof *shape.dim);
    out->dtype[0] = dtype;
    out->device[0] = device.kind;
    out->device[1] = device.index;
    return ARIL_OK;
}

aril_status aril__make_infer(aril__call *c)
{
    const struct make_attrs *a = c->attrs;
    aril__meta *o = &c->out[0];
    c->device =
        aril__device_find((aril_device){(int16_t)a->device[0], (int16_t)a->device[1]});
    if (!c->device)
        return ARIL_ERR_DEVICE;
    o->dtype = c->type = (aril_dtype)a->dtype[0];
    o->ndim = (int)a->ndim[0];
    memcpy(o->dim, a->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* ---- full ---- */

static void fill(aril_tensor *out, double real, int64_t whole, bool is_whole)
{
    if (out->numel == 1) {
        aril__ctype c = is_whole ? ARIL__C_I64 : ARIL__C_F64;
        aril__dtypes[out->dtype].store[c](aril__base(out), out->offset, 1,
                                          is_whole ? (void *)&whole : (void *)&real, 1);
        return;
    }
    aril__storage s = {.data = is_whole ? (void *)&whole : (void *)&real, .bytes = 8};
    aril_tensor one = {.dtype = is_whole ? ARIL_I64 : ARIL_F64, .numel = 1, .storage = &s};
    aril__copy_elements(out, &one);
}

static aril_status full_ref(aril__run *r)
{
    const struct make_attrs *a = r->attrs;
    fill(r->out[0], a->value[0], a->whole[0], a->whole[1]);
    return ARIL_OK;
}

static const aril__sample full_samples[] = {
    {.attrs = &(const struct make_attrs){
         .ndim = {2}, .dim = {2, 3}, .dtype = {ARIL_F32}, .value = {1.5}}},
    {.attrs = &(const struct make_attrs){
         .ndim = {1}, .dim = {3}, .dtype = {ARIL_I32}, .whole = {7, 1}}},
    SAMPLE_END};
OP(full, .doc = "a number everywhere", .onnx = "ConstantOfShape", .n_out = 1,
   .flags = STRIDED | NONDIFF | RAW, .infer = aril__make_infer, .ref = full_ref,
   .samples = full_samples, WITH_ATTRS(make));

ATTR_LIST(full_like, FULL_LIKE_ATTRS)

static aril_status full_like_infer(aril__call *c)
{
    const struct full_like_attrs *a = c->attrs;
    aril__meta *o = &c->out[0];
    o->dtype = a->dtype[0] < 0 ? (aril_dtype)c->in[0]->dtype : (aril_dtype)a->dtype[0];
    c->type = o->dtype;
    o->ndim = c->in[0]->ndim;
    memcpy(o->dim, c->in[0]->dim, (size_t)o->ndim * sizeof *o->dim);
    if (!c->device)
        c->device = aril__cpu_device;
    return ARIL_OK;
}

static aril_status full_like_ref(aril__run *r)
{
    fill(r->out[0], ((const struct full_like_attrs *)r->attrs)->value[0], 0, false);
    return ARIL_OK;
}

static const aril__sample full_like_samples[] = {
    {.in = {"[2,3]"}, .attrs = &(const struct full_like_attrs){{-1}, {2}}, .flags = SAMPLE_BATCH},
    {.in = {"[2]"}, .attrs = &(const struct full_like_attrs){{ARIL_I64}, {3}}},
    SAMPLE_END};
OP(full_like, .doc = "a number everywhere, in the shape of another tensor", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED | NONDIFF | RAW | KEEPS_ORDER, .shape_only = IN(0),
   .infer = full_like_infer, .ref = full_like_ref, .samples = full_like_samples,
   WITH_ATTRS(full_like));

/* ---- public ---- */

aril_tensor *aril_empty(aril_shape shape, aril_dtype dtype, aril_device device)
{
    aril__thread *th = aril__self();
    struct make_attrs a;
    if (aril__make_attrs("empty", shape, dtype, device, &a) < 0)
        return aril__poison();
    aril__device *d = aril__device_find(device);
    return d ? aril__give(th, aril__tensor_new(th, dtype, shape.ndim, shape.dim, d))
             : aril__poison();
}

static aril_tensor *full(const char *what, aril_shape shape, aril_number v, aril_dtype dtype,
                         aril_device device)
{
    struct make_attrs a;
    if (aril__make_attrs(what, shape, dtype, device, &a) < 0)
        return aril__poison();
    a.value[0] = v.f;
    a.whole[0] = v.i;
    a.whole[1] = !v.is_float;
    return aril__apply1(&aril__op_full, 0, NULL, &a);
}

aril_tensor *(aril_full)(aril_shape shape, aril_number value, aril_dtype dtype, aril_device device)
{
    return full("full", shape, value, dtype, device);
}

aril_tensor *aril_zeros(aril_shape shape, aril_dtype dtype, aril_device device)
{
    return full("zeros", shape, ARIL_NUMBER(0), dtype, device);
}

aril_tensor *aril_ones(aril_shape shape, aril_dtype dtype, aril_device device)
{
    return full("ones", shape, ARIL_NUMBER(1), dtype, device);
}

aril_tensor *aril_full_like(aril_tensor *x, double value)
{
    struct full_like_attrs a = {{-1}, {value}};
    return aril__op_with(&a, &aril__op_full_like, x);
}

aril_tensor *aril_zeros_like(aril_tensor *x)
{
    return aril_full_like(x, 0);
}

aril_tensor *aril_ones_like(aril_tensor *x)
{
    return aril_full_like(x, 1);
}
