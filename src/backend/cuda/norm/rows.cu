#include "backend/cuda/norm/rows.cuh"

#include "backend/cuda/rows.cuh"

#define ROW(op_, ...)                                                               \
    {                                                                               \
        .op = #op_, .name = "cuda_norm", .dtypes = ARIL_CUDA_DT_FLOAT, __VA_ARGS__, \
        .run = aril_cuda_##op_##_run                                                \
    }
#define PLAIN(op_)                                                     \
    {                                                                  \
        .op = #op_, .name = "cuda_norm", .dtypes = ARIL_CUDA_DT_FLOAT, \
        .run = aril_cuda_##op_##_run                                   \
    }
#define PREPARED(op_) ROW(op_, .prepare = aril_cuda_##op_##_prepare)
#define WORKING(op_)  ROW(op_, .workspace = aril_cuda_##op_##_workspace)

const aril_row aril_cuda_norm_rows[] = {
    PLAIN(softmax),
    PLAIN(log_softmax),
    PLAIN(softmax_grad),
    PLAIN(log_softmax_grad),
    PREPARED(batch_norm),
    PREPARED(batch_norm_grad),
    PREPARED(batch_norm_eval),
    PLAIN(layer_norm),
    WORKING(layer_norm_grad),
    PLAIN(rms_norm),
    WORKING(rms_norm_grad),
    PREPARED(group_norm),
    PREPARED(group_norm_grad),
    PREPARED(local_response_norm),
    PREPARED(local_response_norm_grad),
    {},
};
