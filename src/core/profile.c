#include "core/profile.h"

#include "aril/memory.h"
#include "core/clock.h"
#include "core/device.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEEP = 64,           /* maximum nesting of spans; deeper ones count towards their parent */
    TEXT = 160,          /* bytes of text for shapes */
    MAX_EVENTS = 1 << 21 /* per thread in a trace */
};

/* Totals of one kernel under one key (and shapes). */
typedef struct sum {
    const char *key, *kernel;
    char *shapes;
    int64_t calls, ns;
    double bytes, flop;
} sum;

typedef struct open_span {
    const char *key, *label, *kernel;
    int64_t begin, inside; /* `inside`: time of nested spans */
    double bytes, flop;
    bool noted;
    char shapes[TEXT];
} open_span;

typedef struct event {
    const char *label, *kernel;
    char *shapes;
    int64_t begin, ns, live;
    double bytes, flop;
} event;

/* The record of one thread. Other threads take its lock only when a profile begins or ends. */
typedef struct track {
    struct track *next;
    pthread_mutex_t lock;
    int number;
    unsigned profile; /* the profile that the rest belongs to */
    int depth;
    open_span open[DEEP];
    int64_t first, last; /* begin of its first span and end of its last one */
    sum *sums;
    int n_sums, cap_sums;
    event *events;
    int64_t n_events, cap_events, lost;
} track;

