/* Equality of tensors, exact and within a tolerance. */
#include "aril/create.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "ops/elementwise/elementwise.h"

static double or_default(double value, double otherwise)
{
    return value == ARIL_ZERO ? 0 : value == 0 ? otherwise : value;
}

/* Poison if a or b is NULL or poisoned, else NULL. */
static aril_tensor *refuse(const char *what, aril_tensor *a, aril_tensor *b)
{
    if (!a || !b) return aril__null_tensor(what);
    if (aril__is_poison(a)) return aril__pass_on(a);
    return aril__is_poison(b) ? aril__pass_on(b) : NULL;
}

/* |a - b| <= atol + rtol * |b|, with a finite difference. */
static aril_tensor *within(aril_tensor *a, aril_tensor *b, double rtol, double atol)
{
    aril_tensor *error = aril_abs(aril_sub(a, b));
    aril_tensor *allowed = aril_add_scalar(aril_abs(aril_mul_scalar(b, rtol)), atol);
    return aril_logical_and(aril_le(error, allowed), aril_isfinite(error));
}

aril_tensor *aril_isclose(aril_tensor *a, aril_tensor *b, aril_close_opts opts)
{
    aril_tensor *bad = refuse("isclose", a, b);
    double rtol = or_default(opts.rtol, 1e-5), atol = or_default(opts.atol, 1e-8);
    if (bad) return bad;
    if (!(rtol >= 0 && atol >= 0)) {
        aril__fail(ARIL_ERR_ARG, "isclose: tolerances must not be negative, got rtol %g, atol %g",
                   rtol, atol);
        return aril__poison();
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *close = aril_eq(a, b);
    if (opts.equal_nan)
        close = aril_logical_or(close, aril_logical_and(aril_isnan(a), aril_isnan(b)));
    if (rtol > 0 || atol > 0) {
        /* Tolerances are no integers. */
        bool integral = !aril__is_float(aril__result_type(2, (aril_tensor *[]){ a, b }));
        aril_tensor *x = integral ? aril_cast(a, ARIL_F32) : a;
        aril_tensor *y = integral ? aril_cast(b, ARIL_F32) : b;
        close = aril_logical_or(close, within(x, y, rtol, atol));
    }
    return aril_escape(close);
}

static bool all_true(aril_tensor *t)
{
    return aril_item_int(aril_all(t, ARIL_ALL)) == 1; /* 0 for poison */
}

bool aril_allclose(aril_tensor *a, aril_tensor *b, aril_close_opts opts)
{
    ARIL_SCOPE;
    return all_true(aril_isclose(a, b, opts));
}

bool aril_equal(aril_tensor *a, aril_tensor *b)
{
    if (refuse("equal", a, b)) return false;
    if (!aril__same_dims(a->ndim, a->dim, b->ndim, b->dim)) return false;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return all_true(aril_eq(a, b));
}
