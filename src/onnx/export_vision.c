/* Rows of convolution, pooling and resampling. */
#include "onnx/export_rules.h"
#include "ops/linalg/matmul.h"
#include "ops/vision/conv.h"
#include "ops/vision/grid_sample.h"
#include "ops/vision/pool.h"
#include "ops/vision/resample.h"
#include "ops/vision/unfold.h"

#include <stdlib.h>
#include <string.h>

/* ---- windows ---- */

/* The padding of a window in spatial dimension i, also where it follows from the input's size. */
static void padding(const int64_t *pad, int64_t same, aril__slide w, int i, int64_t in,
                    int64_t *begin, int64_t *end)
{
    *begin = pad[2 * i];
    *end = pad[2 * i + 1];
    if (!same) return;
    aril__slide_same(&w, in, same);
    *begin = w.begin;
    *end = w.end;
}

static void conv_padding(const export_call *c, const struct conv_attrs *a, int x, int w,
                         int64_t *pads)
{
    int n = ndim_in(c, x) - 2;
    for (int i = 0; i < n; i++) {
        aril__slide s = { .kernel = dims_in(c, w)[2 + i],
                          .stride = a->stride[i],
                          .dilation = a->dilation[i] };
        padding(a->pad, a->same[0], s, i, dims_in(c, x)[2 + i], &pads[i], &pads[n + i]);
    }
}

/* Padding that depends on a size which only the run knows. */
static bool pads_unknown(const export_call *c, int64_t same, int x)
{
    return same && !aril__export_known(ndim_in(c, x) - 2, dims_in(c, x) + 2);
}

/* Negative padding crops the input, by operators of their own; or, `back`, puts zeros around the
 * result. The padding that is left is what convolutions take. */
static export_value *cropped(export_call *c, export_value *x, int n, int64_t *pads, bool back)
{
    int64_t by[2 * ARIL_MAX_DIMS] = { 0 };
    bool any = false;
    for (int i = 0; i < 2 * n; i++) {
        if (pads[i] >= 0) continue;
        by[i < n ? 2 + i : 4 + i] = -pads[i];
        pads[i] = 0;
        any = true;
    }
    if (!any || !x) return x;
    if (back) return put(c, "Pad", VALUES(x, aril__export_ints(c, 2 * n + 4, by)), NO_ATTRS);
    for (int i = 0; i < n; i++) {
        int64_t begin = by[2 + i], end = by[n + 4 + i];
        if (begin || end) x = aril__export_slice(c, x, 2 + i, begin, end ? -end : INT64_MAX, 1);
    }
    return x;
}

/* Output padding is padding that is taken away again: where onnxruntime would refuse it. */
static void spare_output_padding(int n, const int64_t *stride, int64_t *pads, int64_t *more)
{
    for (int i = 0; i < n; i++) {
        if (more[i] < stride[i]) continue;
        pads[n + i] -= more[i];
        more[i] = 0;
    }
}

/* ---- convolution ---- */

/* The attributes of a convolution, and the numbers that they list. */
typedef struct conv_list {
    int64_t pads[6], kernel[3];
    export_attr attr[5];
    int n;
} conv_list;

/* The input of a convolution; fills in its attributes. */
static export_value *conv_input(export_call *c, conv_list *l)
{
    const struct conv_attrs *a = c->attrs;
    int n = ndim_in(c, 0) - 2;
    int64_t *pads = l->pads, *kernel = l->kernel;
    export_attr *attr = l->attr;
    for (int i = 0; i < n; i++) kernel[i] = dims_in(c, 1)[2 + i];
    bool open = !aril__export_known(n, kernel);
    bool automatic = a->same[0] && (open || pads_unknown(c, a->same[0], 0));
    memset(pads, 0, sizeof l->pads);
    if (!automatic) conv_padding(c, a, 0, 1, pads);
    export_value *x = cropped(c, aril__export_in(c, 0), n, pads, false);
    int k = 0;
    attr[k++] = attr_ints("strides", n, a->stride);
    attr[k++] = attr_ints("dilations", n, a->dilation);
    attr[k++] = attr_int("group", a->groups[0]);
    attr[k++] = automatic ? attr_text("auto_pad",
                                      a->same[0] == ARIL__SAME_LOWER ? "SAME_LOWER" : "SAME_UPPER")
                          : attr_ints("pads", 2 * n, pads);
    if (!open) attr[k++] = attr_ints("kernel_shape", n, kernel); /* else that of the weights */
    l->n = k;
    return x;
}

