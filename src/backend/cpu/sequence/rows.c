/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/sequence/rows.h"

#include "backend/cpu/sequence/attention.h"
#include "backend/cpu/sequence/rnn.h"

#define SEQUENCE(op_, name_, prepare_)                                                         \
    {                                                                                          \
        .op = #op_, .name = #name_, .dtypes = DT_FLOAT, .native = DT(ARIL_F32) | DT(ARIL_F64), \
        .prepare = (prepare_), .run = aril__##name_                                            \
    }
const aril__row aril__cpu_sequence_rows[] = {
    SEQUENCE(attention, cpu_attention, NULL),
    SEQUENCE(attention_grad, cpu_attention_grad, NULL),
    SEQUENCE(rnn_seq, cpu_rnn, NULL),
    SEQUENCE(lstm_seq, cpu_rnn, NULL),
    SEQUENCE(gru_seq, cpu_rnn, NULL),
    SEQUENCE(rnn_seq_grad, cpu_rnn_grad, aril__cpu_rnn_grad_prepare),
    SEQUENCE(lstm_seq_grad, cpu_rnn_grad, aril__cpu_rnn_grad_prepare),
    SEQUENCE(gru_seq_grad, cpu_rnn_grad, aril__cpu_rnn_grad_prepare),
    { 0 }
};
