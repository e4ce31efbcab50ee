/* The monotonic clock, for measuring durations. */
#ifndef ARIL_CORE_CLOCK_H
#define ARIL_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t aril__nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double aril__seconds(void)
{
    return 1e-9 * (double)aril__nanoseconds();
}

#endif
