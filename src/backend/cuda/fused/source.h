/* CUDA source for fused ops: a kernel that computes a recipe in one loop. Sizes and strides are
 * arguments of the kernel, so that one serves all shapes. This file and source.c need no CUDA. */
#ifndef ARIL_CUDA_FUSED_SOURCE_H
#define ARIL_CUDA_FUSED_SOURCE_H

#include "aril/plugin.h"

ARIL_C_BEGIN

/* What a kernel depends on besides the recipe: dtypes of the inputs, and which come by value. */
typedef struct aril_cuda_fused_types {
    uint8_t dtype[ARIL_FUSED_INPUTS];
    bool number[ARIL_FUSED_INPUTS];
} aril_cuda_fused_types;

/* Why there is no kernel for a recipe; NULL: there is one. */
const char *aril_cuda_fused_refuses(const aril_fused *f, const aril_cuda_fused_types *t);

/* How many neighbouring elements a thread reads and writes at a time. */
int aril_cuda_fused_width(const aril_fused *f, const aril_cuda_fused_types *t);

/* The source, with the kernels `vectors` and `any`, to be freed; NULL when out of memory. */
char *aril_cuda_fused_source(const aril_fused *f, const aril_cuda_fused_types *t);

/* Options for the compiler: those of the kernels that run single ops, so that results are equal. */
#define ARIL_CUDA_FUSED_OPTIONS "--std=c++17 --fmad=false -w"

ARIL_C_END

#endif
