/* Device memory: a caching allocator whose blocks are reused in the order of a queue.
 *
 * Segments come from cudaMalloc and are cut into blocks; free neighbours are merged again. A freed
 * block goes to the free list of the queue that it was allocated for: whatever still reads it was
 * queued there earlier than the work of its next owner. A block that another queue frees makes its
 * own queue wait for that one. Free blocks are kept in bins by size, eight per power of two. A
 * recording has free blocks of its own, which nothing else gets.
 *
 * ARIL_CUDA_CACHE=0 turns all this off: each tensor is one cudaMalloc of its exact size, so that
 * compute-sanitizer sees every access beyond it. */
#include "backend/cuda/device/device.h"
#include "core/environment.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT = 512, BINS = 8 * 48, BUCKETS = 1 << 14, LARGEST = 3 };
static const size_t small_request = (size_t)1 << 20, /* up to here from segments of 2 MiB */
    small_segment = (size_t)2 << 20, medium_request = (size_t)10 << 20, /* up to here of 20 MiB */
    medium_segment = (size_t)20 << 20, large_unit = (size_t)2 << 20,
                    most_aside = (size_t)64
                                 << 20; /* of a recording: work on other memory runs side by side */

typedef struct aril_cuda_shelf shelf;

typedef struct block {
    struct block *left, *right;    /* neighbours in the segment */
    struct block *previous, *next; /* in the bin, while free */
    struct block *chained;         /* in the table by address, while in use */
    shelf *shelf;
    char *memory;
    size_t size;
    bool free, large;
} block;

/* The free blocks of a queue; without one, those of a queue that ended, for the next that asks. */
struct aril_cuda_shelf {
    shelf *next;
    aril_queue *queue;
    bool recorded;             /* of a recording */
    block *aside, *aside_last; /* freed, but not reused yet, oldest first: by `next` */
    size_t aside_bytes;
    block *bin[2][BINS];           /* small, large */
    uint64_t filled[2][BINS / 64]; /* a bit for each bin: whether it holds a block */
};

struct aril_cuda_pool {
    aril_cuda_device *device;
    pthread_mutex_t lock;
    bool plain; /* ARIL_CUDA_CACHE=0 */
    shelf *shelves;
    block *in_use[BUCKETS];
    block *spare; /* blocks without memory, by `next`: small tensors cut and merge all the time */
    aril_cuda_pool_stats stats;
};

