/* The kernel of an elementwise formula in one compute type.
 *
 * A block handles a tile of consecutive elements, a thread one chunk of them, all of which it reads
 * before it converts the first. If the innermost dimension allows it, the elements of a chunk are
 * neighbours, read and written by 16 bytes. A chunk of 32 bytes is spread: its halves are in the
 * two halves of the tile, so that threads next to each other access 16 bytes next to each other.
 * Otherwise, and at the end, neighbouring threads handle neighbouring elements. */
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
    const int size = aril_cuda_ew_chunk<T>::size;
    aril_cuda_ew_chunk<T> x;
    int32_t at[size];
#pragma unroll
    for (int k = 0; k < size; k++) {
        uint32_t i = first + k * step;
        at[k] = aril_cuda_ew_offset(a, j, i < a.n ? i : first);
    }
    ARIL_CUDA_SWITCH(a.dtype[j], S, {
        const S *p = static_cast<const S *>(a.base[j]);
        for (int k = 0; k < size; k++) x.at[k] = aril_cuda_to<T>(p[at[k]]);
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
        for (int k = 0; k < aril_cuda_ew_chunk<T>::size; k++) {
            uint32_t i = first + k * step;
            if (i < a.n) p[aril_cuda_ew_offset(a, 0, i)] = aril_cuda_from<S>(x.at[k]);
        }
    });
}

/* ---- vectors ---- */

/* A chunk as it is in memory, of up to 32 bytes; or one element. */
struct aril_cuda_ew_raw {
    uint4 half[2];
};

/* `gap`: bytes from the first half of a chunk of 32 bytes to the second. */
static __device__ __forceinline__ void aril_cuda_ew_read(aril_cuda_ew_raw &v, const char *p,
                                                         int bytes, int64_t gap)
{
    if (bytes >= 16) {
        v.half[0] = *reinterpret_cast<const uint4 *>(p);
        if (bytes == 32) v.half[1] = *reinterpret_cast<const uint4 *>(p + gap);
    } else if (bytes == 8) {
        uint2 w = *reinterpret_cast<const uint2 *>(p);
        v.half[0].x = w.x;
        v.half[0].y = w.y;
    } else if (bytes == 4) {
        v.half[0].x = *reinterpret_cast<const uint32_t *>(p);
    } else if (bytes == 2) {
        v.half[0].x = *reinterpret_cast<const uint16_t *>(p);
    } else {
        v.half[0].x = *reinterpret_cast<const uint8_t *>(p);
    }
}
static __device__ __forceinline__ void aril_cuda_ew_write(const aril_cuda_ew_raw &v, char *p,
                                                          int bytes, int64_t gap)
{
    if (bytes >= 16) {
        *reinterpret_cast<uint4 *>(p) = v.half[0];
        if (bytes == 32) *reinterpret_cast<uint4 *>(p + gap) = v.half[1];
    } else if (bytes == 8) {
        *reinterpret_cast<uint2 *>(p) = make_uint2(v.half[0].x, v.half[0].y);
    } else {
        *reinterpret_cast<uint32_t *>(p) = v.half[0].x;
    }
}

/* Converts chunks, for the dtypes of aril_cuda_ew_native. */
template <typename T> struct aril_cuda_ew_vectors;
#define ARIL_CUDA_EW_VECTORS(T, ...)                                                              \
    template <> struct aril_cuda_ew_vectors<T> {                                                  \
        enum { size = aril_cuda_ew_chunk<T>::size };                                              \
        static __device__ __forceinline__ void unpack(const aril_cuda_ew_raw &raw, int dtype,     \
                                                      bool splat, T *x)                           \
        {                                                                                         \
            switch (dtype) {                                                                      \
                __VA_ARGS__(ARIL_CUDA_EW_UNPACK_CASE, T)                                          \
            }                                                                                     \
        }                                                                                         \
        static __device__ __forceinline__ void pack(aril_cuda_ew_raw &raw, int dtype, const T *x) \
        {                                                                                         \
            switch (dtype) {                                                                      \
                __VA_ARGS__(ARIL_CUDA_EW_PACK_CASE, T)                                            \
            }                                                                                     \
        }                                                                                         \
    };
