/* Products of vectors, and statistics of their components. */
#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/shape/like.h"
#include "ops/table/op.h"

static aril_tensor *refuse(const char *what, aril_tensor *a, aril_tensor *b)
{
    if (!a || !b) return aril__null_tensor(what);
    if (aril__is_poison(a)) return aril__pass_on(a);
    return aril__is_poison(b) ? aril__pass_on(b) : NULL;
}

/* ---- products ---- */

static aril_status last_sizes_equal(const aril__requirement *q)
{
    const aril_shape *a = &q->shape[0], *b = &q->shape[1];
    if (aril__size_fits(a->dim[a->ndim - 1], b->dim[b->ndim - 1])) return ARIL_OK;
    char s[ARIL__SHAPE_TEXT], t[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "inner: the last sizes of %s and %s differ",
                      aril__shape_text(s, a->ndim, a->dim), aril__shape_text(t, b->ndim, b->dim));
}

aril_tensor *aril_inner(aril_tensor *a, aril_tensor *b)
{
    aril_tensor *bad = refuse("inner", a, b);
    if (bad) return bad;
    if (a->ndim == 0 || b->ndim == 0) return aril_mul(a, b);
    if (aril__require_of("inner", last_sizes_equal, a, b) < 0) return aril__poison();
    return aril_tensordot(a, b, ARIL_AXES(-1), ARIL_AXES(-1));
}

/* number: the axis, and as the caller gave it. */
static aril_status has_three(const aril__requirement *q)
{
    const aril_shape *a = &q->shape[0], *b = &q->shape[1];
    int64_t at = q->number[0];
    if (a->ndim && a->ndim == b->ndim && aril__size_fits(a->dim[at], 3) &&
        aril__size_fits(b->dim[at], 3))
        return ARIL_OK;
    char s[ARIL__SHAPE_TEXT], t[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE,
                      "cross: needs as many dimensions of both, and 3 elements along axis %d, got "
                      "%s and %s",
                      (int)q->number[1], aril__shape_text(s, a->ndim, a->dim),
                      aril__shape_text(t, b->ndim, b->dim));
}

/* Element i is a[i + 1] b[i + 2] - a[i + 2] b[i + 1], counted modulo 3. */
aril_tensor *aril_cross(aril_tensor *a, aril_tensor *b, int axis)
{
    aril_tensor *bad = refuse("cross", a, b);
    if (bad) return bad;
    int at = a->ndim && a->ndim == b->ndim ? aril__axis("cross", axis, a->ndim) : 0;
    aril_tensor *of[2] = { a, b };
    if (at < 0 || aril__require("cross", has_three, 2, of, 2, (int64_t[]){ at, axis }) < 0)
        return aril__poison();
    ARIL_SCOPE;
    aril_axes along = ARIL_AXES(at);
    aril_tensor *next_a = aril_roll(a, ARIL_SHAPE(-1), along);
    aril_tensor *next_b = aril_roll(b, ARIL_SHAPE(-1), along);
    aril_tensor *y = aril_sub(aril_mul(a, next_b), aril_mul(next_a, b));
    return aril_escape(aril_roll(y, ARIL_SHAPE(-1), along));
}

/* ---- covariance ---- */

/* number: how many observations there are. */
static aril_status weighs_each(const aril__requirement *q)
{
    const aril_shape *w = &q->shape[0];
    if (w->ndim == 1 && aril__size_fits(w->dim[0], q->number[0])) return ARIL_OK;
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "cov: needs %s for each of %lld observations, got %s",
                      q->what, (long long)q->number[0], aril__shape_text(text, w->ndim, w->dim));
}

static aril_status check_weights(const char *name, aril_tensor *w, int64_t n, bool integral)
{
    if (!w) return ARIL_OK;
    if (aril__is_poison(w)) return aril__pass_on(w), aril_tensor_status(w);
    if (aril__require(name, weighs_each, 1, &w, 1, &n) < 0) return ARIL_ERR_SHAPE;
    if (integral != aril__is_int((aril_dtype)w->dtype) ||
        (!integral && !aril__is_float((aril_dtype)w->dtype)))
        return aril__fail(ARIL_ERR_DTYPE, "cov: %s must be %s, got %s", name,
                          integral ? "integers" : "floats", aril__dtypes[w->dtype].name);
    return aril__check_range("cov", name, w, 0, (double)INT64_MAX);
}

