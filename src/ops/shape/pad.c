#include "ops/shape/pad.h"

#include "aril/ops.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/shape/copy.h"
#include "ops/index/indexing.h"
#include "ops/table/sample.h"

#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_pad, aril__op_pad_grad;

enum { GRAIN = 16 * 1024 };

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
        why = "more is cropped than there is";
    else if (a->mode[0] == ARIL_PAD_REFLECT && (before >= n || after >= n))
        why = "reflection needs less padding than there are elements";
    else if (a->mode[0] == ARIL_PAD_CIRCULAR && (before > n || after > n))
        why = "going round needs no more padding than there are elements";
    else if (a->mode[0] == ARIL_PAD_REPLICATE && n == 0)
        why = "there is nothing to replicate";
    if (!why) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "%s: %lld before and %lld after axis %d of %s: %s",
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

/* ---- constant ---- */

/* Restricts both headers to the part they have in common; false if it is empty. */
static bool common_part(aril_tensor *padded, aril_tensor *x, const struct pad_attrs *a)
{
    for (int d = 0; d < x->ndim; d++) {
        int64_t n = x->dim[d], before = a->before[d], after = a->after[d];
        int64_t skip = before < 0 ? -before : 0, cut = after < 0 ? -after : 0;
        int64_t size = n - skip - cut;
        if (size <= 0) return false;
        x->offset += skip * x->stride[d];
        padded->offset += (before > 0 ? before : 0) * padded->stride[d];
        x->dim[d] = padded->dim[d] = size;
    }
    x->numel = padded->numel = aril__count(x->ndim, x->dim);
    return true;
}

/* ---- the other modes: a table with the source of each position of an axis ---- */

typedef struct pad_map {
    int64_t *from[ARIL_MAX_DIMS];
    int64_t rows; /* of the padded tensor: the product of all dimensions but the last */
    int ndim;
    const aril_tensor *padded;
    const aril_tensor *x;
    int64_t bytes, batch; /* batch: rows of the padded tensor per index before the first padded
                           * axis */
    const aril__mover *mover;
    const aril__combiner *combiner;
} pad_map;

static int64_t source_of(int64_t i, int64_t n, int64_t mode)
{
    if (mode == ARIL_PAD_REPLICATE) return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == ARIL_PAD_CIRCULAR) return i < 0 ? i + n : i >= n ? i - n : i;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

/* One block of memory for all tables; the caller frees from[0]. */
static aril_status make_map(pad_map *m, const struct pad_attrs *a)
{
    int64_t total = 0;
    for (int d = 0; d < m->ndim; d++) total += m->padded->dim[d];
    int64_t *at = aril__malloc((size_t)(total ? total : 1) * sizeof *at);
    if (!at)
        return aril__fail(ARIL_ERR_MEMORY, "pad: no memory for %lld positions", (long long)total);
    m->from[0] = at;
    m->rows = m->batch = 1;
    bool padded = false;
    for (int d = 0; d < m->ndim; d++) {
        m->from[d] = at;
        padded |= a->before[d] != 0 || a->after[d] != 0;
        for (int64_t i = 0; i < m->padded->dim[d]; i++)
            *at++ = source_of(i - a->before[d], m->x->dim[d], a->mode[0]);
        if (d < m->ndim - 1) {
            m->rows *= m->padded->dim[d];
            if (padded) m->batch *= m->padded->dim[d];
        }
    }
    return ARIL_OK;
}

/* The offset of the row of x that is the source of a row of the padded tensor. */
static int64_t row_source(const pad_map *m, int64_t row)
{
    int64_t offset = 0;
    for (int d = m->ndim - 2; d >= 0; d--) {
        int64_t i = row % m->padded->dim[d];
        row /= m->padded->dim[d];
        offset += m->from[d][i] * m->x->stride[d];
    }
    return offset;
}

static void pad_rows(void *ctx, int64_t begin, int64_t end)
{
    const pad_map *m = ctx;
    int last = m->ndim - 1;
    int64_t n = m->padded->dim[last];
    char *out = aril__ptr(m->padded);
    const char *x = aril__ptr(m->x);
    for (int64_t row = begin; row < end; row++)
        m->mover->pick(out + row * n * m->bytes, 1, x + row_source(m, row) * m->bytes, 0,
                       m->from[last], 1, n);
}

/* Batches do not share elements of x; within one, rows are added in order. */
static void unpad_batches(void *ctx, int64_t begin, int64_t end)
{
    const pad_map *m = ctx;
    int last = m->ndim - 1;
    int64_t n = m->padded->dim[last];
    const char *g = aril__ptr(m->padded);
    char *x = aril__ptr(m->x);
    for (int64_t row = begin * m->batch; row < end * m->batch; row++)
        m->combiner->scatter(ARIL__ADD, x + row_source(m, row) * m->bytes, 0, 1, m->from[last], 1,
                             m->x->dim[last], g + row * n * m->bytes, 1, n);
}

