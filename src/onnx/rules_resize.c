/* Resize and Upsample: each axis by itself, as a selection of elements or a product with a matrix
 * of weights, both of which depend on sizes alone. */
#include "core/sizes.h"
#include "onnx/rules.h"

#include <inttypes.h>
#include <math.h>

typedef struct resizing {
    const char *mode, *place; /* mode, coordinate_transformation_mode */
    const char *nearest;      /* nearest_mode; "": that of versions without it */
    double cubic, outside;    /* cubic_coeff_a, extrapolation_value */
    bool exclude_outside, antialias;
} resizing;

typedef struct resized_axis {
    int64_t from, to;
    double scale, start, end; /* start and end: the region of interest */
} resized_axis;

/* Where element y of the result lies in the input. */
static double origin(const resizing *r, const resized_axis *a, int64_t y)
{
    double in = (double)a->from, out = a->scale * in, at = (double)y;
    if (strcmp(r->place, "align_corners") == 0) return out == 1 ? 0 : at * (in - 1) / (out - 1);
    if (strcmp(r->place, "asymmetric") == 0) return at / a->scale;
    if (strcmp(r->place, "tf_crop_and_resize") == 0) {
        double span = (a->end - a->start) * (in - 1);
        return (out == 1 ? span / 2 : at * span / (out - 1)) + a->start * (in - 1);
    }
    if (strcmp(r->place, "pytorch_half_pixel") == 0 && out == 1) return -0.5;
    double shift = 0;
    if (strcmp(r->place, "half_pixel_symmetric") == 0) shift = in / 2 * (1 - (double)a->to / out);
    return shift + (at + 0.5) / a->scale - 0.5;
}

static bool is_outside(const resizing *r, const resized_axis *a, double x)
{
    return strcmp(r->place, "tf_crop_and_resize") == 0 && (x < 0 || x > (double)(a->from - 1));
}

static int64_t clamped(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static int64_t nearest_to(const resizing *r, const resized_axis *a, double x)
{
    double low = floor(x);
    if (!*r->nearest) { /* as version 10: in float, up where the result is smaller */
        float at = (float)x;
        return (int64_t)(a->scale < 1 ? ceilf(at) : floorf(at));
    }
    if (x == low) return (int64_t)x;
    if (strcmp(r->nearest, "floor") == 0) return (int64_t)low;
    if (strcmp(r->nearest, "ceil") == 0) return (int64_t)low + 1;
    if (strcmp(r->nearest, "round_prefer_ceil") == 0) return (int64_t)low + (x - low >= 0.5);
    return (int64_t)low + (x - low > 0.5);
}

/* The weight of an element at a distance. */
static double kernel(const resizing *r, double d)
{
    double a = r->cubic;
    d = fabs(d);
    if (strcmp(r->mode, "linear") == 0) return d < 1 ? 1 - d : 0;
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* A row of weights of the elements of the input. */
static void weigh(const resizing *r, const resized_axis *a, double x, double *row)
{
    double scale = r->antialias && a->scale < 1 ? a->scale : 1, sum = 0;
    int64_t reach = strcmp(r->mode, "linear") == 0 ? 1 : 2, base = (int64_t)ceil(x) - 1;
    int64_t first = (int64_t)floor((double)-reach / scale) + 1, last = 1 - first; /* from base */
    for (int64_t i = first; i <= last; i++) {
        int64_t at = base + i;
        double w = kernel(r, ((double)at - x) * scale);
        if (r->exclude_outside && (at < 0 || at >= a->from)) continue;
        row[clamped(at, a->from)] += w;
        sum += w;
    }
    for (int64_t i = 0; i < a->from && sum != 0 && (r->exclude_outside || r->antialias); i++)
        row[i] /= sum;
}

/* 1 where the result is the value for the outside. */
static aril_tensor *fill_outside(onnx_call *c, const resizing *r, const resized_axis *a, int axis,
                                 aril_tensor *y)
{
    double *out = aril__onnx_alloc(&c->run->arena, (size_t)a->to, sizeof *out);
    bool any = false;
    if (!out) return NULL;
    for (int64_t i = 0; i < a->to; i++) any |= (out[i] = is_outside(r, a, origin(r, a, i))) != 0;
    if (!any) return y;
    aril_tensor *mask = aril__onnx_numbers(c, out, a->to, ARIL_BOOL);
    for (int i = axis + 1; i < aril_ndim(y); i++) mask = aril_unsqueeze(mask, -1);
    return aril_where(mask, aril_full_like(y, r->outside), y);
}

static aril_status resize_axis(onnx_call *c, const resizing *r, const resized_axis *a, int axis,
                               aril_tensor **x)
{
    aril_tensor *y = *x;
    if (a->from < 1 && a->to > 0)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "an empty axis cannot be enlarged");
    if (strcmp(r->mode, "nearest") == 0) {
        int64_t *from = aril__onnx_alloc(&c->run->arena, (size_t)a->to, sizeof *from);
        if (!from) return ARIL_ERR_MEMORY;
        for (int64_t i = 0; i < a->to; i++)
            from[i] = clamped(nearest_to(r, a, origin(r, a, i)), a->from);
        y = aril_index_select(y, aril__onnx_index(c, from, a->to), axis);
    } else {
        int64_t n;
        if (__builtin_mul_overflow(a->to, a->from, &n))
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "too large");
        double *w = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *w);
        if (!w) return ARIL_ERR_MEMORY;
        for (int64_t i = 0; i < a->to; i++) weigh(r, a, origin(r, a, i), w + i * a->from);
        aril_dtype dtype = aril_dtype_of(y) == ARIL_F64 ? ARIL_F64 : ARIL_F32;
        aril_tensor *matrix =
            aril_reshape(aril__onnx_numbers(c, w, n, dtype), ARIL_SHAPE(a->to, a->from));
        y = aril_transpose(aril_cast(y, dtype), axis, -1);
        y = aril_transpose(aril_matmul(y, aril_t(matrix)), axis, -1);
    }
    *x = fill_outside(c, r, a, axis, y);
    return *x ? ARIL_OK : ARIL_ERR_MEMORY;
}

