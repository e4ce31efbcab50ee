/* The order of an epoch. */
#ifndef ARIL_DATA_SAMPLER_H
#define ARIL_DATA_SAMPLER_H

#include "data/dataset.h"

struct aril_sampler {
    aril_sampler_class type;
    void *ctx;
    bool repeats;        /* may repeat samples in an epoch, each time with new random numbers */
    int64_t first, step; /* sample i is at first + i * step in the order of all processes */
};

/* Distinguishes repeated draws of one sample, for aril__sample_seed. */
static inline int64_t aril__sampler_nth(const aril_sampler *s, int64_t i)
{
    return s->repeats ? 1 + s->first + i * s->step : 0;
}

/* Shuffles n numbers, seeded by (seed, epoch). */
void aril__shuffle(int64_t *order, int64_t n, uint64_t seed, int64_t epoch);

/* The number of samples in an epoch; negative, with an error, if it cannot have any. */
int64_t aril__sampler_count(const aril_sampler *s, int64_t size);
/* Fills in the order of an epoch; indices outside the dataset are an error. */
aril_status aril__sampler_fill(const aril_sampler *s, int64_t size, uint64_t seed, int64_t epoch,
                               int64_t n, int64_t *order);

#endif
