/* Sampling of images at positions between pixels, boxes, columns, and encoded images. */
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- sampling ---- */

enum { MAX_SPATIAL = 3 };

/* An image [N,C,d1...] and positions in pixels along each dimension, [N,P]. */
typedef struct sampling {
    aril_tensor *x; /* [N,C,d1*d2...] */
    int n;
    int64_t size[MAX_SPATIAL];
    aril_tensor *at[MAX_SPATIAL];
} sampling;

static sampling sampling_of(aril_tensor *x)
{
    sampling s = { .n = aril_ndim(x) - 2 };
    int64_t all = 1;
    for (int i = 0; i < s.n && i < MAX_SPATIAL; i++)
        all = aril__onnx_times(all, s.size[i] = aril_size(x, i + 2));
    s.x = aril_reshape(x, ARIL_SHAPE(aril_size(x, 0), aril_size(x, 1), all));
    return s;
}

/* The pixels at whole positions [N,P], 0 outside: [N,C,P]. */
static aril_tensor *pixels(const sampling *s, aril_tensor *const *at)
{
    aril_tensor *flat = NULL, *inside = NULL;
    for (int i = 0; i < s->n; i++) {
        double last = (double)(s->size[i] - 1);
        aril_tensor *here =
            aril_logical_and(aril_ge_scalar(at[i], 0.0), aril_le_scalar(at[i], last));
        aril_tensor *index = aril_cast(aril_clamp(at[i], 0.0, last), ARIL_I64);
        inside = inside ? aril_logical_and(inside, here) : here;
        flat = flat ? aril_add(aril_mul_scalar(flat, s->size[i]), index) : index;
    }
    aril_tensor *y = aril_take_along_axis(s->x, aril_unsqueeze(flat, 1), 2);
    return aril_where(aril_unsqueeze(inside, 1), y, aril_zeros_like(y));
}

/* Corner k of the cell of each position, with its weight [N,1,P]. */
static aril_tensor *corner(const sampling *s, int k, aril_tensor **weight)
{
    aril_tensor *at[MAX_SPATIAL];
    *weight = NULL;
    for (int i = 0; i < s->n; i++) {
        aril_tensor *low = aril_floor(s->at[i]), *part = aril_sub(s->at[i], low);
        bool high = k >> i & 1;
        at[i] = high ? aril_add_scalar(low, 1.0) : low;
        aril_tensor *w = high ? part : aril_rsub_scalar(part, 1.0);
        *weight = *weight ? aril_mul(*weight, w) : w;
    }
    *weight = aril_cast(aril_unsqueeze(*weight, 1), aril_dtype_of(s->x));
    return pixels(s, at);
}

/* Linear interpolation: [N,C,P]. */
static aril_tensor *sampled(const sampling *s)
{
    aril_tensor *y = NULL, *w;
    for (int k = 0; k < 1 << s->n; k++) {
        aril_tensor *v = corner(s, k, &w);
        v = aril_mul(v, w);
        y = y ? aril_add(y, v) : v;
    }
    return y;
}

/* ---- GridSample ---- */

/* Positions outside are moved to the border, or mirrored at it. */
static aril_tensor *folded(aril_tensor *x, int64_t size, aril_grid_padding padding, bool corners)
{
    double last = (double)(size - 1), low = corners ? 0 : -0.5,
           span = corners ? last : (double)size;
    if (padding == ARIL_GRID_REFLECTION && span > 0) {
        aril_tensor *d = aril_abs(aril_sub_scalar(x, low));
        aril_tensor *rest = aril_remainder_scalar(d, 2 * span);
        x = aril_add_scalar(aril_minimum(rest, aril_rsub_scalar(rest, 2 * span)), low);
    }
    return padding == ARIL_GRID_ZEROS ? x : aril_clamp(x, 0.0, last);
}

