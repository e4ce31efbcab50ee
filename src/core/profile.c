/* What threads record while a profile is on, and the functions that begin and end it. */
#include "core/profile_parts.h"

#include "aril/memory.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_EVENTS = 1 << 21, /* per thread in a trace */
    MARK_BITS = 40        /* of a mark for the number of a span; the others are the track's */
};

aril__profile aril__the_profile = { .lock = PTHREAD_MUTEX_INITIALIZER };
const char aril__outside_ops[] = "(outside)", aril__waiting[] = "(waiting)";

static atomic_uint current; /* number of the profile that is running or was the last */
static atomic_bool by_shape, traces;

static _Thread_local aril__track *mine;

/* ---- tracks ---- */

bool aril__profile_room(void **list, int64_t n, int64_t *capacity, size_t size)
{
    if (n < *capacity) return true;
    int64_t wider = *capacity ? *capacity * 2 : 256;
    void *grown = realloc(*list, (size_t)wider * size);
    if (!grown) return false;
    *list = grown;
    *capacity = wider;
    return true;
}

static void clear_track(aril__track *t)
{
    for (int i = 0; i < t->n_sums; i++) free(t->sums[i].shapes);
    for (int64_t i = 0; i < t->n_events; i++) free(t->events[i].shapes);
    free(t->sums);
    free(t->recent);
    free(t->of_span);
    free(t->events);
    free(t->memory);
    t->sums = NULL;
    t->recent = NULL;
    t->of_span = NULL;
    t->events = NULL;
    t->memory = NULL;
    t->n_sums = t->cap_sums = t->depth = 0;
    t->n_spans = t->cap_spans = 0;
    t->n_events = t->cap_events = t->lost = 0;
    t->n_memory = t->cap_memory = 0;
    for (int i = 0; i < ARIL__MAX_DEVICES; i++) t->live[i] = -1;
    t->first = t->last = 0;
}

/* The calling thread's track, created on first use; NULL when out of memory. */
static aril__track *own_track(void)
{
    aril__profile *p = &aril__the_profile;
    if (mine) return mine;
    aril__track *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_lock(&p->lock);
    t->number = ++p->n_tracks;
    t->next = p->tracks;
    p->tracks = t;
    pthread_mutex_unlock(&p->lock);
    return mine = t;
}

static bool grow_sums(aril__track *t)
{
    int cap = t->cap_sums ? t->cap_sums * 2 : 64;
    aril__sum *sums = realloc(t->sums, (size_t)cap * sizeof *sums);
    if (sums) t->sums = sums;
    int *recent = realloc(t->recent, (size_t)cap * sizeof *recent);
    if (recent) t->recent = recent;
    if (!sums || !recent) return false;
    t->cap_sums = cap;
    return true;
}

/* The index of a span's sum; -1 when out of memory, which is not an error here: the profile is
 * merely incomplete. */
static int sum_for(aril__track *t, const aril__open_span *s)
{
    const char *shapes = atomic_load_explicit(&by_shape, memory_order_relaxed) ? s->shapes : "";
    for (int i = 0; i < t->n_sums; i++) {
        int k = t->recent[i];
        const aril__sum *at = &t->sums[k];
        if (at->key != s->key || at->kernel != s->kernel || strcmp(at->shapes, shapes) != 0)
            continue;
        if (i > 0) { /* frequent entries move to the front */
            t->recent[i] = t->recent[i - 1];
            t->recent[i - 1] = k;
        }
        return k;
    }
    if (t->n_sums == t->cap_sums && !grow_sums(t)) return -1;
    char *copy = strdup(shapes);
    if (!copy) return -1;
    int k = t->n_sums++;
    t->sums[k] = (aril__sum){ .key = s->key, .kernel = s->kernel, .shapes = copy };
    t->recent[k] = k;
    return k;
}

static int64_t live_bytes(void)
{
    return aril__cpu_device ? aril_memory(aril_cpu()).live : 0;
}

