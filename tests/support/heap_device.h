/* A device for tests, with the host's heap as its memory. It has no kernels. A test registers it
 * under a name of its own, with the functions below or some of its own in their place. */
#ifndef ARIL_TESTS_SUPPORT_HEAP_DEVICE_H
#define ARIL_TESTS_SUPPORT_HEAP_DEVICE_H

#include "core/device.h"

extern const aril_device_ops test_heap_ops;

typedef struct test_transfers {
    int from_host, to_host; /* copies in each direction so far */
    /* Called before and after each copy, also those within the device; NULL: nothing. */
    void (*begin)(void), (*end)(void);
} test_transfers;
extern test_transfers test_transferred;

/* Registers a device whose memory the host does not touch itself. */
aril__device *test_device_add(const char *kind, int index, const aril_device_ops *ops);

#endif
