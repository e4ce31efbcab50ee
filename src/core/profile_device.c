/* What devices with queues do while a profile is on: their own times, by kernel. */
#include "core/profile_parts.h"

#include "core/error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MISSING = 400 };

/* A device that is measured, or that cannot be. */
typedef struct measured {
    aril__device *device;
    bool on;
    char missing[MISSING]; /* why it is not measured */
} measured;

static struct {
    measured at[ARIL__MAX_DEVICES];
    atomic_int n;      /* entries below it do not change while a profile is on */
    atomic_bool on;    /* a device is measured */
    int known;         /* number of registered devices that were looked at */
    aril__sum outside; /* work that no span has queued */
    aril__work_event *events;
    int64_t n_events, cap_events;
    aril_profile_kernel *kernels;
    int64_t n_kernels, cap_kernels;
    aril_profile_device *devices;
    int n_devices;
} all;

/* ---- begin ---- */

static void measure(aril__device *d)
{
    int n = atomic_load(&all.n);
    if (!d->queue) return; /* it works while the host waits */
    measured *m = &all.at[n];
    const char *why = d->ops.profile_begin ? d->ops.profile_begin(d->self)
                                           : "its plug-in has no function profile_begin";
    *m = (measured){ .device = d, .on = !why };
    snprintf(m->missing, sizeof m->missing, "%s", why ? why : "");
    atomic_store(&all.n, n + 1);
    if (m->on) atomic_store(&all.on, true);
}

void aril__profile_devices_join(void)
{
    for (aril__device *d; (d = aril__device_registered(all.known)); all.known++) measure(d);
}

void aril__profile_devices_begin(void)
{
    aril__profile_devices_drop();
    atomic_store(&all.n, 0);
    all.known = 0;
    aril__profile_devices_join();
}

bool aril__profile_devices_on(void)
{
    return atomic_load_explicit(&all.on, memory_order_relaxed);
}

void aril__profile_devices_mark(uint64_t mark)
{
    for (int i = 0, n = atomic_load(&all.n); i < n; i++) {
        const aril__device *d = all.at[i].device;
        if (all.at[i].on) d->ops.profile_mark(d->self, mark);
    }
}

void aril__profile_devices_memory(aril__track *t, int64_t now)
{
    for (int i = 0, n = atomic_load(&all.n); i < n; i++) {
        int64_t live = aril_memory(all.at[i].device->id).live;
        if (!all.at[i].on || live == t->live[i]) continue;
        t->live[i] = live;
        if (aril__profile_room((void **)&t->memory, t->n_memory, &t->cap_memory, sizeof *t->memory))
            t->memory[t->n_memory++] = (aril__memory_event){ i, now, live };
    }
}

void aril__profile_devices_wait(void)
{
    if (!atomic_load(&all.n)) return;
    aril__span span = aril__span_begin(aril__waiting, aril__waiting);
    for (int i = 0, n = atomic_load(&all.n); i < n; i++) {
        const aril__device *d = all.at[i].device;
        if (d->ops.synchronize) d->ops.synchronize(d->self); /* errors are reported by others */
    }
    aril__span_end(span);
}

/* ---- end ---- */

typedef struct collector {
    const aril__profile *profile;
    int device;
} collector;

static aril__sum *sum_of(const aril__profile *p, uint64_t mark)
{
    for (const aril__track *t = p->tracks; t && mark; t = t->next) {
        int k = t->profile == p->number ? aril__profile_sum_of(t, mark) : -1;
        if (k >= 0) return &t->sums[k];
    }
    return &all.outside;
}

static void add_kernel(const aril_work *w, const char *op, aril_device device)
{
    aril_profile_kernel *k = all.kernels;
    int64_t i = 0;
    while (i < all.n_kernels && !(k[i].op == op && aril_device_equal(k[i].device, device) &&
                                  strcmp(k[i].name, w->name) == 0))
        i++;
    if (i == all.n_kernels) {
        if (!aril__profile_room((void **)&all.kernels, i, &all.cap_kernels, sizeof *k)) return;
        all.kernels[all.n_kernels++] =
            (aril_profile_kernel){ .name = w->name, .op = op, .device = device };
    }
    k = &all.kernels[i];
    k->calls++;
    k->seconds += 1e-9 * (double)w->ns;
    if (i == 0) return;
    aril_profile_kernel moved = *k; /* frequent ones move to the front */
    *k = k[-1];
    k[-1] = moved;
}

