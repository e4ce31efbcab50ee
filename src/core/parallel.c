#include "core/parallel.h"
#include "core/error.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifdef ARIL_OPENMP
#include <omp.h>
#endif

enum { MAX_THREADS = 1024 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int chosen_threads;  /* 0: the default */
static int default_threads = 1;    /* written once */
static atomic_bool fork_watched;   /* the atfork handler is installed */
static atomic_bool forked;         /* in a child whose parent has, or had, workers */
static _Thread_local bool serial;  /* by aril__thread_set_serial */
static _Thread_local bool in_loop; /* runs chunks of a parallel loop */

/* Held while a thread has the workers. Only ever tried: who finds it taken works alone. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

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

static void read_settings(void)
{
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

/* Workers do not exist in a child, and OpenMP's would hang it: libgomp waits for threads that were
 * not copied. */
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
        in_loop = true; /* omp_in_parallel() denies a region that got one thread only */
#pragma omp for schedule(static)
        for (int64_t k = 0; k < chunks; k++) run_chunks(k, k + 1, n, grain, fn, ctx);
        in_loop = false;
    }
}

void aril__parallel_shutdown(void)
{
    /* libgomp keeps its threads for other users in the process, and ends them itself. */
}

void aril__parallel_sync_library(void)
{
    watch_forks(); /* the library is about to start workers, and Aril may not have yet */
    int want = aril__parallel_is_serial() ? 1 : aril_threads();
    if (omp_get_max_threads() != want) /* a setting of the calling thread */
        omp_set_num_threads(want);
}

#else

/* How often a thread looks for work, or for the last worker's end, before it sleeps: some
 * microseconds, so that a series of small ops finds the workers awake and an idle program costs
 * nothing. */
enum { SPINS = 256 };

/* Chunks are handed out in this many runs for each thread: few enough to make the counter cheap,
 * enough for a late or slow thread not to hold up the rest. */
enum { RUNS_PER_THREAD = 8 };

struct job {
    int64_t n, grain, chunks, run;
    aril__range_fn *fn;
    void *ctx;
};

static struct {
    pthread_mutex_t lock; /* guards what follows, but for the atomics */
    pthread_cond_t work;  /* a job was opened, or stop */
    pthread_cond_t idle;  /* the last worker left a closed job */
    struct job job;
    bool open; /* workers may join the job */
    bool stop;
    int places; /* how many more may join */
    int workers;
    pthread_t worker[MAX_THREADS];
    atomic_uint epoch; /* counts jobs; what idle workers watch */
    atomic_int inside; /* workers in the job; changed under lock */
    atomic_llong next; /* first chunk not yet handed out */
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .idle = PTHREAD_COND_INITIALIZER,
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work_on(const struct job *j)
{
    for (;;) {
        int64_t first = atomic_fetch_add_explicit(&pool.next, j->run, memory_order_relaxed);
        if (first >= j->chunks) return;
        int64_t last = j->chunks - first < j->run ? j->chunks : first + j->run;
        run_chunks(first, last, j->n, j->grain, j->fn, j->ctx);
    }
}

static void *worker_main(void *arg)
{
    (void)arg;
    in_loop = true;    /* whatever runs here is inside a parallel loop */
    unsigned seen = 0; /* a job opened while this thread started is still worth a look */
    for (;;) {
        for (int i = 0; i < SPINS; i++) {
            if (atomic_load_explicit(&pool.epoch, memory_order_relaxed) != seen) break;
            relax();
        }
        pthread_mutex_lock(&pool.lock);
        while (atomic_load_explicit(&pool.epoch, memory_order_relaxed) == seen && !pool.stop)
            pthread_cond_wait(&pool.work, &pool.lock);
        if (pool.stop) {
            pthread_mutex_unlock(&pool.lock);
            return NULL;
        }
        seen = atomic_load_explicit(&pool.epoch, memory_order_relaxed);
        bool join = pool.open && pool.places > 0;
        struct job job = pool.job;
        if (join) {
            pool.places--;
            atomic_fetch_add_explicit(&pool.inside, 1, memory_order_relaxed);
        }
        pthread_mutex_unlock(&pool.lock);
        if (!join) continue;

        work_on(&job);

        pthread_mutex_lock(&pool.lock);
        if (atomic_fetch_sub_explicit(&pool.inside, 1, memory_order_release) == 1 && !pool.open)
            pthread_cond_signal(&pool.idle);
        pthread_mutex_unlock(&pool.lock);
    }
}

/* Brings the pool to `wanted` workers, or as many as the system allows. */
static void start_workers(int wanted)
{
    if (pool.workers >= wanted) return;
    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        if (pthread_create(&pool.worker[pool.workers], NULL, worker_main, NULL)) break;
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void run_shared(int64_t chunks, int threads, int64_t n, int64_t grain, aril__range_fn *fn,
                       void *ctx)
{
    start_workers(threads - 1);
    int64_t run = chunks / ((int64_t)threads * RUNS_PER_THREAD);
    struct job job = { n, grain, chunks, run < 1 ? 1 : run, fn, ctx };

    pthread_mutex_lock(&pool.lock);
    pool.job = job;
    pool.open = true;
    pool.places = threads - 1;
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool.epoch, 1, memory_order_relaxed);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);

    in_loop = true;
    work_on(&job);
    in_loop = false;

    /* Close the job, so that workers still asleep need not be waited for. */
    pthread_mutex_lock(&pool.lock);
    pool.open = false;
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool.inside, memory_order_acquire) == 0) return;
        relax();
    }
    pthread_mutex_lock(&pool.lock);
    while (atomic_load_explicit(&pool.inside, memory_order_acquire) > 0)
        pthread_cond_wait(&pool.idle, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void aril__parallel_shutdown(void)
{
    /* A loop may be running: exit() called by another thread, or by a chunk. Then leave it. */
    if (atomic_load(&forked) || pthread_mutex_trylock(&turn)) return;
    pthread_mutex_lock(&pool.lock);
    pool.stop = true;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.workers; i++) pthread_join(pool.worker[i], NULL);
    pool.workers = 0;
    pool.stop = false;
    pthread_mutex_unlock(&turn);
}

void aril__parallel_sync_library(void)
{
}

#endif

void aril__parallel_for(int64_t n, int64_t grain, aril__range_fn *fn, void *ctx)
{
    if (n <= 0) return;
    if (n <= grain) {
        fn(ctx, 0, n);
        return;
    }
    if (grain < 1) grain = 1;

    int64_t chunks = aril__parallel_chunks(n, grain);
    if (aril__parallel_is_serial() || chunks == 1 || pthread_mutex_trylock(&turn)) {
        run_chunks(0, chunks, n, grain, fn, ctx);
        return;
    }
    watch_forks();
    int threads = aril_threads();
    if (threads > chunks) threads = (int)chunks;
    run_shared(chunks, threads, n, grain, fn, ctx);
    pthread_mutex_unlock(&turn);
}
