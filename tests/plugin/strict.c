/* A device on which every shortcut fails.
 *
 * Its memory is mapped twice: device pointers lead to a mapping that no one may touch, and only the
 * thread of its queue knows the other one. Work is done later, in order, by that thread, which runs
 * the references of ops on headers of its own; everything else that a kernel needs is copied when
 * it is queued. Memory comes from its own pool, in blocks that are aligned to 64 bytes and no more,
 * and is overwritten when it is freed. Errors are found by the queue, and reported when Aril
 * asks. */
#include "plugin/strict.h"
#include "plugin/strict_run.h"

#include "aril/aril.h"
#include "core/clock.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEVICES = 2, UNIT = 64, SPOILED = 4096 };
static const size_t memory_size = (size_t)1 << 30; /* of address space */

typedef struct extent {
    struct extent *next;
    size_t begin, size;
    aril_queue *queue; /* that freed it, and may reuse it at once; NULL: any */
} extent;

typedef struct strict {
    int index;
    char *forbidden, *memory; /* the two mappings */
    pthread_mutex_t lock;     /* guards all below */
    extent *holes;            /* of the pool, by address */
    aril_late_error late;     /* the first since the last poll */
    aril_queue *queues;
    aril_recording *recordings;
    bool profiled;
    aril_work *done; /* since the profile began */
    int n_done;
} strict;

static strict device[DEVICES];

