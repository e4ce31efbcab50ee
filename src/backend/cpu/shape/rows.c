/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/shape/rows.h"

#include "backend/cpu/shape/pad.h"
#include "backend/cpu/shape/shape.h"
#include "ops/index/indexing.h"

/* Padding of channels-last tensors. */
#define PAD_LAST(op_, dtypes_)                                                         \
    {                                                                                  \
        .op = #op_, .name = "cpu_" #op_ "_last", .dtypes = (dtypes_), .strided = true, \
        .prepare = aril__cpu_pad_last_prepare, .run = aril__cpu_##op_##_last           \
    }
#define ROW(op_, dtypes_)                                                            \
    {                                                                                \
        .op = #op_, .name = "cpu_" #op_, .dtypes = (dtypes_), .run = aril__cpu_##op_ \
    }

const aril__row aril__cpu_shape_rows[] = { PAD_LAST(pad, DT_COMPUTE),
                                           PAD_LAST(pad_grad, DT(ARIL_F32) | DT(ARIL_F64)),
                                           ROW(pad, DT_WHOLE_BYTES),
                                           { .op = "pad_grad",
                                             .name = "cpu_pad_grad",
                                             .dtypes = DT_FLOAT,
                                             .native = DT(ARIL_F32) | DT(ARIL_F64),
                                             .run = aril__cpu_pad_grad },

                                           ROW(roll, DT_COMPUTE),
                                           ROW(tril, DT_COMPUTE),
                                           ROW(triu, DT_COMPUTE),
                                           ROW(unfold_view_grad, DT_FLOAT),
                                           ROW(arange, DT_COMPUTE),
                                           ROW(linspace, DT_COMPUTE),
                                           { 0 } };
