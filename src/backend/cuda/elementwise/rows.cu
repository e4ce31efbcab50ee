/* Elementwise ops: from a run to its kernel, and the rows. */
#include "backend/cuda/elementwise/elementwise.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/number.cuh"
#include "backend/cuda/rows.cuh"

#include <type_traits>

/* Whether kernels of type T read and write vectors of the dtype. */
template <typename T> static bool is_native(int dtype)
{
    if (dtype == ARIL_BOOL) return true;
    if (std::is_same<T, float>::value)
        return dtype == ARIL_F32 || dtype == ARIL_F16 || dtype == ARIL_BF16;
    if (std::is_same<T, double>::value) return dtype == ARIL_F64;
    if (std::is_same<T, int64_t>::value) return dtype == ARIL_I64 || dtype == ARIL_I32;
    return dtype == ARIL_U64;
}

/* Whether operand j is read in aligned vectors, or is one element, along the innermost dimension. */
template <typename T>
static bool takes_vectors(const aril_cuda_loops &l, const aril_cuda_ew_args<T> &a, int j)
{
    int last = l.ndim - 1, size = aril_cuda_size(a.dtype[j]);
    if (j > 0 && a.feed[j] != ARIL_CUDA_EW_TENSOR) return true;
    if (!is_native<T>(a.dtype[j])) return false;
    if (j > 0 && l.stride[j][last] == 0) return true;
    if (l.stride[j][last] != 1 || (uintptr_t)a.base[j] % (uintptr_t)(size * 4)) return false;
    for (int d = 0; d < last; d++)
        if (l.stride[j][d] % ARIL_CUDA_EW_CHUNK) return false;
    return true;
}

template <typename T>
static bool choose_vectors(const aril_cuda_loops &l, const aril_cuda_ew_args<T> &a)
{
    if (l.ndim == 0 || (l.ndim > 1 && l.dim[l.ndim - 1] % ARIL_CUDA_EW_CHUNK)) return false;
    for (int j = 0; j < l.n; j++)
        if (!takes_vectors(l, a, j)) return false;
    return true;
}

template <typename T>
static aril_status launch(aril_run *r, const void *kernel, const aril_cuda_loops &piece,
                          aril_cuda_ew_args<T> a)
{
    const int64_t tile =
        ARIL_CUDA_EW_CHUNK * ARIL_CUDA_EW_THREADS * aril_cuda_ew_unroll<T>::value;
    a.n = (uint32_t)aril_cuda_loops_numel(&piece);
    for (int j = 0; j < piece.n; j++)
        if (a.base[j])
            a.base[j] = (char *)a.base[j] + piece.offset[j] * aril_cuda_size(a.dtype[j]);
    a.nest = aril_cuda_nest_of<1 + ARIL_CUDA_EW_INPUTS>(piece);
    a.vectors = choose_vectors(piece, a);
    for (int j = 0; j < piece.n; j++) a.splat[j] = aril_cuda_loops_step(&piece, j) == 0;
    void *args[] = { &a };
    cudaLaunchKernel(kernel, dim3((unsigned)((a.n + tile - 1) / tile)), dim3(ARIL_CUDA_EW_THREADS),
                     args, 0, aril_cuda_stream(r));
    return aril_cuda_launched(r);
}

template <typename T> static aril_status run_in(aril_run *r, int formula, const void *kernel)
{
    aril_tensor *out = aril_cuda_out(r, 0);
    aril_cuda_ew_args<T> a = {};
    a.formula = (uint16_t)formula;
    aril_cuda_loops l = aril_cuda_loops_of(out);
    const double *p = aril_cuda_host->attr_f64(r, "p");
    int n_in = aril_cuda_host->n_in(r);
    a.base[0] = aril_cuda_data(out);
    a.dtype[0] = (uint8_t)aril_cuda_host->dtype(out);
    aril_cuda_loops_add(&l, out);
    for (int i = 0; i < n_in; i++) {
        const aril_tensor *t = aril_cuda_in(r, i);
        bool number = t && aril_cuda_number<T>(r, i, &a.value[1 + i]);
        a.feed[1 + i] = (uint8_t)(!t       ? ARIL_CUDA_EW_ABSENT
                                  : number ? ARIL_CUDA_EW_VALUE
                                           : ARIL_CUDA_EW_TENSOR);
        bool tensor = t && !number;
        aril_cuda_loops_add(&l, tensor ? t : nullptr);
        if (!tensor) continue;
        a.base[1 + i] = aril_cuda_data(t);
        a.dtype[1 + i] = (uint8_t)aril_cuda_host->dtype(t);
    }
    for (int i = n_in; i < ARIL_CUDA_EW_INPUTS; i++) aril_cuda_loops_add(&l, nullptr);
    for (int k = 0; k < 3 && p; k++) a.p[k] = (T)p[k];
    a.report = aril_cuda_report_of(r);
    aril_cuda_loops_merge(&l, 0);
    return aril_cuda_each_piece(
        &l, [&](const aril_cuda_loops &piece) { return launch<T>(r, kernel, piece, a); });
}

static aril_status run_formula(aril_run *r, int number)
{
    const void *kernel = nullptr;
    aril_status s = ARIL_OK;
    switch (aril_cuda_host->type(r)) {
    case ARIL_F16:
    case ARIL_BF16:
    case ARIL_F32:
        kernel = aril_cuda_ew_f32[number];
        if (!kernel) kernel = aril_cuda_ew_f32_grads[number];
        if (kernel) s = run_in<float>(r, number, kernel);
        break;
    case ARIL_F64:
        kernel = aril_cuda_ew_f64[number];
        if (!kernel) kernel = aril_cuda_ew_f64_grads[number];
        if (kernel) s = run_in<double>(r, number, kernel);
        break;
    case ARIL_U64:
        kernel = aril_cuda_ew_u64[number];
        if (kernel) s = run_in<uint64_t>(r, number, kernel);
        break;
    default:
        kernel = aril_cuda_ew_i64[number];
        if (kernel) s = run_in<int64_t>(r, number, kernel);
    }
    if (kernel) return s;
    return aril_cuda_host->fail(ARIL_ERR_DTYPE, "%s: not defined for this dtype",
                                aril_cuda_host->op(r));
}

template <int Formula> static aril_status run(aril_run *r)
{
    return run_formula(r, Formula);
}

#define ROW(name_)                          \
    { .op = #name_,                         \
      .name = "cuda_elementwise",           \
      .dtypes = ARIL_CUDA_DT_COMPUTE,       \
      .strided = true,                      \
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
