/* Transforms that move pixels. */
#include "data/transform.h"

#include "data/image/pixels.h"
#include "core/vector/targets.h"

#include <math.h>
#include <string.h>

#define SIZE_SETTING                                                                        \
    {                                                                                       \
        .name = "size", .type = ARIL__SET_SIZE, .required = true, .low = 1, .high = 1 << 20 \
    }
#define FILTER_SETTING                                                          \
    {                                                                           \
        .name = "filter", .type = ARIL__SET_FILTER, .high = ARIL_FILTER_BICUBIC \
    }
#define ANTIALIAS_SETTING                                                         \
    {                                                                             \
        .name = "antialias", .type = ARIL__SET_INTEGER, .high = 1, .start = { 1 } \
    }
#define FILL_SETTING                                                       \
    {                                                                      \
        .name = "fill", .type = ARIL__SET_NUMBER, .low = -1e6, .high = 1e6 \
    }
#define P_SETTING(at)                                                     \
    {                                                                     \
        .name = "p", .type = ARIL__SET_NUMBER, .high = 1, .start = { at } \
    }

static aril_resize_opts resize_opts(const aril_transform *t, int filter, int antialias)
{
    return (aril_resize_opts){ .filter = (aril_filter)t->value[filter].v[0],
                               .no_antialias = t->value[antialias].v[0] == 0 };
}

static void set_resize_opts(aril_transform *t, int filter, int antialias, aril_resize_opts o)
{
    if (o.filter != ARIL_FILTER_BILINEAR) aril__set1(t, filter, o.filter);
    if (o.no_antialias) aril__set1(t, antialias, 0);
}

static void set_size(aril_transform *t, int64_t height, int64_t width)
{
    if (width)
        aril__set2(t, 0, (double)height, (double)width);
    else
        aril__set1(t, 0, (double)height);
}

/* ---- resizing ---- */

/* Maps `r` to coordinates of the image as decoded (scaled and cropped). */
static aril__box box_of(const aril_sample *s, const aril_region *r)
{
    aril__box b = { (double)r->x, (double)r->y, (double)r->width, (double)r->height };
    if (s->decoded.scale_x > 0) {
        b.x = b.x * s->decoded.scale_x - (double)s->decoded.x;
        b.y = b.y * s->decoded.scale_y - (double)s->decoded.y;
        b.width *= s->decoded.scale_x;
        b.height *= s->decoded.scale_y;
    }
    return b;
}

static aril_status resize_region(aril__change *w, const aril__pixels_view *v, const aril_region *r,
                                 aril_resize_opts opts)
{
    aril_tensor *out =
        aril__image_new(v->f32 ? ARIL_F32 : ARIL_U8, v->channels, r->to_height, r->to_width);
    if (!out) return ARIL_ERR_MEMORY;
    aril_status status =
        aril__resize(v, box_of(w->s, r), r->to_height, r->to_width, opts, aril__ptr(out));
    if (status >= 0) aril__image_set(w, out);
    return status;
}

/* Resizes the region that the reader was given, or one drawn for the actual image size. */
static aril_status take_region(const aril_transform *t, aril__change *w, int filter, int antialias)
{
    aril__pixels_view v;
    aril_status status = aril__image_view(w, &v);
    if (status < 0) return status;
    aril_region r = w->s->region;
    if (!r.width) t->kind->region(t, w->g, v.width, v.height, &r);
    return resize_region(w, &v, &r, resize_opts(t, filter, antialias));
}

enum { RESIZE_FILTER = 1, RESIZE_ANTIALIAS = 2 };

static bool resize_full(const aril_transform *t, aril_generator *g, int64_t width, int64_t height,
                        aril_region *r)
{
    (void)g;
    *r = (aril_region){ .width = width, .height = height };
    int64_t size = aril__set_height(t, 0);
    if (t->value[0].n > 1) {
        r->to_height = size;
        r->to_width = aril__set_width(t, 0);
    } else if (width <= height) {
        r->to_width = size;
        r->to_height = (int64_t)((double)size * (double)height / (double)width);
    } else {
        r->to_height = size;
        r->to_width = (int64_t)((double)size * (double)width / (double)height);
    }
    return true;
}

