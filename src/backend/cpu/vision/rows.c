/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/vision/rows.h"

#include "backend/cpu/vision/conv.h"
#include "backend/cpu/vision/grid_sample.h"
#include "backend/cpu/vision/pool.h"
#include "backend/cpu/vision/resample.h"

#define CONV(op_, last_)                                                     \
    {                                                                        \
        .op = #op_, .name = "cpu_conv", .dtypes = DT_FLOAT, .strided = true, \
        .channels_last = (last_), .run = aril__cpu_conv                      \
    }

/* Of tensors of any strides. Integers are staged through i64, which cannot order u64. */
#define MAX_POOL(op_, dtypes_, run_)                                                       \
    {                                                                                      \
        .op = #op_, .name = #run_, .dtypes = (dtypes_), .native = DT_FLOAT | DT(ARIL_I64), \
        .strided = true, .run = aril__##run_                                               \
    }
#define STRIDES(op_, run_)                                                                  \
    {                                                                                       \
        .op = #op_, .name = #run_, .dtypes = DT_FLOAT, .strided = true, .run = aril__##run_ \
    }

/* Of contiguous tensors; f16 and bf16 are staged through f32. */
#define STAGED(op_, run_)                                                                     \
    {                                                                                         \
        .op = #op_, .name = #run_, .dtypes = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), \
        .run = aril__##run_                                                                   \
    }

const aril__row aril__cpu_vision_rows[] = {
    CONV(conv, true),
    CONV(conv_dgrad, true),
    CONV(conv_wgrad, false),
    CONV(conv_transpose, true),

    MAX_POOL(max_pool, (DT_FLOAT | DT_INT) & ~DT(ARIL_U64), cpu_max_pool),
    MAX_POOL(adaptive_max_pool, (DT_FLOAT | DT_INT) & ~DT(ARIL_U64), cpu_max_pool),
    MAX_POOL(max_pool_grad, DT_FLOAT | DT_INT, cpu_max_pool_grad),
    MAX_POOL(max_pool_pick, DT_FLOAT | DT_INT, cpu_max_pool_pick),
    MAX_POOL(max_unpool, DT_FLOAT | DT_INT, cpu_max_pool_grad),

    STRIDES(avg_pool, cpu_avg_pool),
    STRIDES(avg_pool_grad, cpu_avg_pool_grad),
    STRIDES(adaptive_avg_pool, cpu_avg_pool),
    STRIDES(adaptive_avg_pool_grad, cpu_avg_pool_grad),

    STRIDES(interpolate, cpu_interpolate),
    STRIDES(interpolate_grad, cpu_interpolate_grad),

    STAGED(grid_sample, cpu_grid_sample),
    STAGED(grid_sample_grad_x, cpu_grid_sample_grad_x),
    STAGED(grid_sample_grad_grid, cpu_grid_sample_grad_grid),

    { 0 }
};
