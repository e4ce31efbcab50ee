#include "core/device.h"

#include "core/arena.h"
#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/thread.h"

#include "aril/parallel.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A freed block that waits for reuse. Stored separately, since the memory may not be host
 * memory. */
typedef struct aril__cached_block {
    struct aril__cached_block *next;
    void *memory;
    size_t bytes;
} cached_block;

aril__device *aril__cpu_device;

static struct {
    char kind_names[ARIL__MAX_KINDS][24];
    int n_kinds;
    aril__device *devices[ARIL__MAX_DEVICES];
    int n_devices;
} registry = { .kind_names = { "cpu", "cuda" }, .n_kinds = ARIL__FIRST_FREE };

/* ---- the CPU ---- */

static void *cpu_alloc(void *self, size_t bytes)
{
    (void)self;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void cpu_free(void *self, void *p, size_t bytes)
{
    (void)self;
    (void)bytes;
    free(p);
}

static aril_status cpu_copy(void *self, void *dst, const void *src, size_t bytes)
{
    (void)self;
    memcpy(dst, src, bytes);
    return ARIL_OK;
}

static void cpu_describe(void *self, char *buf, size_t size)
{
    (void)self;
    double gb = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / 1e9;
    snprintf(buf, size, "%d threads, %.1f GB", aril_threads(), gb);
}

void aril__devices_start(void)
{
    static const aril__device_ops ops = { .alloc = cpu_alloc,
                                          .free = cpu_free,
                                          .from_host = cpu_copy,
                                          .to_host = cpu_copy,
                                          .copy = cpu_copy,
                                          .describe = cpu_describe };
    aril__cpu_device = aril__device_register("cpu", 0, &ops, NULL, true);
    /* Under a sanitizer each block is a separate allocation, so that it detects use after free. */
    if (aril__cpu_device && !ARIL__PLAIN_BLOCKS) aril__cpu_device->arena = aril__arena_new();
}

static void *cpu_closed(void *self, size_t bytes)
{
    (void)self;
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

static int kind_of(const char *name, bool add)
{
    for (int k = 0; k < registry.n_kinds; k++)
        if (strcmp(registry.kind_names[k], name) == 0) return k;
    if (!add || registry.n_kinds == ARIL__MAX_KINDS) return -1;
    snprintf(registry.kind_names[registry.n_kinds], sizeof registry.kind_names[0], "%s", name);
    return registry.n_kinds++;
}

aril__device *aril__device_register(const char *kind_name, int index, const aril__device_ops *ops,
                                    void *self, bool host_memory)
{
    int kind = kind_of(kind_name, true);
    if (kind < 0 || registry.n_devices == ARIL__MAX_DEVICES) {
        aril__fail(ARIL_ERR_DEVICE, "device '%s:%d': too many devices", kind_name, index);
        return NULL;
    }
    for (int i = 0; i < registry.n_devices; i++) {
        aril_device id = registry.devices[i]->id;
        if (id.kind == kind && id.index == index) {
            aril__fail(ARIL_ERR_DEVICE, "device '%s:%d' is already registered", kind_name, index);
            return NULL;
        }
    }
    static aril__device cpu; /* always exists, so nobody has to check for it */
    aril__device *d = kind == ARIL__CPU && index == 0 ? &cpu : aril__calloc(sizeof *d);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "device '%s:%d': out of memory", kind_name, index);
        return NULL;
    }
    d->id = (aril_device){ (int16_t)kind, (int16_t)index };
    snprintf(d->kind_name, sizeof d->kind_name, "%s", kind_name);
    d->host_memory = host_memory;
    d->ops = *ops;
    d->self = self;
    pthread_mutex_init(&d->lock, NULL);
    registry.devices[registry.n_devices++] = d;
    return d;
}

aril__device *aril__device_find(aril_device id)
{
    if (id.kind == ARIL__CPU && id.index == 0) return aril__cpu_device;
    for (int i = 0; i < registry.n_devices; i++)
        if (aril_device_equal(registry.devices[i]->id, id)) return registry.devices[i];
    char name[48], there[256] = "";
    for (int i = 0; i < registry.n_devices; i++) {
        size_t n = strlen(there);
        aril_device_name(registry.devices[i]->id, name, sizeof name);
        snprintf(there + n, sizeof there - n, "%s%s", i ? ", " : "", name);
    }
    aril__fail(ARIL_ERR_DEVICE, "device: no '%s' (available: %s)",
               aril_device_name(id, name, sizeof name), there);
    return NULL;
}

