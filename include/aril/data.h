/* Data: datasets, and loaders that turn them into batches.
 *
 *     aril_dataset *train = aril_dataset_images(x, y);    x: u8 [60000,28,28], y: i64 [60000]
 *     aril_loader_opts opts = { .batch = 64, .shuffle = true };
 *     aril_loader *batches = aril_loader_new(train, opts);
 *     for (aril_batch b; aril_loader_next(batches, &b);) {
 *         ARIL_SCOPE;
 *         ... b.x: f32 [64,1,28,28], b.y: i64 [64] ...
 *     }
 *     aril_loader_free(batches);
 *
 * A dataset is two functions, its size and how to get sample i; or one that returns the next sample
 * of a stream. The order of samples and all random augmentation depend only on (seed, epoch,
 * sample), not on the number of workers.
 *
 * Functions that create a dataset from another one take ownership of the caller's reference, even
 * on failure. Given NULL for a dataset they return NULL, so that calls can be nested and the first
 * error is reported. */
#ifndef ARIL_DATA_H
#define ARIL_DATA_H

#include "aril/error.h"
#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_dataset aril_dataset;
typedef struct aril_transform aril_transform; /* aril/transform.h */

/* ---- samples ---- */

/* How many tensors a sample can hold besides x, y and weight: additional inputs and targets. */
enum { ARIL_SAMPLE_EXTRA = 4, ARIL_SAMPLE_EXTRA_Y = 7 };

/* A region of an image, in pixels of the full image, and the size to which it will be resized. */
typedef struct aril_region {
    int64_t x, y, width, height;
    int64_t to_width, to_height;
} aril_region;

/* What a reader decoded of an image when it decoded less than all of it: the image was downscaled
 * by scale_x and scale_y (1: not at all), then cropped to start at (x, y). All 0: the full image,
 * unchanged. */
typedef struct aril_decoded {
    double scale_x, scale_y; /* downscaled size / full size, at most 1 */
    int64_t x, y;
} aril_decoded;

/* One sample, without a batch dimension. `get` sets the fields it has; the rest stay NULL. */
typedef struct aril_sample {
    aril_tensor *x;      /* the input: an image is [C,H,W], u8 (0..255) or f32 (0..1) */
    aril_tensor *y;      /* the target: a class is a 0-d i64 */
    aril_tensor *weight; /* sample weight in the loss: a 0-d f32 */
    aril_tensor *extra[ARIL_SAMPLE_EXTRA];     /* additional inputs of a model */
    aril_tensor *extra_y[ARIL_SAMPLE_EXTRA_Y]; /* targets of its additional outputs */
    const char
        *name; /* for messages, such as "cats/17.jpg"; set first, so that an error can name it.
                  Lives as long as the dataset. NULL: "sample 17" */

    bool bgr; /* the channels of x are blue, green and red, as Caffe stores them */

    /* Passed to `get`: */
    int64_t index;          /* the sample's index */
    aril_generator *random; /* the sample's own generator, seeded by (seed, epoch, sample) */
    /* The part of an image that the transforms will use, for readers that can decode a region or a
     * downscaled version: aril_sample_region. Readers that use it set `decoded`. */
    const aril_transform *wants;
    aril_region region;
    aril_decoded decoded;
} aril_sample;

/* For image readers, once the full image's size is known: true when the transforms will use only
 * *region of it, resized to region->to_width x to_height. A reader may then return any part that
 * contains the region, downscaled as long as the region stays at least as large as to_width x
 * to_height, and describe it in s->decoded. It may also return the full image. Call it at most once
 * per sample. */
ARIL_API bool aril_sample_region(aril_sample *s, int64_t width, int64_t height,
                                 aril_region *region);

/* ---- custom datasets ---- */

typedef struct aril_batch aril_batch;

/* The functions of a class of datasets. It must outlive its datasets. `get`, `get_batch` and
 * `finish` must be thread-safe. */
