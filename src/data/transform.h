/* Kinds of transforms: each is a table row with its settings, from which parsing, help and checks
 * are derived. */
#ifndef ARIL_DATA_TRANSFORM_H
#define ARIL_DATA_TRANSFORM_H

#include "aril/transform.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "data/image/resize.h"

enum { ARIL__SETTINGS = 6, ARIL__SETTING_NUMBERS = 4 };

typedef enum aril__setting_type {
    ARIL__SET_NUMBER,
    ARIL__SET_INTEGER, /* an integer */
    ARIL__SET_SIZE,    /* 224 or 224x192: height, width */
    ARIL__SET_LIST,    /* 0.5/0.5/0.5: up to four */
    ARIL__SET_PAIR,    /* 0.08/1: two, the first not larger */
    ARIL__SET_FILTER,  /* bilinear, nearest, bicubic */
} aril__setting_type;

typedef struct aril__setting {
    const char *name;
    aril__setting_type type;
    bool required;
    bool class_count; /* 0: the dataset's number of classes */
    double low, high; /* each number must lie between them */
    double start[2];  /* default */
} aril__setting;

typedef struct aril__value {
    int n; /* numbers given; 0: none, v holds the default */
    double v[ARIL__SETTING_NUMBERS];
} aril__value;

/* A sample passing through transforms. */
typedef struct aril__change {
    const char *name; /* current transform, for error messages */
    aril_sample *s;
    aril_generator *g;
    bool mine; /* s->x was created by a transform: it may be modified in place */
} aril__change;

typedef struct aril__transform_kind {
    const char *name, *doc;
    aril__setting setting[ARIL__SETTINGS];
    aril_status (*sample)(const aril_transform *t, aril__change *w); /* NULL: batches only */
    aril_status (*batch)(const aril_transform *t, aril_batch *b, aril_generator *g); /* optional */
    /* Optional: the region of an image it uses, drawn as `sample` would. */
    bool (*region)(const aril_transform *t, aril_generator *g, int64_t width, int64_t height,
                   aril_region *region);
    aril_status (*check)(const aril_transform *t); /* optional: checks the settings together */
} aril__transform_kind;

struct aril_transform {
    const aril__transform_kind *kind; /* NULL: a list */
    aril__value value[ARIL__SETTINGS];
    aril_map_fn *fn;
    void *ctx;
    void (*drop)(void *ctx);
    int n;
    aril_transform **list;
};

extern const aril__transform_kind aril__kind_resize, aril__kind_center_crop, aril__kind_crop,
    aril__kind_resized_crop, aril__kind_pad, aril__kind_flip, aril__kind_flip_vertical,
    aril__kind_rotate, aril__kind_jitter, aril__kind_grayscale, aril__kind_to_float,
    aril__kind_normalize, aril__kind_erase, aril__kind_cutout, aril__kind_one_hot, aril__kind_mixup,
    aril__kind_cutmix, aril__kind_function;

/* Creates a transform with default settings; aril__transform_checked validates the settings. It
 * takes over t and returns NULL on failure. */
aril_transform *aril__transform_new(const aril__transform_kind *kind);
aril_transform *aril__transform_checked(aril_transform *t);
static inline void aril__set1(aril_transform *t, int k, double v)
{
    if (!t) return;
    t->value[k].n = 1;
    t->value[k].v[0] = v;
}
static inline void aril__set2(aril_transform *t, int k, double a, double b)
{
    if (!t) return;
    t->value[k].n = 2;
    t->value[k].v[0] = a;
    t->value[k].v[1] = b;
}
/* The same unless 0, which in options means the default. */
static inline void aril__set1_if(aril_transform *t, int k, double v)
{
    if (v != 0) aril__set1(t, k, v);
}
static inline void aril__set2_if(aril_transform *t, int k, const double v[2])
{
    if (v[0] != 0 || v[1] != 0) aril__set2(t, k, v[0], v[1]);
}

/* Height and width of a size setting. */
static inline int64_t aril__set_height(const aril_transform *t, int k)
{
    return (int64_t)t->value[k].v[0];
}
static inline int64_t aril__set_width(const aril_transform *t, int k)
{
    return (int64_t)(t->value[k].n > 1 ? t->value[k].v[1] : t->value[k].v[0]);
}

/* True if the first transform can tell which region of an image it uses. */
bool aril__transform_has_region(const aril_transform *t);
/* Fails if a transform works on batches only. */
aril_status aril__transform_check_samples(const char *what, const aril_transform *t);
/* True if all transforms can be applied to a batch with the same result as per sample. */
bool aril__transform_takes_batches(const aril_transform *t);
/* Sets the number of classes of transforms that were not given one. */
void aril__transform_set_classes(aril_transform *t, int64_t classes);

/* Random draws: uniform in [0, 1), uniform in [low, high), integer in [0, n). */
double aril__draw(aril_generator *g);
double aril__draw_between(aril_generator *g, double low, double high);
int64_t aril__draw_below(aril_generator *g, int64_t n);

/* ---- images ---- */

/* Checks that s->x is an image, and makes it contiguous and planar. */
aril_status aril__image_dense(aril__change *w);
/* The same, with any strides that aril__resize accepts. */
aril_status aril__image_view(aril__change *w, aril__pixels_view *v);
/* Makes s->x writable in place, copying it unless a transform created it. */
aril_status aril__image_own(aril__change *w);
/* Creates an image, owned by the scope; NULL with an error. */
aril_tensor *aril__image_new(aril_dtype dtype, int64_t c, int64_t h, int64_t w);
static inline void aril__image_set(aril__change *w, aril_tensor *x)
{
    w->s->x = x;
    w->mine = true;
}
/* A value as a u8 element: rounded and clamped. */
static inline uint8_t aril__to_u8(double v)
{
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5);
}

/* The steps of jitter, in place, on a contiguous image that nobody else holds (u8 or f32, 1 or 3
 * channels). */
void aril__adjust_brightness(aril_tensor *x, double factor);
void aril__adjust_contrast(aril_tensor *x, double factor);
void aril__adjust_saturation(aril_tensor *x, double factor);
void aril__adjust_hue(aril_tensor *x, double turn);

/* Rotates by an angle (degrees, counter-clockwise); poison on failure. */
aril_tensor *aril__rotate(aril_tensor *x, double degrees, aril_filter filter, double fill);

#endif
