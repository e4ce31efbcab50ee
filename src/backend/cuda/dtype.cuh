/* Element types on the device: storage types, compute types, and conversions between them, which
 * follow core/dtype_convert.c (its header, core/dtype.h, states the rules).
 *
 * A kernel computes in one of four types C: float (f16, bf16, f32), double (f64), uint64_t (u64),
 * int64_t (other integers and bool). It reads and writes elements
 *   - of a type known when it is compiled:  C x = aril_cuda_to<C>(p[i]);
 *                                           p[i] = aril_cuda_from<S>(x);
 *   - of a dtype known when it runs:        C x = aril_cuda_load<C>(p, i, dtype);
 *                                           aril_cuda_store<C>(p, i, dtype, x); */
#ifndef ARIL_CUDA_DTYPE_CUH
#define ARIL_CUDA_DTYPE_CUH

#include "aril/base.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#define ARIL_CUDA_FN static __host__ __device__ __forceinline__

/* Storage types. bool is a byte that is 0 or 1, and has a type of its own since anything becomes
 * bool by != 0. */
struct aril_cuda_bool {
    uint8_t byte;
};
typedef __half aril_cuda_f16;
typedef __nv_bfloat16 aril_cuda_bf16;

#include "backend/cuda/convert.cuh"

/* ---- A dtype known when the kernel runs, or on the host ---- */

/* Runs a statement with the name S defined as the storage type of a dtype:
 *     ARIL_CUDA_SWITCH(dtype, S, run_as<S>(...));
 * ..._FLOAT covers f16, bf16, f32, f64; ..._SINGLE f16, bf16, f32; ..._SIZE unsigned integers of
 * the element's size, for ops that only move elements. Other dtypes do nothing. */
#define ARIL_CUDA_CASE(tag, type, S, ...) \
    case tag: {                           \
        typedef type S;                   \
        __VA_ARGS__;                      \
        break;                            \
    }
#define ARIL_CUDA_CASES_SINGLE(S, ...)                        \
    ARIL_CUDA_CASE(ARIL_F16, aril_cuda_f16, S, __VA_ARGS__)   \
    ARIL_CUDA_CASE(ARIL_BF16, aril_cuda_bf16, S, __VA_ARGS__) \
    ARIL_CUDA_CASE(ARIL_F32, float, S, __VA_ARGS__)
#define ARIL_CUDA_CASES_FLOAT(S, ...)      \
    ARIL_CUDA_CASES_SINGLE(S, __VA_ARGS__) \
    ARIL_CUDA_CASE(ARIL_F64, double, S, __VA_ARGS__)
#define ARIL_CUDA_CASES_INT(S, ...)                    \
    ARIL_CUDA_CASE(ARIL_U8, uint8_t, S, __VA_ARGS__)   \
    ARIL_CUDA_CASE(ARIL_U16, uint16_t, S, __VA_ARGS__) \
    ARIL_CUDA_CASE(ARIL_U32, uint32_t, S, __VA_ARGS__) \
    ARIL_CUDA_CASE(ARIL_U64, uint64_t, S, __VA_ARGS__) \
    ARIL_CUDA_CASE(ARIL_I8, int8_t, S, __VA_ARGS__)    \
    ARIL_CUDA_CASE(ARIL_I16, int16_t, S, __VA_ARGS__)  \
    ARIL_CUDA_CASE(ARIL_I32, int32_t, S, __VA_ARGS__)  \
    ARIL_CUDA_CASE(ARIL_I64, int64_t, S, __VA_ARGS__)
#define ARIL_CUDA_SWITCH_BODY(dtype, cases) \
    do {                                    \
        switch (dtype) {                    \
            cases default : break;          \
        }                                   \
    } while (0)
#define ARIL_CUDA_SWITCH(dtype, S, ...)                                                    \
    ARIL_CUDA_SWITCH_BODY(dtype, ARIL_CUDA_CASE(ARIL_BOOL, aril_cuda_bool, S, __VA_ARGS__) \
                                     ARIL_CUDA_CASES_INT(S, __VA_ARGS__)                   \
                                         ARIL_CUDA_CASES_FLOAT(S, __VA_ARGS__))
#define ARIL_CUDA_SWITCH_FLOAT(dtype, S, ...) \
    ARIL_CUDA_SWITCH_BODY(dtype, ARIL_CUDA_CASES_FLOAT(S, __VA_ARGS__))
#define ARIL_CUDA_SWITCH_SINGLE(dtype, S, ...) \
    ARIL_CUDA_SWITCH_BODY(dtype, ARIL_CUDA_CASES_SINGLE(S, __VA_ARGS__))
#define ARIL_CUDA_SWITCH_SIZE(bytes, S, ...)                                         \
    ARIL_CUDA_SWITCH_BODY(bytes, ARIL_CUDA_CASE(1, uint8_t, S, __VA_ARGS__)          \
                                     ARIL_CUDA_CASE(2, uint16_t, S, __VA_ARGS__)     \
                                         ARIL_CUDA_CASE(4, uint32_t, S, __VA_ARGS__) \
                                             ARIL_CUDA_CASE(8, uint64_t, S, __VA_ARGS__))

/* The compute type of a dtype: runs a statement with C defined as float, double, int64_t or
 * uint64_t. */
