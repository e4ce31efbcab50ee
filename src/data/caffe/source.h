/* Caffe's data layers as datasets and loaders. */
#ifndef ARIL_DATA_CAFFE_SOURCE_H
#define ARIL_DATA_CAFFE_SOURCE_H

#include "aril/data.h"
#include "data/caffe/transform.h"

/* How to open a data layer. */
typedef struct aril__caffe_source_opts {
    bool train;
    const char *file; /* of the net, for errors; NULL: none */
    const char *root; /* where paths start that are not in the current folder; NULL: none */
    uint64_t seed;    /* of order, crops and mirrors */
    int workers;      /* threads that load batches ahead */
    aril_device device;
    aril_tensor *x, *y; /* the samples and labels of a layer that the program feeds */
} aril__caffe_source_opts;

/* Whether layers of that type read data that these functions provide; and whether these come from
 * the program, as opts.x and opts.y. */
bool aril__caffe_source_has(const char *type);
bool aril__caffe_source_is_fed(const char *type);

/* Opens the data of a layer (LayerParameter, upgraded), which must outlive the loader. Its batches
 * never end: after the last sample comes the first one, also within a batch, as with a cursor of
 * Caffe. NULL with an error. */
aril_loader *aril__caffe_source_open(const aril__message *layer, aril__caffe_source_opts opts);

/* The next batch; ARIL_OK or an error. */
aril_status aril__caffe_source_next(aril_loader *l, aril_batch *b);

/* Top k of a batch, or of a sample: x, y, then the extra ones. */
enum { ARIL__CAFFE_TOPS = 2 + ARIL_SAMPLE_EXTRA + ARIL_SAMPLE_EXTRA_Y };
aril_tensor *aril__caffe_source_top(const aril_batch *b, int k);
void aril__caffe_source_set(aril_sample *s, int k, aril_tensor *t);

/* ---- the parts ---- */

/* A dataset and how a layer walks through it. */
typedef struct aril__caffe_source {
    aril_dataset *dataset;
    int64_t batch;
    int64_t skip_below;  /* rand_skip: a random number of samples is left out at the start */
    bool shuffle;        /* a new order in each pass */
    int n_parts;         /* shuffled as parts (files), and within them; 0: as a whole */
    const int64_t *part; /* their sizes; belongs to the dataset */
} aril__caffe_source;

typedef aril_status aril__caffe_open_fn(const aril__message *layer,
                                        const aril__caffe_source_opts *opts, aril__caffe_source *s);
aril__caffe_open_fn aril__caffe_open_data, aril__caffe_open_images, aril__caffe_open_hdf5,
    aril__caffe_open_windows, aril__caffe_open_memory;

/* The order of such a walk as a sampler: an epoch has complete batches only, and continues where
 * the one before ended. */
aril_sampler *aril__caffe_order(const aril__caffe_source *s);

/* batch_size of a layer's parameters, or a negative status with an error. */
int64_t aril__caffe_batch_size(const aril__message *param);

#endif