static aril_status grid_sample_3d(onnx_call *c, aril_tensor *x, aril_tensor *grid, aril_grid_opts o)
{
    aril_status known = aril__onnx_known_sizes(c, x, 2);
    if (known < 0) return known;
    sampling s = sampling_of(x);
    aril_shape to = aril_shape_of(grid); /* [N,d1,d2,d3,3] */
    int64_t n = to.dim[0], points = 1;
    if (to.ndim == 5 && to.dim[4] < 0) return aril__onnx_open_error(c);
    if (to.ndim != 5 || to.dim[4] != 3 || s.n != 3)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "expected an image with 3 dimensions and a grid for it");
    for (int i = 1; i < 4; i++) points = aril__onnx_times(points, to.dim[i]);
    for (int i = 0; i < 3; i++) { /* the grid has x first */
        aril_tensor *g = aril_reshape(aril_select(grid, 4, 2 - i), ARIL_SHAPE(n, points));
        double size = (double)s.size[i];
        g = o.align_corners
                ? aril_mul_scalar(aril_add_scalar(g, 1.0), (size - 1) / 2)
                : aril_div_scalar(
                      aril_sub_scalar(aril_mul_scalar(aril_add_scalar(g, 1.0), size), 1.0), 2.0);
        s.at[i] = folded(g, s.size[i], o.padding, o.align_corners);
        if (o.mode == ARIL_GRID_NEAREST) s.at[i] = aril_round(s.at[i]);
    }
    aril_tensor *y = o.mode == ARIL_GRID_NEAREST ? pixels(&s, s.at) : sampled(&s);
    return give(c, 0,
                aril_reshape(y, ARIL_SHAPE(n, aril_size(x, 1), to.dim[1], to.dim[2], to.dim[3])));
}

static aril_status grid_sample(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *grid = in(c, 1);
    const char *mode = aril__onnx_attr_text(c, "mode", "linear"),
               *padding = aril__onnx_attr_text(c, "padding_mode", "zeros");
    aril_grid_opts o = { .align_corners = aril__onnx_attr_int(c, "align_corners", 0) != 0 };
    o.mode = strcmp(mode, "nearest") == 0 ? ARIL_GRID_NEAREST
             : strstr(mode, "cubic")      ? ARIL_GRID_BICUBIC
                                          : ARIL_GRID_BILINEAR;
    o.padding = strcmp(padding, "border") == 0       ? ARIL_GRID_BORDER
                : strcmp(padding, "reflection") == 0 ? ARIL_GRID_REFLECTION
                                                     : ARIL_GRID_ZEROS;
    if (aril_ndim(x) == 5 && o.mode != ARIL_GRID_BICUBIC) return grid_sample_3d(c, x, grid, o);
    aril_dtype of = aril_dtype_is_float(aril_dtype_of(x)) ? aril_dtype_of(x) : ARIL_F32;
    aril_dtype type = aril_promote_types(of, aril_dtype_of(grid)); /* each may have another */
    return give(c, 0, like(aril_grid_sample(aril_cast(x, type), aril_cast(grid, type), o), x));
}

static aril_status affine_grid(onnx_call *c)
{
    onnx_ints sizes;
    aril_shape to;
    aril_status s = aril__onnx_ints(c, 1, &sizes);
    if (s == ARIL_OK) s = aril__onnx_shape(c, sizes, &to);
    return s != ARIL_OK ? s
                        : give(c, 0,
                               aril_affine_grid(in(c, 0), to,
                                                aril__onnx_attr_int(c, "align_corners", 0) != 0));
}

/* ---- RoiAlign ---- */

typedef struct pooling {
    int64_t h, w, rows, columns; /* bins, and samples in each of them */
    double scale;
    bool half_pixel, max;
} pooling;

/* Positions along one dimension of the bins of regions: [R, bins*samples]. */
static aril_tensor *bin_positions(onnx_call *c, aril_tensor *start, aril_tensor *end, int64_t bins,
                                  int64_t samples, bool at_least_one)
{
    aril_tensor *size = aril_sub(end, start);
    if (at_least_one) size = aril_clamp_min(size, 1.0);
    aril_tensor *k = aril_arange(0, bins * samples, 1, aril_dtype_of(start), aril__onnx_device(c));
    k = aril_div_scalar(aril_add_scalar(k, 0.5), (double)(bins * samples));
    return aril_add(aril_unsqueeze(start, 1),
                    aril_mul(aril_unsqueeze(size, 1), aril_unsqueeze(k, 0)));
}