static aril_status resize_sample(const aril_transform *t, aril__change *w)
{
    return take_region(t, w, RESIZE_FILTER, RESIZE_ANTIALIAS);
}

const aril__transform_kind aril__kind_resize = {
    .name = "resize",
    .doc = "resize to a size, or the shorter side to one number",
    .setting = { SIZE_SETTING, FILTER_SETTING, ANTIALIAS_SETTING },
    .sample = resize_sample,
    .region = resize_full,
};

aril_transform *aril_transform_resize(int64_t height, int64_t width, aril_resize_opts opts)
{
    aril_transform *t = aril__transform_new(&aril__kind_resize);
    if (!t) return NULL;
    set_size(t, height, width);
    set_resize_opts(t, RESIZE_FILTER, RESIZE_ANTIALIAS, opts);
    return aril__transform_checked(t);
}

enum { RRC_SCALE = 1, RRC_RATIO, RRC_FILTER, RRC_ANTIALIAS };

static bool resized_crop_region(const aril_transform *t, aril_generator *g, int64_t width,
                                int64_t height, aril_region *r)
{
    const double *scale = t->value[RRC_SCALE].v, *ratio = t->value[RRC_RATIO].v;
    r->to_height = aril__set_height(t, 0);
    r->to_width = aril__set_width(t, 0);
    double area = (double)width * (double)height;
    for (int attempt = 0; attempt < 10; attempt++) {
        double target = area * aril__draw_between(g, scale[0], scale[1]);
        double shape = exp(aril__draw_between(g, log(ratio[0]), log(ratio[1])));
        int64_t w = (int64_t)nearbyint(sqrt(target * shape));
        int64_t h = (int64_t)nearbyint(sqrt(target / shape));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        r->y = aril__draw_below(g, height - h + 1);
        r->x = aril__draw_below(g, width - w + 1);
        r->width = w;
        r->height = h;
        return true;
    }
    /* Fall back to a center crop with the aspect ratio clamped to the allowed range. */
    double shape = (double)width / (double)height;
    r->width = width;
    r->height = height;
    if (shape < ratio[0])
        r->height = (int64_t)nearbyint((double)width / ratio[0]);
    else if (shape > ratio[1])
        r->width = (int64_t)nearbyint((double)height * ratio[1]);
    if (r->width > width || r->width < 1) r->width = width;
    if (r->height > height || r->height < 1) r->height = height;
    r->x = (width - r->width) / 2;
    r->y = (height - r->height) / 2;
    return true;
}

static aril_status resized_crop_sample(const aril_transform *t, aril__change *w)
{
    return take_region(t, w, RRC_FILTER, RRC_ANTIALIAS);
}

const aril__transform_kind aril__kind_resized_crop = {
    .name = "random_resized_crop",
    .doc = "random crop of random size and shape, resized",
    .setting = { SIZE_SETTING,
                 { .name = "scale",
                   .type = ARIL__SET_PAIR,
                   .low = 1e-6,
                   .high = 1,
                   .start = { 0.08, 1 } },
                 { .name = "ratio",
                   .type = ARIL__SET_PAIR,
                   .low = 1e-3,
                   .high = 1e3,
                   .start = { 3.0 / 4, 4.0 / 3 } },
                 FILTER_SETTING,
                 ANTIALIAS_SETTING },
    .sample = resized_crop_sample,
    .region = resized_crop_region,
};

aril_transform *aril_transform_random_resized_crop(int64_t height, int64_t width,
                                                   aril_crop_opts opts)
{
    aril_transform *t = aril__transform_new(&aril__kind_resized_crop);
    if (!t) return NULL;
    set_size(t, height, width);
    aril__set2_if(t, RRC_SCALE, opts.scale);
    aril__set2_if(t, RRC_RATIO, opts.ratio);
    set_resize_opts(t, RRC_FILTER, RRC_ANTIALIAS, opts.resize);
    return aril__transform_checked(t);
}

/* ---- cropping and padding ---- */

/* Maps an index outside 0 .. n - 1 by reflection; edges are not repeated. */
static int64_t mirror(int64_t i, int64_t n)
{
    if (n == 1) return 0;
    int64_t period = 2 * (n - 1);
    i %= period;
    if (i < 0) i += period;
    return i < n ? i : period - i;
}

