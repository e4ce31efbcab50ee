/* The row of each dtype, with its conversions to and from the types that kernels compute in.

   An element is read by get_<dtype>() into its natural type (i32, i64, u64, f32 or f64: the
   narrowest that is exact and that vectorizes), converted by <natural>_as_<ctype>(), and written by
   put_<dtype>_<ctype>(). The LOAD and STORE macros wrap these in loops. U64 is I64 modulo 2^64, so
   integer dtypes share one function for both, and only floats and u64 distinguish them. */
#include "core/dtype.h"

#include "core/convert.h"
#include "core/cpu.h"

#if ARIL__TARGETS
#include <immintrin.h>
#endif

/* ---- Between natural types and compute types ---- */

#define f64_as_i64 aril__f64_to_i64

static inline uint64_t f64_as_u64(double x)
{
    if (x >= 0x1p64) return UINT64_MAX;
    if (x >= 0x1p63) return (uint64_t)x;
    return (uint64_t)f64_as_i64(x);
}

static inline float f64_as_f32(double x)
{
    return (float)x;
}

static inline int64_t f32_as_i64(float x)
{
    return f64_as_i64((double)x);
}

static inline uint64_t f32_as_u64(float x)
{
    return f64_as_u64((double)x);
}

static inline float f32_as_f32(float x)
{
    return x;
}

static inline double f32_as_f64(float x)
{
    return (double)x;
}

static inline float i32_as_f32(int32_t x)
{
    return (float)x;
}

static inline double i32_as_f64(int32_t x)
{
    return (double)x;
}

static inline int64_t i32_as_i64(int32_t x)
{
    return x;
}

static inline float i64_as_f32(int64_t x)
{
    return (float)x;
}

static inline double i64_as_f64(int64_t x)
{
    return (double)x;
}

static inline int64_t i64_as_i64(int64_t x)
{
    return x;
}

static inline float u64_as_f32(uint64_t x)
{
    return (float)x;
}

static inline double u64_as_f64(uint64_t x)
{
    return (double)x;
}

/* x as a double from which a narrower float can be rounded as if from x itself. Integers beyond 53
   bits are rounded to odd (the lost bits are or-ed into the last kept one), so that the second
   rounding sees no false tie. */
static inline double u64_wide(uint64_t x)
{
    if (x >> 53) x = ((x >> 11) | ((x & 0x7ff) != 0)) << 11;
    return (double)x;
}

static inline double i64_wide(int64_t x)
{
    return x < 0 ? -u64_wide(0 - (uint64_t)x) : u64_wide((uint64_t)x);
}

static inline double f32_wide(float x)
{
    return (double)x;
}

static inline double f64_wide(double x)
{
    return x;
}

/* ---- Reading one element ---- */

#define GET(dt, T, natural, expression)                         \
    static inline natural get_##dt(const void *base, int64_t k) \
    {                                                           \
        T e = ((const T *)base)[k];                             \
        return expression;                                      \
    }

/* bool8, as bool is a macro */
GET(bool8, uint8_t, int32_t, e != 0)
GET(u8, uint8_t, int32_t, e)
GET(u16, uint16_t, int32_t, e)
GET(u32, uint32_t, int64_t, e)
GET(u64, uint64_t, uint64_t, e)
GET(i8, int8_t, int32_t, e)
GET(i16, int16_t, int32_t, e)
GET(i32, int32_t, int32_t, e)
GET(i64, int64_t, int64_t, e)
GET(f16, uint16_t, float, aril__f16_to_f32(e))
GET(bf16, uint16_t, float, aril__bf16_to_f32(e))
GET(f32, float, float, e)
GET(f64, double, double, e)
GET(f8e4m3fn, uint8_t, float, aril__e4m3fn_to_f32(e))
GET(f8e4m3fnuz, uint8_t, float, aril__e4m3fnuz_to_f32(e))
GET(f8e5m2, uint8_t, float, aril__e5m2_to_f32(e))
GET(f8e5m2fnuz, uint8_t, float, aril__e5m2fnuz_to_f32(e))
GET(f8e8m0, uint8_t, float, aril__e8m0_to_f32(e))

