#include "ops/shape/pad.h"

#include "aril/index.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/index/indexing.h"
#include "ops/table/sample.h"

#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_pad_grad;

ATTR_LIST(pad, PAD_ATTRS)

/* The padded size of an axis, checked. */
static aril_status padded_size(const aril__call *c, const aril_tensor *x, int d, int64_t *out)
{
    const struct pad_attrs *a = c->attrs;
    int64_t n = x->dim[d], before = a->before[d], after = a->after[d];
    *out = n < 0 ? -1 : n + before + after;
    if (before == 0 && after == 0) return ARIL_OK;
    char text[ARIL__SHAPE_TEXT];
    const char *why = NULL;
    if (a->mode[0] != ARIL_PAD_CONSTANT && (before < 0 || after < 0))
        why = "only constant padding can crop";
    else if (n < 0)
        return ARIL_OK;
    else if (*out < 0)
        why = "more elements are cropped than the axis has";
    else if (a->mode[0] == ARIL_PAD_REFLECT && (before >= n || after >= n))
        why = "reflection padding must be smaller than the axis";
    else if (a->mode[0] == ARIL_PAD_CIRCULAR && (before > n || after > n))
        why = "circular padding must not be larger than the axis";
    else if (a->mode[0] == ARIL_PAD_REPLICATE && n == 0)
        why = "an empty axis cannot be replicated";
    if (!why) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s: padding of %lld before and %lld after axis %d of %s: %s",
                      c->op->name, (long long)before, (long long)after, d, aril__text(text, x),
                      why);
}

static aril_status pad_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    aril_status s = ARIL_OK;
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    for (int d = 0; d < x->ndim && s == ARIL_OK; d++) s = padded_size(c, x, d, &o->dim[d]);
    return s;
}

/* ---- references ---- */

int64_t aril__pad_source(int64_t i, int64_t n, int64_t mode)
{
    if (mode == ARIL_PAD_REPLICATE) return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == ARIL_PAD_CIRCULAR) return i < 0 ? i + n : i >= n ? i - n : i;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

/* The element of x that is the source of element i of the padded tensor; -1 if it is the constant.
 */
static int64_t source(const aril_tensor *padded, const aril_tensor *x, const struct pad_attrs *a,
                      int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        int64_t n = x->dim[d], k = i % padded->dim[d] - a->before[d];
        i /= padded->dim[d];
        if (a->mode[0] != ARIL_PAD_CONSTANT)
            k = aril__pad_source(k, n, a->mode[0]);
        else if (k < 0 || k >= n)
            return -1;
        at += k * step;
        step *= n;
    }
    return at;
}

static aril_status pad_ref(aril__run *r)
{
    const struct pad_attrs *a = r->attrs;
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t from = source(r->out[0], r->in[0], a, i);
        if (from < 0)
            aril__put(r->out[0], i, a->value[0]);
        else
            aril__put_same(r->out[0], i, r->in[0], from);
    }
    return ARIL_OK;
}

VJP(pad)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_pad_grad, c->g[0], c->x[0]));
}

/* As in PyTorch: f32 in autocast regions for reflection and replication along few axes. */
static unsigned pad_cast(const aril__call *c)
{
    const struct pad_attrs *a = c->attrs;
    int axes = 0;
    for (int d = 0; d < c->in[0]->ndim; d++) axes += a->before[d] || a->after[d];
    bool f32 = (a->mode[0] == ARIL_PAD_REFLECT && axes <= 2) ||
               (a->mode[0] == ARIL_PAD_REPLICATE && axes <= 3);
    return f32 ? CAST_F32 : CAST_NONE;
}

static const aril__sample pad_samples[] = {
    { .in = { "[2,3]" },
      .attrs =
          &(const struct pad_attrs){ .before = { 1, 0 }, .after = { 2, 1 }, .value = { 1.5 } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 0, -1, 2 }, .after = { 0, 1, -2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 0, 2, 1 },
                                          .after = { 0, 1, 3 },
                                          .mode = { ARIL_PAD_REFLECT } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 2, 1 },
                                          .after = { 0, 5 },
                                          .mode = { ARIL_PAD_REPLICATE } } },
    { .in = { "[2,3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 0, 2, 1 },
                                          .after = { 0, 3, 4 },
                                          .mode = { ARIL_PAD_CIRCULAR } } },
    { .in = { "[0,2]" }, .attrs = &(const struct pad_attrs){ .before = { 1 }, .after = { 1 } } },
    { .in = { "[]" }, .attrs = &(const struct pad_attrs){ .before = { 0 } } },
    SAMPLE_END
};
OP(pad, .doc = "pads with a constant, or by reflection, replication or wrapping around",
   .onnx = "Pad", .min_in = 1, .max_in = 1, .n_out = 1, .cast = CAST_BY_CALL, .cast_of = pad_cast,
   .flags = STRIDED | RAW | KEEPS_CHANNELS, .types = DT_WHOLE_BYTES, .infer = pad_infer,
   .ref = pad_ref, .vjp = pad_vjp, .saves = { LIKE(0) }, .samples = pad_samples, WITH_ATTRS(pad));

