/* Derived forms of memory: cached, invalidated when the contents change, alive while in use. */
#include "support/test.h"

#include <aril/aril.h>

#include "core/derived.h"

#include <pthread.h>
#include <stdatomic.h>
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