typedef struct aril_dataset_class {
    const char *type; /* "Tensors": for messages */
    size_t data_size; /* bytes of instance data, zero-initialized: aril_dataset_data */

    /* The number of samples. NULL: a stream. */
    int64_t (*size)(aril_dataset *self);
    /* Sets sample i, 0 <= i < size. It runs in a scope, which owns the tensors it creates. */
    aril_status (*get)(aril_dataset *self, int64_t i, aril_sample *s);
    /* Optional: the n samples in index[] as one batch, where that is faster. Allocates tensors with
     * aril_batch_buffer. Returns 1 to decline: then `get` is called. */
    aril_status (*get_batch)(aril_dataset *self, int64_t n, const int64_t *index, aril_batch *b);

    /* Streams: sets the next sample; returns 1, 0 at the end, or a negative status. Called by one
     * thread at a time, in a scope. */
    int (*next)(aril_dataset *self, aril_sample *s);
    /* Streams: restarts at the first sample, for an epoch. */
    aril_status (*restart)(aril_dataset *self, uint64_t seed, int64_t epoch);
    /* Optional, streams: the part of the work on a sample that threads may do in parallel. */
    aril_status (*finish)(aril_dataset *self, aril_sample *s);

    /* Optional: called before the memory is freed. Sources (aril_dataset_set_source) are released
     * automatically. */
    void (*destroy)(aril_dataset *self);
    bool images; /* x is an image: loaders convert u8 to f32 in 0..1 */
} aril_dataset_class;

/* Creates a dataset of a class. The caller owns it. NULL, with an error, when memory runs out. */
ARIL_API aril_dataset *aril_dataset_make(const aril_dataset_class *type);

/* Short form: two functions instead of a class. */
ARIL_API aril_dataset *aril_dataset_new(const char *type, size_t data_size,
                                        int64_t (*size)(aril_dataset *self),
                                        aril_status (*get)(aril_dataset *self, int64_t i,
                                                           aril_sample *s));

/* Takes another reference to a dataset; drops one. NULL is allowed. */
ARIL_API aril_dataset *aril_dataset_keep(aril_dataset *d);
ARIL_API void aril_dataset_release(aril_dataset *d);

/* The dataset's instance data, and the name of its class. */
ARIL_API void *aril_dataset_data(const aril_dataset *d);
ARIL_API const char *aril_dataset_type(const aril_dataset *d);

/* The dataset that d reads from: d takes ownership of the reference. d inherits class names, the
 * image's shape and whether x is an image from the source, unless it has its own. */
ARIL_API void aril_dataset_set_source(aril_dataset *d, aril_dataset *source);
ARIL_API aril_dataset *aril_dataset_source(const aril_dataset *d);

/* ---- using datasets ---- */

/* The number of samples; -1 for a stream or NULL. */
ARIL_API int64_t aril_dataset_size(const aril_dataset *d);

/* Sample i, with the random numbers of seed 0, epoch 0. Tensors belong to the innermost scope. */
ARIL_API aril_status aril_dataset_get(aril_dataset *d, int64_t i, aril_sample *s);

/* The class names, valid as long as d; returns how many, 0 if there are none. */
ARIL_API int aril_dataset_classes(const aril_dataset *d, const char *const **names);
/* Sets the class names of the dataset; they are copied. */
ARIL_API aril_status aril_dataset_set_classes(aril_dataset *d, int n, const char *const *names);

/* Takes ownership of a dataset and renumbers its targets to match these class names: those of the
 * training set, for a test set whose classes differ or have another order. A class of d that is not
 * among them is an error. If a dataset has no class names, its targets stay unchanged. */
ARIL_API aril_dataset *aril_dataset_match_classes(aril_dataset *d, int n, const char *const *names);

/* Tables (aril_dataset_csv): the names of the columns in x, valid as long as d, and of the target
 * column (NULL: there is none); columns without a unique name are named by their numbers, from 1.
 * Returns the number of columns in x; 0 if d is not a table. names and target may be NULL. */
