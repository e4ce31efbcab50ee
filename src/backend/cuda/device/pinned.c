/* Pinned host memory, cached: the driver takes long to pin pages. One cache serves all devices. */
#include "backend/cuda/device/device.h"

enum { SMALLEST = 12, CLASSES = 36 }; /* powers of two from 4 KiB */

typedef struct free_block {
    struct free_block *next;
} free_block;

static struct {
    pthread_mutex_t lock;
    free_block *free[CLASSES];
} cache = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int class_of(size_t bytes)
{
    int c = 0;
    while (c < CLASSES - 1 && (size_t)1 << (SMALLEST + c) < bytes) c++;
    return c;
}

void *aril_cuda_pinned_alloc(void *self, size_t bytes)
{
    int c = class_of(bytes);
    size_t size = (size_t)1 << (SMALLEST + c);
    pthread_mutex_lock(&cache.lock);
    free_block *b = cache.free[c];
    if (b) cache.free[c] = b->next;
    pthread_mutex_unlock(&cache.lock);
    if (b) return b;
    void *memory = NULL;
    if (bytes > size) return NULL;
    aril_cuda_use(self);
    cudaError_t e = cudaHostAlloc(&memory, size, cudaHostAllocPortable);
    if (e == cudaSuccess) return memory;
    cudaGetLastError();
    return NULL;
}

void aril_cuda_pinned_free(void *self, void *memory, size_t bytes)
{
    int c = class_of(bytes);
    free_block *b = memory;
    (void)self;
    pthread_mutex_lock(&cache.lock);
    b->next = cache.free[c];
    cache.free[c] = b;
    pthread_mutex_unlock(&cache.lock);
}

void aril_cuda_pinned_trim(void)
{
    pthread_mutex_lock(&cache.lock);
    for (int c = 0; c < CLASSES; c++)
        for (free_block *b = cache.free[c], *next; b; b = next) {
            next = b->next;
            cudaFreeHost(b);
            cache.free[c] = next;
        }
    pthread_mutex_unlock(&cache.lock);
}