/* ---- pad_grad ---- */

static aril_status pad_grad_infer(aril__call *c)
{
    const aril_tensor *g = c->in[0], *x = c->in[1];
    aril__meta *o = &c->out[0];
    bool fits = g->ndim == x->ndim;
    for (int d = 0; d < x->ndim && fits; d++) {
        int64_t size;
        aril_status s = padded_size(c, x, d, &size);
        if (s < 0) return s;
        fits = size < 0 || g->dim[d] < 0 || g->dim[d] == size;
    }
    if (!fits) {
        char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "pad_grad: %s was not padded from %s", aril__text(p, g),
                          aril__text(q, x));
    }
    o->dtype = (aril_dtype)g->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status pad_grad_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0];
    aril_tensor *dx = r->out[0];
    for (int64_t i = 0; i < dx->numel; i++) aril__put(dx, i, 0);
    for (int64_t i = 0; i < g->numel; i++) {
        int64_t to = source(g, dx, r->attrs, i);
        if (to >= 0) aril__put(dx, to, aril__get(dx, to) + aril__get(g, i));
    }
    return ARIL_OK;
}

VJP(pad_grad)
{
    struct pad_attrs a = *(const struct pad_attrs *)c->attrs;
    a.value[0] = 0;
    if (c->g[0]) GRAD(0, aril__op_with(&a, &aril__op_pad, c->g[0]));
}

static const aril__sample pad_grad_samples[] = {
    { .in = { "[5,4]", "[2,3]" },
      .attrs = &(const struct pad_attrs){ .before = { 1, 0 }, .after = { 2, 1 } } },
    { .in = { "[2,6,8]", "[2,3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 0, 2, 1 },
                                          .after = { 0, 1, 3 },
                                          .mode = { ARIL_PAD_REFLECT } } },
    { .in = { "[5,10]", "[3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 2, 1 },
                                          .after = { 0, 5 },
                                          .mode = { ARIL_PAD_REPLICATE } } },
    { .in = { "[2,8,9]", "[2,3,4]" },
      .attrs = &(const struct pad_attrs){ .before = { 0, 2, 1 },
                                          .after = { 0, 3, 4 },
                                          .mode = { ARIL_PAD_CIRCULAR } } },
    SAMPLE_END
};
OP(pad_grad, .doc = "gradient of pad", .min_in = 2, .max_in = 2, .n_out = 1, .shape_only = IN(1),
   .flags = GRADIENT | STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = pad_grad_infer, .ref = pad_grad_ref,
   .vjp = pad_grad_vjp, .samples = pad_grad_samples, WITH_ATTRS(pad));

/* ---- public ---- */

aril_tensor *aril_pad(aril_tensor *x, aril_pads pads, aril_pad_opts opts)
{
    if (!x) return aril__null_tensor("pad");
    if (aril__is_poison(x)) return aril__pass_on(x);
    struct pad_attrs a = { .mode = { opts.mode }, .value = { opts.value } };
    if (opts.mode < ARIL_PAD_CONSTANT || opts.mode > ARIL_PAD_CIRCULAR)
        aril__fail(ARIL_ERR_ARG, "pad: unknown mode %d", (int)opts.mode);
    else if (pads.n < 0 || pads.n % 2 || pads.n > 2 * x->ndim)
        aril__fail(ARIL_ERR_ARG,
                   "pad: got %d values for %d dimensions, expected two for each of the last ones",
                   pads.n, x->ndim);
    else {
        for (int k = 0; k < pads.n; k++) {
            if (pads.at[k] < -(INT64_C(1) << 48) || pads.at[k] > INT64_C(1) << 48) {
                aril__fail(ARIL_ERR_ARG, "pad: %lld is too large", (long long)pads.at[k]);
                return aril__poison();
            }
            (k % 2 ? a.after : a.before)[x->ndim - 1 - k / 2] = pads.at[k];
        }
        return aril__op_with(&a, &aril__op_pad, x);
    }
    return aril__poison();
}