static aril_status pad_ref(aril__run *r)
{
    const struct pad_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    if (out->numel == 0) return ARIL_OK;
    if (a->mode[0] == ARIL_PAD_CONSTANT || out->ndim == 0) {
        double value = a->value[0];
        aril__storage one = { .data = &value, .bytes = sizeof value };
        aril_tensor fill = { .dtype = ARIL_F64, .numel = 1, .storage = &one };
        aril_tensor inner = *out, x = *r->in[0];
        aril__copy_elements(out, &fill);
        if (common_part(&inner, &x, a)) aril__copy_elements(&inner, &x);
        return ARIL_OK;
    }
    pad_map m = { .ndim = out->ndim,
                  .padded = out,
                  .x = r->in[0],
                  .bytes = aril__dtypes[out->dtype].bits / 8,
                  .mover = aril__mover_of((aril_dtype)out->dtype) };
    aril_status s = make_map(&m, a);
    if (s < 0) return s;
    int64_t grain = GRAIN / out->dim[out->ndim - 1];
    aril__parallel_for(m.rows, grain > 1 ? grain : 1, pad_rows, &m);
    free(m.from[0]);
    return ARIL_OK;
}

VJP(pad)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_pad_grad, c->g[0], c->x[0]));
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
OP(pad, .doc = "more elements around a tensor: a constant, its reflection, its edge, its other end",
   .onnx = "Pad", .min_in = 1, .max_in = 1, .n_out = 1, .flags = RAW | KEEPS_CHANNELS,
   .types = DT_WHOLE_BYTES, .infer = pad_infer, .ref = pad_ref, .vjp = pad_vjp,
   .saves = { LIKE(0) }, .samples = pad_samples, WITH_ATTRS(pad));

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
    const struct pad_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    memset(aril__ptr(out), 0, aril__dtype_bytes((aril_dtype)out->dtype, out->numel));
    if (out->numel == 0 || r->in[0]->numel == 0) return ARIL_OK;
    if (a->mode[0] == ARIL_PAD_CONSTANT || out->ndim == 0) {
        aril_tensor inner = *r->in[0], x = *out;
        if (common_part(&inner, &x, a)) aril__copy_elements(&x, &inner);
        return ARIL_OK;
    }
    pad_map m = { .ndim = out->ndim,
                  .padded = r->in[0],
                  .x = out,
                  .bytes = aril__dtypes[out->dtype].bits / 8,
                  .combiner = aril__combiner_of(r->type) };
    aril_status s = make_map(&m, a);
    if (s < 0) return s;
    int64_t grain = GRAIN / (r->in[0]->numel / (m.rows / m.batch));
    aril__parallel_for(m.rows / m.batch, grain > 1 ? grain : 1, unpad_batches, &m);
    free(m.from[0]);
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
   .flags = KEEPS_CHANNELS, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = pad_grad_infer, .ref = pad_grad_ref, .vjp = pad_grad_vjp, .samples = pad_grad_samples,
   WITH_ATTRS(pad));

/* ---- channels-last: the same, with the axes in memory order ---- */

static bool lies_last(const aril_tensor *t)
{
    return !aril__is_dense(t) && aril_is_channels_last(t);
}

const char *aril__pad_last_prepare(const aril__run *r, aril__plan *plan)
{
    (void)plan;
    bool last = lies_last(r->in[0]) && lies_last(r->out[0]);
    return last && r->in[0]->numel && r->out[0]->numel ? NULL : "not channels-last";
}

/* Axis k in memory order: samples, spatial axes, channels. */
static int lying_axis(int k, int ndim)
{
    return k == 0 ? 0 : k == ndim - 1 ? 1 : k + 1;
}

static aril_tensor as_it_lies(const aril_tensor *t)
{
    aril_tensor to = *t;
    for (int k = 0; k < t->ndim; k++) {
        to.dim[k] = t->dim[lying_axis(k, t->ndim)];
        to.stride[k] = t->stride[lying_axis(k, t->ndim)];
    }
    return to;
}

aril_status aril__pad_last(aril__run *r)
{
    const struct pad_attrs *a = r->attrs;
    struct pad_attrs moved = *a;
    int n = r->out[0]->ndim;
    for (int k = 0; k < n; k++) {
        moved.before[k] = a->before[lying_axis(k, n)];
        moved.after[k] = a->after[lying_axis(k, n)];
    }
    aril_tensor in = as_it_lies(r->in[0]), out = as_it_lies(r->out[0]);
    aril__run lying = *r;
    lying.attrs = &moved;
    lying.in = (aril_tensor *[]){ &in, NULL };
    lying.out = (aril_tensor *[]){ &out };
    return r->op->ref(&lying);
}

/* ---- public ---- */

aril_tensor *aril_pad(aril_tensor *x, aril_pads pads, aril_pad_opts opts)
{
    if (!x) return aril__null_tensor("pad");
    if (aril__is_poison(x)) return aril__pass_on(x);
    struct pad_attrs a = { .mode = { opts.mode }, .value = { opts.value } };
    if (opts.mode < ARIL_PAD_CONSTANT || opts.mode > ARIL_PAD_CIRCULAR)
        aril__fail(ARIL_ERR_ARG, "pad: there is no mode %d", (int)opts.mode);
    else if (pads.n < 0 || pads.n % 2 || pads.n > 2 * x->ndim)
        aril__fail(ARIL_ERR_ARG, "pad: %d numbers for %d dimensions; two for each of the last ones",
                   pads.n, x->ndim);
    else {
        for (int k = 0; k < pads.n; k++) {
            if (pads.at[k] < -(INT64_C(1) << 48) || pads.at[k] > INT64_C(1) << 48) {
                aril__fail(ARIL_ERR_ARG, "pad: by %lld", (long long)pads.at[k]);
                return aril__poison();
            }
            (k % 2 ? a.after : a.before)[x->ndim - 1 - k / 2] = pads.at[k];
        }
        return aril__op_with(&a, &aril__op_pad, x);
    }
    return aril__poison();
}
