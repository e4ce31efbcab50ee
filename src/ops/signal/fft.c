/* Fourier transforms. A complex tensor is a real one with a last dimension of 2. Three linear ops,
 * each the gradient of another: complex to complex, real to half spectrum, and half spectrum to
 * real. */
#include "ops/signal/fft.h"

#include "aril/fft.h"
#include "aril/view.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_fft_c2r;

ATTR_LIST(fft, FFT_ATTRS)

/* ---- references ---- */

/* How often number k of half a spectrum counts: with `twice`, for its conjugate too. */
static double times_counted(const struct fft_attrs *a, int64_t k, int64_t n)
{
    return a->twice[0] && k > 0 && 2 * k != n ? 2 : 1;
}

/* A transform of rows of n numbers as the sum it is defined by. Either side may be half a spectrum
 * (of which only n / 2 + 1 numbers are given) or real (imaginary parts are 0). */
static aril_status transform_ref(aril__run *r, int64_t n, bool from_real, bool to_real)
{
    const struct fft_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0], *y = r->out[0];
    int64_t have = to_real ? n / 2 + 1 : n, want = from_real ? n / 2 + 1 : n;
    int64_t rows = y->numel / (to_real ? n : 2 * want);
    double turn = (a->inverse[0] ? 2 : -2) * 3.14159265358979323846 / (double)n;
    double scale = a->norm[0] == 1 ? 1 / sqrt((double)n) : a->norm[0] == 2 ? 1 / (double)n : 1;
    for (int64_t i = 0; i < rows * want; i++) {
        int64_t row = i / want, k = i % want;
        double re = 0, im = 0, by = scale * (from_real ? times_counted(a, k, n) : 1);
        for (int64_t m = 0; m < have; m++) {
            int64_t at = row * have + m;
            double c = cos(turn * (double)(k * m % n)), s = sin(turn * (double)(k * m % n));
            double w = to_real ? times_counted(a, m, n) : 1;
            double xr = w * aril__get(x, from_real ? at : 2 * at);
            double xi = from_real ? 0 : w * aril__get(x, 2 * at + 1);
            re += xr * c - xi * s;
            im += xr * s + xi * c;
        }
        aril__put(r->out[0], to_real ? i : 2 * i, by * re);
        if (!to_real) aril__put(r->out[0], 2 * i + 1, by * im);
    }
    return ARIL_OK;
}

/* ---- shapes ---- */

static aril_status check_complex(const aril__call *c)
{
    const aril_tensor *x = c->in[0];
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 2 || (x->dim[x->ndim - 1] != 2 && x->dim[x->ndim - 1] >= 0))
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected complex numbers [...,n,2], got %s",
                          c->op->name, aril__text(text, x));
    return ARIL_OK;
}

static aril_status no_points(const aril__call *c)
{
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: cannot transform an empty axis, got %s", c->op->name,
                      aril__text(text, c->in[0]));
}

static aril_tensor *transform(const aril__op *op, aril_tensor *x, aril_tensor *like, bool inverse,
                              int norm, bool twice, int64_t n)
{
    struct fft_attrs a = { { inverse }, { norm }, { twice }, { n } };
    aril_tensor *in[2] = { x, like };
    return aril__apply1(op, like ? 2 : 1, in, &a);
}

/* ---- complex to complex ---- */

