/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/vision/conv.h"
#include "backend/cpu/vision/conv_int8.h"
#include "backend/cpu/vision/grid_sample.h"
#include "backend/cpu/vision/pool.h"
#include "backend/cpu/vision/resample.h"

const aril__row aril__cpu_vision_rows[] = {
    KERNEL(conv, cpu_conv, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_prepare),
    KERNEL(conv_add, cpu_conv, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_prepare),
    KERNEL(conv_dgrad, cpu_conv, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_prepare),
    KERNEL(conv_wgrad, cpu_conv, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_prepare),
    KERNEL(conv_transpose, cpu_conv, .dtypes = DT_FLOAT, .native = F32_F64, .strided = true,
           .prepare = aril__cpu_conv_prepare),
    KERNEL(conv_integer, cpu_conv_int8, .dtypes = DT(ARIL_U8) | DT(ARIL_I8), .strided = true,
           .prepare = aril__cpu_conv_int8_prepare),

    /* Integers are staged through i64, which cannot order u64. */
    KERNEL(max_pool, cpu_max_pool, .dtypes = (DT_FLOAT | DT_INT) & ~DT(ARIL_U64),
           .native = DT_FLOAT | DT(ARIL_I64), .strided = true, .workspace = aril__cpu_pool_scratch),
    KERNEL(adaptive_max_pool, cpu_max_pool, .dtypes = (DT_FLOAT | DT_INT) & ~DT(ARIL_U64),
           .native = DT_FLOAT | DT(ARIL_I64), .strided = true, .workspace = aril__cpu_pool_scratch),
    KERNEL(max_pool_grad, cpu_max_pool_grad, .dtypes = DT_FLOAT | DT_INT,
           .native = DT_FLOAT | DT(ARIL_I64), .strided = true,
           .prepare = aril__cpu_pool_scatter_prepare),
    KERNEL(max_pool_pick, cpu_max_pool_pick, .dtypes = DT_FLOAT | DT_INT,
           .native = DT_FLOAT | DT(ARIL_I64), .strided = true,
           .prepare = aril__cpu_pool_index_prepare),
    KERNEL(max_unpool, cpu_max_pool_grad, .dtypes = DT_FLOAT | DT_INT,
           .native = DT_FLOAT | DT(ARIL_I64), .strided = true,
           .prepare = aril__cpu_pool_scatter_prepare),

    KERNEL(avg_pool, cpu_avg_pool, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_pool_scratch),
    KERNEL(avg_pool_grad, cpu_avg_pool_grad, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_avg_pool_grad_scratch),
    KERNEL(adaptive_avg_pool, cpu_avg_pool, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_pool_scratch),
    KERNEL(adaptive_avg_pool_grad, cpu_avg_pool_grad, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_avg_pool_grad_scratch),

    KERNEL(interpolate, cpu_interpolate, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_interpolate_scratch),
    KERNEL(interpolate_grad, cpu_interpolate_grad, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_interpolate_grad_scratch),

    KERNEL(grid_sample, cpu_grid_sample, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(grid_sample_grad_x, cpu_grid_sample_grad_x, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(grid_sample_grad_grid, cpu_grid_sample_grad_grid, .dtypes = DT_FLOAT, .native = F32_F64),

    { 0 },
};
