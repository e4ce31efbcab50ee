#include "ops/vision/conv.h"

#include "aril/math.h"
#include "aril/conv.h"
#include "aril/math.h"
#include "core/parallel.h"
#include "ops/elementwise/activation.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/flops.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <string.h>

ATTR_LIST(conv, CONV_ATTRS)
ATTR_LIST(conv_transpose, CONV_TRANSPOSE_ATTRS)

/* ---- shapes ---- */

static aril__slide window_of(const struct conv_attrs *a, int i, int64_t kernel, int64_t in)
{
    aril__slide w = { .kernel = kernel,
                      .stride = a->stride[i],
                      .begin = a->pad[2 * i],
                      .end = a->pad[2 * i + 1],
                      .dilation = a->dilation[i] };
    if (a->same[0]) aril__slide_same(&w, in, a->same[0]);
    return w;
}

static aril_status shapes_error(const char *op, const char *what, const aril_tensor *x,
                                const aril_tensor *w)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: %s: input %s, weights %s", op, what, aril__text(a, x),
                      aril__text(b, w));
}

static bool differ(int64_t a, int64_t b)
{
    return a >= 0 && b >= 0 && a != b;
}

/* Checks for invalid attribute values, and what all four ops require of the weights and the other
 * tensor: the same rank and dtype, and channels divisible by groups. */
static aril_status check_common(const aril__call *c, const aril_tensor *x, const aril_tensor *w,
                                const int64_t *stride, const int64_t *dilation, int64_t groups)
{
    const char *op = c->op->name;
    if (x->ndim < 3 || x->ndim > 5 || w->ndim != x->ndim)
        return shapes_error(op, "expected [N,C,spatial...] and weights with as many dimensions", x,
                            w);
    if (x->dtype != w->dtype && !(c->op->flags & NONDIFF)) /* integers may differ in sign */
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: input and weights must have the same dtype, got %s and %s", op,
                          aril__dtypes[x->dtype].name, aril__dtypes[w->dtype].name);
    for (int i = 0; i < x->ndim - 2; i++) {
        if (stride[i] < 1 || dilation[i] < 1)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: stride %" PRId64 " and dilation %" PRId64 " must be at least 1",
                              op, stride[i], dilation[i]);
        if (w->dim[2 + i] == 0) return shapes_error(op, "the kernel is empty", x, w);
    }
    if (groups < 1 || (w->dim[0] >= 0 && w->dim[0] % groups != 0)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: %" PRId64 " groups do not divide the %" PRId64
                          " channels of weights %s",
                          op, groups, w->dim[0], aril__text(text, w));
    }
    return ARIL_OK;
}

static aril_status check_bias(const aril__call *c, int64_t channels)
{
    const aril_tensor *b = c->n_in > 2 ? c->in[2] : NULL;
    char text[ARIL__SHAPE_TEXT];
    if (!b) return ARIL_OK;
    if (b->ndim != 1 || differ(b->dim[0], channels))
        return aril__fail(ARIL_ERR_SHAPE, "%s: a bias of shape [%" PRId64 "] is needed, got %s",
                          c->op->name, channels, aril__text(text, b));
    if (b->dtype != c->in[0]->dtype)
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: input and bias must have the same dtype, got %s and %s", c->op->name,
                          aril__dtypes[c->in[0]->dtype].name, aril__dtypes[b->dtype].name);
    return ARIL_OK;
}

aril_status aril__conv_shape(const aril__call *c, const aril_tensor *x, const aril_tensor *w,
                             int64_t *dim)
{
    const struct conv_attrs *a = c->attrs;
    aril_status s = check_common(c, x, w, a->stride, a->dilation, a->groups[0]);
    if (s < 0) return s;
    if (w->dim[1] >= 0 && differ(x->dim[1], w->dim[1] * a->groups[0])) {
        char what[96];
        snprintf(what, sizeof what,
                 "%" PRId64 " channels, the weights take %" PRId64 " x %" PRId64 " groups",
                 x->dim[1], w->dim[1], a->groups[0]);
        return shapes_error(c->op->name, what, x, w);
    }
    dim[0] = x->dim[0];
    dim[1] = w->dim[0];
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t in = x->dim[2 + i], kernel = w->dim[2 + i];
        aril__slide v = window_of(a, i, kernel, in);
        dim[2 + i] = kernel < 0 ? -1 : aril__slide_count(&v, in);
        if (dim[2 + i] == 0 && !(a->same[0] && in == 0))
            return shapes_error(c->op->name, "the kernel is larger than the padded input", x, w);
    }
    return ARIL_OK;
}

