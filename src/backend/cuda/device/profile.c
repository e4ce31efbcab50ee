/* When GPUs do their work, by CUPTI, which is opened when a profile first begins; and what GPUs can
 * do at most. */
#include "backend/cuda/device/device.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- limits ---- */

/* Operations per clock cycle of one multiprocessor, from NVIDIA's data sheets: f32 and f64 as
 * products use them (f64 on tensor cores where those have it), the others on tensor cores. */
static const struct rates {
    int capability; /* 10 * major + minor */
    int f64, f32, tf32, f16, bf16;
} known_rates[] = {
    { 75, 4, 128, 0, 1024, 0 },         { 80, 128, 128, 1024, 2048, 2048 },
    { 86, 4, 256, 256, 1024, 1024 },    { 89, 4, 256, 512, 1024, 1024 },
    { 90, 256, 256, 2048, 4096, 4096 }, { 100, 128, 256, 4096, 8192, 8192 },
};

static double attribute(const aril_cuda_device *d, enum cudaDeviceAttr which)
{
    int value = 0;
    return cudaDeviceGetAttribute(&value, which, d->index) == cudaSuccess ? value : 0;
}

void aril_cuda_limits(void *self, aril_limits *limits)
{
    const aril_cuda_device *d = self;
    double clock = 1e3 * attribute(d, cudaDevAttrClockRate) * d->sms; /* attributes are in kHz */
    double memory = 1e3 * attribute(d, cudaDevAttrMemoryClockRate);
    *limits = (aril_limits){
        .bytes = 2 * memory * attribute(d, cudaDevAttrGlobalMemoryBusWidth) / 8,
        .source = "from bus width, highest clock rates, multiprocessors and data sheets",
    };
    for (size_t i = 0; i < sizeof known_rates / sizeof *known_rates; i++) {
        const struct rates *r = &known_rates[i];
        if (r->capability != 10 * d->major + d->minor) continue;
        limits->f64 = clock * r->f64;
        limits->f32 = clock * r->f32;
        limits->tf32 = clock * r->tf32;
        limits->f16 = clock * r->f16;
        limits->bf16 = clock * r->bf16;
    }
}

#if defined __has_include
#if __has_include(<cupti.h>)
#define HAVE_CUPTI 1
#endif
#endif

#ifndef HAVE_CUPTI

const char *aril_cuda_profile_begin(void *self)
{
    (void)self;
    return "the plug-in was built without CUPTI (its header cupti.h was missing)";
}

void aril_cuda_profile_mark(void *self, uint64_t mark)
{
    (void)self;
    (void)mark;
}

void aril_cuda_profile_end(void *self, void (*found)(void *ctx, const aril_work *work), void *ctx)
{
    (void)self;
    (void)found;
    (void)ctx;
}

#else

#include <cupti.h>

/* Records have the form of the library that is found; later forms begin with these. */
typedef CUpti_ActivityKernel4 kernel_record;
typedef CUpti_ActivityMemcpy copy_record;
typedef CUpti_ActivityMemset fill_record;

enum { BUFFER = 4 << 20, ALIGNED = 8, TEXT = 512 };

#define FUNCTIONS(F)                          \
    F(cuptiActivityRegisterCallbacks)         \
    F(cuptiActivityEnable)                    \
    F(cuptiActivityDisable)                   \
    F(cuptiActivityFlushAll)                  \
    F(cuptiActivityGetNextRecord)             \
    F(cuptiActivityPushExternalCorrelationId) \
    F(cuptiActivityPopExternalCorrelationId)  \
    F(cuptiGetTimestamp)                      \
    F(cuptiGetResultString)

static struct {
    pthread_once_t once;
#define F(name) __typeof__(name) *name;
    FUNCTIONS(F)
#undef F
    char why[TEXT]; /* "" if it was opened */
} cupti = { .once = PTHREAD_ONCE_INIT };

/* A kernel, copy or fill, before its mark is known. */
typedef struct done {
    aril_work work;
    int device;
    uint32_t correlation;
} done;

/* The mark under which a call of the driver was made. */
typedef struct call {
    uint32_t correlation;
    uint64_t mark;
} call;

typedef struct name {
    struct name *next;
    char *raw, *readable;
} name;

enum { SLOTS = 1024 };

static struct {
    pthread_mutex_t lock;
    int profiled;     /* number of devices with a profile */
    int64_t to_clock; /* CLOCK_MONOTONIC minus CUPTI's time */
    done *at;
    call *calls;
    size_t n, capacity, n_calls, capacity_calls;
    bool sorted;        /* the calls, by correlation */
    atomic_bool ended;  /* the process is: CUPTI cannot be called any more */
    name *names[SLOTS]; /* they stay for the life of the process */
} records = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const CUpti_ActivityKind kinds[] = {
    /* Marks come with records of calls, so these are needed too. */
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
};

/* ---- names of kernels ---- */

