/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/norm/rows.h"

#include "backend/cpu/norm/softmax.h"
#include "ops/norm/norm.h"

/* Normalization of channels-last tensors. */
#define LAST(op_, run_)                   \
    { .op = #op_,                         \
      .name = "cpu_" #op_ "_last",        \
      .dtypes = DT_FLOAT,                 \
      .strided = true,                    \
      .prepare = aril__norm_last_prepare, \
      .run = (run_) },
const aril__row aril__cpu_norm_rows[] = {
    KERNEL(softmax, DT_FLOAT, NULL, cpu_softmax),
    KERNEL(log_softmax, DT_FLOAT, NULL, cpu_log_softmax),
    KERNEL(softmax_grad, DT_FLOAT, NULL, cpu_softmax_grad),
    KERNEL(log_softmax_grad, DT_FLOAT, NULL, cpu_log_softmax_grad),

    LAST(batch_norm, aril__batch_norm_last) LAST(batch_norm_grad, aril__batch_norm_last)
        LAST(batch_norm_eval, aril__batch_norm_last)
            LAST(local_response_norm, aril__local_response_norm_last)
                LAST(local_response_norm_grad, aril__local_response_norm_last){ 0 }
};
