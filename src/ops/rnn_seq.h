/* Recurrent sequences: one layer, one direction, as one op. */
#ifndef ARIL_OPS_RNN_SEQ_H
#define ARIL_OPS_RNN_SEQ_H

#include "ops/op.h"

/* reverse: from the last step to the first. relu: of plain networks, instead of tanh. */
#define RNN_SEQ_ATTRS(A) A(rnn_seq, I64, 1, reverse, 0, NULL) A(rnn_seq, I64, 1, relu, 0, NULL)
ATTRS(rnn_seq, RNN_SEQ_ATTRS)

enum aril__rnn_kind { ARIL__RNN, ARIL__LSTM, ARIL__GRU };

/* Inputs of a sequence op. xw holds the inputs of all steps times W_ih, with b_ih: [T,N,G*H], with
 * G = 1, 4 (i, f, g, o) or 3 (r, z, n). Results: y [T,N,H], h_n [N,H], and c_n [N,H] of an LSTM. */
enum { RNN_XW, RNN_H0, RNN_W, RNN_B, RNN_LEN, RNN_C0, RNN_INPUTS };

/* Inputs of its gradient; b, xw from GRAD_XW on only where there are gates, c from GRAD_C0 on only of
 * an LSTM. Results: of xw, h0, W_hh, b_hh, and c0 of an LSTM. */
enum {
    GRAD_Y,
    GRAD_H0,
    GRAD_W,
    GRAD_LEN,
    GRAD_GY,
    GRAD_GH,
    GRAD_XW,
    GRAD_B,
    GRAD_C0,
    GRAD_GC,
    GRAD_INPUTS
};

/* The gradients of sequences in public ops, for second derivatives. */
void aril__rnn_grad_decompose(enum aril__rnn_kind kind, aril__call *c, aril_tensor **out);

#endif
