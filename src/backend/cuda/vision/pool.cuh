/* Pooling: windows on the device, and the rows' functions. */
#ifndef ARIL_CUDA_POOL_CUH
#define ARIL_CUDA_POOL_CUH

#include "backend/cuda/attrs.cuh"
#include "ops/vision/pool.h"

#include "backend/cuda/vision/image.cuh"

/* Windows along one dimension; kernel 0: adaptive. */
struct aril_cuda_window {
    int in, out, kernel, stride, begin, end, dilation;
};

/* The elements of a window along one dimension: first, first + step, ... */
struct aril_cuda_taps {
    int first, n, step;
    int counted; /* including those in the padding */
};

/* Whether it is one element without padding, as along dimensions that tensors lack. */
ARIL_CUDA_FN bool aril_cuda_window_is_single(const aril_cuda_window &w)
{
    return w.in == 1 && w.out == 1 && w.kernel <= 1 && !w.begin && !w.end;
}

/* (a * b + up) / c. Division in 64 bits takes many times as long. */
ARIL_CUDA_FN int aril_cuda_pool_scale(int a, int b, int up, int c)
{
    uint64_t n = (uint64_t)a * (uint32_t)b + (uint32_t)up;
    return (int)(n >> 32 ? n / (uint32_t)c : (uint32_t)n / (uint32_t)c);
}

/* Of the o-th window: as aril__pool_taps. */
ARIL_CUDA_FN aril_cuda_taps aril_cuda_taps_of(const aril_cuda_window &w, int o)
{
    if (aril_cuda_window_is_single(w)) return { 0, 1, 1, 1 };
    if (w.kernel == 0) {
        int first = aril_cuda_pool_scale(o, w.in, 0, w.out);
        int n = aril_cuda_pool_scale(o + 1, w.in, w.out - 1, w.out) - first;
        return { first, n, 1, n };
    }
    int start = o * w.stride - w.begin, d = w.dilation;
    int skipped = start < 0 ? d - 1 - start : 0;
    int reach = w.in > start ? w.in - start + d - 1 : 0;
    int padded = w.in + w.end - start + d - 1;
    if (d > 1) {
        skipped /= d;
        reach /= d;
        padded /= d;
    }
    int n = (reach < w.kernel ? reach : w.kernel) - skipped;
    return { start + skipped * d, n < 0 ? 0 : n, d, padded < w.kernel ? padded : w.kernel };
}

struct aril_cuda_pool_shape {
    aril_cuda_window along[3];
    int divisor; /* 0: the number of elements */
    bool include_pad;
};

/* What the sum over a window is divided by. */
ARIL_CUDA_FN int64_t aril_cuda_pool_divisor(const aril_cuda_pool_shape &p,
                                            const aril_cuda_taps t[3])
{
    if (p.divisor) return p.divisor;
    if (p.include_pad) return (int64_t)t[0].counted * t[1].counted * t[2].counted;
    return (int64_t)t[0].n * t[1].n * t[2].n;
}

const char *aril_cuda_pool_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_max_pool_run(aril_run *r);
aril_status aril_cuda_adaptive_max_pool_run(aril_run *r);
aril_status aril_cuda_avg_pool_run(aril_run *r);
aril_status aril_cuda_adaptive_avg_pool_run(aril_run *r);
aril_status aril_cuda_avg_pool_grad_run(aril_run *r);
aril_status aril_cuda_adaptive_avg_pool_grad_run(aril_run *r);

/* max_pool_grad with known windows, where that suits: pool_grad.cu. */
bool aril_cuda_pool_windows_known(const aril_run *r);
aril_status aril_cuda_pool_gather_run(aril_run *r);

/* Ops that take indices: pool_index.cu. */
const char *aril_cuda_pool_index_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_max_unpool_prepare(const aril_run *r, aril_plan *plan);
const char *aril_cuda_max_pool_grad_prepare(const aril_run *r, aril_plan *plan);
aril_status aril_cuda_max_pool_grad_run(aril_run *r);
aril_status aril_cuda_max_pool_pick_run(aril_run *r);
aril_status aril_cuda_max_unpool_run(aril_run *r);

#endif
