/* Conversions from and to dtypes that only store: floats of 8 and 4 bits, integers of 4 and 2. The
 * values are those of core/dtype_convert.c: both use core/narrow.h. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
#include "backend/cuda/shape/shape.cuh"
#include "core/narrow.h"

enum { THREADS = 256 };

/* Bits of an element of less than a byte; 0 for others. */
static __host__ __device__ int packed_bits(int dtype)
{
    return dtype < ARIL_F4E2M1 ? 0 : dtype < ARIL_I2 ? 4 : 2;
}

/* ---- reading ---- */

/* Element `at` of an array whose elements share bytes, the first in the low bits. */
static __device__ __forceinline__ int32_t load_bits(const void *base, int64_t at, int bits)
{
    int each = 8 / bits;
    int64_t byte = at >= 0 ? at / each : -((-at + each - 1) / each);
    return static_cast<const uint8_t *>(base)[byte] >> (int)(at - byte * each) * bits &
           ((1 << bits) - 1);
}

static __device__ __forceinline__ float e2m1_to_f32(uint32_t c)
{
    return aril__with_sign(aril__narrow_to_f32(c & 7, 1, 1), (c & 8) << 28, 0);
}

/* An element of any dtype in the compute type of its kind. */
template <typename C>
static __device__ __forceinline__ C load(const void *base, int64_t at, int dtype)
{
    if (dtype <= ARIL_F64) return aril_cuda_load<C>(base, at, dtype);
    int bits = packed_bits(dtype);
    int32_t code = bits ? load_bits(base, at, bits) : static_cast<const uint8_t *>(base)[at];
    uint8_t byte = (uint8_t)code;
    switch (dtype) {
    case ARIL_F8E4M3FN: return aril_cuda_as<C>::of(aril__e4m3fn_to_f32(byte));
    case ARIL_F8E4M3FNUZ: return aril_cuda_as<C>::of(aril__e4m3fnuz_to_f32(byte));
    case ARIL_F8E5M2: return aril_cuda_as<C>::of(aril__e5m2_to_f32(byte));
    case ARIL_F8E5M2FNUZ: return aril_cuda_as<C>::of(aril__e5m2fnuz_to_f32(byte));
    case ARIL_F8E8M0: return aril_cuda_as<C>::of(aril__e8m0_to_f32(byte));
    case ARIL_F4E2M1: return aril_cuda_as<C>::of(e2m1_to_f32((uint32_t)code));
    case ARIL_I4: return aril_cuda_as<C>::of((code ^ 8) - 8);
    case ARIL_I2: return aril_cuda_as<C>::of((code ^ 2) - 2);
    default: return aril_cuda_as<C>::of(code);
    }
}

/* ---- writing ---- */

/* The value as a double from which a narrower float is rounded as if from the value itself. A NaN
 * keeps its sign, which the conversion of the GPU may drop. */
static __device__ __forceinline__ double wide(float x)
{
    if (x == x) return (double)x;
    return __longlong_as_double((int64_t)(aril__f32_bits(x) & 0x80000000u) << 32 |
                                0x7ff8000000000000ll);
}
template <typename C> static __device__ __forceinline__ double wide(C x)
{
    return aril_cuda_wide(x);
}

/* The code of a value in a dtype that only stores. */
template <typename C> static __device__ __forceinline__ uint32_t code_of(C x, int dtype)
{
    switch (dtype) {
    case ARIL_F8E4M3FN: return aril__f64_to_e4m3fn(wide(x));
    case ARIL_F8E4M3FNUZ: return aril__f64_to_e4m3fnuz(wide(x));
    case ARIL_F8E5M2: return aril__f64_to_e5m2(wide(x));
    case ARIL_F8E5M2FNUZ: return aril__f64_to_e5m2fnuz(wide(x));
    case ARIL_F8E8M0: return aril__f64_to_e8m0(wide(x));
    case ARIL_F4E2M1: return aril__f64_to_e2m1(wide(x));
    default: return (uint32_t)(uint64_t)aril_cuda_as<int64_t>::of(x);
    }
}

/* ---- the kernel ---- */

/* Operand 0 is the result. A thread writes whole bytes: `each` elements, of which the result has
 * them one after the other if that is more than one. */
struct job {
    uint32_t n;
    int from, to, each;
    aril_cuda_nest<2> nest;
    const void *in;
    void *out;
};

template <typename C>
static __global__ void __launch_bounds__(THREADS) convert(const __grid_constant__ job j)
{
    uint32_t unit = blockIdx.x * THREADS + threadIdx.x, first = unit * j.each, byte = 0;
    if (first >= j.n) return;
    for (int k = 0; k < j.each; k++) {
        int32_t at[2];
        if (first + k >= j.n) break;
        j.nest.offsets(first + k, at);
        C x = load<C>(j.in, at[1], j.from);
        if (j.to <= ARIL_F64)
            aril_cuda_store<C>(j.out, at[0], j.to, x);
        else if (j.each == 1)
            static_cast<uint8_t *>(j.out)[at[0]] = (uint8_t)code_of(x, j.to);
        else
            byte |= (code_of(x, j.to) & ((1u << 8 / j.each) - 1)) << k * (8 / j.each);
    }
    if (j.each > 1) static_cast<uint8_t *>(j.out)[unit] = (uint8_t)byte;
}

static aril_cuda_loops loops_of(const aril_tensor *out, const aril_tensor *in)
{
    aril_cuda_loops l = aril_cuda_loops_of(out);
    aril_cuda_loops_add(&l, out);
    aril_cuda_loops_add(&l, in);
    aril_cuda_loops_merge(&l, 0);
    return l;
}

aril_status aril_cuda_narrow_run(aril_run *r)
{
    const aril_host *h = aril_cuda_host;
    const aril_tensor *in = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    int64_t n = h->numel(out);
    if (n == 0) return ARIL_OK;
    aril_cuda_loops l = loops_of(out, in);
    job j = {
        (uint32_t)n,        (int)h->dtype(in),  (int)h->dtype(out), 1, aril_cuda_nest_of<2>(l),
        aril_cuda_data(in), aril_cuda_data(out)
    };
    int bits = packed_bits(j.to);
    if (bits) j.each = 8 / bits;
    int64_t units = (n + j.each - 1) / j.each;
    unsigned blocks = (unsigned)((units + THREADS - 1) / THREADS);
    bool real = aril_cuda_is_float(j.from) || j.from == ARIL_F4E2M1;
    int type = j.from <= ARIL_F64 ? j.from : real ? (int)ARIL_F32 : (int)ARIL_I64;
    ARIL_CUDA_SWITCH_COMPUTE(type, C, (convert<C><<<blocks, THREADS, 0, aril_cuda_stream(r)>>>(j)));
    return aril_cuda_launched(r);
}

/* Why such a conversion cannot be run; NULL if it can. */
const char *aril_cuda_narrow_declines(const aril_tensor *out, const aril_tensor *in)
{
    aril_cuda_loops l = loops_of(out, in);
    bool packed = packed_bits(aril_cuda_host->dtype(out)) != 0;
    if (aril_cuda_loops_numel(&l) == 0) return nullptr;
    if (aril_cuda_loops_too_large(&l) >= 0) return "too large";
    return packed && !aril_cuda_loops_linear(&l, 0) ? "strides of elements that share bytes"
                                                    : nullptr;
}
