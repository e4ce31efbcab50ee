/* CUDA source for fused ops: a kernel that computes a recipe in one loop. Sizes and strides are
 * arguments of the kernel, so that one serves all shapes. This file and source.c need no CUDA. */
#ifndef ARIL_CUDA_FUSED_SOURCE_H
#define ARIL_CUDA_FUSED_SOURCE_H

#include "aril/plugin.h"

ARIL_C_BEGIN

/* What a kernel depends on besides the recipe: dtypes of the inputs, and which come by value. One
 * of rows also depends on which inputs have an element for each row, and on the class of their
 * length: so many threads hold a row, each `chunks` times `width` neighbours. */
typedef struct aril_cuda_fused_types {
    uint8_t dtype[ARIL_FUSED_INPUTS];
    bool number[ARIL_FUSED_INPUTS], by_row[ARIL_FUSED_INPUTS];
    int16_t threads, chunks, width;
} aril_cuda_fused_types;

/* Whether rows are computed as a whole: a step reduces them or draws, or all rows are reduced. */
bool aril_cuda_fused_by_rows(const aril_fused *f);

/* Sets the class of rows of n elements, of which threads take `width` at a time, so that what a
 * thread holds fits in its registers; false: they are too long. */
bool aril_cuda_rows_class(const aril_fused *f, int64_t n, int width, aril_cuda_fused_types *t);

/* Threads of a block; rows that it computes side by side. */
int aril_cuda_rows_block(const aril_fused *f, const aril_cuda_fused_types *t);

/* Why there is no kernel for a recipe; NULL: there is one. */
const char *aril_cuda_fused_refuses(const aril_fused *f, const aril_cuda_fused_types *t);

/* How many neighbouring elements a thread reads and writes at a time. */
int aril_cuda_fused_width(const aril_fused *f, const aril_cuda_fused_types *t);

/* The source, with the kernels `vectors` and `any`, or `rows` and `finish`, to be freed; NULL when
 * out of memory. */
char *aril_cuda_fused_source(const aril_fused *f, const aril_cuda_fused_types *t);

/* Options for the compiler: those of the kernels that run single ops, so that results are equal. */
#define ARIL_CUDA_FUSED_OPTIONS "--std=c++17 --fmad=false -w"

ARIL_C_END

#endif