static aril_status conv(export_call *c)
{
    const struct conv_attrs *a = c->attrs;
    conv_list l;
    export_value *x = conv_input(c, &l), *w = aril__export_in(c, 1);
    export_value *y = put(c, "Conv", VALUES(x, w, has(c, 2) ? aril__export_in(c, 2) : NULL),
                          (export_attrs){ l.n, l.attr });
    return set_out(c, 0, aril__export_activation(c, y, a->activation[0]));
}

static aril_status conv_integer(export_call *c)
{
    conv_list l;
    export_value *x = conv_input(c, &l);
    return aril__export_integer(c, "ConvInteger", "QLinearConv", x, (export_attrs){ l.n, l.attr });
}

/* Negative padding adds to the result, to which the bias is added then. */
static aril_status conv_transpose(export_call *c)
{
    const struct conv_transpose_attrs *a = c->attrs;
    int n = ndim_in(c, 0) - 2;
    int64_t pads[6], whole[6], more[3], channels[ARIL_MAX_DIMS];
    bool wider = false;
    for (int i = 0; i < n; i++) {
        pads[i] = a->pad[2 * i];
        pads[n + i] = a->pad[2 * i + 1];
        more[i] = a->output_padding[i];
        channels[1 + i] = 1;
    }
    spare_output_padding(n, a->stride, pads, more);
    for (int i = 0; i < 2 * n; i++) wider |= pads[i] < 0;
    memcpy(whole, pads, sizeof whole);
    cropped(c, NULL, n, pads, true);
    export_value *b = has(c, 2) ? aril__export_in(c, 2) : NULL;
    export_value *y =
        put(c, "ConvTranspose",
            VALUES(aril__export_in(c, 0), aril__export_in(c, 1), wider ? NULL : b),
            ATTRIBUTES(attr_ints("strides", n, a->stride), attr_ints("dilations", n, a->dilation),
                       attr_ints("pads", 2 * n, pads), attr_int("group", a->groups[0]),
                       attr_ints("output_padding", n, more)));
    y = cropped(c, y, n, whole, true);
    channels[0] = dims_out(c, 0)[1];
    if (wider && b)
        y = put(c, "Add", VALUES(y, aril__export_reshape(c, b, 1 + n, channels)), NO_ATTRS);
    return set_out(c, 0, aril__export_activation(c, y, a->activation[0]));
}

static bool spatial_known(const export_call *c, int i)
{
    return aril__export_known(ndim_in(c, i) - 2, dims_in(c, i) + 2);
}

static bool dgrad_known(const export_call *c)
{
    return spatial_known(c, 0) && spatial_known(c, 2);
}

/* g, w, x: transposed convolution to the size of x. */
static aril_status conv_dgrad(export_call *c)
{
    const struct conv_attrs *a = c->attrs;
    int n = ndim_in(c, 0) - 2;
    int64_t pads[6], more[3];
    conv_padding(c, a, 2, 1, pads);
    for (int i = 0; i < n; i++) {
        int64_t span = (dims_in(c, 1)[2 + i] - 1) * a->dilation[i] + 1;
        int64_t size = (dims_in(c, 0)[2 + i] - 1) * a->stride[i] + span - pads[i] - pads[n + i];
        more[i] = dims_in(c, 2)[2 + i] - size;
        if (more[i] < 0) { /* windows that overhang */
            pads[n + i] -= more[i];
            more[i] = 0;
        }
    }
    int64_t whole[6];
    spare_output_padding(n, a->stride, pads, more);
    memcpy(whole, pads, sizeof whole);
    cropped(c, NULL, n, pads, true); /* only to find what is left */
    export_value *y =
        put(c, "ConvTranspose", VALUES(aril__export_in(c, 0), aril__export_in(c, 1)),
            ATTRIBUTES(attr_ints("strides", n, a->stride), attr_ints("dilations", n, a->dilation),
                       attr_ints("pads", 2 * n, pads), attr_int("group", a->groups[0]),
                       attr_ints("output_padding", n, more)));
    return set_out(c, 0, cropped(c, y, n, whole, true));
}

