/* Convolution, pooling, normalization. */
#include "onnx/rules.h"
#include "ops/vision/conv.h"

#include <inttypes.h>
#include <math.h>

/* ---- windows ---- */

/* The attributes that convolution and pooling share, one entry for each spatial dimension. */
typedef struct windows {
    int n;
    int64_t kernel[3], stride[3], dilation[3], before[3], after[3];
    aril_padding mode;
} windows;

static aril_status read_list(onnx_call *c, const char *name, int n, int64_t *to, int64_t otherwise)
{
    onnx_ints from = aril__onnx_attr_ints(c, name);
    for (int i = 0; i < n; i++) to[i] = from.n >= 0 && i < from.n ? from.at[i] : otherwise;
    if (from.n >= 0 && from.n != n)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "%s has %" PRId64 " entries, expected %d", name,
                               from.n, n);
    return ARIL_OK;
}

/* Zeros are given as ARIL_ZERO, since 0 means "like the first". */
static void put(int64_t *to, const int64_t *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = from[i] ? from[i] : ARIL_ZERO;
}

static aril_status read_windows(onnx_call *c, int n, windows *w)
{
    onnx_ints pads = aril__onnx_attr_ints(c, "pads");
    *w = (windows){ .n = n };
    if (n < 1 || n > 3) return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "%d spatial dimensions", n);
    aril_status s = read_list(c, "strides", n, w->stride, 1);
    if (s == ARIL_OK) s = read_list(c, "dilations", n, w->dilation, 1);
    if (s == ARIL_OK) s = read_list(c, "kernel_shape", n, w->kernel, 0);
    if (s < 0) return s;
    if (pads.n >= 0 && pads.n != 2 * n)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "pads has %" PRId64 " entries, expected %d", pads.n,
                               2 * n);
    for (int i = 0; i < n && pads.n > 0; i++) {
        w->before[i] = pads.at[i];
        w->after[i] = pads.at[n + i];
        if (w->before[i] < 0 || w->after[i] < 0)
            return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "negative padding");
    }
    for (int i = 0; i < n; i++) {
        if (w->stride[i] < 1 || w->dilation[i] < 1)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "strides and dilations must be positive");
        static const char *const names[] = { "kernel_shape", "strides", "dilations", "pads" };
        const int64_t largest[] = { w->kernel[i], w->stride[i], w->dilation[i],
                                    w->before[i] > w->after[i] ? w->before[i] : w->after[i] };
        for (int k = 0; k < 4; k++)
            if (largest[k] > INT32_MAX)
                return aril__onnx_fail(c, ARIL_ERR_ARG, "%s has %" PRId64 ", expected at most %d",
                                       names[k], largest[k], INT32_MAX);
    }
    const char *mode = aril__onnx_attr_text(c, "auto_pad", "NOTSET");
    w->mode = strcmp(mode, "SAME_UPPER") == 0   ? ARIL_SAME
              : strcmp(mode, "SAME_LOWER") == 0 ? ARIL_SAME_LOWER
              : strcmp(mode, "VALID") == 0      ? ARIL_VALID
                                                : ARIL_NUMBERS;
    return ARIL_OK;
}

/* Whether kernel_shape is that of the weights. */
static aril_status check_kernel(onnx_call *c, const windows *k, const aril_tensor *w)
{
    for (int i = 0; i < k->n && has_attr(c, "kernel_shape") && aril_ndim(w) == k->n + 2; i++)
        if (aril_size(w, i + 2) >= 0 && k->kernel[i] != aril_size(w, i + 2))
            return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                                   "kernel_shape says %" PRId64 ", the weights have %" PRId64,
                                   k->kernel[i], aril_size(w, i + 2));
    return ARIL_OK;
}

static aril_conv_opts conv_opts(const windows *w)
{
    aril_conv_opts o = { .mode = w->mode };
    put(o.stride, w->stride, w->n);
    put(o.dilation, w->dilation, w->n);
    if (w->mode == ARIL_NUMBERS) {
        put(o.padding, w->before, w->n);
        put(o.padding_end, w->after, w->n);
    }
    return o;
}

/* ---- convolution ---- */

