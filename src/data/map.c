/* Datasets that apply a function to each sample. */
#include "data/dataset.h"

struct map {
    aril_map_fn *fn;
    void *ctx;
    void (*drop)(void *ctx);
};

static aril_status map_apply(aril_dataset *self, aril_sample *s)
{
    const struct map *m = aril_dataset_data(self);
    return m->fn(s, m->ctx);
}

static int64_t map_size(aril_dataset *self)
{
    return aril_dataset_size(self->source);
}

static aril_status map_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    s->wants = NULL; /* the function sees whole images */
    aril_status status = self->source->type->get(self->source, i, s);
    return status < 0 ? status : map_apply(self, s);
}

static int map_next(aril_dataset *self, aril_sample *s)
{
    return self->source->type->next(self->source, s);
}

static aril_status map_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    return aril__stream_restart(self->source, seed, epoch);
}

static aril_status map_finish(aril_dataset *self, aril_sample *s)
{
    aril_status status = aril__stream_finish(self->source, s);
    return status < 0 ? status : map_apply(self, s);
}

static void map_destroy(aril_dataset *self)
{
    const struct map *m = aril_dataset_data(self);
    if (m->drop) m->drop(m->ctx);
}

static const aril_dataset_class map_class = {
    .type = "Map",
    .data_size = sizeof(struct map),
    .size = map_size,
    .get = map_get,
    .destroy = map_destroy,
};

static const aril_dataset_class map_stream_class = {
    .type = "Map",
    .data_size = sizeof(struct map),
    .next = map_next,
    .restart = map_restart,
    .finish = map_finish,
    .destroy = map_destroy,
};

aril_dataset *aril_dataset_map(aril_dataset *source, aril_map_fn *fn, void *ctx,
                               void (*drop)(void *ctx))
{
    aril_dataset *d = NULL;
    if (source && !fn)
        aril__fail(ARIL_ERR_ARG, "dataset_map: the function is NULL");
    else if (source)
        d = aril_dataset_make(source->type->get ? &map_class : &map_stream_class);
    if (!d) {
        if (drop) drop(ctx);
        aril_dataset_release(source);
        return NULL;
    }
    struct map *m = aril_dataset_data(d);
    *m = (struct map){ fn, ctx, drop };
    aril_dataset_set_source(d, source);
    return d;
}
