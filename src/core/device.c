#include "core/device.h"

#include "core/arena.h"
#include "core/blocks.h"
#include "core/foreign.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/queues.h"
#include "core/thread.h"

#include "aril/parallel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A freed block that waits for reuse. Stored separately, since the memory may not be host
 * memory. */
typedef struct aril__cached_block {
    struct aril__cached_block *next;
    void *memory;
    size_t bytes;
    int queue; /* the number of the one that used it last */
} cached_block;

aril__device *aril__cpu_device;

void (*aril__open_plugins)(const char *kind_name);
void (*aril__plugin_reason)(const char *kind_name, char *buf, size_t size);

/* Entries below the counts never change: readers need no lock. */
static struct {
    pthread_mutex_t lock; /* of those who add */
    char kind_names[ARIL__MAX_KINDS][24];
    atomic_int n_kinds;
    aril__device *devices[ARIL__MAX_DEVICES];
    atomic_int n_devices;
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER,
               .kind_names = { "cpu", "cuda" },
               .n_kinds = ARIL__FIRST_FREE };

static int kinds(void)
{
    return atomic_load_explicit(&registry.n_kinds, memory_order_acquire);
}

static int devices(void)
{
    return atomic_load_explicit(&registry.n_devices, memory_order_acquire);
}

/* ---- the CPU ---- */

static void *cpu_alloc(void *self, aril_queue *queue, size_t bytes)
{
    (void)self;
    (void)queue;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void cpu_free(void *self, aril_queue *queue, void *p, size_t bytes)
{
    (void)self;
    (void)queue;
    (void)bytes;
    free(p);
}

static aril_status cpu_copy(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes)
{
    (void)self;
    (void)queue;
    memcpy(dst, src, bytes);
    return ARIL_OK;
}

static aril_status cpu_transfer(void *self, aril_queue *queue, void *dst, const void *src,
                                size_t bytes, bool async)
{
    (void)async;
    return cpu_copy(self, queue, dst, src, bytes);
}

static void cpu_describe(void *self, char *buf, size_t size)
{
    (void)self;
    double gb = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / 1e9;
    snprintf(buf, size, "%d threads, %.1f GB", aril_threads(), gb);
}

void aril__devices_start(void)
{
    static const aril__device_ops ops = { .size = sizeof ops,
                                          .alloc = cpu_alloc,
                                          .free = cpu_free,
                                          .from_host = cpu_transfer,
                                          .to_host = cpu_transfer,
                                          .copy = cpu_copy,
                                          .describe = cpu_describe };
    aril__cpu_device = aril__device_register("cpu", 0, &ops, NULL, true);
    /* Under a sanitizer each block is a separate allocation, so that it detects use after free. */
    if (aril__cpu_device && !ARIL__PLAIN_BLOCKS) aril__cpu_device->arena = aril__arena_new();
}

static void *cpu_closed(void *self, aril_queue *queue, size_t bytes)
{
    (void)self;
    (void)queue;
    (void)bytes;
    return NULL;
}

void aril__devices_close(void)
{
    aril__cpu_device->ops.alloc = cpu_closed;
    aril__cpu_device->host_memory = false; /* nor may small tensors use their inline buffer */
    aril__arena_delete(aril__cpu_device->arena);
    aril__cpu_device->arena = NULL;
}

/* ---- the registry ---- */

int aril__device_kind(const char *name)
{
    for (int k = 0, n = kinds(); k < n; k++)
        if (strcmp(registry.kind_names[k], name) == 0) return k;
    return -1;
}

static aril__device *find(aril_device id)
{
    for (int i = 0, n = devices(); i < n; i++)
        if (aril_device_equal(registry.devices[i]->id, id)) return registry.devices[i];
    return NULL;
}

/* Adds a kind if it is new and there is room. With the lock held. */
static void add_kind(const char *name)
{
    int n = kinds();
    if (aril__device_kind(name) >= 0 || n == ARIL__MAX_KINDS) return;
    snprintf(registry.kind_names[n], sizeof registry.kind_names[0], "%s", name);
    atomic_store_explicit(&registry.n_kinds, n + 1, memory_order_release);
}

static aril__device *new_device(aril_device id, const char *kind_name, const aril__device_ops *ops,
                                void *self, bool host_memory)
{
    static aril__device cpu; /* always exists, so nobody has to check for it */
    aril__device *d = id.kind == ARIL__CPU && id.index == 0 ? &cpu : aril__calloc(sizeof *d);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "device '%s:%d': out of memory", kind_name, id.index);
        return NULL;
    }
    d->id = id;
    snprintf(d->kind_name, sizeof d->kind_name, "%s", kind_name);
    d->host_memory = host_memory;
    d->ops = *ops;
    d->self = self;
    if (ops->queue_new && !(d->queue = ops->queue_new(self))) {
        if (aril_ok())
            aril__fail(ARIL_ERR_DEVICE, "device '%s:%d': cannot create a queue", kind_name,
                       id.index);
        free(d);
        return NULL;
    }
    if (ops->limits) ops->limits(self, &d->limits);
    d->limits.source[sizeof d->limits.source - 1] = '\0';
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

