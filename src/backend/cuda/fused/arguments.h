/* What a generated kernel takes: for the host, and part of the text of each kernel. */
#ifndef ARIL_CUDA_FUSED_ARGUMENTS_H
#define ARIL_CUDA_FUSED_ARGUMENTS_H

#include <stdint.h>

enum {
    ARIL_CUDA_FUSED_DIMS = 8,
    ARIL_CUDA_FUSED_INPUTS = 16,
    ARIL_CUDA_FUSED_OUTPUTS = 4,
    ARIL_CUDA_FUSED_OPERANDS = ARIL_CUDA_FUSED_OUTPUTS + ARIL_CUDA_FUSED_INPUTS,
    ARIL_CUDA_FUSED_THREADS = 256,
    ARIL_CUDA_FINISH_THREADS = 1024
};

/* A key of random numbers: by value, or at an address of the device. */
typedef struct aril_cuda_fused_key {
    uint64_t seed, call;
    const uint64_t *at;
} aril_cuda_fused_key;

/* Operands are the results, and then the inputs: input i is operand ARIL_CUDA_FUSED_OUTPUTS + i. */
typedef struct aril_cuda_fused_arguments {
    void *base[ARIL_CUDA_FUSED_OPERANDS];
    uint64_t number[ARIL_CUDA_FUSED_INPUTS]; /* the bytes of an input that comes by value */
    uint32_t n;                              /* elements of the loop */
    int32_t ndim;
    /* Innermost dimension first: its size, with a multiplier and a shift to divide by it. */
    uint32_t dim[ARIL_CUDA_FUSED_DIMS][3];
    int32_t stride[ARIL_CUDA_FUSED_OPERANDS][ARIL_CUDA_FUSED_DIMS]; /* in elements */
    /* Of kernels by rows: rows, and their length; sums that each of `parts` blocks has taken. */
    uint32_t rows, length, parts;
    void *partial[ARIL_CUDA_FUSED_OUTPUTS];
    aril_cuda_fused_key key[ARIL_CUDA_FUSED_INPUTS];
} aril_cuda_fused_arguments;

#endif