/* The sum of weights, less the correction; not below 0. [] */
static aril_tensor *degrees(aril_tensor *x, aril_tensor *w, aril_tensor *aweights,
                            double correction)
{
    aril_tensor *n = w ? aril_sum(w, ARIL_ALL) : aril__count_like(x, aril_slice(x, 1, 0, 1, 1));
    aril_tensor *less = aril_scalar(correction);
    if (aweights)
        less = aril_mul_scalar(aril_div(aril_sum(aril_mul(w, aweights), ARIL_ALL), n), correction);
    return aril_clamp_min(aril_sub(n, less), 0);
}

/* x [variables, n], weights cast to its dtype. */
static aril_tensor *covariance(aril_tensor *x, aril_tensor *fweights, aril_tensor *aweights,
                               double correction)
{
    aril_tensor *w = fweights && aweights ? aril_mul(fweights, aweights)
                     : fweights           ? fweights
                                          : aweights;
    aril_tensor *mean =
        w ? aril_div(aril_sum(aril_mul(x, w), ARIL_KEEPDIM(1)), aril_sum(w, ARIL_ALL))
          : aril_mean(x, ARIL_KEEPDIM(1));
    aril_tensor *c = aril_sub(x, mean);
    aril_tensor *product = aril_matmul(w ? aril_mul(c, w) : c, aril_t(c));
    return aril_div(product, degrees(x, w, aweights, correction));
}

/* number: whether there was one variable when the graph was built, which gives a scalar. */
static aril_status is_scalar_as_built(const aril__requirement *q)
{
    int64_t n = q->shape[0].dim[0];
    if (n < 0 || (n == 1) == (q->number[0] != 0)) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE,
                      "cov: got %lld variables; the result of one is a scalar, of more a matrix, "
                      "and the graph was built for %s",
                      (long long)n, q->number[0] ? "one" : "more");
}

aril_tensor *aril_cov(aril_tensor *x, aril_cov_opts opts)
{
    if (!x) return aril__null_tensor("cov");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (x->ndim > 2 || x->dtype == ARIL_BOOL) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "cov: needs numbers [variables, n] or [n], got %s %s",
                   aril__dtypes[x->dtype].name, aril__text(text, x));
        return aril__poison();
    }
    int64_t n = x->ndim ? x->dim[x->ndim - 1] : 1;
    if (check_weights("fweights", opts.fweights, n, true) < 0 ||
        check_weights("aweights", opts.aweights, n, false) < 0)
        return aril__poison();
    ARIL_SCOPE;
    aril_dtype type = aril__is_float((aril_dtype)x->dtype) ? (aril_dtype)x->dtype : ARIL_F32;
    aril_tensor *rows = aril_cast(x, type);
    while (rows->ndim < 2 && !aril__is_poison(rows)) rows = aril_unsqueeze(rows, 0);
    int64_t one = aril__is_poison(rows) ? 0 : aril__traced_size(rows, 0) == 1;
    if (aril__require("cov", is_scalar_as_built, 1, &rows, 1, &one) < 0)
        return aril_escape(aril__poison());
    double correction = opts.correction == ARIL_ZERO ? 0
                        : opts.correction == 0       ? 1
                                                     : opts.correction;
    aril_tensor *y = covariance(rows, opts.fweights ? aril_cast(opts.fweights, type) : NULL,
                                opts.aweights ? aril_cast(opts.aweights, type) : NULL, correction);
    return aril_escape(aril_squeeze(y, ARIL_ALL));
}

aril_tensor *aril_corrcoef(aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *c = aril_cov(x, (aril_cov_opts){ 0 });
    if (c->ndim == 0) return aril_escape(aril_div(c, c));
    aril_tensor *deviation = aril_sqrt(aril_diagonal(c, 0, 0, 1));
    c = aril_div(aril_div(c, aril_unsqueeze(deviation, 1)), aril_unsqueeze(deviation, 0));
    return aril_escape(aril_clamp(c, -1.0, 1.0));
}
