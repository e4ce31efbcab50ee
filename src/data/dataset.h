/* What all datasets share. */
#ifndef ARIL_DATA_DATASET_H
#define ARIL_DATA_DATASET_H

#include "aril/data.h"
#include "core/error.h"
#include "core/rng.h"

#include <stdatomic.h>

struct aril_dataset {
    atomic_int refs;
    const aril_dataset_class *type;
    aril_dataset_class own; /* the class of one made from two functions */
    aril_dataset *source;
    char *class_text; /* names one after the other, and pointers to them */
    const char **class_names;
    int n_classes;
    char *column_text; /* the same of a table's columns; the target's is behind those of x */
    const char **column_names;
    int n_columns; /* of x */
    bool has_target;
    int8_t images; /* 1, 0, or -1: as the class or the source says */
    _Alignas(16) unsigned char data[];
};

/* Says what the columns of a table are called; `target` behind those of x, or NULL. */
aril_status aril__dataset_set_columns(aril_dataset *d, int n, const char *const *names,
                                      const char *target);

/* The seed of one sample's generator. `nth` tells apart draws of the same sample in one epoch. */
uint64_t aril__sample_seed(uint64_t seed, int64_t epoch, int64_t sample, int64_t nth);

/* An empty sample. Until aril__sample_end the thread's default generator is the sample's own, so
 * that whatever draws in between depends on the sample alone; `before` keeps the thread's. */
void aril__sample_begin(aril_sample *s, aril_generator *before, uint64_t seed, int64_t epoch,
                        int64_t index, int64_t nth);
void aril__sample_end(aril_sample *s, const aril_generator *before);

/* The tensors of samples and batches in one order: x, y, weight, extra, extra_y. */
enum {
    ARIL__PART_EXTRA = 3,
    ARIL__PART_EXTRA_Y = ARIL__PART_EXTRA + ARIL_SAMPLE_EXTRA,
    ARIL__PARTS = ARIL__PART_EXTRA_Y + ARIL_SAMPLE_EXTRA_Y
};

static inline aril_tensor **aril__sample_part(aril_sample *s, int k)
{
    if (k >= ARIL__PART_EXTRA_Y) return &s->extra_y[k - ARIL__PART_EXTRA_Y];
    return k == 0 ? &s->x : k == 1 ? &s->y : k == 2 ? &s->weight : &s->extra[k - ARIL__PART_EXTRA];
}

static inline aril_tensor **aril__batch_part(aril_batch *b, int k)
{
    if (k >= ARIL__PART_EXTRA_Y) return &b->extra_y[k - ARIL__PART_EXTRA_Y];
    return k == 0 ? &b->x : k == 1 ? &b->y : k == 2 ? &b->weight : &b->extra[k - ARIL__PART_EXTRA];
}

/* The optional functions of a stream. */
aril_status aril__stream_restart(aril_dataset *d, uint64_t seed, int64_t epoch);
aril_status aril__stream_finish(aril_dataset *d, aril_sample *s);

/* "x", "y", "weight", "extra 0" ...: for messages. */
const char *aril__part_name(int k);

/* An error of the calling thread, set aside while something runs that may make another. */
typedef struct aril__set_aside {
    aril__error *error, *last_error;
} aril__set_aside;

aril__set_aside aril__errors_begin(void);
/* Puts them back; gives the error made in between (to be released), or NULL. */
aril__error *aril__errors_end(aril__set_aside *before);

/* Makes `e`, which happened with a sample, this thread's error, with the sample's name, and
 * releases it. Returns its code. */
aril_status aril__sample_failed(aril__error *e, aril_status status, const char *dataset,
                                const aril_sample *s);

#endif
