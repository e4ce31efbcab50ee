/* Interpolation over one to three spatial dimensions. interpolate and interpolate_grad use the same
 * weights and are each other's gradients. */
#include "ops/vision/resample.h"

#include "aril/conv.h"
#include "aril/create.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"
#include "ops/vision/slide.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

ATTR_LIST(interpolate, INTERPOLATE_ATTRS)

/* ---- shapes ---- */

static aril_status result_shape(const aril__call *c, const aril_tensor *x, int64_t *dim)
{
    const struct interpolate_attrs *a = c->attrs;
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 3 || x->ndim > 5)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: expected [N,C] and 1 to 3 spatial dimensions, got %s", c->op->name,
                          aril__text(text, x));
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t in = x->dim[2 + i];
        dim[2 + i] = a->size[i] > 0 ? a->size[i]
                     : in < 0       ? -1
                                    : (int64_t)floor((double)in * a->scale[i]);
        if (in == 0 || (in > 0 && dim[2 + i] < 1))
            return aril__fail(ARIL_ERR_SHAPE, "%s: the output for %s would be empty", c->op->name,
                              aril__text(text, x));
    }
    return ARIL_OK;
}

static aril_status interpolate_infer(aril__call *c)
{
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[0].ndim = c->in[0]->ndim;
    return result_shape(c, c->in[0], c->out[0].dim);
}