/* Channels by groups: [N, G * C, ...] as [C, G * N, ...]. */
static export_value *groups_first(export_call *c, export_value *x, int n, const int64_t *dim,
                                  int64_t groups)
{
    int perm[ARIL_MAX_DIMS];
    int64_t split[ARIL_MAX_DIMS] = { dim[0], groups, dim[1] / groups },
            joined[ARIL_MAX_DIMS] = { dim[1] / groups, groups * dim[0] };
    for (int d = 2; d < n; d++) split[d + 1] = joined[d] = dim[d];
    if (dim[0] < 0) joined[1] = -1;
    for (int d = 0; d <= n; d++) perm[d] = d;
    perm[0] = 2, perm[1] = 1, perm[2] = 0;
    x = aril__export_reshape(c, x, n + 1, split);
    return aril__export_reshape(c, aril__export_transpose(c, x, n + 1, perm), n, joined);
}

/* g, x, w: a convolution of x by g, in which samples are channels, and steps and dilations change
 * places. */
static aril_status conv_wgrad(export_call *c)
{
    const struct conv_attrs *a = c->attrs;
    int n = ndim_in(c, 1) - 2, swap[ARIL_MAX_DIMS] = { 1, 0, 2, 3, 4 };
    int64_t pads[6], whole[6], cut[ARIL_MAX_DIMS];
    conv_padding(c, a, 1, 2, whole);
    memcpy(pads, whole, sizeof pads);
    memcpy(cut, dims_in(c, 1), (size_t)(n + 2) * sizeof *cut);
    for (int i = 0; i < 2 * n; i++) cut[2 + i % n] += whole[i] < 0 ? whole[i] : 0;
    export_value *x = cropped(c, aril__export_in(c, 1), n, pads, false);
    export_value *g = aril__export_in(c, 0);
    x = a->groups[0] > 1 ? groups_first(c, x, n + 2, cut, a->groups[0])
                         : aril__export_transpose(c, x, n + 2, swap);
    g = aril__export_transpose(c, g, n + 2, swap);
    export_value *y =
        put(c, "Conv", VALUES(x, g),
            ATTRIBUTES(attr_ints("strides", n, a->dilation), attr_ints("dilations", n, a->stride),
                       attr_ints("pads", 2 * n, pads), attr_int("group", a->groups[0])));
    for (int i = 0; i < n; i++) { /* positions beyond the kernel */
        int64_t kernel = dims_in(c, 2)[2 + i], span = (dims_in(c, 0)[2 + i] - 1) * a->stride[i] + 1;
        int64_t size = (dims_in(c, 1)[2 + i] + whole[i] + whole[n + i] - span) / a->dilation[i] + 1;
        if (size > kernel) y = aril__export_slice(c, y, 2 + i, 0, kernel, 1);
    }
    return set_out(c, 0, aril__export_transpose(c, y, n + 2, swap));
}

static bool wgrad_known(const export_call *c)
{
    bool groups = ((const struct conv_attrs *)c->attrs)->groups[0] > 1;
    return spatial_known(c, 0) && spatial_known(c, 1) && (!groups || dims_in(c, 1)[1] >= 0);
}

/* ---- pooling ---- */

/* Padding at the end with which a pool whose number of windows is rounded up has as many without
 * that; false: not all sizes are known, or the padding would be as large as a kernel. */
static bool pads_without_ceil(const export_call *c, int64_t *pads)
{
    const struct pool_attrs *a = c->attrs;
    int n = ndim_in(c, 0) - 2;
    int64_t to[ARIL_MAX_DIMS];
    for (int i = 0; i < n; i++) {
        int64_t size = dims_in(c, 0)[2 + i], windows = dims_out(c, 0)[2 + i];
        int64_t last = (windows - 1) * a->stride[i] + (a->kernel[i] - 1) * a->dilation[i] + 1;
        if (size < 0 || windows < 0) return false;
        to[i] = last - size - pads[i] > 0 ? last - size - pads[i] : 0;
        if (to[i] >= a->kernel[i]) return false;
    }
    for (int i = 0; i < n; i++) pads[n + i] = to[i];
    return true;
}

