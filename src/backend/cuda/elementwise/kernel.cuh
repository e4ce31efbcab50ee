/* The kernel of an elementwise formula in one compute type.
 *
 * A block handles a tile of consecutive elements, a thread `unroll` chunks of 4. If the innermost
 * dimension allows it, a chunk is 4 neighbours, read and written as vectors; otherwise, and at the
 * end, neighbouring threads handle neighbouring elements. All reads of a thread come before its
 * first write, so the result may be in the memory of an input. */
#ifndef ARIL_CUDA_ELEMENTWISE_KERNEL_CUH
#define ARIL_CUDA_ELEMENTWISE_KERNEL_CUH

#include "backend/cuda/elementwise/elementwise.cuh"
#include "backend/cuda/formulas.cuh"

/* The table's entries: a kernel, or nothing. */
static constexpr const void *aril_cuda_ew_entry(const void *kernel)
{
    return kernel;
}
static constexpr const void *aril_cuda_ew_entry()
{
    return nullptr;
}

template <typename T> struct aril_cuda_ew_chunk {
    T at[ARIL_CUDA_EW_CHUNK];
};

/* ---- any strides and dtypes ---- */

/* The offset of operand j at element i. */
template <typename T>
static __device__ __forceinline__ int32_t aril_cuda_ew_offset(const aril_cuda_ew_args<T> &a, int j,
                                                              uint32_t i)
{
    int32_t at = 0;
#pragma unroll 1
    for (int d = 0; d < a.nest.ndim - 1; d++) {
        uint32_t rest;
        i = a.nest.dim[d].split(i, &rest);
        at += (int32_t)rest * a.nest.stride[j][d];
    }
    return a.nest.ndim ? at + (int32_t)i * a.nest.stride[j][a.nest.ndim - 1] : at;
}

/* Elements first, first + step ... of operand j; those beyond the end repeat the first. */
template <typename T>
static __device__ __noinline__ aril_cuda_ew_chunk<T> aril_cuda_ew_gather(
    const aril_cuda_ew_args<T> &a, int j, uint32_t first, uint32_t step)
{
    aril_cuda_ew_chunk<T> x;
    int32_t at[ARIL_CUDA_EW_CHUNK];
#pragma unroll
    for (int k = 0; k < ARIL_CUDA_EW_CHUNK; k++) {
        uint32_t i = first + k * step;
        at[k] = aril_cuda_ew_offset(a, j, i < a.n ? i : first);
    }
    ARIL_CUDA_SWITCH(a.dtype[j], S, {
        const S *p = static_cast<const S *>(a.base[j]);
        for (int k = 0; k < ARIL_CUDA_EW_CHUNK; k++) x.at[k] = aril_cuda_to<T>(p[at[k]]);
    });
    return x;
}

template <typename T>
static __device__ __noinline__ void aril_cuda_ew_scatter(const aril_cuda_ew_args<T> &a,
                                                         uint32_t first, uint32_t step,
                                                         aril_cuda_ew_chunk<T> x)
{
    ARIL_CUDA_SWITCH(a.dtype[0], S, {
        S *p = static_cast<S *>(a.base[0]);
        for (int k = 0; k < ARIL_CUDA_EW_CHUNK; k++) {
            uint32_t i = first + k * step;
            if (i < a.n) p[aril_cuda_ew_offset(a, 0, i)] = aril_cuda_from<S>(x.at[k]);
        }
    });
}

/* ---- vectors ---- */

/* Reads and writes 4 neighbours, for the dtypes of aril_cuda_ew_is_native. */
template <typename T> struct aril_cuda_ew_vectors;
#define ARIL_CUDA_EW_VECTORS(T, ...)                                                             \
    template <> struct aril_cuda_ew_vectors<T> {                                                 \
        static __device__ __forceinline__ void load(const void *p, int32_t at, int dtype,        \
                                                    bool splat, T *x)                            \
        {                                                                                        \
            switch (dtype) {                                                                     \
                __VA_ARGS__(ARIL_CUDA_EW_LOAD_CASE, T)                                           \
            }                                                                                    \
        }                                                                                        \
        static __device__ __forceinline__ void store(void *p, int32_t at, int dtype, const T *x) \
        {                                                                                        \
            switch (dtype) {                                                                     \
                __VA_ARGS__(ARIL_CUDA_EW_STORE_CASE, T)                                          \
            }                                                                                    \
        }                                                                                        \
    };
#define ARIL_CUDA_EW_LOAD_CASE(S, T)                                                         \
    case aril_cuda_type<S>::dtype: {                                                         \
        const S *e = static_cast<const S *>(p) + at;                                         \
        if (splat) {                                                                         \
            x[0] = x[1] = x[2] = x[3] = aril_cuda_to<T>(*e);                                 \
        } else {                                                                             \
            aril_cuda_vector<S, 4> v = *reinterpret_cast<const aril_cuda_vector<S, 4> *>(e); \
            for (int k = 0; k < 4; k++) x[k] = aril_cuda_to<T>(v.at[k]);                     \
        }                                                                                    \
        break;                                                                               \
    }
#define ARIL_CUDA_EW_STORE_CASE(S, T)                                              \
    case aril_cuda_type<S>::dtype: {                                               \
        aril_cuda_vector<S, 4> v;                                                  \
        for (int k = 0; k < 4; k++) v.at[k] = aril_cuda_from<S>(x[k]);             \
        *reinterpret_cast<aril_cuda_vector<S, 4> *>(static_cast<S *>(p) + at) = v; \
        break;                                                                     \
    }
#define ARIL_CUDA_EW_SINGLE(X, T) \
    X(float, T) X(aril_cuda_f16, T) X(aril_cuda_bf16, T) X(aril_cuda_bool, T)