/* Of the C++ runtime, which the plug-in links: returns a malloc'ed text, or NULL. */
char *__cxa_demangle(const char *mangled, char *buffer, size_t *size, int *status);

/* Cuts the arguments off: "f<int>(float*)" becomes "f<int>". */
static void cut_arguments(char *text)
{
    size_t n = strlen(text);
    if (!n || text[n - 1] != ')') return;
    int depth = 0;
    while (n-- > 0) {
        depth += (text[n] == ')') - (text[n] == '(');
        if (depth == 0) break;
    }
    if (n > 0 && n < strlen(text)) text[n] = '\0';
}

static void remove_all(char *text, const char *part)
{
    size_t length = strlen(part);
    for (char *at = text; (at = strstr(at, part));)
        memmove(at, at + length, strlen(at + length) + 1);
}

static char *readable(const char *raw)
{
    int status = 0;
    char *text = __cxa_demangle(raw, NULL, NULL, &status);
    if (!text) return strdup(raw);
    cut_arguments(text);
    remove_all(text, "(anonymous namespace)::");
    if (strncmp(text, "void ", 5) == 0) memmove(text, text + 5, strlen(text + 5) + 1);
    return text;
}

/* The readable name, which stays valid. CUPTI may free its own with the kernel. */
static const char *name_of(const char *raw)
{
    uint64_t h = 0xcbf29ce484222325u;
    if (!raw) return "a kernel without a name";
    for (const char *p = raw; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    name **slot = &records.names[h % SLOTS];
    for (const name *n = *slot; n; n = n->next)
        if (strcmp(n->raw, raw) == 0) return n->readable;
    name *n = malloc(sizeof *n);
    if (!n) return "a kernel";
    *n = (name){ *slot, strdup(raw), readable(raw) };
    if (!n->raw || !n->readable) {
        free(n->raw);
        free(n->readable);
        free(n);
        return "a kernel";
    }
    *slot = n;
    return n->readable;
}

/* ---- records ---- */

/* Out of memory is not an error here: the profile is merely incomplete. */
static bool has_room(void **at, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity) return true;
    size_t wider = *capacity ? 2 * *capacity : 4096;
    void *grown = realloc(*at, wider * size);
    if (!grown) return false;
    *at = grown;
    *capacity = wider;
    return true;
}

static void add(done d, uint64_t begin, uint64_t end)
{
    if (!has_room((void **)&records.at, records.n, &records.capacity, sizeof d)) return;
    d.work.begin = (int64_t)begin + records.to_clock;
    d.work.ns = end > begin ? (int64_t)(end - begin) : 0;
    records.at[records.n++] = d;
}

static void add_kernel(const kernel_record *k)
{
    add((done){ .work = { .kind = ARIL_WORK_KERNEL,
                          .name = name_of(k->name),
                          .queue = (int)k->streamId },
                .device = (int)k->deviceId,
                .correlation = k->correlationId },
        k->start, k->end);
}

static void add_copy(const copy_record *c)
{
    const char *what = c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to device"
                       : c->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to host"
                                                                        : "copy within device";
    add((done){ .work = { .kind = ARIL_WORK_COPY,
                          .name = what,
                          .queue = (int)c->streamId,
                          .bytes = (double)c->bytes },
                .device = (int)c->deviceId,
                .correlation = c->correlationId },
        c->start, c->end);
}

static void add_fill(const fill_record *f)
{
    add((done){ .work = { .kind = ARIL_WORK_FILL,
                          .name = "fill",
                          .queue = (int)f->streamId,
                          .bytes = (double)f->bytes },
                .device = (int)f->deviceId,
                .correlation = f->correlationId },
        f->start, f->end);
}

static void add_call(const CUpti_ActivityExternalCorrelation *e)
{
    if (!has_room((void **)&records.calls, records.n_calls, &records.capacity_calls, sizeof(call)))
        return;
    records.calls[records.n_calls++] = (call){ e->correlationId, e->externalId };
    records.sorted = false;
}

