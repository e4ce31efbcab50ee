/* Stores that pass the caches by: for results much larger than a cache, which would only push out
 * what is still needed, and whose lines would be fetched before they are overwritten. */
#ifndef ARIL_CORE_STREAM_H
#define ARIL_CORE_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Results of so many bytes are worth it. */
enum { ARIL__STREAM_FROM = 24 << 20 };

/* memcpy past the caches; the parts have to lie apart. */
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

/* Before other threads are told of what was stored so. */
static inline void aril__stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