/* Frees a device that was not registered. */
static void free_device(aril__device *d)
{
    if (d->queue) d->ops.queue_free(d->self, d->queue);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* Several devices of one kind, which are registered together. */
typedef struct batch {
    const char *kind_name;
    int first, n; /* indices first to first + n - 1 */
    const aril__device_ops *ops;
    void *const *selves;
    bool host_memory;
} batch;

/* Whether there is room for them, and none of them is registered yet. With the lock held. */
static bool has_room(const batch *b)
{
    int kind = aril__device_kind(b->kind_name);
    if (b->n > ARIL__MAX_DEVICES - devices() || (kind < 0 && kinds() == ARIL__MAX_KINDS)) {
        aril__fail(ARIL_ERR_DEVICE, "device '%s:%d': too many devices (at most %d, of %d kinds)",
                   b->kind_name, b->first, ARIL__MAX_DEVICES, ARIL__MAX_KINDS);
        return false;
    }
    for (int i = b->first; i < b->first + b->n && kind >= 0; i++) {
        if (!find((aril_device){ (int16_t)kind, (int16_t)i })) continue;
        aril__fail(ARIL_ERR_DEVICE, "device '%s:%d' is already registered", b->kind_name, i);
        return false;
    }
    return true;
}

/* With the lock held. Returns the number of the kind, or -1. */
static int add_devices(const batch *b)
{
    aril__device *made[ARIL__MAX_DEVICES];
    if (!has_room(b)) return -1;
    int kind = aril__device_kind(b->kind_name), before = devices(), k = 0;
    if (kind < 0) kind = kinds(); /* the number that it gets below */
    for (; k < b->n; k++) {
        aril_device id = { (int16_t)kind, (int16_t)(b->first + k) };
        made[k] = new_device(id, b->kind_name, b->ops, b->selves[k], b->host_memory);
        if (!made[k]) break;
    }
    if (k < b->n) {
        while (k-- > 0) free_device(made[k]);
        return -1;
    }
    for (int i = 0; i < b->n; i++) registry.devices[before + i] = made[i];
    add_kind(b->kind_name);
    atomic_store_explicit(&registry.n_devices, before + b->n, memory_order_release);
    return kind;
}

static int register_batch(const batch *b)
{
    pthread_mutex_lock(&registry.lock);
    int kind = add_devices(b);
    pthread_mutex_unlock(&registry.lock);
    if (kind >= 0) aril__profile_devices_added();
    return kind;
}

int aril__devices_register(const char *kind_name, int n, const aril__device_ops *ops,
                           void *const *selves, bool host_memory)
{
    return register_batch(&(batch){ kind_name, 0, n, ops, selves, host_memory });
}

aril__device *aril__device_register(const char *kind_name, int index, const aril__device_ops *ops,
                                    void *self, bool host_memory)
{
    int kind = register_batch(&(batch){ kind_name, index, 1, ops, &self, host_memory });
    return kind < 0 ? NULL : find((aril_device){ (int16_t)kind, (int16_t)index });
}

/* The device, after opening the plug-ins of its kind if there is none yet. */
static aril__device *find_or_open(aril_device id)
{
    aril__device *d = find(id);
    if (d || id.kind <= ARIL__CPU || id.kind >= kinds() || !aril__open_plugins) return d;
    aril__open_plugins(registry.kind_names[id.kind]);
    return find(id);
}

static aril__cold void no_device(aril_device id)
{
    char name[48], there[256] = "", why[400] = "";
    for (int i = 0, n = devices(); i < n; i++) {
        size_t at = strlen(there);
        aril_device_name(registry.devices[i]->id, name, sizeof name);
        snprintf(there + at, sizeof there - at, "%s%s", i ? ", " : "", name);
    }
    bool other = false; /* device of the kind */
    for (int i = 0, n = devices(); i < n; i++)
        other = other || registry.devices[i]->id.kind == id.kind;
    if (!other && id.kind > ARIL__CPU && id.kind < kinds() && aril__plugin_reason)
        aril__plugin_reason(registry.kind_names[id.kind], why, sizeof why);
    aril__fail(ARIL_ERR_DEVICE, "device: no '%s'%s%s (available: %s)",
               aril_device_name(id, name, sizeof name), why[0] ? ": " : "", why, there);
}

aril__device *aril__device_find(aril_device id)
{
    if (!aril__cpu_device) aril__self(); /* the first call of a program: devices are registered */
    if (id.kind == ARIL__CPU && id.index == 0) return aril__cpu_device;
    aril__device *d = find_or_open(id);
    if (!d) no_device(id);
    return d;
}

aril__device *aril__device_registered(int i)
{
    return i < devices() ? registry.devices[i] : NULL;
}

void aril__devices_shutdown(void)
{
    for (int i = 0, n = devices(); i < n; i++) {
        aril__device *d = registry.devices[i];
        if (d->ops.synchronize) d->ops.synchronize(d->self);
        if (d->queue) aril__collect_pending(d, true);
        aril_memory_trim(d->id);
        /* Tensors that the program still holds point to their device, so it stays alive. */
        if (d->stats.live == 0 && d->queue) d->ops.queue_free(d->self, d->queue);
        if (d->stats.live == 0 && d->ops.close) d->ops.close(d->self);
        if (d->stats.live == 0) {
            aril__arena_delete(d->arena);
            d->arena = NULL;
        }
    }
}

/* ---- the cache ---- */

/* Sizes are rounded up to one of eight steps per power of two, so at most an eighth is wasted. */
static size_t bin_of(size_t bytes, size_t *rounded)
{
    size_t units = (bytes + 63) / 64;
    unsigned log = units < 8 ? 3 : 63u - (unsigned)__builtin_clzll(units);
    size_t step = (size_t)1 << (log - 3);
    size_t up = (units + step - 1) / step; /* 8..16 */
    *rounded = up * step * 64;
    return units < 8 ? units : (size_t)(log - 3) * 8 + up;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + ARIL__ARENA_PAGE - 1) / ARIL__ARENA_PAGE * ARIL__ARENA_PAGE;
}