/* With a policy, all axes have the scale of the one that limits it. */
static void keep_aspect(const char *policy, resized_axis *a, int n)
{
    bool larger = strcmp(policy, "not_smaller") == 0;
    double scale = 0;
    if (strcmp(policy, "stretch") == 0) return;
    for (int i = 0; i < n; i++)
        if (i == 0 || (larger ? a[i].scale > scale : a[i].scale < scale)) scale = a[i].scale;
    for (int i = 0; i < n; i++) {
        a[i].scale = scale;
        a[i].to = (int64_t)floor(scale * (double)a[i].from + 0.5);
    }
}

static aril_status resize_axes(onnx_call *c, const resizing *r, onnx_floats scales, onnx_ints sizes,
                               onnx_floats roi)
{
    aril_tensor *x = in(c, 0);
    onnx_ints listed = aril__onnx_attr_ints(c, "axes");
    int n = listed.n >= 0 ? (int)listed.n : aril_ndim(x), axis[ARIL_MAX_DIMS];
    resized_axis a[ARIL_MAX_DIMS];
    bool policy = sizes.n > 0 && !attr_is(c, "keep_aspect_ratio_policy", "stretch", "stretch");
    bool open = false;
    if (n > ARIL_MAX_DIMS || (scales.n > 0 && scales.n != n) || (sizes.n > 0 && sizes.n != n) ||
        (scales.n <= 0 && sizes.n <= 0))
        return aril__onnx_fail(c, ARIL_ERR_ARG, "expected a scale or a size for each axis");
    for (int i = 0; i < n; i++) {
        axis[i] = aril__onnx_axis(c, listed.n >= 0 ? listed.at[i] : i, aril_ndim(x));
        if (axis[i] < 0) return ARIL_ERR_ARG;
        a[i] = (resized_axis){ .from = aril_size(x, axis[i]), .end = 1 };
        if (a[i].from < 0) { /* left open: it can only stay as it is */
            bool same = sizes.n > 0 ? sizes.at[i] == a[i].from && !policy : scales.at[i] == 1;
            if (!same) return ARIL__ONNX_DYNAMIC;
            a[i].to = a[i].from;
            a[i].scale = 1;
            open = true;
        } else if (sizes.n > 0) {
            if (aril__size_is_named(sizes.at[i])) return ARIL__ONNX_DYNAMIC;
            a[i].to = sizes.at[i];
            a[i].scale = (double)a[i].to / (double)a[i].from;
        } else {
            a[i].scale = scales.at[i];
            a[i].to = (int64_t)floor((double)a[i].from * scales.at[i]);
        }
        if (a[i].from >= 0 && (!(a[i].scale > 0) || a[i].to > INT32_MAX || a[i].to < 0))
            return aril__onnx_fail(c, ARIL_ERR_ARG, "scales and sizes must be positive");
        if (roi.n == 2 * n) {
            a[i].start = roi.at[i];
            a[i].end = roi.at[n + i];
        }
    }
    bool crops = strcmp(r->place, "tf_crop_and_resize") == 0;
    if (open && crops) return ARIL__ONNX_DYNAMIC;
    if (policy) keep_aspect(aril__onnx_attr_text(c, "keep_aspect_ratio_policy", "stretch"), a, n);
    aril_tensor *y = x;
    for (int i = 0; i < n; i++) {
        if (a[i].from == a[i].to && a[i].scale == 1 &&
            !(crops && (a[i].start != 0 || a[i].end != 1)))
            continue;
        aril_status s = resize_axis(c, r, &a[i], axis[i], &y);
        if (s < 0) return s;
    }
    if (aril_dtype_of(y) != aril_dtype_of(x) && !aril_dtype_is_float(aril_dtype_of(x)))
        y = aril_round(y);
    return give(c, 0, like(y, x));
}