static int pool_attrs(const export_call *c, export_attr *to, int64_t *pads, bool average)
{
    const struct pool_attrs *a = c->attrs;
    int n = ndim_in(c, 0) - 2, k = 0;
    bool dilated = false;
    for (int i = 0; i < n; i++) {
        aril__slide s = { .kernel = a->kernel[i],
                          .stride = a->stride[i],
                          .dilation = a->dilation[i] };
        padding(a->pad, a->same[0], s, i, dims_in(c, 0)[2 + i], &pads[i], &pads[n + i]);
        dilated |= a->dilation[i] != 1;
    }
    /* Before 22, windows that begin in the padding at the end count for ONNX's shape inference. */
    bool ceil = a->ceil[0] && !(c->opset < 22 && pads_without_ceil(c, pads));
    to[k++] = attr_ints("kernel_shape", n, a->kernel);
    to[k++] = attr_ints("strides", n, a->stride);
    to[k++] =
        pads_unknown(c, a->same[0], 0)
            ? attr_text("auto_pad", a->same[0] == ARIL__SAME_LOWER ? "SAME_LOWER" : "SAME_UPPER")
            : attr_ints("pads", 2 * n, pads);
    if (ceil) to[k++] = attr_int("ceil_mode", 1);
    if (dilated) to[k++] = attr_ints("dilations", n, a->dilation);
    if (average && a->include_pad[0]) to[k++] = attr_int("count_include_pad", 1);
    return k;
}

/* The indices of ONNX count through the whole tensor. */
static aril_status max_pool(export_call *c)
{
    export_attr attr[8];
    int64_t pads[6];
    aril_dtype type = dtype_in(c, 0);
    aril_dtype wide = aril__export_wide(type, DT_FLOAT | DT(ARIL_U8) | DT(ARIL_I8));
    export_attrs attrs = { pool_attrs(c, attr, pads, false), attr };
    bool indices = c->n_out > 1 && aril__export_wanted(c, 1);
    export_value *y[2], *x = aril__export_in_as(c, 0, wide);
    aril__export_node(c->graph, "MaxPool", VALUES(x), attrs, indices ? 2 : 1, y);
    aril_status s = set_out(c, 0, aril__export_cast(c, y[0], wide, type));
    if (!indices || s < 0) return s;
    int64_t area = 1;
    export_value *open = NULL;
    for (int d = 2; d < ndim_in(c, 0); d++) {
        const int64_t *size = &dims_in(c, 0)[d];
        export_value *one = *size < 0 ? aril__export_sizes(c, 1, size) : NULL;
        if (*size >= 0) area *= *size;
        if (one) open = open ? put(c, "Mul", VALUES(open, one), NO_ATTRS) : one;
    }
    export_value *all = aril__export_int1(c, area);
    if (open) all = area == 1 ? open : put(c, "Mul", VALUES(open, all), NO_ATTRS);
    return set_out(c, 1, put(c, "Mod", VALUES(y[1], all), NO_ATTRS));
}

static bool has_no_dilation(const export_call *c)
{
    const struct pool_attrs *a = c->attrs;
    bool plain = c->opset >= 19;
    return plain || (a->dilation[0] == 1 && a->dilation[1] == 1 && a->dilation[2] == 1);
}

/* Windows that overhang are counted in different ways. */
static bool is_plain_average(const export_call *c)
{
    const struct pool_attrs *a = c->attrs;
    return has_no_dilation(c) && !a->ceil[0] && (!a->divisor[0] || a->include_pad[0]);
}

static aril_status avg_pool(export_call *c)
{
    const struct pool_attrs *a = c->attrs;
    export_attr attr[8];
    int64_t pads[6], size = 1;
    aril_dtype type = dtype_out(c, 0);
    if (!aril__is_float(type)) return ARIL__EXPORT_DECLINED;
    export_attrs attrs = { pool_attrs(c, attr, pads, true), attr };
    export_value *y = put(c, "AveragePool", VALUES(aril__export_in(c, 0)), attrs);
    for (int i = 0; i < ndim_in(c, 0) - 2; i++) size *= a->kernel[i];
    if (a->divisor[0] && a->divisor[0] != size)
        y = put(c, "Mul",
                VALUES(y, aril__export_number(c, (double)size / (double)a->divisor[0], type)),
                NO_ATTRS);
    return set_out(c, 0, y);
}

/* ---- separable ops ----
 *
 * Averages and interpolation are linear along each dimension. The matrix of a dimension is what the
 * op makes of an identity matrix. */

/* The attributes of an op for its spatial dimension i alone. */
static void attrs_along(const aril__op *op, const void *attrs, int i, void *to)
{
    memcpy(to, attrs, op->attr_size);
    if (op == &aril__op_interpolate) {
        struct interpolate_attrs *a = to;
        a->size[0] = a->size[i];
        a->scale[0] = a->scale[i];
        return;
    }
    struct pool_attrs *a = to;
    a->kernel[0] = a->kernel[i];
    a->stride[0] = a->stride[i];
    a->dilation[0] = a->dilation[i];
    a->size[0] = a->size[i];
    a->pad[0] = a->pad[2 * i];
    a->pad[1] = a->pad[2 * i + 1];
    if (i > 0) a->divisor[0] = a->divisor[0] ? 1 : 0;
}

