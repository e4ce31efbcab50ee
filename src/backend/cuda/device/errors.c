/* Late errors: those of the runtime, and those that kernels write to the error word. */
#include "backend/cuda/device/device.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OPS = 2048 };

/* ---- after fork ---- */

static bool forked; /* this process is a child of one that used a GPU */

static void in_child(void)
{
    forked = true;
}

static void watch_forks(void)
{
    static bool watched;
    if (!watched) pthread_atfork(NULL, NULL, in_child);
    watched = true;
}

/* CUDA does not survive a fork, and calls it an initialization error. */
static const char *text_of(cudaError_t e)
{
    return forked
               ? "a GPU that was used before fork() cannot be used in the child; fork before the "
                 "first use, or run another program"
               : cudaGetErrorString(e);
}

aril_status aril_cuda_expect(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return ARIL_OK;
    return aril_cuda_host->fail(e == cudaErrorMemoryAllocation ? ARIL_ERR_MEMORY : ARIL_ERR_DEVICE,
                                "cuda: %s: %s", what, text_of(e));
}

/* ---- names ---- */

/* Op names by number. Names are permanent, so their addresses identify them; a table open to
 * lookups without a lock, as every indexing op makes one. */
static struct {
    pthread_mutex_t lock; /* of those who add */
    const char *name[MAX_OPS];
} ops = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *name_at(uint32_t i)
{
    return __atomic_load_n(&ops.name[i], __ATOMIC_ACQUIRE);
}

/* Open addressing: the slot that holds the name, or the first free one. */
static uint32_t slot_of(const char *name)
{
    uint32_t i = (uint32_t)(((uintptr_t)name >> 3) * 2654435761u) % MAX_OPS;
    for (uint32_t n = 0; n < MAX_OPS && name_at(i) && name_at(i) != name; n++)
        i = (i + 1) % MAX_OPS;
    return i;
}

uint32_t aril_cuda_op_number(const char *name)
{
    uint32_t i = slot_of(name);
    if (name_at(i)) return i;
    pthread_mutex_lock(&ops.lock);
    i = slot_of(name);
    __atomic_store_n(&ops.name[i], name, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&ops.lock);
    return i;
}

/* ---- the error word ---- */

static const struct kind {
    aril_status status;
    const char *message;
} kinds[] = {
#define KIND(name, status, message) { status, message },
#include "backend/cuda/device/errors.def"
#undef KIND
};
enum { KINDS = sizeof kinds / sizeof *kinds };

aril_status aril_cuda_errors_new(aril_cuda_device *d)
{
    void *word = NULL, *claim = NULL;
    watch_forks();
    aril_status s = aril_cuda_expect(cudaHostAlloc(&word, sizeof *d->word,
                                                   cudaHostAllocMapped | cudaHostAllocPortable),
                                     "cudaHostAlloc");
    if (s == ARIL_OK) s = aril_cuda_expect(cudaMalloc(&claim, sizeof *d->claim), "cudaMalloc");
    if (s == ARIL_OK) s = aril_cuda_expect(cudaMemset(claim, 0, sizeof *d->claim), "cudaMemset");
    if (word) memset(word, 0, sizeof *d->word);
    d->word = word;
    d->claim = claim;
    return s;
}

void aril_cuda_errors_delete(aril_cuda_device *d)
{
    cudaFree(d->claim);
    cudaFreeHost(d->word);
    d->claim = NULL;
    d->word = NULL;
}

/* The number that a letter of a message stands for. */
static int put_number(char letter, const aril_cuda_error_word *w, char *to, size_t size)
{
    double real;
    memcpy(&real, &w->index, sizeof real);
    switch (letter) {
    case 'I': return snprintf(to, size, "%lld", (long long)w->index);
    case 'B': return snprintf(to, size, "%lld", (long long)w->bound);
    case 'A': return snprintf(to, size, "%d", (int)w->axis);
    case 'G': return snprintf(to, size, "%g", real);
    default: return snprintf(to, size, "%lld", (long long)w->extra);
    }
}

