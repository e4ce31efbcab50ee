/* Caches samples in memory after the first read. */
#include "data/dataset.h"

#include "aril/create.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/memory.h"
#include "core/tensor.h"

#include <stdlib.h>

struct entry {
    aril_tensor *part[ARIL__PARTS];
    const char *name;
};

struct cache {
    int64_t n, limit;
    _Atomic(struct entry *) *entry;
    atomic_llong bytes, samples;
};

static int64_t cache_size(aril_dataset *self)
{
    return aril_dataset_size(self->source);
}

static void entry_free(struct entry *e)
{
    if (!e) return;
    for (int k = 0; k < ARIL__PARTS; k++) aril_release(e->part[k]);
    free(e);
}

/* A cache entry with the sample's tensors; small views of larger memory are copied. NULL when out
 * of memory: the sample is then just not cached. */
static struct entry *entry_new(const aril_sample *s, int64_t *bytes)
{
    aril__thread *th = aril__self();
    struct entry *e = aril__calloc(sizeof *e);
    if (!e) return NULL;
    e->name = s->name;
    *bytes = (int64_t)sizeof *e;
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor *t = *aril__sample_part((aril_sample *)(uintptr_t)s, k);
        if (!t) continue;
        size_t size = aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
        if (t->flags & (ARIL__POISON | ARIL__SYMBOLIC) || !t->storage) {
            entry_free(e);
            return NULL;
        }
        if (t->storage->bytes > size + size / 4 + 64) t = aril_copy(t);
        if (aril__is_poison(t)) {
            entry_free(e);
            return NULL;
        }
        e->part[k] = aril__tensor_detached(th, t);
        if (!e->part[k]) {
            entry_free(e);
            return NULL;
        }
        *bytes += (int64_t)(size + sizeof *t + sizeof *t->storage);
    }
    return e;
}

/* Each thread gets its own tensor headers over the shared memory: scopes write to the headers they
 * own. */
static aril_status entry_give(const struct entry *e, aril_sample *s)
{
    aril__thread *th = aril__self();
    s->name = e->name;
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor *t = e->part[k] ? aril__tensor_detached(th, e->part[k]) : NULL;
        if (e->part[k] && !t) return ARIL_ERR_MEMORY;
        *aril__sample_part(s, k) = t ? aril__give(th, t) : NULL;
    }
    return ARIL_OK;
}

static aril_status cache_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    struct cache *c = aril_dataset_data(self);
    struct entry *e = atomic_load_explicit(&c->entry[i], memory_order_acquire);
    if (e) return entry_give(e, s);
    s->wants = NULL; /* other epochs will want other regions of an image */
    aril_status status = self->source->type->get(self->source, i, s);
    if (status < 0 || (c->limit && atomic_load(&c->bytes) >= c->limit)) return status;

    int64_t bytes;
    aril__saved_errors before = aril__errors_begin();
    e = entry_new(s, &bytes);
    aril__error_release(aril__errors_end(&before));
    if (!e) return status;
    long long held = atomic_fetch_add(&c->bytes, bytes) + bytes;
    struct entry *none = NULL;
    if ((c->limit && held > c->limit) || !atomic_compare_exchange_strong(&c->entry[i], &none, e)) {
        atomic_fetch_sub(&c->bytes, bytes); /* cache full, or another thread was faster */
        entry_free(e);
    } else {
        atomic_fetch_add(&c->samples, 1);
    }
    return status;
}

static void cache_destroy(aril_dataset *self)
{
    struct cache *c = aril_dataset_data(self);
    for (int64_t i = 0; i < c->n && c->entry; i++) entry_free(atomic_load(&c->entry[i]));
    free(c->entry);
}

static const aril_dataset_class cache_class = {
    .type = "Cache",
    .data_size = sizeof(struct cache),
    .size = cache_size,
    .get = cache_get,
    .destroy = cache_destroy,
};

aril_dataset *aril_dataset_cache(aril_dataset *source, int64_t limit)
{
    if (!source) return NULL;
    aril_dataset *d = NULL;
    if (!source->type->get)
        aril__fail(ARIL_ERR_ARG, "dataset_cache: %s is a stream, whose samples have no indices",
                   source->type->type);
    else if (limit < 0)
        aril__fail(ARIL_ERR_ARG, "dataset_cache: expected a limit of 0 or more bytes, got %lld",
                   (long long)limit);
    else
        d = aril_dataset_make(&cache_class);
    struct cache *c = aril_dataset_data(d);
    int64_t n = aril_dataset_size(source);
    if (c) {
        c->limit = limit;
        c->n = n;
        c->entry = aril__calloc((size_t)(n > 0 ? n : 1) * sizeof *c->entry);
        if (!c->entry) {
            aril__fail(ARIL_ERR_MEMORY, "dataset_cache: out of memory");
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

int64_t aril_dataset_cached(const aril_dataset *d, int64_t *samples)
{
    if (samples) *samples = 0;
    if (!d || d->type != &cache_class) return 0;
    struct cache *c = aril_dataset_data(d);
    if (samples) *samples = atomic_load(&c->samples);
    return atomic_load(&c->bytes);
}
