/* A loader's parts, shared by loader.c and pool.c. */
#ifndef ARIL_DATA_LOADER_H
#define ARIL_DATA_LOADER_H

#include "data/collate.h"
#include "data/sampler.h"

#include <pthread.h>

typedef struct aril__worker_pool aril__worker_pool; /* pool.c: the threads */

/* A batch being made, or ready. */
typedef struct aril__slot {
    aril_batch batch;
    aril__stack stack;
    atomic_bool begun;   /* `stack` can be written to */
    int64_t number;      /* of the batch in its epoch */
    int64_t n;           /* samples in it */
    int64_t *index;      /* of streams: their numbers */
    aril_sample *sample; /* kept until the batch is made of them: padding, collate; else NULL */

    /* The first row that failed, or n; with a code below 0, and an error or NULL. */
    int64_t failed_row;
    aril_status failed;
    bool unlike; /* it did not fit the others: who asked for the batch tries again by itself */
    aril__error *error;
    int64_t failed_index;
    const char *failed_name;

    int64_t handed, done; /* rows: under the pool's lock */
    bool closed;          /* a thread makes the batch of its rows, or has */
    bool ready;
} aril__slot;

struct aril_loader {
    aril_dataset *dataset;
    aril_sampler *sampler;
    aril_loader_opts opts;
    bool stream, scale, whole; /* whole: get_batch is worth a try */
    int64_t size, samples, length;
    aril_loader_position at; /* of the batch that comes next */

    bool ordered; /* `order` or the stream stands for at.seed and at.epoch */
    int64_t *order;
    int64_t order_room;
    int64_t stream_next; /* number of the sample that the stream gives next */
    bool stream_ended;

    int n_slots;
    aril__slot *slot;
    aril__worker_pool *pool;
};

/* Readies a slot for batch `number`; its rows can then be loaded. */
void aril__slot_begin(aril_loader *l, aril__slot *s, int64_t number);
/* Loads rows begin .. end - 1, each of which may fail by itself. `lock` guards the start of the
 * stack and the notes of failures; NULL where one thread is alone. */
void aril__slot_load(aril_loader *l, aril__slot *s, int64_t begin, int64_t end,
                     pthread_mutex_t *lock, const atomic_bool *stop);
/* The same for one row of a stream whose sample has been taken (`status` > 0) or not. */
void aril__slot_finish_row(aril_loader *l, aril__slot *s, int64_t row, aril_sample *sample,
                           int status, pthread_mutex_t *lock);
/* Makes the batch of its rows, unless the dataset gave it whole; and changes it as a whole. */
void aril__slot_end(aril_loader *l, aril__slot *s, bool whole, pthread_mutex_t *lock);
/* All of it at once, if the dataset can. False: row by row. */
bool aril__slot_whole(aril_loader *l, aril__slot *s, pthread_mutex_t *lock);

aril__slot *aril__slots_new(const aril_loader *l, int n);
void aril__slots_free(aril_loader *l, aril__slot *s, int n);

/* The threads of a loader; NULL with an error. */
aril__worker_pool *aril__worker_pool_new(aril_loader *l);
/* Stops handing out work, and waits until none is going on. */
void aril__worker_pool_rest(aril__worker_pool *c);
/* From now on the pool makes the batches from `first` on. */
aril_status aril__worker_pool_go(aril__worker_pool *c, int64_t first);
/* Waits for batch `number`; all before it may be used again. NULL: the stream ended before it. */
aril__slot *aril__worker_pool_take(aril__worker_pool *c, int64_t number);
void aril__worker_pool_free(aril__worker_pool *c);
/* True in a child process, where the threads do not exist. */
bool aril__worker_pool_is_gone(const aril__worker_pool *c);

#endif
