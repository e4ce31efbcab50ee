/* Transforms that change pixel values: colour, normalization, erasing. */
#include "data/transform.h"

#include "core/parallel.h"
#include "data/image/pixels.h"

#include <math.h>
#include <string.h>

/* ---- colour jitter, with the arithmetic of torchvision's tensor transforms ---- */

static const float RED = 0.2989f, GREEN = 0.587f, BLUE = 0.114f;

static inline float clamp(float v, float max)
{
    return v < 0 ? 0 : v > max ? max : v;
}

/* f v + (1 - f) other, clamped; u8 truncates the fraction. */
static inline float blend(float v, float f, float rest, float other, float max)
{
    return clamp(f * v + rest * other, max);
}

static void blend_all(aril_tensor *x, double factor, float other)
{
    float f = (float)factor, rest = (float)(1 - factor);
    if (x->dtype == ARIL_F32) {
        float *p = aril__ptr(x);
        for (int64_t i = 0; i < x->numel; i++) p[i] = blend(p[i], f, rest, other, 1);
    } else {
        uint8_t *p = aril__ptr(x);
        for (int64_t i = 0; i < x->numel; i++) p[i] = (uint8_t)blend(p[i], f, rest, other, 255);
    }
}

void aril__adjust_brightness(aril_tensor *x, double factor)
{
    blend_all(x, factor, 0);
}

static inline float gray_f32(const float *p, int64_t n, int64_t i)
{
    return RED * p[i] + GREEN * p[n + i] + BLUE * p[2 * n + i];
}

static inline uint8_t gray_u8(const uint8_t *p, int64_t n, int64_t i)
{
    return (uint8_t)(RED * p[i] + GREEN * p[n + i] + BLUE * p[2 * n + i]);
}

void aril__adjust_contrast(aril_tensor *x, double factor)
{
    int64_t n = x->dim[1] * x->dim[2];
    bool color = x->dim[0] == 3;
    double sum = 0;
    if (x->dtype == ARIL_F32) {
        const float *p = aril__ptr(x);
        if (!color) n = x->numel;
        for (int64_t i = 0; i < n; i++) sum += color ? gray_f32(p, n, i) : p[i];
    } else {
        const uint8_t *p = aril__ptr(x);
        if (!color) n = x->numel;
        int64_t total = 0;
        for (int64_t i = 0; i < n; i++) total += color ? gray_u8(p, n, i) : p[i];
        sum = (double)total;
    }
    blend_all(x, factor, (float)(sum / (double)n));
}

void aril__adjust_saturation(aril_tensor *x, double factor)
{
    if (x->dim[0] != 3) return;
    int64_t n = x->dim[1] * x->dim[2];
    float f = (float)factor, rest = (float)(1 - factor);
    if (x->dtype == ARIL_F32) {
        float *p = aril__ptr(x);
        for (int64_t i = 0; i < n; i++) {
            float gray = gray_f32(p, n, i);
            for (int k = 0; k < 3; k++) p[k * n + i] = blend(p[k * n + i], f, rest, gray, 1);
        }
    } else {
        uint8_t *p = aril__ptr(x);
        for (int64_t i = 0; i < n; i++) {
            float gray = gray_u8(p, n, i);
            for (int k = 0; k < 3; k++)
                p[k * n + i] = (uint8_t)blend(p[k * n + i], f, rest, gray, 255);
        }
    }
}

/* Shifts the hue of one RGB pixel in 0..1 by way of HSV. */
static void turn_hue(float *rgb, float turn)
{
    float r = rgb[0], g = rgb[1], b = rgb[2];
    float max = fmaxf(fmaxf(r, g), b), min = fminf(fminf(r, g), b);
    float range = max - min, s = range / (max == min ? 1 : max);
    float by = max == min ? 1 : range;
    float rc = (max - r) / by, gc = (max - g) / by, bc = (max - b) / by;
    float h = max == r ? bc - gc : max == g ? 2 + rc - bc : 4 + gc - rc;
    h = fmodf(h / 6 + 1, 1);
    h += turn;
    h -= floorf(h);
    float sector = floorf(h * 6), f = h * 6 - sector;
    float p = clamp(max * (1 - s), 1), q = clamp(max * (1 - s * f), 1);
    float t = clamp(max * (1 - s * (1 - f)), 1);
    switch (sector >= 0 && sector <= 6 ? (int)sector % 6 : 5) { /* sector may be NaN */
    case 0: rgb[0] = max, rgb[1] = t, rgb[2] = p; break;
    case 1: rgb[0] = q, rgb[1] = max, rgb[2] = p; break;
    case 2: rgb[0] = p, rgb[1] = max, rgb[2] = t; break;
    case 3: rgb[0] = p, rgb[1] = q, rgb[2] = max; break;
    case 4: rgb[0] = t, rgb[1] = p, rgb[2] = max; break;
    default: rgb[0] = max, rgb[1] = p, rgb[2] = q; break;
    }
}

