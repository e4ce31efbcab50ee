/* The parallel loop: every chunk once, the same chunks for any number of threads, and no problems
 * with nesting, several callers or fork. */
#include "support/test.h"

#include "aril/error.h"
#include "core/clock.h"
#include "core/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int thread_counts[] = { 1, 2, 3, 4, 7 };
enum { COUNTS = sizeof thread_counts / sizeof thread_counts[0], N = 20000 };

/* ---- Every element once ---------------------------------------------------------------------- */

struct marks {
    int64_t n, grain;
    atomic_int *mark;
    atomic_int bad, calls;
};

static void mark_range(void *ctx, int64_t begin, int64_t end)
{
    struct marks *m = ctx;
    int64_t grain = m->grain < 1 ? 1 : m->grain;
    int64_t last = m->n - begin < grain ? m->n : begin + grain;
    if (begin % grain != 0 || end != last) atomic_fetch_add(&m->bad, 1);
    atomic_fetch_add(&m->calls, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&m->mark[i], 1);
}

TEST(each_chunk_runs_once)
{
    static atomic_int mark[N];
    const int64_t sizes[] = { -1, 0, 1, 2, 63, 64, 65, 1000, N };
    const int64_t grains[] = { -5, 0, 1, 7, 64, 1000, N, INT64_MAX };
    for (int t = 0; t < COUNTS; t++) {
        CHECK_INT(aril_set_threads(thread_counts[t]), 0);
        CHECK_INT(aril_threads(), thread_counts[t]);
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
                for (int i = 0; i < N; i++) atomic_store(&mark[i], 0);
                struct marks m = { .n = sizes[s], .grain = grains[g], .mark = mark };
                aril__parallel_for(m.n, m.grain, mark_range, &m);
                CHECK_INT(m.bad, 0);
                CHECK_INT(m.calls, aril__parallel_chunks(m.n, m.grain));
                for (int i = 0; i < N; i++) CHECK_INT(mark[i], i < m.n);
            }
    }
    aril_set_threads(0);
}

/* ---- Slots ----------------------------------------------------------------------------------- */

enum { SLOTS = 3 };

struct slots {
    struct marks marks;
    int n; /* slots */
    atomic_bool used[SLOTS];
    bool nested;
};

static void mark_in_slot(void *ctx, int64_t begin, int64_t end, int slot)
{
    struct slots *s = ctx;
    if (slot < 0 || slot >= s->n) { /* no other thread has the slot now */
        atomic_fetch_add(&s->marks.bad, 1);
        return;
    }
    if (atomic_exchange(&s->used[slot], true)) atomic_fetch_add(&s->marks.bad, 1);
    if (s->nested) { /* a loop with slots of its own */
        struct slots inner = { .n = aril__parallel_slots(8, 1) };
        if (inner.n > SLOTS) inner.n = SLOTS;
        static atomic_int mark[SLOTS][8];
        inner.marks = (struct marks){ .n = 8, .grain = 1, .mark = mark[slot] };
        aril__parallel_for_slots(8, 1, inner.n, mark_in_slot, &inner);
        if (inner.marks.bad || inner.marks.calls != 8) atomic_fetch_add(&s->marks.bad, 1);
    }
    mark_range(&s->marks, begin, end);
    atomic_store(&s->used[slot], false);
}

/* A loop uses no more slots than it was given, whatever the number of threads is now. */
TEST(each_thread_has_its_own_slot)
{
    static atomic_int mark[N];
    const int64_t sizes[] = { 0, 1, 2, 63, 1000, N }, grains[] = { 0, 1, 7, 1000, INT64_MAX };
    for (int t = 0; t < COUNTS; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
                struct slots all = { .nested = g == 2 };
                aril_set_threads(SLOTS);
                all.n = aril__parallel_slots(sizes[s], grains[g]);
                CHECK(all.n >= 1 && all.n <= SLOTS);
                aril_set_threads(thread_counts[t]);
                for (int i = 0; i < N; i++) atomic_store(&mark[i], 0);
                all.marks = (struct marks){ .n = sizes[s], .grain = grains[g], .mark = mark };
                aril__parallel_for_slots(sizes[s], grains[g], all.n, mark_in_slot, &all);
                CHECK_INT(all.marks.bad, 0);
                CHECK_INT(all.marks.calls, aril__parallel_chunks(sizes[s], grains[g]));
                for (int i = 0; i < N; i++) CHECK_INT(mark[i], i < sizes[s]);
            }
    aril_set_threads(0);
}

/* ---- The same partial results ---------------------------------------------------------------- */

