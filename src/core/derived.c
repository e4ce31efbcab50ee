#include "core/derived.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Lists of derived forms are short and rarely accessed: storages share a few locks. */
enum { LOCKS = 16 };
static pthread_mutex_t locks[LOCKS] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER,
};

static pthread_mutex_t *lock_of(const aril__storage *s)
{
    return &locks[((uintptr_t)s >> 7) % LOCKS];
}

void aril__derived_release(aril__derived *d)
{
    if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1) return;
    if (d->data) aril__device_free(d->device, d->data, d->bytes);
    free(d->restore_ctx);
    free(d);
}

static aril__derived *derived_new(aril__device *device, size_t bytes)
{
    aril__derived *d = aril__malloc(sizeof *d);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a derived form");
        return NULL;
    }
    d->bytes = bytes;
    d->device = device;
    d->next = NULL;
    d->restore = NULL;
    d->restore_ctx = NULL;
    atomic_init(&d->refs, 1);
    d->data = aril__device_alloc_lasting(device, bytes);
    if (d->data) return d;
    free(d);
    return NULL;
}

aril__derived *aril__derived_new(aril__device *device, size_t bytes)
{
    aril__allocations_allow(); /* a cache: made once, by the first run */
    aril__derived *d = derived_new(device, bytes);
    aril__allocations_allow_end();
    return d;
}

/* Removes forms from the list: all of them, or those of another version and, if a key is given,
 * those with that key and as many of the oldest as needed to make room for one more. The caller
 * releases them after it has dropped the lock. */
static aril__derived *take_out(aril__storage *s, bool all, unsigned version, const void *key,
                               size_t key_size)
{
    aril__derived *out = NULL, *kept = NULL, **end = &kept, *next;
    int n = 0;
    for (aril__derived *d = atomic_load(&s->derived); d; d = next) {
        next = d->next;
        bool same = key && d->key_size == key_size && memcmp(d->key, key, key_size) == 0;
        if (all || d->version != version || same ||
            (key && ++n >= ARIL__DERIVED_MAX && !s->keeps_forms)) {
            d->next = out;
            out = d;
        } else {
            *end = d;
            end = &d->next;
            d->next = NULL;
        }
    }
    atomic_store(&s->derived, kept);
    return out;
}

static void release_list(aril__derived *d)
{
    while (d) {
        aril__derived *next = d->next;
        aril__derived_release(d);
        d = next;
    }
}

aril__derived *aril__derived_get(aril__storage *s, const void *key, size_t key_size,
                                 unsigned version)
{
    if (!atomic_load_explicit(&s->derived, memory_order_relaxed)) return NULL;
    bool stale = false;
    pthread_mutex_lock(lock_of(s));
    aril__derived *found = atomic_load(&s->derived), *old = NULL;
    for (aril__derived *d = found; d; d = d->next) stale |= d->version != version;
    if (stale) {
        old = take_out(s, false, version, NULL, 0);
        found = atomic_load(&s->derived);
    }
    while (found && !(found->key_size == key_size && memcmp(found->key, key, key_size) == 0))
        found = found->next;
    if (found) atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(lock_of(s));
    release_list(old);
    return found;
}

void aril__derived_put(aril__storage *s, const void *key, size_t key_size, unsigned version,
                       aril__derived *d)
{
    if (key_size > ARIL__DERIVED_KEY || s->deleter) return;
    pthread_mutex_lock(lock_of(s));
    if (atomic_load(&s->lent) || atomic_load(&s->version) != version) {
        pthread_mutex_unlock(lock_of(s));
        return;
    }
    aril__derived *old = take_out(s, false, version, key, key_size);
    d->version = version;
    d->key_size = key_size;
    memcpy(d->key, key, key_size);
    d->next = atomic_load(&s->derived);
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    atomic_store(&s->derived, d);
    pthread_mutex_unlock(lock_of(s));
    release_list(old);
}

/* ---- forms that stand for the contents ---- */

/* Less than this is not worth a call of the system. */
enum { MIN_RETURNED = 1 << 16 };

bool aril__derived_is_replaceable(const aril__storage *s)
{
    return s->device->host_memory && !s->deleter && !s->keeps_forms && s->data != s->small &&
           (ARIL__PLAIN_BLOCKS || s->bytes >= MIN_RETURNED) && !atomic_load(&s->lent) &&
           atomic_load(&s->contents) == ARIL__IN_MEMORY;
}

/* The whole pages of a storage's memory. */
static size_t pages_of(const aril__storage *s, char **begin)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)s->data;
    uintptr_t from = (data + page - 1) & ~(page - 1), to = (data + s->bytes) & ~(page - 1);
    *begin = s->data;
    if (from >= to) return 0;
    *begin += from - data;
    return to - from;
}

/* Returns them to the system, which keeps their addresses. */
static void return_pages(aril__storage *s)
{
#if ARIL__PLAIN_BLOCKS
    memset(s->data, 0xff, s->bytes); /* whoever reads it without asking for it gets NaN */
#else
    char *begin;
    size_t bytes = pages_of(s, &begin);
    madvise(begin, bytes, MADV_DONTNEED);
#endif
}

/* Counts pages that were returned, or are in use again. */
static void count_pages(aril__storage *s, int sign)
{
    char *begin;
    aril__device_count_live(s->device, sign * (int64_t)pages_of(s, &begin));
}

static bool is_cached(aril__storage *s, const aril__derived *d)
{
    const aril__derived *at = atomic_load(&s->derived);
    while (at && at != d) at = at->next;
    return at != NULL;
}

void aril__derived_replace(aril__storage *s, aril__derived *d, aril__derived_restore *restore,
                           void *ctx)
{
    pthread_mutex_lock(lock_of(s));
    if (aril__derived_is_replaceable(s) && is_cached(s, d) && aril__alone_begin()) {
        d->restore = restore;
        d->restore_ctx = ctx;
        ctx = NULL;
        return_pages(s);
        count_pages(s, -1);
        atomic_store(&s->contents, ARIL__IN_FORM);
        aril__alone_end();
    }
    pthread_mutex_unlock(lock_of(s));
    free(ctx);
}

void aril__storage_restore(aril__storage *s)
{
    pthread_mutex_lock(lock_of(s));
    if (atomic_load(&s->contents) == ARIL__IN_FORM) {
        const aril__derived *d = atomic_load(&s->derived);
        while (!d->restore) d = d->next; /* forms leave the list only when contents are there */
        count_pages(s, 1);
        d->restore(d->restore_ctx, d->data, s->data);
        atomic_store(&s->contents, ARIL__RESTORED);
    }
    pthread_mutex_unlock(lock_of(s));
}

void aril__derived_end(aril__storage *s)
{
    if (atomic_load(&s->contents) == ARIL__IN_FORM) {
        atomic_store(&s->contents, ARIL__IN_MEMORY);
        count_pages(s, 1); /* freed next */
    }
    aril__derived_drop(s);
}

void aril__derived_drop(aril__storage *s)
{
    if (atomic_load(&s->contents) == ARIL__IN_FORM) aril__storage_restore(s);
    pthread_mutex_lock(lock_of(s));
    aril__derived *old = take_out(s, true, 0, NULL, 0);
    pthread_mutex_unlock(lock_of(s));
    release_list(old);
}
