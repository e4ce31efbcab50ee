#include "backend/onednn/rows.h"

#include "backend/onednn/conv.h"
#include "backend/onednn/matmul.h"
#include "backend/onednn/norm.h"
#include "backend/onednn/onednn.h"
#include "backend/onednn/pool.h"
#include "backend/onednn/reorder.h"
#include "backend/onednn/resample.h"
#include "backend/onednn/rnn.h"
#include "backend/onednn/softmax.h"

#define LOW (DT(ARIL_BF16) | DT(ARIL_F16))

#define CONV(op_, last_)                 \
    { .op = #op_,                        \
      .name = "onednn_" #op_,            \
      .dtypes = DT(ARIL_F32) | LOW,      \
      .strided = true,                   \
      .channels_last = (last_),          \
      .prepare = aril__dnn_conv_prepare, \
      .run = aril__dnn_conv,             \
      .destroy = aril__dnn_conv_destroy },

/* `strided`: looks at the strides itself; else it is given dense tensors. */
#define ROW(op_, dtypes_, strided_, by_, run_) \
    { .op = #op_,                              \
      .name = "onednn_" #op_,                  \
      .dtypes = (dtypes_),                     \
      .strided = (strided_),                   \
      .prepare = aril__dnn_##by_##_prepare,    \
      .run = aril__dnn_##run_,                 \
      .destroy = aril__dnn_##by_##_destroy },
#define STRIDED_ROW(op_, by_) ROW(op_, DT(ARIL_F32) | LOW, true, by_, by_)

/* Faster than Aril's own. */
static const aril__row ahead[] = {
    CONV(conv, true) CONV(conv_dgrad, true) CONV(conv_wgrad, false) CONV(conv_transpose, true)
        ROW(matmul, LOW, true, matmul, matmul) ROW(linear, LOW, true, matmul, matmul)
            ROW(outer_sum, LOW, false, matmul, matmul) ROW(softmax, LOW, false, softmax, softmax)
                ROW(log_softmax, LOW, false, softmax,
                    softmax) ROW(softmax_grad, LOW, false, softmax,
                                 softmax) ROW(log_softmax_grad, LOW, false, softmax, softmax)
                    ROW(layer_norm, DT(ARIL_F32) | LOW, false, layer_norm, layer_norm)
                        ROW(layer_norm_grad, DT(ARIL_F32) | LOW, false, layer_norm, layer_norm_grad)
};

/* No faster than Aril's own: other ways to the same results, behind the references. */
static const aril__row behind[] = {
    ROW(matmul, DT(ARIL_F32), true, matmul, matmul) ROW(linear, DT(ARIL_F32), true, matmul, matmul)
        ROW(outer_sum, DT(ARIL_F32), false, matmul, matmul) STRIDED_ROW(max_pool, pool)
            STRIDED_ROW(avg_pool, pool) STRIDED_ROW(avg_pool_grad, pool)
                STRIDED_ROW(adaptive_avg_pool, pool) STRIDED_ROW(adaptive_avg_pool_grad, pool)
                    ROW(softmax, DT(ARIL_F32), false, softmax,
                        softmax) ROW(log_softmax, DT(ARIL_F32), false, softmax, softmax)
                        ROW(softmax_grad, DT(ARIL_F32), false, softmax, softmax)
                            ROW(log_softmax_grad, DT(ARIL_F32), false, softmax, softmax)
                                ROW(batch_norm, DT(ARIL_F32) | LOW, true, batch_norm, batch_norm)
                                    ROW(batch_norm_eval, DT(ARIL_F32) | LOW, true, batch_norm,
                                        batch_norm) ROW(batch_norm_grad, DT(ARIL_F32) | LOW, true,
                                                        batch_norm, batch_norm_grad)
                                        ROW(rnn_seq, DT(ARIL_F32), false, rnn, rnn)
                                            ROW(lstm_seq, DT(ARIL_F32), false, rnn, rnn)
                                                ROW(gru_seq, DT(ARIL_F32), false, rnn, rnn)
                                                    STRIDED_ROW(interpolate, resample)
                                                        STRIDED_ROW(interpolate_grad, resample)
                                                            STRIDED_ROW(copy, reorder)
                                                                STRIDED_ROW(cast, reorder)
};

aril_status aril__dnn_start(void)
{
    return aril__rows_register(ARIL__CPU, ahead, sizeof ahead / sizeof *ahead);
}

aril_status aril__dnn_start_behind(void)
{
    return aril__rows_register_behind(ARIL__CPU, behind, sizeof behind / sizeof *behind);
}
