/* Launching kernels. A run does:
 *
 *     static aril_status roll_run(aril_run *r)
 *     {
 *         int64_t n = aril_cuda_host->numel(aril_cuda_out(r, 0));
 *         if (n == 0) return ARIL_OK;
 *         roll<<<aril_cuda_blocks(r, n, 256), 256, 0, aril_cuda_stream(r)>>>(...);
 *         return aril_cuda_launched(r);
 *     }
 * with kernels that loop:  ARIL_CUDA_LOOP(i, n) { ... } */
#ifndef ARIL_CUDA_LAUNCH_CUH
#define ARIL_CUDA_LAUNCH_CUH

#include "backend/cuda/host.cuh"

enum { ARIL_CUDA_THREADS = 256, ARIL_CUDA_WARP = 32 };

/* Iterates over [0, n) by all threads of a one-dimensional grid; i has the type of n. */
#define ARIL_CUDA_LOOP(i, n)                                                                      \
    for (decltype((n) + 0) i = (decltype((n) + 0))blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (decltype((n) + 0))gridDim.x * blockDim.x)

/* The stream of a run, on whose device this thread then launches. */
static inline cudaStream_t aril_cuda_stream(const aril_run *r)
{
    aril_cuda_use(aril_cuda_device_of(r));
    return aril_cuda_run_stream(r);
}

/* The number of multiprocessors of the device of a run. */
static inline int aril_cuda_sms(const aril_run *r)
{
    return aril_cuda_device_of(r)->sms;
}

/* Blocks for n items, `per_block` at a time, in a grid that loops: at most `waves` full loads of
 * the device with blocks of 256 threads. At least 1. */
static inline unsigned aril_cuda_blocks(const aril_run *r, int64_t n, int64_t per_block,
                                        int waves = 4)
{
    int64_t want = (n + per_block - 1) / per_block, most = (int64_t)aril_cuda_sms(r) * 8 * waves;
    return (unsigned)(want < 1 ? 1 : want > most ? most : want);
}

/* Call after the launches of a run: ARIL_OK, or the error of a launch, with the op's name. Under
 * ARIL_SYNC=1 it waits for the work, and so finds the op whose kernel fails. */
static inline aril_status aril_cuda_launched(const aril_run *r)
{
    aril_cuda_device *d = aril_cuda_device_of(r);
    d->last_op = aril_cuda_host->op(r);
    cudaError_t e = cudaPeekAtLastError();
    if (e == cudaSuccess && !aril_cuda_sync) return ARIL_OK;
    return aril_cuda_check_launch(d, aril_cuda_host->queue(r), d->last_op);
}

/* Launches a kernel that may be loaded while the one before it still runs, which hides the time
 * that it takes to begin. It must call aril_cuda_after_previous before it uses memory. */
static inline void aril_cuda_launch_early(const aril_run *r, const void *kernel, unsigned blocks,
                                          unsigned threads, void **args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t c = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    c.gridDim = dim3(blocks);
    c.blockDim = dim3(threads);
    c.stream = aril_cuda_stream(r);
    c.attrs = &early;
    /* A recording decides itself which kernels wait for each other. */
    bool recorded = aril_cuda_recorded_shelf(aril_cuda_host->queue(r)) != nullptr;
    c.numAttrs = aril_cuda_device_of(r)->major >= 9 && !recorded;
    cudaLaunchKernelExC(&c, kernel, args);
}

/* Waits until the kernels before have ended and what they wrote is visible, and lets the next one
 * load: the first statement of a kernel that is launched early. */
static __device__ __forceinline__ void aril_cuda_after_previous()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* An error of a library or the runtime, as that op's: "matmul: cudaMemsetAsync: out of memory". */
static inline aril_status aril_cuda_check(const aril_run *r, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: %s: %s", aril_cuda_host->op(r), what,
                                cudaGetErrorString(e));
}

/* The largest dynamic shared memory of a kernel beyond 48 KiB must be allowed once per device: call
 * before the launch. */
template <typename Kernel>
static inline aril_status aril_cuda_allow_shared(const aril_run *r, Kernel *kernel, size_t bytes)
{
    if (bytes <= 48 * 1024) return ARIL_OK;
    return aril_cuda_check(r,
                           cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                (int)bytes),
                           "shared memory");
}

#endif