/* [in, out] along spatial dimension i, of an image of size `in`. */
static aril_tensor *matrix_along(const aril__op *op, const void *attrs, int i, int64_t in,
                                 aril_dtype dtype)
{
    union {
        struct interpolate_attrs interpolate;
        struct pool_attrs pool;
    } own;
    attrs_along(op, attrs, i, &own);
    aril__pause p = aril__trace_pause();
    aril_tensor *eye = aril_unsqueeze(aril_eye(in, in, ARIL_F64, aril_cpu()), 0); /* [1,in,in] */
    aril_tensor *m = aril_squeeze(aril__op_with(&own, op, eye), ARIL_AXES(0));
    m = aril_cast(m, dtype);
    aril__trace_resume(p);
    return m;
}

/* x times the matrix of each spatial dimension, or their transposes. */
static aril_tensor *by_matrices(const aril__op *op, const void *attrs, aril_tensor *x,
                                const int64_t *in, bool back)
{
    for (int i = 0; i < x->ndim - 2; i++) {
        aril_tensor *m = matrix_along(op, attrs, i, in[2 + i], (aril_dtype)x->dtype);
        aril_tensor *line = aril_transpose(x, 2 + i, -1);
        x = aril_transpose(aril_matmul(line, back ? aril_t(m) : m), 2 + i, -1);
    }
    return x;
}

static void separable(aril__call *c, aril_tensor **out)
{
    out[0] = by_matrices(c->op, c->attrs, c->in[0], c->in[0]->dim, false);
}

static void interpolate_grad(aril__call *c, aril_tensor **out)
{
    out[0] = by_matrices(&aril__op_interpolate, c->attrs, c->in[0], c->in[1]->dim, true);
}

static void avg_pool_grad(aril__call *c, aril_tensor **out)
{
    out[0] = by_matrices(&aril__op_avg_pool, c->attrs, c->in[0], c->in[1]->dim, true);
}

static void adaptive_avg_pool_grad(aril__call *c, aril_tensor **out)
{
    out[0] = by_matrices(&aril__op_adaptive_avg_pool, c->attrs, c->in[0], c->in[1]->dim, true);
}

static bool sizes_known(const export_call *c)
{
    return spatial_known(c, 0) && (c->n_in < 2 || spatial_known(c, 1));
}

/* ---- adaptive pooling ---- */

static bool is_global(const export_call *c)
{
    for (int d = 2; d < ndim_out(c, 0); d++)
        if (dims_out(c, 0)[d] != 1) return false;
    return aril__is_float(dtype_in(c, 0));
}

static aril_status global_average(export_call *c)
{
    return set_out(c, 0, put(c, "GlobalAveragePool", VALUES(aril__export_in(c, 0)), NO_ATTRS));
}

static bool is_global_maximum(const export_call *c)
{
    return is_global(c) && !aril__export_wanted(c, 1);
}

static aril_status global_maximum(export_call *c)
{
    return set_out(c, 0, put(c, "GlobalMaxPool", VALUES(aril__export_in(c, 0)), NO_ATTRS));
}

/* Windows of one size, side by side. */
static bool is_even(const export_call *c)
{
    for (int d = 2; d < ndim_in(c, 0); d++) {
        int64_t in = dims_in(c, 0)[d], out = dims_out(c, 0)[d];
        if (in <= 0 || out <= 0 || in % out != 0) return false;
    }
    return aril__is_float(dtype_in(c, 0));
}

static void even_windows(const aril__call *c, struct pool_attrs *a)
{
    *a = (struct pool_attrs){ .dilation = { 1, 1, 1 }, .include_pad = { 1 } };
    for (int i = 0; i < c->in[0]->ndim - 2; i++)
        a->kernel[i] = a->stride[i] = c->in[0]->dim[2 + i] / c->out[0].dim[2 + i];
}

static void even_average(aril__call *c, aril_tensor **out)
{
    struct pool_attrs a;
    even_windows(c, &a);
    out[0] = aril__op_with(&a, &aril__op_avg_pool, c->in[0]);
}

static void even_maximum(aril__call *c, aril_tensor **out)
{
    struct pool_attrs a;
    even_windows(c, &a);
    aril__apply(&aril__op_max_pool, 1, c->in, &a, out);
}

