/* Interpolation over one to three spatial dimensions. Every mode is linear and separable: along a
 * dimension each output element is a weighted sum of a few input elements. interpolate and
 * interpolate_grad use the same weights and are each other's gradients. */
#include "aril/ops.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"
#include "ops/vision/slide.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* size: of the result; 0: derived from `scale`. A nonzero `scale` also determines the sampling
 * positions. */
#define INTERPOLATE_ATTRS(A)                          \
    A(interpolate, I64, 1, mode, 0, "mode")           \
    A(interpolate, I64, 1, align_corners, 0, NULL)    \
    A(interpolate, I64, 1, antialias, 0, "antialias") \
    A(interpolate, I64, 3, size, 0, NULL) A(interpolate, F64, 3, scale, 0, NULL)
ATTRS(interpolate, INTERPOLATE_ATTRS)
ATTR_LIST(interpolate, INTERPOLATE_ATTRS)

/* ---- shapes ---- */

static aril_status result_shape(const aril__call *c, const aril_tensor *x, int64_t *dim)
{
    const struct interpolate_attrs *a = c->attrs;
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim < 3 || x->ndim > 5)
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs [N,C] and 1 to 3 spatial sizes, got %s",
                          c->op->name, aril__text(text, x));
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t in = x->dim[2 + i];
        dim[2 + i] = a->size[i] > 0 ? a->size[i]
                     : in < 0       ? -1
                                    : (int64_t)floor((double)in * a->scale[i]);
        if (in == 0 || (in > 0 && dim[2 + i] < 1))
            return aril__fail(ARIL_ERR_SHAPE, "%s: nothing to make of %s", c->op->name,
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
        return aril__fail(ARIL_ERR_SHAPE, "%s: a gradient of shape %s is needed, got %s",
                          c->op->name, aril__shape_text(want, x->ndim, dim), aril__text(got, g));
    }
    c->out[0].dtype = (aril_dtype)g->dtype;
    c->out[0].ndim = x->ndim;
    memcpy(c->out[0].dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    return ARIL_OK;
}

/* ---- weights ---- */

typedef struct tap {
    int64_t at;    /* offset of the element along its dimension */
    int64_t pixel; /* index of the element */
    double weight;
} tap;

enum {
    LANES = 512, /* channels processed at a time */
    MIXED = 128, /* maximum pixels per output pixel if channels are contiguous */
};

typedef struct job {
    int64_t x_dim[5], y_dim[5], x_stride[5], y_stride[5];
    void *x, *y;
    aril_dtype type;
    bool staged;  /* f16 or bf16 */
    int width[3]; /* taps per output element; unused ones have weight 0 */
    tap *taps[3];
    int32_t *places; /* the same for the last dimension: [taps, elements] */
    double *weights;
    int64_t block; /* channels per unit of work */
    _Atomic bool out_of_memory;
} job;

/* The input pixels of one output pixel. */
typedef struct mix {
    int n;
    int64_t at[MIXED];
    double weight[MIXED];
} mix;

static const tap *taps_of(const job *j, int axis, int64_t o)
{
    return j->taps[axis] + o * j->width[axis];
}

/* The pixels of output position o: by offset, or by index. */
static inline void mix_all(const job *j, const int64_t *o, mix *m, bool by_number)
{
    const tap *t0 = taps_of(j, 0, o[2]), *t1 = taps_of(j, 1, o[3]), *t2 = taps_of(j, 2, o[4]);
    m->n = 0;
    for (int a = 0; a < j->width[0]; a++)
        for (int b = 0; b < j->width[1]; b++)
            for (int e = 0; e < j->width[2]; e++) {
                double weight = t0[a].weight * t1[b].weight * t2[e].weight;
                if (weight == 0) continue;
                m->weight[m->n] = weight;
                m->at[m->n++] =
                    by_number
                        ? (t0[a].pixel * j->x_dim[3] + t1[b].pixel) * j->x_dim[4] + t2[e].pixel
                        : t0[a].at + t1[b].at + t2[e].at;
            }
}

static void mix_taps(const job *j, const int64_t *o, mix *m)
{
    mix_all(j, o, m, false);
}

static void mix_pixels(const job *j, const int64_t *o, mix *m)
{
    mix_all(j, o, m, true);
}

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
                       bool wide, tap *t)
{
    double place = a->align_corners[0] ? ratio * (double)o : ratio * ((double)o + 0.5) - 0.5;
    double near = ratio * ((double)o + (a->mode[0] == ARIL_NEAREST_EXACT ? 0.5 : 0));
    if (!wide)
        near = (double)((float)ratio * ((float)o + (a->mode[0] == ARIL_NEAREST_EXACT ? 0.5f : 0)));
    if (a->mode[0] == ARIL_NEAREST || a->mode[0] == ARIL_NEAREST_EXACT) {
        t[0] = (tap){ .pixel = clip((int64_t)floor(near), in), .weight = 1 };
    } else if (a->mode[0] == ARIL_LINEAR) {
        if (place < 0) place = 0;
        int64_t first = clip((int64_t)place, in);
        double part = place - (double)first;
        t[0] = (tap){ .pixel = first, .weight = 1 - part };
        t[1] = (tap){ .pixel = clip(first + 1, in), .weight = part };
    } else {
        double first = floor(place), part = place - first;
        for (int k = 0; k < 4; k++)
            t[k] = (tap){ .pixel = clip((int64_t)first + k - 1, in),
                          .weight = cubic(part + 1 - k, -0.75) };
    }
}

