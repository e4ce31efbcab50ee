/* The number of threads Aril uses, and the determinism of results. */
#ifndef ARIL_PARALLEL_H
#define ARIL_PARALLEL_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Sets the number of threads for operations that start from now on, in every thread of the process;
 * 0 restores the default, the number of CPUs this process may run on. The environment variable
 * ARIL_THREADS sets the initial number. n < 0 or n > 1024 is an error (ARIL_ERR_ARG) and changes
 * nothing. */
ARIL_API aril_status aril_set_threads(int n);

/* The number of threads in use, at least 1. */
ARIL_API int aril_threads(void);

/* Determinism levels. Except at the last, the same calls with the same seeds on the same machine
 * with the same number of threads give bitwise identical results. */
typedef enum aril_determinism {
    ARIL_SAME_THREADS, /* identical for the same number of threads: work may be split by thread */
    ARIL_ANY_THREADS,  /* identical for any number of threads: work is split by its size only */
    ARIL_NOT_DETERMINISTIC, /* GPUs may add in any order: the last bits may differ in each run. On
                               the CPU as ARIL_SAME_THREADS */
} aril_determinism;

/* Sets the determinism level for operations that start from now on, in every thread of the process.
 * ARIL_ANY_THREADS makes some kernels slower (those that would otherwise split work by thread:
 * convolutions, large matrix products and their gradients); ARIL_NOT_DETERMINISTIC may make
 * gradients of convolutions on a GPU faster. The initial level is that of the environment variable
 * ARIL_DETERMINISTIC (same_threads, any_threads or no), default ARIL_SAME_THREADS. Any other value
 * is an error (ARIL_ERR_ARG) and changes nothing. */
ARIL_API aril_status aril_set_deterministic(aril_determinism level);

/* The level in use. */
ARIL_API aril_determinism aril_deterministic(void);

ARIL_C_END

#endif
