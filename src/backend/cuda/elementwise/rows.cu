/* Elementwise ops: from a run to its kernel, and the rows. */
#include "backend/cuda/elementwise/run.cuh"
#include "backend/cuda/rows.cuh"

static aril_status run_formula(aril_run *r, int number)
{
    const void *kernel = nullptr;
    const aril_cuda_ew_own *own;
    int n_in = aril_cuda_host->n_in(r);
    aril_status s = ARIL_OK;
    switch (aril_cuda_host->type(r)) {
    case ARIL_F16:
    case ARIL_BF16:
    case ARIL_F32:
        kernel = aril_cuda_ew_f32[number];
        own = kernel ? &aril_cuda_ew_f32_own[number] : &aril_cuda_ew_f32_grads_own[number];
        if (aril_cuda_ew_run_small(r, own->small, n_in, &s)) return s;
        if (!kernel) kernel = aril_cuda_ew_f32_grads[number];
        if (kernel) s = aril_cuda_ew_run<float>(r, number, { kernel, own->aligned }, n_in);
        break;
    case ARIL_F64:
        kernel = aril_cuda_ew_f64[number];
        if (!kernel) kernel = aril_cuda_ew_f64_grads[number];
        if (kernel) s = aril_cuda_ew_run<double>(r, number, { kernel, nullptr }, n_in);
        break;
    case ARIL_U64:
        kernel = aril_cuda_ew_u64[number];
        if (kernel) s = aril_cuda_ew_run<uint64_t>(r, number, { kernel, nullptr }, n_in);
        break;
    default:
        kernel = aril_cuda_ew_i64[number];
        if (kernel) s = aril_cuda_ew_run<int64_t>(r, number, { kernel, nullptr }, n_in);
    }
    if (kernel) return s;
    return aril_cuda_host->fail(ARIL_ERR_DTYPE, "%s: not defined for this dtype",
                                aril_cuda_host->op(r));
}

template <int Formula> static aril_status run(aril_run *r)
{
    return run_formula(r, Formula);
}

#define ROW(name_)                    \
    { .op = #name_,                   \
      .name = "cuda_elementwise",     \
      .dtypes = ARIL_CUDA_DT_COMPUTE, \
      .strided = true,                \
      .run = run<ARIL__FORMULA_##name_> },
#define EW1(name, ...)  ROW(name) ROW(name##_grad)
#define EW1N(name, ...) ROW(name)
#define EW2(name, ...)  ROW(name) ROW(name##_grad_a) ROW(name##_grad_b)
#define EW2N(name, ...) ROW(name)
#define EW3(name, ...)  ROW(name) ROW(name##_grad_a) ROW(name##_grad_b) ROW(name##_grad_c)
const aril_row aril_cuda_elementwise_rows[] = {
#include "ops/elementwise/elementwise.def"
    {},
};