#define ARIL_CUDA_EW_UNPACK_CASE(S, T)                                                    \
    case aril_cuda_type<S>::dtype: {                                                      \
        aril_cuda_vector<S, size> v;                                                      \
        memcpy(&v, &raw, sizeof(v));                                                      \
        for (int k = 0; k < size; k++) x[k] = aril_cuda_to<T>(splat ? v.at[0] : v.at[k]); \
        break;                                                                            \
    }
#define ARIL_CUDA_EW_PACK_CASE(S, T)                                      \
    case aril_cuda_type<S>::dtype: {                                      \
        aril_cuda_vector<S, size> v;                                      \
        for (int k = 0; k < size; k++) v.at[k] = aril_cuda_from<S>(x[k]); \
        memcpy(&raw, &v, sizeof(v));                                      \
        break;                                                            \
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
    T at[N][aril_cuda_ew_chunk<T>::size];
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
static __global__ void __launch_bounds__(ARIL_CUDA_EW_THREADS,
                                         Quick && sizeof(T) == 4 ? (N <= 2 ? 8 : 6) : 1)
    aril_cuda_ew_kernel(const __grid_constant__ aril_cuda_ew_args<T> a)
{
    typedef aril_cuda_ew_vectors<T> vectors;
    const int size = aril_cuda_ew_chunk<T>::size;
    const uint32_t tile = size * ARIL_CUDA_EW_THREADS, start = blockIdx.x * tile;
    const bool spread = a.spread && start + tile <= a.n;
    const uint32_t i = start + threadIdx.x * (spread ? size / 2 : a.vectors ? size : 1);
    if (i >= a.n) return;
    const bool whole = spread || (a.vectors && i + (size - 1) < a.n);
    const uint32_t step = a.vectors ? 1 : ARIL_CUDA_EW_THREADS;
    aril_cuda_ew_raw raw[N];
    aril_cuda_ew_inputs<T, N> v;
    aril_cuda_ew_chunk<T> y;
    int32_t at[1 + ARIL_CUDA_EW_INPUTS], second[1 + ARIL_CUDA_EW_INPUTS];
    int bad = ARIL_CUDA_FINE;

    if (whole) {
        a.nest.offsets(i, at);
        if (spread) a.nest.offsets(i + tile / 2, second);
#pragma unroll
        for (int j = 0; j < N; j++)
            if (a.feed[1 + j] == ARIL_CUDA_EW_TENSOR)
                aril_cuda_ew_read(
                    raw[j],
                    static_cast<const char *>(a.base[1 + j]) + (int64_t)at[1 + j] * a.size[1 + j],
                    a.bytes[1 + j],
                    spread ? (int64_t)(second[1 + j] - at[1 + j]) * a.size[1 + j] : 16);
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        T *x = v.at[j];
        if (a.feed[1 + j] != ARIL_CUDA_EW_TENSOR) {
            for (int k = 0; k < size; k++) x[k] = a.value[1 + j];
        } else if (whole) {
            vectors::unpack(raw[j], a.dtype[1 + j], a.splat[1 + j], x);
        } else {
            aril_cuda_ew_chunk<T> c = aril_cuda_ew_gather(a, 1 + j, i, step);
            for (int k = 0; k < size; k++) x[k] = c.at[k];
        }
    }
    if constexpr (Quick)
        y = aril_cuda_ew_eval<T, N, true>(a.formula, v, a.p, bad);
    else
        y = aril_cuda_ew_call<T, N>(a.formula, v, a.p, &bad);
    if (whole) {
        aril_cuda_ew_raw to;
        vectors::pack(to, a.dtype[0], y.at);
        aril_cuda_ew_write(to, static_cast<char *>(a.base[0]) + (int64_t)at[0] * a.size[0],
                           a.bytes[0], spread ? (int64_t)(second[0] - at[0]) * a.size[0] : 16);
    } else {
        aril_cuda_ew_scatter(a, i, step, y);
    }
    if (bad != ARIL_CUDA_FINE) aril_cuda_fail(a.report, (aril_cuda_bad)bad);
}

#endif