size_t aril__device_block(const aril__device *d, size_t bytes)
{
    size_t rounded;
    if (d->arena && bytes >= ARIL__ARENA_MIN) return whole_pages(bytes);
    if (d->ops.own_pool) return bytes;
    bin_of(bytes, &rounded);
    return rounded;
}

static void free_cached(aril__device *d, size_t bin)
{
    cached_block *b = d->bins[bin];
    d->bins[bin] = b->next;
    d->stats.cached -= (int64_t)b->bytes;
    d->ops.free(d->self, d->queue, b->memory, b->bytes);
    free(b);
}

/* Frees cached memory, largest blocks first, until at most `keep` bytes are cached. */
static void trim(aril__device *d, int64_t keep)
{
    if (d->ops.own_pool && d->ops.trim) d->ops.trim(d->self);
    if (d->arena && d->stats.cached > keep)
        d->stats.cached -= (int64_t)aril__arena_trim(d->arena, (size_t)(d->stats.cached - keep));
    for (size_t bin = ARIL__BINS; bin-- > 0 && d->stats.cached > keep;)
        while (d->bins[bin] && d->stats.cached > keep) free_cached(d, bin);
}

/* Keeps live plus cached memory close to the peak so far. Small programs get some slack where
 * blocks of all sizes share pages: otherwise fragmented pages would be released and faulted in
 * again at every step. */
static void trim_to_peak(aril__device *d)
{
    const int64_t more = d->arena ? 16 << 20 : 0;
    int64_t spare = d->stats.peak + d->stats.peak / 8 + more - d->stats.live;
    if (d->stats.cached > spare) trim(d, spare > 0 ? spare : 0);
}

/* The two kinds of blocks; called with the lock held. *size gets the block's size in bytes. */
static void *alloc_in_arena(aril__device *d, size_t bytes, bool lasting, size_t *size)
{
    size_t fresh;
    void *p = aril__arena_alloc(d->arena, bytes, lasting, &fresh);
    if (!p) return NULL;
    *size = whole_pages(bytes);
    d->stats.live += (int64_t)*size;
    d->stats.cached -= (int64_t)(*size - fresh);
    d->stats.misses += fresh > 0;
    return p;
}

