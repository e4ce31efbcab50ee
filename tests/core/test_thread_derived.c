/* Derived forms of memory: cached, invalidated when the contents change, alive while in use. */
#include "support/test.h"

#include <aril/aril.h>

#include "core/derived.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static aril_tensor *weight(void)
{
    return aril_ones(ARIL_SHAPE(100), ARIL_F32, aril_cpu());
}

/* Caches a form of `n` bytes 0x5a under the key. */
static void keep(aril_tensor *t, int key, size_t n)
{
    aril__derived *d = aril__derived_new(t->storage->device, n);
    memset(d->data, 0x5a, n);
    aril__derived_put(t->storage, &key, sizeof key, aril__version(t), d);
    aril__derived_release(d);
}

static bool has(aril_tensor *t, int key)
{
    aril__derived *d = aril__derived_get(t->storage, &key, sizeof key, aril__version(t));
    bool good = d && ((unsigned char *)d->data)[d->bytes - 1] == 0x5a;
    aril__derived_release(d);
    return good;
}

TEST(derived_value_is_cached)
{
    ARIL_SCOPE;
    int64_t live = aril_memory(aril_cpu()).live;
    {
        ARIL_SCOPE;
        aril_tensor *t = weight();
        CHECK(!has(t, 1));
        keep(t, 1, 1000);
        CHECK(has(t, 1));
        CHECK(!has(t, 2));
        keep(t, 2, 5000);
        CHECK(has(t, 1) && has(t, 2));
        CHECK(has(aril_reshape(t, ARIL_SHAPE(10, 10)), 2)); /* the storage's, not the tensor's */
    }
    CHECK_INT(aril_memory(aril_cpu()).live, live);
}

TEST(derived_value_is_dropped_after_a_write)
{
    ARIL_SCOPE;
    aril_tensor *t = weight();
    keep(t, 1, 1 << 20);
    int64_t live = aril_memory(aril_cpu()).live;
    aril_add_(aril_slice(t, 0, 0, 5, 1), aril_scalar(1));
    CHECK(aril_memory(aril_cpu()).live <= live - (1 << 20));
    CHECK(!has(t, 1));
    keep(t, 1, 100);
    float zero[100] = { 0 };
    CHECK_INT(aril_write(t, zero), ARIL_OK);
    CHECK(!has(t, 1));
    /* Derived from contents that have changed since. */
    int key = 3;
    unsigned before = aril__version(t);
    aril_mul_scalar_(t, 2);
    aril__derived *d = aril__derived_new(t->storage->device, 64);
    aril__derived_put(t->storage, &key, sizeof key, before, d);
    aril__derived_release(d);
    CHECK(!has(t, 3));
}

TEST(derived_value_lives_while_in_use)
{
    ARIL_SCOPE;
    aril_tensor *t = weight();
    int key = 7;
    keep(t, key, 300);
    aril__derived *d = aril__derived_get(t->storage, &key, sizeof key, aril__version(t));
    CHECK(d != NULL);
    aril_mul_scalar_(t, 2);
    CHECK_INT(((unsigned char *)d->data)[299], 0x5a);
    aril__derived_release(d);
}

TEST(cache_is_bounded)
{
    ARIL_SCOPE;
    aril_tensor *t = weight();
    for (int k = 0; k < 3 * ARIL__DERIVED_MAX; k++) keep(t, k, 100);
    int n = 0;
    for (int k = 0; k < 3 * ARIL__DERIVED_MAX; k++) n += has(t, k);
    CHECK_INT(n, ARIL__DERIVED_MAX);
    CHECK(has(t, 3 * ARIL__DERIVED_MAX - 1));
}

TEST(externally_writable_memory_is_not_cached)
{
    ARIL_SCOPE;
    float data[100];
    aril_tensor *borrowed = aril_borrow(data, ARIL_SHAPE(100), ARIL_F32, NULL, NULL), *t = weight();
    keep(borrowed, 1, 100);
    CHECK(!has(borrowed, 1));
    keep(t, 1, 100);
    CHECK(aril_data_strided(t) != NULL);
    CHECK(!has(t, 1));
    keep(t, 1, 100);
    CHECK(!has(t, 1));
}

/* ---- forms that stand for the contents ---- */

enum { MANY = 1 << 16 };

static void negate(const void *ctx, const void *form, void *contents)
{
    (void)ctx;
    for (int i = 0; i < MANY; i++) ((float *)contents)[i] = -((const float *)form)[i];
}

/* A tensor 0, 1, 2 ... whose negated elements are cached, and stand for it if they may. */
static aril_tensor *replaced(void)
{
    aril_tensor *t = aril_arange(0, MANY, 1, ARIL_F32, aril_cpu());
    aril__derived *d = aril__derived_new(t->storage->device, MANY * sizeof(float));
    int key = 1;
    for (int i = 0; i < MANY; i++) ((float *)d->data)[i] = -(float)i;
    aril__derived_put(t->storage, &key, sizeof key, aril__version(t), d);
    aril__derived_replace(t->storage, d, negate, malloc(1));
    aril__derived_release(d);
    return t;
}

