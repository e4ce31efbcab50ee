/* Fourier transforms. A complex tensor is a real one with a last dimension of 2. Three linear ops,
 * each the gradient of another: complex to complex, real to half spectrum, and half spectrum to
 * real. */
#include "ops/signal/fft.h"

#include "aril/ops.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

ATTR_LIST(fft, FFT_ATTRS)

/* ---- kernels ---- */

enum {
    LARGEST = 31, /* largest factor with its own pass */
    LANES = 16,   /* transforms computed side by side */
    SHORT = 4096, /* up to this length, so that they stay in cache */
    GRAIN = 8 * 1024,
};

#define APART(n) ((n) + 48)

typedef enum kind { C2C, R2C, C2R } kind;

typedef struct fft_job {
    kind kind;
    const void *plan, *in;
    void *out;
    int64_t n;
    int inverse, norm, twice;
    atomic_int failed;
} fft_job;

/* Factors of n, fours first; -1 if one is larger than LARGEST. */
static int factors_of(int64_t n, int *factor)
{
    int count = 0;
    for (; n % 4 == 0; n /= 4) factor[count++] = 4;
    for (int f = 2; f <= LARGEST; f++)
        for (; n % f == 0; n /= f) factor[count++] = f;
    return n == 1 ? count : -1;
}

/* exp(-2 pi i k / n), 0 <= k < n, from angles of at most an eighth of a turn. */
static void root_of_unity(int64_t k, int64_t n, double *re, double *im)
{
    int64_t eighth = 8 * k / n, rest = 8 * k - eighth * n; /* in units of 1 / (8 n) of a turn */
    double unit = 2 * 3.14159265358979323846 / 8 / (double)n;
    double near = eighth % 2 ? (double)(n - rest) : (double)rest;
    double c = cos(near * unit), s = sin(near * unit), x, y;
    switch (eighth) {
    case 0: x = c, y = s; break;
    case 1: x = s, y = c; break;
    case 2: x = -s, y = c; break;
    case 3: x = -c, y = s; break;
    case 4: x = -c, y = -s; break;
    case 5: x = -s, y = -c; break;
    case 6: x = s, y = -c; break;
    default: x = c, y = -s; break;
    }
    *re = x;
    *im = -y;
}

#define TEMPLATE "ops/signal/fft_kernel.inc"
#include "ops/vector/each_target.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_fft_c2r;

/* ---- plans ---- */

/* A cache of plans for recently used lengths. A plan in use is not evicted. */
typedef struct kept_plan {
    void *plan;
    int64_t n;
    bool wide;
    int level, users;
    unsigned long used; /* time of last use */
} kept_plan;

enum { KEPT = 16 };

static struct {
    pthread_mutex_t lock;
    kept_plan at[KEPT];
    unsigned long now;
} plans = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void free_plan(kept_plan *p)
{
    ARIL__PICK(plan_free, p->wide)(p->plan); /* the same for every target */
    *p = (kept_plan){ 0 };
}

/* Returns a plan and its cache slot, -1 if it is not cached. NULL when out of memory. */
static void *take_plan(int64_t n, bool wide, int *place)
{
    int level = aril__cpu(), oldest = -1;
    void *plan = NULL;
    *place = -1;
    pthread_mutex_lock(&plans.lock);
    for (int i = 0; i < KEPT && !plan; i++) {
        kept_plan *p = &plans.at[i];
        if (p->plan && p->n == n && p->wide == wide && p->level == level) {
            plan = p->plan;
            *place = i;
        } else if (!p->users && (oldest < 0 || p->used < plans.at[oldest].used)) {
            oldest = i;
        }
    }
    if (!plan && (plan = ARIL__PICK(plan_new, wide)(n)) && oldest >= 0) {
        kept_plan *p = &plans.at[oldest];
        if (p->plan) free_plan(p);
        *p = (kept_plan){ .plan = plan, .n = n, .wide = wide, .level = level };
        *place = oldest;
    }
    if (*place >= 0) {
        plans.at[*place].users++;
        plans.at[*place].used = ++plans.now;
    }
    pthread_mutex_unlock(&plans.lock);
    return plan;
}

static void give_plan(void *plan, bool wide, int place)
{
    if (place < 0) {
        ARIL__PICK(plan_free, wide)(plan);
        return;
    }
    pthread_mutex_lock(&plans.lock);
    plans.at[place].users--;
    pthread_mutex_unlock(&plans.lock);
}

