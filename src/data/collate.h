/* Collates samples into batches. */
#ifndef ARIL_DATA_COLLATE_H
#define ARIL_DATA_COLLATE_H

#include "core/device.h"
#include "data/dataset.h"

/* A batch whose rows can be written concurrently by several threads once aril__stack_begin
 * returned. */
typedef struct aril__stack {
    int64_t n, first; /* rows; index of the sample that defined the shapes */
    struct {
        aril_dtype from; /* dtype of the samples */
        bool scale;      /* convert u8 in 0..255 to f32 in 0..1 */
        int ndim;        /* -1: samples do not have this part */
        int64_t dim[ARIL_MAX_DIMS], numel;
        size_t bytes; /* per row */
        char *rows;
    } part[ARIL__PARTS];
} aril__stack;

/* Allocates b for n samples like s. `scale`: u8 x becomes f32 in 0..1. */
aril_status aril__stack_begin(aril__stack *k, const aril_sample *s, int64_t n, bool scale,
                              aril_batch *b);
/* Writes one row; fails if the sample's shape or dtype differs from the first. */
aril_status aril__stack_put(const aril__stack *k, int64_t row, const aril_sample *s);

/* Stacks all samples at once, padding x and y along their first axis; sets b->lengths. */
aril_status aril__stack_padded(int64_t n, const aril_sample *s, double pad_x, double pad_y,
                               bool scale, aril_batch *b);

/* Moves all tensors of a batch to pinned memory, if they are not there; aril_batch_buffer then
 * keeps them there, and waits for copies from them before it gives them out again. */
aril_status aril__batch_pin(aril_batch *b, aril__device *d);

/* Releases all tensors of a batch. */
void aril__batch_clear(aril_batch *b);

/* Copies the tensors of a batch to a device, into new tensors of `to`. */
aril_status aril__batch_send(const aril_batch *b, aril_device device, aril_batch *to);

#endif
