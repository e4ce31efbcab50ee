/* Devices: a table of functions for memory and copies, and a cache of freed blocks above it. */
#ifndef ARIL_CORE_DEVICE_H
#define ARIL_CORE_DEVICE_H

#include "aril/device.h"
#include "aril/memory.h"
#include "aril/plugin.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    ARIL__CPU = 0,  /* kind numbers; others are assigned in order of registration */
    ARIL__CUDA = 1, /* reserved, so that aril_cuda() works without a plug-in */
    ARIL__FIRST_FREE = 2,
    ARIL__MAX_KINDS = 8,
    ARIL__MAX_DEVICES = 32,
    ARIL__MAX_QUEUES = 32, /* of a device: its own and those of streams */
    ARIL__BINS = 8 * 48,   /* eight size classes per power of two */
};

typedef struct aril__device aril__device;

typedef aril_device_ops aril__device_ops; /* public, for plug-ins */

struct aril__device {
    aril_device id;
    char kind_name[24];
    bool host_memory; /* the host can read and write the memory directly */
    aril__device_ops ops;
    void *self;
    aril_queue *queue; /* its own, number 0; NULL: the device has no queues */
    _Atomic(aril_queue *) streams[ARIL__MAX_QUEUES]; /* those of streams, by number: queues.h */
    aril_limits limits;                              /* all 0: unknown, or the CPU's */

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

/* The registry only grows, and is read without a lock: other threads may run ops while a plug-in
 * registers its devices. */

/* Registers device `index` of the kind with that name. NULL, with an error, when there is no room
 * or the device is already registered. */
aril__device *aril__device_register(const char *kind_name, int index, const aril__device_ops *ops,
                                    void *self, bool host_memory);

/* The i-th registered device, or NULL; opens no plug-ins. */
aril__device *aril__device_registered(int i);

/* The number of a kind, or -1. */
int aril__device_kind(const char *kind_name);

/* Opens the plug-ins that may have devices of that kind; NULL: all of them. Set by src/init.c. */
extern void (*aril__open_plugins)(const char *kind_name);
/* Writes why a kind has no devices, or "". Set by src/init.c. */
extern void (*aril__plugin_reason)(const char *kind_name, char *buf, size_t size);

/* The registered device, or NULL with an error that says what is missing. Opens plug-ins of its
 * kind. */
aril__device *aril__device_find(aril_device id);

/* Allocates through the cache, or from the device's own pool. NULL, with an error, on failure. */
void *aril__device_alloc(aril__device *d, size_t bytes);
/* The same for a block that will last: apart from those that come and go. */
void *aril__device_alloc_lasting(aril__device *d, size_t bytes);
/* Adds to the memory in use: pages of a block that were returned to the system (negative), or are
 * in use again. */
void aril__device_count_live(aril__device *d, int64_t bytes);
void aril__device_free(aril__device *d, void *p, size_t bytes);
/* The same for memory of the queue with that number. */
void aril__device_free_for(aril__device *d, int queue, void *p, size_t bytes);

/* ---- copies and waiting: transfer.c ---- */

/* Copies bytes from and to memory of the host that may be reused (read) on return, and within the
 * device. Reading waits for the work queued so far and reports its errors. */
aril_status aril__device_write(aril__device *d, void *dst, const void *src, size_t bytes);
aril_status aril__device_read(aril__device *d, void *dst, const void *src, size_t bytes);
aril_status aril__device_move(aril__device *d, void *dst, const void *src, size_t bytes);

/* Whether bytes can be copied from one device to another without passing through the host; and that
 * copy. Work that either queues later comes after it. */
bool aril__device_reaches(const aril__device *to, const aril__device *from);
aril_status aril__device_copy_from(aril__device *to, void *dst, aril__device *from, const void *src,
                                   size_t bytes);

/* Waits for all work of the device, or of one queue, and reports its first error. */
aril_status aril__device_wait(aril__device *d);
aril_status aril__queue_finish(aril__device *d, aril_queue *queue);

/* Pinned host memory, for asynchronous copies. A block remembers the last copy from it that was
 * queued, and is only reused when that is done. */
typedef struct aril__pinned {
    aril__device *device;
    void *data;
    size_t bytes;
    aril_event *event; /* after the last copy; NULL: none was queued */
    int queue;         /* the number of its queue */
} aril__pinned;

/* A device that has pinned memory; NULL, without an error, if there is none. */
aril__device *aril__pinned_device(void);
/* NULL, with an error, on failure. */
aril__pinned *aril__pinned_new(aril__device *d, size_t bytes);
/* A deleter of storages: `ctx` is the block. Waits for copies from it. */
void aril__pinned_release(void *data, void *ctx);
/* Waits for the copies from the block that are queued. */
void aril__pinned_finish(aril__pinned *b);
/* Queues a copy from the block, and returns at once. */
aril_status aril__pinned_write(aril__device *d, void *dst, aril__pinned *from, const void *src,
                               size_t bytes);

void aril__devices_start(void);
void aril__devices_shutdown(void);

#endif