enum { GRAIN = 77, CHUNKS = (N + GRAIN - 1) / GRAIN };

struct sums {
    float partial[CHUNKS];
};

static void add_range(void *ctx, int64_t begin, int64_t end)
{
    struct sums *s = ctx;
    float sum = 0;
    for (int64_t i = begin; i < end; i++) sum += 1.0f / (float)(i + 1);
    s->partial[begin / GRAIN] = sum;
}

TEST(partials_do_not_depend_on_threads)
{
    static struct sums first, now;
    for (int round = 0; round < 20; round++)
        for (int t = 0; t < COUNTS; t++) {
            aril_set_threads(thread_counts[t]);
            memset(&now, 0, sizeof now);
            aril__parallel_for(N, GRAIN, add_range, &now);
            if (round == 0 && t == 0) first = now;
            CHECK(memcmp(&first, &now, sizeof now) == 0);
        }
    aril_set_threads(0);
}

TEST(many_small_loops)
{
    static struct sums now;
    aril_set_threads(4);
    for (int i = 0; i < 5000; i++) {
        now.partial[3] = 0;
        aril__parallel_for(4 * GRAIN, GRAIN, add_range, &now);
        CHECK(now.partial[3] > 0);
    }
    aril_set_threads(0);
}

TEST(pieces_depend_on_threads_or_size)
{
    CHECK_INT(aril_deterministic(), ARIL_SAME_THREADS);
    for (int t = 0; t < COUNTS; t++) {
        aril_set_threads(thread_counts[t]);
        CHECK_INT(aril__parallel_pieces(1000, 1), thread_counts[t]);
        CHECK_INT(aril__parallel_pieces(1000, 500), thread_counts[t] < 2 ? 1 : 2);
        CHECK_INT(aril__parallel_pieces(0, 1), 1);
        CHECK_INT(aril__parallel_pieces(3, 100), 1);
        CHECK_INT(aril__parallel_pieces(1000, 0), thread_counts[t]);
    }
    CHECK_INT(aril_set_deterministic(ARIL_ANY_THREADS), ARIL_OK);
    CHECK_INT(aril_deterministic(), ARIL_ANY_THREADS);
    int64_t many = aril__parallel_pieces(1000, 1);
    CHECK(many > 1);
    for (int t = 0; t < COUNTS; t++) {
        aril_set_threads(thread_counts[t]);
        CHECK_INT(aril__parallel_pieces(1000, 1), many);
        CHECK_INT(aril__parallel_pieces(1000, 500), 2);
        aril__thread_set_serial(true);
        CHECK_INT(aril__parallel_pieces(1000, 1), many);
        aril__thread_set_serial(false);
    }
    CHECK_INT(aril_set_deterministic((aril_determinism)7), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_deterministic(), ARIL_ANY_THREADS);
    CHECK_INT(aril_set_deterministic(ARIL_SAME_THREADS), ARIL_OK);
    aril_set_threads(4);
    aril__thread_set_serial(true);
    CHECK_INT(aril__parallel_pieces(1000, 1), 1);
    aril__thread_set_serial(false);
    aril_set_threads(0);
}

/* ---- Threads take part ----------------------------------------------------------------------- */

struct meeting {
    atomic_int present;
};

/* Waits, with a timeout, until two chunks run concurrently. */
static void meet(void *ctx, int64_t begin, int64_t end)
{
    struct meeting *m = ctx;
    (void)begin;
    (void)end;
    atomic_fetch_add(&m->present, 1);
    for (int i = 0; i < 2000 && atomic_load(&m->present) < 2; i++) usleep(1000);
}

TEST(chunks_run_concurrently)
{
    struct meeting m = { 0 };
    aril_set_threads(2);
    double start = aril__seconds();
    aril__parallel_for(2, 1, meet, &m);
    double took = aril__seconds() - start;
    aril_set_threads(0);
    CHECK(took < 1.9);
}

/* ---- Nesting and serial threads -------------------------------------------------------------- */

struct loops {
    atomic_int strangers, inner;
};

struct inner {
    struct loops *loops;
    pthread_t caller;
};

static void inner_range(void *ctx, int64_t begin, int64_t end)
{
    struct inner *in = ctx;
    if (!pthread_equal(in->caller, pthread_self())) atomic_fetch_add(&in->loops->strangers, 1);
    atomic_fetch_add(&in->loops->inner, (int)(end - begin));
}

static void outer_range(void *ctx, int64_t begin, int64_t end)
{
    struct inner in = { ctx, pthread_self() };
    for (int64_t i = begin; i < end; i++) aril__parallel_for(100, 1, inner_range, &in);
}