static void add_record(const CUpti_Activity *r)
{
    switch (r->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: add_kernel((const kernel_record *)r); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: add_copy((const copy_record *)r); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: add_fill((const fill_record *)r); break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        add_call((const CUpti_ActivityExternalCorrelation *)r);
        break;
    default: break; /* calls of the driver */
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = aligned_alloc(ALIGNED, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *max_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t filled)
{
    CUpti_Activity *r = NULL;
    (void)context;
    (void)stream;
    (void)size;
    pthread_mutex_lock(&records.lock);
    while (filled && cupti.cuptiActivityGetNextRecord(buffer, filled, &r) == CUPTI_SUCCESS)
        add_record(r);
    pthread_mutex_unlock(&records.lock);
    free(buffer);
}

static int by_correlation(const void *a, const void *b)
{
    uint32_t x = ((const call *)a)->correlation, y = ((const call *)b)->correlation;
    return (x > y) - (x < y);
}

/* The mark of a piece of work; 0 if there was none. */
static uint64_t mark_of(uint32_t correlation)
{
    call key = { correlation, 0 };
    if (!records.n_calls) return 0;
    if (!records.sorted) qsort(records.calls, records.n_calls, sizeof key, by_correlation);
    records.sorted = true;
    const call *c = bsearch(&key, records.calls, records.n_calls, sizeof key, by_correlation);
    return c ? c->mark : 0;
}

/* ---- CUPTI ---- */

static void open_cupti(void)
{
    static const char *const names[] = { "libcupti.so.13",
                                         "libcupti.so.12",
                                         "/usr/local/cuda/lib64/libcupti.so.13",
                                         "/usr/local/cuda/lib64/libcupti.so.12",
                                         "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                                         "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12",
                                         NULL };
    static const aril_cuda_function functions[] = {
#define F(name) { #name, &cupti.name },
        FUNCTIONS(F)
#undef F
            { 0 }
    };
    void *handle = aril_cuda_open_library("CUPTI", names, cupti.why, sizeof cupti.why);
    if (!handle ||
        !aril_cuda_find_functions(handle, "CUPTI", functions, cupti.why, sizeof cupti.why))
        return;
    if (cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS)
        snprintf(cupti.why, sizeof cupti.why,
                 "CUPTI cannot be used: another profiler may be using it");
}

static void disable(size_t n)
{
    for (size_t i = 0; i < n; i++) cupti.cuptiActivityDisable(kinds[i]);
}

/* At the end of the process, before CUPTI's own functions for that: a profile that is still on is
 * passed on later, from what was recorded until now. */
static void collect_last(void)
{
    if (records.profiled) {
        cudaDeviceSynchronize();
        disable(sizeof kinds / sizeof *kinds);
        cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    }
    atomic_store(&records.ended, true);
}

static const char *enable(void)
{
    static char why[TEXT];
    struct timespec now;
    uint64_t stamp = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        CUptiResult result = cupti.cuptiActivityEnable(kinds[i]);
        if (result == CUPTI_SUCCESS) continue;
        const char *text = NULL;
        cupti.cuptiGetResultString(result, &text);
        snprintf(why, sizeof why, "CUPTI cannot record activities of kind %d: %s", (int)kinds[i],
                 text ? text : "unknown error");
        disable(i);
        return why;
    }
    static bool registered;
    if (!registered) registered = atexit(collect_last) == 0; /* after CUPTI's: runs before */
    cupti.cuptiGetTimestamp(&stamp);
    clock_gettime(CLOCK_MONOTONIC, &now);
    records.to_clock = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)stamp;
    return NULL;
}

/* ---- the device's functions ---- */

const char *aril_cuda_profile_begin(void *self)
{
    const char *why = NULL;
    pthread_once(&cupti.once, open_cupti);
    if (cupti.why[0]) return cupti.why;
    aril_cuda_use(self);
    aril_cuda_synchronize(self); /* what was queued before is not part of it */
    pthread_mutex_lock(&records.lock);
    bool first = !records.profiled;
    pthread_mutex_unlock(&records.lock);
    if (first) why = enable(); /* without the lock: CUPTI may return a buffer meanwhile */
    if (why) return why;
    pthread_mutex_lock(&records.lock);
    records.profiled++;
    pthread_mutex_unlock(&records.lock);
    return NULL;
}

void aril_cuda_profile_mark(void *self, uint64_t mark)
{
    static _Thread_local uint64_t current;
    (void)self; /* CUPTI's numbers are for all devices */
    if (mark == current || atomic_load_explicit(&records.ended, memory_order_relaxed)) return;
    if (current)
        cupti.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL);
    if (mark)
        cupti.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, mark);
    current = mark;
}

void aril_cuda_profile_end(void *self, void (*found)(void *ctx, const aril_work *work), void *ctx)
{
    const aril_cuda_device *d = self;
    bool ended = atomic_load(&records.ended);
    if (!ended) {
        aril_cuda_use(d);
        aril_cuda_synchronize(self);
        cupti.cuptiActivityFlushAll(0);
    }
    pthread_mutex_lock(&records.lock);
    for (size_t i = 0; i < records.n; i++) {
        done *r = &records.at[i];
        if (r->device != d->index) continue;
        r->work.mark = mark_of(r->correlation);
        found(ctx, &r->work);
    }
    bool last = --records.profiled == 0;
    pthread_mutex_unlock(&records.lock);
    if (!last) return;
    if (!ended) {
        disable(sizeof kinds / sizeof *kinds);
        cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    }
    pthread_mutex_lock(&records.lock);
    free(records.at);
    free(records.calls);
    records.at = NULL;
    records.calls = NULL;
    records.n = records.capacity = records.n_calls = records.capacity_calls = 0;
    pthread_mutex_unlock(&records.lock);
}

#endif
