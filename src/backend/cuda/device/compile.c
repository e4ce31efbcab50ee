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
    static const aril_cuda_function functions[] = {
        { "nvrtcCreateProgram", &api.create },   { "nvrtcCompileProgram", &api.compile },
        { "nvrtcDestroyProgram", &api.destroy }, { "nvrtcGetCUBINSize", &api.cubin_size },
        { "nvrtcGetCUBIN", &api.cubin },         { "nvrtcGetProgramLogSize", &api.log_size },
        { "nvrtcGetProgramLog", &api.log },      { 0 }
    };
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

static aril_status driver_error(CUresult e, const char *what)
{
    const char *text = NULL;
    if (e == CUDA_SUCCESS) return ARIL_OK;
    if (api.error(e, &text) != CUDA_SUCCESS || !text) text = "unknown error";
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "cuda: %s: %s", what, text);
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

static void report_log(nvrtcProgram p)
{
    size_t n = 0;
    api.log_size(p, &n);
    char *log = n ? malloc(n + 1) : NULL;
    if (log && api.log(p, log) == NVRTC_SUCCESS) {
        log[n] = '\0';
        aril_cuda_host->fail(ARIL_ERR_PLUGIN, "cuda: the source does not compile: %.*s", LOG_TEXT,
                             log);
    } else {
        aril_cuda_host->fail(ARIL_ERR_PLUGIN, "cuda: the source does not compile");
    }
    free(log);
}

/* The program's machine code, to be freed; NULL with an error. */
static char *machine_code(const aril_cuda_device *d, const char *source, const char *options)
{
    char text[OPTIONS_TEXT], arch[32], *rest = NULL;
    const char *list[MAX_OPTIONS] = { arch };
    int n = 1;
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d%d", d->major, d->minor);
    snprintf(text, sizeof text, "%s", options ? options : "");
    for (char *o = strtok_r(text, " ", &rest); o && n < MAX_OPTIONS; o = strtok_r(NULL, " ", &rest))
        list[n++] = o;
    nvrtcProgram p;
    if (api.create(&p, source, "aril.cu", 0, NULL, NULL) != NVRTC_SUCCESS) {
        aril_cuda_host->fail(ARIL_ERR_PLUGIN, "cuda: NVRTC failed");
        return NULL;
    }
    char *code = NULL;
    size_t bytes = 0;
    if (api.compile(p, n, list) != NVRTC_SUCCESS)
        report_log(p);
    else if (api.cubin_size(p, &bytes) == NVRTC_SUCCESS && (code = malloc(bytes)))
        api.cubin(p, code);
    api.destroy(&p);
    return code;
}

aril_program *aril_cuda_compile(void *self, const char *source, const char *options)
{
    pthread_once(&api.once, open_api);
    if (!api.ready) {
        aril_cuda_host->fail(ARIL_ERR_PLUGIN, "cuda: cannot compile: %s", api.why);
        return NULL;
    }
    aril_cuda_use(self);
    cudaFree(NULL); /* the driver's functions need the context that the runtime creates */
    char *code = machine_code(self, source, options);
    aril_program *p = code ? calloc(1, sizeof *p) : NULL;
    if (p && driver_error(api.load(&p->module, code), "cuModuleLoadData") < 0) {
        free(p);
        p = NULL;
    }
    if (p) pthread_mutex_init(&p->lock, NULL);
    free(code);
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
