/* Non-temporal stores, which bypass the caches: for results much larger than a cache, which would
 * only evict data that is still needed, and whose cache lines would be read before being
 * overwritten. */
#ifndef ARIL_CORE_STREAM_H
#define ARIL_CORE_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Results of at least this many bytes are streamed. */
enum { ARIL__STREAM_FROM = 24 << 20 };

/* memcpy that bypasses the caches; the ranges must not overlap. */
static inline void aril__stream_copy(void *to, const void *from, size_t bytes)
{
#if defined(__SSE2__)
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

/* Fence before publishing streamed data to other threads. */
static inline void aril__stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
