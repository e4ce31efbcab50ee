#include "backend/cuda/loss/rows.cuh"

#include "backend/cuda/rows.cuh"

#define ROW(op_)                                                       \
    {                                                                  \
        .op = #op_, .name = "cuda_loss", .dtypes = ARIL_CUDA_DT_FLOAT, \
        .run = aril_cuda_##op_##_run                                   \
    }
#define WORKING(op_)                                                           \
    {                                                                          \
        .op = #op_, .name = "cuda_loss", .dtypes = ARIL_CUDA_DT_FLOAT,         \
        .workspace = aril_cuda_##op_##_workspace, .run = aril_cuda_##op_##_run \
    }

const aril_row aril_cuda_loss_rows[] = {
    WORKING(nll_loss),
    WORKING(nll_loss_grad),
    WORKING(cross_entropy),
    WORKING(cross_entropy_grad),
    ROW(multi_margin_loss),
    ROW(multi_margin_loss_grad),
    ROW(multilabel_margin_loss),
    ROW(multilabel_margin_loss_grad),
    WORKING(ctc_loss),
    WORKING(ctc_loss_grad),
    {},
};