ARIL_API int aril_dataset_columns(const aril_dataset *d, const char *const **names,
                                  const char **target);

/* The shape of one sample's x: that of sample 0, or of the first sample of a stream, which is
 * restarted. No dimensions, with an error, on failure. */
ARIL_API aril_shape aril_dataset_shape(aril_dataset *d);

/* True when x is an image: then batches are f32 in 0..1, whatever the dtype of the samples. */
ARIL_API bool aril_dataset_has_images(const aril_dataset *d);
/* Overrides whether x is an image for this dataset. */
ARIL_API void aril_dataset_set_images(aril_dataset *d, bool images);

/* ---- statistics ---- */

typedef struct aril_stats_opts {
    bool targets;    /* of the targets y instead of x */
    bool overall;    /* one mean and std over all values instead of one for each channel */
    int64_t samples; /* only so many samples, drawn at random; 0: all of them */
    uint64_t seed;   /* of the draw */
    int workers;     /* worker threads that load samples */
} aril_stats_opts;

/* The mean and standard deviation of each channel, for normalization: of each channel of images
 * [C,H,W] (in 0..1, as batches have them), of each column of a table [C], of each number of a
 * target. Sets *mean and *std to f64 [C]; std is 1 for a constant channel, so that dividing by it
 * is safe.
 *
 *     aril_tensor *mean, *std;
 *     aril_dataset_stats(train, (aril_stats_opts){ .samples = 4096 }, &mean, &std);
 *     aril_transform *t = aril_transform_normalize(3, aril_data(mean), aril_data(std));
 *
 * ARIL_ERR_NUMBER, with the name of the column, when a value is NaN or infinite. */
ARIL_API aril_status aril_dataset_stats(aril_dataset *d, aril_stats_opts opts, aril_tensor **mean,
                                        aril_tensor **std);

/* The number of outputs that a network for the dataset needs. Integer targets are classes: the
 * number of class names, or the largest label + 1. Float targets are numbers (regression): how many
 * each sample has. *regression (may be NULL) says which. -1, with an error, on failure. */
ARIL_API int64_t aril_dataset_outputs(aril_dataset *d, bool *regression);

/* ---- built-in datasets ---- */

/* Sample i is row i of each tensor: x [N,...], y [N,...] or NULL. The dataset references the
 * tensors without copying them. */
ARIL_API aril_dataset *aril_dataset_tensors(aril_tensor *x, aril_tensor *y);
/* Several: x, y, weight, extra ...; entries may be NULL. */
ARIL_API aril_dataset *aril_dataset_tensors_n(aril_list tensors);
/* For models with several inputs and outputs: x holds the inputs (x and extra of each sample), y
 * the targets (y and extra_y), whose entries may be NULL; weight [N] or NULL. */
ARIL_API aril_dataset *aril_dataset_tensor_lists(aril_list x, aril_list y, aril_tensor *weight);

/* The same for images, u8 or f32 [N,C,H,W] or [N,H,W] (one channel): samples are [C,H,W], batches
 * f32 in 0..1. */
ARIL_API aril_dataset *aril_dataset_images(aril_tensor *x, aril_tensor *y);

/* Concatenates datasets. Takes ownership of the parts. */
ARIL_API aril_dataset *aril_dataset_concat(int n, aril_dataset *const *parts);

/* A subset: the samples in index[0 .. n - 1] (copied), or those from `begin` to `end` - 1. */
ARIL_API aril_dataset *aril_dataset_subset(aril_dataset *d, int64_t n, const int64_t *index);
ARIL_API aril_dataset *aril_dataset_range(aril_dataset *d, int64_t begin, int64_t end);

/* Splits the samples randomly into n disjoint parts: part k has fraction[k] of them. Fractions sum
 * to at most 1. Takes ownership of d; the caller owns the parts. */
ARIL_API aril_status aril_dataset_split(aril_dataset *d, int n, const double *fraction,
                                        uint64_t seed, aril_dataset **part);

