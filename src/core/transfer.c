/* Copies between the host and devices, and waiting for queued work. */
#include "core/device.h"

#include "core/error.h"
#include "core/foreign.h"
#include "core/late.h"
#include "core/memory.h"
#include "core/profile.h"
#include "core/queues.h"

#include <stdlib.h>

/* ---- late errors ---- */

static _Thread_local unsigned n_reported; /* late errors of this thread */

unsigned aril__late_errors(void)
{
    return n_reported;
}

static aril__cold aril_status late_error(const aril__device *d, aril_late_error *e, aril_status s)
{
    n_reported++;
    e->op[sizeof e->op - 1] = e->text[sizeof e->text - 1] = '\0'; /* strncpy may have filled them */
    aril_status code = aril__foreign_code(e->code < 0 ? e->code : s, ARIL_ERR_DEVICE);
    return aril__fail(code, "%s: %s (reported late)", e->op[0] ? e->op : d->kind_name,
                      e->text[0] ? e->text : "failed");
}

/* Reports the first error of queued work, if there is one. */
static aril_status poll(aril__device *d)
{
    if (!d->ops.poll) return ARIL_OK;
    aril_late_error e = { .code = ARIL_OK };
    aril_status s = d->ops.poll(d->self, &e);
    return aril__likely(s == ARIL_OK && e.code == ARIL_OK) ? ARIL_OK : late_error(d, &e, s);
}

static aril__cold aril_status failed(aril__device *d, const char *function, aril_status s)
{
    aril_status late = poll(d); /* what queued work did wrong explains why later calls fail */
    return late < 0 ? late : aril__foreign_error(s, d->kind_name, function);
}

/* The status of a device's function, with a message if it is an error. */
static inline aril_status checked(aril__device *d, const char *function, aril_status s)
{
    return aril__likely(s == ARIL_OK) ? s : failed(d, function, s);
}

/* Time in which the host waits for the device has a row of its own in profiles. */
static aril__span begin_waiting(const aril__device *d)
{
    return aril__unlikely(aril__profiling() && d->queue)
               ? aril__span_begin(aril__waiting, aril__waiting)
               : (aril__span){ -1, 0 };
}

aril_status aril__device_wait(aril__device *d)
{
    aril__span span = begin_waiting(d);
    aril_status s = d->ops.synchronize ? d->ops.synchronize(d->self) : ARIL_OK;
    aril__span_end(span);
    s = checked(d, "synchronize", s);
    return s < 0 ? s : poll(d);
}

/* Waits for the work of a queue, without reporting what it did wrong. */
static aril_status wait_for_queue(aril__device *d, aril_queue *queue)
{
    return checked(d, "queue_wait", d->ops.queue_wait(d->self, queue));
}

aril_status aril__queue_finish(aril__device *d, aril_queue *queue)
{
    aril_status s = wait_for_queue(d, queue);
    return s < 0 ? s : poll(d);
}

/* ---- copies ---- */

aril_status aril__device_write(aril__device *d, void *dst, const void *src, size_t bytes)
{
    return checked(d, "from_host",
                   d->ops.from_host(d->self, aril__queue(d), dst, src, bytes, false));
}

aril_status aril__device_read(aril__device *d, void *dst, const void *src, size_t bytes)
{
    aril__span span = begin_waiting(d);
    aril_status s = d->ops.to_host(d->self, aril__queue(d), dst, src, bytes, false);
    aril__span_end(span);
    s = checked(d, "to_host", s);
    return s < 0 ? s : poll(d);
}

aril_status aril__device_move(aril__device *d, void *dst, const void *src, size_t bytes)
{
    return checked(d, "copy", d->ops.copy(d->self, aril__queue(d), dst, src, bytes));
}

bool aril__device_reaches(const aril__device *to, const aril__device *from)
{
    return to->id.kind == from->id.kind && to->ops.copy_from;
}