static void *alloc_by_size(aril__device *d, size_t bytes, size_t *size)
{
    size_t bin = bin_of(bytes, size);
    cached_block *b = d->bins[bin];
    void *p;
    if (b) {
        d->bins[bin] = b->next;
        d->stats.cached -= (int64_t)*size;
        p = b->memory;
        if (d->queue && !aril__one_queue()) aril__queue_after(d, aril__queue_number(d), b->queue);
        free(b);
    } else {
        aril_queue *queue = aril__queue(d);
        d->stats.misses++;
        p = d->ops.alloc(d->self, queue, *size);
        if (!p) {
            trim(d, 0);
            p = d->ops.alloc(d->self, queue, *size);
        }
    }
    if (p) d->stats.live += (int64_t)*size;
    return p;
}

/* Whether bytes more would exceed the limit; called with the lock held. */
static bool exceeds_limit(const aril__device *d, size_t bytes)
{
    return d->limit > 0 && d->stats.live + (int64_t)bytes > d->limit;
}

/* From the device's own pool: with the lock held, and only counted. */
static void *alloc_in_pool(aril__device *d, size_t bytes, size_t *size)
{
    void *p = d->ops.alloc(d->self, aril__queue(d), bytes);
    *size = bytes;
    d->stats.misses++;
    if (p) d->stats.live += (int64_t)bytes;
    return p;
}

static void free_in_pool(aril__device *d, int queue, void *p, size_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->stats.live -= (int64_t)bytes;
    d->ops.free(d->self, aril__queue_numbered(d, queue), p, bytes);
    pthread_mutex_unlock(&d->lock);
}

/* What the device's own pool says; nothing if it has none. */
static aril_pool_info pool_info(aril__device *d)
{
    aril_pool_info info = { 0 };
    if (d->ops.own_pool && d->ops.pool_info) d->ops.pool_info(d->self, &info);
    const int most = (int)(sizeof info.largest / sizeof *info.largest);
    if (info.n_largest > most) info.n_largest = most;
    return info;
}

/* The request would exceed the limit that was set. */
static aril__cold void report_limit(aril__device *d, size_t bytes)
{
    char name[48], largest[160] = "";
    aril_pool_info info = pool_info(d);
    for (int i = 0; i < info.n_largest && i < 3; i++) {
        size_t at = strlen(largest);
        snprintf(largest + at, sizeof largest - at, "%s%lld x %lld",
                 i ? ", " : " (the largest: ", (long long)info.largest[i].count,
                 (long long)info.largest[i].bytes);
    }
    aril__fail(ARIL_ERR_MEMORY,
               "out of memory: %zu bytes on %s, with %lld in use%s%s, exceed the limit of %lld",
               bytes, aril_device_name(d->id, name, sizeof name), (long long)d->stats.live, largest,
               *largest ? ")" : "", (long long)d->limit);
}

static void *alloc(aril__device *d, size_t bytes, bool lasting)
{
    size_t size;
    void *p = NULL;
    bool refused = false;
    const aril__error *before = aril__self()->last_error;
    if (aril__unlikely(aril__fault_now() || bytes > (size_t)1 << 47)) goto fail;
    pthread_mutex_lock(&d->lock);
    int64_t misses = d->stats.misses;
    d->stats.allocations++;
    if (aril__unlikely(refused = exceeds_limit(d, bytes))) {
        pthread_mutex_unlock(&d->lock);
        goto fail;
    }
    if (d->arena && bytes >= ARIL__ARENA_MIN) p = alloc_in_arena(d, bytes, lasting, &size);
    if (!p) p = d->ops.own_pool ? alloc_in_pool(d, bytes, &size) : alloc_by_size(d, bytes, &size);
    if (d->stats.live > d->stats.peak) d->stats.peak = d->stats.live;
    if (d->stats.misses != misses && !d->ops.own_pool) trim_to_peak(d);
    pthread_mutex_unlock(&d->lock);
    if (p) {
        if (aril__unlikely(aril__log_on(ARIL__LOG_MEMORY)))
            aril__log(ARIL__LOG_MEMORY, "%s: +%zu bytes, live %lld, cached %lld", d->kind_name,
                      size, (long long)d->stats.live, (long long)d->stats.cached);
        return p;
    }
fail:;
    char name[32];
    aril_device_name(d->id, name, sizeof name);
    if (d->ops.alloc == cpu_closed)
        aril__fail(ARIL_ERR_MEMORY, "out of memory starting the library");
    else if (refused)
        report_limit(d, bytes);
    else if (aril__self()->last_error == before) /* the device's pool may have said more */
        aril__fail(ARIL_ERR_MEMORY, "out of memory: %zu bytes on %s (%lld in use)", bytes, name,
                   (long long)d->stats.live);
    return NULL;
}