static struct {
    pthread_mutex_t lock; /* guards what follows, except the atomics */
    track *tracks;
    int n_tracks;
    bool on;
    aril_profile_opts opts;
    char *trace;
    int64_t begin, end;
    unsigned owner; /* number of the track that started the profile */
    aril_profile_row *rows;
    int n_rows;
    double seconds;
    atomic_uint profile; /* counts profiles */
    atomic_bool by_shape, traces;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local track *mine;

/* ---- tracks ---- */

static void clear_track(track *t)
{
    for (int i = 0; i < t->n_sums; i++) free(t->sums[i].shapes);
    for (int64_t i = 0; i < t->n_events; i++) free(t->events[i].shapes);
    free(t->sums);
    free(t->events);
    t->sums = NULL;
    t->events = NULL;
    t->n_sums = t->cap_sums = t->depth = 0;
    t->n_events = t->cap_events = t->lost = 0;
    t->first = t->last = 0;
}

/* The calling thread's track, created on first use; NULL when out of memory. */
static track *own_track(void)
{
    if (mine) return mine;
    track *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_lock(&all.lock);
    t->number = ++all.n_tracks;
    t->next = all.tracks;
    all.tracks = t;
    pthread_mutex_unlock(&all.lock);
    return mine = t;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Out of memory is not an error here: the profile is merely incomplete. */
static sum *sum_for(track *t, const open_span *s)
{
    bool by_shape = atomic_load_explicit(&all.by_shape, memory_order_relaxed);
    const char *shapes = by_shape ? s->shapes : "";
    for (int i = 0; i < t->n_sums; i++) {
        sum *at = &t->sums[i];
        if (at->key == s->key && at->kernel == s->kernel && same_text(at->shapes, shapes)) {
            if (i > 0) { /* frequent entries move to the front */
                sum moved = *at;
                *at = t->sums[i - 1];
                t->sums[i - 1] = moved;
                at = &t->sums[i - 1];
            }
            return at;
        }
    }
    if (t->n_sums == t->cap_sums) {
        int cap = t->cap_sums ? t->cap_sums * 2 : 64;
        sum *grown = realloc(t->sums, (size_t)cap * sizeof *grown);
        if (!grown) return NULL;
        t->sums = grown;
        t->cap_sums = cap;
    }
    char *copy = strdup(shapes);
    if (!copy) return NULL;
    sum *made = &t->sums[t->n_sums++];
    *made = (sum){ .key = s->key, .kernel = s->kernel, .shapes = copy };
    return made;
}

static int64_t live_bytes(void)
{
    return aril__cpu_device ? aril_memory(aril_cpu()).live : 0;
}

static void add_event(track *t, const open_span *s, int64_t ns)
{
    if (t->n_events == MAX_EVENTS) {
        t->lost++;
        return;
    }
    if (t->n_events == t->cap_events) {
        int64_t cap = t->cap_events ? t->cap_events * 2 : 1024;
        event *grown = realloc(t->events, (size_t)cap * sizeof *grown);
        if (!grown) {
            t->lost++;
            return;
        }
        t->events = grown;
        t->cap_events = cap;
    }
    t->events[t->n_events++] = (event){ .label = s->label,
                                        .kernel = s->kernel,
                                        .shapes = s->shapes[0] ? strdup(s->shapes) : NULL,
                                        .begin = s->begin,
                                        .ns = ns,
                                        .live = live_bytes(),
                                        .bytes = s->bytes,
                                        .flop = s->flop };
}

/* ---- spans ---- */

aril__span aril__span_begin(const char *key, const char *label)
{
    aril__span none = { -1, 0 };
    track *t = own_track();
    if (!t) return none;
    pthread_mutex_lock(&t->lock);
    unsigned profile = atomic_load(&all.profile);
    if (t->profile != profile) {
        clear_track(t);
        t->profile = profile;
    }
    if (t->depth == DEEP) {
        pthread_mutex_unlock(&t->lock);
        return none;
    }
    open_span *s = &t->open[t->depth++];
    s->key = key;
    s->label = label;
    s->kernel = NULL;
    s->inside = 0;
    s->bytes = s->flop = 0;
    s->noted = false;
    s->shapes[0] = 0;
    s->begin = aril__nanoseconds();
    if (!t->first) t->first = s->begin;
    aril__span span = { t->depth - 1, profile };
    pthread_mutex_unlock(&t->lock);
    return span;
}

void aril__span_finish(aril__span span)
{
    track *t = mine;
    if (!t) return;
    int64_t now = aril__nanoseconds();
    pthread_mutex_lock(&t->lock);
    /* A profile may have ended or begun in the meantime. */
    if (t->profile == span.profile && t->depth == span.depth + 1 && aril__profiling()) {
        open_span *s = &t->open[--t->depth];
        int64_t ns = now - s->begin;
        if (t->depth) t->open[t->depth - 1].inside += ns;
        t->last = now;
        sum *to = sum_for(t, s);
        if (to) {
            to->calls++;
            to->ns += ns - s->inside;
            to->bytes += s->bytes;
            to->flop += s->flop;
        }
        if (atomic_load_explicit(&all.traces, memory_order_relaxed)) add_event(t, s, ns);
    }
    pthread_mutex_unlock(&t->lock);
}

bool aril__profile_wants_shapes(void)
{
    return atomic_load_explicit(&all.by_shape, memory_order_relaxed) ||
           atomic_load_explicit(&all.traces, memory_order_relaxed);
}

void aril__span_note(const char *kernel, const char *shapes, double bytes, double flop)
{
    track *t = mine;
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    open_span *s = t->depth ? &t->open[t->depth - 1] : NULL;
    if (s && !s->noted && t->profile == atomic_load(&all.profile)) {
        s->noted = true;
        s->kernel = kernel;
        s->bytes = bytes;
        s->flop = flop;
        size_t n = strnlen(shapes, sizeof s->shapes - 1);
        memcpy(s->shapes, shapes, n);
        s->shapes[n] = 0;
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- the table ---- */

static void drop_rows(void)
{
    for (int i = 0; i < all.n_rows; i++) free((void *)(uintptr_t)all.rows[i].shapes);
    free(all.rows);
    all.rows = NULL;
    all.n_rows = 0;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const aril_profile_row *)a)->seconds, y = ((const aril_profile_row *)b)->seconds;
    return (x < y) - (x > y);
}

static int sums_by_time(const void *a, const void *b)
{
    int64_t x = ((const sum *)a)->ns, y = ((const sum *)b)->ns;
    return (x < y) - (x > y);
}

static void add_row(const sum *s)
{
    for (int i = 0; i < all.n_rows; i++) {
        aril_profile_row *r = &all.rows[i];
        if (r->name != s->key || !r->shapes || strcmp(r->shapes, s->shapes) != 0) continue;
        r->calls += s->calls;
        r->seconds += (double)s->ns * 1e-9;
        r->bytes += s->bytes;
        r->flop += s->flop;
        r->kernels += s->kernel != NULL;
        if (!r->kernel[0] && s->kernel) r->kernel = s->kernel;
        return;
    }
    char *shapes = strdup(s->shapes);
    if (!shapes) return;
    all.rows[all.n_rows++] = (aril_profile_row){ .name = s->key,
                                                 .shapes = shapes,
                                                 .kernel = s->kernel ? s->kernel : "",
                                                 .kernels = s->kernel != NULL,
                                                 .calls = s->calls,
                                                 .seconds = (double)s->ns * 1e-9,
                                                 .bytes = s->bytes,
                                                 .flop = s->flop };
}

/* Merges the sums of several threads that have the same key, shapes and kernel. */
static int join_sums(sum *s, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < kept && !(s[at].key == s[i].key && s[at].kernel == s[i].kernel &&
                              same_text(s[at].shapes, s[i].shapes)))
            at++;
        if (at == kept) {
            s[kept++] = s[i];
            continue;
        }
        s[at].calls += s[i].calls;
        s[at].ns += s[i].ns;
        s[at].bytes += s[i].bytes;
        s[at].flop += s[i].flop;
    }
    return kept;
}