static void collect(void *ctx, const aril_work *w)
{
    const collector *c = ctx;
    aril__sum *to = sum_of(c->profile, w->mark);
    to->device_ns += w->ns;
    if (to == &all.outside) to->bytes += w->bytes;
    add_kernel(w, to->key, all.at[c->device].device->id);
    if (!aril__profile_room((void **)&all.events, all.n_events, &all.cap_events,
                            sizeof *all.events))
        return;
    all.events[all.n_events++] = (aril__work_event){ .name = w->name,
                                                     .op = to->key,
                                                     .device = c->device,
                                                     .queue = w->queue,
                                                     .begin = w->begin,
                                                     .ns = w->ns,
                                                     .bytes = w->bytes };
}

static int by_begin(const void *a, const void *b)
{
    const aril__work_event *x = a, *y = b;
    if (x->device != y->device) return (x->device > y->device) - (x->device < y->device);
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The time in which a device did any work, in nanoseconds. Its queues may work side by side. */
static int64_t busy_ns(const aril__profile *p, int device)
{
    int64_t busy = 0, until = p->begin;
    for (int64_t i = 0; i < all.n_events; i++) {
        const aril__work_event *e = &all.events[i];
        if (e->device != device) continue;
        int64_t from = e->begin > until ? e->begin : until, to = e->begin + e->ns;
        if (to > p->end) to = p->end;
        if (to <= from) continue;
        busy += to - from;
        until = to;
    }
    return busy;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const aril_profile_kernel *)a)->seconds,
           y = ((const aril_profile_kernel *)b)->seconds;
    return (x < y) - (x > y);
}

void aril__profile_devices_end(aril__profile *p)
{
    int n = atomic_load(&all.n);
    atomic_store(&all.on, false);
    all.outside = (aril__sum){ .key = aril__outside_ops };
    for (int i = 0; i < n; i++) {
        const aril__device *d = all.at[i].device;
        if (all.at[i].on) d->ops.profile_end(d->self, collect, &(collector){ p, i });
    }
    if (all.n_events) qsort(all.events, (size_t)all.n_events, sizeof *all.events, by_begin);
    if (all.n_kernels) qsort(all.kernels, (size_t)all.n_kernels, sizeof *all.kernels, by_time);
    all.devices = n ? calloc((size_t)n, sizeof *all.devices) : NULL;
    all.n_devices = all.devices ? n : 0;
    for (int i = 0; i < all.n_devices; i++)
        all.devices[i] = (aril_profile_device){ .device = all.at[i].device->id,
                                                .busy_seconds = 1e-9 * (double)busy_ns(p, i),
                                                .seconds = 1e-9 * (double)(p->end - p->begin),
                                                .missing = all.at[i].missing };
}

void aril__profile_devices_drop(void)
{
    free(all.events);
    free(all.kernels);
    free(all.devices);
    all.events = NULL;
    all.kernels = NULL;
    all.devices = NULL;
    all.n_events = all.cap_events = all.n_kernels = all.cap_kernels = all.n_devices = 0;
}

aril__sum aril__profile_outside_work(void)
{
    return all.outside;
}

int64_t aril__profile_work_events(const aril__work_event **events)
{
    *events = all.events;
    return all.n_events;
}

int aril_profile_kernels(const aril_profile_kernel **kernels)
{
    pthread_mutex_lock(&aril__the_profile.lock);
    int n = (int)all.n_kernels;
    if (kernels) *kernels = all.kernels;
    pthread_mutex_unlock(&aril__the_profile.lock);
    return n;
}

int aril__profile_devices_of(const aril_profile_device **devices)
{
    if (devices) *devices = all.devices;
    return all.n_devices;
}

int aril_profile_devices(const aril_profile_device **devices)
{
    pthread_mutex_lock(&aril__the_profile.lock);
    int n = aril__profile_devices_of(devices);
    pthread_mutex_unlock(&aril__the_profile.lock);
    return n;
}
