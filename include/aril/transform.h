/* Transforms: preprocessing and data augmentation of samples and batches, mostly images.
 *
 *     aril_transform *t = ARIL_TRANSFORMS(
 *         aril_transform_random_resized_crop(224, 224, (aril_crop_opts){ 0 }),
 *         aril_transform_flip(0.5), aril_transform_normalize(3, mean, std));
 *     train = aril_dataset_transform(train, t);                     takes ownership of t
 *     test = aril_dataset_transform(test, aril_transform_parse("resize=256,center_crop=224"));
 *
 * Images are u8 (0..255) or f32 (0..1), [C,H,W]; they keep their dtype unless the transform says
 * otherwise. Random numbers come from the sample's own generator and depend only on (seed, epoch,
 * sample). A sample's tensors are never modified in place.
 *
 * Functions return NULL, with an error, for an invalid setting; functions that are given a NULL
 * transform fail with that error. */
#ifndef ARIL_TRANSFORM_H
#define ARIL_TRANSFORM_H

#include "aril/data.h"

ARIL_C_BEGIN

/* Interpolation. Downscaling uses antialiasing: it averages over the pixels that fall into one (as
 * PIL does), unless no_antialias is set. */
typedef enum aril_filter {
    ARIL_FILTER_BILINEAR,
    ARIL_FILTER_NEAREST,
    ARIL_FILTER_BICUBIC,
} aril_filter;

typedef struct aril_resize_opts {
    aril_filter filter;
    bool no_antialias;
} aril_resize_opts;

typedef struct aril_crop_opts {
    int64_t pad;     /* random_crop: padding on each side before cropping */
    double fill;     /* value of the padding, in the image's own units */
    bool reflect;    /* pad by reflection instead */
    double scale[2]; /* random_resized_crop: range of the area fraction; default 0.08 and 1 */
    double ratio[2]; /* range of the aspect ratio width / height; default 3/4 and 4/3 */
    aril_resize_opts resize;
} aril_crop_opts;

/* ---- resizing and cropping ---- */

/* Resizes to height x width; with width 0 the shorter side becomes `height` and the aspect ratio is
 * kept. */
ARIL_API aril_transform *aril_transform_resize(int64_t height, int64_t width,
                                               aril_resize_opts opts);
/* Center crop of height x width; padded with 0 if the image is smaller. */
ARIL_API aril_transform *aril_transform_center_crop(int64_t height, int64_t width);
/* A random crop of that size. */
ARIL_API aril_transform *aril_transform_random_crop(int64_t height, int64_t width,
                                                    aril_crop_opts opts);
/* A random crop of random size and aspect ratio, resized to height x width (Inception-style). */
ARIL_API aril_transform *aril_transform_random_resized_crop(int64_t height, int64_t width,
                                                            aril_crop_opts opts);
/* Pads each side with pixels of value `fill`. */
ARIL_API aril_transform *aril_transform_pad(int64_t left, int64_t top, int64_t right,
                                            int64_t bottom, double fill);

/* ---- flips and rotation ---- */

/* Flips horizontally, or vertically, with probability p. */
ARIL_API aril_transform *aril_transform_flip(double p);
ARIL_API aril_transform *aril_transform_flip_vertical(double p);
/* Rotates about the center by a random angle from -degrees to degrees, counterclockwise; corners
 * get `fill`. */
ARIL_API aril_transform *aril_transform_rotate(double degrees, aril_filter filter, double fill);

/* ---- color ---- */

/* Color jitter: multiplies brightness, contrast and saturation by a factor from max(0, 1 - v) to 1
 * + v, shifts hue by up to v (at most 0.5) of a full turn, in random order. 0 skips one. */
ARIL_API aril_transform *aril_transform_jitter(double brightness, double contrast,
                                               double saturation, double hue);
/* Converts to grayscale, 0.2989 R + 0.587 G + 0.114 B, with probability p and `channels` channels
 * (1 or 3). With 1 channel p must be 1. */
ARIL_API aril_transform *aril_transform_grayscale(double p, int channels);
/* Converts u8 in 0..255 to f32 in 0..1. */
ARIL_API aril_transform *aril_transform_to_float(void);
/* Normalization: f32, (x - mean) / std for each of n channels; n = 1: the same for all. u8 is first
 * converted to 0..1. */
