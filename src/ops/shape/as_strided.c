#include "ops/shape/as_strided.h"

#include "ops/table/sample.h"

#include <string.h>

ATTR_LIST(as_strided, AS_STRIDED_ATTRS)

/* The first and last element, counted from the first of the input, are inside it. */
static bool is_inside(const struct as_strided_attrs *a, int64_t numel)
{
    int64_t low = a->offset[0], high = low;
    for (int d = 0; d < a->ndim[0]; d++) {
        int64_t reach;
        if (a->dim[d] == 0) return true;
        if (a->dim[d] < 0 || __builtin_mul_overflow(a->dim[d] - 1, a->stride[d], &reach))
            return false;
        if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return false;
    }
    return low >= 0 && (high < numel || numel < 0);
}

static aril_status as_strided_infer(aril__call *c)
{
    const struct as_strided_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    if (a->ndim[0] < 0 || a->ndim[0] > ARIL_MAX_DIMS || !is_inside(a, x->numel))
        return aril__fail(ARIL_ERR_SHAPE, "as_strided: the strides reach outside the input");
    if (!aril__is_dense(x))
        return aril__fail(ARIL_ERR_SHAPE, "as_strided: the input is not contiguous");
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = (int)a->ndim[0];
    o->offset = x->offset + a->offset[0];
    memcpy(o->dim, a->dim, sizeof o->dim);
    memcpy(o->stride, a->stride, sizeof o->stride);
    return ARIL_OK;
}

static const aril__sample as_strided_samples[] = {
    { .in = { "[3,4]" },
      .attrs = &(const struct as_strided_attrs){ { 2 }, { 2, 3 }, { 4, 1 }, { 4 } } },
    { .in = { "[3,4]" },
      .attrs = &(const struct as_strided_attrs){ { 2 }, { 4, 3 }, { 1, 4 }, { 0 } } },
    SAMPLE_END
};
OP(as_strided, .doc = "elements of contiguous memory by offset and strides", .min_in = 1,
   .max_in = 1, .n_out = 1, .out = { VIEW(0) }, .flags = NONDIFF, .infer = as_strided_infer,
   .samples = as_strided_samples, WITH_ATTRS(as_strided));
