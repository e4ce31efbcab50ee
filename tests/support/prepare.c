#include "support/device.h"

#include <stdlib.h>

/* Before the first test: modules are on the device from the first one on. */
void test_prepare(void)
{
    const char *name = getenv("ARIL_TEST_DEVICE");
    if (name && *name) test_device();
}
