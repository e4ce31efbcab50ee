/* How many threads Aril's own kernels use. */
#ifndef ARIL_PARALLEL_H
#define ARIL_PARALLEL_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Sets the number of threads for work that begins from now on, in every thread of the process;
 * 0 restores the default, which is the number of CPUs this process may run on. At start the number
 * is that of the environment variable ARIL_THREADS, if set. n < 0 or n > 1024 is an error
 * (ARIL_ERR_ARG) and changes nothing. Aril's own kernels give the same bits for any number. */
ARIL_API aril_status aril_set_threads(int n);

/* The number of threads in use, at least 1. */
ARIL_API int aril_threads(void);

ARIL_C_END

#endif
