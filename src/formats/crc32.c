/* The CRC-32 of zip, gzip and PNG: by tables, or, where the CPU multiplies polynomials, by folding
 * 64 bytes at a time (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel 2009). */
#include "core/cpu.h"
#include "formats/bytes.h"

#include <pthread.h>

static uint32_t crc_table[8][256];

static void crc_fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[k - 1][i] >> 8 ^ crc_table[0][crc_table[k - 1][i] & 255];
}

/* c is inverted, here and below. */
static uint32_t by_tables(uint32_t c, const unsigned char *p, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, crc_fill);
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t a = c ^ aril__le32(p), b = aril__le32(p + 4);
        c = crc_table[7][a & 255] ^ crc_table[6][a >> 8 & 255] ^ crc_table[5][a >> 16 & 255] ^
            crc_table[4][a >> 24] ^ crc_table[3][b & 255] ^ crc_table[2][b >> 8 & 255] ^
            crc_table[1][b >> 16 & 255] ^ crc_table[0][b >> 24];
    }
    for (; size > 0; size--) c = c >> 8 ^ crc_table[0][(c ^ *p++) & 255];
    return c;
}

#if ARIL__TARGETS

#include <immintrin.h>

#define FOLDING __attribute__((target("sse4.1,pclmul")))

static bool can_fold(void)
{
    return aril__cpu() >= ARIL__CPU_AVX2 && __builtin_cpu_supports("pclmul");
}

FOLDING static __m128i load(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* x moved on by the distance that k stands for, plus y. */
FOLDING static __m128i fold(__m128i x, __m128i k, __m128i y)
{
    __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), y);
}

/* size: 64 or more, a multiple of 16. */
FOLDING static uint32_t by_folding(uint32_t c, const unsigned char *p, size_t size)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i to_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i x = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)c));
    __m128i x1 = load(p + 16), x2 = load(p + 32), x3 = load(p + 48);
    for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
        x = fold(x, by_64, load(p));
        x1 = fold(x1, by_64, load(p + 16));
        x2 = fold(x2, by_64, load(p + 32));
        x3 = fold(x3, by_64, load(p + 48));
    }
    x = fold(fold(fold(x, by_16, x1), by_16, x2), by_16, x3);
    for (; size >= 16; p += 16, size -= 16) x = fold(x, by_16, load(p));
    /* 128 bits to 64, and those to 32 by Barrett's reduction. */
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_16, 0x10));
    __m128i high = _mm_srli_si128(x, 4);
    x = _mm_xor_si128(high, _mm_clmulepi64_si128(_mm_and_si128(x, low_words), to_64, 0x00));
    __m128i q = _mm_clmulepi64_si128(_mm_and_si128(x, low_words), polynomial, 0x10);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, low_words), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, q), 1);
}

#else

static bool can_fold(void)
{
    return false;
}

static uint32_t by_folding(uint32_t c, const unsigned char *p, size_t size)
{
    return by_tables(c, p, size);
}

#endif

uint32_t aril__crc32(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *p = data;
    uint32_t c = ~crc;
    if (size >= 256 && can_fold()) {
        size_t folded = size & ~(size_t)15;
        c = by_folding(c, p, folded);
        p += folded;
        size -= folded;
    }
    return ~by_tables(c, p, size);
}
