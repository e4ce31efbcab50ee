/* Derived forms of a storage: what a kernel computed from its contents (a weight packed for
 * matmul), cached with the storage for the next call.
 *
 *     aril__derived *d = aril__derived_get(w->storage, key, sizeof key, aril__version(w));
 *     if (!d && (d = aril__derived_new(device, bytes))) {
 *         pack(d->data, w);
 *         aril__derived_put(w->storage, key, sizeof key, version, d);
 *     }
 *     ... d->data ...
 *     aril__derived_release(d);
 *
 * The key holds everything that the form depends on besides the contents: its creator, the offset
 * and strides of the tensor, the kind of form. Forms are dropped when the storage is written to or
 * freed; a form in use stays until it is released. Memory that others can write to without our
 * knowledge (borrowed, or lent out) has no cached forms. All functions are thread-safe.
 *
 * A form that holds all of the contents in another order can stand for them
 * (aril__derived_replace): the pages of the storage's own memory are returned to the system, and
 * whoever reads the contents, or writes some of them, has them restored first. So a network that
 * only predicts takes the memory of its weights once, not twice. */
#ifndef ARIL_CORE_DERIVED_H
#define ARIL_CORE_DERIVED_H

#include "core/tensor.h"

enum {
    ARIL__DERIVED_KEY = 256, /* maximum bytes of a key */
    ARIL__DERIVED_MAX = 8,   /* maximum forms per storage; the oldest is evicted */
};

/* Computes the contents of a storage from a form of them. Runs in any thread, may not allocate and
 * cannot fail. */
typedef void aril__derived_restore(const void *ctx, const void *form, void *contents);

struct aril__derived {
    void *data;
    size_t bytes;
    /* private to derived.c */
    atomic_int refs;
    aril__device *device;
    aril__derived *next;
    aril__derived_restore *restore; /* NULL: the form does not stand for the contents */
    void *restore_ctx;
    unsigned version;
    size_t key_size;
    unsigned char key[ARIL__DERIVED_KEY];
};

/* The form cached under `key` for that version of the contents, with a reference for the caller;
 * NULL if there is none. Forms of other versions are dropped. */
aril__derived *aril__derived_get(aril__storage *s, const void *key, size_t key_size,
                                 unsigned version);

/* Memory for a form, not cleared, with one reference; NULL with an error. */
aril__derived *aril__derived_new(aril__device *device, size_t bytes);

/* Caches the form under `key` (taking another reference), replacing any previous one. `version` is
 * that of the contents before they were read. A no-op if the storage may not cache forms, or if the
 * contents have changed since. */
void aril__derived_put(aril__storage *s, const void *key, size_t key_size, unsigned version,
                       aril__derived *d);

/* False where contents are small or borrowed, and where they had to be restored before: then they
 * are read again and again. */
bool aril__derived_is_replaceable(const aril__storage *s);

/* Makes the cached form `d` stand for the contents, from which it was computed just now. A no-op
 * where they are not replaceable, or another thread uses Aril, which may be reading them. `ctx` is
 * freed by free(), with the form or now. */
void aril__derived_replace(aril__storage *s, aril__derived *d, aril__derived_restore *restore,
                           void *ctx);

/* NULL is ignored. */
void aril__derived_release(aril__derived *d);

#endif
