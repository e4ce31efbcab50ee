/* Non-temporal stores, which bypass the cache: for results too large to still be in cache when they
 * are read next. */
#ifndef ARIL_OPS_STREAM_H
#define ARIL_OPS_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ARIL__STREAM = 16 * 1024 * 1024 }; /* results of at least this many bytes are streamed */

/* Fence: orders streamed stores before all later ones; each thread that streams calls it at the
 * end. */
static inline void aril__stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* Streamed stores need addresses aligned to a vector: up to 32 bytes. */
static inline bool aril__stream_fits(const void *p)
{
    return (uintptr_t)p % 32 == 0;
}

#endif