/* The same without an error. */
static void *try_alloc(aril__device *d, size_t bytes, bool lasting)
{
    aril__thread *th = aril__self();
    aril__error *first = th->error, *last = th->last_error;
    th->error = th->last_error = NULL;
    void *p = alloc(d, bytes, lasting);
    aril__error_release(th->error);
    aril__error_release(th->last_error);
    th->error = first;
    th->last_error = last;
    return p;
}

/* With several queues, some memory may be free once their work is done. */
static void *alloc_among_queues(aril__device *d, size_t bytes, bool lasting)
{
    aril__collect_pending(d, false);
    void *p = try_alloc(d, bytes, lasting);
    if (p) return p;
    aril__collect_pending(d, true);
    return alloc(d, bytes, lasting);
}

static void *alloc_for_queue(aril__device *d, size_t bytes, bool lasting)
{
    return aril__one_queue() || !d->queue ? alloc(d, bytes, lasting)
                                          : alloc_among_queues(d, bytes, lasting);
}

void *aril__device_alloc(aril__device *d, size_t bytes)
{
    return alloc_for_queue(d, bytes, false);
}

void *aril__device_alloc_lasting(aril__device *d, size_t bytes)
{
    return alloc_for_queue(d, bytes, true);
}

void aril__device_count_live(aril__device *d, int64_t bytes)
{
    pthread_mutex_lock(&d->lock);
    d->stats.live += bytes;
    if (d->stats.live > d->stats.peak) d->stats.peak = d->stats.live;
    pthread_mutex_unlock(&d->lock);
}

void aril__device_free(aril__device *d, void *p, size_t bytes)
{
    aril__device_free_for(d, aril__one_queue() ? 0 : aril__queue_number(d), p, bytes);
}

void aril__device_free_for(aril__device *d, int queue, void *p, size_t bytes)
{
    size_t size;
    if (d->arena && aril__arena_owns(d->arena, p)) {
        pthread_mutex_lock(&d->lock);
        size = aril__arena_free(d->arena, p);
        d->stats.live -= (int64_t)size;
        d->stats.cached += (int64_t)size;
        pthread_mutex_unlock(&d->lock);
    } else if (d->ops.own_pool) {
        size = bytes;
        free_in_pool(d, queue, p, bytes);
    } else {
        size_t bin = bin_of(bytes, &size);
        cached_block *b = malloc(sizeof *b);
        pthread_mutex_lock(&d->lock);
        d->stats.live -= (int64_t)size;
        if (b) {
            *b = (cached_block){ d->bins[bin], p, size, queue };
            d->bins[bin] = b;
            d->stats.cached += (int64_t)size;
        } else {
            d->ops.free(d->self, aril__queue_numbered(d, queue), p, size);
        }
        pthread_mutex_unlock(&d->lock);
    }
    if (aril__unlikely(aril__log_on(ARIL__LOG_MEMORY)))
        aril__log(ARIL__LOG_MEMORY, "%s: -%zu bytes, live %lld, cached %lld", d->kind_name, size,
                  (long long)d->stats.live, (long long)d->stats.cached);
}

aril_memory_stats aril_memory(aril_device device)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return (aril_memory_stats){ 0 };
    pthread_mutex_lock(&d->lock);
    aril_memory_stats s = d->stats;
    pthread_mutex_unlock(&d->lock);
    aril_pool_info info = pool_info(d);
    if (d->ops.own_pool) {
        s.cached = (int64_t)info.cached;
        s.misses = info.misses;
    }
    return s;
}

int aril_memory_largest(aril_device device, int n, aril_memory_block *blocks)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return 0;
    if (n > 0 && !blocks) {
        aril__fail(ARIL_ERR_ARG, "memory_largest: the blocks are NULL");
        return 0;
    }
    aril_pool_info info = pool_info(d);
    int found = info.n_largest < n ? info.n_largest : n;
    for (int i = 0; i < found; i++)
        blocks[i] = (aril_memory_block){ (int64_t)info.largest[i].bytes, info.largest[i].count };
    return found > 0 ? found : 0;
}

void aril_memory_reset_peak(aril_device device)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->stats.peak = d->stats.live;
    pthread_mutex_unlock(&d->lock);
}