/* Checks that g, an input, has the shape of y. */
static aril_status check_g(const aril__call *c, const aril_tensor *x, const aril_tensor *w)
{
    int64_t dim[ARIL_MAX_DIMS];
    const aril_tensor *g = c->in[0];
    aril_status s = aril__conv_shape(c, x, w, dim);
    if (s < 0) return s;
    bool fits = g->ndim == x->ndim && g->dtype == w->dtype;
    for (int i = 0; i < g->ndim && fits; i++) fits = !differ(g->dim[i], dim[i]);
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: expected a gradient of shape %s, got %s", c->op->name,
                      aril__shape_text(a, x->ndim, dim), aril__text(b, g));
}

static void set_shape(aril__call *c, int ndim, const int64_t *dim)
{
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[0].ndim = ndim;
    memcpy(c->out[0].dim, dim, (size_t)ndim * sizeof *dim);
}

static aril_status conv_infer(aril__call *c)
{
    int64_t dim[ARIL_MAX_DIMS];
    aril_status s = aril__conv_shape(c, c->in[0], c->in[1], dim);
    if (s == ARIL_OK) s = check_bias(c, c->in[1]->dim[0]);
    if (s == ARIL_OK)
        s = aril__activation_check("conv", ((const struct conv_attrs *)c->attrs)->activation[0]);
    if (s == ARIL_OK) set_shape(c, c->in[0]->ndim, dim);
    return s;
}

static aril_status conv_add_infer(aril__call *c)
{
    aril_status s = conv_infer(c);
    const aril_tensor *r = c->in[3];
    const aril__meta *y = &c->out[0];
    if (s < 0) return s;
    bool fits = r->ndim == y->ndim && r->dtype == y->dtype;
    for (int i = 0; i < y->ndim && fits; i++) fits = !differ(r->dim[i], y->dim[i]);
    if (fits) return ARIL_OK;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "conv_add: the result has shape %s, what is added %s",
                      aril__shape_text(a, y->ndim, y->dim), aril__text(b, r));
}

static aril_status conv_dgrad_infer(aril__call *c)
{
    aril_status s = check_g(c, c->in[2], c->in[1]);
    set_shape(c, c->in[2]->ndim, c->in[2]->dim);
    return s;
}

static aril_status conv_wgrad_infer(aril__call *c)
{
    aril_status s = check_g(c, c->in[1], c->in[2]);
    set_shape(c, c->in[2]->ndim, c->in[2]->dim);
    return s;
}

static aril_status conv_transpose_infer(aril__call *c)
{
    const struct conv_transpose_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0], *w = c->in[1];
    aril_status s = check_common(c, x, w, a->stride, a->dilation, a->groups[0]);
    if (s < 0) return s;
    if (differ(x->dim[1], w->dim[0]))
        return shapes_error(c->op->name,
                            "the number of input channels must be the first size of the weights", x,
                            w);
    int64_t dim[ARIL_MAX_DIMS] = { x->dim[0], w->dim[1] < 0 ? -1 : w->dim[1] * a->groups[0] };
    for (int i = 0; i < x->ndim - 2; i++) {
        int64_t in = x->dim[2 + i], kernel = w->dim[2 + i], more = a->output_padding[i];
        if (more < 0 || (more >= a->stride[i] && more >= a->dilation[i]))
            return aril__fail(ARIL_ERR_ARG,
                              "%s: output padding %" PRId64 " must be below stride %" PRId64
                              " or dilation %" PRId64,
                              c->op->name, more, a->stride[i], a->dilation[i]);
        dim[2 + i] = -1;
        if (in < 0 || kernel < 0) continue;
        dim[2 + i] = (in - 1) * a->stride[i] - a->pad[2 * i] - a->pad[2 * i + 1] +
                     (kernel - 1) * a->dilation[i] + 1 + more;
        if (in < 1 || dim[2 + i] < 1)
            return shapes_error(c->op->name, "the output would be empty", x, w);
    }
    s = check_bias(c, dim[1]);
    if (s == ARIL_OK) s = aril__activation_check("conv_transpose", a->activation[0]);
    set_shape(c, x->ndim, dim);
    return s;
}

/* The attributes of the conv whose data gradient is conv_transpose: output_padding is subtracted
 * from the padding after. */
static struct conv_attrs forward_attrs(const struct conv_transpose_attrs *a)
{
    struct conv_attrs f = { .groups = { a->groups[0] } };
    memcpy(f.stride, a->stride, sizeof f.stride);
    memcpy(f.pad, a->pad, sizeof f.pad);
    memcpy(f.dilation, a->dilation, sizeof f.dilation);
    for (int i = 0; i < 3; i++) f.pad[2 * i + 1] -= a->output_padding[i];
    return f;
}

/* ---- the reference ---- */

