#include "core/casts.h"

#include <stdlib.h>

typedef struct entry {
    aril_tensor *weight; /* a header of our own, so that the memory is not reused; NULL: free */
    aril_tensor *cast;
    unsigned version; /* of the weight's memory when it was cast */
} entry;

/* A hash table with linear probing. Entries leave it all at once. */
struct aril__casts {
    uint32_t n, cap; /* cap is a power of 2 */
    entry *entries;
};

static uint32_t hash(const aril_tensor *weight)
{
    uint64_t bits = (uint64_t)(uintptr_t)weight->storage >> 6;
    return (uint32_t)(bits * 0x9E3779B97F4A7C15u >> 32);
}

static bool same_values(const aril_tensor *a, const aril_tensor *b)
{
    return a->storage == b->storage && a->offset == b->offset && a->dtype == b->dtype &&
           aril__same_dims(a->ndim, a->dim, b->ndim, b->dim) &&
           aril__same_dims(a->ndim, a->stride, b->ndim, b->stride);
}

/* The entry of that weight and dtype, of any version, or the free one where it belongs. */
static entry *locate(const struct aril__casts *c, const aril_tensor *weight, aril_dtype to)
{
    uint32_t at = hash(weight) & (c->cap - 1);
    for (;; at = (at + 1) & (c->cap - 1)) {
        entry *e = &c->entries[at];
        if (!e->weight || (e->cast->dtype == to && same_values(e->weight, weight))) return e;
    }
}

/* Whether the weight may change without a new version. */
static bool changes_unseen(const aril_tensor *weight)
{
    const aril__storage *s = weight->storage;
    return s->deleter || atomic_load_explicit(&s->lent, memory_order_relaxed);
}

const aril_tensor *aril__casts_find(const aril__thread *th, const aril_tensor *weight,
                                    aril_dtype to)
{
    if (!th->casts || !th->casts->cap || changes_unseen(weight)) return NULL;
    const entry *e = locate(th->casts, weight, to);
    return e->weight && e->version == aril__version(weight) ? e->cast : NULL;
}

/* Makes room for one more: at least half of the table stays free. */
static bool reserve(aril__thread *th)
{
    struct aril__casts *c = th->casts;
    if (!c && !(c = th->casts = aril__calloc(sizeof *c))) return false;
    if (c->n < c->cap / 2) return true;
    struct aril__casts grown = { .n = c->n, .cap = c->cap ? c->cap * 2 : 64 };
    grown.entries = aril__calloc(grown.cap * sizeof *grown.entries);
    if (!grown.entries) return false;
    for (uint32_t i = 0; i < c->cap; i++) {
        const entry *e = &c->entries[i];
        if (e->weight) *locate(&grown, e->weight, (aril_dtype)e->cast->dtype) = *e;
    }
    free(c->entries);
    *c = grown;
    return true;
}

static void release_entry(aril__thread *th, entry *e)
{
    if (e->weight) aril__tensor_release(th, e->weight);
    if (e->cast) aril__tensor_release(th, e->cast);
    *e = (entry){ 0 };
}

void aril__casts_keep(aril__thread *th, const aril_tensor *weight, const aril_tensor *cast)
{
    if (changes_unseen(weight) || !reserve(th)) return;
    entry fresh = { .weight = aril__tensor_detached(th, weight),
                    .cast = aril__tensor_detached(th, cast),
                    .version = aril__version(weight) };
    if (!fresh.weight || !fresh.cast) {
        release_entry(th, &fresh);
        return;
    }
    entry *e = locate(th->casts, weight, (aril_dtype)cast->dtype);
    if (!e->weight) th->casts->n++;
    release_entry(th, e);
    *e = fresh;
}

void aril__casts_drop(aril__thread *th)
{
    struct aril__casts *c = th->casts;
    if (!c) return;
    th->casts = NULL;
    for (uint32_t i = 0; i < c->cap; i++) release_entry(th, &c->entries[i]);
    free(c->entries);
    free(c);
}