aril_status aril_memory_set_limit(aril_device device, int64_t bytes)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return aril__self()->last_error->code;
    if (bytes < 0)
        return aril__fail(ARIL_ERR_ARG, "memory_set_limit: got %lld bytes, expected 0 or more",
                          (long long)bytes);
    pthread_mutex_lock(&d->lock);
    d->limit = bytes;
    pthread_mutex_unlock(&d->lock);
    return ARIL_OK;
}

void aril_memory_trim(aril_device device)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return;
    if (d->queue) aril__collect_pending(d, true);
    pthread_mutex_lock(&d->lock);
    trim(d, 0);
    pthread_mutex_unlock(&d->lock);
}

/* ---- public ---- */

aril_device aril_cpu(void)
{
    return (aril_device){ ARIL__CPU, 0 };
}

aril_device aril_cuda(int index)
{
    if (index < INT16_MIN || index >= INT16_MAX) {
        aril__self();
        aril__fail(ARIL_ERR_DEVICE, "device: no device 'cuda:%d'", index);
        index = -1;
    }
    return (aril_device){ ARIL__CUDA, (int16_t)index };
}

bool aril_device_equal(aril_device a, aril_device b)
{
    return a.kind == b.kind && a.index == b.index;
}

/* The index that decimal digits without leading zeros give, or -1. */
static int device_index(const char *digits)
{
    int index = 0;
    if (!*digits || (digits[0] == '0' && digits[1])) return -1;
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9') return -1;
        index = index * 10 + (*digits - '0');
        if (index >= INT16_MAX) return -1;
    }
    return index;
}

aril_device aril_device_named(const char *name)
{
    aril__self();
    char kind[24];
    const char *colon = name ? strchr(name, ':') : NULL;
    size_t n = !name ? 0 : colon ? (size_t)(colon - name) : strlen(name);
    int index = colon ? device_index(colon + 1) : 0;
    if (n > 0 && n < sizeof kind && index >= 0) {
        memcpy(kind, name, n);
        kind[n] = '\0';
        if (aril__device_kind(kind) < 0 && aril__open_plugins) aril__open_plugins(kind);
        int k = aril__device_kind(kind);
        if (k >= 0 && (k != ARIL__CPU || index == 0)) /* the CPU is one device */
            return (aril_device){ (int16_t)k, (int16_t)index };
    }
    aril__fail(
        ARIL_ERR_DEVICE,
        "device: no device '%s'; expected \"cpu\", or the kind of a plug-in and an index, such "
        "as \"cuda:0\" (`aril devices` lists them)",
        name ? name : "(null)");
    return (aril_device){ -1, -1 };
}

const char *aril_device_name(aril_device device, char *buf, size_t size)
{
    if (!buf) return "";
    if (device.kind == ARIL__CPU)
        snprintf(buf, size, "cpu");
    else if (device.kind > 0 && device.kind < kinds())
        snprintf(buf, size, "%s:%d", registry.kind_names[device.kind], device.index);
    else
        snprintf(buf, size, "unknown device (%d:%d)", device.kind, device.index);
    return buf;
}

bool aril_device_available(aril_device device)
{
    aril__self();
    return find_or_open(device) != NULL;
}

int aril_device_count(void)
{
    aril__self();
    if (aril__open_plugins) aril__open_plugins(NULL);
    return devices();
}

aril_device aril_device_at(int i)
{
    int n = aril_device_count();
    if (i < 0 || i >= n) {
        aril__fail(ARIL_ERR_INDEX, "device_at: %d is out of range for %d devices", i, n);
        return (aril_device){ -1, -1 };
    }
    return registry.devices[i]->id;
}

const char *aril_device_describe(aril_device device, char *buf, size_t size)
{
    if (!buf) return "";
    aril__self();
    aril__device *d = aril__device_find(device);
    char name[48], text[1000] = "";
    aril_device_name(device, name, sizeof name);
    if (d && d->ops.describe) d->ops.describe(d->self, text, sizeof text);
    snprintf(buf, size, "%s: %s", name, d ? text : "not available");
    return buf;
}

aril_limits aril_device_limits(aril_device device)
{
    aril__self();
    const aril__device *d = aril__device_find(device);
    if (!d) return (aril_limits){ .bytes = 0 };
    if (d != aril__cpu_device) return d->limits;
    return (aril_limits){ .f32 = aril_machine_peak(), .source = "measured" };
}

aril_status aril_synchronize(aril_device device)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return ARIL_ERR_DEVICE;
    return aril__device_wait(d);
}
