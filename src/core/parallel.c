#include "core/clock.h"
#include "core/parallel.h"
#include "core/error.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef ARIL_OPENMP
#include <omp.h>
#endif

enum { MAX_THREADS = 1024 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int chosen_threads;  /* 0: the default */
static int default_threads = 1;    /* written once */
static atomic_int determinism;     /* aril_determinism */
static atomic_bool fork_watched;   /* the atfork handler is installed */
static atomic_bool forked;         /* in a child whose parent has, or had, workers */
static _Thread_local bool serial;  /* set by aril__thread_set_serial */
static _Thread_local bool in_loop; /* this thread runs chunks of a parallel loop */
static _Thread_local int own_slot; /* a worker's number, 0 in other threads */

/* Set while a thread has the workers. Never waited for: a thread that finds it set runs
 * serially. */
static atomic_bool turn;

static bool take_turn(void)
{
    return !atomic_load_explicit(&turn, memory_order_relaxed) &&
           !atomic_exchange_explicit(&turn, true, memory_order_acquire);
}

static void end_turn(void)
{
    atomic_store_explicit(&turn, false, memory_order_release);
}

static int cpu_count(void)
{
    /* Machines with more than CPU_SETSIZE (1024) CPUs need a larger set than cpu_set_t. */
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 16; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) return 1;
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int failed = sched_getaffinity(0, size, set);
        int error = errno;
        int count = failed ? 1 : CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (!failed || error != EINVAL)
            return count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : count;
    }
    return 1;
}

static void read_determinism(void)
{
    const char *text = getenv("ARIL_DETERMINISTIC");
    if (!text || !*text || strcmp(text, "same_threads") == 0) return;
    if (strcmp(text, "any_threads") == 0)
        atomic_store(&determinism, ARIL_ANY_THREADS);
    else if (strcmp(text, "no") == 0)
        atomic_store(&determinism, ARIL_NOT_DETERMINISTIC);
    else
        fprintf(stderr,
                "aril: ARIL_DETERMINISTIC=%.32s ignored: expected same_threads, any_threads or "
                "no\n",
                text);
}

static void read_settings(void)
{
    read_determinism();
    default_threads = cpu_count();
    const char *text = getenv("ARIL_THREADS");
    if (!text || !*text) return;
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *end || n < 0 || n > MAX_THREADS) {
        fprintf(stderr, "aril: ARIL_THREADS=%.32s ignored: expected a number from 1 to %d\n", text,
                MAX_THREADS);
        return;
    }
    atomic_store(&chosen_threads, (int)n);
}

aril_status aril_set_threads(int n)
{
    if (n < 0 || n > MAX_THREADS)
        return aril__fail(ARIL_ERR_ARG, "set_threads: expected 0 to %d, got %d", MAX_THREADS, n);
    pthread_once(&once, read_settings);
    atomic_store(&chosen_threads, n);
    return 0;
}

int aril_threads(void)
{
    pthread_once(&once, read_settings);
    int n = atomic_load_explicit(&chosen_threads, memory_order_relaxed);
    return n ? n : default_threads;
}

aril_status aril_set_deterministic(aril_determinism level)
{
    if (level != ARIL_SAME_THREADS && level != ARIL_ANY_THREADS && level != ARIL_NOT_DETERMINISTIC)
        return aril__fail(ARIL_ERR_ARG,
                          "set_deterministic: expected ARIL_SAME_THREADS, ARIL_ANY_THREADS or "
                          "ARIL_NOT_DETERMINISTIC, got %d",
                          (int)level);
    pthread_once(&once, read_settings);
    atomic_store(&determinism, (int)level);
    return ARIL_OK;
}

aril_determinism aril_deterministic(void)
{
    pthread_once(&once, read_settings);
    return (aril_determinism)atomic_load_explicit(&determinism, memory_order_relaxed);
}

int64_t aril__parallel_pieces(int64_t units, int64_t min)
{
    /* Enough pieces for the cores of most machines, few enough to keep partial results cheap. */
    enum { BY_SIZE = 16 };
    if (min < 1) min = 1;
    int64_t max = units / min, pieces = BY_SIZE;
    if (aril_deterministic() != ARIL_ANY_THREADS)
        pieces = aril__parallel_is_serial() ? 1 : aril_threads();
    if (pieces > max) pieces = max;
    return pieces < 1 ? 1 : pieces;
}

