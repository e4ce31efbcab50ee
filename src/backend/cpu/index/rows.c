/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/index/kernels.h"
#include "ops/index/embedding_bag.h"
#include "ops/index/indexing.h"

/* What rows that compute do so in; rows that only move elements have no .native. */
#define NATIVE (F32_F64 | DT(ARIL_I64) | DT(ARIL_U64))

const aril__row aril__cpu_index_rows[] = {
    KERNEL(gather, cpu_gather, .dtypes = DT_WHOLE_BYTES, .strided = true),
    KERNEL(scatter, cpu_scatter, .dtypes = DT_WHOLE_BYTES, .strided = true),
    KERNEL(scatter_add, cpu_scatter_add, .dtypes = DT_COMPUTE, .native = NATIVE, .strided = true),
    KERNEL(scatter_mul, cpu_scatter_mul, .dtypes = DT_COMPUTE, .native = NATIVE, .strided = true),
    KERNEL(scatter_max, cpu_scatter_max, .dtypes = DT_COMPUTE, .native = NATIVE, .strided = true),
    KERNEL(scatter_min, cpu_scatter_min, .dtypes = DT_COMPUTE, .native = NATIVE, .strided = true),

    KERNEL(index, cpu_index, .dtypes = DT_WHOLE_BYTES, .strided = true,
           .workspace = aril__cpu_index_scratch),
    KERNEL(index_select, cpu_index_select, .dtypes = DT_WHOLE_BYTES, .strided = true,
           .workspace = aril__cpu_index_select_scratch),
    KERNEL(index_put, cpu_index_put, .dtypes = DT_WHOLE_BYTES, .strided = true,
           .workspace = aril__cpu_index_put_scratch),
    KERNEL(index_put_add, cpu_index_put_add, .dtypes = DT_COMPUTE, .native = NATIVE,
           .strided = true, .workspace = aril__cpu_index_put_scratch),
    KERNEL(embedding, cpu_embedding, .dtypes = DT_WHOLE_BYTES, .strided = true,
           .workspace = aril__cpu_index_select_scratch),
    KERNEL(embedding_grad, cpu_embedding_grad, .dtypes = DT_FLOAT, .native = NATIVE,
           .workspace = aril__cpu_index_select_scratch),

    KERNEL(nonzero, cpu_nonzero, .dtypes = DT_COMPUTE, .workspace = aril__cpu_nonzero_scratch),
    KERNEL(masked_select, cpu_masked_select, .dtypes = DT_WHOLE_BYTES, .strided = true),
    KERNEL(masked_scatter, cpu_masked_scatter, .dtypes = DT_WHOLE_BYTES, .strided = true,
           .workspace = aril__cpu_masked_scatter_scratch),
    KERNEL(masked_scatter_grad, cpu_masked_scatter_grad, .dtypes = DT_WHOLE_BYTES),

    KERNEL(embedding_bag, cpu_embedding_bag, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__bags_scratch),
    KERNEL(embedding_bag_grad, cpu_embedding_bag_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__bags_scratch),
    KERNEL(embedding_bag_scale_grad, cpu_embedding_bag_scale_grad, .dtypes = DT_FLOAT,
           .native = F32_F64, .workspace = aril__bags_scratch),
    KERNEL(embedding_bag_argmax, cpu_embedding_bag_argmax, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__bags_scratch),
    { 0 },
};