void aril__fft_shutdown(void)
{
    for (int i = 0; i < KEPT; i++)
        if (plans.at[i].plan) free_plan(&plans.at[i]);
}

static aril_status run(aril__run *r, kind which, int64_t n)
{
    const struct fft_attrs *a = r->attrs;
    bool wide = r->type == ARIL_F64;
    fft_job j = { .kind = which,
                  .in = aril__ptr(r->in[0]),
                  .out = aril__ptr(r->out[0]),
                  .n = n,
                  .inverse = (int)a->inverse[0],
                  .norm = (int)a->norm[0],
                  .twice = (int)a->twice[0] };
    if (r->out[0]->numel == 0) return ARIL_OK;
    int64_t rows = which == C2R   ? r->out[0]->numel / n
                   : which == R2C ? r->in[0]->numel / n
                                  : r->in[0]->numel / (2 * n);
    int64_t grain = n * LANES < GRAIN ? GRAIN / n / LANES * LANES : LANES;
    int place;
    void *plan = take_plan(n, wide, &place);
    j.plan = plan;
    if (plan) aril__parallel_for(rows, grain, ARIL__PICK(rows, wide), &j);
    bool failed = !plan || atomic_load(&j.failed);
    if (plan) give_plan(plan, wide, place);
    return failed ? aril__fail(ARIL_ERR_MEMORY, "%s: no memory", r->op->name) : ARIL_OK;
}

/* ---- shapes ---- */

static aril_status check_complex(const aril__call *c)
{
    const aril_tensor *x = c->in[0];
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 2 || (x->dim[x->ndim - 1] != 2 && x->dim[x->ndim - 1] >= 0))
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs complex numbers [...,n,2], got %s",
                          c->op->name, aril__text(text, x));
    return ARIL_OK;
}

static aril_status no_points(const aril__call *c)
{
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: no points to transform in %s", c->op->name,
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
    return run(r, C2C, r->in[0]->dim[r->in[0]->ndim - 2]);
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
OP(fft_c2c, .doc = "Fourier transform of complex numbers [...,n,2]", .onnx = "DFT", .min_in = 1,
   .max_in = 1, .n_out = 1, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
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
    return run(r, R2C, r->in[0]->dim[r->in[0]->ndim - 1]);
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
OP(fft_r2c, .doc = "Fourier transform of real numbers [...,n] to half a spectrum [...,n/2+1,2]",
   .min_in = 1, .max_in = 1, .n_out = 1, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
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
        return aril__fail(ARIL_ERR_SHAPE, "fft_c2r: %lld points come from %lld numbers, not %s",
                          (long long)n, (long long)(n / 2 + 1), aril__text(text, x));
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim - 1;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *x->dim);
    o->dim[o->ndim - 1] = n;
    return ARIL_OK;
}

static aril_status fft_c2r_ref(aril__run *r)
{
    return run(r, C2R, r->out[0]->dim[r->out[0]->ndim - 1]);
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
OP(fft_c2r, .doc = "Fourier transform of half a spectrum [...,n/2+1,2] to real numbers [...,n]",
   .min_in = 1, .max_in = 2, .n_out = 1, .optional = IN(1), .shape_only = IN(1), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = fft_c2r_infer, .ref = fft_c2r_ref,
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
        return aril__fail(ARIL_ERR_SHAPE, "resize_axis: no axis %d from the end", back);
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
OP(resize_axis, .doc = "an axis cut, or lengthened by zeros", .min_in = 1, .max_in = 2, .n_out = 1,
   .flags = RAW, .shape_only = IN(1), .types = DT_COMPUTE, .infer = resize_axis_infer,
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
    if (o.n < 0) return aril__fail(ARIL_ERR_ARG, "%s: a length of %lld", what, (long long)o.n);
    if ((int)o.norm < 0 || (int)o.norm > ARIL_FFT_FORWARD)
        return aril__fail(ARIL_ERR_ARG, "%s: there is no norm %d", what, (int)o.norm);
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
        aril__fail(ARIL_ERR_SHAPE, "%s: needs complex numbers [...,h,w,2], got %s", what,
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
        aril__fail(ARIL_ERR_ARG, "%s: %lld points %g apart", what, (long long)n, d);
        return aril__poison();
    }
    int64_t count = half ? n / 2 + 1 : n;
    if (aril__check_shape(what, ARIL_SHAPE(count), false) < 0) return aril__poison();
    float *f = aril__malloc((size_t)count * sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "%s: no memory", what);
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
