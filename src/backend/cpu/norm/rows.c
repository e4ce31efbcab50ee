/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/norm/batch_norm.h"
#include "backend/cpu/norm/group_norm_last.h"
#include "backend/cpu/norm/last.h"
#include "backend/cpu/norm/layer_norm.h"
#include "backend/cpu/norm/local_response_norm.h"
#include "backend/cpu/norm/softmax.h"

/* Kernels named _last are for channels-last tensors. */
const aril__row aril__cpu_norm_rows[] = {
    KERNEL(softmax, cpu_softmax, .dtypes = DT_FLOAT, .workspace = aril__cpu_softmax_scratch),
    KERNEL(log_softmax, cpu_log_softmax, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_softmax_scratch),
    KERNEL(softmax_grad, cpu_softmax_grad, .dtypes = DT_FLOAT),
    KERNEL(log_softmax_grad, cpu_log_softmax_grad, .dtypes = DT_FLOAT),

    KERNEL(batch_norm, cpu_batch_norm_last, .dtypes = DT_FLOAT, .strided = true,
           .prepare = aril__cpu_batch_norm_last_prepare),
    KERNEL(batch_norm_grad, cpu_batch_norm_grad_last, .dtypes = DT_FLOAT, .strided = true,
           .prepare = aril__cpu_batch_norm_last_prepare),
    KERNEL(batch_norm_eval, cpu_batch_norm_eval_last, .dtypes = DT_FLOAT, .strided = true,
           .prepare = aril__cpu_batch_norm_eval_last_prepare),
    KERNEL(batch_norm, cpu_batch_norm, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_batch_norm_scratch),
    KERNEL(batch_norm_grad, cpu_batch_norm_grad, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_batch_norm_scratch),
    KERNEL(batch_norm_eval, cpu_batch_norm_eval, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_batch_norm_scratch),

    KERNEL(local_response_norm, cpu_local_response_norm_last, .dtypes = DT_FLOAT, .strided = true,
           .prepare = aril__cpu_local_response_norm_last_prepare),
    KERNEL(local_response_norm_grad, cpu_local_response_norm_last, .dtypes = DT_FLOAT,
           .strided = true, .prepare = aril__cpu_local_response_norm_last_prepare),
    KERNEL(local_response_norm, cpu_local_response_norm, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_local_response_norm_scratch),
    KERNEL(local_response_norm_grad, cpu_local_response_norm, .dtypes = DT_FLOAT,
           .workspace = aril__cpu_local_response_norm_scratch),

    KERNEL(layer_norm, cpu_layer_norm, .dtypes = DT_FLOAT, .workspace = aril__cpu_row_norm_scratch),
    KERNEL(layer_norm_grad, cpu_layer_norm_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_layer_norm_grad_scratch),
    KERNEL(rms_norm, cpu_rms_norm, .dtypes = DT_FLOAT, .workspace = aril__cpu_row_norm_scratch),
    KERNEL(rms_norm_grad, cpu_rms_norm_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_rms_norm_grad_scratch),
    KERNEL(group_norm, cpu_group_norm_last, .dtypes = DT_FLOAT, .strided = true,
           .prepare = aril__cpu_group_norm_last_prepare),
    KERNEL(group_norm, cpu_group_norm, .dtypes = DT_FLOAT, .workspace = aril__cpu_row_norm_scratch),
    KERNEL(group_norm_grad, cpu_group_norm_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_group_norm_grad_scratch),

    { 0 },
};