void aril__thread_set_serial(bool value)
{
    serial = value;
}

bool aril__parallel_is_serial(void)
{
#ifdef ARIL_OPENMP
    if (omp_in_parallel()) return true;
#endif
    return serial || in_loop || atomic_load_explicit(&forked, memory_order_relaxed) ||
           aril_threads() == 1;
}

/* A forked child has no workers, and OpenMP would hang it: libgomp waits for threads that fork did
 * not copy. */
static void in_child(void)
{
    atomic_store(&forked, true);
}

static void watch_forks(void)
{
    if (!atomic_load_explicit(&fork_watched, memory_order_relaxed) &&
        !atomic_exchange(&fork_watched, true))
        pthread_atfork(NULL, NULL, in_child);
}

static void run_chunks(int64_t first, int64_t last, int64_t n, int64_t grain, aril__range_fn *fn,
                       void *ctx)
{
    for (int64_t k = first; k < last; k++) {
        int64_t begin = k * grain;
        fn(ctx, begin, n - begin < grain ? n : begin + grain);
    }
}

#ifdef ARIL_OPENMP

/* Consecutive chunks stay on one thread, and the same data on the same thread from op to op, which
 * keeps it in that core's cache. */
static void run_shared(int64_t chunks, int threads, int64_t n, int64_t grain, aril__range_fn *fn,
                       void *ctx)
{
#pragma omp parallel num_threads(threads)
    {
        in_loop = true; /* omp_in_parallel() is false in a region with one thread */
        own_slot = omp_get_thread_num();
#pragma omp for schedule(static)
        for (int64_t k = 0; k < chunks; k++) run_chunks(k, k + 1, n, grain, fn, ctx);
        own_slot = 0;
        in_loop = false;
    }
}

void aril__parallel_shutdown(void)
{
    /* libgomp keeps its threads for other users in the process, and stops them itself. */
}

void aril__parallel_sync_library(void)
{
    watch_forks(); /* the library is about to start workers, and Aril may not have yet */
    int want = aril__parallel_is_serial() ? 1 : aril_threads();
    if (omp_get_max_threads() != want) /* a setting of the calling thread */
        omp_set_num_threads(want);
}

#else

/* How long a worker looks for work, and a caller for the last worker to finish, before it sleeps.
 * Waking a sleeping thread takes longer than most small loops, on virtual machines longer than
 * large ones: a series of ops should find the workers awake. After SPIN_NS they let other threads
 * go first, so that a program that does something else has its cores. */
enum { SPIN_NS = 50000, AWAKE_NS = 1000000 };

/* A thread's chunks are handed out in this many runs: few enough to keep the counter cheap, enough
 * that a late or slow thread does not hold up the rest. */
enum { RUNS_PER_THREAD = 8 };

/* One thread's share of the chunks, in a cache line of its own. A thread processes its own share
 * first, which keeps data on one core from op to op, and then steals remaining work. */
struct share {
    _Alignas(64) atomic_llong next; /* first chunk not yet handed out */
    int64_t end;                    /* one past its last chunk */
    int64_t run;                    /* chunks handed out at a time */
};

/* What a worker may do, in a cache line of its own, so that many workers start and finish without
 * waiting for each other's. The caller opens the job, and closes it to a worker that has not joined
 * by the end: it need not be waited for. */
enum phase { CLOSED, OPEN, INSIDE };

struct post {
    _Alignas(64) atomic_int phase;
    atomic_bool asleep; /* or about to be */
};

