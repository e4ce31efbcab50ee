/* Pooling and spatial pyramid pooling.
 *
 * Caffe rounds the number of windows up: ceil((in + 2 pad - kernel) / stride) + 1. If there is
 * padding, a last window that would begin in the padding at the end is left out; without, it stays
 * although it has no elements. */
#include "models/caffe/layer.h"

#include <float.h>

typedef enum pool_method { POOL_MAX, POOL_AVE, POOL_STOCHASTIC } pool_method;

typedef struct pool {
    caffe_layer base;
    pool_method method;
    bool global, floor;
    int64_t kernel[2], stride[2], pad[2];
    int levels; /* SPP */
} pool;

/* ---- parameters ---- */

static aril_status read_pair(const caffe_layer *l, const char *field, const char *h, const char *w,
                             int64_t low, int64_t *to)
{
    const aril__message *p = l->param;
    bool apart = aril__message_has(p, h) || aril__message_has(p, w);
    if (apart && aril__message_has(p, field))
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "use %s, or %s and %s", field, h, w);
    to[0] = aril__message_int(p, apart ? h : field);
    to[1] = aril__message_int(p, apart ? w : field);
    for (int i = 0; i < 2; i++)
        if (to[i] < low || to[i] > INT32_MAX)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%s is %lld; expected %lld to 2147483647",
                                   field, (long long)to[i], (long long)low);
    return ARIL_OK;
}

static aril_status read_method(const caffe_layer *l, pool_method *method)
{
    int64_t value = aril__message_int(l->param, "pool");
    if (value < POOL_MAX || value > POOL_STOCHASTIC)
        return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED, "there is no pooling method %lld",
                               (long long)value);
    *method = (pool_method)value;
    return ARIL_OK;
}

static aril_status pool_check(aril_module *m, caffe_layer *l)
{
    pool *p = aril_module_data(m);
    p->global = aril__message_int(l->param, "global_pooling") != 0;
    p->floor = strcmp(aril__message_value(l->param, "round_mode"), "FLOOR") == 0;
    aril_status s = read_method(l, &p->method);
    if (s == ARIL_OK && p->global &&
        (aril__message_has(l->param, "kernel_size") || aril__message_has(l->param, "kernel_h") ||
         aril__message_has(l->param, "kernel_w")))
        s = aril__caffe_bad(l, ARIL_ERR_FORMAT, "global_pooling has no kernel size");
    if (s == ARIL_OK && !p->global)
        s = read_pair(l, "kernel_size", "kernel_h", "kernel_w", 1, p->kernel);
    if (s == ARIL_OK) s = read_pair(l, "stride", "stride_h", "stride_w", 1, p->stride);
    if (s == ARIL_OK) s = read_pair(l, "pad", "pad_h", "pad_w", 0, p->pad);
    for (int i = 0; i < 2 && s == ARIL_OK; i++) {
        if (p->global && (p->pad[i] != 0 || p->stride[i] != 1))
            s = aril__caffe_bad(l, ARIL_ERR_FORMAT, "global_pooling has no pad, and stride 1");
        else if (p->pad[i] && p->method == POOL_STOCHASTIC)
            s = aril__caffe_bad(l, ARIL_ERR_FORMAT, "stochastic pooling has no pad");
        else if (p->pad[i] && p->pad[i] >= p->kernel[i])
            s = aril__caffe_bad(l, ARIL_ERR_FORMAT, "pad %lld must be below kernel size %lld",
                                (long long)p->pad[i], (long long)p->kernel[i]);
    }
    return s;
}

/* ---- windows ---- */

/* One axis: the windows that have elements, and how many Caffe counts beyond them. */
typedef struct windows {
    int64_t kernel, stride, pad, end, n, empty;
} windows;