static aril_status interpolate_grad_infer(aril__call *c)
{
    const aril_tensor *g = c->in[0], *x = c->in[1];
    int64_t dim[ARIL_MAX_DIMS];
    aril_status s = result_shape(c, x, dim);
    if (s < 0) return s;
    bool fits = g->ndim == x->ndim;
    for (int i = 0; i < g->ndim && fits; i++)
        fits = dim[i] < 0 || g->dim[i] < 0 || dim[i] == g->dim[i];
    if (!fits) {
        char want[ARIL__SHAPE_TEXT], got[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected a gradient of shape %s, got %s",
                          c->op->name, aril__shape_text(want, x->ndim, dim), aril__text(got, g));
    }
    c->out[0].dtype = (aril_dtype)g->dtype;
    c->out[0].ndim = x->ndim;
    memcpy(c->out[0].dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

/* ---- weights ---- */

/* The Keys cubic kernel at distance t. */
static double cubic(double t, double a)
{
    t = fabs(t);
    if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((t - 5) * t + 8) * t * a - 4 * a : 0;
}

static double triangle(double t)
{
    t = fabs(t);
    return t < 1 ? 1 - t : 0;
}

/* Input elements per output element. Nearest neighbors are computed in the precision of the
 * elements, as in PyTorch, so that ties round the same way. */
static double ratio_of(const struct interpolate_attrs *a, int i, int64_t in, int64_t out, bool wide)
{
    if (a->align_corners[0] && a->mode[0] >= ARIL_LINEAR)
        return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    if (a->scale[i] > 0) return wide ? 1 / a->scale[i] : (double)(float)(1 / a->scale[i]);
    return wide ? (double)in / (double)out : (double)((float)in / (float)out);
}

static int64_t clip(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void plain_taps(const struct interpolate_attrs *a, double ratio, int64_t o, int64_t in,
                       bool wide, aril__tap *t)
{
    double position = a->align_corners[0] ? ratio * (double)o : ratio * ((double)o + 0.5) - 0.5;
    double near = ratio * ((double)o + (a->mode[0] == ARIL_NEAREST_EXACT ? 0.5 : 0));
    if (!wide)
        near = (double)((float)ratio * ((float)o + (a->mode[0] == ARIL_NEAREST_EXACT ? 0.5f : 0)));
    if (a->mode[0] == ARIL_NEAREST || a->mode[0] == ARIL_NEAREST_EXACT) {
        t[0] = (aril__tap){ .pixel = clip((int64_t)floor(near), in), .weight = 1 };
    } else if (a->mode[0] == ARIL_LINEAR) {
        if (position < 0) position = 0;
        int64_t first = clip((int64_t)position, in);
        double part = position - (double)first;
        t[0] = (aril__tap){ .pixel = first, .weight = 1 - part };
        t[1] = (aril__tap){ .pixel = clip(first + 1, in), .weight = part };
    } else {
        double first = floor(position), part = position - first;
        for (int k = 0; k < 4; k++)
            t[k] = (aril__tap){ .pixel = clip((int64_t)first + k - 1, in),
                                .weight = cubic(part + 1 - k, -0.75) };
    }
}

/* Antialiasing: a kernel stretched to the spacing of the output elements, with weights normalized
 * to 1. */
static void smooth_taps(const struct interpolate_attrs *a, double ratio, int64_t o, int64_t in,
                        int width, aril__tap *t)
{
    double half = a->mode[0] == ARIL_LINEAR ? 1 : 2, stretch = ratio >= 1 ? ratio : 1;
    double center = ratio * ((double)o + 0.5), support = half * stretch, sum = 0;
    int64_t first = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
    if (first < 0) first = 0;
    if (end > in) end = in;
    for (int k = 0; k < width; k++) {
        double d = ((double)(first + k) - center + 0.5) / stretch;
        bool used = first + k < end;
        double w = !used ? 0 : a->mode[0] == ARIL_LINEAR ? triangle(d) : cubic(d, -0.5);
        t[k] = (aril__tap){ .pixel = used ? first + k : 0, .weight = w };
        sum += w;
    }
    for (int k = 0; k < width; k++) t[k].weight = sum != 0 ? t[k].weight / sum : 0;
}

/* Spatial dimension i of x, at place `at` of the table: sizes, and the number of taps. */
static double size_along(const aril__run *r, const aril_tensor *x, const aril_tensor *y, int i,
                         int at, aril__taps_table *t)
{
    const struct interpolate_attrs *a = r->attrs;
    t->in[at] = t->out[at] = t->width[at] = 1;
    if (i < 0) return 1;
    t->in[at] = x->dim[2 + i];
    t->out[at] = y->dim[2 + i];
    double ratio = ratio_of(a, i, t->in[at], t->out[at], r->type == ARIL_F64);
    int width = a->mode[0] < ARIL_LINEAR ? 1 : a->mode[0] == ARIL_LINEAR ? 2 : 4;
    bool smooth = a->antialias[0] && a->mode[0] >= ARIL_LINEAR;
    if (smooth) width = 2 * (int)ceil((ratio > 1 ? ratio : 1) * width / 2) + 1;
    t->width[at] = width;
    return ratio;
}

/* The weights along that dimension. */
static void taps_along(const aril__run *r, double ratio, int at, int64_t stride,
                       aril__taps_table *t)
{
    const struct interpolate_attrs *a = r->attrs;
    int64_t in = t->in[at], out = t->out[at], width = t->width[at];
    bool smooth = a->antialias[0] && a->mode[0] >= ARIL_LINEAR;
    aril__tap *taps = t->taps[at];
    for (int64_t o = 0; o < out; o++)
        if (smooth)
            smooth_taps(a, ratio, o, in, (int)width, taps + o * width);
        else
            plain_taps(a, ratio, o, in, r->type == ARIL_F64, taps + o * width);
    for (int64_t k = 0; k < out * width; k++) taps[k].at = taps[k].pixel * stride;
}

void aril__resample_taps(const aril__run *r, const aril_tensor *x, const aril_tensor *y,
                         aril__taps_table *t, void *memory)
{
    aril__tap *next = memory;
    for (int at = 0; at < 3; at++) {
        int i = at - (5 - x->ndim); /* of the spatial dimensions of x */
        double ratio = size_along(r, x, y, i, at, t);
        t->taps[at] = next;
        next += t->out[at] * t->width[at];
        if (i >= 0)
            taps_along(r, ratio, at, x->stride[2 + i], t);
        else
            *t->taps[at] = (aril__tap){ .weight = 1 };
    }
}

void aril__resample_widths(const aril__run *r, const aril_tensor *x, const aril_tensor *y,
                           int width[3])
{
    aril__taps_table t;
    for (int at = 0; at < 3; at++) size_along(r, x, y, at - (5 - x->ndim), at, &t);
    memcpy(width, t.width, sizeof t.width);
}

size_t aril__resample_scratch(const aril__run *r, const aril_tensor *x, const aril_tensor *y)
{
    aril__taps_table t;
    size_t n = 0;
    for (int at = 0; at < 3; at++) {
        size_along(r, x, y, at - (5 - x->ndim), at, &t);
        n += (size_t)(t.out[at] * t.width[at]);
    }
    return n * sizeof(aril__tap);
}

/* ---- references ---- */

/* The k-th of the elements that element i of y is a weighted sum of: its weight, and its index
 * among all of x. */
static double weight_of(const aril__taps_table *t, int64_t i, int k, int64_t *index)
{
    double weight = 1;
    int64_t size = 1;
    *index = 0;
    for (int d = 2; d >= 0; d--) {
        const aril__tap *tap = &t->taps[d][i % t->out[d] * t->width[d] + k % t->width[d]];
        weight *= tap->weight;
        *index += tap->pixel * size;
        size *= t->in[d];
        i /= t->out[d];
        k /= t->width[d];
    }
    *index += i * size; /* i is now the number of the image */
    return weight;
}

/* y = the weighted sum of x */
static aril_status interpolate_ref(aril__run *r)
{
    aril__taps_table t;
    aril__resample_taps(r, r->in[0], r->out[0], &t, r->workspace);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        double sum = 0;
        for (int k = 0; k < t.width[0] * t.width[1] * t.width[2]; k++) {
            int64_t from;
            double weight = weight_of(&t, i, k, &from);
            if (weight != 0) sum += weight * aril__get(r->in[0], from);
        }
        aril__put(r->out[0], i, sum);
    }
    return ARIL_OK;
}

static size_t interpolate_scratch(const aril__run *r)
{
    return aril__resample_scratch(r, r->in[0], r->out[0]);
}

/* Each y gives its gradient, by weight, to the elements of x that it is the sum of. */
static aril_status interpolate_grad_ref(aril__run *r)
{
    const aril_tensor *g = r->in[0];
    aril_tensor *x = r->out[0];
    aril__taps_table t;
    double *sums = r->workspace;
    aril__resample_taps(r, x, g, &t, sums + x->numel);
    for (int64_t i = 0; i < x->numel; i++) sums[i] = 0;
    for (int64_t i = 0; i < g->numel; i++)
        for (int k = 0; k < t.width[0] * t.width[1] * t.width[2]; k++) {
            int64_t to;
            double weight = weight_of(&t, i, k, &to);
            if (weight != 0) sums[to] += weight * aril__get(g, i);
        }
    for (int64_t i = 0; i < x->numel; i++) aril__put(x, i, sums[i]);
    return ARIL_OK;
}

/* A sum for each element of x, and the taps. */
static size_t interpolate_grad_scratch(const aril__run *r)
{
    const aril_tensor *x = r->out[0];
    return (size_t)x->numel * sizeof(double) + aril__resample_scratch(r, x, r->in[0]);
}

/* ---- op table rows ---- */

#define KIND(mode_, align_, smooth_, ...)               \
    &(const struct interpolate_attrs)                   \
    {                                                   \
        { mode_ }, { align_ }, { smooth_ }, __VA_ARGS__ \
    }

VJP(interpolate)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_interpolate_grad, c->g[0], c->x[0]));
}