static void spread(const aril_tensor *t, int64_t *dim, int64_t *stride)
{
    int lead = 5 - t->ndim;
    for (int i = 0; i < 5; i++) {
        int from = i < 2 ? i : i - lead;
        bool there = i < 2 || i >= 2 + lead;
        dim[i] = there ? t->dim[from] : 1;
        stride[i] = there ? t->stride[from] : 0;
    }
}

void aril__conv_describe(const aril__run *r, aril__conv *d)
{
    struct conv_attrs transposed;
    const struct conv_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0], *w = r->in[1], *y = r->out[0], *b = NULL;
    if (r->op == &aril__op_conv_dgrad || r->op == &aril__op_conv_dgrad_add ||
        r->op == &aril__op_conv_transpose) {
        y = r->in[0];
        x = r->out[0];
    } else if (r->op == &aril__op_conv_wgrad) {
        y = r->in[0];
        x = r->in[1];
        w = r->out[0];
    }
    if (r->op == &aril__op_conv_transpose) {
        transposed = forward_attrs(r->attrs);
        a = &transposed;
    }
    bool forward = aril__conv_is_forward(r->op);
    if ((forward || r->op == &aril__op_conv_transpose) && r->n_in > 2) b = r->in[2];
    d->activation = forward ? a->activation[0] : 0;
    if (r->op == &aril__op_conv_transpose)
        d->activation = ((const struct conv_transpose_attrs *)r->attrs)->activation[0];
    int64_t xd[5], wd[5], yd[5];
    spread(x, xd, d->x_stride);
    spread(w, wd, d->w_stride);
    spread(y, yd, d->y_stride);
    d->batch = xd[0];
    d->groups = a->groups[0];
    d->c = wd[1];
    d->k = wd[0] / d->groups;
    int lead = 5 - x->ndim;
    for (int i = 0; i < 3; i++) {
        d->in[i] = xd[2 + i];
        d->out[i] = yd[2 + i];
        d->kernel[i] = wd[2 + i];
        aril__slide v = { .stride = 1, .dilation = 1 };
        if (i >= lead) v = window_of(a, i - lead, wd[2 + i], xd[2 + i]);
        d->stride[i] = v.stride;
        d->begin[i] = v.begin;
        d->dilation[i] = v.dilation;
    }
    d->x = aril__ptr_or_null(x); /* a result may have no memory yet */
    d->w = aril__ptr_or_null(w);
    d->y = aril__ptr_or_null(y);
    d->bias = aril__ptr_or_null(b);
    d->bias_stride = b ? b->stride[0] : 0;
    d->added = NULL;
    if (r->op == &aril__op_conv_add) {
        spread(r->in[3], xd, d->added_stride);
        d->added = aril__ptr_or_null(r->in[3]);
    }
}

#define TEMPLATE "ops/vision/conv_kernels.inc"
#include "ops/table/each_real.inc"

static aril_status run_reference(aril__run *r, aril__range_fn *f32, aril__range_fn *f64)
{
    aril__conv d;
    if (r->out[0]->numel == 0) return ARIL_OK;
    aril__conv_describe(r, &d);
    aril__parallel_for(r->out[0]->numel, 64, r->type == ARIL_F64 ? f64 : f32, &d);
    return ARIL_OK;
}

static aril_status conv_ref(aril__run *r)
{
    return run_reference(r, forward_f32, forward_f64);
}

static aril_status conv_dgrad_ref(aril__run *r)
{
    return run_reference(r, data_f32, data_f64);
}

static aril_status conv_wgrad_ref(aril__run *r)
{
    return run_reference(r, weights_f32, weights_f64);
}

/* ---- gradients ---- */

/* The sum of g over all dimensions except its channels. */
static aril_tensor *bias_grad(aril_tensor *g)
{
    struct reduce_attrs a = { { ((1 << g->ndim) - 1) & ~2 }, { 0 } };
    return aril__op_with(&a, &aril__op_sum, g);
}

/* The gradient of the weight comes first: it needs the most scratch memory, and is small. */
VJP(conv)
{
    struct conv_attrs a = *(const struct conv_attrs *)c->attrs;
    if (!c->g[0]) return;
    aril_tensor *g = aril__activation_grad(c->g[0], c->y[0], a.activation[0]);
    a.activation[0] = ARIL_NO_ACTIVATION;
    GRAD(1, aril__op_with(&a, &aril__op_conv_wgrad, g, c->x[0], c->x[1]));
    GRAD(0, aril__op_with(&a, &aril__op_conv_dgrad, g, c->x[1], c->x[0]));
    if (c->n_in > 2) GRAD(2, bias_grad(g));
}