#define ARIL_CUDA_SWITCH_COMPUTE(dtype, C, ...)                \
    do {                                                       \
        switch (dtype) {                                       \
        case ARIL_F16:                                         \
        case ARIL_BF16:                                        \
            ARIL_CUDA_CASE(ARIL_F32, float, C, __VA_ARGS__)    \
            ARIL_CUDA_CASE(ARIL_F64, double, C, __VA_ARGS__)   \
            ARIL_CUDA_CASE(ARIL_U64, uint64_t, C, __VA_ARGS__) \
        default: {                                             \
            typedef int64_t C;                                 \
            __VA_ARGS__;                                       \
        }                                                      \
        }                                                      \
    } while (0)

/* Bytes of an element of a dtype that computes or is an f8 form; 0 for sub-byte dtypes. */
ARIL_CUDA_FN int aril_cuda_size(int dtype)
{
    switch (dtype) {
    case ARIL_U16:
    case ARIL_I16:
    case ARIL_F16:
    case ARIL_BF16: return 2;
    case ARIL_U32:
    case ARIL_I32:
    case ARIL_F32: return 4;
    case ARIL_U64:
    case ARIL_I64:
    case ARIL_F64: return 8;
    default: return dtype < ARIL_F4E2M1 ? 1 : 0;
    }
}
ARIL_CUDA_FN bool aril_cuda_is_float(int dtype)
{
    return dtype >= ARIL_F16 && dtype <= ARIL_F8E8M0;
}

/* Element i of an array of any dtype that computes. */
template <typename C> ARIL_CUDA_FN C aril_cuda_load(const void *base, int64_t i, int dtype)
{
    C x = 0;
    ARIL_CUDA_SWITCH(dtype, S, x = aril_cuda_to<C>(static_cast<const S *>(base)[i]));
    return x;
}
template <typename C> ARIL_CUDA_FN void aril_cuda_store(void *base, int64_t i, int dtype, C x)
{
    ARIL_CUDA_SWITCH(dtype, S, static_cast<S *>(base)[i] = aril_cuda_from<S>(x));
}

/* An element of a dtype known when the kernel runs, loaded but not yet converted, since conversions
 * wait for their load: so that several loads are in flight. In float, of f16, bf16 or f32. */
template <typename C> struct aril_cuda_loaded {
    uint64_t bits;
    int dtype;

    static __device__ __forceinline__ aril_cuda_loaded of(const void *base, int64_t i, int dtype)
    {
        aril_cuda_loaded v = { 0, dtype };
        ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(dtype), S, v.bits = static_cast<const S *>(base)[i]);
        return v;
    }
    __device__ __forceinline__ C value() const
    {
        C x = 0;
        ARIL_CUDA_SWITCH(dtype, S, {
            S e;
            memcpy(&e, &bits, sizeof(e));
            x = aril_cuda_to<C>(e);
        });
        return x;
    }
};
template <> struct aril_cuda_loaded<float> {
    uint32_t bits;
    int dtype;

    static __device__ __forceinline__ aril_cuda_loaded of(const void *base, int64_t i, int dtype)
    {
        if (dtype == ARIL_F32) return { static_cast<const uint32_t *>(base)[i], dtype };
        return { static_cast<const uint16_t *>(base)[i], dtype };
    }
    __device__ __forceinline__ float value() const
    {
        if (dtype == ARIL_F32) return __uint_as_float(bits);
        if (dtype == ARIL_BF16) return __uint_as_float(bits << 16);
        return __half2float(__ushort_as_half((unsigned short)bits));
    }
};
template <> struct aril_cuda_loaded<double> {
    double x;

    static __device__ __forceinline__ aril_cuda_loaded of(const void *base, int64_t i, int)
    {
        return { static_cast<const double *>(base)[i] };
    }
    __device__ __forceinline__ double value() const
    {
        return x;
    }
};

/* ---- Vectors of N elements, read and written by one instruction up to 16 bytes ---- */

template <typename S, int N> struct alignas(sizeof(S) * N) aril_cuda_vector {
    S at[N];
};

/* N elements of f16, bf16 or f32 in whole registers, converted in pairs: what is loaded well before
 * its use then takes half the registers. */
template <typename S, int N> struct alignas(sizeof(S) * N) aril_cuda_packed {
    static_assert(sizeof(S) == 4 || (sizeof(S) == 2 && N % 2 == 0), "whole registers");
    uint32_t word[sizeof(S) * N / 4];

    __device__ __forceinline__ float get(int i) const
    {
        if constexpr (sizeof(S) == 4) {
            return __uint_as_float(word[i]);
        } else if constexpr (aril_cuda_type<S>::dtype == ARIL_BF16) {
            return __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
        } else {
            __half2 pair;
            memcpy(&pair, &word[i / 2], 4);
            return i % 2 ? __high2float(pair) : __low2float(pair);
        }
    }
    __device__ __forceinline__ void put(const float (&x)[N])
    {
#pragma unroll
        for (int i = 0; i < (int)(sizeof(S) * N / 4); i++) {
            if constexpr (sizeof(S) == 4) {
                word[i] = __float_as_uint(x[i]);
            } else if constexpr (aril_cuda_type<S>::dtype == ARIL_BF16) {
                __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
                memcpy(&word[i], &pair, 4);
            } else {
                __half2 pair = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
                memcpy(&word[i], &pair, 4);
            }
        }
    }
};

#endif