static const aril__sample interpolate_samples[] = {
    { .in = { "[2,2,3]" }, .attrs = KIND(ARIL_NEAREST, 0, 0, { 5 }, { 0 }), .flags = SAMPLE_BATCH },
    { .in = { "[2,2,3]" }, .attrs = KIND(ARIL_LINEAR, 1, 0, { 5 }, { 0 }), .flags = SAMPLE_BATCH },
    { .in = { "[1,2,5,4]" }, .attrs = KIND(ARIL_NEAREST_EXACT, 0, 0, { 3, 7 }, { 0 }) },
    { .in = { "[2,2,3,4]" },
      .attrs = KIND(ARIL_LINEAR, 0, 0, { 0 }, { 2, 1.5 }),
      .flags = SAMPLE_BATCH },
    { .in = { "[1,2,4,4]" },
      .attrs = KIND(ARIL_CUBIC, 0, 0, { 6, 3 }, { 0 }),
      .flags = SAMPLE_BATCH },
    { .in = { "[1,1,4,3]" }, .attrs = KIND(ARIL_CUBIC, 1, 0, { 5, 6 }, { 0 }) },
    { .in = { "[1,2,7,6]" }, .attrs = KIND(ARIL_LINEAR, 0, 1, { 3, 4 }, { 0 }) },
    { .in = { "[1,1,7,6]" }, .attrs = KIND(ARIL_CUBIC, 0, 1, { 3, 8 }, { 0 }) },
    { .in = { "[1,2,2,3,2]" },
      .attrs = KIND(ARIL_LINEAR, 0, 0, { 3, 4, 5 }, { 0 }),
      .flags = SAMPLE_BATCH },
    { .in = { "[0,2,3]" }, .attrs = KIND(ARIL_LINEAR, 1, 0, { 5 }, { 0 }) },
    SAMPLE_END
};
OP(interpolate, .doc = "resizes by nearest, linear or cubic interpolation", .onnx = "Resize",
   .min_in = 1, .max_in = 1, .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT,
   .infer = interpolate_infer, .ref = interpolate_ref, .workspace = interpolate_scratch,
   .vjp = interpolate_vjp, .saves = { LIKE(0) }, .samples = interpolate_samples,
   WITH_ATTRS(interpolate));