VJP(conv_add)
{
    struct conv_attrs a = *(const struct conv_attrs *)c->attrs;
    if (!c->g[0]) return;
    aril_tensor *g = aril__activation_grad(c->g[0], c->y[0], a.activation[0]);
    a.activation[0] = ARIL_NO_ACTIVATION;
    GRAD(1, aril__op_with(&a, &aril__op_conv_wgrad, g, c->x[0], c->x[1]));
    GRAD(0, aril__op_with(&a, &aril__op_conv_dgrad, g, c->x[1], c->x[0]));
    GRAD(2, bias_grad(g));
    GRAD(3, g);
}

/* On devices without a kernel for all of it. */
static void conv_add_decompose(aril__call *c, aril_tensor **out)
{
    struct conv_attrs a = *(const struct conv_attrs *)c->attrs;
    int64_t act = a.activation[0];
    a.activation[0] = ARIL_NO_ACTIVATION;
    aril_tensor *y = aril__op_with(&a, &aril__op_conv, c->in[0], c->in[1], c->in[2]);
    out[0] = aril__activation(aril_add(y, c->in[3]), act);
}

VJP(conv_dgrad)
{
    aril_tensor *h = c->g[0]; /* like x */
    if (!h) return;
    GRAD(0, aril__op_with(c->attrs, &aril__op_conv, h, c->x[1]));
    GRAD(1, aril__op_with(c->attrs, &aril__op_conv_wgrad, c->x[0], h, c->x[1]));
}

VJP(conv_wgrad)
{
    aril_tensor *h = c->g[0]; /* like w */
    if (!h) return;
    GRAD(0, aril__op_with(c->attrs, &aril__op_conv, c->x[1], h));
    GRAD(1, aril__op_with(c->attrs, &aril__op_conv_dgrad, c->x[0], h, c->x[1]));
}

VJP(conv_transpose)
{
    struct conv_attrs a = forward_attrs(c->attrs);
    int64_t act = ((const struct conv_transpose_attrs *)c->attrs)->activation[0];
    if (!c->g[0]) return;
    aril_tensor *g = aril__activation_grad(c->g[0], c->y[0], act);
    GRAD(1, aril__op_with(&a, &aril__op_conv_wgrad, c->x[0], g, c->x[1]));
    GRAD(0, aril__op_with(&a, &aril__op_conv, g, c->x[1]));
    if (c->n_in > 2) GRAD(2, bias_grad(g));
}

/* ---- op table rows ---- */

/* Attributes of samples: stride, padding, dilation, and the rest. */
#define NUMBERS(...) \
    {                \
        __VA_ARGS__  \
    }
#define SAMPLE_ATTRS(stride_, pad_, dilation_, groups_, same_, act_) \
    (&(const struct conv_attrs){ .stride = NUMBERS stride_,          \
                                 .pad = NUMBERS pad_,                \
                                 .dilation = NUMBERS dilation_,      \
                                 .groups = { groups_ },              \
                                 .same = { same_ },                  \
                                 .activation = { act_ } })
#define PLAIN       SAMPLE_ATTRS((1, 1, 1), (0), (1, 1, 1), 1, 0, 0)
#define STRIDE2     SAMPLE_ATTRS((2, 2, 2), (1, 0, 2, 1, 0, 1), (1, 1, 1), 1, 0, 0)
#define DILATED     SAMPLE_ATTRS((1, 2, 1), (2, 2, 1, 1, 0, 0), (2, 1, 1), 1, 0, 0)
#define GROUPS2     SAMPLE_ATTRS((1, 1, 1), (1, 1, 1, 1, 0, 0), (1, 1, 1), 2, 0, 0)
#define SAME2       SAMPLE_ATTRS((2, 2, 2), (0), (1, 1, 1), 1, ARIL__SAME_UPPER, 0)
#define LOWER3      SAMPLE_ATTRS((3, 1, 1), (0), (1, 2, 1), 1, ARIL__SAME_LOWER, 0)
#define CROPPED     SAMPLE_ATTRS((1, 2, 1), (-1, 2, 1, -1, 0, 0), (1, 1, 1), 1, 0, 0)
#define ACTIVE(act) SAMPLE_ATTRS((1, 1, 1), (1, 1), (1, 1, 1), 1, 0, act)

