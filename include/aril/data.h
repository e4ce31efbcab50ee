/* Data: datasets, and loaders that make batches of them.
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
 * A dataset is two functions, its size and how to get sample i; or one that gives the next sample
 * of a stream. The order of samples and all random changes to them are functions of (seed, epoch,
 * sample): the number of threads that load them changes nothing.
 *
 * Functions that make a dataset of another one take over the caller's reference, also when they
 * fail. NULL for a dataset is passed on as NULL, so that calls can be nested and the first error is
 * the one that is reported. */
#ifndef ARIL_DATA_H
#define ARIL_DATA_H

#include "aril/error.h"
#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_dataset aril_dataset;
typedef struct aril_transform aril_transform; /* aril/transform.h */

/* ---- samples ---- */

/* How many tensors a sample can hold beside x, y and weight: further inputs, and further targets. */
enum { ARIL_SAMPLE_EXTRA = 4, ARIL_SAMPLE_EXTRA_Y = 7 };

/* A part of a image, in pixels of the whole image, and the size to which it is going to be
 * resized. */
typedef struct aril_region {
    int64_t x, y, width, height;
    int64_t to_width, to_height;
} aril_region;

/* What a reader made of a image when it decoded less than all of it: the image was made smaller
 * by scale_x and scale_y (1: not at all), then its pixels from (x, y) on were kept. All 0: the
 * whole image as it is. */
typedef struct aril_decoded {
    double scale_x, scale_y; /* size of the smaller image / size of the whole, at most 1 */
    int64_t x, y;
} aril_decoded;

/* One sample, without a batch dimension. `get` sets what it has; the rest is NULL. */
typedef struct aril_sample {
    aril_tensor *x;      /* the input: a image is [C,H,W], u8 (0..255) or f32 (0..1) */
    aril_tensor *y;      /* the target: a class is a 0-d i64 */
    aril_tensor *weight; /* of its loss: a 0-d f32 */
    aril_tensor *extra[ARIL_SAMPLE_EXTRA];     /* further inputs of a model */
    aril_tensor *extra_y[ARIL_SAMPLE_EXTRA_Y]; /* targets of its further outputs */
    const char
        *name; /* for messages, such as "cats/17.jpg"; set first, so that an error can name it.
                            Lives as long as the dataset. NULL: "sample 17" */

    /* Given to `get`: */
    int64_t index;          /* the sample's number */
    aril_generator *random; /* its own, seeded by (seed, epoch, sample) */
    /* What the transforms will take of a image, for readers that can decode a part of it, or a
     * smaller version: aril_sample_region. Readers that use it set `decoded`. */
    const aril_transform *wants;
    aril_region region;
    aril_decoded decoded;
} aril_sample;

/* For readers of images, once the whole image's size is known: true when the transforms will
 * take no more than *region of it, resized to region->to_width x to_height. A reader may then give
 * any part that contains the region, and a version of it that is made smaller as long as the region
 * stays at least as large as to_width x to_height; it says in s->decoded what it did. It may also
 * give the whole image. At most once a sample. */
ARIL_API bool aril_sample_region(aril_sample *s, int64_t width, int64_t height,
                                 aril_region *region);

/* ---- datasets of your own ---- */

typedef struct aril_batch aril_batch;

/* What a kind of dataset does. It must outlive its datasets. `get`, `get_batch` and `finish` may be
 * called by several threads at once. */
typedef struct aril_dataset_class {
    const char *type; /* "Tensors": for messages */
    size_t data_size; /* bytes of data of its own, zeros at the start: aril_dataset_data */

    /* How many samples there are. NULL: a stream. */
    int64_t (*size)(aril_dataset *self);
    /* Sets sample i, 0 <= i < size. It runs in a scope, which owns what it makes. */
    aril_status (*get)(aril_dataset *self, int64_t i, aril_sample *s);
    /* Optional: the n samples named by index[] as one batch, where that is faster. Tensors are made
     * by aril_batch_buffer. Returns 1 when it declines: then `get` is called. */
    aril_status (*get_batch)(aril_dataset *self, int64_t n, const int64_t *index, aril_batch *b);

    /* Of a stream: sets the next sample; returns 1, 0 at the end, or a negative status. Called by
     * one thread at a time, in a scope. */
    int (*next)(aril_dataset *self, aril_sample *s);
    /* Of a stream: begins again at its first sample, for an epoch. */
    aril_status (*restart)(aril_dataset *self, uint64_t seed, int64_t epoch);
    /* Optional, of a stream: the part of the work on a sample that threads may do at once. */
    aril_status (*finish)(aril_dataset *self, aril_sample *s);

    /* Optional: before the memory goes. Sources (aril_dataset_set_source) go by themselves. */
    void (*destroy)(aril_dataset *self);
    bool images; /* x is a image: loaders make f32 of 0..1 of one in u8 */
} aril_dataset_class;

