/* Devices: a table of functions for memory and copies, and a cache of freed blocks above it. */
#ifndef ARIL_CORE_DEVICE_H
#define ARIL_CORE_DEVICE_H

#include "aril/device.h"
#include "aril/memory.h"
#include "aril/plugin.h"

#include <pthread.h>

enum {
    ARIL__CPU = 0,  /* kind numbers; others are assigned in order of registration */
    ARIL__CUDA = 1, /* reserved, so that aril_cuda() works without a plug-in */
    ARIL__FIRST_FREE = 2,
    ARIL__MAX_KINDS = 8,
    ARIL__MAX_DEVICES = 32,
    ARIL__BINS = 8 * 48, /* eight size classes per power of two */
};

typedef struct aril__device aril__device;

typedef aril_device_ops aril__device_ops; /* public, for plug-ins */

struct aril__device {
    aril_device id;
    char kind_name[24];
    bool host_memory; /* the host can read and write the memory directly */
    aril__device_ops ops;
    void *self;

    pthread_mutex_t lock;      /* guards everything below */
    struct aril__arena *arena; /* for large blocks; NULL: they are cached by size too */
    struct aril__cached_block *bins[ARIL__BINS];
    aril_memory_stats stats;
    int64_t limit; /* of stats.live; 0: none */
};

extern aril__device *aril__cpu_device;

/* Called when the library could not start: every later allocation on the CPU fails with that
 * error. */
void aril__devices_close(void);

/* Registers device `index` of the kind with that name. NULL, with an error, when there is no room
 * or the device is already registered. */
aril__device *aril__device_register(const char *kind_name, int index, const aril__device_ops *ops,
                                    void *self, bool host_memory);

/* The registered device, or NULL with an error that says what is missing. */
aril__device *aril__device_find(aril_device id);

/* Allocates through the cache. NULL, with an error, on failure. */
void *aril__device_alloc(aril__device *d, size_t bytes);
void aril__device_free(aril__device *d, void *p, size_t bytes);

void aril__devices_start(void);
void aril__devices_shutdown(void);

#endif