/* Element k of a sub-byte dtype: the first is in the low bits. */
static inline int32_t get_packed(const void *base, int64_t k, unsigned bits)
{
    uint64_t at = (uint64_t)k * bits;
    return (((const uint8_t *)base)[at >> 3] >> (at & 7)) & ((1 << bits) - 1);
}

static inline int32_t get_i4(const void *base, int64_t k)
{
    return (get_packed(base, k, 4) ^ 8) - 8;
}

static inline int32_t get_u4(const void *base, int64_t k)
{
    return get_packed(base, k, 4);
}

static inline int32_t get_i2(const void *base, int64_t k)
{
    return (get_packed(base, k, 2) ^ 2) - 2;
}

static inline int32_t get_u2(const void *base, int64_t k)
{
    return get_packed(base, k, 2);
}

static inline float get_f4e2m1(const void *base, int64_t k)
{
    uint32_t c = (uint32_t)get_packed(base, k, 4);
    return aril__with_sign(aril__narrow_to_f32(c & 7, 1, 1), (c & 8) << 28, 0);
}

/* ---- Writing one element ---- */

/* x is the value, of the compute type. */
#define PUT(dt, T, ctype, X, expression)                              \
    static inline void put_##dt##_##ctype(void *base, int64_t k, X x) \
    {                                                                 \
        ((T *)base)[k] = (T)(expression);                             \
    }

/* Through uint64_t, whose narrowing is defined, and then wraps. */
#define PUT_INT(dt, T)                               \
    PUT(dt, T, f32, float, (uint64_t)f32_as_i64(x))  \
    PUT(dt, T, f64, double, (uint64_t)f64_as_i64(x)) \
    PUT(dt, T, i64, int64_t, (uint64_t)x)

#define PUT_NARROW(dt, T, encode)                 \
    PUT(dt, T, f64, double, encode(f64_wide(x)))  \
    PUT(dt, T, i64, int64_t, encode(i64_wide(x))) \
    PUT(dt, T, u64, uint64_t, encode(u64_wide(x)))

PUT(bool8, uint8_t, f32, float, x != 0)
PUT(bool8, uint8_t, f64, double, x != 0)
PUT(bool8, uint8_t, i64, int64_t, x != 0)

PUT_INT(u8, uint8_t)
PUT_INT(u16, uint16_t)
PUT_INT(u32, uint32_t)
PUT_INT(i8, int8_t)
PUT_INT(i16, int16_t)
PUT_INT(i32, int32_t)
PUT(i64, int64_t, f32, float, f32_as_i64(x))
PUT(i64, int64_t, f64, double, f64_as_i64(x))
PUT(u64, uint64_t, f32, float, f32_as_u64(x))
PUT(u64, uint64_t, f64, double, f64_as_u64(x))

PUT(f16, uint16_t, f32, float, aril__f32_to_f16(x))
PUT_NARROW(f16, uint16_t, aril__f64_to_f16)
PUT(bf16, uint16_t, f32, float, aril__f32_to_bf16(x))
PUT_NARROW(bf16, uint16_t, aril__f64_to_bf16)

PUT(f32, float, f64, double, x)
PUT(f32, float, i64, int64_t, x)
PUT(f32, float, u64, uint64_t, x)
PUT(f64, double, f32, float, x)
PUT(f64, double, i64, int64_t, x)
PUT(f64, double, u64, uint64_t, x)

#define PUT_F8(dt, encode)                            \
    PUT(dt, uint8_t, f32, float, encode(f32_wide(x))) \
    PUT_NARROW(dt, uint8_t, encode)

PUT_F8(f8e4m3fn, aril__f64_to_e4m3fn)
PUT_F8(f8e4m3fnuz, aril__f64_to_e4m3fnuz)
PUT_F8(f8e5m2, aril__f64_to_e5m2)
PUT_F8(f8e5m2fnuz, aril__f64_to_e5m2fnuz)
PUT_F8(f8e8m0, aril__f64_to_e8m0)

