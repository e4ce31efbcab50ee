#include "support/heap_device.h"

#include "core/thread.h"

#include <stdlib.h>
#include <string.h>

test_transfers test_transferred;

static void *heap_alloc(void *self, aril_queue *queue, size_t bytes)
{
    (void)self, (void)queue;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void heap_free(void *self, aril_queue *queue, void *p, size_t bytes)
{
    (void)self, (void)queue, (void)bytes;
    free(p);
}

static aril_status heap_copy(void *self, aril_queue *queue, void *dst, const void *src,
                             size_t bytes)
{
    (void)self, (void)queue;
    if (test_transferred.begin) test_transferred.begin();
    memcpy(dst, src, bytes);
    if (test_transferred.end) test_transferred.end();
    return ARIL_OK;
}

static aril_status heap_from_host(void *self, aril_queue *queue, void *dst, const void *src,
                                  size_t bytes, bool async)
{
    (void)async;
    test_transferred.from_host++;
    return heap_copy(self, queue, dst, src, bytes);
}

static aril_status heap_to_host(void *self, aril_queue *queue, void *dst, const void *src,
                                size_t bytes, bool async)
{
    (void)async;
    test_transferred.to_host++;
    return heap_copy(self, queue, dst, src, bytes);
}

const aril_device_ops test_heap_ops = { .alloc = heap_alloc,
                                        .free = heap_free,
                                        .from_host = heap_from_host,
                                        .to_host = heap_to_host,
                                        .copy = heap_copy };

aril__device *test_device_add(const char *kind, int index, const aril_device_ops *ops)
{
    aril__self(); /* starts the library */
    return aril__device_register(kind, index, ops, NULL, false);
}
