/* Transforms: changes to samples and batches, most of them to images.
 *
 *     aril_transform *t = ARIL_TRANSFORMS(
 *         aril_transform_random_resized_crop(224, 224, (aril_crop_opts){ 0 }),
 *         aril_transform_flip(0.5), aril_transform_normalise(3, mean, std));
 *     train = aril_dataset_transform(train, t);                     which takes it over
 *     test = aril_dataset_transform(test, aril_transform_parse("resize=256,center_crop=224"));
 *
 * Images are u8 (0..255) or f32 (0..1), [C,H,W]; they keep their type unless the transform says
 * otherwise. What is random is drawn from the sample's own generator: it follows from (seed, epoch,
 * sample) alone. A sample's tensors are never changed in place.
 *
 * Functions return NULL, with an error, when a setting is wrong; who takes over a NULL passes it
 * on. */
#ifndef ARIL_TRANSFORM_H
#define ARIL_TRANSFORM_H

#include "aril/data.h"

ARIL_C_BEGIN

/* How pixels between pixels are found. Making an image smaller averages over the pixels that fall
 * into one (as PIL does), unless no_antialias says otherwise. */
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
    int64_t pad;     /* random_crop: pixels added on each side before */
    double fill;     /* their value, in the image's own units */
    bool reflect;    /* they mirror the image instead */
    double scale[2]; /* random_resized_crop: smallest and largest part of the area; 0: 0.08 and 1 */
    double ratio[2]; /* smallest and largest width / height; 0: 3/4 and 4/3 */
    aril_resize_opts resize;
} aril_crop_opts;

/* ---- sizes ---- */

/* To height x width; with width 0 the shorter side becomes `height` and the other follows. */
ARIL_API aril_transform *aril_transform_resize(int64_t height, int64_t width,
                                               aril_resize_opts opts);
/* The middle, height x width; filled up with 0 where the image is smaller. */
ARIL_API aril_transform *aril_transform_center_crop(int64_t height, int64_t width);
/* A random part of that size. */
ARIL_API aril_transform *aril_transform_random_crop(int64_t height, int64_t width,
                                                    aril_crop_opts opts);
/* A random part of random size and shape, resized to height x width: Inception's crop. */
ARIL_API aril_transform *aril_transform_random_resized_crop(int64_t height, int64_t width,
                                                            aril_crop_opts opts);
/* Pixels of value `fill` on each side. */
ARIL_API aril_transform *aril_transform_pad(int64_t left, int64_t top, int64_t right,
                                            int64_t bottom, double fill);

/* ---- turning ---- */

/* Left and right, or top and bottom, change places with probability p. */
ARIL_API aril_transform *aril_transform_flip(double p);
ARIL_API aril_transform *aril_transform_flip_vertical(double p);
/* Turned about its middle by an angle drawn from -degrees to degrees, counted against the clock;
 * corners get `fill`. */
ARIL_API aril_transform *aril_transform_rotate(double degrees, aril_filter filter, double fill);

/* ---- colours ---- */

/* Brightness, contrast and saturation times a factor from max(0, 1 - v) to 1 + v, hue turned by up
 * to v (at most 0.5) of a full turn, in random order. 0 leaves one out. */
ARIL_API aril_transform *aril_transform_jitter(double brightness, double contrast,
                                               double saturation, double hue);
/* Gray of 0.2989 R + 0.587 G + 0.114 B, with probability p; `channels` of it (1 or 3). With 1
 * channel p must be 1. */
ARIL_API aril_transform *aril_transform_grayscale(double p, int channels);
/* u8 of 0..255 to f32 of 0..1. */
ARIL_API aril_transform *aril_transform_to_float(void);
/* f32: (x - mean) / std for each of n channels; n = 1: the same for all. u8 becomes 0..1 before. */
ARIL_API aril_transform *aril_transform_normalise(int n, const double *mean, const double *std);

/* ---- holes ---- */

/* With probability p a random rectangle gets `value`: scale[] is its part of the area (0: 0.02 to
 * 0.33), ratio[] its height / width (0: 0.3 to 3.3). */
typedef struct aril_erase_opts {
    double p; /* 0: 0.5 */
    double scale[2], ratio[2];
    double value;
} aril_erase_opts;
ARIL_API aril_transform *aril_transform_erase(aril_erase_opts opts);
/* `holes` squares of size x size pixels, anywhere, become 0 (cutout). */
ARIL_API aril_transform *aril_transform_cutout(int64_t size, int holes);

/* ---- targets, and whole batches ---- */

/* y, a class, becomes f32 [classes] with a 1. */
ARIL_API aril_transform *aril_transform_one_hot(int64_t classes);
/* Batches only: each x and y is mixed with its neighbour's, in a proportion drawn from Beta(alpha,
 * alpha) for the batch; or a rectangle of each image comes from its neighbour, and y by area. y
 * becomes f32 [n,classes]. */
ARIL_API aril_transform *aril_transform_mixup(double alpha, int64_t classes);
ARIL_API aril_transform *aril_transform_cutmix(double alpha, int64_t classes);

/* ---- your own, and lists ---- */

/* A function of your own: see aril_dataset_map. */
ARIL_API aril_transform *aril_transform_function(aril_map_fn *fn, void *ctx,
                                                 void (*drop)(void *ctx));

/* One after the other; they are taken over, also on failure. NULL among them, one that could not be
 * made, is an error. ARIL_TRANSFORMS(a, b, c) */
ARIL_API aril_transform *aril_transform_list(int n, aril_transform *const *list);

/* A list from text, such as "flip,crop=28:pad=4,rotate=10,jitter=0.2,normalise=0.5:0.5": names with
 * settings, by place or by name, several numbers of one setting parted by '/', sizes as 224 or
 * 224x192. aril_transform_help prints the names and their settings. An error says what is wrong,
 * and where. */
ARIL_API aril_transform *aril_transform_parse(const char *text);
ARIL_API void aril_transform_help(FILE *to);
/* The text that makes the same transform; returns the length that was needed, like snprintf. */
ARIL_API size_t aril_transform_text(const aril_transform *t, char *buf, size_t size);

/* Takes those that are for batches alone (mixup, cutmix) out of a list: they go to
 * aril_loader_opts.batch_transform. NULL where there are none. */
ARIL_API aril_transform *aril_transform_take_batch(aril_transform *t);

/* Frees a transform that nobody has taken over. NULL is allowed. */
ARIL_API void aril_transform_free(aril_transform *t);

/* ---- using them ---- */

/* A dataset whose samples are changed; takes over both, also on failure. */
ARIL_API aril_dataset *aril_dataset_transform(aril_dataset *d, aril_transform *t);

/* Changes one sample, or a batch; random numbers come from s->random, or from g. The results belong
 * to the innermost scope, of a batch to whom its tensors belonged. */
ARIL_API aril_status aril_transform_sample(const aril_transform *t, aril_sample *s);
ARIL_API aril_status aril_transform_batch(const aril_transform *t, aril_batch *b,
                                          aril_generator *g);
/* The same for an image alone. Poison on failure. */
ARIL_API aril_tensor *aril_transform_image(const aril_transform *t, aril_tensor *image,
                                           aril_generator *g);

ARIL_C_END

/* Transforms one after another, as one: aril_transform_list of the arguments. NULL where one of them
 * is NULL, and then the others are freed. */
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