static struct {
    struct { /* the job: written while no worker is inside */
        _Alignas(64) int64_t n, grain;
        aril__range_fn *fn;
        void *ctx;
        int threads;
    } job;
    _Alignas(64) atomic_int sleepers; /* workers asleep, or about to be */
    atomic_uint alarm;                /* changes when they are to wake up */
    atomic_bool stop;
    int workers;                           /* changed only by the thread that holds the turn */
    _Alignas(64) atomic_uint caller_waits; /* 1: the caller sleeps until a worker is done */
    pthread_t worker[MAX_THREADS];
    struct post post[MAX_THREADS];
    struct share share[MAX_THREADS]; /* written while no worker is inside */
} pool;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sleeps while *word is `value`; may return early. */
static void sleep_on(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Waits until a worker's phase is `value` (or is not), for at most AWAKE_NS. */
static inline bool look_for(const struct post *p, int value, bool equal)
{
    for (int64_t begin = 0;;) {
        for (int i = 0; i < 64; i++) {
            int phase = atomic_load_explicit(&p->phase, memory_order_acquire);
            if ((phase == value) == equal) return true;
            relax();
        }
        int64_t now = aril__nanoseconds();
        if (!begin) begin = now;
        if (now - begin >= AWAKE_NS || atomic_load_explicit(&pool.stop, memory_order_relaxed))
            return false;
        if (now - begin >= SPIN_NS) sched_yield();
    }
}

static void work_on(int self)
{
    int64_t n = pool.job.n, grain = pool.job.grain;
    int threads = pool.job.threads;
    aril__range_fn *fn = pool.job.fn;
    void *ctx = pool.job.ctx;
    for (int i = 0; i < threads; i++) {
        struct share *s = &pool.share[self + i < threads ? self + i : self + i - threads];
        while (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) {
            int64_t first = atomic_fetch_add_explicit(&s->next, s->run, memory_order_relaxed);
            if (first >= s->end) break;
            int64_t last = s->end - first < s->run ? s->end : first + s->run;
            run_chunks(first, last, n, grain, fn, ctx);
        }
    }
}

static void sleep_until_alarm(struct post *own)
{
    atomic_store(&own->asleep, true);
    atomic_fetch_add(&pool.sleepers, 1);
    unsigned alarm = atomic_load(&pool.alarm);
    if (atomic_load(&own->phase) != OPEN && !atomic_load(&pool.stop)) sleep_on(&pool.alarm, alarm);
    atomic_fetch_sub(&pool.sleepers, 1);
    atomic_store(&own->asleep, false);
}

static void *worker_main(void *arg)
{
    int self = (int)(intptr_t)arg; /* 1 .. */
    struct post *own = &pool.post[self];
    in_loop = true; /* whatever runs here is inside a parallel loop */
    own_slot = self;
    while (!atomic_load_explicit(&pool.stop, memory_order_relaxed)) {
        if (!look_for(own, OPEN, true)) {
            sleep_until_alarm(own);
            continue;
        }
        __builtin_prefetch(&pool.share[self], 1);
        int phase = OPEN;
        if (!atomic_compare_exchange_strong(&own->phase, &phase, INSIDE)) continue;

        work_on(self);

        atomic_store(&own->phase, CLOSED);
        if (atomic_load(&pool.caller_waits)) {
            atomic_store(&pool.caller_waits, 0);
            wake(&pool.caller_waits, 1);
        }
    }
    return NULL;
}

void aril__block_signals(sigset_t *before)
{
    static const int own[] = { SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP };
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&set, own[i]);
    pthread_sigmask(SIG_SETMASK, &set, before);
}

