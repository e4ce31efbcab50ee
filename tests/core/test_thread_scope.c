/* Scopes, errors and modes are per thread; tensors can cross between threads. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 200, TURNS = 40 };

static atomic_int wrong;
#define EXPECT(cond) ((cond) ? 0 : atomic_fetch_add(&wrong, 1))

static aril_tensor *number(double v)
{
    return aril_from(&v, ARIL_SHAPE(), ARIL_F64, aril_cpu());
}

static void run_all(void *(*fn)(void *), void *args, size_t size)
{
    pthread_t threads[THREADS];
    atomic_store(&wrong, 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, fn, (char *)args + i * size);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* ---- per-thread scopes ---- */

static aril_tensor *work(aril_tensor *x, int depth)
{
    ARIL_SCOPE;
    aril_tensor *z = aril_add(x, number(depth));
    if (depth) z = work(z, depth - 1);
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_mul(z, z);
        if (i == 1) break;
    }
    return aril_escape(aril_add(z, number(0)));
}

static void *nested_scopes(void *arg)
{
    int id = *(int *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        ARIL_SCOPE;
        EXPECT(aril_item(work(number(id), 6)) == id + 21);
        if (i % 7 == 3) continue;
        aril_scope_begin(); /* left open: the enclosing scope closes it */
        number(1);
    }
    return NULL;
}

TEST(nested_scopes_in_eight_threads)
{
    int ids[THREADS];
    number(0);
    int64_t before = aril__live_blocks();
    for (int i = 0; i < THREADS; i++) ids[i] = 10 * i;
    run_all(nested_scopes, ids, sizeof *ids);
    CHECK_INT(atomic_load(&wrong), 0);
    CHECK_INT(aril__live_blocks(), before);
}

/* Tensors created outside any scope end with their thread. */
static void *without_scope(void *arg)
{
    aril_tensor *x = number(*(int *)arg);
    for (int i = 0; i < 20; i++) x = aril_add(x, x);
    EXPECT(aril_item(x) == (double)*(int *)arg * (1 << 20));
    return NULL;
}

TEST(thread_without_scope_frees_everything_at_exit)
{
    int ids[THREADS];
    int64_t before = aril__live_blocks();
    for (int i = 0; i < THREADS; i++) ids[i] = i + 1;
    run_all(without_scope, ids, sizeof *ids);
    CHECK_INT(atomic_load(&wrong), 0);
    CHECK_INT(aril__live_blocks(), before);
}

/* ---- errors and modes ---- */

static void *own_error(void *arg)
{
    int id = *(int *)arg;
    ARIL_SCOPE;
    for (int i = 0; i < 50; i++) {
        aril_tensor *bad = NULL;
        EXPECT(aril_ok() && aril_grad_enabled());
        if (id % 2) {
            ARIL_NO_GRAD;
            bad = aril_add(aril_zeros(ARIL_SHAPE(id + 2), ARIL_F32, aril_cpu()),
                           aril_zeros(ARIL_SHAPE(100), ARIL_F32, aril_cpu()));
            EXPECT(!aril_grad_enabled());
        } else {
            bad = aril_reshape(number(1), ARIL_SHAPE(id + 2));
        }
        EXPECT(aril_tensor_status(bad) == ARIL_ERR_SHAPE);
        char size[16];
        snprintf(size, sizeof size, "[%d]", id + 2);
        EXPECT(strstr(aril_error(), size));
        aril_clear_error();
    }
    return NULL;
}

TEST(errors_and_modes_are_thread_local)
{
    int ids[THREADS];
    for (int i = 0; i < THREADS; i++) ids[i] = i;
    aril_clear_error();
    run_all(own_error, ids, sizeof *ids);
    CHECK_INT(atomic_load(&wrong), 0);
    CHECK(aril_ok());
}

/* ---- tensors passed between threads ---- */

typedef struct handed {
    aril_tensor *t;
    aril_tensor *view;
} handed;

static void *makes(void *arg)
{
    handed *h = arg;
    ARIL_SCOPE;
    h->t = aril_keep(aril_ones(ARIL_SHAPE(300), ARIL_F32, aril_cpu()));
    h->view = aril_keep(aril_slice(h->t, 0, 0, 10, 1));
    return NULL;
}

static void *takes(void *arg)
{
    handed *h = arg;
    ARIL_SCOPE;
    EXPECT(aril_item(aril_sum(aril_adopt(h->t), ARIL_ALL)) == 300);
    EXPECT(aril_item(aril_sum(aril_adopt(h->view), ARIL_ALL)) == 10);
    return NULL;
}

TEST(tensor_is_freed_after_its_thread_ended)
{
    handed hands[THREADS];
    int64_t before = aril__live_blocks();
    int64_t bytes = aril_memory(aril_cpu()).live;
    run_all(makes, hands, sizeof *hands); /* the creating threads have ended */
    CHECK(aril__live_blocks() > before);
    run_all(takes, hands, sizeof *hands);
    CHECK_INT(atomic_load(&wrong), 0);
    CHECK_INT(aril__live_blocks(), before);
    CHECK_INT(aril_memory(aril_cpu()).live, bytes);
    run_all(makes, hands, sizeof *hands); /* freed by this thread */
    for (int i = 0; i < THREADS; i++) {
        aril_release(hands[i].t);
        CHECK_NEAR(aril_size(hands[i].view, 0), 10, 0);
        aril_release(hands[i].view);
    }
    CHECK_INT(aril__live_blocks(), before);
    CHECK_INT(aril_memory(aril_cpu()).live, bytes);
}

