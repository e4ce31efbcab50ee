/* Weights and biases, which may be missing, and in f32 for f16 and bf16 inputs. */
#ifndef ARIL_CUDA_NORM_PARAM_CUH
#define ARIL_CUDA_NORM_PARAM_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/host.cuh"

struct aril_cuda_param {
    const void *base; /* NULL: missing */
    int dtype;

    template <typename C> __device__ __forceinline__ C at(int64_t i, C missing) const
    {
        return base ? aril_cuda_load<C>(base, i, dtype) : missing;
    }
    /* The same, of type S or f32. */
    template <typename S> __device__ __forceinline__ float single(int64_t i, float missing) const
    {
        if (!base) return missing;
        return dtype == ARIL_F32 ? ((const float *)base)[i]
                                 : aril_cuda_to<float>(((const S *)base)[i]);
    }
    /* N aligned elements, of type S or f32. */
    template <typename S, int N>
    __device__ __forceinline__ void vector(int64_t i, float (&w)[N], float missing) const
    {
        if (!base) {
#pragma unroll
            for (int k = 0; k < N; k++) w[k] = missing;
        } else if (dtype == ARIL_F32) {
#pragma unroll
            for (int q = 0; q < N / 4; q++) {
                float4 f = reinterpret_cast<const float4 *>((const float *)base + i)[q];
                w[4 * q] = f.x;
                w[4 * q + 1] = f.y;
                w[4 * q + 2] = f.z;
                w[4 * q + 3] = f.w;
            }
        } else {
            aril_cuda_packed<S, N> v =
                *reinterpret_cast<const aril_cuda_packed<S, N> *>((const S *)base + i);
#pragma unroll
            for (int k = 0; k < N; k++) w[k] = v.get(k);
        }
    }
};

static inline aril_cuda_param aril_cuda_param_of(const aril_run *r, int i)
{
    const aril_tensor *t = i < aril_cuda_host->n_in(r) ? aril_cuda_in(r, i) : nullptr;
    if (!t) return { nullptr, 0 };
    return { aril_cuda_data(t), (int)aril_cuda_host->dtype(t) };
}

#endif
