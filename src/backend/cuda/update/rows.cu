/* Rows of this room; the list ends with an empty row. */
#include "backend/cuda/rows.cuh"
#include "backend/cuda/update/update.cuh"

/* The layout of update_attrs. */
#define TYPE_NUMBER                      "F64"
#define TYPE_FLAG                        "I64"
#define OPTION(name, type, scope, below) #name " " TYPE_##type " 1; "
#define LAYOUT                           "rule I64 1; missed I64 1; " OPTIM_OPTIONS(OPTION, NOTHING)

const aril_row aril_cuda_update_rows[] = {
    { .op = "update",
      .name = "cuda_update",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .layout = LAYOUT,
      .workspace = aril_cuda_update_bytes,
      .run = aril_cuda_update_run },
    { .op = "update_norms",
      .name = "cuda_update_norms",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .layout = LAYOUT,
      .workspace = aril_cuda_update_norms_bytes,
      .run = aril_cuda_update_norms_run },
    {},
};