void aril__adjust_hue(aril_tensor *x, double by)
{
    if (x->dim[0] != 3) return;
    int64_t n = x->dim[1] * x->dim[2];
    float turn = (float)by;
    for (int64_t i = 0; i < n; i++) {
        float rgb[3];
        if (x->dtype == ARIL_F32) {
            float *p = aril__ptr(x);
            for (int k = 0; k < 3; k++) rgb[k] = p[k * n + i];
            turn_hue(rgb, turn);
            for (int k = 0; k < 3; k++) p[k * n + i] = rgb[k];
        } else {
            uint8_t *p = aril__ptr(x);
            for (int k = 0; k < 3; k++) rgb[k] = (float)p[k * n + i] / 255;
            turn_hue(rgb, turn);
            for (int k = 0; k < 3; k++) p[k * n + i] = (uint8_t)(rgb[k] * 255.999f);
        }
    }
}

static aril_status jitter_sample(const aril_transform *t, aril__change *w)
{
    typedef void adjust(aril_tensor *, double);
    static adjust *const step[4] = { aril__adjust_brightness, aril__adjust_contrast,
                                     aril__adjust_saturation, aril__adjust_hue };
    aril_status status = aril__image_own(w);
    if (status < 0) return status;
    int order[4] = { 0, 1, 2, 3 };
    for (int i = 3; i > 0; i--) {
        int j = (int)aril__draw_below(w->g, i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
    double factor[4];
    for (int k = 0; k < 4; k++) {
        /* In text, "jitter=0.2" sets everything but the hue. */
        double v = k && k < 3 && !t->value[k].n ? t->value[0].v[0] : t->value[k].v[0];
        if (k == 3)
            factor[k] = aril__draw_between(w->g, -v, v);
        else
            factor[k] = aril__draw_between(w->g, v < 1 ? 1 - v : 0, 1 + v);
        if (v == 0) factor[k] = NAN; /* skip this step */
    }
    for (int i = 0; i < 4; i++)
        if (!isnan(factor[order[i]])) step[order[i]](w->s->x, factor[order[i]]);
    return ARIL_OK;
}

const aril__transform_kind aril__kind_jitter = {
    .name = "jitter",
    .doc = "random changes of the colors, by up to so much",
    .setting = { { .name = "brightness", .type = ARIL__SET_NUMBER, .high = 100 },
                 { .name = "contrast", .type = ARIL__SET_NUMBER, .high = 100 },
                 { .name = "saturation", .type = ARIL__SET_NUMBER, .high = 100 },
                 { .name = "hue", .type = ARIL__SET_NUMBER, .high = 0.5 } },
    .sample = jitter_sample,
};

aril_transform *aril_transform_jitter(double brightness, double contrast, double saturation,
                                      double hue)
{
    aril_transform *t = aril__transform_new(&aril__kind_jitter);
    aril__set1(t, 0, brightness);
    aril__set1(t, 1, contrast);
    aril__set1(t, 2, saturation);
    aril__set1(t, 3, hue);
    return aril__transform_checked(t);
}

static aril_status grayscale_sample(const aril_transform *t, aril__change *w)
{
    double p = t->value[0].v[0];
    if (p < 1 && aril__draw(w->g) >= p) return ARIL_OK;
    aril_status status = aril__image_dense(w);
    if (status < 0) return status;
    const aril_tensor *x = w->s->x;
    int64_t c = x->dim[0], n = x->dim[1] * x->dim[2], channels = (int64_t)t->value[1].v[0];
    if (c != 1 && c != 3)
        return aril__fail(ARIL_ERR_SHAPE, "grayscale: expected 1 or 3 channels, got %lld",
                          (long long)c);
    if (c == channels && c == 1) return ARIL_OK;
    aril_tensor *out = aril__image_new((aril_dtype)x->dtype, channels, x->dim[1], x->dim[2]);
    if (!out) return ARIL_ERR_MEMORY;
    if (x->dtype == ARIL_F32) {
        const float *from = aril__ptr(x);
        float *to = aril__ptr(out);
        for (int64_t i = 0; i < n; i++) to[i] = c == 3 ? gray_f32(from, n, i) : from[i];
    } else {
        const uint8_t *from = aril__ptr(x);
        uint8_t *to = aril__ptr(out);
        for (int64_t i = 0; i < n; i++) to[i] = c == 3 ? gray_u8(from, n, i) : from[i];
    }
    size_t plane = aril__dtype_bytes((aril_dtype)x->dtype, n);
    for (int64_t k = 1; k < channels; k++)
        memcpy((char *)aril__ptr(out) + (size_t)k * plane, aril__ptr(out), plane);
    aril__image_set(w, out);
    return ARIL_OK;
}

static aril_status grayscale_check(const aril_transform *t)
{
    double channels = t->value[1].v[0];
    if (channels != 1 && channels != 3)
        return aril__fail(ARIL_ERR_ARG, "grayscale: expected 1 or 3 channels, got %g", channels);
    if (channels == 1 && t->value[0].v[0] < 1)
        return aril__fail(ARIL_ERR_ARG,
                          "grayscale: with 1 channel all images must be gray: p = 1, or "
                          "channels=3");
    return ARIL_OK;
}

const aril__transform_kind aril__kind_grayscale = {
    .name = "grayscale",
    .doc = "to gray, with probability p",
    .setting = { { .name = "p", .type = ARIL__SET_NUMBER, .high = 1, .start = { 1 } },
                 { .name = "channels",
                   .type = ARIL__SET_INTEGER,
                   .low = 1,
                   .high = 3,
                   .start = { 1 } } },
    .sample = grayscale_sample,
    .check = grayscale_check,
};

aril_transform *aril_transform_grayscale(double p, int channels)
{
    aril_transform *t = aril__transform_new(&aril__kind_grayscale);
    aril__set1(t, 0, p);
    aril__set1(t, 1, channels);
    return aril__transform_checked(t);
}

/* ---- floating point ---- */

static aril_status to_float_sample(const aril_transform *t, aril__change *w)
{
    (void)t;
    aril_status status = aril__image_dense(w);
    if (status < 0 || w->s->x->dtype == ARIL_F32) return status;
    const aril_tensor *x = w->s->x;
    aril_tensor *out = aril__image_new(ARIL_F32, x->dim[0], x->dim[1], x->dim[2]);
    if (!out) return ARIL_ERR_MEMORY;
    aril__u8_to_unit(aril__ptr(out), aril__ptr(x), x->numel);
    aril__image_set(w, out);
    return ARIL_OK;
}

static aril_status to_float_batch(const aril_transform *t, aril_batch *b, aril_generator *g)
{
    (void)t, (void)g;
    if (b->x && b->x->dtype == ARIL_F32) return ARIL_OK;
    return aril__fail(ARIL_ERR_DTYPE, "to_float: expected a batch of f32");
}

const aril__transform_kind aril__kind_to_float = { .name = "to_float",
                                                   .doc = "u8 to f32 in 0..1",
                                                   .sample = to_float_sample,
                                                   .batch = to_float_batch };

aril_transform *aril_transform_to_float(void)
{
    return aril__transform_new(&aril__kind_to_float);
}

static aril_status check_channels(const aril_transform *t, int64_t channels)
{
    for (int k = 0; k < 2; k++)
        if (t->value[k].n > 1 && t->value[k].n != channels)
            return aril__fail(ARIL_ERR_SHAPE, "normalize: %d numbers for %s, but %lld channels",
                              t->value[k].n, t->kind->setting[k].name, (long long)channels);
    return ARIL_OK;
}

/* The scale and shift of one channel. */
static void factors(const aril_transform *t, int64_t channel, float *scale, float *shift)
{
    const aril__value *mean = &t->value[0], *std = &t->value[1];
    double m = mean->v[mean->n > 1 ? channel : 0], s = std->v[std->n > 1 ? channel : 0];
    *scale = (float)(1 / s);
    *shift = (float)(-m / s);
}

static aril_status normalize_sample(const aril_transform *t, aril__change *w)
{
    aril_status status = aril__image_dense(w);
    if (status >= 0) status = check_channels(t, w->s->x->dim[0]);
    if (status < 0) return status;
    const aril_tensor *x = w->s->x;
    bool f32 = x->dtype == ARIL_F32;
    aril_tensor *out =
        f32 && w->mine ? w->s->x : aril__image_new(ARIL_F32, x->dim[0], x->dim[1], x->dim[2]);
    if (!out) return ARIL_ERR_MEMORY;
    int64_t n = x->dim[1] * x->dim[2];
    for (int64_t c = 0; c < x->dim[0]; c++) {
        float scale, shift, *to = (float *)aril__ptr(out) + c * n;
        factors(t, c, &scale, &shift);
        if (f32)
            aril__scale_shift(to, (const float *)aril__ptr(x) + c * n, n, scale, shift);
        else
            aril__u8_scale_shift(to, (const uint8_t *)aril__ptr(x) + c * n, n, scale, shift);
    }
    aril__image_set(w, out);
    return ARIL_OK;
}

struct planes {
    const aril_transform *t;
    float *x;
    int64_t channels, n;
};

static void normalize_planes(void *ctx, int64_t begin, int64_t end)
{
    const struct planes *p = ctx;
    for (int64_t i = begin; i < end; i++) {
        float scale, shift;
        factors(p->t, i % p->channels, &scale, &shift);
        aril__scale_shift(p->x + i * p->n, p->x + i * p->n, p->n, scale, shift);
    }
}

static aril_status normalize_batch(const aril_transform *t, aril_batch *b, aril_generator *g)
{
    (void)g;
    char text[ARIL__SHAPE_TEXT];
    if (!b->x || b->x->dtype != ARIL_F32 || b->x->ndim != 4 || !aril__is_dense(b->x))
        return aril__fail(ARIL_ERR_SHAPE,
                          "normalize: expected a batch of images, f32 [N,C,H,W], "
                          "got %s",
                          b->x ? aril__text(text, b->x) : "none");
    aril_status status = check_channels(t, b->x->dim[1]);
    if (status < 0) return status;
    struct planes p = { t, aril__ptr(b->x), b->x->dim[1], b->x->dim[2] * b->x->dim[3] };
    aril__parallel_for(b->n * p.channels, 65536 / (p.n + 1) + 1, normalize_planes, &p);
    aril__bump_version(b->x);
    return ARIL_OK;
}

const aril__transform_kind aril__kind_normalize = {
    .name = "normalize",
    .doc = "(x - mean) / std of each channel, in f32",
    .setting = { { .name = "mean",
                   .type = ARIL__SET_LIST,
                   .required = true,
                   .low = -1e6,
                   .high = 1e6 },
                 { .name = "std",
                   .type = ARIL__SET_LIST,
                   .required = true,
                   .low = 1e-6,
                   .high = 1e6 } },
    .sample = normalize_sample,
    .batch = normalize_batch,
};

aril_transform *aril_transform_normalize(int n, const double *mean, const double *std)
{
    if (n < 1 || n > ARIL__SETTING_NUMBERS || !mean || !std) {
        aril__fail(ARIL_ERR_ARG, "normalize: expected 1 to %d channels, got %d",
                   ARIL__SETTING_NUMBERS, n);
        return NULL;
    }
    aril_transform *t = aril__transform_new(&aril__kind_normalize);
    if (!t) return NULL;
    t->value[0].n = t->value[1].n = n;
    memcpy(t->value[0].v, mean, (size_t)n * sizeof *mean);
    memcpy(t->value[1].v, std, (size_t)n * sizeof *std);
    return aril__transform_checked(t);
}

/* ---- erasing ---- */

/* Fills a rectangle of the image, clipped at its borders. */
static void hole(aril_tensor *x, int64_t top, int64_t left, int64_t height, int64_t width,
                 double value)
{
    int64_t bottom = top + height, right = left + width;
    if (top < 0) top = 0;
    if (left < 0) left = 0;
    if (bottom > x->dim[1]) bottom = x->dim[1];
    if (right > x->dim[2]) right = x->dim[2];
    for (int64_t c = 0; c < x->dim[0]; c++)
        for (int64_t y = top; y < bottom; y++) {
            int64_t row = (c * x->dim[1] + y) * x->dim[2];
            for (int64_t i = left; i < right; i++) {
                if (x->dtype == ARIL_F32)
                    ((float *)aril__ptr(x))[row + i] = (float)value;
                else
                    ((uint8_t *)aril__ptr(x))[row + i] = aril__to_u8(value);
            }
        }
}

enum { ERASE_SCALE = 1, ERASE_RATIO, ERASE_VALUE };

static aril_status erase_sample(const aril_transform *t, aril__change *w)
{
    if (aril__draw(w->g) >= t->value[0].v[0]) return ARIL_OK;
    aril_status status = aril__image_own(w);
    if (status < 0) return status;
    const double *scale = t->value[ERASE_SCALE].v, *ratio = t->value[ERASE_RATIO].v;
    int64_t height = w->s->x->dim[1], width = w->s->x->dim[2];
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)(height * width) * aril__draw_between(w->g, scale[0], scale[1]);
        double shape = exp(aril__draw_between(w->g, log(ratio[0]), log(ratio[1])));
        int64_t h = (int64_t)nearbyint(sqrt(area * shape));
        int64_t n = (int64_t)nearbyint(sqrt(area / shape));
        if (h >= height || n >= width) continue;
        int64_t top = aril__draw_below(w->g, height - h + 1);
        int64_t left = aril__draw_below(w->g, width - n + 1);
        hole(w->s->x, top, left, h, n, t->value[ERASE_VALUE].v[0]);
        break;
    }
    return ARIL_OK;
}