aril_status aril__onnx_conv_attrs(onnx_call *c, int spatial, const aril_tensor *w,
                                  struct conv_attrs *to)
{
    windows k;
    aril_status s = read_windows(c, spatial, &k);
    if (s == ARIL_OK) s = check_kernel(c, &k, w);
    *to = (struct conv_attrs){ .groups = { aril__onnx_attr_int(c, "group", 1) } };
    for (int i = 0; i < 3; i++) {
        to->stride[i] = i < spatial ? k.stride[i] : 1;
        to->dilation[i] = i < spatial ? k.dilation[i] : 1;
        to->pad[2 * i] = i < spatial && k.mode == ARIL_NUMBERS ? k.before[i] : 0;
        to->pad[2 * i + 1] = i < spatial && k.mode == ARIL_NUMBERS ? k.after[i] : 0;
    }
    to->same[0] = k.mode == ARIL_SAME         ? ARIL__SAME_UPPER
                  : k.mode == ARIL_SAME_LOWER ? ARIL__SAME_LOWER
                                              : 0;
    return s;
}

static aril_status conv(onnx_call *c)
{
    static aril_tensor *(*const fn[])(aril_tensor *, aril_tensor *, aril_tensor *,
                                      aril_conv_opts) = { aril_conv1d, aril_conv2d, aril_conv3d };
    aril_tensor *x = in(c, 0), *w = in(c, 1), *b = in(c, 2);
    windows k;
    aril_status s = read_windows(c, aril_ndim(x) - 2, &k);
    if (s == ARIL_OK) s = check_kernel(c, &k, w);
    if (s < 0) return s;
    aril_conv_opts o = conv_opts(&k);
    o.groups = aril__onnx_attr_int(c, "group", 1);
    return give(c, 0, fn[k.n - 1](x, w, b, o));
}

/* The padding that gives the output sizes that are asked for. open[i] is such a size where that of
 * the input is open, so that only the run knows the padding; else -1. */
static aril_status transposed_pads(onnx_call *c, windows *k, const aril_tensor *x,
                                   const aril_tensor *w, const int64_t *extra, int64_t *open)
{
    onnx_ints sizes = aril__onnx_attr_ints(c, "output_shape");
    bool same = k->mode == ARIL_SAME || k->mode == ARIL_SAME_LOWER, upper = false;
    if (sizes.n >= 0 && sizes.n != k->n && sizes.n != k->n + 2)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "output_shape has %" PRId64 " entries", sizes.n);
    aril_status s = same || sizes.n >= 0 ? aril__onnx_known_sizes(c, w, 2) : ARIL_OK;
    for (int i = 0; i < k->n && (same || sizes.n >= 0) && s == ARIL_OK; i++) {
        open[i] = sizes.n >= 0 && aril_size(x, i + 2) < 0 ? sizes.at[sizes.n - k->n + i] : -1;
        if (open[i] >= 0) continue;
        int64_t full = (aril_size(x, i + 2) - 1) * k->stride[i] +
                       k->dilation[i] * (aril_size(w, i + 2) - 1) + 1 + extra[i];
        int64_t want =
            sizes.n >= 0 ? sizes.at[sizes.n - k->n + i] : aril_size(x, i + 2) * k->stride[i];
        int64_t total = full - want;
        /* What is missing is added at the end. */
        k->before[i] = total < 0 ? 0 : k->mode == ARIL_SAME ? total / 2 : total - total / 2;
        k->after[i] = total - k->before[i];
    }
    for (int i = 0; i < k->n; i++) upper |= open[i] >= 0 && k->mode == ARIL_SAME;
    if (!upper) k->mode = ARIL_NUMBERS;
    return s;
}

/* The part of a result of open sizes that has the sizes that are asked for. */
static aril_tensor *part_of(onnx_call *c, aril_tensor *y, int axis, int64_t want, bool upper)
{
    aril_device dev = aril__onnx_device(c);
    aril_tensor *total = aril_add_scalar(aril__onnx_size(dev, aril_size(y, axis)), -want);
    total = aril_maximum(total, aril_zeros_like(total));
    if (!upper) total = aril_add_scalar(total, 1);
    return aril__onnx_window(c, y, axis, aril_floor_div_scalar(total, 2), want);
}