static aril_status count_windows(const pool *p, int i, int64_t in, bool padded, windows *w)
{
    int64_t more = in + 2 * p->pad[i] - p->kernel[i];
    *w = (windows){ .kernel = p->kernel[i], .stride = p->stride[i], .pad = p->pad[i] };
    if (more < 0 && (p->floor || -more >= p->stride[i]))
        return aril__fail(ARIL_ERR_SHAPE,
                          "the window %lld is larger than the bottom, %lld + 2 * "
                          "%lld",
                          (long long)p->kernel[i], (long long)in, (long long)p->pad[i]);
    /* One window that is cut at both ends. */
    if (more < 0) w->kernel += more;
    if (more < 0) more = 0;
    int64_t n = (p->floor ? more / w->stride : (more + w->stride - 1) / w->stride) + 1;
    if (padded && (n - 1) * w->stride >= in + w->pad) n--;
    for (w->n = n; w->n > 1 && (w->n - 1) * w->stride >= in + w->pad;) w->n--;
    w->empty = n - w->n;
    int64_t reach = (w->n - 1) * w->stride + w->kernel - in - w->pad;
    w->end = reach > 0 ? reach : 0; /* beyond the end of the bottom, padding or not */
    return ARIL_OK;
}

static aril_status both_windows(const pool *p, const aril_tensor *x, windows *w)
{
    char text[ARIL__SHAPE_TEXT];
    if (x->ndim != 4)
        return aril__fail(ARIL_ERR_SHAPE, "expected [N,C,H,W], got %s", aril__text(text, x));
    for (int i = 0; i < 2; i++)
        if (x->dim[2 + i] < 1)
            return aril__fail(ARIL_ERR_SHAPE, "the image of the bottom %s is empty or unknown",
                              aril__text(text, x));
    bool padded = p->pad[0] || p->pad[1];
    aril_status s = count_windows(p, 0, x->dim[2], padded, &w[0]);
    return s == ARIL_OK ? count_windows(p, 1, x->dim[3], padded, &w[1]) : s;
}

static aril_pool_opts opts_of(const pool *p, const windows *w)
{
    aril_pool_opts o = { .ceil_mode = !p->floor };
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = w[i].kernel;
        o.stride[i] = w[i].stride;
        o.padding[i] = w[i].pad ? w[i].pad : ARIL_ZERO;
    }
    return o;
}

/* ---- methods ---- */

/* The elements of each window: [N,C,kernel,positions]; those outside are zero. */
static aril_tensor *elements(aril_tensor *x, const windows *w)
{
    aril_pool_opts o = { .kernel = { w[0].kernel, w[1].kernel },
                         .stride = { w[0].stride, w[1].stride } };
    aril_tensor *padded = aril_pad(x, ARIL_PADS(0, w[1].end, 0, w[0].end), (aril_pad_opts){ 0 });
    aril_tensor *columns = aril_unfold(padded, o);
    return aril_unflatten(columns, 1, ARIL_SHAPE(aril_size(x, 1), w[0].kernel * w[1].kernel));
}

/* In training an element of each window, drawn with a probability in proportion to its value;
 * otherwise the mean, weighted by these probabilities. */
static aril_tensor *stochastic(aril_tensor *x, const windows *w, bool trains)
{
    aril_tensor *e = elements(x, w), *y; /* [N,C,K,P] */
    if (trains) {
        aril_tensor *sums = aril_cumsum(aril_detach(e), 2);
        aril_tensor *total = aril_narrow(sums, 2, w[0].kernel * w[1].kernel - 1, 1);
        aril_tensor *limit = aril_mul(aril_rand_like(total), total);
        aril_tensor *before = aril_cast(aril_lt(sums, limit), ARIL_I64);
        aril_tensor *at =
            aril_clamp_max(aril_sum(before, ARIL_KEEPDIM(2)), w[0].kernel * w[1].kernel - 1);
        y = aril_gather(e, at, 2);
    } else {
        aril_tensor *sum = aril_sum(e, ARIL_KEEPDIM(2));
        aril_tensor *some = aril_gt_scalar(sum, 0);
        aril_tensor *squares = aril_sum(aril_square(e), ARIL_KEEPDIM(2));
        aril_tensor *safe = aril_where(some, sum, aril_ones_like(sum));
        y = aril_where(some, aril_div(squares, safe), aril_zeros_like(sum));
    }
    return aril_unflatten(aril_squeeze(y, ARIL_AXES(2)), 2, ARIL_SHAPE(w[0].n, w[1].n));
}

