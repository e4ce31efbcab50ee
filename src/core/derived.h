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
 * knowledge (borrowed, or lent out) has no cached forms. All functions are thread-safe. */
#ifndef ARIL_CORE_DERIVED_H
#define ARIL_CORE_DERIVED_H

#include "core/tensor.h"

enum {
    ARIL__DERIVED_KEY = 256, /* maximum bytes of a key */
    ARIL__DERIVED_MAX = 8,   /* maximum forms per storage; the oldest is evicted */
};

struct aril__derived {
    void *data;
    size_t bytes;
    /* private to derived.c */
    atomic_int refs;
    aril__device *device;
    aril__derived *next;
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

/* NULL is ignored. */
void aril__derived_release(aril__derived *d);

#endif