static aril_status conv_transpose(onnx_call *c)
{
    static aril_tensor *(*const fn[])(aril_tensor *, aril_tensor *, aril_tensor *,
                                      aril_conv_opts) = { aril_conv_transpose1d,
                                                          aril_conv_transpose2d,
                                                          aril_conv_transpose3d };
    aril_tensor *x = in(c, 0), *w = in(c, 1), *b = in(c, 2);
    windows k;
    int64_t extra[3] = { 0 }, open[3] = { -1, -1, -1 };
    aril_status s = read_windows(c, aril_ndim(x) - 2, &k);
    if (s == ARIL_OK) s = read_list(c, "output_padding", k.n, extra, 0);
    if (s == ARIL_OK && aril_ndim(w) != k.n + 2)
        s = aril__onnx_fail(c, ARIL_ERR_SHAPE, "the weights do not fit");
    if (s == ARIL_OK) s = check_kernel(c, &k, w);
    if (s == ARIL_OK) s = transposed_pads(c, &k, x, w, extra, open);
    if (s < 0) return s;
    bool upper = k.mode == ARIL_SAME;
    k.mode = ARIL_NUMBERS;
    /* Computed without padding, then cropped, or enlarged by zeros. */
    windows plain = k;
    memset(plain.before, 0, sizeof plain.before);
    memset(plain.after, 0, sizeof plain.after);
    aril_conv_opts o = conv_opts(&plain);
    o.groups = aril__onnx_attr_int(c, "group", 1);
    bool simple = true;
    for (int i = 0; i < k.n; i++)
        simple &=
            k.before[i] >= 0 && k.before[i] == k.after[i] && extra[i] < k.stride[i] && open[i] < 0;
    if (simple) {
        put(o.padding, k.before, k.n);
        put(o.padding_end, k.after, k.n);
        put(o.output_padding, extra, k.n);
        return give(c, 0, fn[k.n - 1](x, w, b, o));
    }
    aril_tensor *y = fn[k.n - 1](x, w, NULL, o);
    aril_pads pads = { .n = 2 * k.n };
    for (int i = 0; i < k.n; i++) {
        pads.at[2 * (k.n - 1 - i)] = open[i] < 0 ? -k.before[i] : 0;
        pads.at[2 * (k.n - 1 - i) + 1] = extra[i] - (open[i] < 0 ? k.after[i] : 0);
    }
    y = aril_pad(y, pads, (aril_pad_opts){ 0 });
    for (int i = 0; i < k.n; i++)
        if (open[i] >= 0) y = part_of(c, y, 2 + i, open[i], upper);
    if (b) {
        for (int i = 0; i < k.n; i++) b = aril_unsqueeze(b, -1);
        y = aril_add(y, b);
    }
    return give(c, 0, y);
}

/* ---- pooling ---- */

static aril_pool_opts pool_opts(onnx_call *c, const windows *w)
{
    aril_pool_opts o = { .mode = w->mode,
                         .ceil_mode = aril__onnx_attr_int(c, "ceil_mode", 0) != 0 };
    put(o.kernel, w->kernel, w->n);
    put(o.stride, w->stride, w->n);
    put(o.dilation, w->dilation, w->n);
    if (w->mode == ARIL_NUMBERS) {
        put(o.padding, w->before, w->n);
        put(o.padding_end, w->after, w->n);
    }
    return o;
}

/* Indices within a channel become indices in the whole tensor. */
static aril_tensor *whole_indices(onnx_call *c, aril_tensor *at, aril_tensor *x, int n)
{
    aril_device dev = aril__onnx_device(c);
    int64_t plane = 1, channels = aril__onnx_times(aril_size(x, 0), aril_size(x, 1));
    for (int i = 0; i < n; i++) plane = aril__onnx_times(plane, aril_size(x, i + 2));
    if (aril__onnx_attr_int(c, "storage_order", 0)) { /* column-major */
        if (plane < 0) {
            aril__onnx_open_error(c);
            return NULL;
        }
        aril_tensor *rest = at, *column = NULL;
        int64_t scale = plane;
        for (int i = n - 1; i >= 0; i--) {
            int64_t size = aril_size(x, i + 2);
            scale /= size;
            aril_tensor *part = aril_mul_scalar(aril_remainder_scalar(rest, size), scale);
            column = column ? aril_add(column, part) : part;
            rest = aril_floor_div_scalar(rest, size);
        }
        at = column;
    }
    aril_tensor *base = aril_arange(0, channels, 1, ARIL_I64, dev);
    base = plane < 0 ? aril_mul(base, aril__onnx_size(dev, plane)) : aril_mul_scalar(base, plane);
    aril_shape shape = { .ndim = n + 2, .dim = { aril_size(x, 0), aril_size(x, 1), 1, 1, 1 } };
    return aril_add(at, aril_reshape(base, shape));
}