static aril_status fft_c2c_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril_status s = check_complex(c);
    if (s < 0) return s;
    if (x->dim[x->ndim - 2] == 0) return no_points(c);
    c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim;
    memcpy(c->out[0].dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

static aril_status fft_c2c_ref(aril__run *r)
{
    return transform_ref(r, r->in[0]->dim[r->in[0]->ndim - 2], false, false);
}

VJP(fft_c2c)
{
    const struct fft_attrs *a = c->attrs;
    if (c->g[0])
        GRAD(0, transform(c->op, c->g[0], NULL, !a->inverse[0], (int)a->norm[0], false, 0));
}

static const aril__sample fft_c2c_samples[] = {
    { .in = { "[2,8,2]" },
      .attrs = &(const struct fft_attrs){ { 0 }, { 0 }, { 0 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3,6,2]" }, .attrs = &(const struct fft_attrs){ { 1 }, { 2 }, { 0 }, { 0 } } },
    { .in = { "[15,2]" }, .attrs = &(const struct fft_attrs){ { 0 }, { 1 }, { 0 }, { 0 } } },
    { .in = { "[37,2]" }, .attrs = &(const struct fft_attrs){ { 1 }, { 1 }, { 0 }, { 0 } } },
    { .in = { "[1,2]" }, .attrs = &(const struct fft_attrs){ { 0 }, { 0 }, { 0 }, { 0 } } },
    { .in = { "[0,4,2]" }, .attrs = &(const struct fft_attrs){ { 0 }, { 0 }, { 0 }, { 0 } } },
    SAMPLE_END
};
OP(fft_c2c, .doc = "discrete Fourier transform of complex input [...,n,2]", .onnx = "DFT",
   .min_in = 1, .max_in = 1, .n_out = 1, .cast = CAST_F32, .flags = STRIDED, .types = DT_FLOAT,
   .infer = fft_c2c_infer, .ref = fft_c2c_ref, .vjp = fft_c2c_vjp, .samples = fft_c2c_samples,
   WITH_ATTRS(fft));

/* ---- real to half spectrum ---- */

static aril_status fft_r2c_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    if (x->ndim < 1 || x->ndim >= ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "fft_r2c: needs 1 to %d dimensions, got %d",
                          ARIL_MAX_DIMS - 1, x->ndim);
    if (x->dim[x->ndim - 1] == 0) return no_points(c);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim + 1;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    int64_t n = x->dim[x->ndim - 1];
    o->dim[x->ndim - 1] = n < 0 ? -1 : n / 2 + 1;
    o->dim[x->ndim] = 2;
    return ARIL_OK;
}

static aril_status fft_r2c_ref(aril__run *r)
{
    return transform_ref(r, r->in[0]->dim[r->in[0]->ndim - 1], true, false);
}

VJP(fft_r2c)
{
    const struct fft_attrs *a = c->attrs;
    if (c->g[0])
        GRAD(0, transform(&aril__op_fft_c2r, c->g[0], c->x[0], !a->inverse[0], (int)a->norm[0],
                          a->twice[0], 0));
}

static const aril__sample fft_r2c_samples[] = {
    { .in = { "[2,8]" },
      .attrs = &(const struct fft_attrs){ { 0 }, { 0 }, { 0 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3,7]" }, .attrs = &(const struct fft_attrs){ { 0 }, { 1 }, { 1 }, { 0 } } },
    { .in = { "[12]" }, .attrs = &(const struct fft_attrs){ { 1 }, { 2 }, { 0 }, { 0 } } },
    { .in = { "[1]" }, .attrs = &(const struct fft_attrs){ { 0 }, { 0 }, { 0 }, { 0 } } },
    SAMPLE_END
};
OP(fft_r2c,
   .doc = "discrete Fourier transform of real input [...,n] to a half spectrum [...,n/2+1,2]",
   .min_in = 1, .max_in = 1, .n_out = 1, .cast = CAST_F32, .flags = STRIDED, .types = DT_FLOAT,
   .infer = fft_r2c_infer, .ref = fft_r2c_ref, .vjp = fft_r2c_vjp, .saves = { LIKE(0) },
   .samples = fft_r2c_samples, WITH_ATTRS(fft));

/* ---- half spectrum to real ---- */

static aril_status fft_c2r_infer(aril__call *c)
{
    const struct fft_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *like = c->n_in > 1 ? c->in[1] : NULL;
    aril__meta *o = &c->out[0];
    aril_status s = check_complex(c);
    if (s < 0) return s;
    int64_t have = x->dim[x->ndim - 2];
    int64_t n = a->n[0]              ? a->n[0]
                : like && like->ndim ? like->dim[like->ndim - 1]
                : have < 0           ? -1
                                     : 2 * (have - 1);
    if (n == 0 || have == 0) return no_points(c);
    char text[ARIL__SHAPE_TEXT];
    if (n > 0 && have >= 0 && have != n / 2 + 1)
        return aril__fail(ARIL_ERR_SHAPE,
                          "fft_c2r: a length of %lld needs %lld frequencies, got %s", (long long)n,
                          (long long)(n / 2 + 1), aril__text(text, x));
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim - 1;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *x->dim);
    o->dim[o->ndim - 1] = n;
    return ARIL_OK;
}

static aril_status fft_c2r_ref(aril__run *r)
{
    return transform_ref(r, r->out[0]->dim[r->out[0]->ndim - 1], false, true);
}

VJP(fft_c2r)
{
    const struct fft_attrs *a = c->attrs;
    if (c->g[0])
        GRAD(0, transform(&aril__op_fft_r2c, c->g[0], NULL, !a->inverse[0], (int)a->norm[0],
                          a->twice[0], 0));
}

static const aril__sample fft_c2r_samples[] = {
    { .in = { "[2,5,2]", "[8]" },
      .attrs = &(const struct fft_attrs){ { 1 }, { 2 }, { 1 }, { 0 } } },
    { .in = { "[4,2]" }, .attrs = &(const struct fft_attrs){ { 1 }, { 0 }, { 0 }, { 7 } } },
    { .in = { "[2,4,2]" },
      .attrs = &(const struct fft_attrs){ { 0 }, { 1 }, { 1 }, { 6 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3,2]" }, .attrs = &(const struct fft_attrs){ { 1 }, { 0 }, { 1 }, { 0 } } },
    SAMPLE_END
};
OP(fft_c2r,
   .doc = "discrete Fourier transform of a half spectrum [...,n/2+1,2] to real output [...,n]",
   .min_in = 1, .max_in = 2, .n_out = 1, .cast = CAST_F32, .optional = IN(1), .shape_only = IN(1),
   .types = DT_FLOAT, .flags = STRIDED, .infer = fft_c2r_infer, .ref = fft_c2r_ref,
   .vjp = fft_c2r_vjp, .samples = fft_c2r_samples, WITH_ATTRS(fft));

/* ---- resize_axis ---- */

ATTR_LIST(resize_axis, RESIZE_AXIS_ATTRS)

static aril_status resize_axis_infer(aril__call *c)
{
    const struct resize_axis_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *like = c->n_in > 1 ? c->in[1] : NULL;
    aril__meta *o = &c->out[0];
    int back = (int)a->axis[0];
    if (back < 1 || back > x->ndim || (like && back > like->ndim))
        return aril__fail(ARIL_ERR_SHAPE, "resize_axis: axis %d from the end is out of range",
                          back);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    o->dim[x->ndim - back] = like ? like->dim[like->ndim - back] : a->n[0];
    return ARIL_OK;
}

static aril_status resize_axis_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0], *y = r->out[0];
    int axis = x->ndim - (int)((const struct resize_axis_attrs *)r->attrs)->axis[0];
    size_t unit = aril__dtype_bytes((aril_dtype)x->dtype, 1);
    for (int d = axis + 1; d < x->ndim; d++) unit *= (size_t)x->dim[d];
    int64_t rows = aril__count(axis, x->dim);
    size_t from = (size_t)x->dim[axis] * unit, to = (size_t)y->dim[axis] * unit;
    const char *in = aril__ptr(x);
    char *out = aril__ptr(y);
    for (int64_t i = 0; i < rows; i++, in += from, out += to) {
        memcpy(out, in, from < to ? from : to);
        if (to > from) memset(out + from, 0, to - from);
    }
    return ARIL_OK;
}

VJP(resize_axis)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_resize_axis, c->g[0], c->x[0]));
}