/* Regions [R,4] of images [R,C,H,W], one for each: [R,C,h,w]. */
static aril_tensor *pooled(onnx_call *c, aril_tensor *x, aril_tensor *rois, const pooling *p)
{
    double shift = p->half_pixel ? 0.5 : 0;
    int64_t r = aril_size(rois, 0), ny = p->h * p->rows, nx = p->w * p->columns;
    aril_tensor *scaled = aril_sub_scalar(aril_mul_scalar(rois, p->scale), shift);
    aril_tensor *ys = bin_positions(c, aril_select(scaled, 1, 1), aril_select(scaled, 1, 3), p->h,
                                    p->rows, !p->half_pixel);
    aril_tensor *xs = bin_positions(c, aril_select(scaled, 1, 0), aril_select(scaled, 1, 2), p->w,
                                    p->columns, !p->half_pixel);
    sampling s = sampling_of(x);
    aril_shape all = ARIL_SHAPE(r, ny, nx);
    aril_tensor *at[2] = { aril_expand(aril_unsqueeze(ys, 2), all),
                           aril_expand(aril_unsqueeze(xs, 1), all) },
                *inside = NULL;
    for (int i = 0; i < 2; i++) {
        aril_tensor *a = aril_reshape(at[i], ARIL_SHAPE(r, ny * nx));
        aril_tensor *here =
            aril_logical_and(aril_ge_scalar(a, -1.0), aril_le_scalar(a, (double)s.size[i]));
        inside = inside ? aril_logical_and(inside, here) : here;
        s.at[i] = aril_clamp(a, 0.0, (double)(s.size[i] - 1));
    }
    aril_tensor *y = NULL, *w;
    for (int k = 0; k < 4; k++) {
        aril_tensor *v = corner(&s, k, &w);
        v = aril_mul(v, w);
        y = !y ? v : p->max ? aril_maximum(y, v) : aril_add(y, v);
    }
    y = aril_where(aril_unsqueeze(inside, 1), y, aril_zeros_like(y));
    y = aril_reshape(y, ARIL_SHAPE(r, aril_size(x, 1), p->h, p->rows, p->w, p->columns));
    return p->max ? aril_amax(y, ARIL_AXES(3, 5)) : aril_mean(y, ARIL_AXES(3, 5));
}

/* The images of regions. Their numbers count from the first; negative ones are errors. */
static aril_status images_of(onnx_call *c, aril_tensor *x, int input, aril_tensor **to)
{
    aril_tensor *batch = in(c, input);
    onnx_ints at;
    aril_status s = aril__onnx_ints(c, input, &at);
    if (s < 0) return s;
    for (int64_t i = 0; i < at.n && s == ARIL_OK; i++)
        if (at.at[i] < 0)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "image %" PRId64 " of region %" PRId64,
                                   at.at[i], i);
    if (s != ARIL_OK) { /* only a run knows them: beyond any image */
        aril_tensor *none = aril_full_like(batch, INT32_MAX);
        batch = aril_where(aril_lt_scalar(batch, 0), none, batch);
    }
    *to = aril_index_select(x, batch, 0); /* [R,C,H,W] */
    return ARIL_OK;
}

