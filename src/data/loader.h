/* Loader internals, shared by loader.c and worker_pool.c. */
#ifndef ARIL_DATA_LOADER_H
#define ARIL_DATA_LOADER_H

#include "aril/stream.h"
#include "data/collate.h"
#include "data/sampler.h"

#include <pthread.h>

typedef struct aril__worker_pool aril__worker_pool; /* worker_pool.c: the threads */

/* A batch being loaded, or ready. */
typedef struct aril__slot {
    aril_batch batch;
    aril_batch there; /* the same on the loader's device, if it has one */
    aril__stack stack;
    atomic_bool begun;   /* `stack` can be written to */
    int64_t number;      /* index of the batch in its epoch */
    int64_t n;           /* samples in it */
    int64_t *index;      /* sample numbers, of streams */
    aril_sample *sample; /* kept for padding or a collate function; else NULL */

    /* The first row that failed, or n; its status (below 0), and its error or NULL. */
    int64_t failed_row;
    aril_status failed;
    bool unlike; /* its shape or dtype differs: the calling thread reloads the batch in order */
    aril__error *error;
    int64_t failed_index;
    const char *failed_name;

    int64_t handed, done; /* rows handed out and finished; guarded by the pool's lock */
    bool closed;          /* a thread is collating the rows, or has */
    bool ready;
} aril__slot;

struct aril_loader {
    aril_dataset *dataset;
    aril_sampler *sampler;
    aril_loader_opts opts;
    bool stream, scale, by_batch; /* by_batch: try get_batch first */
    aril__device *pinned;         /* whose pinned memory batches are in; NULL: ordinary memory */
    aril__device *device;         /* that batches are copied to; NULL: they stay on the host */
    aril_stream *copies;          /* of that device */
    int64_t size, samples, length;
    aril_loader_position at; /* position of the next batch */

    bool ordered; /* `order` or the stream is set up for at.seed and at.epoch */
    int64_t *order;
    int64_t order_capacity;
    int64_t stream_next; /* index of the stream's next sample */
    bool stream_ended;

    int n_slots;
    aril__slot *slot;
    aril__worker_pool *pool;
};

/* Prepares a slot for batch `number`; its rows can then be loaded. */
void aril__slot_begin(aril_loader *l, aril__slot *s, int64_t number);
/* Loads rows begin .. end - 1, each of which may fail on its own. `lock` guards the start of the
 * stack and the recorded failures; NULL if only one thread is used. */
void aril__slot_load(aril_loader *l, aril__slot *s, int64_t begin, int64_t end,
                     pthread_mutex_t *lock, const atomic_bool *stop);
/* The same for one row of a stream, given the status of taking its sample. */
void aril__slot_finish_row(aril_loader *l, aril__slot *s, int64_t row, aril_sample *sample,
                           int status, pthread_mutex_t *lock);
/* Collates the rows, unless the dataset returned the batch itself, and applies the batch
 * transform. */
void aril__slot_end(aril_loader *l, aril__slot *s, bool loaded, pthread_mutex_t *lock);
/* Loads the batch in one call of get_batch if the dataset has it. False: load row by row. */
bool aril__slot_load_batch(aril_loader *l, aril__slot *s, pthread_mutex_t *lock);

aril__slot *aril__slots_new(const aril_loader *l, int n);
void aril__slots_free(aril_loader *l, aril__slot *s, int n);

/* Creates a loader's worker threads; NULL with an error. */
aril__worker_pool *aril__worker_pool_new(aril_loader *l);
/* Stops handing out work and waits until all workers are idle. */
void aril__worker_pool_rest(aril__worker_pool *c);
/* Starts loading batches from `first` on. */
aril_status aril__worker_pool_go(aril__worker_pool *c, int64_t first);
/* Waits for batch `number`; slots of earlier batches may be reused. NULL: the stream ended before
 * it. */
aril__slot *aril__worker_pool_take(aril__worker_pool *c, int64_t number);
void aril__worker_pool_free(aril__worker_pool *c);
/* True in a forked child, where the threads do not exist. */
bool aril__worker_pool_is_gone(const aril__worker_pool *c);

#endif