static aril_status max_pool(onnx_call *c)
{
    static aril_tensor *(*const fn[])(aril_tensor *, aril_pool_opts,
                                      aril_tensor **) = { aril_max_pool1d, aril_max_pool2d,
                                                          aril_max_pool3d };
    aril_tensor *x = in(c, 0), *at = NULL;
    windows w;
    aril_status s = read_windows(c, aril_ndim(x) - 2, &w);
    if (s < 0) return s;
    aril_tensor *f = aril_dtype_is_float(aril_dtype_of(x)) ? x : aril_cast(x, ARIL_F32);
    s = give(c, 0, like(fn[w.n - 1](f, pool_opts(c, &w), wanted(c, 1) ? &at : NULL), x));
    return s < 0 || !wanted(c, 1) ? s : give(c, 1, whole_indices(c, at, x, w.n));
}

static aril_tensor *(*const average_fn[])(aril_tensor *, aril_pool_opts) = { aril_avg_pool1d,
                                                                             aril_avg_pool2d,
                                                                             aril_avg_pool3d };

/* Sums of windows by convolution with ones: for dilated windows. Channels of an open number are
 * samples. */
static aril_tensor *dilated_sums(aril_tensor *x, const windows *w, aril_conv_opts o)
{
    static aril_tensor *(*const fn[])(aril_tensor *, aril_tensor *, aril_tensor *,
                                      aril_conv_opts) = { aril_conv1d, aril_conv2d, aril_conv3d };
    bool open = aril_size(x, 1) < 0;
    o.groups = open ? 1 : aril_size(x, 1);
    aril_shape kernel = { .ndim = w->n + 2, .dim = { o.groups, 1 } };
    for (int i = 0; i < w->n; i++) kernel.dim[i + 2] = w->kernel[i];
    aril_tensor *ones = aril_ones(kernel, aril_dtype_of(x), aril_device_of(x));
    if (!open) return fn[w->n - 1](x, ones, NULL, o);
    aril_shape whole = aril_shape_of(x), apart = whole;
    apart.dim[0] = aril__onnx_times(whole.dim[0], whole.dim[1]);
    apart.dim[1] = 1;
    aril_tensor *y = fn[w->n - 1](aril_reshape(x, apart), ones, NULL, o);
    for (int i = 0; i < w->n; i++) whole.dim[i + 2] = aril_size(y, i + 2);
    return aril_reshape(y, whole);
}

/* Whether the windows are dilated and none is larger than the image. Of one that is, a kernel for
 * convolution could be of any size. */
static bool is_dilated(const windows *w, const aril_tensor *x)
{
    bool dilated = false;
    for (int i = 0; i < w->n; i++) {
        int64_t size = aril_size(x, i + 2);
        if (size >= 0 && w->kernel[i] > size) return false;
        dilated |= w->dilation[i] != 1;
    }
    return dilated;
}

static aril_tensor *window_sums(onnx_call *c, aril_tensor *x, const windows *w)
{
    if (is_dilated(w, x)) return dilated_sums(x, w, conv_opts(w));
    aril_pool_opts o = pool_opts(c, w);
    o.ceil_mode = false; /* the padding has what it adds */
    o.divisor = 1;
    return average_fn[w->n - 1](x, o);
}

static bool pads_same(const windows *w)
{
    return w->mode == ARIL_SAME || w->mode == ARIL_SAME_LOWER;
}

/* With ceil_mode, windows may extend past the padded end: they are given that much more padding. */
static aril_status pad_for_ceil(onnx_call *c, const windows *w, const aril_tensor *x,
                                int64_t *beyond)
{
    bool ceil_mode = aril__onnx_attr_int(c, "ceil_mode", 0) != 0;
    memset(beyond, 0, 3 * sizeof *beyond);
    for (int i = 0; i < w->n && ceil_mode; i++) {
        int64_t size = aril_size(x, i + 2), span = w->dilation[i] * (w->kernel[i] - 1) + 1;
        int64_t padded = size + w->before[i] + w->after[i] - span;
        if (size < 0) return aril__onnx_open_error(c);
        if (padded < 0) continue;
        int64_t out = (padded + w->stride[i] - 1) / w->stride[i] + 1;
        if ((out - 1) * w->stride[i] >= size + w->before[i]) out--;
        beyond[i] = (out - 1) * w->stride[i] - padded;
        if (beyond[i] < 0) beyond[i] = 0;
    }
    return ARIL_OK;
}