static const aril__sample resize_axis_samples[] = {
    { .in = { "[2,3]" },
      .attrs = &(const struct resize_axis_attrs){ { 1 }, { 5 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,5,2]" }, .attrs = &(const struct resize_axis_attrs){ { 2 }, { 3 } } },
    { .in = { "[2,3]", "[4]" }, .attrs = &(const struct resize_axis_attrs){ { 1 }, { -1 } } },
    SAMPLE_END
};
OP(resize_axis, .doc = "truncates an axis or pads it with zeros", .min_in = 1, .max_in = 2,
   .n_out = 1, .flags = RAW, .shape_only = IN(1), .types = DT_COMPUTE, .infer = resize_axis_infer,
   .ref = resize_axis_ref, .vjp = resize_axis_vjp, .saves = { LIKE(0) },
   .samples = resize_axis_samples, WITH_ATTRS(resize_axis));

/* ---- public ---- */

static aril_tensor *refuse(const char *what, aril_tensor *x)
{
    if (!x) return aril__null_tensor(what);
    return aril__is_poison(x) ? aril__pass_on(x) : NULL;
}

static aril_tensor *resized(aril_tensor *x, int from_end, int64_t n)
{
    if (x->ndim < from_end || x->dim[x->ndim - from_end] == n) return x;
    struct resize_axis_attrs a = { { from_end }, { n } };
    return aril__op_with(&a, &aril__op_resize_axis, x);
}

/* The norm attribute of a norm in one direction. */
static int norm_for(aril_fft_norm norm, bool inverse)
{
    return norm == ARIL_FFT_ORTHO ? 1 : (norm == ARIL_FFT_FORWARD) != inverse ? 2 : 0;
}

static aril_status check_opts(const char *what, aril_fft_opts o)
{
    if (o.n < 0)
        return aril__fail(ARIL_ERR_ARG, "%s: the length must not be negative, got %lld", what,
                          (long long)o.n);
    if ((int)o.norm < 0 || (int)o.norm > ARIL_FFT_FORWARD)
        return aril__fail(ARIL_ERR_ARG, "%s: unknown norm %d", what, (int)o.norm);
    return ARIL_OK;
}

static aril_tensor *complex_fft(const char *what, aril_tensor *x, aril_fft_opts o, bool inverse)
{
    aril_tensor *bad = refuse(what, x);
    if (bad) return bad;
    if (check_opts(what, o) < 0) return aril__poison();
    ARIL_SCOPE;
    return aril_escape(transform(&aril__op_fft_c2c, o.n ? resized(x, 2, o.n) : x, NULL, inverse,
                                 norm_for(o.norm, inverse), false, 0));
}

aril_tensor *aril_fft(aril_tensor *x, aril_fft_opts opts)
{
    return complex_fft("fft", x, opts, false);
}

aril_tensor *aril_ifft(aril_tensor *x, aril_fft_opts opts)
{
    return complex_fft("ifft", x, opts, true);
}

static aril_tensor *complex_fft2(const char *what, aril_tensor *x, aril_fft_norm norm, bool inverse)
{
    aril_tensor *bad = refuse(what, x);
    if (bad) return bad;
    if (x->ndim < 3) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "%s: expected complex numbers [...,h,w,2], got %s", what,
                   aril__text(text, x));
        return aril__poison();
    }
    ARIL_SCOPE;
    aril_fft_opts o = { .norm = norm };
    aril_tensor *rows = complex_fft(what, x, o, inverse);
    aril_tensor *both = complex_fft(what, aril_transpose(rows, -3, -2), o, inverse);
    return aril_escape(aril_transpose(both, -3, -2));
}

