/* The queues of a device: its own, number 0, and those of streams (aril/stream.h).
 *
 * Each storage knows the queue that it was allocated on, the one that wrote to it last, and those
 * that have used it since. Before work is queued that uses a storage, its queue is made to wait for
 * others by an event: a reader for the writer, a writer for all. Memory that is freed while another
 * queue uses it returns to the queue it came from when that work is done. Until the first stream
 * is created, none of this costs more than a test of aril__streams_used. */
#ifndef ARIL_CORE_QUEUES_H
#define ARIL_CORE_QUEUES_H

#include "core/tensor.h"

extern atomic_bool aril__streams_used;

static inline bool aril__one_queue(void)
{
    return aril__likely(!atomic_load_explicit(&aril__streams_used, memory_order_relaxed));
}

/* The number of the queue that this thread's work on the device goes to; and that queue, which is
 * NULL if the device has none. */
int aril__queue_number(const aril__device *d);
aril_queue *aril__queue_numbered(const aril__device *d, int number);

static inline aril_queue *aril__queue(const aril__device *d)
{
    return aril__one_queue() ? d->queue : aril__queue_numbered(d, aril__queue_number(d));
}

/* Makes the queue `to` wait for what `from` was given so far; queues that have ended are done. */
aril_status aril__queue_after(aril__device *d, int to, int from);

/* Orders this thread's next work on the storage's device after the work that it must wait for. */
aril_status aril__order_use(aril__storage *s, bool writes);

static inline aril_status aril__before_use(aril__storage *s, bool writes)
{
    return aril__one_queue() ? ARIL_OK : aril__order_use(s, writes);
}

/* Whether work in the queue of number `here` need not wait: nearly always. */
static inline bool aril__is_ordered(const aril__storage *s, int here, bool writes)
{
    return atomic_load_explicit(&s->writer, memory_order_relaxed) == here &&
           !(writes && atomic_load_explicit(&s->readers, memory_order_relaxed));
}

/* Frees the memory of a storage for reuse by the queue that it came from, now or when other queues
 * are done with it. */
void aril__storage_free_memory(aril__storage *s);

/* Now and then frees what waits for queues of the device that are done by now; `all`: waits for
 * them. Without the device's lock. */
void aril__collect_pending(aril__device *d, bool all);

#endif