#define ARIL_CUDA_EW_DOUBLE(X, T)   X(double, T) X(aril_cuda_bool, T)
#define ARIL_CUDA_EW_SIGNED(X, T)   X(int64_t, T) X(int32_t, T) X(aril_cuda_bool, T)
#define ARIL_CUDA_EW_UNSIGNED(X, T) X(uint64_t, T) X(aril_cuda_bool, T)
ARIL_CUDA_EW_VECTORS(float, ARIL_CUDA_EW_SINGLE)
ARIL_CUDA_EW_VECTORS(double, ARIL_CUDA_EW_DOUBLE)
ARIL_CUDA_EW_VECTORS(int64_t, ARIL_CUDA_EW_SIGNED)
ARIL_CUDA_EW_VECTORS(uint64_t, ARIL_CUDA_EW_UNSIGNED)

/* ---- the kernel ---- */

/* Kernels are few, since the compiler takes its time for each: one serves all formulas with that
 * many inputs, and switches between them by number, once for each chunk. Formulas that call large
 * functions have kernels of their own, so that others need few registers. */

/* Whether a formula, as text, calls only functions of a few instructions. */
static constexpr bool aril_cuda_ew_starts(const char *text, const char *with)
{
    while (*with && *text == *with) text++, with++;
    return !*with;
}
static constexpr bool aril_cuda_ew_is_quick(const char *text)
{
    const char *const small[] = { "k_abs",   "k_sign",     "k_maximum", "k_minimum", "k_isnan",
                                  "k_isinf", "k_isfinite", "k_square",  "k_sqrt",    "k_floor",
                                  "k_ceil",  "k_round",    "k_trunc",   "k_copysign" };
    for (; *text; text++) {
        bool known = false;
        if (aril_cuda_ew_starts(text, "aril_cuda_")) return false;
        if (!aril_cuda_ew_starts(text, "k_")) continue;
        for (const char *name : small) known = known || aril_cuda_ew_starts(text, name);
        if (!known) return false;
    }
    return true;
}

/* The inputs of a chunk. */
template <typename T, int N> struct aril_cuda_ew_inputs {
    T at[N][ARIL_CUDA_EW_CHUNK];
};

/* Defined in kernels.inc: a switch over the formulas. */
template <typename T, int N, bool Quick>
static __device__ __forceinline__ aril_cuda_ew_chunk<T> aril_cuda_ew_eval(
    int formula, const aril_cuda_ew_inputs<T, N> &v, const T *p, int &bad);

template <typename T, int N>
static __device__ __noinline__ aril_cuda_ew_chunk<T> aril_cuda_ew_call(int formula,
                                                                       aril_cuda_ew_inputs<T, N> v,
                                                                       const T *p, int *bad)
{
    int found = ARIL_CUDA_FINE;
    aril_cuda_ew_chunk<T> y = aril_cuda_ew_eval<T, N, false>(formula, v, p, found);
    if (found != ARIL_CUDA_FINE) *bad = found;
    return y;
}

template <typename T, int N, bool Quick>
static __global__ void __launch_bounds__(ARIL_CUDA_EW_THREADS)
    aril_cuda_ew_kernel(const __grid_constant__ aril_cuda_ew_args<T> a)
{
    typedef aril_cuda_ew_vectors<T> vectors;
    const int unroll = aril_cuda_ew_unroll<T>::value;
    const uint32_t wide = ARIL_CUDA_EW_CHUNK * ARIL_CUDA_EW_THREADS;
    const uint32_t step = a.vectors ? 1 : ARIL_CUDA_EW_THREADS;
    uint32_t first = blockIdx.x * (wide * unroll) + threadIdx.x * (a.vectors ? 4 : 1);
    aril_cuda_ew_inputs<T, N> v[unroll];
    int32_t out[unroll];
    int bad = ARIL_CUDA_FINE;

#pragma unroll
    for (int u = 0; u < unroll; u++) {
        uint32_t i = first + u * wide;
        if (i >= a.n) break;
        bool whole = a.vectors && i + 3 < a.n;
        int32_t at[1 + ARIL_CUDA_EW_INPUTS];
        if (whole) a.nest.offsets(i, at);
        out[u] = at[0];
#pragma unroll
        for (int j = 0; j < N; j++) {
            T *x = v[u].at[j];
            if (a.feed[1 + j] != ARIL_CUDA_EW_TENSOR) {
                for (int k = 0; k < ARIL_CUDA_EW_CHUNK; k++) x[k] = a.value[1 + j];
            } else if (whole) {
                vectors::load(a.base[1 + j], at[1 + j], a.dtype[1 + j], a.splat[1 + j], x);
            } else {
                aril_cuda_ew_chunk<T> c = aril_cuda_ew_gather(a, 1 + j, i, step);
                for (int k = 0; k < ARIL_CUDA_EW_CHUNK; k++) x[k] = c.at[k];
            }
        }
    }
#pragma unroll
    for (int u = 0; u < unroll; u++) {
        uint32_t i = first + u * wide;
        if (i >= a.n) break;
        aril_cuda_ew_chunk<T> y;
        if constexpr (Quick)
            y = aril_cuda_ew_eval<T, N, true>(a.formula, v[u], a.p, bad);
        else
            y = aril_cuda_ew_call<T, N>(a.formula, v[u], a.p, &bad);
        if (a.vectors && i + 3 < a.n)
            vectors::store(a.base[0], out[u], a.dtype[0], y.at);
        else
            aril_cuda_ew_scatter(a, i, step, y);
    }
    if (bad != ARIL_CUDA_FINE) aril_cuda_fail(a.report, (aril_cuda_bad)bad);
}

#endif
