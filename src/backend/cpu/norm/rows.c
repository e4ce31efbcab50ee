/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/norm/rows.h"

#include "backend/cpu/norm/batch_norm.h"
#include "backend/cpu/norm/last.h"
#include "backend/cpu/norm/layer_norm.h"
#include "backend/cpu/norm/local_response_norm.h"
#include "backend/cpu/norm/softmax.h"

/* Of channels-last tensors. */
#define LAST(op_, run_)                                                 \
    {                                                                   \
        .op = #op_, .name = #run_, .dtypes = DT_FLOAT, .strided = true, \
        .prepare = aril__cpu_norm_last_prepare, .run = aril__##run_     \
    }

/* f16 and bf16 are staged through f32. */
#define STAGED(op_, run_)                                                                     \
    {                                                                                         \
        .op = #op_, .name = #run_, .dtypes = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), \
        .run = aril__##run_                                                                   \
    }

const aril__row aril__cpu_norm_rows[] = {
    KERNEL(softmax, DT_FLOAT, NULL, cpu_softmax),
    KERNEL(log_softmax, DT_FLOAT, NULL, cpu_log_softmax),
    KERNEL(softmax_grad, DT_FLOAT, NULL, cpu_softmax_grad),
    KERNEL(log_softmax_grad, DT_FLOAT, NULL, cpu_log_softmax_grad),

    LAST(batch_norm, cpu_batch_norm_last),
    LAST(batch_norm_grad, cpu_batch_norm_grad_last),
    LAST(batch_norm_eval, cpu_batch_norm_eval_last),
    KERNEL(batch_norm, DT_FLOAT, NULL, cpu_batch_norm),
    KERNEL(batch_norm_grad, DT_FLOAT, NULL, cpu_batch_norm_grad),
    KERNEL(batch_norm_eval, DT_FLOAT, NULL, cpu_batch_norm_eval),

    LAST(local_response_norm, cpu_local_response_norm_last),
    LAST(local_response_norm_grad, cpu_local_response_norm_last),
    KERNEL(local_response_norm, DT_FLOAT, NULL, cpu_local_response_norm),
    KERNEL(local_response_norm_grad, DT_FLOAT, NULL, cpu_local_response_norm),

    STAGED(layer_norm, cpu_layer_norm),
    STAGED(layer_norm_grad, cpu_layer_norm_grad),
    STAGED(rms_norm, cpu_rms_norm),
    STAGED(rms_norm_grad, cpu_rms_norm_grad),
    STAGED(group_norm, cpu_group_norm),
    STAGED(group_norm_grad, cpu_group_norm_grad),

    { 0 }
};
