/* Division by a norm, and gates. */
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/table/op.h"

aril_tensor *aril_normalize(aril_tensor *x, double p, aril_axes axes, double eps)
{
    ARIL_SCOPE;
    axes.keepdim = true;
    return aril_escape(aril_div(x, aril_clamp_min(aril_norm(x, axes, p), eps)));
}

aril_tensor *aril_glu(aril_tensor *x, int axis)
{
    if (!x) return aril__null_tensor("glu");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (!aril__is_float((aril_dtype)x->dtype)) {
        aril__fail(ARIL_ERR_DTYPE, "glu: needs floating point, got %s",
                   aril__dtypes[x->dtype].name);
        return aril__poison();
    }
    int at = aril__axis("glu", axis, x->ndim);
    if (at < 0) return aril__poison();
    if (x->ndim == 0 || x->dim[at] < 0 || x->dim[at] % 2 != 0) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "glu: needs an axis of even size to halve, got axis %d of %s",
                   at, aril__text(text, x));
        return aril__poison();
    }
    ARIL_SCOPE;
    int64_t half = x->dim[at] / 2;
    aril_tensor *value = aril_narrow(x, at, 0, half), *gate = aril_narrow(x, at, half, half);
    return aril_escape(aril_mul(value, aril_sigmoid(gate)));
}