static const aril__sample conv_samples[] = {
    { .in = { "[2,3,5,4]", "[3,3,3,2]", "[3]" }, .attrs = PLAIN, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,6,5]", "[3,2,3,3]", "-" }, .attrs = STRIDE2, .flags = SAMPLE_BATCH },
    { .in = { "[2,2,6,5]", "[2,2,2,3]" }, .attrs = DILATED },
    { .in = { "[1,4,3,3]", "[4,2,3,3]", "[4]" }, .attrs = GROUPS2, .flags = SAMPLE_BATCH },
    { .in = { "[2,2,5,6]", "[3,2,3,3]" }, .attrs = SAME2, .flags = SAMPLE_BATCH },
    { .in = { "[2,2,7,4]", "[2,2,2,2]" }, .attrs = LOWER3 },
    { .in = { "[2,2,6]", "[3,2,3]", "[3]" }, .attrs = STRIDE2, .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,4,3]", "[2,2,2,2,2]", "[2]" }, .attrs = STRIDE2, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4,4]", "[2,3,1,1]" }, .attrs = PLAIN },
    { .in = { "[0,3,4,4]", "[2,3,3,3]", "[2]" }, .attrs = PLAIN },
    { .in = { "[16,1,2,3]", "[2,1,2,2]", "[2]" }, .attrs = PLAIN },
    { .in = { "[16,2,3,4]", "[7,2,2,3]", "[7]" }, .attrs = DILATED, .flags = SAMPLE_NO_GRAD },
    { .in = { "[16,1,3,2,3]", "[1,1,2,2,2]" }, .attrs = STRIDE2, .flags = SAMPLE_NO_GRAD },
    { .in = { "[48,2,4,3]", "[3,2,2,2]", "-" }, .attrs = CROPPED, .flags = SAMPLE_NO_GRAD },
    { .in = { "[2,3,4,4]", "[4,3,3,2]", "[4]" },
      .attrs = ACTIVE(ARIL_RELU),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,3,2]", "-" }, .attrs = ACTIVE(ARIL_RELU6) },
    { .in = { "[1,2,3,4]", "[3,2,2,2]", "[3]" }, .attrs = ACTIVE(ARIL_LEAKY_RELU) },
    { .in = { "[1,2,3,3]", "[4,2,2,2]", "[4]" }, .attrs = ACTIVE(ARIL_SIGMOID) },
    { .in = { "[1,2,3,3]", "[4,2,2,2]" }, .attrs = ACTIVE(ARIL_TANH) },
    SAMPLE_END
};
/* w is [O,C/groups,...]: each element of the larger side is multiplied by w.numel / O of its
 * elements. */
static double conv_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->out[0]) * aril__numel_of(r->in[1]) / aril__first_size(r->in[1]);
}

OP(conv, .doc = "convolution over 1 to 3 spatial dimensions, with an optional bias and activation",
   .onnx = "Conv", .min_in = 2, .max_in = 3, .n_out = 1, .cast = CAST_LOW, .optional = IN(2),
   .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = conv_infer, .ref = conv_ref, .vjp = conv_vjp,
   .saves = { IN(1) | LIKE(0), IN(0) | LIKE(1) }, .flops = conv_flops, .samples = conv_samples,
   WITH_ATTRS(conv), WITH_ACTIVATION(conv));

static const aril__sample conv_add_samples[] = {
    { .in = { "[2,3,5,4]", "[3,3,3,2]", "[3]", "[2,3,3,3]" },
      .attrs = PLAIN,
      .flags = SAMPLE_BATCH },
    { .in = { "[1,2,6,5]", "[3,2,3,3]", "-", "[1,3,3,3]" }, .attrs = STRIDE2 },
    { .in = { "[1,4,3,3]", "[4,2,3,3]", "[4]", "[1,4,3,3]" }, .attrs = GROUPS2 },
    { .in = { "[2,2,6]", "[3,2,3]", "[3]", "[2,3,3]" }, .attrs = STRIDE2, .flags = SAMPLE_BATCH },
    { .in = { "[0,3,4,4]", "[2,3,3,3]", "[2]", "[0,2,2,2]" }, .attrs = PLAIN },
    { .in = { "[2,3,4,4]", "[4,3,3,2]", "[4]", "[2,4,4,3]" },
      .attrs = ACTIVE(ARIL_RELU),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,4]", "[2,3,2]", "-", "[2,2,5]" }, .attrs = ACTIVE(ARIL_RELU6) },
    { .in = { "[2,8,4,3]", "[16,8,1,1]", "[16]", "[2,16,4,3]" },
      .attrs = SAMPLE_ATTRS((1, 1, 1), (0), (1, 1, 1), 1, 0, ARIL_RELU),
      .flags = SAMPLE_BATCH },
    { .in = { "[2,8,4,3]", "[16,8,1,1]", "-", "[2,16,4,3]" }, .attrs = PLAIN },
    { .in = { "[1,2,3,3]", "[4,2,2,2]", "[4]", "[1,4,4,2]" }, .attrs = ACTIVE(ARIL_TANH) },
    SAMPLE_END
};
OP(conv_add, .doc = "convolution plus a tensor of the shape of its result, with an activation",
   .min_in = 4, .max_in = 4, .n_out = 1, .cast = CAST_LOW, .optional = IN(2),
   .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64),
   .infer = conv_add_infer, .ref = conv_ref, .vjp = conv_add_vjp, .decompose = conv_add_decompose,
   .saves = { IN(1) | LIKE(0), IN(0) | LIKE(1), 0, 0 }, .flops = conv_flops,
   .samples = conv_add_samples, WITH_ATTRS(conv), WITH_ACTIVATION(conv));

