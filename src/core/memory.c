#include "core/memory.h"

#include "aril/memory.h"
#include "core/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_BYTES = 64 * 1024, /* carved into blocks of one size */
    BATCH = 32,              /* blocks moved between a thread and the pool at a time */
    CACHE_MAX = 256,         /* blocks of one size that a thread keeps */
    HEADERS = ARIL__SLAB_CLASSES,
    LISTS = ARIL__SLAB_CLASSES + 1, /* free lists: one per size, and one for headers */
};

bool aril__fault_armed;
static atomic_llong fault_countdown;
static atomic_bool fault_happened;

/* The allocator while a test watches it: see aril__allocations_watch_start. */
static struct {
    bool on;
    atomic_bool closed;
    atomic_llong count;
    _Atomic(const char *) op, by; /* of the kernel that runs */
    const char *first_op, *first_by;
} watch;
static _Thread_local int allowed;

static struct {
    pthread_mutex_t lock;
    aril__slab_block *free[LISTS];
    int64_t free_count[LISTS];
    int64_t made[LISTS]; /* blocks carved so far */
    struct chunk {
        struct chunk *next;
    } * chunks;
    atomic_llong plain; /* blocks that are separate allocations */
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

void aril_fail_allocation(int64_t n)
{
    atomic_store(&fault_countdown, n);
    atomic_store(&fault_happened, false);
    aril__fault_armed = n > 0 || watch.on;
}

bool aril_allocation_failed(void)
{
    return atomic_load(&fault_happened);
}

void aril__allocations_watch_start(void)
{
    atomic_store(&watch.count, 0);
    watch.first_op = watch.first_by = NULL;
    watch.on = aril__fault_armed = true;
}

aril__allocation_watch aril__allocations_watch_end(void)
{
    watch.on = aril__fault_armed = false;
    return (aril__allocation_watch){ atomic_load(&watch.count), watch.first_op, watch.first_by };
}

bool aril__allocations_close(const char *op, const char *by)
{
    atomic_store(&watch.op, op);
    atomic_store(&watch.by, by);
    return atomic_exchange(&watch.closed, true);
}

void aril__allocations_reopen(bool before)
{
    atomic_store(&watch.closed, before);
}

void aril__allocations_allow(void)
{
    allowed++;
}

void aril__allocations_allow_end(void)
{
    allowed--;
}

static aril__cold void watch_allocation(void)
{
    if (!watch.on || allowed || !atomic_load(&watch.closed)) return;
    if (atomic_fetch_add(&watch.count, 1) != 0) return;
    watch.first_op = atomic_load(&watch.op);
    watch.first_by = atomic_load(&watch.by);
}

bool aril__fault_now(void)
{
    if (!aril__fault_armed) return false;
    watch_allocation();
    if (atomic_fetch_sub(&fault_countdown, 1) != 1) return false;
    atomic_store(&fault_happened, true);
    return true;
}

void *aril__malloc(size_t size)
{
    return aril__unlikely(aril__fault_now()) ? NULL : malloc(size ? size : 1);
}

void *aril__calloc(size_t size)
{
    return aril__unlikely(aril__fault_now()) ? NULL : calloc(1, size ? size : 1);
}

void *aril__realloc(void *p, size_t size)
{
    return aril__unlikely(aril__fault_now()) ? NULL : realloc(p, size ? size : 1);
}

char *aril__strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = aril__malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static size_t class_of(size_t size)
{
    return (size - 1) / ARIL__SLAB_STEP;
}

static void *plain_alloc(size_t size)
{
    size_t rounded = (size + ARIL__SLAB_STEP - 1) / ARIL__SLAB_STEP * ARIL__SLAB_STEP;
    void *p = aligned_alloc(ARIL__SLAB_STEP, rounded);
    if (p) atomic_fetch_add_explicit(&pool.plain, 1, memory_order_relaxed);
    return p;
}

/* Adds a chunk's blocks to the pool; called with the lock held. */
static bool carve(size_t k)
{
    size_t step = k == HEADERS ? ARIL__HEADER_BYTES : (k + 1) * ARIL__SLAB_STEP;
    char *mem = aligned_alloc(ARIL__SLAB_STEP, CHUNK_BYTES);
    if (!mem) return false;
    struct chunk *c = (struct chunk *)(void *)mem;
    c->next = pool.chunks;
    pool.chunks = c;
    for (size_t at = ARIL__SLAB_STEP; at + step <= CHUNK_BYTES; at += step) {
        aril__slab_block *b = (aril__slab_block *)(void *)(mem + at);
        b->next = pool.free[k];
        pool.free[k] = b;
        pool.free_count[k]++;
        pool.made[k]++;
    }
    return true;
}

static aril__cold void *refill(aril__slab_cache *cache, size_t k)
{
    pthread_mutex_lock(&pool.lock);
    if (pool.free[k] || carve(k)) {
        for (int i = 0; i < BATCH && pool.free[k]; i++) {
            aril__slab_block *b = pool.free[k];
            pool.free[k] = b->next;
            pool.free_count[k]--;
            b->next = cache->of[k].head;
            cache->of[k].head = b;
            cache->of[k].count++;
        }
    }
    pthread_mutex_unlock(&pool.lock);
    aril__slab_block *b = cache->of[k].head;
    if (b) {
        cache->of[k].head = b->next;
        cache->of[k].count--;
    }
    return b;
}

static void give_back(aril__slab_cache *cache, size_t k, uint32_t n)
{
    pthread_mutex_lock(&pool.lock);
    for (; n && cache->of[k].head; n--) {
        aril__slab_block *b = cache->of[k].head;
        cache->of[k].head = b->next;
        cache->of[k].count--;
        b->next = pool.free[k];
        pool.free[k] = b;
        pool.free_count[k]++;
    }
    pthread_mutex_unlock(&pool.lock);
}

static inline void *take(aril__slab_cache *cache, size_t k)
{
    aril__slab_block *b = cache->of[k].head;
    if (aril__unlikely(!b)) return refill(cache, k);
    cache->of[k].head = b->next;
    cache->of[k].count--;
    return b;
}

static inline void put(aril__slab_cache *cache, size_t k, void *block)
{
    aril__slab_block *b = block;
    b->next = cache->of[k].head;
    cache->of[k].head = b;
    if (aril__unlikely(++cache->of[k].count > CACHE_MAX)) give_back(cache, k, CACHE_MAX / 2);
}

static void plain_free(void *block)
{
    atomic_fetch_sub_explicit(&pool.plain, 1, memory_order_relaxed);
    free(block);
}

void *aril__slab_alloc(aril__slab_cache *cache, size_t size)
{
    if (aril__unlikely(aril__fault_armed) && aril__fault_now()) return NULL;
    size_t k = class_of(size);
    if (ARIL__PLAIN_BLOCKS || k >= ARIL__SLAB_CLASSES) return plain_alloc(size);
    return take(cache, k);
}

void aril__slab_free(aril__slab_cache *cache, void *block, size_t size)
{
    if (!block) return;
    size_t k = class_of(size);
    if (ARIL__PLAIN_BLOCKS || k >= ARIL__SLAB_CLASSES)
        plain_free(block);
    else
        put(cache, k, block);
}

static inline void put_after_waiting(aril__slab_cache *cache, void *block)
{
    void **at = &cache->waiting[cache->waited++ % ARIL__HEADERS_WAIT], *oldest = *at;
    *at = block;
    if (aril__likely(oldest != NULL)) put(cache, HEADERS, oldest);
}

void *aril__header_alloc(aril__slab_cache *cache)
{
    if (aril__unlikely(aril__fault_armed) && aril__fault_now()) return NULL;
    return ARIL__PLAIN_BLOCKS ? plain_alloc(ARIL__HEADER_BYTES) : take(cache, HEADERS);
}

void aril__header_free(aril__slab_cache *cache, void *block)
{
    if (ARIL__PLAIN_BLOCKS)
        plain_free(block);
    else
        put_after_waiting(cache, block);
}

void aril__slab_flush(aril__slab_cache *cache)
{
    for (int i = 0; i < ARIL__HEADERS_WAIT; i++) {
        if (cache->waiting[i]) put(cache, HEADERS, cache->waiting[i]);
        cache->waiting[i] = NULL;
    }
    for (size_t k = 0; k < LISTS; k++)
        if (cache->of[k].head) give_back(cache, k, UINT32_MAX);
}

int64_t aril__slab_live(aril__slab_cache *cache)
{
    int64_t live = atomic_load(&pool.plain);
    pthread_mutex_lock(&pool.lock);
    for (size_t k = 0; k < LISTS; k++)
        live += pool.made[k] - pool.free_count[k] - (int64_t)cache->of[k].count;
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < ARIL__HEADERS_WAIT; i++) live -= cache->waiting[i] != NULL;
    return live;
}

/* Frees the chunks if no block is in use: leak checkers then see an empty heap, and tensors that a
 * program still holds at exit stay valid. */
void aril__slab_shutdown(aril__slab_cache *cache)
{
    aril__slab_flush(cache);
    if (aril__slab_live(cache) - atomic_load(&pool.plain) != 0) return;
    pthread_mutex_lock(&pool.lock);
    while (pool.chunks) {
        struct chunk *c = pool.chunks;
        pool.chunks = c->next;
        free(c);
    }
    memset(pool.free, 0, sizeof pool.free);
    memset(pool.free_count, 0, sizeof pool.free_count);
    memset(pool.made, 0, sizeof pool.made);
    pthread_mutex_unlock(&pool.lock);
}
