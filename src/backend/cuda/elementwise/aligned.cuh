/* Large elementwise calls on aligned vectors of one dtype: f32, f16 or bf16.
 *
 * Most bytes of a network pass here, at the speed of the memory if enough of them are under way. So
 * common formulas have a kernel of their own, in which few registers are needed, and each thread
 * reads two vectors of 16 bytes of each operand before it computes. The operations are those of the
 * kernel for all formulas, and so are the results. */
#ifndef ARIL_CUDA_ELEMENTWISE_ALIGNED_CUH
#define ARIL_CUDA_ELEMENTWISE_ALIGNED_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/elementwise/elementwise.cuh"

enum { ARIL_CUDA_EW_ALIGNED_THREADS = 256, ARIL_CUDA_EW_PARTS = 2 };

/* Operands as in aril_cuda_ew_args, contiguous, at multiples of 16 bytes. */
struct aril_cuda_ew_aligned_args {
    void *base[1 + ARIL_CUDA_EW_INPUTS];
    float value[1 + ARIL_CUDA_EW_INPUTS];
    float p[3];
    uint32_t n;
    uint8_t dtype;
    uint8_t tensors; /* 1 << j: operand j is a tensor, not a number */
};

/* Vectors of a thread, which lie a block of threads apart. */
template <typename S, int N> struct aril_cuda_ew_parts {
    enum { size = 16 / sizeof(S) };
    aril_cuda_vector<S, size> at[ARIL_CUDA_EW_PARTS][N];
};

template <typename Formula, typename S>
static __device__ __forceinline__ void aril_cuda_ew_aligned(const aril_cuda_ew_aligned_args &a)
{
    typedef aril_cuda_ew_parts<S, Formula::inputs> parts;
    typedef aril_cuda_vector<S, parts::size> vector;
    const uint32_t vectors = a.n / parts::size;
    const uint32_t first = blockIdx.x * (blockDim.x * ARIL_CUDA_EW_PARTS) + threadIdx.x;
    parts v;
    int bad = 0; /* only formulas of integers set it */
#pragma unroll
    for (int k = 0; k < ARIL_CUDA_EW_PARTS; k++)
#pragma unroll
        for (int j = 0; j < Formula::inputs; j++) {
            uint32_t i = first + k * blockDim.x;
            if (i < vectors && (a.tensors >> (1 + j) & 1))
                v.at[k][j] = static_cast<const vector *>(a.base[1 + j])[i];
        }
#pragma unroll
    for (int k = 0; k < ARIL_CUDA_EW_PARTS; k++) {
        uint32_t i = first + k * blockDim.x;
        vector y;
#pragma unroll
        for (int e = 0; e < parts::size; e++) {
            float x[Formula::inputs];
#pragma unroll
            for (int j = 0; j < Formula::inputs; j++)
                x[j] = a.tensors >> (1 + j) & 1 ? aril_cuda_to<float>(v.at[k][j].at[e])
                                                : a.value[1 + j];
            y.at[e] = aril_cuda_from<S>(Formula::of(x, a.p, bad));
        }
        if (i < vectors) static_cast<vector *>(a.base[0])[i] = y;
    }
    /* What is left is less than a vector. */
    if (const uint32_t i = vectors * parts::size + first; i < a.n) {
        float x[Formula::inputs];
#pragma unroll
        for (int j = 0; j < Formula::inputs; j++)
            x[j] = a.tensors >> (1 + j) & 1
                       ? aril_cuda_to<float>(static_cast<const S *>(a.base[1 + j])[i])
                       : a.value[1 + j];
        static_cast<S *>(a.base[0])[i] = aril_cuda_from<S>(Formula::of(x, a.p, bad));
    }
}

template <typename Formula>
static __global__ void __launch_bounds__(ARIL_CUDA_EW_ALIGNED_THREADS)
    aril_cuda_ew_aligned_kernel(const __grid_constant__ aril_cuda_ew_aligned_args a)
{
    ARIL_CUDA_SWITCH_SINGLE(a.dtype, S, (aril_cuda_ew_aligned<Formula, S>(a)));
}

/* Whether a formula that is not quick is common in networks. */
static constexpr bool aril_cuda_ew_is_common(const char *op)
{
    const char *const common[] = { "exp",       "tanh",         "tanh_grad",
                                   "sigmoid",   "sigmoid_grad", "gelu",
                                   "gelu_grad", "gelu_tanh",    "gelu_tanh_grad",
                                   "silu",      "silu_grad" };
    for (const char *name : common) {
        const char *a = op;
        while (*a && *a == *name) a++, name++;
        if (!*a && !*name) return true;
    }
    return false;
}

/* The kernel of a formula; NULL unless it is quick or common. */
template <typename Formula> static constexpr const void *aril_cuda_ew_aligned_entry()
{
    if constexpr (Formula::quick || Formula::common)
        return reinterpret_cast<const void *>(&aril_cuda_ew_aligned_kernel<Formula>);
    else
        return nullptr;
}

#endif