/* Crops height x width pixels at (x, y), which may lie outside the image. */
static aril_status part(aril__change *w, int64_t x, int64_t y, int64_t height, int64_t width,
                        double fill, bool reflect)
{
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    const aril_tensor *in = w->s->x;
    int64_t c = in->dim[0], h = in->dim[1], n = in->dim[2];
    aril_tensor *out = aril__image_new((aril_dtype)in->dtype, c, height, width);
    if (!out) return ARIL_ERR_MEMORY;
    bool f32 = in->dtype == ARIL_F32;
    size_t size = f32 ? sizeof(float) : 1;
    const char *from = aril__ptr(in);
    char *to = aril__ptr(out);
    float empty = f32 ? (float)fill : 0;
    uint8_t empty_u8 = f32 ? 0 : aril__to_u8(fill);
    /* Columns [begin, end) of the result exist in the image, contiguous in a row. */
    int64_t begin = x < 0 ? -x : 0, end = n - x < width ? n - x : width;
    if (begin > width) begin = width;
    if (end < begin) end = begin;
    for (int64_t k = 0; k < c; k++)
        for (int64_t r = 0; r < height; r++, to += (size_t)width * size) {
            int64_t line = y + r;
            bool there = line >= 0 && line < h;
            if (!there && reflect) {
                line = mirror(line, h);
                there = true;
            }
            const char *row = from + (size_t)((k * h + (there ? line : 0)) * n) * size;
            int64_t a = there ? begin : width, b = there ? end : width;
            if (b > a)
                memcpy(to + (size_t)a * size, row + (size_t)(x + a) * size, (size_t)(b - a) * size);
            for (int64_t i = 0; i < width; i++) {
                if (i == a && b > a) i = b;
                if (i >= width) break;
                if (there && reflect)
                    memcpy(to + (size_t)i * size, row + (size_t)mirror(x + i, n) * size, size);
                else if (f32)
                    memcpy(to + (size_t)i * size, &empty, sizeof empty);
                else
                    to[i] = (char)empty_u8;
            }
        }
    aril__image_set(w, out);
    return ARIL_OK;
}

/* Floor of d / 2 for odd differences of either sign, as torchvision crops. */
static int64_t half(int64_t d)
{
    return (int64_t)nearbyint((double)d / 2);
}

static aril_status center_crop_sample(const aril_transform *t, aril__change *w)
{
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    int64_t height = aril__set_height(t, 0), width = aril__set_width(t, 0);
    int64_t h = w->s->x->dim[1], n = w->s->x->dim[2];
    int64_t x = n >= width ? half(n - width) : -((width - n) / 2);
    int64_t y = h >= height ? half(h - height) : -((height - h) / 2);
    return part(w, x, y, height, width, 0, false);
}

const aril__transform_kind aril__kind_center_crop = {
    .name = "center_crop",
    .doc = "crop the center",
    .setting = { SIZE_SETTING },
    .sample = center_crop_sample,
};

aril_transform *aril_transform_center_crop(int64_t height, int64_t width)
{
    aril_transform *t = aril__transform_new(&aril__kind_center_crop);
    if (!t) return NULL;
    set_size(t, height, width);
    return aril__transform_checked(t);
}

enum { CROP_PAD = 1, CROP_FILL, CROP_REFLECT };

static aril_status crop_sample(const aril_transform *t, aril__change *w)
{
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    int64_t height = aril__set_height(t, 0), width = aril__set_width(t, 0);
    int64_t h = w->s->x->dim[1], n = w->s->x->dim[2], pad = (int64_t)t->value[CROP_PAD].v[0];
    if (h + 2 * pad < height || n + 2 * pad < width)
        return aril__fail(ARIL_ERR_SHAPE,
                          "crop: cannot crop %lld x %lld from an image of %lld x %lld with %lld "
                          "pixels of padding",
                          (long long)height, (long long)width, (long long)h, (long long)n,
                          (long long)pad);
    int64_t y = aril__draw_below(w->g, h + 2 * pad - height + 1) - pad;
    int64_t x = aril__draw_below(w->g, n + 2 * pad - width + 1) - pad;
    return part(w, x, y, height, width, t->value[CROP_FILL].v[0], t->value[CROP_REFLECT].v[0] != 0);
}

