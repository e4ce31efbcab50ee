#include "core/convert.h"

#include "core/cpu.h"

enum { BLOCK = 512, DTYPES = ARIL_F64 + 1 };

typedef void convert_fn(void *dst, const void *src, int64_t n);

typedef struct conversions {
    convert_fn *of[DTYPES][DTYPES];
    void (*to_odd)(float *d, const double *s, int64_t n);
    bool (*has_tiny)(const double *s, int64_t n);
    bool (*are_small32)(const int32_t *s, int64_t n);
    bool (*are_small64)(const int64_t *s, int64_t n);
} conversions;

#define TARGET
#define NAME(x) x
#define TABLE   baseline
#include "core/convert.inc"

#if ARIL__TARGETS
#undef TARGET
#undef NAME
#undef TABLE
#define TARGET  ARIL__AVX2
#define NAME(x) x##_avx2
#define TABLE   avx2
#include "core/convert.inc"

#undef TARGET
#undef NAME
#undef TABLE
#define TARGET  ARIL__AVX512
#define NAME(x) x##_avx512
#define TABLE   avx512
#include "core/convert.inc"
#endif

static const conversions *const tables[ARIL__CPU_LEVELS] = {
    [ARIL__CPU_BASELINE] = &baseline,
#if ARIL__TARGETS
    [ARIL__CPU_AVX2] = &avx2,
    [ARIL__CPU_AVX512] = &avx512,
#endif
};

static bool is_half(aril_dtype t)
{
    return t == ARIL_F16 || t == ARIL_BF16;
}

/* f16 and bf16 are exact as f32. */
static void from_half(convert_fn *next, void *dst, size_t size, aril_dtype from, const void *src,
                      int64_t n)
{
    float block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;
        aril__dtypes[from].load[ARIL__C_F32](block, src, at, 1, m);
        next((char *)dst + (size_t)at * size, block, m);
    }
}

/* A block of f64, or of integers, as f32 whose rounding to f16 or bf16 is that of the value itself;
 * false if there is none. Numbers too small for f16 become 0 either way. */
static bool as_f32(const conversions *c, float *block, aril_dtype to, aril_dtype from,
                   const char *src, int64_t m)
{
    const void *s = src;
    if (from == ARIL_F64) {
        if (to == ARIL_BF16 && c->has_tiny(s, m)) return false;
        c->to_odd(block, s, m);
        return true;
    }
    if (from == ARIL_I32 && !c->are_small32(s, m)) return false; /* the narrower ones are exact */
    if (from == ARIL_I64 && !c->are_small64(s, m)) return false;
    c->of[from][ARIL_F32](block, src, m);
    return true;
}

static void to_half(const conversions *c, aril_dtype to, void *dst, aril_dtype from,
                    const void *src, int64_t n)
{
    float block[BLOCK];
    uint64_t wide[BLOCK];
    size_t size = aril__dtypes[from].bits / 8;
    aril__ctype via = aril__dtypes[from].ctype;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t m = n - at < BLOCK ? n - at : BLOCK;
        if (as_f32(c, block, to, from, (const char *)src + (size_t)at * size, m)) {
            aril__dtypes[to].store[ARIL__C_F32](dst, at, 1, block, m);
        } else {
            aril__dtypes[from].load[via](wide, src, at, 1, m);
            aril__dtypes[to].store[via](dst, at, 1, wide, m);
        }
    }
}

bool aril__convert(aril_dtype to, void *dst, aril_dtype from, const void *src, int64_t n)
{
    const conversions *c = tables[aril__cpu()];
    if ((int)to >= DTYPES || (int)from >= DTYPES) return false;
    if (c->of[from][to]) {
        c->of[from][to](dst, src, n);
        return true;
    }
    if (is_half(from) && to == ARIL_F32) {
        aril__dtypes[from].load[ARIL__C_F32](dst, src, 0, 1, n);
        return true;
    }
    if (is_half(to) && from == ARIL_F32) {
        aril__dtypes[to].store[ARIL__C_F32](dst, 0, 1, src, n);
        return true;
    }
    if (is_half(from) && c->of[ARIL_F32][to]) {
        from_half(c->of[ARIL_F32][to], dst, aril__dtypes[to].bits / 8, from, src, n);
        return true;
    }
    if (is_half(to) && c->of[from][ARIL_F32]) {
        to_half(c, to, dst, from, src, n);
        return true;
    }
    return false;
}