static void add_event(aril__track *t, const aril__open_span *s, int64_t ns)
{
    if (t->n_events == MAX_EVENTS ||
        !aril__profile_room((void **)&t->events, t->n_events, &t->cap_events, sizeof *t->events)) {
        t->lost++;
        return;
    }
    t->events[t->n_events++] =
        (aril__span_event){ .label = s->label,
                            .kernel = s->kernel,
                            .shapes = s->shapes[0] ? strdup(s->shapes) : NULL,
                            .begin = s->begin,
                            .ns = ns,
                            .live = live_bytes(),
                            .bytes = s->bytes,
                            .flop = s->flop };
    if (s->mark) aril__profile_devices_memory(t, s->begin + ns);
}

/* ---- spans ---- */

/* A number for the span, which devices give back with the work that they did for it. */
static int64_t new_mark(aril__track *t)
{
    if (!aril__profile_room((void **)&t->of_span, t->n_spans, &t->cap_spans, sizeof *t->of_span))
        return 0;
    t->of_span[t->n_spans++] = -1;
    return (int64_t)t->number << MARK_BITS | t->n_spans;
}

int aril__profile_sum_of(const aril__track *t, uint64_t mark)
{
    int64_t span = (int64_t)(mark & (((uint64_t)1 << MARK_BITS) - 1)) - 1;
    bool here = (int)(mark >> MARK_BITS) == t->number && span >= 0 && span < t->n_spans;
    return here ? t->of_span[span] : -1;
}

aril__span aril__span_begin(const char *key, const char *label)
{
    aril__span none = { -1, 0 };
    aril__track *t = own_track();
    if (!t) return none;
    pthread_mutex_lock(&t->lock);
    unsigned profile = atomic_load(&current);
    if (t->profile != profile) {
        clear_track(t);
        t->profile = profile;
    }
    if (t->depth == ARIL__SPANS) {
        pthread_mutex_unlock(&t->lock);
        return none;
    }
    aril__open_span *s = &t->open[t->depth++];
    s->key = key;
    s->label = label;
    s->kernel = NULL;
    s->inside = 0;
    s->bytes = s->flop = s->least = 0;
    s->noted = false;
    s->shapes[0] = 0;
    s->begin = aril__nanoseconds();
    s->mark = aril__profile_devices_on() ? new_mark(t) : 0;
    if (s->mark) aril__profile_devices_mark((uint64_t)s->mark);
    if (!t->first) t->first = s->begin;
    aril__span span = { t->depth - 1, profile };
    pthread_mutex_unlock(&t->lock);
    return span;
}

/* Adds what the innermost span has done, which ends now. */
static void finish(aril__track *t, int64_t now)
{
    aril__open_span *s = &t->open[--t->depth];
    int64_t ns = now - s->begin;
    if (t->depth) t->open[t->depth - 1].inside += ns;
    t->last = now;
    int k = sum_for(t, s);
    if (k >= 0) {
        aril__sum *to = &t->sums[k];
        to->calls++;
        to->ns += ns - s->inside;
        to->bytes += s->bytes;
        to->flop += s->flop;
        to->least += s->least;
    }
    if (s->mark) {
        t->of_span[(s->mark & (((int64_t)1 << MARK_BITS) - 1)) - 1] = k;
        aril__profile_devices_mark(t->depth ? (uint64_t)t->open[t->depth - 1].mark : 0);
    }
    if (atomic_load_explicit(&traces, memory_order_relaxed)) add_event(t, s, ns);
}

void aril__span_finish(aril__span span)
{
    aril__track *t = mine;
    if (!t) return;
    int64_t now = aril__nanoseconds();
    pthread_mutex_lock(&t->lock);
    /* A profile may have ended or begun in the meantime. */
    if (t->profile == span.profile && t->depth == span.depth + 1 && aril__profiling())
        finish(t, now);
    pthread_mutex_unlock(&t->lock);
}

