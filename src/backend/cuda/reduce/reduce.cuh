/* What the reductions of this folder share: from a run to its loops. */
#ifndef ARIL_CUDA_REDUCE_REDUCE_CUH
#define ARIL_CUDA_REDUCE_REDUCE_CUH

#include "backend/cuda/reduce/pass.cuh"

/* The loops of a run over the axes of its attribute "mask". `vectors`: f16, bf16 and f32 are read
 * 16 bytes at a time where memory allows; then the lanes are above 1. */
aril_cuda_reduction aril_cuda_reduction_of_run(const aril_run *r, bool vectors, bool in_order);

/* The workspace of such a run, enough for partial results of up to 24 bytes. */
template <bool Vectors, bool InOrder> static size_t aril_cuda_reduce_workspace(const aril_run *r)
{
    return aril_cuda_reduce_bytes(aril_cuda_reduction_of_run(r, Vectors, InOrder), 24);
}

/* Output 0 of a run = the sum of its input 0 along the dimensions of `reduced`; the operands of
 * `kept` are the input and the output, that of `reduced` is the input. */
aril_status aril_cuda_sum_over(const aril_run *r, aril_cuda_dims kept, aril_cuda_dims reduced);
size_t aril_cuda_sum_over_bytes(const aril_run *r, aril_cuda_dims kept, aril_cuda_dims reduced);

/* A result of a reduction. */
struct aril_cuda_result {
    void *base;
    int dtype;

    template <typename C> __device__ __forceinline__ void put(int64_t at, C x) const
    {
        if (base) aril_cuda_store<C>(base, at, dtype, x);
    }
};
static inline aril_cuda_result aril_cuda_result_of(const aril_run *r, int i)
{
    if (i >= aril_cuda_host->n_out(r) || !aril_cuda_out(r, i)) return { nullptr, 0 };
    aril_tensor *t = aril_cuda_out(r, i);
    return { aril_cuda_data(t), (int)aril_cuda_host->dtype(t) };
}

/* Runs `launch(reader)` with a reader of input 0 that reads one element at a time. */
template <typename F> static inline void aril_cuda_with_dynamic(const aril_run *r, F &&launch)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    const void *base = aril_cuda_data(x);
    int dtype = aril_cuda_host->dtype(x);
    if (dtype == ARIL_F64)
        launch(aril_cuda_dynamic<double>{ base, dtype });
    else
        launch(aril_cuda_dynamic<float>{ base, dtype });
}

/* The same with the reader that the loops ask for. */
template <typename F>
static inline void aril_cuda_with_reader(const aril_run *r, const aril_cuda_reduction &l,
                                         F &&launch)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    const void *base = aril_cuda_data(x);
    int dtype = aril_cuda_host->dtype(x);
    if (l.lanes > 1 && dtype == ARIL_F32)
        launch(aril_cuda_typed<float, float, 4>{ (const float *)base });
    else if (l.lanes > 1 && dtype == ARIL_BF16)
        launch(aril_cuda_typed<float, aril_cuda_bf16, 8>{ (const aril_cuda_bf16 *)base });
    else if (l.lanes > 1)
        launch(aril_cuda_typed<float, aril_cuda_f16, 8>{ (const aril_cuda_f16 *)base });
    else
        aril_cuda_with_dynamic(r, launch);
}

#endif
