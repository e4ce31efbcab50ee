/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/index/rows.h"

#include "backend/cpu/index/kernels.h"
#include "ops/index/indexing.h"

#define NATIVE (DT(ARIL_F32) | DT(ARIL_F64) | DT(ARIL_I64) | DT(ARIL_U64))

/* Rows that move elements of any dtype, and rows that compute. */
#define MOVES(op_, dtypes_, strided_)                                                \
    {                                                                                \
        .op = #op_, .name = "cpu_" #op_, .dtypes = (dtypes_), .strided = (strided_), \
        .run = aril__cpu_##op_                                                       \
    }
#define COMPUTES(op_, dtypes_, native_, strided_)                                  \
    {                                                                              \
        .op = #op_, .name = "cpu_" #op_, .dtypes = (dtypes_), .native = (native_), \
        .strided = (strided_), .run = aril__cpu_##op_                              \
    }

const aril__row aril__cpu_index_rows[] = {
    MOVES(gather, DT_WHOLE_BYTES, true),
    MOVES(scatter, DT_WHOLE_BYTES, true),
    COMPUTES(scatter_add, DT_COMPUTE, NATIVE, true),
    COMPUTES(scatter_mul, DT_COMPUTE, NATIVE, true),
    COMPUTES(scatter_max, DT_COMPUTE, NATIVE, true),
    COMPUTES(scatter_min, DT_COMPUTE, NATIVE, true),

    MOVES(index, DT_WHOLE_BYTES, true),
    MOVES(index_select, DT_WHOLE_BYTES, true),
    MOVES(index_put, DT_WHOLE_BYTES, true),
    COMPUTES(index_put_add, DT_COMPUTE, NATIVE, true),
    MOVES(embedding, DT_WHOLE_BYTES, true),
    COMPUTES(embedding_grad, DT_FLOAT, NATIVE, false),

    MOVES(nonzero, DT_COMPUTE, false),
    MOVES(masked_select, DT_WHOLE_BYTES, true),
    MOVES(masked_scatter, DT_WHOLE_BYTES, true),
    MOVES(masked_scatter_grad, DT_WHOLE_BYTES, false),

    COMPUTES(embedding_bag, DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64), false),
    COMPUTES(embedding_bag_grad, DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64), false),
    COMPUTES(embedding_bag_scale_grad, DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64), false),
    COMPUTES(embedding_bag_argmax, DT_FLOAT, DT(ARIL_F32) | DT(ARIL_F64), false),
    { 0 }
};