aril_tensor *aril_fft2(aril_tensor *x, aril_fft_norm norm)
{
    return complex_fft2("fft2", x, norm, false);
}

aril_tensor *aril_ifft2(aril_tensor *x, aril_fft_norm norm)
{
    return complex_fft2("ifft2", x, norm, true);
}

aril_tensor *aril_rfft(aril_tensor *x, aril_fft_opts opts)
{
    aril_tensor *bad = refuse("rfft", x);
    if (bad) return bad;
    if (check_opts("rfft", opts) < 0) return aril__poison();
    ARIL_SCOPE;
    return aril_escape(transform(&aril__op_fft_r2c, opts.n ? resized(x, 1, opts.n) : x, NULL, false,
                                 norm_for(opts.norm, false), false, 0));
}

aril_tensor *aril_irfft(aril_tensor *x, aril_fft_opts opts)
{
    aril_tensor *bad = refuse("irfft", x);
    if (bad) return bad;
    if (check_opts("irfft", opts) < 0) return aril__poison();
    ARIL_SCOPE;
    return aril_escape(transform(&aril__op_fft_c2r, opts.n ? resized(x, 2, opts.n / 2 + 1) : x,
                                 NULL, true, norm_for(opts.norm, true), true, opts.n));
}

/* k / (n d), with negative frequencies in the second half of a full list. */
static aril_tensor *frequencies(const char *what, int64_t n, double d, bool half)
{
    if (n < 1 || d == 0) {
        aril__fail(ARIL_ERR_ARG, "%s: n must be at least 1 and the spacing not 0, got %lld and %g",
                   what, (long long)n, d);
        return aril__poison();
    }
    int64_t count = half ? n / 2 + 1 : n;
    if (aril__check_shape(what, ARIL_SHAPE(count), false) < 0) return aril__poison();
    float *f = aril__malloc((size_t)count * sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
        return aril__poison();
    }
    for (int64_t k = 0; k < count; k++)
        f[k] = (float)((double)(half || k < (n + 1) / 2 ? k : k - n) / ((double)n * d));
    aril_tensor *t = aril_from(f, ARIL_SHAPE(count), ARIL_F32, aril_cpu());
    free(f);
    return t;
}

aril_tensor *aril_fftfreq(int64_t n, double d)
{
    return frequencies("fftfreq", n, d, false);
}

aril_tensor *aril_rfftfreq(int64_t n, double d)
{
    return frequencies("rfftfreq", n, d, true);
}
