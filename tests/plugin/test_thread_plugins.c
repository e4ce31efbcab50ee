/* Plug-ins are opened while other threads run ops: the registries are read without a lock. */
#include "aril/aril.h"
#include "ops/table/rows.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 3, PLUGINS = 6 };

static atomic_bool loaded;
static atomic_int rounds, on_mirror;

/* ---- a plug-in that adds rows to the CPU; they decline ---- */

static const char *decline(const aril_run *r, aril_plan *plan)
{
    (void)r;
    (void)plan;
    return "only listed";
}

static aril_status unused(aril_run *r)
{
    (void)r;
    return ARIL_ERR_INTERNAL;
}

static aril_status open_rows(const aril_host *host, aril_plugin *out)
{
    static const aril_row rows[] = {
        { .op = ARIL_ROW_FORMULAS, .name = "a", .dtypes = ~0u, .prepare = decline, .run = unused },
        { .op = "sum", .name = "b", .dtypes = ~0u, .prepare = decline, .run = unused },
        { .op = "matmul", .name = "c", .dtypes = ~0u, .prepare = decline, .run = unused },
    };
    (void)host;
    *out = (aril_plugin){ .size = sizeof *out,
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "rows",
                          .kind = "cpu",
                          .n_rows = sizeof rows / sizeof *rows,
                          .rows = rows };
    return ARIL_OK;
}

/* ---- the others ---- */

static float round_on(aril_device d)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, d);
    return (float)aril_item(aril_sum(aril_relu(aril_add(x, x)), ARIL_ALL));
}

static void *compute(void *arg)
{
    bool last = false;
    (void)arg;
    while (!last) {
        last = atomic_load(&loaded); /* once more after everything is there */
        if (round_on(aril_cpu()) != 12) return "a sum is wrong";
        if (aril_device_count() > 1) {
            if (round_on(aril_device_at(1)) != 12) return "a sum on the new device is wrong";
            atomic_fetch_add(&on_mirror, 1);
        }
        atomic_fetch_add(&rounds, 1);
    }
    return aril_ok() ? NULL : "an error is set";
}

TEST(plugins_are_opened_while_others_compute)
{
    pthread_t thread[THREADS];
    char path[4096];
    const char *folder = getenv("ARIL_TEST_PLUGINS");
    snprintf(path, sizeof path, "%s/mirror.so", folder ? folder : "build/plugins");
    for (int i = 0; i < THREADS; i++) CHECK_INT(pthread_create(&thread[i], NULL, compute, NULL), 0);
    aril_status s = ARIL_OK;
    for (int i = 0; i < PLUGINS && s == ARIL_OK; i++) {
        int until = atomic_load(&rounds) + THREADS;
        s = i == PLUGINS / 2 ? aril_plugin_load(path) : aril__plugin_add("rows", open_rows);
        while (s == ARIL_OK && atomic_load(&rounds) < until) round_on(aril_cpu());
    }
    atomic_store(&loaded, true);
    for (int i = 0; i < THREADS; i++) {
        void *why = NULL;
        pthread_join(thread[i], &why);
        CHECK_MSG(!why, "%s", (char *)why);
    }
    CHECK_MSG(s == ARIL_OK, "%s", aril_error());
    CHECK(atomic_load(&on_mirror) >= THREADS);
}