const aril__transform_kind aril__kind_crop = {
    .name = "crop",
    .doc = "random crop, after padding",
    .setting = { SIZE_SETTING,
                 { .name = "pad", .type = ARIL__SET_INTEGER, .high = 1 << 16 },
                 FILL_SETTING,
                 { .name = "reflect", .type = ARIL__SET_INTEGER, .high = 1 } },
    .sample = crop_sample,
};

aril_transform *aril_transform_random_crop(int64_t height, int64_t width, aril_crop_opts opts)
{
    aril_transform *t = aril__transform_new(&aril__kind_crop);
    if (!t) return NULL;
    set_size(t, height, width);
    if (opts.pad) aril__set1(t, CROP_PAD, (double)opts.pad);
    aril__set1_if(t, CROP_FILL, opts.fill);
    if (opts.reflect) aril__set1(t, CROP_REFLECT, 1);
    return aril__transform_checked(t);
}

static aril_status pad_sample(const aril_transform *t, aril__change *w)
{
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    const aril__value *v = &t->value[0];
    int64_t side[4]; /* left, top, right, bottom; one value: all sides, two: x and y */
    for (int i = 0; i < 4; i++) side[i] = (int64_t)v->v[v->n == 4 ? i : v->n == 2 ? i % 2 : 0];
    return part(w, -side[0], -side[1], w->s->x->dim[1] + side[1] + side[3],
                w->s->x->dim[2] + side[0] + side[2], t->value[1].v[0], false);
}

static aril_status pad_check(const aril_transform *t)
{
    const aril__value *v = &t->value[0];
    bool integral = v->n != 3;
    for (int i = 0; i < v->n; i++) integral &= v->v[i] == floor(v->v[i]);
    return integral ? ARIL_OK
                    : aril__fail(
                          ARIL_ERR_ARG,
                          "pad: expected one, two (x/y) or four (left/top/right/bottom) integers");
}

const aril__transform_kind aril__kind_pad = {
    .name = "pad",
    .doc = "pad with so many pixels on each side",
    .setting = { { .name = "pixels", .type = ARIL__SET_LIST, .required = true, .high = 1 << 16 },
                 FILL_SETTING },
    .sample = pad_sample,
    .check = pad_check,
};

aril_transform *aril_transform_pad(int64_t left, int64_t top, int64_t right, int64_t bottom,
                                   double fill)
{
    aril_transform *t = aril__transform_new(&aril__kind_pad);
    if (!t) return NULL;
    t->value[0] = (aril__value){ 4, { (double)left, (double)top, (double)right, (double)bottom } };
    aril__set1_if(t, 1, fill);
    return aril__transform_checked(t);
}

/* ---- flips ---- */

static aril_status flip(aril__change *w, bool rows)
{
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    const aril_tensor *in = w->s->x;
    int64_t c = in->dim[0], h = in->dim[1], n = in->dim[2];
    aril_tensor *out = aril__image_new((aril_dtype)in->dtype, c, h, n);
    if (!out) return ARIL_ERR_MEMORY;
    bool f32 = in->dtype == ARIL_F32;
    size_t row = (size_t)n * (f32 ? sizeof(float) : 1);
    const char *from = aril__ptr(in);
    char *to = aril__ptr(out);
    for (int64_t k = 0; k < c; k++)
        for (int64_t y = 0; y < h; y++) {
            const char *src = from + (size_t)(k * h + (rows ? h - 1 - y : y)) * row;
            char *dst = to + (size_t)(k * h + y) * row;
            if (rows)
                memcpy(dst, src, row);
            else if (f32)
                aril__reverse_f32((float *)(void *)dst, (const float *)(const void *)src, n);
            else
                aril__reverse_u8((uint8_t *)dst, (const uint8_t *)src, n);
        }
    aril__image_set(w, out);
    return ARIL_OK;
}

static aril_status flip_sample(const aril_transform *t, aril__change *w)
{
    return aril__draw(w->g) < t->value[0].v[0] ? flip(w, false) : ARIL_OK;
}

