/* Public pooling functions. */
#include "aril/conv.h"
#include "aril/create.h"
#include "aril/math.h"
#include "ops/table/apply.h"
#include "ops/norm/norm.h"
#include "ops/vision/pool.h"

#include <string.h>

static aril_status attrs_of(const char *what, int n, const aril_pool_opts *o, struct pool_attrs *a)
{
    int64_t stride[3];
    memset(a, 0, sizeof *a);
    if (aril__slide_numbers(what, "kernel", n, o->kernel, 0, a->kernel) < 0) return ARIL_ERR_ARG;
    for (int i = 0; i < 3; i++)
        stride[i] = i >= n         ? 1
                    : o->stride[i] ? o->stride[i]
                    : o->stride[0] ? o->stride[0]
                                   : a->kernel[i];
    if (aril__slide_numbers(what, "stride", n, stride, 1, a->stride) < 0 ||
        aril__slide_numbers(what, "dilation", n, o->dilation, 1, a->dilation) < 0 ||
        aril__slide_padding(what, n, o->padding, o->padding_end, a->pad) < 0)
        return ARIL_ERR_ARG;
    if (o->mode != ARIL_NUMBERS) memset(a->pad, 0, sizeof a->pad);
    a->same[0] = o->mode == ARIL_SAME         ? ARIL__SAME_UPPER
                 : o->mode == ARIL_SAME_LOWER ? ARIL__SAME_LOWER
                                              : 0;
    a->ceil[0] = o->ceil_mode;
    a->include_pad[0] = !o->count_exclude_pad;
    a->divisor[0] = o->divisor;
    if (o->divisor < 0)
        return aril__fail(ARIL_ERR_ARG, "%s: the divisor must not be negative", what);
    return ARIL_OK;
}

/* ---- windows ---- */

static aril_tensor *max_nd(const char *what, int n, aril_tensor *x, const aril__op *op,
                           const struct pool_attrs *a, aril_tensor **indices)
{
    bool single;
    aril_tensor *out[ARIL__MAX_OUT];
    x = aril__slide_batched(what, x, n, &single);
    if (x)
        aril__apply(op, 1, &x, a, out);
    else
        aril__poison_all(2, out);
    out[0] = aril__slide_unbatched(out[0], single);
    out[1] = indices ? aril__slide_unbatched(out[1], single) : NULL;
    aril__fail_together(2, out);
    if (indices) *indices = out[1];
    return out[0];
}

static aril_tensor *max_pool_nd(const char *what, int n, aril_tensor *x, const aril_pool_opts *o,
                                aril_tensor **indices)
{
    struct pool_attrs a;
    if (attrs_of(what, n, o, &a) < 0) {
        if (indices) *indices = aril__poison();
        return aril__poison();
    }
    return max_nd(what, n, x, &aril__op_max_pool, &a, indices);
}

static aril_tensor *one_nd(const char *what, int n, aril_tensor *x, const aril__op *op,
                           const struct pool_attrs *a)
{
    bool single;
    x = aril__slide_batched(what, x, n, &single);
    return x ? aril__slide_unbatched(aril__op_with(a, op, x), single) : aril__poison();
}

static aril_tensor *avg_pool_nd(const char *what, int n, aril_tensor *x, const aril_pool_opts *o)
{
    struct pool_attrs a;
    if (attrs_of(what, n, o, &a) < 0) return aril__poison();
    return one_nd(what, n, x, &aril__op_avg_pool, &a);
}

static aril_tensor *lp_pool_nd(const char *what, int n, aril_tensor *x, double p,
                               const aril_pool_opts *o)
{
    struct pool_attrs a;
    if (attrs_of(what, n, o, &a) < 0) return aril__poison();
    if (!(p > 0)) {
        aril__fail(ARIL_ERR_ARG, "%s: the power must be above 0, got %g", what, p);
        return aril__poison();
    }
    if (!x) return aril__null_tensor(what);
    a.divisor[0] = 1;
    ARIL_SCOPE;
    /* Compute in f32 if x is narrower: powers soon overflow its range. */
    bool real = !(x->flags & ARIL__POISON) && aril__is_float((aril_dtype)x->dtype);
    aril_dtype type = (aril_dtype)x->dtype;
    aril_tensor *wide = real ? aril_cast(x, aril__stat_dtype(x)) : x;
    aril_tensor *sum = one_nd(what, n, aril_pow_scalar(wide, p), &aril__op_avg_pool, &a);
    aril_tensor *y = aril_pow_scalar(sum, 1 / p);
    return aril_escape(real ? aril_cast(y, type) : y);
}

/* ---- adaptive ---- */

static aril_status size_of(const char *what, int n, aril_shape size, struct pool_attrs *a)
{
    memset(a, 0, sizeof *a);
    aril_status s = aril__check_shape(what, size, true);
    if (s < 0) return s;
    if (size.ndim != n)
        return aril__fail(ARIL_ERR_ARG, "%s: got %d sizes, expected %d", what, size.ndim, n);
    memcpy(a->size, size.dim, (size_t)n * sizeof *size.dim);
    return ARIL_OK;
}

static aril_tensor *adaptive_avg_nd(const char *what, int n, aril_tensor *x, aril_shape size)
{
    struct pool_attrs a;
    if (size_of(what, n, size, &a) < 0) return aril__poison();
    return one_nd(what, n, x, &aril__op_adaptive_avg_pool, &a);
}

