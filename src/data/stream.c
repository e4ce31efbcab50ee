/* Streams: datasets without random access. */
#include "data/dataset.h"

#include "aril/scope.h"
#include "core/memory.h"

#include <stdlib.h>

aril_status aril__stream_restart(aril_dataset *d, uint64_t seed, int64_t epoch)
{
    return d->type->restart ? d->type->restart(d, seed, epoch) : ARIL_OK;
}

aril_status aril__stream_finish(aril_dataset *d, aril_sample *s)
{
    return d->type->finish ? d->type->finish(d, s) : ARIL_OK;
}

static aril_status source_finish(aril_dataset *self, aril_sample *s)
{
    return aril__stream_finish(self->source, s);
}

/* ---- shuffle buffer ---- */

struct shuffle {
    int64_t capacity, n; /* n: samples in the buffer */
    aril_sample *sample;
    bool ended; /* the source is exhausted */
    aril__rng_key key;
    int64_t given;
};

static void let_go(aril_sample *s)
{
    for (int k = 0; k < ARIL__PARTS; k++) aril_release(*aril__sample_part(s, k));
}

static void empty(struct shuffle *d)
{
    for (int64_t i = 0; i < d->n; i++) let_go(&d->sample[i]);
    d->n = 0;
}

static aril_status shuffle_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    struct shuffle *d = aril_dataset_data(self);
    empty(d);
    d->ended = false;
    d->given = 0;
    d->key = (aril__rng_key){ aril__sample_seed(seed, epoch, -1, 0), 0 };
    return aril__stream_restart(self->source, seed, epoch);
}

/* Reads the source's next sample into sample[i]. Returns 1, 0 at the end, or a negative status. */
static int take_in(aril_dataset *self, int64_t i, const aril_sample *like)
{
    struct shuffle *d = aril_dataset_data(self);
    ARIL_SCOPE;
    aril_sample s = { .index = like->index, .random = like->random };
    int status = self->source->type->next(self->source, &s);
    if (status <= 0) return status;
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor *t = *aril__sample_part(&s, k);
        if (t) aril_keep(t);
    }
    d->sample[i] = s;
    return 1;
}

static int shuffle_next(aril_dataset *self, aril_sample *s)
{
    struct shuffle *d = aril_dataset_data(self);
    while (!d->ended && d->n < d->capacity) {
        int status = take_in(self, d->n, s);
        if (status < 0) return status;
        if (status == 0)
            d->ended = true;
        else
            d->n++;
    }
    if (!d->n) return 0;
    int64_t pick;
    aril__rng_below(d->key, d->given, d->given + 1, (uint64_t)d->n, &pick);
    d->given++;
    aril_sample *from = &d->sample[pick];
    s->name = from->name;
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor *t = *aril__sample_part(from, k);
        *aril__sample_part(s, k) = t ? aril_adopt(t) : NULL;
    }
    *from = d->sample[--d->n];
    return 1;
}

static void shuffle_destroy(aril_dataset *self)
{
    struct shuffle *d = aril_dataset_data(self);
    empty(d);
    free(d->sample);
}

static const aril_dataset_class shuffle_class = {
    .type = "Shuffle",
    .data_size = sizeof(struct shuffle),
    .next = shuffle_next,
    .restart = shuffle_restart,
    .finish = source_finish,
    .destroy = shuffle_destroy,
};

aril_dataset *aril_dataset_shuffle(aril_dataset *source, int64_t n)
{
    if (!source) return NULL;
    aril_dataset *d = NULL;
    if (source->type->get)
        aril__fail(ARIL_ERR_ARG,
                   "dataset_shuffle: %s is not a stream; use .shuffle of the loader, which needs "
                   "no buffer",
                   source->type->type);
    else if (n < 1 || n > INT64_MAX / (int64_t)sizeof(aril_sample))
        aril__fail(ARIL_ERR_ARG,
                   "dataset_shuffle: expected a buffer of at least 1 sample, got %lld",
                   (long long)n);
    else
        d = aril_dataset_make(&shuffle_class);
    struct shuffle *data = aril_dataset_data(d);
    if (data) {
        data->capacity = n;
        data->sample = aril__malloc((size_t)n * sizeof *data->sample);
        if (!data->sample) {
            aril__fail(ARIL_ERR_MEMORY, "dataset_shuffle: out of memory");
            aril_dataset_release(d);
            d = NULL;
        }
    }
    if (!d) {
        aril_dataset_release(source);
        return NULL;
    }
    aril_dataset_set_source(d, source);
    return d;
}

/* ---- take ---- */

struct take {
    int64_t n, given;
};

static int take_next(aril_dataset *self, aril_sample *s)
{
    struct take *d = aril_dataset_data(self);
    if (d->given >= d->n) return 0;
    d->given++;
    return self->source->type->next(self->source, s);
}

static aril_status take_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    struct take *d = aril_dataset_data(self);
    d->given = 0;
    return aril__stream_restart(self->source, seed, epoch);
}

static const aril_dataset_class take_class = {
    .type = "Take",
    .data_size = sizeof(struct take),
    .next = take_next,
    .restart = take_restart,
    .finish = source_finish,
};

aril_dataset *aril_dataset_take(aril_dataset *source, int64_t n)
{
    if (!source) return NULL;
    if (n < 0) {
        aril__fail(ARIL_ERR_ARG, "dataset_take: expected 0 or more samples, got %lld",
                   (long long)n);
        aril_dataset_release(source);
        return NULL;
    }
    if (source->type->get) {
        int64_t size = aril_dataset_size(source);
        return aril_dataset_range(source, 0, n < size ? n : size);
    }
    aril_dataset *d = aril_dataset_make(&take_class);
    if (!d) {
        aril_dataset_release(source);
        return NULL;
    }
    struct take *data = aril_dataset_data(d);
    data->n = n;
    aril_dataset_set_source(d, source);
    return d;
}