/* Antialiasing: a kernel stretched to the spacing of the output elements, with weights normalized
 * to 1. */
static void smooth_taps(const struct interpolate_attrs *a, double ratio, int64_t o, int64_t in,
                        int width, tap *t)
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
        t[k] = (tap){ .pixel = used ? first + k : 0, .weight = w };
        sum += w;
    }
    for (int k = 0; k < width; k++) t[k].weight = sum != 0 ? t[k].weight / sum : 0;
}

static aril_status make_taps(const aril__run *r, job *j, int ndim)
{
    const struct interpolate_attrs *a = r->attrs;
    int lead = 5 - ndim;
    bool wide = r->type == ARIL_F64;
    for (int i = 0; i < 3; i++) {
        int64_t in = j->x_dim[2 + i], out = j->y_dim[2 + i];
        bool there = i >= lead;
        double ratio = there ? ratio_of(a, i - lead, in, out, wide) : 1;
        bool smooth = there && a->antialias[0] && a->mode[0] >= ARIL_LINEAR;
        j->width[i] = !there || a->mode[0] < ARIL_LINEAR ? 1 : a->mode[0] == ARIL_LINEAR ? 2 : 4;
        if (smooth) j->width[i] = 2 * (int)ceil((ratio > 1 ? ratio : 1) * j->width[i] / 2) + 1;
        j->taps[i] = aril__malloc((size_t)out * (size_t)j->width[i] * sizeof(tap));
        if (!j->taps[i]) return aril__fail(ARIL_ERR_MEMORY, "%s: no memory", r->op->name);
        for (int64_t o = 0; o < out; o++) {
            tap *t = j->taps[i] + o * j->width[i];
            if (!there)
                t[0] = (tap){ .weight = 1 };
            else if (smooth)
                smooth_taps(a, ratio, o, in, j->width[i], t);
            else
                plain_taps(a, ratio, o, in, wide, t);
            for (int k = 0; k < j->width[i]; k++) t[k].at = t[k].pixel * j->x_stride[2 + i];
        }
    }
    return ARIL_OK;
}

/* The taps of the last dimension again, transposed to vectorize along it. */
static aril_status make_places(const aril__run *r, job *j)
{
    int64_t n = j->y_dim[4] * j->width[2];
    j->places = aril__malloc((size_t)n * sizeof *j->places);
    j->weights = aril__malloc((size_t)n * sizeof *j->weights);
    if (!j->places || !j->weights) return aril__fail(ARIL_ERR_MEMORY, "%s: no memory", r->op->name);
    for (int64_t o = 0; o < j->y_dim[4]; o++)
        for (int e = 0; e < j->width[2]; e++) {
            j->places[e * j->y_dim[4] + o] = (int32_t)taps_of(j, 2, o)[e].pixel;
            j->weights[e * j->y_dim[4] + o] = taps_of(j, 2, o)[e].weight;
        }
    return ARIL_OK;
}

/* ---- kernels ---- */

#define TEMPLATE "ops/vision/resample.inc"
#include "ops/vector/each_target.inc"

static void put(const aril_tensor *t, int64_t *dim, int64_t *stride)
{
    int lead = 5 - t->ndim;
    for (int i = 0; i < 5; i++) {
        bool there = i < 2 || i >= 2 + lead;
        int from = i < 2 ? i : i - lead;
        dim[i] = there ? t->dim[from] : 1;
        stride[i] = there ? t->stride[from] : 0;
    }
}

static int64_t grain(int64_t work)
{
    enum { LEAST = 8 * 1024 };
    return work > 0 && work < LEAST ? LEAST / work : 1;
}

static void run_job(job *j, bool back)
{
    enum { FEW = 8, LINE = 16 }; /* samples that keep threads busy; channels of a cache line */
    bool wide = j->type == ARIL_F64;
    int64_t channels = j->x_dim[1], planes = j->x_dim[0] * channels;
    int64_t area = j->y_dim[2] * j->y_dim[3] * j->y_dim[4];
    bool last = channels > 1 && j->x_stride[1] == 1 &&
                (int64_t)j->width[0] * j->width[1] * j->width[2] <= MIXED;
    if (last && back) {
        j->block = j->x_dim[0] >= FEW ? channels : LINE;
        int64_t blocks = (channels + j->block - 1) / j->block;
        aril__parallel_for(j->x_dim[0] * blocks, grain(area * j->block),
                           ARIL__PICK(give_last, wide), j);
    } else if (last) {
        aril__parallel_for(j->y_dim[0] * j->y_dim[2] * j->y_dim[3], grain(j->y_dim[4] * channels),
                           ARIL__PICK(read_last, wide), j);
    } else if (back) {
        aril__parallel_for(planes, grain(area), ARIL__PICK(give_planes, wide), j);
    } else {
        aril__parallel_for(planes * j->y_dim[2] * j->y_dim[3], grain(j->y_dim[4]),
                           ARIL__PICK(read_rows, wide), j);
    }
}