static aril_status flip_vertical_sample(const aril_transform *t, aril__change *w)
{
    return aril__draw(w->g) < t->value[0].v[0] ? flip(w, true) : ARIL_OK;
}

const aril__transform_kind aril__kind_flip = { .name = "flip",
                                               .doc = "random horizontal flip",
                                               .setting = { P_SETTING(0.5) },
                                               .sample = flip_sample };
const aril__transform_kind aril__kind_flip_vertical = { .name = "flip_vertical",
                                                        .doc = "random vertical flip",
                                                        .setting = { P_SETTING(0.5) },
                                                        .sample = flip_vertical_sample };

static aril_transform *with_p(const aril__transform_kind *kind, double p)
{
    aril_transform *t = aril__transform_new(kind);
    aril__set1(t, 0, p);
    return aril__transform_checked(t);
}

aril_transform *aril_transform_flip(double p)
{
    return with_p(&aril__kind_flip, p);
}

aril_transform *aril_transform_flip_vertical(double p)
{
    return with_p(&aril__kind_flip_vertical, p);
}

/* ---- rotation ---- */

/* Rounds half to even; v is in 0..255. */
static inline __attribute__((always_inline)) uint8_t round_u8(float v)
{
    v = v < 0 ? 0 : v > 255 ? 255 : v;
    return (uint8_t)(int32_t)((v + 0x1.8p23f) - 0x1.8p23f);
}

#define TEMPLATE "data/image/rotate_types.inc"
#include "data/targets.inc"

aril_tensor *aril__rotate(aril_tensor *x, double degrees, aril_filter filter, double fill)
{
    int64_t c = x->dim[0], h = x->dim[1], n = x->dim[2];
    aril_tensor *out = aril__image_new((aril_dtype)x->dtype, c, h, n);
    if (!out) return aril__poison();
    float angle = (float)(degrees * 3.14159265358979323846 / 180);
    float cosine = cosf(angle), sine = sinf(angle);
    bool nearest = filter == ARIL_FILTER_NEAREST;
    if (x->dtype == ARIL_F32) PICK(rotate_f32)
    (aril__ptr(x), aril__ptr(out), c, h, n, cosine, sine, nearest, (float)fill);
    else PICK(rotate_u8)(aril__ptr(x), aril__ptr(out), c, h, n, cosine, sine, nearest, (float)fill);
    return out;
}

enum { ROTATE_FILTER = 1, ROTATE_FILL };

static aril_status rotate_sample(const aril_transform *t, aril__change *w)
{
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    double max = t->value[0].v[0], degrees = aril__draw_between(w->g, -max, max);
    aril_tensor *x = aril__rotate(w->s->x, degrees, (aril_filter)t->value[ROTATE_FILTER].v[0],
                                  t->value[ROTATE_FILL].v[0]);
    if (aril__is_poison(x)) return ARIL_ERR_MEMORY;
    aril__image_set(w, x);
    return ARIL_OK;
}

static aril_status rotate_check(const aril_transform *t)
{
    return t->value[ROTATE_FILTER].v[0] == ARIL_FILTER_BICUBIC
               ? aril__fail(ARIL_ERR_ARG, "rotate: the filter is bilinear or nearest, not bicubic")
               : ARIL_OK;
}

const aril__transform_kind aril__kind_rotate = {
    .name = "rotate",
    .doc = "random rotation by up to so many degrees",
    .setting = { { .name = "degrees", .type = ARIL__SET_NUMBER, .required = true, .high = 360 },
                 FILTER_SETTING,
                 FILL_SETTING },
    .sample = rotate_sample,
    .check = rotate_check,
};

aril_transform *aril_transform_rotate(double degrees, aril_filter filter, double fill)
{
    aril_transform *t = aril__transform_new(&aril__kind_rotate);
    if (!t) return NULL;
    aril__set1(t, 0, degrees);
    if (filter != ARIL_FILTER_BILINEAR) aril__set1(t, ROTATE_FILTER, filter);
    aril__set1_if(t, ROTATE_FILL, fill);
    return aril__transform_checked(t);
}
