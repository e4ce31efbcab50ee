/* Rows of convolution, pooling and resampling, fastest first. */
#include "backend/cuda/vision/conv.cuh"
#include "backend/cuda/vision/conv_library.cuh"
#include "backend/cuda/vision/grid_sample.cuh"
#include "backend/cuda/vision/pool.cuh"
#include "backend/cuda/vision/resample.cuh"
#include "backend/cuda/vision/unfold.cuh"
#include "ops/vision/resample.h"

#include "backend/cuda/rows.cuh"

enum {
    NUMBERS = ARIL_CUDA_DT_FLOAT | ARIL_CUDA_DT_INT,
    /* Maxima and sums of integers are computed in 64 bits. */
    WIDE = ARIL_CUDA_DT_FLOAT | ARIL_CUDA_DT(ARIL_I64) | ARIL_CUDA_DT(ARIL_U64),
};

#define CONV           ARIL_CUDA_LAYOUT(CONV_ATTRS)
#define CONV_TRANSPOSE ARIL_CUDA_LAYOUT(CONV_TRANSPOSE_ATTRS)
#define POOL           ARIL_CUDA_LAYOUT(POOL_ATTRS)
#define INTERPOLATE    ARIL_CUDA_LAYOUT(INTERPOLATE_ATTRS)

#define DIRECT(op_, layout_, run_)                                                     \
    {                                                                                  \
        .op = op_, .name = "cuda_" op_, .dtypes = ARIL_CUDA_DT_FLOAT, .strided = true, \
        .layout = layout_, .prepare = aril_cuda_conv_prepare, .run = run_              \
    }
#define DNN(op_, layout_, prepare_)                                                \
    {                                                                              \
        .op = op_, .name = "cudnn", .dtypes = ARIL_CUDA_DT_FLOAT, .strided = true, \
        .layout = layout_, .prepare = prepare_, .run = aril_cuda_conv_library_run, \
        .destroy = aril_cuda_conv_library_destroy                                  \
    }
#define MAX_POOLING(op_, run_)                                                              \
    {                                                                                       \
        .op = op_, .name = "cuda_" op_, .dtypes = NUMBERS, .native = WIDE, .strided = true, \
        .layout = POOL, .prepare = aril_cuda_pool_prepare, .run = run_                      \
    }
#define AVG_POOLING(op_, run_)                                                         \
    {                                                                                  \
        .op = op_, .name = "cuda_" op_, .dtypes = ARIL_CUDA_DT_FLOAT, .strided = true, \
        .layout = POOL, .prepare = aril_cuda_pool_prepare, .run = run_                 \
    }
#define COLUMNS(op_, run_)                                            \
    {                                                                 \
        .op = op_, .name = "cuda_" op_, .dtypes = ARIL_CUDA_DT_FLOAT, \
        .prepare = aril_cuda_unfold_prepare, .run = run_              \
    }

const aril_row aril_cuda_vision_rows[] = {
    DNN("conv", CONV, aril_cuda_conv_library_prepare),
    DIRECT("conv", CONV, aril_cuda_conv_run),
    DNN("conv_add", CONV, aril_cuda_conv_library_prepare),
    DIRECT("conv_add", CONV, aril_cuda_conv_run),
    DNN("conv_dgrad", CONV, aril_cuda_conv_dgrad_library_prepare),
    DIRECT("conv_dgrad", CONV, aril_cuda_conv_dgrad_run),
    DNN("conv_dgrad_add", CONV, aril_cuda_conv_dgrad_library_prepare),
    DIRECT("conv_dgrad_add", CONV, aril_cuda_conv_dgrad_run),
    DNN("conv_wgrad", CONV, aril_cuda_conv_wgrad_library_prepare),
    DIRECT("conv_wgrad", CONV, aril_cuda_conv_wgrad_run),
    DNN("conv_transpose", CONV_TRANSPOSE, aril_cuda_conv_transpose_library_prepare),
    DIRECT("conv_transpose", CONV_TRANSPOSE, aril_cuda_conv_transpose_run),

    MAX_POOLING("max_pool", aril_cuda_max_pool_run),
    MAX_POOLING("adaptive_max_pool", aril_cuda_adaptive_max_pool_run),
    AVG_POOLING("avg_pool", aril_cuda_avg_pool_run),
    AVG_POOLING("adaptive_avg_pool", aril_cuda_adaptive_avg_pool_run),
    AVG_POOLING("avg_pool_grad", aril_cuda_avg_pool_grad_run),
    AVG_POOLING("adaptive_avg_pool_grad", aril_cuda_adaptive_avg_pool_grad_run),
    { .op = "max_pool_grad",
      .name = "cuda_max_pool_grad",
      .dtypes = NUMBERS,
      .native = WIDE,
      .strided = true,
      .layout = ARIL_CUDA_LAYOUT(MAX_POOL_GRAD_ATTRS),
      .prepare = aril_cuda_max_pool_grad_prepare,
      .run = aril_cuda_max_pool_grad_run },
    { .op = "max_pool_pick",
      .name = "cuda_max_pool_pick",
      .dtypes = NUMBERS,
      .strided = true,
      .prepare = aril_cuda_pool_index_prepare,
      .run = aril_cuda_max_pool_pick_run },
    { .op = "max_unpool",
      .name = "cuda_max_unpool",
      .dtypes = NUMBERS,
      .strided = true,
      .prepare = aril_cuda_max_unpool_prepare,
      .run = aril_cuda_max_unpool_run },

    COLUMNS("unfold", aril_cuda_unfold_run),
    COLUMNS("unfold_grad", aril_cuda_fold_run),
    COLUMNS("fold", aril_cuda_fold_run),

    { .op = "interpolate",
      .name = "cuda_interpolate",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .layout = INTERPOLATE,
      .prepare = aril_cuda_interpolate_prepare,
      .run = aril_cuda_interpolate_run },
    { .op = "interpolate_grad",
      .name = "cuda_interpolate_grad",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .layout = INTERPOLATE,
      .prepare = aril_cuda_interpolate_grad_prepare,
      .run = aril_cuda_interpolate_grad_run },

    { .op = "grid_sample",
      .name = "cuda_grid_sample",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .prepare = aril_cuda_grid_sample_prepare,
      .run = aril_cuda_grid_sample_run },
    { .op = "grid_sample_grad_x",
      .name = "cuda_grid_sample_grad_x",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .prepare = aril_cuda_grid_sample_grad_x_prepare,
      .run = aril_cuda_grid_sample_grad_x_run },
    { .op = "grid_sample_grad_grid",
      .name = "cuda_grid_sample_grad_grid",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .strided = true,
      .prepare = aril_cuda_grid_sample_prepare,
      .run = aril_cuda_grid_sample_grad_grid_run },
    {},
};
