/* Compiling CUDA source at run time: NVRTC, which is opened when it is first needed, and the
 * driver's module functions. */
#include "backend/cuda/device/device.h"

#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 32, OPTIONS_TEXT = 1024, ENTRIES = 8, LOG_TEXT = 500 };

static struct {
    pthread_once_t once;
    bool ready;
    char why[512]; /* what is missing */
    __typeof__(&nvrtcCreateProgram) create;
    __typeof__(&nvrtcCompileProgram) compile;
    __typeof__(&nvrtcDestroyProgram) destroy;
    __typeof__(&nvrtcGetCUBINSize) cubin_size;
    __typeof__(&nvrtcGetCUBIN) cubin;
    __typeof__(&nvrtcGetProgramLogSize) log_size;
    __typeof__(&nvrtcGetProgramLog) log;
    __typeof__(&nvrtcVersion) version;
    __typeof__(&cuModuleLoadData) load;
    __typeof__(&cuModuleUnload) unload;
    __typeof__(&cuModuleGetFunction) function;
    __typeof__(&cuLaunchKernel) launch;
    __typeof__(&cuFuncSetAttribute) allow;
    __typeof__(&cuGetErrorString) error;
} api = { .once = PTHREAD_ONCE_INIT };

static void find_in_driver(const char *name, void *to)
{
    void *f = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &found);
#else
    cudaError_t e = cudaGetDriverEntryPoint(name, &f, cudaEnableDefault, &found);
#endif
    memcpy(to, &f, sizeof f);
    if (e != cudaSuccess || !f)
        snprintf(api.why, sizeof api.why, "the driver has no function %s", name);
}

static void open_api(void)
{
    const char *own = getenv("ARIL_NVRTC");
    const char *names[] = { own ? own : "libnvrtc.so.13", "libnvrtc.so.13", "libnvrtc.so.12",
                            "libnvrtc.so", NULL };
    static const aril_cuda_function functions[] = { { "nvrtcCreateProgram", &api.create },
                                                    { "nvrtcCompileProgram", &api.compile },
                                                    { "nvrtcDestroyProgram", &api.destroy },
                                                    { "nvrtcGetCUBINSize", &api.cubin_size },
                                                    { "nvrtcGetCUBIN", &api.cubin },
                                                    { "nvrtcGetProgramLogSize", &api.log_size },
                                                    { "nvrtcGetProgramLog", &api.log },
                                                    { "nvrtcVersion", &api.version },
                                                    { 0 } };
    void *nvrtc = aril_cuda_open_library("NVRTC", names, api.why, sizeof api.why);
    if (!nvrtc || !aril_cuda_find_functions(nvrtc, "NVRTC", functions, api.why, sizeof api.why))
        return;
    find_in_driver("cuModuleLoadData", &api.load);
    find_in_driver("cuModuleUnload", &api.unload);
    find_in_driver("cuModuleGetFunction", &api.function);
    find_in_driver("cuLaunchKernel", &api.launch);
    find_in_driver("cuFuncSetAttribute", &api.allow);
    find_in_driver("cuGetErrorString", &api.error);
    api.ready = !api.why[0];
}

static const char *driver_text(CUresult e)
{
    const char *text = NULL;
    return api.error(e, &text) == CUDA_SUCCESS && text ? text : "unknown error";
}

static aril_status driver_error(CUresult e, const char *what)
{
    if (e == CUDA_SUCCESS) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "cuda: %s: %s", what, driver_text(e));
}

struct aril_program {
    CUmodule module;
    pthread_mutex_t lock;
    int n;
    struct {
        char name[64];
        CUfunction function;
        size_t shared; /* allowed so far */
    } entry[ENTRIES];
};

/* ---- compiling ---- */

static void read_log(nvrtcProgram p, char *why, size_t size)
{
    size_t n = 0;
    api.log_size(p, &n);
    char *log = n ? malloc(n + 1) : NULL;
    bool there = log && api.log(p, log) == NVRTC_SUCCESS;
    if (there) log[n] = '\0';
    snprintf(why, size, "the source does not compile%s%.*s", there ? ": " : "", LOG_TEXT,
             there ? log : "");
    free(log);
}

/* The machine code of a source, to be freed; NULL with the reason in `why`. */
static char *machine_code(const char *arch, const char *source, const char *options, size_t *bytes,
                          char *why, size_t size)
{
    char text[OPTIONS_TEXT], *rest = NULL;
    const char *list[MAX_OPTIONS] = { arch };
    int n = 1;
    snprintf(text, sizeof text, "%s", options ? options : "");
    for (char *o = strtok_r(text, " ", &rest); o && n < MAX_OPTIONS; o = strtok_r(NULL, " ", &rest))
        list[n++] = o;
    nvrtcProgram p;
    snprintf(why, size, "NVRTC failed");
    if (api.create(&p, source, "aril.cu", 0, NULL, NULL) != NVRTC_SUCCESS) return NULL;
    char *code = NULL;
    if (api.compile(p, n, list) != NVRTC_SUCCESS)
        read_log(p, why, size);
    else if (api.cubin_size(p, bytes) == NVRTC_SUCCESS && (code = malloc(*bytes)))
        api.cubin(p, code);
    api.destroy(&p);
    return code;
}

