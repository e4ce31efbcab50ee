/* The cache of chosen rows and their plans: prepared once per description, bounded, shared by
 * threads, and never freed while a call uses it. */
#include "support/test.h"

#include <aril/aril.h>

#include "core/parallel.h"
#include "ops/shape/concat.h"
#include "ops/table/plans.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rows for repeat, which has none: one that declines, and one whose plan records what it was
 * prepared for. The reference computes. */
static atomic_int asked_first, prepared, destroyed, wrong;
static _Thread_local int depth;

typedef struct plan_for {
    unsigned magic;
    int64_t rows, columns, times;
} plan_for;

static const char *decline(const aril_run *r, aril_plan *plan)
{
    (void)r;
    (void)plan;
    atomic_fetch_add(&asked_first, 1);
    return "never in the mood";
}

static int64_t times_of(const aril_run *r)
{
    return ((const struct repeat_attrs *)r->attrs)->times[0];
}

static aril_tensor *repeated(aril_tensor *x, int64_t more)
{
    return aril_repeat_interleave(x, 2 + more, 0); /* once is a copy, not a repetition */
}

static const char *make_plan(const aril_run *r, aril_plan *plan)
{
    const aril_tensor *x = r->in[0];
    if (x->ndim == 3) return "three dimensions";
    plan_for *p = malloc(sizeof *p);
    *p = (plan_for){ 0x600d, x->dim[0], x->dim[1], times_of(r) };
    plan->prepared = p;
    plan->workspace = 256;
    atomic_fetch_add(&prepared, 1);
    return NULL;
}

static void destroy_plan(void *prepared_)
{
    plan_for *p = prepared_;
    if (p->magic != 0x600d) atomic_fetch_add(&wrong, 1);
    p->magic = 0xdead;
    free(p);
    atomic_fetch_add(&destroyed, 1);
}

static aril_status run_planned(aril_run *r)
{
    const plan_for *p = r->prepared;
    const aril_tensor *x = r->in[0];
    if (depth > 0 && x->dim[0] > 1) { /* nested calls, with other descriptions */
        ARIL_SCOPE;
        depth--;
        for (int k = 1; k < 4; k++) repeated(aril_slice(r->in[0], 0, 0, 1, 1), k * 1000 + depth);
        depth++;
    }
    if (p->magic != 0x600d || p->rows != x->dim[0] || p->columns != x->dim[1] ||
        p->times != times_of(r) || !r->workspace)
        atomic_fetch_add(&wrong, 1);
    return r->op->ref(r);
}

static const aril_row rows[] = {
    { .op = "repeat",
      .name = "first",
      .dtypes = DT(ARIL_F32),
      .prepare = decline,
      .run = run_planned },
    { .op = "repeat",
      .name = "second",
      .dtypes = DT(ARIL_F32),
      .prepare = make_plan,
      .run = run_planned,
      .destroy = destroy_plan },
};

static void start(void)
{
    static bool started;
    aril_scalar(0);
    if (!started) aril__rows_register(ARIL__CPU, rows, 2);
    started = true;
}

static bool is_right(int64_t n, int64_t m, int64_t more)
{
    ARIL_SCOPE;
    aril_tensor *t = repeated(aril_ones(ARIL_SHAPE(n, m), ARIL_F32, aril_cpu()), more);
    return aril_item(aril_sum(t, ARIL_ALL)) == (double)(n * m * (2 + more));
}

TEST(rows_are_prepared_once)
{
    start();
    int before = atomic_load(&prepared), declined = atomic_load(&asked_first);
    for (int i = 0; i < 10; i++) CHECK(is_right(3, 5, 1));
    CHECK_INT(atomic_load(&prepared), before + 1);
    CHECK_INT(atomic_load(&asked_first), declined + 1);
    CHECK(is_right(3, 5, 2)); /* other attributes */
    CHECK(is_right(5, 3, 1)); /* other sizes */
    CHECK_INT(atomic_load(&prepared), before + 3);
    ARIL_SCOPE;
    for (int i = 0; i < 3; i++) /* all decline: that is cached too */
        CHECK(aril_tensor_status(
                  repeated(aril_ones(ARIL_SHAPE(2, 3, 5), ARIL_F32, aril_cpu()), 0)) == ARIL_OK);
    CHECK_INT(atomic_load(&asked_first), declined + 4);
    CHECK_INT(atomic_load(&prepared), before + 3);
}

