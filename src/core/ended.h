/* Tensors that have ended: their scope was left, or their last reference was released.
 *
 * The header of such a tensor is marked and looks like poison, so that a call with a stale pointer
 * fails with a message instead of reading freed memory. The mark lasts until the header is reused
 * for another tensor. With ARIL_DEBUG=scopes headers are never reused, and the message names the
 * source location where the tensor was created. */
#ifndef ARIL_CORE_ENDED_H
#define ARIL_CORE_ENDED_H

#include "core/tensor.h"

extern bool aril__debug_scopes; /* ARIL_DEBUG=scopes; constant once the library has started */

/* Reads ARIL_DEBUG. */
void aril__debug_init(void);

/* A header that remembers the source location of the call; NULL when out of memory. */
aril__cold aril_tensor *aril__traced_header(aril__thread *th);

/* Keeps a marked header of that kind until the process ends. */
aril__cold void aril__traced_retire(aril_tensor *t);

/* The number of headers kept, and freeing them. */
int64_t aril__traced_count(void);
void aril__traced_shutdown(aril__thread *th);

static inline aril_tensor *aril__new_header(aril__thread *th)
{
    if (aril__unlikely(aril__debug_scopes)) return aril__traced_header(th);
    return aril__header_alloc(&th->slab);
}

/* Marks a header whose parts have been released, and frees it. */
static inline void aril__end_header(aril__thread *th, aril_tensor *t)
{
    /* Zero references: a double release then only decrements an unused header. */
    atomic_store_explicit(&t->refs, 0, memory_order_relaxed);
    t->dtype = ARIL_F32;
    t->ndim = 0;
    t->flags = ARIL__POISON | ARIL__ENDED;
    t->numel = 1;
    t->storage = NULL;
    t->node = NULL;
    t->view = NULL;
    t->u.error = &aril__ended_error;
    if (aril__unlikely(aril__debug_scopes))
        aril__traced_retire(t);
    else
        aril__header_free(&th->slab, t);
}

#endif
