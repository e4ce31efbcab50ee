/* Rows of this room; the list ends with an empty row. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/index/index.cuh"
#include "backend/cuda/rows.cuh"
#include "ops/index/embedding_bag.h"
#include "ops/index/gather.h"
#include "ops/index/index.h"
#include "ops/index/masked.h"

/* What sums and products along an axis compute in; others are converted. */
#define WIDE                                                                    \
    (ARIL_CUDA_DT(ARIL_F32) | ARIL_CUDA_DT(ARIL_F64) | ARIL_CUDA_DT(ARIL_I64) | \
     ARIL_CUDA_DT(ARIL_U64))

/* Elements are only moved: any dtype of whole bytes. */
#define MOVES(op_, run_, strided_, layout_, ...)                                             \
    {                                                                                        \
        .op = #op_, .name = "cuda_" #op_, .dtypes = ARIL_CUDA_DT_BYTES, .strided = strided_, \
        .layout = layout_, __VA_ARGS__.run = run_                                            \
    }
#define COMPUTES(op_, run_, dtypes_, native_, layout_, bytes_)                                     \
    {                                                                                              \
        .op = #op_, .name = "cuda_" #op_, .dtypes = dtypes_, .native = native_, .layout = layout_, \
        .workspace = bytes_, .run = run_                                                           \
    }
#define SCATTERS(op_)                                                \
    COMPUTES(op_, aril_cuda_##op_##_run, ARIL_CUDA_DT_COMPUTE, WIDE, \
             ARIL_CUDA_LAYOUT(SCATTER_ATTRS), aril_cuda_scatter_bytes)
#define BAGS(op_, run_, bytes_) \
    COMPUTES(op_, run_, ARIL_CUDA_DT_FLOAT, 0, ARIL_CUDA_LAYOUT(BAG_ATTRS), bytes_)

const aril_row aril_cuda_index_rows[] = {
    MOVES(index, aril_cuda_index_run, true, ARIL_CUDA_LAYOUT(INDEX_ATTRS),
          .workspace = aril_cuda_index_bytes, ),
    MOVES(index_select, aril_cuda_index_select_run, true, ARIL_CUDA_LAYOUT(INDEX_SELECT_ATTRS), ),
    MOVES(embedding, aril_cuda_embedding_run, true, ARIL_CUDA_LAYOUT(EMBEDDING_ATTRS), ),
    MOVES(gather, aril_cuda_gather_run, true, ARIL_CUDA_LAYOUT(GATHER_ATTRS),
          .workspace = aril_cuda_gather_bytes, ),
    MOVES(index_put, aril_cuda_index_put_run, false, ARIL_CUDA_LAYOUT(INDEX_ATTRS),
          .workspace = aril_cuda_index_put_bytes, ),
    MOVES(scatter, aril_cuda_scatter_run, false, ARIL_CUDA_LAYOUT(SCATTER_ATTRS),
          .workspace = aril_cuda_scatter_bytes, ),
    COMPUTES(index_put_add, aril_cuda_index_put_add_run, ARIL_CUDA_DT_COMPUTE,
             WIDE | ARIL_CUDA_DT_FLOAT, ARIL_CUDA_LAYOUT(INDEX_ATTRS), aril_cuda_index_put_bytes),
    COMPUTES(embedding_grad, aril_cuda_embedding_grad_run, ARIL_CUDA_DT_FLOAT, 0,
             ARIL_CUDA_LAYOUT(EMBEDDING_ATTRS), aril_cuda_embedding_grad_bytes),
    SCATTERS(scatter_add),
    SCATTERS(scatter_mul),
    SCATTERS(scatter_max),
    SCATTERS(scatter_min),

    COMPUTES(nonzero, aril_cuda_nonzero_run, ARIL_CUDA_DT_COMPUTE, 0, nullptr,
             aril_cuda_masked_bytes),
    MOVES(masked_select, aril_cuda_masked_select_run, false, nullptr,
          .workspace = aril_cuda_masked_bytes, ),
    MOVES(masked_scatter, aril_cuda_masked_scatter_run, false, nullptr,
          .workspace = aril_cuda_masked_bytes, ),
    MOVES(masked_scatter_grad, aril_cuda_masked_scatter_grad_run, false, nullptr,
          .workspace = aril_cuda_masked_bytes, ),
    COMPUTES(one_hot, aril_cuda_one_hot_run, ARIL_CUDA_DT_COMPUTE, 0,
             ARIL_CUDA_LAYOUT(ONE_HOT_ATTRS), nullptr),

    BAGS(embedding_bag, aril_cuda_bag_run, aril_cuda_bag_bytes),
    BAGS(embedding_bag_grad, aril_cuda_bag_grad_run, aril_cuda_bag_grad_bytes),
    BAGS(embedding_bag_scale_grad, aril_cuda_bag_scale_grad_run, aril_cuda_bag_scale_grad_bytes),
    BAGS(embedding_bag_argmax, aril_cuda_bag_argmax_run, aril_cuda_bag_bytes),
    {},
};
