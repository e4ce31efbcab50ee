/* Rows of ops that rearrange or sum elements; the list ends with an empty row. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/shape/rearrange.cuh"
#include "ops/shape/concat.h"
#include "ops/shape/create.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

#define ROW(op_, dtypes_, strided_, layout_, ...)                                 \
    {                                                                             \
        .op = #op_, .name = "cuda_" #op_, .dtypes = dtypes_, .strided = strided_, \
        .layout = layout_, __VA_ARGS__.run = aril_cuda_##op_##_run                \
    }

const aril_row aril_cuda_rearrange_rows[] = {
    ROW(cat, ARIL_CUDA_DT_BYTES, true, ARIL_CUDA_LAYOUT(CAT_ATTRS), ),
    ROW(pad_like, ARIL_CUDA_DT_BYTES, false, ARIL_CUDA_LAYOUT(NARROW_LIKE_ATTRS), ),
    ROW(repeat, ARIL_CUDA_DT_BYTES, false, ARIL_CUDA_LAYOUT(REPEAT_ATTRS), ),
    ROW(repeat_grad, ARIL_CUDA_DT_FLOAT, false, ARIL_CUDA_LAYOUT(REPEAT_ATTRS),
        .workspace = aril_cuda_repeat_grad_bytes, ),
    ROW(pad, ARIL_CUDA_DT_BYTES, true, ARIL_CUDA_LAYOUT(PAD_ATTRS),
        .prepare = aril_cuda_pad_prepare, ),
    ROW(pad_grad, ARIL_CUDA_DT_FLOAT, true, ARIL_CUDA_LAYOUT(PAD_ATTRS), ),
    ROW(roll, ARIL_CUDA_DT_COMPUTE, true, ARIL_CUDA_LAYOUT(ROLL_ATTRS), ),
    ROW(tril, ARIL_CUDA_DT_COMPUTE, false, ARIL_CUDA_LAYOUT(TRIANGLE_ATTRS), ),
    ROW(triu, ARIL_CUDA_DT_COMPUTE, false, ARIL_CUDA_LAYOUT(TRIANGLE_ATTRS), ),
    ROW(unfold_view_grad, ARIL_CUDA_DT_FLOAT, false, ARIL_CUDA_LAYOUT(UNFOLD_VIEW_ATTRS), ),
    ROW(sum_to_like, ARIL_CUDA_DT_COMPUTE, true, nullptr,
        .workspace = aril_cuda_sum_to_like_bytes, ),
    {},
};
