#include "core/queues.h"

#include "aril/stream.h"

#include <stdlib.h>

atomic_bool aril__streams_used;

/* Of those who add and remove queues, and of those who use one that another thread may remove. */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;

struct aril_stream {
    aril__device *device;
    int number; /* 0 on devices without queues */
};

/* ---- numbers ---- */

int aril__queue_number(const aril__device *d)
{
    const aril_stream *s = aril__self()->mode.stream;
    return s && s->device == d ? s->number : 0;
}

aril_queue *aril__queue_numbered(const aril__device *d, int number)
{
    return number ? atomic_load_explicit(&d->streams[number], memory_order_acquire) : d->queue;
}

/* ---- waiting ---- */

/* With the lock held. Without an event, the host waits. */
static aril_status wait_by_event(aril__device *d, aril_queue *to, aril_queue *from)
{
    aril_event *e = d->ops.event_new(d->self);
    if (!e) return d->ops.queue_wait(d->self, from);
    aril_status s = d->ops.event_record(d->self, e, from);
    if (s == ARIL_OK) s = d->ops.event_wait(d->self, e, to);
    d->ops.event_free(d->self, e);
    return s;
}

aril_status aril__queue_after(aril__device *d, int to, int from)
{
    pthread_mutex_lock(&queues_lock);
    aril_queue *first = aril__queue_numbered(d, from), *then = aril__queue_numbered(d, to);
    aril_status s = ARIL_OK;
    if (to != from && first && then) s = wait_by_event(d, then, first);
    pthread_mutex_unlock(&queues_lock);
    return s == ARIL_OK ? s : aril__fail(ARIL_ERR_DEVICE, "%s: an event failed", d->kind_name);
}

/* The queue `to` waits for each queue whose bit is set. */
static aril_status after_all(aril__device *d, int to, uint32_t bits)
{
    aril_status s = ARIL_OK;
    for (bits &= ~(1u << to); bits && s == ARIL_OK; bits &= bits - 1)
        s = aril__queue_after(d, to, __builtin_ctz(bits));
    return s;
}

/* ---- storages ---- */

static uint32_t users_of(const aril__storage *s)
{
    return 1u << atomic_load(&s->writer) | atomic_load(&s->readers);
}

aril_status aril__order_use(aril__storage *s, bool writes)
{
    aril__device *d = s->device;
    if (!d->queue) return ARIL_OK;
    int here = aril__queue_number(d), writer = atomic_load(&s->writer);
    aril_status status = ARIL_OK;
    if (writes) {
        status = after_all(d, here, users_of(s));
        atomic_store(&s->writer, (uint8_t)here);
        atomic_store(&s->readers, 0);
    } else if (here != writer && !(atomic_load(&s->readers) >> here & 1)) {
        status = aril__queue_after(d, here, writer);
        atomic_fetch_or(&s->readers, 1u << here);
    }
    return status;
}

/* ---- freeing ---- */

/* Memory that other queues than its own still used when it was freed. */
typedef struct pending {
    struct pending *next;
    aril__device *device;
    int home, n;
    void *data;
    size_t bytes;
    aril_event *event[]; /* n of them: after the work of each user */
} pending;

static pending *list;            /* of all devices; with the lock held */
static atomic_bool some_pending; /* whether it has any */

/* The queue that memory of queue `number` returns to. */
static int home_of(const aril__device *d, int number)
{
    return aril__queue_numbered(d, number) ? number : 0; /* its stream may have ended */
}

static bool is_done(const pending *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->device->ops.event_query(p->device->self, p->event[i]) != 1) return false;
    return true;
}

static void free_pending(pending *p)
{
    aril__device *d = p->device;
    for (int i = 0; i < p->n; i++) d->ops.event_free(d->self, p->event[i]);
    aril__device_free_for(d, home_of(d, p->home), p->data, p->bytes);
    free(p);
}