static inline void put_packed(void *base, int64_t k, unsigned bits, uint64_t value)
{
    uint64_t at = (uint64_t)k * bits;
    unsigned mask = (1u << bits) - 1, shift = (unsigned)(at & 7);
    uint8_t *p = (uint8_t *)base + (at >> 3);
    *p = (uint8_t)((*p & ~(mask << shift)) | ((unsigned)value & mask) << shift);
}

#define PUT_PACKED(dt, bits, ctype, X, expression)                    \
    static inline void put_##dt##_##ctype(void *base, int64_t k, X x) \
    {                                                                 \
        put_packed(base, k, bits, (uint64_t)(expression));            \
    }

#define PUT_PACKED_INT(dt, bits)                     \
    PUT_PACKED(dt, bits, f32, float, f32_as_i64(x))  \
    PUT_PACKED(dt, bits, f64, double, f64_as_i64(x)) \
    PUT_PACKED(dt, bits, i64, int64_t, x)

PUT_PACKED_INT(i4, 4)
PUT_PACKED_INT(u4, 4)
PUT_PACKED_INT(i2, 2)
PUT_PACKED_INT(u2, 2)
PUT_PACKED(f4e2m1, 4, f32, float, aril__f64_to_e2m1(f32_wide(x)))
PUT_PACKED(f4e2m1, 4, f64, double, aril__f64_to_e2m1(f64_wide(x)))
PUT_PACKED(f4e2m1, 4, i64, int64_t, aril__f64_to_e2m1(i64_wide(x)))
PUT_PACKED(f4e2m1, 4, u64, uint64_t, aril__f64_to_e2m1(u64_wide(x)))

/* ---- Loops ---- */

/* Contiguous runs get a separate loop, the only one that vectorizes; so does a single repeated
   element (stride 0), as from a broadcast input. */
#define LOAD(dt, natural, ctype, X)                                                               \
    static void load_##dt##_##ctype(void *dst, const void *base, int64_t offset, int64_t stride,  \
                                    int64_t n)                                                    \
    {                                                                                             \
        X *restrict d = dst;                                                                      \
        const void *restrict b = base;                                                            \
        if (stride == 1) {                                                                        \
            for (int64_t i = 0; i < n; i++) d[i] = natural##_as_##ctype(get_##dt(b, offset + i)); \
        } else if (stride == 0 && n > 0) {                                                        \
            X x = natural##_as_##ctype(get_##dt(b, offset));                                      \
            for (int64_t i = 0; i < n; i++) d[i] = x;                                             \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++)                                                       \
                d[i] = natural##_as_##ctype(get_##dt(b, offset + i * stride));                    \
        }                                                                                         \
    }

#define STORE(dt, ctype, X)                                                                       \
    static void store_##dt##_##ctype(void *base, int64_t offset, int64_t stride, const void *src, \
                                     int64_t n)                                                   \
    {                                                                                             \
        void *restrict b = base;                                                                  \
        const X *restrict s = src;                                                                \
        if (stride == 1) {                                                                        \
            for (int64_t i = 0; i < n; i++) put_##dt##_##ctype(b, offset + i, s[i]);              \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++) put_##dt##_##ctype(b, offset + i * stride, s[i]);     \
        }                                                                                         \
    }

/* If dtype and compute type are the same, a contiguous run is a plain copy. */
#define COPY(dt, ctype, X)                                                                        \
    static void load_##dt##_##ctype(void *dst, const void *base, int64_t offset, int64_t stride,  \
                                    int64_t n)                                                    \
    {                                                                                             \
        X *restrict d = dst;                                                                      \
        const X *restrict b = base;                                                               \
        if (n <= 0) return;                                                                       \
        if (stride == 1) {                                                                        \
            memcpy(d, b + offset, (size_t)n * sizeof *d);                                         \
        } else if (stride == 0) {                                                                 \
            X x = b[offset];                                                                      \
            for (int64_t i = 0; i < n; i++) d[i] = x;                                             \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++) d[i] = b[offset + i * stride];                        \
        }                                                                                         \
    }                                                                                             \
    static void store_##dt##_##ctype(void *base, int64_t offset, int64_t stride, const void *src, \
                                     int64_t n)                                                   \
    {                                                                                             \
        X *restrict b = base;                                                                     \
        const X *restrict s = src;                                                                \
        if (n <= 0) return;                                                                       \
        if (stride == 1) {                                                                        \
            memcpy(b + offset, s, (size_t)n * sizeof *s);                                         \
        } else {                                                                                  \
            for (int64_t i = 0; i < n; i++) b[offset + i * stride] = s[i];                        \
        }                                                                                         \
    }