static const aril__sample conv_dgrad_samples[] = {
    { .in = { "[2,3,3,3]", "[3,3,3,2]", "[2,3,5,4]" }, .attrs = PLAIN, .flags = SAMPLE_BATCH },
    { .in = { "[1,3,3,3]", "[3,2,3,3]", "[1,2,6,5]" }, .attrs = STRIDE2, .flags = SAMPLE_BATCH },
    { .in = { "[2,2,8,3]", "[2,2,2,3]", "[2,2,6,5]" }, .attrs = DILATED },
    { .in = { "[1,4,3,3]", "[4,2,3,3]", "[1,4,3,3]" }, .attrs = GROUPS2 },
    { .in = { "[2,3,3,3]", "[3,2,3,3]", "[2,2,5,6]" }, .attrs = SAME2, .flags = SAMPLE_BATCH },
    { .in = { "[2,3,3]", "[3,2,3]", "[2,2,6]" }, .attrs = STRIDE2, .flags = SAMPLE_BATCH },
    { .in = { "[16,1,2]", "[1,2,2]", "[16,2,3]" }, .attrs = PLAIN },
    { .in = { "[16,1,1,3]", "[1,2,3,3]", "[16,2,3,4]" },
      .attrs = STRIDE2,
      .flags = SAMPLE_NO_GRAD },
    { .in = { "[16,2,4,2]", "[2,5,2,3]", "[16,5,2,3]" },
      .attrs = DILATED,
      .flags = SAMPLE_NO_GRAD },
    SAMPLE_END
};
/* in: gradient of the result [N,O,...] and w [O,C/groups,...], or x [N,C,...] of a transposed
 * convolution and w [C,O/groups,...]: the axis of channels comes first in w, so that each element
 * of in[0] is multiplied by w.numel / w.dim[0] of its elements. */
static double conv_dgrad_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->in[0]) * aril__numel_of(r->in[1]) / aril__first_size(r->in[1]);
}

OP(conv_dgrad, .doc = "gradient of conv with respect to its input, in the shape of the third input",
   .min_in = 3, .max_in = 3, .n_out = 1, .shape_only = IN(2),
   .flags = STRIDED | KEEPS_CHANNELS | GRADIENT, .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = conv_dgrad_infer, .ref = conv_dgrad_ref,
   .vjp = conv_dgrad_vjp, .saves = { IN(1), IN(0) | LIKE(1) }, .flops = conv_dgrad_flops,
   .samples = conv_dgrad_samples, WITH_ATTRS(conv));

/* ---- conv_dgrad_add ---- */

static aril_status conv_dgrad_add_infer(aril__call *c)
{
    const aril_tensor *x = c->in[2], *h = c->in[3];
    aril_status s = conv_dgrad_infer(c);
    bool same = x->ndim == h->ndim && h->dtype == c->in[0]->dtype;
    for (int d = 0; d < x->ndim && same; d++) same = !differ(h->dim[d], x->dim[d]);
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (s == ARIL_OK && !same)
        return aril__fail(ARIL_ERR_SHAPE, "conv_dgrad_add: %s is added to a gradient of %s",
                          aril__text(a, h), aril__text(b, x));
    return s;
}

static aril_status conv_dgrad_add_ref(aril__run *r)
{
    aril_status s = conv_dgrad_ref(r);
    for (int64_t i = 0; i < r->out[0]->numel && s == ARIL_OK; i++)
        aril__put(r->out[0], i, aril__get(r->out[0], i) + aril__get(r->in[3], i));
    return s;
}

static void conv_dgrad_add_decompose(aril__call *c, aril_tensor **out)
{
    out[0] = aril_add(aril__op_with(c->attrs, &aril__op_conv_dgrad, c->in[0], c->in[1], c->in[2]),
                      c->in[3]);
}

static const aril__sample conv_dgrad_add_samples[] = {
    { .in = { "[2,3,5,4]", "[3,2,1,1]", "[2,2,5,4]", "[2,2,5,4]" },
      .attrs = PLAIN,
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,3,3]", "[3,3,3,2]", "[2,3,5,4]", "[2,3,5,4]" }, .attrs = PLAIN },
    SAMPLE_END
};
OP(conv_dgrad_add, .doc = "gradient of conv with respect to its input, added to another gradient",
   .min_in = 4, .max_in = 4, .n_out = 1, .shape_only = IN(2),
   .flags = STRIDED | KEEPS_CHANNELS | GRADIENT, .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = conv_dgrad_add_infer, .ref = conv_dgrad_add_ref,
   .decompose = conv_dgrad_add_decompose, .flops = conv_dgrad_flops,
   .samples = conv_dgrad_add_samples, WITH_ATTRS(conv));

