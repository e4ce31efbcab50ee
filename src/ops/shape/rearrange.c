/* Views combined from others: split axes, rotations. */
#include "aril/view.h"
#include "core/sizes.h"
#include "ops/shape/view.h"

#include <string.h>

/* Replaces a -1 among the sizes so that their product is n. False if they do not fit. */
static bool infer_size(aril_shape *sizes, int64_t n)
{
    aril__sizes *unknown = aril__self()->sizes;
    int64_t others[ARIL_MAX_DIMS];
    int m = 0, open = -1;
    for (int i = 0; i < sizes->ndim; i++) {
        if (sizes->dim[i] == -1 && open < 0)
            open = i;
        else if (sizes->dim[i] < 0 && !aril__size_is_named(sizes->dim[i]))
            return false;
        else
            others[m++] = sizes->dim[i];
    }
    if (open < 0) return !aril__size_differs(unknown, 1, &n, m, others);
    return aril__size_quotient(unknown, 1, &n, m, others, &sizes->dim[open]);
}

aril_tensor *aril_unflatten(aril_tensor *x, int axis, aril_shape sizes)
{
    aril_tensor *bad = aril__refuse("unflatten", x);
    char have[ARIL__SHAPE_TEXT], text[ARIL__SHAPE_TEXT];
    if (bad) return bad;
    int at = aril__axis("unflatten", axis, x->ndim), ndim = x->ndim + sizes.ndim - 1;
    if (at < 0) return aril__poison();
    if (x->ndim == 0 || sizes.ndim < 1 || ndim > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_SHAPE, "unflatten: an axis of %s cannot become %d axes",
                   aril__text(have, x), sizes.ndim);
        return aril__poison();
    }
    aril_shape asked = sizes;
    if (sizes.ndim > ARIL_MAX_DIMS || !infer_size(&sizes, x->dim[at])) {
        aril__fail(ARIL_ERR_SHAPE, "unflatten: axis %d of %s does not split into %s", at,
                   aril__text(have, x), aril__shape_text(text, asked.ndim, asked.dim));
        return aril__poison();
    }
    aril_shape shape = { .ndim = ndim };
    memcpy(shape.dim, x->dim, (size_t)at * sizeof *shape.dim);
    memcpy(shape.dim + at, sizes.dim, (size_t)sizes.ndim * sizeof *shape.dim);
    memcpy(shape.dim + at + sizes.ndim, x->dim + at + 1,
           (size_t)(x->ndim - at - 1) * sizeof *shape.dim);
    return aril_reshape(x, shape);
}

aril_tensor *aril_rot90(aril_tensor *x, int k, int axis0, int axis1)
{
    aril_tensor *bad = aril__refuse("rot90", x);
    if (bad) return bad;
    if (x->ndim < 2) {
        aril__fail(ARIL_ERR_SHAPE, "rot90: needs 2 dimensions or more, got %d", x->ndim);
        return aril__poison();
    }
    int p = aril__axis("rot90", axis0, x->ndim), q = aril__axis("rot90", axis1, x->ndim);
    if (p < 0 || q < 0) return aril__poison();
    if (p == q) {
        aril__fail(ARIL_ERR_ARG, "rot90: axis %d is named twice", axis0);
        return aril__poison();
    }
    ARIL_SCOPE;
    switch ((k % 4 + 4) % 4) {
    case 1: return aril_escape(aril_transpose(aril_flip(x, ARIL_AXES(q)), p, q));
    case 2: return aril_escape(aril_flip(x, ARIL_AXES(p, q)));
    case 3: return aril_escape(aril_transpose(aril_flip(x, ARIL_AXES(p)), p, q));
    default: return aril_escape(aril_slice(x, p, 0, ARIL_END, 1));
    }
}
