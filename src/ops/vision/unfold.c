/* Windows of an image as columns (im2col), and the reverse (col2im):
 *
 *     unfold(x)          [N,C,H,W] -> [N, C * kernel, positions]
 *     fold(u)            the reverse, to a size given by the attributes
 *     unfold_grad(g, x)  the reverse, in the shape of x
 *
 * unfold is the gradient of both of the others. */
#include "aril/conv.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"
#include "ops/vision/slide.h"
#include "ops/vision/unfold.h"

#include <inttypes.h>
#include <string.h>

ATTR_LIST(unfold, UNFOLD_ATTRS)

/* ---- shapes ---- */

static aril__slide window_of(const struct unfold_attrs *a, int i)
{
    return (aril__slide){ .kernel = a->kernel[i],
                          .stride = a->stride[i],
                          .begin = a->pad[2 * i],
                          .end = a->pad[2 * i + 1],
                          .dilation = a->dilation[i] };
}

/* Positions of the window over an image of the given size; -1 if it is unknown. */
static aril_status count(const aril__call *c, const int64_t *size, int64_t *positions)
{
    const struct unfold_attrs *a = c->attrs;
    *positions = 1;
    for (int i = 0; i < 2; i++) {
        aril__slide w = window_of(a, i);
        if (w.kernel < 1 || w.stride < 1 || w.dilation < 1 || w.begin < 0 || w.end < 0)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: kernel, stride and dilation must be at least 1, "
                              "padding at least 0",
                              c->op->name);
        int64_t n = aril__slide_count(&w, size[i]);
        if (n == 0) {
            char text[ARIL__SHAPE_TEXT];
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: a window of %" PRId64 " is larger than the padded image %s",
                              c->op->name, aril__slide_span(&w), aril__shape_text(text, 2, size));
        }
        *positions = *positions < 0 || n < 0 ? -1 : *positions * n;
    }
    return ARIL_OK;
}

static aril_status shape_error(const aril__call *c, const char *want, const aril_tensor *got)
{
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: needs %s, got %s", c->op->name, want,
                      aril__text(text, got));
}

static aril_status unfold_infer(aril__call *c)
{
    const struct unfold_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    if (x->ndim != 4) return shape_error(c, "[N,C,H,W]", x);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = 3;
    o->dim[0] = x->dim[0];
    o->dim[1] = x->dim[1] < 0 ? -1 : x->dim[1] * a->kernel[0] * a->kernel[1];
    return count(c, x->dim + 2, &o->dim[2]);
}

/* Checks that u has the shape of an unfolded image of that size. */
static aril_status check_columns(const aril__call *c, const aril_tensor *u, const int64_t *size)
{
    const struct unfold_attrs *a = c->attrs;
    int64_t positions, taps = a->kernel[0] * a->kernel[1];
    if (u->ndim != 3) return shape_error(c, "[N, C * kernel, positions]", u);
    aril_status s = count(c, size, &positions);
    if (s < 0) return s;
    if ((positions >= 0 && u->dim[2] >= 0 && u->dim[2] != positions) ||
        (u->dim[1] >= 0 && u->dim[1] % taps != 0)) {
        char text[ARIL__SHAPE_TEXT], to[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: columns %s do not match an image of %s: expected %" PRId64
                          " positions, and channels in multiples of %" PRId64,
                          c->op->name, aril__text(text, u), aril__shape_text(to, 2, size),
                          positions, taps);
    }
    return ARIL_OK;
}

static aril_status fold_infer(aril__call *c)
{
    const struct unfold_attrs *a = c->attrs;
    const aril_tensor *u = c->in[0];
    aril__meta *o = &c->out[0];
    aril_status s = check_columns(c, u, a->size);
    if (s < 0) return s;
    o->dtype = (aril_dtype)u->dtype;
    o->ndim = 4;
    o->dim[0] = u->dim[0];
    o->dim[1] = u->dim[1] < 0 ? -1 : u->dim[1] / (a->kernel[0] * a->kernel[1]);
    o->dim[2] = a->size[0];
    o->dim[3] = a->size[1];
    return ARIL_OK;
}

static aril_status unfold_grad_infer(aril__call *c)
{
    const aril_tensor *x = c->in[1];
    aril__meta *o = &c->out[0];
    if (x->ndim != 4) return shape_error(c, "[N,C,H,W]", x);
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = 4;
    memcpy(o->dim, x->dim, 4 * sizeof *x->dim);
    return check_columns(c, c->in[0], x->dim + 2);
}

/* ---- kernels ---- */

typedef struct job {
    int64_t in[2], out[2], taps;
    aril__slide window[2];
    void *image, *columns;
} job;

static job describe(const aril__run *r, const aril_tensor *image, const aril_tensor *columns)
{
    const struct unfold_attrs *a = r->attrs;
    job j = { .image = aril__ptr(image), .columns = aril__ptr(columns) };
    j.taps = a->kernel[0] * a->kernel[1];
    for (int i = 0; i < 2; i++) {
        j.window[i] = window_of(a, i);
        j.in[i] = image->dim[2 + i];
        j.out[i] = aril__slide_count(&j.window[i], j.in[i]);
    }
    return j;
}

#define TEMPLATE "ops/vision/unfold.inc"
#include "ops/table/each_real.inc"

/* Named ahead of their rows. */
extern const aril__op aril__op_unfold, aril__op_unfold_grad;

static int64_t grain(int64_t work)
{
    enum { MIN_CHUNK = 16 * 1024 };
    return work > 0 && work < MIN_CHUNK ? MIN_CHUNK / work : 1;
}

