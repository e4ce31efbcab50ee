/* Stores that pass the cache by: for results that are too large to be found there by whoever reads
 * them next. */
#ifndef ARIL_OPS_STREAM_H
#define ARIL_OPS_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ARIL__STREAM = 16 * 1024 * 1024 }; /* results of at least so many bytes are streamed */

/* Orders streamed stores before all that follow; each thread that streams ends with it. */
static inline void aril__stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* Streamed stores need whole vectors: up to 32 bytes. */
static inline bool aril__stream_fits(const void *p)
{
    return (uintptr_t)p % 32 == 0;
}

#endif