/* Grows the pool to `wanted` workers, or as many as the system allows. */
static void start_workers(int wanted)
{
    if (pool.workers >= wanted) return;
    sigset_t before;
    aril__block_signals(&before);
    while (pool.workers < wanted) {
        void *number = (void *)(intptr_t)(pool.workers + 1);
        if (pthread_create(&pool.worker[pool.workers], NULL, worker_main, number)) break;
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void wake_workers(int threads)
{
    for (int i = 1; i < threads; i++)
        if (atomic_load(&pool.post[i].asleep)) {
            atomic_fetch_add(&pool.alarm, 1);
            wake(&pool.alarm, INT_MAX);
            return;
        }
}

/* Waits until worker i, which has joined the job, has left it. */
static void wait_for(const struct post *p)
{
    while (!look_for(p, INSIDE, false)) {
        atomic_store(&pool.caller_waits, 1);
        if (atomic_load(&p->phase) == INSIDE) sleep_on(&pool.caller_waits, 1);
        atomic_store(&pool.caller_waits, 0);
    }
}

static void run_shared(int64_t chunks, int threads, int64_t n, int64_t grain, aril__range_fn *fn,
                       void *ctx)
{
    start_workers(threads - 1);
    pool.job.n = n;
    pool.job.grain = grain;
    pool.job.fn = fn;
    pool.job.ctx = ctx;
    pool.job.threads = threads;
    int64_t each = chunks / threads, more = chunks % threads;
    for (int i = 0; i < threads; i++) {
        struct share *s = &pool.share[i];
        int64_t first = each * i + (i < more ? i : more), count = each + (i < more);
        s->end = first + count;
        s->run = count / RUNS_PER_THREAD > 1 ? count / RUNS_PER_THREAD : 1;
        atomic_store_explicit(&s->next, first, memory_order_relaxed);
    }
    for (int i = 1; i < threads; i++)
        atomic_store_explicit(&pool.post[i].phase, OPEN, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&pool.sleepers, memory_order_relaxed)) wake_workers(threads);

    in_loop = true;
    work_on(0);
    in_loop = false;

    /* Close the job, so that workers still asleep need not be waited for. */
    for (int i = 1; i < threads; i++) {
        struct post *p = &pool.post[i];
        int phase = atomic_load_explicit(&p->phase, memory_order_acquire);
        if (phase == OPEN && atomic_compare_exchange_strong(&p->phase, &phase, CLOSED)) continue;
        if (phase == INSIDE) wait_for(p);
    }
}

void aril__parallel_shutdown(void)
{
    /* A loop may be running (exit() called by another thread, or by a chunk): leave it alone
     * then. */
    if (atomic_load(&forked) || !take_turn()) return;
    atomic_store(&pool.stop, true);
    atomic_fetch_add(&pool.alarm, 1);
    wake(&pool.alarm, INT_MAX);
    for (int i = 0; i < pool.workers; i++) pthread_join(pool.worker[i], NULL);
    pool.workers = 0;
    atomic_store(&pool.stop, false);
    end_turn();
}

void aril__parallel_sync_library(void)
{
}

#endif

/* Runs several chunks on at most that many threads; false if they have to be run serially. */
static bool run_parallel(int64_t chunks, int threads, int64_t n, int64_t grain, aril__range_fn *fn,
                         void *ctx)
{
    if (aril__parallel_is_serial() || threads == 1 || chunks == 1 || !take_turn()) return false;
    watch_forks();
    if (threads > chunks) threads = (int)chunks;
    run_shared(chunks, threads, n, grain, fn, ctx);
    end_turn();
    return true;
}

void aril__parallel_for(int64_t n, int64_t grain, aril__range_fn *fn, void *ctx)
{
    if (n <= 0) return;
    if (n <= grain) {
        fn(ctx, 0, n);
        return;
    }
    if (grain < 1) grain = 1;
    int64_t chunks = aril__parallel_chunks(n, grain);
    if (!run_parallel(chunks, aril_threads(), n, grain, fn, ctx))
        run_chunks(0, chunks, n, grain, fn, ctx);
}

int aril__parallel_slots(int64_t n, int64_t grain)
{
    int64_t chunks = aril__parallel_chunks(n, grain);
    int threads = aril__parallel_is_serial() ? 1 : aril_threads();
    return chunks < threads ? (int)(chunks > 1 ? chunks : 1) : threads;
}

typedef struct slot_job {
    aril__slot_fn *fn;
    void *ctx;
} slot_job;

static void run_in_slot(void *ctx, int64_t begin, int64_t end)
{
    const slot_job *j = ctx;
    j->fn(j->ctx, begin, end, own_slot);
}

void aril__parallel_for_slots(int64_t n, int64_t grain, int slots, aril__slot_fn *fn, void *ctx)
{
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    int64_t chunks = aril__parallel_chunks(n, grain);
    int threads = aril_threads();
    if (threads > slots) threads = slots;
    if (run_parallel(chunks, threads, n, grain, run_in_slot, &(slot_job){ fn, ctx })) return;
    for (int64_t k = 0; k < chunks; k++) { /* a worker runs its own loops in slot 0 */
        int64_t begin = k * grain;
        fn(ctx, begin, n - begin < grain ? n : begin + grain, 0);
    }
}
