/* Tensors of constants. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/shape/shape.cuh"
#include "ops/shape/create.h"

/* ---- one value ---- */

static aril_status fill_number(aril_run *r, const double *value, const int64_t *integer)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    int dtype = aril_cuda_host->dtype(out);
    alignas(8) char element[8];
    if (integer && integer[1])
        aril_cuda_store<int64_t>(element, 0, dtype, integer[0]);
    else
        aril_cuda_store<double>(element, 0, dtype, value[0]);
    return aril_cuda_fill(r, out, element);
}

/* full and full_like. */
aril_status aril_cuda_full_run(aril_run *r)
{
    return fill_number(r, aril_cuda_host->attr_f64(r, "value"),
                       aril_cuda_host->attr_i64(r, "integer"));
}

aril_status aril_cuda_count_like_run(aril_run *r)
{
    int64_t n = aril_cuda_host->numel(aril_cuda_in(r, 1));
    double count = n ? (double)(aril_cuda_host->numel(aril_cuda_in(r, 0)) / n) : 0;
    return fill_number(r, &count, nullptr);
}

/* ---- steps ---- */

/* The product and the sum are rounded one by one, as on the CPU. */
static __device__ double step(double from, double by, int64_t times)
{
    return __dadd_rn(from, __dmul_rn(by, (double)times));
}

static __global__ void put_steps(void *out, int dtype, int64_t n, create_attrs a, bool from_end)
{
    ARIL_CUDA_LOOP(i, n)
    {
        if (a.integer[1])
            aril_cuda_store<int64_t>(out, i, dtype,
                                     (int64_t)((uint64_t)a.integer[0] +
                                               (uint64_t)i * (uint64_t)a.integer[2]));
        else if (from_end && i >= n / 2 && n > 1)
            aril_cuda_store<double>(out, i, dtype, step(a.value[1], -a.value[2], n - 1 - i));
        else
            aril_cuda_store<double>(out, i, dtype, step(a.value[0], a.value[2], i));
    }
}

static aril_status run_steps(aril_run *r, bool from_end)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(out);
    if (n == 0) return ARIL_OK;
    put_steps<<<aril_cuda_blocks(r, n, ARIL_CUDA_THREADS), ARIL_CUDA_THREADS, 0,
                aril_cuda_stream(r)>>>(aril_cuda_data(out), aril_cuda_host->dtype(out), n,
                                       *aril_cuda_attrs<create_attrs>(r), from_end);
    return aril_cuda_launched(r);
}

aril_status aril_cuda_arange_run(aril_run *r)
{
    return run_steps(r, false);
}

aril_status aril_cuda_linspace_run(aril_run *r)
{
    return run_steps(r, true);
}

/* ---- eye ---- */

static __global__ void put_diagonal(void *out, int dtype, int64_t n, int64_t columns)
{
    ARIL_CUDA_LOOP(i, n) aril_cuda_store<int64_t>(out, i, dtype, i / columns == i % columns);
}

aril_status aril_cuda_eye_run(aril_run *r)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(out);
    if (n == 0) return ARIL_OK;
    put_diagonal<<<aril_cuda_blocks(r, n, ARIL_CUDA_THREADS), ARIL_CUDA_THREADS, 0,
                   aril_cuda_stream(r)>>>(aril_cuda_data(out), aril_cuda_host->dtype(out), n,
                                          aril_cuda_dim(out, 1));
    return aril_cuda_launched(r);
}
