/* Memory statistics of a device, and tools to test how a program handles running out of memory. */
#ifndef ARIL_MEMORY_H
#define ARIL_MEMORY_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Bytes of tensor data on one device. Data of up to 64 bytes is stored inside the tensor object and
 * is not counted. */
typedef struct aril_memory_stats {
    int64_t live;        /* in use now */
    int64_t peak;        /* the most in use since the start or aril_memory_reset_peak */
    int64_t cached;      /* freed, kept for reuse */
    int64_t allocations; /* requests so far */
    int64_t misses;      /* requests that the cache could not serve */
} aril_memory_stats;

/* The current statistics of a device; resets its peak to the memory in use now. */
ARIL_API aril_memory_stats aril_memory(aril_device device);
ARIL_API void aril_memory_reset_peak(aril_device device);

/* The sizes of the largest blocks in use on a device, with how many there are of each: writes up to
 * n of them, at most 8, largest first, and returns their number. 0 on devices that do not list
 * them, such as the CPU. */
typedef struct aril_memory_block {
    int64_t bytes, count;
} aril_memory_block;
ARIL_API int aril_memory_largest(aril_device device, int n, aril_memory_block *blocks);

/* Limits the tensor data on a device to `bytes`; 0 removes the limit. An allocation that would
 * exceed it fails with ARIL_ERR_MEMORY. */
ARIL_API aril_status aril_memory_set_limit(aril_device device, int64_t bytes);

/* Empties the cache: returns the cached memory of `device` to the system, for other processes. */
ARIL_API void aril_memory_trim(aril_device device);

/* Makes the n-th allocation from now fail, counting from 1 over all threads and kinds of memory; 0
 * turns it off. For tests: the failed call reports ARIL_ERR_MEMORY, everything else continues. */
ARIL_API void aril_fail_allocation(int64_t n);

/* True when the failure requested by aril_fail_allocation has occurred. */
ARIL_API bool aril_allocation_failed(void);

ARIL_C_END

#endif