static aril_tensor *pool_image(const pool *p, aril_tensor *x, bool trains, aril_tensor **mask)
{
    windows w[2];
    if (both_windows(p, x, w) < 0) return aril__poison();
    aril_tensor *y;
    if (p->method == POOL_MAX)
        y = aril_max_pool2d(x, opts_of(p, w), mask);
    else if (p->method == POOL_AVE)
        y = aril_avg_pool2d(x, opts_of(p, w));
    else
        y = stochastic(x, w, trains);
    if (!w[0].empty && !w[1].empty) return y;
    /* Windows without elements: the lowest number, or no sum. */
    aril_pads pads = ARIL_PADS(0, w[1].empty, 0, w[0].empty);
    if (mask) *mask = aril_pad(*mask, pads, (aril_pad_opts){ .value = -1 });
    return aril_pad(y, pads, (aril_pad_opts){ .value = p->method == POOL_MAX ? -FLT_MAX : 0 });
}

static void pool_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const pool *p = aril_module_data(m);
    aril_tensor *x = in[0], *mask = NULL;
    if (p->global && p->method != POOL_STOCHASTIC && l->n_tops == 1) {
        out[0] = p->method == POOL_MAX ? aril_global_max_pool(x) : aril_global_avg_pool(x);
        return;
    }
    pool sized = *p;
    for (int i = 0; i < 2 && p->global; i++) sized.kernel[i] = aril_size(x, 2 + i);
    bool wants = l->n_tops > 1;
    out[0] = pool_image(&sized, x, aril__caffe_trains(m, l), wants ? &mask : NULL);
    if (!wants) return;
    if (p->method == POOL_MAX) {
        out[1] = mask ? aril_cast(mask, aril_dtype_of(x)) : NULL;
    } else {
        aril__fail(ARIL_ERR_UNSUPPORTED, "only max pooling has a second top, the indices");
        aril__caffe_failed(l, out);
    }
}

/* ---- spatial pyramid pooling ---- */

static aril_status spp_check(aril_module *m, caffe_layer *l)
{
    pool *p = aril_module_data(m);
    int64_t levels = aril__message_int(l->param, "pyramid_height");
    if (levels < 1 || levels > 16)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "pyramid_height %lld must be from 1 to 16",
                               (long long)levels);
    p->levels = (int)levels;
    return read_method(l, &p->method);
}

/* Level k has 2^k by 2^k windows. */
static aril_tensor *pyramid_level(const pool *p, int level, aril_tensor *x, bool trains)
{
    int64_t bins = (int64_t)1 << level;
    pool at = { .method = p->method };
    for (int i = 0; i < 2; i++) {
        int64_t in = aril_size(x, 2 + i), kernel = (in + bins - 1) / bins;
        at.kernel[i] = kernel;
        at.stride[i] = kernel;
        at.pad[i] = (kernel * bins - in + 1) / 2;
        if (at.pad[i] >= kernel || (at.pad[i] && p->method == POOL_STOCHASTIC)) {
            aril__fail(ARIL_ERR_SHAPE, "an image of size %lld cannot be split into %lld windows",
                       (long long)in, (long long)bins);
            return aril__poison();
        }
    }
    return pool_image(&at, x, trains, NULL);
}

static void spp_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const pool *p = aril_module_data(m);
    aril_tensor *part[16], *x = in[0];
    char text[ARIL__SHAPE_TEXT];
    if (aril_ndim(x) != 4) {
        aril__fail(ARIL_ERR_SHAPE, "expected [N,C,H,W], got %s", aril__text(text, x));
        aril__caffe_failed(l, out);
        return;
    }
    for (int i = 0; i < p->levels; i++) {
        part[i] = pyramid_level(p, i, x, aril__caffe_trains(m, l));
        if (p->levels > 1) part[i] = aril_flatten(part[i], 1, -1);
    }
    out[0] = p->levels > 1 ? aril_cat((aril_list){ p->levels, part }, 1) : part[0];
}

const caffe_row aril__caffe_pool_rows[] = {
    { CAFFE_ROW("Pooling", pool), CAFFE_COUNTS(1, 1, 1, 2), .param = "pooling_param",
      .check = pool_check, .forward = pool_forward },
    { CAFFE_ROW("SPP", pool), CAFFE_COUNTS(1, 1, 1, 1), .param = "spp_param", .check = spp_check,
      .forward = spp_forward },
    { .param = NULL },
};