static int place_of(const aril_tensor *t)
{
    return atomic_load(&t->storage->contents);
}

static double sum_of(aril_tensor *t)
{
    return aril_item(aril_sum(aril_cast(t, ARIL_F64), ARIL_ALL));
}

TEST(contents_are_restored_when_they_are_read)
{
    ARIL_SCOPE;
    const double sum = MANY * (MANY - 1.0) / 2;
    aril_tensor *t = replaced();
    CHECK_INT(place_of(t), ARIL__IN_FORM);
    CHECK(has(t, 1) == false); /* its last byte is another */
    CHECK_INT(place_of(t), ARIL__IN_FORM);
    CHECK_NEAR(sum_of(t), sum, 0);
    CHECK_INT(place_of(t), ARIL__RESTORED);
    /* What is read now and then stays. */
    aril__derived *d = atomic_load(&t->storage->derived);
    aril__derived_replace(t->storage, d, negate, NULL);
    CHECK_INT(place_of(t), ARIL__RESTORED);
    CHECK_NEAR(aril_item(aril_select(t, 0, 77)), 77, 0);

    t = replaced();
    CHECK(aril_data(t) != NULL);
    CHECK_NEAR(((const float *)aril_data(t))[MANY - 1], MANY - 1, 0);
    t = replaced();
    CHECK_NEAR(sum_of(aril_detach(t)), sum, 0); /* another header, the same memory */
    aril_tensor *u = replaced();
    CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(t, u)), ARIL_ALL)), 0, 0);
    replaced(); /* freed in this state */
    CHECK(aril_ok());
}

TEST(contents_are_restored_before_they_are_written)
{
    ARIL_SCOPE;
    aril_tensor *t = replaced();
    CHECK_INT(place_of(t), ARIL__IN_FORM);
    aril_fill_(aril_narrow(t, 0, 0, 10), -1);
    CHECK(atomic_load(&t->storage->derived) == NULL);
    CHECK_NEAR(sum_of(t), MANY * (MANY - 1.0) / 2 - 45 - 10, 0);
}

static void *wait_for(void *arg)
{
    aril_ok(); /* from now on this thread uses Aril */
    atomic_store((atomic_int *)arg, 1);
    while (atomic_load((atomic_int *)arg) != 2) sched_yield();
    return NULL;
}

TEST(contents_stay_where_another_thread_may_read_them)
{
    ARIL_SCOPE;
    pthread_t thread;
    atomic_int state = 0;
    if (pthread_create(&thread, NULL, wait_for, &state) != 0) {
        test_skip("no second thread");
        return;
    }
    while (atomic_load(&state) != 1) sched_yield();
    CHECK_INT(place_of(replaced()), ARIL__IN_MEMORY);
    atomic_store(&state, 2);
    pthread_join(thread, NULL);
    CHECK_INT(place_of(replaced()), ARIL__IN_FORM);
}

typedef struct reading {
    double sum;
    aril_tensor *of;
} reading;

static void *read_shared(void *arg)
{
    ARIL_SCOPE;
    reading *r = arg;
    r->sum = sum_of(r->of);
    return NULL;
}

TEST(contents_are_restored_once_by_several_threads)
{
    ARIL_SCOPE;
    reading part[4];
    pthread_t thread[4];
    aril_tensor *t = replaced();
    int n = 0;
    CHECK_INT(place_of(t), ARIL__IN_FORM);
    for (; n < 4; n++) {
        part[n].of = t;
        if (pthread_create(&thread[n], NULL, read_shared, &part[n]) != 0) break;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        CHECK_NEAR(part[i].sum, MANY * (MANY - 1.0) / 2, 0);
    }
    CHECK_INT(place_of(t), ARIL__RESTORED);
}

static aril_tensor *shared;
static atomic_int wrong;

static void *use(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        int key = i % 11 + (int)(uintptr_t)arg % 2;
        aril__derived *d =
            aril__derived_get(shared->storage, &key, sizeof key, aril__version(shared));
        if (!d) {
            keep(shared, key, 200);
            continue;
        }
        for (size_t k = 0; k < d->bytes; k++)
            if (((unsigned char *)d->data)[k] != 0x5a) atomic_fetch_add(&wrong, 1);
        aril__derived_release(d);
    }
    return NULL;
}

TEST(several_threads)
{
    ARIL_SCOPE;
    pthread_t thread[4];
    int n = 0;
    shared = weight();
    while (n < 4 && pthread_create(&thread[n], NULL, use, (void *)(uintptr_t)n) == 0) n++;
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    CHECK_INT(n, 4);
    CHECK_INT(atomic_load(&wrong), 0);
}