TEST(the_number_of_threads_is_part_of_the_description)
{
    start();
    aril_set_threads(2);
    CHECK(is_right(6, 6, 0));
    int before = atomic_load(&prepared);
    aril_set_threads(3);
    CHECK(is_right(6, 6, 0));
    CHECK_INT(atomic_load(&prepared), before + 1);
    aril_set_threads(2);
    CHECK(is_right(6, 6, 0));
    aril_set_deterministic(ARIL_ANY_THREADS);
    CHECK(is_right(6, 6, 0));
    aril_set_threads(3); /* work is cut alike now, but each thread has its own scratch memory */
    CHECK(is_right(6, 6, 0));
    CHECK_INT(atomic_load(&prepared), before + 3);
    aril_set_deterministic(ARIL_SAME_THREADS);
    aril_set_threads(0);
}

TEST(the_cache_is_bounded)
{
    start();
    aril__plan_stats s = aril__plans_stats();
    for (int64_t k = 0; k < 2 * s.max; k++) CHECK(is_right(2, 2, k));
    s = aril__plans_stats();
    CHECK(s.kept <= s.max);
    /* Evicted plans are destroyed, except those that this thread holds. */
    CHECK(atomic_load(&prepared) - atomic_load(&destroyed) <= 2 * s.max);
    CHECK(atomic_load(&destroyed) > 0);
    CHECK_INT(atomic_load(&wrong), 0);
}

TEST(recently_used_plans_are_kept)
{
    start();
    aril__plan_stats s = aril__plans_stats();
    CHECK(is_right(7, 7, 3));
    int before = 0;
    for (int64_t k = 0; k < 3 * s.max; k++) {
        CHECK(is_right(1, 1, 5000 + k));
        before = atomic_load(&prepared);
        CHECK(is_right(7, 7, 3));
        CHECK_INT(atomic_load(&prepared), before);
    }
}

TEST(nested_calls)
{
    start();
    for (int64_t k = 0; k < 700; k++) {
        depth = 3;
        CHECK(is_right(4, 3, k));
        depth = 0;
    }
    CHECK_INT(atomic_load(&wrong), 0);
}

TEST(failed_allocation_caches_nothing)
{
    start();
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(9, 9), ARIL_F32, aril_cpu());
    for (int64_t n = 1; n < 50; n++) {
        aril_fail_allocation(n);
        aril_tensor *t = repeated(x, 100 + n);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        if (aril_tensor_status(t) == ARIL_OK)
            CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), (double)(81 * (102 + n)), 0);
        if (!failed) break;
    }
    CHECK_INT(atomic_load(&wrong), 0);
}

/* ---- several threads ---- */

static void *use_plans(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < 3000; i++) {
        seed = seed * 1664525u + 1013904223u;
        depth = i % 3 == 0 ? 2 : 0;
        int64_t k = seed >> 8;
        if (!is_right(1 + k % 3, 2, k % 1500)) atomic_fetch_add(&wrong, 1);
    }
    depth = 0;
    return NULL;
}

TEST(threads_share_plans)
{
    start();
    pthread_t thread[4];
    int n = 0;
    while (n < 4 && pthread_create(&thread[n], NULL, use_plans, (void *)(uintptr_t)(n + 1)) == 0)
        n++;
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    CHECK_INT(n, 4);
    CHECK_INT(atomic_load(&wrong), 0);
    aril__plan_stats s = aril__plans_stats();
    /* The threads have ended and hold no plans. */
    CHECK(atomic_load(&prepared) - atomic_load(&destroyed) <= s.kept + 512);
}

