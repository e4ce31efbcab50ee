/* Recurrent sequences: one layer, one direction, as one op. */
#ifndef ARIL_OPS_RNN_SEQ_H
#define ARIL_OPS_RNN_SEQ_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_gru_seq, aril__op_gru_seq_grad, aril__op_lstm_seq,
    aril__op_lstm_seq_grad, aril__op_rnn_seq, aril__op_rnn_seq_grad;

/* reverse: from the last step to the first. relu: for plain RNNs, instead of tanh. keep: the gates
 * of each step are a result too, for the gradient. */
#define RNN_SEQ_ATTRS(A)                 \
    A(rnn_seq, I64, 1, reverse, 0, NULL) \
    A(rnn_seq, I64, 1, relu, 0, NULL)    \
    A(rnn_seq, I64, 1, keep, 0, NULL)
ATTRS(rnn_seq, RNN_SEQ_ATTRS)

enum aril__rnn_kind { ARIL__RNN, ARIL__LSTM, ARIL__GRU };

/* Inputs of a sequence op. xw holds the inputs of all steps times W_ih, plus b_ih: [T,N,G*H], with
 * G = 1, 4 (i, f, g, o) or 3 (r, z, n). Results: y [T,N,H], h_n [N,H], c_n [N,H] for an LSTM, and
 * with gates the kept values: [T,N,S*H] with S = 5 (i, f, g, o, the cell) or 4 (r, z, n, and the
 * state's contribution to n: W_hn h + b_hn); [0] if nothing is kept. No gradient flows through the
 * kept values: they can be recomputed from the inputs. */
enum { RNN_XW, RNN_H0, RNN_W, RNN_B, RNN_LEN, RNN_C0, RNN_INPUTS };
enum { LSTM_KEPT = 5, GRU_KEPT = 4 };

/* Inputs of its gradient; b, xw from GRAD_XW on only with gates, c from GRAD_C0 on only for an
 * LSTM. Results: the gradients of xw, h0, W_hh, b_hh, and of c0 for an LSTM. Kernels may read
 * GRAD_KEPT, if given, instead of recomputing it. */
enum {
    GRAD_Y,
    GRAD_H0,
    GRAD_W,
    GRAD_LEN,
    GRAD_GY,
    GRAD_GH,
    GRAD_XW,
    GRAD_B,
    GRAD_KEPT,
    GRAD_C0,
    GRAD_GC,
    GRAD_INPUTS
};

/* Fails unless all lengths (contiguous i64, or NULL) are from 1 to `steps`. */
aril_status aril__rnn_check_lengths(const aril__op *op, const aril_tensor *lengths, int64_t steps);

/* References. */
aril_status aril__rnn_ref(enum aril__rnn_kind kind, aril__run *r);
aril_status aril__rnn_grad_ref(enum aril__rnn_kind kind, aril__run *r);

/* The gradients of sequences decomposed into public ops, for second derivatives. */
void aril__rnn_grad_decompose(enum aril__rnn_kind kind, aril__call *c, aril_tensor **out);

#endif