static aril_status resize(onnx_call *c)
{
    bool old = c->version < 11;
    resizing r = { .mode = aril__onnx_attr_text(c, "mode", "nearest"),
                   .place = aril__onnx_attr_text(c, "coordinate_transformation_mode",
                                                 old ? "asymmetric" : "half_pixel"),
                   .nearest =
                       aril__onnx_attr_text(c, "nearest_mode", old ? "" : "round_prefer_floor"),
                   .cubic = aril__onnx_attr_float(c, "cubic_coeff_a", -0.75),
                   .outside = aril__onnx_attr_float(c, "extrapolation_value", 0),
                   .exclude_outside = aril__onnx_attr_int(c, "exclude_outside", 0) != 0,
                   .antialias = aril__onnx_attr_int(c, "antialias", 0) != 0 };
    onnx_floats scales, roi = { .n = -1 };
    onnx_ints sizes = { .n = -1 };
    aril_status s = aril__onnx_floats(c, old ? 1 : 2, &scales);
    if (s == ARIL_OK && !old) s = aril__onnx_floats(c, 1, &roi);
    if (s == ARIL_OK && !old) s = aril__onnx_ints(c, 3, &sizes);
    return s != ARIL_OK ? s : resize_axes(c, &r, scales, sizes, roi);
}

static aril_status upsample(onnx_call *c)
{
    resizing r = { .mode = aril__onnx_attr_text(c, "mode", "nearest"),
                   .place = "asymmetric",
                   .nearest = "" };
    if (strcmp(r.mode, "bilinear") == 0) r.mode = "linear";
    onnx_floats scales = aril__onnx_attr_floats(c, "scales"), none = { .n = -1 };
    aril_status s = ARIL_OK;
    if (c->version < 7) { /* height_scale and width_scale */
        scales = (onnx_floats){ 4, aril__onnx_alloc(&c->run->arena, 4, sizeof(double)) };
        if (!scales.at) return ARIL_ERR_MEMORY;
        scales.at[0] = scales.at[1] = 1;
        scales.at[2] = aril__onnx_attr_float(c, "height_scale", 1);
        scales.at[3] = aril__onnx_attr_float(c, "width_scale", 1);
    } else if (c->version >= 9) {
        s = aril__onnx_floats(c, 1, &scales);
    }
    return s != ARIL_OK ? s : resize_axes(c, &r, scales, (onnx_ints){ .n = -1 }, none);
}

const onnx_rule aril__onnx_resize_rules[] = {
    RULE_FLAGS("Resize", 10, resize, ONNX_OPEN_0 << 3),
    { "", "Upsample", 1, 9, upsample, NULL, NULL, 0 },
    { 0 },
};