/* Called with all.lock held and the profile's bit cleared. */
static aril_status make_rows(void)
{
    int n = 1, filled = 0;
    unsigned profile = atomic_load(&all.profile);
    int64_t total = all.end - all.begin, in_spans = 0;
    for (track *t = all.tracks; t; t = t->next) n += t->profile == profile ? t->n_sums : 0;
    sum *sums = calloc((size_t)n, sizeof *sums);
    all.rows = calloc((size_t)n, sizeof *all.rows);
    if (!sums || !all.rows) {
        free(sums);
        return aril__fail(ARIL_ERR_MEMORY, "profile: out of memory for its table");
    }
    for (track *t = all.tracks; t; t = t->next) {
        if (t->profile != profile) continue;
        if (t->n_sums) memcpy(sums + filled, t->sums, (size_t)t->n_sums * sizeof *sums);
        filled += t->n_sums;
        for (int i = 0; i < t->n_sums; i++) in_spans += t->sums[i].ns;
        if (t->number != (int)all.owner) total += t->last > t->first ? t->last - t->first : 0;
    }
    filled = join_sums(sums, filled);
    sums[filled++] = (sum){ .key = "(outside)", .shapes = "", .ns = total - in_spans };
    qsort(sums, (size_t)filled, sizeof *sums, sums_by_time);
    for (int i = 0; i < filled; i++) add_row(&sums[i]);
    free(sums);
    qsort(all.rows, (size_t)all.n_rows, sizeof *all.rows, by_time);
    all.seconds = (double)total * 1e-9;
    return ARIL_OK;
}

/* ---- the trace ---- */

static void write_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', f);
        if ((unsigned char)*text >= 32) fputc(*text, f);
    }
    fputc('"', f);
}

static void write_event(FILE *f, int thread, const event *e)
{
    fputs(",\n{\"name\":", f);
    write_text(f, e->label);
    fprintf(f, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
            e->kernel ? "op" : "span", thread, (double)(e->begin - all.begin) * 1e-3,
            (double)e->ns * 1e-3);
    if (e->kernel || e->shapes) {
        fputs(",\"args\":{\"kernel\":", f);
        write_text(f, e->kernel ? e->kernel : "");
        fputs(",\"inputs\":", f);
        write_text(f, e->shapes ? e->shapes : "");
        fprintf(f, ",\"bytes\":%.0f,\"flop\":%.0f}", e->bytes, e->flop);
    }
    fputc('}', f);
}

/* Called with all.lock held and the profile's bit cleared. */
static aril_status write_trace(void)
{
    FILE *f = fopen(all.trace, "w");
    if (!f)
        return aril__fail(ARIL_ERR_IO, "profile: cannot write '%s': %s", all.trace,
                          strerror(errno));
    unsigned profile = atomic_load(&all.profile);
    int64_t lost = 0;
    fputs(
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"aril\"}}",
        f);
    for (track *t = all.tracks; t; t = t->next) {
        if (t->profile != profile) continue;
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":"
                "\"thread %d%s\"}}",
                t->number, t->number, t->number == (int)all.owner ? " (began the profile)" : "");
        for (int64_t i = 0; i < t->n_events; i++) {
            const event *e = &t->events[i];
            write_event(f, t->number, e);
            if (i == 0 || e->live != t->events[i - 1].live)
                fprintf(f,
                        ",\n{\"name\":\"memory\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{"
                        "\"live\":%" PRId64 "}}",
                        (double)(e->begin + e->ns - all.begin) * 1e-3, e->live);
        }
        lost += t->lost;
    }
    fprintf(f, "\n],\"otherData\":{\"lost_events\":%" PRId64 "}}\n", lost);
    bool bad = ferror(f) != 0;
    if (fclose(f) || bad) return aril__fail(ARIL_ERR_IO, "profile: writing '%s' failed", all.trace);
    return ARIL_OK;
}

/* ---- public ---- */

aril_status aril_profile_begin(aril_profile_opts opts)
{
    aril__self();
    track *t = own_track();
    char *trace = opts.trace ? strdup(opts.trace) : NULL;
    if (!t || (opts.trace && !trace)) {
        free(trace);
        return aril__fail(ARIL_ERR_MEMORY, "profile: out of memory");
    }
    pthread_mutex_lock(&all.lock);
    if (all.on) {
        pthread_mutex_unlock(&all.lock);
        free(trace);
        return aril__fail(ARIL_ERR_STATE, "profile_begin: a profile is already running");
    }
    drop_rows();
    free(all.trace);
    all.on = true;
    all.opts = opts;
    all.trace = trace;
    all.owner = (unsigned)t->number;
    all.seconds = 0;
    atomic_store(&all.by_shape, opts.by_shape);
    atomic_store(&all.traces, trace != NULL);
    atomic_fetch_add(&all.profile, 1);
    all.begin = aril__nanoseconds();
    __atomic_fetch_or(&aril__log_mask, ARIL__LOG_PROFILE, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&all.lock);
    return ARIL_OK;
}