static aril_status roi_align(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *rois = in(c, 1), *images = NULL;
    int64_t ratio = aril__onnx_attr_int(c, "sampling_ratio", 0), n = aril_size(rois, 0);
    pooling p = { .h = aril__onnx_attr_int(c, "output_height", 1),
                  .w = aril__onnx_attr_int(c, "output_width", 1),
                  .rows = ratio,
                  .columns = ratio,
                  .scale = aril__onnx_attr_float(c, "spatial_scale", 1),
                  .half_pixel = c->version >= 16 && attr_is(c, "coordinate_transformation_mode",
                                                            "half_pixel", "half_pixel"),
                  .max = attr_is(c, "mode", "avg", "max") };
    if (aril_ndim(x) != 4 || aril_ndim(rois) != 2)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected [N,C,H,W] and regions [R,4]");
    if (p.h < 1 || p.w < 1 || p.h > INT32_MAX || p.w > INT32_MAX || ratio > INT32_MAX)
        return aril__onnx_fail(c, ARIL_ERR_ARG,
                               "output_height %" PRId64 ", output_width %" PRId64
                               " or sampling_ratio %" PRId64,
                               p.h, p.w, ratio);
    aril_status s = aril__onnx_known_sizes(c, x, 2);
    if (s == ARIL_OK && n < 0 && ratio <= 0) s = aril__onnx_open_error(c);
    if (s == ARIL_OK) s = images_of(c, x, 2, &images);
    if (s != ARIL_OK) return s;
    if (ratio > 0) return give(c, 0, pooled(c, images, rois, &p));
    /* As many samples as the region has pixels. */
    onnx_floats box;
    s = aril__onnx_floats(c, 1, &box);
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, (size_t)n + 1, sizeof *part);
    if (s != ARIL_OK || !part) return s != ARIL_OK ? s : ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        double h = (box.at[4 * i + 3] - box.at[4 * i + 1]) * p.scale,
               w = (box.at[4 * i + 2] - box.at[4 * i]) * p.scale;
        if (!p.half_pixel) h = fmax(h, 1), w = fmax(w, 1);
        p.rows = (int64_t)fmin(fmax(ceil(h / (double)p.h), 1), 1e4);
        p.columns = (int64_t)fmin(fmax(ceil(w / (double)p.w), 1), 1e4);
        part[i] = pooled(c, aril_narrow(images, 0, i, 1), aril_narrow(rois, 0, i, 1), &p);
    }
    if (!n)
        return give(c, 0,
                    aril_zeros(ARIL_SHAPE(0, aril_size(x, 1), p.h, p.w), aril_dtype_of(x),
                               aril__onnx_device(c)));
    return give(c, 0, aril_cat((aril_list){ (int)n, part }, 0));
}

/* ---- MaxRoiPool ---- */

/* Bin i of n between two positions of an axis of `size` elements: at least one element wide before
 * it is cut to the axis. False: it is empty. */
static bool bin_of(int64_t first, int64_t last, int64_t i, int64_t n, int64_t size, int64_t *from,
                   int64_t *count)
{
    float extent = (float)(last - first + 1 > 1 ? last - first + 1 : 1) / (float)n;
    int64_t begin = first + (int64_t)floorf((float)i * extent),
            end = first + (int64_t)ceilf((float)(i + 1) * extent);
    *from = begin < 0 ? 0 : begin > size ? size : begin;
    *count = (end < 0 ? 0 : end > size ? size : end) - *from;
    return *count > 0;
}

/* Regions [R,5] of image, x0, y0, x1, y1: the largest element of each bin, and 0 for empty ones. */
static aril_status max_roi_pool(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    onnx_ints to = aril__onnx_attr_ints(c, "pooled_shape");
    onnx_floats rois;
    double scale = aril__onnx_attr_float(c, "spatial_scale", 1);
    aril_status s = aril__onnx_floats(c, 1, &rois);
    if (s != ARIL_OK) return s;
    if (aril_ndim(x) != 4 || aril_ndim(c->in[1].tensor) != 2 || aril_size(c->in[1].tensor, 1) != 5)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected [N,C,H,W] and regions [R,5]");
    if (to.n != 2 || to.at[0] < 1 || to.at[1] < 1 || to.at[0] > INT16_MAX || to.at[1] > INT16_MAX)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "pooled_shape must be two positive sizes");
    int64_t regions = rois.n / 5, bins = to.at[0] * to.at[1], h = aril_size(x, 2),
            w = aril_size(x, 3), ch = aril_size(x, 1);
    if (aril_size(x, 0) < 0 || h < 0 || w < 0) return ARIL__ONNX_DYNAMIC;
    aril_shape shape = ARIL_SHAPE(regions, ch, to.at[0], to.at[1]);
    aril_tensor *empty = aril_zeros(ARIL_SHAPE(ch), aril_dtype_of(x), aril__onnx_device(c));
    aril_tensor **part =
        aril__onnx_alloc(&c->run->arena, (size_t)(regions * bins) + 1, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < regions; r++) {
        const double *at = rois.at + 5 * r;
        int64_t edge[4], y0, x0, ny, nx;
        for (int i = 0; i < 4; i++) {
            double place = round((double)((float)at[i + 1] * (float)scale));
            if (!(fabs(place) < INT32_MAX))
                return aril__onnx_fail(c, ARIL_ERR_ARG, "region %" PRId64 " is too large", r);
            edge[i] = (int64_t)place;
        }
        if (!(at[0] >= 0 && at[0] < (double)aril_size(x, 0)))
            return aril__onnx_fail(c, ARIL_ERR_ARG, "image %g of region %" PRId64, at[0], r);
        aril_tensor *image = aril_select(x, 0, (int64_t)at[0]);
        for (int64_t k = 0; k < bins; k++) {
            bool some = bin_of(edge[1], edge[3], k / to.at[1], to.at[0], h, &y0, &ny);
            some &= bin_of(edge[0], edge[2], k % to.at[1], to.at[1], w, &x0, &nx);
            aril_tensor *bin = some ? aril_narrow(aril_narrow(image, 1, y0, ny), 2, x0, nx) : NULL;
            part[r * bins + k] = bin ? aril_amax(bin, ARIL_AXES(1, 2)) : empty;
        }
    }
    if (!regions) return give(c, 0, aril_zeros(shape, aril_dtype_of(x), aril__onnx_device(c)));
    aril_tensor *y = aril_stack((aril_list){ (int)(regions * bins), part }, 1); /* [C,R*bins] */
    y = aril_reshape(y, ARIL_SHAPE(ch, regions, to.at[0], to.at[1]));
    return give(c, 0, aril_permute(y, ARIL_AXES(1, 0, 2, 3)));
}

