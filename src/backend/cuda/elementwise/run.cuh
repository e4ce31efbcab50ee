/* From a run to an elementwise kernel: collapses the operands and chooses how they are read. */
#ifndef ARIL_CUDA_ELEMENTWISE_RUN_CUH
#define ARIL_CUDA_ELEMENTWISE_RUN_CUH

#include "backend/cuda/elementwise/aligned.cuh"
#include "backend/cuda/elementwise/elementwise.cuh"
#include "backend/cuda/elementwise/small.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/number.cuh"

#include <type_traits>

/* Whether kernels of type T read and write vectors of the dtype. */
template <typename T> static bool aril_cuda_ew_native(int dtype)
{
    if (dtype == ARIL_BOOL) return true;
    if (std::is_same<T, float>::value)
        return dtype == ARIL_F32 || dtype == ARIL_F16 || dtype == ARIL_BF16;
    if (std::is_same<T, double>::value) return dtype == ARIL_F64;
    if (std::is_same<T, int64_t>::value) return dtype == ARIL_I64 || dtype == ARIL_I32;
    return dtype == ARIL_U64;
}

/* Whether operand j is read in aligned vectors, or is one element, along the innermost dimension.
 */
template <typename T>
static bool aril_cuda_ew_takes(const aril_cuda_loops &l, const aril_cuda_ew_args<T> &a, int j)
{
    const int chunk = aril_cuda_ew_chunk<T>::size;
    int last = l.ndim - 1, bytes = chunk * aril_cuda_size(a.dtype[j]);
    if (j > 0 && a.feed[j] != ARIL_CUDA_EW_TENSOR) return true;
    if (!aril_cuda_ew_native<T>(a.dtype[j])) return false;
    if (j > 0 && l.stride[j][last] == 0) return true;
    if (l.stride[j][last] != 1 || (uintptr_t)a.base[j] % (uintptr_t)(bytes < 16 ? bytes : 16))
        return false;
    for (int d = 0; d < last; d++)
        if (l.stride[j][d] % chunk) return false;
    return true;
}

template <typename T>
static bool aril_cuda_ew_vectorizes(const aril_cuda_loops &l, const aril_cuda_ew_args<T> &a)
{
    const int chunk = aril_cuda_ew_chunk<T>::size;
    if (l.ndim == 0 || (l.ndim > 1 && l.dim[l.ndim - 1] % chunk)) return false;
    for (int j = 0; j < l.n; j++)
        if (!aril_cuda_ew_takes(l, a, j)) return false;
    return true;
}

/* The kernels that compute a formula. */
struct aril_cuda_ew_kernels {
    const void *general, *aligned; /* aligned: NULL if there is none */
};

/* Launches the kernel for aligned vectors of one dtype; false: the operands are others. */
template <typename T>
static bool aril_cuda_ew_start_aligned(const aril_run *r, const void *kernel, int n_in,
                                       const aril_cuda_ew_args<T> &a)
{
    aril_cuda_ew_aligned_args b = {};
    if (!kernel || !a.vectors || a.nest.ndim != 1) return false;
    for (int j = 0; j <= n_in; j++) {
        b.value[j] = (float)a.value[j];
        if (j > 0 && a.feed[j] != ARIL_CUDA_EW_TENSOR) continue;
        if (a.dtype[j] != a.dtype[0] || a.nest.stride[j][0] != 1) return false;
        b.base[j] = a.base[j];
        b.tensors |= (uint8_t)(1u << j);
    }
    if (a.dtype[0] != ARIL_F32 && a.dtype[0] != ARIL_F16 && a.dtype[0] != ARIL_BF16) return false;
    for (int k = 0; k < 3; k++) b.p[k] = (float)a.p[k];
    b.dtype = a.dtype[0];
    b.n = a.n;
    const int64_t bytes = 16 * ARIL_CUDA_EW_PARTS * ARIL_CUDA_EW_ALIGNED_THREADS;
    const int64_t block = bytes / aril_cuda_size(b.dtype);
    void *args[] = { &b };
    cudaLaunchKernel(kernel, dim3((unsigned)((b.n + block - 1) / block)),
                     dim3(ARIL_CUDA_EW_ALIGNED_THREADS), args, 0, aril_cuda_stream(r));
    return true;
}