#define INTEGER(dt, natural)        \
    LOAD(dt, natural, f32, float)   \
    LOAD(dt, natural, f64, double)  \
    LOAD(dt, natural, i64, int64_t) \
    STORE(dt, f32, float)           \
    STORE(dt, f64, double)          \
    STORE(dt, i64, int64_t)

#define NARROW_FLOAT(dt)         \
    LOAD(dt, f32, f32, float)    \
    LOAD(dt, f32, f64, double)   \
    LOAD(dt, f32, i64, int64_t)  \
    LOAD(dt, f32, u64, uint64_t) \
    STORE(dt, f32, float)        \
    STORE(dt, f64, double)       \
    STORE(dt, i64, int64_t)      \
    STORE(dt, u64, uint64_t)

INTEGER(bool8, i32)
INTEGER(u8, i32)
INTEGER(u16, i32)
INTEGER(u32, i64)
INTEGER(i8, i32)
INTEGER(i16, i32)
INTEGER(i32, i32)
INTEGER(i4, i32)
INTEGER(u4, i32)
INTEGER(i2, i32)
INTEGER(u2, i32)

LOAD(i64, i64, f32, float)
LOAD(i64, i64, f64, double)
STORE(i64, f32, float)
STORE(i64, f64, double)
COPY(i64, i64, int64_t)

LOAD(u64, u64, f32, float)
LOAD(u64, u64, f64, double)
STORE(u64, f32, float)
STORE(u64, f64, double)

NARROW_FLOAT(f16)
NARROW_FLOAT(bf16)

/* Contiguous runs of f16 and bf16 with wide vectors, bitwise equal to the scalar loops: f16 by the
   F16C instructions, bf16 by the loops above compiled for wider targets. AVX-512's bf16 instruction
   is not used, as it treats denormals as 0. */
#if ARIL__TARGETS
ARIL__AVX2 static int64_t load_f16_f16c(float *d, const uint16_t *b, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(b + i))));
    return i;
}

ARIL__AVX2 static int64_t store_f16_f16c(uint16_t *b, const float *s, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(b + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

ARIL__AVX2 static int64_t load_bf16_avx2(float *d, const uint16_t *b, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(b + i)));
        _mm256_storeu_ps(d + i, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
    }
    return i;
}

/* Eight codes of bf16, each in the upper half of its 32 bits. */
ARIL__AVX2 static inline __m256i bf16_codes_avx2(const float *s)
{
    __m256 x = _mm256_loadu_ps(s);
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}

ARIL__AVX2 static int64_t store_bf16_avx2(uint16_t *b, const float *s, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i two = _mm256_packus_epi32(bf16_codes_avx2(s + i), bf16_codes_avx2(s + i + 8));
        _mm256_storeu_si256((__m256i *)(b + i), _mm256_permute4x64_epi64(two, 0xd8));
    }
    return i;
}

ARIL__AVX512 static int64_t load_f16_avx512(float *d, const uint16_t *b, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(d + i, _mm512_cvtph_ps(
                                    _mm256_loadu_si256((const __m256i *)(const void *)(b + i))));
    return i;
}