/* Applies a function to each sample; it is called in a scope and must be thread-safe. Random
 * numbers come from s->random. `drop(ctx)` is called when the dataset is freed; NULL: nothing to
 * do. */
typedef aril_status aril_map_fn(aril_sample *s, void *ctx);
ARIL_API aril_dataset *aril_dataset_map(aril_dataset *d, aril_map_fn *fn, void *ctx,
                                        void (*drop)(void *ctx));

/* Caches samples in memory after their first use, up to `limit` bytes (0: no limit); the rest are
 * loaded each time. Put it before random transforms: those before the cache run only once. */
ARIL_API aril_dataset *aril_dataset_cache(aril_dataset *d, int64_t limit);
/* Bytes and number of samples in the cache; 0 for other datasets. */
ARIL_API int64_t aril_dataset_cached(const aril_dataset *d, int64_t *samples);

/* Shuffles a stream through a buffer of n samples: each step returns a random one of them and
 * replaces it with the next. aril_dataset_take: only the first n samples, also of a dataset with a
 * size. */
ARIL_API aril_dataset *aril_dataset_shuffle(aril_dataset *d, int64_t n);
ARIL_API aril_dataset *aril_dataset_take(aril_dataset *d, int64_t n);

/* ---- samplers: which samples an epoch has, and in what order ---- */

typedef struct aril_sampler aril_sampler;

/* `fill` writes the order of an epoch over `size` samples to order[0 .. n - 1], where n is the
 * result of `count`. */
typedef struct aril_sampler_class {
    int64_t (*count)(void *ctx, int64_t size);
    aril_status (*fill)(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                        int64_t *order);
    void (*drop)(void *ctx); /* optional: called when the sampler is freed */
} aril_sampler_class;

/* Creates a custom sampler; the class is copied. Frees a sampler that no loader owns. */
ARIL_API aril_sampler *aril_sampler_new(aril_sampler_class type, void *ctx);
ARIL_API void aril_sampler_free(aril_sampler *s);

/* In order; in random order, each sample once; n samples drawn with replacement (0: as many as
 * there are). */
ARIL_API aril_sampler *aril_sampler_sequential(void);
ARIL_API aril_sampler *aril_sampler_random(void);
ARIL_API aril_sampler *aril_sampler_replacing(int64_t n);
/* n samples (0: as many as there are), drawn with probability proportional to their weights, one
 * for each sample of the dataset (f32 or f64 [size]); with or without replacement. */
ARIL_API aril_sampler *aril_sampler_weighted(aril_tensor *weights, int64_t n, bool replacing);
/* The samples in index[] (copied), in that order or shuffled. */
ARIL_API aril_sampler *aril_sampler_subset(int64_t n, const int64_t *index, bool shuffle);
/* Every world-th sample of another sampler (ownership taken), starting at `rank`: the share of one
 * of `world` processes. All shares have equal length: the last samples are dropped (drop), or the
 * first ones repeated. */
ARIL_API aril_sampler *aril_sampler_distributed(aril_sampler *inner, int rank, int world,
                                                bool drop);

/* ---- batches ---- */

/* n samples. The tensors belong to the loader, which reuses their memory for the next batches
 * unless something else references it (aril_keep, autograd): they are valid until the next
 * aril_loader_next. */
struct aril_batch {
    aril_tensor *x;                            /* [n,...] */
    aril_tensor *y;                            /* [n,...], NULL where samples have none */
    aril_tensor *weight;                       /* [n], or NULL */
    aril_tensor *extra[ARIL_SAMPLE_EXTRA];     /* [n,...] */
    aril_tensor *extra_y[ARIL_SAMPLE_EXTRA_Y]; /* [n,...] */
    aril_tensor
        *lengths; /* i64 [n]: length of x along its first axis before padding; NULL unless padded */
    int64_t n;
    const int64_t *index; /* the samples' indices */
};

