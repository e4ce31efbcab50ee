/* What follows a product or a convolution: the bias of each channel, a residual, an activation. */
#ifndef ARIL_CUDA_EPILOGUE_CUH
#define ARIL_CUDA_EPILOGUE_CUH

#include "aril/activation.h"
#include "backend/cuda/dtype.cuh"
#include "backend/cuda/host.cuh"

/* As aril__activate of ops/elementwise/activation.h: NaN stays NaN. */
static __device__ __forceinline__ float aril_cuda_activate(int act, float x)
{
    switch (act) {
    case ARIL_RELU: return x < 0.0f ? 0.0f : x;
    case ARIL_RELU6: return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
    case ARIL_LEAKY_RELU: return x > 0.0f ? x : x * 0.01f;
    case ARIL_SIGMOID: return 1.0f / (1.0f + expf(-x));
    case ARIL_TANH: return tanhf(x);
    default: return x;
    }
}
static __device__ __forceinline__ double aril_cuda_activate(int act, double x)
{
    switch (act) {
    case ARIL_RELU: return x < 0.0 ? 0.0 : x;
    case ARIL_RELU6: return x < 0.0 ? 0.0 : x > 6.0 ? 6.0 : x;
    case ARIL_LEAKY_RELU: return x > 0.0 ? x : x * 0.01;
    case ARIL_SIGMOID: return 1.0 / (1.0 + exp(-x));
    case ARIL_TANH: return tanh(x);
    default: return x;
    }
}
static __device__ __forceinline__ int64_t aril_cuda_activate(int, int64_t x)
{
    return x;
}

/* y [outer, channels, inner], contiguous, in place: y = act(y + bias + z), z being like y.
 * `clear`: y is not read, as if it were 0. A bias or z of NULL adds nothing. */
struct aril_cuda_epilogue {
    void *y;
    const void *bias, *z;
    int64_t bias_stride;
    int64_t outer, channels, inner;
    int dtype, activation;
    bool clear;
};
aril_status aril_cuda_epilogue_run(const aril_run *r, const aril_cuda_epilogue *e);

#endif