void aril__devices_shutdown(void)
{
    for (int i = 0; i < registry.n_devices; i++) {
        aril__device *d = registry.devices[i];
        aril_memory_trim(d->id);
        /* Tensors that the program still holds point to their device, so it stays alive. */
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

static void free_cached(aril__device *d, size_t bin)
{
    cached_block *b = d->bins[bin];
    d->bins[bin] = b->next;
    d->stats.cached -= (int64_t)b->bytes;
    d->ops.free(d->self, b->memory, b->bytes);
    free(b);
}

/* Frees cached memory, largest blocks first, until at most `keep` bytes are cached. */
static void trim(aril__device *d, int64_t keep)
{
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
static void *alloc_in_arena(aril__device *d, size_t bytes, size_t *size)
{
    size_t fresh;
    void *p = aril__arena_alloc(d->arena, bytes, &fresh);
    if (!p) return NULL;
    *size = (bytes + ARIL__ARENA_PAGE - 1) / ARIL__ARENA_PAGE * ARIL__ARENA_PAGE;
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
        free(b);
    } else {
        d->stats.misses++;
        p = d->ops.alloc(d->self, *size);
        if (!p) {
            trim(d, 0);
            p = d->ops.alloc(d->self, *size);
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

void *aril__device_alloc(aril__device *d, size_t bytes)
{
    size_t size;
    void *p = NULL;
    bool refused = false;
    if (aril__unlikely(aril__fault_now() || bytes > (size_t)1 << 47)) goto fail;
    pthread_mutex_lock(&d->lock);
    int64_t misses = d->stats.misses;
    d->stats.allocations++;
    if (aril__unlikely(refused = exceeds_limit(d, bytes))) {
        pthread_mutex_unlock(&d->lock);
        goto fail;
    }
    if (d->arena && bytes >= ARIL__ARENA_MIN) p = alloc_in_arena(d, bytes, &size);
    if (!p) p = alloc_by_size(d, bytes, &size);
    if (d->stats.live > d->stats.peak) d->stats.peak = d->stats.live;
    if (d->stats.misses != misses) trim_to_peak(d);
    pthread_mutex_unlock(&d->lock);
    if (p) {
        if (aril__unlikely(aril__log_on(ARIL__LOG_MEMORY)))
            aril__log(ARIL__LOG_MEMORY, "%s: +%zu bytes, live %lld, cached %lld", d->kind_name,
                      size, (long long)d->stats.live, (long long)d->stats.cached);
        return p;
    }
fail:
    if (d->ops.alloc == cpu_closed)
        aril__fail(ARIL_ERR_MEMORY, "out of memory starting the library");
    else if (refused)
        aril__fail(ARIL_ERR_MEMORY,
                   "out of memory: %zu bytes on %s, with %lld in use, exceed the limit of %lld",
                   bytes, d->kind_name, (long long)d->stats.live, (long long)d->limit);
    else
        aril__fail(ARIL_ERR_MEMORY, "out of memory: %zu bytes on %s (%lld in use)", bytes,
                   d->kind_name, (long long)d->stats.live);
    return NULL;
}

void aril__device_free(aril__device *d, void *p, size_t bytes)
{
    size_t size;
    if (d->arena && aril__arena_owns(d->arena, p)) {
        pthread_mutex_lock(&d->lock);
        size = aril__arena_free(d->arena, p);
        d->stats.live -= (int64_t)size;
        d->stats.cached += (int64_t)size;
        pthread_mutex_unlock(&d->lock);
    } else {
        size_t bin = bin_of(bytes, &size);
        cached_block *b = malloc(sizeof *b);
        pthread_mutex_lock(&d->lock);
        d->stats.live -= (int64_t)size;
        if (b) {
            *b = (cached_block){ .next = d->bins[bin], .memory = p, .bytes = size };
            d->bins[bin] = b;
            d->stats.cached += (int64_t)size;
        } else {
            d->ops.free(d->self, p, size);
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
    return s;
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
    return (aril_device){ ARIL__CUDA, (int16_t)index };
}

bool aril_device_equal(aril_device a, aril_device b)
{
    return a.kind == b.kind && a.index == b.index;
}

aril_device aril_device_named(const char *name)
{
    aril__self();
    char kind[24];
    const char *colon = name ? strchr(name, ':') : NULL;
    size_t n = !name ? 0 : colon ? (size_t)(colon - name) : strlen(name);
    char *end = NULL;
    long index = colon ? strtol(colon + 1, &end, 10) : 0;
    if (n > 0 && n < sizeof kind && (!colon || (end != colon + 1 && !*end)) && index >= 0 &&
        index < INT16_MAX) {
        memcpy(kind, name, n);
        kind[n] = '\0';
        int k = kind_of(kind, false);
        if (k >= 0) return (aril_device){ (int16_t)k, (int16_t)index };
    }
    aril__fail(ARIL_ERR_DEVICE, "device: no device kind '%s'", name ? name : "(null)");
    return (aril_device){ -1, -1 };
}

const char *aril_device_name(aril_device device, char *buf, size_t size)
{
    if (!buf) return "";
    if (device.kind == ARIL__CPU)
        snprintf(buf, size, "cpu");
    else if (device.kind > 0 && device.kind < registry.n_kinds)
        snprintf(buf, size, "%s:%d", registry.kind_names[device.kind], device.index);
    else
        snprintf(buf, size, "unknown device (%d:%d)", device.kind, device.index);
    return buf;
}

bool aril_device_available(aril_device device)
{
    aril__self();
    for (int i = 0; i < registry.n_devices; i++)
        if (aril_device_equal(registry.devices[i]->id, device)) return true;
    return false;
}

int aril_device_count(void)
{
    aril__self();
    return registry.n_devices;
}

aril_device aril_device_at(int i)
{
    aril__self();
    if (i < 0 || i >= registry.n_devices) {
        aril__fail(ARIL_ERR_INDEX, "device_at: %d is out of range for %d devices", i,
                   registry.n_devices);
        return (aril_device){ -1, -1 };
    }
    return registry.devices[i]->id;
}

const char *aril_device_describe(aril_device device, char *buf, size_t size)
{
    if (!buf) return "";
    aril__self();
    aril__device *d = aril__device_find(device);
    char name[48], text[160] = "";
    aril_device_name(device, name, sizeof name);
    if (d && d->ops.describe) d->ops.describe(d->self, text, sizeof text);
    snprintf(buf, size, "%s: %s", name, d ? text : "not available");
    return buf;
}

aril_status aril_synchronize(aril_device device)
{
    aril__self();
    aril__device *d = aril__device_find(device);
    if (!d) return ARIL_ERR_DEVICE;
    return d->ops.synchronize ? d->ops.synchronize(d->self) : ARIL_OK;
}
