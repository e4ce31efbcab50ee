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
    aril_dataset_class own; /* the class, for datasets created from two functions */
    aril_dataset *source;
    char *label;      /* what errors call it; NULL: by its class */
    char *class_text; /* concatenated names, and pointers to them */
    const char **class_names;
    int n_classes;
    char *column_text; /* the same for a table's columns; the target's name follows those of x */
    const char **column_names;
    int n_columns; /* number of columns in x */
    bool has_target;
    int8_t images; /* 1, 0, or -1: ask the class or the source */
    _Alignas(16) unsigned char data[];
};

/* What errors about samples call the dataset, instead of its class. It is copied. */
aril_status aril__dataset_set_label(aril_dataset *d, const char *label);
const char *aril__dataset_label(const aril_dataset *d);

/* Sets the column names of a table; `target` is the target's name, or NULL. */
aril_status aril__dataset_set_columns(aril_dataset *d, int n, const char *const *names,
                                      const char *target);

/* The seed of one sample's generator. `nth` distinguishes repeated draws of the same sample in one
 * epoch. */
uint64_t aril__sample_seed(uint64_t seed, int64_t epoch, int64_t sample, int64_t nth);

/* Starts an empty sample. Until aril__sample_end the thread's default generator is the sample's
 * own, so that all random numbers depend on the sample alone; `before` saves the thread's
 * generator. */
void aril__sample_begin(aril_sample *s, aril_generator *before, uint64_t seed, int64_t epoch,
                        int64_t index, int64_t nth);
void aril__sample_end(aril_sample *s, const aril_generator *before);

/* Indices of a sample's or batch's tensors: x, y, weight, extra, extra_y. */
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

/* Call a stream's optional functions, if it has them. */
aril_status aril__stream_restart(aril_dataset *d, uint64_t seed, int64_t epoch);
aril_status aril__stream_finish(aril_dataset *d, aril_sample *s);

/* "x", "y", "weight", "extra 0" ...: for error messages. */
const char *aril__part_name(int k);

/* Sets this thread's error to `e`, with the sample's name added, and releases e. Returns its status
 * code. */
aril_status aril__sample_failed(aril__error *e, aril_status status, const char *dataset,
                                const aril_sample *s);

#endif