/* Launches: `a` has all but the sizes of chunks. */
template <typename T>
static aril_status aril_cuda_ew_start(const aril_run *r, aril_cuda_ew_kernels kernels, int n_in,
                                      aril_cuda_ew_args<T> *a)
{
    if (aril_cuda_ew_start_aligned(r, kernels.aligned, n_in, *a)) return aril_cuda_launched(r);
    const int chunk = aril_cuda_ew_chunk<T>::size;
    const int64_t tile = chunk * ARIL_CUDA_EW_THREADS;
    a->spread = a->vectors;
    for (int j = 0; j <= n_in; j++) {
        bool tensor = j == 0 || a->feed[j] == ARIL_CUDA_EW_TENSOR;
        a->size[j] = (uint8_t)aril_cuda_size(a->dtype[j]);
        a->bytes[j] = (uint8_t)(a->splat[j] ? a->size[j] : a->size[j] * chunk);
        bool fits = a->splat[j] ? a->nest.ndim == 1 : a->bytes[j] == 32;
        if (tensor && !fits) a->spread = false;
    }
    void *args[] = { a };
    cudaLaunchKernel(kernels.general, dim3((unsigned)((a->n + tile - 1) / tile)),
                     dim3(ARIL_CUDA_EW_THREADS), args, 0, aril_cuda_stream(r));
    return aril_cuda_launched(r);
}

/* A piece of the loops over the operands, whose addresses are in `a`. */
template <typename T>
static aril_status aril_cuda_ew_launch(const aril_run *r, aril_cuda_ew_kernels kernels, int n_in,
                                       const aril_cuda_loops &piece, aril_cuda_ew_args<T> a)
{
    a.n = (uint32_t)aril_cuda_loops_numel(&piece);
    for (int j = 0; j < piece.n; j++)
        if (a.base[j]) a.base[j] = (char *)a.base[j] + piece.offset[j] * aril_cuda_size(a.dtype[j]);
    a.nest = aril_cuda_nest_of<1 + ARIL_CUDA_EW_INPUTS>(piece);
    a.vectors = aril_cuda_ew_vectorizes(piece, a);
    for (int j = 1; j < piece.n; j++) a.splat[j] = aril_cuda_loops_step(&piece, j) == 0;
    return aril_cuda_ew_start(r, kernels, n_in, &a);
}

/* Operands of any strides: input[i] is NULL unless input i is a tensor. */
template <typename T>
static aril_status aril_cuda_ew_loops(const aril_run *r, aril_cuda_ew_kernels kernels, int n_in,
                                      const aril_tensor *const *input,
                                      const aril_cuda_ew_args<T> &a)
{
    const aril_tensor *out = aril_cuda_out(r, 0);
    aril_cuda_loops l = aril_cuda_loops_of(out);
    aril_cuda_loops_add(&l, out);
    for (int i = 0; i < ARIL_CUDA_EW_INPUTS; i++)
        aril_cuda_loops_add(&l, i < n_in ? input[i] : nullptr);
    aril_cuda_loops_merge(&l, 0);
    return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) {
        return aril_cuda_ew_launch<T>(r, kernels, n_in, piece, a);
    });
}

/* Whether elements are one after the other, in the order of the dimensions. */
static bool aril_cuda_ew_is_contiguous(const aril_tensor *t)
{
    const int64_t *dim = aril_cuda_host->dims(t), *stride = aril_cuda_host->strides(t);
    int64_t step = 1;
    for (int d = aril_cuda_host->ndim(t) - 1; d >= 0; d--) {
        if (dim[d] != 1 && stride[d] != step) return false;
        step *= dim[d];
    }
    return true;
}