aril_status aril_profile_end(void)
{
    pthread_mutex_lock(&all.lock);
    if (!all.on) {
        pthread_mutex_unlock(&all.lock);
        return aril__fail(ARIL_ERR_STATE, "profile_end: no profile is running");
    }
    __atomic_fetch_and(&aril__log_mask, ~(unsigned)ARIL__LOG_PROFILE, __ATOMIC_RELAXED);
    all.end = aril__nanoseconds();
    all.on = false;
    /* Threads inside a span check the bit under this lock, and record nothing more. */
    for (track *t = all.tracks; t; t = t->next) pthread_mutex_lock(&t->lock);
    aril_status s = make_rows();
    if (all.trace && s == ARIL_OK) s = write_trace();
    for (track *t = all.tracks; t; t = t->next) {
        clear_track(t);
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_unlock(&all.lock);
    return s;
}

int aril_profile_rows(const aril_profile_row **rows)
{
    pthread_mutex_lock(&all.lock);
    int n = all.n_rows;
    if (rows) *rows = all.rows;
    pthread_mutex_unlock(&all.lock);
    return n;
}

double aril_profile_seconds(void)
{
    pthread_mutex_lock(&all.lock);
    double s = all.seconds;
    pthread_mutex_unlock(&all.lock);
    return s;
}

/* "12.3", or "" if there is no value. */
static const char *figure(char *buf, size_t size, double value, const char *format)
{
    buf[0] = 0;
    if (value > 0) snprintf(buf, size, format, value);
    return buf;
}

aril_status aril_profile_print(FILE *to)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows), name = 9;
    double total = aril_profile_seconds();
    if (!to) return aril__fail(ARIL_ERR_ARG, "profile_print: the file is NULL");
    if (!n) return aril__fail(ARIL_ERR_STATE, "profile_print: no finished profile");
    double peak = aril_machine_peak();
    for (int i = 0; i < n; i++)
        if ((int)strlen(rows[i].name) > name) name = (int)strlen(rows[i].name);
    fprintf(to, "%-*s %8s %11s %7s %11s %8s %9s %6s  %s\n", name, "op", "calls", "ms", "share",
            "us/call", "GB/s", "GFLOP/s", "peak", "kernel");
    double bytes = 0, flop = 0, seconds = 0;
    int64_t calls = 0;
    for (int i = 0; i <= n; i++) {
        aril_profile_row sum_row = { "all", "", "", 0, calls, seconds, bytes, flop };
        const aril_profile_row *r = i < n ? &rows[i] : &sum_row;
        char per[24], gb[24], gf[24], of[24], count[24], more[32] = "";
        double moved = r->bytes / r->seconds, done = r->flop / r->seconds;
        if (r->kernels > 1) snprintf(more, sizeof more, " and %d more", r->kernels - 1);
        fprintf(to, "%-*s %8s %11.3f %6.1f%% %11s %8s %9s %6s%s%s%s%s%s\n", name, r->name,
                figure(count, sizeof count, (double)r->calls, "%.0f"), r->seconds * 1e3,
                total > 0 ? r->seconds / total * 100 : 0,
                figure(per, sizeof per, r->calls ? r->seconds / (double)r->calls * 1e6 : 0, "%.2f"),
                figure(gb, sizeof gb, moved * 1e-9, "%.2f"),
                figure(gf, sizeof gf, done * 1e-9, "%.2f"),
                figure(of, sizeof of, done / peak * 100, "%.1f%%"), r->kernel[0] ? "  " : "",
                r->kernel, more, r->shapes[0] ? " " : "", r->shapes);
        calls += r->calls;
        seconds += r->seconds;
        bytes += r->bytes;
        flop += r->flop;
    }
    fprintf(to, "peak: %.0f GFLOP/s in f32, measured with %d thread%s\n", peak * 1e-9,
            aril_threads(), aril_threads() == 1 ? "" : "s");
    return ferror(to) ? aril__fail(ARIL_ERR_IO, "profile_print: writing failed") : ARIL_OK;
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
    if (by_environment && all.on) {
        if (aril_profile_end() < 0) aril_report(stderr);
        aril_profile_print(stderr);
    }
    pthread_mutex_lock(&all.lock);
    drop_rows();
    free(all.trace);
    all.trace = NULL;
    pthread_mutex_unlock(&all.lock);
}
