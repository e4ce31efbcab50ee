/* Mistakes that kernels find: wrong indices, division by zero. A kernel never traps: it skips the
 * element and reports it, and the op fails when Aril next asks (aril_cuda_poll).
 *
 *     aril_cuda_report report = aril_cuda_report_of(r);     on the host; passed by value
 *     if (at < 0 || at >= size)                             in the kernel
 *         aril_cuda_fail(report, ARIL_CUDA_BAD_INDEX, at, size, axis);
 *
 * Only the first report since the last poll is kept. The kinds are listed in errors.def. */
#ifndef ARIL_CUDA_ERRORS_CUH
#define ARIL_CUDA_ERRORS_CUH

#include "backend/cuda/host.cuh"

enum aril_cuda_bad {
#define KIND(name, status, message) ARIL_CUDA_BAD_##name,
#include "backend/cuda/device/errors.def"
#undef KIND
};

struct aril_cuda_report {
    aril_cuda_error_word *word;
    uint32_t *claim;
    uint32_t op;
};

static inline aril_cuda_report aril_cuda_report_of(const aril_run *r)
{
    const aril_cuda_device *d = aril_cuda_device_of(r);
    return { d->word, d->claim, aril_cuda_op_number(aril_cuda_host->op(r)) };
}

/* The claim is in device memory, where compare-and-swap is atomic for all kernels of the device;
 * the winner alone writes to the host. */
static __device__ __noinline__ void aril_cuda_fail(const aril_cuda_report &to, aril_cuda_bad kind,
                                                   int64_t index = 0, int64_t bound = 0,
                                                   int axis = 0, int64_t extra = 0)
{
    if (*(volatile uint32_t *)to.claim || atomicCAS(to.claim, 0u, 1u)) return;
    volatile aril_cuda_error_word *w = to.word;
    w->op = to.op;
    w->kind = kind;
    w->axis = axis;
    w->index = index;
    w->bound = bound;
    w->extra = extra;
    __threadfence_system();
    w->set = 1;
}

/* An index that may count from the end: wrapped to [0, size), or reported and -1. */
static __device__ __forceinline__ int64_t aril_cuda_index(const aril_cuda_report &to, int64_t at,
                                                          int64_t size, int axis)
{
    int64_t from_start = at < 0 ? at + size : at;
    if (from_start >= 0 && from_start < size) return from_start;
    aril_cuda_fail(to, ARIL_CUDA_BAD_INDEX, at, size, axis);
    return -1;
}

#endif
