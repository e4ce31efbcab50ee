/* The threads that load batches ahead of the one in use.
 *
 * Batches lie in a ring of slots, batch b in slot b % slots. Threads take rows of the oldest batch
 * that still has some; the thread that finishes a batch's last row collates it. Results do not
 * depend on which thread does what: a row is a function of (seed, epoch, sample). */
#include "data/loader.h"

#include "aril/scope.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/thread.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct aril__worker_pool {
    aril_loader *loader;
    pthread_mutex_t lock; /* guards everything below, and the slots' counts and failures */
    pthread_cond_t work, done;
    pthread_t *thread;
    int n;     /* running threads */
    int begun; /* threads that have reached the wait for work */
    pid_t pid;
    bool stop;               /* threads should exit */
    atomic_bool halt;        /* skip rows that are not started yet */
    bool paused;             /* no work is handed out: a fork is in progress */
    int active;              /* threads working on a row */
    bool streaming;          /* a thread is reading the stream's next sample */
    int64_t low;             /* the oldest batch still in use */
    int64_t hand;            /* the batch whose rows are being handed out */
    bool open;               /* some of its rows have been handed out */
    int64_t end;             /* one past the epoch's last batch; of a stream: as far as is known */
    aril__worker_pool *next; /* list of pools with threads */
};

/* ---- forks ---- */

/* Threads vanish in a forked child, so they must not hold Aril's locks at the fork: the fork waits
 * for rows in progress and blocks new ones. */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static aril__worker_pool *pools;
static _Thread_local aril__worker_pool *my_pool; /* set in worker threads */

/* Seconds that a fork waits for a worker, which may itself wait for another loader's rows. */
enum { PATIENCE = 5 };

static void before_fork(void)
{
    pthread_mutex_lock(&pools_lock);
    for (aril__worker_pool *c = pools; c; c = c->next) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE;
        pthread_mutex_lock(&c->lock);
        c->paused = true;
        int mine = my_pool == c;
        while (c->active > mine && !pthread_cond_timedwait(&c->done, &c->lock, &until)) {
        }
    }
}

static void after_fork(bool child)
{
    for (aril__worker_pool *c = pools; c; c = c->next) {
        c->paused = false;
        if (!child) pthread_cond_broadcast(&c->work);
        pthread_mutex_unlock(&c->lock);
    }
    if (child) pools = NULL;
    pthread_mutex_unlock(&pools_lock);
}

static void in_parent(void)
{
    after_fork(false);
}

static void in_child(void)
{
    after_fork(true);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void enlist(aril__worker_pool *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&pools_lock);
    c->next = pools;
    pools = c;
    pthread_mutex_unlock(&pools_lock);
}

