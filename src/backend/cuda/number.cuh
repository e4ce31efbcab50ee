/* Inputs that come by value: scalars, learning rates, keys. They are in host memory; `run` reads
 * them before it launches, and passes them to kernels as arguments. While work is recorded, those
 * that differ from run to run are tensors of the device instead, which kernels read. */
#ifndef ARIL_CUDA_NUMBER_CUH
#define ARIL_CUDA_NUMBER_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/host.cuh"

/* True if input i is a number, with its value in C; false if it is a tensor of the device or
 * missing. */
template <typename C> static inline bool aril_cuda_number(const aril_run *r, int i, C *x)
{
    aril_host_number n;
    if (!aril_cuda_host->number(r, i, &n)) return false;
    const aril_tensor *t = aril_cuda_host->in(r, i);
    *x = aril_cuda_load<C>(aril_cuda_host->data(t), 0, aril_cuda_host->dtype(t));
    return true;
}

/* A 0-d input that is a number or a tensor of the device, in one kernel argument. */
template <typename C> struct aril_cuda_scalar {
    const void *at; /* NULL: `value` */
    int dtype;
    C value;

    __device__ __forceinline__ C read() const
    {
        return at ? aril_cuda_load<C>(at, 0, dtype) : value;
    }
};
/* A missing input gives `otherwise`. */
template <typename C>
static inline aril_cuda_scalar<C> aril_cuda_scalar_of(const aril_run *r, int i, C otherwise = 0)
{
    aril_cuda_scalar<C> s = { nullptr, 0, otherwise };
    const aril_tensor *t = aril_cuda_host->in(r, i);
    if (!t || aril_cuda_number<C>(r, i, &s.value)) return s;
    s.at = aril_cuda_host->data(t);
    s.dtype = aril_cuda_host->dtype(t);
    return s;
}

/* The key of a random op: input i. */
struct aril_cuda_key {
    uint64_t seed, call;
    const uint64_t *at; /* both, on the device; NULL: they are here */

    __device__ __forceinline__ aril_cuda_key read() const
    {
        return at ? aril_cuda_key{ at[0], at[1], nullptr } : *this;
    }
};
static inline aril_cuda_key aril_cuda_key_of(const aril_run *r, int i)
{
    aril_host_number n = {};
    if (aril_cuda_host->number(r, i, &n)) return { n.key[0], n.key[1], nullptr };
    return { 0, 0, static_cast<const uint64_t *>(aril_cuda_host->data(aril_cuda_host->in(r, i))) };
}

#endif
