/* Element types: one row per dtype, promotion, and the conversions that kernels stage through. */
#ifndef ARIL_CORE_DTYPE_H
#define ARIL_CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "aril/base.h"
#include "core/narrow.h"

typedef enum aril__kind {
    ARIL__KIND_BOOL,
    ARIL__KIND_UINT,
    ARIL__KIND_INT,
    ARIL__KIND_FLOAT
} aril__kind;

/* The types kernels compute in: every dtype that supports arithmetic is staged through one of
 * these. */
typedef enum aril__ctype {
    ARIL__C_F32, /* float */
    ARIL__C_F64, /* double */
    ARIL__C_I64, /* int64_t */
    ARIL__C_U64, /* uint64_t */
    ARIL__C_COUNT
} aril__ctype;

/* dst[i] = base[offset + i * stride] for i in [0, n): dst is contiguous, of the ctype; offset and
   stride are in elements (of a sub-byte dtype too), and the stride may be 0 or negative. base is
   aligned to its element, and dst must not overlap it. */
typedef void aril__load_fn(void *dst, const void *base, int64_t offset, int64_t stride, int64_t n);

/* base[offset + i * stride] = src[i]: the reverse. Elements of a sub-byte dtype share bytes, which
   are read and written back: threads that write to one tensor must split it at byte boundaries. */
typedef void aril__store_fn(void *base, int64_t offset, int64_t stride, const void *src, int64_t n);

/* One dtype. Loading into the row's own ctype is exact, and a store rounds once, so a cast from S
   to D is S.load[S.ctype] then D.store[S.ctype]. The rules of conversion:
   - float to integer truncates toward zero, NaN gives 0; values outside int64 saturate, then wraps
     to the narrower width (-1.0 -> u8 255). To u64, values that fit in uint64 are kept.
   - integer to integer wraps; I64 and U64 are the same modulo 2^64.
   - anything to bool is != 0, so NaN is true.
   - to a narrower float rounds to nearest, ties to even. Overflow does what PyTorch does: infinity
     where there is one (f16, bf16, f8e5m2), NaN in f8e4m3fnuz, f8e5m2fnuz and f8e8m0; f8e4m3fn
     saturates to +-448, infinity too. f4e2m1 saturates to +-6; it has no NaN, which becomes +6.
   - f8e8m0 holds a power of two: the sign is dropped and 1.5 * 2^k goes to 2^(k+1). */
typedef struct aril__dtype_row {
    const char *name;       /* "f32" */
    const char *torch_name; /* "float32": as printed */
    uint8_t bits;           /* 1-byte bool is 8; i4 is 4 */
    aril__kind kind;
    bool computes;
    aril__ctype ctype; /* f64: F64; other floats: F32; u64: U64; other integers, bool: I64 */
    aril__load_fn *load[ARIL__C_COUNT];
    aril__store_fn *store[ARIL__C_COUNT];
} aril__dtype_row;

enum { ARIL__DTYPE_COUNT = ARIL_U2 + 1 };

/* Indexed by aril_dtype. */
extern const aril__dtype_row aril__dtypes[ARIL__DTYPE_COUNT];

/* Bytes of n packed elements, rounded up for sub-byte dtypes. Computed in bytes, not bits, so that
   no n whose size in bytes fits in int64 overflows. */
static inline size_t aril__dtype_bytes(aril_dtype t, int64_t n)
{
    unsigned bits = aril__dtypes[t].bits;
    if (bits >= 8) return (size_t)n * (bits / 8);
    unsigned per_byte = 8 / bits;
    return (size_t)n / per_byte + ((size_t)n % per_byte != 0);
}

static inline bool aril__is_float(aril_dtype t)
{
    return aril__dtypes[t].kind == ARIL__KIND_FLOAT;
}

/* Signed or unsigned, not bool. */
static inline bool aril__is_int(aril_dtype t)
{
    return aril__dtypes[t].kind == ARIL__KIND_UINT || aril__dtypes[t].kind == ARIL__KIND_INT;
}

/* The promoted dtype of a and b, both dtypes that kernels compute in: PyTorch's table, and where
   PyTorch refuses (u16, u32, u64 with another integer) the smallest integer type that holds both;
   u64 with a signed integer gives i64, modulo 2^64. */
aril_dtype aril__promote(aril_dtype a, aril_dtype b);

/* The 16-bit conversions round to nearest even and keep NaN a quiet NaN. Those of f16 use masks,
   and do their floating-point arithmetic for every input: gcc would turn conditional expressions
   around it into branches, and loops would not vectorize. */
static inline uint16_t aril__f32_to_bf16(float x)
{
    uint32_t u = aril__f32_bits(x);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float aril__bf16_to_f32(uint16_t h)
{
    return aril__f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t aril__f32_to_f16(float x)
{
    uint32_t u = aril__f32_bits(x), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
    uint32_t small = aril__mask_less(a, 0x38800000u);  /* below 2^-14 */
    uint32_t finite = aril__mask_less(a, 0x477ff000u); /* 65520: halfway beyond the largest */
    uint32_t nan = aril__mask_less(0x7f800000u, a);
    /* The last bit of 0.5f is 2^-24, like that of a subnormal f16: the addition rounds for us. */
    uint32_t half = small & 0x3f000000u;
    uint32_t v = aril__f32_bits(aril__f32_from_bits(a) + aril__f32_from_bits(half));
    uint32_t normal = (v - (112u << 23) + 0xfffu + ((v >> 13) & 1u)) >> 13;
    uint32_t r = (small & (v - half)) | (~small & normal);
    uint32_t special = 0x7c00u | (nan & (0x200u | ((v >> 13) & 0x3ffu)));
    return (uint16_t)((finite & r) | (~finite & special) | sign);
}

#endif