static const aril__sample conv_wgrad_samples[] = {
    { .in = { "[2,2,3,3]", "[2,3,5,4]", "[2,3,3,2]" }, .attrs = PLAIN },
    { .in = { "[1,3,3,3]", "[1,2,6,5]", "[3,2,3,3]" }, .attrs = STRIDE2 },
    { .in = { "[2,2,8,3]", "[2,2,6,5]", "[2,2,2,3]" }, .attrs = DILATED },
    { .in = { "[1,4,3,3]", "[1,4,3,3]", "[4,2,3,3]" }, .attrs = GROUPS2 },
    { .in = { "[2,2,3,3]", "[2,2,5,6]", "[2,2,3,3]" }, .attrs = SAME2 },
    { .in = { "[0,2,3,3]", "[0,2,5,6]", "[2,2,3,3]" }, .attrs = SAME2 },
    { .in = { "[16,2,2]", "[16,1,3]", "[2,1,2]" }, .attrs = PLAIN },
    { .in = { "[16,7,1,3]", "[16,2,3,4]", "[7,2,3,3]" },
      .attrs = STRIDE2,
      .flags = SAMPLE_NO_GRAD },
    { .in = { "[48,2,4,2]", "[48,3,2,3]", "[2,3,2,3]" },
      .attrs = DILATED,
      .flags = SAMPLE_NO_GRAD },
    { .in = { "[16,3,4,1]", "[16,2,4,3]", "[3,2,2,2]" },
      .attrs = CROPPED,
      .flags = SAMPLE_NO_GRAD },
    SAMPLE_END
};
/* in: gradient of the result [N,O,...], x, like w; out: [O,...] */
static double conv_wgrad_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->in[0]) * aril__numel_of(r->out[0]) / aril__first_size(r->out[0]);
}

OP(conv_wgrad,
   .doc = "gradient of conv with respect to its weight, in the shape of the third input",
   .min_in = 3, .max_in = 3, .n_out = 1, .shape_only = IN(2), .flags = STRIDED | GRADIENT,
   .types = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = conv_wgrad_infer,
   .ref = conv_wgrad_ref, .vjp = conv_wgrad_vjp, .saves = { IN(1), IN(0) | LIKE(1) },
   .flops = conv_wgrad_flops, .samples = conv_wgrad_samples, WITH_ATTRS(conv));

#define SPREAD_ATTRS(stride_, pad_, dilation_, groups_, more_, act_)        \
    (&(const struct conv_transpose_attrs){ .stride = NUMBERS stride_,       \
                                           .pad = NUMBERS pad_,             \
                                           .dilation = NUMBERS dilation_,   \
                                           .groups = { groups_ },           \
                                           .output_padding = NUMBERS more_, \
                                           .activation = { act_ } })

static const aril__sample conv_transpose_samples[] = {
    { .in = { "[2,3,3,4]", "[3,4,3,2]", "[4]" },
      .attrs = SPREAD_ATTRS((1, 1, 1), (0), (1, 1, 1), 1, (0), 0),
      .flags = SAMPLE_BATCH },
    { .in = { "[1,2,3,3]", "[2,2,3,3]", "-" },
      .attrs = SPREAD_ATTRS((2, 3, 1), (1, 1, 0, 1), (1, 1, 1), 1, (1, 2, 0), 0),
      .flags = SAMPLE_BATCH },
    { .in = { "[1,4,3,3]", "[4,1,2,2]", "[2]" },
      .attrs = SPREAD_ATTRS((2, 1, 1), (0), (1, 3, 1), 2, (0, 2, 0), 0) },
    { .in = { "[2,4,4]", "[4,3,3]", "[3]" },
      .attrs = SPREAD_ATTRS((2, 1, 1), (1, 1), (1, 1, 1), 1, (1), 0),
      .flags = SAMPLE_BATCH },
    { .in = { "[1,2,2,2,2]", "[2,2,2,2,2]" },
      .attrs = SPREAD_ATTRS((2, 2, 1), (0), (1, 1, 1), 1, (0), 0) },
    { .in = { "[2,3,3,2]", "[3,4,2,3]", "[4]" },
      .attrs = SPREAD_ATTRS((2, 1, 1), (0), (1, 1, 1), 1, (0), ARIL_TANH),
      .flags = SAMPLE_BATCH },
    SAMPLE_END
};
OP(conv_transpose, .doc = "transposed convolution over 1 to 3 spatial dimensions",
   .onnx = "ConvTranspose", .min_in = 2, .max_in = 3, .n_out = 1, .cast = CAST_LOW,
   .optional = IN(2), .flags = STRIDED | KEEPS_CHANNELS, .types = DT_FLOAT,
   .native = DT(ARIL_F32) | DT(ARIL_F64), .infer = conv_transpose_infer, .ref = conv_dgrad_ref,
   .vjp = conv_transpose_vjp, .saves = { IN(1) | LIKE(0), IN(0) | LIKE(1) },
   .flops = conv_dgrad_flops, .samples = conv_transpose_samples, WITH_ATTRS(conv_transpose),
   WITH_ACTIVATION(conv_transpose));