ARIL__AVX512 static int64_t store_f16_avx512(uint16_t *b, const float *s, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(b + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

ARIL__AVX512 static int64_t load_bf16_avx512(float *d, const uint16_t *b, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(b + i));
        _mm512_storeu_si512(d + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
    return i;
}

ARIL__AVX512 static int64_t store_bf16_avx512(uint16_t *b, const float *s, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 x = _mm512_loadu_ps(s + i);
        __m512i u = _mm512_castps_si512(x);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
        __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        __m512i quiet = _mm512_set1_epi32(0x400000);
        __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        rounded = _mm512_mask_or_epi32(rounded, nan, u, quiet);
        _mm256_storeu_si256((__m256i *)(b + i),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
    }
    return i;
}

#define BY_LEVEL(wide, narrow)                         \
    (aril__cpu() == ARIL__CPU_AVX512 ? wide(d, s, n)   \
     : aril__cpu() == ARIL__CPU_AVX2 ? narrow(d, s, n) \
                                     : 0)
static int64_t load_f16_wide(float *d, const uint16_t *s, int64_t n)
{
    return BY_LEVEL(load_f16_avx512, load_f16_f16c);
}
static int64_t store_f16_wide(uint16_t *d, const float *s, int64_t n)
{
    return BY_LEVEL(store_f16_avx512, store_f16_f16c);
}
static int64_t load_bf16_wide(float *d, const uint16_t *s, int64_t n)
{
    return BY_LEVEL(load_bf16_avx512, load_bf16_avx2);
}
static int64_t store_bf16_wide(uint16_t *d, const float *s, int64_t n)
{
    return BY_LEVEL(store_bf16_avx512, store_bf16_avx2);
}
#else
#define load_f16_wide(d, b, n)   0
#define store_f16_wide(b, s, n)  0
#define load_bf16_wide(d, b, n)  0
#define store_bf16_wide(b, s, n) 0
#endif

/* The plain loops handle the tail that the wide ones leave. */
#define FAST_HALF(dt)                                                                              \
    static void load_##dt##_f32_fast(void *dst, const void *base, int64_t offset, int64_t stride,  \
                                     int64_t n)                                                    \
    {                                                                                              \
        int64_t done = 0;                                                                          \
        if (stride == 1 && n > 0)                                                                  \
            done = load_##dt##_wide(dst, (const uint16_t *)base + offset, n);                      \
        load_##dt##_f32((float *)dst + done, base, offset + done * stride, stride, n - done);      \
    }                                                                                              \
    static void store_##dt##_f32_fast(void *base, int64_t offset, int64_t stride, const void *src, \
                                      int64_t n)                                                   \
    {                                                                                              \
        int64_t done = 0;                                                                          \
        if (stride == 1 && n > 0) done = store_##dt##_wide((uint16_t *)base + offset, src, n);     \
        store_##dt##_f32(base, offset + done * stride, stride, (const float *)src + done,          \
                         n - done);                                                                \
    }
FAST_HALF(f16)
FAST_HALF(bf16)

NARROW_FLOAT(f8e4m3fn)
NARROW_FLOAT(f8e4m3fnuz)
NARROW_FLOAT(f8e5m2)
NARROW_FLOAT(f8e5m2fnuz)
NARROW_FLOAT(f8e8m0)
NARROW_FLOAT(f4e2m1)

COPY(f32, f32, float)
LOAD(f32, f32, f64, double)
LOAD(f32, f32, i64, int64_t)
LOAD(f32, f32, u64, uint64_t)
STORE(f32, f64, double)
STORE(f32, i64, int64_t)
STORE(f32, u64, uint64_t)

COPY(f64, f64, double)
LOAD(f64, f64, f32, float)
LOAD(f64, f64, i64, int64_t)
LOAD(f64, f64, u64, uint64_t)
STORE(f64, f32, float)
STORE(f64, i64, int64_t)
STORE(f64, u64, uint64_t)

/* ---- The table ---- */