static aril_status unfold_ref(aril__run *r)
{
    job j = describe(r, r->in[0], r->out[0]);
    int64_t positions = j.out[0] * j.out[1];
    if (r->out[0]->numel)
        aril__parallel_for(r->out[0]->numel / positions, grain(positions),
                           r->type == ARIL_F64 ? lift_f64 : lift_f32, &j);
    return ARIL_OK;
}

static aril_status fold_ref(aril__run *r)
{
    job j = describe(r, r->out[0], r->in[0]);
    int64_t area = j.in[0] * j.in[1];
    if (r->out[0]->numel)
        aril__parallel_for(r->out[0]->numel / area, grain(j.taps * j.out[0] * j.out[1]),
                           r->type == ARIL_F64 ? lower_f64 : lower_f32, &j);
    return ARIL_OK;
}

/* ---- op table rows ---- */

#define PLAIN                                \
    &(const struct unfold_attrs)             \
    {                                        \
        { 2, 3 }, { 1, 1 }, { 0 }, { 1, 1 }, \
        {                                    \
            4, 5                             \
        }                                    \
    }
#define PADDED                                        \
    &(const struct unfold_attrs)                      \
    {                                                 \
        { 2, 2 }, { 2, 1 }, { 1, 1, 0, 1 }, { 1, 2 }, \
        {                                             \
            4, 5                                      \
        }                                             \
    }

VJP(unfold)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_unfold_grad, c->g[0], c->x[0]));
}

static const aril__sample unfold_samples[] = {
    { .in = { "[2,3,4,5]" }, .attrs = PLAIN, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,4,5]" }, .attrs = PADDED, .flags = SAMPLE_BATCH },
    { .in = { "[0,2,4,5]" }, .attrs = PADDED },
    SAMPLE_END
};
OP(unfold, .doc = "sliding windows of an image as columns (im2col)", .min_in = 1, .max_in = 1,
   .n_out = 1, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = unfold_infer,
   .ref = unfold_ref, .vjp = unfold_vjp, .saves = { LIKE(0) }, .samples = unfold_samples,
   WITH_ATTRS(unfold));

VJP(fold)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_unfold, c->g[0]));
}

static const aril__sample unfold_grad_samples[] = {
    { .in = { "[2,18,9]", "[2,3,4,5]" }, .attrs = PLAIN, .flags = SAMPLE_BATCH },
    { .in = { "[1,8,12]", "[1,2,4,5]" }, .attrs = PADDED, .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(unfold_grad, .doc = "gradient of unfold, in the shape of the second input", .min_in = 2,
   .max_in = 2, .n_out = 1, .shape_only = IN(1), .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .flags = GRADIENT, .infer = unfold_grad_infer,
   .ref = fold_ref, .vjp = fold_vjp, .samples = unfold_grad_samples, WITH_ATTRS(unfold));

static const aril__sample fold_samples[] = {
    { .in = { "[2,18,9]" }, .attrs = PLAIN, .flags = SAMPLE_BATCH },
    { .in = { "[1,8,12]" }, .attrs = PADDED, .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(fold, .doc = "sum of columns into an image of a given size (col2im)", .onnx = "Col2Im",
   .min_in = 1, .max_in = 1, .n_out = 1, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = fold_infer, .ref = fold_ref, .vjp = fold_vjp, .samples = fold_samples,
   WITH_ATTRS(unfold));

/* ---- public ---- */

static aril_status attrs_of(const char *what, const aril_pool_opts *o, struct unfold_attrs *a)
{
    int64_t kernel[3], stride[3], dilation[3], pad[6];
    memset(a, 0, sizeof *a);
    if (aril__slide_numbers(what, "kernel", 2, o->kernel, 0, kernel) < 0 ||
        aril__slide_numbers(what, "stride", 2, o->stride, 1, stride) < 0 ||
        aril__slide_numbers(what, "dilation", 2, o->dilation, 1, dilation) < 0 ||
        aril__slide_padding(what, 2, o->padding, o->padding_end, pad) < 0)
        return ARIL_ERR_ARG;
    for (int i = 0; i < 2; i++) {
        a->kernel[i] = kernel[i];
        a->stride[i] = stride[i];
        a->dilation[i] = dilation[i];
    }
    memcpy(a->pad, pad, sizeof a->pad);
    return ARIL_OK;
}

aril_tensor *aril_unfold(aril_tensor *x, aril_pool_opts opts)
{
    struct unfold_attrs a;
    bool single;
    if (attrs_of("unfold", &opts, &a) < 0) return aril__poison();
    x = aril__slide_batched("unfold", x, 2, &single);
    if (!x) return aril__poison();
    return aril__slide_unbatched(aril__op_with(&a, &aril__op_unfold, x), single);
}

aril_tensor *aril_fold(aril_tensor *columns, aril_shape size, aril_pool_opts opts)
{
    struct unfold_attrs a;
    bool single;
    if (attrs_of("fold", &opts, &a) < 0 || aril__check_shape("fold", size, false) < 0)
        return aril__poison();
    if (size.ndim != 2) {
        aril__fail(ARIL_ERR_ARG, "fold: expected height and width, got %d sizes", size.ndim);
        return aril__poison();
    }
    a.size[0] = size.dim[0];
    a.size[1] = size.dim[1];
    columns = aril__slide_batched("fold", columns, 1, &single);
    if (!columns) return aril__poison();
    return aril__slide_unbatched(aril__op_with(&a, &aril__op_fold, columns), single);
}