/* Windows of different sizes, of which the smaller ones repeat an element. */
static void uneven_maximum(aril__call *c, aril_tensor **out)
{
    const aril_tensor *x = c->in[0];
    int n = x->ndim - 2;
    int64_t count = 1, most = 1;
    for (int i = 0; i < n; i++) {
        count *= c->out[0].dim[2 + i];
        most *= x->dim[2 + i] / c->out[0].dim[2 + i] + 2;
    }
    int64_t *at = aril__calloc((size_t)(count * most) * sizeof *at);
    for (int64_t o = 0; at && o < count; o++) {
        aril__taps t[3];
        int64_t rest = o, taps = 1;
        for (int i = n - 1; i >= 0; i--) {
            int64_t size = c->out[0].dim[2 + i];
            t[i] = aril__pool_taps(NULL, x->dim[2 + i], size, rest % size);
            rest /= size;
            taps *= t[i].n;
        }
        for (int64_t k = 0; k < most; k++) {
            int64_t tap = k < taps ? k : 0, scale = 1, place = 0;
            for (int i = n - 1; i >= 0; i--) {
                place += (t[i].first + tap % t[i].n * t[i].step) * scale;
                tap /= t[i].n;
                scale *= x->dim[2 + i];
            }
            at[o * most + k] = place;
        }
    }
    aril__pause p = aril__trace_pause();
    aril_tensor *index =
        at ? aril_from(at, ARIL_SHAPE(count, most), ARIL_I64, aril_cpu()) : aril__poison();
    aril__trace_resume(p);
    free(at);
    aril_tensor *flat = aril_flatten(c->in[0], 2, -1); /* [N,C,area] */
    aril_tensor *picks = aril_reshape(index, ARIL_SHAPE(-1));
    aril_tensor *all = aril_reshape(aril_index_select(flat, picks, 2),
                                    ARIL_SHAPE(x->dim[0], x->dim[1], count, most));
    aril_tensor *which, *y = aril_max(all, ARIL_AXES(3), &which);
    aril_shape like = { .ndim = x->ndim };
    for (int d = 0; d < x->ndim; d++) like.dim[d] = c->out[0].dim[d];
    out[0] = aril_reshape(y, like);
    aril_tensor *places = aril_expand(index, ARIL_SHAPE(x->dim[0], x->dim[1], count, most));
    aril_tensor *picked = aril_gather(places, aril_unsqueeze(which, -1), -1);
    out[1] = aril_reshape(picked, like);
}

/* ---- by indices ---- */

static void flat_size(const aril_tensor *x, aril_shape *flat, aril_shape *whole)
{
    *flat = ARIL_SHAPE(x->dim[0], x->dim[1], 1);
    *whole = (aril_shape){ .ndim = x->ndim };
    for (int d = 0; d < x->ndim; d++) {
        whole->dim[d] = x->dim[d];
        if (d >= 2) flat->dim[2] *= x->dim[d];
    }
}

/* Windows that overlap may pick an element twice. */
static void max_pool_grad(aril__call *c, aril_tensor **out)
{
    aril_shape flat, whole;
    flat_size(c->in[2], &flat, &whole);
    aril_tensor *zeros = aril_zeros(flat, (aril_dtype)c->in[0]->dtype, aril_cpu());
    aril_tensor *g = aril_flatten(c->in[0], 2, -1), *at = aril_flatten(c->in[1], 2, -1);
    out[0] = aril_reshape(aril_scatter_add(zeros, at, g, 2), whole);
}

static void max_pool_pick(aril__call *c, aril_tensor **out)
{
    aril_tensor *x = aril_flatten(c->in[0], 2, -1), *at = aril_flatten(c->in[1], 2, -1);
    aril_shape like = { .ndim = c->in[1]->ndim };
    memcpy(like.dim, c->in[1]->dim, sizeof like.dim);
    out[0] = aril_reshape(aril_gather(x, at, 2), like);
}

static void max_unpool(aril__call *c, aril_tensor **out)
{
    aril_shape flat, whole = { .ndim = c->out[0].ndim };
    memcpy(whole.dim, c->out[0].dim, sizeof whole.dim);
    flat = ARIL_SHAPE(whole.dim[0], whole.dim[1], 1);
    for (int d = 2; d < whole.ndim; d++) flat.dim[2] *= whole.dim[d];
    aril_tensor *zeros = aril_zeros(flat, (aril_dtype)c->in[0]->dtype, aril_cpu());
    aril_tensor *x = aril_flatten(c->in[0], 2, -1), *at = aril_flatten(c->in[1], 2, -1);
    out[0] = aril_reshape(aril_scatter(zeros, at, x, 2), whole);
}