#define INT_ROW(dt, name_, torch, width, kind_, computes_)                                   \
    {                                                                                        \
        .name = name_, .torch_name = torch, .bits = width, .kind = ARIL__KIND_##kind_,       \
        .computes = computes_, .ctype = ARIL__C_I64,                                         \
        .load = { load_##dt##_f32, load_##dt##_f64, load_##dt##_i64, load_##dt##_i64 },      \
        .store = { store_##dt##_f32, store_##dt##_f64, store_##dt##_i64, store_##dt##_i64 }, \
    }

#define FLOAT_ROW(dt, name_, torch, width, ctype_, computes_)                                \
    {                                                                                        \
        .name = name_, .torch_name = torch, .bits = width, .kind = ARIL__KIND_FLOAT,         \
        .computes = computes_, .ctype = ARIL__C_##ctype_,                                    \
        .load = { load_##dt##_f32, load_##dt##_f64, load_##dt##_i64, load_##dt##_u64 },      \
        .store = { store_##dt##_f32, store_##dt##_f64, store_##dt##_i64, store_##dt##_u64 }, \
    }

#define HALF_ROW(dt, name_, torch)                                                                \
    {                                                                                             \
        .name = name_, .torch_name = torch, .bits = 16, .kind = ARIL__KIND_FLOAT,                 \
        .computes = true, .ctype = ARIL__C_F32,                                                   \
        .load = { load_##dt##_f32_fast, load_##dt##_f64, load_##dt##_i64, load_##dt##_u64 },      \
        .store = { store_##dt##_f32_fast, store_##dt##_f64, store_##dt##_i64, store_##dt##_u64 }, \
    }

const aril__dtype_row aril__dtypes[ARIL__DTYPE_COUNT] = {
    [ARIL_BOOL] = INT_ROW(bool8, "bool", "bool", 8, BOOL, true),
    [ARIL_U8] = INT_ROW(u8, "u8", "uint8", 8, UINT, true),
    [ARIL_U16] = INT_ROW(u16, "u16", "uint16", 16, UINT, true),
    [ARIL_U32] = INT_ROW(u32, "u32", "uint32", 32, UINT, true),
    [ARIL_U64] = { .name = "u64",
                   .torch_name = "uint64",
                   .bits = 64,
                   .kind = ARIL__KIND_UINT,
                   .computes = true,
                   .ctype = ARIL__C_U64,
                   .load = { load_u64_f32, load_u64_f64, load_i64_i64, load_i64_i64 },
                   .store = { store_u64_f32, store_u64_f64, store_i64_i64, store_i64_i64 } },
    [ARIL_I8] = INT_ROW(i8, "i8", "int8", 8, INT, true),
    [ARIL_I16] = INT_ROW(i16, "i16", "int16", 16, INT, true),
    [ARIL_I32] = INT_ROW(i32, "i32", "int32", 32, INT, true),
    [ARIL_I64] = INT_ROW(i64, "i64", "int64", 64, INT, true),
    [ARIL_F16] = HALF_ROW(f16, "f16", "float16"),
    [ARIL_BF16] = HALF_ROW(bf16, "bf16", "bfloat16"),
    [ARIL_F32] = FLOAT_ROW(f32, "f32", "float32", 32, F32, true),
    [ARIL_F64] = FLOAT_ROW(f64, "f64", "float64", 64, F64, true),
    [ARIL_F8E4M3FN] = FLOAT_ROW(f8e4m3fn, "f8e4m3fn", "float8_e4m3fn", 8, F32, false),
    [ARIL_F8E4M3FNUZ] = FLOAT_ROW(f8e4m3fnuz, "f8e4m3fnuz", "float8_e4m3fnuz", 8, F32, false),
    [ARIL_F8E5M2] = FLOAT_ROW(f8e5m2, "f8e5m2", "float8_e5m2", 8, F32, false),
    [ARIL_F8E5M2FNUZ] = FLOAT_ROW(f8e5m2fnuz, "f8e5m2fnuz", "float8_e5m2fnuz", 8, F32, false),
    [ARIL_F8E8M0] = FLOAT_ROW(f8e8m0, "f8e8m0", "float8_e8m0fnu", 8, F32, false),
    [ARIL_F4E2M1] = FLOAT_ROW(f4e2m1, "f4e2m1", "float4_e2m1fn", 4, F32, false),
    [ARIL_I4] = INT_ROW(i4, "i4", "int4", 4, INT, false),
    [ARIL_U4] = INT_ROW(u4, "u4", "uint4", 4, UINT, false),
    [ARIL_I2] = INT_ROW(i2, "i2", "int2", 2, INT, false),
    [ARIL_U2] = INT_ROW(u2, "u2", "uint2", 2, UINT, false),
};
