/* Opening the plug-in: finds the GPUs, or says what is missing. */
#include "backend/cuda/device/library.h"
#include "backend/cuda/small/small.h"
#include "core/environment.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 16 };

const aril_host *aril_cuda_host;
bool aril_cuda_sync;

static aril_cuda_device gpus[MAX_GPUS];

/* ---- libraries ---- */

void *aril_cuda_open_library(const char *name, const char *const *files, char *why, size_t size)
{
    void *handle = NULL;
    for (const char *const *f = files; *f && !handle; f++)
        handle = dlopen(*f, RTLD_NOW | RTLD_LOCAL);
    if (handle) return handle;
    const char *error = dlerror();
    snprintf(why, size,
             "%s was not found: install %s, or name its directory in LD_LIBRARY_PATH (%s)", name,
             files[0], error ? error : "no error");
    return NULL;
}

bool aril_cuda_find_functions(void *handle, const char *library, const aril_cuda_function *list,
                              char *why, size_t size)
{
    for (; list->name; list++) {
        void *symbol = dlsym(handle, list->name);
        memcpy(list->to, &symbol, sizeof symbol);
        if (symbol) continue;
        snprintf(why, size, "%s has no function %s", library, list->name);
        return false;
    }
    return true;
}

const char *aril_cuda_file_of(void *function, char *buf, size_t size)
{
    Dl_info info;
    bool found = function && dladdr(function, &info) && info.dli_fname;
    snprintf(buf, size, "%s", found ? info.dli_fname : "");
    return buf;
}

/* ---- describing ---- */

/* The version of the kernel module, such as "580.65.06"; "?" if it cannot be read. */
static void driver_release(char *buf, size_t size)
{
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    snprintf(buf, size, "?");
    if (!file) return;
    if (fgets(buf, (int)size, file)) buf[strcspn(buf, "\n")] = '\0';
    fclose(file);
}

/* Where the driver's library was loaded from. */
static void driver_file(char *buf, size_t size)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    aril_cuda_file_of(handle ? dlsym(handle, "cuInit") : NULL, buf, size);
    if (handle) dlclose(handle);
}

static void describe(void *self, char *buf, size_t size)
{
    const aril_cuda_device *d = self;
    int driver = 0;
    char release[64], file[256], libraries[1280];
    cudaDriverGetVersion(&driver);
    driver_release(release, sizeof release);
    driver_file(file, sizeof file);
    aril_cuda_libraries_text(libraries, sizeof libraries);
    snprintf(buf, size,
             "%s, %.1f GiB, compute capability %d.%d, %d multiprocessors; driver %s for CUDA %d.%d "
             "(%s), runtime %d.%d; %s",
             d->name, (double)d->memory / 0x1p30, d->major, d->minor, d->sms, release,
             driver / 1000, driver % 1000 / 10, file, CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10, libraries);
}

/* ---- devices ---- */

void aril_cuda_use(const aril_cuda_device *d)
{
    static _Thread_local int current = -1;
    if (current == d->index) return;
    if (cudaSetDevice(d->index) == cudaSuccess) current = d->index;
}

static aril_status start_device(aril_cuda_device *d, int index)
{
    struct cudaDeviceProp p;
    aril_status s = aril_cuda_expect(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties");
    if (s < 0) return s;
    *d = (aril_cuda_device){ .index = index,
                             .sms = p.multiProcessorCount,
                             .major = p.major,
                             .minor = p.minor,
                             .threads_per_sm = p.maxThreadsPerMultiProcessor,
                             .shared_per_block = p.sharedMemPerBlockOptin,
                             .memory = p.totalGlobalMem,
                             .l2_bytes = (size_t)p.l2CacheSize };
    snprintf(d->name, sizeof d->name, "%s", p.name);
    pthread_mutex_init(&d->lock, NULL);
    aril_cuda_use(d);
    s = aril_cuda_errors_new(d);
    if (s < 0) return s;
    d->pool = aril_cuda_pool_new(d);
    d->staging = aril_cuda_staging_new();
    if (d->pool && d->staging) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_MEMORY, "cuda: out of memory opening device %d", index);
}

static void close_device(void *self)
{
    aril_cuda_device *d = self;
    aril_cuda_use(d);
    aril_cuda_staging_delete(d->staging);
    aril_cuda_pool_delete(d->pool);
    aril_cuda_errors_delete(d);
    aril_cuda_pinned_trim();
    pthread_mutex_destroy(&d->lock);
    d->staging = NULL;
    d->pool = NULL;
}

