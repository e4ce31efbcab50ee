/* Derived forms of memory: what a kernel made of a storage's contents (a weight packed for a
 * product), kept with the storage for the next call.
 *
 *     aril__derived *d = aril__derived_get(w->storage, key, sizeof key, aril__version(w));
 *     if (!d && (d = aril__derived_new(device, bytes))) {
 *         pack(d->data, w);
 *         aril__derived_put(w->storage, key, sizeof key, version, d);
 *     }
 *     ... d->data ...
 *     aril__derived_release(d);
 *
 * The key says everything that the form depends on beside the contents: who made it, the offset and
 * strides of the tensor, the form. Forms go when the storage is written to or freed; one in use
 * stays until it is released. Memory that others can write to unseen (borrowed, or lent out) keeps
 * no forms. All functions may be called by several threads at once. */
#ifndef ARIL_CORE_DERIVED_H
#define ARIL_CORE_DERIVED_H

#include "core/tensor.h"

enum {
    ARIL__DERIVED_KEY = 256, /* bytes of a key, at most */
    ARIL__DERIVED_MOST = 8,  /* forms of one storage; the oldest goes */
};

struct aril__derived {
    void *data;
    size_t bytes;
    /* the rest belongs to derived.c */
    atomic_int refs;
    aril__device *device;
    aril__derived *next;
    unsigned version;
    size_t key_size;
    unsigned char key[ARIL__DERIVED_KEY];
};

/* The form kept under `key` for that version of the contents, with a reference for the caller; NULL
 * when there is none. Forms of other versions are dropped. */
aril__derived *aril__derived_get(aril__storage *s, const void *key, size_t key_size,
                                 unsigned version);

/* Memory for a form, not cleared, with one reference; NULL with an error. */
aril__derived *aril__derived_new(aril__device *device, size_t bytes);

/* Keeps the form (a reference more) under `key`, in place of what was there. `version` is that of
 * the contents before they were read. Does nothing where no forms may be kept, or where the
 * contents have changed meanwhile. */
void aril__derived_put(aril__storage *s, const void *key, size_t key_size, unsigned version,
                       aril__derived *d);

/* NULL is ignored. */
void aril__derived_release(aril__derived *d);

#endif
