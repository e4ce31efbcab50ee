#include "backend/cuda/device/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 16, TEXT = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards handles */

bool aril_cuda_tf32(void)
{
    return aril_cuda_host->tf32_allowed();
}

/* ---- cuBLASLt ---- */

static struct {
    pthread_once_t once;
    aril_cuda_blas functions;
    bool found;
    char why[TEXT];
    cublasLtHandle_t handle[MAX_DEVICES];
} blas = { .once = PTHREAD_ONCE_INIT };

static void open_blas(void)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "/usr/local/cuda/lib64/libcublasLt.so.13",
                                         "/usr/local/cuda/lib64/libcublasLt.so.12", NULL };
    static const aril_cuda_function functions[] = {
#define F(name) { #name, &blas.functions.name },
        ARIL_CUDA_BLAS_FUNCTIONS(F)
#undef F
            { 0 }
    };
    void *handle = aril_cuda_open_library("cuBLASLt", names, blas.why, sizeof blas.why);
    blas.found = handle &&
                 aril_cuda_find_functions(handle, "cuBLASLt", functions, blas.why, sizeof blas.why);
}

const aril_cuda_blas *aril_cuda_blas_library(const char **why)
{
    pthread_once(&blas.once, open_blas);
    if (!blas.found && why) *why = blas.why;
    return blas.found ? &blas.functions : NULL;
}

cublasLtHandle_t aril_cuda_blas_handle(aril_cuda_device *d)
{
    const aril_cuda_blas *lt = aril_cuda_blas_library(NULL);
    if (!lt || d->index >= MAX_DEVICES) return NULL;
    pthread_mutex_lock(&lock);
    cublasLtHandle_t *handle = &blas.handle[d->index];
    aril_cuda_use(d);
    if (!*handle && lt->cublasLtCreate(handle) != CUBLAS_STATUS_SUCCESS) *handle = NULL;
    cublasLtHandle_t found = *handle;
    pthread_mutex_unlock(&lock);
    return found;
}

bool aril_cuda_blas_choose(const aril_cuda_blas *lt, cublasLtHandle_t handle, aril_cuda_blas_task t,
                           uint32_t alignment, size_t workspace,
                           cublasLtMatmulHeuristicResult_t *best)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    cublasLtMatmulPreferenceOpaque_t want;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int n = 0;
    if (lt->cublasLtMatmulPreferenceInit_internal(&want, sizeof want) != CUBLAS_STATUS_SUCCESS)
        return false;
    lt->cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace);
    lt->cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reduction, sizeof reduction);
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++)
        lt->cublasLtMatmulPreferenceSetAttribute(&want, aligned[i], &alignment, sizeof alignment);
    cublasStatus_t s = lt->cublasLtMatmulAlgoGetHeuristic(handle, &t.task, &t.a, &t.b, &t.c, &t.c,
                                                          &want, 1, best, &n);
    return s == CUBLAS_STATUS_SUCCESS && n > 0 && best->state == CUBLAS_STATUS_SUCCESS;
}

/* ---- cuDNN ---- */

#ifdef ARIL_CUDA_CUDNN

enum { MAX_HANDLES = 64 };

static struct {
    pthread_once_t once;
    aril_cuda_dnn functions;
    bool found;
    char why[TEXT];
    cudnnHandle_t idle[MAX_DEVICES][MAX_HANDLES];
    int n_idle[MAX_DEVICES];
} dnn = { .once = PTHREAD_ONCE_INIT };

/* The directory of the library in which a function is; "" if unknown. */
static void directory_of(void *function, char *buf, size_t size)
{
    aril_cuda_file_of(function, buf, size);
    char *slash = strrchr(buf, '/');
    *(slash ? slash : buf) = '\0';
}

/* cuDNN opens its parts by name when it needs them: a part that is already loaded is taken, so all
 * of them are loaded from the library's own directory. Parts that are missing are not needed. */
static void open_parts(const char *directory)
{
    static const char *const parts[] = { "graph",
                                         "ops",
                                         "cnn",
                                         "engines_precompiled",
                                         "engines_runtime_compiled",
                                         "engines_tensor_ir",
                                         "ext",
                                         "heuristic",
                                         "adv" };
    char path[TEXT + 64];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s/libcudnn_%s.so.9", directory, parts[i]);
        dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
}