/* Averages of dilated windows that begin at every stride of the input: as many as strides fit. */
static aril_tensor *same_averages(aril_tensor *x, const windows *w, bool count_pad)
{
    aril_conv_opts o = conv_opts(w);
    aril_tensor *sum = dilated_sums(x, w, o);
    int64_t area = 1;
    for (int i = 0; i < w->n; i++) area *= w->kernel[i];
    return count_pad ? aril_div_scalar(sum, (double)area)
                     : aril_div(sum, dilated_sums(aril_ones_like(x), w, o));
}

static aril_status average_pool(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    windows w;
    aril_status s = read_windows(c, aril_ndim(x) - 2, &w);
    if (s < 0) return s;
    bool count_pad = aril__onnx_attr_int(c, "count_include_pad", 0) != 0;
    if (!is_dilated(&w, x)) {
        aril_pool_opts o = pool_opts(c, &w);
        o.count_exclude_pad = !count_pad;
        return give(c, 0, average_fn[w.n - 1](x, o));
    }
    if (pads_same(&w)) return give(c, 0, same_averages(x, &w, count_pad));
    int64_t beyond[3];
    w.mode = ARIL_NUMBERS;
    if ((s = pad_for_ceil(c, &w, x, beyond)) < 0) return s;
    aril_pads pads = { .n = 2 * w.n }, own = { .n = 2 * w.n };
    for (int i = 0; i < w.n; i++) {
        pads.at[2 * (w.n - 1 - i)] = w.before[i];
        pads.at[2 * (w.n - 1 - i) + 1] = w.after[i] + beyond[i];
        own.at[2 * (w.n - 1 - i) + 1] = beyond[i];
        own.at[2 * (w.n - 1 - i)] = 0;
    }
    aril_tensor *ones = aril_ones_like(x);
    if (count_pad) { /* the padding counts, positions beyond it do not */
        aril_pads counted = pads;
        for (int i = 0; i < w.n; i++) counted.at[2 * (w.n - 1 - i) + 1] = w.after[i];
        ones = aril_pad(ones, counted, (aril_pad_opts){ .value = 1 });
        ones = aril_pad(ones, own, (aril_pad_opts){ 0 });
    } else {
        ones = aril_pad(ones, pads, (aril_pad_opts){ 0 });
    }
    memset(w.before, 0, sizeof w.before);
    memset(w.after, 0, sizeof w.after);
    aril_conv_opts o = conv_opts(&w);
    aril_tensor *sum = dilated_sums(aril_pad(x, pads, (aril_pad_opts){ 0 }), &w, o);
    return give(c, 0, aril_div(sum, dilated_sums(ones, &w, o)));
}

static aril_status lp_pool(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    double p =
        c->version < 2 ? aril__onnx_attr_float(c, "p", 2) : (double)aril__onnx_attr_int(c, "p", 2);
    windows w;
    int64_t beyond[3];
    aril_status s = read_windows(c, aril_ndim(x) - 2, &w);
    if (s < 0) return s;
    if (!pads_same(&w)) {
        w.mode = ARIL_NUMBERS;
        if ((s = pad_for_ceil(c, &w, x, beyond)) < 0) return s;
        for (int i = 0; i < w.n; i++) w.after[i] += beyond[i];
    }
    aril_tensor *powers = p == 1 ? aril_abs(x) : aril_pow_scalar(aril_abs(x), p);
    aril_tensor *sum = window_sums(c, powers, &w);
    return give(c, 0, p == 1 ? sum : aril_pow_scalar(sum, 1 / p));
}

static aril_status global_average_pool(onnx_call *c)
{
    return give(c, 0, aril_global_avg_pool(in(c, 0)));
}

static aril_status global_max_pool(onnx_call *c)
{
    return give(c, 0, aril_global_max_pool(in(c, 0)));
}

static aril_axes spatial_axes(const aril_tensor *x, int from)
{
    aril_axes axes = { .keepdim = true };
    for (int i = from; i < aril_ndim(x); i++) axes.axis[axes.n++] = i;
    return axes;
}

static aril_status global_lp_pool(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    double p =
        c->version < 2 ? aril__onnx_attr_float(c, "p", 2) : (double)aril__onnx_attr_int(c, "p", 2);
    return give(c, 0, aril_norm(x, spatial_axes(x, 2), p));
}

