/* Elementwise ops: what the kernels take, and the tables in which they are found. */
#ifndef ARIL_CUDA_ELEMENTWISE_CUH
#define ARIL_CUDA_ELEMENTWISE_CUH

#include "backend/cuda/device/errors.cuh"
#include "backend/cuda/loops.cuh"
#include "ops/elementwise/numbers.h"

enum { ARIL_CUDA_EW_INPUTS = 5, ARIL_CUDA_EW_THREADS = 128 };

/* Elements of a chunk: 32 bytes of the widest dtype of a compute type, 16 of f16 and bf16. */
template <typename T> struct aril_cuda_ew_chunk {
    enum { size = 32 / sizeof(T) };
    T at[size];
};

/* How an input reaches the kernel. */
enum aril_cuda_ew_feed {
    ARIL_CUDA_EW_ABSENT, /* the formula does not use it */
    ARIL_CUDA_EW_VALUE,  /* a number: `value` */
    ARIL_CUDA_EW_TENSOR
};

/* Operand 0 is the result, operand 1 + i is input i. */
template <typename T> struct aril_cuda_ew_args {
    void *base[1 + ARIL_CUDA_EW_INPUTS];
    aril_cuda_nest<1 + ARIL_CUDA_EW_INPUTS> nest;
    uint32_t n;       /* elements */
    uint16_t formula; /* ARIL__FORMULA_... */
    bool vectors;     /* chunks of neighbours are contiguous (or one element) and aligned */
    bool spread;      /* and those of all tensors are of 32 bytes (or one element) */
    uint8_t dtype[1 + ARIL_CUDA_EW_INPUTS];
    uint8_t size[1 + ARIL_CUDA_EW_INPUTS];  /* bytes of an element */
    uint8_t bytes[1 + ARIL_CUDA_EW_INPUTS]; /* and of a chunk */
    uint8_t feed[1 + ARIL_CUDA_EW_INPUTS];
    bool splat[1 + ARIL_CUDA_EW_INPUTS]; /* all elements of a chunk are the same one */
    T value[1 + ARIL_CUDA_EW_INPUTS];
    T p[3];
    aril_cuda_report report;
};

/* Kernels by the number of a formula; NULL where the type does not apply. Each table has the
 * formulas themselves, or their gradients. */
extern const void *const aril_cuda_ew_f32[ARIL__FORMULA_COUNT];
extern const void *const aril_cuda_ew_f32_grads[ARIL__FORMULA_COUNT];
extern const void *const aril_cuda_ew_f64[ARIL__FORMULA_COUNT];
extern const void *const aril_cuda_ew_f64_grads[ARIL__FORMULA_COUNT];
extern const void *const aril_cuda_ew_i64[ARIL__FORMULA_COUNT];
extern const void *const aril_cuda_ew_u64[ARIL__FORMULA_COUNT];

/* Kernels of a single formula, for operands of one dtype; NULL where there is none. */
struct aril_cuda_ew_own {
    const void *small;   /* small.cuh */
    const void *aligned; /* aligned.cuh */
};
extern const aril_cuda_ew_own aril_cuda_ew_f32_own[ARIL__FORMULA_COUNT];
extern const aril_cuda_ew_own aril_cuda_ew_f32_grads_own[ARIL__FORMULA_COUNT];

#endif