static void strike_off(const aril__worker_pool *c)
{
    pthread_mutex_lock(&pools_lock);
    for (aril__worker_pool **at = &pools; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    pthread_mutex_unlock(&pools_lock);
}

/* ---- work ---- */

/* Some rows of a batch. */
struct task {
    aril__slot *slot;
    int64_t begin, end;
};

static bool find_task(aril__worker_pool *c, struct task *t)
{
    aril_loader *l = c->loader;
    if (atomic_load(&c->halt) || c->paused || c->hand >= c->end || c->hand >= c->low + l->n_slots ||
        (l->stream && c->streaming))
        return false;
    aril__slot *s = &l->slot[c->hand % l->n_slots];
    if (!c->open) aril__slot_begin(l, s, c->hand);
    c->open = true;
    int64_t rows = s->n / (4 * c->n);
    if (l->stream || rows < 1) rows = 1;
    if (l->by_batch) rows = s->n;
    t->slot = s;
    t->begin = s->handed;
    t->end = s->n - s->handed < rows ? s->n : s->handed + rows;
    s->handed = t->end;
    if (s->handed == s->n) {
        c->hand++;
        c->open = false;
    }
    c->streaming = l->stream;
    c->active++;
    return true;
}

/* Loads the stream's next sample into one row. The lock is held on entry and on return. */
static void load_stream_row(aril__worker_pool *c, struct task *t)
{
    aril_loader *l = c->loader;
    aril__slot *s = t->slot;
    int64_t number = s->number * l->opts.batch + t->begin;
    pthread_mutex_unlock(&c->lock);
    {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        aril_generator g;
        aril_sample sample;
        aril__sample_begin(&sample, &g, l->at.seed, l->at.epoch, number, 0);
        aril__saved_errors before = aril__errors_begin();
        int status = l->dataset->type->next(l->dataset, &sample);

        pthread_mutex_lock(&c->lock);
        c->streaming = false;
        s->index[t->begin] = number;
        if (status <= 0) {
            /* After a failure the stream's state is unknown: it ends the epoch. */
            s->n = status < 0 ? t->begin + 1 : t->begin;
            bool given = status < 0 || (s->n > 0 && !l->opts.drop_last);
            c->end = s->number + (given ? 1 : 0);
            c->hand = c->end;
            if (status == 0) t->end = t->begin;
            pthread_cond_broadcast(&c->done);
        }
        pthread_cond_signal(&c->work);
        pthread_mutex_unlock(&c->lock);

        if (status != 0) {
            if (status > 0) status = aril__stream_finish(l->dataset, &sample);
            aril__slot_finish_row(l, s, t->begin, &sample, status, &c->lock);
        }
        aril__sample_end(&sample, &g);
        aril__error_release(aril__errors_end(&before));
    }
    pthread_mutex_lock(&c->lock);
}

static void *work(void *arg)
{
    aril__worker_pool *c = arg;
    aril_loader *l = c->loader;
    aril__thread_set_serial(true);
    my_pool = c;
    pthread_mutex_lock(&c->lock);
    c->begun++;
    pthread_cond_broadcast(&c->done);
    while (!c->stop) {
        struct task t;
        if (!find_task(c, &t)) {
            pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        aril__slot *s = t.slot;
        bool loaded = false;
        if (l->stream) {
            load_stream_row(c, &t);
        } else {
            pthread_mutex_unlock(&c->lock);
            loaded = aril__slot_load_batch(l, s, &c->lock);
            if (!loaded) aril__slot_load(l, s, t.begin, t.end, &c->lock, &c->halt);
            pthread_mutex_lock(&c->lock);
        }
        s->done += t.end - t.begin;
        if (s->done == s->n && !s->closed && !atomic_load(&c->halt)) {
            s->closed = true;
            pthread_mutex_unlock(&c->lock);
            aril__slot_end(l, s, loaded, &c->lock);
            pthread_mutex_lock(&c->lock);
            s->ready = true;
            pthread_cond_broadcast(&c->done);
        }
        c->active--;
        if (c->paused || atomic_load(&c->halt)) pthread_cond_broadcast(&c->done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

aril__worker_pool *aril__worker_pool_new(aril_loader *l)
{
    aril__worker_pool *c = aril__calloc(sizeof *c);
    if (c) c->thread = aril__calloc((size_t)l->opts.workers * sizeof *c->thread);
    if (!c || !c->thread) {
        free(c);
        aril__fail(ARIL_ERR_MEMORY, "loader: out of memory");
        return NULL;
    }
    c->loader = l;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, NULL);
    atomic_store(&c->halt, true);
    return c;
}

/* Starts the threads; called when the first batch is requested. */
static aril_status start(aril__worker_pool *c)
{
    if (c->n) return ARIL_OK;
    c->pid = getpid();
    enlist(c);
    sigset_t before;
    aril__block_signals(&before);
    pthread_mutex_lock(&c->lock); /* workers read n */
    while (c->n < c->loader->opts.workers && !pthread_create(&c->thread[c->n], NULL, work, c))
        c->n++;
    /* A thread that is still starting may hold C library locks, which a fork would copy. */
    while (c->begun < c->n) pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (c->n) return ARIL_OK;
    strike_off(c);
    return aril__fail(ARIL_ERR_STATE, "loader: cannot start a worker thread");
}

void aril__worker_pool_rest(aril__worker_pool *c)
{
    pthread_mutex_lock(&c->lock);
    atomic_store(&c->halt, true);
    while (c->active) pthread_cond_wait(&c->done, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

aril_status aril__worker_pool_go(aril__worker_pool *c, int64_t first)
{
    aril_loader *l = c->loader;
    aril_status status = start(c);
    if (status < 0) return status;
    pthread_mutex_lock(&c->lock);
    for (int k = 0; k < l->n_slots; k++) l->slot[k].ready = false;
    c->low = c->hand = first;
    c->open = false;
    c->end = !l->stream ? l->length : l->stream_ended ? first : INT64_MAX;
    c->streaming = false;
    atomic_store(&c->halt, false);
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    return ARIL_OK;
}

aril__slot *aril__worker_pool_take(aril__worker_pool *c, int64_t number)
{
    aril_loader *l = c->loader;
    aril__slot *s = &l->slot[number % l->n_slots];
    pthread_mutex_lock(&c->lock);
    if (c->low != number) {
        c->low = number;
        pthread_cond_broadcast(&c->work);
    }
    while (number < c->end && !(s->ready && s->number == number))
        pthread_cond_wait(&c->done, &c->lock);
    bool there = number < c->end;
    pthread_mutex_unlock(&c->lock);
    return there ? s : NULL;
}

bool aril__worker_pool_is_gone(const aril__worker_pool *c)
{
    return c->n && c->pid != getpid();
}

void aril__worker_pool_free(aril__worker_pool *c)
{
    if (!c) return;
    if (aril__worker_pool_is_gone(c)) {
        /* The threads are gone: nothing to join, and what they waited on cannot be destroyed. */
        free(c->thread);
        free(c);
        return;
    }
    if (c->n) strike_off(c);
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    atomic_store(&c->halt, true);
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (int k = 0; k < c->n; k++) pthread_join(c->thread[k], NULL);
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c->thread);
    free(c);
}