VJP(interpolate_grad)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_interpolate, c->g[0]));
}

static const aril__sample interpolate_grad_samples[] = {
    { .in = { "[2,2,5]", "[2,2,3]" },
      .attrs = KIND(ARIL_LINEAR, 1, 0, { 5 }, { 0 }),
      .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,7]", "[1,2,5,4]" }, .attrs = KIND(ARIL_NEAREST, 0, 0, { 3, 7 }, { 0 }) },
    { .in = { "[1,2,6,3]", "[1,2,4,4]" }, .attrs = KIND(ARIL_CUBIC, 0, 0, { 6, 3 }, { 0 }) },
    SAMPLE_END
};
OP(interpolate_grad, .doc = "gradient of interpolate, in the shape of the second input",
   .min_in = 2, .max_in = 2, .n_out = 1, .shape_only = IN(1),
   .flags = STRIDED | KEEPS_CHANNELS | GRADIENT, .types = DT_FLOAT, .infer = interpolate_grad_infer,
   .ref = interpolate_grad_ref, .workspace = interpolate_grad_scratch, .vjp = interpolate_grad_vjp,
   .samples = interpolate_grad_samples, WITH_ATTRS(interpolate));

/* ---- public ---- */

aril_tensor *aril_interpolate(aril_tensor *x, aril_interpolate_opts opts)
{
    if (!x) return aril__null_tensor("interpolate");
    if (aril__is_poison(x)) return aril__pass_on(x);
    char text[ARIL__SHAPE_TEXT];
    int n = x->ndim - 2;
    struct interpolate_attrs a = { .mode = { opts.mode } };
    if (n < 1 || n > 3) {
        aril__fail(ARIL_ERR_SHAPE,
                   "interpolate: expected [N,C] and 1 to 3 spatial dimensions, got %s",
                   aril__text(text, x));
        return aril__poison();
    }
    if ((int)opts.mode < ARIL_NEAREST || opts.mode > ARIL_AREA ||
        (opts.align_corners && opts.mode != ARIL_LINEAR && opts.mode != ARIL_CUBIC) ||
        (opts.antialias &&
         (opts.align_corners || opts.mode < ARIL_LINEAR || opts.mode == ARIL_AREA))) {
        aril__fail(ARIL_ERR_ARG, "interpolate: align_corners and antialias need linear or cubic "
                                 "mode, and exclude each other");
        return aril__poison();
    }
    /* Kernels vectorize along channels or along positions. */
    if (x->storage && !aril__is_dense(x) && aril__is_samples_last(x)) x = aril_channels_last(x);
    a.align_corners[0] = opts.align_corners;
    a.antialias[0] = opts.antialias;
    for (int i = 0; i < n; i++) {
        double scale = opts.scale[i] != 0 ? opts.scale[i] : opts.scale[0];
        a.size[i] = opts.size[i];
        a.scale[i] = opts.size[i] ? 0 : scale;
        if (opts.size[i] < 0 || (!opts.size[i] && !(scale > 0 && scale < 1e6))) {
            aril__fail(
                ARIL_ERR_ARG,
                "interpolate: expected a size or a scale above 0 for each spatial dimension of %s",
                aril__text(text, x));
            return aril__poison();
        }
    }
    if (opts.mode != ARIL_AREA) return aril__op_with(&a, &aril__op_interpolate, x);
    aril_shape size = { .ndim = n };
    for (int i = 0; i < n; i++) {
        size.dim[i] = a.size[i];
        if (!a.size[i] && x->dim[2 + i] < 0) {
            aril__fail(ARIL_ERR_SHAPE,
                       "interpolate: area mode with a scale needs known sizes, got %s",
                       aril__text(text, x));
            return aril__poison();
        }
        if (!a.size[i]) size.dim[i] = (int64_t)floor((double)x->dim[2 + i] * a.scale[i]);
    }
    return n == 1   ? aril_adaptive_avg_pool1d(x, size)
           : n == 2 ? aril_adaptive_avg_pool2d(x, size)
                    : aril_adaptive_avg_pool3d(x, size);
}