static aril_status max_unpool(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *at = in(c, 1);
    windows w;
    onnx_ints sizes;
    aril_status s = read_windows(c, aril_ndim(x) - 2, &w);
    if (s == ARIL_OK) s = aril__onnx_ints(c, 2, &sizes);
    if (s == ARIL_OK) s = aril__onnx_known_sizes(c, x, 0);
    if (s != ARIL_OK) return s;
    aril_shape inferred = aril_shape_of(x), to;
    bool fits = true;
    for (int i = 0; i < w.n && fits; i++) {
        int64_t *d = &inferred.dim[i + 2];
        fits = !__builtin_mul_overflow(*d - 1, w.stride[i], d) &&
               !__builtin_sub_overflow(*d, w.before[i], d) &&
               !__builtin_sub_overflow(*d, w.after[i], d) &&
               !__builtin_add_overflow(*d, w.kernel[i], d);
    }
    if (!fits) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the windows are too large");
    if (sizes.n >= 0 && (s = aril__onnx_shape(c, sizes, &to)) < 0) return s;
    if (sizes.n < 0) to = inferred;
    if ((s = aril__check_shape("inferred sizes", inferred, false)) < 0) return s;
    if ((s = aril__check_shape("output_shape", to, false)) < 0) return s;
    /* Indices are those of the inferred sizes, also if others are asked for. */
    int64_t total = 1;
    for (int i = 0; i < inferred.ndim; i++) total *= inferred.dim[i];
    if (to.ndim != inferred.ndim)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "output_shape has another number of dimensions");
    int64_t n = aril_numel(x), all = 1;
    for (int i = 0; i < to.ndim; i++) all *= to.dim[i];
    aril_tensor *index = aril_reshape(at, ARIL_SHAPE(n));
    if (sizes.n >= 0 && all != total) { /* positions in the larger result */
        aril_tensor *rest = index, *moved = NULL;
        int64_t stride = 1;
        for (int i = to.ndim - 1; i >= 0; i--) {
            aril_tensor *part =
                aril_mul_scalar(aril_remainder_scalar(rest, inferred.dim[i]), stride);
            moved = moved ? aril_add(moved, part) : part;
            rest = aril_floor_div_scalar(rest, inferred.dim[i]);
            stride *= to.dim[i];
        }
        index = moved;
    }
    aril_tensor *y = aril_zeros(ARIL_SHAPE(all), aril_dtype_of(x), aril_device_of(x));
    return give(c, 0, aril_reshape(aril_scatter(y, index, aril_reshape(x, ARIL_SHAPE(n)), 0), to));
}

/* ---- normalization ---- */

/* [C] as [1,C,1...] */
static aril_tensor *per_channel(aril_tensor *v, const aril_tensor *x)
{
    for (int i = 2; i < aril_ndim(x); i++) v = aril_unsqueeze(v, -1);
    return v;
}

static aril_status batch_norm_training(onnx_call *c, double eps)
{
    aril_tensor *x = in(c, 0), *scale = in(c, 1), *bias = in(c, 2), *mean0 = in(c, 3),
                *var0 = in(c, 4);
    double momentum = aril__onnx_attr_float(c, "momentum", 0.9);
    aril_axes axes = { 0 };
    for (int i = 0; i < aril_ndim(x); i++)
        if (i != 1) axes.axis[axes.n++] = i;
    aril_tensor *mean, *var = aril_var_mean(x, axes, 0, &mean);
    aril_tensor *y = aril_sub(x, per_channel(mean, x));
    y = aril_mul(y, per_channel(aril_mul(aril_rsqrt(aril_add_scalar(var, eps)), scale), x));
    aril_status s = give(c, 0, like(aril_add(y, per_channel(bias, x)), x));
    if (s == ARIL_OK)
        s = give(c, 1,
                 like(aril_add(aril_mul_scalar(mean0, momentum),
                               aril_mul_scalar(mean, 1 - momentum)),
                      mean0));
    if (s == ARIL_OK)
        s = give(c, 2,
                 like(aril_add(aril_mul_scalar(var0, momentum), aril_mul_scalar(var, 1 - momentum)),
                      var0));
    return s;
}

