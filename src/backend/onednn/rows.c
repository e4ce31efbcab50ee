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

#define F32 DT(ARIL_F32)
#define LOW (DT(ARIL_BF16) | DT(ARIL_F16))
#define ALL (F32 | LOW)

#define CONV(op_)                                                           \
    {                                                                       \
        .op = #op_, .name = "onednn_" #op_, .dtypes = ALL, .strided = true, \
        .prepare = aril__dnn_conv_prepare, .run = aril__dnn_conv,           \
        .destroy = aril__dnn_conv_destroy                                   \
    }

/* strided_: the row handles strides itself; else it gets contiguous tensors. by_: the file. */
#define ROW(op_, dtypes_, strided_, by_, run_)                                          \
    {                                                                                   \
        .op = #op_, .name = "onednn_" #op_, .dtypes = (dtypes_), .strided = (strided_), \
        .prepare = aril__dnn_##by_##_prepare, .run = aril__dnn_##run_,                  \
        .destroy = aril__dnn_##by_##_destroy                                            \
    }

/* Faster than Aril's own, except for calls that they decline. */
static const aril__row ahead[] = {
    CONV(conv),
    CONV(conv_add),
    CONV(conv_dgrad),
    CONV(conv_wgrad),
    CONV(conv_transpose),
    ROW(matmul, LOW, true, matmul, matmul),
    ROW(linear, ALL, true, matmul, matmul),
    ROW(outer_sum, LOW, false, matmul, matmul),
    ROW(softmax_grad, LOW, false, softmax, softmax),
    ROW(log_softmax_grad, LOW, false, softmax, softmax),
    ROW(layer_norm, ALL, false, layer_norm, layer_norm),
    ROW(layer_norm_grad, ALL, false, layer_norm, layer_norm_grad),
    ROW(local_response_norm, ALL, true, local_response_norm, local_response_norm),
    ROW(max_pool, ALL, true, pool, pool),
    ROW(avg_pool, ALL, true, pool, pool),
    ROW(avg_pool_grad, ALL, true, pool, pool),
    ROW(adaptive_avg_pool, ALL, true, pool, pool),
    ROW(adaptive_avg_pool_grad, ALL, true, pool, pool),
    ROW(interpolate, ALL, true, resample, resample),
    ROW(interpolate_grad, ALL, true, resample, resample),
    ROW(copy, DT(ARIL_BF16), true, reorder, reorder),
    ROW(cast, DT(ARIL_BF16), true, reorder, reorder),
};

/* No faster than Aril's own: alternatives, placed after the references. */
static const aril__row behind[] = {
    ROW(matmul, F32, true, matmul, matmul),
    ROW(outer_sum, F32, false, matmul, matmul),
    ROW(softmax, ALL, false, softmax, softmax), /* NaN stays in its element, not the whole line */
    ROW(log_softmax, ALL, false, softmax, softmax),
    ROW(softmax_grad, F32, false, softmax, softmax),
    ROW(log_softmax_grad, F32, false, softmax, softmax),
    ROW(batch_norm, ALL, true, batch_norm, batch_norm),
    ROW(batch_norm_eval, ALL, true, batch_norm, batch_norm),
    ROW(batch_norm_grad, ALL, true, batch_norm, batch_norm_grad),
    ROW(rnn_seq, F32, false, rnn, rnn),
    ROW(lstm_seq, F32, false, rnn, rnn),
    ROW(gru_seq, F32, false, rnn, rnn),
    ROW(copy, F32, true, reorder, reorder),
};

aril_status aril__dnn_start(void)
{
    return aril__rows_register(ARIL__CPU, ahead, sizeof ahead / sizeof *ahead);
}

aril_status aril__dnn_start_behind(void)
{
    return aril__rows_register_behind(ARIL__CPU, behind, sizeof behind / sizeof *behind);
}