/* A dataset of a class. The caller owns it. NULL, with an error, when memory is out. */
ARIL_API aril_dataset *aril_dataset_make(const aril_dataset_class *type);

/* The same in short: two functions. */
ARIL_API aril_dataset *aril_dataset_new(const char *type, size_t data_size,
                                        int64_t (*size)(aril_dataset *self),
                                        aril_status (*get)(aril_dataset *self, int64_t i,
                                                           aril_sample *s));

/* Another owner of a dataset; and one owner less. NULL is allowed. */
ARIL_API aril_dataset *aril_dataset_keep(aril_dataset *d);
ARIL_API void aril_dataset_release(aril_dataset *d);

/* The dataset's own data, and the name of its class. */
ARIL_API void *aril_dataset_data(const aril_dataset *d);
ARIL_API const char *aril_dataset_type(const aril_dataset *d);

/* The dataset that d reads from: d takes over the reference. Class names, the image's shape and
 * whether x is a image are then those of the source, unless d has its own. */
ARIL_API void aril_dataset_set_source(aril_dataset *d, aril_dataset *source);
ARIL_API aril_dataset *aril_dataset_source(const aril_dataset *d);

/* ---- using datasets ---- */

/* How many samples; -1 of a stream or of NULL. */
ARIL_API int64_t aril_dataset_size(const aril_dataset *d);

/* Sample i as it is, with the random numbers of seed 0, epoch 0. Tensors belong to the innermost
 * scope. */
ARIL_API aril_status aril_dataset_get(aril_dataset *d, int64_t i, aril_sample *s);

/* The names of the classes, valid as long as d; returns how many, 0 where there are none. */
ARIL_API int aril_dataset_classes(const aril_dataset *d, const char *const **names);
/* Gives the dataset names of classes; they are copied. */
ARIL_API aril_status aril_dataset_set_classes(aril_dataset *d, int n, const char *const *names);

/* The dataset, which is taken over, with its targets numbered by these names of classes: those of
 * the training set, for a test set that has other classes or has them in another order. A class of
 * d that is not among them is an error. Targets of a dataset without names are numbers already, and
 * stay as they are. */
ARIL_API aril_dataset *aril_dataset_match_classes(aril_dataset *d, int n, const char *const *names);

/* Of a table (aril_dataset_csv): the names of the columns that x is made of, valid as long as d, and
 * of the target's column (NULL: there is none); columns without a name, or with one that another
 * has too, are called by their numbers, from 1. Returns how many; 0 of what is no table. names and target may be NULL. */
ARIL_API int aril_dataset_columns(const aril_dataset *d, const char *const **names,
                                  const char **target);

/* The shape of one sample's x: that of sample 0, or of the first of a stream, which begins again
 * for it. No dimensions, with an error, where that fails. */
ARIL_API aril_shape aril_dataset_shape(aril_dataset *d);

/* True when x is a image: then batches are f32 of 0..1, whatever the samples are. */
ARIL_API bool aril_dataset_has_images(const aril_dataset *d);
/* Says so, or not, of this dataset whatever its class says. */
ARIL_API void aril_dataset_set_images(aril_dataset *d, bool images);

/* ---- datasets in the box ---- */

/* Sample i is row i of each tensor: x [N,...], y [N,...] or NULL. The tensors are kept, not
 * copied. */
ARIL_API aril_dataset *aril_dataset_tensors(aril_tensor *x, aril_tensor *y);
/* Several: x, y, weight, extra ...; entries may be NULL. */
ARIL_API aril_dataset *aril_dataset_tensors_n(aril_list tensors);
/* For models of several inputs and outputs: x holds the inputs (x and extra of each sample), y the
 * targets (y and extra_y), of which entries may be NULL; weight [N] or NULL. */
