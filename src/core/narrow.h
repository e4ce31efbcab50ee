/* Codes of floats narrower than 32 bits, and their values: for the CPU, and for kernels of CUDA. */
#ifndef ARIL_CORE_NARROW_H
#define ARIL_CORE_NARROW_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define ARIL__NARROW static __host__ __device__ __forceinline__
#else
#define ARIL__NARROW static inline
#endif

ARIL__NARROW uint32_t aril__f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

ARIL__NARROW float aril__f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* All ones where a < b, else 0; both below 2^31. */
ARIL__NARROW uint32_t aril__mask_less(uint32_t a, uint32_t b)
{
    return 0u - ((a - b) >> 31);
}

ARIL__NARROW uint64_t aril__f64_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* The value of a sign-less code (exponent and mantissa) of a narrow float, special codes aside:
   those give finite values. */
ARIL__NARROW float aril__narrow_to_f32(uint32_t code, int mantissa_bits, int bias)
{
    /* A subnormal gets the exponent of the smallest normal, whose hidden bit is then subtracted. No
       intermediate value is a subnormal float, so flush-to-zero is harmless. */
    uint32_t small = aril__mask_less(code, 1u << mantissa_bits);
    uint32_t base = ((uint32_t)(127 - bias) << 23) + (small & 1u << 23);
    uint32_t hidden = small & base;
    return aril__f32_from_bits((code << (23 - mantissa_bits)) + base) - aril__f32_from_bits(hidden);
}

ARIL__NARROW float aril__f16_to_f32(uint16_t h)
{
    uint32_t a = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t r = aril__f32_bits(aril__narrow_to_f32(a, 10, 15));
    r += aril__mask_less(0x7bffu, a) & 112u << 23; /* the exponent of inf and NaN */
    r |= aril__mask_less(0x7c00u, a) & 0x400000u;
    return aril__f32_from_bits(r | sign);
}

/* ---- Narrow floats: codes to f32 ---- */

/* The NaN of a format is or-ed in by a mask, for the reason given in core/dtype.h. */
ARIL__NARROW float aril__with_sign(float magnitude, uint32_t sign_bit31, uint32_t nan_mask)
{
    return aril__f32_from_bits(aril__f32_bits(magnitude) | sign_bit31 | (nan_mask & 0x7fc00000u));
}

ARIL__NARROW float aril__e4m3fn_to_f32(uint8_t c)
{
    uint32_t a = c & 0x7fu, nan = aril__mask_less(0x7e, a);
    return aril__with_sign(aril__narrow_to_f32(a, 3, 7), (uint32_t)(c & 0x80u) << 24, nan);
}

ARIL__NARROW float aril__e5m2_to_f32(uint8_t c)
{
    return aril__f16_to_f32((uint16_t)(c << 8)); /* f8e5m2 is the upper half of an f16 */
}

ARIL__NARROW float aril__e4m3fnuz_to_f32(uint8_t c)
{
    uint32_t nan = aril__mask_less(c ^ 0x80u, 1); /* the code that -0 would have */
    return aril__with_sign(aril__narrow_to_f32(c & 0x7fu, 3, 8), (uint32_t)(c & 0x80u) << 24, nan);
}

ARIL__NARROW float aril__e5m2fnuz_to_f32(uint8_t c)
{
    uint32_t nan = aril__mask_less(c ^ 0x80u, 1);
    return aril__with_sign(aril__narrow_to_f32(c & 0x7fu, 2, 16), (uint32_t)(c & 0x80u) << 24, nan);
}

ARIL__NARROW float aril__e8m0_to_f32(uint8_t c)
{
    uint32_t r = c == 0 ? 0x00400000u : (uint32_t)c << 23; /* 2^-127 is a subnormal float */
    return aril__f32_from_bits(c == 0xff ? 0x7fc00000u : r);
}

/* ---- Narrow floats: codes from f64 ---- */

/* |x| rounded to nearest even, as the sign-less code of a format with unbounded exponent. Codes are
   ordered like values, so a caller detects overflow by comparing with its largest code. Inf gives a
   code above all others; the caller handles NaN. */
