/* The device that a test runs on. */
#ifndef ARIL_TESTS_SUPPORT_DEVICE_H
#define ARIL_TESTS_SUPPORT_DEVICE_H

#include "aril/device.h"
#include "aril/tensor.h"
#include "support/test.h"

/* The device named by ARIL_TEST_DEVICE; the CPU if it is not set. "strict" is strict:0 of
 * tests/plugin/strict.c, which this registers. Modules are created on it too. */
aril_device test_device(void);

/* Whether that is the CPU: for the parts of a test that are about its memory or its kernels. */
bool test_on_cpu(void);

/* t on that device: t itself if it is there. For tests that compare with what a model does with
 * samples of the host. */
aril_tensor *test_there(aril_tensor *t);

/* Skips a test that is about the CPU. */
#define ONLY_ON_CPU(why)          \
    do {                          \
        if (!test_on_cpu()) {     \
            test_skip("%s", why); \
            return;               \
        }                         \
    } while (0)

#endif