ARIL_API aril_dataset *aril_dataset_tensor_lists(aril_list x, aril_list y, aril_tensor *weight);

/* The same for images, u8 or f32 [N,C,H,W] or [N,H,W] (one channel): samples are [C,H,W], batches
 * f32 of 0..1. */
ARIL_API aril_dataset *aril_dataset_images(aril_tensor *x, aril_tensor *y);

/* One dataset after the other. The parts are taken over. */
ARIL_API aril_dataset *aril_dataset_concat(int n, aril_dataset *const *parts);

/* The samples named by index[0 .. n - 1] (copied), or those from `begin` to `end` - 1. */
ARIL_API aril_dataset *aril_dataset_subset(aril_dataset *d, int64_t n, const int64_t *index);
ARIL_API aril_dataset *aril_dataset_range(aril_dataset *d, int64_t begin, int64_t end);

/* Deals the samples out at random into n parts, each sample to one of them: part k has fraction[k]
 * of them. Fractions add up to at most 1. d is taken over; the caller owns the parts. */
ARIL_API aril_status aril_dataset_split(aril_dataset *d, int n, const double *fraction,
                                        uint64_t seed, aril_dataset **part);

/* Changes samples by a function, called in a scope, by several threads at once. Random numbers come
 * from s->random. `drop(ctx)` is called when the dataset goes; NULL: nothing to do. */
typedef aril_status aril_map_fn(aril_sample *s, void *ctx);
ARIL_API aril_dataset *aril_dataset_map(aril_dataset *d, aril_map_fn *fn, void *ctx,
                                        void (*drop)(void *ctx));

/* Keeps samples in memory when they have been got once, up to `limit` bytes of them (0: as many as
 * there are); the rest are got each time. Put it below random transforms: what lies below it is
 * drawn once. */
ARIL_API aril_dataset *aril_dataset_cache(aril_dataset *d, int64_t limit);
/* Bytes of samples it holds, and how many samples; 0 of other datasets. */
ARIL_API int64_t aril_dataset_cached(const aril_dataset *d, int64_t *samples);

/* Shuffles a stream through a buffer of n samples: each step gives a random one of them and takes
 * the next in its place. Or gives only its first n samples; of a dataset with a size too. */
ARIL_API aril_dataset *aril_dataset_shuffle(aril_dataset *d, int64_t n);
ARIL_API aril_dataset *aril_dataset_take(aril_dataset *d, int64_t n);

/* ---- samplers: which samples make an epoch, in what order ---- */

typedef struct aril_sampler aril_sampler;

/* Writes the order of an epoch over `size` samples to order[0 .. n - 1], n being what `count`
 * gave. */
typedef struct aril_sampler_class {
    int64_t (*count)(void *ctx, int64_t size);
    aril_status (*fill)(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                        int64_t *order);
    void (*drop)(void *ctx); /* optional: when the sampler goes */
} aril_sampler_class;

/* A sampler of your own; the class is copied. Frees one that no loader has taken over. */
ARIL_API aril_sampler *aril_sampler_new(aril_sampler_class type, void *ctx);
ARIL_API void aril_sampler_free(aril_sampler *s);

/* In order; in random order, each sample once; n samples drawn with replacement (0: as many as
 * there are). */
ARIL_API aril_sampler *aril_sampler_sequential(void);
ARIL_API aril_sampler *aril_sampler_random(void);
ARIL_API aril_sampler *aril_sampler_replacing(int64_t n);
/* n samples (0: as many as there are), each drawn with a probability in proportion to its weight,
 * one for each sample of the dataset (f32 or f64 [size]); with replacement, or each at most
 * once. */
ARIL_API aril_sampler *aril_sampler_weighted(aril_tensor *weights, int64_t n, bool replacing);
/* The samples named by index[] (copied), in that order or shuffled. */
ARIL_API aril_sampler *aril_sampler_subset(int64_t n, const int64_t *index, bool shuffle);
/* Every world-th sample of another sampler (taken over), from `rank` on: the part of one of `world`
 * processes. All parts are equally long: the last samples are left out (drop), or the first ones
 * used again. */
ARIL_API aril_sampler *aril_sampler_distributed(aril_sampler *inner, int rank, int world,
                                                bool drop);

/* ---- batches ---- */

