/* Host memory for Aril's own objects: a slab of small blocks with a cache in each thread, and plain
 * blocks. Both support fault injection, so that tests reach every out-of-memory path. */
#ifndef ARIL_CORE_MEMORY_H
#define ARIL_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A sanitizer detects leaks and use after free only if each block is a separate allocation. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ARIL__PLAIN_BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ARIL__PLAIN_BLOCKS 1
#endif
#endif
#ifndef ARIL__PLAIN_BLOCKS
#define ARIL__PLAIN_BLOCKS 0
#endif

enum {
    ARIL__SLAB_STEP = 64,    /* blocks are multiples of this, and aligned to it */
    ARIL__SLAB_CLASSES = 16, /* up to 1024 bytes; larger ones are plain blocks */
    ARIL__HEADER_BYTES = 192,
    ARIL__HEADERS_WAIT = 16, /* freed headers that are not reused yet; a power of two */
};

typedef struct aril__slab_block {
    struct aril__slab_block *next;
} aril__slab_block;

/* One thread's free blocks of each size. */
typedef struct aril__slab_cache {
    struct {
        aril__slab_block *head;
        uint32_t count;
    } of[ARIL__SLAB_CLASSES + 1]; /* the last: tensor headers */
    void *waiting[ARIL__HEADERS_WAIT];
    uint32_t waited; /* number of headers ever put into `waiting` */
} aril__slab_cache;

/* Blocks are not cleared. NULL when out of memory. Freeing requires the same size; any thread may
 * free a block. */
void *aril__slab_alloc(aril__slab_cache *cache, size_t size);
void aril__slab_free(aril__slab_cache *cache, void *block, size_t size);

/* Blocks for tensor headers, from chunks that hold nothing else: a stale tensor pointer always
 * points to a header, in use or marked as ended. A free block keeps all but its first 8 bytes. The
 * headers a thread freed last are not reused yet, so that stale pointers are usually caught while
 * the mark is still there. */
void *aril__header_alloc(aril__slab_cache *cache);
void aril__header_free(aril__slab_cache *cache, void *block);

void aril__slab_flush(aril__slab_cache *cache); /* returns all blocks to the shared pool */

/* Blocks in use; blocks in the caches of other running threads count as in use. */
int64_t aril__slab_live(aril__slab_cache *cache);
void aril__slab_shutdown(aril__slab_cache *cache);

/* malloc, calloc and realloc that obey the failure hook. Free with free(). */
void *aril__malloc(size_t size);
void *aril__calloc(size_t size);
void *aril__realloc(void *p, size_t size);
char *aril__strdup(const char *text);

/* The failure hook. `aril__fault_armed` is tested on fast paths, the rest is cold. */
extern bool aril__fault_armed;
bool aril__fault_now(void); /* true when this allocation is the one to fail */

/* Kernels get their scratch memory from dispatch and allocate none while they run. A test checks
 * that by the following functions, which cost nothing otherwise: while allocations are watched,
 * aril__fault_armed is set, and dispatch closes the allocator around every kernel. Allocations in
 * between are counted, whichever thread makes them. */
typedef struct aril__allocation_watch {
    int64_t count;       /* allocations while closed */
    const char *op, *by; /* who closed the allocator before the first: an op and its kernel */
} aril__allocation_watch;

void aril__allocations_watch_start(void);
aril__allocation_watch aril__allocations_watch_end(void);

/* Returns what aril__allocations_reopen needs: calls may be nested. */
bool aril__allocations_close(const char *op, const char *by);
void aril__allocations_reopen(bool before);

/* Around an allocation of the calling thread that a kernel may make: a result whose size is known
 * only after the run, an error, or what is cached for later runs. */
void aril__allocations_allow(void);
void aril__allocations_allow_end(void);

#endif
