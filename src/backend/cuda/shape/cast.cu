/* copy and cast: elements of any dtype that computes, converted as core/dtype_convert.c does. A
 * conversion is the elementwise kernel of the identity, in the compute type of the source. */
#include "backend/cuda/elementwise/kernel.cuh"
#include "backend/cuda/elementwise/run.cuh"
#include "backend/cuda/shape/shape.cuh"

template <typename T, int N, bool Quick>
static __device__ __forceinline__ aril_cuda_ew_chunk<T> aril_cuda_ew_eval(
    int, const aril_cuda_ew_inputs<T, N> &v, const T *, int &)
{
    aril_cuda_ew_chunk<T> y;
    for (int k = 0; k < aril_cuda_ew_chunk<T>::size; k++) y.at[k] = v.at[0][k];
    return y;
}

template <typename T> static aril_status convert(aril_run *r)
{
    const void *kernel = reinterpret_cast<const void *>(&aril_cuda_ew_kernel<T, 1, true>);
    return aril_cuda_ew_run<T>(r, 0, { kernel, nullptr }, 1);
}

static bool computes(int dtype)
{
    return dtype <= ARIL_F64;
}

/* A number, converted on the host. */
static aril_status put_number(aril_run *r, const aril_tensor *number)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    int from = aril_cuda_host->dtype(number), to = aril_cuda_host->dtype(out);
    alignas(8) char element[8];
    ARIL_CUDA_SWITCH_COMPUTE(
        from, C,
        aril_cuda_store<C>(element, 0, to, aril_cuda_load<C>(aril_cuda_data(number), 0, from)));
    return aril_cuda_fill(r, out, element);
}

aril_status aril_cuda_copy_run(aril_run *r)
{
    const aril_tensor *in = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    aril_host_number n;
    int dtype = aril_cuda_host->dtype(in);
    if (aril_cuda_host->number(r, 0, &n)) return put_number(r, in);
    if (dtype == aril_cuda_host->dtype(out)) return aril_cuda_copy_strided(r, out, in);
    if (!computes(dtype) || !computes(aril_cuda_host->dtype(out))) return aril_cuda_narrow_run(r);
    aril_status s = ARIL_OK;
    ARIL_CUDA_SWITCH_COMPUTE(dtype, C, s = convert<C>(r));
    return s;
}

aril_status aril_cuda_cast_run(aril_run *r)
{
    return aril_cuda_copy_run(r);
}

/* Elements of less than a byte are converted, but copied by the host. */
const char *aril_cuda_cast_prepare(const aril_run *r, aril_plan *)
{
    const aril_tensor *in = aril_cuda_in(r, 0), *out = aril_cuda_out(r, 0);
    int from = aril_cuda_host->dtype(in), to = out ? aril_cuda_host->dtype(out) : from;
    if (from == to) return aril_cuda_size(from) ? nullptr : "elements of less than a byte";
    if (computes(from) && computes(to)) return nullptr;
    aril_host_number n;
    if (aril_cuda_host->number(r, 0, &n)) return "a number in a dtype that only stores";
    return aril_cuda_narrow_declines(out, in);
}
