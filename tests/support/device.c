#include "support/device.h"

#include "nn/module.h"
#include "ops/table/rows.h"
#include "plugin/strict.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static aril_device chosen;

static void choose(void)
{
    const char *name = getenv("ARIL_TEST_DEVICE");
    bool strict = name && strncmp(name, "strict", 6) == 0;
    if (strict && aril__plugin_add("strict", strict_open) < 0) abort();
    chosen = name && *name ? aril_device_named(name) : aril_cpu();
    if (name && strncmp(name, "cuda", 4) == 0 && !aril_device_available(chosen)) {
        aril_synchronize(chosen);
        printf("SKIP: %s\n", aril_error());
        fflush(stdout);
        _Exit(77);
    }
    if (!aril_device_available(chosen)) {
        fprintf(stderr, "ARIL_TEST_DEVICE=%s: there is no such device\n", name);
        abort();
    }
    aril__new_modules_on = chosen;
}

aril_device test_device(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

bool test_on_cpu(void)
{
    return aril_device_equal(test_device(), aril_cpu());
}
