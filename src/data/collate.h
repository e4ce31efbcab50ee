/* Samples to batches. */
#ifndef ARIL_DATA_COLLATE_H
#define ARIL_DATA_COLLATE_H

#include "data/dataset.h"

/* A batch whose rows are written one by one, by any threads at once, once it has begun. */
typedef struct aril__stack {
    int64_t n, first; /* rows; the number of the sample that it began with */
    struct {
        aril_dtype from; /* of the samples */
        bool scale;      /* u8 of 0..255 to f32 of 0..1 */
        int ndim;        /* -1: samples have none */
        int64_t dim[ARIL_MAX_DIMS], numel;
        size_t bytes; /* of a row */
        char *rows;
    } part[ARIL__PARTS];
} aril__stack;

/* Makes room in b for n samples like s. `scale`: x in u8 becomes f32 of 0..1. */
aril_status aril__stack_begin(aril__stack *k, const aril_sample *s, int64_t n, bool scale,
                              aril_batch *b);
/* Writes one row; fails when the sample is not like the first. */
aril_status aril__stack_put(const aril__stack *k, int64_t row, const aril_sample *s);

/* All at once, with x and y padded along their first axis; sets b->lengths. */
aril_status aril__stack_padded(int64_t n, const aril_sample *s, double pad_x, double pad_y,
                               bool scale, aril_batch *b);

/* Releases all tensors of a batch. */
void aril__batch_clear(aril_batch *b);

#endif
