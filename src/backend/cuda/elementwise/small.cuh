/* Small elementwise calls: up to a few thousand contiguous elements of one dtype.
 *
 * There the time of a call is that of its launch, and a kernel that serves all formulas, strides
 * and dtypes takes longer to begin than to compute. So each quick formula has a kernel of its own,
 * of a few instructions: an element per thread, without vectors. The operations are those of the
 * large kernel, and so are the results. */
#ifndef ARIL_CUDA_ELEMENTWISE_SMALL_CUH
#define ARIL_CUDA_ELEMENTWISE_SMALL_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/elementwise/elementwise.cuh"
#include "backend/cuda/launch.cuh"

enum { ARIL_CUDA_EW_SMALL = 4096 }; /* the most elements */

/* Operands as in aril_cuda_ew_args, all of one dtype: f32, f16 or bf16. */
struct aril_cuda_ew_small_args {
    void *base[1 + ARIL_CUDA_EW_INPUTS];
    float value[1 + ARIL_CUDA_EW_INPUTS];
    float p[3];
    uint16_t n;
    uint8_t dtype;
    uint8_t tensors; /* 1 << j: operand j is a tensor, not a number */
};

template <typename Formula>
static __global__ void __launch_bounds__(ARIL_CUDA_EW_THREADS)
    aril_cuda_ew_small_kernel(const __grid_constant__ aril_cuda_ew_small_args a)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    aril_cuda_after_previous();
    if (i >= a.n) return;
    ARIL_CUDA_SWITCH_SINGLE(a.dtype, S, {
        float x[Formula::inputs];
#pragma unroll
        for (int j = 0; j < Formula::inputs; j++)
            x[j] = a.tensors >> (1 + j) & 1
                       ? aril_cuda_to<float>(static_cast<const S *>(a.base[1 + j])[i])
                       : a.value[1 + j];
        int bad = 0; /* only formulas of integers set it */
        static_cast<S *>(a.base[0])[i] = aril_cuda_from<S>(Formula::of(x, a.p, bad));
    });
}

/* The kernel of a formula; NULL unless it is quick. */
template <typename Formula> static constexpr const void *aril_cuda_ew_small_entry()
{
    if constexpr (Formula::quick)
        return reinterpret_cast<const void *>(&aril_cuda_ew_small_kernel<Formula>);
    else
        return nullptr;
}

#endif