bool aril__profile_wants_shapes(void)
{
    return atomic_load_explicit(&by_shape, memory_order_relaxed) ||
           atomic_load_explicit(&traces, memory_order_relaxed);
}

void aril__span_note(const char *kernel, const char *shapes, aril__work work)
{
    aril__track *t = mine;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    aril__open_span *s = t->depth ? &t->open[t->depth - 1] : NULL;
    if (s && !s->noted && t->profile == atomic_load(&current)) {
        s->noted = true;
        s->kernel = kernel;
        s->bytes = work.bytes;
        s->flop = work.flop;
        s->least = work.least;
        size_t n = strnlen(shapes, sizeof s->shapes - 1);
        memcpy(s->shapes, shapes, n);
        s->shapes[n] = 0;
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- begin and end ---- */

aril_status aril_profile_begin(aril_profile_opts opts)
{
    aril__profile *p = &aril__the_profile;
    aril__self();
    aril__track *t = own_track();
    char *trace = opts.trace ? strdup(opts.trace) : NULL;
    if (!t || (opts.trace && !trace)) {
        free(trace);
        return aril__fail(ARIL_ERR_MEMORY, "profile: out of memory");
    }
    pthread_mutex_lock(&p->lock);
    if (p->on) {
        pthread_mutex_unlock(&p->lock);
        free(trace);
        return aril__fail(ARIL_ERR_STATE, "profile_begin: a profile is already running");
    }
    aril__profile_drop_rows();
    free(p->trace);
    p->on = true;
    p->trace = trace;
    p->owner = (unsigned)t->number;
    atomic_store(&by_shape, opts.by_shape);
    atomic_store(&traces, trace != NULL);
    p->number = atomic_fetch_add(&current, 1) + 1;
    aril__profile_devices_begin();
    p->begin = aril__nanoseconds();
    __atomic_fetch_or(&aril__log_mask, ARIL__LOG_PROFILE, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&p->lock);
    return ARIL_OK;
}

void aril__profile_devices_added(void)
{
    aril__profile *p = &aril__the_profile;
    if (!aril__profiling()) return;
    pthread_mutex_lock(&p->lock);
    if (p->on) aril__profile_devices_join();
    pthread_mutex_unlock(&p->lock);
}

aril_status aril_profile_end(void)
{
    aril__profile *p = &aril__the_profile;
    if (aril__profiling()) aril__profile_devices_wait();
    pthread_mutex_lock(&p->lock);
    if (!p->on) {
        pthread_mutex_unlock(&p->lock);
        return aril__fail(ARIL_ERR_STATE, "profile_end: no profile is running");
    }
    __atomic_fetch_and(&aril__log_mask, ~(unsigned)ARIL__LOG_PROFILE, __ATOMIC_RELAXED);
    p->end = aril__nanoseconds();
    p->on = false;
    /* Threads inside a span check the bit under this lock, and record nothing more. */
    for (aril__track *t = p->tracks; t; t = t->next) pthread_mutex_lock(&t->lock);
    aril__profile_devices_end(p);
    aril_status s = aril__profile_make_rows(p);
    if (p->trace && s == ARIL_OK) s = aril__profile_write_trace(p);
    for (aril__track *t = p->tracks; t; t = t->next) {
        clear_track(t);
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return s;
}

/* ---- environment and shutdown ---- */

static bool by_environment;

void aril__profile_start(void)
{
    const char *path = getenv("ARIL_PROFILE");
    if (!path || !*path) return;
    by_environment = aril_profile_begin((aril_profile_opts){ .trace = path }) == ARIL_OK;
}

void aril__profile_shutdown(void)
{
    aril__profile *p = &aril__the_profile;
    if (by_environment && p->on) {
        if (aril_profile_end() < 0) aril_report(stderr);
        aril_profile_print(stderr);
    }
    pthread_mutex_lock(&p->lock);
    aril__profile_drop_rows();
    free(p->trace);
    p->trace = NULL;
    pthread_mutex_unlock(&p->lock);
}