/* ---- DeformConv ---- */

static int64_t list_entry(onnx_ints v, int i, int64_t otherwise)
{
    return v.n > i ? v.at[i] : otherwise;
}

/* Positions of kernel elements without offsets, along dimension i: [1, kh*kw*oh*ow]. */
static aril_tensor *kernel_positions(onnx_call *c, int i, const int64_t *k, const int64_t *o,
                                     int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t n = k[0] * k[1] * o[0] * o[1];
    double *at = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *at);
    if (!at) return NULL;
    for (int64_t p = 0; p < n; p++) {
        int64_t ox = p % o[1], oy = p / o[1] % o[0], kx = p / (o[0] * o[1]) % k[1],
                ky = p / (o[0] * o[1]) / k[1];
        at[p] = (double)((i ? ox : oy) * stride - pad + (i ? kx : ky) * dilation);
    }
    return aril_unsqueeze(aril__onnx_numbers(c, at, n, ARIL_F32), 0);
}

static aril_status deform_conv(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *w = in(c, 1), *offset = in(c, 2), *bias = in(c, 3),
                *mask = in(c, 4);
    if (aril_ndim(x) != 4 || aril_ndim(w) != 4 || aril_ndim(offset) != 4)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "only 2 spatial dimensions");
    aril_status s = aril__onnx_known_sizes(c, x, 1);
    if (s == ARIL_OK) s = aril__onnx_known_sizes(c, w, 0);
    if (s == ARIL_OK) s = aril__onnx_known_sizes(c, offset, 1);
    if (s < 0) return s;
    onnx_ints strides = aril__onnx_attr_ints(c, "strides"), pads = aril__onnx_attr_ints(c, "pads"),
              dilations = aril__onnx_attr_ints(c, "dilations");
    int64_t groups = aril__onnx_attr_int(c, "group", 1),
            parts = aril__onnx_attr_int(c, "offset_group", 1);
    onnx_ints shape = aril__onnx_attr_ints(c, "kernel_shape");
    if (shape.n >= 0 &&
        (shape.n != 2 || shape.at[0] != aril_size(w, 2) || shape.at[1] != aril_size(w, 3)))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "kernel_shape is not that of the weights");
    int64_t k[2] = { aril_size(w, 2), aril_size(w, 3) },
            o[2] = { aril_size(offset, 2), aril_size(offset, 3) };
    int64_t n = aril_size(x, 0), ch = aril_size(x, 1), out = aril_size(w, 0), kernel = k[0] * k[1],
            points = o[0] * o[1];
    if (groups < 1 || parts < 1 || ch % parts || ch % groups || out % groups ||
        aril_size(offset, 1) != parts * kernel * 2)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "groups or offsets do not fit");
    aril_tensor *base[2], **part = aril__onnx_alloc(&c->run->arena, (size_t)parts, sizeof *part);
    for (int i = 0; i < 2; i++) {
        base[i] = kernel_positions(c, i, k, o, list_entry(strides, i, 1), list_entry(pads, i, 0),
                                   list_entry(dilations, i, 1));
        if (!base[i]) return ARIL_ERR_MEMORY;
    }
    if (!part) return ARIL_ERR_MEMORY;
    aril_tensor *offsets = aril_reshape(offset, ARIL_SHAPE(n, parts, kernel, 2, points));
    aril_tensor *masks = mask ? aril_reshape(mask, ARIL_SHAPE(n, parts, 1, kernel * points)) : NULL;
    for (int64_t g = 0; g < parts; g++) {
        sampling of = sampling_of(aril_narrow(x, 1, g * (ch / parts), ch / parts));
        aril_tensor *own = aril_select(offsets, 1, g); /* [N,kernel,2,P] */
        for (int i = 0; i < 2; i++)
            of.at[i] = aril_add(base[i], aril_reshape(aril_select(own, 2, i),
                                                      ARIL_SHAPE(n, kernel * points)));
        part[g] = sampled(&of);
        if (masks) part[g] = aril_mul(part[g], aril_select(masks, 1, g));
    }
    aril_tensor *columns = aril_cat((aril_list){ (int)parts, part }, 1); /* [N,C,kernel*P] */
    columns = aril_reshape(columns, ARIL_SHAPE(n, groups, ch / groups * kernel, points));
    aril_tensor *weights = aril_reshape(w, ARIL_SHAPE(groups, out / groups, ch / groups * kernel));
    aril_tensor *y = aril_reshape(aril_matmul(weights, columns), ARIL_SHAPE(n, out, o[0], o[1]));
    return give(c, 0, bias ? aril_add(y, aril_reshape(bias, ARIL_SHAPE(out, 1, 1))) : y);
}