static aril_status batch_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    bool training = c->version >= 14 ? aril__onnx_attr_int(c, "training_mode", 0) != 0
                    : c->version < 7 ? !aril__onnx_attr_int(c, "is_test", 0) && c->n_out > 1
                                     : wanted(c, 1);
    if (training) return batch_norm_training(c, eps);
    /* Input, scale and statistics may have three types. */
    aril_tensor *x = in(c, 0), *of[5];
    aril_dtype type = aril_dtype_of(x);
    for (int i = 1; i < 5; i++) type = aril_promote_types(type, aril_dtype_of(in(c, i)));
    for (int i = 0; i < 5; i++) of[i] = aril_cast(in(c, i), type);
    return give(c, 0,
                like(aril_batch_norm(of[0], of[1], of[2], of[3], of[4],
                                     (aril_batch_norm_opts){ .eval = true, .eps = eps }),
                     x));
}

static aril_status instance_norm(onnx_call *c)
{
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    aril_tensor *x = in(c, 0);
    aril_shape channels = { .ndim = aril_ndim(x) - 1, .dim = { aril_size(x, 1) } };
    bool single = aril_ndim(x) > 1;
    for (int i = 2; i < aril_ndim(x); i++) single = single && aril_size(x, i) == 1;
    for (int i = 1; i < channels.ndim; i++) channels.dim[i] = 1;
    if (single && aril_ndim(x) > 2 && channels.dim[0] >= 0) /* equal to their mean */
        return give(c, 0,
                    aril_add(aril_mul(aril_sub(x, x), aril_reshape(in(c, 1), channels)),
                             aril_reshape(in(c, 2), channels)));
    return give(c, 0,
                aril_instance_norm(in(c, 0), in(c, 1), in(c, 2), NULL, NULL,
                                   (aril_instance_norm_opts){ .eps = eps }));
}

/* Statistics in the type that `stash_type` says. */
static aril_tensor *stashed(onnx_call *c, aril_tensor *x)
{
    aril_dtype dtype = ARIL_F32;
    aril__onnx_dtype(aril__onnx_attr_int(c, "stash_type", 1), &dtype);
    return aril_cast(x, aril_dtype_of(x) == ARIL_F64 ? ARIL_F64 : dtype);
}

static aril_status layer_norm(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *scale = in(c, 1), *bias = in(c, 2), *f = stashed(c, x), *mean;
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -1), aril_ndim(x));
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    if (axis < 0) return ARIL_ERR_ARG;
    aril_shape last = { 0 };
    for (int i = axis; i < aril_ndim(x); i++) last.dim[last.ndim++] = aril_size(x, i);
    bool fits = scale && aril_ndim(scale) == last.ndim;
    for (int i = 0; i < last.ndim && fits; i++) fits = aril_size(scale, i) == last.dim[i];
    if (fits && bias) fits = aril_numel(bias) == aril_numel(scale) && aril_ndim(bias) == last.ndim;
    if (!wanted(c, 1) && !wanted(c, 2) && fits && aril_dtype_of(f) == aril_dtype_of(x))
        return give(c, 0, aril_layer_norm(x, scale, bias, last, (aril_norm_opts){ eps }));
    aril_tensor *var = aril_var_mean(f, spatial_axes(x, axis), 0, &mean);
    aril_tensor *inverse = aril_rsqrt(aril_add_scalar(var, eps));
    aril_tensor *y = like(aril_mul(aril_sub(f, mean), inverse), x);
    y = aril_mul(y, scale);
    aril_status s = give(c, 0, bias ? aril_add(y, bias) : y);
    if (s == ARIL_OK) s = give(c, 1, mean);
    return s == ARIL_OK ? give(c, 2, inverse) : s;
}

static aril_status rms_norm(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *scale = in(c, 1), *f = stashed(c, x);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -1), aril_ndim(x));
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    if (axis < 0) return ARIL_ERR_ARG;
    aril_tensor *mean = aril_mean(aril_square(f), spatial_axes(x, axis));
    aril_tensor *y = like(aril_mul(f, aril_rsqrt(aril_add_scalar(mean, eps))), x);
    return give(c, 0, aril_mul(y, scale));
}

static aril_status group_norm(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *scale = in(c, 1), *bias = in(c, 2);
    int64_t groups = aril__onnx_attr_int(c, "num_groups", 1);
    double eps = aril__onnx_attr_float(c, "epsilon", 1e-5);
    if (aril_size(x, 1) < 0) return aril__onnx_open_error(c);
    if (groups < 1 || aril_size(x, 1) % groups)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "%" PRId64 " groups do not divide the channels",
                               groups);
    if (c->version < 21) { /* one factor for each group */
        scale = aril_repeat_interleave(scale, aril_size(x, 1) / groups, 0);
        bias = aril_repeat_interleave(bias, aril_size(x, 1) / groups, 0);
    }
    return give(c, 0, aril_group_norm(x, scale, bias, groups, (aril_norm_opts){ eps }));
}

