/* Recurrent sequences: one layer in one direction as one op, from the input to the states. */
#ifndef ARIL_OPS_RNN_SEQ_H
#define ARIL_OPS_RNN_SEQ_H

#include "ops/table/op.h"

/* Ops that other files name. */
extern const aril__op aril__op_gru_seq, aril__op_gru_seq_grad, aril__op_lstm_seq,
    aril__op_lstm_seq_grad, aril__op_rnn_seq, aril__op_rnn_seq_grad;

/* reverse: from the last step to the first. relu: for plain RNNs, instead of tanh. keep: a gradient
 * may be needed, so that the row fills the reserve. */
#define RNN_SEQ_ATTRS(A)                 \
    A(rnn_seq, I64, 1, reverse, 0, NULL) \
    A(rnn_seq, I64, 1, relu, 0, NULL)    \
    A(rnn_seq, I64, 1, keep, 0, NULL)
ATTRS(rnn_seq, RNN_SEQ_ATTRS)

/* Of the gradients. no_dx, no_dw: the gradient of x, or those of weights and biases, are not
 * needed, and are empty. */
#define RNN_GRAD_ATTRS(A)                 \
    A(rnn_grad, I64, 1, reverse, 0, NULL) \
    A(rnn_grad, I64, 1, relu, 0, NULL)    \
    A(rnn_grad, I64, 1, no_dx, 0, NULL)   \
    A(rnn_grad, I64, 1, no_dw, 0, NULL)
ATTRS(rnn_grad, RNN_GRAD_ATTRS)

enum aril__rnn_kind { ARIL__RNN, ARIL__LSTM, ARIL__GRU };

/* Inputs of a sequence op: x [T,N,I], the initial states [1,N,H] (NULL: zeros), lengths [N] (NULL:
 * all sequences have T steps), W_ih [G*H,I], W_hh [G*H,H], biases [G*H] (NULL: none), with G = 1,
 * 4 (i, f, g, o) or 3 (r, z, n). Only an LSTM has cells. Weights come last, and states have a
 * leading axis, so that a stack of layers and directions has room in the same form. */
enum { RNN_X, RNN_H0, RNN_C0, RNN_LEN, RNN_W_IH, RNN_W_HH, RNN_B_IH, RNN_B_HH, RNN_INPUTS };

/* Results: y [T,N,H], h_n [1,N,H], what the row keeps for the gradient (empty unless `keep`), and
 * for an LSTM c_n [1,N,H]. No gradient flows through the reserve: it can be recomputed. */
enum { RNN_Y, RNN_HN, RNN_RESERVE, RNN_CN, RNN_RESULTS };

/* Inputs of its gradient: those of the op, its y and its reserve, and the gradients of y, h_n and
 * c_n (NULL: zeros). A reserve that is NULL or of another row's format is not read: the gates are
 * recomputed. */
enum {
    GRAD_X,
    GRAD_H0,
    GRAD_C0,
    GRAD_LEN,
    GRAD_Y,
    GRAD_RESERVE,
    GRAD_GY,
    GRAD_GH,
    GRAD_GC,
    GRAD_W_IH,
    GRAD_W_HH,
    GRAD_B_IH,
    GRAD_B_HH,
    GRAD_INPUTS
};

/* Its results: the gradients of x, h_0, the weights, the biases, and for an LSTM of c_0. */
enum { GRAD_DX, GRAD_DH0, GRAD_DW_IH, GRAD_DW_HH, GRAD_DB_IH, GRAD_DB_HH, GRAD_DC0, GRAD_RESULTS };

/* Of a sequence op or its gradient. */
static inline enum aril__rnn_kind aril__rnn_kind_of(const aril__op *op)
{
    return op == &aril__op_lstm_seq || op == &aril__op_lstm_seq_grad ? ARIL__LSTM
           : op == &aril__op_gru_seq || op == &aril__op_gru_seq_grad ? ARIL__GRU
                                                                     : ARIL__RNN;
}

static inline int64_t aril__rnn_gates(enum aril__rnn_kind kind)
{
    return kind == ARIL__LSTM ? 4 : kind == ARIL__GRU ? 3 : 1;
}

/* Fails unless all lengths (contiguous i64, or NULL) are from 1 to `steps`. */
aril_status aril__rnn_check_lengths(const aril__op *op, const aril_tensor *lengths, int64_t steps);

/* References. */
aril_status aril__rnn_ref(aril__run *r);
aril_status aril__rnn_grad_ref(aril__run *r);
size_t aril__rnn_ref_scratch(const aril__run *r);
size_t aril__rnn_grad_ref_scratch(const aril__run *r);

/* The gradients of sequences decomposed into public ops, for second derivatives. */
void aril__rnn_grad_decompose(aril__call *c, aril_tensor **out);

#endif