/* Sets *slot to a contiguous tensor of that shape and dtype to write a batch to: reuses the
 * current one if it fits and nothing else references it. NULL, with an error, when memory runs
 * out. */
ARIL_API aril_tensor *aril_batch_buffer(aril_tensor **slot, aril_dtype dtype, aril_shape shape);

/* Collates n samples into a batch: sets its tensors, allocated with aril_batch_buffer. Called in a
 * scope; must be thread-safe. */
typedef aril_status aril_collate_fn(int64_t n, const aril_sample *samples, aril_batch *b,
                                    void *ctx);

/* ---- loaders ---- */

typedef struct aril_loader aril_loader;

typedef struct aril_loader_opts {
    int64_t batch;  /* batch size; default 1 */
    bool shuffle;   /* a new random order each epoch; for streams use aril_dataset_shuffle */
    bool drop_last; /* drop the last batch if it is smaller */
    int workers;    /* worker threads that load batches ahead; 0: load in the calling thread */
    int prefetch; /* batches loaded ahead of the one in use; default 2, or more with many workers */
    uint64_t seed;
    aril_sampler *sampler; /* ownership taken; NULL: chosen by `shuffle` */
    bool raw;              /* u8 images stay u8 in batches */
    /* For samples of different lengths along their first axis: pads x, and y where it has one, to
     * the longest with pad_x and pad_y; batch.lengths holds the original length of each x. */
    bool pad;
    double pad_x, pad_y;
    aril_collate_fn *collate; /* custom collate function; NULL: stack */
    void *collate_ctx;
    /* Transforms whole batches after stacking: mixup, cutmix ... (aril/transform.h; ownership
     * taken). */
    aril_transform *batch_transform;
    /* Puts batches in pinned memory, from which aril_to copies to a GPU while the program goes on:
     * do not change such a batch in place after aril_to. Ignored if no device has pinned memory. */
    bool pinned;
    /* Where batches are: by default in host memory. To a GPU they are copied from pinned memory
     * through a stream of the loader's own, beside the computation: with workers, up to `prefetch`
     * batches ahead. */
    aril_device device;
} aril_loader_opts;

/* Creates a loader, which takes ownership of the dataset and the options' sampler and transform,
 * even on failure. NULL, with an error, on failure. Only one thread may use a loader at a time. */
ARIL_API aril_loader *aril_loader_new(aril_dataset *d, aril_loader_opts opts);

/* Stops and joins its workers, and releases the dataset and the batch. NULL is allowed. */
ARIL_API void aril_loader_free(aril_loader *l);

/* The next batch; false at the end of an epoch, and the call after that starts the next epoch. Also
 * false when a sample could not be loaded, with an error that names it (aril_ok distinguishes the
 * two); after aril_clear_error the next call continues with the following batch. A batch for whose
 * copy to the device memory was lacking is not skipped: the next call loads it again, except from a
 * stream. */
ARIL_API bool aril_loader_next(aril_loader *l, aril_batch *b);

/* Batches and samples in an epoch; -1 if a stream's length is unknown. */
ARIL_API int64_t aril_loader_length(const aril_loader *l);
ARIL_API int64_t aril_loader_samples(const aril_loader *l);
/* The dataset it reads from, borrowed; and the batch size. */
ARIL_API aril_dataset *aril_loader_dataset(const aril_loader *l);
ARIL_API int64_t aril_loader_batch_size(const aril_loader *l);

/* The position of a loader: the batch that the next call will return. */
typedef struct aril_loader_position {
    uint64_t seed;
    int64_t epoch, batch;
} aril_loader_position;

/* Gets and sets the position. After a seek the batches are bit-for-bit the same as when the loader
 * first reached that position. An invalid position is an error and changes nothing. */
ARIL_API aril_loader_position aril_loader_tell(const aril_loader *l);
ARIL_API aril_status aril_loader_seek(aril_loader *l, aril_loader_position position);

ARIL_C_END

#endif