const aril__transform_kind aril__kind_erase = {
    .name = "erase",
    .doc = "fill a random rectangle with one value",
    .setting = { { .name = "p", .type = ARIL__SET_NUMBER, .high = 1, .start = { 0.5 } },
                 { .name = "scale",
                   .type = ARIL__SET_PAIR,
                   .low = 0,
                   .high = 1,
                   .start = { 0.02, 0.33 } },
                 { .name = "ratio",
                   .type = ARIL__SET_PAIR,
                   .low = 1e-3,
                   .high = 1e3,
                   .start = { 0.3, 3.3 } },
                 { .name = "value", .type = ARIL__SET_NUMBER, .low = -1e6, .high = 1e6 } },
    .sample = erase_sample,
};

aril_transform *aril_transform_erase(aril_erase_opts opts)
{
    aril_transform *t = aril__transform_new(&aril__kind_erase);
    aril__set1_if(t, 0, opts.p);
    aril__set2_if(t, ERASE_SCALE, opts.scale);
    aril__set2_if(t, ERASE_RATIO, opts.ratio);
    aril__set1_if(t, ERASE_VALUE, opts.value);
    return aril__transform_checked(t);
}

static aril_status cutout_sample(const aril_transform *t, aril__change *w)
{
    aril_status status = aril__image_own(w);
    if (status < 0) return status;
    int64_t height = aril__set_height(t, 0), width = aril__set_width(t, 0);
    for (int i = 0; i < (int)t->value[1].v[0]; i++) {
        int64_t y = aril__draw_below(w->g, w->s->x->dim[1]);
        int64_t x = aril__draw_below(w->g, w->s->x->dim[2]);
        hole(w->s->x, y - height / 2, x - width / 2, height, width, 0);
    }
    return ARIL_OK;
}

const aril__transform_kind aril__kind_cutout = {
    .name = "cutout",
    .doc = "set random squares to 0",
    .setting = { { .name = "size",
                   .type = ARIL__SET_SIZE,
                   .required = true,
                   .low = 1,
                   .high = 1 << 16 },
                 { .name = "holes",
                   .type = ARIL__SET_INTEGER,
                   .low = 1,
                   .high = 1000,
                   .start = { 1 } } },
    .sample = cutout_sample,
};

aril_transform *aril_transform_cutout(int64_t size, int holes)
{
    aril_transform *t = aril__transform_new(&aril__kind_cutout);
    aril__set1(t, 0, (double)size);
    aril__set1(t, 1, holes);
    return aril__transform_checked(t);
}
