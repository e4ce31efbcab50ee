/* Steps: what one block of threads computes for a small run. */
#ifndef ARIL_CUDA_SMALL_CUH
#define ARIL_CUDA_SMALL_CUH

#include "backend/cuda/small/small.h"

enum {
    ARIL_CUDA_SMALL_THREADS = 256,
    ARIL_CUDA_SMALL_INPUTS = 5,
    ARIL_CUDA_SMALL_DIMS = 4,
    ARIL_CUDA_SMALL_CHUNK = 16,       /* steps that are loaded at a time */
    ARIL_CUDA_SMALL_SHARED = 36 << 10 /* bytes for values that exist only within a fused run */
};

enum aril_cuda_small_kind : uint8_t {
    ARIL_CUDA_SMALL_FORMULA, /* out[i] = formula(in[0][i], ...) */
    ARIL_CUDA_SMALL_COPY,    /* out[i] = in[0][i] */
    ARIL_CUDA_SMALL_PRODUCT, /* out[i,j] = act(sum over k of in[0][i,k] * in[1][k,j] + in[2][j]) */
    ARIL_CUDA_SMALL_REDUCE   /* out[i] = sum over k of in[0][i,k], divided by `divisor` */
};

/* Operand 0 is the result, operand 1 + i is input i. Strides are in elements. */
struct alignas(16) aril_cuda_small_step {
    aril_cuda_small_kind kind;
    bool wait;      /* for what the threads have written and read before */
    uint8_t ndim;   /* formulas: dimensions, innermost first */
    uint8_t lanes;  /* products, reductions: 1 << lanes threads share an element */
    uint8_t shared; /* bit j: operand j is in shared memory, in the order of the loop; its
                         address is an offset */
    uint8_t activation;
    bool followed;    /* products: the next step is a formula of the result, which the thread that
                        has an element computes too; that step is then skipped */
    uint8_t follows;  /* bit i: input i of such a formula is the product */
    uint16_t formula; /* ARIL__FORMULA_... */
    uint32_t n;       /* elements of the result */
    uint32_t terms;   /* products, reductions: of each element */
    float divisor, p[3];
    float value[ARIL_CUDA_SMALL_INPUTS]; /* of inputs without an address */
    /* Formulas: sizes. Products: rows and columns. Reductions: two that stay, two that go. */
    uint32_t dim[ARIL_CUDA_SMALL_DIMS];
    int32_t stride[1 + ARIL_CUDA_SMALL_INPUTS][ARIL_CUDA_SMALL_DIMS];
    const float *in[ARIL_CUDA_SMALL_INPUTS];
    float *out;
};

#endif
