/* Fourier transforms over several axes, one axis at a time, and shifts of their results. */
#include "aril/fft.h"
#include "aril/create.h"
#include "aril/view.h"
#include "ops/shape/view.h"
#include "ops/table/apply.h"

/* Axes counted from 0, and the length for each; 0: unchanged. */
typedef struct plan {
    int n, axis[ARIL_MAX_DIMS];
    int64_t length[ARIL_MAX_DIMS];
} plan;

/* `ndim`: without the pairs. */
static aril_status plan_axes(const char *what, const aril_fftn_opts *o, int ndim, plan *p)
{
    if ((int)o->norm < 0 || (int)o->norm > ARIL_FFT_FORWARD)
        return aril__fail(ARIL_ERR_ARG, "%s: unknown norm %d", what, (int)o->norm);
    if (ndim < 1) return aril__fail(ARIL_ERR_SHAPE, "%s: needs at least one axis", what);
    if (o->axes.n < 0 || o->axes.n > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_ARG, "%s: %d axes, expected up to %d", what, o->axes.n,
                          ARIL_MAX_DIMS);
    p->n = o->axes.n ? o->axes.n : ndim;
    unsigned seen = 0;
    for (int i = 0; i < p->n; i++) {
        p->axis[i] = o->axes.n ? aril__axis(what, o->axes.axis[i], ndim) : i;
        p->length[i] = o->n[i];
        if (p->axis[i] < 0) return ARIL_ERR_INDEX;
        if (seen >> p->axis[i] & 1)
            return aril__fail(ARIL_ERR_ARG, "%s: axis %d appears twice", what, p->axis[i]);
        if (p->length[i] < 0)
            return aril__fail(ARIL_ERR_ARG, "%s: the length must not be negative, got %lld", what,
                              (long long)p->length[i]);
        seen |= 1u << p->axis[i];
    }
    return ARIL_OK;
}

static aril_status check_pairs(const char *what, const aril_tensor *x)
{
    char text[ARIL__SHAPE_TEXT];
    int64_t last = x->ndim ? x->dim[x->ndim - 1] : 0;
    if (x->ndim >= 2 && (last == 2 || last < 0)) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s: expected complex numbers [...,n,2], got %s", what,
                      aril__text(text, x));
}

/* A transform of the last axis, by the 1-d function, applied to axis `axis`: of complex tensors
 * (pairs before and after), or to or from real ones. */
typedef aril_tensor *transform_fn(aril_tensor *x, aril_fft_opts opts);

static aril_tensor *along(transform_fn *fn, aril_tensor *x, int axis, int from_end, int to_end,
                          aril_fft_opts o)
{
    aril_tensor *y = fn(aril_movedim(x, ARIL_AXES(axis), ARIL_AXES(-from_end)), o);
    return aril_movedim(y, ARIL_AXES(-to_end), ARIL_AXES(axis));
}

static aril_tensor *complex_axes(transform_fn *fn, aril_tensor *x, const plan *p, int n,
                                 aril_fft_norm norm)
{
    for (int i = 0; i < n; i++)
        x = along(fn, x, p->axis[i], 2, 2, (aril_fft_opts){ .n = p->length[i], .norm = norm });
    return x;
}

typedef enum direction { COMPLEX, INVERSE, REAL, TO_REAL } direction;

static aril_tensor *over_axes(const char *what, aril_tensor *x, aril_fftn_opts o, direction d)
{
    plan p = { 0 };
    if (!x) return aril__null_tensor(what);
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (d != REAL && check_pairs(what, x) < 0) return aril__poison();
    if (plan_axes(what, &o, x->ndim - (d != REAL), &p) < 0) return aril__poison();
    ARIL_SCOPE;
    int last = p.n - 1;
    aril_fft_opts of_last = { .n = p.length[last], .norm = o.norm };
    switch (d) {
    case COMPLEX: x = complex_axes(aril_fft, x, &p, p.n, o.norm); break;
    case INVERSE: x = complex_axes(aril_ifft, x, &p, p.n, o.norm); break;
    case REAL:
        x = along(aril_rfft, x, p.axis[last], 1, 2, of_last);
        x = complex_axes(aril_fft, x, &p, last, o.norm);
        break;
    case TO_REAL:
        x = complex_axes(aril_ifft, x, &p, last, o.norm);
        x = along(aril_irfft, x, p.axis[last], 2, 1, of_last);
        break;
    }
    return aril_escape(x);
}

aril_tensor *aril_fftn(aril_tensor *x, aril_fftn_opts opts)
{
    return over_axes("fftn", x, opts, COMPLEX);
}

aril_tensor *aril_ifftn(aril_tensor *x, aril_fftn_opts opts)
{
    return over_axes("ifftn", x, opts, INVERSE);
}

aril_tensor *aril_rfftn(aril_tensor *x, aril_fftn_opts opts)
{
    return over_axes("rfftn", x, opts, REAL);
}

aril_tensor *aril_irfftn(aril_tensor *x, aril_fftn_opts opts)
{
    return over_axes("irfftn", x, opts, TO_REAL);
}

aril_tensor *aril_rfft2(aril_tensor *x, aril_fft_norm norm)
{
    return over_axes("rfft2", x, (aril_fftn_opts){ .axes = ARIL_AXES(-2, -1), .norm = norm }, REAL);
}

aril_tensor *aril_irfft2(aril_tensor *x, aril_fft_norm norm)
{
    return over_axes("irfft2", x, (aril_fftn_opts){ .axes = ARIL_AXES(-2, -1), .norm = norm },
                     TO_REAL);
}

/* ---- shifts ---- */

static aril_tensor *shifted(const char *what, aril_tensor *x, aril_axes axes, bool back)
{
    if (!x) return aril__null_tensor(what);
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (axes.n == 0) {
        axes.n = x->ndim;
        for (int d = 0; d < x->ndim; d++) axes.axis[d] = d;
    }
    if (axes.n < 0 || axes.n > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_ARG, "%s: takes up to %d axes, got %d", what, ARIL_MAX_DIMS, axes.n);
        return aril__poison();
    }
    aril_shape by = { .ndim = axes.n };
    for (int i = 0; i < axes.n; i++) {
        int axis = aril__axis(what, axes.axis[i], x->ndim);
        if (axis < 0) return aril__poison();
        if (x->dim[axis] < 0) {
            aril__fail(ARIL_ERR_UNSUPPORTED, "%s: needs axes of known sizes", what);
            return aril__poison();
        }
        by.dim[i] = back ? (x->dim[axis] + 1) / 2 : x->dim[axis] / 2;
    }
    return axes.n ? aril_roll(x, by, axes) : aril_copy(x);
}

aril_tensor *aril_fftshift(aril_tensor *x, aril_axes axes)
{
    return shifted("fftshift", x, axes, false);
}

aril_tensor *aril_ifftshift(aril_tensor *x, aril_axes axes)
{
    return shifted("ifftshift", x, axes, true);
}