aril_cuda_pool *aril_cuda_pool_new(aril_cuda_device *d)
{
    aril_cuda_pool *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->device = d;
    p->plain = !aril__env_switch("ARIL_CUDA_CACHE", 1);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

/* A block with all fields zero; NULL when out of memory. */
static block *new_block(aril_cuda_pool *p)
{
    block *b = p->spare;
    if (!b) return calloc(1, sizeof *b);
    p->spare = b->next;
    *b = (block){ 0 };
    return b;
}

static void end_block(aril_cuda_pool *p, block *b)
{
    b->next = p->spare;
    p->spare = b;
}

/* ---- bins ---- */

/* The bin of blocks of that size, rounded down. */
static int bin_of(size_t size)
{
    size_t units = size / UNIT;
    if (units < 8) return (int)units;
    unsigned log = 63u - (unsigned)__builtin_clzll(units);
    int bin = (int)((log - 2) * 8 + (units >> (log - 3)) - 8);
    return bin < BINS ? bin : BINS - 1;
}

static void put(block *b)
{
    int bin = bin_of(b->size);
    block **head = &b->shelf->bin[b->large][bin];
    b->shelf->filled[b->large][bin / 64] |= (uint64_t)1 << bin % 64;
    b->free = true;
    b->previous = NULL;
    b->next = *head;
    if (b->next) b->next->previous = b;
    *head = b;
}

static void take(block *b)
{
    int bin = bin_of(b->size);
    block **head = &b->shelf->bin[b->large][bin];
    if (b->previous)
        b->previous->next = b->next;
    else
        *head = b->next;
    if (b->next) b->next->previous = b->previous;
    if (!*head) b->shelf->filled[b->large][bin / 64] &= ~((uint64_t)1 << bin % 64);
    b->free = false;
}

/* The smallest block of a bin that has room for `size`. */
static block *best_in(block *b, size_t size)
{
    block *best = NULL;
    for (; b; b = b->next)
        if (b->size >= size && (!best || b->size < best->size)) best = b;
    return best;
}

static block *find_free(shelf *s, size_t size, bool large)
{
    int first = bin_of(size);
    for (int word = first / 64; word < BINS / 64; word++) {
        uint64_t filled = s->filled[large][word];
        if (word == first / 64) filled &= ~(uint64_t)0 << first % 64;
        for (; filled; filled &= filled - 1) {
            block *b = best_in(s->bin[large][64 * word + __builtin_ctzll(filled)], size);
            if (b) return b;
        }
    }
    return NULL;
}

/* ---- blocks by address ---- */

static block **bucket(aril_cuda_pool *p, const void *memory)
{
    return &p->in_use[((uintptr_t)memory / UNIT * 0x9e3779b97f4a7c15u) >> 50];
}

static void remember(aril_cuda_pool *p, block *b)
{
    block **at = bucket(p, b->memory);
    b->chained = *at;
    *at = b;
}

static block *recall(aril_cuda_pool *p, const void *memory)
{
    block **at = bucket(p, memory);
    while (*at && (*at)->memory != memory) at = &(*at)->chained;
    block *b = *at;
    if (b) *at = b->chained;
    return b;
}

/* ---- segments ---- */

static size_t segment_size(size_t size)
{
    if (size <= small_request) return small_segment;
    if (size <= medium_request) return medium_segment;
    return (size + large_unit - 1) / large_unit * large_unit;
}

/* Returns segments that are entirely free to the driver. Blocks of any queue: all work is done
 * first. */
static void release_free(aril_cuda_pool *p)
{
    if (aril_cuda_synchronize(p->device) == ARIL_ERR_UNSUPPORTED) return; /* it is recording */
    for (shelf *s = p->shelves; s; s = s->next)
        for (int i = 0; i < 2 * BINS && !s->recorded; i++)
            for (block *b = s->bin[i / BINS][i % BINS], *next; b; b = next) {
                next = b->next;
                if (b->left || b->right) continue;
                take(b);
                p->stats.reserved -= b->size;
                cudaFree(b->memory);
                end_block(p, b);
            }
    p->stats.trims++;
}

static void *driver_alloc(aril_cuda_pool *p, size_t bytes)
{
    void *memory = NULL;
    cudaError_t e = cudaMalloc(&memory, bytes);
    if (e == cudaErrorMemoryAllocation && p->stats.cached) {
        cudaGetLastError();
        release_free(p);
        p->stats.cached = p->stats.reserved - p->stats.in_use;
        e = cudaMalloc(&memory, bytes);
    }
    if (e == cudaSuccess)
        p->stats.driver_allocations++;
    else
        cudaGetLastError();
    return e == cudaSuccess ? memory : NULL;
}

/* A new segment as one block, not on any shelf; NULL when memory runs out. */
static block *new_segment(aril_cuda_pool *p, shelf *s, size_t size, bool large)
{
    size_t bytes = segment_size(size);
    block *b = new_block(p);
    if (!b) return NULL;
    b->memory = driver_alloc(p, bytes);
    if (!b->memory && bytes > size) { /* perhaps there is room for the request alone */
        bytes = size;
        b->memory = driver_alloc(p, bytes);
    }
    if (!b->memory) {
        end_block(p, b);
        return NULL;
    }
    b->size = bytes;
    b->shelf = s;
    b->large = large;
    p->stats.reserved += bytes;
    return b;
}

/* Cuts off what is beyond `size`, if it is worth a block of its own. */
static void split(aril_cuda_pool *p, block *b, size_t size)
{
    size_t rest = b->size - size;
    if (rest < (b->large ? small_request : (size_t)UNIT)) return;
    block *r = new_block(p);
    if (!r) return;
    *r = (block){ .left = b,
                  .right = b->right,
                  .shelf = b->shelf,
                  .memory = b->memory + size,
                  .size = rest,
                  .large = b->large };
    if (r->right) r->right->left = r;
    b->right = r;
    b->size = size;
    put(r);
}

/* Merges b with the free block to its right. */
static void absorb_right(aril_cuda_pool *p, block *b)
{
    block *r = b->right;
    if (!r || !r->free) return;
    take(r);
    b->size += r->size;
    b->right = r->right;
    if (b->right) b->right->left = b;
    end_block(p, r);
}

/* Puts a block on its shelf, merged with its free neighbours. */
static void release(aril_cuda_pool *p, block *b)
{
    absorb_right(p, b);
    if (b->left && b->left->free) {
        block *l = b->left;
        take(l);
        l->size += b->size;
        l->right = b->right;
        if (l->right) l->right->left = l;
        end_block(p, b);
        b = l;
    }
    put(b);
}

/* ---- memory of recordings ---- */

/* Releases the blocks that were set aside first, down to `bytes`. */
static void release_aside(aril_cuda_pool *p, shelf *s, size_t bytes)
{
    while (s->aside && s->aside_bytes > bytes) {
        block *b = s->aside;
        s->aside = b->next;
        s->aside_bytes -= b->size;
        release(p, b);
    }
}

/* A block that a recording frees is reused late: an op that gets its memory has to wait for those
 * that used it. */
static void set_aside(aril_cuda_pool *p, block *b)
{
    shelf *s = b->shelf;
    b->next = NULL;
    *(s->aside ? &s->aside_last->next : &s->aside) = b;
    s->aside_last = b;
    s->aside_bytes += b->size;
    release_aside(p, s, most_aside);
}

/* ---- shelves ---- */

/* A shelf without an owner, a new one if there is none. */
static shelf *free_shelf(aril_cuda_pool *p)
{
    shelf *s = p->shelves;
    while (s && (s->queue || s->recorded)) s = s->next;
    if (!s && (s = calloc(1, sizeof *s))) {
        s->next = p->shelves;
        p->shelves = s;
    }
    return s;
}

static shelf *shelf_of(aril_cuda_pool *p, aril_queue *queue)
{
    shelf *s = aril_cuda_recorded_shelf(queue);
    if (s) return s;
    for (s = p->shelves; s; s = s->next)
        if (s->queue == queue && !s->recorded) return s;
    s = free_shelf(p);
    if (s) s->queue = queue;
    return s;
}

aril_cuda_shelf *aril_cuda_shelf_new(aril_cuda_pool *p)
{
    if (p->plain) {
        aril_cuda_host->fail(ARIL_ERR_UNSUPPORTED, "cuda: nothing is recorded with "
                                                   "ARIL_CUDA_CACHE=0");
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    shelf *s = free_shelf(p);
    if (s) s->recorded = true;
    pthread_mutex_unlock(&p->lock);
    if (!s) aril_cuda_host->fail(ARIL_ERR_MEMORY, "cuda: out of memory for a recording");
    return s;
}

void aril_cuda_shelf_end(aril_cuda_pool *p, aril_cuda_shelf *s)
{
    pthread_mutex_lock(&p->lock);
    s->recorded = false; /* its blocks are for the next that asks for a shelf */
    release_aside(p, s, 0);
    pthread_mutex_unlock(&p->lock);
}

void aril_cuda_pool_forget(aril_cuda_pool *p, aril_queue *queue)
{
    pthread_mutex_lock(&p->lock);
    for (shelf *s = p->shelves; s; s = s->next)
        if (s->queue == queue) s->queue = NULL;
    pthread_mutex_unlock(&p->lock);
}

/* ---- the interface ---- */

static void count(aril_cuda_pool *p)
{
    p->stats.cached = p->stats.reserved - p->stats.in_use;
    if (p->stats.in_use > p->stats.peak) p->stats.peak = p->stats.in_use;
}

/* The largest size in use below a bound, and how many blocks have it; 0: there is none. */
static size_t largest_below(const aril_cuda_pool *p, size_t below, int64_t *times)
{
    size_t most = 0;
    *times = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (const block *b = p->in_use[i]; b; b = b->chained) {
            if (b->size >= below || b->size < most) continue;
            *times = b->size == most ? *times + 1 : 1;
            most = b->size;
        }
    return most;
}

/* The largest sizes in use, "2 x 1.5 GiB, 8 x 0.5 GiB". */
static void list_largest(const aril_cuda_pool *p, char *to, size_t size)
{
    size_t n = 0, most = SIZE_MAX;
    int64_t times;
    to[0] = '\0';
    for (int k = 0; k < LARGEST && n < size && (most = largest_below(p, most, &times)); k++) {
        int m = snprintf(to + n, size - n, "%s%lld x %.3f GiB", k ? ", " : "", (long long)times,
                         (double)most / 0x1p30);
        n += m > 0 ? (size_t)m : 0;
    }
}

void aril_cuda_pool_info(void *self, aril_pool_info *info)
{
    const int room = (int)(sizeof info->largest / sizeof *info->largest);
    aril_cuda_pool *p = ((aril_cuda_device *)self)->pool;
    *info = (aril_pool_info){ 0 };
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    info->cached = p->stats.cached;
    info->misses = p->stats.driver_allocations;
    size_t most = SIZE_MAX;
    int64_t times;
    while (info->n_largest < room && (most = largest_below(p, most, &times))) {
        info->largest[info->n_largest].bytes = most;
        info->largest[info->n_largest++].count = times;
    }
    pthread_mutex_unlock(&p->lock);
}

static void report_full(const aril_cuda_pool *p, size_t bytes)
{
    size_t left = 0, total = 0;
    char largest[128];
    cudaMemGetInfo(&left, &total);
    list_largest(p, largest, sizeof largest);
    aril_cuda_host->fail(
        ARIL_ERR_MEMORY,
        "out of memory: %zu bytes (%.3f GiB) on cuda:%d, with %.3f GiB in use (the largest: %s) "
        "and %.3f GiB cached in pieces; %.3f of %.3f GiB are free; use a smaller batch",
        bytes, (double)bytes / 0x1p30, p->device->index, (double)p->stats.in_use / 0x1p30,
        largest[0] ? largest : "none", (double)p->stats.cached / 0x1p30, (double)left / 0x1p30,
        (double)total / 0x1p30);
}

static block *alloc_block(aril_cuda_pool *p, aril_queue *queue, size_t bytes)
{
    size_t size = (bytes + UNIT - 1) / UNIT * UNIT;
    bool large = size > small_request;
    shelf *s = shelf_of(p, queue);
    block *b = s ? find_free(s, size, large) : NULL;
    if (b)
        take(b);
    else if (s)
        b = new_segment(p, s, size, large);
    if (b) split(p, b, size);
    return b;
}

static block *alloc_plain(aril_cuda_pool *p, aril_queue *queue, size_t bytes)
{
    block *b = new_block(p);
    shelf *s = shelf_of(p, queue);
    void *memory = b && s ? driver_alloc(p, bytes) : NULL;
    if (!memory) {
        if (b) end_block(p, b);
        return NULL;
    }
    *b = (block){ .memory = memory, .size = bytes, .shelf = s };
    p->stats.reserved += bytes;
    return b;
}

void *aril_cuda_alloc(void *self, aril_queue *queue, size_t bytes)
{
    aril_cuda_pool *p = ((aril_cuda_device *)self)->pool;
    if (!bytes) bytes = 1;
    aril_cuda_use(self);
    pthread_mutex_lock(&p->lock);
    block *b = p->plain ? alloc_plain(p, queue, bytes) : alloc_block(p, queue, bytes);
    if (b) {
        remember(p, b);
        p->stats.in_use += b->size;
        p->stats.allocations++;
        count(p);
    } else {
        report_full(p, bytes);
    }
    void *memory = b ? b->memory : NULL;
    pthread_mutex_unlock(&p->lock);
    return memory;
}

/* The queue of a block waits for the one that used it last. */
static void order(aril_queue *owner, aril_queue *user)
{
    cudaEvent_t event;
    if (owner && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) {
        cudaEventRecord(event, user->stream);
        cudaStreamWaitEvent(owner->stream, event, 0);
        cudaEventDestroy(event);
    } else {
        cudaStreamSynchronize(user->stream);
    }
}

void aril_cuda_free(void *self, aril_queue *queue, void *memory, size_t bytes)
{
    aril_cuda_pool *p = ((aril_cuda_device *)self)->pool;
    (void)bytes;
    if (!p) return; /* the device was closed */
    aril_cuda_use(self);
    pthread_mutex_lock(&p->lock);
    block *b = recall(p, memory);
    if (b) p->stats.in_use -= b->size;
    if (b && p->plain) {
        cudaStreamSynchronize(aril_cuda_queue_stream(queue));
        cudaFree(b->memory);
        p->stats.reserved -= b->size;
        end_block(p, b);
    } else if (b) {
        if (b->shelf->queue != queue && !b->shelf->recorded) order(b->shelf->queue, queue);
        if (b->shelf->recorded)
            set_aside(p, b);
        else
            release(p, b);
    }
    count(p);
    pthread_mutex_unlock(&p->lock);
}

void aril_cuda_trim(void *self)
{
    aril_cuda_pool *p = ((aril_cuda_device *)self)->pool;
    if (!p) return;
    aril_cuda_use(self);
    pthread_mutex_lock(&p->lock);
    release_free(p);
    count(p);
    aril_cuda_host->log("cuda:%d: trimmed to %zu bytes, %zu in use, %zu at most", p->device->index,
                        p->stats.reserved, p->stats.in_use, p->stats.peak);
    pthread_mutex_unlock(&p->lock);
}

/* Called when nothing is in use. */
void aril_cuda_pool_delete(aril_cuda_pool *p)
{
    if (!p) return;
    release_free(p);
    for (shelf *s = p->shelves, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    for (block *b = p->spare, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}
