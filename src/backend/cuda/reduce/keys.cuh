/* Elements as unsigned integers of the same order, with their positions: what sorts compare. NaN is
 * larger than all numbers and equal to NaN; zeros are equal whatever their sign. */
#ifndef ARIL_CUDA_REDUCE_KEYS_CUH
#define ARIL_CUDA_REDUCE_KEYS_CUH

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/reduce/layout.cuh"
#include "backend/cuda/reduce/sorted.cuh"

/* The key of NaN, if descending is false. */
#define ARIL_CUDA_NAN_KEY32 0xffffffffu
#define ARIL_CUDA_NAN_KEY64 0xffffffffffffffffull

static __device__ __forceinline__ uint32_t aril_cuda_key32(const void *x, int64_t at, int dtype)
{
    if (aril_cuda_is_float(dtype)) {
        float v = aril_cuda_load<float>(x, at, dtype);
        if (v != v) return ARIL_CUDA_NAN_KEY32;
        uint32_t bits = __float_as_uint(v + 0.0f); /* -0 becomes 0 */
        return bits >> 31 ? ~bits : bits | 0x80000000u;
    }
    uint32_t bits = (uint32_t)aril_cuda_load<int64_t>(x, at, dtype);
    return dtype == ARIL_U32 ? bits : bits ^ 0x80000000u;
}

static __device__ __forceinline__ uint64_t aril_cuda_key64(const void *x, int64_t at, int dtype)
{
    const uint64_t sign = 0x8000000000000000ull;
    if (aril_cuda_is_float(dtype)) {
        double v = aril_cuda_load<double>(x, at, dtype);
        if (v != v) return ARIL_CUDA_NAN_KEY64;
        uint64_t bits = (uint64_t)__double_as_longlong(v + 0.0);
        return bits >> 63 ? ~bits : bits | sign;
    }
    if (dtype == ARIL_U64) return aril_cuda_load<uint64_t>(x, at, dtype);
    return (uint64_t)aril_cuda_load<int64_t>(x, at, dtype) ^ sign;
}

/* Lines of a tensor. */
struct aril_cuda_key_lines {
    const void *x;
    int dtype;
    aril_cuda_axes lines; /* operand 0: x */
    int64_t step;         /* between elements of a line */
    bool down;

    __device__ __forceinline__ int64_t at(int64_t line, int64_t k) const
    {
        return lines.offset(line) + k * step;
    }
};

/* Keys of 32 bits and positions of 32 bits, in one integer. same: equal values, for keys that are
 * not descending; NaN equals nothing, not even NaN. */
struct aril_cuda_short_keys {
    typedef uint64_t E;
    aril_cuda_key_lines l;

    __device__ __forceinline__ E load(int64_t line, int64_t k) const
    {
        uint32_t key = aril_cuda_key32(l.x, l.at(line, k), l.dtype);
        return (E)(l.down ? ~key : key) << 32 | (uint32_t)k;
    }
    static __device__ __forceinline__ E pad()
    {
        return ~(E)0;
    }
    static __device__ __forceinline__ bool before(E a, E b)
    {
        return a < b;
    }
    static __device__ __forceinline__ int64_t position(E e)
    {
        return (int64_t)(uint32_t)e;
    }
    static __device__ __forceinline__ uint64_t key(E e)
    {
        return e >> 32;
    }
    static __device__ __forceinline__ uint64_t nan()
    {
        return ARIL_CUDA_NAN_KEY32;
    }
    __device__ __forceinline__ bool same(E a, E b) const
    {
        return key(a) == key(b) && !(aril_cuda_is_float(l.dtype) && key(a) == nan());
    }
};

/* Keys of 64 bits. */
struct alignas(16) aril_cuda_long_key {
    uint64_t key, position;
};
struct aril_cuda_long_keys {
    typedef aril_cuda_long_key E;
    aril_cuda_key_lines l;

    __device__ __forceinline__ E load(int64_t line, int64_t k) const
    {
        uint64_t key = aril_cuda_key64(l.x, l.at(line, k), l.dtype);
        return { l.down ? ~key : key, (uint64_t)k };
    }
    static __device__ __forceinline__ E pad()
    {
        return { ~0ull, ~0ull };
    }
    static __device__ __forceinline__ bool before(const E &a, const E &b)
    {
        return a.key < b.key || (a.key == b.key && a.position < b.position);
    }
    static __device__ __forceinline__ int64_t position(const E &e)
    {
        return (int64_t)e.position;
    }
    static __device__ __forceinline__ uint64_t key(const E &e)
    {
        return e.key;
    }
    static __device__ __forceinline__ uint64_t nan()
    {
        return ARIL_CUDA_NAN_KEY64;
    }
    __device__ __forceinline__ bool same(const E &a, const E &b) const
    {
        return a.key == b.key && !(aril_cuda_is_float(l.dtype) && a.key == nan());
    }
};

/* Whether short keys do for lines of n elements. */
static inline bool aril_cuda_keys_short(int dtype, int64_t n)
{
    return aril_cuda_size(dtype) <= 4 && n <= INT32_MAX;
}

/* The first position in a sorted line whose key is not below `key`. */
template <typename Keys>
static __device__ __forceinline__ int64_t aril_cuda_lower_bound(const typename Keys::E *line,
                                                                int64_t n, uint64_t key)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (Keys::key(line[middle]) < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
