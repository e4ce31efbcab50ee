/* The short-time Fourier transform: transforms frames of a signal. Framing and overlap-add are each
 * other's gradients. */
#include "ops/signal/fft.h"

#include "aril/create.h"
#include "aril/fft.h"
#include "aril/math.h"
#include "aril/view.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/autocast.h"
#include "ops/table/element.h"
#include "ops/shape/like.h"
#include "ops/table/sample.h"
#include "ops/shape/view.h"
#include "ops/shape/view_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_frames_like, aril__op_overlap_add;

ATTR_LIST(frames, FRAMES_ATTRS)

/* ---- references ---- */

static aril_status frames_ref(aril__run *r)
{
    aril__frames f = aril__frames_of(r->attrs, r->out[0], r->in[0]);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t frame = i / f.size, row = frame / f.count;
        int64_t from = aril__frames_at(&f, frame % f.count, i % f.size);
        aril__put(r->out[0], i, from < 0 ? 0 : aril__get(r->in[0], row * f.length + from));
    }
    return ARIL_OK;
}

/* Each position of a signal is the sum of all elements of frames that lie there. */
static aril_status overlap_add_ref(aril__run *r)
{
    aril__frames f = aril__frames_of(r->attrs, r->in[0], r->out[0]);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t row = i / f.length, all = f.count * f.size;
        double sum = 0;
        for (int64_t k = 0; k < all; k++)
            if (aril__frames_at(&f, k / f.size, k % f.size) == i % f.length)
                sum += aril__get(r->in[0], row * all + k);
        aril__put(r->out[0], i, sum);
    }
    return ARIL_OK;
}

/* ---- frames ---- */

static aril_status frames_infer(aril__call *c)
{
    const struct frames_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    if (x->ndim < 1 || x->ndim >= ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "frames: needs 1 to %d dimensions, got %d",
                          ARIL_MAX_DIMS - 1, x->ndim);
    if (a->size[0] < 1 || a->hop[0] < 1 || a->pad[0] < 0)
        return aril__fail(ARIL_ERR_ARG,
                          "frames: size and hop must be at least 1 and padding at least 0, got "
                          "%lld, %lld and %lld",
                          (long long)a->size[0], (long long)a->hop[0], (long long)a->pad[0]);
    int64_t n = x->dim[x->ndim - 1], padded = n + 2 * a->pad[0];
    if (n >= 0 && (padded < a->size[0] || (a->reflect[0] && a->pad[0] >= n)))
        return aril__fail(ARIL_ERR_SHAPE,
                          "frames: a signal of length %lld is too short for frames of length %lld "
                          "and padding %lld",
                          (long long)n, (long long)a->size[0], (long long)a->pad[0]);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim + 1;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    o->dim[x->ndim - 1] = n < 0 ? -1 : 1 + (padded - a->size[0]) / a->hop[0];
    o->dim[x->ndim] = a->size[0];
    return ARIL_OK;
}

VJP(frames)
{
    struct frames_attrs a = *(const struct frames_attrs *)c->attrs;
    a.length[0] = -1;
    if (c->g[0]) GRAD(0, aril__op_with(&a, &aril__op_overlap_add, c->g[0], c->x[0]));
}

static const aril__sample frames_samples[] = {
    { .in = { "[2,9]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 2 }, { 0 }, { 0 }, { -1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[7]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 3 }, { 2 }, { 1 }, { -1 } } },
    { .in = { "[2,5]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 1 }, { 2 }, { 0 }, { -1 } } },
    SAMPLE_END
};
OP(frames, .doc = "overlapping frames of the last axis", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED, .types = DT_FLOAT, .infer = frames_infer, .ref = frames_ref, .vjp = frames_vjp,
   .saves = { LIKE(0) }, .samples = frames_samples, WITH_ATTRS(frames));

/* ---- overlap_add ---- */

static aril_status overlap_add_infer(aril__call *c)
{
    const struct frames_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *like = c->n_in > 1 ? c->in[1] : NULL;
    aril__meta *o = &c->out[0];
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 2 || (x->dim[x->ndim - 1] >= 0 && x->dim[x->ndim - 1] != a->size[0]))
        return aril__fail(ARIL_ERR_SHAPE, "overlap_add: needs frames [...,n,%lld], got %s",
                          (long long)a->size[0], aril__text(text, x));
    int64_t count = x->dim[x->ndim - 2];
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim - 1;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *x->dim);
    if (like)
        o->dim[o->ndim - 1] = like->dim[like->ndim - 1];
    else if (a->length[0] > 0)
        o->dim[o->ndim - 1] = a->length[0];
    else
        o->dim[o->ndim - 1] = count < 0 ? -1 : (count - 1) * a->hop[0] + a->size[0] - 2 * a->pad[0];
    if (count == 0 || (o->dim[o->ndim - 1] < 0 && count > 0 && !like))
        return aril__fail(ARIL_ERR_SHAPE, "overlap_add: frames %s give an empty signal",
                          aril__text(text, x));
    return ARIL_OK;
}

VJP(overlap_add)
{
    /* Frames of a truncated result extend past its end: they are 0 there. */
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_frames_like, c->g[0], c->x[0]));
}