/* ---- Col2Im ---- */

static aril_status col2im(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    onnx_ints image, block, strides = aril__onnx_attr_ints(c, "strides"),
                            pads = aril__onnx_attr_ints(c, "pads"),
                            dilations = aril__onnx_attr_ints(c, "dilations");
    aril_status s = aril__onnx_ints(c, 1, &image);
    if (s == ARIL_OK) s = aril__onnx_ints(c, 2, &block);
    if (s != ARIL_OK) return s;
    int d = (int)image.n;
    if (aril_ndim(x) != 3 || d < 1 || d > 6 || block.n != d)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "expected [N,C*block,L] and sizes of image and block");
    int64_t inner = 1, blocks = 1, whole = 1, count[6], padded[6];
    bool fits = true;
    for (int i = 0; i < d && fits; i++) {
        int64_t dilation = list_entry(dilations, i, 1), stride = list_entry(strides, i, 1), span;
        fits = dilation > 0 && stride > 0 && block.at[i] > 0 && image.at[i] >= 0 &&
               list_entry(pads, i, 0) >= 0 && list_entry(pads, d + i, 0) >= 0 &&
               !__builtin_mul_overflow(dilation, block.at[i] - 1, &span) &&
               !__builtin_add_overflow(image.at[i], list_entry(pads, i, 0), &padded[i]) &&
               !__builtin_add_overflow(padded[i], list_entry(pads, d + i, 0), &padded[i]) &&
               span < padded[i];
        if (!fits) break;
        count[i] = (padded[i] - span - 1) / stride + 1;
        fits = !__builtin_mul_overflow(inner, block.at[i], &inner) &&
               !__builtin_mul_overflow(blocks, count[i], &blocks) &&
               !__builtin_mul_overflow(whole, padded[i], &whole) && whole < INT64_MAX / 16;
    }
    if (!fits) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the blocks do not fit the image");
    if ((s = aril__onnx_known_sizes(c, x, 1)) < 0) return s;
    int64_t n = aril_size(x, 0), ch = aril_size(x, 1) / inner, planes = aril__onnx_times(n, ch);
    if (aril_size(x, 2) != blocks || aril_size(x, 1) % inner)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the columns do not fit the image");
    int64_t *to = aril__onnx_alloc(&c->run->arena, (size_t)(inner * blocks), sizeof *to);
    if (!to) return ARIL_ERR_MEMORY;
    for (int64_t k = 0; k < inner * blocks; k++) {
        int64_t in_block = k / blocks, in_image = k % blocks, stride = 1;
        for (int i = d - 1; i >= 0; i--) {
            to[k] += stride * (in_image % count[i] * list_entry(strides, i, 1) +
                               in_block % block.at[i] * list_entry(dilations, i, 1));
            in_block /= block.at[i];
            in_image /= count[i];
            stride *= padded[i];
        }
    }
    aril_tensor *y = aril_zeros(ARIL_SHAPE(planes, whole), aril_dtype_of(x), aril__onnx_device(c));
    y = aril_index_add(y, aril__onnx_index(c, to, inner * blocks),
                       aril_reshape(x, ARIL_SHAPE(planes, inner * blocks)), 1);
    aril_shape shape = { .ndim = d + 2, .dim = { n, ch } };
    for (int i = 0; i < d; i++) shape.dim[i + 2] = padded[i];
    y = aril_reshape(y, shape);
    for (int i = 0; i < d; i++) y = aril_narrow(y, i + 2, list_entry(pads, i, 0), image.at[i]);
    return give(c, 0, y);
}

