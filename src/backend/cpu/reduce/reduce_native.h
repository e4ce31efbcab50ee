/* Folds of integers as they are in memory, at the width of their dtype, into the 64-bit states of
 * the reducers in reduce.c; and sums of f16 and bf16. */
#ifndef ARIL_CPU_REDUCE_NATIVE_H
#define ARIL_CPU_REDUCE_NATIVE_H

#include "backend/cpu/reduce/reduce_loop.h"

/* The fold for the dtype and this CPU, or NULL if elements must be converted. */
const aril__reduce_native *aril__reduce_native_of(aril__native_fold fold, aril_dtype t);

/* The same for f16 and bf16. */
const aril__reduce_native *aril__reduce_half_of(aril__native_fold fold, aril_dtype t);

#endif
