/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/shape/shape.cuh"
#include "ops/shape/create.h"

static const uint32_t any_dtype = (1u << (ARIL_U2 + 1)) - 1;

const aril_row aril_cuda_shape_rows[] = {
    { .op = "copy",
      .name = "cuda_copy",
      .dtypes = any_dtype,
      .strided = true,
      .prepare = aril_cuda_cast_prepare,
      .run = aril_cuda_copy_run },
    { .op = "cast",
      .name = "cuda_cast",
      .dtypes = any_dtype,
      .strided = true,
      .prepare = aril_cuda_cast_prepare,
      .run = aril_cuda_cast_run },
    { .op = "full",
      .name = "cuda_full",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .strided = true,
      .run = aril_cuda_full_run },
    { .op = "full_like",
      .name = "cuda_full",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .strided = true,
      .run = aril_cuda_full_run },
    { .op = "count_like",
      .name = "cuda_full",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .strided = true,
      .run = aril_cuda_count_like_run },
    { .op = "arange",
      .name = "cuda_arange",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .layout = ARIL_CUDA_LAYOUT(CREATE_ATTRS),
      .run = aril_cuda_arange_run },
    { .op = "linspace",
      .name = "cuda_linspace",
      .dtypes = ARIL_CUDA_DT_COMPUTE,
      .layout = ARIL_CUDA_LAYOUT(CREATE_ATTRS),
      .run = aril_cuda_linspace_run },
    { .op = "eye", .name = "cuda_eye", .dtypes = ARIL_CUDA_DT_COMPUTE, .run = aril_cuda_eye_run },
    {},
};