/* The library from the directory that ARIL_CUDNN names, or where the loader finds it. */
static void *open_main(void)
{
    const char *directory = getenv("ARIL_CUDNN");
    char path[TEXT + 64] = "libcudnn.so.9";
    if (directory && directory[0]) {
        snprintf(path, sizeof path, "%s/libcudnn.so.9", directory);
        open_parts(directory); /* before the main library, which depends on none of them */
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle && !(directory && directory[0]))
        handle = dlopen("/usr/local/cuda/lib/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (handle) return handle;
    const char *error = dlerror();
    if (directory && directory[0])
        snprintf(dnn.why, sizeof dnn.why, "ARIL_CUDNN=%s: cannot open libcudnn.so.9 there: %s",
                 directory, error ? error : "no error");
    else
        snprintf(dnn.why, sizeof dnn.why,
                 "cuDNN was not found: install cuDNN 9, or set ARIL_CUDNN to the directory of "
                 "libcudnn.so.9 (%s)",
                 error ? error : "no error");
    return NULL;
}

static void open_dnn(void)
{
    static const aril_cuda_function functions[] = {
#define F(name) { #name, &dnn.functions.name },
        ARIL_CUDA_DNN_FUNCTIONS(F)
#undef F
            { 0 }
    };
    char directory[TEXT];
    void *handle = open_main();
    if (!handle) return;
    directory_of(dlsym(handle, "cudnnGetVersion"), directory, sizeof directory);
    if (directory[0]) open_parts(directory);
    if (!aril_cuda_find_functions(handle, "cuDNN", functions, dnn.why, sizeof dnn.why)) return;
    dnn.functions.version = dnn.functions.cudnnGetVersion();
    if (dnn.functions.version < 90000)
        snprintf(dnn.why, sizeof dnn.why, "cuDNN 9 is needed, found version %zu",
                 dnn.functions.version);
    dnn.found = !dnn.why[0];
}

const aril_cuda_dnn *aril_cuda_dnn_library(const char **why)
{
    pthread_once(&dnn.once, open_dnn);
    if (!dnn.found && why) *why = dnn.why;
    return dnn.found ? &dnn.functions : NULL;
}

cudnnHandle_t aril_cuda_dnn_take(aril_cuda_device *d)
{
    const aril_cuda_dnn *lib = aril_cuda_dnn_library(NULL);
    cudnnHandle_t handle = NULL;
    if (!lib || d->index >= MAX_DEVICES) return NULL;
    aril_cuda_use(d);
    pthread_mutex_lock(&lock);
    if (dnn.n_idle[d->index]) handle = dnn.idle[d->index][--dnn.n_idle[d->index]];
    pthread_mutex_unlock(&lock);
    if (!handle && lib->cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) handle = NULL;
    return handle;
}

void aril_cuda_dnn_give_back(aril_cuda_device *d, cudnnHandle_t handle)
{
    pthread_mutex_lock(&lock);
    bool kept = dnn.n_idle[d->index] < MAX_HANDLES;
    if (kept) dnn.idle[d->index][dnn.n_idle[d->index]++] = handle;
    pthread_mutex_unlock(&lock);
    if (!kept) dnn.functions.cudnnDestroy(handle);
}

static void dnn_text(char *buf, size_t size)
{
    char file[TEXT];
    const char *why = NULL;
    const aril_cuda_dnn *lib = aril_cuda_dnn_library(&why);
    void *address;
    if (!lib) {
        snprintf(buf, size, "%s", why);
        return;
    }
    memcpy(&address, &lib->cudnnGetVersion, sizeof address);
    snprintf(buf, size, "cuDNN %zu.%zu.%zu (%s)", lib->version / 10000, lib->version / 100 % 100,
             lib->version % 100, aril_cuda_file_of(address, file, sizeof file));
}

#else

static void dnn_text(char *buf, size_t size)
{
    snprintf(buf, size, "built without cuDNN");
}

#endif

void aril_cuda_libraries_text(char *buf, size_t size)
{
    char file[TEXT], cudnn[TEXT + 64];
    const char *why = NULL;
    const aril_cuda_blas *lt = aril_cuda_blas_library(&why);
    dnn_text(cudnn, sizeof cudnn);
    if (!lt) {
        snprintf(buf, size, "%s; %s", why, cudnn);
        return;
    }
    size_t version = lt->cublasLtGetVersion();
    void *address;
    memcpy(&address, &lt->cublasLtGetVersion, sizeof address);
    snprintf(buf, size, "cuBLASLt %zu.%zu.%zu (%s); %s", version / 10000, version / 100 % 100,
             version % 100, aril_cuda_file_of(address, file, sizeof file), cudnn);
}
