/* Rows of this room; the list ends with an empty row. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/random/random.cuh"
#include "backend/cuda/rows.cuh"
#include "ops/random/dropout.h"
#include "ops/shape/create.h"

#define CREATES(op_, dtypes_)                                                  \
    {                                                                          \
        .op = #op_, .name = "cuda_" #op_, .dtypes = dtypes_,                   \
        .layout = ARIL_CUDA_LAYOUT(CREATE_ATTRS), .run = aril_cuda_##op_##_run \
    }

const aril_row aril_cuda_random_rows[] = {
    CREATES(rand, ARIL_CUDA_DT_FLOAT),
    CREATES(randn, ARIL_CUDA_DT_FLOAT),
    CREATES(randint, ARIL_CUDA_DT_COMPUTE),
    CREATES(bernoulli_fill, ARIL_CUDA_DT_COMPUTE),
    { .op = "bernoulli",
      .name = "cuda_bernoulli",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .run = aril_cuda_bernoulli_run },
    { .op = "randperm",
      .name = "cuda_randperm",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .workspace = aril_cuda_randperm_bytes,
      .run = aril_cuda_randperm_run },
    { .op = "multinomial",
      .name = "cuda_multinomial",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .native = ARIL_CUDA_DT(ARIL_F32) | ARIL_CUDA_DT(ARIL_F64),
      .workspace = aril_cuda_multinomial_bytes,
      .run = aril_cuda_multinomial_run },
    { .op = "dropout",
      .name = "cuda_dropout",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .layout = ARIL_CUDA_LAYOUT(DROPOUT_ATTRS),
      .run = aril_cuda_dropout_run },
    {},
};