/* ---- NonMaxSuppression ---- */

/* Boxes as columns, which a loop over all of them reads in order. */
typedef struct boxes {
    double *y0, *x0, *y1, *x1, *area;
} boxes;

static bool new_boxes(onnx_call *c, int64_t n, boxes *b)
{
    double *at = aril__onnx_alloc(&c->run->arena, (size_t)n, 5 * sizeof *at);
    if (!at) return false;
    *b = (boxes){ at, at + n, at + 2 * n, at + 3 * n, at + 4 * n };
    return true;
}

static double known(double x, double otherwise)
{
    return isnan(x) ? otherwise : x;
}

/* Corners that are NaN bound nothing. */
static void set_box(boxes *to, int64_t i, const double *b, bool center)
{
    double y0 = center ? b[1] - b[3] / 2 : fmin(b[0], b[2]),
           x0 = center ? b[0] - b[2] / 2 : fmin(b[1], b[3]),
           y1 = center ? b[1] + b[3] / 2 : fmax(b[0], b[2]),
           x1 = center ? b[0] + b[2] / 2 : fmax(b[1], b[3]);
    to->y0[i] = known(y0, -INFINITY);
    to->x0[i] = known(x0, -INFINITY);
    to->y1[i] = known(y1, INFINITY);
    to->x1[i] = known(x1, INFINITY);
    to->area[i] = (to->y1[i] - to->y0[i]) * (to->x1[i] - to->x0[i]);
}

static void copy_box(boxes *to, int64_t i, const boxes *from, int64_t k)
{
    to->y0[i] = from->y0[k];
    to->x0[i] = from->x0[k];
    to->y1[i] = from->y1[k];
    to->x1[i] = from->x1[k];
    to->area[i] = from->area[k];
}

/* Whether box k overlaps one of the n kept ones by more than iou, as a part of both. Most boxes lie
 * apart, which four comparisons tell. */
static bool is_covered(const boxes *all, int64_t k, const boxes *kept, int64_t n, double iou)
{
    const double y0 = all->y0[k], x0 = all->x0[k], y1 = all->y1[k], x1 = all->x1[k],
                 area = all->area[k];
    for (int64_t j = 0; j < n; j++) {
        bool apart =
            (kept->y1[j] <= y0) | (y1 <= kept->y0[j]) | (kept->x1[j] <= x0) | (x1 <= kept->x0[j]);
        if (apart) continue;
        double h = (y1 < kept->y1[j] ? y1 : kept->y1[j]) - (y0 > kept->y0[j] ? y0 : kept->y0[j]),
               w = (x1 < kept->x1[j] ? x1 : kept->x1[j]) - (x0 > kept->x0[j] ? x0 : kept->x0[j]);
        double both = area + kept->area[j] - h * w;
        if (h > 0 && w > 0 && both > 0 && h * w / both > iou) return true;
    }
    return false;
}