static struct {
    pthread_mutex_t lock;
    strict_counts count;
    struct pinned {
        struct pinned *next;
        char *at;
        size_t bytes;
    } * pinned;
    bool refuses_profiles;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- memory ---- */

/* Where the queue finds what a device pointer means. */
static void *seen(const strict *d, const void *p)
{
    return p ? d->memory + ((const char *)p - d->forbidden) : NULL;
}

static bool map_memory(strict *d)
{
    int file = memfd_create("strict", 0);
    if (file < 0 || ftruncate(file, (off_t)memory_size) < 0) return false;
    d->forbidden = mmap(NULL, memory_size, PROT_NONE, MAP_SHARED, file, 0);
    d->memory = mmap(NULL, memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return d->forbidden != MAP_FAILED && d->memory != MAP_FAILED;
}

static size_t rounded(size_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT + UNIT; /* a gap follows, so that blocks lie unevenly */
}

/* Takes memory that the queue may use; NULL if there is none. With the lock held. */
static char *take_hole(strict *d, aril_queue *queue, size_t size)
{
    for (extent **at = &d->holes, *e; (e = *at); at = &e->next) {
        if (e->size < size || (e->queue && e->queue != queue)) continue;
        char *p = d->forbidden + e->begin;
        e->begin += size;
        e->size -= size;
        if (!e->size) {
            *at = e->next;
            free(e);
        }
        return p;
    }
    return NULL;
}

/* What a queue freed may be used by others after its work. With the lock held. */
static void share_holes(strict *d, const aril_queue *queue)
{
    for (extent *e = d->holes; e; e = e->next)
        if (!queue || e->queue == queue) e->queue = NULL;
}

/* Memory that was allocated while work was recorded: it serves the recording alone. */
typedef struct recorded_block {
    struct recorded_block *next;
    size_t begin, size;
    bool freed;
} recorded_block;

struct aril_recording {
    aril_recording *next; /* of the device */
    pthread_t thread;     /* whose work it records */
    recorded_block *blocks;
    int n, cap;
    struct job **at;
};

static aril_status synchronize(void *self);
static aril_recording *recording_of(const aril_queue *q);

static void *pool_alloc(void *self, aril_queue *queue, size_t bytes)
{
    strict *d = self;
    aril_recording *r = recording_of(queue);
    pthread_mutex_lock(&d->lock);
    char *p = take_hole(d, queue, rounded(bytes));
    if (p && r) {
        recorded_block *b = malloc(sizeof *b);
        *b = (recorded_block){ r->blocks, (size_t)(p - d->forbidden), rounded(bytes), false };
        r->blocks = b;
    }
    pthread_mutex_unlock(&d->lock);
    if (p || r) return p;
    synchronize(d);
    pthread_mutex_lock(&d->lock);
    share_holes(d, NULL);
    p = take_hole(d, queue, rounded(bytes));
    pthread_mutex_unlock(&d->lock);
    return p;
}

/* Whether memory belongs to a recording, which then keeps it. With the lock held. */
static bool keep_for_recording(strict *d, size_t begin)
{
    for (aril_recording *r = d->recordings; r; r = r->next)
        for (recorded_block *b = r->blocks; b; b = b->next)
            if (b->begin == begin) return b->freed = true;
    return false;
}

/* Puts a hole back, joined with its neighbours of the same queue. */
static void add_hole(strict *d, size_t begin, size_t size, aril_queue *queue)
{
    extent **at = &d->holes;
    while (*at && (*at)->begin + (*at)->size < begin) at = &(*at)->next;
    extent *e = *at;
    if (e && e->begin + e->size == begin && e->queue == queue) {
        e->size += size;
    } else {
        if (e && e->begin < begin) at = &e->next;
        e = malloc(sizeof *e);
        *e = (extent){ *at, begin, size, queue };
        *at = e;
    }
    extent *next = e->next;
    if (next && e->begin + e->size == next->begin && next->queue == queue) {
        e->size += next->size;
        e->next = next->next;
        free(next);
    }
}

/* ---- queues ---- */

typedef struct job {
    struct job *next;
    atomic_int refs; /* a recording may hold it too */
    void (*run)(struct job *j);
    strict *device;
    void *dst;
    const void *src;
    size_t bytes;
    aril_event *event;
    uint64_t mark;
    void *data;       /* freed with it */
    const char *op;   /* a permanent name */
    const char *what; /* name of the work in profiles; NULL: it is not work */
    uint64_t profile_mark;
} job;

struct aril_queue {
    strict *device;
    aril_queue *next;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job *first, **end;
    uint64_t queued, done;
    bool ending, held;
    aril_recording *_Atomic recording; /* while a thread captures */
};

/* What this thread records of a queue; NULL: nothing. */
static aril_recording *recording_of(const aril_queue *q)
{
    aril_recording *r = q ? q->recording : NULL;
    return r && pthread_equal(r->thread, pthread_self()) ? r : NULL;
}

/* Fails if this thread records work of the device. */
static aril_status not_recording(strict *d, const char *what)
{
    for (aril_queue *q = d->queues; q; q = q->next)
        if (recording_of(q))
            return aril__fail(ARIL_ERR_UNSUPPORTED, "strict: %s cannot be recorded", what);
    return ARIL_OK;
}

struct aril_event {
    atomic_int refs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, passed;
};

static void event_release(aril_event *e)
{
    if (atomic_fetch_sub(&e->refs, 1) != 1) return;
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static void job_release(job *j)
{
    if (atomic_fetch_sub(&j->refs, 1) != 1) return;
    if (j->event) event_release(j->event);
    free(j->data);
    free(j);
}

static void note_late(strict *d, aril_status code, const char *op, const char *text)
{
    pthread_mutex_lock(&d->lock);
    if (d->late.code == ARIL_OK) {
        d->late.code = code;
        snprintf(d->late.op, sizeof d->late.op, "%s", op);
        snprintf(d->late.text, sizeof d->late.text, "%s", text);
    }
    pthread_mutex_unlock(&d->lock);
}

static _Thread_local uint64_t thread_mark;

/* Runs a job, and keeps its times while the device is profiled. */
static void run_job(job *j)
{
    strict *d = j->device;
    int64_t begin = aril__nanoseconds();
    j->run(j);
    int64_t ns = aril__nanoseconds() - begin;
    pthread_mutex_lock(&d->lock);
    if (d->profiled && j->what) {
        d->done = realloc(d->done, (size_t)(d->n_done + 1) * sizeof *d->done);
        d->done[d->n_done++] = (aril_work){ .kind = j->bytes ? ARIL_WORK_COPY : ARIL_WORK_KERNEL,
                                            .name = j->what,
                                            .mark = j->profile_mark,
                                            .begin = begin,
                                            .ns = ns,
                                            .queue = 7,
                                            .bytes = (double)j->bytes };
    }
    pthread_mutex_unlock(&d->lock);
}

static void *work(void *arg)
{
    aril_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while ((!q->first || q->held) && !q->ending) pthread_cond_wait(&q->changed, &q->lock);
        job *j = q->first;
        if (!j) break;
        q->first = j->next;
        if (!q->first) q->end = &q->first;
        pthread_mutex_unlock(&q->lock);
        run_job(j);
        job_release(j);
        pthread_mutex_lock(&q->lock);
        q->done++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void record(aril_recording *r, job *j)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->at = realloc(r->at, (size_t)r->cap * sizeof *r->at);
    }
    r->at[r->n++] = j;
}

/* Queues a job, whose reference it takes. */
static void put_job(aril_queue *q, job *j)
{
    pthread_mutex_lock(&q->lock);
    if (recording_of(q)) {
        record(q->recording, j);
    } else {
        j->next = NULL;
        *q->end = j;
        q->end = &j->next;
        q->queued++;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
}

static void put(aril_queue *q, void (*run)(job *), job given)
{
    job *j = malloc(sizeof *j);
    *j = given;
    j->run = run;
    j->device = q->device;
    j->profile_mark = thread_mark;
    atomic_init(&j->refs, 1);
    put_job(q, j);
}

static aril_status queue_wait(void *self, aril_queue *q)
{
    if (not_recording(self, "waiting") < 0) return ARIL_ERR_UNSUPPORTED;
    pthread_mutex_lock(&q->lock);
    uint64_t until = q->queued;
    while (q->done < until) pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return ARIL_OK;
}

static aril_queue *queue_new(void *self)
{
    strict *d = self;
    aril_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->device = d;
    q->end = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    if (pthread_create(&q->thread, NULL, work, q) != 0) {
        free(q);
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    q->next = d->queues;
    d->queues = q;
    pthread_mutex_unlock(&d->lock);
    return q;
}

static void queue_free(void *self, aril_queue *q)
{
    strict *d = self;
    pthread_mutex_lock(&d->lock);
    aril_queue **at = &d->queues;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    pthread_mutex_unlock(&d->lock);
    pthread_mutex_lock(&q->lock);
    q->ending = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_mutex_lock(&d->lock);
    share_holes(d, q);
    pthread_mutex_unlock(&d->lock);
    free(q);
}

static aril_status synchronize(void *self)
{
    strict *d = self;
    aril_status s = ARIL_OK;
    for (aril_queue *q = d->queues; q && s == ARIL_OK; q = q->next) s = queue_wait(d, q);
    return s;
}

static aril_status poll(void *self, aril_late_error *error)
{
    strict *d = self;
    pthread_mutex_lock(&d->lock);
    aril_status s = d->late.code;
    if (s < 0) *error = d->late;
    d->late.code = ARIL_OK;
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* ---- events ---- */

static aril_event *event_new(void *self)
{
    aril_event *e = calloc(1, sizeof *e);
    (void)self;
    if (!e) return NULL;
    atomic_init(&e->refs, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    return e;
}

static void event_free(void *self, aril_event *e)
{
    (void)self;
    event_release(e);
}

static void pass_event(job *j)
{
    pthread_mutex_lock(&j->event->lock);
    if (j->event->passed < j->mark) j->event->passed = j->mark;
    pthread_cond_broadcast(&j->event->changed);
    pthread_mutex_unlock(&j->event->lock);
}

static void await_event(job *j)
{
    pthread_mutex_lock(&j->event->lock);
    while (j->event->passed < j->mark) pthread_cond_wait(&j->event->changed, &j->event->lock);
    pthread_mutex_unlock(&j->event->lock);
}

static aril_status put_event(aril_queue *q, aril_event *e, bool mark)
{
    pthread_mutex_lock(&e->lock);
    uint64_t at = mark ? ++e->recorded : e->recorded;
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->refs, 1);
    put(q, mark ? pass_event : await_event, (job){ .event = e, .mark = at });
    return ARIL_OK;
}

static aril_status event_record(void *self, aril_event *e, aril_queue *q)
{
    if (not_recording(self, "an event") < 0) return ARIL_ERR_UNSUPPORTED;
    return put_event(q, e, true);
}

static aril_status event_wait(void *self, aril_event *e, aril_queue *q)
{
    if (not_recording(self, "an event") < 0) return ARIL_ERR_UNSUPPORTED;
    return put_event(q, e, false);
}

static int event_query(void *self, aril_event *e)
{
    (void)self;
    pthread_mutex_lock(&e->lock);
    int done = e->passed >= e->recorded;
    pthread_mutex_unlock(&e->lock);
    return done;
}

/* ---- copies ---- */

static void move_bytes(job *j)
{
    memmove(j->dst, j->src, j->bytes);
}

static bool is_pinned(const void *p, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&shared.lock);
    for (struct pinned *b = shared.pinned; b && !found; b = b->next)
        found = (const char *)p >= b->at && (const char *)p + bytes <= b->at + b->bytes;
    pthread_mutex_unlock(&shared.lock);
    return found;
}

static aril_status from_host(void *self, aril_queue *q, void *dst, const void *src, size_t bytes,
                             bool async)
{
    strict *d = self;
    if (async && !is_pinned(src, bytes))
        return aril__fail(ARIL_ERR_DEVICE, "strict: asynchronous copy from memory not pinned");
    void *staged = async ? NULL : malloc(bytes + 1);
    if (staged) memcpy(staged, src, bytes);
    pthread_mutex_lock(&shared.lock);
    shared.count.copies_async += async;
    pthread_mutex_unlock(&shared.lock);
    put(q, move_bytes,
        (job){ .dst = seen(d, dst),
               .src = staged ? staged : src,
               .bytes = bytes,
               .data = staged,
               .what = "copy to device" });
    return ARIL_OK;
}

static aril_status to_host(void *self, aril_queue *q, void *dst, const void *src, size_t bytes,
                           bool async)
{
    if (not_recording(self, "reading a value") < 0) return ARIL_ERR_UNSUPPORTED;
    put(q, move_bytes,
        (job){ .dst = dst, .src = seen(self, src), .bytes = bytes, .what = "copy to host" });
    return async ? ARIL_OK : queue_wait(self, q);
}

static aril_status copy(void *self, aril_queue *q, void *dst, const void *src, size_t bytes)
{
    put(q, move_bytes,
        (job){ .dst = seen(self, dst), .src = seen(self, src), .bytes = bytes, .what = "copy" });
    return ARIL_OK;
}

static aril_status copy_from(void *self, aril_queue *q, void *dst, void *other, const void *src,
                             size_t bytes)
{
    if (not_recording(self, "a copy from another device") < 0) return ARIL_ERR_UNSUPPORTED;
    pthread_mutex_lock(&shared.lock);
    shared.count.copies_between++;
    pthread_mutex_unlock(&shared.lock);
    put(q, move_bytes, (job){ .dst = seen(self, dst), .src = seen(other, src), .bytes = bytes });
    return ARIL_OK;
}

static void spoil(job *j)
{
    memset(j->dst, 0xA5, j->bytes);
}

static void pool_free(void *self, aril_queue *q, void *p, size_t bytes)
{
    strict *d = self;
    put(q, spoil, (job){ .dst = seen(d, p), .bytes = bytes < SPOILED ? bytes : SPOILED });
    size_t begin = (size_t)((char *)p - d->forbidden);
    pthread_mutex_lock(&d->lock);
    if (!keep_for_recording(d, begin)) add_hole(d, begin, rounded(bytes), q);
    pthread_mutex_unlock(&d->lock);
}

static void *pinned_alloc(void *self, size_t bytes)
{
    struct pinned *b = malloc(sizeof *b);
    (void)self;
    pthread_mutex_lock(&shared.lock);
    *b = (struct pinned){ shared.pinned, malloc(bytes), bytes };
    shared.pinned = b;
    pthread_mutex_unlock(&shared.lock);
    return b->at;
}

static void pinned_free(void *self, void *p, size_t bytes)
{
    (void)self;
    pthread_mutex_lock(&shared.lock);
    struct pinned **at = &shared.pinned;
    while ((*at)->at != p) at = &(*at)->next;
    struct pinned *b = *at;
    *at = b->next;
    pthread_mutex_unlock(&shared.lock);
    memset(p, 0xA5, bytes);
    free(p);
    free(b);
}

/* ---- programs, recordings, ranges ---- */

/* The language: "fill VALUE" or "scale FACTOR", for (float *x, int64_t n). */
struct aril_program {
    bool scales;
    float by;
};

typedef struct launched {
    aril_program program;
    int64_t n;
} launched;

static void run_program(job *j)
{
    const launched *l = j->data;
    float *x = j->dst;
    for (int64_t i = 0; i < l->n; i++)
        x[i] = l->program.scales ? x[i] * l->program.by : l->program.by;
}

static aril_program *compile(void *self, const char *source, const char *options)
{
    char word[16];
    aril_program p = { .scales = false };
    (void)self;
    (void)options;
    bool good = sscanf(source, "%15s %f", word, &p.by) == 2;
    p.scales = good && strcmp(word, "scale") == 0;
    if (!good || (!p.scales && strcmp(word, "fill") != 0)) {
        aril__fail(ARIL_ERR_PLUGIN, "strict: cannot compile \"%s\"", source);
        return NULL;
    }
    aril_program *made = malloc(sizeof *made);
    *made = p;
    shared.count.compiled++;
    return made;
}

static void program_free(void *self, aril_program *program)
{
    (void)self;
    free(program);
}

static aril_status launch(void *self, aril_queue *q, aril_program *program, const char *entry,
                          const uint32_t grid[3], const uint32_t block[3], size_t shared_bytes,
                          void *const *args, int n_args)
{
    (void)grid;
    (void)block;
    (void)shared_bytes;
    if (n_args != 2 || strcmp(entry, "main") != 0)
        return aril__fail(ARIL_ERR_ARG, "strict: a program has main(float *x, int64_t n)");
    launched *l = malloc(sizeof *l);
    *l = (launched){ *program, *(const int64_t *)args[1] };
    put(q, run_program, (job){ .dst = seen(self, *(void *const *)args[0]), .data = l });
    return ARIL_OK;
}

static aril_status capture_begin(void *self, aril_queue *q)
{
    strict *d = self;
    if (q->recording) return aril__fail(ARIL_ERR_STATE, "strict: the queue is being recorded");
    aril_recording *r = calloc(1, sizeof *r);
    r->thread = pthread_self();
    pthread_mutex_lock(&d->lock);
    r->next = d->recordings;
    d->recordings = r;
    pthread_mutex_unlock(&d->lock);
    q->recording = r;
    return ARIL_OK;
}

static aril_recording *capture_end(void *self, aril_queue *q)
{
    aril_recording *r = q->recording;
    (void)self;
    q->recording = NULL;
    pthread_mutex_lock(&shared.lock);
    shared.count.recorded++;
    pthread_mutex_unlock(&shared.lock);
    return r;
}

static void run_recording(job *j)
{
    const aril_recording *r = j->src;
    for (int i = 0; i < r->n; i++) r->at[i]->run(r->at[i]);
}

static aril_status replay(void *self, aril_queue *q, aril_recording *r)
{
    (void)self;
    shared.count.replayed++;
    put(q, run_recording, (job){ .src = r });
    return ARIL_OK;
}

static void recording_free(void *self, aril_recording *r)
{
    strict *d = self;
    synchronize(d);
    for (int i = 0; i < r->n; i++) job_release(r->at[i]);
    pthread_mutex_lock(&d->lock);
    aril_recording **at = &d->recordings;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    for (recorded_block *b = r->blocks, *next; b; b = next) {
        next = b->next;
        if (b->freed) add_hole(d, b->begin, b->size, NULL);
        free(b);
    }
    pthread_mutex_unlock(&d->lock);
    free(r->at);
    free(r);
}

static void range_begin(void *self, const char *name)
{
    (void)self;
    (void)name;
    shared.count.ranges++;
}

static void range_end(void *self)
{
    (void)self;
    shared.count.ranges--;
}

/* ---- profiles ---- */

static void limits(void *self, aril_limits *l)
{
    (void)self;
    *l = (aril_limits){ .bytes = 1e12, .f32 = 1e12, .source = "invented" };
}

static const char *profile_begin(void *self)
{
    strict *d = self;
    if (shared.refuses_profiles) return "it does not feel like it";
    synchronize(d);
    pthread_mutex_lock(&d->lock);
    d->profiled = true;
    d->n_done = 0;
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void profile_mark(void *self, uint64_t mark)
{
    (void)self;
    thread_mark = mark;
}

static void profile_end(void *self, void (*found)(void *ctx, const aril_work *work), void *ctx)
{
    strict *d = self;
    synchronize(d);
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->n_done; i++) found(ctx, &d->done[i]);
    free(d->done);
    d->done = NULL;
    d->n_done = 0;
    d->profiled = false;
    pthread_mutex_unlock(&d->lock);
}

void strict_refuse_profiles(bool refuse)
{
    shared.refuses_profiles = refuse;
}

/* ---- ops ---- */

static void run_op(job *j)
{
    strict_run *o = j->data;
    const char *name = o->run.op->name;
    ARIL_SCOPE;
    ARIL_INFERENCE;
    /* Elementwise ops have kernels made from their formulas in place of a reference. */
    o->status = o->run.op->ref ? o->run.op->ref(&o->run) : aril__dispatch(&o->run);
    if (o->status == ARIL_OK) return;
    const char *text = aril_ok() ? "failed" : aril_error();
    size_t n = strlen(name);
    if (strncmp(text, name, n) == 0 && strncmp(text + n, ": ", 2) == 0) text += n + 2;
    snprintf(o->text, sizeof o->text, "%s", text);
    char *location = strstr(o->text, " at strict.c"); /* of this call, not of the program's */
    if (location) *location = '\0';
    aril_clear_error();
    if (!(o->run.op->flags & DYNAMIC)) note_late(j->device, o->status, name, o->text);
}

/* Sizes that are known after the run: the host waits for them. */
static aril_status run_dynamic(strict *d, aril__run *r, strict_run *o)
{
    job j = { .device = d, .data = o };
    aril_queue *q = aril__run_queue(r);
    job *queued = malloc(sizeof *queued);
    *queued = j;
    queued->run = run_op;
    queued->what = "strict kernel";
    queued->profile_mark = thread_mark;
    atomic_init(&queued->refs, 2);
    put_job(q, queued);
    queue_wait(d, q);
    aril_status s = o->status;
    if (s < 0) aril__fail(s, "%s: %s", r->op->name, o->text);
    for (int i = 0; i < r->n_out; i++) {
        aril_tensor *made = o->out[i];
        if (!made || r->out[i]) continue;
        if (s == ARIL_OK) s = aril__run_alloc(r, i, (aril_dtype)made->dtype, made->ndim, made->dim);
        if (s == ARIL_OK && made->numel)
            s = from_host(d, q, r->out[i]->storage->data, aril__ptr(made),
                          aril__dtype_bytes((aril_dtype)made->dtype, made->numel), false);
        aril__tensor_release(aril__self(), made);
    }
    job_release(queued);
    return s;
}

static aril_status run_row(aril__run *r)
{
    strict *d = r->device->self;
    strict_run *o = strict_run_new(d, d->forbidden, d->memory, r);
    if (r->op->flags & DYNAMIC) return run_dynamic(d, r, o);
    put(aril__run_queue(r), run_op, (job){ .data = o, .op = r->op->name, .what = "strict kernel" });
    return ARIL_OK;
}

/* Small runs go into the recording one by one: only whose turn it is differs. */
static bool is_small(void *self, const aril_run *r)
{
    (void)self;
    return !(r->op->flags & DYNAMIC) && r->n_out > 0 && r->out[0] && r->out[0]->numel <= 256;
}

static aril_status record_small(void *self, const aril_run *r, bool *recorded)
{
    (void)self;
    if (!aril__run_queue(r)->recording) return ARIL_OK;
    pthread_mutex_lock(&shared.lock);
    shared.count.small++;
    pthread_mutex_unlock(&shared.lock);
    *recorded = true;
    aril__run run = *r;
    return run_row(&run);
}

/* ---- for tests ---- */

static void fail_now(job *j)
{
    note_late(j->device, ARIL_ERR_NUMBER, j->op, j->data);
}

void strict_fail_later(int index, const char *op, const char *text)
{
    put(device[index].queues, fail_now, (job){ .op = op, .data = strdup(text) });
}

void strict_hold(int index, bool held)
{
    aril_queue *q = device[index].queues;
    pthread_mutex_lock(&q->lock);
    q->held = held;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

strict_counts strict_count(void)
{
    pthread_mutex_lock(&shared.lock);
    strict_counts c = shared.count;
    pthread_mutex_unlock(&shared.lock);
    return c;
}

void *strict_device(int index)
{
    return &device[index];
}

static void describe(void *self, char *buf, size_t size)
{
    snprintf(buf, size, "a test device, number %d", ((strict *)self)->index);
}

const aril_device_ops *strict_ops(void)
{
    static const aril_device_ops ops = { .size = sizeof ops,
                                         .own_pool = true,
                                         .alloc = pool_alloc,
                                         .free = pool_free,
                                         .from_host = from_host,
                                         .to_host = to_host,
                                         .copy = copy,
                                         .describe = describe,
                                         .limits = limits,
                                         .copy_from = copy_from,
                                         .queue_new = queue_new,
                                         .queue_free = queue_free,
                                         .queue_wait = queue_wait,
                                         .synchronize = synchronize,
                                         .poll = poll,
                                         .event_new = event_new,
                                         .event_free = event_free,
                                         .event_record = event_record,
                                         .event_wait = event_wait,
                                         .event_query = event_query,
                                         .pinned_alloc = pinned_alloc,
                                         .pinned_free = pinned_free,
                                         .compile = compile,
                                         .program_free = program_free,
                                         .launch = launch,
                                         .capture_begin = capture_begin,
                                         .capture_end = capture_end,
                                         .replay = replay,
                                         .recording_free = recording_free,
                                         .is_small = is_small,
                                         .record_small = record_small,
                                         .range_begin = range_begin,
                                         .range_end = range_end,
                                         .profile_begin = profile_begin,
                                         .profile_mark = profile_mark,
                                         .profile_end = profile_end };
    return &ops;
}

/* Says who touched the device's memory, where the harness would only see a crash. */
static void touched(int number, siginfo_t *info, void *context)
{
    static const char text[] = "\nthe host touched memory of the strict device:\n";
    const char *at = info->si_addr;
    (void)context;
    signal(number, SIG_DFL);
    for (int i = 0; i < DEVICES; i++) {
        if (at < device[i].forbidden || at >= device[i].forbidden + memory_size) continue;
        void *frames[32];
        ssize_t done = write(2, text, sizeof text - 1);
        (void)done;
        backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
    }
    raise(number);
}

/* What the CPU has kernels for; every dtype where it has a reference. */
static uint32_t dtypes_of(const aril__op *op)
{
    const aril__row *of[8];
    uint32_t dtypes = op->ref ? ~0u : 0;
    int n = aril__rows_of(ARIL__CPU, op, 8, of, NULL);
    for (int i = 0; i < n && i < 8 && !op->ref; i++) dtypes |= of[i]->dtypes;
    return dtypes;
}

/* The plan of ops with a reserve: references keep nothing for the gradient. */
static const char *keeps_nothing(const aril_run *r, aril_plan *plan)
{
    plan->workspace = r->op->workspace ? r->op->workspace(r) : 0;
    return NULL;
}

/* A row for every op that has a reference or a formula. Ops that handle every device themselves get
 * none, but for the copies that they are built from. */
static int make_rows(aril_row *rows)
{
    const char *which = getenv("ARIL_STRICT_ROWS");
    bool some = which && strcmp(which, "some") == 0;
    int n = 0;
    for (int k = 0; k < aril__n_ops; k++) {
        const aril__op *op = aril__ops[k];
        bool copies = op == &aril__op_copy || op == &aril__op_cast;
        if ((!op->ref && !op->formula) || (op->flags & ANYWHERE && !copies) || (some && k % 3 == 0))
            continue;
        rows[n++] = (aril_row){ .op = op->name,
                                .name = "strict_reference",
                                .dtypes = dtypes_of(op),
                                .native = op->native,
                                .strided = op->formula || op->flags & STRIDED,
                                .workspace = op->workspace,
                                .prepare = op->reserve_out || op->reserve_in ? keeps_nothing : NULL,
                                .run = run_row };
    }
    return n;
}

aril_status strict_open(const aril_host *host, aril_plugin *out)
{
    static aril_row rows[ARIL__MAX_OPS];
    static void *devices[DEVICES];
    struct sigaction on_touch = { .sa_sigaction = touched, .sa_flags = SA_SIGINFO };
    for (int i = 0; i < DEVICES; i++) {
        strict *d = devices[i] = &device[i];
        d->index = i;
        pthread_mutex_init(&d->lock, NULL);
        if (!map_memory(d)) return host->fail(ARIL_ERR_MEMORY, "strict: cannot map memory");
        add_hole(d, UNIT, memory_size - UNIT, NULL);
    }
    sigaction(SIGSEGV, &on_touch, NULL);
    *out = (aril_plugin){ .size = sizeof *out,
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "strict",
                          .kind = "strict",
                          .n_devices = DEVICES,
                          .device_ops = strict_ops(),
                          .devices = devices,
                          .n_rows = make_rows(rows),
                          .rows = rows };
    return ARIL_OK;
}
