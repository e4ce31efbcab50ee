/* The beginning of every kernel that is compiled at run time. It includes no headers: NVRTC knows
 * the functions of CUDA's mathematical library, and all else is here or in the texts that follow
 * (source.c lists them). */

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

#define INT64_MAX   0x7fffffffffffffffLL
#define INT64_MIN   (-INT64_MAX - 1)
#define UINT64_MAX  0xffffffffffffffffULL
#define FLT_MAX     0x1.fffffep+127f
#define DBL_MAX     0x1.fffffffffffffp+1023
#define DBL_EPSILON 0x1p-52
#undef INFINITY
#undef NAN
#define INFINITY __int_as_float(0x7f800000)
#define NAN      __int_as_float(0x7fffffff)

enum aril_cuda_bad { ARIL_CUDA_BAD_DIVISION, ARIL_CUDA_BAD_POWER };

#define ARIL_CUDA_FN static __device__ __forceinline__

/* ---- f16 and bf16 ---- */

struct aril_cuda_bool {
    uint8_t byte;
};
struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
typedef __half aril_cuda_f16;
typedef __nv_bfloat16 aril_cuda_bf16;

ARIL_CUDA_FN float __half2float(__half x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
ARIL_CUDA_FN __half __float2half_rn(float x)
{
    __half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
ARIL_CUDA_FN __half __double2half(double x)
{
    __half y;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
    return y;
}
ARIL_CUDA_FN float __bfloat162float(__nv_bfloat16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
/* Rounds to nearest even; NaN becomes 0x7fff, as by the instruction. */
ARIL_CUDA_FN __nv_bfloat16 __float2bfloat16_rn(float x)
{
    __nv_bfloat16 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    uint32_t bits = __float_as_uint(x);
    y.bits = x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    return y;
}
/* Through f32, rounded to odd, so that the second rounding decides alone. */
ARIL_CUDA_FN __nv_bfloat16 __double2bfloat16(double x)
{
    float y = __double2float_rz(x);
    if (x == x && (double)y != x) y = __uint_as_float(__float_as_uint(y) | 1);
    return __float2bfloat16_rn(y);
}