static aril_status lrn(onnx_call *c)
{
    double k = aril__onnx_attr_float(c, "bias", 1);
    aril_lrn_opts o = { .alpha = aril__onnx_attr_float(c, "alpha", 1e-4),
                        .beta = aril__onnx_attr_float(c, "beta", 0.75),
                        .k = k ? k : ARIL_ZERO };
    aril_tensor *x = in(c, 0);
    int64_t size = aril__onnx_attr_int(c, "size", 1);
    if (size % 2) return give(c, 0, aril_local_response_norm(x, size, o));
    /* ONNX: from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), mirrored */
    aril_tensor *y = aril_local_response_norm(aril_flip(x, ARIL_AXES(1)), size, o);
    return give(c, 0, aril_flip(y, ARIL_AXES(1)));
}

static aril_status mean_variance_norm(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *mean;
    onnx_ints from = aril__onnx_attr_ints(c, "axes");
    aril_axes axes = ARIL_KEEPDIM(0, 2, 3);
    if (from.n >= 0) {
        aril_status s = aril__onnx_axes(c, from, aril_ndim(x), &axes);
        if (s < 0) return s;
        axes.keepdim = true;
    }
    aril_tensor *var = aril_var_mean(x, axes, 0, &mean);
    return give(c, 0, aril_div(aril_sub(x, mean), aril_add_scalar(aril_sqrt(var), 1e-9)));
}

/* x / norm, and 0 where the norm is 0 */
static aril_status lp_norm(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", -1), aril_ndim(x));
    if (axis < 0) return ARIL_ERR_ARG;
    aril_tensor *norm = aril_norm(x, ARIL_KEEPDIM(axis), (double)aril__onnx_attr_int(c, "p", 2));
    aril_tensor *divisor = aril_where(aril_eq_scalar(norm, 0), aril_ones_like(norm), norm);
    return give(c, 0, aril_div(x, divisor));
}

/* ---- dropout ---- */

static aril_status dropout(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    double ratio = aril__onnx_attr_float(c, "ratio", 0.5);
    int64_t training = c->version < 7 ? !aril__onnx_attr_int(c, "is_test", 0) : 0;
    aril_status s = ARIL_OK;
    if (c->version >= 12) {
        s = aril__onnx_float_in(c, 1, 0.5, &ratio);
        if (s == ARIL_OK) s = aril__onnx_int_in(c, 2, 0, &training);
    }
    if (s != ARIL_OK) return s;
    aril_dtype mask = c->version < 10 ? aril_dtype_of(x) : ARIL_BOOL;
    if (!training || ratio == 0) {
        s = give(c, 0, x);
        return s < 0 || !wanted(c, 1) ? s : give(c, 1, aril_cast(aril_ones_like(x), mask));
    }
    aril_tensor *kept = aril_dropout(aril_ones_like(x), ratio, (aril_dropout_opts){ 0 });
    s = give(c, 0, aril_mul(x, kept));
    return s < 0 || !wanted(c, 1) ? s : give(c, 1, aril_cast(aril_gt_scalar(kept, 0), mask));
}

const onnx_rule aril__onnx_nn_rules[] = {
    RULE("Conv", 1, conv),
    RULE("ConvTranspose", 1, conv_transpose),
    RULE("MaxPool", 1, max_pool),
    RULE("AveragePool", 1, average_pool),
    RULE("LpPool", 1, lp_pool),
    RULE("GlobalAveragePool", 1, global_average_pool),
    RULE("GlobalMaxPool", 1, global_max_pool),
    RULE("GlobalLpPool", 1, global_lp_pool),
    RULE("MaxUnpool", 9, max_unpool),
    RULE("BatchNormalization", 1, batch_norm),
    RULE("InstanceNormalization", 1, instance_norm),
    RULE("LayerNormalization", 1, layer_norm), /* before 17: of optimized models */
    RULE("RMSNormalization", 23, rms_norm),
    RULE("GroupNormalization", 18, group_norm),
    RULE("LRN", 1, lrn),
    RULE("MeanVarianceNormalization", 9, mean_variance_norm),
    RULE("LpNormalization", 1, lp_norm),
    RULE_FLAGS("Dropout", 1, dropout, 0),
    { 0 },
};