typedef struct scored {
    double score;
    int64_t index;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static aril_status non_max_suppression(onnx_call *c)
{
    onnx_floats corners, scores;
    int64_t most;
    double iou, least;
    bool center = aril__onnx_attr_int(c, "center_point_box", 0) != 0;
    aril_status s = aril__onnx_floats(c, 0, &corners);
    if (s == ARIL_OK) s = aril__onnx_floats(c, 1, &scores);
    if (s == ARIL_OK) s = aril__onnx_int_in(c, 2, 0, &most);
    if (s == ARIL_OK) s = aril__onnx_float_in(c, 3, 0, &iou);
    if (s == ARIL_OK) s = aril__onnx_float_in(c, 4, -INFINITY, &least);
    if (s != ARIL_OK) return s;
    aril_shape b = aril_shape_of(c->in[0].tensor), p = aril_shape_of(c->in[1].tensor);
    if (b.ndim != 3 || b.dim[2] != 4 || p.ndim != 3 || p.dim[0] != b.dim[0] || p.dim[2] != b.dim[1])
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected boxes [N,B,4] and scores [N,C,B]");
    int64_t n = b.dim[1], found = 0;
    if (most < 0) most = 0;
    if (most > n) most = n;
    int64_t *to =
        aril__onnx_alloc(&c->run->arena, (size_t)(b.dim[0] * p.dim[1] * most), 3 * sizeof *to);
    scored *order = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *order);
    boxes all, kept;
    if (!to || !order || !new_boxes(c, n, &all) || !new_boxes(c, most, &kept))
        return ARIL_ERR_MEMORY;
    for (int64_t k = 0; k < b.dim[0] * p.dim[1]; k++) {
        const double *own = corners.at + k / p.dim[1] * n * 4;
        int64_t candidates = 0, taken = 0;
        for (int64_t i = 0; i < n && k % p.dim[1] == 0; i++) set_box(&all, i, own + 4 * i, center);
        for (int64_t i = 0; i < n; i++)
            if (scores.at[k * n + i] > least)
                order[candidates++] = (scored){ scores.at[k * n + i], i };
        if (candidates) qsort(order, (size_t)candidates, sizeof *order, by_score);
        for (int64_t i = 0; i < candidates && taken < most; i++) {
            /* An iou below 0 covers all but the first, also those that lie apart. */
            bool covered =
                iou < 0 ? taken > 0 : is_covered(&all, order[i].index, &kept, taken, iou);
            if (covered) continue;
            copy_box(&kept, taken++, &all, order[i].index);
            to[3 * found] = k / p.dim[1];
            to[3 * found + 1] = k % p.dim[1];
            to[3 * found++ + 2] = order[i].index;
        }
    }
    return give(c, 0, aril_reshape(aril__onnx_index(c, to, 3 * found), ARIL_SHAPE(found, 3)));
}

/* ---- encoded images ---- */

static aril_status image_decoder(onnx_call *c)
{
    const void *bytes;
    aril_tensor *x = in(c, 0);
    if (c->run->tracing && !c->in[0].known) return ARIL__ONNX_DYNAMIC;
    aril_status s = aril__onnx_host(c, x, ARIL_U8, &bytes);
    if (s != ARIL_OK) return s;
    const char *format = aril__onnx_attr_text(c, "pixel_format", "RGB");
    aril_tensor *y =
        aril_image_decode(bytes, (size_t)aril_numel(x), (aril_image_opts){ .channels = 3 });
    if (strcmp(format, "Grayscale") == 0) { /* luma of ITU-R 601, in integers of 16 bits */
        static const int64_t weights[] = { 19595, 38470, 7471 };
        aril_tensor *w = aril_reshape(aril__onnx_from_ints(weights, 3), ARIL_SHAPE(3, 1, 1));
        y = aril_sum(aril_mul(aril_cast(y, ARIL_I64), w), ARIL_KEEPDIM(0));
        y = aril_cast(aril_shift_right_scalar(aril_add_scalar(y, 0x8000), 16), ARIL_U8);
    }
    if (strcmp(format, "BGR") == 0) y = aril_flip(y, ARIL_AXES(0));
    return give(
        c, 0, aril_to(aril_contiguous(aril_permute(y, ARIL_AXES(1, 2, 0))), aril__onnx_device(c)));
}

const onnx_rule aril__onnx_vision_rules[] = {
    RULE("GridSample", 16, grid_sample),
    RULE("AffineGrid", 20, affine_grid),
    RULE("RoiAlign", 10, roi_align),
    RULE("MaxRoiPool", 1, max_roi_pool),
    RULE("DeformConv", 19, deform_conv),
    RULE("Col2Im", 18, col2im),
    RULE("NonMaxSuppression", 10, non_max_suppression),
    RULE("ImageDecoder", 20, image_decoder),
    { 0 },
};