static aril_tensor *adaptive_max_nd(const char *what, int n, aril_tensor *x, aril_shape size,
                                    aril_tensor **indices)
{
    struct pool_attrs a;
    if (size_of(what, n, size, &a) < 0) {
        if (indices) *indices = aril__poison();
        return aril__poison();
    }
    return max_nd(what, n, x, &aril__op_adaptive_max_pool, &a, indices);
}

static aril_tensor *global(const char *what, aril_tensor *x, const aril__op *op)
{
    struct pool_attrs a = { .size = { 1, 1, 1 } };
    return x ? aril__op_with(&a, op, x) : aril__null_tensor(what);
}

aril_tensor *aril_global_avg_pool(aril_tensor *x)
{
    return global("global_avg_pool", x, &aril__op_adaptive_avg_pool);
}

aril_tensor *aril_global_max_pool(aril_tensor *x)
{
    return global("global_max_pool", x, &aril__op_adaptive_max_pool);
}

/* ---- unpooling ---- */

static aril_tensor *max_unpool_nd(const char *what, int n, aril_tensor *x, aril_tensor *indices,
                                  aril_shape size, const aril_pool_opts *o)
{
    struct pool_attrs a;
    bool single, single_index;
    aril_pool_opts numbers = *o;
    if (size.ndim && !numbers.kernel[0]) numbers.kernel[0] = 1; /* the size determines everything */
    if (attrs_of(what, n, &numbers, &a) < 0) return aril__poison();
    if (size.ndim) {
        struct pool_attrs sizes;
        if (size_of(what, n, size, &sizes) < 0) return aril__poison();
        memcpy(a.size, sizes.size, sizeof a.size);
    }
    aril_tensor *values = x, *positions = indices;
    x = aril__slide_batched(what, x, n, &single);
    indices = aril__slide_batched(what, indices, n, &single_index);
    if (!x || !indices) return aril__poison();
    if (single != single_index && !((x->flags | indices->flags) & ARIL__POISON)) {
        char t[ARIL__SHAPE_TEXT], u[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "%s: values %s and indices %s must have the same shape", what,
                   aril__text(t, values), aril__text(u, positions));
        return aril__poison();
    }
    return aril__slide_unbatched(aril__op_with(&a, &aril__op_max_unpool, x, indices), single);
}

/* ---- one, two and three dimensions ---- */

aril_tensor *aril_max_pool1d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices)
{
    return max_pool_nd("max_pool1d", 1, x, &opts, indices);
}

aril_tensor *aril_max_pool2d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices)
{
    return max_pool_nd("max_pool2d", 2, x, &opts, indices);
}

aril_tensor *aril_max_pool3d(aril_tensor *x, aril_pool_opts opts, aril_tensor **indices)
{
    return max_pool_nd("max_pool3d", 3, x, &opts, indices);
}

aril_tensor *aril_avg_pool1d(aril_tensor *x, aril_pool_opts opts)
{
    return avg_pool_nd("avg_pool1d", 1, x, &opts);
}

aril_tensor *aril_avg_pool2d(aril_tensor *x, aril_pool_opts opts)
{
    return avg_pool_nd("avg_pool2d", 2, x, &opts);
}

aril_tensor *aril_avg_pool3d(aril_tensor *x, aril_pool_opts opts)
{
    return avg_pool_nd("avg_pool3d", 3, x, &opts);
}

aril_tensor *aril_lp_pool1d(aril_tensor *x, double p, aril_pool_opts opts)
{
    return lp_pool_nd("lp_pool1d", 1, x, p, &opts);
}

aril_tensor *aril_lp_pool2d(aril_tensor *x, double p, aril_pool_opts opts)
{
    return lp_pool_nd("lp_pool2d", 2, x, p, &opts);
}

aril_tensor *aril_lp_pool3d(aril_tensor *x, double p, aril_pool_opts opts)
{
    return lp_pool_nd("lp_pool3d", 3, x, p, &opts);
}

aril_tensor *aril_adaptive_avg_pool1d(aril_tensor *x, aril_shape size)
{
    return adaptive_avg_nd("adaptive_avg_pool1d", 1, x, size);
}

aril_tensor *aril_adaptive_avg_pool2d(aril_tensor *x, aril_shape size)
{
    return adaptive_avg_nd("adaptive_avg_pool2d", 2, x, size);
}

aril_tensor *aril_adaptive_avg_pool3d(aril_tensor *x, aril_shape size)
{
    return adaptive_avg_nd("adaptive_avg_pool3d", 3, x, size);
}

aril_tensor *aril_adaptive_max_pool1d(aril_tensor *x, aril_shape size, aril_tensor **indices)
{
    return adaptive_max_nd("adaptive_max_pool1d", 1, x, size, indices);
}

aril_tensor *aril_adaptive_max_pool2d(aril_tensor *x, aril_shape size, aril_tensor **indices)
{
    return adaptive_max_nd("adaptive_max_pool2d", 2, x, size, indices);
}

aril_tensor *aril_adaptive_max_pool3d(aril_tensor *x, aril_shape size, aril_tensor **indices)
{
    return adaptive_max_nd("adaptive_max_pool3d", 3, x, size, indices);
}

aril_tensor *aril_max_unpool1d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                               aril_pool_opts opts)
{
    return max_unpool_nd("max_unpool1d", 1, x, indices, size, &opts);
}

aril_tensor *aril_max_unpool2d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                               aril_pool_opts opts)
{
    return max_unpool_nd("max_unpool2d", 2, x, indices, size, &opts);
}

aril_tensor *aril_max_unpool3d(aril_tensor *x, aril_tensor *indices, aril_shape size,
                               aril_pool_opts opts)
{
    return max_unpool_nd("max_unpool3d", 3, x, indices, size, &opts);
}