TEST(nested_loops_are_serial)
{
    struct loops loops = { 0 };
    aril_set_threads(4);
    aril__parallel_for(50, 1, outer_range, &loops);
    aril_set_threads(0);
    CHECK_INT(loops.strangers, 0);
    CHECK_INT(loops.inner, 5000);
}

static void *serial_thread(void *arg)
{
    aril__thread_set_serial(true);
    struct inner in = { arg, pthread_self() };
    aril__parallel_for(1000, 1, inner_range, &in);
    if (!aril__parallel_is_serial()) atomic_fetch_add(&in.loops->strangers, 1);
    aril__thread_set_serial(false);
    if (aril__parallel_is_serial()) atomic_fetch_add(&in.loops->strangers, 1);
    return NULL;
}

TEST(marked_threads_are_serial)
{
    struct loops loops = { 0 };
    pthread_t thread;
    aril_set_threads(4);
    CHECK_INT(pthread_create(&thread, NULL, serial_thread, &loops), 0);
    pthread_join(thread, NULL);
    aril_set_threads(0);
    CHECK_INT(loops.strangers, 0);
    CHECK_INT(loops.inner, 1000);
}

/* ---- Several callers ------------------------------------------------------------------------- */

static void *caller_thread(void *arg)
{
    struct sums *want = arg, *got = malloc(sizeof *got);
    bool same = got != NULL;
    for (int i = 0; i < 100 && same; i++) {
        memset(got, 0, sizeof *got);
        aril__parallel_for(N, GRAIN, add_range, got);
        same = memcmp(got, want, sizeof *got) == 0;
    }
    free(got);
    return same ? NULL : arg;
}

TEST(several_callers)
{
    static struct sums want;
    pthread_t thread[6];
    aril_set_threads(1);
    aril__parallel_for(N, GRAIN, add_range, &want);
    aril_set_threads(3);
    int n = 0;
    while (n < 6 && pthread_create(&thread[n], NULL, caller_thread, &want) == 0) n++;
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        void *result;
        pthread_join(thread[i], &result);
        wrong += result != NULL;
    }
    aril_set_threads(0);
    CHECK_INT(n, 6);
    CHECK_INT(wrong, 0);
}

/* ---- fork ------------------------------------------------------------------------------------ */

TEST(forked_child_runs_serially)
{
    static struct sums want, got;
    aril_set_threads(3);
    aril__parallel_for(N, GRAIN, add_range, &want); /* starts the workers */
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20); /* a child that hangs is a failure, not a wait */
            aril__parallel_for(N, GRAIN, add_range, &got);
            bool good = memcmp(&got, &want, sizeof got) == 0 && aril__parallel_is_serial();
            aril__parallel_shutdown();
            _exit(good ? 0 : 1);
        }
        int status = -1;
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        memset(&got, 0, sizeof got);
        aril__parallel_for(N, GRAIN, add_range, &got); /* and the parent continues */
        CHECK(memcmp(&got, &want, sizeof got) == 0);
    }
    aril_set_threads(0);
}

/* ---- The pool's life ------------------------------------------------------------------------- */

TEST(restart_after_shutdown)
{
    static struct sums want, got;
    aril_set_threads(3);
    aril__parallel_for(N, GRAIN, add_range, &want);
    for (int i = 0; i < 10; i++) {
        aril__parallel_shutdown();
        aril__parallel_shutdown();
        memset(&got, 0, sizeof got);
        aril__parallel_for(N, GRAIN, add_range, &got);
        CHECK(memcmp(&got, &want, sizeof got) == 0);
    }
    aril_set_threads(0);
}

TEST(idle_threads_sleep)
{
    static struct sums sums;
    aril_set_threads(4);
    aril__parallel_for(N, GRAIN, add_range, &sums);
    aril_set_threads(0);
    usleep(200000); /* OpenMP's threads spin a little longer than the pool's */
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    CHECK((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9 < 0.1);
}

TEST(thread_counts_are_checked)
{
    aril_set_threads(5);
    CHECK_INT(aril_set_threads(-1), ARIL_ERR_ARG);
    CHECK_INT(aril_set_threads(1025), ARIL_ERR_ARG);
    CHECK(!aril_ok());
    aril_clear_error();
    CHECK_INT(aril_threads(), 5);
    CHECK_INT(aril_set_threads(1024), 0);
    CHECK_INT(aril_threads(), 1024);
    CHECK_INT(aril_set_threads(0), 0);
    CHECK(aril_threads() >= 1);
}
