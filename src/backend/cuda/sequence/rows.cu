/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cuda/rows.cuh"
#include "backend/cuda/sequence/attention.cuh"
#include "backend/cuda/sequence/rnn.cuh"

enum : uint32_t { F32_F64 = ARIL_CUDA_DT(ARIL_F32) | ARIL_CUDA_DT(ARIL_F64) };

/* reserve_: the format that the row writes or reads. */
#define RECURRENT(op_, name_, stem_, attrs_, reserve_)                             \
    {                                                                              \
        .op = op_, .name = name_, .dtypes = ARIL_CUDA_DT_FLOAT, .native = F32_F64, \
        .layout = ARIL_CUDA_LAYOUT(attrs_), .reserve = reserve_,                   \
        .prepare = aril_cuda_##stem_##_prepare, .run = aril_cuda_##stem_##_run,    \
        .destroy = aril_cuda_rnn_plan_free                                         \
    }

const aril_row aril_cuda_sequence_rows[] = {
    { .op = "attention",
      .name = "cuda_attention_wgmma",
      .dtypes = ARIL_CUDA_DT(ARIL_F16) | ARIL_CUDA_DT(ARIL_BF16),
      .strided = true,
      .layout = ARIL_CUDA_LAYOUT(ATTENTION_ATTRS),
      .prepare = aril_cuda_attention_wgmma_prepare,
      .run = aril_cuda_attention_wgmma_run },
    { .op = "attention",
      .name = "cuda_attention_mma",
      .dtypes = ARIL_CUDA_DT(ARIL_F16) | ARIL_CUDA_DT(ARIL_BF16),
      .strided = true,
      .layout = ARIL_CUDA_LAYOUT(ATTENTION_ATTRS),
      .prepare = aril_cuda_attention_mma_prepare,
      .run = aril_cuda_attention_mma_run },
    { .op = "attention",
      .name = "cuda_attention",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .native = F32_F64,
      .layout = ARIL_CUDA_LAYOUT(ATTENTION_ATTRS),
      .prepare = aril_cuda_attention_prepare,
      .run = aril_cuda_attention_run },
    { .op = "attention_grad",
      .name = "cuda_attention_grad_wgmma",
      .dtypes = ARIL_CUDA_DT(ARIL_F16) | ARIL_CUDA_DT(ARIL_BF16),
      .strided = true,
      .layout = ARIL_CUDA_LAYOUT(ATTENTION_ATTRS),
      .prepare = aril_cuda_attention_wgmma_grad_prepare,
      .run = aril_cuda_attention_wgmma_grad_run },
    { .op = "attention_grad",
      .name = "cuda_attention_grad_mma",
      .dtypes = ARIL_CUDA_DT(ARIL_F16) | ARIL_CUDA_DT(ARIL_BF16),
      .strided = true,
      .layout = ARIL_CUDA_LAYOUT(ATTENTION_ATTRS),
      .prepare = aril_cuda_attention_mma_grad_prepare,
      .run = aril_cuda_attention_mma_grad_run },
    { .op = "attention_grad",
      .name = "cuda_attention_grad",
      .dtypes = ARIL_CUDA_DT_FLOAT,
      .native = F32_F64,
      .layout = ARIL_CUDA_LAYOUT(ATTENTION_ATTRS),
      .prepare = aril_cuda_attention_grad_prepare,
      .run = aril_cuda_attention_grad_run },
    RECURRENT("rnn_seq", "cuda_rnn", rnn, RNN_SEQ_ATTRS, nullptr),
    RECURRENT("lstm_seq", "cuda_lstm", lstm, RNN_SEQ_ATTRS, ARIL_CUDA_RNN),
    RECURRENT("gru_seq", "cuda_gru", gru, RNN_SEQ_ATTRS, ARIL_CUDA_RNN),
    RECURRENT("rnn_seq_grad", "cuda_rnn_grad", rnn_grad, RNN_GRAD_ATTRS, nullptr),
    RECURRENT("lstm_seq_grad", "cuda_lstm_grad", lstm_grad, RNN_GRAD_ATTRS, ARIL_CUDA_RNN),
    RECURRENT("lstm_seq_grad", "cuda_lstm_grad_anew", lstm_anew, RNN_GRAD_ATTRS, nullptr),
    RECURRENT("gru_seq_grad", "cuda_gru_grad", gru_grad, RNN_GRAD_ATTRS, ARIL_CUDA_RNN),
    RECURRENT("gru_seq_grad", "cuda_gru_grad_anew", gru_anew, RNN_GRAD_ATTRS, nullptr),
    {},
};