static const aril__sample overlap_add_samples[] = {
    { .in = { "[2,3,4]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 2 }, { 0 }, { 0 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[3,4]", "[7]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 3 }, { 2 }, { 1 }, { -1 } } },
    { .in = { "[3,4]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 2 }, { 2 }, { 0 }, { 3 } } },
    SAMPLE_END
};
OP(overlap_add, .doc = "sum of overlapping frames: the inverse of frames", .min_in = 1, .max_in = 2,
   .n_out = 1, .shape_only = IN(1), .flags = STRIDED, .types = DT_FLOAT, .infer = overlap_add_infer,
   .ref = overlap_add_ref, .vjp = overlap_add_vjp, .saves = { LIKE(0) },
   .samples = overlap_add_samples, WITH_ATTRS(frames));

/* ---- frames_like: as many frames as another tensor has ---- */

static aril_status frames_like_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0], *like = c->in[1];
    aril__meta *o = &c->out[0];
    if (x->ndim < 1 || like->ndim != x->ndim + 1)
        return aril__fail(ARIL_ERR_SHAPE, "frames_like: %d dimensions for frames of %d", x->ndim,
                          like->ndim);
    bool fits =
        aril__size_fits(like->dim[x->ndim], ((const struct frames_attrs *)c->attrs)->size[0]);
    for (int d = 0; d < x->ndim - 1 && fits; d++) fits = aril__size_fits(x->dim[d], like->dim[d]);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "frames_like: %s does not have frames %s",
                          aril__text(a, x), aril__text(b, like));
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = like->ndim;
    memcpy(o->dim, like->dim, (size_t)like->ndim * sizeof *like->dim);
    return ARIL_OK;
}

VJP(frames_like)
{
    struct frames_attrs a = *(const struct frames_attrs *)c->attrs;
    a.length[0] = -1;
    if (c->g[0]) GRAD(0, aril__op_with(&a, &aril__op_overlap_add, c->g[0], c->x[0]));
}

static const aril__sample frames_like_samples[] = {
    { .in = { "[2,9]", "[2,3,4]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 2 }, { 0 }, { 0 }, { -1 } } },
    { .in = { "[3]", "[3,4]" },
      .attrs = &(const struct frames_attrs){ { 4 }, { 2 }, { 2 }, { 0 }, { -1 } } },
    SAMPLE_END
};
OP(frames_like, .doc = "overlapping frames of the last axis, as many as another tensor has",
   .min_in = 2, .max_in = 2, .n_out = 1, .shape_only = IN(1), .flags = STRIDED, .types = DT_FLOAT,
   .infer = frames_like_infer, .ref = frames_ref, .vjp = frames_like_vjp, .saves = { LIKE(0) },
   .samples = frames_like_samples, WITH_ATTRS(frames));

/* ---- public ---- */

/* Options with their defaults filled in; `window` is [n_fft], or NULL for ones. */
typedef struct plan {
    int64_t n, hop, pad;
    aril_tensor *window;
    aril_fft_norm norm;
} plan;

static aril_status make_plan(const char *what, const aril_tensor *x, int64_t n_fft,
                             aril_stft_opts o, plan *p)
{
    int64_t win = o.win_length ? o.win_length : n_fft;
    *p = (plan){ .n = n_fft,
                 .hop = o.hop ? o.hop : n_fft / 4,
                 .pad = o.no_center ? 0 : n_fft / 2,
                 .window = o.window,
                 .norm = o.normalized ? ARIL_FFT_ORTHO : ARIL_FFT_BACKWARD };
    if (n_fft < 1 || p->hop < 1 || win < 1 || win > n_fft || o.length < 0)
        return aril__fail(
            ARIL_ERR_ARG,
            "%s: n_fft %lld and hop %lld must be at least 1, win_length %lld from 1 to n_fft", what,
            (long long)n_fft, (long long)p->hop, (long long)win);
    if (!o.window && win < n_fft)
        p->window = aril_ones(ARIL_SHAPE(win), (aril_dtype)x->dtype, aril_device_of(x));
    if (!p->window) return ARIL_OK;
    if (aril__is_poison(p->window)) return aril_tensor_status(p->window);
    char text[ARIL__SHAPE_TEXT];
    if (p->window->ndim != 1 || p->window->dim[0] != win)
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs a window [%lld], got %s", what, (long long)win,
                          aril__text(text, p->window));
    if (win < n_fft) { /* centered in zeros */
        int64_t left = (n_fft - win) / 2;
        struct slice_attrs part = { { 0 }, { left }, { left + win }, { 1 } };
        aril_tensor *zeros =
            aril_zeros(ARIL_SHAPE(n_fft), (aril_dtype)p->window->dtype, aril_device_of(p->window));
        p->window = aril__view_write(zeros, p->window, &aril__op_slice, &part);
    }
    return aril_tensor_status(p->window);
}

static aril_tensor *refuse(const char *what, aril_tensor *x)
{
    if (!x) return aril__null_tensor(what);
    return aril__is_poison(x) ? aril__pass_on(x) : NULL;
}

aril_tensor *aril_stft(aril_tensor *x, int64_t n_fft, aril_stft_opts opts)
{
    aril_tensor *bad = refuse("stft", x);
    if (bad) return bad;
    ARIL_SCOPE;
    AUTOCAST_AS(CAST_F32, &x, &opts.window);
    plan p;
    if (make_plan("stft", x, n_fft, opts, &p) < 0) return aril_escape(aril__poison());
    struct frames_attrs a = { { p.n }, { p.hop }, { p.pad }, { p.pad && !opts.zero_pad }, { -1 } };
    aril_tensor *f = aril__op_with(&a, &aril__op_frames, x); /* [...,frames,n] */
    if (p.window) f = aril_mul(f, p.window);
    if (opts.two_sided) {
        struct resize_axis_attrs pair = { { 1 }, { 2 } }; /* an imaginary part of 0 */
        f = aril__op_with(&pair, &aril__op_resize_axis, aril_unsqueeze(f, -1));
        f = aril_fft(f, (aril_fft_opts){ .norm = p.norm });
    } else {
        f = aril_rfft(f, (aril_fft_opts){ .norm = p.norm });
    }
    return aril_escape(aril_transpose(f, -3, -2));
}

/* Fails unless every element of t is above a tiny threshold. Skipped while values are unknown. */
static aril_status check_envelope(aril_tensor *t)
{
    if (!t->storage) return ARIL_OK;
    ARIL_NO_GRAD;
    double *v = aril__malloc((size_t)(t->numel ? t->numel : 1) * sizeof *v);
    if (!v) return aril__fail(ARIL_ERR_MEMORY, "istft: out of memory");
    aril_status s = aril_read(aril_cast(aril_to(t, aril_cpu()), ARIL_F64), v);
    for (int64_t i = 0; i < t->numel && s == ARIL_OK; i++)
        if (!(v[i] > 1e-11))
            s = aril__fail(ARIL_ERR_NUMBER,
                           "istft: the windows sum to zero at sample %lld; choose a smaller hop or "
                           "another window",
                           (long long)i);
    free(v);
    return s;
}

aril_tensor *aril_istft(aril_tensor *x, int64_t n_fft, aril_stft_opts opts)
{
    aril_tensor *bad = refuse("istft", x);
    if (bad) return bad;
    int64_t bins = opts.two_sided ? n_fft : n_fft / 2 + 1;
    ARIL_SCOPE;
    plan p;
    if (make_plan("istft", x, n_fft, opts, &p) < 0) return aril_escape(aril__poison());
    if (x->ndim < 3 || (x->dim[x->ndim - 3] >= 0 && x->dim[x->ndim - 3] != bins)) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "istft: needs [...,%lld,frames,2], got %s", (long long)bins,
                   aril__text(text, x));
        return aril_escape(aril__poison());
    }
    int64_t count = x->dim[x->ndim - 2];
    aril_tensor *f = aril_transpose(x, -3, -2); /* [...,frames,bins,2] */
    if (opts.two_sided)                         /* the other half is redundant */
        f = aril_slice(f, -2, 0, n_fft / 2 + 1, 1);
    f = aril_irfft(f, (aril_fft_opts){ .n = n_fft, .norm = p.norm });
    aril_tensor *square = p.window ? aril_square(p.window) : NULL;
    if (p.window)
        f = aril_mul(f, p.window);
    else
        square = aril_ones(ARIL_SHAPE(n_fft), (aril_dtype)x->dtype, aril_device_of(x));
    /* Frames may end before the requested length: the rest is 0. */
    int64_t length = opts.length, covered = p.n + p.hop * (count - 1) - p.pad;
    if (length && count >= 0 && covered < length) length = covered;
    struct frames_attrs a = { { p.n }, { p.hop }, { p.pad }, { 0 }, { length } };
    aril_tensor *sum = aril__op_with(&a, &aril__op_overlap_add, f);
    aril_tensor *weight =
        aril__op_with(&a, &aril__op_overlap_add, aril_contiguous(aril__expand_like(square, f)));
    if (aril_tensor_status(weight) == ARIL_OK && check_envelope(weight) < 0)
        return aril_escape(aril__poison());
    aril_tensor *y = aril_div(sum, weight);
    if (length != opts.length) {
        struct resize_axis_attrs full = { { 1 }, { opts.length } };
        y = aril__op_with(&full, &aril__op_resize_axis, y);
    }
    return aril_escape(y);
}