/* What machine code depends on, as the key of its file; to be freed, NULL when out of memory. */
static char *key_of(const char *arch, const char *source, const char *options)
{
    int major = 0, minor = 0, driver = 0;
    api.version(&major, &minor);
    cudaDriverGetVersion(&driver);
    size_t room = strlen(source) + strlen(options) + 256;
    char *key = malloc(room);
    if (key)
        snprintf(key, room, "1 %s %s NVRTC %d.%d driver %d\n%s", arch, options, major, minor,
                 driver, source);
    return key;
}

/* The machine code from its file, or compiled. */
static char *find_code(const aril_cuda_device *d, const char *source, const char *options,
                       char *why, size_t size)
{
    char arch[32];
    size_t bytes = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d%d", d->major, d->minor);
    char *key = key_of(arch, source, options), *code = NULL;
    if (key && (code = aril_cuda_kernel_file_read(key, &bytes))) {
        free(key);
        return code;
    }
    code = machine_code(arch, source, options, &bytes, why, size);
    if (code && key) aril_cuda_kernel_file_write(key, code, bytes);
    free(key);
    return code;
}

aril_program *aril_cuda_compile_or_say(void *self, const char *source, const char *options,
                                       char *why, size_t size)
{
    pthread_once(&api.once, open_api);
    if (!api.ready) {
        snprintf(why, size, "%s", api.why);
        return NULL;
    }
    aril_cuda_use(self);
    cudaFree(NULL); /* the driver's functions need the context that the runtime creates */
    char *code = find_code(self, source, options ? options : "", why, size);
    aril_program *p = code ? calloc(1, sizeof *p) : NULL;
    CUresult e = p ? api.load(&p->module, code) : CUDA_SUCCESS;
    if (e != CUDA_SUCCESS) {
        snprintf(why, size, "cuModuleLoadData: %s", driver_text(e));
        free(p);
        p = NULL;
    }
    if (p) pthread_mutex_init(&p->lock, NULL);
    free(code);
    return p;
}

aril_program *aril_cuda_compile(void *self, const char *source, const char *options)
{
    char why[LOG_TEXT + 100];
    aril_program *p = aril_cuda_compile_or_say(self, source, options, why, sizeof why);
    if (!p) aril_cuda_host->fail(ARIL_ERR_PLUGIN, "cuda: cannot compile: %s", why);
    return p;
}

void aril_cuda_program_free(void *self, aril_program *program)
{
    aril_cuda_use(self);
    aril_cuda_synchronize(self); /* it may still run */
    api.unload(program->module);
    pthread_mutex_destroy(&program->lock);
    free(program);
}

/* ---- launching ---- */

/* The function by name, looked up once, and allowed that much shared memory. */
static aril_status entry_of(aril_program *p, const char *name, size_t shared, CUfunction *f)
{
    int i = 0;
    aril_status s = ARIL_OK;
    if (strlen(name) >= sizeof p->entry[0].name)
        return aril_cuda_host->fail(ARIL_ERR_ARG, "cuda: the name %s is too long", name);
    pthread_mutex_lock(&p->lock);
    while (i < p->n && strcmp(p->entry[i].name, name) != 0) i++;
    if (i == ENTRIES)
        s = aril_cuda_host->fail(ARIL_ERR_UNSUPPORTED, "cuda: more than %d functions in a program",
                                 ENTRIES);
    if (s == ARIL_OK && i == p->n) {
        s = driver_error(api.function(&p->entry[i].function, p->module, name), name);
        snprintf(p->entry[i].name, sizeof p->entry[i].name, "%s", name);
        if (s == ARIL_OK) p->n++;
    }
    if (s == ARIL_OK && shared > 48 * 1024 && shared > p->entry[i].shared) {
        s = driver_error(api.allow(p->entry[i].function,
                                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared),
                         "shared memory");
        p->entry[i].shared = shared;
    }
    if (s == ARIL_OK) *f = p->entry[i].function;
    pthread_mutex_unlock(&p->lock);
    return s;
}

aril_status aril_cuda_launch(void *self, aril_queue *queue, aril_program *program,
                             const char *entry, const uint32_t grid[3], const uint32_t block[3],
                             size_t shared_bytes, void *const *args, int n_args)
{
    CUfunction f = NULL;
    (void)n_args;
    aril_cuda_use(self);
    aril_status s = entry_of(program, entry, shared_bytes, &f);
    if (s < 0) return s;
    s = driver_error(api.launch(f, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                (unsigned)shared_bytes, aril_cuda_queue_stream(queue),
                                (void **)(uintptr_t)args, NULL),
                     entry);
    return s < 0 || !aril_cuda_sync ? s : aril_cuda_check_launch(self, queue, entry);
}