/* Contiguous operands of one size, as most are: there is nothing to collapse. */
template <typename T>
static aril_status aril_cuda_ew_flat(const aril_run *r, aril_cuda_ew_kernels kernels, int n_in,
                                     int64_t n, aril_cuda_ew_args<T> *a)
{
    const int chunk = aril_cuda_ew_chunk<T>::size;
    a->n = (uint32_t)n;
    a->nest.ndim = 1;
    a->vectors = true;
    for (int j = 0; j <= n_in; j++) {
        bool tensor = j == 0 || a->feed[j] == ARIL_CUDA_EW_TENSOR;
        uintptr_t bytes = (uintptr_t)(chunk * aril_cuda_size(a->dtype[j]));
        a->nest.stride[j][0] = tensor;
        if (tensor && (!aril_cuda_ew_native<T>(a->dtype[j]) ||
                       (uintptr_t)a->base[j] % (bytes < 16 ? bytes : 16)))
            a->vectors = false;
    }
    return aril_cuda_ew_start(r, kernels, n_in, a);
}

/* Runs a small call of float by its kernel, if it has one; false: it is not such a call. */
static inline bool aril_cuda_ew_run_small(aril_run *r, const void *kernel, int n_in,
                                          aril_status *status)
{
    const aril_tensor *out = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(out);
    int dtype = aril_cuda_host->dtype(out);
    if (!kernel || n < 1 || n > ARIL_CUDA_EW_SMALL || dtype != aril_cuda_host->type(r) ||
        !aril_cuda_ew_is_contiguous(out))
        return false;
    aril_cuda_ew_small_args a = {};
    for (int i = 0; i < n_in; i++) {
        const aril_tensor *t = aril_cuda_in(r, i);
        if (!t || aril_cuda_number<float>(r, i, &a.value[1 + i])) continue;
        if (aril_cuda_host->dtype(t) != dtype || aril_cuda_host->numel(t) != n ||
            !aril_cuda_ew_is_contiguous(t))
            return false;
        a.base[1 + i] = aril_cuda_data(t);
        a.tensors |= (uint8_t)(2u << i);
    }
    const double *p = aril_cuda_host->attr_f64(r, "p");
    for (int k = 0; k < 3 && p; k++) a.p[k] = (float)p[k];
    a.base[0] = aril_cuda_data(out);
    a.dtype = (uint8_t)dtype;
    a.n = (uint16_t)n;
    unsigned threads = n <= 32 ? 32 : ARIL_CUDA_EW_THREADS;
    void *args[] = { &a };
    aril_cuda_launch_early(r, kernel, ((unsigned)n + threads - 1) / threads, threads, args);
    *status = aril_cuda_launched(r);
    return true;
}

/* Runs the kernel of a formula on the first `n_in` inputs of the run, broadcast to its result. */
template <typename T>
static aril_status aril_cuda_ew_run(aril_run *r, int formula, aril_cuda_ew_kernels kernels,
                                    int n_in)
{
    const aril_tensor *out = aril_cuda_out(r, 0), *input[ARIL_CUDA_EW_INPUTS];
    aril_cuda_ew_args<T> a = {};
    a.formula = (uint16_t)formula;
    const double *p = aril_cuda_host->attr_f64(r, "p");
    int64_t n = aril_cuda_host->numel(out);
    bool flat = n > 0 && n <= INT32_MAX / 2 && aril_cuda_ew_is_contiguous(out);
    a.base[0] = aril_cuda_data(out);
    a.dtype[0] = (uint8_t)aril_cuda_host->dtype(out);
    for (int i = 0; i < n_in; i++) {
        const aril_tensor *t = aril_cuda_in(r, i);
        bool number = t && aril_cuda_number<T>(r, i, &a.value[1 + i]);
        a.feed[1 + i] = (uint8_t)(!t       ? ARIL_CUDA_EW_ABSENT
                                  : number ? ARIL_CUDA_EW_VALUE
                                           : ARIL_CUDA_EW_TENSOR);
        input[i] = number ? nullptr : t;
        if (!input[i]) continue;
        a.base[1 + i] = aril_cuda_data(t);
        a.dtype[1 + i] = (uint8_t)aril_cuda_host->dtype(t);
        flat = flat && aril_cuda_host->numel(t) == n && aril_cuda_ew_is_contiguous(t);
    }
    for (int k = 0; k < 3 && p; k++) a.p[k] = (T)p[k];
    a.report = aril_cuda_report_of(r);
    return flat ? aril_cuda_ew_flat<T>(r, kernels, n_in, n, &a)
                : aril_cuda_ew_loops<T>(r, kernels, n_in, input, a);
}

#endif