static bool planes_known(const export_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (has(c, i) && !spatial_known(c, i)) return false;
    return true;
}

/* ---- columns ----
 *
 * A convolution whose kernels have a single 1 picks the elements of windows. */

static aril_tensor *picking_kernels(int64_t channels, const int64_t *kernel, aril_dtype dtype)
{
    int64_t taps = kernel[0] * kernel[1];
    aril__pause p = aril__trace_pause();
    aril_tensor *one = aril_reshape(aril_eye(taps, taps, dtype, aril_cpu()),
                                    ARIL_SHAPE(1, taps, 1, kernel[0], kernel[1]));
    aril_tensor *all =
        aril_reshape(aril_expand(one, ARIL_SHAPE(channels, taps, 1, kernel[0], kernel[1])),
                     ARIL_SHAPE(channels * taps, 1, kernel[0], kernel[1]));
    aril__trace_resume(p);
    return all;
}

static struct conv_attrs picking(const struct unfold_attrs *a, int64_t channels)
{
    struct conv_attrs to = { .stride = { a->stride[0], a->stride[1], 1 },
                             .dilation = { a->dilation[0], a->dilation[1], 1 },
                             .groups = { channels } };
    memcpy(to.pad, a->pad, sizeof a->pad);
    return to;
}

static void unfold(aril__call *c, aril_tensor **out)
{
    const struct unfold_attrs *a = c->attrs;
    int64_t channels = c->in[0]->dim[1];
    struct conv_attrs by = picking(a, channels);
    aril_tensor *w = picking_kernels(channels, a->kernel, (aril_dtype)c->in[0]->dtype);
    out[0] = aril_flatten(aril__op_with(&by, &aril__op_conv, c->in[0], w), 2, -1);
}

/* Back to an image [N,C,H,W]. */
static aril_tensor *folded(const struct unfold_attrs *a, aril_tensor *u, int64_t channels,
                           int64_t h, int64_t w)
{
    int64_t size[2] = { h, w }, count[2];
    struct conv_attrs by = picking(a, channels);
    for (int i = 0; i < 2; i++) {
        aril__slide s = { a->kernel[i],      a->stride[i],   a->pad[2 * i],
                          a->pad[2 * i + 1], a->dilation[i], false };
        count[i] = aril__slide_count(&s, size[i]);
    }
    aril_tensor *kernels = picking_kernels(channels, a->kernel, (aril_dtype)u->dtype);
    aril_tensor *g = aril_reshape(u, ARIL_SHAPE(u->dim[0], u->dim[1], count[0], count[1]));
    aril_tensor *like =
        aril_zeros(ARIL_SHAPE(u->dim[0], channels, h, w), (aril_dtype)u->dtype, aril_cpu());
    return aril__op_with(&by, &aril__op_conv_dgrad, g, kernels, like);
}

static void fold(aril__call *c, aril_tensor **out)
{
    const struct unfold_attrs *a = c->attrs;
    int64_t channels = c->in[0]->dim[1] / (a->kernel[0] * a->kernel[1]);
    out[0] = folded(a, c->in[0], channels, a->size[0], a->size[1]);
}

static void unfold_grad(aril__call *c, aril_tensor **out)
{
    const aril_tensor *x = c->in[1];
    out[0] = folded(c->attrs, c->in[0], x->dim[1], x->dim[2], x->dim[3]);
}

/* ---- resampling ---- */

static bool resizes_alike(const export_call *c)
{
    const struct interpolate_attrs *a = c->attrs;
    for (int d = 0; d < ndim_out(c, 0); d++)
        if (dims_out(c, 0)[d] == 0) return false;
    return !a->antialias[0] && spatial_known(c, 0);
}