TEST(new_rows_are_tried)
{
    start();
    CHECK(is_right(8, 8, 0));
    int before = atomic_load(&prepared);
    aril__plans_outdate(); /* as registering rows for another op does */
    CHECK(is_right(8, 8, 0));
    CHECK_INT(atomic_load(&prepared), before + 1);
}

TEST(plans_are_made_anew_when_tf32_is_allowed)
{
    start();
    CHECK(!aril_tf32_allowed());
    CHECK(is_right(8, 8, 0));
    int before = atomic_load(&prepared);
    aril_allow_tf32(true);
    CHECK(aril_tf32_allowed());
    CHECK(is_right(8, 8, 0));
    CHECK_INT(atomic_load(&prepared), before + 1);
    aril_allow_tf32(false);
    CHECK(!aril_tf32_allowed());
}

TEST(plans_are_made_anew_when_tuning_or_determinism_changes)
{
    start();
    CHECK(is_right(8, 8, 0));
    int before = atomic_load(&prepared);
    aril_set_tuning(true);
    CHECK(aril_tuning());
    CHECK(is_right(8, 8, 0));
    CHECK_INT(atomic_load(&prepared), before + 1);
    aril_set_tuning(true); /* no change */
    CHECK(is_right(8, 8, 0));
    CHECK_INT(atomic_load(&prepared), before + 1);
    aril_set_tuning(false);
    CHECK(!aril_tuning());
    CHECK(is_right(8, 8, 0));
    before = atomic_load(&prepared);
    CHECK_INT(aril_set_deterministic(ARIL_NOT_DETERMINISTIC), ARIL_OK);
    CHECK(is_right(8, 8, 0));
    CHECK_INT(atomic_load(&prepared), before + 1);
    CHECK_INT(aril_set_deterministic(ARIL_SAME_THREADS), ARIL_OK);
}

/* ---- the log ---- */

/* The output of fn on stderr. */
static char *logged(void (*fn)(void))
{
    char path[] = "/tmp/aril-log-XXXXXX";
    int fd = mkstemp(path), before = dup(STDERR_FILENO);
    if (fd < 0 || before < 0) return NULL;
    unlink(path);
    dup2(fd, STDERR_FILENO);
    aril_set_log("dispatch");
    fn();
    aril_set_log("");
    dup2(before, STDERR_FILENO);
    close(before);
    char *text = calloc(1, 4096);
    lseek(fd, 0, SEEK_SET);
    ssize_t n = text ? read(fd, text, 4095) : 0;
    if (n < 0) text[0] = 0;
    close(fd);
    return text;
}

static void two_calls(void)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_borrow((float[12]){ 0 }, ARIL_SHAPE(3, 4), ARIL_F32, NULL, NULL);
    repeated(x, 77);
    repeated(x, 77); /* the second call uses the cached choice */
    repeated(aril_borrow((float[12]){ 0 }, ARIL_SHAPE(1, 3, 4), ARIL_F32, NULL, NULL), 77);
    repeated(aril_borrow((int64_t[12]){ 0 }, ARIL_SHAPE(3, 4), ARIL_I64, NULL, NULL), 77);
}

TEST(log_shows_the_row_and_why_others_declined)
{
    start();
    char *text = logged(two_calls);
    CHECK(text != NULL);
    const char *line =
        "aril: dispatch: repeat f32 [3,4]: second; declined: first (never in the mood)\n";
    CHECK(strncmp(text, line, strlen(line)) == 0);
    CHECK(strncmp(text + strlen(line), line, strlen(line)) == 0);
    CHECK(strstr(text, "repeat f32 [1,3,4]: the reference; declined: first (never in the mood), "
                       "second (three dimensions)\n"));
    CHECK(strstr(text, "repeat i64 [3,4]: the reference; declined: first (dtype), "
                       "second (dtype)\n"));
    free(text);
}