ARIL__NARROW uint32_t aril__narrow_code(double x, int mantissa_bits, int bias)
{
    uint64_t a = aril__f64_bits(x) & (UINT64_MAX >> 1);
    int drop = 52 - mantissa_bits;
    int exponent = (int)(a >> 52) - 1023 + bias;
    if (exponent >= 1) {
        uint64_t r = (a + (UINT64_C(1) << (drop - 1)) - 1 + ((a >> drop) & 1)) >> drop;
        return (uint32_t)(r - ((uint64_t)(1023 - bias) << mantissa_bits));
    }
    int shift = drop + 1 - exponent; /* a subnormal result: more bits are dropped, perhaps all */
    if (shift > 63) shift = 63;
    uint64_t m = (a & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    return (uint32_t)((m + (UINT64_C(1) << (shift - 1)) - 1 + ((m >> shift) & 1)) >> shift);
}

ARIL__NARROW uint32_t aril__sign_of(double x)
{
    return (uint32_t)(aril__f64_bits(x) >> 63);
}

ARIL__NARROW uint16_t aril__f64_to_f16(double x)
{
    uint32_t r = aril__narrow_code(x, 10, 15);
    r = r > 0x7c00 ? 0x7c00 : r;
    if (x != x) r = 0x7e00 | (uint32_t)(aril__f64_bits(x) >> 42 & 0x3ff);
    return (uint16_t)(r | aril__sign_of(x) << 15);
}

ARIL__NARROW uint16_t aril__f64_to_bf16(double x)
{
    uint32_t r = aril__narrow_code(x, 7, 127);
    r = r > 0x7f80 ? 0x7f80 : r;
    if (x != x) r = 0x7fc0 | (uint32_t)(aril__f64_bits(x) >> 45 & 0x7f);
    return (uint16_t)(r | aril__sign_of(x) << 15);
}

ARIL__NARROW uint8_t aril__f64_to_e4m3fn(double x)
{
    uint32_t r = aril__narrow_code(x, 3, 7);
    r = r > 0x7e ? 0x7e : r; /* as PyTorch from 2.12 on; before, it gave NaN */
    return (uint8_t)((x != x ? 0x7f : r) | aril__sign_of(x) << 7);
}

ARIL__NARROW uint8_t aril__f64_to_e5m2(double x)
{
    uint32_t r = aril__narrow_code(x, 2, 15);
    r = r > 0x7c ? 0x7c : r;
    return (uint8_t)((x != x ? 0x7f : r) | aril__sign_of(x) << 7);
}

/* The fnuz forms have one zero and one NaN, whose code would be that of -0. */
ARIL__NARROW uint8_t aril__fnuz(double x, uint32_t code)
{
    if (code > 0x7f || x != x) return 0x80;
    return (uint8_t)(code == 0 ? 0 : code | aril__sign_of(x) << 7);
}

ARIL__NARROW uint8_t aril__f64_to_e4m3fnuz(double x)
{
    return aril__fnuz(x, aril__narrow_code(x, 3, 8));
}

ARIL__NARROW uint8_t aril__f64_to_e5m2fnuz(double x)
{
    return aril__fnuz(x, aril__narrow_code(x, 2, 16));
}

ARIL__NARROW uint8_t aril__f64_to_e8m0(double x)
{
    uint64_t a = aril__f64_bits(x) & (UINT64_MAX >> 1), mantissa = a & ((UINT64_C(1) << 52) - 1);
    int exponent = (int)(a >> 52) - 1023 + 127;
    if (exponent < 0) /* zero too: 2^-127 is the smallest value */
        return 0;
    if (exponent == 0) /* as PyTorch: always rounds up between 2^-127 and 2^-126 */
        return mantissa != 0;
    exponent += (int)(mantissa >> 51);
    return (uint8_t)(exponent > 0xff ? 0xff : exponent);
}

ARIL__NARROW unsigned aril__f64_to_e2m1(double x)
{
    uint32_t r = aril__narrow_code(x, 1, 1);
    if (x != x) return 7; /* as ONNX; the sign of a NaN is ignored */
    return (r > 7 ? 7 : r) | aril__sign_of(x) << 3;
}

#endif
