/* Non-temporal stores, which bypass the caches: for results much larger than a cache, which would
 * only evict data that is still needed, and whose cache lines would be read before being
 * overwritten. Each thread that streams calls aril__stream_end before others read its results. */
#ifndef ARIL_CORE_STREAM_H
#define ARIL_CORE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* From how many bytes of results on to stream them. A kernel that stores its vectors directly gains
 * from a smaller size on than one that computes a block in L1 and then copies it out with
 * aril__stream_copy: the copy is work that a plain store does not have. */
enum {
    ARIL__STREAM_STORES_FROM = 16 << 20,
    ARIL__STREAM_COPIES_FROM = 24 << 20,
};

/* Streamed vector stores need aligned addresses: up to 32 bytes. */
static inline bool aril__stream_fits(const void *to)
{
    return (uintptr_t)to % 32 == 0;
}

/* memcpy that bypasses the caches; the ranges must not overlap. */
static inline void aril__stream_copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    unsigned char *d = to;
    const unsigned char *s = from;
    size_t head = (size_t)(-(uintptr_t)d & 15);
    if (bytes >= head + 64) {
        memcpy(d, s, head);
        d += head;
        s += head;
        bytes -= head;
        for (; bytes >= 64; bytes -= 64, d += 64, s += 64)
            for (int k = 0; k < 64; k += 16)
                _mm_stream_si128((__m128i *)(void *)(d + k),
                                 _mm_loadu_si128((const __m128i *)(const void *)(s + k)));
    }
    memcpy(d, s, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

/* Fence: orders streamed stores before all later ones, so that other threads see them. */
static inline void aril__stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#endif