/* n samples. The tensors belong to the loader, which writes the next batches to the same memory
 * unless someone else holds it (aril_keep, a gradient): they are valid until the next
 * aril_loader_next. */
struct aril_batch {
    aril_tensor *x;                            /* [n,...] */
    aril_tensor *y;                            /* [n,...], NULL where samples have none */
    aril_tensor *weight;                       /* [n], or NULL */
    aril_tensor *extra[ARIL_SAMPLE_EXTRA];     /* [n,...] */
    aril_tensor *extra_y[ARIL_SAMPLE_EXTRA_Y]; /* [n,...] */
    aril_tensor
        *lengths; /* i64 [n]: of x along its first axis before padding; NULL unless padded */
    int64_t n;
    const int64_t *index; /* the samples' numbers */
};

/* Makes *place a dense tensor of that shape and dtype for a batch to be written to: the one that is
 * there if it fits and nobody else holds it. NULL, with an error, when memory is out. */
ARIL_API aril_tensor *aril_batch_buffer(aril_tensor **place, aril_dtype dtype, aril_shape shape);

/* Makes a batch of n samples: sets its tensors, by aril_batch_buffer. In a scope, by several threads
 * at once. */
typedef aril_status aril_collate_fn(int64_t n, const aril_sample *samples, aril_batch *b,
                                    void *ctx);

/* ---- loaders ---- */

typedef struct aril_loader aril_loader;

typedef struct aril_loader_opts {
    int64_t batch;  /* samples in a batch; 0: 1 */
    bool shuffle;   /* a new random order each epoch; of a stream: use aril_dataset_shuffle */
    bool drop_last; /* leave out a last batch of fewer samples */
    int workers; /* threads that load batches ahead; 0: the calling thread, as they are asked for */
    int prefetch; /* batches loaded ahead of the one in use; 0: 2, or more with many workers */
    uint64_t seed;
    aril_sampler *sampler; /* the order, taken over; NULL: by `shuffle` */
    bool raw;              /* images in u8 stay so in batches */
    /* Samples of different sizes along their first axis: x, and y where it has one, are filled up
     * to the longest with pad_x and pad_y, and batch.lengths says how long each x was. */
    bool pad;
    double pad_x, pad_y;
    aril_collate_fn *collate; /* your own; NULL: stack */
    void *collate_ctx;
    /* Changes batches as a whole, after stacking: mixup, cutmix ... (aril/transform.h; taken
     * over). */
    aril_transform *batch_transform;
    /* Batches in memory that a GPU copies from at full speed. Devices without such memory, the CPU
     * among them, ignore it. */
    bool pinned;
} aril_loader_opts;

/* A loader, which takes over the dataset and the options' sampler and transform, also on failure.
 * NULL, with an error, on failure. A loader belongs to one thread at a time. */
ARIL_API aril_loader *aril_loader_new(aril_dataset *d, aril_loader_opts opts);

/* Stops and joins its threads, and lets go of the dataset and the batch. NULL is allowed. */
ARIL_API void aril_loader_free(aril_loader *l);

/* The next batch; false at the end of an epoch, and the call after that begins the next one. Also
 * false when a sample could not be loaded, with an error that names it (aril_ok tells the two
 * apart); after aril_clear_error the next call goes on with the batch behind it. */
ARIL_API bool aril_loader_next(aril_loader *l, aril_batch *b);

/* Batches and samples in an epoch; -1 where a stream's end is not known. */
ARIL_API int64_t aril_loader_length(const aril_loader *l);
ARIL_API int64_t aril_loader_samples(const aril_loader *l);
/* The dataset it reads from, borrowed; and the samples of a full batch. */
ARIL_API aril_dataset *aril_loader_dataset(const aril_loader *l);
ARIL_API int64_t aril_loader_batch_size(const aril_loader *l);

/* Where a loader is: the batch that the next call will give. */
typedef struct aril_loader_position {
    uint64_t seed;
    int64_t epoch, batch;
} aril_loader_position;

/* Going to a position gives the same batches from there on, bit for bit, as having come to it. A
 * position that does not exist is an error and changes nothing. */
ARIL_API aril_loader_position aril_loader_tell(const aril_loader *l);
ARIL_API aril_status aril_loader_seek(aril_loader *l, aril_loader_position position);

ARIL_C_END

#endif