static void put_message(const struct kind *k, const aril_cuda_error_word *w, char *to, size_t size)
{
    size_t n = 0;
    for (const char *c = k->message; *c && n + 1 < size; c++) {
        if (*c != '%') {
            to[n++] = *c;
            continue;
        }
        int m = put_number(*++c, w, to + n, size - n);
        n += m > 0 ? (size_t)m : 0;
    }
    to[n < size ? n : size - 1] = '\0';
}

/* Takes what a kernel wrote, and lets the next one write. The host has waited for the kernel. */
static bool take_word(aril_cuda_device *d, aril_late_error *error)
{
    if (!__atomic_load_n(&d->word->set, __ATOMIC_ACQUIRE)) return false;
    aril_cuda_error_word w = *d->word;
    const struct kind *k = &kinds[w.kind < KINDS ? w.kind : 0];
    const char *op = w.op < MAX_OPS ? name_at(w.op) : NULL;
    error->code = k->status;
    snprintf(error->op, sizeof error->op, "%s", op ? op : "");
    put_message(k, &w, error->text, sizeof error->text);
    memset(d->word, 0, sizeof *d->word);
    aril_cuda_use(d);
    cudaMemset(d->claim, 0, sizeof *d->claim);
    cudaStreamSynchronize(NULL); /* queues do not wait for it by themselves */
    return true;
}

/* ---- errors of the runtime ---- */

static bool is_fatal(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

aril_status aril_cuda_late(aril_cuda_device *d, cudaError_t e)
{
    if (e == cudaSuccess) return ARIL_OK;
    cudaGetLastError(); /* forgets it, if it can be forgotten */
    pthread_mutex_lock(&d->lock);
    if (d->late.code == ARIL_OK) {
        const char *op = d->last_op;
        d->late.code = ARIL_ERR_DEVICE;
        snprintf(d->late.op, sizeof d->late.op, "%s", op ? op : "");
        snprintf(d->late.text, sizeof d->late.text, "%s%s%s", text_of(e),
                 aril_cuda_sync || forked
                     ? ""
                     : " (in this op, or in an earlier one: ARIL_SYNC=1 finds which)",
                 is_fatal(e) ? ": the GPU cannot be used until the program starts again" : "");
    }
    pthread_mutex_unlock(&d->lock);
    return ARIL_ERR_DEVICE;
}

/* Whether the queue is being captured: then nothing runs that could be waited for. */
static bool is_recorded(const aril_queue *queue)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(aril_cuda_queue_stream(queue), &status);
    return status != cudaStreamCaptureStatusNone;
}

aril_status aril_cuda_check_launch(aril_cuda_device *d, aril_queue *queue, const char *op)
{
    cudaError_t e = cudaGetLastError();
    const char *when = "launch failed";
    if (e == cudaSuccess && aril_cuda_sync && !is_recorded(queue)) {
        e = cudaStreamSynchronize(aril_cuda_queue_stream(queue));
        when = "kernel failed";
    }
    if (e != cudaSuccess)
        return aril_cuda_host->fail(
            ARIL_ERR_DEVICE, "%s: %s: %s%s", op ? op : "cuda", when, text_of(e),
            is_fatal(e) ? "; the GPU cannot be used until the program starts again" : "");
    aril_late_error late;
    if (!aril_cuda_sync || aril_cuda_poll(d, &late) == ARIL_OK) return ARIL_OK;
    return aril_cuda_host->fail(late.code, "%s: %s", late.op, late.text);
}

aril_status aril_cuda_poll(void *self, aril_late_error *error)
{
    aril_cuda_device *d = self;
    pthread_mutex_lock(&d->lock);
    bool found = d->late.code != ARIL_OK;
    if (found) *error = d->late;
    d->late.code = ARIL_OK;
    if (!found) found = take_word(d, error);
    pthread_mutex_unlock(&d->lock);
    return found ? error->code : ARIL_OK;
}