/* Marks the work of the users whose bits are set. False if that is not possible. */
static bool add_pending(aril__storage *s, uint32_t users)
{
    aril__device *d = s->device;
    pending *p = aril__calloc(sizeof *p + (size_t)__builtin_popcount(users) * sizeof *p->event);
    if (!p) return false;
    *p = (pending){ .device = d, .home = s->home, .data = s->data, .bytes = s->bytes };
    pthread_mutex_lock(&queues_lock);
    bool marked = true;
    for (; users && marked; users &= users - 1) {
        aril_queue *q = aril__queue_numbered(d, __builtin_ctz(users));
        aril_event *e = q ? d->ops.event_new(d->self) : NULL;
        if (e) p->event[p->n++] = e;
        marked = !q || (e && d->ops.event_record(d->self, e, q) == ARIL_OK);
    }
    if (marked) {
        p->next = list;
        list = p;
        atomic_store(&some_pending, true);
    }
    pthread_mutex_unlock(&queues_lock);
    if (marked) return true;
    for (int i = 0; i < p->n; i++) d->ops.event_free(d->self, p->event[i]);
    free(p);
    return false;
}

void aril__collect_pending(aril__device *d, bool all)
{
    enum { EVERY = 64 }; /* asking for an event takes longer than an allocation */
    static atomic_uint calls;
    if (!atomic_load_explicit(&some_pending, memory_order_relaxed)) return;
    if (!all && atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % EVERY) return;
    if (all) d->ops.synchronize(d->self);
    pending *done = NULL;
    pthread_mutex_lock(&queues_lock);
    for (pending **at = &list, *p; (p = *at);) {
        if (p->device != d || !is_done(p)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->next = done;
        done = p;
    }
    if (!list) atomic_store(&some_pending, false);
    pthread_mutex_unlock(&queues_lock);
    for (pending *next; done; done = next) {
        next = done->next;
        free_pending(done);
    }
}

void aril__storage_free_memory(aril__storage *s)
{
    aril__device *d = s->device;
    if (aril__one_queue() || !d->queue) {
        aril__device_free(d, s->data, s->bytes);
        return;
    }
    int home = home_of(d, s->home);
    uint32_t others = users_of(s) & ~(1u << home);
    if (others && add_pending(s, others)) return;
    after_all(d, home, others);
    aril__device_free_for(d, home, s->data, s->bytes);
}

/* ---- streams ---- */

/* A free number, or 0 with an error. With the lock held. */
static int free_number(const aril__device *d)
{
    for (int i = 1; i < ARIL__MAX_QUEUES; i++)
        if (!atomic_load(&d->streams[i])) return i;
    aril__fail(ARIL_ERR_STATE, "stream_new: %s:%d already has %d streams; free some of them",
               d->kind_name, d->id.index, ARIL__MAX_QUEUES - 1);
    return 0;
}

/* A new queue of the device; its number, or 0 with an error. */
static int add_queue(aril__device *d)
{
    pthread_mutex_lock(&queues_lock);
    int number = free_number(d);
    aril_queue *q = number ? d->ops.queue_new(d->self) : NULL;
    if (q) atomic_store(&d->streams[number], q);
    if (q) atomic_store(&aril__streams_used, true);
    pthread_mutex_unlock(&queues_lock);
    if (!q && aril_ok())
        aril__fail(ARIL_ERR_DEVICE, "stream_new: %s:%d cannot create a queue", d->kind_name,
                   d->id.index);
    return q ? number : 0;
}

aril_stream *aril_stream_new(aril_device device)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return NULL;
    if (d->queue && !d->ops.event_new) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "stream_new: devices of kind %s have no events",
                   d->kind_name);
        return NULL;
    }
    aril_stream *s = aril__calloc(sizeof *s);
    if (!s) {
        aril__fail(ARIL_ERR_MEMORY, "stream_new: out of memory");
        return NULL;
    }
    s->device = d;
    if (d->queue && !(s->number = add_queue(d))) {
        free(s);
        return NULL;
    }
    return s;
}

/* Whether ARIL_STREAM selects the stream in this thread, or will when an inner block ends. */
static bool is_selected(const aril_stream *stream)
{
    const aril__thread *th = aril__self();
    const aril__guard *guard = th->guards;
    bool selected = th->mode.stream == stream;
    for (uint32_t i = 0; i < th->n_guards && !selected; i++)
        selected = !guard[i].is_scope && guard[i].mode.stream == stream;
    return selected;
}

