/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/sequence/attention.h"
#include "backend/cpu/sequence/rnn.h"

const aril__row aril__cpu_sequence_rows[] = {
    KERNEL(attention, cpu_attention, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(attention_grad, cpu_attention_grad, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(rnn_seq, cpu_rnn, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(lstm_seq, cpu_rnn, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(gru_seq, cpu_rnn, .dtypes = DT_FLOAT, .native = F32_F64),
    KERNEL(rnn_seq_grad, cpu_rnn_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .prepare = aril__cpu_rnn_grad_prepare),
    KERNEL(lstm_seq_grad, cpu_rnn_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .prepare = aril__cpu_rnn_grad_prepare),
    KERNEL(gru_seq_grad, cpu_rnn_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .prepare = aril__cpu_rnn_grad_prepare),
    { 0 },
};