ARIL_API aril_transform *aril_transform_normalize(int n, const double *mean, const double *std);

/* ---- random erasing ---- */

/* With probability p fills a random rectangle with `value`: scale[] is the range of its area
 * fraction (default 0.02 to 0.33), ratio[] of its height / width (default 0.3 to 3.3). */
typedef struct aril_erase_opts {
    double p; /* default 0.5 */
    double scale[2], ratio[2];
    double value;
} aril_erase_opts;
ARIL_API aril_transform *aril_transform_erase(aril_erase_opts opts);
/* Cutout: sets `holes` random squares of size x size pixels to 0. */
ARIL_API aril_transform *aril_transform_cutout(int64_t size, int holes);

/* ---- targets and whole batches ---- */

/* One-hot encodes y, a class index, as f32 [classes]. */
ARIL_API aril_transform *aril_transform_one_hot(int64_t classes);
/* Batches only. mixup: blends each x and y with its neighbor's, in a proportion drawn from
 * Beta(alpha, alpha) for the batch. cutmix: pastes a rectangle of the neighboring image into each
 * image, and mixes y by area. y becomes f32 [n,classes]. */
ARIL_API aril_transform *aril_transform_mixup(double alpha, int64_t classes);
ARIL_API aril_transform *aril_transform_cutmix(double alpha, int64_t classes);

/* ---- custom transforms and lists ---- */

/* A custom function: see aril_dataset_map. */
ARIL_API aril_transform *aril_transform_function(aril_map_fn *fn, void *ctx,
                                                 void (*drop)(void *ctx));

/* Applies transforms in sequence; takes ownership of them, even on failure. A NULL entry, a
 * transform that could not be created, is an error. ARIL_TRANSFORMS(a, b, c) */
ARIL_API aril_transform *aril_transform_list(int n, aril_transform *const *list);

/* A list from text, such as "flip,crop=28:pad=4,rotate=10,jitter=0.2,normalize=0.5:0.5": names with
 * settings, by position or by name; '/' separates several numbers of one setting; sizes are 224 or
 * 224x192. aril_transform_help prints the names and their settings. Errors say what is wrong, and
 * where. */
ARIL_API aril_transform *aril_transform_parse(const char *text);
ARIL_API void aril_transform_help(FILE *to);
/* The text from which aril_transform_parse creates the same transform; returns the length needed,
 * like snprintf. */
ARIL_API size_t aril_transform_text(const aril_transform *t, char *buf, size_t size);

/* Removes the batch-only transforms (mixup, cutmix) from a list and returns them, for
 * aril_loader_opts.batch_transform. NULL if there are none. */
ARIL_API aril_transform *aril_transform_take_batch(aril_transform *t);

/* Frees a transform that nothing else owns. NULL is allowed. */
ARIL_API void aril_transform_free(aril_transform *t);

/* ---- using them ---- */

/* A dataset of transformed samples; takes ownership of both, even on failure. */
ARIL_API aril_dataset *aril_dataset_transform(aril_dataset *d, aril_transform *t);

/* Transforms one sample, or a batch; random numbers come from s->random, or from g. The results
 * belong to the innermost scope; those of a batch to the owner of its tensors. */
ARIL_API aril_status aril_transform_sample(const aril_transform *t, aril_sample *s);
ARIL_API aril_status aril_transform_batch(const aril_transform *t, aril_batch *b,
                                          aril_generator *g);
/* The same for a single image. Returns a poisoned tensor on failure. */
ARIL_API aril_tensor *aril_transform_image(const aril_transform *t, aril_tensor *image,
                                           aril_generator *g);

ARIL_C_END

/* A sequence of transforms: aril_transform_list of the arguments. NULL if one of them is NULL, and
 * then the others are freed. */
#ifdef __cplusplus
template <class... T> inline aril_transform *aril__make_transforms(T... t)
{
    aril_transform *const all[] = { nullptr, t... };
    return aril_transform_list(int(sizeof...(t)), all + 1);
}
#define ARIL_TRANSFORMS(...) aril__make_transforms(__VA_ARGS__)
#else
#define ARIL_TRANSFORMS(...)                                                \
    aril_transform_list((int)(sizeof((aril_transform *[]){ __VA_ARGS__ }) / \
                              sizeof(aril_transform *)),                    \
                        (aril_transform *[]){ __VA_ARGS__ })
#endif

#endif
