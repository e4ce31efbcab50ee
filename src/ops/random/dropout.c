/* Dropout variants: one op, whose mask is a function of the key and the element's index, so that
 * the gradient regenerates it and nothing is saved. */
#include "ops/random/dropout.h"

#include "aril/neural.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/random/random.h"
#include "ops/table/sample.h"

#include <math.h>

ATTR_LIST(dropout, DROPOUT_ATTRS)

static aril_status dropout_infer(aril__call *c)
{
    const struct dropout_attrs *a = c->attrs;
    const aril_tensor *x = c->in[1];
    aril_status s = aril__rng_check_key(c);
    if (s < 0) return s;
    if (!aril__is_float((aril_dtype)x->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "dropout: not defined for %s",
                          aril__dtypes[x->dtype].name);
    if (a->lead[0] > x->ndim) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "dropout: %s has no channel axis %lld",
                          aril__text(text, x), (long long)a->lead[0] - 1);
    }
    c->type = c->out[0].dtype = (aril_dtype)x->dtype;
    c->out[0].ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) c->out[0].dim[d] = x->dim[d];
    return ARIL_OK;
}

/* An element is kept if its draw, a multiple of 2^-24, is at least p. f16 and bf16 compute in f32.
 */
static aril_status dropout_ref(aril__run *r)
{
    const struct dropout_attrs *a = r->attrs;
    const aril_tensor *x = r->in[1];
    int64_t inner = 1; /* elements that share a draw */
    for (int d = x->ndim - 1; a->lead[0] >= 0 && d >= a->lead[0]; d--) inner *= x->dim[d];
    for (int64_t i = 0; i < x->numel; i++) {
        double v = aril__get(x, i);
        float u;
        aril__rng_uniform_f32(aril__rng_key_of(r), i / inner, i / inner + 1, &u);
        bool dropped = (double)u < a->p[0];
        if (x->dtype == ARIL_F64)
            v = dropped ? a->dropped[0] : v * a->scale[0] + a->kept[0];
        else
            v = dropped ? (float)a->dropped[0] : (float)v * (float)a->scale[0] + (float)a->kept[0];
        aril__put(r->out[0], i, v);
    }
    return ARIL_OK;
}

VJP(dropout)
{
    struct dropout_attrs a = *(const struct dropout_attrs *)c->attrs;
    a.kept[0] = a.dropped[0] = 0;
    if (c->g[0]) GRAD(1, aril__op_with(&a, &aril__op_dropout, c->x[0], c->g[0]));
}

static const aril__sample dropout_samples[] = {
    { .in = { "key", "[4,5]" },
      .attrs = &(const struct dropout_attrs){ { 0.4 }, { -1 }, { 1 / 0.6 }, { 0 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "key", "[2,3,4]" },
      .attrs = &(const struct dropout_attrs){ { 0.5 }, { 2 }, { 2 }, { 0 }, { 0 } } },
    { .in = { "key", "[3,4]" },
      .attrs = &(const struct dropout_attrs){ { 0.3 }, { -1 }, { 0.8 }, { 0.4 }, { -1.2 } } },
    { .in = { "key", "[]" },
      .attrs = &(const struct dropout_attrs){ { 0 }, { -1 }, { 1 }, { 0 }, { 0 } } },
    { .in = { "key", "[0,3]" },
      .attrs = &(const struct dropout_attrs){ { 0.5 }, { 1 }, { 2 }, { 0 }, { 0 } } },
    SAMPLE_END
};
OP(dropout, .doc = "replaces random elements or whole channels, usually by 0, and scales the rest",
   .onnx = "Dropout", .min_in = 2, .max_in = 2, .n_out = 1, .flags = RANDOM | KEEPS_ORDER | STRIDED,
   .infer = dropout_infer, .ref = dropout_ref, .vjp = dropout_vjp, .saves = { 0, IN(0) },
   .samples = dropout_samples, WITH_ATTRS(dropout));

/* ---- public ---- */

static aril_tensor *dropout(const char *what, aril_generator *generator, aril_tensor *x, double p,
                            int lead, bool alpha, aril_dropout_opts opts)
{
    if (!x) return aril__null_tensor(what);
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (!(p >= 0 && p <= 1)) {
        aril__fail(ARIL_ERR_ARG, "%s: p must be from 0 to 1, got %g", what, p);
        return aril__poison();
    }
    if (lead >= 0 && x->ndim < 2) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "%s: expected an input with channels, [N,C,...], got %s", what,
                   aril__text(text, x));
        return aril__poison();
    }
    if (opts.eval) return x;
    struct dropout_attrs a = { { p }, { lead }, { p < 1 ? 1 / (1 - p) : 0 }, { 0 }, { 0 } };
    if (alpha && p < 1) {                       /* preserves SELU's mean and variance */
        const double low = -1.7580993408473766; /* SELU's limit at minus infinity */
        double s = 1 / sqrt((low * low * p + 1) * (1 - p));
        a.scale[0] = s;
        a.kept[0] = -low * s * p;
        a.dropped[0] = low * s * (1 - p);
    }
    return aril__op_with(&a, &aril__op_dropout, aril__rng_draw(generator), x);
}

aril_tensor *aril_dropout(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout("dropout", NULL, x, p, -1, false, opts);
}

aril_tensor *aril_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                               aril_dropout_opts opts)
{
    return dropout("dropout_from", generator, x, p, -1, false, opts);
}

aril_tensor *aril_feature_dropout(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout("feature_dropout", NULL, x, p, 2, false, opts);
}

aril_tensor *aril_feature_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                       aril_dropout_opts opts)
{
    return dropout("feature_dropout_from", generator, x, p, 2, false, opts);
}

aril_tensor *aril_alpha_dropout(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout("alpha_dropout", NULL, x, p, -1, true, opts);
}

aril_tensor *aril_alpha_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                     aril_dropout_opts opts)
{
    return dropout("alpha_dropout_from", generator, x, p, -1, true, opts);
}

aril_tensor *aril_feature_alpha_dropout(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout("feature_alpha_dropout", NULL, x, p, 2, true, opts);
}

aril_tensor *aril_feature_alpha_dropout_from(aril_generator *generator, aril_tensor *x, double p,
                                             aril_dropout_opts opts)
{
    return dropout("feature_alpha_dropout_from", generator, x, p, 2, true, opts);
}

/* Drops channels of an input with or without a batch: [N,C,...] of n + 2 dimensions, [C,...] of n +
 * 1. */
static aril_tensor *dropout_nd(const char *what, int n, aril_tensor *x, double p,
                               aril_dropout_opts opts)
{
    if (x && !aril__is_poison(x) && x->ndim != n + 1 && x->ndim != n + 2) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "%s: expected %d or %d dimensions, got %s", what, n + 1, n + 2,
                   aril__text(text, x));
        return aril__poison();
    }
    /* Like PyTorch, dropout2d treats 3 dimensions as [N,C,L]. */
    int lead = x && x->ndim == n + 1 && n != 2 ? 1 : 2;
    return dropout(what, NULL, x, p, lead, false, opts);
}

aril_tensor *aril_dropout1d(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout_nd("dropout1d", 1, x, p, opts);
}

aril_tensor *aril_dropout2d(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout_nd("dropout2d", 2, x, p, opts);
}

aril_tensor *aril_dropout3d(aril_tensor *x, double p, aril_dropout_opts opts)
{
    return dropout_nd("dropout3d", 3, x, p, opts);
}