/* The reason why there are no devices. */
static aril_status explain(cudaError_t e)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0;
    if (!driver)
        return aril_cuda_host->fail(ARIL_ERR_DEVICE,
                                    "cuda: no NVIDIA driver: libcuda.so.1 was not found; install "
                                    "the driver of the GPU, or use the CPU");
    dlclose(driver);
    cudaDriverGetVersion(&version);
    if (e == cudaErrorInsufficientDriver)
        return aril_cuda_host->fail(ARIL_ERR_DEVICE,
                                    "cuda: the NVIDIA driver is for CUDA %d.%d, but Aril was built "
                                    "with CUDA %d.%d; install "
                                    "a newer driver",
                                    version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
                                    CUDART_VERSION % 1000 / 10);
    if (e == cudaErrorNoDevice || e == cudaSuccess)
        return aril_cuda_host->fail(
            ARIL_ERR_DEVICE, "cuda: the NVIDIA driver is there, but no GPU%s",
            getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES is set)" : "");
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "cuda: cannot start the NVIDIA driver: %s",
                                cudaGetErrorString(e));
}

static const aril_device_ops device_ops = { .size = sizeof device_ops,
                                            .own_pool = true,
                                            .alloc = aril_cuda_alloc,
                                            .free = aril_cuda_free,
                                            .from_host = aril_cuda_from_host,
                                            .to_host = aril_cuda_to_host,
                                            .copy = aril_cuda_copy,
                                            .describe = describe,
                                            .close = close_device,
                                            .trim = aril_cuda_trim,
                                            .pool_info = aril_cuda_pool_info,
                                            .limits = aril_cuda_limits,
                                            .copy_from = aril_cuda_copy_from,
                                            .queue_new = aril_cuda_queue_new,
                                            .queue_free = aril_cuda_queue_free,
                                            .queue_wait = aril_cuda_queue_wait,
                                            .synchronize = aril_cuda_synchronize,
                                            .poll = aril_cuda_poll,
                                            .event_new = aril_cuda_event_new,
                                            .event_free = aril_cuda_event_free,
                                            .event_record = aril_cuda_event_record,
                                            .event_wait = aril_cuda_event_wait,
                                            .event_query = aril_cuda_event_query,
                                            .pinned_alloc = aril_cuda_pinned_alloc,
                                            .pinned_free = aril_cuda_pinned_free,
                                            .compile = aril_cuda_compile,
                                            .program_free = aril_cuda_program_free,
                                            .launch = aril_cuda_launch,
                                            .capture_begin = aril_cuda_capture_begin,
                                            .capture_end = aril_cuda_capture_end,
                                            .replay = aril_cuda_replay,
                                            .recording_free = aril_cuda_recording_free,
                                            .is_small = aril_cuda_is_small,
                                            .record_small = aril_cuda_record_small,
                                            .range_begin = aril_cuda_range_begin,
                                            .range_end = aril_cuda_range_end,
                                            .profile_begin = aril_cuda_profile_begin,
                                            .profile_mark = aril_cuda_profile_mark,
                                            .profile_end = aril_cuda_profile_end };

__attribute__((visibility("default"))) aril_status aril_plugin_open(const aril_host *host,
                                                                    aril_plugin *out);

aril_status aril_plugin_open(const aril_host *host, aril_plugin *out)
{
    static void *devices[MAX_GPUS];
    int n = 0, n_rows;
    if (host->size < sizeof *host)
        return host->fail(ARIL_ERR_PLUGIN, "cuda: built for a later Aril than %s",
                          host->aril_version);
    aril_cuda_host = host;
    aril_cuda_sync = aril__env_switch("ARIL_SYNC", 0);
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0) return explain(e);
    n = n < MAX_GPUS ? n : MAX_GPUS;
    for (int i = 0; i < n; i++) {
        /* The same file may be found in two places: devices that are open stay as they are. */
        aril_status s = gpus[i].pool ? ARIL_OK : start_device(&gpus[i], i);
        if (s < 0) return s;
        devices[i] = &gpus[i];
    }
    const aril_row *rows = aril_cuda_rows(&n_rows);
    *out = (aril_plugin){ .size = sizeof *out,
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "cuda",
                          .kind = "cuda",
                          .n_devices = n,
                          .device_ops = &device_ops,
                          .devices = devices,
                          .n_rows = n_rows,
                          .rows = rows };
    return ARIL_OK;
}
