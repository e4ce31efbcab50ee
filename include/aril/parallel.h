/* How many threads Aril uses, and what the bits of results may depend on. */
#ifndef ARIL_PARALLEL_H
#define ARIL_PARALLEL_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Sets the number of threads for work that begins from now on, in every thread of the process;
 * 0 restores the default, which is the number of CPUs this process may run on. At start the number
 * is that of the environment variable ARIL_THREADS, if set. n < 0 or n > 1024 is an error
 * (ARIL_ERR_ARG) and changes nothing. */
ARIL_API aril_status aril_set_threads(int n);

/* The number of threads in use, at least 1. */
ARIL_API int aril_threads(void);

/* What does not change the bits of a result. Always: the same calls with the same seeds on the same
 * machine and number of threads give the same bits. */
typedef enum aril_determinism {
    ARIL_SAME_THREADS, /* for the same number of threads: work may be cut into one piece a thread */
    ARIL_ANY_THREADS,  /* for any number: work is cut by its size alone */
} aril_determinism;

/* Sets what results may depend on, for work that begins from now on, in every thread of the
 * process. ARIL_ANY_THREADS makes some kernels slower (those that would have cut work into one
 * piece for each thread: convolutions, large products and their gradients). At start the level is
 * that of the environment variable ARIL_DETERMINISTIC (same_threads or any_threads), else
 * ARIL_SAME_THREADS. Another value is an error (ARIL_ERR_ARG) and changes nothing. */
ARIL_API aril_status aril_set_deterministic(aril_determinism level);

/* The level in use. */
ARIL_API aril_determinism aril_deterministic(void);

ARIL_C_END

#endif