/* ---- public ---- */

static aril_tensor *conv_nd(const char *what, int n, aril_tensor *x, aril_tensor *w, aril_tensor *b,
                            const aril_conv_opts *opts)
{
    bool single;
    struct conv_attrs a = { .groups = { opts->groups ? opts->groups : 1 },
                            .activation = { opts->activation } };
    if (!w) return aril__null_tensor(what);
    if (aril__slide_numbers(what, "stride", n, opts->stride, 1, a.stride) < 0 ||
        aril__slide_numbers(what, "dilation", n, opts->dilation, 1, a.dilation) < 0 ||
        aril__slide_padding(what, n, opts->padding, opts->padding_end, a.pad) < 0)
        return aril__poison();
    if (opts->mode == ARIL_VALID) memset(a.pad, 0, sizeof a.pad);
    if (opts->mode == ARIL_SAME || opts->mode == ARIL_SAME_LOWER)
        a.same[0] = opts->mode == ARIL_SAME ? ARIL__SAME_UPPER : ARIL__SAME_LOWER;
    if (a.same[0]) memset(a.pad, 0, sizeof a.pad);
    x = aril__slide_batched(what, x, n, &single);
    if (!x) return aril__poison();
    return aril__slide_unbatched(aril__op_with(&a, &aril__op_conv, x, w, b), single);
}

aril_tensor *aril_conv1d(aril_tensor *x, aril_tensor *w, aril_tensor *b, aril_conv_opts opts)
{
    return conv_nd("conv1d", 1, x, w, b, &opts);
}

aril_tensor *aril_conv2d(aril_tensor *x, aril_tensor *w, aril_tensor *b, aril_conv_opts opts)
{
    return conv_nd("conv2d", 2, x, w, b, &opts);
}

aril_tensor *aril_conv3d(aril_tensor *x, aril_tensor *w, aril_tensor *b, aril_conv_opts opts)
{
    return conv_nd("conv3d", 3, x, w, b, &opts);
}

static aril_tensor *conv_transpose_nd(const char *what, int n, aril_tensor *x, aril_tensor *w,
                                      aril_tensor *b, const aril_conv_opts *opts)
{
    bool single;
    struct conv_transpose_attrs a = { .groups = { opts->groups ? opts->groups : 1 },
                                      .activation = { opts->activation } };
    if (!w) return aril__null_tensor(what);
    if (aril__slide_numbers(what, "stride", n, opts->stride, 1, a.stride) < 0 ||
        aril__slide_numbers(what, "dilation", n, opts->dilation, 1, a.dilation) < 0 ||
        aril__slide_padding(what, n, opts->padding, opts->padding_end, a.pad) < 0 ||
        aril__slide_extra(what, "output_padding", n, opts->output_padding, a.output_padding) < 0)
        return aril__poison();
    if (opts->mode == ARIL_SAME || opts->mode == ARIL_SAME_LOWER) {
        aril__fail(ARIL_ERR_ARG, "%s: 'same' padding is only for convolutions; give numbers", what);
        return aril__poison();
    }
    if (opts->mode == ARIL_VALID) memset(a.pad, 0, sizeof a.pad);
    x = aril__slide_batched(what, x, n, &single);
    if (!x) return aril__poison();
    return aril__slide_unbatched(aril__op_with(&a, &aril__op_conv_transpose, x, w, b), single);
}

aril_tensor *aril_conv_transpose1d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                   aril_conv_opts opts)
{
    return conv_transpose_nd("conv_transpose1d", 1, x, w, b, &opts);
}

aril_tensor *aril_conv_transpose2d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                   aril_conv_opts opts)
{
    return conv_transpose_nd("conv_transpose2d", 2, x, w, b, &opts);
}

aril_tensor *aril_conv_transpose3d(aril_tensor *x, aril_tensor *w, aril_tensor *b,
                                   aril_conv_opts opts)
{
    return conv_transpose_nd("conv_transpose3d", 3, x, w, b, &opts);
}