/* Makes the queue of one device wait for what another has queued so far. */
static aril_status wait_for(aril__device *d, aril__device *other)
{
    if (!other->queue) return ARIL_OK;
    if (!other->ops.event_new) return wait_for_queue(other, aril__queue(other));
    aril_event *e = other->ops.event_new(other->self);
    if (!e) return aril__fail(ARIL_ERR_DEVICE, "%s: cannot create an event", other->kind_name);
    aril_status s = other->ops.event_record(other->self, e, aril__queue(other));
    s = checked(other, "event_record", s);
    if (s == ARIL_OK) s = checked(d, "event_wait", d->ops.event_wait(d->self, e, aril__queue(d)));
    other->ops.event_free(other->self, e);
    return s;
}

aril_status aril__device_copy_from(aril__device *to, void *dst, aril__device *from, const void *src,
                                   size_t bytes)
{
    aril_status s = wait_for(to, from);
    if (s < 0) return s;
    s = to->ops.copy_from(to->self, aril__queue(to), dst, from->self, src, bytes);
    s = checked(to, "copy_from", s);
    /* The source may be freed, and its memory reused, by work that comes after the copy. */
    return s < 0 ? s : wait_for(from, to);
}

/* ---- pinned memory ---- */

aril__device *aril__pinned_device(void)
{
    for (int i = 0, n = aril_device_count(); i < n; i++) {
        aril__device *d = aril__device_find(aril_device_at(i));
        if (d && d->ops.pinned_alloc && d->ops.event_new) return d;
    }
    return NULL;
}

aril__pinned *aril__pinned_new(aril__device *d, size_t bytes)
{
    aril__pinned *b = aril__calloc(sizeof *b);
    if (b) *b = (aril__pinned){ .device = d, .bytes = bytes };
    if (b) b->data = d->ops.pinned_alloc(d->self, bytes ? bytes : 1);
    if (b && b->data) return b;
    free(b);
    aril__fail(ARIL_ERR_MEMORY, "out of memory: %zu bytes of pinned memory for %s", bytes,
               d->kind_name);
    return NULL;
}

void aril__pinned_finish(aril__pinned *b)
{
    aril__device *d = b->device;
    if (!b->event) return;
    aril_queue *queue = aril__queue_numbered(d, b->queue); /* NULL: it has ended, its work done */
    if (queue && d->ops.event_query(d->self, b->event) != 1) d->ops.queue_wait(d->self, queue);
    d->ops.event_free(d->self, b->event);
    b->event = NULL;
}

void aril__pinned_release(void *data, void *ctx)
{
    aril__pinned *b = ctx;
    (void)data;
    aril__pinned_finish(b);
    b->device->ops.pinned_free(b->device->self, b->data, b->bytes ? b->bytes : 1);
    free(b);
}

/* Marks the end of a copy from the block. One event stands for all copies: a queue that copies
 * from it waits for those of other queues. */
static bool mark_copy(aril__device *d, aril__pinned *from, aril_queue *queue, int number)
{
    if (!from->event) from->event = d->ops.event_new(d->self);
    if (!from->event) return false;
    if (number != from->queue && d->ops.event_wait(d->self, from->event, queue) < 0) return false;
    from->queue = number;
    return d->ops.event_record(d->self, from->event, queue) == ARIL_OK;
}

aril_status aril__pinned_write(aril__device *d, void *dst, aril__pinned *from, const void *src,
                               size_t bytes)
{
    if (from->device != d) return aril__device_write(d, dst, src, bytes);
    int number = aril__one_queue() ? 0 : aril__queue_number(d);
    aril_queue *queue = aril__queue_numbered(d, number);
    aril_status s = d->ops.from_host(d->self, queue, dst, src, bytes, true);
    if (s != ARIL_OK) return failed(d, "from_host", s);
    if (mark_copy(d, from, queue, number)) return ARIL_OK;
    return wait_for_queue(d, queue); /* the block must outlive the copy */
}