/* Scales are given as they were, as sampling positions follow from them. */
static aril_status interpolate(export_call *c)
{
    const struct interpolate_attrs *a = c->attrs;
    static const char *const mode[] = { "nearest", "nearest", "linear", "cubic" };
    int n = ndim_in(c, 0), k = 0;
    bool nearest = a->mode[0] <= ARIL_NEAREST_EXACT, scales = true;
    const char *at = a->align_corners[0]          ? "align_corners"
                     : a->mode[0] == ARIL_NEAREST ? "asymmetric"
                                                  : "half_pixel";
    float scale[ARIL_MAX_DIMS] = { 1, 1 };
    for (int i = 0; i < n - 2; i++) {
        scale[2 + i] = (float)a->scale[i];
        scales &= a->scale[i] > 0;
    }
    export_attr attr[6] = { attr_text("mode", mode[a->mode[0]]),
                            attr_text("coordinate_transformation_mode", at) };
    k = 2;
    if (nearest)
        attr[k++] =
            attr_text("nearest_mode", a->mode[0] == ARIL_NEAREST ? "floor" : "round_prefer_ceil");
    if (a->mode[0] == ARIL_CUBIC) attr[k++] = attr_float("cubic_coeff_a", -0.75);
    ARIL_SCOPE;
    export_value *sizes = NULL, *factors = NULL;
    if (scales)
        factors =
            aril__export_constant(c->model, aril_from(scale, ARIL_SHAPE(n), ARIL_F32, aril_cpu()));
    else
        sizes = aril__export_sizes(c, n, dims_out(c, 0));
    return set_out(c, 0,
                   put(c, "Resize", VALUES(aril__export_in(c, 0), NULL, factors, sizes),
                       (export_attrs){ k, attr }));
}

static aril_status grid_sample(export_call *c)
{
    static const char *const now[] = { "linear", "nearest", "cubic" };
    static const char *const before[] = { "bilinear", "nearest", "bicubic" };
    static const char *const outside[] = { "zeros", "border", "reflection" };
    const struct grid_sample_attrs *a = c->attrs;
    const char *mode = (c->opset >= 20 ? now : before)[a->mode[0]];
    return set_out(c, 0,
                   put(c, "GridSample", VALUES(aril__export_in(c, 0), aril__export_in(c, 1)),
                       ATTRIBUTES(attr_text("mode", mode),
                                  attr_text("padding_mode", outside[a->padding[0]]),
                                  attr_int("align_corners", a->align_corners[0]))));
}

/* ---- rows ---- */

#define WHEN(op_, from_, onnx_, fn, test)                                   \
    {                                                                       \
        .op = op_, .from = from_, .onnx = onnx_, .write = fn, .takes = test \
    }
#define LOWER_WHEN(op_, fn, test)                         \
    {                                                     \
        .op = op_, .from = 13, .lower = fn, .takes = test \
    }

const export_rule aril__export_vision_rules[] = {
    WRITE("conv", 13, "Conv", conv),
    WRITE("conv_transpose", 13, "ConvTranspose", conv_transpose),
    WHEN("conv_dgrad", 13, "ConvTranspose", conv_dgrad, dgrad_known),
    WHEN("conv_wgrad", 13, "Conv", conv_wgrad, wgrad_known),
    { .op = "conv_integer",
      .from = 13,
      .onnx = "ConvInteger",
      .write = conv_integer,
      .takes = aril__export_integer_takes },
    WRITE("max_pool", 13, "MaxPool", max_pool),
    LOWER_WHEN("max_pool_grad", max_pool_grad, planes_known),
    LOWER_WHEN("max_pool_pick", max_pool_pick, planes_known),
    LOWER_WHEN("max_unpool", max_unpool, planes_known),
    WHEN("avg_pool", 13, "AveragePool", avg_pool, is_plain_average),
    LOWER_WHEN("avg_pool", separable, sizes_known),
    LOWER_WHEN("avg_pool_grad", avg_pool_grad, sizes_known),
    WHEN("adaptive_avg_pool", 13, "GlobalAveragePool", global_average, is_global),
    LOWER_WHEN("adaptive_avg_pool", even_average, is_even),
    LOWER_WHEN("adaptive_avg_pool", separable, sizes_known),
    LOWER_WHEN("adaptive_avg_pool_grad", adaptive_avg_pool_grad, sizes_known),
    WHEN("adaptive_max_pool", 13, "GlobalMaxPool", global_maximum, is_global_maximum),
    LOWER_WHEN("adaptive_max_pool", even_maximum, is_even),
    LOWER_WHEN("adaptive_max_pool", uneven_maximum, sizes_known),
    LOWER("unfold", unfold),
    LOWER("fold", fold),
    LOWER("unfold_grad", unfold_grad),
    WHEN("interpolate", 13, "Resize", interpolate, resizes_alike),
    LOWER_WHEN("interpolate", separable, sizes_known),
    LOWER_WHEN("interpolate_grad", interpolate_grad, sizes_known),
    WRITE("grid_sample", 16, "GridSample", grid_sample),
    { .op = NULL },
};