static aril_status run(aril__run *r, const aril_tensor *x, const aril_tensor *y, bool back)
{
    job j = { .x = aril__ptr(x),
              .y = aril__ptr(y),
              .type = r->type,
              .staged = r->type == ARIL_F16 || r->type == ARIL_BF16 };
    if (r->out[0]->numel == 0) return ARIL_OK;
    put(x, j.x_dim, j.x_stride);
    put(y, j.y_dim, j.y_stride);
    if (j.x_dim[4] > INT32_MAX)
        return aril__fail(ARIL_ERR_SHAPE, "%s: rows of more than 2^31 elements", r->op->name);
    aril_status s = make_taps(r, &j, x->ndim);
    if (s == ARIL_OK) s = make_places(r, &j);
    if (s == ARIL_OK) run_job(&j, back);
    if (j.out_of_memory) s = aril__fail(ARIL_ERR_MEMORY, "%s: no memory", r->op->name);
    for (int i = 0; i < 3; i++) free(j.taps[i]);
    free(j.places);
    free(j.weights);
    return s;
}

static aril_status interpolate_ref(aril__run *r)
{
    return run(r, r->in[0], r->out[0], false);
}

static aril_status interpolate_grad_ref(aril__run *r)
{
    return run(r, r->out[0], r->in[0], true);
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
OP(interpolate, .doc = "another size: nearest neighbours, linear or cubic", .onnx = "Resize",
   .min_in = 1, .max_in = 1, .n_out = 1, .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT,
   .infer = interpolate_infer, .ref = interpolate_ref, .vjp = interpolate_vjp, .saves = { LIKE(0) },
   .samples = interpolate_samples, WITH_ATTRS(interpolate));

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
OP(interpolate_grad, .doc = "the gradient of interpolate, in the shape of the second input",
   .min_in = 2, .max_in = 2, .n_out = 1, .shape_only = IN(1), .flags = STRIDED | KEEPS_CHANNELS,
   .types = DT_FLOAT, .infer = interpolate_grad_infer, .ref = interpolate_grad_ref,
   .vjp = interpolate_grad_vjp, .samples = interpolate_grad_samples, WITH_ATTRS(interpolate));

/* ---- public ---- */

aril_tensor *aril_interpolate(aril_tensor *x, aril_interpolate_opts opts)
{
    if (!x) return aril__null_tensor("interpolate");
    if (aril__is_poison(x)) return aril__pass_on(x);
    char text[ARIL__SHAPE_TEXT];
    int n = x->ndim - 2;
    struct interpolate_attrs a = { .mode = { opts.mode } };
    if (n < 1 || n > 3) {
        aril__fail(ARIL_ERR_SHAPE, "interpolate: needs [N,C] and 1 to 3 spatial sizes, got %s",
                   aril__text(text, x));
        return aril__poison();
    }
    if ((int)opts.mode < ARIL_NEAREST || opts.mode > ARIL_AREA ||
        (opts.align_corners && opts.mode != ARIL_LINEAR && opts.mode != ARIL_CUBIC) ||
        (opts.antialias &&
         (opts.align_corners || opts.mode < ARIL_LINEAR || opts.mode == ARIL_AREA))) {
        aril__fail(ARIL_ERR_ARG, "interpolate: align_corners is for linear and cubic, and not with "
                                 "antialias, which is for them too");
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
            aril__fail(ARIL_ERR_ARG,
                       "interpolate: a size or a scale above 0 is needed for each of "
                       "the spatial dimensions of %s",
                       aril__text(text, x));
            return aril__poison();
        }
    }
    if (opts.mode != ARIL_AREA) return aril__op_with(&a, &aril__op_interpolate, x);
    aril_shape size = { .ndim = n };
    for (int i = 0; i < n; i++) {
        size.dim[i] = a.size[i];
        if (!a.size[i] && x->dim[2 + i] < 0) {
            aril__fail(ARIL_ERR_SHAPE, "interpolate: area by a scale needs known sizes, got %s",
                       aril__text(text, x));
            return aril__poison();
        }
        if (!a.size[i]) size.dim[i] = (int64_t)floor((double)x->dim[2 + i] * a.scale[i]);
    }
    return n == 1   ? aril_adaptive_avg_pool1d(x, size)
           : n == 2 ? aril_adaptive_avg_pool2d(x, size)
                    : aril_adaptive_avg_pool3d(x, size);
}