/* A ring: each thread repeatedly passes a tensor to the next one. */
typedef struct slot {
    _Atomic(aril_tensor *) full;
    int id;
} slot;
static slot ring[THREADS];

static void *hands_on(void *arg)
{
    slot *mine = arg, *next = &ring[(mine->id + 1) % THREADS];
    for (int i = 0; i < TURNS; i++) {
        ARIL_SCOPE;
        aril_tensor *t;
        while (!(t = atomic_exchange(&mine->full, NULL))) sched_yield();
        aril_tensor *more = aril_keep(aril_add(aril_adopt(t), number(1)));
        aril_tensor *expected = NULL;
        while (!atomic_compare_exchange_weak(&next->full, &expected, more)) {
            expected = NULL;
            sched_yield();
        }
    }
    return NULL;
}

TEST(tensors_are_passed_around_a_ring_of_threads)
{
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        for (int i = 0; i < THREADS; i++) {
            ring[i].id = i;
            atomic_store(&ring[i].full, i % 2 ? NULL : aril_keep(number(0)));
        }
    }
    run_all(hands_on, ring, sizeof *ring);
    double sum = 0;
    for (int i = 0; i < THREADS; i++) {
        aril_tensor *t = atomic_load(&ring[i].full);
        if (!t) continue;
        sum += aril_item(t);
        aril_release(t);
    }
    CHECK_NEAR(sum, THREADS * TURNS, 0);
    CHECK_INT(aril__live_blocks(), before);
}

/* All threads keep and release the same tensor, and compute with it. */
static void *shares(void *arg)
{
    aril_tensor *t = *(aril_tensor **)arg;
    for (int i = 0; i < ROUNDS; i++) {
        ARIL_SCOPE;
        aril_keep(t);
        EXPECT(aril_item(aril_sum(aril_slice(t, 0, i % 10, i % 10 + 5, 1), ARIL_ALL)) == 5);
        aril_release(t);
    }
    aril_release(t);
    return NULL;
}

TEST(threads_share_a_tensor)
{
    aril_tensor *all[THREADS];
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *t = aril_ones(ARIL_SHAPE(20), ARIL_F64, aril_cpu());
        for (int i = 0; i < THREADS; i++) all[i] = aril_keep(t);
    }
    run_all(shares, all, sizeof *all);
    CHECK_INT(atomic_load(&wrong), 0);
    CHECK_INT(aril__live_blocks(), before);
}

/* Many threads accumulate gradients of one leaf. */
static void *walks_back(void *arg)
{
    aril_tensor *w = *(aril_tensor **)arg;
    for (int i = 0; i < 50; i++) {
        ARIL_SCOPE;
        EXPECT(aril_backward(aril_sum(aril_mul_scalar(w, 2), ARIL_ALL)) == ARIL_OK);
    }
    return NULL;
}

TEST(threads_add_to_the_gradient_of_one_leaf)
{
    aril_tensor *all[THREADS];
    ARIL_SCOPE;
    {
        ARIL_SCOPE;
        all[0] = aril_parameter(aril_ones(ARIL_SHAPE(33), ARIL_F64, aril_cpu()));
    }
    for (int i = 1; i < THREADS; i++) all[i] = all[0];
    run_all(walks_back, all, sizeof *all);
    CHECK_INT(atomic_load(&wrong), 0);
    double got[33];
    CHECK_INT(aril_read(aril_grad(all[0]), got), ARIL_OK);
    for (int i = 0; i < 33; i++) CHECK_NEAR(got[i], 2.0 * 50 * THREADS, 0);
    aril_release(all[0]);
}

/* A graph built on one thread, used for backward and freed on another. */
static void *builds(void *arg)
{
    aril_tensor **at = arg;
    ARIL_SCOPE;
    aril_tensor *x = at[0];
    for (int i = 0; i < 100; i++) x = aril_mul_scalar(aril_add(x, number(1)), 0.5);
    at[1] = aril_keep(aril_sum(x, ARIL_ALL));
    return NULL;
}

TEST(graph_outlives_the_thread_that_built_it)
{
    int64_t before = aril__live_blocks();
    aril_tensor *pair[THREADS][2];
    for (int i = 0; i < THREADS; i++) {
        ARIL_SCOPE;
        pair[i][0] = aril_parameter(number(i));
    }
    run_all(builds, pair, sizeof *pair);
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(aril_backward(pair[i][1]), ARIL_OK);
        CHECK(aril_has_grad(pair[i][0]));
        aril_release(pair[i][1]);
        aril_release(pair[i][0]);
    }
    CHECK_INT(aril__live_blocks(), before);
}
