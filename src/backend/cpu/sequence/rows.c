/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/sequence/attention.h"
#include "backend/cpu/sequence/rnn.h"

/* .reserve: the format that the row writes or reads. */
#define RECURRENT(op_, run_, ...)                                                               \
    KERNEL(op_, run_, .dtypes = DT_FLOAT, .native = F32_F64, .prepare = aril__##run_##_prepare, \
           __VA_ARGS__)

const aril__row aril__cpu_sequence_rows[] = {
    KERNEL(attention, cpu_attention_few, .dtypes = F32_F64, .strided = true,
           .prepare = aril__cpu_attention_few_prepare),
    KERNEL(attention, cpu_attention, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_attention_scratch),
    KERNEL(attention_grad, cpu_attention_grad, .dtypes = DT_FLOAT, .native = F32_F64,
           .workspace = aril__cpu_attention_grad_scratch),
    RECURRENT(rnn_seq, cpu_rnn, .reserve = NULL),
    RECURRENT(lstm_seq, cpu_rnn, .reserve = ARIL__CPU_RNN),
    RECURRENT(gru_seq, cpu_rnn, .reserve = ARIL__CPU_RNN),
    RECURRENT(rnn_seq_grad, cpu_rnn_grad, .reserve = NULL),
    RECURRENT(lstm_seq_grad, cpu_rnn_grad, .reserve = ARIL__CPU_RNN),
    RECURRENT(lstm_seq_grad, cpu_rnn_grad_anew, .reserve = NULL),
    RECURRENT(gru_seq_grad, cpu_rnn_grad, .reserve = ARIL__CPU_RNN),
    RECURRENT(gru_seq_grad, cpu_rnn_grad_anew, .reserve = NULL),
    { 0 },
};