void aril_stream_free(aril_stream *stream)
{
    if (!stream) return;
    if (is_selected(stream)) {
        aril__fail(ARIL_ERR_STATE, "stream_free: ARIL_STREAM selects the stream in this thread; "
                                   "free it after that block");
        return;
    }
    aril__device *d = stream->device;
    if (stream->number) {
        d->ops.queue_wait(d->self, aril__queue_numbered(d, stream->number));
        pthread_mutex_lock(&queues_lock);
        aril_queue *q = atomic_exchange(&d->streams[stream->number], NULL);
        d->ops.queue_free(d->self, q);
        pthread_mutex_unlock(&queues_lock);
    }
    free(stream);
}

aril_status aril_stream_synchronize(aril_stream *stream)
{
    aril__self();
    if (!stream) return aril__fail(ARIL_ERR_ARG, "stream_synchronize: the stream is NULL");
    aril_queue *q = aril__queue_numbered(stream->device, stream->number);
    return q ? aril__queue_finish(stream->device, q) : ARIL_OK;
}

/* ---- events ---- */

struct aril_stream_event {
    aril__device *device;
    aril_event *event; /* NULL: the device has no queues, so the work is done */
    int number;        /* of the queue */
};

/* The number of the queue that a call means by a stream, which may be NULL. */
static int number_of(const aril__device *d, const aril_stream *s)
{
    return s && s->device == d ? s->number : aril__queue_number(d);
}

static aril_status record(aril_stream_event *e, aril_queue *q)
{
    aril__device *d = e->device;
    if (!q) return ARIL_OK;
    if (!d->ops.event_new)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "stream_record: devices of kind %s have no events",
                          d->kind_name);
    e->event = d->ops.event_new(d->self);
    aril_status s = e->event ? d->ops.event_record(d->self, e->event, q) : ARIL_ERR_DEVICE;
    return s == ARIL_OK ? s : aril__fail(ARIL_ERR_DEVICE, "%s: an event failed", d->kind_name);
}

aril_stream_event *aril_stream_record(aril_device device, aril_stream *stream)
{
    aril__self();
    aril__device *d = stream ? stream->device : aril__device_find(device);
    if (!d) return NULL;
    if (stream && !aril_device_equal(device, d->id)) {
        aril__fail(ARIL_ERR_DEVICE, "stream_record: the stream belongs to another device");
        return NULL;
    }
    aril_stream_event *e = aril__calloc(sizeof *e);
    if (!e) {
        aril__fail(ARIL_ERR_MEMORY, "stream_record: out of memory");
        return NULL;
    }
    *e = (aril_stream_event){ .device = d, .number = number_of(d, stream) };
    if (record(e, aril__queue_numbered(d, e->number)) == ARIL_OK) return e;
    aril_stream_event_free(e);
    return NULL;
}

void aril_stream_event_free(aril_stream_event *event)
{
    if (!event) return;
    if (event->event) event->device->ops.event_free(event->device->self, event->event);
    free(event);
}

aril_status aril_stream_wait(aril_stream *stream, aril_stream_event *event)
{
    aril__self();
    if (!event) return aril__fail(ARIL_ERR_ARG, "stream_wait: the event is NULL");
    aril__device *d = stream ? stream->device : event->device;
    if (d->id.kind != event->device->id.kind)
        return aril__fail(ARIL_ERR_DEVICE,
                          "stream_wait: the event belongs to a device of another kind");
    aril_queue *q = aril__queue_numbered(d, number_of(d, stream));
    if (!q || !event->event) return ARIL_OK;
    aril_status s = d->ops.event_wait(d->self, event->event, q);
    return s == ARIL_OK ? s : aril__fail(ARIL_ERR_DEVICE, "%s: an event failed", d->kind_name);
}

bool aril_stream_event_done(aril_stream_event *event)
{
    aril__self();
    if (!event) {
        aril__fail(ARIL_ERR_ARG, "stream_event_done: the event is NULL");
        return false;
    }
    aril__device *d = event->device;
    return !event->event || d->ops.event_query(d->self, event->event) == 1;
}

aril_status aril_stream_event_synchronize(aril_stream_event *event)
{
    aril__self();
    if (!event) return aril__fail(ARIL_ERR_ARG, "stream_event_synchronize: the event is NULL");
    if (aril_stream_event_done(event)) return ARIL_OK;
    aril_queue *q = aril__queue_numbered(event->device, event->number);
    return q ? aril__queue_finish(event->device, q) : ARIL_OK; /* one that ended is done */
}
