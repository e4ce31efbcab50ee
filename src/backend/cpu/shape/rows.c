/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/shape/pad.h"
#include "backend/cpu/shape/shape.h"
#include "ops/index/indexing.h"

/* Kernels named _last are for channels-last tensors. */
const aril__row aril__cpu_shape_rows[] = {
    KERNEL(pad, cpu_pad_last, .dtypes = DT_COMPUTE, .strided = true,
           .prepare = aril__cpu_pad_last_prepare),
    KERNEL(pad_grad, cpu_pad_grad_last, .dtypes = F32_F64, .strided = true,
           .prepare = aril__cpu_pad_grad_last_prepare),
    KERNEL(pad, cpu_pad, .dtypes = DT_WHOLE_BYTES, .workspace = aril__cpu_pad_scratch),
    KERNEL(pad_grad, cpu_pad_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_pad_grad_scratch),

    KERNEL(roll, cpu_roll, .dtypes = DT_COMPUTE),
    KERNEL(tril, cpu_tril, .dtypes = DT_COMPUTE),
    KERNEL(triu, cpu_triu, .dtypes = DT_COMPUTE),
    KERNEL(unfold_view_grad, cpu_unfold_view_grad, .dtypes = DT_FLOAT),
    KERNEL(arange, cpu_arange, .dtypes = DT_COMPUTE),
    KERNEL(linspace, cpu_linspace, .dtypes = DT_COMPUTE),
    { 0 },
};
